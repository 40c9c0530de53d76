//! Table features (OpenFlow 1.3 §7.3.5.5): supported matches, instructions and actions of each table.
//!
//! The reply of a switch with 254 tables is a megabyte, so entries are written straight into it.

use flow::TableId;
use flow::fields::FieldId;
use ofp_wire::ErrorKind;
use ofp_wire::nxm;
use ofp_wire::prop;
use ofp_wire::{Reader, Res, Version, Writer};

/// Features of a table's rules: ordinary ones, or the table-miss rule.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RuleFeatures {
    /// `OFPIT_*`.
    pub instructions: Vec<u16>,
    /// Tables that may follow.
    pub next_tables: Vec<TableId>,
    /// `OFPAT_*` for the action set.
    pub write_actions: Vec<u16>,
    /// `OFPAT_*` to apply.
    pub apply_actions: Vec<u16>,
    /// Fields that the action set may set.
    pub write_set_fields: Vec<FieldId>,
    /// Fields that applied actions may set.
    pub apply_set_fields: Vec<FieldId>,
}

/// A field that can be matched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MatchField {
    /// Field.
    pub field: FieldId,
    /// Whether with masks.
    pub maskable: bool,
}

/// Features of a table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableFeatures {
    /// Table.
    pub table: TableId,
    /// The command of a request; OpenFlow 1.3 and 1.4 only replace.
    pub command: TableFeaturesCommand,
    /// Name.
    pub name: String,
    /// Bits of metadata that can be matched.
    pub metadata_match: u64,
    /// Bits of metadata that can be written.
    pub metadata_write: u64,
    /// `OFPTC_*`.
    pub config: u32,
    /// Maximum number of rules.
    pub max_entries: u32,
    /// Features of rules that match something.
    pub rules: RuleFeatures,
    /// Features of the rule for packets that miss, when they differ.
    pub miss: Option<RuleFeatures>,
    /// Fields that can be matched.
    pub matches: Vec<MatchField>,
    /// Fields that can be left out.
    pub wildcards: Vec<FieldId>,
    /// Whether it has properties. If not, `rules` to `wildcards` are empty, and a request changes none of them.
    pub has_properties: bool,
}

/// `OFPTFC_*` (OpenFlow 1.5 §7.3.5.18).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TableFeaturesCommand {
    /// The request describes all tables.
    #[default]
    Replace,
    /// It changes some.
    Modify,
    /// It enables some.
    Enable,
    /// It disables some.
    Disable,
}

impl TableFeaturesCommand {
    fn from_wire(n: u8) -> Option<TableFeaturesCommand> {
        Some(match n {
            0 => TableFeaturesCommand::Replace,
            1 => TableFeaturesCommand::Modify,
            2 => TableFeaturesCommand::Enable,
            3 => TableFeaturesCommand::Disable,
            _ => return None,
        })
    }

    fn to_wire(self) -> u8 {
        match self {
            TableFeaturesCommand::Replace => 0,
            TableFeaturesCommand::Modify => 1,
            TableFeaturesCommand::Enable => 2,
            TableFeaturesCommand::Disable => 3,
        }
    }
}

/// Property types; those of a miss are one higher, except of matches and wildcards.
const INSTRUCTIONS: u16 = 0;
const NEXT_TABLES: u16 = 2;
const WRITE_ACTIONS: u16 = 4;
const APPLY_ACTIONS: u16 = 6;
const MATCH: u16 = 8;
const WILDCARDS: u16 = 10;
const WRITE_SETFIELD: u16 = 12;
const APPLY_SETFIELD: u16 = 14;
const EXPERIMENTER: u16 = 0xfffe;
/// Properties of every table, by the bits of their types.
const REQUIRED: u32 = 1 << INSTRUCTIONS
    | 1 << NEXT_TABLES
    | 1 << WRITE_ACTIONS
    | 1 << APPLY_ACTIONS
    | 1 << MATCH
    | 1 << WILDCARDS
    | 1 << WRITE_SETFIELD
    | 1 << APPLY_SETFIELD;

/// Types of actions or instructions; skips those of experimenters.
fn read_types(p: &mut Reader<'_>) -> Res<Vec<u16>> {
    let mut types = Vec::new();
    while !p.is_empty() {
        let (ty, len) = (p.u16()?, usize::from(p.u16()?));
        p.skip(len.checked_sub(4).ok_or(ErrorKind::BpcBadLen)?)?;
        if ty != 0xffff {
            types.push(ty);
        }
    }
    Ok(types)
}

/// Field headers; unknown ones are passed over.
fn read_fields(p: &mut Reader<'_>) -> Res<Vec<MatchField>> {
    let mut fields = Vec::new();
    while !p.is_empty() {
        let h = nxm::Header::read(&mut *p).map_err(|_| ErrorKind::BmcBadLen)?;
        if let Some(field) = h.field() {
            fields.push(MatchField { field, maskable: h.has_mask });
        }
    }
    Ok(fields)
}

