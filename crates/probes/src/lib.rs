//! Events of first packets in the daemon: USDT probes (docs/probes.md), and the event ring behind the socket
//! `sluiced.PID.events`.
//!
//! Each function is one line in the path of an upcall, serves both, and costs a few loads without an
//! observer. None of them blocks.

#![forbid(unsafe_code)]

mod debug;
mod ring;
mod server;
mod usdt;

#[cfg(test)]
mod tests;

pub use debug::{
    FlowLines, flow_lines, log_dumped, log_operations, log_ports, log_statistics, log_upcalls, logs_flows,
};
pub use server::{EventSocket, parse_request};
pub use usdt::{FlowUpkeep, loop_begins, loop_waits, recheck_begins, recheck_ends, round_begins, round_ends};

use dpif::{
    DpifError, DpifOp, DropSampling, DroppedPacket, Execute, FlowPut, OpResult, PutMode, SampledPacket,
    Upcall, UpcallKind,
};
use flow::DpPort;
use ring::Details;
use upcall_events::{Dropped, Sampled, Stage, Why};

/// Fields common to all events.
#[derive(Clone, Copy, Debug)]
pub struct About {
    upcall: u64,
    why: Why,
    port: u32,
    bytes: u32,
}

impl About {
    fn upcall(upcall: &Upcall) -> About {
        let why = match upcall.kind {
            UpcallKind::Miss => Why::Miss,
            UpcallKind::Action(_) => Why::Action,
        };
        About { upcall: upcall.id(), why, port: upcall.rx_port.0, bytes: length(upcall.packet.data()) }
    }

    fn put(put: &FlowPut) -> About {
        About { upcall: put.ufid.0 as u64, why: Why::Miss, port: put.key.in_port().0, bytes: 0 }
    }

    fn execute(execute: &Execute) -> About {
        let bytes = length(execute.packet.data());
        About { upcall: execute.upcall, why: Why::Unknown, port: execute.key.in_port().0, bytes }
    }
}

/// Length of a packet, always far below 4 GiB.
fn length(packet: &[u8]) -> u32 {
    packet.len() as u32
}

/// An upcall about to be queued.
#[derive(Clone, Copy, Debug)]
pub struct Queueing {
    about: About,
    /// Read before queueing: a handler may receive the upcall at once.
    time_ns: u64,
}

/// Whether an observer wants packets that leave the fast path, also those dropped at a full queue.
pub fn wants_misses() -> bool {
    ring::is_on() || usdt::before_handlers_armed()
}

/// A packet leaves the fast path. Pass the result to [`queued`].
pub fn miss(upcall: &Upcall) -> Option<Queueing> {
    if !wants_misses() {
        return None;
    }
    let about = About::upcall(upcall);
    usdt::miss(about, upcall);
    ring::report(Stage::Miss, about, Details { packet: upcall.packet.data(), ..Details::default() });
    Some(Queueing { about, time_ns: sys::clock::machine_ns() })
}

/// It was queued, or dropped at a full queue.
pub fn queued(queueing: Option<Queueing>, has_room: bool) {
    if let Some(Queueing { about, time_ns }) = queueing {
        queue(about, time_ns, &[], has_room);
    }
}

/// A handler has read an upcall from the kernel, which reported the miss, and queues it by port if there is
/// room. The event includes the packet, which joins it to the miss.
pub fn read(upcall: &Upcall, has_room: bool) {
    queue(About::upcall(upcall), sys::clock::machine_ns(), upcall.packet.data(), has_room);
}

fn queue(about: About, time_ns: u64, packet: &[u8], has_room: bool) {
    let stage = if has_room { Stage::Enqueued } else { Stage::Refused };
    usdt::queued(about, has_room, time_ns, packet);
    let error = if has_room { 0 } else { errno::NOBUFS };
    ring::report(stage, about, Details { time_ns, error, packet, ..Details::default() });
}

/// A handler received these upcalls, of the datapath of that name, for translation.
pub fn received(datapath: &str, upcalls: &[Box<Upcall>]) {
    if !(ring::is_on() || usdt::received_armed()) {
        return;
    }
    let time_ns = sys::clock::machine_ns();
    let batch = upcalls.len().min(usize::from(u16::MAX)) as u16;
    for upcall in upcalls {
        let about = About::upcall(upcall);
        usdt::received(datapath, about, upcall, batch);
        let (packet, key) = (upcall.packet.data(), Some(&upcall.key));
        ring::report(Stage::Received, about, Details { time_ns, batch, packet, key, error: 0 });
    }
}

/// These operations are sent to a thread of the datapath.
pub fn sent(ops: &[DpifOp]) {
    if !(ring::is_on() || usdt::sent_armed()) {
        return;
    }
    for op in ops {
        match op {
            DpifOp::FlowPut(put) => {
                usdt::put_sent(put);
                if put.mode == PutMode::Create {
                    ring::report(Stage::PutSent, About::put(put), Details::default());
                }
            }
            DpifOp::Execute(execute) => {
                usdt::execute_sent(execute);
                if execute.upcall != 0 {
                    let details = Details { packet: execute.packet.data(), ..Details::default() };
                    ring::report(Stage::ExecuteSent, About::execute(execute), details);
                }
            }
            DpifOp::FlowDel(ufid) => usdt::delete_sent(*ufid),
            DpifOp::FlowGet(ufid) => usdt::get_sent(*ufid),
            _ => {}
        }
    }
}

