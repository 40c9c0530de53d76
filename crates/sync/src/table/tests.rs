use super::*;
use proptest::prelude::*;
use rapidhash::fast::SeedableState;
use std::collections::HashMap as Model;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

type Fixed = SeedableState<'static>;

fn table<V: Send + Sync + 'static>(expected: usize) -> SharedTable<u64, V, Fixed> {
    SharedTable::new(expected, SeedableState::fixed())
}

/// Counts its drops in a cell of its own.
struct Counted {
    id: usize,
    drops: Arc<Vec<AtomicU8>>,
}

impl Counted {
    fn drops(&self) -> u8 {
        self.drops[self.id].load(Ordering::SeqCst)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.drops[self.id].fetch_add(1, Ordering::SeqCst);
    }
}

fn cells(n: usize) -> Arc<Vec<AtomicU8>> {
    Arc::new((0..n).map(|_| AtomicU8::new(0)).collect())
}

/// Sum of the drops of all values.
fn dropped(drops: &[AtomicU8]) -> usize {
    drops.iter().map(|d| usize::from(d.load(Ordering::SeqCst))).sum()
}

/// All entries, by a walk in slices of their own pins.
fn walked<V: Copy + Send + Sync + 'static>(
    table: &SharedTable<u64, V, Fixed>,
    at_least: usize,
) -> Vec<(u64, V)> {
    let mut all = Vec::new();
    let mut next = Some(Cursor::default());
    while let Some(from) = next {
        next = table.pin().walk(from, at_least, |k, v| all.push((*k, *v)));
    }
    all
}

/// Each key with itself as its value.
fn fill(table: &SharedTable<u64, u64, Fixed>, keys: impl Iterator<Item = u64>) {
    keys.for_each(|k| assert!(table.pin().insert(k, k).is_none_or(|old| *old == k)));
}

#[derive(Clone, Debug)]
enum Op {
    Get(u64),
    Insert(u64, u32),
    TryInsert(u64, u32),
    Remove(u64),
    RemoveEven(u64),
    Walk(usize),
    Flush,
}

fn op() -> impl Strategy<Value = Op> {
    let key = || 0..600u64;
    prop_oneof![
        2 => key().prop_map(Op::Get),
        6 => (key(), any::<u32>()).prop_map(|(k, v)| Op::Insert(k, v)),
        6 => (key(), any::<u32>()).prop_map(|(k, v)| Op::TryInsert(k, v)),
        4 => key().prop_map(Op::Remove),
        2 => key().prop_map(Op::RemoveEven),
        1 => (0..300usize).prop_map(Op::Walk),
        1 => Just(Op::Flush),
    ]
}

