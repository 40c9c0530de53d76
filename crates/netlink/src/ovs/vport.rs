//! Family `ovs_vport`: ports of a datapath.

use super::{Ovs, SMALL_REPLY_BYTES, begin, check_name, u64s};
use crate::error::Error;
use crate::message::flag;
use crate::socket::{Asked, MessageWriter};
use flow::DpPort;
use flow::nlattr::{AttrError, AttrWriter, Attrs};

/// Type of a port (`OVS_VPORT_TYPE_*`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VportKind {
    /// An existing network interface.
    Netdev,
    /// A host-side interface created by the datapath.
    Internal,
    /// A GRE tunnel.
    Gre,
    /// A VXLAN tunnel.
    Vxlan,
    /// A Geneve tunnel.
    Geneve,
    /// A newer type.
    Other(u32),
}

/// Options of a tunnel port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TunnelOptions {
    /// UDP port to send to and listen on (VXLAN, Geneve).
    pub dst_port: Option<u16>,
    /// VXLAN with group policy (`OVS_VXLAN_EXT_GBP`).
    pub vxlan_gbp: bool,
}

/// Counters of a port (`struct ovs_vport_stats`), from the port's perspective.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VportStats {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Bad packets received.
    pub rx_errors: u64,
    /// Failed transmissions.
    pub tx_errors: u64,
    /// Received packets dropped for lack of space.
    pub rx_dropped: u64,
    /// Packets dropped on transmission for lack of space.
    pub tx_dropped: u64,
}

/// Upcalls of a port (Linux 6.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VportUpcallStats {
    /// Sent to userspace.
    pub success: u64,
    /// Lost.
    pub fail: u64,
}

/// A port of a kernel datapath.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VportInfo {
    /// Its datapath.
    pub dp_ifindex: u32,
    /// Its number there.
    pub number: DpPort,
    /// Its type.
    pub kind: VportKind,
    /// Interface name.
    pub name: String,
    /// Sockets of its upcalls; `[0]` or none: no upcalls.
    pub upcall_pids: Vec<u32>,
    /// Counters.
    pub stats: VportStats,
    /// Upcalls, if the kernel counts them.
    pub upcall_stats: Option<VportUpcallStats>,
    /// Interface index.
    pub ifindex: Option<u32>,
    /// Id of the interface's network namespace, if it differs from the datapath's.
    pub netnsid: Option<i32>,
    /// Options of a tunnel.
    pub tunnel: Option<TunnelOptions>,
}

/// A port to add.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VportNew {
    /// Interface name, 1 to 15 bytes.
    pub name: String,
    /// Its type.
    pub kind: VportKind,
    /// Requested number, below 65535; `None`: the lowest free one.
    pub number: Option<DpPort>,
    /// Sockets for its upcalls (more than one needs [`features::VPORT_PIDS`](super::features)); empty: no upcalls.
    pub upcall_pids: Vec<u32>,
    /// Options of a tunnel.
    pub tunnel: Option<TunnelOptions>,
}

/// Changes of a port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VportSet {
    /// Sockets for its upcalls; `Some` of an empty list: no upcalls.
    pub upcall_pids: Option<Vec<u32>>,
    /// Options of a tunnel.
    pub tunnel: Option<TunnelOptions>,
}

/// `OVS_VPORT_CMD_*`.
pub(super) mod command {
    pub(in crate::ovs) const NEW: u8 = 1;
    pub(in crate::ovs) const DEL: u8 = 2;
    pub(in crate::ovs) const GET: u8 = 3;
    pub(in crate::ovs) const SET: u8 = 4;
}

/// `OVS_VPORT_ATTR_*`.
mod attr {
    pub(super) const PORT_NO: u16 = 1;
    pub(super) const TYPE: u16 = 2;
    pub(super) const NAME: u16 = 3;
    pub(super) const OPTIONS: u16 = 4;
    pub(super) const UPCALL_PID: u16 = 5;
    pub(super) const STATS: u16 = 6;
    pub(super) const IFINDEX: u16 = 8;
    pub(super) const NETNSID: u16 = 9;
    pub(super) const UPCALL_STATS: u16 = 10;
    /// Within OPTIONS.
    pub(super) const TUNNEL_DST_PORT: u16 = 1;
    pub(super) const TUNNEL_EXTENSION: u16 = 2;
    /// Within TUNNEL_EXTENSION.
    pub(super) const VXLAN_GBP: u16 = 1;
    /// Within UPCALL_STATS.
    pub(super) const UPCALL_SUCCESS: u16 = 0;
    pub(super) const UPCALL_FAIL: u16 = 1;
}

