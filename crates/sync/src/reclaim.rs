//! [`Reclaimer`]: drops large values on a thread of its own.
//!
//! A table of a million rules takes a good part of a second to drop. Its owner hands it over and goes on at once.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, OnceLock};

/// A value whose drop takes long.
pub trait Garbage: Send {
    /// Whether to drop it frees what it holds. While others hold it too, the last of them would have to.
    fn is_last(&self) -> bool;
}

/// See the module. Clones hand over to the same thread. Without a thread, values are dropped where they are given.
#[derive(Clone, Default)]
pub struct Reclaimer {
    queue: Arc<OnceLock<Sender<Box<dyn Garbage>>>>,
}

impl Reclaimer {
    /// The end of the queue for the thread that drops; `None` when another has it.
    pub fn attach(&self) -> Option<Receiver<Box<dyn Garbage>>> {
        let (sender, receiver) = mpsc::channel();
        self.queue.set(sender).is_ok().then_some(receiver)
    }

    /// Drops a value, elsewhere if there is a thread for it.
    pub fn give(&self, garbage: impl Garbage + 'static) {
        if let Some(queue) = self.queue.get() {
            // A thread that has ended gives it back, and it is dropped here.
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
