//! Table features (OpenFlow 1.3 §7.3.5.5): the same for all tables and bridges but for names and limits, so built once
//! for each numbering. Controllers change names; a request for other features than those there are is refused.
//! The abilities in table statistics of OpenFlow 1.1 and 1.2 tell the same.
//!
//! Derived from the field registry: fields with a header of their own are matchable, writable fields are settable.

use super::BridgeCtx;
use super::conn::Conn;
use super::requests::Request;
use flow::TableId;
use flow::fields::{ALL_FIELDS, FieldId};
use ofproto::tables::{TABLE_MAX_RULES, Tables};
use openflow::msg::control::ControllerRole;
use openflow::msg::features::{MatchField, RuleFeatures, TableFeatures, TableFeaturesCommand};
use openflow::msg::stats::TableAbilities;
use openflow::{ErrorKind, Message, Multi, OfError, Version};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::OnceLock;

/// `OFPIT_*`: goto, metadata, write, apply, clear, meter.
const INSTRUCTIONS: [u16; 6] = [1, 2, 3, 4, 5, 6];
/// `OFPIT_METER`, in OpenFlow 1.5 an action.
const METER: u16 = 6;
/// `OFPIT_GOTO_TABLE`, absent in the last table.
const GOTO_TABLE: u16 = 1;
/// `OFPAT_*`: output, set and decrement MPLS TTL, push and pop VLAN and MPLS, set queue, group, set and decrement TTL, set
/// field.
const ACTIONS: [u16; 12] = [0, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, SET_FIELD];
/// `OFPAT_SET_FIELD` of OpenFlow 1.2.
const SET_FIELD: u16 = 25;
/// `OFPAT_*` of OpenFlow 1.1 that set fields.
const SETTERS_11: [u16; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 13, 14];
/// `OFPFMF_*` of OpenFlow 1.1, without the match type.
const FIELDS_11: u64 = 0xfbff;
/// `OFPFW10_ALL`: every field of OpenFlow 1.0 can be left out.
const WILDCARDS_10: u64 = (1 << 22) - 1;
/// Class of the basic OXM fields.
const CLASS_BASIC: u16 = 0x8000;

/// The reply to a request for table features, with the names and limits of these tables.
pub(super) fn reply(version: Version, tables: &Tables) -> Cow<'static, Message> {
    let all = common(version);
    if !tables.has_settings() {
        return Cow::Borrowed(all);
    }
    let mut own = all.clone();
    if let Message::TableFeaturesReply(m) = &mut own {
        for features in &mut m.entries {
            features.name = tables.name(features.table).to_string();
            features.max_entries = tables.limit(features.table);
        }
    }
    Cow::Owned(own)
}

/// The reply for tables without settings.
fn common(version: Version) -> &'static Message {
    static REPLY_13: OnceLock<Message> = OnceLock::new();
    static REPLY_15: OnceLock<Message> = OnceLock::new();
    let reply = if version >= Version::V15 { &REPLY_15 } else { &REPLY_13 };
    let all = || (0..TableId::COUNT).map(|n| features(n, version)).collect();
    reply.get_or_init(|| Message::TableFeaturesReply(Multi::all(all())))
}

/// The abilities of a table in the numbers of a version; OpenFlow 1.3 replaced them by table features.
pub(super) fn abilities(table: TableId, version: Version) -> TableAbilities {
    let bits = |types: &[u16]| types.iter().fold(0, |set, ty| set | 1u32 << ty);
    let basic = |writable: bool| {
        let fields = ALL_FIELDS.iter().filter(|f| !writable || f.def().writable);
        // As in OVS, also those of later versions that have no other header.
        let is_in = |field: &FieldId, since: u8| {
            since <= version.0 || field.def().nxm.is_none() && *field != FieldId::ActsetOutput
        };
        let ids = fields.filter_map(|f| f.def().oxm.filter(|(_, since)| is_in(f, *since))).map(|(id, _)| id);
        ids.filter(|id| id.class == CLASS_BASIC && id.field < 64).fold(0, |set, id| set | 1u64 << id.field)
    };
    let has = |i: u16| i != METER && !(i == GOTO_TABLE && is_last(table));
    let instructions: Vec<u16> = INSTRUCTIONS.into_iter().filter(|i| has(*i)).collect();
    let actions: Vec<u16> = match version {
        Version::V11 => ACTIONS.into_iter().filter(|ty| *ty != SET_FIELD).chain(SETTERS_11).collect(),
        _ => ACTIONS.to_vec(),
    };
    match version {
        Version::V10 => TableAbilities { wildcards: WILDCARDS_10, ..TableAbilities::default() },
        Version::V11 => TableAbilities {
            matches: FIELDS_11,
            wildcards: FIELDS_11,
            instructions: bits(&instructions),
            write_actions: bits(&actions),
            apply_actions: bits(&actions),
            ..TableAbilities::default()
        },
        _ => TableAbilities {
            matches: basic(false),
            wildcards: basic(false),
            instructions: bits(&instructions),
            write_actions: bits(&actions),
            apply_actions: bits(&actions),
            write_set_fields: basic(true),
            apply_set_fields: basic(true),
            metadata_match: u64::MAX,
            metadata_write: u64::MAX,
            config: 0,
        },
    }
}

