//! IPFIX (RFC 7011): one exporter, of a bridge or of a set of collectors.
//!
//! Packets with one key ([`Record::key`]) form a flow in the cache, which is exported when the active timeout passes since
//! its first packet, or earlier if the cache is full. Templates, options and statistics of the exporter go out before the
//! first flow, and again with a flow after their intervals. Messages, templates and fields are those of stock switches.

mod record;
mod template;

pub use record::{Direction, Interface, Record, Tunnel};

use crate::bytes::Bytes;
use record::Key;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Version of the protocol.
const VERSION: u16 = 10;
/// Bytes of the header of a message.
const HEADER_BYTES: usize = 16;
/// Bytes of templates from which on a message is sent.
const TEMPLATES_FULL_BYTES: usize = 1024;
/// Set of templates.
const TEMPLATE_SET: u16 = 2;
/// Set of templates of options.
const OPTIONS_SET: u16 = 3;
/// Longest identifier of a virtual observation.
pub const VIRTUAL_ID_MAX_BYTES: usize = 254;
/// Most flows of a cache, whatever the settings.
pub const FLOWS_MAX: usize = 1 << 20;
/// Sequence number of the first message, as in stock switches.
const FIRST_SEQUENCE: u32 = 1;
const US_PER_S: u64 = 1_000_000;

/// Settings of an exporter.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// Number of the exporter in its statistics.
    pub exporter_id: u32,
    /// Seconds from the first packet of a flow to its export.
    pub active_timeout_s: u32,
    /// Most flows in the cache.
    pub max_flows: u32,
    /// Seconds between two transmissions of the templates.
    pub template_interval_s: u32,
    /// Seconds between two reports of statistics.
    pub stats_interval_s: u32,
    /// Identifier in each record.
    pub virtual_id: Option<String>,
}

/// Statistics of an exporter, as OpenFlow has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Flows in all.
    pub total_flows: u64,
    /// Flows in the cache.
    pub current_flows: u64,
    /// Sampled packets.
    pub packets: u64,
    /// Packets of IPv4 and of a known protocol.
    pub ipv4_packets: u64,
    /// Packets of IPv6 and of a known protocol.
    pub ipv6_packets: u64,
    /// Packets of IPv4 and of another protocol.
    pub ipv4_errors: u64,
    /// Packets of IPv6 and of another protocol.
    pub ipv6_errors: u64,
}

/// Reason of an export (`flowEndReason`).
#[derive(Clone, Copy)]
#[repr(u8)]
enum EndReason {
    ActiveTimeout = 2,
    Forced = 4,
    LackOfResources = 5,
}

/// Counters of an exporter since its start, and of flows.
#[derive(Clone, Copy, Default, Debug)]
struct Totals {
    dropped_packets: u64,
    packets: u64,
    /// Unicast, multicast and broadcast packets received.
    received: [u64; 3],
    /// Unicast and broadcast packets sent.
    sent: [u64; 2],
    sent_multicast: u64,
    octets_l2: u64,
    dropped_octets: u64,
    octets: u64,
    octets_squared: u64,
    sent_multicast_octets: u64,
    /// ACK, FIN, PSH, RST, SYN, URG.
    tcp: [u64; 6],
}

/// A flow in the cache.
#[derive(Debug)]
struct Entry {
    key: Arc<Key>,
    start_us: u64,
    end_us: u64,
    delta: Totals,
    /// Counts of the exporter, as after its last packet.
    totals: Totals,
    min_octets: u64,
    max_octets: u64,
}

/// An exporter.
#[derive(Debug)]
pub struct Exporter {
    settings: Settings,
    cache: HashMap<Arc<Key>, Entry>,
    /// By time of the first packet.
    order: VecDeque<Arc<Key>>,
    totals: Totals,
    stats: Stats,
    sequence: u32,
    templates_s: Option<u64>,
    reported_s: Option<u64>,
    /// Datagrams that could not be sent, as the caller told.
    not_sent: u64,
}

impl Exporter {
    /// An exporter without flows.
    pub fn new(settings: Settings) -> Exporter {
        Exporter {
            settings,
            cache: HashMap::new(),
            order: VecDeque::new(),
            totals: Totals::default(),
            stats: Stats::default(),
            sequence: FIRST_SEQUENCE,
            templates_s: None,
            reported_s: None,
            not_sent: 0,
        }
    }

