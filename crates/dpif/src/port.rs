//! Ports of a datapath: [`PortSpec`] describes a new port, with the typed options of its type ([`PortOptions`]).
//!
//! `vswitch` parses the options from the database and rejects invalid ones, so a datapath gets only valid values.
//! Each type has the options of its device and no others; a datapath reports an unsupported type
//! ([`crate::DpifError::Unsupported`]).

use flow::{DpPort, MacAddr};
use std::path::PathBuf;

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

/// Type of a port, with the options of that type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PortOptions {
    /// An existing network interface.
    System(SystemPort),
    /// A tap device made by the switch: the bridge's own port or another host-side interface.
    Internal,
    /// A tap device made by the switch.
    Tap,
    /// An existing network interface, through AF_XDP.
    Afxdp(AfxdpPort),
    /// A port without a device, for deterministic tests.
    Dummy(DummyPort),
    /// A port that receives nothing and drops all output.
    Null,
    /// A port that replays one capture file and writes another.
    Pcap(PcapPort),
    /// The shared device of all tunnels of one kind.
    Tunnel(TunnelPort),
}

impl PortOptions {
    /// Options of a tunnel.
    pub fn tunnel(&self) -> Option<TunnelPort> {
        if let PortOptions::Tunnel(tunnel) = self { Some(*tunnel) } else { None }
    }

    /// Type name as in databases and `dpctl/show`.
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
    /// Send runs of UDP datagrams from a local host as large segments.
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
    /// Reception mode.
    pub xdp_mode: XdpMode,
    /// Receive queues, at least 1.
    pub n_rxq: u32,
    /// Call the kernel only if it requests a wakeup.
    pub use_need_wakeup: bool,
}

impl Default for AfxdpPort {
    fn default() -> AfxdpPort {
        AfxdpPort { xdp_mode: XdpMode::default(), n_rxq: 1, use_need_wakeup: true }
    }
}

/// Reception mode of an `afxdp` port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum XdpMode {
    /// The fastest supported one.
    #[default]
    BestEffort,
    /// In the driver, zero-copy.
    NativeWithZerocopy,
    /// In the driver, with a copy by the kernel.
    Native,
    /// Generic, before the host's stack: any device.
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
    /// Interface type in the database: a dummy type, or the replaced type.
    pub type_name: String,
    /// Polled by forwarding threads, rather than by the main core.
    pub pmd: bool,
    /// Receive queues, at least 1.
    pub n_rxq: u32,
    /// Transmit queues, at least 1: shown, but all send to one.
    pub n_txq: u32,
    /// Simulated NUMA node.
    pub numa_id: u32,
    /// Simulated interface index.
    pub ifindex: Option<u32>,
    /// Capture file for frames of both directions. It overrides the other two.
    pub pcap: Option<PathBuf>,
    /// Capture file for received frames.
    pub rxq_pcap: Option<PathBuf>,
    /// Capture file for sent frames.
    pub tx_pcap: Option<PathBuf>,
}

impl DummyPort {
    /// Interface type of dummies polled by forwarding threads.
    pub const PMD_TYPE: &str = "dummy-pmd";
    /// Interface type of internal ports in dummy mode.
    pub const INTERNAL_TYPE: &str = "dummy-internal";

    /// The options that `dpif/show` has.
    pub fn shown(&self) -> Vec<(&'static str, String)> {
        let all = [("n_rxq", self.n_rxq), ("n_txq", self.n_txq), ("numa_id", self.numa_id)];
        all.into_iter().filter(|_| self.pmd).map(|(key, n)| (key, n.to_string())).collect()
    }

    /// A dummy of that interface type with default options.
    pub fn new(type_name: &str) -> DummyPort {
        DummyPort {
            type_name: type_name.to_string(),
            pmd: type_name == DummyPort::PMD_TYPE,
            n_rxq: 1,
            n_txq: 1,
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
    /// File of received frames.
    pub rx_pcap: Option<PathBuf>,
    /// File for sent frames.
    pub tx_pcap: Option<PathBuf>,
    /// Repeat the file endlessly.
    pub infinite_rx: bool,
}

/// Options of a tunnel port for the datapath; translation has the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TunnelPort {
    /// Encapsulation.
    pub kind: TunnelKind,
    /// UDP port; 0 for tunnels without UDP.
    pub dst_port: u16,
    /// VXLAN group policy.
    pub gbp: bool,
    /// Some tunnel has packets without an Ethernet header inside, or a header for them.
    pub l3: bool,
}

impl TunnelPort {
    /// Whether tunnels with these options share one port.
    pub fn is_shared_with(self, other: TunnelPort) -> bool {
        TunnelPort { l3: other.l3, ..self } == other
    }
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

/// Encapsulation of a tunnel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TunnelKind {
    /// RFC 7348.
    Vxlan,
    /// RFC 8926.
    Geneve,
    /// RFC 2890, with Ethernet frames inside.
    Gre,
    /// The same over IPv6.
    Ip6gre,
    /// ERSPAN within GRE (draft-foschiano-erspan), with Ethernet frames inside.
    Erspan,
    /// The same over IPv6.
    Ip6erspan,
    /// GTP-U of mobile networks (3GPP TS 29.281), with IP packets inside.
    Gtpu,
    /// Segment routing over IPv6 (RFC 8754), with IP packets inside.
    Srv6,
}

impl TunnelKind {
    /// All.
    pub const ALL: [TunnelKind; 8] = [
        TunnelKind::Vxlan,
        TunnelKind::Geneve,
        TunnelKind::Gre,
        TunnelKind::Ip6gre,
        TunnelKind::Erspan,
        TunnelKind::Ip6erspan,
        TunnelKind::Gtpu,
        TunnelKind::Srv6,
    ];

    /// Whether it is GRE, over IPv4 or IPv6.
    pub fn is_gre(self) -> bool {
        matches!(self, TunnelKind::Gre | TunnelKind::Ip6gre)
    }

    /// Whether it is ERSPAN, over IPv4 or IPv6.
    pub fn is_erspan(self) -> bool {
        matches!(self, TunnelKind::Erspan | TunnelKind::Ip6erspan)
    }

    /// Its name as an interface type.
    pub fn name(self) -> &'static str {
        match self {
            TunnelKind::Vxlan => "vxlan",
            TunnelKind::Geneve => "geneve",
            TunnelKind::Gre => "gre",
            TunnelKind::Ip6gre => "ip6gre",
            TunnelKind::Erspan => "erspan",
            TunnelKind::Ip6erspan => "ip6erspan",
            TunnelKind::Gtpu => "gtpu",
            TunnelKind::Srv6 => "srv6",
        }
    }

    /// The encapsulation of an interface type.
    pub fn of_name(name: &str) -> Option<TunnelKind> {
        TunnelKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// UDP port assigned by IANA; `None`: no UDP.
    pub fn usual_port(self) -> Option<u16> {
        match self {
            TunnelKind::Vxlan => Some(4789),
            TunnelKind::Geneve => Some(6081),
            TunnelKind::Gtpu => Some(2152),
            TunnelKind::Gre
            | TunnelKind::Ip6gre
            | TunnelKind::Erspan
            | TunnelKind::Ip6erspan
            | TunnelKind::Srv6 => None,
        }
    }
}
