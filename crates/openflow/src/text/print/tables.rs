//! Configuration of tables, and their counters.

use super::{Printer, put};
use crate::msg::control::{TableMiss, TableMod, TableReason, TableStatus, Vacancy, table_config};
use crate::{Multi, Version};
use flow::TableId;
use flow::text::format_table;
use std::fmt::Write as _;

/// `OFPTMPEF14_*`.
const EVICTION: [(u32, &str); 3] = [(1, "OTHER"), (2, "IMPORTANCE"), (4, "LIFETIME")];

fn miss_name(config: u32) -> &'static str {
    match TableMiss::from_config(config) {
        Some(TableMiss::Continue) => "continue",
        Some(TableMiss::Drop) => "drop",
        Some(TableMiss::Controller) | None => "controller",
    }
}

pub(super) fn miss_line(config: u32) -> String {
    format!("    config={}\n", miss_name(config))
}

fn on(config: u32, bit: u32) -> &'static str {
    if config & bit != 0 { "on" } else { "off" }
}

impl Printer<'_> {
    pub(super) fn table_mod(&mut self, m: &TableMod) {
        match m.table {
            TableId::ALL => self.out.push_str(" table_id: ALL_TABLES"),
            table => put!(self.out, " table_id={}", format_table(table, self.how.names)),
        }
        if self.version <= Version::V12 {
            put!(self.out, ", flow_miss_config={}", miss_name(m.config));
        }
        if self.version >= Version::V14 {
            let eviction = match m.eviction {
                // With this property OVS takes no other setting of eviction.
                Some(_) if m.config & table_config::EVICTION == 0 => "off",
                _ => on(m.config, table_config::EVICTION),
            };
            put!(self.out, ", eviction={eviction}");
            put!(self.out, ", vacancy={}", on(m.config, table_config::VACANCY_EVENTS));
            if let (Some(v), true) = (m.vacancy, m.config & table_config::VACANCY_EVENTS != 0) {
                put!(self.out, " vacancy:{},{}", v.down_percent, v.up_percent);
            }
        }
    }

    fn table_desc(&mut self, m: &TableMod) {
        put!(self.out, "\n  table {}:\n", format_table(m.table, self.how.names));
        let eviction = on(m.config, table_config::EVICTION);
        let flags = match m.eviction {
            None => "(default)".to_string(),
            Some(bits) => super::bit_names(bits, &EVICTION, "|"),
        };
        put!(self.out, "   eviction={eviction} eviction_flags={flags}\n");
        let vacancy = on(m.config, table_config::VACANCY_EVENTS);
        put!(self.out, "   vacancy={vacancy}");
        if m.config & table_config::VACANCY_EVENTS != 0 {
            let none = Vacancy { down_percent: 0, up_percent: 0, now_percent: 0 };
            let v = m.vacancy.unwrap_or(none);
            put!(
                self.out,
                " vacancy_down={}% vacancy_up={}% vacancy={}%",
                v.down_percent,
                v.up_percent,
                v.now_percent
            );
        }
        self.out.push('\n');
    }

    pub(super) fn table_descs(&mut self, m: &Multi<TableMod>) {
        m.entries.iter().for_each(|desc| self.table_desc(desc));
    }

    pub(super) fn table_status(&mut self, m: &TableStatus) {
        let reason = match m.reason {
            TableReason::VacancyDown => "VACANCY_DOWN",
            TableReason::VacancyUp => "VACANCY_UP",
        };
        put!(self.out, " reason={reason}\ntable_desc:-");
        self.table_desc(&m.desc);
    }
}
