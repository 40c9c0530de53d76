//! The steps from the applied state to the desired one, for the bridges that may differ.
//!
//! First removals, over all bridges, so that a device can move; then new bridges; then devices to open; finally
//! settings, ports and controllers of each bridge.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ofproto::ports::{BridgeId, Bundle, BundleId, VlanSet};
use ofproto::{MacAddr, OfPort};

use super::mirrors;
use super::ports::{FormerEntries, differing, differing_entries};
use super::state::{Bridge, Interface, Names, Open, State};
use super::{BridgeSettings, Command, CreateBridge, OpenId, OpenInterface, Planner, PortEntry, PortSet};
use crate::config::{
    BridgeConfig, ControllerConfig, ControllerKind, InterfaceConfig, PortConfig, natural_order,
};

impl Planner {
    pub(super) fn reconcile(&mut self) -> Vec<Command> {
        let mut out = Vec::new();
        if self.desired.row.is_some() && self.global.as_ref() != Some(&self.desired.global) {
            self.global = Some(self.desired.global.clone());
            out.push(Command::SetGlobal(self.desired.global.clone()));
        }
        self.conntrack(&mut out);
        let dirty = std::mem::take(&mut self.dirty);
        for name in &dirty {
            self.let_go(name, &mut out);
        }
        for name in &dirty {
            self.create(name, &mut out);
        }
        for name in &dirty {
            self.open(name, &mut out);
        }
        let mut queue = dirty;
        while let Some(name) = queue.pop_first() {
            self.settle(&name, &mut out);
            queue.append(&mut self.dirty);
        }
        out
    }

    fn conntrack(&mut self, out: &mut Vec<Command>) {
        if self.conntrack == self.desired.conntrack {
            return;
        }
        let before = std::mem::replace(&mut self.conntrack, self.desired.conntrack.clone());
        let types: BTreeSet<&String> = before.keys().chain(self.conntrack.keys()).collect();
        for name in types {
            let config = self.conntrack.get(name);
            if before.get(name) != config {
                let config = config.cloned().unwrap_or_default();
                out.push(Command::SetConntrack { datapath_type: name.clone(), config });
            }
        }
    }

    /// Removes unwanted parts of a bridge, or the bridge, and adopts its new configuration.
    fn let_go(&mut self, name: &str, out: &mut Vec<Command>) {
        let Some(bridge) = self.bridges.get(name) else { return };
        let wanted = self.desired.bridges.get(name).cloned();
        let identity = |c: &BridgeConfig| (c.row, c.default_datapath.clone(), c.datapath_version.clone());
        let is_other = wanted
            .as_ref()
            .is_none_or(|config| identity(config) != identity(&bridge.config) || bridge.failed.is_some());
        let (failed, former) = (bridge.failed.is_some(), bridge.config.clone());
        if is_other {
            self.all_changed();
        }
        match wanted {
            Some(config) if !failed && former.datapath_type == config.datapath_type => {
                self.take_config(name, config, out);
            }
            Some(config) if failed && former == config => {}
            _ => self.destroy(name, out),
        }
    }

    fn destroy(&mut self, name: &str, out: &mut Vec<Command>) {
        let Some(mut bridge) = self.bridges.remove(name) else { return };
        self.home.retain(|_, home| home != name);
        if bridge.failed.is_some() {
            return;
        }
        if !bridge.ports.ports.is_empty() {
            self.note_neighbours(name, bridge.ports.ports.iter().map(|entry| &**entry), []);
            let ports = Arc::default();
            out.push(Command::SetPorts { bridge: bridge.id, name: name.to_string(), ports });
        }
        let open = bridge.interfaces.iter().filter(|(_, interface)| interface.has_device());
        bridge.to_close.extend(open.map(|(interface, _)| interface.clone()));
        self.forget_openings(bridge.interfaces.values());
        close_all(&mut bridge, out);
        out.push(Command::DestroyBridge { bridge: bridge.id, name: name.to_string() });
    }

