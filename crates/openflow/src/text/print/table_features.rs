//! Features of tables, and counters of tables with the features that OpenFlow 1.0 to 1.2 report beside them.

use super::groups::action_names;
use super::tables::miss_line;
use super::{Printer, Printing, put};
use crate::msg::control::table_config;
use crate::msg::features::{MatchField, RuleFeatures, TableFeatures, TableFeaturesCommand};
use crate::msg::stats::{TableAbilities, TableStats};
use crate::{Multi, Version};
use flow::TableId;
use flow::fields::{ALL_FIELDS, FieldId};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// `OFPFW10_*` by bit; addresses of IP have six bits, which say "left out" from 32 on.
const FIELDS_10: [(u32, FieldId); 12] = [
    (0, FieldId::InPort),
    (1, FieldId::VlanVid),
    (2, FieldId::EthSrc),
    (3, FieldId::EthDst),
    (4, FieldId::EthType),
    (5, FieldId::NwProto),
    (6, FieldId::TcpSrc),
    (7, FieldId::TcpDst),
    (13, FieldId::IpSrc),
    (19, FieldId::IpDst),
    (20, FieldId::VlanPcp),
    (21, FieldId::NwTos),
];
/// `OFPFMF11_*` by bit.
const FIELDS_11: [(u32, FieldId); 15] = [
    (0, FieldId::InPort),
    (1, FieldId::VlanVid),
    (2, FieldId::VlanPcp),
    (3, FieldId::EthType),
    (4, FieldId::NwTos),
    (5, FieldId::NwProto),
    (6, FieldId::TcpSrc),
    (7, FieldId::TcpDst),
    (8, FieldId::MplsLabel),
    (9, FieldId::MplsTc),
    // Bit 10 is the type of the match.
    (11, FieldId::EthSrc),
    (12, FieldId::EthDst),
    (13, FieldId::IpSrc),
    (14, FieldId::IpDst),
    (15, FieldId::Metadata),
];
/// `OFPIT_*` in the order of the text.
const INSTRUCTIONS: [(u16, &str); 6] = [
    (6, "meter"),
    (4, "apply_actions"),
    (5, "clear_actions"),
    (3, "write_actions"),
    (2, "write_metadata"),
    (1, "goto_table"),
];
/// Class of the fields of OpenFlow 1.2.
const OXM_CLASS: u16 = 0x8000;

/// Fields of bits in a version's numbers.
fn fields_of(bits: u64, version: Version) -> Vec<FieldId> {
    let of = |table: &[(u32, FieldId)]| {
        table.iter().filter(|(bit, _)| bits >> bit & 1 != 0).map(|(_, field)| *field).collect()
    };
    match version {
        Version::V10 => of(&FIELDS_10),
        Version::V11 => of(&FIELDS_11),
        _ => {
            let has = |field: &FieldId| {
                let oxm = field.def().oxm.filter(|(_, since)| *since <= version.0).map(|(id, _)| id);
                oxm.is_some_and(|id| id.class == OXM_CLASS && id.field < 64 && bits >> id.field & 1 != 0)
            };
            ALL_FIELDS.iter().copied().filter(has).collect()
        }
    }
}

fn types_of(bits: u32) -> Vec<u16> {
    (0..32u16).filter(|bit| bits >> bit & 1 != 0).collect()
}

/// The features beside the counters of a table.
fn features_of(s: &TableStats, version: Version) -> TableFeatures {
    let a: &TableAbilities = &s.abilities;
    let matches = if version == Version::V10 { a.wildcards } else { a.matches };
    let plain = |field| MatchField { field, maskable: false };
    TableFeatures {
        table: s.table,
        command: TableFeaturesCommand::Replace,
        name: s.name.clone(),
        metadata_match: a.metadata_match,
        metadata_write: a.metadata_write,
        config: a.config,
        max_entries: s.max_entries,
        rules: RuleFeatures {
            instructions: types_of(a.instructions),
            next_tables: Vec::new(),
            write_actions: types_of(a.write_actions),
            apply_actions: types_of(a.apply_actions),
            write_set_fields: fields_of(a.write_set_fields, version),
            apply_set_fields: fields_of(a.apply_set_fields, version),
        },
        miss: None,
        matches: fields_of(matches, version).into_iter().map(plain).collect(),
        wildcards: fields_of(a.wildcards, version),
        has_properties: true,
    }
}

