//! The connection tracker behind [`dpif::Connections`], and the thread that ends expired connections.
//!
//! The thread `ct_clean` visits all records once in a sweep interval of the switch's clock, in slices spread over it
//! ([`sweep`]); once a second while the table is nearly full. Lookups never find an expired connection, so the interval
//! affects memory, numbers and limits only. It also takes the memory of the next connections ahead of the forwarding threads.

mod sweep;

use super::UserspaceDatapath;
use super::pool::State;
use conntrack::carry::{Restore, import};
use conntrack::ipf::OutOfRange;
use conntrack::{CONNECTIONS_MAX_DEFAULT, Key, NoSuchPolicy, Tracker};
use datapath::DpShared;
use dpif::{
    ConnectionSink, Connections, CtCarry, CtExport, CtImported, CtLimit, CtMatch, CtRefusal, CtRestore,
    CtStatistics, CtZone, DpifError, ExpectationSink, FragmentList, FragmentStatus, Fragments, IpFamily,
    TimeoutId, TimeoutPolicies, TimeoutPolicy,
};
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use sweep::Round;
use sync::{AtomicBool, AtomicU32, Mutex, Ordering, Parker, Unparker, lock};
use sys::confine::Kind;

/// Sweep interval by default, as in Open vSwitch.
const SWEEP_INTERVAL_MS: u32 = 20_000;
/// The same while the table is nearly full.
const HURRY_MS: u32 = 1000;
/// Time between two slices.
const SLICE_MS: u32 = 50;
/// Connections whose memory is taken ahead, at least. With more than eight times as many, it is as many as the last slice
/// brought, up to an eighth of all.
const AHEAD: u32 = 8192;
/// Fragments that expire in one slice, at most.
const FRAGMENTS_AT_ONCE: usize = 1000;

/// The thread `ct_clean`.
pub(super) struct Sweeper {
    interval_ms: AtomicU32,
    stopping: AtomicBool,
    running: Mutex<Option<(Unparker, JoinHandle<()>)>>,
}

impl Sweeper {
    pub(super) fn new() -> Arc<Sweeper> {
        Arc::new(Sweeper {
            interval_ms: AtomicU32::new(SWEEP_INTERVAL_MS),
            stopping: AtomicBool::new(false),
            running: Mutex::new(None),
        })
    }

    /// Starts the thread once connections are tracked.
    pub(super) fn tick(self: &Arc<Sweeper>, shared: &Arc<DpShared>) -> io::Result<()> {
        let running = &mut *lock(&self.running);
        if running.is_some() || !shared.tracks() {
            return Ok(());
        }
        let parker = Parker::new();
        let unparker = parker.unparker().clone();
        let (sweeper, shared) = (self.clone(), shared.clone());
        let work = move || {
            sys::confine::enter(Kind::Background, &[]);
            sweeper.run(&shared, &parker);
        };
        let join = std::thread::Builder::new().name("ct_clean".to_string()).spawn(work)?;
        *running = Some((unparker, join));
        Ok(())
    }

    fn run(&self, shared: &DpShared, parker: &Parker) {
        let tracker = shared.tracker();
        let mut round = Round::new(sys::clock::monotonic_ms());
        let mut before = tracker.records();
        let mut cleaned = Cleaned::default();
        while !self.stopping.load(Ordering::Acquire) {
            let interval_ms = self.interval_ms.load(Ordering::Relaxed);
            let nearly_full = u64::from(tracker.connections()) * 8 > u64::from(tracker.max_connections()) * 7;
            let interval_ms = if nearly_full { interval_ms.min(HURRY_MS) } else { interval_ms };
            let now_ms = sys::clock::monotonic_ms();
            let stops = || self.stopping.load(Ordering::Acquire);
            let (live, began_us) = (tracker.connections(), sys::clock::machine_us());
            let is_over = round.go_on(now_ms, interval_ms, tracker.records(), stops, |at, records| {
                tracker.expire(at, records, now_ms)
            });
            cleaned.add(live.saturating_sub(tracker.connections()), sys::clock::machine_us() - began_us);
            if is_over {
                cleaned.log(tracker.connections());
            }
            shared.expire_fragments(now_ms, FRAGMENTS_AT_ONCE);
            let records = tracker.records();
            tracker.prepare(AHEAD.max(records.saturating_sub(before).min(records / 8)));
            before = records;
            parker.park_timeout(Duration::from_millis(SLICE_MS.into()));
        }
    }

    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        if let Some((unparker, join)) = lock(&self.running).take() {
            unparker.unpark();
            if join.join().is_err() {
                log::error!("the thread ct_clean ended by a fault: connections are not removed any more");
            }
        }
    }
}

