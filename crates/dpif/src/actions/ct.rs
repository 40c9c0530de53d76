//! `ct`: passes a packet through the connection tracker (`enum ovs_ct_attr`, `enum ovs_nat_attr` of `linux/openvswitch.h`).
//!
//! As in stock tools, text omits the event mask. Unlike there, it has ports without addresses (`src=:1-99`) and port
//! 0, which they print as an error or omit. The kernel reports zone 0, and both ends of a range, even if they were
//! omitted.

use super::Masked;
use super::prelude::*;
use crate::text::values::{masked, masked128, number};
use crate::text::write::{Fields, hex};
use flow::nlattr::Attrs;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Arguments of the connection tracker.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct CtAction {
    /// Whether to commit the connection.
    pub commit: CtCommit,
    /// Zone; 0 by default.
    pub zone: u16,
    /// Mark to set.
    pub mark: Option<Masked<u32>>,
    /// Labels to set.
    pub labels: Option<Masked<u128>>,
    /// Helper for related connections.
    pub helper: Option<HelperName>,
    /// Translation of addresses.
    pub nat: CtNat,
    /// Event mask, bits of `IPCT_*`. Omitted in text, as in stock tools.
    pub event_mask: Option<u32>,
    /// Timeout policy.
    pub timeout: Option<TimeoutName>,
}

/// Whether to commit a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum CtCommit {
    /// Lookup only.
    #[default]
    No,
    /// Commit.
    Yes,
    /// Commit, and remove one of the opposite direction (`force`).
    Force,
}

/// Translation of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum CtNat {
    /// None.
    #[default]
    No,
    /// As the connection already has it.
    Known,
    /// For a new connection.
    New(NatRange),
}

/// Translation of a new connection's addresses and ports.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NatRange {
    /// Destination rather than source.
    pub is_dst: bool,
    /// First and last address; `None`: the tracker chooses.
    pub addresses: Option<NatAddresses>,
    /// First and last port; `None`: the tracker chooses. Stock tools show them only after addresses.
    pub ports: Option<(u16, u16)>,
    /// Persistent address across reboots.
    pub persistent: bool,
    /// Ports by hash.
    pub hash: bool,
    /// Random ports.
    pub random: bool,
}

/// First and last address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NatAddresses {
    /// IPv4.
    V4(Ipv4Addr, Ipv4Addr),
    /// IPv6.
    V6(Ipv6Addr, Ipv6Addr),
}

/// A name in the tracker: 1 to `MAX` visible ASCII characters without special meaning in text.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CtName<const MAX: usize>(Box<str>);

/// Name of a helper (`NF_CT_HELPER_NAME_LEN` without the zero).
pub type HelperName = CtName<15>;
/// Name of a timeout policy (`CTNL_TIMEOUT_NAME_MAX` without the zero).
pub type TimeoutName = CtName<31>;

