//! [`Scheduler`]: a hierarchical token bucket of two levels, the port and its queues, in virtual time.
//!
//! It serves a port where the kernel lacks the discipline, by the rules of the kernel's `htb`:
//!
//! - A queue within its least rate sends first. Beyond it, a queue borrows from the port's rate, up to its own most rate.
//! - Among queues of either kind the lowest priority number goes first. Equal ones take turns by deficit round robin,
//!   with quanta in proportion to their least rates.
//! - An idle queue saves tokens for its burst. A queue that has packets saves tokens for [`LAG_MAX_US`], so that a late
//!   call of [`Scheduler::pop`] costs it no rate.
//! - A queue is a bounded first-in first-out list. [`Scheduler::push`] refuses packets beyond the bounds.
//!
//! Choosing a packet costs a look at each queue that has packets.

use std::collections::{BTreeMap, VecDeque};

use super::{Class, Discipline, LinkFacts, Qos, Queue, QueueStats, ShownQos};

/// Most packets that wait in a queue: `txqueuelen` of an Ethernet device.
pub const QUEUE_PACKETS_MAX: usize = 1000;
/// Most bytes of memory that wait in a queue.
pub const QUEUE_MEMORY_MAX: usize = 4 << 20;
/// Most time for which a queue with packets saves tokens.
pub const LAG_MAX_US: u64 = 10_000;
/// Tokens are picoseconds of a rate.
const PS_PER_SECOND: u64 = 1_000_000_000_000;
const PS_PER_US: i64 = 1_000_000;
/// Most tokens: a minute, as in the kernel.
const TOKENS_MAX: i64 = 60 * PS_PER_SECOND as i64;

/// Cost of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    /// Frames on the wire.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of memory.
    pub memory: usize,
}

/// The next packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next<T> {
    /// Send it now.
    Send(T),
    /// None may be sent before that time, in microseconds.
    Wait(u64),
    /// No packet waits.
    Empty,
}

/// Tokens of a rate.
#[derive(Clone, Copy)]
struct Tokens {
    /// Bytes a second.
    rate: u64,
    /// Most tokens of an idle queue.
    most: i64,
    now: i64,
}

impl Tokens {
    fn new(rate: u64, burst: u64) -> Tokens {
        let mut tokens = Tokens { rate: rate.max(1), most: 0, now: 0 };
        tokens.most = tokens.time_of(burst).min(TOKENS_MAX);
        tokens.now = tokens.most;
        tokens
    }

    fn time_of(&self, bytes: u64) -> i64 {
        let ps = u128::from(bytes) * u128::from(PS_PER_SECOND) / u128::from(self.rate);
        i64::try_from(ps).unwrap_or(i64::MAX)
    }

    fn fill(&mut self, passed_us: u64, has_packets: bool) {
        let lag = if has_packets { LAG_MAX_US as i64 * PS_PER_US } else { 0 };
        let passed = i64::try_from(passed_us).unwrap_or(i64::MAX).saturating_mul(PS_PER_US);
        self.now = self.now.saturating_add(passed).min(self.most.max(lag));
    }

    fn take(&mut self, bytes: u64) {
        self.now = self.now.saturating_sub(self.time_of(bytes)).max(-TOKENS_MAX);
    }

    /// Time until it has some, in picoseconds.
    fn wait(&self) -> i64 {
        (-self.now).max(0)
    }
}

/// A queue and its packets.
struct ClassQueue<T> {
    number: u32,
    class: Class,
    own: Tokens,
    most: Tokens,
    filled_us: u64,
    packets: VecDeque<(Load, T)>,
    memory: usize,
    quantum: i64,
    /// Bytes left of a turn: within the least rate, and beyond it.
    left: [i64; 2],
    stats: QueueStats,
    created_us: u64,
}

impl<T> ClassQueue<T> {
    fn new(number: u32, class: Class, link: LinkFacts, now_us: u64) -> ClassQueue<T> {
        let mut queue = ClassQueue {
            number,
            class,
            own: Tokens::new(1, 0),
            most: Tokens::new(1, 0),
            filled_us: now_us,
            packets: VecDeque::new(),
            memory: 0,
            quantum: 0,
            left: [0; 2],
            stats: QueueStats { queue: number, ..QueueStats::default() },
            created_us: now_us,
        };
        queue.set(class, link);
        queue
    }

