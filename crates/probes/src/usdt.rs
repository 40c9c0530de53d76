//! The probes and their arguments. docs/probes.md lists all of them.
//!
//! Providers and names are those of the stock switch if it has such a probe, and so are its arguments, except
//! addresses of its own structures.

use super::About;
use dpif::{Execute, FlowPut, PutMode, Upcall, UpcallKind};
use flow::{FlowKey, Ufid, key_attributes};
use upcall_events::Why;

sys::usdt! {
    /// A packet leaves the fast path.
    probe upcall_miss = "sluice", "upcall_miss", (upcall, port, packet, bytes, why);
    /// Its upcall is in the queue of its port.
    probe upcall_enqueued = "sluice", "upcall_enqueued", (upcall, port, bytes, why, time_ns, packet);
    /// The queue was full.
    probe upcall_refused = "sluice", "upcall_refused", (upcall, port, bytes, why, time_ns, packet);
    /// A handler received it for translation.
    probe upcall_received = "sluice", "upcall_received", (upcall, port, packet, bytes, why, batch, key, key_bytes);
    /// It is translated.
    probe upcall_translated = "sluice", "upcall_translated", (upcall, port, packet, bytes, why);
    /// Its megaflow is sent to a thread.
    probe upcall_put_sent = "sluice", "upcall_put_sent", (upcall, port);
    /// It is sent to a thread with its actions.
    probe upcall_execute_sent = "sluice", "upcall_execute_sent", (upcall, port, packet, bytes);
    /// Its megaflow is installed or rejected.
    probe upcall_put_done = "sluice", "upcall_put_done", (upcall, port, error);
    /// Its actions begin.
    probe upcall_executed = "sluice", "upcall_executed", (upcall, port, packet, bytes);
    /// All output of its actions is with the devices.
    probe upcall_on_wire = "sluice", "upcall_on_wire", (upcall, port, bytes);

    /// As in the stock switch.
    probe recv_upcall = "dpif_recv", "recv_upcall", (datapath, kind, packet, bytes, key, key_bytes);
    /// A flow is put: `put` is the address of a [`FlowPutView`].
    probe op_flow_put = "dpif_netlink_operate__", "op_flow_put", (upcall, put, key, key_bytes);
    /// Packet and length are in the same places as in the stock switch.
    probe op_flow_execute = "dpif_netlink_operate__", "op_flow_execute", (upcall, port, packet, bytes);
    /// A flow is removed.
    probe op_flow_del = "dpif_netlink_operate__", "op_flow_del", (upcall, ufid_high);
    /// A flow is read.
    probe op_flow_get = "dpif_netlink_operate__", "op_flow_get", (upcall, ufid_high);

    /// A round of the revalidator begins.
    probe start_dump = "udpif_revalidator", "start_dump", (udpif, flows);
    /// And is over.
    probe sweep_done = "udpif_revalidator", "sweep_done", (udpif, flows, next_ms);
    /// A flow is retranslated.
    probe ukey_entry = "revalidate_ukey__", "entry", (udpif, upcall, ufid_high, key, key_bytes);
    /// The result.
    probe ukey_exit = "revalidate_ukey__", "exit", (udpif, upcall, result);

    /// The main loop begins a turn.
    probe run_start = "main", "run_start", ();
    /// The main loop waits.
    probe poll_block = "main", "poll_block", ();
}

/// Maximum name of a datapath in a probe, with its terminator.
const NAME_BYTES: usize = 64;

/// The address for a tracer to read.
fn address(bytes: &[u8]) -> u64 {
    bytes.as_ptr().addr() as u64
}

/// Upper half of a ufid; the lower one is the upcall's id.
fn high(ufid: Ufid) -> u64 {
    (ufid.0 >> 64) as u64
}

fn why(about: About) -> u64 {
    // With the kernel's numbers (DPIF_UC_MISS, DPIF_UC_ACTION).
    u64::from(about.why == Why::Action)
}

pub(super) fn before_handlers_armed() -> bool {
    upcall_miss::armed() | upcall_enqueued::armed() | upcall_refused::armed()
}

pub(super) fn miss(a: About, upcall: &Upcall) {
    if upcall_miss::armed() {
        upcall_miss::fire(a.upcall, a.port.into(), address(upcall.packet.data()), a.bytes.into(), why(a));
    }
}

pub(super) fn queued(a: About, has_room: bool, time_ns: u64, packet: &[u8]) {
    let packet = if packet.is_empty() { 0 } else { address(packet) };
    if has_room && upcall_enqueued::armed() {
        upcall_enqueued::fire(a.upcall, a.port.into(), a.bytes.into(), why(a), time_ns, packet);
    }
    if !has_room && upcall_refused::armed() {
        upcall_refused::fire(a.upcall, a.port.into(), a.bytes.into(), why(a), time_ns, packet);
    }
}

pub(super) fn received_armed() -> bool {
    upcall_received::armed() | recv_upcall::armed()
}

