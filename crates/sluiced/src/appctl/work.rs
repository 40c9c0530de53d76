//! Work that takes too long for the main loop: a thread computes the reply, and the main loop continues.

use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::sync::{Arc, Weak};
use sync::{Mutex, lock};

/// Maximum threads working or waiting for their turn.
const WORKERS_MAX: usize = 16;

/// The threads of one daemon, which take turns: one reply is computed at a time.
#[derive(Default)]
pub struct Workers(Arc<Mutex<()>>);

/// A reply in progress.
pub struct Work {
    answer: Receiver<Result<String, String>>,
    /// While this exists, the requester waits.
    _wanted: Arc<()>,
}

impl Work {
    /// Starts to compute a reply. The argument of `make` returns whether the requester still waits.
    ///
    /// # Errors
    /// Too many are in progress, or no thread can be created.
    pub(crate) fn begin(
        workers: &Workers,
        make: impl FnOnce(&dyn Fn() -> bool) -> Result<String, String> + Send + 'static,
    ) -> Result<Work, String> {
        if Arc::strong_count(&workers.0) > WORKERS_MAX {
            return Err("too many answers are in the making: ask again later".to_string());
        }
        let (turn, (done, answer)) = (workers.0.clone(), sync_channel(1));
        let wanted = Arc::new(());
        let is_wanted = Arc::downgrade(&wanted);
        let work = move || {
            let _turn = lock(&turn);
            let is_wanted = || Weak::strong_count(&is_wanted) > 0;
            if is_wanted() {
                // The requester may have disconnected meanwhile.
                let _ = done.try_send(make(&is_wanted));
            }
        };
        std::thread::Builder::new()
            .name("command".to_string())
            .spawn(work)
            .map_err(|e| format!("no thread can be had: {e}"))?;
        Ok(Work { answer, _wanted: wanted })
    }

    /// The reply, once ready.
    pub(crate) fn answer(&self) -> Option<Result<String, String>> {
        match self.answer.try_recv() {
            Ok(answer) => Some(answer),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err("the thread that made the answer ended".to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    const LIMIT: Duration = Duration::from_secs(60);

    fn wait(work: &Work) -> Result<String, String> {
        let begun = Instant::now();
        loop {
            match work.answer() {
                Some(answer) => return answer,
                None => assert!(begun.elapsed() < LIMIT),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn all_end(workers: &Workers) {
        let begun = Instant::now();
        while Arc::strong_count(&workers.0) > 1 {
            assert!(begun.elapsed() < LIMIT);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn replies_are_computed_in_turn_up_to_a_limit() {
        let workers = Workers::default();
        let held = lock(&workers.0);
        let (made, seen) = sync_channel(WORKERS_MAX);
        let begin = |n: usize| {
            let made = made.clone();
            Work::begin(&workers, move |_| {
                made.send(n).unwrap();
                Ok(n.to_string())
            })
        };
        let mut works: Vec<_> = (0..WORKERS_MAX).map(|n| begin(n).unwrap()).collect();
        assert!(begin(99).is_err_and(|e| e.contains("too many")));
        assert!(works.iter().all(|w| w.answer().is_none()));
        // Unwanted replies are not computed.
        works.truncate(1);
        drop(held);
        assert_eq!(wait(&works[0]), Ok("0".to_string()));
        all_end(&workers);
        assert_eq!(seen.try_iter().collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn an_unwanted_reply_is_abandoned() {
        let workers = Workers::default();
        let (started, begun) = sync_channel(1);
        let work = Work::begin(&workers, move |wanted| {
            started.send(wanted()).unwrap();
            while wanted() {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(String::new())
        });
        assert_eq!(begun.recv_timeout(LIMIT), Ok(true));
        drop(work);
        all_end(&workers);
    }

    #[test]
    fn a_thread_that_ends_without_a_reply_is_reported() {
        let workers = Workers::default();
        let work = Work::begin(&workers, |_| panic!("on purpose")).unwrap();
        assert!(wait(&work).is_err_and(|e| e.contains("ended")));
        // The others have their turn all the same.
        assert_eq!(wait(&Work::begin(&workers, |_| Ok("x".to_string())).unwrap()), Ok("x".to_string()));
    }
}
