//! Members, delays, choices, loads and texts. Expectations are those of OVS 3.5.

use super::*;
use flow::{Flow, Mask};
use proptest::prelude::*;

fn link(name: &str, up: bool) -> MemberLink {
    let n: u32 = name[1..].parse().unwrap();
    MemberLink {
        name: name.to_string(),
        port: OfPort(n),
        mac: MacAddr([2, 0, 0, 0, 0, n as u8]),
        carrier: up,
        may_enable: up,
    }
}

fn bond(settings: BondSettings, members: u32) -> Bond {
    let bond = Bond::new("bond0", settings, 0);
    let links: Vec<MemberLink> = (1..=members).map(|n| link(&format!("p{n}"), true)).collect();
    let outcome = bond.update(0, |state| state.set_members(&links));
    assert!(outcome.changed);
    bond
}

fn mode(mode: BondMode) -> BondSettings {
    BondSettings { mode, rebalance_ms: 10_000, ..BondSettings::default() }
}

fn set(bond: &Bond, now_ms: u64, name: &str, up: bool) -> Outcome {
    bond.update(now_ms, |state| assert!(state.set_link(name, up, up)))
}

fn way(bond: &Bond, src: u8) -> Option<Way> {
    let flow = Flow { dl_src: [2, 0, 0, 0, 1, src], ..Flow::default() };
    bond.state().way_out(&flow, 0, true, &mut Mask::default())
}

fn active(bond: &Bond) -> Option<u32> {
    bond.state().active_port().map(|port| port.0)
}

#[test]
fn another_member_takes_the_place_of_one_without_link() {
    let bond = bond(mode(BondMode::ActiveBackup), 3);
    assert_eq!((active(&bond), way(&bond, 1)), (Some(1), Some(Way::Member(OfPort(1), None))));
    let outcome = set(&bond, 5, "p1", false);
    assert!(outcome.changed && outcome.announce, "{outcome:?}");
    assert_eq!(
        outcome.lines,
        ["member p1: link state down", "member p1: disabled", "bond bond0: active member is now p2"]
    );
    assert_eq!(active(&bond), Some(2));
    // It stays when the former one returns.
    assert!(set(&bond, 6, "p1", true).changed);
    assert_eq!(active(&bond), Some(2));
    assert_eq!(set(&bond, 7, "p3", true), Outcome::default());
    for (n, lines) in [("p2", 3), ("p1", 3), ("p3", 3)] {
        assert_eq!(set(&bond, 8, n, false).lines.len(), lines, "{n}");
    }
    assert_eq!((active(&bond), way(&bond, 1)), (None, None));
    assert_eq!(bond.state().active_mac(), MacAddr::default());
    set(&bond, 9, "p3", true);
    assert_eq!(active(&bond), Some(3));
}

#[test]
fn a_delay_passes_before_a_member_changes() {
    let bond = bond(BondSettings { updelay_ms: 100, downdelay_ms: 50, ..mode(BondMode::ActiveBackup) }, 2);
    let outcome = set(&bond, 10, "p1", false);
    assert!(!outcome.changed);
    assert_eq!(
        outcome.lines,
        ["member p1: link state down", "member p1: will be disabled if it stays down for 50 ms"]
    );
    assert_eq!((active(&bond), bond.state().next_wakeup_ms()), (Some(1), Some(60)));
    assert!(bond.show(20).contains("member p1: enabled\n  active member\n  downdelay expires in 40 ms\n"));
    assert_eq!(
        set(&bond, 30, "p1", true).lines,
        ["member p1: link state up", "member p1: will not be disabled"]
    );
    set(&bond, 40, "p1", false);
    assert!(!bond.update(89, |_| ()).changed);
    assert!(bond.update(90, |_| ()).changed);
    assert_eq!(active(&bond), Some(2));
    set(&bond, 100, "p1", true);
    assert!(bond.show(110).contains("member p1: disabled\n  updelay expires in 90 ms\n  may_enable: true\n"));
    // Without any other, the delay is skipped.
    set(&bond, 120, "p2", false);
    let lines = bond.update(170, |_| ()).lines;
    assert_eq!(
        lines[1],
        "bond bond0: active member is now p1, skipping remaining 30 ms updelay (since no member was enabled)"
    );
    assert_eq!(active(&bond), Some(1));
}

