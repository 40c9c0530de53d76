//! Packet types, network service headers. Expectations are those of `ofproto/trace` of OVS 3.1.

use super::*;
use dpif::actions::format_actions;
use dpif::text::NumbersOnly;

const UDP: &str =
    "in_port=1,udp,dl_src=00:00:00:00:00:01,dl_dst=00:00:00:00:00:02,nw_src=10.0.0.1,nw_ttl=64,udp_src=7";
const MEGAFLOW: &str = "recirc_id=0,eth,ip,in_port=1,nw_frag=no";
const NONE: &str = "00:00:00:00:00:00";
/// A new network service header, up to its next protocol, and after it.
const NSH: &str = "flags=0,ttl=63,mdtype=1";
const NEW: &str = "spi=0x0,si=255,c1=0x0,c2=0x0,c3=0x0,c4=0x0";

/// Datapath actions, megaflow and error of a packet that meets one rule. Ids of recirculation are replaced by `N`.
fn traced(rule: &str, packet: &str) -> (String, String, Option<XlateDrop>) {
    let rig = Rig::new();
    let a = rig.a;
    let rig = rig.rules(a, rule);
    let flow = Rig::flow(packet);
    let t = rig.translate(&flow, true);
    let mut text = format_actions(&t.actions, &NumbersOnly);
    for id in &t.recircs {
        text = text.replace(&format!("recirc({:#x})", id.0), "recirc(N)");
    }
    let mut flow = flow;
    flow.dl_type = flow.effective_type();
    (text, format_megaflow(&flow, &t.wc), t.error)
}

fn check(rule: &str, packet: &str, actions: &str, megaflow: &str) {
    let (found, mask, error) = traced(rule, packet);
    assert_eq!((found.as_str(), error), (actions, None), "{rule}");
    assert_eq!(mask, megaflow, "{rule}");
}

#[test]
fn pushed_headers_have_the_fields_written_since() {
    let eth = format!("push_eth(src={NONE},dst={NONE})");
    for (actions, expected) in [
        (
            "encap(nsh(md_type=1)),set_field:0x1234->nsh_spi,set_field:11->nsh_si,set_field:0x11223344->nsh_c1,\
             encap(ethernet),2",
            format!("push_nsh({NSH},np=3,spi=0x1234,si=11,c1=0x11223344,c2=0x0,c3=0x0,c4=0x0),{eth},2"),
        ),
        (
            "decap(),encap(nsh(md_type=2,tlv(0x1000,10,0x12345678),tlv(0x2000,20,0xfedcba9876543210))),\
             set_field:0x1234->nsh_spi,encap(ethernet),2",
            format!(
                "pop_eth,push_nsh(flags=0,ttl=63,mdtype=2,np=1,spi=0x1234,si=255,\
                 md2=0x10000a041234567820001408fedcba9876543210),{eth},2"
            ),
        ),
        ("decap(),encap(ethernet),2", format!("pop_eth,{eth},2")),
        (
            "decap(),encap(nsh(md_type=1)),encap(nsh(md_type=1)),dec_nsh_ttl,encap(ethernet),2",
            format!(
                "pop_eth,push_nsh({NSH},np=1,{NEW}),push_nsh(flags=0,ttl=62,mdtype=1,np=4,{NEW}),{eth},2"
            ),
        ),
        (
            "decap(),encap(nsh),encap(ethernet),2,set_field:7->nsh_spi,set_field:3->nsh_flags,2",
            format!("pop_eth,push_nsh({NSH},np=1,{NEW}),{eth},2,set(nsh(flags=3,spi=0x7)),2"),
        ),
        (
            "encap(mpls),set_field:5->mpls_label,encap(ethernet),2",
            format!("add_mpls(label=5,tc=0,ttl=64,bos=1,eth_type=0x8847),{eth},2"),
        ),
        (
            "decap(),encap(mpls),set_field:5->mpls_label,encap(ethernet),2",
            format!("pop_eth,add_mpls(label=5,tc=0,ttl=64,bos=1,eth_type=0x8847),{eth},2"),
        ),
        (
            "encap(mpls_mc),encap(mpls),encap(ethernet),2",
            format!(
                "add_mpls(label=0,tc=0,ttl=64,bos=1,eth_type=0x8848),\
                 add_mpls(label=0,tc=0,ttl=64,bos=0,eth_type=0x8847),{eth},2"
            ),
        ),
        ("clone(encap(nsh),encap(ethernet),2),3", format!("clone(push_nsh({NSH},np=3,{NEW}),{eth},2),3")),
        ("clone(decap(),encap(ethernet),2),3", format!("clone(pop_eth,{eth},2),3")),
        (
            "encap(nsh(md_type=1)),decap(),decap(),2",
            format!("push_nsh({NSH},np=3,{NEW}),pop_nsh(),recirc(N)"),
        ),
        (
            "encap(nsh(md_type=1)),encap(ethernet),decap(),decap(),decap(),2",
            format!("push_nsh({NSH},np=3,{NEW}),{eth},pop_eth,pop_nsh(),recirc(N)"),
        ),
    ] {
        check(&format!("in_port=1,ip,actions={actions}"), UDP, &expected, MEGAFLOW);
    }
}

