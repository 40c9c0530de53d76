//! Hostile input: random bytes as frames, any actions on any frame. Nothing panics, every packet is accounted for.

use super::actions::set;
use super::*;
use dpif::actions::{
    CheckPktLen, CloneAction, DropAction, Meter, PopVlan, PushVlan, Recirc, Sample, Trunc, Userspace,
};
use flow::{RecircId, shape};
use packet::{GsoKind, Offload};
use proptest::prelude::*;

fn action() -> impl Strategy<Value = DpAction> {
    let leaf = prop_oneof![
        (0..6u32).prop_map(out),
        Just(DpAction::Userspace(Userspace(UserCookie::SlowPath { reasons: 1 }))),
        set().prop_map(DpAction::Set),
        any::<(u16, u16)>().prop_map(|(tpid, tci)| DpAction::PushVlan(PushVlan { tpid, tci })),
        Just(DpAction::PushVlan(PushVlan { tpid: 0x8100, tci: 0x1001 })),
        Just(DpAction::PopVlan(PopVlan)),
        (0..100u32).prop_map(|a| DpAction::Trunc(Trunc(a))),
        (0..3u32).prop_map(|n| DpAction::Recirc(Recirc(RecircId(n)))),
        any::<u32>().prop_map(|a| DpAction::Meter(Meter(a))),
        Just(DpAction::Drop(DropAction(XlateDrop::VlanNotAllowed))),
    ];
    leaf.prop_recursive(3, 20, 5, |inner| {
        let list = prop::collection::vec(inner, 0..5);
        prop_oneof![
            list.clone().prop_map(|a| DpAction::Clone(CloneAction(a))),
            (any::<u16>(), list.clone(), list.clone()).prop_map(|(len, greater, less)| {
                DpAction::CheckPktLen(CheckPktLen { len, greater, less })
            }),
            (any::<u32>(), list)
                .prop_map(|(probability, actions)| DpAction::Sample(Sample { probability, actions })),
        ]
    })
}

/// Random bytes, mostly after a plausible EtherType to reach the parsers.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let types = prop_oneof![
        Just(vec![0x08, 0x00, 0x45]),
        Just(vec![0x08, 0x00, 0x46]),
        Just(vec![0x86, 0xdd, 0x60]),
        Just(vec![0x08, 0x06, 0, 1, 8, 0, 6, 4]),
        Just(vec![0x81, 0x00, 0, 5, 0x08, 0x00, 0x45]),
        Just(vec![0x88, 0x47]),
        Just(vec![]),
    ];
    (types, prop::collection::vec(any::<u8>(), 0..120), any::<bool>()).prop_map(|(start, rest, mac)| {
        let mut f = if mac { vec![2; 12] } else { vec![] };
        f.extend(start);
        f.extend(rest);
        f
    })
}

fn offload() -> impl Strategy<Value = Offload> {
    (any::<bool>(), 0..140u16, 0..20u16, any::<bool>()).prop_map(
        |(needs_csum, csum_start, csum_offset, gso)| {
            let gso = if gso { GsoKind::Tcp4 } else { GsoKind::None };
            Offload { needs_csum, csum_start, csum_offset, gso, gso_size: 100, ..Offload::NONE }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn any_actions_on_any_frames(
        frames in prop::collection::vec((frame(), offload()), 1..8),
        actions in prop::collection::vec(action(), 0..8),
        execute: bool,
    ) {
        let mut rig = Rig::new();
        let packets: Vec<Packet> = frames.iter().map(|(bytes, offload)| {
            let mut p = Packet::from_slice(bytes);
            p.offload = *offload;
            p
        }).collect();
        if execute {
            for packet in packets {
                let key = key_of(1, packet.data());
                rig.execute(packet, key, actions.clone(), None);
            }
        } else {
            for (bytes, _) in &frames {
                if bytes.len() >= 14 {
                    rig.put(key_of(1, bytes), least_mask(), actions.clone());
                }
            }
            rig.receive_packets(1, packets);
        }
        rig.pmd.tick(rig.now_us + 10_000_000);
        rig.settle();
        prop_assert_eq!(rig.pmd.ledger().parked, 0);
    }

    #[test]
    fn any_key_in_an_execute(words in prop::collection::vec(any::<u64>(), 40), bytes in frame()) {
        let mut key = FlowKey::default();
        for (n, word) in words.iter().enumerate() {
            key.block_mut(n / 8)[n % 8] = *word;
        }
        let mut rig = Rig::new();
        let mut actions = vec![DpAction::Recirc(Recirc(RecircId(3)))];
        // Ports take frames alone.
        if !key.has(shape::ARP) || key.arp.packet_type == 0 {
            actions.push(out(2));
        }
        rig.execute(Packet::from_slice(&bytes), key, actions, None);
        rig.put(key, least_mask(), vec![out(2)]);
    }
}
