//! `ofproto/trace`: the story of one packet through the tables.

use super::Answer;
use crate::control::daemon::Daemon;
use crate::control::instances::{Instance, Instances};
use dpif::slow_reason;
use dpif::text::{NumbersOnly, format_actions, parse_key_mask};
use flow::extract::{Metadata, extract};
use flow::text::{PortNames, format_flow, format_megaflow, parse_exact_flow};
use flow::{Flow, FlowKey, Mask, OfPort, VlanTag};
use ofproto::backer::Backer;
use ofproto::ports::{BridgeId, PortTable};
use ofproto::view::View;
use ofproto::xlate::{Request, Start, Translation, render_trace, translate};
use std::fmt::Write as _;

/// Recirculations that one trace follows.
const RECIRC_MAX: usize = 64;

struct Names<'a>(&'a PortTable);

impl PortNames for Names<'_> {
    fn name(&self, port: OfPort) -> Option<&str> {
        self.0.port(port).map(|p| p.name.as_str())
    }

    fn number(&self, name: &str) -> Option<OfPort> {
        self.0.by_name(name).map(|p| p.of_port)
    }
}

/// What is to be traced.
struct Subject<'a> {
    instance: &'a Instance,
    bridge: BridgeId,
    flow: Flow,
    packet: Option<Vec<u8>>,
}

pub(super) fn trace(daemon: &mut Daemon, args: &[String]) -> Answer {
    let switch = &daemon.switch;
    let story = || {
        let subject = subject(switch.instances(), args)?;
        let view = subject.instance.backer.view();
        Ok(tell(&view, subject))
    };
    Answer::Now(story())
}

/// Reads `BRIDGE FLOW [PACKET]` or `[DATAPATH] DATAPATH-FLOW [PACKET]`.
fn subject<'a>(instances: &'a Instances, args: &[String]) -> Result<Subject<'a>, String> {
    if let Some(option) = args.iter().find(|a| a.starts_with('-')) {
        return Err(format!(
            "{option}: not supported by this build; give the packet as hexadecimal bytes instead"
        ));
    }
    let names_datapath = |a: &String| instances.named(Some(a)).is_ok();
    let names_bridge = |a: &String| instances.bridge(a).is_some();
    let (bridge, flow_text, packet) = match args {
        [flow] => (None, flow, None),
        [first, flow] if names_datapath(first) => (None, flow, None),
        [first, flow, packet] if names_datapath(first) => (None, flow, Some(packet)),
        [bridge, flow] if names_bridge(bridge) => (Some(bridge), flow, None),
        [bridge, flow, packet] if names_bridge(bridge) => (Some(bridge), flow, Some(packet)),
        [flow, packet] if flow.contains('(') => (None, flow, Some(packet)),
        [name, ..] => return Err(format!("no bridge or datapath named {name}")),
        [] => return Err("give a bridge and a flow".to_string()),
    };
    let packet = packet.map(|p| hex(p)).transpose()?;
    match bridge.and_then(|name| instances.bridge(name)) {
        Some((instance, bridge)) => {
            let mut flow = parse_exact_flow(flow_text, &Names(&bridge.ports))
                .map_err(|e| format!("Bad openflow flow syntax: {e}"))?;
            if let Some(bytes) = &packet {
                flow = of_packet(bytes, flow.in_port());
            }
            Ok(Subject { instance, bridge: bridge.id, flow, packet })
        }
        None => {
            let (key, _) = parse_key_mask(flow_text, &NumbersOnly)
                .map_err(|e| format!("Failed to parse datapath flow key ({e})"))?;
            let instance = instances.named(args.first().filter(|a| names_datapath(a)).map(String::as_str))?;
            let view = instance.backer.view();
            let (bridge, of_port) =
                view.of_port(key.in_port()).ok_or("Invalid datapath flow: no bridge has its input port")?;
            let flow = match &packet {
                Some(bytes) => of_packet(bytes, of_port),
                None => key.to_flow(of_port),
            };
            Ok(Subject { instance, bridge: bridge.id, flow, packet })
        }
    }
}

