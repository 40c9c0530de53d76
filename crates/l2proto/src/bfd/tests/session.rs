//! Tests of one session, and of the set of all.

use super::*;
use crate::bfd::message::MESSAGE_BYTES;
use std::ops::RangeInclusive;

/// Draws from a fixed list of one jitter, and counts the packets that a test says.
pub(super) struct Fixed {
    jitter: u32,
    rx_packets: u64,
    asked: u32,
}

impl Environment for Fixed {
    fn rx_packets(&mut self, _: SessionId) -> u64 {
        self.asked += 1;
        self.rx_packets
    }

    fn random(&mut self, below: u32) -> u32 {
        self.jitter.min(below - 1)
    }
}

pub(super) fn fixed() -> Fixed {
    Fixed { jitter: 0, rx_packets: 0, asked: 0 }
}

const MINE: u32 = 0x11;
const THEIRS: u32 = 0x22;

fn session(config: Config) -> Session {
    let identity = Identity {
        id: SessionId(1),
        name: "p1".to_owned(),
        discriminator: MINE,
        src_port: 49152,
        port_mac: MacAddr([2; 6]),
    };
    Session::new(identity, Config { enable: true, ..config }, 1000, &mut fixed())
}

/// A packet of the other system.
fn theirs(state: State, flags: Flags) -> Message {
    Message {
        state,
        flags,
        my_discriminator: THEIRS,
        your_discriminator: MINE,
        min_tx_us: 100_000,
        min_rx_us: 100_000,
        ..sent_by_ovs()
    }
}

fn input(session: &mut Session, message: &Message, now_ms: u64) -> Result<(), Refusal> {
    let received = Received { ttl: 255, payload: Some(&message.to_bytes()) };
    session.input(received, now_ms, &mut fixed())
}

/// A session that is up since 1000, and hears 100 ms.
fn up(config: Config) -> Session {
    let mut session = session(config);
    input(&mut session, &theirs(State::Init, Flags::NONE), 1000).unwrap();
    assert_eq!(session.state().0, State::Up);
    session
}

fn sent(session: &mut Session, now_ms: u64) -> Option<Message> {
    let transmission = session.poll_transmit(now_ms, &mut fixed())?;
    Some(Message::parse(udp_payload(&transmission.frame).unwrap()).unwrap())
}

/// RFC 5880 §6.8.6: the state before, the received state, the state after.
#[test]
fn transitions_are_those_of_the_rfc() {
    use State::{AdminDown, Down, Init, Up};
    let cases = [
        (Down, AdminDown, Down),
        (Down, Down, Init),
        (Down, Init, Up),
        (Down, Up, Down),
        (Init, AdminDown, Down),
        (Init, Down, Init),
        (Init, Init, Up),
        (Init, Up, Up),
        (Up, AdminDown, Down),
        (Up, Down, Down),
        (Up, Init, Up),
        (Up, Up, Up),
    ];
    for (before, received, after) in cases {
        let mut session = session(Config::default());
        let path = match before {
            Init => [Down].as_slice(),
            Up => [Init].as_slice(),
            _ => [].as_slice(),
        };
        for state in path {
            input(&mut session, &theirs(*state, Flags::NONE), 1000).unwrap();
        }
        assert_eq!(session.state().0, before);
        input(&mut session, &theirs(received, Flags::NONE), 1001).unwrap();
        let diagnostic =
            if before > Down && after == Down { Diagnostic::REMOTE_DOWN } else { Diagnostic::NONE };
        assert_eq!(session.state(), (after, diagnostic), "{before} {received}");
    }
}

