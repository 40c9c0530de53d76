//! Requests to delete tracked connections: `NXT_CT_FLUSH_ZONE`, `NXT_CT_FLUSH` (Open vSwitch 2.6 and 3.1; mark and
//! labels from 3.3).

use ofp_wire::{ErrorKind, Reader, Res, Writer, prop};
use std::net::Ipv6Addr;

/// Which connections to delete (`NXT_CT_FLUSH`): those that equal all given fields.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CtFlush {
    /// IP protocol of both tuples; 0: any.
    pub proto: u8,
    /// Tuple of the original direction.
    pub orig: CtFlushTuple,
    /// Tuple of the reply direction.
    pub reply: CtFlushTuple,
    /// Zone; without one, that of a given tuple is 0.
    pub zone: Option<u16>,
    /// Value of the mark, and the mask of its bits.
    pub mark: Option<(u32, u32)>,
    /// Value of the labels, and the mask of their bits.
    pub labels: Option<(u128, u128)>,
}

/// Fields of one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CtFlushTuple {
    /// Source address; IPv4 as mapped.
    pub src: Option<Ipv6Addr>,
    /// Destination address; IPv4 as mapped.
    pub dst: Option<Ipv6Addr>,
    /// Source port.
    pub src_port: Option<u16>,
    /// Destination port.
    pub dst_port: Option<u16>,
    /// ICMP identifier.
    pub icmp_id: Option<u16>,
    /// ICMP type.
    pub icmp_type: Option<u8>,
    /// ICMP code.
    pub icmp_code: Option<u8>,
}

/// `NXT_CT_*` properties: the tuples, each with its own; zone, mark and labels.
const ORIG: u16 = 0;
const REPLY: u16 = 1;
const ZONE: u16 = 2;
const MARK: u16 = 3;
const MARK_MASK: u16 = 4;
const LABELS: u16 = 5;
const LABELS_MASK: u16 = 6;

pub(crate) fn decode_ct_flush_zone(r: &mut Reader<'_>) -> Res<u16> {
    r.sub(6)?.zeros(ErrorKind::NxbrcMustBeZero)?;
    r.u16()
}

pub(crate) fn encode_ct_flush_zone(zone: &u16, w: &mut Writer) {
    w.zeros(6);
    w.u16(*zone);
}

pub(crate) fn decode_ct_flush(r: &mut Reader<'_>) -> Res<CtFlush> {
    let mut flush = CtFlush { proto: r.u8()?, ..CtFlush::default() };
    r.sub(7)?.zeros(ErrorKind::NxbrcMustBeZero)?;
    let (mut mark, mut labels) = ((None, None), (None, None));
    while !r.is_empty() {
        let (ty, mut p) = prop::read(r)?;
        match ty {
            ORIG => flush.orig = read_tuple(&mut p)?,
            REPLY => flush.reply = read_tuple(&mut p)?,
            ZONE => flush.zone = Some(prop::small_u16(&mut p)?),
            MARK => mark.0 = Some(p.u32()?),
            MARK_MASK => mark.1 = Some(p.u32()?),
            LABELS => labels.0 = Some(u128::from_be_bytes(p.array()?)),
            LABELS_MASK => labels.1 = Some(u128::from_be_bytes(p.array()?)),
            _ => return Err(ErrorKind::BpcBadType),
        }
        if ty >= MARK && !p.is_empty() {
            return Err(ErrorKind::BpcBadLen);
        }
    }
    // A value without a mask is exact, so that it never selects more; a mask without a value means zero.
    fn masked<T: Default>((value, mask): (Option<T>, Option<T>), exact: T) -> Option<(T, T)> {
        let given = value.is_some() || mask.is_some();
        given.then(|| (value.unwrap_or_default(), mask.unwrap_or(exact)))
    }
    (flush.mark, flush.labels) = (masked(mark, u32::MAX), masked(labels, u128::MAX));
    let addresses = [flush.orig.src, flush.orig.dst, flush.reply.src, flush.reply.dst];
    // An address of zeros is one of any version.
    let mut versions =
        addresses.into_iter().flatten().filter(|a| !a.is_unspecified()).map(|a| a.to_ipv4_mapped().is_some());
    let first = versions.next();
    if versions.any(|version| Some(version) != first) {
        return Err(ErrorKind::BpcBadValue);
    }
    Ok(flush)
}

/// Reads the properties of a tuple, after padding.
fn read_tuple(p: &mut Reader<'_>) -> Res<CtFlushTuple> {
    p.skip(4)?;
    let mut tuple = CtFlushTuple::default();
    while !p.is_empty() {
        let (ty, mut inner) = prop::read(p)?;
        match ty {
            0 => tuple.src = Some(inner.array::<16>()?.into()),
            1 => tuple.dst = Some(inner.array::<16>()?.into()),
            2 => tuple.src_port = Some(prop::small_u16(&mut inner)?),
            3 => tuple.dst_port = Some(prop::small_u16(&mut inner)?),
            4 => tuple.icmp_id = Some(prop::small_u16(&mut inner)?),
            5 => tuple.icmp_type = Some(prop::small_u8(&mut inner)?),
            6 => tuple.icmp_code = Some(prop::small_u8(&mut inner)?),
            _ => return Err(ErrorKind::BpcBadType),
        }
        if !inner.is_empty() {
            return Err(ErrorKind::BpcBadLen);
        }
    }
    Ok(tuple)
}

