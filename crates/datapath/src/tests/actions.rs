//! Set actions: after each, checksums are right and the key is that of the frame.

use super::frames::{arp, ipv4, ipv6, l4, verify};
use super::*;
use dpif::actions::{AddMpls, PopEth, PopMpls, PopNsh, PopVlan, PushEth, PushMpls, PushNsh, PushVlan};
use flow::{Nsh, shape};
use packet::checksum::{fold, pseudo};
use packet::{GsoKind, Offload};
use proptest::prelude::*;

fn ports() -> impl Strategy<Value = Masked<PortsSet>> {
    (any::<[u16; 2]>(), any::<[u16; 2]>()).prop_map(|(v, m)| Masked {
        value: PortsSet { src: v[0], dst: v[1] },
        mask: PortsSet { src: m[0], dst: m[1] },
    })
}

pub(super) fn set() -> impl Strategy<Value = SetAction> {
    let eth = || any::<([u8; 6], [u8; 6])>().prop_map(|(src, dst)| EthSet { src, dst });
    let v4 = || any::<(u32, u32, u8, u8)>().prop_map(|(src, dst, tos, ttl)| Ipv4Set { src, dst, tos, ttl });
    let v6 = || {
        any::<([u8; 16], [u8; 16], u32, u8, u8)>().prop_map(|(src, dst, label, tclass, hlimit)| Ipv6Set {
            src,
            dst,
            label,
            tclass,
            hlimit,
        })
    };
    let arp = || {
        any::<(u16, [u8; 6], [u8; 6], u32, u32)>().prop_map(|(op, sha, tha, spa, tpa)| ArpSet {
            op,
            sha,
            tha,
            spa,
            tpa,
        })
    };
    let nd =
        || any::<([u8; 16], [u8; 6], [u8; 6])>().prop_map(|(target, sll, tll)| NdSet { target, sll, tll });
    let nd_ext =
        || any::<(u32, u8)>().prop_map(|(reserved, ty)| NdExtSet { reserved, options_type: ty.into() });
    prop_oneof![
        (eth(), eth()).prop_map(|(value, mask)| SetAction::Eth(Masked { value, mask })),
        (v4(), v4()).prop_map(|(value, mask)| SetAction::Ipv4(Masked { value, mask })),
        (v6(), v6()).prop_map(|(value, mask)| SetAction::Ipv6(Masked { value, mask })),
        (arp(), arp()).prop_map(|(value, mask)| SetAction::Arp(Masked { value, mask })),
        (nd(), nd()).prop_map(|(value, mask)| SetAction::Nd(Masked { value, mask })),
        (nd_ext(), nd_ext()).prop_map(|(value, mask)| SetAction::NdExt(Masked { value, mask })),
        ports().prop_map(SetAction::Tcp),
        ports().prop_map(SetAction::Udp),
        ports().prop_map(SetAction::Sctp),
        ports().prop_map(SetAction::Icmp),
        ports().prop_map(SetAction::Icmpv6),
        any::<(u32, u32)>().prop_map(|(value, mask)| SetAction::SkbMark(Masked { value, mask })),
        any::<u32>().prop_map(SetAction::SkbPriority),
        any::<(u32, u32)>().prop_map(|(value, mask)| SetAction::Mpls(Masked { value, mask })),
    ]
}

fn bases() -> Vec<Vec<u8>> {
    let mut all = vec![arp()];
    for proto in [1, 6, 17, 132] {
        all.push(ipv4(proto, frames::SRC, frames::DST, 0, &l4(proto, 5, 6, false)));
    }
    for proto in [6, 17, 58, 132] {
        all.push(ipv6(proto, &l4(proto, 5, 6, true)));
    }
    let mut no_sum = ipv4(17, frames::SRC, frames::DST, 0, &l4(17, 5, 6, false));
    no_sum[40..42].copy_from_slice(&[0, 0]);
    all.push(no_sum);
    all.push(ipv4(17, frames::SRC, frames::DST, 0x2001, &l4(17, 5, 6, false)));
    all
}

