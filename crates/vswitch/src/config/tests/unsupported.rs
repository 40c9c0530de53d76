//! Unsupported configuration is reported.

use super::*;

#[test]
fn unsupported_settings_are_reported() {
    let cases: Vec<(&str, &str, ColumnValue, &str)> = vec![
        ("Interface", "cfm_mpid", 9000.into(), "cfm_mpid=9000"),
        ("Interface", "bfd", map(&[("enable", "true"), ("mult", "x")]), "bfd:mult=x"),
        ("Interface", "lldp", map(&[("enable", "on")]), "lldp:enable=on"),
        ("Open_vSwitch", "other_config", map(&[("hw-offload", "true")]), "hardware offload"),
        ("Open_vSwitch", "other_config", map(&[("dpdk-init", "true")]), "DPDK"),
    ];
    for (table, column, value, expected) in cases {
        let mut bed = Bed::new();
        bed.add_br("br0", "netdev");
        bed.add_port("br0", "p1", &[], &[]);
        let name = if table == "Bridge" { "br0" } else { "p1" };
        bed.set(table, name, column, value);
        let desired = bed.desired();
        let told = messages(&desired);
        assert!(told.len() == 1 && told[0].contains(expected), "{column}: {told:?}");
        let notice = desired.notices.first().unwrap();
        assert!(notice.table == table && notice.setting.split(':').next() == Some(column), "{notice:?}");
    }
    let mut bed = Bed::new();
    let root = bed.root();
    bed.txn(|txn| {
        let columns = [("target", "bogus:1".into()), ("other_config", map(&[("dscp", "99")]))];
        let manager = txn.insert("Manager", columns);
        txn.update("Open_vSwitch", root, [("manager_options", ColumnValue::from(manager))]);
    });
    let desired = bed.desired();
    let settings: Vec<_> = desired.notices.iter().map(|n| (n.table, &*n.name, &*n.setting)).collect();
    assert_eq!(settings, [("Manager", "bogus:1", "other_config:dscp"), ("Manager", "bogus:1", "target")]);
    let mut bed = Bed::new();
    let settings = map(&[("n-revalidator-threads", "4"), ("min-revalidate-pps", "7")]);
    bed.set("Open_vSwitch", "", "other_config", settings);
    assert_eq!(messages(&bed.desired()), [""; 0]);
    let mut bed = Bed::new();
    bed.add_br("br0", "netdev");
    let (root, row, port) = (bed.root(), bed.row("Bridge", "br0"), bed.row("Port", "br0"));
    bed.txn(|txn| {
        let targets = || [("targets", ColumnValue::from("127.0.0.1:1"))];
        let (netflow, sflow) = (txn.insert("NetFlow", targets()), txn.insert("sFlow", targets()));
        let ipfix = txn.insert("IPFIX", targets());
        let mirror = txn.insert("Mirror", [("name", ColumnValue::from("m0"))]);
        let qos = txn.insert("QoS", [("type", ColumnValue::from("linux-x"))]);
        txn.update(
            "Bridge",
            row,
            [
                ("netflow", ColumnValue::from(netflow)),
                ("sflow", sflow.into()),
                ("ipfix", ipfix.into()),
                ("mirrors", mirror.into()),
            ],
        );
        txn.update("Port", port, [("qos", ColumnValue::from(qos))]);
        let dpdk = Datum::map([("dpdk-init", "true")]);
        txn.update("Open_vSwitch", root, [("other_config", ColumnValue::from(dpdk))]);
    });
    let desired = bed.desired();
    let rows = ["Bridge", "Open_vSwitch", "Port"].map(|table| {
        let of_table = desired.notices.iter().filter(|notice| notice.table == table);
        of_table.map(|notice| notice.row).collect::<Vec<_>>()
    });
    assert_eq!(rows, [vec![row], vec![root], vec![port]], "{:?}", messages(&desired));
}

/// Only the row says which datapath serves a bridge without a type; the type of another one is no such setting.
#[test]
fn a_bridge_without_a_type_tells_its_datapath() {
    for (datapath_type, told, notices) in [("", true, 0), ("system", true, 1), ("netdev", false, 0)] {
        let mut bed = Bed::new();
        bed.add_br("br0", datapath_type);
        let (mut planner, mut fake) = (Planner::default(), Fake::default());
        fake.apply(&mut planner, bed.desired());
        let status = &planner.facts().bridges[&bed.row("Bridge", "br0")].status;
        let text = "there is no kernel datapath; the userspace datapath (netdev) serves this bridge";
        assert_eq!(status.get("notice").map(String::as_str), told.then_some(text), "{datapath_type}");
        assert_eq!(planner.ineffective().len(), notices, "{datapath_type}");
    }
}

