//! Commands that read records of any table: `list`, `find`, `get`, `wait-until`.

use std::cmp::Ordering;

use ovsdb::schema::{BaseType, ColumnIx, ColumnType, TableIx};
use ovsdb::value::{AtomicType, Datum};

use super::Stop;
use super::context::{Context, Output};
use super::names::{find_column, find_record, find_table, need_record};
use super::options::Invocation;
use super::table::Table;
use super::text::{Style, atom_from_text, atom_text, datum_from_text, datum_text, take_word};
use super::work::{Row, Work};

/// `COLUMN[:KEY][OPERATOR VALUE]` with the column found.
pub(crate) struct Term<'t> {
    /// `None` is `_uuid`.
    pub(crate) column: Option<ColumnIx>,
    pub(crate) name: String,
    pub(crate) key: Option<String>,
    pub(crate) operator: &'static str,
    pub(crate) value: &'t str,
}

/// Operators of conditions; the longest match wins.
const OPERATORS: [&str; 14] =
    ["=", "!=", "<", ">", "<=", ">=", "{=}", "{!=}", "{<}", "{>}", "{<=}", "{>=}", "{in}", "{not-in}"];

/// Parses a term. Without `operators` it must end after the key.
pub(crate) fn parse_term<'t>(
    work: &Work<'_>,
    table: TableIx,
    text: &'t str,
    operators: &[&'static str],
) -> Result<Term<'t>, Stop> {
    let mut rest = text;
    let column_text = take_word(&mut rest)?;
    if column_text.is_empty() {
        return Err(Stop::fatal(format!("{text}: missing column name")));
    }
    let column = find_column(work, table, &column_text)?;
    let name = column.map_or("_uuid".to_string(), |ix| work.column_schema(table, ix).name.to_string());
    let mut key = None;
    if let Some(behind) = rest.strip_prefix(':') {
        rest = behind;
        key = Some(take_word(&mut rest)?);
    }
    if operators.is_empty() {
        if !rest.is_empty() {
            return Err(Stop::fatal(format!("{text}: trailing garbage \"{rest}\" in argument")));
        }
        return Ok(Term { column, name, key, operator: "", value: "" });
    }
    let fitting = operators.iter().copied().filter(|operator| rest.starts_with(operator));
    match fitting.max_by_key(|operator| operator.len()).map(|operator| (operator, &rest[operator.len()..])) {
        Some((operator, value)) if !value.is_empty() => Ok(Term { column, name, key, operator, value }),
        _ => {
            let names: Vec<String> = operators.iter().map(|operator| format!("\"{operator}\"")).collect();
            let names = match names.split_last() {
                Some((last, [])) => last.clone(),
                Some((last, [only])) => format!("{only} or {last}"),
                Some((last, others)) => format!("{}, or {last}", others.join(", ")),
                None => String::new(),
            };
            Err(Stop::fatal(format!("{text}: argument does not end in {names} followed by a value.")))
        }
    }
}

/// The type of `_uuid`.
fn uuid_type() -> ColumnType {
    ColumnType::scalar(AtomicType::Uuid)
}

fn column_type(work: &Work<'_>, table: TableIx, column: Option<ColumnIx>) -> ColumnType {
    column.map_or_else(uuid_type, |ix| work.column_schema(table, ix).ty.clone())
}

fn value(work: &Work<'_>, row: Row, column: Option<ColumnIx>) -> Datum {
    column.map_or_else(|| Datum::atom(row.uuid), |ix| work.get(row, ix))
}

/// The columns to print: the requested ones, or all.
fn columns(
    work: &Work<'_>,
    table: TableIx,
    call: &Invocation,
) -> Result<Vec<(Option<ColumnIx>, String)>, Stop> {
    let schema = work.table_schema(table);
    let named = |ix: Option<ColumnIx>| {
        (ix, ix.map_or("_uuid".to_string(), |ix| schema.columns[ix.0].name.to_string()))
    };
    match call.options.get("columns") {
        None => Ok(std::iter::once(None)
            .chain((0..schema.columns.len()).map(|ix| Some(ColumnIx(ix))))
            .map(named)
            .collect()),
        Some(list) => {
            let words = list.split([',', ' ']).filter(|word| !word.is_empty());
            let found: Result<Vec<_>, Stop> =
                words.map(|word| Ok(named(find_column(work, table, word)?))).collect();
            found.and_then(|found| match found.is_empty() {
                true => Err(Stop::fatal("must specify at least one column name")),
                false => Ok(found),
            })
        }
    }
}

fn print_rows(ctx: &mut Context<'_>, table: TableIx, call: &Invocation, rows: &[Row]) -> Result<(), Stop> {
    let columns = columns(&ctx.work, table, call)?;
    let types: Vec<ColumnType> =
        columns.iter().map(|(column, _)| column_type(&ctx.work, table, *column)).collect();
    let line = |row: &Row| {
        let cells = columns.iter().zip(&types);
        cells.map(|((column, _), ty)| (value(&ctx.work, *row, *column), ty.clone())).collect()
    };
    let rows = rows.iter().map(line).collect();
    let headings = columns.iter().map(|(_, name)| name.clone()).collect();
    ctx.output = Output::Table(Table { headings, rows });
    Ok(())
}

