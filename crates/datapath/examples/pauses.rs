//! Longest pauses of a forwarding core: the time of single calls that a forwarding thread makes between two bursts.
//!
//! `cargo run --release -p datapath --example pauses -- [FLOWS]` fills cores with that number of megaflows (100,000) and
//! prints for each operation the number of calls, the longest one and all together, in milliseconds. Other load of the
//! machine lengthens calls: each is made in three rounds, and the shortest time counts.

#![allow(clippy::disallowed_methods, reason = "an example measures time")]

use datapath::{DpShared, FlowWalk, Leaving, Pmd, PmdConfig, PmdIo, TxReport};
use dpif::actions::{Output, Trunc};
use dpif::{DpAction, DpifOp, FlowPut, OpResult, PmdId, PutMode, Upcall, UpcallSink};
use flow::extract::{Metadata, extract};
use flow::{DpPort, FlowKey, KeyMask, Ufid};
use packet::{PacketBatch, PacketPool};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Ports with flows.
const PORTS: u32 = 200;
/// Masks of each port where there are many.
const MASKS: u32 = 500;

struct Sink;

impl UpcallSink for Sink {
    fn upcall(&mut self, upcall: Box<Upcall>) -> Result<(), Box<Upcall>> {
        Err(upcall)
    }
}

impl PmdIo for Sink {
    fn transmit(&mut self, _: DpPort, batch: &mut PacketBatch, pool: &mut PacketPool) -> TxReport {
        let sent_packets = batch.len() as u64;
        batch.free_into(pool);
        TxReport { sent_packets, ..TxReport::default() }
    }
}

/// Rounds of each call.
const ROUNDS: usize = 3;

/// Times of calls by operation, in order; a further round keeps the shorter time of each call.
#[derive(Default)]
struct Times {
    operations: Vec<(&'static str, Vec<Duration>)>,
    at: usize,
}

impl Times {
    /// The calls of one operation.
    fn of<T>(&mut self, name: &'static str, mut call: impl FnMut(u32) -> Option<T>) {
        if self.operations.len() == self.at {
            self.operations.push((name, Vec::new()));
        }
        let times = &mut self.operations[self.at].1;
        self.at += 1;
        for n in 0.. {
            let begun = Instant::now();
            let out = call(n);
            let took = begun.elapsed();
            if out.is_none() {
                return;
            }
            match times.get_mut(n as usize) {
                Some(time) => *time = took.min(*time),
                None => times.push(took),
            }
        }
    }

    fn print(&self) {
        println!("{:44} {:>8} {:>10} {:>10}", "operation", "calls", "longest", "all");
        let ms = |t: Duration| t.as_secs_f64() * 1e3;
        for (name, times) in &self.operations {
            let (longest, all) = (times.iter().max().copied().unwrap_or_default(), times.iter().sum());
            println!("{name:44} {:>8} {:>10.3} {:>10.1}", times.len(), ms(longest), ms(all));
        }
    }
}

/// Flows of a core, their ports, masks and actions.
#[derive(Clone, Copy)]
struct Shape {
    flows: u32,
    ports: u32,
    /// Masks of each port.
    masks: u32,
    /// Each flow has actions of its own.
    distinct: bool,
}

fn frame(n: u32) -> Vec<u8> {
    let mut f = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 46, 0, 1, 0, 0, 64, 17, 0, 0, 10];
    f.extend(&n.to_be_bytes()[1..]);
    f.extend([10, 200, 0, 1, 0x12, 0x34, 0, 80, 0, 26, 0, 0]);
    f.resize(60, 0);
    f
}

