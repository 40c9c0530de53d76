//! Neighbours: expiry, limits, and the list.

use super::ip;
use crate::{AGING_DEFAULT_MS, NEIGHBOURS_MAX, Neighbour, Neighbours, UNASKED_MAX, text};
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
fn a_packet_replaces_an_address() {
    let mut all = Neighbours::new();
    assert!(all.learn(0, "br0", ip("1.1.2.92"), mac(1)));
    assert!(all.learn(2, "br0", ip("1.1.2.92"), mac(2)));
    assert!(!all.learn(3, "br0", ip("1.1.2.92"), mac(2)));
    assert_eq!((all.lookup(3, "br0", ip("::ffff:1.1.2.92")), all.changes()), (Some(mac(2)), 2));
}

fn host(n: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from(n as u32))
}

#[test]
fn announced_neighbours_leave_those_asked_for_their_room() {
    let mut all = Neighbours::new();
    assert_eq!(all.lookup(0, "br0", host(1)), None);
    assert!(all.learn(0, "br0", host(1), mac(1)), "an answer");
    assert!(all.set(0, "br0", host(2), mac(2)), "a command");
    assert!(all.learn(0, "br0", host(3), mac(3)));
    assert_eq!(all.lookup(0, "br0", host(3)), Some(mac(3)), "asked for later");
    assert!(all.learn(0, "br1", host(1), mac(4)), "another bridge");
    // A host announces many; one that a lookup missed answers among them.
    for n in 0..2 * UNASKED_MAX {
        assert!(all.learn(1, "br0", host(10 + n), mac(9)), "{n}");
    }
    assert_eq!(all.lookup(1, "br0", host(5)), None);
    assert!(all.learn(2, "br0", host(5), mac(5)));
    for n in 0..2 * UNASKED_MAX {
        all.learn(3, "br0", host(100_000 + n), mac(9));
    }
    assert_eq!((all.len(), all.refused()), (5 + UNASKED_MAX, 0));
    assert_eq!(all.evicted(), 3 * UNASKED_MAX as u64);
    for (bridge, n, expected) in [("br0", 1, 1), ("br0", 2, 2), ("br0", 3, 3), ("br0", 5, 5), ("br1", 1, 4)] {
        assert_eq!(all.lookup(4, bridge, host(n)), Some(mac(expected)), "{bridge} {n}");
    }
    let newest = host(100_000 + 2 * UNASKED_MAX - 1);
    assert_eq!(all.lookup(4, "br0", newest), Some(mac(9)), "the newest of the announced");
    assert!(!all.flush(Some("br2")) && all.flush(Some("br0")));
    assert_eq!(all.len(), 1);
}

#[test]
fn a_table_full_of_neighbours_asked_for_refuses_and_counts() {
    let mut all = Neighbours::new();
    for n in 0..UNASKED_MAX {
        all.learn(0, "br1", host(n), mac(9));
    }
    for n in 0..NEIGHBOURS_MAX {
        assert_eq!(all.lookup(1, "br0", host(n)), None);
        assert!(all.learn(1, "br0", host(n), mac(1)), "{n}: in place of one that nobody asked for");
    }
    assert_eq!((all.len(), all.evicted(), all.refused()), (NEIGHBOURS_MAX, UNASKED_MAX as u64, 0));
    assert!(!all.learn(1, "br0", host(NEIGHBOURS_MAX), mac(1)));
    assert!(!all.set(1, "br1", host(0), mac(1)));
    assert_eq!((all.len(), all.refused()), (NEIGHBOURS_MAX, 2));
    assert!(all.set(1, "br0", host(5), mac(7)), "a known one changes");
    assert!(all.expire(1 + AGING_DEFAULT_MS) && all.is_empty());
    assert!(all.learn(2 + AGING_DEFAULT_MS, "br0", host(1), mac(1)));
}

#[test]
fn another_process_inherits_all_with_their_time() {
    let mut old = Neighbours::new();
    old.set_aging(0, 1000);
    old.learn(0, "br0", host(1), mac(1));
    old.set(0, "br0", host(2), mac(2));
    old.learn(400, "br1", host(1), mac(3));
    let mut new = Neighbours::new();
    new.set_aging(50_000, 1000);
    for n in old.list(600) {
        assert!(new.inherit(50_600, &n));
        assert!(!new.inherit(50_600, &n), "nothing changes the second time");
    }
    let all = new.list(50_600);
    assert_eq!(all, old.list(600));
    assert_eq!(
        all.iter().map(|n| (n.left_ms, n.is_asked)).collect::<Vec<_>>(),
        [(400, false), (800, false), (400, true)]
    );
    assert!(new.expire(51_000) && new.len() == 1);
    assert_eq!(new.lookup(51_001, "br1", host(1)), Some(mac(3)));
    let expired = Neighbour { left_ms: 0, ..all[0].clone() };
    assert!(!new.inherit(51_000, &expired));
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
                    let changed = all.learn(now_ms, &bridge, address, mac(n));
                    prop_assert_eq!(changed, live.is_none_or(|(known, _)| known != mac(n)));
                    plain.insert(key, (mac(n), now_ms + 100));
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
