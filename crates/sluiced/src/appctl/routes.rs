//! Commands about routes, neighbours and listeners of tunnels in user space (`ovs/route/*`, `tnl/*`).
//!
//! Arguments are parsed as OVS does: numbers end at the first byte that does not belong to them.

use super::{Form, Json, Optional, Parsed, Reply, Rows, Several, TypedReply, Word, command};
use crate::control_plane::ControlPlane;
use dpif::EgressPorts;
use flow::MacAddr;
use flow::text::{ParseError, parse_ipv4, parse_masked_address};
use routing::text::{self, Shown};
use routing::{
    AGING_MAX_S, Hops, NoRoute, Origin, Prefix, Query, RETRANS_MAX_MS, Route, Routes, Rule, ShownRoute,
    TABLE_MAIN,
};
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The commands of this module.
pub(super) const ROWS: Rows = &[
    &command(
        "ovs/route/add",
        (
            Parsed("ip/plen", destination),
            Word("output_bridge"),
            Several("[gw] [pkt_mark=mark] [src=src_ip]", 0, 3),
        ),
        "add a route for tunnels",
        add,
    ),
    &command(
        "ovs/route/del",
        (Parsed("ip/plen", network), Optional(Parsed("pkt_mark=mark", packet_mark))),
        "remove a route that a command added",
        remove,
    ),
    &command(
        "ovs/route/lookup",
        (Parsed("ip_addr", host), Optional(Parsed("pkt_mark=mark", packet_mark))),
        "look up the route of a tunnel destination",
        lookup,
    ),
    &command(
        "ovs/route/rule/show",
        Optional(Parsed("-6", of_ipv6)),
        "list the routing rules for tunnels, with -6 those of IPv6",
        rules,
    ),
    &command("ovs/route/show", Optional(Parsed("table=all|id", tables)), "list the routes for tunnels", show),
    &command(
        "tnl/arp/aging",
        Optional(Parsed("SECS", aging_s)),
        "show or set the lifetime of tunnel neighbours, in seconds",
        aging,
    ),
    &command("tnl/arp/flush", (), "remove all tunnel neighbours", flush_neighbours),
    &command(
        "tnl/arp/set",
        (Word("BRIDGE"), Parsed("IP", neighbour_ip), Parsed("MAC", neighbour_mac)),
        "add a tunnel neighbour",
        set_neighbour,
    ),
    &command("tnl/arp/show", (), "list the tunnel neighbours", neighbours),
    &command(
        "tnl/egress_port_range",
        Form("min max", 0, 2, range),
        "show or set the UDP source ports of tunnels",
        egress_ports,
    ),
    &command(
        "tnl/neigh/aging",
        Optional(Parsed("SECS", aging_s)),
        "show or set the lifetime of tunnel neighbours, in seconds",
        aging,
    ),
    &command("tnl/neigh/flush", (), "remove all tunnel neighbours", flush_neighbours),
    &command(
        "tnl/neigh/retrans_time",
        Optional(Parsed("MSECS", retrans_ms)),
        "show or set the interval of neighbour solicitations, in ms",
        retransmission,
    ),
    &command(
        "tnl/neigh/set",
        (Word("BRIDGE"), Parsed("IP", neighbour_ip), Parsed("MAC", neighbour_mac)),
        "add a tunnel neighbour",
        set_neighbour,
    ),
    &command("tnl/neigh/show", (), "list the tunnel neighbours", neighbours),
    &command(
        "tnl/ports/show",
        Optional(Word("-v")),
        "list the ports that receive tunnel packets, with -v by header",
        listeners,
    ),
];

/// Routes beyond which another thread makes their list.
const MANY: usize = 1000;

