//! In-process speed of the fast path: frames in memory → copy to a pooled buffer → all stages → a sink that frees.
//!
//! `cargo run --release -p datapath --example speed -- [--seconds S] [--only NAME|TEXT] [--batch N] [--no-cache]
//! [--no-rank] [--no-vector] [--no-template]` prints nanoseconds per packet for each case, and cycles per packet at
//! the processor's frequency according to the system. It times chunks of some thousand packets, the cases in turn,
//! and prints the tenth percentile and the median of a case's chunks, to limit the effect of other load. Each chunk
//! verifies that all packets were sent and none missed.

#![allow(clippy::disallowed_methods, reason = "an example measures time")]

use datapath::{DpShared, Pmd, PmdConfig, PmdIo, TxReport};
use dpif::actions::{LbOutput, Output, Recirc, Sample, Userspace};
use dpif::{
    DpAction, DpifOp, EthSet, Execute, FlowPut, Ipv4Set, Masked, OpResult, PmdId, PmdStats, PortsSet,
    PutMode, SetAction, SflowCookie, Upcall, UpcallKind, UpcallSink, UserCookie,
};
use flow::extract::{Metadata, extract};
use flow::{DpPort, FlowKey, KeyMask, RecircId, Ufid};
use packet::{PacketBatch, PacketPool};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Frame length in bytes.
const FRAME_BYTES: usize = 64;
/// Minimum frames of a replay; at least one per flow.
const REPLAY_MIN: usize = 1 << 12;
/// Packets between two clock reads.
const CHUNK_PACKETS: usize = 2048;

/// Counts and frees.
#[derive(Default)]
struct Sink {
    sent: u64,
    upcalls: Vec<Upcall>,
}

impl UpcallSink for Sink {
    fn upcall(&mut self, upcall: Box<Upcall>) -> Result<(), Box<Upcall>> {
        self.upcalls.push(*upcall);
        Ok(())
    }
}

impl PmdIo for Sink {
    fn transmit(&mut self, _: DpPort, batch: &mut PacketBatch, pool: &mut PacketPool) -> TxReport {
        let packets = batch.len() as u64;
        batch.free_into(pool);
        self.sent += packets;
        TxReport { sent_packets: packets, sent_bytes: packets * FRAME_BYTES as u64, ..TxReport::default() }
    }
}

/// Kind of packets.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Ipv4,
    Vlan,
    Ipv6,
    /// TCP and UDP, tagged and untagged, at random.
    Mixed,
}

/// Distribution of flows over masks.
#[derive(Clone, Copy)]
enum Spread {
    /// This number of masks, hit equally.
    Even(u32),
    /// This number of masks; each is hit twice as often as the one made after it.
    Skewed(u32),
    /// One exact mask, with a megaflow per packet; the other kinds have a megaflow per distinguished value.
    Exact,
}

/// Megaflow actions of a case.
#[derive(Clone, Copy)]
struct Pipeline {
    /// Recirculations before the output; each has its own megaflows, one per flow.
    recirculations: u32,
    /// Rewrite Ethernet, IPv4 and UDP headers before each recirculation and before the output.
    rewrites: bool,
    /// Output ports, assigned to flows in rotation.
    ports: u32,
    /// They are members of a bond that the datapath balances.
    bond: bool,
    /// One packet of this many is sampled; 0: none.
    sampling: u32,
}

/// Number of the bond.
const BOND: u32 = 1;

/// One output.
const FORWARD: Pipeline = Pipeline { recirculations: 0, rewrites: false, ports: 1, bond: false, sampling: 0 };

struct Spec {
    name: &'static str,
    flows: u32,
    kind: Kind,
    spread: Spread,
    pipeline: Pipeline,
}

impl Spec {
    /// Outputs all flows to one port.
    const fn forward(name: &'static str, flows: u32, kind: Kind, spread: Spread) -> Spec {
        Spec { name, flows, kind, spread, pipeline: FORWARD }
    }

    /// IPv4 flows of one mask through a pipeline.
    const fn through(name: &'static str, flows: u32, pipeline: Pipeline) -> Spec {
        Spec { name, flows, kind: Kind::Ipv4, spread: Spread::Even(1), pipeline }
    }
}

