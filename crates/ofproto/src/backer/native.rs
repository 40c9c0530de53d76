//! Routes and neighbours of tunnels in user space, their changes, and packets that wait for neighbours.

use super::Backer;
use crate::cache::XlateEffect;
use crate::changes::Change;
use crate::ids::BridgeId;
use crate::native::{NativeTunnels, Solicit};
use crate::unresolved::held::HeldPacket;
use crate::view::View;
use crate::xlate::Translation;
use dpif::{DpAction, Upcall};
use std::net::IpAddr;
use std::sync::Arc;
use sync::lock;

impl Backer {
    /// Sets what tunnels in user space need. `changes`: those of routes since the last call; `None`: of more than routes.
    pub fn set_native(&self, native: NativeTunnels, changes: Option<&[routing::Change]>) {
        // Held meanwhile: a translation gets a route from before and is in the cache, or it gets a new one.
        let mut asked = lock(&self.routes_asked);
        let followed = asked.follow(&native.routes, changes.unwrap_or(&[routing::Change::Everything]));
        let is_first = self.view().native.is_none();
        let changed = changes.filter(|_| !is_first).map(|_| followed);
        self.change_as(|view| view.native = Some(Arc::new(native)), changed);
    }

    /// Has flows checked that depend on a neighbour; with `None` on any. Packets that wait for it wait no longer.
    pub fn neighbour_changed(&self, bridge: BridgeId, ip: Option<IpAddr>) {
        if let Some(ip) = ip {
            lock(&self.solicited).answered(bridge, ip);
        }
        self.changes.record(ip.map(|ip| vec![Change::Neighbour(bridge, ip)]));
    }

    /// Requests of neighbours that are to be sent.
    pub fn take_solicited(&self) -> Vec<Solicit> {
        lock(&self.solicited).take()
    }

    /// Has the packet of a miss wait for a neighbour, if only the lack of its address dropped it and there is room.
    /// Returns whether it waits.
    pub(crate) fn hold(
        &self,
        view: &View,
        upcall: &Upcall,
        t: &Translation,
        actions: &Arc<[DpAction]>,
        now_ms: u64,
    ) -> bool {
        let unresolved = t.cache.effects().iter().find_map(|effect| {
            let XlateEffect::Unresolved(solicit) = effect else { return None };
            Some(solicit)
        });
        let is_dropped = actions.iter().all(|action| matches!(action, DpAction::Drop(_)));
        let Some(solicit) = unresolved.filter(|_| is_dropped && t.slow_reasons == 0 && t.claimed.is_empty())
        else {
            return false;
        };
        let (bridge, target) = (solicit.bridge, solicit.target);
        {
            let held = &mut lock(&self.solicited).held;
            if !held.has_room(bridge, target, upcall.rx_port, upcall.packet.len()) {
                return false;
            }
            held.add(bridge, target, HeldPacket::new(upcall, t.cache.clone(), actions.clone(), now_ms));
        }
        // Another thread may have learned the address since the translation looked it up.
        let name = view.bridge(bridge).map(|bridge| bridge.name.clone());
        let table = view.native.as_ref().map(|native| &native.neighbours);
        if let Some((table, name)) = table.zip(name)
            && lock(table).lookup(now_ms, &name, target).is_some()
        {
            lock(&self.solicited).held.answer(bridge, target);
        }
        true
    }

    /// Packets whose neighbours answered, and those that waited in vain.
    pub(crate) fn take_held(&self, now_ms: u64) -> (Vec<HeldPacket>, Vec<HeldPacket>) {
        lock(&self.solicited).held.take(now_ms)
    }

    /// Packets that waited for a neighbour, in all.
    pub fn held_in_all(&self) -> u64 {
        lock(&self.solicited).held.total
    }
}
