//! One forwarding core: its state, ports, statistics and housekeeping. Packets go through it in `process`, operations in
//! `ops`.
//!
//! Invariants: one thread (or the simulator) calls it; nothing in it is shared but [`DpShared`]; between two calls no
//! packet is on its way inside, only parked or in a transmit batch ([`Ledger`] tells).

use crate::actions::{Executor, Work};
use crate::burst::{Burst, Recirculated};
use crate::cache::SignatureCache;
use crate::hash::{KeyHasher, split_mix};
use crate::ledger::Ledger;
use crate::megaflow::MegaflowTable;
use crate::meter::DpShared;
use crate::park::{ParkLimits, ParkingLot};
use crate::ports::{PmdIo, Ports};
use crate::tuning::PmdTuning;
use dpif::{DpifError, DropReason, Drops, FlowRecord, PmdId, PmdStats, PortStats};
use flow::DpPort;
use packet::PacketPool;
use std::sync::Arc;

/// What a forwarding core is told when it is made.
#[derive(Clone, Debug)]
pub struct PmdConfig {
    /// Its name.
    pub id: PmdId,
    /// How many VLAN tags keys tell apart (at most [`flow::extract::MAX_VLANS`]).
    pub vlan_limit: u8,
    /// Seed of hashes, flow names and samples: random per process, fixed in simulations.
    pub hash_seed: u64,
    /// Megaflows at most (below 2^24).
    pub flow_limit_hard: usize,
    /// Flow cache entries at most; 0 switches the cache off.
    pub cache_entries_max: usize,
    /// Packets parked behind one upcall at most.
    pub parked_per_ticket_max: usize,
    /// Packets parked in all at most.
    pub parked_max: usize,
    /// An upcall not answered for so long is given up.
    pub ticket_ttl_us: u64,
    /// Use what the processor has beyond its basic instruction set. Answers do not depend on it.
    pub vector: bool,
    /// Parse common packets by the template ([`flow::template`]). Answers do not depend on it.
    pub template: bool,
    /// What can be changed while it runs.
    pub tuning: PmdTuning,
}

impl PmdConfig {
    /// The usual limits.
    pub fn new(id: PmdId, hash_seed: u64) -> PmdConfig {
        PmdConfig {
            id,
            vlan_limit: 1,
            hash_seed,
            flow_limit_hard: 4_000_000,
            cache_entries_max: 1_572_864,
            parked_per_ticket_max: 256,
            parked_max: 8192,
            ticket_ttl_us: 5_000_000,
            vector: true,
            template: true,
            tuning: PmdTuning::default(),
        }
    }
}

/// The flow cache, for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheStats {
    /// Entries that there is room for now.
    pub entries: usize,
    /// Entries overwritten while in use, since the start.
    pub evictions: u64,
}

/// See the module.
pub struct Pmd {
    pub(crate) config: PmdConfig,
    pub(crate) table: MegaflowTable,
    pub(crate) cache: SignatureCache,
    pub(crate) park: ParkingLot,
    pub(crate) exec: Executor,
    pub(crate) burst: Burst,
    pub(crate) work: Work,
    pub(crate) level: simd::Level,
}

impl Pmd {
    /// A core without ports and flows.
    pub fn new(config: PmdConfig, shared: Arc<DpShared>) -> Pmd {
        let hasher = KeyHasher::new(config.hash_seed);
        let which = match config.id {
            PmdId::Main | PmdId::None => u64::MAX,
            PmdId::Core(n) => n.into(),
        };
        let limits = ParkLimits {
            per_ticket: config.parked_per_ticket_max,
            total: config.parked_max,
            ttl_us: config.ticket_ttl_us,
        };
        let exec = Executor {
            id: config.id,
            vlan_limit: config.vlan_limit,
            reread: false,
            hasher: hasher.clone(),
            shared,
            ports: Ports::new(),
            recirculated: Recirculated::new(),
            now_us: 0,
            random: config.hash_seed ^ which,
            numbers: 0,
            sample_seed: split_mix(&mut { config.hash_seed ^ which }),
            // Cores count from far apart, so that no two of them give a flow the same name.
            ufids: which << 48,
        };
        let tuning = config.tuning;
        let mut pmd = Pmd {
            table: MegaflowTable::new(hasher, config.flow_limit_hard),
            cache: SignatureCache::new(config.cache_entries_max),
            park: ParkingLot::new(limits),
            exec,
            burst: Burst::new(),
            work: Work::new(),
            level: if config.vector { simd::Level::best() } else { simd::Level::PLAIN },
            config,
        };
        pmd.set_tuning(tuning);
        pmd
    }

