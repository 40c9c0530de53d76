//! Quality of service that the switch itself carries out for what a port sends: [`PortEgress`], shared by all threads
//! that send to the port.
//!
//! It polices, or it queues packets for the scheduler's thread ([`super::scheduler`]). A port with neither costs one
//! load for each burst.

use super::scheduler::PortScheduler;
use dpif::qos::{EgressPolicer, LinkFacts, Qos, QueueStats, ShownQos};
use netdev::{TxDrop, TxQueue, TxReport};
use packet::{Packet, PacketBatch, PacketPool, wire_cost};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use sync::{Mutex, lock};

/// A stage that packets pass before they are sent.
enum Stage {
    Police(Box<EgressPolicer>),
    Schedule(Arc<PortScheduler>),
}

/// See the module documentation.
#[derive(Default)]
pub(crate) struct PortEgress {
    is_active: AtomicBool,
    stage: Mutex<Option<Stage>>,
}

impl PortEgress {
    /// Whether packets pass a stage.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Relaxed)
    }

    fn replace(&self, stage: Option<Stage>) -> Option<Stage> {
        let mut place = lock(&self.stage);
        self.is_active.store(stage.is_some(), Ordering::Relaxed);
        std::mem::replace(&mut *place, stage)
    }

    /// Ends policing and scheduling; waiting packets leave at once.
    pub(crate) fn clear(&self) {
        if let Some(Stage::Schedule(scheduler)) = self.replace(None) {
            scheduler.end();
        }
    }

    /// Polices.
    ///
    /// # Errors
    /// What is wrong with the settings. Correct queues are policed nevertheless.
    pub(crate) fn police(&self, qos: &Qos, now_us: u64) -> Result<(), String> {
        let earlier = match self.replace(None) {
            Some(Stage::Police(policer)) => Some(*policer),
            Some(Stage::Schedule(scheduler)) => {
                scheduler.end();
                None
            }
            None => None,
        };
        let (policer, faults) = EgressPolicer::new(qos, earlier, now_us)?;
        self.replace(Some(Stage::Police(Box::new(policer))));
        if faults.is_empty() {
            Ok(())
        } else {
            Err(format!("{}: {}", qos.discipline.name(), faults.join("; ")))
        }
    }

    /// Changes the scheduler's settings; `false`: there is none.
    pub(crate) fn reschedule(&self, qos: &Qos, link: LinkFacts) -> bool {
        let scheduler = self.scheduler();
        scheduler.iter().for_each(|scheduler| scheduler.set(qos, link));
        scheduler.is_some()
    }

    /// Queues packets for a scheduler.
    pub(crate) fn schedule(&self, scheduler: Arc<PortScheduler>) {
        self.replace(Some(Stage::Schedule(scheduler)));
    }

    fn scheduler(&self) -> Option<Arc<PortScheduler>> {
        match &*lock(&self.stage) {
            Some(Stage::Schedule(scheduler)) => Some(scheduler.clone()),
            Some(Stage::Police(_)) | None => None,
        }
    }

    /// Whether it queues packets.
    pub(crate) fn is_scheduled(&self) -> bool {
        self.scheduler().is_some()
    }

    /// Sends a batch: what exceeds the policer's rates, or finds no room in its queue, is dropped.
    #[cold]
    pub(crate) fn send(
        &self,
        tx: &mut dyn TxQueue,
        batch: &mut PacketBatch,
        pool: &mut PacketPool,
    ) -> TxReport {
        let now_us = sys::clock::monotonic_us();
        let mut dropped = 0;
        match &mut *lock(&self.stage) {
            Some(Stage::Police(policer)) => {
                policer.fill(now_us);
                let keep = |p: &Packet| {
                    let (packets, bytes) = wire_cost(p);
                    policer.admit(p.queue().into(), packets, bytes)
                };
                dropped = batch.retain_from(0, pool, keep);
            }
            Some(Stage::Schedule(scheduler)) => return scheduler.push(batch, pool, now_us),
            None => {}
        }
        let mut report = if batch.is_empty() { TxReport::default() } else { tx.send(batch, pool) };
        report.count_drops(TxDrop::Policed, dropped);
        report
    }

    /// Its queues; `None`: it does nothing.
    pub(crate) fn queues(&self, now_us: u64) -> Option<Vec<QueueStats>> {
        Some(match lock(&self.stage).as_ref()? {
            Stage::Police(policer) => policer.queues(now_us),
            Stage::Schedule(scheduler) => scheduler.queues(now_us),
        })
    }

    /// For `qos/show`; `None`: it does nothing.
    pub(crate) fn shown(&self) -> Option<ShownQos> {
        Some(match lock(&self.stage).as_ref()? {
            Stage::Police(policer) => policer.shown(),
            Stage::Schedule(scheduler) => scheduler.shown(),
        })
    }
}

impl Drop for PortEgress {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests;
