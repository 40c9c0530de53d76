//! Tunnels in user space. Expectations are those of `ofproto/trace` and `tnl/arp/show` of OVS 3.1, except where noted.

use super::stories::story;
use super::*;
use crate::native::NativeTunnels;
use crate::tunnel::{Endpoint, TUNNEL_TTL, TunnelConfig, TunnelKey, TunnelKind};
use dpif::XlateDrop;
use dpif::actions::{DropAction, format_actions};
use dpif::text::NumbersOnly;
use flow::FlowKey;
use routing::{
    Carrier, Families, Hops, InterfaceAddress, Listeners, ListeningDevice, Neighbours, Prefix, Route, Routes,
    TABLE_MAIN, TunnelPort,
};
use std::net::IpAddr;
use sync::{Mutex, lock};

pub(super) const OWN: &str = "aa:55:aa:55:00:00";
pub(super) const PEER: &str = "f8:bc:12:44:34:b6";
const PEER6: &str = "f8:bc:12:44:34:b7";

pub(super) fn ip(text: &str) -> IpAddr {
    text.parse().expect(text)
}

pub(super) fn mac(text: &str) -> MacAddr {
    MacAddr::parse(text).expect(text)
}

pub(super) fn config(kind: TunnelKind, remote: &str, key: TunnelKey) -> TunnelConfig {
    TunnelConfig {
        kind,
        remote: if remote == "flow" { Endpoint::Flow } else { Endpoint::Address(ip(remote)) },
        local: Endpoint::Any,
        in_key: key,
        out_key: key,
        tos: Some(0),
        ttl: Some(TUNNEL_TTL),
        dont_fragment: true,
        csum: false,
        seq: false,
        dst_port: kind.usual_port().unwrap_or(0),
        gbp: false,
        egress_pkt_mark: None,
        of_kind: Default::default(),
    }
}

pub(super) fn route(prefix: (&str, u8)) -> Route {
    Route::new(Prefix::new(ip(prefix.0), prefix.1).expect("a prefix"), Hops::one("b", None))
}

/// Tunnels on bridge `a`: 5 (VXLAN to 1.1.2.92), 6 (Geneve), 7 (GRE), 8 (VXLAN to an address without a route), 10 (VXLAN
/// to an unknown neighbour), 11 (VXLAN over IPv6), 12 (VXLAN by rules). Bridge `b` leads there: its own port is 100.
pub(super) struct Native {
    pub(super) rig: Rig,
    pub(super) state: NativeTunnels,
}

impl Native {
    fn new() -> Native {
        Native::with(&[])
    }

