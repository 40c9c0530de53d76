//! The story of a translation, for `ofproto/trace`.

use crate::rule::Rule;
use flow::action::Action;
use flow::{RecircId, TableId};
use std::sync::Arc;

/// One thing that happened.
#[derive(Clone, Debug)]
pub enum TraceEvent {
    /// A bridge was entered.
    Bridge(String),
    /// A frozen translation was resumed.
    Thaw(RecircId),
    /// A table was looked up.
    Table {
        /// The table.
        table: TableId,
        /// What was found.
        rule: Option<Arc<Rule>>,
    },
    /// An action was carried out.
    Action(Box<Action>),
    /// A remark.
    Detail(String),
}

/// An event and what happened within it.
#[derive(Clone, Debug)]
pub struct TraceNode {
    /// What happened.
    pub event: TraceEvent,
    /// What happened within.
    pub children: Vec<TraceNode>,
}

/// Gathers nodes when asked to, else costs nothing.
pub(super) struct Tracer {
    stack: Option<Vec<Vec<TraceNode>>>,
    open: Vec<TraceEvent>,
}

impl Tracer {
    pub(super) fn new(enabled: bool) -> Tracer {
        Tracer { stack: enabled.then(|| vec![Vec::new()]), open: Vec::new() }
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
        if let Some(top) = self.stack.as_mut().and_then(|s| s.last_mut()) {
            top.push(TraceNode { event: TraceEvent::Detail(text()), children: Vec::new() });
        }
    }

    pub(super) fn into_nodes(mut self) -> Vec<TraceNode> {
        while !self.open.is_empty() {
            self.pop();
        }
        self.stack.and_then(|mut s| s.pop()).unwrap_or_default()
    }
}
