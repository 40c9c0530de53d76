//! Generator and sink: AF_PACKET on the hosts' ends of two veth pairs, in one thread.
//!
//! One thread sends a burst and then receives all arrived frames, in turn, so that generator and sink do not
//! compete for a processor. The sink's part costs the generator the same with every switch.

use crate::frames::{FRAME_BYTES, Frames, Stamp};
use crate::ledger::Ledger;
use anyhow::{Context, Result};
use netdev::link::{self, LinkStats};
use netdev::{Port, RxMethod, RxQueue, SystemOptions, TxQueue};
use packet::{BATCH_MAX_PACKETS, PacketBatch, PacketPool};
use std::time::{Duration, Instant};
use testkit::Topology;

/// Slots of the sink's ring: 4 ms at 1 Mpps. The kernel fills it on the switch's core, so a larger one costs
/// every switch more cache.
const SINK_SLOTS: u32 = 4096;
/// A run is over after that many consecutive polls of an empty sink, a millisecond apart: counted in polls,
/// as this thread may have been descheduled.
const QUIET_LOOKS: u32 = 150;
/// Maximum polls of an empty sink before the first frame: a switch on a loaded machine may not run for long.
const FIRST_LOOKS: u32 = 20_000;
/// Frames sent by the hosts themselves (neighbour discovery) tolerated in the devices' counters.
const CHATTER: u64 = 100;

/// The two ends of the line through a switch.
pub(crate) struct Line {
    generator: Box<dyn TxQueue>,
    sink: Box<dyn RxQueue>,
    sink_tx: Box<dyn TxQueue>,
    pool: PacketPool,
    batch: PacketBatch,
    began: Instant,
}

/// Counters of the four devices on the path at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Devices {
    port_in: LinkStats,
    port_out: LinkStats,
    sink: LinkStats,
}

impl Devices {
    /// Reads them.
    pub(crate) fn read(net: &Topology) -> Result<Devices> {
        let (a, b) = (&net.hosts[0], &net.hosts[1]);
        let ports = net
            .switch
            .enter(|| Ok::<_, std::io::Error>((link::link_stats(&a.port)?, link::link_stats(&b.port)?)))?;
        let (port_in, port_out) = ports.context("counters of the switch's ports")?;
        let sink = b.netns.enter(|| link::link_stats(&b.dev))?.context("counters of the sink's device")?;
        Ok(Devices { port_in, port_out, sink })
    }
}

/// Places of lost frames.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Losses {
    /// Rejected by the generator's own calls: never sent.
    pub(crate) before_port: u64,
    /// Between arrival at the switch's port and transmission by the other: the switch's.
    pub(crate) in_switch: u64,
    /// After the switch: device and socket of the sink.
    pub(crate) behind: u64,
}

/// Result of a run.
pub(crate) struct Run {
    /// Frames that left the generator.
    pub(crate) sent: u64,
    /// Accounts of the sink.
    pub(crate) ledger: Ledger,
    /// Frames per second received while the generator was sending.
    pub(crate) received_pps: f64,
    /// Frames sent a second.
    pub(crate) sent_pps: f64,
    /// One-way delays in ns of paced runs.
    pub(crate) delays_ns: Vec<u64>,
    /// Longest time between two receptions while a paced run was sending, in ns.
    pub(crate) longest_gap_ns: u64,
    /// Drops at the sink's full socket.
    sink_drops: u64,
}

impl Line {
    /// Opens both ends.
    pub(crate) fn open(net: &Topology) -> Result<Line> {
        let (a, b) = (&net.hosts[0], &net.hosts[1]);
        let generator = a.netns.enter(|| Port::open_system(&a.dev, &sender_options())?.tx())?;
        // The sink never reviews its queue, so it needs its ring from the start.
        let options =
            SystemOptions { rx_method: RxMethod::Ring, ring_slots: SINK_SLOTS, ..SystemOptions::default() };
        let sink = b.netns.enter(|| {
            let mut port = Port::open_system(&b.dev, &options)?;
            let tx = port.tx()?;
            Ok::<_, std::io::Error>((port.rx.pop(), tx))
        })?;
        let (sink, sink_tx) = sink.context("opening the sink")?;
        Ok(Line {
            generator: generator.context("opening the generator")?,
            sink: sink.context("the sink has no receive queue")?,
            sink_tx,
            pool: PacketPool::new(),
            batch: PacketBatch::new(),
            began: Instant::now(),
        })
    }

    /// Teaches the switch the sink's location.
    pub(crate) fn announce_sink(&mut self) {
        let mut p = self.pool.alloc(FRAME_BYTES);
        p.set_frame(&Frames::announcement());
        self.batch.push(p);
        self.sink_tx.send(&mut self.batch, &mut self.pool);
    }

    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Sends `count` frames from number `first`, in one burst; returns the number sent.
    fn burst(&mut self, frames: &Frames, first: u64, count: usize) -> u64 {
        let sent_ns = self.now_ns();
        let mut bytes = [0; FRAME_BYTES];
        for sequence in first..first + count as u64 {
            frames.write(Stamp { sequence, sent_ns }, &mut bytes);
            let mut p = self.pool.alloc(FRAME_BYTES);
            p.set_frame(&bytes);
            self.batch.push(p);
        }
        self.generator.send(&mut self.batch, &mut self.pool).sent_packets
    }

