//! Multicast snooping: which flows a changed group affects, and packets that must change nothing.

use super::*;
use crate::mcast::McastSettings;
use l2proto::membership::{Message, Protocol, Record};
use std::net::Ipv4Addr;

fn snooping() -> Rig {
    let rig = Rig::new();
    let (a, b) = (rig.a, rig.b);
    let settings = McastSettings { flood_unregistered: false, ..McastSettings::default() };
    rig.backer.change_bridge(a, |bridge| bridge.set_mcast(Some(settings)));
    rig.rules(a, "actions=normal").rules(b, "actions=drop")
}

/// A join of 239.1.1.N, or a query, on a port.
fn tell(rig: &Rig, n: Option<u8>, vlan: u16, port: u32) {
    let group = Ipv4Addr::new(239, 1, 1, n.unwrap_or(0)).to_ipv6_mapped();
    let message = match n {
        Some(_) => Message::Single { protocol: Protocol::IgmpV2, record: Record { group, joins: true } },
        None => Message::Query,
    };
    let view = rig.backer.view();
    let table = view.bridge(rig.a).and_then(|bridge| bridge.mcast.clone()).expect("snooping");
    let mut changes = Vec::new();
    sync::lock(&table).apply(&message, (vlan, BundleId(port)), true, 1, &mut changes);
    rig.backer.mcast_changed(rig.a, &changes);
}

fn data(n: u8) -> String {
    format!("in_port=2,udp,dl_src=02:00:00:00:00:01,dl_dst=01:00:5e:01:01:0{n},nw_dst=239.1.1.{n}")
}

#[test]
fn a_change_affects_flows_of_its_group() {
    let rig = snooping();
    let flow = Rig::flow(&data(1));
    let t = rig.translate(&flow, true);
    let (key, mask) = (flow::FlowKey::default(), flow::KeyMask::default());
    let packed = flow::PackedFlow::new(&key, &mask);
    let is_affected = |since: u64| rig.backer.changes_since(since).affect(since, &t.lookups, &packed);
    let epoch = rig.backer.epoch();
    tell(&rig, Some(1), 0, 3);
    assert!(is_affected(epoch));
    let epoch = rig.backer.epoch();
    // A member that is refreshed, and a flow that is no multicast.
    tell(&rig, Some(1), 0, 3);
    assert_eq!(rig.backer.epoch(), epoch);
    let unicast = rig.translate(&Rig::flow("in_port=2,udp,dl_dst=02:00:00:00:00:09"), true);
    tell(&rig, Some(2), 0, 3);
    assert!(!rig.backer.changes_since(epoch).affect(epoch, &unicast.lookups, &packed));
    let epoch = rig.backer.epoch();
    tell(&rig, None, 0, 4);
    assert!(is_affected(epoch));
    rig.acts(&data(1), "3,4");
    rig.acts(&data(9), "4");
}

/// Only a packet teaches: a flow that is translated again does not.
#[test]
fn translation_without_a_packet_learns_nothing() {
    let rig = snooping();
    let mut flow = Rig::flow("in_port=2,ip,nw_proto=2,dl_dst=01:00:5e:01:01:01,nw_dst=239.1.1.1");
    flow.tp_src = 0x16;
    let t = rig.translate(&flow, true);
    assert_eq!((show(&t.actions).as_str(), t.slow_reasons), ("drop", dpif::SlowReason::Action.bit()));
    let view = rig.backer.view();
    let table = view.bridge(rig.a).and_then(|bridge| bridge.mcast.clone()).expect("snooping");
    assert!(sync::lock(&table).is_empty());
}
