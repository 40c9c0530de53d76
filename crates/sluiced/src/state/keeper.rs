//! The thread that writes the file of state.

use super::flows::{self, FlowSources};
use super::lines::{self, put};
use super::{Files, MAGIC, PROOF, VERSION};
use ofproto::backer::Backer;
use ofproto::ids::BridgeId;
use ofproto::mac_table::MacStats;
use ofproto::record::{Meters, Recorded, Waiting};
use ofproto::view::{BridgeView, View};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};
use sync::{Mutex, lock};
use sys::confine::Kind;

/// Changes gather this long before they are written.
const GATHER: Duration = Duration::from_millis(2);
/// Interval of writing learned addresses, if they changed; once more for each [`MACS_A_TIME`] written.
const MACS: Duration = Duration::from_secs(1);
const MACS_A_TIME: u32 = 1000;
/// Pause after a failure to write.
const RETRY: Duration = Duration::from_secs(10);
/// Bytes of changes, beside those of the whole state, after which the file is written anew.
const CHANGES_MIN_BYTES: u64 = 1 << 20;
/// Rules written between two looks at changes.
const SLICE: usize = 4096;

/// Orders for the thread.
#[derive(Default)]
struct Orders {
    /// There are changes.
    wake: bool,
    /// Datapaths, if they changed.
    backers: Option<Vec<Arc<Backer>>>,
    /// Flows to keep, if these changed.
    flows: Option<FlowSources>,
    stop: bool,
    /// The whole state is to be written before the end.
    finish: bool,
    /// The file is to grow only, while another process follows it.
    grow_only: Option<bool>,
    /// Gets the bytes of the file, once all changes so far are in it.
    synced: Option<SyncSender<io::Result<u64>>>,
}

#[derive(Default)]
struct Shared {
    orders: Mutex<Orders>,
    thread: OnceLock<Thread>,
}

impl Shared {
    fn order(&self, change: impl FnOnce(&mut Orders)) {
        change(&mut lock(&self.orders));
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

/// See the module documentation. Dropped, it stops.
pub(super) struct Keeper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts the thread; `is_unproved`: restored state is in use.
    pub(super) fn start(
        files: &Files,
        (boot, program): (&str, &str),
        is_unproved: bool,
        backers: &[Arc<Backer>],
    ) -> io::Result<Keeper> {
        let shared = Arc::new(Shared::default());
        follow(&shared, backers);
        let proof_at = is_unproved.then(|| Instant::now() + PROOF);
        let writer = Writer {
            files: files.clone(),
            boot: boot.to_string(),
            backers: Vec::new(),
            flows: flows::Writer::new(files, boot, program),
            names: BTreeMap::new(),
            file: None,
            at: None,
            whole_bytes: 0,
            changes_bytes: 0,
            macs: BTreeMap::new(),
            proof_at,
            // The file of the last process serves until then, and the start has the processor for itself.
            write_at: proof_at,
            grow_only: false,
        };
        let of_thread = shared.clone();
        let run = move || {
            sys::confine::enter(Kind::Files, writer.files.state.parent().as_slice());
            writer.run(&of_thread);
        };
        let thread = std::thread::Builder::new().name("state".into()).spawn(run)?;
        let _first = shared.thread.set(thread.thread().clone());
        thread.thread().unpark();
        Ok(Keeper { shared, thread: Some(thread) })
    }

    /// Follows these datapaths from now on.
    pub(super) fn follow(&self, backers: &[Arc<Backer>]) {
        follow(&self.shared, backers);
    }

    /// Keeps flows of these datapaths from now on.
    pub(super) fn keep_flows(&self, sources: FlowSources) {
        self.shared.order(|orders| orders.flows = Some(sources));
    }

    /// Writes all changes so far; the receiver gets the bytes of the file, to which later changes are appended until
    /// [`Keeper::grow_freely`].
    pub(super) fn sync(&self) -> Receiver<io::Result<u64>> {
        let (synced, bytes) = sync_channel(1);
        self.shared.order(|orders| (orders.grow_only, orders.synced) = (Some(true), Some(synced)));
        bytes
    }

    /// Lets the file be written anew.
    pub(super) fn grow_freely(&self) {
        self.shared.order(|orders| orders.grow_only = Some(false));
    }

    /// Writes the whole state and ends.
    pub(super) fn finish(self) {
        self.shared.order(|orders| orders.finish = true);
    }
}

fn follow(shared: &Arc<Shared>, backers: &[Arc<Backer>]) {
    for backer in backers {
        let shared = shared.clone();
        backer.recorder.start(move || shared.order(|orders| orders.wake = true));
    }
    shared.order(|orders| orders.backers = Some(backers.to_vec()));
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.shared.order(|orders| orders.stop = true);
        let ended = self.thread.take().map(JoinHandle::join);
        if ended.is_some_and(|ended| ended.is_err()) {
            log::error!(target: "state", "the thread that writes state ended early");
        }
    }
}

