//! Counters of many links: one request for all of them, at most one per second.
//!
//! Results are up to a second old. A missing name triggers one more request; if still missing, it counts as
//! without a link until the second is over.

use super::{LinkStats, dump};
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
    links: HashMap<String, LinkStats>,
    /// Requested names without a link.
    missing: HashSet<String>,
}

impl AllLinkStats {
    /// Counters of the links of these names in the same order; `None` without such a link in this namespace.
    pub fn get(&self, names: &[&str]) -> Vec<Option<LinkStats>> {
        self.get_by(names, Instant::now(), || {
            let named = |(info, stats): (super::LinkInfo, Option<LinkStats>)| Some((info.name, stats?));
            Ok(dump()?.into_iter().filter_map(named).collect())
        })
    }

    /// The counters at a given time, with the function that queries the kernel.
    pub(super) fn get_by(
        &self,
        names: &[&str],
        now: Instant,
        ask: impl FnOnce() -> io::Result<HashMap<String, LinkStats>>,
    ) -> Vec<Option<LinkStats>> {
        // A panic leaves at worst an older result.
        let known = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = known.asked.is_none_or(|asked| now.duration_since(asked) >= AGE_MAX);
        let is_new = |name: &&str| !known.links.contains_key(*name) && !known.missing.contains(*name);
        if !names.is_empty() && (is_old || names.iter().any(is_new)) {
            // On failure no link is known.
            known.links = ask().unwrap_or_default();
            known.asked = Some(now);
            let missing = names.iter().filter(|name| !known.links.contains_key(**name));
            known.missing = missing.map(|name| name.to_string()).collect();
        }
        names.iter().map(|name| known.links.get(*name).copied()).collect()
    }
}
