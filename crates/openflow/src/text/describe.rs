//! A message for the log, as `ovs-ofctl` and OVS print it.

use super::name::{be32, name, version_text};
use super::print::{Printing, format_message};
use flow::text::NoPortNames;
use ofp_wire::Options;

/// The text of a message on a connection with these options, without a newline at its end. If a message is cut
/// short or cannot be decoded only name, version and transaction id may be left.
pub fn describe(frame: &[u8], options: &Options) -> String {
    let len = frame.get(2..4).map(|len| usize::from(u16::from_be_bytes([len[0], len[1]])));
    let named = name(frame);
    if named.is_some() && len == Some(frame.len()) {
        let text = format_message(frame, Printing { options, names: &NoPortNames, verbosity: 1 });
        // One that cannot be decoded may have no title.
        if !text.starts_with("***") {
            return text.trim_end().to_string();
        }
    }
    let version = version_text(frame.first().copied().unwrap_or_default());
    let xid = be32(frame, 4).unwrap_or_default();
    format!("{}{version} (xid={xid:#x}):", named.unwrap_or_else(|| "unknown message".to_string()))
}
