//! Routes: priorities, source addresses, snapshots; random changes against a list.

use super::{ip, prefix};
use crate::text::{Shown, hop, routes};
use crate::{
    Change, Hop, HopObject, Hops, InterfaceAddress, NextHop, NoRoute, Origin, Prefix, Query, Route,
    RouteError, RouteKind, RoutePosition, Routes, SCOPE_HOST, SCOPE_LINK, TABLE_LOCAL, TABLE_MAIN,
};
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;

fn at(address: &str) -> InterfaceAddress {
    let (address, len) = address.split_once('/').unwrap();
    InterfaceAddress::new(ip(address), len.parse().unwrap())
}

/// `NETWORK DEVICE [GATEWAY]` in the main table.
fn route(text: &str) -> Route {
    let mut words = text.split(' ');
    let network = prefix(words.next().unwrap());
    Route::new(network, Hops::one(words.next().unwrap(), words.next().map(ip)))
}

fn local(text: &str) -> Route {
    Route { table: TABLE_LOCAL, kind: RouteKind::Local, ..route(text) }
}

fn sample() -> Routes {
    let mut all = Routes::new();
    all.set_addresses("br0", 3, &[at("1.1.2.88/24"), at("2001:cafe::88/64")]);
    all.set_addresses("eth0", 2, &[at("192.0.2.2/24"), at("fe80::1/64")]);
    all.set_addresses("lo", 1, &[at("127.0.0.1/8")]);
    for cached in ["0.0.0.0/0 eth0 192.0.2.1", "192.0.2.0/24 eth0", "::/0 eth0 fe80::9", "10.0.0.0/8 eth0"] {
        all.add_cached(&route(cached), RoutePosition::Last).unwrap();
    }
    all.add_cached(&Route { source: Some(ip("127.0.0.1")), ..local("127.0.0.0/8 lo") }, RoutePosition::Last)
        .unwrap();
    all.add_cached(&local("192.0.2.2/32 eth0"), RoutePosition::Last).unwrap();
    let user = route("1.1.2.0/24 br0");
    all.add_user(&user, ip("1.1.2.92")).unwrap();
    all
}

fn query(dst: &str) -> Query {
    Query { mark: 0, dst: ip(dst), src: None }
}

#[test]
fn a_lookup_yields_device_gateway_and_source() {
    let all = sample();
    for (dst, mark, src, expected) in [
        ("1.1.2.92", 0, "", Some("src 1.1.2.88\ngateway ::\ndev br0\n")),
        ("::ffff:1.1.2.92", 0, "", Some("src 1.1.2.88\ngateway ::\ndev br0\n")),
        ("1.1.2.92", 7, "", None),
        ("8.8.8.8", 0, "", Some("src 192.0.2.2\ngateway 192.0.2.1\ndev eth0\n")),
        ("127.5.0.1", 0, "", Some("src 127.0.0.1\ngateway ::\ndev lo\n")),
        // As in Linux, without a source address in this network.
        ("10.1.1.1", 0, "", Some("src 192.0.2.2\ngateway ::\ndev eth0\n")),
        ("2001:db8::1", 0, "", Some("src 2001:cafe::88\ngateway fe80::9\ndev eth0\n")),
        ("8.8.8.8", 0, "192.0.2.2", Some("src 192.0.2.2\ngateway 192.0.2.1\ndev eth0\n")),
        // Not an address of this machine.
        ("8.8.8.8", 0, "192.0.2.3", None),
        ("8.8.8.8", 0, "1.1.2.88", None),
    ] {
        let src = (!src.is_empty()).then(|| ip(src));
        let found = all.lookup(&Query { mark, dst: ip(dst), src });
        assert_eq!(found.as_ref().ok().map(hop).as_deref(), expected, "{dst} mark {mark} src {src:?}");
    }
}

