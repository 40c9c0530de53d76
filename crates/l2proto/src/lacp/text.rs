//! Texts of an aggregator: `lacp/show` and `lacp/show-stats`.

use super::aggregator::Aggregator;
use super::frame::{Information, STATE_NAMES};
use super::member::{Common, Counters, Member};

impl Aggregator {
    /// Its part of `lacp/show`.
    pub fn show(&self) -> String {
        let common = self.common();
        let mode = if self.config.is_active { "active" } else { "passive" };
        let negotiated = if self.is_negotiated { " negotiated" } else { "" };
        let key = self.key().map_or_else(|| "none".to_string(), |key| key.to_string());
        let time = if self.config.is_fast { "fast" } else { "slow" };
        let rows = [
            format!("---- {} ----\n", self.name),
            format!("  status: {mode}{negotiated}\n"),
            format!("  sys_id: {}\n", self.config.system.id),
            format!("  sys_priority: {}\n", self.config.system.priority),
            format!("  aggregation key: {key}\n"),
            format!("  lacp_time: {time}\n"),
        ];
        rows.into_iter().chain(self.by_name().into_iter().map(|member| member.show(&common))).collect()
    }

    /// Its part of `lacp/show-stats`.
    pub fn show_counters(&self) -> String {
        let title = format!("---- {} statistics ----\n", self.name);
        std::iter::once(title).chain(self.by_name().into_iter().map(Member::show_counters)).collect()
    }

    fn by_name(&self) -> Vec<&Member> {
        let mut members: Vec<&Member> = self.members.iter().collect();
        members.sort_by(|a, b| a.name.cmp(&b.name));
        members
    }
}

impl Member {
    fn show(&self, common: &Common) -> String {
        let attached = if self.is_attached { "attached" } else { "detached" };
        let rows = [
            format!("\nmember: {}: {} {attached}\n", self.name, self.status.name()),
            format!("  port_id: {}\n", self.link.port_id),
            format!("  port_priority: {}\n", self.link.port_priority),
            format!("  may_enable: {}\n", self.may_enable(common)),
            end("actor", &self.actor(common)),
            end("partner", &self.partner),
        ];
        rows.concat()
    }

    fn show_counters(&self) -> String {
        let Counters { sent, received, bad, markers, expired, defaulted, carrier_changed } = self.counters;
        let rows = [
            ("TX PDUs", sent),
            ("RX PDUs", received),
            ("RX Bad PDUs", bad),
            ("RX Marker Request PDUs", markers),
            ("Link Expired", expired),
            ("Link Defaulted", defaulted),
            ("Carrier Status Changed", carrier_changed),
        ];
        let title = format!("\nmember: {}:\n", self.name);
        let rows = rows.map(|(name, count)| format!("  {name}: {count}\n"));
        std::iter::once(title).chain(rows).collect()
    }
}

/// The rows of one end of a link.
fn end(name: &str, end: &Information) -> String {
    let is_set = |n: usize| end.state >> n & 1 != 0;
    let names = STATE_NAMES.iter().enumerate().filter(|(n, _)| is_set(*n));
    let rows = [
        ("sys_id", end.system.id.to_string()),
        ("sys_priority", end.system.priority.to_string()),
        ("port_id", end.port_id.to_string()),
        ("port_priority", end.port_priority.to_string()),
        ("key", end.key.to_string()),
    ];
    let rows: String = rows.iter().map(|(key, value)| format!("  {name} {key}: {value}\n")).collect();
    let state: String = names.map(|(_, bit)| format!(" {bit}")).collect();
    format!("\n{rows}  {name} state:{state}\n")
}
