//! `internal`: a host-side network interface made by the switch, as the bridge's own port is.

use super::port_type::{DeviceOrigin, KernelPort, OptionChange, PortType};
use super::reader::OptionReader;

/// An `internal` port. It has no options.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InternalPort;

impl PortType for InternalPort {
    const NAMES: &'static [&'static str] = &["internal"];
    const KEYS: &'static [&'static str] = &[];
    const DEVICE: DeviceOrigin = DeviceOrigin::Created;
    const OPENS_TOGETHER: bool = false;
    const NEEDS_ENABLE_DUMMY: bool = false;

    fn parse(_options: &mut OptionReader<'_>) -> Result<InternalPort, String> {
        Ok(InternalPort)
    }

    fn type_name(&self) -> &str {
        "internal"
    }

    /// As in OVS, whose userspace datapath has taps only.
    fn userspace_type_name(&self) -> &str {
        "tap"
    }

    fn kernel_port(&self) -> Option<KernelPort> {
        Some(KernelPort::Internal)
    }

    fn change(&self, wanted: &InternalPort) -> OptionChange {
        OptionChange::of_all(self, wanted)
    }

    fn shown(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}
