//! Configuration by rows of `Bridge` and its controllers.

use super::*;
use ofproto::tables::{TableSettings, eviction_field};

#[test]
fn bridge_settings() {
    let mut bed = Bed::new();
    bed.add_br("br0", "dummy");
    let row = bed.row("Bridge", "br0");
    bed.txn(|txn| {
        let columns = [
            ("name", ColumnValue::from("first")),
            ("flow_limit", 10.into()),
            ("overflow_policy", "evict".into()),
            ("groups", Datum::set(["NXM_OF_IN_PORT[]", "nothing[]"]).into()),
        ];
        let table = txn.insert("Flow_Table", columns);
        let other_config = map(&[
            ("datapath-id", "00000000000000ab"),
            ("hwaddr", "00:00:00:00:00:05"),
            ("mac-aging-time", "60"),
            ("mac-table-size", "9"),
            ("forward-bpdu", "true"),
            ("disable-in-band", "true"),
            ("dp-desc", "a switch"),
            ("dp-sn", "12"),
        ]);
        let columns = [
            ("fail_mode", "secure".into()),
            ("protocols", Datum::set(["OpenFlow13", "OpenFlow10"]).into()),
            ("flow_tables", ColumnValue::ref_map([(3, table)])),
            ("other_config", other_config),
        ];
        txn.update("Bridge", row, columns);
    });
    let desired = bed.desired();
    let table = FlowTableConfig {
        settings: TableSettings {
            name: "first".into(),
            limit: Some(10),
            evict: true,
            groups: vec![eviction_field("NXM_OF_IN_PORT[]").unwrap()],
        },
        ..FlowTableConfig::default()
    };
    let expected = BridgeOptions {
        datapath_id: Some(0xab),
        hwaddr: Some(MacAddr([0, 0, 0, 0, 0, 5])),
        fail_mode: FailMode::Secure,
        protocols: vec![OpenFlowVersion::V10, OpenFlowVersion::V13],
        mac_aging_time_s: 60,
        mac_table_size: 10,
        forward_bpdu: true,
        disable_in_band: true,
        dp_desc: Some("a switch".into()),
        dp_sn: Some("12".into()),
        flow_tables: [(3, table)].into(),
        ..BridgeOptions::default()
    };
    assert_eq!(desired.bridges["br0"].options, expected);
    assert_eq!(OpenFlowVersion::V13.wire(), 4);
    assert_eq!(
        messages(&desired),
        [
            "Bridge br0: other_config:mac-table-size=9 is not from 10 to 1000000: 10 is used",
            "Bridge br0: table 3: 'groups' with nothing[]: nothing[]: unknown field `nothing'",
        ]
    );
}

#[test]
fn prefixes_of_tables() {
    use ofproto::FieldId::{CtNwSrc, IpDst, IpSrc, Ipv6Src, TunId, TunIpv6Dst};
    for (prefixes, expected, told) in [
        (&[][..], None, &[][..]),
        (&["none"], Some(vec![]), &[]),
        (&["none", "ip_dst", "foo"], Some(vec![]), &[]),
        (&["nw_src", "ip_dst"], Some(vec![IpDst, IpSrc]), &[]),
        (&["nw_dst", "ip_dst"], Some(vec![IpDst]), &[]),
        (
            &["tun_id", "ipv6_src", "ct_nw_src", "tun_ipv6_dst"],
            Some(vec![CtNwSrc, Ipv6Src, TunId, TunIpv6Dst]),
            &[],
        ),
        (&["foo"], None, &["'prefixes' with unknown field: foo"]),
        (
            &["metadata", "tcp_src", "nw_src"],
            Some(vec![IpSrc]),
            &["'prefixes' with incompatible field: metadata", "'prefixes' with incompatible field: tcp_src"],
        ),
        (&["arp_spa"], None, &["'prefixes' with incompatible field: arp_spa"]),
    ] {
        let mut bed = Bed::new();
        bed.add_br("br0", "dummy");
        let row = bed.row("Bridge", "br0");
        bed.txn(|txn| {
            let columns = [("prefixes", Datum::set(prefixes.iter().copied()).into())];
            let table = txn.insert("Flow_Table", columns);
            txn.update("Bridge", row, [("flow_tables", ColumnValue::ref_map([(3, table)]))]);
        });
        let desired = bed.desired();
        assert_eq!(desired.bridges["br0"].options.flow_tables[&3].prefixes, expected, "{prefixes:?}");
        let told: Vec<_> = told.iter().map(|told| format!("Bridge br0: {told}")).collect();
        assert_eq!(messages(&desired), told, "{prefixes:?}");
    }
}

