use super::*;
use std::collections::BTreeSet;

fn counted() -> PmdStats {
    let mut stats = PmdStats {
        received: 7,
        template_hits: 6,
        upcalls: 3,
        parked_lost: 2,
        flows: 5,
        masks: 1,
        ..PmdStats::default()
    };
    stats.drops[DropReason::Meter as usize] = 4;
    stats
}

#[test]
fn clearing_leaves_what_is_there_now_and_the_drops() {
    let cleared = counted().cleared();
    assert_eq!((cleared.received, cleared.upcalls, cleared.lost()), (0, 0, 0));
    assert_eq!((cleared.flows, cleared.masks, cleared.drops), (5, 1, counted().drops));
}

#[test]
fn what_ended_threads_counted_adds_up() {
    let mut sum = PmdStats::default();
    sum.add(&counted().ended());
    sum.add(&counted());
    assert_eq!((sum.received, sum.lost(), sum.flows), (14, 4, 5));
    assert_eq!(sum.template_hits, 12);
    assert_eq!(sum.drops[DropReason::Meter as usize], 8);
}

#[test]
fn a_port_counts_each_drop_once() {
    let mut port =
        PortStats { rx_dropped: 3, rx_errors: 3, rx_malformed: 1, rx_truncated: 2, ..PortStats::default() };
    port.drops[DropReason::Explicit as usize] = 5;
    port.xlate_drops[XlateDrop::Ok as usize] = 4;
    port.xlate_drops[XlateDrop::VlanNotAllowed as usize] = 1;
    port.drops[DropReason::Meter as usize] = 6;
    (port.tx_drops[DropReason::TxTooBig as usize], port.tx_dropped) = (7, 7);
    let mut twice = port;
    twice.add(&port);
    let expected = [
        ("rx_ring_full", 3),
        ("rx_malformed", 1),
        ("rx_truncated", 2),
        ("rules", 4),
        ("vlan_not_allowed", 1),
        ("meter", 6),
        ("tx_too_big", 7),
    ];
    assert_eq!(port.drops_by_name(), expected);
    assert_eq!(twice.drops_by_name(), expected.map(|(name, n)| (name, 2 * n)));
    // A dummy does not know its losses.
    assert_eq!(PortStats { rx_dropped: u64::MAX, ..PortStats::default() }.drops_by_name(), []);
}

#[test]
fn every_reason_has_a_name_and_a_counter_of_its_own() {
    let reasons = DropReason::ALL.into_iter();
    let names: BTreeSet<_> =
        reasons.clone().map(DropReason::name).chain(XlateDrop::ALL.map(XlateDrop::name)).collect();
    assert_eq!(names.len(), DropReason::COUNT + XlateDrop::COUNT);
    let counters: BTreeSet<_> = reasons
        .clone()
        .filter_map(DropReason::counter)
        .chain(XlateDrop::ALL.map(XlateDrop::counter))
        .collect();
    assert_eq!(counters.len(), DropReason::COUNT - 1 + XlateDrop::COUNT);
    assert!(reasons.enumerate().all(|(i, reason)| reason as usize == i));
    assert!(XlateDrop::ALL.into_iter().enumerate().all(|(i, reason)| reason as usize == i));
}

#[test]
fn drops_of_a_device_are_added_to_those_of_its_port() {
    let device =
        DeviceStats { rx_dropped: 5, rx_errors: 6, tx_dropped: 7, tx_errors: 8, ..Default::default() };
    let port = PortStats { rx_dropped: 10, tx_errors: u64::MAX, device: Some(device), ..Default::default() };
    let told = port.with_device();
    assert_eq!([told.rx_dropped, told.rx_errors, told.tx_dropped, told.tx_errors], [15, 6, 7, u64::MAX]);
    let without = PortStats { device: None, ..port };
    assert_eq!(without.with_device(), without);
    // By reason, a port counts only its own losses.
    assert_eq!(port.drops_by_name(), [("rx_ring_full", 10)]);
}
