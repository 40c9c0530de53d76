//! Ports of a datapath: [`PortSpec`] describes a new port, with the typed options of its type ([`PortOptions`]).
//!
//! A datapath gets only valid options. It reports an unsupported type ([`crate::DpifError::Unsupported`]).

use crate::port_types::PortOptions;
use flow::{DpPort, MacAddr};

/// The port of the datapath's own device.
pub const LOCAL_PORT: DpPort = DpPort(0);

/// A port to add.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortSpec {
    /// Interface name.
    pub name: String,
    /// Type and options.
    pub options: PortOptions,
    /// Ethernet address for a device made by the switch.
    pub mac: Option<MacAddr>,
    /// Requested MTU.
    pub mtu: Option<u32>,
    /// Requested number.
    pub number: Option<DpPort>,
}

/// A port of a datapath.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortInfo {
    /// Its number.
    pub number: DpPort,
    /// Interface name.
    pub name: String,
    /// Type name as in databases and `dpctl/show`.
    pub type_name: String,
}

/// Range of UDP source ports of tunnels, from which the hash of a packet selects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EgressPorts {
    first: u16,
    last: u16,
}

impl Default for EgressPorts {
    fn default() -> EgressPorts {
        EgressPorts { first: 32768, last: 61000 }
    }
}

impl EgressPorts {
    /// A range; `None`: the last is before the first.
    pub fn new(first: u16, last: u16) -> Option<EgressPorts> {
        (first <= last).then_some(EgressPorts { first, last })
    }

    /// First and last one.
    pub fn range(self) -> (u16, u16) {
        (self.first, self.last)
    }

    /// Both, the first in the upper half.
    pub fn to_bits(self) -> u32 {
        u32::from(self.first) << 16 | u32::from(self.last)
    }

    /// Inverse of [`EgressPorts::to_bits`].
    #[inline]
    pub fn from_bits(bits: u32) -> EgressPorts {
        EgressPorts { first: (bits >> 16) as u16, last: bits as u16 }
    }

    /// The port of packets with that hash.
    #[inline]
    pub fn of_hash(self, hash: u32) -> u16 {
        let ports = u64::from(self.last.saturating_sub(self.first)) + 1;
        self.first + ((u64::from(hash) * ports) >> 32) as u16
    }
}
