//! The action set of OpenFlow 1.1 and later (1.3 §5.10): the stored actions, and their execution order.

use crate::action::SetPlace;
use crate::list::Action;
use flow::OfPort;

/// Adds written actions to the set.
pub fn merge(set: &mut Vec<Action>, written: &[Action]) {
    for action in written {
        let place = action.set_place();
        match place {
            SetPlace::Never => continue,
            SetPlace::Rewrite => {}
            SetPlace::Before(_) | SetPlace::After(_) | SetPlace::WayOut(_) => {
                set.retain(|old| old.set_place() != place);
            }
        }
        set.push(action.clone());
    }
}

/// The output port of the set, as seen by rules in `actset_output`: none if a group takes its place.
pub fn output_of(set: &[Action]) -> OfPort {
    if set.iter().any(|a| matches!(a, Action::Group(_))) {
        return OfPort::UNSET;
    }
    set.iter()
        .find_map(|a| if let Action::Output(output) = a { Some(output.port) } else { None })
        .unwrap_or(OfPort::UNSET)
}

/// The actions of the set in execution order: at most one output, and none without one.
pub fn in_order(set: &[Action]) -> Vec<Action> {
    let way_out = |a: &Action| matches!(a.set_place(), SetPlace::WayOut(_));
    let Some(last) = set.iter().filter(|a| way_out(a)).map(Action::set_place).min() else {
        return Vec::new();
    };
    let mut ordered: Vec<Action> =
        set.iter().filter(|a| !way_out(a) || a.set_place() == last).cloned().collect();
    ordered.sort_by_key(Action::set_place);
    ordered
}
