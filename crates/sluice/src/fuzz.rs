//! Fuzz targets: any text of a command line or of a daemon in, no panic out. Values that have a text are printed and read as the
//! same.
//!
//! No target connects to a switch or reads a file that its input names.

pub use crate::appctl::fuzz::{appctl_words, completed_words, status_reply};
pub use crate::ofctl::fuzz::{
    bundle_lines, colored_rules, monitor_arguments, ofctl_words, packet_out, saved_file, tlv_maps,
};
pub use crate::vsctl::fuzz::{vsctl_commands, vsctl_values};

/// The text of an input.
pub(crate) fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// A command line: words separated by blanks, so that words of an input may be empty.
pub(crate) fn words(line: &str) -> Vec<String> {
    line.split(' ').map(String::from).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpora_are_replayed() {
        for (name, target) in [
            ("appctl_words", super::appctl_words as fn(&[u8])),
            ("bundle_lines", super::bundle_lines),
            ("colored_rules", super::colored_rules),
            ("completed_words", super::completed_words),
            ("monitor_arguments", super::monitor_arguments),
            ("ofctl_words", super::ofctl_words),
            ("packet_out", super::packet_out),
            ("saved_file", super::saved_file),
            ("status_reply", super::status_reply),
            ("tlv_maps", super::tlv_maps),
            ("vsctl_commands", super::vsctl_commands),
            ("vsctl_values", super::vsctl_values),
        ] {
            testkit::replay_corpus(format!("{}/corpus/{name}", env!("CARGO_MANIFEST_DIR")), target);
        }
    }
}