/// Whether two tables have the same features, but for number and name.
fn same(a: &TableFeatures, b: &TableFeatures) -> bool {
    let key = |t: &TableFeatures| (t.metadata_match, t.metadata_write, t.config, t.max_entries);
    key(a) == key(b) && same_rules(a, b) && a.matches == b.matches && a.wildcards == b.wildcards
}

/// Features of the rule for packets that miss.
fn miss(t: &TableFeatures) -> &RuleFeatures {
    t.miss.as_ref().unwrap_or(&t.rules)
}

/// Whether rules can do the same. Rules lead to later tables only: tables up to the later one do not count.
fn same_rules(a: &TableFeatures, b: &TableFeatures) -> bool {
    let least = a.table.max(b.table);
    let next = |r: &RuleFeatures| -> Vec<TableId> {
        r.next_tables.iter().copied().filter(|table| *table > least).collect()
    };
    let rest = |r: &RuleFeatures| RuleFeatures { next_tables: Vec::new(), ..r.clone() };
    let equal = |x: &RuleFeatures, y: &RuleFeatures| next(x) == next(y) && rest(x) == rest(y);
    equal(&a.rules, &b.rules) && equal(miss(a), miss(b))
}

fn is_empty(t: &TableFeatures) -> bool {
    same(t, &TableFeatures { config: t.config, ..TableFeatures::default() })
}

/// Names with common beginnings in braces: `tcp_{src,dst} reg0...reg3`.
fn field_names(fields: impl Iterator<Item = FieldId>) -> String {
    let given: BTreeSet<FieldId> = fields.collect();
    let names: Vec<&str> = given.iter().map(|field| field.def().name).collect();
    grouped(&names).join(" ")
}

/// Groups of consecutive names with the same first word.
fn grouped(names: &[&str]) -> Vec<String> {
    let mut out = Vec::new();
    let mut rest = names;
    while let Some((first, _)) = rest.split_first() {
        let run = numbered(rest);
        if run > 1 {
            match run {
                2 => out.extend([first.to_string(), rest[1].to_string()]),
                _ => out.push(format!("{first}...{}", rest[run - 1])),
            }
            rest = &rest[run..];
            continue;
        }
        let word = first.find('_').map(|at| &first[..=at]);
        let many = word.map_or(1, |word| rest.iter().take_while(|name| name.starts_with(word)).count());
        match word {
            Some(word) if many > 1 => {
                let inner: Vec<&str> = rest[..many].iter().map(|name| &name[word.len()..]).collect();
                out.push(format!("{word}{{{}}}", grouped(&inner).join(",")));
            }
            _ => out.push(first.to_string()),
        }
        rest = &rest[many..];
    }
    out
}

/// Number of names at the beginning that are one word with consecutive numbers.
fn numbered(names: &[&str]) -> usize {
    let parts = |name: &str| {
        let word = name.trim_end_matches(|c: char| c.is_ascii_digit());
        name[word.len()..].parse::<u32>().ok().map(|n| (word.to_string(), n))
    };
    let Some((word, first)) = names.first().and_then(|name| parts(name)) else { return 0 };
    let follows = |(n, name): (u32, &&str)| parts(name) == Some((word.clone(), first + n));
    (0..).zip(names).take_while(|pair| follows(*pair)).count()
}

/// Numbers of tables as ranges: `1-2,4`.
fn table_numbers(tables: &[TableId]) -> String {
    let mut numbers: Vec<u8> = tables.iter().map(|table| table.0).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut parts: Vec<(u8, u8)> = Vec::new();
    for n in numbers {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == n => *last = n,
            _ => parts.push((n, n)),
        }
    }
    let text = |(first, last): &(u8, u8)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    parts.iter().map(text).collect::<Vec<_>>().join(",")
}

