//! The text syntax of actions and flow modifications, for input of `ovs-ofctl` and output of `dump-flows` and
//! `ofproto/trace`.
//!
//! Invariant: printed text parses to the same actions. Parsing never panics; an error has the fault and its place.
//! Deliberately stricter than `ovs-ofctl`, like `flow::text`: rejects values that do not fit.

pub(crate) mod arguments;
pub(crate) mod check;
mod flow_mod;
pub(crate) mod names;

pub use check::check_actions;
pub use flow_mod::{FileError, FlowModCommand, FlowModFlags, FlowModText, parse_flow_file, parse_flow_mod};

use crate::action::{Argument, OfAction, SetPlace, Stage};
use crate::actions::{CheckPktLarger, Conjunction, output_to};
use crate::list::Action;
use crate::nesting::{Scope, check_place};
use crate::rows::MAX_NESTING;
use flow::text::token::{Attached, Token, Tokens};
use flow::text::{Fail, NoPortNames, ParseError, Parsed, PortNames, fail, parse_port};

/// Parses a list such as `load:0x5->NXM_NX_REG1[],resubmit(,3)`; `drop` and an empty text give the empty list.
/// Instructions must be in OpenFlow's order, at most once each.
///
/// # Errors
/// For an unknown or unsupported action, a bad argument, or instructions out of order.
pub fn parse_actions(text: &str, ports: &dyn PortNames) -> Result<Vec<Action>, ParseError> {
    actions(text, ports).map_err(|f: Fail| f.locate(text))
}

/// A list of actions and instructions; `drop` if it is empty.
pub fn format_actions(actions: &[Action], ports: &dyn PortNames) -> String {
    if actions.is_empty() { "drop".into() } else { joined(actions, ports) }
}

/// The names of all actions and instructions, in alphabetical order.
pub fn action_names() -> impl Iterator<Item = &'static str> {
    crate::list::NAMES.iter().map(|row| row.name)
}

/// Actions separated by commas.
pub(crate) fn joined(actions: &[Action], ports: &dyn PortNames) -> String {
    let parts: Vec<String> = actions.iter().map(|a| a.format(ports)).collect();
    parts.join(",")
}

pub(crate) fn actions(text: &str, ports: &dyn PortNames) -> Parsed<Vec<Action>> {
    list(text, ports, Scope::Whole, 0)
}

/// The actions within another action.
pub(crate) fn nested(of: &Argument<'_>, scope: Scope) -> Parsed<Vec<Action>> {
    if of.nesting >= MAX_NESTING {
        return fail(of.token.key, "Action nested too deeply");
    }
    list(of.value(), of.ports, scope, of.nesting + 1)
}

fn list(text: &str, ports: &dyn PortNames, scope: Scope, nesting: u8) -> Parsed<Vec<Action>> {
    let mut out = Vec::new();
    let mut tokens = Tokens::new(text);
    let (mut dropped, mut count, mut highest) = (None, 0, Stage::Meter);
    while let Some(token) = tokens.next_token()? {
        count += 1;
        let before = out.len();
        if token.key.eq_ignore_ascii_case("drop") {
            dropped = Some(token.key);
        } else if matches!(token.attached, Attached::ParensArrow(_)) && !takes_arrow(token.key)
            || !parse_into(&token, ports, scope, nesting, &mut out)?
        {
            return refuse_unknown(&token);
        }
        for action in &out[before..] {
            if let Err((_, why)) = check_place(action, scope) {
                return fail(token.key, why);
            }
            check_order(&token, action.stage(), highest, before > 0)?;
            highest = action.stage();
            if scope == Scope::ActionSet && action.set_place() == SetPlace::Never {
                let why = format!("write_actions action doesn't support nested action {}", token.key);
                return fail(token.key, why);
            }
        }
    }
    if let Some(other) = Conjunction::intruder(&out) {
        let name = other.format(&NoPortNames);
        let name = name.split([':', '(']).next().unwrap_or_default();
        let why = format!("conjunction actions may be used along with note only, not with {name}");
        return fail(text, why);
    }
    match dropped {
        Some(part) if count > 1 => {
            fail(part, "\"drop\" must not be accompanied by any other action or instruction")
        }
        _ => Ok(out),
    }
}

/// Whether an action has an arrow behind its parentheses.
fn takes_arrow(name: &str) -> bool {
    CheckPktLarger::NAMES.iter().any(|n| n.eq_ignore_ascii_case(name))
}

/// Parses one action; returns whether its name is known.
fn parse_into(
    token: &Token<'_>,
    ports: &dyn PortNames,
    scope: Scope,
    nesting: u8,
    out: &mut Vec<Action>,
) -> Parsed<bool> {
    let Some(row) = names::find(token.key) else {
        return parse_bare_port(token, ports, out);
    };
    if scope == Scope::Clone && row.stage == Stage::Meter {
        return fail(token.key, format!("clone action doesn't support nested action {}", row.name));
    }
    if scope != Scope::Whole && row.stage > Stage::Apply {
        return fail(token.key, format!("{} instruction not allowed here", row.name));
    }
    (row.parse)(&Argument { name: row.name, token: *token, ports, nesting }, out)?;
    Ok(true)
}

/// Parses a port's number or name as an action; returns whether it is one.
fn parse_bare_port(token: &Token<'_>, ports: &dyn PortNames, out: &mut Vec<Action>) -> Parsed<bool> {
    match parse_port(token.key, ports) {
        Some(_) if token.has_value() => {
            fail(token.value, format!("unexpected argument of output to port {}", token.key))
        }
        Some(port) => {
            out.push(output_to(port, token.key)?);
            Ok(true)
        }
        None => Ok(false),
    }
}

fn refuse_unknown<T>(token: &Token<'_>) -> Parsed<T> {
    let name = token.key.to_ascii_lowercase();
    if name == "apply_actions" {
        fail(token.key, "apply_actions is the default instruction")
    } else if names::UNSUPPORTED.contains(&name.as_str()) {
        fail(token.key, format!("action {name} is not supported"))
    } else {
        fail(token.key, format!("unknown action {}", token.key))
    }
}

/// Rejects an instruction after one of a later stage, or a duplicate.
fn check_order(token: &Token<'_>, stage: Stage, highest: Stage, any_before: bool) -> Parsed<()> {
    if stage < highest {
        let (first, second) = (stage.name(), highest.name());
        let why = format!(
            "invalid instruction ordering: {first} must appear before {second}, for OpenFlow 1.1+ compatibility"
        );
        return fail(token.key, why);
    }
    if stage == highest && stage != Stage::Apply && any_before {
        let name = stage.name();
        let why = format!("duplicate {name} instruction not allowed, for OpenFlow 1.1+ compatibility");
        return fail(token.key, why);
    }
    Ok(())
}
