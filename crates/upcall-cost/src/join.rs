//! Matching: groups events by upcall.
//!
//! Ids join exactly. If one side lacks them (the kernel, a stock switch), packets are compared: bytes, length
//! and port, except the checksum of the transport header, which may be pending while the packet is in the
//! kernel. Without packets, flow keys are compared; events with none of these are joined by their order on
//! their thread, if nothing was lost. Matches with several upcalls are never guessed: all of these are marked
//! ambiguous and excluded from the statistics.

use std::collections::VecDeque;
use std::ops::Range;

use rapidhash::{HashMapExt, RapidHashMap};
use upcall_events::Stage;

use crate::gather::{Bytes, Gathered, Kept, NONE};
use crate::packet::checksum;

/// Maximum age of an upcall joined by its packet. The same packet later is another upcall.
pub const WINDOW_NS: u64 = 1_000_000_000;
/// Maximum age of an upcall with an id.
const WINDOW_BY_ID_NS: u64 = 60_000_000_000;
/// Maximum upcalls in flight with the same packet; more are ambiguous.
const IDENTICAL_MAX: usize = 64;

/// Maximum executes per turn whose order is kept.
const EXECUTES_MAX: usize = 256;

/// The way of one upcall: its events.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UpcallTrace {
    /// By stage number: 1 + index of the event in [`Gathered::events`], or 0.
    at: [u32; Stage::ALL.len() + 1],
    /// Whether identical packets make the assignment of events uncertain.
    pub ambiguous: bool,
    /// The furthest stage.
    furthest: Stage,
    last_ns: u64,
    id: u64,
    packet: u32,
    key: u32,
    port: u32,
    bytes: u32,
    /// Turn of its handler.
    turn: u32,
}

impl UpcallTrace {
    fn new(event: &Kept) -> Self {
        UpcallTrace {
            at: [0; Stage::ALL.len() + 1],
            ambiguous: false,
            furthest: event.stage,
            last_ns: event.time_ns,
            id: 0,
            packet: NONE,
            key: NONE,
            port: NONE,
            bytes: 0,
            turn: 0,
        }
    }

    /// The index of its event of this stage.
    pub fn event(&self, stage: Stage) -> Option<usize> {
        (self.at[stage as usize] as usize).checked_sub(1)
    }

    /// Number of its events.
    pub fn events(&self) -> usize {
        self.at.iter().filter(|at| **at != 0).count()
    }

    /// Whether it has several events, joined for certain.
    pub fn matched(&self) -> bool {
        !self.ambiguous && self.events() > 1
    }
}

/// All upcalls, and unjoined events.
#[derive(Default, Debug)]
pub struct Joined {
    /// In the order of their first events.
    pub traces: Vec<UpcallTrace>,
    /// Events in matched ways, by stage number.
    pub usable: [u64; Stage::ALL.len() + 1],
    /// Turns of handlers, by number of upcalls.
    pub turns: Vec<u64>,
}

/// A handler thread as the events show it.
#[derive(Default)]
struct Thread {
    /// Number of the turn; 0: not a handler.
    turn: u32,
    /// Upcalls of this turn without a batch size.
    received: usize,
    /// Whether the turn has begun to send.
    sending: bool,
    /// A put without id, packet and key, which belongs to the next execute.
    put: Option<u32>,
    /// Executes of this turn not yet reported by the datapath, and those joined by order.
    executes: VecDeque<u32>,
    by_order: Vec<u32>,
}

/// Sorts the events and joins them. Calls `progress` now and then with the number of joined events.
pub fn join(gathered: &mut Gathered, progress: &mut dyn FnMut(usize)) -> Joined {
    gathered.events.sort_by_key(|event| (event.time_ns, event.stage));
    let lossless =
        [Stage::ExecuteSent, Stage::Executed].iter().all(|stage| gathered.lost[*stage as usize] == 0);
    let mut joiner = Joiner {
        events: &gathered.events,
        packets: identical(
            &gathered.bytes,
            gathered.events.iter().map(|event| (event.packet, event.packet_bytes)),
            checksum,
        ),
        keys: identical(&gathered.bytes, gathered.events.iter().map(|event| (event.key, u32::MAX)), |_| None),
        by_order: lossless,
        handled_only: gathered.handled_only,
        traces: Vec::new(),
        by_id: RapidHashMap::new(),
        by_packet: RapidHashMap::new(),
        by_key: RapidHashMap::new(),
        threads: RapidHashMap::new(),
        batches: vec![0; 2],
        turns: vec![0; 2],
    };
    for index in 0..gathered.events.len() {
        joiner.event(index);
        if index % 8192 == 0 {
            progress(index);
        }
    }
    progress(gathered.events.len());
    joiner.finish()
}

