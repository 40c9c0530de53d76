//! Quality of service of a port: queueing disciplines, queues, and policing of what a port receives.
//!
//! The configuration parses rows into [`Qos`] and [`Policing`]; a datapath carries them out. Numbers that depend on
//! the device (its speed, its MTU) are resolved here, so that they are tested without a device.

use std::collections::BTreeMap;

mod egress;
mod scheduler;
#[cfg(test)]
mod tests;

pub use egress::EgressPolicer;
pub use scheduler::{LAG_MAX_US, Load, Next, QUEUE_MEMORY_MAX, QUEUE_PACKETS_MAX, Scheduler};

/// Queues that a discipline with classes may have.
pub const QUEUES_MAX: u32 = 0xf000;
/// Rate of a device of unknown speed, bits a second.
pub const DEFAULT_LINK_BPS: u64 = 100_000_000;
/// Bytes beyond the MTU that a burst admits at least.
const BURST_SPARE_BYTES: u64 = 64;

/// The names of all disciplines, in the order of `qos/show-types`: those of a device of the kernel, then policers.
const ALL_TYPES: [&str; 9] = [
    "linux-netem",
    "linux-fq_codel",
    "linux-codel",
    "linux-hfsc",
    "linux-noop",
    "linux-sfq",
    "linux-htb",
    "egress-policer",
    "trtcm-policer",
];

/// The names of disciplines of a port that has a device of the kernel, and whose packets the switch sends itself.
pub fn all_types() -> &'static [&'static str] {
    &ALL_TYPES
}

/// The names of disciplines of a device of the kernel.
pub fn kernel_types() -> &'static [&'static str] {
    &ALL_TYPES[..7]
}

/// The names of policers of what a port sends.
pub fn policer_types() -> &'static [&'static str] {
    &ALL_TYPES[7..]
}

/// Quality of service of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Qos {
    /// Its discipline.
    pub discipline: Discipline,
    /// Its queues, by number; queue 0 also exists without an entry.
    pub queues: BTreeMap<u32, Queue>,
}

impl Qos {
    /// DSCP that packets of a queue get, by queue.
    pub fn dscp(&self) -> BTreeMap<u32, u8> {
        self.queues.iter().filter_map(|(queue, settings)| Some((*queue, settings.dscp?))).collect()
    }
}

/// A queueing discipline with its settings. Zero stands for an absent setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Discipline {
    /// Hierarchical token bucket.
    Htb {
        /// Bits a second of all queues; 0: those of the link.
        max_rate: u64,
    },
    /// Hierarchical fair service curve.
    Hfsc {
        /// Bits a second of all queues; 0: those of the link.
        max_rate: u64,
    },
    /// Stochastic fairness queueing.
    Sfq {
        /// Bytes of a turn; 0: the MTU.
        quantum: u32,
        /// Seconds between two changes of the hash.
        perturb: u32,
    },
    /// Controlled delay.
    Codel {
        /// Acceptable delay, microseconds.
        target: u32,
        /// Packets that wait.
        limit: u32,
        /// Microseconds of a measurement.
        interval: u32,
    },
    /// Controlled delay by flow.
    FqCodel {
        /// Acceptable delay, microseconds.
        target: u32,
        /// Packets that wait.
        limit: u32,
        /// Microseconds of a measurement.
        interval: u32,
        /// Number of flows.
        flows: u32,
        /// Bytes of a turn.
        quantum: u32,
    },
    /// Emulation of a network.
    Netem {
        /// Delay, microseconds.
        latency: u32,
        /// Packets that wait.
        limit: u32,
        /// Percent lost.
        loss: u32,
        /// Variation of the delay, microseconds.
        jitter: u32,
    },
    /// The discipline of the device is left as it is.
    Noop,
    /// A policer of one rate.
    EgressPolicer {
        /// Bytes a second.
        cir: u64,
        /// Bytes of a burst.
        cbs: u64,
    },
    /// A policer of two rates, with queues (RFC 4115).
    Trtcm(Rates),
}

/// Rates of a marker with two rates (RFC 4115): bytes a second, and bytes of bursts, without Ethernet headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rates {
    /// Committed rate.
    pub cir: u64,
    /// Committed burst.
    pub cbs: u64,
    /// Excess rate.
    pub eir: u64,
    /// Excess burst.
    pub ebs: u64,
}

impl Rates {
    /// The rates of settings by key.
    pub fn parse(mut setting: impl FnMut(&str) -> u64) -> Rates {
        Rates { cir: setting("cir"), cbs: setting("cbs"), eir: setting("eir"), ebs: setting("ebs") }
    }
}

