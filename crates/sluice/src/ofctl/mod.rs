//! `sluice ofctl`: reads and changes the OpenFlow tables of a bridge with the syntax of `ovs-ofctl(8)`.
//!
//! One connection per run. It offers OpenFlow 1.0 by default (`-O` overrides), with Nicira's extensions,
//! which give access to all fields and all tables.

mod connection;
mod groups;
mod json;
mod print;
mod switch;
mod tlv;
#[cfg(test)]
mod verbs;

use std::io::{IsTerminal, Read as _};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use flow::text::{PortNames, parse_port};
use flow::{OfPort, TableId};
use ofp_actions::text::{self, FlowModText, parse_actions, parse_flow_file, parse_flow_mod};
use openflow::msg::flow_mod::{FlowMod, FlowModCommand, FlowModFlags};
use openflow::msg::flow_stats::FlowStatsRequest;
use openflow::msg::packet::PacketOut;
use openflow::{Format, GROUP_ANY, Message, NO_BUFFER, Version, VersionSet};

use crate::hint::hint;
use crate::pki;
use crate::remote::{Deadline, EXIT_TIMED_OUT, TimedOut, complain, parse_timeout_s, print};
use connection::{Connection, Names};

/// Maximum size of a file of rules.
const FILE_MAX_BYTES: u64 = 1 << 30;

const HELP: &str = "\
Commands:
  show BRIDGE                        the switch, its ports and configuration
  dump-desc BRIDGE                   the switch in words
  dump-flows BRIDGE [MATCH]          the rules within MATCH, with their counters
  dump-aggregate BRIDGE [MATCH]      sums over them
  dump-tables BRIDGE                 counters of the tables
  dump-ports BRIDGE [PORT]           counters of the ports
  dump-ports-desc BRIDGE             the ports
  add-flow BRIDGE RULE               add a rule (or: -, a file of rules on the standard input)
  add-flows BRIDGE FILE              add the rules of a file, one a line; - is the standard input
  mod-flows BRIDGE RULE              change the actions of the rules within the match
  del-flows BRIDGE [MATCH]           delete the rules within MATCH, or all
  add-group BRIDGE GROUP             add a group (or: -, a file of groups on the standard input)
  add-groups BRIDGE FILE             add the groups of a file, one a line; - is the standard input
  mod-group BRIDGE GROUP             replace a group
  insert-buckets BRIDGE GROUP        insert buckets at command_bucket_id=first, last or ID
  remove-buckets BRIDGE GROUP        remove the bucket command_bucket_id, or all
  del-groups BRIDGE [GROUP]          delete a group and its rules, or all
  dump-groups BRIDGE [GROUP]         the groups
  dump-group-stats BRIDGE [GROUP]    counters of groups and buckets
  dump-group-features BRIDGE         what groups can do
  add-tlv-map BRIDGE MAP[,MAP]...    map tunnel options, {class=CLASS,type=TYPE,len=BYTES}->tun_metadataN
  del-tlv-map BRIDGE [MAP[,MAP]...]  remove these mappings, or all
  dump-tlv-map BRIDGE                the mappings
  get-frags BRIDGE                   how fragments are matched
  set-frags BRIDGE MODE              match fragments so: normal, drop or nx-match
  probe BRIDGE                       nothing, if the switch answers
  ct-flush-zone BRIDGE ZONE          forget the tracked connections of a zone
  packet-out BRIDGE in_port=PORT,packet=HEX,actions=ACTIONS
                                     send a packet through actions

BRIDGE is a bridge's name, the path of its socket, unix:PATH, tcp:HOST:PORT or ssl:HOST:PORT.

Options:
  -O, --protocols=VERSION[,...]  the versions to offer, OpenFlow10 to OpenFlow15 (default: OpenFlow10)
  --strict                only the rule with exactly this match and priority (mod-flows, del-flows)
  --may-create            mod-group: add the group if it does not exist
  --names, --no-names     print ports by name, or by number (default: names on a terminal)
  --json                  dump-flows, dump-ports: one JSON value (names of ports with --names)
  --no-stats              dump-flows: what rules are, without counters
  -t, --timeout=SECONDS   give up after so long (default: never)
  -h, --help; -V, --version
