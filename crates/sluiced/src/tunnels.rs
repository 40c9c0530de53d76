//! Tunnels of userspace datapaths: their ports listen ([`Routing`]), and translation follows routes and neighbours.

use crate::instances::{Instance, Instances};
use crate::routing::{Routing, RoutingUpdate};
use dpif::{OpBatch, PmdId, TunnelKind};
use ofproto::tunnel::{Endpoint, TunnelConfig};
use ofproto::upcall;
use routing::{Carrier, Families, Query, TunnelPort};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// The device to which a tunnel's route leads.
#[derive(PartialEq, Eq)]
pub(crate) struct Egress {
    pub(crate) device: Arc<str>,
    pub(crate) has_carrier: bool,
}

/// Has the userspace datapaths follow routes, neighbours and local addresses. Returns whether routes changed.
pub(crate) fn follow_routing(instances: &mut Instances, routing: &mut Routing) -> bool {
    // No short circuit: each remembers its tunnels.
    let changed = with_tunnels(instances).fold(false, |changed, i| have_changed(i) | changed);
    if changed {
        let tunnels = instances.iter().filter(|i| i.datapath.tunnels().is_some()).flat_map(listeners);
        routing.set_tunnels(tunnels.collect());
    }
    let update = routing.take_update();
    for instance in with_tunnels(instances) {
        follow(instance, routing, &update);
    }
    if !update.routes.is_empty() {
        instances.routes = routing.routes().clone();
    }
    !update.routes.is_empty()
}

/// The devices of the routes to the fixed addresses of tunnels, by interface.
pub(crate) fn egress(instances: &Instances) -> BTreeMap<String, Egress> {
    let mut carriers = BTreeMap::new();
    let mut has_carrier = |device: &Arc<str>| {
        let carrier = || netdev::link::link_info(device).is_ok_and(|info| info.carrier());
        *carriers.entry(device.clone()).or_insert_with(carrier)
    };
    let mut all = BTreeMap::new();
    for view in instances.iter().map(|i| i.backer.view()).filter(|view| !view.tunnels.is_empty()) {
        for port in view.bridges.values().flat_map(|b| b.ports.ports.values()) {
            let Some(config) = &port.tunnel else { continue };
            let Endpoint::Address(dst) = config.remote else { continue };
            let query = Query { mark: config.egress_pkt_mark.unwrap_or(0), dst, src: None };
            if let Ok(hop) = instances.routes.lookup(&query) {
                let has_carrier = has_carrier(&hop.device);
                all.insert(port.name.clone(), Egress { device: hop.device, has_carrier });
            }
        }
    }
    all
}

fn with_tunnels(instances: &mut Instances) -> impl Iterator<Item = &mut Instance> {
    instances.bridged_mut().filter(|i| i.datapath.tunnels().is_some())
}

/// Whether the tunnels of a datapath changed since the last call.
fn have_changed(instance: &mut Instance) -> bool {
    let now = &instance.backer.view().tunnels;
    !now.is_same(&std::mem::replace(&mut instance.tunnels, now.clone()))
}

fn follow(instance: &mut Instance, routing: &Routing, update: &RoutingUpdate) {
    let is_new = !std::mem::replace(&mut instance.is_routed, true);
    if is_new || update.others || !update.routes.is_empty() {
        let (state, egress_ports) = routing.state();
        instance.backer.set_native(state, (!is_new && !update.others).then_some(&update.routes));
        if let Some(tunnels) = instance.datapath.tunnels() {
            tunnels.set_egress_ports(egress_ports);
        }
    }
    for changed in &update.neighbours {
        neighbour_changed(instance, changed.as_ref());
    }
    if !update.neighbours.is_empty() {
        // Packets that waited for them.
        let ops = upcall::solicit(&instance.backer, sys::clock::monotonic_ms());
        instance.datapath.operate(OpBatch { pmd: PmdId::Main, ops, tag: 0, reply: None });
    }
}

fn neighbour_changed(instance: &Instance, changed: Option<&(String, IpAddr)>) {
    let Some((bridge, ip)) = changed else { return instance.backer.bump_epoch() };
    if let Some(bridge) = instance.backer.view().bridge_by_name(bridge) {
        instance.backer.neighbour_changed(bridge.id, Some(*ip));
    }
}

/// The tunnel ports of a datapath, with the number of tunnels of each.
fn listeners(instance: &Instance) -> Vec<TunnelPort> {
    let mut all = BTreeMap::new();
    let view = instance.backer.view();
    let ports = view.bridges.values().flat_map(|b| b.ports.ports.values());
    for (config, number) in ports.filter_map(|p| Some((p.tunnel.as_ref()?, p.dp_port?))) {
        let carrier = carrier(config);
        let listener = || TunnelPort { name: config.device().into(), number, carrier, users: 0 };
        let listener = all.entry(number).or_insert_with(listener);
        listener.users += 1;
        if listener.carrier != carrier {
            // Tunnels over both families share it.
            listener.carrier = Carrier::Gre(Families::Both);
        }
    }
    all.into_values().collect()
}

fn carrier(config: &TunnelConfig) -> Carrier {
    match config.kind {
        TunnelKind::Vxlan | TunnelKind::Geneve | TunnelKind::Gtpu => Carrier::Udp(config.dst_port),
        TunnelKind::Srv6 => Carrier::Srv6,
        TunnelKind::Gre | TunnelKind::Ip6gre | TunnelKind::Erspan | TunnelKind::Ip6erspan => {
            Carrier::Gre(match (config.remote, config.kind) {
                (Endpoint::Address(remote), _) if remote.is_ipv4() => Families::V4,
                (Endpoint::Address(_), _) => Families::V6,
                (Endpoint::Any | Endpoint::Flow, TunnelKind::Ip6gre | TunnelKind::Ip6erspan) => Families::V6,
                (Endpoint::Any | Endpoint::Flow, _) => Families::Both,
            })
        }
    }
}
