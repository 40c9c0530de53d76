//! Fuzz targets: any bytes in; a panic only if an invariant of the codec is violated.
//!
//! `corpus/` has inputs that once violated one; the tests replay them.

use crate::codec::{HEADER_BYTES, decode_with, encode_with};
use crate::msg::Message;
use crate::msg::continuation::Continuation;
use crate::msg::group::GroupModCommand;
use crate::msg::meter::MeterModCommand;
use crate::session::{Config, Session};
use crate::text::{
    Printing, format_group, format_message, format_meter, parse_ct_flush, parse_group_mod, parse_meter_mod,
};
use crate::{match10, match11};
use flow::Match;
use flow::fields::FieldId;
use flow::text::NoPortNames;
use ofp_wire::Version;
use ofp_wire::nxm::{self, Unknown};
use ofp_wire::{Options, Reader, Writer};

/// Bounds of the text of a message: bytes in all, and for each byte of the message.
const TEXT_MAX: usize = 4096;
const TEXT_FACTOR: usize = 256;

/// Splits an encoder's output into messages.
pub fn split_frames(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    while bytes.len() >= HEADER_BYTES {
        let len = usize::from(u16::from_be_bytes([bytes[2], bytes[3]]));
        if len < HEADER_BYTES || len > bytes.len() {
            break;
        }
        let (frame, rest) = bytes.split_at(len);
        frames.push(frame);
        bytes = rest;
    }
    frames
}

