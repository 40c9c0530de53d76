//! Links: state and settings of network devices (rtnetlink(7), `linux/if_link.h`), and driver information
//! (ethtool).
//!
//! All calls act in the calling thread's network namespace. Each request uses its own socket and waits for
//! the kernel's reply, which arrives within the call; a [`LinkMonitor`] keeps one open and never blocks.

mod counters;
mod ethtool;
mod monitor;
pub(crate) mod removal;
#[cfg(test)]
mod tests;
pub(crate) mod wire;

use std::io;
use std::net::Ipv4Addr;

pub use counters::AllLinkStats;
pub use ethtool::{CarrierReader, Duplex, EthtoolLink, driver, ethtool_link, rx_queues, strips_vlan_tags};
pub use monitor::{LinkEvent, LinkMonitor};

use crate::raw::context;
use wire::{Request, attribute};

/// Requests that this process sent to the kernel for links, addresses and routes.
pub fn messages_sent() -> u64 {
    wire::messages_sent()
}

/// Datagrams that it received from the kernel, with answers and events of those.
pub fn messages_received() -> u64 {
    wire::messages_received()
}

/// The links in a datagram of the kernel.
pub(crate) fn links_of(bytes: &[u8]) -> Vec<LinkInfo> {
    wire::messages(bytes).filter_map(|m| Some(wire::link_of(&m)?.0)).collect()
}

/// Indexes and counters of the links in a datagram of the kernel.
pub(crate) fn counters_of(bytes: &[u8]) -> Vec<(u32, LinkStats)> {
    wire::messages(bytes).filter_map(|m| wire::link_counters(&m)).collect()
}

/// Operational state (RFC 2863 §3.1.12, `IFLA_OPERSTATE`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OperState {
    /// Not reported by the driver; treated as up if the lower layer is.
    #[default]
    Unknown,
    /// A part is missing.
    NotPresent,
    /// Down.
    Down,
    /// A layer below is down.
    LowerLayerDown,
    /// In a test mode.
    Testing,
    /// Waiting for something outside.
    Dormant,
    /// Able to carry frames.
    Up,
}

impl OperState {
    fn from_wire(v: u8) -> OperState {
        match v {
            1 => OperState::NotPresent,
            2 => OperState::Down,
            3 => OperState::LowerLayerDown,
            4 => OperState::Testing,
            5 => OperState::Dormant,
            6 => OperState::Up,
            _ => OperState::Unknown,
        }
    }
}

/// A link as of one moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LinkInfo {
    /// Index within the namespace.
    pub ifindex: u32,
    /// Name.
    pub name: String,
    /// Ethernet address, if any.
    pub mac: Option<[u8; 6]>,
    /// MTU in bytes.
    pub mtu: u32,
    /// Set up by the administrator (`IFF_UP`).
    pub admin_up: bool,
    /// Loopback device (`IFF_LOOPBACK`).
    pub loopback: bool,
    /// The layer below carries frames (`IFF_LOWER_UP`: carrier).
    pub lower_up: bool,
    /// Operational state.
    pub oper_state: OperState,
    /// Carrier changes since the device's creation, both directions.
    pub carrier_changes: u32,
    /// Times that the carrier came up.
    pub carrier_up_count: u32,
    /// Times that the carrier went down.
    pub carrier_down_count: u32,
    /// Index of the bridge, bond or other master, 0 for none.
    pub master: u32,
    /// Index of the device below, or of a veth's other end, in its namespace; 0 for none.
    pub link: u32,
    /// Kind of a virtual device ("veth", "tun"), empty for others.
    pub kind: String,
}

impl LinkInfo {
    /// Index of the other end of a veth, in its namespace.
    pub fn peer_ifindex(&self) -> Option<u32> {
        (self.kind == "veth" && self.link != 0).then_some(self.link)
    }

    /// Whether frames can pass: administratively up, and with carrier.
    pub fn carrier(&self) -> bool {
        self.admin_up && self.lower_up
    }
}

/// Counters of a link (`rtnl_link_stats64`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "the names are those of rtnl_link_stats64")]
pub struct LinkStats {
    pub rx_packets: u64,
    pub tx_packets: u64,
    pub rx_bytes: u64,
    pub tx_bytes: u64,
    pub rx_errors: u64,
    pub tx_errors: u64,
    pub rx_dropped: u64,
    pub tx_dropped: u64,
    pub multicast: u64,
    pub collisions: u64,
    pub rx_length_errors: u64,
    pub rx_over_errors: u64,
    pub rx_crc_errors: u64,
    pub rx_frame_errors: u64,
    pub rx_fifo_errors: u64,
    pub rx_missed_errors: u64,
    pub tx_aborted_errors: u64,
    pub tx_carrier_errors: u64,
}

/// The link of a name.
pub fn link_info(name: &str) -> io::Result<LinkInfo> {
    get(name).map(|(info, _)| info)
}

