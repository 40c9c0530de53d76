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
        self.lookup_from(self.packet.flow.in_port(), false, table, honor_miss);
    }

    /// As [`XlateCtx::lookup`], with another input port for the lookup, and with `ct` the connection's original
    /// direction. The rule found runs with the packet's own.
    pub(super) fn lookup_from(&mut self, in_port: OfPort, ct: bool, table: TableId, honor_miss: bool) {
        self.control.table = table;
        let bridge = self.bridge.clone();
        let is_fragment = self.packet.flow.nw_frag & nw_frag::ANY != 0;
        if is_fragment && bridge.frags == FragHandling::Drop {
            return self.drop_fragment(table);
        }
        if ct {
            self.swap_tuples();
        }
        let f = &mut self.packet.flow;
        let own = (f.in_port, f.dl_type, f.tp_src, f.tp_dst);
        (f.in_port, f.dl_type) = (in_port.0, looked_up_type(f));
        if is_fragment && bridge.frags == FragHandling::Normal {
            (f.tp_src, f.tp_dst) = (0, 0);
        }
        let Found { rule, clauses } = loop {
            let table = self.control.table;
            self.record.lookups.table(bridge.id, table, &self.packet.flow, &self.packet.original);
            let found = bridge.tables.lookup(table, &self.packet.flow, &mut self.record.wc);
            let hit = found.rule.is_some();
            if let Some(t) = bridge.tables.table(table) {
                self.record.cache.push(XlateEffect::Table { counters: t.counters.clone(), hit });
            }
            let goes_on = bridge.tables.miss(table) == Some(TableMiss::Continue) && table < LAST_TABLE;
            if hit || !honor_miss || !goes_on {
                break found;
            }
            self.control.table = TableId(table.0 + 1);
        };
        let found = rule.cloned();
        (
            self.packet.flow.in_port,
            self.packet.flow.dl_type,
            self.packet.flow.tp_src,
            self.packet.flow.tp_dst,
        ) = own;
        if ct {
            self.swap_tuples();
        }
        let shown_only = self.control.counts_only;
        let goes_up = found.is_none() && honor_miss && !shown_only && self.miss_goes_up();
        self.record.trace.push(
            |(table, rule)| TraceEvent::Table { table: *table, rule: rule.clone(), goes_up, shown_only },
            &(self.control.table, found.clone()),
        );
        for clause in &clauses {
            self.record.trace.clause(clause);
        }
        if !self.passes_mirrors() {
            return self.record.trace.pop();
        }
        match found {
            Some(rule) if shown_only => self.record.cache.push(XlateEffect::Rule(rule)),
            Some(rule) => self.run_rule(&rule),
            None if goes_up => self.send_miss(),
            None => {}
        }
        self.record.trace.pop();
    }

    /// A hidden rule of every table matches fragments and drops them.
    fn drop_fragment(&mut self, table: TableId) {
        if let Some(t) = self.bridge.tables.table(table) {
            self.record.cache.push(XlateEffect::Table { counters: t.counters.clone(), hit: true });
        }
        self.record.trace.push(|t| TraceEvent::FragmentsDropped(*t), &table);
        self.passes_mirrors();
        self.record.trace.pop();
    }
}
