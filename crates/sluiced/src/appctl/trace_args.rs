//! Arguments of `ofproto/trace` and `ofproto/trace-packet-out`: options, a flow of a bridge or of a datapath, a
//! packet.

use super::Arguments;
use flow::compose::{DEFAULT_L7_BYTES, Payload};
use flow::text::{ct_state_flag, format_ct_state};
use std::ops::RangeInclusive;

/// Maximum payload of a packet with its headers.
const L7_BYTES_MAX: usize = 64_000;

/// The traced flow, as text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FlowText<'a> {
    /// A datapath flow, of the datapath of that name or of the only one.
    Datapath(Option<&'a str>, &'a str),
    /// A flow of a bridge.
    Bridge(&'a str, &'a str),
}

/// The traced packet; without one nothing is learned and nothing is sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum PacketText {
    /// None.
    None,
    /// Made from the flow.
    Generate,
    /// These bytes.
    Bytes(Vec<u8>),
}

/// All arguments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct TraceArgs<'a> {
    pub(super) flow: FlowText<'a>,
    pub(super) packet: PacketText,
    /// The payload of a generated packet: bytes, or a number of counting ones.
    l7: Option<Vec<u8>>,
    l7_bytes: usize,
    /// For a packet-out: its actions must fit the packet.
    pub(super) consistent: bool,
    /// Connection states of recirculated packets, in their order.
    pub(super) ct_next: Vec<u32>,
    /// Print port names.
    pub(super) names: bool,
    /// For a packet-out.
    pub(super) actions: &'a str,
}

/// The arguments of a trace, of a packet-out with its actions.
#[derive(Clone, Copy)]
pub(super) struct Traced {
    pub(super) packet_out: bool,
}

impl Arguments for Traced {
    type Value<'a> = TraceArgs<'a>;

    fn usage(&self) -> String {
        let common = "{[dp_name] odp_flow | bridge br_flow} [OPTIONS...] [-generate | packet]";
        match self.packet_out {
            true => format!("[-consistent] {common} actions"),
            false => common.to_string(),
        }
    }

    fn bounds(&self) -> RangeInclusive<usize> {
        1 + usize::from(self.packet_out)..=64
    }

    fn parse<'a>(&self, words: &'a [String]) -> Result<TraceArgs<'a>, String> {
        TraceArgs::parse(words, self.packet_out)
    }
}

impl<'a> TraceArgs<'a> {
    /// Parses arguments; `packet_out`: actions are last.
    pub(super) fn parse(args: &'a [String], packet_out: bool) -> Result<TraceArgs<'a>, String> {
        let mut words = Vec::new();
        let (mut generate, mut consistent, mut names) = (false, false, false);
        // The actions of a packet-out are last, whatever they look like.
        let (args, actions) = match (packet_out, args) {
            (true, [args @ .., actions]) => (args, actions.as_str()),
            _ => (args, ""),
        };
        let mut ct_next = Vec::new();
        let (mut l7, mut l7_bytes) = (None, DEFAULT_L7_BYTES);
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            let mut value = || rest.next().ok_or_else(|| format!("Missing argument for option {arg}"));
            match arg.as_str() {
                "-generate" | "--generate" => generate = true,
                "-consistent" | "--consistent" if packet_out => consistent = true,
                "--names" => names = true,
                "--l7" => l7 = Some(hexadecimal(value()?)?),
                "--l7-len" => l7_bytes = l7_length(value()?)?,
                "--ct-next" => ct_next.push(connection_state(value()?)?),
                option if option.starts_with('-') => return Err(format!("{option}: unknown option")),
                _ => words.push(arg.as_str()),
            }
        }
        let packet = match (generate, words.len()) {
            (true, 3..) => return Err("Syntax error".to_string()),
            (true, _) => PacketText::Generate,
            (false, 3) => PacketText::Bytes(frame(words[2])?),
            (false, 2) => hexadecimal(words[1])
                .map_or(Ok(PacketText::None), |_| frame(words[1]).map(PacketText::Bytes))?,
            _ => PacketText::None,
        };
        if matches!(packet, PacketText::Bytes(_)) {
            words.pop();
        }
        let flow = match words[..] {
            [] => return Err("Syntax error".to_string()),
            [flow] => FlowText::Datapath(None, key_of(flow)),
            [name, flow] if is_datapath_flow(flow) => FlowText::Datapath(Some(name), key_of(flow)),
            [name, flow] => FlowText::Bridge(name, flow),
            _ => return Err("too many arguments".to_string()),
        };
        Ok(TraceArgs { flow, packet, l7, l7_bytes, consistent, ct_next, names, actions })
    }

