//! Datapaths: timeouts and limits of zones of tracked connections, and capabilities.
//!
//! A datapath is named by its type, the key of `Open_vSwitch.datapaths`.

use ovsdb::value::{Atom, Datum, Uuid};

use super::Stop;
use super::context::Context;
use super::options::Invocation;
use super::work::Row;

/// The datapath of that type.
fn find_datapath(ctx: &mut Context<'_>, name: &str) -> Result<Option<Row>, Stop> {
    let (root, table) = (ctx.root()?, ctx.work.table("Datapath")?);
    let all = ctx.work.named(root, "datapaths")?;
    let found = all.get(&Atom::from(name)).and_then(Atom::as_uuid).map(|uuid| Row { table, uuid });
    Ok(found.filter(|row| ctx.work.exists(*row)))
}

fn datapath(ctx: &mut Context<'_>, name: &str) -> Result<Row, Stop> {
    match find_datapath(ctx, name)? {
        Some(row) => Ok(row),
        None => {
            let root = ctx.root()?;
            let all = ctx.work.named(root, "datapaths")?;
            let known: Vec<&str> = all.pairs().iter().filter_map(|(key, _)| key.as_str()).collect();
            let meant = crate::hint::hint(name, known);
            Err(Stop::fatal(format!("datapath {name} does not exist{meant}")))
        }
    }
}

/// A zone: `zone=N` or `N`.
fn zone(text: &str) -> Result<i64, Stop> {
    let number = text.strip_prefix("zone=").unwrap_or(text);
    match number.parse() {
        Ok(n @ 0..=65535) => Ok(n),
        _ => Err(Stop::fatal(format!("{text}: not a zone (zone=0 to zone=65535)"))),
    }
}

/// The record of a zone of a datapath.
fn find_zone(ctx: &Context<'_>, datapath: Row, zone: i64) -> Result<Option<Row>, Stop> {
    let table = ctx.work.table("CT_Zone")?;
    let zones = ctx.work.named(datapath, "ct_zones")?;
    Ok(zones.get(&Atom::from(zone)).and_then(Atom::as_uuid).map(|uuid| Row { table, uuid }))
}

/// The record of a zone whose `column` is set.
fn zone_with(ctx: &Context<'_>, datapath: Row, zone: i64, column: &str) -> Result<Option<Row>, Stop> {
    match find_zone(ctx, datapath, zone)? {
        Some(row) if !ctx.work.named(row, column)?.is_empty() => Ok(Some(row)),
        Some(_) | None => Ok(None),
    }
}

/// The zones of a map and their records.
fn pairs(zones: &Datum) -> Vec<(i64, Uuid)> {
    let pair = |(key, value): &(Atom, Atom)| match key {
        Atom::Integer(zone) => value.as_uuid().map(|uuid| (*zone, uuid)),
        _ => None,
    };
    zones.pairs().iter().filter_map(pair).collect()
}

/// Changes the map of zones, depending on its old value.
fn change_zones(
    ctx: &mut Context<'_>,
    datapath: Row,
    change: impl FnOnce(&mut Vec<(i64, Uuid)>),
) -> Result<(), Stop> {
    let column = ctx.work.column(datapath.table, "ct_zones")?;
    let mut zones = pairs(&ctx.work.get(datapath, column));
    change(&mut zones);
    ctx.work.verify(datapath, column);
    ctx.work.set(datapath, column, Datum::map(zones));
    Ok(())
}

/// The record of a zone, made if absent.
fn zone_record(ctx: &mut Context<'_>, datapath: Row, zone: i64) -> Result<Row, Stop> {
    if let Some(row) = find_zone(ctx, datapath, zone)? {
        return Ok(row);
    }
    let table = ctx.work.table("CT_Zone")?;
    let row = ctx.work.insert_new(table);
    change_zones(ctx, datapath, |zones| zones.push((zone, row.uuid)))?;
    Ok(row)
}

/// Removes the record of a zone that says nothing any more.
fn drop_if_empty(ctx: &mut Context<'_>, datapath: Row, zone: i64, row: Row) -> Result<(), Stop> {
    let has_limit = !ctx.work.named(row, "limit")?.is_empty();
    let has_policy = !ctx.work.named(row, "timeout_policy")?.is_empty();
    if has_limit || has_policy {
        return Ok(());
    }
    ctx.work.delete(row);
    change_zones(ctx, datapath, |zones| zones.retain(|(known, _)| *known != zone))
}

/// `KEY=SECONDS` for each word.
fn timeouts(words: &[String]) -> Result<Vec<(String, i64)>, Stop> {
    let one = |word: &String| {
        let bad = || Stop::fatal(format!("{word}: not a timeout (such as icmp_first=SECONDS)"));
        let (key, value) = word.split_once('=').ok_or_else(bad)?;
        Ok((key.to_string(), value.parse().map_err(|_| bad())?))
    };
    words.iter().map(one).collect()
}

/// The policy with these timeouts: one that exists, or a new one.
fn policy(ctx: &mut Context<'_>, wanted: Vec<(String, i64)>) -> Result<Row, Stop> {
    let table = ctx.work.table("CT_Timeout_Policy")?;
    let column = ctx.work.column(table, "timeouts")?;
    let wanted = Datum::map(wanted);
    let same = ctx.work.rows(table).into_iter().find(|row| ctx.work.get(*row, column) == wanted);
    if let Some(row) = same {
        return Ok(row);
    }
    let row = ctx.work.insert_new(table);
    ctx.work.set(row, column, wanted);
    Ok(row)
}

