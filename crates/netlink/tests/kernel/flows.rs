//! Flows of all shapes.

use crate::{LIMIT, Switch, in_namespace, is_quiet, with_switch};
use dpif::actions::{CloneAction, DropAction, Output, PopVlan, PushVlan, Recirc, Sample, Trunc, Userspace};
use dpif::{
    DpAction, EthSet, Ipv4Set, Ipv6Set, Masked, PortsSet, SetAction, SlowReason, UserCookie, XlateDrop,
    nlactions,
};
use flow::extract::{Metadata, extract};
use flow::nlkey::{Fitness, KeyLimits, kernel_mask, mask_fits};
use flow::{
    FLOW_WORDS, Flow, FlowKey, KeyMask, Mask, OuterHeaders, RecircId, Tunnel, TunnelOptions, Ufid, nw_frag,
    tunnel_flags,
};
use netlink::Error;
use netlink::ovs::{FlowDel, FlowGet, FlowMode, FlowName, FlowParts, FlowPut, FlowReply, Reply, Request};

/// Frames of all kinds, by name, from the corpus of the extraction.
pub(crate) fn frames() -> Vec<(String, Vec<u8>)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../flow/corpus/extract");
    let mut all: Vec<(String, Vec<u8>)> = std::fs::read_dir(folder)
        .unwrap()
        .flatten()
        .map(|e| {
            // The first byte of a file does not belong to the frame.
            let bytes = std::fs::read(e.path()).unwrap();
            (e.file_name().to_string_lossy().into_owned(), bytes[1..].to_vec())
        })
        .filter(|(_, frame)| frame.len() >= 14)
        .collect();
    all.sort();
    let at = |name: &str| all.iter().find(|(n, _)| n == name).unwrap().1.clone();
    let vlan = |frame: &[u8], tags: &[[u8; 4]]| [&frame[..12], &tags.concat(), &frame[12..]].concat();
    let (c, s) = ([0x81, 0, 0x20, 5], [0x88, 0xa8, 0x60, 9]);
    let more = [
        ("tcp in a tag", vlan(&at("tcp"), &[c])),
        ("tcp in two tags", vlan(&at("tcp"), &[s, c])),
        ("tcp in two customer tags", vlan(&at("tcp"), &[c, c])),
        ("tcp in three tags", vlan(&at("tcp"), &[s, c, c])),
        ("arp in a service tag", vlan(&at("arp"), &[s])),
        ("solicitation in two tags", vlan(&at("neighbour_solicitation"), &[s, c])),
        ("mpls in a tag", vlan(&at("mpls"), &[c])),
        ("llc in a tag", vlan(&at("llc"), &[c])),
        ("an unknown type", [&at("tcp")[..12], &[0x88, 0xb5], &[0; 46]].concat()),
        ("igmp", igmp(&at("udp"))),
    ];
    all.extend(more.map(|(name, frame)| (name.to_owned(), frame)));
    all
}

/// An IPv4 frame changed to IGMP; checksums do not matter.
fn igmp(udp: &[u8]) -> Vec<u8> {
    let mut frame = udp.to_vec();
    frame[23] = 2;
    frame
}

pub(crate) fn key_of(frame: &[u8], in_port: u32) -> FlowKey {
    let mut key = FlowKey::default();
    extract(frame, &Metadata { in_port, ..Metadata::default() }, 2, &mut key);
    key
}

