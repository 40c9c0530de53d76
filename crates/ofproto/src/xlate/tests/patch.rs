//! Patch ports: effects of a peer bridge on the packet and on the originating bridge. Expectations are those of
//! `ofproto/trace` of OVS 3.1.

use super::*;

/// Bridges with these rules, whose meter 1 is 0 in the datapath.
fn rig(of_a: &str, of_b: &str) -> Rig {
    let rig = Rig::new();
    let (a, b) = (rig.a, rig.b);
    rig.backer.set_meter(b, 1, Some(0));
    rig.rules(a, of_a).rules(b, of_b)
}

#[test]
fn errors_of_the_peer_end_its_own_part_only() {
    let repeated = |actions: &str| vec![actions; 64].join(",");
    for (of_a, of_b, expected, fault) in [
        ("actions=9,2", "actions=resubmit(,0)", "2".to_string(), true),
        ("actions=9,2", "actions=1,resubmit(,0)", repeated("11") + ",2", true),
        ("actions=9,2", "actions=meter:1,resubmit(,0)", format!("clone({}),2", repeated("meter(0)")), true),
        ("actions=9,2", "actions=pop:NXM_NX_REG0[],1", "11,2".to_string(), false),
        ("actions=9,2", "actions=exit,1", "2".to_string(), false),
        ("actions=9,2", "actions=1,exit,2", "11,2".to_string(), false),
        // Back and forth.
        (
            "in_port=1,actions=9,2\n in_port=9,actions=resubmit(,0)",
            "actions=in_port,1",
            "11,2".to_string(),
            true,
        ),
    ] {
        let t = rig(of_a, of_b).acts(TCP, &expected);
        assert_eq!((t.fault.is_some(), t.error), (fault, None), "{of_a}; {of_b}");
    }
}

/// The rule that outputs is found that many levels deep: the peer is one more.
#[test]
fn the_limit_of_depth_ends_the_peers_part_only() {
    let of_a = "priority=2,ip,nw_ttl=2,actions=9,2\n priority=1,ip,actions=dec_ttl,resubmit(,0)";
    for (ttl, expected) in [(65, "ipv4(ttl=2),11,2"), (66, "ipv4(ttl=2),2"), (67, "drop:RecursionTooDeep")] {
        let t = rig(of_a, "actions=1").acts(&TCP.replace("ttl=64", &format!("ttl={ttl}")), expected);
        assert_eq!(t.fault.is_some(), ttl > 65, "{ttl}");
    }
}

/// A lookup in table 1 makes 4,094 resubmits, so a resubmit to it counts as 4,095 of the 4,096.
#[test]
fn an_entry_into_the_peer_counts_as_a_resubmit() {
    let twice = |n: u32| format!("table={n},actions=resubmit(,{m}),resubmit(,{m})\n", m = n + 1);
    let tables: String = (1..12).map(twice).collect();
    let in_two_tables = "actions=resubmit(,1)\n table=1,actions=1";
    for (actions, of_b, expected, has_fault) in [
        ("resubmit(,1),9,2", "actions=1", "11,2", false),
        ("resubmit(,1),9,2", in_two_tables, "2", true),
        ("resubmit(,1),resubmit(,20),9,2", "actions=1", "2", true),
        ("resubmit(,1),resubmit(,20),9,2,resubmit(,20)", "actions=1", "drop:TooManyResubmits", true),
    ] {
        let t = rig(&format!("{tables} table=0,actions={actions}"), of_b).acts(TCP, expected);
        assert_eq!(t.fault.as_deref(), has_fault.then_some("over 4096 resubmit actions"), "{actions}");
    }
}

#[test]
fn errors_of_the_outer_bridge_are_its_own() {
    let t = rig("actions=9,resubmit(,0)", "actions=1").acts(TCP, "drop:RecursionTooDeep");
    assert!(t.fault.is_some());
}

