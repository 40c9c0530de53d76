//! Lists of routes, rules, neighbours and listeners as commands print them (`ovs/route/show`, `ovs/route/rule/show`,
//! `tnl/neigh/show`, `tnl/ports/show`), in the layout of OVS 3.5, rules of OVS 4.0.

use crate::listeners::Listeners;
use crate::lookup::{Hop, LeftOut, NoRoute, Why};
use crate::neighbours::Neighbours;
use crate::routes::{Origin, RouteKind, Routes};
use crate::rules::{Rule, RuleAction, TABLE_DEFAULT, TABLE_LOCAL, TABLE_MAIN, is_standard_table};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr};

/// Columns of an IP address in a list of neighbours.
const IP_COLUMNS: usize = 46;

/// An address, as C libraries print it.
pub fn address(ip: IpAddr) -> String {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => flow::text::ipv6(ip.into()),
    }
}

/// The tables of a list of routes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shown {
    /// The standard ones.
    Standard,
    /// This one.
    Table(u32),
    /// All.
    All,
}

impl Shown {
    /// The numbers of the tables in order of their output; `None` if the requested one does not exist.
    pub fn tables(self, routes: &Routes) -> Option<Vec<u32>> {
        match self {
            Shown::Standard => Some(vec![TABLE_LOCAL, TABLE_MAIN, TABLE_DEFAULT]),
            Shown::Table(table) => routes.tables().contains(&table).then(|| vec![table]),
            Shown::All => Some(routes.tables()),
        }
    }
}

/// A list of routes; `None` if the requested table does not exist. It costs a second for a million routes.
pub fn routes(routes: &Routes, shown: Shown) -> Option<String> {
    let mut out = String::new();
    let tables = shown.tables(routes)?;
    match shown {
        Shown::Table(table) if !is_standard_table(table) => drop(writeln!(out, "Route Table #{table}:")),
        Shown::Standard | Shown::Table(_) => out.push_str("Route Table:\n"),
        Shown::All => {}
    }
    for table in tables {
        for route in routes.shown(table) {
            let origin = if route.origin == Origin::User { "User" } else { "Cached" };
            let _ = write!(out, "{origin}: {}", route.prefix);
            if route.mark != 0 {
                let _ = write!(out, " MARK {}", route.mark);
            }
            let _ = write!(out, " dev {}", route.device);
            if let Some(gateway) = route.gateway {
                let _ = write!(out, " GW {}", address(gateway));
            }
            let _ = write!(out, " SRC {}", address(route.source));
            if route.is_local {
                out.push_str(" local");
            }
            if shown == Shown::All && !is_standard_table(table) {
                let _ = write!(out, " table {table}");
            }
            out.push('\n');
        }
    }
    Some(out)
}

/// A list of rules. Selectors and actions that OVS does not have are in the words of ip-rule(8).
pub fn rules(rules: &[Rule]) -> String {
    let mut out = String::new();
    for rule in rules {
        let _ = write!(out, "Cached: {}: {}from ", rule.priority, if rule.invert { "not " } else { "" });
        match rule.from {
            None => out.push_str("all"),
            Some(from) => {
                out.push_str(&address(from.address()));
                if from.len() != if rule.is_ipv4 { 32 } else { 128 } {
                    // OVS leaves a blank behind the length.
                    let _ = write!(out, "/{} ", from.len());
                }
            }
        }
        if let Some(to) = rule.to {
            let _ = write!(out, " to {to}");
        }
        match rule.mark {
            (_, 0) => {}
            (value, u32::MAX) => drop(write!(out, " fwmark {value:#x}")),
            (value, mask) => drop(write!(out, " fwmark {value:#x}/{mask:#x}")),
        }
        // Such as an input device.
        out.push_str(if rule.is_foreign { " [other selectors]" } else { "" });
        let _ = writeln!(out, " {}", rule_action(rule));
    }
    out
}

