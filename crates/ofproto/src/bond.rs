//! Bonds: several interfaces of a port as one link. Which member sends a packet, and which takes one.
//!
//! A [`Bond`] belongs to a bundle of a view and to the thread that runs it. [`Bond::update`] changes its state: links,
//! delays, settings, commands. It says whether translations that looked at the bond may come out differently; the caller then
//! starts an epoch ([`Backer::bond_changed`](crate::backer::Backer::bond_changed)). Translations only read, except that the first packet of a hash
//! gives its bucket a member, which no earlier translation saw.
//!
//! Callers pass the time; members have a limit of their port's interfaces, buckets are [`BUCKETS`].

mod balance;
mod choose;
mod hash;
mod member;
mod settings;
mod show;
#[cfg(test)]
mod tests;

pub use choose::{Admission, Way};
pub use hash::slb_hash;
pub use member::MemberLink;
pub use settings::{BondMode, BondSettings, LacpStatus};
pub use show::{HashRule, ListRow};

use flow::{MacAddr, OfPort, RecircId};
use member::{Member, MemberId};
use std::collections::VecDeque;
use std::fmt;
use sync::{AtomicU32, Mutex, MutexGuard, Ordering};

/// Hash values of a balanced bond.
pub const BUCKETS: usize = 256;

/// Messages kept for the log between two runs.
const LINES_MAX: usize = 64;

/// The share of one hash value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bucket {
    member: Option<MemberId>,
    /// Bytes sent, halved at each rebalancing.
    bytes: u64,
    /// Packets and bytes sent in all.
    sent: [u64; 2],
}

/// State of a bond.
#[derive(Debug)]
pub struct State {
    name: Box<str>,
    settings: BondSettings,
    lacp: LacpStatus,
    /// By name.
    members: Vec<Member>,
    /// Enabled ones, in the order of their next turn.
    turns: VecDeque<MemberId>,
    active: Option<MemberId>,
    active_mac: MacAddr,
    buckets: Option<Box<[Bucket; BUCKETS]>>,
    rebalance_at_ms: u64,
    /// The hash values have members since then.
    buckets_since_ms: u64,
    next_member: u32,
    changed: bool,
    learning_due: bool,
    lines: Vec<String>,
}

/// Result of a change.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Translations that looked at the bond may come out differently.
    pub changed: bool,
    /// The neighbours have to learn addresses at another member.
    pub announce: bool,
    /// Messages for the log.
    pub lines: Vec<String>,
}

/// A bond, shared by views and the thread that runs it.
pub struct Bond {
    name: Box<str>,
    /// The recirculation id of a balanced bond, which is also its number in `lb_output`; 0 without one.
    recirc: AtomicU32,
    state: Mutex<State>,
}

impl fmt::Debug for Bond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bond").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Each bond is equal to itself only.
impl PartialEq for Bond {
    fn eq(&self, other: &Bond) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Bond {}

impl Bond {
    /// A bond without members.
    pub fn new(name: &str, settings: BondSettings, now_ms: u64) -> Bond {
        let state = State::new(name, settings, now_ms);
        Bond { name: name.into(), recirc: AtomicU32::new(0), state: Mutex::new(state) }
    }

    /// Its port.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its recirculation id, if it has one.
    pub fn recirc_id(&self) -> Option<RecircId> {
        Some(RecircId(self.recirc.load(Ordering::Acquire))).filter(|id| id.0 != 0)
    }

    /// Sets that.
    pub fn set_recirc_id(&self, id: Option<RecircId>) {
        self.recirc.store(id.map_or(0, |id| id.0), Ordering::Release);
    }

    /// Its state, for readers.
    pub fn state(&self) -> MutexGuard<'_, State> {
        sync::lock(&self.state)
    }

    /// Changes it, and does what is due by then.
    pub fn update(&self, now_ms: u64, change: impl FnOnce(&mut State)) -> Outcome {
        let mut state = self.state();
        change(&mut state);
        state.run(now_ms)
    }
}

impl State {
    fn new(name: &str, settings: BondSettings, now_ms: u64) -> State {
        let mut state = State {
            name: name.into(),
            lacp: settings.initial_lacp(),
            active_mac: settings.active_mac.unwrap_or_default(),
            settings,
            members: Vec::new(),
            turns: VecDeque::new(),
            active: None,
            buckets: None,
            rebalance_at_ms: 0,
            buckets_since_ms: now_ms,
            next_member: 0,
            changed: true,
            learning_due: false,
            lines: Vec::new(),
        };
        state.reset_buckets(now_ms);
        state
    }