#[test]
fn a_list_of_routes_has_the_layout_of_the_stock_switch() {
    let mut all = sample();
    all.add_user(&Route { mark: 16, ..route("9.9.9.0/24 br0 1.1.2.1") }, ip("9.9.9.0")).unwrap();
    let dummy = Route { source: Some(ip("1.1.2.88")), ..local("1.1.2.0/24 br0") };
    all.add_cached(&dummy, RoutePosition::Instead).unwrap();
    let expected = "Route Table:\n\
        Cached: 1.1.2.0/24 dev br0 SRC 1.1.2.88 local\n\
        Cached: 127.0.0.0/8 dev lo SRC 127.0.0.1 local\n\
        Cached: 192.0.2.2/32 dev eth0 SRC 192.0.2.2 local\n\
        Cached: 0.0.0.0/0 dev eth0 GW 192.0.2.1 SRC 192.0.2.2\n\
        User: 1.1.2.0/24 dev br0 SRC 1.1.2.88\n\
        Cached: 10.0.0.0/8 dev eth0 SRC 192.0.2.2\n\
        Cached: 192.0.2.0/24 dev eth0 SRC 192.0.2.2\n\
        Cached: ::/0 dev eth0 GW fe80::9 SRC 2001:cafe::88\n\
        User: 9.9.9.0/24 MARK 16 dev br0 GW 1.1.2.1 SRC 1.1.2.88\n";
    assert_eq!(routes(&all, Shown::Standard).as_deref(), Some(expected));
    assert_eq!(routes(&all, Shown::Table(77)), None);
    let seventy = Route { table: 77, ..route("192.0.2.0/25 eth0") };
    all.add_cached(&seventy, RoutePosition::Last).unwrap();
    let line = "Cached: 192.0.2.0/25 dev eth0 SRC 192.0.2.2";
    assert_eq!(routes(&all, Shown::Table(77)), Some(format!("Route Table #77:\n{line}\n")));
    assert!(routes(&all, Shown::All).unwrap().starts_with(&format!("{line} table 77\n")));
}

#[test]
fn a_source_address_is_in_the_network_of_destination_or_gateway() {
    let mut all = Routes::new();
    all.set_addresses("br0", 3, &[at("1.1.2.88/24"), at("1.1.2.89/24"), at("1.1.0.1/16")]);
    for (text, source, destination, expected) in [
        ("1.1.2.0/24 br0", "", "1.1.2.92", Ok("1.1.2.88")),
        ("1.1.0.0/16 br0", "", "1.1.9.9", Ok("1.1.0.1")),
        ("9.9.9.0/24 br0 1.1.2.1", "", "9.9.9.0", Ok("1.1.2.88")),
        ("9.9.9.0/24 br0 1.1.2.1", "1.1.2.89", "9.9.9.0", Ok("1.1.2.89")),
        ("9.9.9.0/24 br0 1.1.2.1", "1.1.2.99", "9.9.9.0", Err(RouteError::NoSource)),
        ("9.9.9.0/24 br0", "1.1.2.89", "9.9.9.0", Err(RouteError::NoSource)),
        ("9.9.8.0/24 br0 9.9.9.1", "", "9.9.8.0", Err(RouteError::NoSource)),
        ("1.1.2.0/24 nope", "", "1.1.2.1", Err(RouteError::NoSource)),
        ("2001:db8::/32 br0", "", "2001:db8::", Err(RouteError::NoSource)),
    ] {
        let source = (!source.is_empty()).then(|| ip(source));
        let wanted = Route { source, ..route(text) };
        let made = all.add_user(&wanted, ip(destination));
        let host = wanted.prefix.address();
        let hop = made.map(|_| all.lookup(&Query { mark: 0, dst: host, src: None }).unwrap().source);
        assert_eq!(hop, expected.map(ip), "{text} {source:?}");
        all.remove_user(TABLE_MAIN, 0, wanted.prefix);
    }
    assert!(all.is_empty());
}

