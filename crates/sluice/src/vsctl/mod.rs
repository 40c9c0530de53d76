//! `sluice vsctl`: reads and changes the configuration database with the syntax of `ovs-vsctl(8)`.
//!
//! All commands of a line run on one view of the database ([`work`]) and become one transaction. If its base
//! has changed meanwhile they run again. By default the program then waits until the switch has applied the
//! configuration.

mod auto_attach;
mod bonds;
mod bridge;
mod commands;
mod context;
mod database;
mod edit;
mod fake;
pub(crate) mod fuzz;
mod names;
mod options;
mod reset;
mod session;
mod show;
mod table;
mod targets;
#[cfg(test)]
mod tests;
mod text;
mod work;
mod zones;

use anyhow::{Context as _, Result, bail};
use ovsdb::client::{Replica, TxnOutcome};
use ovsdb::value::Uuid;

use crate::remote::{Deadline, EXIT_TIMED_OUT, TimedOut, complain, print};
pub(crate) use commands::COMMANDS;
#[cfg(test)]
pub(crate) use commands::help;
use context::{Context, Output};
pub(crate) use options::GLOBAL_OPTIONS;
use options::{Invocation, Options, Request};
pub(crate) use session::Session;
use work::Plan;

/// Reason to stop a command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// An error of the user's or in the database.
    Fatal(String),
    /// The answer is an exit code.
    Exit(u8),
    /// A condition does not hold yet: run again after a change of the database.
    Wait,
}

impl Stop {
    pub(crate) fn fatal(text: impl Into<String>) -> Stop {
        Stop::Fatal(text.into())
    }
}

impl From<String> for Stop {
    fn from(text: String) -> Stop {
        Stop::Fatal(text)
    }
}

/// Immediate output of a run.
#[derive(Clone, Copy, Debug)]
enum Printed<'a> {
    /// A result.
    Output(&'a str),
    /// A warning or an error.
    Diagnostic(&'a str),
}

/// Receives the output.
type Say<'s> = &'s mut dyn FnMut(Printed<'_>);

/// Runs a command line for another part of this program, and returns its output.
pub(crate) fn answer(program: &str, words: &[String]) -> Result<String> {
    let Request::Run(options, commands) = options::parse(words).map_err(anyhow::Error::msg)? else {
        bail!("no command that changes or queries the switch");
    };
    let (mut output, mut complaints) = (String::new(), Vec::new());
    let mut say = |said: Printed<'_>| match said {
        Printed::Output(text) => output.push_str(text),
        Printed::Diagnostic(text) => complaints.push(text.to_string()),
    };
    let code = run(program, words, &options, &commands, &mut say)?;
    match &complaints[..] {
        [] if code == 0 => Ok(output),
        [] => bail!("exit code {code}"),
        [first, ..] => bail!("{first}{}", if complaints.len() > 1 { " (and more)" } else { "" }),
    }
}

/// Runs the program; `program` is its name in messages. Returns the exit code.
pub(crate) fn main(program: &str, words: &[String]) -> u8 {
    let request = match options::parse(words) {
        Ok(request) => request,
        Err(text) => {
            complain(program, &text);
            return 1;
        }
    };
    let (options, commands) = match request {
        Request::Help => {
            print(&commands::help(program));
            return 0;
        }
        Request::Version => {
            print(&format!("{program} (Sluice) {}\n", env!("CARGO_PKG_VERSION")));
            return 0;
        }
        Request::Commands => {
            print(&commands::list());
            return 0;
        }
        Request::Options => {
            let all = GLOBAL_OPTIONS.iter().chain(crate::pki::OPTIONS);
            print(&all.map(|option| format!("{option}\n")).collect::<String>());
            return 0;
        }
        Request::Run(options, commands) => (options, commands),
    };
    let mut say = |said: Printed<'_>| match said {
        Printed::Output(text) => print(text),
        Printed::Diagnostic(text) => complain(program, text),
    };
    match run(program, words, &options, &commands, &mut say) {
        Ok(code) => code,
        Err(error) => {
            complain(program, &format!("{error:#}"));
            if error.chain().any(|cause| cause.is::<TimedOut>()) { EXIT_TIMED_OUT } else { 1 }
        }
    }
}

/// Exit status if the switch could not set up a new interface, as in OVS 3.6 (`EX_DATAERR` of sysexits(3)).
const EXIT_NOT_SET_UP: u8 = 65;

/// Result of an attempt that needs the database.
struct Attempt {
    outputs: Vec<Output>,
    plan: Option<Plan>,
    new_interfaces: Vec<Uuid>,
    warnings: Vec<String>,
}

enum Tried {
    Done(Attempt),
    Exit(u8),
    Wait,
}