/// The notice is in the row itself, or in the nearest above it with a column for it.
#[test]
fn what_is_not_supported_stands_in_a_row() {
    let mut bed = Bed::new();
    bed.add_br("br0", "netdev");
    let lacp: &[(&str, ColumnValue)] =
        &[("lacp", "active".into()), ("other_config", map(&[("lacp-system-id", "x")]))];
    bed.add_port("br0", "p1", lacp, &[("mac", "01:00:00:00:00:00".into())]);
    bed.set("Interface", "p1", "bfd", map(&[("enable", "true"), ("min_rx", "x")]));
    let bridge = bed.row("Bridge", "br0");
    bed.txn(|txn| {
        let mirror = txn.insert("Mirror", [("name", ColumnValue::from("m0"))]);
        let target = |target: &str| [("target", ColumnValue::from(target))];
        let controllers = [txn.insert("Controller", target("bogus:1"))];
        let columns =
            [("mirrors", ColumnValue::from(mirror)), ("controller", ColumnValue::refs(controllers))];
        txn.update("Bridge", bridge, columns);
    });
    let (mut planner, mut fake) = (Planner::default(), Fake::default());
    fake.apply(&mut planner, bed.desired());
    let facts = planner.facts();
    let of = |table: &str, name: &str| bed.row(table, name);
    let told = |status: &StringMap| status.get("notice").cloned().unwrap_or_default();
    let p1 = told(&facts.interfaces[&of("Interface", "p1")].status);
    assert!(p1.contains("bfd:min_rx=x: ignored") && p1.contains("mac is ignored"), "{p1}");
    let port = told(&facts.ports[&of("Port", "p1")].status);
    assert!(port.contains("the port has no LACP: give an Ethernet address"), "{port}");
    let bridge = told(&facts.bridges[&bridge].status);
    assert!(bridge.contains("mirror m0 does not specify output; ignoring"), "{bridge}");
    let controllers: Vec<_> = facts.controllers.values().map(|facts| told(&facts.status)).collect();
    assert_eq!(controllers.len(), 1);
    assert!(controllers[0].contains("does not say how to reach"), "{controllers:?}");
}

#[test]
fn an_option_of_another_type_stands_in_the_row() {
    let mut bed = Bed::new();
    bed.add_br("br0", "netdev");
    bed.add_port("br0", "p1", &[], &[]);
    bed.set("Interface", "p1", "options", map(&[("xdp-mode", "native"), ("n_rxq", "2")]));
    let desired = bed.desired();
    let notice = desired.notices.iter().find(|notice| notice.name == "p1").expect("there is a notice");
    assert_eq!((notice.setting.as_str(), notice.is_warning), ("options:xdp-mode", false));
    let (mut planner, mut fake) = (Planner::default(), Fake::default());
    fake.apply(&mut planner, desired);
    let status = &planner.facts().interfaces[&bed.row("Interface", "p1")].status;
    let text = "options:xdp-mode has no effect: it is an option of interfaces of type afxdp";
    assert_eq!(status.get("notice").map(String::as_str), Some(text));
}

#[test]
fn addresses_of_controllers_are_those_of_the_bridges_device() {
    for (columns, prefix_bits, complaints) in [
        (&[("local_ip", "192.0.2.1")][..], 24, 0),
        (&[("local_ip", "10.1.2.3")], 8, 0),
        (&[("local_ip", "172.16.0.1"), ("local_netmask", "255.255.255.128")], 25, 0),
        (&[("local_ip", "192.0.2.1"), ("local_netmask", "255.0.255.0")], 24, 1),
        (&[("local_ip", "192.0.2.1"), ("local_gateway", "2001::1")], 24, 1),
    ] {
        let mut bed = Bed::new();
        bed.add_br("br0", "netdev");
        let row = bed.row("Bridge", "br0");
        bed.txn(|txn| {
            let mut all = vec![("target", ColumnValue::from("tcp:127.0.0.1"))];
            all.extend(columns.iter().map(|(column, value)| (*column, ColumnValue::from(*value))));
            let controller = txn.insert("Controller", all);
            txn.update("Bridge", row, [("controller", ColumnValue::from(controller))]);
        });
        let desired = bed.desired();
        let ip = columns[0].1.parse().unwrap();
        let local = Some(LocalAddress { ip, prefix_bits, gateway: None });
        assert_eq!(desired.bridges["br0"].controllers[0].local, local, "{columns:?}");
        assert_eq!(messages(&desired).len(), complaints, "{columns:?}");
    }
}

