//! Rewrites that are not executed, queues and tags. Expectations are those of `ofproto/trace` of OVS 3.1.

use super::*;

/// Actions and megaflow of a packet of port 1 under one rule, whose megaflow begins with `recirc_id=0,eth`.
fn check(rule: &str, packet: &str, actions: &str, megaflow: &str) {
    let rig = Rig::new();
    let a = rig.a;
    let packet = format!("in_port=1,{packet}");
    rig.rules(a, rule).check(&packet, actions, &format!("recirc_id=0,{megaflow}"));
}

/// Unlike OVS, the action shows reserved bytes only if it sets them, and their mask.
#[test]
fn extensions_of_neighbour_discovery_are_matched_and_rewritten() {
    let nd = "icmp6,icmp_type=135,icmp_code=0";
    for (rule, packet, actions, megaflow) in [
        (",nd_reserved=0x10,actions=2", "", "drop", ",nd_reserved=0"),
        (",nd_reserved=0x10,actions=2", ",nd_reserved=16", "2", ",nd_reserved=16"),
        (",nd_options_type=1,actions=2", "", "drop", ",nd_options_type=0"),
        (",nd_options_type=1,actions=2", ",nd_reserved=16,nd_options_type=1", "2", ",nd_options_type=1"),
        (
            ",actions=set_field:0x20->nd_reserved,2",
            ",nd_reserved=16",
            "set(nd_ext(nd_reserved=0x20)),2",
            ",nd_reserved=16",
        ),
        (
            ",actions=set_field:2->nd_options_type,2",
            "",
            "set(nd_ext(nd_options_type=2)),2",
            ",nd_options_type=0x0/0xff",
        ),
        (
            ",actions=load:5->nd_reserved[4..7],2",
            "",
            "set(nd_ext(nd_reserved=0x50/0xf0)),2",
            ",nd_reserved=0x00000000/0x000000f0",
        ),
        (
            ",actions=load:3->nd_options_type[0..1],2",
            ",nd_options_type=1",
            "set(nd_ext(nd_options_type=3/0x3)),2",
            ",nd_options_type=0x1/0x3",
        ),
        (
            ",actions=set_field:5->nd_reserved,set_field:fe80::9->nd_target,2",
            ",nd_reserved=16",
            "set(nd_ext(nd_reserved=0x5)),set(nd(target=fe80::9)),2",
            ",nd_target=fe80::3,nd_reserved=16",
        ),
    ] {
        let packet = format!("icmp6,icmpv6_type=135,icmpv6_code=0,nd_target=fe80::3{packet}");
        let rig = Rig::new();
        let a = rig.a;
        let rig = rig.rules(a, &format!("{nd}{rule}"));
        let flow = Rig::flow(&format!("in_port=1,{packet}"));
        let t = rig.translate(&flow, true);
        let head = "recirc_id=0,eth,icmp6,in_port=1,nw_frag=no,icmp_type=0x87/0xff,icmp_code=0x0/0xff";
        assert_eq!(format_megaflow(&flow, &t.wc), format!("{head}{megaflow}"), "{rule} {packet}");
        let shown = dpif::text::format_actions(&t.actions, &dpif::text::NumbersOnly);
        assert_eq!(shown, actions, "{rule} {packet}");
    }
}

