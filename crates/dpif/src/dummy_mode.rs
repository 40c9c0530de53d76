//! [`DummyMode`]: the argument of `--enable-dummy`.

/// Degree of dummy use (`--enable-dummy`): dummies are ports and datapaths without devices, for deterministic tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DummyMode {
    /// No dummies.
    #[default]
    Off,
    /// Additional types.
    Beside,
    /// Interfaces and bridges of type `system` are dummies too.
    System,
    /// All interfaces but patch ports, and all bridges, are dummies.
    Override,
}

impl DummyMode {
    /// Parses the argument of `--enable-dummy`.
    pub fn parse(level: Option<&str>) -> Option<DummyMode> {
        match level {
            None | Some("") => Some(DummyMode::Beside),
            Some("system") => Some(DummyMode::System),
            Some("override") => Some(DummyMode::Override),
            Some(_) => None,
        }
    }

    /// Whether a dummy replaces that datapath type.
    pub fn is_datapath(self, datapath_type: &str) -> bool {
        match self {
            DummyMode::Off => false,
            DummyMode::Beside => datapath_type == "dummy",
            DummyMode::System => ["dummy", "system"].contains(&datapath_type),
            DummyMode::Override => true,
        }
    }

    /// Whether a dummy replaces interfaces of that type.
    pub fn replaces(self, interface_type: &str) -> bool {
        match self {
            DummyMode::Off | DummyMode::Beside => false,
            DummyMode::System => interface_type == "system",
            DummyMode::Override => interface_type != "patch" && !interface_type.starts_with("dummy"),
        }
    }
}