";

#[derive(Debug, PartialEq, Eq)]
struct Options {
    versions: VersionSet,
    strict: bool,
    may_create: bool,
    names: Option<bool>,
    json: bool,
    counters: bool,
    timeout_s: u32,
    pki: Box<tls::Settings>,
}

#[derive(Debug, PartialEq, Eq)]
enum Request {
    Help,
    Version,
    Run(Options, Vec<String>),
}

fn parse_versions(text: &str) -> Result<VersionSet, String> {
    let mut versions = Vec::new();
    for word in text.split(',') {
        versions.push(match word.to_ascii_lowercase().as_str() {
            "openflow10" | "openflow10+nxm" | "10" => Version::V10,
            "openflow11" | "11" => Version::V11,
            "openflow12" | "12" => Version::V12,
            "openflow13" | "13" => Version::V13,
            "openflow14" | "14" => Version::V14,
            "openflow15" | "15" => Version::V15,
            _ => return Err(format!("{word}: unknown OpenFlow version (OpenFlow10 to OpenFlow15)")),
        });
    }
    Ok(VersionSet::of(&versions))
}

fn parse(words: &[String]) -> Result<Request, String> {
    let versions = VersionSet::of(&[Version::V10]);
    let mut options = Options {
        versions,
        strict: false,
        may_create: false,
        names: None,
        json: false,
        counters: true,
        timeout_s: 0,
        pki: Box::default(),
    };
    let mut args = Vec::new();
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        if !word.starts_with('-') || word == "-" {
            args.push(word.clone());
            continue;
        }
        if word == "--" {
            args.extend(rest.cloned());
            break;
        }
        let (name, attached) = match word.strip_prefix("--") {
            Some(long) => match long.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (long, None),
            },
            None => {
                let end = word.char_indices().nth(2).map_or(word.len(), |(at, _)| at);
                (&word[1..end], Some(&word[end..]).filter(|value| !value.is_empty()))
            }
        };
        let mut value = || -> Result<String, String> {
            let next = attached.map(str::to_string).or_else(|| rest.next().cloned());
            next.ok_or_else(|| format!("option '{word}' requires an argument"))
        };
        match name {
            "O" | "protocols" => options.versions = parse_versions(&value()?)?,
            "t" | "timeout" => options.timeout_s = parse_timeout_s(&value()?)?,
            "strict" => options.strict = true,
            "may-create" => options.may_create = true,
            "names" => options.names = Some(true),
            "no-names" => options.names = Some(false),
            "json" => options.json = true,
            "no-stats" => options.counters = false,
            "h" | "help" => return Ok(Request::Help),
            "V" | "version" => return Ok(Request::Version),
            _ => {
                let short = name.chars().next().filter(|_| name.len() == 1).and_then(pki::long_name);
                let long = short.unwrap_or(name);
                if !pki::has(long) {
                    let meant = hint(word, OPTIONS.iter().chain(pki::OPTIONS).copied());
                    return Err(format!("unrecognized option '{word}'{meant} (use --help for help)"));
                }
                pki::take(&mut options.pki, long, &value()?);
            }
        }
    }
    if args.is_empty() {
        return Err("missing command name (use --help for help)".into());
    }
    Ok(Request::Run(options, args))
}

/// Runs a command line for another part of this program, and returns its output.
pub(crate) fn answer(words: &[String]) -> Result<String> {
    match parse(words).map_err(anyhow::Error::msg)? {
        Request::Run(options, args) => run(&options, &args),
        Request::Help | Request::Version => bail!("not a command line that changes or asks anything"),
    }
}

