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

const ICMP_LACKING: &str = "rewrite ICMP";
const ICMPV6_LACKING: &str = "rewrite ICMPv6";

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

/// `tcp`.
pub(super) struct Tcp;

impl Header for Tcp {
    type Value = Masked<PortsSet>;
    const NAME: &'static str = "tcp";
    const KEY: Option<u16> = Some(TCP);
    const IS_TRANSLATED: bool = true;
    const USERSPACE_LACKS: Option<&'static str> = None;

    fn lacking(_can: &Capabilities) -> Option<&'static str> {
        None
    }

    fn format(value: &Masked<PortsSet>) -> String {
        let mut f = Fields::new(false);
        sets::put_ports(&mut f, value, PORTS, 0xffff);
        f.finish(Self::NAME)
    }

    fn parse(item: &Item<'_>) -> Result<Masked<PortsSet>, TextError> {
        sets::ports(item, PORTS, 0xffff)
    }

    fn write(value: &Masked<PortsSet>, out: &mut AttrWriter) -> Result<(), ActionError> {
        put(out, TCP, value);
        Ok(())
    }

    fn read(content: &Content<'_>) -> Result<Masked<PortsSet>, ActionError> {
        read(content)
    }
}

/// `udp`.
pub(super) struct Udp;

impl Header for Udp {
    type Value = Masked<PortsSet>;
    const NAME: &'static str = "udp";
    const KEY: Option<u16> = Some(UDP);
    const IS_TRANSLATED: bool = true;
    const USERSPACE_LACKS: Option<&'static str> = None;

    fn lacking(_can: &Capabilities) -> Option<&'static str> {
        None
    }

    fn format(value: &Masked<PortsSet>) -> String {
        let mut f = Fields::new(false);
        sets::put_ports(&mut f, value, PORTS, 0xffff);
        f.finish(Self::NAME)
    }

    fn parse(item: &Item<'_>) -> Result<Masked<PortsSet>, TextError> {
        sets::ports(item, PORTS, 0xffff)
    }

    fn write(value: &Masked<PortsSet>, out: &mut AttrWriter) -> Result<(), ActionError> {
        put(out, UDP, value);
        Ok(())
    }

    fn read(content: &Content<'_>) -> Result<Masked<PortsSet>, ActionError> {
        read(content)
    }
}

/// `sctp`.
pub(super) struct Sctp;

impl Header for Sctp {
    type Value = Masked<PortsSet>;
    const NAME: &'static str = "sctp";
    const KEY: Option<u16> = Some(SCTP);
    const IS_TRANSLATED: bool = true;
    const USERSPACE_LACKS: Option<&'static str> = None;

    fn lacking(_can: &Capabilities) -> Option<&'static str> {
        None
    }

    fn format(value: &Masked<PortsSet>) -> String {
        let mut f = Fields::new(false);
        sets::put_ports(&mut f, value, PORTS, 0xffff);
        f.finish(Self::NAME)
    }

    fn parse(item: &Item<'_>) -> Result<Masked<PortsSet>, TextError> {
        sets::ports(item, PORTS, 0xffff)
    }

    fn write(value: &Masked<PortsSet>, out: &mut AttrWriter) -> Result<(), ActionError> {
        put(out, SCTP, value);
        Ok(())
    }

    fn read(content: &Content<'_>) -> Result<Masked<PortsSet>, ActionError> {
        read(content)
    }
}

/// `icmp`.
pub(super) struct Icmp;

impl Header for Icmp {
    type Value = Masked<PortsSet>;
    const NAME: &'static str = "icmp";
    const KEY: Option<u16> = None;
    const IS_TRANSLATED: bool = true;
    const USERSPACE_LACKS: Option<&'static str> = None;

    fn lacking(can: &Capabilities) -> Option<&'static str> {
        (!can.set_arp_nd_icmp).then_some(ICMP_LACKING)
    }

    fn format(value: &Masked<PortsSet>) -> String {
        let mut f = Fields::new(false);
        sets::put_ports(&mut f, value, KIND, 0xff);
        f.finish(Self::NAME)
    }

    fn parse(item: &Item<'_>) -> Result<Masked<PortsSet>, TextError> {
        sets::ports(item, KIND, 0xff)
    }

    fn write(_value: &Masked<PortsSet>, _out: &mut AttrWriter) -> Result<(), ActionError> {
        Err(ActionError::NeedsEmulation(ICMP_LACKING))
    }

    fn read(_content: &Content<'_>) -> Result<Masked<PortsSet>, ActionError> {
        Err(ActionError::Foreign)
    }
}

/// `icmpv6`.
pub(super) struct Icmpv6;

impl Header for Icmpv6 {
    type Value = Masked<PortsSet>;
    const NAME: &'static str = "icmpv6";
    const KEY: Option<u16> = None;
    const IS_TRANSLATED: bool = true;
    const USERSPACE_LACKS: Option<&'static str> = None;

    fn lacking(can: &Capabilities) -> Option<&'static str> {
        (!can.set_arp_nd_icmp).then_some(ICMPV6_LACKING)
    }

    fn format(value: &Masked<PortsSet>) -> String {
        let mut f = Fields::new(false);
        sets::put_ports(&mut f, value, KIND, 0xff);
        f.finish(Self::NAME)
    }

    fn parse(item: &Item<'_>) -> Result<Masked<PortsSet>, TextError> {
        sets::ports(item, KIND, 0xff)
    }

    fn write(_value: &Masked<PortsSet>, _out: &mut AttrWriter) -> Result<(), ActionError> {
        Err(ActionError::NeedsEmulation(ICMPV6_LACKING))
    }

    fn read(_content: &Content<'_>) -> Result<Masked<PortsSet>, ActionError> {
        Err(ActionError::Foreign)
    }
}
