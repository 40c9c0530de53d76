//! Reassembly of the plain cores: all fragments in one list, compared with each other.
//!
//! It decides alone what happens to each fragment. Only the choice of a datagram that loses its places to another port is
//! that of the real one, which may take any with a fragment of the port that holds most; it is read from the datagrams that
//! the real one holds after the call.

use crate::model::{Round, rewrite};
use conntrack::ipf::TIMEOUT_MS;
use dpif::{CtAddresses, FragmentList, Ipv4Set, Ipv6Set, Masked, SetAction};
use flow::DpPort;
use packet::checksum::checksum;
use packet::headers as h;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Datagrams that one fragment may displace.
const EVICTIONS_MAX: usize = 3;
/// Largest header of IPv4, and datagram.
const HEADER_MAX: usize = 60;
const DATAGRAM_MAX: usize = 65535;
/// Bytes of a fragment header of IPv6.
const FRAGMENT_HEADER: usize = 8;

/// Fields that all fragments of a datagram share: addresses, identification, protocol, recirculation id, zone.
type Id = (IpAddr, IpAddr, u32, u8, u32, u16);

/// The place of a fragment in its datagram.
#[derive(Clone, Copy)]
struct Place {
    start: usize,
    end: usize,
    last: bool,
    /// Frame offset of its IP header, and of its payload.
    l3: usize,
    payload: usize,
    /// IPv6: frame offset of the fragment header, and of the byte that names it.
    header: Option<(usize, usize)>,
}

struct Datagram {
    id: Id,
    parts: Vec<(Place, Round)>,
    deadline_ms: u64,
    /// It is too large.
    failed: bool,
}

/// Result for a fragment.
pub(crate) enum Taken {
    Held,
    /// It goes on alone; `true`: it is a datagram of its own.
    Alone(Box<Round>, bool),
    /// The datagram as one frame, and its fragments in order.
    Whole(Vec<u8>, Vec<Round>),
}

/// See the module.
#[derive(Default)]
pub(crate) struct Reassembly {
    /// Maximum number of fragments; `None`: none is held.
    pub(crate) max: Option<usize>,
    pub(crate) min_bytes: usize,
    datagrams: Vec<Datagram>,
    /// A choice of the real one is not known.
    pub(crate) is_ambiguous: bool,
}

/// Why a fragment is not held.
enum Refused {
    NotFragment,
    Other,
}

impl Reassembly {
    /// Takes a fragment. `real` returns the datagrams that the real one holds.
    pub(crate) fn take(
        &mut self,
        part: Round,
        l3: usize,
        zone: u16,
        now_ms: u64,
        real: &dyn Fn() -> Vec<FragmentList>,
    ) -> Taken {
        let read = match part.key.base.dl_type {
            h::ETH_TYPE_IPV6 => read_v6(&part.frame, l3),
            _ => read_v4(&part.frame, l3),
        };
        let (place, mut id) = match read {
            Ok(read) => read,
            Err(why) if self.max.is_some() => {
                return Taken::Alone(Box::new(part), matches!(why, Refused::NotFragment));
            }
            Err(_) => return Taken::Alone(Box::new(part), false),
        };
        (id.4, id.5) = (part.key.base.recirc_id, zone);
        let l3_bytes = place.payload - l3 + place.end - place.start;
        let Some(max) = self.max else { return Taken::Alone(Box::new(part), false) };
        if !place.last && l3_bytes < self.min_bytes || !self.has_room(part.rx_port, max, real) {
            return Taken::Alone(Box::new(part), false);
        }
        let at = match self.datagrams.iter().position(|d| d.id == id) {
            Some(at) => at,
            None => {
                let deadline_ms = now_ms + TIMEOUT_MS;
                self.datagrams.push(Datagram { id, parts: Vec::new(), deadline_ms, failed: false });
                self.datagrams.len() - 1
            }
        };
        let datagram = &mut self.datagrams[at];
        let most = match id.0 {
            IpAddr::V4(_) => (DATAGRAM_MAX - HEADER_MAX).div_ceil(self.min_bytes - HEADER_MAX),
            IpAddr::V6(_) => DATAGRAM_MAX,
        };
        if datagram.failed || datagram.parts.len() >= most || !datagram.admits(&place) {
            return Taken::Alone(Box::new(part), false);
        }
        datagram.parts.push((place, part));
        if !datagram.is_complete() {
            return Taken::Held;
        }
        match datagram.whole() {
            Some(whole) => {
                let parts = self.datagrams.swap_remove(at).parts;
                Taken::Whole(whole, parts.into_iter().map(|(_, part)| part).collect())
            }
            None => {
                datagram.failed = true;
                Taken::Held
            }
        }
    }

