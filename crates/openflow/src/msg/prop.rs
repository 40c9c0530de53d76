//! Properties: type, length without padding, payload, padding to 8 bytes (OpenFlow 1.3 §7.3.5.5.2 and later everywhere).

use crate::error::ErrorKind;
use crate::wire::{Reader, Res, Writer};

/// Reads one property: its type and its payload.
pub(crate) fn read<'a>(r: &mut Reader<'a>) -> Res<(u16, Reader<'a>)> {
    let mut head = r.clone().or(ErrorKind::BpcBadLen);
    let (ty, len) = (head.u16()?, usize::from(head.u16()?));
    let padded = len.next_multiple_of(8);
    if len < 4 || padded > r.len() {
        return Err(ErrorKind::BpcBadLen);
    }
    let mut body = r.sub(padded)?.sub(len)?.or(ErrorKind::BpcBadLen);
    body.skip(4)?;
    Ok((ty, body))
}

/// Writes one property.
pub(crate) fn put(w: &mut Writer, ty: u16, payload: impl FnOnce(&mut Writer)) {
    let mark = w.mark();
    w.u16(ty);
    w.u16(0);
    payload(w);
    w.set_len(mark, 2);
    w.pad8(mark);
}
