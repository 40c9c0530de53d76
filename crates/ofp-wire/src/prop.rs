//! Properties: type, length without padding, payload, padding to 8 bytes (OpenFlow 1.3 §7.3.5.5.2 and later everywhere).

use crate::error::ErrorKind;
use crate::wire::{Reader, Res, Writer};

/// Reads one property: its type and its payload.
pub fn read<'a>(r: &mut Reader<'a>) -> Res<(u16, Reader<'a>)> {
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

/// Reads the payload of a property of 16 bits. OVS and the standard give it a length of 8, padding included;
/// some senders exclude the padding.
pub fn small_u16(p: &mut Reader<'_>) -> Res<u16> {
    let value = p.u16()?;
    p.rest();
    Ok(value)
}

/// Reads the payload of a property of 8 bits: likewise with or without padding in its length.
pub fn small_u8(p: &mut Reader<'_>) -> Res<u8> {
    let value = p.u8()?;
    p.rest();
    Ok(value)
}

/// Writes a property of 16 bits, with a length of 8.
pub fn put_u16(w: &mut Writer, ty: u16, value: u16) {
    put(w, ty, |w| {
        w.u16(value);
        w.zeros(2);
    });
}

/// Writes one property.
pub fn put(w: &mut Writer, ty: u16, payload: impl FnOnce(&mut Writer)) {
    let mark = w.mark();
    w.u16(ty);
    w.u16(0);
    payload(w);
    w.set_len(mark, 2);
    w.pad8(mark);
}
