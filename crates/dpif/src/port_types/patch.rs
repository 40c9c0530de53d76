//! `patch`: one end of a patch between bridges. Translation follows it; it is no port of a datapath.

use super::port_type::{DeviceOrigin, KernelPort, OptionChange, PortType};
use super::reader::OptionReader;

/// Options of a `patch` port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PatchPort {
    /// The peer interface.
    pub peer: String,
}

impl PortType for PatchPort {
    const NAMES: &'static [&'static str] = &["patch"];
    const KEYS: &'static [&'static str] = &["peer"];
    const DEVICE: DeviceOrigin = DeviceOrigin::None;
    const OPENS_TOGETHER: bool = false;
    const NEEDS_ENABLE_DUMMY: bool = false;

    fn parse(options: &mut OptionReader<'_>) -> Result<PatchPort, String> {
        let name = options.interface;
        match options.get("peer") {
            None | Some("") => Err(format!("{name}: patch type requires valid 'peer' argument")),
            Some(peer) if peer == name => Err(format!("{name}: patch peer must not be self")),
            Some(peer) => Ok(PatchPort { peer: peer.to_string() }),
        }
    }

    fn type_name(&self) -> &str {
        "patch"
    }

    fn userspace_type_name(&self) -> &str {
        self.type_name()
    }

    fn kernel_port(&self) -> Option<KernelPort> {
        None
    }

    fn change(&self, wanted: &PatchPort) -> OptionChange {
        OptionChange::of_all(self, wanted)
    }

    fn shown(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}
