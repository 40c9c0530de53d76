//! `sluice ofctl`: reads and changes the OpenFlow tables of a bridge with the syntax of `ovs-ofctl(8)`.
//!
//! Mostly one connection per run, and a second one if names of tables are needed. It offers OpenFlow 1.0 by default (`-O`
//! overrides), with Nicira's extensions, which give access to all fields and all tables. `openflow::text` prints the
//! messages of the switch.

mod background;
mod color;
mod commands;
mod compare;
mod connection;
mod control;
mod flows;
pub(crate) mod fuzz;
mod groups;
mod hints;
mod json;
mod matches;
mod meters;
mod options;
mod parse;
mod ports;
mod probe;
pub(crate) mod saved;
mod switch;
mod tables;
mod tlv;
mod transaction;
mod watch;

use std::io::IsTerminal;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use flow::Protocols;
use openflow::text::{Printing, format_message};
use openflow::{Format, Message, Version};

use crate::hint::hint;
use crate::pki;
use crate::remote::{Deadline, EXIT_TIMED_OUT, TimedOut, complain, print};
use background::{Process, Signalled};
use commands::{COMMANDS, Command, How};
use connection::{Connection, Names, TableNames, entries};
use options::{Options, Request, parse};

#[cfg(test)]
pub(crate) use commands::help;
pub(crate) use options::OPTIONS;

/// Exit code of `diff-flows` for sources that differ.
const EXIT_DIFFERENT: u8 = 2;

/// The sources of `diff-flows` differ; the text names the differences.
#[derive(Debug)]
struct Different(String);

impl std::fmt::Display for Different {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Different {}

/// Runs a command line for another part of this program, and returns its output.
pub(crate) fn answer(words: &[String]) -> Result<String> {
    match parse(words).map_err(anyhow::Error::msg)? {
        Request::Run(options, args) => run(&options, &args),
        Request::Help | Request::Version | Request::List => {
            bail!("no command that changes or queries the switch")
        }
    }
}

/// Runs it; returns the exit code.
pub(crate) fn main(program: &str, words: &[String]) -> u8 {
    let result = match parse(words) {
        Err(text) => Err(anyhow!(text)),
        Ok(Request::Help) => Ok(commands::help(program)),
        Ok(Request::Version) => Ok(format!("{program} (Sluice) {}\n", env!("CARGO_PKG_VERSION"))),
        Ok(Request::List) => Ok(OPTIONS.iter().chain(pki::OPTIONS).map(|o| format!("{o}\n")).collect()),
        Ok(Request::Run(options, args)) => run(&options, &args),
    };
    match result {
        Ok(text) => {
            print(&text);
            0
        }
        Err(error) => {
            let error = hints::with_hint(error);
            if let Some(signal) = error.downcast_ref::<Signalled>() {
                return signal.exit_code();
            }
            if let Some(Different(text)) = error.downcast_ref() {
                print(text);
                return EXIT_DIFFERENT;
            }
            complain(program, &format!("{error:#}"));
            if error.chain().any(|cause| cause.is::<TimedOut>()) { EXIT_TIMED_OUT } else { 1 }
        }
    }
}

/// State of a run: the connection and the bridge's port names.
struct Run<'o> {
    options: &'o Options,
    target: &'o str,
    name: &'static str,
    connection: Connection,
    names: Names,
    /// Permitted flow formats.
    allowed: Protocols,
}

