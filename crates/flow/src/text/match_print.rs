//! Prints matches, packets and megaflows in the order and with the short names of `ovs-ofctl dump-flows`.

use super::address::{format_masked_ip, format_masked_mac, format_packet_type};
use super::flags::{CT_STATE, FlagSet, TCP, TUNNEL_OF_PACKET};
use super::number::hex;
use super::port::{NoPortNames, PortNames, format_port};
use super::values::{format_metadata, frag_name};
use crate::fields::FieldId;
use crate::flow::{Flow, Mask, VlanTag, nw_frag};
use crate::matching::Match;
use crate::{MacAddr, OfPort, Wide};
use packet::headers as h;

/// Default OpenFlow priority, not printed.
const DEFAULT_PRIORITY: i32 = 0x8000;
/// Number of printed MPLS labels.
const MPLS_LABELS: usize = 3;

/// A match in `dump-flows` format; with `priority`, unless it is 32768. Empty if it matches everything.
pub fn format_match(m: &Match, priority: Option<i32>) -> String {
    format_match_with(m, priority, &NoPortNames)
}

/// [`format_match`] with port names.
pub fn format_match_with(m: &Match, priority: Option<i32>, ports: &dyn PortNames) -> String {
    let mut p = Printer::new(m.flow(), &m.mask().0, ports);
    if let Some(priority) = priority.filter(|p| *p != DEFAULT_PRIORITY) {
        p.put("priority", priority);
    }
    p.all()
}

/// All fields of the packet, in `ofproto/trace` format after `Flow: `.
pub fn format_flow(flow: &Flow) -> String {
    format_flow_with(flow, &NoPortNames)
}

/// [`format_flow`] with port names.
pub fn format_flow_with(flow: &Flow, ports: &dyn PortNames) -> String {
    let mask = packet_mask(flow);
    let masked = flow.masked(&Mask(mask));
    let mut p = Printer::new(&masked, &mask, ports);
    p.of_packet = true;
    p.all()
}

/// The masked fields of a megaflow, in `ofproto/trace` format after `Megaflow: `. The recirculation id and
/// the packet type are always exact.
pub fn format_megaflow(flow: &Flow, mask: &Mask) -> String {
    format_megaflow_with(flow, mask, &NoPortNames)
}

/// [`format_megaflow`] with port names.
pub fn format_megaflow_with(flow: &Flow, mask: &Mask, ports: &dyn PortNames) -> String {
    let mut mask = *mask;
    mask.0.recirc_id = u32::MAX;
    mask.0.packet_type = u32::MAX;
    let masked = flow.masked(&mask);
    let mut p = Printer::new(&masked, &mask.0, ports);
    p.of_megaflow = true;
    p.all()
}

/// The fields of a packet, fully masked; context fields only if non-zero.
fn packet_mask(flow: &Flow) -> Flow {
    let mut m = Flow::default();
    context_mask(flow, &mut m);
    m.packet_type = u32::MAX;
    m.in_port = u32::MAX;
    if flow.packet_type == 0 {
        m.dl_src = [0xff; 6];
        m.dl_dst = [0xff; 6];
        m.dl_type = u16::MAX;
        m.vlans[0].tci = u16::MAX;
        if flow.vlans[0].tci != 0 {
            m.vlans[1].tci = u16::MAX;
        }
    }
    match flow.effective_type() {
        h::ETH_TYPE_IP => {
            (m.nw_src, m.nw_dst) = (u32::MAX, u32::MAX);
            ip_mask(flow, &mut m);
        }
        h::ETH_TYPE_IPV6 => {
            (m.ipv6_src, m.ipv6_dst) = ([0xff; 16], [0xff; 16]);
            m.ipv6_label = 0xf_ffff;
            ip_mask(flow, &mut m);
        }
        h::ETH_TYPE_ARP | h::ETH_TYPE_RARP => {
            (m.nw_src, m.nw_dst, m.nw_proto) = (u32::MAX, u32::MAX, u8::MAX);
            (m.arp_sha, m.arp_tha) = ([0xff; 6], [0xff; 6]);
        }
        h::ETH_TYPE_MPLS | h::ETH_TYPE_MPLS_MCAST => {
            for (i, lse) in flow.mpls_lse.iter().enumerate() {
                m.mpls_lse[i] = u32::MAX;
                if lse & 0x100 != 0 {
                    break;
                }
            }
        }
        h::ETH_TYPE_NSH => {
            (m.nsh_flags, m.nsh_ttl, m.nsh_mdtype, m.nsh_np) = (u8::MAX, u8::MAX, u8::MAX, u8::MAX);
            (m.nsh_path, m.nsh_context) = (u32::MAX, [u32::MAX; 4]);
            ip_mask(flow, &mut m);
        }
        _ => {}
    }
    m
}

