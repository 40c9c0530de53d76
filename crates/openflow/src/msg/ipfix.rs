//! Counters of IPFIX exporters: Nicira's `NXST_IPFIX_BRIDGE` and `NXST_IPFIX_FLOW` (Open vSwitch 2.6).

use ofp_wire::{Reader, Res, Writer};

/// Counters of one exporter: of a bridge, or of a collector set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IpfixStats {
    /// Flows in all.
    pub total_flows: u64,
    /// Flows in the cache.
    pub current_flows: u64,
    /// Sampled packets.
    pub packets: u64,
    /// Sampled packets of IPv4.
    pub ipv4_packets: u64,
    /// Sampled packets of IPv6.
    pub ipv6_packets: u64,
    /// Packets that could not be sampled.
    pub error_packets: u64,
    /// Packets of IPv4 that could not be sampled.
    pub ipv4_error_packets: u64,
    /// Packets of IPv6 that could not be sampled.
    pub ipv6_error_packets: u64,
    /// Packets sent to collectors.
    pub tx_packets: u64,
    /// Packets that could not be sent.
    pub tx_errors: u64,
    /// The collector set; 0 of a bridge.
    pub collector_set: u32,
}

fn counters(s: &mut IpfixStats) -> [&mut u64; 10] {
    [
        &mut s.total_flows,
        &mut s.current_flows,
        &mut s.packets,
        &mut s.ipv4_packets,
        &mut s.ipv6_packets,
        &mut s.error_packets,
        &mut s.ipv4_error_packets,
        &mut s.ipv6_error_packets,
        &mut s.tx_packets,
        &mut s.tx_errors,
    ]
}

pub(crate) fn read(r: &mut Reader<'_>) -> Res<IpfixStats> {
    let mut s = IpfixStats::default();
    for counter in counters(&mut s) {
        *counter = r.u64()?;
    }
    s.collector_set = r.u32()?;
    r.skip(4)?;
    Ok(s)
}

pub(crate) fn put(w: &mut Writer, s: &IpfixStats) {
    for counter in counters(&mut s.clone()) {
        w.u64(*counter);
    }
    w.u32(s.collector_set);
    w.zeros(4);
}

pub(crate) fn encode(s: &IpfixStats, w: &mut Writer) {
    put(w, s);
}
