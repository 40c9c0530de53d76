//! A message on a line for the log: name, version and transaction id, as `ovs-ofctl` prints them, and the contents of
//! hellos and rule changes. Contents of other messages are left out.

use super::name::{be32, name, version_text};
use super::print::flow_mod;
use crate::{Message, Version, decode_with};
use flow::text::NoPortNames;
use ofp_wire::Options;

/// The line of a message, which may be cut short, on a connection with these options.
pub fn describe(frame: &[u8], options: &Options) -> String {
    let version = frame.first().copied().unwrap_or_default();
    let named = version_text(version);
    let xid = be32(frame, 4).unwrap_or_default();
    let name = name(frame).unwrap_or_else(|| "unknown message".to_string());
    format!("{name}{named} (xid={xid:#x}):{}", body(frame, options))
}

/// The contents of some messages.
fn body(frame: &[u8], options: &Options) -> String {
    let Ok((version, _, message)) = decode_with(frame, options) else { return String::new() };
    if let Message::Hello(hello) = &message {
        let bits: Vec<_> = (1..=31u8)
            .filter(|n| hello.versions.contains(Version(*n)))
            .map(|n| format!("0x{n:02x}"))
            .collect();
        format!("\n version bitmap: {}", bits.join(", "))
    } else if let Message::FlowMod(m) = &message {
        flow_mod(m, version, options, &NoPortNames)
    } else if let Message::FlowModTableId(on) = message {
        if on { " enable" } else { " disable" }.to_string()
    } else {
        String::new()
    }
}
