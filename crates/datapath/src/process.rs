//! The way of a burst through a forwarding core, stage by stage over a structure of arrays:
//!
//! 1. extract: bytes → keys, header offsets, hashes
//! 2. parked: packets of a flow that waits for its translation are set aside
//! 3. cache: hash → megaflow; what misses goes on the list of misses
//! 4. megaflow: the misses through the ranked subtables; a hit enters the cache
//! 5. account: packets, bytes, time, TCP flags of the megaflows
//! 6. finish, in order of arrival: actions, outputs, upcalls for what is left
//!
//! Recirculated packets go through the same stages afterwards, as bursts of their own. Each stage is one function, not inlined.

use crate::actions::{View, re_extract};
use crate::megaflow::NO_OUTPUT;
use crate::park::{Origin, Parked, new_ufid};
use crate::pmd::Pmd;
use crate::ports::PmdIo;
use dpif::{DropReason, Upcall, UpcallKind};
use flow::extract::{Layout, Metadata, extract};
use flow::{DpPort, FlowKey};
use packet::{BATCH_MAX_PACKETS, Packet, PacketBatch, headers as h};

/// In [`Burst::results`]: no megaflow matched.
const MISS: u32 = u32::MAX;
/// In [`Burst::results`]: waits behind a ticket.
const WAITS: u32 = u32::MAX - 1;

/// Packets on their way through the stages; entry `i` of each array belongs to packet `i`.
pub(crate) struct Burst {
    packets: Vec<Packet>,
    origins: Vec<Origin>,
    hashes: Vec<u64>,
    results: Vec<u32>,
    misses: Vec<u32>,
    keys: Box<[FlowKey]>,
    layouts: [Layout; BATCH_MAX_PACKETS],
}

impl Burst {
    pub(crate) fn new() -> Burst {
        Burst {
            packets: Vec::with_capacity(BATCH_MAX_PACKETS),
            origins: Vec::with_capacity(BATCH_MAX_PACKETS),
            hashes: Vec::with_capacity(BATCH_MAX_PACKETS),
            results: Vec::with_capacity(BATCH_MAX_PACKETS),
            misses: Vec::with_capacity(BATCH_MAX_PACKETS),
            keys: vec![FlowKey::default(); BATCH_MAX_PACKETS].into_boxed_slice(),
            layouts: [Layout { l3: Layout::NONE, l4: Layout::NONE }; BATCH_MAX_PACKETS],
        }
    }

    fn is_full(&self) -> bool {
        self.packets.len() == BATCH_MAX_PACKETS
    }

    fn push(&mut self, packet: Packet, origin: Origin) {
        self.packets.push(packet);
        self.origins.push(origin);
    }
}

/// What happens to packets that miss.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnMiss {
    /// The first of a key becomes an upcall with a ticket, the rest wait behind it.
    Park,
    /// Each becomes an upcall of its own: it waited once already.
    Upcall,
}

impl Pmd {
    /// Takes packets received on `rx` through the fast path. Outputs wait in transmit batches until
    /// [`Pmd::flush_output`] (or a batch is full); the batch is empty afterwards.
    pub fn process_batch(&mut self, rx: DpPort, batch: &mut PacketBatch, now_us: u64, io: &mut dyn PmdIo) {
        self.exec.now_us = now_us;
        let bytes = batch.packets().iter().map(|p| p.len() as u64).sum();
        self.exec.ports.count_received(rx, batch.len() as u64, bytes);
        let known = self.exec.ports.has(rx);
        let mut packets = batch.drain();
        while packets.len() != 0 {
            while !self.burst.is_full() {
                let Some(packet) = packets.next() else { break };
                if !known {
                    self.exec.ports.drop_packet(packet, DropReason::PortRemoved, rx);
                } else if packet.len() < h::ETH_HEADER_BYTES {
                    self.exec.ports.drop_packet(packet, DropReason::Runt, rx);
                } else {
                    self.burst.push(packet, Origin { rx_port: rx, depth: 0 });
                }
            }
            let md = Metadata { in_port: rx.0, ..Metadata::default() };
            extract_received(&mut self.burst, &md, self.config.vlan_limit);
            self.forward(OnMiss::Park, io);
            self.go_round(io);
        }
    }

