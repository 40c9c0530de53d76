//! Captures (`pcap` files, in either byte order) and the TCP streams in them, for `ofp-parse-pcap`.
//!
//! At most [`STREAMS_MAX`] streams are followed; their bytes are those of the capture that no message has taken. Segments
//! that come late, behind a gap, are lost.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

/// A fault of a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PcapError {
    /// The first bytes are not those of a capture.
    #[error("not a capture (pcap)")]
    NoCapture,
    /// The file ends within this packet, or the packet is longer than any.
    #[error("packet {0} is cut short")]
    CutShort(usize),
}

/// Maximum bytes of a packet in a capture.
const PACKET_MAX: usize = 256 << 10;
/// Maximum streams followed at a time.
pub const STREAMS_MAX: usize = 4096;

/// A capture of one Ethernet frame, captured at this time since 1970, as `ovs-ofctl compose-packet --pcap` writes it.
pub fn file_of(packet: &[u8], time: std::time::Duration) -> Vec<u8> {
    // Magic, version 2.4, zone, accuracy, longest packet, link type (pcap-savefile(5)).
    let head = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 1518, 1];
    let len = packet.len() as u32;
    let record = [time.as_secs() as u32, time.subsec_micros(), len, len];
    let words = head.into_iter().chain(record).flat_map(u32::to_le_bytes);
    words.chain(packet.iter().copied()).collect()
}

/// The packets of a capture of Ethernet.
///
/// # Errors
/// If the file is no capture or ends within a packet.
pub fn packets(bytes: &[u8]) -> Result<Vec<&[u8]>, PcapError> {
    let word = |at: usize, big: bool| -> Option<u32> {
        let b: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(if big { u32::from_be_bytes(b) } else { u32::from_le_bytes(b) })
    };
    let big = match word(0, false) {
        Some(0xa1b2_c3d4 | 0xa1b2_3c4d) => false,
        Some(0xd4c3_b2a1 | 0x4d3c_b2a1) => true,
        _ => return Err(PcapError::NoCapture),
    };
    let mut found = Vec::new();
    let mut at = 24;
    while let Some(len) = word(at + 8, big) {
        let len = len as usize;
        let Some(packet) = bytes.get(at + 16..at + 16 + len).filter(|_| len <= PACKET_MAX) else {
            return Err(PcapError::CutShort(found.len() + 1));
        };
        found.push(packet);
        at += 16 + len;
    }
    Ok(found)
}

/// One direction of a connection: addresses and ports.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Direction {
    source: (Vec<u8>, u16),
    destination: (Vec<u8>, u16),
}

impl std::fmt::Display for Direction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let end = |(address, port): &(Vec<u8>, u16)| {
            let text = match <[u8; 4]>::try_from(address.as_slice()) {
                Ok(v4) => Ipv4Addr::from(v4).to_string(),
                Err(_) => {
                    let v6 = <[u8; 16]>::try_from(address.as_slice()).unwrap_or_default();
                    Ipv6Addr::from(v6).to_string()
                }
            };
            format!("{text}.{port}")
        };
        write!(f, "{} > {}", end(&self.source), end(&self.destination))
    }
}

/// A segment of TCP: direction, sequence number, flags and payload.
fn segment(packet: &[u8]) -> Option<(Direction, u32, u8, &[u8])> {
    let be16 = |at: usize| Some(u16::from_be_bytes(packet.get(at..at + 2)?.try_into().ok()?));
    let mut at = 12;
    let mut ty = be16(at)?;
    while matches!(ty, 0x8100 | 0x88a8) {
        at += 4;
        ty = be16(at)?;
    }
    at += 2;
    let ip = packet.get(at..)?;
    let (source, destination, tcp) = match ty {
        0x0800 => {
            let header = usize::from(*ip.first()? & 0xf) * 4;
            let total = usize::from(u16::from_be_bytes(ip.get(2..4)?.try_into().ok()?));
            let tcp = ip.get(header..total.min(ip.len()))?;
            (ip.get(9) == Some(&6)).then_some((ip.get(12..16)?, ip.get(16..20)?, tcp))?
        }
        0x86dd => {
            let len = usize::from(u16::from_be_bytes(ip.get(4..6)?.try_into().ok()?));
            let tcp = ip.get(40..(40 + len).min(ip.len()))?;
            (ip.get(6) == Some(&6)).then_some((ip.get(8..24)?, ip.get(24..40)?, tcp))?
        }
        _ => return None,
    };
    let port = |at: usize| Some(u16::from_be_bytes(tcp.get(at..at + 2)?.try_into().ok()?));
    let direction =
        Direction { source: (source.to_vec(), port(0)?), destination: (destination.to_vec(), port(2)?) };
    let sequence = u32::from_be_bytes(tcp.get(4..8)?.try_into().ok()?);
    let payload = tcp.get(usize::from(*tcp.get(12)? >> 4) * 4..)?;
    Some((direction, sequence, *tcp.get(13)?, payload))
}

/// Payloads of TCP in order. Repeated segments are left out; behind a gap a stream begins anew.
#[derive(Debug, Default)]
pub struct Streams {
    /// The next sequence number and the unread bytes of each direction.
    streams: BTreeMap<Direction, (u32, Vec<u8>)>,
}

impl Streams {
    /// Takes a packet of these ports, or of any if there are none; returns the stream that it belongs to, with its unread
    /// bytes, whose reader removes them.
    pub fn take(&mut self, packet: &[u8], ports: &[u16]) -> Option<(Direction, &mut Vec<u8>)> {
        let (direction, sequence, flags, payload) = segment(packet)?;
        let wanted = ports.contains(&direction.source.1) || ports.contains(&direction.destination.1);
        if !ports.is_empty() && !wanted {
            return None;
        }
        if self.streams.len() >= STREAMS_MAX && !self.streams.contains_key(&direction) {
            self.streams.pop_first();
        }
        let begins = u32::from(flags & 2 != 0);
        let (next, bytes) = self.streams.entry(direction.clone()).or_insert((sequence, Vec::new()));
        let ahead = sequence.wrapping_sub(*next);
        if begins == 1 || ahead != 0 && ahead < 1 << 31 {
            bytes.clear();
            *next = sequence;
        }
        let known = next.wrapping_sub(sequence) as usize;
        if let Some(new) = payload.get(known..).filter(|_| begins == 0) {
            bytes.extend_from_slice(new);
        }
        let end = sequence.wrapping_add(begins).wrapping_add(payload.len() as u32);
        if end.wrapping_sub(*next) < 1 << 31 {
            *next = end;
        }
        Some((direction, bytes))
    }
}

#[cfg(test)]
mod tests;
