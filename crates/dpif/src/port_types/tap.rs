//! `tap`: a tap device made by the switch.

use super::port_type::{DeviceOrigin, KernelPort, OptionChange, PortType};
use super::reader::OptionReader;

/// A `tap` port. It has no options.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TapPort;

impl PortType for TapPort {
    const NAMES: &'static [&'static str] = &["tap"];
    const KEYS: &'static [&'static str] = &[];
    const DEVICE: DeviceOrigin = DeviceOrigin::Created;
    const OPENS_TOGETHER: bool = false;
    const NEEDS_ENABLE_DUMMY: bool = false;

    fn parse(_options: &mut OptionReader<'_>) -> Result<TapPort, String> {
        Ok(TapPort)
    }

    fn type_name(&self) -> &str {
        "tap"
    }

    fn userspace_type_name(&self) -> &str {
        self.type_name()
    }

    fn kernel_port(&self) -> Option<KernelPort> {
        Some(KernelPort::Tap)
    }

    fn change(&self, wanted: &TapPort) -> OptionChange {
        OptionChange::of_all(self, wanted)
    }

    fn shown(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}
