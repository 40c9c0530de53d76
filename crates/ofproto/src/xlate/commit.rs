//! Datapath actions that bring the datapath's packet up to date: the difference between the base flow and the
//! current one, as set, push and pop actions.
//!
//! A set action's mask covers the fields that differ, restricted to bits examined or set. Without masked sets it covers
//! the whole header, except ARP, neighbour discovery and service headers.

use super::ctx::XlateCtx;
use super::mpls::copy_network;
use dpif::actions::{PopVlan, PushVlan};
use dpif::{ArpSet, EthSet, Ipv4Set, Ipv6Set, Masked, NdExtSet, NdSet, PortsSet, SetAction};
use flow::{Flow, VlanTag, nw_frag};
use packet::headers::{self as h, is_mpls};

/// Bits of a flow label.
const LABEL: u32 = 0xf_ffff;

/// `mask` where the values differ, else nothing.
fn differing<T: PartialEq + Default>(new: T, old: T, mask: T) -> T {
    if new == old { T::default() } else { mask }
}

/// A value with a mask.
trait Bits: Copy {
    /// All bits.
    fn all() -> Self;

    /// The mask.
    fn under(self, mask: Self) -> Self;
}

macro_rules! numbers {
    ($($number:ty)*) => {$(impl Bits for $number {
        fn all() -> Self {
            <$number>::MAX
        }

        fn under(self, mask: Self) -> Self {
            self & mask
        }
    })*};
}

numbers!(u8 u16 u32);

impl<const N: usize> Bits for [u8; N] {
    fn all() -> Self {
        [u8::MAX; N]
    }

    fn under(self, mask: Self) -> Self {
        std::array::from_fn(|i| self[i] & mask[i])
    }
}

/// The differing part of a header as a masked set of type `$set`, whose fields have the names of the flow's fields;
/// `None`: no difference.
macro_rules! changed {
    ($cx:expr, $set:ident { $($field:ident: $of:ident),* $(,)? }) => {{
        let (f, b, m) = (&$cx.packet.flow, &$cx.packet.base, &$cx.record.wc.0);
        let mask = $set { $($field: differing(f.$of, b.$of, m.$of).into()),* };
        let value = $set { $($field: Bits::under(f.$of.into(), mask.$field)),* };
        (mask != $set::default()).then_some(Masked { value, mask })
    }};
}

/// As [`changed`]; if the datapath has no masked sets, all of a header that differs, which is examined.
macro_rules! rewritten {
    ($cx:expr, $set:ident { $($field:ident: $of:ident),* $(,)? }) => {{
        let changed = changed!($cx, $set { $($field: $of),* });
        if changed.is_some() && !$cx.host.capabilities().masked_set {
            $($cx.record.wc.0.$of = Bits::all();)*
            let value = $set { $($field: $cx.packet.flow.$of),* };
            Some(Masked { value, mask: $set { $($field: Bits::all()),* } })
        } else {
            changed
        }
    }};
}

