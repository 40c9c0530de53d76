//! Pairs on links that delay and lose messages, and many sessions, on virtual time.

use super::*;
use proptest::prelude::*;

/// Random numbers of a linear congruence (Knuth's MMIX).
struct Random(u64);

impl Environment for Random {
    fn rx_packets(&mut self, _: SessionId) -> u64 {
        0
    }

    fn random(&mut self, below: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 32) as u32 % below
    }
}

/// Two switches with a session each.
struct World {
    switches: [Sessions; 2],
    ids: [SessionId; 2],
    now_ms: u64,
    delay_ms: u64,
    lost_percent: [u32; 2],
    link: Vec<(u64, usize, Box<[u8]>)>,
    random: Random,
}

impl World {
    fn new(pairs: &[(&str, &str)], delay_ms: u64, seed: u64) -> World {
        let mut random = Random(seed);
        let mut switches = [Sessions::default(), Sessions::default()];
        let ids = [0, 1].map(|i: usize| {
            let config = config(i as i64 + 1, pairs);
            switches[i].configure(&port("p", MacAddr([2 + 2 * i as u8; 6])), &config, 1, &mut random)
        });
        World { switches, ids, now_ms: 1, delay_ms, lost_percent: [0; 2], link: Vec::new(), random }
    }

    fn run(&mut self, ms: u64) {
        let until_ms = self.now_ms + ms;
        loop {
            let arrival = self.link.iter().map(|(at, ..)| *at).min();
            let work = self.switches.iter().filter_map(Engine::next_wakeup).chain(arrival).min();
            let Some(at) = work.filter(|at| *at <= until_ms) else { break };
            self.now_ms = self.now_ms.max(at);
            let now_ms = self.now_ms;
            let (arrived, link) = self.link.drain(..).partition(|(at, ..)| *at <= now_ms);
            self.link = link;
            let arrived: Vec<(u64, usize, Box<[u8]>)> = arrived;
            for (_, to, frame) in arrived {
                let received = Received { ttl: 0, payload: Some(&frame) };
                self.switches[to].input(self.ids[to], received, now_ms, &mut self.random).unwrap();
            }
            for from in 0..2 {
                let mut sent = Vec::new();
                assert!(!self.switches[from].tick(now_ms, 4, &mut self.random, &mut sent));
                for (_, sent) in sent {
                    if self.random.random(100) >= self.lost_percent[from] {
                        self.link.push((now_ms + self.delay_ms, 1 - from, sent.frame));
                    }
                }
            }
        }
        self.now_ms = until_ms;
    }

    fn value(&mut self, i: usize, name: &'static str) -> Option<LinkValue> {
        self.switches[i].status(self.ids[i], self.now_ms).remove(&(Table::Interface, name))
    }

    fn faults(&mut self, i: usize) -> Vec<String> {
        match self.value(i, "cfm_fault_status") {
            Some(LinkValue::Texts(names)) => names,
            other => panic!("{other:?}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if testkit::long() { 2000 } else { 24 }))]

    /// Pairs work without a fault, find a cut within two checks, tell the other side, and work again.
    #[test]
    fn pairs_find_a_cut_and_its_end(
        interval_ms in 3u64..3000,
        is_extended: bool,
        delay_part in 0u64..40,
        seed: u64,
    ) {
        let (interval, extended) = (interval_ms.to_string(), is_extended.to_string());
        let pairs = [("interval", interval.as_str()), ("extended", extended.as_str())];
        let interval_ms = u64::from(config(1, &pairs).interval_ms);
        let mut world = World::new(&pairs, interval_ms * delay_part / 100, seed);
        world.run(40 * interval_ms);
        for i in 0..2 {
            prop_assert_eq!(world.faults(i), Vec::<String>::new());
            prop_assert_eq!(world.value(i, "cfm_flap_count"), Some(LinkValue::Integer(0)));
            prop_assert_eq!(world.value(i, "cfm_health"), Some(LinkValue::Integer(100)));
            prop_assert_eq!(world.value(i, "cfm_remote_mpids"), Some(LinkValue::Integers(vec![2 - i as i64])));
        }
        // The end of one direction: one side misses messages and tells that.
        world.lost_percent = [0, 100];
        world.run(20 * interval_ms);
        prop_assert_eq!(world.faults(0), ["recv"]);
        prop_assert_eq!(world.faults(1), ["rdi"]);
        world.lost_percent = [0; 2];
        world.run(12 * interval_ms);
        for i in 0..2 {
            prop_assert_eq!(world.faults(i), Vec::<String>::new());
            prop_assert_eq!(world.value(i, "cfm_flap_count"), Some(LinkValue::Integer(2)));
        }
    }
}

/// A tenth of all messages lost shows in the health.
#[test]
fn loss_shows_in_the_health() {
    let mut healths = Vec::new();
    for seed in 1..=20 {
        let mut world = World::new(&[("interval", "100")], 5, seed);
        world.lost_percent = [10; 2];
        world.run(60_000);
        for i in 0..2 {
            if let Some(LinkValue::Integer(health)) = world.value(i, "cfm_health") {
                healths.push(health);
            }
        }
    }
    let average = healths.iter().sum::<i64>() / 40;
    assert!(healths.len() == 40 && (75..98).contains(&average), "{healths:?}");
}

/// 2,000 sessions that send and receive 100 messages a second each: none has a fault, and one message costs little.
#[test]
#[expect(clippy::disallowed_methods, reason = "the cost is printed")]
fn many_fast_sessions_cost_little() {
    const COUNT: usize = 2000;
    const LIMIT: usize = 64;
    let mut env = Random(1);
    let mut sessions = Sessions::default();
    let config = config(1, &[("interval", "10")]);
    let ids: Vec<SessionId> = (0..COUNT)
        .map(|i| sessions.configure(&port(&format!("p{i}"), MacAddr([2; 6])), &config, 1, &mut env))
        .collect();
    let (mut frames, start) = (0, std::time::Instant::now());
    let mut out = Vec::new();
    while let Some(at) = sessions.next_wakeup().filter(|at| *at < 1001) {
        out.clear();
        sessions.tick(at.max(1), LIMIT, &mut env, &mut out);
        assert!(!out.is_empty() && out.len() <= LIMIT || at % 35 == 1, "a call without a due session");
        for (id, sent) in &out {
            let mut frame = sent.frame.clone();
            frame[23] = 2;
            let received = Received { ttl: 0, payload: Some(&frame) };
            sessions.input(*id, received, at.max(1), &mut env).unwrap();
        }
        frames += out.len();
    }
    let micros = start.elapsed().as_micros() as f64 / frames as f64;
    println!(
        "{frames} messages sent and received, {micros:.2} us each: {:.1} % of a core at 10 a second, ten times that at 100",
        micros / 1e6 * 10.0 * COUNT as f64 * 100.0
    );
    assert_eq!(frames, COUNT * 100);
    for id in ids {
        let status = sessions.status(id, 1001);
        assert_eq!(status[&(Table::Interface, "cfm_fault")], LinkValue::Flag(false));
    }
}
