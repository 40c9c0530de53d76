//! Routes: priorities, source addresses, snapshots; random changes against a list.

use super::{ip, prefix};
use crate::text::{Shown, hop, routes};
use crate::{
    Change, Hop, InterfaceAddress, Origin, Place, Prefix, Query, Route, RouteError, Routes, TABLE_LOCAL,
    TABLE_MAIN,
};
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;

fn at(address: &str) -> InterfaceAddress {
    let (address, len) = address.split_once('/').unwrap();
    InterfaceAddress { address: ip(address), len: len.parse().unwrap() }
}

/// `NETWORK DEVICE [GATEWAY]` in the main table.
fn route(text: &str) -> Route {
    let mut words = text.split(' ');
    Route {
        table: TABLE_MAIN,
        mark: 0,
        prefix: prefix(words.next().unwrap()),
        origin: Origin::Cached,
        is_local: false,
        device: words.next().unwrap().into(),
        gateway: words.next().map(ip),
        source: None,
        metric: 0,
    }
}

fn local(text: &str) -> Route {
    Route { table: TABLE_LOCAL, is_local: true, ..route(text) }
}

fn sample() -> Routes {
    let mut all = Routes::new();
    all.set_addresses("br0", &[at("1.1.2.88/24"), at("2001:cafe::88/64")]);
    all.set_addresses("eth0", &[at("192.0.2.2/24"), at("fe80::1/64")]);
    all.set_addresses("lo", &[at("127.0.0.1/8")]);
    for cached in ["0.0.0.0/0 eth0 192.0.2.1", "192.0.2.0/24 eth0", "::/0 eth0 fe80::9", "10.0.0.0/8 eth0"] {
        all.add_cached(&route(cached), Place::Last).unwrap();
    }
    all.add_cached(&local("127.0.0.0/8 lo"), Place::Last).unwrap();
    all.add_cached(&local("192.0.2.2/32 eth0"), Place::Last).unwrap();
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
        // Without a source address in this network the shorter one applies.
        ("10.1.1.1", 0, "", Some("src 192.0.2.2\ngateway 192.0.2.1\ndev eth0\n")),
        ("2001:db8::1", 0, "", Some("src fe80::1\ngateway fe80::9\ndev eth0\n")),
        ("8.8.8.8", 0, "192.0.2.2", Some("src 192.0.2.2\ngateway 192.0.2.1\ndev eth0\n")),
        // Not an address of this machine.
        ("8.8.8.8", 0, "192.0.2.3", None),
        ("8.8.8.8", 0, "1.1.2.88", None),
    ] {
        let src = (!src.is_empty()).then(|| ip(src));
        let found = all.lookup(&Query { mark, dst: ip(dst), src });
        assert_eq!(found.as_ref().map(hop).as_deref(), expected, "{dst} mark {mark} src {src:?}");
    }
}

#[test]
fn a_list_of_routes_has_the_layout_of_the_stock_switch() {
    let mut all = sample();
    all.add_user(&Route { mark: 16, ..route("9.9.9.0/24 br0 1.1.2.1") }, ip("9.9.9.0")).unwrap();
    all.add_cached(&local("1.1.2.0/24 br0"), Place::Instead).unwrap();
    let expected = "Route Table:\n\
        Cached: 1.1.2.0/24 dev br0 SRC 1.1.2.88 local\n\
        Cached: 127.0.0.0/8 dev lo SRC 127.0.0.1 local\n\
        Cached: 192.0.2.2/32 dev eth0 SRC 192.0.2.2 local\n\
        Cached: 0.0.0.0/0 dev eth0 GW 192.0.2.1 SRC 192.0.2.2\n\
        User: 1.1.2.0/24 dev br0 SRC 1.1.2.88\n\
        Cached: 192.0.2.0/24 dev eth0 SRC 192.0.2.2\n\
        Cached: ::/0 dev eth0 GW fe80::9 SRC fe80::1\n\
        User: 9.9.9.0/24 MARK 16 dev br0 GW 1.1.2.1 SRC 1.1.2.88\n";
    assert_eq!(routes(&all, Shown::Standard).as_deref(), Some(expected));
    assert_eq!(routes(&all, Shown::Table(77)), None);
    let seventy = Route { table: 77, ..route("192.0.2.0/25 eth0") };
    all.add_cached(&seventy, Place::Last).unwrap();
    let line = "Cached: 192.0.2.0/25 dev eth0 SRC 192.0.2.2";
    assert_eq!(routes(&all, Shown::Table(77)), Some(format!("Route Table #77:\n{line}\n")));
    assert!(routes(&all, Shown::All).unwrap().starts_with(&format!("{line} table 77\n")));
}

