//! Control packets of helpers (FTP, TFTP): the tracker reads what they announce, and edits their messages once they are
//! translated.

use super::translate::translate;
use super::{ActionMismatch, Executor};
use crate::burst::HeaderCtx;
use conntrack::{Announcement, Helper, PacketInfo, Request};
use flow::DpPort;
use packet::Packet;
use packet::headers as h;

impl Executor {
    /// Tracks a control packet of `helper`. `may_grow`: its length may change. A misfit is to be dropped.
    #[cold]
    #[allow(clippy::too_many_arguments, reason = "those of track, and the helper")]
    pub(super) fn track_control(
        &self,
        packet: &mut Packet,
        headers: &mut HeaderCtx<'_>,
        rx_port: DpPort,
        request: &Request,
        info: &PacketInfo,
        helper: Helper,
        may_grow: bool,
    ) -> Result<(), ActionMismatch> {
        let tracker = self.shared.tracker();
        let (l3, l4) = (usize::from(headers.layout.l3), usize::from(headers.layout.l4));
        let is_v6 = headers.key.base.dl_type == h::ETH_TYPE_IPV6;
        let announcement = Announcement::read(packet, l3, l4, is_v6, helper);
        let (port, now_ms) = (rx_port.0, self.now_us / 1000);
        let (translation, edit) =
            tracker.track_control(info, &announcement, request, headers.key, port, now_ms);
        translate(packet, headers, &translation)?;
        if let Some(edit) = edit {
            tracker.edit(packet, l3, l4, &edit, may_grow);
        }
        Ok(())
    }
}
