use super::*;

fn modes(numbers: &[u32]) -> u128 {
    numbers.iter().map(|n| 1 << n).sum()
}

#[test]
fn link_features_have_openflow_bits() {
    let full = Some(Duplex::Full);
    let link = |speed_mbps, duplex, connector| EthtoolLink {
        speed_mbps,
        duplex,
        connector,
        ..EthtoolLink::default()
    };
    for (link, current, supported, speed_mbps, speed_max_mbps) in [
        // A veth.
        (link(Some(10_000), full, TWISTED_PAIR), 1 << 6 | COPPER, 0, 10_000, 0),
        (link(Some(100), Some(Duplex::Half), TWISTED_PAIR), 1 << 2 | COPPER, 0, 100, 0),
        (link(Some(25_000), full, FIBRE), OTHER_SPEED | FIBER, 0, 25_000, 0),
        // Without carrier, and a connector without an OpenFlow bit.
        (link(None, None, 0xff), 0, 0, 0, 0),
        (
            EthtoolLink {
                autoneg: true,
                // Beside supported ones, one of 25 Gbit/s and one beyond 64.
                supported: modes(&[0, 1, 2, 3, 5, 6, 7, 13, 31, 90]),
                ..link(Some(1000), full, TWISTED_PAIR)
            },
            1 << 5 | COPPER | AUTONEG,
            0b10_1111 | AUTONEG | COPPER | 1 << 14,
            1000,
            1000,
        ),
    ] {
        let advertised = 0;
        let expected = PortFeatures { current, advertised, supported, speed_mbps, speed_max_mbps };
        assert_eq!(port_features(&link), expected, "{link:?}");
    }
}
