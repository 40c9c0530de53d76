//! Operations of the slow path as requests to the kernel, in order, many per system call.

use super::KernelDatapath;
use datapath::emulate;
use dpif::nlactions::{ActionContext, ActionError, actions_to_bytes};
use dpif::{
    DpAction, DpifError, DpifOp, FlowPut, FlowRecord, FlowStats, Offloaded, OpResult, PmdStats, PutMode,
};
use flow::{DpPort, FlowKey, KeyMask, OfPort, Ufid};
use netlink::ovs::{self, FlowDel, FlowGet, FlowMode, FlowName, FlowParts, FlowReply, Reply, Request};
use std::collections::VecDeque;
use sync::{Ordering, lock};

/// Maximum concurrent dumps: a new one replaces the oldest.
const DUMPS_MAX: usize = 16;

/// Partially read dumps.
#[derive(Default)]
pub(super) struct Dumps {
    next: u64,
    under_way: VecDeque<(u64, Rest)>,
}

/// The unread rest of a dump, in compact form.
enum Rest {
    /// Flows as reported by the kernel.
    Flows(VecDeque<FlowReply>),
    /// Names and counters.
    Counters(VecDeque<(Ufid, FlowStats)>),
}

impl Dumps {
    /// The rest of that name.
    fn take(&mut self, cursor: u64) -> Option<Rest> {
        let place = self.under_way.iter().position(|(name, _)| *name == cursor)?;
        self.under_way.remove(place).map(|(_, rest)| rest)
    }

    /// Position to continue from.
    fn put(&mut self, rest: Rest) -> u64 {
        self.next += 1;
        self.under_way.push_back((self.next, rest));
        while self.under_way.len() > DUMPS_MAX {
            self.under_way.pop_front();
        }
        self.next
    }
}

/// An operation in flight.
enum Sent<'a> {
    /// Creates, changes, deletes or gets the flow of that ufid.
    Flow(Ufid, Vec<Request<'a>>),
    /// A packet is executed, in parts if it needs help.
    Packet(Vec<Request<'a>>),
    /// Known without the kernel.
    Known(OpResult),
}

impl Sent<'_> {
    fn requests(&self) -> usize {
        match self {
            Sent::Flow(_, requests) | Sent::Packet(requests) => requests.len(),
            Sent::Known(_) => 0,
        }
    }
}

impl KernelDatapath {
    /// Carries operations out; a result each.
    pub(super) fn carry_out(&self, ops: &[DpifOp]) -> Vec<OpResult> {
        let mut results = Vec::with_capacity(ops.len());
        for run in ops.chunk_by(|a, b| is_request(a) && is_request(b)) {
            match run {
                [op] if !is_request(op) => results.push(self.other(op)),
                _ => self.requests(run, &mut results),
            }
        }
        results
    }

    fn requests(&self, ops: &[DpifOp], results: &mut Vec<OpResult>) {
        // Packets as left by emulation; requests borrow them.
        let parts: Vec<Option<Vec<datapath::EmulatedPart>>> = ops.iter().map(|op| self.parts(op)).collect();
        let mut sent: Vec<Sent<'_>> =
            ops.iter().zip(&parts).map(|(op, p)| self.request(op, p.as_deref())).collect();
        let mut all = Vec::with_capacity(ops.len());
        let counts: Vec<usize> = sent.iter().map(Sent::requests).collect();
        for one in &mut sent {
            if let Sent::Flow(_, requests) | Sent::Packet(requests) = one {
                all.append(requests);
            }
        }
        let mut replies = self.ovs.operate(self.dp_ifindex(), &all).into_iter();
        for (one, count) in sent.into_iter().zip(counts) {
            let mine: Result<Vec<Reply>, netlink::Error> = replies.by_ref().take(count).collect();
            results.push(match (one, mine) {
                (Sent::Known(result), _) => result,
                (Sent::Flow(ufid, _), Ok(mut replies)) => self.flow_result(ufid, replies.pop()),
                (Sent::Flow(ufid, _), Err(e)) => {
                    if !(e.is_exists() || e.is_not_found()) {
                        self.log_rejection(&format!("flow ufid:{ufid}"), &e);
                    }
                    OpResult::Failed(self.error(&e, Some(ufid)))
                }
                (Sent::Packet(_), Ok(_)) => OpResult::Done,
                (Sent::Packet(_), Err(e)) => {
                    self.log_rejection("packet", &e);
                    self.lost_executes.fetch_add(1, Ordering::Relaxed);
                    OpResult::Failed(self.error(&e, None))
                }
            });
        }
    }

