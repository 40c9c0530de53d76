//! Networks of bridges on virtual time: links that fail, lose frames and delay them, bridges that restart. At no time do the
//! forwarding ports of all bridges close a loop.

use super::{Rows, bridge, link_port, rows, settings};
use crate::protocol::SessionId;
use crate::spanning_tree::bpdu::payload;
use crate::spanning_tree::sessions::Sessions;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Longest delay of a frame.
const DELAY_MAX_MS: u64 = 20;

/// SplitMix64 (Steele, Lea and Flood, 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }
}

/// An end of a link: bridge, port.
type End = (usize, u32);

struct Network {
    switches: Vec<(Sessions, Vec<SessionId>, bool)>,
    /// Links and whether they are up.
    links: Vec<(End, End, bool)>,
    rows: Vec<Rows>,
    ports: Vec<u32>,
    frames: BinaryHeap<Reverse<(u64, u64, usize, Vec<u8>)>>,
    random: Random,
    sent: u64,
    /// Frames lost of a hundred; never more than one of a direction in turn.
    loss: u64,
    lost_last: BTreeMap<usize, bool>,
    now_ms: u64,
    tolerates: bool,
    loop_since: Option<u64>,
    loops: Vec<(u64, u64)>,
}

impl Network {
    fn new(count: usize, pairs: &[(usize, usize)], is_rapid: impl Fn(usize) -> bool, seed: u64) -> Network {
        let mut ports = vec![0; count];
        let mut end = |bridge: usize| {
            ports[bridge] += 1;
            (bridge, ports[bridge])
        };
        let links = pairs.iter().map(|(a, b)| (end(*a), end(*b), true)).collect();
        let times = |rapid: bool| match rapid {
            true => [("rstp-max-age", "40"), ("rstp-forward-delay", "21")],
            false => [("stp-max-age", "20"), ("stp-forward-delay", "15")],
        };
        let rows = (0..count).map(|n| rows(is_rapid(n), &times(is_rapid(n)), &[])).collect();
        let mut network = Network {
            switches: Vec::new(),
            links,
            rows,
            ports,
            frames: BinaryHeap::new(),
            random: Random(seed),
            sent: 0,
            loss: 0,
            lost_last: BTreeMap::new(),
            now_ms: 1000,
            tolerates: false,
            loop_since: None,
            loops: Vec::new(),
        };
        for n in 0..count {
            let made = network.boot(n);
            network.switches.push(made);
        }
        network
    }

    fn boot(&self, n: usize) -> (Sessions, Vec<SessionId>, bool) {
        let mut sessions = Sessions::default();
        let ids = bridge(&mut sessions, n as u8, self.ports[n], &self.rows[n], self.now_ms);
        for (a, b, is_up) in &self.links {
            for (bridge, port) in [a, b] {
                if *bridge == n && !is_up {
                    let given = settings(&self.rows[n]);
                    sessions.put(&link_port(n as u8, *port, false), &given, self.now_ms);
                }
            }
        }
        (sessions, ids, true)
    }

    /// Cuts or heals a link: both ends see its carrier.
    fn set_link(&mut self, link: usize, is_up: bool) {
        self.links[link].2 = is_up;
        let (a, b, _) = self.links[link];
        for (n, port) in [a, b] {
            let given = settings(&self.rows[n]);
            self.switches[n].0.put(&link_port(n as u8, port, is_up), &given, self.now_ms);
        }
    }

    fn restart(&mut self, n: usize) {
        self.switches[n] = self.boot(n);
    }

    /// Whether a port forwards.
    fn forwards(&self, (n, port): End) -> bool {
        let (sessions, ids, _) = &self.switches[n];
        sessions.state(ids[port as usize]).may_forward
    }

    /// The links that forward in both directions, as ends.
    fn active(&self) -> Vec<(usize, usize)> {
        let is_active = |(a, b, is_up): &&(End, End, bool)| *is_up && self.forwards(*a) && self.forwards(*b);
        self.links.iter().filter(is_active).map(|(a, b, _)| (a.0, b.0)).collect()
    }

