//! Two systems on a link that delays and loses packets, on virtual time.

use super::session::fixed;
use super::*;

/// Random numbers of a linear congruence (Knuth's MMIX).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 32) as u32
    }
}

impl Environment for Random {
    fn rx_packets(&mut self, _: SessionId) -> u64 {
        0
    }

    fn random(&mut self, below: u32) -> u32 {
        self.next() % below
    }
}

/// The systems, each with one session, and the link.
struct World {
    systems: [Sessions; 2],
    ids: [SessionId; 2],
    now_ms: u64,
    delay_ms: u64,
    /// Loss among a hundred packets from each system.
    lost_percent: [u32; 2],
    link: Vec<(u64, usize, Vec<u8>)>,
    random: Random,
    /// Times at which each system sent.
    sent_ms: [Vec<u64>; 2],
    /// Time of the last packet that each system took.
    taken_ms: [u64; 2],
}

impl World {
    fn new(configs: [&Config; 2], delay_ms: u64, seed: u64) -> World {
        let mut random = Random(seed);
        let mut systems = [Sessions::default(), Sessions::default()];
        let mut add = |i: usize| {
            let config = Config { enable: true, ..configs[i].clone() };
            systems[i].configure("p", MacAddr([2; 6]), &config, 1, &mut random).unwrap()
        };
        let ids = [add(0), add(1)];
        World {
            systems,
            ids,
            now_ms: 1,
            delay_ms,
            lost_percent: [0; 2],
            link: Vec::new(),
            random,
            sent_ms: [Vec::new(), Vec::new()],
            taken_ms: [0; 2],
        }
    }

    fn state(&self, i: usize) -> (State, Diagnostic) {
        self.systems[i].get(self.ids[i]).unwrap().state()
    }

    fn flaps(&self, i: usize) -> u64 {
        self.systems[i].get(self.ids[i]).unwrap().flap_count
    }

    fn both(&self, state: State) -> bool {
        self.state(0).0 == state && self.state(1).0 == state
    }

    /// Does all work of the earliest time with work, if it is not after `until_ms`.
    fn turn(&mut self, until_ms: u64) -> bool {
        let arrival = self.link.iter().map(|(at, ..)| *at).min();
        let work = self.systems.iter().filter_map(Sessions::next_wakeup).chain(arrival).min();
        let Some(at) = work.filter(|at| *at <= until_ms) else {
            self.now_ms = until_ms;
            return false;
        };
        self.now_ms = self.now_ms.max(at);
        let now_ms = self.now_ms;
        let (arrived, link): (Vec<_>, Vec<_>) = self.link.drain(..).partition(|(at, ..)| *at <= now_ms);
        self.link = link;
        for (_, to, frame) in arrived {
            let received = Received { ttl: frame[22], payload: udp_payload(&frame) };
            let taken = self.systems[to].input(self.ids[to], received, now_ms, &mut self.random);
            if taken == Ok(Ok(())) {
                self.taken_ms[to] = now_ms;
            }
        }
        for from in 0..2 {
            let mut sent = Vec::new();
            assert!(!self.systems[from].tick(now_ms, 4, &mut self.random, &mut sent));
            for (_, transmission) in sent {
                self.sent_ms[from].push(now_ms);
                if self.random.next() % 100 >= self.lost_percent[from] {
                    self.link.push((now_ms + self.delay_ms, 1 - from, transmission.frame.to_vec()));
                }
            }
        }
        true
    }

    fn run(&mut self, ms: u64) {
        let until_ms = self.now_ms + ms;
        while self.turn(until_ms) {}
    }

    /// Runs until the condition holds; returns the milliseconds that it took, at most `limit_ms`.
    fn run_until(&mut self, limit_ms: u64, condition: impl Fn(&World) -> bool) -> Option<u64> {
        let start_ms = self.now_ms;
        while !condition(self) {
            if !self.turn(start_ms + limit_ms) {
                return None;
            }
        }
        Some(self.now_ms - start_ms)
    }
}

