//! Entry points for fuzzing: any bytes in, no panic out.

use crate::text::{FlowModCommand, check_actions, format_actions, parse_flow_file, parse_flow_mod};
use crate::{CheckContext, put_actions, put_instructions};
use flow::text::NoPortNames;
use flow::{Match, TableId};
use ofp_wire::{Reader, Version, Writer};

/// Parses bytes as flow modifications and as a file of them.
pub fn parse_flow_mods(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for command in FlowModCommand::ALL {
        let _ = parse_flow_mod(text, command, &NoPortNames);
    }
    let _ = parse_flow_file(text, None, &NoPortNames);
}

/// Parses bytes as a list of actions. Parsed actions must print, and parse again to the same actions.
pub fn parse_actions(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(actions) = crate::text::parse_actions(text, &NoPortNames) {
        let printed = format_actions(&actions, &NoPortNames);
        let again = crate::text::parse_actions(&printed, &NoPortNames);
        assert_eq!(again.as_ref(), Ok(&actions), "{text:?} printed as {printed:?}");
    }
}

/// Reads actions and instructions from the wire, checks them against matches, prints and writes them.
pub fn read_actions(bytes: &[u8]) {
    for version in (1..=6).map(Version) {
        let lists = [
            crate::read_actions(&mut Reader::new(bytes, version)),
            crate::read_instructions(&mut Reader::new(bytes, version)),
        ];
        for list in lists.into_iter().flatten() {
            let cx = CheckContext {
                version,
                max_ports: 0xff00,
                n_tables: 254,
                table: Some(TableId(0)),
                debug_actions: true,
            };
            // Must only terminate.
            let _ = crate::check_actions(&list, &Match::catchall(), &cx);
            let _ = check_actions(&Match::catchall(), Some(TableId(0)), &list);
            let _ = format_actions(&list, &NoPortNames);
            put_actions(&mut Writer::new(version), list.iter(), &Match::catchall());
            put_instructions(&mut Writer::new(version.max(Version::V11)), &list, &Match::catchall());
        }
    }
}
