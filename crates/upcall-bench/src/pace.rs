//! Transmit times: decisions on given times, in ns since the beginning of a measurement.

/// Maximum packets of load in one system call.
pub const LOAD_BURST_MAX: u64 = 32;
/// Load caught up after a pause: at most 1 ms.
const CATCH_UP_NS: u64 = 1_000_000;

/// One packet per interval. After a pause it restarts there: packets in quick succession would measure their
/// own queue.
#[derive(Debug)]
pub struct Pace {
    next_ns: u64,
    interval_ns: u64,
}

impl Pace {
    /// The first at once.
    pub fn new(interval_ns: u64) -> Pace {
        Pace { next_ns: 0, interval_ns }
    }

    /// Time of the next one.
    pub fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// It was sent.
    pub fn sent(&mut self, now_ns: u64) {
        let on_time = self.next_ns.saturating_add(self.interval_ns);
        self.next_ns = if on_time > now_ns { on_time } else { now_ns.saturating_add(self.interval_ns) };
    }
}

/// Load at a rate, in bursts.
#[derive(Debug)]
pub struct LoadPace {
    /// Packets a second; `None`: maximum.
    rate: Option<u64>,
    burst: u64,
    begin_ns: u64,
    sent: u64,
}

impl LoadPace {
    /// That many packets a second.
    pub fn new(rate: Option<u64>) -> LoadPace {
        // Ten thousand bursts a second: waits of at most a tenth of a millisecond, and few system calls.
        let burst = rate.map_or(LOAD_BURST_MAX, |rate| (rate / 10_000).clamp(1, LOAD_BURST_MAX));
        LoadPace { rate, burst, begin_ns: 0, sent: 0 }
    }

    /// Maximum packets of one burst.
    pub fn burst(&self) -> u64 {
        self.burst
    }

    /// Time of the next burst.
    pub fn next_ns(&self) -> u64 {
        let Some(rate) = self.rate else { return 0 };
        let due = u128::from(self.sent) * 1_000_000_000 / u128::from(rate.max(1));
        self.begin_ns.saturating_add(u64::try_from(due).unwrap_or(u64::MAX))
    }

    /// Reports that many packets sent. Load missed in a longer pause is skipped.
    pub fn sent(&mut self, count: u64, now_ns: u64) {
        self.sent += count;
        if now_ns.saturating_sub(self.next_ns()) > CATCH_UP_NS {
            (self.begin_ns, self.sent) = (now_ns, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_keep_their_raster_and_never_bunch() {
        let mut pace = Pace::new(1000);
        assert_eq!(pace.next_ns(), 0);
        for (now_ns, next_ns) in [(10, 1000), (1300, 2000), (2999, 3000), (9000, 10_000), (10_000, 11_000)] {
            pace.sent(now_ns);
            assert_eq!(pace.next_ns(), next_ns, "sent at {now_ns}");
        }
    }

    #[test]
    fn load_keeps_its_rate() {
        let mut pace = LoadPace::new(Some(200_000));
        assert_eq!(pace.burst(), 20);
        for burst in 0..1000 {
            let due = pace.next_ns();
            assert_eq!(due, burst * 100_000);
            pace.sent(20, due + 30_000);
        }
        // After a pause of a second it continues at the rate from there.
        let now_ns = pace.next_ns() + 1_000_000_000;
        pace.sent(20, now_ns);
        assert_eq!(pace.next_ns(), now_ns);
    }

    #[test]
    fn extreme_rates() {
        assert_eq!(LoadPace::new(Some(1)).burst(), 1);
        assert_eq!(LoadPace::new(Some(u64::MAX)).burst(), LOAD_BURST_MAX);
        let mut fastest = LoadPace::new(None);
        fastest.sent(32, 5);
        assert_eq!((fastest.next_ns(), fastest.burst()), (0, LOAD_BURST_MAX));
        let mut none = LoadPace::new(Some(0));
        none.sent(u64::MAX >> 1, 0);
        assert_eq!(none.next_ns(), u64::MAX);
    }
}
