//! Two designs of snapshots, on rules of one exact field: `cargo run --release -p classifier --example snapshot_designs [rules]`.
//!
//! *Persistent blocks*, as in the classifier: a change copies a path, a reader holds a version and takes no lock.
//! *Versioned rules*: one hash table changed in place under a lock; a rule is visible in a range of versions, a
//! reader pins a version and takes the lock for each lookup. Sizes are differences of the resident set, rules
//! included.

#![allow(clippy::disallowed_methods, reason = "an example measures time")]

use classifier::{Classifier, ClsRule};
use flow::fields::FieldId::EthDst;
use flow::{Flow, Match, PackedMatch};
use std::collections::HashMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

const PAGE_BYTES: usize = 4096;
const SEED: u64 = 0x5eed;
const CHANGES: usize = 200_000;
const LOOKUPS: usize = 1_000_000;

struct Rule {
    matching: PackedMatch,
}

impl ClsRule for Rule {
    fn matching(&self) -> &PackedMatch {
        &self.matching
    }

    fn priority(&self) -> i32 {
        1
    }

    fn is_soft(&self) -> bool {
        false
    }
}

/// A design: a writer's handle, which makes readers.
trait Design: Sync {
    fn insert(&self, rule: Arc<Rule>);
    fn remove(&self, rule: &Rule);
    /// Publishes the changes so far.
    fn publish(&self);
    /// Looks flows up in the current version; returns the number of matches.
    fn lookups(&self, flows: &[Flow]) -> usize;
}

struct Blocks {
    open: Mutex<Classifier<Arc<Rule>>>,
    published: Mutex<Classifier<Arc<Rule>>>,
}

impl Design for Blocks {
    fn insert(&self, rule: Arc<Rule>) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(rule);
    }

    fn remove(&self, rule: &Rule) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&rule.matching, 1);
    }

    fn publish(&self) {
        let version = self.open.lock().unwrap_or_else(PoisonError::into_inner).clone();
        *self.published.lock().unwrap_or_else(PoisonError::into_inner) = version;
    }

    fn lookups(&self, flows: &[Flow]) -> usize {
        let version = self.published.lock().unwrap_or_else(PoisonError::into_inner).clone();
        flows.iter().filter(|flow| version.lookup(flow, None).is_some()).count()
    }
}

/// A rule and its range of visible versions: `from..until`.
struct Versioned {
    rule: Arc<Rule>,
    from: u64,
    until: u64,
}

#[derive(Default)]
struct Versions {
    table: RwLock<HashMap<u64, Versioned>>,
    /// The version seen by readers.
    published: AtomicU64,
    /// Keys of rules removed in the open version: no reader pins an older one here, so they are freed at
    /// publication.
    ended: Mutex<Vec<u64>>,
}

fn key(rule: &Rule) -> u64 {
    rule.matching.values()[0]
}

impl Design for Versions {
    fn insert(&self, rule: Arc<Rule>) {
        let from = self.published.load(Ordering::Relaxed) + 1;
        let entry = Versioned { from, until: u64::MAX, rule };
        self.table.write().unwrap_or_else(PoisonError::into_inner).insert(key(&entry.rule), entry);
    }

    fn remove(&self, rule: &Rule) {
        let until = self.published.load(Ordering::Relaxed) + 1;
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = table.get_mut(&key(rule)) {
            entry.until = until;
            self.ended.lock().unwrap_or_else(PoisonError::into_inner).push(key(rule));
        }
    }

    fn publish(&self) {
        self.published.fetch_add(1, Ordering::Release);
        for key in self.ended.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            self.table.write().unwrap_or_else(PoisonError::into_inner).remove(&key);
        }
    }

    fn lookups(&self, flows: &[Flow]) -> usize {
        let version = self.published.load(Ordering::Acquire);
        let matches = |flow: &&Flow| {
            let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
            let m = Match::catchall().with(EthDst, EthDst.get(flow));
            let found = table.get(&PackedMatch::from(m).values()[0]);
            found.is_some_and(|entry| (entry.from..entry.until).contains(&version))
        };
        flows.iter().filter(matches).count()
    }
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * PAGE_BYTES
}

fn rule(n: usize) -> Match {
    let address = (n as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
    Match::catchall().with(EthDst, u128::from(address))
}

fn run(name: &str, design: &dyn Design, rules: usize) {
    let mask = PackedMatch::from(rule(0));
    let make = |n: usize| Arc::new(Rule { matching: PackedMatch::with_mask(mask.mask(), &rule(n)) });
    let changes: Vec<_> = (rules..rules + CHANGES).map(make).collect();
    let before = resident_bytes();
    let start = Instant::now();
    (0..rules).for_each(|n| design.insert(make(n)));
    design.publish();
    let all = start.elapsed();
    let bytes = resident_bytes().saturating_sub(before) / rules;
    let start = Instant::now();
    for rule in &changes {
        design.insert(rule.clone());
        design.publish();
    }
    let one = start.elapsed();
    let flows: Vec<Flow> = (0..4096).map(|n| *rule(n * 7 % rules).flow()).collect();
    let rounds = LOOKUPS / flows.len();
    let start = Instant::now();
    let found: usize = (0..rounds).map(|_| black_box(design.lookups(&flows))).sum();
    let alone = start.elapsed();
    // The same while a writer changes rules continuously.
    let stop = AtomicBool::new(false);
    let (beside, changed) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut changed = 0usize;
            while !stop.load(Ordering::Relaxed) {
                let rule = &changes[changed / 2 % CHANGES];
                if changed.is_multiple_of(2) {
                    design.remove(rule)
                } else {
                    design.insert(rule.clone())
                }
                design.publish();
                changed += 1;
            }
            changed
        });
        let start = Instant::now();
        let again: usize = (0..rounds).map(|_| black_box(design.lookups(&flows))).sum();
        let beside = start.elapsed();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(again, found);
        (beside, writer.join().unwrap_or_default())
    });
    assert_eq!(found, rounds * flows.len());
    let ns = |t: std::time::Duration, n: usize| t.as_nanos() as f64 / n as f64;
    println!(
        "{name}: {bytes} bytes a rule; added together {:.0} ns, one by one {:.0} ns; lookup {:.0} ns, beside a writer {:.0} ns ({:.0} ns a change)",
        ns(all, rules),
        ns(one, CHANGES),
        ns(alone, found),
        ns(beside, found),
        ns(beside, changed.max(1)),
    );
}

fn main() -> std::io::Result<()> {
    let rules = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    match std::env::args().nth(2).as_deref() {
        Some("blocks") => {
            let empty = || Mutex::new(Classifier::new(SEED));
            run("persistent blocks", &Blocks { open: empty(), published: empty() }, rules);
        }
        Some(_) => run("versions on rules", &Versions::default(), rules),
        // Each in its own process, so that it does not reuse memory freed by another.
        None => {
            for design in ["blocks", "versions"] {
                std::process::Command::new(std::env::current_exe()?)
                    .args([&rules.to_string(), design])
                    .status()?;
            }
        }
    }
    Ok(())
}
