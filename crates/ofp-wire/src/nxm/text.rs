//! Entries of extensible matches as text, header by header: `NXM_OF_ETH_TYPE(0800), NXM_NX_REG0_W(50/f0)`. For the commands
//! of `ovs-ofctl` that test codecs.

use super::{
    CLASS_EXPERIMENTER, COOKIE, Header, Unknown, choose_header, put_entries, put_raw_header, read_entries,
};
use crate::error::ONF_VENDOR;
use crate::version::Version;
use crate::wire::{Reader, Res, Writer};
use flow::fields::OxmId;
use flow::text::header_names;
use std::fmt::Write as _;

/// A header by its name.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Named {
    id: OxmId,
    experimenter: Option<u32>,
    len: u8,
    maskable: bool,
}

/// The cookie's name.
const COOKIE_NAME: &str = "NXM_NX_COOKIE";
/// Names of fields before a version made them basic.
const ONF_PREFIX: &str = "ONFOXM_ET_";

fn named(name: &str) -> Option<Named> {
    if name == COOKIE_NAME {
        return Some(Named { id: COOKIE, experimenter: None, len: 8, maskable: true });
    }
    let basic = name.strip_prefix(ONF_PREFIX).map(|rest| format!("OXM_OF_{rest}"));
    let (field, _) = header_names().iter().find(|(_, n)| *n == basic.as_deref().unwrap_or(name))?;
    let def = field.def();
    let (id, experimenter) = match (basic, def.oxm) {
        (Some(_), Some((id, _))) => (OxmId { class: CLASS_EXPERIMENTER, ..id }, Some(ONF_VENDOR)),
        (None, Some((id, _))) if !name.starts_with("NX") => (id, None),
        _ => choose_header(*field, Version::V10)?,
    };
    Some(Named { id, experimenter, len: def.wire_bytes, maskable: def.maskable })
}

/// The name of a header, without the suffix of a mask.
fn name_of(header: &Header) -> String {
    let is =
        |name: &str| named(name).is_some_and(|n| n.id == header.id && n.experimenter == header.experimenter);
    if header.is_cookie() {
        return COOKIE_NAME.to_string();
    }
    if let Some((_, name)) = header_names().iter().find(|(_, name)| is(name)) {
        return name.to_string();
    }
    let onf = header_names().iter().filter_map(|(_, name)| name.strip_prefix("OXM_OF_"));
    let onf = onf.map(|rest| format!("{ONF_PREFIX}{rest}")).find(|name| is(name));
    onf.unwrap_or_else(|| format!("{:04x}{:02x}", header.id.class, header.id.field))
}

/// Reads pairs of hexadecimal digits, exactly `len` of them; returns the rest.
fn hex<'a>(w: &mut Writer, text: &'a str, len: u8) -> Result<&'a str, String> {
    let digits = text.bytes().take_while(u8::is_ascii_hexdigit).count();
    if digits / 2 != usize::from(len) || !digits.is_multiple_of(2) {
        return Err(format!("expected to read {len} bytes but got {}", digits / 2));
    }
    for at in (0..digits).step_by(2) {
        w.u8(u8::from_str_radix(&text[at..at + 2], 16).unwrap_or_default());
    }
    Ok(&text[digits..])
}

/// Writes one entry; returns the text after it.
fn entry<'a>(w: &mut Writer, text: &'a str) -> Result<&'a str, String> {
    let Some((name, value)) = text.split_once('(') else {
        return Err(format!("{text}: an entry needs its value in parentheses"));
    };
    let digits = name.len() == 8 && name.bytes().all(|b| b.is_ascii_hexdigit());
    let header = u32::from_str_radix(name, 16).ok().filter(|_| digits);
    let (plain, masked) = name.strip_suffix("_W").map_or((name, false), |plain| (plain, true));
    let len = match (header, named(plain).filter(|n| n.maskable || !masked)) {
        (Some(header), _) => {
            w.u32(header);
            if header & 0x100 != 0 { header as u8 / 2 } else { header as u8 }
        }
        (None, Some(n)) => {
            put_raw_header(w, n.id, n.experimenter, masked, n.len);
            n.len
        }
        (None, None) => return Err(format!("{text}: unknown field \"{name}\"")),
    };
    let masked = masked || header.is_some_and(|header| header & 0x100 != 0);
    let mut rest = hex(w, value, len)?;
    if masked {
        let Some(mask) = rest.strip_prefix('/') else {
            return Err(format!("{text}: missing / and a mask after the value"));
        };
        rest = hex(w, mask, len)?;
    }
    rest.strip_prefix(')').ok_or_else(|| format!("{text}: missing ) after the value"))
}

/// The entries of a line: names or eight digits of headers, each with a value of hexadecimal digits, and a mask if its
/// name ends in `_W`. `<any>` has none.
///
/// # Errors
/// An unknown name, or a value of another length.
pub fn parse_entries(text: &str) -> Result<Vec<u8>, String> {
    let separators = [',', ' ', '\t'];
    let mut w = Writer::new(Version::V10);
    let mut rest = if text.trim() == "<any>" { "" } else { text.trim_matches(separators) };
    while !rest.is_empty() {
        rest = entry(&mut w, rest)?.trim_start_matches(separators);
    }
    Ok(w.buf)
}

/// The text of entries.
///
/// # Errors
/// They are cut short.
pub fn format_entries(bytes: &[u8]) -> Res<String> {
    if bytes.is_empty() {
        return Ok("<any>".to_string());
    }
    let mut r = Reader::new(bytes, Version::V10);
    let mut out = String::new();
    while !r.is_empty() {
        let header = Header::read(&mut r)?;
        let len = if header.has_mask { header.payload_len / 2 } else { header.payload_len };
        let separator = if out.is_empty() { "" } else { ", " };
        out += &format!("{separator}{}{}(", name_of(&header), if header.has_mask { "_W" } else { "" });
        for (at, byte) in r.bytes(header.payload_len)?.iter().enumerate() {
            let slash = if header.has_mask && at == len { "/" } else { "" };
            let _infallible = write!(out, "{slash}{byte:02x}");
        }
        out.push(')');
    }
    Ok(out)
}

/// Reads entries as a match, in OpenFlow 1.0 that of Nicira, and returns what a switch or controller of this version
/// writes for it.
///
/// # Errors
/// That of the match.
pub fn rewritten(bytes: &[u8], version: Version, unknown: Unknown) -> Res<String> {
    let decoded = read_entries(&mut Reader::new(bytes, version), unknown)?;
    let mut w = Writer::new(version);
    let cookie = decoded.cookie.filter(|_| version == Version::V10);
    put_entries(&mut w, &decoded.matching, cookie.unwrap_or_default());
    format_entries(&w.buf)
}
