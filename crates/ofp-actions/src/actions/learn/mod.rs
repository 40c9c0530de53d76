//! `learn`: adds or refreshes a rule made from the packet.

mod text;
mod wire;

use super::prelude::*;
use crate::action::refer_to;
use crate::check::{check_dest, check_source};
use crate::translate::{assign, look_at, trace_value};
use flow::fields::Prereq;
use flow::text::{needs, subfield_name};
use flow::{Flow, Match, SubField, TableId};

/// Source of a `learn` specification.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum LearnSource {
    /// Bits of the packet.
    Field(SubField),
    /// A constant, right-aligned.
    Immediate(u128),
}

/// Destination of a `learn` specification.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum LearnDest {
    /// The new rule matches on these bits.
    Match(SubField),
    /// The new rule loads into these bits.
    Load(SubField),
    /// The new rule outputs to the port in the source.
    Output,
}

/// One specification of a `learn` action: `len_bits` bits from source to destination.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LearnSpec {
    /// Source.
    pub source: LearnSource,
    /// Destination.
    pub dest: LearnDest,
    /// Number of bits.
    pub len_bits: u16,
}

/// Adds or refreshes a rule made from the packet (`NXAST_LEARN`, `NXAST_LEARN2`).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LearnAction {
    /// Idle timeout of the new rule, 0 for none.
    pub idle_timeout_s: u16,
    /// Hard timeout of the new rule, 0 for none.
    pub hard_timeout_s: u16,
    /// Priority of the new rule.
    pub priority: u16,
    /// Cookie of the new rule.
    pub cookie: u64,
    /// Table of the new rule.
    pub table: TableId,
    /// Send a flow-removed message when the rule ends.
    pub send_flow_rem: bool,
    /// Delete the learned rules when the rule with this action is deleted.
    pub delete_learned: bool,
    /// Idle timeout after a FIN or RST.
    pub fin_idle_timeout_s: u16,
    /// Hard timeout after a FIN or RST.
    pub fin_hard_timeout_s: u16,
    /// Maximum rules with this cookie in this table; 0 for no limit.
    pub limit: u32,
    /// A result bit: whether the rule exists afterwards.
    pub result_dst: Option<SubField>,
    /// Contents of the new rule.
    pub specs: Vec<LearnSpec>,
}

impl OfAction for Box<LearnAction> {
    const NAMES: &'static [&'static str] = &["learn"];
    const ROWS: &'static [Row] =
        &[nx(16, Len::Min(32), |r| wire::read(r, false)), nx(45, Len::Min(40), |r| wire::read(r, true))];
    const STAGE: Stage = Stage::Apply;
    const REVERSIBLE: bool = true;

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        wire::put(w, self);
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        out.push(Box::new(text::parse(text.value(), text.ports)?).into());
        Ok(())
    }

    fn format(&self, ports: &dyn PortNames) -> String {
        text::format(self, ports)
    }

    /// A learned rule's matches are prerequisites of later ones.
    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        if self.table.0 >= checker.cx.n_tables {
            return Err(ErrorKind::BacBadArgument);
        }
        if let Some(dst) = self.result_dst {
            checker.dest(dst)?;
        }
        let mut learned = Match::catchall();
        for spec in &self.specs {
            if let LearnSource::Field(source) = spec.source {
                checker.source(source)?;
            }
            match spec.dest {
                LearnDest::Match(dest) => {
                    check_source(dest, learned.flow())?;
                    if let LearnSource::Immediate(value) = spec.source {
                        let (was, mask) = learned.get(dest.field);
                        let bits = dest.field_mask();
                        let value = was & !bits | value << dest.offset_bits & bits;
                        learned.set_masked(dest.field, value, mask | bits);
                    }
                }
                LearnDest::Load(dest) => check_dest(dest, learned.flow())?,
                LearnDest::Output => {}
            }
        }
        Ok(())
    }

    /// A learned rule's matches are prerequisites of later ones; sources are read from the packet.
    fn check_text(&self, checker: &mut TextChecker) -> Result<(), String> {
        let mut learned = TextChecker { flow: Flow::default(), mask: Flow::default(), table: None };
        for spec in &self.specs {
            if let LearnSource::Field(source) = &spec.source {
                checker.need("learn: source", source.field)?;
            }
            let (LearnDest::Match(dest) | LearnDest::Load(dest)) = &spec.dest else { continue };
            let known = learned.has(dest.field) || dest.field.def().prereq == Prereq::Vlan;
            if !known {
                let (name, needs) = (subfield_name(dest.field), needs(dest.field));
                return Err(format!(
                    "learn: {name} lacks correct prerequisites: match on {needs} before it (OFPBAC_MATCH_INCONSISTENT)"
                ));
            }
            if let (LearnSource::Immediate(value), LearnDest::Match(dest)) = (&spec.source, &spec.dest) {
                dest.set(&mut learned.flow, *value);
                dest.add_mask(&mut learned.mask);
            }
        }
        Ok(())
    }

    fn protocols(&self) -> Protocols {
        Protocols::ANY
    }

    fn set_place(&self) -> SetPlace {
        SetPlace::Never
    }

    fn references(&self, visit: &mut dyn FnMut(Reference)) {
        if self.delete_learned {
            visit(Reference::Learned(self.table, self.cookie));
        }
        self.result_dst.into_iter().for_each(|dst| refer_to(dst, visit));
        for spec in &self.specs {
            if let LearnSource::Field(source) = spec.source {
                refer_to(source, visit);
            }
            if let LearnDest::Match(dest) | LearnDest::Load(dest) = spec.dest {
                refer_to(dest, visit);
            }
        }
    }

    fn translate<X: Translator>(&self, x: &mut X) {
        for spec in &self.specs {
            if let LearnSource::Field(source) = &spec.source {
                look_at(x, source);
            }
        }
        let Some(there) = x.learn(self) else { return };
        if let Some(dst) = &self.result_dst {
            assign(x, dst, there.into());
            trace_value(x, dst);
        }
        if !there {
            x.detail(|| "Limit exceeded, learn failed".to_string());
        }
    }
}