pub(super) fn received(datapath: &str, a: About, upcall: &Upcall, batch: u16) {
    if !received_armed() {
        return;
    }
    let (packet, key) = (upcall.packet.data(), key_attributes(&upcall.key));
    if upcall_received::armed() {
        let (port, batch, key_bytes) = (a.port.into(), batch.into(), key.len() as u64);
        upcall_received::fire(
            a.upcall,
            port,
            address(packet),
            a.bytes.into(),
            why(a),
            batch,
            address(&key),
            key_bytes,
        );
    }
    if recv_upcall::armed() {
        let kind = match upcall.kind {
            UpcallKind::Miss => 0,
            UpcallKind::Action(_) => 1,
        };
        let mut name = [0; NAME_BYTES];
        name.iter_mut().zip(datapath.bytes().take(NAME_BYTES - 1)).for_each(|(to, from)| *to = from);
        let key_bytes = key.len() as u64;
        recv_upcall::fire(address(&name), kind, address(packet), a.bytes.into(), address(&key), key_bytes);
    }
}

pub(super) fn translated_armed() -> bool {
    upcall_translated::armed()
}

pub(super) fn translated(a: About, upcall: &Upcall) {
    if upcall_translated::armed() {
        upcall_translated::fire(
            a.upcall,
            a.port.into(),
            address(upcall.packet.data()),
            a.bytes.into(),
            why(a),
        );
    }
}

pub(super) fn sent_armed() -> bool {
    upcall_put_sent::armed()
        | upcall_execute_sent::armed()
        | op_flow_put::armed()
        | op_flow_execute::armed()
        | op_flow_del::armed()
        | op_flow_get::armed()
}

/// The members of a flow put that tracers read, at the same offsets as the first of the stock switch's
/// `struct dpif_flow_put` (lib/dpif.h). Later members are missing.
#[repr(C)]
struct FlowPutView {
    mode: u32,
    key: u64,
    key_bytes: u64,
}

pub(super) fn put_sent(put: &FlowPut) {
    let a = About::put(put);
    if upcall_put_sent::armed() && put.mode == PutMode::Create {
        upcall_put_sent::fire(a.upcall, a.port.into());
    }
    if op_flow_put::armed() {
        let key = key_attributes(&put.key);
        // With the kernel's numbers (DPIF_FP_CREATE, DPIF_FP_MODIFY).
        let mode = match put.mode {
            PutMode::Create => 1,
            PutMode::Modify => 2,
        };
        let (key, key_bytes) = (address(&key), key.len() as u64);
        let view = FlowPutView { mode, key, key_bytes };
        let view = std::ptr::from_ref(&view).expose_provenance() as u64;
        op_flow_put::fire(a.upcall, view, key, key_bytes);
    }
}

pub(super) fn execute_sent(execute: &Execute) {
    let (a, packet) = (About::execute(execute), execute.packet.data());
    if upcall_execute_sent::armed() && a.upcall != 0 {
        upcall_execute_sent::fire(a.upcall, a.port.into(), address(packet), a.bytes.into());
    }
    if op_flow_execute::armed() {
        op_flow_execute::fire(a.upcall, a.port.into(), address(packet), a.bytes.into());
    }
}

pub(super) fn delete_sent(ufid: Ufid) {
    if op_flow_del::armed() {
        op_flow_del::fire(ufid.0 as u64, high(ufid));
    }
}

pub(super) fn get_sent(ufid: Ufid) {
    if op_flow_get::armed() {
        op_flow_get::fire(ufid.0 as u64, high(ufid));
    }
}

pub(super) fn applied_armed() -> bool {
    upcall_put_done::armed() | upcall_executed::armed() | upcall_on_wire::armed()
}

pub(super) fn put_done(a: About, error: u32) {
    if upcall_put_done::armed() {
        upcall_put_done::fire(a.upcall, a.port.into(), error.into());
    }
}

pub(super) fn executed(a: About, execute: &Execute) {
    if upcall_executed::armed() {
        upcall_executed::fire(a.upcall, a.port.into(), address(execute.packet.data()), a.bytes.into());
    }
}

pub(super) fn on_wire(a: About) {
    if upcall_on_wire::armed() {
        upcall_on_wire::fire(a.upcall, a.port.into(), a.bytes.into());
    }
}

/// A round of the revalidator begins, with that many flows.
pub fn round_begins(flows: u64) {
    if start_dump::armed() {
        start_dump::fire(0, flows);
    }
}

/// A round of the revalidator ends.
pub fn round_ends(flows: u64, next_ms: u64) {
    if sweep_done::armed() {
        sweep_done::fire(0, flows, next_ms);
    }
}

/// The revalidator begins to look at a flow.
pub fn recheck_begins(ufid: Ufid, key: &FlowKey) {
    if ukey_entry::armed() {
        let key = key_attributes(key);
        ukey_entry::fire(0, ufid.0 as u64, high(ufid), address(&key), key.len() as u64);
    }
}

/// Result of a flow's revalidation, with the numbers of Open vSwitch's probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowUpkeep {
    /// The flow is unchanged.
    Keep = 0,
    /// The flow is deleted.
    Delete = 1,
    /// The flow's actions change.
    Modify = 2,
}

/// The revalidator ends its look at a flow.
pub fn recheck_ends(ufid: Ufid, result: FlowUpkeep) {
    if ukey_exit::armed() {
        ukey_exit::fire(0, ufid.0 as u64, result as u64);
    }
}

/// The main loop begins a turn.
pub fn loop_begins() {
    if run_start::armed() {
        run_start::fire();
    }
}

/// The main loop is about to wait.
pub fn loop_waits() {
    if poll_block::armed() {
        poll_block::fire();
    }
}
