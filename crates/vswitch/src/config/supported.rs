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
    /// It is a datapath of dummies: its internal ports are dummies too, so names of bridges may exceed 15 bytes.
    pub dummy: bool,
}

/// How interfaces of a type are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterfaceKind {
    /// One end of a patch between bridges.
    Patch,
    /// A device of the kernel.
    System,
    /// A device for the machine's own use, made by the switch.
    Internal,
    /// A tap device, made by the switch.
    Tap,
    /// A device of the kernel, by AF_XDP.
    Afxdp,
    /// A dummy, of a dummy type or in place of another type.
    Dummy,
    /// No device.
    Null,
    /// Capture files.
    Pcap,
    /// A tunnel.
    Tunnel(TunnelKind),
}

impl InterfaceKind {
    /// Not a device of the kernel by that name: its name may exceed 15 bytes.
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

/// The datapath and interface types that can be served, by their names in the database.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SupportedTypes {
    /// By `Bridge.datapath_type`; the empty type is read as `system`.
    pub datapaths: BTreeMap<String, DatapathSupport>,
    /// By `Interface.type`; the empty type is read as `system`.
    pub interfaces: BTreeMap<String, InterfaceKind>,
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
        types
    }

    /// Has the kernel's datapath, of that version, serve bridges of type `system`, and tunnels.
    pub fn add_kernel(&mut self, version: &str) {
        let support = DatapathSupport {
            served_by: "system".into(),
            notice: None,
            version: version.into(),
            dummy: false,
        };
        self.datapaths.insert("system".into(), support);
        for kind in TunnelKind::ALL {
            self.interfaces.insert(kind.name().into(), InterfaceKind::Tunnel(kind));
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
            self.interfaces.insert(name.into(), InterfaceKind::Dummy);
        }
        for (_, kind) in self.interfaces.iter_mut().filter(|(name, _)| mode.replaces(name)) {
            *kind = InterfaceKind::Dummy;
        }
        self
    }

    /// Adds a userspace datapath type that serves itself.
    pub fn add_datapath(&mut self, name: &str, dummy: bool) {
        let support =
            DatapathSupport { served_by: name.into(), notice: None, version: BUILT_IN.into(), dummy };
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
