//! A reading of changed ports alone finds what a reading of all rows finds ([`Bed::desired`] compares them).

use super::*;
use ovsdb::client::TxnOutcome;

#[derive(Clone, Debug)]
enum Op {
    Add {
        bridge: u8,
        port: u8,
        type_name: &'static str,
        tag: Option<i64>,
    },
    Remove(u8),
    /// To another bridge, or into both.
    Move {
        port: u8,
        bridge: u8,
        stays: bool,
    },
    /// An interface of one port joins another, or moves there.
    Share {
        from: u8,
        to: u8,
        stays: bool,
    },
    Port(u8, &'static str, ColumnValue),
    Interface(u8, &'static str, ColumnValue),
    Bridge(u8, Option<bool>),
    Mirror(u8, bool),
    Request,
    /// No reading after the last transaction.
    Later,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let types = prop_oneof![6 => Just(""), 1 => Just("internal"), 1 => Just("unknown"), 1 => Just("patch")];
    let of_port = prop_oneof![
        Just(("tag", ColumnValue::from(7))),
        Just(("trunks", ColumnValue::from(Datum::set([3, 4])))),
        Just(("bond_fake_iface", ColumnValue::from(true))),
        Just(("bond_fake_iface", ColumnValue::from(false))),
        Just(("other_config", map(&[("no-such-key", "1")]))),
        Just(("other_config", map(&[]))),
    ];
    let of_interface = prop_oneof![
        Just(("ofport", ColumnValue::from(9))),
        Just(("type", ColumnValue::from("unknown"))),
        Just(("type", ColumnValue::from(""))),
        Just(("options", map(&[("n_rxq", "2")]))),
        Just(("options", map(&[("no-such-option", "2")]))),
        Just(("ofport_request", ColumnValue::from(5))),
        Just(("mtu_request", ColumnValue::from(1400))),
    ];
    // Names of the last numbers are those of bridges.
    let op = prop_oneof![
        8 => (0..3u8, 0..8u8, types, proptest::option::of(0..3i64))
            .prop_map(|(bridge, port, type_name, tag)| Op::Add { bridge, port, type_name, tag }),
        3 => (0..8u8).prop_map(Op::Remove),
        1 => (0..8u8, 0..3u8, any::<bool>()).prop_map(|(port, bridge, stays)| Op::Move { port, bridge, stays }),
        1 => (0..8u8, 0..8u8, any::<bool>()).prop_map(|(from, to, stays)| Op::Share { from, to, stays }),
        3 => (0..8u8, of_port).prop_map(|(port, (column, value))| Op::Port(port, column, value)),
        4 => (0..8u8, of_interface).prop_map(|(port, (column, value))| Op::Interface(port, column, value)),
        1 => (0..3u8, proptest::option::of(any::<bool>())).prop_map(|(n, op)| Op::Bridge(n, op)),
        1 => (0..8u8, any::<bool>()).prop_map(|(port, stays)| Op::Mirror(port, stays)),
        1 => Just(Op::Request),
        4 => Just(Op::Later),
    ];
    proptest::collection::vec(op, 1..50)
}

fn bridge_name(n: u8) -> String {
    format!("br{}", n % 3)
}

fn port_name(n: u8) -> String {
    if n < 6 { format!("p{n}") } else { bridge_name(n - 5) }
}

/// The row of that name, if there is one.
fn row(bed: &Bed, table: &str, name: &str) -> Option<Uuid> {
    bed.replica().rows(table).find(|row| row.str("name") == name).map(|row| row.uuid())
}

/// The bridges that have a port.
fn homes(bed: &Bed, port: Uuid) -> Vec<Uuid> {
    let has = |row: &ovsdb::client::RowView<'_>| row.uuid_set("ports").contains(&port);
    bed.replica().rows("Bridge").filter(has).map(|row| row.uuid()).collect()
}

/// The transaction of a step; `None`: there is nothing to change.
fn transaction(bed: &Bed, op: &Op) -> Option<TxnBuilder> {
    let mut txn = TxnBuilder::new();
    let port = |n: u8| row(bed, "Port", &port_name(n));
    match op {
        Op::Add { bridge, port, type_name, tag } => {
            let bridge = row(bed, "Bridge", &bridge_name(*bridge))?;
            let name = || ("name", ColumnValue::from(port_name(*port)));
            let interface = txn.insert("Interface", [name(), ("type", (*type_name).into())]);
            let tag = tag.map(|tag| ("tag", ColumnValue::from(tag)));
            let port = txn.insert("Port", [name(), ("interfaces", interface.into())].into_iter().chain(tag));
            txn.mutate("Bridge", bridge, "ports", "insert", port);
        }
        Op::Remove(n) => {
            let port = port(*n)?;
            homes(bed, port).into_iter().for_each(|b| txn.mutate("Bridge", b, "ports", "delete", port));
        }
        Op::Move { port: n, bridge, stays } => {
            let (port, bridge) = (port(*n)?, row(bed, "Bridge", &bridge_name(*bridge))?);
            for home in homes(bed, port).into_iter().filter(|home| *home != bridge && !stays) {
                txn.mutate("Bridge", home, "ports", "delete", port);
            }
            txn.mutate("Bridge", bridge, "ports", "insert", port);
        }
        Op::Share { from, to, stays } => {
            let (from, to) = (port(*from)?, port(*to)?);
            let interface = bed.replica().row("Port", from)?.uuid_set("interfaces").into_iter().next()?;
            txn.mutate("Port", to, "interfaces", "insert", interface);
            if !stays && from != to {
                txn.mutate("Port", from, "interfaces", "delete", interface);
            }
        }
        Op::Port(n, column, value) => txn.update("Port", port(*n)?, [(*column, value.clone())]),
        Op::Interface(n, column, value) => {
            let interface = row(bed, "Interface", &port_name(*n))?;
            txn.update("Interface", interface, [(*column, value.clone())]);
        }
        Op::Bridge(n, Some(secure)) => {
            let mode = if *secure { "secure" } else { "standalone" };
            txn.update("Bridge", row(bed, "Bridge", &bridge_name(*n))?, [("fail_mode", mode.into())]);
        }
        Op::Bridge(n, None) => match row(bed, "Bridge", &bridge_name(*n)) {
            Some(bridge) => txn.mutate("Open_vSwitch", bed.root(), "bridges", "delete", bridge),
            None => {
                let bridge = txn.insert("Bridge", [("name", ColumnValue::from(bridge_name(*n)))]);
                txn.mutate("Open_vSwitch", bed.root(), "bridges", "insert", bridge);
            }
        },
        Op::Mirror(n, true) => {
            let bridge = homes(bed, port(*n)?).first().copied()?;
            let name = ("name", ColumnValue::from("m"));
            let mirror = txn.insert("Mirror", [name, ("select_src_port", port(*n)?.into())]);
            txn.update("Bridge", bridge, [("mirrors", ColumnValue::from(mirror))]);
        }
        Op::Mirror(_, false) => {
            for bridge in bed.replica().rows("Bridge") {
                txn.update("Bridge", bridge.uuid(), [("mirrors", ColumnValue::from(Datum::set([""; 0])))]);
            }
        }
        Op::Request => txn.mutate("Open_vSwitch", bed.root(), "next_cfg", "+=", 1),
        Op::Later => return None,
    }
    Some(txn)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn changed_ports_read_alone_are_as_all_read_anew(ops in ops()) {
        let (mut bed, mut planner, mut fake) = (Bed::new(), Planner::default(), Fake::default());
        bed.add_br("br0", "netdev");
        bed.add_br("br1", "dummy");
        bed.desired();
        for (n, op) in ops.iter().enumerate() {
            let Some(txn) = transaction(&bed, op) else { continue };
            let is_done = matches!(bed.commit(txn), TxnOutcome::Success { .. });
            bed.take_changes();
            if is_done && !matches!(ops.get(n + 1), Some(Op::Later)) {
                let desired = bed.desired();
                if desired.bridges.values().flat_map(|b| b.ports.values()).all(|port| port.bond_interface.is_none()) {
                    fake.apply(&mut planner, desired);
                }
            }
        }
    }
}

#[test]
fn an_interface_that_two_ports_had_is_followed() {
    let mut bed = Bed::new();
    bed.add_br("br0", "netdev");
    bed.add_port("br0", "p1", &[], &[]);
    bed.desired();
    bed.add_port("br0", "p0", &[], &[]);
    bed.desired();
    let (shared, from, to) = (bed.row("Interface", "p0"), bed.row("Port", "p0"), bed.row("Port", "p1"));
    bed.txn(|txn| txn.mutate("Port", to, "interfaces", "insert", shared));
    bed.desired();
    let bridge = bed.row("Bridge", "br0");
    bed.txn(|txn| txn.mutate("Bridge", bridge, "ports", "delete", from));
    bed.desired();
    bed.set("Interface", "p0", "options", map(&[("n_rxq", "2")]));
    bed.desired();
}

/// The settings of the switch are read with all rows alone.
fn is_increment(before: &Desired, after: &Desired) -> bool {
    Arc::ptr_eq(&before.global, &after.global)
}

#[test]
fn a_port_among_others_is_read_alone() {
    let mut bed = Bed::new();
    bed.add_br("br0", "netdev");
    bed.add_port("br0", "p1", &[], &[]);
    let first = bed.desired();
    bed.add_port("br0", "p2", &[], &[]);
    let second = bed.desired();
    assert!(is_increment(&first, &second) && second.bridges["br0"].ports.len() == 3);
    let kept = |name: &str, a: &Desired, b: &Desired| {
        Arc::ptr_eq(&a.bridges["br0"].ports[name], &b.bridges["br0"].ports[name])
    };
    assert!(kept("p1", &first, &second));
    // The switch writes the number: the next reading takes it over.
    bed.set("Interface", "p2", "ofport", 2);
    bed.set("Open_vSwitch", "", "next_cfg", 7);
    let third = bed.desired();
    assert!(is_increment(&second, &third) && third.next_cfg == 7 && !kept("p2", &second, &third));
    bed.del_port("br0", "p2");
    let fourth = bed.desired();
    assert!(is_increment(&third, &fourth) && fourth.bridges["br0"].ports.len() == 2);
    // A notice is among those of all rows.
    bed.add_port("br0", "p3", &[("trunks", 5.into()), ("tag", 5.into())], &[]);
    let fifth = bed.desired();
    assert!(!is_increment(&fourth, &fifth) && !fifth.notices.is_empty());
    bed.add_port("br0", "p4", &[], &[]);
    let sixth = bed.desired();
    assert!(is_increment(&fifth, &sixth) && sixth.notices == fifth.notices);
    bed.set("Bridge", "br0", "fail_mode", "secure");
    assert!(!is_increment(&sixth, &bed.desired()));
}

/// A port in two bridges belongs to the first by name, also if it was in the other before: its datapath is that of the first.
#[test]
fn a_port_that_joins_another_bridge_is_read_for_that() {
    let mut bed = Bed::new();
    bed.add_br("br0", "netdev");
    bed.add_br("br1", "dummy");
    bed.add_port("br1", "p1", &[], &[("type", "internal".into())]);
    bed.desired();
    let (port, bridge) = (bed.row("Port", "p1"), bed.row("Bridge", "br0"));
    bed.txn(|txn| txn.mutate("Bridge", bridge, "ports", "insert", port));
    assert!(bed.desired().bridges["br0"].ports.contains_key("p1"));
}
