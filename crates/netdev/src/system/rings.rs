//! Threads that make, fill and close the rings of queues that grow ([`super::grow`]): each of these steps blocks until all
//! processors have passed a grace period, 10 to 40 ms.
//!
//! Bounds: [`WORKERS`] threads, and [`JOBS_MAX`] jobs that wait. A job that finds no room is refused; its queue asks again.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::bind;
use super::fanout::{self, Member, Pair};
use super::ring::RingRx;
use super::rx::Setup;

/// Threads; they wait for grace periods together.
const WORKERS: usize = 4;
/// Jobs that wait.
const JOBS_MAX: usize = 64;

/// How far a [`Change`] is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    /// Frames come by either socket.
    Underway,
    /// All frames come by the new socket.
    Done,
    /// All frames come by the old socket, as before.
    Failed,
}

/// Exchange of the socket that a queue receives by, carried out by another thread.
#[derive(Default)]
pub(super) struct Change {
    /// The new ring, once it may get frames.
    ring: Mutex<Option<RingRx>>,
    progress: AtomicU8,
}

impl Change {
    pub(super) fn progress(&self) -> Progress {
        match self.progress.load(Ordering::Acquire) {
            0 => Progress::Underway,
            1 => Progress::Done,
            _ => Progress::Failed,
        }
    }

    /// The new ring, once.
    pub(super) fn take_ring(&self) -> Option<RingRx> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn end(&self, result: &io::Result<()>) {
        self.progress.store(if result.is_ok() { 1 } else { 2 }, Ordering::Release);
    }
}

/// A queue's part of a [`Change`].
pub(super) struct Sockets {
    pub(super) pair: Pair,
    /// The socket that stays.
    pub(super) base: Arc<OwnedFd>,
}

/// A ring to make.
pub(super) struct NewRing {
    /// Its socket, not bound.
    pub(super) socket: OwnedFd,
    pub(super) ifindex: u32,
    pub(super) setup: Setup,
    pub(super) slots: u32,
}

/// Work that blocks.
pub(super) enum Job {
    /// Make a ring, and direct frames to it.
    Grow(Arc<Change>, Sockets, NewRing),
    /// Direct frames to the base socket.
    Shrink(Arc<Change>, Sockets),
    /// Close a ring.
    Close(Box<RingRx>),
}

impl Job {
    fn run(self) {
        match self {
            Job::Grow(change, sockets, new) => change.end(&grow(&change, &sockets, new)),
            Job::Shrink(change, Sockets { pair, base }) => change.end(&pair.steer(&base, Member::First)),
            Job::Close(ring) => drop(ring),
        }
    }
}

fn grow(change: &Change, Sockets { pair, base }: &Sockets, new: NewRing) -> io::Result<()> {
    let NewRing { socket, ifindex, setup, slots } = new;
    // Until it is a member, a bound socket gets every frame.
    fanout::shut(&socket)?;
    let socket = Arc::new(socket);
    let ring = RingRx::new(socket.clone(), setup, slots)?;
    bind(&socket, ifindex, libc::ETH_P_ALL as u16)?;
    pair.add(&socket)?;
    // Also waits for frames that came before it was a member.
    pair.steer(base, Member::First)?;
    fanout::open(&socket)?;
    // Before its first frame: it is read from now on.
    *change.ring.lock().unwrap_or_else(PoisonError::into_inner) = Some(ring);
    pair.steer(base, Member::Second)
}

/// The threads' jobs, once they were asked for; `None`: none could be started.
static QUEUE: OnceLock<Option<SyncSender<Job>>> = OnceLock::new();

/// Starts the threads ahead of the first job, so that they are not those of a thread with less rights. Each calls `begin` first.
pub fn start_ring_threads(begin: fn()) {
    QUEUE.get_or_init(|| start(begin));
}

/// Passes a job to a thread; returns one that finds no room.
pub(super) fn submit(job: Job) -> Result<(), Job> {
    match QUEUE.get_or_init(|| start(|| ())) {
        Some(queue) => queue.try_send(job).map_err(|e| match e {
            std::sync::mpsc::TrySendError::Full(job) | std::sync::mpsc::TrySendError::Disconnected(job) => {
                job
            }
        }),
        None => Err(job),
    }
}

/// Starts the threads; `None`: none starts.
fn start(begin: fn()) -> Option<SyncSender<Job>> {
    let (sender, receiver) = sync_channel(JOBS_MAX);
    let receiver = Arc::new(Mutex::new(receiver));
    let started = (0..WORKERS).filter(|_| {
        let receiver = receiver.clone();
        let run = move || {
            begin();
            work(&receiver);
        };
        std::thread::Builder::new().name("rings".to_owned()).spawn(run).is_ok()
    });
    (started.count() > 0).then_some(sender)
}

fn work(receiver: &Mutex<Receiver<Job>>) {
    loop {
        let job = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        job.run();
    }
}
