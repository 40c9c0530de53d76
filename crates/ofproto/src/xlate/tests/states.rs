//! All that travels beside a packet's bytes comes back whole from a recirculation and behind a patch port.

use super::*;
use crate::packet_state::PacketState;
use flow::Stage;

/// A UDP packet from port 1 of a connection through a tunnel, each other word of whose state is random or 0.
fn random_flow(state: &mut u64) -> Flow {
    let mut random = || {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if *state >> 62 == 0 { 0 } else { (*state >> 32) ^ (*state << 13) }
    };
    let bytes = Rig::flow("in_port=1,udp,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=64,tp_src=1,tp_dst=80");
    let mut flow = Flow::default();
    for word in &mut flow.words_mut()[Stage::Metadata.words()] {
        *word = random();
    }
    for range in [Stage::L2, Stage::L3, Stage::L4].map(Stage::words) {
        flow.words_mut()[range.clone()].copy_from_slice(&bytes.words()[range]);
    }
    // The words have no padding, and these have other ways.
    (flow.pad1, flow.pad2, flow.conj_id, flow.recirc_id) = (0, 0, 0, 0);
    (flow.actset_output, flow.packet_type, flow.in_port) = (OfPort::UNSET.0, 0, 1);
    // As a tunnel has them; options by their presence.
    let tunnel = flow.tunnel();
    flow.set_tunnel(&tunnel);
    flow.tun_tp_src = 0;
    let present = flow.tun_metadata_present;
    if present == 0 {
        flow.clear_metadata();
    }
    flow
}

/// The state frozen under the first recirculation id of a translation.
fn frozen(rig: &Rig, t: &Translation) -> PacketState {
    rig.backer.recirc_state(*t.recircs.first().expect("it froze")).expect("held").packet.clone()
}

#[test]
fn a_recirculated_packet_has_the_same_state() {
    let rig = Rig::new();
    let a = rig.a;
    let rig = rig.rules(
        a,
        "actions=push:NXM_NX_REG0[],write_actions(output:2),goto_table:1\n\
                            table=1 actions=debug_recirc,resubmit(,2)\n\
                            table=2 actions=debug_recirc,3",
    );
    let mut state = 1;
    for n in 0..500 {
        let flow = random_flow(&mut state);
        let t = rig.translate(&flow, true);
        let before = frozen(&rig, &t);
        assert_eq!(before.stack, [flow.regs[0].to_be_bytes()], "{n}");
        let mut expected = PacketState::of(&flow, OfPort(1), false);
        (expected.stack, expected.action_set) = (before.stack.clone(), before.action_set.clone());
        assert_eq!((before.action_set.len(), &before), (1, &expected), "{n}");
        // The datapath keeps the key; the next one changes nothing.
        let key = flow::FlowKey::from_flow(&flow, DpPort(1));
        let again = Flow { recirc_id: t.recircs[0].0, ..key.to_flow(OfPort(1)) };
        let t = rig.translate(&again, true);
        assert_eq!(frozen(&rig, &t), before, "{n}");
        let mut expected = Flow { recirc_id: again.recirc_id, ..flow };
        expected.clear_conntrack();
        expected.actset_output = 2;
        assert_eq!(t.final_flow, expected, "{n}");
    }
}

#[test]
fn a_packet_keeps_its_state_beside_a_patch_port() {
    let rig = Rig::new();
    let (a, b) = (rig.a, rig.b);
    let rig = rig
        .rules(a, "actions=push:NXM_NX_REG0[],9,debug_recirc,3")
        .rules(b, "actions=load:7->NXM_NX_REG0[],load:8->NXM_NX_TUN_ID[],push:NXM_NX_REG1[],controller");
    let mut state = 2;
    for n in 0..500 {
        let flow = random_flow(&mut state);
        let t = rig.translate(&flow, true);
        let mut there = PacketState::received_by(PATCH);
        (there.regs[0], there.tunnel.id, there.stack) = (7, 8, vec![vec![0; 4]]);
        assert_eq!(frozen(&rig, &t), there, "{n}");
        let mut expected = PacketState::of(&flow, OfPort(1), false);
        expected.stack = vec![flow.regs[0].to_be_bytes().to_vec()];
        let here = rig.backer.recirc_state(t.recircs[1]).expect("held").packet.clone();
        assert_eq!(here, expected, "{n}");
        // The marks and the priority of the packet cross.
        assert_eq!((t.final_flow.pkt_mark, t.final_flow.skb_priority), (flow.pkt_mark, flow.skb_priority));
    }
}