fn context_mask(flow: &Flow, m: &mut Flow) {
    let all = |n: u32| if n == 0 { 0 } else { u32::MAX };
    m.skb_priority = all(flow.skb_priority);
    m.pkt_mark = all(flow.pkt_mark);
    m.recirc_id = all(flow.recirc_id);
    m.dp_hash = all(flow.dp_hash);
    m.ct_state = all(flow.ct_state);
    m.ct_zone = all(flow.ct_zone.into()) as u16;
    m.ct_mark = all(flow.ct_mark);
    if flow.ct_label != [0; 16] {
        m.ct_label = [0xff; 16];
    }
    if flow.is_in_connection() && flow.ct_nw_proto != 0 {
        connection_mask(flow, m);
    }
    for (mask, reg) in m.regs.iter_mut().zip(flow.regs) {
        *mask = all(reg);
    }
    m.tun_id = if flow.tun_id == 0 { 0 } else { u64::MAX };
    m.metadata = if flow.metadata == 0 { 0 } else { u64::MAX };
    if flow.tun_dst != 0 || flow.tun_ipv6_dst != [0; 16] {
        (m.tun_src, m.tun_dst) = (u32::MAX, u32::MAX);
        (m.tun_ipv6_src, m.tun_ipv6_dst) = ([0xff; 16], [0xff; 16]);
        (m.tun_gbp_id, m.tun_gbp_flags) = (u16::MAX, u8::MAX);
        (m.tun_tos, m.tun_ttl, m.tun_flags) = (u8::MAX, u8::MAX, u16::MAX);
        (m.tun_erspan_ver, m.tun_erspan_dir, m.tun_erspan_hwid) = (0xf, 1, 0x3f);
        (m.tun_erspan_idx, m.tun_gtpu_flags, m.tun_gtpu_msgtype) = (0xf_ffff, u8::MAX, u8::MAX);
        m.tun_metadata_present = flow.tun_metadata_present;
        m.tun_metadata = [u32::MAX; 64];
    }
}

/// The original direction of a packet's connection. As in OVS, labelled packets have none, packets with a service header have
/// no addresses, and neighbour discovery takes the place of addresses.
fn connection_mask(flow: &Flow, m: &mut Flow) {
    let is_nd = flow.nw_proto == h::IPPROTO_ICMPV6 && is_nd_type(flow.tp_src) && flow.tp_dst == 0;
    match flow.effective_type() {
        h::ETH_TYPE_IP => (m.ct_nw_src, m.ct_nw_dst) = (u32::MAX, u32::MAX),
        h::ETH_TYPE_IPV6 if !is_nd => (m.ct_ipv6_src, m.ct_ipv6_dst) = ([0xff; 16], [0xff; 16]),
        h::ETH_TYPE_IPV6 | h::ETH_TYPE_NSH => {}
        _ => return,
    }
    (m.ct_nw_proto, m.ct_tp_src, m.ct_tp_dst) = (u8::MAX, u16::MAX, u16::MAX);
}