/// Masks to try with a key: named ones of single fields, and many random ones.
fn masks(key: &FlowKey) -> Vec<(String, KeyMask)> {
    type Set = fn(&mut Flow);
    let named: [(&str, Set); 30] = [
        ("nothing", |_| ()),
        ("all", |m| *m = Flow::from_words([u64::MAX; FLOW_WORDS])),
        ("mark", |m| m.pkt_mark = 0xff),
        ("hash", |m| m.dp_hash = 0xf),
        ("ct_state", |m| m.ct_state = u32::MAX),
        ("ct_zone", |m| m.ct_zone = u16::MAX),
        ("ct_mark", |m| m.ct_mark = 0xf0),
        ("source", |m| m.dl_src = [0xff; 6]),
        ("group bit", |m| m.dl_dst[0] = 1),
        ("vid", |m| m.vlans[0].tci = 0xfff),
        ("inner pcp", |m| m.vlans[1].tci = 0xe000),
        ("tpid", |m| m.vlans[0].tpid = 0xffff),
        ("label", |m| m.mpls_lse[0] = 0xffff_f000),
        ("bottom", |m| m.mpls_lse[0] = 0x100),
        ("second label", |m| m.mpls_lse[1] = u32::MAX),
        ("source /24", |m| m.nw_src = 0xffff_ff00),
        ("destination", |m| m.nw_dst = u32::MAX),
        ("ipv6 source /64", |m| m.ipv6_src[..8].fill(0xff)),
        ("ipv6 label", |m| m.ipv6_label = u32::MAX),
        ("protocol", |m| m.nw_proto = 0xff),
        ("protocol in part", |m| m.nw_proto = 0x0f),
        ("dscp", |m| m.nw_tos = 0xfc),
        ("ttl", |m| m.nw_ttl = 0xff),
        ("fragment", |m| m.nw_frag = nw_frag::ANY),
        ("port alone", |m| m.tp_dst = 0xffff),
        ("port in part", |m| (m.nw_proto, m.tp_src) = (0xff, 0xfff0)),
        ("flags", |m| m.tcp_flags = 0x012),
        ("target alone", |m| m.nd_target = [0xff; 16]),
        ("hardware address", |m| m.arp_sha = [0xff; 6]),
        ("group", |m| m.igmp_group = u32::MAX),
    ];
    let of = |flow: &Flow| FlowKey::from_mask(&Mask(*flow), key);
    let mut all: Vec<(String, KeyMask)> = Vec::new();
    for (name, set) in named {
        let mut flow = Flow::default();
        set(&mut flow);
        all.push((name.to_owned(), of(&flow)));
    }
    let mut dice = 0x9e37_79b9_7f4a_7c15u64;
    let mut throw = move || {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        dice
    };
    for n in 0..40 {
        let words = std::array::from_fn(|_| if throw() & 3 == 0 { throw() & throw() } else { 0 });
        all.push((format!("dice {n}"), of(&Flow::from_words(words))));
    }
    all
}

pub(crate) fn one(s: &Switch<'_>, request: Request<'_>) -> Result<Reply, Error> {
    s.ovs.operate_one(s.dp, request)
}

fn flow_of(reply: Reply) -> FlowReply {
    match reply {
        Reply::Flow(flow) => *flow,
        Reply::Done => panic!("no flow in the answer"),
    }
}

pub(crate) fn get(s: &Switch<'_>, ufid: Ufid, parts: FlowParts) -> Result<FlowReply, Error> {
    one(s, Request::FlowGet(FlowGet { name: FlowName::Ufid(ufid), parts })).map(flow_of)
}

pub(crate) fn del(s: &Switch<'_>, ufid: Ufid) -> Result<FlowReply, Error> {
    one(s, Request::FlowDel(FlowDel { name: FlowName::Ufid(ufid), stats: true })).map(flow_of)
}

