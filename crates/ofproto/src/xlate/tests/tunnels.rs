//! Tunnel ports: outer headers on output, tunnel port selection on input.

use super::*;
use crate::tunnel::{Endpoint, TUNNEL_TTL, TunnelConfig, TunnelKey, TunnelKind};
use std::net::IpAddr;

/// Ports 5 and 6 of bridge `a` are tunnels to 10.9.0.5 with key 5 and to an address set by rules; both use the
/// datapath's port 8.
pub(super) fn rig() -> Rig {
    let rig = Rig::new();
    let config = TunnelConfig {
        kind: TunnelKind::Geneve,
        remote: Endpoint::Address(IpAddr::V4([10, 9, 0, 5].into())),
        local: Endpoint::Any,
        in_key: TunnelKey::Value(5),
        out_key: TunnelKey::Value(5),
        tos: Some(0),
        ttl: Some(TUNNEL_TTL),
        dont_fragment: true,
        csum: false,
        seq: false,
        dst_port: 6081,
        gbp: false,
        egress_pkt_mark: None,
        of_kind: Default::default(),
    };
    let by_rules = TunnelConfig {
        remote: Endpoint::Flow,
        in_key: TunnelKey::Flow,
        out_key: TunnelKey::Flow,
        egress_pkt_mark: Some(7),
        ..config.clone()
    };
    let mut ports = PortTable::clone(&rig.backer.view().bridge(rig.a).expect("made above").ports);
    for (n, config) in [(5, config), (6, by_rules)] {
        add_port(&mut ports, OfPort(n), Some(8), None, Vlan::Trunk);
        let port = ports.ports.get_mut(&OfPort(n)).expect("just added");
        Arc::make_mut(port).tunnel = Some(Arc::new(config));
    }
    rig.backer.set_ports(rig.a, ports);
    rig
}

/// Received from 10.9.0.9 on local address 10.9.0.1.
const CAME: &str = "in_port=6,tun_id=77,tun_src=10.9.0.9,tun_dst=10.9.0.1,tun_ttl=63,dl_type=0x88b5,dl_src=02:00:00:00:00:01";
const ETH: &str = "in_port=1,dl_type=0x88b5,dl_src=02:00:00:00:00:01";

#[test]
fn outer_headers_are_set_where_a_tunnel_is_next() {
    let rig = rig();
    let a = rig.a;
    let rig = rig.rules(a, "in_port=1 actions=5,2,5,set_field:9->tun_id,set_field:10.9.0.7->tun_dst,6,5,2");
    let five = "tunnel(id=5,dst=10.9.0.5,flags=10,tp_dst=6081)";
    let six = "tunnel(id=9,dst=10.9.0.7,flags=10,tp_dst=6081)";
    // Set once for outputs to the same tunnel; the mark applies only to the outer packet.
    rig.check(
        ETH,
        &format!("{five},8,2,8,mark(7),{six},8,mark(0),{five},8,2"),
        "pkt_mark=0,recirc_id=0,eth,in_port=1,dl_type=0x88b5",
    );
}

#[test]
fn a_packet_goes_back_to_its_sender_and_not_to_ourselves() {
    let rig = rig();
    let a = rig.a;
    let rig = rig.rules(
        a,
        "in_port=6,tun_id=77 actions=move:NXM_NX_TUN_IPV4_SRC[]->NXM_NX_TUN_IPV4_DST[],in_port
         in_port=6,tun_id=78 actions=in_port,5
         priority=0 actions=drop",
    );
    rig.check(
        CAME,
        "mark(7),tunnel(id=77,dst=10.9.0.9,flags=10,tp_dst=6081),8",
        "pkt_mark=0,recirc_id=0,eth,tun_id=0x4d,tun_src=10.9.0.9,tun_dst=10.9.0.1,tun_tos=0,tun_flags=-df-csum-key,in_port=6,dl_type=0x88b5",
    );
    // The destination is local.
    rig.acts(&CAME.replace("77", "78"), "tunnel(id=5,dst=10.9.0.5,flags=10,tp_dst=6081),8");
    // No rule set the destination.
    let rig = rig.rules(a, "in_port=1 actions=6,2");
    rig.acts(ETH, "2");
}

#[test]
fn tunnels_of_one_device_are_counted_apart() {
    let rig = rig();
    let a = rig.a;
    let rig = rig.rules(
        a,
        "in_port=1 actions=5
         in_port=6 actions=5",
    );
    let counts = |n: u32| {
        let view = rig.backer.view();
        let port = view.bridge(a).and_then(|b| b.ports.port(OfPort(n)).cloned()).expect("a port");
        [&port.counters.rx, &port.counters.tx].map(|c| c[0].load(sync::Ordering::Relaxed))
    };
    for (packet, n) in [(ETH, 3), (CAME, 2)] {
        let t = rig.acts(packet, "tunnel(id=5,dst=10.9.0.5,flags=10,tp_dst=6081),8");
        t.cache.replay(&seen(n, 60 * n, 1000), &mut rig.backer.effect_host());
    }
    assert_eq!((counts(5), counts(6)), ([0, 5], [2, 0]));
}

#[test]
fn tunnel_fields_survive_recirculation() {
    let rig = rig();
    let a = rig.a;
    let rig =
        rig.rules(a, "in_port=1 actions=set_field:9->tun_id,set_field:10.9.0.7->tun_dst,debug_recirc,6");
    let t = rig.acts(ETH, "recirc(1)");
    rig.thaw(ETH, &t, "mark(7),tunnel(id=9,dst=10.9.0.7,flags=10,tp_dst=6081),8");
}
