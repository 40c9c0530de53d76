//! Parses lists of actions and instructions.

use super::actions_print::REASONS;
use super::address::parse_ipv4;
use super::learn::parse_learn;
use super::number::{u8_named, u16_named, u32_argument, u64_argument};
use super::port::{PortNames, parse_port};
use super::set_actions::{parse_load, parse_move, parse_set_field, writable};
use super::subfield::sub_field;
use super::token::{Attached, Token, Tokens, quoted_bytes};
use super::{Fail, ParseError, Parsed, fail};
use crate::action::{Action, ControllerAction, PacketInReason};
use crate::{MacAddr, OfPort, TableId};
use packet::headers as h;

/// Actions of OVS that Sluice's switch does not carry out.
const UNSUPPORTED: [&str; 22] = [
    "bundle",
    "bundle_load",
    "check_pkt_larger",
    "clone",
    "conjunction",
    "ct",
    "ct_clear",
    "dec_mpls_ttl",
    "dec_nsh_ttl",
    "decap",
    "delete_field",
    "encap",
    "group",
    "multipath",
    "nat",
    "pop_mpls",
    "push_mpls",
    "sample",
    "set_mpls_label",
    "set_mpls_tc",
    "set_mpls_ttl",
    "unroll_xlate",
];

/// Bytes that a note's length is modulo 8, because the wire pads it.
const NOTE_BYTES_MODULO_8: usize = 6;

/// Parses a list such as `load:0x5->NXM_NX_REG1[],resubmit(,3)`; `drop` and nothing give the empty list. Instructions
/// must stand in OpenFlow's order, at most once each.
///
/// # Errors
/// For an unknown or unsupported action, a bad argument, or instructions out of order.
pub fn parse_actions(text: &str, ports: &dyn PortNames) -> Result<Vec<Action>, ParseError> {
    actions(text, ports).map_err(|f: Fail| f.locate(text))
}

pub(crate) fn actions(text: &str, ports: &dyn PortNames) -> Parsed<Vec<Action>> {
    list(text, ports, Scope::Whole)
}

/// What a list may hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// Actions and instructions.
    Whole,
    /// The actions of `write_actions`.
    ActionSet,
}

fn list(text: &str, ports: &dyn PortNames, scope: Scope) -> Parsed<Vec<Action>> {
    let mut out = Vec::new();
    let mut tokens = Tokens::new(text);
    let (mut dropped, mut count, mut rank) = (None, 0, 0);
    while let Some(token) = tokens.next_token()? {
        count += 1;
        let before = out.len();
        if token.key.eq_ignore_ascii_case("drop") {
            dropped = Some(token.key);
        } else if token.attached == Attached::ParensArrow || !parse_into(&token, ports, scope, &mut out)? {
            return refuse_unknown(&token);
        }
        for action in &out[before..] {
            rank = check_order(&token, action, rank, before > 0)?;
            if scope == Scope::ActionSet && !allowed_in_set(action) {
                let why = format!("write_actions action doesn't support nested action {}", token.key);
                return fail(token.key, why);
            }
        }
    }
    match dropped {
        Some(part) if count > 1 => {
            fail(part, "\"drop\" must not be accompanied by any other action or instruction")
        }
        _ => Ok(out),
    }
}

fn refuse_unknown<T>(token: &Token<'_>) -> Parsed<T> {
    let name = token.key.to_ascii_lowercase();
    if name == "apply_actions" {
        fail(token.key, "apply_actions is the default instruction")
    } else if UNSUPPORTED.contains(&name.as_str()) {
        fail(token.key, format!("action {name} is not supported"))
    } else {
        fail(token.key, format!("unknown action {}", token.key))
    }
}

/// Checks the order of instructions; the rank of the action.
fn check_order(token: &Token<'_>, action: &Action, highest: u8, any_before: bool) -> Parsed<u8> {
    const NAMES: [&str; 6] =
        ["meter", "apply_actions", "clear_actions", "write_actions", "write_metadata", "goto_table"];
    let rank = action.instruction_rank();
    let name = |rank: u8| NAMES[usize::from(rank).min(NAMES.len() - 1)];
    if rank < highest {
        let (first, second) = (name(rank), name(highest));
        let why = format!(
            "invalid instruction ordering: {first} must appear before {second}, for OpenFlow 1.1+ compatibility"
        );
        return fail(token.key, why);
    }
    if rank == highest && rank != 1 && any_before {
        let why =
            format!("duplicate {} instruction not allowed, for OpenFlow 1.1+ compatibility", name(rank));
        return fail(token.key, why);
    }
    Ok(rank)
}

