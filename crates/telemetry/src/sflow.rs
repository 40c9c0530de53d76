//! sFlow version 5 (<https://sflow.org/sflow_version_5.txt>): the agent of one bridge.
//!
//! Samples of flows and of counters wait in one datagram until it is full, or until the caller flushes it, once a second.
//! Order and choice of the records are those of stock switches.

use crate::DATAGRAM_MAX_BYTES;
use crate::bytes::Bytes;
use std::net::{IpAddr, Ipv4Addr};

/// Settings of an agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Address that identifies it.
    pub agent: IpAddr,
    /// Number of the bridge among those of the switch.
    pub sub_id: u32,
    /// Packets of which one is sampled.
    pub sampling: u32,
    /// Bytes of each sampled packet.
    pub header_bytes: usize,
}

/// Outer headers of a tunnel (`extended_ipv4_tunnel_*`, `extended_vni_*`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tunnel {
    /// Protocol of the outer IP header; 0: unknown.
    pub protocol: u8,
    /// Type of service.
    pub tos: u8,
    /// Source.
    pub src: u32,
    /// Destination.
    pub dst: u32,
    /// UDP source port.
    pub src_port: u16,
    /// UDP destination port.
    pub dst_port: u16,
    /// Key; 0: none.
    pub vni: u64,
}

/// A sampled packet.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlowSample<'a> {
    /// Its first bytes.
    pub frame: &'a [u8],
    /// Its bytes in all, without the checksum of Ethernet.
    pub frame_bytes: u32,
    /// Index of the interface that received it; 0: unknown.
    pub input: u32,
    /// Where it goes, in the encoding of sFlow.
    pub output: u32,
    /// Its VLAN tag as received.
    pub src_tci: u16,
    /// Its VLAN tag as sent.
    pub dst_tci: u16,
    /// The tunnel that it came from.
    pub tunnel_in: Option<Tunnel>,
    /// The tunnel that it leaves by.
    pub tunnel_out: Option<Tunnel>,
    /// Labels that it leaves with, outermost first.
    pub mpls_out: &'a [u32],
}

/// Counters of an interface (`if_counters` and more).
#[derive(Clone, Debug, Default)]
pub struct PortCounters {
    /// Index of the interface.
    pub ifindex: u32,
    /// Bits per second.
    pub speed_bps: u64,
    /// 0 unknown, 1 full duplex, 2 half duplex.
    pub direction: u32,
    /// Bit 0: administratively up; bit 1: operational.
    pub status: u32,
    /// Bytes, packets, multicast packets, broadcast packets, discards and errors of reception.
    pub received: [u64; 6],
    /// Bytes, packets, multicast packets, broadcast packets, discards and errors of transmission.
    pub sent: [u64; 6],
    /// Alignment errors, checksum errors, frames too long.
    pub ethernet: [u64; 3],
    /// Name.
    pub name: String,
    /// Datapath id of its bridge.
    pub datapath_id: u64,
    /// Number of its OpenFlow port.
    pub of_port: u32,
    /// Counters of LACP, for a member of a bond.
    pub lacp: Option<Lacp>,
}

/// Counters of LACP (`lag_port_stats`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lacp {
    /// System of the actor.
    pub actor: [u8; 6],
    /// System of the partner.
    pub partner: [u8; 6],
    /// Number of the aggregate.
    pub aggregate: u32,
    /// Administrative and operational state of the actor, then of the partner.
    pub states: [u8; 4],
    /// Received messages, received faulty messages, sent messages.
    pub messages: [u32; 3],
}

/// Counters of the whole switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Hits, misses and losses of flows, hits of masks, flows, masks; `u32::MAX`: unknown.
    pub datapath: [u32; 6],
    /// Milliseconds of the processor, of the program and of the system for it.
    pub cpu_ms: [u32; 2],
    /// Memory in bytes.
    pub memory_bytes: u64,
}

/// Formats of records and samples.
mod tag {
    pub(super) const FLOW_SAMPLE: u32 = 1;
    pub(super) const COUNTERS_SAMPLE: u32 = 2;
    pub(super) const HEADER: u32 = 1;
    pub(super) const SWITCH: u32 = 1001;
    pub(super) const MPLS: u32 = 1006;
    pub(super) const TUNNEL_EGRESS: u32 = 1023;
    pub(super) const TUNNEL_INGRESS: u32 = 1024;
    pub(super) const VNI_EGRESS: u32 = 1029;
    pub(super) const VNI_INGRESS: u32 = 1030;
    pub(super) const GENERIC: u32 = 1;
    pub(super) const ETHERNET: u32 = 2;
    pub(super) const LACP: u32 = 7;
    pub(super) const OPENFLOW_PORT: u32 = 1004;
    pub(super) const PORT_NAME: u32 = 1005;
    pub(super) const RESOURCES: u32 = 2203;
    pub(super) const OVS_DATAPATH: u32 = 2207;
}

