//! [`HeldOutput`]: packets of several bursts that are sent together.
//!
//! Output of a burst waits for the bursts of further queues, and for the next round while a queue has more; many ports with few
//! packets each, and ports that share the packets of one, thus need fewer transmit calls. No burst begins after [`HOLD_US`], and
//! none is waited for that is still to come, unless `tx-flush-interval` permits it. The cycles of a call are shared by packets.

use std::time::Duration;

/// Time after which output waits for no further burst, without a `tx-flush-interval`.
pub(super) const HOLD_US: u64 = 10;
/// Most entries of queues.
const SHARES_MAX: usize = 1024;

/// See the module.
pub(super) struct HeldOutput {
    /// Longest time that output waits without an interval.
    own_us: u64,
    /// `tx-flush-interval`: output waits that long for further packets; 0: it does not.
    interval_us: u64,
    since_us: u64,
    /// Places of the queues and their packets.
    shares: Vec<(usize, u64)>,
    /// A queue may have more packets.
    has_more: bool,
}

impl HeldOutput {
    /// Without an interval output waits for further bursts that long; 0: not at all.
    pub(super) fn new(own_us: u64) -> HeldOutput {
        HeldOutput { own_us, interval_us: 0, since_us: 0, shares: Vec::new(), has_more: false }
    }

    pub(super) fn set_interval(&mut self, us: u64) {
        self.interval_us = us;
    }

    /// Whether none waits.
    pub(super) fn is_empty(&self) -> bool {
        self.shares.is_empty()
    }

    /// Begins a round of bursts.
    pub(super) fn begin_round(&mut self) {
        self.has_more = false;
    }

    /// Records a burst of the queue at `place`, received at `now_us`; returns whether output is sent at once.
    pub(super) fn note(&mut self, place: usize, packets: usize, has_more: bool, now_us: u64) -> bool {
        if self.shares.is_empty() {
            self.since_us = now_us;
        }
        match self.shares.last_mut().filter(|(last, _)| *last == place) {
            Some((_, all)) => *all += packets as u64,
            None => self.shares.push((place, packets as u64)),
        }
        self.has_more |= has_more;
        self.hold_us() == 0 || self.shares.len() >= SHARES_MAX
    }

    /// Whether output is sent at the end of a round; `now_us` is only asked for output that waits.
    pub(super) fn is_due(&self, now_us: impl FnOnce() -> u64) -> bool {
        !self.is_empty() && (self.interval_us == 0 && !self.has_more || self.is_late(now_us()))
    }

    /// Whether output has waited long enough.
    pub(super) fn is_late(&self, now_us: u64) -> bool {
        !self.is_empty() && now_us.saturating_sub(self.since_us) >= self.hold_us()
    }

    fn hold_us(&self) -> u64 {
        if self.interval_us == 0 { self.own_us } else { self.interval_us }
    }

    /// Longest sleep until output is sent.
    pub(super) fn left(&self, now_us: u64) -> Option<Duration> {
        let left_us = (self.since_us + self.hold_us()).saturating_sub(now_us);
        (!self.is_empty()).then(|| Duration::from_micros(left_us))
    }

    /// Shares the cycles of the transmit calls among the queues; none waits afterwards.
    pub(super) fn share(&mut self, cycles: u64, mut spent: impl FnMut(usize, u64)) {
        let all: u64 = self.shares.iter().map(|(_, packets)| packets).sum();
        for (place, packets) in self.shares.drain(..) {
            spent(place, cycles * packets / all.max(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn never() -> u64 {
        panic!("nobody asks for the time")
    }

    #[test]
    fn output_waits_while_queues_have_more() {
        let mut held = HeldOutput::new(HOLD_US);
        held.begin_round();
        assert!(!held.is_due(never) && held.left(7).is_none());
        assert!(!held.note(3, 32, true, 1000));
        assert!(!held.is_due(|| 1001));
        held.begin_round();
        assert!(!held.note(3, 32, true, 1000 + HOLD_US - 1) && !held.is_due(|| 1000 + HOLD_US - 1));
        assert!(held.is_due(|| 1000 + HOLD_US) && held.is_late(1000 + HOLD_US));
        held.share(0, |_, _| ());
        // The last packets do not wait.
        held.begin_round();
        assert!(!held.note(3, 31, false, 5000) && held.is_due(never));
    }

    #[test]
    fn an_interval_waits_for_packets_to_come() {
        let mut held = HeldOutput::new(HOLD_US);
        held.set_interval(50);
        held.begin_round();
        assert!(!held.note(0, 1, false, 1000));
        assert!(!held.is_due(|| 1049) && held.is_due(|| 1050));
        assert_eq!(
            (held.left(1020), held.left(2000)),
            (Some(Duration::from_micros(30)), Some(Duration::ZERO))
        );
        held.begin_round();
        assert!(!held.note(1, 1, false, 1049) && held.is_late(1050));
        held.share(0, |_, _| ());
        assert!(held.is_empty() && held.left(1051).is_none());
    }

    #[test]
    fn bursts_are_sent_apart_if_told_so() {
        let mut held = HeldOutput::new(0);
        held.begin_round();
        assert!(held.note(0, 32, true, 1000));
        held.set_interval(50);
        held.share(0, |_, _| ());
        assert!(!held.note(0, 32, true, 1000));
    }

    #[test]
    fn few_bursts_wait() {
        let mut held = HeldOutput::new(HOLD_US);
        held.set_interval(1_000_000);
        assert!((0..5000).all(|_| !held.note(7, 1, false, 0)));
        let sent = (0..).take_while(|n| !held.note(n % 7, 1, false, 0)).count();
        assert_eq!(sent + 2, SHARES_MAX);
    }

    #[test]
    fn the_cost_of_calls_is_shared_by_packets() {
        let mut held = HeldOutput::new(HOLD_US);
        held.note(3, 10, false, 0);
        held.note(3, 20, false, 0);
        held.note(5, 10, false, 0);
        let mut spent = Vec::new();
        held.share(400, |place, cycles| spent.push((place, cycles)));
        assert_eq!(spent, [(3, 300), (5, 100)]);
    }
}