/// Whether an action set takes the action (OpenFlow 1.3 §5.10, with OVS's extensions).
fn allowed_in_set(action: &Action) -> bool {
    match action {
        Action::Controller(c) => {
            let plain = c.reason == PacketInReason::Action && c.controller_id == 0 && c.meter_id.is_none();
            plain && c.userdata.is_empty() && !c.pause
        }
        Action::OutputReg { .. }
        | Action::Enqueue { .. }
        | Action::PopQueue
        | Action::StackPush(_)
        | Action::StackPop(_)
        | Action::Learn(_)
        | Action::FinTimeout { .. }
        | Action::Note(_)
        | Action::Exit
        | Action::DebugRecirc
        | Action::DebugSlow => false,
        other => other.instruction_rank() == 1,
    }
}

/// Parses one action; whether its name is known.
fn parse_into(token: &Token<'_>, ports: &dyn PortNames, scope: Scope, out: &mut Vec<Action>) -> Parsed<bool> {
    let name = token.key.to_ascii_lowercase();
    let arg = token.value;
    let action = match name.as_str() {
        "output" if token.attached == Attached::Parens => {
            return fail(
                token.key,
                "output(port=...,max_len=...) is not supported: packets are not truncated",
            );
        }
        "output" => parse_output(arg, ports)?,
        "controller" => parse_controller(arg)?,
        "enqueue" => parse_enqueue(arg, ports)?,
        "resubmit" => parse_resubmit(token, ports)?,
        "learn" => Action::Learn(Box::new(parse_learn(arg, ports)?)),
        "set_field" => return parse_set_field(arg, ports, out).map(|()| true),
        "load" | "reg_load" => return parse_load(arg, out).map(|()| true),
        "move" | "reg_move" => parse_move(arg)?,
        "push" | "pop" => parse_stack(&name, arg)?,
        "clear_actions" | "write_actions" | "write_metadata" | "goto_table" if scope == Scope::ActionSet => {
            return fail(token.key, format!("{name} instruction not allowed here"));
        }
        "write_actions" => {
            let nested = list(arg, ports, Scope::ActionSet)?;
            if !nested.is_empty() {
                out.push(Action::WriteActions(nested));
            }
            return Ok(true);
        }
        "write_metadata" => parse_write_metadata(arg)?,
        "goto_table" => Action::GotoTable(table(arg, || format!("unknown table \"{arg}\""))?),
        _ => match parse_rewrite(&name, arg)? {
            Some(action) => action,
            None => return parse_bare_port(token, ports, out),
        },
    };
    out.push(action);
    Ok(true)
}

/// Actions whose argument is a number or an address, or that have none.
fn parse_rewrite(name: &str, arg: &str) -> Parsed<Option<Action>> {
    Ok(Some(match name {
        "set_queue" => Action::SetQueue(u32_argument(arg)?),
        "pop_queue" => Action::PopQueue,
        "mod_vlan_vid" | "set_vlan_vid" => Action::SetVlanVid(bounded(arg, "VLAN VID", |n| n <= 0xfff)?),
        "mod_vlan_pcp" | "set_vlan_pcp" => Action::SetVlanPcp(bounded(arg, "VLAN PCP", |n| n <= 7)? as u8),
        "strip_vlan" | "pop_vlan" => Action::StripVlan,
        "push_vlan" => {
            let tpid = u16_named(arg, "ethertype")?;
            if tpid != h::ETH_TYPE_VLAN && tpid != h::ETH_TYPE_VLAN_8021AD {
                return fail(arg, format!("{arg}: not a valid VLAN ethertype"));
            }
            Action::PushVlan(tpid)
        }
        "mod_dl_src" => Action::SetEthSrc(mac(arg)?),
        "mod_dl_dst" => Action::SetEthDst(mac(arg)?),
        "mod_nw_src" => Action::SetIpv4Src(ipv4(arg)?),
        "mod_nw_dst" => Action::SetIpv4Dst(ipv4(arg)?),
        "mod_nw_tos" => {
            let tos = u8_named(arg, "TOS")?;
            if tos & 3 != 0 {
                return fail(arg, format!("{arg}: not a valid TOS"));
            }
            Action::SetIpDscp(tos)
        }
        "mod_nw_ecn" => Action::SetIpEcn(bounded_u8(arg, "ECN", 3)?),
        "mod_nw_ttl" | "set_nw_ttl" => Action::SetIpTtl(u8_named(arg, "TTL")?),
        "mod_tp_src" => Action::SetL4Src(u16_named(arg, "source port")?),
        "mod_tp_dst" => Action::SetL4Dst(u16_named(arg, "destination port")?),
        "dec_ttl" => parse_dec_ttl(arg)?,
        "fin_timeout" => parse_fin_timeout(arg)?,
        "set_tunnel" | "set_tunnel64" => {
            let id = u64_argument(arg)?;
            Action::SetTunnel { id, wide: name == "set_tunnel64" || id > u64::from(u32::MAX) }
        }
        "note" => Action::Note(parse_note(arg)?),
        "exit" => Action::Exit,
        "debug_recirc" => Action::DebugRecirc,
        "debug_slow" => Action::DebugSlow,
        "meter" => Action::Meter(u32_argument(arg)?),
        "clear_actions" => Action::ClearActions,
        _ => return Ok(None),
    }))
}

