//! State kept for the next process: rules, groups, meters, mappings of tunnel metadata, learned addresses; tracked connections
//! ([`connections`]); megaflows ([`flows`]).
//!
//! A file in the run directory (`NAME.state`) has the state of all bridges as text: first all of it, then each change in
//! order. A thread follows the [records](ofproto::record) of the datapaths and appends to the file, so it also serves after a
//! crash or `kill -9`; from time to time it writes the file anew. The run directory is in memory, so the state ends with
//! the machine; a file of an earlier start of the machine is not used.
//!
//! The next process reads the file when it starts, and a bridge begins with its rules before it has ports
//! ([`State::take`]). Nothing in the file is trusted: each part passes the checks of a controller's message. A process
//! that ends within [`PROOF`] after it restored state leaves a mark, and the next one starts without state.

mod connections;
mod flows;
mod following;
mod keeper;
mod lines;
mod reader;
#[cfg(test)]
mod tests;

pub(crate) use flows::{FlowSource, FlowSources, KeptDatapath, KeptFlows, Numbered};
pub(crate) use following::{BridgeChanges, Counted};
pub(crate) use reader::SavedMac;

use crate::config::Exit;
use anyhow::Context as _;
use connections::{Former, Tracked, Writing};
use connmgr::SavedState;
use dpif::{Connections, Provider};
use dpif_netdev::Inheritance;
use following::FollowedFile;
use keeper::Keeper;
use ofproto::backer::Backer;
use ofproto::ids::BridgeId;
use reader::SavedBridge;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;
use sys::confine::Kind;
use vswitch::Desired;
use vswitch::config::Translated;

/// First word of a file.
const MAGIC: &str = "sluice-state";
/// Version of the format. Lines of an unknown kind are skipped, so only other meanings need a new one.
const VERSION: &str = "1";
/// Time that a process must run with restored state until it is proved.
const PROOF: Duration = Duration::from_secs(1);

/// The files.
#[derive(Clone, Debug)]
struct Files {
    state: PathBuf,
    /// The next state file, until it is whole.
    next: PathBuf,
    connections: PathBuf,
    next_connections: PathBuf,
    flows: PathBuf,
    next_flows: PathBuf,
    /// Exists while restored state is not proved.
    mark: PathBuf,
}

impl Files {
    fn of(run_dir: &Path, name: &str) -> Files {
        let file = |suffix: &str| run_dir.join(format!("{name}.{suffix}"));
        Files {
            state: file("state"),
            next: file("state.new"),
            connections: file("connections"),
            next_connections: file("connections.new"),
            flows: file("flows"),
            next_flows: file("flows.new"),
            mark: file("state.mark"),
        }
    }
}

/// The state of the last process, and the thread that writes this one's.
pub(crate) struct State {
    files: Files,
    /// Identity of this start of the machine.
    boot: String,
    /// Name of this program's file.
    program: String,
    /// Flows of the last process, which fit its rules and receive queues.
    flows: Option<File>,
    /// Changes of settings that flows depend on.
    settings_changes: Arc<AtomicU64>,
    /// Settings, and changes of ports, that the kept flows are made from.
    kept_from: Option<(Translated, Vec<u64>)>,
    /// Bridges of the last process that none of this one has taken yet.
    saved: BTreeMap<String, SavedBridge>,
    has_restored: bool,
    /// The last process left receive queues.
    has_queues: bool,
    /// Connections of the last process, and the datapaths that have theirs.
    former: Option<(Former, BTreeSet<String>)>,
    /// Threads that restore them.
    readers: Arc<AtomicUsize>,
    /// Learned addresses of bridges whose ports are missing.
    pub(crate) macs: BTreeMap<BridgeId, Vec<SavedMac>>,
    keeper: Option<Keeper>,
    /// Datapaths that the thread follows.
    followed: Vec<Arc<Backer>>,
    connections: Option<Writing>,
    /// The file of the last process was removed.
    is_discarded: bool,
    /// The state of the process that this one succeeds, while that runs.
    followed_file: Option<FollowedFile>,
}

/// State of a bridge, for its start.
pub(crate) struct Taken {
    /// The state, without the parts that do not parse.
    pub(crate) state: SavedState,
    /// Reasons why parts do not parse.
    pub(crate) faults: Vec<String>,
    pub(crate) macs: Vec<SavedMac>,
}