    fn forget_openings<'i>(&mut self, interfaces: impl Iterator<Item = &'i Interface>) {
        for interface in interfaces {
            if let State::Opening(open) = &interface.state {
                self.openings.remove(open);
            }
        }
    }

    /// Adopts the configuration of a bridge, with a look at changed ports alone.
    fn take_config(&mut self, name: &str, config: Arc<BridgeConfig>, out: &mut Vec<Command>) {
        let Some(bridge) = self.bridges.get_mut(name) else { return };
        let mut gone = Vec::new();
        if !Arc::ptr_eq(&bridge.config, &config) {
            let before = std::mem::replace(&mut bridge.config, config.clone());
            let (old_ports, new_ports) = differing_ports(&before.ports, &config.ports);
            bridge.adopt_ports(&old_ports, &new_ports);
            let rows = |port: &&Arc<PortConfig>| {
                (port.row, port.interfaces.iter().map(|interface| interface.row).collect::<Vec<_>>())
            };
            let has_same_rows = old_ports.iter().map(rows).eq(new_ports.iter().map(rows));
            self.version += u64::from(!has_same_rows);
            let mut wanted = wanted_interfaces(new_ports.iter().copied());
            let old = wanted_interfaces(old_ports.iter().copied());
            for interface in old.into_keys() {
                let is_of_type = |new: &InterfaceConfig| {
                    bridge.interfaces.get(interface).is_some_and(|old| old.config.type_name == new.type_name)
                };
                match wanted.remove(interface) {
                    Some((port, new)) if is_of_type(new) => update_config(bridge, interface, port, new),
                    again => {
                        bridge.take_out_opening(interface, &mut self.openings);
                        bridge.interfaces.remove(interface);
                        match again {
                            Some((port, new)) => {
                                bridge.interfaces.insert(Interface::new(new.clone(), port.clone()));
                            }
                            None => gone.push(interface.to_string()),
                        }
                    }
                }
            }
            for (interface, (port, new)) in wanted {
                bridge.interfaces.insert(Interface::new(new.clone(), port.clone()));
                self.home.insert(interface.to_string(), name.to_string());
            }
        }
        let closing = !bridge.to_close.is_empty();
        for interface in gone {
            if self.home.get(&interface).is_some_and(|home| home == name) {
                self.home.remove(&interface);
            }
        }
        if closing {
            self.publish_ports(name, out);
            if let Some(bridge) = self.bridges.get_mut(name) {
                close_all(bridge, out);
            }
        }
    }

    fn create(&mut self, name: &str, out: &mut Vec<Command>) {
        let Some(config) = self.desired.bridges.get(name) else { return };
        if self.bridges.contains_key(name) {
            return;
        }
        let mut bridge = Bridge::new(BridgeId(self.next_bridge), config.clone());
        self.next_bridge += 1;
        let ports: Vec<_> = config.ports.values().collect();
        bridge.adopt_ports(&[], &ports);
        for (interface, (port, new)) in wanted_interfaces(ports) {
            bridge.interfaces.insert(Interface::new(new.clone(), port.clone()));
            self.home.insert(interface.to_string(), name.to_string());
        }
        out.push(Command::CreateBridge(CreateBridge {
            bridge: bridge.id,
            name: name.to_string(),
            datapath_type: config.datapath_type.clone(),
            datapath_id: bridge.datapath_id(),
        }));
        configure(name, &mut bridge, out);
        self.bridges.insert(name.to_string(), bridge);
        self.all_changed();
    }

    /// Opens wanted interfaces: the bridge's own first, then those with a requested number, then by name.
    fn open(&mut self, name: &str, out: &mut Vec<Command>) {
        let Some(bridge) = self.bridges.get_mut(name) else { return };
        // An interface that is wanted changed since its bridge was settled.
        bridge.refresh();
        let changed = bridge.unsent.iter().filter_map(|name| bridge.interfaces.get(name));
        let wanted = changed.filter(|interface| interface.state == State::Wanted);
        let mut wanted: Vec<Arc<InterfaceConfig>> =
            wanted.map(|interface| interface.config.clone()).collect();
        let rank = |c: &InterfaceConfig| {
            Reverse((c.name == name, !c.is_of_bond, c.ofport_request.is_some(), c.ofport.is_some()))
        };
        wanted.sort_by(|a, b| rank(a).cmp(&rank(b)).then_with(|| natural_order(&a.name, &b.name)));
        for config in wanted {
            if config.is_patch() {
                join(bridge, &config.name);
                continue;
            }
            let open = OpenId(self.next_open);
            self.next_open += 1;
            let is_local = config.name == name;
            let device = bridge.derived().settings(&config);
            out.push(Command::OpenInterface(OpenInterface {
                open,
                bridge: bridge.id,
                bridge_name: name.to_string(),
                datapath_type: bridge.config.datapath_type.clone(),
                name: config.name.clone(),
                type_name: config.type_name.clone(),
                is_local,
                address: bridge.address(&config),
                device: device.clone(),
            }));
            if let Some(interface) = bridge.interfaces.get_mut(&config.name) {
                (interface.state, interface.sent) = (State::Opening(open), Some(device));
            }
            self.openings.insert(open, config.name.clone());
        }
    }

    fn settle(&mut self, name: &str, out: &mut Vec<Command>) {
        let Some(bridge) = self.bridges.get_mut(name) else { return };
        if bridge.failed.is_some() {
            return;
        }
        renumber(bridge);
        update_devices(bridge, out);
        self.version += u64::from(configure(name, bridge, out));
        self.publish_ports(name, out);
        let restoring = self.desired.global.flow_restore_wait;
        let Some(bridge) = self.bridges.get_mut(name) else { return };
        close_all(bridge, out);
        let may_serve = |c: &&ControllerConfig| !restoring || c.kind == ControllerKind::Service;
        let BridgeConfig {
            controllers,
            // Sent by `configure` and `publish_ports`.
            options: _,
            mirrors: _,
            ports: _,
            // Identity, status, and answers to commands.
            row: _,
            name: _,
            datapath_type: _,
            datapath_version: _,
            default_datapath: _,
        } = &*bridge.config;
        let controllers: Vec<_> = controllers.iter().filter(may_serve).cloned().collect();
        if controllers != bridge.controllers {
            bridge.controllers = controllers.clone();
            out.push(Command::SetControllers { bridge: bridge.id, name: name.to_string(), controllers });
        }
    }

    /// Sends a bridge its ports, if they have changed.
    fn publish_ports(&mut self, name: &str, out: &mut Vec<Command>) {
        let Some(ports) = self.port_set(name) else { return };
        let Some(bridge) = self.bridges.get_mut(name) else { return };
        if *bridge.ports == ports {
            return;
        }
        let before = std::mem::replace(&mut bridge.ports, Arc::new(ports));
        let (id, ports) = (bridge.id, bridge.ports.clone());
        fn shown<'p>(p: &&'p PortEntry) -> (&'p str, OfPort, Option<&'p str>, Option<(BridgeId, OfPort)>) {
            (&p.name, p.of_port, p.patch_peer_name.as_deref(), p.patch_peer)
        }
        let (old, new) = differing_entries(&before.ports, &ports.ports);
        if !old.iter().map(shown).eq(new.iter().map(shown)) {
            self.version += 1;
            new.iter().for_each(|entry| bridge.interfaces.facts_changed(&entry.name));
        }
        self.note_neighbours(name, old, new);
        out.push(Command::SetPorts { bridge: id, name: name.to_string(), ports });
    }

    /// Bridges at the other end of added, removed or changed patch ports must be examined again.
    fn note_neighbours<'e>(
        &mut self,
        name: &str,
        before: impl IntoIterator<Item = &'e PortEntry>,
        after: impl IntoIterator<Item = &'e PortEntry>,
    ) {
        let end = |p: &'e PortEntry| Some((p.name.as_str(), p.of_port, p.patch_peer_name.as_deref()?));
        let before: BTreeSet<_> = before.into_iter().filter_map(end).collect();
        let after: BTreeSet<_> = after.into_iter().filter_map(end).collect();
        for (_, _, peer) in before.symmetric_difference(&after) {
            if let Some(home) = self.home.get(*peer)
                && home != name
            {
                self.dirty.insert(home.clone());
            }
        }
    }

    /// The ports of a bridge: the last ones, with those made anew that changed since.
    pub(super) fn port_set(&mut self, name: &str) -> Option<PortSet> {
        let bridge = self.bridges.get_mut(name)?;
        let mac = bridge.mac();
        bridge.refresh();
        let mut set = PortSet::clone(&bridge.ports);
        let Names { mut interfaces, mut ports } = std::mem::take(&mut bridge.unpublished);
        if let Some(local) =
            set.entry(name).filter(|entry| entry.of_port == OfPort::LOCAL && entry.mac != mac)
            && let Some(local) = bridge.interfaces.get(&local.name)
        {
            ports.insert(local.port.name.clone());
        }
        let config = bridge.config.clone();
        let changed: Vec<_> = ports.iter().filter_map(|port| config.ports.get(port)).collect();
        let members = changed.iter().flat_map(|port| port.all_interfaces());
        interfaces.extend(members.map(|interface| interface.name.clone()));
        let former = set.take_out(&interfaces, &ports);
        bridge.patches.retain(|interface| !interfaces.contains(interface));
        for port in changed {
            bridge.add_port(port, mac, &former, &mut set);
        }
        set.mirrors = mirrors::entries(&config.mirrors, &set.bundles, &mut bridge.mirrors);
        let patches: Vec<String> = bridge.patches.iter().cloned().collect();
        for name in patches {
            let peer = self.patch_end(&name);
            if let Some(entry) = set.entry_mut(&name).filter(|entry| entry.patch_peer != peer) {
                Arc::make_mut(entry).patch_peer = peer;
            }
        }
        Some(set)
    }

    /// The peer of a patch port: it must exist, be a patch port of the same datapath type and point back.
    pub(super) fn patch_end(&self, name: &str) -> Option<(BridgeId, OfPort)> {
        let bridge = self.bridges.get(self.home.get(name)?)?;
        let peer_name = bridge.interfaces.get(name)?.config.patch_peer()?;
        let peer_bridge = self.bridges.get(self.home.get(peer_name)?)?;
        let peer = peer_bridge.interfaces.get(peer_name)?;
        let fits = peer_bridge.config.datapath_type == bridge.config.datapath_type;
        (fits && peer.config.patch_peer() == Some(name)).then_some(())?;
        Some((peer_bridge.id, peer.open()?.number))
    }
}