#[test]
fn fields_within_are_written_before_a_header_is_pushed_or_popped() {
    check(
        "in_port=1,ip,actions=dec_ttl,decap(),dec_ttl,encap(ethernet),dec_ttl,2",
        UDP,
        &format!(
            "set(ipv4(ttl=63)),pop_eth,set(ipv4(ttl=62)),push_eth(src={NONE},dst={NONE}),set(ipv4(ttl=61)),2"
        ),
        "recirc_id=0,eth,udp,in_port=1,nw_ttl=64,nw_frag=no",
    );
    check(
        "in_port=1,ip,actions=encap(nsh(md_type=1)),encap(ethernet),set_field:11:22:33:44:55:66->dl_dst,2",
        UDP,
        &format!("push_nsh({NSH},np=3,{NEW}),push_eth(src={NONE},dst=11:22:33:44:55:66),2"),
        "recirc_id=0,eth,ip,in_port=1,dl_dst=00:00:00:00:00:02,nw_frag=no",
    );
}

#[test]
fn headers_within_popped_ones_are_parsed_again() {
    let nsh = "in_port=1,dl_type=0x894f,nsh_ttl=63,nsh_mdtype=1,nsh_spi=0x1234,nsh_c1=0x11223344";
    let rule =
        "in_port=1,dl_type=0x894f,nsh_mdtype=1,nsh_spi=0x1234,nsh_c1=0x11223344,actions=decap(),decap(),2";
    let mask = |np: u8| {
        format!(
            "recirc_id=0,eth,in_port=1,dl_type=0x894f,nsh_mdtype=1,nsh_np={np},nsh_spi=0x1234,nsh_c1=0x11223344"
        )
    };
    for np in 1..=4 {
        check(rule, &format!("{nsh},nsh_np={np}"), "pop_eth,pop_nsh(),recirc(N)", &mask(np));
    }
    let (actions, mask, error) = traced(rule, &format!("{nsh},nsh_np=5"));
    assert_eq!((actions.as_str(), error), ("drop", Some(XlateDrop::UnsupportedPacketType)));
    assert!(mask.contains("nsh_np=5"), "{mask}");
    // Labels have a given packet type.
    for (to, ethertype) in [("ns=1,type=0x8847", 0x8847), ("ns=0,type=0", 0x6558), ("ns=1,type=0x800", 0x800)]
    {
        let rule = format!("in_port=1,mpls,actions=decap(),decap(packet_type({to})),2");
        let packet = "in_port=1,mpls,mpls_label=5,mpls_bos=1";
        let (actions, _, error) = traced(&rule, packet);
        assert_eq!((actions, error), (format!("pop_eth,pop_mpls(eth_type=0x{ethertype:x}),recirc(N)"), None));
    }
}

