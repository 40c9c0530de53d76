//! Meters: kept, carried out, told, ended with the rules that use them.

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
    assert_eq!((there[&5].per_packet, bands(5)), (true, vec![(100, 100)]));
    assert_eq!((there[&6].per_packet, bands(6)), (false, vec![(100, 7), (100, 100)]));
    c.silent(&mut s, &meter_mod(Modify, 5, flags::KBPS, &[Band { rate: 200, ..DROP }]));
    assert_eq!(s.datapath.meters.lock().unwrap()[&5].bands[0].rate, 200);
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
        (meter_mod(Add, 65536, flags::KBPS, &[DROP]), ErrorKind::MmfcInvalidMeter),
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
    assert_eq!((f.band_types, f.max_bands), (2, 8));
    s.with(|m, ctx, _| m.shut_down(ctx));
    assert!(s.datapath.meters.lock().unwrap().is_empty());
}
