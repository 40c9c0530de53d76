//! Paused translations: their state goes to a controller with the packet, and comes back in `NXT_RESUME`.
//!
//! The switch keeps nothing of a paused translation, so a controller may resume it at any time, or never. A removed
//! bridge, or another process, is recognised by the identifier of the bridge.

use super::BridgeCtx;
use super::Shared;
use super::conn::Conn;
use super::packets::{SentPacket, key_and_flow};
use crate::backer::Backer;
use crate::events::PacketInEvent;
use crate::ports::BridgeId;
use crate::recirc::{FrozenState, FrozenStep};
use crate::xlate::Start;
use flow::fields::FieldId;
use flow::{DpPort, OfPort, TableId};
use openflow::ErrorKind;
use openflow::msg::continuation::{Continuation, Step};
use openflow::msg::packet::PacketIn;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

impl Backer {
    /// Identifies a bridge of this process.
    pub fn bridge_uuid(&self, bridge: BridgeId) -> [u8; 16] {
        let mut uuid = [0; 16];
        for (half, part) in uuid.chunks_mut(8).zip(0u8..) {
            // One-way: the seed of the tables stays secret.
            let mut hasher = DefaultHasher::new();
            (self.hash_seed(), bridge.0, part).hash(&mut hasher);
            half.copy_from_slice(&hasher.finish().to_be_bytes());
        }
        uuid
    }
}

/// The state of a translation paused in the bridge with this identifier.
pub(super) fn continuation_of(event: &PacketInEvent, bridge: [u8; 16]) -> Continuation {
    let state = &event.state;
    let step = |s: &FrozenStep| Step { table: s.table, cookie: s.cookie, actions: s.actions.clone() };
    Continuation {
        bridge,
        stack: state.stack.clone(),
        conntracked: state.conntracked,
        steps: state.steps.iter().map(step).collect(),
        action_set: state.action_set.clone(),
        odp_port: event.key.in_port().0,
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
        let continuation = Continuation::decode(&m.continuation, self.version(), self.session.options())?;
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
        let (key, flow) = key_and_flow(&m.data, (dp_port, in_port), &fields, ctx)?;
        let has_group = |id| bridge.tables.groups().get(id).is_some();
        let steps = continuation.steps.iter().map(|step| (Some(step.table), &step.actions[..]));
        let lists = steps.chain([(None, &continuation.action_set[..])]);
        self.check_sent(&flow, lists, shared, (ctx, &has_group), now_ms)?;
        let received = view.dp_ports.get(&dp_port).filter(|(id, _)| *id == ctx.bridge);
        let step = |s: Step| FrozenStep { table: s.table, cookie: s.cookie, actions: s.actions };
        let state = FrozenState {
            bridge: ctx.bridge,
            table: continuation.steps.first().map_or(TableId(0), |step| step.table),
            in_port: in_port.0,
            ingress: received.map_or(in_port, |(_, port)| *port),
            metadata: flow.metadata,
            regs: flow.regs,
            tunnel: flow.tunnel(),
            tun_metadata: flow.tun_options().map(Box::new),
            stack: continuation.stack,
            steps: continuation.steps.into_iter().map(step).collect(),
            resume_at: None,
            conntracked: continuation.conntracked,
            action_set: continuation.action_set,
            userdata: Vec::new(),
        };
        let packet = SentPacket { data: &m.data, key, flow: &flow };
        packet.translate_and_execute(&view, Start::Resume(&state), ctx, now_ms);
        Ok(())
    }
}
