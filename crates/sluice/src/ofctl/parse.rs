//! Commands that need no switch: messages, rules and packets in texts and files, as text.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail};
use flow::compose::{Payload, compose};
use flow::text::token::Tokens;
use flow::text::{NoPortNames, parse_exact_flow};
use flow::{Protocols, TableId};
use ofp_actions::text::{FlowModCommand, FlowModText, format_actions, parse_flow_file, parse_flow_mod};
use openflow::msg::control::Hello;
use openflow::msg::group::GroupModCommand;
use openflow::pcap::{self, Streams};
use openflow::text::{
    Printing, flow_mod_of, format_message, hex_dump, packet_text, parse_group_mod, split_frame,
};
use openflow::{ErrorKind, Format, Message, OfError, Options as Wire, Version, VersionSet, encode_with};

use super::flows::{hex_bytes, read_bytes, read_file};
use super::groups::protocols;
use super::options::{self, Options};
use crate::hint::hint;
use crate::remote::print;

/// Verbosity of `ofp-print` without another one.
const VERBOSITY: u8 = 2;
/// Versions with their names.
const VERSIONS: [(Version, &str); 6] = [
    (Version::V10, "OpenFlow 1.0"),
    (Version::V11, "OpenFlow 1.1"),
    (Version::V12, "OpenFlow 1.2"),
    (Version::V13, "OpenFlow 1.3"),
    (Version::V14, "OpenFlow 1.4"),
    (Version::V15, "OpenFlow 1.5"),
];

/// On a connection that uses all extensions.
fn wire() -> Wire {
    Wire { table_id_in_command: true, ..Wire::DEFAULT }
}

fn text_of(frame: &[u8], verbosity: u8) -> String {
    format_message(frame, Printing { options: &wire(), names: &NoPortNames, verbosity })
}

/// Pairs of hexadecimal digits, among blanks.
pub(super) fn hex(text: &str) -> Result<Vec<u8>> {
    hex_bytes(text.chars().filter(|c| !c.is_whitespace())).context("trailing garbage following hex bytes")
}

pub(super) fn ofp_print(options: &Options, args: &[String]) -> Result<String> {
    let verbosity = match args.get(1) {
        Some(text) => text.parse().with_context(|| format!("{text}: not a verbosity"))?,
        None => VERBOSITY + options.more,
    };
    Ok(text_of(&hex(&args[0])?, verbosity))
}

pub(super) fn ofp_parse(options: &Options, args: &[String]) -> Result<String> {
    let mut bytes = read_bytes(&args[0])?;
    let mut out = String::new();
    while let Some(frame) = split_frame(&mut bytes) {
        out += &text_of(&frame, VERBOSITY + options.more);
    }
    if bytes.is_empty() {
        return Ok(out);
    }
    print(&out);
    bail!("{}: the last message is cut short: {} bytes are left", args[0], bytes.len())
}

pub(super) fn ofp_parse_pcap(options: &Options, args: &[String]) -> Result<String> {
    let bytes = read_bytes(&args[0])?;
    let ports: Result<Vec<u16>> =
        args[1..].iter().map(|text| text.parse().with_context(|| format!("{text}: not a port"))).collect();
    let mut ports = ports?;
    if ports.is_empty() {
        ports = vec![6653, 6633];
    }
    let mut streams = Streams::default();
    let mut out = String::new();
    for packet in pcap::packets(&bytes).map_err(|error| anyhow!("{}: {error}", args[0]))? {
        let Some((direction, unread)) = streams.take(packet, &ports) else { continue };
        while let Some(frame) = split_frame(unread) {
            let text = text_of(&frame, 1 + options.more);
            // As ovs-ofctl, an empty line follows each message that can be read.
            let end = if text.contains("***decode error") { "" } else { "\n" };
            let _infallible = write!(out, "{direction}:\n{text}{end}");
        }
    }
    Ok(out)
}