fn ip_mask(flow: &Flow, m: &mut Flow) {
    (m.nw_proto, m.nw_tos, m.nw_ttl, m.nw_frag) = (u8::MAX, u8::MAX, u8::MAX, nw_frag::MASK);
    if flow.effective_type() == h::ETH_TYPE_IPV6 && flow.nw_proto == h::IPPROTO_ICMPV6 {
        // OVS parses neighbour discovery in later fragments, too: the type where the code is 0.
        m.tp_dst = u16::MAX;
        if flow.tp_dst == 0 {
            m.tp_src = u16::MAX;
            if is_nd_type(flow.tp_src) {
                m.nd_target = [0xff; 16];
                (m.arp_sha, m.arp_tha) = ([0xff; 6], [0xff; 6]);
            }
        }
    }
    if flow.nw_frag & nw_frag::LATER != 0 {
        return;
    }
    let has_ports = matches!(
        flow.nw_proto,
        h::IPPROTO_TCP
            | h::IPPROTO_UDP
            | h::IPPROTO_SCTP
            | h::IPPROTO_ICMP
            | h::IPPROTO_IGMP
            | h::IPPROTO_ICMPV6
    );
    if has_ports {
        (m.tp_src, m.tp_dst) = (u16::MAX, u16::MAX);
    }
    if flow.nw_proto == h::IPPROTO_TCP {
        m.tcp_flags = 0xfff;
    }
}

fn is_nd_type(icmp_type: u16) -> bool {
    icmp_type == u16::from(h::ND_NEIGHBOR_SOLICIT) || icmp_type == u16::from(h::ND_NEIGHBOR_ADVERT)
}

/// Collects `name=value` pairs.
struct Printer<'a> {
    out: String,
    f: &'a Flow,
    m: &'a Flow,
    ports: &'a dyn PortNames,
    dl_type: u16,
    of_packet: bool,
    of_megaflow: bool,
}

