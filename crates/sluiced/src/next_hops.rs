//! [`NextHops`]: Ethernet addresses of next hops, from the kernel's IPv4 routes and neighbours.

use flow::MacAddr;
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::path::Path;

/// The kernel's tables of the daemon's network namespace (proc(5)).
const TABLES: &str = "/proc/net";
/// `RTF_UP` (linux/route.h).
const IS_UP: u32 = 1;
/// `ATF_COM`: the entry has an address (linux/if_arp.h).
const IS_COMPLETE: u32 = 2;

struct Route {
    device: String,
    network: u32,
    mask: u32,
    /// 0 if the network is reached directly.
    gateway: u32,
    metric: u32,
}

/// Routes and neighbours at one time.
#[derive(Default)]
pub(crate) struct NextHops {
    routes: Vec<Route>,
    neighbours: HashMap<(Ipv4Addr, String), MacAddr>,
}

impl NextHops {
    /// The tables of the daemon's network namespace. A table that cannot be read counts as empty.
    pub(crate) fn read() -> NextHops {
        NextHops::read_from(Path::new(TABLES))
    }

    fn read_from(tables: &Path) -> NextHops {
        let text = |name| std::fs::read_to_string(tables.join(name)).unwrap_or_default();
        NextHops::parse(&text("route"), &text("arp"))
    }

    fn parse(routes: &str, neighbours: &str) -> NextHops {
        NextHops {
            routes: routes.lines().filter_map(route).collect(),
            neighbours: neighbours.lines().filter_map(neighbour).collect(),
        }
    }

    /// The Ethernet address to which packets for `to` are sent; `None` if it is not known.
    pub(crate) fn towards(&self, to: Ipv4Addr) -> Option<MacAddr> {
        if to.is_loopback() {
            // Never on a wire; the main table, which is all of this one, has no route for it.
            return None;
        }
        let covers = |r: &&Route| u32::from(to) & r.mask == r.network;
        let best = |r: &&Route| (r.mask.count_ones(), std::cmp::Reverse(r.metric));
        let route = self.routes.iter().filter(covers).max_by_key(best)?;
        let hop = if route.gateway == 0 { to } else { route.gateway.into() };
        self.neighbours.get(&(hop, route.device.clone())).copied()
    }
}

/// A line of the routes: device, destination, gateway, flags, two counters, metric, mask; numbers in hexadecimal,
/// addresses in the byte order of the machine.
fn route(line: &str) -> Option<Route> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let hex = |i: usize| u32::from_str_radix(words.get(i)?, 16).ok();
    let address = |i: usize| hex(i).map(|n| u32::from_be_bytes(n.to_ne_bytes()));
    let (network, gateway, mask) = (address(1)?, address(2)?, address(7)?);
    let metric = words.get(6)?.parse().ok()?;
    (hex(3)? & IS_UP != 0).then(|| Route { device: words[0].to_string(), network, mask, gateway, metric })
}

/// A line of the neighbours: address, type, flags, Ethernet address, mask, device.
fn neighbour(line: &str) -> Option<((Ipv4Addr, String), MacAddr)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [address, _, flags, mac, _, device] = words[..] else { return None };
    let flags = u32::from_str_radix(flags.strip_prefix("0x")?, 16).ok()?;
    let mac = MacAddr::parse(mac)?;
    (flags & IS_COMPLETE != 0).then(|| Some(((address.parse().ok()?, device.to_string()), mac)))?
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTE_LINES: &str = "\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
br0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0
br0\t0000000A\t00000000\t0001\t0\t0\t5\t000000FF\t0\t0\t0
br1\t0000000A\t00000000\t0001\t0\t0\t9\t000000FF\t0\t0\t0
br2\t0000100A\t00000000\t0000\t0\t0\t0\t0000FFFF\t0\t0\t0
short\t00
";
    const NEIGHBOUR_LINES: &str = "\
IP address       HW type     Flags       HW address            Mask     Device
10.0.0.1         0x1         0x2         02:00:00:00:00:01     *        br0
10.0.0.1         0x1         0x2         02:00:00:00:00:99     *        br1
10.0.0.7         0x1         0x2         02:00:00:00:00:07     *        br0
10.0.0.8         0x1         0x0         00:00:00:00:00:00     *        br0
broken
";

    #[test]
    fn next_hops_follow_the_longest_route_of_the_least_metric() {
        let hops = NextHops::parse(ROUTE_LINES, NEIGHBOUR_LINES);
        let towards = |to: &str| hops.towards(to.parse().unwrap()).map(|mac| mac.0[5]);
        assert_eq!(towards("10.0.0.7"), Some(7));
        assert_eq!(towards("192.0.2.1"), Some(1), "through the gateway");
        assert_eq!(towards("10.16.0.1"), None, "a direct route without a neighbour");
        assert_eq!(towards("10.0.0.8"), None, "an unresolved neighbour");
        assert_eq!(towards("127.0.0.1"), None, "not through the gateway");
        assert_eq!(NextHops::parse("", "").towards(Ipv4Addr::LOCALHOST), None);
    }

    #[test]
    fn a_table_that_cannot_be_read_counts_as_empty() {
        let tables = std::env::temp_dir().join(format!("next-hops-{}", std::process::id()));
        std::fs::create_dir_all(&tables).unwrap();
        let towards = || NextHops::read_from(&tables).towards(Ipv4Addr::new(10, 0, 0, 7)).map(|mac| mac.0[5]);
        let neither = towards();
        std::fs::write(tables.join("route"), ROUTE_LINES).unwrap();
        let routes = towards();
        std::fs::write(tables.join("arp"), NEIGHBOUR_LINES).unwrap();
        let both = towards();
        std::fs::remove_dir_all(&tables).unwrap();
        assert_eq!((neither, routes, both), (None, None, Some(7)));
    }
}
