//! The text of recorded trials: one line per scenario, flow, packet and line of an answer, distinguished by the first word.

use crate::rules::Wire;
use crate::scenario::Scenario;
use crate::switches::Layout;
use std::fmt;

/// A trial with the answers of Debian's switch to each packet.
pub(crate) struct Recording {
    pub(crate) scenario: Scenario,
    pub(crate) answers: Vec<Vec<String>>,
}

impl Recording {
    pub(crate) fn parse_all(text: &str) -> Vec<Recording> {
        let mut all: Vec<Recording> = Vec::new();
        for line in text.lines() {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            if word == "scenario" {
                let [seed, version, layout] = *rest.split(' ').collect::<Vec<_>>() else { panic!("{line}") };
                let layout = Layout::ALL.into_iter().find(|l| l.name() == layout).expect(line);
                let wire = Wire::ALL.into_iter().find(|w| w.name() == version).expect(line);
                let seed = seed.parse().expect(line);
                let scenario = Scenario { seed, layout, wire, rules: Vec::new(), packets: Vec::new() };
                all.push(Recording { scenario, answers: Vec::new() });
                continue;
            }
            let Recording { scenario, answers } = all.last_mut().expect("a scenario comes first");
            match word {
                "bridge" => scenario.rules.push((rest.to_string(), Vec::new())),
                "rule" => scenario.rules.last_mut().expect(line).1.push(rest.to_string()),
                "trace" => {
                    scenario.packets.push(rest.split(' ').map(str::to_string).collect());
                    answers.push(Vec::new());
                }
                "answer" => answers.last_mut().expect(line).push(rest.to_string()),
                _ => panic!("{line}: neither scenario, bridge, rule, trace nor answer"),
            }
        }
        all
    }
}

impl fmt::Display for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scenario = &self.scenario;
        writeln!(f, "scenario {} {} {}", scenario.seed, scenario.wire.name(), scenario.layout.name())?;
        for (bridge, rules) in &scenario.rules {
            writeln!(f, "bridge {bridge}")?;
            rules.iter().try_for_each(|r| writeln!(f, "rule {r}"))?;
        }
        for (packet, answer) in scenario.packets.iter().zip(&self.answers) {
            writeln!(f, "trace {}", packet.join(" "))?;
            answer.iter().try_for_each(|l| writeln!(f, "answer {l}"))?;
        }
        Ok(())
    }
}