#[test]
fn the_primary_is_active_while_it_works() {
    let bond = bond(BondSettings { primary: Some("p2".into()), ..mode(BondMode::ActiveBackup) }, 2);
    assert_eq!(active(&bond), Some(2));
    set(&bond, 1, "p2", false);
    assert_eq!(active(&bond), Some(1));
    set(&bond, 2, "p2", true);
    assert_eq!(active(&bond), Some(2));
    assert!(bond.show(0).contains("active-backup primary: p2\n"));
    let other = BondSettings { primary: Some("px".into()), ..mode(BondMode::ActiveBackup) };
    assert!(bond.update(3, |state| state.configure(other, 3)).changed);
    assert!(bond.show(3).contains("active-backup primary: px (no such member)\n"));
    assert_eq!(active(&bond), Some(2));
}

#[test]
fn the_active_member_is_the_one_of_before_a_restart() {
    let before = BondSettings { active_mac: Some(link("p3", true).mac), ..mode(BondMode::ActiveBackup) };
    assert_eq!(active(&bond(before, 4)), Some(3));
}

#[test]
fn a_removed_member_leaves_its_place() {
    let bond = bond(mode(BondMode::BalanceSlb), 2);
    (0..50).for_each(|n| _ = way(&bond, n));
    let outcome = bond.update(1, |state| state.set_members(&[link("p2", true)]));
    assert!(outcome.changed && outcome.announce);
    assert_eq!(active(&bond), Some(2));
    for n in 0..50 {
        assert!(matches!(way(&bond, n), Some(Way::Member(OfPort(2), Some(_)))));
    }
    assert!(!bond.update(1, |state| assert!(!state.set_link("p1", true, true))).changed);
}

#[test]
fn addresses_are_spread_over_members_in_turn() {
    let bond = bond(mode(BondMode::BalanceSlb), 2);
    let mut wc = Mask::default();
    let flow = Flow { dl_src: [0x50, 0x54, 0, 0, 0, 5], ..Flow::default() };
    let first = bond.state().way_out(&flow, 10, true, &mut wc);
    assert_eq!((first, wc.0.dl_src), (Some(Way::Member(OfPort(1), Some(64))), [0xff; 6]));
    assert!(matches!(way(&bond, 1), Some(Way::Member(OfPort(2), _))));
    assert!(matches!(way(&bond, 2), Some(Way::Member(OfPort(1), _))));
    assert_eq!(bond.state().way_out(&flow, 10, true, &mut wc), first, "it stays");
    for (hash, name, answer) in [
        ("64", "p2", Ok("migrated")),
        ("320", "p2", Ok("migrated")),
        ("x", "p2", Err("bad hash")),
        ("64", "p7", Err("no such member")),
    ] {
        assert_eq!(bond.state().migrate(hash, name), answer);
    }
    assert_eq!(bond.state().way_out(&flow, 10, true, &mut wc), Some(Way::Member(OfPort(2), Some(64))));
    set(&bond, 1, "p2", false);
    assert_eq!(bond.state().way_out(&flow, 10, true, &mut wc), Some(Way::Member(OfPort(1), Some(64))));
    assert_eq!(bond.state().migrate("64", "p2"), Err("cannot migrate to disabled member"));
}