fn plain(fields: Vec<MatchField>) -> Vec<FieldId> {
    fields.into_iter().map(|f| f.field).collect()
}

pub(crate) fn read(r: &mut Reader<'_>) -> Res<TableFeatures> {
    let len = usize::from(r.clone().u16()?);
    let mut r = r.sub(len).map_err(|_| ErrorKind::BpcBadLen)?.or(ErrorKind::BpcBadLen);
    r.skip(2)?;
    let mut t = TableFeatures { table: TableId(r.u8()?), ..TableFeatures::default() };
    if t.table == TableId::ALL {
        return Err(ErrorKind::TffcBadTable);
    }
    let command = r.u8()?;
    if r.version >= Version::V15 {
        t.command = TableFeaturesCommand::from_wire(command).ok_or(ErrorKind::TffcBadCommand)?;
    }
    r.skip(4)?;
    t.name = r.text(32)?;
    (t.metadata_match, t.metadata_write) = (r.u64()?, r.u64()?);
    (t.config, t.max_entries) = (r.u32()?, r.u32()?);
    let mut seen = 0u32;
    while !r.is_empty() {
        let (ty, mut p) = prop::read(&mut r)?;
        if ty < 32 && seen & 1 << ty != 0 {
            return Err(ErrorKind::BpcDupType);
        }
        seen |= 1u32.checked_shl(ty.into()).unwrap_or(0);
        read_property(&mut t, ty, &mut p)?;
    }
    t.has_properties = seen != 0;
    let may_lack_all = r.version >= Version::V15 && seen == 0;
    if seen & REQUIRED != REQUIRED && !may_lack_all {
        return Err(ErrorKind::TffcBadFeatures);
    }
    Ok(t)
}

fn read_property(t: &mut TableFeatures, ty: u16, p: &mut Reader<'_>) -> Res<()> {
    match ty {
        MATCH => t.matches = read_fields(p)?,
        WILDCARDS => t.wildcards = plain(read_fields(p)?),
        0..=7 | 12..=15 => {
            let rules = if ty & 1 == 0 { &mut t.rules } else { t.miss.get_or_insert_default() };
            match ty & !1 {
                INSTRUCTIONS => rules.instructions = read_types(p)?,
                NEXT_TABLES => rules.next_tables = p.rest().iter().map(|n| TableId(*n)).collect(),
                WRITE_ACTIONS => rules.write_actions = read_types(p)?,
                APPLY_ACTIONS => rules.apply_actions = read_types(p)?,
                WRITE_SETFIELD => rules.write_set_fields = plain(read_fields(p)?),
                _ => rules.apply_set_fields = plain(read_fields(p)?),
            }
        }
        EXPERIMENTER.. => {}
        _ => return Err(ErrorKind::BpcBadType),
    }
    Ok(())
}

fn put_types(w: &mut Writer, ty: u16, types: &[u16]) {
    prop::put(w, ty, |w| {
        for t in types {
            w.u16(*t);
            w.u16(4);
        }
    });
}

fn put_fields(w: &mut Writer, ty: u16, fields: impl Iterator<Item = (FieldId, bool)>) {
    prop::put(w, ty, |w| {
        for (field, maskable) in fields {
            nxm::put_header(w, field, maskable);
        }
    });
}

fn put_rules(w: &mut Writer, rules: &RuleFeatures, miss: u16) {
    put_types(w, INSTRUCTIONS + miss, &rules.instructions);
    prop::put(w, NEXT_TABLES + miss, |w| rules.next_tables.iter().for_each(|t| w.u8(t.0)));
    put_types(w, WRITE_ACTIONS + miss, &rules.write_actions);
    put_fields(w, WRITE_SETFIELD + miss, rules.write_set_fields.iter().map(|f| (*f, false)));
    put_types(w, APPLY_ACTIONS + miss, &rules.apply_actions);
    put_fields(w, APPLY_SETFIELD + miss, rules.apply_set_fields.iter().map(|f| (*f, false)));
}

pub(crate) fn put(w: &mut Writer, t: &TableFeatures) {
    let mark = w.mark();
    w.zeros(2);
    w.u8(t.table.0);
    w.u8(if w.version >= Version::V15 { t.command.to_wire() } else { 0 });
    w.zeros(4);
    w.text(&t.name, 32);
    w.u64(t.metadata_match);
    w.u64(t.metadata_write);
    w.u32(t.config);
    w.u32(t.max_entries);
    if t.has_properties {
        put_rules(w, &t.rules, 0);
        if let Some(miss) = &t.miss {
            put_rules(w, miss, 1);
        }
        put_fields(w, MATCH, t.matches.iter().map(|f| (f.field, f.maskable)));
        put_fields(w, WILDCARDS, t.wildcards.iter().map(|f| (*f, false)));
    }
    w.set_len(mark, 0);
}
