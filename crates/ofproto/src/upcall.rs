//! Upcall handling: [`handle`] translates a batch into operations. Called by handler threads, the main loop and the
//! simulator.

mod packet_in;
mod samples;

use crate::backer::{Backer, Failed, count};
use crate::links;
use crate::ukey::{Ukey, UkeyState};
use crate::unresolved::held::HeldPacket;
use crate::view::View;
use crate::xlate::{Request, Start, Translation, dropped, translate};
use dpif::{
    DpAction, DpifOp, Execute, FlowPut, FlowStats, PmdId, PutMode, Upcall, UpcallKind, UserCookie, XlateDrop,
};
use flow::extract::{Metadata, extract};
use flow::{FlowKey, PackedFlow, VlanTag};
use flow::{OfPort, Ufid};
use ofp_actions::{Action, Output};
use packet::Packet;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Operations by executing thread, in order.
pub type OpsByPmd = BTreeMap<PmdId, Vec<DpifOp>>;

/// Serves a batch of upcalls: translates, applies effects, and returns the operations for the datapath.
pub fn handle(backer: &Backer, upcalls: dpif::Upcalls, now_ms: u64) -> OpsByPmd {
    let mut ops = OpsByPmd::new();
    // Read the epoch before the view: a flow made from an older view carries an older epoch.
    let mut batch = backer.begin_translations();
    let mut view = backer.view();
    for upcall in upcalls {
        if backer.epoch() != batch.epoch {
            drop(batch);
            batch = backer.begin_translations();
            view = backer.view();
        }
        let kind = upcall.kind;
        if let UpcallKind::Action(UserCookie::Controller(cookie)) = kind {
            packet_in::handed_up(backer, &view, *upcall, cookie);
            continue;
        }
        if let UpcallKind::Action(cookie) = kind
            && cookie.is_sample()
        {
            samples::sampled(backer, &view, &upcall, cookie, now_ms);
            continue;
        }
        let queue = ops.entry(upcall.pmd).or_default();
        match kind {
            UpcallKind::Miss if is_of_former_limit(&view, &upcall) => {
                queue.push(forward(backer, &view, *upcall, 1, now_ms));
            }
            UpcallKind::Miss => miss(backer, &view, batch.epoch, *upcall, now_ms, queue),
            // The megaflow that sent it here counted the packet already.
            UpcallKind::Action(_) => queue.push(forward(backer, &view, *upcall, 0, now_ms)),
        }
    }
    let solicited = solicit(backer, now_ms);
    if !solicited.is_empty() {
        ops.entry(PmdId::Main).or_default().extend(solicited);
    }
    ops
}

/// Operations of the main core that send the waiting requests of neighbours, through the tables of their bridges, and
/// forward or drop the packets that no longer wait for an answer.
pub fn solicit(backer: &Backer, now_ms: u64) -> Vec<DpifOp> {
    let solicited = backer.take_solicited();
    let (answered, late) = backer.take_held(now_ms);
    if solicited.is_empty() && answered.is_empty() && late.is_empty() {
        return Vec::new();
    }
    let view = backer.view();
    let mut ops: Vec<DpifOp> =
        answered.into_iter().map(|held| forward(backer, &view, held.upcall, 1, now_ms)).collect();
    for HeldPacket { upcall, cache, actions, .. } in late {
        cache.replay_counters(&seen(&upcall, 1, now_ms), &mut backer.effect_host());
        ops.push(execute(backer, &view, upcall, actions, false));
    }
    for solicit in solicited {
        let ports = view.bridge(solicit.bridge).map(|b| &b.ports);
        let Some(in_port) = ports.and_then(|ports| ports.port(solicit.port)?.dp_port) else { continue };
        let packet = Packet::from_slice(&solicit.frame());
        let (mut key, metadata) =
            (FlowKey::default(), Metadata { in_port: in_port.0, ..Metadata::default() });
        extract(packet.data(), &metadata, view.vlan_limit, &mut key);
        let flow = key.to_flow(solicit.port);
        let actions = [Action::Output(Output { port: OfPort::TABLE, max_len_bytes: 0 })];
        let start = Start::Actions(&actions);
        let request = Request { view: &view, bridge: solicit.bridge, flow: &flow, start, trace: false };
        let t = translate(&request, &mut backer.xlate_host(true, now_ms));
        let seen = FlowStats { packets: 1, bytes: packet.len() as u64, used_ms: now_ms, tcp_flags: 0 };
        t.cache.replay(&seen, &mut backer.effect_host());
        release_after_use(backer, &t);
        let actions = t.actions.into();
        let execute = Execute { upcall: 0, packet, key, actions, ticket: None, went_on: false };
        ops.push(DpifOp::Execute(Box::new(execute)));
    }
    ops
}