/// `ADDRESS`, `ADDRESS/BITS` or `ADDRESS/MASK`: the address and the bits of its network.
///
/// # Errors
/// It is none, in the words of OVS.
pub(super) fn cidr(text: &str, is_ipv4: bool) -> Result<(IpAddr, u8), String> {
    let width = if is_ipv4 { 32 } else { 128 };
    let (address, mask) = parse_masked_address(text, width).map_err(|e: ParseError| e.message)?;
    let mask = mask << (128 - width);
    let len = mask.leading_ones() as u8;
    if mask.count_ones() != u32::from(len) {
        return Err(format!("{text}: CIDR network required"));
    }
    let address = match is_ipv4 {
        true => IpAddr::V4(Ipv4Addr::from(address as u32)),
        false => IpAddr::V6(Ipv6Addr::from(address)),
    };
    Ok((address, len))
}

/// An address with a prefix, of either family.
pub(super) fn any_cidr(text: &str) -> Option<(IpAddr, u8)> {
    cidr(text, true).or_else(|_| cidr(text, false)).ok()
}

/// A number at the beginning of a text: decimal, or `0x` and hexadecimal, or `0` and octal; modulo 2^32.
pub(super) fn integer(text: &str) -> Option<u32> {
    let text = text.trim_start();
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let (radix, digits) = match hexadecimal {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_hexdigit()) => (16, rest),
        _ if digits.starts_with('0') => (8, digits),
        _ => (10, digits),
    };
    let n = leading(digits, radix)?;
    Some(if is_negative { n.wrapping_neg() } else { n })
}

/// The digits at the beginning of a text, modulo 2^32.
fn leading(text: &str, radix: u32) -> Option<u32> {
    let digits = text.chars().map_while(|c| c.to_digit(radix));
    digits.fold(None, |n, digit| Some(n.unwrap_or(0_u32).wrapping_mul(radix).wrapping_add(digit)))
}

/// A decimal number at the beginning of a text, 0 without one, as atoi(3).
pub(super) fn atoi(text: &str) -> i64 {
    let text = text.trim_start();
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    sign * i64::from(leading(digits, 10).unwrap_or(0))
}

fn mark(arg: &str) -> Option<u32> {
    integer(arg.strip_prefix("pkt_mark=")?)
}

/// `src=ADDRESS`; bytes after an IPv4 address are ignored.
pub(super) fn source(arg: &str, is_ipv4: bool) -> Option<IpAddr> {
    let text = arg.strip_prefix("src=")?;
    let part = |of_address: fn(char) -> bool| text.split(|c| !of_address(c)).next().unwrap_or("");
    match is_ipv4 {
        true => parse_ipv4(part(|c| c.is_ascii_digit() || c == '.')).map(|a| Ipv4Addr::from(a).into()),
        false => {
            let text = part(|c| c.is_ascii_hexdigit() || c == ':' || c == '.');
            text.parse::<Ipv6Addr>().ok().map(IpAddr::V6)
        }
    }
}

/// A next hop.
pub(super) fn gateway(arg: &str, is_ipv4: bool) -> Option<IpAddr> {
    match is_ipv4 {
        true => parse_ipv4(arg).map(|a| Ipv4Addr::from(a).into()),
        false => arg.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
    }
}

/// `NETWORK DEVICE [GATEWAY] [pkt_mark=MARK] [src=ADDRESS]`
fn add(
    plane: &mut ControlPlane,
    ((destination, prefix), device, options): ((IpAddr, Prefix), &str, Vec<&str>),
) -> Reply {
    let add = || {
        let (mut gateway_given, mut route) = (None, Route::new(prefix, Hops::None));
        // All zeros is none.
        let given = |ip: IpAddr| Some(ip.to_canonical()).filter(|ip| !ip.is_unspecified());
        let is_ipv4 = destination.is_ipv4();
        for arg in options {
            if let Some(mark) = mark(arg) {
                route.mark = mark;
            } else if let Some(ip) = source(arg, is_ipv4) {
                route.source = given(ip);
            } else if let Some(ip) = gateway(arg, is_ipv4) {
                gateway_given = given(ip);
            } else {
                return Err("Invalid pkt_mark, IP gateway or src_ip");
            }
        }
        route.hops = Hops::one(device, gateway_given);
        let added = plane.routing.add_user_route(&route, destination);
        added.map_err(|e| {
            log::debug!(target: "ovs_router", "route {prefix} by {device}: {e}");
            "Error while inserting route."
        })
    };
    Reply::from(add().map(|()| "OK".to_string()).map_err(str::to_string))
}

