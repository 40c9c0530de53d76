//! [`SupportedTypes`]: what this build, started this way, can open.

use std::collections::BTreeMap;

/// Version of datapaths that are part of the switch.
const BUILT_IN: &str = "<built-in>";

/// How bridges of a datapath type are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatapathSupport {
    /// The datapath type that serves them: itself, or another in its place.
    pub served_by: String,
    /// What to tell when another serves in its place.
    pub notice: Option<String>,
    /// Its version, for `Bridge.datapath_version`.
    pub version: String,
    /// Its internal ports are not devices of the kernel, so their names may exceed 15 bytes.
    pub long_names: bool,
}

/// An interface type that can be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct InterfaceSupport {
    /// Not a device of the kernel: its name may exceed 15 bytes.
    pub long_names: bool,
}

/// The datapath and interface types that can be served, by their names in the database.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SupportedTypes {
    /// By `Bridge.datapath_type`; the empty type is read as `system`.
    pub datapaths: BTreeMap<String, DatapathSupport>,
    /// By `Interface.type`; the empty type is read as `system`.
    pub interfaces: BTreeMap<String, InterfaceSupport>,
}

impl SupportedTypes {
    /// The userspace datapath `netdev`, which also serves bridges of type `system` as there is no kernel datapath.
    pub fn userspace() -> Self {
        let mut types = SupportedTypes::default();
        types.add_datapath("netdev", false);
        let notice = "there is no kernel datapath; the userspace datapath (netdev) serves this bridge";
        types.datapaths.insert(
            "system".into(),
            DatapathSupport {
                served_by: "netdev".into(),
                notice: Some(notice.into()),
                version: BUILT_IN.into(),
                long_names: false,
            },
        );
        for (name, long_names) in [("system", false), ("internal", false), ("tap", false), ("patch", true)] {
            types.interfaces.insert(name.into(), InterfaceSupport { long_names });
        }
        types
    }

    /// The same with the types of `--enable-dummy`.
    pub fn with_dummy(mut self) -> Self {
        self.add_datapath("dummy", true);
        for name in ["dummy", "dummy-internal", "dummy-pmd"] {
            self.interfaces.insert(name.into(), InterfaceSupport { long_names: true });
        }
        self
    }

    /// Adds a userspace datapath type that serves itself.
    pub fn add_datapath(&mut self, name: &str, long_names: bool) {
        let support =
            DatapathSupport { served_by: name.into(), notice: None, version: BUILT_IN.into(), long_names };
        self.datapaths.insert(name.into(), support);
    }

    /// For `Open_vSwitch.datapath_types`.
    pub fn datapath_types(&self) -> Vec<String> {
        self.datapaths.keys().cloned().collect()
    }

    /// For `Open_vSwitch.iface_types`.
    pub fn interface_types(&self) -> Vec<String> {
        self.interfaces.keys().cloned().collect()
    }
}
