//! [`Reclaimer`]: drops large values on a separate thread.
//!
//! Dropping a table of a million rules takes a good part of a second. Its owner hands it over and continues
//! at once.

use crate::{Mutex, lock};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, OnceLock};

/// A value with an expensive drop.
pub trait Garbage: Send {
    /// Whether dropping it frees its contents. If shared, the last holder would have to.
    fn is_last(&self) -> bool;
}

type Value = Box<dyn Garbage>;

/// See the module. Clones share one thread. Without a thread, values are dropped in place.
#[derive(Clone, Default)]
pub struct Reclaimer {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    queue: OnceLock<Sender<Value>>,
    /// Values given while [`ReclaimPause`] lasts.
    held: Mutex<Option<Vec<Value>>>,
}

/// The thread is not woken until this is dropped.
pub struct ReclaimPause<'a>(&'a Reclaimer);

impl Drop for ReclaimPause<'_> {
    fn drop(&mut self) {
        let held = lock(&self.0.shared.held).take();
        held.into_iter().flatten().for_each(|value| self.0.send(value));
    }
}

impl Reclaimer {
    /// The receiving end for the dropping thread; `None` if already taken.
    pub fn attach(&self) -> Option<Receiver<Value>> {
        let (sender, receiver) = mpsc::channel();
        self.shared.queue.set(sender).is_ok().then_some(receiver)
    }

    /// Drops a value, on the thread if there is one.
    pub fn give(&self, garbage: impl Garbage + 'static) {
        if self.shared.queue.get().is_none() {
            return;
        }
        let mut held = lock(&self.shared.held);
        match &mut *held {
            Some(held) => held.push(Box::new(garbage)),
            None => {
                drop(held);
                self.send(Box::new(garbage));
            }
        }
    }

    /// Keeps values until the end of urgent work, which a woken thread could interrupt. One caller at a time.
    pub fn hold(&self) -> ReclaimPause<'_> {
        lock(&self.shared.held).get_or_insert_default();
        ReclaimPause(self)
    }

    fn send(&self, value: Value) {
        if let Some(queue) = self.shared.queue.get() {
            // If the thread has ended, the value is dropped here.
            let _ = queue.send(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counted(Arc<()>);

    impl Garbage for Counted {
        fn is_last(&self) -> bool {
            Arc::strong_count(&self.0) == 1
        }
    }

    #[test]
    fn values_are_dropped_by_the_thread_if_there_is_one() {
        let (reclaimer, value) = (Reclaimer::default(), Arc::new(()));
        reclaimer.give(Counted(value.clone()));
        assert_eq!(Arc::strong_count(&value), 1);
        let receiver = reclaimer.clone().attach().unwrap();
        assert!(reclaimer.attach().is_none());
        reclaimer.give(Counted(value.clone()));
        assert_eq!(Arc::strong_count(&value), 2);
        let garbage = receiver.recv().unwrap();
        assert!(!garbage.is_last());
        drop(garbage);
        let held = reclaimer.hold();
        reclaimer.give(Counted(value.clone()));
        assert!(receiver.try_recv().is_err());
        drop(held);
        drop(receiver.try_recv().unwrap());
        reclaimer.give(Counted(value.clone()));
        drop(receiver.try_recv().unwrap());
        drop(receiver);
        reclaimer.give(Counted(value.clone()));
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