/// The destination of a route, and its network.
fn destination(text: &str) -> Result<(IpAddr, Prefix), String> {
    let found = any_cidr(text).and_then(|(address, len)| Some((address, Prefix::new(address, len)?)));
    found.ok_or_else(|| "Invalid 'ip/plen' parameter".to_string())
}

/// A network.
fn network(text: &str) -> Result<Prefix, String> {
    destination(text).map(|(_, prefix)| prefix).map_err(|_| "Invalid parameters".to_string())
}

/// An address without a prefix, or with one of all bits.
fn host(text: &str) -> Result<IpAddr, String> {
    let address = any_cidr(text).filter(|(ip, len)| *len == if ip.is_ipv4() { 32 } else { 128 });
    address.map(|(ip, _)| ip).ok_or_else(|| "Invalid parameters".to_string())
}

/// `pkt_mark=MARK`
fn packet_mark(text: &str) -> Result<u32, String> {
    mark(text).ok_or_else(|| "Invalid pkt_mark".to_string())
}

/// `NETWORK [pkt_mark=MARK]`
fn remove(plane: &mut ControlPlane, (prefix, mark): (Prefix, Option<u32>)) -> Reply {
    match plane.routing.remove_user_route(TABLE_MAIN, mark.unwrap_or(0), prefix) {
        true => "OK".to_string().into(),
        false => Reply::Error("Not found".to_string()),
    }
}

/// `ADDRESS [pkt_mark=MARK]`
fn lookup(plane: &mut ControlPlane, (dst, mark): (IpAddr, Option<u32>)) -> Reply {
    let query = Query { mark: mark.unwrap_or(0), dst, src: None };
    let (found, left_out) = plane.routing.routes().explain(&query);
    let left_out = text::left_out(&left_out);
    Reply::from(match found {
        Ok(hop) => Ok(format!("{}{left_out}", text::hop(&hop))),
        Err(NoRoute::Missing) if left_out.is_empty() => Err("Not found".to_string()),
        Err(reason) => Err(format!("Not found\n{left_out}{}", text::no_route(reason))),
    })
}

/// `table=all` or `table=NUMBER`, with its text.
fn tables(text: &str) -> Result<(Shown, String), String> {
    let shown = match text.strip_prefix("table=") {
        Some("all") => Shown::All,
        number => match number.and_then(|n| leading(n, 10)) {
            Some(0) => Shown::Standard,
            Some(table) => Shown::Table(table),
            None => return Err("Invalid table format".to_string()),
        },
    };
    Ok((shown, text.to_string()))
}

/// `[table=all|NUMBER]`
fn show(plane: &mut ControlPlane, asked: Option<(Shown, String)>) -> Reply {
    let (shown, table) = asked.unwrap_or((Shown::Standard, String::new()));
    let routes = plane.routing.routes().clone();
    let Some(tables) = shown.tables(&routes) else {
        return Reply::Error(format!("Table '{table}' not found"));
    };
    let is_long = routes.len() > MANY;
    let list = Box::new(RouteList { routes, shown, tables });
    if is_long { Reply::Long(list) } else { Reply::Value(list) }
}

/// The routes of some tables.
struct RouteList {
    routes: Routes,
    shown: Shown,
    tables: Vec<u32>,
}

impl TypedReply for RouteList {
    fn text(&self) -> String {
        text::routes(&self.routes, self.shown).unwrap_or_default()
    }