    /// A native rig with more tunnels: OpenFlow and datapath ports.
    pub(super) fn with(more: &[(u32, u32, TunnelConfig)]) -> Native {
        let rig = Rig::new();
        let key = TunnelKey::Value(123);
        let mut a = PortTable::clone(&rig.backer.view().bridge(rig.a).expect("made above").ports);
        let usual = [
            (5, 4789, config(TunnelKind::Vxlan, "1.1.2.92", key)),
            (6, 6081, config(TunnelKind::Geneve, "1.1.2.92", TunnelKey::Flow)),
            (7, 13, config(TunnelKind::Gre, "1.1.2.92", TunnelKey::Value(456))),
            (8, 4789, config(TunnelKind::Vxlan, "9.9.9.9", key)),
            (10, 4789, config(TunnelKind::Vxlan, "1.1.2.77", key)),
            (11, 4789, config(TunnelKind::Vxlan, "2001:cafe::77", key)),
            (12, 4789, config(TunnelKind::Vxlan, "flow", TunnelKey::Flow)),
        ];
        for (n, dp_port, config) in usual.into_iter().chain(more.iter().cloned()) {
            add_port(&mut a, OfPort(n), Some(dp_port), None, Vlan::Trunk);
            let port = a.ports.get_mut(&OfPort(n)).expect("just added");
            Arc::make_mut(port).tunnel = Some(Arc::new(config));
        }
        rig.backer.set_ports(rig.a, a);
        let mut b = PortTable::clone(&rig.backer.view().bridge(rig.b).expect("made above").ports);
        b.ports.remove(&PATCH);
        b.bundles.remove(&BundleId(PATCH.0));
        add_port(&mut b, OfPort::LOCAL, Some(100), None, Vlan::Trunk);
        let local = Arc::make_mut(b.ports.get_mut(&OfPort::LOCAL).expect("just added"));
        (local.mac, local.name) = (mac(OWN), "b".to_string());
        rig.backer.set_ports(rig.b, b);

        let mut routes = Routes::new();
        let addresses = [(ip("1.1.2.88"), 24), (ip("2001:cafe::88"), 64)];
        let interfaces = addresses.map(|(address, len)| InterfaceAddress::new(address, len));
        routes.set_addresses("b", 1, &interfaces);
        for prefix in [("1.1.2.0", 24), ("2001:cafe::", 64)] {
            routes.add_user(&route(prefix), ip(prefix.0)).expect("a route");
        }
        let mut listeners = Listeners::new(7);
        let addresses = addresses.iter().map(|(address, _)| *address).collect();
        listeners.set_device("b", Some(ListeningDevice { mac: mac(OWN), addresses }));
        let tunnel = |name: &str, number, carrier| TunnelPort {
            name: name.into(),
            number: DpPort(number),
            carrier,
            users: 1,
        };
        listeners.set_tunnels(vec![
            tunnel("vxlan_sys_4789", 4789, Carrier::Udp(4789)),
            tunnel("genev_sys_6081", 6081, Carrier::Udp(6081)),
            tunnel("gre_sys", 13, Carrier::Gre(Families::Both)),
        ]);
        let mut neighbours = Neighbours::new();
        neighbours.set(1000, "b", ip("1.1.2.92"), mac(PEER));
        neighbours.set(1000, "b", ip("2001:cafe::92"), mac(PEER6));
        let state = NativeTunnels { routes, listeners, neighbours: Arc::new(Mutex::new(neighbours)) };
        rig.backer.set_native(state.clone(), None);
        let b = rig.b;
        Native { rig: rig.rules(b, "priority=1 actions=normal"), state }
    }

    pub(super) fn rules(self, lines: &str) -> Native {
        let a = self.rig.a;
        Native { rig: self.rig.rules(a, lines), ..self }
    }

    /// Actions and megaflow of a packet received on `a`.
    pub(super) fn check(&self, packet: &str, actions: &str, megaflow: &str) -> Translation {
        let flow = Rig::flow(packet);
        let t = self.rig.translate(&flow, true);
        let shown = (format_actions(&t.actions, &NumbersOnly), format_megaflow(&flow, &t.wc));
        assert_eq!((shown.0.as_str(), shown.1.as_str()), (actions, megaflow), "{packet}");
        t
    }

    /// Checks a packet on `b`, and the neighbours after it.
    pub(super) fn at_b(&self, packet: &str, actions: &str, megaflow: &str, known: &[&str]) {
        let (view, flow) = (self.rig.backer.view(), Rig::flow(packet));
        let request =
            Request { view: &view, bridge: self.rig.b, flow: &flow, start: Start::Tables, trace: false };
        let t = translate(&request, &mut self.rig.backer.xlate_host(true, 1000));
        t.cache.replay(&seen(1, 60, 1000), &mut self.rig.backer.effect_host());
        let shown = (format_actions(&t.actions, &NumbersOnly), format_megaflow(&flow, &t.wc));
        assert_eq!((shown.0.as_str(), shown.1.as_str()), (actions, megaflow), "{packet}");
        let all = lock(&self.state.neighbours).list(1000);
        let all: Vec<_> = all.iter().filter(|n| n.ip.is_ipv4()).collect();
        assert_eq!(all.iter().map(|n| n.ip.to_string()).collect::<Vec<_>>(), known, "{packet}");
    }
}

pub(super) const UDP: &str =
    "in_port=1,udp,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_tos=4,nw_ttl=64,udp_src=1000,udp_dst=2000";
