//! Tests of the fast path on one fixture: a forwarding core, a driver that records output and upcalls, and packet
//! conservation checked after every step.

mod actions;
mod bonds;
mod control;
mod drops;
mod explosion;
mod forwarding;
mod frames;
mod groups;
mod handover;
mod hostile;
mod keys;
mod marks;
mod meters;
mod operations;
mod oracle;
mod parking;
pub(crate) mod parses;
mod repeats;
mod samples;
mod tunnel_kinds;
mod tunnels;
mod upkeep;

use crate::*;
use dpif::actions::Output;
use dpif::*;
use flow::extract::{Metadata, extract};
use flow::{DpPort, FlowKey, KeyMask, Ufid};
use packet::{Packet, PacketBatch, PacketPool};
use std::sync::Arc;

/// Records sent packets and upcalls.
#[derive(Default)]
struct Recorder {
    sent: Vec<(u32, Vec<u8>)>,
    packets: Vec<Packet>,
    upcalls: Vec<Upcall>,
    /// The upcall queue is full.
    full: bool,
    /// Maximum packets that the device accepts per call.
    tx_room: Option<usize>,
}

impl UpcallSink for Recorder {
    fn has_room(&self, _: DpPort, _: &FlowKey) -> bool {
        !self.full
    }

    fn upcall(&mut self, upcall: Box<Upcall>) -> Result<(), Box<Upcall>> {
        if self.full {
            return Err(upcall);
        }
        self.upcalls.push(*upcall);
        Ok(())
    }
}

impl PmdIo for Recorder {
    fn transmit(&mut self, port: DpPort, batch: &mut PacketBatch, pool: &mut PacketPool) -> TxReport {
        let mut report = TxReport::default();
        for (n, packet) in batch.drain().enumerate() {
            if self.tx_room.is_some_and(|room| n >= room) {
                report.dropped[DropReason::TxFailed as usize] += 1;
                pool.free(packet);
                continue;
            }
            report.sent_packets += 1;
            report.sent_bytes += packet.len() as u64;
            self.sent.push((port.0, packet.data().to_vec()));
            self.packets.push(packet.clone());
            pool.free(packet);
        }
        report
    }
}

/// A forwarding core with ports 1 to 4, and tunnels 10 (VXLAN), 11 (Geneve) and 12 (GRE), which are no ports of it.
struct Rig {
    pmd: Pmd,
    io: Recorder,
    now_us: u64,
    ufids: u128,
}

impl Rig {
    fn with(change: impl FnOnce(&mut PmdConfig)) -> Rig {
        let mut config = PmdConfig::new(PmdId::Core(0), 7);
        change(&mut config);
        let shared = Arc::new(DpShared::new(7));
        for (port, kind) in (10..).zip(TunnelKind::ALL) {
            let dst_port = kind.usual_port().unwrap_or(0);
            shared.set_tunnel(DpPort(port), Some(TunnelPort { kind, dst_port, gbp: false, l3: false }));
        }
        let mut pmd = Pmd::new(config, shared);
        for port in 1..=4 {
            pmd.port_add(DpPort(port)).unwrap();
        }
        Rig { pmd, io: Recorder::default(), now_us: 1_000_000, ufids: 0 }
    }

    fn new() -> Rig {
        Rig::with(|_| {})
    }

    fn receive(&mut self, port: u32, frames: &[Vec<u8>]) {
        self.receive_packets(port, frames.iter().map(|f| Packet::from_slice(f)).collect());
    }

    fn receive_packets(&mut self, port: u32, packets: Vec<Packet>) {
        let mut batch: PacketBatch = packets.into_iter().collect();
        self.pmd.process_batch(DpPort(port), &mut batch, self.now_us, &mut self.io);
        assert!(batch.is_empty());
        self.settle();
    }

    fn settle(&mut self) {
        assert!(self.pmd.ledger().balances(), "{:?}", self.pmd.ledger());
        self.pmd.flush_output(&mut self.io);
        let ledger = self.pmd.ledger();
        assert!(ledger.balances(), "{ledger:?}");
        assert_eq!(ledger.queued, 0);
    }

    fn apply(&mut self, op: DpifOp) -> OpResult {
        let mut results = self.pmd.apply(vec![op], self.now_us, &mut self.io);
        assert_eq!(results.len(), 1);
        self.settle();
        results.remove(0)
    }

    fn put(&mut self, key: FlowKey, mask: KeyMask, actions: Vec<DpAction>) -> (Ufid, OpResult) {
        self.ufids += 1;
        let ufid = Ufid(self.ufids);
        let put = FlowPut { ufid, key, mask, actions: actions.into(), mode: PutMode::Create };
        (ufid, self.apply(DpifOp::FlowPut(Box::new(put))))
    }

    fn flow(&mut self, port: u32, frame: &[u8], mask: KeyMask, actions: Vec<DpAction>) -> Ufid {
        let (ufid, result) = self.put(key_of(port, frame), mask, actions);
        assert!(matches!(result, OpResult::Done), "{result:?}");
        ufid
    }

    fn execute(&mut self, packet: Packet, key: FlowKey, actions: Vec<DpAction>, ticket: Option<Ticket>) {
        let execute = Execute { packet, key, actions: actions.into(), ticket, upcall: 0, went_on: false };
        let result = self.apply(DpifOp::Execute(Box::new(execute)));
        assert!(matches!(result, OpResult::Done), "{result:?}");
    }

    fn drops(&self, reason: DropReason) -> u64 {
        self.pmd.stats().drops[reason as usize]
    }

    fn sent(&mut self) -> Vec<(u32, Vec<u8>)> {
        std::mem::take(&mut self.io.sent)
    }
}

fn key_of(port: u32, frame: &[u8]) -> FlowKey {
    let mut key = FlowKey::default();
    extract(frame, &Metadata { in_port: port, ..Metadata::default() }, 1, &mut key);
    key
}

/// Fields in every mask.
fn least_mask() -> KeyMask {
    let mut mask = KeyMask::default();
    mask.base.in_port = u32::MAX;
    mask.base.recirc_id = u32::MAX;
    mask.base.dl_type = u16::MAX;
    mask.base.shape = u16::MAX;
    mask
}

fn out(port: u32) -> DpAction {
    DpAction::Output(Output(DpPort(port)))
}
