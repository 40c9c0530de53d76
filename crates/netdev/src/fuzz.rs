//! Entry points for fuzzing: any bytes in, no panic out.

use crate::link::links_of;

/// Any bytes as what the kernel says about links (rtnetlink).
pub fn link_messages(bytes: &[u8]) {
    for link in links_of(bytes) {
        // A name that the kernel gives has no zero byte in it: the text ends there.
        assert!(!link.name.contains('\0') && !link.kind.contains('\0'));
    }
}