const SPECS: [Spec; 30] = [
    Spec::forward("1 flow", 1, Kind::Ipv4, Spread::Even(1)),
    Spec::forward("1k flows, 1 mask", 1000, Kind::Ipv4, Spread::Even(1)),
    Spec::forward("100k flows, 1 megaflow", 100_000, Kind::Ipv4, Spread::Even(0)),
    Spec::forward("100k flows, 17 masks skewed", 100_000, Kind::Ipv4, Spread::Skewed(17)),
    Spec::forward("100k flows, 17 masks even", 100_000, Kind::Ipv4, Spread::Even(17)),
    Spec::forward("100k flows, 200 masks", 100_000, Kind::Ipv4, Spread::Even(200)),
    Spec::forward("100k exact megaflows", 100_000, Kind::Ipv4, Spread::Exact),
    Spec::forward("500k exact megaflows", 500_000, Kind::Ipv4, Spread::Exact),
    Spec::forward("VLAN, 1k flows, 1 mask", 1000, Kind::Vlan, Spread::Even(1)),
    Spec::forward("mixed, 1k flows, 1 mask", 1000, Kind::Mixed, Spread::Even(1)),
    Spec::forward("mixed, 100k flows, 4 megaflows", 100_000, Kind::Mixed, Spread::Even(0)),
    Spec::forward("IPv6, 1 flow", 1, Kind::Ipv6, Spread::Even(1)),
    Spec::forward("IPv6, 1k flows, 1 mask", 1000, Kind::Ipv6, Spread::Even(1)),
    Spec::forward("IPv6, 100k flows, 17 masks even", 100_000, Kind::Ipv6, Spread::Even(17)),
    Spec::through("1k flows, 1 in 1,000 sampled", 1000, Pipeline { sampling: 1000, ..FORWARD }),
    Spec::through("1k flows, 1 in 10 sampled", 1000, Pipeline { sampling: 10, ..FORWARD }),
    Spec::through("rewrites, 1 flow", 1, Pipeline { rewrites: true, ..FORWARD }),
    Spec::through("rewrites, 1k flows", 1000, Pipeline { rewrites: true, ..FORWARD }),
    Spec::through("4 output ports, 1k flows", 1000, Pipeline { ports: 4, ..FORWARD }),
    Spec::through("bond of 2 ports, 1 flow", 1, Pipeline { ports: 2, bond: true, ..FORWARD }),
    Spec::through("bond of 2 ports, 1k flows", 1000, Pipeline { ports: 2, bond: true, ..FORWARD }),
    Spec::through("2 output ports, 1k flows", 1000, Pipeline { ports: 2, ..FORWARD }),
    Spec::through("recirculate 1, 1 flow", 1, Pipeline { recirculations: 1, ..FORWARD }),
    Spec::through("recirculate 2, 1 flow", 1, Pipeline { recirculations: 2, ..FORWARD }),
    Spec::through("recirculate 3, 1 flow", 1, Pipeline { recirculations: 3, ..FORWARD }),
    Spec::through("recirculate 1, 1k flows", 1000, Pipeline { recirculations: 1, ..FORWARD }),
    Spec::through("recirculate 2, 1k flows", 1000, Pipeline { recirculations: 2, ..FORWARD }),
    Spec::through("recirculate 3, 1k flows", 1000, Pipeline { recirculations: 3, ..FORWARD }),
    Spec::through(
        "recirculate 3, rewrites, 1 flow",
        1,
        Pipeline { recirculations: 3, rewrites: true, ..FORWARD },
    ),
    Spec::through(
        "recirculate 3, rewrites, 1k",
        1000,
        Pipeline { recirculations: 3, rewrites: true, ..FORWARD },
    ),
];

