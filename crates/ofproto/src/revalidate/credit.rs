//! Credits the packets of flows to rules, tables and ports.

use super::latest::Latest;
use crate::ukey::Ukey;
use dpif::{FlowStats, PmdId};
use flow::Ufid;

/// Credits the packets counted since the last time. Only the current translation learns from packets: an outdated
/// one would bring back a removed port or a deleted rule. Returns `true` if learning is left to do.
pub(super) fn push(latest: &mut Latest<'_>, k: &mut Ukey, now: &FlowStats) -> bool {
    let (packets, bytes) = k.take_delta(now);
    if packets == 0 {
        return false;
    }
    let is_present = latest.outdates(k).is_none();
    let host = &mut latest.backer().effect_host();
    let seen = FlowStats { packets, bytes, ..*now };
    match k.before.as_ref().and_then(|former| former.front()) {
        Some(before) => {
            before.replay_counters(&seen, host);
            if is_present {
                k.cache.replay_learning_of_former(before.learns_address(), &seen, host);
            }
        }
        None if is_present => k.cache.replay(&seen, host),
        None => k.cache.replay_counters(&seen, host),
    }
    !is_present
}

/// The flow is about to have the actions of its translation: credits its packets up to now to the one before. Without
/// counters, as the flow is gone or busy, later ones decide.
pub(super) fn count_before(latest: &mut Latest<'_>, k: &mut Ukey, now: Option<&FlowStats>) {
    if let Some(now) = now {
        push(latest, k, now);
    }
    // Each former translation has an answer.
    if let Some(former) = &mut k.before {
        if let Some(ended) = former.pop_front() {
            ended.end_flow(Some(former.front().unwrap_or(&k.cache)));
        }
        if former.is_empty() {
            k.before = None;
        }
    }
}

/// The flow is gone: credits its last packets, and forgets it.
pub(super) fn deleted(latest: &mut Latest<'_>, pmd: PmdId, ufid: Ufid, last: Option<&FlowStats>) {
    let backer = latest.backer();
    let Some(mut k) = backer.ukeys.remove(ufid, pmd) else { return };
    if let Some(last) = last
        && push(latest, &mut k, last)
    {
        // No translation follows to give the rules of the ended connections.
        k.cache.replay_timeouts(last, &mut backer.effect_host());
    }
    for before in k.before.iter().flat_map(|former| former.iter()) {
        before.end_flow(None);
    }
    k.cache.end_flow(None);
    backer.ukeys.defer_release(&k.recircs);
}
