//! `system`: an existing network interface, by AF_PACKET or the kernel datapath.

use super::port_type::{DeviceOrigin, KernelPort, OptionChange, PortType};
use super::reader::OptionReader;

/// Options of a `system` port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SystemPort {
    /// Receive queues, at least 1.
    pub n_rxq: u32,
    /// Send runs of UDP datagrams from a local host as large segments.
    pub merge_udp: bool,
}

impl Default for SystemPort {
    fn default() -> SystemPort {
        SystemPort { n_rxq: 1, merge_udp: true }
    }
}

impl PortType for SystemPort {
    const NAMES: &'static [&'static str] = &["system"];
    const KEYS: &'static [&'static str] = &["merge_udp", "n_rxq"];
    const DEVICE: DeviceOrigin = DeviceOrigin::Existing;
    const OPENS_TOGETHER: bool = true;
    const NEEDS_ENABLE_DUMMY: bool = false;

    fn parse(options: &mut OptionReader<'_>) -> Result<SystemPort, String> {
        Ok(SystemPort { n_rxq: options.n_rxq, merge_udp: options.switch("merge_udp", true)? })
    }

    fn type_name(&self) -> &str {
        "system"
    }

    fn userspace_type_name(&self) -> &str {
        self.type_name()
    }

    fn kernel_port(&self) -> Option<KernelPort> {
        Some(KernelPort::Netdev)
    }

    fn change(&self, wanted: &SystemPort) -> OptionChange {
        if self.merge_udp != wanted.merge_udp {
            OptionChange::Reopen
        } else if self.n_rxq != wanted.n_rxq {
            OptionChange::ReopenQueues
        } else {
            OptionChange::Keep
        }
    }

    fn shown(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}
