//! Deletion of tracked connections, which may take long with many of them: the owner does it beside the main loop
//! ([`Connmgr::take_flush`], [`Connmgr::flushed`]). Later requests of the controller's connection wait for it, so a
//! barrier covers it.

use super::conn::Conn;
use super::{BridgeCtx, ConnId, Connmgr};
use dpif::{CtMatch, DpifError};
use openflow::ErrorKind;

/// A deletion that is not finished.
pub(super) struct PendingFlush {
    /// The request, for its error.
    frame: Vec<u8>,
    /// The selection, until the owner takes it.
    which: Option<CtMatch>,
}

impl Conn {
    /// Begins a deletion. As in OVS, only a datapath without a tracker is an error, and not that nothing was found.
    pub(super) fn begin_flush(
        &mut self,
        which: CtMatch,
        frame: &[u8],
        ctx: &BridgeCtx<'_>,
    ) -> Result<(), ErrorKind> {
        ctx.datapath.connections().ok_or(ErrorKind::BrcBadExpType)?;
        self.flush = Some(PendingFlush { frame: frame.to_vec(), which: Some(which) });
        Ok(())
    }
}

impl Connmgr {
    /// The next deletion of tracked connections to carry out: that of at most one per connection at a time.
    pub fn take_flush(&mut self) -> Option<(ConnId, CtMatch)> {
        self.conns.values_mut().find_map(|conn| Some((conn.id, conn.flush.as_mut()?.which.take()?)))
    }

    /// Reports that the deletion of a connection is finished; the connection goes on.
    pub fn flushed(&mut self, conn: ConnId, result: Result<(), DpifError>) {
        let Some(conn) = self.conns.get_mut(&conn) else { return };
        let Some(PendingFlush { frame, .. }) = conn.flush.take() else { return };
        if result.is_err_and(|e| !matches!(e, DpifError::NotFound(_))) {
            conn.refuse(ErrorKind::BrcEperm, &frame);
        }
    }
}