/// Whether an observer wants executed operations.
pub fn applied_armed() -> bool {
    ring::is_on() || usdt::applied_armed()
}

/// An operation under way that listeners follow.
#[derive(Clone, Copy, Debug)]
pub enum Applying {
    /// A new flow; [`put_done`] reports its result.
    Put(About),
    /// A packet of an upcall; [`on_wire`] reports that it was sent.
    Execute(About),
}

/// An operation is carried out now; `None`: no event follows.
pub fn applying(op: &DpifOp) -> Option<Applying> {
    match op {
        DpifOp::FlowPut(put) if put.mode == PutMode::Create => Some(Applying::Put(About::put(put))),
        DpifOp::Execute(execute) if execute.upcall != 0 => {
            let about = About::execute(execute);
            usdt::executed(about, execute);
            let details = Details { packet: execute.packet.data(), ..Details::default() };
            ring::report(Stage::Executed, about, details);
            Some(Applying::Execute(about))
        }
        _ => None,
    }
}

/// A new flow was put, or rejected.
pub fn put_done(about: About, result: Option<&OpResult>) {
    let error = result.map_or(0, errno);
    usdt::put_done(about, error);
    ring::report(Stage::PutDone, about, Details { error, ..Details::default() });
}

/// A packet of an upcall was sent.
pub fn on_wire(about: About) {
    usdt::on_wire(about);
    ring::report(Stage::OnWire, about, Details::default());
}

/// A datapath that answers immediately executed these operations.
pub fn answered(ops: &[DpifOp], results: &[OpResult]) {
    if !applied_armed() {
        return;
    }
    for (op, result) in ops.iter().zip(results) {
        match op {
            DpifOp::FlowPut(put) if put.mode == PutMode::Create => put_done(About::put(put), Some(result)),
            DpifOp::Execute(execute) if execute.upcall != 0 => on_wire(About::execute(execute)),
            _ => {}
        }
    }
}

/// A port was added to the datapath `TYPE@NAME`.
pub fn port_added(datapath: &str, number: DpPort, name: &str) {
    log::debug!(target: debug::DPIF, "{datapath}: added {name} as port {number}");
    log::debug!(target: debug::DPIF, "{datapath}: device {name} is on port {number}");
    ring::port(number.0, Some(name));
}

/// A port was removed from the datapath `TYPE@NAME`.
pub fn port_removed(datapath: &str, number: DpPort) {
    log::debug!(target: debug::DPIF, "{datapath}: port_del({number})");
    ring::port(number.0, None);
}

/// The dropped packets that a listener wants; `None`: none.
#[inline(always)]
pub fn drops_wanted() -> Option<DropSampling> {
    ring::drops_wanted()
}

/// Packets were dropped; `unsampled` more have no sample.
pub fn dropped(packets: impl IntoIterator<Item = DroppedPacket>, unsampled: u64) {
    let time_ns = sys::clock::machine_ns();
    let records = packets.into_iter().map(|DroppedPacket { cause, port, bytes, packet, key }| Dropped {
        time_ns,
        reason: cause.name().to_string(),
        kernel: cause.kernel().unwrap_or_default().to_string(),
        port: port.0,
        packet_bytes: bytes as u32,
        packet,
        key: key.map_or_else(Vec::new, |key| ring::key_bytes(&key)),
    });
    ring::dropped(records, unsampled);
}

/// First bytes of packets sampled by `psample` that a listener wants; `None`: no packets.
#[inline(always)]
pub fn samples_wanted() -> Option<usize> {
    ring::samples_wanted()
}

/// Packets were sampled by `psample`; `lost` more found no room.
pub fn sampled(packets: Vec<SampledPacket>, lost: u64) {
    let time_ns = sys::clock::machine_ns();
    let records = packets.into_iter().map(|packet| Sampled {
        time_ns,
        group: packet.group,
        probability: packet.probability,
        port: packet.in_port.0,
        packet_bytes: packet.bytes as u32,
        cookie: packet.cookie.into_vec(),
        packet: packet.packet,
    });
    ring::sampled(records, lost);
}

/// The error of an operation, as an errno for tracers.
fn errno(result: &OpResult) -> u32 {
    match result {
        OpResult::Failed(DpifError::Exists(_)) => errno::EXIST,
        OpResult::Failed(DpifError::NotFound(_)) => errno::NOENT,
        OpResult::Failed(DpifError::Full(_)) => errno::NOSPC,
        OpResult::Failed(DpifError::Busy(_)) => errno::BUSY,
        OpResult::Failed(DpifError::Unsupported(_)) => errno::OPNOTSUPP,
        OpResult::Failed(DpifError::Device(_)) => errno::IO,
        _ => 0,
    }
}

/// Numbers of errors on Linux (errno(3)).
mod errno {
    pub(super) const NOENT: u32 = 2;
    pub(super) const IO: u32 = 5;
    pub(super) const BUSY: u32 = 16;
    pub(super) const EXIST: u32 = 17;
    pub(super) const NOSPC: u32 = 28;
    pub(super) const OPNOTSUPP: u32 = 95;
    pub(super) const NOBUFS: u32 = 105;
}

/// The packet of an upcall is translated.
pub fn translated(upcall: &Upcall) {
    if ring::is_on() || usdt::translated_armed() {
        let about = About::upcall(upcall);
        usdt::translated(about, upcall);
        ring::report(Stage::Translated, about, Details::default());
    }
}