/// Names of the attributes, by number.
const ATTRIBUTES: &[&str] = &[
    "OVS_VPORT_ATTR_UNSPEC",
    "OVS_VPORT_ATTR_PORT_NO",
    "OVS_VPORT_ATTR_TYPE",
    "OVS_VPORT_ATTR_NAME",
    "OVS_VPORT_ATTR_OPTIONS",
    "OVS_VPORT_ATTR_UPCALL_PID",
    "OVS_VPORT_ATTR_STATS",
    "OVS_VPORT_ATTR_PAD",
    "OVS_VPORT_ATTR_IFINDEX",
    "OVS_VPORT_ATTR_NETNSID",
    "OVS_VPORT_ATTR_UPCALL_STATS",
];

impl VportKind {
    /// Its number.
    pub fn number(self) -> u32 {
        match self {
            VportKind::Netdev => 1,
            VportKind::Internal => 2,
            VportKind::Gre => 3,
            VportKind::Vxlan => 4,
            VportKind::Geneve => 5,
            VportKind::Other(n) => n,
        }
    }

    /// The kind of a number.
    pub fn of_number(n: u32) -> VportKind {
        match n {
            1 => VportKind::Netdev,
            2 => VportKind::Internal,
            3 => VportKind::Gre,
            4 => VportKind::Vxlan,
            5 => VportKind::Geneve,
            n => VportKind::Other(n),
        }
    }
}

impl TunnelOptions {
    fn parse(attrs: Attrs<'_>) -> Result<TunnelOptions, AttrError> {
        let dst_port = attrs.get(attr::TUNNEL_DST_PORT).map(|a| a.u16()).transpose()?;
        let extension = attrs.get(attr::TUNNEL_EXTENSION).map(|a| a.nested()).transpose()?;
        let vxlan_gbp = extension.is_some_and(|e| e.get(attr::VXLAN_GBP).is_some());
        Ok(TunnelOptions { dst_port, vxlan_gbp })
    }

    fn write(&self, out: &mut AttrWriter) {
        out.nested(attr::OPTIONS, |out| {
            if let Some(port) = self.dst_port {
                out.u16(attr::TUNNEL_DST_PORT, port);
            }
            if self.vxlan_gbp {
                out.nested(attr::TUNNEL_EXTENSION, |out| out.flag(attr::VXLAN_GBP));
            }
        });
    }
}

impl VportInfo {
    /// Reads a port from the kernel.
    pub(crate) fn parse(dp_ifindex: u32, attrs: Attrs<'_>) -> Result<VportInfo, AttrError> {
        let mut info = VportInfo {
            dp_ifindex,
            number: DpPort(attrs.require(attr::PORT_NO)?.u32()?),
            kind: VportKind::of_number(attrs.require(attr::TYPE)?.u32()?),
            name: attrs.require(attr::NAME)?.text()?.to_owned(),
            upcall_pids: Vec::new(),
            stats: VportStats::default(),
            upcall_stats: None,
            ifindex: None,
            netnsid: None,
            tunnel: None,
        };
        for a in attrs {
            match a.kind {
                attr::UPCALL_PID => info.upcall_pids = a.u32s()?.collect(),
                attr::STATS => info.stats = VportStats::of(u64s(a.content, a.kind)?),
                attr::IFINDEX => info.ifindex = Some(a.u32()?),
                attr::NETNSID => info.netnsid = Some(a.u32()? as i32),
                attr::OPTIONS => info.tunnel = Some(TunnelOptions::parse(a.nested()?)?),
                attr::UPCALL_STATS => {
                    let inner = a.nested()?;
                    let number = |kind| inner.get(kind).map_or(Ok(0), |a| a.u64());
                    let (success, fail) = (number(attr::UPCALL_SUCCESS)?, number(attr::UPCALL_FAIL)?);
                    info.upcall_stats = Some(VportUpcallStats { success, fail });
                }
                _ => {}
            }
        }
        Ok(info)
    }
}

impl VportStats {
    /// From the order that they have in the structure.
    fn of(n: [u64; 8]) -> VportStats {
        let [rx_packets, tx_packets, rx_bytes, tx_bytes, rx_errors, tx_errors, rx_dropped, tx_dropped] = n;
        VportStats {
            rx_packets,
            tx_packets,
            rx_bytes,
            tx_bytes,
            rx_errors,
            tx_errors,
            rx_dropped,
            tx_dropped,
        }
    }
}

/// The kernel reports no sockets as one of number 0.
fn put_pids(out: &mut AttrWriter, pids: &[u32]) {
    out.u32s(attr::UPCALL_PID, if pids.is_empty() { &[0] } else { pids });
}

