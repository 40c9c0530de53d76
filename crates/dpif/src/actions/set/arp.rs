//! `set(arp(…))`, unsupported by the kernel.

use super::Header;
use super::content::{Content, Masked};
use crate::actions::prelude::*;
use crate::text::sets;
use crate::text::write::Fields;

/// ARP fields.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ArpSet {
    /// Opcode.
    pub op: u16,
    /// Sender hardware address.
    pub sha: [u8; 6],
    /// Target hardware address.
    pub tha: [u8; 6],
    /// Sender protocol address.
    pub spa: u32,
    /// Target protocol address.
    pub tpa: u32,
}

const LACKING: &str = "rewrite ARP";

/// See the module documentation.
pub(super) struct Arp;

impl Header for Arp {
    type Value = Masked<ArpSet>;
    const NAME: &'static str = "arp";
    const KEY: Option<u16> = None;
    const IS_TRANSLATED: bool = true;
    const USERSPACE_LACKS: Option<&'static str> = None;

    fn lacking(can: &Capabilities) -> Option<&'static str> {
        (!can.set_arp_nd_icmp).then_some(LACKING)
    }

    fn format(value: &Masked<ArpSet>) -> String {
        let mut f = Fields::new(false);
        sets::put_arp(&mut f, value, 0xffff);
        f.finish(Self::NAME)
    }

    fn parse(item: &Item<'_>) -> Result<Masked<ArpSet>, TextError> {
        sets::arp(item)
    }

    fn write(_value: &Masked<ArpSet>, _out: &mut AttrWriter) -> Result<(), ActionError> {
        Err(ActionError::NeedsEmulation(LACKING))
    }

    fn read(_content: &Content<'_>) -> Result<Masked<ArpSet>, ActionError> {
        Err(ActionError::Foreign)
    }
}
