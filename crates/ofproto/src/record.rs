//! Changes of OpenFlow state that wait to be written down, for a later process.
//!
//! Every published version of the tables adds its changes, in the order of publication, while a recorder is on
//! ([`Recorder::start`]). The owner takes them on a thread of its own. If more than [`WAITING_MAX`] wait, all are
//! dropped, and the owner writes down the whole state instead.
//!
//! Meters belong to no version: they are kept here.

use crate::group::Group;
use crate::ids::BridgeId;
use crate::rule::Rule;
use crate::tables::{Change, Journal, Tables};
use flow::{TableId, TlvTable};
use openflow::msg::group::GROUP_ALL;
use openflow::msg::meter::Meter;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use sync::{AtomicBool, Mutex, Ordering, lock};

/// Most changes that wait.
pub const WAITING_MAX: usize = 262_144;

/// A change of a bridge.
#[derive(Clone, Debug)]
pub enum Recorded {
    /// A rule was added or changed.
    Rule(Arc<Rule>),
    /// A rule was removed.
    RuleGone(Arc<Rule>),
    /// A table lost all its rules.
    TableGone(TableId),
    /// A group was added or changed.
    Group(Arc<Group>),
    /// A group was removed.
    GroupGone(u32),
    /// All groups were removed, and these added.
    Groups(Vec<Arc<Group>>),
    /// The mappings of tunnel metadata.
    Tlv(Arc<TlvTable>),
    /// A meter was added or changed; it was created then.
    Meter(Meter, u64),
    /// A meter was removed.
    MeterGone(u32),
    /// The bridge was removed.
    BridgeGone,
}

/// Changes since the last call of [`Recorder::take`].
#[derive(Debug, Default)]
pub struct Waiting {
    /// The changes, oldest first.
    pub changes: Vec<(BridgeId, Recorded)>,
    /// Changes were dropped, all of them before `changes`.
    pub lost: bool,
}

/// The meters of bridges, with the times of their creation, in milliseconds of the monotonic clock.
pub type Meters = BTreeMap<BridgeId, BTreeMap<u32, (Meter, u64)>>;

#[derive(Default)]
struct State {
    waiting: Waiting,
    meters: Meters,
}

/// See the module documentation.
#[derive(Default)]
pub struct Recorder {
    is_on: AtomicBool,
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
    state: Mutex<State>,
}

impl Recorder {
    /// Records from now on, or no longer; `wake` is called when changes wait. The first `wake` stays.
    pub fn start(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.wake.get_or_init(|| Box::new(wake));
        self.is_on.store(true, Ordering::Release);
    }

    /// Stops recording; drops changes that wait.
    pub fn stop(&self) {
        self.is_on.store(false, Ordering::Release);
        lock(&self.state).waiting = Waiting::default();
    }

    /// Takes the changes that wait.
    pub fn take(&self) -> Waiting {
        std::mem::take(&mut lock(&self.state).waiting)
    }

    /// The meters of all bridges.
    pub fn meters(&self) -> Meters {
        lock(&self.state).meters.clone()
    }

    /// Notes a meter of a bridge with the time of its creation, or with `None` its end.
    pub fn meter(&self, bridge: BridgeId, id: u32, meter: Option<(&Meter, u64)>) {
        let meter = meter.map(|(meter, created_ms)| (meter.clone(), created_ms));
        let mut state = lock(&self.state);
        let meters = state.meters.entry(bridge).or_default();
        match &meter {
            Some(meter) => drop(meters.insert(id, meter.clone())),
            None => drop(meters.remove(&id)),
        }
        drop(state);
        let noted = meter.map(|(meter, created_ms)| Recorded::Meter(meter, created_ms));
        self.add(bridge, [noted.unwrap_or(Recorded::MeterGone(id))]);
    }

    /// Notes the end of a bridge.
    pub(crate) fn bridge_gone(&self, bridge: BridgeId) {
        lock(&self.state).meters.remove(&bridge);
        self.add(bridge, [Recorded::BridgeGone]);
    }

    /// Adds the changes of a published version. The caller excludes other writers.
    pub(crate) fn follow(&self, bridge: BridgeId, journal: &Journal, tables: &Tables) {
        if journal.is_empty() || !self.is_on.load(Ordering::Acquire) {
            return;
        }
        let mut found = Vec::new();
        journal.each(&mut |change| match change {
            Change::Rule(change, _) => {
                let rule = change.after.clone().map(Recorded::Rule);
                let rule = rule.or_else(|| change.before.clone().map(Recorded::RuleGone));
                found.extend(rule.filter(|rule| !is_hidden(rule)));
            }
            Change::Cleared(cleared, _) => found.push(Recorded::TableGone(cleared.id())),
            Change::Group(GROUP_ALL) => found.push(Recorded::Groups(tables.groups().all())),
            Change::Group(id) => {
                let group = tables.groups().get(*id).cloned();
                found.push(group.map_or(Recorded::GroupGone(*id), Recorded::Group));
            }
            Change::Tlv => found.push(Recorded::Tlv(tables.tlv().clone())),
            Change::Status(_) => {}
        });
        self.add(bridge, found);
    }

    fn add(&self, bridge: BridgeId, found: impl IntoIterator<Item = Recorded>) {
        if !self.is_on.load(Ordering::Acquire) {
            return;
        }
        let mut state = lock(&self.state);
        let waiting = &mut state.waiting;
        let before = waiting.changes.len();
        waiting.changes.extend(found.into_iter().map(|change| (bridge, change)));
        let is_new = before == 0 && !waiting.changes.is_empty();
        if waiting.changes.len() > WAITING_MAX {
            *waiting = Waiting { changes: Vec::new(), lost: true };
        }
        drop(state);
        if is_new && let Some(wake) = self.wake.get() {
            wake();
        }
    }
}

/// Whether only the switch itself sees the rule.
fn is_hidden(change: &Recorded) -> bool {
    matches!(change, Recorded::Rule(rule) | Recorded::RuleGone(rule) if rule.is_hidden())
}
