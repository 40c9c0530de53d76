//! Compares designs of a table that forwarding threads read while others write (docs/internals/performance-notebook.md, "Shared tables").
//!
//! ```text
//! cargo run --release -p sync --example shared_tables            # all cases, 5 rounds
//! cargo run --release -p sync --example shared_tables -- 9       # 9 rounds
//! ```
//!
//! Each measurement is a process of its own, and a round measures all designs in turn. Figures are medians: nanoseconds
//! of processor time a lookup (`/proc/thread-self/schedstat`, so a preempted reader does not count), replacements a
//! second of the writer's processor time, resident bytes an entry beyond those of the empty process.
//!
//! A key is 40 bytes, as the two addresses, ports, zone and protocol of an IPv6 connection; a value is 64 bytes. Lookups
//! hit, in random order.

use hashbrown::HashMap;
use rapidhash::fast::RandomState;
use std::hash::{BuildHasher, Hash};
use std::hint::black_box;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, RwLock};
use std::time::{Duration, Instant};

#[derive(Clone, PartialEq, Eq, Hash)]
struct Key([u64; 5]);

struct Value([u64; 8]);

/// The key of entry `i`: five words, so that each hash and comparison reads all of them.
fn key(i: u64) -> Key {
    let x = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Key([x, x.rotate_left(17), i, x ^ i, 6])
}

fn value(i: u64) -> Value {
    Value([i; 8])
}

/// A design of the table. `Pin` is held by a reader for one lookup or for a burst.
trait Table: Sync + Sized {
    type Pin<'a>
    where
        Self: 'a;
    fn with_capacity(entries: usize) -> Self;
    fn put(&self, key: Key, value: Value);
    fn pin(&self) -> Self::Pin<'_>;
    /// Ends what a fill leaves open, as a periodic walk does.
    fn settle(&self) {}
    /// A word of the value.
    fn get(&self, pin: &Self::Pin<'_>, key: &Key) -> u64;
}

struct Papaya(papaya::HashMap<Key, Value, RandomState>);

impl Table for Papaya {
    type Pin<'a> = papaya::LocalGuard<'a>;
    fn with_capacity(entries: usize) -> Papaya {
        Papaya(papaya::HashMap::builder().hasher(RandomState::new()).capacity(entries).build())
    }
    fn put(&self, key: Key, value: Value) {
        self.0.pin().insert(key, value);
    }
    fn pin(&self) -> Self::Pin<'_> {
        self.0.guard()
    }
    fn get(&self, pin: &Self::Pin<'_>, key: &Key) -> u64 {
        self.0.get(key, pin).map_or(0, |v| v.0[0])
    }
}

impl Table for sync::SharedTable<Key, Value, RandomState> {
    type Pin<'a> = sync::Pinned<'a, Key, Value, RandomState>;
    fn with_capacity(entries: usize) -> Self {
        sync::SharedTable::new(entries, RandomState::new())
    }
    fn put(&self, key: Key, value: Value) {
        self.pin().insert(key, value);
    }
    fn pin(&self) -> Self::Pin<'_> {
        sync::SharedTable::pin(self)
    }
    fn settle(&self) {
        let mut next = Some(sync::Cursor::default());
        while let Some(from) = next {
            next = sync::SharedTable::pin(self).walk(from, 1, |_, v| assert_ne!(v.0[0], u64::MAX));
        }
    }
    fn get(&self, pin: &Self::Pin<'_>, key: &Key) -> u64 {
        pin.get(key).map_or(0, |v| v.0[0])
    }
}

/// `peek` may return a copy from before a resize, which would lose counts: the value must be behind a pointer.
struct Scc(scc::HashIndex<Key, Arc<Value>, RandomState>);

