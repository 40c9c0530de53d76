mod bridges;
mod conntrack;
mod increments;
mod mirrors;
mod qos;
mod unsupported;

use ofproto::ports::{PriorityTags, VlanMode};
use ofproto::{MacAddr, OfPort};
use ovsdb::client::{ColumnValue, TxnBuilder};
use ovsdb::value::Datum;
use proptest::prelude::*;

use super::*;
use crate::plan::Planner;
use crate::testbed::{Bed, Fake, map};
use dpif::{AutoBalance, CacheSettings, RxqAssign, SleepMax, ThreadPlan};

/// Notices, sorted.
fn messages(desired: &Desired) -> Vec<String> {
    let mut told: Vec<_> =
        desired.notices.iter().map(|n| format!("{} {}: {}", n.table, n.name, n.message)).collect();
    told.sort();
    told
}

fn interface<'d>(desired: &'d Desired, bridge: &str, name: &str) -> &'d InterfaceConfig {
    let ports = desired.bridges[bridge].ports.values();
    ports.flat_map(|port| &port.interfaces).find(|i| i.name == name).expect("there is that interface")
}

#[test]
fn an_empty_database_asks_for_nothing() {
    let mut bed = Bed::new();
    let desired = bed.desired();
    assert_eq!(desired.row, Some(bed.root()));
    assert!(desired.bridges.is_empty() && desired.notices.is_empty());
    assert_eq!(*desired.global, GlobalConfig::default());
}

#[test]
fn a_bridge_as_add_br_makes_it() {
    let mut bed = Bed::new();
    bed.add_br("br0", "netdev");
    let desired = bed.desired();
    let bridge = &desired.bridges["br0"];
    assert_eq!((desired.next_cfg, bridge.datapath_type.as_str()), (1, "netdev"));
    assert_eq!(bridge.options, BridgeOptions::default());
    let local = interface(&desired, "br0", "br0");
    assert_eq!((local.type_name.as_str(), local.row), ("internal", Some(bed.row("Interface", "br0"))));
    assert!(desired.notices.is_empty());
}

#[test]
fn the_own_port_needs_no_row_and_is_internal_whatever_its_row_says() {
    let mut bed = Bed::new();
    let root = bed.root();
    bed.txn(|txn| {
        let bridge = txn.insert("Bridge", [("name", ColumnValue::from("br0"))]);
        txn.mutate("Open_vSwitch", root, "bridges", "insert", bridge);
    });
    let desired = bed.desired();
    assert_eq!(desired.bridges["br0"].ports["br0"].row, None);
    assert_eq!(interface(&desired, "br0", "br0").type_name, "internal");
    bed.add_port("br0", "br0", &[], &[("type", "dummy".into()), ("mac", "00:00:00:00:00:09".into())]);
    let desired = bed.desired();
    assert_eq!(interface(&desired, "br0", "br0").type_name, "internal");
    assert_eq!(interface(&desired, "br0", "br0").mac, None);
    assert_eq!(
        messages(&desired),
        [
            "Interface br0: the address of a bridge's own port is set by the bridge's other_config:hwaddr: mac is ignored"
        ]
    );
}

#[test]
fn global_settings() {
    let mut bed = Bed::new();
    bed.set(
        "Open_vSwitch",
        "",
        "other_config",
        map(&[
            ("bundle-idle-timeout", "3"),
            ("flow-limit", "5000"),
            ("max-idle", "1"),
            ("max-revalidator", "x"),
            ("n-handler-threads", "2"),
            ("min-revalidate-pps", "20"),
            ("n-revalidator-threads", "0"),
            ("pmd-cpu-mask", "0x3F"),
            ("stats-update-interval", "10000"),
            ("userspace-tso-enable", "true"),
            ("vlan-limit", "0"),
        ]),
    );
    let desired = bed.desired();
    let expected = GlobalConfig {
        bundle_idle_s: 3,
        flow_limit: 5000,
        max_idle_ms: 500,
        min_revalidate_pps: 20,
        handler_threads: Some(2),
        threads: ThreadPlan { cores: Some(vec![0, 1, 2, 3, 4, 5]), ..ThreadPlan::default() },
        stats_update_interval_ms: 10_000,
        vlan_limit: 0,
        ..GlobalConfig::default()
    };
    assert_eq!(*desired.global, expected);
    assert_eq!(
        messages(&desired),
        [
            "Open_vSwitch : other_config:max-idle=1 is not from 500 to 4294967295: 500 is used",
            "Open_vSwitch : other_config:max-revalidator=\"x\" is not a number: 500 is used",
            "Open_vSwitch : other_config:n-revalidator-threads=\"0\" is not a number from 1 to 1024: ignored",
        ]
    );
}

