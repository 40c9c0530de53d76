//! Commands that change records of any table: `set`, `add`, `remove`, `clear`, `create`, `destroy`.

use ovsdb::schema::{ColumnIx, ColumnSchema, ColumnType, TableIx};
use ovsdb::value::{Atom, Datum, Uuid};

use super::Stop;
use super::context::{Context, Output};
use super::database::parse_term;
use super::names::{find_column, find_table, need_record};
use super::options::Invocation;
use super::text::{atom_from_text, datum_from_text};
use super::work::{Row, is_provisional};

/// A column of the schema; `_uuid` cannot be changed.
fn changeable(ctx: &Context<'_>, row: Row, column: Option<ColumnIx>) -> Result<ColumnIx, Stop> {
    let table = &ctx.work.table_schema(row.table).name;
    let missing = || Stop::fatal(format!("{table} does not contain a column whose name matches \"_uuid\""));
    let ix = column.ok_or_else(missing)?;
    let schema = ctx.work.column_schema(row.table, ix);
    if schema.mutable || ctx.work.is_new(row) {
        return Ok(ix);
    }
    Err(Stop::fatal(format!("cannot modify read-only column {} in table {table}", schema.name)))
}

/// Does `COLUMN[:KEY]=VALUE` for each word.
pub(crate) fn set_columns(ctx: &mut Context<'_>, row: Row, words: &[String]) -> Result<(), Stop> {
    for word in words {
        let term = parse_term(&ctx.work, row.table, word, &["="])?;
        let ix = changeable(ctx, row, term.column)?;
        let ty = &ctx.work.column_schema(row.table, ix).ty;
        let Some(key) = term.key else {
            let datum = datum_from_text(term.value, ty, &mut |name, _| ctx.refer(name))?;
            ctx.work.set(row, ix, datum);
            continue;
        };
        let Some(value_type) = &ty.value else {
            return Err(Stop::fatal(format!("cannot specify key to set for non-map column {}", term.name)));
        };
        let key = atom_from_text(&key, &ty.key, &mut |name, _| ctx.refer(name))?;
        let value = atom_from_text(term.value, value_type, &mut |name, _| ctx.refer(name))?;
        let old = ctx.work.get(row, ix);
        let pairs = old.pairs().iter().cloned().chain([(key, value)]);
        ctx.work.verify(row, ix);
        ctx.work.set(row, ix, Datum::map(pairs));
    }
    Ok(())
}

/// The record that the first two arguments name.
fn record(ctx: &Context<'_>, call: &Invocation) -> Result<Option<Row>, Stop> {
    let table = find_table(&ctx.work, call.arg(0))?;
    need_record(&ctx.work, table, call.arg(1), call.has("if-exists"))
}

pub(crate) fn set(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    match record(ctx, call)? {
        Some(row) => set_columns(ctx, row, &call.args[2..]),
        None => Ok(()),
    }
}

fn kind(ty: &ColumnType) -> &'static str {
    if ty.is_map() { "pairs" } else { "values" }
}

fn loose(ty: &ColumnType) -> ColumnType {
    ColumnType { min: 0, max: u32::MAX, ..ty.clone() }
}

pub(crate) fn add(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    let Some(row) = record(ctx, call)? else { return Ok(()) };
    let ix = changeable(ctx, row, find_column(&ctx.work, row.table, call.arg(2))?)?;
    let schema = ctx.work.column_schema(row.table, ix);
    let mut datum = ctx.work.get(row, ix);
    for word in &call.args[3..] {
        let more = datum_from_text(word, &loose(&schema.ty), &mut |name, _| ctx.refer(name))?;
        datum = match schema.ty.is_map() {
            // An existing key keeps its value.
            true => Datum::map(more.pairs().iter().chain(datum.pairs()).cloned()),
            false => Datum::set(datum.atoms().iter().chain(more.atoms()).cloned()),
        };
    }
    if !schema.ty.allows_size(datum.len()) {
        return Err(Stop::fatal(format!(
            "\"add\" operation would put {} {} in column {} of table {} but the maximum number is {}",
            datum.len(),
            kind(&schema.ty),
            schema.name,
            ctx.work.table_schema(row.table).name,
            schema.ty.max
        )));
    }
    ctx.work.verify(row, ix);
    ctx.work.set(row, ix, datum);
    Ok(())
}

