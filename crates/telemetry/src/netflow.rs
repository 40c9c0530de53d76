//! NetFlow 5: an exporter of a bridge, with a record for each flow of IPv4.
//!
//! Packets with one [`Key`] form a flow, also if several flows of the datapath count them. Its record is due when the active
//! timeout passes, when its output changes, and when the flow ends. Fields and times are those of stock switches; the
//! sequence number is that of the first record of a datagram, as collectors check it.
//!
//! Memory is bounded by [`FLOWS_MAX`] and [`WAITING_MAX`]. Packets of a flow without a place become a record at once.

use crate::bytes::Bytes;
use std::collections::{HashMap, VecDeque};

/// Version of the format.
const VERSION: u16 = 5;
/// Most records of a datagram.
pub const RECORDS_MAX: usize = 30;
/// Most flows.
pub const FLOWS_MAX: usize = 1 << 18;
/// Most records that wait for [`Exporter::run`]; further ones are lost.
pub const WAITING_MAX: usize = 1 << 18;
/// Time between two searches for flows that are due.
const SEARCH_EVERY_MS: u64 = 1000;
/// Most records into which the counters of a flow are split.
const PARTS_MAX: u64 = 4096;
/// Bits of the type of service in records.
const DSCP_MASK: u8 = 0xfc;
const PROTOCOL_ICMP: u8 = 1;
/// Bits of the engine id, and of the interface, in a number of an interface.
const ENGINE_BITS: u16 = 0x7f;
const INTERFACE_BITS: u16 = 0x1ff;

/// Output interfaces that are no port, as in stock switches.
pub mod output {
    /// The packet is not sent.
    pub const DROP: u16 = 0xfffd;
    /// Several ports get it.
    pub const SEVERAL: u16 = 0xfffe;
    /// It is flooded.
    pub const FLOOD: u16 = 0xffff;
}

/// Settings of an exporter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Engine type of the records.
    pub engine_type: u8,
    /// Engine id of the records.
    pub engine_id: u8,
    /// Whether numbers of interfaces have the engine id in their upper 7 bits.
    pub add_id_to_interface: bool,
    /// Time between two records of a flow that goes on; `None`: only its end makes one.
    pub active_timeout_ms: Option<u64>,
}

/// Identifies a flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Key {
    /// OpenFlow port that received it.
    pub in_port: u16,
    /// Source address.
    pub src: u32,
    /// Destination address.
    pub dst: u32,
    /// Type of service; records have the DSCP.
    pub tos: u8,
    /// IP protocol.
    pub protocol: u8,
    /// Source port, or type of ICMP.
    pub src_port: u16,
    /// Destination port, or code of ICMP.
    pub dst_port: u16,
}

/// Packets of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    /// Packets.
    pub packets: u64,
    /// Bytes from the Ethernet header on.
    pub bytes: u64,
    /// TCP flags of all of them.
    pub tcp_flags: u8,
    /// Time of the last one.
    pub used_ms: u64,
}

#[derive(Debug)]
struct Entry {
    output: u16,
    seen: Seen,
    created_ms: u64,
    /// The active timeout counts from here.
    since_ms: u64,
}

#[derive(Debug)]
struct Record {
    key: Key,
    output: u16,
    packets: u32,
    bytes: u32,
    tcp_flags: u8,
    created_ms: u64,
    used_ms: u64,
}

/// An exporter.
#[derive(Debug)]
pub struct Exporter {
    settings: Settings,
    started_ms: u64,
    next_search_ms: u64,
    flows: HashMap<Key, Entry>,
    waiting: Waiting,
    sequence: u32,
}

/// Records that wait for [`Exporter::run`].
#[derive(Debug, Default)]
struct Waiting {
    records: VecDeque<Record>,
    lost: u64,
}

impl Exporter {
    /// An exporter without flows. Times in its records count from now.
    pub fn new(settings: Settings, now_ms: u64) -> Exporter {
        Exporter {
            settings,
            started_ms: now_ms,
            next_search_ms: now_ms,
            flows: HashMap::new(),
            waiting: Waiting::default(),
            sequence: 0,
        }
    }