impl<'a> Printer<'a> {
    fn new(f: &'a Flow, m: &'a Flow, ports: &'a dyn PortNames) -> Printer<'a> {
        let (of_packet, of_megaflow) = (false, false);
        Printer { out: String::new(), f, m, ports, dl_type: f.effective_type(), of_packet, of_megaflow }
    }

    fn word(&mut self, word: &str) {
        if !self.out.is_empty() {
            self.out.push(',');
        }
        self.out.push_str(word);
    }

    fn put(&mut self, name: &str, value: impl std::fmt::Display) {
        self.word(&format!("{name}={value}"));
    }

    /// Hexadecimal with a hexadecimal mask.
    fn hex(&mut self, name: &str, value: u128, mask: u128, bits: u32) {
        if mask == u128::MAX >> (128 - bits) {
            self.put(name, hex(value));
        } else if mask != 0 {
            self.put(name, format_args!("{}/{}", hex(value), hex(mask)));
        }
    }

    /// Decimal; if partially masked hexadecimal, zero as `0x0`.
    fn decimal16(&mut self, name: &str, value: u16, mask: u16) {
        if mask == u16::MAX {
            self.put(name, value);
        } else if mask != 0 {
            self.put(name, format_args!("{value:#x}/{mask:#x}"));
        }
    }

    /// Decimal; if partially masked hexadecimal of two digits.
    fn decimal8(&mut self, name: &str, value: u8, mask: u8) {
        if mask == u8::MAX {
            self.put(name, value);
        } else if mask != 0 {
            self.put(name, format_args!("0x{value:02x}/0x{mask:02x}"));
        }
    }

    fn decimal(&mut self, name: &str, value: u32, mask: u32) {
        if mask != 0 {
            self.put(name, value);
        }
    }

    fn ipv4(&mut self, name: &str, address: u32, mask: u32) {
        if mask != 0 {
            self.put(name, format_masked_ip(address.into(), mask.into(), 32));
        }
    }

    fn ipv6(&mut self, name: &str, address: [u8; 16], mask: [u8; 16]) {
        if mask != [0; 16] {
            self.put(name, format_masked_ip(u128::from_be_bytes(address), u128::from_be_bytes(mask), 128));
        }
    }

    fn mac(&mut self, name: &str, address: [u8; 6], mask: [u8; 6]) {
        if mask != [0; 6] {
            self.put(name, format_masked_mac(MacAddr(address).to_u64(), MacAddr(mask).to_u64()));
        }
    }

    fn flags(&mut self, name: &str, set: &FlagSet, value: u32, mask: u32) {
        let mask = mask & set.all;
        if mask == set.all {
            self.put(name, set.format(value & mask));
        } else if mask != 0 {
            self.put(name, set.format_signed(value, mask));
        }
    }

    fn port(&mut self, name: &str, port: u32) {
        let text = format_port(OfPort(port), self.ports);
        self.put(name, text);
    }

    fn all(mut self) -> String {
        self.context();
        self.conntrack_tuple();
        let type_shown = self.protocol();
        for (i, (value, mask)) in self.f.regs.iter().zip(self.m.regs).enumerate() {
            self.hex(&format!("reg{i}"), u128::from(*value), u128::from(mask), 32);
        }
        self.tunnel();
        self.tunnel_metadata();
        let (f, m) = (self.f, self.m);
        self.hex("metadata", f.metadata.into(), m.metadata.into(), 64);
        if m.in_port != 0 {
            self.port("in_port", f.in_port);
        }
        self.vlan("", f.vlans[0].tci, m.vlans[0].tci);
        if m.vlans[0].tci != 0 {
            self.vlan("1", f.vlans[1].tci, m.vlans[1].tci);
        }
        self.mac("dl_src", f.dl_src, m.dl_src);
        self.mac("dl_dst", f.dl_dst, m.dl_dst);
        if !type_shown && m.dl_type != 0 {
            self.put("dl_type", format_args!("0x{:04x}", f.dl_type));
        }
        self.nsh();
        self.network();
        self.transport();
        self.out
    }

    fn context(&mut self) {
        let (f, m) = (self.f, self.m);
        self.hex("pkt_mark", f.pkt_mark.into(), m.pkt_mark.into(), 32);
        self.hex("recirc_id", f.recirc_id.into(), m.recirc_id.into(), 32);
        self.hex("dp_hash", f.dp_hash.into(), m.dp_hash.into(), 32);
        self.decimal("conj_id", f.conj_id, m.conj_id);
        self.hex("skb_priority", f.skb_priority.into(), m.skb_priority.into(), 32);
        if m.actset_output != 0 {
            self.port("actset_output", f.actset_output);
        }
        self.flags("ct_state", &CT_STATE, f.ct_state, m.ct_state);
        self.decimal16("ct_zone", f.ct_zone, m.ct_zone);
        self.hex("ct_mark", f.ct_mark.into(), m.ct_mark.into(), 32);
        self.hex("ct_label", u128::from_be_bytes(f.ct_label), u128::from_be_bytes(m.ct_label), 128);
    }

    fn conntrack_tuple(&mut self) {
        let (f, m) = (self.f, self.m);
        self.ipv4("ct_nw_src", f.ct_nw_src, m.ct_nw_src);
        self.ipv6("ct_ipv6_src", f.ct_ipv6_src, m.ct_ipv6_src);
        self.ipv4("ct_nw_dst", f.ct_nw_dst, m.ct_nw_dst);
        self.ipv6("ct_ipv6_dst", f.ct_ipv6_dst, m.ct_ipv6_dst);
        self.decimal("ct_nw_proto", f.ct_nw_proto.into(), m.ct_nw_proto.into());
        self.decimal16("ct_tp_src", f.ct_tp_src, m.ct_tp_src);
        self.decimal16("ct_tp_dst", f.ct_tp_dst, m.ct_tp_dst);
    }

    /// Packet type and short protocol name; returns whether that implies the EtherType.
    fn protocol(&mut self) -> bool {
        let (f, m) = (self.f, self.m);
        if m.packet_type != 0 {
            if f.packet_type != 0 {
                self.put("packet_type", format_packet_type(f.packet_type));
            } else if m.recirc_id != 0 {
                self.word("eth");
            }
        }
        match self.short_name() {
            Some(name) => {
                self.word(name);
                true
            }
            None => false,
        }
    }

    fn short_name(&self) -> Option<&'static str> {
        let (f, m) = (self.f, self.m);
        if m.dl_type == 0 {
            return None;
        }
        let proto = (m.nw_proto != 0).then_some(f.nw_proto);
        Some(match (self.dl_type, proto) {
            (h::ETH_TYPE_IP, Some(h::IPPROTO_ICMP)) => "icmp",
            (h::ETH_TYPE_IP, Some(h::IPPROTO_TCP)) => "tcp",
            (h::ETH_TYPE_IP, Some(h::IPPROTO_UDP)) => "udp",
            (h::ETH_TYPE_IP, Some(h::IPPROTO_SCTP)) => "sctp",
            (h::ETH_TYPE_IP, _) => "ip",
            (h::ETH_TYPE_IPV6, Some(h::IPPROTO_ICMPV6)) => "icmp6",
            (h::ETH_TYPE_IPV6, Some(h::IPPROTO_TCP)) => "tcp6",
            (h::ETH_TYPE_IPV6, Some(h::IPPROTO_UDP)) => "udp6",
            (h::ETH_TYPE_IPV6, Some(h::IPPROTO_SCTP)) => "sctp6",
            (h::ETH_TYPE_IPV6, _) => "ipv6",
            (h::ETH_TYPE_ARP, _) => "arp",
            (h::ETH_TYPE_RARP, _) => "rarp",
            (h::ETH_TYPE_MPLS, _) => "mpls",
            (h::ETH_TYPE_MPLS_MCAST, _) => "mplsm",
            _ => return None,
        })
    }

