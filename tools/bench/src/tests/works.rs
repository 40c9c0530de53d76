//! Capture files and rules.

use crate::frames::FRAME_BYTES;
use crate::tunnels::{OUTER_BYTES, Tunnel, l3_pipeline, vxlan};
use crate::works::{
    MASKS, PORTS, SUBTABLES, Work, capture, many_masks, one_mask, pipeline, shared_subtables, shuffle,
};
use std::collections::BTreeSet;
use std::path::Path;
use testkit::TempDir;

/// The frames of a capture file, read by their records.
fn frames(path: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(path).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    assert_eq!((word(0), word(4), word(20)), (0xa1b2_c3d4, 0x0004_0002, 1));
    let (mut at, mut out) = (24, Vec::new());
    while at < bytes.len() {
        let stored = word(at + 8) as usize;
        assert_eq!(stored, word(at + 12) as usize);
        out.push(bytes[at + 16..at + 16 + stored].to_vec());
        at += 16 + stored;
    }
    out
}

fn destination(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[30..34].try_into().unwrap())
}

/// Port and prefix of a rule.
fn rule(text: &str) -> (u32, u32, u32) {
    let field = |name: &str| text.split(name).nth(1).unwrap().split(',').next().unwrap();
    let (address, length) = field("nw_dst=").split_once('/').unwrap();
    let address: std::net::Ipv4Addr = address.parse().unwrap();
    (field("in_port=").parse().unwrap(), address.into(), length.parse().unwrap())
}

/// Frames of each source that each rule matches; each frame must match exactly one.
fn shares(work: &Work) -> Vec<BTreeSet<(u32, usize)>> {
    let rules: Vec<_> = work.rules.iter().map(|r| rule(r)).collect();
    let of = |file: &Path, port: u32| -> BTreeSet<(u32, usize)> {
        let mut counts = std::collections::BTreeMap::new();
        for frame in frames(file) {
            assert_eq!(packet::checksum::checksum(&frame[14..34]), 0, "checksum of the IPv4 header");
            let to = destination(&frame);
            let met: Vec<u32> = rules
                .iter()
                .filter(|(p, prefix, length)| *p == port && (to ^ prefix) >> (32 - length) == 0)
                .map(|(_, _, length)| *length)
                .collect();
            assert_eq!(met.len(), 1, "{to:x}");
            *counts.entry(met[0]).or_insert(0) += 1;
        }
        counts.into_iter().collect()
    };
    work.sources.iter().map(|s| of(&s.file, s.port)).collect()
}

#[test]
fn many_masks_are_skewed_and_each_frame_meets_one_rule() {
    let folder = TempDir::new("works").unwrap();
    let work = many_masks(&folder, 100_000).unwrap();
    let shares = shares(&work);
    assert_eq!(shares[0].len() as u32, MASKS);
    assert_eq!(shares[0].iter().map(|(_, n)| n).sum::<usize>(), 100_000);
    // Visited in the order of their shares, as in a ranked list: the minimum of a classifier.
    let mut counts: Vec<usize> = shares[0].iter().map(|(_, n)| *n).collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let looks: usize = counts.iter().enumerate().map(|(at, n)| (at + 1) * n).sum();
    assert_eq!(looks * 10 / 100_000, 23);
}

#[test]
fn subtables_are_shared_as_said() {
    let folder = TempDir::new("works").unwrap();
    for each in [2, 1] {
        let work = shared_subtables(&folder, each).unwrap();
        let shares = shares(&work);
        assert_eq!(shares.len() as u32, PORTS);
        for share in &shares {
            let counts: Vec<usize> = share.iter().map(|(_, n)| *n).collect();
            assert_eq!(counts.len(), 2);
            let rare = *counts.iter().min().unwrap() as f64 / counts.iter().sum::<usize>() as f64;
            assert!(if each == 1 { rare < 0.001 } else { rare == 0.5 }, "{counts:?}");
        }
        let masks: BTreeSet<u32> = shares.iter().flatten().map(|(length, _)| *length).collect();
        assert_eq!((masks.len() as u32, work.megaflows as u32), (SUBTABLES, SUBTABLES));
    }
}

#[test]
fn pipelines_have_a_table_more_than_recirculations() {
    let folder = TempDir::new("works").unwrap();
    for recirculations in [0, 3] {
        let work = pipeline(&folder, 1000, recirculations).unwrap();
        assert_eq!((work.rules.len(), work.megaflows), (recirculations as usize + 1, work.rules.len()));
        let (last, others) = work.rules.split_last().unwrap();
        assert!(last.ends_with(",output:100"), "{last}");
        assert!(
            others.iter().zip(1..).all(|(r, next)| r.ends_with(&format!(",debug_recirc,resubmit(,{next})")))
        );
        assert_eq!(frames(&work.sources[0].file).len(), 1000);
    }
}

