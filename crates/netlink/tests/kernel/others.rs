//! Actions that only other programs' flows have: the kernel takes what we write of them, tells it back, and does it; and stock tools
//! show it in our words.

use crate::flows::{del, frames, get, key_of, one};
use crate::{Switch, with_switch};
use dpif::actions::CheckPktLen;
use dpif::text::{NumbersOnly, format_actions, parse_actions};
use dpif::{CtAction, CtCommit, CtNat, DpAction};
use flow::{FLOW_WORDS, Flow, FlowKey, KeyMask, Mask, Ufid};
use netlink::ovs::{FlowParts, FlowReply, Request};

fn frame(name: &str) -> Vec<u8> {
    frames().into_iter().find(|(n, _)| n == name).unwrap().1
}

fn actions(text: &str) -> Vec<DpAction> {
    parse_actions(text, &NumbersOnly).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn exact(key: &FlowKey) -> KeyMask {
    FlowKey::from_mask(&Mask(Flow::from_words([u64::MAX; FLOW_WORDS])), key)
}

/// Frames and actions for them, and a part of what stock tools say, where it differs: OVS 3.1 takes the number of `dec_ttl` for one of its own.
const TAKEN: [(&str, &str, Option<&str>); 17] = [
    ("tcp", "hash(l4(0)),recirc(0x1)", None),
    ("tcp", "hash(l4(7)),recirc(0x1)", None),
    ("tcp", "push_mpls(label=16,tc=3,ttl=64,bos=1,eth_type=0x8847),1", None),
    ("tcp", "push_mpls(label=16,tc=0,ttl=64,bos=1,eth_type=0x8848),pop_mpls(eth_type=0x800),1", None),
    ("mpls", "set(mpls(label=5,tc=1,ttl=9,bos=1)),1", None),
    ("mpls", "set(mpls(label=0/0x0,tc=0/0,ttl=9/0xf,bos=0/0)),1", None),
    ("udp", "ct,recirc(0x1)", None),
    (
        "udp",
        "ct(commit,zone=1,mark=0x1/0xff,label=0x1/0x3,helper=tftp,timeout=x,nat(src=10.0.0.1-10.0.0.9:1-99,persistent,random)),1",
        None,
    ),
    ("udp", "ct(force_commit,zone=65535,nat(dst=10.0.0.1:5,hash)),ct_clear,1", None),
    ("udp", "ct(nat),ct(commit,nat(src)),ct(commit,nat(src,random)),1", None),
    ("udp", "ct(commit,nat(src=:1-99)),1", Some("nat(error: proto but no IP.)")),
    ("ipv6", "ct(commit,label=0x5,nat(src=[fe80::1]-[fe80::9]:1-99)),ct(commit,nat(dst=fe80::1)),1", None),
    ("tcp", "pop_eth,push_eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),1", None),
    ("tcp", "check_pkt_len(size=200,gt(trunc(50),1),le(check_pkt_len(size=100,gt(drop),le(1)))),1", None),
    ("tcp", "dec_ttl(le_1(1)),1", Some("tnl_push(")),
    (
        "tcp",
        "sample(sample=50.0%,actions(ct(commit),1)),clone(push_mpls(label=16,tc=0,ttl=64,bos=1,eth_type=0x8847),1)",
        None,
    ),
    ("tcp", "hash(sym_l4(5)),recirc(0x1)", None),
];

#[test]
fn actions_of_others_are_told_back_and_shown_as_stock_tools_do() {
    testkit::require_programs!("ovs-dpctl");
    with_switch(|s| {
        for (name, text, stock) in TAKEN {
            let key = key_of(&frame(name), s.far.number.0);
            let mut wanted = actions(text);
            // Text has no word for an empty list but this.
            if let DpAction::CheckPktLen(CheckPktLen { less, .. }) = &mut wanted[0]
                && let DpAction::CheckPktLen(CheckPktLen { greater, .. }) = &mut less[0]
            {
                greater.clear();
            }
            if let Err(e) = one(s, Request::FlowPut(s.put(Ufid(1), &key, &exact(&key), &wanted))) {
                assert!(e.is_invalid() && text.contains("sym_l4"), "{text}: {e}");
                crate::skip("symmetric hashes", "this kernel has none");
                continue;
            }
            let told = get(s, Ufid(1), FlowParts::ALL).unwrap().dp_actions().unwrap();
            assert_eq!(told, wanted, "{text}");
            assert_eq!(format_actions(&told, &NumbersOnly), text);
            let shown = s.net.run("ovs-dpctl", &["dump-flows", &s.name]).unwrap().stdout;
            let shown = shown.trim().rsplit_once("actions:").unwrap_or_default().1.to_owned();
            match stock {
                None => assert_eq!(shown, text),
                Some(part) => assert!(shown.contains(part), "{shown}"),
            }
            del(s, Ufid(1)).unwrap();
        }
    });
}

#[test]
fn events_are_told_back_though_text_does_not() {
    with_switch(|s| {
        let key = key_of(&frame("udp"), s.far.number.0);
        let ct = CtAction { commit: CtCommit::Yes, event_mask: Some(0x17), ..CtAction::default() };
        let wanted = [DpAction::Ct(Box::new(ct))];
        one(s, Request::FlowPut(s.put(Ufid(1), &key, &exact(&key), &wanted))).unwrap();
        assert_eq!(get(s, Ufid(1), FlowParts::ALL).unwrap().dp_actions().unwrap(), wanted);
        assert_eq!(format_actions(&wanted, &NumbersOnly), "ct(commit)");
    });
}

#[test]
fn flows_of_stock_tools_are_read() {
    testkit::require_programs!("ovs-dpctl");
    with_switch(|s| {
        let key = format!("in_port({}),eth(),eth_type(0x0800),ipv4(),tcp()", s.far.number);
        let text =
            "ct(commit,zone=5,nat(dst=10.0.0.1)),check_pkt_len(size=200,gt(drop),le(ct_clear)),recirc(0x1)";
        // It prints the id in hexadecimal, but does not read that.
        let typed = text.replace("0x1", "1");
        s.net.run("ovs-dpctl", &["add-flow", &s.name, &key, &typed]).unwrap();
        let all: Vec<FlowReply> =
            s.ovs.flow_dump(s.dp, FlowParts::ALL).unwrap().map(Result::unwrap).collect();
        let [flow] = &all[..] else { panic!("{all:?}") };
        let told = flow.dp_actions().unwrap();
        assert_eq!(format_actions(&told, &NumbersOnly), text);
        let DpAction::Ct(ct) = &told[0] else { panic!("{told:?}") };
        assert!(ct.zone == 5 && ct.commit == CtCommit::Yes && matches!(ct.nat, CtNat::New(_)), "{ct:?}");
        let (key, _, _) = flow.key_and_mask(2).unwrap();
        assert_eq!(key.in_port(), s.far.number);
    });
}

/// The frame that comes out at the far end after these actions.
fn comes_out(s: &Switch<'_>, frame: &[u8], text: &str) -> Vec<u8> {
    let list = actions(&text.replace("OUT", &s.near.number.to_string()));
    s.ovs.operate_one(s.dp, s.execute(frame, &list)).unwrap_or_else(|e| panic!("{text}: {e}"));
    s.next_upcall(|u| u.packet.to_vec())
}

#[test]
fn the_kernel_does_them() {
    with_switch(|s| {
        let tcp = frame("tcp");
        assert_eq!(tcp[12..15], [8, 0, 0x45]);
        // A label goes on, is changed, and comes off.
        let labelled = comes_out(s, &tcp, "push_mpls(label=16,tc=3,ttl=64,bos=1,eth_type=0x8847),OUT");
        let entry = [0x88, 0x47, 0, 1, 0x07, 64];
        assert_eq!(labelled, [&tcp[..12], &entry, &tcp[14..]].concat());
        let changed = comes_out(s, &labelled, "set(mpls(label=5/0xf,ttl=9)),OUT");
        assert_eq!(changed[14..18], [0, 1, 0x57, 9]);
        assert_eq!(comes_out(s, &changed, "pop_mpls(eth_type=0x800),OUT"), tcp);
        // Longer frames get a tag.
        let choice = "check_pkt_len(size=100,gt(push_vlan(vid=5,pcp=0),OUT),le(OUT))";
        let mut long = tcp.clone();
        long.resize(100, 0);
        assert_eq!(comes_out(s, &long, choice), long);
        long.push(0);
        assert_eq!(comes_out(s, &long, choice)[12..16], [0x81, 0, 0, 5]);
        // So do those at the end of their time.
        let mut aged = tcp.clone();
        for (ttl, then) in [(64, 63), (2, 1)] {
            aged[22] = ttl;
            assert_eq!(comes_out(s, &aged, "dec_ttl(le_1(push_vlan(vid=5,pcp=0),OUT)),OUT")[22], then);
        }
        aged[22] = 1;
        let ended = comes_out(s, &aged, "dec_ttl(le_1(push_vlan(vid=5,pcp=0),OUT)),OUT");
        assert_eq!((&ended[12..16], ended[26]), (&[0x81, 0, 0, 5][..], 1));
        assert!(crate::is_quiet(&s.upcalls), "an aged packet goes nowhere else");
        let new = "pop_eth,push_eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),OUT";
        assert_eq!(comes_out(s, &tcp, new), [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1][..], &tcp[12..]].concat());
    });
}

