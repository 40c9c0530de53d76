//! [`EgressPolicer`]: policers of what a port sends, as stock switches have them on their DPDK ports.
//!
//! `egress-policer` passes what RFC 2697 marks green, without an excess burst. `trtcm-policer` passes what RFC 4115 marks
//! green or yellow: first by the packet's queue, colour-blind, then by the port, aware of that colour. Rates are bytes a
//! second, bursts bytes; neither counts Ethernet headers. A large segment passes where its first frame would, and
//! costs all of its frames.

use std::collections::BTreeMap;

use super::{Bucket, Discipline, Qos, QueueStats, Rates, ShownQos, millionths};

/// Bytes of an Ethernet header.
const ETH_HEADER_BYTES: u64 = 14;

/// See the module documentation.
pub struct EgressPolicer {
    discipline: Discipline,
    committed: Bucket,
    /// `trtcm-policer` alone has it, and queues.
    excess: Bucket,
    /// Without queue 0, packets of unknown queues are dropped.
    queues: BTreeMap<u32, MarkedQueue>,
}

/// A queue of `trtcm-policer`.
struct MarkedQueue {
    rates: Rates,
    committed: Bucket,
    excess: Bucket,
    stats: QueueStats,
    created_us: u64,
}

/// Colours of RFC 4115.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Colour {
    Green,
    Yellow,
    Red,
}

/// Tokens of a packet: all that it takes, and the least that must be there.
#[derive(Clone, Copy)]
struct Cost {
    all: i64,
    first: i64,
}

impl Bucket {
    fn take(&mut self, cost: Cost) -> bool {
        let passes = self.tokens >= cost.first;
        if passes {
            self.tokens = self.tokens.saturating_sub(cost.all);
        }
        passes
    }
}

fn mark(committed: &mut Bucket, excess: &mut Bucket, before: Colour, cost: Cost) -> Colour {
    if before == Colour::Green && committed.take(cost) {
        Colour::Green
    } else if before != Colour::Red && excess.take(cost) {
        Colour::Yellow
    } else {
        Colour::Red
    }
}

/// The rates of a policer.
fn rates_of(discipline: &Discipline) -> Option<Rates> {
    if let Discipline::EgressPolicer { cir, cbs } = *discipline {
        return Some(Rates { cir, cbs, ..Rates::default() });
    }
    if let Discipline::Trtcm(rates) = *discipline { Some(rates) } else { None }
}

/// Whether the rates of a marker have bursts.
fn check_rates(what: &str, rates: &Rates) -> Result<(), String> {
    for (rate, burst, names) in
        [(rates.cir, rates.cbs, ["cir", "cbs"]), (rates.eir, rates.ebs, ["eir", "ebs"])]
    {
        if rate != 0 && burst == 0 {
            return Err(format!("{what}: {} needs {}, the bytes of a burst", names[0], names[1]));
        }
    }
    Ok(())
}