/// Settings of a queue; zero stands for an absent one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Queue {
    /// Least bits a second.
    pub min_rate: u64,
    /// Most bits a second.
    pub max_rate: u64,
    /// Most bits at once beyond the rate.
    pub burst: u64,
    /// Lower numbers go first.
    pub priority: u32,
    /// DSCP of its packets.
    pub dscp: Option<u8>,
    /// Rates of a queue of `trtcm-policer`.
    pub rates: Rates,
}

/// A class of a discipline, as a device has it: bytes, and bytes a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Class {
    /// Least rate.
    pub min_rate: u64,
    /// Most rate.
    pub max_rate: u64,
    /// Burst.
    pub burst: u64,
    /// Lower numbers go first.
    pub priority: u32,
}

/// Most bytes of a turn, and the part of a second's least rate that is one, as in the kernel.
const QUANTUM_MAX_BYTES: u64 = 200_000;
const RATE_TO_QUANTUM: u64 = 10;

impl Class {
    /// Bytes that it sends in a turn: as stock switches choose them, at least the MTU.
    pub fn quantum(&self, link: LinkFacts) -> u64 {
        let most = QUANTUM_MAX_BYTES.max(link.mtu.into());
        (self.min_rate / RATE_TO_QUANTUM).clamp(link.mtu.max(1).into(), most)
    }

    /// Whether no setting gives it a longer burst than one packet.
    pub fn has_default_burst(&self, link: LinkFacts) -> bool {
        self.burst <= u64::from(link.mtu) + BURST_SPARE_BYTES
    }

    /// The settings of a queue for `qos/show`.
    pub fn settings(&self, discipline: &Discipline) -> Vec<(&'static str, String)> {
        let Class { min_rate, max_rate, burst, priority } = *self;
        let bits = |rate: u64| rate.saturating_mul(8).to_string();
        let mut settings = Vec::new();
        if matches!(discipline, Discipline::Htb { .. }) {
            settings.push(("burst", bits(burst)));
            settings.extend((priority != 0).then(|| ("priority", priority.to_string())));
        }
        settings.push(("min-rate", bits(min_rate)));
        settings.extend((min_rate != max_rate).then(|| ("max-rate", bits(max_rate))));
        settings
    }
}

/// Facts about a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkFacts {
    /// Its MTU.
    pub mtu: u32,
    /// Its speed in bits a second, 0 unknown.
    pub speed_bps: u64,
}

/// A queue of a port, as it is. Unsupported counters are `u64::MAX`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueStats {
    /// Its number.
    pub queue: u32,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets dropped.
    pub tx_errors: u64,
    /// Its age in milliseconds; `None`: unknown.
    pub age_ms: Option<u64>,
}

impl QueueStats {
    /// The only queue of a device without a discipline and without counters.
    pub const UNKNOWN: QueueStats =
        QueueStats { queue: 0, tx_packets: u64::MAX, tx_bytes: u64::MAX, tx_errors: u64::MAX, age_ms: None };
}

