//! Sampling of bridges: from their settings to translations and exporters.

use super::Switch;
use crate::exporters::{Export, agent_address};
use crate::instances::Instance;
use ofproto::ports::BridgeId;
use ofproto::sampling::SampledPort;
use std::net::IpAddr;
use std::sync::Arc;
use telemetry::netflow;
use vswitch::config::{IpfixConfig, NetflowConfig, SflowConfig};

impl Switch {
    /// Configures the export of a bridge. An agent of sFlow without an address exports nothing, as in OVS.
    pub(super) fn set_export(
        &mut self,
        bridge: BridgeId,
        netflow: Option<&NetflowConfig>,
        sflow: Option<&SflowConfig>,
        ipfix: Option<&IpfixConfig>,
        mut export: Export,
    ) {
        let wanted = sflow.filter(|sflow| !sflow.targets.is_empty() && sflow.sampling != 0);
        export.sflow = wanted.and_then(|sflow| {
            let of_device = |name: &str| self.address_of(name);
            let agent = agent_address(sflow.agent.as_deref(), of_device, &sflow.targets);
            if agent.is_none() {
                log::error!(target: "sflow", "could not determine IP address for sFlow agent");
            }
            Some((sflow.clone(), agent?))
        });
        export.ipfix = ipfix.filter(|ipfix| !ipfix.targets.is_empty()).cloned();
        export.sets.retain(|_, set| !set.targets.is_empty());
        let Some(instance) = self.instances.of_bridge(bridge) else { return };
        let lacks = !export.local_groups.is_empty() && !instance.backer.features().psample;
        if lacks && self.exporters.local_groups(bridge) != Some(&export.local_groups) {
            let name = instance.backer.view().bridge(bridge).map(|b| b.name.clone()).unwrap_or_default();
            log::warn!(
                target: "bridge",
                "bridge {name}: ignoring local sampling configuration: not supported by this datapath"
            );
        }
        let netflow = netflow.filter(|netflow| !netflow.targets.is_empty());
        export.netflow = netflow.map(|netflow| (netflow.targets.clone(), records(netflow, instance)));
        self.exporters.configure(bridge, export, instance);
        self.refresh_sampling(bridge);
        self.review_local_samples(bridge);
    }

    /// Reports whether samples of a bridge for local readers are not taken, after a change of these or of features.
    pub(crate) fn review_local_samples(&mut self, bridge: BridgeId) {
        let Some(instance) = self.instances.of_bridge(bridge) else { return };
        let wanted = self.exporters.local_groups(bridge).is_some_and(|groups| !groups.is_empty());
        let lacks = wanted && !instance.backer.features().psample;
        let why = "local_group_id: samples for local readers are not taken: the datapath lacks psample";
        self.planner.sampling_failed(bridge, lacks.then(|| why.to_string()));
    }

    /// The address of a dummy or of a device of the system.
    fn address_of(&self, name: &str) -> Option<IpAddr> {
        let dummy = self.instances.dummy_ports().get(name);
        let own = dummy.and_then(|dummy| dummy.addresses().first().map(|(ip, _)| *ip));
        own.or_else(|| sys::machine::device_address(name))
    }

    /// Gives translations of a bridge its sampling with its present ports.
    pub(super) fn refresh_sampling(&mut self, bridge: BridgeId) {
        let Some(instance) = self.instances.of_bridge(bridge) else { return };
        let Some(view) = instance.backer.view().bridge(bridge).cloned() else { return };
        let sampling = self.exporters.sampling(bridge).map(|mut sampling| {
            let ports = view.ports.ports.values().filter_map(|port| {
                let device = self.devices.get(&port.name);
                let shown = SampledPort {
                    ifindex: device.map_or(0, |device| device.ifindex()),
                    name: port.name.clone(),
                    of_port: port.of_port,
                    type_name: port.type_name.clone(),
                };
                Some((port.dp_port?, shown))
            });
            sampling.ports = ports.collect();
            sampling
        });
        let netflow = self.exporters.netflow(bridge);
        let is_same = |now: &Arc<_>| netflow.as_ref().is_some_and(|netflow| Arc::ptr_eq(now, netflow));
        let exports_same = view.netflow.as_ref().map_or(netflow.is_none(), is_same);
        if view.sampling.as_deref() != sampling.as_ref() || !exports_same {
            let sampling = sampling.map(Arc::new);
            instance.backer.change_bridge(bridge, |b| (b.sampling, b.netflow) = (sampling, netflow));
        }
    }
}

/// Settings of records of NetFlow. Engines without settings are those of the datapath, as in OVS: the kernel's has the
/// index of its device, others have a hash of their name.
fn records(config: &NetflowConfig, instance: &Instance) -> netflow::Settings {
    let NetflowConfig { targets: _, active_timeout_s, engine_id, engine_type, add_id_to_interface } = config;
    let (of_kernel, name) = match instance.name().split_once('@') {
        Some(("system", name)) => (sys::machine::device_index(name), name),
        Some((_, name)) => (None, name),
        None => (None, instance.name()),
    };
    let (of_type, of_id) =
        of_kernel.map_or_else(|| netflow::engine_of(name), |index| (index as u8, index as u8));
    netflow::Settings {
        engine_type: engine_type.unwrap_or(of_type),
        engine_id: engine_id.unwrap_or(of_id),
        add_id_to_interface: *add_id_to_interface,
        active_timeout_ms: active_timeout_s.map(|s| u64::from(s) * 1000),
    }
}
