//! Entry points for fuzzing: any bytes in, no panic out.

use crate::link::links_of;

/// Any bytes as rtnetlink messages about links.
pub fn link_messages(bytes: &[u8]) {
    for link in links_of(bytes) {
        // Parsed names end at a zero byte.
        assert!(!link.name.contains('\0') && !link.kind.contains('\0'));
    }
}
