//! The differential trial: random rules and packets through Sluice and OVS, both in dummy mode on stopped clocks. The peer is
//! that of [`testkit::stock_root`], else Debian's switch. Each seed runs with the ports of each [`Layout`].
//! Compares, by `ofproto/trace`, the flow parsed from a packet, its final form, megaflow masks and datapath actions.
//!
//! [`recorded_answers_hold`] replays `recorded.txt`, recorded answers of OVS, so it needs no second switch.
//! [`answers_of_both_switches`] traces on both: 1,200 comparisons, and 100,000 with `SLUICE_LONG=1`. Intended differences are in
//! [`intended`]; an entry that explains nothing fails. To record anew:
//! `SLUICE_TRIAL_RECORD=1 cargo test -p sluiced --test trial`. `SLUICE_TRIAL_SEED=N` runs one seed on both switches,
//! and prints flows and differing traces; `SLUICE_TRIAL_SEED=N-M` runs several.
#![forbid(unsafe_code)]

mod answers;
mod connections;
mod intended;
mod packets;
mod recording;
mod rules;
mod scenario;
mod special;
mod switches;

use intended::Tally;
use recording::Recording;
use scenario::Scenario;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;
use switches::{Layout, SILENT, Switch, has_mirrors};
use testkit::{require_netns, require_programs};

/// Scenarios of the recording for each layout, and packets of each.
const RECORDED: (u64, usize) = (30, 40);
/// Scenarios of each layout for both switches, with packets of each, in the short range and the long one.
const SHORT: (u64, usize) = (6, 100);
const LONG: (u64, usize) = (250, 200);
/// Distinct start seeds of the ranges. In the first, no intended difference leaves other learned addresses, which later packets
/// would show.
const FIRST_RECORDED: u64 = 101;
const FIRST_ASKED: u64 = 1000;
/// Assertions that end the stock switch on a packet; it is restarted, and the packet skipped.
const ASSERTIONS: &[&str] = &[
    // It freezes a translation whose action set is longer than the remaining actions.
    "assertion state->action_set_len <= state->ofpacts_len failed in recirc_alloc_id__()",
    // It pushes an Ethernet header behind a patch port whose peer encapsulated the packet and did not send it.
    "assertion !dp_packet_is_eth(packet) failed in push_eth()",
    // Behind a patch port whose peer pushed a label onto a stack without a bottom, it cannot pop that label.
    "assertion flow_pop_mpls(base, base_n, flow->dl_type, NULL) failed in commit_mpls_action()",
    // Behind a patch port it pushes a service header in front of another one, and sets its fields.
    "failed in commit_set_nsh_action()",
    // It nests more actions than a netlink attribute holds.
    "assertion !nl_attr_oversized(msg->size - offset - NLA_HDRLEN) failed in nl_msg_end_nested()",
];
/// Seeds with packets over which the stock switch corrupts its memory, and ends in any way at some time: a service header in
/// front of labels, popped again.
const CORRUPTING: &[u64] = &[1068];
/// One packet in this many may be left out.
const LEFT_OUT_MAX: usize = 50;
/// Maximum differences printed; all are counted.
const SHOWN: usize = 60;

fn path() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/trial/recorded.txt"))
}

fn asked_for(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|v| v == "1")
}

#[test]
fn recorded_answers_hold() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl");
    if asked_for("SLUICE_TRIAL_RECORD") {
        record();
    }
    let text = std::fs::read_to_string(path()).unwrap();
    let recordings = Recording::parse_all(&text);
    assert_eq!(
        recordings.len() as u64,
        RECORDED.0 * Layout::ALL.len() as u64,
        "scenarios in {}",
        path().display()
    );
    let mut tally = Tally::default();
    for layout in Layout::ALL {
        let mut ours = Switch::sluice(layout, true);
        for recording in recordings.iter().filter(|r| r.scenario.layout == layout) {
            for (bridge, rules) in &recording.scenario.rules {
                let refused = ours.load(bridge, recording.scenario.wire.name(), rules);
                assert_eq!(refused, None, "rules of {bridge}, {}", recording.scenario.name());
            }
            ours.forget();
            for (packet, theirs) in recording.scenario.packets.iter().zip(&recording.answers) {
                tally.compare(&recording.scenario, packet, &ours.trace(packet).unwrap(), theirs);
            }
        }
    }
    tally.conclude(SHOWN, true);
}

/// Repetitions of a trace that does not agree, and the time between them.
const ASKED_AGAIN: u32 = 50;
const PAUSE: Duration = Duration::from_millis(50);

/// Records the answers of OVS 3.5.
fn record() {
    assert!(has_mirrors(), "the recording is of OVS 3.5: scripts/ovs35.sh");
    let mut text = String::new();
    for layout in Layout::ALL {
        let mut theirs = Switch::stock(layout);
        for seed in FIRST_RECORDED..FIRST_RECORDED + RECORDED.0 {
            let mut scenario = Scenario::new(seed, layout, RECORDED.1);
            scenario.load(&mut [&mut theirs]);
            let mut answers = Vec::new();
            for packet in &scenario.packets {
                match theirs.trace(packet) {
                    Ok(story) => answers.push(answers::of_story(&story)),
                    // The scenario ends before the packet: a restarted switch lacks learned flows and addresses.
                    Err(why) => {
                        assert!(is_known(&why, seed), "{}: {packet:?}: {why}", scenario.name());
                        theirs = Switch::stock(layout);
                        break;
                    }
                }
            }
            scenario.packets.truncate(answers.len());
            text += &Recording { scenario, answers }.to_string();
        }
    }
    std::fs::write(path(), text).unwrap();
}