#[test]
fn routes_by_command_keep_their_source_and_others_follow_the_device() {
    let mut all = Routes::new();
    all.set_addresses("br0", 3, &[at("1.1.2.88/24")]);
    all.add_user(&route("1.1.2.0/24 br0"), ip("1.1.2.0")).unwrap();
    all.add_cached(&route("1.1.2.128/25 br0"), RoutePosition::Last).unwrap();
    let before = all.clone();
    assert_eq!(all.set_addresses("br0", 3, &[]), Some(Change::Everything));
    assert_eq!(all.set_addresses("br0", 3, &[]), None);
    assert_eq!(all.lookup(&query("1.1.2.200")).unwrap().source, ip("1.1.2.88"), "the shorter one by command");
    assert_eq!(routes(&all, Shown::Standard).unwrap().lines().count(), 2);
    assert_eq!(routes(&before, Shown::Standard).unwrap().lines().count(), 3, "a snapshot");
    let mut new = Routes::new();
    new.adopt_user_routes(&all);
    assert_eq!(routes(&new, Shown::Standard), routes(&all, Shown::Standard));
    assert_eq!(
        new.remove_user(TABLE_MAIN, 0, prefix("1.1.2.0/24")),
        Some(Change::Prefix(prefix("1.1.2.0/24")))
    );
    assert_eq!(new.remove_user(TABLE_MAIN, 0, prefix("1.1.2.0/24")), None);
    assert_eq!(new.routed_devices().count(), 0);
}

#[test]
fn of_routes_of_one_network_the_lowest_metric_applies() {
    let mut all = Routes::new();
    all.set_addresses("br0", 3, &[at("1.1.2.88/24")]);
    let with = |gateway: &str, metric| Route { metric, ..route(&format!("10.0.0.0/8 br0 {gateway}")) };
    let gateway = |all: &Routes| all.lookup(&query("10.1.1.1")).ok().and_then(|hop| hop.gateway);
    for (place, route, expected) in [
        (RoutePosition::Last, with("1.1.2.1", 100), "1.1.2.1"),
        (RoutePosition::Last, with("1.1.2.2", 50), "1.1.2.2"),
        (RoutePosition::Last, with("1.1.2.3", 50), "1.1.2.2"),
        (RoutePosition::First, with("1.1.2.4", 50), "1.1.2.4"),
        (RoutePosition::Instead, with("1.1.2.5", 50), "1.1.2.5"),
    ] {
        all.add_cached(&route, place).unwrap();
        assert_eq!(gateway(&all), Some(ip(expected)), "{route:?} {place:?}");
    }
    assert_eq!(all.len(), 4);
    assert_eq!(all.remove_cached(&with("1.1.2.4", 50)), None);
    for n in ["1.1.2.5", "1.1.2.2", "1.1.2.3"] {
        assert_eq!(gateway(&all), Some(ip(n)));
        assert!(all.remove_cached(&with(n, 50)).is_some());
    }
    assert_eq!(gateway(&all), Some(ip("1.1.2.1")));
    assert!(all.remove_cached(&with("1.1.2.1", 100)).is_some());
    assert_eq!((gateway(&all), all.len()), (None, 0));
}

fn hop_by(device: &str, gateway: &str, is_dead: bool) -> NextHop {
    let gateway = (!gateway.is_empty()).then(|| ip(gateway));
    NextHop { device: device.into(), gateway, is_dead }
}