#[test]
fn foreign_packets_change_nothing() {
    let mut session = up(Config::default());
    let before = session.show(1001);
    let message = theirs(State::Down, Flags::NONE);
    let other = Message { your_discriminator: 5, ..message };
    assert_eq!(input(&mut session, &other, 1001), Err(Refusal::YourDiscriminator(5)));
    let bytes = message.to_bytes();
    let cases = [
        (254, Some(&bytes[..]), Refusal::TimeToLive(254)),
        (255, None, Refusal::NoPayload),
        (255, Some(&bytes[..MESSAGE_BYTES - 1]), Refusal::TooShort(23)),
    ];
    for (ttl, payload, refusal) in cases {
        let refused = session.input(Received { ttl, payload }, 1001, &mut fixed());
        assert_eq!(refused, Err(refusal));
    }
    assert_eq!(session.show(1001), before);
}

/// The session goes down at the end of the detection time, not before.
#[test]
fn detection_takes_the_remote_multiplier_times_the_slower_interval() {
    // Local min_rx, remote min_tx, remote multiplier, detection time.
    let cases =
        [(1000, 100, 3, 3000), (100, 100, 3, 300), (100, 700, 2, 1400), (1, 1, 1, 1), (50, 7, 255, 12750)];
    for (min_rx_ms, their_tx_ms, multiplier, detection_ms) in cases {
        let mut session = up(Config { min_rx_ms, ..Config::default() });
        let message = Message { min_tx_us: their_tx_ms * 1000, multiplier, ..theirs(State::Up, Flags::NONE) };
        input(&mut session, &message, 2000).unwrap();
        session.tick(2000 + detection_ms - 1, &mut fixed());
        assert_eq!(session.state().0, State::Up);
        session.tick(2000 + detection_ms, &mut fixed());
        assert_eq!(session.state(), (State::Down, Diagnostic::EXPIRED));
    }
}

/// The multiplier, and the permitted intervals of 1000 ms.
#[test]
fn jitter_takes_up_to_a_quarter_of_the_interval() {
    let cases: [(u8, RangeInclusive<u64>); 3] = [(3, 750..=1000), (1, 750..=900), (2, 750..=1000)];
    for (multiplier, expected) in cases {
        let mut seen: Vec<u64> = Vec::new();
        for jitter in 0..30 {
            let mut session = session(Config { multiplier, ..Config::default() });
            session.poll_transmit(5000, &mut Fixed { jitter, ..fixed() }).unwrap();
            seen.push(session.next_wakeup() - 5000);
        }
        let range = seen.iter().min().copied().zip(seen.iter().max().copied());
        assert_eq!(range, Some((*expected.start(), *expected.end())), "multiplier {multiplier}");
    }
}

#[test]
fn a_poll_is_answered_at_once_and_ended_by_its_answer() {
    let mut session = up(Config::default());
    assert!(sent(&mut session, 1000).is_some());
    assert_eq!(sent(&mut session, 1001), None);
    input(&mut session, &theirs(State::Up, Flags::POLL), 1002).unwrap();
    assert_eq!(session.next_wakeup(), 0);
    assert_eq!(sent(&mut session, 1002).unwrap().flags, Flags::FINAL);
    assert_eq!(sent(&mut session, 1002), None);
    // Another interval is asked for until the answer, then in force.
    session.configure(Config { min_tx_ms: 400, enable: true, ..Config::default() }, 1003, &mut fixed());
    for now_ms in [1003, 1103] {
        let poll = sent(&mut session, now_ms).unwrap();
        assert_eq!((poll.flags, poll.min_tx_us), (Flags::POLL, 400_000));
        assert_eq!(session.tx_interval_ms(), 100);
    }
    input(&mut session, &theirs(State::Up, Flags::FINAL), 1110).unwrap();
    assert_eq!(session.tx_interval_ms(), 400);
    // An answer to a poll goes before a poll of this system, which starts again after it.
    session.configure(Config { min_tx_ms: 500, enable: true, ..Config::default() }, 1110, &mut fixed());
    input(&mut session, &theirs(State::Up, Flags::POLL), 1110).unwrap();
    assert_eq!(sent(&mut session, 1110).unwrap().flags, Flags::FINAL);
    session.tick(1110, &mut fixed());
    assert_eq!(sent(&mut session, 1110).unwrap().flags, Flags::POLL);
    session.configure(Config { min_tx_ms: 400, enable: true, ..Config::default() }, 1110, &mut fixed());
    // An answer without a poll means nothing.
    input(&mut session, &theirs(State::Up, Flags::FINAL), 1110).unwrap();
    session.tick(1110, &mut fixed());
    input(&mut session, &theirs(State::Up, Flags::FINAL), 1110).unwrap();
    input(&mut session, &theirs(State::Up, Flags::FINAL), 1111).unwrap();
    assert_eq!(session.tx_interval_ms(), 400);
}