fn configs() -> impl Strategy<Value = Config> {
    (10u32..1500, 10u32..1500, 1u8..6).prop_map(|(min_tx_ms, min_rx_ms, multiplier)| Config {
        min_tx_ms,
        min_rx_ms,
        multiplier,
        ..Config::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if testkit::long() { 2000 } else { 24 }))]

    /// Sessions come up, stay up, find a cut in the detection time and not before, and come up again.
    #[test]
    fn sessions_converge_and_detect(a in configs(), b in configs(), delay_ms in 0u64..200, seed: u64) {
        let mut world = World::new([&a, &b], delay_ms, seed);
        // Three packets of each, a second or the other system's interval apart.
        let slow_ms = 4 * (1500 + delay_ms);
        prop_assert!(world.run_until(slow_ms, |world| world.both(State::Up)).is_some());
        world.run(10_000);
        prop_assert!(world.both(State::Up));
        prop_assert_eq!((world.flaps(0), world.flaps(1)), (1, 1));
        let configs = [&a, &b];
        // The intervals are those of the settings: 75 to 100 percent between packets.
        let before = [world.sent_ms[0].len(), world.sent_ms[1].len()];
        world.run(20_000);
        for i in 0..2 {
            let interval_ms = u64::from(configs[i].min_tx_ms.max(configs[1 - i].min_rx_ms));
            let most = if configs[i].multiplier == 1 { 90 } else { 100 };
            let range = interval_ms - interval_ms * 25 / 100..=interval_ms - interval_ms * (100 - most) / 100;
            for gap in world.sent_ms[i][before[i]..].windows(2) {
                prop_assert!(range.contains(&(gap[1] - gap[0])), "{} not in {range:?}", gap[1] - gap[0]);
            }
        }
        // A cut: both find it, the first by its own clock, the other perhaps by packets that were under way.
        world.lost_percent = [100; 2];
        let interval_ms = [0, 1].map(|i| u64::from(configs[i].min_rx_ms.max(configs[1 - i].min_tx_ms)));
        let detection_ms = [0, 1].map(|i| interval_ms[i] * u64::from(configs[1 - i].multiplier));
        for _ in 0..2 {
            let up = [0, 1].map(|i| world.state(i).0 == State::Up);
            prop_assert!(world.run_until(20_000, |world| (0..2).any(|i| up[i] && world.state(i).0 != State::Up)).is_some());
            for i in (0..2).filter(|i| up[*i] && world.state(*i).0 != State::Up) {
                prop_assert_eq!(world.state(i), (State::Down, Diagnostic::EXPIRED));
                prop_assert_eq!(world.now_ms, world.taken_ms[i] + detection_ms[i]);
            }
            if !(0..2).any(|i| world.state(i).0 == State::Up) {
                break;
            }
        }
        prop_assert!(world.both(State::Down));
        world.lost_percent = [0; 2];
        prop_assert!(world.run_until(slow_ms, |world| world.both(State::Up)).is_some());
    }

    /// Loss in one or both directions, of any extent: once it ends, sessions come up and stay up.
    #[test]
    fn sessions_survive_loss(a in configs(), b in configs(), delay_ms in 0u64..50, lost in (0u32..=100, 0u32..=100), seed: u64) {
        let mut world = World::new([&a, &b], delay_ms, seed);
        world.lost_percent = [lost.0, lost.1];
        world.run(60_000);
        world.lost_percent = [0; 2];
        world.run(20_000);
        prop_assert!(world.both(State::Up));
        let flaps = [world.flaps(0), world.flaps(1)];
        world.run(60_000);
        prop_assert!(world.both(State::Up));
        prop_assert_eq!([world.flaps(0), world.flaps(1)], flaps);
    }
}

/// One direction is lost: the deaf system goes down by time, the other one by its signal.
#[test]
fn a_cut_of_one_direction_takes_both_down() {
    let mut world = World::new([&Config::default(), &Config::default()], 5, 7);
    world.run(10_000);
    assert!(world.both(State::Up));
    world.lost_percent = [100, 0];
    world.run(10_000);
    assert_eq!(world.state(1), (State::Down, Diagnostic::EXPIRED));
    assert_eq!(world.state(0), (State::Init, Diagnostic::REMOTE_DOWN));
}

/// Work is proportional to what is due: of 2,000 sessions, a call serves no more than its limit, and no session is served
/// without cause.
#[test]
fn many_sessions_cost_only_what_is_due() {
    const COUNT: usize = 2000;
    const LIMIT: usize = 64;
    let (mut sessions, mut random) = (Sessions::default(), Random(1));
    let config = Config { enable: true, ..Config::default() };
    let ids: Vec<SessionId> = (0..COUNT)
        .map(|i| sessions.configure(&format!("p{i}"), MacAddr([2; 6]), &config, 1, &mut random).unwrap())
        .collect();
    let mut out = Vec::new();
    assert!(sessions.tick(1, LIMIT, &mut random, &mut out));
    assert_eq!(out.len(), LIMIT);
    while sessions.tick(1, LIMIT, &mut random, &mut out) {}
    assert_eq!(out.len(), COUNT);
    // All come up. After its slow interval each sends ten a second.
    let mut env = fixed();
    for id in &ids {
        let mine = sessions.get(*id).unwrap().identity().discriminator;
        let message =
            Message { state: State::Init, your_discriminator: mine, min_rx_us: 100_000, ..sent_by_ovs() };
        let payload = message.to_bytes();
        let received = Received { ttl: 255, payload: Some(&payload) };
        assert_eq!(sessions.input(*id, received, 2, &mut env), Ok(Ok(())));
    }
    out.clear();
    let mut calls = 0;
    while let Some(at) = sessions.next_wakeup().filter(|at| *at < 2500) {
        let before = out.len();
        sessions.tick(at.max(2), LIMIT, &mut random, &mut out);
        assert!(out.len() > before && out.len() - before <= LIMIT, "a call without a due session");
        calls += 1;
    }
    let sent_each = out.len() as f64 / COUNT as f64;
    assert!((16.0..=22.0).contains(&sent_each), "{sent_each}");
    assert!(calls >= out.len() / LIMIT);
    assert!(ids.iter().all(|id| sessions.get(*id).unwrap().state().0 == State::Up));
}