    /// Which core this is.
    pub fn id(&self) -> PmdId {
        self.config.id
    }

    /// The instruction set that its stages were compiled for.
    pub fn level(&self) -> simd::Level {
        self.level
    }

    /// The pool that packets for this core come from and go back to.
    pub fn pool(&mut self) -> &mut PacketPool {
        &mut self.exec.ports.pool
    }

    /// Makes a port known, to receive from and to send to. A port that is there already stays as it is.
    ///
    /// # Errors
    /// `Unsupported` for a number from [`crate::PORT_NUMBERS`] on.
    pub fn port_add(&mut self, port: DpPort) -> Result<(), DpifError> {
        self.exec.ports.add(port)
    }

    /// Forgets a port: drops the packets from it that are parked, deletes the flows from it (their last records are the
    /// answer), sends what waits for it. Flows that output to it stay and drop there.
    pub fn port_remove(&mut self, port: DpPort, io: &mut dyn PmdIo) -> Vec<FlowRecord> {
        for parked in self.park.purge_port(port) {
            let rx_port = parked.origin.rx_port;
            self.exec.ports.drop_packet(parked.packet, DropReason::PortRemoved, rx_port);
        }
        let ids = self.table.ids_from(port);
        let finals = ids.into_iter().filter_map(|id| self.table.remove(id)).collect();
        self.exec.ports.flush_port(port, io);
        self.exec.ports.remove(port);
        self.count_flows();
        finals
    }

    /// Sends what waits, one transmit call a port.
    pub fn flush_output(&mut self, io: &mut dyn PmdIo) {
        self.exec.ports.flush(io);
    }

    /// Housekeeping, about once a second: ranks subtables, sizes the cache, gives up upcalls that nobody answered.
    pub fn tick(&mut self, now_us: u64) {
        self.exec.now_us = now_us;
        if self.config.tuning.rank {
            self.table.rank();
        }
        self.cache.tick();
        for parked in self.park.expire(now_us) {
            let rx_port = parked.origin.rx_port;
            self.exec.ports.drop_packet(parked.packet, DropReason::UpcallError, rx_port);
        }
    }

    /// Counters since the start or the last `ClearStats`.
    pub fn stats(&self) -> &PmdStats {
        &self.exec.ports.stats
    }

    /// Counts anew, as [`dpif::DpifOp::ClearStats`] asks.
    pub fn clear_stats(&mut self) {
        self.exec.ports.stats = self.exec.ports.stats.cleared();
    }

    /// Adds to the cycle counters, which the driver measures.
    pub fn add_cycles(&mut self, busy: u64, idle: u64) {
        self.exec.ports.stats.busy_cycles += busy;
        self.exec.ports.stats.idle_cycles += idle;
    }

    /// Counters of a port, as far as this core saw its packets.
    pub fn port_counters(&self, port: DpPort) -> Option<&PortStats> {
        self.exec.ports.counters(port)
    }

    /// Counters of all ports in order of their numbers.
    pub fn all_port_counters(&self) -> impl Iterator<Item = (DpPort, &PortStats)> {
        self.exec.ports.all_counters()
    }

    /// Drops as the ports count them, with those of packets that came by no port and of ports that were removed: by another
    /// way the same as in [`Pmd::stats`].
    pub fn drops_by_ports(&self) -> Drops {
        self.exec.ports.drops_by_ports()
    }

    /// Where all packets went.
    pub fn ledger(&self) -> Ledger {
        Ledger { parked: self.park.parked() as u64, ..self.exec.ports.ledger }
    }

    /// Upcalls that wait for an answer with their ticket.
    pub fn open_tickets(&self) -> usize {
        self.park.tickets()
    }

    /// The flow cache.
    pub fn cache_stats(&self) -> CacheStats {
        CacheStats { entries: self.cache.entries(), evictions: self.cache.evictions }
    }

    pub(crate) fn count_flows(&mut self) {
        let stats = &mut self.exec.ports.stats;
        stats.flows = self.table.len() as u64;
        stats.masks = self.table.masks() as u64;
    }
}
