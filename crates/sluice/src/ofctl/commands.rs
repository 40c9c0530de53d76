//! The table of commands: one row has name, arguments, help and function.

use anyhow::Result;

use super::background::Process;
use super::options::{self, Options};
use super::{
    Run, compare, flows, groups, matches, meters, parse, ports, probe, switch, tables, tlv, transaction,
    watch,
};
use crate::pki;

/// Function of a command.
#[derive(Clone, Copy)]
pub(super) enum How {
    /// On a bridge, with at most one further argument, empty without it.
    One(fn(&mut Run<'_>, &str) -> Result<String>),
    /// On a bridge, with further arguments.
    Many(fn(&mut Run<'_>, &[String]) -> Result<String>),
    /// Opens a connection itself and lasts; it tells once it waits for messages.
    Lasting(fn(&Options, &[String], &mut Process) -> Result<String>),
    /// Opens connections itself, or needs none.
    Alone(fn(&Options, &[String]) -> Result<String>),
}

/// A command.
pub(super) struct Command {
    pub(super) name: &'static str,
    /// Arguments as the help shows them: those in brackets may be left out, `...` repeats the last one.
    pub(super) usage: &'static str,
    pub(super) help: &'static str,
    pub(super) how: How,
    /// It changes the switch.
    pub(super) changes: bool,
}

impl Command {
    /// Least and greatest number of arguments.
    pub(super) fn arity(&self) -> (usize, usize) {
        let words = self.usage.split(' ').filter(|word| !word.is_empty());
        let least = words.clone().filter(|word| !word.starts_with('[')).count();
        (
            least,
            if self.usage.ends_with("...") || self.usage.ends_with("...]") {
                usize::MAX
            } else {
                words.count()
            },
        )
    }
}

macro_rules! commands {
    ($($change:tt $name:literal $usage:literal $help:literal => $how:ident $run:path;)*) => {
        &[$(Command { name: $name, usage: $usage, help: $help, how: How::$how($run), changes: commands!(@ $change) }),*]
    };
    (@ reads) => { false };
    (@ changes) => { true };
}

/// All commands, in the order of the help.
pub(super) const COMMANDS: &[Command] = commands! {
    reads "show" "BRIDGE" "the switch, its ports and configuration" => One switch::show;
    reads "dump-desc" "BRIDGE" "the switch in words" => One switch::dump_desc;
    reads "dump-tables" "BRIDGE" "counters of the tables" => One tables::dump_tables;
    reads "dump-table-features" "BRIDGE" "what rules of each table can do (OpenFlow 1.3)" => One tables::dump_features;
    reads "dump-table-desc" "BRIDGE" "the configuration of the tables (OpenFlow 1.4)" => One tables::dump_desc;
    changes "mod-table" "BRIDGE TABLE SETTING" "configure a table: controller, continue, drop (OpenFlow 1.1, 1.2); evict, noevict, vacancy:LOW,HIGH, novacancy (1.4); name:NAME (1.3)" => Many tables::mod_table;
    reads "dump-ports" "BRIDGE [PORT]" "counters of the ports" => One ports::dump_ports;
    reads "dump-ports-desc" "BRIDGE [PORT]" "the ports" => One ports::dump_ports_desc;
    changes "mod-port" "BRIDGE PORT SETTING" "configure a port: up, down, flood, no-flood, forward, no-forward, ..." => Many ports::mod_port;
    reads "queue-stats" "BRIDGE [PORT] [QUEUE]" "counters of the queues" => Many ports::queue_stats;
    reads "queue-get-config" "BRIDGE [PORT] [QUEUE]" "the queues" => Many ports::queue_get_config;
    reads "get-frags" "BRIDGE" "how fragments are matched" => One switch::get_frags;
    changes "set-frags" "BRIDGE MODE" "match fragments so: normal, drop or nx-match" => One switch::set_frags;
    reads "dump-flows" "BRIDGE [MATCH]" "the rules within MATCH, with their counters" => One flows::dump_flows;
    reads "dump-aggregate" "BRIDGE [MATCH]" "sums over them" => One flows::dump_aggregate;
    changes "add-flow" "BRIDGE RULE" "add a rule (or: -, a file of rules on the standard input)" => One flows::add_flow;
    changes "add-flows" "BRIDGE FILE" "add the rules of a file, one a line; - is the standard input" => One flows::add_flows;
    changes "mod-flows" "BRIDGE RULE" "change the actions of the rules within the match" => One flows::mod_flows;
    changes "del-flows" "BRIDGE [MATCH]" "delete the rules within MATCH, or all" => One flows::del_flows;
    changes "replace-flows" "BRIDGE FILE" "make the rules of the bridge those of a file" => One compare::replace_flows;
    reads "diff-flows" "SOURCE1 SOURCE2" "compare rules; a source is a bridge or a file; exit with 2 if they differ" => Alone compare::diff_flows;
    changes "bundle" "BRIDGE FILE" "do what the lines of a file say in one transaction: flow, group or packet-out, command, arguments" => One transaction::bundle;
    changes "packet-out" "BRIDGE PACKET" "send a packet through actions: in_port=PORT,packet=HEX,actions=ACTIONS" => One flows::packet_out;
    reads "monitor" "BRIDGE [MISS_LENGTH] [invalid_ttl] [watch:[MATCH]...]" "print the messages of the switch, and changes of rules" => Lasting watch::monitor;
    reads "snoop" "BRIDGE" "print the messages between the switch and its controllers" => Lasting watch::snoop;
    changes "add-group" "BRIDGE GROUP" "add a group (or: -, a file of groups on the standard input)" => One groups::add_group;
    changes "add-groups" "BRIDGE FILE" "add the groups of a file, one a line; - is the standard input" => One groups::add_groups;
    changes "mod-group" "BRIDGE GROUP" "replace a group" => One groups::mod_group;
    changes "insert-buckets" "BRIDGE GROUP" "insert buckets at command_bucket_id=first, last or ID" => One groups::insert_buckets;
    changes "remove-buckets" "BRIDGE GROUP" "remove the bucket command_bucket_id, or all" => One groups::remove_buckets;
    changes "del-groups" "BRIDGE [GROUP]" "delete a group and its rules, or all" => One groups::del_groups;
    reads "dump-groups" "BRIDGE [GROUP]" "the groups" => One groups::dump_groups;
    reads "dump-group-stats" "BRIDGE [GROUP]" "counters of groups and buckets" => One groups::dump_group_stats;
    reads "dump-group-features" "BRIDGE" "what groups can do" => One groups::dump_group_features;
    changes "add-meter" "BRIDGE METER" "add a meter: meter=ID,kbps|pktps,[burst,][stats,]bands=type=drop,rate=RATE" => One meters::add_meter;
    changes "mod-meter" "BRIDGE METER" "replace a meter" => One meters::mod_meter;
    changes "del-meter" "BRIDGE [METER]" "delete a meter and its rules, or all" => One meters::del_meters;
    changes "del-meters" "BRIDGE [METER]" "the same" => One meters::del_meters;
    reads "dump-meter" "BRIDGE [METER]" "a meter, or all" => One meters::dump_meters;
    reads "dump-meters" "BRIDGE [METER]" "the same" => One meters::dump_meters;
    reads "meter-stats" "BRIDGE [METER]" "counters of meters" => One meters::meter_stats;
    reads "meter-features" "BRIDGE" "what meters can do" => One meters::meter_features;
    changes "add-tlv-map" "BRIDGE MAPS" "map tunnel options, {class=CLASS,type=TYPE,len=BYTES}->tun_metadataN, several with commas" => One tlv::add_tlv_map;
    changes "del-tlv-map" "BRIDGE [MAPS]" "remove these mappings, or all" => One tlv::del_tlv_map;
    reads "dump-tlv-map" "BRIDGE" "the mappings" => One tlv::dump_tlv_map;
    reads "dump-ipfix-bridge" "BRIDGE" "counters of the bridge's IPFIX exporter" => One switch::dump_ipfix_bridge;
    reads "dump-ipfix-flow" "BRIDGE" "counters of IPFIX exporters of sampled flows" => One switch::dump_ipfix_flow;
    changes "ct-flush-zone" "BRIDGE ZONE" "forget the tracked connections of a zone" => One switch::ct_flush_zone;
    changes "ct-flush" "BRIDGE [zone=ZONE] [mark=VALUE[/MASK]] [labels=VALUE[/MASK]] [TUPLE] [REPLY_TUPLE]" "forget tracked connections" => Many switch::ct_flush;
    reads "probe" "BRIDGE" "nothing, if the switch answers" => One probe::probe;
    reads "ping" "BRIDGE [BYTES]" "times of ten echo requests" => One probe::ping;
    reads "benchmark" "BRIDGE BYTES COUNT" "speed of many echo requests" => Many probe::benchmark;
    reads "ofp-print" "HEX [VERBOSITY]" "print a message" => Alone parse::ofp_print;
    reads "ofp-parse" "FILE" "print the messages of a file" => Alone parse::ofp_parse;
    reads "ofp-parse-pcap" "PCAP [PORT...]" "print the messages in a capture of TCP" => Alone parse::ofp_parse_pcap;
    reads "parse-flow" "RULE" "print a rule as its message" => Alone parse::parse_flow;
    reads "parse-flows" "FILE" "print the rules of a file as messages" => Alone parse::parse_flows;
    reads "parse-group" "GROUP" "print a group as its message" => Alone parse::parse_group;
    reads "parse-packet" "" "print the packet whose bytes are on the standard input" => Alone parse::parse_packet;
    reads "parse-pcap" "PCAP..." "print the packets of captures" => Alone parse::parse_pcap;
    reads "compose-packet" "MATCH [HEX]" "print the bytes of a packet, with this payload" => Alone parse::compose_packet;
    reads "parse-key-value" "TEXT..." "print the words of a text" => Alone parse::parse_key_value;
    reads "parse-actions" "VERSION" "print actions whose bytes are on the standard input" => Alone parse::parse_actions;
    reads "parse-instructions" "VERSION" "print instructions whose bytes are on the standard input" => Alone parse::parse_instructions;
    reads "parse-nx-match" "" "print extensible matches, entry by entry, as Nicira's form has them" => Alone matches::parse_nxm;
    reads "parse-nxm" "" "the same" => Alone matches::parse_nxm;
    reads "parse-oxm" "VERSION" "the same, as a version has them" => Alone matches::parse_oxm;
    reads "parse-ofp10-match" "" "print matches whose bytes of OpenFlow 1.0 are on the standard input" => Alone matches::parse_ofp10_match;
    reads "parse-ofp11-match" "" "the same, of OpenFlow 1.1" => Alone matches::parse_ofp11_match;
    reads "check-vlan" "TCI MASK" "print a match on a VLAN tag in all forms that it may have" => Alone matches::check_vlan;
    reads "print-error" "NAME" "print the numbers of an error" => Alone parse::print_error;
    reads "encode-error-reply" "NAME HEX" "print the reply to a message that has this error" => Alone parse::encode_error_reply;
    reads "encode-hello" "BITMAP" "print a greeting with these versions" => Alone parse::encode_hello;
    reads "list-commands" "" "print the names of the commands" => Alone list;
    reads "help" "" "print this help" => Alone help_command;
};

fn list(_: &Options, _: &[String]) -> Result<String> {
    let line = |c: &Command| format!("  {:<23} {}", c.name, c.usage).trim_end().to_string() + "\n";
    Ok(format!("The available commands are:\n{}", COMMANDS.iter().map(line).collect::<String>()))
}

fn help_command(_: &Options, _: &[String]) -> Result<String> {
    Ok(help("sluice ofctl"))
}

/// The text of `--help`.
pub(crate) fn help(program: &str) -> String {
    let mut text = format!("usage: {program} [OPTION]... COMMAND [ARG]...\n\nCommands:\n");
    for command in COMMANDS {
        let head = format!("{} {}", command.name, command.usage);
        text += &format!("  {:<38} {}\n", head.trim_end(), command.help);
    }
    text +=
        "\nBRIDGE is a bridge's name, the path of its socket, unix:PATH, tcp:HOST:PORT or ssl:HOST:PORT.\n\n";
    text + options::HELP + "\n" + pki::HELP
}
