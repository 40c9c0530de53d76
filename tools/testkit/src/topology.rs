//! A switch namespace with hosts around it, one veth pair each.

use std::net::{Ipv4Addr, Ipv6Addr};

use anyhow::{Result, ensure};

use crate::names::if_name;
use crate::netns::Netns;

/// Maximum hosts of one topology: their numbers are two bytes of addresses, and namespaces are expensive.
const HOSTS_MAX: usize = 1000;

/// Creates a veth pair with one end in each of two namespaces, both down, and returns the names of the ends
/// (in `a`, in `b`). Each end is created in its namespace.
///
/// # Errors
/// If `ip` fails.
pub fn veth(a: &Netns, b: &Netns) -> Result<(String, String)> {
    let (dev_a, dev_b) = (if_name("v"), if_name("v"));
    a.ip(&format!("link add name {dev_a} type veth peer name {dev_b} netns {}", b.name()))?;
    Ok((dev_a, dev_b))
}

/// Parameters of a [`Topology`].
#[derive(Clone, Copy, Debug)]
pub struct TopologyOptions {
    /// Number of hosts.
    pub hosts: usize,
    /// Number of the first host, which its addresses contain; at least 1.
    pub first: u16,
    /// MTU of all interfaces, in bytes.
    pub mtu_bytes: u32,
    /// Whether both ends of the pairs keep their checksum, segmentation and receive offloads.
    pub offloads: bool,
}

impl TopologyOptions {
    /// `hosts` hosts with the kernel's defaults.
    pub fn new(hosts: usize) -> Self {
        Self { hosts, first: 1, mtu_bytes: 1500, offloads: true }
    }
}

/// A host: a namespace with one interface.
#[derive(Debug)]
pub struct Host {
    /// Its namespace.
    pub netns: Netns,
    /// Its interface, up and with addresses.
    pub dev: String,
    /// The other end of the pair, in the switch's namespace; up, without any address.
    pub port: String,
    /// Address of `dev`: `02:00:00:00:hh:ll` of the host's number.
    pub mac: String,
    /// Address of `dev`, in 10.0.0.0/16: host 1 is 10.0.0.1.
    pub ipv4: Ipv4Addr,
    /// Address of `dev`, in fd00::/64: host 1 is fd00::1.
    pub ipv6: Ipv6Addr,
}

/// A switch namespace and its hosts. The test supplies the switch: put the ports into a bridge, or give them
/// to a daemon that runs in `switch`.
#[derive(Debug)]
pub struct Topology {
    /// Namespace of the switch, with the ports of all hosts.
    pub switch: Netns,
    /// The hosts, by number.
    pub hosts: Vec<Host>,
}

impl Topology {
    /// `hosts` hosts with the kernel's defaults.
    ///
    /// # Errors
    /// If the machine does not permit it.
    pub fn new(hosts: usize) -> Result<Self> {
        Self::with(TopologyOptions::new(hosts))
    }

    /// A topology with options.
    ///
    /// # Errors
    /// If the machine does not permit it, or for more than 1000 hosts.
    pub fn with(options: TopologyOptions) -> Result<Self> {
        ensure!(options.hosts <= HOSTS_MAX, "{} hosts asked for, {HOSTS_MAX} at most", options.hosts);
        let switch = Netns::new("sw")?;
        let mut hosts = Vec::new();
        for number in (options.first..).take(options.hosts) {
            hosts.push(host(&switch, number, &options)?);
        }
        Ok(Self { switch, hosts })
    }

    /// Names of the ports in the switch's namespace, by host.
    pub fn ports(&self) -> Vec<&str> {
        self.hosts.iter().map(|h| h.port.as_str()).collect()
    }
}

fn host(switch: &Netns, number: u16, options: &TopologyOptions) -> Result<Host> {
    let netns = Netns::new(&format!("h{number}"))?;
    let (dev, port) = veth(&netns, switch)?;
    let [high, low] = number.to_be_bytes();
    let host = Host {
        mac: format!("02:00:00:00:{high:02x}:{low:02x}"),
        ipv4: Ipv4Addr::new(10, 0, high, low),
        ipv6: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, number),
        netns,
        dev,
        port,
    };
    let (netns, dev, mtu) = (&host.netns, &host.dev, options.mtu_bytes);
    netns.ip(&format!("link set dev {dev} address {} mtu {mtu}", host.mac))?;
    // A port of a switch speaks for itself neither in IPv6.
    switch.ip(&format!("link set dev {} addrgenmode none mtu {mtu}", host.port))?;
    if !options.offloads {
        netns.set_offloads(dev, false)?;
        switch.set_offloads(&host.port, false)?;
    }
    netns.up(dev)?;
    switch.up(&host.port)?;
    netns.add_addr(dev, &format!("{}/16", host.ipv4))?;
    netns.add_addr(dev, &format!("{}/64", host.ipv6))?;
    Ok(host)
}