#[test]
fn a_source_address_of_a_route_of_the_kernel_is_that_of_linux() {
    let mut all = Routes::new();
    let scoped = |text: &str, scope| InterfaceAddress { scope, ..at(text) };
    let second = InterfaceAddress { is_unused: true, ..at("1.1.2.7/24") };
    all.set_addresses(
        "lo",
        1,
        &[scoped("127.0.0.1/8", SCOPE_HOST), at("9.9.9.9/32"), at("2001:aaaa::1/128")],
    );
    let br0 = [scoped("1.1.9.1/24", SCOPE_LINK), at("1.1.2.88/24"), second, at("1.1.3.88/24")];
    all.set_addresses("br0", 2, &br0);
    let old = InterfaceAddress { is_deprecated: true, ..at("2001:cafe::1/64") };
    all.set_addresses("br1", 3, &[at("fe80::1/64"), old]);
    all.set_addresses("br2", 4, &[at("fe80::2/64"), at("2001:cafe::2/64"), at("2001:db8::2/64")]);
    for (text, scope, dst, expected) in [
        ("10.0.0.0/8 br0 1.1.3.1", 0, "10.0.0.1", "1.1.3.88"),
        ("10.0.0.0/8 br0 1.1.2.1", 0, "10.0.0.1", "1.1.2.88"),
        // On link, and with a gateway out of all networks (`onlink`).
        ("10.0.0.0/8 br0", SCOPE_LINK, "10.0.0.1", "1.1.9.1"),
        ("10.0.0.0/8 br0 7.7.7.7", 0, "10.0.0.1", "1.1.2.88"),
        ("10.0.0.0/8 br0 2001:cafe::9", 0, "10.0.0.1", "1.1.2.88"),
        // The source of loopback.
        ("10.0.0.0/8 br1 2001:cafe::9", 0, "10.0.0.1", "9.9.9.9"),
        ("10.0.0.0/8 none 7.7.7.7", 0, "10.0.0.1", "9.9.9.9"),
        ("2001:db8::/32 br1 fe80::9", 0, "2001:db8::9", "2001:db8::2"),
        ("2001:db8::/32 br2 fe80::9", 0, "2001:db8::9", "2001:db8::2"),
        ("3fff::/16 br2 fe80::9", 0, "3fff::1", "2001:cafe::2"),
        ("fe80::/64 br1", 0, "fe80::77", "fe80::1"),
    ] {
        let added = Route { scope, ..route(text) };
        all.add_cached(&added, RoutePosition::Last).unwrap();
        assert_eq!(all.lookup(&query(dst)).unwrap().source, ip(expected), "{text}");
        all.remove_cached(&added).unwrap();
    }
    let via6 = route("10.0.0.0/8 br1 fe80::9");
    all.add_cached(&via6, RoutePosition::Last).unwrap();
    let found = all.lookup(&query("10.0.0.1")).unwrap();
    assert_eq!((found.source, found.asks_from), (ip("9.9.9.9"), ip("fe80::1")));
}

#[test]
fn of_several_next_hops_the_first_in_use_applies() {
    let mut all = Routes::new();
    all.set_addresses("br0", 1, &[at("1.1.2.88/24"), at("2001:cafe::88/64")]);
    let many = |network: &str, hops: &[NextHop]| Route::new(prefix(network), Hops::of(hops.to_vec()));
    let (a, b) = (hop_by("br0", "1.1.2.1", false), hop_by("br0", "1.1.2.2", false));
    let dead = |hop: &NextHop| NextHop { is_dead: true, ..hop.clone() };
    let gateway = |all: &Routes, dst: &str| all.lookup(&query(dst)).ok().and_then(|hop| hop.gateway);
    let dst = "10.0.0.1";
    for (hops, expected) in [
        ([a.clone(), b.clone()], Some("1.1.2.1")),
        ([dead(&a), b.clone()], Some("1.1.2.2")),
        ([dead(&a), dead(&b)], None),
    ] {
        all.add_cached(&many("10.0.0.0/8", &hops), RoutePosition::Instead).unwrap();
        assert_eq!(gateway(&all, dst), expected.map(ip), "{hops:?}");
    }
    let (_, left_out) = all.explain(&query(dst));
    let line = "left out: 10.0.0.0/8 of table 254: no link of a next hop is up\n";
    assert_eq!(crate::text::left_out(&left_out), line);
    // A removal need not know the state of links.
    assert!(all.remove_cached(&many("10.0.0.0/8", &[a.clone(), b.clone()])).is_some());
    // The kernel reports each addition to one of IPv6 as the whole, and each removal alone.
    let (c, d) = (hop_by("br0", "2001:cafe::1", false), hop_by("br0", "2001:cafe::2", false));
    let network = "2001:db8::/32";
    all.add_cached(&many(network, std::slice::from_ref(&c)), RoutePosition::Last).unwrap();
    all.add_cached(&many(network, &[c.clone(), d.clone()]), RoutePosition::Last).unwrap();
    assert_eq!((all.len(), gateway(&all, "2001:db8::1")), (1, c.gateway));
    assert!(all.remove_cached(&many(network, &[c])).is_some());
    assert_eq!((all.len(), gateway(&all, "2001:db8::1")), (1, d.gateway));
    assert!(all.remove_cached(&many(network, &[d])).is_some());
    assert!(all.is_empty() && all.routed_devices().next().is_none());
}