#[test]
fn packets_without_a_protocol_are_not_rewritten() {
    let arp = |op: u16, set: &str| format!("arp(op={op:#x},{set})");
    for (rule, packet, actions, megaflow) in [
        (
            "ip,actions=mod_nw_src:1.1.1.1,2",
            "ip,nw_proto=9,nw_src=1.2.3.4",
            "ipv4(src=1.1.1.1/255.255.255.255),2",
            "eth,ip,in_port=1,nw_src=1.2.3.4,nw_proto=9,nw_frag=no",
        ),
        (
            "ip,actions=mod_nw_src:1.1.1.1,2",
            "ip,nw_proto=0,nw_src=1.2.3.4",
            "2",
            "eth,ip,in_port=1,nw_src=1.2.3.4,nw_proto=0,nw_frag=no",
        ),
        (
            "ip,actions=set_field:1.1.1.1->ip_src,2",
            "ip,nw_proto=0,nw_src=1.1.1.1",
            "2",
            "eth,ip,in_port=1,nw_src=1.1.1.1,nw_proto=0,nw_frag=no",
        ),
        ("ip,actions=dec_ttl,2", "ip,nw_ttl=64", "2", "eth,ip,in_port=1,nw_proto=0,nw_ttl=64,nw_frag=no"),
        (
            "ip,actions=dec_ttl,2",
            "ip,nw_proto=9,nw_ttl=64",
            "ipv4(ttl=63),2",
            "eth,ip,in_port=1,nw_proto=9,nw_ttl=64,nw_frag=no",
        ),
        ("ip,actions=set_field:3->ip_dscp,2", "ip,nw_tos=12", "2", "eth,ip,in_port=1,nw_tos=12,nw_frag=no"),
        (
            "ip,actions=move:NXM_OF_IP_SRC[]->NXM_NX_REG0[],2",
            "ip,nw_src=1.2.3.4",
            "2",
            "eth,ip,in_port=1,nw_src=1.2.3.4,nw_frag=no",
        ),
        (
            "ipv6,actions=set_field:fe80::1->ipv6_src,2",
            "ipv6",
            "2",
            "eth,ipv6,in_port=1,ipv6_src=::,nw_proto=0,nw_frag=no",
        ),
        (
            "arp,actions=set_field:9.9.9.9->arp_spa,2",
            "arp,arp_op=0,arp_spa=1.1.1.1",
            "2",
            "eth,arp,in_port=1,arp_spa=1.1.1.1,arp_op=0",
        ),
        (
            "arp,actions=set_field:9.9.9.9->arp_spa,2",
            "arp,arp_op=1,arp_spa=9.9.9.9",
            "2",
            "eth,arp,in_port=1,arp_spa=9.9.9.9,arp_op=1",
        ),
        ("arp,actions=set_field:0->arp_op,2", "arp,arp_op=1", "2", "eth,arp,in_port=1,arp_op=1"),
    ] {
        check(rule, packet, actions, megaflow);
    }
    let rig = Rig::new();
    let a = rig.a;
    let rig = rig.rules(a, "arp,actions=set_field:3->arp_op,set_field:9.9.9.9->arp_spa,2");
    for op in [0, 1] {
        let t = rig.translate(&Rig::flow(&format!("in_port=1,arp,arp_op={op}")), true);
        let Some(DpAction::Set(SetAction::Arp(set))) = t.actions.first() else { panic!("{:?}", t.actions) };
        assert_eq!(
            (arp(set.value.op, ""), set.mask.op, set.mask.spa, set.mask.tpa),
            (arp(3, ""), u16::MAX, u32::MAX, 0)
        );
    }
}

#[test]
fn queues_are_priorities_of_packets() {
    let megaflow = "skb_priority=0,eth,arp,in_port=1";
    let megaflow = format!("recirc_id=0,{megaflow}");
    for (actions, expected) in [
        ("set_queue:5,2", "priority(0x5),2"),
        ("set_queue:5,2,pop_queue,3", "priority(0x5),2,priority(0x0),3"),
        ("set_queue:0,2", "2"),
        ("pop_queue,2", "2"),
        ("set_queue:4294967295,2", "priority(0xffffffff),2"),
        ("set_queue:5,resubmit(,1),2", "priority(0x6),3,2"),
        // An output to the input port is dropped, unless it is `IN_PORT`.
        (
            "set_queue:4,enqueue:3:9,enqueue:in_port:9,enqueue:1:9,2,pop_queue,3",
            "priority(0x9),3,1,priority(0x4),2,priority(0x0),3",
        ),
        // A bridge restores the priority changed by its peer.
        ("9,2", "priority(0x7),11,priority(0x0),2"),
        ("enqueue:99:7,3", "3"),
    ] {
        let rig = Rig::new();
        let (a, b) = (rig.a, rig.b);
        let rules = format!("actions={actions}\n table=1,actions=set_queue:6,3");
        rig.rules(a, &rules).rules(b, "actions=set_queue:7,1").check("in_port=1,arp", expected, &megaflow);
    }
}

