//! Bonds. Expectations are those of `ofproto/trace` of OVS 3.5.

use super::*;
use crate::bond::{Bond, BondMode, BondSettings, LacpStatus, MemberLink};
use flow::RecircId;

const FRAME: &str = "in_port=1,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:05";

/// A rig whose ports 2 and 3 are a bond.
fn rig(settings: BondSettings) -> (Rig, Arc<Bond>) {
    let rig = Rig::new();
    let bond = Arc::new(Bond::new("bond0", settings, 0));
    let view = rig.backer.view();
    let mut ports = view.bridge(rig.a).expect("made by the rig").ports.as_ref().clone();
    let bundle = Bundle {
        members: vec![OfPort(2), OfPort(3)],
        bond: Some(bond.clone()),
        ..ports.bundles[&BundleId(2)].as_ref().clone()
    };
    ports.bundles.remove(&BundleId(3));
    ports.bundles.insert(BundleId(2), Arc::new(bundle));
    let port = Port { bundle: BundleId(2), ..ports.ports[&OfPort(3)].as_ref().clone() };
    ports.ports.insert(OfPort(3), Arc::new(port));
    rig.backer.set_ports(rig.a, ports);
    bond.set_recirc_id(rig.backer.hold_bond(rig.a, BundleId(2)));
    let member = |n: u32| MemberLink {
        name: format!("p{n}"),
        port: OfPort(n),
        mac: MacAddr([2, 0, 0, 0, 0, n as u8]),
        carrier: true,
        may_enable: true,
    };
    bond.update(0, |state| state.set_members(&[member(2), member(3)]));
    let a = rig.a;
    (rig.rules(a, "actions=normal"), bond)
}

fn mode(mode: BondMode) -> BondSettings {
    BondSettings { mode, rebalance_ms: 10_000, ..BondSettings::default() }
}

#[test]
fn one_member_sends_and_takes() {
    let (rig, bond) = rig(mode(BondMode::ActiveBackup));
    rig.acts(FRAME, "2,4");
    rig.acts("in_port=2,dl_src=50:54:00:00:00:07,dl_dst=ff:ff:ff:ff:ff:ff", "1,4");
    let t = rig.acts("in_port=3,dl_src=50:54:00:00:00:07,dl_dst=50:54:00:00:00:09", "drop");
    let before = rig.backer.epoch();
    bond.update(1, |state| assert!(state.set_link("p2", false, false)));
    rig.backer.bond_changed(rig.a, BundleId(2));
    rig.acts(FRAME, "3,4");
    rig.acts("in_port=3,dl_src=50:54:00:00:00:07,dl_dst=50:54:00:00:00:09", "1,4");
    // The change affects those that looked at the bond, and no other.
    let flow = Rig::flow(FRAME);
    let key = flow::FlowKey::from_flow(&flow, DpPort(1));
    let packed = flow::PackedFlow::new(&key, &rig.backer.mask_of(&t, &key));
    let changes = rig.backer.changes_since(before);
    assert!(changes.affect(before, &t.lookups, &packed));
    assert!(!changes.affect(before, &crate::changes::Lookups::default(), &packed));
}

#[test]
fn addresses_are_learned_at_the_bond() {
    let (rig, _) = rig(mode(BondMode::BalanceSlb));
    let t = rig.acts("in_port=3,dl_src=50:54:00:00:00:07,dl_dst=50:54:00:00:00:09", "1,4");
    t.cache.replay(&seen(1, 60, 1), &mut rig.backer.effect_host());
    rig.acts("in_port=1,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:07", "2");
    rig.acts("in_port=2,dl_src=50:54:00:00:00:08,dl_dst=50:54:00:00:00:07", "drop");
}

#[test]
fn frames_that_come_back_are_dropped() {
    let (rig, _) = rig(mode(BondMode::BalanceSlb));
    let t = rig.acts(FRAME, "2,4");
    t.cache.replay(&seen(1, 60, 1), &mut rig.backer.effect_host());
    rig.acts("in_port=3,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:05", "drop");
    // A host that moved tells by ARP.
    let arp =
        "arp,in_port=2,dl_src=50:54:00:00:00:01,dl_dst=ff:ff:ff:ff:ff:ff,arp_spa=1.1.1.1,arp_tpa=1.1.1.1";
    let mask = "recirc_id=0,eth,arp,in_port=2,vlan_tci=0x0000/0x1fff,dl_src=50:54:00:00:00:01,dl_dst=ff:ff:ff:ff:ff:ff";
    rig.check(&format!("{arp},arp_op=2"), "1,4", &format!("{mask},arp_op=2"));
    let request = format!("{mask},arp_spa=1.1.1.1,arp_tpa=1.1.1.1,arp_op=1");
    rig.check(&format!("{arp},arp_op=1"), "1,4", &request);
    rig.acts(&format!("{arp},arp_op=1").replace("arp_tpa=1.1.1.1", "arp_tpa=1.1.1.2"), "drop");
}

