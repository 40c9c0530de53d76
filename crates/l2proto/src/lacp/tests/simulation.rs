//! Two systems with 1 to 8 links that delay, lose and cut, on virtual time.

use super::*;

/// Random numbers of a linear congruence (Knuth's MMIX).
struct Random(u64);

impl Random {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % below
    }
}

/// A link between the member of one number of both systems.
#[derive(Clone, Copy)]
struct Wire {
    is_up: bool,
    lost_percent: u64,
}

struct World {
    systems: [Aggregators; 2],
    configs: [Config; 2],
    wires: Vec<Wire>,
    /// Arrival, system, member, payload.
    flying: Vec<(u64, usize, usize, Vec<u8>)>,
    random: Random,
    now_ms: u64,
    sent: u64,
}

const BRIDGES: [MacAddr; 2] = [BRIDGE, ANOTHER];
const DELAY_MS: u64 = 3;

impl World {
    fn new(configs: [Config; 2], links: usize, seed: u64) -> World {
        let mut world = World {
            systems: Default::default(),
            configs,
            wires: vec![Wire { is_up: true, lost_percent: 0 }; links],
            flying: Vec::new(),
            random: Random(seed),
            now_ms: 1,
            sent: 0,
        };
        (0..links).for_each(|link| world.configure(link));
        world
    }

    /// Both ends of a link see its carrier.
    fn configure(&mut self, link: usize) {
        for (system, bridge) in BRIDGES.into_iter().enumerate() {
            let port = link_port("bond", &format!("p{link}"), link as u32 + 1, bridge);
            let port = LinkPort { is_up: self.wires[link].is_up, ..port };
            self.systems[system].put(&port, &self.configs[system], self.now_ms);
        }
    }

    fn set_up(&mut self, link: usize, is_up: bool) {
        self.wires[link].is_up = is_up;
        self.flying.retain(|(_, _, of, _)| is_up || *of != link);
        self.configure(link);
    }

    fn id(&self, system: usize, link: usize) -> SessionId {
        self.systems[system].find(&format!("p{link}")).unwrap()
    }

    fn live(&self, system: usize, link: usize) -> bool {
        self.systems[system].effect(self.id(system, link)).unwrap().may_enable
    }

    fn all_live(&self) -> bool {
        (0..2).all(|system| (0..self.wires.len()).all(|link| self.live(system, link)))
    }

    fn pass(&mut self, ms: u64) {
        let until_ms = self.now_ms + ms;
        loop {
            let arrival = self.flying.iter().map(|(at_ms, ..)| *at_ms).min();
            let work = self.systems.iter().filter_map(Aggregators::next_wakeup).chain(arrival).min();
            let Some(at_ms) = work.filter(|at_ms| *at_ms <= until_ms) else { break };
            self.now_ms = self.now_ms.max(at_ms);
            self.turn();
        }
        self.now_ms = until_ms;
    }

    fn turn(&mut self) {
        let now_ms = self.now_ms;
        let (here, later) =
            std::mem::take(&mut self.flying).into_iter().partition(|(at_ms, ..)| *at_ms <= now_ms);
        self.flying = later;
        for (_, system, link, payload) in here as Vec<(u64, usize, usize, Vec<u8>)> {
            let id = self.id(system, link);
            self.systems[system].input(id, &payload, now_ms);
        }
        for system in 0..2 {
            let ids: Vec<SessionId> = (0..self.wires.len()).map(|link| self.id(system, link)).collect();
            let mut sent = Vec::new();
            while self.systems[system].tick(now_ms, 8, |id, frame| sent.push((id, frame))) {}
            for (id, frame) in sent {
                let link = ids.iter().position(|other| *other == id).unwrap();
                let wire = self.wires[link];
                self.sent += 1;
                if wire.is_up && self.random.below(100) >= wire.lost_percent {
                    let payload = payload(&frame).unwrap().to_vec();
                    self.flying.push((now_ms + DELAY_MS, 1 - system, link, payload));
                }
            }
        }
    }

    /// Sets the loss of all links.
    fn lose(&mut self, percent: u64) {
        self.wires.iter_mut().for_each(|wire| wire.lost_percent = percent);
    }
}

