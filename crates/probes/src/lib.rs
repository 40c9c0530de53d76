//! What the daemon tells of first packets: probes that tracers attach to (docs/probes.md), and the event ring behind the socket
//! `sluiced.PID.events`.
//!
//! Each function stands at its place on the way of an upcall as one line, tells both, and costs a few loads while nobody
//! listens. None of them waits.

#![forbid(unsafe_code)]

mod ring;
mod server;
mod usdt;

#[cfg(test)]
mod tests;

pub use server::{EventSocket, parse_request};
pub use usdt::{FlowUpkeep, loop_begins, loop_waits, recheck_begins, recheck_ends, round_begins, round_ends};

use dpif::{DpifError, DpifOp, Execute, FlowPut, OpResult, PutMode, Upcall, UpcallKind};
use flow::DpPort;
use ring::Telling;
use upcall_events::{Stage, Why};

/// What every event tells.
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

/// Length of a packet, which is far below 4 GiB.
fn length(packet: &[u8]) -> u32 {
    packet.len() as u32
}

/// An upcall on its way into a queue.
#[derive(Clone, Copy, Debug)]
pub struct Queueing {
    about: About,
    /// Taken before: a handler may have the upcall as soon as it is queued.
    time_ns: u64,
}

/// Whether somebody wants to know of packets that leave the fast path, also of those for which there is no room.
pub fn tells_misses() -> bool {
    ring::is_on() || usdt::before_handlers_armed()
}

/// A packet leaves the fast path. What it returns is for [`queued`].
pub fn miss(upcall: &Upcall) -> Option<Queueing> {
    if !tells_misses() {
        return None;
    }
    let about = About::upcall(upcall);
    usdt::miss(about, upcall);
    ring::tell(Stage::Miss, about, Telling { packet: upcall.packet.data(), ..Telling::default() });
    Some(Queueing { about, time_ns: sys::clock::machine_ns() })
}

/// It is in a queue, or found no room.
pub fn queued(queueing: Option<Queueing>, has_room: bool) {
    if let Some(Queueing { about, time_ns }) = queueing {
        queue(about, time_ns, &[], has_room);
    }
}

/// A handler has read an upcall from the kernel, which told the miss, and puts it into the queue of its port, if that has room.
/// Its packet is told, which joins it to the miss.
pub fn read(upcall: &Upcall, has_room: bool) {
    queue(About::upcall(upcall), sys::clock::machine_ns(), upcall.packet.data(), has_room);
}

fn queue(about: About, time_ns: u64, packet: &[u8], has_room: bool) {
    let stage = if has_room { Stage::Enqueued } else { Stage::Refused };
    usdt::queued(about, has_room, time_ns, packet);
    let error = if has_room { 0 } else { errno::NOBUFS };
    ring::tell(stage, about, Telling { time_ns, error, packet, ..Telling::default() });
}

/// Somebody took these upcalls, of the datapath of that name, to translate them.
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
        ring::tell(Stage::Received, about, Telling { time_ns, batch, packet, key, error: 0 });
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
                    ring::tell(Stage::PutSent, About::put(put), Telling::default());
                }
            }
            DpifOp::Execute(execute) => {
                usdt::execute_sent(execute);
                if execute.upcall != 0 {
                    let telling = Telling { packet: execute.packet.data(), ..Telling::default() };
                    ring::tell(Stage::ExecuteSent, About::execute(execute), telling);
                }
            }
            DpifOp::FlowDel(ufid) => usdt::delete_sent(*ufid),
            DpifOp::FlowGet(ufid) => usdt::get_sent(*ufid),
            _ => {}
        }
    }
}

/// Whether a listener wants to know of operations that are carried out.
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
            let telling = Telling { packet: execute.packet.data(), ..Telling::default() };
            ring::tell(Stage::Executed, about, telling);
            Some(Applying::Execute(about))
        }
        _ => None,
    }
}

/// A new flow was put, or refused.
pub fn put_done(about: About, result: Option<&OpResult>) {
    let error = result.map_or(0, errno);
    usdt::put_done(about, error);
    ring::tell(Stage::PutDone, about, Telling { error, ..Telling::default() });
}

/// A packet of an upcall was sent.
pub fn on_wire(about: About) {
    usdt::on_wire(about);
    ring::tell(Stage::OnWire, about, Telling::default());
}

/// These operations were carried out at once, by a datapath that answers on the spot.
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

/// A port of a datapath is there.
pub fn port_added(number: DpPort, name: &str) {
    ring::port(number.0, Some(name));
}

/// A port of a datapath is gone.
pub fn port_removed(number: DpPort) {
    ring::port(number.0, None);
}

/// Why an operation failed, as tracers know it.
fn errno(result: &OpResult) -> u32 {
    match result {
        OpResult::Failed(DpifError::Exists(_)) => errno::EXIST,
        OpResult::Failed(DpifError::NotFound(_)) => errno::NOENT,
        OpResult::Failed(DpifError::Full(_)) => errno::NOSPC,
        OpResult::Failed(DpifError::Unsupported(_)) => errno::OPNOTSUPP,
        OpResult::Failed(DpifError::Device(_)) => errno::IO,
        _ => 0,
    }
}

/// Numbers of errors on Linux (errno(3)).
mod errno {
    pub(super) const NOENT: u32 = 2;
    pub(super) const IO: u32 = 5;
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
        ring::tell(Stage::Translated, about, Telling::default());
    }
}
