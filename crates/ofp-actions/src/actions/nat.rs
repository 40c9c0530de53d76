//! `nat`: translation of addresses and ports by `ct`.

use super::prelude::*;
use flow::Flow;
use flow::text::number::u16_named;
use flow::text::token::Tokens;
use packet::headers::{ETH_TYPE_IP, ETH_TYPE_IPV6};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Translation of addresses and ports (`NXAST_NAT`). Without a side: as the connection already has it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Nat {
    /// Translated side of a new connection.
    pub side: Option<NatSide>,
    /// New addresses and ports; `None`: the tracker chooses.
    pub range: Option<NatRange>,
    /// Keep the choice over restarts.
    pub persistent: bool,
    /// Choice of the port.
    pub selection: Option<NatSelection>,
}

/// Side of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NatSide {
    /// Source.
    Src,
    /// Destination.
    Dst,
}

/// Choice of a port from a range.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NatSelection {
    /// By a hash of the connection.
    Hash,
    /// Random.
    Random,
}

/// New addresses and ports. No last one: the same as the first one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NatRange {
    /// Addresses, not all zeros.
    pub addresses: NatAddresses,
    /// First port, not 0, and last port.
    pub ports: Option<(u16, Option<u16>)>,
}

/// First and last address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NatAddresses {
    /// A range of IPv4.
    V4(Ipv4Addr, Option<Ipv4Addr>),
    /// A range of IPv6.
    V6(Ipv6Addr, Option<Ipv6Addr>),
}

/// `NXAST_NAT`.
const NXAST: u16 = 36;

/// `NX_NAT_F_*`.
mod flag {
    pub(super) const SRC: u16 = 1;
    pub(super) const DST: u16 = 1 << 1;
    pub(super) const PERSISTENT: u16 = 1 << 2;
    pub(super) const HASH: u16 = 1 << 3;
    pub(super) const RANDOM: u16 = 1 << 4;
    pub(super) const ALL: u16 = 0x1f;
}

/// `NX_NAT_RANGE_*`.
mod present {
    pub(super) const V4_MIN: u16 = 1;
    pub(super) const V4_MAX: u16 = 1 << 1;
    pub(super) const V6_MIN: u16 = 1 << 2;
    pub(super) const V6_MAX: u16 = 1 << 3;
    pub(super) const PORT_MIN: u16 = 1 << 4;
    pub(super) const PORT_MAX: u16 = 1 << 5;
}

fn read(r: &mut Reader<'_>) -> Res<Action> {
    const BAD: ErrorKind = ErrorKind::BacBadArgument;
    r.skip(2)?;
    let (flags, has) = (r.u16()?, r.u16()?);
    let set = |flag: u16| flags & flag != 0;
    if flags & !flag::ALL != 0 || set(flag::SRC) && set(flag::DST) || set(flag::HASH) && set(flag::RANDOM) {
        return Err(BAD);
    }
    let mut r = r.sub(r.len())?.or(BAD);
    let side = match (set(flag::SRC), set(flag::DST)) {
        (true, _) => Some(NatSide::Src),
        (_, true) => Some(NatSide::Dst),
        _ => None,
    };
    let selection = match (set(flag::HASH), set(flag::RANDOM)) {
        (true, _) => Some(NatSelection::Hash),
        (_, true) => Some(NatSelection::Random),
        _ => None,
    };
    let addresses = read_addresses(&mut r, has)?;
    let ports = read_ports(&mut r, has)?;
    let range = match (addresses, ports) {
        (Some(addresses), ports) => Some(NatRange { addresses, ports }),
        (None, None) => None,
        (None, Some(_)) => return Err(BAD),
    };
    Ok(Box::new(Nat { side, range, persistent: set(flag::PERSISTENT), selection }).into())
}

fn read_addresses(r: &mut Reader<'_>, has: u16) -> Res<Option<NatAddresses>> {
    const BAD: ErrorKind = ErrorKind::BacBadArgument;
    let v4 = has & (present::V4_MIN | present::V4_MAX);
    let v6 = has & (present::V6_MIN | present::V6_MAX);
    if v4 != 0 && v6 != 0 || v4 == present::V4_MAX || v6 == present::V6_MAX {
        return Err(BAD);
    }
    if v4 != 0 {
        let min = Ipv4Addr::from(r.u32()?);
        let max = (v4 & present::V4_MAX != 0).then(|| r.u32().map(Ipv4Addr::from)).transpose()?;
        let ok = !min.is_unspecified() && max.is_none_or(|max| min <= max);
        return if ok { Ok(Some(NatAddresses::V4(min, max))) } else { Err(BAD) };
    }
    if v6 != 0 {
        let min = Ipv6Addr::from(r.array::<16>()?);
        let max = (v6 & present::V6_MAX != 0).then(|| r.array::<16>().map(Ipv6Addr::from)).transpose()?;
        let ok = !min.is_unspecified() && max.is_none_or(|max| min <= max);
        return if ok { Ok(Some(NatAddresses::V6(min, max))) } else { Err(BAD) };
    }
    Ok(None)
}

