//! The path of a burst through a forwarding core, stage by stage over a structure of arrays:
//!
//! 1. extract: bytes → keys, header offsets
//! 2. parked: packets of a flow whose translation is pending are set aside
//! 3. marks (`marks`): packets with the mark of a device → megaflow, only while flows have marks
//! 4. repeats (`repeats`): the megaflows of the bursts before; stages 5 and 6 are for the packets that none of them matches
//! 5. cache: key → hash → megaflow, counted; misses go on the list of misses
//! 6. megaflow: the misses through the ranked subtables; a hit is counted and inserted into the cache
//! 7. finish (`finish`): actions by groups; then, in order of arrival, outputs and upcalls for the remaining packets
//!
//! Recirculated packets pass stages 2 to 7 afterwards, as separate bursts: keys and offsets stay in arrays, and only
//! headers left dirty by actions are parsed again. Each stage is one function, not inlined; those of 1, 4, 5 and 6 are
//! kernels (`stages`), compiled for several instruction sets.

use crate::burst::Parsed;
use crate::finish::Round;
use crate::megaflow::NO_LIST;
use crate::park::{Origin, Parked, new_ufid};
use crate::pmd::Pmd;
use crate::ports::PmdIo;
use crate::repeats::FindRepeated;
use crate::stages::{Extract, FindCached, FindMegaflows, Hash, MISS, WAITS};
use dpif::{DropReason, Upcall, UpcallKind};
use flow::extract::{Layout, Metadata};
use flow::{DpPort, FlowKey};
use packet::{BATCH_MAX_PACKETS, Packet, PacketBatch, headers as h};

/// Treatment of packets that miss.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnMiss {
    /// The first of a key becomes an upcall with a ticket, the rest wait behind it.
    Park,
    /// Each becomes a separate upcall: it waited once already.
    Upcall,
}

impl Pmd {
    /// Processes packets received on `rx` by the fast path. Outputs wait in transmit batches until
    /// [`Pmd::flush_output`] (or a full batch); `rx` is empty afterwards.
    pub fn process_batch(&mut self, rx: DpPort, batch: &mut PacketBatch, now_us: u64, io: &mut dyn PmdIo) {
        self.exec.begin(now_us);
        let packets = batch.len();
        let (mut bytes, mut shortest) = (0, usize::MAX);
        for packet in batch.packets() {
            bytes += packet.len() as u64;
            shortest = shortest.min(packet.len());
        }
        self.exec.ports.count_received(rx, packets, bytes);
        if shortest >= h::ETH_HEADER_BYTES && packets <= BATCH_MAX_PACKETS && self.exec.ports.has(rx) {
            batch.move_into(&mut self.burst.arrays.packets);
            self.forward_received(rx, io);
            return;
        }
        let known = self.exec.ports.has(rx);
        let mut packets = batch.drain();
        while packets.len() != 0 {
            while !self.burst.arrays.is_full() {
                let Some(packet) = packets.next() else { break };
                if !known {
                    self.exec.ports.drop_packet(packet, DropReason::PortRemoved, rx);
                } else if packet.len() < h::ETH_HEADER_BYTES {
                    self.exec.ports.drop_packet(packet, DropReason::Runt, rx);
                } else {
                    self.burst.arrays.packets.push(packet);
                }
            }
            self.forward_received(rx, io);
        }
    }

    /// Processes the newly received burst, and its recirculated packets.
    fn forward_received(&mut self, rx: DpPort, io: &mut dyn PmdIo) {
        let md = Metadata { in_port: rx.0, ..Metadata::default() };
        let (vlan_limit, template) = (self.exec.vlan_limit, self.config.template);
        let kernel = Extract { burst: &mut self.burst, md, vlan_limit, template };
        self.exec.ports.stats.template_hits += simd::run(self.exec.level, kernel);
        let first = self.exec.take_numbers(self.burst.arrays.packets.len());
        self.burst.received = Some(Origin::fresh(rx, first));
        let done = self.forward(OnMiss::Park, io);
        self.run_rounds(done, io);
    }

    /// Resumes parked packets after the reply to their upcall.
    pub(crate) fn resume(&mut self, key: &FlowKey, parked: Vec<Parked>, io: &mut dyn PmdIo) {
        let unread = Layout { l3: Layout::NONE, l4: Layout::NONE };
        for some in chunks(parked) {
            for Parked { packet, origin } in some {
                let state = Parsed { key, layout: unread, dirty: true };
                self.burst.arrays.push(packet, state, origin);
            }
            self.burst.arrays.refresh(self.exec.vlan_limit);
            self.forward(OnMiss::Upcall, io);
        }
        self.run_recirculated(io);
    }

    /// Processes recirculated packets until none are left. They may wait for their own translation, even if they
    /// waited for one before recirculation.
    pub(crate) fn run_recirculated(&mut self, io: &mut dyn PmdIo) {
        self.run_rounds(Round::Done, io);
    }

