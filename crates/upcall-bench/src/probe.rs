//! Injected packets: Ethernet, IPv4, UDP and an identifying mark, each with its own IPv4 source, so that a
//! rule that looks at the source makes each a flow.
//!
//! All numbers are in network byte order. After the UDP header (RFC 768; its checksum is 0: none):
//!
//! | offset | bytes | contents |
//! | --- | --- | --- |
//! | 0 | 4 | [`MAGIC`] |
//! | 4 | 4 | number of the measurement |
//! | 8 | 2 | ingress port, from 0 |
//! | 10 | 1 | 1: probe, 2: load |
//! | 11 | 1 | 0 |
//! | 12 | 4 | sequence number within its kind and port |
//! | 16 | 8 | transmit time: ns since 1970 (CLOCK_REALTIME); 0 in load |

use sys::frames::FilterOp;

/// First bytes of the payload of our packets.
pub const MAGIC: u32 = 0x5bca_11ed;
/// Length of a frame, in bytes.
pub const FRAME_BYTES: usize = PAYLOAD + 24;
/// Destination address of all frames (locally administered).
pub const SINK_MAC: [u8; 6] = [0x02, 0x5b, 0, 0xff, 0xff, 0xfe];

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const PAYLOAD: usize = ETHERNET + IPV4 + 8;
/// First source address, and their number: unicast ones.
const FIRST_SOURCE: u32 = 0x0100_0000;
const SOURCES: u32 = 0xdf00_0000;

/// A frame in its wire form.
pub type Frame = [u8; FRAME_BYTES];

/// Whether a packet's delay is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Its delay is measured.
    Probe,
    /// It only keeps the switch busy.
    Load,
}

/// Contents of the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Number of the measurement.
    pub run: u32,
    /// Ingress port.
    pub port: u16,
    /// Its purpose.
    pub kind: Kind,
    /// Its place within its kind and port.
    pub seq: u32,
    /// Transmit time: ns since 1970.
    pub stamp_ns: u64,
}

/// A frame of flow number `flow`: flows within 3.7 billion numbers have different source addresses.
pub fn encode(probe: &Probe, flow: u64) -> Frame {
    let mut frame = [0; FRAME_BYTES];
    let mut put = |at: usize, bytes: &[u8]| frame[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &SINK_MAC);
    put(6, &source_mac(probe.port));
    put(12, &[0x08, 0x00]);
    put(ETHERNET, &ipv4_header(flow));
    let spread = (flow as u32).wrapping_mul(0x9e37_79b1);
    put(ETHERNET + IPV4, &(1024 + (spread >> 17) as u16).to_be_bytes());
    put(ETHERNET + IPV4 + 2, &(1024 + (spread & 0x7fff) as u16).to_be_bytes());
    put(ETHERNET + IPV4 + 4, &((FRAME_BYTES - ETHERNET - IPV4) as u16).to_be_bytes());
    put(PAYLOAD, &MAGIC.to_be_bytes());
    put(PAYLOAD + 4, &probe.run.to_be_bytes());
    put(PAYLOAD + 8, &probe.port.to_be_bytes());
    put(PAYLOAD + 10, &[kind_number(probe.kind), 0]);
    put(PAYLOAD + 12, &probe.seq.to_be_bytes());
    put(PAYLOAD + 16, &probe.stamp_ns.to_be_bytes());
    frame
}

/// Source address of a port's frames (locally administered).
pub fn source_mac(port: u16) -> [u8; 6] {
    let [high, low] = port.to_be_bytes();
    [0x02, 0x5b, 0, 0, high, low]
}

fn kind_number(kind: Kind) -> u8 {
    match kind {
        Kind::Probe => 1,
        Kind::Load => 2,
    }
}

fn ipv4_header(flow: u64) -> [u8; IPV4] {
    let source = FIRST_SOURCE + (flow % u64::from(SOURCES)) as u32;
    let target = 0x0a00_0000 | (source.wrapping_mul(0x9e37_79b1) >> 8);
    let mut header = [0_u8; IPV4];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&((FRAME_BYTES - ETHERNET) as u16).to_be_bytes());
    header[8] = 64;
    header[9] = 17;
    header[12..16].copy_from_slice(&source.to_be_bytes());
    header[16..20].copy_from_slice(&target.to_be_bytes());
    let words = header.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !((folded & 0xffff) + (folded >> 16)) as u16;
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    header
}

