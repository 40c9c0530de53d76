//! [`DummyPorts`]: the dummies of a process by name, for commands such as `netdev-dummy/receive`.

use super::Dummy;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How a dummy holds its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// Alone.
    Sole,
    /// Beside the own port of a datapath: a port of type `dummy-internal`.
    Shared,
    /// Such an own port: commands mean it only while no other dummy has the name.
    Own,
}

/// A dummy under its name.
struct Entry {
    dummy: Dummy,
    claim: Claim,
}

/// Dummies by port name. Clones share one table: the datapath fills it, commands look names up.
#[derive(Clone, Default)]
pub struct DummyPorts(Arc<Mutex<BTreeMap<String, Entry>>>);

impl DummyPorts {
    fn table(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a dummy, in place of an earlier one of that name, unless it is the own port of a datapath.
    pub fn insert(&self, name: &str, dummy: Dummy, claim: Claim) {
        let entry = Entry { dummy, claim };
        match claim {
            Claim::Own => drop(self.table().entry(name.to_string()).or_insert(entry)),
            Claim::Sole | Claim::Shared => drop(self.table().insert(name.to_string(), entry)),
        }
    }

    /// Whether a dummy may have a name beside those that have it.
    pub fn is_free(&self, name: &str, claim: Claim) -> bool {
        let table = self.table();
        let Some(entry) = table.get(name) else { return true };
        let either = [entry.claim, claim];
        either.contains(&Claim::Own) && !either.contains(&Claim::Sole)
    }

    /// Removes this dummy, if it has the name.
    pub fn remove(&self, name: &str, dummy: &Dummy) {
        let mut table = self.table();
        if table.get(name).is_some_and(|entry| Arc::ptr_eq(&entry.dummy.0, &dummy.0)) {
            table.remove(name);
        }
    }

    /// All, in order of their names.
    pub fn all(&self) -> Vec<Dummy> {
        self.table().values().map(|entry| entry.dummy.clone()).collect()
    }

    /// The dummy of a port.
    pub fn get(&self, name: &str) -> Option<Dummy> {
        self.table().get(name).map(|entry| entry.dummy.clone())
    }
}

impl fmt::Debug for DummyPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.table().keys()).finish()
    }
}