/// Tables as they are printed: those equal to the last one are named in one line.
struct Tables<'p, 'a> {
    p: &'p mut Printer<'a>,
    before: Option<(TableFeatures, Option<TableStats>)>,
    ditto: Option<(TableId, TableId)>,
}

impl Tables<'_, '_> {
    fn add(&mut self, t: TableFeatures, stats: Option<&TableStats>) {
        let counters = |s: &TableStats| (s.active_count, s.lookup_count, s.matched_count);
        let same_counters = match (stats, &self.before) {
            (None, _) => true,
            (Some(s), Some((_, Some(last)))) => counters(s) == counters(last),
            (Some(_), _) => false,
        };
        let same_features = self.before.as_ref().is_some_and(|(last, _)| same(last, &t));
        if same_counters && same_features && t.name.is_empty() {
            self.ditto = Some((self.ditto.map_or(t.table, |(first, _)| first), t.table));
            return;
        }
        self.end();
        put!(self.p.out, "\n  table {}", t.table.0);
        if !t.name.is_empty() {
            put!(self.p.out, " (\"{}\")", t.name);
        }
        if same_counters && same_features {
            self.p.out.push_str(": ditto");
        } else {
            self.p.out.push_str(":\n");
            if let Some(s) = stats {
                put!(
                    self.p.out,
                    "    active={}, lookup={}, matched={}\n",
                    s.active_count,
                    s.lookup_count,
                    s.matched_count
                );
            }
            if !same_features {
                let last = self.before.as_ref().map(|(last, _)| last);
                self.p.features(&t, last, stats.is_none());
            } else if !is_empty(&t) {
                self.p.out.push_str("    (same features)\n");
            }
        }
        self.before = Some((t, stats.cloned()));
    }

    /// Names the tables that were left out.
    fn end(&mut self) {
        match self.ditto.take() {
            None => {}
            Some((first, last)) if first == last => put!(self.p.out, "\n  table {}: ditto\n", first.0),
            Some((first, last)) => put!(self.p.out, "\n  tables {}...{}: ditto\n", first.0, last.0),
        }
    }
}

/// Features of tables as `ovs-ofctl dump-table-features` prints them: equal ones are named in one line.
pub fn format_table_features(tables: &[TableFeatures], version: Version, how: Printing<'_>) -> String {
    let mut p = Printer { out: String::new(), version, xid: 0, how };
    p.table_features(&Multi::all(tables.to_vec()));
    let text = p.out.strip_prefix('\n').unwrap_or(&p.out);
    format!("{text}\n")
}

