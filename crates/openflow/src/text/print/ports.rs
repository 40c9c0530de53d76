//! Features of the switch, ports, their counters and queues.

use super::groups::action_names;
use super::{Printer, bit_names, duration, put};
use crate::msg::control::SwitchFeatures;
use crate::msg::port::{Port, PortMod, PortReason, PortStats, PortStatus, config, state};
use crate::msg::stats::{QUEUE_ALL, Queue, QueueConfig, QueueDesc, QueueStats, QueueStatsRequest};
use crate::{Multi, Version};
use flow::OfPort;
use std::fmt::Write as _;

/// Names of the bits of `capabilities`: those of OpenFlow 1.0 (§5.3.1), and of later versions (1.3 §7.3.1).
const CAPABILITIES_10: [(u32, &str); 7] = [
    (1, "FLOW_STATS"),
    (1 << 1, "TABLE_STATS"),
    (1 << 2, "PORT_STATS"),
    (1 << 3, "STP"),
    (1 << 5, "IP_REASM"),
    (1 << 6, "QUEUE_STATS"),
    (1 << 7, "ARP_MATCH_IP"),
];
const CAPABILITIES_11: [(u32, &str); 7] = [
    (1, "FLOW_STATS"),
    (1 << 1, "TABLE_STATS"),
    (1 << 2, "PORT_STATS"),
    (1 << 3, "GROUP_STATS"),
    (1 << 5, "IP_REASM"),
    (1 << 6, "QUEUE_STATS"),
    (1 << 8, "PORT_BLOCKED"),
];
/// Those that OpenFlow 1.1 alone still has.
const ARP_MATCH_IP: (u32, &str) = (1 << 7, "ARP_MATCH_IP");
/// One since OpenFlow 1.4.
const BUNDLES: (u32, &str) = (1 << 9, "BUNDLES");
const CONFIG: [(u32, &str); 7] = [
    (config::PORT_DOWN, "PORT_DOWN"),
    (config::NO_STP, "NO_STP"),
    (config::NO_RECV, "NO_RECV"),
    (config::NO_RECV_STP, "NO_RECV_STP"),
    (config::NO_FLOOD, "NO_FLOOD"),
    (config::NO_FWD, "NO_FWD"),
    (config::NO_PACKET_IN, "NO_PACKET_IN"),
];
const STATE: [(u32, &str); 3] =
    [(state::LINK_DOWN, "LINK_DOWN"), (state::BLOCKED, "BLOCKED"), (state::LIVE, "LIVE")];
/// `OFPPF_*` by bit, with the speed in Mbit/s (OpenFlow 1.3 §7.2.1).
const FEATURES: [(u32, &str); 16] = [
    (1, "10MB-HD"),
    (1 << 1, "10MB-FD"),
    (1 << 2, "100MB-HD"),
    (1 << 3, "100MB-FD"),
    (1 << 4, "1GB-HD"),
    (1 << 5, "1GB-FD"),
    (1 << 6, "10GB-FD"),
    (1 << 7, "40GB-FD"),
    (1 << 8, "100GB-FD"),
    (1 << 9, "1TB-FD"),
    (1 << 10, "OTHER"),
    (1 << 11, "COPPER"),
    (1 << 12, "FIBER"),
    (1 << 13, "AUTO_NEG"),
    (1 << 14, "AUTO_PAUSE"),
    (1 << 15, "AUTO_PAUSE_ASYM"),
];
/// Speeds of the first ones.
const SPEEDS_MBPS: [u32; 10] = [10, 10, 100, 100, 1000, 1000, 10_000, 40_000, 100_000, 1_000_000];

fn speed_mbps(features: u32) -> u32 {
    let fits = SPEEDS_MBPS.iter().enumerate().filter(|(bit, _)| features >> bit & 1 != 0);
    fits.map(|(_, speed)| *speed).max().unwrap_or(0)
}

/// A counter; all ones are unknown.
fn count(n: u64) -> String {
    if n == u64::MAX { "?".to_string() } else { n.to_string() }
}

/// A rate of a queue in tenths of a percent.
fn rate(name: &str, permille: Option<u16>) -> String {
    match permille {
        None => String::new(),
        Some(n @ 0..=1000) => format!(" {name}:{}.{}%", n / 10, n % 10),
        Some(_) => format!(" {name}:(disabled)"),
    }
}

