//! Single flows: those of the datapath, by hand, and those of a bridge's tables, hidden ones included.
//!
//! A flow added to the datapath by hand stays while the tables agree with it: the revalidator treats it as any
//! other.

use super::datapath::{Names, datapath, flows_of};
use super::dumps::Style;
use super::{Form, Reply, Rows, Wait, Word, command};
use crate::control_plane::ControlPlane;
use crate::instances::Instance;
use crate::work::{PART_BYTES, Requester, Work};
use dpif::text::{PortNames, format_flow, format_stats, parse_actions, parse_key_mask};
use dpif::{DpAction, DpifError, DpifOp, FlowPut, FlowRecord, OpResult, PmdId, PutMode};
use flow::text::format_match_with;
use flow::{DpPort, FlowKey, KeyMask, TableId, Ufid, nw_frag};
use ofp_actions::text::format_actions;
use ofproto::bond::{Bond, HashRule};
use ofproto::recirc::INTERNAL_TABLE;
use ofproto::rule::Rule;
use ofproto::view::BridgeView;
use std::sync::Arc;

/// The commands of this module.
pub(super) const ROWS: Rows = &[
    &command(
        "bridge/dump-flows",
        Word("bridge"),
        "list the OpenFlow rules of a bridge, hidden ones included",
        bridge_tables,
    ),
    &command(
        "dpctl/add-flow",
        Form("[dp] flow actions", 2, 3, OfFlow::<2>::parse),
        "install a flow in a datapath",
        add,
    ),
    &command(
        "dpctl/del-flow",
        Form("[-s] [dp] flow | ufid:ufid", 1, 3, OfFlow::<1>::parse),
        "remove a flow of a datapath, with -s print its statistics",
        delete,
    ),
    &command(
        "dpctl/get-flow",
        Form("[-m] [--names | --no-names] [dp] ufid:ufid", 1, 5, Shown::parse),
        "show the flow of a UFID",
        get,
    ),
    &command(
        "dpctl/mod-flow",
        Form("[-s] [--clear] [--may-create] [dp] flow actions", 2, 6, OfFlow::<2>::parse),
        "change the actions of a flow of a datapath",
        modify,
    ),
];

/// Options of commands that change flows.
#[derive(Clone, Copy, Default)]
struct Options {
    /// Print the statistics that the flow had.
    stats: bool,
    /// Zero the statistics.
    clear: bool,
    /// Add a flow that does not exist.
    may_create: bool,
}

/// Arguments of a command about a flow: options at any place, the datapath, whose name is optional, and `N` words.
struct OfFlow<const N: usize> {
    options: Options,
    datapath: Option<String>,
    words: [String; N],
}

impl<const N: usize> OfFlow<N> {
    fn parse(words: &[String]) -> Result<OfFlow<N>, String> {
        let (options, mut words): (Vec<String>, Vec<String>) =
            words.iter().cloned().partition(|w| w.starts_with('-'));
        let options = Options::parse(&options)?;
        let datapath = (words.len() > N).then(|| words.remove(0));
        words.truncate(N);
        let words = words.try_into().map_err(|_| "a flow is missing")?;
        Ok(OfFlow { options, datapath, words })
    }
}

impl Options {
    fn parse(words: &[String]) -> Result<Options, String> {
        let mut chosen = Options::default();
        for option in words {
            match option.as_str() {
                "-s" | "--statistics" => chosen.stats = true,
                "--clear" => chosen.clear = true,
                "--may-create" => chosen.may_create = true,
                _ => return Err(format!("Unrecognized option {option}")),
            }
        }
        Ok(chosen)
    }
}

/// The mask without the marks of flows written without a packet type: datapaths without packet types have none, and
/// names find flows with and without.
fn without_marks(mask: &KeyMask) -> KeyMask {
    let mut mask = *mask;
    mask.base.nw_frag &= nw_frag::MASK;
    mask
}

/// Name of a flow on the command line: a ufid, key and mask, or both.
pub(super) struct Name {
    pub(super) ufid: Option<Ufid>,
    /// `None` for a ufid alone.
    pub(super) key: Option<Box<(FlowKey, KeyMask)>>,
}

