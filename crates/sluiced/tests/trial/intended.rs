//! Intended differences, each with its reason, and statistics of the comparison.

use crate::answers;
use crate::scenario::Scenario;
use crate::switches::Layout;
use std::fmt::Write as _;

/// An intended difference.
struct Intended {
    name: &'static str,
    /// Reason for the difference.
    reason: &'static str,
    /// Too rare for the short ranges.
    rare: bool,
    /// Removes the intended difference from the answers.
    settle: fn(&mut Case<'_>),
}

/// A comparison.
#[derive(Clone)]
struct Case<'a> {
    layout: Layout,
    /// Sluice's whole trace.
    story: &'a str,
    flow: &'a str,
    ours: Vec<String>,
    theirs: Vec<String>,
}

const ACTIONS: &str = "Datapath actions: ";
/// Datapath numbers of the access ports of both bridges.
const ACCESS_PORTS: [&str; 2] = ["3", "9"];
const MEGAFLOW: &str = "Megaflow: ";

impl Case<'_> {
    /// Number of differing lines.
    fn differences(&self) -> usize {
        let (a, b) = (&self.ours, &self.theirs);
        (0..a.len().max(b.len())).filter(|n| a.get(*n) != b.get(*n)).count()
    }

    /// Whether the packet is of the protocol, whose name follows fields of the packet's context.
    fn is_of(&self, protocol: &str) -> bool {
        self.flow.split(',').any(|field| field == protocol)
    }

    fn says(&self, any_of: &[&str]) -> bool {
        any_of.iter().any(|word| self.story.contains(word))
    }
}

/// A megaflow without the fields `names`.
fn without(line: &str, names: &[&str]) -> String {
    let kept =
        |field: &&str| !names.iter().any(|n| field.strip_prefix(n).is_some_and(|rest| rest.starts_with('=')));
    line.split(',').filter(kept).collect::<Vec<_>>().join(",")
}

/// A field of a megaflow, with its value.
fn has<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split(',').find(|f| f.strip_prefix(name).is_some_and(|rest| rest.starts_with('=')))
}

/// A megaflow without the fields that another one lacks or has otherwise.
fn shared(line: &str, other: &str) -> String {
    let other: Vec<&str> = other.split(',').collect();
    line.split(',').filter(|field| other.contains(field)).collect::<Vec<_>>().join(",")
}

/// Whether a trace has two clauses of one priority.
fn has_equal_clauses(story: &str) -> bool {
    let priority = |line: &str| {
        let rest = line.trim_start().strip_prefix("-> conj. priority=")?;
        rest.split(',').next()?.parse::<u16>().ok()
    };
    let clauses: Vec<Option<u16>> = story.lines().map(priority).collect();
    clauses.windows(2).any(|pair| pair[0].is_some() && pair[0] == pair[1])
}

/// Whether our mask of a numeric field is a proper subset of theirs.
fn is_narrower(ours: &str, theirs: &str, field: &str) -> bool {
    let mask = |line: &str| match has(line, field) {
        None => Some(0),
        Some(f) => match f.split_once('/') {
            None => Some(u16::MAX),
            Some((_, mask)) => u16::from_str_radix(mask.trim_start_matches("0x"), 16).ok(),
        },
    };
    matches!((mask(ours), mask(theirs)), (Some(a), Some(b)) if a & !b == 0 && a != b)
}

/// The ports of datapath actions at any depth, sorted.
fn ports(line: &str) -> String {
    let nested = ["clone(", "gt(", "le("];
    let plain = nested.iter().fold(line.trim_start_matches(ACTIONS).to_string(), |l, n| l.replace(n, ""));
    let number = |part: &str| part.trim_end_matches(')').parse::<u32>().ok();
    let mut ports: Vec<u32> = plain.split(',').filter_map(number).collect();
    ports.sort_unstable();
    format!("{ACTIONS}{ports:?}")
}

/// A megaflow without the protocol of its network layer.
fn without_protocol(line: &str) -> String {
    let of_ip = |f: &str| match f {
        "tcp" | "udp" | "sctp" | "icmp" => "ip".to_string(),
        "tcp6" | "udp6" | "sctp6" | "icmp6" => "ipv6".to_string(),
        other => other.to_string(),
    };
    let line = without(line, &["nw_proto", "arp_op"]);
    line.split(',').map(of_ip).collect::<Vec<_>>().join(",")
}

