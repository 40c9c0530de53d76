//! Table features (OpenFlow 1.3 §7.3.5.5): the same for all tables and bridges, so built once.
//!
//! Derived from the field registry: fields with a header are matchable, writable fields are settable.

use crate::flow_mod::TABLE_MAX_RULES;
use flow::TableId;
use flow::fields::{ALL_FIELDS, FieldId};
use ofp_wire::nxm::has_header;
use openflow::msg::features::{MatchField, RuleFeatures, TableFeatures};
use openflow::{Message, Multi};
use std::sync::OnceLock;

/// `OFPIT_*`: goto, metadata, write, apply, clear, meter.
const INSTRUCTIONS: [u16; 6] = [1, 2, 3, 4, 5, 6];
/// `OFPIT_GOTO_TABLE`, absent in the last table.
const GOTO_TABLE: u16 = 1;
/// `OFPAT_*`: output, push and pop VLAN, set queue, set and decrement TTL, set field.
const ACTIONS: [u16; 7] = [0, 17, 18, 21, 23, 24, 25];

/// The reply to a request for table features.
pub(super) fn reply() -> &'static Message {
    static REPLY: OnceLock<Message> = OnceLock::new();
    REPLY.get_or_init(|| Message::TableFeaturesReply(Multi::all((0..TableId::COUNT).map(features).collect())))
}

fn features(n: u8) -> TableFeatures {
    let fields = || ALL_FIELDS.iter().copied().filter(|f| has_header(*f));
    let writable: Vec<FieldId> = fields().filter(|f| f.def().writable).collect();
    let last = n + 1 == TableId::COUNT;
    let rules = RuleFeatures {
        instructions: INSTRUCTIONS.iter().copied().filter(|i| !last || *i != GOTO_TABLE).collect(),
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