/// A source of samples: the class of physical entities, with the number of the bridge.
const ENTITY: u32 = 2 << 24 | 1000;
/// Protocol of sampled headers: Ethernet.
const ETHERNET_HEADER: u32 = 1;
/// Bytes of the checksum of Ethernet, which is counted and stripped.
const FCS_BYTES: u32 = 4;
/// Longest name of an interface in a record.
const NAME_MAX_BYTES: usize = 255;
/// An unknown counter.
const UNKNOWN: u32 = u32::MAX;
/// `ifType` of Ethernet.
const IF_TYPE_ETHERNET: u32 = 6;
/// The bit that ends a stack of labels.
const BOTTOM: u32 = 1 << 8;

/// An agent.
#[derive(Debug)]
pub struct Agent {
    settings: Settings,
    boot_ms: u64,
    datagrams: u32,
    flow_samples: u32,
    pool: u32,
    counters: std::collections::BTreeMap<u32, u32>,
    samples: u32,
    body: Bytes,
}

/// A record, with its length.
fn record(out: &mut Bytes, format: u32, write: impl FnOnce(&mut Bytes)) {
    out.u32(format);
    let at = out.len();
    out.u32(0);
    write(out);
    out.set_u32(at, (out.len() - at - 4) as u32);
}

fn tunnel(out: &mut Bytes, t: &Tunnel) {
    // No bytes of its packet are known.
    for n in [0, t.protocol.into(), t.src, t.dst, t.src_port.into(), t.dst_port.into(), 0, t.tos.into()] {
        out.u32(n);
    }
}

impl Agent {
    /// An agent that starts now.
    pub fn new(settings: Settings, now_ms: u64) -> Agent {
        Agent {
            settings,
            boot_ms: now_ms,
            datagrams: 0,
            flow_samples: 0,
            pool: 0,
            counters: std::collections::BTreeMap::new(),
            samples: 0,
            body: Bytes::default(),
        }
    }

    /// Its settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Adds a sampled packet. Each counts for as many packets as the settings say.
    pub fn flow(&mut self, sample: &FlowSample<'_>, now_ms: u64, send: &mut Vec<Vec<u8>>) {
        self.flow_samples = self.flow_samples.wrapping_add(1);
        self.pool = self.pool.wrapping_add(self.settings.sampling);
        let mut out = Bytes::default();
        record(&mut out, tag::FLOW_SAMPLE, |out| self.put_flow(out, sample));
        self.add(&out, now_ms, send);
    }

    fn put_flow(&self, out: &mut Bytes, s: &FlowSample<'_>) {
        for n in [
            self.flow_samples,
            ENTITY.wrapping_add(self.settings.sub_id),
            self.settings.sampling,
            self.pool,
            0,
            s.input,
            s.output,
        ] {
            out.u32(n);
        }
        let at = out.len();
        out.u32(0);
        let mut records = 2;
        let pcp = |tci: u16| u32::from(tci >> 13);
        let vid = |tci: u16| u32::from(tci & 0xfff);
        record(out, tag::SWITCH, |out| {
            for n in [vid(s.src_tci), pcp(s.src_tci), vid(s.dst_tci), pcp(s.dst_tci)] {
                out.u32(n);
            }
        });
        let header = &s.frame[..s.frame.len().min(self.settings.header_bytes).min(DATAGRAM_MAX_BYTES / 2)];
        record(out, tag::HEADER, |out| {
            out.u32(ETHERNET_HEADER);
            out.u32(s.frame_bytes.saturating_add(FCS_BYTES));
            out.u32(FCS_BYTES);
            out.u32(header.len() as u32);
            out.padded(header);
        });
        if !s.mpls_out.is_empty() {
            records += 1;
            record(out, tag::MPLS, |out| put_mpls(out, s.mpls_out));
        }
        for (t, headers, vni) in [
            (&s.tunnel_out, tag::TUNNEL_EGRESS, tag::VNI_EGRESS),
            (&s.tunnel_in, tag::TUNNEL_INGRESS, tag::VNI_INGRESS),
        ] {
            let Some(t) = t else { continue };
            if t.vni != 0 {
                records += 1;
                record(out, vni, |out| out.u32(t.vni as u32));
            }
            records += 1;
            record(out, headers, |out| tunnel(out, t));
        }
        out.set_u32(at, records);
    }

    /// Adds the counters of an interface.
    pub fn port(&mut self, port: &PortCounters, now_ms: u64, send: &mut Vec<Vec<u8>>) {
        let mut out = Bytes::default();
        let sequence = self.next_of(port.ifindex);
        record(&mut out, tag::COUNTERS_SAMPLE, |out| {
            out.u32(sequence);
            out.u32(port.ifindex);
            put_port(out, port);
        });
        self.add(&out, now_ms, send);
    }