/// The next number of a deterministic sequence.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Flow `n`, whose destination selects its mask.
fn frame(kind: Kind, n: u32, mask: u32) -> Vec<u8> {
    let mut f = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    let source = n.to_be_bytes();
    let chance = random(&mut u64::from(n));
    let tagged = kind == Kind::Vlan || kind == Kind::Mixed && chance & 1 != 0;
    let tcp = kind == Kind::Mixed && chance & 2 != 0;
    match kind {
        Kind::Ipv4 | Kind::Vlan | Kind::Mixed => {
            if tagged {
                f.extend([0x81, 0, 0, 42]);
            }
            let rest = (FRAME_BYTES - f.len() - 2) as u8;
            f.extend([
                8,
                0,
                0x45,
                0,
                0,
                rest,
                0,
                1,
                0,
                0,
                64,
                if tcp { 6 } else { 17 },
                0,
                0,
                10,
                source[1],
                source[2],
                source[3],
            ]);
            f.extend([mask as u8, 200, 0, 1]);
        }
        Kind::Ipv6 => {
            f.extend([
                0x86,
                0xdd,
                0x60,
                0,
                0,
                0,
                0,
                (FRAME_BYTES - 54) as u8,
                17,
                64,
                0xfd,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
            ]);
            f.extend([0, 0, 0, 0, 10, source[1], source[2], source[3], 0xfd, mask as u8, 0, 1, 0, 0, 0, 0]);
            f.extend([0, 0, 0, 0, 0, 0, 0, 1]);
        }
    }
    let udp = f.len() + 8;
    f.extend([0x12, 0x34, 0, 80, 0, 10, 0, 0]);
    assert!(udp <= FRAME_BYTES);
    f.resize(FRAME_BYTES, 0);
    f
}

fn mask_of(spec: &Spec, n: u32) -> KeyMask {
    let mut m = KeyMask::default();
    m.base.in_port = u32::MAX;
    m.base.recirc_id = u32::MAX;
    m.base.dl_type = u16::MAX;
    m.base.shape = u16::MAX;
    m.base.vlan_tci = u16::MAX;
    m.base.vlan_tpid = u16::MAX;
    m.base.nw_proto = 0xff;
    if matches!(spec.spread, Spread::Even(0)) {
        return m;
    }
    if matches!(spec.spread, Spread::Exact) {
        m.base.dl_src = [0xff; 6];
        m.base.dl_dst = [0xff; 6];
        m.base.tp_src = u16::MAX;
        m.base.tp_dst = u16::MAX;
    }
    // Different masks: more and more bits of fields equal in all packets, after the byte that selects the mask.
    let (bits, more) = (8 + n % 17, n / 17);
    m.base.tp_src = ((u32::from(u16::MAX) << (16 - more)) as u16).max(m.base.tp_src);
    if spec.kind == Kind::Ipv6 {
        m.ipv6.src = [0xff; 16];
        m.ipv6.dst = (u128::MAX << (128 - 8 - bits)).to_be_bytes();
    } else {
        m.base.nw_src = u32::MAX;
        m.base.nw_dst = u32::MAX << (32 - bits);
    }
    m
}

/// The mask of a flow.
fn mask_number(spread: Spread, n: u32, state: &mut u64) -> u32 {
    match spread {
        Spread::Even(masks) => n % masks.max(1),
        // The newest mask is hit most, so that insertion order is the worst order.
        Spread::Skewed(masks) => masks - 1 - (random(state) as u32).trailing_zeros().min(masks - 1),
        Spread::Exact => 0,
    }
}

struct Settings {
    seconds: f64,
    only: String,
    batch: usize,
    cache: bool,
    rank: bool,
    vector: bool,
    template: bool,
}

impl Settings {
    fn from_args() -> Settings {
        let mut s = Settings {
            seconds: 0.3,
            only: String::new(),
            batch: 32,
            cache: true,
            rank: true,
            vector: true,
            template: true,
        };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            let mut value = || args.next().unwrap_or_else(|| panic!("{arg} needs a value"));
            match arg.as_str() {
                "--seconds" => s.seconds = value().parse().expect("--seconds: a number"),
                "--only" => s.only = value(),
                "--batch" => s.batch = value().parse().expect("--batch: a number"),
                "--no-cache" => s.cache = false,
                "--no-rank" => s.rank = false,
                "--no-vector" => s.vector = false,
                "--no-template" => s.template = false,
                other => panic!("{other}: not an option; see the head of speed.rs"),
            }
        }
        assert!((1..=CHUNK_PACKETS).contains(&s.batch), "--batch: 1 to {CHUNK_PACKETS}");
        s
    }

    fn config(&self) -> PmdConfig {
        let mut config = PmdConfig::new(PmdId::Core(0), 0x5eed);
        if !self.cache {
            config.tuning.cache_insert_inv_prob = 0;
        }
        config.vector = self.vector;
        config.template = self.template;
        config
    }
}

struct Case {
    name: &'static str,
    pmd: Pmd,
    /// Frames in order of arrival.
    frames: Vec<u8>,
    at: usize,
    sink: Sink,
    /// Per chunk.
    ns: Vec<f64>,
    state_bytes: f64,
    stats: PmdStats,
}

