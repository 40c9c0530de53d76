//! Mirrors: their rows, faults, and places.

use super::*;
use ofproto::mirror::MirrorOutput;

/// Two bridges with ports.
fn bed() -> Bed {
    let mut bed = Bed::new();
    for (bridge, ports) in [("br0", ["p1", "p2"]), ("br1", ["q1", "q2"])] {
        bed.add_br(bridge, "netdev");
        ports.iter().for_each(|port| bed.add_port(bridge, port, &[], &[]));
    }
    bed
}

/// Adds a mirror to `br0`; columns with the names of ports refer to them.
fn add(bed: &mut Bed, name: &str, refs: &[(&'static str, &[&str])], columns: &[(&'static str, ColumnValue)]) {
    let bridge = bed.row("Bridge", "br0");
    let refs: Vec<_> = refs
        .iter()
        .map(|(column, ports)| (*column, ColumnValue::refs(ports.iter().map(|port| bed.row("Port", port)))))
        .collect();
    bed.txn(|txn| {
        let all = [("name", ColumnValue::from(name))].into_iter().chain(refs).chain(columns.iter().cloned());
        let mirror = txn.insert("Mirror", all);
        txn.mutate("Bridge", bridge, "mirrors", "insert", mirror);
    });
}

/// Columns that refer to ports, other columns, mirrors that remain, and the message.
type Case =
    (Vec<(&'static str, &'static [&'static str])>, Vec<(&'static str, ColumnValue)>, usize, &'static str);

/// The messages are those that OVS 3.5 logs.
#[test]
fn faulty_mirrors_are_left_out_and_told() {
    let to_p2: (&str, &'static [&str]) = ("output_port", &["p2"]);
    let cases: Vec<Case> = vec![
        (vec![to_p2], vec![], 1, ""),
        (vec![], vec![("output_vlan", 7.into())], 1, ""),
        (vec![], vec![], 0, "mirror m does not specify output; ignoring"),
        (vec![("output_port", &["q1"])], vec![], 0, "mirror m outputs to port not on bridge"),
        (
            vec![to_p2],
            vec![("output_vlan", 7.into())],
            1,
            "mirror m specifies both output port and output vlan; ignoring output vlan",
        ),
        (
            vec![to_p2, ("select_src_port", &["p1", "q1"])],
            vec![],
            1,
            "mirror m cannot match on nonexistent port q1",
        ),
        (
            vec![to_p2],
            vec![("filter", "foo=1".into())],
            0,
            "mirror m: filter is invalid: foo=1: unknown field foo",
        ),
        (
            vec![to_p2],
            vec![("filter", "in_port=1".into())],
            0,
            "mirror m: filter is invalid due to in_port field.",
        ),
    ];
    for (refs, columns, count, fault) in cases {
        let mut bed = bed();
        add(&mut bed, "m", &refs, &columns);
        let desired = bed.desired();
        let expected: Vec<String> =
            Some(fault).filter(|f| !f.is_empty()).map(|f| format!("Bridge br0: {f}")).into_iter().collect();
        assert_eq!((desired.bridges["br0"].mirrors.len(), messages(&desired)), (count, expected));
    }
    let mut bed = bed();
    (0..33).for_each(|n| add(&mut bed, &format!("m{n}"), &[], &[("output_vlan", 7.into())]));
    let told = messages(&bed.desired());
    assert!(told.len() == 1 && told[0].contains("maximum of 32 port mirrors reached"), "{told:?}");
}

/// The output port of a mirror leaves the tree, and comes back with the end of the mirror.
#[test]
fn output_ports_are_outside_of_trees() {
    let mut bed = bed();
    let bridge = bed.row("Bridge", "br0");
    bed.txn(|txn| txn.update("Bridge", bridge, [("rstp_enable", ColumnValue::from(true))]));
    let links = |bed: &mut Bed| {
        let desired = bed.desired();
        let ports = &desired.bridges["br0"].ports;
        ["p1", "p2"].map(|name| format!("{:?}", ports[name].interfaces[0].links))
    };
    let before = links(&mut bed);
    assert_eq!(before[0], before[1]);
    add(&mut bed, "m", &[("output_port", &["p2"])], &[("select_all", true.into())]);
    let during = links(&mut bed);
    assert_eq!(during[0], before[0]);
    assert!(during[1].contains("Refused(Mirror)"), "{}", during[1]);
    let mirror = bed.row("Mirror", "m");
    bed.txn(|txn| txn.mutate("Bridge", bridge, "mirrors", "delete", mirror));
    assert_eq!(links(&mut bed), before);
}

#[test]
fn a_mirror_keeps_its_place_and_follows_its_port() {
    let mut bed = bed();
    let (mut planner, mut fake) = (Planner::default(), Fake::default());
    let mut mirrors = |bed: &mut Bed| {
        fake.apply(&mut planner, bed.desired());
        let mirrors = &fake.bridge("br0").ports.mirrors;
        let mut shown: Vec<_> = mirrors.iter().map(|m| (m.name.clone(), m.place, m.id)).collect();
        shown.sort();
        let to_ports = mirrors.iter().filter(|m| matches!(m.output, MirrorOutput::Bundle(_))).count();
        (shown, to_ports)
    };
    let named = |all: &[(&str, u8, u32)]| {
        all.iter().map(|(name, place, id)| (name.to_string(), *place, *id)).collect::<Vec<_>>()
    };
    add(&mut bed, "a", &[("output_port", &["p2"])], &[("select_all", true.into())]);
    assert_eq!(mirrors(&mut bed), (named(&[("a", 0, 0)]), 1));
    add(&mut bed, "b", &[], &[("output_vlan", 7.into())]);
    add(&mut bed, "c", &[], &[("output_vlan", 8.into())]);
    mirrors(&mut bed);
    let (bridge, gone) = (bed.row("Bridge", "br0"), bed.row("Mirror", "a"));
    bed.txn(|txn| txn.mutate("Bridge", bridge, "mirrors", "delete", gone));
    let left = mirrors(&mut bed);
    assert_eq!((left.0.len(), left.1), (2, 0));
    assert!(left.0.iter().all(|(_, place, _)| *place != 0));
    // The place is free again, and the number is not.
    add(&mut bed, "d", &[("output_port", &["p1"])], &[]);
    let now = mirrors(&mut bed);
    assert!(now.0.contains(&("d".to_string(), 0, 3)), "{now:?}");
}
