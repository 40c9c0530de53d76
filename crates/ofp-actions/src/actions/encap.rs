//! `encap`: pushes a header before all headers of the packet.

use super::prelude::*;
use flow::text::number::{parse_u128, u8_named};
use flow::text::token::{Token, Tokens};
use packet::headers as h;

/// Pushes a header before all headers of the packet, which has its packet type from then on (`NXAST_ENCAP`).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Encap {
    /// The header.
    pub header: EncapHeader,
    /// Its length in bytes by the sender, without effect.
    pub header_bytes: u16,
    /// Its properties; those of other headers have no effect.
    pub properties: Vec<EncapProperty>,
}

/// A header that can be pushed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EncapHeader {
    /// Ethernet, onto a packet without it.
    Ethernet,
    /// A network service header (RFC 8300).
    Nsh,
    /// An MPLS label stack entry.
    Mpls,
    /// One for multicast.
    MplsMcast,
}

/// A property of a network service header.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum EncapProperty {
    /// Its metadata type: 1 or 2.
    MdType(u8),
    /// A context header of metadata type 2.
    Tlv {
        /// Class.
        class: u16,
        /// Type.
        kind: u8,
        /// Content, up to 255 bytes.
        data: Vec<u8>,
    },
}

/// `NXAST_ENCAP`.
const NXAST: u16 = 46;
/// Class of properties of a network service header.
const CLASS_NSH: u16 = 4;
/// Its metadata type.
const MD_TYPE: u8 = 1;
/// A context header.
const TLV: u8 = 2;
/// Bytes of a property before its padding to 8: class, type, length and an integer.
const PROPERTY_BYTES: usize = 8;
/// Maximum content of a context header whose property's length, in 8 bits and rounded up, holds it.
const TLV_BYTES_MAX: usize = 240;

impl EncapHeader {
    const ALL: [EncapHeader; 4] =
        [EncapHeader::Ethernet, EncapHeader::Nsh, EncapHeader::Mpls, EncapHeader::MplsMcast];

    /// Its packet type.
    pub fn packet_type(self) -> u32 {
        let ethertype = |ethertype: u16| 1 << 16 | u32::from(ethertype);
        match self {
            EncapHeader::Ethernet => 0,
            EncapHeader::Nsh => ethertype(h::ETH_TYPE_NSH),
            EncapHeader::Mpls => ethertype(h::ETH_TYPE_MPLS),
            EncapHeader::MplsMcast => ethertype(h::ETH_TYPE_MPLS_MCAST),
        }
    }

    fn name(self) -> &'static str {
        match self {
            EncapHeader::Ethernet => "ethernet",
            EncapHeader::Nsh => "nsh",
            EncapHeader::Mpls => "mpls",
            EncapHeader::MplsMcast => "mpls_mc",
        }
    }
}

impl EncapProperty {
    fn read(r: &mut Reader<'_>) -> Res<EncapProperty> {
        let mut property = r.clone();
        let (class, kind, len) = (property.u16()?, property.u8()?, usize::from(property.u8()?));
        if len < 4 {
            return Err(ErrorKind::BacBadLen);
        }
        let mut body = r.sub(len.next_multiple_of(8))?.or(ErrorKind::BacBadLen);
        body.skip(4)?;
        match (class, kind) {
            (CLASS_NSH, MD_TYPE) => match body.u8()? {
                // OVS accepts any type, and pushes a header without a valid one.
                md_type @ (h::NSH_MD_TYPE1 | h::NSH_MD_TYPE2) => Ok(EncapProperty::MdType(md_type)),
                _ => Err(ErrorKind::NxbacBadEdProp),
            },
            (CLASS_NSH, TLV) => {
                let (class, kind, bytes) = (body.u16()?, body.u8()?, usize::from(body.u8()?));
                if len != PROPERTY_BYTES + bytes.next_multiple_of(8) {
                    return Err(ErrorKind::NxbacBadEdProp);
                }
                Ok(EncapProperty::Tlv { class, kind, data: body.bytes(bytes)?.to_vec() })
            }
            _ => Err(ErrorKind::NxbacUnknownEdProp),
        }
    }

    fn put(&self, w: &mut Writer) {
        w.u16(CLASS_NSH);
        match self {
            EncapProperty::MdType(md_type) => {
                // Its length excludes the padding, as in OVS.
                w.bytes(&[MD_TYPE, 5, *md_type, 0, 0, 0]);
            }
            EncapProperty::Tlv { class, kind, data } => {
                let padded = data.len().next_multiple_of(8);
                w.bytes(&[TLV, (PROPERTY_BYTES + padded) as u8]);
                w.u16(*class);
                w.bytes(&[*kind, data.len() as u8]);
                w.bytes(data);
                w.zeros(padded - data.len());
            }
        }
    }

