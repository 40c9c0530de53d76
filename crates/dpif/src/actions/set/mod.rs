//! `set`: rewrites fields of one header (`OVS_ACTION_ATTR_SET_MASKED` with an inner attribute: `OVS_KEY_ATTR_*`, a
//! value, then its mask; `OVS_ACTION_ATTR_SET`, without a mask). One file per header or family of headers with the
//! same structure, one line of the list each.
//!
//! The structures are those of keys, including read-only fields (protocol and fragment bits of IP), whose masks are
//! zero. Values are zero outside their masks: the kernel rejects others.

mod arp;
mod content;
mod eth;
mod ipv4;
mod ipv6;
mod metadata;
mod mpls;
mod nd;
mod nd_ext;
mod nsh;
mod ports;
mod tunnel;

pub use arp::ArpSet;
pub use content::Masked;
pub use eth::EthSet;
pub use ipv4::Ipv4Set;
pub use ipv6::Ipv6Set;
pub use nd::NdSet;
pub use nd_ext::NdExtSet;
pub use ports::PortsSet;

use super::prelude::*;
use super::text::is_same;
use content::Content;
use flow::OuterHeaders;

/// `OVS_ACTION_ATTR_SET`.
const SET: u16 = 3;
/// `OVS_ACTION_ATTR_SET_MASKED`.
const SET_MASKED: u16 = 11;

/// One header, or one metadata field, rewritten by `set`. As with actions, no method has a default.
trait Header {
    /// Content of the action.
    type Value;

    /// Word within `set(…)`.
    const NAME: &'static str;

    /// Its `OVS_KEY_ATTR_*` in the kernel.
    const KEY: Option<u16>;

    /// Whether translations rewrite it.
    const IS_TRANSLATED: bool;

    /// The words of the action, if the userspace datapath lacks it.
    const USERSPACE_LACKS: Option<&'static str>;

    /// The feature missing from a datapath with these capabilities.
    fn lacking(can: &Capabilities) -> Option<&'static str>;

    /// Prints word and fields.
    fn format(value: &Self::Value) -> String;