#[test]
fn every_mask_round_trips() {
    with_switch(|s| {
        let mut count = 0;
        for (frame_name, frame) in frames() {
            let key = key_of(&frame, s.far.number.0);
            for (mask_name, mask) in masks(&key) {
                count += 1;
                let what = format!("{frame_name}, mask of {mask_name}");
                let ufid = Ufid(0x0123_4567_89ab_cdef << 64 | count);
                let actions = [DpAction::Output(Output(s.near.number))];
                let put = s.put(ufid, &key, &mask, &actions);
                one(s, Request::FlowPut(put)).unwrap_or_else(|e| panic!("{what}: {e}\n{key:?}\n{mask:?}"));
                let flow = get(s, ufid, FlowParts::ALL).unwrap();
                let held = kernel_mask(&key, &mask, &KeyLimits::LINUX);
                let (got_key, got_mask, fitness) = flow.key_and_mask(2).unwrap();
                // The kernel does not parse IGMP, and has no attribute for it.
                let same_blocks =
                    FlowKey { base: flow::BaseBlock { shape: got_key.base.shape, ..key.base }, ..key };
                let held = kernel_mask(&same_blocks, &held, &KeyLimits::LINUX);
                assert_eq!(got_mask, held, "{what}");
                let expected = same_blocks.masked(&held);
                assert_eq!(got_key, expected, "{what}");
                let igmp = expected.base.nw_proto == 2 && expected.base.dl_type == 0x0800;
                let fits = if igmp { Fitness::TooLittle } else { Fitness::Perfect };
                assert_eq!(fitness, fits, "{what}");
                assert_eq!(flow.dp_actions().unwrap(), actions, "{what}");
                assert_eq!(flow.ufid, Some(ufid), "{what}");
                assert_eq!(flow.dp_ifindex, s.dp);
                del(s, ufid).unwrap();
            }
        }
        assert!(count > 1000, "only {count} tried");
        assert_eq!(s.ovs.flow_dump(s.dp, FlowParts::ALL).unwrap().count(), 0);
    });
}

#[test]
fn tunnels_are_held_and_set_as_written() {
    with_switch(|s| {
        let frame = frames().into_iter().find(|(name, _)| name == "tcp").unwrap().1;
        let v4 = Tunnel {
            id: 0x0102_0304,
            src: 0x0a00_0002,
            dst: 0x0a00_0001,
            flags: tunnel_flags::KEY | tunnel_flags::CSUM,
            tos: 0x20,
            ttl: 64,
            tp_src: 50000,
            tp_dst: 4789,
            ..Tunnel::default()
        };
        let [mut src, mut dst] = [[0xfd; 16]; 2];
        (src[15], dst[15]) = (2, 1);
        let v6 =
            Tunnel { src: 0, dst: 0, ipv6_src: src, ipv6_dst: dst, flags: tunnel_flags::DF, id: 0, ..v4 };
        let policy = Tunnel { gbp_id: 5, gbp_flags: 8, ..v4 };
        // Without the addresses, a masked key would not indicate a tunnel.
        let least = Tunnel { dst: u32::MAX, ipv6_dst: [0xff; 16], ..Tunnel::default() };
        let all = Flow::from_words([u64::MAX; FLOW_WORDS]).tunnel();
        let masks = [
            least,
            all,
            Tunnel { id: 0xff00, ..least },
            Tunnel { flags: tunnel_flags::CSUM, ttl: 0xff, ..least },
            Tunnel { flags: tunnel_flags::KEY, tp_src: 0xf, tos: 3, ..least },
        ];
        let none = TunnelOptions::default();
        let mut options = none;
        assert!(
            options.push(0xffff, 1, &[1, 2, 3, 4])
                && options.push(1, 2, &[])
                && options.push(1, 3, &[5; 124])
        );
        let kinds = [(v4, none), (v6, none), (policy, none), (v4, options), (v6, options)];
        for ((tunnel, options), mask) in kinds.iter().flat_map(|t| masks.map(|m| (*t, m))) {
            let mut key = key_of(&frame, s.far.number.0);
            (key.tunnel, key.options) = (tunnel, options);
            key.set_shape();
            let set = |tunnel, options| {
                DpAction::Set(SetAction::Tunnel(Box::new(OuterHeaders { tunnel, options })))
            };
            let mut flow = Flow::default();
            flow.set_tunnel(&mask);
            let mut mask = FlowKey::from_mask(&Mask(flow), &key);
            mask.options.set_data_mask(&options, 0, &[0xff, 0, 0xf, 0]);
            let actions = [
                set(tunnel, options),
                DpAction::Output(Output(s.near.number)),
                set(Tunnel { ttl: 0, flags: 0, id: 0, ..v6 }, none),
                DpAction::Output(Output(s.near.number)),
            ];
            one(s, Request::FlowPut(s.put(Ufid(1), &key, &mask, &actions)))
                .unwrap_or_else(|e| panic!("{tunnel:?} {mask:?}: {e}"));
            let flow = get(s, Ufid(1), FlowParts::ALL).unwrap();
            let held = kernel_mask(&key, &mask, &KeyLimits::LINUX);
            assert_eq!(flow.key_and_mask(2).unwrap(), (key.masked(&held), held, Fitness::Perfect));
            assert_eq!(flow.dp_actions().unwrap(), actions, "{tunnel:?}");
            del(s, Ufid(1)).unwrap();
        }
    });
}