    /// Adds the counters of the whole switch, those of its datapaths only if this agent reports them.
    pub fn totals(&mut self, totals: &Totals, now_ms: u64, send: &mut Vec<Vec<u8>>) {
        let source = ENTITY.wrapping_add(self.settings.sub_id);
        let sequence = self.next_of(source);
        let mut out = Bytes::default();
        record(&mut out, tag::COUNTERS_SAMPLE, |out| {
            for n in [sequence, source, 2] {
                out.u32(n);
            }
            record(out, tag::RESOURCES, |out| {
                totals.cpu_ms.iter().for_each(|n| out.u32(*n));
                out.u64(totals.memory_bytes);
                // Limit of the memory; open and most files, open and most connections: unknown.
                out.u64(0);
                (0..4).for_each(|_| out.u32(0));
            });
            record(out, tag::OVS_DATAPATH, |out| totals.datapath.iter().for_each(|n| out.u32(*n)));
        });
        self.add(&out, now_ms, send);
    }

    /// Forgets the sequence numbers of interfaces other than these.
    pub fn keep_ports(&mut self, ifindexes: &std::collections::BTreeSet<u32>) {
        let own = ENTITY.wrapping_add(self.settings.sub_id);
        self.counters.retain(|source, _| *source == own || ifindexes.contains(source));
    }

    fn next_of(&mut self, source: u32) -> u32 {
        let sequence = self.counters.entry(source).or_default();
        *sequence = sequence.wrapping_add(1);
        *sequence
    }

    /// Adds a sample to the datagram; one that is full is sent.
    fn add(&mut self, sample: &Bytes, now_ms: u64, send: &mut Vec<Vec<u8>>) {
        if self.samples > 0 && self.header_bytes() + self.body.len() + sample.len() > DATAGRAM_MAX_BYTES {
            self.flush(now_ms, send);
        }
        self.body.put(&sample.0);
        self.samples += 1;
    }

    fn header_bytes(&self) -> usize {
        if self.settings.agent.is_ipv4() { 28 } else { 40 }
    }

    /// Sends what waits.
    pub fn flush(&mut self, now_ms: u64, send: &mut Vec<Vec<u8>>) {
        if self.samples == 0 {
            return;
        }
        self.datagrams = self.datagrams.wrapping_add(1);
        let mut out = Bytes(Vec::with_capacity(self.header_bytes() + self.body.len()));
        out.u32(5);
        match self.settings.agent {
            IpAddr::V4(ip) => {
                out.u32(1);
                out.put(&ip.octets());
            }
            IpAddr::V6(ip) => {
                out.u32(2);
                out.put(&ip.octets());
            }
        }
        let up_ms = now_ms.saturating_sub(self.boot_ms) as u32;
        for n in [self.settings.sub_id, self.datagrams, up_ms, self.samples] {
            out.u32(n);
        }
        out.put(&self.body.0);
        send.push(out.0);
        self.body.0.clear();
        self.samples = 0;
    }
}

/// Labels that it leaves with; next hop and labels as received are unknown.
fn put_mpls(out: &mut Bytes, labels: &[u32]) {
    out.u32(1);
    out.put(&Ipv4Addr::UNSPECIFIED.octets());
    out.u32(0);
    out.u32(labels.len() as u32);
    for (i, label) in labels.iter().enumerate() {
        let is_last = i + 1 == labels.len();
        out.u32(if is_last { label | BOTTOM } else { label & !BOTTOM });
    }
}

fn put_port(out: &mut Bytes, port: &PortCounters) {
    out.u32(if port.lacp.is_some() { 5 } else { 4 });
    record(out, tag::ETHERNET, |out| {
        let [alignment, checksum, long] = port.ethernet.map(|n| n as u32);
        let u = UNKNOWN;
        for n in [alignment, checksum, u, u, u, u, u, u, u, u, long, u, u] {
            out.u32(n);
        }
    });
    record(out, tag::OPENFLOW_PORT, |out| {
        out.u64(port.datapath_id);
        out.u32(port.of_port);
    });
    record(out, tag::PORT_NAME, |out| {
        let name = port.name.as_bytes();
        let name = &name[..name.len().min(NAME_MAX_BYTES)];
        out.u32(name.len() as u32);
        out.padded(name);
    });
    if let Some(lacp) = &port.lacp {
        record(out, tag::LACP, |out| put_lacp(out, lacp));
    }
    record(out, tag::GENERIC, |out| {
        out.u32(port.ifindex);
        out.u32(IF_TYPE_ETHERNET);
        out.u64(port.speed_bps);
        out.u32(port.direction);
        out.u32(port.status);
        put_direction(out, &port.received);
        // Packets of unknown protocols.
        out.u32(UNKNOWN);
        put_direction(out, &port.sent);
        // Not promiscuous.
        out.u32(0);
    });
}

fn put_direction(out: &mut Bytes, [bytes, rest @ ..]: &[u64; 6]) {
    out.u64(*bytes);
    rest.iter().for_each(|n| out.u32(*n as u32));
}

fn put_lacp(out: &mut Bytes, lacp: &Lacp) {
    out.padded(&lacp.actor);
    out.padded(&lacp.partner);
    out.u32(lacp.aggregate);
    out.put(&lacp.states);
    let [received, faulty, sent] = lacp.messages;
    for n in [received, UNKNOWN, UNKNOWN, UNKNOWN, faulty, sent, UNKNOWN, UNKNOWN] {
        out.u32(n);
    }
}

#[cfg(test)]
mod tests;
