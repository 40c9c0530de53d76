//! `ofproto/trace` and `ofproto/trace-packet-out`: the trace of one packet through the tables.
//!
//! With a packet, the switch learns from it (addresses, rules of `learn`) and controllers receive it; nothing is
//! counted and nothing is forwarded. Without one, nothing changes.

use super::trace_args::{FlowText, PacketText, TraceArgs, Traced};
use super::{Reply, Rows, command};
use crate::control_plane::ControlPlane;
use crate::instances::{Instance, Instances};
use crate::trace_text::Shown;
use dpif::actions::Userspace;
use dpif::text::{NumbersOnly, parse_key_mask};
use dpif::{DpAction, DpifOp, Execute, FlowStats, OpBatch, PmdId, UserCookie};
use flow::compose::compose;
use flow::extract::{Metadata, extract};
use flow::nlkey::{KeyLimits, key_to_bytes, parse_key};
use flow::text::parse_exact_flow;
use flow::{DpPort, FLOW_WORDS, Flow, FlowKey, Mask, Match, RecircId};
use ofp_actions::text::parse_actions;
use ofp_actions::{Action, CheckContext, Stage, check_actions};
use ofproto::ct_support;
use ofproto::flow_mod::check_references;
use ofproto::ports::{BridgeId, BridgeNames};
use ofproto::view::BridgeView;
use ofproto::xlate::{Recirculations, Request, Start, Translation, translate};
use openflow::Version;
use packet::Packet;

/// The commands of this module.
pub(super) const ROWS: Rows = &[
    &command(
        "ofproto/trace",
        Traced { packet_out: false },
        "trace a packet through the OpenFlow tables",
        trace,
    ),
    &command(
        "ofproto/trace-packet-out",
        Traced { packet_out: true },
        "trace a packet through given OpenFlow actions",
        trace_packet_out,
    ),
];

/// Upper bound of port numbers.
const MAX_PORTS: u32 = 0xff00;

/// Input of a trace.
struct Subject<'a> {
    instance: &'a Instance,
    bridge: BridgeId,
    flow: Flow,
    packet: Option<Vec<u8>>,
    /// Connection states of recirculated packets.
    ct_next: Vec<u32>,
    /// Print port names.
    names: bool,
}

/// Names of a bridge's ports.
fn names(bridge: &BridgeView, show: bool) -> BridgeNames<'_> {
    BridgeNames { ports: &bridge.ports, tlv: bridge.tables.tlv(), show }
}

fn trace(plane: &mut ControlPlane, args: TraceArgs<'_>) -> Reply {
    let story = || {
        let subject = subject(plane.switch.instances(), &args)?;
        Ok(trace_text(&subject, Start::Tables))
    };
    Reply::from(story())
}

fn trace_packet_out(plane: &mut ControlPlane, args: TraceArgs<'_>) -> Reply {
    let story = || {
        let subject = subject(plane.switch.instances(), &args)?;
        let actions = packet_out_actions(&subject, &args)?;
        Ok(trace_text(&subject, Start::Actions(&actions)))
    };
    Reply::from(story())
}

/// Parses the flow, and makes or parses the packet.
fn subject<'a>(instances: &'a Instances, args: &TraceArgs<'_>) -> Result<Subject<'a>, String> {
    let (instance, bridge, mut flow) = match args.flow {
        FlowText::Bridge(name, text) => {
            let (instance, bridge) =
                instances.bridge(name).ok_or_else(|| format!("{name}: unknown bridge"))?;
            let flow = parse_exact_flow(text, &names(&bridge, true))
                .map_err(|e| format!("Bad openflow flow syntax: {text}: {}", e.message))?;
            (instance, bridge.id, flow)
        }
        FlowText::Datapath(name, text) => {
            let instance = match name {
                Some(_) => instances.named(name).map_err(|_| "Cannot find the datapath")?,
                None => instances.named(name)?,
            };
            let (mut key, _) = parse_key_mask(text, &super::datapath::Names::of(instance))
                .map_err(|e| format!("syntax error at {text} (or the bridge name was omitted): {e}"))?;
            let view = instance.backer.view();
            if key.is_of_vlan_limit(view.vlan_limit) == Some(false) {
                // As the datapath reads it: the further tag is payload.
                let bytes = key_to_bytes(&key, &KeyLimits::LINUX);
                (key, _) = parse_key(&bytes, view.vlan_limit).map_err(|_| "Failed to convert flow key")?;
            }
            let none = || format!("no OpenFlow port for datapath port {}", key.in_port());
            let (bridge, of_port) = instance.backer.receiver(&view, &key).ok_or_else(none)?;
            let bad = |_| "Failed to parse Geneve options";
            (instance, bridge.id, bridge.flow_of(&key, of_port).map_err(bad)?)
        }
    };
    let packet = match &args.packet {
        PacketText::None => None,
        PacketText::Generate => Some(compose(&flow, args.payload())),
        PacketText::Bytes(bytes) => {
            flow = of_packet(bytes, &flow, instance.backer.view().vlan_limit);
            Some(bytes.clone())
        }
    };
    Ok(Subject { instance, bridge, flow, packet, ct_next: args.ct_next.clone(), names: args.names })
}

