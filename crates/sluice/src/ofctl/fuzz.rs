//! Fuzz targets of `sluice ofctl`: texts that only this program reads, and its command lines.

use openflow::msg::packet::PacketOut;
use openflow::{Message, Multi, Options as Wire, Version, decode_with, encode_with};

use super::commands::How;
use super::connection::Names;
use super::options::{Options, Request, parse};
use super::{color, find, flows, groups, hints, ports, probe, saved, tables, tlv, transaction, watch};
use crate::fuzz::{text, words};
use crate::pki;
use flow::fields::FieldId;
use flow::text::{NoPortNames, format_match};
use ofp_actions::text::format_actions;

/// Commands that read only their arguments, and print nothing themselves.
const PURE: [&str; 8] = [
    "check-vlan",
    "compose-packet",
    "encode-error-reply",
    "encode-hello",
    "list-commands",
    "ofp-print",
    "parse-key-value",
    "print-error",
];

/// Mappings of tunnel options: printed they read as the same.
pub fn tlv_maps(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let Ok(maps) = tlv::parse(text) else { return };
    let printed: Vec<String> = maps.iter().map(tlv::text).collect();
    assert_eq!(tlv::parse(&printed.join(",")).ok(), Some(maps), "{text:?}");
}

/// A file of `sluice save`: each part parses or is refused.
pub fn saved_file(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let Ok(sections) = saved::file::read(text) else { return };
    for line in sections.iter().flat_map(|section| &section.lines) {
        saved::is_readable(line);
    }
}

/// A packet to send: printed it reads as the same, and it has a message.
pub fn packet_out(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let Ok(out) = flows::parse_packet_out(text, &NoPortNames) else { return };
    let hex: String = out.data.iter().map(|byte| format!("{byte:02x}")).collect();
    let actions = format_actions(&out.actions, &NoPortNames);
    let mut fields = *out.metadata;
    let (packet_type, mask) = fields.get(FieldId::PacketType);
    fields.set_masked(FieldId::PacketType, 0, 0);
    let typed = format!(",packet_type=({},{:#x})", packet_type >> 16, packet_type & 0xffff);
    let typed = if mask == 0 { "" } else { &typed };
    let fields = format_match(&fields, None);
    let again = format!("in_port={}{typed},{fields},packet={hex},actions={actions}", out.in_port.0);
    assert_eq!(flows::parse_packet_out(&again, &NoPortNames).ok(), Some(out.clone()), "{text:?}: {again:?}");
    encoded(out);
}

/// The message of a packet decodes.
fn encoded(out: PacketOut) {
    let message = Message::PacketOut(out);
    for version in [Version::V10, Version::V13, Version::V15] {
        let Ok(frame) = encode_with(&message, version, 1, &Wire::DEFAULT) else { continue };
        assert!(decode_with(&frame, &Wire::DEFAULT).is_ok(), "{message:?}");
    }
}

/// Arguments of `monitor` behind the bridge: each flow monitor has a message.
pub fn monitor_arguments(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let Ok(asked) = watch::parse(&words(text), &Names::default()) else { return };
    for monitor in asked.monitors {
        let message = Message::FlowMonitorRequest(Multi::all(vec![monitor]));
        for version in [Version::V10, Version::V13, Version::V15] {
            let frame =
                encode_with(&message, version, 1, &Wire::DEFAULT).expect("a monitor fits into a message");
            assert!(decode_with(&frame, &Wire::DEFAULT).is_ok(), "{text:?}: {message:?}");
        }
    }
}

/// Lines of the file of `bundle`.
pub fn bundle_lines(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    for line in text.lines() {
        let _ = transaction::parse(line, &Options::new(), &Names::default());
    }
}

/// Rules in colours: without the colours they are the same as before.
pub fn colored_rules(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    // The text of a switch has no escapes; the colours of the environment come first.
    let (colors, rules) = text.split_once('\n').unwrap_or(("", text));
    if rules.contains('\x1b') {
        return;
    }
    let painted = color::rules(rules, colors);
    let plain = |part: &str| part[part.find(['m', 'K']).map_or(part.len(), |at| at + 1)..].to_string();
    let parts = painted.split('\x1b').enumerate();
    let stripped: String =
        parts.map(|(n, part)| if n == 0 { part.to_string() } else { plain(part) }).collect();
    assert_eq!(stripped, rules, "{colors:?}");
}

/// A command line: its options and arguments; commands that need nothing else run.
pub fn ofctl_words(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let line = words(text);
    let _hint = hints::mistyped(text);
    for word in &line {
        let _ = (
            tables::change(word),
            tables::table(word, &Names::default()),
            probe::size(word),
            groups::asked(word),
        );
        let _ = (ports::setting(word), pki::has(word));
    }
    let Ok(Request::Run(mut options, args)) = parse(&line) else { return };
    options.pcap = false;
    let _ = flows::fields(&options.order);
    let Some((name, args)) = args.split_first() else { return };
    let Ok(command) = find(&options, name, args) else { return };
    let (least, most) = command.arity();
    assert!((least..=most).contains(&args.len()), "{line:?}");
    if let How::Alone(run) = command.how
        && PURE.contains(&command.name)
        && let Ok(out) = run(&options, args)
    {
        assert!(out.is_empty() || out.ends_with('\n'), "{line:?}: {out:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::super::commands::COMMANDS;
    use super::PURE;

    #[test]
    fn commands_that_run_exist() {
        for name in PURE {
            assert!(COMMANDS.iter().any(|command| command.name == name), "{name}");
        }
    }
}
