//! Entry points for fuzzing: any bytes in, no panic out. Text: [`crate::text::fuzz_text`].

use crate::nlactions::{ActionContext, actions_to_bytes, parse_actions};
use flow::OfPort;

/// Parses a list of actions; if it can be written, it parses again to the same.
pub fn action_list(bytes: &[u8]) {
    let Ok(read) = parse_actions(bytes) else { return };
    let context = ActionContext { upcall_pid: 1, in_port: OfPort(1), bridge: [0; 16], explicit_drop: true };
    if let Ok(written) = actions_to_bytes(&read, &context) {
        let again = parse_actions(&written).expect("what was written");
        // Nothing follows a drop.
        assert!(again.len() <= read.len());
        assert_eq!(actions_to_bytes(&again, &context), Ok(written));
    }
}