impl Case {
    fn new(spec: &Spec, settings: &Settings) -> Case {
        let shared = Arc::new(DpShared::new(7));
        if spec.pipeline.bond {
            let members: Vec<DpPort> = (0..256).map(|hash| DpPort(2 + hash % spec.pipeline.ports)).collect();
            shared.bond_balancer().set_bond(BOND, &members);
        }
        let mut pmd = Pmd::new(settings.config(), shared);
        pmd.port_add(DpPort(1)).expect("port 1");
        for port in 2..2 + spec.pipeline.ports {
            pmd.port_add(DpPort(port)).expect("an output port");
        }
        let mut sink = Sink::default();
        let mut state = 1;
        let flows: Vec<Vec<u8>> =
            (0..spec.flows).map(|n| frame(spec.kind, n, mask_number(spec.spread, n, &mut state))).collect();
        let before = resident_bytes();
        let mut installed = 0;
        for n in 0..spec.flows {
            installed += put(&mut pmd, spec, &flows[n as usize], n, &mut sink);
        }
        let state_bytes = (resident_bytes() - before) / f64::from(installed);
        // Random order, the same in every run.
        let mut frames = Vec::new();
        for _ in 0..flows.len().max(REPLAY_MIN) {
            frames.extend(&flows[random(&mut state) as usize % flows.len()]);
        }
        let stats = *pmd.stats();
        Case { name: spec.name, pmd, frames, at: 0, sink, ns: Vec::new(), state_bytes, stats }
    }

    /// One chunk; returns nanoseconds per packet.
    fn chunk(&mut self, batch_packets: usize) -> f64 {
        let (sent, mut packets) = (self.sink.sent, 0);
        let mut batch = PacketBatch::new();
        let started = Instant::now();
        while packets < CHUNK_PACKETS {
            self.pmd.pool().alloc_burst(&mut batch, batch_packets);
            for packet in batch.packets_mut() {
                let frame = &self.frames[self.at..self.at + FRAME_BYTES];
                self.at += FRAME_BYTES;
                if self.at == self.frames.len() {
                    self.at = 0;
                }
                packet.set_frame(frame);
            }
            self.pmd.process_batch(DpPort(1), &mut batch, 1_000_000, &mut self.sink);
            self.pmd.flush_output(&mut self.sink);
            packets += batch_packets;
        }
        let ns = started.elapsed().as_nanos() as f64 / packets as f64;
        assert_eq!(self.sink.sent - sent, packets as u64, "{}: every packet was sent", self.name);
        // Handlers take samples on other processors.
        let upcalls = std::mem::take(&mut self.sink.upcalls);
        let is_sample = |upcall: &Upcall| matches!(upcall.kind, UpcallKind::Action(_));
        assert!(upcalls.iter().all(is_sample), "{}: no packet missed", self.name);
        assert!(self.pmd.ledger().balances(), "{}: {:?}", self.name, self.pmd.ledger());
        ns
    }

    fn run(&mut self, time: Duration, batch_packets: usize, keep: bool) {
        let started = Instant::now();
        while started.elapsed() < time {
            let ns = self.chunk(batch_packets);
            if keep {
                self.ns.push(ns);
            }
        }
    }

    fn warm_up(&mut self, settings: &Settings) {
        let chunks = 2 * self.frames.len() / FRAME_BYTES / CHUNK_PACKETS + 64;
        for round in 0..2 {
            for _ in 0..chunks {
                self.chunk(settings.batch);
            }
            if settings.rank && round == 0 {
                self.pmd.tick(2_000_000);
            }
        }
        self.stats = *self.pmd.stats();
    }

    fn print(&mut self, ghz: f64) {
        self.ns.sort_by(f64::total_cmp);
        let at = |part: usize| self.ns[(self.ns.len() - 1) * part / 100];
        let (now, then) = (self.pmd.stats(), &self.stats);
        let hits = now.megaflow_hits - then.megaflow_hits;
        let lookups = (now.subtable_lookups - then.subtable_lookups) as f64 / hits.max(1) as f64;
        let cached = (now.cache_hits - then.cache_hits) as f64 / (now.received - then.received) as f64;
        println!(
            "{:<32} {:>7.1} {:>7.1} {:>7.0} {:>7.0} {:>6.1} {:>6.2} {:>8} {:>8.0}",
            self.name,
            at(10),
            at(50),
            at(10) * ghz,
            at(50) * ghz,
            cached * 100.0,
            lookups,
            self.pmd.cache_stats().entries,
            self.state_bytes,
        );
    }
}