/// Replaces results of hashes in register 9 of all flows of a trace. Each possible result becomes 0: a link below the greatest
/// number of links, or a member, of the actions that Sluice's trace shows. Any other result stays.
fn without_hashes(story: &str, lines: &mut [String]) {
    let arguments = |name: &'static str, register: &'static str| {
        let lines = story.lines().filter_map(move |l| l.trim_start().strip_prefix(name));
        lines.filter(move |l| l.contains(register)).map(|l| l.split([',', ':', ')']).collect::<Vec<_>>())
    };
    let links =
        arguments("multipath(", "NXM_NX_REG9[0..15]").filter_map(|a| a.get(3)?.parse::<u32>().ok()).max();
    let members: Vec<u32> = arguments("bundle_load(", "NXM_NX_REG9[16..31]")
        .flat_map(|a| a[5..].iter().filter_map(|m| m.parse().ok()).collect::<Vec<u32>>())
        .collect();
    let settled = |flow: &str| {
        let field = |field: &str| {
            let digits = field.strip_prefix("reg9=0x");
            let Some(value) = digits.and_then(|d| u32::from_str_radix(d, 16).ok()) else {
                return Some(field.to_string());
            };
            let (mut link, mut member) = (value & 0xffff, value >> 16);
            if links.is_some_and(|n| link < n) {
                link = 0;
            }
            if members.contains(&member) {
                member = 0;
            }
            let left = member << 16 | link;
            (left != 0).then(|| format!("reg9={left:#x}"))
        };
        flow.split(',').filter_map(field).collect::<Vec<_>>().join(",")
    };
    let mut flow = String::new();
    for line in lines {
        if let Some(rest) = line.strip_prefix("Flow: ") {
            flow = settled(rest);
            *line = format!("Flow: {flow}");
        } else if let Some(rest) = line.strip_prefix("Final flow: ") {
            let last = settled(rest);
            let last = if last == flow { "unchanged" } else { &last };
            *line = format!("Final flow: {last}");
        }
    }
}

