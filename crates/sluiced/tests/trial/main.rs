//! The differential trial: random rules and packets through Sluice and OVS, both in dummy mode on stopped clocks. The peer is
//! that of [`testkit::stock_root`], else Debian's switch.
//! Compares, by `ofproto/trace`, the flow parsed from a packet, its final form, megaflow masks and datapath actions.
//!
//! [`recorded_answers_hold`] replays `recorded.txt`, recorded answers of OVS, so it needs no second switch.
//! [`answers_of_both_switches`] traces on both: 2,000 comparisons, and 100,000 with `SLUICE_LONG=1`. Intended differences are in
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
use std::path::PathBuf;
use std::time::Duration;
use switches::Switch;
use testkit::{require_netns, require_programs};

/// Scenarios of the recording, and packets of each.
const RECORDED: (u64, usize) = (30, 40);
/// Scenarios for both switches, with packets of each, in the short range and the long one.
const SHORT: (u64, usize) = (20, 100);
const LONG: (u64, usize) = (500, 200);
/// Distinct start seeds of the ranges. In the first, no intended difference leaves other learned addresses, which later packets
/// would show.
const FIRST_RECORDED: u64 = 101;
const FIRST_ASKED: u64 = 1000;
/// Assertions that end Debian's switch on a packet; it is restarted, and the packet skipped.
const ASSERTIONS: &[&str] = &[
    // It freezes a translation whose action set is longer than the remaining actions.
    "assertion state->action_set_len <= state->ofpacts_len failed in recirc_alloc_id__()",
    // It pushes an Ethernet header behind a patch port whose peer encapsulated the packet and did not send it.
    "assertion !dp_packet_is_eth(packet) failed in push_eth()",
    // Behind a patch port whose peer pushed a label onto a stack without a bottom, it cannot pop that label.
    "assertion flow_pop_mpls(base, base_n, flow->dl_type, NULL) failed in commit_mpls_action()",
    // Behind a patch port it pushes a service header in front of another one, and sets its fields.
    "failed in commit_set_nsh_action()",
];
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
    assert_eq!(recordings.len() as u64, RECORDED.0, "scenarios in {}", path().display());
    let mut ours = Switch::sluice();
    let mut tally = Tally::default();
    for recording in &recordings {
        for (bridge, rules) in &recording.scenario.rules {
            let refused = ours.load(bridge, recording.scenario.wire.name(), rules);
            assert_eq!(refused, None, "rules of {bridge}, seed {}", recording.scenario.seed);
        }
        ours.forget();
        for (packet, theirs) in recording.scenario.packets.iter().zip(&recording.answers) {
            tally.compare(recording.scenario.seed, packet, &ours.trace(packet).unwrap(), theirs);
        }
    }
    tally.conclude(SHOWN);
}

/// Repetitions of a trace that does not agree, and the time between them.
const ASKED_AGAIN: u32 = 50;
const PAUSE: Duration = Duration::from_millis(50);

/// Records the answers of Debian's switch.
fn record() {
    require_programs!("ovs-vswitchd", "ovsdb-server");
    let mut theirs = Switch::stock();
    let mut text = String::new();
    for seed in FIRST_RECORDED..FIRST_RECORDED + RECORDED.0 {
        let mut scenario = Scenario::new(seed, RECORDED.1);
        scenario.load(&mut [&mut theirs]);
        let mut answers = Vec::new();
        for packet in &scenario.packets {
            match theirs.trace(packet) {
                Ok(story) => answers.push(answers::of_story(&story)),
                // The scenario ends before the packet: a restarted switch lacks learned flows and addresses.
                Err(why) => {
                    assert!(ASSERTIONS.iter().any(|a| why.contains(a)), "seed {seed}: {packet:?}: {why}");
                    theirs = Switch::stock();
                    break;
                }
            }
        }
        scenario.packets.truncate(answers.len());
        text += &Recording { scenario, answers }.to_string();
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

#[test]
fn answers_of_both_switches() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-vswitchd", "ovsdb-server");
    let (mut first, (mut scenarios, packets)) = (FIRST_ASKED, if testkit::long() { LONG } else { SHORT });
    if let Ok(seeds) = std::env::var("SLUICE_TRIAL_SEED") {
        let (from, to) = seeds.split_once('-').unwrap_or((&seeds, &seeds));
        let (from, to): (u64, u64) = (from.parse().unwrap(), to.parse().unwrap());
        (first, scenarios) = (from, to - from + 1);
    }
    let (mut ours, mut theirs) = (Switch::sluice(), Switch::stock());
    let (mut tally, mut left_out, mut disputes) = (Tally::default(), 0, Vec::new());
    for seed in first..first + scenarios {
        if let Err(why) = theirs.is_alive() {
            assert!(ASSERTIONS.iter().any(|a| why.contains(a)), "before seed {seed}: {why}");
            theirs = Switch::stock();
        }
        let mut scenario = Scenario::new(seed, packets);
        let disputed = scenario.load(&mut [&mut ours, &mut theirs]);
        disputes.extend(disputed.into_iter().map(|d| format!("seed {seed}: {d}")));
        if scenarios == 1 {
            scenario.rules.iter().for_each(|(bridge, rules)| println!("{bridge}:\n{}", rules.join("\n")));
        }
        for packet in &scenario.packets.clone() {
            let story = ours.trace(packet).unwrap_or_else(|why| panic!("seed {seed}: {packet:?}: {why}"));
            match settled(&mut theirs, packet, |answer| tally.agrees(packet, &story, answer)) {
                Ok(answer) => {
                    let is_fault = tally.compare(seed, packet, &story, &answers::of_story(&answer));
                    if is_fault && scenarios == 1 {
                        println!("{}\nSluice:\n{story}\nOVS:\n{answer}", packet.join(" "));
                    }
                }
                Err(why) => {
                    let is_known = ASSERTIONS.iter().any(|a| why.contains(a));
                    assert!(is_known, "seed {seed}: {packet:?}: {why}\nSluice:\n{story}");
                    left_out += 1;
                    // Both restart: the other one has learned flows and addresses that this one lacks.
                    theirs = Switch::stock();
                    let disputed = scenario.load(&mut [&mut ours, &mut theirs]);
                    disputes.extend(disputed.into_iter().map(|d| format!("seed {seed}: {d}")));
                }
            }
        }
    }
    println!("{left_out} packets left out, over which Debian's switch ends");
    assert_eq!(tally.compared + left_out, scenarios as usize * packets);
    let shown = &disputes[..disputes.len().min(SHOWN)];
    println!("{} rules that one switch alone refuses:\n{}", disputes.len(), shown.join("\n"));
    tally.conclude(SHOWN);
    assert!(disputes.is_empty(), "one switch alone refuses rules");
}
