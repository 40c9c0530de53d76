//! `set(tcp(…))`, `set(udp(…))`, `set(sctp(…))`: source and destination port; `set(icmp(…))`, `set(icmpv6(…))`: type
//! and code, unsupported by the kernel.

use super::Header;
use super::content::{Content, Masked, join, part, put_masked};
use crate::actions::prelude::*;
use crate::text::sets;
use crate::text::write::Fields;

/// Source and destination port, or ICMP type and code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PortsSet {
    /// Source port or type.
    pub src: u16,
    /// Destination port or code.
    pub dst: u16,
}

/// `OVS_KEY_ATTR_TCP`.
const TCP: u16 = 9;
/// `OVS_KEY_ATTR_UDP`.
const UDP: u16 = 10;
/// `OVS_KEY_ATTR_SCTP`.
const SCTP: u16 = 17;

/// Names of the fields in text.
const PORTS: [&str; 2] = ["src", "dst"];
const KIND: [&str; 2] = ["type", "code"];

fn format(value: &Masked<PortsSet>, name: &str, fields: [&str; 2], full: u16) -> String {
    let mut f = Fields::new(false);
    sets::put_ports(&mut f, value, fields, full);
    f.finish(name)
}

fn put(out: &mut AttrWriter, key: u16, m: &Masked<PortsSet>) {
    let bytes = |p: &PortsSet| join::<4>(&[&p.src.to_be_bytes(), &p.dst.to_be_bytes()]);
    put_masked(out, key, bytes(&m.value), bytes(&m.mask));
}

fn read(content: &Content<'_>) -> Result<Masked<PortsSet>, ActionError> {
    content.masked([0xff; 4], |b| PortsSet {
        src: u16::from_be_bytes(part(b, 0)),
        dst: u16::from_be_bytes(part(b, 2)),
    })
}

/// The ports of a transport protocol: its text word and its key attribute.
macro_rules! transport_ports {
    ($(#[$doc:meta] $protocol:ident($name:literal, $key:expr);)*) => {$(
        #[$doc]
        pub(super) struct $protocol;

        impl Header for $protocol {
            type Value = Masked<PortsSet>;
            const NAME: &'static str = $name;
            const KEY: Option<u16> = Some($key);
            const IS_TRANSLATED: bool = true;
            const USERSPACE_LACKS: Option<&'static str> = None;

            fn lacking(_can: &Capabilities) -> Option<&'static str> {
                None
            }

            fn format(value: &Masked<PortsSet>) -> String {
                format(value, Self::NAME, PORTS, 0xffff)
            }

            fn parse(item: &Item<'_>) -> Result<Masked<PortsSet>, TextError> {
                sets::ports(item, PORTS, 0xffff)
            }

            fn write(value: &Masked<PortsSet>, out: &mut AttrWriter) -> Result<(), ActionError> {
                put(out, $key, value);
                Ok(())
            }

            fn read(content: &Content<'_>) -> Result<Masked<PortsSet>, ActionError> {
                read(content)
            }
        }
    )*};
}

/// Type and code of a version of ICMP: its text word, and the error of a datapath that cannot rewrite it.
macro_rules! type_and_code {
    ($(#[$doc:meta] $protocol:ident($name:literal, $lacking:literal);)*) => {$(
        #[$doc]
        pub(super) struct $protocol;

        impl Header for $protocol {
            type Value = Masked<PortsSet>;
            const NAME: &'static str = $name;
            const KEY: Option<u16> = None;
            const IS_TRANSLATED: bool = true;
            const USERSPACE_LACKS: Option<&'static str> = None;

            fn lacking(can: &Capabilities) -> Option<&'static str> {
                (!can.set_arp_nd_icmp).then_some($lacking)
            }

            fn format(value: &Masked<PortsSet>) -> String {
                format(value, Self::NAME, KIND, 0xff)
            }

            fn parse(item: &Item<'_>) -> Result<Masked<PortsSet>, TextError> {
                sets::ports(item, KIND, 0xff)
            }

            fn write(_value: &Masked<PortsSet>, _out: &mut AttrWriter) -> Result<(), ActionError> {
                Err(ActionError::NeedsEmulation($lacking))
            }

            fn read(_content: &Content<'_>) -> Result<Masked<PortsSet>, ActionError> {
                Err(ActionError::Foreign)
            }
        }
    )*};
}

transport_ports! {
    /// `tcp`.
    Tcp("tcp", TCP);
    /// `udp`.
    Udp("udp", UDP);
    /// `sctp`.
    Sctp("sctp", SCTP);
}

type_and_code! {
    /// `icmp`.
    Icmp("icmp", "rewrite ICMP");
    /// `icmpv6`.
    Icmpv6("icmpv6", "rewrite ICMPv6");
}
