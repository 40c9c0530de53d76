//! From upcalls to operations: what a handler does with a batch, and in which order queues are served.
//!
//! [`DeficitRoundRobin`] decides whose turn it is; [`handle`] translates. Both are pure: the runtime's handler threads and
//! the simulator drive them.

use crate::backer::{Backer, PacketInEvent};
use crate::ukey::{Ukey, UkeyState};
use crate::view::View;
use crate::xlate::{Request, Start, Translation, dropped, translate};
use dpif::{
    ControllerCookie, DpAction, DpifOp, Execute, FlowPut, FlowStats, PmdId, PutMode, Upcall, UpcallKind,
    UserCookie, XlateDrop,
};
use flow::FlowKey;
use std::collections::BTreeMap;
use std::sync::Arc;
use sync::Ordering;

/// How many upcalls a handler takes at a turn.
pub const BATCH_MAX_UPCALLS: usize = 64;

/// Deficit round robin (Shreedhar and Varghese, 1995) over a changing set of queues, in units of upcalls.
#[derive(Debug, Default)]
pub struct DeficitRoundRobin {
    cursor: usize,
    left: usize,
}

impl DeficitRoundRobin {
    /// How many upcalls a queue may have served before the next queue's turn.
    pub const QUANTUM: usize = 8;

    /// Takes up to `max` values from `queues` queues, fairly; `pop(i)` takes one from queue `i`.
    pub fn take<T>(&mut self, queues: usize, max: usize, mut pop: impl FnMut(usize) -> Option<T>) -> Vec<T> {
        let mut out = Vec::new();
        if queues == 0 {
            return out;
        }
        let mut empty_in_a_row = 0;
        while out.len() < max && empty_in_a_row < queues {
            if self.cursor >= queues {
                (self.cursor, self.left) = (0, 0);
            }
            if self.left == 0 {
                self.left = DeficitRoundRobin::QUANTUM;
            }
            match pop(self.cursor) {
                Some(value) => {
                    out.push(value);
                    empty_in_a_row = 0;
                    self.left -= 1;
                }
                None => {
                    empty_in_a_row += 1;
                    self.left = 0;
                }
            }
            if self.left == 0 {
                self.cursor += 1;
            }
        }
        out
    }
}

/// Operations by the thread that is to carry them out, in order.
pub type OpsByPmd = BTreeMap<PmdId, Vec<DpifOp>>;

/// Serves a batch of upcalls: translates, carries effects out, and says what the datapath is to do.
pub fn handle(backer: &Backer, upcalls: Vec<Upcall>, now_ms: u64) -> OpsByPmd {
    let mut ops = OpsByPmd::new();
    for upcall in upcalls {
        // Epoch before view: a flow made from an older view carries an older epoch.
        let epoch = backer.epoch();
        let view = backer.view();
        match upcall.kind {
            UpcallKind::Miss => miss(backer, &view, epoch, upcall, now_ms, &mut ops),
            UpcallKind::Action(UserCookie::SlowPath { .. }) => {
                slow_path(backer, &view, upcall, now_ms, &mut ops)
            }
            UpcallKind::Action(UserCookie::Controller(cookie)) => packet_in(backer, upcall, cookie),
        }
    }
    ops
}

/// Translates the packet of an upcall.
fn translate_key(backer: &Backer, view: &View, key: &FlowKey, effects: bool, now_ms: u64) -> Translation {
    let Some((bridge, of_port)) = view.of_port(key.in_port()) else {
        return dropped(&key.to_flow(flow::OfPort::NONE), XlateDrop::BridgeNotFound);
    };
    let flow = key.to_flow(of_port);
    let request = Request { view, bridge: bridge.id, flow: &flow, start: Start::Tables, trace: false };
    let t = translate(&request, &mut backer.xlate_host(effects, now_ms));
    backer.tell_fault(&bridge.name, &flow, &t);
    t
}

