use ofproto::ports::{BundleId, PortTable, VlanMode};
use ovsdb::client::ColumnValue;

use super::*;
use crate::config::{BridgeConfig, BridgeOptions, PortConfig};
use crate::status::Facts;
use crate::testbed::{Bed, Fake, device_mac, map};

mod history;
pub(crate) mod increments;

struct World {
    bed: Bed,
    fake: Fake,
    planner: Planner,
}

impl World {
    fn new() -> Self {
        World { bed: Bed::new(), fake: Fake::default(), planner: Planner::default() }
    }

    /// Applies the database and returns the necessary commands.
    fn sync(&mut self) -> Vec<String> {
        self.fake.take_log();
        self.fake.apply(&mut self.planner, self.bed.desired());
        self.fake.take_log()
    }

    fn with_bridge() -> Self {
        let mut world = World::new();
        world.bed.add_br("br0", "netdev");
        world.sync();
        world
    }

    fn add(&mut self, name: &str, columns: &[(&str, ColumnValue)]) -> Vec<String> {
        self.bed.add_port("br0", name, &[], columns);
        self.sync()
    }

    fn set(&mut self, table: &str, name: &str, column: &str, value: impl Into<ColumnValue>) -> Vec<String> {
        self.bed.set(table, name, column, value);
        self.sync()
    }

    fn error(&self, name: &str) -> (i64, Option<String>) {
        let facts = self.planner.facts();
        let facts = &facts.interfaces[&self.bed.row("Interface", name)];
        (facts.ofport, facts.error.clone())
    }
}

#[test]
fn the_life_of_a_bridge() {
    let mut world = World::new();
    assert_eq!(world.sync(), ["global"]);
    world.bed.add_br("br0", "netdev");
    assert_eq!(world.sync(), ["create br0", "configure br0", "open br0", "ports br0 1"]);
    assert_eq!(world.add("p1", &[]), ["open p1", "update br0", "configure br0", "ports br0 2"]);
    assert_eq!(world.sync(), [""; 0]);
    world.bed.del_port("br0", "p1");
    assert_eq!(world.sync(), ["ports br0 1", "close p1", "update br0", "configure br0"]);
    world.bed.add_port("br0", "p1", &[], &[]);
    world.sync();
    world.bed.del_br("br0");
    assert_eq!(world.sync(), ["ports br0 0", "close br0", "close p1", "destroy br0"]);
    assert!(world.fake.bridges.is_empty() && world.fake.devices.is_empty());
}

/// The interface of a bond is a port outside all bundles, with a number after those of the members.
#[test]
fn a_bond_may_have_an_interface_of_its_own() {
    let mut world = World::with_bridge();
    let fake = [("bond_fake_iface", ColumnValue::from(true))];
    world.bed.add_bond("br0", "bond0", &fake, &[("p1", &[]), ("p2", &[])]);
    let commands = world.sync();
    assert!(commands.contains(&"open bond0".to_string()), "{commands:?}");
    assert_eq!(["p1", "p2", "bond0"].map(|name| world.fake.number(name)), [1, 2, 3]);
    let ports = world.fake.bridge("br0").ports.clone();
    let port = ports.ports.iter().find(|port| port.name == "bond0").unwrap();
    assert_eq!((port.type_name.as_str(), port.bundle), ("internal", BundleId::NONE));
    assert!(ports.bundles.iter().all(|bundle| !bundle.members.contains(&OfPort(3))));
    // Another interface takes the name.
    world.bed.add_port("br0", "x", &[], &[]);
    world.sync();
    let commands = world.set("Port", "bond0", "bond_fake_iface", false);
    assert!(commands.contains(&"close bond0".to_string()), "{commands:?}");
    world.bed.add_port("br0", "bond1x", &[], &[]);
    world.bed.add_bond("br0", "bond1", &fake, &[("p3", &[]), ("p4", &[])]);
    world.bed.set("Port", "x", "bond_fake_iface", true);
    world.sync();
    assert!(
        world
            .planner
            .ineffective()
            .iter()
            .any(|n| n.message == "bond_fake_iface: ignored: the port is no bond")
    );
}

