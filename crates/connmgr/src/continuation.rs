//! Paused translations: their state goes to a controller with the packet, and comes back in `NXT_RESUME`.
//!
//! The switch keeps nothing of a paused translation, so a controller may resume it at any time, or never. A removed
//! bridge, or another process, is recognised by the identifier of the bridge.

use super::BridgeCtx;
use super::Shared;
use super::conn::Conn;
use super::packets::{SentPacket, flow_of, key_and_flow};
use flow::fields::FieldId;
use flow::{DpPort, OfPort, TableId};
use ofproto::events::PacketInEvent;
use ofproto::packet_state::{HIDDEN_INGRESS, PacketState, hidden};
use ofproto::recirc::{FrozenState, FrozenStep};
use ofproto::xlate::Start;
use openflow::ErrorKind;
use openflow::msg::continuation::{Continuation, RemainingActions};
use openflow::msg::packet::PacketIn;

/// The state of a translation paused in the bridge with this identifier.
pub(super) fn continuation_of(event: &PacketInEvent, bridge: [u8; 16]) -> Continuation {
    let step =
        |s: &FrozenStep| RemainingActions { table: s.table, cookie: s.cookie, actions: s.actions.clone() };
    // Others are fields of the packet-in. A pause has a list of steps, and a first table only for lookups after `ct`.
    let FrozenState { bridge: _, table: _, packet, steps, resume_at: _, userdata: _, bond: _ } =
        &*event.state;
    let PacketState {
        in_port,
        ingress,
        metadata: _,
        regs: _,
        tunnel: _,
        tun_metadata: _,
        conntracked,
        stack,
        action_set,
        mirrors,
    } = packet;
    let mut hidden = hidden(&flow_of(event));
    hidden.extend((ingress != in_port).then_some((HIDDEN_INGRESS, ingress.0.into())));
    Continuation {
        bridge,
        stack: stack.clone(),
        mirrors: *mirrors,
        conntracked: *conntracked,
        steps: steps.iter().map(step).collect(),
        action_set: action_set.clone(),
        odp_port: event.key.in_port().0,
        hidden,
    }
}

impl Conn {
    /// Resumes a paused translation (`NXT_RESUME`).
    pub(super) fn resume_translation(
        &mut self,
        m: &PacketIn,
        shared: &Shared,
        ctx: &BridgeCtx<'_>,
        now_ms: u64,
    ) -> Result<(), ErrorKind> {
        let mut continuation = Continuation::decode(&m.continuation, self.version(), self.session.options())?;
        if continuation.bridge != ctx.backer.bridge_uuid(ctx.bridge) {
            return Err(ErrorKind::NxrStale);
        }
        let view = ctx.backer.view();
        let bridge = view.bridge(ctx.bridge).ok_or(ErrorKind::NxrStale)?;
        let dp_port = DpPort(continuation.odp_port);
        let mut fields = m.metadata.clone();
        let (in_port, _) = fields.get(FieldId::InPortOxm);
        fields.set_masked(FieldId::InPortOxm, 0, 0);
        let in_port = OfPort(in_port as u32);
        let ingress = continuation.hidden.extract_if(.., |(number, _)| *number == HIDDEN_INGRESS).last();
        let ingress = ingress.map_or(in_port, |(_, port)| OfPort(port as u32));
        let (key, flow) = key_and_flow(&m.data, (dp_port, in_port), (&fields, &continuation.hidden), ctx)?;
        let steps = continuation.steps.iter().map(|step| (Some(step.table), &step.actions[..]));
        for (table, list) in steps.chain([(None, &continuation.action_set[..])]) {
            // As in OVS, an action need not fit the packet: it was checked with the match of its rule, and other rules may
            // have changed the packet since.
            for action in list.chunks(1) {
                match self.check_sent(&flow, [(table, action)], ctx, now_ms) {
                    Ok(()) | Err(ErrorKind::BacMatchInconsistent) => {}
                    Err(other) => return Err(other),
                }
            }
            shared.check_references(list, &bridge.tables)?;
        }
        let step = |s: RemainingActions| FrozenStep { table: s.table, cookie: s.cookie, actions: s.actions };
        let mut packet = PacketState::of(&flow, ingress, continuation.conntracked);
        (packet.stack, packet.action_set) = (continuation.stack, continuation.action_set);
        packet.mirrors = continuation.mirrors;
        let state = FrozenState {
            bridge: ctx.bridge,
            table: continuation.steps.first().map_or(TableId(0), |step| step.table),
            packet,
            steps: continuation.steps.into_iter().map(step).collect(),
            resume_at: None,
            userdata: Vec::new(),
            bond: None,
        };
        let packet = SentPacket { data: &m.data, key, flow: &flow };
        packet.translate_and_execute(&view, Start::Resume(&state), ctx, now_ms);
        Ok(())
    }
}
