//! [`SavedSession`]: a session that goes on in another process.

use super::{Config, MessageCounts, Session, State};
use crate::budget::{Budgets, Share};
use ofp_wire::{Options, Version};

/// An established session on its way to another process. The peer notices nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SavedSession {
    /// The version agreed.
    pub version: Version,
    /// As in [`Options`]. Mappings of tunnel metadata are the bridge's.
    pub table_id_in_command: bool,
    /// Transaction id of the next message of ours.
    pub next_xid: u32,
    /// Time of the latest input.
    pub last_input_ms: u64,
    /// Unprocessed input.
    pub input: Vec<u8>,
    /// Unsent output.
    pub output: Vec<u8>,
}

impl Session {
    /// A session that is over, without contents.
    pub(super) fn closed(config: Config, now_ms: u64, budgets: &Budgets) -> Session {
        Session {
            config,
            state: State::Over,
            options: Options::default(),
            pending: Vec::new(),
            done: 0,
            tap: None,
            log: None,
            output: Vec::new(),
            taken: 0,
            uncounted: 0,
            counts: MessageCounts::default(),
            next_xid: 1,
            last_input_ms: now_ms,
            probe_sent_ms: None,
            input_share: Share::new(&budgets.input),
            output_share: Share::new(&budgets.output),
            short: false,
            mute: false,
        }
    }

    /// Whether it can pass to another process: a version is agreed, and the peer reads.
    pub fn may_pass(&self) -> bool {
        matches!(self.state, State::Up(_)) && !self.mute && !self.short
    }

    /// Its state for another process, if it [may pass](Session::may_pass).
    pub fn save(&self) -> Option<SavedSession> {
        let State::Up(version) = self.state else { return None };
        self.may_pass().then(|| SavedSession {
            version,
            table_id_in_command: self.options.table_id_in_command,
            next_xid: self.next_xid,
            last_input_ms: self.last_input_ms,
            input: self.pending().to_vec(),
            output: self.output().to_vec(),
        })
    }

    /// Goes on with a session of another process, with shared memory bounds.
    pub fn resume(config: Config, saved: SavedSession, budgets: &Budgets) -> Session {
        let mut s = Session::closed(config, saved.last_input_ms, budgets);
        s.state = State::Up(saved.version);
        s.options.table_id_in_command = saved.table_id_in_command;
        s.next_xid = saved.next_xid.max(1);
        (s.pending, s.output) = (saved.input, saved.output);
        s.uncounted = s.output.len();
        s.input_share.set(s.pending.len());
        s.count_output();
        s
    }
}
