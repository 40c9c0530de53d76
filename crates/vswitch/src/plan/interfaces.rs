//! [`Interfaces`]: the interfaces of a bridge, with the names of those that changed; [`Least`]: a value that follows from them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::Arc;

use ovsdb::value::Uuid;

use super::DeviceSettings;
use super::state::{Interface, Names};
use crate::config::{InterfaceConfig, PortConfig};

/// The interfaces of a bridge, by name. All changes go through its methods, which note them.
#[derive(Clone, Debug, Default)]
pub(super) struct Interfaces {
    all: BTreeMap<String, Interface>,
    /// Interfaces added, removed or changed, and their former and present ports.
    changed: Names,
    rows: Rows,
}

/// Rows of interfaces and of ports of which the facts may have changed, with their names.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows {
    pub(super) interfaces: BTreeMap<Uuid, String>,
    pub(super) ports: BTreeMap<Uuid, String>,
}

impl Deref for Interfaces {
    type Target = BTreeMap<String, Interface>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl Interfaces {
    /// An interface, to be changed.
    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Interface> {
        let interface = self.all.get_mut(name)?;
        note(&mut self.changed, &mut self.rows, interface);
        Some(interface)
    }

    /// Adds or replaces an interface.
    pub(super) fn insert(&mut self, interface: Interface) {
        note(&mut self.changed, &mut self.rows, &interface);
        if let Some(before) = self.all.insert(interface.config.name.clone(), interface) {
            note(&mut self.changed, &mut self.rows, &before);
        }
    }

    /// Removes an interface.
    pub(super) fn remove(&mut self, name: &str) {
        if let Some(before) = self.all.remove(name) {
            note(&mut self.changed, &mut self.rows, &before);
        }
    }

    /// Records the settings sent to a device: nothing else follows from them.
    pub(super) fn sent(&mut self, name: &str, device: DeviceSettings) {
        if let Some(interface) = self.all.get_mut(name) {
            interface.sent = Some(device);
        }
    }

    /// Gives an interface another configuration.
    pub(super) fn configure(&mut self, name: &str, port: &Arc<PortConfig>, config: &Arc<InterfaceConfig>) {
        if let Some(interface) = self.get_mut(name) {
            (interface.config, interface.port) = (config.clone(), port.clone());
        }
        // Its port may be another one.
        self.get_mut(name);
    }

    /// The facts of an interface may have changed for another reason.
    pub(super) fn facts_changed(&mut self, name: &str) {
        if let Some(interface) = self.all.get(name) {
            self.rows.note(interface);
        }
    }

    /// The names of all that changed since the last call.
    pub(super) fn take_changed(&mut self) -> Names {
        std::mem::take(&mut self.changed)
    }

    /// The configuration of a port changed, or it came or went.
    pub(super) fn port_changed(&mut self, port: &PortConfig) {
        self.changed.ports.insert(port.name.clone());
        self.rows.ports.extend(port.row.map(|row| (row, port.name.clone())));
    }

    /// The rows of which the facts may have changed since the last call.
    pub(super) fn take_rows(&mut self) -> Rows {
        std::mem::take(&mut self.rows)
    }

    /// Whether more rows have changed than there are: nobody takes them.
    pub(super) fn has_excess_rows(&self) -> bool {
        self.rows.interfaces.len() + self.rows.ports.len() > 4 * self.all.len() + 64
    }
}

impl Rows {
    fn note(&mut self, interface: &Interface) {
        let (config, port) = (&interface.config, &interface.port);
        self.interfaces.extend(config.row.map(|row| (row, config.name.clone())));
        self.ports.extend(port.row.map(|row| (row, port.name.clone())));
    }
}

fn note(changed: &mut Names, rows: &mut Rows, interface: &Interface) {
    changed.interfaces.insert(interface.config.name.clone());
    changed.ports.insert(interface.port.name.clone());
    rows.note(interface);
}

/// The least of the values that some names have.
#[derive(Clone, Debug, Default)]
pub(super) struct Least<T> {
    by_name: BTreeMap<String, T>,
    in_order: BTreeSet<(T, String)>,
}

impl<T: Copy + Ord> Least<T> {
    /// Sets the value of a name; `None`: it has none.
    pub(super) fn set(&mut self, name: &str, value: Option<T>) {
        let before = self.by_name.get(name).copied();
        if before == value {
            return;
        }
        if let Some(before) = before {
            self.by_name.remove(name);
            self.in_order.remove(&(before, name.to_string()));
        }
        if let Some(value) = value {
            self.by_name.insert(name.to_string(), value);
            self.in_order.insert((value, name.to_string()));
        }
    }

    /// The least value.
    pub(super) fn get(&self) -> Option<T> {
        self.in_order.first().map(|(value, _)| *value)
    }
}
