//! Tunnels whose outer address is on another port than the bridge's own. Expectations are those of `ofproto/trace` and
//! `tnl/neigh/show` of OVS 3.5.

use super::native::{Native, OWN, PEER, PLAIN, UDP, config, ip, mac};
use super::*;
use crate::native::NativeTunnels;
use crate::tunnel::{TunnelKey, TunnelKind};
use routing::{Hops, InterfaceAddress, ListeningDevice, Prefix, Route};
use sync::lock;

const VTEP: OfPort = OfPort(3);
/// Ethernet address of the device: the port of the view has another one.
const VTEP_MAC: &str = "aa:55:aa:55:00:03";

/// Tunnel 20 of bridge `a` leads to 10.8.0.2 by `vtep0`, an access port of VLAN 100 of bridge `b`.
fn native() -> Native {
    let tunnel = config(TunnelKind::Vxlan, "10.8.0.2", TunnelKey::Value(5));
    let mut native = Native::with(&[(20, 4789, tunnel)]).rules("actions=20");
    let backer = &native.rig.backer;
    let mut b = PortTable::clone(&backer.view().bridge(native.rig.b).expect("made above").ports);
    add_port(&mut b, VTEP, Some(103), None, Vlan::Access(100));
    let port = Arc::make_mut(b.ports.get_mut(&VTEP).expect("just added"));
    (port.mac, port.name) = (mac("02:00:00:00:00:01"), "vtep0".to_string());
    backer.set_ports(native.rig.b, b);
    listen(&mut native.state, VTEP_MAC);
    native.state.routes.set_addresses("vtep0", 2, &[InterfaceAddress::new(ip("10.8.0.1"), 24)]);
    let prefix = Prefix::new(ip("10.8.0.0"), 24).expect("a prefix");
    let route = Route::new(prefix, Hops::one("vtep0", None));
    native.state.routes.add_user(&route, ip("10.8.0.0")).expect("a route");
    lock(&native.state.neighbours).set(1000, "b", ip("10.8.0.2"), mac(PEER));
    backer.set_native(native.state.clone(), None);
    native
}

fn listen(state: &mut NativeTunnels, own: &str) {
    let device = ListeningDevice { mac: mac(own), addresses: [ip("10.8.0.1")].into() };
    state.listeners.set_device("vtep0", Some(device));
}

#[test]
fn headers_have_the_address_of_the_device_and_leave_by_its_vlan() {
    let mut native = native();
    for own in [VTEP_MAC, "aa:55:aa:55:00:04"] {
        listen(&mut native.state, own);
        native.rig.backer.set_native(native.state.clone(), None);
        let pushed = format!(
            "tnl_push(tnl_port(4789),header(size=50,type=4,eth(dst={PEER},src={own},dl_type=0x0800),ipv4(src=10.8.0.1,dst=10.8.0.2,proto=17,tos=0,ttl=64,frag=0x4000),udp(src=0,dst=4789,csum=0x0),vxlan(flags=0x8000000,vni=0x5)),out_port(103)),push_vlan(vid=100,pcp=0),100,11,12"
        );
        native.check(UDP, &pushed, PLAIN);
    }
}

#[test]
fn requests_leave_by_the_vlan_of_the_device() {
    let native = native();
    lock(&native.state.neighbours).flush(None);
    let backer = &native.rig.backer;
    let t = native.check(UDP, "drop", PLAIN);
    t.cache.replay(&seen(1, 60, 1000), &mut backer.effect_host());
    let ops = crate::upcall::solicit(backer, 1000);
    let [dpif::DpifOp::Execute(execute)] = &ops[..] else { panic!("one request: {ops:?}") };
    let actions = dpif::actions::format_actions(&execute.actions, &dpif::text::NumbersOnly);
    assert_eq!(
        (actions.as_str(), &execute.packet.data()[6..12]),
        ("push_vlan(vid=100,pcp=0),100,11,12", &mac(VTEP_MAC).0[..])
    );
}

#[test]
fn packets_of_tunnels_are_popped_where_an_address_is() {
    let to = |dst: &str, address: &str| {
        format!(
            "in_port=1,udp,dl_vlan=100,dl_dst={dst},dl_src=f8:bc:12:44:34:b7,nw_src=10.8.0.3,nw_dst={address},nw_ttl=64,udp_src=1000,udp_dst=4789"
        )
    };
    let known = ["1.1.2.92", "10.8.0.2"];
    for (out, dst, address, actions, fields, known) in [
        (VTEP, VTEP_MAC, "10.8.0.1", "tnl_pop(4789)", "udp", &["1.1.2.92", "10.8.0.2", "10.8.0.3"][..]),
        // Addresses of all devices count at each that has any.
        (VTEP, OWN, "1.1.2.88", "tnl_pop(4789)", "udp", &["1.1.2.92", "10.8.0.2", "10.8.0.3"]),
        (OfPort(2), VTEP_MAC, "10.8.0.1", "12", "ip", &known),
    ] {
        let native = native();
        let b = native.rig.b;
        let rules = format!("priority=9,actions=strip_vlan,output:{}", out.0);
        let native = Native { rig: native.rig.rules(b, &rules), ..native };
        let megaflow = match fields {
            "udp" => format!(
                "recirc_id=0,eth,udp,in_port=1,dl_vlan=100,dl_vlan_pcp=0,dl_dst={dst},nw_dst={address},nw_frag=no,tp_dst=4789"
            ),
            _ => "recirc_id=0,eth,ip,in_port=1,dl_vlan=100,dl_vlan_pcp=0,nw_frag=no".to_string(),
        };
        native.at_b(&to(dst, address), &format!("pop_vlan,{actions}"), &megaflow, known);
    }
}

#[test]
fn replies_to_an_address_of_any_device_of_the_bridge_teach_a_neighbour() {
    for (target, out, learns) in [
        ("10.8.0.1", "3", true),
        ("1.1.2.88", "3", true),
        ("10.8.0.1", "LOCAL", true),
        ("10.8.0.99", "3", false),
        // No device of the bridge has it.
        ("10.7.0.1", "3", false),
        // A port without an address.
        ("10.8.0.1", "2", false),
    ] {
        let mut native = native();
        let other = ListeningDevice { mac: mac("02:00:00:00:00:07"), addresses: [ip("10.7.0.1")].into() };
        native.state.listeners.set_device("elsewhere", Some(other));
        native.rig.backer.set_native(native.state.clone(), None);
        let b = native.rig.b;
        let native =
            Native { rig: native.rig.rules(b, &format!("priority=9,actions=output:{out}")), ..native };
        let reply = format!(
            "in_port=1,arp,dl_dst={VTEP_MAC},dl_src=f8:bc:12:44:34:b7,arp_spa=10.8.0.9,arp_tpa={target},arp_op=2,arp_sha=f8:bc:12:44:34:b7"
        );
        let view = native.rig.backer.view();
        let flow = Rig::flow(&reply);
        let request = Request { view: &view, bridge: b, flow: &flow, start: Start::Tables, trace: false };
        let t = translate(&request, &mut native.rig.backer.xlate_host(true, 1000));
        t.cache.replay(&seen(1, 60, 1000), &mut native.rig.backer.effect_host());
        let learned = lock(&native.state.neighbours).lookup(1000, "b", ip("10.8.0.9"));
        assert_eq!(learned.is_some(), learns, "{target} {out}");
    }
}
