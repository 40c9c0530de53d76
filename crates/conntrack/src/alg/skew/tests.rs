//! Shifts of sequence numbers.

use super::Skew;
use crate::tcp::Segment;
use proptest::prelude::*;

proptest! {
    #[test]
    fn skews_are_words(at: u32, before in -(1 << 23)..1 << 23, growth in -64..64, reply: bool) {
        let skew = Skew { at, before, growth, reply };
        prop_assert_eq!(Skew::unpack(skew.pack()), skew);
    }
}

#[test]
fn numbers_shift_behind_a_message() {
    let mut skew = Skew::default();
    assert!(skew.has_room(true) && skew.has_room(false));
    skew.add(5, 0, true);
    assert_eq!(skew, Skew::default());
    skew.add(100, 6, false);
    skew.add(u32::MAX, 3, false);
    // Sent before the first: of no effect.
    assert_eq!((skew.at, skew.before, skew.growth), (100, 0, 6));
    for (what, seq, growth, expect) in [
        ("the message", 100, 6, [0, 6]),
        ("its repetition", 100, 6, [0, 6]),
        ("one of the same size", 130, 0, [0, 6]),
        ("the next one", 200, -2, [6, 4]),
        ("the first, late", 100, 6, [6, 4]),
    ] {
        skew.add(seq, growth, false);
        assert_eq!([skew.before, skew.before + skew.growth], expect, "{what}");
    }
    for (seq, shifted) in [(150, 156), (200, 206), (220, 224), (300, 304)] {
        assert_eq!(seq + skew.forth(seq as u32), shifted);
        assert_eq!(shifted + skew.back(shifted as u32), seq);
    }
    assert!(skew.has_room(false) && !skew.has_room(true));
    for (reply, translated, seq, ack) in
        [(false, false, 304, 304), (false, true, 300, 304), (true, false, 304, 300), (true, true, 304, 304)]
    {
        let mut segment = Segment { seq: 304, ack: 304, ..Segment::default() };
        skew.restore(&mut segment, reply, translated);
        assert_eq!((segment.seq, segment.ack), (seq, ack), "{reply} {translated}");
    }
    skew.before = super::BEFORE_MAX;
    assert!(!skew.has_room(false));
}