/// Whether the datapath parsed the packet before the number of VLAN tags in keys changed: a flow of its key would be
/// of no use, or take packets that now have another key.
fn is_of_former_limit(view: &View, upcall: &Upcall) -> bool {
    let is_of_limit = upcall.key.is_of_vlan_limit(view.vlan_limit).unwrap_or_else(|| {
        let mut key = FlowKey::default();
        extract(upcall.packet.data(), &Metadata::default(), view.vlan_limit, &mut key);
        key.arp.vlan1 == VlanTag::default()
    });
    !is_of_limit
}

/// Translates the packet of an upcall, with effects.
fn translate_packet(backer: &Backer, view: &View, upcall: &Upcall, now_ms: u64) -> Translation {
    let key = &upcall.key;
    let Some((bridge, of_port)) = backer.receiver(view, key) else {
        return dropped(&key.to_flow(flow::OfPort::NONE), XlateDrop::BridgeNotFound);
    };
    let Ok(flow) = bridge.flow_of(key, of_port) else {
        return dropped(&key.to_flow(of_port), XlateDrop::InvalidTunnelMetadata);
    };
    let request = Request { view, bridge: bridge.id, flow: &flow, start: Start::Tables, trace: false };
    let t = backer.translate(
        &request,
        key,
        &mut backer.xlate_host(true, now_ms).with_packet(upcall.packet.data()),
    );
    backer.failures.report(&bridge.name, &flow, &t);
    if backer.failures.wants_trace(&t, now_ms) {
        let request = Request { trace: true, ..request };
        let translation = translate(&request, &mut backer.xlate_host(false, now_ms));
        release_after_use(backer, &translation);
        backer.failures.trace(Failed { flow, translation });
    }
    t
}

/// The packet of an upcall, with the number of times to count it.
fn seen(upcall: &Upcall, packets: u64, now_ms: u64) -> FlowStats {
    let bytes = packets * upcall.packet.len() as u64;
    FlowStats { packets, bytes, used_ms: now_ms, tcp_flags: upcall.key.tcp_flags() }
}

fn miss(backer: &Backer, view: &View, epoch: u64, upcall: Upcall, now_ms: u64, queue: &mut Vec<DpifOp>) {
    let t = translate_packet(backer, view, &upcall, now_ms);
    backer.observe(|o| o.translated(&upcall));
    let actions: Arc<[DpAction]> = t.actions.as_slice().into();
    let is_held = backer.hold(view, &upcall, &t, &actions, now_ms);
    let seen = seen(&upcall, 1, now_ms);
    match is_held {
        true => t.cache.replay_learning(&seen, &mut backer.effect_host()),
        false => t.cache.replay(&seen, &mut backer.effect_host()),
    }
    let is_taken = is_held || links::deliver(&t.claimed, upcall.packet.data());
    queue.extend(make_flow(
        backer,
        view,
        epoch,
        (upcall.ufid, upcall.pmd, &upcall.key),
        (t, &actions),
        now_ms,
    ));
    queue.push(execute(backer, view, upcall, actions, is_taken));
}

/// Makes the flow of a translation with these actions; `None`: it has no room, or is there.
fn make_flow(
    backer: &Backer,
    view: &View,
    epoch: u64,
    (ufid, pmd, key): (Ufid, PmdId, &FlowKey),
    (t, actions): (Translation, &Arc<[DpAction]>),
    now_ms: u64,
) -> Option<DpifOp> {
    // Packets without an input port count as a port.
    let room = backer.limits.room(view.dp_ports.len() as u64 + 1);
    if !backer.ukeys.reserve(key.in_port(), &room) {
        count(&backer.revisions.refused);
        t.cache.end_flow(None);
        release_after_use(backer, &t);
        return None;
    }
    let to_put: Arc<[DpAction]> =
        if t.slow_reasons == 0 { actions.clone() } else { t.actions_to_put().into() };
    let to_put = backer.long_lists.share(to_put);
    let mask = backer.mask_of(&t, key);
    let ukey = Ukey {
        flow: PackedFlow::new(key, &mask),
        actions: to_put.clone(),
        cache: t.cache,
        before: None,
        lookups: t.lookups,
        recircs: t.recircs.into(),
        epoch,
        pushed: FlowStats::default(),
        created_ms: now_ms,
        dump_seq: 0,
        state: UkeyState::Visible,
    };
    match backer.ukeys.fill(ufid, pmd, ukey) {
        Ok(()) => {
            let key = *key;
            let put = FlowPut { ufid, key, mask, actions: to_put, mode: PutMode::Create };
            Some(DpifOp::FlowPut(Box::new(put)))
        }
        // Its packet, with the same actions, may recirculate.
        Err(refused) => {
            count(&backer.revisions.repeated);
            backer.ukeys.defer_release(&refused.recircs);
            None
        }
    }
}

