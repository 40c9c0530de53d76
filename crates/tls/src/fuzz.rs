//! Entry points for fuzzing: any bytes in, no panic out.

use crate::protocols::Protocols;

/// Operator input: the list of `--ssl-protocols`.
pub fn protocols(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(parsed) = Protocols::parse(text) {
        assert_eq!(Protocols::parse(&format!("{text},{text}")), Ok(parsed));
    }
}
