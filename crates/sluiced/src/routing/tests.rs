//! Events of the kernel as changes of routes, and the owner of the tables with dummies.

use super::mirror::{ADDRESSES_MAX, Effects, Mirror, RULES_MAX};
use super::*;
use dpif::DummyPort;
use netdev::link::LinkInfo;
use netdev::route::{
    KernelAction, KernelAddress, KernelHop, KernelObject, KernelRoute, KernelRule, RouteChange, RouteType,
};
use routing::text::{Shown, listeners, routes};
use routing::{Carrier, Families, Query};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn link(ifindex: u32, name: &str) -> RouteEvent {
    let mac = Some([2, 0, 0, 0, 0, ifindex as u8]);
    RouteEvent::Link(LinkInfo {
        ifindex,
        name: name.to_string(),
        mac,
        admin_up: true,
        lower_up: true,
        ..LinkInfo::default()
    })
}

fn down(ifindex: u32, name: &str) -> RouteEvent {
    RouteEvent::Link(LinkInfo { ifindex, name: name.to_string(), ..LinkInfo::default() })
}

fn address(ifindex: u32, text: &str, is_removed: bool) -> RouteEvent {
    let (address, len) = text.split_once('/').unwrap();
    RouteEvent::Address { address: kernel_address(ifindex, ip(address), len.parse().unwrap()), is_removed }
}

fn kernel_address(ifindex: u32, address: IpAddr, len: u8) -> KernelAddress {
    KernelAddress { ifindex, address, len, scope: 0, is_unused: false, is_deprecated: false }
}

fn route(table: u32, text: &str, ifindex: u32, gateway: &str) -> KernelRoute {
    let (dst, len) = text.split_once('/').unwrap();
    let gateway = (!gateway.is_empty()).then(|| ip(gateway));
    KernelRoute {
        table,
        kind: if table == TABLE_LOCAL { RouteType::Local } else { RouteType::Unicast },
        dst: ip(dst),
        len: len.parse().unwrap(),
        hops: vec![KernelHop { ifindex, gateway, is_dead: false }],
        object: None,
        source: None,
        mark: 0,
        metric: 0,
        scope: 0,
    }
}

fn added(route: KernelRoute) -> RouteEvent {
    RouteEvent::Route { route, change: RouteChange::Prepended }
}

fn removed(route: KernelRoute) -> RouteEvent {
    RouteEvent::Route { route, change: RouteChange::Removed }
}

fn rule(priority: u32, table: u32) -> RouteEvent {
    let rule = KernelRule {
        priority,
        is_ipv4: true,
        from: None,
        to: None,
        mark: (0, 0),
        is_foreign: false,
        invert: false,
        action: KernelAction::Table { table, suppress_len: None },
    };
    RouteEvent::Rule { rule, is_removed: false }
}

#[test]
fn single_changes_are_carried_out_and_others_lead_to_a_dump() {
    let (mut mirror, mut routes) = (Mirror::default(), Routes::new());
    let mut several = route(254, "10.7.0.0/16", 3, "1.1.2.1");
    several.hops.extend(route(254, "10.7.0.0/16", 3, "1.1.2.2").hops);
    // Event, changes of routes, devices, and whether everything is read again.
    for (what, event, changes, devices, is_stale) in [
        ("a link", link(3, "br0"), 0, 1, false),
        ("no change", link(3, "br0"), 0, 0, false),
        ("an address", address(3, "1.1.2.88/24", false), 0, 1, false),
        ("the same", address(3, "1.1.2.88/24", false), 0, 0, false),
        ("a route", added(route(254, "1.1.2.0/24", 3, "")), 1, 0, false),
        ("of no link", added(route(254, "1.1.3.0/24", 9, "")), 0, 0, false),
        ("of an unused table", added(route(1000, "1.1.3.0/24", 3, "")), 0, 0, false),
        ("with several hops", added(several.clone()), 1, 0, false),
        ("its removal", removed(several), 1, 0, false),
        ("a removal", removed(route(254, "1.1.2.0/24", 3, "")), 1, 0, false),
        ("an unknown removal", removed(route(254, "1.1.2.0/24", 3, "")), 0, 0, true),
        ("a rule", rule(10, 1000), 0, 0, true),
        ("of its table", added(route(1000, "1.1.3.0/24", 3, "")), 1, 0, false),
        ("an object", RouteEvent::Object { id: 1, object: Some(KernelObject::Blackhole) }, 1, 0, false),
        ("an object less", RouteEvent::Object { id: 1, object: None }, 1, 0, true),
        ("an address less", address(3, "1.1.2.88/24", true), 0, 1, true),
        ("a link that goes down", down(3, "br0"), 0, 1, true),
        ("another name", down(3, "br1"), 0, 2, true),
        ("a link less", RouteEvent::LinkGone { ifindex: 3 }, 0, 1, true),
    ] {
        let mut effects = Effects::default();
        mirror.apply(event, &mut routes, &mut effects);
        let found = (effects.changes.len(), effects.devices.len(), effects.is_stale);
        assert_eq!(found, (changes, devices, is_stale), "{what}");
    }
    assert!(mirror.device("br0").is_none() && mirror.names().next().is_none());
}

