//! Listeners: lookups against a list of all rules, and the text.

use super::ip;
use crate::{Carrier, Families, Listeners, ListeningDevice, TunnelPort, text};
use flow::{DpPort, Flow, MacAddr, Mask, VlanTag};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::net::IpAddr;

fn device(mac: u8, addresses: &[&str]) -> ListeningDevice {
    let addresses = addresses.iter().map(|a| ip(a)).collect();
    ListeningDevice { mac: MacAddr([0xaa, 0x55, 0xaa, 0x55, 0, mac]), addresses }
}

fn port(name: &str, number: u32, carrier: Carrier) -> TunnelPort {
    TunnelPort { name: name.into(), number: DpPort(number), carrier, users: 1 }
}

fn packet(mac: u8, dst: IpAddr, nw_proto: u8, tp_dst: u16) -> Flow {
    let mut flow = Flow { dl_dst: [0xaa, 0x55, 0xaa, 0x55, 0, mac], nw_proto, tp_dst, ..Flow::default() };
    match dst {
        IpAddr::V4(dst) => (flow.dl_type, flow.nw_dst) = (0x0800, dst.into()),
        IpAddr::V6(dst) => (flow.dl_type, flow.ipv6_dst) = (0x86dd, dst.octets()),
    }
    flow
}

fn sample() -> Listeners {
    let mut all = Listeners::new(1);
    all.set_device("br0", Some(device(0, &["1.1.2.88", "2001:cafe::88"])));
    let vxlan = TunnelPort { users: 2, ..port("vxlan_sys_4789", 4789, Carrier::Udp(4789)) };
    all.set_tunnels(vec![
        port("gre_sys", 4, Carrier::Gre(Families::Both)),
        port("ip6gre_sys", 6, Carrier::Gre(Families::Both)),
        vxlan,
    ]);
    all
}

#[test]
fn a_list_of_ports_has_the_layout_of_the_stock_switch() {
    let mut all = sample();
    assert_eq!(
        text::listeners(&all, false),
        "Listening ports:\ngre_sys (4) ref_cnt=1\nip6gre_sys (6) ref_cnt=1\nvxlan_sys_4789 (4789) ref_cnt=2\n"
    );
    let eth = "eth(dst=aa:55:aa:55:00:00)";
    let expected = format!(
        "Listening ports:\n\
         gre_sys (4) : {eth},eth_type(0x0800),ipv4(dst=1.1.2.88,proto=47,frag=no)\n\
         gre_sys (4) : {eth},eth_type(0x86dd),ipv6(dst=2001:cafe::88,proto=47,frag=no)\n\
         vxlan_sys_4789 (4789) : {eth},eth_type(0x0800),ipv4(dst=1.1.2.88,proto=17,frag=no),udp(dst=4789)\n\
         vxlan_sys_4789 (4789) : {eth},eth_type(0x86dd),ipv6(dst=2001:cafe::88,proto=17,frag=no),udp(dst=4789)\n"
    );
    assert_eq!(text::listeners(&all, true), expected);
    all.set_tunnels(vec![port("srv6_sys", 9, Carrier::Srv6)]);
    let expected = format!(
        "Listening ports:\n\
         srv6_sys (9) : {eth},eth_type(0x86dd),ipv6(dst=2001:cafe::88,proto=4,frag=no)\n\
         srv6_sys (9) : {eth},eth_type(0x86dd),ipv6(dst=2001:cafe::88,proto=41,frag=no)\n"
    );
    assert_eq!(text::listeners(&all, true), expected);
}

#[test]
fn packets_to_an_address_and_port_are_listened_to() {
    let all = sample();
    for (what, flow, expected) in [
        ("VXLAN", packet(0, ip("1.1.2.88"), 17, 4789), Some(4789)),
        ("VXLAN over IPv6", packet(0, ip("2001:cafe::88"), 17, 4789), Some(4789)),
        ("the first of two", packet(0, ip("1.1.2.88"), 47, 0), Some(4)),
        ("another port", packet(0, ip("1.1.2.88"), 17, 4790), None),
        ("another address", packet(0, ip("1.1.2.89"), 17, 4789), None),
        ("another MAC address", packet(1, ip("1.1.2.88"), 17, 4789), None),
        ("a fragment", Flow { nw_frag: 1, ..packet(0, ip("1.1.2.88"), 17, 4789) }, None),
        (
            "a tag",
            Flow { vlans: [VlanTag { tpid: 0x8100, tci: 0x1005 }; 2], ..packet(0, ip("1.1.2.88"), 47, 0) },
            None,
        ),
    ] {
        let mut mask = Mask::none();
        let found = all.lookup(&flow, &mut mask);
        assert_eq!(found, expected.map(DpPort), "{what}");
        if expected.is_some() {
            let m = &mask.0;
            assert_eq!((m.dl_dst, m.nw_frag, m.vlans[0].tci), ([0xff; 6], 3, 0xffff), "{what}");
        }
    }
    let mut mask = Mask::none();
    all.lookup(&packet(1, ip("1.1.2.88"), 17, 4789), &mut mask);
    assert_eq!(
        (mask.0.dl_dst, mask.0.nw_dst),
        ([0xff; 6], 0),
        "a miss of the second stage adds no third one"
    );
}

