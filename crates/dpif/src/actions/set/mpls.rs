//! `set(mpls(…))`: the first entry of an MPLS label stack (RFC 3032).

use super::Header;
use super::content::{Content, Masked, put_masked};
use crate::actions::prelude::*;
use crate::text::key::label;
use crate::text::sets;

/// `OVS_KEY_ATTR_MPLS`.
const KEY: u16 = 21;

/// See the module documentation.
pub(super) struct Mpls;

impl Header for Mpls {
    type Value = Masked<u32>;
    const NAME: &'static str = "mpls";
    const KEY: Option<u16> = Some(KEY);
    const IS_TRANSLATED: bool = true;
    const USERSPACE_LACKS: Option<&'static str> = None;

    fn lacking(_can: &Capabilities) -> Option<&'static str> {
        None
    }

    fn format(value: &Masked<u32>) -> String {
        format!("mpls({})", label(value.value, (value.mask != u32::MAX).then_some(value.mask)))
    }

    fn parse(item: &Item<'_>) -> Result<Masked<u32>, TextError> {
        sets::mpls(item)
    }

    fn write(value: &Masked<u32>, out: &mut AttrWriter) -> Result<(), ActionError> {
        put_masked(out, KEY, value.value.to_be_bytes(), value.mask.to_be_bytes());
        Ok(())
    }

    fn read(content: &Content<'_>) -> Result<Masked<u32>, ActionError> {
        content.masked([0xff; 4], |b| u32::from_be_bytes(*b))
    }
}