/// Packets of the attacker before the measurement: the same number of masks, without a bound.
const ATTACK_BEFORE: u32 = 1000;

/// A mask explosion beside the traffic of a case: its cost to that traffic if it comes from another port, and from
/// the same one; at about one such packet per millisecond, and sixteen. The sides alternate; all time counts,
/// including that of the attacker's packets, misses and megaflows.
fn explosion(settings: &Settings) {
    println!("\n{:<32} {:>7} {:>7} {:>7} {:>8}", "a mask for each packet", "ns", "rate", "masks", "refused");
    for (chunks, rate) in [(16, "1 a ms"), (1, "16 a ms")] {
        let mut sides: Vec<(Case, Option<Attacker>)> = [None, Some(3), Some(1)]
            .map(|port| (Case::new(&SPECS[1], settings), port.map(|port| Attacker { port, packets: 0 })))
            .into();
        for (side, attacker) in &mut sides {
            side.pmd.port_add(DpPort(3)).expect("port 3");
            side.warm_up(settings);
            if let Some(attacker) = attacker {
                (0..ATTACK_BEFORE).for_each(|_| attacker.send(side));
            }
        }
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs_f64(settings.seconds * 5.0) {
            for (side, attacker) in &mut sides {
                let began = Instant::now();
                if let Some(attacker) = attacker {
                    attacker.send(side);
                }
                let attack_ns = began.elapsed().as_nanos() as f64 / (chunks * CHUNK_PACKETS) as f64;
                let ns = (0..chunks).map(|_| side.chunk(settings.batch)).sum::<f64>() / chunks as f64;
                side.ns.push(attack_ns + ns);
            }
        }
        let plain = median(&mut sides[0].0.ns);
        for ((side, _), who) in sides.iter_mut().zip(["no attacker", "another port", "the same port"]) {
            let (ns, stats) = (median(&mut side.ns), side.pmd.stats());
            let name = format!("{who}, {rate}");
            println!(
                "{name:<32} {ns:>7.1} {:>7.2} {:>7} {:>8}",
                plain / ns,
                stats.masks,
                stats.masks_refused
            );
        }
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

struct Attacker {
    port: u32,
    packets: u32,
}

impl Attacker {
    /// One packet that misses, and the slow path's reply: a megaflow with a new mask.
    fn send(&mut self, side: &mut Case) {
        self.packets += 1;
        let n = self.packets;
        let frame = frame(Kind::Ipv4, 0x80_0000 | n, 250);
        let mut batch = PacketBatch::new();
        side.pmd.pool().alloc_burst(&mut batch, 1);
        batch.packets_mut()[0].set_frame(&frame);
        side.pmd.process_batch(DpPort(self.port), &mut batch, 1_000_000, &mut side.sink);
        let upcall = side.sink.upcalls.pop().expect("it matches nothing");
        let mut mask = mask_of(&SPECS[1], 0);
        mask.base.dl_src = [0xff, 0, 0, 0, (n >> 8) as u8, n as u8];
        let actions: Arc<[DpAction]> = vec![DpAction::Output(Output(DpPort(2)))].into();
        let put = FlowPut {
            ufid: upcall.ufid,
            key: upcall.key,
            mask,
            actions: actions.clone(),
            mode: PutMode::Create,
        };
        let execute = Execute {
            packet: upcall.packet,
            key: upcall.key,
            actions,
            ticket: upcall.ticket,
            upcall: 0,
            went_on: false,
        };
        let ops = vec![DpifOp::FlowPut(Box::new(put)), DpifOp::Execute(Box::new(execute))];
        let results = side.pmd.apply(ops, 1_000_000, &mut side.sink);
        assert!(matches!(results[1], OpResult::Done), "{results:?}");
        side.pmd.flush_output(&mut side.sink);
    }
}

/// Installs the megaflows of a frame, unless others cover it; returns the number installed.
fn put(pmd: &mut Pmd, spec: &Spec, frame: &[u8], n: u32, sink: &mut Sink) -> u32 {
    let mut key = FlowKey::default();
    extract(frame, &Metadata { in_port: 1, ..Metadata::default() }, 1, &mut key);
    let mask = match spec.kind {
        Kind::Ipv6 => u32::from(key.ipv6.dst[1]),
        _ => key.base.nw_dst >> 24,
    };
    let mut installed = 0;
    for stage in 0..=spec.pipeline.recirculations {
        key.base.recirc_id = stage;
        let put = FlowPut {
            ufid: Ufid((u128::from(stage) << 32) + u128::from(n) + 1),
            key,
            mask: mask_of(spec, mask),
            actions: stage_actions(&spec.pipeline, stage, n).into(),
            mode: PutMode::Create,
        };
        installed += match pmd.apply(vec![DpifOp::FlowPut(Box::new(put))], 0, sink).remove(0) {
            OpResult::Done => 1,
            OpResult::Failed(dpif::DpifError::Exists(_)) if matches!(spec.spread, Spread::Even(0)) => 0,
            other => panic!("flow {n}: {other:?}"),
        };
    }
    installed
}

/// The actions after this number of recirculations. They rewrite only fields that [`mask_of`] one mask does not
/// match.
fn stage_actions(pipeline: &Pipeline, stage: u32, n: u32) -> Vec<DpAction> {
    let mut actions = Vec::new();
    if let Some(probability) = u32::MAX.checked_div(pipeline.sampling) {
        let cookie = UserCookie::Sflow(SflowCookie { vlan_tci: 0, output: 1 });
        let actions_of_sample = vec![Userspace(cookie).into()];
        actions.push(Sample { probability, actions: actions_of_sample }.into());
    }
    if pipeline.rewrites {
        let mac = [2, 0, 0, 0, 1, stage as u8];
        let eth =
            Masked { value: EthSet { src: mac, dst: mac }, mask: EthSet { src: [0xff; 6], dst: [0xff; 6] } };
        let ipv4 = |dst, ttl| Ipv4Set { src: 0, dst, tos: 0, ttl };
        let ports = |dst| PortsSet { src: 0, dst };
        actions.extend([
            DpAction::Set(SetAction::Eth(eth)),
            DpAction::Set(SetAction::Ipv4(Masked { value: ipv4(stage + 1, 63), mask: ipv4(0xff, 0xff) })),
            DpAction::Set(SetAction::Udp(Masked { value: ports(stage as u16), mask: ports(0xffff) })),
        ]);
    }
    actions.push(match stage < pipeline.recirculations {
        true => DpAction::Recirc(Recirc(RecircId(stage + 1))),
        false if pipeline.bond => DpAction::LbOutput(LbOutput(BOND)),
        false => DpAction::Output(Output(DpPort(2 + n % pipeline.ports))),
    });
    actions
}

fn resident_bytes() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok()).unwrap_or(0.0) * 4096.0
}