    /// Number of parts of the network that given links connect, and whether they close a loop.
    fn parts(&self, links: &[(usize, usize)]) -> (usize, bool) {
        let mut part: Vec<usize> = (0..self.switches.len()).collect();
        fn find(part: &mut [usize], n: usize) -> usize {
            let mut n = n;
            while part[n] != n {
                n = part[n];
            }
            n
        }
        let mut has_loop = false;
        for (a, b) in links {
            let (a, b) = (find(&mut part, *a), find(&mut part, *b));
            has_loop |= a == b;
            part[a] = b;
        }
        ((0..part.len()).filter(|n| part[*n] == *n).count(), has_loop)
    }

    /// Whether all bridges that links connect reach each other without a loop.
    fn is_converged(&self) -> bool {
        let wired: Vec<_> = self.links.iter().filter(|(_, _, up)| *up).map(|(a, b, _)| (a.0, b.0)).collect();
        self.parts(&self.active()).0 == self.parts(&wired).0
    }

    fn check(&mut self) {
        let loops = self.parts(&self.active()).1;
        match (loops, self.loop_since) {
            (true, None) => self.loop_since = Some(self.now_ms),
            (false, Some(since)) => {
                self.loops.push((since, self.now_ms - since));
                self.loop_since = None;
            }
            _ => {}
        }
        if loops && !self.tolerates {
            let shown = self.switches.iter().map(|(sessions, ..)| {
                sessions
                    .trees(None, true)
                    .chain(sessions.trees(None, false))
                    .map(|g| sessions.show_group(g))
                    .collect::<String>()
            });
            panic!("a loop at {} ms: {:?}\n{}", self.now_ms, self.active(), shown.collect::<String>());
        }
    }

    /// Runs for a time; every state is checked. Returns when it converged last.
    fn run(&mut self, length_ms: u64) -> Option<u64> {
        let end_ms = self.now_ms + length_ms;
        let mut since = None;
        let mut out = Vec::new();
        loop {
            for n in 0..self.switches.len() {
                let now_ms = self.now_ms;
                if self.switches[n].0.wakes_at().is_some_and(|at_ms| at_ms <= now_ms) {
                    assert!(!self.switches[n].0.serve(now_ms, usize::MAX, &mut out));
                    let frames = std::mem::take(&mut out);
                    for (id, transmission) in frames {
                        self.send(n, id, &transmission.frame);
                    }
                    while self.switches[n].0.next_report().is_some() {}
                    self.check();
                }
            }
            since = self.is_converged().then(|| since.unwrap_or(self.now_ms));
            let wakes = self.switches.iter().filter_map(|(sessions, _, _)| sessions.wakes_at()).min();
            let arrives = self.frames.peek().map(|Reverse((at_ms, ..))| *at_ms);
            let next_ms = [wakes, arrives].into_iter().flatten().min().unwrap_or(end_ms);
            if next_ms > end_ms {
                self.now_ms = end_ms;
                return since;
            }
            self.now_ms = self.now_ms.max(next_ms);
            while self.frames.peek().is_some_and(|Reverse((at_ms, ..))| *at_ms <= self.now_ms) {
                let Some(Reverse((_, _, way, frame))) = self.frames.pop() else { break };
                let (a, b, is_up) = self.links[way / 2];
                if is_up {
                    let (n, port) = if way % 2 == 0 { b } else { a };
                    let id = self.switches[n].1[port as usize];
                    self.switches[n].0.receive(id, payload(&frame), self.now_ms);
                    self.check();
                }
            }
        }
    }

    fn send(&mut self, n: usize, id: SessionId, frame: &[u8]) {
        let port = self.switches[n].1.iter().position(|known| *known == id).unwrap() as u32;
        let at = self.links.iter().position(|(a, b, _)| *a == (n, port) || *b == (n, port)).unwrap();
        if !self.links[at].2 {
            return;
        }
        let way = 2 * at + usize::from(self.links[at].1 == (n, port));
        let lost_last = self.lost_last.get(&way).copied().unwrap_or(false);
        let is_lost = self.random.below(100) < self.loss && !lost_last;
        self.lost_last.insert(way, is_lost);
        if !is_lost {
            self.sent += 1;
            // Frames of one direction keep their order.
            let at_ms = self.now_ms + 1 + (way as u64 * 7) % DELAY_MAX_MS;
            self.frames.push(Reverse((at_ms, self.sent, way, frame.to_vec())));
        }
    }
}

