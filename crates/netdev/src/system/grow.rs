//! A receive queue whose memory grows with its traffic.
//!
//! An idle queue has a plain socket, its *base*: frames of a burst wait in the kernel's own buffers, up to
//! [`SystemOptions::rx_buffer_bytes`], which cost nothing while there are none. Frames that come fast ([`Pace`]) get a ring
//! on a second socket; it is closed once they come slowly.
//!
//! Both sockets are a [`Pair`]: each frame reaches exactly one of them. While frames change from the *older* to the
//! *newer* socket, frames of the newer one are held back until the older one is found empty afterwards. So no frame is
//! lost, doubled, or overtakes another one of its flow.
//!
//! A base that is never empty for a second keeps less: frames of an overloaded switch only wait longer in a long queue.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use packet::{Packet, PacketBatch, PacketPool};

use super::fanout::Pair;
use super::pace::{Advice, Pace};
use super::ring::{self, RingRx};
use super::rings::{self, Change, Job, NewRing, Progress, Sockets};
use super::rx::{Setup, SocketRx};
use super::{SystemOptions, bind, open_rx_socket, set_buffer};
use crate::kept::Kept;
use crate::lending::{Lending, LentGroup, LentKind, LentQueue};
use crate::port::{RxCounters, RxMode, RxQueue};

/// Receive buffer of a base that is overloaded, in bytes (the kernel doubles it).
const OVERLOADED_BYTES: u32 = 256 << 10;
/// Time after a ring that could not be made until the next attempt.
const RETRY_US: u64 = 10_000_000;

/// The socket that frames come by.
enum Phase {
    Base,
    /// From the base to a ring, which may not exist yet.
    Growing(Arc<Change>),
    Ring,
    /// From the ring to the base.
    Shrinking(Arc<Change>),
}

/// A ring that a queue may make.
pub(super) struct Plan {
    name: String,
    ifindex: u32,
    slots: u32,
    options: SystemOptions,
}

impl Plan {
    pub(super) fn new(name: &str, ifindex: u32, options: &SystemOptions, slots: u32) -> Plan {
        Plan { name: name.to_owned(), ifindex, slots, options: options.clone() }
    }
}

/// See the module documentation.
pub(crate) struct GrowRx {
    base: SocketRx,
    ring: Option<RingRx>,
    phase: Phase,
    /// Frames of the newer socket, in order.
    held: VecDeque<Packet>,
    pair: Pair,
    plan: Box<Plan>,
    pace: Pace,
    /// Losses of closed rings.
    closed: RxCounters,
    small_buffer: bool,
    retry_us: u64,
    /// Another process prepares to go on: the sockets stay.
    is_lent: bool,
    /// The ring, while all frames come by it.
    kept_ring: Option<Kept>,
}

impl GrowRx {
    /// Binds the socket. `None`: the kernel refuses the group.
    pub(super) fn open(
        name: &str,
        fd: Arc<OwnedFd>,
        ifindex: u32,
        options: &SystemOptions,
        slots: u32,
    ) -> io::Result<Option<GrowRx>> {
        bind(&fd, ifindex, libc::ETH_P_ALL as u16)?;
        let Ok(pair) = Pair::of(&fd, options.ignore_outgoing) else { return Ok(None) };
        let setup = Setup { vnet_hdr: options.vnet_hdr, drop_outgoing: !pair.ignores_outgoing() };
        Ok(Some(GrowRx::of(Plan::new(name, ifindex, options, slots), fd, setup, pair, None)))
    }

    /// Goes on with the sockets that another process lends.
    pub(super) fn adopt(
        plan: Plan,
        fd: Arc<OwnedFd>,
        setup: Setup,
        group: LentGroup,
        ring: Option<RingRx>,
    ) -> GrowRx {
        // The other process may have reduced it.
        let _ = set_buffer(&fd, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, plan.options.rx_buffer_bytes);
        GrowRx::of(plan, fd, setup, Pair::lent(group), ring)
    }

    fn of(plan: Plan, fd: Arc<OwnedFd>, setup: Setup, pair: Pair, ring: Option<RingRx>) -> GrowRx {
        let mut queue = GrowRx {
            base: SocketRx::new(fd, setup),
            phase: if ring.is_some() { Phase::Ring } else { Phase::Base },
            ring,
            held: VecDeque::new(),
            pair,
            plan: Box::new(plan),
            pace: Pace::default(),
            closed: RxCounters::default(),
            small_buffer: false,
            retry_us: 0,
            is_lent: false,
            kept_ring: None,
        };
        queue.keep_ring();
        queue
    }

