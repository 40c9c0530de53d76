//! Tunnels: a type for each encapsulation. The tunnels of one kind and UDP port share one port of the datapath; outer
//! headers distinguish them.

mod config;
mod kind;
mod kinds;
mod parse;

pub use config::{Endpoint, TUNNEL_TTL, TunnelConfig, TunnelKey};
pub use kind::{TunnelKind, TunnelPort};
pub use kinds::{ErspanOptions, FlowLabel, KindOptions, PacketTypes, Srv6Options, usual_packet_types};

use super::port_type::{DeviceOrigin, KernelPort, OptionChange, PortType};
use super::reader::OptionReader;
use std::sync::Arc;

impl PortType for Arc<TunnelConfig> {
    const NAMES: &'static [&'static str] = &TunnelKind::NAMES;
    const KEYS: &'static [&'static str] = &parse::KEYS;
    const DEVICE: DeviceOrigin = DeviceOrigin::None;
    const OPENS_TOGETHER: bool = false;
    const NEEDS_ENABLE_DUMMY: bool = false;

    fn parse(options: &mut OptionReader<'_>) -> Result<Arc<TunnelConfig>, String> {
        let kind = TunnelKind::of_name(options.type_name)
            .ok_or_else(|| options.bad(format_args!("{} is no tunnel", options.type_name)))?;
        let (config, ignored) = parse::parse(kind, options.interface, options.map)?;
        ignored.into_iter().for_each(|(key, message)| options.warn(&key, message));
        Ok(Arc::new(config))
    }

    fn type_name(&self) -> &str {
        self.kind.name()
    }

    fn userspace_type_name(&self) -> &str {
        self.kind.name()
    }

    fn kernel_port(&self) -> Option<KernelPort> {
        Some(KernelPort::Tunnel(self.port()))
    }

    /// Translation has the options that do not concern the datapath.
    fn change(&self, wanted: &Arc<TunnelConfig>) -> OptionChange {
        OptionChange::of_all(&self.port(), &wanted.port())
    }

    fn shown(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}
