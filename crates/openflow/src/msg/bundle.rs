//! Bundles: messages within messages.
//!
//! Sources: OpenFlow 1.4 §7.3.9; ONF EXT-230 (bundles for 1.3).

use super::{Message, wire_enum};
use ofp_wire::ErrorKind;
use ofp_wire::Version;
use ofp_wire::{Reader, Res, Writer};

wire_enum! {
    /// Type of a bundle control message (1.4 §7.3.9.2).
    BundleControlType: u16 {
        /// Open.
        OpenRequest = 0,
        /// Opened.
        OpenReply = 1,
        /// Close.
        CloseRequest = 2,
        /// Closed.
        CloseReply = 3,
        /// Commit.
        CommitRequest = 4,
        /// Committed.
        CommitReply = 5,
        /// Discard.
        DiscardRequest = 6,
        /// Discarded.
        DiscardReply = 7,
    }
}

/// Controls a bundle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BundleControl {
    /// The bundle.
    pub bundle_id: u32,
    /// The type.
    pub ty: BundleControlType,
    /// 1 atomic, 2 ordered.
    pub flags: u16,
}

pub(crate) fn decode_bundle_control(r: &mut Reader<'_>) -> Res<BundleControl> {
    let bundle_id = r.u32()?;
    let ty = BundleControlType::from_wire(r.u16()?).ok_or(ErrorKind::BfcBadType)?;
    let flags = bundle_flags(r.u16()?)?;
    Ok(BundleControl { bundle_id, ty, flags })
}

fn bundle_flags(flags: u16) -> Res<u16> {
    if flags & !3 == 0 { Ok(flags) } else { Err(ErrorKind::BfcBadFlags) }
}

pub(crate) fn encode_bundle_control(m: &BundleControl, w: &mut Writer) {
    w.u32(m.bundle_id);
    w.u16(m.ty as u16);
    w.u16(m.flags);
}

/// Adds a message to a bundle.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BundleAdd {
    /// The bundle.
    pub bundle_id: u32,
    /// 1 atomic, 2 ordered.
    pub flags: u16,
    /// The message; its transaction id is that of the outer one.
    pub message: Box<Message>,
}

pub(crate) fn decode_bundle_add(r: &mut Reader<'_>) -> Res<BundleAdd> {
    let bundle_id = r.u32()?;
    r.skip(2)?;
    let flags = bundle_flags(r.u16()?)?;
    let mut head = r.clone().or(ErrorKind::BfcMsgBadLen);
    let (version, _, len, xid) = (head.u8()?, head.u8()?, usize::from(head.u16()?), head.u32()?);
    if len < 8 || len > r.len() {
        return Err(ErrorKind::BfcMsgBadLen);
    }
    if Version(version) != r.version {
        return Err(ErrorKind::BfcBadVersion);
    }
    if xid != r.xid {
        return Err(ErrorKind::BfcMsgBadXid);
    }
    let inner = r.bytes(len)?;
    let message = crate::codec::decode_inner(inner, r)?;
    Ok(BundleAdd { bundle_id, flags, message: Box::new(message) })
}

pub(crate) fn encode_bundle_add(m: &BundleAdd, w: &mut Writer) {
    w.u32(m.bundle_id);
    w.zeros(2);
    w.u16(m.flags);
    let xid = w.xid;
    crate::codec::encode_inner(&m.message, xid, w);
}
