use super::*;
use crate::ids::{BridgeId, BundleId};
use crate::ports::{Port, PortConfigBits, PortCounters};
use crate::tunnel_ports::TunnelPorts;
use flow::{FlowKey, OfPort, shape};
use packet::headers as h;
use std::sync::Arc;

const DEVICE: DpPort = DpPort(7);
const OURS: [u8; 4] = [10, 0, 0, 1];
const PEER: [u8; 4] = [10, 0, 0, 2];

fn address(a: [u8; 4]) -> Endpoint {
    Endpoint::Address(IpAddr::V4(a.into()))
}

fn config() -> TunnelConfig {
    TunnelConfig {
        kind: TunnelKind::Vxlan,
        remote: address(PEER),
        local: Endpoint::Any,
        in_key: TunnelKey::None,
        out_key: TunnelKey::None,
        tos: Some(0),
        ttl: Some(TUNNEL_TTL),
        dont_fragment: true,
        csum: false,
        seq: false,
        dst_port: 4789,
        gbp: false,
        egress_pkt_mark: None,
        of_kind: Default::default(),
    }
}

fn port(number: u32, config: TunnelConfig) -> Arc<Port> {
    Arc::new(Port {
        of_port: OfPort(number),
        dp_port: Some(DEVICE),
        name: format!("t{number}"),
        type_name: "vxlan".to_string(),
        mac: Default::default(),
        bundle: BundleId(number),
        patch_peer: None,
        counters: Arc::new(PortCounters::default()),
        tunnel: Some(Arc::new(config)),
        config: PortConfigBits::default(),
        link_down: false,
        links: Vec::new(),
        queue_dscp: Default::default(),
        features: Default::default(),
    })
}

/// A packet from `src` to the local address with that key.
fn came(src: [u8; 4], dst: [u8; 4], id: u64) -> FlowKey {
    let mut key = FlowKey::default();
    key.base.in_port = DEVICE.0;
    let tunnel = Tunnel {
        id,
        src: u32::from_be_bytes(src),
        dst: u32::from_be_bytes(dst),
        ttl: 64,
        ..Tunnel::default()
    };
    key.tunnel = tunnel;
    key.set_shape();
    key
}

#[test]
fn the_port_that_says_most_receives() {
    let key = |n| TunnelKey::Value(n);
    let configs = [
        TunnelConfig { in_key: TunnelKey::Flow, remote: Endpoint::Flow, local: Endpoint::Flow, ..config() },
        TunnelConfig { in_key: TunnelKey::Flow, ..config() },
        TunnelConfig { in_key: key(5), remote: Endpoint::Flow, ..config() },
        TunnelConfig { in_key: key(5), ..config() },
        TunnelConfig { in_key: key(5), local: address(OURS), ..config() },
        config(),
    ];
    let mut ports = TunnelPorts::default();
    let all: Vec<_> = configs.into_iter().zip(1..).map(|(c, n)| port(n, c)).collect();
    ports.set(BridgeId(1), all.iter());
    let receiver = |key: &FlowKey| ports.receiver(key).map(|(_, port)| port.0);
    let other = [10, 0, 0, 9];
    assert_eq!(receiver(&came(PEER, OURS, 5)), Some(5));
    assert_eq!(receiver(&came(PEER, other, 5)), Some(4));
    assert_eq!(receiver(&came(other, OURS, 5)), Some(3));
    assert_eq!(receiver(&came(PEER, OURS, 6)), Some(2));
    assert_eq!(receiver(&came(other, OURS, 6)), Some(1));
    // No key equals key 0.
    assert_eq!(receiver(&came(PEER, OURS, 0)), Some(6));
    // Another device, and a packet that came out of no tunnel.
    let mut elsewhere = came(PEER, OURS, 5);
    elsewhere.base.in_port = 8;
    assert_eq!(receiver(&elsewhere), None);
    assert_eq!(receiver(&FlowKey { tunnel: FlowKey::default().tunnel, ..elsewhere }), None);
    // Without the bridge's ports there is none; those of another bridge stay.
    let mut both = ports.clone();
    both.set(BridgeId(2), [port(9, TunnelConfig { in_key: key(77), ..config() })].iter());
    both.set(BridgeId(1), std::iter::empty());
    assert_eq!(both.receiver(&came(PEER, OURS, 5)), None);
    assert_eq!(both.receiver(&came(PEER, OURS, 77)), Some((BridgeId(2), OfPort(9))));
}

#[test]
fn tunnels_of_the_same_packets_collide() {
    let base = config();
    assert!(base.collides(&TunnelConfig { out_key: TunnelKey::Flow, ttl: None, ..config() }));
    for other in [
        TunnelConfig { in_key: TunnelKey::Value(1), ..config() },
        TunnelConfig { remote: address([10, 0, 0, 3]), ..config() },
        TunnelConfig { local: address(OURS), ..config() },
        TunnelConfig { dst_port: 8472, ..config() },
        TunnelConfig { kind: TunnelKind::Geneve, ..config() },
    ] {
        assert!(!base.collides(&other), "{other:?}");
    }
}

