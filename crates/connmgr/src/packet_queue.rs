//! [`PacketQueue`]: rate limit of packet-ins of a connection (`Controller.controller_rate_limit`).
//!
//! A connection has one queue for table misses and one for actions. While the queue is empty and the token bucket
//! admits it, a packet-in passes at once. Others wait in a queue of their input port. Ports take turns, and a full
//! queue loses the oldest packet of the port with most: a flood on one port costs only packets of that port.

use super::conn::Conn;
use openflow::Message;
use openflow::budget::{Budget, Share};
use openflow::msg::packet::PacketIn;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// Tokens of one packet-in; the bucket gains `rate_pps` tokens per millisecond.
const PACKET_TOKENS: u64 = 1000;
/// Maximum packet-ins sent from a queue in one turn.
const PER_TURN: usize = 50;
/// Maximum bytes that wait in one queue.
const BYTES_MAX: usize = 4 << 20;
/// Pending output beyond which packets for the controller are dropped, however few they are.
const PACKET_IN_OUTPUT_BYTES: usize = 4 << 20;
/// That limit if the connections of all bridges use half of their memory limit.
const PACKET_IN_OUTPUT_OF_MANY_BYTES: usize = 256 << 10;

/// `controller_rate_limit` and `controller_burst_limit`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RateLimit {
    /// Packet-ins per second.
    pub rate_pps: u32,
    /// Size of the token bucket, and maximum number of waiting packet-ins.
    pub burst_packets: u32,
}

/// Statistics of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueStats {
    /// Packet-ins that passed at once.
    pub bypassed: u64,
    /// Packet-ins that had to wait.
    pub queued: u64,
    /// Packet-ins dropped while they waited.
    pub dropped: u64,
    /// Packet-ins that wait.
    pub backlog: usize,
}

/// Packet-ins that wait for the rate limit.
#[derive(Debug)]
pub(super) struct PacketQueue {
    limit: RateLimit,
    tokens: u64,
    /// Time of the last addition of tokens; `None` with a full bucket that was never used.
    filled_ms: Option<u64>,
    /// Encoded messages by input port; no queue is empty.
    ports: BTreeMap<u32, VecDeque<Vec<u8>>>,
    /// Lengths of these queues, with their ports.
    lengths: BTreeSet<(usize, u32)>,
    /// The port served last.
    served: u32,
    /// Accounts for the waiting bytes.
    share: Share,
    stats: QueueStats,
}

impl PacketQueue {
    /// An empty queue with a full bucket.
    pub(super) fn new(limit: RateLimit, budget: &Arc<Budget>) -> PacketQueue {
        PacketQueue {
            limit,
            tokens: 0,
            filled_ms: None,
            ports: BTreeMap::new(),
            lengths: BTreeSet::new(),
            served: u32::MAX,
            share: Share::new(budget),
            stats: QueueStats::default(),
        }
    }

    /// Changes the limit; drops packet-ins beyond the new burst.
    pub(super) fn set_limit(&mut self, limit: RateLimit) {
        self.limit = limit;
        self.tokens = self.tokens.min(self.bucket());
        while self.stats.backlog > limit.burst_packets as usize {
            self.drop_one();
        }
    }

    pub(super) fn limit(&self) -> RateLimit {
        self.limit
    }

    pub(super) fn stats(&self) -> QueueStats {
        self.stats
    }

    /// Bytes that wait.
    pub(super) fn bytes(&self) -> usize {
        self.share.bytes()
    }

    /// Takes a packet-in received by this port. Returns it if it may be sent at once.
    pub(super) fn push(&mut self, port: u32, frame: Vec<u8>, now_ms: u64) -> Option<Vec<u8>> {
        if self.stats.backlog == 0 && self.withdraw(now_ms) {
            self.stats.bypassed += 1;
            return Some(frame);
        }
        self.stats.queued += 1;
        if self.stats.backlog >= self.limit.burst_packets as usize {
            self.drop_one();
        }
        while self.share.bytes() + frame.len() > BYTES_MAX && self.stats.backlog > 0 {
            self.drop_one();
        }
        if !self.share.try_grow(frame.len()) {
            self.stats.dropped += 1;
            return None;
        }
        let queue = self.ports.entry(port).or_default();
        self.lengths.remove(&(queue.len(), port));
        queue.push_back(frame);
        self.lengths.insert((queue.len(), port));
        self.stats.backlog += 1;
        None
    }

