//! [`InterfaceOptions`]: `Interface.options`, parsed into the options of the interface's type.
//!
//! A bad value is an error of the row, with key, value and the allowed range. Unknown keys are ignored, except for
//! tunnels, which report them.

use std::path::PathBuf;
use std::sync::Arc;

use dpif::{AfxdpPort, DummyPort, PcapPort, PortOptions, SystemPort, TunnelPort, XdpMode};
use ofproto::tunnel::{PacketTypes, TunnelConfig};

use super::interface::check_name;
use super::supported::{InterfaceKind, SupportedTypes};
use super::{StringMap, tunnel, unsupported};

/// Type of internal ports in a dummy datapath.
const DUMMY_INTERNAL: &str = "dummy-internal";

/// Options of an interface, by its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterfaceOptions {
    /// One end of a patch.
    Patch {
        /// The peer interface.
        peer: String,
    },
    /// A port of the datapath.
    Device(DeviceOptions),
}

impl InterfaceOptions {
    /// Options of a datapath port; a patch port has none.
    pub fn device(&self) -> Option<&DeviceOptions> {
        match self {
            InterfaceOptions::Device(device) => Some(device),
            InterfaceOptions::Patch { .. } => None,
        }
    }

    /// The peer of a patch port.
    pub fn patch_peer(&self) -> Option<&str> {
        match self {
            InterfaceOptions::Patch { peer } => Some(peer),
            InterfaceOptions::Device(_) => None,
        }
    }
}

/// Options of a datapath port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceOptions {
    /// Type and options of the port.
    pub port: PortOptions,
    /// The tunnel, for a tunnel port.
    pub tunnel: Option<Arc<TunnelConfig>>,
    /// Connections of a dummy.
    pub stream: Option<DummyStream>,
}

impl From<PortOptions> for DeviceOptions {
    fn from(port: PortOptions) -> DeviceOptions {
        DeviceOptions { port, tunnel: None, stream: None }
    }
}

/// Connections of a dummy: they receive its output and provide its input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DummyStream {
    /// Connect to that target (`options:stream`).
    Active(String),
    /// Listen at that target (`options:pstream`).
    Passive(String),
}

impl DeviceOptions {
    /// Name of the port of an interface: a tunnel's is that of the shared device.
    pub fn port_name(&self, interface: &str) -> String {
        self.tunnel.as_ref().map_or_else(|| interface.to_string(), |tunnel| tunnel.device())
    }

    /// For a port that a command adds, with type and options as in an `Interface` row.
    ///
    /// # Errors
    /// The type is unknown or has no port in the datapath, or name or an option is invalid.
    pub fn of_command(
        name: &str,
        type_name: &str,
        options: &StringMap,
        supported: &SupportedTypes,
        dummy_datapath: bool,
    ) -> Result<DeviceOptions, String> {
        let kind = supported.kind(type_name, dummy_datapath);
        let kind = kind.ok_or_else(|| unsupported::interface_type_error(name, type_name))?;
        check_name(name, kind.long_names())
            .map_err(|why| format!("could not open network device {name} ({why})"))?;
        match parse(name, type_name, kind, options)? {
            (InterfaceOptions::Device(device), _) => Ok(device),
            (InterfaceOptions::Patch { .. }, _) => Err(format!("{name}: a patch is no port of a datapath")),
        }
    }

    /// For a bridge's own port, without options.
    pub(super) fn local(dummy_datapath: bool) -> DeviceOptions {
        DeviceOptions::from(match dummy_datapath {
            true => PortOptions::Dummy(DummyPort::new(DUMMY_INTERNAL)),
            false => PortOptions::Internal,
        })
    }
}