/// A ufid, with or without `ufid:`.
pub(super) fn ufid(text: &str) -> Result<Ufid, String> {
    let digits: String = text.strip_prefix("ufid:").unwrap_or(text).chars().filter(|c| *c != '-').collect();
    u128::from_str_radix(&digits, 16)
        .map(Ufid)
        .map_err(|_| "parsing flow ufid (Invalid argument)".to_string())
}

impl Name {
    /// `[ufid:UFID[,]] [KEY]`
    pub(super) fn parse(text: &str, names: &Names) -> Result<Name, String> {
        Name::parse_with(text, names, names.packet_types)
    }

    /// Parses with names from anywhere; `packet_types`: keys have them.
    pub(super) fn parse_with(text: &str, names: &dyn PortNames, packet_types: bool) -> Result<Name, String> {
        let (id, key) = match text.strip_prefix("ufid:") {
            Some(rest) => {
                let end = rest.find([',', ' ']).unwrap_or(rest.len());
                (Some(ufid(&rest[..end])?), rest[end..].trim_start_matches([',', ' ']))
            }
            None => (None, text),
        };
        let parse = || parse_key_mask(key, names).map_err(|e| format!("parsing flow key ({e})"));
        let mut key = if key.is_empty() && id.is_some() { None } else { Some(Box::new(parse()?)) };
        if let Some(key) = key.as_mut().filter(|_| !packet_types) {
            key.1 = without_marks(&key.1);
        }
        Ok(Name { ufid: id, key })
    }

    /// Key and mask of a flow to add. A userspace datapath adds none without an input port.
    pub(super) fn to_add(&self, instance: &Instance) -> Result<(FlowKey, KeyMask), String> {
        let (key, mask) = **self.key.as_ref().ok_or("parsing flow key (there is none)")?;
        match key.in_port() == DpPort::NONE && instance.datapath.pmd_threads().is_some() {
            true => Err("updating flow table (Invalid argument)".to_string()),
            false => Ok((key, mask)),
        }
    }

    /// Whether a flow has that name.
    fn is_of(&self, f: &FlowRecord) -> bool {
        match (self.ufid, &self.key) {
            (Some(ufid), _) => f.ufid == ufid,
            (None, Some(m)) => {
                without_marks(&f.mask) == without_marks(&m.1) && f.key.masked(&f.mask) == m.0.masked(&m.1)
            }
            (None, None) => false,
        }
    }

    /// The flows of that name, with their threads. Visits all flows, unless the name is a ufid.
    fn find(&self, instance: &Instance) -> Result<Vec<(PmdId, FlowRecord)>, String> {
        let Some(ufid) = self.ufid else { return select(instance, |f| self.is_of(f)) };
        let mut found = Vec::new();
        for pmd in instance.datapath.pmds() {
            if let Ok(OpResult::Flow(flow)) = one(instance, pmd, DpifOp::FlowGet(ufid)) {
                found.push((pmd, *flow));
            }
        }
        Ok(found)
    }

    /// The flows to modify, with their threads: those of that name, or those that a packet of this key meets, as in
    /// OVS. The text of a translated flow lacks bits of its mask, so it does not name the flow.
    pub(super) fn find_to_modify(&self, instance: &Instance) -> Result<Vec<(PmdId, FlowRecord)>, String> {
        let found = self.find(instance)?;
        match (&self.key, self.ufid) {
            (Some(of), None) if found.is_empty() => {
                select(instance, |f| f.key.masked(&f.mask).matches(&f.mask, &of.0))
            }
            _ => Ok(found),
        }
    }
}

/// The wanted ones of all flows, with their threads.
fn select(
    instance: &Instance,
    wanted: impl Fn(&FlowRecord) -> bool,
) -> Result<Vec<(PmdId, FlowRecord)>, String> {
    let mut found = Vec::new();
    for pmd in instance.datapath.pmds() {
        found.extend(flows_of(instance, pmd)?.into_iter().filter(&wanted).map(|f| (pmd, f)));
    }
    Ok(found)
}

/// The error of an operation, in the words of the stock switch where it has one.
pub(super) fn why(e: &DpifError) -> String {
    match e {
        DpifError::Exists(_) => "File exists".to_string(),
        DpifError::NotFound(_) => "No such file or directory".to_string(),
        DpifError::Busy(_) => "Device or resource busy".to_string(),
        DpifError::Full(_) | DpifError::Unsupported(_) | DpifError::Device(_) => e.to_string(),
    }
}

