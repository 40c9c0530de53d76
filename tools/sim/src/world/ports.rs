//! Ports added, removed and changed, and the updates of the bridges.

use super::{ALL_PORTS, FIRST_PORTS, PATCH, World};
use crate::frames::mac;
use dpif::{Datapath, PortOptions, PortSpec, SystemPort};
use flow::{DpPort, MacAddr, OfPort};
use ofproto::ports::{
    BridgeId, Bundle, BundleId, Port, PortConfigBits, PortCounters, PortTable, PriorityTags, VlanMode,
    VlanSet,
};
use std::sync::Arc;

impl World {
    /// Whether ports are added and removed.
    pub(crate) fn ports_change(&self) -> bool {
        self.scenario.port_changes
    }

    pub(super) fn toggle_port(&mut self) {
        let port = DpPort(self.rng.range(1, ALL_PORTS.into()) as u32);
        if self.up.remove(&port).is_none() {
            return self.port_up(port);
        }
        let tables_first = self.rng.one_in(2);
        if tables_first {
            self.publish_ports();
        }
        // It exists: it was among the ports that are up.
        let _ = self.dp.port_del(port);
        if !tables_first {
            self.publish_ports();
        }
    }

    /// A port modification by a controller, or a link that goes down or up.
    pub(super) fn change_port_config(&mut self) {
        let port = self.rng.below(ALL_PORTS.into()) as usize;
        let is_plain = self.port_configs[port] == PortConfigBits::default();
        self.port_configs[port] = PortConfigBits {
            port_down: is_plain && self.rng.one_in(2),
            no_recv: is_plain && self.rng.one_in(4),
            no_fwd: is_plain && self.rng.one_in(4),
            no_packet_in: is_plain && self.rng.one_in(4),
            ..PortConfigBits::default()
        };
        self.publish_ports();
    }

    pub(super) fn port_up(&mut self, port: DpPort) {
        let of_port = OfPort(if port.0 <= FIRST_PORTS { port.0 } else { port.0 - FIRST_PORTS });
        let spec = PortSpec {
            name: format!("p{}", port.0),
            options: PortOptions::System(SystemPort::default()),
            mac: None,
            mtu: None,
            number: Some(port),
        };
        if self.dp.port_add(&spec).is_ok() {
            self.up.insert(port, of_port);
            self.publish_ports();
        }
    }

    fn publish_ports(&mut self) {
        for (n, bridge) in self.bridges.into_iter().enumerate() {
            let mut table = PortTable::default();
            for (dp_port, of_port) in &self.up {
                if (dp_port.0 > FIRST_PORTS) == (n == 1) {
                    let mode = self.vlan_modes[dp_port.0 as usize - 1];
                    let config = self.port_configs[dp_port.0 as usize - 1];
                    add_port(&mut table, *of_port, Some(*dp_port), None, Arc::default(), mode, config);
                }
            }
            let peer = Some((self.bridges[1 - n], PATCH));
            add_port(&mut table, PATCH, None, peer, self.patches[n].clone(), 0, PortConfigBits::default());
            self.backer.set_ports(bridge, table);
        }
    }
}

/// A bridge of that many plain ports.
pub(crate) fn fuzz_ports(count: u32) -> PortTable {
    let mut table = PortTable::default();
    for n in 1..=count {
        add_port(&mut table, OfPort(n), Some(DpPort(n)), None, Arc::default(), 0, PortConfigBits::default());
    }
    table
}

pub(crate) fn add_port(
    table: &mut PortTable,
    of_port: OfPort,
    dp_port: Option<DpPort>,
    patch_peer: Option<(BridgeId, OfPort)>,
    counters: Arc<PortCounters>,
    mode: u8,
    config: PortConfigBits,
) {
    let bundle = BundleId(of_port.0);
    let port = Port {
        of_port,
        dp_port,
        name: format!("p{}", of_port.0),
        type_name: String::new(),
        mac: MacAddr(mac(100 + u64::from(of_port.0))),
        bundle,
        patch_peer,
        counters,
        tunnel: None,
        config: PortConfigBits { no_flood: mode == 7, ..config },
        link_down: config.port_down,
        links: Vec::new(),
        features: Default::default(),
        queue_dscp: Default::default(),
    };
    let vlan_mode = match mode {
        4 => VlanMode::Access,
        5 => VlanMode::NativeTagged,
        6 => VlanMode::NativeUntagged,
        8 => VlanMode::Dot1qTunnel,
        _ => VlanMode::Trunk,
    };
    let bundle = Bundle {
        id: bundle,
        name: port.name.clone(),
        members: vec![of_port],
        vlan_mode,
        tag: if vlan_mode == VlanMode::Trunk { 0 } else { 5 },
        trunks: (mode == 3).then(|| VlanSet::new([0, 5])),
        cvlans: (mode == 8).then(|| VlanSet::new([0, 7])),
        qinq_tpid: 0x88a8,
        mcast_flood: false,
        mcast_flood_reports: false,
        priority_tags: match mode {
            4 => PriorityTags::IfNonzero,
            2 => PriorityTags::Always,
            _ => PriorityTags::Never,
        },
        protected: mode == 1,
        floodable: mode != 7,
        bond: None,
    };
    table.ports.insert(of_port, Arc::new(port));
    table.bundles.insert(bundle.id, Arc::new(bundle));
}
