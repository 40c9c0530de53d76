//! Dumps of datapath flows: of a whole datapath, of the ports of one bridge; and the removal of all flows.

use super::datapath::{Names, datapath, flows_of, of_bridge, thread_name};
use super::{Form, Optional, Reply, Rows, Word, command};
use crate::control_plane::ControlPlane;
use crate::instances::Instance;
use crate::switch::Switch;
use dpif::text::{FlowFormat, NumbersOnly, format_actions, format_flow, format_key_mask, format_stats};
use dpif::{DpifOp, FlowRecord, OffloadLayer, OffloadStats, Offloaded, PmdId};
use flow::text::{PortNames, parse_match};
use flow::{Match, OfPort};
use std::fmt::Write as _;

/// The commands of this module.
pub(super) const ROWS: Rows = &[
    &command(
        "dpctl/del-flows",
        (Optional(Word("dp")), Optional(Word("file"))),
        "remove all flows of a datapath, or those of a file",
        delete_all,
    ),
    &command(
        "dpctl/dump-flows",
        Form("[-m] [--names | --no-names] [dp] [filter=match] [type=kinds] [pmd=core]", 0, 8, Wanted::parse),
        "list the flows of a datapath",
        of_datapath,
    ),
    &command(
        "dpctl/offload-stats-show",
        Optional(Word("dp")),
        "show the statistics of flow offload",
        offload_stats,
    ),
    &command(
        "dpif/dump-flows",
        Form("[-m] [--names | --no-names] bridge", 1, 4, OfBridge::parse),
        "list the datapath flows of the ports of a bridge",
        of_one_bridge,
    ),
    &command(
        "dpif/get-flow",
        Form("[-m] [--names | --no-names] bridge ufid:ufid", 2, 5, FlowOfBridge::parse),
        "show the datapath flow of a UFID in a bridge",
        one_of_bridge,
    ),
];

/// Options of a dump.
#[derive(Default)]
pub(super) struct Style {
    /// All fields and the ufid.
    pub(super) verbose: bool,
    /// Whether to print port names; follows `verbose` by default.
    names: Option<bool>,
}

impl Style {
    /// Parses the option, if it is one of these.
    pub(super) fn take(&mut self, option: &str) -> bool {
        match option {
            "-m" | "--more" => self.verbose = true,
            "--names" => self.names = Some(true),
            "--no-names" => self.names = Some(false),
            _ => return false,
        }
        true
    }

    /// The format, with the names of these ports.
    pub(super) fn format<'a>(&self, names: &'a Names) -> FlowFormat<'a> {
        let with_names = self.names.unwrap_or(self.verbose);
        let packet_types = names.packet_types;
        let names: &dyn dpif::text::PortNames = if with_names { names } else { &NumbersOnly };
        FlowFormat { verbose: self.verbose, packet_types, names, extra_info: None }
    }
}

/// Arguments of `dpctl/dump-flows`.
#[derive(Default)]
pub(super) struct Wanted {
    style: Style,
    datapath: Option<String>,
    pub(super) filter: Option<String>,
    /// Types of flows; `None`: all.
    kinds: Option<Kinds>,
    pmd: Option<PmdId>,
}

impl Wanted {
    pub(super) fn parse(args: &[String]) -> Result<Wanted, String> {
        let mut wanted = Wanted::default();
        for arg in args {
            let twice = |what: &str| Err(format!("{arg}: {what} is given already"));
            if arg.starts_with('-') {
                if !wanted.style.take(arg) {
                    return Err(format!("Unrecognized option {arg}"));
                }
            } else if let Some(text) = arg.strip_prefix("filter=") {
                if wanted.filter.replace(text.to_string()).is_some() {
                    return twice("a filter");
                }
            } else if let Some(text) = arg.strip_prefix("type=") {
                if wanted.kinds.replace(Kinds::parse(text)?).is_some() {
                    return twice("a type");
                }
            } else if let Some(text) = arg.strip_prefix("pmd=") {
                if wanted.pmd.replace(thread(text)?).is_some() {
                    return twice("a thread");
                }
            } else if wanted.datapath.replace(arg.clone()).is_some() {
                return twice("a datapath");
            }
        }
        Ok(wanted)
    }
}

/// Types of flows (`type=`).
#[derive(Debug)]
pub(super) struct Kinds(Vec<fn(Offloaded) -> bool>);

