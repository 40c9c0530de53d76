//! Operations on a forwarding core, between bursts.
//!
//! A put for an upcall must come in the same batch as its `Execute` or before it; the `Execute` with a ticket
//! releases parked packets, before any newer packet of that flow.

use crate::actions::{EXECUTED_ACTIONS_MAX, PacketCtx, re_extract, validate};
use crate::burst::HeaderCtx;
use crate::park::Origin;
use crate::pmd::Pmd;
use crate::ports::PmdIo;
use dpif::{Counted, DpifError, DpifOp, DropReason, Execute, FLOW_ACTIONS_MAX, FlowPut, OpResult, PutMode};
use flow::{FlowKey, Ufid, shape};
use packet::headers as h;

/// Slots visited by one operation: packets wait meanwhile.
const DUMP_SCAN_MAX: u32 = 1024;

impl Pmd {
    /// Executes operations in order; one result each.
    pub fn apply(&mut self, ops: Vec<DpifOp>, now_us: u64, io: &mut dyn PmdIo) -> Vec<OpResult> {
        self.exec.begin(now_us);
        let mut apply = |op| {
            let kind = Counted::of(&op);
            let result = self.apply_one(op, io);
            self.exec.shared.ops.count(kind, &result);
            result
        };
        let results = ops.into_iter().map(&mut apply).collect();
        self.count_flows();
        results
    }

    fn apply_one(&mut self, op: DpifOp, io: &mut dyn PmdIo) -> OpResult {
        let done = match op {
            DpifOp::FlowPut(put) => self.put(*put).map(|()| OpResult::Done),
            DpifOp::FlowDel(ufid) => self.delete(ufid),
            DpifOp::FlowGet(ufid) => self.get(ufid),
            DpifOp::FlowDump { cursor, max_flows } => Ok(self.dump(cursor, max_flows)),
            DpifOp::FlowCounters { cursor, max_flows, since_ms } => {
                Ok(self.counters(cursor, max_flows, since_ms))
            }
            DpifOp::FlowFlush => {
                self.table.clear();
                Ok(OpResult::Done)
            }
            DpifOp::Execute(execute) => self.execute(*execute, io).map(|()| OpResult::Done),
            DpifOp::Stats => {
                self.count_flows();
                Ok(OpResult::Stats(Box::new(*self.stats())))
            }
            DpifOp::ClearStats => {
                self.clear_stats();
                Ok(OpResult::Done)
            }
        };
        done.unwrap_or_else(OpResult::Failed)
    }

    pub(crate) fn put(&mut self, put: FlowPut) -> Result<(), DpifError> {
        let run = validate(&put.actions, FLOW_ACTIONS_MAX, packet_type(&put.key))?;
        if put.mode == PutMode::Modify {
            let id = self.table.by_ufid(put.ufid).ok_or(DpifError::NotFound("flow"))?;
            if self.table.slots().get(id).is_some_and(|slot| self.table.is_ending(slot.in_port())) {
                return Err(DpifError::NotFound("flow"));
            }
            self.table.slab().set_actions(id, put.actions, run);
            return Ok(());
        }
        check_mask(&put)?;
        if self.table.is_ending(put.key.base.in_port) {
            return Err(DpifError::Busy("the number of the input port"));
        }
        if !self.table.admits(&put.key, &put.mask) {
            self.exec.ports.stats.masks_refused += 1;
            return Err(DpifError::Full("the list of masks of the input port"));
        }
        let hit = self.table.lookup(&put.key).id.and_then(|id| self.table.slots().ufid(id));
        if let Some(hit) = hit {
            return Err(DpifError::Exists(hit));
        }
        if self.table.by_ufid(put.ufid).is_some() {
            return Err(DpifError::Exists(put.ufid));
        }
        if self.table.is_full() {
            return Err(DpifError::Full("flow table"));
        }
        self.table.insert(put.ufid, &put.key, &put.mask, put.actions, run);
        Ok(())
    }

    fn delete(&mut self, ufid: Ufid) -> Result<OpResult, DpifError> {
        let id = self.table.by_ufid(ufid).ok_or(DpifError::NotFound("flow"))?;
        let record = self.table.remove(id).ok_or(DpifError::NotFound("flow"))?;
        Ok(OpResult::Flow(Box::new(record)))
    }

    fn get(&self, ufid: Ufid) -> Result<OpResult, DpifError> {
        let id = self.table.by_ufid(ufid).ok_or(DpifError::NotFound("flow"))?;
        let record = self.table.record(id).ok_or(DpifError::NotFound("flow"))?;
        Ok(OpResult::Flow(Box::new(record)))
    }

