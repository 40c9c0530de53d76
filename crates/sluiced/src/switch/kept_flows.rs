//! Flows that outlive a process ([`crate::state`]): packets are forwarded by those of the last one as soon as all ports are
//! open, while the rules are restored.

use super::handover::Role;
use super::restore::learn;
use super::{Reactor, Switch};
use crate::state::{KeptFlows, Numbered};
use ofproto::ports::BridgeId;
use vswitch::Desired;
use vswitch::config::{Restore, Translated};
use vswitch::plan::OpenPort;

/// Flows of the last process, and bridges of their datapaths, whose rules are not restored yet.
pub(super) struct FlowsFirst {
    flows: KeptFlows,
    /// The settings that the flows were made from.
    settings: Translated,
    bridges: Vec<(BridgeId, String)>,
}

impl Switch {
    /// This configuration is about to be carried out. At the start, takes the flows that the last process left, if they fit it.
    /// Until the rules are restored, bridges have no sockets and no controllers.
    pub(super) fn configure_flows(&mut self, desired: &Desired) {
        self.state.configure_flows(desired);
        if let Some(first) = self.flows_first.as_mut().filter(|first| !first.settings.is_of(desired)) {
            first.flows.datapaths.clear();
        }
        let global = &desired.global;
        let restores = global.restore != Restore::Never && !global.flow_restore_wait;
        if self.role != Role::Whole || !restores || !self.instances.have_left_queues() {
            return self.state.drop_flows();
        }
        let settings = desired.translated();
        let flows = self.state.take_flows(&settings);
        if !flows.datapaths.is_empty() {
            self.instances.begin_with(&flows);
            self.openflow.close();
            self.flows_first = Some(FlowsFirst { flows, settings, bridges: Vec::new() });
        }
    }

    /// Gives a new bridge the state that it had in the last process: now, or once packets are forwarded.
    pub(super) fn restore_in_turn(&mut self, id: BridgeId, name: &str) {
        let awaits = self.instances.of_bridge(id).is_some_and(|instance| instance.awaits_rules());
        match &mut self.flows_first {
            Some(first) if awaits => first.bridges.push((id, name.to_string())),
            _ => self.restore(id, name),
        }
    }

    /// The first configuration is in force. A successor receives only at the change.
    pub(super) fn begin_settled(&mut self, reactor: &mut Reactor) {
        self.instances.settled();
        if self.role == Role::Whole {
            self.begin_receiving(reactor);
        }
    }

    /// Receives by queues that an ended process left: all ports are there, or do not come. Its flows are installed before, and
    /// rules are restored behind.
    pub(crate) fn begin_receiving(&mut self, reactor: &mut Reactor) {
        self.state.drop_flows();
        let mut first = self.flows_first.take();
        let (mut kept, mut installed) = (0, 0);
        let flows = first.as_mut().map(|first| std::mem::take(&mut first.flows)).unwrap_or_default();
        let are_same = flows.numbers.iter().all(|number| self.has_number(number));
        for (name, datapath) in flows.datapaths {
            kept += datapath.flows.len();
            let instance = self.instances.named(Some(&name)).ok().filter(|_| are_same);
            installed += instance.map_or(0, |instance| instance.install(datapath));
        }
        let all = self.instances.all();
        all.iter().filter_map(|i| i.userspace.as_ref()).for_each(|datapath| datapath.begin(&[]));
        let Some(first) = first else { return };
        log::info!(target: "state", "{installed} flows of {kept} of the last process forward");
        for (id, name) in first.bridges {
            let Some(backer) = self.instances.of_bridge(id).map(|instance| instance.backer.clone()) else {
                continue;
            };
            self.restore(id, &name);
            learn(&backer, id, &mut self.state.macs);
        }
        self.instances.rules_restored();
        self.openflow.open(reactor, sys::clock::monotonic_ms());
    }

    /// Whether an interface, if it is there, has the number that it had: rules name it.
    fn has_number(&self, of: &Numbered) -> bool {
        let port = self.planner.open_port(&of.name);
        port.is_none_or(|port| (port.bridge_name, port.of_port) == (of.bridge.as_str(), of.number))
    }

    /// Keeps flows for the next process, if that will have the receive queues of this one. Call it about once a second.
    pub(super) fn keep_flows(&mut self) {
        let is_kept = || self.state.keeps_flows(&self.instances.port_changes());
        if !self.keeps_flows || !self.is_settled() || is_kept() {
            return;
        }
        let desired = self.planner.desired();
        // A port of a spanning tree may have to block at the next start.
        let datapaths = if desired.has_trees() { Vec::new() } else { self.instances.flow_sources() };
        let number = |port: OpenPort<'_>| Numbered {
            bridge: port.bridge_name.to_string(),
            name: port.name.to_string(),
            number: port.of_port,
        };
        let numbers = self.planner.open_ports().map(number).collect();
        self.state.keep_flows(desired, numbers, datapaths);
    }
}