#[test]
fn packets_for_controllers_of_the_peer_come_from_the_action_set_that_sent_them_there() {
    for (of_a, of_b, reason) in [
        ("actions=9", "priority=1,actions=controller", 1),
        ("actions=write_actions(output:9)", "priority=1,actions=controller", 3),
        ("actions=write_actions(output:9)", "priority=1,actions=controller,write_actions(output:3)", 3),
        (
            "in_port=9,actions=write_actions(output:3)\n actions=write_actions(output:9)",
            "actions=in_port,controller",
            1,
        ),
    ] {
        let rig = rig(of_a, of_b);
        let t = show(&rig.translate(&Rig::flow(TCP), true).actions);
        assert!(t.contains(&format!("controller(reason={reason},")), "{of_a}; {of_b}: {t}");
    }
}

#[test]
fn irreversible_actions_work_on_a_clone() {
    let metered = "actions=meter:1,1";
    for (of_a, of_b, expected) in [
        ("actions=9,2", metered, "clone(meter(0),11),2"),
        ("actions=9,9,2", metered, "clone(meter(0),11),clone(meter(0),11),2"),
        ("actions=9", metered, "meter(0),11"),
        ("actions=2,9", metered, "2,meter(0),11"),
        ("actions=9,exit", metered, "meter(0),11"),
        ("actions=2,resubmit(,1)\n table=1,actions=9", metered, "2,meter(0),11"),
        ("actions=9,resubmit(,1),2\n table=1,actions=9", metered, "clone(meter(0),11),clone(meter(0),11),2"),
        ("actions=write_actions(output:9)", metered, "meter(0),11"),
        ("actions=write_actions(output:3),goto_table:1\n table=1,actions=9", metered, "clone(meter(0),11),3"),
        // A packet sent to several ports is still needed, except by the last one.
        ("actions=flood", metered, "2,3,4,meter(0),11"),
        ("actions=flood,2", metered, "2,3,4,clone(meter(0),11),2"),
        ("actions=normal", metered, "2,3,4,meter(0),11"),
        ("actions=normal,2", metered, "2,3,4,clone(meter(0),11),2"),
        // Earlier changes apply to both packets, and changes of the clone are not undone.
        ("actions=mod_nw_tos:40,9,2", metered, "ipv4(tos=0x28/0xfc),clone(meter(0),11),2"),
        (
            "actions=mod_nw_tos:40,9,2",
            "actions=meter:1,mod_dl_dst:02:00:00:00:00:09,1",
            "ipv4(tos=0x28/0xfc),clone(meter(0),eth(dst=02:00:00:00:00:09),11),2",
        ),
        ("actions=9,2", "actions=meter:1", "clone(meter(0)),2"),
        ("actions=9,2", "actions=meter:1,write_actions(output:1)", "clone(meter(0),11),2"),
        ("actions=9,2", "actions=meter:1,debug_recirc,1", "clone(meter(0),recirc(1)),2"),
        // Only the first rule of the peer counts.
        ("actions=9,2", "actions=resubmit(,1),2\n table=1,actions=meter:1,1", "meter(0),11,12,2"),
        ("actions=9,2", "actions=mod_nw_tos:40,1", "ipv4(tos=0x28/0xfc),11,ipv4(tos=0x0/0xfc),2"),
    ] {
        rig(of_a, of_b).acts(IP, expected);
    }
}

