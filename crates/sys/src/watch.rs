//! Many descriptors behind one: an epoll(7) set that stands in another wait as a single descriptor.
//!
//! For descriptors that seldom have something: however many there are, waiting for them costs as much as for one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

/// Descriptors told of by one call at most.
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

    /// Watches a descriptor for input and errors, under a name of the caller's. It has to be taken out before it is closed.
    pub fn add(&mut self, fd: BorrowedFd<'_>, name: u64) -> io::Result<()> {
        epoll::add(&self.epoll, fd, EventData::new_u64(name), EventFlags::IN)?;
        self.count += 1;
        Ok(())
    }

    /// Takes a descriptor out.
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

    /// The names of descriptors that have something now, [`READY_MAX`] at most, without waiting. They are told of again as
    /// long as they have, unless they are taken out.
    pub fn ready(&self) -> Vec<u64> {
        let mut events: Vec<Event> = Vec::with_capacity(READY_MAX);
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Interrupted: what is ready stays so.
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