/// The thread's own state.
struct Writer {
    files: Files,
    boot: String,
    backers: Vec<Arc<Backer>>,
    flows: flows::Writer,
    /// Names of bridges in the file.
    names: BTreeMap<BridgeId, Arc<str>>,
    /// The file; `None`: it is to be written anew.
    file: Option<File>,
    /// Bridge of the last line.
    at: Option<BridgeId>,
    whole_bytes: u64,
    changes_bytes: u64,
    /// Number and counters of learned addresses as last written.
    macs: BTreeMap<BridgeId, (usize, MacStats)>,
    /// Time at which restored state is proved.
    proof_at: Option<Instant>,
    /// Nothing is written before: after a failure, and while restored state is not proved.
    write_at: Option<Instant>,
    /// The file is not written anew.
    grow_only: bool,
}

impl Writer {
    fn run(mut self, shared: &Shared) {
        let mut macs_at = Instant::now() + MACS;
        loop {
            let at = self.proof_at.into_iter().chain(self.flows.next()).fold(macs_at, Instant::min);
            let at = self.write_at.map_or(at, |write_at| write_at.max(at));
            let Orders { backers, flows, stop, finish, grow_only, synced, .. } = wait(shared, at);
            self.grow_only = !stop && grow_only.unwrap_or(self.grow_only);
            if let Some(backers) = backers {
                self.backers = backers;
                self.file = None;
            }
            flows.into_iter().for_each(|sources| self.flows.keep(sources));
            let now = Instant::now();
            if !stop && synced.is_none() && self.write_at.is_some_and(|at| now < at) {
                continue;
            }
            self.write_at = None;
            let mut done = match self.file.is_none() || stop && finish {
                true => self.write_anew(),
                false => self.write_changes(),
            };
            if now >= macs_at || synced.is_some() {
                let written = done.and_then(|()| self.write_macs());
                macs_at = now + MACS * (1 + written.as_ref().map_or(0, |macs| macs / MACS_A_TIME));
                done = written.map(drop);
            }
            if done.is_ok() && !stop && !self.grow_only {
                done = self.write_flows(now);
            }
            // The changes of this process are in the file now.
            self.prove(stop);
            if let Some(synced) = synced {
                // The requester may have given up.
                let _ = synced.send(self.bytes(&done));
            }
            if let Err(e) = done {
                log::warn!(target: "state", "{}: {e}: the next process may start without the present rules", self.files.state.display());
                (self.file, self.write_at) = (None, Some(now + RETRY));
                // Changes until then are in no file.
                self.flows.changed();
                macs_at = now + RETRY;
            }
            if stop {
                // A planned end leaves no receive queues.
                self.flows.remove();
                self.backers.iter().for_each(|backer| backer.recorder.stop());
                return;
            }
        }
    }

