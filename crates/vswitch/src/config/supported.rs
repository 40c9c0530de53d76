//! [`SupportedTypes`]: what this build, started this way, can open.

use std::collections::BTreeMap;

use dpif::DummyMode;
use ofproto::tunnel::TunnelKind;

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
        let devices = ["system", "internal", "tap", "afxdp"].map(|name| (name, false));
        for (name, long_names) in
            devices.into_iter().chain(["patch", "null", "pcap"].map(|name| (name, true)))
        {
            types.interfaces.insert(name.into(), InterfaceSupport { long_names });
        }
        types
    }

    /// Has the kernel's datapath, of that version, serve bridges of type `system`, and tunnels.
    pub fn add_kernel(&mut self, version: &str) {
        let support = DatapathSupport {
            served_by: "system".into(),
            notice: None,
            version: version.into(),
            long_names: false,
        };
        self.datapaths.insert("system".into(), support);
        // One device serves all tunnels of a kind, so their names are none of devices.
        for kind in TunnelKind::ALL {
            self.interfaces.insert(kind.name().into(), InterfaceSupport { long_names: true });
        }
    }

    /// The same with what `--enable-dummy` adds or replaces.
    pub fn with_dummies(mut self, mode: DummyMode) -> Self {
        if mode == DummyMode::Off {
            return self;
        }
        let replaced: Vec<String> = self.datapaths.keys().filter(|t| mode.is_datapath(t)).cloned().collect();
        for name in replaced.iter().map(String::as_str).chain(["dummy"]) {
            self.add_datapath(name, true);
        }
        for name in ["dummy", "dummy-internal", "dummy-pmd"] {
            self.interfaces.insert(name.into(), InterfaceSupport { long_names: true });
        }
        for (_, support) in self.interfaces.iter_mut().filter(|(name, _)| mode.replaces(name)) {
            support.long_names = true;
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
