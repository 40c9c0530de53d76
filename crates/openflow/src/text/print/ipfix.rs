//! Counters of IPFIX exporters.

use super::{Printer, put};
use crate::Multi;
use crate::msg::ipfix::IpfixStats;
use std::fmt::Write as _;

/// The counters on two lines; the second one begins below the first.
fn counters(s: &IpfixStats, indent: usize) -> String {
    format!(
        "flows={}, current flows={}, sampled pkts={}, ipv4 ok={}, ipv6 ok={}, tx pkts={}\n{:indent$}pkts errs={}, \
         ipv4 errs={}, ipv6 errs={}, tx errs={}\n",
        s.total_flows,
        s.current_flows,
        s.packets,
        s.ipv4_packets,
        s.ipv6_packets,
        s.tx_packets,
        "",
        s.error_packets,
        s.ipv4_error_packets,
        s.ipv6_error_packets,
        s.tx_errors
    )
}

impl Printer<'_> {
    pub(super) fn ipfix_bridge(&mut self, s: &IpfixStats) {
        put!(self.out, "\n  bridge ipfix: {}", counters(s, 16));
    }

    pub(super) fn ipfix_flows(&mut self, m: &Multi<IpfixStats>) {
        put!(self.out, " {} ids\n", m.entries.len());
        for s in &m.entries {
            put!(self.out, "  id {:>3}: {}", s.collector_set, counters(s, 10));
        }
    }
}
