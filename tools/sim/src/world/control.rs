//! Changes by a controller and an operator while packets flow: rules, bundles, meters, ports, learned
//! addresses.

use super::{Broken, FIRST_PORTS, World};
use crate::rules::{self, METERS, RANDOM_TABLES};
use dpif::{Datapath, MeterBand, MeterConfig};
use flow::{Match, TableId};
use ofproto::ports::BundleId;
use ofproto::rule::RuleTimeouts;
use openflow::msg::flow_mod::FlowModFlags;
use std::sync::Arc;

impl World {
    pub(super) fn control(&mut self) {
        self.report.changes += 1;
        self.finish_bundle();
        match self.rng.below(12) {
            0..=1 => self.change_bundle(),
            2 if self.scenario.port_changes => {
                self.report.coverage.port_changes += 1;
                self.toggle_port();
            }
            6 if self.scenario.link_changes => {
                self.report.coverage.config_changes += 1;
                self.change_port_config();
            }
            3 => {
                let bridge = *self.rng.pick(&self.bridges);
                let bundle = BundleId(self.rng.range(1, FIRST_PORTS.into()) as u32);
                if let Some(b) = self.backer.view().bridge(bridge)
                    && sync::lock(&b.macs).flush(self.rng.one_in(2).then_some(bundle))
                {
                    self.backer.bump_epoch();
                }
            }
            4 => {
                let bands = vec![MeterBand { rate: self.rng.range(10, 500) as u32, burst: 10 }];
                let id = self.rng.range(1, METERS.into()) as u32;
                // The ids are in range, so it cannot fail.
                let _ = self.dp.meter_set(id, &MeterConfig { per_packet: self.rng.one_in(2), bands });
            }
            5 => {
                for _ in 0..self.rng.range(2, 6) {
                    self.flow_mod();
                }
            }
            _ => self.flow_mod(),
        }
    }

    /// Adds, changes or deletes rules.
    pub(super) fn flow_mod(&mut self) {
        let bridge = *self.rng.pick(&self.bridges);
        let table = self.rng.below(RANDOM_TABLES.into()) as u8;
        let m = rules::random_match(&mut self.rng, &self.profile);
        let actions = rules::random_actions(&mut self.rng, table, &self.profile);
        let priority = self.rng.range(1, 20) as i32;
        let now_ms = self.now_ms();
        let mut rule = rules::rule(TableId(table), priority, m, actions, now_ms);
        rule.cookie = self.rng.below(4);
        if self.rng.one_in(5) {
            rule.flags = FlowModFlags::SEND_FLOW_REM;
            let idle_s = self.rng.range(1, 5) as u16;
            let hard_s = if self.rng.one_in(2) { self.rng.range(1, 8) as u16 } else { 0 };
            rule.timeouts = RuleTimeouts::new(idle_s, hard_s, &rule.actions);
        }
        let delete = self.rng.one_in(4);
        let which = self.rng.number() as usize;
        self.backer.change_bridge(bridge, |b| {
            if delete {
                let within = b.tables.within(TableId(table), &Match::catchall());
                let mut random: Vec<_> =
                    within.into_iter().filter(|r| (1..=20).contains(&r.priority)).collect();
                random.sort_by_key(|r| (r.priority, format!("{:?}", r.matching)));
                if !random.is_empty() {
                    let r = &random[which % random.len()];
                    b.tables.remove(r.table, &r.matching, r.priority);
                }
            } else if b.tables.rule_count(TableId(table)) < 60 {
                b.tables.insert(Arc::new(rule));
            }
        });
    }

    fn change_bundle(&mut self) {
        self.report.coverage.bundles += 1;
        self.version = self.version.wrapping_add(1);
        let now_ms = self.now_ms();
        let [first, second] = rules::bundle_rules(self.version, now_ms);
        let split = self.broken == Some(Broken::SplitBundle);
        let second_now = if split { None } else { Some(second) };
        if split {
            let [_, second] = rules::bundle_rules(self.version, now_ms);
            self.half_bundle = Some(second);
        }
        self.backer.change(|view| {
            for rule in std::iter::once(first).chain(second_now) {
                let rule = Arc::new(rule);
                for bridge in view.bridges.values_mut() {
                    Arc::make_mut(bridge).tables.insert(rule.clone());
                }
            }
        });
    }

    pub(super) fn finish_bundle(&mut self) {
        let Some(rule) = self.half_bundle.take() else { return };
        let rule = Arc::new(rule);
        self.backer.change(|view| {
            for bridge in view.bridges.values_mut() {
                Arc::make_mut(bridge).tables.insert(rule.clone());
            }
        });
    }
}