    /// As in OVS 4.0.
    fn json(&self) -> Json<'_> {
        let of_table = |table: u32| self.routes.shown(table).map(move |route| route_json(table, &route));
        Json::Elements(Box::new(self.tables.iter().copied().flat_map(of_table)))
    }
}

fn route_json(table: u32, route: &ShownRoute) -> Value {
    let mut hop = json!({ "dev": &*route.device });
    if let Some(gateway) = route.gateway {
        hop["gateway"] = text::address(gateway).into();
    }
    let mut shown = json!({
        "dst": text::address(route.prefix.address()),
        "prefix": route.prefix.len(),
        "local": route.is_local,
        "nexthops": [hop],
        "prefsrc": text::address(route.source),
        "table": table,
        "user": route.origin == Origin::User,
    });
    if route.mark != 0 {
        shown["mark"] = route.mark.into();
    }
    shown
}

/// The routing rules of one address family.
struct RuleList(Vec<Rule>);

impl TypedReply for RuleList {
    fn text(&self) -> String {
        text::rules(&self.0)
    }

    /// As in OVS 4.0, with further members for rules that OVS does not have.
    fn json(&self) -> Json<'_> {
        Json::Elements(Box::new(self.0.iter().map(rule_json)))
    }
}

fn rule_json(rule: &Rule) -> Value {
    let mut shown = json!({
        "priority": rule.priority,
        "user": false,
        "invert": rule.invert,
        "ipv4": rule.is_ipv4,
        "src-prefix": rule.from.map_or(0, |from| from.len()),
        "from": rule.from.map_or("all".to_string(), |from| text::address(from.address())),
    });
    match rule.table() {
        Some(table) => shown["lookup"] = table.into(),
        None => shown["action"] = text::rule_action(rule).into(),
    }
    if let Some(to) = rule.to {
        shown["to"] = to.to_string().into();
    }
    if rule.mark.1 != 0 {
        shown["mark"] = json!({ "value": rule.mark.0, "mask": rule.mark.1 });
    }
    shown
}

/// The option of `ovs/route/rule/show`.
fn of_ipv6(text: &str) -> Result<(), String> {
    match text {
        "-6" => Ok(()),
        other => Err(format!("{other}: unknown option; use -6 or none")),
    }
}

/// `[-6]`
fn rules(plane: &mut ControlPlane, of_ipv6: Option<()>) -> Reply {
    let is_ipv4 = of_ipv6.is_none();
    let rules = plane.routing.routes().rules().iter().filter(|rule| rule.is_ipv4 == is_ipv4);
    Reply::Value(Box::new(RuleList(rules.cloned().collect())))
}

/// `BRIDGE ADDRESS MAC`
fn set_neighbour(plane: &mut ControlPlane, (bridge, ip, mac): (&str, IpAddr, MacAddr)) -> Reply {
    plane.routing.set_neighbour(bridge, ip, mac);
    "OK".to_string().into()
}

fn neighbour_ip(text: &str) -> Result<IpAddr, String> {
    gateway(text, !text.contains(':')).ok_or_else(|| "bad IP address".to_string())
}

fn neighbour_mac(text: &str) -> Result<MacAddr, String> {
    MacAddr::parse(text).ok_or_else(|| "bad MAC address".to_string())
}

fn neighbours(plane: &mut ControlPlane, (): ()) -> Reply {
    text::neighbours(&plane.routing.neighbours(), sys::clock::monotonic_ms()).into()
}

fn flush_neighbours(plane: &mut ControlPlane, (): ()) -> Reply {
    plane.routing.flush_neighbours();
    "OK".to_string().into()
}

/// `[SECONDS]`
fn aging(plane: &mut ControlPlane, seconds: Option<u64>) -> Reply {
    let mut neighbours = plane.routing.neighbours();
    match seconds {
        None => (neighbours.aging_ms() / 1000).to_string().into(),
        Some(seconds) => {
            neighbours.set_aging(sys::clock::monotonic_ms(), seconds * 1000);
            "OK".to_string().into()
        }
    }
}

