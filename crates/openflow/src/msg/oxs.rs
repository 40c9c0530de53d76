//! Extensible statistics (OpenFlow 1.5 §7.2.4): counters of rules as tagged fields, like OXM.

use ofp_wire::ErrorKind;
use ofp_wire::{Reader, Res, Writer};

/// Class of the basic statistics.
const CLASS_BASIC: u16 = 0x8002;
/// Class of experimenters.
const CLASS_EXPERIMENTER: u16 = 0xffff;

const DURATION: u8 = 0;
const IDLE_TIME: u8 = 1;
const FLOW_COUNT: u8 = 3;
const PACKET_COUNT: u8 = 4;
const BYTE_COUNT: u8 = 5;

/// Statistics of a rule or of several.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Oxs {
    /// Age: seconds, nanoseconds.
    pub(crate) duration: Option<(u32, u32)>,
    /// Seconds since the last packet.
    pub(crate) idle_s: Option<u32>,
    /// Packets.
    pub(crate) packets: Option<u64>,
    /// Bytes.
    pub(crate) bytes: Option<u64>,
    /// Rules.
    pub(crate) flows: Option<u32>,
}

/// Reads the statistics and their padding; passes over unknown fields.
pub(crate) fn read(r: &mut Reader<'_>) -> Res<Oxs> {
    let mut head = r.clone().or(ErrorKind::BmcBadLen);
    head.skip(2)?;
    let len = usize::from(head.u16()?);
    let padded = len.next_multiple_of(8);
    if len < 4 || padded > r.len() {
        return Err(ErrorKind::BmcBadLen);
    }
    let mut body = r.sub(padded)?.sub(len)?.or(ErrorKind::BmcBadLen);
    body.skip(4)?;
    let mut out = Oxs::default();
    while !body.is_empty() {
        let (class, field, len) = (body.u16()?, body.u8()? >> 1, usize::from(body.u8()?));
        if class == CLASS_EXPERIMENTER && len < 4 {
            return Err(ErrorKind::BmcBadLen);
        }
        let mut value = body.sub(len)?;
        match (class, field, len) {
            (CLASS_BASIC, DURATION, 8) => out.duration = Some((value.u32()?, value.u32()?)),
            (CLASS_BASIC, IDLE_TIME, 8) => out.idle_s = Some(value.u32()?),
            (CLASS_BASIC, FLOW_COUNT, 4) => out.flows = Some(value.u32()?),
            (CLASS_BASIC, PACKET_COUNT, 8) => out.packets = Some(value.u64()?),
            (CLASS_BASIC, BYTE_COUNT, 8) => out.bytes = Some(value.u64()?),
            _ => {}
        }
    }
    Ok(out)
}

fn put_field(w: &mut Writer, field: u8, value: Option<u64>) {
    if let Some(value) = value {
        w.u16(CLASS_BASIC);
        w.u8(field << 1);
        w.u8(8);
        w.u64(value);
    }
}

/// Writes the statistics and their padding, in the order of OVS.
pub(crate) fn put(w: &mut Writer, s: &Oxs) {
    let mark = w.mark();
    w.zeros(4);
    let time = |(s, ns): (u32, u32)| u64::from(s) << 32 | u64::from(ns);
    put_field(w, DURATION, s.duration.map(time));
    put_field(w, IDLE_TIME, s.idle_s.map(|s| time((s, 0))));
    put_field(w, PACKET_COUNT, s.packets);
    put_field(w, BYTE_COUNT, s.bytes);
    if let Some(flows) = s.flows {
        w.u16(CLASS_BASIC);
        w.u8(FLOW_COUNT << 1);
        w.u8(4);
        w.u32(flows);
    }
    w.set_len(mark, 2);
    w.pad8(mark);
}
