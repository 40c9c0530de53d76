//! Commands about rules, and packets to send.

use std::io::Read;

use anyhow::{Context, Result, anyhow, bail};
use flow::fields::FieldId;
use flow::text::{PortNames, field_by_name, parse_match_unchecked, parse_port};
use flow::{OfPort, TableId};
use ofp_actions::text::{self, FlowModText, parse_actions, parse_flow_file, parse_flow_mod};
use openflow::msg::flow_stats::{FlowStats, FlowStatsRequest};
use openflow::msg::packet::PacketOut;
use openflow::text::{flow_mod_of, format_rule};
use openflow::{GROUP_ANY, Message, NO_BUFFER, Version};

use super::options::Order;
use super::{Run, entries, json};
use crate::hint::hint;
use crate::remote::reason;

/// Maximum size of a file.
const FILE_MAX_BYTES: u64 = 1 << 30;
const ETHERNET_BYTES: usize = 14;

/// `[MATCH]` with the keywords of requests (`table`, `out_port`, `out_group`, `cookie`), as in a deletion.
fn request(run: &Run<'_>, text: &str) -> Result<FlowStatsRequest> {
    let asked = parse_flow_mod(text, text::FlowModCommand::Delete, &run.names)?;
    run.needs_one_of(asked.protocols)?;
    Ok(FlowStatsRequest {
        format: run.format(),
        table: asked.table.unwrap_or(TableId::ALL),
        out_port: asked.out_port,
        out_group: asked.out_group.unwrap_or(GROUP_ANY),
        cookie: asked.cookie,
        cookie_mask: asked.cookie_mask,
        matching: Box::new(asked.rule_match),
    })
}

/// The rules that a request selects, with its transaction.
pub(super) fn rules(run: &mut Run<'_>, text: &str) -> Result<(u32, Vec<FlowStats>)> {
    let asked = Message::FlowStatsRequest(request(run, text)?);
    run.connection.gather(&asked, entries!(FlowStatsReply))
}

/// The fields of an order; `None` is the priority.
pub(super) fn fields(order: &Order) -> Result<Vec<(Option<FieldId>, bool)>> {
    let one = |(name, up): &(Option<String>, bool)| {
        let Some(name) = name else { return Ok((None, *up)) };
        if name.eq_ignore_ascii_case("priority") {
            return Ok((None, *up));
        }
        let known = flow::fields::ALL_FIELDS.iter().map(|field| field.def().name).chain(["priority"]);
        let found = field_by_name(name)
            .with_context(|| format!("{name}: unknown field name{}", hint(name, known)))?;
        Ok((Some(found), *up))
    };
    order.iter().map(one).collect()
}

/// Sorts rules by the fields; of a field, rules without it come last. Rules that are equal stay in their order.
fn sort(rules: &mut [FlowStats], order: &[(Option<FieldId>, bool)]) {
    use std::cmp::Ordering;
    rules.sort_by(|a, b| {
        for (field, up) in order {
            let compared = match field {
                None => a.priority.cmp(&b.priority),
                Some(field) => {
                    let (x, y) = (a.matching.unpack().get(*field), b.matching.unpack().get(*field));
                    match (x.1 == 0, y.1 == 0) {
                        (true, true) => Ordering::Equal,
                        (true, false) => return Ordering::Greater,
                        (false, true) => return Ordering::Less,
                        (false, false) => x.0.cmp(&y.0),
                    }
                }
            };
            let compared = if *up { compared } else { compared.reverse() };
            if compared != Ordering::Equal {
                return compared;
            }
        }
        Ordering::Equal
    });
}

pub(super) fn dump_flows(run: &mut Run<'_>, text: &str) -> Result<String> {
    let order = fields(&run.options.order)?;
    let (xid, mut rules) = rules(run, text)?;
    if !order.is_empty() {
        sort(&mut rules, &order);
    }
    let counters = run.options.counters;
    if run.options.json {
        return Ok(json::rules(&rules, counters, &run.names));
    }
    // With names, without counters or in order the output is for people or for add-flows, and has no title.
    let plain = counters && !run.names.show && order.is_empty();
    let title = if plain { format!("{} (xid={xid:#x}):\n", run.title("FLOW", true)) } else { String::new() };
    let line = |rule| format_rule(rule, counters, plain, &run.names) + "\n";
    Ok(rules.iter().fold(title, |out, rule| out + &line(rule)))
}