fn miss(backer: &Backer, view: &View, epoch: u64, upcall: Upcall, now_ms: u64, ops: &mut OpsByPmd) {
    let t = translate_key(backer, view, &upcall.key, true, now_ms);
    backer.observe(|o| o.translated(&upcall));
    t.cache.replay(1, upcall.packet.len() as u64, now_ms, &mut backer.effect_host());
    let queue = ops.entry(upcall.pmd).or_default();
    let actions: Arc<[DpAction]> = t.actions.as_slice().into();
    let limits = &backer.limits;
    let (limit, kept) = (&limits.flow_limit, &limits.kept_for_ports_percent);
    let (limit, kept) = (limit.load(Ordering::Relaxed), kept.load(Ordering::Relaxed));
    // What no port received counts as a port.
    let ports = view.dp_ports.len() as u64 + 1;
    if backer.ukeys.has_room(upcall.key.in_port(), limit, ports, kept) {
        let to_put: Arc<[DpAction]> =
            if t.slow_reasons == 0 { actions.clone() } else { t.actions_to_put().into() };
        let mask = backer.mask_of(&t.wc, &upcall.key);
        let ukey = Ukey {
            key: upcall.key,
            mask,
            actions: to_put.clone(),
            cache: t.cache,
            recircs: t.recircs,
            epoch,
            pushed: FlowStats::default(),
            created_ms: now_ms,
            dump_seq: 0,
            state: UkeyState::Visible,
        };
        match backer.ukeys.insert(upcall.ufid, upcall.pmd, ukey) {
            Ok(()) => queue.push(DpifOp::FlowPut(Box::new(FlowPut {
                ufid: upcall.ufid,
                key: upcall.key,
                mask,
                actions: to_put,
                mode: PutMode::Create,
            }))),
            Err(refused) => backer.recirc_release(&refused.recircs),
        }
    } else {
        release_after_use(backer, &t);
    }
    queue.push(DpifOp::Execute(Box::new(Execute {
        upcall: upcall.id(),
        packet: upcall.packet,
        key: upcall.key,
        actions,
        ticket: upcall.ticket,
    })));
}

fn slow_path(backer: &Backer, view: &View, upcall: Upcall, now_ms: u64, ops: &mut OpsByPmd) {
    let t = translate_key(backer, view, &upcall.key, true, now_ms);
    backer.observe(|o| o.translated(&upcall));
    // The megaflow that sent it here counted the packet already.
    t.cache.replay(0, 0, now_ms, &mut backer.effect_host());
    ops.entry(upcall.pmd).or_default().push(DpifOp::Execute(Box::new(Execute {
        upcall: upcall.id(),
        packet: upcall.packet,
        key: upcall.key,
        actions: t.actions.as_slice().into(),
        ticket: upcall.ticket,
    })));
    release_after_use(backer, &t);
}

/// Ids of a translation that no flow keeps stay until its packet, which may recirculate, has gone by.
fn release_after_use(backer: &Backer, t: &Translation) {
    backer.ukeys.defer_release(&t.recircs);
}

fn packet_in(backer: &Backer, upcall: Upcall, cookie: ControllerCookie) {
    let Some(state) = backer.recirc_state(cookie.recirc_id) else {
        // It waited so long that its flow is gone.
        backer.packet_ins_lost.fetch_add(1, Ordering::Relaxed);
        return;
    };
    let event = PacketInEvent { state, cookie, packet: upcall.packet, key: upcall.key };
    if backer.packet_ins.push(event).is_err() {
        backer.packet_ins_lost.fetch_add(1, Ordering::Relaxed);
    }
}

/// What came of a put: a flow that the datapath did not take ends. `true`: the flow was made from what has changed since, and
/// the revalidator is to be woken so that it looks at once.
pub fn put_done(backer: &Backer, pmd: PmdId, ufid: flow::Ufid, installed: bool) -> bool {
    if installed {
        let epoch = backer.ukeys.with(ufid, pmd, |k| {
            if k.state == UkeyState::Visible {
                k.state = UkeyState::Operational;
            }
            k.epoch
        });
        // The flow is in the datapath before the epoch is read, so a round that begins later sees it.
        if epoch.is_some_and(|made| made != backer.epoch()) {
            backer.tell_stale(ufid, pmd);
            return true;
        }
    } else if let Some(k) = backer.ukeys.remove(ufid, pmd) {
        backer.ukeys.defer_release(&k.recircs);
    }
    false
}

#[cfg(test)]
pub(crate) mod tests;
