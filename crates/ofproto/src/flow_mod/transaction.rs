//! Flow-mods and group-mods executed atomically: all or none.
//!
//! A [`Transaction`] works on an open version of a bridge's tables, a bounded amount per step, and publishes it at
//! its end. Meanwhile no other change of the bridge's rules is made: other writers check [`Backer::is_changing`],
//! and learned rules wait in a queue. A failed flow-mod undoes all, in slices as well.

use super::queue::ModQueue;
use super::{DoneGroupMod, Effects, FlowModCounts, Mod, ModContext, PacketOfTurn, end_orphans};
use crate::backer::Backer;
use crate::ids::BridgeId;
use crate::ids::ConnId;
use crate::tables::Tables;
use openflow::ErrorKind;
use std::collections::VecDeque;

/// Undone changes with the cost of one changed rule.
const UNDONE_PER_CHANGE: usize = 4;

/// See the module documentation.
pub struct Transaction {
    bridge: BridgeId,
    queue: ModQueue,
    /// The open version; `None` once it is published or undone.
    open: Option<Tables>,
    effects: Effects,
    is_given_up: bool,
}

/// State of a [`Transaction`] after a step.
#[derive(Debug)]
pub enum Progress {
    /// More work is left.
    More,
    /// Committed: packets see it.
    Done,
    /// Undone because of this error about this message.
    Failed(ErrorKind, Box<[u8]>),
}

impl Transaction {
    /// Begins with modifications and their messages; the flow-mods passed [`super::check`]. `None` if the bridge does not
    /// exist, or has another open transaction. The caller must step it to its end.
    pub fn begin(
        backer: &Backer,
        bridge: BridgeId,
        mods: impl IntoIterator<Item = (Mod, Box<[u8]>)>,
    ) -> Option<Transaction> {
        let open = Some(backer.open_tables(bridge)?);
        let queue = mods.into_iter().collect();
        Some(Transaction { bridge, queue, open, effects: Effects::default(), is_given_up: false })
    }

    /// Reports its changes together, as those of a connection's request.
    pub fn requested_by(mut self, conn: ConnId) -> Transaction {
        self.queue.report_together(conn);
        self
    }

    /// The group-mods of a committed transaction, the number of flow-mods, and the packets to send.
    pub fn into_done(self) -> (Vec<DoneGroupMod>, FlowModCounts, VecDeque<PacketOfTurn>) {
        (self.effects.groups, self.effects.flow_mods, self.effects.packets)
    }

    /// Continues until `work`, in rules changed, is used up.
    pub fn step(&mut self, backer: &Backer, cx: &ModContext<'_>, work: &mut usize) -> Progress {
        let Some(mut tables) = self.open.take() else { return Progress::Done };
        while *work > 0 && !self.queue.is_empty() && !self.is_ending() {
            self.queue.work(&mut tables, cx, work, &mut self.effects);
        }
        if !self.is_ending() && self.queue.is_empty() {
            end_orphans(&mut tables, work);
        }
        if !self.is_ending() && self.queue.is_empty() && !tables.has_orphans() {
            backer.publish_tables(self.bridge, tables);
            return Progress::Done;
        }
        if self.is_ending() {
            let undone = tables.undo(work.saturating_mul(UNDONE_PER_CHANGE));
            *work = work.saturating_sub(undone.div_ceil(UNDONE_PER_CHANGE));
        }
        if *work == 0 {
            self.open = Some(tables);
            return Progress::More;
        }
        backer.close_tables(self.bridge, tables);
        match std::mem::take(&mut self.effects.failed).pop() {
            Some((kind, message)) => Progress::Failed(kind, message),
            None => Progress::Done,
        }
    }

    /// Whether it is being undone.
    fn is_ending(&self) -> bool {
        self.is_given_up || !self.effects.failed.is_empty()
    }

    /// Undoes all from the next step on: at the end nothing has changed.
    pub fn give_up(&mut self) {
        self.is_given_up = true;
    }
}
