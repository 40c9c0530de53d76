//! Prints keys with masks.

use super::sets::{
    nsh_text, put_arp, put_eth, put_ipv4, put_ipv6, put_nd, put_nd_ext, put_ports, put_tunnel,
};
use super::values::{CT_STATE, TCP_FLAGS};
use super::write::{Base, Fields, flags, hex};
use super::{FlowFormat, NumbersOnly, PortNames};
use crate::actions::{ArpSet, EthSet, Ipv4Set, Ipv6Set, Masked, NdExtSet, NdSet, PortsSet};
use flow::{FLOW_WORDS, Flow, FlowKey, KeyMask, Mask, OuterHeaders, VlanTag, nw_frag, shape};
use packet::headers as h;

/// Attributes being printed.
struct Text<'a> {
    key: &'a FlowKey,
    mask: &'a KeyMask,
    verbose: bool,
    packet_types: bool,
    out: Vec<String>,
}

/// A key and its mask as text. Verbose text includes unmatched fields; blocks absent from the key are never matched.
pub fn format_key_mask(key: &FlowKey, mask: &KeyMask, format: &FlowFormat<'_>) -> String {
    let FlowFormat { verbose, packet_types, names, .. } = *format;
    let mut text = Text { key, mask, verbose, packet_types, out: Vec::new() };
    text.metadata(names);
    if key.arp.packet_type == 0 {
        text.ethernet();
    } else {
        text.ethertype_and_up();
    }
    text.out.join(",")
}

/// The key of a packet as text: all fields without masks, as OVS logs it.
pub fn format_key(key: &FlowKey) -> String {
    let mut exact = FlowKey::from_mask(&Mask(Flow::from_words([u64::MAX; FLOW_WORDS])), key);
    if key.ct.nw_proto == 0 || !matches!(key.base.dl_type, h::ETH_TYPE_IP | h::ETH_TYPE_IPV6) {
        exact.ct = FlowKey::default().ct;
        exact.ct.label = [u8::MAX; 16];
    }
    // Also where the block of these fields is absent.
    exact.arp.skb_priority = u32::MAX;
    exact.base.nw_frag &= !(nw_frag::UNTYPED | nw_frag::UNTYPED_BARE);
    let format = FlowFormat { verbose: true, ..FlowFormat::brief(&NumbersOnly) };
    format_key_mask(key, &exact, &format)
}

