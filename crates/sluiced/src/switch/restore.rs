//! State of the last process: bridges begin with it, and this process keeps its own.

use super::Switch;
use crate::state::{SavedMac, Taken};
use connmgr::RefusedPart;
use ofproto::backer::Backer;
use ofproto::ports::BridgeId;
use std::collections::BTreeMap;
use sync::lock;
use vswitch::config::{ControllerKind, Restore};

/// Refused parts named in the log, of a bridge.
const NAMED_MAX: usize = 10;

impl Switch {
    /// Gives a new bridge the rules, groups and meters that it had in the last process. With `flow-restore-wait` rules and
    /// groups come by OpenFlow, as from OVS's scripts; these lack meters, and a rule with a meter that is missing fails
    /// their whole bundle.
    pub(super) fn restore(&mut self, id: BridgeId, name: &str) {
        let global = self.planner.desired().global.clone();
        let is_of_running = self.state.is_of_running();
        if global.restore != Restore::Never
            && let Some(instance) = self.instances.of_bridge(id)
        {
            self.state.restore_connections(&instance.datapath);
        }
        let by_scripts = global.flow_restore_wait && !is_of_running;
        let Some(Taken { mut state, faults, macs }) = self.state.take(name, by_scripts) else { return };
        if global.restore == Restore::Never && !is_of_running {
            return;
        }
        let Some(config) = self.planner.desired().bridges.get(name) else { return };
        let has_controllers = config.controllers.iter().any(|c| c.kind == ControllerKind::Primary);
        let fail_mode = config.options.fail_mode;
        state.meters_only = by_scripts;
        if by_scripts && state.meters.is_empty() {
            return;
        }
        // Rules of scripts outlive the first message of a controller, as with OVS, and so do their meters.
        let until_admitted = global.restore == Restore::Auto && !by_scripts && !is_of_running;
        let now_ms = sys::clock::monotonic_ms();
        let refused = self.openflow.restore(id, &state, (fail_mode, has_controllers), until_admitted, now_ms);
        let left_out = faults.len() + refused.len();
        let (rules, groups, meters) = (state.rules.len(), state.groups.len(), state.meters.len());
        log::info!(target: "state", "{name}: restored {rules} rules, {groups} groups and {meters} meters of the last process, less {left_out} that are left out");
        let refused = refused.iter().map(|part| match part {
            RefusedPart::Meter(id, kind) => format!("meter {id}: {kind:?}"),
            RefusedPart::Group(id, kind) => format!("group {id}: {kind:?}"),
            RefusedPart::Rule(n, kind) => {
                let rule = state.rules.get(*n).map(|rule| &rule.added);
                let (table, priority) = rule.map_or((0, 0), |fm| (fm.table.0, fm.priority));
                format!("rule of table {table}, priority {priority}: {kind:?}")
            }
        });
        for line in faults.into_iter().chain(refused).take(NAMED_MAX) {
            log::warn!(target: "state", "{name}: left out: {line}");
        }
        self.state.macs.insert(id, macs);
    }

    /// Keeps state for the next process, once the first configuration is in force; none if the database says so.
    pub(super) fn keep_state(&mut self) {
        if !self.applied_once {
            return;
        }
        match self.planner.desired().global.restore {
            Restore::Auto | Restore::Always => {
                self.state.keep(self.backers(), &self.tracked());
            }
            Restore::Never => self.state.discard(),
        }
    }
}

/// Learns the saved addresses of ports that a bridge has now.
pub(super) fn learn(backer: &Backer, id: BridgeId, saved: &mut BTreeMap<BridgeId, Vec<SavedMac>>) {
    let Some(waiting) = saved.get_mut(&id).filter(|macs| !macs.is_empty()) else { return };
    let view = backer.view();
    let Some(bridge) = view.bridge(id) else { return };
    let bundles: BTreeMap<_, _> = bridge.ports.bundles.iter().map(|(id, b)| (b.name.as_str(), *id)).collect();
    let mut macs = lock(&bridge.macs);
    let before = waiting.len();
    waiting.retain(|saved| {
        let Some(bundle) = bundles.get(saved.port.as_str()) else { return true };
        match saved.seen_ms {
            Some(seen_ms) => drop(macs.learn(saved.vlan, saved.mac, *bundle, seen_ms)),
            None => macs.add_static(saved.vlan, saved.mac, *bundle),
        }
        false
    });
    drop(macs);
    if waiting.len() != before {
        backer.macs_changed();
    }
}