impl State {
    /// Reads the state that the last process left in `run_dir`. Its receive queues are state too: after one that ended by its state
    /// they are not used.
    pub(crate) fn open(run_dir: &Path, name: &str, queues: &Inheritance) -> State {
        let files = Files::of(run_dir, name);
        let boot = boot_id();
        if files.mark.exists() {
            queues.distrust();
        }
        let (saved, flows) = match read(&files, &boot) {
            // Flows need a receive queue of the last process, and rules that the next ones fit.
            Ok(saved) => (saved, if queues.has_left() { open_flows(&files) } else { None }),
            Err(e) => {
                log::warn!(target: "state", "{}: {e}: starting without the state of the last process", files.state.display());
                (BTreeMap::new(), None)
            }
        };
        let readers = Arc::default();
        let former = Former::open(&files.connections, &boot, &readers).unwrap_or_else(|e| {
            log::warn!(target: "state", "{}: {e}: starting without the connections of the last process", files.connections.display());
            None
        });
        let former = former.map(|former| (former, BTreeSet::new()));
        let has_queues = queues.has_left();
        State { former, readers, flows, has_queues, ..State::new(files, boot, saved) }
    }

    fn new(files: Files, boot: String, saved: BTreeMap<String, SavedBridge>) -> State {
        State {
            files,
            boot,
            program: flows::program(),
            flows: None,
            settings_changes: Arc::default(),
            kept_from: None,
            saved,
            has_restored: false,
            has_queues: false,
            former: None,
            readers: Arc::default(),
            macs: BTreeMap::new(),
            keeper: None,
            followed: Vec::new(),
            connections: None,
            is_discarded: false,
            followed_file: None,
        }
    }

    /// Follows the state of a running process, which this one succeeds: the first `bytes` of its file.
    ///
    /// # Errors
    /// The file cannot be read, or is not whole.
    pub(crate) fn succeed(run_dir: &Path, name: &str, bytes: u64) -> anyhow::Result<State> {
        let files = Files::of(run_dir, name);
        let boot = boot_id();
        let followed_file =
            FollowedFile::open(&files.state, &boot, bytes).context("the state of the process to succeed")?;
        Ok(State { followed_file: Some(followed_file), ..State::new(files, boot, BTreeMap::new()) })
    }

    /// Whether the bridges' state is of a running process, which this one succeeds.
    pub(crate) fn is_of_running(&self) -> bool {
        self.followed_file.is_some()
    }