#[test]
fn next_hop_objects_are_followed_by_their_routes() {
    let mut all = Routes::new();
    all.set_addresses("br0", 1, &[at("1.1.2.88/24")]);
    all.add_cached(&Route::new(prefix("10.0.0.0/8"), Hops::Object(3)), RoutePosition::Last).unwrap();
    let hop = |gateway: &str| Some(HopObject::Hop(hop_by("br0", gateway, false)));
    for (id, object, expected) in [
        (1, None, "missing"),
        (1, hop("1.1.2.1"), "missing"),
        (3, Some(HopObject::Group([1, 2].into())), "1.1.2.1"),
        (1, hop("1.1.2.9"), "1.1.2.9"),
        (2, hop("1.1.2.2"), "1.1.2.9"),
        (1, None, "1.1.2.2"),
        (3, Some(HopObject::Blackhole), "blackhole"),
        (3, None, "missing"),
    ] {
        all.set_object(id, object.clone());
        let found = match all.lookup(&query("10.1.1.1")) {
            Ok(hop) => hop.gateway.unwrap().to_string(),
            Err(NoRoute::Route { .. }) => "blackhole".to_string(),
            Err(_) => "missing".to_string(),
        };
        assert_eq!(found, expected, "{id} {object:?}");
    }
}

/// A change of random routes.
#[derive(Clone, Debug)]
enum Step {
    Add(Route, RoutePosition),
    AddUser(Route),
    Remove(Route),
    RemoveUser(Route),
    Addresses(usize, Vec<InterfaceAddress>),
    Snapshot,
}

const DEVICES: [&str; 3] = ["br0", "br1", "lo"];

/// Few networks, nested.
fn networks() -> impl Strategy<Value = Prefix> {
    let ipv4 = (0..4_u8, 0..4_u8, prop::sample::select(vec![0_u8, 8, 15, 16, 17, 24, 31, 32]));
    let ipv4 = ipv4.prop_map(|(a, b, len)| Prefix::new(IpAddr::from([10, a * 85, b, b]), len).unwrap());
    let ipv6 = (0..3_u16, 0..3_u16, prop::sample::select(vec![0_u8, 16, 17, 64, 127, 128]));
    let ipv6 = ipv6
        .prop_map(|(a, b, len)| Prefix::new(IpAddr::from([0x2001, a << 15, 0, 0, 0, 0, 0, b]), len).unwrap());
    prop_oneof![ipv4, ipv6]
}

fn a_route() -> impl Strategy<Value = Route> {
    let gateway = prop::option::of(networks().prop_map(|p| p.address()));
    let table = prop::sample::select(vec![TABLE_MAIN, TABLE_LOCAL, 253, 7]);
    let kind = prop::sample::select(vec![
        RouteKind::Unicast,
        RouteKind::Unicast,
        RouteKind::Local,
        RouteKind::Blackhole,
        RouteKind::Throw,
    ]);
    (table, 0..2_u32, networks(), kind, 0..3_usize, gateway, 0..2_u32).prop_map(
        |(table, mark, prefix, kind, device, gateway, metric)| {
            let gateway = gateway.filter(|g| g.is_ipv4() == prefix.address().is_ipv4());
            let hops = match kind {
                RouteKind::Unicast | RouteKind::Local => Hops::one(DEVICES[device], gateway),
                _ => Hops::None,
            };
            Route { table, mark, kind, metric, ..Route::new(prefix, hops) }
        },
    )
}

