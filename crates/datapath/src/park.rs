//! Packets parked behind an upcall: the first packet of an exact key that misses goes to the slow path with a
//! ticket. Packets of the same key wait here for the reply with that ticket, to keep the order within a flow.
//!
//! Bounds: packets per ticket, packets in total, tickets; unanswered tickets expire. A port may park at most as many
//! packets as there is free space (the dynamic threshold of Choudhury and Hahne, 1998), so that a flood on one port
//! never takes all of it. While a ticket is open, every packet of its key waits, even if another put makes it hit
//! meanwhile.

use crate::hash::KeyHasher;
use dpif::Ticket;
use flow::{DpPort, FlowKey};
use hashbrown::HashTable;
use packet::Packet;

/// Maximum open tickets.
pub(crate) const TICKETS_MAX: usize = 8192;
const INDEX_BITS: u32 = 16;

/// Origin and recirculation depth of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// Physical port that received it.
    pub(crate) rx_port: DpPort,
    /// Recirculations so far.
    pub(crate) depth: u8,
    /// Seed of its samples: unique for each received packet, and after each recirculation.
    pub(crate) number: u64,
}

impl Origin {
    /// The place of a newly received packet.
    #[inline]
    pub(crate) fn fresh(rx_port: DpPort, number: u64) -> Origin {
        Origin { rx_port, depth: 0, number }
    }

    /// After recirculation by the action at that index.
    #[inline]
    pub(crate) fn recirculated(self, place: u64) -> Origin {
        let number = self.number.wrapping_mul(0xf135_7aea_2e62_a9c5).wrapping_add(place);
        Origin { depth: self.depth + 1, number, ..self }
    }
}

/// A parked packet.
pub(crate) struct Parked {
    pub(crate) packet: Packet,
    pub(crate) origin: Origin,
}

struct Entry {
    ticket: Ticket,
    key: FlowKey,
    hash: u64,
    rx_port: DpPort,
    deadline_us: u64,
    packets: Vec<Parked>,
}

/// Limits of the parking lot.
#[derive(Clone, Copy)]
pub(crate) struct ParkLimits {
    pub(crate) per_ticket: usize,
    pub(crate) total: usize,
    pub(crate) ttl_us: u64,
}

/// See the module documentation.
pub(crate) struct ParkingLot {
    limits: ParkLimits,
    by_key: HashTable<u16>,
    entries: Vec<Option<Box<Entry>>>,
    free: Vec<u16>,
    next: u64,
    parked: usize,
    /// Parked packets by receiving port.
    by_port: Vec<u32>,
}

impl ParkingLot {
    /// An empty lot.
    pub(crate) fn new(limits: ParkLimits) -> ParkingLot {
        ParkingLot {
            limits,
            by_key: HashTable::new(),
            entries: Vec::new(),
            free: Vec::new(),
            next: 1,
            parked: 0,
            by_port: Vec::new(),
        }
    }

    /// Whether no ticket is open.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Number of open tickets.
    pub(crate) fn tickets(&self) -> usize {
        self.by_key.len()
    }

    /// Number of parked packets.
    pub(crate) fn parked(&self) -> usize {
        self.parked
    }

    /// Whether a packet received on `port`, or one of a flow from it, waits for its translation.
    pub(crate) fn waits(&self, port: DpPort) -> bool {
        let of_port = |e: &Entry| {
            e.rx_port == port || e.key.in_port() == port || e.packets.iter().any(|p| p.origin.rx_port == port)
        };
        !self.is_empty() && self.entries.iter().flatten().any(|e| of_port(e))
    }

    /// Number of open tickets for packets received on `port`, and of packets from it that are parked.
    pub(crate) fn waiting(&self, port: DpPort) -> usize {
        let parked = self.by_port.get(port_index(port)).map_or(0, |n| *n as usize);
        parked + self.entries.iter().flatten().filter(|e| e.rx_port == port).count()
    }

    /// Closes all tickets; returns the parked packets.
    pub(crate) fn purge(&mut self) -> Vec<Parked> {
        self.take_where(|_| true)
    }

    /// The index of the open ticket of this exact key.
    #[inline]
    pub(crate) fn find(&self, hash: u64, key: &FlowKey) -> Option<u16> {
        let same = |n: &u16| {
            let entry = self.entries[usize::from(*n)].as_deref();
            entry.is_some_and(|e| e.hash == hash && same_key(&e.key, key))
        };
        self.by_key.find(hash, same).copied()
    }