impl Bridge {
    /// Follows ports that differ between the former configuration and the present one.
    fn adopt_ports(&mut self, before: &[&Arc<PortConfig>], now: &[&Arc<PortConfig>]) {
        for port in before {
            if !self.config.ports.contains_key(&port.name) {
                self.bundles.remove(&port.name);
            }
            self.fakes.remove(&port.name);
            self.interfaces.port_changed(port);
        }
        for port in now {
            if port.fake_bridge {
                self.fakes.insert(port.name.clone(), Arc::clone(port));
            }
            self.interfaces.port_changed(port);
        }
    }

    /// Adds a port to a set, unless none of its interfaces is open.
    fn add_port(&mut self, port: &PortConfig, mac: MacAddr, former: &FormerEntries, set: &mut PortSet) {
        let is_open = |i: &Arc<InterfaceConfig>| {
            let interface = self.interfaces.get(&i.name)?;
            Some((interface.config.clone(), interface.open()?))
        };
        let open: Vec<_> = port.interfaces.iter().filter_map(is_open).collect();
        let own: Vec<_> = port.bond_interface.iter().filter_map(is_open).collect();
        if open.is_empty() {
            return;
        }
        let id = self.bundle_id(&port.name);
        if open.len() > 1 {
            set.bonds.insert(id, port.bond.clone());
        }
        set.add_bundle(bundle(id, port, open.iter().map(|(_, open)| open.number).collect()), former);
        for (config, open) in open.into_iter().chain(own) {
            let entry = entry(&config, open, id, mac);
            if entry.patch_peer_name.is_some() {
                self.patches.insert(entry.name.clone());
            }
            set.add_entry(entry, former);
        }
    }

