//! Single flows: those of the datapath, by hand, and those of a bridge's tables, hidden ones included.
//!
//! A flow added to the datapath by hand stays while the tables agree with it: the revalidator treats it as any
//! other.

use super::Answer;
use super::datapath::{Names, datapath, flows_of};
use super::dumps::Style;
use crate::daemon::Daemon;
use crate::instances::Instance;
use crate::switch::Switch;
use dpif::text::{format_flow, parse_actions, parse_key_mask};
use dpif::{DpifOp, FlowPut, FlowRecord, OpResult, PmdId, PutMode};
use flow::text::format_match_with;
use flow::{FlowKey, TableId, Ufid};
use ofp_actions::text::format_actions;
use std::fmt::Write as _;
use std::sync::Arc;

/// The datapath, whose name is optional, and the remaining arguments.
fn own<'a, 'b>(
    switch: &'a Switch,
    args: &'b [String],
    wanted: usize,
) -> Result<(&'a Instance, &'b [String]), String> {
    if let Some(option) = args.iter().find(|a| a.starts_with('-')) {
        return Err(format!("unknown option {option}"));
    }
    if args.len() > wanted {
        return Ok((datapath(switch, args.first())?, &args[1..]));
    }
    Ok((datapath(switch, None)?, args))
}

/// Name of a flow on the command line.
enum Name {
    Ufid(Ufid),
    Match(Box<(FlowKey, FlowKey)>),
}

/// A ufid, with or without `ufid:`.
pub(super) fn ufid(text: &str) -> Result<Ufid, String> {
    let digits: String = text.strip_prefix("ufid:").unwrap_or(text).chars().filter(|c| *c != '-').collect();
    u128::from_str_radix(&digits, 16).map(Ufid).map_err(|_| format!("{text}: not a ufid"))
}

fn name(instance: &Instance, text: &str) -> Result<Name, String> {
    if text.starts_with("ufid:") {
        return ufid(text).map(Name::Ufid);
    }
    let parsed = parse_key_mask(text, &Names::of(instance)).map_err(|e| format!("parsing flow key ({e})"))?;
    Ok(Name::Match(Box::new(parsed)))
}

/// The flows of that name, with their threads.
fn find(instance: &Instance, text: &str) -> Result<Vec<(PmdId, FlowRecord)>, String> {
    let name = name(instance, text)?;
    let named = |f: &FlowRecord| match &name {
        Name::Ufid(ufid) => f.ufid == *ufid,
        Name::Match(m) => f.mask == m.1 && f.key.masked(&f.mask) == m.0.masked(&m.1),
    };
    let mut found = Vec::new();
    for pmd in instance.datapath.pmds() {
        found.extend(flows_of(instance, pmd)?.into_iter().filter(named).map(|f| (pmd, f)));
    }
    if found.is_empty() { Err(format!("no such flow: {text}")) } else { Ok(found) }
}

/// Sends one operation and returns its result.
fn one(instance: &Instance, pmd: PmdId, op: DpifOp) -> Result<OpResult, String> {
    match instance.ask(pmd, vec![op])?.pop() {
        Some(OpResult::Failed(e)) => Err(e.to_string()),
        Some(result) => Ok(result),
        None => Err("a forwarding thread gave no result".to_string()),
    }
}

pub(super) fn add(daemon: &mut Daemon, args: &[String]) -> Answer {
    let switch = &daemon.switch;
    let add = || {
        let (instance, args) = own(switch, args, 2)?;
        let (key, mask) =
            parse_key_mask(&args[0], &Names::of(instance)).map_err(|e| format!("parsing flow key ({e})"))?;
        let actions =
            parse_actions(&args[1], &Names::of(instance)).map_err(|e| format!("parsing actions ({e})"))?;
        let actions: Arc<[_]> = actions.into();
        let ufid = Ufid(sys::random::u128().map_err(|e| e.to_string())?);
        for pmd in instance.datapath.pmds() {
            let put = FlowPut { ufid, key, mask, actions: actions.clone(), mode: PutMode::Create };
            one(instance, pmd, DpifOp::FlowPut(Box::new(put)))?;
        }
        Ok(String::new())
    };
    Answer::Now(add())
}

pub(super) fn modify(daemon: &mut Daemon, args: &[String]) -> Answer {
    let switch = &daemon.switch;
    let modify = || {
        let (instance, args) = own(switch, args, 2)?;
        let actions =
            parse_actions(&args[1], &Names::of(instance)).map_err(|e| format!("parsing actions ({e})"))?;
        let actions: Arc<[_]> = actions.into();
        for (pmd, f) in find(instance, &args[0])? {
            let put = FlowPut {
                ufid: f.ufid,
                key: f.key,
                mask: f.mask,
                actions: actions.clone(),
                mode: PutMode::Modify,
            };
            one(instance, pmd, DpifOp::FlowPut(Box::new(put)))?;
        }
        Ok(String::new())
    };
    Answer::Now(modify())
}

