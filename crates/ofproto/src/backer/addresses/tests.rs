//! Addresses that outlive a change of ports, as `fdb/show` of OVS 3.5 lists them.

use crate::backer::Backer;
use crate::ids::{BridgeId, BundleId};
use crate::mac_table::MacTable;
use crate::ports::{Bundle, PortTable, PriorityTags, VlanMode, VlanSet};
use flow::MacAddr;
use std::sync::Arc;
use sync::lock;

const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const C: MacAddr = MacAddr([2, 0, 0, 0, 0, 3]);
const P1: BundleId = BundleId(1);
const P2: BundleId = BundleId(2);

fn trunk(id: BundleId) -> Bundle {
    Bundle {
        id,
        name: format!("p{}", id.0),
        members: Vec::new(),
        vlan_mode: VlanMode::Trunk,
        tag: 0,
        trunks: None,
        cvlans: None,
        qinq_tpid: 0x88a8,
        mcast_flood: false,
        mcast_flood_reports: false,
        priority_tags: PriorityTags::Never,
        protected: false,
        floodable: true,
        bond: None,
    }
}

fn table(bundles: impl IntoIterator<Item = Bundle>) -> PortTable {
    let bundles = bundles.into_iter().map(|b| (b.id, Arc::new(b))).collect();
    PortTable { bundles, ..PortTable::default() }
}

fn with<R>(backer: &Backer, id: BridgeId, f: impl FnOnce(&mut MacTable) -> R) -> R {
    let view = backer.view();
    f(&mut lock(&view.bridge(id).expect("a bridge of the test").macs))
}

/// A bridge with port 1, which learned `A` and has the static address `B`, and port 2, which learned `C`.
fn bridge_of_two() -> (Backer, BridgeId) {
    let backer = Backer::new(1);
    let id = backer.add_bridge("br0");
    backer.set_ports(id, table([trunk(P1), trunk(P2)]));
    with(&backer, id, |macs| {
        macs.learn(5, A, P1, 1);
        macs.add_static(5, B, P1);
        macs.learn(5, C, P2, 1);
    });
    (backer, id)
}

#[test]
fn a_port_with_other_settings_loses_its_addresses() {
    let plain = trunk(P1);
    for (changed, keeps) in [
        (plain.clone(), true),
        (Bundle { floodable: false, name: "other".to_string(), ..plain.clone() }, true),
        (Bundle { protected: true, ..plain.clone() }, false),
        (Bundle { trunks: Some(VlanSet::new([5])), ..plain.clone() }, false),
        (Bundle { priority_tags: PriorityTags::Always, ..plain.clone() }, false),
        (Bundle { vlan_mode: VlanMode::Access, tag: 5, ..plain.clone() }, false),
        (Bundle { vlan_mode: VlanMode::NativeTagged, ..plain.clone() }, false),
        (Bundle { vlan_mode: VlanMode::NativeUntagged, ..plain.clone() }, false),
        (Bundle { vlan_mode: VlanMode::Dot1qTunnel, ..plain.clone() }, false),
        (Bundle { cvlans: Some(VlanSet::new([5])), ..plain.clone() }, false),
        (Bundle { qinq_tpid: 0x8100, ..plain.clone() }, false),
    ] {
        let (backer, id) = bridge_of_two();
        let shown = format!("{changed:?}");
        backer.set_ports(id, table([changed, trunk(P2)]));
        let known = with(&backer, id, |macs| [A, B, C].map(|mac| macs.lookup(5, mac).is_some()));
        assert_eq!(known, [keeps, keeps, true], "{shown}");
    }
}

/// The address that a removed port had moves with no packet: the bridge behind a patch port forgets it, too.
#[test]
fn a_removed_port_takes_its_addresses_from_all_bridges() {
    let by_ports: fn(&Backer, BridgeId) = |backer, id| backer.set_ports(id, table([trunk(P2)]));
    let by_bridge: fn(&Backer, BridgeId) = |backer, id| backer.remove_bridge(id);
    for (remove, keeps_c) in [(by_ports, true), (by_bridge, false)] {
        let (backer, id) = bridge_of_two();
        let other = backer.add_bridge("br1");
        with(&backer, other, |macs| {
            macs.learn(5, A, P1, 1);
            macs.add_static(5, B, P1);
            macs.learn(5, C, P1, 1);
            macs.learn(6, A, P1, 1);
        });
        remove(&backer, id);
        let known = with(&backer, other, |macs| {
            [(5, A), (5, B), (5, C), (6, A)].map(|(vlan, mac)| macs.lookup(vlan, mac).is_some())
        });
        assert_eq!(known, [false, false, keeps_c, true]);
    }
}