/// Runs it; returns the exit code.
pub(crate) fn main(program: &str, words: &[String]) -> u8 {
    let result = match parse(words) {
        Err(text) => Err(anyhow!(text)),
        Ok(Request::Help) => {
            Ok(format!("usage: {program} [OPTION]... COMMAND BRIDGE [ARG]...\n\n{HELP}\n{}", pki::HELP))
        }
        Ok(Request::Version) => Ok(format!("{program} (Sluice) {}\n", env!("CARGO_PKG_VERSION"))),
        Ok(Request::Run(options, args)) => run(&options, &args),
    };
    match result {
        Ok(text) => {
            print(&text);
            0
        }
        Err(error) => {
            complain(program, &format!("{error:#}"));
            if error.chain().any(|cause| cause.is::<TimedOut>()) { EXIT_TIMED_OUT } else { 1 }
        }
    }
}

/// State of a run: the connection and the bridge's port names.
struct Run<'o> {
    options: &'o Options,
    connection: Connection,
    names: Names,
}

/// Commands: name, minimum and maximum number of arguments with the bridge, and function.
type Command = (&'static str, usize, usize, fn(&mut Run<'_>, &str) -> Result<String>);
const COMMANDS: [Command; 28] = [
    ("show", 1, 1, show),
    ("dump-flows", 1, 2, dump_flows),
    ("dump-aggregate", 1, 2, dump_aggregate),
    ("dump-tables", 1, 1, dump_tables),
    ("dump-ports", 1, 2, dump_ports),
    ("dump-ports-desc", 1, 1, dump_ports_desc),
    ("add-flow", 2, 2, add_flow),
    ("add-flows", 2, 2, add_flows),
    ("mod-flows", 2, 2, mod_flows),
    ("del-flows", 1, 2, del_flows),
    ("add-group", 2, 2, groups::add_group),
    ("add-groups", 2, 2, groups::add_groups),
    ("mod-group", 2, 2, groups::mod_group),
    ("insert-buckets", 2, 2, groups::insert_buckets),
    ("remove-buckets", 2, 2, groups::remove_buckets),
    ("del-groups", 1, 2, groups::del_groups),
    ("dump-groups", 1, 2, groups::dump_groups),
    ("dump-group-stats", 1, 2, groups::dump_group_stats),
    ("dump-group-features", 1, 1, groups::dump_group_features),
    ("add-tlv-map", 2, 2, tlv::add_tlv_map),
    ("del-tlv-map", 1, 2, tlv::del_tlv_map),
    ("dump-tlv-map", 1, 1, tlv::dump_tlv_map),
    ("dump-desc", 1, 1, switch::dump_desc),
    ("get-frags", 1, 1, switch::get_frags),
    ("set-frags", 2, 2, switch::set_frags),
    ("probe", 1, 1, switch::probe),
    ("ct-flush-zone", 2, 2, switch::ct_flush_zone),
    ("packet-out", 2, 2, packet_out),
];

/// Names of the commands.
pub(crate) fn commands() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().map(|(name, ..)| *name)
}

/// Long options.
pub(crate) const OPTIONS: &[&str] = &[
    "--protocols",
    "--strict",
    "--may-create",
    "--names",
    "--no-names",
    "--no-stats",
    "--json",
    "--timeout",
    "--help",
    "--version",
];

fn run(options: &Options, args: &[String]) -> Result<String> {
    let (name, args) = args.split_first().context("missing command name (use --help for help)")?;
    if options.json && !json::COMMANDS.contains(&name.as_str()) {
        bail!("'{name}' has no JSON form; {} have", json::COMMANDS.join(" and "));
    }
    let Some((_, min, max, command)) = COMMANDS.iter().find(|(known, ..)| known == name) else {
        bail!("unknown command '{name}'{}; use --help for help", hint(name, commands()));
    };
    if args.len() < *min {
        bail!("'{name}' command requires at least {min} arguments");
    }
    if args.len() > *max {
        bail!("'{name}' command takes at most {max} arguments");
    }
    let deadline = Deadline::after_s(options.timeout_s);
    let mut connection = Connection::open(&args[0], &options.pki, options.versions, deadline)?;
    let (_, ports) = connection.ports()?;
    let show = options.names.unwrap_or_else(|| std::io::stdout().is_terminal());
    let tlv = Arc::new(tlv::mappings(&mut connection));
    connection.use_tlv(&tlv);
    let mut run = Run { options, connection, names: Names { ports, show, tlv } };
    command(&mut run, args.get(1).map_or("", String::as_str))
}

