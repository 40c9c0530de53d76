//! Fuzz targets: any bytes in, no panic out. Parsed values must print, and printed text must parse to the
//! same value.

use super::{NoPortNames, format_match, parse_match};

/// Parses bytes as a match and as a packet.
pub fn parse_flow(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(m) = parse_match(text, &NoPortNames) {
        let printed = format_match(&m, None);
        let again = parse_match(&printed, &NoPortNames);
        assert!(again.is_ok(), "{text:?} printed as {printed:?}, which does not parse: {again:?}");
    }
    let _ = super::parse_exact_flow(text, &NoPortNames);
}