#[test]
fn a_new_tag_starts_from_zero() {
    for (actions, expected) in [
        ("push_vlan:0x8100,2", "push_vlan(0x8100,vid=0,pcp=0),2"),
        (
            "push_vlan:0x8100,set_field:4103->vlan_vid,push_vlan:0x8100,set_field:4104->vlan_vid,2,pop_vlan,3,pop_vlan,4",
            "pop_vlan,push_vlan(0x8100,vid=7,pcp=0),push_vlan(0x8100,vid=8,pcp=0),2,pop_vlan,3,pop_vlan,4",
        ),
        // Tag bits without the present bit are visible to rules only.
        ("load:5->NXM_OF_VLAN_TCI[],resubmit(,1)", "pop_vlan,3"),
        ("load:0->NXM_OF_VLAN_TCI[],resubmit(,1)", "pop_vlan,4"),
        ("load:0x1006->NXM_OF_VLAN_TCI[],2", "pop_vlan,push_vlan(0x8100,vid=6,pcp=0),2"),
    ] {
        let rig = Rig::new();
        let a = rig.a;
        let rules =
            format!("actions={actions}\n table=1,vlan_tci=5,actions=3\n table=1,vlan_tci=0,actions=4");
        rig.rules(a, &rules).acts("in_port=1,dl_vlan=5,dl_vlan_pcp=3,dl_type=0x1234", expected);
    }
}

#[test]
fn masks_have_no_tunnel_where_there_is_none() {
    let rules =
        "tun_id=5,actions=2\n tun_src=1.2.3.4,actions=3\n priority=0,actions=load:1->NXM_NX_TUN_ID[],4";
    check(rules, "tcp", "4", "eth,ip,in_port=1,nw_frag=no");
}

/// As [`check`], with actions as text, with masked sets or without.
fn check_text(masked_set: bool, rule: &str, packet: &str, actions: &str, megaflow: &str) {
    let rig = Rig::new();
    let a = rig.a;
    let rig = rig.rules(a, rule);
    rig.backer.set_features(dpif::Capabilities { masked_set, ..rig.backer.features() });
    let flow = Rig::flow(&format!("in_port=1,{packet}"));
    let t = rig.translate(&flow, true);
    let text = dpif::actions::format_actions(&t.actions, &dpif::text::NumbersOnly);
    let mask = format_megaflow(&flow, &t.wc).replace("recirc_id=0,", "");
    assert_eq!((text.as_str(), mask.as_str()), (actions, megaflow), "{rule}");
}

/// Megaflows of OVS 3.5: a move, a pop and a set-field of the DSCP examine no protocol of IP packets, other writes do.
/// Unlike in OVS, where the first packet of a megaflow decides, packets of protocol 0 are rewritten as all others are.
#[test]
fn moved_and_popped_fields_examine_no_protocol() {
    let udp = "udp,nw_src=1.1.1.1,nw_dst=2.2.2.2,nw_tos=4,nw_ttl=64";
    let zero = "ip,nw_src=1.1.1.1,nw_dst=2.2.2.2,nw_tos=4,nw_ttl=64";
    let dst = "nw_src=1.1.1.1,nw_dst=2.2.2.2,";
    for (actions, expected, examined) in [
        ("set_field:2->ip_dscp,2", "set(ipv4(tos=0x8/0xfc)),2", "nw_tos=4,"),
        ("move:NXM_OF_IP_SRC[]->NXM_OF_IP_DST[],2", "set(ipv4(dst=1.1.1.1)),2", dst),
        ("push:NXM_OF_IP_SRC[],pop:NXM_OF_IP_DST[],2", "set(ipv4(dst=1.1.1.1)),2", dst),
    ] {
        let megaflow = format!("eth,ip,in_port=1,{examined}nw_frag=no");
        for packet in [udp, zero] {
            check_text(true, &format!("ip actions={actions}"), packet, expected, &megaflow);
        }
    }
    let v6 = "ipv6_src=fe80::1,ipv6_dst=fe80::2,nw_tos=4";
    check_text(
        true,
        "ipv6 actions=set_field:2->ip_dscp,2",
        &format!("udp6,{v6}"),
        "set(ipv6(tclass=0x8/0xfc)),2",
        "eth,ipv6,in_port=1,nw_tos=4,nw_frag=no",
    );
    check_text(
        true,
        "ip actions=set_field:3.3.3.3->ip_src,2",
        zero,
        "2",
        "eth,ip,in_port=1,nw_src=1.1.1.1,nw_proto=0,nw_frag=no",
    );
    let also = "ip actions=move:NXM_OF_IP_SRC[]->NXM_OF_IP_DST[],dec_ttl,2";
    let all = format!("eth,ip,in_port=1,{dst}nw_proto=0,nw_ttl=64,nw_frag=no");
    check_text(true, also, zero, "2", &all);
}

