//! Keys of the database that no setting has: those of other programs, and mistyped ones.

use serde_json::Value;
use vswitch::settings;

use crate::hint::hint;

/// Such a key in the rows of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct UnknownKey {
    /// The table.
    pub(crate) table: String,
    /// The name of the first row with it; empty for the row of `Open_vSwitch`.
    pub(crate) row: String,
    /// The column.
    pub(crate) column: String,
    /// The key.
    pub(crate) key: String,
    /// Rows with it.
    pub(crate) rows: u64,
}

impl UnknownKey {
    /// An element of `unknown_keys` of the daemon's status.
    pub(crate) fn from_json(value: &Value) -> UnknownKey {
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_string();
        UnknownKey {
            table: text("table"),
            row: text("row"),
            column: text("column"),
            key: text("key"),
            rows: value["rows"].as_u64().unwrap_or_default(),
        }
    }

    /// One line, with the setting that has nearly this key; the row of `Open_vSwitch` is `.`.
    pub(crate) fn line(&self) -> String {
        let row = if self.row.is_empty() { "." } else { &self.row };
        let others = match self.rows.saturating_sub(1) {
            0 => String::new(),
            1 => ", also in 1 other row".to_string(),
            n => format!(", also in {n} other rows"),
        };
        let near = hint(&self.key, settings::keys(&self.table, &self.column));
        format!("{} {row} {}:{}: no setting has this key{others}{near}\n", self.table, self.column, self.key)
    }
}

impl From<&vswitch::config::UnknownKey> for UnknownKey {
    fn from(unknown: &vswitch::config::UnknownKey) -> UnknownKey {
        let vswitch::config::UnknownKey { table, column, key, row, rows } = unknown;
        UnknownKey {
            table: table.to_string(),
            row: row.clone(),
            column: column.to_string(),
            key: key.clone(),
            rows: *rows as u64,
        }
    }
}