/// Numbers that OVS 3.5 accepts.
#[test]
fn vlan_limits() {
    for (text, limit, told) in [
        ("0", 0, ""),
        ("1", 1, ""),
        ("5", 5, ""),
        ("-1", 0, ""),
        ("x", 1, "Open_vSwitch : other_config:vlan-limit=\"x\" is not a number: 1 is used"),
        ("3.5", 1, "Open_vSwitch : other_config:vlan-limit=\"3.5\" is not a number: 1 is used"),
        ("4294967296", 1, "Open_vSwitch : other_config:vlan-limit=\"4294967296\" is not a number: 1 is used"),
    ] {
        let mut bed = Bed::new();
        bed.set("Open_vSwitch", "", "other_config", map(&[("vlan-limit", text)]));
        let desired = bed.desired();
        assert_eq!(
            (desired.global.vlan_limit, messages(&desired).concat()),
            (limit, told.to_string()),
            "{text}"
        );
    }
}

#[test]
fn keys_and_certificates() {
    let mut bed = Bed::new();
    let root = bed.root();
    assert_eq!(bed.desired().global.ssl, None);
    bed.txn(|txn| {
        let columns = [
            ("private_key", ColumnValue::from("/k")),
            ("certificate", "/c".into()),
            ("ca_cert", "/a".into()),
            ("bootstrap_ca_cert", true.into()),
        ];
        let ssl = txn.insert("SSL", columns);
        txn.update("Open_vSwitch", root, [("ssl", ColumnValue::from(ssl))]);
    });
    let [private_key, certificate, ca_cert] = ["/k", "/c", "/a"].map(str::to_string);
    let desired = bed.desired();
    let expected = SslConfig { private_key, certificate, ca_cert, bootstrap_ca_cert: true };
    assert_eq!((desired.global.ssl.as_ref(), messages(&desired)), (Some(&expected), vec![]));
}

/// The plan of these settings, and the notices.
fn threads(settings: &[(&str, &str)]) -> (ThreadPlan, Vec<String>) {
    let mut bed = Bed::new();
    bed.set("Open_vSwitch", "", "other_config", map(settings));
    let desired = bed.desired();
    (desired.global.threads.clone(), messages(&desired))
}

#[test]
fn thread_settings() {
    let (plan, told) = threads(&[
        ("pmd-cpu-mask", "8000000000000000000000000000000A"),
        ("pmd-rxq-assign", "group"),
        ("pmd-rxq-isolate", "false"),
        ("pmd-auto-lb", "true"),
        ("pmd-auto-lb-rebal-interval", "0"),
        ("pmd-auto-lb-load-threshold", "70"),
        ("pmd-auto-lb-improvement-threshold", "10"),
        ("pmd-sleep-max", "50, 3:0,127:10001"),
        ("emc-insert-inv-prob", "0"),
        ("pmd-perf-metrics", "true"),
        ("pmd-fast-wakeup", "False"),
        ("tx-flush-interval", "70"),
    ]);
    let expected = ThreadPlan {
        cores: Some(vec![1, 3, 127]),
        assign: RxqAssign::Group,
        isolate: false,
        balance: AutoBalance {
            enabled: true,
            interval_min: 0,
            load_threshold_percent: 70,
            improvement_threshold_percent: 10,
        },
        fast_wakeup: false,
        flush_us: 70,
        sleep: SleepMax { default_us: 50, by_core: [(3, 0), (127, 10_000)].into() },
        cache: CacheSettings { emc_insert_inv_prob: Some(0), smc_enable: None },
        perf_metrics: true,
    };
    assert_eq!(plan, expected);
    assert_eq!([1, 3, 127].map(|core| plan.sleep.of(core)), [50, 0, 10_000]);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("the most is 10000, which is used"), "{told:?}");
}