/// Makes the flow of a packet that another process has forwarded, for a thread, without the effects of a packet; `None`: it
/// needs a packet, has no room, or is there.
pub fn inherit(backer: &Backer, ufid: Ufid, pmd: PmdId, key: &FlowKey, now_ms: u64) -> Option<DpifOp> {
    let batch = backer.begin_translations();
    let view = backer.view();
    let (bridge, of_port) = view.receiver(key).filter(|_| key.base.recirc_id == 0)?;
    let flow = bridge.flow_of(key, of_port).ok()?;
    let request = Request { view: &view, bridge: bridge.id, flow: &flow, start: Start::Tables, trace: false };
    let t = backer.translate(&request, key, &mut backer.xlate_host(false, now_ms));
    let actions: Arc<[DpAction]> = t.actions.as_slice().into();
    make_flow(backer, &view, batch.epoch, (ufid, pmd, key), (t, &actions), now_ms)
}

/// Forwards the packet of an upcall without a flow, and counts it that many times.
fn forward(backer: &Backer, view: &View, upcall: Upcall, packets: u64, now_ms: u64) -> DpifOp {
    let t = translate_packet(backer, view, &upcall, now_ms);
    backer.observe(|o| o.translated(&upcall));
    t.cache.replay(&seen(&upcall, packets, now_ms), &mut backer.effect_host());
    release_after_use(backer, &t);
    let claimed = links::deliver(&t.claimed, upcall.packet.data());
    execute(backer, view, upcall, t.actions.into(), claimed)
}

/// Carries out the actions on the packet of an upcall: to controllers at once, elsewhere through the datapath.
/// `is_taken`: a session of the switch has it, or it waits for a neighbour.
fn execute(backer: &Backer, view: &View, upcall: Upcall, actions: Arc<[DpAction]>, is_taken: bool) -> DpifOp {
    let packet_in::Remaining { mut actions, went_on } = packet_in::take(backer, view, &upcall, actions);
    if is_taken && actions.iter().all(|action| matches!(action, DpAction::Drop(_))) {
        // No drop is to be counted.
        actions = Arc::default();
    }
    DpifOp::Execute(Box::new(Execute {
        upcall: upcall.id(),
        packet: upcall.packet,
        key: upcall.key,
        actions,
        ticket: upcall.ticket,
        went_on: went_on || is_taken,
    }))
}

/// Ids of a translation without a flow stay until its packet, which may recirculate, has passed.
fn release_after_use(backer: &Backer, t: &Translation) {
    backer.ukeys.defer_release(&t.recircs);
}

/// Processes the result of a put: removes a flow that the datapath refused. Returns `true` if the flow was made from
/// outdated state, so that the caller wakes the revalidator.
pub fn put_done(backer: &Backer, pmd: PmdId, ufid: flow::Ufid, installed: bool) -> bool {
    if installed {
        let epoch = backer.ukeys.with(ufid, pmd, |k| {
            if k.state == UkeyState::Visible {
                k.state = UkeyState::Operational;
            }
            k.epoch
        });
        // The flow is in the datapath before the epoch is read, so a later round sees it.
        if epoch.is_some_and(|made| made != backer.epoch()) {
            backer.queue_stale(ufid, pmd);
            return true;
        }
    } else if let Some(k) = backer.ukeys.remove(ufid, pmd) {
        k.cache.end_flow(None);
        backer.ukeys.defer_release(&k.recircs);
    }
    false
}

#[cfg(test)]
pub(crate) mod tests;
