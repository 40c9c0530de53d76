//! `tnl_push`: prepends the outer headers of a tunnel.

use super::prelude::*;
use super::tnl_header::{
    ERSPAN_SESSION, Encap, GRE_HAS_CSUM, GRE_HAS_KEY, GRE_HAS_SEQ, OuterFields, OuterIp, OuterUdp,
    SRV6_SEGMENTS_MAX, TnlHeader,
};
use crate::text::key_parse::port;
use crate::text::options;
use crate::text::values::{ipv4, ipv6, mac, number};
use crate::text::write::hex;
use flow::{DpPort, Erspan, MacAddr};
use packet::headers as h;
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// Prepends outer headers. The packet comes from [`TnlPush::out_port`] afterwards, with no other metadata.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TnlPush {
    /// The tunnel port.
    pub tnl_port: DpPort,
    /// The port of the device to which the route leads.
    pub out_port: DpPort,
    /// The headers.
    pub header: Arc<TnlHeader>,
}

impl Action for TnlPush {
    const WORDS: &'static [Word] = &[call("tnl_push")];
    const ATTRS: &'static [u16] = &[];
    const EFFECT: Effect = Effect::None;
    const ENDS_LIST: bool = false;

    fn lists(&self) -> Lists<'_> {
        NO_LISTS
    }

    fn as_rewrite(&self) -> Option<Rewrite<'_>> {
        None
    }

    fn is_translated(&self) -> bool {
        true
    }

    fn userspace_lacks(&self) -> Option<&'static str> {
        None
    }

    fn lacking(&self, _can: &Capabilities) -> Option<&'static str> {
        None
    }

    fn format(&self, names: &dyn PortNames) -> String {
        let name = |port: DpPort| names.name(port).unwrap_or_else(|| port.to_string());
        let (tnl_port, out_port) = (name(self.tnl_port), name(self.out_port));
        format!("tnl_push(tnl_port({tnl_port}),{},out_port({out_port}))", format_header(&self.header))
    }

    fn parse(item: &Item<'_>, parser: &Parser<'_>) -> Result<TnlPush, TextError> {
        let (mut tnl_port, mut out_port, mut header) = (None, None, None);
        for part in item.args()? {
            match part.name {
                "tnl_port" => tnl_port = Some(DpPort(port(part.word()?, parser.names)?)),
                "out_port" => out_port = Some(DpPort(port(part.word()?, parser.names)?)),
                "header" => header = Some(Arc::new(parse_header(part)?)),
                _ => return Err(part.unknown(item.name)),
            }
        }
        match (tnl_port, out_port, header) {
            (Some(tnl_port), Some(out_port), Some(header)) => Ok(TnlPush { tnl_port, out_port, header }),
            _ => Err(TextError("tnl_push: tnl_port(PORT), header(…) and out_port(PORT) expected".into())),
        }
    }

    fn write(&self, _out: &mut AttrWriter, _writer: &Writer<'_>) -> Result<(), ActionError> {
        Err(ActionError::NeedsEmulation("push headers of tunnels (tnl_push)"))
    }

    fn read(_attr: &Attr<'_>, _reader: &Reader) -> Result<TnlPush, ActionError> {
        Err(ActionError::Foreign)
    }

    fn execute<X: Executor>(&self, x: &mut X, packets: X::Packets) -> ExecResult<X> {
        x.push_tunnel(packets, self)
    }
}

/// `header(size=…,type=…,eth(…),ipv4(…),udp(…),vxlan(…))`.
fn format_header(header: &TnlHeader) -> String {
    let OuterFields { eth_dst, eth_src, ip, encap } = header.fields();
    let mut out = format!("header(size={},type={},", header.bytes().len(), header.vport_type());
    let dl_type = if header.is_v6() { h::ETH_TYPE_IPV6 } else { h::ETH_TYPE_IP };
    let (dst, src) = (MacAddr(*eth_dst), MacAddr(*eth_src));
    let _ = write!(out, "eth(dst={dst},src={src},dl_type=0x{dl_type:04x}),");
    let proto = encap.ip_proto();
    let _ = match ip {
        OuterIp::V4 { src, dst, tos, ttl, frag } => {
            let (src, dst, tos) = (Ipv4Addr::from(*src), Ipv4Addr::from(*dst), hex((*tos).into()));
            write!(out, "ipv4(src={src},dst={dst},proto={proto},tos={tos},ttl={ttl},frag=0x{frag:x}),")
        }
        OuterIp::V6 { src, dst, label, tclass, hlimit } => {
            let (src, dst) = (Ipv6Addr::from(*src), Ipv6Addr::from(*dst));
            write!(
                out,
                "ipv6(src={src},dst={dst},label={label},proto={proto},tclass=0x{tclass:x},hlimit={hlimit}),"
            )
        }
    };
    if let Some(OuterUdp { src, dst, csum }) = encap.udp() {
        let _ = write!(out, "udp(src={src},dst={dst},csum=0x{csum:x}),");
    }
    out += &format_encap(encap);
    out + ")"
}