#[test]
fn balance_tcp_needs_a_partner() {
    let with_lacp = BondSettings { lacp: true, ..mode(BondMode::BalanceTcp) };
    let alone = bond(mode(BondMode::BalanceTcp), 2);
    let asking = bond(with_lacp.clone(), 2);
    let falling = bond(BondSettings { fallback_ab: true, ..with_lacp }, 2);
    assert_eq!((way(&alone, 1), way(&asking, 1)), (None, None));
    assert_eq!(way(&falling, 1), Some(Way::Member(OfPort(1), None)));
    let unicast = MacAddr([2, 0, 0, 0, 0, 9]);
    for (bond, expected) in [
        (&alone, [Admission::Refused; 2]),
        (&asking, [Admission::Refused; 2]),
        (&falling, [Admission::Accepted, Admission::Refused]),
    ] {
        assert_eq!([1, 2].map(|n| bond.state().admits(OfPort(n), unicast)), expected);
    }
    for bond in [&asking, &falling] {
        let outcome = bond.update(1, |state| state.set_lacp(LacpStatus::Negotiated, 1));
        assert!(outcome.changed);
        assert!(matches!(way(bond, 1), Some(Way::Hashed { basis: 0, lb_output: false, .. })));
        let mut state = bond.state();
        assert_eq!([1, 2].map(|n| state.admits(OfPort(n), unicast)), [Admission::Accepted; 2]);
        let hashed = state.all_hashed().expect("each has a member");
        assert_eq!([1, 2].map(|n| hashed.iter().filter(|port| port.0 == n).count()), [128, 128]);
    }
    assert!(asking.show(0).contains("bond may use recirculation: yes, Recirc-ID : 0\n"));
    assert!(asking.show(0).contains("lacp_status: negotiated\n"));
}

#[test]
fn packets_are_taken_from_the_right_members() {
    let (unicast, multicast) = (MacAddr([2, 0, 0, 0, 0, 9]), MacAddr([0xff; 6]));
    use Admission::{Accepted, Refused, UnlessMoved};
    for (settings, expected) in [
        (mode(BondMode::ActiveBackup), [Accepted, Refused, Accepted, Refused]),
        (
            BondSettings { all_members_active: true, ..mode(BondMode::ActiveBackup) },
            [Accepted, Refused, Accepted, Refused],
        ),
        (mode(BondMode::BalanceSlb), [UnlessMoved, UnlessMoved, UnlessMoved, Refused]),
        (
            BondSettings { all_members_active: true, ..mode(BondMode::BalanceSlb) },
            [UnlessMoved, UnlessMoved, UnlessMoved, UnlessMoved],
        ),
    ] {
        let bond = bond(settings.clone(), 2);
        let state = bond.state();
        let taken = [(unicast, 1), (unicast, 2), (multicast, 1), (multicast, 2)]
            .map(|(dst, port)| state.admits(OfPort(port), dst));
        assert_eq!(taken, expected, "{settings:?}");
        assert_eq!(state.admits(OfPort(7), unicast), Refused, "no member");
    }
}

#[test]
fn commands_change_members() {
    let bond = bond(mode(BondMode::ActiveBackup), 2);
    for (name, answer) in [("p1", Ok("no change")), ("p2", Ok("done")), ("p9", Err("no such member"))] {
        assert_eq!(bond.state().make_active(name), answer);
    }
    assert_eq!(active(&bond), Some(2));
    // A disabled member with a link is enabled again, after the delay.
    let later = BondSettings { updelay_ms: 5000, ..mode(BondMode::ActiveBackup) };
    bond.update(1, |state| state.configure(later, 1));
    assert!(bond.update(1, |state| assert_eq!(state.set_enabled("p1", false), Ok("disabled"))).changed);
    assert_eq!(bond.state().make_active("p1"), Err("cannot make disabled member active"));
    assert!(bond.show(2).contains("member p1: disabled\n  updelay expires in 4999 ms\n"));
    assert!(bond.update(5001, |_| ()).changed);
    assert_eq!(bond.state().migrate("1", "p2"), Err("not an SLB bond"));
    assert_eq!(bond.state().set_enabled("p9", true), Err("no such member"));
}