impl Printer<'_> {
    pub(super) fn table_features(&mut self, m: &Multi<TableFeatures>) {
        if let Some(first) = m.entries.first() {
            match first.command {
                TableFeaturesCommand::Replace => {}
                TableFeaturesCommand::Modify => self.out.push_str("\n  command: modify"),
                TableFeaturesCommand::Enable => self.out.push_str("\n  command: enable"),
                TableFeaturesCommand::Disable => self.out.push_str("\n  command: disable"),
            }
        }
        let mut tables = Tables { p: self, before: None, ditto: None };
        m.entries.iter().for_each(|t| tables.add(t.clone(), None));
        tables.end();
    }

    pub(super) fn table_stats(&mut self, m: &Multi<TableStats>) {
        let version = self.version;
        let mut tables = Tables { p: self, before: None, ditto: None };
        m.entries.iter().for_each(|s| tables.add(features_of(s, version), Some(s)));
        tables.end();
    }

    /// Counters of tables come without the abilities of OpenFlow 1.4.
    fn features(&mut self, t: &TableFeatures, last: Option<&TableFeatures>, has_abilities: bool) {
        if t.metadata_match != 0 || t.metadata_write != 0 {
            put!(self.out, "    metadata: match={:#x} write={:#x}\n", t.metadata_match, t.metadata_write);
        }
        if matches!(self.version, Version::V11 | Version::V12) {
            self.out += &miss_line(t.config);
        }
        if self.version >= Version::V14 && has_abilities {
            let supported = |bit: u32| if t.config & bit != 0 { "supported" } else { "not supported" };
            put!(
                self.out,
                "    eviction: {}\n    vacancy events: {}\n",
                supported(table_config::EVICTION),
                supported(table_config::VACANCY_EVENTS)
            );
        }
        if t.max_entries != 0 {
            put!(self.out, "    max_entries={}\n", t.max_entries);
        }
        self.rules_of(t, last);
        self.matching(t, last);
    }

    fn rules_of(&mut self, t: &TableFeatures, last: Option<&TableFeatures>) {
        let none = RuleFeatures::default();
        if last.is_some_and(|last| same_rules(last, t)) {
            if t.rules != none {
                self.out.push_str("    (same instructions)\n");
            }
        } else if *miss(t) != t.rules {
            self.out.push_str("    instructions (other than table miss):\n");
            self.rule_features(&t.rules, last.map(|last| &last.rules));
            self.out.push_str("    instructions (table miss):\n");
            self.rule_features(miss(t), last.map(miss));
        } else if t.rules != none {
            self.out.push_str("    instructions (table miss and others):\n");
            self.rule_features(&t.rules, last.map(|last| &last.rules));
        }
    }

    fn rule_features(&mut self, r: &RuleFeatures, last: Option<&RuleFeatures>) {
        if !r.next_tables.is_empty() {
            put!(self.out, "      next tables: {}\n", table_numbers(&r.next_tables));
        }
        if !r.instructions.is_empty() {
            if last.is_some_and(|last| last.instructions == r.instructions) {
                self.out.push_str("      (same instructions)\n");
            } else {
                let known = INSTRUCTIONS.iter().filter(|(ty, _)| r.instructions.contains(ty));
                let names: Vec<&str> = known.map(|(_, name)| *name).collect();
                put!(self.out, "      instructions: {}\n", names.join(" "));
            }
        }
        let write = (&r.write_actions, &r.write_set_fields);
        let apply = (&r.apply_actions, &r.apply_set_fields);
        let as_before = |last: &RuleFeatures| {
            (&last.write_actions, &last.write_set_fields) == write
                && (&last.apply_actions, &last.apply_set_fields) == apply
        };
        if last.is_some_and(as_before) && !write.1.is_empty() {
            self.out.push_str("      (same actions)\n");
        } else if write != apply {
            self.out.push_str("      Write-Actions features:\n");
            self.action_features(write);
            self.out.push_str("      Apply-Actions features:\n");
            self.action_features(apply);
        } else if !(write.0.is_empty() && write.1.is_empty()) {
            self.out.push_str("      Write-Actions and Apply-Actions features:\n");
            self.action_features(write);
        }
    }

    fn action_features(&mut self, (actions, fields): (&Vec<u16>, &Vec<FieldId>)) {
        if !actions.is_empty() {
            let bits = actions.iter().filter(|ty| **ty < 32).fold(0, |bits, ty| bits | 1u32 << ty);
            put!(self.out, "        actions: {}\n", action_names(bits, self.version));
        }
        if !fields.is_empty() {
            put!(self.out, "        supported on Set-Field: {}\n", field_names(fields.iter().copied()));
        }
    }

    fn matching(&mut self, t: &TableFeatures, last: Option<&TableFeatures>) {
        if t.matches.is_empty() {
            return;
        }
        if last.is_some_and(|last| last.matches == t.matches && last.wildcards == t.wildcards) {
            return self.out.push_str("    (same matching)\n");
        }
        self.out.push_str("    matching:\n");
        type Kind = fn(bool, bool) -> bool;
        let kinds: [(&str, Kind); 3] = [
            ("arbitrary mask", |maskable, _| maskable),
            ("exact match or wildcard", |maskable, optional| !maskable && optional),
            ("must exact match", |maskable, optional| !maskable && !optional),
        ];
        for (title, is) in kinds {
            let fields: Vec<FieldId> = t
                .matches
                .iter()
                .filter(|m| is(m.maskable, t.wildcards.contains(&m.field)))
                .map(|m| m.field)
                .collect();
            if !fields.is_empty() {
                put!(self.out, "      {title}: {}\n", field_names(fields.into_iter()));
            }
        }
    }
}