    fn set(&mut self, class: Class, link: LinkFacts) {
        self.class = class;
        self.own = Tokens::new(class.min_rate, class.burst);
        self.most = Tokens::new(class.max_rate, class.burst);
        self.quantum = class.quantum(link) as i64;
        self.left = [0; 2];
    }

    fn fill(&mut self, now_us: u64) {
        let passed_us = now_us.saturating_sub(self.filled_us);
        let has_packets = !self.packets.is_empty();
        self.own.fill(passed_us, has_packets);
        self.most.fill(passed_us, has_packets);
        self.filled_us = now_us.max(self.filled_us);
    }
}

/// See the module documentation.
pub struct Scheduler<T> {
    discipline: Discipline,
    root: Tokens,
    root_filled_us: u64,
    /// In order of their numbers; queue 0 exists.
    queues: Vec<ClassQueue<T>>,
    /// Places of queues with packets, in order of their turns within the least rate, and of those beyond it.
    active: [VecDeque<usize>; 2],
    memory: usize,
}

/// The classes of all queues.
fn classes_of(qos: &Qos, link: LinkFacts) -> BTreeMap<u32, Class> {
    let zero = Queue::default();
    let default = (!qos.queues.contains_key(&0)).then_some((&0, &zero));
    let all = qos.queues.iter().chain(default);
    all.filter_map(|(number, queue)| Some((*number, qos.discipline.class(queue, link)?))).collect()
}

impl<T> Scheduler<T> {
    /// The scheduler of a port; `None`: its discipline is neither `linux-htb` nor `linux-hfsc`.
    pub fn new(qos: &Qos, link: LinkFacts, now_us: u64) -> Option<Scheduler<T>> {
        let root = qos.discipline.root(link)?;
        let classes = classes_of(qos, link);
        Some(Scheduler {
            discipline: qos.discipline,
            root: Tokens::new(root.max_rate, link.mtu.into()),
            root_filled_us: now_us,
            queues: classes.into_iter().map(|(n, class)| ClassQueue::new(n, class, link, now_us)).collect(),
            active: Default::default(),
            memory: 0,
        })
    }

    /// Changes rates and queues. Queues that stay keep their packets and counters; returns the packets of the others.
    pub fn set(&mut self, qos: &Qos, link: LinkFacts, now_us: u64) -> Vec<T> {
        let Some(root) = qos.discipline.root(link) else { return self.drain() };
        self.discipline = qos.discipline;
        self.root = Tokens::new(root.max_rate, link.mtu.into());
        self.root_filled_us = now_us;
        let mut known: BTreeMap<u32, ClassQueue<T>> =
            std::mem::take(&mut self.queues).into_iter().map(|queue| (queue.number, queue)).collect();
        for (number, class) in classes_of(qos, link) {
            let queue = match known.remove(&number) {
                Some(mut queue) => {
                    if queue.class != class {
                        queue.set(class, link);
                        queue.filled_us = now_us;
                    }
                    queue
                }
                None => ClassQueue::new(number, class, link, now_us),
            };
            self.queues.push(queue);
        }
        let has_packets = |place: &usize| !self.queues[*place].packets.is_empty();
        let active: VecDeque<usize> = (0..self.queues.len()).filter(has_packets).collect();
        self.active = [active.clone(), active];
        let gone = known.into_values().flat_map(|queue| queue.packets);
        let (loads, packets): (Vec<Load>, Vec<T>) = gone.unzip();
        self.memory -= loads.iter().map(|load| load.memory).sum::<usize>();
        packets
    }

    /// Bytes of memory of waiting packets.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// Adds a packet to a queue; one of an unknown queue to queue 0.
    ///
    /// # Errors
    /// The packet: its queue is full.
    pub fn push(&mut self, queue: u32, load: Load, packet: T, now_us: u64) -> Result<(), T> {
        let place = self.queues.binary_search_by_key(&queue, |queue| queue.number).unwrap_or(0);
        let Some(queue) = self.queues.get_mut(place) else { return Err(packet) };
        let full = queue.packets.len() >= QUEUE_PACKETS_MAX || queue.memory + load.memory > QUEUE_MEMORY_MAX;
        if full {
            queue.stats.tx_errors += load.packets;
            return Err(packet);
        }
        if queue.packets.is_empty() {
            queue.fill(now_us);
            if self.active[0].is_empty() {
                let passed_us = now_us.saturating_sub(self.root_filled_us);
                self.root.fill(passed_us, false);
                self.root_filled_us = now_us.max(self.root_filled_us);
            }
            self.active.iter_mut().for_each(|turns| turns.push_back(place));
        }
        queue.memory += load.memory;
        self.memory += load.memory;
        queue.packets.push_back((load, packet));
        Ok(())
    }

