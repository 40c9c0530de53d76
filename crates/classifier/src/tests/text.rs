//! Parses the subset of the match syntax used in these tests' tables.

use flow::Match;
use flow::fields::FieldId;

const TCP_FLAGS: [&str; 8] = flow_names();

const fn flow_names() -> [&'static str; 8] {
    let [a, b, c, d, e, f, g, h, _] = flow::TcpFlags::NAMES;
    [a, b, c, d, e, f, g, h]
}

const CT_STATE: [&str; 6] = ["new", "est", "rel", "rpl", "inv", "trk"];

fn protocol(name: &str) -> Option<(u128, Option<u128>)> {
    Some(match name {
        "ip" => (0x800, None),
        "arp" => (0x806, None),
        "ipv6" => (0x86dd, None),
        "tcp" => (0x800, Some(6)),
        "udp" => (0x800, Some(17)),
        "icmp" => (0x800, Some(1)),
        "tcp6" => (0x86dd, Some(6)),
        "icmp6" => (0x86dd, Some(58)),
        _ => return None,
    })
}

/// The value and, if the text implies one, the mask.
fn value(text: &str) -> u128 {
    if let Some(hex) = text.strip_prefix("0x") {
        return u128::from_str_radix(hex, 16).unwrap();
    }
    if let Ok(address) = text.parse::<core::net::Ipv4Addr>() {
        return u32::from(address).into();
    }
    if text.split(':').count() == 6 && text.len() == 17 {
        return u128::from_str_radix(&text.replace(':', ""), 16).unwrap();
    }
    if let Ok(address) = text.parse::<core::net::Ipv6Addr>() {
        return address.into();
    }
    text.parse().unwrap_or_else(|_| panic!("value {text}"))
}

fn mask(text: &str, field: FieldId) -> u128 {
    let is_address = matches!(field.def().bits, 32 | 128);
    match text.parse::<u32>() {
        Ok(len) if is_address => field.full_mask() & !(field.full_mask().checked_shr(len).unwrap_or(0)),
        _ => value(text),
    }
}

/// `+a-b` sets and clears flags; `a|b` matches all of them exactly.
fn flags(text: &str, names: &[&str], full: u128) -> (u128, u128) {
    let bit =
        |name: &str| 1u128 << names.iter().position(|n| *n == name).unwrap_or_else(|| panic!("flag {name}"));
    if !text.starts_with(['+', '-']) {
        return (text.split('|').map(bit).sum(), full);
    }
    let spaced = text.replace('+', " +").replace('-', " -");
    spaced.split_whitespace().fold((0, 0), |(value, mask), flag| {
        let b = bit(&flag[1..]);
        (if flag.starts_with('+') { value | b } else { value }, mask | b)
    })
}

fn field(name: &str) -> FieldId {
    let name = match name {
        "tp_src" => "tcp_src",
        "tp_dst" => "tcp_dst",
        name => name,
    };
    FieldId::by_name(name).unwrap_or_else(|| panic!("field {name}"))
}

/// The match of the text.
pub(super) fn parse_match(text: &str) -> Match {
    let mut m = Match::catchall();
    for token in text.split(',').filter(|t| !t.is_empty()) {
        let Some((name, rest)) = token.split_once('=') else {
            let (dl_type, nw_proto) = protocol(token).unwrap_or_else(|| panic!("protocol {token}"));
            m.set(FieldId::EthType, dl_type);
            nw_proto.map(|p| m.set(FieldId::NwProto, p));
            continue;
        };
        let id = field(name);
        let (v, bits) = match (id, rest.split_once('/')) {
            (FieldId::TcpFlags, None) => flags(rest, &TCP_FLAGS, id.full_mask()),
            (FieldId::CtState, None) => flags(rest, &CT_STATE, id.full_mask()),
            (_, Some((v, bits))) => (value(v), mask(bits, id)),
            (_, None) => (value(rest), id.full_mask()),
        };
        m.set_masked(id, v, bits);
        if id == FieldId::InPort {
            m.set(FieldId::InPortOxm, v);
        }
    }
    m
}

/// A priority and a match, as `10,tcp,tp_dst=80`.
pub(super) fn parse_rule(text: &str) -> (Match, i32) {
    let (priority, m) = text.split_once(',').unwrap_or((text, ""));
    (parse_match(m), priority.parse().unwrap_or_else(|_| panic!("priority {priority}")))
}
