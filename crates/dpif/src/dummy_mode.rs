//! [`DummyMode`]: the argument of `--enable-dummy`.

/// How far dummies, ports and datapaths without devices for deterministic tests, stand in for what is real
/// (`--enable-dummy`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DummyMode {
    /// There are none.
    #[default]
    Off,
    /// They are types beside the others.
    Beside,
    /// Interfaces and bridges of type `system` are dummies too.
    System,
    /// All interfaces but patch ports, and all bridges, are dummies.
    Override,
}

impl DummyMode {
    /// Reads the argument of `--enable-dummy`.
    pub fn parse(level: Option<&str>) -> Option<DummyMode> {
        match level {
            None | Some("") => Some(DummyMode::Beside),
            Some("system") => Some(DummyMode::System),
            Some("override") => Some(DummyMode::Override),
            Some(_) => None,
        }
    }

    /// Whether bridges of that datapath type are served by a dummy.
    pub fn is_datapath(self, datapath_type: &str) -> bool {
        match self {
            DummyMode::Off => false,
            DummyMode::Beside => datapath_type == "dummy",
            DummyMode::System => ["dummy", "system"].contains(&datapath_type),
            DummyMode::Override => true,
        }
    }

    /// Whether a dummy stands in for interfaces of that type.
    pub fn replaces(self, interface_type: &str) -> bool {
        match self {
            DummyMode::Off | DummyMode::Beside => false,
            DummyMode::System => interface_type == "system",
            DummyMode::Override => interface_type != "patch" && !interface_type.starts_with("dummy"),
        }
    }
}