/// Expectations of `ofproto/trace` of OVS 3.5.0.
#[test]
fn headers_behind_a_label_of_the_peer_are_restored() {
    let push = "push_mpls(label=0,tc=0,ttl=64,bos=1,eth_type=0x8847)";
    let pop = "pop_mpls(eth_type=0x800)";
    let rewritten = format!("set(ipv4(dst=1.1.1.1)),{push},11,{pop},set(ipv4(dst=10.0.0.5)),2");
    let lower = push.replace("64", "63");
    for (of_b, expected) in [
        ("mod_nw_dst:1.1.1.1,push_mpls:0x8847,1", rewritten.clone()),
        ("mod_nw_dst:1.1.1.1,clone(push_mpls:0x8847,1)", rewritten),
        ("push_mpls:0x8847,1", format!("{push},11,{pop},2")),
        ("dec_ttl,push_mpls:0x8847,1", format!("set(ipv4(ttl=63)),{lower},11,{pop},set(ipv4(ttl=64)),2")),
        ("mod_vlan_vid:5,push_mpls:0x8847,1", format!("push_vlan(vid=5,pcp=0),{push},11,{pop},pop_vlan,2")),
        ("mod_tp_dst:9,push_mpls:0x8847", "set(tcp(dst=9)),set(tcp(dst=2)),2".to_string()),
    ] {
        let flow = Rig::flow(&format!("{IP},nw_src=10.0.0.1,nw_dst=10.0.0.5,tp_src=1,tp_dst=2"));
        let rig = rig("actions=9,2", &format!("tcp,actions={of_b}"));
        let actions = rig.translate(&flow, true).actions;
        assert_eq!(dpif::text::format_actions(&actions, &dpif::text::NumbersOnly), expected, "{of_b}");
    }
}

/// A patch port passes each packet type, as in OVS 3.5.0.
#[test]
fn a_packet_without_its_ethernet_header_crosses_a_patch_port() {
    let none = "00:00:00:00:00:00";
    let rig = rig("ip,actions=decap(),9", "packet_type=(1,0x800),actions=encap(ethernet),1");
    let actions = rig.translate(&Rig::flow(IP), true).actions;
    let shown = dpif::text::format_actions(&actions, &dpif::text::NumbersOnly);
    assert_eq!(shown, format!("pop_eth,push_eth(src={none},dst={none}),11"));
}

/// Tunnel fields end at the patch port, as in OVS 3.5.0.
#[test]
fn a_patch_port_takes_no_tunnel_fields_along() {
    let set = "set_field:9->tun_id,set_field:1.1.2.2->tun_dst";
    for (of_a, of_b, expected) in [
        ("9,2", "tun_id=9,actions=1", "2"),
        ("9,2", "tun_id=0,actions=1", "11,2"),
        ("9,2", "tun_dst=1.1.2.2,actions=1", "2"),
        // They last in the bridge that set them.
        ("9,resubmit(,1)", "tun_id=0,actions=1", "11,3"),
    ] {
        let of_a = format!("actions={set},{of_a}\n table=1,tun_id=9,tun_dst=1.1.2.2,actions=3");
        rig(&of_a, of_b).acts(IP, expected);
    }
}

const IP: &str = "in_port=1,tcp,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02,nw_tos=0,nw_ttl=64";

#[test]
fn clones_nest_to_a_bound() {
    let backer = Backer::new(1);
    let mut rig = Rig::new();
    // A chain of bridges, each with its own meter and output.
    let bridges: Vec<BridgeId> = (0..10).map(|n| backer.add_bridge(&format!("c{n}"))).collect();
    for (n, id) in bridges.iter().enumerate() {
        let mut table = PortTable::default();
        add_port(&mut table, OfPort(1), Some(100 + n as u32), None, Vlan::Trunk);
        add_port(&mut table, PATCH, None, None, Vlan::Trunk);
        add_port(&mut table, OfPort(8), None, bridges.get(n + 1).copied(), Vlan::Trunk);
        backer.set_ports(*id, table);
        backer.set_meter(*id, 1, Some(n as u32));
    }
    rig.backer = backer;
    for id in &bridges {
        rig = rig.rules(*id, "actions=meter:1,8,1");
    }
    rig.a = bridges[0];
    let t = rig.translate(&Rig::flow("in_port=77,arp"), true);
    let shown = show(&t.actions);
    assert_eq!(shown.matches("clone").count(), 6, "{shown}");
    assert_eq!(t.fault.as_deref(), Some("over 6 nested clone and check_pkt_larger actions"));
    assert!(shown.ends_with("101),100"), "{shown}");
}