#[test]
fn rules_and_addresses_are_bounded() {
    let (mut mirror, mut routes, mut effects) = (Mirror::default(), Routes::new(), Effects::default());
    mirror.apply(link(3, "br0"), &mut routes, &mut effects);
    for n in 0..ADDRESSES_MAX as u32 + 2 {
        let address = IpAddr::from((0x0a00_0000 + n).to_be_bytes());
        let event = RouteEvent::Address { address: kernel_address(3, address, 8), is_removed: false };
        mirror.apply(event, &mut routes, &mut effects);
    }
    for n in 0..RULES_MAX as u32 + 3 {
        mirror.apply(rule(n, n + 1), &mut routes, &mut effects);
    }
    mirror.apply(RouteEvent::Complete, &mut routes, &mut effects);
    assert_eq!(mirror.refused, 5);
    assert_eq!(mirror.device("br0").unwrap().2.len(), ADDRESSES_MAX);
    assert!(routes.rules().len() <= RULES_MAX + routing::standard_rules().len());
}

fn dummy(name: &str, mac: u8) -> Dummy {
    let mac = Some([2, 0, 0, 0, 0, mac]);
    netdev::Port::open_dummy(name, &DummyPort::new("dummy"), mac, None).unwrap().1
}

#[test]
fn addresses_of_dummies_are_local_routes_and_listeners() {
    let mut reactor = Reactor::new().unwrap();
    let mut owner = Routing::start(false, &mut reactor).unwrap();
    let ports = DummyPorts::default();
    let br0 = dummy("br0", 7);
    ports.insert("br0", br0.clone(), netdev::dummy::Claim::Shared);
    let port = TunnelPort {
        name: "gre_sys".into(),
        number: flow::DpPort(4),
        carrier: Carrier::Gre(Families::Both),
        users: 1,
    };
    owner.set_tunnels(vec![port]);
    let _ = owner.run(&mut reactor, &ports);
    assert!(owner.take_update().others);
    let _ = owner.run(&mut reactor, &ports);
    let update = owner.take_update();
    assert!(update.routes.is_empty() && !update.others, "nothing has changed");
    br0.add_address(ip("1.1.2.88"), 24).unwrap();
    let _ = owner.run(&mut reactor, &ports);
    let user = Route::new(Prefix::new(ip("1.1.2.0"), 24).unwrap(), Hops::one("br0", None));
    owner.add_user_route(&user, ip("1.1.2.92")).unwrap();
    let update = owner.take_update();
    assert!(!update.routes.is_empty() && update.others);
    let (tables, _) = owner.state();
    // As of OVS 3.5.4.
    let expected = "Route Table:\n\
        Cached: 1.1.2.0/24 dev br0 SRC 1.1.2.88 local\n\
        User: 1.1.2.0/24 dev br0 SRC 1.1.2.88\n";
    assert_eq!(routes(&tables.routes, Shown::Standard).as_deref(), Some(expected));
    let listens =
        "gre_sys (4) : eth(dst=02:00:00:00:00:07),eth_type(0x0800),ipv4(dst=1.1.2.88,proto=47,frag=no)\n";
    assert_eq!(listeners(&tables.listeners, true), format!("Listening ports:\n{listens}"));
    let follow = |owner: &mut Routing, reactor: &mut Reactor| {
        let _ = owner.run(reactor, &ports);
        let _ = owner.take_update();
    };
    // Another address of the device, then another device of that name, then none.
    br0.set_mac([2; 6]);
    follow(&mut owner, &mut reactor);
    assert!(listeners(owner.listeners(), true).contains("02:02:02:02:02:02"));
    let other = dummy("br0", 8);
    ports.insert("br0", other.clone(), netdev::dummy::Claim::Shared);
    follow(&mut owner, &mut reactor);
    assert_eq!(listeners(owner.listeners(), true), "Listening ports:\n");
    let query = Query { mark: 0, dst: ip("1.1.2.92"), src: None };
    assert!(owner.routes().lookup(&query).is_ok_and(|hop| !hop.is_local), "the one by command stays");
    // The first one has the name no longer.
    ports.remove("br0", &br0);
    assert!(ports.get("br0").is_some());
    ports.remove("br0", &other);
    follow(&mut owner, &mut reactor);
    assert!(owner.remove_user_route(254, 0, user.prefix) && owner.routes().is_empty());
    assert_eq!(owner.listeners().devices().count(), 0);
}
