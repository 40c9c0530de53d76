//! The table of commands: one row has name, arguments, options, help and function.

use super::context::Context;
use super::options::Invocation;
use super::{Stop, auto_attach, bonds, bridge, database, edit, reset, show, targets, zones};
use crate::pki;

/// An option of a command.
#[derive(Debug)]
pub(crate) struct OptionSpec {
    pub(crate) name: &'static str,
    pub(crate) takes_value: bool,
}

/// A command.
#[derive(Debug)]
pub(crate) struct CommandSpec {
    pub(crate) name: &'static str,
    pub(crate) min_args: usize,
    pub(crate) max_args: usize,
    pub(crate) options: &'static [OptionSpec],
    /// Arguments as the help shows them.
    pub(crate) usage: &'static str,
    pub(crate) help: &'static str,
    pub(crate) run: fn(&mut Context<'_>, &Invocation) -> Result<(), Stop>,
}

const MAY_EXIST: OptionSpec = OptionSpec { name: "may-exist", takes_value: false };
const IF_EXISTS: OptionSpec = OptionSpec { name: "if-exists", takes_value: false };
const MUST_EXIST: OptionSpec = OptionSpec { name: "must-exist", takes_value: false };
const WITH_IFACE: OptionSpec = OptionSpec { name: "with-iface", takes_value: false };
const FAKE_IFACE: OptionSpec = OptionSpec { name: "fake-iface", takes_value: false };
const REAL: OptionSpec = OptionSpec { name: "real", takes_value: false };
const FAKE: OptionSpec = OptionSpec { name: "fake", takes_value: false };
const ALL: OptionSpec = OptionSpec { name: "all", takes_value: false };
const ID: OptionSpec = OptionSpec { name: "id", takes_value: true };
const FILTER: OptionSpec = OptionSpec { name: "filter", takes_value: true };
const COLUMNS: OptionSpec = OptionSpec { name: "columns", takes_value: true };
const INACTIVITY: OptionSpec = OptionSpec { name: "inactivity-probe", takes_value: true };
const BOOTSTRAP: OptionSpec = OptionSpec { name: "bootstrap", takes_value: false };
const ANY: usize = usize::MAX;

macro_rules! commands {
    ($($name:literal $min:literal..$max:tt [$($option:expr),*] $usage:literal $help:literal => $run:path;)*) => {
        &[$(CommandSpec {
            name: $name, min_args: $min, max_args: $max, options: &[$($option),*], usage: $usage, help: $help, run: $run,
        }),*]
    };
}

/// All commands, in the order of the help.
pub(crate) const COMMANDS: &[CommandSpec] = commands! {
    "init" 0..0 [] "" "make sure that the database has its root record" => show::init;
    "show" 0..0 [FILTER] "" "print bridges, ports and interfaces as a tree, or only rows with keywords (--filter='TABLE(WORD|...),...')" => show::show;
    "emer-reset" 0..0 [] "" "reset controllers, mirrors and other settings, so that bridges forward by themselves" => reset::emer_reset;
    "add-br" 1..3 [MAY_EXIST] "BRIDGE [PARENT VLAN]" "add a bridge, or a fake one for a VLAN of its parent" => bridge::add_br;
    "del-br" 1..1 [IF_EXISTS] "BRIDGE" "remove a bridge and all its ports" => bridge::del_br;
    "list-br" 0..0 [REAL, FAKE] "" "print the names of all bridges, or only of fake (--fake) or other ones (--real)" => bridge::list_br;
    "br-exists" 1..1 [] "BRIDGE" "exit with 2 if there is no such bridge" => bridge::br_exists;
    "br-to-vlan" 1..1 [] "BRIDGE" "print the VLAN of a fake bridge, else 0" => bridge::br_to_vlan;
    "br-to-parent" 1..1 [] "BRIDGE" "print the parent of a fake bridge, else itself" => bridge::br_to_parent;
    "br-set-external-id" 2..3 [] "BRIDGE KEY [VALUE]" "set a key of external_ids, or remove it" => targets::br_set_external_id;
    "br-get-external-id" 1..2 [] "BRIDGE [KEY]" "print external_ids, or one of them" => targets::br_get_external_id;
    "list-ports" 1..1 [] "BRIDGE" "print the ports of a bridge" => bridge::list_ports;
    "add-port" 2..ANY [MAY_EXIST] "BRIDGE PORT [COLUMN=VALUE]..." "add a port to a bridge" => bridge::add_port;
    "add-bond" 4..ANY [MAY_EXIST, FAKE_IFACE] "BRIDGE PORT IFACE IFACE... [COLUMN=VALUE]..." "add a bond of interfaces" => bridge::add_bond;
    "add-bond-iface" 2..2 [MAY_EXIST] "PORT IFACE" "add an interface to a bond" => bonds::add_bond_iface;
    "del-bond-iface" 1..2 [IF_EXISTS] "[PORT] IFACE" "remove an interface from a bond" => bonds::del_bond_iface;
    "del-port" 1..2 [IF_EXISTS, MUST_EXIST, WITH_IFACE] "[BRIDGE] PORT" "remove a port" => bridge::del_port;
    "port-to-br" 1..1 [] "PORT" "print the bridge that has the port" => bridge::port_to_br;
    "list-ifaces" 1..1 [] "BRIDGE" "print the interfaces of a bridge" => bridge::list_ifaces;
    "iface-to-br" 1..1 [] "IFACE" "print the bridge that has the interface" => bridge::iface_to_br;
    "get-controller" 1..1 [] "BRIDGE" "print the controllers of a bridge" => targets::get_controller;
    "del-controller" 1..1 [] "BRIDGE" "remove the controllers of a bridge" => targets::del_controller;
    "set-controller" 2..ANY [INACTIVITY] "BRIDGE TARGET..." "set the controllers of a bridge" => targets::set_controller;
    "get-fail-mode" 1..1 [] "BRIDGE" "print what a bridge does without a controller" => targets::get_fail_mode;
    "del-fail-mode" 1..1 [] "BRIDGE" "go back to the default fail mode" => targets::del_fail_mode;
    "set-fail-mode" 2..2 [] "BRIDGE standalone|secure" "say what a bridge does without a controller" => targets::set_fail_mode;
    "get-manager" 0..0 [] "" "print the database's managers" => targets::get_manager;
    "del-manager" 0..0 [] "" "remove the database's managers" => targets::del_manager;
    "set-manager" 1..ANY [INACTIVITY] "TARGET..." "set the database's managers" => targets::set_manager;
    "get-ssl" 0..0 [] "" "print the files with key and certificates" => targets::get_ssl;
    "del-ssl" 0..0 [] "" "remove them from the configuration" => targets::del_ssl;
    "set-ssl" 3..3 [BOOTSTRAP] "PRIVATE-KEY CERTIFICATE CA-CERT" "set the files with key and certificates" => targets::set_ssl;
    "add-aa-mapping" 3..3 [] "BRIDGE I-SID VLAN" "map a service identifier to a VLAN (Auto Attach)" => auto_attach::add_mapping;
    "del-aa-mapping" 3..3 [] "BRIDGE I-SID VLAN" "remove the mapping" => auto_attach::del_mapping;
    "get-aa-mapping" 1..1 [] "BRIDGE" "print the mappings" => auto_attach::get_mappings;
    "add-zone-tp" 3..ANY [MAY_EXIST] "DATAPATH zone=ZONE KEY=SECONDS..." "set the timeouts of connections of a zone" => zones::add_zone_tp;
    "del-zone-tp" 2..2 [IF_EXISTS] "DATAPATH zone=ZONE" "go back to the default timeouts of a zone" => zones::del_zone_tp;
    "list-zone-tp" 1..1 [] "DATAPATH" "print the timeouts of zones" => zones::list_zone_tp;
    "set-zone-limit" 3..3 [] "DATAPATH zone=ZONE|default LIMIT" "limit the connections of a zone, or of zones without a limit" => zones::set_zone_limit;
    "del-zone-limit" 2..2 [IF_EXISTS] "DATAPATH zone=ZONE|default" "remove the limit" => zones::del_zone_limit;
    "list-zone-limits" 1..1 [] "DATAPATH" "print the limits" => zones::list_zone_limits;
    "list-dp-cap" 1..1 [] "DATAPATH" "print what a datapath can do" => zones::list_dp_cap;
    "list" 1..ANY [IF_EXISTS, COLUMNS] "TABLE [RECORD]..." "print records" => database::list;
    "find" 1..ANY [COLUMNS] "TABLE [COLUMN[:KEY]=VALUE]..." "print the records that meet all conditions" => database::find;
    "get" 2..ANY [IF_EXISTS, ID] "TABLE RECORD [COLUMN[:KEY]]..." "print values" => database::get;
    "wait-until" 2..ANY [] "TABLE RECORD [COLUMN[:KEY]=VALUE]..." "wait until a record meets all conditions" => database::wait_until;
    "set" 3..ANY [IF_EXISTS] "TABLE RECORD COLUMN[:KEY]=VALUE..." "set values" => edit::set;
    "add" 4..ANY [IF_EXISTS] "TABLE RECORD COLUMN [KEY=]VALUE..." "add values to a set or map" => edit::add;
    "remove" 4..ANY [IF_EXISTS] "TABLE RECORD COLUMN KEY|VALUE|KEY=VALUE..." "remove values from a set or map" => edit::remove;
    "clear" 3..ANY [IF_EXISTS] "TABLE RECORD COLUMN..." "make sets or maps empty" => edit::clear;
    "create" 2..ANY [ID] "TABLE COLUMN[:KEY]=VALUE..." "add a record and print its UUID" => edit::create;
    "destroy" 1..ANY [IF_EXISTS, ALL] "TABLE RECORD..." "remove records" => edit::destroy;
    "comment" 0..ANY [] "[WORD]..." "put a comment into the database's log" => show::comment;
};

/// The text of `--commands`: options, name and arguments of each, a line each.
pub(crate) fn list() -> String {
    let option = |o: &OptionSpec| format!("[--{}{}] ", o.name, if o.takes_value { "=" } else { "" });
    let line = |spec: &CommandSpec| {
        let options: String = spec.options.iter().map(option).collect();
        format!("{options},{},{}\n", spec.name, spec.usage)
    };
    COMMANDS.iter().map(line).collect()
}

/// The text of `--help`.
pub(crate) fn help(program: &str) -> String {
    let mut text =
        format!("usage: {program} [OPTION]... COMMAND [ARG]... [-- [OPTION]... COMMAND [ARG]...]...\n\n");
    text.push_str("The commands of one line take effect together or not at all.\n\nCommands:\n");
    for spec in COMMANDS {
        text.push_str(&format!(
            "  {}\n        {}\n",
            format!("{} {}", spec.name, spec.usage).trim_end(),
            spec.help
        ));
    }
    text.push_str(
        "
Options:
  --db=unix:PATH|tcp:HOST:PORT|ssl:HOST:PORT
                                the database server (default: unix:$OVS_RUNDIR/db.sock)
  -t, --timeout=SECONDS         give up after so long (default: never)
  --no-wait                     do not wait until the switch has taken the change
  --retry                       keep trying to connect
  --dry-run                     change nothing
  --oneline                     print the result of each command on one line
  -f, --format=list|table|csv|json, -d, --data=string|bare|json, --no-headings, --pretty,
  --bare, --max-column-width=N  how records are printed
  -h, --help; -V, --version

Before a command: --may-exist, --if-exists, --with-iface, --columns=A,B, --id=@NAME, --all,
--inactivity-probe=MS, --bootstrap, where the command has them.
Exit codes: 0 done, 1 an error, 2 `br-exists` found no bridge.
",
    );
    text.push_str(&format!("\n{}", pki::HELP));
    text
}