/// Connections that a round of the sweeper has removed so far.
#[derive(Default)]
struct Cleaned {
    connections: u64,
    us: u64,
}

impl Cleaned {
    fn add(&mut self, connections: u32, us: u64) {
        self.connections += u64::from(connections);
        self.us += us;
    }

    /// Logs it at the end of the round, after which some are left, in the words of OVS.
    fn log(&mut self, left: u32) {
        let Cleaned { connections, us } = std::mem::take(self);
        let (all, ms) = (connections + u64::from(left), us / 1000);
        log::debug!(target: "conntrack", "conntrack cleaned {connections} entries out of {all} entries in {ms} msec");
    }
}

fn limit_of(tracker: &Tracker, zone: CtZone) -> CtLimit {
    let default = tracker.default_zone_limit().unwrap_or(0);
    match zone {
        CtZone::Default => CtLimit { zone, limit: default, count: 0 },
        CtZone::Zone(n) => {
            let limit = tracker.zone_limit(n).unwrap_or(default);
            CtLimit { zone, limit, count: tracker.connections_of_zone(n) }
        }
    }
}

impl UserspaceDatapath {
    /// Shares the kept places of the tracker among all ports.
    pub(super) fn share_connections(&self, state: &State) {
        self.shared().set_ports(state.ports.len() as u32);
    }

    fn shared(&self) -> &DpShared {
        &self.pool.factory.shared
    }

    fn tracker(&self) -> &Tracker {
        self.shared().tracker()
    }

    /// The tracker, unless nothing was tracked or configured yet.
    fn tracker_in_use(&self) -> Option<&Tracker> {
        self.shared().tracker_in_use()
    }
}

/// Connections on their way to another process.
struct Export {
    shared: Arc<DpShared>,
    export: conntrack::carry::Export,
}

impl CtExport for Export {
    fn next(&mut self, room: usize) -> Option<Vec<u8>> {
        let now_ms = sys::clock::monotonic_ms();
        self.export.next(self.shared.tracker_in_use()?, room, now_ms)
    }

    fn begin_anew(&mut self) {
        self.export.begin_anew();
    }
}

/// Connections that another process kept.
struct Restoring {
    shared: Arc<DpShared>,
    restore: Restore,
}

impl CtRestore for Restoring {
    fn take(&mut self, slice: &[u8], age_ms: u64) -> CtImported {
        match slice.is_empty() {
            true => CtImported::default(),
            false => self.restore.take(self.shared.tracker(), slice, sys::clock::monotonic_ms(), age_ms),
        }
    }
}

impl Connections for UserspaceDatapath {
    fn export(&self, carry: CtCarry) -> Result<Box<dyn CtExport>, DpifError> {
        let shared = self.pool.factory.shared.clone();
        Ok(Box::new(Export { shared, export: conntrack::carry::Export::new(carry) }))
    }

    fn import(&self, slice: &[u8]) -> Result<CtImported, DpifError> {
        // A datapath without connections tracks none yet.
        Ok(match slice.is_empty() {
            true => CtImported::default(),
            false => import(self.tracker(), slice, sys::clock::monotonic_ms()),
        })
    }

