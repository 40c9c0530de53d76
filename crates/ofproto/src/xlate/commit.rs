//! What must be done to the datapath's packet so that it is what the rules made of it: the difference between the base
//! flow and the current one, as set, push and pop actions.
//!
//! A set action's mask covers the fields that differ, and of them the bits that were looked at or set.

use super::ctx::Ctx;
use dpif::{ArpSet, DpAction, EthSet, Ipv4Set, Ipv6Set, Masked, NdSet, PortsSet, SetAction};
use flow::{Flow, VlanTag, nw_frag};
use packet::headers as h;

/// `mask` where the values differ, else nothing.
fn differing<T: PartialEq + Default>(new: T, old: T, mask: T) -> T {
    if new == old { T::default() } else { mask }
}

fn and<const N: usize>(a: [u8; N], b: [u8; N]) -> [u8; N] {
    std::array::from_fn(|i| a[i] & b[i])
}

impl Ctx<'_> {
    /// Brings the datapath's packet up to date.
    pub(super) fn commit(&mut self) {
        self.commit_eth();
        self.commit_network();
        self.commit_ports();
        self.commit_vlan();
        if self.flow.skb_priority != self.base.skb_priority {
            self.set(SetAction::SkbPriority(self.flow.skb_priority));
        }
        if self.flow.pkt_mark != self.base.pkt_mark {
            let mask = self.wc.0.pkt_mark;
            self.set(SetAction::SkbMark(Masked { value: self.flow.pkt_mark & mask, mask }));
        }
        // What the datapath does not carry is never committed.
        let mut done = self.flow;
        (done.in_port, done.recirc_id) = (self.base.in_port, self.base.recirc_id);
        self.base = done;
    }

    fn set(&mut self, action: SetAction) {
        self.actions.push(DpAction::Set(action));
    }

    fn commit_eth(&mut self) {
        let (f, b, m) = (&self.flow, &self.base, &self.wc.0);
        let mask = EthSet {
            src: differing(f.dl_src, b.dl_src, m.dl_src),
            dst: differing(f.dl_dst, b.dl_dst, m.dl_dst),
        };
        if mask != EthSet::default() {
            let value = EthSet { src: and(f.dl_src, mask.src), dst: and(f.dl_dst, mask.dst) };
            self.set(SetAction::Eth(Masked { value, mask }));
        }
    }

    fn commit_network(&mut self) {
        match self.base.dl_type {
            // A header that could not be read cannot be rewritten.
            h::ETH_TYPE_IP if !self.ipv4_header_was_read() => {
                if self.network_differs() {
                    self.match_ipv4_header();
                }
            }
            h::ETH_TYPE_IPV6 if self.base.nw_proto == 0 && self.network_differs() => {
                self.wc.0.nw_proto = u8::MAX;
            }
            h::ETH_TYPE_IPV6 if self.base.nw_proto == 0 => {}
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
            (
                f.nw_src,
                f.nw_dst,
                f.nw_tos,
                f.nw_ttl,
                f.ipv6_src,
                f.ipv6_dst,
                f.ipv6_label,
                f.nd_target,
                f.arp_sha,
                f.arp_tha,
            )
        };
        fields(&self.flow) != fields(&self.base)
    }

    /// An IPv4 header that could not be read is all zeros; one that was read may have protocol 0, too.
    fn ipv4_header_was_read(&self) -> bool {
        let o = &self.original;
        (o.nw_src | o.nw_dst) != 0 || (o.nw_tos | o.nw_ttl | o.nw_frag | o.nw_proto) != 0
    }

    /// Whether the mask tells a packet whose IPv4 header was read from one whose header was not.
    fn ipv4_header_is_matched(&self) -> bool {
        let (o, m) = (&self.original, &self.wc.0);
        (o.nw_src & m.nw_src) != 0
            || (o.nw_dst & m.nw_dst) != 0
            || ((o.nw_tos & m.nw_tos) | (o.nw_ttl & m.nw_ttl)) != 0
            || ((o.nw_frag & m.nw_frag) | (o.nw_proto & m.nw_proto)) != 0
    }

    fn match_ipv4_header(&mut self) {
        let m = &mut self.wc.0;
        (m.nw_src, m.nw_dst) = (u32::MAX, u32::MAX);
        (m.nw_tos, m.nw_ttl, m.nw_proto, m.nw_frag) = (u8::MAX, u8::MAX, u8::MAX, nw_frag::MASK);
    }

    fn commit_ipv4(&mut self) {
        let (f, b, m) = (&self.flow, &self.base, &self.wc.0);
        let mask = Ipv4Set {
            src: differing(f.nw_src, b.nw_src, m.nw_src),
            dst: differing(f.nw_dst, b.nw_dst, m.nw_dst),
            tos: differing(f.nw_tos, b.nw_tos, m.nw_tos),
            ttl: differing(f.nw_ttl, b.nw_ttl, m.nw_ttl),
        };
        if mask != Ipv4Set::default() {
            let value = Ipv4Set {
                src: f.nw_src & mask.src,
                dst: f.nw_dst & mask.dst,
                tos: f.nw_tos & mask.tos,
                ttl: f.nw_ttl & mask.ttl,
            };
            self.set(SetAction::Ipv4(Masked { value, mask }));
            if self.original.nw_proto != 0 && !self.ipv4_header_is_matched() {
                self.wc.0.nw_proto = u8::MAX;
            } else if !self.ipv4_header_is_matched() {
                self.match_ipv4_header();
            }
        }
    }

    fn commit_ipv6(&mut self) {
        let (f, b, m) = (&self.flow, &self.base, &self.wc.0);
        let mask = Ipv6Set {
            src: differing(f.ipv6_src, b.ipv6_src, m.ipv6_src),
            dst: differing(f.ipv6_dst, b.ipv6_dst, m.ipv6_dst),
            label: differing(f.ipv6_label, b.ipv6_label, m.ipv6_label),
            tclass: differing(f.nw_tos, b.nw_tos, m.nw_tos),
            hlimit: differing(f.nw_ttl, b.nw_ttl, m.nw_ttl),
        };
        if mask != Ipv6Set::default() {
            let value = Ipv6Set {
                src: and(f.ipv6_src, mask.src),
                dst: and(f.ipv6_dst, mask.dst),
                label: f.ipv6_label & mask.label,
                tclass: f.nw_tos & mask.tclass,
                hlimit: f.nw_ttl & mask.hlimit,
            };
            self.set(SetAction::Ipv6(Masked { value, mask }));
            self.wc.0.nw_proto = u8::MAX;
        }
    }

    fn commit_nd(&mut self) {
        let (f, b, m) = (&self.flow, &self.base, &self.wc.0);
        let mask = NdSet {
            target: differing(f.nd_target, b.nd_target, m.nd_target),
            sll: differing(f.arp_sha, b.arp_sha, m.arp_sha),
            tll: differing(f.arp_tha, b.arp_tha, m.arp_tha),
        };
        if mask != NdSet::default() {
            let value = NdSet {
                target: and(f.nd_target, mask.target),
                sll: and(f.arp_sha, mask.sll),
                tll: and(f.arp_tha, mask.tll),
            };
            self.set(SetAction::Nd(Masked { value, mask }));
        }
    }

    fn commit_arp(&mut self) {
        let (f, b, m) = (&self.flow, &self.base, &self.wc.0);
        let mask = ArpSet {
            op: differing(f.nw_proto, b.nw_proto, m.nw_proto).into(),
            sha: differing(f.arp_sha, b.arp_sha, m.arp_sha),
            tha: differing(f.arp_tha, b.arp_tha, m.arp_tha),
            spa: differing(f.nw_src, b.nw_src, m.nw_src),
            tpa: differing(f.nw_dst, b.nw_dst, m.nw_dst),
        };
        if mask != ArpSet::default() {
            let value = ArpSet {
                op: u16::from(f.nw_proto) & mask.op,
                sha: and(f.arp_sha, mask.sha),
                tha: and(f.arp_tha, mask.tha),
                spa: f.nw_src & mask.spa,
                tpa: f.nw_dst & mask.tpa,
            };
            self.set(SetAction::Arp(Masked { value, mask }));
        }
    }

    fn commit_ports(&mut self) {
        let (f, b, m) = (&self.flow, &self.base, &self.wc.0);
        if !b.is_ip() || b.nw_frag & nw_frag::LATER != 0 {
            return;
        }
        let mask = PortsSet {
            src: differing(f.tp_src, b.tp_src, m.tp_src),
            dst: differing(f.tp_dst, b.tp_dst, m.tp_dst),
        };
        if mask == PortsSet::default() {
            return;
        }
        let ports = Masked { value: PortsSet { src: f.tp_src & mask.src, dst: f.tp_dst & mask.dst }, mask };
        match b.nw_proto {
            h::IPPROTO_TCP => self.set(SetAction::Tcp(ports)),
            h::IPPROTO_UDP => self.set(SetAction::Udp(ports)),
            h::IPPROTO_SCTP => self.set(SetAction::Sctp(ports)),
            h::IPPROTO_ICMP => self.set(SetAction::Icmp(ports)),
            h::IPPROTO_ICMPV6 => self.set(SetAction::Icmpv6(ports)),
            _ => {}
        }
    }

    fn commit_vlan(&mut self) {
        let (new, old) = (tags(&self.flow), tags(&self.base));
        let common = new.iter().rev().zip(old.iter().rev()).take_while(|(a, b)| a == b).count();
        for (at, _) in old.iter().enumerate().take(old.len() - common) {
            self.actions.push(DpAction::PopVlan);
            // What is pushed instead is made from the whole tag, priority and EtherType included.
            self.wc.0.vlans[at] = VlanTag { tpid: u16::MAX, tci: u16::MAX };
        }
        for tag in new[..new.len() - common].iter().rev() {
            self.actions.push(DpAction::PushVlan { tpid: tag.tpid, tci: tag.tci });
        }
        if new != old {
            // Popping depends on the tags that were there.
            for tag in &mut self.wc.0.vlans {
                tag.tci |= VlanTag::PRESENT;
            }
        }
    }
}

/// The tags that a flow has, outermost first.
fn tags(flow: &Flow) -> Vec<VlanTag> {
    flow.vlans.iter().copied().take_while(|t| t.is_present()).collect()
}