fn attempt(replica: &Replica, log: &str, options: &Options, commands: &[Invocation]) -> Result<Tried> {
    let mut context = Context::new(replica);
    let mut work = || {
        let root = context.root()?;
        let mut outputs = Vec::new();
        for command in commands {
            (command.spec.run)(&mut context, command)?;
            outputs.push(context.take_output());
        }
        context.finish()?;
        Ok((root, outputs))
    };
    let (root, outputs) = match work() {
        Ok(done) => done,
        Err(Stop::Fatal(text)) => bail!(text),
        Err(Stop::Exit(code)) => return Ok(Tried::Exit(code)),
        Err(Stop::Wait) => return Ok(Tried::Wait),
    };
    let mut comments = vec![log.to_string()];
    comments.append(&mut context.comments);
    let plan = context.work.plan(&comments, options.wait.then_some(root));
    Ok(Tried::Done(Attempt {
        outputs,
        plan: plan.filter(|_| !options.dry_run),
        new_interfaces: context.new_interfaces,
        warnings: context.warnings,
    }))
}

fn run(
    program: &str,
    words: &[String],
    options: &Options,
    commands: &[Invocation],
    say: Say<'_>,
) -> Result<u8> {
    let log = format!("{program}: {}", words.join(" "));
    let mut session =
        Session::open(&options.db, &options.pki, options.retry, Deadline::after_s(options.timeout_s))?;
    loop {
        let mut attempt = match attempt(session.replica(), &log, options, commands)? {
            Tried::Exit(code) => return Ok(code),
            Tried::Wait => {
                session.exchange()?;
                continue;
            }
            Tried::Done(attempt) => attempt,
        };
        let Some(plan) = attempt.plan.take() else {
            finish_output(say, &attempt, options, &[]);
            return Ok(0);
        };
        let outcome = session.transact(plan.operations.clone())?;
        let results = match outcome {
            TxnOutcome::Success { results, .. } => results,
            TxnOutcome::TryAgain => continue,
            TxnOutcome::NotLocked => bail!("database not locked"),
            TxnOutcome::Error(text) => bail!("transaction error: {text}"),
            TxnOutcome::Lost => bail!("the connection broke before the answer to the transaction"),
        };
        let uuid_of = |operation: usize| results.get(operation)?["uuid"][1].as_str()?.parse().ok();
        let created: Vec<(Uuid, Uuid)> =
            plan.inserts.iter().filter_map(|(old, operation)| Some((*old, uuid_of(*operation)?))).collect();
        finish_output(say, &attempt, options, &created);
        if let Some(operation) = plan.next_cfg {
            let next_cfg = results.get(operation).and_then(|result| result["rows"][0]["next_cfg"].as_i64());
            let next_cfg = next_cfg.context("the answer to the transaction has no next_cfg")?;
            wait_for_switch(&mut session, next_cfg)?;
            if report_errors(say, session.replica(), &attempt.new_interfaces, &created) {
                return Ok(EXIT_NOT_SET_UP);
            }
        }
        return Ok(0);
    }
}

fn finish_output(say: Say<'_>, attempt: &Attempt, options: &Options, created: &[(Uuid, Uuid)]) {
    for warning in &attempt.warnings {
        say(Printed::Diagnostic(&format!("warning: {warning}")));
    }
    let mut out = String::new();
    let mut tables = 0;
    for output in &attempt.outputs {
        let text = match output {
            Output::Table(table) => {
                out.push_str(&table.print(&options.style, tables == 0));
                tables += 1;
                continue;
            }
            Output::Text(text) => text.clone(),
            Output::Created(provisional) => {
                let real = created.iter().find(|(old, _)| old == provisional);
                real.map(|(_, new)| format!("{new}\n")).unwrap_or_default()
            }
        };
        if options.oneline {
            out.push_str(&one_line(&text));
        } else {
            out.push_str(&text);
        }
    }
    say(Printed::Output(&out));
}

/// The text on one line: newlines as `\n`, backslashes doubled.
fn one_line(text: &str) -> String {
    let text = text.strip_suffix('\n').unwrap_or(text);
    format!("{}\n", text.replace('\\', "\\\\").replace('\n', "\\n"))
}

fn wait_for_switch(session: &mut Session, next_cfg: i64) -> Result<()> {
    while !session.replica().rows("Open_vSwitch").any(|row| row.int("cur_cfg") >= next_cfg) {
        session.exchange()?;
    }
    Ok(())
}

/// Reports the errors of new interfaces; returns whether there are some.
fn report_errors(say: Say<'_>, replica: &Replica, interfaces: &[Uuid], created: &[(Uuid, Uuid)]) -> bool {
    let mut failed = false;
    for provisional in interfaces {
        let real = created.iter().find(|(old, _)| old == provisional).map(|(_, new)| *new);
        let Some(row) = real.and_then(|uuid| replica.row("Interface", uuid)) else { continue };
        if let Some(error) = row.opt_str("error") {
            let name = row.str("name");
            let text = format!(
                "Error detected while setting up '{name}': {error}.  See ovs-vswitchd log for details."
            );
            say(Printed::Diagnostic(&text));
            failed = true;
        }
    }
    if failed {
        let dir = std::env::var("OVS_LOGDIR").unwrap_or_else(|_| "/var/log/openvswitch".into());
        say(Printed::Diagnostic(&format!("The default log directory is \"{dir}\".")));
    }
    failed
}
