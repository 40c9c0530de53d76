//! Flow monitors: reports of changed rules to connections.
//!
//! Changes wait, numbered, in [`ofproto::events`]; each monitoring connection has the number of its next one. The
//! report of a new monitor is a dump of one version of the tables: changes after that version wait until its end.
//! Changes wait too for a connection with much unread output. Once all numbers wait, changes of rules pause, and a
//! reader without progress for five seconds is closed.
//!
//! A reader with more than [`PAUSE_BYTES`] of unread reports is paused, as in Open vSwitch: it gets deletions of
//! rules that it knows, but no other changes. Meanwhile [`Stamps`] hold each changed rule with the number of its last
//! change. When all has been read, the rules changed since the pause are reported, in slices, and the connection
//! resumes. All paused connections share the stamps, so they pass each change together.
//!
//! Without monitors nothing is queued.

mod stamps;

pub(super) use stamps::Stamps;

use super::conn::Conn;
use super::stats::Dump;
use super::{BridgeCtx, ConnId, Connmgr};
use flow::PackedMatch;
use ofproto::events::RuleEvent;
use ofproto::flow_mod::LOOKS_PER_CHANGE;
use ofproto::rule::Rule;
use ofproto::tables::{Selected, Selection, Tables};
use openflow::msg::flow_monitor::{
    FlowEvent, FlowMonitorRequest, FlowUpdate, MonitorCommand, MonitorFlags, RuleUpdate,
};
use openflow::{ErrorKind, Message, Multi, Version};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Unread reports beyond which a connection is paused.
pub(super) const PAUSE_BYTES: usize = 128 << 10;
/// Maximum monitors of a connection.
pub(super) const MAX_MONITORS: usize = 256;
/// Changes reported between two checks of the output.
const CHUNK: usize = 256;

/// A monitor.
#[derive(Clone)]
struct Monitor {
    flags: MonitorFlags,
    by: Selection,
    /// Number of the first change to report.
    since: u64,
}

impl Monitor {
    /// The flags if it reports this kind of change of a rule; `old`: its previous version.
    fn reports(&self, kind: MonitorFlags, rule: &Rule, old: Option<&Rule>) -> MonitorFlags {
        if self.flags.contains(kind) && self.by.selects_change(rule, old) {
            self.flags
        } else {
            MonitorFlags::empty()
        }
    }
}

/// The monitors of a connection.
#[derive(Default)]
pub(super) struct Monitors {
    by_id: BTreeMap<u32, Monitor>,
    /// Number of its next change.
    next: u64,
    /// While it is paused: number of the first change unknown to the reader.
    paused: Option<u64>,
    /// Unsent reports: position of the end in the output, bytes.
    unsent: VecDeque<(u64, usize)>,
}