/// Megaflow of packets whose rules match nothing but the port.
pub(super) const PLAIN: &str = "recirc_id=0,eth,ip,in_port=1,nw_ecn=0,nw_frag=no";
const VXLAN: &str = "tnl_push(tnl_port(4789),header(size=50,type=4,eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.92,proto=17,tos=0,ttl=64,frag=0x4000),udp(src=0,dst=4789,csum=0x0),vxlan(flags=0x8000000,vni=0x7b)),out_port(100))";
const GENEVE: &str = "tnl_push(tnl_port(6081),header(size=50,type=5,eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.92,proto=17,tos=0,ttl=64,frag=0x4000),udp(src=0,dst=6081,csum=0x0),geneve(vni=0x0)),out_port(100))";
const GRE: &str = "tnl_push(tnl_port(13),header(size=42,type=3,eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.92,proto=47,tos=0,ttl=64,frag=0x4000),gre((flags=0x2000,proto=0x6558),key=0x1c8)),out_port(100))";

#[test]
fn headers_are_pushed_on_a_clone_unless_nothing_follows() {
    for (actions, expected) in [
        ("5", format!("{VXLAN},11,12")),
        ("5,6,7,1", format!("clone({VXLAN},11,12),clone({GENEVE},11,12),{GRE},11,12")),
        ("5,2", format!("clone({VXLAN},11,12),2")),
        (
            "mod_dl_dst:02:00:00:00:00:09,5,2",
            format!("set(eth(dst=02:00:00:00:00:09)),clone({VXLAN},11,12),2"),
        ),
        // OVS executes the rest of the path by recirculation, and truncates a later output, too.
        ("output(port=5,max_len=100)", format!("trunc(100),{VXLAN},11,12")),
        ("output(port=5,max_len=100),2", format!("clone(trunc(100),{VXLAN},11,12),2")),
        ("8,2", "2".to_string()),
        ("10,2", "2".to_string()),
    ] {
        let eth =
            if actions.starts_with("mod_dl") { "in_port=1,dl_dst=00:00:00:00:00:00" } else { "in_port=1" };
        Native::new().rules(&format!("actions={actions}")).check(
            UDP,
            &expected,
            &PLAIN.replace("in_port=1", eth),
        );
    }
    // OVS examines the mark of congestion here, too.
    Native::new().rules("actions=12,2").check(UDP, "2", &PLAIN.replace("nw_ecn=0,", ""));
}

#[test]
fn rules_of_the_next_bridge_see_the_outer_headers_alone() {
    for (rules, expected) in [
        (
            "priority=9,in_port=LOCAL,actions=mod_nw_tos:32,mod_vlan_vid:9,1",
            "set(ipv4(tos=0x20/0xfc)),push_vlan(vid=9,pcp=0),11",
        ),
        (
            "priority=9,in_port=LOCAL,udp,nw_dst=1.1.2.92,tp_dst=4789,pkt_mark=0,actions=LOCAL,1,resubmit(,1)",
            "11",
        ),
        ("priority=9,udp,tp_dst=2000,actions=2\npriority=8,udp,tp_dst=4789,nw_ttl=64,actions=1", "11"),
    ] {
        let native = Native::new().rules("actions=5");
        let b = native.rig.b;
        let native = Native { rig: native.rig.rules(b, rules), ..native };
        // The mark of the packet is the only field that the outer one has of it. OVS does not examine it here.
        let megaflow = if rules.contains("pkt_mark") { format!("pkt_mark=0,{PLAIN}") } else { PLAIN.into() };
        native.check(UDP, &format!("{VXLAN},{expected}"), &megaflow);
        // A tag of the packet inside is not one of the outer packet.
        native.check(&format!("{UDP},dl_vlan=5"), &format!("{VXLAN},{expected}"), &megaflow);
    }
    let native = Native::new().rules("actions=5,2");
    let b = native.rig.b;
    let native = Native { rig: native.rig.rules(b, "priority=9,actions=drop"), ..native };
    native.check(UDP, "2", PLAIN);
}

