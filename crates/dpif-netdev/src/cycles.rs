//! [`Cycles`]: accounts for the cycles of a forwarding thread, with and without packets.

use super::plan::load::History;

/// See the module documentation.
pub(crate) struct Cycles {
    /// Counter up to which cycles are accounted for.
    charged: u64,
    /// Cycles without and with packets, not yet in the histories.
    spent: [u64; 2],
    busy: History,
    total: History,
}

impl Cycles {
    /// Starts at the present counter.
    pub(crate) fn new(now_us: u64) -> Cycles {
        Cycles {
            charged: sys::clock::cycles(),
            spent: [0; 2],
            busy: History::new(now_us),
            total: History::new(now_us),
        }
    }

    /// The counter up to which cycles are accounted for.
    pub(crate) fn charged(&self) -> u64 {
        self.charged
    }

    /// Accounts for the cycles since the last call.
    pub(crate) fn charge(&mut self, busy: bool) -> u64 {
        let now = sys::clock::cycles();
        // Counters of two processors may differ slightly.
        let cycles = now.saturating_sub(self.charged);
        self.charged = now;
        self.spent[usize::from(busy)] += cycles;
        cycles
    }

    /// Moves the cycles so far into the histories; returns those without and with packets.
    pub(crate) fn settle(&mut self, now_us: u64) -> [u64; 2] {
        let [idle, busy] = std::mem::take(&mut self.spent);
        self.busy.add(now_us, busy);
        self.total.add(now_us, idle + busy);
        [idle, busy]
    }

    /// Histories of cycles with packets, and of all.
    pub(crate) fn histories(&self) -> (History, History) {
        (self.busy, self.total)
    }
}