/// For each index of bytes, the index that represents all equal ones. Packets truncated at different lengths
/// are compared by their common length. `used`: indices, and lengths before truncation; `but`: the excluded
/// range.
fn identical(
    bytes: &Bytes,
    used: impl Iterator<Item = (u32, u32)> + Clone,
    but: fn(&[u8]) -> Option<Range<usize>>,
) -> Vec<u32> {
    let cut = used
        .clone()
        .filter(|(number, _)| *number != NONE)
        .map(|(number, whole)| (bytes.get(number).len(), whole as usize))
        .filter(|(held, whole)| held < whole)
        .map(|(held, _)| held)
        .min();
    let mut same: Vec<u32> = vec![NONE; bytes.len()];
    let mut first: RapidHashMap<(&[u8], &[u8]), u32> = RapidHashMap::new();
    for (number, _) in used.filter(|(number, _)| *number != NONE) {
        if same[number as usize] == NONE {
            let held = bytes.get(number);
            let shown = &held[..held.len().min(cut.unwrap_or(usize::MAX))];
            let skipped = but(shown).unwrap_or(shown.len()..shown.len());
            let compared = (&shown[..skipped.start], &shown[skipped.end..]);
            same[number as usize] = *first.entry(compared).or_insert(number);
        }
    }
    same
}

struct Joiner<'a> {
    events: &'a [Kept],
    packets: Vec<u32>,
    keys: Vec<u32>,
    /// Whether order on a thread may join events without any other criterion.
    by_order: bool,
    handled_only: bool,
    traces: Vec<UpcallTrace>,
    by_id: RapidHashMap<u64, VecDeque<u32>>,
    by_packet: RapidHashMap<(u32, u32), VecDeque<u32>>,
    by_key: RapidHashMap<u32, VecDeque<u32>>,
    threads: RapidHashMap<u32, Thread>,
    /// Events with a batch size, by size.
    batches: Vec<u64>,
    turns: Vec<u64>,
}

/// Whether an event of `stage` may follow one of `furthest`. Stages reported by different threads may be out
/// of order.
fn may_follow(stage: Stage, furthest: Stage) -> bool {
    if furthest == Stage::Refused {
        return false;
    }
    match stage {
        Stage::Miss => furthest == Stage::Enqueued,
        Stage::Enqueued => furthest <= Stage::ExecuteSent,
        Stage::PutSent => furthest <= Stage::PutDone,
        Stage::ExecuteSent | Stage::PutDone => true,
        later => furthest < later,
    }
}

/// Present owner of an upcall: the queue, a handler, the datapath again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Waiting,
    Handled,
    Sent,
}

fn phase(furthest: Stage) -> Phase {
    match furthest {
        Stage::Miss | Stage::Enqueued | Stage::Refused => Phase::Waiting,
        Stage::Received | Stage::Translated => Phase::Handled,
        _ => Phase::Sent,
    }
}

fn count(counts: &mut Vec<u64>, size: usize) {
    if counts.len() <= size {
        counts.resize(size + 1, 0);
    }
    counts[size] += 1;
}