impl Run<'_> {
    /// Connects to a bridge and learns the names of its ports and its tunnel options.
    fn open<'o>(options: &'o Options, target: &'o str, name: &'static str) -> Result<Run<'o>> {
        let deadline = Deadline::after_s(options.timeout_s);
        let bundles = options.bundle || name == "bundle";
        let versions = options.offered(bundles);
        let mut connection = Connection::open(target, &options.pki, versions, deadline)?;
        let (_, ports) = connection.ports()?;
        let show = options.names.unwrap_or_else(|| std::io::stdout().is_terminal());
        let tlv = Arc::new(tlv::mappings(&mut connection));
        connection.use_tlv(&tlv);
        let (to, pki, timeout_s) = (target.to_string(), options.pki.clone(), options.timeout_s);
        let tables =
            TableNames::from(move || Connection::open(&to, &pki, versions, Deadline::after_s(timeout_s)));
        Ok(Run {
            options,
            target,
            name,
            connection,
            names: Names { ports, tables, show, tlv },
            allowed: options.allowed(bundles),
        })
    }

    /// Nicira's forms in OpenFlow 1.0, whose own lack most fields.
    fn format(&self) -> Format {
        let nicira = self.allowed.meets(Protocols::NXM);
        if self.connection.version() == Version::V10 && nicira { Format::Nxt } else { Format::Standard }
    }

    /// An error unless the connection may use a flow format that carries a rule, group or packet.
    fn needs_one_of(&self, usable: Protocols) -> Result<()> {
        let of_version = Protocols::of_version(self.connection.version().0);
        if !usable.meets(self.allowed & of_version) {
            let allowed = self.allowed;
            bail!(
                "none of the usable flow formats ({usable}) is among the allowed flow formats ({allowed}) (choose others with -O)"
            );
        }
        Ok(())
    }

    /// The title of a statistics reply.
    fn title(&self, kind: &str, nxt: bool) -> String {
        let prefix = if nxt && self.format() == Format::Nxt { "NXST" } else { "OFPST" };
        format!("{prefix}_{kind} reply{}", self.connection.version_text())
    }

    /// An error unless the connection has at least this version.
    fn needs(&self, least: Version) -> Result<()> {
        if self.connection.version() < least {
            let (name, n) = (self.name, least.0 - 1);
            bail!("{name} needs OpenFlow 1.{n} or later ('-O OpenFlow1{n}')");
        }
        Ok(())
    }

    /// The text of a message.
    fn text(&self, frame: &[u8], verbosity: u8) -> String {
        let options = self.connection.options();
        format_message(frame, Printing { options, names: &self.names, verbosity })
    }

    /// Sends a request and prints its replies.
    fn dump(&mut self, request: &Message) -> Result<String> {
        let frames = self.connection.frames(request)?;
        Ok(frames.iter().map(|frame| self.text(frame, 1 + self.options.more)).collect())
    }

    /// As [`Run::dump`]; with `--json` as the JSON of the entries of its replies.
    fn dump_or<T>(
        &mut self,
        request: &Message,
        part: fn(Message) -> Option<(Vec<T>, bool)>,
        json: fn(&[T], &Names) -> String,
    ) -> Result<String> {
        if !self.options.json {
            return self.dump(request);
        }
        let (_, all) = self.connection.gather(request, part)?;
        Ok(json(&all, &self.names))
    }

    /// Sends changes, with `--bundle` in one transaction.
    fn change(&mut self, mut messages: Vec<Message>) -> Result<String> {
        if !self.options.bundle {
            self.connection.carry_out(&messages)?;
            return Ok(String::new());
        }
        messages.retain(|message| !matches!(message, Message::FlowModTableId(_)));
        self.transact(messages)
    }

    /// Sends changes in one transaction.
    fn transact(&mut self, messages: Vec<Message>) -> Result<String> {
        let options = self.connection.options().clone();
        let show = |frame: &[u8]| {
            format_message(frame, Printing { options: &options, names: &self.names, verbosity: 1 })
        };
        self.connection.in_bundle(messages, &show)?;
        Ok(String::new())
    }
}

/// Names of the commands.
pub(crate) fn commands() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().map(|command| command.name)
}

/// Kind of an argument of a command, as its help names it.
pub(crate) fn argument(name: &str, at: usize) -> Option<&'static str> {
    let command = COMMANDS.iter().find(|command| command.name == name)?;
    command.usage.split(' ').nth(at)
}

/// Words that may stand in place of an argument.
pub(crate) fn settings(name: &str) -> Vec<String> {
    match name {
        "mod-port" => ports::settings().map(String::from).collect(),
        "mod-table" => tables::SETTINGS.map(String::from).to_vec(),
        "set-frags" => switch::FRAGMENTS.map(|(name, _)| name.to_string()).to_vec(),
        _ => Vec::new(),
    }
}

/// The command of that name, for these arguments.
fn find(options: &Options, name: &str, args: &[String]) -> Result<&'static Command> {
    let Some(command) = COMMANDS.iter().find(|known| known.name == name) else {
        bail!("unknown command '{name}'{}; use --help for help", hint(name, commands()));
    };
    if options.json && !json::COMMANDS.contains(&name) {
        bail!("'{name}' has no JSON form; these have: {}", json::COMMANDS.join(", "));
    }
    if options.read_only && command.changes {
        bail!("'{name}' command changes the switch, and --read-only forbids it");
    }
    let (least, most) = command.arity();
    if args.len() < least {
        bail!("'{name}' command requires at least {least} arguments ({name} {})", command.usage);
    }
    if args.len() > most {
        bail!("'{name}' command takes at most {most} arguments ({name} {})", command.usage);
    }
    Ok(command)
}

/// Commands whose output has rules.
const COLORED: [&str; 4] = ["dump-flows", "parse-flow", "parse-flows", "diff-flows"];

fn run(options: &Options, args: &[String]) -> Result<String> {
    let (name, args) = args.split_first().context("missing command name (use --help for help)")?;
    let command = find(options, name, args)?;
    let mut process = options.process.begin(command.name)?;
    let text = execute(options, command, args, &mut process)?;
    let colored = COLORED.contains(&command.name) && !options.json && options.color.on_output();
    let colors = || std::env::var("OVS_COLORS").unwrap_or_default();
    Ok(if colored { color::rules(&text, &colors()) } else { text })
}

fn execute(options: &Options, command: &Command, args: &[String], process: &mut Process) -> Result<String> {
    match command.how {
        How::Lasting(function) => function(options, args, process),
        How::Alone(function) => function(options, args),
        How::One(function) => {
            let mut run = Run::open(options, &args[0], command.name)?;
            function(&mut run, args.get(1).map_or("", String::as_str))
        }
        How::Many(function) => {
            let mut run = Run::open(options, &args[0], command.name)?;
            function(&mut run, &args[1..])
        }
    }
}
