//! Controllers, managers, keys and certificates, fail mode and external identifiers.

use ovsdb::value::{Atom, Datum};

use super::Stop;
use super::context::Context;
use super::fake::{need_bridge, need_real_bridge};
use super::options::Invocation;
use super::work::Row;

/// Prefix of the keys of a fake bridge in `external_ids` of its port.
const FAKE_PREFIX: &str = "fake-bridge-";

/// The row with the external identifiers of a bridge, and what precedes them.
fn identified(ctx: &mut Context<'_>, name: &str) -> Result<(Row, &'static str), Stop> {
    let bridge = need_bridge(ctx, name)?;
    Ok(bridge.fake.map_or((bridge.row, ""), |(port, _)| (port, FAKE_PREFIX)))
}

pub(crate) fn br_set_external_id(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    let (row, prefix) = identified(ctx, call.arg(0))?;
    let column = ctx.work.column(row.table, "external_ids")?;
    let old = ctx.work.get(row, column);
    let key = Atom::string(format!("{prefix}{}", call.arg(1)));
    let mut pairs: Vec<(Atom, Atom)> = old.pairs().iter().filter(|(k, _)| *k != key).cloned().collect();
    if let Some(value) = call.args.get(2) {
        pairs.push((key, Atom::string(value)));
    }
    ctx.work.verify(row, column);
    ctx.work.set(row, column, Datum::map(pairs));
    Ok(())
}

pub(crate) fn br_get_external_id(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    let (row, prefix) = identified(ctx, call.arg(0))?;
    let ids = ctx.work.named(row, "external_ids")?;
    match call.args.get(1) {
        Some(key) => {
            if let Some(value) = ids.get(&Atom::string(format!("{prefix}{key}"))) {
                ctx.say(&value.to_string());
            }
        }
        None => {
            let own = |key: &Atom| key.as_str().and_then(|key| key.strip_prefix(prefix)).map(String::from);
            for (key, value) in ids.pairs() {
                if let Some(key) = own(key) {
                    ctx.say(&format!("{key}={value}"));
                }
            }
        }
    }
    Ok(())
}

/// A column of references to records with a `target`.
struct Targets {
    owner: Row,
    column: &'static str,
    table: &'static str,
}

fn controllers(ctx: &mut Context<'_>, call: &Invocation) -> Result<Targets, Stop> {
    let owner = match call.spec.name {
        // The controllers of its parent.
        "get-controller" => need_bridge(ctx, call.arg(0))?.row,
        _ => need_real_bridge(ctx, call.arg(0))?,
    };
    Ok(Targets { owner, column: "controller", table: "Controller" })
}

fn managers(ctx: &mut Context<'_>) -> Result<Targets, Stop> {
    Ok(Targets { owner: ctx.root()?, column: "manager_options", table: "Manager" })
}

impl Targets {
    fn print(&self, ctx: &mut Context<'_>) -> Result<(), Stop> {
        let table = ctx.work.table(self.table)?;
        let rows = ctx.work.refs(self.owner, self.column, table)?;
        let targets: Result<Vec<String>, Stop> =
            rows.iter().map(|row| ctx.work.text(*row, "target")).collect();
        let mut targets = targets?;
        targets.sort();
        for target in &targets {
            ctx.say(target);
        }
        Ok(())
    }

    fn clear(&self, ctx: &mut Context<'_>) -> Result<(), Stop> {
        let table = ctx.work.table(self.table)?;
        for row in ctx.work.refs(self.owner, self.column, table)? {
            ctx.work.delete(row);
        }
        ctx.work.change_refs(self.owner, self.column, |rows| rows.clear())
    }

