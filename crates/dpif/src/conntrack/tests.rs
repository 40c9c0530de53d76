//! Selections of connections.

use super::*;

fn tuple(src: &str, dst: &str, proto: u8, transport: CtTransport) -> CtTuple {
    let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
    CtTuple { addresses: CtAddresses::V4 { src, dst }, proto, transport }
}

#[test]
fn a_match_means_what_all_of_its_fields_fit() {
    let tcp = tuple("1.0.0.1", "1.0.0.2", 6, CtTransport::Ports { src: 5, dst: 80 });
    let ping = tuple("1.0.0.1", "1.0.0.2", 1, CtTransport::Icmp { id: 9, kind: 8, code: 0 });
    let all = CtTupleMatch::default();
    let src = Some("1.0.0.1".parse().unwrap());
    let other = Some("::1".parse().unwrap());
    for (which, fits) in [
        (all, [true, true]),
        (CtTupleMatch { src, ..all }, [true, true]),
        (CtTupleMatch { dst: src, ..all }, [false, false]),
        (CtTupleMatch { src: other, ..all }, [false, false]),
        (CtTupleMatch { proto: 6, ..all }, [true, false]),
        (CtTupleMatch { dst_port: Some(80), ..all }, [true, false]),
        (CtTupleMatch { src_port: Some(80), ..all }, [false, false]),
        (CtTupleMatch { icmp_id: Some(9), icmp_type: Some(8), icmp_code: Some(0), ..all }, [false, true]),
        (CtTupleMatch { icmp_code: Some(1), ..all }, [false, false]),
    ] {
        assert_eq!([tcp, ping].map(|t| which.matches(&t)), fits, "{which:?}");
        assert_eq!(which.exact(), None);
    }
    let [src, dst] = tcp.addresses.both().map(Some);
    let whole = CtTupleMatch { src, dst, proto: 6, src_port: Some(5), dst_port: Some(80), ..all };
    assert_eq!(whole.exact(), Some(tcp));
    // Ports do not match a ping, and addresses of two families match nothing.
    assert_eq!(CtTupleMatch { proto: 1, ..whole }.exact(), None);
    assert_eq!(CtTupleMatch { src: other, ..whole }.exact(), None);
    let icmp = CtTupleMatch { icmp_id: Some(9), icmp_type: Some(8), icmp_code: Some(0), ..all };
    assert_eq!(CtTupleMatch { src, dst, proto: 1, ..icmp }.exact(), Some(ping));
}

fn connection(orig: CtTuple, zone: u16, mark: u32, labels: u128) -> Connection {
    let [src, dst] = orig.addresses.both();
    let reply = tuple(&dst.to_string(), &src.to_string(), orig.proto, orig.transport);
    Connection { zone, mark, labels, ..Connection::new(orig, reply) }
}

#[test]
fn a_selection_means_all_of_its_parts() {
    let orig = tuple("1.0.0.1", "1.0.0.2", 17, CtTransport::Ports { src: 5, dst: 80 });
    let c = connection(orig, 7, 0x1234, 1 << 100 | 5);
    let all = CtMatch::default();
    let mark = |value, mask| Some(Masked { value, mask });
    let labels = |value, mask| Some(Masked { value, mask });
    let src = Some("1.0.0.2".parse().unwrap());
    for (which, selects) in [
        (all, true),
        (CtMatch { zone: Some(7), ..all }, true),
        (CtMatch { zone: Some(0), ..all }, false),
        (CtMatch { mark: mark(0x1234, u32::MAX), ..all }, true),
        (CtMatch { mark: mark(0x34, 0xff), ..all }, true),
        (CtMatch { mark: mark(0x34, 0x2ff), ..all }, false),
        (CtMatch { mark: mark(0, u32::MAX), ..all }, false),
        (CtMatch { labels: labels(1 << 100, 1 << 100), ..all }, true),
        (CtMatch { labels: labels(5, u128::MAX), ..all }, false),
        (CtMatch { labels: labels(5, 0xf), mark: mark(0x33, 0xff), ..all }, false),
        (CtMatch { reply: CtTupleMatch { src, ..Default::default() }, ..all }, true),
        (CtMatch { orig: CtTupleMatch { src, ..Default::default() }, ..all }, false),
    ] {
        assert_eq!(which.matches(&c), selects, "{which:?}");
        assert_eq!(which.exact(), None, "{which:?}");
    }
    let [src, dst] = orig.addresses.both().map(Some);
    let exact =
        CtTupleMatch { src, dst, proto: 17, src_port: Some(5), dst_port: Some(80), ..Default::default() };
    for (which, named) in [
        (CtMatch { orig: exact, ..all }, Some((0, orig))),
        (CtMatch { orig: exact, zone: Some(7), ..all }, Some((7, orig))),
        (CtMatch { orig: exact, mark: mark(0, 0), ..all }, None),
        (CtMatch { orig: exact, labels: labels(0, 0), ..all }, None),
        (CtMatch { orig: exact, reply: CtTupleMatch { proto: 17, ..Default::default() }, ..all }, None),
        (CtMatch { reply: exact, ..all }, None),
    ] {
        assert_eq!(which.exact(), named, "{which:?}");
    }
}

/// A tracker with nothing but connections and limits.
struct Plain;

impl Connections for Plain {
    fn list(&self, _: Option<u16>, _: &mut dyn ConnectionSink) -> Result<(), DpifError> {
        Ok(())
    }
    fn flush(&self, _: &CtMatch) -> Result<(), DpifError> {
        Ok(())
    }
    fn limits(&self, _: &[CtZone]) -> Result<Vec<CtLimit>, DpifError> {
        Ok(Vec::new())
    }
    fn set_limits(&self, _: &[(CtZone, u32)]) -> Result<(), DpifError> {
        Ok(())
    }
    fn remove_limits(&self, _: &[CtZone]) -> Result<(), DpifError> {
        Ok(())
    }
}

#[test]
fn a_tracker_refuses_settings_that_it_lacks() {
    let refused = [
        Plain.count().err(),
        Plain.maximum().err(),
        Plain.set_maximum(1).err(),
        Plain.checks_sequences().err(),
        Plain.set_checks_sequences(true).err(),
        Plain.sweep_interval_ms().err(),
        Plain.set_sweep_interval_ms(1).err(),
        Plain.buckets().err(),
        Plain.export(CtCarry::Over).err(),
        Plain.import(&[]).err(),
        Plain.restore().err(),
        Plain.expectations(None, &mut |_| ControlFlow::Continue(())).err(),
    ];
    for error in refused {
        let Some(DpifError::Unsupported(why)) = error else { panic!("{error:?}") };
        assert!(why.starts_with("the connection tracker of this datapath has no "), "{why}");
    }
    assert!(Plain.timeout_policies().is_none() && Plain.fragments().is_none() && Plain.counters().is_empty());
    assert_eq!(Plain.statistics(1), None);
}