    fn restore(&self) -> Result<Box<dyn CtRestore>, DpifError> {
        Ok(Box::new(Restoring { shared: self.pool.factory.shared.clone(), restore: Restore::default() }))
    }

    fn list(&self, zone: Option<u16>, sink: &mut dyn ConnectionSink) -> Result<(), DpifError> {
        let Some(tracker) = self.tracker_in_use() else { return Ok(()) };
        tracker.list(sys::clock::monotonic_ms(), |connection| {
            if zone.is_none_or(|zone| zone == connection.zone) {
                sink.connection(connection)
            } else {
                ControlFlow::Continue(())
            }
        });
        Ok(())
    }

    fn flush(&self, which: &CtMatch) -> Result<(), DpifError> {
        let now_ms = sys::clock::monotonic_ms();
        if let Some((zone, tuple)) = which.exact() {
            let found = Key::of(&tuple, zone).is_some_and(|key| self.tracker().end_of_key(&key, now_ms));
            return if found { Ok(()) } else { Err(DpifError::NotFound("connection")) };
        }
        if let Some(tracker) = self.tracker_in_use() {
            tracker.flush(now_ms, |connection| which.matches(connection));
        }
        Ok(())
    }

    fn expectations(&self, zone: Option<u16>, sink: &mut ExpectationSink<'_>) -> Result<(), DpifError> {
        let Some(tracker) = self.pool.factory.shared.tracker_in_use() else { return Ok(()) };
        let all = tracker.expectations(sys::clock::monotonic_ms());
        let _complete = all.filter(|e| zone.is_none_or(|zone| zone == e.zone)).try_for_each(|e| sink(&e));
        Ok(())
    }

    fn buckets(&self) -> Result<Vec<u32>, DpifError> {
        Ok(self.tracker_in_use().map_or(vec![0], Tracker::connections_by_bucket))
    }

    fn count(&self) -> Result<u32, DpifError> {
        Ok(self.tracker_in_use().map_or(0, Tracker::connections))
    }

    fn maximum(&self) -> Result<u32, DpifError> {
        Ok(self.tracker_in_use().map_or(CONNECTIONS_MAX_DEFAULT, Tracker::max_connections))
    }

    fn set_maximum(&self, connections: u32) -> Result<(), DpifError> {
        self.tracker().set_max_connections(connections);
        Ok(())
    }

    fn checks_sequences(&self) -> Result<bool, DpifError> {
        Ok(self.tracker_in_use().is_none_or(Tracker::checks_sequence))
    }

    fn set_checks_sequences(&self, checks: bool) -> Result<(), DpifError> {
        self.tracker().set_checks_sequence(checks);
        Ok(())
    }

    fn sweep_interval_ms(&self) -> Result<u32, DpifError> {
        Ok(self.sweeper.interval_ms.load(Ordering::Relaxed))
    }

    fn set_sweep_interval_ms(&self, interval_ms: u32) -> Result<(), DpifError> {
        self.sweeper.interval_ms.store(interval_ms, Ordering::Relaxed);
        Ok(())
    }

    fn limits(&self, zones: &[CtZone]) -> Result<Vec<CtLimit>, DpifError> {
        let tracker = self.tracker();
        let own = tracker.limited_zones().into_iter().map(CtZone::Zone);
        let all = || std::iter::once(CtZone::Default).chain(own).collect();
        let mut zones: Vec<CtZone> = if zones.is_empty() { all() } else { zones.to_vec() };
        zones.sort_by_key(|zone| matches!(zone, CtZone::Zone(_)));
        Ok(zones.into_iter().map(|zone| limit_of(tracker, zone)).collect())
    }

    fn set_limits(&self, limits: &[(CtZone, u32)]) -> Result<(), DpifError> {
        for (zone, limit) in limits {
            self.tracker().set_zone_limit(number(*zone), Some(*limit));
        }
        Ok(())
    }

