//! Threads that wait for shared descriptors: an epoll(7) set each, all with the same descriptor and
//! `EPOLLEXCLUSIVE`, so that input wakes one waiting thread instead of all.
//!
//! Edge-triggered: the thread notified of a descriptor reads until it is empty, or returns to it on its own.

use crate::waker::Waker;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// From linux/eventpoll.h, since Linux 4.5. Older kernels wake all waiting threads.
const EXCLUSIVE: EventFlags = EventFlags::from_bits_retain(1 << 28);
/// Maximum descriptors reported by one wait: others may be reported to another thread.
const EVENTS_MAX: usize = 32;
/// The name of the waker.
const WAKER: u64 = u64::MAX;

/// The set of one thread. Other threads may add, remove and wake.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
    waker: Arc<Waker>,
}

impl Poller {
    /// An empty set.
    pub fn new() -> io::Result<Poller> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let waker = Waker::new()?;
        epoll::add(&epoll, waker.fd(), EventData::new_u64(WAKER), EventFlags::IN)?;
        Ok(Poller { epoll, waker: Arc::new(waker) })
    }

    /// Also waits for input of a descriptor, reported under a name below `u64::MAX`. If in the sets of
    /// several threads, it wakes one of them.
    pub fn add(&self, fd: BorrowedFd<'_>, name: u64) -> io::Result<()> {
        let events = EventFlags::IN | EventFlags::ET | EXCLUSIVE;
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(name), events)?)
    }

    /// Removes a descriptor; not an error if absent.
    pub fn remove(&self, fd: BorrowedFd<'_>) {
        // The only other failure is a descriptor that was never in the set.
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Wakes the thread out of [`Poller::wait`].
    pub fn waker(&self) -> Arc<Waker> {
        self.waker.clone()
    }

    /// Waits until a descriptor has input, or it is woken, or for `timeout`; writes the names of up to 32
    /// descriptors to `names`, which is cleared before.
    pub fn wait(&self, timeout: Duration, names: &mut Vec<u64>) {
        names.clear();
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS_MAX);
        let timeout = Timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        // Interrupted: input is reported the next time.
        let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&timeout));
        for event in &events {
            let data = event.data;
            match data.u64() {
                WAKER => {
                    self.waker.drain();
                }
                name => names.push(name),
            }
        }
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    const NOT: Duration = Duration::ZERO;

    fn names(poller: &Poller, timeout: Duration) -> Vec<u64> {
        let mut names = Vec::new();
        poller.wait(timeout, &mut names);
        names
    }

    #[test]
    fn input_is_reported_once_and_a_wake_ends_a_wait() {
        let (poller, source) = (Poller::new().unwrap(), Waker::new().unwrap());
        poller.add(source.fd(), 7).unwrap();
        source.wake();
        assert_eq!((names(&poller, LONG), names(&poller, NOT)), (vec![7], vec![]));
        // Further input is reported again.
        source.wake();
        assert_eq!(names(&poller, LONG), [7]);
        poller.waker().wake();
        assert!(names(&poller, LONG).is_empty());
        poller.remove(source.fd());
        source.wake();
        assert!(names(&poller, NOT).is_empty());
        poller.remove(source.fd());
        // Earlier input is reported too.
        poller.add(source.fd(), 8).unwrap();
        assert_eq!(names(&poller, LONG), [8]);
    }

    /// Each piece of input wakes one of several waiting threads, and a thread that does not wait delays no
    /// other.
    #[test]
    fn input_wakes_one_of_those_who_wait() {
        let source = Arc::new(Waker::new().unwrap());
        let pollers: Vec<Arc<Poller>> = (0..4).map(|_| Arc::new(Poller::new().unwrap())).collect();
        pollers.iter().for_each(|p| p.add(source.fd(), 1).unwrap());
        // The first of them never waits.
        let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
        let (stop, waits) = (Arc::new(std::sync::atomic::AtomicBool::new(false)), pollers[1..].to_vec());
        let threads: Vec<_> = waits
            .into_iter()
            .enumerate()
            .map(|(n, poller)| {
                let (seen, stop, source) = (seen.clone(), stop.clone(), source.clone());
                std::thread::spawn(move || {
                    while !stop.load(std::sync::atomic::Ordering::Acquire) {
                        if !names(&poller, LONG).is_empty() && source.drain() {
                            seen.lock().unwrap().push(n);
                        }
                    }
                })
            })
            .collect();
        for round in 1..=200 {
            source.wake();
            let end = std::time::Instant::now() + LONG;
            while seen.lock().unwrap().len() < round {
                assert!(std::time::Instant::now() < end, "input {round} woke nobody");
                std::thread::yield_now();
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Release);
        pollers.iter().for_each(|p| p.waker().wake());
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(seen.lock().unwrap().len(), 200);
    }
}