fn read_ports(r: &mut Reader<'_>, has: u16) -> Res<Option<(u16, Option<u16>)>> {
    const BAD: ErrorKind = ErrorKind::BacBadArgument;
    if has & present::PORT_MIN == 0 {
        return if has & present::PORT_MAX == 0 { Ok(None) } else { Err(BAD) };
    }
    let min = r.u16()?;
    let max = (has & present::PORT_MAX != 0).then(|| r.u16()).transpose()?;
    if min != 0 && max.is_none_or(|max| min <= max) { Ok(Some((min, max))) } else { Err(BAD) }
}

impl Nat {
    fn flags(&self) -> u16 {
        let side = self.side.map_or(0, |side| if side == NatSide::Src { flag::SRC } else { flag::DST });
        let selection =
            self.selection.map_or(0, |s| if s == NatSelection::Hash { flag::HASH } else { flag::RANDOM });
        side | selection | if self.persistent { flag::PERSISTENT } else { 0 }
    }

    /// Whether packets such as `flow` can have the new addresses.
    fn fits(&self, flow: &Flow) -> bool {
        match self.range.map(|range| range.addresses) {
            None => flow.is_ip(),
            Some(NatAddresses::V4(..)) => flow.dl_type == ETH_TYPE_IP,
            Some(NatAddresses::V6(..)) => flow.dl_type == ETH_TYPE_IPV6,
        }
    }
}

/// Last of a range in text; `None` if it is the first one.
fn last<T: PartialEq>(min: T, max: Option<T>) -> Option<T> {
    max.filter(|max| *max != min)
}

impl NatRange {
    /// `ADDRESS[-ADDRESS][:PORT[-PORT]]`, with brackets around IPv6 addresses before ports.
    fn format(&self) -> String {
        let joined = |min: String, max: Option<String>| max.map_or(min.clone(), |max| format!("{min}-{max}"));
        let addresses = match self.addresses {
            NatAddresses::V4(min, max) => joined(min.to_string(), last(min, max).map(|a| a.to_string())),
            NatAddresses::V6(min, max) => {
                let text = |a: Ipv6Addr| if self.ports.is_some() { format!("[{a}]") } else { a.to_string() };
                joined(text(min), last(min, max).map(text))
            }
        };
        let ports =
            self.ports.map(|(min, max)| joined(min.to_string(), last(min, max).map(|p| p.to_string())));
        ports.map_or(addresses.clone(), |ports| format!("{addresses}:{ports}"))
    }

    /// Writes the parts present, and each of them.
    fn put(&self, w: &mut Writer) {
        let (ports, last_port) = (self.ports.is_some(), self.ports.and_then(|(_, max)| max).is_some());
        let of_ports =
            if ports { present::PORT_MIN } else { 0 } | if last_port { present::PORT_MAX } else { 0 };
        match self.addresses {
            NatAddresses::V4(min, max) => {
                w.u16(of_ports | present::V4_MIN | max.map_or(0, |_| present::V4_MAX));
                w.bytes(&min.octets());
                max.iter().for_each(|max| w.bytes(&max.octets()));
            }
            NatAddresses::V6(min, max) => {
                w.u16(of_ports | present::V6_MIN | max.map_or(0, |_| present::V6_MAX));
                w.bytes(&min.octets());
                max.iter().for_each(|max| w.bytes(&max.octets()));
            }
        }
        if let Some((min, max)) = self.ports {
            w.u16(min);
            max.iter().for_each(|max| w.u16(*max));
        }
    }

    /// Parses that form; `None` for the unspecified address, which leaves the choice to the tracker.
    fn parse(text: &str) -> Parsed<Option<NatRange>> {
        match NatRange::split(text)
            .and_then(|(addresses, ports)| Some((NatRange::addresses(addresses)?, ports)))
        {
            Some((None, None)) => Ok(None),
            Some((Some(addresses), None)) => Ok(Some(NatRange { addresses, ports: None })),
            Some((Some(addresses), Some(ports))) => match NatRange::port_range(ports) {
                Some(ports) => Ok(Some(NatRange { addresses, ports: Some(ports) })),
                None => fail(text, format!("invalid nat range \"{text}\"")),
            },
            Some((None, Some(_))) | None => fail(text, format!("invalid nat range \"{text}\"")),
        }
    }

    /// Separates addresses from ports: a single colon, or one after a bracket.
    fn split(text: &str) -> Option<(&str, Option<&str>)> {
        if text.contains('[') {
            let (head, ports) = text.rsplit_once(']')?;
            let end = head.len() + 1;
            return match ports.strip_prefix(':') {
                Some(ports) => Some((&text[..end], Some(ports))),
                // The last address may lack brackets.
                None => Some((text, None)),
            };
        }
        match text.matches(':').count() {
            0 => Some((text, None)),
            1 => text.split_once(':').map(|(addresses, ports)| (addresses, Some(ports))),
            _ => Some((text, None)),
        }
    }

