//! One measurement: probes on one port, load on others, received packets.
//!
//! One thread sends both, so load never delays a probe between its timestamp and its system call; another
//! receives; the calling one supervises. None of their delays affects a result: the kernel's timestamp ends a
//! delay.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sys::frames::{Burst, FrameReceiver, FrameSender, wall_ns};

use crate::model::{LoadResults, Measurement};
use crate::pace::{LOAD_BURST_MAX, LoadPace, Pace};
use crate::probe::{Frame, Kind, Probe, encode, parse};
use crate::stats::Summary;
use crate::tally::Tally;

/// A sleep ends this long before the deadline, as the scheduler may be late; the rest is a busy wait.
const SPIN_NS: u64 = 60_000;
/// Time to listen after the last packet: without load, under load, where an overloaded switch may delay a
/// port, and in total after the last transmission.
const SETTLE: Duration = Duration::from_secs(1);
const SETTLE_LOADED: Duration = Duration::from_secs(5);
const SETTLE_LIMIT: Duration = Duration::from_secs(60);
/// That many consecutive failed system calls end a measurement.
const FAILURES_MAX: u32 = 1000;
/// Polling interval of the calling thread.
const WATCH: Duration = Duration::from_millis(50);

/// Packets to send.
#[derive(Clone, Debug)]
pub struct Task {
    /// The port of the probes.
    pub port: u16,
    /// Number of probes.
    pub probes: u32,
    /// Between two of them.
    pub interval_ns: u64,
    /// Load beside them: total packets per second (`None`: maximum), and its ports.
    pub load: Option<(Option<u64>, Vec<u16>)>,
    /// Whether all packets of a port are of one flow.
    pub one_flow: bool,
}

/// Numbers of measurements and flows: no two packets of a run share them.
#[derive(Debug, Default)]
pub struct Numbers {
    run: u32,
    flow: u64,
}

impl Numbers {
    /// Begins at a random number, to avoid those of an earlier run.
    pub fn from_seed(seed: u64) -> Numbers {
        Numbers { run: (seed >> 32) as u32, flow: seed & 0xffff_ffff }
    }

    fn next_run(&mut self) -> u32 {
        self.run = self.run.wrapping_add(1);
        self.run
    }

    fn next_flow(&mut self) -> u64 {
        self.flow = self.flow.wrapping_add(1);
        self.flow
    }
}

/// State shared by the three threads.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    probes_sent: AtomicU64,
    port_load_sent: AtomicU64,
    sender_done: AtomicBool,
}

/// Results of the sender.
#[derive(Debug, Default)]
struct Sent {
    probes: u64,
    unsent: u64,
    load: u64,
    load_unsent: u64,
    port_load: u64,
    seconds: f64,
}

struct Sender<'a> {
    task: &'a Task,
    run: u32,
    numbers: &'a mut Numbers,
    socket: &'a FrameSender,
    indexes: &'a [u32],
    sent: Sent,
    failures: u32,
    next_port: usize,
    load_seq: u32,
}

impl Sender<'_> {
    fn flow(&mut self, port: u16) -> u64 {
        if self.task.one_flow { port.into() } else { self.numbers.next_flow() }
    }

    fn device(&self, port: u16) -> u32 {
        self.indexes.get(usize::from(port)).copied().unwrap_or(0)
    }

    /// Handles a failed system call: a full queue is temporary, a missing device is not.
    fn failed(&mut self, error: std::io::Error, port: u16) -> Result<()> {
        self.failures += 1;
        if self.failures > FAILURES_MAX {
            return Err(error).with_context(|| format!("cannot send by port {port}"));
        }
        Ok(())
    }

    fn send_probe(&mut self) -> Result<()> {
        let (port, seq) = (self.task.port, (self.sent.probes + self.sent.unsent) as u32);
        let (flow, device) = (self.flow(port), self.device(port));
        let probe = Probe { run: self.run, port, kind: Kind::Probe, seq, stamp_ns: wall_ns() };
        let frame = encode(&probe, flow);
        match self.socket.send(&[(device, &frame)]) {
            Ok(_) => {
                self.sent.probes += 1;
                self.failures = 0;
            }
            Err(error) => {
                self.sent.unsent += 1;
                self.failed(error, port)?;
            }
        }
        Ok(())
    }

    /// Sends a burst of load, each packet by the next port.
    fn send_load(&mut self, ports: &[u16], count: u64) -> Result<()> {
        let mut frames: Vec<(u16, Frame)> = Vec::with_capacity(LOAD_BURST_MAX as usize);
        for _ in 0..count {
            let port = ports[self.next_port % ports.len()];
            self.next_port = (self.next_port + 1) % ports.len();
            self.load_seq = self.load_seq.wrapping_add(1);
            let probe = Probe { run: self.run, port, kind: Kind::Load, seq: self.load_seq, stamp_ns: 0 };
            let flow = self.flow(port);
            frames.push((port, encode(&probe, flow)));
        }
        let out: Vec<(u32, &[u8])> =
            frames.iter().map(|(port, frame)| (self.device(*port), &frame[..])).collect();
        let sent = match self.socket.send(&out) {
            Ok(sent) => {
                self.failures = 0;
                sent
            }
            Err(error) => {
                self.failed(error, frames.first().map_or(0, |(port, _)| *port))?;
                0
            }
        };
        self.sent.load += sent as u64;
        self.sent.load_unsent += (frames.len() - sent) as u64;
        let measured = frames[..sent].iter().filter(|(port, _)| *port == self.task.port).count();
        self.sent.port_load += measured as u64;
        Ok(())
    }

    /// Sends until done or failed: packets sent until then count.
    fn run(mut self, shared: &Shared) -> (Sent, Result<()>) {
        let begin = Instant::now();
        let result = self.send_all(begin, shared);
        self.sent.seconds = begin.elapsed().as_secs_f64();
        (self.sent, result)
    }

    fn send_all(&mut self, begin: Instant, shared: &Shared) -> Result<()> {
        // Without it sleeps end up to 50 µs late, which only makes intervals coarser.
        let _coarser = sys::thread::precise_sleeps();
        let mut pace = Pace::new(self.task.interval_ns);
        let mut load = self.task.load.as_ref().map(|(rate, ports)| (LoadPace::new(*rate), ports));
        let now_ns = || begin.elapsed().as_nanos() as u64;
        while self.sent.probes + self.sent.unsent < u64::from(self.task.probes) && !shared.stop.load(Relaxed)
        {
            let now = now_ns();
            if now >= pace.next_ns() {
                self.send_probe()?;
                pace.sent(now_ns());
                shared.probes_sent.store(self.sent.probes, Relaxed);
                continue;
            }
            let mut next = pace.next_ns();
            if let Some((load, ports)) = &mut load {
                if now >= load.next_ns() {
                    let burst = load.burst();
                    self.send_load(ports, burst)?;
                    load.sent(burst, now_ns());
                    continue;
                }
                next = next.min(load.next_ns());
            }
            match (next - now).checked_sub(SPIN_NS) {
                Some(sleep @ 1..) => std::thread::sleep(Duration::from_nanos(sleep)),
                _ => std::hint::spin_loop(),
            }
        }
        Ok(())
    }
}