impl Joiner<'_> {
    fn event(&mut self, index: usize) {
        let event = self.events[index];
        if event.stage == Stage::Received {
            self.received(&event);
        }
        let handlers = (Stage::PutSent..=Stage::ExecuteSent).contains(&event.stage);
        if let Some(thread) = self.threads.get_mut(&event.thread).filter(|_| handlers) {
            thread.sending = true;
        }
        let bare = event.upcall == 0 && event.packet == NONE && event.key == NONE;
        let trace = if bare { self.place_by_order(&event, index) } else { Some(self.place(&event)) };
        if let Some(trace) = trace {
            self.put(trace, index);
        }
    }

    /// A handler receives an upcall: perhaps a new turn.
    fn received(&mut self, event: &Kept) {
        if event.batch != 0 {
            count(&mut self.batches, usize::from(event.batch));
        }
        let thread = self.threads.entry(event.thread).or_default();
        if thread.turn == 0 || thread.sending {
            end_turn(thread, &mut self.turns, &mut self.traces);
            thread.turn += 1;
        }
        thread.received += usize::from(event.batch == 0);
    }

    /// The upcall of an event; a new one if none matches.
    fn place(&mut self, event: &Kept) -> u32 {
        let (mut fitting, mut best): (Vec<u32>, Option<(bool, Phase)>) = (Vec::new(), None);
        for trace in self.identical(event) {
            let known = &self.traces[trace as usize];
            if !self.fits(event, known) {
                continue;
            }
            // The id decides; else, of several, the event belongs to the most advanced one.
            let rank = (event.upcall != 0 && known.id == event.upcall, phase(known.furthest));
            if best.is_none_or(|other| rank > other) {
                best = Some(rank);
                fitting.clear();
            }
            if Some(rank) == best {
                fitting.push(trace);
            }
        }
        match fitting.as_slice() {
            [] => {
                self.traces.push(UpcallTrace::new(event));
                self.traces.len() as u32 - 1
            }
            [trace] => *trace,
            several => {
                for trace in several {
                    self.traces[*trace as usize].ambiguous = true;
                }
                several[0]
            }
        }
    }

    /// The upcalls in flight that share id, packet or key with the event.
    fn identical(&self, event: &Kept) -> Vec<u32> {
        let mut found: Vec<u32> = Vec::new();
        if let Some(traces) = self.by_id.get(&event.upcall).filter(|_| event.upcall != 0) {
            found.extend(traces);
        }
        if event.packet != NONE {
            let packet = (self.packets[event.packet as usize], event.packet_bytes);
            found.extend(self.by_packet.get(&packet).into_iter().flatten());
        } else if event.upcall == 0 && event.key != NONE {
            found.extend(self.by_key.get(&self.keys[event.key as usize]).into_iter().flatten());
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    fn fits(&self, event: &Kept, trace: &UpcallTrace) -> bool {
        let both_ids = event.upcall != 0 && trace.id != 0;
        let window = if both_ids { WINDOW_BY_ID_NS } else { WINDOW_NS };
        if trace.at[event.stage as usize] != 0
            || !may_follow(event.stage, trace.furthest)
            || event.time_ns.saturating_sub(trace.last_ns) > window
            || both_ids && trace.id != event.upcall
            || event.port != NONE && trace.port != NONE && event.port != trace.port
        {
            return false;
        }
        if event.packet != NONE && trace.packet != NONE {
            let packet = (self.packets[event.packet as usize], event.packet_bytes);
            if packet != (self.packets[trace.packet as usize], trace.bytes) {
                return false;
            }
        }
        both_ids || self.same_turn(event, trace)
    }

    /// Events of a handler thread belong to upcalls received in the same turn.
    fn same_turn(&self, event: &Kept, trace: &UpcallTrace) -> bool {
        let Some(handler) = trace.event(Stage::Received).map(|received| self.events[received].thread) else {
            return true;
        };
        match self.threads.get(&event.thread).filter(|_| event.stage > Stage::Received) {
            Some(thread) => handler == event.thread && thread.turn == trace.turn,
            None => !matches!(event.stage, Stage::Translated | Stage::PutSent | Stage::ExecuteSent),
        }
    }

    /// The upcall of an event without id, packet and key.
    fn place_by_order(&mut self, event: &Kept, index: usize) -> Option<u32> {
        let thread = self.threads.get_mut(&event.thread)?;
        match event.stage {
            Stage::PutSent => {
                thread.put = Some(index as u32);
                None
            }
            Stage::Executed if self.by_order => {
                let trace = thread.executes.pop_front()?;
                thread.by_order.push(trace);
                Some(trace)
            }
            _ => None,
        }
    }

    /// Assigns the event to the upcall, and completes the upcall's id, packet and key.
    fn put(&mut self, number: u32, index: usize) {
        let event = self.events[index];
        let trace = &mut self.traces[number as usize];
        trace.at[event.stage as usize] = index as u32 + 1;
        trace.furthest = trace.furthest.max(event.stage);
        trace.last_ns = event.time_ns;
        if trace.port == NONE {
            trace.port = event.port;
        }
        if trace.id == 0 && event.upcall != 0 {
            trace.id = event.upcall;
            remember(self.by_id.entry(event.upcall).or_default(), number, &mut self.traces, event.time_ns);
        }
        let trace = &mut self.traces[number as usize];
        if trace.packet == NONE && event.packet != NONE {
            (trace.packet, trace.bytes) = (event.packet, event.packet_bytes);
            let packet = (self.packets[event.packet as usize], event.packet_bytes);
            remember(self.by_packet.entry(packet).or_default(), number, &mut self.traces, event.time_ns);
        }
        let trace = &mut self.traces[number as usize];
        if trace.key == NONE && event.key != NONE {
            trace.key = event.key;
            let key = self.keys[event.key as usize];
            remember(self.by_key.entry(key).or_default(), number, &mut self.traces, event.time_ns);
        }
        let Some(thread) = self.threads.get_mut(&event.thread) else { return };
        let trace = &mut self.traces[number as usize];
        match event.stage {
            Stage::Received => trace.turn = thread.turn,
            Stage::ExecuteSent => {
                if let Some(put) = thread.put.take().filter(|_| trace.at[Stage::PutSent as usize] == 0) {
                    trace.at[Stage::PutSent as usize] = put + 1;
                }
                if thread.executes.len() < EXECUTES_MAX {
                    thread.executes.push_back(number);
                }
            }
            Stage::Executed => thread.executes.retain(|trace| *trace != number),
            _ => {}
        }
    }

    fn finish(mut self) -> Joined {
        for thread in self.threads.values_mut() {
            end_turn(thread, &mut self.turns, &mut self.traces);
        }
        // Each upcall of a batch has the batch's size.
        for (size, events) in self.batches.iter().enumerate().skip(1).filter(|(_, events)| **events > 0) {
            if self.turns.len() <= size {
                self.turns.resize(size + 1, 0);
            }
            self.turns[size] += events.div_ceil(size as u64);
        }
        if self.handled_only {
            self.traces.retain(|trace| trace.event(Stage::Received).is_some());
        }
        let mut usable = [0; Stage::ALL.len() + 1];
        for trace in self.traces.iter().filter(|trace| trace.matched()) {
            for (stage, at) in trace.at.iter().enumerate() {
                usable[stage] += u64::from(*at != 0);
            }
        }
        Joined { traces: self.traces, usable, turns: self.turns }
    }
}

/// Ends a turn of a handler: joins by order are valid only if nothing is left over.
fn end_turn(thread: &mut Thread, turns: &mut Vec<u64>, traces: &mut [UpcallTrace]) {
    if thread.received > 0 {
        count(turns, thread.received);
    }
    if !thread.executes.is_empty() {
        for trace in thread.by_order.drain(..) {
            traces[trace as usize].at[Stage::Executed as usize] = 0;
        }
    }
    thread.by_order.clear();
    thread.executes.clear();
    (thread.received, thread.sending, thread.put) = (0, false, None);
}

/// Adds an upcall to those alike and removes old ones. Beyond the bound the oldest is removed; if it waits
/// for events that only packets can join, it becomes ambiguous.
fn remember(identical: &mut VecDeque<u32>, number: u32, traces: &mut [UpcallTrace], now_ns: u64) {
    while let Some(oldest) = identical.front().map(|trace| &mut traces[*trace as usize]) {
        let window = if oldest.id == 0 { WINDOW_NS } else { WINDOW_BY_ID_NS };
        if now_ns.saturating_sub(oldest.last_ns) <= window {
            if identical.len() < IDENTICAL_MAX {
                break;
            }
            oldest.ambiguous |= oldest.id == 0 && oldest.furthest < Stage::Refused;
        }
        identical.pop_front();
    }
    identical.push_back(number);
}
