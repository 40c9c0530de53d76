//! Entry points for fuzzing: any bytes in, no panic out. What parses must print, and what was printed must parse again
//! to the same value.

use super::{NoPortNames, format_actions, format_match, parse_match};

/// Reads bytes as a match and as an `add-flow` line.
pub fn parse_flow(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(m) = parse_match(text, &NoPortNames) {
        let printed = format_match(&m, None);
        let again = parse_match(&printed, &NoPortNames);
        assert!(again.is_ok(), "{text:?} printed as {printed:?}, which does not parse: {again:?}");
    }
    for command in super::FlowModCommand::ALL {
        let _ = super::parse_flow_mod(text, command, &NoPortNames);
    }
    let _ = super::parse_exact_flow(text, &NoPortNames);
    let _ = super::parse_flow_file(text, &NoPortNames);
}

/// Reads bytes as a list of actions.
pub fn parse_actions(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(actions) = super::parse_actions(text, &NoPortNames) {
        let printed = format_actions(&actions, &NoPortNames);
        let again = super::parse_actions(&printed, &NoPortNames);
        assert_eq!(again.as_ref(), Ok(&actions), "{text:?} printed as {printed:?}");
    }
}
