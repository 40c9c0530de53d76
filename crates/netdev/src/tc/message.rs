//! Messages about disciplines and classes: `struct tcmsg`, options of each kind, counters.
//!
//! Times are in ticks of 64 ns, the unit of all kernels since 2.6.31 (`/proc/net/psched`).

use dpif::qos::{Class, Discipline, LinkFacts, QueueStats};

use crate::link::wire::{Request, attributes, c_string, field, text};

/// `struct tcmsg`.
const HEADER_BYTES: usize = 20;
const TICKS_PER_SECOND: u64 = 15_625_000;
/// The default class: that of queue 0.
const DEFAULT_CLASS: u16 = 1;
/// The smallest frame.
const FRAME_MIN_BYTES: u16 = 60;
/// Ethernet header with a tag.
const TAGGED_HEADER_BYTES: u32 = 18;
/// `TC_LINKLAYER_ETHERNET`.
const LINKLAYER_ETHERNET: u8 = 1;

/// Numbers of attributes.
mod attribute {
    pub(super) const KIND: u16 = 1;
    pub(super) const OPTIONS: u16 = 2;
    pub(super) const STATS2: u16 = 7;
    /// Within STATS2.
    pub(super) const STATS_BASIC: u16 = 1;
    pub(super) const STATS_QUEUE: u16 = 3;
    pub(super) const STATS_PACKETS64: u16 = 8;
    /// Parts of `htb`.
    pub(super) const HTB_PARAMETERS: u16 = 1;
    pub(super) const HTB_INIT: u16 = 2;
    pub(super) const HTB_RATE64: u16 = 6;
    pub(super) const HTB_CEIL64: u16 = 7;
    /// Curves of `hfsc`: real-time, fair share, upper limit.
    pub(super) const HFSC: [u16; 3] = [1, 2, 3];
    /// Parts of `codel`: target, limit, interval.
    pub(super) const CODEL: [u16; 3] = [1, 2, 3];
    /// Parts of `fq_codel`: target, limit, interval, flows, quantum.
    pub(super) const FQ_CODEL: [u16; 5] = [1, 2, 3, 5, 6];
}

/// A `struct tcmsg`.
pub(super) fn header(ifindex: u32, handle: u32, parent: u32, info: u32) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    for (at, value) in [(4, ifindex), (8, handle), (12, parent), (16, info)] {
        header[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }
    header
}

