//! `null`: receives nothing and drops all output.

use super::port_type::{DeviceOrigin, KernelPort, OptionChange, PortType};
use super::reader::OptionReader;

/// A `null` port. It has no options.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NullPort;

impl PortType for NullPort {
    const NAMES: &'static [&'static str] = &["null"];
    const KEYS: &'static [&'static str] = &[];
    const DEVICE: DeviceOrigin = DeviceOrigin::None;
    const OPENS_TOGETHER: bool = false;
    const NEEDS_ENABLE_DUMMY: bool = false;

    fn parse(_options: &mut OptionReader<'_>) -> Result<NullPort, String> {
        Ok(NullPort)
    }

    fn type_name(&self) -> &str {
        "null"
    }

    fn userspace_type_name(&self) -> &str {
        self.type_name()
    }

    fn kernel_port(&self) -> Option<KernelPort> {
        None
    }

    fn change(&self, wanted: &NullPort) -> OptionChange {
        OptionChange::of_all(self, wanted)
    }

    fn shown(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}
