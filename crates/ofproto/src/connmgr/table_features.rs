//! Table features (OpenFlow 1.3 §7.3.5.5): the same for all tables and bridges but for names and limits, so built once
//! for each numbering.
//! The abilities in table statistics of OpenFlow 1.1 and 1.2 tell the same.
//!
//! Derived from the field registry: fields with a header are matchable, writable fields are settable.

use crate::flow_mod::TABLE_MAX_RULES;
use crate::tables::Tables;
use flow::TableId;
use flow::fields::{ALL_FIELDS, FieldId};
use ofp_wire::nxm::has_header;
use openflow::msg::features::{MatchField, RuleFeatures, TableFeatures};
use openflow::msg::stats::TableAbilities;
use openflow::{Message, Multi, Version};
use std::borrow::Cow;
use std::sync::OnceLock;

/// `OFPIT_*`: goto, metadata, write, apply, clear, meter.
const INSTRUCTIONS: [u16; 6] = [1, 2, 3, 4, 5, 6];
/// `OFPIT_METER`, in OpenFlow 1.5 an action.
const METER: u16 = 6;
/// `OFPIT_GOTO_TABLE`, absent in the last table.
const GOTO_TABLE: u16 = 1;
/// `OFPAT_*`: output, push and pop VLAN, set queue, group, set and decrement TTL, set field.
const ACTIONS: [u16; 8] = [0, 17, 18, 21, 22, 23, 24, SET_FIELD];
/// `OFPAT_SET_FIELD` of OpenFlow 1.2.
const SET_FIELD: u16 = 25;
/// `OFPAT_*` of OpenFlow 1.1 that set fields.
const SETTERS_11: std::ops::RangeInclusive<u16> = 1..=10;
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
pub(super) fn abilities(version: Version) -> TableAbilities {
    let bits = |types: &[u16]| types.iter().fold(0, |set, ty| set | 1u32 << ty);
    let basic = |writable: bool| {
        let fields = ALL_FIELDS.iter().map(|f| f.def()).filter(|def| !writable || def.writable);
        let ids = fields.filter_map(|def| def.oxm).filter(|(_, since)| *since <= version.0).map(|(id, _)| id);
        ids.filter(|id| id.class == CLASS_BASIC && id.field < 64).fold(0, |set, id| set | 1u64 << id.field)
    };
    let instructions: Vec<u16> = INSTRUCTIONS.into_iter().filter(|i| *i != METER).collect();
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

fn features(n: u8, version: Version) -> TableFeatures {
    let fields = || ALL_FIELDS.iter().copied().filter(|f| has_header(*f));
    let writable: Vec<FieldId> = fields().filter(|f| f.def().writable).collect();
    let last = n + 1 == TableId::COUNT;
    let has = |i: u16| !(last && i == GOTO_TABLE || version >= Version::V15 && i == METER);
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
        name: String::new(),
        metadata_match: u64::MAX,
        metadata_write: u64::MAX,
        config: 0,
        max_entries: TABLE_MAX_RULES,
        miss: Some(rules.clone()),
        rules,
        matches: fields().map(|field| MatchField { field, maskable: field.def().maskable }).collect(),
        wildcards: fields().collect(),
    }
}