    /// Logs a rejection by the kernel, at most once a second.
    fn log_rejection(&self, what: &str, e: &netlink::Error) {
        let now_ms = sys::clock::monotonic_ms();
        let logged_ms = self.logged_rejection_ms.load(Ordering::Relaxed);
        let due = logged_ms == 0 || now_ms >= logged_ms + 1000;
        if due
            && self
                .logged_rejection_ms
                .compare_exchange(logged_ms, now_ms, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            log::warn!(target: "dpif_netlink", "{}: {what}: {e}", self.name);
        }
    }

    /// The rest of a packet's actions after emulation of those that the kernel lacks; `None` if it lacks
    /// none.
    fn parts(&self, op: &DpifOp) -> Option<Vec<datapath::EmulatedPart>> {
        let DpifOp::Execute(e) = op else { return None };
        if !e.actions.iter().any(|a| a.needs_emulation(&self.can)) {
            return None;
        }
        let mut random = self.random.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // Actions that do not fit the packet drop it.
        Some(emulate(e.packet.clone(), &e.key, &e.actions, &self.can, &mut random).unwrap_or_default())
    }

    fn request<'a>(&self, op: &'a DpifOp, parts: Option<&'a [datapath::EmulatedPart]>) -> Sent<'a> {
        match op {
            DpifOp::FlowPut(put) => match self.put(put) {
                Ok(put) => Sent::Flow(put.ufid.unwrap_or_default(), vec![Request::FlowPut(put)]),
                Err(e) => Sent::Known(OpResult::Failed(DpifError::Unsupported(e.to_string()))),
            },
            DpifOp::FlowDel(ufid) => {
                let del = FlowDel { name: FlowName::Ufid(*ufid), stats: true };
                Sent::Flow(*ufid, vec![Request::FlowDel(del)])
            }
            DpifOp::FlowGet(ufid) => {
                let get = FlowGet { name: FlowName::Ufid(*ufid), parts: FlowParts::ALL };
                Sent::Flow(*ufid, vec![Request::FlowGet(get)])
            }
            DpifOp::Execute(e) => match parts {
                Some(parts) => {
                    executes(parts.iter().map(|p| self.execute(p.packet.data(), &p.key, &p.actions)))
                }
                None => executes(std::iter::once(self.execute(e.packet.data(), &e.key, &e.actions))),
            },
            DpifOp::FlowDump { .. }
            | DpifOp::FlowCounters { .. }
            | DpifOp::FlowFlush
            | DpifOp::Stats
            | DpifOp::ClearStats => unreachable!("not an operation made of requests"),
        }
    }

    fn put(&self, put: &FlowPut) -> Result<ovs::FlowPut, ActionError> {
        let context = self.context(put.key.in_port());
        let made = ovs::FlowPut::new(put.ufid, &put.key, &put.mask, &put.actions, &self.limits, &context)?;
        let mode = match put.mode {
            PutMode::Create => FlowMode::Create,
            PutMode::Modify => FlowMode::Modify,
        };
        Ok(ovs::FlowPut { mode, ..made })
    }

