use super::*;
use crate::offload::{Offloads, Providers};
use crate::pmd::Purged;
use datapath::{DpShared, PmdConfig, PmdIo, TxReport};
use dpif::actions::Output;
use dpif::{DpAction, FlowRecord, FlowStats, Offloaded, PmdId, Upcall, UpcallSink};
use flow::{FlowKey, KeyMask, Ufid};
use packet::{PacketBatch, PacketPool};
use std::sync::mpsc::{TryRecvError, sync_channel};

struct NoIo;

impl UpcallSink for NoIo {
    fn upcall(&mut self, upcall: Box<Upcall>) -> Result<(), Box<Upcall>> {
        Err(upcall)
    }
}

impl PmdIo for NoIo {
    fn transmit(&mut self, _: DpPort, _: &mut PacketBatch, _: &mut PacketPool) -> TxReport {
        TxReport::default()
    }
}

fn core() -> Pmd {
    Pmd::new(PmdConfig::new(PmdId::Core(0), 7), Arc::new(DpShared::new(7)))
}

/// Flow `n` from port 1.
fn record(n: u32) -> FlowRecord {
    let (mut key, mut mask) = (FlowKey::default(), KeyMask::default());
    (key.base.in_port, key.base.dl_type, key.base.nw_src) = (1, 0x0800, n);
    (mask.base.in_port, mask.base.recirc_id, mask.base.nw_src) = (u32::MAX, u32::MAX, u32::MAX);
    (mask.base.dl_type, mask.base.shape) = (u16::MAX, u16::MAX);
    let actions = Arc::from([DpAction::Output(Output(DpPort(2)))]);
    let (stats, offloaded) = (FlowStats::default(), Offloaded::No);
    FlowRecord { ufid: Ufid(n.into()), key, mask, actions, stats, offloaded }
}

#[test]
fn a_port_goes_after_the_operations_that_came_before_and_no_others() {
    let mut slices = Slices { batches: 10, ..Slices::default() };
    let removal = |port| {
        let (done, _) = sync_channel(1);
        PortRemoval { port: DpPort(port), rx: Vec::new(), departure: Departure::default(), done }
    };
    slices.schedule(removal(1), 3);
    slices.schedule(removal(2), 0);
    slices.batches = 12;
    assert!(slices.next_removal(false).is_none());
    slices.batches = 13;
    assert_eq!(slices.next_removal(false).map(|g| g.port), Some(DpPort(1)));
    assert_eq!(slices.next_removal(false).map(|g| g.port), Some(DpPort(2)));
    // Batches that another thread took back are not waited for.
    slices.schedule(removal(3), 100);
    assert_eq!(slices.next_removal(true).map(|g| g.port), Some(DpPort(3)));
    assert!(slices.next_removal(true).is_none());
}

#[test]
fn queues_follow_their_flows_and_a_departure_lasts_until_the_flows_are_gone() {
    let (mut core, mut rx, mut slices) = (core(), RxSet::default(), Slices::default());
    let offload =
        CoreOffload::new(Offloads::new(Arc::new(Purged::default()), Providers::default()), PmdId::Core(0));
    let flows = (0..200).map(record).collect();
    let (done, answer) = sync_channel(1);
    slices.give(Handover { queues: Vec::new(), flows }, done);
    let mut turns = 0;
    while answer.try_recv() == Err(TryRecvError::Empty) {
        let before = core.stats().flows;
        assert!(slices.adopt(&mut core, &mut rx, &offload));
        assert!(core.stats().flows - before <= SLICE_FLOWS as u64);
        turns += 1;
    }
    assert_eq!((turns, core.stats().flows), (200usize.div_ceil(SLICE_FLOWS), 200));
    assert!(!slices.adopt(&mut core, &mut rx, &offload));

    let departure = Departure::default();
    core.port_remove(DpPort(1), &mut NoIo);
    slices.ends(DpPort(1), departure.clone());
    while core.upkeep().is_some_and(|ended| !ended.is_empty()) {
        slices.settle(&core);
        assert_eq!(Arc::strong_count(&departure), if core.is_ending(DpPort(1)) { 2 } else { 1 });
    }
    assert_eq!(Arc::strong_count(&departure), 1);
}