    /// Its settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Its statistics.
    pub fn stats(&self) -> Stats {
        Stats { current_flows: self.cache.len() as u64, ..self.stats }
    }

    /// Tells how many datagrams were not sent so far.
    pub fn set_not_sent(&mut self, datagrams: u64) {
        self.not_sent = datagrams;
    }

    /// Adds a sampled packet to its flow. A cache that is too large exports its oldest flow.
    pub fn sample(&mut self, record: &Record<'_>, now_us: u64, send: &mut Vec<Vec<u8>>) {
        let (key, kind) = record.key();
        self.stats.packets += 1;
        let stats = &mut self.stats;
        let counter = match (kind.is_ipv4(), kind.is_ipv6(), kind.has_protocol()) {
            (true, _, true) => Some(&mut stats.ipv4_packets),
            (true, _, false) => Some(&mut stats.ipv4_errors),
            (_, true, true) => Some(&mut stats.ipv6_packets),
            (_, true, false) => Some(&mut stats.ipv6_errors),
            _ => None,
        };
        if let Some(counter) = counter {
            *counter += 1;
        }
        let delta = record.count(kind);
        self.totals.add(&delta);
        let octets = if kind.has_ip() { record.octets(kind) } else { 0 };
        let totals = self.totals;
        if let Some(entry) = self.cache.get_mut(&key) {
            entry.end_us = entry.end_us.max(now_us);
            entry.delta.add(&delta);
            entry.totals = totals;
            entry.min_octets = entry.min_octets.min(octets);
            entry.max_octets = entry.max_octets.max(octets);
            return;
        }
        let key = Arc::new(key);
        self.order.push_back(key.clone());
        let (min_octets, max_octets) = (octets, octets);
        let entry = Entry {
            key: key.clone(),
            start_us: now_us,
            end_us: now_us,
            delta,
            totals,
            min_octets,
            max_octets,
        };
        self.cache.insert(key, entry);
        self.stats.total_flows += 1;
        if self.cache.len() > self.limit() {
            self.run(now_us, send);
        }
    }

    fn limit(&self) -> usize {
        (self.settings.max_flows as usize).min(FLOWS_MAX)
    }

    /// When the next flow is due; `None` without flows.
    pub fn due_us(&self) -> Option<u64> {
        let oldest = self.cache.get(self.order.front()?)?;
        Some(oldest.start_us + u64::from(self.settings.active_timeout_s) * US_PER_S)
    }

    /// Exports the flows that are due.
    pub fn run(&mut self, now_us: u64, send: &mut Vec<Vec<u8>>) {
        loop {
            let reason = match self.due_us() {
                Some(due_us) if due_us <= now_us => EndReason::ActiveTimeout,
                Some(_) if self.cache.len() > self.limit() => EndReason::LackOfResources,
                _ => return,
            };
            self.export(reason, now_us, send);
        }
    }

    /// Exports all flows: the exporter ends.
    pub fn end(&mut self, now_us: u64, send: &mut Vec<Vec<u8>>) {
        while !self.order.is_empty() {
            self.export(EndReason::Forced, now_us, send);
        }
    }

    /// Exports the oldest flow.
    fn export(&mut self, reason: EndReason, now_us: u64, send: &mut Vec<Vec<u8>>) {
        let Some(entry) = self.order.pop_front().and_then(|key| self.cache.remove(&key)) else { return };
        // Times of flows count back from that of the message, in whole seconds.
        let export_s = now_us.div_ceil(US_PER_S);
        let is_due = |last: Option<u64>, every_s: u32| {
            last.is_none_or(|last| last.saturating_add(every_s.into()) <= export_s)
        };
        if is_due(self.reported_s, self.settings.stats_interval_s) {
            self.reported_s = Some(export_s);
            self.report(export_s, send);
        }
        if is_due(self.templates_s, self.settings.template_interval_s) {
            self.templates_s = Some(export_s);
            self.templates(entry.key.domain, export_s, send);
        }
        let mut out = self.message(export_s, entry.key.domain);
        self.sequence = self.sequence.wrapping_add(1);
        let virtual_id = self.settings.virtual_id.as_deref();
        set(&mut out, entry.key.kind.id(), |out| entry.put(out, export_s * US_PER_S, reason, virtual_id));
        finish(out, send);
    }

    fn message(&self, export_s: u64, domain: u32) -> Bytes {
        let mut out = Bytes::default();
        out.u16(VERSION);
        out.u16(0);
        out.u32(export_s as u32);
        out.u32(self.sequence);
        out.u32(domain);
        out
    }