pub(super) fn dump_aggregate(run: &mut Run<'_>, text: &str) -> Result<String> {
    let asked = Message::AggregateRequest(request(run, text)?);
    let (xid, Message::AggregateReply(sums)) = run.connection.ask(&asked)? else {
        bail!("the switch gave an answer of another kind");
    };
    Ok(format!(
        "{} (xid={xid:#x}): packet_count={} byte_count={} flow_count={}\n",
        run.title("AGGREGATE", true),
        sums.packet_count,
        sums.byte_count,
        sums.flow_count
    ))
}

/// The message for a parsed line.
///
/// # Errors
/// The connection has no flow format that carries it.
pub(super) fn flow_mod(run: &Run<'_>, asked: FlowModText) -> Result<Message> {
    run.needs_one_of(asked.protocols)?;
    Ok(Message::FlowMod(flow_mod_of(run.format(), asked)))
}

/// Sends changes of rules, with `--bundle` in one transaction.
pub(super) fn carry_out(run: &mut Run<'_>, all: Vec<FlowModText>) -> Result<String> {
    let mut messages = Vec::with_capacity(all.len() + 1);
    if run.connection.version() == Version::V10 {
        messages.push(Message::FlowModTableId(true));
    }
    for asked in all {
        messages.push(flow_mod(run, asked)?);
    }
    run.change(messages)
}

/// A change of rules: `-` stands for lines of the standard input.
fn one(run: &mut Run<'_>, text: &str, command: text::FlowModCommand) -> Result<String> {
    if text == "-" {
        return of_file(run, text, Some(command));
    }
    let asked = parse_flow_mod(text, command, &run.names)?;
    carry_out(run, vec![asked])
}

pub(super) fn add_flow(run: &mut Run<'_>, text: &str) -> Result<String> {
    if text == "-" { add_flows(run, text) } else { one(run, text, text::FlowModCommand::Add) }
}

/// Reads a file; `-` is the standard input.
fn read<T: Default>(
    path: &str,
    read: impl FnOnce(&mut dyn Read, &mut T) -> std::io::Result<usize>,
) -> Result<T> {
    let mut contents = T::default();
    let result = match path {
        "-" => read(&mut std::io::stdin().lock().take(FILE_MAX_BYTES), &mut contents),
        _ => std::fs::File::open(path).and_then(|file| read(&mut file.take(FILE_MAX_BYTES), &mut contents)),
    };
    match result {
        Ok(_) => Ok(contents),
        Err(error) => bail!("{path}: open failed ({})", reason(&error.into())),
    }
}

/// The text of a file.
pub(super) fn read_file(path: &str) -> Result<String> {
    read(path, |file, text| file.read_to_string(text))
}

/// The bytes of a file.
pub(super) fn read_bytes(path: &str) -> Result<Vec<u8>> {
    read(path, |file, bytes| file.read_to_end(bytes))
}

pub(super) fn add_flows(run: &mut Run<'_>, path: &str) -> Result<String> {
    of_file(run, path, None)
}

/// The changes of a file, all of one command, or each with its own.
fn of_file(run: &mut Run<'_>, path: &str, command: Option<text::FlowModCommand>) -> Result<String> {
    let text = read_file(path)?;
    let all = parse_flow_file(&text, command, &run.names).map_err(|error| anyhow!("{path}:{error}"))?;
    carry_out(run, all)
}

pub(super) fn mod_flows(run: &mut Run<'_>, text: &str) -> Result<String> {
    let strict = run.options.strict;
    one(run, text, if strict { text::FlowModCommand::ModifyStrict } else { text::FlowModCommand::Modify })
}

pub(super) fn del_flows(run: &mut Run<'_>, text: &str) -> Result<String> {
    let strict = run.options.strict;
    one(run, text, if strict { text::FlowModCommand::DeleteStrict } else { text::FlowModCommand::Delete })
}

/// Whether a packet-out may give the field (OpenFlow 1.5 §7.3.6), as OVS has it.
fn is_pipeline_field(field: FieldId) -> bool {
    let name = field.def().name;
    let is_register = ["reg", "xreg", "xxreg"]
        .iter()
        .any(|class| name.strip_prefix(class).is_some_and(|number| number.parse::<u8>().is_ok()));
    is_register || name.starts_with("tun_") || matches!(field, FieldId::Metadata | FieldId::PacketType)
}

/// Ends of words: blanks and commas outside of parentheses.
fn split_words(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0usize;
    let is_end = move |c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && matches!(c, ',' | ' ')
    };
    text.split(is_end).filter(|word| !word.is_empty())
}