/// Quality of service of a port as it is, for `qos/show`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ShownQos {
    /// The name of the discipline; `None`: the system's own.
    pub discipline: Option<String>,
    /// Its settings.
    pub settings: Vec<(&'static str, String)>,
    /// Queues with settings and counters.
    pub queues: Vec<(Vec<(&'static str, String)>, QueueStats)>,
}

impl ShownQos {
    /// The text of `qos/show`.
    pub fn text(&self, interface: &str) -> String {
        let Some(discipline) = &self.discipline else {
            return format!("QoS not configured on {interface}\n");
        };
        let mut text = format!("QoS: {interface} {discipline}\n");
        for (key, value) in &self.settings {
            text += &format!("{key}: {value}\n");
        }
        for (settings, stats) in &self.queues {
            text += &match stats.queue {
                0 => "\nDefault:\n".to_string(),
                n => format!("\nQueue {n}:\n"),
            };
            for (key, value) in settings {
                text += &format!("  {key}: {value}\n");
            }
            let counters = [
                ("tx_packets", stats.tx_packets),
                ("tx_bytes", stats.tx_bytes),
                ("tx_errors", stats.tx_errors),
            ];
            for (name, value) in counters.into_iter().filter(|(_, value)| *value != u64::MAX) {
                text += &format!("  {name}: {value}\n");
            }
        }
        text
    }
}

impl Discipline {
    /// The discipline of a name, with settings by key.
    pub fn parse(name: &str, mut setting: impl FnMut(&str) -> u64) -> Option<Discipline> {
        let mut word = |key: &str, default: u32| match u32::try_from(setting(key)).unwrap_or(u32::MAX) {
            0 => default,
            n => n,
        };
        Some(match name {
            "linux-htb" => Discipline::Htb { max_rate: setting("max-rate") },
            "linux-hfsc" => Discipline::Hfsc { max_rate: setting("max-rate") },
            "linux-sfq" => Discipline::Sfq { quantum: word("quantum", 0), perturb: word("perturb", 10) },
            "linux-codel" => Discipline::Codel {
                target: word("target", 5000),
                limit: word("limit", 10_240),
                interval: word("interval", 100_000),
            },
            "linux-fq_codel" => Discipline::FqCodel {
                target: word("target", 5000),
                limit: word("limit", 10_240),
                interval: word("interval", 1_000_000),
                flows: word("flows", 1024),
                quantum: word("quantum", 1514),
            },
            "linux-netem" => Discipline::Netem {
                latency: word("latency", 0),
                limit: word("limit", 1000),
                loss: word("loss", 0),
                jitter: word("jitter", 0),
            },
            "linux-noop" => Discipline::Noop,
            "egress-policer" => Discipline::EgressPolicer { cir: setting("cir"), cbs: setting("cbs") },
            "trtcm-policer" => Discipline::Trtcm(Rates::parse(setting)),
            _ => return None,
        })
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Discipline::Htb { .. } => "linux-htb",
            Discipline::Hfsc { .. } => "linux-hfsc",
            Discipline::Sfq { .. } => "linux-sfq",
            Discipline::Codel { .. } => "linux-codel",
            Discipline::FqCodel { .. } => "linux-fq_codel",
            Discipline::Netem { .. } => "linux-netem",
            Discipline::Noop => "linux-noop",
            Discipline::EgressPolicer { .. } => "egress-policer",
            Discipline::Trtcm(_) => "trtcm-policer",
        }
    }

    /// The keys of its settings.
    pub fn keys(name: &str) -> &'static [&'static str] {
        match name {
            "linux-htb" | "linux-hfsc" => &["max-rate"],
            "linux-sfq" => &["perturb", "quantum"],
            "linux-codel" => &["interval", "limit", "target"],
            "linux-fq_codel" => &["flows", "interval", "limit", "quantum", "target"],
            "linux-netem" => &["jitter", "latency", "limit", "loss"],
            "egress-policer" => &["cbs", "cir"],
            "trtcm-policer" => &["cbs", "cir", "ebs", "eir"],
            _ => &[],
        }
    }

    /// Whether it has queues.
    pub fn has_queues(&self) -> bool {
        matches!(self, Discipline::Htb { .. } | Discipline::Hfsc { .. } | Discipline::Trtcm(_))
    }

    /// Whether [`Scheduler`] has it.
    pub fn is_scheduled(&self) -> bool {
        matches!(self, Discipline::Htb { .. } | Discipline::Hfsc { .. })
    }

    /// Whether it drops packets beyond its rates, and delays none.
    pub fn is_policer(&self) -> bool {
        matches!(self, Discipline::EgressPolicer { .. } | Discipline::Trtcm(_))
    }

    /// The class above all queues of a device; `None`: it has no queues.
    pub fn root(&self, link: LinkFacts) -> Option<Class> {
        let (Discipline::Htb { max_rate } | Discipline::Hfsc { max_rate }) = self else { return None };
        let of_link = if link.speed_bps == 0 { DEFAULT_LINK_BPS } else { link.speed_bps };
        let bytes = max_rate / 8;
        let rate = if bytes == 0 { of_link / 8 } else { bytes };
        Some(Class { min_rate: rate, max_rate: rate, burst: 0, priority: 0 })
    }

    /// The class of a queue of a device; `None`: it has no queues.
    pub fn class(&self, queue: &Queue, link: LinkFacts) -> Option<Class> {
        let most = self.root(link)?.max_rate;
        let mtu = u64::from(link.mtu);
        let least = if matches!(self, Discipline::Htb { .. }) { mtu } else { 1 };
        let min_rate = (queue.min_rate / 8).max(least).min(most);
        let wanted = if queue.max_rate == 0 { most } else { queue.max_rate / 8 };
        let max_rate = wanted.max(min_rate).min(most);
        let burst = (queue.burst / 8).max(mtu + BURST_SPARE_BYTES);
        Some(Class { min_rate, max_rate, burst, priority: queue.priority })
    }
}