/// The action of a rule.
pub fn rule_action(rule: &Rule) -> String {
    match rule.action {
        RuleAction::Table { table, suppress_len } => {
            let mut out = match table {
                TABLE_DEFAULT => "lookup default".to_string(),
                TABLE_MAIN => "lookup main".to_string(),
                TABLE_LOCAL => "lookup local".to_string(),
                _ => format!("lookup {table}"),
            };
            let _ = suppress_len.map(|len| write!(out, " suppress_prefixlength {len}"));
            out
        }
        RuleAction::Goto(priority) => format!("goto {priority}"),
        RuleAction::Nop => "nop".to_string(),
        RuleAction::Refuse(kind) => kind_name(kind).to_string(),
    }
}

/// The result of a lookup.
pub fn hop(hop: &Hop) -> String {
    let gateway = hop.gateway.unwrap_or(Ipv6Addr::UNSPECIFIED.into());
    format!("src {}\ngateway {}\ndev {}\n", address(hop.source), address(gateway), hop.device)
}

/// A line for each route that a lookup left out, with the reason.
pub fn left_out(routes: &[LeftOut]) -> String {
    let mut out = String::new();
    for LeftOut { table, prefix, why } in routes {
        let _ = write!(out, "left out: {prefix} of table {table}: ");
        let _ = match why {
            Why::Dead => writeln!(out, "no link of a next hop is up"),
            Why::NoObject => writeln!(out, "its next-hop object does not exist"),
            Why::Throw => writeln!(out, "throw, the next rule applies"),
            Why::Suppressed(priority) => writeln!(out, "rule {priority} suppresses networks of its length"),
        };
    }
    out
}

/// The reason why there is no route.
pub fn no_route(reason: NoRoute) -> String {
    match reason {
        NoRoute::Missing => "no route covers the destination".to_string(),
        NoRoute::ForeignSource => "the source is no address of this machine".to_string(),
        NoRoute::Route { table, prefix, kind } => {
            format!("the route {prefix} of table {table} is of type {}", kind_name(kind))
        }
        NoRoute::Rule { priority, kind } => format!("rule {priority} has the action {}", kind_name(kind)),
        NoRoute::NoSource { table, prefix } => {
            format!("there is no source address for the route {prefix} of table {table}")
        }
    }
}

/// The name of a type of routes in ip-route(8).
fn kind_name(kind: RouteKind) -> &'static str {
    match kind {
        RouteKind::Unicast => "unicast",
        RouteKind::Local => "local",
        RouteKind::Blackhole => "blackhole",
        RouteKind::Unreachable => "unreachable",
        RouteKind::Prohibit => "prohibit",
        RouteKind::Throw => "throw",
    }
}

/// A list of neighbours.
pub fn neighbours(neighbours: &Neighbours, now_ms: u64) -> String {
    let mut out = format!("{:<46}{:<20}Bridge\n{}\n", "IP", "MAC", "=".repeat(74));
    for n in neighbours.list(now_ms) {
        let stale = if n.left_ms == 0 { " STALE" } else { "" };
        let _ = writeln!(out, "{:<IP_COLUMNS$}{}   {}{stale}", address(n.ip), n.mac, n.bridge);
    }
    out
}

/// A list of tunnel ports; with `verbose`, of the packets that they listen to.
pub fn listeners(listeners: &Listeners, verbose: bool) -> String {
    let mut out = "Listening ports:\n".to_string();
    if !verbose {
        for port in listeners.tunnels() {
            let _ = writeln!(out, "{} ({}) ref_cnt={}", port.name, port.number.0, port.users);
        }
        return out;
    }
    for (port, mac, ip, (proto, udp)) in listeners.list() {
        let (name, number) = (&port.name, port.number.0);
        let (eth_type, family) = if ip.is_ipv4() { ("0x0800", "ipv4") } else { ("0x86dd", "ipv6") };
        let ip = address(ip);
        let _ = write!(out, "{name} ({number}) : eth(dst={mac}),eth_type({eth_type}),");
        let _ = write!(out, "{family}(dst={ip},proto={proto},frag=no)");
        let _ = udp.map(|port| write!(out, ",udp(dst={port})"));
        out.push('\n');
    }
    out
}