#[test]
fn traces_tell_route_and_neighbour() {
    let native = Native::new().rules("actions=5,8,10,11,12");
    let told = [
        " 0. priority 32768",
        "    output:5",
        "     -> output to native tunnel",
        "     -> tunneling to 1.1.2.92 via b",
        "     -> tunneling from aa:55:aa:55:00:00 1.1.2.88 to f8:bc:12:44:34:b6 1.1.2.92",
        "",
        "    bridge(\"b\")",
        "    -----------",
        "         0. priority 1",
        "            NORMAL",
        "             -> no learned MAC for destination, flooding",
        "    output:8",
        "     -> output to native tunnel",
        "     >> native tunnel routing failed",
        "    output:10",
        "     -> output to native tunnel",
        "     -> tunneling to 1.1.2.77 via b",
        "     -> neighbor cache miss for 1.1.2.77 on bridge b, sending ARP request",
        "    output:11",
        "     -> output to native tunnel",
        "     -> tunneling to 2001:cafe::77 via b",
        "     -> neighbor cache miss for 2001:cafe::77 on bridge b, sending ND request",
        "    output:12",
        "     >> Not tunneling to our own address",
    ];
    assert_eq!(story(&native.rig, UDP, false), told);
}

/// OVS counts these drops as those by rules.
#[test]
fn a_missing_route_or_neighbour_is_the_reason_of_a_drop() {
    for (actions, reason) in [
        ("8", XlateDrop::TunnelNoRoute),
        ("10", XlateDrop::TunnelNoNeighbour),
        ("11", XlateDrop::TunnelNoNeighbour),
        ("drop", XlateDrop::Ok),
    ] {
        let native = Native::new().rules(&format!("actions={actions}"));
        let t = native.rig.translate(&Rig::flow(UDP), false);
        assert_eq!((t.actions, t.error), (vec![DpAction::Drop(DropAction(reason))], None), "{actions}");
    }
    Native::new().rules("actions=8,10,2").check(UDP, "2", PLAIN);
}

/// As in OVS, they stay if only a port leaves.
#[test]
fn neighbours_leave_with_their_bridge() {
    let native = Native::new();
    lock(&native.state.neighbours).set(1000, "other", ip("1.1.2.92"), mac(PEER));
    native.rig.backer.remove_bridge(native.rig.b);
    let left = lock(&native.state.neighbours).list(1000);
    assert_eq!(left.iter().map(|n| n.bridge.as_str()).collect::<Vec<_>>(), ["other"]);
}

const TO_US: &str = "in_port=1,udp,dl_dst=aa:55:aa:55:00:00,dl_src=f8:bc:12:44:34:b7,nw_src=1.1.2.93,nw_dst=1.1.2.88,nw_ttl=64,udp_src=1000";
const MAY_BE: &str = "recirc_id=0,eth,udp,in_port=1,vlan_tci=0x0000,dl_src=f8:bc:12:44:34:b7,dl_dst=aa:55:aa:55:00:00,nw_dst=1.1.2.88,nw_frag=no";

#[test]
fn packets_of_tunnels_are_popped_at_the_own_port() {
    let (own, both) = (&["1.1.2.92"][..], &["1.1.2.92", "1.1.2.93"][..]);
    // Bridge `b` learned its own address, so that `NORMAL` sends to the own port alone.
    let native = Native::new();
    let view = native.rig.backer.view();
    let macs = &view.bridge(native.rig.b).expect("made above").macs;
    lock(macs).learn(0, mac(OWN), BundleId(OfPort::LOCAL.0), 1000);
    native.at_b(&format!("{TO_US},udp_dst=53"), "100", &format!("{MAY_BE},tp_dst=0x0/0xf000"), own);
    native.at_b(&format!("{TO_US},udp_dst=4789"), "tnl_pop(4789)", &format!("{MAY_BE},tp_dst=4789"), both);
    native.at_b(
        &format!("{TO_US},udp_dst=4789,nw_frag=first"),
        "100",
        &MAY_BE.replace("nw_frag=no", "nw_frag=first"),
        both,
    );
}