#[test]
fn systems_agree_within_a_few_messages() {
    for links in 1..=8 {
        for modes in [["active", "active"], ["active", "passive"], ["passive", "active"]] {
            for time in ["fast", "slow"] {
                let mut world = World::new(modes.map(|mode| config(mode, time, links)), links, 1);
                world.pass(20);
                assert!(world.all_live(), "{links} {modes:?} {time}");
                assert!(world.sent <= 6 * links as u64, "{} messages for {links}", world.sent);
                let before = world.sent;
                world.pass(60_000);
                let per_minute = if time == "fast" { 122 } else { 6 } * links as u64;
                assert!(world.all_live() && world.sent - before <= per_minute, "{}", world.sent - before);
            }
        }
    }
    let mut world = World::new([config("passive", "fast", 1), config("passive", "fast", 1)], 1, 1);
    world.pass(600_000);
    assert_eq!((world.all_live(), world.sent), (false, 0), "nobody begins");
}

/// With fast messages, a cut link is dead at once, and one that loses all within 3 s; the others stay live.
#[test]
fn links_fail_alone() {
    for links in 2..=8 {
        let mut world =
            World::new([config("active", "fast", links), config("passive", "fast", links)], links, 7);
        world.pass(100);
        world.set_up(0, false);
        world.pass(1);
        assert!(!world.live(0, 0) && !world.live(1, 0));
        assert!((1..links).all(|link| world.live(0, link) && world.live(1, link)));
        world.set_up(0, true);
        // A new carrier causes no message before the periodic one.
        world.pass(1020);
        assert!(world.all_live(), "{links}");
        world.wires[1].lost_percent = 100;
        world.pass(3100);
        assert!(!world.live(0, 1) && !world.live(1, 1));
        assert!((0..links).filter(|link| *link != 1).all(|link| world.live(0, link) && world.live(1, link)));
        world.wires[1].lost_percent = 0;
        world.pass(31_000);
        assert!(world.all_live(), "{links}");
    }
}

/// Whatever is lost and cut for a while, the systems agree within seconds once the links are good; meanwhile they send
/// few messages.
#[test]
fn bad_links_recover() {
    for seed in 0..if testkit::long() { 2000 } else { 60 } {
        let mut random = Random(seed);
        let links = 1 + random.below(8) as usize;
        let modes = [["active", "active"], ["active", "passive"]][random.below(2) as usize];
        let times = [["fast", "fast"], ["fast", "slow"], ["slow", "slow"]][random.below(3) as usize];
        let configs = [config(modes[0], times[0], links), config(modes[1], times[1], links)];
        let mut world = World::new(configs, links, seed);
        for _ in 0..40 {
            let link = random.below(links as u64) as usize;
            let is_up = random.below(3) > 0;
            world.set_up(link, is_up);
            world.wires[link].lost_percent = [0, 30, 70, 100][random.below(4) as usize];
            world.pass([1, 50, 2000, 20_000][random.below(4) as usize]);
        }
        let seconds = world.now_ms / 1000 + 1;
        assert!(
            world.sent < (2 * seconds + 400) * 2 * links as u64,
            "seed {seed}: {} in {seconds} s",
            world.sent
        );
        world.lose(0);
        (0..links).for_each(|link| world.set_up(link, true));
        // A slow side that gave up speaks again within half a minute.
        world.pass(35_000);
        assert!(world.all_live(), "seed {seed}");
    }
}

/// Two percent of lost messages make no link flap within an hour of fast messages.
#[test]
fn lost_messages_make_no_flaps() {
    let mut world = World::new([config("active", "fast", 4), config("active", "fast", 4)], 4, 3);
    world.lose(2);
    world.pass(1000);
    let mut flaps = 0;
    for _ in 0..3600 {
        world.pass(1000);
        flaps += u32::from(!world.all_live());
    }
    assert_eq!(flaps, 0);
}

/// Random packets, most of them nearly messages, keep the properties of the fuzz target.
#[test]
fn random_packets_keep_the_properties() {
    for seed in 0..if testkit::long() { 20_000 } else { 500 } {
        let mut random = Random(seed);
        let mut below = |n: u64| random.below(n) as u8;
        let mut bytes = vec![below(256)];
        for _ in 0..100 {
            let system = MacAddr([2, 0, 0, 0, below(2), below(2)]);
            let mut payload =
                message((below(2).into(), system), below(2).into(), below(3).into(), below(255));
            if below(4) == 0 {
                payload[usize::from(below(50))] = below(255);
            }
            payload.truncate([PDU_BYTES, PDU_BYTES, PDU_BYTES, below(110).into()][usize::from(below(4))]);
            bytes.extend([[0, 1, 20, 60, 127][usize::from(below(5))] | below(2) << 7, payload.len() as u8]);
            bytes.extend(payload);
        }
        crate::fuzz::lacp_packets(&bytes);
    }
}