#[test]
fn samples_that_are_not_taken_are_told_until_they_are() {
    let mut world = World::with_bridge();
    let id = *world.fake.bridges.keys().next().unwrap();
    let told = |world: &World| {
        let facts = world.planner.facts();
        let mut notices = facts.bridges.values().filter_map(|facts| facts.status.get(NOTICE_KEY));
        let listed =
            world.planner.ineffective().iter().any(|n| n.table == "Bridge" && n.message == "no samples");
        assert_eq!(notices.any(|text| text.contains("no samples")), listed);
        (world.planner.version(), listed)
    };
    let (before, _) = told(&world);
    world.planner.sampling_failed(id, Some("no samples".to_string()));
    assert_eq!(told(&world), (before + 1, true));
    world.planner.sampling_failed(id, Some("no samples".to_string()));
    assert_eq!(told(&world), (before + 1, true));
    world.planner.sampling_failed(id, None);
    assert_eq!(told(&world), (before + 2, false));
}

#[test]
fn one_change_takes_few_commands_however_many_ports_there_are() {
    let mut world = World::with_bridge();
    world.set("Bridge", "br0", "other_config", map(&[("hwaddr", "00:00:00:00:00:01")]));
    for n in 1..1000 {
        world.bed.add_port("br0", &format!("p{n}"), &[], &[]);
    }
    let commands = world.sync();
    assert_eq!(commands.len(), 1000, "999 devices and the ports of one bridge");
    assert_eq!(commands[999], "ports br0 1000");
    assert_eq!(world.add("p1000", &[]), ["open p1000", "ports br0 1001"]);
    assert_eq!(world.set("Port", "p500", "tag", 5), ["ports br0 1001"]);
    assert_eq!(world.set("Interface", "p500", "mtu_request", 2000), ["update p500"]);
    assert_eq!(world.set("Interface", "p500", "external_ids", map(&[("a", "b")])), [""; 0]);
    assert_eq!(world.set("Open_vSwitch", "", "next_cfg", 9), [""; 0]);
    assert_eq!(world.planner.desired().next_cfg, 9);
    assert_eq!(world.set("Bridge", "br0", "fail_mode", "secure"), ["configure br0"]);
    world.bed.del_port("br0", "p500");
    assert_eq!(world.sync(), ["ports br0 1000", "close p500"]);
}

#[test]
fn numbers_as_requested_and_as_they_come() {
    let mut world = World::with_bridge();
    let request = |n: i64| [("ofport_request", ColumnValue::from(n))];
    world.add("p10", &request(10));
    world.add("q1", &[]);
    world.add("q2", &[]);
    let number = |world: &World, name: &str| world.fake.number(name);
    assert_eq!(["br0", "p10", "q1", "q2"].map(|name| number(&world, name)), [0xffff_fffe, 10, 1, 2]);
    world.bed.del_port("br0", "q2");
    world.sync();
    world.add("q3", &[]);
    assert_eq!(number(&world, "q3"), 3, "2 was given up just now");
    world.set("Interface", "q1", "ofport_request", 10);
    assert_eq!((number(&world, "q1"), number(&world, "p10")), (1, 10), "the holder asked for it too");
    assert_eq!(world.set("Interface", "q1", "ofport_request", 50), ["ports br0 4"], "its device stays open");
    assert_eq!(number(&world, "q1"), 50);
    world.set("Interface", "q1", "ofport_request", ovsdb::value::Datum::empty_set());
    assert_eq!(number(&world, "q1"), 50);
    world.set("Interface", "q1", "ofport_request", 3);
    assert_eq!((number(&world, "q1"), number(&world, "q3")), (3, 4), "the holder did not ask for it");
    world.add("q4", &request(4));
    assert_eq!((number(&world, "q4"), number(&world, "q3")), (4, 5), "also for one that is new");
}

