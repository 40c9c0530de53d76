//! The seam to where records come from: a recording, the daemon's event socket, or probes.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use upcall_events::Record;

/// What a source says when it is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Told {
    /// The next record.
    Record(Record),
    /// Nothing came within the time.
    Nothing,
    /// There is nothing more to come.
    End {
        /// Why, where that was not in good order: a sentence for the user.
        note: Option<String>,
    },
}

/// Where records come from. Each begins with [`Record::Start`].
pub trait Source {
    /// Where the records come from, in a few words for the user.
    fn describe(&self) -> String;

    /// The next record; waits for `timeout` at most.
    ///
    /// # Errors
    ///
    /// Reading fails. What was told before stays good; the source is not to be asked again.
    fn next(&mut self, timeout: Duration) -> Result<Told>;

    /// Asks for nothing that happens from now on. Whether [`Source::next`] has something left of what happened before, until it
    /// says [`Told::End`].
    fn close(&mut self) -> bool {
        false
    }
}

/// What is to be captured of a live switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Capture {
    /// Process id of the switch; `None`: the one that is found.
    pub pid: Option<u32>,
    /// Folder with the switch's sockets.
    pub run_dir: PathBuf,
    /// First bytes of each packet.
    pub packet_bytes: usize,
    /// First bytes of each flow key.
    pub key_bytes: usize,
    /// Pages of the buffer between probes and tracer, each 4 KiB.
    pub buffer_pages: usize,
    /// Whether the tracer talks about its own work.
    pub debug: bool,
}