    /// Notes that restored state has not ended the process, if it is proved by now, or `at_once`.
    fn prove(&mut self, at_once: bool) {
        if self.proof_at.is_none_or(|at| !at_once && Instant::now() < at) {
            return;
        }
        self.proof_at = None;
        match fs::remove_file(&self.files.mark) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                log::warn!(target: "state", "{}: {e}", self.files.mark.display());
            }
            _ => {}
        }
    }

    /// Appends the changes that wait.
    fn write_changes(&mut self) -> io::Result<()> {
        let (mut text, mut lost) = (String::new(), false);
        for backer in self.backers.clone() {
            let waiting = backer.recorder.take();
            lost |= waiting.lost;
            self.put_changes(&mut text, &backer.view(), waiting);
        }
        self.append(&text)?;
        if lost && self.grow_only {
            // The process that follows the file would miss them.
            self.file = None;
            return Err(io::Error::other("the rules change faster than they can be written"));
        }
        if lost || !self.grow_only && self.changes_bytes > self.whole_bytes.max(CHANGES_MIN_BYTES) {
            self.write_anew()?;
        }
        Ok(())
    }

    /// Writes flows if they are due, and no change came meanwhile.
    fn write_flows(&mut self, now: Instant) -> io::Result<()> {
        let changes = self.flows.changes();
        if let Some(flows) = self.flows.make(now) {
            self.write_changes()?;
            if self.flows.changes() == changes {
                self.flows.put(&flows);
            }
        }
        Ok(())
    }

    /// Bytes of the file after the last writing.
    fn bytes(&self, done: &io::Result<()>) -> io::Result<u64> {
        match (done, &self.file) {
            (Err(e), _) => Err(io::Error::new(e.kind(), e.to_string())),
            (Ok(()), Some(file)) => Ok(file.metadata()?.len()),
            (Ok(()), None) => Err(io::Error::other("there is no file of state")),
        }
    }

    fn append(&mut self, text: &str) -> io::Result<()> {
        if let Some(file) = &mut self.file
            && !text.is_empty()
        {
            file.write_all(text.as_bytes())?;
            self.changes_bytes += text.len() as u64;
        }
        Ok(())
    }

    /// Writes the whole state into a new file. Changes meanwhile go to both files.
    fn write_anew(&mut self) -> io::Result<()> {
        self.flows.changed();
        self.write_anew_in_slices().inspect_err(|_| {
            // The error that counts is the first.
            let _ = fs::remove_file(&self.files.next);
        })
    }

    fn write_anew_in_slices(&mut self) -> io::Result<()> {
        let mut next = super::create_own(&self.files.next)?;
        let (mut text, mut meanwhile, mut bytes) = (String::new(), String::new(), 0);
        put!(text, "{MAGIC}\t{VERSION}\t{}", self.boot);
        let mut bridges = BTreeSet::new();
        let mut begun = Vec::new();
        for backer in self.backers.clone() {
            let older = backer.recorder.take();
            let mut changes = String::new();
            self.put_changes(&mut changes, &backer.view(), older);
            self.append(&changes)?;
            // A change between the two calls is in the view; only a process that is killed before the new file is whole loses it.
            begun.push(backer.record_base());
        }
        for (view, meters) in begun {
            for (id, bridge) in &view.bridges {
                bridges.insert(*id);
                self.names.insert(*id, bridge.name.clone());
                put_bridge(&mut text, *id, bridge, &meters);
                let tlv = bridge.tables.tlv();
                for (n, rule) in bridge.tables.iter().filter(|rule| !rule.is_hidden()).enumerate() {
                    lines::rule(&mut text, rule, tlv);
                    if n % SLICE == SLICE - 1 {
                        bytes += text.len() as u64;
                        next.write_all(text.as_bytes())?;
                        text.clear();
                        self.put_meanwhile(&mut meanwhile)?;
                    }
                }
                put_macs(&mut text, bridge);
                self.macs.insert(*id, count_macs(bridge));
            }
        }
        put!(text, "{}", lines::WHOLE);
        bytes += text.len() as u64;
        next.write_all(text.as_bytes())?;
        self.put_meanwhile(&mut meanwhile)?;
        next.write_all(meanwhile.as_bytes())?;
        fs::rename(&self.files.next, &self.files.state)?;
        self.names.retain(|id, _| bridges.contains(id));
        self.macs.retain(|id, _| bridges.contains(id));
        (self.file, self.at) = (Some(next), None);
        (self.whole_bytes, self.changes_bytes) = (bytes, meanwhile.len() as u64);
        Ok(())
    }

    /// Writes changes since the whole state began to be written into the present file, and keeps them for the next.
    fn put_meanwhile(&mut self, meanwhile: &mut String) -> io::Result<()> {
        if self.file.is_some() {
            self.prove(false);
        }
        for backer in self.backers.clone() {
            let waiting = backer.recorder.take();
            if waiting.lost {
                return Err(io::Error::other("the rules change faster than they can be written"));
            }
            let before = meanwhile.len();
            // The new file begins a bridge anew.
            self.at = if before == 0 { None } else { self.at };
            self.put_changes(meanwhile, &backer.view(), waiting);
            let new = meanwhile[before..].to_string();
            self.append(&new)?;
        }
        Ok(())
    }

    fn put_changes(&mut self, text: &mut String, view: &View, waiting: Waiting) {
        if waiting.lost || !waiting.changes.is_empty() {
            // Before the file has them.
            self.flows.changed();
        }
        for (id, change) in waiting.changes {
            if matches!(change, Recorded::BridgeGone) {
                if let Some(name) = self.names.remove(&id) {
                    put!(text, "{}\t{name}", lines::BRIDGE_GONE);
                }
                self.at = None;
                continue;
            }
            let Some(bridge) = view.bridges.get(&id) else { continue };
            if self.at != Some(id) {
                self.at = Some(id);
                self.names.insert(id, bridge.name.clone());
                put!(text, "{}\t{}", lines::BRIDGE, bridge.name);
            }
            let tlv = bridge.tables.tlv();
            match change {
                Recorded::Rule(rule) => lines::rule(text, &rule, tlv),
                Recorded::RuleGone(rule) => lines::rule_gone(text, &rule, tlv),
                Recorded::TableGone(table) => put!(text, "{}\t{}", lines::TABLE_GONE, table.0),
                Recorded::Group(group) => lines::group(text, &group),
                Recorded::GroupGone(id) => put!(text, "{}\t{id}", lines::GROUP_GONE),
                Recorded::Groups(groups) => {
                    put!(text, "{}", lines::GROUPS_GONE);
                    groups.iter().for_each(|group| lines::group(text, group));
                }
                Recorded::Tlv(table) => lines::tlv(text, &table),
                Recorded::Meter(meter, created_ms) => lines::meter(text, &meter, created_ms),
                Recorded::MeterGone(id) => put!(text, "{}\t{id}", lines::METER_GONE),
                Recorded::BridgeGone => {}
            }
        }
    }

    /// Writes the learned addresses of bridges where they changed; returns their number.
    fn write_macs(&mut self) -> io::Result<u32> {
        let (mut text, mut written) = (String::new(), 0);
        for backer in self.backers.clone() {
            for (id, bridge) in &backer.view().bridges {
                let now = count_macs(bridge);
                if self.macs.insert(*id, now) != Some(now) {
                    written += now.0;
                    self.at = Some(*id);
                    self.names.insert(*id, bridge.name.clone());
                    put!(text, "{}\t{}\n{}", lines::BRIDGE, bridge.name, lines::MACS_GONE);
                    put_macs(&mut text, bridge);
                }
            }
        }
        self.append(&text)?;
        Ok(u32::try_from(written).unwrap_or(u32::MAX))
    }
}

