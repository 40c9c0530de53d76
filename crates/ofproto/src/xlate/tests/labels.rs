//! MPLS labels. Expectations are those of `ofproto/trace` of OVS 3.1, except masks: labels written whole are examined
//! whole, because the written value has all of their bits.

use super::*;
use dpif::actions::format_actions;
use dpif::text::NumbersOnly;

const UDP: &str = "in_port=1,udp,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02,nw_src=1.1.1.1,nw_dst=2.2.2.2,\
    nw_ttl=33,nw_tos=184,tp_src=1,tp_dst=2";
const MPLS: &str = "in_port=1,mpls,mpls_label=100,mpls_tc=3,mpls_ttl=64,mpls_bos=1";
const ONE: &str = "label=100,tc=3,ttl=64,bos=1";

/// Datapath actions and megaflow, for a rule with these actions. Ids of recirculation are replaced by `N`.
fn traced(rig: &Rig, packet: &str) -> (String, String) {
    let flow = Rig::flow(packet);
    let t = rig.translate(&flow, true);
    let mut text = format_actions(&t.actions, &NumbersOnly);
    for id in &t.recircs {
        text = text.replace(&format!("recirc({:#x})", id.0), "recirc(N)");
    }
    (text, format_megaflow(&flow, &t.wc))
}

fn one_rule(actions: &str) -> Rig {
    let rig = Rig::new();
    let a = rig.a;
    rig.rules(a, &format!("actions={actions}"))
}

/// As [`one_rule`], for labelled packets.
fn of_labels(actions: &str) -> Rig {
    let rig = Rig::new();
    let a = rig.a;
    rig.rules(a, &format!("mpls,actions={actions}"))
}

#[test]
fn a_first_label_has_values_of_the_ip_header() {
    let ip = "recirc_id=0,eth,ip,in_port=1,nw_tos=184,nw_ttl=33,nw_frag=no";
    let first = "label=0,tc=6,ttl=33,bos=1";
    for (packet, actions, expected, megaflow) in [
        (UDP, "push_mpls:0x8847,2", format!("push_mpls({first},eth_type=0x8847),2"), ip),
        (UDP, "push_mpls:0x8848,2", format!("push_mpls({first},eth_type=0x8848),2"), ip),
        (
            "in_port=1,udp6,ipv6_src=::1,ipv6_dst=::2,nw_ttl=0,udp_src=1,udp_dst=2",
            "push_mpls:0x8847,2",
            "push_mpls(label=2,tc=0,ttl=64,bos=1,eth_type=0x8847),2".into(),
            "recirc_id=0,eth,ipv6,in_port=1,nw_tos=0,nw_ttl=0,nw_frag=no",
        ),
        (
            "in_port=1,arp,arp_op=1,arp_spa=1.1.1.1",
            "push_mpls:0x8847,2",
            "push_mpls(label=0,tc=0,ttl=64,bos=1,eth_type=0x8847),2".into(),
            "recirc_id=0,eth,arp,in_port=1",
        ),
        (
            UDP,
            "push_mpls:0x8847,set_field:5->mpls_label,push_mpls:0x8848,set_mpls_ttl:9,push_mpls:0x8847,2",
            "push_mpls(label=5,tc=6,ttl=33,bos=1,eth_type=0x8847),\
             push_mpls(label=5,tc=6,ttl=9,bos=0,eth_type=0x8847),\
             push_mpls(label=5,tc=6,ttl=9,bos=0,eth_type=0x8847),2"
                .into(),
            ip,
        ),
        (
            UDP,
            "push_vlan:0x8100,set_field:4102->vlan_vid,push_mpls:0x8847,2",
            format!("push_vlan(vid=6,pcp=0),push_mpls({first},eth_type=0x8847),2"),
            "recirc_id=0,eth,ip,in_port=1,vlan_tci=0x0000/0x1fff,nw_tos=184,nw_ttl=33,nw_frag=no",
        ),
        (
            UDP,
            "write_actions(push_vlan:0x8100,push_mpls:0x8847,output:2,set_field:6->mpls_label)",
            "push_mpls(label=6,tc=6,ttl=33,bos=1,eth_type=0x8847),push_vlan(vid=0,pcp=0),2".into(),
            ip,
        ),
    ] {
        let (got, mask) = traced(&one_rule(actions), packet);
        assert_eq!(got, expected, "{packet} {actions}");
        assert_eq!(mask, megaflow, "{packet} {actions}");
    }
    let rig = Rig::new();
    let a = rig.a;
    let rig = rig.rules(a, "ip,actions=dec_ttl,push_mpls:0x8847,2,pop_mpls:0x800,2");
    let changed = traced(&rig, UDP).0;
    let label = "label=0,tc=6,ttl=32,bos=1,eth_type=0x8847";
    assert_eq!(changed, format!("set(ipv4(ttl=32)),push_mpls({label}),2,pop_mpls(eth_type=0x800),2"));
    // A label that is popped before any output: headers behind it are not rewritten, so their protocol does not count.
    let (got, mask) = traced(&one_rule("push_mpls:0x8847,pop_mpls:0x800,2"), "in_port=1,arp,arp_op=1");
    assert_eq!((got.as_str(), mask.as_str()), ("2", "recirc_id=0,eth,arp,in_port=1"));
}

