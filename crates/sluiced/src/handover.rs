//! Handover: a new process, the successor, takes the switch over from a running one while packets flow.
//!
//! ```text
//! running process                          successor
//!   starts it, lends its receive queues,
//!   states of link protocols ────────────▶   reads the database, the state file; opens bridges and ports
//!   forwards, answers controllers            ◀─ ready
//!   tracked connections, multicast groups,
//!   keys of flows ───────────────────────▶   has them; translates the keys and installs the flows
//!                                            ◀─ warm
//!   stops receiving; places of the queues,
//!   levels of meters, changes since ─────▶   follows the changes, receives from these places
//!                                            ◀─ forwarding
//!   OpenFlow connections,
//!   last counters, the end ──────────────▶   takes the role: database, sockets, controllers, pid file
//! ```
//!
//! Until the successor says that it forwards, the running process goes on as if nothing had been, whatever fails: a receive
//! queue is never without one of the two for longer than the change itself, and frames wait in it meanwhile.
//!
//! Messages are lines of text ([`notes`]); descriptors go with the line that names them. Rules, groups, meters and learned
//! addresses pass by the file of state, which the successor follows to the end ([`crate::state`]).

mod entries;
mod leaving;
mod notes;
mod succession;

pub(crate) use leaving::Leaving;
pub(crate) use succession::Succession;

use crate::turn::Turn;
use connmgr::{SavedBridge, SavedConn};
use std::time::Duration;

/// Set for a successor: the process id of the running process, its parent. Standard input is their channel.
const SUCCEEDS: &str = "SLUICED_SUCCEEDS";
/// Longest time from the start of a successor to its ready state: that of a large database and rule set.
const PREPARATION_MAX: Duration = Duration::from_secs(120);
/// Longest time without a receiver of packets.
const CHANGE_MAX: Duration = Duration::from_secs(5);
/// Longest wait for room in the channel, or for a message that must come.
const MESSAGE_MAX: Duration = Duration::from_secs(10);

/// State of a handover after a turn of the main loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// It goes on at an event, or then.
    Going(Turn),
    /// It is over: the successor forwards, or has the role.
    Over,
}

/// Reads notes, and states of OpenFlow connections and bridges, from arbitrary bytes, for tests with such.
pub(crate) fn parse_notes(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        if let Ok(saved) = SavedConn::parse(text) {
            assert_eq!(SavedConn::parse(&saved.text()), Ok(saved));
        }
        if let Ok(saved) = SavedBridge::parse(text) {
            for part in saved.texts() {
                SavedBridge::parse(&part).expect("a written part is read");
            }
        }
    }
    let message = sys::channel::Message { bytes: bytes.to_vec(), fds: Vec::new() };
    if bytes.starts_with(b"connections") {
        return drop(notes::read(message));
    }
    if let Ok(notes) = notes::read(message) {
        let lines: Vec<String> = notes.iter().map(ToString::to_string).collect();
        let again = sys::channel::Message { bytes: lines.concat().into_bytes(), fds: Vec::new() };
        let again = notes::read(again).map(|notes| notes.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert!(again.is_ok_and(|again| again == lines));
    }
}
