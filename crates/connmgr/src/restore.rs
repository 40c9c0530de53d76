//! State of an earlier process: rules, groups, meters and mappings of tunnel metadata that a bridge begins with.
//!
//! Everything is checked as if a controller had sent it. A part that is refused leaves the others.

use super::{BridgeCtx, ConnKind, Connmgr, Shared};
use flow::TlvTable;
use ofproto::flow_mod::{self, DoneGroupMod, Mod, ModContext, ModQueue, SavedRule};
use openflow::msg::flow_mod::FlowMod;
use openflow::msg::group::{BUCKET_ALL, Group, GroupMod, GroupModCommand, GroupType};
use openflow::msg::meter::{Meter, MeterMod, MeterModCommand};
use openflow::{ErrorKind, Format, Version};

/// Rules added in one change of the tables.
const AT_ONCE: usize = 4096;

/// A part with the time of its creation, in milliseconds of the monotonic clock, if that is known.
#[derive(Clone, PartialEq, Debug)]
pub struct Dated<T> {
    /// The part.
    pub what: T,
    /// Its creation.
    pub created_ms: Option<u64>,
}

impl<T> Dated<T> {
    /// The time of its creation, which is not later than now.
    fn created_ms(&self, now_ms: u64) -> Option<u64> {
        self.created_ms.map(|created_ms| created_ms.min(now_ms))
    }
}

/// State of a bridge.
#[derive(Debug, Default)]
pub struct SavedState {
    /// Mappings of tunnel metadata.
    pub tlv: TlvTable,
    /// Meters.
    pub meters: Vec<Dated<Meter>>,
    /// Groups.
    pub groups: Vec<Dated<Group>>,
    /// Rules.
    pub rules: Vec<SavedRule>,
    /// Only the meters come: mappings, groups and rules of the bridge stay.
    pub meters_only: bool,
}

/// Changes of the state of a bridge, in another process, since a [`SavedState`].
#[derive(Debug, Default)]
pub struct StateChanges {
    /// All mappings of tunnel metadata, if they changed.
    pub tlv: Option<TlvTable>,
    /// New and changed meters.
    pub meters: Vec<Dated<Meter>>,
    /// Removed ones.
    pub meters_gone: Vec<u32>,
    /// New and changed groups.
    pub groups: Vec<Dated<Group>>,
    /// Removed ones.
    pub groups_gone: Vec<u32>,
    /// New and changed rules.
    pub rules: Vec<SavedRule>,
    /// Removed ones.
    pub rules_gone: Vec<FlowMod>,
}

/// Whether a bridge has state of an earlier process.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Restored {
    /// It has none, or for good.
    #[default]
    No,
    /// Until a controller admits the bridge.
    UntilAdmitted,
    /// A controller has ended it.
    Ended,
}

impl Restored {
    /// Whether a controller has ended it since the last call.
    pub(super) fn take_end(&mut self) -> bool {
        let ended = *self == Restored::Ended;
        if ended {
            *self = Restored::No;
        }
        ended
    }
}

/// A refused part.
#[derive(Debug, PartialEq, Eq)]
pub enum RefusedPart {
    /// A meter.
    Meter(u32, ErrorKind),
    /// A group.
    Group(u32, ErrorKind),
    /// A rule, by its place.
    Rule(usize, ErrorKind),
}

impl Connmgr {
    /// Replaces the bridge's rules, groups and meters by saved ones; returns those that are refused. With
    /// `until_admitted`, a controller that admits the bridge ends them.
    pub fn restore(
        &mut self,
        saved: &SavedState,
        until_admitted: bool,
        ctx: &BridgeCtx<'_>,
        now_ms: u64,
    ) -> Vec<RefusedPart> {
        if !saved.meters_only {
            self.flush(ctx);
            self.in_band.flushed();
            ctx.backer.change_tables(ctx.bridge, |tables| tables.set_tlv(saved.tlv.clone()));
        }
        let mut refused = Vec::new();
        self.add_parts((&saved.meters, &saved.groups, &saved.rules), ctx, now_ms, &mut refused);
        self.shared.restored = if until_admitted { Restored::UntilAdmitted } else { Restored::No };
        self.run_in_band(ctx, now_ms);
        refused
    }