    /// Takes the packet-ins that may be sent now, a bounded number per turn; ports take turns.
    pub(super) fn due(&mut self, now_ms: u64) -> Vec<Vec<u8>> {
        let mut due = Vec::new();
        while due.len() < PER_TURN && self.stats.backlog > 0 && self.withdraw(now_ms) {
            let after = (Bound::Excluded(self.served), Bound::Unbounded);
            let next = self.ports.range(after).next().or_else(|| self.ports.iter().next());
            let Some(port) = next.map(|(port, _)| *port) else { break };
            self.served = port;
            due.extend(self.pop(port));
        }
        due
    }

    /// Time at which the next waiting packet-in may be sent.
    pub(super) fn next_wakeup_ms(&self) -> Option<u64> {
        let filled_ms = self.filled_ms.filter(|_| self.stats.backlog > 0)?;
        let missing = PACKET_TOKENS.saturating_sub(self.tokens);
        Some(filled_ms + missing.div_ceil(u64::from(self.limit.rate_pps).max(1)))
    }

    fn bucket(&self) -> u64 {
        u64::from(self.limit.burst_packets).saturating_mul(PACKET_TOKENS)
    }

    /// Adds the tokens of the elapsed time and takes those of one packet-in, if there are enough.
    fn withdraw(&mut self, now_ms: u64) -> bool {
        let gained = match self.filled_ms {
            None => self.bucket(),
            Some(filled_ms) => {
                now_ms.saturating_sub(filled_ms).saturating_mul(u64::from(self.limit.rate_pps))
            }
        };
        self.filled_ms = Some(now_ms.max(self.filled_ms.unwrap_or(now_ms)));
        self.tokens = self.tokens.saturating_add(gained).min(self.bucket());
        let is_enough = self.tokens >= PACKET_TOKENS;
        if is_enough {
            self.tokens -= PACKET_TOKENS;
        }
        is_enough
    }

    /// Drops the oldest packet-in of the port with most.
    fn drop_one(&mut self) {
        if let Some((_, port)) = self.lengths.last().copied() {
            self.stats.dropped += u64::from(self.pop(port).is_some());
        }
    }

    /// Removes the oldest packet-in of a port.
    fn pop(&mut self, port: u32) -> Option<Vec<u8>> {
        let queue = self.ports.get_mut(&port)?;
        self.lengths.remove(&(queue.len(), port));
        let frame = queue.pop_front()?;
        match queue.len() {
            0 => drop(self.ports.remove(&port)),
            n => drop(self.lengths.insert((n, port))),
        }
        self.stats.backlog -= 1;
        self.share.set(self.share.bytes() - frame.len());
        Some(frame)
    }
}

impl Conn {
    /// Sends a packet-in of an input port within the rate limit, or queues it.
    pub(super) fn send_packet_in(&mut self, port: u32, is_miss: bool, message: &PacketIn, now_ms: u64) {
        let Ok(frame) = self.session.encode(&Message::PacketIn(message.clone()), 0) else {
            self.counters.packet_ins_dropped += 1;
            return;
        };
        let frame = match &mut self.packet_queues {
            None => Some(frame),
            Some(queues) => queues[usize::from(!is_miss)].push(port, frame, now_ms),
        };
        if let Some(frame) = frame {
            self.put_packet_in(&frame);
        }
    }

    /// Sends queued packet-ins within the rate limit.
    pub(super) fn send_queued_packet_ins(&mut self, now_ms: u64) {
        let Some(queues) = &mut self.packet_queues else { return };
        for frame in queues.each_mut().map(|q| q.due(now_ms)).into_iter().flatten() {
            self.put_packet_in(&frame);
        }
    }