    fn take_out_opening(&mut self, name: &str, openings: &mut BTreeMap<OpenId, String>) {
        if let Some(State::Opening(open)) = self.interfaces.get(name).map(|interface| &interface.state) {
            openings.remove(open);
        }
        self.take_out(name, State::Wanted);
    }
}

/// The entry of an open interface; `mac` is the address of the bridge.
fn entry(config: &InterfaceConfig, open: Open, bundle: BundleId, mac: MacAddr) -> PortEntry {
    // A new setting goes into the entry, or into the settings of the device (`Derived::settings`).
    let InterfaceConfig {
        name,
        type_name,
        options,
        links,
        qos,
        mac: own_mac,
        // Numbers and devices.
        row: _,
        is_of_bond,
        mtu_request: _,
        rxq_affinity: _,
        ofport_request: _,
        ofport: _,
        policing: _,
    } = config;
    let own = if open.number == OfPort::LOCAL { Some(mac) } else { *own_mac };
    PortEntry {
        of_port: open.number,
        dp_port: open.dp_port,
        name: name.clone(),
        type_name: type_name.clone(),
        mac: own.unwrap_or(open.mac),
        bundle: if *is_of_bond { BundleId::NONE } else { bundle },
        patch_peer_name: options.patch_peer().map(str::to_string),
        patch_peer: None,
        links: links.clone(),
        queue_dscp: qos.as_ref().map(|qos| qos.dscp()).unwrap_or_default(),
        tunnel: options.tunnel_config().cloned(),
    }
}

