//! Whether actions fit the match of their rule: fields that they read or write exist in every packet that matches.

use super::names::subfield_name;
use super::normalize::needs;
use crate::TableId;
use crate::action::{Action, LearnDest, LearnSource};
use crate::fields::{FieldId, Prereq};
use crate::flow::{Flow, VlanTag};
use crate::matching::Match;

/// Checks the actions of a rule of `table` that matches `m`.
///
/// # Errors
/// Says which action needs what of the match (`OFPBAC_MATCH_INCONSISTENT`, `OFPBIC_BAD_TABLE_ID`).
pub fn check_actions(m: &Match, table: Option<TableId>, actions: &[Action]) -> Result<(), String> {
    let mut state = State { flow: *m.flow(), mask: m.mask().0 };
    actions.iter().try_for_each(|action| state.check(action, table))
}

/// What is known of the packets at one place of the list.
struct State {
    flow: Flow,
    mask: Flow,
}

impl State {
    fn check(&mut self, action: &Action, table: Option<TableId>) -> Result<(), String> {
        match action {
            Action::SetField { field, .. } => self.need("set_field", *field),
            Action::Move { source, dest } => {
                self.need("move", source.field).and_then(|()| self.need("move", dest.field))
            }
            Action::StackPush(sub) => self.need("push", sub.field),
            Action::StackPop(sub) => self.need("pop", sub.field),
            Action::OutputReg { source, .. } => self.need("output", source.field),
            Action::DecTtl { .. } => self.need("dec_ttl", FieldId::NwTtl),
            Action::SetVlanVid(_) | Action::SetVlanPcp(_) | Action::PushVlan(_) => {
                self.flow.vlans[0].tci |= VlanTag::PRESENT;
                self.mask.vlans[0].tci |= VlanTag::PRESENT;
                Ok(())
            }
            Action::StripVlan => {
                self.flow.vlans[0].tci &= !VlanTag::PRESENT;
                Ok(())
            }
            Action::Learn(learn) => self.check_learn(&learn.specs),
            Action::WriteActions(nested) => nested.iter().try_for_each(|action| self.check(action, table)),
            Action::GotoTable(to) if table.is_some_and(|from| to.0 <= from.0) => {
                Err(format!("goto_table:{} does not go to a later table (OFPBIC_BAD_TABLE_ID)", to.0))
            }
            _ => Ok(()),
        }
    }

    fn need(&self, what: &str, field: FieldId) -> Result<(), String> {
        if self.has(field) {
            return Ok(());
        }
        let (name, needs) = (field.def().name, needs(field));
        Err(format!(
            "{what} {name} lacks correct prerequisites: match on {needs} (OFPBAC_MATCH_INCONSISTENT)"
        ))
    }

    fn has(&self, field: FieldId) -> bool {
        let mut flow = self.flow;
        let mut mask = self.mask;
        if flow.packet_type >> 16 == 1 {
            (flow.dl_type, mask.dl_type) = (flow.packet_type as u16, u16::MAX);
        }
        field.prereq_holds(&flow, Some(&mask))
    }

    /// A learned rule's matches are prerequisites of those behind them; sources are read from the packet.
    fn check_learn(&self, specs: &[crate::action::LearnSpec]) -> Result<(), String> {
        let mut learned = State { flow: Flow::default(), mask: Flow::default() };
        for spec in specs {
            if let LearnSource::Field(source) = &spec.source {
                self.need("learn: source", source.field)?;
            }
            let (LearnDest::Match(dest) | LearnDest::Load(dest)) = &spec.dest else { continue };
            let known = learned.has(dest.field) || dest.field.def().prereq == Prereq::Vlan;
            if !known {
                let name = subfield_name(dest.field);
                let needs = needs(dest.field);
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
}
