//! Many descriptors behind one: an epoll(7) set used in another wait as a single descriptor.
//!
//! For mostly idle descriptors: waiting for any number of them costs as much as for one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

/// Maximum descriptors reported by one call.
const READY_MAX: usize = 64;

/// See the module. Belongs to one thread.
#[derive(Debug)]
pub struct WatchSet {
    epoll: OwnedFd,
    count: usize,
}

impl WatchSet {
    /// An empty set.
    pub fn new() -> io::Result<WatchSet> {
        Ok(WatchSet { epoll: epoll::create(CreateFlags::CLOEXEC)?, count: 0 })
    }

    /// Watches a descriptor for input and errors, under the caller's name. Remove it before closing it.
    pub fn add(&mut self, fd: BorrowedFd<'_>, name: u64) -> io::Result<()> {
        epoll::add(&self.epoll, fd, EventData::new_u64(name), EventFlags::IN)?;
        self.count += 1;
        Ok(())
    }

    /// Removes a descriptor.
    pub fn remove(&mut self, fd: BorrowedFd<'_>) {
        if epoll::delete(&self.epoll, fd).is_ok() {
            self.count -= 1;
        }
    }

    /// Descriptors watched.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Readable while a watched descriptor is.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// The names of at most [`READY_MAX`] descriptors that are ready now, without blocking. They are reported
    /// again while ready, unless removed.
    pub fn ready(&self) -> Vec<u64> {
        let mut events: Vec<Event> = Vec::with_capacity(READY_MAX);
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Interrupted: ready descriptors stay so.
        let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&now));
        events
            .iter()
            .map(|e| {
                let data = e.data;
                data.u64()
            })
            .collect()
    }
}