impl Monitors {
    pub(super) fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    fn unsent_bytes(&self) -> usize {
        self.unsent.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Forgets reports before this position of the output.
    pub(super) fn sent(&mut self, until: u64) {
        while self.unsent.front().is_some_and(|(end, _)| *end <= until) {
            self.unsent.pop_front();
        }
    }

    /// Flags of the monitors that report a change.
    fn wanted(&self, n: u64, kind: MonitorFlags, rule: &Rule, old: Option<&Rule>) -> MonitorFlags {
        let since = self.by_id.values().filter(|m| m.since <= n);
        since.fold(MonitorFlags::empty(), |all, m| all | m.reports(kind, rule, old))
    }

    /// The report of change `n` to connection `own`, if it has one.
    fn update(&self, n: u64, event: &RuleEvent, own: ConnId) -> Option<FlowUpdate> {
        let (kind, what, rule, old) = match (&event.change.before, &event.change.after) {
            (None, None) => return None,
            (Some(rule), None) => {
                (MonitorFlags::DELETE, FlowEvent::Deleted(event.cause.reason.on_wire()), rule, None)
            }
            (None, Some(rule)) => (MonitorFlags::ADD, FlowEvent::Added, rule, None),
            (Some(old), Some(rule)) if event.cause.adds => {
                (MonitorFlags::ADD, FlowEvent::Added, rule, Some(old))
            }
            (Some(old), Some(rule)) if differ(old, rule) => {
                (MonitorFlags::MODIFY, FlowEvent::Modified, rule, Some(old))
            }
            (Some(_), Some(_)) => return None,
        };
        let flags = self.wanted(n, kind, rule, old.map(Arc::as_ref));
        match event.cause.request {
            _ if flags.is_empty() => None,
            Some((conn, xid)) if conn == own && !flags.contains(MonitorFlags::OWN) && !self.is_paused() => {
                Some(FlowUpdate::Abbreviated(xid))
            }
            _ => Some(described(rule, what, flags)),
        }
    }
}

/// Whether a change from one version of a rule to another is reported as a modification.
fn differ(old: &Rule, new: &Rule) -> bool {
    old.cookie != new.cookie || !Arc::ptr_eq(&old.actions, &new.actions) && old.actions != new.actions
}

fn described(rule: &Rule, event: FlowEvent, flags: MonitorFlags) -> FlowUpdate {
    let actions =
        if flags.contains(MonitorFlags::ACTIONS) { rule.actions.clone() } else { Arc::from(Vec::new()) };
    FlowUpdate::Rule(RuleUpdate {
        event,
        table: rule.table,
        priority: rule.priority.clamp(0, i32::from(u16::MAX)) as u16,
        idle_timeout_s: rule.timeouts.idle_s(),
        hard_timeout_s: rule.timeouts.hard_s(),
        cookie: rule.cookie,
        matching: rule.matching.clone(),
        actions,
    })
}

fn selection(m: &FlowMonitorRequest) -> Selection {
    Selection {
        table: m.table,
        matching: PackedMatch::from(&*m.matching),
        cookie: 0,
        cookie_mask: 0,
        out_port: m.out_port,
        out_group: m.out_group,
    }
}

/// A report of the present rules to new monitors.
pub(super) struct MonitorDump {
    xid: u32,
    monitors: Vec<Monitor>,
    /// Number of the monitor whose rules are being reported.
    at: usize,
    /// Its remaining rules, of version `tables`.
    selected: Selected,
    tables: Tables,
}

impl MonitorDump {
    /// The next rules, each once, and the work in rules.
    fn next_piece(&mut self, max: usize) -> (Vec<FlowUpdate>, usize) {
        let mut rules = Vec::new();
        let looked = self.selected.next_slice(max, &mut rules);
        let work = rules.len() + looked / LOOKS_PER_CHANGE;
        let (before, _) = self.monitors.split_at(self.at);
        rules.retain(|r| !r.is_hidden() && !before.iter().any(|m| m.by.selects(r)));
        let updates = rules.iter().map(|rule| {
            let flags = self.monitors.iter().map(|m| m.reports(MonitorFlags::INITIAL, rule, None));
            described(rule, FlowEvent::Initial, flags.fold(MonitorFlags::empty(), |all, f| all | f))
        });
        let updates = updates.collect();
        while self.selected.is_done()
            && let Some(next) = self.monitors.get(self.at + 1)
        {
            self.at += 1;
            self.selected = self.tables.select(&next.by);
        }
        (updates, work)
    }
}

impl Conn {
    /// Executes a request: all of its parts, or none.
    pub(super) fn flow_monitor(
        &mut self,
        m: &[FlowMonitorRequest],
        xid: u32,
        ctx: &BridgeCtx<'_>,
    ) -> Result<(), ErrorKind> {
        let mut after = self.monitors.by_id.clone();
        let mut begun = Vec::new();
        for part in m {
            let exists = after.contains_key(&part.id);
            match part.command {
                MonitorCommand::Add if exists => return Err(ErrorKind::MofcMonitorExists),
                MonitorCommand::Add if after.len() >= MAX_MONITORS => return Err(ErrorKind::BrcEperm),
                MonitorCommand::Modify | MonitorCommand::Delete if !exists => {
                    return Err(ErrorKind::MofcUnknownMonitor);
                }
                MonitorCommand::Delete => drop(after.remove(&part.id)),
                MonitorCommand::Add | MonitorCommand::Modify => {
                    let monitor = Monitor { flags: part.flags, by: selection(part), since: 0 };
                    begun.push((part.id, monitor.clone()));
                    after.insert(part.id, monitor);
                }
            }
        }
        let nothing = Message::FlowMonitorReply(Multi::all(Vec::new()));
        if begun.is_empty() {
            self.monitors.by_id = after;
            return self.reply(&nothing, xid);
        }
        let (tables, since) = ctx.backer.watch_rules(ctx.bridge).ok_or(ErrorKind::BrcEperm)?;
        if self.monitors.is_empty() {
            self.monitors.next = since;
        }
        self.monitors.by_id = after;
        for (id, _) in &begun {
            self.monitors.by_id.get_mut(id).into_iter().for_each(|monitor| monitor.since = since);
        }
        let initial = begun.into_iter().map(|(_, m)| m).filter(|m| m.flags.contains(MonitorFlags::INITIAL));
        let initial: Vec<Monitor> = initial.collect();
        let Some(first) = initial.first() else {
            return self.reply(&nothing, xid);
        };
        let selected = tables.select(&first.by);
        let dump = MonitorDump { xid, monitors: initial, at: 0, selected, tables };
        self.dump = Some(Dump::Monitors(Box::new(dump)));
        Ok(())
    }