impl Ovs {
    /// Adds a port.
    ///
    /// # Errors
    /// [`Error::is_no_device`]: no such datapath or interface; [`Error::is_exists`]: the number is taken, or the
    /// interface is in a datapath already; [`Error::is_unsupported`]: unsupported type.
    pub fn vport_new(&self, dp_ifindex: u32, new: &VportNew) -> Result<VportInfo, Error> {
        let what = format!("add port {}", new.name);
        check_name(&what, &new.name)?;
        let asked = Asked { reply_bytes: SMALL_REPLY_BYTES, ..Asked::once(what, ATTRIBUTES) };
        let mut request = begin(&self.families.vport, command::NEW, flag::ECHO, dp_ifindex, asked);
        request.attrs.u32(attr::TYPE, new.kind.number());
        request.attrs.text(attr::NAME, &new.name);
        if let Some(number) = new.number {
            request.attrs.u32(attr::PORT_NO, number.0);
        }
        put_pids(&mut request.attrs, &new.upcall_pids);
        if let Some(tunnel) = &new.tunnel {
            tunnel.write(&mut request.attrs);
        }
        self.ask_for(request.finish()?, VportInfo::parse)
    }

    /// Changes a port.
    ///
    /// # Errors
    /// [`Error::is_no_device`] if there is none.
    pub fn vport_set(&self, dp_ifindex: u32, number: DpPort, change: &VportSet) -> Result<VportInfo, Error> {
        let mut request = self.about_vport(dp_ifindex, number, command::SET, "change");
        if let Some(pids) = &change.upcall_pids {
            put_pids(&mut request.attrs, pids);
        }
        if let Some(tunnel) = &change.tunnel {
            tunnel.write(&mut request.attrs);
        }
        self.ask_for(request.finish()?, VportInfo::parse)
    }

    /// A port with its counters.
    ///
    /// # Errors
    /// [`Error::is_no_device`] if there is none.
    pub fn vport_get(&self, dp_ifindex: u32, number: DpPort) -> Result<VportInfo, Error> {
        let request = self.about_vport(dp_ifindex, number, command::GET, "read").finish()?;
        self.ask_for(request, VportInfo::parse)
    }

    /// A port of any datapath of the namespace, by interface name.
    ///
    /// # Errors
    /// [`Error::is_no_device`] if there is none.
    pub fn vport_get_by_name(&self, name: &str) -> Result<VportInfo, Error> {
        let what = format!("read port {name}");
        check_name(&what, name)?;
        let asked = Asked::again(what, ATTRIBUTES, SMALL_REPLY_BYTES);
        let mut request = begin(&self.families.vport, command::GET, 0, 0, asked);
        request.attrs.text(attr::NAME, name);
        self.ask_for(request.finish()?, VportInfo::parse)
    }

    /// Removes a port, and the interface of an internal one; the local port cannot be removed
    /// ([`Error::is_invalid`]).
    ///
    /// # Errors
    /// [`Error::is_no_device`] if there is none.
    pub fn vport_del(&self, dp_ifindex: u32, number: DpPort) -> Result<(), Error> {
        let request = self.about_vport(dp_ifindex, number, command::DEL, "remove").finish()?;
        self.ask(request, VportInfo::parse).map(drop)
    }

    /// All ports of a datapath, unordered. Ports added or removed meanwhile may be missing: see
    /// [`VportMonitor`](super::VportMonitor).
    ///
    /// # Errors
    /// [`Error::is_no_device`] if there is no such datapath.
    pub fn vport_dump(&self, dp_ifindex: u32) -> Result<Vec<VportInfo>, Error> {
        let what = format!("list the ports of the datapath of interface {dp_ifindex}");
        let asked = Asked::again(what, ATTRIBUTES, 0);
        let request = begin(&self.families.vport, command::GET, 0, dp_ifindex, asked).finish()?;
        self.dump(&request, VportInfo::parse)
    }

    /// Begins a request about an existing port.
    fn about_vport(&self, dp_ifindex: u32, number: DpPort, command: u8, verb: &str) -> MessageWriter {
        let what = format!("{verb} port {number} of the datapath of interface {dp_ifindex}");
        let asked = Asked::again(what, ATTRIBUTES, SMALL_REPLY_BYTES);
        let asked = Asked { repeatable: command != command::DEL, ..asked };
        let flags = if command == command::GET { 0 } else { flag::ECHO };
        let mut request = begin(&self.families.vport, command, flags, dp_ifindex, asked);
        request.attrs.u32(attr::PORT_NO, number.0);
        request
    }
}