pub(super) fn delete(daemon: &mut Daemon, args: &[String]) -> Answer {
    let switch = &daemon.switch;
    let delete = || {
        let (instance, args) = own(switch, args, 1)?;
        for (pmd, f) in find(instance, &args[0])? {
            one(instance, pmd, DpifOp::FlowDel(f.ufid))?;
        }
        Ok(String::new())
    };
    Answer::Now(delete())
}

pub(super) fn get(daemon: &mut Daemon, args: &[String]) -> Answer {
    let switch = &daemon.switch;
    let get = || {
        let mut style = Style::default();
        let rest: Vec<String> = args.iter().filter(|a| !style.take(a)).cloned().collect();
        let (instance, rest) = own(switch, &rest, 1)?;
        let wanted = rest.first().ok_or("name a flow by its ufid")?;
        let names = Names::of(instance);
        let format = style.format(&names);
        let now_ms = sys::clock::monotonic_ms();
        let found = find(instance, wanted)?;
        Ok(found.iter().map(|(_, f)| format_flow(f, now_ms, &format) + "\n").collect())
    };
    Answer::Now(get())
}

pub(super) fn bridge_tables(daemon: &mut Daemon, args: &[String]) -> Answer {
    let Some((_, bridge)) = daemon.switch.instances().bridge(&args[0]) else {
        return Answer::Now(Err("Unknown bridge".to_string()));
    };
    let now_ms = sys::clock::monotonic_ms();
    let mut out = String::new();
    let tlv = &**bridge.tables.tlv();
    for rule in bridge.tables.iter() {
        if rule.table != TableId(0) {
            let _ = write!(out, "table_id={}, ", rule.table.0);
        }
        let (packets, bytes) = rule.stats.counts();
        let age_s = now_ms.saturating_sub(rule.created_ms) / 1000;
        let matching = format_match_with(&rule.matching.unpack(), Some(rule.priority), tlv);
        let separator = if matching.is_empty() { "" } else { "," };
        let actions = format_actions(&rule.actions, tlv);
        let _ = writeln!(
            out,
            "duration={age_s}s, n_packets={packets}, n_bytes={bytes}, {matching}{separator}actions={actions}"
        );
    }
    out.into()
}

pub(super) fn features(daemon: &mut Daemon, args: &[String]) -> Answer {
    let Some((instance, _)) = daemon.switch.instances().bridge(&args[0]) else {
        return Answer::Now(Err("no such bridge".to_string()));
    };
    let can = instance.datapath.capabilities();
    let yes = |b: bool| if b { "Yes" } else { "No" }.to_string();
    let rows = [
        ("Masked set action", yes(true)),
        ("Tunnel push pop", yes(false)),
        ("Ufid", yes(true)),
        ("Truncate action", yes(can.truncate)),
        ("Clone action", yes(can.clone)),
        ("Sample nesting", can.sample_nesting.to_string()),
        ("Conntrack eventmask", yes(can.ct.event_mask)),
        ("Conntrack clear", yes(can.ct.clear)),
        ("Max dp_hash algorithm", can.max_hash_algorithm.to_string()),
        ("Check pkt length action", yes(can.check_pkt_len)),
        ("Conntrack timeout policy", yes(can.ct.timeout)),
        ("Explicit Drop action", yes(can.explicit_drop)),
        ("Optimized Balance TCP mode", yes(false)),
        ("Conntrack all-zero IP SNAT", yes(can.ct.zero_snat)),
        ("MPLS Label add", yes(can.add_mpls)),
        ("psample action", yes(can.psample)),
        ("Max VLAN headers", can.max_vlan_headers.to_string()),
        ("Max MPLS depth", can.max_mpls_depth.to_string()),
        ("Recirc", yes(can.recirc)),
        ("CT state", yes(can.ct.state)),
        ("CT zone", yes(can.ct.zone)),
        ("CT mark", yes(can.ct.mark)),
        ("CT label", yes(can.ct.label)),
        ("CT state NAT", yes(can.ct.state_nat)),
        ("CT orig tuple", yes(can.ct.orig_tuple)),
        ("CT orig tuple for IPv6", yes(can.ct.orig_tuple6)),
        ("IPv6 ND Extension", yes(false)),
    ];
    rows.iter().map(|(name, value)| format!("{name}: {value}\n")).collect::<String>().into()
}