impl Text<'_> {
    /// `name(value/mask)` in hexadecimal; brief text omits it if unmatched.
    fn hex(&mut self, name: &str, value: u128, mask: u128, full: u128) {
        if mask == full {
            self.out.push(format!("{name}({})", hex(value)));
        } else if mask != 0 || self.verbose {
            self.out.push(format!("{name}({}/{})", hex(value), hex(mask)));
        }
    }

    /// One header; brief text omits it if unmatched.
    fn header(&mut self, name: &str, put: impl FnOnce(&mut Fields)) {
        let mut fields = Fields::new(self.verbose);
        put(&mut fields);
        if fields.any {
            self.out.push(fields.finish(name));
        }
    }

    /// Keys in the order of OVS since 3.5, which is that of the kernel.
    fn metadata(&mut self, names: &dyn PortNames) {
        self.recirculation_and_priority();
        self.tunnel();
        self.in_port(names);
        self.mark_and_connection();
        let kind = self.key.arp.packet_type;
        let (space, id) = (kind >> 16, hex((kind & 0xffff).into()));
        if self.packet_types && self.is_typed() {
            self.out.push(format!("packet_type(ns={space},id={id})"));
        } else if self.packet_types && self.verbose {
            self.out.push(format!("packet_type(ns={space}/0,id={id}/0)"));
        }
    }

    fn recirculation_and_priority(&mut self) {
        let (b, m, all) = (&self.key.base, &self.mask.base, u128::from(u32::MAX));
        self.hex("recirc_id", b.recirc_id.into(), m.recirc_id.into(), all);
        self.hex("dp_hash", b.dp_hash.into(), m.dp_hash.into(), all);
        let (value, mask) = (self.key.arp.skb_priority, self.mask.arp.skb_priority);
        self.hex("skb_priority", value.into(), mask.into(), all);
    }

    fn in_port(&mut self, names: &dyn PortNames) {
        let port = self.key.in_port();
        let port = names.name(port).unwrap_or_else(|| port.to_string());
        self.out.push(format!("in_port({port})"));
    }

    fn mark_and_connection(&mut self) {
        let (key, mask) = (self.key, self.mask);
        let (b, m, all) = (&key.base, &mask.base, u128::from(u32::MAX));
        self.hex("skb_mark", b.pkt_mark.into(), m.pkt_mark.into(), all);
        if self.verbose {
            let of_state = if m.ct_state == u32::MAX { all } else { (m.ct_state & 0xff).into() };
            self.hex("ct_state", (b.ct_state & 0xff).into(), of_state, all);
        } else if m.ct_state != 0 {
            self.out.push(format!("ct_state({})", flags(b.ct_state, m.ct_state & 0xff, &CT_STATE, u32::MAX)));
        }
        self.hex("ct_zone", b.ct_zone.into(), m.ct_zone.into(), 0xffff);
        self.hex("ct_mark", b.ct_mark.into(), m.ct_mark.into(), all);
        let label = |l: [u8; 16]| u128::from_be_bytes(l);
        self.hex("ct_label", label(key.ct.label), label(mask.ct.label), u128::MAX);
        self.ct_tuple();
    }

    /// Whether the flow was written with a packet type, as those of translations are.
    fn is_typed(&self) -> bool {
        self.mask.base.nw_frag & (nw_frag::UNTYPED | nw_frag::UNTYPED_BARE) == 0
    }

    fn ct_tuple(&mut self) {
        let (c, m) = (&self.key.ct, &self.mask.ct);
        let rest = |f: &mut Fields, ports: [&str; 2]| {
            f.number("proto", c.nw_proto.into(), m.nw_proto.into(), 0xff, Base::Dec);
            f.number(ports[0], c.tp_src.into(), m.tp_src.into(), 0xffff, Base::Dec);
            f.number(ports[1], c.tp_dst.into(), m.tp_dst.into(), 0xffff, Base::Dec);
        };
        let is_v6 = self.key.base.dl_type == h::ETH_TYPE_IPV6;
        let addresses = if is_v6 {
            m.ipv6_src != [0; 16] || m.ipv6_dst != [0; 16]
        } else {
            m.nw_src != 0 || m.nw_dst != 0
        };
        if !addresses && m.nw_proto == 0 && m.tp_src == 0 && m.tp_dst == 0 {
            return;
        }
        let (c, m) = (*c, *m);
        if is_v6 {
            self.header("ct_tuple6", |f| {
                f.ipv6("src", c.ipv6_src, m.ipv6_src);
                f.ipv6("dst", c.ipv6_dst, m.ipv6_dst);
                rest(f, ["src_port", "dst_port"]);
            });
        } else {
            self.header("ct_tuple4", |f| {
                f.ipv4("src", c.nw_src, m.nw_src);
                f.ipv4("dst", c.nw_dst, m.nw_dst);
                rest(f, ["tp_src", "tp_dst"]);
            });
        }
    }

    fn tunnel(&mut self) {
        if !self.key.has(shape::TUNNEL) {
            return;
        }
        let outer = |key: &FlowKey| OuterHeaders { tunnel: key.tunnel, options: key.options };
        let (of, mask) = (outer(self.key), outer(self.mask));
        self.header("tunnel", |f| put_tunnel(f, &of, Some(&mask)));
    }

    fn ethernet(&mut self) {
        let (b, m) = (&self.key.base, &self.mask.base);
        let eth = Masked {
            value: EthSet { src: b.dl_src, dst: b.dl_dst },
            mask: EthSet { src: m.dl_src, dst: m.dl_dst },
        };
        let mut fields = Fields::new(self.verbose);
        put_eth(&mut fields, &eth);
        // As in OVS, a flow without a packet type shows that it has an Ethernet header.
        let bare = self.mask.base.nw_frag & nw_frag::UNTYPED_BARE != 0;
        let untyped = !self.packet_types || !self.is_typed() && !bare;
        if !fields.is_empty() || untyped {
            self.out.push(fields.finish("eth"));
        }
        let outer = (VlanTag { tpid: b.vlan_tpid, tci: b.vlan_tci }, m.vlan_tci);
        let inner = (self.key.arp.vlan1, self.mask.arp.vlan1.tci);
        self.vlans(&[outer, inner]);
    }

    /// Each tag, and its encapsulated fields.
    fn vlans(&mut self, tags: &[(VlanTag, u16)]) {
        let Some(((tag, tci_mask), inner)) = tags.split_first().filter(|((tag, _), _)| tag.is_present())
        else {
            return self.ethertype_and_up();
        };
        self.out.push(format!("eth_type(0x{:04x})", tag.tpid));
        // As in OVS, an inner tag of which neither identifier nor priority matter has no part.
        if tags.len() > 1 || *tci_mask & !VlanTag::PRESENT != 0 || self.verbose {
            self.out.push(vlan(*tag, *tci_mask, self.verbose));
        }
        let before = std::mem::take(&mut self.out);
        self.vlans(inner);
        let encapsulated = std::mem::replace(&mut self.out, before).join(",");
        self.out.push(format!("encap({encapsulated})"));
    }

    fn ethertype_and_up(&mut self) {
        let dl_type = self.key.base.dl_type;
        // As in OVS, a frame with a length in place of a type has no type, which the mask covers.
        if dl_type != h::FLOW_DL_TYPE_NONE {
            self.out.push(format!("eth_type(0x{dl_type:04x})"));
        } else if self.mask.base.dl_type != 0 {
            self.out.push(format!("eth_type(0/0x{:04x})", self.mask.base.dl_type));
        }
        match dl_type {
            h::ETH_TYPE_IP => self.ipv4(),
            h::ETH_TYPE_IPV6 => self.ipv6(),
            h::ETH_TYPE_ARP | h::ETH_TYPE_RARP => self.arp(),
            h::ETH_TYPE_MPLS | h::ETH_TYPE_MPLS_MCAST => self.mpls(),
            h::ETH_TYPE_NSH => self.nsh(),
            _ => {}
        }
    }

    fn frag(&self, f: &mut Fields) {
        let (value, mask) = (self.key.base.nw_frag, self.mask.base.nw_frag & nw_frag::MASK);
        let name = match value & nw_frag::MASK {
            0 => "no",
            nw_frag::ANY => "first",
            _ => "later",
        };
        if mask == nw_frag::MASK {
            f.word("frag", name);
        } else if mask != 0 {
            f.word("frag", &format!("{name}/{}", hex(mask.into())));
        }
    }

    fn ipv4(&mut self) {
        let (b, m) = (self.key.base, self.mask.base);
        let ip = Masked {
            value: Ipv4Set { src: b.nw_src, dst: b.nw_dst, tos: b.nw_tos, ttl: b.nw_ttl },
            mask: Ipv4Set { src: m.nw_src, dst: m.nw_dst, tos: m.nw_tos, ttl: m.nw_ttl },
        };
        let mut fields = Fields::new(self.verbose);
        put_ipv4(&mut fields, &ip, Some((b.nw_proto, m.nw_proto)));
        self.frag(&mut fields);
        if fields.any {
            self.out.push(fields.finish("ipv4"));
        }
        self.transport();
    }

    fn ipv6(&mut self) {
        let (b, m, v, n) = (self.key.base, self.mask.base, self.key.ipv6, self.mask.ipv6);
        let ip = Masked {
            value: Ipv6Set { src: v.src, dst: v.dst, label: v.label, tclass: b.nw_tos, hlimit: b.nw_ttl },
            mask: Ipv6Set { src: n.src, dst: n.dst, label: n.label, tclass: m.nw_tos, hlimit: m.nw_ttl },
        };
        let mut fields = Fields::new(self.verbose);
        put_ipv6(&mut fields, &ip, Some((b.nw_proto, m.nw_proto)));
        self.frag(&mut fields);
        if fields.any {
            self.out.push(fields.finish("ipv6"));
        }
        self.transport();
    }

    fn transport(&mut self) {
        let (b, m) = (self.key.base, self.mask.base);
        if b.nw_frag & nw_frag::LATER != 0 {
            return;
        }
        let v6 = b.dl_type == h::ETH_TYPE_IPV6;
        let ports = Masked {
            value: PortsSet { src: b.tp_src, dst: b.tp_dst },
            mask: PortsSet { src: m.tp_src, dst: m.tp_dst },
        };
        let (name, fields, full) = match b.nw_proto {
            h::IPPROTO_TCP => ("tcp", ["src", "dst"], 0xffff),
            h::IPPROTO_UDP => ("udp", ["src", "dst"], 0xffff),
            h::IPPROTO_SCTP => ("sctp", ["src", "dst"], 0xffff),
            h::IPPROTO_ICMP if !v6 => ("icmp", ["type", "code"], 0xff),
            h::IPPROTO_ICMPV6 if v6 => ("icmpv6", ["type", "code"], 0xff),
            _ => return,
        };
        self.header(name, |f| put_ports(f, &ports, fields, full));
        if b.nw_proto == h::IPPROTO_TCP && (self.verbose || m.tcp_flags != 0) {
            let text = flags(b.tcp_flags.into(), m.tcp_flags.into(), &TCP_FLAGS, 0xfff);
            self.out.push(format!("tcp_flags({text})"));
        }
        let is_nd = matches!(b.tp_src as u8, h::ND_NEIGHBOR_SOLICIT | h::ND_NEIGHBOR_ADVERT);
        if v6 && b.nw_proto == h::IPPROTO_ICMPV6 && is_nd && b.tp_dst == 0 {
            let (v, n) = (&self.key.ipv6, &self.mask.ipv6);
            let nd = Masked {
                value: NdSet { target: v.nd_target, sll: v.nd_sll, tll: v.nd_tll },
                mask: NdSet { target: n.nd_target, sll: n.nd_sll, tll: n.nd_tll },
            };
            self.header("nd", |f| put_nd(f, &nd));
            let (of, matched) = (self.key.arp.igmp_group, self.mask.arp.igmp_group);
            let ext = Masked {
                value: NdExtSet { reserved: of, options_type: b.tcp_flags },
                mask: NdExtSet { reserved: matched, options_type: m.tcp_flags },
            };
            // As in OVS, verbose text, too, omits it if it is neither set nor matched.
            if ext != Masked::default() {
                self.header("nd_ext", |f| put_nd_ext(f, &ext));
            }
        }
    }

    fn arp(&mut self) {
        let (b, m, a, n) = (self.key.base, self.mask.base, self.key.arp, self.mask.arp);
        let op_mask = if m.nw_proto == 0xff { 0xffff } else { m.nw_proto.into() };
        let arp = Masked {
            value: ArpSet {
                op: b.nw_proto.into(),
                sha: a.arp_sha,
                tha: a.arp_tha,
                spa: b.nw_src,
                tpa: b.nw_dst,
            },
            mask: ArpSet { op: op_mask, sha: n.arp_sha, tha: n.arp_tha, spa: m.nw_src, tpa: m.nw_dst },
        };
        self.header("arp", |f| put_arp(f, &arp, 0xffff));
    }

    /// As in OVS, verbose text, too, has the matched fields alone.
    fn nsh(&mut self) {
        let (nsh, mut mask) = (self.key.nsh(), self.mask.nsh());
        if nsh.mdtype != h::NSH_MD_TYPE1 {
            mask.context = [0; 4];
        }
        let fields = nsh_text(&nsh.masked(&mask), &mask);
        if !fields.is_empty() {
            self.out.push(format!("nsh({fields})"));
        }
    }

    fn mpls(&mut self) {
        let (labels, masks) = (self.key.arp.mpls_lse, self.mask.arp.mpls_lse);
        let stack = &labels[..flow::extract::MAX_MPLS_LABELS];
        // As in OVS, a stack without a bottom has as many labels as entries that are not zero.
        let shown = match stack.iter().position(|l| l & 0x100 != 0) {
            Some(bottom) => bottom + 1,
            None => stack.iter().filter(|l| **l != 0).count().max(1),
        };
        if !self.verbose && masks[..shown].iter().all(|m| *m == 0) {
            return;
        }
        let exact = masks[..shown].iter().all(|m| *m == u32::MAX);
        let parts =
            labels.iter().zip(masks).take(shown).map(|(l, m)| label(*l, if exact { None } else { Some(m) }));
        let text: Vec<String> = parts.collect();
        self.out.push(format!("mpls({})", text.join(",")));
    }
}

