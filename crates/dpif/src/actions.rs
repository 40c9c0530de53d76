//! Datapath actions: what a megaflow does with a packet (`enum ovs_action_attr` of `linux/openvswitch.h`, as far as the
//! switch uses them).

use crate::drops::XlateDrop;
use crate::ops::Capabilities;
use crate::upcall::UserCookie;
use flow::{DpPort, RecircId, Tunnel};

mod ct;

pub use ct::{CtAction, CtCommit, CtName, CtNat, HelperName, NatAddresses, NatRange, TimeoutName};

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
    /// The first entry of an MPLS label stack.
    Mpls(Masked<u32>),
}

/// How [`DpAction::Hash`] reckons (`enum ovs_hash_alg`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HashAlgorithm {
    /// Over addresses, protocol and ports.
    L4 = 0,
    /// The same number in both directions.
    SymL4 = 1,
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
    /// Set `dp_hash`, by which a recirculated packet is matched.
    Hash {
        /// Over what.
        algorithm: HashAlgorithm,
        /// Where it starts.
        basis: u32,
    },
    /// Push an entry onto the MPLS label stack.
    PushMpls {
        /// The entry (RFC 3032).
        lse: u32,
        /// EtherType of the frame then.
        ethertype: u16,
    },
    /// Pop the first entry off the MPLS label stack.
    PopMpls {
        /// EtherType of the frame then.
        ethertype: u16,
    },
    /// Pass the connection tracker.
    Ct(Box<CtAction>),
    /// Forget what the connection tracker said.
    CtClear,
    /// Push an Ethernet header onto a packet that has none.
    PushEth {
        /// Source.
        src: [u8; 6],
        /// Destination.
        dst: [u8; 6],
    },
    /// Remove the Ethernet header.
    PopEth,
    /// Run actions that the packet's length chooses.
    CheckPktLen {
        /// Bytes.
        len: u16,
        /// For longer packets.
        greater: Vec<DpAction>,
        /// For others.
        less: Vec<DpAction>,
    },
    /// Take one from the time to live; run these actions where it was 1 or less.
    DecTtl(Vec<DpAction>),
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
    /// The lists of actions within it, one level down.
    pub fn lists(&self) -> impl Iterator<Item = &[DpAction]> {
        let (first, second): (Option<&[DpAction]>, Option<&[DpAction]>) = match self {
            DpAction::Sample { actions, .. } | DpAction::Clone(actions) | DpAction::DecTtl(actions) => {
                (Some(actions), None)
            }
            DpAction::CheckPktLen { greater, less, .. } => (Some(greater), Some(less)),
            _ => (None, None),
        };
        first.into_iter().chain(second)
    }

    /// Whether it, or an action nested in it, is so.
    pub fn any(&self, is: fn(&DpAction) -> bool) -> bool {
        is(self) || self.lists().flatten().any(|a| a.any(is))
    }

    /// The word for it, if only other programs' flows have it: translations never make it, and the userspace datapath lacks it.
    pub fn others_only(&self) -> Option<&'static str> {
        Some(match self {
            DpAction::Hash { .. } => "hash",
            DpAction::PushMpls { .. } => "push_mpls",
            DpAction::PopMpls { .. } => "pop_mpls",
            DpAction::Set(SetAction::Mpls(_)) => "set(mpls)",
            DpAction::Ct(_) => "ct",
            DpAction::CtClear => "ct_clear",
            DpAction::PushEth { .. } => "push_eth",
            DpAction::PopEth => "pop_eth",
            DpAction::CheckPktLen { .. } => "check_pkt_len",
            DpAction::DecTtl(_) => "dec_ttl",
            DpAction::Foreign { .. } => "(unknown)",
            DpAction::Output(_)
            | DpAction::Userspace(_)
            | DpAction::Set(_)
            | DpAction::PushVlan { .. }
            | DpAction::PopVlan
            | DpAction::Trunc(_)
            | DpAction::Recirc(_)
            | DpAction::Meter(_)
            | DpAction::Sample { .. }
            | DpAction::Clone(_)
            | DpAction::Drop(_) => return None,
        })
    }

    /// Whether a datapath that can do so much cannot carry it out, or something nested in it: the slow path has to, packet by
    /// packet.
    pub fn needs_help(&self, can: &Capabilities) -> bool {
        use SetAction::{Arp, Icmp, Icmpv6, Nd};
        !can.set_arp_nd_icmp && self.any(|a| matches!(a, DpAction::Set(Arp(_) | Nd(_) | Icmp(_) | Icmpv6(_))))
    }
}