/// Receives until complete, silent, or the device fails.
fn receive(socket: &FrameReceiver, tally: &mut Tally, settle: Duration, shared: &Shared) -> Result<()> {
    let mut burst = Burst::default();
    let mut last = Instant::now();
    let mut done_at = None;
    loop {
        let count = socket.receive(&mut burst).context("cannot receive any more")?;
        for frame in burst.frames() {
            tally.take(parse(frame.bytes), frame.stamp_ns);
        }
        if count > 0 {
            last = Instant::now();
            continue;
        }
        if shared.sender_done.load(Relaxed) {
            let done: Instant = *done_at.get_or_insert_with(Instant::now);
            let load = tally.load >= shared.port_load_sent.load(Relaxed);
            let all = tally.arrived() >= shared.probes_sent.load(Relaxed) && load;
            let quiet = last.max(done).elapsed() > settle;
            if all || quiet || done.elapsed() > SETTLE_LIMIT {
                return Ok(());
            }
        }
        socket.wait(Duration::from_millis(20))?;
    }
}

/// Result of a measurement, and the reason of an early end.
pub struct Outcome {
    /// The measured values.
    pub measured: Measurement,
    /// All delays, in order of arrival.
    pub delays_ns: Vec<u64>,
    /// The failure: nothing could be sent any more, or the receiving device is gone.
    pub failure: Option<anyhow::Error>,
}

/// Runs it; `watch` gets the number of probes sent, and returns whether to continue.
///
/// # Errors
/// If it cannot start.
pub fn measure(
    task: &Task,
    numbers: &mut Numbers,
    (socket, indexes): (&FrameSender, &[u32]),
    receiver: &FrameReceiver,
    watch: &mut dyn FnMut(u64) -> bool,
) -> Result<Outcome> {
    let run = numbers.next_run();
    let ports = task.load.iter().flat_map(|(_, ports)| ports).chain([&task.port]);
    if let Some(port) = ports.into_iter().find(|port| usize::from(**port) >= indexes.len()) {
        bail!("port {port}: there are {} only", indexes.len());
    }
    receiver.take_drops()?;
    let shared = Shared::default();
    let settle = if task.load.is_some() { SETTLE_LOADED } else { SETTLE };
    let sent = Sent::default();
    let sender = Sender { task, run, numbers, socket, indexes, sent, failures: 0, next_port: 0, load_seq: 0 };
    let mut tally = Tally::new(run, task.port, task.probes);
    let (sent, sending, receiving) = std::thread::scope(|scope| {
        let receiving = scope.spawn(|| receive(receiver, &mut tally, settle, &shared));
        let sending = scope.spawn(|| {
            let sent = sender.run(&shared);
            shared.port_load_sent.store(sent.0.port_load, Relaxed);
            shared.sender_done.store(true, Relaxed);
            sent
        });
        while !receiving.is_finished() {
            std::thread::sleep(WATCH);
            if !watch(shared.probes_sent.load(Relaxed)) {
                shared.stop.store(true, Relaxed);
            }
        }
        // Without a receiver, sending is pointless.
        shared.stop.store(true, Relaxed);
        let (sent, sending) = sending.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (sent, sending, receiving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let load = task.load.as_ref().map(|(_, ports)| LoadResults {
        ports: ports.len() as u64,
        offered: sent.load,
        unsent: sent.load_unsent,
        seconds: sent.seconds,
        delivered: 0,
        port_offered: sent.port_load,
        port_arrived: tally.load,
    });
    let measured = Measurement {
        port: task.port.into(),
        sent: sent.probes,
        unsent: sent.unsent,
        arrived: tally.arrived(),
        duplicates: tally.duplicates,
        reordered: tally.reordered,
        foreign: tally.foreign,
        unstamped: tally.unstamped,
        dropped_before_switch: 0,
        dropped_by_tool: receiver.take_drops()?,
        misses: None,
        delays: Summary::of(tally.delays_ns.clone()),
        load,
    };
    Ok(Outcome { measured, delays_ns: tally.delays_ns, failure: sending.and(receiving).err() })
}
