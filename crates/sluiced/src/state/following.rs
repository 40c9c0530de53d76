//! [`FollowedFile`]: the file of a running process, which this one succeeds.

use super::reader::{Lines, SavedBridge, SavedMac};
use connmgr::StateChanges;
use ofproto::flow_mod::Past;
use openflow::msg::flow_mod::FlowMod;
use openflow::msg::group::Group;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Counters of a bridge to add.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    /// Rules, as deletions of them.
    pub(crate) rules: Vec<(FlowMod, Past)>,
    /// Groups, with packets and bytes of each and of its buckets.
    pub(crate) groups: Vec<(Group, Vec<(u64, u64)>)>,
}

/// Changes of a bridge.
pub(crate) struct BridgeChanges {
    pub(crate) state: StateChanges,
    /// Reasons why parts do not parse.
    pub(crate) faults: Vec<String>,
    /// All its learned addresses.
    pub(crate) macs: Vec<SavedMac>,
}

/// See the module documentation.
pub(super) struct FollowedFile {
    file: File,
    /// Bytes read so far.
    at: u64,
    lines: Lines,
}

impl FollowedFile {
    /// Reads the first `bytes` of a file.
    pub(super) fn open(path: &Path, boot: &str, bytes: u64) -> io::Result<FollowedFile> {
        let mut followed = FollowedFile { file: sys::local::open_own(path)?, at: 0, lines: Lines::default() };
        followed.read(boot, bytes)?;
        if !followed.lines.is_whole {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the file is not whole"));
        }
        followed.lines.bridges.values_mut().for_each(SavedBridge::note_changes);
        Ok(followed)
    }

    fn read(&mut self, boot: &str, bytes: u64) -> io::Result<()> {
        let new = bytes.saturating_sub(self.at);
        self.at += new;
        self.lines.read((&self.file).take(new), boot)
    }

    pub(super) fn bridge(&self, name: &str) -> Option<&SavedBridge> {
        self.lines.bridges.get(name)
    }

    /// Changes of all bridges up to that length of the file.
    pub(super) fn take_changes(
        &mut self,
        boot: &str,
        bytes: u64,
    ) -> io::Result<Vec<(String, BridgeChanges)>> {
        self.read(boot, bytes)?;
        let bridges = self.lines.bridges.iter_mut().map(|(name, bridge)| {
            let (state, faults) = bridge.take_changes();
            (name.clone(), BridgeChanges { state, faults, macs: bridge.macs.clone() })
        });
        Ok(bridges.collect())
    }

    /// Counters of all bridges that are higher in the last file of the process.
    pub(super) fn counted(&self, last: &File, boot: &str) -> io::Result<Vec<(String, Counted)>> {
        let last = super::reader::read(last, boot)?;
        let before = &self.lines.bridges;
        let counted = last
            .iter()
            .filter_map(|(name, bridge)| Some((name.clone(), bridge.counted_since(before.get(name)?))));
        Ok(counted.collect())
    }
}