    fn execute<'a>(
        &self,
        packet: &'a [u8],
        key: &FlowKey,
        actions: &[DpAction],
    ) -> Result<Option<Request<'a>>, ActionError> {
        if actions.iter().all(|a| matches!(a, DpAction::Drop(_))) {
            return Ok(None);
        }
        let actions = actions_to_bytes(actions, &self.context(key.in_port()))?;
        let key = flow::nlkey::key_to_bytes(key, &self.limits);
        Ok(Some(Request::Execute(ovs::Execute {
            packet,
            key,
            actions,
            probe: false,
            mru: None,
            hash: None,
            upcall_pid: None,
        })))
    }

    /// Context for actions of flows and packets from that port.
    fn context(&self, port: DpPort) -> ActionContext {
        ActionContext {
            // In per-CPU mode the kernel ignores it.
            upcall_pid: self.dispatch.pid_of(port).unwrap_or(u32::MAX),
            in_port: OfPort::NONE,
            bridge: [0; 16],
            explicit_drop: self.can.explicit_drop,
        }
    }

    fn flow_result(&self, ufid: Ufid, reply: Option<Reply>) -> OpResult {
        match reply {
            Some(Reply::Flow(flow)) => OpResult::Flow(Box::new(self.record(&flow, Some(ufid)))),
            _ => OpResult::Done,
        }
    }

    /// A flow in the slow path's form. A key that it cannot express is omitted: the flow belongs to another
    /// program, and the comparison with the wanted flow fails, as it does for unknown actions.
    fn record(&self, flow: &FlowReply, asked: Option<Ufid>) -> FlowRecord {
        let (key, mask) = match flow.key_and_mask(self.shared.vlan_limit()) {
            Ok((key, mask, _)) => (key, mask),
            Err(_) => (FlowKey::default(), KeyMask::default()),
        };
        FlowRecord {
            ufid: flow.ufid.or(asked).unwrap_or_default(),
            key,
            mask,
            actions: flow.dp_actions().unwrap_or_default().into(),
            stats: flow.stats,
            offloaded: Offloaded::No,
        }
    }

    /// Executes an operation that is not made of requests.
    fn other(&self, op: &DpifOp) -> OpResult {
        let done = |r: Result<OpResult, netlink::Error>| {
            r.unwrap_or_else(|e| OpResult::Failed(self.error(&e, None)))
        };
        match op {
            DpifOp::FlowDump { cursor, max_flows } => done(self.flows(*cursor, *max_flows)),
            DpifOp::FlowCounters { cursor, max_flows, since_ms } => {
                done(self.flow_counters(*cursor, *max_flows, *since_ms))
            }
            DpifOp::FlowFlush => done(self.ovs.flow_flush(self.dp_ifindex()).map(|()| OpResult::Done)),
            DpifOp::Stats => done(self.stats().map(|s| OpResult::Stats(Box::new(s)))),
            // The kernel's counters cannot be cleared: readers remember a base.
            DpifOp::ClearStats => OpResult::Done,
            DpifOp::FlowPut(_) | DpifOp::FlowDel(_) | DpifOp::FlowGet(_) | DpifOp::Execute(_) => {
                unreachable!("an operation made of requests")
            }
        }
    }

    /// Dumps the whole table, keeping the result of `of` for each flow. The kernel continues by table
    /// position, and concurrent changes move flows, so a slow dump would miss some.
    fn read<T>(
        &self,
        parts: FlowParts,
        of: impl Fn(FlowReply) -> Option<T>,
    ) -> Result<VecDeque<T>, netlink::Error> {
        let flows = self.ovs.flow_dump(self.dp_ifindex(), parts)?;
        flows.filter_map(|flow| flow.map(&of).transpose()).collect()
    }

    /// Part of the flow table.
    fn flows(&self, cursor: u64, max_flows: usize) -> Result<OpResult, netlink::Error> {
        let mut rest = if cursor == 0 {
            self.read(FlowParts::ALL, Some)?
        } else {
            match lock(&self.dumps).take(cursor) {
                Some(Rest::Flows(rest)) => rest,
                _ => VecDeque::new(),
            }
        };
        let part = first(&mut rest, max_flows).map(|flow| self.record(&flow, None)).collect();
        let next = (!rest.is_empty()).then(|| lock(&self.dumps).put(Rest::Flows(rest)));
        Ok(OpResult::Dump(part, next))
    }

    /// Names and counters of part of it.
    fn flow_counters(
        &self,
        cursor: u64,
        max_flows: usize,
        since_ms: u64,
    ) -> Result<OpResult, netlink::Error> {
        let mut rest = if cursor == 0 {
            self.read(FlowParts::TERSE, |flow| {
                let wanted = since_ms == 0 || flow.stats.used_ms >= since_ms;
                wanted.then_some((flow.ufid?, flow.stats))
            })?
        } else {
            match lock(&self.dumps).take(cursor) {
                Some(Rest::Counters(rest)) => rest,
                _ => VecDeque::new(),
            }
        };
        let part = first(&mut rest, max_flows).collect();
        let next = (!rest.is_empty()).then(|| lock(&self.dumps).put(Rest::Counters(rest)));
        Ok(OpResult::Counters(part, next))
    }

    /// The datapath's counters as those of one thread.
    fn stats(&self) -> Result<PmdStats, netlink::Error> {
        let info = self.info()?;
        let (s, m) = (info.stats, info.megaflow_stats);
        let lost = s.lost + self.dispatch.refused();
        let mut stats = PmdStats {
            received: s.hit + s.missed,
            cache_hits: m.cache_hit.min(s.hit),
            megaflow_hits: s.hit.saturating_sub(m.cache_hit),
            subtable_lookups: visited_for_hits(s.hit, s.missed, m.mask_hit, m.cache_hit),
            upcalls: s.missed.saturating_sub(lost),
            upcalls_lost: lost,
            flows: s.flows,
            masks: m.masks.into(),
            ..PmdStats::default()
        };
        stats.drops[dpif::DropReason::UpcallQueueFull as usize] = lost;
        let malformed = self.shared.malformed.load(Ordering::Relaxed);
        stats.drops[dpif::DropReason::UpcallError as usize] =
            self.lost_executes.load(Ordering::Relaxed) + malformed;
        Ok(stats)
    }

    /// Converts an error of the kernel.
    pub(super) fn error(&self, e: &netlink::Error, flow: Option<Ufid>) -> DpifError {
        match flow {
            Some(ufid) if e.is_exists() => DpifError::Exists(ufid),
            _ if e.is_not_found() => DpifError::NotFound("flow"),
            _ => DpifError::Device(e.to_string()),
        }
    }
}