/// A VLAN tag. Brief text omits a part that is neither set nor matched; the presence bit is always matched.
fn vlan(tag: VlanTag, mask: u16, verbose: bool) -> String {
    let part = |name: &str, value: u16, mask: u16, full: u16| match (value, mask) {
        (0, 0) if !verbose => None,
        (value, mask) if mask == full => Some(format!("{name}={value}")),
        (value, mask) => Some(format!("{name}={value}/0x{mask:x}")),
    };
    let vid = part("vid", tag.vid(), mask & 0xfff, 0xfff);
    let pcp = part("pcp", tag.pcp().into(), mask >> 13, 7);
    format!("vlan({})", vid.into_iter().chain(pcp).collect::<Vec<_>>().join(","))
}

/// One entry of an MPLS label stack (RFC 3032); without a mask all its fields are exact.
pub(crate) fn label(lse: u32, mask: Option<u32>) -> String {
    let part = |name: &str, shift: u32, bits: u32, prefix: &str| {
        let full = (1 << bits) - 1;
        let value = lse >> shift & full;
        mask.map_or(format!("{name}={value}"), |mask| {
            format!("{name}={value}/{prefix}{:x}", mask >> shift & full)
        })
    };
    [part("label", 12, 20, "0x"), part("tc", 9, 3, ""), part("ttl", 0, 8, "0x"), part("bos", 8, 1, "")]
        .join(",")
}