#[test]
fn numbers_in_one_transaction_and_after_a_restart() {
    let mut world = World::with_bridge();
    let bridge = world.bed.row("Bridge", "br0");
    world.fake.missing.insert("p2".into());
    world.bed.txn(|txn| {
        for name in ["p10", "p9", "p2", "r"] {
            let request = if name == "r" { vec![("ofport_request", ColumnValue::from(1))] } else { vec![] };
            let columns = [("name", ColumnValue::from(name))].into_iter().chain(request);
            let interface = txn.insert("Interface", columns);
            let port =
                txn.insert("Port", [("name", ColumnValue::from(name)), ("interfaces", interface.into())]);
            txn.mutate("Bridge", bridge, "ports", "insert", port);
        }
    });
    world.sync();
    assert_eq!(["r", "p9", "p10"].map(|name| world.fake.number(name)), [1, 2, 3], "p2 uses none up");
    for name in ["p9", "p10", "r"] {
        let number = if name == "p9" { 77 } else { i64::from(world.fake.number(name)) };
        world.bed.set("Interface", name, "ofport", number);
    }
    world.add("new", &[]);
    (world.planner, world.fake) = (Planner::default(), Fake::default());
    world.sync();
    assert_eq!(["r", "p9", "p10", "p2", "new"].map(|name| world.fake.number(name)), [1, 77, 3, 4, 2]);
}

#[test]
fn port_numbers_run_out_only_when_all_are_in_use() {
    let mut numbers = numbers::PortNumbers::default();
    for n in 1..0xff00 {
        assert_eq!(numbers.allocate(), Some(OfPort(n)));
    }
    assert_eq!(numbers.allocate(), None);
    numbers.release(OfPort(9));
    numbers.release(OfPort(5));
    assert_eq!(
        [numbers.allocate(), numbers.allocate(), numbers.allocate()],
        [Some(OfPort(9)), Some(OfPort(5)), None]
    );
    assert!(!numbers.claim(OfPort(5)) && !numbers.claim(OfPort(0)) && !numbers.claim(OfPort(0xff00)));
}

#[test]
fn missing_devices_are_retried_and_gone_ones_closed() {
    let mut world = World::with_bridge();
    world.fake.missing.insert("p1".into());
    assert_eq!(world.add("p1", &[]), ["open p1"]);
    let missing = || (-1, Some("could not open network device p1 (No such device)".to_string()));
    assert_eq!(world.error("p1"), missing());
    assert_eq!(world.set("Bridge", "br0", "fail_mode", "secure"), ["configure br0"], "it is not tried again");
    assert_eq!(world.planner.failed_interfaces().count(), 1);
    world.fake.missing.clear();
    world.planner.retry("p1");
    world.fake.go_on(&mut world.planner);
    assert_eq!(world.fake.take_log(), ["open p1", "update br0", "configure br0", "ports br0 2"]);
    assert_eq!(world.error("p1"), (1, None));
    world.planner.device_gone("p1");
    world.planner.device_gone("unknown");
    world.fake.go_on(&mut world.planner);
    assert_eq!(world.fake.take_log(), ["ports br0 1", "close p1", "update br0", "configure br0"]);
    assert_eq!(world.error("p1"), missing());
    world.planner.retry_failed();
    world.fake.go_on(&mut world.planner);
    assert_eq!(world.error("p1"), (1, None), "its number again");
    world.fake.take_log();
    // A failed setting is reported, and the port stays.
    world.planner.settings_failed("p1", Some("no".into()));
    assert_eq!(world.error("p1"), (1, Some("no".to_string())));
    world.fake.go_on(&mut world.planner);
    assert_eq!(world.fake.take_log(), [] as [&str; 0]);
    world.planner.settings_failed("p1", None);
    assert_eq!(world.error("p1"), (1, None));
    world.planner.device_gone("p1");
    world.planner.retry("p1");
    world.fake.go_on(&mut world.planner);
    assert_eq!(
        world.fake.take_log().iter().filter(|c| c.ends_with(" p1")).count(),
        2,
        "closed before opened"
    );
    assert_eq!(world.set("Interface", "p1", "type", "tap")[1..3], ["close p1", "open p1"].map(String::from));
}

#[test]
fn an_answer_to_an_attempt_given_up_is_ignored() {
    let mut world = World::with_bridge();
    world.bed.add_port("br0", "p1", &[], &[]);
    let commands = world.planner.plan(world.bed.desired());
    let Command::OpenInterface(open) = &commands[0] else { panic!("{commands:?}") };
    assert!(!world.planner.is_settled());
    world.bed.del_port("br0", "p1");
    let commands = world.planner.plan(world.bed.desired());
    assert!(matches!(&commands[..], [Command::CloseInterface { name, .. }] if name == "p1"), "{commands:?}");
    let opened = OpenedInterface { dp_port: DpPort(7), mac: device_mac("p1"), mtu: None };
    assert_eq!(world.planner.opened(open.open, Ok(opened)), None);
    assert!(world.planner.is_settled() && world.planner.commands().is_empty());
}

