//! Network service headers as nested attributes (`OVS_NSH_KEY_ATTR_*`). Attributes of a masked set have value and mask one
//! after the other.

use crate::nlattr::{AttrError, AttrWriter, Attrs};
use crate::nsh::Nsh;
use packet::headers as h;

/// `OVS_NSH_KEY_ATTR_BASE`.
const BASE: u16 = 1;
/// `OVS_NSH_KEY_ATTR_MD1`.
const MD1: u16 = 2;

/// Appends a header; the contexts only of metadata type 1.
pub fn write_nsh(out: &mut AttrWriter, nsh: &Nsh) {
    out.put(BASE, &nsh.base());
    if nsh.mdtype == h::NSH_MD_TYPE1 {
        out.put(MD1, &nsh.contexts());
    }
}

/// Appends the mask of the header `of`.
pub(super) fn write_nsh_mask(out: &mut AttrWriter, of: &Nsh, mask: &Nsh) {
    out.put(BASE, &mask.base());
    if of.mdtype == h::NSH_MD_TYPE1 {
        out.put(MD1, &mask.contexts());
    }
}

/// Reads a header; also a mask, in which absent contexts are zero.
///
/// # Errors
/// An attribute has the wrong length, or the base is missing.
pub fn parse_nsh(attrs: Attrs<'_>) -> Result<Nsh, AttrError> {
    let base = attrs.require(BASE)?.array()?;
    let contexts = attrs.get(MD1).map(|a| a.array()).transpose()?;
    Ok(Nsh::from_bytes(base, contexts.unwrap_or_default()))
}

/// Appends a value with its mask, as in a masked set.
pub fn write_nsh_masked(out: &mut AttrWriter, value: &Nsh, mask: &Nsh) {
    out.put(BASE, &[value.base(), mask.base()].concat());
    if mask.context != [0; 4] {
        out.put(MD1, &[value.contexts(), mask.contexts()].concat());
    }
}

/// Reads a value with its mask.
///
/// # Errors
/// An attribute has the wrong length.
pub fn parse_nsh_masked(attrs: Attrs<'_>) -> Result<(Nsh, Nsh), AttrError> {
    let base: [u8; 2 * Nsh::BASE_BYTES] = attrs.get(BASE).map(|a| a.array()).transpose()?.unwrap_or_default();
    let contexts = attrs.get(MD1).map(|a| a.array()).transpose()?;
    let contexts: [u8; 2 * Nsh::CONTEXT_BYTES] = contexts.unwrap_or([0; 2 * Nsh::CONTEXT_BYTES]);
    let part = |second: usize| {
        let base = h::array(&base, second * Nsh::BASE_BYTES).unwrap_or_default();
        Nsh::from_bytes(base, h::array(&contexts, second * Nsh::CONTEXT_BYTES).unwrap_or_default())
    };
    Ok((part(0), part(1)))
}
