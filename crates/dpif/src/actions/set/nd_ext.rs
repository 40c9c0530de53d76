//! `set(nd_ext(…))`, unsupported by the kernel.

use super::Header;
use super::content::{Content, Masked};
use crate::actions::prelude::*;
use crate::text::sets;
use crate::text::write::Fields;

/// Reserved bytes of neighbour discovery, and the type of its first option.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct NdExtSet {
    /// Reserved bytes.
    pub reserved: u32,
    /// Type of the first option, 8 bits.
    pub options_type: u16,
}

const LACKING: &str = "rewrite reserved bytes and options of neighbour discovery";

/// See the module documentation.
pub(super) struct NdExt;

impl Header for NdExt {
    type Value = Masked<NdExtSet>;
    const NAME: &'static str = "nd_ext";
    const KEY: Option<u16> = None;
    const IS_TRANSLATED: bool = true;
    const USERSPACE_LACKS: Option<&'static str> = None;

    fn lacking(can: &Capabilities) -> Option<&'static str> {
        (!can.nd_ext).then_some(LACKING)
    }

    fn format(value: &Masked<NdExtSet>) -> String {
        let mut f = Fields::new(false);
        sets::put_nd_ext(&mut f, value);
        f.finish(Self::NAME)
    }

    fn parse(item: &Item<'_>) -> Result<Masked<NdExtSet>, TextError> {
        sets::nd_ext(item)
    }

    fn write(_value: &Masked<NdExtSet>, _out: &mut AttrWriter) -> Result<(), ActionError> {
        Err(ActionError::NeedsEmulation(LACKING))
    }

    fn read(_content: &Content<'_>) -> Result<Masked<NdExtSet>, ActionError> {
        Err(ActionError::Foreign)
    }
}
