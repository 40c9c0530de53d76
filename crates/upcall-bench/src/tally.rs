//! Counts received packets: each probe counts once; all others are reported separately.

use crate::probe::{Kind, Probe};

/// Received frames, sorted out.
#[derive(Debug)]
pub struct Tally {
    run: u32,
    port: u16,
    probes: u32,
    /// A bit a sequence number.
    seen: Vec<u64>,
    highest: Option<u32>,
    /// Delays of the probes, in the order of arrival.
    pub delays_ns: Vec<u64>,
    /// Probes that came more than once: the later ones.
    pub duplicates: u64,
    /// Probes that came after a later one.
    pub reordered: u64,
    /// Frames that are none of this measurement's.
    pub foreign: u64,
    /// Probes without a timestamp, or with one before their transmission (the clock was set): arrived, but
    /// without a delay.
    pub unstamped: u64,
    /// Load of the same port.
    pub load: u64,
}

impl Tally {
    /// Expects probes with sequence numbers below `probes` of measurement `run` on `port`.
    pub fn new(run: u32, port: u16, probes: u32) -> Tally {
        Tally {
            run,
            port,
            probes,
            seen: vec![0; (probes as usize).div_ceil(64)],
            highest: None,
            delays_ns: Vec::new(),
            duplicates: 0,
            reordered: 0,
            foreign: 0,
            unstamped: 0,
            load: 0,
        }
    }

    /// Number of different probes that arrived.
    pub fn arrived(&self) -> u64 {
        self.delays_ns.len() as u64 + self.unstamped
    }

    /// Counts a parsed frame that arrived at `stamp_ns`.
    pub fn take(&mut self, read: Option<Probe>, stamp_ns: Option<u64>) {
        let Some(probe) = read.filter(|p| p.run == self.run && p.port == self.port) else {
            self.foreign += 1;
            return;
        };
        if probe.kind == Kind::Load {
            self.load += 1;
            return;
        }
        if probe.seq >= self.probes {
            self.foreign += 1;
            return;
        }
        let (word, bit) = (probe.seq as usize / 64, 1_u64 << (probe.seq % 64));
        if self.seen[word] & bit != 0 {
            self.duplicates += 1;
            return;
        }
        self.seen[word] |= bit;
        if self.highest.is_some_and(|highest| probe.seq < highest) {
            self.reordered += 1;
        } else {
            self.highest = Some(probe.seq);
        }
        match stamp_ns.and_then(|at| at.checked_sub(probe.stamp_ns)) {
            Some(delay) => self.delays_ns.push(delay),
            None => self.unstamped += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(seq: u32) -> Probe {
        Probe { run: 7, port: 3, kind: Kind::Probe, seq, stamp_ns: 100 }
    }

    #[test]
    fn each_probe_counts_once() {
        let mut tally = Tally::new(7, 3, 100);
        for (seq, at) in [(0, 110), (2, 120), (1, 130), (2, 500), (99, 105)] {
            tally.take(Some(probe(seq)), Some(at));
        }
        assert_eq!(tally.delays_ns, [10, 20, 30, 5]);
        assert_eq!((tally.arrived(), tally.duplicates, tally.reordered, tally.foreign), (4, 1, 1, 0));
    }

    #[test]
    fn foreign_packets_are_only_reported() {
        let mut tally = Tally::new(7, 3, 100);
        tally.take(None, Some(1));
        tally.take(Some(Probe { run: 8, ..probe(0) }), Some(200));
        tally.take(Some(Probe { port: 4, ..probe(0) }), Some(200));
        tally.take(Some(probe(100)), Some(200));
        tally.take(Some(Probe { kind: Kind::Load, ..probe(u32::MAX) }), Some(200));
        assert_eq!((tally.arrived(), tally.foreign, tally.load), (0, 4, 1));
    }

    #[test]
    fn a_clock_that_was_set_gives_no_delay() {
        let mut tally = Tally::new(7, 3, 2);
        tally.take(Some(probe(0)), Some(99));
        tally.take(Some(probe(1)), None);
        assert_eq!((tally.arrived(), tally.unstamped, tally.delays_ns.len()), (2, 2, 0));
    }
}