/// Limits of what a port receives. Zero stands for no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Policing {
    /// Kilobits a second.
    pub kbps: u64,
    /// Kilobits at once.
    pub burst_kbits: u64,
    /// Thousands of packets a second.
    pub kpps: u64,
    /// Thousands of packets at once.
    pub burst_kpackets: u64,
}

/// Kilobits at once without a setting.
const DEFAULT_BURST_KBITS: u64 = 8000;
/// Thousands of packets at once without a setting.
const DEFAULT_BURST_KPACKETS: u64 = 16;

impl Policing {
    /// Whether nothing is limited.
    pub fn is_none(&self) -> bool {
        self.kbps == 0 && self.kpps == 0
    }

    /// The limits with the bursts that hold: the default of a rate without one, none without a rate.
    pub fn effective(&self) -> Policing {
        let burst = |rate, burst, default| match (rate, burst) {
            (0, _) => 0,
            (_, 0) => default,
            (_, n) => n,
        };
        Policing {
            burst_kbits: burst(self.kbps, self.burst_kbits, DEFAULT_BURST_KBITS),
            burst_kpackets: burst(self.kpps, self.burst_kpackets, DEFAULT_BURST_KPACKETS),
            ..*self
        }
    }
}

/// Token buckets of bytes and of packets; packets beyond either are dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policer {
    bytes: Option<Bucket>,
    packets: Option<Bucket>,
}

/// Millionths of a token: a microsecond of each rate is a whole number of them.
const MICRO: u64 = 1_000_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Bucket {
    /// Tokens a second.
    rate: u64,
    /// Millionths of tokens at most.
    capacity: i64,
    /// Millionths of tokens now; negative after a large segment.
    tokens: i64,
    /// Microseconds of the last filling.
    filled_us: u64,
}

impl Bucket {
    fn new(rate: u64, burst: u64, now_us: u64) -> Bucket {
        let capacity = millionths(burst);
        Bucket { rate, capacity, tokens: capacity, filled_us: now_us }
    }

    fn fill(&mut self, now_us: u64) {
        let passed = now_us.saturating_sub(self.filled_us);
        let more = i64::try_from(u128::from(passed) * u128::from(self.rate)).unwrap_or(i64::MAX);
        self.tokens = self.tokens.saturating_add(more).min(self.capacity);
        self.filled_us = now_us.max(self.filled_us);
    }
}

impl Policer {
    /// The policer of some limits; its buckets are full. `None`: nothing is limited.
    pub fn new(limits: Policing, now_us: u64) -> Option<Policer> {
        if limits.is_none() {
            return None;
        }
        let limits = limits.effective();
        let bucket = |rate: u64, burst: u64| (rate > 0).then(|| Bucket::new(rate, burst, now_us));
        let bytes = |kbits: u64| kbits.saturating_mul(1000) / 8;
        let packets = |thousands: u64| thousands.saturating_mul(1000);
        Some(Policer {
            bytes: bucket(bytes(limits.kbps), bytes(limits.burst_kbits)),
            packets: bucket(packets(limits.kpps), packets(limits.burst_kpackets)),
        })
    }

    /// Fills the buckets. Call once for a burst of packets.
    pub fn fill(&mut self, now_us: u64) {
        [&mut self.bytes, &mut self.packets].into_iter().flatten().for_each(|bucket| bucket.fill(now_us));
    }

    /// Whether a packet, or a segment of several, passes; if so, takes their tokens. A segment passes where its first
    /// packet would, and costs all of them.
    pub fn admit(&mut self, packets: u64, bytes: u64) -> bool {
        let packets = packets.max(1);
        let cost = [bytes, packets].map(millionths);
        let first = [bytes / packets, 1].map(millionths);
        let mut buckets = [&mut self.bytes, &mut self.packets];
        let lacks = |(bucket, first): (&&mut Option<Bucket>, i64)| bucket.is_some_and(|b| b.tokens < first);
        if buckets.iter().zip(first).any(lacks) {
            return false;
        }
        for (bucket, cost) in buckets.iter_mut().zip(cost) {
            if let Some(bucket) = bucket {
                bucket.tokens = bucket.tokens.saturating_sub(cost);
            }
        }
        true
    }
}

fn millionths(tokens: u64) -> i64 {
    i64::try_from(tokens.saturating_mul(MICRO)).unwrap_or(i64::MAX)
}
