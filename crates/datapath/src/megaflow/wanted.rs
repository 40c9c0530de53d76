//! [`Wanted`]: the masks that a full list refuses most often, in bounded memory.
//!
//! A mask explosion asks for each of its masks rarely; flows in use ask for theirs with every packet that takes the slow
//! path. Counts follow Misra and Gries (1982): with `COUNTERS` counters, a mask with more than one of `COUNTERS + 1`
//! refusals keeps one, whatever the others are.

const COUNTERS: usize = 32;
/// Refusals within about a second that are demand, beyond those that others cancel.
const DEMAND: u32 = 16;

/// See the module.
#[derive(Default)]
pub(super) struct Wanted {
    /// Hashes of masks with their counts, none 0.
    counts: Vec<(u64, u32)>,
}

impl Wanted {
    /// Counts a refusal of the mask with that hash; `true`, and its count begins anew, once it is in demand.
    pub(super) fn add(&mut self, mask: u64) -> bool {
        match self.counts.iter().position(|(known, _)| *known == mask) {
            Some(at) => {
                self.counts[at].1 += 1;
                let is_in_demand = self.counts[at].1 >= DEMAND;
                if is_in_demand {
                    self.counts.swap_remove(at);
                }
                is_in_demand
            }
            None if self.counts.len() < COUNTERS => {
                self.counts.push((mask, 1));
                false
            }
            None => {
                self.lower(|count| count - 1);
                false
            }
        }
    }

    /// Halves the counts: call it about once a second.
    pub(super) fn age(&mut self) {
        self.lower(|count| count / 2);
    }

    fn lower(&mut self, to: impl Fn(u32) -> u32) {
        self.counts.iter_mut().for_each(|(_, count)| *count = to(*count));
        self.counts.retain(|(_, count)| *count != 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frequent_mask_is_found_among_rare_ones() {
        let mut wanted = Wanted::default();
        // One of sixteen is the frequent one; no other comes twice.
        let found = (0..16_000u64).filter(|n| wanted.add(if n % 16 == 0 { 1 << 40 } else { *n }));
        let found: Vec<u64> = found.collect();
        assert!(!found.is_empty() && found.iter().all(|n| n % 16 == 0), "{found:?}");
        assert!(found[0] < 16 * u64::from(4 * DEMAND), "{found:?}");
        assert!(wanted.counts.len() <= COUNTERS);
    }

    #[test]
    fn slow_demand_fades() {
        let mut wanted = Wanted::default();
        for _ in 0..100 {
            assert!(!(0..DEMAND / 2).any(|_| wanted.add(7)));
            wanted.age();
        }
        assert!((0..DEMAND).any(|_| wanted.add(7)));
    }
}