#[test]
fn invalid_thread_settings_are_reported_and_leave_the_default() {
    for (key, value, part) in [
        ("pmd-cpu-mask", "0", "names no core"),
        ("pmd-cpu-mask", "0x", "names no core"),
        ("pmd-cpu-mask", "-3", "names no core"),
        ("pmd-rxq-assign", "random", "Defaulting to 'cycles'."),
        ("pmd-rxq-isolate", "false", "can only be set false when using pmd-rxq-assign=group"),
        ("pmd-sleep-max", "x", "ignored"),
        ("pmd-sleep-max", "1:2:3", "ignored"),
        ("pmd-maxsleep", "1:2", "ignored"),
        ("pmd-auto-lb-load-threshold", "x", "95 is used"),
        ("tx-flush-interval", "x", "0 is used"),
    ] {
        let (plan, told) = threads(&[(key, value)]);
        assert_eq!(plan, ThreadPlan::default(), "{key}={value}");
        assert!(told.len() == 1 && told[0].contains(part), "{key}={value}: {told:?}");
    }
    let (plan, _) = threads(&[("pmd-cpu-mask", &"f".repeat(1025))]);
    assert_eq!(plan.cores, None);
}

/// As in OVS 3.5: one number, which the newer setting overrides.
#[test]
fn the_older_name_of_the_longest_sleep_is_read() {
    for (settings, expected, part) in [
        (&[("pmd-maxsleep", "50")][..], 50, Some("an older name")),
        (&[("pmd-maxsleep", "50"), ("pmd-sleep-max", "20")], 20, None),
        (&[("pmd-maxsleep", "99999")], 10_000, Some("the most is 10000")),
    ] {
        let (plan, told) = threads(settings);
        assert_eq!(
            plan.sleep,
            SleepMax { default_us: expected, by_core: Default::default() },
            "{settings:?}"
        );
        assert_eq!(!told.is_empty(), part.is_some(), "{told:?}");
        assert!(part.is_none_or(|part| told[0].contains(part)), "{told:?}");
    }
}

#[test]
fn queues_pinned_to_cores() {
    for (text, expected, notices) in [
        ("0:3,1:7", &[(0, 3), (1, 7)][..], 0),
        (" 2:0 , 0:1,", &[(0, 1), (2, 0)][..], 0),
        ("0:3,1", &[][..], 1),
        ("0:x", &[][..], 1),
    ] {
        let mut bed = Bed::new();
        bed.add_br("br0", "netdev");
        let other_config = map(&[("pmd-rxq-affinity", text)]);
        bed.add_port("br0", "p1", &[], &[("type", "tap".into()), ("other_config", other_config)]);
        let desired = bed.desired();
        assert_eq!(
            interface(&desired, "br0", "p1").rxq_affinity,
            expected.iter().copied().collect(),
            "{text}"
        );
        assert_eq!(desired.notices.len(), notices, "{text}");
    }
}

#[test]
fn vlan_treatment() {
    type Case<'a> = (&'a str, Vec<(&'a str, ColumnValue)>, VlanMode, u16, Vec<u16>, usize);
    let trunks = || ColumnValue::from(Datum::set([7, 8]));
    let cases: Vec<Case<'_>> = vec![
        ("plain", vec![], VlanMode::Trunk, 0, vec![], 0),
        ("tag", vec![("tag", 5.into())], VlanMode::Access, 5, vec![], 0),
        ("trunks", vec![("trunks", trunks())], VlanMode::Trunk, 0, vec![7, 8], 0),
        ("tag and trunks", vec![("tag", 5.into()), ("trunks", trunks())], VlanMode::Access, 5, vec![], 1),
        (
            "native",
            vec![("tag", 5.into()), ("trunks", trunks()), ("vlan_mode", "native-untagged".into())],
            VlanMode::NativeUntagged,
            5,
            vec![7, 8],
            0,
        ),
        ("native tagged", vec![("vlan_mode", "native-tagged".into())], VlanMode::NativeTagged, 0, vec![], 0),
        ("access", vec![("vlan_mode", "access".into())], VlanMode::Access, 0, vec![], 0),
        (
            "tunnel",
            vec![("tag", 5.into()), ("trunks", trunks()), ("vlan_mode", "dot1q-tunnel".into())],
            VlanMode::Dot1qTunnel,
            5,
            vec![],
            1,
        ),
        ("customers of none", vec![("cvlans", trunks())], VlanMode::Trunk, 0, vec![], 1),
        (
            "trunk with tag",
            vec![("vlan_mode", "trunk".into()), ("tag", 5.into())],
            VlanMode::Trunk,
            0,
            vec![],
            1,
        ),
    ];
    for (what, columns, mode, tag, trunks, notices) in cases {
        let mut bed = Bed::new();
        bed.add_br("br0", "netdev");
        bed.add_port("br0", "p1", &columns, &[]);
        let desired = bed.desired();
        let port = &desired.bridges["br0"].ports["p1"];
        assert_eq!((port.vlan_mode, port.tag, &port.trunks), (mode, tag, &trunks), "{what}");
        assert_eq!(desired.notices.len(), notices, "{what}");
    }
}