#[test]
fn labels_are_rewritten_and_popped() {
    for (actions, expected) in [
        ("set_field:5->mpls_label,2", "set(mpls(label=5,tc=3,ttl=64,bos=1)),2"),
        ("set_mpls_tc:5,2", "set(mpls(label=100,tc=5,ttl=64,bos=1)),2"),
        ("dec_mpls_ttl,2", "set(mpls(label=100,tc=3,ttl=63,bos=1)),2"),
        ("pop_mpls:0x0800,2", "pop_mpls(eth_type=0x800),2"),
        ("pop_mpls:0x8847,2", "pop_mpls(eth_type=0x8847),2"),
        (
            "push_mpls:0x8848,push_mpls:0x8847,set_field:9->mpls_label,2",
            "push_mpls(label=100,tc=3,ttl=64,bos=0,eth_type=0x8847),\
             push_mpls(label=9,tc=3,ttl=64,bos=0,eth_type=0x8847),2",
        ),
        ("push_mpls:0x8848,dec_mpls_ttl,2", "push_mpls(label=100,tc=3,ttl=63,bos=0,eth_type=0x8848),2"),
    ] {
        assert_eq!(traced(&of_labels(actions), MPLS).0, expected, "{actions}");
    }
    // All of the written entry counts, also bits that no action wrote.
    let (_, mask) = traced(&of_labels("set_field:5->mpls_label,2"), MPLS);
    assert_eq!(mask, "recirc_id=0,eth,mpls,in_port=1,mpls_label=100,mpls_tc=3,mpls_ttl=64,mpls_bos=1");
    let (_, mask) = traced(&of_labels("pop_mpls:0x0800,2"), MPLS);
    assert_eq!(mask, "recirc_id=0,eth,mpls,in_port=1,mpls_bos=1");
    let last = "in_port=1,mpls,mpls_label=3,mpls_ttl=1,mpls_bos=1";
    of_labels("dec_mpls_ttl,2").acts(last, "controller(reason=2,id=0)");
}

#[test]
fn the_inner_packet_recirculates_before_it_is_needed() {
    let popped = "pop_mpls(eth_type=0x800)";
    let two = format!("push_mpls({ONE},eth_type=0x8847),2,2");
    for (actions, expected) in [
        ("pop_mpls:0x0800,dec_ttl,2", format!("{popped},recirc(N)")),
        ("pop_mpls:0x0800,set_field:1.2.3.4->ip_dst,2", format!("{popped},recirc(N)")),
        (
            "pop_mpls:0x0800,set_field:00:11:22:33:44:55->eth_dst,2",
            format!("set(eth(dst=00:11:22:33:44:55)),{popped},2"),
        ),
        ("pop_mpls:0x86dd,goto_table:2", "pop_mpls(eth_type=0x86dd),recirc(N)".into()),
        ("pop_mpls:0x0800,resubmit(,2)", format!("{popped},recirc(N)")),
        ("pop_mpls:0x0806,push_vlan:0x8100,2", "pop_mpls(eth_type=0x806),recirc(N)".into()),
        ("pop_mpls:0x0800,push_mpls:0x8847,2", format!("{popped},recirc(N)")),
        ("write_actions(pop_mpls:0x0800,output:2,dec_ttl)", format!("{popped},recirc(N)")),
        ("group:1,2", format!("{popped},2,{two}")),
        ("group:2,2", format!("{popped},recirc(N),{two}")),
        ("pop_mpls:0x0800,group:1,2", format!("{popped},recirc(N),2,2")),
        ("pop_mpls:0x0800,group:3,2", format!("{popped},recirc(N)")),
        ("pop_mpls:0x0800,group:4,2", format!("{popped},recirc(N)")),
    ] {
        let rig = of_labels(actions).groups(&[
            "group_id=1,type=all,bucket=pop_mpls:0x0800,output:2,bucket=output:2",
            "group_id=2,type=all,bucket=pop_mpls:0x0800,dec_ttl,output:2,bucket=output:2",
            "group_id=3,type=select,bucket=output:2",
            "group_id=4,type=select,selection_method=hash,fields(ip_src),bucket=output:2",
        ]);
        assert_eq!(traced(&rig, MPLS).0, expected, "{actions}");
    }
    let rig = of_labels("pop_mpls:0x0800,dec_ttl,2");
    let t = rig.translate(&Rig::flow(MPLS), true);
    rig.thaw(UDP, &t, "ipv4(ttl=32),2");
    let rig = of_labels("pop_mpls:0x0800,group:1,2")
        .groups(&["group_id=1,type=select,selection_method=hash,bucket=output:3"]);
    let t = rig.translate(&Rig::flow(MPLS), true);
    rig.thaw(UDP, &t, "3,2");
}

