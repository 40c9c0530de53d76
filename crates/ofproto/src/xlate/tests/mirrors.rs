//! Mirrors beyond the traces beside OVS (`dummy::mirrors` of `sluiced`): masks, counters, states, bounds.

use super::*;
use crate::mirror::{Mirror, MirrorCounters, MirrorFilter, MirrorOutput, Mirrors, Selected};
use sync::Ordering;

/// A mirror of all ports of bridge `a` with that output.
fn mirrored(
    rig: &Rig,
    bridge: BridgeId,
    outputs: &[MirrorOutput],
    change: fn(&mut Mirror),
) -> Vec<Arc<MirrorCounters>> {
    let all: Vec<BundleId> = [1, 2, 3, 4, 9].map(BundleId).into();
    let mirrors = outputs.iter().zip(0..).map(|(output, place)| {
        let mut mirror = Mirror {
            id: place.into(),
            place,
            name: format!("m{place}"),
            output: *output,
            vlans: None,
            snaplen: 0,
            filter: None,
            counters: Arc::default(),
        };
        change(&mut mirror);
        (mirror, Selected { received: all.clone(), sent: all.clone() })
    });
    let mirrors = Arc::new(Mirrors::new(mirrors));
    let counters = mirrors.iter().map(|mirror| mirror.counters.clone()).collect();
    rig.backer.change_bridge(bridge, |b| b.mirrors = Some(mirrors));
    counters
}

const TO_4: MirrorOutput = MirrorOutput::Bundle(BundleId(4));

#[test]
fn a_mirror_counts_each_copy_and_masks_have_what_copies_depend_on() {
    let rig = Rig::with(&[(3, Vlan::Access(7))]);
    let a = rig.a;
    let rig = rig.rules(a, "in_port=1,actions=2\n in_port=2,actions=drop");
    let eth = "in_port=1,dl_type=0x1234,dl_dst=02:00:00:00:00:02";
    let counters = mirrored(&rig, a, &[TO_4], |_| {});
    let t = rig.check(eth, "4,2", "recirc_id=0,eth,in_port=1,dl_type=0x1234");
    t.cache.replay(&seen(3, 300, 5), &mut rig.backer.effect_host());
    assert_eq!(counters[0].packets.load(Ordering::Relaxed), 3);
    assert_eq!(counters[0].bytes.load(Ordering::Relaxed), 300);
    mirrored(&rig, a, &[MirrorOutput::Vlan(7)], |_| {});
    let copies = "push_vlan(0x8100,vid=7,pcp=0),1,2,pop_vlan,3,push_vlan(0x8100,vid=7,pcp=0),4,pop_vlan,2";
    rig.acts("in_port=1,dl_type=0x1234,dl_dst=01:80:c2:00:00:01", "2");
    let t = rig.translate(&Rig::flow(eth), true);
    assert!(show(&t.actions).starts_with(copies.split(",4").next().unwrap()), "{}", show(&t.actions));
    assert_eq!(t.wc.0.dl_dst, [0xff; 6]);
}

#[test]
fn the_state_of_a_packet_has_its_mirrors() {
    let rig = Rig::new();
    let a = rig.a;
    let rig = rig.rules(a, "in_port=1,actions=debug_recirc,2\n in_port=2,actions=dec_ttl,debug_recirc,1");
    mirrored(&rig, a, &[TO_4], |_| {});
    let t = rig.translate(&Rig::flow(TCP), true);
    rig.thaw(TCP, &t, "2");
    // Changed since, it is received again.
    let from_2 = TCP.replace("in_port=1", "in_port=2");
    let t = rig.translate(&Rig::flow(&from_2), true);
    rig.thaw(&from_2, &t, "4,1");
}

/// As OVS 3.5: the packet is copied again behind a translation, by its addresses as they are then, and not behind another `ct`.
#[test]
fn a_translated_packet_has_copies_of_its_own() {
    for (ct, rest, thawed) in [("nat", "2,4", "4,2"), ("zone=3", "2", "2")] {
        let rig = Rig::new();
        let a = rig.a;
        let rules = format!("table=0,in_port=1,ip,actions=ct(table=5,{ct}),2\n table=5,actions=2");
        let rig = rig.rules(a, &rules);
        mirrored(&rig, a, &[TO_4], |_| {});
        let t = rig.translate(&Rig::flow(TCP), true);
        let shown = show(&t.actions);
        assert!(shown.starts_with("4,Ct(") && shown.ends_with(&format!("),recirc(1),{rest}")), "{shown}");
        rig.thaw(TCP, &t, thawed);
    }
}

/// OVS copies the longer packets only.
#[test]
fn both_cases_of_a_length_check_have_their_copies() {
    let rig = Rig::new();
    let a = rig.a;
    let rig = rig.rules(
        a,
        "in_port=9,actions=drop\n in_port=1,actions=dec_ttl,check_pkt_larger(100)->NXM_NX_REG0[0],2",
    );
    mirrored(&rig, a, &[TO_4], |_| {});
    let t = rig.translate(&Rig::flow(TCP), true);
    assert!(show(&t.actions).ends_with("check_pkt_len(size=100,gt(2,4),le(2,4))"), "{}", show(&t.actions));
}

#[test]
fn a_filter_is_in_the_mask() {
    let rig = Rig::new();
    let a = rig.a;
    let rig = rig.rules(a, "in_port=1,actions=2");
    mirrored(&rig, a, &[TO_4], |mirror| {
        mirror.filter = Some(Arc::new(MirrorFilter::parse("tcp,tp_dst=80").unwrap()));
    });
    rig.check(TCP, "4,2", "recirc_id=0,eth,tcp,in_port=1,nw_frag=no,tp_dst=80");
}

/// Each bridge copies whatever it receives and sends to the other: the bounds of translations hold.
#[test]
fn mirrors_that_copy_into_each_other_end() {
    let rig = Rig::new();
    let (a, b) = (rig.a, rig.b);
    let rig = rig.rules(a, "actions=2,9,dec_ttl,9,flood").rules(b, "actions=1,9,dec_ttl,flood");
    for outputs in
        [vec![MirrorOutput::Vlan(5)], vec![MirrorOutput::Bundle(BundleId(9)), TO_4, MirrorOutput::Vlan(0)]]
    {
        mirrored(&rig, a, &outputs, |_| {});
        mirrored(&rig, b, &outputs, |_| {});
        let t = rig.translate(&Rig::flow(TCP), true);
        assert!(t.actions.len() <= 2 * MAX_ACTIONS, "{}", t.actions.len());
    }
}
