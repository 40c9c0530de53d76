//! Rules against a model: any operations of two cores and two ports, any refusals, any packets.

use super::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Put {
        core: usize,
        at: usize,
        actions: u32,
    },
    Modify {
        core: usize,
        at: usize,
        actions: u32,
    },
    Delete {
        core: usize,
        at: usize,
    },
    /// A put under a new name before the delete of the old one, as in one batch.
    Replace {
        core: usize,
        at: usize,
        actions: u32,
    },
    Flush {
        core: usize,
    },
    Packet {
        core: usize,
        at: usize,
    },
    Refuse {
        port: usize,
        refuses: bool,
    },
    /// Removes a port and adds it again.
    Reopen {
        port: usize,
    },
    /// Moves the flows of a port to the other core.
    HandOver {
        core: usize,
        port: usize,
    },
}

/// Flows that exist; the first half is of port 1.
const FLOWS: usize = 4;

fn op() -> impl Strategy<Value = Op> {
    let (core, at, actions, port) = (|| 0..2usize, || 0..FLOWS, || 1..3u32, || 0..2usize);
    prop_oneof![
        5 => (core(), at(), actions()).prop_map(|(core, at, actions)| Op::Put { core, at, actions }),
        2 => (core(), at(), actions()).prop_map(|(core, at, actions)| Op::Modify { core, at, actions }),
        2 => (core(), at()).prop_map(|(core, at)| Op::Delete { core, at }),
        2 => (core(), at(), actions()).prop_map(|(core, at, actions)| Op::Replace { core, at, actions }),
        1 => core().prop_map(|core| Op::Flush { core }),
        8 => (core(), at()).prop_map(|(core, at)| Op::Packet { core, at }),
        2 => (port(), any::<bool>()).prop_map(|(port, refuses)| Op::Refuse { port, refuses }),
        1 => port().prop_map(|port| Op::Reopen { port }),
        1 => (core(), port()).prop_map(|(core, port)| Op::HandOver { core, port }),
    ]
}

/// A core's flow.
struct Held {
    put: FlowPut,
    own: FlowStats,
    /// When the device last took a packet of it.
    device_used_ms: u64,
}

/// A rule that the device should have.
struct Expected {
    actions: Arc<[DpAction]>,
    users: Vec<Ufid>,
}

struct Bed {
    rules: Rules,
    nics: [Nic; 2],
    refuses: [bool; 2],
    flows: BTreeMap<(usize, usize), Held>,
    expected: BTreeMap<usize, Expected>,
    /// Packets handled by a flow, by flow.
    handled: [u64; FLOWS],
    /// Packets in final counters, a part of those.
    ended: [u64; FLOWS],
    named: u128,
    now_ms: u64,
}

fn port_of(at: usize) -> usize {
    at / (FLOWS / 2)
}

fn key_of(at: usize) -> FlowKey {
    key(DpPort(1 + port_of(at) as u32), at as u32)
}

impl Bed {
    fn new() -> Bed {
        let (mut rules, nics) = (Rules::default(), [Nic::default(), Nic::default()]);
        for (n, nic) in nics.iter().enumerate() {
            rules.port_add(DpPort(1 + n as u32), nic.boxed());
        }
        Bed {
            rules,
            nics,
            refuses: [false; 2],
            flows: BTreeMap::new(),
            expected: BTreeMap::new(),
            handled: [0; FLOWS],
            ended: [0; FLOWS],
            named: 0,
            now_ms: 0,
        }
    }

    fn put(&mut self, core: usize, at: usize, actions: u32) -> Held {
        self.named += 1;
        let actions = output(actions);
        let put = FlowPut {
            ufid: Ufid(self.named),
            key: key_of(at),
            mask: mask(),
            actions: actions.clone(),
            mode: PutMode::Create,
        };
        self.rules.put(CORES[core], &put, 5);
        if self.change(at, &actions) {
            self.expected.entry(at).or_insert(Expected { actions, users: Vec::new() }).users.push(put.ufid);
        }
        Held { put, own: FlowStats::default(), device_used_ms: 0 }
    }

    /// Whether the rule of a flow may have those actions.
    fn change(&mut self, at: usize, actions: &Arc<[DpAction]>) -> bool {
        let refuses = self.refuses[port_of(at)];
        match self.expected.get_mut(&at) {
            Some(rule) if rule.actions == *actions => true,
            Some(_) if refuses => {
                self.expected.remove(&at);
                false
            }
            Some(rule) => {
                rule.actions = actions.clone();
                true
            }
            None => !refuses,
        }
    }

    fn left(&mut self, at: usize, ufid: Ufid) {
        if let Some(rule) = self.expected.get_mut(&at) {
            rule.users.retain(|user| *user != ufid);
            if rule.users.is_empty() {
                self.expected.remove(&at);
            }
        }
    }

    fn modify(&mut self, core: usize, at: usize, actions: u32) {
        let Some(held) = self.flows.get_mut(&(core, at)) else { return };
        held.put.actions = output(actions);
        let (ufid, actions) = (held.put.ufid, held.put.actions.clone());
        complete(&mut self.rules, CORES[core], Kind::Modify(ufid, actions.clone()), OpResult::Done);
        if self.expected.get(&at).is_some_and(|rule| rule.users.contains(&ufid)) {
            self.change(at, &actions);
        }
    }