#[test]
fn the_kernel_extracts_equal_keys_and_flows_match() {
    with_switch(|s| {
        for (n, (name, frame)) in frames().into_iter().enumerate() {
            s.send(&frame);
            let key = key_of(&frame, s.far.number.0);
            let (raw, reported, fitness) = s.next_upcall(|u| {
                assert_eq!(u.packet, frame, "{name}");
                let (key, fitness) = u.flow_key(2).unwrap();
                (u.key.to_vec(), key, fitness)
            });
            let expected = match name.as_str() {
                "igmp" => Fitness::TooLittle,
                // The kernel's keys have a separate field for extension headers (Linux 5.18).
                "ipv6_extension_headers" | "ipv6_fragment" => Fitness::TooMuch,
                _ => Fitness::Perfect,
            };
            assert_eq!(fitness, expected, "{name}");
            let mut known = key;
            if name == "igmp" {
                (known.base.tp_src, known.base.tp_dst, known.arp.igmp_group) = (0, 0, 0);
                known.set_shape();
            }
            if known.base.nw_proto == 58 {
                // Reserved bytes and the type of the option of neighbour discovery.
                (known.base.tcp_flags, known.arp.igmp_group) = (0, 0);
                known.set_shape();
            }
            assert_eq!(reported, known, "{name}");
            for (mask_name, mask) in masks(&key) {
                if !mask_fits(&key, &mask, &KeyLimits::LINUX) {
                    continue;
                }
                // Sluice's key and the kernel's own key match the same frame.
                let typed = s.put(Ufid(n as u128), &key, &mask, &[]);
                let by_raw = FlowPut { key: raw.clone(), ..typed.clone() };
                for (which, put) in [("ours", typed), ("the kernel's", by_raw)] {
                    let what = format!("{name}, mask of {mask_name}, key {which}");
                    one(s, Request::FlowPut(put)).unwrap_or_else(|e| panic!("{what}: {e}"));
                    s.send(&frame);
                    let mut stats = dpif::FlowStats::default();
                    let seen = testkit::wait_for(LIMIT, "the frame", || {
                        stats = get(s, Ufid(n as u128), FlowParts::TERSE).unwrap().stats;
                        stats.packets > 0 || !is_quiet(&s.upcalls)
                    });
                    seen.unwrap();
                    assert_eq!(stats.packets, 1, "{what}: no match");
                    assert!(stats.used_ms > 0 && stats.bytes > 0, "{what}: {stats:?}");
                    // The time is recomputed on each read and varies by a millisecond.
                    let last = del(s, Ufid(n as u128)).unwrap().stats;
                    assert_eq!((last.packets, last.bytes), (stats.packets, stats.bytes), "{what}");
                }
            }
        }
    });
}

