//! A brief description of a frame's first bytes, for lists: addresses and ports, not a dissector. Also
//! locates its checksum.

use std::ops::Range;

/// A 16-bit number, most significant byte first.
fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn v4(bytes: &[u8], at: usize) -> Option<std::net::Ipv4Addr> {
    Some(<[u8; 4]>::try_from(bytes.get(at..at + 4)?).ok()?.into())
}

fn v6(bytes: &[u8], at: usize) -> Option<std::net::Ipv6Addr> {
    Some(<[u8; 16]>::try_from(bytes.get(at..at + 16)?).ok()?.into())
}

fn mac(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

/// Position of the checksum of the transport header (TCP, UDP, SCTP), within the captured bytes. If it is
/// left to the device, it differs between kernel and user space.
pub fn checksum(frame: &[u8]) -> Option<Range<usize>> {
    let (mut kind, mut at) = (u16_at(frame, 12)?, 14);
    while matches!(kind, 0x8100 | 0x88a8) && at <= 18 {
        (kind, at) = (u16_at(frame, at + 2)?, at + 4);
    }
    let (protocol, transport) = match kind {
        0x0800 if u16_at(frame, at + 6)? & 0x1fff == 0 => {
            (*frame.get(at + 9)?, at + usize::from(frame.get(at)? & 0xf) * 4)
        }
        0x86dd => (*frame.get(at + 6)?, at + 40),
        _ => return None,
    };
    let (offset, bytes) = match protocol {
        6 => (16, 2),
        17 => (6, 2),
        132 => (8, 4),
        _ => return None,
    };
    let (from, to) = (transport + offset, transport + offset + bytes);
    (from < frame.len()).then(|| from..to.min(frame.len()))
}

/// The frame in brief; truncated or unknown parts are omitted.
pub fn brief(frame: &[u8]) -> String {
    if frame.is_empty() {
        return "-".into();
    }
    let Some(mut kind) = u16_at(frame, 12) else { return format!("{} bytes", frame.len()) };
    let (mut at, mut tags) = (14, String::new());
    // Tags: 802.1Q and 802.1ad, at most two.
    while matches!(kind, 0x8100 | 0x88a8) && at <= 18 {
        let (Some(tag), Some(next)) = (u16_at(frame, at), u16_at(frame, at + 2)) else { break };
        tags += &format!("vlan {} ", tag & 0xfff);
        (kind, at) = (next, at + 4);
    }
    let rest = frame.get(at..).unwrap_or_default();
    let inner = match kind {
        0x0800 => ipv4(rest),
        0x86dd => ipv6(rest),
        0x0806 => arp(rest),
        _ => None,
    };
    let inner =
        inner.unwrap_or_else(|| format!("{} > {} type 0x{kind:04x}", mac(&frame[6..12]), mac(&frame[..6])));
    tags + &inner
}

fn ipv4(bytes: &[u8]) -> Option<String> {
    let header = usize::from(bytes.first()? & 0xf) * 4;
    let (from, to) = (v4(bytes, 12)?.to_string(), v4(bytes, 16)?.to_string());
    let first = u16_at(bytes, 6)? & 0x1fff == 0;
    let inner = bytes.get(header..).filter(|_| first).unwrap_or_default();
    Some(transport(*bytes.get(9)?, inner, (&from, &to), first))
}

fn ipv6(bytes: &[u8]) -> Option<String> {
    let (from, to) = (v6(bytes, 8)?.to_string(), v6(bytes, 24)?.to_string());
    let inner = bytes.get(40..).unwrap_or_default();
    Some(transport(*bytes.get(6)?, inner, (&format!("[{from}]"), &format!("[{to}]")), true))
}

fn transport(protocol: u8, inner: &[u8], (from, to): (&str, &str), first: bool) -> String {
    let ports = u16_at(inner, 0).zip(u16_at(inner, 2));
    let name = match protocol {
        1 | 58 => "icmp",
        6 => "tcp",
        17 => "udp",
        132 => "sctp",
        _ => return format!("{from} > {to} protocol {protocol}"),
    };
    match ports {
        _ if !first => format!("{name} {from} > {to} fragment"),
        Some((source, target)) if name != "icmp" => format!("{name} {from}:{source} > {to}:{target}"),
        _ if name == "icmp" => match inner.first() {
            Some(kind) => format!("icmp {from} > {to} type {kind}"),
            None => format!("icmp {from} > {to}"),
        },
        _ => format!("{name} {from} > {to}"),
    }
}

fn arp(bytes: &[u8]) -> Option<String> {
    let (from, to) = (v4(bytes, 14)?, v4(bytes, 24)?);
    Some(match u16_at(bytes, 6)? {
        1 => format!("arp {from} asks for {to}"),
        2 => format!("arp {from} answers {to}"),
        other => format!("arp {from} > {to} operation {other}"),
    })
}
