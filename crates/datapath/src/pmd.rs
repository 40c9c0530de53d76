//! A forwarding core: its state, ports, statistics and housekeeping. `process` handles packets, `ops` operations.
//!
//! Invariants: one thread (or the simulator) calls it; it shares nothing but [`DpShared`]; between calls it holds
//! packets only in the parking lot or transmit batches ([`Ledger`] counts them).

use crate::actions::{Executor, Work};
use crate::bonds::CoreBonds;
use crate::burst::{Burst, Recirculated};
use crate::cache::SignatureCache;
use crate::drops::Sampler;
use crate::hash::{KeyHasher, split_mix};
use crate::ledger::Ledger;
use crate::marks::Marks;
use crate::megaflow::MegaflowTable;
use crate::park::{ParkLimits, ParkingLot};
use crate::ports::{PmdIo, Ports};
use crate::repeats::Repeats;
use crate::samples::LocalSamples;
use crate::shared::DpShared;
use crate::tuning::PmdTuning;
use dpif::{
    DpifError, DropReason, DropSampling, DroppedPacket, Drops, PmdId, PmdStats, PortStats, SampledPacket,
};
use flow::DpPort;
use packet::PacketPool;
use std::sync::Arc;

/// Configuration of a forwarding core.
#[derive(Clone, Debug)]
pub struct PmdConfig {
    /// Its name.
    pub id: PmdId,
    /// Seed of hashes, flow names and samples: random per process, fixed in simulations.
    pub hash_seed: u64,
    /// Maximum megaflows (below 2^24).
    pub flow_limit_hard: usize,
    /// Maximum flow cache entries; 0 disables the cache.
    pub cache_entries_max: usize,
    /// Maximum packets parked behind one upcall.
    pub parked_per_ticket_max: usize,
    /// Maximum packets parked in total.
    pub parked_max: usize,
    /// Timeout of an unanswered upcall.
    pub ticket_ttl_us: u64,
    /// Use instruction set extensions of the processor. Results do not depend on it.
    pub vector: bool,
    /// Parse common packets by the template ([`flow::template`]). Results do not depend on it.
    pub template: bool,
    /// Settings that can change at run time.
    pub tuning: PmdTuning,
}

impl PmdConfig {
    /// Default limits.
    pub fn new(id: PmdId, hash_seed: u64) -> PmdConfig {
        PmdConfig {
            id,
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

/// Flow cache statistics, for display.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheStats {
    /// Current capacity in entries.
    pub entries: usize,
    /// Entries evicted while in use, since the start.
    pub evictions: u64,
}

/// See the module documentation.
pub struct Pmd {
    pub(crate) config: PmdConfig,
    pub(crate) table: MegaflowTable,
    pub(crate) cache: SignatureCache,
    pub(crate) repeats: Repeats,
    pub(crate) park: ParkingLot,
    pub(crate) exec: Executor,
    pub(crate) burst: Burst,
    pub(crate) work: Work,
    pub(crate) marks: Marks,
    /// The lists of subtables to sort next, if a round is not over.
    pub(crate) rank_at: Option<usize>,
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
            level: if config.vector { simd::Level::best() } else { simd::Level::PLAIN },
            vlan_limit: shared.vlan_limit(),
            template: config.template,
            reread: false,
            hasher: hasher.clone(),
            shared,
            bonds: CoreBonds::default(),
            ports: Ports::new(),
            recirculated: Recirculated::new(),
            now_us: 0,
            random: config.hash_seed ^ which,
            numbers: 0,
            probability: u32::MAX,
            sample_seed: split_mix(&mut { config.hash_seed ^ which }),
            // Cores count from distant start values, so that flow names never collide.
            ufids: which << 48,
            released: Vec::new(),
        };
        let tuning = config.tuning;
        let mut pmd = Pmd {
            table: MegaflowTable::new(hasher, config.flow_limit_hard),
            cache: SignatureCache::new(config.cache_entries_max),
            repeats: Repeats::new(),
            park: ParkingLot::new(limits),
            exec,
            burst: Burst::new(),
            work: Work::new(),
            marks: Marks::default(),
            rank_at: None,
            config,
        };
        pmd.set_tuning(tuning);
        pmd
    }

