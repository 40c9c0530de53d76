//! Connection tracking zones.

use super::*;
use dpif::{TimeoutAttr, TimeoutPolicy};
use ovsdb::client::RowHandle;

/// Inserts a zone with these settings.
fn zone(txn: &mut TxnBuilder, limit: Option<i64>, timeouts: &[(&str, i64)]) -> RowHandle {
    let limit = limit.map(|limit| ("limit", ColumnValue::from(limit)));
    let policy = (!timeouts.is_empty()).then(|| {
        let timeouts = Datum::map(timeouts.iter().copied());
        txn.insert("CT_Timeout_Policy", [("timeouts", ColumnValue::from(timeouts))])
    });
    let policy = policy.map(|policy| ("timeout_policy", ColumnValue::from(policy)));
    txn.insert("CT_Zone", limit.into_iter().chain(policy))
}

/// Sets `datapaths` to rows of these types, each with a default limit and a zone 7.
fn set_datapaths(bed: &mut Bed, types: &[(&str, i64)]) {
    let root = bed.root();
    bed.txn(|txn| {
        let rows: Vec<_> = types
            .iter()
            .map(|(name, limit)| {
                let seven = zone(txn, Some(5), &[("udp_first", 3), ("tcp_unack", 4_294_967_295)]);
                let empty = zone(txn, None, &[]);
                let zones = ColumnValue::ref_map([(7, seven), (8, empty)]);
                let columns = [
                    ("datapath_version", ColumnValue::from("")),
                    ("ct_zones", zones),
                    ("ct_zone_default_limit", (*limit).into()),
                ];
                (*name, txn.insert("Datapath", columns))
            })
            .collect();
        txn.update("Open_vSwitch", root, [("datapaths", ColumnValue::ref_map(rows))]);
    });
}

#[test]
fn zones_are_read_for_the_datapath_that_serves_their_type() {
    let timeouts: TimeoutPolicy =
        [(TimeoutAttr::UdpFirst, 3), (TimeoutAttr::TcpUnack, u32::MAX)].into_iter().collect();
    let config = |limit: u32| CtConfig {
        default_limit: Some(limit),
        zones: [(7, CtZoneConfig { limit: Some(5), timeouts })].into(),
    };
    assert!(config(1).sets_limits() && config(1).sets_timeouts());
    let unlike = "has limits and timeouts of zones for the same datapath: those of system have no effect";
    for (types, expected, notices) in [
        (&[][..], &[][..], vec![]),
        (&[("netdev", 9)], &[("netdev", 9)], vec![]),
        // Without a kernel datapath, `netdev` serves `system`.
        (&[("system", 9)], &[("netdev", 9)], vec![]),
        (
            &[("system", 9), ("netdev", 0), ("dummy", 4)],
            &[("dummy", 4), ("netdev", 0)],
            vec![format!("Open_vSwitch : datapaths:system: datapaths:netdev {unlike}")],
        ),
        (
            &[("bogus", 9)],
            &[],
            vec![
                "Open_vSwitch : datapaths:bogus: there is no datapath of this type: limits and timeouts of its zones have no effect"
                    .to_string(),
            ],
        ),
    ] {
        let mut bed = Bed::new();
        set_datapaths(&mut bed, types);
        let desired = bed.desired();
        assert_eq!(messages(&desired), notices, "{types:?}");
        let found: Vec<_> = desired.conntrack.iter().map(|(name, c)| (name.as_str(), (**c).clone())).collect();
        let expected: Vec<_> = expected.iter().map(|(name, limit)| (*name, config(*limit))).collect();
        assert_eq!(found, expected, "{types:?}");
    }
}

#[test]
fn each_change_is_one_command_and_its_error_stands_in_the_bridges() {
    let mut bed = Bed::new();
    let (mut planner, mut fake) = (Planner::default(), Fake::default());
    let mut sync = |bed: &mut Bed, planner: &mut Planner| {
        fake.apply(planner, bed.desired());
        fake.take_log()
    };
    bed.add_br("br0", "netdev");
    bed.add_br("br1", "dummy");
    sync(&mut bed, &mut planner);
    set_datapaths(&mut bed, &[("netdev", 9), ("dummy", 9)]);
    assert_eq!(sync(&mut bed, &mut planner), ["conntrack dummy 1", "conntrack netdev 1"]);
    assert_eq!(sync(&mut bed, &mut planner), [""; 0]);
    let notice = |bed: &Bed, planner: &Planner, name: &str| {
        planner.facts().bridges[&bed.row("Bridge", name)].status.get("notice").cloned()
    };
    planner.conntrack_failed("netdev", Some("why".to_string()));
    assert_eq!(
        (notice(&bed, &planner, "br0"), notice(&bed, &planner, "br1")),
        (Some("why".to_string()), None)
    );
    planner.conntrack_failed("netdev", None);
    assert_eq!(notice(&bed, &planner, "br0"), None);
    let limit = |bed: &mut Bed, value: i64| {
        let rows = bed.replica().rows("Open_vSwitch").next().unwrap().string_uuid_map("datapaths")["dummy"];
        bed.txn(|txn| txn.update("Datapath", rows, [("ct_zone_default_limit", ColumnValue::from(value))]));
    };
    limit(&mut bed, 10);
    assert_eq!(sync(&mut bed, &mut planner), ["conntrack dummy 1"]);
    set_datapaths(&mut bed, &[("dummy", 10)]);
    assert_eq!(sync(&mut bed, &mut planner), ["conntrack netdev 0"]);
}