    /// The statistics of the exporter, which have no observation domain.
    fn report(&mut self, export_s: u64, send: &mut Vec<Vec<u8>>) {
        let mut out = self.message(export_s, 0);
        self.sequence = self.sequence.wrapping_add(1);
        set(&mut out, template::OPTIONS_ID, |out| {
            out.u32(self.settings.exporter_id);
            out.u64(self.not_sent);
        });
        finish(out, send);
    }

    fn templates(&self, domain: u32, export_s: u64, send: &mut Vec<Vec<u8>>) {
        let mut out = self.message(export_s, domain);
        let open = |out: &mut Bytes| {
            out.u16(TEMPLATE_SET);
            out.u16(0);
        };
        open(&mut out);
        for kind in template::Kind::all() {
            if out.len() >= TEMPLATES_FULL_BYTES {
                let full = std::mem::replace(&mut out, self.message(export_s, domain));
                close_templates(full, send);
                open(&mut out);
            }
            kind.put(&mut out, self.settings.virtual_id.is_some());
        }
        close_templates(out, send);
        let mut out = self.message(export_s, 0);
        set(&mut out, OPTIONS_SET, template::put_options);
        finish(out, send);
    }
}

/// A set, with its length.
fn set(out: &mut Bytes, id: u16, write: impl FnOnce(&mut Bytes)) {
    let at = out.len();
    out.u16(id);
    out.u16(0);
    write(out);
    out.set_u16(at + 2, (out.len() - at) as u16);
}

fn close_templates(mut out: Bytes, send: &mut Vec<Vec<u8>>) {
    let len = out.len();
    out.set_u16(HEADER_BYTES + 2, (len - HEADER_BYTES) as u16);
    finish(out, send);
}

fn finish(mut out: Bytes, send: &mut Vec<Vec<u8>>) {
    let len = out.len();
    out.set_u16(2, len as u16);
    send.push(out.0);
}

impl Totals {
    fn add(&mut self, more: &Totals) {
        let add = |to: &mut u64, n: u64| *to = to.wrapping_add(n);
        add(&mut self.dropped_packets, more.dropped_packets);
        add(&mut self.packets, more.packets);
        add(&mut self.sent_multicast, more.sent_multicast);
        add(&mut self.octets_l2, more.octets_l2);
        add(&mut self.dropped_octets, more.dropped_octets);
        add(&mut self.octets, more.octets);
        add(&mut self.octets_squared, more.octets_squared);
        add(&mut self.sent_multicast_octets, more.sent_multicast_octets);
        self.received.iter_mut().zip(more.received).for_each(|(to, n)| add(to, n));
        self.sent.iter_mut().zip(more.sent).for_each(|(to, n)| add(to, n));
        self.tcp.iter_mut().zip(more.tcp).for_each(|(to, n)| add(to, n));
    }
}

impl Entry {
    fn put(&self, out: &mut Bytes, export_us: u64, reason: EndReason, virtual_id: Option<&str>) {
        let Entry { key, start_us, end_us, delta, totals, min_octets, max_octets } = self;
        out.put(&key.bytes);
        if let Some(id) = virtual_id {
            record::put_text(out, id, VIRTUAL_ID_MAX_BYTES);
        }
        out.u32(export_us.saturating_sub(*start_us) as u32);
        out.u32(export_us.saturating_sub(*end_us) as u32);
        for n in [delta.dropped_packets, totals.dropped_packets, delta.packets, totals.packets] {
            out.u64(n);
        }
        totals.received.iter().chain(&totals.sent).for_each(|n| out.u64(*n));
        for n in [delta.sent_multicast, totals.sent_multicast, delta.octets_l2, totals.octets_l2] {
            out.u64(n);
        }
        out.u8(reason as u8);
        if key.kind.has_ip() {
            let of_ip = [
                (delta.dropped_octets, totals.dropped_octets),
                (delta.octets, totals.octets),
                (delta.octets_squared, totals.octets_squared),
                (*min_octets, *max_octets),
                (delta.sent_multicast_octets, totals.sent_multicast_octets),
            ];
            for (one, other) in of_ip {
                out.u64(one);
                out.u64(other);
            }
        }
        if key.kind.is_tcp() {
            totals.tcp.iter().for_each(|n| out.u64(*n));
        }
    }
}

#[cfg(test)]
mod tests;