fn format_encap(encap: &Encap) -> String {
    match encap {
        Encap::Vxlan { flags, vni, .. } => format!("vxlan(flags=0x{flags:x},vni=0x{vni:x})"),
        Encap::Geneve { oam, critical, vni, options, .. } => {
            let (oam, critical) = (if *oam { "oam," } else { "" }, if *critical { "crit," } else { "" });
            let options = match options.is_empty() {
                true => String::new(),
                false => format!(",options({}", options::format(options, None).trim_start_matches("geneve(")),
            };
            format!("geneve({oam}{critical}vni=0x{vni:x}{options})")
        }
        Encap::Gre { proto, csum, key, seq } => {
            let csum = if *csum { ",csum=0x0" } else { "" };
            let key = key.map(|key| format!(",key=0x{key:x}")).unwrap_or_default();
            let seq = if *seq { ",seq=0x0" } else { "" };
            format!("gre((flags=0x{:x},proto=0x{proto:x}){csum}{key}{seq})", encap.gre_flags())
        }
        Encap::Srv6 { segments } => {
            let all: Vec<_> = segments.iter().map(|segment| Ipv6Addr::from(*segment).to_string()).collect();
            format!("srv6(segments_left={},segs({}))", all.len().saturating_sub(1), all.join(","))
        }
        Encap::Gtpu { flags, msgtype, teid, .. } => {
            format!("gtpu(flags=0x{flags:x},msgtype={msgtype},teid=0x{teid:x})")
        }
        Encap::Erspan { session, erspan: Erspan { ver, idx, dir, hwid } } => match ver {
            1 => format!("erspan(ver=1,sid=0x{session:x},idx=0x{idx:x})"),
            _ => format!("erspan(ver={ver},sid=0x{session:x},dir={dir},hwid=0x{hwid:x})"),
        },
    }
}

fn u16_of(item: &Item<'_>) -> Result<u16, TextError> {
    Ok(number(item.value()?, 0xffff)? as u16)
}

fn u8_of(item: &Item<'_>) -> Result<u8, TextError> {
    Ok(number(item.value()?, 0xff)? as u8)
}

/// The headers of their text. Size and protocol numbers must agree with the headers.
fn parse_header(item: &Item<'_>) -> Result<TnlHeader, TextError> {
    let bad = |why: &str| TextError(format!("tnl_push: header: {why}"));
    let (mut size, mut kind, mut dl_type, mut proto) = (None, None, None, None);
    let (mut eth, mut ip, mut udp, mut encap) = (None, None, None, None);
    for part in item.args()? {
        match part.name {
            "size" => size = Some(number(part.value()?, 0xffff)? as usize),
            "type" => kind = Some(number(part.value()?, u32::MAX.into())? as u32),
            "eth" => eth = Some(parse_eth(part, &mut dl_type)?),
            "ipv4" => ip = Some(parse_ipv4(part, &mut proto)?),
            "ipv6" => ip = Some(parse_ipv6(part, &mut proto)?),
            "udp" => udp = Some(parse_udp(part)?),
            "vxlan" | "geneve" | "gre" | "erspan" | "gtpu" | "srv6" => encap = Some(parse_encap(part, udp)?),
            _ => return Err(part.unknown("header")),
        }
    }
    let (Some((eth_dst, eth_src)), Some(ip), Some(encap)) = (eth, ip, encap) else {
        return Err(bad("eth(…), ipv4(…) or ipv6(…), and an encapsulation expected"));
    };
    let header = TnlHeader::new(OuterFields { eth_dst, eth_src, ip, encap });
    if matches!(header.fields().encap, Encap::Srv6 { .. }) && !header.is_v6() {
        return Err(bad("srv6 needs ipv6(…)"));
    }
    let has_type = if header.is_v6() { h::ETH_TYPE_IPV6 } else { h::ETH_TYPE_IP };
    if dl_type.is_some_and(|given| given != has_type) {
        return Err(bad("dl_type is not that of the IP header"));
    }
    if proto.is_some_and(|given| given != header.fields().encap.ip_proto()) {
        return Err(bad("proto is not that of the encapsulation"));
    }
    if kind.is_some_and(|given| given != header.vport_type()) {
        return Err(bad("type is not that of the encapsulation"));
    }
    if size.is_some_and(|given| given != header.bytes().len()) {
        return Err(bad(&format!("size is not {}", header.bytes().len())));
    }
    Ok(header)
}

