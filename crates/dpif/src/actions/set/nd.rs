//! `set(nd(…))`, unsupported by the kernel.

use super::Header;
use super::content::{Content, Masked};
use crate::actions::prelude::*;
use crate::text::sets;
use crate::text::write::Fields;

/// Neighbour discovery fields.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct NdSet {
    /// Target address.
    pub target: [u8; 16],
    /// Source link-layer address option.
    pub sll: [u8; 6],
    /// Target link-layer address option.
    pub tll: [u8; 6],
}

const LACKING: &str = "rewrite neighbour discovery";

/// See the module documentation.
pub(super) struct Nd;

impl Header for Nd {
    type Value = Masked<NdSet>;
    const NAME: &'static str = "nd";
    const KEY: Option<u16> = None;
    const IS_TRANSLATED: bool = true;
    const USERSPACE_LACKS: Option<&'static str> = None;

    fn lacking(can: &Capabilities) -> Option<&'static str> {
        (!can.set_arp_nd_icmp).then_some(LACKING)
    }

    fn format(value: &Masked<NdSet>) -> String {
        let mut f = Fields::new(false);
        sets::put_nd(&mut f, value);
        f.finish(Self::NAME)
    }

    fn parse(item: &Item<'_>) -> Result<Masked<NdSet>, TextError> {
        sets::nd(item)
    }

    fn write(_value: &Masked<NdSet>, _out: &mut AttrWriter) -> Result<(), ActionError> {
        Err(ActionError::NeedsEmulation(LACKING))
    }

    fn read(_content: &Content<'_>) -> Result<Masked<NdSet>, ActionError> {
        Err(ActionError::Foreign)
    }
}
