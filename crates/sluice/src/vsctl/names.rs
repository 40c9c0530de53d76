//! Finds tables, columns and records by the user's names: abbreviations are allowed, case and `-` versus `_`
//! are ignored. Records are named by name, UUID, or a UUID prefix; `.` is the only record of a table.

use crate::hint::hint;
use ovsdb::schema::{ColumnIx, TableIx};
use ovsdb::value::{Atom, Uuid};

use super::Stop;
use super::work::{Row, Work};

/// A way to name a record of a table: by one of its columns, or by a column of a record that refers to it.
struct RecordName {
    table: &'static str,
    /// Table and column of the name; `None` for a table with a single record, named `.`.
    by: (&'static str, Option<&'static str>),
    /// The column that refers to the record, if another table has the name.
    refers: Option<&'static str>,
}

const fn own(table: &'static str, column: &'static str) -> RecordName {
    RecordName { table, by: (table, Some(column)), refers: None }
}

const fn of(
    table: &'static str,
    by: &'static str,
    column: Option<&'static str>,
    refers: &'static str,
) -> RecordName {
    RecordName { table, by: (by, column), refers: Some(refers) }
}

const RECORD_NAMES: [RecordName; 15] = [
    own("Bridge", "name"),
    own("Port", "name"),
    own("Interface", "name"),
    own("Mirror", "name"),
    own("Manager", "target"),
    own("Flow_Table", "name"),
    own("Controller", "target"),
    of("Controller", "Bridge", Some("name"), "controller"),
    of("NetFlow", "Bridge", Some("name"), "netflow"),
    of("sFlow", "Bridge", Some("name"), "sflow"),
    of("IPFIX", "Bridge", Some("name"), "ipfix"),
    of("QoS", "Port", Some("name"), "qos"),
    of("AutoAttach", "Bridge", Some("name"), "auto_attach"),
    of("SSL", "Open_vSwitch", None, "ssl"),
    RecordName { table: "Open_vSwitch", by: ("Open_vSwitch", None), refers: None },
];

/// Quality of a match of `text` with `name`: an exact match is best, otherwise the length of a prefix; 0 is
/// none.
fn score(name: &str, text: &str) -> usize {
    let plain = |b: u8| if b == b'-' { b'_' } else { b.to_ascii_lowercase() };
    if name == text {
        return usize::MAX;
    }
    let prefix =
        name.len() >= text.len() && name.bytes().zip(text.bytes()).all(|(a, b)| plain(a) == plain(b));
    match prefix {
        true if name.len() == text.len() => usize::MAX - 1,
        true => text.len(),
        false => 0,
    }
}

/// The best matches among the names.
fn best<'n>(names: impl Iterator<Item = &'n str>, text: &str) -> Vec<(usize, &'n str)> {
    let scored: Vec<(usize, usize, &str)> =
        names.enumerate().map(|(at, name)| (score(name, text), at, name)).collect();
    let top = scored.iter().map(|(score, ..)| *score).max().unwrap_or(0);
    let good = scored.into_iter().filter(|(score, ..)| *score == top && top > 0);
    good.map(|(_, at, name)| (at, name)).collect()
}

/// The table that the user means.
pub(crate) fn find_table(work: &Work<'_>, text: &str) -> Result<TableIx, Stop> {
    let found = best(work.schema().tables.iter().map(|table| &*table.name), text);
    match found.as_slice() {
        [(at, _)] => Ok(TableIx(*at)),
        [] => {
            let meant = hint(text, work.schema().tables.iter().map(|table| &*table.name));
            Err(Stop::fatal(format!("unknown table \"{text}\"{meant}")))
        }
        _ => Err(Stop::fatal(format!("multiple table names match \"{text}\""))),
    }
}

/// The user's column; `None` is `_uuid`, which no schema lists.
pub(crate) fn find_column(work: &Work<'_>, table: TableIx, text: &str) -> Result<Option<ColumnIx>, Stop> {
    let schema = work.table_schema(table);
    let names = schema.columns.iter().map(|column| &*column.name).chain(["_uuid"]);
    let found = best(names, text);
    match found.as_slice() {
        [(at, _)] => Ok((*at < schema.columns.len()).then_some(ColumnIx(*at))),
        [] => Err(Stop::fatal(format!(
            "{} does not contain a column whose name matches \"{text}\"{}",
            schema.name,
            hint(text, schema.columns.iter().map(|column| &*column.name))
        ))),
        many => {
            let names: Vec<&str> = many.iter().map(|(_, name)| *name).collect();
            Err(Stop::fatal(format!(
                "{} contains more than one column whose name matches \"{text}\": {}",
                schema.name,
                names.join(", ")
            )))
        }
    }
}

/// The user's record, if it exists.
pub(crate) fn find_record(work: &Work<'_>, table: TableIx, text: &str) -> Result<Option<Row>, Stop> {
    if let Ok(uuid) = text.parse::<Uuid>() {
        let row = Row { table, uuid };
        if work.exists(row) {
            return Ok(Some(row));
        }
    }
    let name = &*work.table_schema(table).name;
    for way in RECORD_NAMES.iter().filter(|way| way.table == name) {
        if let Some(row) = by_name(work, table, way, text)? {
            return Ok(Some(row));
        }
    }
    by_first_digits(work, table, text)
}

fn by_name(work: &Work<'_>, table: TableIx, way: &RecordName, text: &str) -> Result<Option<Row>, Stop> {
    let (by, column) = way.by;
    let by = work.table(by)?;
    let candidates = work.rows(by);
    let named: Vec<Row> = match column {
        None if text == "." && candidates.len() == 1 => candidates,
        None => Vec::new(),
        Some(column) => {
            let column = work.column(by, column)?;
            let is = |row: &Row| work.get(*row, column).as_atom().and_then(Atom::as_str) == Some(text);
            candidates.into_iter().filter(is).collect()
        }
    };
    let row = match named.as_slice() {
        [] => return Ok(None),
        [row] => *row,
        _ => {
            let by = &work.table_schema(by).name;
            return Err(Stop::fatal(format!("multiple rows in {by} match \"{text}\"")));
        }
    };
    let Some(refers) = way.refers else { return Ok(Some(row)) };
    let rows = work.refs(row, refers, table)?;
    Ok(if let [only] = rows.as_slice() { Some(*only) } else { None })
}

fn by_first_digits(work: &Work<'_>, table: TableIx, text: &str) -> Result<Option<Row>, Stop> {
    let is_start = text.len() >= 4 && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    if !is_start {
        return Ok(None);
    }
    let text = text.to_ascii_lowercase();
    let rows = work.rows(table).into_iter().filter(|row| row.uuid.to_string().starts_with(&text));
    let rows: Vec<Row> = rows.collect();
    match rows.as_slice() {
        [a, b, ..] => Err(Stop::fatal(format!(
            "{} contains 2 or more rows whose UUIDs begin with {text}: at least {} and {}",
            work.table_schema(table).name,
            a.uuid,
            b.uuid
        ))),
        rows => Ok(rows.first().copied()),
    }
}

/// The user's record, which must exist unless `if_exists`.
pub(crate) fn need_record(
    work: &Work<'_>,
    table: TableIx,
    text: &str,
    if_exists: bool,
) -> Result<Option<Row>, Stop> {
    match find_record(work, table, text)? {
        None if !if_exists => {
            let name = &work.table_schema(table).name;
            Err(Stop::fatal(format!("no row \"{text}\" in table {name}")))
        }
        found => Ok(found),
    }
}