    /// Opens a ticket for a key without one; `None` if too many are open.
    pub(crate) fn open(&mut self, hash: u64, key: &FlowKey, rx_port: DpPort, now_us: u64) -> Option<Ticket> {
        let index = match self.free.pop() {
            Some(n) => n,
            None if self.entries.len() < TICKETS_MAX => {
                self.entries.push(None);
                self.entries.len() as u16 - 1
            }
            None => return None,
        };
        let ticket = Ticket(self.next << INDEX_BITS | u64::from(index));
        self.next += 1;
        let deadline_us = now_us.saturating_add(self.limits.ttl_us);
        let entry = Entry { ticket, key: *key, hash, rx_port, deadline_us, packets: Vec::new() };
        self.entries[usize::from(index)] = Some(Box::new(entry));
        let entries = &self.entries;
        let hash_of = |n: &u16| entries[usize::from(*n)].as_deref().map_or(0, |e| e.hash);
        self.by_key.insert_unique(hash, index, hash_of);
        Some(ticket)
    }

    /// Opening time of an open ticket.
    pub(crate) fn opened_us(&self, ticket: Ticket) -> Option<u64> {
        Some(self.entry(ticket)?.deadline_us.saturating_sub(self.limits.ttl_us))
    }

    /// Parks a packet behind the ticket at that index, or returns it if a limit is reached.
    pub(crate) fn park(&mut self, place: u16, parked: Parked) -> Result<(), Packet> {
        let free = self.limits.total.saturating_sub(self.parked);
        let port = port_index(parked.origin.rx_port);
        let room = (self.by_port.get(port).copied().unwrap_or(0) as usize) < free;
        match self.entries[usize::from(place)].as_deref_mut() {
            Some(entry) if room && entry.packets.len() < self.limits.per_ticket => {
                entry.packets.push(parked);
                self.parked += 1;
                if self.by_port.len() <= port {
                    self.by_port.resize(port + 1, 0);
                }
                self.by_port[port] += 1;
                Ok(())
            }
            _ => Err(parked.packet),
        }
    }

    /// Closes a ticket; returns its key and parked packets; `None` if it is not open.
    pub(crate) fn close(&mut self, ticket: Ticket) -> Option<(Box<FlowKey>, Vec<Parked>)> {
        self.entry(ticket)?;
        self.take(place_of(ticket))
    }

    fn entry(&self, ticket: Ticket) -> Option<&Entry> {
        self.entries.get(usize::from(place_of(ticket)))?.as_deref().filter(|e| e.ticket == ticket)
    }

    fn take(&mut self, index: u16) -> Option<(Box<FlowKey>, Vec<Parked>)> {
        let entry = self.entries[usize::from(index)].take()?;
        if let Ok(known) = self.by_key.find_entry(entry.hash, |n| *n == index) {
            known.remove();
        }
        self.free.push(index);
        self.count_out(&entry.packets);
        Some((Box::new(entry.key), entry.packets))
    }

    /// Closes expired tickets; returns the parked packets.
    pub(crate) fn expire(&mut self, now_us: u64) -> Vec<Parked> {
        self.take_where(|e| e.deadline_us <= now_us)
    }

    /// Closes the tickets of flows from `port` and takes out every packet received on it.
    pub(crate) fn purge_port(&mut self, port: DpPort) -> Vec<Parked> {
        let mut out = self.take_where(|e| e.rx_port == port || e.key.in_port() == port);
        let others = out.len();
        for entry in self.entries.iter_mut().flatten() {
            if entry.packets.iter().any(|p| p.origin.rx_port == port) {
                let (gone, kept): (Vec<Parked>, Vec<Parked>) =
                    entry.packets.drain(..).partition(|p| p.origin.rx_port == port);
                entry.packets = kept;
                out.extend(gone);
            }
        }
        self.count_out(&out[others..]);
        out
    }

    fn count_out(&mut self, packets: &[Parked]) {
        self.parked -= packets.len();
        for parked in packets {
            self.by_port[port_index(parked.origin.rx_port)] -= 1;
        }
    }

    fn take_where(&mut self, over: impl Fn(&Entry) -> bool) -> Vec<Parked> {
        let mut out = Vec::new();
        for index in 0..self.entries.len() {
            if self.entries[index].as_deref().is_some_and(&over)
                && let Some((_, packets)) = self.take(index as u16)
            {
                out.extend(packets);
            }
        }
        out
    }
}

/// Index of a ticket's entry.
fn place_of(ticket: Ticket) -> u16 {
    (ticket.0 & ((1 << INDEX_BITS) - 1)) as u16
}

/// Index of a port's count; invalid port numbers share one.
fn port_index(port: DpPort) -> usize {
    port.0.min(crate::ports::PORT_NUMBERS) as usize
}

/// Whether two keys are equal, reading only the blocks that they have.
#[inline]
pub(crate) fn same_key(a: &FlowKey, b: &FlowKey) -> bool {
    a.block(0) == b.block(0) && a.extension_blocks().all(|i| a.block(i) == b.block(i))
}

/// The name of a megaflow to be made from a packet: its hash and a number never used by this core before.
pub(crate) fn new_ufid(hasher: &KeyHasher, hash: u64, count: &mut u64) -> flow::Ufid {
    *count += 1;
    let low = hasher.number(*count);
    flow::Ufid(u128::from(hash) << 64 | u128::from(low))
}