/// Takes at most that many of them.
fn first<T>(rest: &mut VecDeque<T>, max: usize) -> impl Iterator<Item = T> + '_ {
    let count = max.min(rest.len());
    rest.drain(..count)
}

fn is_request(op: &DpifOp) -> bool {
    matches!(op, DpifOp::FlowPut(_) | DpifOp::FlowDel(_) | DpifOp::FlowGet(_) | DpifOp::Execute(_))
}

fn executes<'a>(all: impl Iterator<Item = Result<Option<Request<'a>>, ActionError>>) -> Sent<'a> {
    match all.filter_map(Result::transpose).collect() {
        Ok(requests) => Sent::Packet(requests),
        Err(e) => Sent::Known(OpResult::Failed(DpifError::Unsupported(e.to_string()))),
    }
}

/// Masks visited for packets that hit a flow without the cache. The kernel counts one visit for a cache hit,
/// and includes those of misses: these get the same share as other lookups.
fn visited_for_hits(hit: u64, missed: u64, visited: u64, cached: u64) -> u64 {
    let (visited, hits) = (visited.saturating_sub(cached), hit.saturating_sub(cached));
    let lookups = u128::from(hits) + u128::from(missed);
    (u128::from(visited) * u128::from(hits)).checked_div(lookups).unwrap_or(0) as u64
}

#[cfg(test)]
mod tests;