#[test]
fn ports_and_interfaces() {
    let mut bed = Bed::new();
    bed.add_br("br0", "netdev");
    bed.add_port(
        "br0",
        "p1",
        &[("protected", true.into()), ("other_config", map(&[("priority-tags", "true")]))],
        &[("ofport_request", 9.into()), ("mtu_request", 2000.into()), ("ofport", 4.into())],
    );
    bed.add_port("br0", "i1", &[], &[("type", "internal".into()), ("mac", "02:00:00:00:00:07".into())]);
    bed.add_port("br0", "p2", &[], &[("mac", "02:00:00:00:00:07".into()), ("ofport", (-1).into())]);
    let desired = bed.desired();
    let port = &desired.bridges["br0"].ports["p1"];
    assert!(port.protected && port.priority_tags == PriorityTags::IfNonzero);
    let p1 = interface(&desired, "br0", "p1");
    assert_eq!(
        (p1.type_name.as_str(), p1.ofport_request, p1.ofport, p1.mtu_request),
        ("system", Some(OfPort(9)), Some(OfPort(4)), Some(2000))
    );
    assert_eq!(interface(&desired, "br0", "i1").mac, Some(MacAddr([2, 0, 0, 0, 0, 7])));
    assert_eq!((interface(&desired, "br0", "p2").mac, interface(&desired, "br0", "p2").ofport), (None, None));
    assert_eq!(
        messages(&desired),
        ["Interface p2: only internal interfaces can be given an address: mac is ignored"]
    );
}

#[test]
fn interfaces_that_cannot_be_served_have_an_error() {
    let cases: &[(&str, &str, &[(&str, &str)], Option<&str>)] = &[
        ("p1", "", &[], None),
        ("t1", "tap", &[], None),
        ("a-patch-with-a-long-name", "patch", &[("peer", "x")], None),
        ("a-dummy-with-a-long-name", "dummy", &[], None),
        ("0123456789abcde", "", &[], None),
        (
            "0123456789abcdef",
            "",
            &[],
            Some("could not open network device 0123456789abcdef (the name has 16 bytes, the most is 15)"),
        ),
        (
            "a/b",
            "internal",
            &[],
            Some("could not open network device a/b (the name is not one that a device can have)"),
        ),
        (
            "..",
            "",
            &[],
            Some("could not open network device .. (the name is not one that a device can have)"),
        ),
        ("", "", &[], Some("could not open network device  (the name is empty)")),
        ("ovs-netdev", "", &[], Some("could not open network device ovs-netdev (the name is reserved)")),
        ("g1", "geneve", &[], Some("g1: geneve type requires valid 'remote_ip' argument")),
        (
            "g1",
            "bogus",
            &[],
            Some("could not open network device g1 (Address family not supported by protocol)"),
        ),
        (
            "u1",
            "bareudp",
            &[("remote_ip", "192.0.2.1")],
            Some("could not open network device u1 (neither datapath has bareudp tunnels)"),
        ),
        (
            "s1",
            "stt",
            &[("remote_ip", "192.0.2.1")],
            Some(
                "could not open network device s1 (neither datapath has STT tunnels, which needed a kernel module that OVS removed)",
            ),
        ),
        (
            "l1",
            "lisp",
            &[("remote_ip", "192.0.2.1")],
            Some(
                "could not open network device l1 (neither datapath has LISP tunnels, which needed a kernel module that OVS removed)",
            ),
        ),
        (
            "v1",
            "vxlan",
            &[("remote_ip", "192.0.2.1"), ("local_ip", "flow")],
            Some("v1: vxlan type requires 'remote_ip=flow' with 'local_ip=flow'"),
        ),
        ("pa", "patch", &[], Some("pa: patch type requires valid 'peer' argument")),
        ("pa", "patch", &[("peer", "pa")], Some("pa: patch peer must not be self")),
    ];
    for (name, type_name, options, error) in cases {
        let mut bed = Bed::new();
        bed.add_br("br0", "netdev");
        bed.add_port("br0", name, &[], &[("type", (*type_name).into()), ("options", map(options))]);
        let desired = bed.desired();
        let refused = desired.refused.get(&bed.row("Interface", name)).map(String::as_str);
        assert_eq!(refused, *error);
        let served = !desired.bridges["br0"].ports[*name].interfaces.is_empty();
        assert_eq!(served, error.is_none(), "{name}");
        assert_eq!(desired.notices.len(), usize::from(error.is_some()), "{name}");
    }
}

