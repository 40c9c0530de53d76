//! Behaviour of a bridge without controllers (`Bridge.fail_mode`).
//!
//! A bridge without configured controllers is a learning switch (by a rule of priority 0, visible to controllers),
//! or, in secure mode, has no rules. A bridge without a connected controller for three times the probe interval
//! becomes a learning switch by a hidden rule, above all others, until one reconnects; in secure mode it keeps its
//! rules.

use super::{BridgeCtx, Connmgr};
use crate::flow_mod;
use crate::rule::{Rule, RuleStats, RuleTimeouts};
use flow::{Match, OfPort, TableId};
use ofp_actions::{Action, Output};
use openflow::msg::flow_mod::FlowModFlags;
use std::sync::Arc;

/// Priority of the fail-open rule; above every priority of OpenFlow.
pub(super) const FAIL_OPEN_PRIORITY: i32 = 0x00f0_f0f0;
/// Probe intervals without a controller until fail-open.
const PROBES_TO_FAIL: u64 = 3;

/// `Bridge.fail_mode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FailMode {
    /// Standalone: a learning switch without controllers.
    #[default]
    Standalone,
    /// Secure: keep the rules.
    Secure,
}

/// Configuration of a bridge's controllers in the database.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RemoteConfig {
    /// Fail mode.
    pub fail_mode: FailMode,
    /// Whether a controller is configured.
    pub has_controllers: bool,
    /// The maximum of their probe intervals; 0 disables fail-open.
    pub max_probe_interval_ms: u64,
}

/// Fail-mode state machine of a bridge.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Governance {
    Controllers,
    Standalone,
    Nobody,
}

impl RemoteConfig {
    fn governance(&self) -> Governance {
        match (self.has_controllers, self.fail_mode) {
            (true, _) => Governance::Controllers,
            (false, FailMode::Standalone) => Governance::Standalone,
            (false, FailMode::Secure) => Governance::Nobody,
        }
    }
}

#[derive(Default)]
pub(super) struct FailState {
    config: Option<RemoteConfig>,
    /// Time of losing the last controller; `None` while one is connected.
    alone_since_ms: Option<u64>,
    open: bool,
}

impl FailState {
    pub(super) fn controllers_seen(&mut self, connected: bool, now_ms: u64) {
        if connected {
            self.alone_since_ms = None;
        } else {
            self.alone_since_ms.get_or_insert(now_ms);
        }
    }

    /// Time of fail-open.
    fn fails_at_ms(&self) -> Option<u64> {
        let config = self.config?;
        let may = config.has_controllers
            && config.fail_mode == FailMode::Standalone
            && config.max_probe_interval_ms > 0;
        let since_ms = self.alone_since_ms?;
        may.then(|| since_ms.saturating_add(config.max_probe_interval_ms.saturating_mul(PROBES_TO_FAIL)))
    }

    pub(super) fn next_wakeup_ms(&self) -> Option<u64> {
        if self.open { None } else { self.fails_at_ms() }
    }
}

/// The rule of a learning switch.
fn normal_rule(priority: i32, now_ms: u64) -> Rule {
    let stats = RuleStats::default();
    stats.credit(0, 0, now_ms);
    Rule {
        table: TableId(0),
        matching: Match::catchall().into(),
        priority,
        cookie: 0,
        timeouts: RuleTimeouts::new(0, 0, &[]),
        importance: 0,
        flags: FlowModFlags::empty(),
        actions: [Action::Output(Output { port: OfPort::NORMAL, max_len_bytes: 0 })].into(),
        created_ms: now_ms,
        modified_ms: now_ms,
        stats: Arc::new(stats),
    }
}

fn add_normal(ctx: &BridgeCtx<'_>, priority: i32, now_ms: u64) {
    ctx.backer.change_tables(ctx.bridge, |t| t.insert(Arc::new(normal_rule(priority, now_ms))));
}

impl Connmgr {
    /// Applies the configuration of the bridge's controllers, at start and after changes. Flushes the rules if the
    /// bridge gets its first controller, loses its last, or without controllers changes its mode.
    pub fn configure(&mut self, config: RemoteConfig, ctx: &BridgeCtx<'_>, now_ms: u64) {
        let was = self.fail.config.replace(config);
        let now = config.governance();
        let changed = was.is_none_or(|was| was.governance() != now);
        if changed {
            self.finish_commit(ctx, now_ms);
        }
        if was.is_some() && changed {
            flow_mod::flush(ctx.backer, ctx.bridge);
            self.fail.open = false;
        }
        if changed && now == Governance::Standalone {
            add_normal(ctx, 0, now_ms);
        }
        if changed {
            self.fail.alone_since_ms = (!self.controller_is_connected()).then_some(now_ms);
        }
        self.run_fail_open(ctx, now_ms);
    }

    /// Whether the bridge is in fail-open mode.
    pub fn is_fail_open(&self) -> bool {
        self.fail.open
    }

    /// Removes the meters of a deleted bridge from the datapath.
    pub fn shut_down(&mut self, ctx: &BridgeCtx<'_>) {
        self.conns.clear();
        self.shared.commit = None;
        self.shared.meters.clear(ctx);
    }

    pub(super) fn run_fail_open(&mut self, ctx: &BridgeCtx<'_>, now_ms: u64) {
        let failed = self.fail.fails_at_ms().is_some_and(|at| now_ms >= at);
        if failed == self.fail.open {
            return;
        }
        self.finish_commit(ctx, now_ms);
        self.fail.open = failed;
        if failed {
            flow_mod::flush(ctx.backer, ctx.bridge);
            add_normal(ctx, FAIL_OPEN_PRIORITY, now_ms);
        } else {
            let everything = Match::catchall().into();
            ctx.backer.change_tables(ctx.bridge, |t| t.remove(TableId(0), &everything, FAIL_OPEN_PRIORITY));
        }
    }
}