/// Without masked sets whole headers are examined and written (`dpif/set-dp-features BRIDGE masked_set_action false` of
/// OVS 3.5), those of ARP excepted. Unlike in OVS, the text has no fields that are never written.
#[test]
fn whole_headers_are_written_without_masked_sets() {
    let udp = "udp,dl_src=00:00:00:00:00:01,dl_dst=00:00:00:00:00:02,nw_src=1.1.1.1,nw_dst=2.2.2.2,nw_ttl=64,tp_src=5,tp_dst=6";
    let udp6 = "udp6,ipv6_src=fe80::1,ipv6_dst=fe80::2,nw_ttl=64,udp_src=1,udp_dst=2";
    for (rule, packet, expected, megaflow) in [
        (
            "ip actions=mod_dl_src:00:00:00:00:00:09,2",
            udp,
            "set(eth(src=00:00:00:00:00:09,dst=00:00:00:00:00:02)),2",
            "eth,ip,in_port=1,dl_src=00:00:00:00:00:01,dl_dst=00:00:00:00:00:02,nw_frag=no",
        ),
        (
            "udp actions=mod_tp_dst:99,2",
            udp,
            "set(udp(src=5,dst=99)),2",
            "eth,udp,in_port=1,nw_frag=no,tp_src=5,tp_dst=6",
        ),
        (
            "ip actions=move:NXM_OF_IP_SRC[]->NXM_OF_IP_DST[],2",
            udp,
            "set(ipv4(src=1.1.1.1,dst=1.1.1.1,tos=0,ttl=64)),2",
            "eth,udp,in_port=1,nw_src=1.1.1.1,nw_dst=2.2.2.2,nw_tos=0,nw_ecn=0,nw_ttl=64,nw_frag=no",
        ),
        (
            "ipv6 actions=set_field:fe80::9->ipv6_dst,2",
            udp6,
            "set(ipv6(src=fe80::1,dst=fe80::9,label=0,tclass=0,hlimit=64)),2",
            "eth,udp6,in_port=1,ipv6_src=fe80::1,ipv6_dst=fe80::2,ipv6_label=0x00000,nw_tos=0,nw_ecn=0,nw_ttl=64,nw_frag=no",
        ),
        (
            "actions=load:5->NXM_NX_PKT_MARK[0..3],2",
            udp,
            "set(skb_mark(0x5)),2",
            "pkt_mark=0,eth,ip,in_port=1,nw_frag=no",
        ),
        (
            "arp actions=set_field:9.9.9.9->arp_spa,2",
            "arp,arp_spa=1.1.1.1,arp_tpa=2.2.2.2,arp_op=1",
            "set(arp(sip=9.9.9.9)),2",
            "eth,arp,in_port=1,arp_spa=1.1.1.1,arp_op=1",
        ),
        // A value that stays is not written.
        ("ip actions=mod_nw_dst:2.2.2.2,2", udp, "2", "eth,udp,in_port=1,nw_dst=2.2.2.2,nw_frag=no"),
    ] {
        check_text(false, rule, packet, expected, megaflow);
    }
}
