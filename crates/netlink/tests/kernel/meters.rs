//! Meters and limits of connections.

use crate::with_switch;
use dpif::actions::{Meter, Output};
use dpif::{CtLimit, CtZone, DpAction, MeterBand, MeterConfig};

#[test]
fn meters_are_set_read_and_removed() {
    with_switch(|s| {
        if !s.ovs.has_meters() {
            return crate::skip("meters", "this kernel has none");
        }
        let features = s.ovs.meter_features(s.dp).unwrap();
        assert!(features.meters_max > 0 && features.bands_max > 0 && features.drop_bands, "{features:?}");
        let config = MeterConfig { per_packet: true, bands: vec![MeterBand { rate: 1, burst: 2 }] };
        s.ovs.meter_set(s.dp, 3, &config).unwrap();
        let fresh = s.ovs.meter_get(s.dp, 3).unwrap();
        assert_eq!((fresh.id, fresh.stats.packets, fresh.stats.bands.len()), (3, 0, 1));
        let frame = [&[2; 12][..], &[0x88, 0xb5], &[0; 50]].concat();
        for _ in 0..10 {
            let through = [DpAction::Meter(Meter(3)), DpAction::Output(Output(s.near.number))];
            s.ovs.operate_one(s.dp, s.execute(&frame, &through)).unwrap();
        }
        let reply = s.ovs.meter_get(s.dp, 3).unwrap();
        assert_eq!(reply.stats.packets, 10);
        assert!(reply.stats.bands[0].packets > 0 && reply.used_ms > 0, "{reply:?}");
        let last = s.ovs.meter_del(s.dp, 3).unwrap().unwrap();
        assert_eq!(last.stats, reply.stats);
        assert_eq!(s.ovs.meter_del(s.dp, 3).unwrap(), None);
        assert!(s.ovs.meter_get(s.dp, 3).unwrap_err().is_not_found());
        let rateless = MeterConfig { per_packet: false, bands: vec![MeterBand { rate: 0, burst: 0 }] };
        assert!(s.ovs.meter_set(s.dp, 4, &rateless).unwrap_err().is_invalid());
        assert!(s.ovs.meter_features(12345).unwrap_err().is_no_device());
    });
}

#[test]
fn limits_of_connections_are_set_read_and_taken_away() {
    with_switch(|s| {
        if !s.ovs.has_ct_limits() {
            return crate::skip("limits of connections", "this kernel has none");
        }
        s.ovs.ct_limit_set(s.dp, &[(CtZone::Default, 100), (CtZone::Zone(5), 7)]).unwrap();
        let limit = |zone, limit| CtLimit { zone, limit, count: 0 };
        let expected = [limit(CtZone::Default, 100), limit(CtZone::Zone(5), 7)];
        assert_eq!(s.ovs.ct_limit_get(s.dp, &[]).unwrap(), expected);
        assert_eq!(s.ovs.ct_limit_get(s.dp, &[CtZone::Zone(6)]).unwrap(), [limit(CtZone::Zone(6), 100)]);
        s.ovs.ct_limit_del(s.dp, &[CtZone::Zone(5)]).unwrap();
        assert_eq!(s.ovs.ct_limit_get(s.dp, &[]).unwrap(), expected[..1]);
    });
}