    /// Its settings.
    pub fn settings(&self) -> &BondSettings {
        &self.settings
    }

    /// Changes the settings.
    pub fn configure(&mut self, settings: BondSettings, now_ms: u64) {
        let before = std::mem::replace(&mut self.settings, settings);
        let now = &self.settings;
        let deciding = |s: &BondSettings| {
            let BondSettings {
                mode,
                basis,
                rebalance_ms,
                fallback_ab,
                primary,
                all_members_active,
                lb_output,
                lacp,
                // Used from now on; the address only by a new bond.
                updelay_ms: _,
                downdelay_ms: _,
                polls: _,
                poll_ms: _,
                active_mac: _,
            } = s;
            (
                (*mode, *basis, *rebalance_ms, *fallback_ab),
                (primary.clone(), *all_members_active, *lb_output, *lacp),
            )
        };
        let differs = deciding(&before) != deciding(now);
        if before.lacp != now.lacp {
            self.lacp = now.initial_lacp();
        }
        for member in &mut self.members {
            member.is_primary = self.settings.primary.as_deref() == Some(&*member.name);
        }
        if differs {
            self.changed = true;
            self.reset_buckets(now_ms);
        }
    }

    /// Sets whether the members' partners agreed.
    pub fn set_lacp(&mut self, status: LacpStatus, now_ms: u64) {
        if self.lacp != status {
            self.lacp = status;
            self.changed = true;
            if self.falls_back() || self.buckets.is_none() {
                self.reset_buckets(now_ms);
            }
        }
    }

    /// Without LACP negotiated, it is an active-backup bond.
    fn falls_back(&self) -> bool {
        self.settings.fallback_ab
            && self.settings.mode != BondMode::ActiveBackup
            && self.lacp == LacpStatus::Configured
    }

    fn reset_buckets(&mut self, now_ms: u64) {
        let balances = self.settings.mode != BondMode::ActiveBackup && !self.falls_back();
        self.buckets = balances.then(|| Box::new([Bucket::default(); BUCKETS]));
        self.buckets_since_ms = now_ms;
        if balances {
            self.rebalance_at_ms = now_ms.saturating_add(self.settings.rebalance_ms);
        }
    }

    fn line(&mut self, line: String) {
        if self.lines.len() < LINES_MAX {
            self.lines.push(line);
        }
    }

    /// Whether the datapath hashes packets, and they return.
    fn recirculates(&self) -> bool {
        self.settings.mode == BondMode::BalanceTcp && !self.falls_back()
    }

    /// Whether `lb_output` takes the place of that.
    pub fn uses_lb_output(&self) -> bool {
        self.settings.lb_output && self.recirculates()
    }

    /// Whether it moves load between members.
    pub fn is_balanced(&self) -> bool {
        self.settings.rebalance_ms > 0
            && self.settings.mode != BondMode::ActiveBackup
            && !(self.settings.fallback_ab && self.lacp == LacpStatus::Configured)
    }

    /// Follows links and delays up to that time.
    fn run(&mut self, now_ms: u64) -> Outcome {
        for at in 0..self.members.len() {
            self.follow_link(at, now_ms);
        }
        let primary = (self.settings.mode == BondMode::ActiveBackup)
            .then(|| self.members.iter().find(|m| m.is_primary && m.enabled).map(|m| m.id))
            .flatten();
        let active_works = self.active.and_then(|id| self.member(id)).is_some_and(|m| m.enabled);
        if !active_works || primary.is_some_and(|id| self.active != Some(id)) {
            self.choose_active(now_ms);
        }
        let learning = std::mem::take(&mut self.learning_due);
        Outcome {
            changed: std::mem::take(&mut self.changed),
            announce: learning && self.may_announce(),
            lines: std::mem::take(&mut self.lines),
        }
    }

    fn may_announce(&self) -> bool {
        let alone = self.lacp == LacpStatus::Off && self.settings.mode != BondMode::BalanceTcp;
        let falls_back = self.settings.fallback_ab && self.lacp == LacpStatus::Configured;
        (alone || falls_back) && self.active.is_some()
    }

    /// When a delay ends.
    pub fn next_wakeup_ms(&self) -> Option<u64> {
        self.members.iter().filter_map(|m| m.delay_ends_ms).min()
    }

    /// The address of the active member, to be kept over a restart; zeros without one.
    pub fn active_mac(&self) -> MacAddr {
        self.active_mac
    }

    /// The port of the active member.
    pub fn active_port(&self) -> Option<OfPort> {
        self.active.and_then(|id| self.member(id)).map(|m| m.port)
    }
}