fn aging_s(text: &str) -> Result<u64, String> {
    let seconds = leading(text.trim_start(), 10).map(u64::from);
    seconds.filter(|s| (1..=AGING_MAX_S).contains(s)).ok_or_else(|| "bad aging value".to_string())
}

/// `[MILLISECONDS]`, as in OVS 4.0.
fn retransmission(plane: &mut ControlPlane, ms: Option<u64>) -> Reply {
    let mut neighbours = plane.routing.neighbours();
    match ms {
        None => neighbours.retrans_ms().to_string().into(),
        Some(ms) => {
            neighbours.set_retrans(ms);
            "OK".to_string().into()
        }
    }
}

fn retrans_ms(text: &str) -> Result<u64, String> {
    let ms = text.parse().ok().filter(|ms| (1..=RETRANS_MAX_MS).contains(ms));
    ms.ok_or_else(|| format!("{text}: not a time of 1 to {RETRANS_MAX_MS} milliseconds"))
}

/// `[-v]`; OVS ignores another word.
fn listeners(plane: &mut ControlPlane, option: Option<&str>) -> Reply {
    let verbose = option.is_some_and(|word| word.eq_ignore_ascii_case("-v"));
    text::listeners(plane.routing.listeners(), verbose).into()
}

/// `[LOWEST HIGHEST]`
fn egress_ports(plane: &mut ControlPlane, range: Range) -> Reply {
    match range {
        Range::Shown => {
            let (low, high) = plane.routing.egress_ports().range();
            format!("Tunnel UDP source port range: {low}-{high}\n").into()
        }
        Range::Set(ports) => {
            plane.routing.set_egress_ports(ports);
            "OK".to_string().into()
        }
        Range::Invalid(fault) => fault.to_string().into(),
    }
}

/// Arguments of `tnl/egress_port_range`.
enum Range {
    Shown,
    Set(EgressPorts),
    /// The text of a successful reply, as in OVS.
    Invalid(&'static str),
}

/// A single word is ignored, as in OVS.
fn range(words: &[String]) -> Result<Range, String> {
    let port = |word: &str| u16::try_from(atoi(word)).ok().filter(|port| *port != 0);
    let [low, high] = words else { return Ok(Range::Shown) };
    Ok(match (port(low), port(high)) {
        (None, _) => Range::Invalid("Invalid min."),
        (_, None) => Range::Invalid("Invalid max."),
        (Some(low), Some(high)) => {
            Range::Set(EgressPorts::new(low.min(high), low.max(high)).unwrap_or_default())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_in_the_stock_switch() {
        for (text, expected) in [
            ("16", Some(16)),
            ("0x10", Some(16)),
            ("010", Some(8)),
            ("-1", Some(u32::MAX)),
            ("4294967295", Some(u32::MAX)),
            ("99999999999", Some(1_215_752_191)),
            ("12junk", Some(12)),
            ("0", Some(0)),
            ("0xg", Some(0)),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(integer(text), expected, "{text}");
        }
        assert_eq!((atoi(" 9x"), atoi("-3"), atoi("x")), (9, -3, 0));
    }

    #[test]
    fn networks_are_read_as_in_the_stock_switch() {
        for (text, expected) in [
            ("1.1.1.1", Some("1.1.1.1/32")),
            ("1.1.1.1/24", Some("1.1.1.1/24")),
            ("1.1.1.1/255.255.255.0", Some("1.1.1.1/24")),
            ("1.1.1.1/255.0.255.0", None),
            ("1.1.1.1/33", None),
            ("1.1.1.1/24x", None),
            ("1", None),
            ("2001:cafe::92/64", Some("2001:cafe::92/64")),
            ("::/0", Some("::/0")),
        ] {
            let read = any_cidr(text).map(|(address, len)| format!("{address}/{len}"));
            assert_eq!(read.as_deref(), expected, "{text}");
        }
    }
}