#[test]
fn an_interface_moves_between_bridges() {
    for (from, to) in [("br0", "br1"), ("br1", "br0")] {
        let mut world = World::with_bridge();
        world.bed.add_br("br1", "netdev");
        world.bed.add_port(from, "p1", &[], &[]);
        world.sync();
        world.bed.del_port(from, "p1");
        world.bed.add_port(to, "p1", &[], &[]);
        let log = world.sync();
        let at = |what: &str| log.iter().position(|c| c == what).unwrap_or_else(|| panic!("{what}: {log:?}"));
        assert!(at(&format!("ports {from} 1")) < at("close p1"));
        assert!(at("close p1") < at("open p1") && at("open p1") < at(&format!("ports {to} 2")));
    }
}

#[test]
fn a_device_gets_changed_values_only() {
    let mut world = World::with_bridge();
    world.add("p1", &[]);
    for (column, settings, told) in [
        ("options", map(&[("unheard-of", "x")]), false),
        ("other_config", map(&[("unheard-of", "x")]), false),
        // The defaults, written explicitly.
        ("options", map(&[("n_rxq", "1"), ("merge_udp", "true")]), false),
        ("options", map(&[("n_rxq", "2")]), true),
        ("other_config", map(&[("pmd-rxq-affinity", "1:0")]), true),
        ("options", map(&[("n_rxq", "2"), ("merge_udp", "false")]), true),
        ("options", map(&[]), true),
        ("other_config", map(&[]), true),
    ] {
        let expected: &[&str] = if told { &["update p1"] } else { &[] };
        assert_eq!(world.set("Interface", "p1", column, settings.clone()), expected, "{column} {settings:?}");
    }
}

#[test]
fn patch_ports_find_each_other() {
    let mut world = World::with_bridge();
    world.bed.add_br("br1", "netdev");
    world.bed.add_br("br2", "dummy");
    world.sync();
    let patch = |peer: &str| vec![("type", ColumnValue::from("patch")), ("options", map(&[("peer", peer)]))];
    world.bed.add_port("br0", "pa", &[], &patch("pb"));
    assert_eq!(world.sync(), ["ports br0 2"]);
    assert_eq!(world.error("pa"), (1, Some("No usable peer 'pb' exists in 'netdev' datapath.".into())));
    world.bed.add_port("br1", "pb", &[], &patch("pa"));
    assert_eq!(world.sync(), ["ports br1 2", "ports br0 2"]);
    let peer = |world: &World, bridge: &str, name: &str| {
        world.fake.bridge(bridge).ports.ports.iter().find(|port| port.name == name).unwrap().patch_peer
    };
    let id = |world: &World, bridge: &str| world.planner.bridge_id(bridge).unwrap();
    assert_eq!(peer(&world, "br0", "pa"), Some((id(&world, "br1"), OfPort(1))));
    assert_eq!(peer(&world, "br1", "pb"), Some((id(&world, "br0"), OfPort(1))));
    assert_eq!(world.error("pa"), (1, None));
    assert_eq!(world.set("Interface", "pb", "ofport_request", 9), ["ports br1 2", "ports br0 2"]);
    assert_eq!(peer(&world, "br0", "pa"), Some((id(&world, "br1"), OfPort(9))));
    world.set("Interface", "pb", "options", map(&[("peer", "zz")]));
    assert_eq!((peer(&world, "br0", "pa"), peer(&world, "br1", "pb")), (None, None), "it has to point back");
    world.set("Interface", "pb", "options", map(&[("peer", "pa")]));
    assert!(peer(&world, "br0", "pa").is_some());
    world.bed.del_br("br1");
    world.sync();
    assert_eq!(peer(&world, "br0", "pa"), None);
    world.bed.add_port("br2", "pb", &[], &patch("pa"));
    world.sync();
    assert_eq!(peer(&world, "br0", "pa"), None, "in another datapath");
    world.bed.del_port("br2", "pb");
    world.bed.add_port("br0", "pb", &[], &patch("pa"));
    assert_eq!(world.sync(), ["ports br0 3", "ports br2 1"]);
    assert!(peer(&world, "br0", "pa").is_some() && peer(&world, "br0", "pb").is_some(), "in one bridge");
}