    /// The kind of the base.
    pub(super) fn base_kind(&self) -> LentKind {
        self.kind(None)
    }

    /// The kind with a ring of that many slots, or without one.
    fn kind(&self, slots: Option<usize>) -> LentKind {
        LentKind::Growing(self.base.setup().lent(), self.pair.lend(), slots.map(|slots| slots as u32))
    }

    /// Has the ring kept for the next process.
    fn keep_ring(&mut self) {
        self.kept_ring = self.ring.as_ref().and_then(|ring| {
            Kept::receiving(&self.plan.name, 0, self.kind(Some(ring.slots())), ring.socket())
        });
    }

    fn sockets(&self) -> Sockets {
        Sockets { pair: self.pair, base: self.base.socket().clone() }
    }

    /// Asks for a ring.
    fn grow(&mut self, now_us: u64) {
        let Plan { name, ifindex, slots, options } = &*self.plan;
        if now_us < self.retry_us || !ring::has_room(*slots) {
            return;
        }
        // The base keeps the device promiscuous.
        let unpromiscuous = SystemOptions { promiscuous: false, ..options.clone() };
        let Ok((socket, _)) = open_rx_socket(name, *ifindex, &unpromiscuous) else {
            self.retry_us = now_us + RETRY_US;
            return;
        };
        let new = NewRing { socket, ifindex: *ifindex, setup: self.base.setup(), slots: *slots };
        let change = Arc::<Change>::default();
        match rings::submit(Job::Grow(change.clone(), self.sockets(), new)) {
            Ok(()) => self.phase = Phase::Growing(change),
            Err(refused) => {
                self.retry_us = now_us + RETRY_US;
                drop(refused);
            }
        }
    }

    /// Asks to give the ring back.
    fn shrink(&mut self) {
        let change = Arc::<Change>::default();
        if rings::submit(Job::Shrink(change.clone(), self.sockets())).is_ok() {
            self.phase = Phase::Shrinking(change);
            self.kept_ring = None;
        }
    }

    /// Has the ring closed by another thread, at this review or the next one.
    fn close_ring(&mut self) {
        let Some(ring) = self.ring.take() else { return };
        let lost = ring.counters();
        match rings::submit(Job::Close(Box::new(ring))) {
            Err(Job::Close(ring)) => self.ring = Some(*ring),
            _ => add(&mut self.closed, lost),
        }
    }

    /// Receives while frames change sockets.
    fn recv_changing(
        &mut self,
        change: &Change,
        grows: bool,
        pool: &mut PacketPool,
        batch: &mut PacketBatch,
        max: usize,
    ) -> io::Result<usize> {
        // Before the sockets are read: if it is done now, the older one gets no more.
        let progress = change.progress();
        if grows && self.ring.is_none() {
            self.ring = change.take_ring();
        }
        let Some(ring) = &mut self.ring else {
            if progress == Progress::Failed {
                self.phase = Phase::Base;
            }
            return self.base.recv(pool, batch, max);
        };
        let (older, newer): (&mut dyn RxQueue, &mut dyn RxQueue) =
            if grows { (&mut self.base, ring) } else { (ring, &mut self.base) };
        if self.held.is_empty() {
            let mut next = PacketBatch::new();
            // The older one reports errors of the device.
            let _ = newer.recv(pool, &mut next, max);
            self.held.extend(next.drain());
        }
        let before = batch.len();
        let emptied = loop {
            let left = max.saturating_sub(batch.len() - before);
            match older.recv(pool, batch, left) {
                Ok(0) => break left > 0,
                Ok(_) => {}
                Err(e) if batch.len() == before => return Err(e),
                Err(_) => break false,
            }
        };
        if !emptied {
            return Ok(batch.len() - before);
        }
        while batch.len() - before < max
            && let Some(p) = self.held.pop_front()
        {
            batch.push(p);
        }
        if self.held.is_empty() {
            self.settle_change(progress, grows);
        }
        Ok(batch.len() - before)
    }

