//! [`DummyPorts`]: the dummies of a process by name, for commands such as `netdev-dummy/receive`.

use super::Dummy;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Dummies by port name. Clones share one table: the datapath fills it, commands look names up.
#[derive(Clone, Default)]
pub struct DummyPorts(Arc<Mutex<BTreeMap<String, Dummy>>>);

impl DummyPorts {
    fn table(&self) -> MutexGuard<'_, BTreeMap<String, Dummy>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a dummy, in place of an earlier one of that name.
    pub fn insert(&self, name: &str, dummy: Dummy) {
        self.table().insert(name.to_string(), dummy);
    }

    /// Removes the dummy of a port.
    pub fn remove(&self, name: &str) {
        self.table().remove(name);
    }

    /// All, in order of their names.
    pub fn all(&self) -> Vec<Dummy> {
        self.table().values().cloned().collect()
    }

    /// The dummy of a port.
    pub fn get(&self, name: &str) -> Option<Dummy> {
        self.table().get(name).cloned()
    }
}

impl fmt::Debug for DummyPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.table().keys()).finish()
    }
}