impl Kinds {
    /// Parses a list of types.
    fn parse(text: &str) -> Result<Kinds, String> {
        let kind = |kind: &str| -> Result<fn(Offloaded) -> bool, String> {
            Ok(match kind {
                "all" => |_| true,
                "ovs" => |o| matches!(o, Offloaded::No | Offloaded::Partial),
                "tc" => |o| o == Offloaded::Full(OffloadLayer::Tc),
                "dpdk" => |o| o == Offloaded::Full(OffloadLayer::Dpdk),
                "offloaded" => |o| matches!(o, Offloaded::Full(_)),
                "non-offloaded" => |o| o == Offloaded::No,
                "partially-offloaded" => |o| o == Offloaded::Partial,
                _ => return Err(format!("Failed to parse type ({kind}) (Invalid argument)")),
            })
        };
        Ok(Kinds(text.split(',').map(kind).collect::<Result<_, _>>()?))
    }

    /// Whether flows of that state are of one of the types.
    fn has(&self, offloaded: Offloaded) -> bool {
        self.0.iter().any(|is| is(offloaded))
    }
}

/// A forwarding thread by the number of its core; -1 is the main thread.
fn thread(text: &str) -> Result<PmdId, String> {
    match text.parse::<i32>() {
        Ok(-1) => Ok(PmdId::Main),
        Ok(n) if u16::try_from(n).is_ok() => Ok(PmdId::Core(n as u16)),
        _ => Err(format!("pmd={text}: give the number of a core, or -1 for the main thread")),
    }
}

/// Ports of the datapath, in the text form of an OpenFlow match.
struct FilterNames<'a>(&'a Names);

impl PortNames for FilterNames<'_> {
    fn name(&self, _: OfPort) -> Option<&str> {
        None
    }

    fn number(&self, name: &str) -> Option<OfPort> {
        dpif::text::PortNames::number(self.0, name).map(|p| OfPort(p.0))
    }
}

/// Whether some packet of the flow could match.
fn could_match(filter: &Match, f: &FlowRecord) -> bool {
    let mask = flow::Mask(f.mask.to_flow(OfPort::NONE));
    Match::new(&f.key.to_flow(OfPort(f.key.in_port().0)), &mask).overlaps(filter)
}

fn of_datapath(plane: &mut ControlPlane, wanted: Wanted) -> Reply {
    dump(&plane.switch, &wanted).into()
}

fn dump(switch: &Switch, wanted: &Wanted) -> Result<String, String> {
    let instance = datapath(switch, wanted.datapath.as_deref())?;
    let names = Names::of(instance);
    let parse = |text: &String| parse_match(text, &FilterNames(&names));
    let filter = wanted
        .filter
        .as_ref()
        .map(parse)
        .transpose()
        .map_err(|e| format!("Failed to parse filter ({})", e.message))?;
    let mut out = String::new();
    let format = wanted.style.format(&names);
    let now_ms = sys::clock::monotonic_ms();
    for pmd in instance.datapath.pmds().into_iter().filter(|p| wanted.pmd.is_none_or(|w| w == *p)) {
        let mut flows = flows_of(instance, pmd)?;
        probes::log_dumped(instance.name(), &flows, now_ms);
        flows.retain(|f| wanted.kinds.as_ref().is_none_or(|kinds| kinds.has(f.offloaded)));
        flows.retain(|f| filter.as_ref().is_none_or(|m| could_match(m, f)));
        if !flows.is_empty() && wanted.pmd.is_none() && pmd != PmdId::None {
            let _ = writeln!(out, "flow-dump from {}", thread_name(pmd));
        }
        flows.iter().for_each(|f| out += &(format_flow(f, now_ms, &format) + "\n"));
    }
    Ok(out)
}

/// A flow in the form of commands about a bridge.
fn bridge_line(f: &FlowRecord, now_ms: u64, format: &FlowFormat<'_>) -> String {
    let ufid = if format.verbose { format!("ufid:{} ", f.ufid) } else { String::new() };
    let key = format_key_mask(&f.key, &f.mask, format);
    let actions = format_actions(&f.actions, format.names);
    format!("{ufid}{key}, {}, actions:{actions}\n", format_stats(&f.stats, now_ms))
}

/// The flows of a bridge's ports.
fn bridge_flows(instance: &Instance, bridge: ofproto::ports::BridgeId) -> Result<Vec<FlowRecord>, String> {
    let view = instance.backer.view();
    let mine = |f: &FlowRecord| instance.backer.receiver(&view, &f.key).is_some_and(|(b, _)| b.id == bridge);
    let mut all = Vec::new();
    for pmd in instance.datapath.pmds() {
        all.extend(flows_of(instance, pmd)?.into_iter().filter(mine));
    }
    Ok(all)
}

/// The style, and the other words.
fn styled(words: &[String]) -> Result<(Style, Vec<&String>), String> {
    let mut style = Style::default();
    match words.iter().find(|word| word.starts_with('-') && !style.take(word)) {
        Some(bad) => Err(format!("{bad}: unknown option")),
        None => Ok((style, words.iter().filter(|word| !word.starts_with('-')).collect())),
    }
}

