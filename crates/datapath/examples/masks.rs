//! Cost of a mask explosion for known flows of the same port: `cargo run --release -p datapath --example masks --
//! [ROUNDS [FREE]]`, with that number of free places of a port's list of masks.
//!
//! Rules that examine addresses and ports bit by bit give each crafted packet another mask. A crafted packet comes with
//! every hundredth packet of the victim, as 5,000 a second beside 500,000. The program answers misses at once, without the
//! cost of translation. Each case prints nanoseconds per packet of the victim without and with the attack, in turn, and upcalls
//! of the victim for a thousand packets.

#![allow(clippy::disallowed_methods, reason = "an example measures time")]
use datapath::{DpShared, Pmd, PmdConfig, PmdIo, PmdTuning, TxReport};
use dpif::actions::Output;
use dpif::{DpAction, DpifOp, Execute, FlowPut, PmdId, PutMode, Upcall, UpcallSink};
use flow::{DpPort, FlowKey, KeyMask, Ufid};
use packet::{Packet, PacketBatch, PacketPool};
use std::sync::Arc;
use std::time::Instant;

/// Addresses and ports of the victim's rule.
const SRC: u32 = 0x0a00_0001;
const SPORT: u16 = 0x1234;
const DPORT: u16 = 80;
/// Packets of the victim for each crafted one.
const VICTIMS: u64 = 100;
const CHUNK_PACKETS: u64 = 32 * 200;

#[derive(Default)]
struct Sink {
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
        TxReport { sent_packets: packets, sent_bytes: packets * 64, ..TxReport::default() }
    }
}

fn frame(src: u32, dst: u32, sport: u16, dport: u16) -> Vec<u8> {
    let mut f = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 50, 0, 1, 0, 0, 64, 17, 0, 0];
    f.extend([src, dst].map(u32::to_be_bytes).concat());
    f.extend([sport, dport, 30, 0].map(u16::to_be_bytes).concat());
    f.resize(64, 0);
    f
}

