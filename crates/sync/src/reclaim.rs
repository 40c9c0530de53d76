//! [`Reclaimer`]: drops large values on a separate thread.
//!
//! Dropping a table of a million rules takes a good part of a second. Its owner hands it over and continues
//! at once.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, OnceLock};

/// A value with an expensive drop.
pub trait Garbage: Send {
    /// Whether dropping it frees its contents. If shared, the last holder would have to.
    fn is_last(&self) -> bool;
}

/// See the module. Clones share one thread. Without a thread, values are dropped in place.
#[derive(Clone, Default)]
pub struct Reclaimer {
    queue: Arc<OnceLock<Sender<Box<dyn Garbage>>>>,
}

impl Reclaimer {
    /// The receiving end for the dropping thread; `None` if already taken.
    pub fn attach(&self) -> Option<Receiver<Box<dyn Garbage>>> {
        let (sender, receiver) = mpsc::channel();
        self.queue.set(sender).is_ok().then_some(receiver)
    }

    /// Drops a value, on the thread if there is one.
    pub fn give(&self, garbage: impl Garbage + 'static) {
        if let Some(queue) = self.queue.get() {
            // If the thread has ended, the value is dropped here.
            let _ = queue.send(Box::new(garbage));
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
        drop(receiver);
        reclaimer.give(Counted(value.clone()));
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