/// Megaflows of OVS 3.5, except that one bit of each entry is examined if none is the bottom: entries that are zero do
/// not count.
#[test]
fn counts_examine_the_bottom_bits() {
    let of = |actions: &str, labels: [u32; 4]| {
        let flow = Flow { mpls_lse: labels, ..Rig::flow(MPLS) };
        let t = of_labels(actions).translate(&flow, true);
        (show(&t.actions), t.wc.0.mpls_lse)
    };
    let pops = |n: usize| format!("{}2", "pop_mpls:0x8847,".repeat(n));
    // Pops of a packet whose labels are known to be gone.
    for n in 1..4 {
        assert_eq!(of(&pops(n), [0x64140, 0, 0, 0]).1[0], 0x100, "{n}");
    }
    assert_eq!(of(&pops(3), [0x1040, 0x2140, 0, 0]).1[..2], [0x100, u32::MAX]);
    // A stack that is too deep: the ends of entries alone.
    let dropped = ("drop:TooManyMplsLabels".to_string(), [0x140, 0x120, 0x1100, 0]);
    assert_eq!(of(&pops(3), [0x1040, 0x2020, 0x3000, 0]), dropped);
    assert_eq!(of(&pops(1), [0x1040, 0, 0, 0]).1, [0x140, u32::MAX, u32::MAX, 0]);
    // A written entry is examined whole, and no other.
    let set = of("set_field:5->mpls_label,2", [0x1040, 0x2040, 0x3140, 0]).1;
    assert_eq!(set, [u32::MAX, 0x100, 0x100, 0]);
}

#[test]
fn a_fourth_label_drops_the_packet() {
    let push = "push_mpls:0x8847,";
    one_rule(&format!("{},2", push.repeat(4).trim_end_matches(','))).acts(UDP, "drop:TooManyMplsLabels");
    let mut deep = Rig::flow(MPLS);
    deep.mpls_lse = [0x1040, 0x2040, 0x3040, 0];
    for actions in ["pop_mpls:0x8847,2", "push_mpls:0x8847,2"] {
        let t = of_labels(actions).translate(&deep, true);
        assert_eq!(show(&t.actions), "drop:TooManyMplsLabels", "{actions}");
    }
}

/// A label or service header hides addresses and ports of the connection's original direction; they do not come back with
/// the IP header. Expectations are those of OVS 3.1.
#[test]
fn a_label_hides_the_ends_of_the_connection() {
    let packet = "in_port=1,tcp,ct_state=new|trk,ct_nw_src=1.1.1.1,ct_nw_dst=2.2.2.2,ct_nw_proto=6,ct_tp_src=80,ct_tp_dst=81";
    let kept =
        "ct_state=new|trk,ct_nw_src=1.1.1.1,ct_nw_dst=2.2.2.2,ct_nw_proto=6,ct_tp_src=80,ct_tp_dst=81,tcp,";
    for (actions, expected) in [
        ("push_vlan:0x8100,2", kept),
        ("push_mpls:0x8847,2", "ct_state=new|trk,mpls,"),
        (
            "push_mpls:0x8847,pop_mpls:0x0800,2",
            "ct_state=new|trk,ct_nw_src=0.0.0.0,ct_nw_dst=0.0.0.0,ct_nw_proto=6,ct_tp_src=0,ct_tp_dst=0,ip,",
        ),
        ("encap(nsh),encap(ethernet),2", "ct_state=new|trk,ct_nw_proto=6,ct_tp_src=0,ct_tp_dst=0,in_port=1,"),
        ("encap(mpls),2", "ct_state=new|trk,packet_type=(1,0x8847),"),
    ] {
        let rig = one_rule(actions);
        let flow = Rig::flow(packet);
        let last = format_flow(&rig.translate(&flow, true).final_flow);
        assert!(last.starts_with(expected), "{actions}: {last}");
    }
}
