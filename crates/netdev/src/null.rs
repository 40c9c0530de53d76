//! `null` ports: drop sent frames, counted as sent, large segments unsplit. They receive nothing: they have
//! no receive queues.

use packet::{PacketBatch, PacketPool};

use crate::port::{TxQueue, TxReport};

/// A transmit queue that drops frames.
pub(crate) struct NullTx;

impl TxQueue for NullTx {
    fn send(&mut self, batch: &mut PacketBatch, pool: &mut PacketPool) -> TxReport {
        let mut report = TxReport::default();
        batch.packets().iter().for_each(|p| report.count_sent(p.len()));
        batch.free_into(pool);
        report
    }
}