/// The ports that are another value in the other map, of both, by name.
fn differing_ports<'p>(
    before: &'p BTreeMap<String, Arc<PortConfig>>,
    now: &'p BTreeMap<String, Arc<PortConfig>>,
) -> (Vec<&'p Arc<PortConfig>>, Vec<&'p Arc<PortConfig>>) {
    differing(before.values(), now.values(), |port| &port.name)
}

/// The interfaces of ports, by name.
fn wanted_interfaces<'a>(
    ports: impl IntoIterator<Item = &'a Arc<PortConfig>>,
) -> BTreeMap<&'a str, (&'a Arc<PortConfig>, &'a Arc<InterfaceConfig>)> {
    let of_port = |port: &'a Arc<PortConfig>| {
        port.all_interfaces().map(move |interface| (interface.name.as_str(), (port, interface)))
    };
    ports.into_iter().flat_map(of_port).collect()
}

/// Adopts a changed row of an existing interface. Retries a failed one if the change is relevant.
fn update_config(bridge: &mut Bridge, name: &str, port: &Arc<PortConfig>, new: &Arc<InterfaceConfig>) {
    let Some(interface) = bridge.interfaces.get_mut(name) else { return };
    let old = interface.config.clone();
    let matters = (&old.options, &old.rxq_affinity, old.mac, old.mtu_request, old.ofport_request)
        != (&new.options, &new.rxq_affinity, new.mac, new.mtu_request, new.ofport_request);
    if matters && matches!(interface.state, State::Failed(_)) {
        interface.state = State::Wanted;
    }
    bridge.interfaces.configure(name, port, new);
}

fn close_all(bridge: &mut Bridge, out: &mut Vec<Command>) {
    let close = |name| Command::CloseInterface { bridge: bridge.id, name };
    out.extend(std::mem::take(&mut bridge.to_close).into_iter().map(close));
}

