//! Coverage counters with the names of stock switches, and their rates: over the last 5 seconds, the last minute and
//! the last hour, from samples every 5 seconds of the switch's clock.
//!
//! A late sample is spread evenly over the time since the previous one.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Time between two samples.
const SAMPLE_MS: u64 = 5000;
/// Samples of a minute.
const MINUTE: usize = 12;
/// Minutes of an hour.
const HOUR: usize = 60;

#[derive(Clone, Copy)]
struct Events {
    last_total: u64,
    /// By sample, in a ring.
    samples: [u64; MINUTE],
    /// By minute, in a ring.
    minutes: [u64; HOUR],
}

impl Events {
    fn rates(&self, newest: usize) -> [f64; 3] {
        let sum = |all: &[u64]| all.iter().sum::<u64>() as f64;
        [self.samples[newest] as f64 / 5.0, sum(&self.samples) / 60.0, sum(&self.minutes) / 3600.0]
    }
}

/// See the module documentation.
#[derive(Default)]
pub(crate) struct Coverage {
    events: BTreeMap<&'static str, Events>,
    next_ms: Option<u64>,
    /// Samples taken.
    taken: usize,
}

impl Coverage {
    /// Time of the next sample.
    pub(crate) fn next_ms(&mut self, now_ms: u64) -> u64 {
        *self.next_ms.get_or_insert(now_ms + SAMPLE_MS)
    }

    /// Takes a sample that is due.
    pub(crate) fn sample(&mut self, totals: &[(&'static str, u64)], now_ms: u64) {
        let late_ms = now_ms.saturating_sub(self.next_ms.unwrap_or(now_ms));
        let periods = 1 + late_ms / SAMPLE_MS;
        self.next_ms = Some(now_ms.saturating_sub(late_ms).saturating_add(periods * SAMPLE_MS));
        // Older events than an hour have no effect.
        let slots = periods.min((MINUTE * HOUR) as u64);
        for (name, total) in totals {
            let none = Events { last_total: 0, samples: [0; MINUTE], minutes: [0; HOUR] };
            let events = self.events.entry(name).or_insert(none);
            // Cleared counters start again.
            let more = total.saturating_sub(events.last_total);
            events.last_total = *total;
            for n in 0..slots {
                let part = more / periods + if n + 1 == slots { more % periods } else { 0 };
                let at = self.taken + n as usize;
                let (sample, minute) = (at % MINUTE, at / MINUTE % HOUR);
                events.samples[sample] = part;
                events.minutes[minute] = part + if sample == 0 { 0 } else { events.minutes[minute] };
            }
        }
        self.taken = (self.taken + slots as usize) % (MINUTE * HOUR);
    }

    /// The newest sample.
    fn newest(&self) -> usize {
        (self.taken + MINUTE - 1) % MINUTE
    }

    /// Rates of nonzero counters over the last 5 seconds, minute and hour, in order of their names.
    pub(crate) fn rates(&self) -> Vec<(&'static str, [f64; 3])> {
        let newest = self.newest();
        let hit = self.events.iter().filter(|(_, events)| events.last_total > 0);
        hit.map(|(name, events)| (*name, events.rates(newest))).collect()
    }

    /// The counters as text; `totals` in order of their names.
    pub(crate) fn show(&self, totals: &[(&'static str, u64)]) -> String {
        let hash = hash(totals);
        let mut out = format!(
            "Event coverage, avg rate over last: 5 seconds, last minute, last hour,  hash={hash:08x}:\n"
        );
        let newest = self.newest();
        for (name, total) in totals.iter().filter(|(_, total)| *total > 0) {
            let [now, minute, hour] = self.events.get(name).map_or([0.0; 3], |events| events.rates(newest));
            let _ =
                writeln!(out, "{name:<24} {now:5.1}/sec {minute:9.3}/sec {hour:13.4}/sec   total: {total}");
        }
        let never = totals.iter().filter(|(_, total)| *total == 0).count();
        let _ = writeln!(out, "{never} events never hit");
        out
    }
}

/// Hash of the names of nonzero counters, ordered by value: equal for runs with similar work (FNV-1a).
fn hash(totals: &[(&'static str, u64)]) -> u32 {
    let mut hit: Vec<_> = totals.iter().filter(|(_, n)| *n > 0).map(|(name, n)| (*n, *name)).collect();
    hit.sort_unstable();
    let bytes = hit.iter().flat_map(|(_, name)| name.bytes().chain([0]));
    bytes.fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
