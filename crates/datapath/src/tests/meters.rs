//! Meters: rates, buckets and the cost of packets.

use super::frames::{self, ipv4, l4, udp};
use super::*;
use crate::meter::Load;
use dpif::actions::{CloneAction, Meter, PopVlan};
use packet::{GsoKind, Offload};

#[test]
fn meters_limit_the_total_rate_of_several_cores() {
    let shared = Arc::new(DpShared::new(7));
    let bands = vec![MeterBand { rate: 10, burst: 10 }, MeterBand { rate: 5, burst: 1000 }];
    shared.meter_set(3, &MeterConfig { per_packet: true, bands }).unwrap();
    let mut sent = 0;
    for core in 0..2 {
        let mut rig = Rig::new();
        rig.pmd = Pmd::new(PmdConfig::new(PmdId::Core(core), 1), shared.clone());
        rig.pmd.port_add(DpPort(1)).unwrap();
        rig.pmd.port_add(DpPort(2)).unwrap();
        rig.flow(1, &udp(1, 2), least_mask(), vec![DpAction::Meter(Meter(3)), out(2)]);
        rig.receive(1, &vec![udp(1, 2); 8]);
        sent += rig.sent().len();
        assert_eq!(rig.drops(DropReason::Meter), u64::from(core) * 6);
    }
    assert_eq!(sent, 10);
    let stats = shared.meter_stats(3).unwrap();
    assert_eq!((stats.packets, stats.bands[0].packets, stats.bands[1].packets), (16, 6, 0));
    assert!(
        shared.admit(3, Load::frame(60), 1_100_000) && !shared.admit(3, Load::frame(60), 1_100_000),
        "one more after 100 ms"
    );
    shared.meter_del(3).unwrap();
    assert_eq!(shared.meter_stats(3), Err(DpifError::NotFound("meter")));
    assert!(shared.meter_set(METERS_MAX, &MeterConfig::default()).is_err());
}

/// As OVS 3.1 counts such flows (`dpctl/add-flow`).
#[test]
fn meters_are_charged_wherever_they_stand() {
    let meter = || DpAction::Meter(Meter(3));
    let cloned = || DpAction::Clone(CloneAction(vec![meter()]));
    for (actions, sent, dropped) in [
        (vec![meter(), out(2)], 2, 1),
        (vec![out(2), meter()], 3, 1),
        (vec![cloned(), out(2)], 3, 1),
        (vec![out(2), cloned()], 3, 1),
        (vec![out(2), DpAction::Clone(CloneAction(vec![cloned()])), DpAction::PopVlan(PopVlan)], 3, 1),
        (vec![meter()], 0, 1),
    ] {
        let text = format!("{actions:?}");
        let shared = Arc::new(DpShared::new(7));
        let bands = vec![MeterBand { rate: 1, burst: 2 }];
        shared.meter_set(3, &MeterConfig { per_packet: true, bands }).unwrap();
        let mut rig = Rig::new();
        rig.pmd = Pmd::new(PmdConfig::new(PmdId::Core(0), 1), shared.clone());
        rig.pmd.port_add(DpPort(1)).unwrap();
        rig.pmd.port_add(DpPort(2)).unwrap();
        rig.flow(1, &udp(1, 2), least_mask(), actions);
        rig.receive(1, &vec![udp(1, 2); 3]);
        let stats = shared.meter_stats(3).unwrap();
        assert_eq!((stats.packets, stats.bands[0].packets), (3, 1), "{text}");
        assert_eq!((rig.sent().len(), rig.drops(DropReason::Meter)), (sent, dropped), "{text}");
        assert!(rig.pmd.ledger().balances(), "{text}");
    }
}

#[test]
fn kilobit_meters_count_bits() {
    let shared = DpShared::new(7);
    let bands = vec![MeterBand { rate: 8, burst: 8 }];
    shared.meter_set(0, &MeterConfig { per_packet: false, bands }).unwrap();
    assert!(shared.admit(0, Load::frame(900), 0), "900 of 1000 bytes");
    assert!(!shared.admit(0, Load::frame(101), 0));
    assert!(shared.admit(0, Load::frame(200), 100_000), "100 bytes more after 100 ms");
}

