//! Port types (`Interface.type`), as one registry: a file and a row each.
//!
//! - `PortType`: interface of one type: names, keys of `Interface.options`, parsing, device, and the effect of changed
//!   options. It has no default methods, so an incomplete type does not compile.
//! - [`PortOptions`]: the options of any type. The rows below generate it, and the dispatch to each type.
//! - [`InterfaceType`]: a row, by which `vswitch` parses an interface.
//! - [`PortTypeVisitor`]: code of another crate for each type; `netdev` opens devices by it. A type without such code
//!   does not compile there.
//!
//! A new type is a file here, its module and row below, and an opener in `netdev`. Options are values: a bad one is an
//! error of the interface's row, and no datapath reads strings of the database.

mod afxdp;
mod dummy;
mod interface_type;
mod internal;
mod list;
mod null;
mod patch;
mod pcap;
mod port_type;
mod reader;
mod system;
mod tap;
#[cfg(test)]
mod tests;
pub mod tunnel;

pub use afxdp::{AfxdpPort, XdpMode};
pub use dummy::{DummyPort, DummyStream};
pub use interface_type::{InterfaceType, OptionNotice, ParsedOptions};
pub use internal::InternalPort;
pub use null::NullPort;
pub use patch::PatchPort;
pub use pcap::PcapPort;
pub use port_type::{DeviceOrigin, KernelPort, OptionChange};
pub use system::SystemPort;
pub use tap::TapPort;
pub use tunnel::{TunnelConfig, TunnelKind, TunnelPort};

use port_type::PortType;
use std::sync::Arc;

list::port_types! {
    System(SystemPort),
    Internal(InternalPort),
    Tap(TapPort),
    Patch(PatchPort),
    Afxdp(AfxdpPort),
    Dummy(DummyPort),
    Null(NullPort),
    Pcap(PcapPort),
    Tunnel(Arc<TunnelConfig>),
}

impl PortOptions {
    /// Options of a bridge's own port.
    pub fn local(is_dummy_datapath: bool) -> PortOptions {
        match is_dummy_datapath {
            true => DummyPort::new(DummyPort::INTERNAL_TYPE).into(),
            false => InternalPort.into(),
        }
    }

    /// Name of the port of an interface in the datapath: tunnels share one.
    pub fn port_name(&self, interface: &str) -> String {
        self.tunnel_config().map_or_else(|| interface.to_string(), |tunnel| tunnel.device())
    }

    /// The tunnel, for tunnel ports.
    pub fn tunnel_config(&self) -> Option<&Arc<TunnelConfig>> {
        if let PortOptions::Tunnel(tunnel) = self { Some(tunnel) } else { None }
    }

    /// Options of a tunnel that concern the datapath.
    pub fn tunnel(&self) -> Option<TunnelPort> {
        self.tunnel_config().map(|tunnel| tunnel.port())
    }

    /// Connections of a dummy.
    pub fn stream(&self) -> Option<&DummyStream> {
        if let PortOptions::Dummy(dummy) = self { dummy.stream.as_ref() } else { None }
    }

    /// The peer of a patch port, which is no port of the datapath.
    pub fn patch_peer(&self) -> Option<&str> {
        if let PortOptions::Patch(patch) = self { Some(&patch.peer) } else { None }
    }
}