#[test]
fn a_tag_beyond_the_limit_is_reported_and_its_flow_matches() {
    with_switch(|s| {
        let (_, frame) = frames().into_iter().find(|(n, _)| n == "tcp in two tags").unwrap();
        let (_, mut other) = frames().into_iter().find(|(n, _)| n == "solicitation in two tags").unwrap();
        // Another VLAN id in the second tag.
        other[19] ^= 3;
        s.send(&frame);
        let (raw, key, fitness) = s.next_upcall(|u| {
            let (key, fitness) = u.flow_key(1).unwrap();
            (u.key.to_vec(), key, fitness)
        });
        assert_eq!(fitness, Fitness::TooMuch);
        let mut ours = FlowKey::default();
        let md = Metadata { in_port: s.far.number.0, ..Metadata::default() };
        extract(&frame, &md, 1, &mut ours);
        assert_eq!(key, ours);
        let mask = FlowKey::from_mask(&Mask::none(), &key);
        let put = s.put(Ufid(1), &key, &mask, &[]);
        for put in [FlowPut { key: raw, ..put.clone() }, put] {
            one(s, Request::FlowPut(put)).unwrap();
            s.send(&frame);
            // The flow does not match the tag's contents either.
            s.send(&other);
            let hits = || get(s, Ufid(1), FlowParts::TERSE).unwrap().stats.packets == 2;
            testkit::wait_for(LIMIT, "the frames", hits).unwrap();
            let flow = get(s, Ufid(1), FlowParts::ALL).unwrap();
            let held = kernel_mask(&key, &mask, &KeyLimits::LINUX);
            assert_eq!(flow.key_and_mask(1).unwrap(), (key.masked(&held), held, Fitness::Perfect));
            del(s, Ufid(1)).unwrap();
        }
    });
}

fn some_flows(s: &Switch<'_>, count: u128) -> Vec<FlowPut> {
    let (_, frame) = frames().into_iter().find(|(n, _)| n == "udp").unwrap();
    let put = |n: u128| {
        let mut key = key_of(&frame, s.far.number.0);
        key.base.nw_src = n as u32;
        let mut mask = Mask::none();
        mask.0.nw_src = u32::MAX;
        s.put(
            Ufid(n << 64 | 0xfeed),
            &key,
            &FlowKey::from_mask(&mask, &key),
            &[DpAction::Output(Output(s.near.number))],
        )
    };
    (0..count).map(put).collect()
}

#[test]
fn many_flows_are_put_listed_changed_and_removed_in_batches() {
    with_switch(|s| {
        let puts = some_flows(s, 3000);
        let requests: Vec<Request<'_>> = puts.iter().cloned().map(Request::FlowPut).collect();
        for reply in s.ovs.operate(s.dp, &requests) {
            assert_eq!(reply.unwrap(), Reply::Done);
        }
        // All exist already, each with its own error; the others in the batch are executed.
        let mut mixed: Vec<Request<'_>> = requests[..300].to_vec();
        mixed.insert(
            100,
            Request::FlowGet(FlowGet { name: FlowName::Ufid(Ufid(5 << 64 | 0xfeed)), parts: FlowParts::ALL }),
        );
        mixed
            .insert(200, Request::FlowGet(FlowGet { name: FlowName::Ufid(Ufid(77)), parts: FlowParts::ALL }));
        let replies = s.ovs.operate(s.dp, &mixed);
        assert_eq!(replies.len(), 302);
        for (n, reply) in replies.into_iter().enumerate() {
            match n {
                100 => assert_eq!(flow_of(reply.unwrap()).ufid, Some(Ufid(5 << 64 | 0xfeed))),
                200 => assert!(reply.unwrap_err().is_not_found()),
                _ => {
                    let e = reply.unwrap_err();
                    assert!(e.is_exists() && e.to_string().contains("put a flow"), "{e}");
                }
            }
        }
        for parts in [FlowParts::TERSE, FlowParts::ALL] {
            let mut dump = s.ovs.flow_dump(s.dp, parts).unwrap();
            let mut names: Vec<u128> = dump
                .by_ref()
                .map(|flow| {
                    let flow = flow.unwrap();
                    assert_eq!((flow.key.is_some(), flow.mask.is_some()), (parts.key, parts.mask));
                    assert_eq!(flow.actions.is_some(), parts.actions);
                    flow.ufid.unwrap().0
                })
                .collect();
            assert!(!dump.interrupted());
            names.sort_unstable();
            let expected: Vec<u128> = (0..3000).map(|n| n << 64 | 0xfeed).collect();
            assert_eq!(names, expected);
        }
        // Abandoning a dump does not affect other requests.
        assert!(s.ovs.flow_dump(s.dp, FlowParts::ALL).unwrap().next().unwrap().is_ok());
        let change = puts.iter().cloned().map(|put| {
            Request::FlowPut(FlowPut { mode: FlowMode::Modify, actions: Vec::new(), stats: true, ..put })
        });
        for reply in s.ovs.operate(s.dp, &change.collect::<Vec<_>>()) {
            assert_eq!(flow_of(reply.unwrap()).stats.packets, 0);
        }
        let flow = get(s, Ufid(9 << 64 | 0xfeed), FlowParts::ALL).unwrap();
        assert_eq!(flow.dp_actions().unwrap(), []);
        let names = (0..3000).map(|n| FlowName::Ufid(Ufid(n << 64 | 0xfeed)));
        let dels = names.map(|name| Request::FlowDel(FlowDel { name, stats: true }));
        for reply in s.ovs.operate(s.dp, &dels.collect::<Vec<_>>()) {
            flow_of(reply.unwrap());
        }
        assert_eq!(s.ovs.flow_dump(s.dp, FlowParts::TERSE).unwrap().count(), 0);
        let missing = one(s, Request::FlowPut(FlowPut { mode: FlowMode::Modify, ..puts[0].clone() }));
        assert!(missing.unwrap_err().is_not_found());
        one(s, Request::FlowPut(puts[0].clone())).unwrap();
        s.ovs.flow_flush(s.dp).unwrap();
        assert!(get(s, puts[0].ufid.unwrap(), FlowParts::TERSE).unwrap_err().is_not_found());
        let e = s.ovs.flow_flush(54321).unwrap_err();
        assert!(e.is_no_device(), "{e}");
        let first = s.ovs.flow_dump(54321, FlowParts::ALL).unwrap().next().unwrap();
        assert!(first.as_ref().is_err_and(|e| e.is_no_device()), "{first:?}");
    });
}

