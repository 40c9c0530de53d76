//! Parses keys and masks from the kernel datapath.
//!
//! A mask has the layout of its key: the key selects the headers. The kernel reports the masked key of a
//! flow; if the field that announces a header is not matched, both lack the header.

use super::mask::of_blocks;
use super::nsh::parse_nsh;
use super::tunnel::{parse_tunnel, parse_tunnel_mask};
use super::{Fitness, LABELS_MAX, Payload, Transport, attr, is_tag, tags};
use crate::flow::{VlanTag, nw_frag};
use crate::key::{FlowKey, KeyMask};
use crate::nlattr::{Attr, AttrError, Attrs};
use packet::headers as h;

/// Maximum number of tags in our key.
const TAGS_MAX: usize = 2;
/// Namespace of packet types for EtherTypes.
const PACKET_TYPE_ETHERTYPE: u32 = 1 << 16;

/// Converts a kernel key to ours. Parses at most `vlan_limit` (0 to 2) VLAN tags; the EtherType after them
/// may be that of a further tag, as in [`crate::extract::extract`].
///
/// # Errors
/// The bytes are not a key. Unknown attributes are no error but [`Fitness::TooMuch`].
pub fn parse_key(bytes: &[u8], vlan_limit: u8) -> Result<(FlowKey, Fitness), AttrError> {
    let mut reader = Reader::new(None, vlan_limit);
    reader.all(Attrs::parse(bytes)?)?;
    reader.out.set_shape();
    Ok((reader.out, reader.fitness))
}

/// Converts the mask of `key`, which was parsed with the same limit.
///
/// # Errors
/// The bytes are not a mask.
pub fn parse_mask(bytes: &[u8], key: &FlowKey, vlan_limit: u8) -> Result<(KeyMask, Fitness), AttrError> {
    let mut reader = Reader::new(Some(key), vlan_limit);
    reader.all(Attrs::parse(bytes)?)?;
    reader.out.arp.packet_type = u32::MAX;
    let mut mask = of_blocks(key, &reader.out);
    mask.base.shape = u16::MAX;
    Ok((mask, reader.fitness))
}

struct Reader<'a> {
    /// The key of this mask; `None` while parsing a key.
    key: Option<&'a FlowKey>,
    vlan_limit: usize,
    out: FlowKey,
    fitness: Fitness,
}

