//! A database in memory, filled by transactions as sent by `ovs-vsctl`, and a switch that executes commands and
//! checks their consistency.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ofproto::ports::{BridgeId, BundleId};
use ofproto::{DpPort, MacAddr, OfPort};
use ovsdb::client::{
    Change, Client, ClientConfig, ColumnValue, LockState, Replica, TxnBuilder, TxnId, TxnOutcome,
};
use ovsdb::db::Database;
use ovsdb::schema::open_vswitch;
use ovsdb::server::{Server, ServerLimits, SessionId, Time};
use ovsdb::value::{Datum, SeededUuids, Uuid};

use crate::config::{ControllerConfig, CtConfig, Desired, GlobalConfig, Parsed, SupportedTypes};
use crate::plan::tests::increments;
use crate::plan::{
    BridgeSettings, Command, DeviceSettings, OpenInterface, OpenedInterface, Planner, PortSet,
};
use crate::status::Facts;
use dpif::DummyMode;

pub(crate) struct Bed {
    server: Server,
    session: SessionId,
    pub(crate) client: Client,
    parsed: Parsed,
}

pub(crate) type Columns<'a> = &'a [(&'a str, ColumnValue)];

impl Bed {
    pub(crate) fn new() -> Self {
        let mut server = Server::new(Box::new(SeededUuids::new(7)), ServerLimits::default());
        assert!(server.add_database(Database::new(open_vswitch()), true).is_ok());
        let session = server.session_open().unwrap();
        let config = ClientConfig { lock: Some("L".into()), ..ClientConfig::all(open_vswitch()) };
        let mut bed = Bed { server, session, client: Client::new(config), parsed: Parsed::default() };
        bed.pump();
        assert_eq!(bed.client.lock_state(), LockState::Held);
        bed.txn(|txn| {
            txn.insert("Open_vSwitch", [("next_cfg", ColumnValue::from(0))]);
        });
        bed
    }

    pub(crate) fn pump(&mut self) {
        loop {
            let up = self.client.take_output();
            self.server.session_input(self.session, &up, Time::default());
            self.server.log_synced(self.server.log_seq());
            let down = self.server.session_output(self.session);
            if up.is_empty() && down.is_empty() {
                return;
            }
            self.client.input(&down).unwrap();
        }
    }

    pub(crate) fn replica(&self) -> &Replica {
        self.client.replica()
    }

    pub(crate) fn commit(&mut self, txn: TxnBuilder) -> TxnOutcome {
        let id: TxnId = self.client.transact(txn).unwrap();
        self.pump();
        let mut outcomes = self.client.take_outcomes();
        assert_eq!((outcomes.len(), outcomes[0].0), (1, id));
        outcomes.remove(0).1
    }

    pub(crate) fn txn(&mut self, build: impl FnOnce(&mut TxnBuilder)) {
        let mut txn = TxnBuilder::new();
        build(&mut txn);
        let outcome = self.commit(txn);
        assert!(matches!(outcome, TxnOutcome::Success { .. }), "{outcome:?}");
    }

    pub(crate) fn root(&self) -> Uuid {
        self.replica().rows("Open_vSwitch").next().unwrap().uuid()
    }

    pub(crate) fn row(&self, table: &str, name: &str) -> Uuid {
        let mut rows = self.replica().rows(table).filter(|row| row.str("name") == name);
        rows.next().unwrap_or_else(|| panic!("no {table} {name}")).uuid()
    }

    pub(crate) fn datum(&self, table: &str, name: &str, column: &str) -> Datum {
        self.replica().row(table, self.row(table, name)).unwrap().datum(column).unwrap().clone()
    }

    pub(crate) fn add_br(&mut self, name: &str, datapath_type: &str) {
        let root = self.root();
        self.txn(|txn| {
            let interface =
                txn.insert("Interface", [("name", ColumnValue::from(name)), ("type", "internal".into())]);
            let port =
                txn.insert("Port", [("name", ColumnValue::from(name)), ("interfaces", interface.into())]);
            let bridge = txn.insert(
                "Bridge",
                [
                    ("name", ColumnValue::from(name)),
                    ("ports", port.into()),
                    ("datapath_type", datapath_type.into()),
                ],
            );
            txn.mutate("Open_vSwitch", root, "bridges", "insert", bridge);
            txn.mutate("Open_vSwitch", root, "next_cfg", "+=", 1);
        });
    }

    pub(crate) fn del_br(&mut self, name: &str) {
        let (root, bridge) = (self.root(), self.row("Bridge", name));
        self.txn(|txn| txn.mutate("Open_vSwitch", root, "bridges", "delete", bridge));
    }

    pub(crate) fn add_port(&mut self, bridge: &str, name: &str, port: Columns<'_>, interface: Columns<'_>) {
        self.add_bond(bridge, name, port, &[(name, interface)]);
    }

    pub(crate) fn add_bond(
        &mut self,
        bridge: &str,
        name: &str,
        port: Columns<'_>,
        interfaces: &[(&str, Columns<'_>)],
    ) {
        let bridge = self.row("Bridge", bridge);
        self.txn(|txn| {
            let handles: Vec<_> = interfaces
                .iter()
                .map(|(name, columns)| {
                    let named = [("name", ColumnValue::from(*name))].into_iter();
                    txn.insert("Interface", named.chain(columns.iter().cloned()))
                })
                .collect();
            let named =
                [("name", ColumnValue::from(name)), ("interfaces", ColumnValue::refs(handles))].into_iter();
            let port = txn.insert("Port", named.chain(port.iter().cloned()));
            txn.mutate("Bridge", bridge, "ports", "insert", port);
        });
    }

    pub(crate) fn del_port(&mut self, bridge: &str, name: &str) {
        let (bridge, port) = (self.row("Bridge", bridge), self.row("Port", name));
        self.txn(|txn| txn.mutate("Bridge", bridge, "ports", "delete", port));
    }

    pub(crate) fn set(&mut self, table: &str, name: &str, column: &str, value: impl Into<ColumnValue>) {
        let row = if table == "Open_vSwitch" { self.root() } else { self.row(table, name) };
        self.txn(|txn| txn.update(table, row, [(column, value.into())]));
    }

    /// Changes of rows since the last call.
    pub(crate) fn take_changes(&mut self) -> Vec<Change> {
        let changes = self.client.take_changes();
        self.parsed.changed(self.client.replica(), &changes);
        changes
    }

    /// The configuration, read with results of the last time; a reading without them finds the same.
    pub(crate) fn desired(&mut self) -> Desired {
        let supported = SupportedTypes::userspace().with_dummies(DummyMode::Beside);
        self.take_changes();
        let Bed { client, parsed, .. } = self;
        let desired = Desired::read(client.replica(), &supported, parsed);
        assert_eq!(desired, Desired::from_replica(client.replica(), &supported));
        desired
    }
}

pub(crate) fn map(pairs: &[(&str, &str)]) -> ColumnValue {
    Datum::map(pairs.iter().copied()).into()
}

#[derive(Clone, Debug)]
pub(crate) struct FakeBridge {
    pub(crate) name: String,
    pub(crate) ports: Arc<PortSet>,
    pub(crate) settings: Option<BridgeSettings>,
    pub(crate) controllers: Vec<ControllerConfig>,
}

/// Executes commands. Devices of type `system` exist except those in `missing`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fake {
    pub(crate) bridges: BTreeMap<BridgeId, FakeBridge>,
    pub(crate) devices: BTreeMap<String, (BridgeId, DpPort, DeviceSettings)>,
    pub(crate) missing: BTreeSet<String>,
    pub(crate) global: Option<Arc<GlobalConfig>>,
    pub(crate) conntrack: BTreeMap<String, Arc<CtConfig>>,
    pub(crate) next_dp_port: u32,
    /// The planner's version and facts of the last settled state.
    pub(crate) shown: Option<(u64, Facts)>,
    /// Facts brought up to date by their changes.
    pub(crate) followed: Facts,
    /// All commands in short form, in order.
    pub(crate) log: Vec<String>,
}

/// An address like that of a real device: from the number at the end of its name.
pub(crate) fn device_mac(name: &str) -> MacAddr {
    let digits: String = name.chars().filter(char::is_ascii_digit).collect();
    MacAddr::from_u64(0x0011_2200_0000 + digits.parse::<u64>().unwrap_or(0xffff))
}

impl Fake {
    /// Plans and executes until settled.
    pub(crate) fn apply(&mut self, planner: &mut Planner, desired: Desired) {
        let commands = planner.plan(desired);
        self.run(planner, commands);
    }

    /// Continues without a new desired state.
    pub(crate) fn go_on(&mut self, planner: &mut Planner) {
        let commands = planner.commands();
        self.run(planner, commands);
    }

    fn run(&mut self, planner: &mut Planner, mut commands: Vec<Command>) {
        for _ in 0..10 {
            if commands.is_empty() {
                assert!(planner.is_settled());
                increments::check(planner);
                increments::follow(planner, &mut self.followed);
                let shown = (planner.version(), planner.facts());
                if let Some((version, facts)) = self.shown.replace(shown.clone()) {
                    assert!(version != shown.0 || facts == shown.1, "{facts:?} changed: {:?}", shown.1);
                }
                return self.check(planner);
            }
            for command in commands {
                self.execute(planner, command);
            }
            commands = planner.commands();
        }
        panic!("commands without end: {:?}", self.log);
    }

    fn execute(&mut self, planner: &mut Planner, command: Command) {
        match command {
            Command::SetGlobal(global) => {
                self.log.push("global".into());
                self.global = Some(global);
            }
            Command::SetConntrack { datapath_type, config } => {
                self.log.push(format!("conntrack {datapath_type} {}", config.zones.len()));
                assert!(self.conntrack.insert(datapath_type, config.clone()) != Some(config));
            }
            Command::CreateBridge(create) => {
                self.log.push(format!("create {}", create.name));
                assert!(!self.bridges.values().any(|bridge| bridge.name == create.name), "{create:?}");
                let bridge = FakeBridge {
                    name: create.name,
                    ports: Arc::default(),
                    settings: None,
                    controllers: Vec::new(),
                };
                assert!(self.bridges.insert(create.bridge, bridge).is_none());
            }
            Command::DestroyBridge { bridge, name } => {
                self.log.push(format!("destroy {name}"));
                let gone = self.bridges.remove(&bridge).expect("it exists");
                assert!(gone.name == name && gone.ports.ports.is_empty());
                assert!(self.devices.values().all(|(home, ..)| *home != bridge), "devices are closed");
            }
            Command::OpenInterface(open) => self.open(planner, open),
            Command::CloseInterface { bridge, name } => {
                self.log.push(format!("close {name}"));
                assert!(self.bridges[&bridge].ports.ports.iter().all(|port| port.name != name), "{name}");
                self.devices.remove(&name);
            }
            Command::UpdateInterface { bridge, name, device } => {
                self.log.push(format!("update {name}"));
                let known = self.devices.get_mut(&name).expect("it is open");
                assert!(known.0 == bridge && known.2 != device, "no change of {name}");
                known.2 = device;
            }
            Command::SetPorts { bridge, name, ports } => {
                self.log.push(format!("ports {name} {}", ports.ports.len()));
                let known = self.bridges.get_mut(&bridge).expect("it exists");
                assert!(known.name == name && known.settings.is_some() && *known.ports != *ports);
                for port in ports.ports.iter().filter(|port| port.type_name != "patch") {
                    let (home, dp_port, _) = &self.devices[&port.name];
                    assert_eq!((*home, Some(*dp_port)), (bridge, port.dp_port));
                }
                known.ports = ports;
            }
            Command::ConfigureBridge { bridge, name, settings } => {
                self.log.push(format!("configure {name}"));
                let known = self.bridges.get_mut(&bridge).expect("it exists");
                assert!(known.settings.as_ref() != Some(&settings));
                known.settings = Some(settings);
            }
            Command::SetControllers { bridge, name, controllers } => {
                self.log.push(format!("controllers {name} {}", controllers.len()));
                self.bridges.get_mut(&bridge).expect("it exists").controllers = controllers;
            }
        }
    }

    fn open(&mut self, planner: &mut Planner, open: OpenInterface) {
        self.log.push(format!("open {}", open.name));
        assert_eq!(self.bridges[&open.bridge].name, open.bridge_name);
        assert!(!self.devices.contains_key(&open.name), "{} is open already", open.name);
        if open.type_name == "system" && self.missing.contains(&open.name) {
            let error = format!("could not open network device {} (No such device)", open.name);
            assert_eq!(planner.opened(open.open, Err(error)), None);
            return;
        }
        self.next_dp_port += 1;
        let dp_port = DpPort(self.next_dp_port);
        let random = MacAddr([2, 0, 0, 0, 0, 1]);
        let own = if open.type_name == "system" { device_mac(&open.name) } else { random };
        let mac = open.device.mac.unwrap_or(own);
        self.devices.insert(open.name, (open.bridge, dp_port, open.device));
        planner.opened(open.open, Ok(OpenedInterface { dp_port, mac, mtu: Some(1500) })).expect("a number");
    }

    /// Invariants of the settled state.
    fn check(&self, planner: &Planner) {
        let names: BTreeSet<&str> =
            self.bridges.values().flat_map(|b| b.ports.ports.iter()).map(|p| p.name.as_str()).collect();
        for name in self.devices.keys() {
            assert!(names.contains(name.as_str()), "{name} is open and in no bridge");
        }
        for bridge in self.bridges.values() {
            let numbers: BTreeSet<OfPort> = bridge.ports.ports.iter().map(|port| port.of_port).collect();
            assert_eq!(numbers.len(), bridge.ports.ports.len(), "numbers are unique");
            for port in &bridge.ports.ports {
                assert_eq!(port.of_port == OfPort::LOCAL, port.name == bridge.name);
                let members = bridge.ports.bundles.iter().filter(|b| b.members.contains(&port.of_port));
                let own = Some(port.bundle).filter(|bundle| *bundle != BundleId::NONE);
                assert!(members.map(|bundle| bundle.id).eq(own), "{} is in its bundle", port.name);
            }
        }
        let open: BTreeSet<&str> = planner.open_ports().map(|port| port.name).collect();
        assert_eq!(open, names);
    }

    pub(crate) fn bridge(&self, name: &str) -> &FakeBridge {
        self.bridges.values().find(|bridge| bridge.name == name).expect("there is that bridge")
    }

    /// OpenFlow number of a port.
    pub(crate) fn number(&self, name: &str) -> u32 {
        let mut ports = self.bridges.values().flat_map(|bridge| bridge.ports.ports.iter());
        ports.find(|port| port.name == name).expect("there is that port").of_port.0
    }

    pub(crate) fn take_log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }
}