#[test]
fn put_creates_or_modifies_flows() {
    with_switch(|s| {
        let put = some_flows(s, 1).remove(0);
        let mode = |mode: FlowMode| one(s, Request::FlowPut(FlowPut { mode, ..put.clone() }));
        assert!(mode(FlowMode::Modify).unwrap_err().is_not_found());
        assert_eq!(mode(FlowMode::Create).unwrap(), Reply::Done);
        assert!(mode(FlowMode::Create).unwrap_err().is_exists());
        let changed = FlowPut { mode: FlowMode::Modify, actions: Vec::new(), ..put.clone() };
        assert_eq!(one(s, Request::FlowPut(changed)).unwrap(), Reply::Done);
        let ufid = put.ufid.unwrap();
        assert_eq!(get(s, ufid, FlowParts::ALL).unwrap().dp_actions().unwrap(), []);
        // The same match with another ufid.
        let twin = FlowPut { ufid: Some(Ufid(2)), ..put.clone() };
        assert!(one(s, Request::FlowPut(twin)).unwrap_err().is_exists());
        del(s, ufid).unwrap();
        assert!(del(s, ufid).unwrap_err().is_not_found());
        // A flow without a ufid is identified by its key.
        let nameless = FlowPut { ufid: None, ..put.clone() };
        one(s, Request::FlowPut(nameless)).unwrap();
        let name = FlowName::Key(put.key.clone());
        let found = one(s, Request::FlowGet(FlowGet { name: name.clone(), parts: FlowParts::TERSE }));
        let found = flow_of(found.unwrap());
        assert_eq!(found.ufid, None);
        assert!(found.key.is_some(), "{found:?}");
        one(s, Request::FlowDel(FlowDel { name, stats: false })).unwrap();
        // An empty key identifies no flow, and does not delete all.
        one(s, Request::FlowPut(put.clone())).unwrap();
        let nothing = FlowDel { name: FlowName::Key(Vec::new()), stats: false };
        assert!(one(s, Request::FlowDel(nothing)).unwrap_err().is_invalid());
        assert!(get(s, ufid, FlowParts::TERSE).is_ok());
    });
}