/// Arguments of `dpif/dump-flows`.
struct OfBridge {
    style: Style,
    bridge: String,
}

impl OfBridge {
    fn parse(words: &[String]) -> Result<OfBridge, String> {
        let (style, names) = styled(words)?;
        let [bridge] = names[..] else { return Err("name one bridge".to_string()) };
        Ok(OfBridge { style, bridge: bridge.clone() })
    }
}

fn of_one_bridge(plane: &mut ControlPlane, OfBridge { style, bridge }: OfBridge) -> Reply {
    let dump = || {
        let (instance, bridge) = of_bridge(&plane.switch, &bridge)?;
        let names = Names::of(instance);
        let format = style.format(&names);
        let now_ms = sys::clock::monotonic_ms();
        let flows = bridge_flows(instance, bridge.id)?;
        Ok(flows.iter().map(|f| bridge_line(f, now_ms, &format)).collect())
    };
    Reply::from(dump())
}

/// Arguments of `dpif/get-flow`.
struct FlowOfBridge {
    style: Style,
    bridge: String,
    /// Text: an unknown bridge is the first fault.
    ufid: String,
}

impl FlowOfBridge {
    fn parse(words: &[String]) -> Result<FlowOfBridge, String> {
        let (style, names) = styled(words)?;
        let [bridge, ufid] = names[..] else { return Err("name a bridge and a ufid".to_string()) };
        Ok(FlowOfBridge { style, bridge: bridge.clone(), ufid: ufid.clone() })
    }
}

fn one_of_bridge(
    plane: &mut ControlPlane,
    FlowOfBridge { style, bridge: name, ufid }: FlowOfBridge,
) -> Reply {
    let get = || {
        let (instance, bridge) = of_bridge(&plane.switch, &name)?;
        let wanted = super::flows::ufid(&ufid)?;
        let names = Names::of(instance);
        let format = style.format(&names);
        let now_ms = sys::clock::monotonic_ms();
        let mut flows = bridge_flows(instance, bridge.id)?;
        flows.retain(|f| f.ufid == wanted);
        match flows.is_empty() {
            true => Err(format!("{ufid}: bridge {name} has no such flow")),
            false => Ok(flows.iter().map(|f| bridge_line(f, now_ms, &format)).collect()),
        }
    };
    Reply::from(get())
}

/// `[DP]`
fn offload_stats(plane: &mut ControlPlane, dp: Option<&str>) -> Reply {
    let show = || {
        let offload = datapath(&plane.switch, dp)?.datapath.offload();
        let offload = offload.ok_or("retrieving offload statistics (Operation not supported)")?;
        let stats = offload.stats().ok_or("retrieving offload statistics (Invalid argument)")?;
        Ok(offload_text(&stats))
    };
    Reply::from(show())
}

/// Statistics in total, and of the only thread.
fn offload_text(stats: &OffloadStats) -> String {
    let OffloadStats { enqueued, inserted, latency, .. } = *stats;
    let rows = [
        ("Enqueued offloads:", enqueued),
        ("Inserted offloads:", inserted),
        ("Cumulative Average latency (us):", latency.mean_us),
        ("Cumulative Latency stddev (us):", latency.deviation_us),
        ("Exponential Average latency (us):", latency.recent_us),
        ("Exponential Latency stddev (us):", latency.recent_deviation_us),
    ];
    let mut out = "HW Offload stats:\n".to_string();
    for thread in ["  Total", "  [  0]"] {
        for (name, value) in rows {
            let _ = writeln!(out, "   {thread} {name:>34} {value:>6}");
        }
    }
    out
}

/// `[DP] [FILE]`: with a file, only its flows. A single argument is a datapath if there is one of that name.
fn delete_all(plane: &mut ControlPlane, (dp, file): (Option<&str>, Option<&str>)) -> Reply {
    let instances = plane.switch.instances();
    match (dp, file) {
        (Some(dp), Some(file)) => return super::flow_files::delete(plane, (Some(dp), file)),
        (Some(file), None) if instances.named(Some(file)).is_err() => {
            return super::flow_files::delete(plane, (None, file));
        }
        _ => {}
    }
    let switch = &plane.switch;
    let flush = || {
        let instance = datapath(switch, dp)?;
        for pmd in instance.datapath.pmds() {
            instance.ask(pmd, vec![DpifOp::FlowFlush])?;
        }
        Ok(String::new())
    };
    Reply::from(flush())
}

#[cfg(test)]
mod tests;
