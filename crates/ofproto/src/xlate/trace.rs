//! Trace of a translation, for `ofproto/trace`.

use crate::ports::{BridgeNames, PortTable};
use crate::rule::Rule;
use flow::text::{NoPortNames, PortNames, format_match_with};
use flow::{TableId, TlvTable};
use ofp_actions::Action;
use std::fmt::Write as _;
use std::sync::Arc;

/// An event of a trace.
#[derive(Clone, Debug)]
pub enum TraceEvent {
    /// Entry into a bridge of that name, with its mappings of tunnel metadata and its ports.
    Bridge(Arc<str>, Arc<TlvTable>, Arc<PortTable>),
    /// Resumption of a frozen translation; its children show the restored state.
    Thaw,
    /// A plain line.
    Remark(String),
    /// A table lookup.
    Table {
        /// The table.
        table: TableId,
        /// Its result.
        rule: Option<Arc<Rule>>,
        /// A miss that goes to the controllers.
        goes_up: bool,
        /// The rule is not executed: a session of the switch takes the packet.
        shown_only: bool,
    },
    /// A table lookup of a fragment in a bridge that drops them.
    FragmentsDropped(TableId),
    /// Execution of an action.
    Action(Box<Action>),
    /// Execution of an empty list of actions within another action.
    NoActions,
    /// Execution of a group bucket.
    Bucket(u32),
    /// Execution of the action set.
    ActionSet,
    /// A clause of the conjunction that matched.
    Clause(Arc<Rule>),
    /// A result.
    Detail(String),
    /// An action that ends the translation, as its result.
    Refused(String),
    /// Something not done.
    Warning(String),
    /// A fault of the rules.
    Error(String),
}

/// An event and its children.
#[derive(Clone, Debug)]
pub struct TraceNode {
    /// The event.
    pub event: TraceEvent,
    /// Its children.
    pub children: Vec<TraceNode>,
}

/// Collects nodes if enabled, else costs nothing.
pub(super) struct Tracer {
    stack: Option<Vec<Vec<TraceNode>>>,
    open: Vec<TraceEvent>,
}

impl Tracer {
    pub(super) fn new(enabled: bool) -> Tracer {
        Tracer { stack: enabled.then(|| vec![Vec::new()]), open: Vec::new() }
    }

    /// Whether it is enabled.
    pub(super) fn is_on(&self) -> bool {
        self.stack.is_some()
    }

    /// Opens a node; [`Tracer::pop`] closes it.
    pub(super) fn push<T>(&mut self, event: impl FnOnce(&T) -> TraceEvent, of: &T) {
        if let Some(stack) = &mut self.stack {
            stack.push(Vec::new());
            self.open.push(event(of));
        }
    }

    pub(super) fn pop(&mut self) {
        let Some(stack) = &mut self.stack else { return };
        if let (Some(event), true) = (self.open.pop(), stack.len() > 1) {
            let children = stack.pop().unwrap_or_default();
            if let Some(parent) = stack.last_mut() {
                parent.push(TraceNode { event, children });
            }
        }
    }

    pub(super) fn detail(&mut self, text: impl FnOnce() -> String) {
        self.leaf(|| TraceEvent::Detail(text()));
    }

    pub(super) fn clause(&mut self, rule: &Arc<Rule>) {
        self.leaf(|| TraceEvent::Clause(rule.clone()));
    }

    pub(super) fn warning(&mut self, text: impl FnOnce() -> String) {
        self.leaf(|| TraceEvent::Warning(text()));
    }

    pub(super) fn refused(&mut self, text: impl FnOnce() -> String) {
        self.leaf(|| TraceEvent::Refused(text()));
    }

    pub(super) fn error(&mut self, text: impl FnOnce() -> String) {
        self.leaf(|| TraceEvent::Error(text()));
    }

    fn leaf(&mut self, event: impl FnOnce() -> TraceEvent) {
        if let Some(top) = self.stack.as_mut().and_then(|s| s.last_mut()) {
            top.push(TraceNode { event: event(), children: Vec::new() });
        }
    }

    pub(super) fn into_nodes(mut self) -> Vec<TraceNode> {
        while !self.open.is_empty() {
            self.pop();
        }
        self.stack.and_then(|mut s| s.pop()).unwrap_or_default()
    }
}

/// Priority that match texts leave out.
const DEFAULT_PRIORITY: i32 = 32768;

/// The trace as text: bridges underlined, tables with the matching rule, actions indented below; children of the
/// last action of a table are at the level of the table itself. Ports are names or numbers.
pub fn render_trace(nodes: &[TraceNode], with_names: bool) -> String {
    let mut out = String::new();
    let mut flat = flatten(nodes);
    for bridge in &mut flat {
        adopt_action_set(&mut bridge.children);
    }
    Renderer { with_names, out: &mut out }.render(&flat, 0, &NoPortNames);
    out
}

/// As in OVS, the action set of a traced bridge, and a result after it, belong to its first table.
fn adopt_action_set(nodes: &mut Vec<TraceNode>) {
    let is_table = |n: &TraceNode| matches!(n.event, TraceEvent::Table { .. });
    let Some(first) = nodes.iter().rposition(is_table) else { return };
    let is_rest = |n: &TraceNode| matches!(n.event, TraceEvent::ActionSet | TraceEvent::Detail(_));
    if nodes[first + 1..].iter().all(is_rest) {
        let rest = nodes.split_off(first + 1);
        nodes[first].children.extend(rest);
    }
}