const NOT_FOUND: &str = "No such file or directory";
pub(super) const NOTHING_TO_DELETE: &str =
    "deleting flow (No such file or directory)\nPerhaps you need to specify a UFID?";

/// Sends one operation and returns its result.
fn one(instance: &Instance, pmd: PmdId, op: DpifOp) -> Result<OpResult, String> {
    match instance.ask(pmd, vec![op])?.pop() {
        Some(OpResult::Failed(e)) => Err(why(&e)),
        Some(result) => Ok(result),
        None => Err("a forwarding thread gave no result".to_string()),
    }
}

/// Parses the actions of a flow.
pub(super) fn actions_of(text: &str, names: &Names) -> Result<Arc<[DpAction]>, String> {
    Ok(parse_actions(text, names).map_err(|e| format!("parsing actions ({e})"))?.into())
}

/// Adds a flow to all threads.
fn create(instance: &Instance, name: &Name, actions: &Arc<[DpAction]>) -> Result<(), String> {
    let (key, mask) = name.to_add(instance)?;
    let ufid = match name.ufid {
        Some(ufid) => ufid,
        None => Ufid(sys::random::u128().map_err(|e| e.to_string())?),
    };
    for pmd in instance.datapath.pmds() {
        let put = FlowPut { ufid, key, mask, actions: actions.clone(), mode: PutMode::Create };
        one(instance, pmd, DpifOp::FlowPut(Box::new(put)))
            .map_err(|e| format!("updating flow table ({e})"))?;
    }
    Ok(())
}

fn add(plane: &mut ControlPlane, OfFlow { datapath: of, words: [flow, actions], .. }: OfFlow<2>) -> Reply {
    let switch = &plane.switch;
    let add = || {
        let instance = datapath(switch, of.as_deref())?;
        let names = Names::of(instance);
        let name = Name::parse(&flow, &names)?;
        create(instance, &name, &actions_of(&actions, &names)?)?;
        Ok(String::new())
    };
    Reply::from(add())
}

fn modify(plane: &mut ControlPlane, asked: OfFlow<2>) -> Reply {
    let OfFlow { options, datapath: of, words: [flow, actions] } = asked;
    let switch = &plane.switch;
    let modify = || {
        let instance = datapath(switch, of.as_deref())?;
        let names = Names::of(instance);
        let name = Name::parse(&flow, &names)?;
        let actions = actions_of(&actions, &names)?;
        if options.clear {
            return Err("updating flow table (Operation not supported)".to_string());
        }
        let found = name.find_to_modify(instance)?;
        if found.is_empty() {
            return match options.may_create {
                true => create(instance, &name, &actions).map(|()| String::new()),
                false => Err(format!("updating flow table ({NOT_FOUND})")),
            };
        }
        for (pmd, f) in &found {
            let put = FlowPut {
                ufid: f.ufid,
                key: f.key,
                mask: f.mask,
                actions: actions.clone(),
                mode: PutMode::Modify,
            };
            one(instance, *pmd, DpifOp::FlowPut(Box::new(put)))
                .map_err(|e| format!("updating flow table ({e})"))?;
        }
        Ok(stats_text(&found, options))
    };
    Reply::from(modify())
}

/// The statistics that flows had, if wanted.
fn stats_text(flows: &[(PmdId, FlowRecord)], options: Options) -> String {
    let now_ms = sys::clock::monotonic_ms();
    let wanted = flows.iter().filter(|_| options.stats);
    wanted.map(|(_, f)| format_stats(&f.stats, now_ms) + "\n").collect()
}

fn delete(plane: &mut ControlPlane, OfFlow { options, datapath: of, words: [flow] }: OfFlow<1>) -> Reply {
    let switch = &plane.switch;
    let delete = || {
        let instance = datapath(switch, of.as_deref())?;
        let found = Name::parse(&flow, &Names::of(instance))?.find(instance)?;
        if found.is_empty() {
            return Err(NOTHING_TO_DELETE.to_string());
        }
        for (pmd, f) in &found {
            one(instance, *pmd, DpifOp::FlowDel(f.ufid)).map_err(|e| format!("deleting flow ({e})"))?;
        }
        Ok(stats_text(&found, options))
    };
    Reply::from(delete())
}

