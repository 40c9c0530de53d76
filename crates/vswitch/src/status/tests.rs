use l2proto::protocol::{LinkValue, Table};
use ofproto::MacAddr;
use ovsdb::client::ColumnValue;

use super::*;
use crate::plan::Planner;
use crate::testbed::{Bed, Fake, map};

struct World {
    bed: Bed,
    writeback: Writeback,
    facts: Facts,
}

impl World {
    /// A bridge with a port `p1`.
    fn new() -> Self {
        let mut bed = Bed::new();
        bed.add_br("br0", "netdev");
        bed.add_port("br0", "p1", &[], &[]);
        let mut writeback = Writeback::new(Some("L".into()));
        writeback.set_lock_held(true);
        World { bed, writeback, facts: Facts::default() }
    }

    fn interface(&mut self, name: &str) -> &mut InterfaceFacts {
        let row = self.bed.row("Interface", name);
        self.facts.interfaces.entry(row).or_default()
    }

    /// Writes what is due and gives the number of rows written.
    fn write(&mut self, now_ms: u64) -> usize {
        let Some(txn) = self.writeback.next(self.bed.replica(), &self.facts, now_ms) else { return 0 };
        assert!(self.writeback.next(self.bed.replica(), &self.facts, now_ms).is_none(), "one in flight");
        let outcome = self.bed.commit(txn);
        self.writeback.outcome(&outcome, now_ms);
        match outcome {
            TxnOutcome::Success { results, .. } => results.len() - 1,
            other => panic!("{other:?}"),
        }
    }

    fn shown(&self, table: &str, name: &str, column: &str) -> String {
        format!("{:?}", self.bed.datum(table, name, column))
    }

    fn cur_cfg(&self) -> i64 {
        self.bed.replica().row("Open_vSwitch", self.bed.root()).unwrap().int("cur_cfg")
    }
}

#[test]
fn all_columns_of_an_interface_and_their_clearing() {
    let mut world = World::new();
    *world.interface("p1") = InterfaceFacts {
        ofport: 1,
        error: None,
        ifindex: Some(7),
        mac_in_use: Some(MacAddr([0, 1, 2, 3, 4, 5])),
        mtu: Some(1500),
        admin_state: Some(UpDown::Up),
        link_state: Some(UpDown::Down),
        link_speed_bps: Some(10_000_000_000),
        duplex: Some(Duplex::Full),
        link_resets: Some(3),
        status: [("driver_name".to_string(), "veth".to_string())].into(),
        statistics: [("rx_packets".to_string(), 5)].into(),
        links: LinkFacts::default(),
    };
    world.interface("p1").links.add(
        Table::Interface,
        &[(
            (Table::Interface, "bfd_status"),
            LinkValue::Map([("state".to_string(), "up".to_string())].into()),
        )]
        .into(),
    );
    assert_eq!(world.write(0), 1);
    let columns = [
        ("ofport", "1", "-1"),
        ("error", "{}", "\"no\""),
        ("ifindex", "7", "{}"),
        ("mac_in_use", "\"00:01:02:03:04:05\"", "{}"),
        ("mtu", "1500", "{}"),
        ("admin_state", "\"up\"", "{}"),
        ("link_state", "\"down\"", "{}"),
        ("link_speed", "10000000000", "{}"),
        ("duplex", "\"full\"", "{}"),
        ("link_resets", "3", "{}"),
        ("status", "{\"driver_name\": \"veth\"}", "{}"),
        ("statistics", "{\"rx_packets\": 5}", "{}"),
        ("bfd_status", "{\"state\": \"up\"}", "{}"),
    ];
    for (column, expected, _) in columns {
        assert_eq!(world.shown("Interface", "p1", column), expected, "{column}");
    }
    assert_eq!(world.write(0), 0, "nothing differs");
    *world.interface("p1") = InterfaceFacts::broken("no".into());
    assert_eq!(world.write(5000), 1);
    for (column, _, expected) in columns {
        assert_eq!(world.shown("Interface", "p1", column), expected, "{column}");
    }
    assert_eq!(world.shown("Interface", "br0", "ofport"), "{}", "a row without facts is left alone");
}