    fn tunnel(&mut self) {
        let (f, m) = (self.f, self.m);
        self.hex("tun_id", f.tun_id.into(), m.tun_id.into(), 64);
        self.ipv4("tun_src", f.tun_src, m.tun_src);
        self.ipv4("tun_dst", f.tun_dst, m.tun_dst);
        self.ipv6("tun_ipv6_src", f.tun_ipv6_src, m.tun_ipv6_src);
        self.ipv6("tun_ipv6_dst", f.tun_ipv6_dst, m.tun_ipv6_dst);
        self.decimal16("tun_gbp_id", f.tun_gbp_id, m.tun_gbp_id);
        self.hex("tun_gbp_flags", f.tun_gbp_flags.into(), m.tun_gbp_flags.into(), 8);
        self.decimal("tun_tos", f.tun_tos.into(), m.tun_tos.into());
        self.decimal("tun_ttl", f.tun_ttl.into(), m.tun_ttl.into());
        self.erspan_and_gtpu();
        let set = &TUNNEL_OF_PACKET;
        let (flags, mask) = (u32::from(f.tun_flags), u32::from(m.tun_flags) & set.all);
        if self.of_packet && mask != 0 {
            self.put("tun_flags", set.format(flags & set.all));
        } else if mask != 0 {
            self.put("tun_flags", set.format_signed(flags, mask));
        }
    }

    /// As in OVS, without masks, and of ERSPAN the fields of the version.
    fn erspan_and_gtpu(&mut self) {
        let (f, m) = (self.f, self.m);
        self.decimal("tun_erspan_ver", f.tun_erspan_ver.into(), m.tun_erspan_ver.into());
        if f.tun_erspan_ver == 1 && m.tun_erspan_idx != 0 {
            self.put("tun_erspan_idx", hex(f.tun_erspan_idx.into()));
        }
        if f.tun_erspan_ver == 2 {
            self.decimal("tun_erspan_dir", f.tun_erspan_dir.into(), m.tun_erspan_dir.into());
            if m.tun_erspan_hwid != 0 {
                self.put("tun_erspan_hwid", hex(f.tun_erspan_hwid.into()));
            }
        }
        if m.tun_gtpu_flags != 0 {
            self.put("gtpu_flags", hex(f.tun_gtpu_flags.into()));
        }
        self.decimal("gtpu_msgtype", f.tun_gtpu_msgtype.into(), m.tun_gtpu_msgtype.into());
    }