/// Entries of a match as text: what is read is printed, and reads as the same; structures of matches read and write.
pub fn match_entries(bytes: &[u8]) {
    for version in [Version::V10, Version::V11] {
        if let Ok((_, again)) = crate::text::fixed_match(bytes, version) {
            assert!(crate::text::fixed_match(&again, version).is_ok());
        }
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(entries) = nxm::text::parse_entries(text) else { return };
    let printed = nxm::text::format_entries(&entries);
    // Headers of unknown fields have no name.
    if let Some(Ok(again)) = printed.ok().map(|printed| nxm::text::parse_entries(&printed)) {
        assert_eq!(again, entries, "{text}");
    }
    for version in [Version::V10, Version::V12, Version::V15] {
        for unknown in [Unknown::Refuse, Unknown::Skip] {
            let _ = nxm::text::rewritten(&entries, version, unknown);
        }
    }
}

/// Describes, prints and decodes a message. A decoded message encodes (unless too long), the encoding decodes, and further rounds
/// change nothing.
pub fn decode_message(bytes: &[u8]) {
    for table_id_in_command in [false, true] {
        let options = Options { table_id_in_command, ..Options::DEFAULT };
        let line = crate::text::describe(bytes, &options);
        assert!(line.contains(" (xid=0x"), "{line}");
        for verbosity in [0, 5] {
            let how = Printing { options: &options, names: &NoPortNames, verbosity };
            let text = format_message(bytes, how);
            assert!(text.ends_with('\n') && text.len() <= TEXT_MAX + TEXT_FACTOR * bytes.len(), "{text}");
        }
        let Ok((version, xid, message)) = decode_with(bytes, &options) else { continue };
        if let Message::Resume(m) = &message {
            decode_continuation(&m.continuation, version, &options);
        }
        let Some(second) = round_trip(&message, version, xid, &options) else { continue };
        let Some(third) = round_trip(&second, version, xid, &options) else { continue };
        assert_eq!(second, third, "encoding is not stable");
    }
}

/// Decodes a continuation. Its own encoding decodes to a continuation that is encoded alike.
fn decode_continuation(bytes: &[u8], version: Version, options: &Options) {
    let Ok(first) = Continuation::decode(bytes, version, options) else { return };
    let Some(encoded) = first.encode(version, options) else { return };
    let second = Continuation::decode(&encoded, version, options).expect("written by the switch");
    assert_eq!(second.encode(version, options), Some(encoded), "encoding is not stable");
}

/// Encodes and decodes; `None` if it exceeds one message.
fn round_trip(message: &Message, version: Version, xid: u32, options: &Options) -> Option<Message> {
    let bytes = encode_with(message, version, xid, options).ok()?;
    let frames = split_frames(&bytes);
    let [frame] = frames[..] else { return None };
    match decode_with(frame, options) {
        Ok((.., back)) => Some(back),
        Err(e) => panic!("what was encoded does not decode: {e}: {message:?}"),
    }
}

/// The match in the fields of a version: from OpenFlow 1.1 on, "no tag" excludes the priority, which such
/// packets lack.
fn in_version(version: Version, mut m: Match) -> Match {
    let (tci, mask) = m.get(FieldId::VlanTci);
    if version >= Version::V11 && tci == 0 && mask == 0xffff {
        m.set_masked(FieldId::VlanTci, 0, 0x1fff);
    }
    m
}

/// Decodes a match in each form; its encoding must decode equally.
pub fn roundtrip_match(bytes: &[u8]) {
    for version in [Version::V10, Version::V11, Version::V12, Version::V13, Version::V15] {
        if let Ok(d) = nxm::read_entries(&mut Reader::new(bytes, version), Unknown::Refuse) {
            let mut w = Writer::new(version);
            nxm::put_entries(&mut w, &d.matching, d.cookie.unwrap_or((0, 0)));
            let back = nxm::read_entries(&mut Reader::new(&w.buf, version), Unknown::Refuse);
            let back =
                back.unwrap_or_else(|e| panic!("what was written does not read: {e}: {:?}", d.matching));
            assert_eq!(*back.matching, in_version(version, *d.matching));
        }
    }
    if let Ok(m) = match10::read(&mut Reader::new(bytes, Version::V10)) {
        assert!(match10::fits(&m), "what OpenFlow 1.0 tells it tells again: {m:?}");
    }
    // Either structure reads as it was written.
    for version in [Version::V11, Version::V13] {
        let Ok(m) = match11::read(&mut Reader::new(bytes, version), Unknown::Refuse) else { continue };
        let mut w = Writer::new(version);
        match11::put_whole(&mut w, &m);
        let again = match11::read(&mut Reader::new(&w.buf, version), Unknown::Refuse);
        let of_version = Box::new(in_version(version, *m));
        assert!(again.as_ref() == Ok(&m) || again == Ok(of_version), "{m:?}: {again:?}");
    }
}

/// Parses a group modification; a printed group parses to the same.
pub fn group_text(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let commands = [GroupModCommand::Add, GroupModCommand::InsertBucket, GroupModCommand::Delete];
    for command in commands {
        let Ok(parsed) = parse_group_mod(text, command, &NoPortNames) else { continue };
        let printed = format_group(&parsed.group, true, &NoPortNames);
        if command == GroupModCommand::Add {
            let again = parse_group_mod(&printed, command, &NoPortNames);
            let again = again.unwrap_or_else(|e| panic!("{printed}: {}", e.message));
            assert_eq!(format_group(&again.group, true, &NoPortNames), printed);
        }
    }
}

/// Parses a selection of connections; encoded, it decodes to the same.
pub fn ct_flush_text(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(flush) = parse_ct_flush(text.split(' ')) else { return };
    let message = Message::CtFlush(flush);
    let again = round_trip(&message, Version::V13, 1, &Options::default());
    assert_eq!(again, Some(message), "{text:?}");
}

/// Parses a meter modification. A message of it is printed with the same number.
pub fn meter_text(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for command in [MeterModCommand::Add, MeterModCommand::Delete] {
        let Ok(parsed) = parse_meter_mod(text, command) else { continue };
        let id = parsed.meter.id;
        if command != MeterModCommand::Delete {
            let again = parse_meter_mod(&format_meter(&parsed.meter), command);
            assert_eq!(again.as_ref(), Ok(&parsed), "{text:?}");
        }
        let message = Message::MeterMod(parsed);
        let Ok(frame) = encode_with(&message, Version::V13, 1, &Options::DEFAULT) else { continue };
        let how = Printing { options: &Options::DEFAULT, names: &NoPortNames, verbosity: 0 };
        let printed = format_message(&frame, how);
        let named = id > 0xffff_0000 || printed.contains("error") || printed.contains(&format!("meter={id}"));
        assert!(named, "{text}: {printed}");
    }
}

/// Reads a capture and the messages in it.
pub fn capture(bytes: &[u8]) {
    let Ok(packets) = crate::pcap::packets(bytes) else { return };
    let mut streams = crate::pcap::Streams::default();
    for packet in packets {
        let Some((_, unread)) = streams.take(packet, &[]) else { continue };
        while crate::text::split_frame(unread).is_some() {}
        assert!(unread.len() <= bytes.len());
    }
}

/// Feeds a session in pieces, whose length is the first byte. The result must not depend on it.
pub fn session(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else { return };
    let hello = [1, 0, 0, 8, 0, 0, 0, 1];
    let mut whole = Session::new(Config::default(), 0);
    let mut pieces = Session::new(Config::default(), 0);
    whole.input(&hello, 0);
    pieces.input(&hello, 0);
    let a = whole.input(rest, 1);
    let mut b = Vec::new();
    for piece in rest.chunks(usize::from(*first).max(1)) {
        b.extend(pieces.input(piece, 1));
    }
    assert_eq!(a, b);
    assert_eq!(whole.output(), pieces.output());
}