/// A bond that is not there yet reads the column later.
#[test]
fn the_active_member_is_written_once_it_is_known() {
    let mut world = World::new();
    world.bed.set("Port", "p1", "bond_active_slave", "00:00:00:00:00:01");
    world.interface("p1").ofport = 1;
    let row = world.bed.row("Port", "p1");
    world.facts.ports.insert(row, PortFacts::default());
    world.write(0);
    assert_eq!(world.shown("Port", "p1", "bond_active_slave"), "\"00:00:00:00:00:01\"");
    let active = Some(Some(ofproto::MacAddr([0, 0, 0, 0, 0, 2])));
    world.facts.ports.insert(row, PortFacts { active_member: active, ..PortFacts::default() });
    assert_eq!(world.write(1), 1);
    assert_eq!(world.shown("Port", "p1", "bond_active_slave"), "\"00:00:00:00:00:02\"");
}

/// Requested VLANs, before and after: `trunks` and `vlan_mode`. Answers are those of OVS 3.5.
#[test]
fn auto_attach_changes_trunks_once() {
    let rows: &[(&[i64], &str, (u16, bool), &[i64], &str)] = &[
        (&[], "", (10, true), &[10], "trunk"),
        (&[], "native-untagged", (10, true), &[10], "trunk"),
        (&[10], "", (10, true), &[10], ""),
        (&[1, 2], "native-tagged", (10, true), &[1, 2, 10], "native-tagged"),
        (&[1, 10], "access", (10, false), &[1], "access"),
        (&[10], "trunk", (10, false), &[], "access"),
        (&[5], "trunk", (10, false), &[5], "trunk"),
    ];
    for (trunks, mode, (vlan, is_added), expected, expected_mode) in rows {
        let mut world = World::new();
        let value = |mode: &str| if mode.is_empty() { Datum::empty_set() } else { Datum::from(mode) };
        world.bed.set("Port", "p1", "trunks", Datum::set(trunks.iter().copied()));
        world.bed.set("Port", "p1", "vlan_mode", value(mode));
        let change =
            || TrunkChanges::from([(("p1".to_string(), *vlan), *is_added), (("p9".to_string(), 1), true)]);
        world.writeback.change_trunks(change());
        world.write(0);
        assert_eq!(
            world.bed.datum("Port", "p1", "trunks"),
            Datum::set(expected.iter().copied()),
            "{trunks:?}"
        );
        assert_eq!(world.bed.datum("Port", "p1", "vlan_mode"), value(expected_mode), "{trunks:?}");
        world.bed.set("Port", "p1", "trunks", Datum::set([3]));
        assert_eq!(world.write(1), 0, "a later edit stays");
    }
}

/// A transaction that fails keeps its changes, unless a later one replaces them.
#[test]
fn changes_of_trunks_survive_a_failure() {
    let mut world = World::new();
    let change = |vlan, is_added| TrunkChanges::from([(("p1".to_string(), vlan), is_added)]);
    world.writeback.change_trunks(change(10, true));
    world.writeback.change_trunks(change(11, true));
    assert!(world.writeback.next(world.bed.replica(), &world.facts, 0).is_some());
    world.writeback.change_trunks(change(10, false));
    world.writeback.outcome(&TxnOutcome::TryAgain, 0);
    assert!(world.write(FIRST_PAUSE_MS) > 0);
    assert_eq!(world.shown("Port", "p1", "trunks"), "11");
}

/// Another switch may have filled columns that this one never fills.
#[test]
fn columns_that_nothing_fills_are_cleared() {
    let mut world = World::new();
    world.bed.set("Port", "p1", "bond_active_slave", "00:00:00:00:00:01");
    world.bed.set("Interface", "p1", "lacp_current", true);
    world.bed.set("Interface", "p1", "cfm_mpid", 7);
    world.interface("p1").ofport = 1;
    let row = world.bed.row("Port", "p1");
    world.facts.ports.insert(row, PortFacts { active_member: Some(None), ..PortFacts::default() });
    assert_eq!(world.write(0), 2);
    assert_eq!(world.shown("Port", "p1", "bond_active_slave"), "{}");
    assert_eq!(world.shown("Interface", "p1", "lacp_current"), "{}");
    assert_eq!(world.shown("Interface", "p1", "cfm_mpid"), "7", "a setting");
}