/// Removes the pairs, or the keys with any value, from a map.
fn without_pairs(
    ctx: &mut Context<'_>,
    datum: &Datum,
    schema: &ColumnSchema,
    word: &str,
) -> Result<Datum, Stop> {
    let pairs = datum_from_text(word, &loose(&schema.ty), &mut |name, _| ctx.refer(name));
    let keep: Vec<(Atom, Atom)> = match pairs {
        Ok(gone) => datum.pairs().iter().filter(|(k, v)| gone.get(k) != Some(v)).cloned().collect(),
        Err(_) => {
            let keys = ColumnType { value: None, ..loose(&schema.ty) };
            let gone = datum_from_text(word, &keys, &mut |name, _| ctx.refer(name))?;
            datum.pairs().iter().filter(|(key, _)| !gone.contains(key)).cloned().collect()
        }
    };
    Ok(Datum::map(keep))
}

pub(crate) fn remove(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    let Some(row) = record(ctx, call)? else { return Ok(()) };
    let ix = changeable(ctx, row, find_column(&ctx.work, row.table, call.arg(2))?)?;
    let schema = ctx.work.column_schema(row.table, ix);
    let mut datum = ctx.work.get(row, ix);
    for word in &call.args[3..] {
        datum = if schema.ty.is_map() {
            without_pairs(ctx, &datum, schema, word)?
        } else {
            let gone = datum_from_text(word, &loose(&schema.ty), &mut |name, _| ctx.refer(name))?;
            Datum::set(datum.atoms().iter().filter(|atom| !gone.contains(atom)).cloned())
        };
    }
    if !schema.ty.allows_size(datum.len()) {
        return Err(Stop::fatal(format!(
            "\"remove\" operation would put {} {} in column {} of table {} but the minimum number is {}",
            datum.len(),
            kind(&schema.ty),
            schema.name,
            ctx.work.table_schema(row.table).name,
            schema.ty.min
        )));
    }
    ctx.work.verify(row, ix);
    ctx.work.set(row, ix, datum);
    Ok(())
}

pub(crate) fn clear(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    let Some(row) = record(ctx, call)? else { return Ok(()) };
    for name in &call.args[2..] {
        let ix = changeable(ctx, row, find_column(&ctx.work, row.table, name)?)?;
        let schema = ctx.work.column_schema(row.table, ix);
        if schema.ty.min > 0 {
            return Err(Stop::fatal(format!(
                "\"clear\" operation cannot be applied to column {} of table {}, which is not allowed to be empty",
                schema.name,
                ctx.work.table_schema(row.table).name
            )));
        }
        let empty = if schema.ty.is_map() { Datum::empty_map() } else { Datum::empty_set() };
        ctx.work.set(row, ix, empty);
    }
    Ok(())
}

pub(crate) fn create(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    let table = find_table(&ctx.work, call.arg(0))?;
    let schema = ctx.work.table_schema(table);
    let id = call.options.get("id");
    let requested = id.and_then(|id| Some((id, id.parse::<Uuid>().ok()?)));
    let row = match (id, requested) {
        (_, Some((id, uuid))) => {
            if is_provisional(uuid) || ctx.work.is_new(Row { table, uuid }) {
                return Err(Stop::fatal(format!("row id \"{id}\" is taken in this transaction")));
            }
            ctx.work.insert(table, uuid)
        }
        (Some(id), None) => {
            let uuid = ctx.define_new(id)?;
            if schema.is_root {
                // Such a row needs no reference.
                ctx.refer(id);
            }
            ctx.work.insert(table, uuid)
        }
        (None, None) => {
            if !schema.is_root {
                let text = format!(
                    "applying \"create\" command to table {} without --id option will have no effect",
                    schema.name
                );
                ctx.warnings.push(text);
            }
            ctx.work.insert_new(table)
        }
    };
    if &*schema.name == "Interface" {
        ctx.new_interfaces.push(row.uuid);
    }
    set_columns(ctx, row, &call.args[1..])?;
    ctx.output = Output::Created(row.uuid);
    Ok(())
}

fn rows_to_destroy(ctx: &mut Context<'_>, table: TableIx, call: &Invocation) -> Result<Vec<Row>, Stop> {
    if call.has("all") {
        return match call.args.len() {
            1 => Ok(ctx.work.rows(table)),
            _ => Err(Stop::fatal("--all and records argument should not be specified together")),
        };
    }
    if call.args.len() == 1 {
        ctx.warnings.push("either --all or records argument should be specified".to_string());
    }
    let mut rows = Vec::new();
    for name in &call.args[1..] {
        rows.extend(need_record(&ctx.work, table, name, call.has("if-exists"))?);
    }
    Ok(rows)
}

pub(crate) fn destroy(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    if call.has("all") && call.has("if-exists") {
        return Err(Stop::fatal("--all and --if-exists should not be specified together"));
    }
    let table = find_table(&ctx.work, call.arg(0))?;
    for row in rows_to_destroy(ctx, table, call)? {
        ctx.work.delete(row);
    }
    Ok(())
}