#[test]
fn flows_differ_and_come_in_no_order() {
    let folder = TempDir::new("works").unwrap();
    let work = one_mask(&folder, 1000, false).unwrap();
    let all = frames(&work.sources[0].file);
    let tuples: Vec<Vec<u8>> = all.iter().map(|f| f[26..38].to_vec()).collect();
    let distinct: BTreeSet<_> = tuples.iter().collect();
    assert_eq!((all.len(), distinct.len()), (1000, 1000));
    assert!(!tuples.is_sorted());
    let mut numbers: Vec<u32> = (0..100).collect();
    shuffle(&mut numbers);
    assert_ne!(numbers, (0..100).collect::<Vec<_>>());
    numbers.sort_unstable();
    assert_eq!(numbers, (0..100).collect::<Vec<_>>());
    assert_eq!(capture(&[[7; FRAME_BYTES]]).len(), 24 + 16 + FRAME_BYTES);
}

#[test]
fn encapsulated_frames_are_whole_and_meet_a_rule() {
    let folder = TempDir::new("works").unwrap();
    let plain = frames(&vxlan(&folder, 1000, Tunnel::Push).unwrap().sources[0].file);
    let outer = frames(&vxlan(&folder, 1000, Tunnel::Pop).unwrap().sources[0].file);
    assert_eq!((plain.len(), outer.len()), (1000, 1000));
    let mut ports = BTreeSet::new();
    for frame in &outer {
        assert_eq!(frame.len(), FRAME_BYTES + OUTER_BYTES);
        let half = |at: usize| usize::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
        // Lengths of IPv4 and UDP; destination port; flags and VNI.
        assert_eq!((half(16), half(38), half(36)), (frame.len() - 14, frame.len() - 34, 4789));
        assert_eq!(frame[42..50], [8, 0, 0, 0, 0, 0, 5, 0]);
        assert_eq!(packet::checksum::checksum(&frame[14..34]), 0, "checksum of the outer IPv4 header");
        ports.insert(half(34));
        assert!(plain.contains(&frame[OUTER_BYTES..].to_vec()));
    }
    assert_eq!(ports.len(), 1000);
}

#[test]
fn the_l3_pipeline_has_both_directions_of_each_connection() {
    let folder = TempDir::new("works").unwrap();
    let work = l3_pipeline(&folder, 1000).unwrap();
    let [own, replies] = [0, 1].map(|n| frames(&work.sources[n].file));
    let ways: Vec<Tunnel> = work.sources.iter().map(|s| s.tunnel).collect();
    assert_eq!((ways, own.len(), replies.len()), (vec![Tunnel::Push, Tunnel::Pop], 1000, 1000));
    // Addresses and ports of the sender, and of the receiver.
    let ends = |f: &[u8]| [[&f[26..30], &f[34..36]].concat(), [&f[30..34], &f[36..38]].concat()];
    let inner: Vec<&[u8]> = replies.iter().map(|f| &f[OUTER_BYTES..]).collect();
    let answered: BTreeSet<_> = inner.iter().map(|f| ends(f)).map(|[from, to]| [to, from]).collect();
    assert_eq!(own.iter().map(|f| ends(f)).collect::<BTreeSet<_>>(), answered);
    let in_order = own.iter().zip(&inner).filter(|(own, reply)| own[26..30] == reply[30..34]).count();
    assert!(in_order < 100, "{in_order} replies in the order of their packets");
    // Each frame meets a route of its direction, and each length of a prefix.
    for (direction, all) in [own.iter().map(Vec::as_slice).collect(), inner].into_iter().enumerate() {
        let mut lengths = BTreeSet::new();
        for frame in all {
            assert_eq!(packet::checksum::checksum(&frame[14..34]), 0, "checksum of the IPv4 header");
            let routes =
                work.rules.iter().filter(|r| r.starts_with("table=7,")).enumerate().filter(|(_, r)| {
                    let (address, length) = r
                        .split("nw_dst=")
                        .nth(1)
                        .unwrap()
                        .split(',')
                        .next()
                        .unwrap()
                        .split_once('/')
                        .unwrap();
                    let address: std::net::Ipv4Addr = address.parse().unwrap();
                    (destination(frame) ^ u32::from(address)) >> (32 - length.parse::<u32>().unwrap()) == 0
                });
            let met: Vec<usize> = routes.map(|(n, _)| n).collect();
            assert_eq!(met.len(), 1, "{:x}", destination(frame));
            assert_eq!(met[0] / 10, direction);
            lengths.insert(met[0]);
        }
        assert_eq!(lengths.len(), 10);
    }
    // All tables but that of the routes have rules of both directions, or of any packet.
    let tables: BTreeSet<&str> = work.rules.iter().map(|r| r.split(',').next().unwrap()).collect();
    assert_eq!(tables.len(), 15);
    assert!(
        work.rules.iter().all(|r| !r.contains("+new") || r.contains("reg14=1,")),
        "new ones by the tunnel"
    );
}