#[test]
fn statistics_wait_for_their_time() {
    let mut world = World::new();
    let count = |world: &mut World, n: i64| {
        world.interface("p1").statistics.insert("rx_packets".into(), n);
    };
    count(&mut world, 1);
    assert_eq!(world.write(100), 1);
    count(&mut world, 2);
    assert_eq!((world.write(5099), world.writeback.wants_statistics(5099)), (0, false));
    world.interface("p1").ofport = 4;
    assert_eq!(world.write(5099), 1);
    assert_eq!(world.shown("Interface", "p1", "ofport"), "4");
    assert_eq!(world.shown("Interface", "p1", "statistics"), "{\"rx_packets\": 1}");
    assert_eq!(world.writeback.next_due_ms(), 5100);
    assert_eq!(world.write(5100), 1);
    assert_eq!(world.shown("Interface", "p1", "statistics"), "{\"rx_packets\": 2}");
    world.writeback.set_stats_interval_ms(10_000);
    count(&mut world, 3);
    assert_eq!((world.write(15_099), world.write(15_100)), (0, 1));
    assert_eq!(world.write(25_100), 0);
    count(&mut world, 4);
    assert_eq!(world.write(25_101), 0, "the time for statistics passed with nothing to write");
}

#[test]
fn cur_cfg_follows_the_acknowledgement_only() {
    let mut world = World::new();
    world.bed.set("Open_vSwitch", "", "next_cfg", 5);
    assert_eq!((world.write(0), world.cur_cfg()), (0, 0));
    world.writeback.acknowledged(5);
    world.interface("p1").ofport = 1;
    assert_eq!((world.write(0), world.cur_cfg()), (2, 5));
    world.bed.set("Open_vSwitch", "", "next_cfg", 6);
    assert_eq!((world.write(0), world.cur_cfg()), (0, 5));
}

#[test]
fn failures_pause_longer_and_longer() {
    let mut world = World::new();
    world.interface("p1").ofport = 1;
    let mut now_ms = 0;
    for pause_ms in [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000] {
        let txn = world.writeback.next(world.bed.replica(), &world.facts, now_ms);
        assert!(txn.is_some(), "at {now_ms}");
        world.writeback.outcome(&TxnOutcome::Error("constraint violation".into()), now_ms);
        assert!(world.writeback.next(world.bed.replica(), &world.facts, now_ms + pause_ms - 1).is_none());
        now_ms += pause_ms;
    }
    assert_eq!(world.write(now_ms), 1);
    for outcome in [TxnOutcome::Lost, TxnOutcome::TryAgain] {
        world.interface("p1").ofport += 1;
        assert!(world.writeback.next(world.bed.replica(), &world.facts, now_ms).is_some());
        world.writeback.outcome(&outcome, now_ms);
        assert_eq!((world.write(now_ms + 999), world.write(now_ms + 1000)), (0, 1));
        now_ms += 1000;
    }
    world.interface("p1").ofport = 9;
    assert!(world.writeback.next(world.bed.replica(), &world.facts, now_ms).is_some());
    world.writeback.not_sent(now_ms);
    assert_eq!(world.write(now_ms + 1000), 1);
}

#[test]
fn nothing_is_written_without_the_lock() {
    let mut world = World::new();
    world.interface("p1").ofport = 1;
    world.writeback.set_lock_held(false);
    assert_eq!((world.write(0), world.writeback.wants_statistics(0)), (0, false));
    world.writeback.set_lock_held(true);
    assert!(world.writeback.next(world.bed.replica(), &world.facts, 0).is_some());
    world.writeback.outcome(&TxnOutcome::NotLocked, 0);
    assert_eq!(world.write(9000), 0);
    world.writeback.set_lock_held(true);
    assert_eq!(world.write(9000), 1);
    let mut other = Writeback::new(Some("not_ours".into()));
    other.set_lock_held(true);
    world.interface("p1").ofport = 2;
    let txn = other.next(world.bed.replica(), &world.facts, 0).unwrap();
    assert_eq!(world.bed.commit(txn), TxnOutcome::NotLocked, "the server has the last word");
    let mut embedded = Writeback::new(None);
    embedded.set_lock_held(false);
    assert!(embedded.next(world.bed.replica(), &world.facts, 0).is_some());
}