/// RFC 5880 §6.8.3: a longer receive interval counts at once, a shorter one after the poll; sending is the reverse.
#[test]
fn safe_changes_of_intervals_wait_for_no_poll() {
    // New min_tx and min_rx, in force at once: sending, receiving.
    let cases =
        [(200, 1000, 100, 1000), (50, 1000, 100, 1000), (100, 2000, 100, 2000), (100, 300, 100, 1000)];
    for (min_tx_ms, min_rx_ms, tx_ms, rx_ms) in cases {
        let mut session = up(Config::default());
        let config = Config { enable: true, min_tx_ms, min_rx_ms, ..Config::default() };
        session.configure(config, 1001, &mut fixed());
        assert_eq!((session.tx_interval_ms(), session.rx_interval_ms()), (tx_ms, rx_ms));
        input(&mut session, &theirs(State::Up, Flags::FINAL), 1002).unwrap();
        let settled = (u64::from(min_tx_ms.max(100)), u64::from(min_rx_ms));
        assert_eq!((session.tx_interval_ms(), session.rx_interval_ms()), settled);
    }
}

#[test]
fn an_interface_without_traffic_decays_and_recovers() {
    let config = Config { enable: true, min_rx_ms: 300, decay_min_rx_ms: 3000, ..Config::default() };
    let mut session = session(config.clone());
    let mut env = fixed();
    let receive = |session: &mut Session, env: &mut Fixed, flags, now_ms| {
        env.rx_packets += 1;
        let payload = theirs(State::Up, flags).to_bytes();
        session.input(Received { ttl: 255, payload: Some(&payload) }, now_ms, env).unwrap();
    };
    let payload = theirs(State::Init, Flags::NONE).to_bytes();
    session.input(Received { ttl: 255, payload: Some(&payload) }, 1000, &mut env).unwrap();
    for now_ms in (1100..4100).step_by(100) {
        receive(&mut session, &mut env, Flags::FINAL, now_ms);
        session.tick(now_ms, &mut env);
        assert_eq!(session.in_decay(), now_ms >= 4000, "at {now_ms}");
    }
    receive(&mut session, &mut env, Flags::FINAL, 4100);
    assert_eq!(session.rx_interval_ms(), 3000);
    // Three times as many packets as control packets: back at the next observation.
    for now_ms in (4200..7200).step_by(100) {
        env.rx_packets += 2;
        receive(&mut session, &mut env, Flags::FINAL, now_ms);
        session.tick(now_ms, &mut env);
    }
    receive(&mut session, &mut env, Flags::FINAL, 7200);
    assert!(!session.in_decay());
    assert_eq!(session.rx_interval_ms(), 300);
    // Without the setting nobody reads counters.
    let mut env = fixed();
    let mut other = up(Config::default());
    other.tick(1100, &mut env);
    other.device_changed(1100, &mut env);
    assert_eq!(env.asked, 0);
}

