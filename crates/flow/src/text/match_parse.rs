//! Parses matches (`tcp,reg1=0x5,nw_src=10.0.0.0/8`) and packets (the same without masks).

use super::names::field_by_name;
use super::normalize::{Layers, needs};
use super::number::parse_u128;
use super::port::PortNames;
use super::subfield::sub_field;
use super::token::{Attached, Token, Tokens};
use super::values::{masked_value, metadata_value};
use super::{Fail, ParseError, Parsed, fail};
use crate::fields::{FieldId, Prereq};
use crate::flow::{Flow, Mask, VlanTag};
use crate::matching::Match;
use crate::{OfPort, Protocols, SubField, TlvTable, Wide};
use packet::headers as h;

/// Short names with their EtherType and IP protocol.
const PROTOCOLS: [(&str, u16, Option<u8>); 17] = [
    ("ip", h::ETH_TYPE_IP, None),
    ("ipv4", h::ETH_TYPE_IP, None),
    ("ip4", h::ETH_TYPE_IP, None),
    ("arp", h::ETH_TYPE_ARP, None),
    ("icmp", h::ETH_TYPE_IP, Some(h::IPPROTO_ICMP)),
    ("tcp", h::ETH_TYPE_IP, Some(h::IPPROTO_TCP)),
    ("udp", h::ETH_TYPE_IP, Some(h::IPPROTO_UDP)),
    ("sctp", h::ETH_TYPE_IP, Some(h::IPPROTO_SCTP)),
    ("ipv6", h::ETH_TYPE_IPV6, None),
    ("ip6", h::ETH_TYPE_IPV6, None),
    ("icmp6", h::ETH_TYPE_IPV6, Some(h::IPPROTO_ICMPV6)),
    ("tcp6", h::ETH_TYPE_IPV6, Some(h::IPPROTO_TCP)),
    ("udp6", h::ETH_TYPE_IPV6, Some(h::IPPROTO_UDP)),
    ("sctp6", h::ETH_TYPE_IPV6, Some(h::IPPROTO_SCTP)),
    ("rarp", h::ETH_TYPE_RARP, None),
    ("mpls", h::ETH_TYPE_MPLS, None),
    ("mplsm", h::ETH_TYPE_MPLS_MCAST, None),
];

/// The short names of protocols.
pub const PROTOCOL_NAMES: [&str; PROTOCOLS.len()] = {
    let mut names = [""; PROTOCOLS.len()];
    let mut i = 0;
    while i < names.len() {
        names[i] = PROTOCOLS[i].0;
        i += 1;
    }
    names
};

/// Parses a match and checks that each field's prerequisites are matched too.
///
/// # Errors
/// For an unknown key, a bad value or mask, or a field whose prerequisites are missing.
pub fn parse_match(text: &str, ports: &dyn PortNames) -> Result<Match, ParseError> {
    builder(text, ports).and_then(|b| b.checked()).map_err(|f: Fail| f.locate(text))
}

/// Parses a match without checking prerequisites; see [`super::normalize`].
///
/// # Errors
/// For an unknown key, a bad value or mask.
pub fn parse_match_unchecked(text: &str, ports: &dyn PortNames) -> Result<Match, ParseError> {
    builder(text, ports).map(|b| b.unchecked()).map_err(|f: Fail| f.locate(text))
}

fn builder<'a>(text: &'a str, ports: &dyn PortNames) -> Parsed<MatchBuilder<'a>> {
    let mut builder = MatchBuilder::default();
    let mut tokens = Tokens::new(text);
    while let Some(token) = tokens.next_token()? {
        if !builder.add(&token, ports)? {
            return unknown_keyword(&token);
        }
    }
    Ok(builder)
}

/// Rejects an unknown key.
///
/// # Errors
/// Always.
pub fn unknown_keyword<T>(token: &Token<'_>) -> Parsed<T> {
    if token.has_value() {
        fail(token.key, format!("unknown keyword {}", token.key))
    } else {
        fail(token.key, format!("field {} missing value", token.key))
    }
}

/// A match under construction.
pub struct MatchBuilder<'a> {
    flow: Flow,
    mask: Flow,
    given: Vec<(&'a str, FieldId)>,
    /// Formats that carry all of it.
    protocols: Protocols,
}

