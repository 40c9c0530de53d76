//! `null` ports: drop sent frames, counted as sent, large segments unsplit. They receive nothing: they have
//! no receive queues.

use std::io;

use dpif::NullPort;
use packet::{PacketBatch, PacketPool};

use crate::open::{OpenedPort, Opener, Opening};
use crate::port::{Port, PortDevice, TxQueue, TxReport, not_created};

impl Opener for NullPort {
    fn open(&self, opening: &Opening<'_>) -> io::Result<OpenedPort> {
        Ok(OpenedPort::bare(Port::open_null(&opening.spec.name)))
    }
}

impl Port {
    /// Creates a port that drops sent frames and receives nothing: it has no receive queues. Any name is
    /// valid.
    pub fn open_null(name: &str) -> Port {
        Port::new(name, 0, Vec::new(), NullDevice)
    }
}

struct NullDevice;

impl PortDevice for NullDevice {
    fn open_tx(&self) -> io::Result<Box<dyn TxQueue>> {
        Ok(Box::new(NullTx))
    }

    not_created!();
}

/// A transmit queue that drops frames.
struct NullTx;

impl TxQueue for NullTx {
    fn send(&mut self, batch: &mut PacketBatch, pool: &mut PacketPool) -> TxReport {
        let mut report = TxReport::default();
        batch.packets().iter().for_each(|p| report.count_sent(p.len()));
        batch.free_into(pool);
        report
    }
}
