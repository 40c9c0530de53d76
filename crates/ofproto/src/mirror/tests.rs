//! Tests of mirrors.

use super::*;
use flow::text::parse_exact_flow;

fn mirror(place: u8, output: MirrorOutput) -> Mirror {
    Mirror {
        id: place.into(),
        place,
        name: format!("m{place}"),
        output,
        vlans: None,
        snaplen: 0,
        filter: None,
        counters: Arc::default(),
    }
}

#[test]
fn a_set_has_a_bit_for_each_place() {
    let (one, two) = (BundleId(1), BundleId(2));
    let selected =
        |received: &[BundleId], sent: &[BundleId]| Selected { received: received.into(), sent: sent.into() };
    let to = MirrorOutput::Bundle;
    let mirrors = Mirrors::new([
        (mirror(0, to(two)), selected(&[one], &[])),
        (mirror(3, to(two)), selected(&[one], &[one])),
        (mirror(5, MirrorOutput::Vlan(7)), selected(&[], &[one])),
        (mirror(3, to(one)), selected(&[two], &[two])),
        (mirror(32, to(one)), selected(&[two], &[two])),
    ]);
    assert_eq!(mirrors.of(one), BundleMirrors { of_received: 0b1001, of_sent: 0b10_1000, into: 0 });
    assert_eq!(mirrors.of(two), BundleMirrors { of_received: 0, of_sent: 0, into: 0b1001 });
    assert_eq!(mirrors.of(BundleId(9)), BundleMirrors::default());
    assert_eq!([0, 1, 3, 5, 31].map(|place| mirrors.same_output(place)), [0b1001, 0, 0b1001, 0b10_0000, 0]);
    assert_eq!(mirrors.iter().map(|mirror| mirror.place).collect::<Vec<_>>(), [0, 3, 5]);
    assert!(Mirrors::default().is_empty() && !mirrors.is_empty());
}

/// The texts are those that OVS 3.5 logs.
#[test]
fn filters_are_exact_flows_or_matches() {
    for (text, fault) in [
        ("tcp", ""),
        ("", ""),
        ("tcp,", ""),
        ("ip,nw_src=10.0.0.1/32", ""),
        ("tcp tp_dst=80", ""),
        ("reg0=5", ""),
        ("nw_src=10.0.0.1", "filter is invalid: nw_src=10.0.0.1: prerequisites not met for setting nw_src"),
        ("in_port=1", "filter is invalid due to in_port field."),
        ("foo=1", "filter is invalid: foo=1: unknown field foo"),
        (
            "ip,nw_proto=6,nw_proto=17",
            "filter is invalid: ip,nw_proto=6,nw_proto=17: field nw_proto set multiple times",
        ),
        ("tcp,actions=drop", "filter is invalid: tcp,actions=drop: unknown field actions"),
        // OVS takes no masks.
        ("tcp,nw_src=10.0.0.0/8", ""),
        ("tcp,tcp_flags=+syn", ""),
        ("dl_dst=01:00:00:00:00:00/01:00:00:00:00:00", ""),
        ("in_port=1,tcp,nw_src=10.0.0.0/8", "filter is invalid due to in_port field."),
    ] {
        let told = MirrorFilter::parse(text).err().unwrap_or_default();
        assert_eq!(told, fault, "{text}");
    }
    let flow = |text: &str| parse_exact_flow(text, &NoPortNames).unwrap();
    let of_ten = MirrorFilter::parse("tcp,nw_src=10.0.0.0/8").unwrap();
    assert!(of_ten.passes(&flow("tcp,nw_src=10.2.3.4,tp_dst=5")));
    assert!(!of_ten.passes(&flow("tcp,nw_src=11.2.3.4")) && !of_ten.passes(&flow("udp,nw_src=10.2.3.4")));
}