#[test]
fn outer_headers_are_as_configured() {
    let flow = Flow::default();
    let wrap = |c: &TunnelConfig, flow: &Flow| c.wrap(flow, &mut Mask::none());
    let plain = Tunnel {
        dst: u32::from_be_bytes(PEER),
        ttl: 64,
        flags: tunnel_flags::DF,
        tp_dst: 4789,
        ..Tunnel::default()
    };
    assert_eq!(wrap(&config(), &flow), Some(plain));
    let all = TunnelConfig {
        local: address(OURS),
        out_key: TunnelKey::Value(5),
        tos: Some(0x20),
        ttl: Some(9),
        dont_fragment: false,
        csum: true,
        seq: false,
        dst_port: 8472,
        ..config()
    };
    let expected = Tunnel {
        id: 5,
        src: u32::from_be_bytes(OURS),
        flags: tunnel_flags::KEY | tunnel_flags::CSUM,
        tos: 0x20,
        ttl: 9,
        tp_dst: 8472,
        ..plain
    };
    assert_eq!(wrap(&all, &flow), Some(expected));
    let v6 = TunnelConfig { remote: Endpoint::Address("fd00::2".parse().unwrap()), ..config() };
    let outer = wrap(&v6, &flow).unwrap();
    assert_eq!((outer.dst, outer.ipv6_dst[15]), (0, 2));
}

#[test]
fn rules_set_flow_options() {
    let by_rules = TunnelConfig {
        remote: Endpoint::Flow,
        local: Endpoint::Flow,
        out_key: TunnelKey::Flow,
        gbp: true,
        ..config()
    };
    let mut flow = Flow::default();
    assert_eq!(by_rules.wrap(&flow, &mut Mask::none()), None);
    let set = Tunnel {
        id: 77,
        src: 1,
        dst: 2,
        flags: tunnel_flags::OAM | tunnel_flags::CSUM,
        // Copied from the received packet.
        ttl: 3,
        tos: 0x80,
        tp_src: 4,
        tp_dst: 5,
        gbp_id: 6,
        gbp_flags: 8,
        ..Tunnel::default()
    };
    flow.set_tunnel(&set);
    let expected = Tunnel {
        flags: tunnel_flags::OAM | tunnel_flags::DF | tunnel_flags::KEY,
        ttl: 64,
        tos: 0,
        tp_src: 0,
        tp_dst: 4789,
        ..set
    };
    assert_eq!(by_rules.wrap(&flow, &mut Mask::none()), Some(expected));
}

#[test]
fn congestion_and_inherited_fields_are_looked_at() {
    let mut flow = Flow { dl_type: h::ETH_TYPE_IP, nw_tos: 0x20 | ECN_CE, nw_ttl: 17, ..Flow::default() };
    let mut wc = Mask::none();
    let outer = config().wrap(&flow, &mut wc).unwrap();
    assert_eq!((outer.tos, outer.ttl), (ECN_ECT_0, 64));
    assert_eq!((wc.0.nw_tos, wc.0.nw_ttl), (ECN_MASK, 0));
    let inherits = TunnelConfig { tos: None, ttl: None, ..config() };
    let outer = inherits.wrap(&flow, &mut wc).unwrap();
    assert_eq!((outer.tos, outer.ttl), (0x20 | ECN_ECT_0, 17));
    assert_eq!((wc.0.nw_tos, wc.0.nw_ttl), (u8::MAX, u8::MAX));
    flow.nw_tos = 0x20 | 1;
    assert_eq!(config().wrap(&flow, &mut wc).unwrap().tos, 1);
    // The inner packet has neither.
    flow.dl_type = h::ETH_TYPE_ARP;
    let mut wc = Mask::none();
    let outer = inherits.wrap(&flow, &mut wc).unwrap();
    assert_eq!((outer.tos, outer.ttl, wc.is_empty()), (0, 64, true));
}

#[test]
fn options_show_differences_from_defaults() {
    let words =
        |c: &TunnelConfig| c.options().iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(", ");
    assert_eq!(words(&config()), "remote_ip=10.0.0.2");
    let all = TunnelConfig {
        remote: Endpoint::Flow,
        local: address(OURS),
        in_key: TunnelKey::Flow,
        out_key: TunnelKey::Value(5),
        tos: Some(0x20),
        ttl: None,
        dont_fragment: false,
        csum: true,
        seq: false,
        dst_port: 8472,
        gbp: true,
        egress_pkt_mark: Some(1),
        ..config()
    };
    assert_eq!(
        words(&all),
        "csum=true, df_default=false, dst_port=8472, egress_pkt_mark=1, in_key=flow, local_ip=10.0.0.1, out_key=5, remote_ip=flow, tos=0x20, ttl=inherit"
    );
    let keyed = TunnelConfig { in_key: TunnelKey::Value(9), out_key: TunnelKey::Value(9), ..config() };
    assert_eq!(words(&keyed), "key=9, remote_ip=10.0.0.2");
}

/// Tunnels with the same key and addresses differ in the packets that they take.
#[test]
fn packets_go_to_tunnels_of_their_type() {
    let types = |number: u32, packet_types| {
        let mut config = config();
        config.of_kind.packet_types = packet_types;
        port(number, config)
    };
    let [frames, bare, any] =
        [types(1, PacketTypes::Frames), types(2, PacketTypes::Bare), types(3, PacketTypes::Any)];
    for (there, of_frame, of_ip) in [
        (vec![&frames, &bare, &any], Some(1), Some(2)),
        (vec![&frames, &any], Some(1), Some(3)),
        (vec![&any], Some(3), Some(3)),
        (vec![&frames], Some(1), None),
        (vec![&bare], None, Some(2)),
    ] {
        let mut ports = TunnelPorts::default();
        ports.set(BridgeId(1), there.into_iter());
        for (packet_type, expected) in [(0, of_frame), (0x1_0800, of_ip)] {
            let mut key = came(PEER, OURS, 0);
            key.arp.packet_type = packet_type;
            key.base.shape |= shape::ARP;
            assert_eq!(ports.receiver(&key).map(|(_, port)| port.0), expected, "{packet_type:x}");
        }
    }
}