    fn delete(&mut self, core: usize, at: usize, held: &Held) {
        self.ended[at] += delete(&mut self.rules, CORES[core], &held.put, held.own).packets;
        self.left(at, held.put.ufid);
    }

    /// The flows of a core or port end.
    fn end(&mut self, core: usize, at: usize) -> Option<Held> {
        let held = self.flows.remove(&(core, at))?;
        let mut flow = record(&held.put, held.own);
        self.rules.end(CORES[core], &mut flow);
        self.ended[at] += flow.stats.packets;
        self.left(at, held.put.ufid);
        Some(held)
    }

    fn packet(&mut self, core: usize, at: usize) {
        let now_ms = self.now_ms;
        if self.nics[port_of(at)].receive(&key_of(at), 60, now_ms) {
            self.handled[at] += 1;
            for held in self.flows.values_mut() {
                if self.expected.get(&at).is_some_and(|rule| rule.users.contains(&held.put.ufid)) {
                    held.device_used_ms = now_ms;
                }
            }
        } else if let Some(held) = self.flows.get_mut(&(core, at)) {
            self.handled[at] += 1;
            held.own.packets += 1;
            held.own.used_ms = now_ms;
        }
    }

    fn run(&mut self, op: &Op) {
        self.now_ms += 1;
        match *op {
            Op::Put { core, at, actions } if !self.flows.contains_key(&(core, at)) => {
                let held = self.put(core, at, actions);
                self.flows.insert((core, at), held);
            }
            Op::Put { .. } => {}
            Op::Modify { core, at, actions } => self.modify(core, at, actions),
            Op::Delete { core, at } => {
                if let Some(held) = self.flows.remove(&(core, at)) {
                    self.delete(core, at, &held);
                }
            }
            Op::Replace { core, at, actions } => {
                let new = self.put(core, at, actions);
                if let Some(old) = self.flows.insert((core, at), new) {
                    self.delete(core, at, &old);
                }
            }
            Op::Flush { core } => {
                // The counters of flushed flows are lost: read them before.
                for at in 0..FLOWS {
                    if let Some(held) = self.flows.remove(&(core, at)) {
                        self.ended[at] +=
                            read(&mut self.rules, CORES[core], &held.put, held.own).stats.packets;
                        self.left(at, held.put.ufid);
                    }
                }
                complete(&mut self.rules, CORES[core], Kind::Flush, OpResult::Done);
            }
            Op::Packet { core, at } => self.packet(core, at),
            Op::Refuse { port, refuses } => {
                self.nics[port].set_refuses(refuses);
                self.refuses[port] = refuses;
            }
            Op::Reopen { port } => {
                for at in (0..FLOWS).filter(|at| port_of(*at) == port) {
                    (0..2).for_each(|core| drop(self.end(core, at)));
                }
                self.rules.port_del(DpPort(1 + port as u32));
                assert_eq!(self.nics[port].inserted(), 0);
                self.rules.port_add(DpPort(1 + port as u32), self.nics[port].boxed());
            }
            Op::HandOver { core, port } => {
                for at in (0..FLOWS).filter(|at| port_of(*at) == port) {
                    if let Some(held) = self.end(core, at)
                        && !self.flows.contains_key(&(1 - core, at))
                    {
                        let actions = if held.put.actions == output(1) { 1 } else { 2 };
                        let held = self.put(1 - core, at, actions);
                        self.flows.insert((1 - core, at), held);
                    }
                }
            }
        }
    }

    fn check(&mut self) {
        self.rules.check();
        let mut packets = self.ended;
        for ((core, at), held) in &self.flows {
            let shown = read(&mut self.rules, CORES[*core], &held.put, held.own);
            packets[*at] += shown.stats.packets;
            let used = self.expected.get(at).is_some_and(|rule| rule.users.contains(&held.put.ufid));
            let offloaded = if used { Offloaded::Full(OffloadLayer::Dpdk) } else { Offloaded::No };
            assert_eq!(shown.offloaded, offloaded);
            assert_eq!(shown.stats.used_ms, held.own.used_ms.max(held.device_used_ms));
        }
        assert_eq!(packets, self.handled, "each packet counts once");
        let expected: usize = self.expected.values().map(|rule| rule.users.len()).sum();
        assert_eq!(self.rules.counts().0, self.expected.len());
        assert!(self.rules.counts().1 >= expected && self.rules.counts().1 <= self.flows.len());
        for (port, nic) in self.nics.iter().enumerate() {
            let rules = self.expected.iter().filter(|(at, _)| port_of(**at) == port);
            let mut wanted: Vec<_> = rules.map(|(_, rule)| format!("{:?}", rule.actions)).collect();
            let mut has: Vec<_> = nic.actions().iter().map(|actions| format!("{actions:?}")).collect();
            wanted.sort();
            has.sort();
            assert_eq!(has, wanted);
        }
    }
}

proptest! {
    #[test]
    fn rules_follow_their_model(ops in prop::collection::vec(op(), 1..60)) {
        let mut bed = Bed::new();
        for op in &ops {
            bed.run(op);
            bed.check();
        }
    }
}