#[test]
fn what_has_no_such_header_is_dropped_with_its_reason() {
    for actions in [
        "encap(ethernet),2",
        "decap(),decap(),2",
        "push_vlan:0x8100,set_field:4097->vlan_vid,decap(),2",
        "encap(mpls),decap(),2",
    ] {
        let (found, _, error) = traced(&format!("in_port=1,ip,actions={actions}"), UDP);
        assert_eq!((found.as_str(), error), ("drop", Some(XlateDrop::UnsupportedPacketType)), "{actions}");
    }
    // Ports take frames alone.
    for actions in ["decap(),2", "decap(),flood", "encap(nsh),2", "encap(mpls),2"] {
        check(&format!("in_port=1,ip,actions={actions}"), UDP, "drop", MEGAFLOW);
    }
}

#[test]
fn packets_without_an_ethernet_header_match_no_rule_on_one() {
    let packet = "in_port=1,packet_type=(1,0x800),nw_src=1.2.3.4,nw_proto=17,nw_ttl=6";
    let eth = format!("push_eth(src={NONE},dst={NONE}),2");
    for (matched, found) in [
        ("", true),
        ("packet_type=(1,0x800),", true),
        ("packet_type=(1,0x800),nw_src=1.2.3.4,", true),
        ("packet_type=(1,0x800),nw_src=1.2.3.5,", false),
        ("packet_type=(1,0x86dd),", false),
        ("packet_type=(0,0),", false),
        ("ip,", false),
        ("dl_type=0,", false),
        ("vlan_tci=0,", false),
        ("vlan_tci=0/0x1000,", false),
        ("dl_dst=00:00:00:00:00:00/01:00:00:00:00:00,", false),
        ("dl_src=00:00:00:00:00:00,", false),
    ] {
        let (actions, mask, _) = traced(&format!("{matched}actions=encap(ethernet),2"), packet);
        assert_eq!(actions, if found { eth.as_str() } else { "drop" }, "{matched}");
        assert!(mask.starts_with("recirc_id=0,packet_type=(1,0x800),ip,in_port=1"), "{mask}");
    }
    check(
        "packet_type=(1,0x800),actions=dec_ttl,encap(ethernet),set_field:02:00:00:00:00:01->dl_dst,3",
        packet,
        &format!("set(ipv4(ttl=5)),push_eth(src={NONE},dst=02:00:00:00:00:01),3"),
        "recirc_id=0,packet_type=(1,0x800),udp,in_port=1,nw_ttl=6,nw_frag=no",
    );
    check(
        "packet_type=(1,0x800),actions=encap(nsh),set_field:5->nsh_spi,encap(ethernet),2",
        packet,
        &format!("push_nsh({NSH},np=1,{}),{eth}", NEW.replace("spi=0x0", "spi=0x5")),
        "recirc_id=0,packet_type=(1,0x800),ip,in_port=1,nw_frag=no",
    );
}

#[test]
fn service_headers_are_rewritten_in_place() {
    let packet = "in_port=1,dl_type=0x894f,nsh_ttl=63,nsh_np=1,nsh_spi=5,nsh_si=255,nsh_mdtype=";
    check(
        "dl_type=0x894f,nsh_spi=5,actions=set_field:1->nsh_flags,dec_nsh_ttl,3",
        &format!("{packet}2"),
        "set(nsh(flags=1,ttl=62,spi=0x5)),3",
        "recirc_id=0,eth,in_port=1,dl_type=0x894f,nsh_flags=0,nsh_ttl=63,nsh_spi=0x5",
    );
    check(
        "dl_type=0x894f,nsh_flags=0/1,actions=set_field:7/0xf->nsh_c1,3",
        &format!("{packet}1,nsh_c1=1"),
        "set(nsh(flags=0x00/0x01,c1=0x7/0x0000000f)),3",
        "recirc_id=0,eth,in_port=1,dl_type=0x894f,nsh_flags=0x00/0x01",
    );
    // Headers of metadata type 2 lack the contexts.
    check(
        "dl_type=0x894f,actions=set_field:7->nsh_c1,3",
        &format!("{packet}2"),
        "3",
        "recirc_id=0,eth,in_port=1,dl_type=0x894f",
    );
}