/// Options of an interface, and notices about ineffective ones, by key; or the error for its row.
pub(super) fn parse(
    name: &str,
    type_name: &str,
    kind: InterfaceKind,
    options: &StringMap,
) -> Result<(InterfaceOptions, Vec<(String, String)>), String> {
    let mut ignored = Vec::new();
    let options = Options { name, map: options };
    // Also for types with one queue: a bad value is an error everywhere.
    let n_rxq = options.n_rxq()?;
    let device = match kind {
        InterfaceKind::Patch => return Ok((InterfaceOptions::Patch { peer: options.peer()? }, ignored)),
        InterfaceKind::System => {
            PortOptions::System(SystemPort { n_rxq, merge_udp: options.switch("merge_udp", true)? }).into()
        }
        InterfaceKind::Internal => PortOptions::Internal.into(),
        InterfaceKind::Tap => PortOptions::Tap.into(),
        InterfaceKind::Afxdp => PortOptions::Afxdp(AfxdpPort {
            xdp_mode: options.xdp_mode()?,
            n_rxq,
            use_need_wakeup: options.switch("use-need-wakeup", true)?,
        })
        .into(),
        InterfaceKind::Null => PortOptions::Null.into(),
        InterfaceKind::Pcap => PortOptions::Pcap(PcapPort {
            rx_pcap: options.file("rx_pcap"),
            tx_pcap: options.file("tx_pcap"),
            infinite_rx: options.switch("infinite_rx", false)?,
        })
        .into(),
        InterfaceKind::Dummy => options.dummy(type_name, n_rxq)?,
        InterfaceKind::Tunnel(kind) => {
            let (config, notices) = tunnel::parse(kind, name, options.map)?;
            ignored = notices;
            let l3 = config.of_kind.gpe || config.of_kind.packet_types != PacketTypes::Frames;
            let port = TunnelPort { kind, dst_port: config.dst_port, gbp: config.gbp, l3 };
            DeviceOptions { port: PortOptions::Tunnel(port), tunnel: Some(Arc::new(config)), stream: None }
        }
    };
    Ok((InterfaceOptions::Device(device), ignored))
}

/// `options` of the interface of that name.
struct Options<'a> {
    name: &'a str,
    map: &'a StringMap,
}

impl Options<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.map.get(key).map(String::as_str)
    }

    fn bad(&self, why: impl std::fmt::Display) -> String {
        format!("could not open network device {} ({why})", self.name)
    }

    fn peer(&self) -> Result<String, String> {
        let name = self.name;
        match self.get("peer") {
            None | Some("") => Err(format!("{name}: patch type requires valid 'peer' argument")),
            Some(peer) if peer == name => Err(format!("{name}: patch peer must not be self")),
            Some(peer) => Ok(peer.to_string()),
        }
    }

    /// Receive queues: default 1, also for 0.
    fn n_rxq(&self) -> Result<u32, String> {
        let Some(text) = self.get("n_rxq") else { return Ok(1) };
        let n_rxq: u32 = text.trim().parse().map_err(|_| {
            let name = self.name;
            format!("could not set configuration of {name} (options:n_rxq={text:?} is not a number of receive queues)")
        })?;
        Ok(n_rxq.max(1))
    }

    fn switch(&self, key: &str, default: bool) -> Result<bool, String> {
        let Some(text) = self.get(key) else { return Ok(default) };
        text.parse().map_err(|_| self.bad(format_args!("option {key}: {text}: neither true nor false")))
    }

    fn number(&self, key: &str) -> Result<Option<u32>, String> {
        let Some(text) = self.get(key) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| self.bad(format_args!("option {key}: {text}: not a number")))
    }

    fn file(&self, key: &str) -> Option<PathBuf> {
        self.get(key).map(PathBuf::from)
    }

    fn xdp_mode(&self) -> Result<XdpMode, String> {
        let Some(text) = self.get("xdp-mode") else { return Ok(XdpMode::default()) };
        let known = XdpMode::ALL.into_iter().find(|mode| mode.name() == text);
        known.ok_or_else(|| {
            let [modes @ .., last] = XdpMode::ALL.map(XdpMode::name);
            let modes = modes.join(", ");
            self.bad(format_args!("option xdp-mode: {text:?} is no xdp-mode: {modes} and {last} are"))
        })
    }

    fn dummy(&self, type_name: &str, n_rxq: u32) -> Result<DeviceOptions, String> {
        let type_name = if type_name == "internal" { DUMMY_INTERNAL } else { type_name };
        let port = DummyPort {
            n_rxq,
            n_txq: self.number("n_txq")?.unwrap_or(1).max(1),
            numa_id: self.number("numa_id")?.unwrap_or(0),
            ifindex: self.number("ifindex")?,
            pcap: self.file("pcap"),
            rxq_pcap: self.file("rxq_pcap"),
            tx_pcap: self.file("tx_pcap"),
            ..DummyPort::new(type_name)
        };
        let stream = match (self.get("stream"), self.get("pstream")) {
            (Some(_), Some(_)) => return Err(self.bad("options stream and pstream exclude each other")),
            (Some(target), None) => Some(DummyStream::Active(target.to_string())),
            (None, Some(target)) => Some(DummyStream::Passive(target.to_string())),
            (None, None) => None,
        };
        Ok(DeviceOptions { port: PortOptions::Dummy(port), tunnel: None, stream })
    }
}

#[cfg(test)]
mod tests;
