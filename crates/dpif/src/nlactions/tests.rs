use super::*;
use crate::actions::{
    AddMpls, CheckPktLen, CloneAction, CtClear, DecTtl, DropAction, Foreign, HashAction, Meter, Output,
    PopEth, PopMpls, PopNsh, PopVlan, Psample, PushEth, PushMpls, PushNsh, PushVlan, Recirc, Sample, Trunc,
    Userspace,
};
use crate::cookie::tests::sample_actions;
use crate::cookie::{CookieInfo, write_cookie};
use crate::slow_path::slow_reasons;
use crate::{
    ArpSet, Capabilities, ControllerCookie, CtAction, CtCommit, CtName, CtNat, EthSet, Ipv4Set, Ipv6Set,
    Masked, NatAddresses, NatRange, NdExtSet, NdSet, PortsSet, SetAction, SlowReason,
};
use crate::{HashAlgorithm, UserCookie, XlateDrop};
use flow::{DpPort, Nsh, RecircId};
use flow::{Tunnel, tunnel_flags};
use proptest::prelude::*;

const CONTEXT: ActionContext =
    ActionContext { upcall_pid: 0x0a0b_0c0d, in_port: OfPort(5), bridge: [0x77; 16], explicit_drop: false };

/// An attribute: its type and content, in this machine's byte order.
fn attribute(kind: u16, content: &[u8]) -> Vec<u8> {
    let mut bytes = [&((content.len() + 4) as u16).to_ne_bytes()[..], &kind.to_ne_bytes(), content].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn nested(kind: u16, parts: &[Vec<u8>]) -> Vec<u8> {
    attribute(kind | 0x8000, &parts.concat())
}

fn number(kind: u16, n: u32) -> Vec<u8> {
    attribute(kind, &n.to_ne_bytes())
}

#[test]
fn actions_are_laid_out_as_the_header_says() {
    let out = DpAction::Output(Output(DpPort(3)));
    let cookie = UserCookie::SlowPath { reasons: SlowReason::Action.bit() };
    let info = CookieInfo { cookie, in_port: OfPort(5), bridge: [0x77; 16] };
    let ports =
        Masked { value: PortsSet { src: 0x0fff, dst: 80 }, mask: PortsSet { src: 0xff, dst: 0xffff } };
    let v4 = Masked {
        value: Ipv4Set { src: 0x0a00_0001, dst: 0, tos: 8, ttl: 63 },
        mask: Ipv4Set { src: u32::MAX, dst: 0, tos: 0xfc, ttl: 0xff },
    };
    let cases: Vec<(DpAction, Vec<u8>)> = vec![
        (out.clone(), number(1, 3)),
        (
            DpAction::Userspace(Userspace(cookie)),
            nested(2, &[number(1, 0x0a0b_0c0d), attribute(2, &write_cookie(&info))]),
        ),
        (DpAction::PushVlan(PushVlan { tpid: 0x88a8, tci: 0x3005 }), attribute(4, &[0x88, 0xa8, 0x30, 0x05])),
        (DpAction::PopVlan(PopVlan), attribute(5, &[])),
        (
            DpAction::Sample(Sample { probability: 7, actions: vec![out.clone()] }),
            nested(6, &[number(1, 7), nested(2, &[number(1, 3)])]),
        ),
        (DpAction::Recirc(Recirc(RecircId(9))), number(7, 9)),
        // The value is zero outside its mask.
        (
            DpAction::Set(SetAction::Tcp(ports)),
            nested(11, &[attribute(9, &[0, 0xff, 0, 80, 0, 0xff, 0xff, 0xff])]),
        ),
        (
            DpAction::Set(SetAction::Ipv4(v4)),
            nested(
                11,
                &[attribute(
                    7,
                    &[
                        10, 0, 0, 1, 0, 0, 0, 0, 0, 8, 63, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0xfc,
                        0xff, 0,
                    ],
                )],
            ),
        ),
        (
            DpAction::Set(SetAction::SkbPriority(6)),
            nested(11, &[attribute(2, &[6u32.to_ne_bytes(), [0xff; 4]].concat())]),
        ),
        (DpAction::Trunc(Trunc(100)), number(13, 100)),
        (
            DpAction::Psample(Psample { group: 10, cookie: [0, 0, 0, 1, 0, 0, 0, 2].into() }),
            nested(25, &[number(1, 10), attribute(2, &[0, 0, 0, 1, 0, 0, 0, 2])]),
        ),
        (DpAction::Psample(Psample { group: 7, cookie: Box::default() }), nested(25, &[number(1, 7)])),
        (DpAction::Meter(Meter(4)), number(19, 4)),
        (DpAction::Clone(CloneAction(vec![out])), nested(20, &[number(1, 3)])),
        (DpAction::Drop(DropAction(XlateDrop::Ok)), vec![]),
    ];
    for (action, bytes) in cases {
        let written = actions_to_bytes(std::slice::from_ref(&action), &CONTEXT).unwrap();
        assert_eq!(written, bytes, "{action:?}");
    }
    let explicit = ActionContext { explicit_drop: true, ..CONTEXT };
    let drop = [DpAction::Drop(DropAction(XlateDrop::TooManyResubmits)), DpAction::Trunc(Trunc(1))];
    let written = actions_to_bytes(&drop, &explicit).unwrap();
    assert_eq!(written, number(24, 3));
    assert_eq!(parse_actions(&written).unwrap(), drop[..1]);
}

#[test]
fn outer_headers_are_set_whole() {
    let tunnel = Tunnel {
        id: 5,
        dst: 0x0a00_0002,
        flags: tunnel_flags::KEY | tunnel_flags::DF,
        ttl: 64,
        tp_dst: 4789,
        ..Tunnel::default()
    };
    let outer = [
        attribute(0, &[0, 0, 0, 0, 0, 0, 0, 5]),
        attribute(2, &[10, 0, 0, 2]),
        attribute(4, &[64]),
        attribute(5, &[]),
        attribute(10, &[0x12, 0xb5]),
    ];
    let mut options = flow::TunnelOptions::default();
    assert!(options.push(0xffff, 1, &[1, 2, 3, 4]) && options.push(0xffff, 2, &[]));
    let with_options = attribute(8, &[0xff, 0xff, 1, 1, 1, 2, 3, 4, 0xff, 0xff, 2, 0]);
    for (options, last) in [(flow::TunnelOptions::default(), None), (options, Some(with_options))] {
        let set = SetAction::Tunnel(Box::new(flow::OuterHeaders { tunnel, options }));
        let written = actions_to_bytes(&[DpAction::Set(set.clone())], &CONTEXT).unwrap();
        let attributes: Vec<_> = outer.iter().cloned().chain(last).collect();
        assert_eq!(written, nested(3, &[nested(16, &attributes)]));
        assert_eq!(parse_actions(&written).unwrap(), [DpAction::Set(set)]);
    }
}

/// Connection tracking and its attributes.
fn ct_cases() -> Vec<(DpAction, Vec<u8>)> {
    let nat = NatRange {
        is_dst: true,
        addresses: Some(NatAddresses::V4([10, 0, 0, 1].into(), [10, 0, 0, 9].into())),
        ports: Some((1, 99)),
        persistent: true,
        hash: true,
        random: true,
    };
    let range6 = NatRange {
        is_dst: false,
        addresses: Some(NatAddresses::V6(1.into(), 2.into())),
        ports: None,
        persistent: false,
        hash: false,
        random: false,
    };
    let all = CtAction {
        commit: CtCommit::Yes,
        zone: 7,
        mark: Some(Masked { value: 1, mask: 2 }),
        labels: Some(Masked { value: 3, mask: 4 }),
        helper: CtName::new("ftp"),
        nat: CtNat::New(nat),
        event_mask: Some(9),
        timeout: CtName::new("slow"),
    };
    let port = |kind: u16, n: u16| attribute(kind, &n.to_ne_bytes());
    let range = [
        attribute(2, &[]),
        attribute(3, &[10, 0, 0, 1]),
        attribute(4, &[10, 0, 0, 9]),
        port(5, 1),
        port(6, 99),
        attribute(7, &[]),
        attribute(8, &[]),
        attribute(9, &[]),
    ];
    let parts = [
        attribute(1, &[]),
        port(2, 7),
        attribute(3, &[1u32.to_ne_bytes(), 2u32.to_ne_bytes()].concat()),
        attribute(4, &[3u128.to_ne_bytes(), 4u128.to_ne_bytes()].concat()),
        attribute(5, b"ftp\0"),
        nested(6, &range),
        number(8, 9),
        attribute(9, b"slow\0"),
    ];
    let force = CtAction { commit: CtCommit::Force, nat: CtNat::New(range6), ..CtAction::default() };
    let known = CtAction { nat: CtNat::Known, ..CtAction::default() };
    let ct = |ct: CtAction| DpAction::Ct(Box::new(ct));
    vec![
        (ct(CtAction::default()), nested(12, &[])),
        (ct(all), nested(12, &parts)),
        (ct(known), nested(12, &[nested(6, &[])])),
        (
            ct(force),
            nested(
                12,
                &[
                    attribute(7, &[]),
                    nested(
                        6,
                        &[
                            attribute(1, &[]),
                            attribute(3, &1u128.to_be_bytes()),
                            attribute(4, &2u128.to_be_bytes()),
                        ],
                    ),
                ],
            ),
        ),
    ]
}

/// A network service header, and its contexts.
const NSH: Nsh = Nsh { flags: 1, ttl: 62, mdtype: 1, np: 3, path: 0x509, context: [1, 2, 3, 4] };
const CONTEXTS: [u8; 16] = [0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4];
/// The mask of its time to live.
const TTL: Nsh = Nsh { flags: 0, ttl: 255, mdtype: 0, np: 0, path: 0, context: [0; 4] };

/// Actions only in other programs' flows.
#[test]
fn actions_of_others_are_laid_out_as_the_header_says() {
    let out = DpAction::Output(Output(DpPort(3)));
    let port = |kind: u16, n: u16| attribute(kind, &n.to_ne_bytes());
    let lse = Masked { value: 0x0001_0140, mask: 0xffff_f0ff };
    let cases: Vec<(DpAction, Vec<u8>)> = vec![
        (
            DpAction::Hash(HashAction { algorithm: HashAlgorithm::SymL4, basis: 5 }),
            attribute(8, &[1u32.to_ne_bytes(), 5u32.to_ne_bytes()].concat()),
        ),
        (
            DpAction::PushMpls(PushMpls { lse: 0x0001_0140, ethertype: 0x8847 }),
            attribute(9, &[0, 1, 1, 0x40, 0x88, 0x47, 0, 0]),
        ),
        (DpAction::PopMpls(PopMpls { ethertype: 0x0800 }), attribute(10, &[8, 0])),
        (
            DpAction::Set(SetAction::Mpls(lse)),
            nested(11, &[attribute(21, &[0, 1, 0, 0x40, 0xff, 0xff, 0xf0, 0xff])]),
        ),
        (
            DpAction::PushEth(PushEth { src: [2, 0, 0, 0, 0, 1], dst: [2, 0, 0, 0, 0, 2] }),
            attribute(14, &[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]),
        ),
        (DpAction::PopEth(PopEth), attribute(15, &[])),
        (
            DpAction::PushNsh(PushNsh::new(NSH, &[]).unwrap()),
            nested(17, &[attribute(1, &[1, 62, 1, 3, 0, 0, 5, 9]), attribute(2, &CONTEXTS)]),
        ),
        (
            DpAction::PushNsh(
                PushNsh::new(Nsh { mdtype: 2, context: [0; 4], ..NSH }, &[0x10, 0, 10, 0]).unwrap(),
            ),
            nested(17, &[attribute(1, &[1, 62, 2, 3, 0, 0, 5, 9]), attribute(3, &[0x10, 0, 10, 0])]),
        ),
        (DpAction::PopNsh(PopNsh), attribute(18, &[])),
        (
            DpAction::AddMpls(AddMpls { lse: 0x0001_0140, ethertype: 0x8848, is_l3: false }),
            attribute(22, &[0, 1, 1, 0x40, 0x88, 0x48, 0, 0]),
        ),
        (
            DpAction::AddMpls(AddMpls { lse: 0x0001_0140, ethertype: 0x8847, is_l3: true }),
            attribute(22, &[&[0, 1, 1, 0x40, 0x88, 0x47][..], &1u16.to_ne_bytes()].concat()),
        ),
        (
            DpAction::Set(SetAction::Nsh(Masked { value: Nsh { ttl: 62, ..Nsh::default() }, mask: TTL })),
            nested(11, &[nested(28, &[attribute(1, &[0, 62, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0, 0, 0, 0, 0])])]),
        ),
        (DpAction::CtClear(CtClear), attribute(16, &[])),
        (
            DpAction::CheckPktLen(CheckPktLen { len: 200, greater: vec![], less: vec![out.clone()] }),
            nested(21, &[port(1, 200), nested(2, &[]), nested(3, &[number(1, 3)])]),
        ),
        (DpAction::DecTtl(DecTtl(vec![out])), nested(23, &[nested(1, &[number(1, 3)])])),
    ];
    for (action, bytes) in cases.into_iter().chain(ct_cases()) {
        let written = actions_to_bytes(std::slice::from_ref(&action), &CONTEXT).unwrap();
        assert_eq!(written, bytes, "{action:?}");
        if !matches!(action, DpAction::Set(_)) {
            assert_eq!(parse_actions(&bytes), Ok(vec![action]));
        }
    }
    // A range given to the kernel with only its beginning.
    let short = nested(12, &[nested(6, &[attribute(1, &[]), attribute(3, &[10, 0, 0, 1]), port(5, 7)])]);
    let [DpAction::Ct(short)] = &parse_actions(&short).unwrap()[..] else { panic!("no ct") };
    let one = NatAddresses::V4([10, 0, 0, 1].into(), [10, 0, 0, 1].into());
    let CtNat::New(range) = short.nat else { panic!("{short:?}") };
    assert_eq!((range.addresses, range.ports), (Some(one), Some((7, 7))));
}

#[test]
fn what_the_kernel_cannot_do_needs_emulation() {
    let kernel = Capabilities { set_arp_nd_icmp: false, nd_ext: false, ..Capabilities::ENOUGH };
    let no = [
        SetAction::Icmp(Masked::<PortsSet>::default()),
        SetAction::Icmpv6(Masked::<PortsSet>::default()),
        SetAction::Arp(Masked::<ArpSet>::default()),
        SetAction::Nd(Masked::<NdSet>::default()),
        SetAction::NdExt(Masked::<NdExtSet>::default()),
    ];
    for set in no {
        let plain = DpAction::Set(set);
        let deep = DpAction::Clone(CloneAction(vec![DpAction::Sample(Sample {
            probability: 1,
            actions: vec![plain.clone()],
        })]));
        let aged = DpAction::DecTtl(DecTtl(vec![plain.clone()]));
        let long = DpAction::CheckPktLen(CheckPktLen { len: 1, greater: vec![plain.clone()], less: vec![] });
        let short = DpAction::CheckPktLen(CheckPktLen { len: 1, greater: vec![], less: vec![plain.clone()] });
        for action in [plain, deep, aged, long, short] {
            assert!(action.needs_emulation(&kernel));
            assert!(matches!(actions_to_bytes(&[action], &CONTEXT), Err(ActionError::NeedsEmulation(_))));
        }
    }
    for action in [
        DpAction::PopVlan(PopVlan),
        DpAction::Set(SetAction::SkbPriority(1)),
        DpAction::Clone(CloneAction(vec![])),
        DpAction::CtClear(CtClear),
    ] {
        assert!(!action.needs_emulation(&kernel) && actions_to_bytes(&[action], &CONTEXT).is_ok());
    }
}

#[test]
fn too_much_is_an_error() {
    let many = vec![DpAction::Output(Output(DpPort(1))); 8191];
    assert_eq!(actions_to_bytes(&many, &CONTEXT).unwrap().len(), 65528);
    let more = vec![DpAction::Output(Output(DpPort(1))); 8192];
    let e = actions_to_bytes(&more, &CONTEXT).unwrap_err();
    assert_eq!(e.to_string(), "too many actions: attribute 2 would have 65536 bytes: 65531 fit");
    let e = actions_to_bytes(&[DpAction::Clone(CloneAction(more))], &CONTEXT).unwrap_err();
    assert_eq!(e, ActionError::TooLong(TooLong { kind: 20, has_bytes: 65536 }));
    let nest = |depth: usize| {
        (0..depth)
            .fold(vec![DpAction::PopVlan(PopVlan)], |inner, _| vec![DpAction::Clone(CloneAction(inner))])
    };
    let deepest = actions_to_bytes(&nest(DEPTH_MAX), &CONTEXT).unwrap();
    assert_eq!(parse_actions(&deepest).unwrap(), nest(DEPTH_MAX));
    assert_eq!(actions_to_bytes(&nest(DEPTH_MAX + 1), &CONTEXT), Err(ActionError::TooDeep));
    assert_eq!(parse_actions(&nested(20, std::slice::from_ref(&deepest))), Err(ActionError::TooDeep));
    let inner = || nest(DEPTH_MAX);
    for deeper in [
        DpAction::DecTtl(DecTtl(inner())),
        DpAction::CheckPktLen(CheckPktLen { len: 0, greater: inner(), less: vec![] }),
        DpAction::CheckPktLen(CheckPktLen { len: 0, greater: vec![], less: inner() }),
        DpAction::Sample(Sample { probability: 1, actions: inner() }),
    ] {
        assert_eq!(actions_to_bytes(&[deeper], &CONTEXT), Err(ActionError::TooDeep));
    }
    let dec_ttl = nested(23, &[nested(1, std::slice::from_ref(&deepest))]);
    let len = attribute(1, &[0; 2]);
    let longer = nested(21, &[len.clone(), nested(2, std::slice::from_ref(&deepest)), nested(3, &[])]);
    let shorter = nested(21, &[len, nested(2, &[]), nested(3, &[deepest])]);
    for bytes in [dec_ttl, longer, shorter] {
        assert_eq!(parse_actions(&bytes), Err(ActionError::TooDeep));
    }
}

#[test]
fn foreign_actions_are_kept_as_they_are() {
    // Tunnels, half a priority, protocol numbers.
    let half = attribute(2, &[1, 0, 0, 0, 1, 0, 0, 0]);
    let mut proto = [0; 24];
    proto[20] = 0xff;
    let foreign = [
        // Connection tracking: unknown attributes, invalid names, translations of both sides or neither.
        nested(12, &[attribute(10, &[])]),
        nested(12, &[attribute(5, b"a b\0")]),
        nested(12, &[attribute(9, &[0xff])]),
        nested(12, &[nested(6, &[attribute(1, &[]), attribute(2, &[])])]),
        nested(12, &[nested(6, &[attribute(3, &[10, 0, 0, 1])])]),
        nested(12, &[nested(6, &[attribute(1, &[]), attribute(4, &[10, 0, 0, 1])])]),
        nested(12, &[nested(6, &[attribute(1, &[]), attribute(3, &[0; 4]), attribute(4, &[0; 16])])]),
        nested(12, &[nested(6, &[attribute(1, &[]), attribute(10, &[])])]),
        attribute(8, &[2, 0, 0, 2, 0, 0, 0, 0]),
        attribute(99, &[1, 2, 3]),
        nested(3, &[attribute(16, &[])]),
        nested(11, &[half]),
        nested(11, &[attribute(7, &proto)]),
        // With foreign userdata, or none.
        nested(2, &[number(1, 5)]),
        nested(2, &[number(1, 5), attribute(4, &[])]),
        number(24, 1000),
    ];
    for bytes in foreign {
        // Among others, and nested.
        let list = [number(1, 7), bytes.clone(), nested(20, &[bytes])].concat();
        let actions = parse_actions(&list).unwrap();
        let [
            DpAction::Output(Output(DpPort(7))),
            foreign @ DpAction::Foreign(_),
            DpAction::Clone(CloneAction(inner)),
        ] = &actions[..]
        else {
            panic!("{actions:?}")
        };
        assert_eq!(inner[..], *std::slice::from_ref(foreign));
        let again = actions_to_bytes(&actions, &CONTEXT).unwrap();
        assert_eq!(parse_actions(&again).unwrap(), actions);
    }
    let later = parse_actions(&attribute(26, &[4, 0, 1, 0])).unwrap();
    assert_eq!(later, [DpAction::Foreign(Foreign { kind: 26, content: [4, 0, 1, 0].into() })]);
    assert_eq!(crate::text::format_actions(&later, &crate::text::NumbersOnly), "action26(04 00 01 00)");
    // Cookies that the kernel refuses, and an attribute of a later one.
    for part in [attribute(2, &[]), attribute(2, &[1; 17]), number(3, 1)] {
        let bytes = nested(25, &[number(1, 7), part]);
        let actions = parse_actions(&bytes).unwrap();
        assert!(matches!(actions[..], [DpAction::Foreign(_)]), "{actions:?}");
        let again = actions_to_bytes(&actions, &CONTEXT).unwrap();
        assert_eq!(parse_actions(&again).unwrap(), actions);
    }
    assert!(parse_actions(&nested(25, &[attribute(2, &[1])])).is_err());
}

#[test]
fn bytes_that_are_no_actions_are_refused() {
    for malformed in [
        attribute(1, &[1]),
        nested(2, &[]),
        nested(6, &[number(1, 1)]),
        nested(11, &[]),
        nested(11, &[attribute(9, &[0; 7])]),
        nested(11, &[attribute(9, &[0; 6])]),
        nested(3, &[attribute(9, &[0; 4]), attribute(9, &[0; 4])]),
        attribute(8, &[0; 7]),
        attribute(9, &[0; 6]),
        attribute(10, &[0; 4]),
        attribute(12, &[1]),
        nested(12, &[attribute(2, &[0; 4])]),
        nested(12, &[attribute(3, &[0; 4])]),
        nested(12, &[attribute(4, &[0; 16])]),
        nested(12, &[attribute(8, &[])]),
        nested(12, &[nested(6, &[attribute(1, &[]), attribute(5, &[0; 4])])]),
        attribute(14, &[0; 6]),
        nested(21, &[nested(2, &[]), nested(3, &[])]),
        nested(21, &[attribute(1, &[0; 2]), nested(2, &[])]),
        nested(23, &[]),
        nested(11, &[attribute(21, &[0; 4])]),
        vec![1, 2, 3],
    ] {
        let e = parse_actions(&malformed).unwrap_err();
        assert!(matches!(e, ActionError::Malformed(_)), "{malformed:?}: {e}");
    }
}

#[test]
fn unmasked_sets_rewrite_all_of_a_header() {
    let all = parse_actions(&nested(3, &[attribute(9, &[0, 1, 0, 2])])).unwrap();
    let ports = Masked { value: PortsSet { src: 1, dst: 2 }, mask: PortsSet { src: 0xffff, dst: 0xffff } };
    assert_eq!(all, [DpAction::Set(SetAction::Tcp(ports))]);
    // With the protocol and fragment bits of the packet.
    let all = parse_actions(&nested(3, &[attribute(7, &[1, 2, 3, 4, 5, 6, 7, 8, 6, 4, 64, 0])])).unwrap();
    let v4 = Masked {
        value: Ipv4Set { src: 0x0102_0304, dst: 0x0506_0708, tos: 4, ttl: 64 },
        mask: Ipv4Set { src: u32::MAX, dst: u32::MAX, tos: 0xff, ttl: 0xff },
    };
    assert_eq!(all, [DpAction::Set(SetAction::Ipv4(v4))]);
    let mut header = [0x11; 40];
    header[32..40].copy_from_slice(&[0, 1, 2, 3, 6, 4, 64, 1]);
    let all = parse_actions(&nested(3, &[attribute(8, &header)])).unwrap();
    let v6 = Masked {
        value: Ipv6Set { src: [0x11; 16], dst: [0x11; 16], label: 0x10203, tclass: 4, hlimit: 64 },
        mask: Ipv6Set { src: [0xff; 16], dst: [0xff; 16], label: 0xf_ffff, tclass: 0xff, hlimit: 0xff },
    };
    assert_eq!(all, [DpAction::Set(SetAction::Ipv6(v6))]);
}

fn masked<T: std::fmt::Debug + Clone>(
    one: impl Strategy<Value = T> + Clone,
    and: fn(&T, &T) -> T,
) -> impl Strategy<Value = Masked<T>> {
    (one.clone(), one).prop_map(move |(value, mask)| Masked { value: and(&value, &mask), mask })
}

fn any_set() -> impl Strategy<Value = SetAction> {
    let ports = || {
        let any = any::<(u16, u16)>().prop_map(|(src, dst)| PortsSet { src, dst });
        masked(any, |a, b| PortsSet { src: a.src & b.src, dst: a.dst & b.dst })
    };
    prop_oneof![
        masked(any::<([u8; 6], [u8; 6])>().prop_map(|(src, dst)| EthSet { src, dst }), |a, b| EthSet {
            src: std::array::from_fn(|i| a.src[i] & b.src[i]),
            dst: std::array::from_fn(|i| a.dst[i] & b.dst[i]),
        })
        .prop_map(SetAction::Eth),
        masked(
            any::<(u32, u32, u8, u8)>().prop_map(|(src, dst, tos, ttl)| Ipv4Set { src, dst, tos, ttl }),
            |a, b| Ipv4Set { src: a.src & b.src, dst: a.dst & b.dst, tos: a.tos & b.tos, ttl: a.ttl & b.ttl }
        )
        .prop_map(SetAction::Ipv4),
        masked(
            any::<([u8; 16], [u8; 16], u32, u8, u8)>().prop_map(|(src, dst, label, tclass, hlimit)| {
                Ipv6Set { src, dst, label: label & 0xf_ffff, tclass, hlimit }
            }),
            |a, b| Ipv6Set {
                src: std::array::from_fn(|i| a.src[i] & b.src[i]),
                dst: std::array::from_fn(|i| a.dst[i] & b.dst[i]),
                label: a.label & b.label,
                tclass: a.tclass & b.tclass,
                hlimit: a.hlimit & b.hlimit,
            }
        )
        .prop_map(SetAction::Ipv6),
        ports().prop_map(SetAction::Tcp),
        ports().prop_map(SetAction::Udp),
        ports().prop_map(SetAction::Sctp),
        masked(any::<u32>(), |a, b| a & b).prop_map(SetAction::SkbMark),
        any::<u32>().prop_map(SetAction::SkbPriority),
        masked(any::<u32>(), |a, b| a & b).prop_map(SetAction::Mpls),
    ]
}

fn any_ct() -> impl Strategy<Value = CtAction> {
    let addresses = prop_oneof![
        any::<(u32, u32)>().prop_map(|(a, b)| NatAddresses::V4(a.into(), b.into())),
        any::<(u128, u128)>().prop_map(|(a, b)| NatAddresses::V6(a.into(), b.into())),
    ];
    let range = (any::<[bool; 4]>(), prop::option::of(addresses), prop::option::of(any::<(u16, u16)>()));
    let range = range.prop_map(|([is_dst, persistent, hash, random], addresses, ports)| {
        CtNat::New(NatRange { is_dst, addresses, ports, persistent, hash, random })
    });
    let nat = prop_oneof![Just(CtNat::No), Just(CtNat::Known), range];
    let commit = prop_oneof![Just(CtCommit::No), Just(CtCommit::Yes), Just(CtCommit::Force)];
    let masked = |(value, mask)| Masked { value, mask };
    let mark = prop::option::of(any::<(u32, u32)>().prop_map(masked));
    let labels = prop::option::of(any::<(u128, u128)>().prop_map(|(value, mask)| Masked { value, mask }));
    let rest = (any::<(u16, Option<u32>)>(), "[!-'*+.-~]{0,15}", "[!-'*+.-~]{0,31}");
    (commit, mark, labels, nat, rest).prop_map(
        |(commit, mark, labels, nat, ((zone, event_mask), helper, timeout))| {
            let (helper, timeout) = (CtName::new(&helper), CtName::new(&timeout));
            CtAction { commit, zone, mark, labels, helper, nat, event_mask, timeout }
        },
    )
}

fn any_action() -> impl Strategy<Value = DpAction> {
    let controller =
        any::<(u32, u64, u8, u16, u16)>().prop_map(|(id, rule_cookie, reason, controller_id, max)| {
            UserCookie::Controller(ControllerCookie {
                recirc_id: RecircId(id),
                rule_cookie,
                reason,
                controller_id,
                max_len_bytes: max,
                continuation: false,
            })
        });
    let leaf = prop_oneof![
        any::<u32>().prop_map(|n| DpAction::Output(Output(DpPort(n)))),
        slow_reasons().prop_map(|reasons| DpAction::Userspace(Userspace(UserCookie::SlowPath { reasons }))),
        controller.prop_map(|a| DpAction::Userspace(Userspace(a))),
        sample_actions(any::<u16>(), 0..1u32 << 24).prop_map(|a| DpAction::Userspace(Userspace(a))),
        any_set().prop_map(DpAction::Set),
        any::<(u16, u16)>().prop_map(|(tpid, tci)| DpAction::PushVlan(PushVlan { tpid, tci })),
        Just(DpAction::PopVlan(PopVlan)),
        any::<u32>().prop_map(|a| DpAction::Trunc(Trunc(a))),
        any::<u32>().prop_map(|n| DpAction::Recirc(Recirc(RecircId(n)))),
        any::<u32>().prop_map(|a| DpAction::Meter(Meter(a))),
        any::<u32>().prop_map(|basis| DpAction::Hash(HashAction { algorithm: HashAlgorithm::L4, basis })),
        any::<(u32, u16)>().prop_map(|(lse, ethertype)| DpAction::PushMpls(PushMpls { lse, ethertype })),
        any::<u16>().prop_map(|ethertype| DpAction::PopMpls(PopMpls { ethertype })),
        any_ct().prop_map(|ct| DpAction::Ct(Box::new(ct))),
        Just(DpAction::CtClear(CtClear)),
        any::<([u8; 6], [u8; 6])>().prop_map(|(src, dst)| DpAction::PushEth(PushEth { src, dst })),
        Just(DpAction::PopEth(PopEth)),
        any_nsh().prop_map(DpAction::PushNsh),
        Just(DpAction::PopNsh(PopNsh)),
        any::<(u32, bool)>().prop_map(|(lse, is_l3)| DpAction::AddMpls(AddMpls {
            lse,
            ethertype: 0x8847,
            is_l3
        })),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        let list = prop::collection::vec(inner, 0..4);
        prop_oneof![
            (any::<u32>(), list.clone())
                .prop_map(|(probability, actions)| DpAction::Sample(Sample { probability, actions })),
            (any::<u16>(), list.clone(), list.clone())
                .prop_map(|(len, greater, less)| DpAction::CheckPktLen(CheckPktLen { len, greater, less })),
            list.clone().prop_map(|a| DpAction::DecTtl(DecTtl(a))),
            list.prop_map(|a| DpAction::Clone(CloneAction(a))),
        ]
    })
}

proptest! {
    #[test]
    fn actions_are_read_as_written(actions in prop::collection::vec(any_action(), 0..8)) {
        let bytes = actions_to_bytes(&actions, &CONTEXT).unwrap();
        prop_assert_eq!(parse_actions(&bytes), Ok(actions));
    }

    #[test]
    fn any_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..96)) {
        crate::fuzz::action_list(&bytes);
    }
}

#[test]
fn corpus_of_action_lists() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/action_list");
    testkit::replay_corpus(folder, crate::fuzz::action_list);
}

fn any_nsh() -> impl Strategy<Value = PushNsh> {
    let contexts = prop::collection::vec(any::<[u8; 4]>(), 0..4).prop_map(|words| words.concat());
    (any::<(u8, u8, u8, u32)>(), any::<[u32; 4]>(), any::<bool>(), contexts).prop_map(
        |((flags, ttl, np, path), context, fixed, contexts)| {
            let (mdtype, context) = if fixed { (1, context) } else { (2, [0; 4]) };
            let header = Nsh { flags: flags & 3, ttl: ttl & 63, mdtype, np, path, context };
            PushNsh::new(header, if fixed { &[] } else { &contexts }).expect("permitted lengths")
        },
    )
}