    /// Changes the settings; flows stay.
    pub fn configure(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Flows at present.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Records lost so far: too many waited.
    pub fn lost(&self) -> u64 {
        self.waiting.lost
    }

    /// Counts packets of a flow, whose output is a port or one of [`output`].
    pub fn count(&mut self, key: &Key, output: u16, seen: &Seen) {
        if seen.packets == 0 {
            return;
        }
        let has_room = self.flows.len() < FLOWS_MAX;
        let Some(entry) = self.flows.get_mut(key) else {
            let (seen, used_ms) = (*seen, seen.used_ms);
            let entry = Entry { output, seen, created_ms: used_ms, since_ms: used_ms };
            if has_room {
                self.flows.insert(*key, entry);
            } else {
                self.waiting.add(key, &entry);
            }
            return;
        };
        if entry.output != output {
            self.waiting.add(key, entry);
            let used_ms = seen.used_ms.max(entry.seen.used_ms);
            let fresh = Seen { used_ms, ..Seen::default() };
            *entry = Entry { output, seen: fresh, created_ms: used_ms, since_ms: used_ms };
        }
        let all = &mut entry.seen;
        all.packets = all.packets.saturating_add(seen.packets);
        all.bytes = all.bytes.saturating_add(seen.bytes);
        all.tcp_flags |= seen.tcp_flags;
        all.used_ms = all.used_ms.max(seen.used_ms);
    }

    /// A flow ends: makes its record.
    pub fn end_flow(&mut self, key: &Key) {
        if let Some(entry) = self.flows.remove(key) {
            self.waiting.add(key, &entry);
        }
    }

    /// Ends all flows.
    pub fn end(&mut self) {
        for (key, entry) in std::mem::take(&mut self.flows) {
            self.waiting.add(&key, &entry);
        }
    }

    /// Appends datagrams with the records that are due.
    pub fn run(&mut self, now_ms: u64, wall_ms: u64, send: &mut Vec<Vec<u8>>) {
        if now_ms >= self.next_search_ms {
            self.next_search_ms = now_ms + SEARCH_EVERY_MS;
            self.search(now_ms);
        }
        while !self.waiting.records.is_empty() {
            let count = self.waiting.records.len().min(RECORDS_MAX);
            let mut out = self.header(count as u16, now_ms, wall_ms);
            for record in self.waiting.records.drain(..count) {
                record.put(&mut out, &self.settings, self.started_ms);
            }
            self.sequence = self.sequence.wrapping_add(count as u32);
            send.push(out.0);
        }
        if self.waiting.records.capacity() > RECORDS_MAX {
            self.waiting.records.shrink_to(RECORDS_MAX);
        }
    }

    /// Makes records of flows that are due, and forgets those without packets for as long.
    fn search(&mut self, now_ms: u64) {
        let Some(timeout_ms) = self.settings.active_timeout_ms else { return };
        self.flows.retain(|key, entry| {
            if now_ms <= entry.since_ms.saturating_add(timeout_ms) {
                return true;
            }
            let is_idle = entry.seen.packets == 0;
            self.waiting.add(key, entry);
            entry.seen = Seen { used_ms: entry.seen.used_ms, ..Seen::default() };
            entry.since_ms += (now_ms - entry.since_ms - 1) / timeout_ms.max(1) * timeout_ms.max(1);
            !is_idle
        });
    }

    fn header(&self, count: u16, now_ms: u64, wall_ms: u64) -> Bytes {
        let mut out = Bytes::default();
        out.u16(VERSION);
        out.u16(count);
        out.u32(now_ms.saturating_sub(self.started_ms) as u32);
        out.u32((wall_ms / 1000) as u32);
        out.u32((wall_ms % 1000) as u32 * 1_000_000);
        out.u32(self.sequence);
        out.u8(self.settings.engine_type);
        out.u8(self.settings.engine_id);
        // Sampling interval: all packets count.
        out.u16(0);
        out
    }
}

impl Waiting {
    /// Makes the record of a flow, or several for counters beyond 32 bits; none without packets.
    fn add(&mut self, key: &Key, entry: &Entry) {
        let Entry { output, seen: Seen { packets, bytes, tcp_flags, used_ms }, created_ms, .. } = *entry;
        if packets == 0 {
            return;
        }
        let limit = u64::from(u32::MAX);
        let parts = packets.div_ceil(limit).max(bytes.div_ceil(limit)).min(PARTS_MAX);
        let part = |all: u64, n: u64| {
            let up_to = |n: u64| u128::from(all) * u128::from(n) / u128::from(parts);
            u32::try_from(up_to(n + 1) - up_to(n)).unwrap_or(u32::MAX)
        };
        for n in 0..parts {
            if self.records.len() >= WAITING_MAX {
                self.lost += 1;
                continue;
            }
            let (packets, bytes) = (part(packets, n), part(bytes, n));
            self.records.push_back(Record {
                key: *key,
                output,
                packets,
                bytes,
                tcp_flags,
                created_ms,
                used_ms,
            });
        }
    }
}

impl Record {
    fn put(&self, out: &mut Bytes, settings: &Settings, started_ms: u64) {
        let Record { key, output, packets, bytes, tcp_flags, created_ms, used_ms } = self;
        let interface = |port: u16| match settings.add_id_to_interface {
            true => (u16::from(settings.engine_id) & ENGINE_BITS) << 9 | port & INTERFACE_BITS,
            false => port,
        };
        let since_start = |ms: u64| ms.saturating_sub(started_ms) as u32;
        let (src_port, dst_port) = match key.protocol {
            PROTOCOL_ICMP => (0, key.src_port << 8 | key.dst_port & 0xff),
            _ => (key.src_port, key.dst_port),
        };
        // No next hop.
        [key.src, key.dst, 0].into_iter().for_each(|address| out.u32(address));
        [interface(key.in_port), interface(*output)].into_iter().for_each(|number| out.u16(number));
        let counts = [*packets, *bytes, since_start(*created_ms), since_start(*used_ms)];
        counts.into_iter().for_each(|number| out.u32(number));
        [src_port, dst_port].into_iter().for_each(|port| out.u16(port));
        out.put(&[0, *tcp_flags, key.protocol, key.tos & DSCP_MASK]);
        // Neither numbers of autonomous systems nor prefixes.
        out.u64(0);
    }
}

/// Engine type and engine id of a datapath without settings: those of stock switches, from a hash of its name
/// (MurmurHash3, 32 bits).
pub fn engine_of(datapath: &str) -> (u8, u8) {
    let mut hash = 0u32;
    for chunk in datapath.as_bytes().chunks(4) {
        let word = chunk.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
        let mixed = word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
        hash = (hash ^ mixed).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    hash ^= datapath.len() as u32;
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^= hash >> 16;
    ((hash >> 8) as u8, hash as u8)
}

#[cfg(test)]
mod tests;