#[test]
fn an_announcement_that_a_bond_reflects_moves_no_host() {
    let (rig, _) = rig(mode(BondMode::BalanceSlb));
    let arp = |port: u32| {
        format!(
            "arp,in_port={port},dl_src=50:54:00:00:00:01,dl_dst=ff:ff:ff:ff:ff:ff,arp_spa=1.1.1.1,arp_tpa=1.1.1.1,arp_op=1"
        )
    };
    let t = rig.acts(&arp(1), "2,4");
    t.cache.replay(&seen(1, 60, 1000), &mut rig.backer.effect_host());
    rig.acts(&arp(2), "drop");
    // The rig translates at 1000 ms; a host may move five seconds later.
    t.cache.replay(&seen(1, 60, 1001), &mut rig.backer.effect_host());
    let macs = rig.backer.view().bridge(rig.a).expect("made by the rig").macs.clone();
    let mac = MacAddr([0x50, 0x54, 0, 0, 0, 1]);
    let held = [1000, 6000, 6001].map(|now_ms| sync::lock(&macs).is_held(0, mac, now_ms));
    assert_eq!(held, [true, true, false]);
}

#[test]
fn a_balanced_bond_counts_bytes_by_hash() {
    let (rig, bond) = rig(mode(BondMode::BalanceSlb));
    let t = rig.acts(FRAME, "2,4");
    t.cache.replay(&seen(10, 20_000, 1), &mut rig.backer.effect_host());
    let hash = crate::bond::slb_hash(MacAddr([0x50, 0x54, 0, 0, 0, 1]), 0, 0);
    assert!(bond.show(0).contains(&format!(
        "member p2: enabled\n  active member\n  may_enable: true\n  hash {hash}: 19 kB load\n"
    )));
}

#[test]
fn the_datapath_hashes_packets_of_balance_tcp() {
    let (rig, bond) = rig(BondSettings { lacp: true, ..mode(BondMode::BalanceTcp) });
    rig.acts(FRAME, "4");
    bond.update(0, |state| state.set_lacp(LacpStatus::Negotiated, 0));
    let id = bond.recirc_id().expect("it balances");
    let tcp = "in_port=1,tcp,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:05,nw_src=1.1.1.1,tp_src=5";
    let mask = "recirc_id=0,eth,ip,in_port=1,vlan_tci=0x0000/0x1fff,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:05,nw_frag=no";
    let t =
        rig.check(tcp, &format!("Hash(HashAction {{ algorithm: L4, basis: 0 }}),recirc({}),4", id.0), mask);
    assert_eq!(t.recircs, [id]);
    assert_eq!(bond.state().hash_rules().len(), 256);
    let Some(members) = bond.state().all_hashed() else { panic!("each hash has a member") };
    for hash in [1, 7, 200] {
        let back = format!("recirc_id={:#x},dp_hash={:#x},{tcp}", id.0, 0x1200 + hash);
        let flow = Rig::flow(&back);
        let t = rig.translate(&flow, true);
        assert_eq!(show(&t.actions), members[hash].to_string(), "{back}");
        let mask = format!("recirc_id={:#x},dp_hash={hash:#x}/0xff,eth,ip,in_port=1,nw_frag=no", id.0);
        assert_eq!(format_megaflow(&flow, &t.wc), mask);
        t.cache.replay(&seen(1, 4096, 1), &mut rig.backer.effect_host());
        assert!(bond.show(0).contains(&format!("  hash {hash}: 4 kB load\n")));
    }
    let state = rig.backer.recirc_state(RecircId(id.0)).expect("the bond holds it");
    assert_eq!((state.table, state.bond), (TableId(254), Some(BundleId(2))));
}

#[test]
fn the_trace_of_a_hashed_packet_has_the_rule_of_the_hash() {
    let (rig, bond) = rig(BondSettings { lacp: true, ..mode(BondMode::BalanceTcp) });
    bond.update(0, |state| state.set_lacp(LacpStatus::Negotiated, 0));
    let id = bond.recirc_id().expect("it balances").0;
    let port = bond.state().hashed(7).expect("it has members");
    let text = format!("recirc_id={id:#x},dp_hash=0x7,{FRAME}");
    let view = rig.backer.view();
    let flow = Rig::flow(&text);
    let request = Request { view: &view, bridge: rig.a, flow: &flow, start: Start::Tables, trace: true };
    let t = translate(&request, &mut rig.backer.xlate_host(false, 0));
    let shown = render_trace(&t.trace, false);
    let expected = format!(
        "    thaw\n        Resuming from table 254\n254. recirc_id={id:#x},dp_hash=0x7/0xff, priority 20\n    output:{port}\n"
    );
    assert!(shown.ends_with(&expected), "{shown}");
}

#[test]
fn the_datapath_balances_by_itself() {
    let settings = BondSettings { lacp: true, lb_output: true, ..mode(BondMode::BalanceTcp) };
    let (rig, bond) = rig(settings);
    bond.update(0, |state| state.set_lacp(LacpStatus::Negotiated, 0));
    let id = bond.recirc_id().expect("it balances").0;
    let t = rig.translate(&Rig::flow(FRAME), true);
    let lb: DpAction = dpif::actions::LbOutput(id).into();
    assert_eq!(t.actions[0], lb);
    assert!(t.recircs.is_empty());
}
