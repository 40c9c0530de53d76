//! Connections in the form of `dpctl/dump-conntrack`, and tuples in the form of `dpctl/flush-conntrack`.

use super::TextError;
use super::write::hex;
use crate::conntrack::{
    Connection, CtCounters, CtProtocol, CtTransport, CtTuple, CtTupleMatch, TcpSide, TcpState, proto,
};
use std::fmt::Write;
use std::net::IpAddr;
use std::str::FromStr;

/// Format of connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConnectionFormat {
    /// Id, status, states of both sides and master connection.
    pub verbose: bool,
    /// Counters, times and timeouts.
    pub statistics: bool,
}

/// The name of a tracked protocol, or its number.
pub fn format_protocol(number: u8) -> String {
    let name = match number {
        proto::ICMP => "icmp",
        2 => "igmp",
        proto::TCP => "tcp",
        17 => "udp",
        33 => "dccp",
        proto::ICMPV6 => "icmpv6",
        proto::SCTP => "sctp",
        136 => "udplite",
        _ => return number.to_string(),
    };
    name.to_string()
}

/// The name of a state.
pub fn tcp_state_name(state: TcpState) -> &'static str {
    match state {
        TcpState::Closed => "CLOSED",
        TcpState::Listen => "LISTEN",
        TcpState::SynSent => "SYN_SENT",
        TcpState::SynRecv => "SYN_RECV",
        TcpState::Established => "ESTABLISHED",
        TcpState::CloseWait => "CLOSE_WAIT",
        TcpState::FinWait1 => "FIN_WAIT_1",
        TcpState::Closing => "CLOSING",
        TcpState::LastAck => "LAST_ACK",
        TcpState::FinWait2 => "FIN_WAIT_2",
        TcpState::TimeWait => "TIME_WAIT",
    }
}

const STATUS: [(u32, &str); 15] = [
    (0x0001, "EXPECTED"),
    (0x0002, "SEEN_REPLY"),
    (0x0004, "ASSURED"),
    (0x0008, "CONFIRMED"),
    (0x0010, "SRC_NAT"),
    (0x0020, "DST_NAT"),
    (0x0040, "SEQ_ADJUST"),
    (0x0080, "SRC_NAT_DONE"),
    (0x0100, "DST_NAT_DONE"),
    (0x0200, "DYING"),
    (0x0400, "FIXED_TIMEOUT"),
    (0x0800, "TEMPLATE"),
    (0x1000, "UNTRACKED"),
    (0x2000, "HELPER"),
    (0x4000, "OFFLOAD"),
];

const SIDE: [(u32, &str); 6] = [
    (0x01, "WINDOW_SCALE"),
    (0x02, "SACK_PERM"),
    (0x04, "CLOSE_INIT"),
    (0x08, "BE_LIBERAL"),
    (0x10, "DATA_UNACKNOWLEDGED"),
    (0x20, "MAXACK_SET"),
];

/// States of SCTP, by number. None is shown as closed.
const SCTP: [&str; 10] = [
    "CLOSED",
    "CLOSED",
    "COOKIE_WAIT",
    "COOKIE_ECHOED",
    "ESTABLISHED",
    "SHUTDOWN_SENT",
    "SHUTDOWN_RECD",
    "SHUTDOWN_ACK_SENT",
    "HEARTBEAT_SENT",
    "HEARTBEAT_ACKED",
];

/// Appends the line of a connection, without a line end. `date` formats nanoseconds of the wall clock.
pub fn write_connection(
    out: &mut String,
    connection: &Connection,
    format: ConnectionFormat,
    date: &dyn Fn(u64) -> String,
) {
    // Writing to a string cannot fail.
    let _infallible = try_write(out, connection, format, date);
}

fn try_write(
    out: &mut String,
    c: &Connection,
    format: ConnectionFormat,
    date: &dyn Fn(u64) -> String,
) -> std::fmt::Result {
    *out += &format_protocol(c.orig.proto);
    for (name, tuple, counters) in [("orig", &c.orig, &c.counters[0]), ("reply", &c.reply, &c.counters[1])] {
        write!(out, ",{name}=(")?;
        write_tuple(out, tuple)?;
        if format.statistics && *counters != CtCounters::default() {
            write!(out, ",packets={},bytes={}", counters.packets, counters.bytes)?;
        }
        out.push(')');
    }
    if format.statistics && (c.start_ns, c.stop_ns) != (0, 0) {
        write!(out, ",start={}", date(c.start_ns))?;
        if c.stop_ns != 0 {
            write!(out, ",stop={}", date(c.stop_ns))?;
        }
    }
    if format.verbose {
        write!(out, ",id={}", c.id)?;
    }
    if c.zone != 0 {
        write!(out, ",zone={}", c.zone)?;
    }
    if format.verbose {
        write!(out, ",status={}", names(c.status, &STATUS))?;
    }
    if format.statistics {
        write!(out, ",timeout={}", c.timeout_s)?;
    }
    if c.mark != 0 {
        write!(out, ",mark={}", c.mark)?;
    }
    if c.labels != 0 {
        write!(out, ",labels={}", hex(c.labels))?;
    }
    if let Some(protocol) = &c.protocol {
        out.push_str(",protoinfo=(");
        write_protocol(out, protocol, format.verbose)?;
        out.push(')');
    }
    if let Some(helper) = &c.helper {
        write!(out, ",helper={helper}")?;
    }
    if let (true, Some(parent)) = (format.verbose, &c.parent) {
        out.push_str(",parent=(");
        write_tuple(out, parent)?;
        out.push(')');
    }
    Ok(())
}

