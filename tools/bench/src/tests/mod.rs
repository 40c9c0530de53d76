//! The parts that need no namespace.

use crate::frames::{FRAME_BYTES, Frames, Refused, Stamp};
use crate::ledger::Ledger;
use crate::report::{Spread, percentile};

fn frame(frames: &Frames, sequence: u64) -> [u8; FRAME_BYTES] {
    let mut bytes = [0; FRAME_BYTES];
    frames.write(Stamp { sequence, sent_ns: 7 }, &mut bytes);
    bytes
}

#[test]
fn frames_are_read_as_written_and_any_other_byte_is_damage() {
    let frames = Frames::new(0x1234_5678, 100_000);
    for sequence in [0, 1, 999, 1000, 99_999, 100_000, 123_456_789] {
        assert_eq!(frames.read(&frame(&frames, sequence)), Ok(Stamp { sequence, sent_ns: 7 }));
    }
    let good = frame(&frames, 77_777);
    for at in 0..FRAME_BYTES {
        let mut bad = good;
        bad[at] ^= 0x10;
        let read = frames.read(&bad);
        let expected = match at {
            // Addresses and run: not ours. The time may be any.
            0..12 | 42..46 => Err(Refused::Foreign),
            54..62 => Ok(77_777),
            _ => Err(Refused::Damaged),
        };
        assert_eq!(read.map(|s| s.sequence), expected, "byte {at}");
    }
    assert_eq!(frames.read(&good[..63]), Err(Refused::Damaged));
    assert_eq!(frames.read(&good[..20]), Err(Refused::Foreign));
    assert_eq!(frames.read(&Frames::announcement()), Err(Refused::Foreign));
}

#[test]
fn flows_are_as_many_5_tuples() {
    for flows in [1, 1000, 100_000] {
        let frames = Frames::new(1, flows);
        let tuples: std::collections::BTreeSet<_> =
            (0..flows * 2).map(|n| frame(&frames, n)[26..38].to_vec()).collect();
        assert_eq!(tuples.len() as u64, flows);
    }
}

#[test]
fn the_ledger_distinguishes_losses_duplicates_damage_and_disorder() {
    let frames = Frames::new(9, 2);
    let mut ledger = Ledger::new(&frames);
    for sequence in [0, 1, 4, 3, 2, 4] {
        ledger.enter(&frames, &frame(&frames, sequence));
    }
    let mut bad = frame(&frames, 8);
    bad[40] = 1;
    ledger.enter(&frames, &bad);
    ledger.enter(&frames, &Frames::announcement());
    // Number 2 came after 4 of its flow; 3 belongs to the other flow.
    let counts = (ledger.received, ledger.duplicates, ledger.damaged, ledger.reordered, ledger.foreign);
    assert_eq!(counts, (5, 1, 1, 1, 1));
    assert!(ledger.fault().unwrap().contains("1 duplicates"));
    assert_eq!(Ledger::new(&frames).fault(), None);
}

#[test]
fn medians_and_percentiles() {
    let spread = Spread::of(&[3.0, 1.0, 2.0]).unwrap();
    assert_eq!((spread.median, spread.least, spread.most), (2.0, 1.0, 3.0));
    assert_eq!(Spread::of(&[4.0, 2.0]).unwrap().median, 3.0);
    assert!(Spread::of(&[]).is_none());
    let mut values: Vec<u64> = (1..=100).rev().collect();
    assert_eq!((percentile(&mut values, 0.5), percentile(&mut values, 0.99)), (Some(50), Some(99)));
    assert_eq!(percentile(&mut [], 0.5), None);
}

#[test]
fn drops_of_all_ports_are_summed() {
    let text = "  port  p1: rx pkts=9, bytes=1, drop=5, errs=0, frame=0, over=0, crc=0\n\
                \x20          tx pkts=3, bytes=1, drop=7, errs=0, coll=0\n  port LOCAL: rx pkts=0, drop=?, tx drop=1\n";
    assert_eq!(crate::sides::sum_of_drops(text), 13);
}

mod counters;
mod results;
mod tunnel;
mod works;
