//! Multicast snooping within `NORMAL` (RFC 4541): messages of hosts and routers, and packets for groups.

use super::ctx::XlateCtx;
use super::vlan::Tags;
use crate::ids::{BridgeId, BundleId};
use crate::mcast::{McastTable, Member};
use crate::ports::Bundle;
use dpif::SlowReason;
use flow::Flow;
use l2proto::membership::{self, MLD_TYPES};
use packet::headers::{ETH_TYPE_IP, ETH_TYPE_IPV6, IPPROTO_ICMPV6, IPPROTO_IGMP};
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use sync::{Mutex, lock};

/// Type of an IGMP query.
const IGMP_QUERY: u16 = 0x11;
/// The group of all nodes of a link.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// A packet with a message about groups, for the host of a translation to read.
#[derive(Clone, Copy)]
pub struct Snooped<'a> {
    /// The groups of its bridge.
    pub table: &'a Arc<Mutex<McastTable>>,
    /// The bridge.
    pub bridge: BridgeId,
    /// The VLAN within the bridge.
    pub vlan: u16,
    /// The input port.
    pub bundle: BundleId,
    /// Name of that.
    pub port: &'a str,
    /// IP addresses of the packet.
    pub src: IpAddr,
    /// Its destination.
    pub dst: IpAddr,
}

