//! Speed and size of the classifier: `cargo run --release -p classifier --example rules_speed [rules [case]]`.
//!
//! Sizes are differences of the resident set (`/proc/self/statm`), so they include allocator overhead. Rules are
//! reference-counted, as in a switch; sizes include their match and priority.

#![allow(clippy::disallowed_methods, reason = "an example measures time")]

use classifier::{Classifier, ClsRule};
use flow::fields::FieldId::{EthDst, EthType, InPortOxm, IpDst, IpSrc, NwProto, TcpDst, TcpSrc};
use flow::{Flow, Mask, Match, PackedMatch};
use std::hint::black_box;
use std::sync::{Arc, Mutex};
use std::time::Instant;

const PAGE_BYTES: usize = 4096;
const SEED: u64 = 0x5eed_5eed_5eed_5eed;

/// A rule with nothing but its match.
struct Rule {
    matching: PackedMatch,
    priority: i32,
}

impl ClsRule for Rule {
    fn matching(&self) -> &PackedMatch {
        &self.matching
    }

    fn priority(&self) -> i32 {
        self.priority
    }

    fn is_soft(&self) -> bool {
        false
    }
}

fn rule(c: &Classifier<Arc<Rule>>, m: &Match, priority: i32) -> Arc<Rule> {
    Arc::new(Rule { matching: c.pack(m), priority })
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * PAGE_BYTES
}

/// A fixed pseudo-random sequence (splitmix64).
fn scramble(n: usize) -> u64 {
    let mut z = (n as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

fn mac_rule(n: usize) -> Match {
    Match::catchall().with(EthDst, u128::from(scramble(n) >> 16))
}

fn five_tuple(n: usize) -> Match {
    let r = scramble(n);
    Match::catchall()
        .with(EthType, 0x800)
        .with(NwProto, 6)
        .with(IpSrc, u128::from(r as u32))
        .with(IpDst, u128::from((r >> 32) as u32))
        .with(TcpSrc, (n % 50_000) as u128)
        .with(TcpDst, 443)
}

fn route(n: usize) -> Match {
    let len = 8 + n as u32 % 25;
    let mask = u128::from(u32::MAX << (32 - len));
    let mut m = Match::catchall().with(EthType, 0x800);
    *m.set_masked(IpDst, u128::from(scramble(n) as u32), mask)
}

fn inserting(name: &str, rules: usize, make: fn(usize) -> Match) {
    let before = resident_bytes();
    let start = Instant::now();
    let mut c = Classifier::new(SEED);
    for n in 0..rules {
        c.insert(rule(&c, &make(n), 100));
    }
    let taken = start.elapsed();
    let bytes = resident_bytes().saturating_sub(before);
    let kept = c.len();
    println!(
        "{name}: {kept} rules, {:.0} inserts/s on a private clone, {} bytes a rule",
        rules as f64 / taken.as_secs_f64(),
        bytes / kept,
    );
    let published = Mutex::new(Arc::new(c.clone()));
    let updates = 200_000;
    let start = Instant::now();
    for n in rules..rules + updates {
        c.insert(rule(&c, &make(n), 100));
        *published.lock().unwrap_or_else(|e| e.into_inner()) = Arc::new(c.clone());
    }
    let added = start.elapsed();
    let start = Instant::now();
    for n in rules..rules + updates {
        c.remove(&make(n).into(), 100);
        *published.lock().unwrap_or_else(|e| e.into_inner()) = Arc::new(c.clone());
    }
    let removed = start.elapsed();
    let rate = |t: std::time::Duration| updates as f64 / t.as_secs_f64();
    println!("{name}: {:.0} insert+publish/s, {:.0} remove+publish/s", rate(added), rate(removed));
}

/// Rules over `masks` masks, which differ in the ports and addresses that they match; all of one priority.
fn masked_rule(n: usize, masks: usize) -> Match {
    let kind = n % masks;
    let mut m = five_tuple(n);
    let (src, dst) = (m.get(IpSrc).0, m.get(IpDst).0);
    m.set_masked(IpSrc, src, u128::from(u32::MAX << (kind % 10)));
    m.set_masked(IpDst, dst, u128::from(u32::MAX << (kind / 10)));
    m.set(InPortOxm, 1);
    m
}

fn looking_up(masks: usize, rules: usize) {
    let mut c = Classifier::new(SEED);
    for n in 0..rules {
        // Priorities decrease from mask to mask, so a packet visits half of the subtables on average.
        c.insert(rule(&c, &masked_rule(n, masks), 1000 - (n % masks) as i32));
    }
    let flows: Vec<Flow> =
        (0..4096).map(|n| *masked_rule(scramble(n) as usize % rules, masks).flow()).collect();
    for tries in [true, false] {
        if !tries {
            c.set_prefix_fields(&[]);
        }
        let rounds = (2_000_000 / masks / flows.len()).max(2);
        let start = Instant::now();
        for flow in flows.iter().cycle().take(rounds * flows.len()) {
            black_box(c.lookup(black_box(flow), None));
        }
        let plain = start.elapsed();
        let mut wc = Mask::none();
        let start = Instant::now();
        for flow in flows.iter().cycle().take(rounds * flows.len()) {
            wc = Mask::none();
            black_box(c.lookup(black_box(flow), Some(&mut wc)));
        }
        black_box(&wc);
        let masked = start.elapsed();
        let per = |t: std::time::Duration| t.as_nanos() as f64 / (rounds * flows.len()) as f64;
        let with = if tries { "with" } else { "without" };
        println!(
            "lookup, {masks} masks, {} rules, {with} tries: {:.0} ns, {:.0} ns with wildcards",
            c.len(),
            per(plain),
            per(masked)
        );
    }
}

/// Tries created and dropped while a reader holds the rules.
fn prefixes(rules: usize) {
    let mut c = Classifier::new(SEED);
    for n in 0..rules {
        c.insert(rule(&c, &five_tuple(n), 100));
    }
    for (what, fields) in [("none", &[][..]), ("ip_dst", &[IpDst]), ("ip_dst and ip_src", &[IpDst, IpSrc])] {
        let published = c.clone();
        let start = Instant::now();
        c.set_prefix_fields(fields);
        println!("prefixes of {rules} rules, now {what}: {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
        black_box(published);
    }
}

const CASES: [&str; 7] = ["eth_dst", "5-tuple", "routes", "prefixes", "lookup-1", "lookup-10", "lookup-100"];

fn run(case: &str, rules: usize) {
    match case {
        "eth_dst" => inserting(case, rules, mac_rule),
        "5-tuple" => inserting(case, rules, five_tuple),
        "routes" => inserting(case, rules, route),
        "prefixes" => prefixes(rules),
        _ => looking_up(case.rsplit('-').next().and_then(|n| n.parse().ok()).unwrap_or(1), rules / 10),
    }
}

fn main() -> std::io::Result<()> {
    let rules = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    if let Some(case) = std::env::args().nth(2) {
        run(&case, rules);
        return Ok(());
    }
    // Each case in its own process, so that it does not reuse memory freed by another.
    for case in CASES {
        std::process::Command::new(std::env::current_exe()?).args([&rules.to_string(), case]).status()?;
    }
    Ok(())
}