    /// Reads the changes up to `bytes` of the file of the running process; returns them by bridge, with the learned addresses.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn take_changes(&mut self, bytes: u64) -> io::Result<Vec<(String, BridgeChanges)>> {
        let boot = &self.boot;
        self.followed_file
            .as_mut()
            .map_or_else(|| Ok(Vec::new()), |followed| followed.take_changes(boot, bytes))
    }

    /// The running process has ended, and has written its last counters: reads them on a thread of their own. The receiver
    /// gets the counters of each bridge that are higher than in the changes before.
    pub(crate) fn take_counters(&mut self) -> Option<Receiver<Vec<(String, Counted)>>> {
        let followed = self.followed_file.take()?;
        let (path, boot) = (self.files.state.clone(), self.boot.clone());
        let (counters, receiver) = sync_channel(1);
        // This process will soon put its own file in place.
        let file = sys::local::open_own(&path);
        let read = move || {
            sys::confine::enter(Kind::Background, &[]);
            let counted = file.and_then(|file| followed.counted(&file, &boot));
            let counted = counted.unwrap_or_else(|e| {
                log::warn!(target: "state", "{}: {e}: counters of rules and groups lack their last part", path.display());
                Vec::new()
            });
            // The requester may have ended.
            let _ = counters.send(counted);
        };
        match std::thread::Builder::new().name("state".into()).spawn(read) {
            Ok(_) => Some(receiver),
            Err(e) => {
                log::warn!(target: "state", "counters of rules and groups lack their last part: {e}");
                None
            }
        }
    }

    /// Writes down all changes so far, for a process that follows the file; the receiver gets its length. Until
    /// [`State::go_on`] the file only grows.
    ///
    /// # Errors
    /// No file is written.
    pub(crate) fn sync(
        &mut self,
        backers: Vec<Arc<Backer>>,
        datapaths: &Tracked,
    ) -> Result<Receiver<io::Result<u64>>, String> {
        self.keep(backers, datapaths);
        self.keeper.as_ref().map(Keeper::sync).ok_or_else(|| "the state cannot be written".to_string())
    }

    /// No other process follows the file any longer.
    pub(crate) fn go_on(&self) {
        self.keeper.iter().for_each(Keeper::grow_freely);
    }

    /// The state of a bridge, once; with `only_meters` without its rest.
    pub(crate) fn take(&mut self, bridge: &str, only_meters: bool) -> Option<Taken> {
        if let Some(followed) = &self.followed_file {
            return followed.bridge(bridge).map(Taken::of);
        }
        let saved = self.take_saved(bridge)?;
        let saved = if only_meters { saved.only_meters() } else { saved };
        Some(Taken::of(&saved))
    }

    fn take_saved(&mut self, bridge: &str) -> Option<SavedBridge> {
        let saved = self.saved.remove(bridge)?;
        note_restored(&mut self.has_restored, &self.files);
        Some(saved)
    }

    /// The flows of the last process, once, if they were made from these settings.
    pub(crate) fn take_flows(&mut self, settings: &Translated) -> KeptFlows {
        let Some(file) = self.flows.take() else { return KeptFlows::default() };
        let reader = flows::Reader { boot: &self.boot, program: &self.program, digest: settings.digest() };
        let read = flows::read(file, reader);
        if !remove_flows(&self.files) {
            // The next process would take them too.
            return KeptFlows::default();
        }
        match read {
            Ok(Some(kept)) => {
                note_restored(&mut self.has_restored, &self.files);
                kept
            }
            Ok(None) => {
                log::info!(target: "state", "the flows of the last process are of other settings, or of another program: starting without them");
                KeptFlows::default()
            }
            Err(e) => {
                log::warn!(target: "state", "{}: {e}: starting without the flows of the last process", self.files.flows.display());
                KeptFlows::default()
            }
        }
    }

    /// The flows of the last process are not used.
    pub(crate) fn drop_flows(&mut self) {
        if self.flows.take().is_some() {
            remove_flows(&self.files);
        }
    }

    /// This configuration is about to be carried out: flows of other settings are kept no longer.
    pub(crate) fn configure_flows(&mut self, desired: &Desired) {
        if self.kept_from.take_if(|(from, _)| !from.is_of(desired)).is_some() {
            self.outdate_flows();
        }
    }

    /// Flows of other settings or datapaths are kept no longer.
    fn outdate_flows(&self) {
        // Their writer looks at the number before it puts a file in place.
        self.settings_changes.fetch_add(1, Ordering::Release);
        remove_flows(&self.files);
    }

    /// Whether the flows of the last configuration are kept, with ports after these changes.
    pub(crate) fn keeps_flows(&self, port_changes: &[u64]) -> bool {
        self.kept_from.as_ref().is_some_and(|(_, changes)| changes == port_changes)
    }

    /// Keeps the flows of these datapaths for the next process. The settings are in force.
    pub(crate) fn keep_flows(
        &mut self,
        desired: &Desired,
        numbers: Vec<Numbered>,
        datapaths: Vec<FlowSource>,
    ) {
        let Some(keeper) = &self.keeper else { return };
        let settings = desired.translated();
        let port_changes = datapaths.iter().map(|datapath| datapath.changes.1).collect();
        self.kept_from = Some((settings.clone(), port_changes));
        let changes = (self.settings_changes.clone(), self.settings_changes.load(Ordering::Acquire));
        keeper.keep_flows(FlowSources { datapaths, numbers, settings, changes });
    }

    /// Gives a datapath the connections that it had in the last process, once.
    pub(crate) fn restore_connections(&mut self, datapath: &Arc<dyn Provider>) {
        let Some((former, given)) = &mut self.former else { return };
        let name = datapath.name();
        let Some(Ok(into)) = datapath.connections().map(Connections::restore) else { return };
        if given.insert(name.to_string()) {
            // A file that ends this process does not end the next one.
            note_restored(&mut self.has_restored, &self.files);
            former.restore(name, into);
        }
    }

    /// Writes down the state of these datapaths from now on, all of it first. Call it once the bridges of the last process are
    /// there: its files are replaced.
    pub(crate) fn keep(&mut self, backers: Vec<Arc<Backer>>, datapaths: &Tracked) {
        let is_same = |(a, b): (&Arc<Backer>, &Arc<Backer>)| Arc::ptr_eq(a, b);
        let stays = backers.len() == self.followed.len() && backers.iter().zip(&self.followed).all(is_same);
        if self.keeper.is_some() && stays {
            return;
        }
        (self.saved, self.macs, self.former) = (BTreeMap::new(), BTreeMap::new(), None);
        self.is_discarded = false;
        if std::mem::take(&mut self.has_queues) {
            note_restored(&mut self.has_restored, &self.files);
        }
        // One thread writes the file at a time.
        self.connections = None;
        self.connections =
            Writing::start(&self.files, &self.boot, datapaths, &self.readers).unwrap_or_else(|e| {
                log::error!(target: "state", "cannot write down connections for the next process: {e}");
                None
            });
        match &self.keeper {
            Some(keeper) => keeper.follow(&backers),
            None => {
                match Keeper::start(&self.files, (&self.boot, &self.program), self.has_restored, &backers) {
                    Ok(keeper) => self.keeper = Some(keeper),
                    Err(e) => {
                        log::error!(target: "state", "cannot write down state for the next process: {e}")
                    }
                }
            }
        }
        self.followed = backers;
    }

    /// Another process switches, and keeps connections.
    pub(crate) fn stand_by(&mut self) {
        (self.connections, self.former, self.kept_from) = (None, None, None);
        self.drop_flows();
        self.outdate_flows();
        // The next datapaths are others: their connections are kept then.
        self.followed = Vec::new();
    }

    /// Keeps no state, and removes the file of the last process.
    pub(crate) fn discard(&mut self) {
        (self.keeper, self.followed, self.connections, self.former) = (None, Vec::new(), None, None);
        (self.flows, self.kept_from) = (None, None);
        if !std::mem::replace(&mut self.is_discarded, true) {
            self.saved.clear();
            remove(&self.files);
        }
    }

    /// Writes down all state with its counters; with `cleanup`, removes it: the ports go too. A successor has the connections.
    pub(crate) fn finish(mut self, exit: Exit) {
        if exit.cleanup {
            self.discard();
        }
        self.keeper.take().into_iter().for_each(Keeper::finish);
        if !exit.handed_over {
            self.connections.take().into_iter().for_each(Writing::finish);
        }
    }
}

