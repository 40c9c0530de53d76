//! Shared state of threads: snapshots, tables and bounded queues, behind one façade.
//!
//! [`Snapshot`] publishes an immutable value to many readers without locks; [`SharedTable`] is a hash table whose
//! readers never wait for its writers; [`BoundedQueue`] passes values between threads without blocking either side. No other crate names the libraries behind them, so a model
//! checker can replace them in tests.
#![deny(unsafe_code)]

use crossbeam_queue::{ArrayQueue, SegQueue};
use std::sync::Arc;

#[cfg(sluice_contention)]
pub mod contention;
mod reclaim;
mod table;

#[cfg(sluice_contention)]
pub use contention::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
pub use crossbeam_utils::sync::{Parker, Unparker};
pub use crossbeam_utils::{Backoff, CachePadded};
pub use reclaim::{Garbage, Reclaimer};
pub use std::sync::atomic::Ordering;
#[cfg(not(sluice_contention))]
pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
pub use std::sync::{Mutex, MutexGuard, OnceLock, RwLock};
pub use table::{BATCH, Conflict, Cursor, Pinned, SharedTable};

/// An immutable value that a writer replaces as a whole; readers keep the one they hold.
pub struct Snapshot<T> {
    current: arc_swap::ArcSwap<T>,
}

impl<T> Snapshot<T> {
    /// Publishes a first value.
    pub fn new(value: T) -> Snapshot<T> {
        Snapshot { current: arc_swap::ArcSwap::from_pointee(value) }
    }

    /// Publishes a first, already shared value.
    pub fn of(value: Arc<T>) -> Snapshot<T> {
        Snapshot { current: arc_swap::ArcSwap::new(value) }
    }

    /// The value of now. Never waits.
    pub fn load(&self) -> Arc<T> {
        self.current.load_full()
    }

    /// Replaces the value. Writers serialize by their own lock.
    pub fn store(&self, value: Arc<T>) {
        self.current.store(value);
    }
}

impl<T: Default> Default for Snapshot<T> {
    fn default() -> Snapshot<T> {
        Snapshot::new(T::default())
    }
}

/// A bounded queue for many writers and readers; neither ever blocks.
pub struct BoundedQueue<T> {
    queue: ArrayQueue<T>,
}

impl<T> BoundedQueue<T> {
    /// An empty queue for at most `capacity` values (at least 1).
    pub fn new(capacity: usize) -> BoundedQueue<T> {
        BoundedQueue { queue: ArrayQueue::new(capacity.max(1)) }
    }

    /// Appends a value, or returns it if the queue is full.
    pub fn push(&self, value: T) -> Result<(), T> {
        self.queue.push(value)
    }

    /// Removes the oldest value.
    pub fn pop(&self) -> Option<T> {
        self.queue.pop()
    }

    /// Approximate number of queued values.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether none is queued, at some moment.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The most that fit.
    pub fn capacity(&self) -> usize {
        self.queue.capacity()
    }
}

/// A bounded queue that only uses memory for its contents, for the case of many mostly empty queues. Neither
/// side ever blocks.
pub struct LimitedQueue<T> {
    queue: SegQueue<T>,
    /// Values in it or about to be.
    len: AtomicUsize,
    max: usize,
}

impl<T> LimitedQueue<T> {
    /// An empty queue for at most `max` values.
    pub fn new(max: usize) -> LimitedQueue<T> {
        LimitedQueue { queue: SegQueue::new(), len: AtomicUsize::new(0), max }
    }

    /// Appends a value, or returns it if the queue is full.
    pub fn push(&self, value: T) -> Result<(), T> {
        if self.len.fetch_add(1, Ordering::Relaxed) >= self.max {
            self.len.fetch_sub(1, Ordering::Relaxed);
            return Err(value);
        }
        self.queue.push(value);
        Ok(())
    }

    /// Removes the oldest value.
    pub fn pop(&self) -> Option<T> {
        let value = self.queue.pop();
        self.len.fetch_sub(usize::from(value.is_some()), Ordering::Relaxed);
        value
    }

    /// Approximate number of queued values.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Whether it is empty: sees all earlier pushes.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether one more fits, at some moment.
    pub fn has_room(&self) -> bool {
        self.len() < self.max
    }
}

/// An unbounded queue, for replies to requests that are bounded themselves. Neither side ever blocks.
pub struct ReplyRing<T> {
    queue: SegQueue<T>,
}

impl<T> Default for ReplyRing<T> {
    fn default() -> ReplyRing<T> {
        ReplyRing { queue: SegQueue::new() }
    }
}

impl<T> ReplyRing<T> {
    /// Appends a value.
    pub fn push(&self, value: T) {
        self.queue.push(value);
    }

    /// Removes the oldest value.
    pub fn pop(&self) -> Option<T> {
        self.queue.pop()
    }
}

/// Locks a mutex. A panicked holder leaves the value as it was: the switch's data is valid at every step, so
/// the next holder continues with it.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    #[cfg(sluice_contention)]
    contention::write(mutex, true);
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_keeps_the_snapshot_it_took() {
        let s = Snapshot::new(1);
        let before = s.load();
        s.store(Arc::new(2));
        assert_eq!((*before, *s.load()), (1, 2));
    }

    #[test]
    fn a_full_queue_gives_the_value_back() {
        let q = BoundedQueue::new(2);
        assert!(q.push(1).is_ok() && q.push(2).is_ok());
        assert_eq!(q.push(3), Err(3));
        assert_eq!((q.pop(), q.len(), q.capacity()), (Some(1), 1, 2));
    }

    #[test]
    fn a_limited_queue_counts_what_is_in_it() {
        let q = LimitedQueue::new(2);
        assert!(q.is_empty() && q.push(1).is_ok() && q.has_room() && q.push(2).is_ok());
        assert!(!q.has_room());
        assert_eq!((q.push(3), q.len()), (Err(3), 2));
        assert_eq!((q.pop(), q.pop(), q.pop(), q.len()), (Some(1), Some(2), None, 0));
        assert!(q.push(4).is_ok() && !q.is_empty());
    }

    #[test]
    fn a_limited_queue_keeps_its_limit_between_threads() {
        let q = LimitedQueue::new(8);
        let taken = std::thread::scope(|s| {
            let writer = || (0..20_000).filter(|n| q.push(*n).is_ok()).count();
            let writers = [s.spawn(writer), s.spawn(writer)];
            let mut taken = 0;
            while writers.iter().any(|w| !w.is_finished()) {
                taken += usize::from(q.pop().is_some());
                assert!(q.len() <= 8 + 2);
            }
            let put: usize = writers.into_iter().map(|w| w.join().expect("a writer")).sum();
            put - taken
        });
        assert_eq!(std::iter::from_fn(|| q.pop()).count(), taken);
    }
}