fn count_macs(bridge: &BridgeView) -> (usize, MacStats) {
    let macs = lock(&bridge.macs);
    (macs.len(), macs.stats)
}

/// A bridge without its rules and addresses.
fn put_bridge(text: &mut String, id: BridgeId, bridge: &BridgeView, meters: &Meters) {
    put!(text, "{}\t{}", lines::BRIDGE, bridge.name);
    lines::tlv(text, bridge.tables.tlv());
    for (meter, created_ms) in meters.get(&id).into_iter().flat_map(BTreeMap::values) {
        lines::meter(text, meter, *created_ms);
    }
    for group in bridge.tables.groups().all().iter() {
        lines::group(text, group);
        lines::group_counts(text, group);
    }
}

fn put_macs(text: &mut String, bridge: &BridgeView) {
    let macs = lock(&bridge.macs);
    for entry in macs.entries() {
        if let Some(bundle) = bridge.ports.bundles.get(&entry.bundle) {
            lines::mac(text, entry.vlan, entry.mac, &bundle.name, entry.seen_ms);
        }
    }
}

/// Waits until there are orders, or until `at`; changes gather for a moment.
fn wait(shared: &Shared, at: Instant) -> Orders {
    let mut until = at;
    loop {
        let mut orders = lock(&shared.orders);
        let now = Instant::now();
        let is_ordered = orders.backers.is_some() || orders.flows.is_some() || orders.synced.is_some();
        if orders.stop || is_ordered || now >= until {
            return std::mem::take(&mut orders);
        }
        if orders.wake {
            until = until.min(now + GATHER);
            orders.wake = false;
        }
        drop(orders);
        std::thread::park_timeout(until.saturating_duration_since(now));
    }
}
