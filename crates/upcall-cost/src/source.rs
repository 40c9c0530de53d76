//! Interface of sources of records: a recording, the daemon's event socket, or probes.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use upcall_events::Record;

/// Result of reading a source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Polled {
    /// The next record.
    Record(Record),
    /// No record within the timeout.
    Nothing,
    /// No more records.
    End {
        /// The reason, unless the end was orderly: a sentence for the user.
        note: Option<String>,
    },
}

/// A source of records. Each begins with [`Record::Start`].
pub trait Source {
    /// Brief description for the user.
    fn describe(&self) -> String;

    /// The next record; waits for at most `timeout`.
    ///
    /// # Errors
    ///
    /// Reading fails. Earlier records stay valid; do not read the source again.
    fn next(&mut self, timeout: Duration) -> Result<Polled>;

    /// Stops capturing. Returns whether [`Source::next`] still has earlier records, until [`Polled::End`].
    fn close(&mut self) -> bool {
        false
    }
}

/// Capture settings of a live switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Capture {
    /// Process id of the switch; `None`: the only one found.
    pub pid: Option<u32>,
    /// Folder with the switch's sockets.
    pub run_dir: PathBuf,
    /// First bytes of each packet.
    pub packet_bytes: usize,
    /// First bytes of each flow key.
    pub key_bytes: usize,
    /// Pages of the buffer between probes and tracer, each 4 KiB.
    pub buffer_pages: usize,
    /// Whether to print debug messages.
    pub debug: bool,
}
