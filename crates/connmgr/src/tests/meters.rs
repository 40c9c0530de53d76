//! Meters: stored, executed, reported, deleted with the rules that use them.

use super::*;
use MeterModCommand::{Add, Delete, Modify};
use openflow::msg::meter::{Band, BandType, METER_ALL, Meter, MeterMod, MeterModCommand, flags};

fn meter_mod(command: MeterModCommand, id: u32, flags: u16, bands: &[Band]) -> Message {
    Message::MeterMod(MeterMod { command, meter: Meter { id, flags, bands: bands.to_vec() } })
}

const DROP: Band = Band { ty: BandType::Drop, rate: 100, burst_size: 0 };

#[test]
fn a_meter_lives_in_the_datapath_too() {
    let mut s = Switch::new();
    let mut c = s.service(Version::V13);
    c.silent(&mut s, &meter_mod(Add, 5, flags::PKTPS, &[DROP]));
    let burst = Band { burst_size: 7, ..DROP };
    c.silent(&mut s, &meter_mod(Add, 6, flags::KBPS | flags::BURST, &[burst, DROP]));
    let there = s.datapath.meters.lock().unwrap().clone();
    let bands = |id: u32| there[&id].bands.iter().map(|b| (b.rate, b.burst)).collect::<Vec<_>>();
    assert_eq!((there[&0].per_packet, bands(0)), (true, vec![(100, 100)]));
    assert_eq!((there[&1].per_packet, bands(1)), (false, vec![(100, 7), (100, 100)]));
    c.silent(&mut s, &meter_mod(Modify, 5, flags::KBPS, &[Band { rate: 200, ..DROP }]));
    assert_eq!(s.datapath.meters.lock().unwrap()[&0].bands[0].rate, 200);
    s.now_ms += 1500;
    c.add(&mut s, "table=1,actions=meter:5,output:1");
    let Message::MeterStatsReply(stats) = c.one(&mut s, &Message::MeterStatsRequest(METER_ALL)) else {
        panic!()
    };
    let told: Vec<_> =
        stats.entries.iter().map(|m| (m.id, m.flow_count, m.duration_s, m.duration_ns)).collect();
    assert_eq!(told, [(5, 1, 1, 500_000_000), (6, 0, 1, 500_000_000)]);
    let Message::MeterConfigReply(config) = c.one(&mut s, &Message::MeterConfigRequest(6)) else { panic!() };
    assert_eq!(config.entries.len(), 1);
    assert_eq!(config.entries[0].bands[1].burst_size, 100);

    c.silent(&mut s, &meter_mod(Delete, 5, 0, &[]));
    assert!(s.rules().is_empty(), "the rule that used it has ended");
    c.silent(&mut s, &meter_mod(Delete, METER_ALL, 0, &[]));
    assert!(s.datapath.meters.lock().unwrap().is_empty());
    c.silent(&mut s, &meter_mod(Delete, 5, 0, &[]));
}

/// OVS 3.5 gives the datapath the size that is in the message; the flag only shows it.
#[test]
fn a_burst_size_is_kept_without_the_flag_of_bursts() {
    let mut s = Switch::new();
    let mut c = s.service(Version::V13);
    let burst = |burst_size| Band { burst_size, ..DROP };
    c.silent(&mut s, &meter_mod(Add, 5, flags::PKTPS, &[burst(1), burst(0)]));
    let there = s.datapath.meters.lock().unwrap().clone();
    assert_eq!(there[&0].bands.iter().map(|b| b.burst).collect::<Vec<_>>(), [1, 100]);
    c.silent(&mut s, &meter_mod(Modify, 5, flags::KBPS, &[burst(9)]));
    assert_eq!(s.datapath.meters.lock().unwrap()[&0].bands[0].burst, 9);
    let Message::MeterConfigReply(config) = c.one(&mut s, &Message::MeterConfigRequest(5)) else { panic!() };
    assert_eq!((config.entries[0].flags, config.entries[0].bands[0].burst_size), (flags::KBPS, 9));
}

#[test]
fn meters_of_the_same_number_on_two_bridges_are_two() {
    let mut s = Switch::new();
    let mut c = s.service(Version::V13);
    c.silent(&mut s, &meter_mod(Add, 1, flags::PKTPS, &[DROP]));
    let first = s.bridge;
    // Another bridge of the same datapath.
    s.bridge = s.backer.add_bridge("br1");
    let mut manager_of_first = std::mem::take(&mut s.manager);
    let mut c = s.service(Version::V13);
    c.silent(&mut s, &meter_mod(Add, 1, flags::PKTPS, &[Band { rate: 7, ..DROP }]));
    let rates = |s: &Switch| {
        let meters = s.datapath.meters.lock().unwrap();
        meters.iter().map(|(id, m)| (*id, m.bands[0].rate)).collect::<Vec<_>>()
    };
    assert_eq!(rates(&s), [(0, 100), (1, 7)]);
    let dp_id = |s: &Switch, b: BridgeId| s.backer.view().bridge(b).unwrap().meters.get(&1).copied();
    assert_eq!((dp_id(&s, first), dp_id(&s, s.bridge)), (Some(0), Some(1)));
    // A deleted bridge frees only its own.
    s.backer.remove_bridge(first);
    let ctx =
        BridgeCtx { backer: &s.backer, datapath: &s.datapath, bridge: first, datapath_id: 1, desc: &s.desc };
    manager_of_first.shut_down(&ctx);
    assert_eq!(rates(&s), [(1, 7)]);
    c.silent(&mut s, &meter_mod(Add, 2, flags::PKTPS, &[DROP]));
    assert_eq!(rates(&s), [(0, 100), (1, 7)]);
    // A meter on a rule's copies for controllers does not stop the rule.
    c.add(&mut s, "actions=controller(meter_id=2)");
    c.silent(&mut s, &meter_mod(Delete, 2, 0, &[]));
    assert_eq!((rates(&s), s.rules().len()), (vec![(1, 7)], 1));
}

