//! Restricts a match to the fields of its EtherType and protocol.

use crate::fields::{FieldId, Prereq};
use crate::flow::{Flow, Mask};
use crate::matching::Match;
use crate::nsh::Nsh;
use packet::headers as h;

/// The layers that a match implies, as far as fields depend on them.
pub(crate) struct Layers {
    ip4: bool,
    ip6: bool,
    arp: bool,
    mpls: bool,
    nsh: bool,
    ethernet: bool,
    /// TCP, UDP or SCTP.
    ports: bool,
    tcp: bool,
    /// ICMP or ICMPv6.
    pub(crate) icmp: bool,
    nd_solicit: bool,
    nd_advert: bool,
    /// It implies a known connection, hence the addresses of its original direction.
    connection: bool,
    /// Its protocol is matched.
    connection_proto: bool,
}

impl Layers {
    /// Derives them from the match.
    pub(crate) fn of(m: &Match) -> Layers {
        let flow = m.flow();
        let dl_type = flow.effective_type();
        let (ip4, ip6) = (dl_type == h::ETH_TYPE_IP, dl_type == h::ETH_TYPE_IPV6);
        let proto = if ip4 || ip6 { flow.nw_proto } else { 0 };
        let icmp6 = ip6 && proto == h::IPPROTO_ICMPV6;
        let nd = |t: u8| icmp6 && flow.tp_src == u16::from(t) && flow.tp_dst == 0;
        Layers {
            ip4,
            ip6,
            arp: matches!(dl_type, h::ETH_TYPE_ARP | h::ETH_TYPE_RARP),
            mpls: h::is_mpls(dl_type),
            nsh: dl_type == h::ETH_TYPE_NSH,
            ethernet: flow.packet_type == 0,
            ports: matches!(proto, h::IPPROTO_TCP | h::IPPROTO_UDP | h::IPPROTO_SCTP),
            tcp: proto == h::IPPROTO_TCP,
            icmp: ip4 && proto == h::IPPROTO_ICMP || icmp6,
            nd_solicit: nd(h::ND_NEIGHBOR_SOLICIT),
            nd_advert: nd(h::ND_NEIGHBOR_ADVERT),
            connection: Prereq::Connection.holds(flow, Some(&m.mask().0)),
            connection_proto: m.mask().0.ct_nw_proto != 0,
        }
    }

    /// Whether a match may contain the field. Ports of one protocol are accepted for another, as in
    /// `udp,tcp_dst=53`.
    pub(crate) fn allow(&self, field: FieldId) -> bool {
        match field {
            FieldId::CtNwSrc | FieldId::CtNwDst => return self.connection && self.ip4,
            FieldId::CtIpv6Src | FieldId::CtIpv6Dst => return self.connection && self.ip6,
            FieldId::CtTpSrc | FieldId::CtTpDst => return self.connection && self.connection_proto,
            _ => {}
        }
        match field.def().prereq {
            Prereq::None | Prereq::Vlan if field != FieldId::VlanPcp => true,
            Prereq::None | Prereq::Vlan | Prereq::Ethernet => self.ethernet,
            Prereq::Arp => self.arp,
            Prereq::Ipv4 => self.ip4 || self.arp,
            Prereq::Ipv6 => self.ip6,
            Prereq::Ip if field == FieldId::NwProto => self.ip4 || self.ip6 || self.arp,
            Prereq::Ip => self.ip4 || self.ip6,
            Prereq::Mpls => self.mpls,
            Prereq::Nsh => self.nsh,
            Prereq::Tcp if field == FieldId::TcpFlags => self.tcp,
            Prereq::Tcp | Prereq::Udp | Prereq::Sctp => self.ports || self.icmp,
            Prereq::Icmp4 | Prereq::Icmp6 => self.icmp,
            Prereq::Nd => self.nd_solicit || self.nd_advert,
            Prereq::NdSolicit => self.nd_solicit,
            Prereq::NdAdvert => self.nd_advert,
            Prereq::Connection => self.connection,
        }
    }