/// Processor frequency according to the system; 1 if unknown.
fn ghz() -> f64 {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|l| l.starts_with("cpu MHz"));
    line.and_then(|l| l.split(": ").nth(1)?.parse::<f64>().ok()).map_or(1.0, |mhz| mhz / 1000.0)
}

fn main() {
    let settings = Settings::from_args();
    let is_name = SPECS.iter().any(|s| s.name == settings.only);
    let chosen = |s: &&Spec| if is_name { s.name == settings.only } else { s.name.contains(&settings.only) };
    let specs = SPECS.iter().filter(chosen);
    let mut cases: Vec<Case> = specs.map(|s| Case::new(s, &settings)).collect();
    for case in &mut cases {
        case.warm_up(&settings);
    }
    for _ in 0..5 {
        for case in &mut cases {
            // The first chunk starts with the caches full of another case's data.
            case.run(Duration::from_secs_f64(settings.seconds / 20.0), settings.batch, false);
            case.run(Duration::from_secs_f64(settings.seconds / 5.0), settings.batch, true);
        }
    }
    let ghz = ghz();
    println!(
        "{:<32} {:>7} {:>7} {:>7} {:>7} {:>6} {:>6} {:>8} {:>8}",
        format!("batch {}, {ghz:.2} GHz", settings.batch),
        "ns p10",
        "p50",
        "cyc p10",
        "p50",
        "cache%",
        "lookup",
        "entries",
        "B/flow"
    );
    for case in &mut cases {
        case.print(ghz);
    }
    if settings.only.is_empty() {
        explosion(&settings);
    }
}