    /// Tunnel metadata; `NP` if a megaflow depends on the absence of an option.
    fn tunnel_metadata(&mut self) {
        let tlv = self.ports.tlv();
        for field in self.m.metadata_indices().filter_map(FieldId::tun_metadata) {
            let name = field.def().name;
            let there = field.metadata_index().is_some_and(|i| self.f.tun_metadata_present >> i & 1 != 0);
            let full = Wide::ones(tlv.bits_of(field).into());
            let (value, mask) = (tlv.read(field, self.f), tlv.read(field, self.m) & full);
            if !there {
                self.put(name, "NP");
            } else if mask.is_zero() {
                self.word(name);
            } else {
                self.put(name, format_metadata(field, value, mask, tlv));
            }
        }
    }

    fn vlan(&mut self, suffix: &str, tci: u16, mask: u16) {
        let (vid, pcp) = (mask & 0xfff, mask & 0xe000);
        let tagged = tci & mask & VlanTag::PRESENT != 0;
        let whole = matches!(vid, 0 | 0xfff) && matches!(pcp, 0 | 0xe000) && (vid | pcp) != 0;
        if tagged && whole {
            if vid != 0 {
                self.put(&format!("dl_vlan{suffix}"), tci & 0xfff);
            }
            if pcp != 0 {
                self.put(&format!("dl_vlan_pcp{suffix}"), tci >> 13);
            }
        } else if mask == u16::MAX {
            self.put(&format!("vlan_tci{suffix}"), format_args!("0x{tci:04x}"));
        } else if mask != 0 {
            self.put(&format!("vlan_tci{suffix}"), format_args!("0x{tci:04x}/0x{mask:04x}"));
        }
    }

    /// The network service header; context headers only of metadata type 1.
    fn nsh(&mut self) {
        let (f, m) = (self.f, self.m);
        if self.dl_type != h::ETH_TYPE_NSH {
            return;
        }
        self.decimal8("nsh_flags", f.nsh_flags, m.nsh_flags);
        self.decimal8("nsh_ttl", f.nsh_ttl, m.nsh_ttl);
        self.decimal8("nsh_mdtype", f.nsh_mdtype, m.nsh_mdtype);
        self.decimal8("nsh_np", f.nsh_np, m.nsh_np);
        if m.nsh_path >> 8 != 0 {
            self.put("nsh_spi", format_args!("{:#x}", f.nsh_path >> 8));
        }
        self.decimal8("nsh_si", f.nsh_path as u8, m.nsh_path as u8);
        if f.nsh_mdtype == h::NSH_MD_TYPE1 {
            for (i, (value, mask)) in f.nsh_context.iter().zip(m.nsh_context).enumerate() {
                match mask {
                    0 => {}
                    u32::MAX => self.put(&format!("nsh_c{}", i + 1), format_args!("{value:#x}")),
                    _ => self.put(&format!("nsh_c{}", i + 1), format_args!("{value:#x}/{mask:#x}")),
                }
            }
        }
    }