#[test]
fn neighbours_are_learned_from_replies_to_us_and_from_announcements() {
    let arp = |op: u8, spa: &str, tpa: &str| {
        format!(
            "in_port=1,arp,dl_dst=aa:55:aa:55:00:00,dl_src=f8:bc:12:44:34:b7,arp_spa={spa},arp_tpa={tpa},arp_op={op},arp_sha=f8:bc:12:44:34:b7"
        )
    };
    let own = ["1.1.2.92"];
    for (packet, fields, known) in [
        (
            arp(2, "1.1.2.93", "1.1.2.88"),
            ",arp_op=2,arp_sha=f8:bc:12:44:34:b7",
            &["1.1.2.92", "1.1.2.93"][..],
        ),
        (arp(1, "1.1.2.94", "1.1.2.94"), ",arp_sha=f8:bc:12:44:34:b7", &["1.1.2.92", "1.1.2.94"]),
        (arp(1, "1.1.2.96", "1.1.2.88"), ",arp_op=1", &own),
        (arp(2, "1.1.2.96", "1.1.2.87"), ",arp_op=2,arp_sha=f8:bc:12:44:34:b7", &own),
    ] {
        let native = Native::new();
        let b = native.rig.b;
        let native = Native { rig: native.rig.rules(b, "priority=9,actions=LOCAL"), ..native };
        let of = |name: &str| {
            let value = packet.split(',').find_map(|f| f.strip_prefix(name)).expect(name);
            format!(",{name}{value}")
        };
        let megaflow = format!(
            "recirc_id=0,eth,arp,in_port=1,vlan_tci=0x0000,dl_dst=aa:55:aa:55:00:00{}{}{fields}",
            of("arp_spa="),
            of("arp_tpa=")
        );
        native.at_b(&packet, "100", &megaflow, known);
    }
}

#[test]
fn a_neighbour_is_asked_for_once_a_second_and_its_answer_changes_the_flow() {
    let native = Native::new().rules("actions=10\npriority=33000,arp actions=5");
    let arp = "in_port=1,arp,arp_op=1";
    let backer = &native.rig.backer;
    let t = native.check(UDP, "drop", PLAIN);
    let mut asked = Vec::new();
    for now_ms in [1000, 1500, 1999, 2000, 2500] {
        t.cache.replay(&seen(1, 60, now_ms), &mut backer.effect_host());
        asked.push(backer.take_solicited().len());
    }
    assert_eq!(asked, [1, 0, 0, 1, 0]);
    // More often, if a command says so.
    let set = |ms| sync::lock(&backer.view().native.as_ref().unwrap().neighbours).set_retrans(ms);
    set(300);
    let asked = [2600, 2800, 2900].map(|now_ms| {
        t.cache.replay(&seen(1, 60, now_ms), &mut backer.effect_host());
        backer.take_solicited().len()
    });
    assert_eq!(asked, [1, 0, 1]);
    set(1000);
    t.cache.replay(&seen(1, 60, 4000), &mut backer.effect_host());
    let ops = crate::upcall::solicit(backer, 4000);
    let [dpif::DpifOp::Execute(execute)] = &ops[..] else { panic!("one request: {ops:?}") };
    let hex: String = execute.packet.data().iter().map(|b| format!("{b:02x}")).collect();
    // As recorded from OVS.
    assert_eq!(hex, "ffffffffffffaa55aa55000008060001080006040001aa55aa550000010102580000000000000101024d");
    assert_eq!(format_actions(&execute.actions, &NumbersOnly), "11,12");

    let reply = "in_port=1,arp,dl_dst=aa:55:aa:55:00:00,dl_src=f8:bc:12:44:34:b7,arp_spa=1.1.2.77,arp_tpa=1.1.2.88,arp_op=2,arp_sha=f8:bc:12:44:34:b7";
    let flow = |text: &str| {
        flow::PackedFlow::new(&FlowKey::from_flow(&Rig::flow(text), DpPort(1)), &FlowKey::default())
    };
    let (before, other) = (backer.epoch(), native.rig.translate(&Rig::flow(UDP), false));
    assert!(!backer.latest_changes().affect(before, &t.lookups, &flow(UDP)));
    let b = native.rig.b;
    let native = Native { rig: native.rig.rules(b, "priority=9,actions=LOCAL"), ..native };
    let backer = &native.rig.backer;
    let before = backer.epoch();
    native.at_b(reply, "100", "recirc_id=0,eth,arp,in_port=1,vlan_tci=0x0000,dl_dst=aa:55:aa:55:00:00,arp_spa=1.1.2.77,arp_tpa=1.1.2.88,arp_op=2,arp_sha=f8:bc:12:44:34:b7", &["1.1.2.77", "1.1.2.92"]);
    assert!(backer.latest_changes().affect(before, &other.lookups, &flow(UDP)), "its flow is checked");
    let t5 = native.rig.translate(&Rig::flow(arp), false);
    assert!(!native.rig.backer.latest_changes().affect(before, &t5.lookups, &flow(arp)));
}