impl Table for Scc {
    type Pin<'a> = scc::Guard;
    fn with_capacity(entries: usize) -> Scc {
        Scc(scc::HashIndex::with_capacity_and_hasher(entries, RandomState::new()))
    }
    fn put(&self, key: Key, value: Value) {
        match self.0.entry_sync(key) {
            scc::hash_index::Entry::Occupied(mut o) => o.update(Arc::new(value)),
            scc::hash_index::Entry::Vacant(v) => drop(v.insert_entry(Arc::new(value))),
        }
    }
    fn pin(&self) -> scc::Guard {
        scc::Guard::new()
    }
    fn get(&self, pin: &scc::Guard, key: &Key) -> u64 {
        self.0.peek(key, pin).map_or(0, |v| v.0[0])
    }
}

/// A bucket list is an immutable value that a writer replaces.
struct ArcSwaps {
    buckets: Vec<arc_swap::ArcSwap<Vec<(Key, Arc<Value>)>>>,
    hasher: RandomState,
}

impl ArcSwaps {
    fn bucket(&self, key: &Key) -> &arc_swap::ArcSwap<Vec<(Key, Arc<Value>)>> {
        &self.buckets[self.hasher.hash_one(key) as usize & (self.buckets.len() - 1)]
    }
}

impl Table for ArcSwaps {
    type Pin<'a> = ();
    fn with_capacity(entries: usize) -> ArcSwaps {
        let buckets = (0..(entries / 2).next_power_of_two()).map(|_| Default::default()).collect();
        ArcSwaps { buckets, hasher: RandomState::new() }
    }
    fn put(&self, key: Key, value: Value) {
        let value = Arc::new(value);
        self.bucket(&key).rcu(|old| {
            let others = old.iter().filter(|(k, _)| *k != key).cloned();
            others.chain([(key.clone(), value.clone())]).collect::<Vec<_>>()
        });
    }
    fn pin(&self) {}
    fn get(&self, (): &(), key: &Key) -> u64 {
        self.bucket(key).load().iter().find(|(k, _)| k == key).map_or(0, |(_, v)| v.0[0])
    }
}

/// The plain design: its readers wait for writers and write the lock's word.
struct Locked {
    shards: Vec<RwLock<HashMap<Key, Value, RandomState>>>,
    hasher: RandomState,
}

impl Locked {
    fn shard(&self, key: &Key) -> &RwLock<HashMap<Key, Value, RandomState>> {
        &self.shards[(self.hasher.hash_one(key) >> 40) as usize % 256]
    }
}

impl Table for Locked {
    type Pin<'a> = ();
    fn with_capacity(entries: usize) -> Locked {
        let hasher = RandomState::new();
        let shard = || RwLock::new(HashMap::with_capacity_and_hasher(entries / 256, hasher));
        Locked { shards: (0..256).map(|_| shard()).collect(), hasher }
    }
    fn put(&self, key: Key, value: Value) {
        self.shard(&key).write().expect("no panic").insert(key, value);
    }
    fn pin(&self) {}
    fn get(&self, (): &(), key: &Key) -> u64 {
        self.shard(key).read().expect("no panic").get(key).map_or(0, |v| v.0[0])
    }
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("procfs");
    statm.split(' ').nth(1).and_then(|p| p.parse::<u64>().ok()).expect("pages") * 4096
}

/// Processor time of this thread so far.
fn cpu_ns() -> u64 {
    let s = std::fs::read_to_string("/proc/thread-self/schedstat").expect("procfs");
    s.split(' ').next().and_then(|n| n.parse().ok()).expect("nanoseconds")
}

/// A generator of indexes below `n`.
fn indexes(seed: u64, n: u64) -> impl FnMut() -> u64 {
    let mut x = seed.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1;
    move || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        ((u128::from(x) * u128::from(n)) >> 64) as u64
    }
}

/// Looks entries up until told to stop; nanoseconds a lookup.
fn read<T: Table>(table: &T, seed: u64, n: u64, burst: usize, stop: &AtomicBool) -> f64 {
    let mut next = indexes(seed, n);
    let (begin, mut lookups) = (cpu_ns(), 0u64);
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..1024 / burst {
            let pin = table.pin();
            for _ in 0..burst {
                let i = next();
                assert_eq!(black_box(table.get(&pin, &key(i))), i);
            }
            drop(black_box(pin));
        }
        lookups += 1024;
    }
    (cpu_ns() - begin) as f64 / lookups as f64
}