#[test]
fn the_address_of_a_bridge() {
    let mut world = World::with_bridge();
    let mac = |world: &World| world.fake.bridge("br0").settings.clone().unwrap().mac;
    let row = *world.bed.row("Bridge", "br0").as_bytes();
    let own = MacAddr([row[3] & !1 | 2, row[2], row[1], row[0], row[7], row[6]]);
    assert_eq!(mac(&world), own, "of its row, local");
    assert_eq!(world.fake.bridge("br0").settings.as_ref().unwrap().datapath_id, own.to_u64());
    world.add("p5", &[]);
    assert_eq!(mac(&world), device_mac("p5"));
    assert_eq!(world.fake.devices["br0"].2.mac, Some(device_mac("p5")));
    world.add("p3", &[]);
    world.add("i1", &[("type", "internal".into())]);
    assert_eq!(mac(&world), device_mac("p3"), "the lowest");
    let settings = world.fake.bridge("br0").settings.clone().unwrap();
    assert_eq!(settings.datapath_id, device_mac("p3").to_u64());
    let facts = world.planner.facts();
    assert_eq!(facts.bridges[&world.bed.row("Bridge", "br0")].datapath_version, "<built-in>");
    assert_eq!(
        facts.bridges[&world.bed.row("Bridge", "br0")].datapath_id.as_deref(),
        Some("0000001122000003")
    );
    world.set("Port", "p5", "mac", "00:00:00:00:00:01");
    assert_eq!(mac(&world), MacAddr([0, 0, 0, 0, 0, 1]), "Port.mac stands for the port");
    world.set("Bridge", "br0", "other_config", map(&[("hwaddr", "0a:00:00:00:00:01")]));
    assert_eq!(mac(&world), MacAddr([10, 0, 0, 0, 0, 1]));
    world.set("Bridge", "br0", "other_config", map(&[("datapath-id", "00000000000000ff")]));
    assert_eq!(world.fake.bridge("br0").settings.as_ref().unwrap().datapath_id, 0xff);
    world.set("Port", "p5", "mac", ovsdb::value::Datum::empty_set());
    world.planner.device_changed("p5", MacAddr([0, 0, 0, 0, 0, 9]), Some(1500));
    world.fake.go_on(&mut world.planner);
    assert_eq!(mac(&world), MacAddr([0, 0, 0, 0, 0, 9]));
    world.set("Bridge", "br0", "other_config", map(&[]));
    world.bed.del_port("br0", "p3");
    let of_port = |world: &mut World, mac: &str| world.set("Port", "p5", "mac", mac);
    for (text, bridge) in [
        ("00:00:00:00:00:07", MacAddr([0, 0, 0, 0, 0, 7])),
        ("02:00:00:00:00:07", own),
        ("01:00:00:00:00:07", own),
        ("00:00:00:00:00:00", own),
        ("00:e0:2b:00:00:04", own),
        ("none of that", MacAddr([0, 0, 0, 0, 0, 9])),
    ] {
        of_port(&mut world, text);
        assert_eq!(mac(&world), bridge, "{text}");
    }
    world.bed.del_br("br0");
    world.sync();
    world.bed.add_br("br0", "netdev");
    world.sync();
    assert_ne!(mac(&world), own, "another row, another bridge");
}

#[test]
fn the_address_of_a_fake_bridge() {
    let mut world = World::with_bridge();
    world.add("f7", &[("type", "internal".into())]);
    world.set("Port", "f7", "tag", 7);
    world.set("Port", "f7", "fake_bridge", true);
    let mac = |world: &World| world.fake.devices["f7"].2.mac;
    let of_row = world.fake.bridge("br0").settings.clone().unwrap().mac;
    assert_eq!(mac(&world), Some(of_row), "no port has its VLAN");
    world.add("p3", &[]);
    world.add("p5", &[]);
    world.set("Port", "p5", "tag", 7);
    assert_eq!(mac(&world), Some(device_mac("p5")), "the lowest in its VLAN");
    assert_eq!(world.fake.devices["br0"].2.mac, Some(device_mac("p3")));
    world.set("Interface", "f7", "mac", "00:00:00:00:00:07");
    assert_eq!(mac(&world), Some(MacAddr([0, 0, 0, 0, 0, 7])));
}

