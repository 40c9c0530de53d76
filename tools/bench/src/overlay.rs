//! Two switches of one side on this machine, a host behind each, joined by a veth pair and a VXLAN tunnel over it.
//!
//! Userspace switches have the bridges of the rows of tunnels: `br0` with the host and the tunnel port, the underlay
//! with the veth and the outer address. The kernel has a bridge with its own vxlan device. As overlay hosts, they have a bond
//! below, BFD in the tunnel, access lists and NAT above.

use crate::daemons;
use crate::lab::BRIDGE;
use crate::pmdstats::{Count, PortCounts, counts_of_port, datapath_drops, full_rings};
use crate::sides::{BOND, Side, batch, bonds_agree, start_daemons};
use crate::tunnels::{NAME, TUNNEL, UNDERLAY, VNI, VXLAN_PORT};
use anyhow::{Context, Result, ensure};
use netdev::link;
use std::path::Path;
use std::time::Duration;
use testkit::{Daemon, Host, Topology, TopologyOptions, reachable, veth, wait_for};

/// MTU of the hosts: the underlay's 1500 bytes less the outer headers.
const INNER_MTU: u32 = 1450;
/// Outer addresses.
const ADDRESSES: [&str; 2] = ["172.31.2.1", "172.31.2.2"];
const LIMIT: Duration = Duration::from_secs(10);
/// Address of the first host for the other one, after translation.
const NAT: &str = "10.0.0.100";
/// OpenFlow number of the port of a host.
const HOST: u32 = 1;
/// Settings of BFD: sessions that a busy machine does not end.
const BFD: &str = "bfd:enable=true bfd:min_tx=200 bfd:min_rx=200 bfd:mult=50";

/// Parts of both switches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Design {
    /// A tunnel over a veth pair, without rules.
    Tunnel,
    /// An overlay host: a bond with LACP below the tunnel, BFD in it, a tracked access list above, and source NAT at the first.
    Host,
}

/// One of the two switches.
struct End {
    // Dropped before their namespace.
    daemons: Vec<Daemon>,
    net: Topology,
    /// Its ends of the underlay.
    uplinks: Vec<String>,
}

/// Two running switches.
pub(crate) struct Overlay {
    pub(crate) side: Side,
    ends: [End; 2],
}

/// Counters on the way from the first host to the second.
#[derive(Clone, Copy)]
pub(crate) struct Passed {
    /// Sent by the first tunnel port.
    pub(crate) sent: Count,
    /// Received by the second one.
    pub(crate) received: Count,
    /// Packets dropped by the datapaths.
    pub(crate) drops: Drops,
}

/// Packets dropped by a datapath.
#[derive(Clone, Copy)]
pub(crate) struct Drops {
    /// At full receive rings, as on any congested way.
    pub(crate) full_rings: u64,
    pub(crate) others: u64,
}

/// A switch and its host, whose number is `first`.
fn network(first: u16) -> Result<Topology> {
    Topology::with(TopologyOptions { first, mtu_bytes: INNER_MTU, ..TopologyOptions::new(1) })
}

impl End {
    fn host(&self) -> Result<&Host> {
        self.net.hosts.first().context("a switch has a host")
    }

    fn ovs(&self, tool: &str, args: &[&str]) -> Result<String> {
        Ok(self.daemons.first().context("no daemon")?.ovs(tool, args)?.stdout)
    }

    /// Connects the host, the tunnel and the underlay.
    fn configure(&self, design: Design, local: &str, remote: &str) -> Result<()> {
        let (switch, uplink, port) = (&self.net.switch, self.uplinks.join(" "), &self.host()?.port);
        if self.daemons.is_empty() {
            let script = format!(
                "addr add {local}/24 dev {uplink}\n\
                 link add {BRIDGE} type bridge stp_state 0 mcast_snooping 0\n\
                 link add {NAME} mtu {INNER_MTU} type vxlan id {VNI} local {local} remote {remote} dstport {VXLAN_PORT}\n\
                 link set dev {NAME} master {BRIDGE} up\n\
                 link set dev {port} master {BRIDGE}\n\
                 link set dev {BRIDGE} up\n"
            );
            return batch(switch, script);
        }
        // Devices of bridges do not solicit routers.
        switch.run("sysctl", &["-q", "-w", "net.ipv6.conf.default.disable_ipv6=1"])?;
        let (below, inside) = match design {
            Design::Tunnel => (format!("add-port {UNDERLAY} {uplink}"), ""),
            Design::Host => (format!("add-bond {UNDERLAY} bond0 {uplink} {BOND}"), BFD),
        };
        let script = format!(
            "add-br {UNDERLAY} -- set bridge {UNDERLAY} datapath_type=netdev -- {below} \
             -- add-br {BRIDGE} -- set bridge {BRIDGE} datapath_type=netdev \
             -- add-port {BRIDGE} {port} -- set Interface {port} ofport_request={HOST} \
             -- add-port {BRIDGE} {NAME} -- set Interface {NAME} type=vxlan ofport_request={TUNNEL} \
             options:remote_ip={remote} options:key={VNI} {inside}"
        );
        self.ovs("ovs-vsctl", &script.split_whitespace().collect::<Vec<_>>())?;
        let exists = || switch.ip(&format!("link show dev {UNDERLAY}")).is_ok();
        wait_for(LIMIT, "the device of the underlay", exists)?;
        // A device that is down drops flooded packets.
        switch.up(BRIDGE)?;
        switch.up(UNDERLAY)?;
        switch.add_addr(UNDERLAY, &format!("{local}/24"))
    }

