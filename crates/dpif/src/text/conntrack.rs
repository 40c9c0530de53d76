//! Connections in the form of `dpctl/dump-conntrack`, expectations in that of `dpctl/dump-conntrack-exp`.

use super::write::hex;
use crate::conntrack::{
    Connection, CtCounters, CtMatch, CtProtocol, CtTransport, CtTuple, CtTupleMatch, Expectation, TcpSide,
    TcpState, proto,
};
use std::fmt::Write;
use std::net::IpAddr;

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

/// The connections that a request deletes, as a debug line of OVS shows them.
pub fn format_flush(which: &CtMatch) -> String {
    let rest = CtMatch { zone: None, ..*which };
    match which.zone {
        None if rest == CtMatch::default() => return "<all>".to_string(),
        Some(zone) if rest == CtMatch::default() => return format!("zone {zone}"),
        _ => {}
    }
    let mut out = format!("zone={}", which.zone.unwrap_or(0));
    let masked = |value: u128, mask: u128, full: u128| match mask == full {
        true => format!("{value:#x}"),
        false => format!("{value:#x}/{mask:#x}"),
    };
    if let Some(m) = which.mark {
        let _ = write!(out, " mark={}", masked(m.value.into(), m.mask.into(), u32::MAX.into()));
    }
    if let Some(m) = which.labels {
        let _ = write!(out, " labels={}", masked(m.value, m.mask, u128::MAX));
    }
    let ends = [which.orig.src, which.orig.dst, which.reply.src, which.reply.dst];
    let family = if ends.iter().flatten().any(IpAddr::is_ipv4) { "nw" } else { "ipv6" };
    let number = which.orig.proto.max(which.reply.proto);
    let tuple = |t: &CtTupleMatch| {
        let address = |a: Option<IpAddr>| a.map_or("::".to_string(), |a| a.to_string());
        let ends = format!("ct_{family}_src={},ct_{family}_dst={}", address(t.src), address(t.dst));
        if matches!(number, proto::ICMP | proto::ICMPV6) {
            let (ty, code) = (t.icmp_type.unwrap_or(0), t.icmp_code.unwrap_or(0));
            format!("{ends},icmp_id={},icmp_type={ty},icmp_code={code}", t.icmp_id.unwrap_or(0))
        } else {
            let (src, dst) = (t.src_port.unwrap_or(0), t.dst_port.unwrap_or(0));
            format!("{ends},ct_tp_src={src},ct_tp_dst={dst}")
        }
    };
    let _ = write!(out, " '{},ct_nw_proto={number}' '{}'", tuple(&which.orig), tuple(&which.reply));
    out
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

/// Appends the line of an expectation, without a line end.
pub fn write_expectation(out: &mut String, expectation: &Expectation) {
    // Writing to a string cannot fail.
    let _infallible = try_write_expectation(out, expectation);
}

fn try_write_expectation(out: &mut String, e: &Expectation) -> std::fmt::Result {
    write!(out, "{},orig=(", format_protocol(e.tuple.proto))?;
    write_tuple(out, &e.tuple)?;
    out.push(')');
    if e.zone != 0 {
        write!(out, ",zone={}", e.zone)?;
    }
    if e.mark != 0 {
        write!(out, ",mark={}", e.mark)?;
    }
    if e.labels != 0 {
        write!(out, ",labels={}", hex(e.labels))?;
    }
    out.push_str(",parent=(");
    write_tuple(out, &e.parent)?;
    out.push(')');
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
        CtProtocol::Tcp(a, b) if !verbose => {
            write!(out, "state={}", tcp_state_name(TcpState::of_both(a.state, b.state)))
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

#[cfg(test)]
mod tests;