/// The stock switch's answer. Repeats a differing trace for a while: that switch considers bits of deleted flows until
/// all its threads have been quiescent.
fn settled(
    theirs: &mut Switch,
    packet: &[String],
    agrees: impl Fn(&[String]) -> bool,
) -> Result<String, String> {
    let mut answer = theirs.trace(packet)?;
    for _ in 0..ASKED_AGAIN {
        if agrees(&answers::of_story(&answer)) {
            break;
        }
        std::thread::sleep(PAUSE);
        answer = theirs.trace(packet)?;
    }
    Ok(answer)
}

/// Whether the stock switch ended by an assertion of the list, or by corrupt memory, which the kernel or glibc finds at some
/// time after the packet, or which makes it wait for a lock for ever.
fn is_known(last_words: &str, seed: u64) -> bool {
    if CORRUPTING.contains(&seed) || last_words.ends_with(SILENT) {
        return true;
    }
    let is_asserted = last_words.contains("assertion ");
    let is_corrupt =
        ["signal: 6 (SIGABRT)", "signal: 11 (SIGSEGV)"].iter().any(|end| last_words.contains(end));
    ASSERTIONS.iter().any(|a| last_words.contains(a)) || (is_corrupt && !is_asserted)
}

#[test]
fn answers_of_both_switches() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-vswitchd", "ovsdb-server");
    let (scenarios, packets) = if testkit::long() { LONG } else { SHORT };
    let mut seeds = FIRST_ASKED..FIRST_ASKED + scenarios;
    let asked = std::env::var("SLUICE_TRIAL_SEED").ok();
    if let Some(asked) = &asked {
        let (from, to) = asked.split_once('-').unwrap_or((asked, asked));
        seeds = from.parse().unwrap()..to.parse::<u64>().unwrap() + 1;
    }
    if !has_mirrors() {
        testkit::skip(
            "answers_of_both_switches, mirrors",
            "they are compared with OVS 3.5: scripts/ovs35.sh",
        );
    }
    let mut comparison = Comparison { is_told: seeds.clone().count() == 1, ..Comparison::default() };
    for layout in Layout::ALL {
        comparison.run(layout, seeds.clone(), packets);
    }
    let Comparison { tally, left_out, disputes, .. } = comparison;
    println!("{left_out} packets left out, over which the stock switch ends or falls silent");
    let all = Layout::ALL.len() * seeds.count() * packets;
    assert_eq!(tally.compared + left_out, all);
    assert!(left_out * LEFT_OUT_MAX <= all, "{left_out} of {all} packets left out");
    let shown = &disputes[..disputes.len().min(SHOWN)];
    println!("{} rules that one switch alone refuses:\n{}", disputes.len(), shown.join("\n"));
    // The list of intended differences is of OVS 3.5 with mirrors.
    tally.conclude(SHOWN, asked.is_none() && has_mirrors());
    assert!(disputes.is_empty(), "one switch alone refuses rules");
}

/// A comparison of both switches.
#[derive(Default)]
struct Comparison {
    tally: Tally,
    /// Packets over which the stock switch ends or falls silent.
    left_out: usize,
    /// Rules that one switch alone refuses.
    disputes: Vec<String>,
    /// Rules and differing traces are printed.
    is_told: bool,
}

impl Comparison {
    fn run(&mut self, layout: Layout, seeds: Range<u64>, packets: usize) {
        let (mut ours, mut theirs) = (Switch::sluice(layout, has_mirrors()), Switch::stock(layout));
        for seed in seeds {
            if testkit::long() {
                let (compared, faults) = (self.tally.compared, self.tally.faults());
                eprintln!(
                    "{layout:?}, seed {seed}: {compared} compared, {faults} faults, {} left out",
                    self.left_out
                );
            }
            if let Err(why) = theirs.is_alive() {
                assert!(is_known(&why, seed), "before seed {seed}: {why}");
                theirs = Switch::stock(layout);
            }
            let mut scenario = Scenario::new(seed, layout, packets);
            let name = scenario.name();
            self.disputes.extend(scenario.load(&mut [&mut ours, &mut theirs]));
            if self.is_told {
                scenario.rules.iter().for_each(|(bridge, rules)| println!("{bridge}:\n{}", rules.join("\n")));
            }
            for packet in &scenario.packets.clone() {
                let story = ours.trace(packet).unwrap_or_else(|why| panic!("{name}: {packet:?}: {why}"));
                match settled(&mut theirs, packet, |answer| {
                    self.tally.agrees(&scenario, packet, &story, answer)
                }) {
                    Ok(answer) => {
                        let is_fault =
                            self.tally.compare(&scenario, packet, &story, &answers::of_story(&answer));
                        if is_fault && self.is_told {
                            println!("{}\nSluice:\n{story}\nOVS:\n{answer}", packet.join(" "));
                        }
                    }
                    Err(why) => {
                        assert!(is_known(&why, seed), "{name}: {packet:?}: {why}\nSluice:\n{story}");
                        self.left_out += 1;
                        // Both restart: the other one has learned flows and addresses that this one lacks.
                        theirs = Switch::stock(layout);
                        self.disputes.extend(scenario.load(&mut [&mut ours, &mut theirs]));
                    }
                }
            }
        }
    }
}