    fn parse(token: &Token<'_>) -> Parsed<EncapProperty> {
        match token.key {
            "md_type" => match u8_named(token.value, "md_type")? {
                md_type @ (h::NSH_MD_TYPE1 | h::NSH_MD_TYPE2) => Ok(EncapProperty::MdType(md_type)),
                _ => fail(token.value, "invalid md_type"),
            },
            "tlv" => match tlv(token.value) {
                Some(property) => Ok(property),
                None => fail(token.value, format!("Invalid NSH TLV header: {}", token.value)),
            },
            key => fail(key, format!("Invalid property: {key}")),
        }
    }

    fn format(&self) -> String {
        match self {
            EncapProperty::MdType(md_type) => format!("md_type={md_type}"),
            EncapProperty::Tlv { class, kind, data } if data.is_empty() => {
                format!("tlv(0x{class:04x},{kind},0)")
            }
            EncapProperty::Tlv { class, kind, data } => {
                let digits: String = data.iter().map(|byte| format!("{byte:02x}")).collect();
                format!("tlv(0x{class:04x},{kind},0x{digits})")
            }
        }
    }
}

/// `CLASS,TYPE,0xBYTES`; content of no byte is 0.
fn tlv(text: &str) -> Option<EncapProperty> {
    let mut parts = text.split(',');
    let (class, kind, content) = (parts.next()?, parts.next()?, parts.next()?);
    let class = parse_u128(class).ok().and_then(|n| u16::try_from(n).ok())?;
    let kind = parse_u128(kind).ok().and_then(|n| u8::try_from(n).ok())?;
    let digits = if content == "0" { "" } else { content.strip_prefix("0x").filter(|d| !d.is_empty())? };
    if parts.next().is_some()
        || digits.len() % 2 != 0
        || digits.len() > 2 * TLV_BYTES_MAX
        || !digits.is_ascii()
    {
        return None;
    }
    let pairs = (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok());
    Some(EncapProperty::Tlv { class, kind, data: pairs.collect::<Option<_>>()? })
}

fn read(r: &mut Reader<'_>) -> Res<Action> {
    let (header_bytes, packet_type) = (r.u16()?, r.u32()?);
    let header = EncapHeader::ALL.into_iter().find(|header| header.packet_type() == packet_type);
    let header = header.ok_or(ErrorKind::NxbacBadHeaderType)?;
    let mut properties = Vec::new();
    while !r.is_empty() {
        properties.push(EncapProperty::read(r)?);
    }
    Ok(Encap { header, header_bytes, properties }.into())
}

impl OfAction for Encap {
    const NAMES: &'static [&'static str] = &["encap"];
    const ROWS: &'static [Row] = &[nx(NXAST, Len::Min(16), read).within(Version::V13, Version::V15)];
    const STAGE: Stage = Stage::Apply;
    const REVERSIBLE: bool = false;

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        nicira(w, NXAST, |w| {
            w.u16(self.header_bytes);
            w.u32(self.header.packet_type());
            self.properties.iter().for_each(|property| property.put(w));
        });
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        let arg = text.value();
        let mut tokens = Tokens::new(arg);
        let Some(named) = tokens.next_token()? else {
            return fail(arg, format!("Missing encap hdr: {arg}"));
        };
        let Some(header) = EncapHeader::ALL.into_iter().find(|header| header.name() == named.key) else {
            return fail(arg, format!("Encap hdr not supported: {}", named.key));
        };
        if let Some(next) = tokens.next_token()? {
            return fail(next.key, format!("encap: only one header is expected before {}", next.key));
        }
        let mut properties = Vec::new();
        let mut tokens = Tokens::new(named.value);
        while let Some(token) = tokens.next_token()? {
            properties.push(EncapProperty::parse(&token)?);
        }
        out.push(Encap { header, header_bytes: 0, properties }.into());
        Ok(())
    }

    fn format(&self, _ports: &dyn PortNames) -> String {
        let properties: Vec<String> = self.properties.iter().map(EncapProperty::format).collect();
        match properties.as_slice() {
            [] => format!("encap({})", self.header.name()),
            all => format!("encap({}({}))", self.header.name(), all.join(",")),
        }
    }

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        become_type(&mut checker.flow, self.header.packet_type());
        Ok(())
    }

    fn check_text(&self, checker: &mut TextChecker) -> Result<(), String> {
        become_type(&mut checker.flow, self.header.packet_type());
        (checker.mask.packet_type, checker.mask.nw_proto) = (u32::MAX, u8::MAX);
        if self.header != EncapHeader::Ethernet {
            checker.mask.dl_type = u16::MAX;
        }
        Ok(())
    }

    fn protocols(&self) -> Protocols {
        Protocols::OF13_UP
    }

    fn set_place(&self) -> SetPlace {
        SetPlace::Before(23)
    }

    fn references(&self, _visit: &mut dyn FnMut(Reference)) {}

    fn translate<X: Translator>(&self, x: &mut X) {
        x.encap(self);
    }
}

/// The packets have this type from here on. Properties of the headers within are unknown behind another one.
fn become_type(flow: &mut flow::Flow, packet_type: u32) {
    flow.packet_type = packet_type;
    if packet_type != 0 {
        flow.dl_type = packet_type as u16;
    }
    if !flow.is_ip() {
        flow.nw_proto = 0;
    }
}