    /// Follows changes of the state in another process, before the bridge has connections; returns the refused ones.
    pub fn follow(&mut self, changes: &StateChanges, ctx: &BridgeCtx<'_>, now_ms: u64) -> Vec<RefusedPart> {
        let StateChanges { tlv, meters, meters_gone, groups, groups_gone, rules, rules_gone } = changes;
        ctx.backer.change_tables(ctx.bridge, |tables| {
            for rule in rules_gone {
                tables.remove(rule.table, &rule.matching, rule.priority.into());
            }
            if let Some(tlv) = tlv {
                tables.set_tlv(tlv.clone());
            }
        });
        let mut refused = Vec::new();
        with_context(&self.shared, ctx, now_ms, |cx| {
            for id in groups_gone {
                let gone = Group { ty: GroupType::All, id: *id, buckets: Vec::new(), selection: None };
                // Its rules are among those that are gone.
                let _ = change_group(GroupModCommand::Delete, &gone, ctx, cx);
            }
        });
        for id in meters_gone {
            let meter = Meter { id: *id, flags: 0, bands: Vec::new() };
            // It may have come and gone.
            let _ =
                self.shared.meters.change(&MeterMod { command: MeterModCommand::Delete, meter }, ctx, now_ms);
        }
        self.add_parts((meters, groups, rules), ctx, now_ms, &mut refused);
        refused
    }

    /// Adds meters, groups and rules, in place of those that are there.
    fn add_parts(
        &mut self,
        (meters, groups, rules): (&[Dated<Meter>], &[Dated<Group>], &[SavedRule]),
        ctx: &BridgeCtx<'_>,
        now_ms: u64,
        refused: &mut Vec<RefusedPart>,
    ) {
        for dated in meters {
            let meter = dated.what.clone();
            let id = meter.id;
            let command =
                if self.shared.meters.has(id) { MeterModCommand::Modify } else { MeterModCommand::Add };
            let done = self.shared.meters.change(&MeterMod { command, meter }, ctx, now_ms);
            if let Some(created_ms) = dated.created_ms(now_ms) {
                self.shared.meters.date(id, created_ms, ctx);
            }
            refused.extend(done.err().map(|kind| RefusedPart::Meter(id, kind)));
        }
        with_context(&self.shared, ctx, now_ms, |cx| {
            add_groups(groups, ctx, cx, refused);
            let dates = groups.iter().filter_map(|group| Some((group.what.id, group.created_ms(now_ms)?)));
            if !groups.is_empty() {
                ctx.backer.change_tables(ctx.bridge, |tables| tables.date_groups(dates));
            }
            for (chunk, rules) in rules.chunks(AT_ONCE).enumerate() {
                let failed = flow_mod::restore(ctx.backer, ctx.bridge, rules, cx);
                let failed = failed.into_iter();
                refused.extend(failed.map(|(n, kind)| RefusedPart::Rule(chunk * AT_ONCE + n, kind)));
            }
        });
    }
}

impl Shared {
    /// Notes that a connection admits the bridge. A controller ends restored state: it begins with no rules, as after a
    /// start without them.
    pub(super) fn admitted_by(&mut self, kind: ConnKind, ctx: &BridgeCtx<'_>) {
        if kind == ConnKind::Controller && self.restored == Restored::UntilAdmitted {
            self.restored = Restored::Ended;
            flow_mod::flush(ctx.backer, ctx.bridge);
            self.meters.clear(ctx);
        }
    }
}

/// Calls `change` with the context of a modification of the latest version.
fn with_context(shared: &Shared, ctx: &BridgeCtx<'_>, now_ms: u64, change: impl FnOnce(&ModContext<'_>)) {
    let has_meter = |id| shared.meters.has(id);
    change(&ModContext {
        version: Version::V15,
        now_ms,
        debug_actions: ctx.backer.debug_actions,
        has_meter: &has_meter,
        can: ctx.backer.features(),
    });
}

/// Adds groups, in place of those that are there. One may refer to others that come later, so that refused ones are tried
/// again while others succeed.
fn add_groups(
    groups: &[Dated<Group>],
    ctx: &BridgeCtx<'_>,
    cx: &ModContext<'_>,
    refused: &mut Vec<RefusedPart>,
) {
    let mut left: Vec<&Dated<Group>> = groups.iter().collect();
    loop {
        let mut again = Vec::new();
        for group in &left {
            let failed = change_group(GroupModCommand::AddOrModify, &group.what, ctx, cx);
            again.extend(failed.map(|kind| (*group, kind)));
        }
        if again.is_empty() || again.len() == left.len() {
            refused.extend(again.into_iter().map(|(group, kind)| RefusedPart::Group(group.what.id, kind)));
            return;
        }
        left = again.into_iter().map(|(group, _)| group).collect();
    }
}

/// Changes a group; returns the error.
fn change_group(
    command: GroupModCommand,
    group: &Group,
    ctx: &BridgeCtx<'_>,
    cx: &ModContext<'_>,
) -> Option<ErrorKind> {
    let change =
        GroupMod { format: Format::Standard, command, command_bucket_id: BUCKET_ALL, group: group.clone() };
    let mut queue = ModQueue::default();
    queue.push(Mod::Group(change), &[]);
    let mut work = usize::MAX;
    let step = queue.step(ctx.backer, ctx.bridge, cx, &mut work);
    ctx.backer.tell_groups(step.groups.iter().filter_map(DoneGroupMod::built));
    step.failed.first().map(|(kind, _)| *kind)
}