pub(crate) fn encode_ct_flush(m: &CtFlush, w: &mut Writer) {
    w.u8(m.proto);
    w.zeros(7);
    for (ty, tuple) in [(ORIG, &m.orig), (REPLY, &m.reply)] {
        if *tuple != CtFlushTuple::default() {
            prop::put(w, ty, |w| put_tuple(w, tuple));
        }
    }
    if let Some(zone) = m.zone {
        prop::put_u16(w, ZONE, zone);
    }
    if let Some((value, mask)) = m.mark {
        prop::put(w, MARK, |w| w.u32(value));
        prop::put(w, MARK_MASK, |w| w.u32(mask));
    }
    if let Some((value, mask)) = m.labels {
        prop::put(w, LABELS, |w| w.bytes(&value.to_be_bytes()));
        prop::put(w, LABELS_MASK, |w| w.bytes(&mask.to_be_bytes()));
    }
}

fn put_tuple(w: &mut Writer, tuple: &CtFlushTuple) {
    w.zeros(4);
    for (ty, address) in [(0, tuple.src), (1, tuple.dst)] {
        if let Some(address) = address {
            prop::put(w, ty, |w| w.bytes(&address.octets()));
        }
    }
    for (ty, number) in [(2, tuple.src_port), (3, tuple.dst_port), (4, tuple.icmp_id)] {
        if let Some(number) = number {
            prop::put_u16(w, ty, number);
        }
    }
    for (ty, number) in [(5, tuple.icmp_type), (6, tuple.icmp_code)] {
        if let Some(number) = number {
            prop::put(w, ty, |w| w.u8(number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ofp_wire::Version;

    /// Bodies of the messages of `ovs-ofctl ct-flush` 3.1.
    #[test]
    fn requests_are_those_of_ovs_ofctl() {
        let v4 = |text: &str| Some(text.parse::<std::net::Ipv4Addr>().expect(text).to_ipv6_mapped());
        let rows = [
            ("0000000000000000", CtFlush::default()),
            ("00000000000000000002000800070000", CtFlush { zone: Some(7), ..CtFlush::default() }),
            (
                "060000000000000000000028000000000000001400000000000000000000ffff0a000001000000000003000800500000",
                CtFlush {
                    proto: 6,
                    orig: CtFlushTuple { src: v4("10.0.0.1"), dst_port: Some(80), ..CtFlushTuple::default() },
                    ..CtFlush::default()
                },
            ),
            (
                "3a0000000000000000000038000000000000001420010db80000000000000000000000010000000000040008000500000005000580000000000600050000000000010020000000000004000800000000000500050000000000060005000000 00",
                CtFlush {
                    proto: 58,
                    orig: CtFlushTuple {
                        src: Some("2001:db8::1".parse().expect("an address")),
                        icmp_id: Some(5),
                        icmp_type: Some(128),
                        icmp_code: Some(0),
                        ..CtFlushTuple::default()
                    },
                    reply: CtFlushTuple {
                        icmp_id: Some(0),
                        icmp_type: Some(0),
                        icmp_code: Some(0),
                        ..CtFlushTuple::default()
                    },
                    ..CtFlush::default()
                },
            ),
            (
                // Mark and labels as Open vSwitch 3.5 encodes properties of these types.
                "00000000000000000003000800000005000400080000000f000500140000000000000000000000000000000700000000000600140000000000000000000000000000000f00000000",
                CtFlush { mark: Some((5, 15)), labels: Some((7, 15)), ..CtFlush::default() },
            ),
        ];
        for (hex, flush) in rows {
            let hex = hex.replace(' ', "");
            let mut w = Writer::new(Version::V13);
            encode_ct_flush(&flush, &mut w);
            assert_eq!(w.buf.iter().map(|b| format!("{b:02x}")).collect::<String>(), hex);
            assert_eq!(decode_ct_flush(&mut Reader::new(&w.buf, Version::V13)), Ok(flush));
        }
        for (hex, flush) in [
            (
                "0000000000000000 0003000800000005",
                CtFlush { mark: Some((5, u32::MAX)), ..CtFlush::default() },
            ),
            ("0000000000000000 0004000800000005", CtFlush { mark: Some((0, 5)), ..CtFlush::default() }),
            (
                "0000000000000000 000500140000000000000000000000000000000700000000",
                CtFlush { labels: Some((7, u128::MAX)), ..CtFlush::default() },
            ),
        ] {
            let hex = hex.replace(' ', "");
            let bytes: Vec<u8> = (0..hex.len() / 2)
                .map(|n| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).expect("hex"))
                .collect();
            assert_eq!(decode_ct_flush(&mut Reader::new(&bytes, Version::V13)), Ok(flush), "{hex}");
        }
        let long = [0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 12, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(decode_ct_flush(&mut Reader::new(&long, Version::V13)), Err(ErrorKind::BpcBadLen));
        let unknown = [0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 8, 0, 0, 0, 0];
        assert_eq!(decode_ct_flush(&mut Reader::new(&unknown, Version::V13)), Err(ErrorKind::BpcBadType));
    }
}