/// The counters of a link.
pub fn link_stats(name: &str) -> io::Result<LinkStats> {
    let (_, stats) = get(name)?;
    stats.ok_or_else(|| io::Error::other(format!("device {name}: the kernel told no counters")))
}

/// All links of the namespace.
pub fn list_links() -> io::Result<Vec<LinkInfo>> {
    Ok(dump()?.into_iter().map(|(info, _)| info).collect())
}

fn dump() -> io::Result<Vec<(LinkInfo, Option<LinkStats>)>> {
    let answers = Request::dump_links().call().map_err(context("cannot list the links"))?;
    Ok(answers.iter().filter_map(wire::link_of).collect())
}

fn get(name: &str) -> io::Result<(LinkInfo, Option<LinkStats>)> {
    crate::raw::ifreq(name)?;
    let mut request = Request::get_link();
    request.add(attribute::IFNAME, &wire::c_string(name));
    let answers = request.call().map_err(context(format!("device {name}")))?;
    answers
        .iter()
        .find_map(wire::link_of)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("device {name}: no such device")))
}

/// Sets a link up or down.
pub fn set_admin_up(ifindex: u32, up: bool) -> io::Result<()> {
    let flags = if up { libc::IFF_UP as u32 } else { 0 };
    Request::change_link(ifindex, flags, libc::IFF_UP as u32).call().map(drop)
}

/// `struct ifaddrmsg` of an IPv4 address of a link.
fn address_header(ifindex: u32, prefix_bits: u8) -> [u8; 8] {
    let [a, b, c, d] = ifindex.to_ne_bytes();
    [libc::AF_INET as u8, prefix_bits, 0, 0, a, b, c, d]
}

/// Gives a link an IPv4 address, with the broadcast address of its network.
///
/// # Errors
/// Of the kernel: the link does not exist, or privileges are missing.
pub fn add_ipv4(ifindex: u32, address: Ipv4Addr, prefix_bits: u8) -> io::Result<()> {
    let flags = libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
    let mut request = Request::change(libc::RTM_NEWADDR, flags, &address_header(ifindex, prefix_bits));
    let [of_peer, of_link, of_broadcast] = attribute::IFA;
    request.add(of_peer, &address.octets());
    request.add(of_link, &address.octets());
    if prefix_bits < 31 {
        let hosts = u32::MAX.checked_shr(prefix_bits.into()).unwrap_or(0);
        request.add(of_broadcast, &(address.to_bits() | hosts).to_be_bytes());
    }
    request.call().map(drop)
}

/// Takes an IPv4 address from a link.
///
/// # Errors
/// Of the kernel: the link does not have it, or privileges are missing.
pub fn delete_ipv4(ifindex: u32, address: Ipv4Addr, prefix_bits: u8) -> io::Result<()> {
    let mut request = Request::change(libc::RTM_DELADDR, 0, &address_header(ifindex, prefix_bits));
    request.add(attribute::IFA[1], &address.octets());
    request.call().map(drop)
}

/// Adds a default route by an IPv4 gateway behind a link; one that exists is no error.
///
/// # Errors
/// Of the kernel: the gateway is not in a network of the link, or privileges are missing.
pub fn add_default_gateway(ifindex: u32, gateway: Ipv4Addr) -> io::Result<()> {
    // `struct rtmsg`: family, lengths, service, table, protocol, scope, type, flags.
    let (main, boot, universe) = (libc::RT_TABLE_MAIN, libc::RTPROT_BOOT, libc::RT_SCOPE_UNIVERSE);
    let header = [libc::AF_INET as u8, 0, 0, 0, main, boot, universe, libc::RTN_UNICAST, 0, 0, 0, 0];
    let mut request = Request::change(libc::RTM_NEWROUTE, libc::NLM_F_CREATE | libc::NLM_F_EXCL, &header);
    let [of_link, of_gateway] = attribute::RTA;
    request.add(of_link, &ifindex.to_ne_bytes());
    request.add(of_gateway, &gateway.octets());
    match request.call() {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other.map(drop),
    }
}

/// Deletes a virtual device.
///
/// # Errors
/// It does not exist, or cannot be deleted.
pub fn delete(name: &str) -> io::Result<()> {
    let info = link_info(name)?;
    Request::delete_link(info.ifindex).call().map(drop).map_err(context(format!("device {name}")))
}

/// Sets the MTU in bytes.
pub fn set_mtu(ifindex: u32, mtu: u32) -> io::Result<()> {
    let mut request = Request::change_link(ifindex, 0, 0);
    request.add(attribute::MTU, &mtu.to_ne_bytes());
    request.call().map(drop)
}

/// Sets the Ethernet address.
pub fn set_mac(ifindex: u32, mac: [u8; 6]) -> io::Result<()> {
    let mut request = Request::change_link(ifindex, 0, 0);
    request.add(attribute::ADDRESS, &mac);
    request.call().map(drop)
}