#[test]
fn a_number_of_receive_queues_is_a_number() {
    for (type_name, n_rxq, sound) in [
        ("", "4", true),
        ("dummy", "0", true),
        ("", "abc", false),
        ("tap", "-1", false),
        ("internal", "", false),
        ("dummy-pmd", "2x", false),
        ("afxdp", "99999999999", false),
    ] {
        let mut bed = Bed::new();
        bed.add_br("br0", "netdev");
        let columns = [("type", type_name.into()), ("options", map(&[("n_rxq", n_rxq)]))];
        bed.add_port("br0", "p1", &[], &columns);
        let error = format!(
            "could not set configuration of p1 (options:n_rxq={n_rxq:?} is not a number of receive queues)"
        );
        let refused = bed.desired().refused.get(&bed.row("Interface", "p1")).cloned();
        assert_eq!(refused, (!sound).then_some(error), "{type_name} {n_rxq:?}");
    }
}

#[test]
fn bridges_that_cannot_be_served() {
    for (name, datapath_type, error) in [
        ("br0", "bogus", "could not create bridge br0: unknown datapath type \"bogus\""),
        ("a/b", "netdev", "could not create bridge \"a/b\": the name is not one that a device can have"),
        (
            "0123456789abcdef",
            "netdev",
            "could not create bridge \"0123456789abcdef\": the name has 16 bytes, the most is 15",
        ),
    ] {
        let mut bed = Bed::new();
        bed.add_br(name, datapath_type);
        let desired = bed.desired();
        assert!(desired.bridges.is_empty());
        assert_eq!(desired.refused[&bed.row("Interface", name)], error);
        assert_eq!(messages(&desired), [format!("Bridge {name}: {error}")]);
    }
    let mut bed = Bed::new();
    bed.add_br("0123456789abcdef", "dummy");
    assert_eq!(bed.desired().bridges.len(), 1, "no device of the kernel has this name");
}

#[test]
fn a_bond_has_all_usable_interfaces_and_its_settings() {
    use ofproto::bond::{BondMode, BondSettings};
    let mut bed = Bed::new();
    bed.add_br("br0", "netdev");
    let bogus: &[(&str, ColumnValue)] = &[("type", "bogus".into())];
    let other = [
        ("bond-rebalance-interval", "500"),
        ("bond-hash-basis", "7"),
        ("bond-primary", "p9"),
        ("all-slaves-active", "true"),
        ("lb-output-action", "true"),
        ("bond-detect-mode", "miimon"),
    ];
    let columns = [
        ("bond_mode", "balance-slb".into()),
        ("bond_updelay", 30.into()),
        ("bond_downdelay", (-1).into()),
        ("bond_active_slave", "02:00:00:00:00:09".into()),
        ("other_config", ovsdb::value::Datum::map(other).into()),
    ];
    bed.add_bond("br0", "bond0", &columns, &[("p10", &[]), ("p9", &[]), ("p1", bogus)]);
    bed.add_bond("br0", "bond1", &[], &[("p2", &[]), ("p3", &[])]);
    let desired = bed.desired();
    let ports = &desired.bridges["br0"].ports;
    let names: Vec<_> = ports["bond0"].interfaces.iter().map(|i| i.name.as_str()).collect();
    assert_eq!(names, ["p9", "p10"]);
    let expected = BondSettings {
        mode: BondMode::BalanceSlb,
        updelay_ms: 30,
        downdelay_ms: 0,
        basis: 7,
        rebalance_ms: 1000,
        fallback_ab: false,
        primary: Some("p9".into()),
        all_members_active: true,
        lb_output: true,
        lacp: false,
        polls: true,
        poll_ms: 200,
        active_mac: Some(MacAddr([2, 0, 0, 0, 0, 9])),
    };
    assert_eq!(ports["bond0"].bond, expected);
    assert_eq!(
        ports["bond1"].bond,
        BondSettings { rebalance_ms: 10_000, poll_ms: 200, ..BondSettings::default() }
    );
    let expected =
        ["Interface p1: could not open network device p1 (Address family not supported by protocol)"];
    assert_eq!(messages(&desired), expected);
}