fn a_step() -> impl Strategy<Value = Step> {
    let place = prop::sample::select(vec![RoutePosition::First, RoutePosition::Last, RoutePosition::Instead]);
    let address = networks().prop_map(|p| InterfaceAddress::new(p.address(), p.len().min(24)));
    prop_oneof![
        6 => (a_route(), place).prop_map(|(route, place)| Step::Add(route, place)),
        3 => a_route().prop_map(Step::AddUser),
        2 => a_route().prop_map(Step::Remove),
        2 => a_route().prop_map(Step::RemoveUser),
        2 => (0..3_usize, prop::collection::vec(address, 0..3)).prop_map(|(d, a)| Step::Addresses(d, a)),
        1 => Just(Step::Snapshot),
    ]
}

/// The oracle: a list of routes in order of preference among equals, searched from end to end.
#[derive(Clone, Default)]
struct List {
    routes: Vec<Route>,
    addresses: BTreeMap<String, Vec<InterfaceAddress>>,
}

fn advantage(r: &Route) -> u8 {
    if r.origin == Origin::User { 32 } else { 0 }
}

fn alike(a: &Route, b: &Route) -> bool {
    (a.table, a.mark, a.prefix, a.metric, advantage(a)) == (b.table, b.mark, b.prefix, b.metric, advantage(b))
}

impl List {
    /// The source of a route by command.
    fn source(&self, r: &Route, dst: IpAddr) -> Option<IpAddr> {
        let hop = r.hops.own().first()?;
        let addresses = self.addresses.get(&*hop.device)?;
        let near = |to: IpAddr| {
            let mut best: Option<InterfaceAddress> = None;
            for a in addresses {
                let covers = Prefix::new(a.address, a.len).unwrap().contains(to);
                if covers && best.is_none_or(|b| a.len > b.len) {
                    best = Some(*a);
                }
            }
            best.map(|b| b.address)
        };
        near(dst).or_else(|| near(hop.gateway?))
    }

    fn add(&mut self, route: Route, place: RoutePosition) {
        if place == RoutePosition::Instead
            && let Some(first) = self.routes.iter().position(|r| alike(r, &route))
        {
            self.routes.remove(first);
        }
        self.routes.retain(|r| *r != route);
        match place {
            RoutePosition::First | RoutePosition::Instead => self.routes.insert(0, route),
            RoutePosition::Last => self.routes.push(route),
        }
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Add(route, place) => self.add(route.clone(), *place),
            Step::AddUser(route) => {
                let mut route =
                    Route { origin: Origin::User, kind: RouteKind::Unicast, metric: 0, ..route.clone() };
                route.source = self.source(&route, route.prefix.address());
                if route.source.is_some() {
                    self.add(route, RoutePosition::Instead);
                }
            }
            Step::Remove(route) => self.routes.retain(|r| r != route),
            Step::RemoveUser(route) => self.routes.retain(|r| {
                let same = (r.table, r.mark, r.prefix) == (route.table, route.mark, route.prefix);
                !(same && r.origin == Origin::User)
            }),
            Step::Addresses(device, addresses) => {
                self.addresses.insert(DEVICES[*device].to_string(), addresses.clone());
            }
            Step::Snapshot => {}
        }
    }

    /// Whether the route's packets have a next hop, and which; `None`: the next table applies.
    fn in_table(&self, table: u32, query: &Query) -> Option<Option<NextHop>> {
        let covers = |r: &&Route| r.table == table && r.mark == query.mark && r.prefix.contains(query.dst);
        let all = self.routes.iter().enumerate().filter(|(_, r)| covers(r));
        let (_, r) = all.max_by_key(|(n, r)| {
            (r.prefix.len() + advantage(r), r.prefix.len(), Reverse(r.metric), Reverse(*n))
        })?;
        match r.kind {
            RouteKind::Throw => None,
            _ => Some(r.hops.own().first().cloned()),
        }
    }

    /// Device and gateway; sources have tests of their own.
    fn lookup(&self, query: &Query) -> Option<NextHop> {
        let tables = [TABLE_LOCAL, TABLE_MAIN].into_iter().chain(query.dst.is_ipv4().then_some(253));
        tables.into_iter().find_map(|table| self.in_table(table, query)).flatten()
    }
}