/// Appends an attribute to nested ones.
pub(super) fn put(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    out.extend(((value.len() + 4) as u16).to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

pub(super) fn add_kind(request: &mut Request, kind: &str) {
    request.add(attribute::KIND, &c_string(kind));
}

pub(super) fn add_options(request: &mut Request, options: &[u8]) {
    request.add(attribute::OPTIONS, options);
}

/// Time that a class of htb makes up for after a late timer of the kernel, by default: 200 us. At 5 Gb/s, a burst of one
/// packet covers 2 us, and 8 to 17 % of the rate are lost.
const TIMER_LAG_TICKS: u32 = 200_000 / 64;

/// Ticks for some bytes at a rate in bytes a second.
pub(super) fn ticks(bytes: u64, rate: u64) -> u32 {
    let all = u128::from(bytes) * u128::from(TICKS_PER_SECOND);
    all.checked_div(rate.into()).map_or(0, |n| u32::try_from(n).unwrap_or(u32::MAX))
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// A `struct tc_ratespec`: packets of the device's MTU, Ethernet.
pub(super) fn rate_spec(rate: u64, mtu: u32) -> [u8; 12] {
    let longest = if mtu == 0 { 1500 } else { mtu } + TAGGED_HEADER_BYTES;
    // Bits to leave out, so that a length has eight.
    let cell_log = longest.ilog2().saturating_sub(7) as u8;
    let mut spec = [0; 12];
    (spec[0], spec[1]) = (cell_log, LINKLAYER_ETHERNET);
    spec[6..8].copy_from_slice(&FRAME_MIN_BYTES.to_ne_bytes());
    spec[8..].copy_from_slice(&u32::try_from(rate).unwrap_or(u32::MAX).to_ne_bytes());
    spec
}

/// Options of the root of a discipline with queues.
pub(super) fn add_root_options(request: &mut Request, discipline: &Discipline) {
    if matches!(discipline, Discipline::Hfsc { .. }) {
        return add_options(request, &DEFAULT_CLASS.to_ne_bytes());
    }
    let mut options = Vec::new();
    // `struct tc_htb_glob`: version, divisor of quanta, default class.
    put(&mut options, attribute::HTB_INIT, &words(&[3, 10, DEFAULT_CLASS.into(), 0, 0]));
    add_options(request, &options);
}

/// Options of a discipline without queues.
pub(super) fn add_classless_options(request: &mut Request, discipline: &Discipline, link: LinkFacts) {
    let numbered = |kinds: &[u16], values: &[u32]| {
        let mut options = Vec::new();
        kinds.iter().zip(values).for_each(|(kind, value)| put(&mut options, *kind, &value.to_ne_bytes()));
        options
    };
    let options = match *discipline {
        Discipline::Sfq { quantum, perturb } => {
            // `struct tc_sfq_qopt`: turn, seconds, and limits that the kernel chooses.
            words(&[if quantum == 0 { link.mtu } else { quantum }, perturb, 0, 0, 0])
        }
        Discipline::Codel { target, limit, interval } => {
            numbered(&attribute::CODEL, &[target, limit, interval])
        }
        Discipline::FqCodel { target, limit, interval, flows, quantum } => {
            numbered(&attribute::FQ_CODEL, &[target, limit, interval, flows, quantum])
        }
        Discipline::Netem { latency, limit, loss, jitter } => {
            let delay = |us: u32| ticks(us.into(), 1_000_000);
            let lost = u64::from(u32::MAX) * u64::from(loss.min(100)) / 100;
            // `struct tc_netem_qopt`: delay, limit, loss, gap, duplication, variation.
            words(&[delay(latency), limit, lost as u32, 0, 0, delay(jitter)])
        }
        _ => Vec::new(),
    };
    add_options(request, &options);
}

/// Options of a class.
pub(super) fn add_class_options(
    request: &mut Request,
    discipline: &Discipline,
    class: &Class,
    link: LinkFacts,
) {
    let Class { min_rate, max_rate, burst, priority } = *class;
    let mut options = Vec::new();
    if matches!(discipline, Discipline::Hfsc { .. }) {
        let rate = |rate: u64| u32::try_from(rate).unwrap_or(u32::MAX);
        for (kind, rate) in attribute::HFSC.into_iter().zip([min_rate, min_rate, max_rate].map(rate)) {
            put(&mut options, kind, &words(&[0, 0, rate]));
        }
        return add_options(request, &options);
    }
    for (kind, rate) in [(attribute::HTB_RATE64, min_rate), (attribute::HTB_CEIL64, max_rate)] {
        if rate > u64::from(u32::MAX) {
            put(&mut options, kind, &rate.to_ne_bytes());
        }
    }
    // `struct tc_htb_opt`: rates, time of the burst at each, quantum, level (of the kernel), priority.
    let burst = burst.max(link.mtu.into());
    let least = if class.has_default_burst(link) { TIMER_LAG_TICKS } else { 0 };
    let mut parameters = [rate_spec(min_rate, link.mtu), rate_spec(max_rate, link.mtu)].concat();
    let times = [min_rate, max_rate].map(|rate| ticks(burst, rate).max(least));
    parameters.extend(words(&[times[0], times[1], class.quantum(link) as u32, 0, priority]));
    put(&mut options, attribute::HTB_PARAMETERS, &parameters);
    add_options(request, &options);
}

/// A message about a discipline or class.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TcMessage {
    pub(super) ifindex: u32,
    pub(super) handle: u32,
    pub(super) kind: String,
    options: Vec<u8>,
    stats: QueueStats,
}

/// A class of a device.
pub(super) struct KnownClass {
    pub(super) handle: u32,
    pub(super) class: Class,
    /// Its counters, without a queue's number.
    pub(super) stats: QueueStats,
}

impl TcMessage {
    /// The message of a body; `None`: it is too short.
    pub(super) fn parse(body: &[u8]) -> Option<TcMessage> {
        let word = |at| field(body, at).map(u32::from_ne_bytes);
        let mut m = TcMessage { ifindex: word(4)?, handle: word(8)?, ..TcMessage::default() };
        for (kind, value) in attributes(body.get(HEADER_BYTES..)?) {
            match kind {
                attribute::KIND => m.kind = text(value),
                attribute::OPTIONS => m.options = value.to_vec(),
                attribute::STATS2 => m.stats = stats_of(value),
                _ => {}
            }
        }
        Some(m)
    }

    /// The class that it describes; zeros for what it lacks.
    pub(super) fn class(&self, discipline: &Discipline) -> KnownClass {
        let class = match discipline {
            Discipline::Hfsc { .. } => hfsc_class(&self.options),
            _ => htb_class(&self.options),
        };
        KnownClass { handle: self.handle, class, stats: self.stats }
    }
}

fn stats_of(nested: &[u8]) -> QueueStats {
    let mut stats = QueueStats::default();
    let mut packets64 = None;
    for (kind, value) in attributes(nested) {
        let word = |at| field(value, at).map(u32::from_ne_bytes).unwrap_or(0).into();
        let long = |at| field(value, at).map(u64::from_ne_bytes).unwrap_or(0);
        match kind {
            attribute::STATS_BASIC => (stats.tx_bytes, stats.tx_packets) = (long(0), word(8)),
            attribute::STATS_QUEUE => stats.tx_errors = word(8),
            attribute::STATS_PACKETS64 => packets64 = Some(long(0)),
            _ => {}
        }
    }
    stats.tx_packets = packets64.unwrap_or(stats.tx_packets);
    stats
}

fn htb_class(options: &[u8]) -> Class {
    let mut class = Class::default();
    let (mut long_rates, mut buffer) = ([None; 2], 0);
    for (kind, value) in attributes(options) {
        let word = |at| field(value, at).map(u32::from_ne_bytes).unwrap_or(0);
        let long = || field(value, 0).map(u64::from_ne_bytes);
        match kind {
            attribute::HTB_PARAMETERS => {
                (class.min_rate, class.max_rate) = (word(8).into(), word(20).into());
                (buffer, class.priority) = (word(24), word(40));
            }
            attribute::HTB_RATE64 => long_rates[0] = long(),
            attribute::HTB_CEIL64 => long_rates[1] = long(),
            _ => {}
        }
    }
    class.min_rate = long_rates[0].unwrap_or(class.min_rate);
    class.max_rate = long_rates[1].unwrap_or(class.max_rate);
    // Rounded up, as the way to ticks rounds down.
    let bytes = (u128::from(buffer) * u128::from(class.min_rate)).div_ceil(TICKS_PER_SECOND.into());
    class.burst = u64::try_from(bytes).unwrap_or(u64::MAX);
    class
}

fn hfsc_class(options: &[u8]) -> Class {
    let mut class = Class::default();
    let [_, fair, upper] = attribute::HFSC;
    for (kind, value) in attributes(options) {
        // `struct tc_service_curve`: the second slope.
        let rate = field(value, 8).map(u32::from_ne_bytes).unwrap_or(0).into();
        match kind {
            _ if kind == fair => class.min_rate = rate,
            _ if kind == upper => class.max_rate = rate,
            _ => {}
        }
    }
    class
}