#[test]
fn one_row_in_two_places_belongs_to_the_first() {
    let mut bed = Bed::new();
    bed.add_br("br0", "netdev");
    bed.add_br("br1", "netdev");
    bed.add_port("br0", "p1", &[], &[]);
    let (bridge, port, interface) =
        (bed.row("Bridge", "br1"), bed.row("Port", "p1"), bed.row("Interface", "p1"));
    bed.txn(|txn| {
        txn.mutate("Bridge", bridge, "ports", "insert", port);
        let other = txn.insert("Port", [("name", ColumnValue::from("p2")), ("interfaces", interface.into())]);
        txn.mutate("Bridge", bridge, "ports", "insert", other);
    });
    let desired = bed.desired();
    assert_eq!(desired.bridges["br0"].ports["p1"].interfaces.len(), 1);
    assert!(!desired.bridges["br1"].ports.contains_key("p1"));
    assert!(desired.bridges["br1"].ports["p2"].interfaces.is_empty());
    assert_eq!(
        messages(&desired),
        [
            "Port p1: port p1 is already in bridge br0: bridge br1 goes without it",
            "Port p2: interface p1 is already in port p1: port p2 goes without it"
        ]
    );
    assert!(desired.refused.is_empty(), "the row works, in its first place");
}

#[test]
fn a_port_cannot_have_the_name_of_another_bridge() {
    let mut bed = Bed::new();
    bed.add_br("br0", "netdev");
    let root = bed.root();
    bed.txn(|txn| {
        let bridge =
            txn.insert("Bridge", [("name", ColumnValue::from("br1")), ("datapath_type", "netdev".into())]);
        txn.mutate("Open_vSwitch", root, "bridges", "insert", bridge);
    });
    bed.add_port("br0", "br1", &[], &[("type", "internal".into())]);
    let desired = bed.desired();
    assert!(desired.bridges["br0"].ports["br1"].interfaces.is_empty());
    assert_eq!(interface(&desired, "br1", "br1").row, None);
    assert_eq!(
        desired.refused[&bed.row("Interface", "br1")],
        "br1 is the name of a bridge, whose own port has it"
    );
}

#[test]
fn names_in_natural_order() {
    let mut names = ["p10", "p2", "p", "p02", "q1", "p2a", "p1", "10", "9", "p2"];
    names.sort_by(|a, b| natural_order(a, b));
    assert_eq!(names, ["9", "10", "p", "p1", "p02", "p2", "p2", "p2a", "p10", "q1"]);
}

#[test]
fn what_the_switch_writes_itself_is_no_reason_to_look_again() {
    let mut bed = Bed::new();
    bed.add_br("br0", "netdev");
    bed.add_port("br0", "p1", &[], &[]);
    let cases: Vec<(&str, &str, &str, ColumnValue, bool)> = vec![
        ("Interface", "p1", "ofport", 3.into(), false),
        ("Interface", "p1", "error", "no".into(), false),
        ("Interface", "p1", "statistics", Datum::map([("rx_packets", 3)]).into(), false),
        ("Interface", "p1", "external_ids", map(&[("iface-id", "x")]), false),
        ("Interface", "p1", "options", map(&[("n_rxq", "2")]), true),
        ("Port", "p1", "tag", 3.into(), true),
        ("Bridge", "br0", "datapath_id", "0000000000000001".into(), false),
        ("Bridge", "br0", "fail_mode", "secure".into(), true),
        ("Open_vSwitch", "", "cur_cfg", 3.into(), false),
        ("Open_vSwitch", "", "next_cfg", 3.into(), true),
        ("Open_vSwitch", "", "external_ids", map(&[("system-id", "x")]), false),
    ];
    bed.take_changes();
    for (table, name, column, value, expected) in cases {
        let before = bed.desired();
        bed.set(table, name, column, value);
        let changes = bed.take_changes();
        assert_eq!(changes.len(), 1);
        assert_eq!(Parsed::default().changed(bed.replica(), &changes), expected, "{table}.{column}");
        // Only a number from before a restart is ignored: it is read when an interface is new.
        let after = bed.desired();
        assert_eq!(before != after, expected || column == "ofport", "{table}.{column}");
        let differs = before.translated().digest() != after.translated().digest();
        assert_eq!(differs, expected && column != "next_cfg", "{table}.{column}");
    }
    bed.del_port("br0", "p1");
    let changes = bed.take_changes();
    assert!(Parsed::default().changed(bed.replica(), &changes));
    let root = bed.root();
    bed.txn(|txn| {
        let manager = txn.insert("Manager", [("target", ColumnValue::from("ptcp:6640"))]);
        txn.update("Open_vSwitch", root, [("manager_options", ColumnValue::from(manager))]);
    });
    let changes = bed.take_changes();
    assert!(Parsed::default().changed(bed.replica(), &changes));
    let manager = bed.replica().rows("Manager").next().unwrap().uuid();
    bed.txn(|txn| txn.update("Manager", manager, [("is_connected", ColumnValue::from(true))]));
    let changes = bed.take_changes();
    assert!(!changes.is_empty() && !Parsed::default().changed(bed.replica(), &changes));
}

