//! Ports of a datapath: [`PortSpec`] describes a port to be made, with the typed options of its type ([`PortOptions`]).
//!
//! `vswitch` reads the options from the database and refuses the bad ones, so a datapath meets values only. Each type carries
//! the options that its device takes and no others; a datapath that lacks a type says so ([`crate::DpifError::Unsupported`]).

use flow::{DpPort, MacAddr};
use std::path::PathBuf;

/// A port to be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortSpec {
    /// Interface name.
    pub name: String,
    /// Type and options.
    pub options: PortOptions,
    /// Ethernet address for a device that we make.
    pub mac: Option<MacAddr>,
    /// MTU asked for.
    pub mtu: Option<u32>,
    /// Number asked for.
    pub number: Option<DpPort>,
}

/// A port of a datapath.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortInfo {
    /// Its number.
    pub number: DpPort,
    /// Interface name.
    pub name: String,
    /// Type name as databases and `dpctl/show` have it.
    pub type_name: String,
}

/// Type of a port, with the options of that type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PortOptions {
    /// An existing network interface.
    System(SystemPort),
    /// A tap device made by us, the bridge's own port or another host-side interface.
    Internal,
    /// A tap device made by us.
    Tap,
    /// An existing network interface, opened by AF_XDP.
    Afxdp(AfxdpPort),
    /// A port without a device, for deterministic tests.
    Dummy(DummyPort),
    /// A port that receives nothing and drops all that is sent.
    Null,
    /// A port that replays one capture file and writes another.
    Pcap(PcapPort),
    /// The device that tunnels of one kind share.
    Tunnel(TunnelPort),
}

impl PortOptions {
    /// Type name as databases and `dpctl/show` have it.
    pub fn type_name(&self) -> &str {
        match self {
            PortOptions::System(_) => "system",
            PortOptions::Internal => "internal",
            PortOptions::Tap => "tap",
            PortOptions::Afxdp(_) => "afxdp",
            PortOptions::Dummy(dummy) => &dummy.type_name,
            PortOptions::Null => "null",
            PortOptions::Pcap(_) => "pcap",
            PortOptions::Tunnel(tunnel) => tunnel.kind.name(),
        }
    }
}

/// Options of a `system` port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SystemPort {
    /// Receive queues, at least 1.
    pub n_rxq: u32,
    /// Runs of UDP datagrams from a host of this machine leave as large segments.
    pub merge_udp: bool,
}

impl Default for SystemPort {
    fn default() -> SystemPort {
        SystemPort { n_rxq: 1, merge_udp: true }
    }
}

/// Options of an `afxdp` port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AfxdpPort {
    /// Where frames are taken from.
    pub xdp_mode: XdpMode,
    /// Receive queues, at least 1.
    pub n_rxq: u32,
    /// Call the kernel only when it asks for a wakeup.
    pub use_need_wakeup: bool,
}

impl Default for AfxdpPort {
    fn default() -> AfxdpPort {
        AfxdpPort { xdp_mode: XdpMode::default(), n_rxq: 1, use_need_wakeup: true }
    }
}

/// Where an `afxdp` port takes its frames from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum XdpMode {
    /// The fastest that works.
    #[default]
    BestEffort,
    /// In the driver, without copying.
    NativeWithZerocopy,
    /// In the driver, copied by the kernel.
    Native,
    /// Before the host's stack: any device.
    Generic,
}

impl XdpMode {
    /// All modes.
    pub const ALL: [XdpMode; 4] =
        [XdpMode::BestEffort, XdpMode::NativeWithZerocopy, XdpMode::Native, XdpMode::Generic];

    /// Value of `options:xdp-mode`.
    pub fn name(self) -> &'static str {
        match self {
            XdpMode::BestEffort => "best-effort",
            XdpMode::NativeWithZerocopy => "native-with-zerocopy",
            XdpMode::Native => "native",
            XdpMode::Generic => "generic",
        }
    }
}

/// Options of a dummy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DummyPort {
    /// Interface type in the database: a dummy type, or the type that the dummy stands in for.
    pub type_name: String,
    /// Forwarding threads poll it; otherwise the main core does.
    pub pmd: bool,
    /// Receive queues, at least 1.
    pub n_rxq: u32,
    /// NUMA node that it pretends to be on.
    pub numa_id: u32,
    /// Interface index that it pretends to have.
    pub ifindex: Option<u32>,
    /// Capture file for frames of both directions. With it, the two others are not used.
    pub pcap: Option<PathBuf>,
    /// Capture file for received frames.
    pub rxq_pcap: Option<PathBuf>,
    /// Capture file for sent frames.
    pub tx_pcap: Option<PathBuf>,
}

impl DummyPort {
    /// Interface type of dummies that forwarding threads poll.
    pub const PMD_TYPE: &str = "dummy-pmd";

    /// A dummy of that interface type with default options.
    pub fn new(type_name: &str) -> DummyPort {
        DummyPort {
            type_name: type_name.to_string(),
            pmd: type_name == DummyPort::PMD_TYPE,
            n_rxq: 1,
            numa_id: 0,
            ifindex: None,
            pcap: None,
            rxq_pcap: None,
            tx_pcap: None,
        }
    }
}

/// Options of a `pcap` port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PcapPort {
    /// File whose frames it receives.
    pub rx_pcap: Option<PathBuf>,
    /// File that sent frames are written to.
    pub tx_pcap: Option<PathBuf>,
    /// Replay the file again and again.
    pub infinite_rx: bool,
}

/// Options of a tunnel port that concern the datapath; translation has the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TunnelPort {
    /// Encapsulation.
    pub kind: TunnelKind,
    /// UDP port; 0 for what does not run over UDP.
    pub dst_port: u16,
    /// VXLAN group policies.
    pub gbp: bool,
}

/// Encapsulation of a tunnel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TunnelKind {
    /// RFC 7348.
    Vxlan,
    /// RFC 8926.
    Geneve,
    /// RFC 2890, with Ethernet frames inside.
    Gre,
}

impl TunnelKind {
    /// All.
    pub const ALL: [TunnelKind; 3] = [TunnelKind::Vxlan, TunnelKind::Geneve, TunnelKind::Gre];

    /// Its name as an interface type.
    pub fn name(self) -> &'static str {
        match self {
            TunnelKind::Vxlan => "vxlan",
            TunnelKind::Geneve => "geneve",
            TunnelKind::Gre => "gre",
        }
    }

    /// That of an interface type.
    pub fn of_name(name: &str) -> Option<TunnelKind> {
        TunnelKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// UDP port that IANA assigned; `None`: it does not run over UDP.
    pub fn usual_port(self) -> Option<u16> {
        match self {
            TunnelKind::Vxlan => Some(4789),
            TunnelKind::Geneve => Some(6081),
            TunnelKind::Gre => None,
        }
    }
}
