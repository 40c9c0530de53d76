//! After any history, the switch equals one that started with the last desired state.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::config::InterfaceConfig;
use dpif::{PatchPort, SystemPort, TapPort};

#[derive(Clone, Debug)]
struct Wish {
    bridge: u8,
    type_name: &'static str,
    request: Option<u32>,
    tag: u16,
    peer: u8,
    mtu: Option<u32>,
}

#[derive(Clone, Debug)]
enum Step {
    Bridge(u8, Option<(&'static str, bool)>),
    Port(u8, Option<Wish>),
    Missing(u8, bool),
    Gone(u8),
    Retry(u8),
}

#[derive(Clone, Debug, Default)]
struct Model {
    bridges: BTreeMap<u8, (&'static str, bool)>,
    ports: BTreeMap<u8, Wish>,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let datapath = prop_oneof![Just("netdev"), Just("dummy")];
    let type_name = prop_oneof![Just("system"), Just("internal"), Just("patch"), Just("patch")];
    let wish = (
        0..3u8,
        type_name,
        proptest::option::of(1..4u32),
        0..3u16,
        0..6u8,
        proptest::option::of(1500..1502u32),
    )
        .prop_map(|(bridge, type_name, request, tag, peer, mtu)| Wish {
            bridge,
            type_name,
            request,
            tag,
            peer,
            mtu,
        });
    let step = prop_oneof![
        2 => (0..3u8, proptest::option::weighted(0.8, (datapath, any::<bool>()))).prop_map(|(n, b)| Step::Bridge(n, b)),
        6 => (0..6u8, proptest::option::weighted(0.8, wish)).prop_map(|(n, p)| Step::Port(n, p)),
        1 => (0..6u8, any::<bool>()).prop_map(|(n, missing)| Step::Missing(n, missing)),
        1 => (0..6u8).prop_map(Step::Gone),
        1 => (0..6u8).prop_map(Step::Retry),
    ];
    proptest::collection::vec(step, 1..40)
}

fn interface(name: String, wish: &Wish) -> InterfaceConfig {
    let options = match wish.type_name {
        "patch" => PatchPort { peer: format!("p{}", wish.peer) }.into(),
        "tap" => TapPort.into(),
        _ => SystemPort::default().into(),
    };
    InterfaceConfig {
        row: None,
        is_of_bond: false,
        name,
        type_name: wish.type_name.into(),
        options,
        mac: None,
        mtu_request: wish.mtu,
        rxq_affinity: BTreeMap::new(),
        ofport_request: wish.request.map(OfPort),
        ofport: None,
        links: Default::default(),
        qos: None,
        policing: Default::default(),
    }
}

fn port(name: &str, interface: InterfaceConfig, tag: u16) -> PortConfig {
    let vlan_mode = if tag > 0 { VlanMode::Access } else { VlanMode::Trunk };
    PortConfig {
        row: None,
        name: name.into(),
        vlan_mode,
        tag,
        trunks: Vec::new(),
        cvlans: Vec::new(),
        qinq_tpid: 0x88a8,
        mcast_flood: false,
        mcast_flood_reports: false,
        priority_tags: Default::default(),
        protected: false,
        fake_bridge: false,
        mac: None,
        bond: Default::default(),
        bond_interface: None,
        interfaces: vec![interface.into()],
    }
}

fn desired(model: &Model) -> Desired {
    let mut desired = Desired { row: Some(Uuid::ZERO), ..Desired::default() };
    for (n, (datapath_type, forward_bpdu)) in &model.bridges {
        let name = format!("br{n}");
        let local = Wish { bridge: *n, type_name: "internal", request: None, tag: 0, peer: 0, mtu: None };
        let local = port(&name, interface(name.clone(), &local), 0);
        let own = model.ports.iter().filter(|(_, wish)| wish.bridge == *n);
        let ports = own.map(|(p, wish)| {
            let name = format!("p{p}");
            (name.clone(), port(&name, interface(name.clone(), wish), wish.tag))
        });
        let config = BridgeConfig {
            default_datapath: None,
            row: Uuid::ZERO,
            name: name.clone(),
            datapath_type: (*datapath_type).into(),
            datapath_version: String::new(),
            options: BridgeOptions { forward_bpdu: *forward_bpdu, ..BridgeOptions::default() },
            controllers: Vec::new(),
            mirrors: Vec::new(),
            ports: ports.chain([(name.clone(), local)]).map(|(name, port)| (name, port.into())).collect(),
        };
        desired.bridges.insert(name, Arc::new(config));
    }
    desired
}

/// The switch without history-dependent numbers: each port as text, by bridge.
fn essence(fake: &Fake, model: &Model) -> BTreeMap<String, (BridgeSettings, BTreeSet<String>)> {
    let peer_name = |(bridge, number): (BridgeId, OfPort)| {
        let ports = &fake.bridges[&bridge].ports.ports;
        ports.iter().find(|port| port.of_port == number).expect("the peer is there").name.clone()
    };
    let of_bridge = |bridge: &super::super::super::testbed::FakeBridge| {
        let ports = bridge.ports.ports.iter().map(|port| {
            let bundle =
                bridge.ports.bundles.iter().find(|bundle| bundle.id == port.bundle).expect("its bundle");
            let device = fake.devices.get(&port.name).map(|(.., device)| device);
            let peer = port.patch_peer.map(peer_name);
            let (name, tag) = (&bundle.name, bundle.tag);
            // The number, if no other interface of the bridge requests it.
            let wish = port.name.strip_prefix('p').and_then(|n| model.ports.get(&n.parse().ok()?));
            let asked = wish.and_then(|wish| wish.request);
            let rivals = |w: &&Wish| format!("br{}", w.bridge) == bridge.name && w.request == asked;
            let sole = asked.is_some() && model.ports.values().filter(rivals).count() == 1;
            let number = sole.then_some(port.of_port);
            if sole {
                assert_eq!(Some(port.of_port.0), asked, "{} has the number it asks for", port.name);
            }
            format!(
                "{} {} {} {name} {tag} {peer:?} {device:?} {number:?}",
                port.name, port.type_name, port.mac
            )
        });
        (bridge.settings.clone().expect("settings"), ports.collect())
    };
    fake.bridges.values().map(|bridge| (bridge.name.clone(), of_bridge(bridge))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn the_end_does_not_depend_on_the_way(steps in steps()) {
        let (mut model, mut fake, mut planner) = (Model::default(), Fake::default(), Planner::default());
        for step in steps {
            match step {
                Step::Bridge(n, Some(bridge)) => { model.bridges.insert(n, bridge); }
                Step::Bridge(n, None) => { model.bridges.remove(&n); }
                Step::Port(n, Some(wish)) => { model.ports.insert(n, wish); }
                Step::Port(n, None) => { model.ports.remove(&n); }
                Step::Missing(n, true) => { fake.missing.insert(format!("p{n}")); }
                Step::Missing(n, false) => { fake.missing.remove(&format!("p{n}")); }
                Step::Gone(n) => planner.device_gone(&format!("p{n}")),
                Step::Retry(n) => planner.retry(&format!("p{n}")),
            }
            fake.apply(&mut planner, desired(&model));
        }
        // Devices that disappeared while open are detected now.
        for name in fake.missing.clone() {
            let is_system = planner.open_ports().any(|port| port.name == name && port.type_name == "system");
            if is_system {
                planner.device_gone(&name);
            }
        }
        fake.go_on(&mut planner);
        planner.retry_failed();
        fake.go_on(&mut planner);
        let mut fresh = Fake { missing: fake.missing.clone(), ..Fake::default() };
        fresh.apply(&mut Planner::default(), desired(&model));
        prop_assert_eq!(essence(&fake, &model), essence(&fresh, &model));
        prop_assert_eq!(planner.plan(desired(&model)), vec![]);
        fake.apply(&mut planner, Desired { row: Some(Uuid::ZERO), ..Desired::default() });
        prop_assert!(fake.bridges.is_empty() && fake.devices.is_empty());
    }
}