#[test]
fn the_address_of_a_port_without_a_device_is_of_its_row() {
    let mut world = World::with_bridge();
    world.add("pa", &[("type", "patch".into()), ("options", map(&[("peer", "pb")]))]);
    world.add("pb", &[("type", "patch".into()), ("options", map(&[("peer", "pa")]))]);
    for name in ["pa", "pb"] {
        let row = *world.bed.row("Interface", name).as_bytes();
        let expected = MacAddr([row[3] & !1 | 2, row[2], row[1], row[0], row[7], row[6]]);
        let ports = &world.fake.bridge("br0").ports.ports;
        assert_eq!(ports.iter().find(|port| port.name == name).map(|port| port.mac), Some(expected));
    }
}

#[test]
fn internal_ports_have_the_least_mtu_of_the_devices_around() {
    let mut world = World::with_bridge();
    let mtu = |world: &World, name: &str| world.fake.devices[name].2.mtu;
    world.add("i1", &[("type", "internal".into())]);
    assert_eq!(["br0", "i1"].map(|name| mtu(&world, name)), [Some(1500); 2]);
    world.add("p1", &[]);
    assert_eq!((mtu(&world, "p1"), mtu(&world, "i1")), (None, Some(1500)));
    world.planner.device_changed("p1", device_mac("p1"), Some(9000));
    world.fake.take_log();
    world.fake.go_on(&mut world.planner);
    assert_eq!(world.fake.take_log(), ["update br0", "update i1"]);
    assert_eq!(["br0", "i1"].map(|name| mtu(&world, name)), [Some(9000); 2]);
    world.planner.device_changed("p1", device_mac("p1"), Some(65_535));
    world.fake.go_on(&mut world.planner);
    assert_eq!(mtu(&world, "i1"), Some(65_521), "no device of the kernel has more");
    world.add("p2", &[]);
    assert_eq!(mtu(&world, "i1"), Some(1500), "the least");
    // One with an MTU of its row counts as well.
    world.add("i2", &[("type", "internal".into()), ("mtu_request", 1400.into())]);
    world.planner.device_changed("i2", device_mac("i2"), Some(1400));
    world.fake.go_on(&mut world.planner);
    assert_eq!(["br0", "i1", "i2"].map(|name| mtu(&world, name)), [Some(1400); 3]);
    // By hand, an internal device may have less, but not more, and none another one than its row.
    for (name, by_hand, log, after) in [
        ("i1", 1300, "", [1400, 1300, 1400]),
        ("i1", 1450, "update i1", [1400; 3]),
        ("i2", 1450, "update br0 update i1 update i2", [1450, 1450, 1400]),
        ("i2", 1400, "update br0 update i1", [1400; 3]),
    ] {
        world.fake.take_log();
        world.fake.devices.get_mut(name).unwrap().2.mtu = Some(by_hand);
        world.planner.device_changed(name, device_mac(name), Some(by_hand));
        world.fake.go_on(&mut world.planner);
        let updates: Vec<_> =
            world.fake.take_log().into_iter().filter(|line| line.starts_with("update")).collect();
        assert_eq!(updates.join(" "), log, "{name} {by_hand}");
        assert_eq!(["br0", "i1", "i2"].map(|name| mtu(&world, name)), after.map(Some));
    }
}