/// Messages as text, with transactions from 1 on, in one flow format.
fn printed(options: &Options, format: Protocols, messages: Vec<Message>) -> Result<String> {
    let version = Version(format.versions().next().unwrap_or(Version::V10.0));
    // The reader takes the number of a table from the command; formats without it write 0 there.
    let wire = Wire { table_id_in_command: format.meets(Protocols::TABLE_ID), ..Wire::DEFAULT };
    let mut out = String::new();
    for (xid, message) in (1..).zip(messages) {
        let bytes = encode_with(&message, version, xid, &wire)
            .map_err(|error| anyhow!("OpenFlow cannot express it in this version: {error} (-O)"))?;
        out += &text_of(&bytes, options.more);
    }
    Ok(out)
}

/// Prints the usable flow formats, and chooses the first permitted one.
fn choose(options: &Options, usable: Protocols) -> Result<Protocols> {
    print(&format!("usable protocols: {usable}\n"));
    (usable & options.allowed(false)).first().context("no usable protocol")
}

/// Nicira's forms in its formats.
fn form(format: Protocols) -> Format {
    if format.meets(Protocols::NXM) { Format::Nxt } else { Format::Standard }
}

fn parsed(options: &Options, rules: Vec<FlowModText>) -> Result<String> {
    let usable = rules.iter().fold(Protocols::ANY, |all, rule| all & rule.protocols);
    let format = choose(options, usable)?;
    // Both forms of OpenFlow 1.0 leave the table to the switch.
    let all = format.meets(Protocols::OF10 | Protocols::NXM);
    let message = |rule: FlowModText| {
        let table = rule.table;
        let mut m = flow_mod_of(form(format), rule);
        m.table = table.or(all.then_some(TableId::ALL)).unwrap_or(m.table);
        Message::FlowMod(m)
    };
    let messages = rules.into_iter().map(message).collect();
    Ok(format!("chosen protocol: {format}\n{}", printed(options, format, messages)?))
}

pub(super) fn parse_flow(options: &Options, args: &[String]) -> Result<String> {
    parsed(options, vec![parse_flow_mod(&args[0], FlowModCommand::Add, &NoPortNames)?])
}

pub(super) fn parse_flows(options: &Options, args: &[String]) -> Result<String> {
    let text = read_file(&args[0])?;
    parsed(
        options,
        parse_flow_file(&text, None, &NoPortNames).map_err(|error| anyhow!("{}:{error}", args[0]))?,
    )
}

/// In OpenFlow 1.0 always in Nicira's form: the standard has no groups.
pub(super) fn parse_group(options: &Options, args: &[String]) -> Result<String> {
    let mut group = parse_group_mod(&args[0], GroupModCommand::Add, &NoPortNames)?;
    let format = choose(options, protocols(&group))?;
    let version = Version(format.versions().next().unwrap_or(Version::V10.0));
    group.format = if version == Version::V10 { Format::Nxt } else { Format::Standard };
    let text = printed(options, format, vec![Message::GroupMod(group)])?;
    Ok(format!("chosen version: OpenFlow1{}\n{text}", version.0 - 1))
}

fn packet(bytes: &[u8]) -> String {
    packet_text(bytes, 0, Printing { options: &wire(), names: &NoPortNames, verbosity: VERBOSITY })
}

pub(super) fn parse_packet(_: &Options, _: &[String]) -> Result<String> {
    Ok(packet(&read_bytes("-")?))
}

pub(super) fn parse_pcap(_: &Options, args: &[String]) -> Result<String> {
    let mut out = String::new();
    for path in args {
        let bytes = read_bytes(path)?;
        let packets = pcap::packets(&bytes).map_err(|error| anyhow!("{path}: {error}"))?;
        out.extend(packets.into_iter().map(packet));
    }
    Ok(out)
}

