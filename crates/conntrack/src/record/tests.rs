//! Records: reading while others write, and numbers.

use super::{Body, Direction, LISTS, PART, RECORDS_MAX, Slab};
use std::collections::HashSet;
use sync::{AtomicBool, Ordering};

fn body(n: u64) -> Body {
    Body { expires_ms: n, state: n, port: n, tcp: [n; 3], labels: [n; 2], skew: n }
}

#[test]
fn readers_see_one_state() {
    let changes = if testkit::long() { 100_000 } else { 300 };
    let slab = Slab::<2>::new();
    let number = slab.allocate(0).expect("one of many");
    drop(slab.create(number, [[0; 2]; 2], &body(0)));
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            for n in (1..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                let locked = slab.record(number).lock().expect("live");
                if n % 4 == 0 {
                    // Another connection in the same record.
                    locked.end();
                    drop(locked);
                    drop(slab.create(number, [[n; 2]; 2], &body(n)));
                    continue;
                }
                locked.set_expires_ms(n);
                locked.set_reply([n; 2]);
                locked.set_labels([n; 2]);
                locked.set_tcp([n; 3]);
            }
        });
        let (mut last, mut seen) = (0, 0);
        while seen < changes {
            let read = slab.record(number).read(|r| (r.key(Direction::Reply), r.body()));
            let Some((reply, body)) = read else { continue };
            let n = body.expires_ms;
            let is_one = (reply, body.labels, body.tcp) == ([n; 2], [n; 2], [n; 3]) && n >= last;
            // The other thread ends before this one reports.
            stop.store(!is_one, Ordering::Relaxed);
            assert!(is_one, "{reply:?} {body:?} after {last}");
            seen += u64::from(n > last);
            last = n;
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_locked_or_ended_record_is_not_read() {
    let slab = Slab::<5>::new();
    let number = slab.allocate(3).expect("one of many");
    let record = slab.record(number);
    assert!(!record.is_live() && record.lock().is_none() && record.read(|_| ()).is_none());
    let locked = slab.create(number, [[1; 5], [2; 5]], &body(7));
    assert!(record.is_live() && record.read(|_| ()).is_none());
    drop(locked);
    let read = record.read(|r| (r.key(Direction::Orig), r.key(Direction::Reply), r.body()));
    assert_eq!(read, Some(([1; 5], [2; 5], body(7))));
    let changed = record.read(|r| drop(r.lock()));
    assert!(changed.is_none(), "a change during the read");
    let locked = record.lock().expect("live");
    locked.end();
    assert!(!record.is_live());
    drop(locked);
    assert!(record.lock().is_none() && record.read(|_| ()).is_none());
}

#[test]
fn numbers_are_given_once_and_end_with_the_last() {
    let slab = Slab::<2>::new();
    let all: Vec<u32> = (0..1000).map(|n| slab.allocate(n).expect("one of many")).collect();
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
    assert!(all.iter().all(|n| *n < slab.used()));
    assert!(slab.used() < 1000 + 32 * (LISTS as u32 + 1), "{}", slab.used());
    // Nothing is left but what the lists have.
    slab.used.store(RECORDS_MAX as u32, Ordering::Relaxed);
    let free = slab.free_numbers().len();
    let rest: HashSet<u32> = std::iter::from_fn(|| slab.allocate(0)).collect();
    assert_eq!(rest.len(), free);
    assert!(rest.is_disjoint(&all.iter().copied().collect()));
    slab.used.fetch_add(77, Ordering::Relaxed);
    assert_eq!(slab.used(), RECORDS_MAX as u32);
    slab.release(all[5], 9);
    assert_eq!((slab.allocate(0), slab.allocate(0)), (Some(all[5]), None));
}

#[test]
fn memory_of_further_records_is_taken_ahead_once_one_is_used() {
    let slab = Slab::<5>::new();
    let ready = || slab.parts.iter().filter(|part| part.get().is_some()).count();
    slab.prepare(1000);
    assert_eq!(ready(), 0);
    slab.allocate(0).unwrap();
    slab.prepare(1000);
    assert_eq!(ready(), 1);
    slab.prepare(PART as u32);
    assert_eq!(ready(), 2);
    slab.used.store(RECORDS_MAX as u32, Ordering::Relaxed);
    slab.prepare(u32::MAX);
    assert_eq!(ready(), 3, "the last one");
}
