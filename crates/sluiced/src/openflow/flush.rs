//! [`Flushes`]: deletions of tracked connections that controllers of one bridge ask for, each by a thread, one at a time.

use crate::turn::Turn;
use crate::work::{ReplyPart, Work, Workers};
use connmgr::{ConnId, Connmgr};
use dpif::text::format_flush;
use dpif::{CtMatch, Datapath, DpifError};
use std::sync::Arc;

/// Deletions under way or waiting for their turn; later ones wait in their connections.
const AT_ONCE: usize = 8;
/// Interval of looking for their ends.
const POLL_MS: u64 = 2;

/// See the module documentation.
#[derive(Default)]
pub(super) struct Flushes {
    workers: Workers,
    under_way: Vec<(ConnId, Work)>,
}

impl Flushes {
    /// Reports finished deletions, and starts others.
    pub(super) fn run(&mut self, mgr: &mut Connmgr, datapath: &Arc<dyn Datapath>, now_ms: u64) -> Turn {
        let mut ended = false;
        self.under_way.retain(|(conn, work)| {
            // Its text is empty.
            let Some(ReplyPart::End(answer)) = work.part() else { return true };
            mgr.flushed(*conn, answer.map(|_| ()).map_err(DpifError::Device));
            ended = true;
            false
        });
        while self.under_way.len() < AT_ONCE
            && let Some((conn, which)) = mgr.take_flush()
        {
            let datapath = datapath.clone();
            match Work::begin(&self.workers, move |_| flush(&*datapath, &which)) {
                Ok(work) => self.under_way.push((conn, work)),
                Err(e) => {
                    log::warn!(target: "connmgr", "cannot flush tracked connections: {e}");
                    mgr.flushed(conn, Err(DpifError::Device(e)));
                    ended = true;
                }
            }
        }
        // Their connections go on at once.
        let polls = if self.under_way.is_empty() { Turn::DONE } else { Turn::at(now_ms + POLL_MS) };
        polls.and(Turn::more_if(ended))
    }
}

fn flush(datapath: &dyn Datapath, which: &CtMatch) -> Result<String, String> {
    log::debug!(target: "ct_dpif", "{}: ct_flush: {}", datapath.name(), format_flush(which));
    match datapath.connections().map(|tracker| tracker.flush(which)) {
        None | Some(Ok(()) | Err(DpifError::NotFound(_))) => Ok(String::new()),
        Some(Err(e)) => {
            log::warn!(target: "connmgr", "{}: cannot flush tracked connections: {e}", datapath.name());
            Err(e.to_string())
        }
    }
}