fn is_last(table: TableId) -> bool {
    table.0 + 1 == TableId::COUNT
}

fn features(n: u8, version: Version) -> TableFeatures {
    let has_own_header = |f: &FieldId| f.def().nxm.is_some() || f.def().oxm.is_some();
    let fields = || ALL_FIELDS.iter().copied().filter(has_own_header);
    let writable: Vec<FieldId> = fields().filter(|f| f.def().writable).collect();
    let has = |i: u16| !(is_last(TableId(n)) && i == GOTO_TABLE || version >= Version::V15 && i == METER);
    let rules = RuleFeatures {
        instructions: INSTRUCTIONS.into_iter().filter(|i| has(*i)).collect(),
        next_tables: (n + 1..TableId::COUNT).map(TableId).collect(),
        write_actions: ACTIONS.to_vec(),
        apply_actions: ACTIONS.to_vec(),
        write_set_fields: writable.clone(),
        apply_set_fields: writable,
    };
    TableFeatures {
        table: TableId(n),
        command: TableFeaturesCommand::Replace,
        name: String::new(),
        metadata_match: u64::MAX,
        metadata_write: u64::MAX,
        config: 0,
        max_entries: TABLE_MAX_RULES,
        miss: Some(rules.clone()),
        rules,
        matches: fields().map(|field| MatchField { field, maskable: field.def().maskable }).collect(),
        wildcards: fields().collect(),
        has_properties: true,
    }
}

/// Time until the next part of a request is due.
const PART_IDLE_MS: u64 = 1000;
/// Maximum requests of a connection that wait for their next parts.
const PARTIAL_MAX: usize = 4;
/// Type of the multipart messages: `OFPMP_TABLE_FEATURES`.
const OFPMP_TABLE_FEATURES: u16 = 12;

/// A request to change tables whose last part is still to come.
pub(super) struct PartialChange {
    entries: Vec<Entry>,
    /// A part was refused: the rest is ignored.
    is_refused: bool,
    /// Beginning of its last part, for errors.
    head: Box<[u8]>,
    expires_ms: u64,
}

/// An entry of a request: the changes of one table.
struct Entry {
    table: TableId,
    command: TableFeaturesCommand,
    name: String,
    /// It asks for features that the table lacks.
    exceeds: bool,
}

/// Whether all of `part` is in `whole`.
fn within<T: PartialEq>(part: &[T], whole: &[T]) -> bool {
    part.iter().all(|one| whole.contains(one))
}

fn rules_within(part: &RuleFeatures, whole: &RuleFeatures) -> bool {
    within(&part.instructions, &whole.instructions)
        && within(&part.next_tables, &whole.next_tables)
        && within(&part.write_actions, &whole.write_actions)
        && within(&part.apply_actions, &whole.apply_actions)
        && within(&part.write_set_fields, &whole.write_set_fields)
        && within(&part.apply_set_fields, &whole.apply_set_fields)
}

/// Whether a table has all that the request describes.
fn has_all(asked: &TableFeatures, version: Version) -> bool {
    let Message::TableFeaturesReply(all) = common(version) else { return false };
    let Some(own) = all.entries.iter().find(|own| own.table == asked.table) else { return false };
    let can_match =
        |f: &MatchField| own.matches.iter().any(|has| has.field == f.field && (has.maskable || !f.maskable));
    let miss_within = match (&asked.miss, &own.miss) {
        (Some(asked), Some(own)) => rules_within(asked, own),
        (Some(asked), None) => rules_within(asked, &own.rules),
        (None, _) => true,
    };
    !asked.has_properties
        || rules_within(&asked.rules, &own.rules)
            && miss_within
            && asked.matches.iter().all(can_match)
            && within(&asked.wildcards, &own.wildcards)
}

/// The transaction of a request for table features that is followed by more parts.
fn continued(e: &OfError) -> Option<u32> {
    let half = |at: usize| Some(u16::from_be_bytes([*e.data.get(at)?, *e.data.get(at + 1)?]));
    let is_part = half(8)? == OFPMP_TABLE_FEATURES && half(10)? & 1 != 0 && e.version >= Version::V13;
    is_part.then_some(e.xid)
}

