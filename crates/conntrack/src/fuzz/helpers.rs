//! Fragments and messages of FTP.

use crate::alg::ftp::{ControlPayload, DataPort, rewrite, scan};
use crate::alg::{Number, Segment, adjust};
use crate::ipf::{HeldFragment, Ipf, Taken};
use dpif::FragmentCounts;
use packet::Packet;
use packet::checksum::checksum;
use packet::headers::{array, be16};
use std::net::IpAddr;

/// Bytes of a record before its frame.
const RECORD_BYTES: usize = 10;
/// Maximum fragments held by the target.
const FRAGMENTS_MAX: u32 = 24;

/// A held packet of the target.
struct Fragment {
    packet: Packet,
    l3: usize,
    v6: bool,
    port: u32,
}

impl HeldFragment for Fragment {
    fn packet(&self) -> &Packet {
        &self.packet
    }

    fn packet_mut(&mut self) -> &mut Packet {
        &mut self.packet
    }

    fn l3(&self) -> usize {
        self.l3
    }

    fn is_v6(&self) -> bool {
        self.v6
    }

    fn port(&self) -> u32 {
        self.port
    }

    fn recirc_id(&self) -> u32 {
        0
    }
}

/// A header for a payload of `bytes` at `start`, so that fragments are often valid.
fn headers(v6: bool, id: u8, start: u16, more: bool, bytes: usize) -> Vec<u8> {
    let mut f = vec![0; 14];
    if v6 {
        f.extend([0x60, 0, 0, 0]);
        f.extend((bytes as u16).wrapping_add(8).to_be_bytes());
        f.extend([44, 64]);
        f.extend([id; 32]);
        f.extend([17, 0]);
        f.extend((start & !7 | u16::from(more)).to_be_bytes());
        f.extend([0; 4]);
    } else {
        f.extend([0x45, 0]);
        f.extend((bytes as u16).wrapping_add(20).to_be_bytes());
        f.extend([0, id]);
        f.extend((start >> 3 | u16::from(more) << 13).to_be_bytes());
        f.extend([64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        let sum = checksum(&f[14..34]);
        f[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    f
}

/// One record: whether the frame follows in the input or is built, the fragment's place, its length.
fn fragment(record: &[u8; RECORD_BYTES], rest: &mut &[u8]) -> Fragment {
    let [kind, port, id, ..] = *record;
    let word = |at: usize| be16(record, at).unwrap_or(0);
    let (v6, start, bytes) = (kind & 1 != 0, word(4), usize::from(word(6)));
    let frame = if kind & 2 != 0 {
        let (frame, after) = rest.split_at(bytes.min(rest.len()));
        *rest = after;
        frame.to_vec()
    } else {
        let mut frame = headers(v6, id, start, kind & 4 != 0, bytes);
        frame.extend((0..bytes).map(|i| (usize::from(start & !7) + i) as u8));
        frame
    };
    let mut packet = Packet::from_slice(&frame);
    if kind & 8 != 0 {
        packet.offload.needs_csum = true;
        packet.offload.csum_start = u16::from(record[8]);
        packet.offload.csum_offset = u16::from(record[9]);
    }
    let l3 = if kind & 16 != 0 { usize::from(record[8]) } else { 14 };
    Fragment { packet, l3, v6, port: port.into() }
}

/// Fragments, valid or not: the number of held ones stays within its limit, a whole datagram has the lengths of its
/// headers, and its addresses go back into all fragments with right header checksums.
pub fn fragments(bytes: &[u8]) {
    let ipf = Ipf::new(1);
    for v6 in [false, true] {
        assert_eq!(ipf.set_min_fragment_bytes(v6, 400), Ok(()));
    }
    assert_eq!(ipf.set_max_fragments(FRAGMENTS_MAX), Ok(()));
    let (mut rest, mut evicted, mut now_ms) = (bytes, Vec::new(), 0);
    while let Some((record, after)) = rest.split_first_chunk::<RECORD_BYTES>() {
        rest = after;
        now_ms += u64::from(record[3]) * 100;
        let zone = u16::from(record[1] >> 4);
        let taken = ipf.take(fragment(record, &mut rest), zone, now_ms, &mut evicted);
        if let Taken::Complete(mut whole) = taken {
            let (l3, v6) = (whole.fragments[0].l3, whole.fragments[0].v6);
            let frame = whole.whole.data_mut();
            let (at, base) = if v6 { (l3 + 4, l3 + 40) } else { (l3 + 2, l3) };
            assert_eq!(be16(frame, at).map(usize::from), Some(frame.len() - base));
            frame[l3 + if v6 { 8 } else { 12 }] ^= 1;
            whole.carry_back();
            for fragment in &whole.fragments {
                let header = &fragment.packet.data()[fragment.l3..];
                assert!(v6 || checksum(&header[..usize::from(header[0] & 0xf) * 4]) == 0);
            }
            let source = |frame: &[u8], l3| array::<4>(frame, l3 + if v6 { 8 } else { 12 });
            let expect = source(whole.fragments[0].packet.data(), l3);
            assert!(whole.fragments.iter().all(|f| source(f.packet.data(), f.l3) == expect));
        }
        if record[0] & 32 != 0 {
            ipf.expire(now_ms, 4);
        }
        let listed: u32 = ipf.lists().iter().map(|l| l.fragments).sum();
        assert!(ipf.len() == listed as usize && listed <= FRAGMENTS_MAX);
    }
    while !ipf.expire(u64::MAX, 4).is_empty() {}
    let status = ipf.status();
    let ended = |f: &FragmentCounts| f.completed + f.expired + f.purged + f.evicted;
    assert_eq!((status.held, status.v4.accepted), (0, ended(&status.v4)));
    assert_eq!(status.v6.accepted, ended(&status.v6));
    assert_eq!(evicted.len() as u64, status.v4.evicted + status.v6.evicted);
}

/// A frame of TCP, if it is one, and a translation of its FTP message: lengths fit, and the message reads as before but
/// for the address. The first 4 bytes: IPv6 or not, offset of the TCP header, two bytes of new addresses.
pub fn ftp(bytes: &[u8]) {
    let Some(([family, l4, a, b], frame)) = bytes.split_first_chunk::<4>().map(|(head, rest)| (*head, rest))
    else {
        return;
    };
    let (v6, l4) = (family & 1 != 0, usize::from(l4));
    scan(frame, v6);
    let mut packet = Packet::from_slice(frame);
    packet.offload.needs_csum = family & 2 != 0;
    (packet.offload.csum_start, packet.offload.csum_offset) = (l4 as u16, 16);
    adjust(&mut packet, l4, Number::Sequence, i32::from(a) - 128);
    let Some(segment) = Segment::new(&packet, 14, l4, v6) else { return };
    let ControlPayload::Data(data) = scan(&packet.data()[segment.payload()], v6) else { return };
    let Some(old) = &data.address else { return };
    let new: IpAddr = if v6 { [a.into(), 0, 0, 0, b.into(), 1, 2, 3].into() } else { [a, b, 9, 200].into() };
    let before = packet.len() as i32;
    let Some(growth) = rewrite(&mut packet, &segment, old, new) else { return };
    assert_eq!(packet.len() as i32, before + growth);
    let after = Segment::new(&packet, 14, l4, v6).expect("a rewritten segment");
    assert_eq!(after.payload().len() as i32, segment.payload().len() as i32 + growth);
    // The end of a long message may have moved out of the examined bytes.
    if let ControlPayload::Data(DataPort { mode, address: Some(address), .. }) =
        scan(&packet.data()[after.payload()], v6)
    {
        assert_eq!((mode, address.ip, address.span.start), (data.mode, new, old.span.start));
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn corpus_of_ftp() {
        testkit::replay_corpus(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/ftp"), super::ftp);
    }

    #[test]
    fn corpus_of_fragments() {
        testkit::replay_corpus(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/fragments"), super::fragments);
    }
}