    pub(super) fn cancel_monitor(&mut self, id: u32) -> Result<(), ErrorKind> {
        self.monitors.by_id.remove(&id).ok_or(ErrorKind::MofcUnknownMonitor)?;
        if self.monitors.is_empty() {
            self.monitors.paused = None;
        }
        Ok(())
    }

    /// Sends the next piece of the report to new monitors; returns its work.
    pub(super) fn continue_monitors(&mut self, mut dump: Box<MonitorDump>, max: usize) -> usize {
        let (entries, work) = dump.next_piece(max);
        let more = !dump.selected.is_done();
        if !entries.is_empty() || !more {
            let reply = Message::FlowMonitorReply(Multi { more, ..Multi::all(entries) });
            // A reply with rules always fits: parts are split, and every rule came in a message of this protocol.
            let _ = self.reply(&reply, dump.xid);
        }
        self.dump = more.then_some(Dump::Monitors(dump));
        work.max(1)
    }

    /// Sends reports of changes, if there are any.
    fn send_updates(&mut self, entries: Vec<FlowUpdate>) {
        if !entries.is_empty() {
            self.send_report(&Message::FlowMonitorReply(Multi::all(entries)));
        }
    }

    fn send_report(&mut self, message: &Message) {
        let before = self.session.output().len();
        // A part that does not fit a message is left out; output that does not fit ends the session.
        let _ = self.reply(message, 0);
        let bytes = self.session.output().len() - before;
        self.monitors.unsent.push_back((self.output_end(), bytes));
    }

    /// Says that changes are no longer reported, or are again.
    fn send_pause(&mut self, message: Message, update: FlowUpdate) {
        if self.version() < Version::V14 {
            self.send_report(&message);
        } else {
            self.send_updates(vec![update]);
        }
    }

    /// Whether it is to get changes now.
    fn takes_changes(&self) -> bool {
        let reports = matches!(self.dump, Some(Dump::Monitors(_)));
        !self.monitors.is_empty() && !self.is_over() && !reports && self.has_event_room()
    }

    /// Reports changes to a connection that is not paused, in batches, until `work` is used up or it must pause.
    pub(super) fn report_changes(&mut self, ctx: &BridgeCtx<'_>, stamps: &mut Stamps, work: &mut usize) {
        while *work > 0 && self.takes_changes() && !self.monitors.is_paused() {
            if self.monitors.unsent_bytes() > PAUSE_BYTES {
                if !stamps.join(self.monitors.next) {
                    return;
                }
                self.monitors.paused = Some(self.monitors.next);
                return self.send_pause(Message::FlowMonitorPaused, FlowUpdate::Paused);
            }
            let changes = ctx.backer.events.changes(ctx.bridge, self.monitors.next, CHUNK.min(*work));
            let Some(first) = changes.first() else { return };
            let batch = changes.iter().take_while(|c| c.cause.batch == first.cause.batch);
            let (mut entries, mut abbreviated) = (Vec::new(), false);
            for change in batch {
                let update = self.monitors.update(self.monitors.next, change, self.id);
                self.monitors.next += 1;
                *work = work.saturating_sub(1);
                let again = abbreviated && matches!(update, Some(FlowUpdate::Abbreviated(_)));
                abbreviated |= matches!(update, Some(FlowUpdate::Abbreviated(_)));
                entries.extend(update.filter(|_| !again));
            }
            self.send_updates(entries);
        }
    }

    /// Reports change `n` to a paused connection: only the deletion of a rule that it knows.
    fn report_deletion(&mut self, n: u64, event: &RuleEvent, stamps: &Stamps) {
        self.monitors.next = n + 1;
        if let (Some(rule), None) = (&event.change.before, &event.change.after)
            && self.monitors.paused.is_some_and(|paused| stamps.first_of(rule) < paused)
        {
            let update = self.monitors.update(n, event, self.id);
            self.send_updates(update.into_iter().collect());
        }
    }

    /// Whether it is paused and has read all.
    pub(super) fn may_resume(&self) -> bool {
        self.monitors.is_paused() && self.monitors.unsent.is_empty() && self.dump.is_none()
    }

