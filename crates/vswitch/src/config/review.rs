//! Notices that follow from [`crate::settings`]: settings without effect, values that are none, and unknown keys.
//!
//! Runs after the parsers, and adds nothing about a setting that they have reported.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use ovsdb::client::RowView;
use ovsdb::value::{AtomicType, Datum, Uuid};

use super::parsed::ChangedRows;
use super::reader::{Reader, display_name, flag};
use crate::settings::{self, Effect, Setting, TableRows};

/// Tables whose rows can have notices. Parts of their settings in other tables are reported here.
const TABLES: [&str; 6] = ["Open_vSwitch", "Bridge", "Port", "Interface", "Controller", "Manager"];

/// A key that no setting has, in the rows of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownKey {
    /// The table.
    pub table: &'static str,
    /// The column.
    pub column: &'static str,
    /// The key.
    pub key: String,
    /// The name of the first row with it.
    pub row: String,
    /// Rows with it, at least 1.
    pub rows: usize,
}

/// Settings that the parsers have reported: row, and column or column and key.
type Reported = BTreeSet<(Uuid, String)>;
/// Unknown keys by table, column and key.
type Unknown = BTreeMap<(&'static str, &'static str, String), UnknownKey>;

/// State of one review.
struct Review<'a> {
    reported: Reported,
    /// Rows that the parsers have reported.
    told: HashSet<Uuid>,
    /// Names of bridges.
    bridges: BTreeSet<&'a str>,
    unknown: Unknown,
}

/// The columns of a table that may have notices.
struct Columns {
    table: &'static TableRows,
    /// With their defaults.
    defaults: Vec<(&'static Setting, Datum)>,
    /// With settings by key.
    maps: Vec<&'static str>,
}

impl<'a> Reader<'a> {
    /// Adds the notices; returns the unknown keys, in the order of tables, columns and keys.
    pub(super) fn review(&mut self) -> Vec<UnknownKey> {
        let mut review = self.begin_review();
        for table in TABLES.into_iter().filter_map(settings::table) {
            let columns = self.columns(table);
            for row in self.replica.rows(table.name) {
                let is_plain = !self.refused.contains_key(&row.uuid()) && !review.told.contains(&row.uuid());
                if is_plain && self.parsed.is_quiet(row.uuid()) {
                    continue;
                }
                if self.review_row(row, &columns, &mut review) && is_plain {
                    self.parsed.keep_quiet(row.uuid());
                }
            }
        }
        review.unknown.into_values().collect()
    }

    /// Reviews the changed rows alone, about which the parsers have told nothing; whether there is nothing to tell.
    pub(super) fn review_changed(&mut self, changed: &ChangedRows) -> bool {
        let mut review = self.begin_review();
        for (table, rows) in [("Port", &changed.port_rows), ("Interface", &changed.interface_rows)] {
            let Some(table) = settings::table(table) else { continue };
            let columns = self.columns(table);
            for uuid in rows {
                let Some(row) = self.replica.row(table.name, *uuid) else { continue };
                if !self.review_row(row, &columns, &mut review) {
                    return false;
                }
                self.parsed.keep_quiet(*uuid);
            }
        }
        true
    }

    fn begin_review(&self) -> Review<'a> {
        Review {
            reported: self.notices.iter().map(|n| (n.row, n.setting.clone())).collect(),
            told: self.notices.iter().map(|n| n.row).collect(),
            bridges: self.replica.rows("Bridge").map(|row| row.str("name")).collect(),
            unknown: Unknown::new(),
        }
    }

    fn columns(&self, table: &'static TableRows) -> Columns {
        Columns { table, defaults: self.defaults(table), maps: self.maps(table) }
    }

    /// Adds the notices about a row; whether there is nothing to tell.
    fn review_row(&mut self, row: RowView<'a>, columns: &Columns, review: &mut Review<'a>) -> bool {
        let (notices, mut knows_all) = (self.notices.len(), true);
        let Columns { table, defaults, maps } = columns;
        for (setting, default) in defaults {
            self.review_column(row, setting, default, &review.reported);
        }
        let types = if table.name == "Interface" { self.option_types(row, &review.bridges) } else { None };
        for column in maps.iter().copied() {
            // Options of an interface that is refused, and those of unknown types, have no effect of their own.
            let is_moot = column == "options" && (types.is_none() || self.refused.contains_key(&row.uuid()));
            if !is_moot {
                knows_all &= self.review_keys(row, table, column, types.as_deref(), review);
            }
        }
        knows_all && notices == self.notices.len()
    }

