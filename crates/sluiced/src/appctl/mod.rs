//! The commands of the control socket.
//!
//! A command is a row ([`Row`]) beside its handler: name, [`arguments`], help, function. [`table`] lists the rows of all
//! modules; `docs/commands.md`, the manual page and the shell completion are made from them (`pages`). Handlers get parsed
//! arguments, act on the [`ControlPlane`] and return a [`Reply`]; the format of the client decides how it is printed.

mod arguments;
mod bond;
mod conntrack;
mod database;
mod datapath;
mod detrace;
mod dpctl_datapaths;
mod drops;
mod dummy;
mod dumps;
mod fdb;
pub(crate) mod features;
mod flow_files;
mod flows;
pub(crate) mod fuzz;
mod general;
pub(crate) mod implementations;
mod link_protocols;
mod loop_times;
mod mdb;
#[cfg(test)]
mod pages;
mod parsing;
mod perf;
mod pmd;
mod qos;
mod reply;
mod routes;
mod slowpath;
mod table;
#[cfg(test)]
mod tests;
mod threads;
mod trace;
mod trace_args;

use arguments::{Arguments, Form, Optional, Parsed, Several, Unlisted, Word};
pub(crate) use general::memory_counts;
pub use reply::Answer;
use reply::{Json, Reply, TypedReply};
pub(crate) use trace_args::hexadecimal as packet_of_hex;

use super::control_plane::ControlPlane;
use super::switch::Switch;
use super::unixctl::Request;
use crate::work::{ReplyPart, Work};
use std::ops::RangeInclusive;
use std::sync::mpsc::{Receiver, TryRecvError};
use sync::Ordering;

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
    /// The end of the daemon, or a failure of its handover.
    Handover,
    /// The outcome of the compaction of the database's file.
    Compacted(Receiver<Result<(), String>>),
}

/// Rounds of revalidation, by the names of their datapaths.
pub type Rounds = Vec<(String, u64)>;

impl Wait {
    /// The reply or its next part, once ready. Call it once after each pass of the main loop, and after each part.
    pub fn part(&mut self, switch: &Switch) -> Option<ReplyPart> {
        match self {
            Wait::Rounds(rounds) => are_over(rounds, switch).then(|| ReplyPart::End(Ok(String::new()))),
            Wait::Warp(warp, rounds) => {
                if !are_over(rounds, switch) {
                    return None;
                }
                if !warp.step() {
                    return Some(ReplyPart::End(Ok("warped".to_string())));
                }
                switch.link_protocols().pass();
                *rounds = order_rounds(switch);
                None
            }
            Wait::Work(work) => work.part(),
            Wait::Exit | Wait::Handover => None,
            Wait::Compacted(outcome) => match outcome.try_recv() {
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => {
                    Some(ReplyPart::End(Err("I/O error: an earlier write failed".to_string())))
                }
                Ok(compacted) => Some(ReplyPart::End(compacted.map(|()| String::new()))),
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

/// A command, as lists and clients see it.
trait Command: Sync {
    fn name(&self) -> &'static str;

    /// Arguments, as `list-commands` shows them.
    fn usage(&self) -> String;

    /// Number of arguments.
    fn bounds(&self) -> RangeInclusive<usize>;

    /// Purpose in one line, an imperative.
    fn help(&self) -> &'static str;

    /// Executes the command with words, whose number is within the bounds.
    fn run(&self, plane: &mut ControlPlane, words: &[String]) -> Reply;
}

/// Commands, as a module declares them.
type Rows = &'static [&'static dyn Command];

/// A command with a handler, as a row of a table.
struct Row<A, H> {
    name: &'static str,
    arguments: A,
    help: &'static str,
    /// Executes the command with parsed arguments.
    handler: H,
}

impl<A, H> Command for Row<A, H>
where
    A: Arguments,
    H: for<'a> Fn(&mut ControlPlane, A::Value<'a>) -> Reply + Sync,
{
    fn name(&self) -> &'static str {
        self.name
    }

    fn usage(&self) -> String {
        self.arguments.usage()
    }

    fn bounds(&self) -> RangeInclusive<usize> {
        self.arguments.bounds()
    }

    fn help(&self) -> &'static str {
        self.help
    }

    fn run(&self, plane: &mut ControlPlane, words: &[String]) -> Reply {
        match self.arguments.parse(words) {
            Ok(arguments) => (self.handler)(plane, arguments),
            Err(e) => Reply::Error(e),
        }
    }
}

/// A row. A row without help does not compile.
const fn command<A, H>(name: &'static str, arguments: A, help: &'static str, handler: H) -> Row<A, H>
where
    A: Arguments,
    H: for<'a> Fn(&mut ControlPlane, A::Value<'a>) -> Reply + Copy,
{
    assert!(!help.is_empty(), "a command needs a line of help");
    Row { name, arguments, help, handler }
}

/// The commands of these tables, in order of their names.
fn sorted(tables: impl IntoIterator<Item = Rows>) -> Vec<&'static dyn Command> {
    let mut all: Vec<&dyn Command> = tables.into_iter().flatten().copied().collect();
    all.sort_by_key(|c| c.name());
    all
}

/// The commands of this switch.
fn available(plane: &ControlPlane) -> Vec<&'static dyn Command> {
    let dummy: &[Rows] = if plane.switch.has_dummies() { table::DUMMY } else { &[] };
    sorted([&table::switch(), table::COMMON, dummy].concat())
}

/// The commands of the database server.
fn available_in_database() -> Vec<&'static dyn Command> {
    sorted([table::DATABASE, table::COMMON].concat())
}

/// Runs a command.
pub fn run(plane: &mut ControlPlane, request: &Request) -> Answer {
    let old = OLD_NAMES.iter().find(|(old, _)| *old == request.command);
    let name = old.map_or(request.command.as_str(), |(_, name)| name);
    run_one(&available(plane), name, plane, request)
}

/// Runs a command of the embedded database server.
pub fn run_of_database(plane: &mut ControlPlane, request: &Request) -> Answer {
    run_one(&available_in_database(), &request.command, plane, request)
}

/// The error of a name that is no command.
fn unknown(name: &str) -> String {
    format!("\"{name}\" is not a valid command (use \"list-commands\" to see a list of valid commands)")
}

fn run_one(commands: &[&dyn Command], known_as: &str, plane: &mut ControlPlane, request: &Request) -> Answer {
    let Request { command: name, args, format, .. } = request;
    let Some(command) = commands.iter().find(|c| c.name() == known_as) else {
        return Answer::Now(Err(unknown(name)));
    };
    let (least, most) = command.bounds().into_inner();
    if args.len() < least {
        return Answer::Now(Err(format!("\"{name}\" command requires at least {least} arguments")));
    }
    if args.len() > most {
        return Answer::Now(Err(format!("\"{name}\" command takes at most {most} arguments")));
    }
    let reply = command.run(plane, args);
    match reply.print(*format, &plane.workers) {
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