    /// Flows from slot `cursor` on. A part may hold fewer flows than requested, or none, before the end.
    fn dump(&self, cursor: u64, max_flows: usize) -> OpResult {
        let (flows, next) = self.scan(cursor, max_flows, |id| self.table.record(id));
        OpResult::Dump(flows, next)
    }

    /// Names and counters of flows used since `since_ms`, from slot `cursor` on, as [`Self::dump`] returns whole flows.
    fn counters(&self, cursor: u64, max_flows: usize, since_ms: u64) -> OpResult {
        let slots = self.table.slots();
        let (flows, next) = self.scan(cursor, max_flows, |id| slots.counters(id, since_ms));
        OpResult::Counters(flows, next)
    }

    fn scan<T>(&self, cursor: u64, max: usize, of: impl Fn(u32) -> Option<T>) -> (Vec<T>, Option<u64>) {
        let end = self.table.slots().ids();
        let mut at = u32::try_from(cursor).unwrap_or(end).min(end);
        let stop = end.min(at.saturating_add(DUMP_SCAN_MAX));
        let mut flows = Vec::new();
        while at < stop && flows.len() < max.max(1) {
            flows.extend(of(at));
            at += 1;
        }
        (flows, (at < end).then_some(at.into()))
    }

    fn execute(&mut self, execute: Execute, io: &mut dyn PmdIo) -> Result<(), DpifError> {
        let Execute { packet, key, actions, ticket, went_on, .. } = execute;
        let rx_port = key.in_port();
        self.exec.ports.ledger.executed += 1;
        let (actions, result) = match validate(&actions, EXECUTED_ACTIONS_MAX, packet_type(&key)) {
            Ok(run) => (run, Ok(())),
            Err(e) => (actions, Err(e)),
        };
        if result.is_err() {
            self.exec.ports.drop_packet(packet, DropReason::BadAction, rx_port);
        } else if packet.len() < h::ETH_HEADER_BYTES && packet_type(&key) == 0 {
            self.exec.ports.drop_packet(packet, DropReason::Runt, rx_port);
        } else {
            let mut key = whole(&key);
            let vlan_limit = self.exec.vlan_limit;
            let mut layout = re_extract(&mut key, packet.data(), vlan_limit);
            let mut dirty = false;
            let headers = HeaderCtx { key: &mut key, layout: &mut layout, dirty: &mut dirty, vlan_limit };
            let origin = Origin::fresh(rx_port, self.exec.take_numbers(1));
            let mut view = PacketCtx::new(headers, origin);
            view.used = went_on;
            self.exec.run(packet, &mut view, &actions, io);
            self.run_recirculated(io);
        }
        let Some(ticket) = ticket else { return result };
        let opened_us = self.park.opened_us(ticket);
        if let Some((key, parked)) = self.park.close(ticket) {
            let stats = &mut self.exec.ports.stats;
            stats.answers += 1;
            stats.answers_us += self.exec.now_us.saturating_sub(opened_us.unwrap_or(self.exec.now_us));
            self.resume(&key, parked, io);
        }
        result
    }
}

fn packet_type(key: &FlowKey) -> u32 {
    if key.has(shape::ARP) { key.arp.packet_type } else { 0 }
}

/// The key with zeros in blocks that its shape does not name, as in all keys of this crate.
fn whole(key: &FlowKey) -> FlowKey {
    let mut out = FlowKey::default();
    let mut bounded = key.base;
    bounded.shape &= (1 << shape::COUNT) - 1;
    out.base = bounded;
    for i in out.extension_blocks() {
        *out.block_mut(i) = *key.block(i);
    }
    out
}

/// Fields that a megaflow must match exactly: input port, recirculation id, shape and EtherType.
fn check_mask(put: &FlowPut) -> Result<(), DpifError> {
    let (k, m) = (&put.key.base, &put.mask.base);
    let refuse = |what: &str| Err(DpifError::Unsupported(format!("flow {}: {what}", put.ufid)));
    if m.in_port != u32::MAX {
        return refuse("the input port must be matched exactly");
    }
    if m.recirc_id != u32::MAX {
        return refuse("the recirculation id must be matched exactly");
    }
    if m.dl_type != u16::MAX {
        return refuse("the EtherType must be matched exactly");
    }
    if m.shape != u16::MAX {
        return refuse("the shape must be matched exactly");
    }
    if k.shape >> shape::COUNT != 0 {
        return refuse("the key names blocks that do not exist");
    }
    Ok(())
}