impl EgressPolicer {
    /// The policer of a port; its buckets are full. It keeps the counters of an earlier one with the same settings.
    ///
    /// Returns it with what is wrong with its queues: these do not exist.
    ///
    /// # Errors
    /// The discipline is no policer, or a rate or a burst is missing.
    pub fn new(
        qos: &Qos,
        earlier: Option<EgressPolicer>,
        now_us: u64,
    ) -> Result<(EgressPolicer, Vec<String>), String> {
        let name = qos.discipline.name();
        let rates = rates_of(&qos.discipline).ok_or_else(|| format!("{name} is not a policer"))?;
        if let Discipline::EgressPolicer { cir, cbs } = qos.discipline
            && (cir == 0 || cbs == 0)
        {
            return Err(format!("{name}: {} must not be 0", if cir == 0 { "cir" } else { "cbs" }));
        }
        check_rates(name, &rates)?;
        let bucket = |rate, burst| Bucket::new(rate, burst, now_us);
        let mut policer = EgressPolicer {
            discipline: qos.discipline,
            committed: bucket(rates.cir, rates.cbs),
            excess: bucket(rates.eir, rates.ebs),
            queues: BTreeMap::new(),
        };
        let mut faults = Vec::new();
        if !qos.discipline.has_queues() {
            return Ok((policer, faults));
        }
        let mut known =
            earlier.filter(|e| e.discipline == qos.discipline).map(|e| e.queues).unwrap_or_default();
        let configured = qos.queues.iter().map(|(queue, settings)| (*queue, settings.rates));
        let default = (!qos.queues.contains_key(&0)).then_some((0, rates));
        for (queue, own) in configured.chain(default) {
            // As in stock switches a default queue without settings has those of the port.
            let own = if queue == 0 && own == Rates::default() { rates } else { own };
            if let Err(e) = check_rates(&format!("queue {queue}"), &own) {
                faults.push(e);
                continue;
            }
            let (stats, created_us) = match known.remove(&queue) {
                Some(earlier) => (earlier.stats, earlier.created_us),
                None => (QueueStats { queue, ..QueueStats::default() }, now_us),
            };
            let (committed, excess) = (bucket(own.cir, own.cbs), bucket(own.eir, own.ebs));
            policer.queues.insert(queue, MarkedQueue { rates: own, committed, excess, stats, created_us });
        }
        Ok((policer, faults))
    }

    /// Fills the buckets. Call once for a burst of packets.
    pub fn fill(&mut self, now_us: u64) {
        self.committed.fill(now_us);
        self.excess.fill(now_us);
        for queue in self.queues.values_mut() {
            queue.committed.fill(now_us);
            queue.excess.fill(now_us);
        }
    }

    /// Whether a packet of a queue, or a large segment, passes: frames and bytes with their Ethernet headers.
    pub fn admit(&mut self, queue: u32, packets: u64, bytes: u64) -> bool {
        let packets = packets.max(1);
        let bytes = bytes.saturating_sub(packets * ETH_HEADER_BYTES);
        let cost = Cost { all: millionths(bytes), first: millionths(bytes / packets) };
        if !self.discipline.has_queues() {
            return self.committed.take(cost);
        }
        let queue = if self.queues.contains_key(&queue) { queue } else { 0 };
        let Some(queue) = self.queues.get_mut(&queue) else { return false };
        let colour = mark(&mut queue.committed, &mut queue.excess, Colour::Green, cost);
        // As in stock switches a queue counts what it passes on to the port.
        if colour == Colour::Red {
            queue.stats.tx_errors += packets;
        } else {
            queue.stats.tx_packets += packets;
            queue.stats.tx_bytes += bytes;
        }
        mark(&mut self.committed, &mut self.excess, colour, cost) != Colour::Red
    }

    /// Its queues, in order of their numbers.
    pub fn queues(&self, now_us: u64) -> Vec<QueueStats> {
        let age_ms = |q: &MarkedQueue| Some(now_us.saturating_sub(q.created_us) / 1000);
        self.queues.values().map(|q| QueueStats { age_ms: age_ms(q), ..q.stats }).collect()
    }

    /// Settings and counters for `qos/show`.
    pub fn shown(&self) -> ShownQos {
        let text = |rates: &Rates| {
            let Rates { cir, cbs, eir, ebs } = *rates;
            [("cir", cir), ("eir", eir), ("ebs", ebs), ("cbs", cbs)]
                .map(|(key, n)| (key, n.to_string()))
                .to_vec()
        };
        let mut settings = rates_of(&self.discipline).map(|rates| text(&rates)).unwrap_or_default();
        if !self.discipline.has_queues() {
            settings.retain(|(key, _)| key.starts_with('c'));
        }
        ShownQos {
            discipline: Some(self.discipline.name().to_string()),
            settings,
            queues: self.queues.values().map(|queue| (text(&queue.rates), queue.stats)).collect(),
        }
    }
}
