//! Neighbours: expiry, limits, and the list.

use super::ip;
use crate::{AGING_DEFAULT_MS, NEIGHBOURS_MAX, Neighbours, text};
use flow::MacAddr;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

fn mac(n: u8) -> MacAddr {
    MacAddr([0xf8, 0xbc, 0x12, 0x44, 0x34, n])
}

#[test]
fn a_list_of_neighbours_has_the_layout_of_the_stock_switch() {
    let mut all = Neighbours::new();
    let long = "2001:cafe:1111:2222:3333:4444:5555:6666";
    for (bridge, address, n) in
        [("br0", "1.1.2.92", 0xb6), ("br0", long, 0xb8), ("averyveryverylongname", "1.2.3.4", 0xb9)]
    {
        assert!(all.set(0, bridge, ip(address), mac(n)));
    }
    let expected = "\
IP                                            MAC                 Bridge
==========================================================================
1.1.2.92                                      f8:bc:12:44:34:b6   br0
1.2.3.4                                       f8:bc:12:44:34:b9   averyveryverylo
2001:cafe:1111:2222:3333:4444:5555:6666       f8:bc:12:44:34:b8   br0
";
    assert_eq!(text::neighbours(&all, 0), expected);
    let stale = text::neighbours(&all, AGING_DEFAULT_MS);
    assert!(stale.contains("b6   br0 STALE\n"), "{stale}");
    assert_eq!(all.lookup(5, "averyveryverylongname", ip("1.2.3.4")), Some(mac(0xb9)));
}

#[test]
fn entries_expire_after_their_last_use() {
    let mut all = Neighbours::new();
    all.set_aging(0, 10_000);
    all.set(0, "br0", ip("1.1.2.92"), mac(1));
    assert_eq!(all.lookup(9_999, "br0", ip("1.1.2.92")), Some(mac(1)), "used");
    assert_eq!(all.lookup(9_999, "br1", ip("1.1.2.92")), None);
    assert!(!all.expire(10_000));
    assert_eq!(all.next_expiry_ms(), Some(19_999));
    assert_eq!(all.lookup(19_999, "br0", ip("1.1.2.92")), None, "no later than that");
    let changes = all.changes();
    assert!(all.expire(19_999));
    assert_eq!((all.len(), all.changes(), all.next_expiry_ms()), (0, changes + 1, None));
    // A shorter time applies to existing entries.
    all.set(20_000, "br0", ip("1.1.2.92"), mac(1));
    all.set_aging(20_000, 500);
    assert!(!all.expire(20_499) && all.expire(20_500));
}

#[test]
fn a_repeated_translation_replaces_no_address() {
    let mut all = Neighbours::new();
    assert!(all.learn(0, "br0", ip("1.1.2.92"), mac(1), false));
    assert!(!all.learn(1, "br0", ip("1.1.2.92"), mac(2), false));
    assert_eq!(all.lookup(1, "br0", ip("1.1.2.92")), Some(mac(1)));
    assert!(all.learn(2, "br0", ip("1.1.2.92"), mac(2), true));
    assert!(!all.learn(3, "br0", ip("1.1.2.92"), mac(2), true));
    assert_eq!((all.lookup(3, "br0", ip("::ffff:1.1.2.92")), all.changes()), (Some(mac(2)), 2));
}

#[test]
fn the_table_is_bounded_and_counts_refusals() {
    let mut all = Neighbours::new();
    for n in 0..NEIGHBOURS_MAX as u32 + 3 {
        all.learn(u64::from(n), "br0", IpAddr::V4(Ipv4Addr::from(n)), mac(1), true);
    }
    assert_eq!((all.len(), all.refused()), (NEIGHBOURS_MAX, 3));
    assert!(all.set(0, "br0", ip("0.0.0.5"), mac(7)), "a known one changes");
    assert!(!all.flush(Some("br1")) && all.flush(Some("br0")) && all.is_empty());
}

proptest! {
    /// Results equal those of a plain map, whose entries are examined one by one.
    #[test]
    fn random_use_equals_a_map(steps in prop::collection::vec((0..6_u8, 0..3_u8, 0..3_u8, 0..60_u64), 1..80)) {
        let mut all = Neighbours::new();
        all.set_aging(0, 100);
        let mut plain: BTreeMap<(u8, u8), (MacAddr, u64)> = BTreeMap::new();
        let mut now_ms = 0;
        for (what, host, n, pause_ms) in steps {
            now_ms += pause_ms;
            let (bridge, address) = (format!("br{}", n % 2), IpAddr::from([10, 0, 0, host]));
            let key = (host, n % 2);
            let live = plain.get(&key).filter(|(_, at)| *at > now_ms).copied();
            match what {
                0..=2 => {
                    let changed = all.learn(now_ms, &bridge, address, mac(n), what < 2);
                    let kept = live.filter(|_| what == 2).map_or(mac(n), |(mac, _)| mac);
                    prop_assert_eq!(changed, live.is_none_or(|(mac, _)| mac != kept));
                    plain.insert(key, (kept, now_ms + 100));
                }
                3..=4 => {
                    prop_assert_eq!(all.lookup(now_ms, &bridge, address), live.map(|(mac, _)| mac));
                    if let Some((mac, _)) = live {
                        plain.insert(key, (mac, now_ms + 100));
                    }
                }
                _ => {
                    let before = plain.len();
                    plain.retain(|_, (_, at)| *at > now_ms);
                    prop_assert_eq!(all.expire(now_ms), plain.len() < before);
                }
            }
            prop_assert_eq!(all.len(), plain.len());
        }
    }
}
