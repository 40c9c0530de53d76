//! [`LoopTimes`]: how long the turns of the main loop take, and which part of them.
//!
//! A turn lasts from the end of a wait to the next wait. The main loop names each part at its end: that reads the clock once,
//! and the part gets the time since the part before. No lock and no other thread is involved; the metrics get a copy.

#[cfg(test)]
mod tests;

use crate::upcall_times::Times;

/// A turn of this length counts as `long_poll_interval`, as in OVS.
const LONG_US: u64 = 1_000_000;

/// A part of a turn. `as usize` indexes the times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// The database: its server, its clients, its connection.
    Database,
    /// OpenFlow connections.
    OpenFlow,
    /// Reports of link protocols and bonds.
    Links,
    /// From the database to the datapaths, and status back.
    Configuration,
    /// Statistics of rules, streams of dummies, ports that the main loop serves itself.
    Ports,
    /// Routes, neighbours, policy rules.
    Routes,
    /// Facts for a scrape of the metrics.
    Metrics,
    /// Samples of the coverage counters and of the memory.
    Counters,
    /// Commands of the control sockets and their replies.
    Commands,
    /// Takeover of a lost database server, and handover to another process.
    Takeover,
    /// Signals, the service manager, the log.
    Others,
}

impl Part {
    /// All parts, in order.
    pub(crate) const ALL: [Part; 11] = [
        Part::Database,
        Part::OpenFlow,
        Part::Links,
        Part::Configuration,
        Part::Ports,
        Part::Routes,
        Part::Metrics,
        Part::Counters,
        Part::Commands,
        Part::Takeover,
        Part::Others,
    ];

    /// Its name in commands and metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Part::Database => "database",
            Part::OpenFlow => "openflow",
            Part::Links => "links",
            Part::Configuration => "configuration",
            Part::Ports => "ports",
            Part::Routes => "routes",
            Part::Metrics => "metrics",
            Part::Counters => "counters",
            Part::Commands => "commands",
            Part::Takeover => "takeover",
            Part::Others => "others",
        }
    }
}

/// Times of a part over all turns, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct PartTimes {
    pub(crate) sum_us: u64,
    /// Most in one turn.
    pub(crate) longest_us: u64,
}

/// The longest turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LongestTurn {
    pub(crate) us: u64,
    /// Its end, in milliseconds of the wall clock.
    pub(crate) at_ms: u64,
    /// The part that took longest, and its time.
    pub(crate) part: Part,
    pub(crate) part_us: u64,
}

/// Times of the turns since the start or the last [`LoopTimes::clear`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct TurnTimes {
    pub(crate) turns: Times,
    /// By [`Part`].
    pub(crate) parts: [PartTimes; Part::ALL.len()],
    pub(crate) longest: Option<LongestTurn>,
}

/// See the module documentation.
#[derive(Default)]
pub(crate) struct LoopTimes {
    /// End of the last part, in microseconds of the machine's clock.
    last_us: u64,
    /// Times of the parts of this turn.
    now_us: [u64; Part::ALL.len()],
    so_far: TurnTimes,
    long: u64,
}

impl LoopTimes {
    /// Begins a turn.
    pub(crate) fn begin(&mut self) {
        self.begin_at(sys::clock::machine_us());
    }

    /// A part ends; a part may have several pieces in a turn.
    pub(crate) fn end(&mut self, part: Part) {
        self.end_at(part, sys::clock::machine_us());
    }

    /// The turn ends with its last part.
    pub(crate) fn end_turn(&mut self) {
        self.count_turn(sys::clock::wall_ms);
    }

    fn begin_at(&mut self, now_us: u64) {
        self.last_us = now_us;
        self.now_us = [0; Part::ALL.len()];
    }

    fn end_at(&mut self, part: Part, now_us: u64) {
        self.now_us[part as usize] += now_us.saturating_sub(self.last_us);
        self.last_us = now_us;
    }

    fn count_turn(&mut self, wall_ms: impl FnOnce() -> u64) {
        let us = self.now_us.iter().sum();
        self.so_far.turns.add(us);
        self.long += u64::from(us >= LONG_US);
        for (all, now_us) in self.so_far.parts.iter_mut().zip(self.now_us) {
            all.sum_us += now_us;
            all.longest_us = all.longest_us.max(now_us);
        }
        if self.so_far.longest.is_none_or(|longest| us > longest.us) {
            let part = Part::ALL.into_iter().max_by_key(|part| self.now_us[*part as usize]);
            let part = part.unwrap_or(Part::Others);
            let part_us = self.now_us[part as usize];
            self.so_far.longest = Some(LongestTurn { us, at_ms: wall_ms(), part, part_us });
        }
    }

    /// The times so far, without the present turn.
    pub(crate) fn so_far(&self) -> &TurnTimes {
        &self.so_far
    }

    /// Forgets the turns so far; the present one counts.
    pub(crate) fn clear(&mut self) {
        self.so_far = TurnTimes::default();
    }

    /// Turns of at least a second since the start.
    pub(crate) fn long(&self) -> u64 {
        self.long
    }
}