impl Default for MatchBuilder<'_> {
    fn default() -> Self {
        let (flow, mask) = Default::default();
        MatchBuilder { flow, mask, given: Vec::new(), protocols: Protocols::ANY }
    }
}

impl<'a> MatchBuilder<'a> {
    /// Consumes a token of a match; returns whether it is one.
    pub fn add(&mut self, token: &Token<'a>, ports: &dyn PortNames) -> Parsed<bool> {
        let key = token.key;
        if !token.has_value() {
            return Ok(self.add_protocol(key) || self.add_presence(key, ports)?);
        }
        // `in_port(1)` is `in_port=1`.
        let parens = token.attached == Attached::Parens;
        if matches!(token.attached, Attached::ParensArrow(_)) || parens && field_by_name(key).is_none() {
            return Ok(false);
        }
        if key.contains('[') {
            self.add_bits(token, ports)?;
            return Ok(true);
        }
        let Some(field) = field_by_name(key) else { return Ok(false) };
        self.given.push((key, field));
        self.add_field(field, token.value, ports)?;
        Ok(true)
    }

    /// Tunnel metadata of a packet, ignored without a mapping.
    fn add_exact_metadata(
        &mut self,
        field: FieldId,
        text: &str,
        tlv: &TlvTable,
        bad: impl Fn(&str) -> Parsed<()>,
    ) -> Parsed<()> {
        if tlv.bits_of(field) == 0 {
            return Ok(());
        }
        match metadata_value(field, text, tlv) {
            Ok((_, mask)) if mask != Wide::ones(tlv.bits_of(field).into()) => {
                bad(&format!("{text}: wildcards not allowed here"))
            }
            Ok((value, _)) => {
                tlv.write(field, &mut self.flow, value);
                Ok(())
            }
            Err(why) => bad(&why.message),
        }
    }

    fn add_protocol(&mut self, name: &str) -> bool {
        if name == "eth" {
            self.put(FieldId::PacketType, 0, FieldId::PacketType.full_mask());
            return true;
        }
        let Some((_, dl_type, proto)) = PROTOCOLS.iter().find(|(n, ..)| *n == name) else { return false };
        self.put(FieldId::EthType, (*dl_type).into(), 0xffff);
        if let Some(proto) = proto {
            self.put(FieldId::NwProto, (*proto).into(), 0xff);
        }
        true
    }

    fn put(&mut self, field: FieldId, value: u128, mask: u128) {
        field.set(&mut self.flow, value);
        field.set_mask(&mut self.mask, mask);
    }

    fn add_field(&mut self, field: FieldId, text: &str, ports: &dyn PortNames) -> Parsed<()> {
        let no_vlan = |s: &str| parse_u128(s) == Ok(0xffff);
        if field == FieldId::DlVlan && no_vlan(text.split_once('/').map_or(text, |(value, _)| value)) {
            self.flow.vlans[0].tci = 0;
            self.mask.vlans[0].tci = u16::MAX;
            return Ok(());
        }
        if field.metadata_index().is_some() {
            let (value, mask) = metadata_value(field, text, ports.tlv())?;
            ports.tlv().write(field, &mut self.flow, value);
            ports.tlv().write(field, &mut self.mask, mask);
            self.protocols &= field.protocols();
            return Ok(());
        }
        let (value, mask) = masked_value(field, text, ports)?;
        self.protocols &= field.masked_protocols(mask);
        match field {
            FieldId::DlVlan | FieldId::DlVlanPcp | FieldId::VlanPcp => {
                let shift = if field == FieldId::DlVlan { 0 } else { 13 };
                let bits = (mask as u16) << shift;
                let present = if bits == 0 { 0 } else { VlanTag::PRESENT };
                let field_bits = (field.full_mask() as u16) << shift;
                let (tci, tci_mask) = (&mut self.flow.vlans[0].tci, &mut self.mask.vlans[0].tci);
                *tci = *tci & !field_bits | (value as u16) << shift | present;
                *tci_mask = *tci_mask & !field_bits | bits | present;
            }
            _ => self.put(field, value, mask),
        }
        Ok(())
    }