    fn replace(&self, ctx: &mut Context<'_>, call: &Invocation, targets: &[String]) -> Result<(), Stop> {
        self.clear(ctx)?;
        let table = ctx.work.table(self.table)?;
        let mut probe = None;
        if let Some(text) = call.options.get("inactivity-probe") {
            let ms: i64 =
                text.parse().map_err(|_| Stop::fatal(format!("{text}: not a number of milliseconds")))?;
            probe = Some(ms);
        }
        let mut targets = targets.to_vec();
        targets.sort();
        targets.dedup();
        let mut uuids = Vec::new();
        for target in &targets {
            let row = ctx.work.insert_new(table);
            ctx.work.set_named(row, "target", target.as_str())?;
            if let Some(ms) = probe {
                ctx.work.set_named(row, "inactivity_probe", ms)?;
            }
            uuids.push(row.uuid);
        }
        ctx.work.change_refs(self.owner, self.column, |rows| rows.extend(uuids))
    }
}

pub(crate) fn get_controller(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    controllers(ctx, call)?.print(ctx)
}

pub(crate) fn del_controller(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    controllers(ctx, call)?.clear(ctx)
}

pub(crate) fn set_controller(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    controllers(ctx, call)?.replace(ctx, call, &call.args[1..])
}

pub(crate) fn get_manager(ctx: &mut Context<'_>, _call: &Invocation) -> Result<(), Stop> {
    managers(ctx)?.print(ctx)
}

pub(crate) fn del_manager(ctx: &mut Context<'_>, _call: &Invocation) -> Result<(), Stop> {
    managers(ctx)?.clear(ctx)
}

pub(crate) fn set_manager(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    managers(ctx)?.replace(ctx, call, &call.args)
}

/// The record of keys and certificates, if there is one.
fn ssl(ctx: &mut Context<'_>) -> Result<Option<Row>, Stop> {
    let (root, table) = (ctx.root()?, ctx.work.table("SSL")?);
    Ok(ctx.work.refs(root, "ssl", table)?.first().copied())
}

pub(crate) fn get_ssl(ctx: &mut Context<'_>, _call: &Invocation) -> Result<(), Stop> {
    let Some(row) = ssl(ctx)? else { return Ok(()) };
    for (title, column) in
        [("Private key", "private_key"), ("Certificate", "certificate"), ("CA Certificate", "ca_cert")]
    {
        let file = ctx.work.text(row, column)?;
        ctx.say(&format!("{title}: {file}"));
    }
    let bootstrap = ctx.work.named(row, "bootstrap_ca_cert")? == Datum::from(true);
    ctx.say(&format!("Bootstrap: {bootstrap}"));
    Ok(())
}

pub(crate) fn del_ssl(ctx: &mut Context<'_>, _call: &Invocation) -> Result<(), Stop> {
    let Some(row) = ssl(ctx)? else { return Ok(()) };
    ctx.work.delete(row);
    let root = ctx.root()?;
    ctx.work.change_refs(root, "ssl", |rows| rows.clear())
}

pub(crate) fn set_ssl(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    del_ssl(ctx, call)?;
    let (root, table) = (ctx.root()?, ctx.work.table("SSL")?);
    let row = ctx.work.insert_new(table);
    for (at, column) in ["private_key", "certificate", "ca_cert"].into_iter().enumerate() {
        ctx.work.set_named(row, column, call.arg(at))?;
    }
    ctx.work.set_named(row, "bootstrap_ca_cert", call.has("bootstrap"))?;
    ctx.work.change_refs(root, "ssl", |rows| rows.extend([row.uuid]))
}

pub(crate) fn get_fail_mode(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    let bridge = need_bridge(ctx, call.arg(0))?;
    let mode = ctx.work.text(bridge.row, "fail_mode")?;
    if !mode.is_empty() {
        ctx.say(&mode);
    }
    Ok(())
}

pub(crate) fn del_fail_mode(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    let bridge = need_real_bridge(ctx, call.arg(0))?;
    ctx.work.set_named(bridge, "fail_mode", Datum::empty_set())
}

pub(crate) fn set_fail_mode(ctx: &mut Context<'_>, call: &Invocation) -> Result<(), Stop> {
    let bridge = need_real_bridge(ctx, call.arg(0))?;
    let mode = call.arg(1);
    if !matches!(mode, "standalone" | "secure") {
        return Err(Stop::fatal("fail-mode must be \"standalone\" or \"secure\""));
    }
    ctx.work.set_named(bridge, "fail_mode", mode)
}