fn parse_output(arg: &str, ports: &dyn PortNames) -> Parsed<Action> {
    if let Some(port) = parse_port(arg, ports) {
        return output_to(port, arg);
    }
    match sub_field(arg) {
        Ok(source) if source.len_bits <= 64 => Ok(Action::OutputReg { source, max_len_bytes: u16::MAX }),
        Ok(_) => fail(arg, format!("{arg}: port number from more than 64 bits")),
        Err(_) => fail(arg, format!("{arg}: output to unknown port")),
    }
}

fn output_to(port: OfPort, part: &str) -> Parsed<Action> {
    match port {
        OfPort::CONTROLLER => Ok(Action::Controller(Box::new(whole_packet_to_controller()))),
        OfPort::NONE | OfPort::UNSET | OfPort::MAX => {
            fail(part, format!("{part}: output to a port that is none"))
        }
        port => Ok(Action::Output { port, max_len_bytes: 0 }),
    }
}

/// A port's number or name as an action; whether it is one.
fn parse_bare_port(token: &Token<'_>, ports: &dyn PortNames, out: &mut Vec<Action>) -> Parsed<bool> {
    match parse_port(token.key, ports) {
        Some(_) if token.has_value() => {
            fail(token.value, format!("unexpected argument of output to port {}", token.key))
        }
        Some(port) => {
            out.push(output_to(port, token.key)?);
            Ok(true)
        }
        None => Ok(false),
    }
}

fn whole_packet_to_controller() -> ControllerAction {
    ControllerAction {
        max_len_bytes: u16::MAX,
        controller_id: 0,
        reason: PacketInReason::Action,
        userdata: Vec::new(),
        pause: false,
        meter_id: None,
    }
}

fn parse_controller(arg: &str) -> Parsed<Action> {
    let mut c = whole_packet_to_controller();
    if arg.bytes().next().is_some_and(|b| b.is_ascii_digit()) {
        c.max_len_bytes = u16_named(arg, "max_len")?;
        return Ok(Action::Controller(Box::new(c)));
    }
    let mut tokens = Tokens::new(arg);
    while let Some(token) = tokens.next_token()? {
        let value = token.value;
        match token.key {
            "max_len" => c.max_len_bytes = u16_named(value, "max_len")?,
            "id" => c.controller_id = u16_named(value, "id")?,
            "reason" => match REASONS.iter().find(|(name, _)| *name == value) {
                Some((_, reason)) => c.reason = *reason,
                None => return fail(value, format!("unknown reason \"{value}\"")),
            },
            "userdata" => match hex_bytes(value) {
                Some(bytes) => c.userdata = bytes,
                None => return fail(value, "bad hex digit in `controller' action `userdata'"),
            },
            "pause" => c.pause = true,
            "meter_id" => c.meter_id = Some(u32_argument(value)?).filter(|id| *id != 0),
            key => return fail(token.key, format!("unknown key \"{key}\" parsing controller action")),
        }
    }
    Ok(Action::Controller(Box::new(c)))
}

fn parse_enqueue(arg: &str, ports: &dyn PortNames) -> Parsed<Action> {
    let mut parts = arg.rsplitn(2, [':', 'q', ',']);
    let (Some(queue), Some(port)) = (parts.next(), parts.next()) else {
        return fail(arg, "\"enqueue\" syntax is \"enqueue:PORT:QUEUE\" or \"enqueue(PORT,QUEUE)\"");
    };
    let Some(number) = parse_port(port.trim(), ports) else {
        return fail(port, format!("{port}: enqueue to unknown port"));
    };
    Ok(Action::Enqueue { port: number, queue: u32_argument(queue.trim())? })
}

