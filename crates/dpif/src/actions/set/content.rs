//! [`Content`]: values and masks in the attributes of `set`.

use super::{SET, SET_MASKED};
use crate::nlactions::ActionError;
use flow::nlattr::{Attr, AttrError, AttrWriter};

/// A value with a mask of the bits to write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Masked<T> {
    /// New value, within the mask.
    pub value: T,
    /// Bits to write.
    pub mask: T,
}

/// The single attribute within a `SET` or `SET_MASKED`.
pub(super) struct Content<'a> {
    /// `OVS_KEY_ATTR_*`.
    pub(super) kind: u16,
    /// Value and mask.
    whole: &'a [u8],
    value: &'a [u8],
    /// `None`: a `SET`, which rewrites all of a header.
    mask: Option<&'a [u8]>,
}

impl<'a> Content<'a> {
    pub(super) fn of(attr: &Attr<'a>, is_masked: bool) -> Result<Content<'a>, ActionError> {
        let mut inner = attr.nested()?.into_iter();
        let (Some(Attr { kind, content, .. }), None) = (inner.next(), inner.next()) else {
            return Err(AttrError::Value(attr.kind).into());
        };
        if !is_masked {
            return Ok(Content { kind, whole: content, value: content, mask: None });
        }
        let (value, mask) = content.split_at(content.len() / 2);
        if value.len() != mask.len() {
            return Err(AttrError::Size { kind, has_bytes: content.len() }.into());
        }
        Ok(Content { kind, whole: content, value, mask: Some(mask) })
    }

    /// A whole header, without a mask.
    pub(super) fn plain(&self) -> Result<Attr<'a>, ActionError> {
        match self.mask {
            None => Ok(Attr { kind: self.kind, marked_nested: true, content: self.value }),
            Some(_) => Err(ActionError::Foreign),
        }
    }

    /// A header with attributes, and whether each has a value and a mask.
    pub(super) fn nested(&self) -> (Attr<'a>, bool) {
        (Attr { kind: self.kind, marked_nested: true, content: self.whole }, self.mask.is_some())
    }

    /// A value and its mask. `all`: bits that a `SET` rewrites.
    pub(super) fn masked<const N: usize, T>(
        &self,
        all: [u8; N],
        of: impl Fn(&[u8; N]) -> T,
    ) -> Result<Masked<T>, ActionError> {
        let size = AttrError::Size { kind: self.kind, has_bytes: self.value.len() };
        let value: &[u8; N] = self.value.try_into().map_err(|_| size)?;
        let mask: &[u8; N] = self.mask.unwrap_or(&all).try_into().map_err(|_| size)?;
        let within: [u8; N] = std::array::from_fn(|i| value[i] & mask[i]);
        Ok(Masked { value: of(&within), mask: of(mask) })
    }

    /// Rejects bits without a place in the value.
    pub(super) fn none_of(&self, places: &[usize]) -> Result<(), ActionError> {
        let rewritten = |at: &usize| self.mask.and_then(|mask| mask.get(*at)).is_some_and(|m| *m != 0);
        if places.iter().any(rewritten) { Err(ActionError::Foreign) } else { Ok(()) }
    }
}

/// Appends a `SET_MASKED`.
pub(super) fn put_masked<const N: usize>(out: &mut AttrWriter, key: u16, value: [u8; N], mask: [u8; N]) {
    let within = value.iter().zip(&mask).map(|(v, m)| v & m);
    let both: Vec<u8> = within.chain(mask.iter().copied()).collect();
    out.nested(SET_MASKED, |out| out.put(key, &both));
}

/// Appends a `SET` whose content `inner` writes.
pub(super) fn put_plain(out: &mut AttrWriter, inner: impl FnOnce(&mut AttrWriter)) {
    out.nested(SET, inner);
}

/// Joins the fields of a structure.
pub(super) fn join<const N: usize>(parts: &[&[u8]]) -> [u8; N] {
    let mut out = [0; N];
    let mut at = 0;
    for part in parts {
        out[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    out
}

/// `M` bytes at offset `at` within the structure.
pub(super) fn part<const N: usize, const M: usize>(b: &[u8; N], at: usize) -> [u8; M] {
    std::array::from_fn(|i| b[at + i])
}
