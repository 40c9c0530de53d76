//! Tunnel options in text: `geneve({class=0xffff,type=0x1,len=4,0x12/0xff})`.

use super::TextError;
use super::token::Item;
use super::values::{masked, number};
use super::write::hex;
use flow::{TunnelOptions, Wide};
use std::fmt::Write;

/// Prints options. Without a mask, as in an action, all data is printed.
pub(crate) fn format(options: &TunnelOptions, mask: Option<&TunnelOptions>) -> String {
    let mut out = "geneve(".to_string();
    let mut at = 0;
    for option in options.iter() {
        let len = option.data.len();
        let data = at + 4..at + 4 + len;
        at = data.end;
        let masked =
            mask.map_or(Wide::ones(8 * len as u32), |m| Wide::from_be_bytes(&m.mask_bytes(options)[data]));
        let (class, ty) = (hex(option.class.into()), hex(option.ty.into()));
        let _ = write!(out, "{{class={class},type={ty},len={len}");
        if len != 0 && !masked.is_zero() {
            let _ = write!(out, ",{}", Wide::from_be_bytes(option.data).hex());
            if masked != Wide::ones(8 * len as u32) {
                let _ = write!(out, "/{}", masked.hex());
            }
        }
        out.push('}');
    }
    out.push(')');
    out
}

/// Parses options and their mask; without one, the data is exact. Data left out is 0. Headers are always exact.
pub(crate) fn parse(item: &Item<'_>) -> Result<(TunnelOptions, TunnelOptions), TextError> {
    let mut options = TunnelOptions::default();
    let mut masks = Vec::new();
    for part in item.args()? {
        masks.push(option(part.name, &mut options)?);
    }
    let mut mask = options.header_mask();
    for (n, data) in masks.iter().enumerate() {
        mask.set_data_mask(&options, n, data);
    }
    Ok((options, mask))
}

/// Appends one option; returns the mask of its data.
fn option(text: &str, options: &mut TunnelOptions) -> Result<Vec<u8>, TextError> {
    let bad = |why: &str| TextError(format!("geneve: {why} in {text:?}"));
    let inner = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')).ok_or_else(|| bad("no option"))?;
    let (mut class, mut ty, mut len) = (0, 0, None);
    let mut data = None;
    for part in inner.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        match part.split_once('=') {
            Some(("class", value)) => class = masked(value, 0xffff)?.0 as u16,
            Some(("type", value)) => ty = masked(value, 0xff)?.0 as u8,
            Some(("len", value)) => len = Some(number(value, 124)? as usize),
            Some(_) => return Err(bad("an unknown part")),
            None => data = Some(part),
        }
    }
    let len = len.unwrap_or(0);
    let wide = |text: &str| match Wide::parse(text) {
        Ok(n) if n.bits() <= 8 * len as u32 => Ok(n),
        _ => Err(bad("data that does not fit")),
    };
    let (value, mask) =
        match data.map(|text| text.split_once('/').map_or((text, None), |(v, m)| (v, Some(m)))) {
            None => (Wide::default(), Wide::ones(8 * len as u32)),
            Some((value, None)) => (wide(value)?, Wide::ones(8 * len as u32)),
            Some((value, Some(mask))) => (wide(value)?, wide(mask)?),
        };
    if !options.push(class, ty, &value.to_be_bytes(len)) {
        return Err(bad("a bad length, or options too long,"));
    }
    Ok(mask.to_be_bytes(len))
}