/// Results of misses of distinct flows from port 1: for each packet its actions and whether it counts as dropped; and the
/// number of requests sent meanwhile.
fn missed(backer: &Backer, ufids: std::ops::Range<u128>, now_ms: u64) -> (Vec<(String, bool)>, usize) {
    let misses = ufids.map(|n| crate::upcall::tests::miss_of(0x88cc, n)).collect();
    let mut ops = crate::upcall::handle(backer, misses, now_ms);
    let requests = ops.remove(&dpif::PmdId::Main).map_or(0, |ops| ops.len());
    (executed(ops.into_values().flatten().collect()), requests)
}

fn executed(ops: Vec<dpif::DpifOp>) -> Vec<(String, bool)> {
    let executes = ops.into_iter().filter_map(|op| {
        let dpif::DpifOp::Execute(e) = op else { return None };
        Some((format_actions(&e.actions, &NumbersOnly), !e.went_on))
    });
    executes.collect()
}

#[test]
fn the_first_packets_wait_for_a_neighbour() {
    let native = Native::new().rules("actions=10");
    let (backer, a) = (&native.rig.backer, native.rig.a);
    let counted = || crate::upcall::tests::counted(backer, a);
    let (first, requests) = missed(backer, 0..17, 1000);
    // OVS drops all of them.
    let (waits, dropped) = (("drop".to_string(), false), ("drop".to_string(), true));
    assert_eq!(
        (&first[..16], &first[16..], requests),
        (&vec![waits.clone(); 16][..], &[dropped.clone()][..], 1)
    );
    assert_eq!((counted(), backer.held_in_all()), (1, 16));
    lock(&native.state.neighbours).set(1500, "b", ip("1.1.2.77"), mac(PEER6));
    backer.neighbour_changed(native.rig.b, Some(ip("1.1.2.77")));
    let sent = executed(crate::upcall::solicit(backer, 1500));
    assert_eq!((sent.len(), counted()), (16, 17));
    assert!(sent.iter().all(|(actions, counts)| actions.contains("tnl_push") && *counts), "{sent:?}");
    assert!(executed(crate::upcall::solicit(backer, 9000)).is_empty());
}

#[test]
fn packets_that_wait_in_vain_are_dropped_and_counted() {
    let native = Native::new().rules("actions=10");
    let (backer, a) = (&native.rig.backer, native.rig.a);
    let (first, _) = missed(backer, 0..2, 1000);
    assert_eq!(first, vec![("drop".to_string(), false); 2]);
    assert!(crate::upcall::solicit(backer, 3999).is_empty());
    assert_eq!(crate::upcall::tests::counted(backer, a), 0);
    assert_eq!(executed(crate::upcall::solicit(backer, 4000)), vec![("drop".to_string(), true); 2]);
    assert_eq!(crate::upcall::tests::counted(backer, a), 2);
    // Their places are free again.
    assert_eq!(missed(backer, 2..18, 5000).0, vec![("drop".to_string(), false); 16]);
}

/// One port takes no places of others, and a packet that another output got does not wait.
#[test]
fn packets_that_wait_are_bounded() {
    let native = Native::new().rules("actions=10");
    let mut held = crate::unresolved::held::HeldPackets::default();
    let b = native.rig.b;
    let fill = |held: &mut crate::unresolved::held::HeldPackets, port: u32, bytes: usize| {
        let mut added = 0;
        for n in 0..2000 {
            let target = IpAddr::from(std::net::Ipv4Addr::from(0x0a00_0000 | port << 12 | n));
            let mut upcall = crate::upcall::tests::miss_of(0x88cc, 1);
            (upcall.rx_port, upcall.packet) = (DpPort(port), packet::Packet::from_slice(&vec![0; bytes]));
            if held.has_room(b, target, upcall.rx_port, bytes) {
                let waits =
                    crate::unresolved::held::HeldPacket::new(&upcall, XlateCache::default(), [].into(), 0);
                held.add(b, target, waits);
                added += 1;
            }
        }
        added
    };
    let by_port: Vec<usize> = (0..20).map(|port| fill(&mut held, port, 60)).collect();
    assert_eq!(by_port, [vec![64; 16], vec![0; 4]].concat());
    assert_eq!((held.take(2999).1.len(), held.take(3000).1.len()), (0, 1024));
    assert_eq!((fill(&mut held, 1, 65_536), fill(&mut held, 2, 60)), (64, 0));

    let native = native.rules("priority=40000 actions=10,2");
    let sent = missed(&native.rig.backer, 0..1, 1000).0;
    assert!(sent.iter().all(|(actions, counts)| actions == "2" && *counts), "{sent:?}");
}

