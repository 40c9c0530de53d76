//! Translated tuples of new connections: candidates in the order of Open vSwitch, and their bound.
//!
//! A connection's packets have the original tuple before translation and the reverse of the reply tuple after it. So a
//! candidate is a reply tuple that no other connection has. The address follows from a hash of the original tuple, so that
//! the connections of one source spread over all addresses. Ports:
//!
//! - Source translation with a range of ports: from a port by hash on, within the range.
//! - Source translation without: the packet's own port, then others of its class (1 to 511, 600 to 1023, 1024 to 65535).
//! - Destination translation: the ports of its range, if given, then source ports as above.
//!
//! A search takes [`TRIES`] consecutive ports, then half as many from a random port on, and so on down to [`LEAST_TRIES`]:
//! at most [`CANDIDATES_MAX`] candidates, however full the range is.

use crate::key::{Rest, Words, is_icmp};
use dpif::{NatAddresses, NatRange};
use packet::headers as h;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const TRIES: u32 = 128;
const LEAST_TRIES: u32 = 16;
/// Maximum candidates of a search: two rounds of 128, 64, 32, 16 and 8 ports, and the first.
pub const CANDIDATES_MAX: usize = 1 + 2 * 248;

/// The port ranges of one search.
#[derive(Clone, Copy)]
struct Ports {
    first: u16,
    min: u16,
    max: u16,
}

impl Ports {
    fn size(&self) -> u32 {
        u32::from(self.max - self.min) + 1
    }

    fn within(min: u16, max: u16, hash: u64) -> Ports {
        let (min, max) = (min.min(max), min.max(max));
        let size = u64::from(max - min) + 1;
        Ports { first: min + (hash % size) as u16, min, max }
    }

    /// The packet's own port, then the others of its class.
    fn like(port: u16) -> Ports {
        let (min, max) = match port {
            0..512 => (1, 511),
            512..1024 => (600, 1023),
            1024.. => (1024, 65535),
        };
        Ports { first: port, min, max }
    }

    fn after(&self, port: u16) -> u16 {
        if (self.min..self.max).contains(&port) { port + 1 } else { self.min }
    }
}

/// Ports in the order of the search.
struct Walk {
    ports: Ports,
    at: u16,
    /// Ports left in this round.
    left: u32,
    round: u32,
}

impl Walk {
    fn new(ports: Ports) -> Walk {
        let in_range = (ports.min..=ports.max).contains(&ports.first);
        let round = (ports.size() + u32::from(!in_range)).min(TRIES);
        Walk { ports, at: ports.first, left: round, round }
    }

    fn next(&mut self, random: impl Fn() -> u64) -> Option<u16> {
        if self.left == 0 {
            if self.round >= self.ports.size() || self.round < LEAST_TRIES {
                return None;
            }
            self.round /= 2;
            self.left = self.round;
            self.at = self.ports.min + (random() % u64::from(self.ports.size())) as u16;
        }
        self.left -= 1;
        let port = self.at;
        self.at = self.ports.after(port);
        Some(port)
    }
}

/// Candidates for the reply tuple of a new connection.
pub(crate) struct Candidates<W> {
    reply: W,
    started: bool,
    dst_ports: Option<Walk>,
    src_ports: Option<Walk>,
    first_dst: u16,
}

impl<W: Words> Candidates<W> {
    /// For a connection of that original tuple; `hash` covers tuple and range. `None`: the range has no address of the
    /// tuple's family.
    pub(crate) fn new(orig: &W, range: &NatRange, hash: u64, random: u64) -> Option<Candidates<W>> {
        let mut reply = orig.reversed();
        if let Some(addr) = address(orig, range, hash)? {
            if range.is_dst { reply.set_src(addr) } else { reply.set_dst(addr) }
        }
        let rest = orig.rest();
        if is_icmp(rest.proto, W::IS_V6)
            || !matches!(rest.proto, h::IPPROTO_TCP | h::IPPROTO_UDP | h::IPPROTO_SCTP)
        {
            return Some(Candidates {
                reply,
                started: false,
                dst_ports: None,
                src_ports: None,
                first_dst: 0,
            });
        }
        let offset = if range.random { random } else { hash };
        let given = range.ports.map(|(min, max)| Ports::within(min, max, offset));
        let dst = given.filter(|_| range.is_dst);
        let src = given.filter(|_| !range.is_dst).unwrap_or(Ports::like(rest.src));
        let first_dst = dst.map_or(rest.dst, |ports| ports.first);
        reply.set_rest(Rest { src: first_dst, dst: src.first, ..reply.rest() });
        Some(Candidates {
            reply,
            started: false,
            dst_ports: dst.map(Walk::new),
            src_ports: Some(Walk::new(src)),
            first_dst,
        })
    }

    /// The next candidate.
    pub(crate) fn next(&mut self, random: impl Fn() -> u64) -> Option<W> {
        if !self.started {
            self.started = true;
            return Some(self.reply);
        }
        let rest = self.reply.rest();
        if let Some(walk) = &mut self.dst_ports {
            if let Some(port) = walk.next(&random) {
                self.reply.set_rest(Rest { src: port, ..rest });
                return Some(self.reply);
            }
            self.dst_ports = None;
        }
        let port = self.src_ports.as_mut()?.next(&random)?;
        self.reply.set_rest(Rest { src: self.first_dst, dst: port, ..rest });
        Some(self.reply)
    }
}

/// The translated address; `Some(None)`: the packet's own.
#[allow(clippy::option_option, reason = "no address of the family; no change; an address")]
fn address<W: Words>(orig: &W, range: &NatRange, hash: u64) -> Option<Option<IpAddr>> {
    match range.addresses {
        None => Some(None),
        Some(NatAddresses::V4(first, last)) => {
            let (first, last) = (u32::from(first), u32::from(last));
            if first == 0 {
                return Some(None);
            }
            let size = u64::from(last.saturating_sub(first)) + 1;
            let chosen = IpAddr::from(Ipv4Addr::from(first + (hash % size) as u32));
            (orig.addresses()[0].is_ipv4()).then_some(Some(chosen))
        }
        Some(NatAddresses::V6(first, last)) => {
            let (first, last) = (u128::from(first), u128::from(last));
            if first == 0 {
                return Some(None);
            }
            let size = last.saturating_sub(first).min(u128::from(u32::MAX - 1)) as u64 + 1;
            let chosen = IpAddr::from(Ipv6Addr::from(first + u128::from(hash % size)));
            (orig.addresses()[0].is_ipv6()).then_some(Some(chosen))
        }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::legal_replies;
