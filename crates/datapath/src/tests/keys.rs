//! The full extraction is the oracle of the keys kept by rewrites: after any sequence of rewrites, the key of a
//! lookup or upcall is that of the frame.

use super::actions::set;
use super::frames::{arp, ipv4, ipv6, l4};
use super::*;
use dpif::actions::{
    AddMpls, PopEth, PopMpls, PopNsh, PopVlan, PushEth, PushMpls, PushNsh, PushVlan, Recirc, Trunc, Userspace,
};
use flow::{Nsh, RecircId};
use proptest::prelude::*;

/// Frames with complete headers, truncated ones, and unexpected ones.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let mut all = vec![arp()];
    for proto in [0, 1, 2, 6, 17, 47, 132] {
        all.push(ipv4(proto, frames::SRC, frames::DST, 0, &l4(proto, 5, 6, false)));
    }
    for proto in [0, 6, 17, 43, 44, 51, 58, 60, 132] {
        all.push(ipv6(proto, &l4(proto, 5, 6, true)));
    }
    for frag in [0x2000, 0x2001] {
        all.push(ipv4(17, frames::SRC, frames::DST, frag, &l4(17, 5, 6, false)));
    }
    // A length instead of an EtherType, without and with a SNAP header; MPLS.
    all.push(frames::eth(40, &[7; 40]));
    all.push(frames::eth(60, &[&[0xaa, 0xaa, 3, 0, 0, 0][..], &all[1][12..]].concat()));
    all.push(frames::eth(0x8847, &[0, 0, 0x11, 64, 1, 2, 3, 4, 5, 6, 7, 8]));
    // A network service header around a frame.
    all.push(frames::eth(0x894f, &[&[0x0f, 0xc2, 2, 3, 0, 0, 5, 255][..], &all[1]].concat()));
    let tags = prop::collection::vec((prop::sample::select(vec![0x8100u16, 0x88a8]), any::<u16>()), 0..4);
    (prop::sample::select(all), tags, any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>())
        .prop_map(|(mut frame, tags, cut, flip, bits)| {
            for (tpid, tci) in tags {
                let tag = [tpid.to_be_bytes(), tci.to_be_bytes()].concat();
                frame.splice(12..12, tag);
            }
            if bits & 3 == 0 {
                frame.truncate(14 + cut.index(frame.len() - 13));
            }
            if bits & 12 == 0 {
                let at = flip.index(frame.len());
                frame[at] ^= bits;
            }
            frame
        })
}

pub(super) fn rewrite() -> impl Strategy<Value = DpAction> {
    let tpid = prop::sample::select(vec![0x8100, 0x88a8, 0x9100]);
    let mpls = prop::sample::select(vec![0x8847, 0x8848, 0x800]);
    let inner = prop::sample::select(vec![0x800, 0x86dd, 0x806, 0x8847]);
    prop_oneof![
        6 => set().prop_map(DpAction::Set),
        1 => Just(DpAction::Set(SetAction::SkbPriority(0))),
        2 => (tpid, any::<u16>()).prop_map(|(tpid, tci)| DpAction::PushVlan(PushVlan { tpid, tci: tci | 0x1000 })),
        2 => Just(DpAction::PopVlan(PopVlan)),
        2 => (mpls, any::<u32>()).prop_map(|(ethertype, lse)| PushMpls { lse, ethertype }.into()),
        2 => inner.prop_map(|ethertype| PopMpls { ethertype }.into()),
    ]
}

/// Rewrites of packets that are not output: they may lose their Ethernet header.
fn any_rewrite() -> impl Strategy<Value = DpAction> {
    let nsh = (any::<[u8; 2]>(), any::<u32>(), any::<[u32; 4]>(), any::<bool>()).prop_map(
        |([ttl, np], path, context, fixed)| {
            let mdtype = if fixed { 1 } else { 2 };
            let header = Nsh { flags: ttl >> 6, ttl: ttl & 63, mdtype, np: np % 5, path, context };
            PushNsh::new(header, if fixed { &[] } else { &[1, 2, 3, 4] }).expect("a permitted length")
        },
    );
    let set = any::<(u8, u8, u32)>().prop_map(|(ttl, mask, path)| {
        let value = Nsh { ttl: ttl & 63, path, ..Nsh::default() };
        SetAction::Nsh(dpif::Masked { value, mask: Nsh { ttl: mask, path: u32::MAX, ..Nsh::default() } })
    });
    prop_oneof![
        4 => rewrite(),
        3 => Just(DpAction::PopEth(PopEth)),
        3 => Just(DpAction::PushEth(PushEth { src: [2; 6], dst: [4; 6] })),
        2 => nsh.prop_map(DpAction::PushNsh),
        2 => Just(DpAction::PopNsh(PopNsh)),
        1 => set.prop_map(DpAction::Set),
        1 => (any::<u32>(), any::<bool>()).prop_map(|(lse, is_l3)| AddMpls { lse, ethertype: 0x8847, is_l3 }.into()),
        1 => Just(PopMpls { ethertype: 0x6558 }.into()),
    ]
}

/// The key of a frame whose metadata is in `key`, by the full extraction.
fn extracted(frame: &[u8], key: &FlowKey, vlan_limit: u8) -> FlowKey {
    let mut out = *key;
    re_extract(&mut out, frame, vlan_limit);
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn keys_are_those_of_rewritten_frames(
        frame in frame(),
        rewrites in prop::collection::vec(any_rewrite(), 0..8),
        vlan_limit in 0..3u8,
        cut in prop::option::of(0..80u32),
    ) {
        let mut rig = Rig::new();
        rig.pmd.exec.shared.set_vlan_limit(vlan_limit);
        let mut key = FlowKey::default();
        extract(&frame, &Metadata { in_port: 1, ..Metadata::default() }, vlan_limit, &mut key);
        let mut actions = rewrites;
        actions.extend(cut.map(|a| DpAction::Trunc(Trunc(a))));
        actions.push(DpAction::Userspace(Userspace(UserCookie::SlowPath { reasons: 0 })));
        actions.push(DpAction::Recirc(Recirc(RecircId(9))));
        let (_, put) = rig.put(key, least_mask(), actions);
        prop_assert!(matches!(put, OpResult::Done), "{:?}", put);
        rig.receive(1, std::slice::from_ref(&frame));
        let upcalls = std::mem::take(&mut rig.io.upcalls);
        prop_assert_eq!(upcalls.is_empty(), rig.drops(DropReason::BadAction) == 1);
        for upcall in upcalls {
            prop_assert_eq!(upcall.key, extracted(upcall.packet.data(), &upcall.key, vlan_limit));
            let hash = rig.pmd.exec.hasher.key(&upcall.key);
            prop_assert_eq!((upcall.ufid.0 >> 64) as u64, hash, "{:?}", upcall.kind);
        }
    }
}
