//! How fast the fast path is in process: frames in memory → copy to a pooled buffer → all stages → a sink that frees.
//!
//! `cargo run --release -p datapath --example speed [SECONDS [NAME]]` prints, for each case, nanoseconds and packets a second: the
//! median of five rounds and their extremes; with a name only that case. Cases are measured in turn, round by round.

#![allow(clippy::disallowed_methods, reason = "an example measures time")]

use datapath::{DpShared, Pmd, PmdConfig, PmdIo, TxReport};
use dpif::{DpAction, DpifOp, FlowPut, OpResult, PmdId, PutMode, Upcall, UpcallSink};
use flow::extract::{Metadata, extract};
use flow::{DpPort, FlowKey, KeyMask, Ufid};
use packet::{BATCH_MAX_PACKETS, PacketBatch, PacketPool};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Counts and frees.
#[derive(Default)]
struct Sink {
    sent: u64,
    upcalls: u64,
}

impl UpcallSink for Sink {
    fn upcall(&mut self, _: Upcall) -> Result<(), Box<Upcall>> {
        self.upcalls += 1;
        Ok(())
    }
}

impl PmdIo for Sink {
    fn transmit(&mut self, _: DpPort, batch: &mut PacketBatch, pool: &mut PacketPool) -> TxReport {
        let packets = batch.len() as u64;
        batch.free_into(pool);
        self.sent += packets;
        TxReport { sent_packets: packets, sent_bytes: packets * 64, ..TxReport::default() }
    }
}

fn frame(n: u32) -> Vec<u8> {
    let mut f = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    f.extend([0x45, 0, 0, 50, 0, 1, 0, 0, 64, 17, 0, 0, 10]);
    f.extend(&n.to_be_bytes()[1..]);
    f.extend([10, 200, 0, 1, 0x12, 0x34, 0, 80, 0, 30, 0, 0]);
    f.resize(64, 0);
    f
}

fn mask(kind: u32) -> KeyMask {
    let mut m = KeyMask::default();
    m.base.in_port = u32::MAX;
    m.base.recirc_id = u32::MAX;
    m.base.dl_type = u16::MAX;
    m.base.shape = u16::MAX;
    m.base.nw_proto = 0xff;
    m.base.nw_src = u32::MAX;
    // Different masks for the same packets: more and more bits of a field that they agree in.
    m.base.nw_dst = (u64::from(u32::MAX) << (32 - kind)) as u32;
    m
}

struct Case {
    name: &'static str,
    pmd: Pmd,
    frames: Vec<Vec<u8>>,
    at: usize,
    sink: Sink,
    ns: Vec<f64>,
}

impl Case {
    fn new(name: &'static str, flows: u32, masks: u32, cached: bool) -> Case {
        let mut config = PmdConfig::new(PmdId::Core(0), 0x5eed);
        if !cached {
            config.cache_entries_max = 0;
        }
        let mut pmd = Pmd::new(config, Arc::new(DpShared::new()));
        pmd.port_add(DpPort(1)).expect("port 1");
        pmd.port_add(DpPort(2)).expect("port 2");
        let mut sink = Sink::default();
        let frames: Vec<Vec<u8>> = (0..flows).map(frame).collect();
        for (n, frame) in frames.iter().enumerate() {
            let mut key = FlowKey::default();
            extract(frame, &Metadata { in_port: 1, ..Metadata::default() }, 1, &mut key);
            let put = FlowPut {
                ufid: Ufid(n as u128 + 1),
                key,
                mask: mask(n as u32 % masks),
                actions: vec![DpAction::Output(DpPort(2))].into(),
                mode: PutMode::Create,
            };
            let results = pmd.apply(vec![DpifOp::FlowPut(Box::new(put))], 0, &mut sink);
            assert!(matches!(results[..], [OpResult::Done]), "{results:?}");
        }
        // Random order, the same in every run.
        let mut random = 1u64;
        let order = (0..frames.len().max(1 << 16)).map(|_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            frames[(random >> 33) as usize % frames.len()].clone()
        });
        let frames = order.collect();
        Case { name, pmd, frames, at: 0, sink, ns: Vec::new() }
    }

    fn round(&mut self, time: Duration) {
        let (started, sent) = (Instant::now(), self.sink.sent);
        let mut batch = PacketBatch::new();
        let mut packets = 0u64;
        while started.elapsed() < time {
            for _ in 0..64 {
                for _ in 0..BATCH_MAX_PACKETS {
                    let frame = &self.frames[self.at];
                    self.at = (self.at + 1) % self.frames.len();
                    let mut packet = self.pmd.pool().alloc(frame.len());
                    packet.set_frame(frame);
                    batch.push(packet);
                }
                self.pmd.process_batch(DpPort(1), &mut batch, 1_000_000, &mut self.sink);
                self.pmd.flush_output(&mut self.sink);
                packets += BATCH_MAX_PACKETS as u64;
            }
        }
        let ns = started.elapsed().as_nanos() as f64 / packets as f64;
        assert_eq!(self.sink.sent - sent, packets, "every packet was sent");
        assert_eq!(self.sink.upcalls, 0);
        self.ns.push(ns);
    }
}

fn main() {
    let seconds: f64 = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(0.6);
    let mut cases = vec![
        Case::new("1 flow", 1, 1, true),
        Case::new("1k flows, 1 mask", 1000, 1, true),
        Case::new("100k flows, 1 mask", 100_000, 1, true),
        Case::new("1k flows, 17 masks", 1000, 17, true),
        Case::new("100k flows, 17 masks", 100_000, 17, true),
        Case::new("1 flow, no cache", 1, 1, false),
        Case::new("100k flows, 1 mask, no cache", 100_000, 1, false),
        Case::new("1k flows, 17 masks, no cache", 1000, 17, false),
    ];
    if let Some(name) = std::env::args().nth(2) {
        cases.retain(|c| c.name == name);
    }
    for case in &mut cases {
        case.round(Duration::from_secs_f64(seconds));
        case.ns.clear();
    }
    for _ in 0..5 {
        for case in &mut cases {
            case.round(Duration::from_secs_f64(seconds));
        }
    }
    println!("{:<32} {:>8} {:>14} {:>8} {:>8} {:>9}", "case", "ns", "packets/s", "min ns", "max ns", "cache");
    for case in &mut cases {
        case.ns.sort_by(f64::total_cmp);
        let (min, median, max) = (case.ns[0], case.ns[2], case.ns[4]);
        let entries = case.pmd.cache_stats().entries;
        println!("{:<32} {median:>8.1} {:>14.0} {min:>8.1} {max:>8.1} {entries:>9}", case.name, 1e9 / median);
    }
}
