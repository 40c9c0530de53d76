//! One trial: the flows of both bridges, and packets traced through them in order.

use crate::packets;
use crate::rules::{self, Wire};
use crate::switches::{Layout, Switch, is_group};
use sim::Rng;

/// A trial of a seed.
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    pub(crate) layout: Layout,
    pub(crate) wire: Wire,
    /// Groups and rules of each bridge.
    pub(crate) rules: Vec<(String, Vec<String>)>,
    /// Arguments of `ofproto/trace`.
    pub(crate) packets: Vec<Vec<String>>,
}

impl Scenario {
    pub(crate) fn new(seed: u64, layout: Layout, packets: usize) -> Scenario {
        let mut rng = Rng::new(seed);
        let wire = *rng.pick(&Wire::ALL);
        let rules = ["br0", "br1"].map(|b| (b.to_string(), rules::rules(&mut rng, wire))).to_vec();
        let packets = (0..packets).map(|_| packets::trace_arguments(&mut rng)).collect();
        Scenario { seed, layout, wire, rules, packets }
    }

    /// Name in messages.
    pub(crate) fn name(&self) -> String {
        format!("seed {} of {}", self.seed, self.layout.name())
    }

    /// Installs the flows on all switches and flushes learned addresses. Skips flows refused by all switches;
    /// returns those refused by some.
    pub(crate) fn load(&mut self, switches: &mut [&mut Switch]) -> Vec<String> {
        let (name, version) = (self.name(), self.wire.name());
        let mut disputed = Vec::new();
        for (bridge, rules) in &mut self.rules {
            let said: Vec<_> = switches.iter().map(|s| s.load(bridge, version, rules)).collect();
            if said.iter().any(Option::is_some) {
                // All have the groups. Rules that a switch refuses are found by halves.
                let (groups, flows): (Vec<String>, Vec<String>) = rules.drain(..).partition(|r| is_group(r));
                let mut undecided = vec![&flows[..]];
                *rules = groups;
                while let Some(some) = undecided.pop() {
                    let said: Vec<_> = switches.iter().map(|s| s.load_rules(bridge, version, some)).collect();
                    match some {
                        _ if said.iter().all(Option::is_none) => rules.extend_from_slice(some),
                        [rule] if said.windows(2).any(|w| w[0] != w[1]) => {
                            disputed.push(format!("{name}: {bridge} {version} {rule}: {said:?}"));
                        }
                        [] | [_] => {}
                        _ => {
                            let (first, second) = some.split_at(some.len() / 2);
                            undecided.extend([second, first]);
                        }
                    }
                }
                for switch in switches.iter() {
                    assert_eq!(switch.load(bridge, version, rules), None, "{name}");
                }
            }
        }
        switches.iter_mut().for_each(|s| s.forget());
        disputed
    }
}