fn write_tuple(out: &mut String, tuple: &CtTuple) -> std::fmt::Result {
    let [src, dst] = tuple.addresses.both();
    write!(out, "src={src},dst={dst}")?;
    match tuple.transport {
        CtTransport::Ports { src, dst } => write!(out, ",sport={src},dport={dst}"),
        CtTransport::Icmp { id, kind, code } => write!(out, ",id={id},type={kind},code={code}"),
    }
}

fn write_protocol(out: &mut String, protocol: &CtProtocol, verbose: bool) -> std::fmt::Result {
    match protocol {
        // The more advanced side.
        CtProtocol::Tcp(a, b) if !verbose => {
            write!(out, "state={}", tcp_state_name(a.state.max(b.state)))
        }
        CtProtocol::Tcp(a, b) => {
            let state = |side: &TcpSide| tcp_state_name(side.state);
            write!(out, "state_orig={},state_reply={}", state(a), state(b))?;
            if (a.window_scale, b.window_scale) != (0, 0) {
                write!(out, ",wscale_orig={},wscale_reply={}", a.window_scale, b.window_scale)?;
            }
            let flags = |side: &TcpSide| names(side.flags.into(), &SIDE);
            write!(out, ",flags_orig={},flags_reply={}", flags(a), flags(b))
        }
        CtProtocol::Sctp { state, tags: [orig, reply] } => {
            match SCTP.get(usize::from(*state)) {
                Some(name) => write!(out, "state={name}")?,
                None => write!(out, "state=[{state}]")?,
            }
            write!(out, ",vtag_orig={orig},vtag_reply={reply}")
        }
    }
}

/// Names of set bits; `0` without any.
fn names(bits: u32, table: &[(u32, &str)]) -> String {
    let set: Vec<&str> = table.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect();
    if set.is_empty() { "0".into() } else { set.join("|") }
}

/// Parses `field=value,...`; an empty text matches all tuples.
///
/// # Errors
/// An unknown field, an invalid value, or mutually exclusive fields.
pub fn parse_tuple_match(text: &str) -> Result<CtTupleMatch, TextError> {
    let mut found = CtTupleMatch::default();
    for field in text.split(',').filter(|field| !field.is_empty()) {
        let (name, value) = field.split_once('=').unwrap_or((field, ""));
        if value.is_empty() {
            return Err(TextError(format!("field {name} missing value")));
        }
        let known = take_field(&mut found, name, value)?;
        known.ok_or_else(|| TextError(format!("failed to parse field {name}")))?;
    }
    check(&found)?;
    Ok(found)
}

/// Parses a field; `None`: its value is invalid.
fn take_field(found: &mut CtTupleMatch, name: &str, value: &str) -> Result<Option<()>, TextError> {
    fn set<T: FromStr>(place: &mut Option<T>, value: &str) -> Option<()> {
        *place = Some(value.parse().ok()?);
        Some(())
    }
    let taken = match name {
        "ct_nw_src" | "ct_ipv6_src" | "ct_nw_dst" | "ct_ipv6_dst" => {
            let wants_v6 = name.starts_with("ct_ipv6");
            let Some(address) = value.parse::<IpAddr>().ok().filter(|a| a.is_ipv6() == wants_v6) else {
                return Ok(None);
            };
            if [found.src, found.dst].iter().flatten().any(|other| other.is_ipv6() != wants_v6) {
                return Err(TextError(format!("the L3 protocol does not match {value}")));
            }
            let place = if name.ends_with("src") { &mut found.src } else { &mut found.dst };
            *place = Some(address);
            Some(())
        }
        "ct_nw_proto" => value.parse().ok().map(|proto| found.proto = proto),
        "ct_tp_src" => set(&mut found.src_port, value),
        "ct_tp_dst" => set(&mut found.dst_port, value),
        "icmp_id" => set(&mut found.icmp_id, value),
        "icmp_type" => set(&mut found.icmp_type, value),
        "icmp_code" => set(&mut found.icmp_code, value),
        _ => return Err(TextError(format!("invalid conntrack tuple field: {name}"))),
    };
    Ok(taken)
}

/// Rejects impossible tuples.
fn check(found: &CtTupleMatch) -> Result<(), TextError> {
    let has_ports = found.src_port.is_some() || found.dst_port.is_some();
    let has_icmp = found.icmp_id.is_some() || found.icmp_type.is_some() || found.icmp_code.is_some();
    if has_ports && found.proto == 0 {
        return Err(TextError("port is set without protocol".into()));
    }
    let is_icmp = [proto::ICMP, proto::ICMPV6].contains(&found.proto);
    if has_icmp && !is_icmp || has_ports && is_icmp {
        return Err(TextError("invalid L4 fields".into()));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