fn apply(op: &Op, table: &SharedTable<u64, u32, Fixed>, model: &mut Model<u64, u32>) {
    let pinned = table.pin();
    match *op {
        Op::Get(k) => assert_eq!(pinned.get(&k), model.get(&k)),
        Op::Insert(k, v) => assert_eq!(pinned.insert(k, v).copied(), model.insert(k, v)),
        Op::TryInsert(k, v) => match (pinned.try_insert(k, v), model.get(&k).copied()) {
            (Ok(new), None) => assert_eq!((*new, model.insert(k, v)), (v, None)),
            (Err(conflict), Some(old)) => assert_eq!((*conflict.current, conflict.rejected), (old, v)),
            (result, model) => panic!("{result:?} and {model:?}"),
        },
        Op::Remove(k) => assert_eq!(pinned.remove(&k).copied(), model.remove(&k)),
        Op::RemoveEven(k) => {
            let even = model.get(&k).is_some_and(|v| v % 2 == 0);
            let removed = even.then(|| model.remove(&k)).flatten();
            assert_eq!(pinned.remove_if(&k, |v| v % 2 == 0).copied(), removed);
        }
        Op::Walk(at_least) => {
            let mut all = walked(table, at_least);
            all.sort_unstable();
            let mut expected: Vec<_> = model.iter().map(|(k, v)| (*k, *v)).collect();
            expected.sort_unstable();
            assert_eq!(all, expected);
        }
        Op::Flush => pinned.flush(),
    }
    assert_eq!((table.len(), table.is_empty()), (model.len(), model.is_empty()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_table_behaves_as_a_map(expected in 0..40_000usize, ops in prop::collection::vec(op(), 1..1500)) {
        let (table, mut model) = (table(expected), Model::new());
        ops.iter().for_each(|op| apply(op, &table, &mut model));
    }
}

#[test]
fn a_removed_value_is_dropped_after_the_last_pin() {
    let drops = cells(4);
    let table = table(0);
    let reader = table.pin();
    (0..4).for_each(|id| assert!(reader.insert(id as u64, Counted { id, drops: drops.clone() }).is_none()));
    let held = reader.get(&0).expect("just inserted");
    std::thread::scope(|s| {
        s.spawn(|| {
            let writer = table.pin();
            (0..3).for_each(|k| assert_eq!(writer.remove(&k).map(|v| v.id), Some(k as usize)));
            writer.flush();
        });
    });
    assert_eq!((dropped(&drops), held.drops(), table.len()), (0, 0, 1));
    assert!(reader.get(&0).is_none());
    drop(reader);
    assert_eq!(dropped(&drops), 3);
    drop(table);
    assert!(drops.iter().all(|d| d.load(Ordering::SeqCst) == 1));
}

#[test]
fn a_batch_is_reclaimed_without_a_flush() {
    let drops = cells(BATCH);
    let table = table(0);
    for id in 0..BATCH {
        assert_eq!(dropped(&drops), 0);
        table.pin().insert(7, Counted { id, drops: drops.clone() });
    }
    table.pin().remove(&7);
    assert_eq!(dropped(&drops), BATCH);
}

#[test]
fn of_racing_inserts_one_wins_and_the_others_adopt_its_value() {
    let (threads, keys) = (4, 2000);
    let table = table(0);
    let barrier = Barrier::new(threads);
    let commit = |thread: usize| {
        barrier.wait();
        let adopt = |k| match table.pin().try_insert(k, thread) {
            Ok(own) => (*own, true),
            Err(conflict) => (*conflict.current, false),
        };
        (0..keys).map(adopt).collect::<Vec<_>>()
    };
    let results: Vec<_> = std::thread::scope(|s| {
        let commit = &commit;
        let threads: Vec<_> = (0..threads).map(|t| s.spawn(move || commit(t))).collect();
        threads.into_iter().map(|t| t.join().expect("a thread")).collect()
    });
    for k in 0..keys {
        let of_key: Vec<(usize, bool)> = results.iter().map(|r| r[k as usize]).collect();
        assert_eq!(of_key.iter().filter(|(_, won)| *won).count(), 1, "key {k}: {of_key:?}");
        assert!(of_key.iter().all(|(value, _)| Some(value) == table.pin().get(&k)), "key {k}: {of_key:?}");
    }
}

/// Threads that change the same keys in all ways, while two readers hold values over other lookups.
fn drop_round(round: u64) {
    let (writers, per_writer, keys) = (3, 4000, 64);
    let drops = cells(writers * per_writer);
    let table = table(if round.is_multiple_of(2) { 0 } else { 20_000 });
    let (done, barrier) = (AtomicBool::new(false), Barrier::new(writers + 2));
    let write = |writer: usize| {
        barrier.wait();
        for n in 0..per_writer {
            let x = (n as u64 + round).wrapping_mul(0x9e37_79b9_7f4a_7c15 + writer as u64);
            let (key, value) =
                ((x >> 20) % keys, Counted { id: writer * per_writer + n, drops: drops.clone() });
            let pinned = table.pin();
            match (x >> 40) % 4 {
                0 => assert!(pinned.insert(key, value).is_none_or(|old| old.drops() == 0)),
                1 => {
                    assert!(pinned.insert(key, value).or(pinned.remove(&key)).is_none_or(|v| v.drops() == 0))
                }
                2 => assert!(
                    pinned.try_insert(key, value).is_err_and(|c| c.current.drops() == 0) || n < per_writer
                ),
                _ => assert!(pinned.remove_if(&key, |v| v.id % 2 == 0).is_none_or(|old| old.drops() == 0)),
            }
            if n % 50 == 0 {
                pinned.flush();
            }
        }
    };
    let read = || {
        barrier.wait();
        while !done.load(Ordering::SeqCst) {
            let pinned = table.pin();
            let held: Vec<&Counted> = (0..keys).filter_map(|k| pinned.get(&k)).collect();
            std::thread::yield_now();
            assert!(held.iter().all(|v| v.drops() == 0));
        }
    };
    std::thread::scope(|s| {
        let (write, read) = (&write, &read);
        let readers: Vec<_> = (0..2).map(|_| s.spawn(read)).collect();
        let writers: Vec<_> = (0..writers).map(|w| s.spawn(move || write(w))).collect();
        let ended: Vec<_> = writers.into_iter().map(|w| w.join()).collect();
        done.store(true, Ordering::SeqCst);
        readers.into_iter().for_each(|r| r.join().expect("a reader"));
        ended.into_iter().for_each(|w| w.expect("a writer"));
    });
    assert_eq!(walked_ids(&table).len(), table.len());
    drop(table);
    let wrong = drops.iter().position(|d| d.load(Ordering::SeqCst) != 1);
    assert_eq!(wrong, None, "a value not dropped exactly once in round {round}");
}

fn walked_ids(table: &SharedTable<u64, Counted, Fixed>) -> Vec<usize> {
    let mut ids = Vec::new();
    assert_eq!(table.pin().walk(Cursor::default(), usize::MAX, |_, v| ids.push(v.id)), None);
    ids
}

#[test]
fn threads_drop_each_value_once_and_never_under_a_pin() {
    (0..20).for_each(drop_round);
}

#[test]
fn a_walk_visits_each_staying_entry_once_while_others_come_and_go() {
    let (stays, expected) = (10_000u64, 30_000);
    let table = table(expected);
    fill(&table, 0..stays);
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        // More entries come than the shards hold, and go again: shards grow under the walk.
        s.spawn(|| {
            for round in 0.. {
                if done.load(Ordering::SeqCst) {
                    return;
                }
                let others = stays + round * 40_000..stays + (round + 1) * 40_000;
                fill(&table, others.clone());
                fill(&table, (0..stays).step_by(7));
                others.for_each(|k| assert!(table.pin().remove(&k).is_some()));
            }
        });
        let visits = |at_least| {
            let mut visits = vec![0u8; stays as usize];
            for (k, v) in walked(&table, at_least) {
                assert_eq!(k, v);
                if let Some(n) = visits.get_mut(k as usize) {
                    *n += 1;
                }
            }
            visits.iter().position(|n| *n != 1)
        };
        let wrong: Vec<_> = (0..30).map(|n| visits(n * 500)).collect();
        done.store(true, Ordering::SeqCst);
        assert!(wrong.iter().all(Option::is_none), "{wrong:?}");
    });
}

#[test]
fn a_slice_is_bounded_by_the_size_of_a_shard() {
    let table = table(64 * SHARD_ENTRIES);
    assert_eq!(table.shards.len(), 64);
    fill(&table, 0..64 * SHARD_ENTRIES as u64);
    let mut next = Some(Cursor::default());
    let mut slices = 0;
    while let Some(from) = next {
        let mut seen = 0;
        next = table.pin().walk(from, 1, |_, _| seen += 1);
        assert!(
            (SHARD_ENTRIES * 9 / 10..SHARD_ENTRIES * 11 / 10).contains(&seen),
            "{seen} in shard {slices}"
        );
        slices += 1;
    }
    assert_eq!(slices, 64);
}

#[test]
fn the_number_of_shards_is_bounded() {
    for (expected, shards) in [(0, 1), (4096, 1), (4097, 2), (1_000_000, 256), (usize::MAX, MAX_SHARDS)] {
        assert_eq!(table::<()>(expected).shards.len(), shards);
    }
}