#[test]
fn a_controllers_times_wait_for_the_statistics() {
    let mut world = World::new();
    let bridge = world.bed.row("Bridge", "br0");
    world.bed.txn(|txn| {
        let row = txn.insert("Controller", [("target", ColumnValue::from("tcp:127.0.0.1"))]);
        txn.update("Bridge", bridge, [("controller", ColumnValue::from(row))]);
    });
    let row = world.bed.replica().rows("Controller").next().unwrap().uuid();
    let facts = |connected: bool, state: &str, seconds: u32| ControllerFacts {
        is_connected: connected,
        role: connected.then_some(ControllerRole::Primary),
        status: [("state", state.to_string()), ("sec_since_connect", seconds.to_string())]
            .map(|(k, v)| (k.to_string(), v))
            .into(),
    };
    let read = |world: &World| {
        let row = world.bed.replica().row("Controller", row).unwrap();
        let status = |key: &str| row.map_str("status", key).unwrap_or("").to_string();
        (row.bool("is_connected"), row.str("role").to_string(), status("state"), status("sec_since_connect"))
    };
    let steps = [
        (0, facts(false, "BACKOFF", 0), 1, (false, "", "BACKOFF", "0")),
        (1000, facts(true, "ACTIVE", 0), 1, (true, "master", "ACTIVE", "0")),
        (2000, facts(true, "ACTIVE", 1), 0, (true, "master", "ACTIVE", "0")),
        (5000, facts(true, "ACTIVE", 4), 1, (true, "master", "ACTIVE", "4")),
        (6000, facts(true, "IDLE", 5), 1, (true, "master", "IDLE", "5")),
    ];
    for (now_ms, facts, rows, (connected, role, state, seconds)) in steps {
        world.facts.controllers.insert(row, facts);
        assert_eq!(world.write(now_ms), rows, "at {now_ms}");
        let expected = (connected, role.to_string(), state.to_string(), seconds.to_string());
        assert_eq!(read(&world), expected, "at {now_ms}");
    }
}

#[test]
fn the_switch_its_bridges_and_ports() {
    let mut world = World::new();
    let root = world.bed.root();
    world.bed.txn(|txn| {
        let datapath = txn.insert("Datapath", [("datapath_version", ColumnValue::from("<built-in>"))]);
        txn.update("Open_vSwitch", root, [("datapaths", ColumnValue::ref_map([("netdev", datapath)]))]);
        let manager = txn.insert("Manager", [("target", ColumnValue::from("ptcp:6640"))]);
        txn.update("Open_vSwitch", root, [("manager_options", ColumnValue::from(manager))]);
    });
    world.facts.switch = SwitchFacts {
        iface_types: Some(vec!["system".into(), "internal".into()]),
        datapath_types: Some(vec!["netdev".into()]),
        ovs_version: Some("3.5.0".into()),
        statistics: Some([("cpu".to_string(), "2".to_string())].into()),
        capabilities: [("netdev".to_string(), [("ct_zero_snat".to_string(), "true".to_string())].into())]
            .into(),
        ..SwitchFacts::default()
    };
    let (bridge, port) = (world.bed.row("Bridge", "br0"), world.bed.row("Port", "p1"));
    let status: std::collections::BTreeMap<_, _> = [("notice".to_string(), "x\0y".to_string())].into();
    let of_bridge = BridgeFacts {
        datapath_id: Some("0000000000000001".into()),
        datapath_version: "<built-in>".into(),
        status: status.clone(),
        ..BridgeFacts::default()
    };
    world.facts.bridges.insert(bridge, of_bridge);
    world.facts.ports.insert(port, PortFacts { status, ..PortFacts::default() });
    let manager = world.bed.replica().rows("Manager").next().unwrap().uuid();
    world.facts.managers.insert(manager, ManagerFacts { is_connected: true, ..ManagerFacts::default() });
    world.facts.bridges.insert(Uuid::ZERO, BridgeFacts::default());
    assert_eq!(world.write(0), 5, "switch, datapath, bridge, port, manager; not a row that is gone");
    assert_eq!(world.write(10_000), 0);
    let row = world.bed.replica().row("Open_vSwitch", root).unwrap();
    assert_eq!(row.string_set("iface_types"), ["internal", "system"]);
    assert_eq!((row.str("ovs_version"), row.opt_str("system_type")), ("3.5.0", None));
    assert_eq!(row.map_str("statistics", "cpu"), Some("2"));
    assert_eq!(
        world.bed.replica().rows("Datapath").next().unwrap().map_str("capabilities", "ct_zero_snat"),
        Some("true")
    );
    assert_eq!(world.shown("Bridge", "br0", "datapath_id"), "\"0000000000000001\"");
    assert_eq!(world.shown("Bridge", "br0", "status"), "{\"notice\": \"x\u{fffd}y\"}");
    assert!(world.bed.replica().row("Manager", manager).unwrap().bool("is_connected"));
}