/// Meaning of a packet for snooping.
enum Kind {
    /// A message of a host: of routers' concern.
    Membership,
    /// Another message of the protocol, as the trace calls it.
    Other(&'static str),
    /// A packet that all ports get.
    Local,
    /// A packet for a group.
    Data,
}

/// Why a port gets a packet, as the trace says it.
struct Way {
    forwards: &'static str,
    unknown: &'static str,
    is_input: &'static str,
}

const GROUP: Way = Way {
    forwards: "forwarding to mcast group port",
    unknown: "mcast group port is unknown, dropping",
    is_input: "mcast group port is input port, dropping",
};
const ROUTER: Way = Way {
    forwards: "forwarding to mcast router port",
    unknown: "mcast router port is unknown, dropping",
    is_input: "mcast router port is input port, dropping",
};
const FLOOD: Way = Way {
    forwards: "forwarding to mcast flood port",
    unknown: "mcast flood port is unknown, dropping",
    is_input: "mcast flood port is input port, dropping",
};
const REPORT: Way = Way {
    forwards: "forwarding report to mcast flagged port",
    unknown: "mcast port is unknown, dropping the report",
    is_input: "mcast port is input port, dropping the Report",
};

/// Destination of an IP packet.
fn destination(flow: &Flow) -> IpAddr {
    match flow.dl_type {
        ETH_TYPE_IP => Ipv4Addr::from_bits(flow.nw_dst).into(),
        _ => Ipv6Addr::from(flow.ipv6_dst).into(),
    }
}

fn source(flow: &Flow) -> IpAddr {
    match flow.dl_type {
        ETH_TYPE_IP => Ipv4Addr::from_bits(flow.nw_src).into(),
        _ => Ipv6Addr::from(flow.ipv6_src).into(),
    }
}

/// The address of a group in tables.
fn group(dst: IpAddr) -> Ipv6Addr {
    match dst {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

impl XlateCtx<'_> {
    /// Whether the packet is of concern to snooping.
    pub(super) fn is_multicast_ip(&self) -> bool {
        let flow = &self.packet.flow;
        let dst = flow.dl_dst();
        dst.is_multicast() && dst != flow::MacAddr::BROADCAST && flow.is_ip() && flow.packet_type == 0
    }

    /// Classifies the packet. The fields that decide are examined.
    fn kind_of_multicast(&mut self) -> Kind {
        let (flow, wc) = (&self.packet.flow, &mut self.record.wc.0);
        wc.nw_proto = u8::MAX;
        let is_igmp = (flow.dl_type, flow.nw_proto) == (ETH_TYPE_IP, IPPROTO_IGMP);
        let is_icmp6 = (flow.dl_type, flow.nw_proto) == (ETH_TYPE_IPV6, IPPROTO_ICMPV6);
        let is_type = |test: fn(u8) -> bool| u8::try_from(flow.tp_src).is_ok_and(test);
        // Each IGMP packet comes to the slow path, whatever its type, which datapaths cannot match.
        if is_icmp6 {
            wc.tp_src = u16::MAX;
        }
        if is_igmp && is_type(membership::is_igmp_membership)
            || is_icmp6 && is_type(membership::is_mld_membership)
        {
            return Kind::Membership;
        }
        if is_igmp {
            return Kind::Other("multicast traffic, flooding");
        }
        if is_icmp6 && is_type(|kind| MLD_TYPES.contains(&kind)) {
            return Kind::Other("MLD query, flooding");
        }
        let is_local = if flow.dl_type == ETH_TYPE_IP {
            wc.nw_dst = u32::MAX;
            Ipv4Addr::from_bits(flow.nw_dst).octets()[..3] == [224, 0, 0]
        } else {
            wc.ipv6_dst = [0xff; 16];
            Ipv6Addr::from(flow.ipv6_dst) == ALL_NODES
        };
        if is_local { Kind::Local } else { Kind::Data }
    }

    /// Forwards a multicast packet of IP.
    pub(super) fn multicast(&mut self, table: &Arc<Mutex<McastTable>>, input: &Bundle, tags: Tags) {
        match self.kind_of_multicast() {
            Kind::Membership => {
                self.snoop(table, input, tags);
                let mut ways = Vec::new();
                self.add_routers(table, tags.vlan(), &mut ways);
                lock(table).report_ports().iter().for_each(|port| ways.push((&REPORT, *port)));
                self.send_ways(&ways, input, tags);
            }
            Kind::Other(what) => {
                self.snoop(table, input, tags);
                self.record.trace.detail(|| what.to_string());
                self.flood_vlan(input, tags);
            }
            Kind::Local => {
                self.record.trace.detail(|| "RFC4541: section 2.1.2, item 2, flooding".to_string());
                self.flood_vlan(input, tags);
            }
            Kind::Data => self.multicast_data(table, input, tags),
        }
    }

    fn multicast_data(&mut self, table: &Arc<Mutex<McastTable>>, input: &Bundle, tags: Tags) {
        let key = (tags.vlan(), group(destination(&self.packet.flow)));
        self.record.lookups.multicast_group(self.bridge.id, key);
        let (members, flood, floods_unregistered) = {
            let table = lock(table);
            let members = table.members(key).map(<[Member]>::to_vec);
            (members, table.flood_ports().to_vec(), table.settings().flood_unregistered)
        };
        let mut ways = Vec::new();
        let flood = flood.into_iter().map(|port| (&FLOOD, port));
        match members {
            Some(members) => {
                ways.extend(members.iter().map(|member| (&GROUP, member.bundle)));
                ways.extend(flood);
                self.add_routers(table, tags.vlan(), &mut ways);
            }
            None if floods_unregistered => {
                self.record.trace.detail(|| "unregistered multicast, flooding".to_string());
                return self.flood_vlan(input, tags);
            }
            None => {
                self.add_routers(table, tags.vlan(), &mut ways);
                ways.extend(flood);
            }
        }
        self.send_ways(&ways, input, tags);
    }

    /// Has the host read the message. A datapath cannot, so each packet comes here.
    fn snoop(&mut self, table: &Arc<Mutex<McastTable>>, input: &Bundle, tags: Tags) {
        self.record.slow_reasons |= SlowReason::Action.bit();
        let flow = &self.packet.flow;
        let is_read = flow.dl_type != ETH_TYPE_IP
            || flow.tp_src == IGMP_QUERY
            || u8::try_from(flow.tp_src).is_ok_and(membership::is_igmp_membership);
        // A packet of a controller has no input port.
        if !is_read || input.id == BundleId::NONE {
            return;
        }
        let told = self.host.snoop(&Snooped {
            table,
            bridge: self.bridge.id,
            vlan: tags.vlan(),
            bundle: input.id,
            port: &input.name,
            src: source(flow),
            dst: destination(flow),
        });
        if let Some(told) = told {
            self.record.trace.detail(|| told);
        }
    }

    /// The ports of routers in a VLAN.
    fn add_routers(
        &mut self,
        table: &Arc<Mutex<McastTable>>,
        vlan: u16,
        ways: &mut Vec<(&'static Way, BundleId)>,
    ) {
        self.record.lookups.multicast_routers(self.bridge.id, vlan);
        let table = lock(table);
        for (of_vlan, router) in table.routers() {
            match self.bridge.ports.bundles.get(&router.bundle) {
                Some(_) if *of_vlan != vlan => {
                    let why = "mcast router is on another vlan, dropping";
                    self.record.trace.detail(|| why.to_string());
                }
                _ => ways.push((&ROUTER, router.bundle)),
            }
        }
    }

    /// Sends the packet to each of these ports once. Ports outside of its VLAN get nothing, other than in OVS.
    fn send_ways(&mut self, ways: &[(&'static Way, BundleId)], input: &Bundle, tags: Tags) {
        let bridge = self.bridge.clone();
        self.examine_inner_vlan();
        let (mut outputs, mut sent) = (Vec::new(), HashSet::new());
        for (way, port) in ways {
            let Some(output) = bridge.ports.bundles.get(port) else {
                self.record.trace.warning(|| way.unknown.to_string());
                continue;
            };
            if output.id == input.id {
                self.record.trace.detail(|| way.is_input.to_string());
                continue;
            }
            if !tags.are_carried(output) {
                let (name, vlan) = (&output.name, tags.vlan());
                self.record.trace.detail(|| format!("port {name} does not carry VLAN {vlan}, dropping"));
                continue;
            }
            self.record.trace.detail(|| way.forwards.to_string());
            if sent.insert(output.id) {
                outputs.push(output);
            }
        }
        self.send_to_each(outputs.into_iter(), |cx, output| cx.output_bundle(output, tags));
    }
}