    fn network(&mut self) {
        let (f, m) = (self.f, self.m);
        let arp = matches!(self.dl_type, h::ETH_TYPE_ARP | h::ETH_TYPE_RARP);
        if self.dl_type == h::ETH_TYPE_IPV6 {
            self.ipv6("ipv6_src", f.ipv6_src, m.ipv6_src);
            self.ipv6("ipv6_dst", f.ipv6_dst, m.ipv6_dst);
            match m.ipv6_label {
                0 => {}
                0xf_ffff => self.put("ipv6_label", format_args!("0x{:05x}", f.ipv6_label)),
                mask => self.put("ipv6_label", format_args!("0x{:05x}/0x{mask:05x}", f.ipv6_label)),
            }
        } else if arp {
            self.ipv4("arp_spa", f.nw_src, m.nw_src);
            self.ipv4("arp_tpa", f.nw_dst, m.nw_dst);
        } else {
            self.ipv4("nw_src", f.nw_src, m.nw_src);
            self.ipv4("nw_dst", f.nw_dst, m.nw_dst);
        }
        let proto_told = self.short_name().is_some_and(|n| !matches!(n, "ip" | "ipv6" | "arp" | "rarp"));
        if m.nw_proto != 0 && !proto_told {
            self.put(if arp { "arp_op" } else { "nw_proto" }, f.nw_proto);
        }
        if arp {
            self.mac("arp_sha", f.arp_sha, m.arp_sha);
            self.mac("arp_tha", f.arp_tha, m.arp_tha);
        }
        self.decimal("nw_tos", u32::from(f.nw_tos & 0xfc), u32::from(m.nw_tos & 0xfc));
        self.decimal("nw_ecn", u32::from(f.nw_tos & 3), u32::from(m.nw_tos & 3));
        self.decimal("nw_ttl", f.nw_ttl.into(), m.nw_ttl.into());
        self.mpls();
        if m.nw_frag & nw_frag::MASK != 0 {
            let name = frag_name(f.nw_frag & nw_frag::MASK, m.nw_frag & nw_frag::MASK);
            self.put("nw_frag", name.unwrap_or("<error>"));
        }
    }

    fn mpls(&mut self) {
        let (f, m) = (self.f.mpls_lse, self.m.mpls_lse);
        for (name, shift, bits) in [("label", 12, 20), ("tc", 9, 3), ("ttl", 0, 8), ("bos", 8, 1)] {
            let field = |lse: u32| lse >> shift & ((1 << bits) - 1);
            self.decimal(&format!("mpls_{name}"), field(f[0]), field(m[0]));
        }
        for i in 1..MPLS_LABELS {
            let name = format!("mpls_lse{i}");
            match m[i] {
                0 => {}
                u32::MAX => self.put(&name, f[i]),
                mask => self.put(&name, format_args!("0x{:08x}/0x{mask:08x}", f[i])),
            }
        }
    }

    fn transport(&mut self) {
        let (f, m) = (self.f, self.m);
        let icmp4 = self.dl_type == h::ETH_TYPE_IP && f.nw_proto == h::IPPROTO_ICMP;
        let icmp6 = self.dl_type == h::ETH_TYPE_IPV6 && f.nw_proto == h::IPPROTO_ICMPV6;
        if icmp4 || icmp6 {
            self.icmp("icmp_type", f.tp_src, m.tp_src);
            self.icmp("icmp_code", f.tp_dst, m.tp_dst);
        } else {
            self.decimal16("tp_src", f.tp_src, m.tp_src);
            self.decimal16("tp_dst", f.tp_dst, m.tp_dst);
        }
        if icmp6 {
            self.ipv6("nd_target", f.nd_target, m.nd_target);
            self.mac("nd_sll", f.arp_sha, m.arp_sha);
            self.mac("nd_tll", f.arp_tha, m.arp_tha);
            if !self.of_packet {
                self.neighbour_extension();
            }
        }
        let ip = matches!(self.dl_type, h::ETH_TYPE_IP | h::ETH_TYPE_IPV6);
        if ip && f.nw_proto == h::IPPROTO_TCP {
            self.flags("tcp_flags", &TCP, f.tcp_flags.into(), m.tcp_flags.into());
        }
    }

    /// Reserved bytes and type of the option of neighbour discovery.
    fn neighbour_extension(&mut self) {
        let (f, m) = (self.f, self.m);
        match m.igmp_group {
            0 => {}
            u32::MAX => self.put("nd_reserved", f.igmp_group),
            mask => self.put("nd_reserved", format_args!("0x{:08x}/0x{mask:08x}", f.igmp_group)),
        }
        self.decimal16("nd_options_type", f.tcp_flags, m.tcp_flags);
    }

    /// Type and code have eight bits in sixteen: a megaflow prints a mask of eight, a match one of sixteen.
    fn icmp(&mut self, name: &str, value: u16, mask: u16) {
        if mask & 0xff == 0xff && !self.of_megaflow {
            self.put(name, value);
        } else {
            self.decimal16(name, value, mask);
        }
    }
}