    /// The next packet at that time.
    pub fn pop(&mut self, now_us: u64) -> Next<T> {
        if self.active[0].is_empty() {
            return Next::Empty;
        }
        if now_us > self.root_filled_us {
            self.root.fill(now_us - self.root_filled_us, true);
            self.root_filled_us = now_us;
            self.active[0].iter().for_each(|place| self.queues[*place].fill(now_us));
        }
        let Some((place, borrows)) = self.choose() else {
            return Next::Wait(now_us.saturating_add(self.wait_us()));
        };
        let queue = &mut self.queues[place];
        let Some((load, packet)) = queue.packets.pop_front() else { return Next::Empty };
        queue.memory -= load.memory;
        self.memory -= load.memory;
        self.root.take(load.bytes);
        queue.most.take(load.bytes);
        if !borrows {
            queue.own.take(load.bytes);
        }
        queue.left[usize::from(borrows)] -= load.bytes as i64;
        queue.stats.tx_packets += load.packets;
        queue.stats.tx_bytes += load.bytes;
        if queue.packets.is_empty() {
            // An idle queue saves no more than its burst, and no part of a turn.
            (queue.own.now, queue.most.now) =
                (queue.own.now.min(queue.own.most), queue.most.now.min(queue.most.most));
            queue.left = [0; 2];
            self.active.iter_mut().for_each(|turns| turns.retain(|other| *other != place));
        }
        if self.active[0].is_empty() {
            self.root.now = self.root.now.min(self.root.most);
        }
        Next::Send(packet)
    }

    /// The queue that sends, and whether it borrows. Gives queues their turns.
    fn choose(&mut self) -> Option<(usize, bool)> {
        let root_has = self.root.now >= 0;
        let kind = |queue: &ClassQueue<T>| {
            let borrows = queue.own.now < 0;
            (queue.most.now >= 0 && (root_has || !borrows)).then_some((borrows, queue.class.priority))
        };
        let best = self.active[0].iter().filter_map(|place| kind(&self.queues[*place])).min()?;
        let (borrows, _) = best;
        let turns = &mut self.active[usize::from(borrows)];
        // Each round adds a quantum to each candidate: the loop ends after the quanta of one packet.
        loop {
            for at in 0..turns.len() {
                let place = turns[at];
                let queue = &mut self.queues[place];
                if kind(queue) != Some(best) {
                    continue;
                }
                if queue.left[usize::from(borrows)] > 0 {
                    // A turn goes on until it is used up.
                    return Some((place, borrows));
                }
                queue.left[usize::from(borrows)] += queue.quantum;
                turns.remove(at);
                turns.push_back(place);
                break;
            }
        }
    }

    /// Microseconds until a queue may send, at least one.
    fn wait_us(&self) -> u64 {
        let root = self.root.wait();
        let waits = self.active[0].iter().map(|place| {
            let queue = &self.queues[*place];
            queue.most.wait().max(queue.own.wait().min(root))
        });
        let ps = waits.min().unwrap_or(0);
        (ps / PS_PER_US) as u64 + 1
    }

    /// Takes all packets out.
    pub fn drain(&mut self) -> Vec<T> {
        self.active.iter_mut().for_each(VecDeque::clear);
        self.memory = 0;
        let mut all = Vec::new();
        for queue in &mut self.queues {
            queue.memory = 0;
            all.extend(queue.packets.drain(..).map(|(_, packet)| packet));
        }
        all
    }

    /// Its queues, in order of their numbers.
    pub fn queues(&self, now_us: u64) -> Vec<QueueStats> {
        let age_ms = |q: &ClassQueue<T>| Some(now_us.saturating_sub(q.created_us) / 1000);
        self.queues.iter().map(|q| QueueStats { age_ms: age_ms(q), ..q.stats }).collect()
    }

    /// Settings and counters for `qos/show`.
    pub fn shown(&self) -> ShownQos {
        let queues = self.queues.iter().map(|queue| (queue.class.settings(&self.discipline), queue.stats));
        let max_rate = self.root.rate.saturating_mul(8).to_string();
        ShownQos {
            discipline: Some(self.discipline.name().to_string()),
            settings: vec![("max-rate", max_rate)],
            queues: queues.collect(),
        }
    }
}