/// Control packets and all packets within an observation; whether the interface is found idle.
#[test]
fn up_to_twice_the_control_packets_are_no_traffic() {
    let cases = [(0, 0, true), (0, 2, true), (0, 3, false), (1, 2, true), (3, 6, true), (3, 7, false)];
    for (control, packets, idle) in cases {
        let config = Config { decay_min_rx_ms: 2000, ..Config::default() };
        let mut session = up(config);
        let mut env = fixed();
        for _ in 0..control {
            input(&mut session, &theirs(State::Up, Flags::NONE), 1500).unwrap();
        }
        env.rx_packets = packets;
        session.tick(2999, &mut env);
        assert!(!session.in_decay());
        session.tick(3000, &mut env);
        assert_eq!(session.in_decay(), idle, "{control} {packets}");
    }
}

#[test]
fn a_forced_state_counts_no_flaps() {
    let mut session = up(Config::default());
    assert!(session.take_status_changed());
    assert!(!session.take_status_changed());
    session.set_forwarding(Forwarding::False);
    assert!(session.take_status_changed());
    assert_eq!(session.status(1000)["forwarding"], "false");
    session.tick(9000, &mut fixed());
    session.set_forwarding(Forwarding::True);
    assert_eq!((session.forwarding(9000), session.flap_count), (true, 1));
    session.set_forwarding(Forwarding::Normal);
    assert_eq!((session.forwarding(9000), session.flap_count), (false, 2));
    let texts = [
        ("normal", Some(Forwarding::Normal)),
        ("FALSE", Some(Forwarding::False)),
        ("True", Some(Forwarding::True)),
        ("zz", None),
        ("", None),
    ];
    for (text, expected) in texts {
        assert_eq!(Forwarding::parse(text), expected);
    }
}

#[test]
fn path_failures_behind_the_other_system_stop_forwarding() {
    for diagnostic in 0..32 {
        let mut session = up(Config::default());
        let diagnostic = Diagnostic::from_bits(diagnostic);
        input(&mut session, &Message { diagnostic, ..theirs(State::Up, Flags::NONE) }, 1001).unwrap();
        let stops = matches!(diagnostic.bits(), 5 | 6 | 8);
        assert_eq!(session.forwarding(1001), !stops, "{diagnostic}");
    }
}

/// The lines of OVS 3.1, whose log adds details to some.
#[test]
fn notices_have_the_lines_of_ovs_and_a_bound() {
    let mut session = up(Config::default());
    let (notices, lost) = session.take_notices();
    let lines: Vec<String> = notices.iter().map(|notice| notice.text("p0")).collect();
    assert_eq!(
        lines,
        [
            "Interface p0 remote mult value 0 changed to 3",
            "p0: New remote min_rx (100ms).",
            "p0: BFD state change: (bfd.SessionState: down, bfd.LocalDiag: \"No Diagnostic\") -> \
             (bfd.SessionState: up, bfd.LocalDiag: \"No Diagnostic\")",
        ]
    );
    assert_eq!(lost, 0);
    for i in 0..40u64 {
        let message = Message { multiplier: 1 + i as u8 % 2, ..theirs(State::Up, Flags::NONE) };
        input(&mut session, &message, 1001 + i).unwrap();
    }
    let (notices, lost) = session.take_notices();
    assert_eq!((notices.len(), lost), (16, 24));
}

#[test]
fn a_huge_interval_fits_into_the_field() {
    let mut session =
        session(Config { min_tx_ms: i32::MAX as u32, min_rx_ms: i32::MAX as u32, ..Config::default() });
    let message = sent(&mut session, 1000).unwrap();
    assert_eq!((message.min_tx_us, message.min_rx_us), (u32::MAX, u32::MAX));
}

