//! `set(nsh(…))`: a network service header (RFC 8300). Each nested attribute has a value and its mask.

use super::content::{Content, Masked};
use super::{Header, SET_MASKED};
use crate::actions::prelude::*;
use crate::text::sets;
use flow::Nsh as Fields;
use flow::nlkey::{parse_nsh, parse_nsh_masked, write_nsh_masked};

/// `OVS_KEY_ATTR_NSH`.
const KEY: u16 = 28;

/// See the module documentation.
pub(super) struct Nsh;

impl Header for Nsh {
    type Value = Masked<Fields>;
    const NAME: &'static str = "nsh";
    const KEY: Option<u16> = Some(KEY);
    const IS_TRANSLATED: bool = true;
    const USERSPACE_LACKS: Option<&'static str> = None;

    fn lacking(_can: &Capabilities) -> Option<&'static str> {
        None
    }

    fn format(value: &Masked<Fields>) -> String {
        format!("nsh({})", sets::nsh_text(&value.value, &value.mask))
    }

    fn parse(item: &Item<'_>) -> Result<Masked<Fields>, TextError> {
        let m = sets::nsh(item, &mut sets::nothing_more)?;
        if m.mask.mdtype != 0 || m.mask.np != 0 {
            return Err(TextError("set(nsh): mdtype and np cannot be written".into()));
        }
        Ok(m)
    }

    fn write(value: &Masked<Fields>, out: &mut AttrWriter) -> Result<(), ActionError> {
        let within = value.value.masked(&value.mask);
        out.nested(SET_MASKED, |out| out.nested(KEY, |out| write_nsh_masked(out, &within, &value.mask)));
        Ok(())
    }

    fn read(content: &Content<'_>) -> Result<Masked<Fields>, ActionError> {
        let (attr, is_masked) = content.nested();
        let (value, mask) = match is_masked {
            true => parse_nsh_masked(attr.nested()?)?,
            false => (parse_nsh(attr.nested()?)?, Fields::ALL),
        };
        match (mask.mdtype, mask.np) {
            (0, 0) => Ok(Masked { value: value.masked(&mask), mask }),
            _ => Err(ActionError::Foreign),
        }
    }
}