#[test]
fn a_bridge_that_could_not_be_made() {
    let mut world = World::new();
    world.bed.add_br("br0", "netdev");
    let commands = world.planner.plan(world.bed.desired());
    let opens: Vec<_> = commands
        .iter()
        .filter_map(|c| if let Command::OpenInterface(open) = c { Some(open.open) } else { None })
        .collect();
    world.planner.bridge_failed(world.planner.bridge_id("br0").unwrap(), "no room");
    assert_eq!(world.planner.opened(opens[0], Err("no bridge".into())), None);
    assert!(world.planner.is_settled() && world.planner.commands().is_empty());
    assert_eq!(world.error("br0"), (-1, Some("could not create bridge br0 (no room)".into())));
    assert_eq!(world.sync(), [""; 0]);
    world.planner.retry_failed();
    world.fake.go_on(&mut world.planner);
    assert_eq!(world.fake.take_log(), ["create br0", "configure br0", "open br0", "ports br0 1"]);
    world.planner.bridge_failed(world.planner.bridge_id("br0").unwrap(), "no room");
    (world.fake.bridges, world.fake.devices) = Default::default();
    assert_eq!(
        world.set("Bridge", "br0", "fail_mode", "secure").len(),
        4,
        "a change is a reason to try again"
    );
    assert_eq!(
        world.set("Bridge", "br0", "datapath_type", "dummy")[2..4],
        ["destroy br0", "create br0"].map(String::from)
    );
}

#[test]
fn controllers_wait_for_the_restoring_of_flows() {
    let mut world = World::with_bridge();
    world.bed.set("Open_vSwitch", "", "other_config", map(&[("flow-restore-wait", "true")]));
    let row = world.bed.row("Bridge", "br0");
    world.bed.txn(|txn| {
        let targets = ["tcp:127.0.0.1:1", "ptcp:1"];
        let rows = targets.map(|target| txn.insert("Controller", [("target", ColumnValue::from(target))]));
        txn.update("Bridge", row, [("controller", ColumnValue::refs(rows))]);
    });
    assert_eq!(world.sync(), ["global", "controllers br0 1"]);
    assert_eq!(world.fake.bridge("br0").controllers[0].target, "ptcp:1");
    assert_eq!(world.set("Open_vSwitch", "", "other_config", map(&[])), ["global", "controllers br0 2"]);
}

#[test]
fn notices_are_logged_once() {
    let mut world = World::with_bridge();
    let queue = ovsdb::value::Datum::map([("controller-queue-size", "9")]);
    assert_eq!(world.planner.take_notices(), []);
    world.set("Bridge", "br0", "other_config", queue.clone());
    assert_eq!(world.planner.take_notices().len(), 1);
    let facts = world.planner.facts();
    let status = &facts.bridges[&world.bed.row("Bridge", "br0")].status["notice"];
    assert!(status.contains("controller-queue-size"), "{status}");
    world.set("Bridge", "br0", "fail_mode", "secure");
    assert_eq!(world.planner.take_notices(), []);
    world.set("Bridge", "br0", "other_config", ovsdb::value::Datum::empty_map());
    world.set("Bridge", "br0", "other_config", queue.clone());
    assert_eq!(world.planner.take_notices().len(), 1);
}

#[test]
fn a_port_set_makes_a_table_that_keeps_what_it_does_not_say() {
    let mut world = World::with_bridge();
    world.bed.add_port("br0", "p1", &[("tag", 5.into())], &[]);
    world.sync();
    let ports = world.fake.bridge("br0").ports.clone();
    let mut table = ports.table(&PortTable::default());
    let (number, port) =
        table.ports.iter().find(|(_, port)| port.name == "p1").map(|(n, p)| (*n, p.clone())).unwrap();
    let mut port = Arc::unwrap_or_clone(port);
    (port.config.no_flood, port.link_down, port.features.speed_mbps) = (true, true, 10);
    table.ports.insert(number, Arc::new(port));
    let again = ports.table(&table);
    let port = again.port(number).unwrap();
    assert!(port.config.no_flood && port.link_down && port.features.speed_mbps == 10);
    let bundle = again.bundle_of(number).unwrap();
    assert_eq!((bundle.vlan_mode, bundle.tag, bundle.floodable), (VlanMode::Access, 5, false));
    assert_eq!(again.by_name("br0").unwrap().of_port, OfPort::LOCAL);
    let other = PortTable {
        ports: [(number, Arc::new(ofproto::ports::Port { name: "x".into(), ..(**port).clone() }))].into(),
        ..table
    };
    assert!(!ports.table(&other).port(number).unwrap().link_down, "another port had the number");
}
