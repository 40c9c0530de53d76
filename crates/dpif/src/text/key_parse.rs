//! Parses keys with masks.

use super::token::{Item, items};
use super::values::{CT_STATE, TCP_FLAGS, flags, ipv4, ipv6, masked, masked128, number};
use super::{PortNames, TextError, sets};
use flow::{FlowKey, KeyMask, VlanTag, nw_frag, shape};
use packet::headers as h;

/// State of the parser.
struct Parsed<'a> {
    key: FlowKey,
    mask: KeyMask,
    names: &'a dyn PortNames,
    tags: usize,
    has_type: bool,
    /// The text names a packet type, or an Ethernet header.
    has_packet_type: bool,
    has_eth: bool,
}

/// A key and its mask from text. See the module documentation for unnamed fields.
///
/// # Errors
/// Unknown names, invalid values, unbalanced parentheses.
pub fn parse_key_mask(text: &str, names: &dyn PortNames) -> Result<(FlowKey, KeyMask), TextError> {
    let (key, mask) = (FlowKey::default(), KeyMask::default());
    let mut parsed =
        Parsed { key, mask, names, tags: 0, has_type: false, has_packet_type: false, has_eth: false };
    parsed.key.base.in_port = u32::MAX;
    for item in items(text)? {
        parsed.attribute(&item)?;
    }
    Ok(parsed.finish())
}

/// A type matched whole, or `0/0xffff` for a frame with a length in its place.
fn ethertype(text: &str) -> Result<u16, TextError> {
    match masked(text, 0xffff)? {
        (0, 0xffff) if text.contains('/') => Ok(h::FLOW_DL_TYPE_NONE),
        (value, 0xffff) if value >= h::ETH_TYPE_MIN.into() => Ok(value as u16),
        (value, 0xffff) => Err(TextError(format!("invalid Ethertype {value} in flow key"))),
        (_, _) => Err(TextError(format!("eth_type({text}): an Ethertype is matched whole"))),
    }
}

fn word32(item: &Item<'_>, full: u64) -> Result<(u32, u32), TextError> {
    masked(item.word()?, full).map(|(v, m)| (v as u32, m as u32))
}

