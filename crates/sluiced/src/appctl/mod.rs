//! The commands of the control socket: one table of rows, each with its arguments and its function.

mod bfd;
mod bond;
mod conntrack;
mod database;
mod datapath;
mod detrace;
mod dummy;
mod dumps;
mod fdb;
pub(crate) mod features;
mod flow_files;
mod flows;
pub(crate) mod fuzz;
mod general;
pub(crate) mod implementations;
mod parsing;
mod perf;
mod pmd;
mod routes;
mod separate;
mod slowpath;
mod table;
mod threads;
mod trace;
mod trace_args;
mod unsupported;
mod work;

pub(crate) use general::memory_counts;
pub(crate) use trace::failed_text;
pub(crate) use trace_args::hexadecimal as packet_of_hex;
pub use work::{Part, Work, Workers};

use super::daemon::Daemon;
use super::switch::Switch;
use super::unixctl::Request;
use serde_json::Value;
use std::sync::mpsc::{Receiver, TryRecvError};
use sync::Ordering;
use table::{COMMANDS, COMMON_COMMANDS, DUMMY_COMMANDS};

/// Result of a command.
pub enum Answer {
    /// Text for the terminal, or an error.
    Now(Result<String, String>),
    /// A reply after some event.
    Later(Wait),
    /// A value, for clients that want JSON.
    Json(Value),
    /// Further replies to this client are JSON, or text.
    Format(Format),
}

/// Format of the replies to a client (`set-options --format`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Format {
    /// Text for the terminal.
    #[default]
    Text,
    /// JSON; text is wrapped.
    Json,
}

impl From<Result<String, String>> for Answer {
    fn from(answer: Result<String, String>) -> Answer {
        Answer::Now(answer)
    }
}

impl From<String> for Answer {
    fn from(text: String) -> Answer {
        Answer::Now(Ok(text))
    }
}

/// Event that a reply waits for.
pub enum Wait {
    /// These rounds of revalidation.
    Rounds(Rounds),
    /// Steps of the clock, and the rounds of revalidation after each.
    Warp(dummy::Warp, Rounds),
    /// A thread that computes the reply.
    Work(Work),
    /// The end of the daemon, which sends the reply.
    Exit,
    /// The outcome of the compaction of the database's file.
    Compacted(Receiver<Result<(), String>>),
}

/// Rounds of revalidation, by the names of their datapaths.
pub type Rounds = Vec<(String, u64)>;

impl Wait {
    /// The reply or its next part, once ready. Call it once after each pass of the main loop, and after each part.
    pub fn part(&mut self, switch: &Switch) -> Option<Part> {
        match self {
            Wait::Rounds(rounds) => are_over(rounds, switch).then(|| Part::End(Ok(String::new()))),
            Wait::Warp(warp, rounds) => {
                if !are_over(rounds, switch) {
                    return None;
                }
                if !warp.step() {
                    return Some(Part::End(Ok("warped".to_string())));
                }
                switch.monitor().pass();
                *rounds = order_rounds(switch);
                None
            }
            Wait::Work(work) => work.part(),
            Wait::Exit => None,
            Wait::Compacted(outcome) => match outcome.try_recv() {
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => {
                    Some(Part::End(Err("I/O error: an earlier write failed".to_string())))
                }
                Ok(compacted) => Some(Part::End(compacted.map(|()| String::new()))),
            },
        }
    }
}

fn are_over(rounds: &Rounds, switch: &Switch) -> bool {
    rounds.iter().all(|(name, round)| {
        // A datapath that ended needs no waiting.
        let Ok(instance) = switch.instances().named(Some(name)) else { return true };
        let state = instance.revalidator();
        let paused = instance.backer.barrier.paused.load(Ordering::Acquire);
        paused || state.finished.load(Ordering::Acquire) > *round
    })
}

/// Starts a round of all revalidators.
fn order_rounds(switch: &Switch) -> Rounds {
    switch.instances().iter().map(|i| (i.name().to_string(), i.order_round())).collect()
}