#[test]
fn the_text_is_that_of_ovs() {
    let bond = bond(mode(BondMode::BalanceSlb), 2);
    bond.state().account(slb_hash(MacAddr([2, 0, 0, 0, 1, 1]), 0, 0), 1, 5000);
    way(&bond, 1);
    let hash = slb_hash(MacAddr([2, 0, 0, 0, 1, 1]), 0, 0);
    assert_eq!(
        bond.show(13),
        format!(
            "---- bond0 ----
bond_mode: balance-slb
bond may use recirculation: no, Recirc-ID : -1
bond-hash-basis: 0
lb_output action: disabled, bond-id: -1
all members active: false
updelay: 0 ms
downdelay: 0 ms
next rebalance: 9987 ms
lacp_status: off
lacp_fallback_ab: false
active-backup primary: <none>
active member mac: 02:00:00:00:00:01(p1)

member p1: enabled
  active member
  may_enable: true
  hash {hash}: 4 kB load

member p2: enabled
  may_enable: true

"
        )
    );
}

/// Loads of the members after a rebalancing.
fn loads(bond: &Bond, members: u32) -> Vec<u64> {
    let mut state = bond.state();
    let of = |state: &mut State, port: u32| {
        let buckets = state.buckets.as_ref().unwrap();
        let owned = buckets
            .iter()
            .filter(|b| b.member.and_then(|id| state.member(id)).is_some_and(|m| m.port == OfPort(port)));
        owned.map(|b| b.bytes).sum()
    };
    (1..=members).map(|n| of(&mut state, n)).collect()
}

/// A bond with loads of hash values, given their members in turn.
fn loaded(members: u32, bytes: &[u64]) -> Bond {
    let bond = bond(mode(BondMode::BalanceSlb), members);
    let mut state = bond.state();
    for (hash, bytes) in (0..=u8::MAX).zip(bytes) {
        let id = state.next_in_turn();
        state.buckets.as_mut().unwrap()[usize::from(hash)].member = id;
        state.account(hash, 1, *bytes);
    }
    drop(state);
    bond
}

#[test]
fn load_moves_only_where_that_helps() {
    for (bytes, moved) in [
        // One value of two at the loaded member.
        (&[400_000, 0, 300_000, 0][..], true),
        // Below a megabit a second, or three percent.
        (&[90_000, 0, 9_000, 0], false),
        (&[5_000_000, 5_000_000, 120_000, 0], false),
        // A single value helps nobody elsewhere.
        (&[4_000_000, 0, 0, 0], false),
        // A move that only exchanges the loads.
        (&[4_000_000, 0, 1, 0], false),
    ] {
        let bond = loaded(2, bytes);
        let before = loads(&bond, 2);
        bond.state().rebalance(9_999);
        assert_eq!(loads(&bond, 2), before, "not due");
        let outcome = bond.update(10_000, |state| state.rebalance(10_000));
        assert_eq!(outcome.changed, moved, "{bytes:?}: {outcome:?}");
        let half: Vec<u64> = before.iter().map(|bytes| bytes / 2).collect();
        if !moved {
            assert!(loads(&bond, 2).iter().zip(half).all(|(now, half)| now.abs_diff(half) < 2));
        }
        assert_eq!(bond.state().rebalance_at_ms(), Some(20_000));
    }
    let bond = loaded(2, &[400_000, 0, 300_000, 0]);
    let lines = bond.update(10_000, |state| state.rebalance(10_000)).lines;
    assert_eq!(
        lines,
        [
            "bond bond0: shift 292kB of load (with hash 2) from p1 to p2 (now carrying 390kB and 292kB load, respectively)"
        ]
    );
}