    /// Puts an encoded packet-in into the output; drops and counts it if too many are unsent.
    fn put_packet_in(&mut self, frame: &[u8]) {
        let limit = match self.session.output_share().budget().is_half_used() {
            true => PACKET_IN_OUTPUT_OF_MANY_BYTES,
            false => PACKET_IN_OUTPUT_BYTES,
        };
        let is_full = self.unsent_packet_ins.len() >= self.settings.queue_packets
            || self.session.output().len() >= limit
            || self.waits_for_memory();
        if is_full || self.session.send_encoded(frame).is_err() {
            self.counters.packet_ins_dropped += 1;
            self.counters.packet_ins_unsent += 1;
            self.overflowed = true;
            return;
        }
        self.counters.packet_ins += 1;
        self.unsent_packet_ins.push_back(self.output_end());
    }

    /// Statistics of its rate limit: table misses, then actions.
    pub(super) fn packet_queue_stats(&self) -> Option<[QueueStats; 2]> {
        self.packet_queues.as_ref().map(|queues| queues.each_ref().map(PacketQueue::stats))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(rate_pps: u32, burst_packets: u32) -> PacketQueue {
        PacketQueue::new(RateLimit { rate_pps, burst_packets }, &Budget::new(1 << 30))
    }

    /// As OVS 3.1: of 60 packets at once, with a burst of 25, 25 pass, 35 wait, of which 10 are dropped.
    #[test]
    fn a_burst_passes_and_the_rest_waits_up_to_the_burst_limit() {
        let mut q = queue(100, 25);
        let passed = (0..60).filter(|n| q.push(1, vec![*n], 1000).is_some()).count();
        assert_eq!(passed, 25);
        assert_eq!(q.stats(), QueueStats { bypassed: 25, queued: 35, dropped: 10, backlog: 25 });
        assert_eq!(q.due(1000), Vec::<Vec<u8>>::new());
        assert_eq!(q.next_wakeup_ms(), Some(1010));
        // The oldest ones were dropped.
        assert_eq!(q.due(1010), [[35]]);
        assert_eq!(q.due(1030), [[36], [37]]);
        assert_eq!(q.due(60_000).len(), 22);
        assert_eq!((q.stats().backlog, q.bytes(), q.next_wakeup_ms()), (0, 0, None));
    }

    #[test]
    fn ports_take_turns_and_a_flood_drops_packets_of_its_own_port() {
        let mut q = queue(100, 10);
        while q.push(7, vec![0], 0).is_some() {}
        for n in 0..200 {
            assert_eq!(q.push(7, vec![n], 0), None);
        }
        for n in [201, 202, 203] {
            assert_eq!(q.push(3, vec![n], 0), None);
        }
        let due: Vec<u8> = q.due(10_000).concat();
        assert_eq!(due[..6], [201, 193, 202, 194, 203, 195]);
        assert_eq!(due.len(), 10);
    }

    #[test]
    fn waiting_bytes_are_bounded_and_counted() {
        let budget = Budget::new(1 << 20);
        let mut q = PacketQueue::new(RateLimit { rate_pps: 100, burst_packets: 1000 }, &budget);
        while q.push(1, Vec::new(), 0).is_some() {}
        assert_eq!(q.pop(1), Some(Vec::new()));
        for _ in 0..100 {
            assert_eq!(q.push(1, vec![0; 60_000], 0), None);
        }
        assert_eq!((q.stats().backlog, q.stats().dropped), (17, 83));
        assert_eq!((q.bytes(), budget.used_bytes()), (17 * 60_000, 17 * 60_000));
        q.set_limit(RateLimit { rate_pps: 100, burst_packets: 2 });
        assert_eq!((q.stats().backlog, budget.used_bytes()), (2, 120_000));
        drop(q);
        assert_eq!(budget.used_bytes(), 0);
    }
}
