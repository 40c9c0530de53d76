//! State of an earlier process: rules, groups, meters and mappings of tunnel metadata that a bridge begins with.
//!
//! Everything is checked as if a controller had sent it. A part that is refused leaves the others.

use super::{BridgeCtx, ConnKind, Connmgr, Shared};
use flow::TlvTable;
use ofproto::flow_mod::{self, DoneGroupMod, Mod, ModContext, ModQueue, SavedRule};
use openflow::msg::group::{BUCKET_ALL, Group, GroupMod, GroupModCommand};
use openflow::msg::meter::{Meter, MeterMod, MeterModCommand};
use openflow::{ErrorKind, Format, Version};

/// Rules added in one change of the tables.
const AT_ONCE: usize = 4096;

/// State of a bridge.
#[derive(Debug, Default)]
pub struct SavedState {
    /// Mappings of tunnel metadata.
    pub tlv: TlvTable,
    /// Meters.
    pub meters: Vec<Meter>,
    /// Groups.
    pub groups: Vec<Group>,
    /// Rules.
    pub rules: Vec<SavedRule>,
    /// Only the meters come: mappings, groups and rules of the bridge stay.
    pub meters_only: bool,
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
        for meter in &saved.meters {
            let add = MeterMod { command: MeterModCommand::Add, meter: meter.clone() };
            let done = self.shared.meters.change(&add, ctx, now_ms);
            refused.extend(done.err().map(|kind| RefusedPart::Meter(meter.id, kind)));
        }
        let has_meter = |id| self.shared.meters.has(id);
        let cx = ModContext {
            version: Version::V15,
            now_ms,
            debug_actions: ctx.backer.debug_actions,
            has_meter: &has_meter,
            can: ctx.backer.features(),
        };
        restore_groups(&saved.groups, ctx, &cx, &mut refused);
        for (chunk, rules) in saved.rules.chunks(AT_ONCE).enumerate() {
            let failed = flow_mod::restore(ctx.backer, ctx.bridge, rules, &cx);
            refused.extend(failed.into_iter().map(|(n, kind)| RefusedPart::Rule(chunk * AT_ONCE + n, kind)));
        }
        self.shared.restored = if until_admitted { Restored::UntilAdmitted } else { Restored::No };
        self.run_in_band(ctx, now_ms);
        refused
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

/// Adds groups. One may refer to others that come later, so that refused ones are tried again while others succeed.
fn restore_groups(
    groups: &[Group],
    ctx: &BridgeCtx<'_>,
    cx: &ModContext<'_>,
    refused: &mut Vec<RefusedPart>,
) {
    let mut left: Vec<&Group> = groups.iter().collect();
    loop {
        let mut again = Vec::new();
        for group in &left {
            let add = GroupMod {
                format: Format::Standard,
                command: GroupModCommand::Add,
                command_bucket_id: BUCKET_ALL,
                group: (*group).clone(),
            };
            let mut queue = ModQueue::default();
            queue.push(Mod::Group(add), &[]);
            let mut work = usize::MAX;
            let step = queue.step(ctx.backer, ctx.bridge, cx, &mut work);
            ctx.backer.tell_groups(step.groups.iter().filter_map(DoneGroupMod::built));
            again.extend(step.failed.first().map(|(kind, _)| (*group, *kind)));
        }
        if again.is_empty() || again.len() == left.len() {
            refused.extend(again.into_iter().map(|(group, kind)| RefusedPart::Group(group.id, kind)));
            return;
        }
        left = again.into_iter().map(|(group, _)| group).collect();
    }
}