fn all_actions(s: &Switch<'_>) -> Vec<DpAction> {
    let masked = |value: u32, mask: u32| SetAction::SkbMark(Masked { value, mask });
    let ports =
        |dst: u16| Masked { value: PortsSet { src: 0, dst }, mask: PortsSet { src: 0, dst: u16::MAX } };
    let eth = Masked {
        value: EthSet { src: [0; 6], dst: [2, 0, 0, 0, 0, 9] },
        mask: EthSet { src: [0; 6], dst: [0xff; 6] },
    };
    let v4 = Masked {
        value: Ipv4Set { src: 0x0a00_0000, dst: 0, tos: 0x08, ttl: 7 },
        mask: Ipv4Set { src: 0xff00_0000, dst: 0, tos: 0xfc, ttl: 0xff },
    };
    let controller = dpif::ControllerCookie {
        recirc_id: RecircId(9),
        rule_cookie: 0x0123_4567_89ab_cdef,
        reason: 1,
        controller_id: 3,
        max_len_bytes: 128,
        continuation: false,
    };
    vec![
        DpAction::Set(masked(5, 0xff)),
        DpAction::Set(SetAction::SkbPriority(6)),
        DpAction::Set(SetAction::Eth(eth)),
        DpAction::Set(SetAction::Ipv4(v4)),
        DpAction::Set(SetAction::Tcp(ports(80))),
        DpAction::Userspace(Userspace(UserCookie::SlowPath {
            reasons: SlowReason::Action.bit() | SlowReason::Match.bit(),
        })),
        DpAction::Userspace(Userspace(UserCookie::Controller(controller))),
        DpAction::Trunc(Trunc(100)),
        DpAction::Output(Output(s.near.number)),
        DpAction::Clone(CloneAction(vec![
            DpAction::PushVlan(PushVlan { tpid: 0x88a8, tci: 0x3005 }),
            DpAction::Output(Output(s.near.number)),
            DpAction::PopVlan(PopVlan),
        ])),
        DpAction::Sample(Sample {
            probability: u32::MAX / 2,
            actions: vec![DpAction::Clone(CloneAction(vec![DpAction::Output(Output(s.near.number))]))],
        }),
        DpAction::Recirc(Recirc(RecircId(77))),
    ]
}

#[test]
fn all_actions_round_trip() {
    with_switch(|s| {
        let frames = frames();
        let key = |name: &str| key_of(&frames.iter().find(|(n, _)| n == name).unwrap().1, s.far.number.0);
        let ports =
            Masked { value: PortsSet { src: 1, dst: 2 }, mask: PortsSet { src: 0xffff, dst: 0xffff } };
        let v6 = Masked {
            value: Ipv6Set { src: [0; 16], dst: [9; 16], label: 0x12345, tclass: 4, hlimit: 3 },
            mask: Ipv6Set { src: [0; 16], dst: [0xff; 16], label: 0xf_ffff, tclass: 0xfc, hlimit: 0xff },
        };
        let cases = [
            ("tcp", all_actions(s)),
            ("udp", vec![DpAction::Set(SetAction::Udp(ports)), DpAction::Output(Output(s.near.number))]),
            ("sctp", vec![DpAction::Set(SetAction::Sctp(ports)), DpAction::Output(Output(s.near.number))]),
            ("ipv6", vec![DpAction::Set(SetAction::Ipv6(v6)), DpAction::Output(Output(s.near.number))]),
            ("vlan", vec![DpAction::PopVlan(PopVlan), DpAction::Output(Output(s.near.number))]),
            ("arp", vec![]),
        ];
        for (name, actions) in cases {
            let key = key(name);
            let mask = FlowKey::from_mask(&Mask(Flow::from_words([u64::MAX; FLOW_WORDS])), &key);
            let put = s.put(Ufid(1), &key, &mask, &actions);
            one(s, Request::FlowPut(put)).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(get(s, Ufid(1), FlowParts::ALL).unwrap().dp_actions().unwrap(), actions, "{name}");
            del(s, Ufid(1)).unwrap();
        }
        // A rejection by the kernel includes its message.
        let key = key("arp");
        let mask = FlowKey::from_mask(&Mask::none(), &key);
        let put = s.put(Ufid(1), &key, &mask, &[DpAction::Set(SetAction::Tcp(ports))]);
        let e = one(s, Request::FlowPut(put)).unwrap_err();
        assert!(e.is_invalid(), "{e}");
        assert_eq!(e.to_string(), "cannot put a flow: Invalid argument (os error 22)");
    });
}