    /// Fragments by port.
    fn by_port(&self) -> BTreeMap<DpPort, usize> {
        let mut ports = BTreeMap::new();
        for (_, part) in self.datagrams.iter().flat_map(|d| &d.parts) {
            *ports.entry(part.rx_port).or_default() += 1;
        }
        ports
    }

    /// Whether a fragment of a port may be held; others lose their places to it, if it holds less than its share.
    fn has_room(&mut self, port: DpPort, max: usize, real: &dyn Fn() -> Vec<FragmentList>) -> bool {
        for _ in 0..EVICTIONS_MAX {
            let ports = self.by_port();
            if ports.values().sum::<usize>() < max {
                return true;
            }
            let held = ports.get(&port).copied().unwrap_or(0);
            let active = ports.len() + usize::from(held == 0);
            let most = ports.iter().map(|(port, held)| (*held, *port)).max();
            let Some((most, debtor)) = most.filter(|_| held < max / active) else { return false };
            if most <= held + 1 {
                return false;
            }
            let theirs = real().iter().map(id_of).collect::<BTreeSet<_>>();
            let of_debtor = |d: &Datagram| d.parts.iter().any(|(_, part)| part.rx_port == debtor);
            let gone: Vec<usize> = (0..self.datagrams.len())
                .filter(|at| of_debtor(&self.datagrams[*at]) && !theirs.contains(&self.datagrams[*at].id))
                .collect();
            self.is_ambiguous |= gone.len() != 1;
            let Some(at) = gone.first() else { return false };
            self.datagrams.swap_remove(*at);
        }
        self.by_port().values().sum::<usize>() < max
    }

    /// Removes datagrams whose time is over and that the real one no longer has.
    pub(crate) fn expire(&mut self, now_ms: u64, real: &[FragmentList]) {
        let theirs: BTreeSet<Id> = real.iter().map(id_of).collect();
        self.datagrams.retain(|d| d.deadline_ms >= now_ms || theirs.contains(&d.id));
    }

    /// The difference from the real one, if any.
    pub(crate) fn difference(&self, real: &[FragmentList]) -> Option<String> {
        let own: BTreeMap<Id, u32> = self.datagrams.iter().map(|d| (d.id, d.parts.len() as u32)).collect();
        let theirs: BTreeMap<Id, u32> = real.iter().map(|l| (id_of(l), l.fragments)).collect();
        (own != theirs).then(|| format!("expected fragments {own:?}, held {theirs:?}"))
    }
}

fn id_of(list: &FragmentList) -> Id {
    let (src, dst) = match list.addresses {
        CtAddresses::V4 { src, dst } => (src.into(), dst.into()),
        CtAddresses::V6 { src, dst } => (src.into(), dst.into()),
    };
    (src, dst, list.ip_id, list.proto, list.recirc_id, list.zone)
}

impl Datagram {
    /// Whether no byte of a fragment is there, and its end agrees with what is known.
    fn admits(&self, new: &Place) -> bool {
        let places = || self.parts.iter().map(|(place, _)| place);
        let meets = |old: &Place| {
            old.start == new.start
                || old.start < new.start && old.end > new.start
                || old.start > new.start && new.end > old.start
        };
        let end = places().find(|p| p.last).map(|p| p.end);
        let fits = match end {
            Some(end) => {
                if new.last {
                    new.end == end
                } else {
                    new.end <= end
                }
            }
            None => !new.last || places().all(|p| p.end <= new.end),
        };
        fits && !places().any(meets)
    }

    fn is_complete(&self) -> bool {
        let bytes: usize = self.parts.iter().map(|(p, _)| p.end - p.start).sum();
        self.parts.iter().any(|(p, _)| p.last && p.end == bytes)
    }