/// Older names of commands, which OVS takes but does not list.
const OLD_NAMES: [(&str, &str); 3] = [
    ("bond/disable-slave", "bond/disable-member"),
    ("bond/enable-slave", "bond/enable-member"),
    ("bond/set-active-slave", "bond/set-active-member"),
];

type Handler = fn(&mut Daemon, &[String]) -> Answer;
type JsonHandler = fn(&mut Daemon, &[String]) -> Result<Value, String>;

/// One command.
struct Command {
    name: &'static str,
    usage: &'static str,
    min_args: usize,
    max_args: usize,
    run: Handler,
    /// The reply as JSON, if the command has its own form of it.
    json: Option<JsonHandler>,
}

const fn command(name: &'static str, usage: &'static str, min: usize, max: usize, run: Handler) -> Command {
    Command { name, usage, min_args: min, max_args: max, run, json: None }
}

impl Command {
    /// Replies with this value to clients that want JSON.
    const fn or_json(self, json: JsonHandler) -> Command {
        Command { json: Some(json), ..self }
    }
}

/// The commands of this daemon, in order of their names.
fn available(daemon: &Daemon) -> Vec<&'static Command> {
    let dummy = if daemon.switch.has_dummies() { DUMMY_COMMANDS } else { &[] };
    let mut all: Vec<_> = COMMANDS.iter().chain(COMMON_COMMANDS).chain(dummy).collect();
    all.sort_by_key(|c| c.name);
    all
}

/// Commands and their arguments, for `list-commands`.
fn listed<'c>(commands: impl Iterator<Item = &'c Command>) -> String {
    let lines = commands.map(|c| format!("  {:<23} {}\n", c.name, c.usage));
    std::iter::once("The available commands are:\n".to_string()).chain(lines).collect()
}

/// The same as JSON: an object of arguments by command.
fn listed_json<'c>(commands: impl Iterator<Item = &'c Command>) -> Value {
    commands.map(|c| (c.name.to_string(), Value::from(c.usage))).collect::<serde_json::Map<_, _>>().into()
}

/// Runs a command.
pub fn run(daemon: &mut Daemon, request: &Request) -> Answer {
    let old = OLD_NAMES.iter().find(|(old, _)| *old == request.command);
    let name = old.map_or(request.command.as_str(), |(_, name)| name);
    let command = available(daemon).into_iter().find(|c| c.name == name);
    run_one(command, daemon, request)
}

/// Runs a command of the embedded database server.
pub fn run_of_database(daemon: &mut Daemon, request: &Request) -> Answer {
    run_one(database::available().find(|c| c.name == request.command), daemon, request)
}

fn run_one(command: Option<&Command>, daemon: &mut Daemon, request: &Request) -> Answer {
    let Request { command: name, args, format, .. } = request;
    let Some(command) = command else {
        return Answer::Now(Err(format!(
            "\"{name}\" is not a valid command (use \"list-commands\" to see a list of valid commands)"
        )));
    };
    if args.len() < command.min_args {
        return Answer::Now(Err(format!(
            "\"{name}\" command requires at least {} arguments",
            command.min_args
        )));
    }
    if args.len() > command.max_args {
        return Answer::Now(Err(format!("\"{name}\" command takes at most {} arguments", command.max_args)));
    }
    if let (Some(json), Format::Json) = (command.json, format) {
        return json(daemon, args).map_or_else(|e| Answer::Now(Err(e)), Answer::Json);
    }
    match (command.run)(daemon, args) {
        Answer::Now(answer) => Answer::Now(answer.map_err(|e| worded(name, e))),
        other @ (Answer::Later(_) | Answer::Json(_) | Answer::Format(_)) => other,
    }
}

/// Text of a command's error.
pub fn worded(name: &str, error: String) -> String {
    // In the format of the tool for datapaths, the owner of these commands.
    match name.starts_with("dpctl/") && !error.starts_with("Unrecognized option") {
        true => format!("ovs-vswitchd: {error}"),
        false => error,
    }
}
