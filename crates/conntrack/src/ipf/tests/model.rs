//! Reassembly against a plain model: one byte of the datagram after the other.

use super::*;
use proptest::prelude::*;

/// Bytes of a model's datagram at most.
const BYTES: usize = 12_000;

/// The plain version of one datagram: which bytes are there, and where it ends.
#[derive(Default)]
struct Plain {
    there: Vec<bool>,
    end: Option<usize>,
    starts: Vec<usize>,
}

impl Plain {
    /// Adds a fragment; `None` if it is refused, else whether the datagram is complete.
    fn add(&mut self, start: usize, end: usize, last: bool) -> Option<bool> {
        self.there.resize(self.there.len().max(end), false);
        let inside = self.starts.contains(&start)
            || self.there[start..end].contains(&true)
            || start > 0
                && start < self.there.len()
                && start == end
                && self.there[start - 1]
                && self.there[start];
        let contradicts = match self.end {
            Some(known) if last => known != end,
            Some(known) => end > known,
            None => last && self.there.iter().skip(end).any(|there| *there),
        };
        if inside || contradicts {
            return None;
        }
        self.there[start..end].fill(true);
        self.starts.push(start);
        if last {
            self.end = Some(end);
        }
        Some(self.end.is_some_and(|end| self.there[..end].iter().all(|there| *there)))
    }
}

/// A fragment of the model: start in units of 8 bytes, length, whether it is the last.
fn any_fragment() -> impl Strategy<Value = (usize, usize, bool)> {
    (0usize..12, prop::sample::select(vec![400, 408, 416, 800, 1200]), prop::bool::weighted(0.2))
        .prop_map(|(unit, bytes, last)| (unit * 400, bytes, last))
}

proptest! {
    /// Any cut of a datagram, in any order and with repeated fragments, gives the datagram again.
    #[test]
    fn any_cut_in_any_order(
        v6: bool,
        bytes in 0..BYTES,
        cuts in prop::collection::vec(50usize..400, 1..30),
        order in any::<prop::sample::Index>(),
        seed: u64,
        options in prop::sample::select(vec![0usize, 8, 40]),
    ) {
        let datagram = udp(v6, bytes.max(500));
        let options = if v6 { vec![] } else { vec![1; options] };
        let mut edges = vec![0];
        for units in cuts {
            let next = edges[edges.len() - 1] + units * 8;
            if next < datagram.len() {
                edges.push(next);
            }
        }
        edges.push(datagram.len());
        let mut parts: Vec<(usize, usize)> = edges.windows(2).map(|w| (w[0], w[1])).collect();
        if parts.len() == 1 {
            return Ok(());
        }
        let dice = KeyHash::new(seed);
        for i in (1..parts.len()).rev() {
            parts.swap(i, (dice.of(&[i as u64]) % (i as u64 + 1)) as usize);
        }
        let again = order.index(parts.len());
        let ipf = Ipf::new(seed);
        ipf.set_min_fragment_bytes(v6, 400).unwrap();
        let mut whole = None;
        for (n, (start, end)) in parts.iter().enumerate() {
            let more = *end < datagram.len();
            let cut = Cut { v6, id: 7, start: *start, more, payload: &datagram[*start..*end], options: &options };
            if n == again && parts.len() > n + 1 {
                prop_assert_eq!(word(&take(&ipf, cut.bit(1), 0, 0)), "held");
                prop_assert_eq!(word(&take(&ipf, cut.bit(1), 0, 0)), "Overlap");
                continue;
            }
            match take(&ipf, cut.bit(1), 0, 0) {
                Taken::Held => {}
                Taken::Complete(complete) => whole = Some(complete),
                Taken::Refused(_, why) => prop_assert!(false, "{why:?} of {start}..{end}"),
            }
        }
        let Some(mut whole) = whole else { return Err(TestCaseError::fail("not complete")) };
        let header = if v6 { 54 } else { 34 + options.len() };
        prop_assert_eq!(&whole.whole.data()[header..], &datagram[..]);
        prop_assert_eq!(whole.fragments.len(), parts.len());
        prop_assert!(ipf.is_empty());
        // Back and forth with other addresses.
        let at = if v6 { 22..54 } else { 26..34 };
        whole.whole.data_mut()[at.clone()].reverse();
        if !v6 {
            whole.whole.data_mut()[24..26].fill(0);
            let sum = checksum(&whole.whole.data()[14..header]);
            whole.whole.data_mut()[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        whole.whole.data_mut()[header + 3] ^= 0x55;
        whole.carry_back();
        let expect = whole.whole.data().to_vec();
        let mut second = None;
        for bit in whole.fragments {
            if let Taken::Complete(complete) = take(&ipf, bit, 0, 0) {
                second = Some(complete);
            }
        }
        prop_assert_eq!(second.map(|s| s.whole.data().to_vec()), Some(expect));
    }

    /// Any fragments, overlapping and contradicting ones too: the same outcome as the plain version.
    #[test]
    fn any_fragments(v6: bool, fragments in prop::collection::vec(any_fragment(), 1..20), empty: bool) {
        let ipf = Ipf::new(1);
        ipf.set_min_fragment_bytes(v6, 400).unwrap();
        let pattern: Vec<u8> = (0..BYTES).map(|i| (i / 8) as u8).collect();
        let mut plain = Plain::default();
        for (start, bytes, last) in fragments {
            let last = last && start > 0;
            let bytes = if last && empty { 0 } else { bytes };
            let cut = Cut { v6, start, more: !last, payload: &pattern[start..start + bytes], ..CUT };
            let taken = take(&ipf, cut.bit(1), 0, 0);
            match plain.add(start, start + bytes, last) {
                None => prop_assert_eq!(word(&taken), "Overlap"),
                Some(false) => prop_assert_eq!(word(&taken), "held"),
                Some(true) => {
                    let Taken::Complete(whole) = taken else { return Err(TestCaseError::fail("not complete")) };
                    let end = plain.end.unwrap();
                    prop_assert_eq!(&whole.whole.data()[if v6 { 54 } else { 34 }..], &pattern[..end]);
                    prop_assert_eq!(whole.fragments.len(), plain.starts.len());
                    plain = Plain::default();
                }
            }
            prop_assert_eq!(ipf.len(), plain.starts.len());
        }
    }
}