#[test]
fn there_is_a_meter_for_all_packets_to_controllers() {
    use openflow::msg::meter::CONTROLLER;
    let mut s = Switch::new();
    let mut c = s.service(Version::V13);
    c.silent(&mut s, &meter_mod(Add, CONTROLLER, flags::PKTPS, &[DROP]));
    let Message::MeterConfigReply(config) = c.one(&mut s, &Message::MeterConfigRequest(CONTROLLER)) else {
        panic!()
    };
    assert_eq!(config.entries[0].id, CONTROLLER);
    assert_eq!(s.backer.view().bridge(s.bridge).unwrap().meters.get(&CONTROLLER), Some(&0));
    let slow = openflow::msg::meter::SLOW_PATH;
    c.silent(&mut s, &meter_mod(Add, slow, flags::PKTPS, &[DROP]));
    assert_eq!(s.backer.view().bridge(s.bridge).unwrap().meters.get(&slow), Some(&1));
    c.silent(&mut s, &meter_mod(Delete, METER_ALL, 0, &[]));
    assert!(s.datapath.meters.lock().unwrap().is_empty());
}

#[test]
fn meters_that_cannot_be_are_refused() {
    let mut s = Switch::new();
    let mut c = s.service(Version::V13);
    c.silent(&mut s, &meter_mod(Add, 1, flags::KBPS, &[DROP]));
    let remark = Band { ty: BandType::DscpRemark(1), ..DROP };
    let cases = [
        (meter_mod(Add, 1, flags::KBPS, &[DROP]), ErrorKind::MmfcMeterExists),
        (meter_mod(Modify, 2, flags::KBPS, &[DROP]), ErrorKind::MmfcUnknownMeter),
        (meter_mod(Add, 0, flags::KBPS, &[DROP]), ErrorKind::MmfcInvalidMeter),
        (meter_mod(Add, 262_145, flags::KBPS, &[DROP]), ErrorKind::MmfcInvalidMeter),
        (meter_mod(Add, 2, flags::KBPS, &[remark]), ErrorKind::MmfcBadBand),
        (meter_mod(Add, 2, flags::KBPS, &[Band { rate: 0, ..DROP }]), ErrorKind::MmfcBadRate),
        (meter_mod(Add, 2, flags::KBPS, &[]), ErrorKind::MmfcOutOfBands),
        (meter_mod(Add, 2, flags::KBPS, &[DROP; 9]), ErrorKind::MmfcOutOfBands),
        (Message::MeterConfigRequest(2), ErrorKind::MmfcUnknownMeter),
        (Message::MeterStatsRequest(2), ErrorKind::MmfcUnknownMeter),
    ];
    for (message, kind) in cases {
        assert_eq!(c.refused(&mut s, &message), kind, "{message:?}");
    }
    let Message::MeterFeaturesReply(f) = c.one(&mut s, &Message::MeterFeaturesRequest) else { panic!() };
    assert_eq!((f.max_meters, f.band_types, f.max_bands), (262_144, 2, 8));
    c.silent(&mut s, &meter_mod(Add, 262_144, flags::KBPS, &[DROP]));
    let before = s.manager.counters();
    assert!(before.messages.received > 10);
    s.with(|m, ctx, _| m.shut_down(ctx));
    assert!(s.datapath.meters.lock().unwrap().is_empty());
    assert_eq!(s.manager.counters(), before.ended(), "counters of its connections stay");
}

#[test]
fn the_rules_of_a_deleted_meter_end_in_turns() {
    const RULES: u32 = 12_000;
    let mut s = Switch::new();
    let (mut a, mut b) = (s.service(Version::V13), s.service(Version::V13));
    a.silent(&mut s, &meter_mod(Add, 5, flags::PKTPS, &[DROP]));
    a.silent(&mut s, &meter_mod(Add, 6, flags::PKTPS, &[DROP]));
    for n in 0..RULES {
        let meter = 5 + n % 2;
        a.add(
            &mut s,
            &format!("table=1,ip,nw_dst=10.1.{}.{},actions=meter:{meter},output:1", n >> 8, n & 255),
        );
    }
    let mut bytes = encode(&meter_mod(Delete, METER_ALL, 0, &[]), a.version, 900).unwrap();
    bytes.extend(encode(&Message::BarrierRequest, a.version, 901).unwrap());
    a.received.clear();
    s.manager.input(a.id, &bytes, s.now_ms);
    let mut turns = 0;
    loop {
        s.with(|m, ctx, now| m.run(ctx, now));
        turns += 1;
        if !s.manager.shared.meters.is_ending() {
            break;
        }
        assert!(s.manager.output(a.id).is_empty(), "the barrier waits");
        assert_eq!(s.manager.next_wakeup_ms(), Some(0));
        // A rule that uses it is rejected; a new meter of that number waits.
        let refused = flow_mod(TextCommand::Add, "table=2,actions=meter:5,output:1");
        assert_eq!(b.refused(&mut s, &Message::FlowMod(refused)), ErrorKind::MmfcInvalidMeter);
    }
    assert!(turns > 2, "{turns}");
    assert!(s.rules().is_empty() && s.datapath.meters.lock().unwrap().is_empty());
    let told = a.events(&mut s);
    assert!(matches!(told[..], [Message::BarrierReply]), "{told:?}");
    b.silent(&mut s, &meter_mod(Add, 5, flags::PKTPS, &[DROP]));
}
