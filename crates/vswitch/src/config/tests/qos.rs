//! Quality of service and policing.

use super::*;
use dpif::qos::{Discipline, Policing, Qos, Queue, Rates};
use std::sync::Arc;

/// A bridge whose port has quality of service of a type, with one queue.
fn bed(kind: &str, settings: &[(&str, &str)], number: i64, queue: &[(&str, &str)]) -> Bed {
    let mut bed = Bed::new();
    bed.add_br("br0", "netdev");
    bed.add_port("br0", "p1", &[], &[]);
    let port = bed.row("Port", "p1");
    bed.txn(|txn| {
        let queue = txn.insert("Queue", [("other_config", map(queue)), ("dscp", 46.into())]);
        let columns = [
            ("type", ColumnValue::from(kind)),
            ("other_config", map(settings)),
            ("queues", ColumnValue::ref_map([(number, queue)])),
        ];
        let qos = txn.insert("QoS", columns);
        txn.update("Port", port, [("qos", ColumnValue::from(qos))]);
    });
    bed
}

#[test]
fn queues_are_read_with_their_discipline() {
    let settings = [("min-rate", "8"), ("max-rate", " 80 "), ("burst", "9"), ("priority", "7")];
    let mut bed = bed("linux-htb", &[("max-rate", "800")], 3, &settings);
    let desired = bed.desired();
    let queue =
        Queue { min_rate: 8, max_rate: 80, burst: 9, priority: 7, dscp: Some(46), rates: Rates::default() };
    let expected = Qos { discipline: Discipline::Htb { max_rate: 800 }, queues: [(3, queue)].into() };
    assert_eq!(interface(&desired, "br0", "p1").qos, Some(Arc::new(expected)));
    assert_eq!(messages(&desired), [""; 0]);
    assert_eq!(interface(&desired, "br0", "br0").qos, None);
}

#[test]
fn markers_are_read_with_those_of_their_queues() {
    let mut bed =
        bed("trtcm-policer", &[("cir", "1"), ("cbs", "2"), ("eir", "3"), ("ebs", "4")], 3, &[("cir", "5")]);
    let desired = bed.desired();
    let rates = Rates { cir: 1, cbs: 2, eir: 3, ebs: 4 };
    let queue = Queue { dscp: Some(46), rates: Rates { cir: 5, ..Rates::default() }, ..Queue::default() };
    let expected = Qos { discipline: Discipline::Trtcm(rates), queues: [(3, queue)].into() };
    assert_eq!(interface(&desired, "br0", "p1").qos, Some(Arc::new(expected)));
    assert_eq!(messages(&desired), [""; 0]);
}

#[test]
fn faults_are_told_in_the_row_of_the_port() {
    let check = |kind: &str, settings: &[(&str, &str)], number, queue: &[(&str, &str)], part: &str| {
        let mut bed = bed(kind, settings, number, queue);
        let desired = bed.desired();
        let notice = desired.notices.first().unwrap();
        assert_eq!((notice.table, notice.row, &*notice.setting), ("Port", bed.row("Port", "p1"), "qos"));
        assert!(notice.message.contains(part), "{kind}: {}", notice.message);
        interface(&desired, "br0", "p1").qos.clone().map(|qos| qos.queues.len())
    };
    assert_eq!(check("linux-x", &[], 0, &[], "QoS type \"linux-x\" is unknown"), None);
    assert_eq!(check("linux-sfq", &[], 0, &[], "linux-sfq has no queues"), Some(1));
    let part = "QoS other_config:cir has no effect on linux-htb";
    assert_eq!(check("linux-htb", &[("cir", "5")], 0, &[], part), Some(1));
    let part = "QoS other_config:max-rate=\"-1\" is not a number";
    assert_eq!(check("linux-hfsc", &[("max-rate", "-1")], 0, &[], part), Some(1));
    let part = "queue 2 other_config:max-rate has no effect on trtcm-policer";
    assert_eq!(check("trtcm-policer", &[("cir", "5")], 2, &[("max-rate", "9"), ("eir", "9")], part), Some(1));
    assert_eq!(check("egress-policer", &[("cir", "5")], 0, &[], "egress-policer has no queues"), Some(1));
    let part = "queue 5 other_config:min-rate=\"1M\" is not a number from 1";
    assert_eq!(check("linux-htb", &[], 5, &[("min-rate", "1M")], part), Some(1));
    assert_eq!(check("linux-htb", &[], 70_000, &[], "queue 70000 is not from 0 to 61439"), Some(0));
    // As in OVS, a row without a type asks for nothing.
    assert_eq!(bed("", &[], 0, &[]).desired().notices.len(), 0);
}

/// A change reaches the device's settings, and one of another port does not.
#[test]
fn changes_reach_the_device() {
    let mut bed = bed("linux-htb", &[], 1, &[]);
    let (mut planner, mut fake) = (Planner::default(), Fake::default());
    fake.apply(&mut planner, bed.desired());
    let sent = |planner: &Planner| planner.settings_of("p1").unwrap().clone();
    let before = sent(&planner);
    assert!(before.qos.is_some() && before.policing == Policing::default());
    bed.add_port("br0", "p2", &[], &[]);
    fake.apply(&mut planner, bed.desired());
    assert_eq!(sent(&planner), before);
    bed.set("Interface", "p1", "ingress_policing_rate", 5);
    fake.apply(&mut planner, bed.desired());
    assert_eq!(sent(&planner).policing, Policing { kbps: 5, ..Policing::default() });
    bed.set("Port", "p1", "qos", ColumnValue::refs::<Uuid>([]));
    fake.apply(&mut planner, bed.desired());
    assert_eq!(sent(&planner).qos, None);
}
