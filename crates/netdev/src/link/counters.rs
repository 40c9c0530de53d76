//! Counters of many links: one request for all of them, at most one per second.
//!
//! The kernel lists counters by index and nothing else of the links (`RTM_GETSTATS`, Linux 4.7; `linux/if_link.h`): for
//! 2,000 veths a tenth of the bytes that a list of links has.
//!
//! Results are up to a second old. A missing index triggers one more request; if still missing, it counts as
//! without a link until the second is over.

use super::wire::{Request, link_counters};
use super::{LinkStats, context};
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maximum age of a result.
const AGE_MAX: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Default)]
pub struct AllLinkStats(Mutex<Known>);

#[derive(Default)]
struct Known {
    asked: Option<Instant>,
    links: HashMap<u32, LinkStats>,
    /// Requested indexes without a link.
    missing: HashSet<u32>,
}

impl AllLinkStats {
    /// Counters of the links of these indexes in the same order; `None` without such a link in this namespace.
    pub fn get(&self, indexes: &[u32]) -> Vec<Option<LinkStats>> {
        self.get_by(indexes, Instant::now(), || {
            let answers =
                Request::dump_counters().call().map_err(context("cannot list the counters of links"))?;
            Ok(answers.iter().filter_map(link_counters).collect())
        })
    }

    /// The counters at a given time, with the function that queries the kernel.
    pub(super) fn get_by(
        &self,
        indexes: &[u32],
        now: Instant,
        ask: impl FnOnce() -> io::Result<HashMap<u32, LinkStats>>,
    ) -> Vec<Option<LinkStats>> {
        // A panic leaves at worst an older result.
        let known = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = known.asked.is_none_or(|asked| now.duration_since(asked) >= AGE_MAX);
        let is_new = |index: &u32| !known.links.contains_key(index) && !known.missing.contains(index);
        if !indexes.is_empty() && (is_old || indexes.iter().any(is_new)) {
            // On failure no link is known.
            known.links = ask().unwrap_or_default();
            known.asked = Some(now);
            let missing = indexes.iter().filter(|index| !known.links.contains_key(index));
            known.missing = missing.copied().collect();
        }
        indexes.iter().map(|index| known.links.get(index).copied()).collect()
    }
}
