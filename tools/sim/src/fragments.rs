//! Datagrams in fragments: [`Cut`] makes and delivers them, [`Arrived`] checks what leaves the switch.
//!
//! Each byte of a datagram follows from its identification and its place, so that any fragment can be checked alone; the
//! checksum of UDP, which translations change, is checked once all fragments of a datagram left.

use crate::frames::{HOSTS, ipv4, mac, valid_checksums};
use crate::rng::Rng;
use flow::DpPort;
use packet::checksum::{checksum, fold, pseudo, sum};
use packet::headers as h;
use std::collections::{BTreeMap, HashMap};

/// Smallest fragment that is reassembled, from the IP header on.
pub(crate) const MIN_BYTES: u32 = 400;
/// Identifications of these datagrams; all other frames have lower ones.
const FIRST_IDENT: u16 = 0xc000;
const L3: usize = h::ETH_HEADER_BYTES;
const L4: usize = L3 + h::IPV4_HEADER_BYTES;
const MORE: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;
/// Datagrams of which fragments are remembered.
const REMEMBERED: usize = 500;

/// The byte of a datagram at a place behind its UDP header.
fn byte_at(ident: u16, at: usize) -> u8 {
    (ident.wrapping_mul(31) as usize).wrapping_add(at * 7) as u8
}

/// A frame with a part of a datagram.
fn fragment(ends: (u64, u64), ident: u16, datagram: &[u8], from: usize, to: usize) -> Vec<u8> {
    let mut f = [mac(ends.1), mac(ends.0)].concat();
    f.extend(h::ETH_TYPE_IP.to_be_bytes());
    let mut ip = vec![0x45, 0];
    ip.extend(((h::IPV4_HEADER_BYTES + to - from) as u16).to_be_bytes());
    ip.extend(ident.to_be_bytes());
    let more = if to < datagram.len() { MORE } else { 0 };
    ip.extend(((from / 8) as u16 | more).to_be_bytes());
    ip.extend([64, h::IPPROTO_UDP, 0, 0]);
    ip.extend(ipv4(ends.0).to_be_bytes());
    ip.extend(ipv4(ends.1).to_be_bytes());
    let csum = checksum(&ip).to_be_bytes();
    ip[10..12].copy_from_slice(&csum);
    f.extend(ip);
    f.extend(&datagram[from..to]);
    f
}

/// Fragments that are still to be sent.
#[derive(Default)]
pub(crate) struct Cut {
    waiting: Vec<(DpPort, Vec<u8>)>,
    datagrams: u16,
}

impl Cut {
    /// Cuts a datagram. Some lack a fragment, or have one twice; the order is random.
    pub(crate) fn begin(&mut self, rng: &mut Rng, port: DpPort) {
        let ident = FIRST_IDENT | self.datagrams & !FIRST_IDENT;
        self.datagrams = self.datagrams.wrapping_add(1);
        let ends = (rng.below(HOSTS), rng.below(HOSTS));
        let bytes = rng.range(700, 3000) as usize;
        let mut datagram: Vec<u8> =
            [rng.range(1, 4) as u16, rng.range(1, 4) as u16, bytes as u16, 0].map(u16::to_be_bytes).concat();
        datagram.extend((datagram.len()..bytes).map(|at| byte_at(ident, at)));
        let (src, dst) = (ipv4(ends.0).to_be_bytes(), ipv4(ends.1).to_be_bytes());
        let csum = match !fold(sum(&datagram, pseudo(&src, &dst, h::IPPROTO_UDP, bytes))) {
            0 => 0xffff,
            n => n,
        };
        datagram[6..8].copy_from_slice(&csum.to_be_bytes());
        let mut all = Vec::new();
        let mut from = 0;
        while from < bytes {
            let to = bytes.min(from + rng.range(48, 100) as usize * 8);
            all.push((port, fragment(ends, ident, &datagram, from, to)));
            from = to;
        }
        if rng.one_in(5) {
            all.swap_remove(rng.below(all.len() as u64) as usize);
        } else if rng.one_in(5) {
            all.push(rng.pick(&all).clone());
        }
        self.waiting.extend(all);
    }