fn a_device() -> impl Strategy<Value = Option<ListeningDevice>> {
    let addresses = prop::sample::subsequence(vec!["1.1.1.1", "1.1.1.2", "2001::1"], 0..3);
    prop::option::weighted(0.8, (0..2_u8, addresses).prop_map(|(mac, all)| device(mac, &all)))
}

fn ports() -> impl Strategy<Value = Vec<TunnelPort>> {
    let carrier = prop::sample::select(vec![
        Carrier::Udp(4789),
        Carrier::Udp(6081),
        Carrier::Gre(Families::V4),
        Carrier::Gre(Families::V6),
        Carrier::Srv6,
    ]);
    prop::collection::vec((0..9_u32, carrier).prop_map(|(n, c)| port("t", n, c)), 0..4)
}

proptest! {
    /// Lookups equal a search of all devices and ports; packets that agree in the examined bits have the same result.
    #[test]
    fn random_listeners_equal_a_list(steps in prop::collection::vec(
        prop_oneof![
            (0..3_usize, a_device()).prop_map(|(n, d)| (Some((n, d)), Vec::new())),
            ports().prop_map(|p| (None, p)),
        ],
        1..12,
    )) {
        let mut all = Listeners::new(7);
        let (mut devices, mut tunnels) = (BTreeMap::new(), Vec::new());
        for (of_device, of_tunnels) in steps {
            match of_device {
                Some((n, device)) => {
                    all.set_device(&format!("br{n}"), device.clone());
                    devices.insert(n, device);
                }
                None => {
                    all.set_tunnels(of_tunnels.clone());
                    tunnels = of_tunnels;
                }
            }
        }
        let listens = |mac: u8, dst: IpAddr, proto: u8, udp: u16| {
            let all = devices.values().flatten();
            all.into_iter().any(|d| d.mac.0[5] == mac && d.addresses.contains(&dst)).then(|| {
                let port = tunnels.iter().find(|t| match t.carrier {
                    Carrier::Udp(port) => (proto, udp) == (17, port),
                    Carrier::Gre(families) => {
                        proto == 47 && (families == Families::Both || dst.is_ipv6() == (families == Families::V6))
                    }
                    Carrier::Srv6 => [4, 41].contains(&proto) && dst.is_ipv6(),
                });
                port.map(|t| t.number)
            })?
        };
        for mac in 0..2 {
            for dst in ["1.1.1.1", "1.1.1.2", "2001::1", "2001::2"] {
                for (proto, udp) in [(17, 4789), (17, 6081), (17, 1), (47, 0), (4, 0), (41, 0), (6, 4789)] {
                    let flow = packet(mac, ip(dst), proto, udp);
                    let mut mask = Mask::none();
                    let found = all.lookup(&flow, &mut mask);
                    prop_assert_eq!(found, listens(mac, ip(dst), proto, udp), "{} {} {} {}", mac, dst, proto, udp);
                    let masked = Flow { dl_type: flow.dl_type, ..flow.masked(&mask) };
                    let masked = Flow { nw_proto: if mask.0.nw_proto == 0 { 99 } else { proto }, ..masked };
                    prop_assert_eq!(all.lookup(&masked, &mut Mask::none()), found);
                }
            }
        }
    }
}

#[test]
fn an_address_tells_its_devices() {
    let mut all = sample();
    all.set_device("br1", Some(device(1, &["1.1.2.88", "1.1.2.9"])));
    all.set_device("br2", Some(device(1, &["1.1.2.89"])));
    let holders = |all: &Listeners, address: &str| {
        all.holders(ip(address)).map(|name| name.to_string()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(holders(&all, "1.1.2.88"), "br0 br1");
    assert_eq!(holders(&all, "1.1.2.87"), "");
    all.set_device("br0", None);
    all.set_device("br1", Some(device(1, &["1.1.2.9"])));
    assert_eq!((holders(&all, "1.1.2.88"), holders(&all, "1.1.2.9")), (String::new(), "br1".to_string()));
}
