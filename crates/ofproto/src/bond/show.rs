//! Texts of `bond/show` and `bond/list`, as OVS prints them.

use super::{Bond, BondMode, State};
use flow::OfPort;
use std::fmt::Write as _;

/// A row of `bond/list`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListRow {
    /// The bond.
    pub name: String,
    /// Its mode.
    pub mode: BondMode,
    /// Its recirculation id, 0 without one.
    pub recirc_id: u32,
    /// Its members.
    pub members: Vec<String>,
}

/// A rule of the switch's own that sends recirculated packets of a hash value to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashRule {
    /// The hash value.
    pub hash: u8,
    /// The member.
    pub port: OfPort,
    /// Packets and bytes.
    pub sent: [u64; 2],
    /// When it was made.
    pub created_ms: u64,
}

impl State {
    /// The rules of hash values that have a member; none unless packets recirculate.
    pub fn hash_rules(&self) -> Vec<HashRule> {
        let buckets = self.buckets.iter().filter(|_| self.recirculates() && !self.settings.lb_output);
        let rule = |(hash, bucket): (u8, &super::Bucket)| {
            let port = self.member(bucket.member?)?.port;
            Some(HashRule { hash, port, sent: bucket.sent, created_ms: self.buckets_since_ms })
        };
        buckets.flat_map(|buckets| (0..=u8::MAX).zip(buckets.iter())).filter_map(rule).collect()
    }
}

impl Bond {
    /// Its row of `bond/list`.
    pub fn list_row(&self) -> ListRow {
        let state = self.state();
        ListRow {
            name: self.name().to_string(),
            mode: state.settings.mode,
            recirc_id: self.recirc_id().map_or(0, |id| id.0),
            members: state.members.iter().map(|m| m.name.to_string()).collect(),
        }
    }

    /// The text of `bond/show`.
    pub fn show(&self, now_ms: u64) -> String {
        self.state().show(self.recirc_id().map_or(0, |id| id.0), now_ms)
    }
}

impl State {
    fn show(&self, recirc_id: u32, now_ms: u64) -> String {
        let s = &self.settings;
        let recirc = i64::from(recirc_id);
        let (uses, id) = if self.recirculates() { ("yes", recirc) } else { ("no", -1) };
        let (lb, bond_id) = if self.uses_lb_output() { ("enabled", recirc) } else { ("disabled", -1) };
        let mut out = format!("---- {} ----\nbond_mode: {}\n", self.name, s.mode.name());
        let _ = writeln!(out, "bond may use recirculation: {uses}, Recirc-ID : {id}");
        let _ = writeln!(out, "bond-hash-basis: {}", s.basis);
        let _ = writeln!(out, "lb_output action: {lb}, bond-id: {bond_id}");
        if s.mode == BondMode::BalanceSlb {
            let _ = writeln!(out, "all members active: {}", s.all_members_active);
        }
        let _ = writeln!(out, "updelay: {} ms\ndowndelay: {} ms", s.updelay_ms, s.downdelay_ms);
        if self.is_balanced() {
            let left_ms = i128::from(self.rebalance_at_ms) - i128::from(now_ms);
            let _ = writeln!(out, "next rebalance: {left_ms} ms");
        }
        let _ = writeln!(out, "lacp_status: {}\nlacp_fallback_ab: {}", self.lacp.name(), s.fallback_ab);
        let primary = s.primary.as_deref();
        let is_missing = primary.is_some() && !self.members.iter().any(|m| m.is_primary);
        let missing = if is_missing { " (no such member)" } else { "" };
        let _ = writeln!(out, "active-backup primary: {}{missing}", primary.unwrap_or("<none>"));
        let named = self.members.iter().find(|m| m.mac == self.active_mac);
        let named = named.map_or("none", |m| &m.name);
        let _ = writeln!(out, "active member mac: {}({named})", self.active_mac);
        for member in &self.members {
            let enabled = if member.enabled { "enabled" } else { "disabled" };
            let _ = writeln!(out, "\nmember {}: {enabled}", member.name);
            if self.active == Some(member.id) {
                out.push_str("  active member\n");
            }
            if let Some(end_ms) = member.delay_ends_ms {
                let delay = if member.enabled { "downdelay" } else { "updelay" };
                let _ = writeln!(out, "  {delay} expires in {} ms", i128::from(end_ms) - i128::from(now_ms));
            }
            let _ = writeln!(out, "  may_enable: {}", member.may_enable);
            if self.is_balanced() {
                let buckets = self.buckets.iter().flat_map(|buckets| buckets.iter().enumerate());
                for (hash, bucket) in buckets.filter(|(_, b)| b.member == Some(member.id)) {
                    let kb = bucket.bytes / 1024;
                    if kb > 0 {
                        let _ = writeln!(out, "  hash {hash}: {kb} kB load");
                    }
                }
            }
        }
        out.push('\n');
        out
    }
}