#[test]
fn controllers() {
    use ConnectionMode::{InBand, OutOfBand};
    let mut bed = Bed::new();
    bed.add_br("br0", "dummy");
    let row = bed.row("Bridge", "br0");
    bed.txn(|txn| {
        let target = |target: &'static str| [("target", ColumnValue::from(target))];
        let rows = [
            txn.insert("Controller", [("target", "tcp:127.0.0.1".into()), ("max_backoff", 1500.into())]),
            txn.insert("Controller", target("ptcp:6653")),
            txn.insert("Controller", target("ssl:127.0.0.1")),
            txn.insert("Controller", target("pssl:6654")),
            txn.insert("Controller", target("bogus:x")),
        ];
        txn.update("Bridge", row, [("controller", ColumnValue::refs(rows))]);
    });
    let read = |desired: &Desired| -> Vec<_> {
        let controllers = desired.bridges["br0"].controllers.iter();
        let mut read: Vec<_> = controllers
            .map(|c| (c.target.clone(), c.kind, c.connection_mode, c.max_backoff_ms, c.inactivity_probe_ms))
            .collect();
        read.sort_by(|a, b| a.0.cmp(&b.0));
        read
    };
    let desired = bed.desired();
    let passive = |target: &str| (target.to_string(), ControllerKind::Service, OutOfBand, 8000, 5000);
    let active = |target: &str, ms| (target.to_string(), ControllerKind::Primary, InBand, ms, 5000);
    assert_eq!(
        read(&desired),
        [
            passive("pssl:6654"),
            passive("ptcp:6653"),
            active("ssl:127.0.0.1", 8000),
            active("tcp:127.0.0.1", 1500)
        ]
    );
    assert_eq!(
        messages(&desired),
        ["Controller bogus:x: \"bogus:x\" does not say how to reach a controller: left out"]
    );
    bed.set("Bridge", "br0", "other_config", map(&[("disable-in-band", "true")]));
    assert_eq!(read(&bed.desired())[3].2, OutOfBand);
}

#[test]
fn sizes_of_the_table_of_addresses() {
    for (text, expected) in
        [("0", 8192), ("5", 10), ("10", 10), ("1000000", 1_000_000), ("1000001", 1_000_000), ("abc", 8192)]
    {
        let mut bed = Bed::new();
        bed.add_br("br0", "netdev");
        bed.set("Bridge", "br0", "other_config", map(&[("mac-table-size", text)]));
        assert_eq!(bed.desired().bridges["br0"].options.mac_table_size, expected, "{text}");
    }
}

#[test]
fn datapath_ids() {
    for (text, expected) in [
        ("0000000000000001", Some(1)),
        ("0x00000000000000ff", Some(0xff)),
        ("FFFFFFFFFFFFFFFF", Some(u64::MAX)),
        ("0000000000000000", None),
        ("0x1", Some(1)),
        ("0X01", Some(1)),
        ("0xABCDEF", Some(0xab_cdef)),
        ("0x", None),
        ("0x0", None),
        ("0x1g", None),
        ("0x00000000000000001", None),
        ("1", None),
        ("+000000000000001", None),
        ("00000000000000011", None),
    ] {
        let mut bed = Bed::new();
        bed.add_br("br0", "netdev");
        bed.set("Bridge", "br0", "other_config", map(&[("datapath-id", text)]));
        let desired = bed.desired();
        assert_eq!(desired.bridges["br0"].options.datapath_id, expected, "{text}");
        assert_eq!(desired.notices.len(), usize::from(expected.is_none()), "{text}");
    }
}
