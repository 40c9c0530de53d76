//! `set(skb_mark(…))`, `set(skb_priority(…))`: mark and priority of the packet.

use super::Header;
use super::content::{Content, Masked, put_masked};
use crate::actions::prelude::*;
use crate::text::values::{masked, number};
use crate::text::write::hex;

/// `OVS_KEY_ATTR_PRIORITY`.
const PRIORITY: u16 = 2;
/// `OVS_KEY_ATTR_SKB_MARK`.
const MARK: u16 = 15;

/// `skb_mark`.
pub(super) struct SkbMark;

impl Header for SkbMark {
    type Value = Masked<u32>;
    const NAME: &'static str = "skb_mark";
    const KEY: Option<u16> = Some(MARK);
    const IS_TRANSLATED: bool = true;
    const USERSPACE_LACKS: Option<&'static str> = None;

    fn lacking(_can: &Capabilities) -> Option<&'static str> {
        None
    }

    fn format(value: &Masked<u32>) -> String {
        let (mark, mask) = (hex(value.value.into()), hex(value.mask.into()));
        if value.mask == u32::MAX { format!("skb_mark({mark})") } else { format!("skb_mark({mark}/{mask})") }
    }

    fn parse(item: &Item<'_>) -> Result<Masked<u32>, TextError> {
        let (value, mask) = masked(item.word()?, u32::MAX.into())?;
        Ok(Masked { value: value as u32, mask: mask as u32 })
    }

    fn write(value: &Masked<u32>, out: &mut AttrWriter) -> Result<(), ActionError> {
        put_masked(out, MARK, value.value.to_ne_bytes(), value.mask.to_ne_bytes());
        Ok(())
    }

    fn read(content: &Content<'_>) -> Result<Masked<u32>, ActionError> {
        content.masked([0xff; 4], |b| u32::from_ne_bytes(*b))
    }
}

/// `skb_priority`.
pub(super) struct SkbPriority;

impl Header for SkbPriority {
    type Value = u32;
    const NAME: &'static str = "skb_priority";
    const KEY: Option<u16> = Some(PRIORITY);
    const IS_TRANSLATED: bool = true;
    const USERSPACE_LACKS: Option<&'static str> = None;

    fn lacking(_can: &Capabilities) -> Option<&'static str> {
        None
    }

    fn format(value: &u32) -> String {
        format!("skb_priority({})", hex((*value).into()))
    }

    fn parse(item: &Item<'_>) -> Result<u32, TextError> {
        number(item.word()?, u32::MAX.into()).map(|n| n as u32)
    }

    fn write(value: &u32, out: &mut AttrWriter) -> Result<(), ActionError> {
        put_masked(out, PRIORITY, value.to_ne_bytes(), [0xff; 4]);
        Ok(())
    }

    fn read(content: &Content<'_>) -> Result<u32, ActionError> {
        let m = content.masked([0xff; 4], |b| u32::from_ne_bytes(*b))?;
        if m.mask == u32::MAX { Ok(m.value) } else { Err(ActionError::Foreign) }
    }
}