/// A patch port needs no device.
fn join(bridge: &mut Bridge, name: &str) {
    let mac =
        bridge.interfaces.get(name).map(|interface| bridge.address(&interface.config)).unwrap_or_default();
    let state = match bridge.assign_number(name) {
        Some(number) => State::Open(Open { number, dp_port: None, mac, mtu: None }),
        None => State::Failed(format!("could not add {name} (no OpenFlow port number is free)")),
    };
    if let Some(interface) = bridge.interfaces.get_mut(name) {
        interface.state = state;
    }
}

/// Assigns open interfaces the numbers that their rows now request. If two request the same number, the holder keeps
/// it.
fn renumber(bridge: &mut Bridge) {
    bridge.refresh();
    for name in bridge.misplaced.clone() {
        let interface = &bridge.interfaces[&name];
        let (request, Some(old)) = (interface.config.ofport_request, interface.open()) else { continue };
        let held = |other: &Interface| {
            other.config.ofport_request == request && other.open().map(|open| open.number) == request
        };
        if Some(old.number) == request || bridge.interfaces.values().any(held) {
            continue;
        }
        bridge.numbers.release(old.number);
        let number = bridge.assign_number(&name).unwrap_or(old.number);
        if let Some(interface) = bridge.interfaces.get_mut(&name) {
            interface.state = State::Open(Open { number, ..old });
        }
    }
}

/// Sends devices their settings, if they have changed: those of changed interfaces, or of all if the properties of the
/// bridge are others.
fn update_devices(bridge: &mut Bridge, out: &mut Vec<Command>) {
    let derived = bridge.derived();
    let changed = std::mem::take(&mut bridge.unsent);
    let names: Vec<String> = match bridge.derived.as_ref() == Some(&derived) {
        true => changed.into_iter().collect(),
        false => bridge.interfaces.keys().cloned().collect(),
    };
    for name in names {
        let Some(interface) = bridge.interfaces.get(&name) else { continue };
        if interface.config.is_patch() || interface.open().is_none() {
            continue;
        }
        if interface.sent.as_ref().is_none_or(|sent| !derived.is_sent(sent, &interface.config)) {
            let device = derived.settings(&interface.config);
            bridge.interfaces.sent(&name, device.clone());
            out.push(Command::UpdateInterface { bridge: bridge.id, name, device });
        }
    }
    bridge.derived = Some(derived);
}

/// Sends a bridge its settings, if they have changed; whether they have.
fn configure(name: &str, bridge: &mut Bridge, out: &mut Vec<Command>) -> bool {
    let settings = BridgeSettings {
        options: bridge.config.options.clone(),
        datapath_id: bridge.datapath_id(),
        mac: bridge.mac(),
    };
    let is_new = bridge.settings.as_ref() != Some(&settings);
    if is_new {
        bridge.settings = Some(settings.clone());
        out.push(Command::ConfigureBridge { bridge: bridge.id, name: name.to_string(), settings });
    }
    is_new
}

fn bundle(id: BundleId, port: &PortConfig, members: Vec<OfPort>) -> Bundle {
    let PortConfig {
        row: _,
        name,
        vlan_mode,
        tag,
        trunks,
        cvlans,
        qinq_tpid,
        mcast_flood,
        mcast_flood_reports,
        priority_tags,
        protected,
        // The bridge has its address from those of its ports.
        fake_bridge: _,
        mac: _,
        // Sent with the ports.
        bond: _,
        interfaces: _,
        bond_interface: _,
    } = port;
    Bundle {
        id,
        name: name.clone(),
        members,
        vlan_mode: *vlan_mode,
        tag: *tag,
        trunks: (!trunks.is_empty()).then(|| VlanSet::new(trunks.iter().copied())),
        cvlans: (!cvlans.is_empty()).then(|| VlanSet::new(cvlans.iter().copied())),
        qinq_tpid: *qinq_tpid,
        mcast_flood: *mcast_flood,
        mcast_flood_reports: *mcast_flood_reports,
        priority_tags: *priority_tags,
        protected: *protected,
        floodable: true,
        bond: None,
    }
}