const INTENDED: &[Intended] = &[
    Intended {
        name: "links and members by hash",
        reason: "Sluice's hashes are its own: `multipath` and `bundle_load` choose any of their links or live members",
        rare: true,
        settle: |case| {
            without_hashes(case.story, &mut case.ours);
            without_hashes(case.story, &mut case.theirs);
        },
    },
    Intended {
        name: "tags behind an empty one",
        reason: "where NORMAL removes an outer tag of VLAN 0, OVS removes the inner one with it; Sluice leaves that",
        rare: false,
        settle: |case| {
            if case.says(&["NORMAL"]) && case.says(&["push_vlan:"]) {
                let flow = case.flow;
                for line in case.ours.iter_mut().chain(&mut case.theirs) {
                    if let Some(sent) =
                        line.strip_prefix(ACTIONS).and_then(|actions| answers::sent(actions, flow))
                    {
                        // An access port has no packets with a further tag.
                        let sent = sent.iter().filter_map(|s| s.split(" [").next());
                        let sent: Vec<_> = sent.filter(|port| !ACCESS_PORTS.contains(port)).collect();
                        *line = format!("{ACTIONS}{sent:?}");
                    }
                }
            }
        },
    },
    Intended {
        name: "ICMPv6 within IPv4",
        reason: "OVS reads type and code of ICMPv6 within IPv4, which neither Linux nor any match knows; Sluice does not",
        rare: false,
        settle: |case| {
            if case.is_of("nw_proto=58") {
                let both = case.ours.iter_mut().chain(&mut case.theirs);
                both.filter(|l| !l.starts_with(ACTIONS)).for_each(|l| *l = without(l, &["tp_src", "tp_dst"]));
            }
        },
    },
    Intended {
        name: "mask of a failed translation",
        reason: "OVS leaves registers and tags that the packet lacks in the mask of a flow that an error drops",
        rare: true,
        settle: |case| {
            if case.ours.last().is_some_and(|l| l.starts_with("Translation failed")) {
                case.ours
                    .iter_mut()
                    .chain(&mut case.theirs)
                    .filter(|l| l.starts_with(MEGAFLOW))
                    .for_each(String::clear);
            }
        },
    },
    Intended {
        name: "translations without end",
        reason: "a translation into more than 131,072 actions is dropped; OVS sends such a packet through the slow path",
        rare: true,
        settle: |case| {
            if case.says(&["Too many datapath actions"]) {
                let both = case.ours.iter_mut().chain(&mut case.theirs);
                both.filter(|l| !l.starts_with("Flow: ")).for_each(String::clear);
                case.ours.truncate(case.theirs.len());
                case.theirs.truncate(case.ours.len());
            }
        },
    },
    Intended {
        name: "label entries rewritten whole",
        reason: "the datapath writes label, class, bottom bit and time to live together; OVS leaves those that the rule does not set out of the mask",
        rare: true,
        settle: |case| {
            let all = ["mpls_label", "mpls_tc", "mpls_ttl", "mpls_bos"];
            let both = case.ours.iter().chain(&case.theirs);
            if both.filter(|l| l.starts_with(ACTIONS)).all(|l| l.contains("set(mpls(")) {
                let both = case.ours.iter_mut().chain(&mut case.theirs);
                both.filter(|l| l.starts_with(MEGAFLOW)).for_each(|l| *l = without(l, &all));
            }
        },
    },
    Intended {
        name: "tags popped after the last output",
        reason: "OVS looks at a tag that it removes, also where nothing is sent after that",
        rare: true,
        settle: |case| {
            let both = case.ours.iter().chain(&case.theirs);
            if case.says(&["pop_vlan", "strip_vlan"])
                && both.filter(|l| l.starts_with(ACTIONS)).all(|l| !l.contains("pop_vlan"))
            {
                let both = case.ours.iter_mut().chain(&mut case.theirs);
                let fields = ["dl_vlan", "dl_vlan_pcp", "vlan_tci"];
                both.filter(|l| l.starts_with(MEGAFLOW)).for_each(|l| *l = without(l, &fields));
            }
        },
    },
    Intended {
        name: "priority of priority tags",
        reason: "a priority tag is kept or removed by its priority, which OVS does not put into the mask",
        rare: false,
        settle: |case| {
            if case.says(&["NORMAL"]) && case.flow.contains("dl_vlan=0,") {
                let both = case.ours.iter_mut().chain(&mut case.theirs);
                both.filter(|l| l.starts_with(MEGAFLOW)).for_each(|l| *l = without(l, &["dl_vlan_pcp"]));
            }
        },
    },
    Intended {
        name: "gratuitous ARP",
        reason: "OVS looks for gratuitous ARP wherever it learns, for the sake of bonds; Sluice where a bond of mode balance-slb takes the packet",
        rare: false,
        settle: |case| {
            if case.says(&["NORMAL"]) && case.is_of("arp") {
                let both = case.ours.iter_mut().chain(&mut case.theirs);
                let fields = ["arp_op", "arp_spa", "arp_tpa", "dl_dst"];
                both.filter(|l| l.starts_with(MEGAFLOW)).for_each(|l| *l = without(l, &fields));
            }
        },
    },
    Intended {
        name: "protocol of rewritten headers",
        reason: "headers of protocol 0 are not rewritten, so the protocol is in the mask; OVS leaves it out for `move`, `pop` \
                 and `ip_dscp`",
        rare: true,
        settle: |case| {
            let rewrites = case.ours.iter().any(|l| l.starts_with(ACTIONS) && l.contains("set("));
            if rewrites || case.is_of("nw_proto=0") {
                let both = case.ours.iter_mut().chain(&mut case.theirs);
                both.filter(|l| l.starts_with(MEGAFLOW)).for_each(|l| *l = without_protocol(l));
            }
        },
    },
    Intended {
        name: "stack without a bottom",
        reason: "such a stack has as many labels as entries that are not zero; OVS looks at their bottom bits only",
        rare: true,
        settle: |case| {
            if case.is_of("mpls") && !case.flow.contains("mpls_bos=1") {
                let both = case.ours.iter_mut().chain(&mut case.theirs);
                let fields = ["mpls_label", "mpls_tc", "mpls_ttl", "mpls_bos", "mpls_lse1", "mpls_lse2"];
                both.filter(|l| l.starts_with(MEGAFLOW)).for_each(|l| *l = without(l, &fields));
            }
        },
    },
    Intended {
        name: "protocol of labelled packets",
        reason: "OVS puts the protocol that `fin_timeout` looks at into the mask of labelled packets, which have none",
        rare: true,
        settle: |case| {
            if case.is_of("mpls") && case.says(&["fin_timeout"]) {
                let both = case.ours.iter_mut().chain(&mut case.theirs);
                both.filter(|l| l.starts_with(MEGAFLOW)).for_each(|l| *l = without(l, &["nw_proto"]));
            }
        },
    },
    Intended {
        name: "ICMP types and ports",
        reason: "OVS gives an ICMP type the 16 bits of a port, so rules of both share a subtable and widen each other's masks",
        rare: true,
        settle: |case| {
            let ours = case.ours.iter_mut().filter(|l| l.starts_with(MEGAFLOW));
            for (ours, theirs) in ours.zip(case.theirs.iter_mut().filter(|l| l.starts_with(MEGAFLOW))) {
                for field in ["tp_src", "tp_dst", "icmp_type", "icmp_code"] {
                    if is_narrower(ours, theirs, field) {
                        (*ours, *theirs) = (without(ours, &[field]), without(theirs, &[field]));
                    }
                }
            }
        },
    },
    Intended {
        name: "rules learned by the packet itself",
        reason: "OVS passes rules that the same translation learned, which it does not see yet, and looks at their bits",
        rare: true,
        settle: |case| {
            if case.says(&["learn("]) {
                let ours = case.ours.iter_mut().filter(|l| l.starts_with(MEGAFLOW));
                for (ours, theirs) in ours.zip(case.theirs.iter_mut().filter(|l| l.starts_with(MEGAFLOW))) {
                    for field in ["dl_src", "dl_dst"] {
                        if has(ours, field).is_none_or(|f| f.contains('/')) && has(theirs, field).is_some() {
                            (*ours, *theirs) = (without(ours, &[field]), without(theirs, &[field]));
                        }
                    }
                }
            }
        },
    },
    Intended {
        name: "clauses of one priority",
        reason: "clauses of conjunctions with one priority are found in no certain order, and the lookup ends with the last one",
        rare: true,
        settle: |case| {
            if has_equal_clauses(case.story) {
                let ours = case.ours.iter_mut().filter(|l| l.starts_with(MEGAFLOW));
                for (ours, theirs) in ours.zip(case.theirs.iter_mut().filter(|l| l.starts_with(MEGAFLOW))) {
                    (*ours, *theirs) = (shared(ours, theirs), shared(theirs, ours));
                }
            }
        },
    },
    Intended {
        name: "label on NSH",
        reason: "OVS leaves the type of a packet with a network service header when `push_mpls` puts a label before it",
        rare: true,
        settle: |case| {
            if case.says(&["push_mpls:"]) {
                // Without a label, its removal does nothing.
                let pops = case.says(&["pop_mpls:"]);
                let nsh = "packet_type=(1,0x894f)";
                let ours = case.ours.iter_mut().filter(|l| l.starts_with("Final flow: "));
                for (ours, theirs) in
                    ours.zip(case.theirs.iter_mut().filter(|l| l.starts_with("Final flow: ")))
                {
                    if theirs.contains(nsh) && (pops || ours.contains("packet_type=(1,0x884")) {
                        ours.clear();
                        theirs.clear();
                    }
                }
            }
        },
    },
    Intended {
        name: "action set of both cases of a length",
        reason: "OVS loses the action set that comes before `check_pkt_larger` in its cases, and what they write into it",
        rare: true,
        settle: |case| {
            if case.says(&["check_pkt_larger"]) && case.says(&["write_actions("]) {
                let both = case.ours.iter_mut().chain(&mut case.theirs);
                both.filter(|l| !l.starts_with("Flow: ")).for_each(String::clear);
            }
        },
    },
    Intended {
        name: "VLAN and destination of mirrored packets",
        reason: "a mirror takes packets of its port's VLANs, and an output VLAN no reserved addresses: OVS leaves both out of the mask",
        rare: false,
        settle: |case| {
            if case.layout == Layout::Services {
                let both = case.ours.iter_mut().chain(&mut case.theirs);
                let fields = ["dl_vlan", "dl_vlan_pcp", "vlan_tci", "dl_dst"];
                both.filter(|l| l.starts_with(MEGAFLOW)).for_each(|l| *l = without(l, &fields));
            }
        },
    },
    Intended {
        name: "order of floods",
        reason: "OVS floods in the order of a hash table, of bundles by their addresses in memory; Sluice by port number",
        rare: false,
        settle: |case| {
            // A mirror floods the VLAN of its output.
            if case.layout != Layout::Services && !case.says(&["flooding", "FLOOD", "ALL"]) {
                return;
            }
            let flow = case.flow;
            // A rewrite between two ports of a flood must be undone in one order and not in another.
            let both = case.ours.iter().chain(&case.theirs);
            let rewrites = both.filter(|l| l.starts_with(ACTIONS)).any(|l| l.contains("set("));
            // Its last port needs no clone for what cannot be undone.
            let both = case.ours.iter().chain(&case.theirs);
            let of_copies = ["clone(", "trunc(", "meter(", "push_nsh(", "push_mpls(", "check_pkt_len("];
            if both.filter(|l| l.starts_with(ACTIONS)).any(|l| of_copies.iter().any(|a| l.contains(a))) {
                let both = case.ours.iter_mut().chain(&mut case.theirs);
                return both.filter(|l| l.starts_with(ACTIONS)).for_each(|l| *l = ports(l));
            }
            for line in case.ours.iter_mut().chain(&mut case.theirs) {
                if let Some(mut sent) =
                    line.strip_prefix(ACTIONS).and_then(|actions| answers::sent(actions, flow))
                {
                    if rewrites {
                        let alone = |s: &String| s.split(" {").next().map(str::to_string);
                        sent = sent.iter().filter_map(alone).collect();
                        sent.sort();
                    }
                    *line = format!("{ACTIONS}{sent:?}");
                }
            }
        },
    },
];