/// The flow of a packet, with `given` metadata.
fn of_packet(bytes: &[u8], given: &Flow, vlan_limit: u8) -> Flow {
    let mut key = FlowKey::default();
    extract(bytes, &Metadata::default(), vlan_limit, &mut key);
    let read = key.to_flow(given.in_port());
    let mut flow = *given;
    let l2 = flow::Stage::Metadata.words().end;
    flow.words_mut()[l2..].copy_from_slice(&read.words()[l2..]);
    flow
}

/// The actions of a packet-out, checked as those of a controller; `-consistent`: as those of OpenFlow 1.1 and later.
fn packet_out_actions(subject: &Subject<'_>, args: &TraceArgs<'_>) -> Result<Vec<Action>, String> {
    let view = subject.instance.backer.view();
    let bridge = view.bridge(subject.bridge).ok_or("the bridge is gone")?;
    let actions = parse_actions(args.actions, &names(bridge, true)).map_err(|e| e.message)?;
    let instruction = actions.iter().map(Action::stage).find(|stage| *stage > Stage::Apply);
    if let Some(stage) = instruction {
        return Err(format!("{} instruction not allowed here", stage.name()));
    }
    let exact = Mask(Flow::from_words([u64::MAX; FLOW_WORDS]));
    let cx = CheckContext {
        version: if args.consistent { Version::V13 } else { Version::V10 },
        max_ports: MAX_PORTS,
        n_tables: u8::MAX,
        table: None,
        debug_actions: true,
    };
    let can = subject.instance.backer.features();
    check_actions(&actions, &Match::new(&subject.flow, &exact), &cx)
        .and_then(|()| ct_support::check_actions(&actions, &can))
        .and_then(|()| check_references(&actions, &bridge.tables, &|id| bridge.meters.contains_key(&id)))
        .map_err(|e| format!("Bad actions: {e}"))?;
    Ok(actions)
}

/// Translates and prints, with the tracked copies of the packet.
fn trace_text(subject: &Subject<'_>, start: Start<'_>) -> String {
    let mut copies = Recirculations::new(subject.ct_next.clone());
    let mut held = Vec::new();
    let mut out = part_text(subject, &subject.flow, start, &mut copies, &mut held);
    loop {
        let (flow, heading) = copies.next_part();
        out += &heading;
        let Some(flow) = flow else { break };
        out += &part_text(subject, &flow, Start::Tables, &mut copies, &mut held);
    }
    let backer = &subject.instance.backer;
    match subject.packet {
        // Its controllers may resume it.
        Some(_) => backer.ukeys.defer_release(&held),
        // As in OVS, the next trace has its own ids.
        None => backer.recirc_release(&held),
    }
    out
}

/// Translates a flow and prints it; `copies` gets the tracked copies, `held` the ids of frozen states.
fn part_text(
    subject: &Subject<'_>,
    flow: &Flow,
    start: Start<'_>,
    copies: &mut Recirculations,
    held: &mut Vec<RecircId>,
) -> String {
    let backer = &subject.instance.backer;
    let now_ms = sys::clock::monotonic_ms();
    let view = backer.view();
    let request = Request { view: &view, bridge: subject.bridge, flow, start, trace: true };
    let mut host = backer.xlate_host(subject.packet.is_some(), now_ms);
    if let Some(packet) = &subject.packet {
        host = host.with_packet(packet);
    }
    let mut t = translate(&request, &mut host);
    if let Some(packet) = &subject.packet {
        let seen = FlowStats { used_ms: now_ms, tcp_flags: flow.flags_of_tcp(), ..FlowStats::default() };
        t.cache.replay_learning(&seen, &mut backer.effect_host());
        to_controllers(subject, flow, packet, &t);
    }
    held.append(&mut t.recircs);
    copies.add(std::mem::take(&mut t.forks));
    let Some(bridge) = view.bridge(subject.bridge) else { return "the bridge is gone\n".to_string() };
    let names = names(bridge, subject.names);
    let dp_names = subject.names.then(|| super::datapath::Names::of(subject.instance));
    let shown = Shown {
        names: &names,
        dp_names: dp_names.as_ref().map_or(&NumbersOnly, |names| names),
        with_names: subject.names,
        has_packet: subject.packet.is_some(),
    };
    shown.translation(flow, &t)
}

/// Executes the actions of the translation for controllers only: nothing is forwarded.
fn to_controllers(subject: &Subject<'_>, flow: &Flow, packet: &[u8], t: &Translation) {
    let is_to_controller =
        |a: &DpAction| matches!(a, DpAction::Userspace(Userspace(UserCookie::Controller(_))));
    if !t.actions.iter().any(is_to_controller) {
        return;
    }
    let kept = |a: &&DpAction| is_to_controller(a) || a.as_rewrite().is_some();
    let actions: Vec<DpAction> = t.actions.iter().filter(kept).cloned().collect();
    let view = subject.instance.backer.view();
    let port = view.bridge(subject.bridge).and_then(|b| b.ports.port(flow.in_port())?.dp_port);
    let key = FlowKey::from_flow(flow, port.unwrap_or(DpPort::NONE));
    let execute = Execute {
        packet: Packet::from_slice(packet),
        key,
        actions: actions.into(),
        ticket: None,
        upcall: 0,
        went_on: false,
    };
    let ops = vec![DpifOp::Execute(Box::new(execute))];
    subject.instance.datapath.operate(OpBatch { pmd: PmdId::Main, ops, tag: 0, reply: None });
}
