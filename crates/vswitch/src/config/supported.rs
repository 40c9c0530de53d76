//! [`SupportedTypes`]: types that this build supports with the present options.

use std::collections::BTreeMap;

use dpif::DummyMode;
use ofproto::tunnel::TunnelKind;
use ovsdb::client::Replica;

/// Version of built-in datapaths.
const BUILT_IN: &str = "<built-in>";

/// Support of a datapath type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatapathSupport {
    /// The datapath type used: itself, or a replacement.
    pub served_by: String,
    /// Notice if a replacement is used.
    pub notice: Option<String>,
    /// Its version, for `Bridge.datapath_version`.
    pub version: String,
    /// It is a dummy datapath: its internal ports are dummies too, so names of bridges may exceed 15 bytes.
    pub dummy: bool,
}

/// Support of an interface type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterfaceKind {
    /// One end of a patch between bridges.
    Patch,
    /// A kernel device.
    System,
    /// A host-side device made by the switch.
    Internal,
    /// A tap device made by the switch.
    Tap,
    /// A kernel device, by AF_XDP.
    Afxdp,
    /// A dummy, of a dummy type or replacing another type.
    Dummy,
    /// No device.
    Null,
    /// Capture files.
    Pcap,
    /// A tunnel.
    Tunnel(TunnelKind),
}

impl InterfaceKind {
    /// Not a kernel device by that name: its name may exceed 15 bytes.
    pub fn long_names(self) -> bool {
        match self {
            InterfaceKind::System | InterfaceKind::Internal | InterfaceKind::Tap | InterfaceKind::Afxdp => {
                false
            }
            InterfaceKind::Patch
            | InterfaceKind::Dummy
            | InterfaceKind::Null
            | InterfaceKind::Pcap
            // One device serves all tunnels of a kind.
            | InterfaceKind::Tunnel(_) => true,
        }
    }
}

/// The supported datapath and interface types, by their names in the database.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SupportedTypes {
    /// By `Bridge.datapath_type`; the empty type means `system`.
    pub datapaths: BTreeMap<String, DatapathSupport>,
    /// By `Interface.type`; the empty type means `system`.
    pub interfaces: BTreeMap<String, InterfaceKind>,
}

impl SupportedTypes {
    /// The userspace datapath `netdev`, also used for bridges of type `system` without a kernel datapath.
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
                dummy: false,
            },
        );
        let kinds = [
            ("system", InterfaceKind::System),
            ("internal", InterfaceKind::Internal),
            ("tap", InterfaceKind::Tap),
            ("afxdp", InterfaceKind::Afxdp),
            ("patch", InterfaceKind::Patch),
            ("null", InterfaceKind::Null),
            ("pcap", InterfaceKind::Pcap),
        ];
        types.interfaces.extend(kinds.map(|(name, kind)| (name.to_string(), kind)));
        let tunnels = TunnelKind::ALL.map(|kind| (kind.name().to_string(), InterfaceKind::Tunnel(kind)));
        types.interfaces.extend(tunnels);
        types
    }

    /// Types of a daemon for a database, without the daemon: with dummies, if those were the last one's.
    pub fn of_database(replica: &Replica, has_kernel_datapath: bool) -> Self {
        let mut types = SupportedTypes::userspace();
        if has_kernel_datapath {
            types.add_kernel("");
        }
        let mut rows = replica.rows("Open_vSwitch");
        let had_dummies = rows.any(|row| row.string_set("datapath_types").contains(&"dummy"));
        types.with_dummies(if had_dummies { DummyMode::Beside } else { DummyMode::Off })
    }

    /// Uses the kernel's datapath, of that version, for bridges of type `system`.
    pub fn add_kernel(&mut self, version: &str) {
        let support = DatapathSupport {
            served_by: "system".into(),
            notice: None,
            version: version.into(),
            dummy: false,
        };
        self.datapaths.insert("system".into(), support);
    }

    /// The same with the types added or replaced by `--enable-dummy`.
    pub fn with_dummies(mut self, mode: DummyMode) -> Self {
        if mode == DummyMode::Off {
            return self;
        }
        let replaced: Vec<String> = self.datapaths.keys().filter(|t| mode.is_datapath(t)).cloned().collect();
        for name in replaced.iter().map(String::as_str).chain(["dummy"]) {
            self.add_datapath(name, true);
        }
        for name in ["dummy", "dummy-internal", "dummy-pmd"] {
            self.interfaces.insert(name.into(), InterfaceKind::Dummy);
        }
        for (_, kind) in self.interfaces.iter_mut().filter(|(name, _)| mode.replaces(name)) {
            *kind = InterfaceKind::Dummy;
        }
        self
    }

    /// Adds a userspace datapath type.
    pub fn add_datapath(&mut self, name: &str, dummy: bool) {
        let support =
            DatapathSupport { served_by: name.into(), notice: None, version: BUILT_IN.into(), dummy };
        self.datapaths.insert(name.into(), support);
    }

    /// Support of an interface type in a datapath; `None`: unknown.
    pub(super) fn kind(&self, type_name: &str, dummy_datapath: bool) -> Option<InterfaceKind> {
        match self.interfaces.get(type_name) {
            Some(InterfaceKind::Internal) if dummy_datapath => Some(InterfaceKind::Dummy),
            kind => kind.copied(),
        }
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