impl Reader<'_> {
    fn new(key: Option<&FlowKey>, vlan_limit: u8) -> Reader<'_> {
        let vlan_limit = usize::from(vlan_limit).min(TAGS_MAX);
        Reader { key, vlan_limit, out: FlowKey::default(), fitness: Fitness::Perfect }
    }

    /// The key that selects the attributes.
    fn layout(&self) -> &FlowKey {
        self.key.unwrap_or(&self.out)
    }

    fn degrade_fitness(&mut self, fitness: Fitness) {
        self.fitness = self.fitness.max(fitness);
    }

    fn all(&mut self, attrs: Attrs<'_>) -> Result<(), AttrError> {
        self.out.base.in_port = if self.key.is_some() { 0 } else { u32::MAX };
        if self.key.is_none() && attrs.get(attr::ETHERNET).is_none() {
            // A packet without an Ethernet header has no tag either.
            if attrs.get(attr::VLAN).is_some() {
                return Err(AttrError::Value(attr::VLAN));
            }
            let ethertype = attrs.require(attr::ETHERTYPE)?.be16()?;
            self.out.arp.packet_type = PACKET_TYPE_ETHERTYPE | u32::from(ethertype);
        }
        self.level(attrs, 0)
    }

    /// Attributes beside the headers. The kernel accepts them within a tag, too.
    fn metadata_only(&mut self, attrs: Attrs<'_>) -> Result<(), AttrError> {
        for a in attrs {
            if !self.metadata(&a)? && !is_header(a.kind) && is_nonzero(&a) {
                self.degrade_fitness(Fitness::TooMuch);
            }
        }
        Ok(())
    }

    /// Metadata and Ethernet addresses; returns whether the attribute is one of them.
    fn metadata(&mut self, a: &Attr<'_>) -> Result<bool, AttrError> {
        let (b, c) = (&mut self.out.base, &mut self.out.ct);
        match a.kind {
            attr::PRIORITY => self.out.arp.skb_priority = a.u32()?,
            attr::IN_PORT => b.in_port = a.u32()?,
            attr::SKB_MARK => b.pkt_mark = a.u32()?,
            attr::DP_HASH => b.dp_hash = a.u32()?,
            attr::RECIRC_ID => b.recirc_id = a.u32()?,
            attr::CT_STATE => b.ct_state = a.u32()?,
            attr::CT_ZONE => b.ct_zone = a.u16()?,
            attr::CT_MARK => b.ct_mark = a.u32()?,
            attr::CT_LABELS => c.label = u128::from_ne_bytes(a.array()?).to_be_bytes(),
            attr::TUNNEL => {
                let parse = if self.key.is_some() { parse_tunnel_mask } else { parse_tunnel };
                let (outer, fitness) = parse(a.nested()?)?;
                (self.out.tunnel, self.out.options) = (outer.tunnel, outer.options);
                self.degrade_fitness(fitness);
            }
            attr::ETHERNET => {
                let [src, dst] = *a.array::<12>()?.as_chunks::<6>().0 else { unreachable!("twelve bytes") };
                (b.dl_src, b.dl_dst) = (src, dst);
            }
            attr::CT_TUPLE_IPV4 => {
                let t: [u8; 16] = a.array()?;
                (c.nw_src, c.nw_dst) = (be32(&t, 0), be32(&t, 4));
                (c.tp_src, c.tp_dst, c.nw_proto) = (be16(&t, 8), be16(&t, 10), t[12]);
            }
            attr::CT_TUPLE_IPV6 => {
                let t: [u8; 40] = a.array()?;
                (c.ipv6_src, c.ipv6_dst) = (bytes(&t, 0), bytes(&t, 16));
                (c.tp_src, c.tp_dst, c.nw_proto) = (be16(&t, 32), be16(&t, 34), t[36]);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The headers from a tag or an EtherType on, within `depth` tags.
    fn level(&mut self, attrs: Attrs<'_>, depth: usize) -> Result<(), AttrError> {
        self.metadata_only(attrs)?;
        let ethertype = attrs.get(attr::ETHERTYPE).map(|a| a.be16()).transpose()?;
        let tci = attrs.get(attr::VLAN).map(|a| a.be16()).transpose()?;
        let inner = attrs.get(attr::ENCAP).map(|a| a.nested()).transpose()?.unwrap_or_default();
        let is_tagged = match self.key {
            None => tci.is_some_and(|tci| tci & VlanTag::PRESENT != 0),
            Some(key) => tags(key).count() > depth,
        };
        // In masked keys, an unmatched type is zero.
        if self.key.is_none() && is_tagged && !ethertype.is_some_and(|t| t == 0 || is_tag(t)) {
            return Err(AttrError::Value(attr::ETHERTYPE));
        }
        if is_tagged && depth < self.vlan_limit {
            self.put_tag(depth, VlanTag { tpid: ethertype.unwrap_or(0), tci: tci.unwrap_or(0) });
            self.expect_only(attrs, &[attr::ETHERTYPE, attr::VLAN, attr::ENCAP]);
            return self.level(inner, depth + 1);
        }
        if self.key.is_some() {
            // The absence of a tag is always matched.
            (depth..TAGS_MAX).for_each(|n| self.put_tag(n, VlanTag { tpid: u16::MAX, tci: u16::MAX }));
            self.out.base.dl_type = ethertype.unwrap_or(0);
            if tci.is_some_and(|tci| tci & !VlanTag::PRESENT != 0) {
                self.degrade_fitness(Fitness::TooMuch);
            }
            self.excess_contents(inner)?;
        } else if let Some(tci) = tci {
            self.excess_contents(inner)?;
            return self.excess_tag(ethertype.unwrap_or(0), tci);
        } else {
            self.out.base.dl_type = match ethertype {
                None => h::FLOW_DL_TYPE_NONE,
                Some(t) if t >= h::ETH_TYPE_MIN || t == 0 => t,
                Some(_) => return Err(AttrError::Value(attr::ETHERTYPE)),
            };
        }
        self.payload(attrs)
    }

    /// A tag beyond the limit, or a truncated one: its type becomes the EtherType.
    fn excess_tag(&mut self, tpid: u16, tci: u16) -> Result<(), AttrError> {
        if tci & !VlanTag::PRESENT != 0 && tci & VlanTag::PRESENT == 0 {
            return Err(AttrError::Value(attr::VLAN));
        }
        if tci & !VlanTag::PRESENT != 0 {
            self.degrade_fitness(Fitness::TooMuch);
        }
        self.out.base.dl_type = match tpid {
            // The kernel omits the type of a truncated tag or one whose type is not matched.
            0 => {
                self.degrade_fitness(Fitness::TooLittle);
                h::ETH_TYPE_VLAN
            }
            t if is_tag(t) => t,
            _ => return Err(AttrError::Value(attr::ETHERTYPE)),
        };
        Ok(())
    }

    fn put_tag(&mut self, n: usize, tag: VlanTag) {
        match n {
            0 => (self.out.base.vlan_tpid, self.out.base.vlan_tci) = (tag.tpid, tag.tci),
            _ => self.out.arp.vlan1 = tag,
        }
    }

    /// The contents of a tag beyond the limit.
    fn excess_contents(&mut self, inner: Attrs<'_>) -> Result<(), AttrError> {
        self.expect_only(inner, &[]);
        self.metadata_only(inner)
    }

    /// Degrades the fitness if there are other headers.
    fn expect_only(&mut self, attrs: Attrs<'_>, kinds: &[u16]) {
        if attrs.into_iter().any(|a| is_header(a.kind) && !kinds.contains(&a.kind) && is_nonzero(&a)) {
            self.degrade_fitness(Fitness::TooMuch);
        }
    }

    fn payload(&mut self, attrs: Attrs<'_>) -> Result<(), AttrError> {
        let mut read = vec![attr::ETHERTYPE, attr::VLAN, attr::ENCAP];
        let payload = Payload::of(self.layout());
        match payload {
            Payload::Ipv4 => {
                if let Some(ip) = self.header::<12>(attrs, attr::IPV4, &mut read)? {
                    (self.out.base.nw_src, self.out.base.nw_dst) = (be32(&ip, 0), be32(&ip, 4));
                    self.internet(bytes(&ip, 8), attr::IPV4)?;
                }
            }
            Payload::Ipv6 => {
                if let Some(ip) = self.header::<40>(attrs, attr::IPV6, &mut read)? {
                    (self.out.ipv6.src, self.out.ipv6.dst) = (bytes(&ip, 0), bytes(&ip, 16));
                    self.out.ipv6.label = be32(&ip, 32);
                    self.internet(bytes(&ip, 36), attr::IPV6)?;
                }
            }
            Payload::Arp => {
                if let Some(arp) = self.header::<24>(attrs, attr::ARP, &mut read)? {
                    let (b, a) = (&mut self.out.base, &mut self.out.arp);
                    (b.nw_src, b.nw_dst) = (be32(&arp, 0), be32(&arp, 4));
                    b.nw_proto = be16(&arp, 8) as u8;
                    (a.arp_sha, a.arp_tha) = (bytes(&arp, 10), bytes(&arp, 16));
                }
            }
            Payload::Mpls => self.labels(attrs, &mut read)?,
            Payload::Nsh => self.nsh(attrs, &mut read)?,
            Payload::Other => {}
        }
        if matches!(payload, Payload::Ipv4 | Payload::Ipv6) {
            self.transport(attrs, &mut read)?;
        }
        self.expect_only(attrs, &read);
        Ok(())
    }

    /// The content of an expected header.
    fn header<const N: usize>(
        &mut self,
        attrs: Attrs<'_>,
        kind: u16,
        read: &mut Vec<u16>,
    ) -> Result<Option<[u8; N]>, AttrError> {
        read.push(kind);
        let found = attrs.get(kind).map(|a| a.array()).transpose()?;
        // Absence from a mask means not matched.
        if found.is_none() && self.key.is_none() {
            self.degrade_fitness(Fitness::TooLittle);
        }
        Ok(found)
    }

    /// Protocol, type of service, time to live, fragments.
    fn internet(&mut self, rest: [u8; 4], kind: u16) -> Result<(), AttrError> {
        let b = &mut self.out.base;
        let [proto, tos, ttl, frag] = rest;
        (b.nw_proto, b.nw_tos, b.nw_ttl) = (proto, tos, ttl);
        b.nw_frag = match (self.key, frag) {
            (_, 0) => 0,
            (Some(_), _) => nw_frag::MASK,
            (None, 1) => nw_frag::ANY,
            (None, 2) => nw_frag::ANY | nw_frag::LATER,
            (None, _) => return Err(AttrError::Value(kind)),
        };
        Ok(())
    }

    fn labels(&mut self, attrs: Attrs<'_>, read: &mut Vec<u16>) -> Result<(), AttrError> {
        read.push(attr::MPLS);
        let Some(a) = attrs.get(attr::MPLS) else {
            if self.key.is_none() {
                self.degrade_fitness(Fitness::TooLittle);
            }
            return Ok(());
        };
        let (stack, []) = a.content.as_chunks::<4>() else { return Err(AttrError::Value(attr::MPLS)) };
        for (to, lse) in self.out.arp.mpls_lse[..LABELS_MAX].iter_mut().zip(stack) {
            *to = u32::from_be_bytes(*lse);
        }
        if stack.iter().skip(LABELS_MAX).any(|lse| *lse != [0; 4]) {
            self.degrade_fitness(Fitness::TooMuch);
        }
        Ok(())
    }

    fn nsh(&mut self, attrs: Attrs<'_>, read: &mut Vec<u16>) -> Result<(), AttrError> {
        read.push(attr::NSH);
        match attrs.get(attr::NSH) {
            Some(a) => self.out.set_nsh(&parse_nsh(a.nested()?)?),
            None if self.key.is_none() => self.degrade_fitness(Fitness::TooLittle),
            None => {}
        }
        Ok(())
    }

    fn transport(&mut self, attrs: Attrs<'_>, read: &mut Vec<u16>) -> Result<(), AttrError> {
        // Without the address pair, no transport header either.
        let first = match Transport::of(self.layout()) {
            Transport::Tcp => attr::TCP,
            Transport::Udp => attr::UDP,
            Transport::Sctp => attr::SCTP,
            Transport::Icmp => return self.type_and_code(attrs, attr::ICMP, read),
            Transport::Icmpv6 { .. } => {
                self.type_and_code(attrs, attr::ICMPV6, read)?;
                return self.neighbour(attrs, read);
            }
            Transport::None => {
                self.igmp();
                return Ok(());
            }
        };
        if let Some(ports) = self.header::<4>(attrs, first, read)? {
            (self.out.base.tp_src, self.out.base.tp_dst) = (be16(&ports, 0), be16(&ports, 2));
        }
        if first == attr::TCP
            && let Some(flags) = self.header::<2>(attrs, attr::TCP_FLAGS, read)?
        {
            self.out.base.tcp_flags = be16(&flags, 0);
        }
        Ok(())
    }

    fn type_and_code(&mut self, attrs: Attrs<'_>, kind: u16, read: &mut Vec<u16>) -> Result<(), AttrError> {
        if let Some([icmp_type, code]) = self.header::<2>(attrs, kind, read)? {
            (self.out.base.tp_src, self.out.base.tp_dst) = (icmp_type.into(), code.into());
        }
        Ok(())
    }

    fn neighbour(&mut self, attrs: Attrs<'_>, read: &mut Vec<u16>) -> Result<(), AttrError> {
        // The type is parsed by now.
        if Transport::of(self.layout()) == (Transport::Icmpv6 { nd: true })
            && let Some(nd) = self.header::<28>(attrs, attr::ND, read)?
        {
            let v6 = &mut self.out.ipv6;
            (v6.nd_target, v6.nd_sll, v6.nd_tll) = (bytes(&nd, 0), bytes(&nd, 16), bytes(&nd, 22));
        }
        Ok(())
    }

    /// The kernel's keys lack IGMP, ours have it.
    fn igmp(&mut self) {
        let b = &self.out.base;
        let is_first = b.nw_frag & nw_frag::LATER == 0;
        if self.key.is_none() && b.dl_type == h::ETH_TYPE_IP && b.nw_proto == h::IPPROTO_IGMP && is_first {
            self.degrade_fitness(Fitness::TooLittle);
        }
    }
}

/// Header attributes: in the key itself or within a tag.
fn is_header(kind: u16) -> bool {
    let transport = attr::TCP..=attr::ND;
    let others = [
        attr::ENCAP,
        attr::VLAN,
        attr::ETHERTYPE,
        attr::IPV4,
        attr::IPV6,
        attr::SCTP,
        attr::TCP_FLAGS,
        attr::MPLS,
        attr::NSH,
    ];
    transport.contains(&kind) || others.contains(&kind)
}

/// Whether an attribute without a place in our key has a non-zero value.
fn is_nonzero(a: &Attr<'_>) -> bool {
    let is_nested = a.marked_nested || matches!(a.kind, attr::ENCAP | attr::TUNNEL | attr::NSH);
    match a.nested() {
        // Within a tunnel, attributes have other numbers, but zeros nest nothing.
        Ok(inner) if is_nested => inner.into_iter().any(|a| a.content.iter().any(|b| *b != 0)),
        _ => a.content.iter().any(|b| *b != 0),
    }
}

fn be16<const N: usize>(b: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes(bytes(b, at))
}

fn be32<const N: usize>(b: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes(bytes(b, at))
}

/// `M` bytes of a structure at offset `at`, which lie within it.
fn bytes<const N: usize, const M: usize>(b: &[u8; N], at: usize) -> [u8; M] {
    std::array::from_fn(|i| b[at + i])
}