    /// Processes recirculated packets after a burst with that end.
    fn run_rounds(&mut self, mut round: Round, io: &mut dyn PmdIo) {
        loop {
            if round == Round::Done {
                if self.exec.recirculated.is_empty() {
                    return;
                }
                self.exec.recirculated.take_burst(&mut self.burst.arrays);
            }
            self.burst.arrays.refresh(self.exec.vlan_limit);
            round = self.forward(OnMiss::Park, io);
        }
    }

    /// All stages after extraction.
    fn forward(&mut self, on_miss: OnMiss, io: &mut dyn PmdIo) -> Round {
        // Hints may name flows of ports that end.
        let hints = !(self.table.ends() && self.has_ending_ports());
        let cached = self.cache.is_on() && hints;
        let parks = on_miss == OnMiss::Park && !self.park.is_empty();
        self.burst.results = [MISS; BATCH_MAX_PACKETS];
        self.burst.lists = [NO_LIST; BATCH_MAX_PACKETS];
        if parks {
            self.hash();
            self.find_parked();
        }
        if hints && !self.marks.is_empty() {
            self.find_marked();
        }
        if !(cached && self.find_repeated()) {
            if cached && !parks {
                self.hash();
            }
            self.find(cached);
            if cached {
                self.repeats.remember(&self.burst);
            }
        }
        self.finish(on_miss, io)
    }

    fn hash(&mut self) {
        let kernel = Hash { burst: &mut self.burst, hasher: &self.exec.hasher, cache: &self.cache };
        simd::run(self.exec.level, kernel);
    }

    /// Compares the burst with the megaflows of a former one; returns whether all of its packets have one of them.
    fn find_repeated(&mut self) -> bool {
        let hints = self.repeats.hints(&self.burst.arrays.keys[0]);
        if hints[0] == MISS {
            return false;
        }
        let (burst, table, now_ms) = (&mut self.burst, &mut self.table, self.exec.now_us / 1000);
        let hits = simd::run(self.exec.level, FindRepeated { burst, table, hints, now_ms });
        self.exec.ports.stats.cache_hits += hits;
        hits == self.burst.arrays.packets.len() as u64
    }

    #[inline(never)]
    fn find_parked(&mut self) {
        let burst = &mut self.burst;
        for i in 0..burst.arrays.packets.len() {
            if self.park.find(burst.hashes[i], &burst.arrays.keys[i]).is_some() {
                burst.results[i] = WAITS;
            }
        }
    }

    /// Looks up the megaflows of the burst, and counts each packet.
    fn find(&mut self, cached: bool) {
        let (burst, table, now_ms) = (&mut self.burst, &mut self.table, self.exec.now_us / 1000);
        let stats = &mut self.exec.ports.stats;
        if cached {
            let kernel = FindCached { burst, table, cache: &self.cache, now_ms };
            let (lookups, hits) = simd::run(self.exec.level, kernel);
            stats.cache_hits += hits;
            self.cache.count_lookups(lookups);
        } else {
            let left = burst.without_result();
            burst.misses.clear();
            burst.misses.extend(left.map(|lane| lane as u32));
        }
        if self.burst.misses.is_empty() {
            return;
        }
        let (burst, table) = (&mut self.burst, &mut self.table);
        let cache = cached.then_some(&mut self.cache);
        let insert_inv_prob = self.config.tuning.cache_insert_inv_prob;
        let random = &mut self.exec.random;
        let kernel = FindMegaflows { burst, table, cache, insert_inv_prob, random, now_ms };
        let (hits, lookups) = simd::run(self.exec.level, kernel);
        stats.megaflow_hits += hits;
        stats.subtable_lookups += lookups;
    }

    /// Handles a packet without a megaflow, or one whose flow's translation is pending.
    pub(crate) fn miss(
        &mut self,
        packet: Packet,
        i: usize,
        origin: Origin,
        on_miss: OnMiss,
        io: &mut dyn PmdIo,
    ) {
        let (key, rx_port) = (&self.burst.arrays.keys[i], origin.rx_port);
        let hash = self.exec.hasher.key(key);
        let mut ticket = None;
        if on_miss == OnMiss::Park
            && let Some(place) = self.park.find(hash, key)
        {
            if let Err(packet) = self.park.park(place, Parked { packet, origin }) {
                self.exec.ports.stats.parked_lost += 1;
                self.exec.ports.drop_packet(packet, DropReason::ParkedOverflow, rx_port);
            }
            return;
        }
        if !io.has_room(rx_port, key) {
            self.exec.ports.stats.upcalls_lost += 1;
            self.exec.ports.drop_packet(packet, DropReason::UpcallQueueFull, rx_port);
            return;
        }
        if on_miss == OnMiss::Park {
            ticket = self.park.open(hash, key, rx_port, self.exec.now_us);
        }
        let upcall = Box::new(Upcall {
            kind: UpcallKind::Miss,
            packet,
            key: *key,
            ufid: new_ufid(&self.exec.hasher, hash, &mut self.exec.ufids),
            pmd: self.config.id,
            rx_port,
            ticket,
            received_us: self.exec.now_us,
            tunnel_out: None,
        });
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