fn parse_eth(item: &Item<'_>, dl_type: &mut Option<u16>) -> Result<([u8; 6], [u8; 6]), TextError> {
    let (mut dst, mut src) = ([0; 6], [0; 6]);
    for field in item.args()? {
        match field.name {
            "dst" => dst = mac(field.value()?)?.0,
            "src" => src = mac(field.value()?)?.0,
            "dl_type" => *dl_type = Some(u16_of(field)?),
            _ => return Err(field.unknown(item.name)),
        }
    }
    Ok((dst, src))
}

fn parse_ipv4(item: &Item<'_>, proto: &mut Option<u8>) -> Result<OuterIp, TextError> {
    let (mut addresses, mut tos, mut ttl, mut frag) = ([0; 2], 0, 0, 0);
    for field in item.args()? {
        match field.name {
            "src" => addresses[0] = ipv4(field.value()?)?.0,
            "dst" => addresses[1] = ipv4(field.value()?)?.0,
            "proto" => *proto = Some(u8_of(field)?),
            "tos" => tos = u8_of(field)?,
            "ttl" => ttl = u8_of(field)?,
            "frag" => frag = u16_of(field)?,
            _ => return Err(field.unknown(item.name)),
        }
    }
    Ok(OuterIp::V4 { src: addresses[0], dst: addresses[1], tos, ttl, frag })
}

fn parse_ipv6(item: &Item<'_>, proto: &mut Option<u8>) -> Result<OuterIp, TextError> {
    let (mut addresses, mut label, mut tclass, mut hlimit) = ([[0; 16]; 2], 0, 0, 0);
    for field in item.args()? {
        match field.name {
            "src" => addresses[0] = ipv6(field.value()?)?.0,
            "dst" => addresses[1] = ipv6(field.value()?)?.0,
            "label" => label = number(field.value()?, 0xf_ffff)? as u32,
            "proto" => *proto = Some(u8_of(field)?),
            "tclass" => tclass = u8_of(field)?,
            "hlimit" => hlimit = u8_of(field)?,
            _ => return Err(field.unknown(item.name)),
        }
    }
    Ok(OuterIp::V6 { src: addresses[0], dst: addresses[1], label, tclass, hlimit })
}

fn parse_udp(item: &Item<'_>) -> Result<OuterUdp, TextError> {
    let mut udp = OuterUdp { src: 0, dst: 0, csum: 0 };
    for field in item.args()? {
        match field.name {
            "src" => udp.src = u16_of(field)?,
            "dst" => udp.dst = u16_of(field)?,
            "csum" => udp.csum = u16_of(field)?,
            _ => return Err(field.unknown(item.name)),
        }
    }
    Ok(udp)
}

fn parse_encap(item: &Item<'_>, udp: Option<OuterUdp>) -> Result<Encap, TextError> {
    match item.name {
        "gre" => return parse_gre(item),
        "erspan" => return parse_erspan(item),
        "srv6" => return parse_srv6(item),
        _ => {}
    }
    let Some(udp) = udp else { return Err(TextError(format!("{}: udp(…) expected before it", item.name))) };
    if item.name == "gtpu" {
        return parse_gtpu(item, udp);
    }
    let (mut flags, mut vni, mut oam, mut critical) = (0, 0, false, false);
    let mut all = Box::default();
    let is_vxlan = item.name == "vxlan";
    for field in item.args()? {
        match field.name {
            "flags" if is_vxlan => flags = number(field.value()?, u32::MAX.into())? as u32,
            "vni" => vni = number(field.value()?, 0xff_ffff)? as u32,
            "oam" if !is_vxlan && field.is_bare() => oam = true,
            "crit" if !is_vxlan && field.is_bare() => critical = true,
            "options" if !is_vxlan => all = Box::new(options::parse(field)?.0),
            _ => return Err(field.unknown(item.name)),
        }
    }
    Ok(match is_vxlan {
        true => Encap::Vxlan { udp, flags, vni },
        false => Encap::Geneve { udp, oam, critical, vni, options: all },
    })
}