    /// `FIELD[BITS]=NUMBER`, added to the field's previous bits.
    fn add_bits(&mut self, token: &Token<'a>, ports: &dyn PortNames) -> Parsed<()> {
        let (key, text) = (token.key, token.value);
        let sub = sub_field(key, ports)?;
        let def = sub.field.def();
        if def.nxm.is_none() && def.oxm.is_none() {
            return fail(key, format!("{key}: bits of {} cannot be matched, only the whole field", def.name));
        }
        if sub.field.metadata_index().is_some() {
            return self.add_metadata_bits(token, sub, ports.tlv());
        }
        let Ok(value) = parse_u128(text) else {
            return fail(text, format!("{key}: cannot parse integer value: {text}"));
        };
        if sub.len_bits < 128 && value >> sub.len_bits != 0 {
            return fail(text, format!("{key}: value {value:#x} does not fit into {} bits", sub.len_bits));
        }
        if !def.maskable && sub.field_mask() != sub.field.full_mask() {
            return fail(key, format!("{key}: invalid mask for field {}", def.name));
        }
        self.protocols &= sub.field.masked_protocols(sub.field_mask());
        sub.set(&mut self.flow, value);
        sub.add_mask(&mut self.mask);
        self.given.push((key, sub.field));
        Ok(())
    }

    /// [`MatchBuilder::add_bits`] of tunnel metadata.
    fn add_metadata_bits(&mut self, token: &Token<'a>, sub: SubField, tlv: &TlvTable) -> Parsed<()> {
        let (key, text) = (token.key, token.value);
        let value = match Wide::parse(text) {
            Ok(value) if value.bits() <= sub.len_bits.into() => value,
            Ok(value) => {
                let bits = sub.len_bits;
                return fail(text, format!("{key}: value {} does not fit into {bits} bits", value.hex()));
            }
            Err(_) => return fail(text, format!("{key}: cannot parse integer value: {text}")),
        };
        self.protocols &= sub.field.protocols();
        sub.set_wide(tlv, &mut self.flow, value);
        sub.add_wide_mask(tlv, &mut self.mask);
        Ok(())
    }

    /// The name of tunnel metadata without a value: it must be present.
    fn add_presence(&mut self, name: &str, ports: &dyn PortNames) -> Parsed<bool> {
        let Some(field) = field_by_name(name).filter(|f| f.metadata_index().is_some()) else {
            return Ok(false);
        };
        metadata_value(field, "0/0", ports.tlv())?;
        self.protocols &= field.protocols();
        ports.tlv().write(field, &mut self.flow, Wide::default());
        ports.tlv().write(field, &mut self.mask, Wide::default());
        Ok(true)
    }

    /// The match as written.
    pub(crate) fn unchecked(&self) -> Match {
        Match::new(&self.flow, &Mask(self.mask))
    }

    /// The formats that carry the match. The fixed structures lack the fields of IPv6 above its header.
    pub fn protocols(&self) -> Protocols {
        let mask = &self.mask;
        let above = u16::from(mask.nw_proto) | u16::from(mask.nw_tos) | mask.tp_src | mask.tp_dst;
        let ip6 = self.flow.dl_type == h::ETH_TYPE_IPV6 && above != 0;
        if ip6 { self.protocols & Protocols::NXM_OXM } else { self.protocols }
    }

    /// The match, if all prerequisites are present.
    ///
    /// # Errors
    /// Names the field and its missing prerequisite.
    pub fn checked(&self) -> Parsed<Match> {
        let written = self.unchecked();
        let (masked, layers) = (written.flow(), Layers::of(&written));
        for (key, field) in &self.given {
            if field.get(&self.mask) != 0 && !layers.allow(*field) {
                let needs = needs(*field);
                return fail(key, format!("prerequisites not met for setting {key}: it needs {needs}"));
            }
        }
        if layers.icmp && (masked.tp_src > 0xff || masked.tp_dst > 0xff) {
            let at = self.given.iter().find(|(k, _)| k.starts_with("tp_")).map_or("", |(k, _)| k);
            return fail(at, "ICMP type and code must be below 256");
        }
        let mask = &written.mask().0;
        if layers.icmp && [mask.tp_src, mask.tp_dst].iter().any(|m| !matches!(m & 0xff, 0 | 0xff)) {
            let at = self.given.iter().find(|(k, _)| k.starts_with("tp_")).map_or("", |(k, _)| k);
            return fail(at, "ICMP type and code take no mask");
        }
        Ok(super::normalize(&written))
    }
}