    /// Reports rules changed during a pause, within `work`, and ends the pause with the last of them.
    fn resume(&mut self, stamps: &Stamps, work: &mut usize) {
        let Some(mut paused) = self.monitors.paused else { return };
        let mut entries = Vec::new();
        for (n, stamp) in stamps.since(paused).take(CHUNK.min(*work)) {
            let (kind, event) = if stamp.added >= paused {
                (MonitorFlags::ADD | MonitorFlags::MODIFY, FlowEvent::Added)
            } else {
                (MonitorFlags::MODIFY, FlowEvent::Modified)
            };
            let wanted = [MonitorFlags::ADD, MonitorFlags::MODIFY].into_iter().filter(|k| kind.contains(*k));
            let flags = wanted.fold(MonitorFlags::empty(), |all, kind| {
                all | self.monitors.wanted(n, kind, &stamp.rule, None)
            });
            if !flags.is_empty() {
                entries.push(described(&stamp.rule, event, flags));
            }
            paused = n + 1;
            *work = work.saturating_sub(1);
        }
        self.send_updates(entries);
        self.monitors.paused = Some(paused);
        if stamps.since(paused).next().is_none() {
            self.monitors.paused = None;
            self.waits = false;
            self.send_pause(Message::FlowMonitorResumed, FlowUpdate::Resumed);
            // The pause that it ended is over with the last report.
            self.monitors.unsent.clear();
        }
    }
}

impl Connmgr {
    /// Reports changes of rules to the monitors, until `work` is used up or readers must read.
    pub(super) fn send_flow_updates(&mut self, ctx: &BridgeCtx<'_>, now_ms: u64, work: &mut usize) {
        self.updates_again_ms = None;
        if !self.is_monitoring {
            return;
        }
        for conn in self.conns.values_mut() {
            conn.report_changes(ctx, &mut self.shared.stamps, work);
        }
        self.pass_paused(ctx, work);
        for conn in self.conns.values_mut().filter(|c| c.may_resume()) {
            let ends = self.shared.stamps.next() == ctx.backer.events.end(ctx.bridge);
            while ends
                && *work > 0
                && conn.monitors.is_paused()
                && conn.monitors.unsent_bytes() <= PAUSE_BYTES
            {
                conn.resume(&self.shared.stamps, work);
            }
        }
        self.forget_changes(ctx);
        self.hurry_readers(ctx, now_ms);
    }

    /// Passes changes to all paused connections and the stamps.
    fn pass_paused(&mut self, ctx: &BridgeCtx<'_>, work: &mut usize) {
        while *work > 0 && self.conns.values().any(|c| c.monitors.is_paused()) {
            let from = self.shared.stamps.next();
            let changes = ctx.backer.events.changes(ctx.bridge, from, CHUNK.min(*work));
            if changes.is_empty() {
                return;
            }
            for (n, event) in (from..).zip(&changes) {
                let mut paused = self.conns.values_mut().filter(|c| c.monitors.is_paused());
                if !paused.all(|c| c.is_over() || c.has_event_room()) {
                    return;
                }
                for conn in self.conns.values_mut().filter(|c| c.monitors.is_paused()) {
                    conn.report_deletion(n, event, &self.shared.stamps);
                }
                self.shared.stamps.apply(n, event);
                *work = work.saturating_sub(1);
            }
        }
    }

    /// Drops changes that all monitoring connections have passed, and stamps without a paused connection.
    fn forget_changes(&mut self, ctx: &BridgeCtx<'_>) {
        let monitoring = || self.conns.values().filter(|c| !c.monitors.is_empty() && !c.is_over());
        if !monitoring().any(|c| c.monitors.is_paused()) {
            self.shared.stamps = Stamps::default();
        }
        let next =
            |c: &Conn| if c.monitors.is_paused() { self.shared.stamps.next() } else { c.monitors.next };
        match monitoring().map(next).min() {
            Some(n) => ctx.backer.events.passed(ctx.bridge, n),
            None => {
                ctx.backer.unwatch_rules(ctx.bridge);
                self.is_monitoring = false;
            }
        }
    }

    /// Without space for changes, closes readers that make no progress; sets the time of the next check.
    fn hurry_readers(&mut self, ctx: &BridgeCtx<'_>, now_ms: u64) {
        self.changes_end = ctx.backer.events.end(ctx.bridge);
        if !ctx.backer.events.is_full(ctx.bridge) {
            return;
        }
        let end = self.changes_end;
        for conn in self.conns.values_mut().filter(|c| !c.monitors.is_empty() && !c.is_over()) {
            let waits =
                if conn.monitors.is_paused() { !conn.has_event_room() } else { conn.monitors.next < end };
            match waits.then(|| conn.is_stalled(now_ms)) {
                Some(Ok(())) => conn.give_up_reader(),
                Some(Err(at_ms)) => {
                    self.updates_again_ms = Some(self.updates_again_ms.map_or(at_ms, |ms| ms.min(at_ms)));
                }
                None => {}
            }
        }
    }

    /// Whether changes can be reported at once.
    pub(super) fn has_updates(&self) -> bool {
        let monitoring = || self.conns.values().filter(|c| c.takes_changes());
        let paused_wait = monitoring().any(|c| c.monitors.is_paused() && !c.has_event_room());
        self.is_monitoring
            && monitoring().any(|c| match c.monitors.is_paused() {
                true if self.shared.stamps.next() < self.changes_end => !paused_wait,
                true => c.may_resume(),
                false => c.monitors.next < self.changes_end && c.monitors.unsent_bytes() <= PAUSE_BYTES,
            })
    }
}

#[cfg(test)]
mod tests;