    /// Ends a change whose older socket is empty.
    fn settle_change(&mut self, progress: Progress, grows: bool) {
        let to_ring = match progress {
            Progress::Underway => return,
            Progress::Done => grows,
            Progress::Failed => !grows,
        };
        if to_ring {
            self.phase = Phase::Ring;
            self.keep_ring();
        } else {
            self.phase = Phase::Base;
            self.close_ring();
        }
    }

    /// Sets the receive buffer of the base.
    fn keep_buffer(&mut self) {
        let overloaded = self.pace.is_overloaded();
        if overloaded != self.small_buffer {
            self.small_buffer = overloaded;
            let usual = self.plan.options.rx_buffer_bytes;
            let bytes = if overloaded { usual.min(OVERLOADED_BYTES) } else { usual };
            // The old size is a bound, too.
            let _ = set_buffer(self.base.socket(), libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, bytes);
        }
    }
}

fn add(sum: &mut RxCounters, part: RxCounters) {
    sum.kernel_drops += part.kernel_drops;
    sum.malformed += part.malformed;
    sum.truncated += part.truncated;
}

impl RxQueue for GrowRx {
    fn fd(&self) -> BorrowedFd<'_> {
        match (&self.phase, &self.ring) {
            (Phase::Ring | Phase::Growing(_), Some(ring)) => ring.fd(),
            _ => self.base.fd(),
        }
    }

    fn recv(
        &mut self,
        pool: &mut PacketPool,
        batch: &mut PacketBatch,
        max_packets: usize,
    ) -> io::Result<usize> {
        let (change, grows) = match (&self.phase, &mut self.ring) {
            (Phase::Ring, Some(ring)) => {
                let got = ring.recv(pool, batch, max_packets)?;
                self.pace.count(got, got < max_packets);
                return Ok(got);
            }
            (Phase::Base | Phase::Ring, _) => {
                let got = self.base.recv(pool, batch, max_packets)?;
                self.pace.count(got, self.base.is_emptied());
                return Ok(got);
            }
            (Phase::Growing(change), _) => (change.clone(), true),
            (Phase::Shrinking(change), _) => (change.clone(), false),
        };
        let got = self.recv_changing(&change, grows, pool, batch, max_packets)?;
        self.pace.count(got, got < max_packets);
        Ok(got)
    }

    fn counters(&self) -> RxCounters {
        let mut sum = self.closed;
        for part in
            [Some(self.base.counters()), self.ring.as_ref().map(RingRx::counters)].into_iter().flatten()
        {
            add(&mut sum, part);
        }
        sum
    }

    fn mode(&self) -> RxMode {
        match self.phase {
            Phase::Base if self.ring.is_none() => RxMode::Idle,
            Phase::Base | Phase::Ring => RxMode::Fast,
            Phase::Growing(_) | Phase::Shrinking(_) => RxMode::Changing,
        }
    }

    fn lend(&mut self) -> io::Result<Lending> {
        self.is_lent = true;
        let ring = match (&self.phase, &self.ring) {
            (Phase::Growing(_) | Phase::Shrinking(_), _) => return Ok(Lending::Changing),
            (Phase::Ring, Some(ring)) => Some(ring),
            (Phase::Base | Phase::Ring, _) => None,
        };
        let mut fds = vec![self.base.socket().try_clone()?];
        if let Some(ring) = ring {
            fds.push(ring.socket().try_clone()?);
        }
        Ok(Lending::Queue(LentQueue { kind: self.kind(ring.map(|ring| ring.slots())), fds }))
    }

    fn take_back(&mut self) {
        self.is_lent = false;
    }

    fn place(&self) -> u32 {
        self.ring.as_ref().map_or(0, RxQueue::place)
    }

    fn go_on_at(&mut self, place: u32) {
        self.ring.iter_mut().for_each(|ring| ring.go_on_at(place));
    }

    fn review(&mut self, now_us: u64) {
        let advice = self.pace.review(now_us);
        if self.is_lent {
            return;
        }
        match (&self.phase, advice) {
            (Phase::Base, _) if self.ring.is_some() => self.close_ring(),
            (Phase::Base, Advice::Grow) => self.grow(now_us),
            (Phase::Ring, Advice::GiveBack) => self.shrink(),
            _ => {}
        }
        self.keep_buffer();
    }
}

impl Drop for GrowRx {
    fn drop(&mut self) {
        // A change ends by itself; its ring is the other thread's to close.
        if let Phase::Growing(change) | Phase::Shrinking(change) = &self.phase {
            drop(change.take_ring());
        }
    }
}