impl XlateCtx<'_> {
    /// Brings the datapath's packet up to date.
    pub(super) fn commit(&mut self) {
        if !self.commit_headers() {
            return self.commit_metadata();
        }
        self.commit_eth();
        // Labels are popped before the headers behind them are rewritten, and pushed after that.
        let pops_all = is_mpls(self.packet.base.dl_type) && !is_mpls(self.packet.flow.dl_type);
        if pops_all {
            self.commit_labels();
            self.packet.base.dl_type = self.packet.flow.dl_type;
        }
        self.commit_nsh();
        // A label hides them; they were up to date when it was pushed.
        if !is_mpls(self.packet.flow.dl_type) {
            self.commit_network();
            self.commit_ports();
        }
        if !pops_all {
            self.commit_labels();
        }
        if self.packet.flow.packet_type == 0 {
            self.commit_vlan();
        }
        self.commit_metadata();
    }

    fn commit_metadata(&mut self) {
        if self.packet.flow.skb_priority != self.packet.base.skb_priority {
            self.set(SetAction::SkbPriority(self.packet.flow.skb_priority));
        }
        if self.packet.flow.pkt_mark != self.packet.base.pkt_mark {
            if !self.host.capabilities().masked_set {
                self.record.wc.0.pkt_mark = u32::MAX;
            }
            let mask = self.record.wc.0.pkt_mark;
            self.set(SetAction::SkbMark(Masked { value: self.packet.flow.pkt_mark & mask, mask }));
        }
        // Fields unknown to the datapath are never committed, outer headers only before a tunnel output.
        let mut done = self.packet.flow;
        (done.in_port, done.recirc_id) = (self.packet.base.in_port, self.packet.base.recirc_id);
        done.set_tunnel(&self.packet.base.tunnel());
        done.set_tun_options(self.packet.base.tun_options().as_ref());
        if is_mpls(self.packet.flow.dl_type) || self.packet.was_mpls {
            // The packet still has them; another flow, behind a patch port, may show them again.
            copy_network(&self.packet.base, &mut done);
        }
        self.packet.base = done;
    }

    pub(super) fn set(&mut self, action: SetAction) {
        self.out.actions.push(action.into());
    }

    fn commit_eth(&mut self) {
        if let Some(eth) = rewritten!(self, EthSet { src: dl_src, dst: dl_dst }) {
            self.set(SetAction::Eth(eth));
        }
    }

    /// A packet without a protocol has no readable header, or one unknown to this switch: it is not rewritten. Neither are
    /// the unknown headers behind popped labels. As in OVS, only some actions examine the protocol of IP packets; after
    /// others it does not count, since the megaflow has packets of all protocols.
    fn commit_network(&mut self) {
        let examines = !self.packet.base.is_ip() || !self.host.capabilities().masked_set;
        if examines && self.network_differs() && !self.packet.was_mpls {
            self.record.wc.0.nw_proto = u8::MAX;
        }
        let counts =
            !self.packet.base.is_ip() || self.record.wc.0.nw_proto == u8::MAX || self.packet.was_mpls;
        if counts && self.packet.flow.nw_proto == 0 {
            return;
        }
        match self.packet.base.dl_type {
            h::ETH_TYPE_IP => self.commit_ipv4(),
            h::ETH_TYPE_IPV6 => {
                self.commit_ipv6();
                self.commit_nd();
            }
            h::ETH_TYPE_ARP | h::ETH_TYPE_RARP => self.commit_arp(),
            _ => {}
        }
    }

    fn network_differs(&self) -> bool {
        let fields = |f: &Flow| {
            let nd_ext = (f.igmp_group, f.tcp_flags);
            let of_ipv6 = (f.ipv6_src, f.ipv6_dst, f.ipv6_label, f.nd_target);
            (f.nw_src, f.nw_dst, f.nw_tos, f.nw_ttl, of_ipv6, f.arp_sha, f.arp_tha, nd_ext)
        };
        fields(&self.packet.flow) != fields(&self.packet.base)
    }

    fn commit_ipv4(&mut self) {
        let changed = rewritten!(self, Ipv4Set { src: nw_src, dst: nw_dst, tos: nw_tos, ttl: nw_ttl });
        if let Some(ipv4) = changed {
            self.set(SetAction::Ipv4(ipv4));
        }
    }

    fn commit_ipv6(&mut self) {
        let changed = rewritten!(
            self,
            Ipv6Set { src: ipv6_src, dst: ipv6_dst, label: ipv6_label, tclass: nw_tos, hlimit: nw_ttl }
        );
        if let Some(mut ipv6) = changed {
            if ipv6.mask.label > LABEL {
                self.record.wc.0.ipv6_label = LABEL;
                ipv6.mask.label = LABEL;
            }
            self.set(SetAction::Ipv6(ipv6));
        }
    }

    fn commit_nd(&mut self) {
        let ext = changed!(self, NdExtSet { reserved: igmp_group, options_type: tcp_flags });
        if let Some(ext) = ext {
            self.set(SetAction::NdExt(ext));
        }
        if let Some(nd) = changed!(self, NdSet { target: nd_target, sll: arp_sha, tll: arp_tha }) {
            self.set(SetAction::Nd(nd));
        }
    }

    fn commit_arp(&mut self) {
        let changed =
            changed!(self, ArpSet { op: nw_proto, sha: arp_sha, tha: arp_tha, spa: nw_src, tpa: nw_dst });
        if let Some(mut arp) = changed {
            // The flow has the lower half of the opcode; it has 0 for packets with a nonzero upper half.
            arp.mask.op = if arp.mask.op != 0 { u16::MAX } else { 0 };
            self.set(SetAction::Arp(arp));
        }
    }

    fn commit_ports(&mut self) {
        let b = &self.packet.base;
        if self.packet.flow.nw_proto == 0 || !b.is_ip() || b.nw_frag & nw_frag::LATER != 0 {
            return;
        }
        let proto = b.nw_proto;
        if matches!(proto, h::IPPROTO_ICMP | h::IPPROTO_ICMPV6) {
            return self.commit_icmp(proto);
        }
        let Some(ports) = rewritten!(self, PortsSet { src: tp_src, dst: tp_dst }) else { return };
        match proto {
            h::IPPROTO_TCP => self.set(SetAction::Tcp(ports)),
            h::IPPROTO_UDP => self.set(SetAction::Udp(ports)),
            h::IPPROTO_SCTP => self.set(SetAction::Sctp(ports)),
            _ => {}
        }
    }

    /// As in OVS, type and code are set together, and both are examined.
    fn commit_icmp(&mut self, proto: u8) {
        let (flow, base) = (&self.packet.flow, &self.packet.base);
        if (flow.tp_src, flow.tp_dst) == (base.tp_src, base.tp_dst) {
            return;
        }
        let value = PortsSet { src: flow.tp_src, dst: flow.tp_dst };
        (self.record.wc.0.tp_src, self.record.wc.0.tp_dst) = (u16::MAX, u16::MAX);
        let header = Masked { value, mask: PortsSet { src: u16::MAX, dst: u16::MAX } };
        self.set(match proto {
            h::IPPROTO_ICMP => SetAction::Icmp(header),
            _ => SetAction::Icmpv6(header),
        });
    }

    fn commit_vlan(&mut self) {
        let (new, old) = (tags(&self.packet.flow), tags(&self.packet.base));
        let common = new.iter().rev().zip(old.iter().rev()).take_while(|(a, b)| a == b).count();
        for (at, _) in old.iter().enumerate().take(old.len() - common) {
            self.out.actions.push(PopVlan.into());
            // The replacement is made from the whole tag, priority and EtherType included.
            self.record.wc.0.vlans[at] = VlanTag { tpid: u16::MAX, tci: u16::MAX };
        }
        for tag in new[..new.len() - common].iter().rev() {
            self.out.actions.push(PushVlan { tpid: tag.tpid, tci: tag.tci }.into());
        }
    }
}

/// The tags of a flow, outermost first.
fn tags(flow: &Flow) -> Vec<VlanTag> {
    flow.vlans.iter().copied().take_while(|t| t.is_present()).collect()
}