    /// The payload of a generated packet.
    pub(super) fn payload(&self) -> Payload<'_> {
        match &self.l7 {
            Some(bytes) => Payload::Bytes(bytes),
            None => Payload::Counted(self.l7_bytes),
        }
    }
}

/// The key in a line of `dpctl/dump-flows`; another text is a key. OVS takes a key alone.
fn key_of(line: &str) -> &str {
    let key = line.split_once(", packets:").map_or(line, |(key, _)| key);
    let is_ufid = |id: &str| id.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    let named = key.trim_start().strip_prefix("ufid:").and_then(|rest| rest.split_once([',', ' ']));
    named.filter(|(id, _)| is_ufid(id)).map_or(key, |(_, key)| key)
}

/// Whether a text has the form `name(…)`; a bridge's flow has `name=…`.
fn is_datapath_flow(text: &str) -> bool {
    text.split_once('(').is_some_and(|(name, _)| !name.contains('='))
}

/// Names of `ct_state` flags, separated by commas or blanks; a combination that a tracker returns.
fn connection_state(text: &str) -> Result<u32, String> {
    use flow::ct_state::{EST, INV, NEW, RPL, TRK};
    let mut state = 0;
    for name in text.split([',', ' ', '\t', '\r', '\n']).filter(|name| !name.is_empty()) {
        state |=
            ct_state_flag(name).ok_or_else(|| format!("{name}: unknown connection tracking state flag"))?;
    }
    let faults = [
        (state != 0 && state & TRK == 0, "If \"trk\" is unset, no other flags are set"),
        (state & INV != 0 && state & !(TRK | INV) != 0, "when \"inv\" is set, only \"trk\" may also be set"),
        (state & NEW != 0 && state & EST != 0, "\"new\" and \"est\" are mutually exclusive"),
        (state & NEW != 0 && state & RPL != 0, "\"new\" and \"rpl\" are mutually exclusive"),
    ];
    let faults: Vec<String> = faults
        .iter()
        .filter(|(is_so, _)| *is_so)
        .map(|(_, why)| format!("{}: invalid connection state: {why}\n", format_ct_state(state)))
        .collect();
    if faults.is_empty() { Ok(state) } else { Err(faults.concat()) }
}

fn l7_length(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if n <= L7_BYTES_MAX => Ok(n),
        Ok(_) => Err(format!("{text}: too much L7 data")),
        Err(_) => Err(format!("{text}: not a number of bytes")),
    }
}

/// Bytes as pairs of hexadecimal digits, ignoring blanks.
pub(crate) fn hexadecimal(text: &str) -> Result<Vec<u8>, String> {
    let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let digit = |b: u8| char::from(b).to_digit(16).map(|d| d as u8);
    let bytes: Option<Vec<u8>> = digits
        .chunks(2)
        .map(|pair| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        })
        .collect();
    bytes.ok_or_else(|| "Trailing garbage in packet data".to_string())
}

/// Bytes of at least an Ethernet frame.
fn frame(text: &str) -> Result<Vec<u8>, String> {
    let bytes = hexadecimal(text)?;
    match bytes.len() >= packet::headers::ETH_HEADER_BYTES {
        true => Ok(bytes),
        false => Err("Packet data too short for Ethernet".to_string()),
    }
}

#[cfg(test)]
mod tests;
