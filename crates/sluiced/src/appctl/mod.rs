//! The commands of the control socket.
//!
//! A command is a row ([`Command`]) beside its handler: name, arguments, help, function. [`table`] lists the rows of all
//! modules; `docs/commands.md`, the manual page and the shell completion are made from them (`pages`). Handlers act on the
//! [`ControlPlane`] and return a [`Reply`]; the format of the client decides how it is printed.

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

pub(crate) use general::memory_counts;
pub use reply::Answer;
use reply::{Json, Reply, TypedReply};
pub(crate) use trace_args::hexadecimal as packet_of_hex;

use super::control_plane::ControlPlane;
use super::switch::Switch;
use super::unixctl::Request;
use crate::work::{ReplyPart, Work};
use l2proto::Protocol;
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

type Handler = fn(&mut ControlPlane, &[String]) -> Reply;

/// A command, as a row of a table.
struct Command {
    name: &'static str,
    /// Arguments, as `list-commands` shows them.
    usage: &'static str,
    /// Number of arguments.
    bounds: RangeInclusive<usize>,
    /// Purpose in one line, an imperative.
    help: &'static str,
    run: Run,
}

/// Executes a command.
#[derive(Clone, Copy)]
enum Run {
    /// A handler.
    Handler(Handler),
    /// A command of a link protocol, by its number.
    Link(Protocol, usize),
}

/// A row. A row without help does not compile.
const fn command(
    name: &'static str,
    usage: &'static str,
    bounds: RangeInclusive<usize>,
    help: &'static str,
    run: Handler,
) -> Command {
    assert!(!help.is_empty(), "a command needs a line of help");
    Command { name, usage, bounds, help, run: Run::Handler(run) }
}

/// The commands of these tables, in order of their names.
fn sorted(tables: impl IntoIterator<Item = &'static [Command]>) -> Vec<&'static Command> {
    let mut all: Vec<&Command> = tables.into_iter().flatten().collect();
    all.sort_by_key(|c| c.name);
    all
}

/// The commands of this switch.
fn available(plane: &ControlPlane) -> Vec<&'static Command> {
    let dummy: &[&[Command]] = if plane.switch.has_dummies() { table::DUMMY } else { &[] };
    sorted([&table::switch(), table::COMMON, dummy].concat())
}

/// The commands of the database server.
fn available_in_database() -> Vec<&'static Command> {
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

fn run_one(commands: &[&Command], known_as: &str, plane: &mut ControlPlane, request: &Request) -> Answer {
    let Request { command: name, args, format, .. } = request;
    let Some(command) = commands.iter().find(|c| c.name == known_as) else {
        return Answer::Now(Err(unknown(name)));
    };
    let (least, most) = (command.bounds.start(), command.bounds.end());
    if args.len() < *least {
        return Answer::Now(Err(format!("\"{name}\" command requires at least {least} arguments")));
    }
    if args.len() > *most {
        return Answer::Now(Err(format!("\"{name}\" command takes at most {most} arguments")));
    }
    let reply = match command.run {
        Run::Handler(run) => run(plane, args),
        Run::Link(protocol, n) => plane.switch.link_protocols().command(protocol, n, args).into(),
    };
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
