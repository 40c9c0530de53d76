//! The remaining parts give the result of a datapath with all capabilities.

use super::*;
use dpif::text::{NumbersOnly, format_actions, parse_actions};
use flow::extract::{Metadata, extract};

/// An ARP request on port 1.
fn arp() -> (Packet, FlowKey) {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend([2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2]);
    frame.resize(60, 0);
    let mut key = FlowKey::default();
    extract(&frame, &Metadata { in_port: 1, ..Metadata::default() }, 1, &mut key);
    (Packet::from_slice(&frame), key)
}

/// The remaining parts: ARP opcode, VLAN tag and actions of each.
fn left(actions: &str) -> Vec<String> {
    let (packet, key) = arp();
    let actions = parse_actions(actions, &NumbersOnly).expect(actions);
    let can = Capabilities { set_arp_nd_icmp: false, ..Capabilities::ENOUGH };
    let parts = emulate(packet, &key, &actions, &can, &mut 7).expect("they fit");
    let tell = |p: EmulatedPart| {
        let tci = p.key.base.vlan_tci & 0xfff;
        format!("op{} vlan{tci} {}", p.key.base.nw_proto, format_actions(&p.actions, &NumbersOnly))
    };
    parts.into_iter().map(tell).collect()
}

#[test]
fn rewrites_precede_only_later_actions() {
    assert_eq!(left("2,set(arp(op=2)),3,4"), ["op1 vlan0 2", "op2 vlan0 3,4"]);
    assert_eq!(
        left("push_vlan(vid=5,pcp=0),2,set(arp(op=2)),recirc(0x9)"),
        ["op1 vlan5 2", "op2 vlan5 recirc(0x9)"]
    );
    assert_eq!(left("set(arp(op=2)),pop_vlan,2"), ["op2 vlan0 pop_vlan,2"]);
    // Nothing is left.
    assert!(left("set(arp(op=2))").is_empty());
    assert_eq!(left("2,3"), ["op1 vlan0 2,3"]);
}

#[test]
fn nested_lists_see_the_packet_of_their_place() {
    assert_eq!(
        left("clone(set(arp(op=2)),2),3,clone(set(arp(op=2)),4),5"),
        ["op2 vlan0 2", "op1 vlan0 3", "op2 vlan0 4", "op1 vlan0 5"]
    );
    assert_eq!(left("sample(sample=100.0%,actions(set(arp(op=2)),2)),3"), ["op2 vlan0 2", "op1 vlan0 3"]);
    assert_eq!(left("sample(sample=0.0%,actions(set(arp(op=2)),2)),3"), ["op1 vlan0 3"]);
}

/// The packet has 60 bytes.
#[test]
fn lengths_are_compared_here_if_the_datapath_cannot() {
    let check = |len: u16| format!("check_pkt_len(size={len},gt(set(arp(op=2)),2),le(set(arp(op=3)),2)),3");
    assert_eq!(left(&check(59)), ["op2 vlan0 2", "op1 vlan0 3"]);
    assert_eq!(left(&check(60)), ["op3 vlan0 2", "op1 vlan0 3"]);
    let (packet, key) = arp();
    let actions = parse_actions("push_vlan(vid=5,pcp=0),check_pkt_len(size=63,gt(1),le(2)),3", &NumbersOnly);
    let can = Capabilities { check_pkt_len: false, ..Capabilities::ENOUGH };
    let parts = emulate(packet, &key, &actions.unwrap(), &can, &mut 7).expect("they fit");
    let actions: Vec<String> = parts.iter().map(|p| format_actions(&p.actions, &NumbersOnly)).collect();
    assert_eq!(actions, ["1", "3"]);
}