    /// The columns that may have a notice, with their defaults.
    fn defaults(&self, table: &'static TableRows) -> Vec<(&'static Setting, Datum)> {
        let schema = self.replica.schema().table(table.name);
        let default =
            |setting: &'static Setting| Some((setting, schema?.column(setting.column)?.default.clone()));
        let has_notice =
            |setting: &&Setting| matches!(setting.effect, Effect::Missing { .. } | Effect::Refused(_));
        table.columns().filter(has_notice).filter_map(default).collect()
    }

    /// The columns with settings by key.
    fn maps(&self, table: &'static TableRows) -> Vec<&'static str> {
        let schema = self.replica.schema().table(table.name);
        let is_map = |name: &str| {
            let ty =
                schema.and_then(|schema| schema.column(name)).and_then(|column| column.ty.value.as_ref());
            ty.is_some_and(|value| value.ty == AtomicType::String)
        };
        let read = table.columns().filter(|setting| setting.is_read() && is_map(setting.column));
        read.map(|setting| setting.column).collect()
    }

    fn review_column(&mut self, row: RowView<'a>, setting: &Setting, default: &Datum, reported: &Reported) {
        let name = setting.column;
        if row.datum(name).is_none_or(|datum| datum == default)
            || reported.contains(&(row.uuid(), name.into()))
        {
            return;
        }
        if let Some(notice) = setting.effect.notice(name, row.opt_str(name).unwrap_or_default()) {
            self.notice(row, name, notice);
        }
    }

    /// Adds the notices about the keys of a column; whether all keys are known.
    fn review_keys(
        &mut self,
        row: RowView<'a>,
        table: &'static TableRows,
        column: &'static str,
        types: Option<&[&str]>,
        review: &mut Review<'a>,
    ) -> bool {
        let Review { reported, unknown, .. } = review;
        let mut knows_all = true;
        for (key, value) in row.string_map(column) {
            let name = format!("{column}:{key}");
            if [&name, column].iter().any(|name| reported.contains(&(row.uuid(), name.to_string()))) {
                continue;
            }
            let Some(setting) = table.key(column, key) else {
                let new = || UnknownKey {
                    table: table.name,
                    column,
                    key: key.into(),
                    row: display_name(row),
                    rows: 0,
                };
                unknown.entry((table.name, column, key.to_string())).or_insert_with(new).rows += 1;
                knows_all = false;
                continue;
            };
            // As in OVS, settings of a disabled session are not read.
            if column == "bfd" && key != "enable" && !flag(row, "bfd", "enable") {
                continue;
            }
            let is_of_type = |types: &[&str]| setting.types.iter().any(|name| types.contains(name));
            if !setting.types.is_empty() && !types.is_some_and(is_of_type) {
                let of = setting.types.join(", ");
                self.hint(
                    row,
                    &*name,
                    format!("{name} has no effect: it is an option of interfaces of type {of}"),
                );
            } else if let Some(notice) = setting.effect.notice(&name, value) {
                match setting.effect {
                    Effect::Fixed { .. } => self.hint(row, &*name, notice),
                    _ => self.notice(row, &*name, notice),
                }
            } else if let (true, Some(expected)) =
                (setting.is_read(), setting.values.expected_instead_of(value))
            {
                self.hint(row, &*name, format!("{name}={value:?} is not {expected}"));
            }
        }
        knows_all
    }

    /// The types whose options an interface has; `None` if its type is unknown.
    fn option_types(&self, row: RowView<'a>, bridges: &BTreeSet<&str>) -> Option<Vec<&'a str>> {
        let type_name = match row.str("type") {
            _ if bridges.contains(row.str("name")) => "internal",
            "" => "system",
            other => other,
        };
        let names = self.supported.interfaces.get(type_name)?.names();
        let family = if names.contains(&"vxlan") {
            Some("tunnel")
        } else if names.contains(&"dummy") {
            Some("dummy")
        } else {
            // In a dummy datapath an internal port is a dummy.
            let dummies = self.supported.interfaces.get("dummy").map(|_| "dummy");
            dummies.filter(|_| names.contains(&"internal"))
        };
        Some(family.into_iter().chain([type_name]).collect())
    }
}