    /// Id of this core.
    pub fn id(&self) -> PmdId {
        self.config.id
    }

    /// The instruction set of its stages.
    pub fn level(&self) -> simd::Level {
        self.exec.level
    }

    /// The packet pool of this core.
    pub fn pool(&mut self) -> &mut PacketPool {
        &mut self.exec.ports.pool
    }

    /// Adds a port to receive from and send to. An existing port stays unchanged.
    ///
    /// # Errors
    /// `Unsupported` for a number from [`crate::PORT_NUMBERS`] on.
    pub fn port_add(&mut self, port: DpPort) -> Result<(), DpifError> {
        self.exec.ports.add(port)
    }

    /// Flushes output, with one transmit call per port.
    pub fn flush_output(&mut self, io: &mut dyn PmdIo) {
        self.exec.ports.flush(io);
    }

    /// Housekeeping, about once a second: begins to rank subtables ([`Pmd::upkeep`] goes on), resizes the cache, expires
    /// unanswered upcalls.
    pub fn tick(&mut self, now_us: u64) {
        self.exec.now_us = now_us;
        if self.config.tuning.rank {
            self.rank_from(0);
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

    /// Resets the counters, for [`dpif::DpifOp::ClearStats`].
    pub fn clear_stats(&mut self) {
        self.exec.ports.stats = self.exec.ports.stats.cleared();
    }

    /// Adds to the cycle counters, as measured by the driver.
    pub fn add_cycles(&mut self, busy: u64, idle: u64) {
        self.exec.ports.stats.busy_cycles += busy;
        self.exec.ports.stats.idle_cycles += idle;
    }

    /// Counters of a port, for packets of this core.
    pub fn port_counters(&self, port: DpPort) -> Option<&PortStats> {
        self.exec.ports.counters(port)
    }

    /// Counters of all ports in order of their numbers.
    pub fn all_port_counters(&self) -> impl Iterator<Item = (DpPort, &PortStats)> {
        self.exec.ports.all_counters()
    }

    /// Drops by port counters, plus those of packets without an input port and of removed ports: an independent sum
    /// of the drops in [`Pmd::stats`].
    pub fn drops_by_ports(&self) -> Drops {
        self.exec.ports.drops_by_ports()
    }

    /// Starts, changes or ends the sampling of dropped packets. Nothing for an equal setting.
    pub fn sample_drops(&mut self, how: Option<DropSampling>) {
        let sampler = &mut self.exec.ports.sampler;
        if sampler.as_ref().map(|s| s.how()) != how {
            *sampler = how.map(|how| Box::new(Sampler::new(how)));
        }
    }

    /// Whether it samples dropped packets.
    pub fn samples_drops(&self) -> bool {
        self.exec.ports.sampler.is_some()
    }

    /// Takes the samples since the last call, and the number of drops that have none.
    pub fn take_drops(&mut self, now_us: u64) -> (Vec<DroppedPacket>, u64) {
        self.exec.ports.sampler.as_mut().map(|sampler| sampler.take(now_us)).unwrap_or_default()
    }

    /// Starts, changes or ends the samples of `psample`, each with that many first bytes. Nothing for an equal setting.
    pub fn sample_locally(&mut self, packet_bytes: Option<usize>) {
        let samples = &mut self.exec.ports.samples;
        if samples.as_ref().map(|s| s.packet_bytes()) != packet_bytes {
            *samples = packet_bytes.map(|bytes| Box::new(LocalSamples::new(bytes)));
        }
    }

    /// Whether it keeps the samples of `psample`.
    pub fn samples_locally(&self) -> bool {
        self.exec.ports.samples.is_some()
    }

    /// Takes the samples of `psample` since the last call, and the number of lost ones.
    pub fn take_samples(&mut self) -> (Vec<SampledPacket>, u64) {
        self.exec.ports.samples.as_mut().map(|samples| samples.take()).unwrap_or_default()
    }

    /// The packet ledger.
    pub fn ledger(&self) -> Ledger {
        Ledger { parked: self.park.parked() as u64, ..self.exec.ports.ledger }
    }

    /// Number of upcalls whose ticket is open.
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