/// Arguments of `dpctl/get-flow`.
struct Shown {
    style: Style,
    of: OfFlow<1>,
}

impl Shown {
    fn parse(words: &[String]) -> Result<Shown, String> {
        let mut style = Style::default();
        let rest: Vec<String> = words.iter().filter(|word| !style.take(word)).cloned().collect();
        Ok(Shown { style, of: OfFlow::parse(&rest)? })
    }
}

fn get(plane: &mut ControlPlane, Shown { style, of }: Shown) -> Reply {
    let switch = &plane.switch;
    let get = || {
        let instance = datapath(switch, of.datapath.as_deref())?;
        let [id] = &of.words;
        let name = Name { ufid: Some(ufid(id)?), key: None };
        let names = Names::of(instance);
        let format = style.format(&names);
        let now_ms = sys::clock::monotonic_ms();
        let found = name.find(instance)?;
        if found.is_empty() {
            return Err(format!("getting flow ({NOT_FOUND})"));
        }
        Ok(found.iter().map(|(_, f)| format_flow(f, now_ms, &format) + "\n").collect())
    };
    Reply::from(get())
}

fn bridge_tables(plane: &mut ControlPlane, bridge: &str) -> Reply {
    let Some((_, bridge)) = plane.switch.instances().bridge(bridge) else {
        return Reply::Error("Unknown bridge".to_string());
    };
    let work = Work::begin(&plane.workers, move |requester| Ok(send_tables(&bridge, requester)));
    Reply::or_error(work.map(|work| Reply::Later(Wait::Work(work))))
}

/// Sends the rules of a version of a bridge in parts; returns the last one.
fn send_tables(bridge: &BridgeView, requester: &Requester<'_>) -> String {
    let now_ms = sys::clock::monotonic_ms();
    let tlv = &**bridge.tables.tlv();
    let rules = bridge.tables.iter().map(|rule| rule_line(rule, now_ms, tlv));
    let bonds = bridge.ports.bundles.values().filter_map(|bundle| bundle.bond.as_deref());
    let mut part = String::new();
    for line in rules.chain(bonds.flat_map(|bond| hash_lines(bond, now_ms))) {
        if part.len() + line.len() > PART_BYTES && !requester.send(&std::mem::take(&mut part)) {
            return part;
        }
        part += &line;
    }
    part
}

/// The rules of the switch's own that send recirculated packets of a bond.
fn hash_lines(bond: &Bond, now_ms: u64) -> Vec<String> {
    let id = bond.recirc_id().map_or(0, |id| id.0);
    let line = |rule: HashRule| {
        let HashRule { hash, port, sent: [packets, bytes], created_ms } = rule;
        let age_s = now_ms.saturating_sub(created_ms) / 1000;
        let (table, hash) = (INTERNAL_TABLE.0, nonzero_hex(hash));
        format!(
            "table_id={table}, duration={age_s}s, n_packets={packets}, n_bytes={bytes}, priority=20,recirc_id={id:#x},dp_hash={hash}/0xff,actions=output:{port}\n"
        )
    };
    bond.state().hash_rules().into_iter().map(line).collect()
}

/// As in OVS, 0 has no prefix.
fn nonzero_hex(n: u8) -> String {
    if n == 0 { "0".to_string() } else { format!("{n:#x}") }
}

/// A rule with its counters, on a line.
pub(super) fn rule_line(rule: &Rule, now_ms: u64, names: &dyn flow::text::PortNames) -> String {
    let table = if rule.table == TableId(0) { String::new() } else { format!("table_id={}, ", rule.table.0) };
    let (packets, bytes) = rule.stats.counts();
    let age_s = now_ms.saturating_sub(rule.created_ms) / 1000;
    let matching = format_match_with(&rule.matching.unpack(), Some(rule.priority), names);
    let separator = if matching.is_empty() { "" } else { "," };
    let actions = format_actions(&rule.actions, names);
    format!(
        "{table}duration={age_s}s, n_packets={packets}, n_bytes={bytes}, {matching}{separator}actions={actions}\n"
    )
}