    /// Sends parked packets on after the answer to their upcall.
    pub(crate) fn resume(&mut self, key: &FlowKey, parked: Vec<Parked>, io: &mut dyn PmdIo) {
        for some in chunks(parked) {
            for Parked { packet, origin } in some {
                self.burst.keys[self.burst.packets.len()] = *key;
                self.burst.push(packet, origin);
            }
            extract_again(&mut self.burst, self.config.vlan_limit);
            self.forward(OnMiss::Upcall, io);
        }
        self.go_round(io);
    }

    /// Takes recirculated packets through the stages until there are none. They may wait for a translation of their own,
    /// also when they waited for one before they were recirculated.
    pub(crate) fn go_round(&mut self, io: &mut dyn PmdIo) {
        while !self.exec.deferred.is_empty() {
            while !self.burst.is_full() {
                let Some(deferred) = self.exec.deferred.pop_front() else { break };
                self.burst.keys[self.burst.packets.len()] = *deferred.key;
                self.burst.push(deferred.packet, deferred.origin);
            }
            extract_again(&mut self.burst, self.config.vlan_limit);
            self.forward(OnMiss::Park, io);
        }
    }

    /// All stages behind extraction.
    fn forward(&mut self, on_miss: OnMiss, io: &mut dyn PmdIo) {
        self.hash();
        if on_miss == OnMiss::Park && !self.park.is_empty() {
            self.find_parked();
        }
        self.find_cached();
        self.find_megaflows();
        self.account();
        self.finish(on_miss, io);
    }

    #[inline(never)]
    fn hash(&mut self) {
        let burst = &mut self.burst;
        burst.hashes.clear();
        burst.hashes.extend(burst.keys[..burst.packets.len()].iter().map(|k| self.exec.hasher.key(k)));
        burst.results.clear();
        burst.results.resize(burst.packets.len(), MISS);
    }

    #[inline(never)]
    fn find_parked(&mut self) {
        let burst = &mut self.burst;
        for (i, key) in burst.keys[..burst.packets.len()].iter().enumerate() {
            if self.park.find(burst.hashes[i], key).is_some() {
                burst.results[i] = WAITS;
            }
        }
    }

    #[inline(never)]
    fn find_cached(&mut self) {
        let burst = &mut self.burst;
        burst.misses.clear();
        let there = burst.results.iter().enumerate().filter(|(_, r)| **r != WAITS).map(|(i, _)| i as u32);
        if !self.cache.is_on() {
            burst.misses.extend(there);
            return;
        }
        // A pass of loads that do not wait for each other, so that their cache misses overlap; what it reads is only kept
        // to be read again.
        let mut places = [0u32; BATCH_MAX_PACKETS];
        for (place, hash) in places.iter_mut().zip(&burst.hashes) {
            *place = self.cache.hint(*hash).unwrap_or(MISS);
        }
        for place in &mut places[..burst.packets.len()] {
            *place = self.table.slots().get(*place).map_or(MISS, |s| s.subtable);
        }
        std::hint::black_box(&places);
        let mut hits = 0;
        for i in 0..burst.packets.len() {
            if burst.results[i] == WAITS {
                continue;
            }
            let key = &burst.keys[i];
            match self.cache.find(burst.hashes[i], |id| self.table.confirms(id, key)) {
                Some(id) => {
                    burst.results[i] = id;
                    hits += 1;
                }
                None => burst.misses.push(i as u32),
            }
        }
        self.exec.ports.stats.cache_hits += hits;
        self.cache.count_lookups(burst.packets.len() as u64);
    }

    #[inline(never)]
    fn find_megaflows(&mut self) {
        let (burst, stats) = (&mut self.burst, &mut self.exec.ports.stats);
        for &i in &burst.misses {
            let i = i as usize;
            let found = self.table.lookup(&burst.keys[i]);
            let Some(id) = found.id else { continue };
            burst.results[i] = id;
            stats.megaflow_hits += 1;
            stats.subtable_lookups += u64::from(found.visited);
            if self.cache.is_on() {
                self.cache.insert(burst.hashes[i], id);
            }
        }
    }