/// Near misses of valid texts, and others.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("br0".to_string()),
        "[0-9]{1,25}",
        "-?[0-9]{1,3}",
        "(0x)?[0-9a-fA-F]{15,17}",
        "([0-9a-f]{2}:){5}[0-9a-f]{2}",
        "(true|patch|system|internal|netdev|always|secure)",
        "[a-z0-9./ _-]{1,18}",
        "[^\0]{0,20}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]
    #[test]
    fn no_text_in_the_database_does_harm(texts in proptest::collection::vec(text(), 16), number in any::<i64>()) {
        let mut bed = Bed::new();
        bed.add_br("br0", "netdev");
        let (root, bridge) = (bed.root(), bed.row("Bridge", "br0"));
        let settings = |keys: &[&str]| {
            Datum::map(keys.iter().copied().zip(texts.iter().skip(4).map(String::as_str)))
        };
        let mut txn = TxnBuilder::new();
        let interface = txn.insert("Interface", [
            ("name", ColumnValue::from(texts[0].clone())),
            ("type", texts[1].clone().into()),
            ("mac", texts[2].clone().into()),
            ("ofport", number.into()),
            ("options", settings(&["peer", "x"]).into()),
        ]);
        let port = txn.insert("Port", [
            ("name", ColumnValue::from(texts[0].clone())),
            ("interfaces", interface.into()),
            ("other_config", settings(&["priority-tags"]).into()),
            ("mac", texts[2].clone().into()),
        ]);
        txn.mutate("Bridge", bridge, "ports", "insert", port);
        let controller = txn.insert("Controller", [("target", texts[3].clone())]
            .map(|(name, text)| (name, ColumnValue::from(text))));
        let of_bridge = ["datapath-id", "hwaddr", "mac-aging-time", "mac-table-size", "in-band-queue", "dp-desc"];
        txn.update("Bridge", bridge, [
            ("other_config", ColumnValue::from(settings(&of_bridge))),
            ("controller", controller.into()),
        ]);
        let of_switch = ["flow-limit", "max-idle", "n-handler-threads", "pmd-cpu-mask", "vlan-limit"];
        txn.update("Open_vSwitch", root, [("other_config", ColumnValue::from(settings(&of_switch)))]);
        let made = matches!(bed.commit(txn), ovsdb::client::TxnOutcome::Success { .. });
        prop_assert_eq!(made, texts[0] != "br0", "only that name is taken");
        let (mut planner, mut fake) = (Planner::default(), Fake::default());
        fake.apply(&mut planner, bed.desired());
        let mut writeback = crate::Writeback::new(None);
        if let Some(txn) = writeback.next(bed.replica(), &planner.facts(), 0) {
            let outcome = bed.commit(txn);
            prop_assert!(matches!(outcome, ovsdb::client::TxnOutcome::Success { .. }), "{outcome:?}");
        }
    }

    #[test]
    fn natural_order_is_an_order(mut names in proptest::collection::vec("[a0-2]{0,5}", 3)) {
        names.sort();
        names.sort_by(|a, b| natural_order(a, b));
        for (a, b) in [(0, 1), (1, 2), (0, 2)] {
            prop_assert!(natural_order(&names[a], &names[b]).is_le());
            prop_assert_eq!(natural_order(&names[a], &names[b]), natural_order(&names[b], &names[a]).reverse());
        }
    }
}