fn parse_resubmit(token: &Token<'_>, ports: &dyn PortNames) -> Parsed<Action> {
    let arg = token.value.trim_start();
    let port_bytes =
        if arg.starts_with('"') { quoted_bytes(arg)? } else { arg.find(',').unwrap_or(arg.len()) };
    let (port_text, behind) = arg.split_at(port_bytes);
    let port_text = port_text.trim();
    let mut parts = behind.split(',').map(str::trim);
    if let Some(extra) = parts.next().filter(|extra| !extra.is_empty()) {
        return fail(extra, format!("{extra}: unexpected text behind port name"));
    }
    let table_text = parts.next().unwrap_or_default();
    match parts.next() {
        Some("ct") => return fail(token.key, "resubmit to a conntrack tuple (ct) is not supported"),
        Some(other) => return fail(other, format!("{other}: unknown parameter")),
        None => {}
    }
    let in_port = match port_text {
        "" => OfPort::IN_PORT,
        text => match parse_port(text, ports) {
            Some(port) => port,
            None => return fail(text, format!("{text}: resubmit to unknown port")),
        },
    };
    let table = match table_text {
        "" => None,
        text => {
            Some(table(text, || format!("{text}: resubmit to unknown table"))?).filter(|t| *t != TableId::ALL)
        }
    };
    if in_port == OfPort::IN_PORT && table.is_none() {
        let why = "at least one \"in_port\" or \"table\" must be specified on resubmit";
        return fail(token.key, why);
    }
    Ok(Action::Resubmit { in_port, table })
}

/// A table's number, decimal.
pub(crate) fn table(text: &str, unknown: impl FnOnce() -> String) -> Parsed<TableId> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match text.parse::<u8>() {
        Ok(n) if digits => Ok(TableId(n)),
        _ => fail(text, unknown()),
    }
}

fn parse_stack(name: &str, arg: &str) -> Parsed<Action> {
    let sub = match sub_field(arg) {
        Err(f) if f.message.starts_with("unexpected input") => {
            return fail(arg, format!("{arg}: trailing garbage following push or pop"));
        }
        sub => sub?,
    };
    if name == "push" {
        return Ok(Action::StackPush(sub));
    }
    writable(sub.field, arg)?;
    Ok(Action::StackPop(sub))
}

fn parse_write_metadata(arg: &str) -> Parsed<Action> {
    Ok(match arg.split_once('/') {
        Some((value, mask)) => {
            Action::WriteMetadata { value: u64_argument(value)?, mask: u64_argument(mask)? }
        }
        None => Action::WriteMetadata { value: u64_argument(arg)?, mask: u64::MAX },
    })
}

fn parse_dec_ttl(arg: &str) -> Parsed<Action> {
    let mut controllers = Vec::new();
    let mut tokens = Tokens::new(arg);
    while let Some(token) = tokens.next_token()? {
        controllers.push(u16_named(token.key, "controller id")?);
    }
    if controllers.is_empty() {
        controllers.push(0);
    }
    Ok(Action::DecTtl { controllers })
}

fn parse_fin_timeout(arg: &str) -> Parsed<Action> {
    let (mut idle_timeout_s, mut hard_timeout_s) = (0, 0);
    let mut tokens = Tokens::new(arg);
    while let Some(token) = tokens.next_token()? {
        match token.key {
            "idle_timeout" => idle_timeout_s = u16_named(token.value, "idle_timeout")?,
            "hard_timeout" => hard_timeout_s = u16_named(token.value, "hard_timeout")?,
            key => return fail(token.key, format!("invalid key '{key}' in 'fin_timeout' argument")),
        }
    }
    Ok(Action::FinTimeout { idle_timeout_s, hard_timeout_s })
}

fn parse_note(arg: &str) -> Parsed<Vec<u8>> {
    let Some(mut bytes) = hex_bytes(arg) else { return fail(arg, "bad hex digit in `note' argument") };
    while bytes.len() % 8 != NOTE_BYTES_MODULO_8 {
        bytes.push(0);
    }
    Ok(bytes)
}

/// Pairs of hexadecimal digits, with dots between them or not.
fn hex_bytes(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 2);
    let mut rest = text.trim_start_matches('.').as_bytes();
    while let [high, low, after @ ..] = rest {
        let digit = |b: u8| char::from(b).to_digit(16);
        bytes.push((digit(*high)? << 4 | digit(*low)?) as u8);
        rest = after;
        while let [b'.', after @ ..] = rest {
            rest = after;
        }
    }
    rest.is_empty().then_some(bytes)
}

fn bounded(arg: &str, what: &str, ok: impl Fn(u16) -> bool) -> Parsed<u16> {
    let n = u16_named(arg, what)?;
    if ok(n) { Ok(n) } else { fail(arg, format!("{arg}: not a valid {what}")) }
}

fn bounded_u8(arg: &str, what: &str, max: u8) -> Parsed<u8> {
    let n = u8_named(arg, what)?;
    if n <= max { Ok(n) } else { fail(arg, format!("{arg}: not a valid {what}")) }
}

fn mac(arg: &str) -> Parsed<MacAddr> {
    match MacAddr::parse(arg) {
        Some(mac) => Ok(mac),
        None => fail(arg, format!("invalid mac address {arg}")),
    }
}

fn ipv4(arg: &str) -> Parsed<u32> {
    match parse_ipv4(arg) {
        Some(address) => Ok(address),
        None => fail(arg, format!("{arg}: could not convert to IP address")),
    }
}
