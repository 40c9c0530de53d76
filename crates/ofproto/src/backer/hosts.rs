//! The backer as the host of translations, and of replayed effects.

use super::Backer;
use super::learn::has_room;
use crate::native::{NativeTunnels, Solicit};
use crate::ports::BridgeId;
use crate::recirc::FrozenState;
use crate::xlate::{EffectHost, LearnedFlow, XlateHost};
use dpif::Capabilities;
use flow::{MacAddr, RecircId};
use routing::{Hop, Query};
use std::net::IpAddr;
use std::sync::Arc;
use sync::lock;

impl Backer {
    /// The host of a translation; with `effects` it adds learned rules.
    pub fn xlate_host(&self, effects: bool, now_ms: u64) -> BackerHost<'_> {
        BackerHost { backer: self, effects, now_ms }
    }

    /// The host of replayed effects.
    pub fn effect_host(&self) -> impl EffectHost + '_ {
        BackerEffects { backer: self }
    }
}

struct BackerEffects<'a> {
    backer: &'a Backer,
}

impl EffectHost for BackerEffects<'_> {
    fn learn(&mut self, bridge: BridgeId, learned: &LearnedFlow, used_ms: u64) {
        self.backer.learn_rule(bridge, learned, used_ms);
    }

    fn macs_changed(&mut self) {
        self.backer.bump_epoch();
    }

    fn neighbour_changed(&mut self, bridge: BridgeId, ip: IpAddr) {
        self.backer.neighbour_changed(bridge, Some(ip));
    }

    fn solicit(&mut self, solicit: &Solicit, used_ms: u64) {
        lock(&self.backer.solicited).request(solicit, used_ms);
    }
}

/// The backer as the host of a translation.
pub struct BackerHost<'a> {
    backer: &'a Backer,
    effects: bool,
    now_ms: u64,
}

impl XlateHost for BackerHost<'_> {
    fn route(&mut self, _native: &NativeTunnels, query: &Query) -> Option<Hop> {
        let mut asked = lock(&self.backer.routes_asked);
        let view = self.backer.view();
        let (hop, had_room) = asked.ask(query, &view.native.as_ref()?.routes);
        if !had_room {
            self.backer.bump_epoch();
        }
        hop
    }

    fn neighbour_seen(&mut self, native: &NativeTunnels, bridge: BridgeId, ip: IpAddr, mac: MacAddr) {
        let view = self.backer.view();
        let Some(bridge) = view.bridge(bridge) else { return };
        if lock(&native.neighbours).learn(self.now_ms, &bridge.name, ip, mac, true) {
            self.backer.neighbour_changed(bridge.id, Some(ip));
        }
    }

    fn now_ms(&self) -> u64 {
        self.now_ms
    }

    fn capabilities(&self) -> Capabilities {
        self.backer.features()
    }

    fn recirc_hold(&mut self, state: FrozenState) -> Option<RecircId> {
        lock(&self.backer.recirc).hold_state(state)
    }

    fn recirc_state(&mut self, id: RecircId) -> Option<Arc<FrozenState>> {
        self.backer.recirc_state(id)
    }

    fn learn(&mut self, bridge: BridgeId, learned: &LearnedFlow) -> bool {
        if self.effects {
            return self.backer.learn_rule(bridge, learned, self.now_ms);
        }
        self.backer
            .view()
            .bridge(bridge)
            .is_some_and(|b| has_room(&b.tables, &b.tables.pack(learned.table, &learned.matching), learned))
    }

    fn has_effects(&self) -> bool {
        self.effects
    }
}
