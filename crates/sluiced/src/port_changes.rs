//! The ports that differ between two tables of a bridge.

use ofproto::ports::{Port, PortTable};
use std::cmp::Ordering;
use std::sync::Arc;

/// The former and the present port of each number whose port is another value, in the order of numbers.
pub(crate) fn differing<'t>(
    old: &'t PortTable,
    new: &'t PortTable,
) -> Vec<(Option<&'t Arc<Port>>, Option<&'t Arc<Port>>)> {
    let (mut old, mut new) = (old.ports.iter().peekable(), new.ports.iter().peekable());
    let mut all = Vec::new();
    loop {
        let order = match (old.peek(), new.peek()) {
            (Some((a, before)), Some((b, now))) if a == b && Arc::ptr_eq(before, now) => {
                old.next();
                new.next();
                continue;
            }
            (Some((a, _)), Some((b, _))) => a.cmp(b),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return all,
        };
        let before = if order.is_le() { old.next() } else { None };
        let now = if order.is_ge() { new.next() } else { None };
        all.push((before.map(|(_, port)| port), now.map(|(_, port)| port)));
    }
}