    /// Clears the bits of `mask` that have no effect.
    fn trim(&self, mask: &mut Flow) {
        if !self.ethernet {
            (mask.dl_src, mask.dl_dst, mask.dl_type) = ([0; 6], [0; 6], 0);
            mask.vlans = Default::default();
        }
        if !(self.ip4 || self.arp) {
            (mask.nw_src, mask.nw_dst) = (0, 0);
        }
        if !(self.ip4 || self.ip6 || self.arp) {
            mask.nw_proto = 0;
        }
        if !(self.ip4 || self.ip6) {
            (mask.nw_tos, mask.nw_ttl, mask.nw_frag) = (0, 0, 0);
        }
        if !(self.ports || self.icmp) {
            (mask.tp_src, mask.tp_dst) = (0, 0);
        }
        if self.icmp {
            mask.tp_src &= 0xff;
            mask.tp_dst &= 0xff;
        }
        let nd = self.nd_solicit || self.nd_advert;
        if !(self.tcp || nd) {
            mask.tcp_flags = 0;
        }
        if !nd {
            mask.igmp_group = 0;
        }
        if !self.ip6 {
            (mask.ipv6_src, mask.ipv6_dst, mask.ipv6_label) = ([0; 16], [0; 16], 0);
        }
        if !nd {
            mask.nd_target = [0; 16];
        }
        if !(self.arp || self.nd_solicit) {
            mask.arp_sha = [0; 6];
        }
        if !(self.arp || self.nd_advert) {
            mask.arp_tha = [0; 6];
        }
        if !self.mpls {
            mask.mpls_lse = [0; 4];
        }
        if !self.nsh {
            mask.set_nsh(&Nsh::default());
        }
    }
}

/// Drops fields of a match that its EtherType and protocol exclude, as switches do with flows from
/// `ovs-ofctl`: `tp_dst=80` without a protocol matches everything.
pub fn normalize(m: &Match) -> Match {
    let mut mask = m.mask().0;
    Layers::of(m).trim(&mut mask);
    Match::new(m.flow(), &Mask(mask))
}

/// The prerequisite of a field, for messages.
pub fn needs(field: FieldId) -> &'static str {
    match field {
        FieldId::CtNwSrc | FieldId::CtNwDst => "ip and ct_state=+trk with +new, +est, +rel or -inv",
        FieldId::CtIpv6Src | FieldId::CtIpv6Dst => "ipv6 and ct_state=+trk with +new, +est, +rel or -inv",
        FieldId::CtTpSrc | FieldId::CtTpDst => "ct_nw_proto and ct_state=+trk with +new, +est, +rel or -inv",
        field => prereq_text(field.def().prereq),
    }
}

/// The text of a prerequisite, for messages.
fn prereq_text(prereq: Prereq) -> &'static str {
    match prereq {
        Prereq::None | Prereq::Ethernet => "an Ethernet packet",
        Prereq::Vlan => "dl_vlan or vlan_tci",
        Prereq::Arp => "arp or rarp",
        Prereq::Ipv4 => "ip",
        Prereq::Ipv6 => "ipv6",
        Prereq::Ip => "ip or ipv6",
        Prereq::Mpls => "mpls or mplsm",
        Prereq::Nsh => "dl_type=0x894f",
        Prereq::Tcp => "tcp or tcp6",
        Prereq::Udp => "udp or udp6",
        Prereq::Sctp => "sctp or sctp6",
        Prereq::Icmp4 => "icmp",
        Prereq::Icmp6 => "icmp6",
        Prereq::Nd => "icmp6 with icmp_type=135 or 136 and icmp_code=0",
        Prereq::NdSolicit => "icmp6 with icmp_type=135 and icmp_code=0",
        Prereq::NdAdvert => "icmp6 with icmp_type=136 and icmp_code=0",
        Prereq::Connection => "ct_state=+trk with +new, +est, +rel or -inv",
    }
}