    /// Parses word and fields.
    fn parse(item: &Item<'_>) -> Result<Self::Value, TextError>;

    /// Appends the whole action.
    fn write(value: &Self::Value, out: &mut AttrWriter) -> Result<(), ActionError>;

    /// Reads the content of an attribute of the type [`Header::KEY`].
    fn read(content: &Content<'_>) -> Result<Self::Value, ActionError>;
}

macro_rules! headers {
    ($($(#[$doc:meta])* $variant:ident($value:ty): $header:ty,)*) => {
        /// Rewrites one header, which the flow's key must have.
        #[derive(Clone, PartialEq, Eq, Hash, Debug)]
        pub enum SetAction {
            $($(#[$doc])* $variant($value),)*
        }

        /// Words and attributes of headers.
        const HEADERS: &[(&str, Option<u16>)] = &[$((<$header as Header>::NAME, <$header as Header>::KEY),)*];

        impl SetAction {
            fn is_header_translated(&self) -> bool {
                match self { $(SetAction::$variant(_) => <$header as Header>::IS_TRANSLATED,)* }
            }

            fn header_lacks(&self) -> Option<&'static str> {
                match self { $(SetAction::$variant(_) => <$header as Header>::USERSPACE_LACKS,)* }
            }

            fn header_lacking(&self, can: &Capabilities) -> Option<&'static str> {
                match self { $(SetAction::$variant(_) => <$header as Header>::lacking(can),)* }
            }

            fn format_header(&self) -> String {
                match self { $(SetAction::$variant(value) => <$header as Header>::format(value),)* }
            }

            fn write_header(&self, out: &mut AttrWriter) -> Result<(), ActionError> {
                match self { $(SetAction::$variant(value) => <$header as Header>::write(value, out),)* }
            }

            fn parse_header(item: &Item<'_>) -> Result<SetAction, TextError> {
                match item.name {
                    $(<$header as Header>::NAME => <$header as Header>::parse(item).map(SetAction::$variant),)*
                    _ => Err(item.unknown("set")),
                }
            }

            fn read_header(content: &Content<'_>) -> Result<SetAction, ActionError> {
                $(if <$header as Header>::KEY == Some(content.kind) {
                    return <$header as Header>::read(content).map(SetAction::$variant);
                })*
                Err(ActionError::Foreign)
            }
        }
    };
}

headers! {
    /// Ethernet.
    Eth(Masked<EthSet>): eth::Eth,
    /// IPv4; updates checksums.
    Ipv4(Masked<Ipv4Set>): ipv4::Ipv4,
    /// IPv6; updates checksums.
    Ipv6(Masked<Ipv6Set>): ipv6::Ipv6,
    /// TCP ports.
    Tcp(Masked<PortsSet>): ports::Tcp,
    /// UDP ports.
    Udp(Masked<PortsSet>): ports::Udp,
    /// SCTP ports.
    Sctp(Masked<PortsSet>): ports::Sctp,
    /// ICMP type and code.
    Icmp(Masked<PortsSet>): ports::Icmp,
    /// ICMPv6 type and code.
    Icmpv6(Masked<PortsSet>): ports::Icmpv6,
    /// ARP.
    Arp(Masked<ArpSet>): arp::Arp,
    /// Neighbour discovery.
    Nd(Masked<NdSet>): nd::Nd,
    /// Reserved bytes and option type of neighbour discovery.
    NdExt(Masked<NdExtSet>): nd_ext::NdExt,
    /// Packet mark.
    SkbMark(Masked<u32>): metadata::SkbMark,
    /// Packet priority.
    SkbPriority(u32): metadata::SkbPriority,
    /// Outer headers for the next tunnel output.
    Tunnel(Box<OuterHeaders>): tunnel::Outer,
    /// The first entry of an MPLS label stack.
    Mpls(Masked<u32>): mpls::Mpls,
    /// A network service header, without metadata type and next protocol.
    Nsh(Masked<flow::Nsh>): nsh::Nsh,
}

const _: () = assert!(headers_are_distinct(HEADERS), "two headers have the same word or attribute");

const fn headers_are_distinct(headers: &[(&str, Option<u16>)]) -> bool {
    let mut i = 0;
    while i < headers.len() {
        let mut j = i + 1;
        while j < headers.len() {
            let same_key = match (headers[i].1, headers[j].1) {
                (Some(a), Some(b)) => a == b,
                (None, _) | (_, None) => false,
            };
            if same_key || is_same(headers[i].0, headers[j].0) {
                return false;
            }
            j += 1;
        }
        i += 1;
    }
    true
}

impl Action for SetAction {
    const WORDS: &'static [Word] = &[call("set")];
    const ATTRS: &'static [u16] = &[SET, SET_MASKED];
    const EFFECT: Effect = Effect::None;
    const ENDS_LIST: bool = false;

    fn lists(&self) -> Lists<'_> {
        NO_LISTS
    }

    fn as_rewrite(&self) -> Option<Rewrite<'_>> {
        Some(Rewrite::Set(self))
    }

    fn is_translated(&self) -> bool {
        self.is_header_translated()
    }

    fn userspace_lacks(&self) -> Option<&'static str> {
        self.header_lacks()
    }

    fn lacking(&self, can: &Capabilities) -> Option<&'static str> {
        self.header_lacking(can)
    }

    fn format(&self, _names: &dyn PortNames) -> String {
        format!("set({})", self.format_header())
    }

    fn parse(item: &Item<'_>, _parser: &Parser<'_>) -> Result<SetAction, TextError> {
        match item.args()? {
            [one] => SetAction::parse_header(one),
            _ => Err(TextError("set: exactly one header expected".into())),
        }
    }

    fn write(&self, out: &mut AttrWriter, _writer: &Writer<'_>) -> Result<(), ActionError> {
        self.write_header(out)
    }

    fn read(attr: &Attr<'_>, _reader: &Reader) -> Result<SetAction, ActionError> {
        SetAction::read_header(&Content::of(attr, attr.kind == SET_MASKED)?)
    }

    #[inline(always)]
    fn execute<X: Executor>(&self, x: &mut X, packets: X::Packets) -> ExecResult<X> {
        x.rewrite(packets, Rewrite::Set(self))
    }
}
