//! `set(tunnel(…))`: outer headers for the next tunnel output. They are set as a whole, by a `SET`.

use super::Header;
use super::content::{Content, put_plain};
use crate::actions::prelude::*;
use crate::text::sets;
use crate::text::write::Fields;
use flow::OuterHeaders;
use flow::nlkey::{Fitness, parse_tunnel, write_tunnel};

/// `OVS_KEY_ATTR_TUNNEL`.
const KEY: u16 = 16;

/// See the module documentation.
pub(super) struct Outer;

impl Header for Outer {
    type Value = Box<OuterHeaders>;
    const NAME: &'static str = "tunnel";
    const KEY: Option<u16> = Some(KEY);
    const IS_TRANSLATED: bool = true;
    const USERSPACE_LACKS: Option<&'static str> = Some("set(tunnel)");

    fn lacking(_can: &Capabilities) -> Option<&'static str> {
        None
    }

    fn format(value: &Box<OuterHeaders>) -> String {
        let mut f = Fields::new(false);
        sets::put_tunnel(&mut f, value, None);
        f.finish(Self::NAME)
    }

    fn parse(item: &Item<'_>) -> Result<Box<OuterHeaders>, TextError> {
        sets::tunnel(item).map(|both| Box::new(both.value))
    }

    fn write(value: &Box<OuterHeaders>, out: &mut AttrWriter) -> Result<(), ActionError> {
        put_plain(out, |out| out.nested(KEY, |out| write_tunnel(out, value)));
        Ok(())
    }

    fn read(content: &Content<'_>) -> Result<Box<OuterHeaders>, ActionError> {
        match parse_tunnel(content.plain()?.nested()?)? {
            (outer, Fitness::Perfect) if outer.tunnel.is_some() => Ok(Box::new(outer)),
            _ => Err(ActionError::Foreign),
        }
    }
}
