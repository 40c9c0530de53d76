//! A datapath of one core that carries out operations at once.

use datapath::{DpShared, Pmd, PmdConfig, PmdIo, TxReport};
use dpif::{
    Capabilities, Datapath, DpifError, MeterConfig, MeterStats, OpBatch, OpResult, PmdId, PortInfo, PortSpec,
    PortStats, ReplySink, Upcall, UpcallSink,
};
use flow::DpPort;
use packet::{Packet, PacketBatch, PacketPool};
use std::collections::VecDeque;
use std::sync::Arc;
use sync::{Mutex, MutexGuard, lock};

/// Frames sent and packets handed up.
#[derive(Default)]
struct Io {
    sent: Vec<(DpPort, Vec<u8>)>,
    upcalls: VecDeque<Box<Upcall>>,
}

impl UpcallSink for Io {
    fn upcall(&mut self, upcall: Box<Upcall>) -> Result<(), Box<Upcall>> {
        self.upcalls.push_back(upcall);
        Ok(())
    }
}

impl PmdIo for Io {
    fn transmit(&mut self, port: DpPort, batch: &mut PacketBatch, pool: &mut PacketPool) -> TxReport {
        let mut report = TxReport::default();
        for packet in batch.drain() {
            report.sent_packets += 1;
            report.sent_bytes += packet.data().len() as u64;
            self.sent.push((port, packet.data().to_vec()));
            pool.free(packet);
        }
        report
    }
}

type Reply = (Arc<dyn ReplySink>, u64, Vec<OpResult>);

struct Inner {
    pmd: Pmd,
    io: Io,
    replies: Vec<Reply>,
    now_us: u64,
}

/// See the module.
pub(super) struct OneCore {
    inner: Mutex<Inner>,
    pub(super) shared: Arc<DpShared>,
}

impl OneCore {
    pub(super) fn new(seed: u64, now_us: u64) -> OneCore {
        let shared = Arc::new(DpShared::new(seed));
        let pmd = Pmd::new(PmdConfig::new(PmdId::Main, seed), shared.clone());
        let inner = Inner { pmd, io: Io::default(), replies: Vec::new(), now_us };
        OneCore { inner: Mutex::new(inner), shared }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    pub(super) fn set_time(&self, now_us: u64) {
        let mut inner = self.inner();
        inner.now_us = now_us;
        inner.pmd.tick(now_us);
    }

    pub(super) fn add(&self, port: DpPort) {
        // The limit of ports is far away.
        let _ = self.inner().pmd.port_add(port);
    }

    pub(super) fn receive(&self, port: DpPort, frame: &[u8]) {
        let inner = &mut *self.inner();
        let mut batch: PacketBatch = std::iter::once(Packet::from_slice(frame)).collect();
        inner.pmd.process_batch(port, &mut batch, inner.now_us, &mut inner.io);
        inner.pmd.flush_output(&mut inner.io);
    }

    pub(super) fn take_sent(&self) -> Vec<(DpPort, Vec<u8>)> {
        std::mem::take(&mut self.inner().io.sent)
    }

    pub(super) fn take_upcalls(&self) -> VecDeque<Box<Upcall>> {
        std::mem::take(&mut self.inner().io.upcalls)
    }

    pub(super) fn execute(&self, ops: Vec<dpif::DpifOp>) -> Vec<OpResult> {
        let inner = &mut *self.inner();
        let results = inner.pmd.apply(ops, inner.now_us, &mut inner.io);
        inner.pmd.flush_output(&mut inner.io);
        results
    }

    /// Delivers answers.
    pub(super) fn reply(&self) {
        let replies = std::mem::take(&mut self.inner().replies);
        for (sink, tag, results) in replies {
            sink.done(PmdId::Main, tag, results);
        }
    }
}

impl Datapath for OneCore {
    fn name(&self) -> &str {
        "sim@bonds"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { lb_output: true, ..Capabilities::ENOUGH }
    }

    fn port_add(&self, _: &PortSpec) -> Result<DpPort, DpifError> {
        Err(DpifError::NotFound("port"))
    }

    fn port_del(&self, _: DpPort) -> Result<(), DpifError> {
        Err(DpifError::NotFound("port"))
    }

    fn ports(&self) -> Vec<PortInfo> {
        Vec::new()
    }

    fn port_stats(&self, _: DpPort) -> Result<PortStats, DpifError> {
        Err(DpifError::NotFound("port"))
    }

    fn pmds(&self) -> Vec<PmdId> {
        vec![PmdId::Main]
    }

    fn operate(&self, batch: OpBatch) {
        let results = self.execute(batch.ops);
        if let Some(reply) = batch.reply {
            self.inner().replies.push((reply, batch.tag, results));
        }
    }

    fn meter_set(&self, _: u32, _: &MeterConfig) -> Result<(), DpifError> {
        Ok(())
    }

    fn meter_del(&self, _: u32) -> Result<(), DpifError> {
        Ok(())
    }

    fn meter_stats(&self, _: u32) -> Result<MeterStats, DpifError> {
        Err(DpifError::NotFound("meter"))
    }
}