#[test]
fn a_source_address_is_in_the_network_of_destination_or_gateway() {
    let mut all = Routes::new();
    all.set_addresses("br0", &[at("1.1.2.88/24"), at("1.1.2.89/24"), at("1.1.0.1/16")]);
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
    all.set_addresses("br0", &[at("1.1.2.88/24")]);
    all.add_user(&route("1.1.2.0/24 br0"), ip("1.1.2.0")).unwrap();
    all.add_cached(&route("1.1.2.128/25 br0"), Place::Last).unwrap();
    let before = all.clone();
    assert_eq!(all.set_addresses("br0", &[]), Some(Change::Everything));
    assert_eq!(all.set_addresses("br0", &[]), None);
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
    all.set_addresses("br0", &[at("1.1.2.88/24")]);
    let with = |gateway: &str, metric| Route { metric, ..route(&format!("10.0.0.0/8 br0 {gateway}")) };
    let gateway = |all: &Routes| all.lookup(&query("10.1.1.1")).and_then(|hop| hop.gateway);
    for (place, route, expected) in [
        (Place::Last, with("1.1.2.1", 100), "1.1.2.1"),
        (Place::Last, with("1.1.2.2", 50), "1.1.2.2"),
        (Place::Last, with("1.1.2.3", 50), "1.1.2.2"),
        (Place::First, with("1.1.2.4", 50), "1.1.2.4"),
        (Place::Instead, with("1.1.2.5", 50), "1.1.2.5"),
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

/// A change of random routes.
#[derive(Clone, Debug)]
enum Step {
    Add(Route, Place),
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
    (table, 0..2_u32, networks(), any::<bool>(), 0..3_usize, gateway, 0..2_u32).prop_map(
        |(table, mark, prefix, is_local, device, gateway, metric)| Route {
            table,
            mark,
            prefix,
            origin: Origin::Cached,
            is_local,
            device: DEVICES[device].into(),
            gateway: gateway.filter(|g| g.is_ipv4() == prefix.address().is_ipv4()),
            source: None,
            metric,
        },
    )
}

fn a_step() -> impl Strategy<Value = Step> {
    let place = prop::sample::select(vec![Place::First, Place::Last, Place::Instead]);
    let address = networks().prop_map(|p| InterfaceAddress { address: p.address(), len: p.len().min(24) });
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
    match (r.is_local, r.origin) {
        (true, _) => 64,
        (false, Origin::User) => 32,
        (false, Origin::Cached) => 0,
    }
}

fn alike(a: &Route, b: &Route) -> bool {
    (a.table, a.mark, a.prefix, a.metric, advantage(a)) == (b.table, b.mark, b.prefix, b.metric, advantage(b))
}

impl List {
    fn source(&self, r: &Route, dst: IpAddr) -> Option<IpAddr> {
        if r.origin == Origin::User && r.source.is_some() {
            return r.source;
        }
        let addresses = self.addresses.get(&*r.device)?;
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
        near(dst).or_else(|| near(r.gateway?))
    }

    fn add(&mut self, route: Route, place: Place) {
        if place == Place::Instead
            && let Some(first) = self.routes.iter().position(|r| alike(r, &route))
        {
            self.routes.remove(first);
        }
        self.routes.retain(|r| *r != route);
        match place {
            Place::First | Place::Instead => self.routes.insert(0, route),
            Place::Last => self.routes.push(route),
        }
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Add(route, place) => self.add(route.clone(), *place),
            Step::AddUser(route) => {
                let mut route = Route { origin: Origin::User, is_local: false, metric: 0, ..route.clone() };
                route.source = self.source(&route, route.prefix.address());
                if route.source.is_some() {
                    self.add(route, Place::Instead);
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

    fn in_table(&self, table: u32, query: &Query) -> Option<Hop> {
        let covers = |r: &&Route| r.table == table && r.mark == query.mark && r.prefix.contains(query.dst);
        let usable = self.routes.iter().enumerate().filter(|(_, r)| covers(r));
        let usable = usable.filter_map(|(n, r)| Some((n, r, self.source(r, r.prefix.address())?)));
        let (_, r, source) = usable.max_by_key(|(n, r, _)| {
            (r.prefix.len() + advantage(r), r.prefix.len(), Reverse(r.metric), Reverse(*n))
        })?;
        Some(Hop { device: r.device.clone(), gateway: r.gateway, source, is_local: r.is_local })
    }

    fn lookup(&self, query: &Query) -> Option<Hop> {
        if let Some(dst) = query.src {
            self.in_table(TABLE_LOCAL, &Query { dst, ..*query }).filter(|hop| hop.is_local)?;
        }
        let is_ipv4 = query.dst.is_ipv4();
        if query.src.is_some_and(|src| src.is_ipv4() != is_ipv4) {
            return None;
        }
        let tables = [TABLE_LOCAL, TABLE_MAIN].into_iter().chain(is_ipv4.then_some(253));
        let mut hop = tables.into_iter().find_map(|table| self.in_table(table, query))?;
        hop.source = query.src.unwrap_or(hop.source);
        Some(hop)
    }
}

fn apply(all: &mut Routes, step: &Step) -> Vec<Change> {
    match step {
        Step::Add(route, place) => all.add_cached(route, *place).ok().into_iter().collect(),
        Step::AddUser(route) => all.add_user(route, route.prefix.address()).ok().into_iter().collect(),
        Step::Remove(route) => all.remove_cached(route).into_iter().collect(),
        Step::RemoveUser(r) => all.remove_user(r.table, r.mark, r.prefix).into_iter().collect(),
        Step::Addresses(device, addresses) => {
            all.set_addresses(DEVICES[*device], addresses).into_iter().collect()
        }
        Step::Snapshot => Vec::new(),
    }
}

proptest! {
    /// Lookups equal those in a list, snapshots stay as they were, and each lookup with a new result is reported.
    #[test]
    fn random_changes_equal_a_list(
        steps in prop::collection::vec(a_step(), 1..60),
        queries in prop::collection::vec((0..2_u32, networks(), prop::option::weighted(0.3, networks())), 1..12),
    ) {
        let queries: Vec<Query> = queries
            .into_iter()
            .map(|(mark, dst, src)| Query { mark, dst: dst.address(), src: src.map(|s| s.address()) })
            .collect();
        let (mut all, mut list) = (Routes::new(), List::default());
        let mut snapshots: Vec<(Routes, List)> = Vec::new();
        for step in &steps {
            let before: Vec<_> = queries.iter().map(|q| all.lookup(q)).collect();
            let changes = apply(&mut all, step);
            list.apply(step);
            for (query, before) in queries.iter().zip(before) {
                let after = all.lookup(query);
                prop_assert_eq!(&after, &list.lookup(query), "{:?} after {:?}", query, step);
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
                prop_assert_eq!(all.lookup(query), list.lookup(query));
            }
        }
        let mut devices: Vec<_> = list.routes.iter().map(|r| r.device.clone()).collect();
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
