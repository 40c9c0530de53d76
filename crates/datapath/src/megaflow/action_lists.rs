//! Deduplicated action lists: flows with equal actions share an id, by which a burst is grouped.
//!
//! Invariant: a list exists while a flow has it, under one id.

use super::buckets::BucketTable;
use dpif::DpAction;
use dpif::actions::tnl_header::Encap;
use dpif::actions::{Effect, Output};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// An id without a list.
pub(crate) const NO_LIST: u32 = u32::MAX;

/// Lists freed at a time.
const FREED_AT_ONCE: usize = 256;

/// The actions of some flows.
pub(crate) struct ActionList {
    pub(crate) actions: Arc<[DpAction]>,
    /// Those that are executed.
    pub(crate) run: Arc<[DpAction]>,
    /// Port, if the only action is an output.
    pub(crate) output: Option<u32>,
    /// Number of actions in it that packets meet in order of arrival, nested ones included: meters, pushes of sequence
    /// numbers.
    pub(crate) in_order: usize,
    flows: usize,
    hash: u64,
}

/// See the module documentation.
pub(crate) struct ActionLists {
    lists: Vec<Option<ActionList>>,
    free: Vec<u32>,
    by_content: BucketTable,
    seed: u64,
}

impl ActionLists {
    /// Empty. `seed` prevents senders from causing collisions of list hashes.
    pub(crate) fn new(seed: u64) -> ActionLists {
        ActionLists { lists: Vec::new(), free: Vec::new(), by_content: BucketTable::default(), seed }
    }

    /// The list of that id.
    #[inline]
    pub(crate) fn get(&self, id: u32) -> Option<&ActionList> {
        self.lists.get(id as usize)?.as_ref()
    }

    /// The id of a flow's actions, freed by [`ActionLists::release`].
    pub(super) fn intern(&mut self, actions: Arc<[DpAction]>, run: Arc<[DpAction]>) -> u32 {
        let mut hasher = DefaultHasher::new();
        (self.seed, &actions, run.len()).hash(&mut hasher);
        let hash = hasher.finish();
        let lists = &self.lists;
        let same =
            |id: u32| lists[id as usize].as_ref().is_some_and(|l| l.actions == actions && l.run == run);
        if let Some(id) = self.by_content.find(hash, same) {
            if let Some(list) = &mut self.lists[id as usize] {
                list.flows += 1;
            }
            return id;
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.lists.push(None);
            self.lists.len() as u32 - 1
        });
        let output = match run[..] {
            [DpAction::Output(Output(port))] => Some(port.0),
            _ => None,
        };
        let in_order = count_in_order(&run);
        self.lists[id as usize] = Some(ActionList { actions, run, output, in_order, flows: 1, hash });
        let lists = &self.lists;
        self.by_content.insert(hash, id, |id| lists[id as usize].as_ref().map_or(0, |l| l.hash));
        id
    }

    /// Drops a flow's reference to the list.
    pub(super) fn release(&mut self, id: u32) {
        let Some(entry) = self.lists.get_mut(id as usize) else { return };
        let Some(list) = entry else { return };
        list.flows -= 1;
        if list.flows != 0 {
            return;
        }
        let hash = list.hash;
        *entry = None;
        self.by_content.remove(hash, id);
        self.free.push(id);
    }

    /// Frees some lists of a table that is used no more; `false`: little is left.
    pub(super) fn free_some(&mut self) -> bool {
        self.lists.truncate(self.lists.len().saturating_sub(FREED_AT_ONCE));
        self.by_content.free_some() || !self.lists.is_empty()
    }
}

fn count_in_order(actions: &[DpAction]) -> usize {
    let of = |action: &DpAction| {
        let counts = action.effect() == Effect::Meters || is_numbered(action);
        usize::from(counts) + action.lists().map(count_in_order).sum::<usize>()
    };
    actions.iter().map(of).sum()
}

/// Whether it pushes sequence numbers.
fn is_numbered(action: &DpAction) -> bool {
    if let DpAction::TnlPush(push) = action {
        matches!(push.header.fields().encap, Encap::Gre { seq: true, .. } | Encap::Erspan { .. })
    } else {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dpif::actions::{CloneAction, Meter};
    use flow::DpPort;

    #[test]
    fn equal_lists_share_an_id_until_the_last_flow_goes() {
        let list = |port| -> Arc<[DpAction]> {
            Arc::from([
                DpAction::Output(Output(DpPort(port))),
                DpAction::Clone(CloneAction(vec![DpAction::Meter(Meter(1))])),
            ])
        };
        let mut lists = ActionLists::new(7);
        let (a, b) = (lists.intern(list(1), list(1)), lists.intern(list(2), list(2)));
        assert_ne!(a, b);
        assert_eq!(lists.intern(list(1), list(1)), a);
        // The same list of packets that the port does not take.
        let other = lists.intern(list(1), Arc::from([]));
        assert_ne!(other, a);
        assert_eq!(lists.get(other).map(|l| (l.output, l.actions.len(), l.run.len())), Some((None, 2, 0)));
        lists.release(other);
        lists.release(a);
        assert_eq!(lists.get(a).map(|l| (l.output, l.in_order, l.actions.len())), Some((None, 1, 2)));
        lists.release(a);
        assert!(lists.get(a).is_none() && lists.get(NO_LIST).is_none());
        let output: Arc<[DpAction]> = Arc::from([DpAction::Output(Output(DpPort(3)))]);
        let c = lists.intern(output.clone(), output);
        assert_eq!((c, lists.get(c).and_then(|l| l.output)), (a, Some(3)));
        assert_eq!(lists.intern(list(2), list(2)), b);
        assert_eq!((lists.lists.len(), lists.by_content.len()), (3, 2));
    }
}
