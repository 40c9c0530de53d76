//! Settings of a bond, and what LACP says about it.

use flow::MacAddr;

/// Choice of the member that sends a packet (`bond_mode`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BondMode {
    /// One member, until it fails.
    #[default]
    ActiveBackup,
    /// By source address and VLAN.
    BalanceSlb,
    /// By addresses, protocol and ports; needs LACP.
    BalanceTcp,
}

impl BondMode {
    const ALL: [BondMode; 3] = [BondMode::ActiveBackup, BondMode::BalanceSlb, BondMode::BalanceTcp];

    /// Its name in the database.
    pub fn name(self) -> &'static str {
        match self {
            BondMode::ActiveBackup => "active-backup",
            BondMode::BalanceSlb => "balance-slb",
            BondMode::BalanceTcp => "balance-tcp",
        }
    }

    /// The mode of that name.
    pub fn parse(name: &str) -> Option<BondMode> {
        BondMode::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

/// State of the negotiation with the partner.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LacpStatus {
    /// LACP is not configured.
    #[default]
    Off,
    /// It is configured, without a partner that agrees.
    Configured,
    /// A partner agrees.
    Negotiated,
}

impl LacpStatus {
    /// Its name in `bond/show`.
    pub fn name(self) -> &'static str {
        match self {
            LacpStatus::Off => "off",
            LacpStatus::Configured => "configured",
            LacpStatus::Negotiated => "negotiated",
        }
    }
}

/// Settings of a bond.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BondSettings {
    /// `bond_mode`.
    pub mode: BondMode,
    /// `bond_updelay`: time for which a link must be up before its member is enabled.
    pub updelay_ms: u64,
    /// `bond_downdelay`: time for which it must be down before its member is disabled.
    pub downdelay_ms: u64,
    /// `bond-hash-basis`.
    pub basis: u32,
    /// `bond-rebalance-interval`; 0: never.
    pub rebalance_ms: u64,
    /// `lacp-fallback-ab`.
    pub fallback_ab: bool,
    /// `bond-primary`.
    pub primary: Option<String>,
    /// `all-members-active`.
    pub all_members_active: bool,
    /// `lb-output-action`.
    pub lb_output: bool,
    /// `lacp` is `active` or `passive`.
    pub lacp: bool,
    /// Links are read regularly, beside events (`bond-detect-mode` is `miimon`).
    pub polls: bool,
    /// `bond-miimon-interval`: time between two such reads.
    pub poll_ms: u64,
    /// `bond_active_slave`: address of the active member before a restart.
    pub active_mac: Option<MacAddr>,
}

impl BondSettings {
    /// The state before any negotiation.
    pub(super) fn initial_lacp(&self) -> LacpStatus {
        if self.lacp { LacpStatus::Configured } else { LacpStatus::Off }
    }
}