#[test]
fn drops_with_a_reason_are_taken_or_refused() {
    with_switch(|s| {
        let key = key_of(&frames()[0].1, s.far.number.0);
        let mask = FlowKey::from_mask(&Mask::none(), &key);
        let context = nlactions::ActionContext { explicit_drop: true, ..s.context() };
        let drop = [DpAction::Drop(DropAction(XlateDrop::TooManyResubmits))];
        let put = FlowPut::new(Ufid(1), &key, &mask, &drop, &KeyLimits::LINUX, &context).unwrap();
        match one(s, Request::FlowPut(FlowPut { probe: true, ..put })) {
            Ok(_) => assert_eq!(get(s, Ufid(1), FlowParts::ALL).unwrap().dp_actions().unwrap(), drop),
            Err(e) => {
                assert!(e.is_invalid(), "{e}");
                crate::skip("drops with a reason", "they came with Linux 6.7");
            }
        }
    });
}

#[test]
fn stock_tools_show_our_flows_as_we_do() {
    testkit::require_programs!("ovs-dpctl");
    with_switch(|s| {
        let (_, frame) = frames().into_iter().find(|(n, _)| n == "tcp").unwrap();
        let key = key_of(&frame, s.far.number.0);
        let ufid = Ufid(0xcf25_7829_62ba_490e_8a42_802f_3e99_190e);
        // The kernel requires a match on the rewritten fields.
        let mut protocol = Mask::none();
        protocol.0.nw_proto = 0xff;
        let mask = FlowKey::from_mask(&protocol, &key);
        one(s, Request::FlowPut(s.put(ufid, &key, &mask, &all_actions(s)))).unwrap();
        let text = s.net.run("ovs-dpctl", &["dump-flows", "-m", &s.name]).unwrap().stdout;
        let pid = s.upcalls.pid();
        for part in [
            format!("ufid:{ufid}, "),
            format!("userspace(pid={pid},slow_path(lacp,action))"),
            format!(
                "userspace(pid={pid},controller(reason=1,dont_send=0,continuation=0,recirc_id=9,\
                 rule_cookie=0x123456789abcdef,controller_id=3,max_len=128))"
            ),
            "set(ipv4(src=10.0.0.0/255.0.0.0,tos=0x8/0xfc,ttl=7))".to_owned(),
            "set(eth(dst=02:00:00:00:00:09))".to_owned(),
            "set(tcp(dst=80))".to_owned(),
            "clone(push_vlan(tpid=0x88a8,vid=5,pcp=1)".to_owned(),
            "sample(sample=50.0%,actions(clone(".to_owned(),
            "recirc(0x4d)".to_owned(),
        ] {
            assert!(text.contains(&part), "{part}\nis not in\n{text}");
        }
    });
}

#[test]
fn several_threads_send_requests_concurrently() {
    in_namespace(|net, ovs| {
        fn shared<T: Send + Sync>(value: T) -> T {
            value
        }
        let s = Switch::new(net, shared(ovs));
        let puts = some_flows(&s, 400);
        // New threads are outside the namespace; the handle is not.
        std::thread::scope(|scope| {
            for part in puts.chunks(100) {
                let (ovs, dp) = (&s.ovs, s.dp);
                scope.spawn(move || {
                    for put in part {
                        ovs.operate_one(dp, Request::FlowPut(put.clone())).unwrap();
                    }
                });
            }
        });
        assert_eq!(s.ovs.dp_get(netlink::ovs::DpName::Ifindex(s.dp)).unwrap().stats.flows, 400);
    });
}
