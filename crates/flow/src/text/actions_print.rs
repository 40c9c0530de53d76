//! Prints actions as `ovs-ofctl dump-flows` does.

use super::address::ipv4;
use super::learn::{format_learn, timeouts};
use super::number::hex;
use super::port::{PortNames, format_port};
use super::subfield::format_subfield;
use super::values::format_value;
use crate::OfPort;
use crate::action::{Action, ControllerAction, PacketInReason, SetStyle, SubField};
use crate::fields::FieldId;

/// Names of the reasons that a controller action may give.
pub(crate) const REASONS: [(&str, PacketInReason); 6] = [
    ("no_match", PacketInReason::NoMatch),
    ("action", PacketInReason::Action),
    ("invalid_ttl", PacketInReason::InvalidTtl),
    ("action_set", PacketInReason::ActionSet),
    ("group", PacketInReason::Group),
    ("packet_out", PacketInReason::PacketOut),
];

/// A list of actions and instructions; `drop` when there are none.
pub fn format_actions(actions: &[Action], ports: &dyn PortNames) -> String {
    if actions.is_empty() {
        return "drop".into();
    }
    let parts: Vec<String> = actions.iter().map(|a| format_action(a, ports)).collect();
    parts.join(",")
}

/// One action or instruction.
pub fn format_action(action: &Action, ports: &dyn PortNames) -> String {
    match action {
        Action::Output { port: OfPort::CONTROLLER, max_len_bytes } => format!("CONTROLLER:{max_len_bytes}"),
        Action::Output { port, .. } => {
            let reserved = port.is_reserved() || *port == OfPort::LOCAL;
            let name = format_port(*port, ports);
            if reserved { name } else { format!("output:{name}") }
        }
        Action::OutputReg { source, .. } => format!("output:{}", format_subfield(*source)),
        Action::Controller(c) => format_controller(c),
        Action::Enqueue { port, queue } => format!("enqueue:{}:{queue}", format_port(*port, ports)),
        Action::SetQueue(queue) => format!("set_queue:{queue}"),
        Action::PopQueue => "pop_queue".into(),
        Action::SetField { field, value, mask, style: SetStyle::SetField } => {
            format!("set_field:{}->{}", format_value(*field, *value, *mask, ports), field.def().name)
        }
        Action::SetField { field, value, mask, style: SetStyle::Load } => format_load(*field, *value, *mask),
        Action::Move { source, dest } => {
            format!("move:{}->{}", format_subfield(*source), format_subfield(*dest))
        }
        Action::StackPush(sub) => format!("push:{}", format_subfield(*sub)),
        Action::StackPop(sub) => format!("pop:{}", format_subfield(*sub)),
        Action::Resubmit { in_port, table } => format_resubmit(*in_port, table.map(|t| t.0), ports),
        Action::Learn(learn) => format_learn(learn, ports),
        Action::WriteActions(nested) => {
            let parts: Vec<String> = nested.iter().map(|a| format_action(a, ports)).collect();
            format!("write_actions({})", parts.join(","))
        }
        other => format_simple(other),
    }
}