#[test]
fn what_the_server_lacks_is_not_written() {
    let mut world = World::new();
    world.writeback.set_missing(&["Interface.ifindex".into(), "Bridge".into()]);
    world.interface("p1").ifindex = Some(3);
    world.facts.bridges.insert(
        world.bed.row("Bridge", "br0"),
        BridgeFacts { datapath_version: "1".into(), ..BridgeFacts::default() },
    );
    world.interface("p1").ofport = 2;
    assert_eq!(world.write(0), 1);
    assert_eq!(world.shown("Interface", "p1", "ifindex"), "{}");
    assert_eq!(world.write(0), 0);
}

#[test]
fn from_rows_to_commands_to_rows() {
    let mut world = World::new();
    let (mut planner, mut fake) = (Planner::default(), Fake::default());
    fake.missing.insert("p1".into());
    world.bed.add_port("br0", "g1", &[], &[("type", "gre".into())]);
    world.bed.add_port("br0", "pa", &[], &[("type", "patch".into()), ("options", map(&[("peer", "pb")]))]);
    let desired = world.bed.desired();
    let next_cfg = desired.next_cfg;
    fake.apply(&mut planner, desired);
    assert!(planner.is_settled());
    world.writeback.acknowledged(next_cfg);
    world.facts = planner.facts();
    assert_eq!(world.write(0), 6, "the switch, four interfaces, the bridge");
    assert_eq!(world.cur_cfg(), next_cfg);
    for (name, ofport, error) in [
        ("br0", "65534", "{}"),
        ("p1", "-1", "\"could not open network device p1 (No such device)\""),
        ("g1", "-1", "\"g1: gre type requires valid 'remote_ip' argument\""),
        ("pa", "1", "\"No usable peer 'pb' exists in 'netdev' datapath.\""),
    ] {
        assert_eq!(world.shown("Interface", name, "ofport"), ofport, "{name}");
        assert_eq!(world.shown("Interface", name, "error"), error, "{name}");
    }
    assert_eq!(planner.plan(world.bed.desired()), vec![], "what was written asks for nothing");
}

#[test]
fn rows_that_another_client_changed_get_the_values_of_their_facts() {
    let mut world = World::new();
    world.interface("p1").ofport = 1;
    assert_eq!(world.write(0), 1);
    assert_eq!(world.write(1), 0);
    // Another client writes into it.
    let row = world.bed.row("Interface", "p1");
    let mut txn = TxnBuilder::new();
    txn.update("Interface", row, [("ofport", ColumnValue::from(Datum::from(9)))]);
    assert!(matches!(world.bed.commit(txn), TxnOutcome::Success { .. }));
    assert_eq!(world.write(2), 1);
    assert_eq!(world.shown("Interface", "p1", "ofport"), "1");
    assert_eq!(world.write(3), 0);
    world.interface("p1").ofport = 2;
    assert_eq!(world.write(4), 1);
    assert_eq!(world.shown("Interface", "p1", "ofport"), "2");
    // Statistics wait until they are due.
    world.interface("p1").statistics = [("rx_packets".to_string(), 5)].into();
    assert_eq!(world.write(5), 0);
    assert_eq!(world.write(5000), 1);
    assert_eq!(world.shown("Interface", "p1", "statistics"), "{\"rx_packets\": 5}");
}