impl Parsed<'_> {
    fn finish(mut self) -> (FlowKey, KeyMask) {
        let (key, mask) = (&mut self.key, &mut self.mask);
        // As in OVS, the Ethernet header decides: with one it is a frame, else a packet of its EtherType.
        if self.has_eth {
            key.arp.packet_type = 0;
        } else if key.arp.packet_type != 0 {
            let id = if self.has_type { key.base.dl_type } else { key.arp.packet_type as u16 };
            key.arp.packet_type = 1 << 16 | u32::from(id);
        }
        if key.arp.packet_type != 0 {
            key.base.dl_type = key.arp.packet_type as u16;
        } else if !self.has_type {
            key.base.dl_type = h::FLOW_DL_TYPE_NONE;
        }
        if self.tags < 1 {
            mask.base.vlan_tpid = u16::MAX;
            mask.base.vlan_tci = u16::MAX;
        }
        if self.tags < 2 {
            mask.arp.vlan1 = VlanTag { tpid: u16::MAX, tci: u16::MAX };
        }
        mask.arp.packet_type = u32::MAX;
        if !self.has_packet_type {
            mask.base.nw_frag |= if self.has_eth { nw_frag::UNTYPED } else { nw_frag::UNTYPED_BARE };
        }
        mask.base.in_port = u32::MAX;
        mask.base.recirc_id = u32::MAX;
        mask.base.dl_type = u16::MAX;
        key.set_shape();
        for n in 0..shape::COUNT {
            if key.base.shape >> n & 1 == 0 {
                *mask.block_mut(n + 1) = [0; 8];
            }
        }
        mask.base.shape = u16::MAX;
        (self.key, self.mask)
    }

    fn attribute(&mut self, item: &Item<'_>) -> Result<(), TextError> {
        let (b, m, all) = (&mut self.key.base, &mut self.mask.base, u64::from(u32::MAX));
        match item.name {
            "recirc_id" => (b.recirc_id, _) = word32(item, all)?,
            "dp_hash" => (b.dp_hash, m.dp_hash) = word32(item, all)?,
            "skb_priority" => {
                (self.key.arp.skb_priority, self.mask.arp.skb_priority) = word32(item, all)?;
            }
            "in_port" => b.in_port = port(item.word()?, self.names)?,
            "skb_mark" => (b.pkt_mark, m.pkt_mark) = word32(item, all)?,
            "ct_state" => (b.ct_state, m.ct_state) = flags(item.word()?, &CT_STATE, 0xff)?,
            "ct_zone" => {
                let (value, mask) = word32(item, 0xffff)?;
                (b.ct_zone, m.ct_zone) = (value as u16, mask as u16);
            }
            "ct_mark" => (b.ct_mark, m.ct_mark) = word32(item, all)?,
            "ct_label" => {
                let (value, mask) = masked128(item.word()?)?;
                (self.key.ct.label, self.mask.ct.label) = (value.to_be_bytes(), mask.to_be_bytes());
            }
            "ct_tuple4" | "ct_tuple6" => self.ct_tuple(item)?,
            "tunnel" => {
                let tunnel = sets::tunnel(item)?;
                (self.key.tunnel, self.mask.tunnel) = (tunnel.value.tunnel, tunnel.mask.tunnel);
                (self.key.options, self.mask.options) = (tunnel.value.options, tunnel.mask.options);
            }
            "packet_type" => {
                self.has_packet_type = true;
                self.packet_type(item)?;
            }
            _ => return self.header(item),
        }
        Ok(())
    }

    fn packet_type(&mut self, item: &Item<'_>) -> Result<(), TextError> {
        let kind = &mut self.key.arp.packet_type;
        for field in item.args()? {
            let (value, _) = masked(field.value()?, 0xffff)?;
            match field.name {
                "ns" => *kind = *kind & 0xffff | (value as u32) << 16,
                "id" => *kind = *kind & !0xffff | value as u32,
                _ => return Err(field.unknown(item.name)),
            }
        }
        Ok(())
    }

    fn ct_tuple(&mut self, item: &Item<'_>) -> Result<(), TextError> {
        let (c, m) = (&mut self.key.ct, &mut self.mask.ct);
        for field in item.args()? {
            let text = field.value()?;
            match (field.name, item.name) {
                ("src", "ct_tuple4") => (c.nw_src, m.nw_src) = ipv4(text)?,
                ("dst", "ct_tuple4") => (c.nw_dst, m.nw_dst) = ipv4(text)?,
                ("src", _) => (c.ipv6_src, m.ipv6_src) = ipv6(text)?,
                ("dst", _) => (c.ipv6_dst, m.ipv6_dst) = ipv6(text)?,
                ("proto", _) => {
                    let (value, mask) = masked(text, 0xff)?;
                    (c.nw_proto, m.nw_proto) = (value as u8, mask as u8);
                }
                ("tp_src" | "src_port", _) => {
                    let (value, mask) = masked(text, 0xffff)?;
                    (c.tp_src, m.tp_src) = (value as u16, mask as u16);
                }
                ("tp_dst" | "dst_port", _) => {
                    let (value, mask) = masked(text, 0xffff)?;
                    (c.tp_dst, m.tp_dst) = (value as u16, mask as u16);
                }
                _ => return Err(field.unknown(item.name)),
            }
        }
        Ok(())
    }

    fn header(&mut self, item: &Item<'_>) -> Result<(), TextError> {
        let (b, m) = (&mut self.key.base, &mut self.mask.base);
        match item.name {
            "eth" => {
                self.has_eth = true;
                let e = sets::eth(item)?;
                (b.dl_src, b.dl_dst, m.dl_src, m.dl_dst) = (e.value.src, e.value.dst, e.mask.src, e.mask.dst);
            }
            "eth_type" => {
                b.dl_type = ethertype(item.word()?)?;
                self.has_type = true;
            }
            "vlan" => self.vlan(item)?,
            "encap" => {
                for inner in item.args()? {
                    self.header(inner)?;
                }
            }
            "ipv4" => self.ipv4(item)?,
            "ipv6" => self.ipv6(item)?,
            "arp" => {
                let a = sets::arp(item)?;
                (b.nw_src, m.nw_src, b.nw_dst, m.nw_dst) = (a.value.spa, a.mask.spa, a.value.tpa, a.mask.tpa);
                (b.nw_proto, m.nw_proto) = (a.value.op as u8, a.mask.op as u8);
                (self.key.arp.arp_sha, self.mask.arp.arp_sha) = (a.value.sha, a.mask.sha);
                (self.key.arp.arp_tha, self.mask.arp.arp_tha) = (a.value.tha, a.mask.tha);
            }
            "mpls" => self.mpls(item)?,
            "nsh" => {
                let nsh = sets::nsh(item, &mut sets::nothing_more)?;
                self.key.set_nsh(&nsh.value);
                self.mask.set_nsh(&nsh.mask);
            }
            "tcp" | "udp" | "sctp" => {
                let p = sets::ports(item, ["src", "dst"], 0xffff)?;
                (b.tp_src, b.tp_dst, m.tp_src, m.tp_dst) = (p.value.src, p.value.dst, p.mask.src, p.mask.dst);
            }
            "icmp" | "icmpv6" => {
                let p = sets::ports(item, ["type", "code"], 0xff)?;
                let wide = |mask: u16| if mask == 0xff { 0xffff } else { mask };
                (b.tp_src, b.tp_dst) = (p.value.src, p.value.dst);
                (m.tp_src, m.tp_dst) = (wide(p.mask.src), wide(p.mask.dst));
            }
            "tcp_flags" => {
                let (value, mask) = flags(item.word()?, &TCP_FLAGS, 0xfff)?;
                (b.tcp_flags, m.tcp_flags) = (value as u16, mask as u16);
            }
            "nd" => {
                let (n, v, w) = (sets::nd(item)?, &mut self.key.ipv6, &mut self.mask.ipv6);
                (v.nd_target, v.nd_sll, v.nd_tll) = (n.value.target, n.value.sll, n.value.tll);
                (w.nd_target, w.nd_sll, w.nd_tll) = (n.mask.target, n.mask.sll, n.mask.tll);
            }
            "nd_ext" => {
                let n = sets::nd_ext(item)?;
                (self.key.arp.igmp_group, self.mask.arp.igmp_group) = (n.value.reserved, n.mask.reserved);
                (b.tcp_flags, m.tcp_flags) = (n.value.options_type, n.mask.options_type);
            }
            _ => return Err(item.unknown("flow key")),
        }
        Ok(())
    }

    fn vlan(&mut self, item: &Item<'_>) -> Result<(), TextError> {
        let (mut tci, mut mask) = (VlanTag::PRESENT, VlanTag::PRESENT);
        for field in item.args()? {
            let (bits, shift) = match field.name {
                "vid" => (0xfff, 0),
                "pcp" => (7, 13),
                "cfi" => (1, 12),
                _ => return Err(field.unknown(item.name)),
            };
            let (value, of) = masked(field.value()?, bits)?;
            tci = tci & !((bits as u16) << shift) | (value as u16) << shift;
            mask = mask & !((bits as u16) << shift) | (of as u16) << shift;
        }
        if tci & VlanTag::PRESENT == 0 {
            return Err(TextError("vlan: cfi=0 would mean that there is no tag".into()));
        }
        // The last EtherType read is the tag's.
        let tpid = self.key.base.dl_type;
        match self.tags {
            0 => {
                (self.key.base.vlan_tpid, self.key.base.vlan_tci) = (tpid, tci);
                (self.mask.base.vlan_tpid, self.mask.base.vlan_tci) = (0xffff, mask);
            }
            1 => {
                self.key.arp.vlan1 = VlanTag { tpid, tci };
                self.mask.arp.vlan1 = VlanTag { tpid: 0xffff, tci: mask };
            }
            _ => return Err(TextError("more than two VLAN tags".into())),
        }
        self.tags += 1;
        self.has_type = false;
        Ok(())
    }

    fn ipv4(&mut self, item: &Item<'_>) -> Result<(), TextError> {
        let (b, m) = (&mut self.key.base, &mut self.mask.base);
        let (mut proto, mut frag) = ((b.nw_proto, 0), (b.nw_frag, 0));
        let ip = sets::ipv4_header(item, &mut |f| proto_or_frag(f, &mut proto, &mut frag))?;
        (b.nw_src, b.nw_dst, b.nw_tos, b.nw_ttl) = (ip.value.src, ip.value.dst, ip.value.tos, ip.value.ttl);
        (m.nw_src, m.nw_dst, m.nw_tos, m.nw_ttl) = (ip.mask.src, ip.mask.dst, ip.mask.tos, ip.mask.ttl);
        (b.nw_proto, m.nw_proto) = proto;
        (b.nw_frag, m.nw_frag) = frag;
        Ok(())
    }

    fn ipv6(&mut self, item: &Item<'_>) -> Result<(), TextError> {
        let (b, m) = (&mut self.key.base, &mut self.mask.base);
        let (mut proto, mut frag) = ((b.nw_proto, 0), (b.nw_frag, 0));
        let ip = sets::ipv6_header(item, &mut |f| proto_or_frag(f, &mut proto, &mut frag))?;
        let (v, w) = (&mut self.key.ipv6, &mut self.mask.ipv6);
        (v.src, v.dst, v.label) = (ip.value.src, ip.value.dst, ip.value.label);
        (w.src, w.dst, w.label) = (ip.mask.src, ip.mask.dst, ip.mask.label);
        (b.nw_tos, b.nw_ttl, m.nw_tos, m.nw_ttl) =
            (ip.value.tclass, ip.value.hlimit, ip.mask.tclass, ip.mask.hlimit);
        (b.nw_proto, m.nw_proto) = proto;
        (b.nw_frag, m.nw_frag) = frag;
        Ok(())
    }

    fn mpls(&mut self, item: &Item<'_>) -> Result<(), TextError> {
        let (mut at, mut started) = (0, false);
        for field in item.args()? {
            let (shift, full) = sets::mpls_part(field.name).ok_or_else(|| field.unknown(item.name))?;
            if field.name == "label" {
                at += usize::from(started);
                started = true;
            }
            let (value, mask) = masked(field.value()?, full.into())?;
            if at >= flow::extract::MAX_MPLS_LABELS {
                return Err(TextError(format!("mpls: more than {} labels", flow::extract::MAX_MPLS_LABELS)));
            }
            self.key.arp.mpls_lse[at] |= (value as u32) << shift;
            self.mask.arp.mpls_lse[at] |= (mask as u32) << shift;
        }
        Ok(())
    }
}

/// IP header fields absent from set actions.
fn proto_or_frag(field: &Item<'_>, proto: &mut (u8, u8), frag: &mut (u8, u8)) -> Result<bool, TextError> {
    match field.name {
        "proto" => {
            let (value, mask) = masked(field.value()?, 0xff)?;
            *proto = (value as u8, mask as u8);
        }
        "frag" => {
            let (name, mask) = super::values::split(field.value()?);
            let value = match name {
                "no" => 0,
                "first" => nw_frag::ANY,
                "later" => nw_frag::MASK,
                _ => return Err(TextError(format!("frag: {name:?} is not no, first or later"))),
            };
            *frag = (value, mask.map_or(Ok(nw_frag::MASK.into()), |m| number(m, 3))? as u8);
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// A port by number or name.
pub(crate) fn port(text: &str, names: &dyn PortNames) -> Result<u32, TextError> {
    let by_name = || names.number(text).map(|p| p.0);
    let by_number = || number(text, u32::MAX.into()).map(|n| n as u32);
    by_number().or_else(|e| by_name().ok_or(TextError(format!("no port {text:?} ({e})"))))
}
