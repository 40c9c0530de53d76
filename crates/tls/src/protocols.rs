//! [`Protocols`]: the TLS versions of `--ssl-protocols`.

use openssl::ssl::{SslOptions, SslVersion};

/// Versions by name, oldest first.
const VERSIONS: [(&str, SslOptions); 4] = [
    ("TLSv1", SslOptions::NO_TLSV1),
    ("TLSv1.1", SslOptions::NO_TLSV1_1),
    ("TLSv1.2", SslOptions::NO_TLSV1_2),
    ("TLSv1.3", SslOptions::NO_TLSV1_3),
];
/// The versions that OVS 3.5 deprecates.
const DEPRECATED: [bool; 4] = [true, true, false, false];

/// Enabled TLS versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Protocols([bool; 4]);

/// A word that is no version, or no range of versions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownProtocol(pub String);

impl Default for Protocols {
    /// TLS 1.2 and later, as OVS 3.5.
    fn default() -> Protocols {
        Protocols([false, false, true, true])
    }
}

fn version(word: &str) -> Result<usize, UnknownProtocol> {
    let found = VERSIONS.iter().position(|(name, _)| name.eq_ignore_ascii_case(word));
    found.ok_or_else(|| UnknownProtocol(word.to_string()))
}

impl Protocols {
    /// Parses versions separated by commas, blanks or tabs: `TLSv1.2`, a range `TLSv1.1-TLSv1.2`, or `TLSv1.2+` with
    /// all later ones.
    ///
    /// # Errors
    /// A word is unknown, a range is empty, or there is no word.
    pub fn parse(text: &str) -> Result<Protocols, UnknownProtocol> {
        let mut enabled = [false; 4];
        for word in text.split([',', ' ', '\t']).filter(|word| !word.is_empty()) {
            let (first, last) = match (word.strip_suffix('+'), word.split_once('-')) {
                (Some(first), _) => (version(first)?, VERSIONS.len() - 1),
                (None, Some((first, last))) => (version(first)?, version(last)?),
                (None, None) => (version(word)?, version(word)?),
            };
            if first > last {
                return Err(UnknownProtocol(word.to_string()));
            }
            enabled[first..=last].fill(true);
        }
        if enabled == [false; 4] {
            return Err(UnknownProtocol(text.to_string()));
        }
        Ok(Protocols(enabled))
    }

    /// Enabled versions that OVS deprecates.
    pub fn deprecated(self) -> impl Iterator<Item = &'static str> {
        let old = self.0.into_iter().zip(DEPRECATED).map(|(enabled, deprecated)| enabled && deprecated);
        old.zip(VERSIONS).filter(|(old, _)| *old).map(|(_, (name, _))| name)
    }

    /// The options that disable all other versions.
    pub(crate) fn disabled(self) -> SslOptions {
        let base = SslOptions::NO_SSLV2 | SslOptions::NO_SSLV3;
        let off = self.0.into_iter().zip(VERSIONS).filter(|(enabled, _)| !enabled);
        off.fold(base, |all, (_, (_, option))| all | option)
    }

    /// The oldest enabled version. A system's configuration may have another minimum, which this replaces.
    pub(crate) fn oldest(self) -> SslVersion {
        let all = [SslVersion::TLS1, SslVersion::TLS1_1, SslVersion::TLS1_2, SslVersion::TLS1_3];
        let oldest = self.0.into_iter().zip(all).find(|(enabled, _)| *enabled);
        oldest.map_or(SslVersion::TLS1_2, |(_, version)| version)
    }
}
