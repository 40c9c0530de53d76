//! OpenFlow state kept for the next process: rules, groups, meters, mappings of tunnel metadata, learned addresses.
//!
//! A file in the run directory (`NAME.state`) has the state of all bridges as text: first all of it, then each change in
//! order. A thread follows the [records](ofproto::record) of the datapaths and appends to the file, so it also serves after a
//! crash or `kill -9`; from time to time it writes the file anew. The run directory is in memory, so the state ends with
//! the machine; a file of an earlier start of the machine is not used.
//!
//! The next process reads the file when it starts, and a bridge begins with its rules before it has ports
//! ([`State::take`]). Nothing in the file is trusted: each part passes the checks of a controller's message. A process
//! that ends within [`PROOF`] after it restored state leaves a mark, and the next one starts without state.

mod keeper;
mod lines;
mod reader;
#[cfg(test)]
mod tests;

pub(crate) use reader::{SavedBridge, SavedMac};

use keeper::Keeper;
use ofproto::backer::Backer;
use ofproto::ids::BridgeId;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

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
    /// Exists while restored state is not proved.
    mark: PathBuf,
}

impl Files {
    fn of(run_dir: &Path, name: &str) -> Files {
        let file = |suffix: &str| run_dir.join(format!("{name}.{suffix}"));
        Files { state: file("state"), next: file("state.new"), mark: file("state.mark") }
    }
}

/// The state of the last process, and the thread that writes this one's.
pub(crate) struct State {
    files: Files,
    /// Identity of this start of the machine.
    boot: String,
    /// Bridges of the last process that none of this one has taken yet.
    saved: BTreeMap<String, SavedBridge>,
    has_restored: bool,
    /// Learned addresses of bridges whose ports are missing.
    pub(crate) macs: BTreeMap<BridgeId, Vec<SavedMac>>,
    keeper: Option<Keeper>,
    /// Datapaths that the thread follows.
    followed: Vec<Arc<Backer>>,
    /// The file of the last process was removed.
    is_discarded: bool,
}

impl State {
    /// Reads the state that the last process left in `run_dir`.
    pub(crate) fn open(run_dir: &Path, name: &str) -> State {
        let files = Files::of(run_dir, name);
        let boot =
            fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_string();
        let saved = match read(&files, &boot) {
            Ok(saved) => saved,
            Err(e) => {
                log::warn!(target: "state", "{}: {e}: starting without the state of the last process", files.state.display());
                BTreeMap::new()
            }
        };
        State {
            files,
            boot,
            saved,
            has_restored: false,
            macs: BTreeMap::new(),
            keeper: None,
            followed: Vec::new(),
            is_discarded: false,
        }
    }

    /// The state of a bridge, once.
    pub(crate) fn take(&mut self, bridge: &str) -> Option<SavedBridge> {
        let saved = self.saved.remove(bridge)?;
        if !std::mem::replace(&mut self.has_restored, true)
            && let Err(e) = fs::write(&self.files.mark, "")
        {
            log::warn!(target: "state", "{}: {e}", self.files.mark.display());
        }
        Some(saved)
    }

    /// Writes down the state of these datapaths from now on, all of it first. Call it once the bridges of the last process are
    /// there: its file is replaced.
    pub(crate) fn keep(&mut self, backers: Vec<Arc<Backer>>) {
        let is_same = |(a, b): (&Arc<Backer>, &Arc<Backer>)| Arc::ptr_eq(a, b);
        let stays = backers.len() == self.followed.len() && backers.iter().zip(&self.followed).all(is_same);
        if self.keeper.is_some() && stays {
            return;
        }
        (self.saved, self.macs) = (BTreeMap::new(), BTreeMap::new());
        self.is_discarded = false;
        match &self.keeper {
            Some(keeper) => keeper.follow(&backers),
            None => match Keeper::start(self.files.clone(), &self.boot, self.has_restored, &backers) {
                Ok(keeper) => self.keeper = Some(keeper),
                Err(e) => log::error!(target: "state", "cannot write down state for the next process: {e}"),
            },
        }
        self.followed = backers;
    }

    /// Keeps no state, and removes the file of the last process.
    pub(crate) fn discard(&mut self) {
        (self.keeper, self.followed) = (None, Vec::new());
        if !std::mem::replace(&mut self.is_discarded, true) {
            self.saved.clear();
            remove(&self.files);
        }
    }

    /// Writes down all state with its counters; with `cleanup`, removes it: the ports go too.
    pub(crate) fn finish(mut self, cleanup: bool) {
        if cleanup {
            self.discard();
        } else if let Some(keeper) = self.keeper.take() {
            keeper.finish();
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

/// Reads bytes as a file of state, and all text in it.
pub(crate) fn parse_file(bytes: &[u8]) {
    for bridge in reader::read(bytes, "boot").unwrap_or_default().into_values() {
        let (state, _) = bridge.parse();
        assert!(state.rules.iter().all(|rule| !rule.added.command.deletes()));
    }
}

fn remove(files: &Files) {
    for file in [&files.state, &files.next, &files.mark] {
        match fs::remove_file(file) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                log::warn!(target: "state", "{}: cannot remove the file: {e}", file.display());
            }
            _ => {}
        }
    }
}
