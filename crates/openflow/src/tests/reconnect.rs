//! Back-off, probes, limits of attempts.

use crate::reconnect::{Action, Reconnect, State};

/// One failed attempt at `now`; when the next one may begin.
fn fail(r: &mut Reconnect, now_ms: u64) -> u64 {
    assert_eq!(r.run(now_ms), Some(Action::Connect));
    r.connecting(now_ms);
    r.disconnected(now_ms);
    r.next_wakeup_ms().expect("another attempt")
}

#[test]
fn back_off_doubles_up_to_the_maximum() {
    let mut r = Reconnect::new(0);
    assert_eq!(r.run(0), None);
    r.enable(0);
    let mut now = 0;
    for expected in [1_000, 2_000, 4_000, 8_000, 8_000] {
        let next = fail(&mut r, now);
        assert_eq!(next - now, expected);
        assert_eq!(r.run(next - 1), None);
        now = next;
    }
}

#[test]
fn a_connection_that_worked_starts_the_back_off_anew() {
    let mut r = Reconnect::new(0);
    r.enable(0);
    let mut now = fail(&mut r, 0);
    now = fail(&mut r, now);
    r.connecting(now);
    r.connected(now);
    assert_eq!(r.state(), State::Active);
    r.disconnected(now + 1);
    assert_eq!(r.backoff_ms(), 4_000, "up for a moment only");
    now += 5_000;
    r.connecting(now);
    r.connected(now);
    r.activity(now + 9_000);
    r.disconnected(now + 9_001);
    assert_eq!(r.backoff_ms(), 1_000);
    assert_eq!(r.last_disconnected_ms(), Some(now + 9_001));
}

#[test]
fn attempts_time_out_and_silence_is_probed() {
    let mut r = Reconnect::new(0);
    r.enable(0);
    r.connecting(0);
    assert_eq!((r.run(999), r.run(1_000)), (None, Some(Action::Disconnect)));
    r.disconnected(1_000);
    r.connecting(2_000);
    r.connected(2_100);
    assert_eq!((r.run(7_099), r.run(7_100)), (None, Some(Action::Probe)));
    assert_eq!(r.state(), State::Idle);
    assert_eq!(r.run(7_101), None);
    r.activity(7_200);
    assert_eq!((r.state(), r.run(12_199)), (State::Active, None));
    assert_eq!(r.run(12_200), Some(Action::Probe));
    assert_eq!(r.run(17_200), Some(Action::Disconnect));
}

#[test]
fn attempts_can_be_limited_and_ended() {
    let mut r = Reconnect::new(0);
    r.set_max_tries(Some(2));
    r.enable(0);
    let next = fail(&mut r, 0);
    assert_eq!(r.run(next), Some(Action::Connect));
    r.connecting(next);
    r.disconnected(next);
    assert_eq!((r.state(), r.next_wakeup_ms()), (State::Void, None));
    r.set_max_tries(None);
    r.enable(next);
    r.disable(next);
    assert_eq!(r.run(u64::MAX), None);
}
