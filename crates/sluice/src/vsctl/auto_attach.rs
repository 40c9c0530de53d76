//! Mappings of service identifiers to VLANs (IEEE 802.1Qcj, "Auto Attach").

use ovsdb::value::{Atom, Datum};

use super::Stop;
use super::context::Context;
use super::fake::need_bridge;
use super::options::Invocation;
use super::work::Row;

/// The record of a bridge.
fn record(ctx: &mut Context<'_>, bridge: Row) -> Result<Option<Row>, Stop> {
    let table = ctx.work.table("AutoAttach")?;
    Ok(ctx.work.refs(bridge, "auto_attach", table)?.first().copied())
}

fn number(text: &str, most: i64) -> Result<i64, Stop> {
    match text.parse() {
        Ok(n) if (0..=most).contains(&n) => Ok(n),
        Ok(n) => Err(Stop::fatal(format!("{n} is not in the valid range 0 to {most} (inclusive)"))),
        Err(_) => Err(Stop::fatal(format!("Invalid argument {text}"))),
    }
}

/// A service identifier and a VLAN.
fn mapping(call: &Invocation) -> Result<(i64, i64), Stop> {
    Ok((number(call.arg(1), 0xff_ffff)?, number(call.arg(2), 4095)?))
}

fn integers(datum: &Datum) -> Vec<(i64, i64)> {
    let pair = |(key, value): &(Atom, Atom)| match (key, value) {
        (Atom::Integer(isid), Atom::Integer(vlan)) => Some((*isid, *vlan)),
        _ => None,
    };
    datum.pairs().iter().filter_map(pair).collect()
}

pub(crate) fn add_mapping(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    let bridge = need_bridge(ctx, call.arg(0))?.row;
    let (isid, vlan) = mapping(call)?;
    let row = match record(ctx, bridge)? {
        Some(row) => row,
        None => {
            let table = ctx.work.table("AutoAttach")?;
            let row = ctx.work.insert_new(table);
            ctx.work.set_named(bridge, "auto_attach", Datum::set([row.uuid]))?;
            row
        }
    };
    let column = ctx.work.column(row.table, "mappings")?;
    let mut mappings = integers(&ctx.work.get(row, column));
    // As with the stock tool, an identifier keeps its VLAN.
    if mappings.iter().all(|(known, _)| *known != isid) {
        mappings.push((isid, vlan));
    }
    ctx.work.verify(row, column);
    ctx.work.set(row, column, Datum::map(mappings));
    Ok(())
}

pub(crate) fn del_mapping(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    let bridge = need_bridge(ctx, call.arg(0))?.row;
    let asked = mapping(call)?;
    let Some(row) = record(ctx, bridge)? else { return Ok(()) };
    let column = ctx.work.column(row.table, "mappings")?;
    let mut mappings = integers(&ctx.work.get(row, column));
    mappings.retain(|known| *known != asked);
    ctx.work.verify(row, column);
    ctx.work.set(row, column, Datum::map(mappings));
    Ok(())
}

pub(crate) fn get_mappings(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    let bridge = need_bridge(ctx, call.arg(0))?.row;
    let Some(row) = record(ctx, bridge)? else { return Ok(()) };
    for (isid, vlan) in integers(&ctx.work.named(row, "mappings")?) {
        ctx.say(&format!("{isid} {vlan}"));
    }
    Ok(())
}