    #[inline(never)]
    fn account(&mut self) {
        let (burst, now_ms) = (&self.burst, self.exec.now_us / 1000);
        for (i, id) in burst.results.iter().enumerate() {
            // MISS and WAITS name no slot.
            if let Some(slot) = self.table.slab().get_mut(*id) {
                slot.account(burst.packets[i].len() as u64, burst.keys[i].base.tcp_flags, now_ms);
            }
        }
    }

    #[inline(never)]
    fn finish(&mut self, on_miss: OnMiss, io: &mut dyn PmdIo) {
        let mut packets = std::mem::take(&mut self.burst.packets);
        for (i, packet) in packets.drain(..).enumerate() {
            let (id, origin) = (self.burst.results[i], self.burst.origins[i]);
            let Some(slot) = self.table.slots().get(id) else {
                self.miss(packet, i, origin, on_miss, io);
                continue;
            };
            if slot.output != NO_OUTPUT {
                self.exec.ports.output(DpPort(slot.output), packet, origin.rx_port, io);
                continue;
            }
            let mut view = View::new(&mut self.burst.keys[i], self.burst.layouts[i], origin);
            self.exec.run(packet, &mut view, slot.actions(), io);
        }
        self.burst.origins.clear();
        self.burst.packets = packets;
    }

    /// A packet without a megaflow, or one that waits for its flow's translation.
    fn miss(&mut self, packet: Packet, i: usize, origin: Origin, on_miss: OnMiss, io: &mut dyn PmdIo) {
        let (key, hash, rx_port) = (&self.burst.keys[i], self.burst.hashes[i], origin.rx_port);
        let mut ticket = None;
        if on_miss == OnMiss::Park {
            if let Some(place) = self.park.find(hash, key) {
                if let Err(packet) = self.park.park(place, Parked { packet, origin }) {
                    self.exec.ports.drop_packet(packet, DropReason::ParkedOverflow, rx_port);
                }
                return;
            }
            ticket = self.park.open(hash, key, rx_port, self.exec.now_us);
        }
        let upcall = Upcall {
            kind: UpcallKind::Miss,
            packet,
            key: *key,
            ufid: new_ufid(&self.exec.hasher, hash, &mut self.exec.ufids),
            pmd: self.config.id,
            rx_port,
            ticket,
            received_us: self.exec.now_us,
        };
        match io.upcall(upcall) {
            Ok(()) => {
                self.exec.ports.ledger.upcalled += 1;
                self.exec.ports.stats.upcalls += 1;
            }
            Err(back) => {
                if let Some(ticket) = ticket {
                    self.park.close(ticket);
                }
                self.exec.ports.stats.upcalls_lost += 1;
                self.exec.ports.drop_packet(back.packet, DropReason::UpcallQueueFull, rx_port);
            }
        }
    }
}

/// Parked packets in bursts.
fn chunks(parked: Vec<Parked>) -> impl Iterator<Item = Vec<Parked>> {
    let mut rest = parked.into_iter();
    std::iter::from_fn(move || {
        let some: Vec<Parked> = rest.by_ref().take(BATCH_MAX_PACKETS).collect();
        (!some.is_empty()).then_some(some)
    })
}

#[inline(never)]
fn extract_received(burst: &mut Burst, md: &Metadata, vlan_limit: u8) {
    for (i, packet) in burst.packets.iter().enumerate() {
        burst.layouts[i] = extract(packet.data(), md, vlan_limit, &mut burst.keys[i]);
    }
}

/// The same for packets whose metadata is in their keys.
fn extract_again(burst: &mut Burst, vlan_limit: u8) {
    for (i, packet) in burst.packets.iter().enumerate() {
        burst.layouts[i] = re_extract(&mut burst.keys[i], packet.data(), vlan_limit);
    }
}