fn state_text(bits: u32) -> String {
    let stp = match bits & state::STP_MASK {
        0 => return bit_names(bits, &STATE, " "),
        0x100 => "STP_LEARN",
        0x200 => "STP_FORWARD",
        _ => "STP_BLOCK",
    };
    let rest = bits & !state::STP_MASK;
    // Without a space between both, as ovs-ofctl.
    let rest = if rest == 0 { String::new() } else { bit_names(rest, &STATE, " ") };
    format!("{stp}{rest}")
}

impl Printer<'_> {
    pub(super) fn switch_features(&mut self, m: &SwitchFeatures) {
        put!(self.out, " dpid:{:016x}\nn_tables:{}, n_buffers:{}", m.datapath_id, m.n_tables, m.n_buffers);
        if m.auxiliary_id != 0 {
            put!(self.out, ", auxiliary_id:{}", m.auxiliary_id);
        }
        let mut known = match self.version {
            Version::V10 => CAPABILITIES_10.to_vec(),
            _ => CAPABILITIES_11.to_vec(),
        };
        match self.version {
            // OpenFlow 1.1 has one of 1.0 in place of a later one.
            Version::V11 => known[CAPABILITIES_11.len() - 1] = ARP_MATCH_IP,
            version if version >= Version::V14 => known.push(BUNDLES),
            _ => {}
        }
        let bits = known.iter().fold(0, |all, (bit, _)| all | bit) & m.capabilities;
        put!(self.out, "\ncapabilities: {}\n", bit_names(bits, &known, " "));
        if self.version == Version::V10 {
            put!(self.out, "actions: {}\n", action_names(m.actions, self.version));
        }
        if self.version < Version::V13 {
            self.sorted_ports(&m.ports);
        }
    }

    fn sorted_ports(&mut self, ports: &[Port]) {
        let mut ports: Vec<&Port> = ports.iter().collect();
        ports.sort_by_key(|port| port.port);
        ports.iter().for_each(|port| self.port_lines(port));
    }

    fn port_lines(&mut self, p: &Port) {
        let number = flow::text::format_port(p.port, &flow::text::NoPortNames);
        put!(self.out, " {number}({}): addr:{}\n", p.name, p.hw_addr);
        put!(self.out, "     config:     {}\n", bit_names(p.config, &CONFIG, " "));
        put!(self.out, "     state:      {}\n", state_text(p.state));
        let lists = [
            ("current:    ", p.curr),
            ("advertised: ", p.advertised),
            ("supported:  ", p.supported),
            ("peer:       ", p.peer),
        ];
        for (title, bits) in lists.iter().filter(|(_, bits)| *bits != 0) {
            put!(self.out, "     {title}{}\n", bit_names(*bits, &FEATURES, " "));
        }
        let (now, max) = match self.version {
            Version::V10 => (speed_mbps(p.curr), speed_mbps(p.supported)),
            _ => (p.curr_speed_kbps / 1000, p.max_speed_kbps / 1000),
        };
        put!(self.out, "     speed: {now} Mbps now, {max} Mbps max\n");
    }

    pub(super) fn port_status(&mut self, m: &PortStatus) {
        let reason = match m.reason {
            PortReason::Add => "ADD",
            PortReason::Delete => "DEL",
            PortReason::Modify => "MOD",
        };
        put!(self.out, " {reason}:");
        self.port_lines(&m.port);
    }

    pub(super) fn port_mod(&mut self, m: &PortMod) {
        let (config, mask) = (bit_names(m.config, &CONFIG, " "), bit_names(m.mask, &CONFIG, " "));
        let advertise = match m.advertise {
            0 => "UNCHANGED".to_string(),
            bits => bit_names(bits, &FEATURES, " "),
        };
        put!(
            self.out,
            " port: {}: addr:{}\n     config: {config}\n     mask:   {mask}\n     advertise: {advertise}\n",
            self.port(m.port),
            m.hw_addr
        );
    }

    pub(super) fn port_stats_request(&mut self, port: OfPort) {
        put!(self.out, " port_no={}", self.port(port));
    }

    pub(super) fn port_stats(&mut self, m: &Multi<PortStats>) {
        put!(self.out, " {} ports\n", m.entries.len());
        for s in &m.entries {
            put!(
                self.out,
                "  port {}{}: rx pkts={}, bytes={}, drop={}, errs={}, frame={}, over={}, crc={}\n",
                if s.port.0 < 10 { " " } else { "" },
                self.port(s.port),
                count(s.rx_packets),
                count(s.rx_bytes),
                count(s.rx_dropped),
                count(s.rx_errors),
                count(s.rx_frame_errors),
                count(s.rx_over_errors),
                count(s.rx_crc_errors)
            );
            put!(
                self.out,
                "           tx pkts={}, bytes={}, drop={}, errs={}, coll={}\n",
                count(s.tx_packets),
                count(s.tx_bytes),
                count(s.tx_dropped),
                count(s.tx_errors),
                count(s.collisions)
            );
            if self.version >= Version::V13 && s.duration_s != u32::MAX {
                put!(self.out, "           duration={}\n", duration(s.duration_s, s.duration_ns));
            }
            self.custom(&s.custom);
        }
    }

    /// Counters by name, three on a line.
    fn custom(&mut self, counters: &[(String, u64)]) {
        if counters.is_empty() {
            return;
        }
        self.out.push_str("           CUSTOM Statistics\n");
        for line in counters.chunks(3) {
            let parts: Vec<String> = line.iter().map(|(name, n)| format!("{name}={},", count(*n))).collect();
            put!(self.out, "                      {}\n", parts.join(" "));
        }
    }

    pub(super) fn port_desc_request(&mut self, port: OfPort) {
        put!(self.out, " port={}", self.port(port));
    }

    pub(super) fn port_descs(&mut self, m: &Multi<Port>) {
        self.out.push('\n');
        self.sorted_ports(&m.entries);
    }

    pub(super) fn queue_config_request(&mut self, port: OfPort) {
        put!(self.out, " port={}", self.port(port));
    }

    fn queue(&mut self, q: &Queue) {
        put!(
            self.out,
            "queue {}:{}{}\n",
            q.queue,
            rate("min_rate", q.min_rate_permille),
            rate("max_rate", q.max_rate_permille)
        );
    }

    pub(super) fn queue_config(&mut self, m: &QueueConfig) {
        put!(self.out, " port={}\n", self.port(m.port));
        m.queues.iter().for_each(|q| self.queue(q));
    }

    pub(super) fn queue_desc_request(&mut self, m: &QueueStatsRequest) {
        put!(self.out, " port={}", self.port(m.port));
        if m.queue != QUEUE_ALL {
            put!(self.out, " queue={}", m.queue);
        }
    }

    /// Queues of several ports, each port's under a title of its own.
    pub(super) fn queue_descs(&mut self, m: &Multi<QueueDesc>) {
        let mut last = None;
        let mut queues: Vec<&QueueDesc> = m.entries.iter().collect();
        queues.sort_by_key(|q| (q.port, q.queue.queue));
        for q in queues {
            if last != Some(q.port) {
                let space = if last.is_none() { " " } else { "" };
                put!(self.out, "{space}port={}\n", self.port(q.port));
                last = Some(q.port);
            }
            self.queue(&q.queue);
        }
    }

    pub(super) fn queue_stats_request(&mut self, m: &QueueStatsRequest) {
        put!(self.out, " port={}", self.port(m.port));
        match m.queue {
            QUEUE_ALL => self.out.push_str(" queue=ALL"),
            queue => put!(self.out, " queue={queue}"),
        }
    }

    pub(super) fn queue_stats(&mut self, m: &Multi<QueueStats>) {
        put!(self.out, " {} queues\n", m.entries.len());
        for q in &m.entries {
            let age = match self.version >= Version::V13 && q.duration_s != u32::MAX {
                true => duration(q.duration_s, q.duration_ns),
                false => "?".to_string(),
            };
            put!(
                self.out,
                "  port {} queue {}: bytes={}, pkts={}, errors={}, duration={age}\n",
                self.port(q.port),
                q.queue,
                count(q.tx_bytes),
                count(q.tx_packets),
                count(q.tx_errors)
            );
        }
    }
}
