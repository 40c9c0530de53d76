//! Rebalancing: moves hash values from members with much load to those with little, only where that helps.

use super::{BUCKETS, State};

/// Bytes between two members below which nothing moves: about a megabit a second in ten seconds.
const LEAST_DIFFERENCE: u64 = 100_000;

/// A member's load, with its hash values.
struct Load {
    at: usize,
    bytes: u64,
    hashes: Vec<usize>,
}

impl State {
    /// Counts packets and bytes sent for a hash value.
    pub fn account(&mut self, hash: u8, packets: u64, bytes: u64) {
        let is_balanced = self.is_balanced();
        if let Some(buckets) = &mut self.buckets {
            let bucket = &mut buckets[usize::from(hash)];
            bucket.sent = [bucket.sent[0].saturating_add(packets), bucket.sent[1].saturating_add(bytes)];
            if is_balanced {
                bucket.bytes = bucket.bytes.saturating_add(bytes);
            }
        }
    }

    /// Time of the next rebalancing; `None`: there is none.
    pub fn rebalance_at_ms(&self) -> Option<u64> {
        self.is_balanced().then_some(self.rebalance_at_ms)
    }

    /// Rebalances if that is due. Call it when all counters are up to date.
    pub fn rebalance(&mut self, now_ms: u64) {
        if !self.is_balanced() || now_ms < self.rebalance_at_ms {
            return;
        }
        self.rebalance_at_ms = now_ms.saturating_add(self.settings.rebalance_ms);
        let mut loads = self.loads();
        while let [from, .., to] = &mut loads[..] {
            let difference = from.bytes.saturating_sub(to.bytes);
            if difference < to.bytes >> 5 || difference < LEAST_DIFFERENCE {
                break;
            }
            let hashes = self.movable(from, to);
            if hashes.is_empty() {
                loads.remove(0);
                continue;
            }
            // No hash value is moved twice.
            from.hashes.retain(|hash| !hashes.contains(hash));
            hashes.into_iter().for_each(|hash| self.shift(hash, from, to));
            loads.sort_by_key(|load| std::cmp::Reverse(load.bytes));
        }
        for bucket in self.buckets.iter_mut().flat_map(|buckets| buckets.iter_mut()) {
            bucket.bytes /= 2;
        }
    }

    /// Loads of enabled members, the highest first.
    fn loads(&self) -> Vec<Load> {
        let load = |at: usize| {
            let id = Some(self.members[at].id);
            let bytes_of = |n: usize| {
                let bucket = self.buckets.as_ref().map(|buckets| buckets[n]).unwrap_or_default();
                if bucket.member == id { bucket.bytes } else { 0 }
            };
            let hashes: Vec<usize> = (0..BUCKETS).filter(|n| bytes_of(*n) > 0).collect();
            let bytes = hashes.iter().fold(0u64, |sum, n| sum.saturating_add(bytes_of(*n)));
            Load { at, bytes, hashes }
        };
        let mut loads: Vec<Load> =
            (0..self.members.len()).filter(|at| self.members[*at].enabled).map(load).collect();
        loads.sort_by_key(|load| std::cmp::Reverse(load.bytes));
        loads
    }

    fn bytes_of(&self, hash: usize) -> u64 {
        self.buckets.as_ref().map_or(0, |buckets| buckets[hash].bytes)
    }

    /// The hash values whose move brings both members closer to their middle, by a tenth of its distance at least.
    ///
    /// As in OVS 3.5, the heaviest that fit go first, until less than a tenth of the distance is left. If those are too
    /// light, one goes that exceeds the middle; OVS moves that only if there are no lighter ones.
    fn movable(&self, from: &Load, to: &Load) -> Vec<usize> {
        if from.hashes.len() < 2 {
            return Vec::new();
        }
        let distance = (from.bytes - to.bytes) / 2;
        let least = distance / 10;
        let mut by_load = from.hashes.clone();
        by_load.sort_by_key(|hash| std::cmp::Reverse(self.bytes_of(*hash)));
        let (mut fitting, mut moved, mut beyond) = (Vec::new(), 0u64, None);
        for hash in by_load {
            let bytes = self.bytes_of(hash);
            if bytes > distance {
                beyond = (bytes.saturating_add(least) <= 2 * distance).then_some(hash).or(beyond);
            } else if bytes <= distance - moved {
                fitting.push(hash);
                moved += bytes;
                if distance - moved < least {
                    break;
                }
            }
        }
        if moved >= least { fitting } else { beyond.into_iter().collect() }
    }

    fn shift(&mut self, hash: usize, from: &mut Load, to: &mut Load) {
        let bytes = self.bytes_of(hash);
        from.bytes -= bytes.min(from.bytes);
        to.bytes = to.bytes.saturating_add(bytes);
        let id = self.members[to.at].id;
        if let Some(buckets) = &mut self.buckets {
            buckets[hash].member = Some(id);
        }
        self.changed = true;
        let [bytes, now_from, now_to] = [bytes, from.bytes, to.bytes].map(|bytes| bytes / 1024);
        let (source, target) = (&self.members[from.at].name, &self.members[to.at].name);
        let line = format!(
            "bond {}: shift {bytes}kB of load (with hash {hash}) from {source} to {target} (now carrying {now_from}kB and {now_to}kB load, respectively)",
            self.name
        );
        self.line(line);
    }
}