#[test]
fn controllers_have_a_dscp() {
    for (asked, dscp, complaints) in [
        (None, 48, 0),
        (Some("0"), 0, 0),
        (Some("7"), 7, 0),
        (Some("63"), 63, 0),
        (Some("64"), 48, 1),
        (Some("-1"), 48, 1),
        (Some("ef"), 48, 1),
    ] {
        let mut bed = Bed::new();
        bed.add_br("br0", "netdev");
        let row = bed.row("Bridge", "br0");
        bed.txn(|txn| {
            let mut columns = vec![("target", ColumnValue::from("tcp:127.0.0.1"))];
            columns.extend(asked.map(|asked| ("other_config", map(&[("dscp", asked)]))));
            let controller = txn.insert("Controller", columns);
            txn.update("Bridge", row, [("controller", ColumnValue::from(controller))]);
        });
        let desired = bed.desired();
        assert_eq!(desired.bridges["br0"].controllers[0].dscp, dscp, "{asked:?}");
        assert_eq!(messages(&desired).len(), complaints, "{asked:?}");
    }
}

/// Only an enabled session has settings; a change of them changes the port alone.
#[test]
fn sessions_of_bfd_are_part_of_the_ports() {
    let mut bed = Bed::new();
    bed.add_br("br0", "netdev");
    bed.add_port("br0", "p1", &[], &[]);
    let mut fake = Fake::default();
    let mut planner = Planner::default();
    for (settings, min_tx_ms) in [
        (&[("enable", "true")][..], Some(100)),
        (&[("enable", "TRUE"), ("min_tx", "500")], Some(500)),
        (&[("enable", "false"), ("min_tx", "x")], None),
        (&[], None),
    ] {
        bed.set("Interface", "p1", "bfd", map(settings));
        let desired = bed.desired();
        assert_eq!(messages(&desired), [""; 0]);
        let port = desired.bridges["br0"].ports["p1"].interfaces[0].clone();
        let found = port.links.iter().map(|link| match link {
            l2proto::LinkSettings::Bfd(bfd) => bfd.min_tx_ms,
            other => panic!("{other:?}"),
        });
        assert_eq!(found.collect::<Vec<_>>(), Vec::from_iter(min_tx_ms), "{settings:?}");
        fake.apply(&mut planner, desired);
    }
}

/// Other programs may keep keys in a row: they are listed once for a table, and are no notice of the row.
#[test]
fn unknown_keys_are_listed() {
    let mut bed = Bed::new();
    bed.add_br("br0", "netdev");
    let columns = [("other_config", map(&[("net_uuid", "x"), ("priority-tags", "always")]))];
    bed.add_port("br0", "p1", &columns, &[("options", map(&[("n_rxq", "2"), ("nrxq", "2")]))]);
    bed.add_port(
        "br0",
        "p2",
        &columns,
        &[("type", "vxlan".into()), ("options", map(&[("remote_ip", "192.0.2.1")]))],
    );
    bed.set("Interface", "p2", "external_ids", map(&[("anything", "x")]));
    bed.set("Interface", "p2", "bfd", map(&[("unheard-of", "x")]));
    bed.set("Bridge", "br0", "other_config", map(&[("mac-agng-time", "60")]));
    let desired = bed.desired();
    let keys: Vec<_> =
        desired.unknown_keys.iter().map(|k| (k.table, &*k.row, k.column, &*k.key, k.rows)).collect();
    let expected = [
        ("Bridge", "br0", "other_config", "mac-agng-time", 1),
        ("Interface", "p2", "bfd", "unheard-of", 1),
        ("Interface", "p1", "options", "nrxq", 1),
        ("Port", "p1", "other_config", "net_uuid", 2),
    ];
    let rows: Vec<_> = keys.iter().map(|key| (key.0, key.2, key.3, key.4)).collect();
    assert_eq!(rows, expected.map(|key| (key.0, key.2, key.3, key.4)), "{keys:?}");
    assert_eq!(messages(&desired), [""; 0]);
}

#[test]
fn values_of_another_kind_are_reported() {
    for (table, column, key, value, expected) in [
        (
            "Bridge",
            "other_config",
            "forward-bpdu",
            "yes",
            "other_config:forward-bpdu=\"yes\" is not true or false",
        ),
        ("Port", "other_config", "priority-tags", "no", "is not always, if-nonzero, never or true"),
        (
            "Open_vSwitch",
            "other_config",
            "userspace-tso-enable",
            "false",
            "=false has no effect: segmentation is always",
        ),
        (
            "Interface",
            "options",
            "peer",
            "p9",
            "options:peer has no effect: it is an option of interfaces of type patch",
        ),
        ("Interface", "bfd", "enable", "1", "bfd:enable=\"1\" is not true or false"),
    ] {
        let mut bed = Bed::new();
        bed.add_br("br0", "netdev");
        bed.add_port("br0", "p1", &[], &[]);
        bed.set(table, if table == "Bridge" { "br0" } else { "p1" }, column, map(&[(key, value)]));
        let desired = bed.desired();
        let told = messages(&desired);
        assert!(told.len() == 1 && told[0].contains(expected), "{told:?}");
        assert!(desired.notices.iter().all(|notice| !notice.is_warning), "{told:?}");
    }
}
