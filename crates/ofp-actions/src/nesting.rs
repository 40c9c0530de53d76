//! Lists of actions within others, and the actions that each may have.

use crate::list::Action;
use flow::fields::FieldId;
use flow::text::NoPortNames;
use ofp_wire::ErrorKind;

/// Place of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scope {
    /// Actions and instructions.
    Whole,
    /// The actions of `write_actions`.
    ActionSet,
    /// The actions of `clone`.
    Clone,
    /// The actions of `ct`.
    Ct,
}

/// The field that an action writes, for those that `ct` may contain.
fn written(action: &Action) -> Option<FieldId> {
    if let Action::SetField(set) = action {
        Some(set.field)
    } else if let Action::Move(copy) = action {
        Some(copy.dest.field)
    } else {
        None
    }
}

/// Name of an action in text.
fn name(action: &Action) -> String {
    if matches!(action, Action::Output(_) | Action::OutputReg(_) | Action::OutputTrunc(_)) {
        return "output".to_string();
    }
    let text = action.format(&NoPortNames);
    text.split([':', '(']).next().unwrap_or_default().to_string()
}

/// Checks the place of an action of a list: connections have `nat`, mark and labels, and nothing else.
///
/// # Errors
/// The error to reply with, and its text.
pub(crate) fn check_place(action: &Action, scope: Scope) -> Result<(), (ErrorKind, String)> {
    let of_connection = |field| matches!(field, FieldId::CtMark | FieldId::CtLabel);
    let field = written(action);
    if scope != Scope::Ct {
        let why = if field.is_some_and(of_connection) {
            "cannot set CT fields outside of ct action"
        } else if matches!(action, Action::Nat(_)) {
            "Cannot have NAT action outside of \"ct\" action"
        } else {
            return Ok(());
        };
        return Err((ErrorKind::BacBadSetArgument, why.to_string()));
    }
    let why = match field {
        _ if matches!(action, Action::Nat(_)) => return Ok(()),
        Some(field) if of_connection(field) => return Ok(()),
        Some(field) => format!("ct action doesn't support nested modification of {}", field.def().name),
        None => format!("ct action doesn't support nested action {}", name(action)),
    };
    Err((ErrorKind::BacBadArgument, why))
}