impl Taken {
    fn of(saved: &SavedBridge) -> Taken {
        let (state, faults) = saved.parse();
        Taken { state, faults, macs: saved.macs.clone() }
    }
}

/// Identity of this start of the machine.
fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_string()
}

/// The file of flows, if there is one.
fn open_flows(files: &Files) -> Option<File> {
    match sys::local::open_own(&files.flows) {
        Ok(file) => Some(file),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) => {
            log::warn!(target: "state", "{}: {e}: starting without the flows of the last process", files.flows.display());
            None
        }
    }
}

/// The bridges of a file; none without one.
fn read(files: &Files, boot: &str) -> io::Result<BTreeMap<String, SavedBridge>> {
    if fs::exists(&files.mark)? {
        remove(files);
        return Err(io::Error::other("the last process ended soon after it restored this state"));
    }
    match sys::local::open_own(&files.state) {
        Ok(file) => reader::read(&file, boot),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(e) => Err(e),
    }
}

/// Reads bytes as a file of state, and all text in it; or as one of connections.
pub(crate) fn parse_file(bytes: &[u8]) {
    connections::parse(bytes);
    // Any error will do.
    let _ = flows::parse(bytes);
    for bridge in reader::read(bytes, "boot").unwrap_or_default().into_values() {
        let (state, _) = bridge.parse();
        assert!(state.rules.iter().all(|rule| !rule.added.command.deletes()));
    }
}

/// Marks that this process uses state of the last one.
fn note_restored(has_restored: &mut bool, files: &Files) {
    if !std::mem::replace(has_restored, true)
        && let Err(e) = fs::write(&files.mark, "")
    {
        log::warn!(target: "state", "{}: {e}", files.mark.display());
    }
}

fn remove(files: &Files) {
    remove_files(&[&files.state, &files.next, &files.mark]);
    connections::remove(files);
    remove_flows(files);
}

/// Removes the files of flows; whether none is left.
fn remove_flows(files: &Files) -> bool {
    remove_files(&[&files.flows, &files.next_flows])
}

/// Creates a file for this user alone; one of that name is removed before.
fn create_own(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    File::options().write(true).create_new(true).mode(0o600).open(path)
}

/// Removes files; whether none is left.
fn remove_files(files: &[&PathBuf]) -> bool {
    let mut are_gone = true;
    for file in files {
        match fs::remove_file(file) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                log::warn!(target: "state", "{}: cannot remove the file: {e}", file.display());
                are_gone = false;
            }
            _ => {}
        }
    }
    are_gone
}
