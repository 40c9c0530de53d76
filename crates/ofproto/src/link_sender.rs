//! The sending of control packets of link protocols, through the tables where a tunnel or patch port takes them.

use crate::backer::Backer;
use crate::cache::XlateCache;
use crate::changes::Lookups;
use crate::ids::BridgeId;
use crate::links::{Claimed, deliver};
use crate::upcall;
use crate::xlate::{Request, Start, Translation, translate};
use dpif::{DpAction, DpifOp, Execute, FlowStats};
use flow::extract::{Metadata, extract};
use flow::fields::FieldId;
use flow::{FlowKey, OfPort, PackedFlow, tunnel_flags};
use l2proto::protocol::Transmission;
use ofp_actions::{Action, Output, SetField, SetStyle};
use packet::Packet;
use std::sync::Arc;

/// Sends the control packets of one session. It keeps the last translation, for packets with the same headers, until a
/// change may affect it.
#[derive(Default)]
pub struct LinkSender(Option<Box<Translated>>);

/// A translation of a control packet.
struct Translated {
    epoch: u64,
    place: (BridgeId, OfPort, bool),
    headers: Box<[u8]>,
    key: FlowKey,
    actions: Arc<[DpAction]>,
    cache: XlateCache,
    claimed: Vec<Claimed>,
    /// For the test whether a change affects it.
    lookups: Lookups,
    flow: PackedFlow,
}

impl Translated {
    /// Whether it holds for these packets; changes that do not affect it move it to their epoch.
    fn holds(&mut self, backer: &Backer, place: (BridgeId, OfPort, bool), headers: &[u8]) -> bool {
        if (self.place, &*self.headers) != (place, headers) || self.epoch == 0 {
            return false;
        }
        if self.epoch == backer.epoch() {
            return true;
        }
        let changes = backer.changes_since(self.epoch);
        if changes.affect(self.epoch, &self.lookups, &self.flow) {
            return false;
        }
        self.epoch = changes.epoch();
        true
    }
}

impl LinkSender {
    /// The operation that sends a control packet out of a port, as a packet-out without an input port; `None` if it goes
    /// nowhere, or through a patch port to its destination.
    pub fn send(
        &mut self,
        backer: &Backer,
        (bridge, port): (BridgeId, OfPort),
        sent: &Transmission,
        now_ms: u64,
    ) -> Option<DpifOp> {
        // Before the view: a translation of an older view has an older epoch.
        let (epoch, place) = (backer.epoch(), (bridge, port, sent.oam));
        let headers = sent.frame.get(..sent.header_bytes)?;
        if !self.0.as_deref_mut().is_some_and(|t| t.holds(backer, place, headers)) {
            let (key, t) = translate_sent(backer, place, &sent.frame, now_ms);
            // A frozen state lasts for one packet.
            backer.ukeys.defer_release(&t.recircs);
            let epoch = if t.recircs.is_empty() { epoch } else { 0 };
            self.0 = Some(Box::new(Translated {
                epoch,
                place,
                headers: headers.into(),
                flow: PackedFlow::new(&key, &backer.mask_of(&t, &key)),
                key,
                actions: t.actions.into(),
                cache: t.cache,
                claimed: t.claimed,
                lookups: t.lookups,
            }));
        }
        let t = self.0.as_deref()?;
        let seen = FlowStats { packets: 1, bytes: sent.frame.len() as u64, used_ms: now_ms, tcp_flags: 0 };
        t.cache.replay(&seen, &mut backer.effect_host());
        deliver(&t.claimed, &sent.frame);
        t.actions.iter().any(|action| !matches!(action, DpAction::Drop(_))).then(|| {
            let (packet, actions) = (Packet::from_slice(&sent.frame), t.actions.clone());
            let execute = Execute { upcall: 0, packet, key: t.key, actions, ticket: None, went_on: false };
            DpifOp::Execute(Box::new(execute))
        })
    }
}

/// Translates a packet-out of a control packet.
fn translate_sent(
    backer: &Backer,
    (bridge, port, oam): (BridgeId, OfPort, bool),
    frame: &[u8],
    now_ms: u64,
) -> (FlowKey, Translation) {
    let view = backer.view();
    let mut key = FlowKey::default();
    let metadata = Metadata { in_port: flow::DpPort::NONE.0, ..Metadata::default() };
    extract(frame, &metadata, view.vlan_limit, &mut key);
    let flow = key.to_flow(OfPort::NONE);
    let output = Action::Output(Output { port, max_len_bytes: 0 });
    let actions = if oam { vec![mark_oam(), output] } else { vec![output] };
    let request = Request { view: &view, bridge, flow: &flow, start: Start::Actions(&actions), trace: false };
    (key, translate(&request, &mut backer.xlate_host(true, now_ms)))
}

/// Requests of neighbours that sent packets need.
pub fn solicit(backer: &Backer, now_ms: u64) -> Vec<DpifOp> {
    upcall::solicit(backer, now_ms)
}

/// Marks the packet as one of the tunnel's management.
fn mark_oam() -> Action {
    let oam = u128::from(tunnel_flags::OAM);
    Action::SetField(SetField { field: FieldId::TunFlags, value: oam, mask: oam, style: SetStyle::SetField })
}