/// The mask of a packet's translation: each field up to the first bit that differs from the rule's.
fn mask_of(key: &FlowKey) -> KeyMask {
    let mut m = KeyMask::default();
    (m.base.in_port, m.base.recirc_id, m.base.dl_type) = (u32::MAX, u32::MAX, u16::MAX);
    (m.base.shape, m.base.nw_proto) = (u16::MAX, 0xff);
    let upto = |different: u32, bits: u32| (different.leading_zeros() + 1).min(bits);
    let wide = |n: u32| ((1u64 << 32) - (1u64 << (32 - n))) as u32;
    m.base.nw_src = wide(upto(key.base.nw_src ^ SRC, 32));
    let port = |different: u16| (wide(upto(u32::from(different) << 16, 16)) >> 16) as u16;
    (m.base.tp_src, m.base.tp_dst) = (port(key.base.tp_src ^ SPORT), port(key.base.tp_dst ^ DPORT));
    m
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Headers that differ from the rule at any bit, with equal chances.
fn crafted(state: &mut u64) -> Vec<u8> {
    let flips = [random(state) % 32, random(state) % 16, random(state) % 16].map(|bit| 1u32 << bit);
    frame(SRC ^ flips[0], random(state) as u32, SPORT ^ flips[1] as u16, DPORT ^ flips[2] as u16)
}

struct Bed {
    pmd: Pmd,
    sink: Sink,
    flows: u32,
    at: u64,
    ufids: u128,
    state: u64,
    upcalls: u64,
    now_us: u64,
}

impl Bed {
    fn new(flows: u32, free: usize) -> Bed {
        let mut config = PmdConfig::new(PmdId::Core(0), 0x5eed);
        config.tuning.masks_per_port_free = free;
        let mut pmd = Pmd::new(config, Arc::new(DpShared::new(7)));
        [1, 2].into_iter().for_each(|port| pmd.port_add(DpPort(port)).expect("a port"));
        Bed { pmd, sink: Sink::default(), flows, at: 0, ufids: 0, state: 1, upcalls: 0, now_us: 1_000_000 }
    }

    fn receive(&mut self, frames: &[Vec<u8>]) {
        let mut batch: PacketBatch = frames.iter().map(|f| Packet::from_slice(f)).collect();
        self.pmd.process_batch(DpPort(1), &mut batch, self.now_us, &mut self.sink);
        for upcall in std::mem::take(&mut self.sink.upcalls) {
            self.ufids += 1;
            self.upcalls += u64::from(upcall.key.base.nw_src == SRC);
            let actions: Arc<[DpAction]> = vec![DpAction::Output(Output(DpPort(2)))].into();
            let put = FlowPut {
                ufid: Ufid(self.ufids),
                key: upcall.key,
                mask: mask_of(&upcall.key),
                actions: actions.clone(),
                mode: PutMode::Create,
            };
            let Upcall { packet, key, ticket, .. } = upcall;
            let execute = Execute { packet, key, actions, ticket, upcall: 0, went_on: false };
            let ops = vec![DpifOp::FlowPut(Box::new(put)), DpifOp::Execute(Box::new(execute))];
            self.pmd.apply(ops, self.now_us, &mut self.sink);
        }
        self.pmd.flush_output(&mut self.sink);
    }

    fn attack(&mut self, packets: u64) {
        (0..packets).for_each(|_| {
            let frame = crafted(&mut self.state);
            self.receive(&[frame]);
        });
    }

    /// A chunk of the victim; nanoseconds a packet.
    fn chunk(&mut self, attacks: bool) -> f64 {
        let start = Instant::now();
        let mut sent = 0;
        while sent < CHUNK_PACKETS {
            let mut frames: Vec<_> =
                (0..32).map(|n| frame(SRC, (self.at + n) as u32 % self.flows, SPORT, DPORT)).collect();
            self.at += 32;
            if attacks && sent / VICTIMS != (sent + 32) / VICTIMS {
                frames.push(crafted(&mut self.state));
            }
            self.receive(&frames[..frames.len().min(32)]);
            if frames.len() > 32 {
                self.receive(&frames[32..]);
            }
            sent += 32;
        }
        self.now_us += 10_000;
        if self.now_us.is_multiple_of(1_000_000) {
            self.pmd.tick(self.now_us);
            while self.pmd.upkeep().is_some() {}
        }
        start.elapsed().as_nanos() as f64 / sent as f64
    }
}

/// The lower quartile: other programs make chunks slower, never faster.
fn quartile(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 4]
}

fn main() {
    let argument =
        |at: usize, usual: usize| std::env::args().nth(at).map_or(usual, |n| n.parse().expect("a number"));
    let rounds = argument(1, 300);
    let free = argument(2, PmdTuning::default().masks_per_port_free);
    for (name, flows, is_known) in [
        ("1 flow, known before", 1, true),
        ("1,000 flows, known before", 1000, true),
        ("1,000,000 flows, known before", 1_000_000, true),
        ("1 flow, new", 1, false),
        ("1,000 flows, new", 1000, false),
        ("1,000,000 flows, new", 1_000_000, false),
    ] {
        let (mut quiet, mut busy) = (Bed::new(flows, free), Bed::new(flows, free));
        if is_known {
            busy.chunk(false);
        }
        busy.attack(4000);
        let (mut without, mut with) = (Vec::new(), Vec::new());
        let before = busy.upcalls;
        for _ in 0..rounds {
            without.push(quiet.chunk(false));
            with.push(busy.chunk(true));
        }
        let upcalls = (busy.upcalls - before) as f64 * 1000.0 / (rounds as u64 * CHUNK_PACKETS) as f64;
        let stats = *busy.pmd.stats();
        let (a, b) = (quartile(without), quartile(with));
        println!(
            "{name}: {a:.0} ns, attacked {b:.0} ns: {:.2} of the rate; {upcalls:.2} upcalls per thousand, {} masks, {:.1} lookups a megaflow hit",
            a / b,
            stats.masks,
            stats.subtable_lookups as f64 / stats.megaflow_hits.max(1) as f64,
        );
    }
}