/// `gre((flags=…,proto=…),csum=…,key=…,seq=…)`: the flags tell which of the others follow.
fn parse_gre(item: &Item<'_>) -> Result<Encap, TextError> {
    let (mut flags, mut proto, mut given) = (0, 0, 0);
    let mut key = None;
    let mut fields = Vec::new();
    for field in item.args()? {
        match &field.args {
            Some(inner) if field.name.is_empty() => fields.extend(inner),
            _ => fields.push(field),
        }
    }
    for field in fields {
        let value = number(field.value()?, u32::MAX.into())? as u32;
        match field.name {
            "flags" => flags = value,
            "proto" => proto = u16_of(field)?,
            "csum" => given |= GRE_HAS_CSUM,
            "key" => (key, given) = (Some(value), given | GRE_HAS_KEY),
            "seq" => given |= GRE_HAS_SEQ,
            _ => return Err(field.unknown(item.name)),
        }
    }
    if flags != u32::from(given) {
        return Err(TextError(format!("gre: flags=0x{flags:x} and the fields csum, key and seq disagree")));
    }
    Ok(Encap::Gre { proto, csum: given & GRE_HAS_CSUM != 0, key, seq: given & GRE_HAS_SEQ != 0 })
}

/// `erspan(ver=1,sid=…,idx=…)` or `erspan(ver=2,sid=…,dir=…,hwid=…)`.
fn parse_erspan(item: &Item<'_>) -> Result<Encap, TextError> {
    let (mut session, mut erspan) = (0, Erspan::default());
    for field in item.args()? {
        match field.name {
            "ver" => erspan.ver = number(field.value()?, 2)? as u8,
            "sid" => session = number(field.value()?, ERSPAN_SESSION.into())? as u16,
            "idx" if erspan.ver == 1 => erspan.idx = number(field.value()?, 0xf_ffff)? as u32,
            "dir" if erspan.ver == 2 => erspan.dir = number(field.value()?, 1)? as u8,
            "hwid" if erspan.ver == 2 => erspan.hwid = number(field.value()?, 0x3f)? as u8,
            _ => return Err(field.unknown(item.name)),
        }
    }
    match erspan.ver {
        1 | 2 => Ok(Encap::Erspan { session, erspan }),
        _ => Err(TextError("erspan: ver=1 or ver=2 expected first".into())),
    }
}

fn parse_gtpu(item: &Item<'_>, udp: OuterUdp) -> Result<Encap, TextError> {
    let (mut flags, mut msgtype, mut teid) = (0, 0, 0);
    for field in item.args()? {
        match field.name {
            "flags" => flags = u8_of(field)?,
            "msgtype" => msgtype = u8_of(field)?,
            "teid" => teid = number(field.value()?, u32::MAX.into())? as u32,
            _ => return Err(field.unknown(item.name)),
        }
    }
    Ok(Encap::Gtpu { udp, flags, msgtype, teid })
}

/// `srv6(segments_left=…,segs(…))`: the number of segments left follows from the segments.
fn parse_srv6(item: &Item<'_>) -> Result<Encap, TextError> {
    let (mut left, mut segments) = (None, Vec::new());
    for field in item.args()? {
        match field.name {
            "segments_left" => left = Some(usize::from(u8_of(field)?)),
            "segs" => {
                for segment in field.args()? {
                    let address: Option<Ipv6Addr> = segment.name.parse().ok().filter(|_| segment.is_bare());
                    segments.push(address.ok_or_else(|| segment.unknown("segs"))?.octets());
                }
            }
            _ => return Err(field.unknown(item.name)),
        }
    }
    if segments.is_empty() || segments.len() > SRV6_SEGMENTS_MAX {
        return Err(TextError(format!("srv6: from 1 to {SRV6_SEGMENTS_MAX} segments expected")));
    }
    if left.is_some_and(|left| left + 1 != segments.len()) {
        return Err(TextError("srv6: segments_left is one less than the number of segments".into()));
    }
    Ok(Encap::Srv6 { segments: segments.into() })
}