    /// Some of those that arrive on a port.
    pub(crate) fn take(&mut self, rng: &mut Rng, port: DpPort) -> Vec<Vec<u8>> {
        let mut taken = Vec::new();
        for _ in 0..rng.below(12).min(self.waiting.len() as u64) {
            let at = rng.below(self.waiting.len() as u64) as usize;
            if self.waiting[at].0 == port {
                taken.push(self.waiting.swap_remove(at).1);
            }
        }
        taken
    }
}

/// Output port, addresses and identification.
type Datagram = (DpPort, [u8; 8], u16);

/// Fragments that left the switch.
#[derive(Default)]
pub(crate) struct Arrived {
    datagrams: HashMap<Datagram, BTreeMap<usize, Vec<u8>>>,
    /// Datagrams all of whose fragments left one port.
    pub(crate) complete: u64,
}

impl Arrived {
    /// Takes a sent frame; returns its fault, if it is one of these fragments.
    pub(crate) fn take(&mut self, port: DpPort, frame: &[u8]) -> Option<String> {
        let is_ours = h::be16(frame, 12) == Some(h::ETH_TYPE_IP)
            && frame.get(L3) == Some(&0x45)
            && h::be16(frame, L3 + 4).is_some_and(|ident| ident >= FIRST_IDENT)
            && frame.get(L3 + 9) == Some(&h::IPPROTO_UDP);
        if !is_ours {
            return None;
        }
        let (ident, bits) = (h::be16(frame, L3 + 4)?, h::be16(frame, L3 + 6)?);
        let (from, bytes) = (usize::from(bits & OFFSET) * 8, usize::from(h::be16(frame, L3 + 2)?));
        let Some(body) = frame.get(L4..L3 + bytes) else { return Some("is cut".into()) };
        if !valid_checksums(frame)[0] {
            return Some("has a wrong checksum of IPv4".into());
        }
        for (n, byte) in body.iter().enumerate().filter(|(n, _)| from + n >= h::UDP_HEADER_BYTES) {
            if *byte != byte_at(ident, from + n) {
                return Some(format!("of datagram {ident} differs at byte {}", from + n));
            }
        }
        if self.datagrams.len() > REMEMBERED {
            self.datagrams.clear();
        }
        let addresses: [u8; 8] = h::array(frame, L3 + 12)?;
        let pieces = self.datagrams.entry((port, addresses, ident)).or_default();
        pieces.insert(from, body.to_vec());
        let joined: Vec<u8> = pieces.values().flatten().copied().collect();
        let is_whole = h::be16(&joined, 4).is_some_and(|bytes| usize::from(bytes) == joined.len())
            && pieces.contains_key(&0);
        if !is_whole {
            return None;
        }
        self.datagrams.remove(&(port, addresses, ident));
        self.complete += 1;
        let (src, dst) = addresses.split_at(4);
        let valid = fold(sum(&joined, pseudo(src, dst, h::IPPROTO_UDP, joined.len()))) == 0xffff;
        (!valid).then(|| format!("of datagram {ident} belongs to a wrong checksum of UDP"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent() -> Vec<Vec<u8>> {
        let (mut cut, mut rng) = (Cut::default(), Rng::new(7));
        while cut.waiting.len() < 2 {
            cut.waiting.clear();
            cut.begin(&mut rng, DpPort(1));
        }
        cut.waiting.into_iter().map(|(_, frame)| frame).collect()
    }

    #[test]
    fn fragments_as_cut_have_no_fault() {
        let mut arrived = Arrived::default();
        sent().iter().for_each(|frame| assert_eq!(arrived.take(DpPort(2), frame), None));
    }

    #[test]
    fn a_changed_byte_and_a_changed_checksum_are_found() {
        let mut frames = sent();
        let at = frames[0].len() - 1;
        frames[0][at] ^= 1;
        assert!(Arrived::default().take(DpPort(2), &frames[0]).is_some());
        frames[0][at] ^= 1;
        let mut arrived = Arrived::default();
        let first = frames.iter_mut().find(|f| f[L3 + 6..L3 + 8] == [0x20, 0]).expect("the first fragment");
        first[L4 + 7] ^= 1;
        let faults = frames.iter().filter_map(|frame| arrived.take(DpPort(2), frame)).count();
        assert_eq!(u64::from(faults > 0), arrived.complete.min(1));
    }
}