/// A changed route affects flows whose next hop changed, and no others.
#[test]
fn routes_change_their_flows_alone() {
    let mut native = Native::new().rules("priority=7,udp actions=5\npriority=7,icmp actions=10");
    let icmp = "in_port=1,icmp,nw_src=10.0.0.1,nw_dst=10.0.0.2";
    let t = [UDP, icmp].map(|packet| native.rig.translate(&Rig::flow(packet), false));
    let flow = |text: &str| {
        flow::PackedFlow::new(&FlowKey::from_flow(&Rig::flow(text), DpPort(1)), &FlowKey::default())
    };
    let backer = &native.rig.backer;
    let mut affected = |prefix: (&str, u8), remove: bool| {
        let before = backer.epoch();
        let change = match remove {
            true => native.state.routes.remove_user(TABLE_MAIN, 0, route(prefix).prefix).expect("a route"),
            false => {
                let gateway = Some(ip("1.1.2.1"));
                native
                    .state
                    .routes
                    .add_user(&Route { hops: Hops::one("b", gateway), ..route(prefix) }, ip(prefix.0))
                    .expect("room")
            }
        };
        backer.set_native(native.state.clone(), Some(&[change]));
        let changes = backer.latest_changes();
        [
            changes.affect(before, &t[0].lookups, &flow(UDP)),
            changes.affect(before, &t[1].lookups, &flow(icmp)),
        ]
    };
    assert_eq!(affected(("1.1.2.77", 32), false), [false, true]);
    assert_eq!(affected(("7.0.0.0", 8), false), [false, false]);
    assert_eq!(affected(("1.1.2.77", 32), true), [false, true]);
    assert_eq!(affected(("1.1.2.0", 24), true), [true, true]);
}

/// Listeners decide on packets that no route concerns.
#[test]
fn changed_listeners_have_all_flows_checked() {
    let native = Native::new().rules("actions=2");
    let t = native.rig.translate(&Rig::flow(UDP), false);
    let flow = flow::PackedFlow::new(&FlowKey::from_flow(&Rig::flow(UDP), DpPort(1)), &FlowKey::default());
    let backer = &native.rig.backer;
    for (changes, affects) in [(Some(&[][..]), false), (None, true)] {
        let before = backer.epoch();
        backer.set_native(native.state.clone(), changes);
        assert_eq!(backer.latest_changes().affect(before, &t.lookups, &flow), affects);
    }
}

#[test]
fn congestion_is_carried_over_or_drops() {
    let came = "in_port=5,udp,tun_id=123,tun_src=1.1.2.92,tun_dst=1.1.2.88,tun_ttl=64,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=64";
    let fields = "recirc_id=0,eth,ip,tun_id=0x7b,tun_src=1.1.2.92,tun_dst=1.1.2.88";
    let native = Native::new().rules("actions=2");
    for (tos, ecn, actions, mask) in [
        (3, 0, "drop", ",tun_tos=3,tun_flags=-df-csum-key,in_port=5,nw_ecn=0,nw_frag=no"),
        (3, 1, "set(ipv4(tos=0x3/0x3)),2", ",tun_tos=3,tun_flags=-df-csum-key,in_port=5,nw_ecn=1,nw_frag=no"),
        (3, 3, "2", ",tun_tos=3,tun_flags=-df-csum-key,in_port=5,nw_ecn=3,nw_frag=no"),
        (1, 1, "2", ",tun_tos=1,tun_flags=-df-csum-key,in_port=5,nw_frag=no"),
    ] {
        let packet = format!("{came},tun_tos={tos},nw_ecn={ecn}");
        native.check(&packet, actions, &format!("{fields}{mask}"));
    }
}
