//! Answers to commands: the log of changes of chosen tables, and the memory in use.

use std::fmt;
use std::sync::Arc;

use super::Server;
use crate::db::{Change, Delta, Row};
use crate::schema::TableSchema;
use crate::value::Uuid;
use crate::value::text::{Style, datum_text};

/// A change of a row in a table of [`Server::log_table`]; its text is the line of the log.
#[derive(Clone, Debug)]
pub struct LoggedChange {
    table: Arc<TableSchema>,
    uuid: Uuid,
    change: Change,
}

impl LoggedChange {
    fn write(&self, f: &mut fmt::Formatter<'_>, op: &str, row: &Row) -> fmt::Result {
        let (table, uuid) = (&self.table, self.uuid);
        write!(f, "table:{},op:{op},_uuid:{uuid},_version:{}", table.name, row.version)?;
        for (column, datum) in table.columns.iter().zip(&row.columns) {
            write!(f, ",{}:{}", column.name, datum_text(datum, &column.ty, Style::Quoted))?;
        }
        Ok(())
    }
}

impl fmt::Display for LoggedChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.change.old, &self.change.new) {
            (None, Some(new)) => self.write(f, "inserted", new),
            (Some(_), Some(new)) => self.write(f, "updated", new),
            (Some(old), None) => self.write(f, "deleted", old),
            (None, None) => Ok(()),
        }
    }
}

/// Memory in use, as counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Atoms in the rows of all databases, `_uuid` and `_version` included.
    pub atoms: usize,
    /// Values of columns in all rows, these two included.
    pub cells: usize,
    /// Weak references.
    pub weak_refs: usize,
    /// Open sessions.
    pub sessions: usize,
    /// Their monitors.
    pub monitors: usize,
    /// Their waiting transactions.
    pub triggers: usize,
    /// Their unread output, bytes.
    pub backlog: usize,
}

impl Server {
    /// All databases and their tables in order, and whether changes of the table are logged.
    pub fn tables(&self) -> impl Iterator<Item = (&str, Vec<(&str, bool)>)> {
        self.databases.iter().map(|(database, hosted)| {
            let tables = hosted.db.schema().tables.iter();
            let is_logged = |t: &TableSchema| self.logged.contains(&(database.clone(), t.name.clone()));
            (&**database, tables.map(|t| (&*t.name, is_logged(t))).collect())
        })
    }

    /// Logs the changes of a table from now on, or no longer.
    ///
    /// # Errors
    /// The database or the table is unknown.
    pub fn log_table(&mut self, database: &str, table: &str, on: bool) -> Result<(), &'static str> {
        let (name, hosted) = self.databases.get_key_value(database).ok_or("no such database")?;
        let table = hosted.db.schema().table(table).ok_or("no such table")?;
        let key = (name.clone(), table.name.clone());
        match on {
            true => self.logged.insert(key),
            false => self.logged.remove(&key),
        };
        Ok(())
    }

    /// Changes of these tables since the last call.
    pub fn take_logged(&mut self) -> Vec<LoggedChange> {
        std::mem::take(&mut self.changes)
    }

    /// Keeps the changes of logged tables.
    pub(super) fn note_changes(&mut self, database: &Arc<str>, delta: &Delta) {
        let Some(hosted) = self.databases.get(database).filter(|_| !self.logged.is_empty()) else { return };
        let tables = &hosted.db.schema().tables;
        for ((ix, uuid), change) in &delta.changes {
            let table = &tables[ix.0];
            if self.logged.contains(&(database.clone(), table.name.clone())) {
                let (table, change) = (table.clone(), change.clone());
                self.changes.push(LoggedChange { table, uuid: *uuid, change });
            }
        }
    }

    /// Memory in use.
    pub fn memory_use(&self) -> MemoryUse {
        let mut used = MemoryUse {
            sessions: self.sessions.len(),
            monitors: self.sessions.values().map(|s| s.monitors.len()).sum(),
            triggers: self.pending.len(),
            backlog: self.sessions.values().map(|s| s.output_bytes()).sum(),
            ..MemoryUse::default()
        };
        for hosted in self.databases.values() {
            let (atoms, cells) = hosted.db.contents();
            (used.atoms, used.cells) = (used.atoms + atoms, used.cells + cells);
            used.weak_refs += hosted.db.weak_refs();
        }
        used
    }

    /// Whether clients get conditional monitors; if not, the methods are unknown. Close the clients after a change, so
    /// that they ask again.
    pub fn offer_conditional_monitors(&mut self, offered: bool) {
        self.conditional = offered;
    }
}