#[test]
fn tracked_packets_tell_their_connection_when_they_come_again() {
    with_switch(|s| {
        let mut udp = frame("udp");
        // Without a checksum.
        udp[40..42].fill(0);
        let key = key_of(&udp, s.far.number.0);
        let tracked = actions("ct(commit,zone=5,mark=0x9/0xff,label=0x7),recirc(0x7)");
        one(s, Request::FlowPut(s.put(Ufid(1), &key, &exact(&key), &tracked))).unwrap();
        s.send(&udp);
        let key = s.next_upcall(|u| u.flow_key(2).unwrap().0);
        assert_eq!((key.base.recirc_id, key.base.ct_zone, key.base.ct_mark), (7, 5, 9));
        assert_eq!((key.base.ct_state, key.ct.label), (0x21, 7u128.to_be_bytes()), "tracked and new");
        assert_eq!((key.ct.nw_src, key.ct.nw_proto), (key.base.nw_src, 17));
        // Forgotten again.
        let cleared = actions("ct(zone=5),ct_clear,recirc(0x8)");
        let key = key_of(&udp, s.far.number.0);
        del(s, Ufid(1)).unwrap();
        one(s, Request::FlowPut(s.put(Ufid(2), &key, &exact(&key), &cleared))).unwrap();
        s.send(&udp);
        let key = s.next_upcall(|u| u.flow_key(2).unwrap().0);
        assert_eq!((key.base.recirc_id, key.base.ct_zone, key.base.ct_state), (8, 0, 0));
    });
}