fn show(run: &mut Run<'_>, _: &str) -> Result<String> {
    let version = run.connection.version();
    let text = run.connection.version_text();
    let (xid, Message::FeaturesReply(features)) = run.connection.ask(&Message::FeaturesRequest)? else {
        bail!("the switch gave an answer of another kind");
    };
    let mut out =
        format!("OFPT_FEATURES_REPLY{text} (xid={xid:#x}): {}", print::features(&features, version));
    let mut ports = features.ports;
    if version >= Version::V13 {
        let (xid, all) = run.connection.ports()?;
        ports = all;
        out.push_str(&format!("OFPST_PORT_DESC reply{text} (xid={xid:#x}):\n"));
    }
    ports.sort_by_key(|port| port.port);
    out.extend(ports.iter().map(|port| print::port(port, version)));
    let (xid, Message::GetConfigReply(config)) = run.connection.ask(&Message::GetConfigRequest)? else {
        bail!("the switch gave an answer of another kind");
    };
    Ok(out + &format!("OFPT_GET_CONFIG_REPLY{text} (xid={xid:#x}): {}", print::config(&config)))
}

/// `[MATCH]` with the keywords of requests (`table`, `out_port`, `out_group`, `cookie`), as in a deletion.
fn request(run: &Run<'_>, text: &str) -> Result<FlowStatsRequest> {
    let asked = parse_flow_mod(text, text::FlowModCommand::Delete, &run.names)?;
    Ok(FlowStatsRequest {
        format: run.format(),
        table: asked.table.unwrap_or(TableId::ALL),
        out_port: asked.out_port,
        out_group: asked.out_group.unwrap_or(GROUP_ANY),
        cookie: asked.cookie,
        cookie_mask: asked.cookie_mask,
        matching: asked.rule_match,
    })
}

impl Run<'_> {
    /// Nicira's forms in OpenFlow 1.0, whose own lack most fields.
    fn format(&self) -> Format {
        if self.connection.version() == Version::V10 { Format::Nxt } else { Format::Standard }
    }

    /// The title of a statistics reply.
    fn title(&self, kind: &str, nxt: bool) -> String {
        let prefix = if nxt && self.format() == Format::Nxt { "NXST" } else { "OFPST" };
        format!("{prefix}_{kind} reply{}", self.connection.version_text())
    }
}

fn dump_flows(run: &mut Run<'_>, text: &str) -> Result<String> {
    let asked = Message::FlowStatsRequest(request(run, text)?);
    let (xid, rules) = run.connection.gather(&asked, |message| match message {
        Message::FlowStatsReply(multi) => Some((multi.entries, multi.more)),
        _ => None,
    })?;
    let counters = run.options.counters;
    if run.options.json {
        return Ok(json::rules(&rules, counters, &run.names));
    }
    // With names or without counters the output is for people or for add-flows, and has no title.
    let title = counters && !run.names.show;
    let title = if title { format!("{} (xid={xid:#x}):\n", run.title("FLOW", true)) } else { String::new() };
    Ok(rules.iter().fold(title, |out, rule| out + &print::rule(rule, counters, !run.names.show, &run.names)))
}