/// Replaces values until told to stop; replacements a second.
fn write<T: Table>(table: &T, n: u64, stop: &AtomicBool) -> f64 {
    let mut next = indexes(99, n);
    let (begin, mut written) = (cpu_ns(), 0u64);
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..64 {
            let i = next();
            table.put(key(i), value(i));
        }
        written += 64;
    }
    written as f64 * 1e9 / (cpu_ns() - begin) as f64
}

/// Nanoseconds a lookup (the mean of the readers), and replacements a second.
fn measure<T: Table>(table: &T, n: u64, readers: u64, writer: bool, burst: usize) -> (f64, f64) {
    let (stop, ready) = (AtomicBool::new(false), Barrier::new(readers as usize + 1));
    std::thread::scope(|s| {
        let reader = |seed| {
            let (stop, ready) = (&stop, &ready);
            s.spawn(move || {
                ready.wait();
                read(table, seed, n, burst, stop)
            })
        };
        let threads: Vec<_> = (1..=readers).map(reader).collect();
        let writer = writer.then(|| s.spawn(|| write(table, n, &stop)));
        ready.wait();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(300) {
            std::thread::sleep(Duration::from_millis(20));
        }
        stop.store(true, Ordering::Relaxed);
        let ns: f64 = threads.into_iter().map(|t| t.join().expect("a reader")).sum();
        (ns / readers as f64, writer.map_or(0.0, |w| w.join().expect("the writer")))
    })
}

/// One process's part: fills a table, then prints its figures.
fn child<T: Table>(n: u64) {
    let before = resident_bytes();
    let table = T::with_capacity(n as usize);
    (0..n).for_each(|i| table.put(key(i), value(i)));
    print!("{}", (resident_bytes() - before) as f64 / n as f64);
    table.settle();
    for burst in [1, 32] {
        print!(" {}", measure(&table, n, 1, false, burst).0);
    }
    print!(" {}", measure(&table, n, 2, false, 32).0);
    for readers in [1, 2] {
        let (ns, writes) = measure(&table, n, readers, true, 32);
        print!(" {ns} {writes}");
    }
}

const DESIGNS: [(&str, fn(u64)); 5] = [
    ("papaya", child::<Papaya>),
    ("SharedTable", child::<sync::SharedTable<Key, Value, RandomState>>),
    ("scc::HashIndex of Arc", child::<Scc>),
    ("arc-swap buckets of Arc", child::<ArcSwaps>),
    ("256 RwLock<HashMap>", child::<Locked>),
];

/// The figures of one design, measured by a process of its own.
fn spawn(design: usize, n: u64) -> Vec<f64> {
    let me = std::env::current_exe().expect("this program");
    let out =
        Command::new(me).args(["child", &design.to_string(), &n.to_string()]).output().expect("a process");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).expect("figures");
    text.split(' ').map(|f| f.parse().expect("a figure")).collect()
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [c, design, n] = &args[..]
        && c == "child"
    {
        return DESIGNS[design.parse::<usize>().expect("a design")].1(n.parse().expect("entries"));
    }
    let rounds = args.first().map_or(5, |r| r.parse().expect("rounds"));
    for n in [100_000, 1_000_000] {
        println!("\n{n} entries, {rounds} rounds\n");
        println!(
            "| design | bytes an entry | pin a lookup, ns | pin a burst, ns | 2 readers | reader + writer | writes/s | 2 readers + writer | writes/s |"
        );
        println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
        let all: Vec<Vec<Vec<f64>>> =
            (0..rounds).map(|_| (0..DESIGNS.len()).map(|d| spawn(d, n)).collect()).collect();
        for (d, (name, _)) in DESIGNS.iter().enumerate() {
            let figures = all[0][d].len();
            let medians = (0..figures).map(|f| median(all.iter().map(|round| round[d][f]).collect()));
            println!("| {name} | {} |", medians.map(|m| format!("{m:.0}")).collect::<Vec<_>>().join(" | "));
        }
    }
}
