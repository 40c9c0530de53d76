//! Datapath actions: what a megaflow does with a packet (`enum ovs_action_attr` of `linux/openvswitch.h`, as far as the
//! switch uses them).

use crate::drops::XlateDrop;
use crate::ops::Capabilities;
use crate::upcall::UserCookie;
use flow::{DpPort, RecircId, Tunnel};

/// A value of which only the bits of `mask` are written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Masked<T> {
    /// New value, within the mask.
    pub value: T,
    /// Bits to write.
    pub mask: T,
}

/// Ethernet addresses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct EthSet {
    /// Source.
    pub src: [u8; 6],
    /// Destination.
    pub dst: [u8; 6],
}

/// IPv4 header fields.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Ipv4Set {
    /// Source.
    pub src: u32,
    /// Destination.
    pub dst: u32,
    /// Type of service.
    pub tos: u8,
    /// Time to live.
    pub ttl: u8,
}

/// IPv6 header fields.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Ipv6Set {
    /// Source.
    pub src: [u8; 16],
    /// Destination.
    pub dst: [u8; 16],
    /// Flow label, 20 bits.
    pub label: u32,
    /// Traffic class.
    pub tclass: u8,
    /// Hop limit.
    pub hlimit: u8,
}

/// ARP fields.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ArpSet {
    /// Opcode.
    pub op: u16,
    /// Sender hardware address.
    pub sha: [u8; 6],
    /// Target hardware address.
    pub tha: [u8; 6],
    /// Sender protocol address.
    pub spa: u32,
    /// Target protocol address.
    pub tpa: u32,
}

/// Neighbour discovery fields.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct NdSet {
    /// Target address.
    pub target: [u8; 16],
    /// Source link-layer address option.
    pub sll: [u8; 6],
    /// Target link-layer address option.
    pub tll: [u8; 6],
}

/// Source and destination port, or ICMP type and code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PortsSet {
    /// Source port or type.
    pub src: u16,
    /// Destination port or code.
    pub dst: u16,
}

/// Rewrites one header. The flow's key must have that header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SetAction {
    /// Ethernet.
    Eth(Masked<EthSet>),
    /// IPv4; checksums follow.
    Ipv4(Masked<Ipv4Set>),
    /// IPv6; checksums follow.
    Ipv6(Masked<Ipv6Set>),
    /// TCP ports.
    Tcp(Masked<PortsSet>),
    /// UDP ports.
    Udp(Masked<PortsSet>),
    /// SCTP ports.
    Sctp(Masked<PortsSet>),
    /// ICMP type and code.
    Icmp(Masked<PortsSet>),
    /// ICMPv6 type and code.
    Icmpv6(Masked<PortsSet>),
    /// ARP.
    Arp(Masked<ArpSet>),
    /// Neighbour discovery.
    Nd(Masked<NdSet>),
    /// Packet mark.
    SkbMark(Masked<u32>),
    /// Packet priority.
    SkbPriority(u32),
    /// Outer headers for the tunnel port that the packet is sent out of next.
    Tunnel(Tunnel),
}

/// One datapath action. A list of none drops.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum DpAction {
    /// Send out of a port.
    Output(DpPort),
    /// Send to the slow path, with what it needs to know.
    Userspace(UserCookie),
    /// Rewrite a header.
    Set(SetAction),
    /// Push a VLAN tag (`tci` with the presence bit).
    PushVlan {
        /// EtherType of the tag.
        tpid: u16,
        /// Tag.
        tci: u16,
    },
    /// Remove the outermost VLAN tag.
    PopVlan,
    /// Cut the packet of the next output to so many bytes.
    Trunc(u32),
    /// Run the packet through the datapath again under this id.
    Recirc(RecircId),
    /// Pass a meter; what exceeds it is dropped here.
    Meter(u32),
    /// Run actions on a copy with a probability of `probability / u32::MAX`.
    Sample {
        /// Probability.
        probability: u32,
        /// Actions for the copy.
        actions: Vec<DpAction>,
    },
    /// Run actions on a copy.
    Clone(Vec<DpAction>),
    /// Drop, for this reason.
    Drop(XlateDrop),
    /// What another program had the kernel do, and this switch has no word for. Never wanted by a translation; userspace drops
    /// the packet.
    Foreign {
        /// `OVS_ACTION_ATTR_*`.
        kind: u16,
        /// Its content.
        content: Box<[u8]>,
    },
}

impl DpAction {
    /// Whether it, or an action nested in it, is so.
    pub fn any(&self, is: fn(&DpAction) -> bool) -> bool {
        let within = |actions: &[DpAction]| actions.iter().any(|a| a.any(is));
        is(self)
            || matches!(self, DpAction::Sample { actions, .. } | DpAction::Clone(actions) if within(actions))
    }

    /// Whether a datapath that can do so much cannot carry it out, or something nested in it: the slow path has to, packet by
    /// packet.
    pub fn needs_help(&self, can: &Capabilities) -> bool {
        use SetAction::{Arp, Icmp, Icmpv6, Nd};
        !can.set_arp_nd_icmp && self.any(|a| matches!(a, DpAction::Set(Arp(_) | Nd(_) | Icmp(_) | Icmpv6(_))))
    }
}