    /// The datagram in one frame, with the headers of its first fragment; `None`: it is too large. Puts the fragments in
    /// order.
    fn whole(&mut self) -> Option<Vec<u8>> {
        self.parts.sort_by_key(|(place, _)| place.start);
        let (place, first) = self.parts.first()?;
        let mut whole = first.frame[..place.payload].to_vec();
        if let Some((header, named_at)) = place.header {
            whole[named_at] = whole[header];
            whole.drain(header..header + FRAGMENT_HEADER);
        }
        for (place, part) in &self.parts {
            let bytes = place.end - place.start;
            whole.extend(&part.frame[place.payload..place.payload + bytes]);
        }
        let l3 = place.l3;
        let bytes = whole.len() - l3;
        if bytes > DATAGRAM_MAX {
            return None;
        }
        if place.header.is_some() {
            let payload = (bytes - h::IPV6_HEADER_BYTES) as u16;
            whole[l3 + 4..l3 + 6].copy_from_slice(&payload.to_be_bytes());
            return Some(whole);
        }
        whole[l3 + 2..l3 + 4].copy_from_slice(&(bytes as u16).to_be_bytes());
        whole[l3 + 6] &= 0xc0;
        whole[l3 + 7] = 0;
        whole[l3 + 10..l3 + 12].fill(0);
        let sum = checksum(&whole[l3..place.payload]);
        whole[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
        Some(whole)
    }
}

/// Gives the fragments of a datagram its addresses and the first one its transport header.
pub(crate) fn carry_back(whole: &[u8], l3: usize, parts: &mut [Round]) -> Option<()> {
    for part in parts.iter_mut() {
        let set = match part.key.base.dl_type {
            h::ETH_TYPE_IPV6 => {
                let mut set = Masked { value: Ipv6Set::default(), mask: Ipv6Set::default() };
                (set.value.src, set.value.dst) = (h::array(whole, l3 + 8)?, h::array(whole, l3 + 24)?);
                (set.mask.src, set.mask.dst) = ([0xff; 16], [0xff; 16]);
                SetAction::Ipv6(set)
            }
            _ => {
                let mut set = Masked { value: Ipv4Set::default(), mask: Ipv4Set::default() };
                (set.value.src, set.value.dst) = (h::be32(whole, l3 + 12)?, h::be32(whole, l3 + 16)?);
                (set.mask.src, set.mask.dst) = (u32::MAX, u32::MAX);
                SetAction::Ipv4(set)
            }
        };
        rewrite(&mut part.frame, &set)?;
    }
    let first = parts.first_mut()?;
    let (place, removed) = match first.key.base.dl_type {
        h::ETH_TYPE_IPV6 => (read_v6(&first.frame, l3).ok()?.0, FRAGMENT_HEADER),
        _ => (read_v4(&first.frame, l3).ok()?.0, 0),
    };
    let bytes = place.end - place.start;
    let from = whole.get(place.payload - removed..place.payload - removed + bytes)?;
    first.frame[place.payload..place.payload + bytes].copy_from_slice(from);
    Some(())
}

/// A fragment of IPv4 whose header is at `l3`.
fn read_v4(frame: &[u8], l3: usize) -> Result<(Place, Id), Refused> {
    let ip = frame.get(l3..).filter(|ip| ip.len() >= h::IPV4_HEADER_BYTES).ok_or(Refused::Other)?;
    let word = |at: usize| u16::from_be_bytes([ip[at], ip[at + 1]]);
    if word(6) & 0x3fff == 0 {
        return Err(Refused::NotFragment);
    }
    let (header, total) = (usize::from(ip[0] & 15) * 4, usize::from(word(2)));
    let is_valid = header >= h::IPV4_HEADER_BYTES && header <= total && total <= ip.len();
    if !is_valid || checksum(&ip[..header]) != 0 {
        return Err(Refused::Other);
    }
    let start = usize::from(word(6) & 0x1fff) * 8;
    let place = Place {
        start,
        end: start + total - header,
        last: word(6) & 0x2000 == 0,
        l3,
        payload: l3 + header,
        header: None,
    };
    let address = |at: usize| IpAddr::from([ip[at], ip[at + 1], ip[at + 2], ip[at + 3]]);
    Ok((place, (address(12), address(16), word(4).into(), ip[9], 0, 0)))
}

/// A fragment of IPv6 whose header is at `l3`.
fn read_v6(frame: &[u8], l3: usize) -> Result<(Place, Id), Refused> {
    let ip = frame.get(l3..).filter(|ip| ip.len() >= h::IPV6_HEADER_BYTES).ok_or(Refused::Other)?;
    let total = h::IPV6_HEADER_BYTES + usize::from(u16::from_be_bytes([ip[4], ip[5]]));
    let there = &ip[..ip.len().min(total)];
    let (mut at, mut named_at, mut next) = (h::IPV6_HEADER_BYTES, 6, ip[6]);
    loop {
        if !h::is_ipv6_extension(next) {
            return Err(Refused::NotFragment);
        }
        let (following, behind) = h::ipv6_next_header(there, at, next).ok_or(Refused::NotFragment)?;
        if next == h::IPPROTO_FRAGMENT {
            let bits = h::be16(there, at + 2).ok_or(Refused::NotFragment)?;
            let id = h::be32(there, at + 4).ok_or(Refused::NotFragment)?;
            if bits & 0xfff9 != 0 {
                if ip.len() < total {
                    return Err(Refused::Other);
                }
                let (start, payload) = (usize::from(bits & 0xfff8), at + FRAGMENT_HEADER);
                let place = Place {
                    start,
                    end: start + total - payload,
                    last: bits & 1 == 0,
                    l3,
                    payload: l3 + payload,
                    header: Some((l3 + at, l3 + named_at)),
                };
                let address =
                    |at: usize| h::array::<16>(ip, at).map(IpAddr::from).ok_or(Refused::NotFragment);
                return Ok((place, (address(8)?, address(24)?, id, 0, 0, 0)));
            }
        }
        named_at = at;
        (next, at) = (following, behind);
    }
}
