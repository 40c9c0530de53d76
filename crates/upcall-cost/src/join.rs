//! The matching: which events belong to one upcall.
//!
//! Ids join exactly. Where a side does not know them (the kernel, a stock switch) packets are compared: bytes, length and port, but
//! for the checksum of the transport header, which may be left to the device while the packet is in the kernel;
//! where there is no packet, flow keys; and events without any of these are joined by their order on their thread, if nothing was
//! lost. What would fit several upcalls is never guessed: all of these are marked ambiguous and stay out of the statistics.

use std::collections::VecDeque;
use std::ops::Range;

use rapidhash::{HashMapExt, RapidHashMap};
use upcall_events::Stage;

use crate::gather::{Bytes, Gathered, Kept, NONE};
use crate::packet::checksum;

/// How long an upcall is waited for that is joined by its packet. The same packet later is another upcall.
pub const WINDOW_NS: u64 = 1_000_000_000;
/// How long where the id is known.
const WINDOW_BY_ID_NS: u64 = 60_000_000_000;
/// Most upcalls under way with the same packet; more are ambiguous.
const ALIKE_MAX: usize = 64;

/// Most executes of a turn whose order is kept.
const EXECUTES_MAX: usize = 256;

/// The way of one upcall: its events.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Way {
    /// By stage number: 1 + index of the event in [`Gathered::events`], or 0.
    at: [u32; Stage::ALL.len() + 1],
    /// Whether identical packets make it uncertain which events are its own.
    pub ambiguous: bool,
    /// The furthest stage.
    furthest: Stage,
    last_ns: u64,
    id: u64,
    packet: u32,
    key: u32,
    port: u32,
    bytes: u32,
    /// Turn of the handler that has it.
    turn: u32,
}