fn mix<const N: usize>(old: [u8; N], value: [u8; N], mask: [u8; N]) -> [u8; N] {
    std::array::from_fn(|i| old[i] & !mask[i] | value[i] & mask[i])
}

fn mix16(old: u16, value: u16, mask: u16) -> u16 {
    old & !mask | value & mask
}

/// The key after a set action that fits. `op` is the whole ARP opcode, of which the key has only small ones.
fn expect(key: &mut FlowKey, op: &mut u16, set: &SetAction) {
    let b = &mut key.base;
    match set {
        SetAction::Eth(m) => {
            b.dl_src = mix(b.dl_src, m.value.src, m.mask.src);
            b.dl_dst = mix(b.dl_dst, m.value.dst, m.mask.dst);
        }
        SetAction::Ipv4(m) => {
            b.nw_src = b.nw_src & !m.mask.src | m.value.src & m.mask.src;
            b.nw_dst = b.nw_dst & !m.mask.dst | m.value.dst & m.mask.dst;
            b.nw_tos = b.nw_tos & !m.mask.tos | m.value.tos & m.mask.tos;
            b.nw_ttl = b.nw_ttl & !m.mask.ttl | m.value.ttl & m.mask.ttl;
        }
        SetAction::Ipv6(m) => {
            key.ipv6.src = mix(key.ipv6.src, m.value.src, m.mask.src);
            key.ipv6.dst = mix(key.ipv6.dst, m.value.dst, m.mask.dst);
            let label = m.mask.label & 0xf_ffff;
            key.ipv6.label = key.ipv6.label & !label | m.value.label & label;
            b.nw_tos = b.nw_tos & !m.mask.tclass | m.value.tclass & m.mask.tclass;
            b.nw_ttl = b.nw_ttl & !m.mask.hlimit | m.value.hlimit & m.mask.hlimit;
        }
        SetAction::Tcp(m) | SetAction::Udp(m) | SetAction::Sctp(m) if b.nw_frag & 2 == 0 => {
            b.tp_src = mix16(b.tp_src, m.value.src, m.mask.src);
            b.tp_dst = mix16(b.tp_dst, m.value.dst, m.mask.dst);
        }
        SetAction::Arp(m) => {
            key.arp.arp_sha = mix(key.arp.arp_sha, m.value.sha, m.mask.sha);
            key.arp.arp_tha = mix(key.arp.arp_tha, m.value.tha, m.mask.tha);
            b.nw_src = b.nw_src & !m.mask.spa | m.value.spa & m.mask.spa;
            b.nw_dst = b.nw_dst & !m.mask.tpa | m.value.tpa & m.mask.tpa;
            *op = mix16(*op, m.value.op, m.mask.op);
            b.nw_proto = u8::try_from(*op).unwrap_or(0);
        }
        SetAction::Nd(m) => {
            key.ipv6.nd_target = mix(key.ipv6.nd_target, m.value.target, m.mask.target);
            key.ipv6.nd_sll = mix(key.ipv6.nd_sll, m.value.sll, m.mask.sll);
            key.ipv6.nd_tll = mix(key.ipv6.nd_tll, m.value.tll, m.mask.tll);
        }
        SetAction::Icmp(m) => {
            b.tp_src = mix16(b.tp_src, m.value.src & 0xff, m.mask.src & 0xff);
            b.tp_dst = mix16(b.tp_dst, m.value.dst & 0xff, m.mask.dst & 0xff);
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn checksums_and_key_stay_right(base in 0..11usize, sets in prop::collection::vec(set(), 1..5)) {
        let frame = bases().swap_remove(base);
        let mut rig = Rig::new();
        let mut want = key_of(1, &frame);
        let (mut reads_type, mut op) = (false, want.base.nw_proto.into());
        for set in &sets {
            expect(&mut want, &mut op, set);
            reads_type |= matches!(set, SetAction::Icmpv6(_) | SetAction::NdExt(_));
        }
        let mut actions: Vec<DpAction> = sets.into_iter().map(DpAction::Set).collect();
        actions.push(out(2));
        rig.execute(Packet::from_slice(&frame), key_of(1, &frame), actions, None);
        match rig.sent().pop() {
            Some((_, sent)) => {
                verify(&sent);
                if !reads_type {
                    prop_assert_eq!(key_of(1, &sent), want);
                }
            }
            None => prop_assert_eq!(rig.drops(DropReason::BadAction), 1),
        }
    }

    #[test]
    fn partial_sums_stay_partial(base in 0..4usize, sets in prop::collection::vec(set(), 1..5)) {
        let (v6, proto, offset) = [(false, 6, 16), (false, 17, 6), (true, 6, 16), (true, 17, 6)][base];
        let part = l4(proto, 5, 6, v6);
        let whole = if v6 { ipv6(proto, &part) } else { ipv4(proto, frames::SRC, frames::DST, 0, &part) };
        let start = if v6 { 54 } else { 34 };
        let mut packet = Packet::from_slice(&whole);
        let sum = if v6 {
            fold(pseudo(&frames::V6_SRC, &frames::V6_DST, proto, part.len()))
        } else {
            fold(pseudo(&frames::SRC, &frames::DST, proto, part.len()))
        };
        packet.data_mut()[start + offset..start + offset + 2].copy_from_slice(&sum.to_be_bytes());
        packet.offload = Offload {
            needs_csum: true,
            csum_start: start as u16,
            csum_offset: offset as u16,
            gso: GsoKind::None,
            ..Offload::NONE
        };
        let mut rig = Rig::new();
        let mut actions: Vec<DpAction> = sets.into_iter().map(DpAction::Set).collect();
        actions.extend([DpAction::PushVlan(PushVlan { tpid: 0x8100, tci: 0x1001 }), DpAction::PopVlan(PopVlan), out(2)]);
        rig.execute(packet, key_of(1, &whole), actions, None);
        if let Some(mut sent) = rig.io.packets.pop() {
            prop_assert!(sent.offload.needs_csum);
            prop_assert_eq!(usize::from(sent.offload.csum_start), start);
            crate::actions::complete(&mut sent);
            verify(sent.data());
        }
    }
}

#[test]
fn sets_that_fit_do_rewrite() {
    let frame = ipv4(6, frames::SRC, frames::DST, 0, &l4(6, 5, 6, false));
    let all = Ipv4Set { src: u32::MAX, dst: u32::MAX, tos: 0xff, ttl: 0xff };
    let value = Ipv4Set { src: 0x0101_0101, dst: 0x0202_0202, tos: 4, ttl: 9 };
    let ports = Masked { value: PortsSet { src: 77, dst: 0 }, mask: PortsSet { src: 0xffff, dst: 0 } };
    let actions = vec![
        DpAction::Set(SetAction::Ipv4(Masked { value, mask: all })),
        DpAction::Set(SetAction::Tcp(ports)),
        out(2),
    ];
    let mut rig = Rig::new();
    rig.execute(Packet::from_slice(&frame), key_of(1, &frame), actions, None);
    let (_, sent) = rig.sent().remove(0);
    verify(&sent);
    let b = key_of(1, &sent).base;
    assert_eq!((b.nw_src, b.nw_dst, b.nw_tos, b.nw_ttl), (0x0101_0101, 0x0202_0202, 4, 9));
    assert_eq!((b.tp_src, b.tp_dst), (77, 6));
}

#[test]
fn a_wrong_checksum_of_sctp_stays_wrong_by_the_same_bits() {
    let ports = Masked { value: PortsSet { src: 77, dst: 78 }, mask: PortsSet { src: 0xffff, dst: 0xffff } };
    // An odd length; padding follows the packet.
    for (flipped, padding) in [([0u8; 4], 0), ([1, 0, 0, 0], 0), ([0x12, 0x34, 0x56, 0x78], 5)] {
        let mut sctp = l4(132, 5, 6, false);
        sctp.push(9);
        sctp[8..12].fill(0);
        let right = crate::actions::sctp_sum(&sctp);
        (0..4).for_each(|i| sctp[8 + i] = right[i] ^ flipped[i]);
        let mut frame = ipv4(132, frames::SRC, frames::DST, 0, &sctp);
        frame.extend(vec![0xee; padding]);
        let mut rig = Rig::new();
        let actions = vec![DpAction::Set(SetAction::Sctp(ports)), out(2)];
        rig.execute(Packet::from_slice(&frame), key_of(1, &frame), actions, None);
        let (_, sent) = rig.sent().remove(0);
        let sent = &sent[34..sent.len() - padding];
        let right = crate::actions::sctp_sum(sent);
        let wrong: [u8; 4] = std::array::from_fn(|i| sent[8 + i] ^ right[i]);
        assert_eq!((&sent[..4], wrong), (&[0, 77, 0, 78][..], flipped));
    }
}

#[test]
fn a_rewrite_behind_a_vlan_action_finds_its_header() {
    let frame = ipv4(17, frames::SRC, frames::DST, 0, &l4(17, 5, 6, false));
    let ports = Masked { value: PortsSet { src: 77, dst: 78 }, mask: PortsSet { src: 0xffff, dst: 0xffff } };
    let actions = vec![
        DpAction::PushVlan(PushVlan { tpid: 0x8100, tci: 0x1001 }),
        DpAction::Set(SetAction::Udp(ports)),
        DpAction::PopVlan(PopVlan),
        out(2),
    ];
    let mut rig = Rig::new();
    rig.execute(Packet::from_slice(&frame), key_of(1, &frame), actions, None);
    let (_, sent) = rig.sent().remove(0);
    verify(&sent);
    assert_eq!(sent[34..38], [0, 77, 0, 78]);
}

/// Results are those of OVS 3.1, which changes the type of the first option, whatever it is.
#[test]
fn reserved_bytes_and_the_option_of_neighbour_discovery_are_rewritten() {
    const HEAD: &str = "33330000000100112233445586dd60000000";
    const ADDRESSES: &str = "3afffe800000000000000000000000000001fe800000000000000000000000000002";
    const TARGET: &str = "fe800000000000000000000000000003";
    let frame = |start: &str, rest: &str| {
        let body = format!("{start}{TARGET}{rest}");
        let text = format!("{HEAD}{:04x}{ADDRESSES}{body}", body.len() / 2);
        (0..text.len())
            .step_by(2)
            .map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap())
            .collect::<Vec<u8>>()
    };
    let (both, reserved, option) = ((u32::MAX, 0xff), (u32::MAX, 0), (0, 0xff));
    for ((sum, rest), mask, value, start, rest_after) in [
        (("117c", "0101001122334455"), option, (0, 2), "8700107c01020304", "0201001122334455"),
        (("117c", "0101001122334455"), reserved, (2, 0), "8700158000000002", "0101001122334455"),
        (("117c", "0101001122334455"), option, (0, 0), "8700127c01020304", "0001001122334455"),
        (("117c", "0101001122334455"), both, (5, 2), "8700147d00000005", "0201001122334455"),
        (("047c", "0e01001122334455"), both, (5, 2), "8700147d00000005", "0201001122334455"),
        (("781b", "0101"), both, (5, 2), "87007b1c00000005", "0201"),
        (("791e", ""), both, (5, 2), "87007d1f00000005", ""),
    ] {
        let before = frame(&format!("8700{sum}01020304"), rest);
        let of = |(reserved, options_type)| NdExtSet { reserved, options_type };
        let set = SetAction::NdExt(Masked { value: of(value), mask: of(mask) });
        assert_eq!(after(&before, vec![set.into()]), Some(frame(start, rest_after)), "{rest} {value:?}");
    }
}

/// The frame after these actions; `None` if it was dropped.
fn after(frame: &[u8], actions: Vec<DpAction>) -> Option<Vec<u8>> {
    let mut rig = Rig::new();
    rig.execute(Packet::from_slice(frame), key_of(1, frame), [actions, vec![out(2)]].concat(), None);
    rig.sent().pop().map(|(_, sent)| sent)
}

#[test]
fn labels_are_behind_vlan_tags_and_change_the_ethertype() {
    let push = |lse, ethertype| DpAction::from(PushMpls { lse, ethertype });
    let pop = |ethertype| DpAction::from(PopMpls { ethertype });
    let set = |value, mask| DpAction::Set(SetAction::Mpls(Masked { value, mask }));
    let plain = ipv4(17, frames::SRC, frames::DST, 0, &l4(17, 5, 6, false));
    for tag in [&[][..], &[0x81, 0, 0, 5]] {
        let frame = [&plain[..12], tag, &plain[12..]].concat();
        let labelled = |stack: &[u8]| [&plain[..12], tag, stack, &plain[14..]].concat();
        let one = labelled(&[0x88, 0x47, 0, 1, 0x4d, 0x21]);
        assert_eq!(after(&frame, vec![push(0x0001_4d21, 0x8847)]).as_ref(), Some(&one));
        let two = labelled(&[0x88, 0x48, 0, 0, 0x20, 9, 0, 1, 0x4d, 0x21]);
        assert_eq!(after(&one, vec![push(0x2009, 0x8848)]), Some(two.clone()));
        assert_eq!(after(&two, vec![pop(0x8847)]), Some(one.clone()));
        assert_eq!(after(&two, vec![pop(0x8847), pop(0x800)]), Some(frame.clone()));
        let ttl = labelled(&[0x88, 0x47, 0, 1, 0x4d, 0x20]);
        assert_eq!(after(&one, vec![set(0xffff_ff20, 0xff)]), Some(ttl));
        // The inner header is found again behind a popped label.
        let tos = Masked {
            value: Ipv4Set { tos: 8, ..Default::default() },
            mask: Ipv4Set { tos: 0xff, ..Default::default() },
        };
        let sent = after(&one, vec![pop(0x800), DpAction::Set(SetAction::Ipv4(tos))]).unwrap();
        assert_eq!((sent.len(), sent[15 + tag.len()]), (frame.len(), 8));
        // Without a label they do not fit.
        assert_eq!(after(&frame, vec![pop(0x800)]), None);
        assert_eq!(after(&frame, vec![set(0, 0xff)]), None);
        assert_eq!(after(&frame, vec![push(0x100, 0x800)]), None);
    }
}

#[test]
fn headers_are_pushed_before_all_others() {
    let frame = ipv4(17, frames::SRC, frames::DST, 0, &l4(17, 5, 6, false));
    let push_eth = DpAction::from(PushEth { src: [2; 6], dst: [4; 6] });
    let (pop_eth, pop_nsh) = (DpAction::from(PopEth), DpAction::from(PopNsh));
    let eth = |ethertype: u16| [&[4; 6][..], &[2; 6], &ethertype.to_be_bytes()].concat();
    let nsh = |mdtype, np, contexts: &[u8]| {
        let header = Nsh { flags: 1, ttl: 62, mdtype, np, path: 0x509, context: [1, 2, 3, 4] };
        DpAction::from(PushNsh::new(header, contexts).unwrap())
    };
    // Another Ethernet header.
    let replaced = [&eth(0x800)[..], &frame[14..]].concat();
    assert_eq!(after(&frame, vec![pop_eth.clone(), push_eth.clone()]), Some(replaced.clone()));
    // A network service header around the frame or the packet, and off again.
    let fixed = [&[0x1f, 0x86, 1, 3, 0, 0, 5, 9, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4][..], &frame]
        .concat();
    let sent = after(&frame, vec![nsh(1, 3, &[]), push_eth.clone()]);
    assert_eq!(sent, Some([&eth(0x894f)[..], &fixed].concat()));
    let words = [&[0x1f, 0x83, 2, 1, 0, 0, 5, 9, 7, 8, 9, 10][..], &frame[14..]].concat();
    let sent = after(&frame, vec![pop_eth.clone(), nsh(2, 1, &[7, 8, 9, 10]), push_eth.clone()]);
    assert_eq!(sent, Some([&eth(0x894f)[..], &words].concat()));
    let around = vec![pop_eth.clone(), nsh(2, 1, &[7, 8, 9, 10]), pop_nsh.clone(), push_eth.clone()];
    assert_eq!(after(&frame, around), Some(replaced));
    // A label.
    let add = |is_l3| DpAction::from(AddMpls { lse: 0x5140, ethertype: 0x8847, is_l3 });
    let labelled = [&eth(0x8847)[..], &[0, 0, 0x51, 0x40], &frame].concat();
    assert_eq!(after(&frame, vec![add(false), push_eth.clone()]), Some(labelled));
    let within = [&frame[..12], &[0x88, 0x47, 0, 0, 0x51, 0x40], &frame[14..]].concat();
    assert_eq!(after(&frame, vec![add(true)]), Some(within));
    // Actions that do not fit the packet.
    let tag = DpAction::from(PushVlan { tpid: 0x8100, tci: 0x1005 });
    for actions in [
        vec![push_eth.clone()],
        vec![pop_nsh.clone(), push_eth.clone()],
        vec![pop_eth.clone(), pop_eth.clone(), push_eth.clone()],
        vec![tag.clone(), pop_eth.clone(), push_eth.clone()],
        vec![pop_eth.clone(), tag, push_eth.clone()],
        vec![nsh(1, 5, &[]), pop_nsh, push_eth.clone()],
    ] {
        assert_eq!(after(&frame, actions.clone()), None, "{actions:?}");
    }
}

/// Ports take frames alone, as those of the kernel's datapath: outputs of other packets have no effect. A list is refused
/// if only a recirculation shows whether its packets are frames, or if such an output is in a nested list.
#[test]
fn packets_without_an_ethernet_header_are_not_output() {
    let frame = ipv4(17, frames::SRC, frames::DST, 0, &l4(17, 5, 6, false));
    let (pop_eth, pop_nsh) = (DpAction::from(PopEth), DpAction::from(PopNsh));
    let push_eth = DpAction::from(PushEth { src: [2; 6], dst: [4; 6] });
    let clone = |list| DpAction::from(dpif::actions::CloneAction(list));
    let mut rig = Rig::new();
    for (actions, is_taken) in [
        (vec![pop_eth.clone(), out(2)], true),
        (vec![pop_nsh, out(2)], false),
        (vec![clone(vec![pop_eth.clone(), out(2)])], false),
        (vec![pop_eth.clone(), clone(vec![out(2)])], false),
        (vec![pop_eth.clone(), clone(vec![push_eth.clone(), out(2)])], true),
        (vec![clone(vec![pop_eth.clone()]), out(2)], true),
        (vec![pop_eth.clone(), push_eth, out(2)], true),
    ] {
        let (_, put) = rig.put(key_of(1, &frame), least_mask(), actions.clone());
        assert_eq!(!matches!(put, OpResult::Failed(DpifError::Unsupported(_))), is_taken, "{actions:?}");
    }
    // A key that begins without an Ethernet header.
    let mut key = key_of(1, &frame);
    key.arp.packet_type = 0x1_0800;
    key.base.shape |= shape::ARP;
    let (_, put) = rig.put(key, least_mask(), vec![out(2)]);
    assert!(matches!(put, OpResult::Done), "{put:?}");
    // Actions before and behind such an output have their effect.
    let push_eth = DpAction::from(PushEth { src: [2; 6], dst: [4; 6] });
    for (actions, sent) in [
        (vec![pop_eth.clone(), out(2)], 0),
        (vec![pop_eth.clone(), out(2), out(3)], 0),
        (vec![out(2), pop_eth.clone(), out(2)], 1),
        (vec![pop_eth.clone(), out(2), push_eth, out(2)], 1),
    ] {
        let mut rig = Rig::new();
        let (ufid, put) = rig.put(key_of(1, &frame), least_mask(), actions.clone());
        assert!(matches!(put, OpResult::Done), "{put:?}");
        rig.receive(1, std::slice::from_ref(&frame));
        assert_eq!(rig.sent().len(), sent, "{actions:?}");
        let dumped = rig.pmd.table.record(rig.pmd.table.by_ufid(ufid).unwrap()).unwrap();
        assert_eq!((&dumped.actions[..], dumped.stats.packets), (&actions[..], 1));
    }
}