    /// IPv4 passes in tracked connections alone that begin at port `begin`, with the address `source` if given. Other frames pass
    /// as without rules.
    fn protect(&self, begin: u32, source: Option<&str>) -> Result<()> {
        let (nat, end) = (source.map_or("", |_| "nat,"), HOST + TUNNEL - begin);
        let to = source.map_or_else(String::new, |source| format!(",nat(src={source})"));
        let rules = format!(
            "priority=90,ip,actions=ct({nat}zone=7,table=1)\n\
             priority=0,actions=NORMAL\n\
             table=1,ct_state=+new+trk,ip,in_port={begin},actions=ct(commit,zone=7{to}),output:{end}\n\
             table=1,ct_state=+est+trk,ip,in_port={begin},actions=output:{end}\n\
             table=1,ct_state=+est+trk,ip,in_port={end},actions=output:{begin}\n"
        );
        let daemon = self.daemons.first().context("no daemon")?;
        let replace = ["-OOpenFlow13", "replace-flows", BRIDGE, "-"];
        daemon.tool("ovs-ofctl").args(replace).input(rules).run().map(drop)
    }

    fn appctl(&self, args: &[&str]) -> Result<String> {
        daemons::appctl(self.daemons.first().context("no daemon")?, "ovs-vswitchd", args)
    }

    /// Counters of the tunnel port; drops of the datapath.
    fn counts(&self) -> Result<(PortCounts, Drops)> {
        if self.daemons.is_empty() {
            let stats = self.net.switch.enter(|| link::link_stats(NAME))?.context("the vxlan device")?;
            let received = Count { packets: stats.rx_packets, bytes: stats.rx_bytes };
            let sent = Count { packets: stats.tx_packets, bytes: stats.tx_bytes };
            let drops = Drops { full_rings: 0, others: stats.rx_dropped + stats.tx_dropped };
            return Ok((PortCounts { received, sent }, drops));
        }
        let ports = self.ovs("ovs-ofctl", &["dump-ports", BRIDGE])?;
        let counts = counts_of_port(&ports, TUNNEL).context("dump-ports shows no tunnel port")?;
        let coverage = self.appctl(&["coverage/show"])?;
        let full_rings = full_rings(&coverage);
        Ok((counts, Drops { full_rings, others: datapath_drops(&coverage) - full_rings }))
    }

    fn set_offloads(&self, on: bool) -> Result<()> {
        let host = self.host()?;
        host.netns.set_offloads(&host.dev, on)?;
        self.net.switch.set_offloads(&host.port, on)?;
        self.uplinks.iter().try_for_each(|uplink| self.net.switch.set_offloads(uplink, on))
    }
}

impl Overlay {
    /// Builds both switches. The scheduler places their daemons.
    ///
    /// # Errors
    /// If the machine lacks a requirement, or the hosts cannot reach each other.
    pub(crate) fn start(side: Side, sluiced: &Path, design: Design) -> Result<Overlay> {
        let [a, b] = [network(1)?, network(2)?];
        let wires = (0..if design == Design::Host { 2 } else { 1 }).map(|_| veth(&a.switch, &b.switch));
        let (left, right) = wires.collect::<Result<(Vec<_>, Vec<_>)>>()?;
        let end = |net: Topology, uplinks: Vec<String>| {
            uplinks.iter().try_for_each(|uplink| net.switch.up(uplink))?;
            let daemons = start_daemons(side, &net.switch, sluiced, None, None)?;
            Ok::<_, anyhow::Error>(End { daemons, net, uplinks })
        };
        let overlay = Overlay { side, ends: [end(a, left)?, end(b, right)?] };
        let [a, b] = &overlay.ends;
        a.configure(design, ADDRESSES[0], ADDRESSES[1])?;
        b.configure(design, ADDRESSES[1], ADDRESSES[0])?;
        let [from, to] = overlay.hosts()?;
        if design == Design::Host {
            from.netns.add_addr("lo", &format!("{NAT}/32"))?;
            a.protect(HOST, Some(NAT))?;
            b.protect(TUNNEL, None)?;
            for end in [a, b] {
                bonds_agree(&["bond0"], |args| end.appctl(args))?;
                let is_up = || {
                    end.appctl(&["bfd/show", NAME])
                        .is_ok_and(|shown| shown.contains("Local Session State: up"))
                };
                wait_for(LIMIT, "the session of BFD", is_up)?;
            }
        }
        reachable(&from.netns, to.ipv4.into(), LIMIT)
            .with_context(|| format!("{}: hosts do not reach each other", overlay.name()))?;
        if design == Design::Host {
            let tracked = a.appctl(&["dpctl/dump-conntrack"])?;
            ensure!(tracked.contains(&format!("dst={NAT}")), "no connection is translated: {tracked}");
        }
        Ok(overlay)
    }

    /// Name in results.
    pub(crate) fn name(&self) -> String {
        if self.side == Side::Bridge { "linux-vxlan".into() } else { self.side.name() }
    }

    /// Both hosts.
    pub(crate) fn hosts(&self) -> Result<[&Host; 2]> {
        Ok([self.ends[0].host()?, self.ends[1].host()?])
    }

    /// Switches the offloads of hosts, their ports and the underlay.
    pub(crate) fn set_offloads(&self, on: bool) -> Result<()> {
        self.ends.iter().try_for_each(|end| end.set_offloads(on))
    }

    /// Present counters.
    pub(crate) fn passed(&self) -> Result<Passed> {
        let ((first, drops), (second, more)) = (self.ends[0].counts()?, self.ends[1].counts()?);
        let drops =
            Drops { full_rings: drops.full_rings + more.full_rings, others: drops.others + more.others };
        Ok(Passed { sent: first.sent, received: second.received, drops })
    }
}