/// Children of an action are beside it, not within it.
fn flatten(nodes: &[TraceNode]) -> Vec<TraceNode> {
    let mut flat = Vec::new();
    for node in nodes {
        let children = flatten(&node.children);
        if matches!(node.event, TraceEvent::Action(_)) {
            flat.push(TraceNode { event: node.event.clone(), children: Vec::new() });
            flat.extend(children);
        } else {
            flat.push(TraceNode { event: node.event.clone(), children });
        }
    }
    flat
}

/// Writes the lines of a trace.
struct Renderer<'o> {
    with_names: bool,
    out: &'o mut String,
}

impl Renderer<'_> {
    /// Writes nodes; `names` are those of their bridge.
    fn render(&mut self, nodes: &[TraceNode], level: usize, names: &dyn PortNames) {
        for (i, node) in nodes.iter().enumerate() {
            let leaf = matches!(
                node.event,
                TraceEvent::Action(_)
                    | TraceEvent::NoActions
                    | TraceEvent::Bucket(_)
                    | TraceEvent::Clause(_)
                    | TraceEvent::Detail(_)
                    | TraceEvent::Refused(_)
                    | TraceEvent::Warning(_)
                    | TraceEvent::Error(_)
            );
            let more = usize::from(i + 1 < nodes.len() || leaf);
            self.line(node, level, more, names);
            if let TraceEvent::Bridge(_, tlv, ports) = &node.event {
                let own = BridgeNames { ports, tlv, show: self.with_names };
                self.render(&node.children, level + 2 * more, &own);
            } else {
                self.render(&node.children, level + 2 * more, names);
            }
        }
    }

    /// Writes the line of one node.
    fn line(&mut self, node: &TraceNode, level: usize, more: usize, names: &dyn PortNames) {
        let out = &mut *self.out;
        let indent = " ".repeat((level + more) * 4);
        match &node.event {
            TraceEvent::Bridge(name, ..) => {
                let title = format!("bridge(\"{name}\")");
                let _ = writeln!(out, "\n{indent}{title}\n{indent}{}", "-".repeat(title.len()));
            }
            TraceEvent::Thaw => {
                let _ = writeln!(out, "{indent}thaw");
            }
            TraceEvent::Remark(text) | TraceEvent::Refused(text) => {
                let _ = writeln!(out, "{indent}{text}");
            }
            TraceEvent::Table { table, goes_up: true, .. } => {
                let action = " ".repeat((level + 2 * more + 1) * 4);
                let _ = writeln!(out, "{indent}{:2}. No match, and a \"packet-in\" is called for.", table.0);
                let _ = writeln!(out, "{action}controller(reason=)");
            }
            TraceEvent::Table { table, rule, goes_up: false, shown_only } => {
                let _ = writeln!(out, "{indent}{:2}. {}", table.0, rule_text(rule.as_deref(), names));
                let drops = rule.as_ref().is_none_or(|r| r.actions.is_empty());
                if drops && node.children.is_empty() && !shown_only {
                    let _ = writeln!(out, "{}drop", " ".repeat((level + 2 * more + 1) * 4));
                }
            }
            TraceEvent::FragmentsDropped(table) => {
                let why = "Packets are IP fragments and the fragment handling mode is \"drop\".";
                let drop = " ".repeat((level + 2 * more + 1) * 4);
                let _ = writeln!(out, "{indent}{:2}. {why}\n{drop}drop", table.0);
            }
            TraceEvent::ActionSet => {
                let _ = writeln!(out, "{indent}--. Executing action set:");
            }
            TraceEvent::Bucket(id) => {
                let _ = writeln!(out, "{indent}bucket {id}");
                if node.children.is_empty() {
                    let _ = writeln!(out, "{}drop", " ".repeat((level + 3) * 4));
                }
            }
            TraceEvent::Action(action) => {
                let _ = writeln!(out, "{indent}{}", action.format(names));
            }
            TraceEvent::NoActions => {
                let _ = writeln!(out, "{indent}drop");
            }
            TraceEvent::Clause(rule) => {
                let clause = format_match_with(&rule.matching.unpack(), Some(rule.priority), names);
                let _ = writeln!(out, "{indent} -> conj. {clause}");
            }
            TraceEvent::Detail(text) => {
                let _ = writeln!(out, "{indent} -> {text}");
            }
            TraceEvent::Warning(text) => {
                let _ = writeln!(out, "{indent} >> {text}");
            }
            TraceEvent::Error(text) => {
                let _ = writeln!(out, "{indent} >>>> {text} <<<<");
            }
        }
    }
}

/// A rule as a line of a trace: match, priority, cookie.
pub fn rule_text(rule: Option<&Rule>, names: &dyn PortNames) -> String {
    let Some(rule) = rule else { return "No match.".to_string() };
    let mut text = format_match_with(&rule.matching.unpack(), Some(DEFAULT_PRIORITY), names);
    if !text.is_empty() {
        text.push_str(", ");
    }
    let _ = write!(text, "priority {}", rule.priority);
    if rule.cookie != 0 {
        let _ = write!(text, ", cookie {:#x}", rule.cookie);
    }
    text
}