impl<const MAX: usize> CtName<MAX> {
    /// `None` for an invalid name.
    pub fn new(text: &str) -> Option<CtName<MAX>> {
        let fits = (1..=MAX).contains(&text.len());
        let plain = text.bytes().all(|b| b.is_ascii_graphic() && !b",()".contains(&b));
        (fits && plain).then(|| CtName(text.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// `OVS_ACTION_ATTR_CT`.
const ATTR: u16 = 12;

impl Action for Box<CtAction> {
    const WORDS: &'static [Word] = &[bare("ct"), call("ct")];
    const ATTRS: &'static [u16] = &[ATTR];
    const EFFECT: Effect = Effect::Tracks;
    const ENDS_LIST: bool = false;
    both_datapaths!();

    fn as_rewrite(&self) -> Option<Rewrite<'_>> {
        None
    }

    fn execute<X: Executor>(&self, x: &mut X, packets: X::Packets) -> ExecResult<X> {
        x.track(packets, self)
    }

    fn lists(&self) -> Lists<'_> {
        NO_LISTS
    }

    fn format(&self, _names: &dyn PortNames) -> String {
        format(self)
    }

    fn parse(item: &Item<'_>, _parser: &Parser<'_>) -> Result<Box<CtAction>, TextError> {
        if item.is_bare() { Ok(Box::default()) } else { parse_text(item).map(Box::new) }
    }

    fn write(&self, out: &mut AttrWriter, _writer: &Writer<'_>) -> Result<(), ActionError> {
        out.nested(ATTR, |out| write_attributes(out, self));
        Ok(())
    }

    fn read(attr: &Attr<'_>, _reader: &Reader) -> Result<Box<CtAction>, ActionError> {
        read_attributes(attr.nested()?).map(Box::new)
    }
}

/// `ct`, or `ct(…)`.
fn format(ct: &CtAction) -> String {
    let mut f = Fields::new(false);
    match ct.commit {
        CtCommit::No => {}
        CtCommit::Yes => f.raw("commit"),
        CtCommit::Force => f.raw("force_commit"),
    }
    if ct.zone != 0 {
        f.word("zone", &ct.zone.to_string());
    }
    if let Some(m) = &ct.mark {
        f.word("mark", &format!("{}/{}", hex(m.value.into()), hex(m.mask.into())));
    }
    if let Some(m) = &ct.labels {
        let mask = if m.mask == u128::MAX { String::new() } else { format!("/{}", hex(m.mask)) };
        f.word("label", &(hex(m.value) + &mask));
    }
    if let Some(name) = &ct.helper {
        f.word("helper", name.as_str());
    }
    if let Some(name) = &ct.timeout {
        f.word("timeout", name.as_str());
    }
    match &ct.nat {
        CtNat::No => {}
        CtNat::Known => f.raw("nat"),
        CtNat::New(range) => f.raw(&format_range(range)),
    }
    if f.any { f.finish("ct") } else { "ct".into() }
}

fn format_range(range: &NatRange) -> String {
    let mut f = Fields::new(false);
    let side = if range.is_dst { "dst" } else { "src" };
    let pair = |first: String, last: String| if first == last { first } else { format!("{first}-{last}") };
    let addresses = match &range.addresses {
        None => String::new(),
        Some(NatAddresses::V4(first, last)) => pair(first.to_string(), last.to_string()),
        Some(NatAddresses::V6(first, last)) if range.ports.is_none() => {
            pair(first.to_string(), last.to_string())
        }
        Some(NatAddresses::V6(first, last)) => pair(format!("[{first}]"), format!("[{last}]")),
    };
    let ports = range.ports.map(|(first, last)| format!(":{}", pair(first.to_string(), last.to_string())));
    match addresses + ports.as_deref().unwrap_or_default() {
        text if text.is_empty() => f.raw(side),
        text => f.word(side, &text),
    }
    for (set, name) in [(range.persistent, "persistent"), (range.hash, "hash"), (range.random, "random")] {
        if set {
            f.raw(name);
        }
    }
    f.finish("nat")
}

/// The action of `ct(…)`.
fn parse_text(item: &Item<'_>) -> Result<CtAction, TextError> {
    let mut ct = CtAction::default();
    for field in item.args()? {
        match field.name {
            "commit" | "force_commit" if ct.commit != CtCommit::No => {
                return Err(TextError("ct: commit is there twice".into()));
            }
            "commit" => ct.commit = CtCommit::Yes,
            "force_commit" => ct.commit = CtCommit::Force,
            "zone" => ct.zone = number(field.value()?, 0xffff)? as u16,
            "mark" => {
                let (value, mask) = masked(field.value()?, u32::MAX.into())?;
                ct.mark = Some(Masked { value: value as u32, mask: mask as u32 });
            }
            "label" => {
                let (value, mask) = masked128(field.value()?)?;
                ct.labels = Some(Masked { value, mask });
            }
            "helper" => ct.helper = Some(parse_name(field)?),
            "timeout" => ct.timeout = Some(parse_name(field)?),
            "nat" => {
                ct.nat =
                    parse_range_text(field.args.as_deref().unwrap_or(&[]))?.map_or(CtNat::Known, CtNat::New);
            }
            _ => return Err(field.unknown(item.name)),
        }
    }
    Ok(ct)
}

fn parse_name<const MAX: usize>(field: &Item<'_>) -> Result<CtName<MAX>, TextError> {
    let text = field.value()?;
    let bad = || TextError(format!("{}: {text:?} is not a name of 1 to {MAX} characters", field.name));
    CtName::new(text).ok_or_else(bad)
}

/// The argument of `nat`; `None` if empty.
fn parse_range_text(fields: &[Item<'_>]) -> Result<Option<NatRange>, TextError> {
    let (mut range, mut flags) = (None, [false; 3]);
    for field in fields {
        match field.name {
            "src" | "dst" if range.is_some() => {
                return Err(TextError("nat: either src or dst expected, once".into()));
            }
            "src" | "dst" => {
                let (addresses, ports) = field.value.map_or(Ok((None, None)), bounds)?;
                range = Some((field.name == "dst", addresses, ports));
            }
            "persistent" => flags[0] = true,
            "hash" => flags[1] = true,
            "random" => flags[2] = true,
            _ => return Err(field.unknown("nat")),
        }
    }
    let [persistent, hash, random] = flags;
    if hash && random {
        return Err(TextError("nat: either hash or random expected".into()));
    }
    match range {
        // No other option is given.
        None => Ok(None),
        Some((is_dst, addresses, ports)) => {
            Ok(Some(NatRange { is_dst, addresses, ports, persistent, hash, random }))
        }
    }
}

type Bounds = (Option<NatAddresses>, Option<(u16, u16)>);

/// `ADDRESS[-ADDRESS][:PORT[-PORT]]`; IPv6 addresses before ports are in brackets.
fn bounds(text: &str) -> Result<Bounds, TextError> {
    let bad = || TextError(format!("nat: {text:?} is not a range of addresses and ports"));
    let v6 = |t: &str| t.trim_start_matches('[').trim_end_matches(']').parse::<Ipv6Addr>().ok();
    let (addresses, ports) = if text.contains('[') {
        match text.rsplit_once("]:") {
            Some((addresses, ports)) => (addresses, Some(ports)),
            None => (text, None),
        }
    } else if text.contains("::") || text.matches(':').count() > 1 {
        (text, None)
    } else {
        text.split_once(':').map_or((text, None), |(addresses, ports)| (addresses, Some(ports)))
    };
    let (first, last) = addresses.split_once('-').unwrap_or((addresses, addresses));
    let addresses = if addresses.is_empty() {
        None
    } else if let (Ok(first), Ok(last)) = (first.parse::<Ipv4Addr>(), last.parse::<Ipv4Addr>()) {
        Some(NatAddresses::V4(first, last)).filter(|_| first <= last)
    } else {
        let (first, last) = v6(first).zip(v6(last)).ok_or_else(bad)?;
        Some(NatAddresses::V6(first, last)).filter(|_| first <= last)
    };
    if addresses.is_none() && !(text.starts_with(':') && ports.is_some()) {
        return Err(bad());
    }
    let Some(ports) = ports else { return Ok((addresses, None)) };
    let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
    let (first, last) = (number(first, 0xffff)? as u16, number(last, 0xffff)? as u16);
    if first > last { Err(bad()) } else { Ok((addresses, Some((first, last)))) }
}

/// `OVS_CT_ATTR_*`.
mod attr {
    pub(super) const COMMIT: u16 = 1;
    pub(super) const ZONE: u16 = 2;
    pub(super) const MARK: u16 = 3;
    pub(super) const LABELS: u16 = 4;
    pub(super) const HELPER: u16 = 5;
    pub(super) const NAT: u16 = 6;
    pub(super) const FORCE_COMMIT: u16 = 7;
    pub(super) const EVENTMASK: u16 = 8;
    pub(super) const TIMEOUT: u16 = 9;
}

/// `OVS_NAT_ATTR_*`.
mod nat {
    pub(super) const SRC: u16 = 1;
    pub(super) const DST: u16 = 2;
    pub(super) const IP_MIN: u16 = 3;
    pub(super) const IP_MAX: u16 = 4;
    pub(super) const PROTO_MIN: u16 = 5;
    pub(super) const PROTO_MAX: u16 = 6;
    pub(super) const PERSISTENT: u16 = 7;
    pub(super) const PROTO_HASH: u16 = 8;
    pub(super) const PROTO_RANDOM: u16 = 9;
}

/// The attributes within `CT`.
fn write_attributes(out: &mut AttrWriter, ct: &CtAction) {
    match ct.commit {
        CtCommit::No => {}
        CtCommit::Yes => out.flag(attr::COMMIT),
        CtCommit::Force => out.flag(attr::FORCE_COMMIT),
    }
    if ct.zone != 0 {
        out.u16(attr::ZONE, ct.zone);
    }
    if let Some(m) = &ct.mark {
        out.put(attr::MARK, &[m.value.to_ne_bytes(), m.mask.to_ne_bytes()].concat());
    }
    if let Some(m) = &ct.labels {
        out.put(attr::LABELS, &[m.value.to_ne_bytes(), m.mask.to_ne_bytes()].concat());
    }
    if let Some(name) = &ct.helper {
        out.text(attr::HELPER, name.as_str());
    }
    match &ct.nat {
        CtNat::No => {}
        CtNat::Known => out.nested(attr::NAT, |_| ()),
        CtNat::New(range) => out.nested(attr::NAT, |out| write_range(out, range)),
    }
    if let Some(mask) = ct.event_mask {
        out.u32(attr::EVENTMASK, mask);
    }
    if let Some(name) = &ct.timeout {
        out.text(attr::TIMEOUT, name.as_str());
    }
}

fn write_range(out: &mut AttrWriter, range: &NatRange) {
    out.flag(if range.is_dst { nat::DST } else { nat::SRC });
    match &range.addresses {
        None => {}
        Some(NatAddresses::V4(first, last)) => {
            out.put(nat::IP_MIN, &first.octets());
            out.put(nat::IP_MAX, &last.octets());
        }
        Some(NatAddresses::V6(first, last)) => {
            out.put(nat::IP_MIN, &first.octets());
            out.put(nat::IP_MAX, &last.octets());
        }
    }
    if let Some((first, last)) = range.ports {
        out.u16(nat::PROTO_MIN, first);
        out.u16(nat::PROTO_MAX, last);
    }
    for (set, kind) in [
        (range.persistent, nat::PERSISTENT),
        (range.hash, nat::PROTO_HASH),
        (range.random, nat::PROTO_RANDOM),
    ] {
        if set {
            out.flag(kind);
        }
    }
}

/// Parses the attributes within `CT`.
fn read_attributes(attrs: Attrs<'_>) -> Result<CtAction, ActionError> {
    let mut ct = CtAction::default();
    for a in attrs {
        match a.kind {
            attr::COMMIT if ct.commit == CtCommit::No => ct.commit = CtCommit::Yes,
            attr::COMMIT => {}
            attr::FORCE_COMMIT => ct.commit = CtCommit::Force,
            attr::ZONE => ct.zone = a.u16()?,
            attr::MARK => {
                let [value, mask] = halves::<8, 4>(&a)?;
                ct.mark = Some(Masked { value: u32::from_ne_bytes(value), mask: u32::from_ne_bytes(mask) });
            }
            attr::LABELS => {
                let [value, mask] = halves::<32, 16>(&a)?;
                ct.labels =
                    Some(Masked { value: u128::from_ne_bytes(value), mask: u128::from_ne_bytes(mask) });
            }
            attr::HELPER => ct.helper = Some(read_name(&a)?),
            attr::TIMEOUT => ct.timeout = Some(read_name(&a)?),
            attr::NAT => ct.nat = read_range(a.nested()?)?.map_or(CtNat::Known, CtNat::New),
            attr::EVENTMASK => ct.event_mask = Some(a.u32()?),
            _ => return Err(ActionError::Foreign),
        }
    }
    Ok(ct)
}

/// A value and its mask.
fn halves<const BOTH: usize, const ONE: usize>(a: &Attr<'_>) -> Result<[[u8; ONE]; 2], ActionError> {
    let both: [u8; BOTH] = a.array()?;
    let half = |from: usize| std::array::from_fn(|i| both[from + i]);
    Ok([half(0), half(ONE)])
}

fn read_name<const MAX: usize>(a: &Attr<'_>) -> Result<CtName<MAX>, ActionError> {
    a.text().ok().and_then(CtName::new).ok_or(ActionError::Foreign)
}

/// Parses the attributes within `NAT`; `None` without any.
fn read_range(attrs: Attrs<'_>) -> Result<Option<NatRange>, ActionError> {
    if attrs.is_empty() {
        return Ok(None);
    }
    if attrs.into_iter().any(|a| !(nat::SRC..=nat::PROTO_RANDOM).contains(&a.kind)) {
        return Err(ActionError::Foreign);
    }
    let has = |kind| attrs.get(kind).is_some();
    let orphans = has(nat::IP_MAX) && !has(nat::IP_MIN) || has(nat::PROTO_MAX) && !has(nat::PROTO_MIN);
    if has(nat::SRC) == has(nat::DST) || orphans {
        return Err(ActionError::Foreign);
    }
    let addresses = attrs.get(nat::IP_MIN).map(|min| {
        let max = attrs.get(nat::IP_MAX).unwrap_or(min);
        match (min.content.len(), max.content.len()) {
            (4, 4) => {
                Ok(NatAddresses::V4(Ipv4Addr::from(min.array::<4>()?), Ipv4Addr::from(max.array::<4>()?)))
            }
            (16, 16) => {
                Ok(NatAddresses::V6(Ipv6Addr::from(min.array::<16>()?), Ipv6Addr::from(max.array::<16>()?)))
            }
            _ => Err(ActionError::Foreign),
        }
    });
    let ports = attrs.get(nat::PROTO_MIN).map(|min| {
        let max = attrs.get(nat::PROTO_MAX).unwrap_or(min);
        Ok::<_, ActionError>((min.u16()?, max.u16()?))
    });
    Ok(Some(NatRange {
        is_dst: has(nat::DST),
        addresses: addresses.transpose()?,
        ports: ports.transpose()?,
        persistent: has(nat::PERSISTENT),
        hash: has(nat::PROTO_HASH),
        random: has(nat::PROTO_RANDOM),
    }))
}
