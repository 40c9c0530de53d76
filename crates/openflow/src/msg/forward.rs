//! Requests of other controllers, forwarded (OpenFlow 1.4 §7.4.6; Nicira's and ONF's forms before).

use super::{Kind, Message};
use ofp_wire::ErrorKind;
use ofp_wire::{Reader, Res, Writer};

/// A group-mod or meter-mod that another controller sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestForward {
    /// Its transaction id.
    pub xid: u32,
    /// The request.
    pub message: Box<Message>,
}

pub(crate) fn decode(r: &mut Reader<'_>) -> Res<RequestForward> {
    let (xid, message) = crate::codec::decode_forwarded(r.rest(), r)?;
    if !matches!(message.kind(), Kind::GroupMod | Kind::MeterMod) {
        return Err(ErrorKind::BrcBadType);
    }
    Ok(RequestForward { xid, message: Box::new(message) })
}

pub(crate) fn encode(m: &RequestForward, w: &mut Writer) {
    crate::codec::encode_inner(&m.message, m.xid, w);
}