fn ring(count: usize) -> Vec<(usize, usize)> {
    (0..count).map(|n| (n, (n + 1) % count)).collect()
}

/// Rings converge, heal after a cut and a restart, and never loop.
#[test]
fn rings() {
    for (name, rapid) in [("STP", false), ("RSTP", true)] {
        for count in [2, 3, 4, 7, 12, 20, 40] {
            let mut network = Network::new(count, &ring(count), |_| rapid, count as u64);
            let begun = network.run(200_000).expect("it converges") - 1000;
            let cut_ms = network.now_ms;
            network.set_link(0, false);
            let healed = network.run(200_000).expect("it heals") - cut_ms;
            let restart_ms = network.now_ms;
            network.set_link(0, true);
            network.run(200_000).expect("it converges");
            network.restart(0);
            let back = network.run(200_000).expect("it converges") - restart_ms - 200_000;
            println!(
                "{name}, ring of {count}: begins {begun} ms, heals {healed} ms, root restarts {back} ms"
            );
        }
    }
}

/// A ring in which every other bridge speaks the older protocol only.
#[test]
fn mixed_rings() {
    for count in [3, 4, 9] {
        let mut network = Network::new(count, &ring(count), |n| n % 2 == 0, 7);
        assert!(network.run(200_000).is_some(), "{count}");
        network.set_link(0, false);
        assert!(network.run(200_000).is_some(), "{count}");
    }
}

/// Longest loop of RSTP where BPDUs are lost. A port whose proposal and then the answer to the next are lost takes its
/// neighbour for a host after three seconds, as the standard has it. The neighbour's next message ends the loop: it comes
/// after a hello time of two seconds, or after two if it is lost as well.
const RSTP_LOOP_MAX_MS: u64 = 4000 + 2 * DELAY_MAX_MS;

/// Random meshes while links flap, bridges restart and frames are lost.
#[test]
fn meshes_under_stress() {
    let seeds = if std::env::var_os("SLUICE_LONG").is_some() { 300 } else { 12 };
    for seed in 1..=seeds {
        for (name, rapid, loss) in [("STP", false, 10), ("RSTP", true, 0), ("RSTP", true, 10)] {
            let loops = stress(name, rapid, loss, seed);
            if !loops.is_empty() {
                println!("{name}, loss {loss}, seed {seed}: loops {loops:?}");
            }
            assert!(loops.iter().all(|(_, ms)| *ms < RSTP_LOOP_MAX_MS), "{name}, seed {seed}: {loops:?}");
        }
    }
}

/// A mesh of a seed; returns begin and length of its loops. Only RSTP with lost frames may have one.
fn stress(name: &str, rapid: bool, loss: u64, seed: u64) -> Vec<(u64, u64)> {
    let mut random = Random(seed);
    let count = 3 + random.below(8) as usize;
    let mut pairs: Vec<(usize, usize)> = (1..count).map(|n| (random.below(n as u64) as usize, n)).collect();
    for _ in 0..random.below(2 * count as u64) {
        let (a, b) = (random.below(count as u64) as usize, random.below(count as u64) as usize);
        if a != b {
            pairs.push((a, b));
        }
    }
    let mut network = Network::new(count, &pairs, |_| rapid, seed);
    network.loss = loss;
    network.tolerates = rapid && loss > 0;
    for _ in 0..40 {
        match random.below(4) {
            0 => network.restart(random.below(count as u64) as usize),
            1 => network.set_link(random.below(pairs.len() as u64) as usize, true),
            _ => network.set_link(random.below(pairs.len() as u64) as usize, false),
        }
        network.check();
        let length_ms = random.below(12_000);
        network.run(length_ms);
    }
    network.loss = 0;
    (0..pairs.len()).for_each(|link| network.set_link(link, true));
    let since = network.run(300_000);
    assert!(since.is_some(), "{name}, seed {seed}: does not converge");
    network.loops
}