impl Way {
    fn new(event: &Kept) -> Self {
        Way {
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

    /// How many events it has.
    pub fn events(&self) -> usize {
        self.at.iter().filter(|at| **at != 0).count()
    }

    /// Whether its events were joined for certain, and there are several.
    pub fn matched(&self) -> bool {
        !self.ambiguous && self.events() > 1
    }
}

/// The ways of all upcalls, and what did not join.
#[derive(Default, Debug)]
pub struct Joined {
    /// In the order of their first events.
    pub ways: Vec<Way>,
    /// Events in matched ways, by stage number.
    pub usable: [u64; Stage::ALL.len() + 1],
    /// Turns of handlers, by how many upcalls they took.
    pub turns: Vec<u64>,
}

/// A handler thread as the events show it.
#[derive(Default)]
struct Thread {
    /// Counts the turns; 0: not a handler.
    turn: u32,
    /// Upcalls of this turn that say no batch.
    received: usize,
    /// Whether the turn has come to sending.
    sending: bool,
    /// A put without id, packet and key, which belongs to the next execute.
    put: Option<u32>,
    /// Executes of this turn that the datapath has not told yet, and those that were joined to it by order.
    executes: VecDeque<u32>,
    by_order: Vec<u32>,
}

/// Sorts the events and joins them. `progress` is told, now and then, how many are done.
pub fn join(gathered: &mut Gathered, progress: &mut dyn FnMut(usize)) -> Joined {
    gathered.events.sort_by_key(|event| (event.time_ns, event.stage));
    let lossless =
        [Stage::ExecuteSent, Stage::Executed].iter().all(|stage| gathered.lost[*stage as usize] == 0);
    let mut joiner = Joiner {
        events: &gathered.events,
        packets: alike(
            &gathered.bytes,
            gathered.events.iter().map(|event| (event.packet, event.packet_bytes)),
            checksum,
        ),
        keys: alike(&gathered.bytes, gathered.events.iter().map(|event| (event.key, u32::MAX)), |_| None),
        by_order: lossless,
        handled_only: gathered.handled_only,
        ways: Vec::new(),
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

/// For each number of bytes the number that stands for all that are alike. Packets that were cut at different lengths are
/// compared by what all have: the shortest cut. `used`: numbers, and lengths before cutting; `but`: what is not compared.
fn alike(
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
    /// Whether order on a thread may join what nothing else does.
    by_order: bool,
    handled_only: bool,
    ways: Vec<Way>,
    by_id: RapidHashMap<u64, VecDeque<u32>>,
    by_packet: RapidHashMap<(u32, u32), VecDeque<u32>>,
    by_key: RapidHashMap<u32, VecDeque<u32>>,
    threads: RapidHashMap<u32, Thread>,
    /// Events that say a batch, by its size.
    batches: Vec<u64>,
    turns: Vec<u64>,
}

/// Whether an event of `stage` may come after one of `furthest`. Stages that different threads tell may be told in another order
/// than they happened.
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

/// Who has an upcall: the queue, a handler, the datapath again.
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
        let way = if bare { self.place_by_order(&event, index) } else { Some(self.place(&event)) };
        if let Some(way) = way {
            self.put(way, index);
        }
    }

    /// A handler takes an upcall: perhaps a new turn.
    fn received(&mut self, event: &Kept) {
        if event.batch != 0 {
            count(&mut self.batches, usize::from(event.batch));
        }
        let thread = self.threads.entry(event.thread).or_default();
        if thread.turn == 0 || thread.sending {
            end_turn(thread, &mut self.turns, &mut self.ways);
            thread.turn += 1;
        }
        thread.received += usize::from(event.batch == 0);
    }

    /// The way that the event belongs to; a new one if there is none.
    fn place(&mut self, event: &Kept) -> u32 {
        let (mut fitting, mut best): (Vec<u32>, Option<(bool, Phase)>) = (Vec::new(), None);
        for way in self.alike(event) {
            let known = &self.ways[way as usize];
            if !self.fits(event, known) {
                continue;
            }
            // Its id says it; else, of several, the event belongs to what has come further.
            let rank = (event.upcall != 0 && known.id == event.upcall, phase(known.furthest));
            if best.is_none_or(|other| rank > other) {
                best = Some(rank);
                fitting.clear();
            }
            if Some(rank) == best {
                fitting.push(way);
            }
        }
        match fitting.as_slice() {
            [] => {
                self.ways.push(Way::new(event));
                self.ways.len() as u32 - 1
            }
            [way] => *way,
            several => {
                for way in several {
                    self.ways[*way as usize].ambiguous = true;
                }
                several[0]
            }
        }
    }

    /// The ways under way that share id, packet or key with the event.
    fn alike(&self, event: &Kept) -> Vec<u32> {
        let mut found: Vec<u32> = Vec::new();
        if let Some(ways) = self.by_id.get(&event.upcall).filter(|_| event.upcall != 0) {
            found.extend(ways);
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

    fn fits(&self, event: &Kept, way: &Way) -> bool {
        let both_ids = event.upcall != 0 && way.id != 0;
        let window = if both_ids { WINDOW_BY_ID_NS } else { WINDOW_NS };
        if way.at[event.stage as usize] != 0
            || !may_follow(event.stage, way.furthest)
            || event.time_ns.saturating_sub(way.last_ns) > window
            || both_ids && way.id != event.upcall
            || event.port != NONE && way.port != NONE && event.port != way.port
        {
            return false;
        }
        if event.packet != NONE && way.packet != NONE {
            let packet = (self.packets[event.packet as usize], event.packet_bytes);
            if packet != (self.packets[way.packet as usize], way.bytes) {
                return false;
            }
        }
        both_ids || self.same_turn(event, way)
    }

    /// What a handler thread tells belongs to upcalls that it has taken at this turn.
    fn same_turn(&self, event: &Kept, way: &Way) -> bool {
        let Some(handler) = way.event(Stage::Received).map(|received| self.events[received].thread) else {
            return true;
        };
        match self.threads.get(&event.thread).filter(|_| event.stage > Stage::Received) {
            Some(thread) => handler == event.thread && thread.turn == way.turn,
            None => !matches!(event.stage, Stage::Translated | Stage::PutSent | Stage::ExecuteSent),
        }
    }

    /// The place of an event that says nothing of its upcall.
    fn place_by_order(&mut self, event: &Kept, index: usize) -> Option<u32> {
        let thread = self.threads.get_mut(&event.thread)?;
        match event.stage {
            Stage::PutSent => {
                thread.put = Some(index as u32);
                None
            }
            Stage::Executed if self.by_order => {
                let way = thread.executes.pop_front()?;
                thread.by_order.push(way);
                Some(way)
            }
            _ => None,
        }
    }

    /// Gives the event to the way, and the way what the event knows of its upcall.
    fn put(&mut self, number: u32, index: usize) {
        let event = self.events[index];
        let way = &mut self.ways[number as usize];
        way.at[event.stage as usize] = index as u32 + 1;
        way.furthest = way.furthest.max(event.stage);
        way.last_ns = event.time_ns;
        if way.port == NONE {
            way.port = event.port;
        }
        if way.id == 0 && event.upcall != 0 {
            way.id = event.upcall;
            remember(self.by_id.entry(event.upcall).or_default(), number, &mut self.ways, event.time_ns);
        }
        let way = &mut self.ways[number as usize];
        if way.packet == NONE && event.packet != NONE {
            (way.packet, way.bytes) = (event.packet, event.packet_bytes);
            let packet = (self.packets[event.packet as usize], event.packet_bytes);
            remember(self.by_packet.entry(packet).or_default(), number, &mut self.ways, event.time_ns);
        }
        let way = &mut self.ways[number as usize];
        if way.key == NONE && event.key != NONE {
            way.key = event.key;
            let key = self.keys[event.key as usize];
            remember(self.by_key.entry(key).or_default(), number, &mut self.ways, event.time_ns);
        }
        let Some(thread) = self.threads.get_mut(&event.thread) else { return };
        let way = &mut self.ways[number as usize];
        match event.stage {
            Stage::Received => way.turn = thread.turn,
            Stage::ExecuteSent => {
                if let Some(put) = thread.put.take().filter(|_| way.at[Stage::PutSent as usize] == 0) {
                    way.at[Stage::PutSent as usize] = put + 1;
                }
                if thread.executes.len() < EXECUTES_MAX {
                    thread.executes.push_back(number);
                }
            }
            Stage::Executed => thread.executes.retain(|way| *way != number),
            _ => {}
        }
    }

    fn finish(mut self) -> Joined {
        for thread in self.threads.values_mut() {
            end_turn(thread, &mut self.turns, &mut self.ways);
        }
        // Each upcall of a batch says its size.
        for (size, events) in self.batches.iter().enumerate().skip(1).filter(|(_, events)| **events > 0) {
            if self.turns.len() <= size {
                self.turns.resize(size + 1, 0);
            }
            self.turns[size] += events.div_ceil(size as u64);
        }
        if self.handled_only {
            self.ways.retain(|way| way.event(Stage::Received).is_some());
        }
        let mut usable = [0; Stage::ALL.len() + 1];
        for way in self.ways.iter().filter(|way| way.matched()) {
            for (stage, at) in way.at.iter().enumerate() {
                usable[stage] += u64::from(*at != 0);
            }
        }
        Joined { ways: self.ways, usable, turns: self.turns }
    }
}

/// Ends a turn of a handler: what was joined by order holds only if nothing is left over.
fn end_turn(thread: &mut Thread, turns: &mut Vec<u64>, ways: &mut [Way]) {
    if thread.received > 0 {
        count(turns, thread.received);
    }
    if !thread.executes.is_empty() {
        for way in thread.by_order.drain(..) {
            ways[way as usize].at[Stage::Executed as usize] = 0;
        }
    }
    thread.by_order.clear();
    thread.executes.clear();
    (thread.received, thread.sending, thread.put) = (0, false, None);
}

/// Adds a way to those that are alike; old ones go. Beyond the bound the oldest goes; if it waits for events that only packets can
/// join, it is uncertain from now on.
fn remember(alike: &mut VecDeque<u32>, number: u32, ways: &mut [Way], now_ns: u64) {
    while let Some(oldest) = alike.front().map(|way| &mut ways[*way as usize]) {
        let window = if oldest.id == 0 { WINDOW_NS } else { WINDOW_BY_ID_NS };
        if now_ns.saturating_sub(oldest.last_ns) <= window {
            if alike.len() < ALIKE_MAX {
                break;
            }
            oldest.ambiguous |= oldest.id == 0 && oldest.furthest < Stage::Refused;
        }
        alike.pop_front();
    }
    alike.push_back(number);
}