/// Reads a frame; `None` if it is none of ours.
pub fn parse(frame: &[u8]) -> Option<Probe> {
    if frame.get(12..15)? != [0x08, 0x00, 0x45] || *frame.get(ETHERNET + 9)? != 17 {
        return None;
    }
    let payload = frame.get(PAYLOAD..FRAME_BYTES)?;
    let word = |at: usize| Some(u32::from_be_bytes(payload.get(at..at + 4)?.try_into().ok()?));
    if word(0)? != MAGIC {
        return None;
    }
    let kind = match payload[10..12] {
        [1, 0] => Kind::Probe,
        [2, 0] => Kind::Load,
        _ => return None,
    };
    Some(Probe {
        run: word(4)?,
        port: u16::from_be_bytes([payload[8], payload[9]]),
        kind,
        seq: word(12)?,
        stamp_ns: u64::from_be_bytes(payload.get(16..24)?.try_into().ok()?),
    })
}

/// Accepts all frames but the load of ports other than `port`, which would cost the receiver more than the
/// sender.
pub fn filter(port: u16) -> Vec<FilterOp> {
    const LOAD_WORD: u16 = 0x20;
    const LOAD_HALF: u16 = 0x28;
    const LOAD_BYTE: u16 = 0x30;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let op = |code, jump_true, jump_false, operand| FilterOp { code, jump_true, jump_false, operand };
    // A load instruction beyond the end of a frame drops it: it is too short to be ours.
    vec![
        op(LOAD_WORD, 0, 0, PAYLOAD as u32),
        op(JUMP_IF_EQUAL, 0, 4, MAGIC),
        op(LOAD_BYTE, 0, 0, PAYLOAD as u32 + 10),
        op(JUMP_IF_EQUAL, 0, 2, kind_number(Kind::Load).into()),
        op(LOAD_HALF, 0, 0, PAYLOAD as u32 + 8),
        op(JUMP_IF_EQUAL, 0, 1, port.into()),
        op(RETURN, 0, 0, u32::MAX),
        op(RETURN, 0, 0, 0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn written_records_are_read_back(run: u32, port: u16, seq: u32, stamp_ns: u64, load: bool, flow: u64) {
            let kind = if load { Kind::Load } else { Kind::Probe };
            let probe = Probe { run, port, kind, seq, stamp_ns };
            let frame = encode(&probe, flow);
            prop_assert_eq!(parse(&frame), Some(probe));
            let header = frame[14..34].chunks_exact(2).map(|p| u32::from(u16::from_be_bytes([p[0], p[1]])));
            let sum: u32 = header.sum();
            prop_assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
            prop_assert!(parse(&frame[..FRAME_BYTES - 1]).is_none());
        }
    }

    #[test]
    fn each_flow_has_a_source_of_its_own() {
        let probe = Probe { run: 1, port: 0, kind: Kind::Probe, seq: 0, stamp_ns: 0 };
        let sources: std::collections::HashSet<Vec<u8>> =
            (0..100_000).map(|flow| encode(&probe, flow)[26..30].to_vec()).collect();
        assert_eq!(sources.len(), 100_000);
    }

    #[test]
    fn other_frames_are_not_ours() {
        let probe = Probe { run: 1, port: 0, kind: Kind::Probe, seq: 0, stamp_ns: 0 };
        let good = encode(&probe, 0);
        for (at, value) in [(12, 0x86), (14, 0x46), (23, 6), (42, 0), (52, 3), (53, 1)] {
            let mut bad = good;
            bad[at] = value;
            assert_eq!(parse(&bad), None, "byte {at}");
        }
        assert_eq!(parse(&[]), None);
    }

    #[test]
    fn corpus_of_probe() {
        testkit::replay_corpus(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/probe"), crate::fuzz::probe);
    }
}
