//! `set(tunnel(…))`: outer headers for the next tunnel output. They are set as a whole, by a `SET`.

use super::Header;
use super::content::{Content, put_plain};
use crate::actions::prelude::*;
use crate::text::sets;
use crate::text::write::Fields;
use flow::Tunnel;
use flow::nlkey::{Fitness, parse_tunnel, write_tunnel};

/// `OVS_KEY_ATTR_TUNNEL`.
const KEY: u16 = 16;

/// See the module documentation.
pub(super) struct Outer;

impl Header for Outer {
    type Value = Tunnel;
    const NAME: &'static str = "tunnel";
    const KEY: Option<u16> = Some(KEY);
    const IS_TRANSLATED: bool = true;
    const USERSPACE_LACKS: Option<&'static str> = Some("set(tunnel)");

    fn lacking(_can: &Capabilities) -> Option<&'static str> {
        None
    }

    fn format(value: &Tunnel) -> String {
        let mut f = Fields::new(false);
        sets::put_tunnel(&mut f, value, None);
        f.finish(Self::NAME)
    }

    fn parse(item: &Item<'_>) -> Result<Tunnel, TextError> {
        sets::tunnel(item).map(|both| both.value)
    }

    fn write(value: &Tunnel, out: &mut AttrWriter) -> Result<(), ActionError> {
        put_plain(out, |out| out.nested(KEY, |out| write_tunnel(out, value)));
        Ok(())
    }

    fn read(content: &Content<'_>) -> Result<Tunnel, ActionError> {
        match parse_tunnel(content.plain()?.nested()?)? {
            (tunnel, Fitness::Perfect) if tunnel.is_some() => Ok(tunnel),
            _ => Err(ActionError::Foreign),
        }
    }
}