/// The next hop by the tables; a lookup that lacks a source address found its route.
fn next_hop(all: &Routes, query: &Query) -> Option<NextHop> {
    let found = |hop: Hop| NextHop { device: hop.device, gateway: hop.gateway, is_dead: false };
    match all.lookup(query) {
        Ok(hop) => Some(found(hop)),
        Err(NoRoute::NoSource { .. }) => {
            let mut all = all.clone();
            let any = ["10.255.0.1/32", "2001:ffff::1/128"].map(at);
            for (n, name) in DEVICES.iter().enumerate() {
                let _ = all.set_addresses(name, n as u32, &any);
            }
            all.lookup(query).ok().map(found)
        }
        Err(_) => None,
    }
}

fn apply(all: &mut Routes, step: &Step) -> Vec<Change> {
    match step {
        Step::Add(route, place) => all.add_cached(route, *place).ok().into_iter().collect(),
        Step::AddUser(route) => all.add_user(route, route.prefix.address()).ok().into_iter().collect(),
        Step::Remove(route) => all.remove_cached(route).into_iter().collect(),
        Step::RemoveUser(r) => all.remove_user(r.table, r.mark, r.prefix).into_iter().collect(),
        Step::Addresses(device, addresses) => {
            all.set_addresses(DEVICES[*device], *device as u32, addresses).into_iter().collect()
        }
        Step::Snapshot => Vec::new(),
    }
}

proptest! {
    /// Lookups equal those in a list, snapshots stay as they were, and each lookup with a new result is reported.
    #[test]
    fn random_changes_equal_a_list(
        steps in prop::collection::vec(a_step(), 1..60),
        queries in prop::collection::vec((0..2_u32, networks()), 1..12),
    ) {
        let queries: Vec<Query> = queries
            .into_iter()
            .map(|(mark, dst)| Query { mark, dst: dst.address(), src: None })
            .collect();
        let (mut all, mut list) = (Routes::new(), List::default());
        let mut snapshots: Vec<(Routes, List)> = Vec::new();
        for step in &steps {
            let before: Vec<_> = queries.iter().map(|q| all.lookup(q)).collect();
            let changes = apply(&mut all, step);
            list.apply(step);
            for (query, before) in queries.iter().zip(before) {
                let after = all.lookup(query);
                prop_assert_eq!(next_hop(&all, query), list.lookup(query), "{:?} after {:?}", query, step);
                let reported = changes.iter().any(|c| c.may_affect(query));
                prop_assert!(reported || after == before, "{:?} changes {:?}, unreported", step, query);
            }
            if matches!(step, Step::Snapshot) {
                snapshots.push((all.clone(), list.clone()));
            }
        }
        prop_assert_eq!(all.len(), list.routes.len());
        for (all, list) in &snapshots {
            for query in &queries {
                prop_assert_eq!(next_hop(all, query), list.lookup(query));
            }
        }
        let hops = list.routes.iter().flat_map(|r| r.hops.own());
        let mut devices: Vec<_> = hops.map(|hop| hop.device.clone()).collect();
        devices.sort();
        devices.dedup();
        prop_assert_eq!(all.routed_devices().map(|(name, _)| name.clone()).collect::<Vec<_>>(), devices);
        let mut adopted = Routes::new();
        adopted.adopt_user_routes(&all);
        let users = list.routes.iter().filter(|r| r.origin == Origin::User).count();
        prop_assert_eq!(adopted.len(), users);
        for route in &list.routes {
            match route.origin {
                Origin::User => all.remove_user(route.table, route.mark, route.prefix),
                Origin::Cached => all.remove_cached(route),
            };
        }
        prop_assert!(all.is_empty() && all.tables().is_empty() && all.routed_devices().next().is_none());
    }
}
