//! IP fragments in each handling mode. Expectations are those of `ofproto/trace` of OVS 3.1.

use super::*;
use crate::view::FragHandling::{self, Drop, Normal, NxMatch};

const FIRST: &str = "in_port=1,tcp,nw_src=1.2.3.4,nw_dst=4.3.2.1,tp_dst=80,ip_frag=first";
const LATER: &str = "in_port=1,tcp,nw_src=1.2.3.4,nw_dst=4.3.2.1,ip_frag=later";
const WHOLE: &str = "in_port=1,tcp,nw_src=1.2.3.4,nw_dst=4.3.2.1,tp_dst=80,ip_frag=no";

fn handle(rig: &Rig, bridge: BridgeId, frags: FragHandling) {
    rig.backer.change_bridge(bridge, |b| b.frags = frags);
}

#[test]
fn rules_see_ports_of_fragments_as_the_bridge_handles_them() {
    let rig = Rig::new();
    let a = rig.a;
    let rig = rig.rules(a, "tcp,tp_dst=80,actions=2\n priority=0,actions=3");
    let eth = "recirc_id=0,eth";
    for (frags, packet, actions, megaflow) in [
        (Normal, FIRST, "3", "tcp,in_port=1,nw_frag=first,tp_dst=0x40/0xffc0"),
        (Normal, LATER, "3", "tcp,in_port=1,nw_frag=later"),
        (Normal, WHOLE, "2", "tcp,in_port=1,nw_frag=no,tp_dst=80"),
        (Drop, FIRST, "drop", "ip,in_port=1,nw_frag=first"),
        (Drop, LATER, "drop", "ip,in_port=1,nw_frag=later"),
        (Drop, WHOLE, "2", "tcp,in_port=1,nw_frag=no,tp_dst=80"),
        (NxMatch, FIRST, "2", "tcp,in_port=1,nw_frag=first,tp_dst=80"),
        (NxMatch, LATER, "3", "tcp,in_port=1,nw_frag=later"),
    ] {
        handle(&rig, a, frags);
        rig.check(packet, actions, &format!("{eth},{megaflow}"));
    }
}

#[test]
fn actions_see_the_ports_that_lookups_do_not() {
    let rig = Rig::new();
    let a = rig.a;
    let rig = rig.rules(
        a,
        "tcp,tp_dst=0,actions=move:tcp_dst->reg0[0..15],mod_tp_dst:99,resubmit(,1)
         table=1,tcp,tp_dst=0,reg0=80,actions=2
         table=1,priority=0,actions=3",
    );
    let megaflow = "recirc_id=0,eth,tcp,in_port=1,nw_frag=first,tp_dst=80";
    rig.check(FIRST, "tcp(dst=99/0xffff),2", megaflow);
    handle(&rig, a, NxMatch);
    rig.acts(FIRST, "drop");
    let later = Rig::new();
    let later = later.rules(a, "tcp,actions=mod_tp_dst:99,2");
    later.acts(LATER, "2");
}

#[test]
fn each_bridge_handles_fragments_by_itself() {
    let rig = Rig::new();
    let (a, b) = (rig.a, rig.b);
    let rig = rig.rules(a, "actions=9,2").rules(b, "tcp,tp_dst=80,actions=1\n priority=0,actions=2");
    rig.acts(FIRST, "12,2");
    handle(&rig, a, NxMatch);
    rig.acts(FIRST, "12,2");
    handle(&rig, a, Normal);
    handle(&rig, b, NxMatch);
    rig.acts(FIRST, "11,2");
    handle(&rig, b, Drop);
    let t = rig.acts(FIRST, "2");
    // The dropped packet counts as matched in its table.
    t.cache.replay(&seen(3, 300, 0), &mut rig.backer.effect_host());
    let view = rig.backer.view();
    let table = view.bridge(b).and_then(|b| b.tables.table(TableId(0))).expect("made by the rig");
    assert_eq!(table.counters.counts().1, 3);
    handle(&rig, a, Drop);
    rig.acts(FIRST, "drop");
}

#[test]
fn the_story_says_why_a_fragment_is_dropped() {
    let rig = Rig::new();
    handle(&rig, rig.a, Drop);
    let (view, flow) = (rig.backer.view(), Rig::flow(FIRST));
    let request = Request { view: &view, bridge: rig.a, flow: &flow, start: Start::Tables, trace: true };
    let story = render_trace(&translate(&request, &mut rig.backer.xlate_host(false, 1000)).trace, false);
    let why = " 0. Packets are IP fragments and the fragment handling mode is \"drop\".\n    drop\n";
    assert!(story.ends_with(why), "{story}");
}