/// A large segment of TCP with that many bytes of payload, in frames of 1,000.
fn large(payload: usize) -> Packet {
    let tcp = [&l4(6, 1, 2, false)[..20], &vec![7; payload]].concat();
    let mut packet = Packet::from_slice(&ipv4(6, frames::SRC, frames::DST, 0, &tcp));
    packet.offload = Offload {
        needs_csum: true,
        csum_start: 34,
        csum_offset: 16,
        gso: GsoKind::Tcp4,
        gso_size: 1000,
        ..Offload::NONE
    };
    packet
}

/// Rows: per packet, rate, burst, time and payload of each large segment, and whether it passes.
#[test]
fn a_large_segment_costs_its_frames() {
    let s = 1_000_000;
    for (per_packet, rate, burst, segments) in [
        (
            true,
            10,
            20,
            vec![(0, 8000, true), (0, 8001, true), (0, 4000, false), (0, 3000, true), (0, 1, false)],
        ),
        // A bucket that a segment does not fit into: the rate holds.
        (true, 10, 5, vec![(0, 30_000, true), (2 * s, 1, false), (2 * s + s / 2, 1, false)]),
        (
            true,
            10,
            5,
            vec![(0, 30_000, true), (29 * s / 10, 6000, false), (3 * s, 6000, true), (3 * s, 1, false)],
        ),
        // 8 bits a byte: 100 kbit are 12,500 bytes.
        (
            false,
            100,
            100,
            vec![(0, 20_000, true), (s, 20_000, false), (2 * s, 20_000, true), (2 * s, 1, false)],
        ),
        // Not even one of its frames fits.
        (false, 8, 8, vec![(0, 20_000, false), (9 * s, 20_000, false), (9 * s, 900, true)]),
    ] {
        for group in [false, true] {
            let mut rig = Rig::with(|c| c.tuning.group = group);
            let shared = rig.pmd.exec.shared.clone();
            let config = MeterConfig { per_packet, bands: vec![MeterBand { rate, burst }] };
            shared.meter_set(3, &config).unwrap();
            let key = key_of(1, large(1000).data());
            rig.put(key, least_mask(), vec![DpAction::Meter(Meter(3)), out(2)]);
            rig.now_us = s;
            rig.settle();
            let start_us = rig.now_us;
            for (n, (at_us, payload, passes)) in segments.iter().enumerate() {
                rig.now_us = start_us + at_us;
                rig.receive_packets(1, vec![large(*payload)]);
                assert_eq!(rig.sent().len(), usize::from(*passes), "{per_packet} {burst} {n} {group}");
            }
            let stats = shared.meter_stats(3).unwrap();
            assert_eq!(stats.packets, segments.len() as u64, "a segment counts as one packet");
        }
    }
}

/// The levels pass to a meter of another process.
#[test]
fn a_meter_goes_on_from_the_levels_of_another() {
    let [one, other] = [(); 2].map(|()| {
        let shared = DpShared::new(7);
        let bands = vec![MeterBand { rate: 2, burst: 2 }, MeterBand { rate: 100, burst: 100 }];
        shared.meter_set(7, &MeterConfig { per_packet: true, bands }).unwrap();
        shared
    });
    let admits = |shared: &DpShared, at_us| shared.admit(7, Load::frame(60), at_us);
    assert_eq!(one.meter_levels(7, 0), None, "no packet yet");
    assert!(admits(&one, 1_000_000) && admits(&one, 1_000_000) && !admits(&one, 1_000_000));
    let levels = one.meter_levels(7, 1_200_000).unwrap();
    assert_eq!(levels.age_us, 200_000);
    // By another clock.
    other.meter_resume(7, &levels, 5_200_000);
    assert_eq!(other.meter_levels(7, 5_200_000), Some(levels.clone()));
    assert_eq!(other.meter_stats(7), one.meter_stats(7));
    for at_us in [400_000, 500_000, 600_000, 1_000_000] {
        assert_eq!(admits(&other, 5_000_000 + at_us), admits(&one, 1_000_000 + at_us), "{at_us}");
    }
    // A meter that has changed since keeps its buckets.
    other.meter_set(7, &MeterConfig { per_packet: true, bands: Vec::new() }).unwrap();
    other.meter_resume(7, &levels, 6_000_000);
    assert_eq!(other.meter_levels(7, 6_000_000), None);
    // It has no more than its bucket holds.
    let bands = vec![MeterBand { rate: 1, burst: 1 }; 2];
    other.meter_set(7, &MeterConfig { per_packet: true, bands }).unwrap();
    other.meter_resume(7, &levels, 6_000_000);
    assert!(admits(&other, 6_900_000) && !admits(&other, 6_900_000));
}