/// Parses one packet's fields, in the syntax of `ofproto/trace`: no masks, no repetition, prerequisites
/// before dependent fields. Without `in_port` the packet has no input port.
///
/// # Errors
/// For an unknown field, a bad value, a mask, a repetition, or missing prerequisites.
pub fn parse_exact_flow(text: &str, ports: &dyn PortNames) -> Result<Flow, ParseError> {
    let builder = exact_builder(text, ports).map_err(|f: Fail| f.locate(text))?;
    let mut flow = builder.flow;
    for tag in flow.vlans.iter_mut().filter(|tag| tag.is_present() && tag.tpid == 0) {
        tag.tpid = h::ETH_TYPE_VLAN;
    }
    Ok(flow)
}

/// Parses the match of packets with these fields, in the syntax of [`parse_exact_flow`].
///
/// # Errors
/// As [`parse_exact_flow`].
pub fn parse_exact_match(text: &str, ports: &dyn PortNames) -> Result<Match, ParseError> {
    let builder = exact_builder(text, ports).map_err(|f: Fail| f.locate(text))?;
    Ok(Match::new(&builder.flow, &Mask(builder.mask)))
}

fn exact_builder<'a>(text: &'a str, ports: &dyn PortNames) -> Parsed<MatchBuilder<'a>> {
    let mut builder =
        MatchBuilder { flow: Flow { in_port: OfPort::NONE.0, ..Flow::default() }, ..Default::default() };
    let mut tokens = Tokens::new(text);
    while let Some(token) = tokens.next_token()? {
        let key = token.key;
        if !token.has_value() && builder.add_protocol(key) {
            continue;
        }
        let field = field_by_name(key).filter(|_| token.attached == Attached::Equals);
        let Some(field) = field.map(|f| for_protocol(f, key, &builder.flow)) else {
            return fail(key, format!("unknown field {key}"));
        };
        if builder.given.iter().any(|(_, f)| *f == field) {
            return fail(key, format!("field {key} set multiple times"));
        }
        if !holds(field, &builder.flow) {
            return fail(key, format!("prerequisites not met for setting {key}"));
        }
        let bad = |why: &str| -> Parsed<()> { fail(token.value, format!("bad value for {key} ({why})")) };
        if field.metadata_index().is_some() {
            builder.add_exact_metadata(field, token.value, ports.tlv(), bad)?;
            builder.given.push((key, field));
            continue;
        }
        match masked_value(field, token.value, ports) {
            Ok((_, mask)) if mask != field.full_mask() => {
                bad(&format!("{}: wildcards not allowed here", token.value))?;
            }
            Ok(_) => builder.add_field(field, token.value, ports)?,
            Err(_) if field == FieldId::DlVlan => builder.add_field(field, token.value, ports)?,
            Err(why) => bad(&why.message)?,
        }
        builder.given.push((key, field));
    }
    Ok(builder)
}

/// Whether the packet has the field; without an Ethernet header the packet type decides.
fn holds(field: FieldId, flow: &Flow) -> bool {
    let mut typed = *flow;
    typed.dl_type = flow.effective_type();
    match field.def().prereq {
        Prereq::Connection => flow.is_in_connection(),
        _ => field.prereq_holds(&typed, None),
    }
}

/// For a name common to several protocols, the field for this packet.
fn for_protocol(field: FieldId, key: &str, flow: &Flow) -> FieldId {
    let proto = flow.nw_proto;
    match key {
        "tp_src" if proto == h::IPPROTO_UDP => FieldId::UdpSrc,
        "tp_dst" if proto == h::IPPROTO_UDP => FieldId::UdpDst,
        "tp_src" if proto == h::IPPROTO_SCTP => FieldId::SctpSrc,
        "tp_dst" if proto == h::IPPROTO_SCTP => FieldId::SctpDst,
        "icmp_type" if proto == h::IPPROTO_ICMPV6 => FieldId::Icmpv6Type,
        "icmp_code" if proto == h::IPPROTO_ICMPV6 => FieldId::Icmpv6Code,
        _ => field,
    }
}