fn dump_aggregate(run: &mut Run<'_>, text: &str) -> Result<String> {
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

fn dump_tables(run: &mut Run<'_>, _: &str) -> Result<String> {
    let (xid, tables) = run.connection.gather(&Message::TableStatsRequest, |message| match message {
        Message::TableStatsReply(multi) => Some((multi.entries, multi.more)),
        _ => None,
    })?;
    Ok(format!("{} (xid={xid:#x}):\n{}", run.title("TABLE", false), print::tables(&tables)))
}

fn dump_ports(run: &mut Run<'_>, text: &str) -> Result<String> {
    let port = match text {
        "" => OfPort::NONE,
        _ => parse_port(text, &run.names).with_context(|| format!("{text}: no such port"))?,
    };
    let (xid, all) = run.connection.gather(&Message::PortStatsRequest(port), |message| match message {
        Message::PortStatsReply(multi) => Some((multi.entries, multi.more)),
        _ => None,
    })?;
    let version = run.connection.version();
    if run.options.json {
        return Ok(json::ports(&all, &run.names));
    }
    let title = format!("{} (xid={xid:#x}): {} ports\n", run.title("PORT", false), all.len());
    Ok(all.iter().fold(title, |out, stats| out + &print::port_stats(stats, version, &run.names)))
}

fn dump_ports_desc(run: &mut Run<'_>, _: &str) -> Result<String> {
    let (xid, mut ports) = run.connection.ports()?;
    ports.sort_by_key(|port| port.port);
    let version = run.connection.version();
    let title = format!("{} (xid={xid:#x}):\n", run.title("PORT_DESC", false));
    Ok(ports.iter().fold(title, |out, port| out + &print::port(port, version)))
}

/// The message for a parsed line.
fn flow_mod(run: &Run<'_>, asked: FlowModText) -> Message {
    let command = match asked.command {
        text::FlowModCommand::Add => FlowModCommand::Add,
        text::FlowModCommand::Modify => FlowModCommand::Modify,
        text::FlowModCommand::ModifyStrict => FlowModCommand::ModifyStrict,
        text::FlowModCommand::Delete => FlowModCommand::Delete,
        text::FlowModCommand::DeleteStrict => FlowModCommand::DeleteStrict,
    };
    let mut flags = FlowModFlags::empty();
    flags.set(FlowModFlags::SEND_FLOW_REM, asked.flags.send_flow_rem);
    flags.set(FlowModFlags::CHECK_OVERLAP, asked.flags.check_overlap);
    flags.set(FlowModFlags::RESET_COUNTS, asked.flags.reset_counts);
    flags.set(FlowModFlags::NO_PKT_COUNTS, asked.flags.no_packet_counts);
    flags.set(FlowModFlags::NO_BYT_COUNTS, asked.flags.no_byte_counts);
    let format = run.format();
    // OpenFlow 1.1 and later cannot leave the table to the switch: an addition goes to the first table.
    let everywhere = command.deletes() || format == Format::Nxt;
    let table = asked.table.unwrap_or(if everywhere { TableId::ALL } else { TableId(0) });
    let keep = if command == FlowModCommand::Add { 0 } else { u64::MAX };
    Message::FlowMod(FlowMod {
        format,
        command,
        table,
        cookie: asked.cookie,
        cookie_mask: asked.cookie_mask,
        new_cookie: asked.new_cookie.unwrap_or(keep),
        idle_timeout_s: asked.idle_timeout_s,
        hard_timeout_s: asked.hard_timeout_s,
        priority: asked.priority,
        buffer_id: NO_BUFFER,
        out_port: asked.out_port,
        out_group: asked.out_group.unwrap_or(GROUP_ANY),
        flags,
        importance: asked.importance,
        matching: asked.rule_match.into(),
        actions: asked.actions,
    })
}

fn carry_out(run: &mut Run<'_>, all: Vec<FlowModText>) -> Result<String> {
    let mut messages = Vec::with_capacity(all.len() + 1);
    if run.connection.version() == Version::V10 {
        messages.push(Message::FlowModTableId(true));
    }
    for asked in all {
        messages.push(flow_mod(run, asked));
    }
    run.connection.carry_out(&messages)?;
    Ok(String::new())
}

fn one(run: &mut Run<'_>, text: &str, command: text::FlowModCommand) -> Result<String> {
    let asked = parse_flow_mod(text, command, &run.names)?;
    carry_out(run, vec![asked])
}

fn add_flow(run: &mut Run<'_>, text: &str) -> Result<String> {
    if text == "-" { add_flows(run, text) } else { one(run, text, text::FlowModCommand::Add) }
}

/// The text of a file; `-` is the standard input.
fn read_file(path: &str) -> Result<String> {
    let mut text = String::new();
    let result = match path {
        "-" => std::io::stdin().lock().take(FILE_MAX_BYTES).read_to_string(&mut text),
        _ => std::fs::File::open(path).and_then(|file| file.take(FILE_MAX_BYTES).read_to_string(&mut text)),
    };
    result.with_context(|| format!("{path}: cannot read it"))?;
    Ok(text)
}

fn add_flows(run: &mut Run<'_>, path: &str) -> Result<String> {
    let text = read_file(path)?;
    let all = parse_flow_file(&text, &run.names).map_err(|error| anyhow!("{path}: {error}"))?;
    carry_out(run, all)
}

fn mod_flows(run: &mut Run<'_>, text: &str) -> Result<String> {
    let strict = run.options.strict;
    one(run, text, if strict { text::FlowModCommand::ModifyStrict } else { text::FlowModCommand::Modify })
}

fn del_flows(run: &mut Run<'_>, text: &str) -> Result<String> {
    let strict = run.options.strict;
    one(run, text, if strict { text::FlowModCommand::DeleteStrict } else { text::FlowModCommand::Delete })
}

/// `in_port=PORT,packet=HEX,actions=ACTIONS`; the actions come last.
fn parse_packet_out(text: &str, names: &dyn PortNames) -> Result<PacketOut> {
    let (head, actions) = text.split_once("actions=").context("must specify an action")?;
    let (mut in_port, mut data) = (OfPort::CONTROLLER, None);
    for word in head.split([',', ' ']).filter(|word| !word.is_empty()) {
        match word.split_once('=') {
            Some(("in_port", port)) => {
                in_port = parse_port(port, names).with_context(|| format!("{port}: no such port"))?;
            }
            Some(("packet", hex)) => data = Some(parse_hex(hex)?),
            _ => bail!("{word}: unknown keyword (in_port, packet or actions)"),
        }
    }
    let data = data.context("must specify a packet")?;
    let actions = parse_actions(actions, names)?;
    Ok(PacketOut { buffer_id: NO_BUFFER, in_port, metadata: flow::Match::catchall(), actions, data })
}

fn parse_hex(text: &str) -> Result<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    let digits =
        digits.filter(|digits| digits.len() % 2 == 0).context("packet: not pairs of hexadecimal digits")?;
    if digits.len() < 28 {
        bail!("packet: shorter than an Ethernet header");
    }
    Ok(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

fn packet_out(run: &mut Run<'_>, text: &str) -> Result<String> {
    let message = Message::PacketOut(parse_packet_out(text, &run.names)?);
    run.connection.carry_out(&[message])?;
    Ok(String::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::text::NoPortNames;

    fn parse_line(line: &str) -> Result<Request, String> {
        let words: Vec<String> = line.split(' ').filter(|word| !word.is_empty()).map(String::from).collect();
        parse(&words)
    }

    #[test]
    fn command_lines() {
        let Ok(Request::Run(options, args)) = parse_line("-O OpenFlow13 --strict del-flows br0 -t5 x") else {
            panic!("refused");
        };
        assert_eq!(
            (options.versions, options.strict, options.timeout_s),
            (VersionSet::of(&[Version::V13]), true, 5)
        );
        assert_eq!(args, ["del-flows", "br0", "x"]);
        assert_eq!(parse_line("-h"), Ok(Request::Help));
        assert!(matches!(parse_line("add-flow br0 -"), Ok(Request::Run(..))));
        for bad in [
            "",
            "-O",
            "-O OpenFlow99 show",
            "-O OpenFlow16 show",
            "--bogus show",
            "-é show",
            "-t x show",
            "--protocols= show",
        ] {
            assert!(parse_line(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn packets_to_send() {
        let packet = "ffffffffffff0011223344550806";
        let out = parse_packet_out(&format!("in_port=LOCAL,packet={packet},actions=output:1"), &NoPortNames)
            .unwrap();
        assert_eq!((out.in_port, out.data.len(), out.actions.len()), (OfPort::LOCAL, 14, 1));
        for bad in
            ["", "actions=drop", "packet=zz,actions=drop", "packet=00,actions=drop", "x=1,actions=drop"]
        {
            assert!(parse_packet_out(bad, &NoPortNames).is_err(), "{bad}");
        }
        assert!(parse_packet_out(&format!("packet={packet}f,actions=drop"), &NoPortNames).is_err());
    }
}
