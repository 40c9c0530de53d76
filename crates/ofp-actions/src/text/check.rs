//! Prerequisites of actions in the match of their rule: every matching packet has the fields that they read or
//! write.

use crate::check::{self, CheckContext};
use crate::list::{Action, protocols_of};
use flow::fields::FieldId;
use flow::text::needs;
use flow::{Flow, Match, Protocols, TableId};
use ofp_wire::{ErrorKind, Version};

/// Checks the actions of a rule of `table` that matches `m`.
///
/// # Errors
/// The action with its missing prerequisite (`OFPBAC_MATCH_INCONSISTENT`, `OFPBIC_BAD_TABLE_ID`).
pub fn check_actions(m: &Match, table: Option<TableId>, actions: &[Action]) -> Result<(), String> {
    let mut state = TextChecker { flow: *m.flow(), mask: m.mask().0, table };
    actions.iter().try_for_each(|action| action.check_text(&mut state))
}

/// The flow formats that carry the actions of a rule that matches `m`. OpenFlow 1.1 and later refuse actions on fields that
/// packets may lack; in OpenFlow 1.0 those have no effect.
pub(crate) fn usable_protocols(m: &Match, table: Option<TableId>, actions: &[Action]) -> Protocols {
    let cx = CheckContext {
        version: Version::V13,
        max_ports: u32::MAX,
        n_tables: u8::MAX,
        table,
        debug_actions: true,
    };
    let fits = check::check_actions(actions, m, &cx) != Err(ErrorKind::BacMatchInconsistent);
    protocols_of(actions) & if fits { Protocols::ANY } else { Protocols::ANY.without(Protocols::OF11_UP) }
}

/// Known properties of the packets at one point of the list.
pub struct TextChecker {
    pub(crate) flow: Flow,
    pub(crate) mask: Flow,
    pub(crate) table: Option<TableId>,
}

impl TextChecker {
    /// Rejects the action `what` on a field that packets may lack.
    pub(crate) fn need(&self, what: &str, field: FieldId) -> Result<(), String> {
        if self.has(field) {
            return Ok(());
        }
        let (name, needs) = (field.def().name, needs(field));
        Err(format!(
            "{what} {name} lacks correct prerequisites: match on {needs} (OFPBAC_MATCH_INCONSISTENT)"
        ))
    }

    /// Whether every packet has the field.
    pub(crate) fn has(&self, field: FieldId) -> bool {
        field.prereq_holds(&self.flow, Some(&self.mask))
    }
}
