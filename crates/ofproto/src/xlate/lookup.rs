//! Lookups in tables.

use super::ctx::XlateCtx;
use super::encap::looked_up_type;
use super::trace::TraceEvent;
use crate::cache::XlateEffect;
use crate::tables::Found;
use crate::view::FragHandling;
use flow::{OfPort, TableId, nw_frag};
use openflow::msg::control::TableMiss;

/// The last table that packets reach without a rule.
const LAST_TABLE: TableId = TableId(TableId::COUNT - 1);

impl XlateCtx<'_> {
    /// Looks the packet up in a table and runs the rule found. `honor_miss`: a table miss may go to the controllers.
    pub(super) fn lookup(&mut self, table: TableId, honor_miss: bool) {
        self.lookup_from(self.flow.in_port(), false, table, honor_miss);
    }

    /// As [`XlateCtx::lookup`], with another input port for the lookup, and with `ct` the connection's original
    /// direction. The rule found runs with the packet's own.
    pub(super) fn lookup_from(&mut self, in_port: OfPort, ct: bool, table: TableId, honor_miss: bool) {
        self.table = table;
        let bridge = self.bridge.clone();
        let is_fragment = self.flow.nw_frag & nw_frag::ANY != 0;
        if is_fragment && bridge.frags == FragHandling::Drop {
            return self.drop_fragment(table);
        }
        if ct {
            self.swap_tuples();
        }
        let f = &mut self.flow;
        let own = (f.in_port, f.dl_type, f.tp_src, f.tp_dst);
        (f.in_port, f.dl_type) = (in_port.0, looked_up_type(f));
        if is_fragment && bridge.frags == FragHandling::Normal {
            (f.tp_src, f.tp_dst) = (0, 0);
        }
        let Found { rule, clauses } = loop {
            let table = self.table;
            self.lookups.table(bridge.id, table, &self.flow, &self.original);
            let found = bridge.tables.lookup(table, &self.flow, &mut self.wc);
            let hit = found.rule.is_some();
            if let Some(t) = bridge.tables.table(table) {
                self.cache.push(XlateEffect::Table { counters: t.counters.clone(), hit });
            }
            let goes_on = bridge.tables.miss(table) == Some(TableMiss::Continue) && table < LAST_TABLE;
            if hit || !honor_miss || !goes_on {
                break found;
            }
            self.table = TableId(table.0 + 1);
        };
        let found = rule.cloned();
        (self.flow.in_port, self.flow.dl_type, self.flow.tp_src, self.flow.tp_dst) = own;
        if ct {
            self.swap_tuples();
        }
        let shown_only = self.only_looks;
        let goes_up = found.is_none() && honor_miss && !shown_only && self.miss_goes_up();
        self.trace.push(
            |(table, rule)| TraceEvent::Table { table: *table, rule: rule.clone(), goes_up, shown_only },
            &(self.table, found.clone()),
        );
        for clause in &clauses {
            self.trace.clause(clause);
        }
        match found {
            Some(rule) if shown_only => self.cache.push(XlateEffect::Rule(rule)),
            Some(rule) => self.run_rule(&rule),
            None if goes_up => self.send_miss(),
            None => {}
        }
        self.trace.pop();
    }

    /// A hidden rule of every table matches fragments and drops them.
    fn drop_fragment(&mut self, table: TableId) {
        if let Some(t) = self.bridge.tables.table(table) {
            self.cache.push(XlateEffect::Table { counters: t.counters.clone(), hit: true });
        }
        self.trace.push(|t| TraceEvent::FragmentsDropped(*t), &table);
        self.trace.pop();
    }
}