pub(super) fn compose_packet(options: &Options, args: &[String]) -> Result<String> {
    let flow = parse_exact_flow(&args[0], &NoPortNames)?;
    let payload = args.get(1).map(|text| hex(text)).transpose()?;
    let payload = payload.as_deref().map_or(Payload::default(), Payload::Bytes);
    let packet = compose(&flow, payload);
    if !options.pcap {
        return Ok(hex_dump(&packet, false));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // Not text: it goes out at once.
    std::io::stdout().write_all(&pcap::file_of(&packet, now)).context("cannot write the capture")?;
    Ok(String::new())
}

pub(super) fn parse_key_value(_: &Options, args: &[String]) -> Result<String> {
    let mut out = String::new();
    for text in args {
        let mut tokens = Tokens::new(text);
        let mut pairs = Vec::new();
        while let Some(token) = tokens.next_token().map_err(|error| anyhow!("{text}: {}", error.message()))? {
            let value = if token.has_value() { format!("={}", token.value) } else { String::new() };
            pairs.push(format!("{}{value}", token.key));
        }
        out += &format!("{}\n", pairs.join(", "));
    }
    Ok(out)
}

/// Lines of hexadecimal digits on the standard input, each as a list.
fn lists(version: &str, title: &str, instructions: bool) -> Result<String> {
    let version = options::version(version).map_err(anyhow::Error::msg)?;
    let text = read_file("-")?;
    let mut out = String::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let bytes = hex(line)?;
        let read = match instructions {
            true => openflow::text::read_instruction_bytes(&bytes, version),
            false => openflow::text::read_action_bytes(&bytes, version),
        };
        let _infallible = match read {
            Ok(actions) => writeln!(out, "{title}={}\n", format_actions(&actions, &NoPortNames)),
            Err(error) => writeln!(out, "bad {} {title}: {error}\n", VERSIONS[usize::from(version.0) - 1].1),
        };
    }
    Ok(out)
}

pub(super) fn parse_actions(_: &Options, args: &[String]) -> Result<String> {
    lists(&args[0], "actions", false)
}

pub(super) fn parse_instructions(_: &Options, args: &[String]) -> Result<String> {
    lists(&args[0], "actions", true)
}

/// The error of that name.
fn error_of(name: &str) -> Result<ErrorKind> {
    let name = name.strip_prefix("OFPERR_").unwrap_or(name);
    let found = ErrorKind::ALL.iter().find(|kind| kind.name() == name);
    found.copied().ok_or_else(|| {
        anyhow!("unknown error \"{name}\"{}", hint(name, ErrorKind::ALL.iter().map(|kind| kind.name())))
    })
}

pub(super) fn print_error(_: &Options, args: &[String]) -> Result<String> {
    let kind = error_of(&args[0])?;
    // A version without the error has no line.
    let line = |(version, name): &(Version, &str)| {
        let wire = kind.wire(*version)?;
        let text = format!("{name}: vendor {:#x}, type {}, code {}\n", wire.vendor, wire.ty, wire.code);
        Some(text.replace("vendor 0x0,", "vendor 0,"))
    };
    Ok(VERSIONS.iter().filter_map(line).collect())
}

pub(super) fn encode_error_reply(_: &Options, args: &[String]) -> Result<String> {
    let kind = error_of(&args[0])?;
    let request = hex(&args[1])?;
    if request.len() < 8 {
        bail!("{}: shorter than the header of a message", args[1]);
    }
    let error = OfError::about(kind, &request);
    let reply = encode_with(&Message::Error(error.to_body()), error.version, error.xid, &wire());
    Ok(hex_dump(&reply.map_err(|error| anyhow!("{error}"))?, false))
}

pub(super) fn encode_hello(_: &Options, args: &[String]) -> Result<String> {
    let digits = args[0].strip_prefix("0x").unwrap_or(&args[0]);
    let bits = u32::from_str_radix(digits, if digits.len() < args[0].len() { 16 } else { 10 });
    let versions = VersionSet(bits.with_context(|| format!("{}: not a bitmap of versions", args[0]))? & !1);
    let Some(highest) = versions.highest() else { bail!("{}: no version", args[0]) };
    let bytes = encode_with(&Message::Hello(Hello { versions }), highest, 1, &wire());
    let bytes = bytes.map_err(|error| anyhow!("{error}"))?;
    Ok(format!("{}{}", hex_dump(&bytes, false), text_of(&bytes, VERBOSITY)))
}
