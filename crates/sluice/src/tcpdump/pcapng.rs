//! Files of pcapng (draft-ietf-opsawg-pcapng) and pcap: what a capture of dropped packets writes.

use std::collections::BTreeMap;
use std::io::{Result, Write};

/// Blocks of pcapng.
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
/// Order of bytes.
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
/// Length of a section that is not known.
const UNKNOWN_LENGTH: u64 = u64::MAX;
/// `LINKTYPE_ETHERNET`.
const ETHERNET: u16 = 1;
/// Options.
const COMMENT: u16 = 1;
const INTERFACE_NAME: u16 = 2;
const RESOLUTION: u16 = 9;
/// Nanoseconds.
const NANO: u8 = 9;
/// Magic of pcap with microseconds.
const PCAP: u32 = 0xa1b2_c3d4;

/// A packet for a file.
pub(crate) struct Captured<'a> {
    pub(crate) wall_ns: u64,
    pub(crate) interface: &'a str,
    pub(crate) comment: &'a str,
    /// Length on the wire.
    pub(crate) bytes: u32,
    pub(crate) packet: &'a [u8],
}

/// A file of pcapng; packets have comments, and interfaces names.
pub(crate) struct Pcapng<W: Write> {
    out: W,
    interfaces: BTreeMap<String, u32>,
    snaplen: u32,
}

fn options(list: &[(u16, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (code, value) in list {
        let value = &value[..value.len().min(usize::from(u16::MAX))];
        out.extend(code.to_ne_bytes());
        out.extend((value.len() as u16).to_ne_bytes());
        out.extend(value);
        pad(&mut out);
    }
    out.extend([0; 4]);
    out
}

fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(4), 0);
}

impl<W: Write> Pcapng<W> {
    /// Begins a file.
    pub(crate) fn new(out: W, snaplen: u32) -> Result<Pcapng<W>> {
        let mut file = Pcapng { out, interfaces: BTreeMap::new(), snaplen };
        let mut body = BYTE_ORDER.to_ne_bytes().to_vec();
        body.extend(1_u16.to_ne_bytes());
        body.extend(0_u16.to_ne_bytes());
        body.extend(UNKNOWN_LENGTH.to_ne_bytes());
        file.block(SECTION, &body)?;
        file.out.flush()?;
        Ok(file)
    }

    fn block(&mut self, kind: u32, body: &[u8]) -> Result<()> {
        let length = (body.len() as u32 + 12).to_ne_bytes();
        self.out.write_all(&[&kind.to_ne_bytes()[..], &length, body, &length].concat())
    }

    fn interface(&mut self, name: &str) -> Result<u32> {
        if let Some(number) = self.interfaces.get(name) {
            return Ok(*number);
        }
        let mut body = ETHERNET.to_ne_bytes().to_vec();
        body.extend(0_u16.to_ne_bytes());
        body.extend(self.snaplen.to_ne_bytes());
        body.extend(options(&[(INTERFACE_NAME, name.as_bytes()), (RESOLUTION, &[NANO])]));
        self.block(INTERFACE, &body)?;
        let number = self.interfaces.len() as u32;
        self.interfaces.insert(name.to_string(), number);
        Ok(number)
    }

    /// Appends a packet.
    pub(crate) fn write(&mut self, p: &Captured<'_>) -> Result<()> {
        let interface = self.interface(p.interface)?;
        let mut body = interface.to_ne_bytes().to_vec();
        body.extend(((p.wall_ns >> 32) as u32).to_ne_bytes());
        body.extend((p.wall_ns as u32).to_ne_bytes());
        body.extend((p.packet.len() as u32).to_ne_bytes());
        body.extend(p.bytes.to_ne_bytes());
        body.extend(p.packet);
        pad(&mut body);
        body.extend(options(&[(COMMENT, p.comment.as_bytes())]));
        self.block(ENHANCED_PACKET, &body)?;
        self.out.flush()
    }
}

/// The header of a pcap stream.
pub(crate) fn pcap_header(snaplen: u32) -> Vec<u8> {
    let mut out = PCAP.to_ne_bytes().to_vec();
    out.extend(2_u16.to_ne_bytes());
    out.extend(4_u16.to_ne_bytes());
    out.extend([0; 8]);
    out.extend(snaplen.to_ne_bytes());
    out.extend(u32::from(ETHERNET).to_ne_bytes());
    out
}

/// A packet of a pcap stream.
pub(crate) fn pcap_packet(p: &Captured<'_>) -> Vec<u8> {
    let (seconds, micros) = (p.wall_ns / 1_000_000_000, p.wall_ns % 1_000_000_000 / 1000);
    let numbers = [seconds as u32, micros as u32, p.packet.len() as u32, p.bytes];
    numbers.iter().flat_map(|n| n.to_ne_bytes()).chain(p.packet.iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: Captured<'_> =
        Captured { wall_ns: 0x1_2000_0000, interface: "p1", comment: "meter", bytes: 60, packet: &[7; 21] };

    #[test]
    fn blocks_have_their_length_at_both_ends() {
        let mut bytes = Vec::new();
        let mut file = Pcapng::new(&mut bytes, 128).unwrap();
        file.write(&PACKET).unwrap();
        file.write(&Captured { interface: "p2", ..PACKET }).unwrap();
        file.write(&PACKET).unwrap();
        let (mut at, mut kinds) = (0, Vec::new());
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        while at < bytes.len() {
            let length = word(at + 4) as usize;
            assert_eq!((length % 4, word(at + length - 4) as usize), (0, length));
            kinds.push((word(at), word(at + 8)));
            at += length;
        }
        let numbers: Vec<u32> = kinds.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(
            numbers,
            [SECTION, INTERFACE, ENHANCED_PACKET, INTERFACE, ENHANCED_PACKET, ENHANCED_PACKET]
        );
        assert_eq!([kinds[2].1, kinds[4].1, kinds[5].1], [0, 1, 0]);
        assert!(bytes.windows(5).any(|w| w == b"meter"));
    }

    #[test]
    fn a_pcap_packet_has_its_lengths() {
        assert_eq!(pcap_header(128).len(), 24);
        let bytes = pcap_packet(&PACKET);
        assert_eq!((bytes.len(), bytes[8], bytes[12]), (16 + 21, 21, 60));
    }
}