#[test]
fn a_meter_and_a_truncation_go_with_the_next_part() {
    assert_eq!(left("meter(3),set(arp(op=2)),2"), ["op2 vlan0 meter(3),2"]);
    assert_eq!(left("trunc(20),set(arp(op=2)),2,3"), ["op2 vlan0 trunc(20),2,3"]);
    // Outer headers go with all later parts.
    let [one, two] = ["1.1.1.1", "2.2.2.2"].map(|dst| format!("set(tunnel(dst={dst},ttl=64,flags(df)))"));
    assert_eq!(
        left(&format!("2,{one},3,set(arp(op=2)),3,{two},3,clone(set(arp(op=3)),3),4")),
        [
            "op1 vlan0 2".to_string(),
            format!("op1 vlan0 {one},3"),
            format!("op2 vlan0 {one},3"),
            format!("op2 vlan0 {two},3"),
            format!("op3 vlan0 {two},3"),
            format!("op2 vlan0 {two},4"),
        ]
    );
}

#[test]
fn misfits_are_errors() {
    let (packet, key) = arp();
    let actions = parse_actions("set(icmp(type=3)),2", &NumbersOnly).unwrap();
    let can = Capabilities { set_arp_nd_icmp: false, ..Capabilities::ENOUGH };
    assert_eq!(emulate(packet, &key, &actions, &can, &mut 7).map(|p| p.len()), Err(CannotEmulate));
}

/// Actions of only the other datapath cannot precede emulated ones, but may follow them or stand in its own parts.
#[test]
fn actions_that_only_the_other_datapath_has_are_left_to_it() {
    let can = Capabilities { set_arp_nd_icmp: false, ..Capabilities::ENOUGH };
    for first in [
        "push_mpls(label=1)",
        "pop_mpls(eth_type=0x800)",
        "set(mpls(ttl=9))",
        "ct",
        "ct_clear",
        "check_pkt_len(size=9,gt(ct,set(arp(op=2)),1),le(1))",
        "dec_ttl(le_1(1))",
        "dec_ttl(le_1(set(arp(op=2)),1))",
        "clone(ct,set(arp(op=2)),1)",
    ] {
        let (packet, key) = arp();
        let actions = parse_actions(&format!("{first},set(arp(op=2)),2"), &NumbersOnly).expect(first);
        let parts = emulate(packet, &key, &actions, &can, &mut 7);
        assert_eq!(parts.map(|p| p.len()), Err(CannotEmulate), "{first}");
    }
    assert_eq!(left("clone(ct,2),set(arp(op=2)),3"), ["op1 vlan0 clone(ct,2)", "op2 vlan0 3"]);
    assert_eq!(left("set(arp(op=2)),ct(commit)"), ["op2 vlan0 ct(commit)"]);
    assert_eq!(
        left("check_pkt_len(size=9,gt(1),le(2)),set(arp(op=2)),3"),
        ["op1 vlan0 check_pkt_len(size=9,gt(1),le(2))", "op2 vlan0 3"]
    );
    assert_eq!(
        left("set(arp(op=2)),check_pkt_len(size=9,gt(1),le(2))"),
        ["op2 vlan0 check_pkt_len(size=9,gt(1),le(2))"]
    );
}

/// The key of each part has all that travels beside the bytes.
#[test]
fn parts_keep_the_state_of_their_packet() {
    let (packet, key) = arp();
    let mut state = 5;
    for n in 0..200 {
        let mut flow = key.to_flow(flow::OfPort(1));
        for word in &mut flow.words_mut()[flow::Stage::Metadata.words()] {
            *word = split_mix(&mut state);
        }
        flow.packet_type = 0;
        let key = FlowKey::from_flow(&flow, DpPort(1));
        let can = Capabilities { set_arp_nd_icmp: false, ..Capabilities::ENOUGH };
        let actions = parse_actions("2,set(arp(op=2)),clone(set(arp(op=3)),recirc(0x9)),3", &NumbersOnly);
        let copy = Packet::from_slice(packet.data());
        let parts = emulate(copy, &key, &actions.unwrap(), &can, &mut 7).expect("they fit");
        let opcodes: Vec<u8> = parts.iter().map(|part| part.key.base.nw_proto).collect();
        assert_eq!(opcodes, [1, 3, 2]);
        for mut part in parts {
            part.key.base.nw_proto = key.base.nw_proto;
            assert_eq!(part.key, key, "{n}");
        }
    }
}