    /// Receives all arrived frames; returns their number.
    fn take(
        &mut self,
        frames: &Frames,
        ledger: &mut Ledger,
        delays_ns: Option<&mut Vec<u64>>,
    ) -> Result<usize> {
        let got = self.sink.recv(&mut self.pool, &mut self.batch, BATCH_MAX_PACKETS).context("the sink")?;
        if got == 0 {
            return Ok(0);
        }
        let now_ns = self.now_ns();
        let mut delays_ns = delays_ns;
        for p in self.batch.packets() {
            let stamp = ledger.enter(frames, p.data());
            if let (Some(stamp), Some(delays_ns)) = (stamp, delays_ns.as_deref_mut()) {
                delays_ns.push(now_ns.saturating_sub(stamp.sent_ns));
            }
        }
        self.batch.free_into(&mut self.pool);
        Ok(got)
    }

    /// Receives frames until none has come for a while.
    fn settle(&mut self, frames: &Frames, ledger: &mut Ledger, delays_ns: &mut Vec<u64>) -> Result<()> {
        let mut empty_looks = 0;
        while empty_looks < if ledger.received == 0 { FIRST_LOOKS } else { QUIET_LOOKS } {
            if self.take(frames, ledger, Some(delays_ns))? > 0 {
                empty_looks = 0;
            } else {
                empty_looks += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }

    /// Sends bursts as fast as it can for `time`.
    pub(crate) fn blast(&mut self, frames: &Frames, time: Duration) -> Result<Run> {
        let mut ledger = Ledger::new(frames);
        let drops = self.sink.counters().kernel_drops;
        let (mut next, mut sent) = (0, 0);
        let start = Instant::now();
        while start.elapsed() < time {
            sent += self.burst(frames, next, BATCH_MAX_PACKETS);
            next += BATCH_MAX_PACKETS as u64;
            while self.take(frames, &mut ledger, None)? == BATCH_MAX_PACKETS {}
        }
        let seconds = start.elapsed().as_secs_f64();
        let (received_pps, sent_pps) = (ledger.received as f64 / seconds, sent as f64 / seconds);
        self.settle(frames, &mut ledger, &mut Vec::new())?;
        let sink_drops = self.sink.counters().kernel_drops - drops;
        let (delays_ns, longest_gap_ns) = (Vec::new(), 0);
        Ok(Run { sent, ledger, received_pps, sent_pps, delays_ns, longest_gap_ns, sink_drops })
    }

    /// Sends single frames, `pps` per second, for `time`; polls the sink in between.
    pub(crate) fn pace(&mut self, frames: &Frames, pps: u32, time: Duration) -> Result<Run> {
        let mut ledger = Ledger::new(frames);
        let mut delays_ns = Vec::new();
        let drops = self.sink.counters().kernel_drops;
        let step = Duration::from_secs(1) / pps.max(1);
        let (mut next, mut sent) = (0, 0);
        let (mut last_ns, mut longest_gap_ns) = (None, 0);
        let start = Instant::now();
        let mut due = start;
        while start.elapsed() < time {
            if Instant::now() >= due {
                sent += self.burst(frames, next, 1);
                next += 1;
                due += step;
            }
            if self.take(frames, &mut ledger, Some(&mut delays_ns))? > 0 {
                let now_ns = self.now_ns();
                longest_gap_ns = longest_gap_ns.max(last_ns.map_or(0, |last_ns| now_ns - last_ns));
                last_ns = Some(now_ns);
            }
        }
        // The gap may last to the end.
        longest_gap_ns = longest_gap_ns.max(last_ns.map_or(0, |last_ns| self.now_ns() - last_ns));
        let seconds = start.elapsed().as_secs_f64();
        let (received_pps, sent_pps) = (ledger.received as f64 / seconds, sent as f64 / seconds);
        self.settle(frames, &mut ledger, &mut delays_ns)?;
        let sink_drops = self.sink.counters().kernel_drops - drops;
        Ok(Run { sent, ledger, received_pps, sent_pps, delays_ns, longest_gap_ns, sink_drops })
    }
}

impl Run {
    /// Places of missing frames, by the devices' counters; an error if those do not explain them.
    pub(crate) fn losses(&self, before: &Devices, after: &Devices) -> Result<Losses> {
        let entered = after.port_in.rx_packets - before.port_in.rx_packets;
        let left = after.port_out.tx_packets - before.port_out.tx_packets;
        let arrived = after.sink.rx_packets - before.sink.rx_packets;
        let device_drops = after.sink.rx_dropped - before.sink.rx_dropped;
        let losses = Losses {
            before_port: self.sent.saturating_sub(entered),
            in_switch: entered.saturating_sub(left),
            behind: left.saturating_sub(self.ledger.received),
        };
        // Foreign frames: an earlier run's that were queued in the switch, or sent by hosts.
        let after_explained =
            left.saturating_sub(arrived) + device_drops + self.sink_drops + self.ledger.foreign;
        let unexplained = losses.behind.saturating_sub(after_explained);
        let more_than_sent = self.ledger.received.saturating_sub(self.sent);
        if unexplained > CHATTER || more_than_sent > 0 || losses.before_port > CHATTER {
            anyhow::bail!(
                "frames unaccounted for: sent {}, entered the switch {entered}, left it {left}, reached the sink {arrived}, \
                 received {}; the sink says it dropped {}",
                self.sent,
                self.ledger.received,
                self.sink_drops
            );
        }
        Ok(losses)
    }
}

/// Options of a port that only sends: sockets of its own from the start.
pub(crate) fn sender_options() -> SystemOptions {
    SystemOptions { rx_method: RxMethod::Ring, ..SystemOptions::default() }
}