/// Number of comparisons from which rare entries must have explained a difference.
const LONG: usize = 50_000;

/// Results of the comparisons.
#[derive(Clone, Default)]
pub(crate) struct Tally {
    pub(crate) compared: usize,
    explained: [usize; INTENDED.len()],
    /// Unexplained differences.
    faults: Vec<String>,
}

impl Tally {
    /// Unexplained differences so far.
    pub(crate) fn faults(&self) -> usize {
        self.faults.len()
    }

    /// Whether the answer is equal, or differs as intended only.
    pub(crate) fn agrees(
        &self,
        scenario: &Scenario,
        packet: &[String],
        story: &str,
        theirs: &[String],
    ) -> bool {
        !self.clone().compare(scenario, packet, story, theirs)
    }

    /// Compares Sluice's trace of a packet with the other switch's. Returns whether an unexplained difference is
    /// left.
    pub(crate) fn compare(
        &mut self,
        scenario: &Scenario,
        packet: &[String],
        story: &str,
        theirs: &[String],
    ) -> bool {
        self.compared += 1;
        let ours = answers::of_story(story);
        if ours == theirs {
            return false;
        }
        let flow = ours[0].strip_prefix("Flow: ").unwrap_or_default().to_string();
        let case =
            Case { layout: scenario.layout, story, flow: &flow, ours: ours.clone(), theirs: theirs.to_vec() };
        let mut left = case.clone();
        for (entry, count) in INTENDED.iter().zip(&mut self.explained) {
            let mut settled = left.clone();
            (entry.settle)(&mut settled);
            if settled.differences() < left.differences() {
                *count += 1;
                left = settled;
            }
        }
        if left.differences() == 0 {
            return false;
        }
        // Several may explain one line together: counts entries whose removal leaves a difference.
        let settled_without = |left_out: Option<usize>| {
            let mut settled = case.clone();
            let entries = INTENDED.iter().enumerate().filter(|(n, _)| Some(*n) != left_out);
            entries.for_each(|(_, entry)| (entry.settle)(&mut settled));
            settled.differences() == 0
        };
        if settled_without(None) {
            for (n, count) in self.explained.iter_mut().enumerate() {
                *count += usize::from(!settled_without(Some(n)));
            }
            return false;
        }
        let mut fault = format!("{}: {}\n", scenario.name(), packet.join(" "));
        for n in 0..ours.len().max(theirs.len()) {
            let (a, b) = (ours.get(n), theirs.get(n));
            if a != b {
                let text = |l: Option<&String>| l.cloned().unwrap_or_default();
                let _ = writeln!(fault, "  Sluice {}\n  OVS    {}", text(a), text(b));
            }
        }
        self.faults.push(fault);
        true
    }

    /// Fails on an unexplained difference; of a whole range also if an entry of the list explained nothing.
    pub(crate) fn conclude(&self, shown: usize, is_whole: bool) {
        for (entry, count) in INTENDED.iter().zip(self.explained) {
            println!("{count} of {}: {} ({})", self.compared, entry.name, entry.reason);
        }
        let faults: String = self.faults.iter().take(shown).map(String::as_str).collect();
        assert!(self.faults.is_empty(), "{} of {} differ:\n{faults}", self.faults.len(), self.compared);
        let is_long = self.compared > LONG;
        let is_stale = |(entry, n): &(&Intended, usize)| is_whole && *n == 0 && (is_long || !entry.rare);
        let stale: Vec<&str> =
            INTENDED.iter().zip(self.explained).filter(is_stale).map(|(i, _)| i.name).collect();
        assert!(stale.is_empty(), "entries of the list that explain nothing: {stale:?}");
    }
}
