//! Samples of dropped packets, from a core and from failed transmissions, to the event socket.

use datapath::{DropBudget, Pmd};
use dpif::{DropCause, DropReason, DropSampling, DroppedPacket};
use flow::DpPort;
use netdev::TxDrop;
use packet::{Packet, PacketBatch};

/// Passes the samples of a core to the listener, and samples for it from now on. Without a listener: a load and a branch.
#[inline]
pub(crate) fn report(core: &mut Pmd) {
    let wanted = probes::drops_wanted();
    if wanted.is_some() || core.samples_drops() {
        pass_on(core, wanted);
    }
}

#[cold]
fn pass_on(core: &mut Pmd, wanted: Option<DropSampling>) {
    let (samples, unsampled) = core.take_drops(sys::clock::machine_us());
    if !samples.is_empty() || unsampled > 0 {
        probes::dropped(samples, unsampled);
    }
    core.sample_drops(wanted);
}

/// The packets of a transmission that may be dropped: the longest and the last one.
pub(crate) struct Candidates {
    longest: (usize, Vec<u8>),
    last: (usize, Vec<u8>),
    packets: usize,
}

impl Candidates {
    /// The candidates of a batch, if somebody listens.
    #[inline]
    pub(crate) fn of(batch: &PacketBatch) -> Option<Candidates> {
        let DropSampling { packet_bytes, .. } = probes::drops_wanted()?;
        let longest = batch.packets().iter().max_by_key(|p| p.len())?;
        let last = batch.packets().last()?;
        let first = |p: &Packet| (p.len(), p.data()[..p.len().min(packet_bytes)].to_vec());
        Some(Candidates { longest: first(longest), last: first(last), packets: batch.len() })
    }

    /// Reports that `packets` of the batch could not be sent. A sample is one that is known to be among them.
    #[cold]
    pub(crate) fn lost(
        &self,
        port: DpPort,
        why: TxDrop,
        reason: DropReason,
        packets: u64,
        budget: &mut Option<DropBudget>,
    ) {
        let Some(DropSampling { per_second, .. }) = probes::drops_wanted() else { return };
        let budget = budget.get_or_insert_with(|| DropBudget::new(per_second));
        budget.refill(sys::clock::machine_us());
        let found = match why {
            TxDrop::TooLarge => Some(&self.longest),
            // The rest of the batch is lost.
            TxDrop::PortDown | TxDrop::QueueFull => Some(&self.last),
            TxDrop::NoBuffers
            | TxDrop::BadOffload
            | TxDrop::Refused
            | TxDrop::Policed
            | TxDrop::QosQueueFull => (self.packets == 1).then_some(&self.last),
        };
        let cause = DropCause::Datapath(reason);
        let found = found.filter(|_| budget.take(cause));
        let sample = found.map(|(bytes, packet)| DroppedPacket {
            cause,
            port,
            bytes: *bytes,
            packet: packet.clone(),
            key: None,
        });
        budget.take_unsampled();
        probes::dropped(sample, packets - u64::from(found.is_some()));
    }
}