/// `in_port=PORT,FIELD=VALUE,packet=HEX,actions=ACTIONS` with pipeline fields, which OpenFlow 1.5 sends; the actions come
/// last, and without them the packet is dropped.
pub(super) fn parse_packet_out(text: &str, names: &dyn PortNames) -> Result<PacketOut> {
    let (head, actions) = text.split_once("actions=").unwrap_or((text, ""));
    let (mut in_port, mut data, mut fields) = (OfPort::CONTROLLER, None, Vec::new());
    for word in split_words(head) {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        match key {
            _ if value.is_empty() => bail!("field {key} missing value"),
            "in_port" => {
                let port = parse_port(value, names);
                in_port = port.with_context(|| format!("{value} is not a valid OpenFlow port"))?;
            }
            "packet" => data = Some(parse_hex(value)?),
            _ => {
                let field = field_by_name(key).with_context(|| format!("unknown keyword {key}"))?;
                parse_match_unchecked(word, names)?;
                if !is_pipeline_field(field) {
                    bail!("{key} is not a valid pipeline field for PACKET_OUT");
                }
                fields.push(word);
            }
        }
    }
    let metadata = Box::new(parse_match_unchecked(&fields.join(","), names)?);
    let data = data.context("must specify packet")?;
    let actions = if actions.is_empty() { Vec::new() } else { parse_actions(actions, names)? };
    Ok(PacketOut { buffer_id: NO_BUFFER, in_port, metadata, actions, data })
}

fn parse_hex(text: &str) -> Result<Vec<u8>> {
    let bytes = hex_bytes(text.chars()).context("packet: Trailing garbage in packet data")?;
    if bytes.len() < ETHERNET_BYTES {
        bail!("packet: Packet data too short for Ethernet");
    }
    Ok(bytes)
}

/// The bytes of pairs of hexadecimal digits.
pub(super) fn hex_bytes(digits: impl Iterator<Item = char>) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = digits.map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

pub(super) fn packet_out(run: &mut Run<'_>, text: &str) -> Result<String> {
    let out = parse_packet_out(text, &run.names)?;
    run.needs_one_of(ofp_actions::protocols_of(&out.actions))?;
    run.connection.carry_out(&[Message::PacketOut(out)])?;
    Ok(String::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::text::NoPortNames;

    #[test]
    fn packets_to_send() {
        let packet = "ffffffffffff0011223344550806";
        let out = parse_packet_out(&format!("in_port=LOCAL,packet={packet},actions=output:1"), &NoPortNames)
            .unwrap();
        assert_eq!((out.in_port, out.data.len(), out.actions.len()), (OfPort::LOCAL, 14, 1));
        let dropped = parse_packet_out(&format!("packet={packet}"), &NoPortNames).unwrap();
        assert_eq!((dropped.in_port, dropped.actions.len()), (OfPort::CONTROLLER, 0));
        let fields = "in_port=1 reg0=5,xreg2=0x7/0xff tun_id=3,packet_type=(1,0x800)";
        let given = parse_packet_out(&format!("{fields},packet={packet},actions=2"), &NoPortNames).unwrap();
        let expected = "packet_type=(1,0x800),reg0=0x5,reg5=0x7/0xff,tun_id=0x3";
        assert_eq!(flow::text::format_match(&given.metadata, None), expected);
        // As OVS 3.5 refuses them.
        for (bad, text) in [
            ("", "must specify packet"),
            ("actions=drop", "must specify packet"),
            ("packet=zz,actions=drop", "packet: Trailing garbage in packet data"),
            ("packet=ffffffffffff0011223344550806f,actions=drop", "packet: Trailing garbage in packet data"),
            ("packet=00,actions=drop", "packet: Packet data too short for Ethernet"),
            ("x=1,actions=drop", "unknown keyword x"),
            ("x", "field x missing value"),
            ("reg0,packet=5054", "field reg0 missing value"),
            ("ct_mark=3,packet=5054", "ct_mark is not a valid pipeline field for PACKET_OUT"),
            ("dl_src=00:00:00:00:00:01,packet=5054", "dl_src is not a valid pipeline field for PACKET_OUT"),
            ("pkt_mark=3,packet=5054", "pkt_mark is not a valid pipeline field for PACKET_OUT"),
            ("in_port=nosuch,packet=00,actions=1", "nosuch is not a valid OpenFlow port"),
        ] {
            let error = parse_packet_out(bad, &NoPortNames).unwrap_err();
            assert_eq!(error.to_string(), text, "{bad}");
        }
    }
}
