//! Entry points for fuzzing: any bytes in, no panic out.

pub use crate::appctl::fuzz::control_arguments;

use crate::appctl::packet_of_hex;
use crate::handover;
use crate::link_protocols;
use crate::state;
use crate::stream::Endpoint;
use vlog::vlog;

/// Operator input: a log specification (`vlog/set`), a connection target, the packet of a trace.
pub fn words(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if vlog().set(text).is_ok() {
        assert!(!vlog().list().is_empty());
    }
    if let Ok(endpoint) = Endpoint::parse(text, 6653) {
        assert_eq!(Endpoint::parse(text, 6653), Ok(endpoint));
    }
    // Any reply will do.
    let _ = probes::parse_request(text);
    if let Ok(packet) = packet_of_hex(text) {
        assert!(packet.len() * 2 <= text.len());
    }
}

/// A file of state.
pub fn saved_state(bytes: &[u8]) {
    state::parse_file(bytes);
}

/// The state of a session of a link protocol from another process.
pub fn saved_session(bytes: &[u8]) {
    link_protocols::fuzz_saved_session(bytes);
}

/// A message of a handover.
pub fn handover_notes(bytes: &[u8]) {
    handover::parse_notes(bytes);
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpus_of_saved_sessions_is_replayed() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/saved_session");
        testkit::replay_corpus(folder, super::saved_session);
    }

    #[test]
    fn the_corpus_of_handover_notes_is_replayed() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/handover_notes");
        testkit::replay_corpus(folder, super::handover_notes);
    }

    #[test]
    fn the_corpus_of_saved_state_is_replayed() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/saved_state");
        testkit::replay_corpus(folder, super::saved_state);
    }

    #[test]
    fn the_corpus_of_words_is_replayed() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/words");
        testkit::replay_corpus(folder, super::words);
    }

    #[test]
    fn the_corpus_of_arguments_is_replayed() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/control_arguments");
        testkit::replay_corpus(folder, super::control_arguments);
    }
}