    fn remove_limits(&self, zones: &[CtZone]) -> Result<(), DpifError> {
        zones.iter().for_each(|zone| self.tracker().set_zone_limit(number(*zone), None));
        Ok(())
    }

    fn fragments(&self) -> Option<&dyn Fragments> {
        Some(self)
    }

    fn timeout_policies(&self) -> Option<&dyn TimeoutPolicies> {
        Some(self)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let Some(tracker) = self.tracker_in_use() else { return Vec::new() };
        let stats = tracker.stats();
        let refused = CtRefusal::ALL.map(CtRefusal::counter).into_iter().zip(tracker.counts().refused);
        let others = [
            ("conntrack_tcp_seq_chk_failed", stats.out_of_window),
            ("conntrack_invalid", stats.invalid),
            ("conntrack_expectations_full", stats.expectations_full),
            ("conntrack_alg_not_rewritten", stats.not_rewritten),
            ("ipf_l3csum_err", Fragments::status(self).v4.bad_checksum),
        ];
        refused.chain(others).collect()
    }

    fn statistics(&self, each: usize) -> Option<CtStatistics> {
        Some(self.tracker_in_use()?.statistics(each))
    }
}

fn number(zone: CtZone) -> Option<u16> {
    match zone {
        CtZone::Default => None,
        CtZone::Zone(zone) => Some(zone),
    }
}

/// The tracker's number of a policy; `None`: it is too high.
fn policy(id: TimeoutId) -> Option<u16> {
    u16::try_from(id.0.get()).ok()
}

impl TimeoutPolicies for UserspaceDatapath {
    fn set(&self, id: TimeoutId, values: &TimeoutPolicy) -> Result<(), DpifError> {
        let set = policy(id).ok_or(NoSuchPolicy).and_then(|n| self.tracker().set_policy(n, Some(values)));
        set.map_err(|NoSuchPolicy| DpifError::Full("table of timeout policies"))
    }

    fn get(&self, id: TimeoutId) -> Result<TimeoutPolicy, DpifError> {
        policy(id).and_then(|n| self.tracker().policy(n)).ok_or(DpifError::NotFound("timeout policy"))
    }

    fn delete(&self, id: TimeoutId) -> Result<(), DpifError> {
        self.get(id)?;
        let removed = policy(id).ok_or(NoSuchPolicy).and_then(|n| self.tracker().set_policy(n, None));
        removed.map_err(|NoSuchPolicy| DpifError::NotFound("timeout policy"))
    }

    fn list(&self) -> Result<Vec<TimeoutId>, DpifError> {
        let Some(tracker) = self.tracker_in_use() else { return Ok(Vec::new()) };
        let ids = tracker.policies().into_iter().filter_map(|n| u32::from(n).try_into().ok());
        Ok(ids.map(TimeoutId).collect())
    }
}

fn out_of_range(OutOfRange: OutOfRange) -> DpifError {
    DpifError::Unsupported("the value is out of range".to_string())
}

impl Fragments for UserspaceDatapath {
    fn status(&self) -> FragmentStatus {
        self.shared().fragment_status()
    }

    fn set_enabled(&self, family: IpFamily, enabled: bool) {
        self.shared().set_reassembly(family == IpFamily::V6, enabled);
    }

    fn set_min_bytes(&self, family: IpFamily, bytes: u32) -> Result<(), DpifError> {
        self.shared().set_min_fragment_bytes(family == IpFamily::V6, bytes).map_err(out_of_range)
    }

    fn set_max(&self, fragments: u32) -> Result<(), DpifError> {
        self.shared().set_max_fragments(fragments).map_err(out_of_range)
    }

    fn lists(&self, each: &mut dyn FnMut(&FragmentList) -> ControlFlow<()>) {
        let _stopped = self.shared().fragment_lists().iter().try_for_each(each);
    }
}
