//! `psample`: a copy of the packet for readers of samples, with a group and a cookie (Linux 6.11).

use super::prelude::*;
use crate::text::values::number;

/// Longest cookie (`OVS_PSAMPLE_COOKIE_MAX_SIZE`).
const COOKIE_MAX_BYTES: usize = 16;

/// Hands the first bytes of the packet to readers of samples. The packet itself goes on.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Psample {
    /// Number of the group of readers.
    pub group: u32,
    /// Bytes for the reader, at most 16; empty: none. Translations write the observation domain and the observation
    /// point of `sample`, each of four bytes, most significant first.
    pub cookie: Box<[u8]>,
}

/// `OVS_PSAMPLE_ATTR_*`.
mod attr {
    pub(super) const GROUP: u16 = 1;
    pub(super) const COOKIE: u16 = 2;
}

/// `OVS_ACTION_ATTR_PSAMPLE`.
const ATTR: u16 = 25;

impl Action for Psample {
    const WORDS: &'static [Word] = &[call("psample")];
    const ATTRS: &'static [u16] = &[ATTR];
    const EFFECT: Effect = Effect::Samples;
    const ENDS_LIST: bool = false;
    both_datapaths!();

    fn lists(&self) -> Lists<'_> {
        NO_LISTS
    }

    fn as_rewrite(&self) -> Option<Rewrite<'_>> {
        None
    }

    fn format(&self, _names: &dyn PortNames) -> String {
        if self.cookie.is_empty() {
            return format!("psample(group={})", self.group);
        }
        // As OVS, without leading zeros: the text of zeros alone is 0.
        let value = self.cookie.iter().fold(0u128, |value, byte| value << 8 | u128::from(*byte));
        let cookie = if value == 0 { "0".into() } else { format!("0x{value:x}") };
        format!("psample(group={},cookie={cookie})", self.group)
    }

    fn parse(item: &Item<'_>, _parser: &Parser<'_>) -> Result<Psample, TextError> {
        let (mut group, mut cookie) = (None, None);
        for field in item.args()? {
            let is_new = match field.name {
                "group" => group.replace(number(field.value()?, u32::MAX.into())? as u32).is_none(),
                "cookie" => cookie.replace(parse_cookie(field.value()?)?).is_none(),
                _ => return Err(field.unknown(item.name)),
            };
            if !is_new {
                return Err(TextError(format!("psample: {} is given twice", field.name)));
            }
        }
        let group = group.ok_or_else(|| TextError("psample: group=NUMBER is missing".into()))?;
        Ok(Psample { group, cookie: cookie.unwrap_or_default() })
    }

    fn write(&self, out: &mut AttrWriter, _writer: &Writer<'_>) -> Result<(), ActionError> {
        out.nested(ATTR, |out| {
            out.u32(attr::GROUP, self.group);
            if !self.cookie.is_empty() {
                out.put(attr::COOKIE, &self.cookie);
            }
        });
        Ok(())
    }

    fn read(attr: &Attr<'_>, _reader: &Reader) -> Result<Psample, ActionError> {
        let inner = attr.nested()?;
        if inner.into_iter().any(|a| !matches!(a.kind, attr::GROUP | attr::COOKIE)) {
            return Err(ActionError::Foreign);
        }
        let group = inner.require(attr::GROUP)?.u32()?;
        let cookie = inner.get(attr::COOKIE).map(|a| a.content);
        if cookie.is_some_and(|c| c.is_empty() || c.len() > COOKIE_MAX_BYTES) {
            return Err(ActionError::Foreign);
        }
        Ok(Psample { group, cookie: cookie.unwrap_or_default().into() })
    }

    fn execute<X: Executor>(&self, x: &mut X, packets: X::Packets) -> ExecResult<X> {
        x.psample(packets, self)
    }
}

/// The bytes of `0x` and hexadecimal digits. An odd number of them lacks a leading zero.
fn parse_cookie(text: &str) -> Result<Box<[u8]>, TextError> {
    let bad = || {
        TextError(format!("psample: cookie {text:?} is not 0x and at most {} digits", 2 * COOKIE_MAX_BYTES))
    };
    let digits = if text == "0" { text } else { text.strip_prefix("0x").ok_or_else(bad)? };
    let bytes = digits.len().div_ceil(2);
    let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    if !is_hex || bytes == 0 || bytes > COOKIE_MAX_BYTES {
        return Err(bad());
    }
    let value = u128::from_str_radix(digits, 16).map_err(|_| bad())?;
    Ok(value.to_be_bytes()[COOKIE_MAX_BYTES - bytes..].into())
}