pub(crate) fn add_zone_tp(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    let datapath = datapath(ctx, call.arg(0))?;
    let zone = zone(call.arg(1))?;
    let wanted = timeouts(&call.args[2..])?;
    if zone_with(ctx, datapath, zone, "timeout_policy")?.is_some() && !call.has("may-exist") {
        return Err(Stop::fatal(format!("zone id {zone} already exists")));
    }
    let policy = policy(ctx, wanted)?;
    let row = zone_record(ctx, datapath, zone)?;
    ctx.work.set_named(row, "timeout_policy", Datum::set([policy.uuid]))
}

pub(crate) fn del_zone_tp(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    let datapath = datapath(ctx, call.arg(0))?;
    let zone = zone(call.arg(1))?;
    let Some(row) = zone_with(ctx, datapath, zone, "timeout_policy")? else {
        return match call.has("if-exists") {
            true => Ok(()),
            false => Err(Stop::fatal(format!("zone id {zone} does not exist"))),
        };
    };
    ctx.work.set_named(row, "timeout_policy", Datum::empty_set())?;
    drop_if_empty(ctx, datapath, zone, row)
}

/// Zones and their records, by number.
fn zones(ctx: &Context<'_>, datapath: Row) -> Result<Vec<(i64, Row)>, Stop> {
    let table = ctx.work.table("CT_Zone")?;
    let all = pairs(&ctx.work.named(datapath, "ct_zones")?);
    Ok(all.into_iter().map(|(zone, uuid)| (zone, Row { table, uuid })).collect())
}

pub(crate) fn list_zone_tp(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    let Some(datapath) = find_datapath(ctx, call.arg(0))? else {
        return Err(Stop::fatal(format!("datapath: {} record not found", call.arg(0))));
    };
    let policies = ctx.work.table("CT_Timeout_Policy")?;
    for (zone, row) in zones(ctx, datapath)? {
        let mut text = String::from("system default");
        if let Some(policy) = ctx.work.refs(row, "timeout_policy", policies)?.first() {
            let timeouts = ctx.work.named(*policy, "timeouts")?;
            let words: Vec<String> = timeouts.pairs().iter().map(|(k, v)| format!("{k}={v}")).collect();
            text = words.join(" ");
        }
        ctx.say(&format!("Zone:{zone}, Timeout Policies: {text}"));
    }
    Ok(())
}

/// The zones of a limit.
enum Limited {
    Zone(i64),
    Default,
}

fn limited(text: &str) -> Result<Limited, Stop> {
    if text == "default" { Ok(Limited::Default) } else { zone(text).map(Limited::Zone) }
}

pub(crate) fn set_zone_limit(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    let datapath = datapath(ctx, call.arg(0))?;
    let limited = limited(call.arg(1))?;
    let Ok(limit @ 0..=4_294_967_295) = call.arg(2).parse::<i64>() else {
        return Err(Stop::fatal(format!("{}: not a number of connections", call.arg(2))));
    };
    match limited {
        Limited::Default => ctx.work.set_named(datapath, "ct_zone_default_limit", Datum::set([limit])),
        Limited::Zone(zone) => {
            let row = zone_record(ctx, datapath, zone)?;
            ctx.work.set_named(row, "limit", Datum::set([limit]))
        }
    }
}

pub(crate) fn del_zone_limit(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    let datapath = datapath(ctx, call.arg(0))?;
    let missing = |what: String| match call.has("if-exists") {
        true => Ok(()),
        false => Err(Stop::fatal(format!("{what} has no limit"))),
    };
    match limited(call.arg(1))? {
        Limited::Default => {
            if ctx.work.named(datapath, "ct_zone_default_limit")?.is_empty() {
                return missing(format!("datapath {}", call.arg(0)));
            }
            ctx.work.set_named(datapath, "ct_zone_default_limit", Datum::empty_set())
        }
        Limited::Zone(zone) => {
            let Some(row) = zone_with(ctx, datapath, zone, "limit")? else {
                return missing(format!("zone {zone}"));
            };
            ctx.work.set_named(row, "limit", Datum::empty_set())?;
            drop_if_empty(ctx, datapath, zone, row)
        }
    }
}

pub(crate) fn list_zone_limits(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    let datapath = datapath(ctx, call.arg(0))?;
    let default = ctx.work.named(datapath, "ct_zone_default_limit")?;
    if let Some(limit) = default.as_atom() {
        ctx.say(&format!("Default, Limit: {limit}"));
    }
    for (zone, row) in zones(ctx, datapath)? {
        if let Some(limit) = ctx.work.named(row, "limit")?.as_atom() {
            ctx.say(&format!("Zone: {zone}, Limit: {limit}"));
        }
    }
    Ok(())
}

pub(crate) fn list_dp_cap(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    let Some(datapath) = find_datapath(ctx, call.arg(0))? else {
        return Err(Stop::fatal(format!("datapath \"{}\" record not found", call.arg(0))));
    };
    let all = ctx.work.named(datapath, "capabilities")?;
    let words: Vec<String> = all.pairs().iter().map(|(key, value)| format!("{key}={value}")).collect();
    ctx.say(&words.join(" "));
    Ok(())
}