#[test]
fn commands_answer_as_ovs_does() {
    let (mut sessions, mut env) = (Sessions::default(), fixed());
    let config = Config { enable: true, ..Config::default() };
    assert_eq!(sessions.show(None, 5).unwrap(), "");
    for name in ["p2", "p1"] {
        sessions.configure(name, MacAddr([2; 6]), &config, 5, &mut env).unwrap();
    }
    let cases = [
        (None, "true", Ok("OK")),
        (Some("p1"), "FALSE", Ok("OK")),
        (Some("p9"), "true", Err("no such BFD object")),
        (Some("p9"), "zz", Err("unknown fault string")),
        (None, "p1", Err("unknown fault string")),
    ];
    for (name, choice, expected) in cases {
        assert_eq!(sessions.set_forwarding(name, choice), expected);
    }
    assert_eq!(sessions.show(Some("p9"), 5).map_err(|e| e.to_string()), Err("no such bfd object".to_owned()));
    let shown = sessions.show(None, 5).unwrap();
    let one = |sessions: &mut Sessions, name| sessions.show(Some(name), 5).unwrap();
    let expected =
        format!("---- p1 ----\n{}---- p2 ----\n{}", one(&mut sessions, "p1"), one(&mut sessions, "p2"));
    assert_eq!(shown, expected);
    assert!(shown.starts_with("---- p1 ----\n  Forwarding: false\n  Detect Multiplier: 3\n"), "{shown}");
    assert!(one(&mut sessions, "p2").starts_with("  Forwarding: true\n"));
}

#[test]
fn sessions_differ_in_number_discriminator_and_port() {
    // The same random number each time.
    let (mut sessions, mut env) = (Sessions::default(), Fixed { jitter: u32::MAX, ..fixed() });
    let config = Config { enable: true, ..Config::default() };
    let ids: Vec<SessionId> = (0..16400)
        .map(|i| sessions.configure(&format!("p{i}"), MacAddr([2; 6]), &config, 5, &mut env).unwrap())
        .collect();
    let identity = |i: usize| sessions.get(ids[i]).unwrap().identity();
    assert_eq!(identity(0).discriminator, u32::MAX);
    assert_eq!((identity(1).discriminator, identity(2).discriminator), (1, 2));
    assert_eq!((identity(0).src_port, identity(16383).src_port), (49152, 65535));
    assert_eq!((identity(16384).src_port, identity(16385).src_port), (49152, 49153));
    let distinct: std::collections::BTreeSet<u32> = (0..16400).map(|i| identity(i).discriminator).collect();
    assert_eq!(distinct.len(), 16400);
}

#[test]
fn settings_create_change_and_remove_a_session() {
    let (mut sessions, mut env) = (Sessions::default(), fixed());
    let (off, on) = (Config::default(), Config { enable: true, ..Config::default() });
    let slow = Config { min_tx_ms: 3000, ..on.clone() };
    let mac = MacAddr([2; 6]);
    assert_eq!(sessions.configure("p", mac, &off, 5, &mut env), None);
    let id = sessions.configure("p", mac, &on, 5, &mut env).unwrap();
    assert_eq!(sessions.next_wakeup(), Some(0));
    let mut out = Vec::new();
    assert!(!sessions.tick(5, 8, &mut env, &mut out));
    assert_eq!((out.len(), sessions.next_wakeup()), (1, Some(1005)));
    assert_eq!(sessions.configure("p", MacAddr([4; 6]), &slow, 6, &mut env), Some(id));
    assert!(!sessions.tick(1005, 8, &mut env, &mut out));
    assert_eq!(out[1].1.frame[6..12], [4; 6]);
    assert_eq!(sessions.next_wakeup(), Some(4005));
    let changed = sessions.take_changed().unwrap();
    assert_eq!((changed.id, changed.status), (id, true));
    assert_eq!(sessions.take_changed(), None);
    assert_eq!(sessions.configure("p", mac, &off, 7, &mut env), None);
    assert_eq!((sessions.len(), sessions.next_wakeup(), sessions.find("p")), (0, None, None));
    let packet = Received { ttl: 255, payload: None };
    assert_eq!(sessions.input(id, packet, 8, &mut env), Err(UnknownSession));
    assert!(sessions.status(id, 8).is_empty());
    assert_eq!(sessions.forwarding(id, 8), None);
}
