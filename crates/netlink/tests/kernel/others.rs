//! Actions found only in flows of other programs: the kernel accepts our encoding, returns it unchanged and executes it; stock
//! tools print the same text.

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

/// Frames and actions, and the stock tools' text where it differs: OVS 3.1 uses the number of `dec_ttl` for another action.
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
fn actions_of_other_programs_round_trip_and_print_as_in_stock_tools() {
    testkit::require_programs!("ovs-dpctl");
    with_switch(|s| {
        for (name, text, stock) in TAKEN {
            let key = key_of(&frame(name), s.far.number.0);
            let mut wanted = actions(text);
            // The text of an empty list.
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
            let reported = get(s, Ufid(1), FlowParts::ALL).unwrap().dp_actions().unwrap();
            assert_eq!(reported, wanted, "{text}");
            assert_eq!(format_actions(&reported, &NumbersOnly), text);
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
fn ct_events_round_trip() {
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
        // It prints the id in hexadecimal, but does not parse that.
        let typed = text.replace("0x1", "1");
        s.net.run("ovs-dpctl", &["add-flow", &s.name, &key, &typed]).unwrap();
        let all: Vec<FlowReply> =
            s.ovs.flow_dump(s.dp, FlowParts::ALL).unwrap().map(Result::unwrap).collect();
        let [flow] = &all[..] else { panic!("{all:?}") };
        let reported = flow.dp_actions().unwrap();
        assert_eq!(format_actions(&reported, &NumbersOnly), text);
        let DpAction::Ct(ct) = &reported[0] else { panic!("{reported:?}") };
        assert!(ct.zone == 5 && ct.commit == CtCommit::Yes && matches!(ct.nat, CtNat::New(_)), "{ct:?}");
        let (key, _, _) = flow.key_and_mask(2).unwrap();
        assert_eq!(key.in_port(), s.far.number);
    });
}

/// The frame received at the peer after these actions.
fn comes_out(s: &Switch<'_>, frame: &[u8], text: &str) -> Vec<u8> {
    let list = actions(&text.replace("OUT", &s.near.number.to_string()));
    s.ovs.operate_one(s.dp, s.execute(frame, &list)).unwrap_or_else(|e| panic!("{text}: {e}"));
    s.next_upcall(|u| u.packet.to_vec())
}

#[test]
fn the_kernel_executes_actions_of_other_programs() {
    with_switch(|s| {
        let tcp = frame("tcp");
        assert_eq!(tcp[12..15], [8, 0, 0x45]);
        // A label is pushed, changed and popped.
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
        // So do packets with expired TTL.
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
fn recirculated_packets_carry_their_connection() {
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
        // The connection is cleared again.
        let cleared = actions("ct(zone=5),ct_clear,recirc(0x8)");
        let key = key_of(&udp, s.far.number.0);
        del(s, Ufid(1)).unwrap();
        one(s, Request::FlowPut(s.put(Ufid(2), &key, &exact(&key), &cleared))).unwrap();
        s.send(&udp);
        let key = s.next_upcall(|u| u.flow_key(2).unwrap().0);
        assert_eq!((key.base.recirc_id, key.base.ct_zone, key.base.ct_state), (8, 0, 0));
    });
}