    /// `None` if malformed; `Some(None)` for the unspecified address.
    fn addresses(text: &str) -> Option<Option<NatAddresses>> {
        let (min, max) = text.split_once('-').map_or((text, None), |(min, max)| (min, Some(max)));
        let bare = |t: &str| match t.strip_prefix('[') {
            Some(inner) => inner.strip_suffix(']').and_then(|a| a.parse::<Ipv6Addr>().ok()),
            None => t.parse::<Ipv6Addr>().ok(),
        };
        if let Ok(min) = min.parse::<Ipv4Addr>() {
            let max =
                max.map(|max| max.parse::<Ipv4Addr>().ok().filter(|max| min <= *max).ok_or(())).transpose();
            let max = last(min, max.ok()?);
            return match (min.is_unspecified(), max) {
                (true, Some(_)) => None,
                (true, None) => Some(None),
                (false, max) => Some(Some(NatAddresses::V4(min, max))),
            };
        }
        let min = bare(min)?;
        let max = max.map(|max| bare(max).filter(|max| min <= *max).ok_or(())).transpose();
        let max = last(min, max.ok()?);
        match (min.is_unspecified(), max) {
            (true, Some(_)) => None,
            (true, None) => Some(None),
            (false, max) => Some(Some(NatAddresses::V6(min, max))),
        }
    }

    fn port_range(text: &str) -> Option<(u16, Option<u16>)> {
        let (min, max) = text.split_once('-').map_or((text, None), |(min, max)| (min, Some(max)));
        let port = |t: &str| u16_named(t, "port").ok().filter(|port| *port != 0);
        let min = port(min)?;
        let max = max.map(|max| port(max).filter(|max| min <= *max).ok_or(())).transpose().ok()?;
        Some((min, last(min, max)))
    }
}

fn parse(text: &Argument<'_>) -> Parsed<Nat> {
    let arg = text.value();
    let mut nat = Nat::default();
    let (mut src, mut dst, mut hash, mut random) = (false, false, false, false);
    let mut tokens = Tokens::new(arg);
    while let Some(token) = tokens.next_token()? {
        match token.key {
            side @ ("src" | "dst") => {
                *(if side == "src" { &mut src } else { &mut dst }) = true;
                nat.range = if token.has_value() { NatRange::parse(token.value)? } else { None };
            }
            "persistent" => nat.persistent = true,
            "hash" => hash = true,
            "random" => random = true,
            key => return fail(key, format!("invalid key \"{key}\" in \"nat\" argument")),
        }
    }
    nat.side = match (src, dst) {
        (true, true) => return fail(arg, "May only specify one of \"src\" or \"dst\"."),
        (true, false) => Some(NatSide::Src),
        (false, true) => Some(NatSide::Dst),
        (false, false) if nat.persistent || hash || random => {
            return fail(arg, "Flags allowed only with \"src\" or \"dst\".");
        }
        (false, false) => None,
    };
    nat.selection = match (hash, random) {
        (true, true) => return fail(arg, "Both \"hash\" and \"random\" are not allowed."),
        (true, false) => Some(NatSelection::Hash),
        (false, true) => Some(NatSelection::Random),
        (false, false) => None,
    };
    Ok(nat)
}

impl OfAction for Box<Nat> {
    const NAMES: &'static [&'static str] = &["nat"];
    const ROWS: &'static [Row] = &[nx(NXAST, Len::Min(16), read)];
    const STAGE: Stage = Stage::Apply;
    /// It belongs to its `ct`.
    const REVERSIBLE: bool = false;

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        nicira(w, NXAST, |w| {
            w.zeros(2);
            w.u16(self.flags());
            match self.range {
                None => w.u16(0),
                Some(range) => range.put(w),
            }
        });
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        out.push(Box::new(parse(text)?).into());
        Ok(())
    }

    /// Flags without a range are shown too, unlike in OVS, which loses them.
    fn format(&self, _ports: &dyn PortNames) -> String {
        let Some(side) = self.side else { return "nat".into() };
        let side = if side == NatSide::Src { "src" } else { "dst" };
        let mut text = self.range.map_or(side.to_string(), |range| format!("{side}={}", range.format()));
        if self.persistent {
            text += ",persistent";
        }
        match self.selection {
            None => {}
            Some(NatSelection::Hash) => text += ",hash",
            Some(NatSelection::Random) => text += ",random",
        }
        format!("nat({text})")
    }

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        if self.fits(&checker.flow) { Ok(()) } else { Err(ErrorKind::BacMatchInconsistent) }
    }

    fn check_text(&self, checker: &mut TextChecker) -> Result<(), String> {
        if self.fits(&checker.flow) {
            return Ok(());
        }
        Err("nat does not fit the match's address family (OFPBAC_MATCH_INCONSISTENT)".to_string())
    }

    fn protocols(&self) -> Protocols {
        Protocols::ANY
    }

    fn set_place(&self) -> SetPlace {
        SetPlace::Never
    }

    fn references(&self, _visit: &mut dyn FnMut(Reference)) {}

    fn translate<X: Translator>(&self, x: &mut X) {
        x.translate_addresses(self);
    }
}