/// Loads of hash values at two members, and the moved ones in their order, as OVS 3.5 logs them.
#[test]
fn many_light_values_move_together() {
    let all_at_one = |loads: &[u64]| loads.iter().flat_map(|kb| [*kb, 0]).collect::<Vec<_>>();
    let light = all_at_one(&[30; 30]);
    for (kb, moved) in [
        (&light[..], &[0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26][..]),
        (&all_at_one(&[390, 6]), &[]),
        (&all_at_one(&[390, 20]), &[]),
        (&all_at_one(&[390, 50]), &[2]),
        (&all_at_one(&[500, 200, 200]), &[2, 4]),
        (&all_at_one(&[600, 14, 12, 12]), &[2, 4, 6]),
        (&all_at_one(&[100; 7]), &[0, 2, 4]),
        (&all_at_one(&[300, 150, 10, 10, 10, 10]), &[2, 4, 6, 8, 10]),
        (&[400, 300, 390, 0, 380], &[0]),
        // One goes beyond the middle.
        (&[400, 100, 400], &[2]),
        (&[420, 100, 500], &[0]),
        (&[260, 100, 250, 0, 40], &[4, 2]),
        // OVS moves none of these.
        (&[500, 100, 440, 0, 30], &[2]),
    ] {
        let bond = loaded(2, &kb.iter().map(|kb| kb * 1024).collect::<Vec<_>>());
        let lines = bond.update(10_000, |state| state.rebalance(10_000)).lines;
        let hash = |line: &String| line.split("hash ").nth(1)?.split(')').next()?.parse::<usize>().ok();
        let shifted: Vec<usize> = lines.iter().filter_map(hash).collect();
        assert_eq!(shifted, moved, "{kb:?}: {lines:?}");
    }
}

proptest! {
    /// A rebalancing never makes the most loaded member carry more, nor loses or doubles any load.
    #[test]
    fn rebalancing_evens_loads(
        members in 2u32..6,
        bytes in proptest::collection::vec(0u64..5_000_000, 1..256),
    ) {
        let bond = loaded(members, &bytes);
        let before = loads(&bond, members);
        bond.update(10_000, |state| state.rebalance(10_000));
        let after = loads(&bond, members);
        let spread = |loads: &[u64]| loads.iter().max().unwrap() - loads.iter().min().unwrap();
        prop_assert!(spread(&after) <= spread(&before) / 2 + 256, "{before:?} {after:?}");
        let sums = (before.iter().sum::<u64>() / 2, after.iter().sum::<u64>());
        prop_assert!(sums.0.abs_diff(sums.1) <= 256);
    }

    /// Whatever happens, packets leave by enabled members, and the active member is one of them.
    #[test]
    fn packets_leave_by_enabled_members(
        which in 0usize..3,
        delays in (0u64..50, 0u64..50),
        events in proptest::collection::vec((1u32..5, any::<bool>(), 0u64..40, any::<u8>()), 0..60),
    ) {
        let mode = [BondMode::ActiveBackup, BondMode::BalanceSlb, BondMode::BalanceTcp][which];
        let lacp = mode == BondMode::BalanceTcp;
        let settings =
            BondSettings { mode, updelay_ms: delays.0, downdelay_ms: delays.1, lacp, ..BondSettings::default() };
        let bond = bond(settings, 4);
        bond.update(0, |state| state.set_lacp(if lacp { LacpStatus::Negotiated } else { LacpStatus::Off }, 0));
        let mut now_ms = 0;
        for (n, up, pause_ms, src) in events {
            now_ms += pause_ms;
            set(&bond, now_ms, &format!("p{n}"), up);
            let chosen = way(&bond, src).map(|way| match way {
                Way::Member(port, _) | Way::Hashed { member: port, .. } => port,
            });
            let mut state = bond.state();
            let enabled = |port: OfPort| state.members.iter().any(|m| m.port == port && m.enabled);
            prop_assert_eq!(chosen.is_some(), state.members.iter().any(|m| m.enabled));
            prop_assert!(chosen.is_none_or(enabled));
            prop_assert!(state.active_port().is_none_or(enabled));
            if let Some(all) = state.all_hashed() {
                let enabled: Vec<OfPort> = state.members.iter().filter(|m| m.enabled).map(|m| m.port).collect();
                prop_assert!(all.iter().all(|port| enabled.contains(port)));
            }
        }
    }
}