/// A packet in hexadecimal digits.
pub(crate) fn hex(text: &str) -> Result<Vec<u8>, String> {
    let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> =
        digits.chunks(2).map(|p| if p.len() == 2 { byte(p) } else { None }).collect();
    bytes
        .filter(|b| !b.is_empty())
        .ok_or_else(|| "the packet is not an even number of hexadecimal digits".to_string())
}

fn of_packet(bytes: &[u8], in_port: OfPort) -> Flow {
    let mut key = FlowKey::default();
    extract(bytes, &Metadata::default(), 1, &mut key);
    key.to_flow(in_port)
}

/// Translates and tells; a packet has its effects.
fn tell(view: &View, subject: Subject<'_>) -> String {
    let mut out = format!("Flow: {}\n", format_flow(&subject.flow));
    let mut flow = subject.flow;
    let mut todo = vec![flow.recirc_id()];
    let mut told = 0;
    while let Some(id) = todo.pop() {
        flow.recirc_id = id.0;
        if told > 0 {
            let line = "=".repeat(79);
            let _ = write!(out, "\n{line}\nrecirc({:#x})\n{line}\n\nFlow: {}\n", id.0, format_flow(&flow));
        }
        told += 1;
        let t = one_pass(&subject.instance.backer, view, subject.bridge, &flow, subject.packet.as_deref());
        out += &render_trace(&t.trace);
        out += &summary(&flow, &t);
        todo.extend(t.actions.iter().filter_map(|a| match a {
            dpif::DpAction::Recirc(id) if told < RECIRC_MAX => Some(*id),
            _ => None,
        }));
        flow = t.final_flow;
        // Held until the next round of the revalidator, so the passes after this one find their state.
        subject.instance.backer.ukeys.defer_release(&t.recircs);
    }
    out
}

fn one_pass(
    backer: &Backer,
    view: &View,
    bridge: BridgeId,
    flow: &Flow,
    packet: Option<&[u8]>,
) -> Translation {
    let now_ms = sys::clock::monotonic_ms();
    let request = Request { view, bridge, flow, start: Start::Tables, trace: true };
    let t = translate(&request, &mut backer.xlate_host(packet.is_some(), now_ms));
    if let Some(packet) = packet {
        t.cache.replay(1, packet.len() as u64, now_ms, &mut backer.effect_host());
    }
    t
}

fn summary(flow: &Flow, t: &Translation) -> String {
    let mut shown = *flow;
    shown.recirc_id = t.final_flow.recirc_id;
    let last = if t.final_flow == shown { "unchanged".to_string() } else { format_flow(&t.final_flow) };
    let mut mask: Mask = t.wc;
    for (tag, bits) in flow.vlans.iter().zip(&mut mask.0.vlans) {
        // The EtherType says already that there is no tag.
        if !tag.is_present() {
            *bits = VlanTag::default();
        }
    }
    let mut out = format!("\nFinal flow: {last}\nMegaflow: {}\n", format_megaflow(flow, &mask));
    let _ = writeln!(out, "Datapath actions: {}", format_actions(&t.actions, &NumbersOnly));
    let reasons = [
        (slow_reason::CONTROLLER, "Sends \"packet-in\" messages to the OpenFlow controller."),
        (slow_reason::ACTION, "Uses action(s) not supported by datapath."),
        (slow_reason::PROTOCOL, "Consists of packets of a protocol that the switch speaks itself."),
    ];
    if t.slow_reasons != 0 {
        out += "This flow is handled by the userspace slow path because it:\n";
        for (_, why) in reasons.iter().filter(|(bit, _)| t.slow_reasons & bit != 0) {
            let _ = writeln!(out, "  - {why}");
        }
    }
    if let Some(error) = t.error {
        let _ = writeln!(out, "Translation failed ({error:?}), packet is dropped.");
    }
    out
}
