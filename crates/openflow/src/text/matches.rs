//! Matches in their wire forms, alone: for the commands of `ovs-ofctl` that test codecs.

use crate::{ErrorKind, Version, match10, match11};
use flow::Match;
use ofp_wire::nxm::{self, Unknown, text};
use ofp_wire::{Reader, Writer};

/// The entries of an extensible match.
pub struct ExtensibleMatch(Vec<u8>);

impl ExtensibleMatch {
    /// Reads a line of entries, such as `NXM_OF_ETH_TYPE(0800), NXM_NX_REG0_W(50/f0)`.
    ///
    /// # Errors
    /// The fault, as text.
    pub fn parse(line: &str) -> Result<ExtensibleMatch, String> {
        text::parse_entries(line).map(ExtensibleMatch)
    }

    /// The line that a version writes for the same match; in OpenFlow 1.0 by NXM. Without `strict`, unknown fields and
    /// missing prerequisites are ignored.
    ///
    /// # Errors
    /// That of the match.
    pub fn rewritten(&self, version: Version, strict: bool) -> Result<String, ErrorKind> {
        let unknown = if strict { Unknown::Refuse } else { Unknown::Skip };
        text::rewritten(&self.0, version, unknown)
    }
}

/// The entries that a version writes for a match, without header and padding.
pub fn extensible_match(m: &Match, version: Version) -> Vec<u8> {
    let mut w = Writer::new(version);
    nxm::put_entries(&mut w, m, (0, 0));
    w.buf
}

/// Reads such entries.
///
/// # Errors
/// That of the match.
pub fn read_extensible_match(bytes: &[u8], version: Version) -> Result<Box<Match>, ErrorKind> {
    Ok(nxm::read_entries(&mut Reader::new(bytes, version), Unknown::Refuse)?.matching)
}

/// Entries as text.
///
/// # Errors
/// They are cut short.
pub fn format_match_bytes(bytes: &[u8]) -> Result<String, ErrorKind> {
    text::format_entries(bytes)
}

/// Reads the fixed structure of OpenFlow 1.0 or 1.1, and writes it again.
///
/// # Errors
/// That of the match.
pub fn fixed_match(bytes: &[u8], version: Version) -> Result<(Box<Match>, Vec<u8>), ErrorKind> {
    let mut r = Reader::new(bytes, version);
    let m = match version {
        Version::V10 => match10::read(&mut r)?,
        _ => match11::read_body(&mut r)?,
    };
    let mut w = Writer::new(version);
    put(&mut w, &m);
    Ok((m, w.buf))
}

fn put(w: &mut Writer, m: &Match) {
    if w.version == Version::V10 { match10::put(w, m) } else { match11::put(w, m) }
}

/// Writes the fixed structure of a match in OpenFlow 1.0 or 1.1, and reads it again.
///
/// # Errors
/// That of the match.
pub fn fixed_round_trip(m: &Match, version: Version) -> Result<(Vec<u8>, Box<Match>), ErrorKind> {
    let mut w = Writer::new(version);
    put(&mut w, m);
    let (back, _) = fixed_match(&w.buf, version)?;
    Ok((w.buf, back))
}
