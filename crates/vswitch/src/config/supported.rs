//! [`SupportedTypes`]: types that this build supports with the present options.

use std::collections::BTreeMap;

use dpif::{DummyMode, InterfaceType, PortOptions};
use ovsdb::client::Replica;

use super::interface::check_name;
use super::{StringMap, unsupported};

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

/// The supported datapath and interface types, by their names in the database.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SupportedTypes {
    /// By `Bridge.datapath_type`; the empty type means `system`.
    pub datapaths: BTreeMap<String, DatapathSupport>,
    /// By `Interface.type`; the empty type means `system`.
    pub interfaces: BTreeMap<String, InterfaceType>,
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
        types.add_interfaces(InterfaceType::all().iter().filter(|t| !t.needs_enable_dummy()));
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

    /// These types with those added or replaced by `--enable-dummy`.
    pub fn with_dummies(mut self, mode: DummyMode) -> Self {
        if mode == DummyMode::Off {
            return self;
        }
        let replaced: Vec<String> = self.datapaths.keys().filter(|t| mode.is_datapath(t)).cloned().collect();
        for name in replaced.iter().map(String::as_str).chain(["dummy"]) {
            self.add_datapath(name, true);
        }
        self.add_interfaces(InterfaceType::all().iter().filter(|t| t.needs_enable_dummy()));
        for (_, served_by) in self.interfaces.iter_mut().filter(|(name, _)| mode.replaces(name)) {
            *served_by = InterfaceType::DUMMY;
        }
        self
    }

    /// Adds a userspace datapath type.
    pub fn add_datapath(&mut self, name: &str, dummy: bool) {
        let support =
            DatapathSupport { served_by: name.into(), notice: None, version: BUILT_IN.into(), dummy };
        self.datapaths.insert(name.into(), support);
    }

    fn add_interfaces<'a>(&mut self, types: impl Iterator<Item = &'a InterfaceType>) {
        let by_name = types.flat_map(|t| t.names().iter().map(|name| (name.to_string(), *t)));
        self.interfaces.extend(by_name);
    }

    /// The type that serves an interface type in a datapath; `None`: unknown.
    pub(super) fn serving(&self, type_name: &str, dummy_datapath: bool) -> Option<InterfaceType> {
        let served_by = self.interfaces.get(type_name).copied();
        served_by.map(|t| if dummy_datapath { t.in_dummy_datapath() } else { t })
    }

    /// The options of a port that a command adds, with type and options as in an `Interface` row.
    ///
    /// # Errors
    /// The type is unknown or has no port in the datapath, or name or an option is invalid.
    pub fn port_options(
        &self,
        name: &str,
        type_name: &str,
        options: &StringMap,
        dummy_datapath: bool,
    ) -> Result<PortOptions, String> {
        let served_by = self.serving(type_name, dummy_datapath);
        let served_by = served_by.ok_or_else(|| unsupported::interface_type_error(name, type_name))?;
        check_name(name, served_by.has_long_names())
            .map_err(|why| format!("could not open network device {name} ({why})"))?;
        let options = served_by.parse(name, type_name, options)?.options;
        match options.patch_peer() {
            None => Ok(options),
            Some(_) => Err(format!("{name}: a patch is no port of a datapath")),
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