impl Conn {
    /// A part of a request for table features: reads them, or changes tables once all parts are there. Each part
    /// refused is reported once, and ends the request.
    pub(super) fn table_features(
        &mut self,
        m: &Multi<TableFeatures>,
        request: &Request<'_>,
        ctx: &BridgeCtx<'_>,
    ) -> Result<(), ErrorKind> {
        let bridge = ctx.bridge_view().ok_or(ErrorKind::TffcEperm)?;
        let waiting = self.table_changes.remove(&request.xid);
        if m.entries.is_empty() && !m.more && waiting.is_none() {
            return self.reply(&reply(self.version(), &bridge.tables), request.xid);
        }
        if self.role == ControllerRole::Slave {
            return Err(ErrorKind::BrcIsSlave);
        }
        if m.more && waiting.is_none() && self.table_changes.len() >= PARTIAL_MAX {
            return Err(ErrorKind::BrcMultipartBufferOverflow);
        }
        let mut change = waiting.unwrap_or_else(PartialChange::new);
        let added = if change.is_refused { Ok(()) } else { change.add(m, self.version(), &bridge.tables) };
        change.is_refused |= added.is_err();
        if m.more {
            change.head = request.frame[..request.frame.len().min(64)].into();
            change.expires_ms = request.now_ms + PART_IDLE_MS;
            self.table_changes.insert(request.xid, change);
            return added;
        }
        added?;
        if change.is_refused {
            return Ok(());
        }
        change.check(&bridge.tables)?;
        ctx.backer.change_bridge(ctx.bridge, |b| {
            change.entries.iter().for_each(|e| b.tables.set_name(e.table, &e.name));
        });
        let bridge = ctx.bridge_view().ok_or(ErrorKind::TffcEperm)?;
        self.reply(&reply(self.version(), &bridge.tables), request.xid)
    }

    /// Ignores the rest of a request, a part of which the session refused.
    pub(super) fn part_refused(&mut self, e: &OfError, now_ms: u64) {
        let Some(xid) = continued(e) else { return };
        if self.table_changes.len() < PARTIAL_MAX || self.table_changes.contains_key(&xid) {
            let mut change = PartialChange::new();
            (change.is_refused, change.expires_ms) = (true, now_ms + PART_IDLE_MS);
            self.table_changes.insert(xid, change);
        }
    }

    /// Time at which the next part of a request is due.
    pub(super) fn parts_due_ms(&self) -> Option<u64> {
        self.table_changes.values().map(|c| c.expires_ms).min()
    }

    /// Drops requests without their next parts.
    pub(super) fn expire_parts(&mut self, now_ms: u64) {
        if self.parts_due_ms().is_none_or(|due_ms| now_ms < due_ms) {
            return;
        }
        let over: Vec<PartialChange> =
            self.table_changes.extract_if(.., |_, c| now_ms >= c.expires_ms).map(|(_, c)| c).collect();
        for change in over.into_iter().filter(|c| !c.is_refused) {
            self.refuse(ErrorKind::BrcMultipartRequestTimeout, &change.head);
        }
    }
}

impl PartialChange {
    fn new() -> PartialChange {
        PartialChange { entries: Vec::new(), is_refused: false, head: Box::default(), expires_ms: 0 }
    }

    /// Adds the tables of a part.
    fn add(&mut self, m: &Multi<TableFeatures>, version: Version, tables: &Tables) -> Result<(), ErrorKind> {
        let mut seen: BTreeSet<TableId> = self.entries.iter().map(|e| e.table).collect();
        for f in &m.entries {
            if !seen.insert(f.table) {
                return Err(ErrorKind::NxtffcDupTable);
            }
            self.entries.push(Entry {
                table: f.table,
                command: f.command,
                name: f.name.clone(),
                exceeds: f.max_entries != tables.limit(f.table) || !has_all(f, version),
            });
        }
        Ok(())
    }

    /// Whether the tables may be changed so: they cannot be disabled, and keep the names that the database gives them.
    fn check(&self, tables: &Tables) -> Result<(), ErrorKind> {
        let replaces = self.entries.iter().any(|e| e.command == TableFeaturesCommand::Replace);
        let leaves_some = replaces && self.entries.len() != usize::from(TableId::COUNT);
        let is_refused = |e: &Entry| {
            let switches = matches!(e.command, TableFeaturesCommand::Enable | TableFeaturesCommand::Disable);
            switches || e.table.0 >= TableId::COUNT || e.exceeds || !tables.may_name(e.table, &e.name)
        };
        if leaves_some || self.entries.iter().any(is_refused) {
            return Err(ErrorKind::TffcEperm);
        }
        Ok(())
    }
}