pub(crate) fn list(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    let table = find_table(&ctx.work, call.arg(0))?;
    let mut rows = Vec::new();
    if call.args.len() == 1 {
        rows = ctx.work.rows(table);
    }
    for name in &call.args[1..] {
        rows.extend(need_record(&ctx.work, table, name, call.has("if-exists"))?);
    }
    print_rows(ctx, table, call, &rows)
}

pub(crate) fn find(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    let table = find_table(&ctx.work, call.arg(0))?;
    let mut found = Vec::new();
    for row in ctx.work.rows(table) {
        if holds_all(ctx, row, &call.args[1..])? {
            found.push(row);
        }
    }
    if found.is_empty() {
        // No row was tested against the conditions: report their errors anyway.
        for condition in &call.args[1..] {
            parse_term(&ctx.work, table, condition, &OPERATORS)?;
        }
    }
    print_rows(ctx, table, call, &found)
}

pub(crate) fn wait_until(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    let table = find_table(&ctx.work, call.arg(0))?;
    match find_record(&ctx.work, table, call.arg(1))? {
        Some(row) if holds_all(ctx, row, &call.args[2..])? => Ok(()),
        _ => Err(Stop::Wait),
    }
}

fn holds_all(ctx: &mut Context<'_>, row: Row, conditions: &[String]) -> Result<bool, Stop> {
    for condition in conditions {
        if !holds(ctx, row, condition)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn no_names_type(base: &BaseType) -> ColumnType {
    ColumnType { key: base.clone(), value: None, min: 0, max: u32::MAX }
}

fn holds(ctx: &mut Context<'_>, row: Row, condition: &str) -> Result<bool, Stop> {
    let term = parse_term(&ctx.work, row.table, condition, &OPERATORS)?;
    let ty = column_type(&ctx.work, row.table, term.column);
    let have = value(&ctx.work, row, term.column);
    let is_set_operator = term.operator.starts_with('{');
    let Some(key) = term.key else {
        let want = datum_from_text(term.value, &ty, &mut |name, _| ctx.refer(name))?;
        return Ok(compare(&have, &want, term.operator));
    };
    let Some(value_type) = &ty.value else {
        return Err(Stop::fatal(format!("cannot specify key to check for non-map column {}", term.name)));
    };
    let key = atom_from_text(&key, &ty.key, &mut |name, _| ctx.refer(name))?;
    let want = datum_from_text(term.value, &no_names_type(value_type), &mut |name, _| ctx.refer(name))?;
    match have.get(&key) {
        Some(value) => Ok(compare(&Datum::atom(value.clone()), &want, term.operator)),
        None if is_set_operator => Ok(compare(&Datum::empty_set(), &want, term.operator)),
        None => Ok(false),
    }
}

/// Order of values: by size, then by elements or keys, then by values of keys.
fn order(a: &Datum, b: &Datum) -> Ordering {
    let values = |datum: &Datum| datum.pairs().iter().map(|(_, value)| value.clone()).collect::<Vec<_>>();
    a.len().cmp(&b.len()).then_with(|| a.keys().cmp(b.keys())).then_with(|| values(a).cmp(&values(b)))
}

fn compare(have: &Datum, want: &Datum, operator: &str) -> bool {
    match operator {
        "=" | "{=}" => have == want,
        "!=" | "{!=}" => have != want,
        "<" => order(have, want).is_lt(),
        ">" => order(have, want).is_gt(),
        "<=" => order(have, want).is_le(),
        ">=" => order(have, want).is_ge(),
        "{<}" => want.len() > have.len() && want.includes(have),
        "{>}" => have.len() > want.len() && have.includes(want),
        "{<=}" | "{in}" => want.includes(have),
        "{>=}" => have.includes(want),
        _ => have.excludes(want),
    }
}

pub(crate) fn get(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    let table = find_table(&ctx.work, call.arg(0))?;
    let if_exists = call.has("if-exists");
    let Some(row) = need_record(&ctx.work, table, call.arg(1), if_exists)? else { return Ok(()) };
    if let Some(id) = call.options.get("id") {
        ctx.define_as(id, row.uuid)?;
    }
    for word in &call.args[2..] {
        let term = parse_term(&ctx.work, table, word, &[])?;
        let ty = column_type(&ctx.work, table, term.column);
        let datum = value(&ctx.work, row, term.column);
        let Some(key) = term.key else {
            ctx.say(&datum_text(&datum, &ty, Style::Quoted));
            continue;
        };
        if !ty.is_map() {
            return Err(Stop::fatal(format!("cannot specify key to get for non-map column {}", term.name)));
        }
        let atom = atom_from_text(&key, &ty.key, &mut |name, _| ctx.refer(name))?;
        match datum.get(&atom) {
            Some(value) => ctx.say(&atom_text(value)),
            None if if_exists => ctx.say(""),
            None => {
                let (table, record) = (&ctx.work.table_schema(table).name, call.arg(1));
                return Err(Stop::fatal(format!(
                    "no key \"{key}\" in {table} record \"{record}\" column {}",
                    term.name
                )));
            }
        }
    }
    Ok(())
}