/// Actions that need no port names.
fn format_simple(action: &Action) -> String {
    match action {
        Action::SetVlanVid(vid) => format!("mod_vlan_vid:{vid}"),
        Action::SetVlanPcp(pcp) => format!("mod_vlan_pcp:{pcp}"),
        Action::StripVlan => "strip_vlan".into(),
        Action::PushVlan(tpid) => format!("push_vlan:0x{tpid:04x}"),
        Action::SetEthSrc(mac) => format!("mod_dl_src:{mac}"),
        Action::SetEthDst(mac) => format!("mod_dl_dst:{mac}"),
        Action::SetIpv4Src(address) => format!("mod_nw_src:{}", ipv4(*address)),
        Action::SetIpv4Dst(address) => format!("mod_nw_dst:{}", ipv4(*address)),
        Action::SetIpDscp(tos) => format!("mod_nw_tos:{tos}"),
        Action::SetIpEcn(ecn) => format!("mod_nw_ecn:{ecn}"),
        Action::SetIpTtl(ttl) => format!("mod_nw_ttl:{ttl}"),
        Action::SetL4Src(port) => format!("mod_tp_src:{port}"),
        Action::SetL4Dst(port) => format!("mod_tp_dst:{port}"),
        Action::DecTtl { controllers } => match controllers.as_slice() {
            [] | [0] => "dec_ttl".into(),
            ids => format!("dec_ttl({})", ids.iter().map(u16::to_string).collect::<Vec<_>>().join(",")),
        },
        Action::FinTimeout { idle_timeout_s, hard_timeout_s } => {
            let set = timeouts(&[("idle_timeout", *idle_timeout_s), ("hard_timeout", *hard_timeout_s)]);
            format!("fin_timeout({})", set.join(","))
        }
        Action::SetTunnel { id, wide } => {
            let name = if *wide || *id > u64::from(u32::MAX) { "set_tunnel64" } else { "set_tunnel" };
            format!("{name}:{}", hex((*id).into()))
        }
        Action::Note(bytes) => format!("note:{}", dotted_hex(bytes)),
        Action::Exit => "exit".into(),
        Action::DebugRecirc => "debug_recirc".into(),
        Action::DebugSlow => "debug_slow".into(),
        Action::Meter(id) => format!("meter:{id}"),
        Action::ClearActions => "clear_actions".into(),
        Action::WriteMetadata { value, mask: u64::MAX } => format!("write_metadata:{}", hex((*value).into())),
        Action::WriteMetadata { value, mask } => {
            format!("write_metadata:{}/{}", hex((*value).into()), hex((*mask).into()))
        }
        Action::GotoTable(table) => format!("goto_table:{}", table.0),
        Action::Output { .. }
        | Action::OutputReg { .. }
        | Action::Controller(_)
        | Action::Enqueue { .. }
        | Action::SetQueue(_)
        | Action::PopQueue
        | Action::SetField { .. }
        | Action::Move { .. }
        | Action::StackPush(_)
        | Action::StackPop(_)
        | Action::Resubmit { .. }
        | Action::Learn(_)
        | Action::WriteActions(_) => unreachable!("format_action prints it"),
    }
}

fn format_controller(c: &ControllerAction) -> String {
    let plain = c.reason == PacketInReason::Action && c.controller_id == 0 && c.meter_id.is_none();
    if plain && c.userdata.is_empty() && !c.pause {
        return format!("CONTROLLER:{}", c.max_len_bytes);
    }
    let mut parts = Vec::new();
    if c.reason != PacketInReason::Action {
        let name = REASONS.iter().find(|(_, r)| *r == c.reason).map_or("", |(name, _)| name);
        parts.push(format!("reason={name}"));
    }
    if c.max_len_bytes != u16::MAX {
        parts.push(format!("max_len={}", c.max_len_bytes));
    }
    if c.controller_id != 0 {
        parts.push(format!("id={}", c.controller_id));
    }
    if !c.userdata.is_empty() {
        parts.push(format!("userdata={}", dotted_hex(&c.userdata)));
    }
    if c.pause {
        parts.push("pause".into());
    }
    if let Some(meter) = c.meter_id {
        parts.push(format!("meter_id={meter}"));
    }
    format!("controller({})", parts.join(","))
}

fn dotted_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(".")
}

/// One `load` for each run of bits, of at most 64 bits, as the wire has them.
fn format_load(field: FieldId, value: u128, mask: u128) -> String {
    let runs = runs_of(mask);
    if runs.is_empty() {
        return format!("set_field:{}/0->{}", hex(0), field.def().name);
    }
    let loads: Vec<String> = runs
        .into_iter()
        .map(|(offset, len)| {
            let bits = value >> offset & u128::MAX >> (128 - u32::from(len));
            let sub = SubField { field, offset_bits: offset, len_bits: len };
            format!("load:{}->{}", hex(bits), format_subfield(sub))
        })
        .collect();
    loads.join(",")
}

/// Offset and length of the runs of ones, cut to at most 64.
pub(crate) fn runs_of(mask: u128) -> Vec<(u16, u16)> {
    let mut runs = Vec::new();
    let mut at = 0u32;
    while at < 128 && mask >> at != 0 {
        at += (mask >> at).trailing_zeros();
        let len = (mask >> at).trailing_ones().min(64);
        runs.push((at as u16, len as u16));
        at += len;
    }
    runs
}

fn format_resubmit(in_port: OfPort, table: Option<u8>, ports: &dyn PortNames) -> String {
    match table {
        None => format!("resubmit:{}", format_port(in_port, ports)),
        Some(table) if in_port == OfPort::IN_PORT => format!("resubmit(,{table})"),
        Some(table) => format!("resubmit({},{table})", format_port(in_port, ports)),
    }
}