#[test]
fn rows_with_other_facts_are_named() {
    let mut world = World::new();
    for name in ["p1", "br0"] {
        world.interface(name).ofport = 1;
    }
    let mut last = Facts::default();
    let differing = |world: &World, last: &Facts| {
        let mut rows = BTreeSet::new();
        world.facts.differing(last, &mut rows);
        rows
    };
    assert_eq!(differing(&world, &last).len(), 2, "new ones");
    last.clone_from(&world.facts);
    assert!(differing(&world, &last).is_empty());
    let (p1, br0) = (world.bed.row("Interface", "p1"), world.bed.row("Bridge", "br0"));
    world.interface("p1").mtu = Some(1500);
    world.facts.bridges.entry(br0).or_default();
    world.facts.controllers.entry(p1).or_default();
    assert_eq!(differing(&world, &last), [p1, br0].into());
    // A row that has no facts any more is left as it is.
    world.facts.interfaces.clear();
    assert_eq!(differing(&world, &last), [p1, br0].into());
}

/// Rows that changed in the database are compared alone, and `cur_cfg` with them.
#[test]
fn changed_rows_are_compared_alone() {
    let mut world = World::new();
    world.interface("p1").ofport = 1;
    world.interface("br0").ofport = 65534;
    assert_eq!(world.write(0), 2);
    for name in ["p1", "br0"] {
        world.bed.set("Interface", name, "ofport", ColumnValue::from(7));
    }
    world.writeback.acknowledged(5);
    let rows = [world.bed.row("Interface", "p1")].into();
    let txn = world.writeback.next_of(world.bed.replica(), &world.facts, &rows, 1);
    let outcome = world.bed.commit(txn.unwrap());
    world.writeback.outcome(&outcome, 1);
    assert_eq!(["p1", "br0"].map(|name| world.shown("Interface", name, "ofport")), ["1", "7"]);
    assert_eq!(world.cur_cfg(), 5);
    assert_eq!(world.write(2), 1, "the other one");
}

/// Rows named because their statistics changed wait until these are due, and are compared then without being named again.
#[test]
fn rows_that_were_not_due_are_compared_when_statistics_are() {
    let mut world = World::new();
    for name in ["p1", "br0"] {
        world.interface(name).ofport = 1;
    }
    assert_eq!(world.write(0), 2);
    let row = world.bed.row("Interface", "p1");
    world.interface("p1").statistics = [("rx_packets".to_string(), 5)].into();
    let next_of = |world: &mut World, rows: &[Uuid], now_ms| {
        let rows = rows.iter().copied().collect();
        world.writeback.next_of(world.bed.replica(), &world.facts, &rows, now_ms)
    };
    assert!(next_of(&mut world, &[row], 1).is_none());
    assert!(next_of(&mut world, &[], 4999).is_none());
    // The transaction is lost: the row waits on.
    assert!(next_of(&mut world, &[], 5000).is_some());
    world.writeback.outcome(&TxnOutcome::Lost, 5000);
    let from_ms = world.writeback.writes_from_ms().unwrap();
    assert!(from_ms > 5000 && next_of(&mut world, &[], 5000).is_none());
    let txn = next_of(&mut world, &[], from_ms).unwrap();
    assert_eq!(world.writeback.writes_from_ms(), None, "one in flight");
    let outcome = world.bed.commit(txn);
    world.writeback.outcome(&outcome, from_ms);
    assert_eq!(world.shown("Interface", "p1", "statistics"), "{\"rx_packets\": 5}");
    // A difference that was lost with its transaction is found without waiting for statistics.
    world.interface("br0").ofport = 2;
    let br0 = world.bed.row("Interface", "br0");
    assert!(next_of(&mut world, &[br0], from_ms).is_some());
    world.writeback.not_sent(from_ms);
    let from_ms = world.writeback.writes_from_ms().unwrap();
    let txn = next_of(&mut world, &[], from_ms).unwrap();
    let outcome = world.bed.commit(txn);
    world.writeback.outcome(&outcome, from_ms);
    assert_eq!(world.shown("Interface", "br0", "ofport"), "2");
    // A row that was written is looked at once more, and then no longer.
    assert!(next_of(&mut world, &[], 20_000).is_none());
    assert!(world.writeback.unsettled.is_empty());
    world.writeback.set_lock_held(false);
    assert_eq!((world.writeback.writes_from_ms(), world.writeback.may_write(u64::MAX)), (None, false));
}