fn put(shape: Shape, n: u32) -> DpifOp {
    let port = 1 + n % shape.ports;
    let mut key = FlowKey::default();
    extract(&frame(n), &Metadata { in_port: port, ..Metadata::default() }, 1, &mut key);
    let mut mask = KeyMask::default();
    mask.base.in_port = u32::MAX;
    mask.base.recirc_id = u32::MAX;
    mask.base.dl_type = u16::MAX;
    mask.base.shape = u16::MAX;
    mask.base.nw_src = u32::MAX;
    mask.base.tcp_flags = (n / shape.ports % shape.masks) as u16;
    // Masks of ports differ.
    mask.base.nw_dst = if shape.masks > 1 { port } else { 0 };
    let output = DpAction::Output(Output(DpPort(PORTS + 1)));
    let cut = DpAction::Trunc(Trunc(64 + n));
    let actions: Arc<[DpAction]> = if shape.distinct { [cut, output].into() } else { [output].into() };
    let put = FlowPut { ufid: Ufid(u128::from(n) + 1), key, mask, actions, mode: PutMode::Create };
    DpifOp::FlowPut(Box::new(put))
}

fn fill(times: &mut Times, shape: Shape, name: &'static str) -> Pmd {
    let mut config = PmdConfig::new(PmdId::Core(0), 0x5eed);
    config.tuning.masks_per_port_free = usize::MAX;
    let mut pmd = Pmd::new(config, Arc::new(DpShared::new(7)));
    for port in 1..=PORTS + 1 {
        pmd.port_add(DpPort(port)).expect("a port");
    }
    let mut ops: Vec<DpifOp> = (0..shape.flows).rev().map(|n| put(shape, n)).collect();
    times.of(name, |_| {
        let done = pmd.apply(vec![ops.pop()?], 1_000_000, &mut Sink);
        assert!(matches!(done[..], [OpResult::Done]), "{done:?}");
        Some(())
    });
    pmd
}

/// Packets of all flows several times, so that the cache grows.
fn forward(times: &mut Times, pmd: &mut Pmd, shape: Shape) {
    let bursts = shape.flows / 32;
    times.of("forward a burst, the cache grows", |n| {
        let first = n % bursts * 32;
        let mut batch: PacketBatch =
            (first..first + 32).map(|n| packet::Packet::from_slice(&frame(n))).collect();
        pmd.process_batch(DpPort(1), &mut batch, 2_000_000, &mut Sink);
        pmd.flush_output(&mut Sink);
        (n < 6 * bursts).then_some(())
    });
}

fn once<T>(n: u32, call: impl FnOnce() -> T) -> Option<T> {
    (n == 0).then(call)
}

fn round(times: &mut Times, flows: u32) {
    times.at = 0;
    let one_port = Shape { flows, ports: 1, masks: 1, distinct: false };
    let mut pmd = fill(times, one_port, "put a flow");
    forward(times, &mut pmd, one_port);
    times.of("remove a port", |n| once(n, || pmd.port_remove(DpPort(1), &mut Sink)));
    times.of("a slice of the removal of its flows", |_| pmd.upkeep());

    let mut pmd = fill(times, Shape { distinct: true, ..one_port }, "put a flow with actions of its own");
    times.of("delete all flows", |n| once(n, || pmd.apply(vec![DpifOp::FlowFlush], 3_000_000, &mut Sink)));
    times.of("a slice of the release of their memory", |_| pmd.upkeep());

    let many_masks = Shape { flows, ports: PORTS, masks: MASKS, distinct: false };
    let mut pmd = fill(times, many_masks, "put a flow, 500 masks for each of 200 ports");
    times.of("tick, 500 masks for each of 200 ports", |n| once(n, || pmd.tick(3_000_000)));
    times.of("a slice of the ranking", |_| pmd.upkeep());
    let mut walk = FlowWalk::default();
    times.of("a slice of the flows of 100 leaving ports", |_| {
        let leaving = |port: DpPort| (port.0 <= 100).then_some(Leaving::Removed);
        (!walk.is_done()).then(|| pmd.take_flows(&mut walk, usize::MAX, leaving))
    });
}

fn main() {
    let flows = std::env::args().nth(1).map_or(100_000, |n| n.parse().expect("FLOWS: a number"));
    let mut times = Times::default();
    (0..ROUNDS).for_each(|_| round(&mut times, flows));
    times.print();
}
