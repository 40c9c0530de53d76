//! `sluice`: the command line of the switch. One program covers daily use of `ovs-vsctl`, `ovs-ofctl`,
//! `ovs-appctl` and `ovs-dpctl`, with the same syntax, so that no part of OVS is needed. Called by one of
//! those names (a symbolic link) it behaves as that program.
//!
//! A library only for the fuzzer; the program is `main`.
//!
//! Wiring and output only: `ovsdb`, `openflow` and `flow` have the protocols. Everything is blocking and
//! single-threaded (except the reader of `top` and the server of `web`); every wait ends at the user's deadline.

#![forbid(unsafe_code)]

mod appctl;
mod check;
mod completion;
mod ctl;
mod drop_feed;
mod drops;
pub mod fuzz;
mod hint;
#[cfg(test)]
mod manual;
mod ofctl;
mod pki;
mod remote;
mod sample;
mod save;
mod status;
mod status_model;
mod tcpdump;
mod top;
mod unknown_keys;
mod upcall_bench;
mod vsctl;
mod web;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Configure and watch a Sluice switch (or any Open vSwitch).
#[derive(Debug, Parser)]
#[command(name = "sluice", version, arg_required_else_help = true)]
#[command(
    after_help = "OVS_RUNDIR names the folder with the switch's sockets (default: /var/run/openvswitch)."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Read and change the configuration database; the words of ovs-vsctl
    #[command(disable_help_flag = true)]
    Vsctl(Words),
    /// Send a command to a running daemon; the words of ovs-appctl
    #[command(disable_help_flag = true)]
    Appctl(Words),
    /// Send a command to the daemon's datapath: `dpctl show` is `appctl dpctl/show`
    #[command(disable_help_flag = true)]
    Dpctl(Words),
    /// Read and change the OpenFlow tables of a bridge; the words of ovs-ofctl
    #[command(disable_help_flag = true)]
    Ofctl(Words),
    /// Show the state of the switch on one screen; exit code 1 if a setting is refused or has no effect
    Status(status::Options),
    /// List settings of a database that are refused, have no effect or another one; exit code 1 if there are any
    Check(check::Options),
    /// Show the packets of a port, or write them into a file
    Tcpdump(tcpdump::Options),
    /// Show live statistics of threads, ports, flows and upcalls
    Top(top::Options),
    /// Serve a page with live statistics to browsers of this machine
    Web(web::Options),
    /// Show which ports drop packets, and why
    Drops(drops::Options),
    /// Show the packets that the action `sample` selects for local readers
    Sample(sample::Options),
    /// Write rules, groups, meters and mappings of tunnel metadata of bridges into a file
    Save(save::SaveOptions),
    /// Replace those of bridges by the ones of a file; exit code 1 if the switch refuses a part
    Restore(save::RestoreOptions),
    /// Measure the cost of first packets of flows, stage by stage
    UpcallCost(upcall_cost::Options),
    /// Start, stop and test the daemon without systemd; the words of ovs-ctl
    Ctl(Box<ctl::Options>),
    /// Print the completion script of a shell: `source <(sluice completion bash)`
    Completion {
        /// The shell
        shell: completion::Shell,
    },
    /// Print the words that may stand last
    #[command(hide = true)]
    CompleteWords(Words),
    /// Measure latency and fairness of first packets on any switch of this machine
    UpcallBench(Box<::upcall_bench::Options>),
}

#[derive(Debug, clap::Args)]
struct Words {
    /// Options, command and its arguments (`--help` for more)
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

/// Receives the words after a tool's name; each tool has its own option syntax, in which `--` separates.
type Tool = fn(&str, &[String]) -> u8;

fn tool(name: &str) -> Option<Tool> {
    match name {
        "vsctl" => Some(vsctl::main),
        "appctl" => Some(appctl::main),
        "dpctl" => Some(appctl::dpctl_main),
        "ofctl" => Some(ofctl::main),
        _ => None,
    }
}

/// The tool, its program name for messages, and its words.
fn find_tool(args: &[OsString]) -> Option<(Tool, String, &[OsString])> {
    let called = Path::new(args.first()?).file_name()?.to_str()?;
    if let Some(found) = called.strip_prefix("ovs-").and_then(tool) {
        return Some((found, called.to_string(), &args[1..]));
    }
    let name = args.get(1)?.to_str()?;
    Some((tool(name)?, format!("sluice {name}"), &args[2..]))
}

/// Runs the program on the words of the process; returns its exit code.
pub fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    if let Some((tool, name, words)) = find_tool(&args) {
        let words: Result<Vec<String>, OsString> =
            words.iter().map(|word| word.clone().into_string()).collect();
        return match words {
            Ok(words) => ExitCode::from(tool(&name, &words)),
            Err(word) => {
                remote::complain(&name, &format!("{}: not valid UTF-8", word.to_string_lossy()));
                ExitCode::from(1)
            }
        };
    }
    let code = match Cli::parse().command {
        Command::Vsctl(words) => vsctl::main("sluice vsctl", &words.args),
        Command::Appctl(words) => appctl::main("sluice appctl", &words.args),
        Command::Dpctl(words) => appctl::dpctl_main("sluice dpctl", &words.args),
        Command::Ofctl(words) => ofctl::main("sluice ofctl", &words.args),
        Command::Status(options) => status::main(&options),
        Command::Check(options) => check::main(&options),
        Command::Tcpdump(options) => tcpdump::main(&options),
        Command::Top(options) => top::main(&options),
        Command::Web(options) => web::main(&options),
        Command::Drops(options) => drops::main(&options),
        Command::Sample(options) => sample::main(&options),
        Command::Save(options) => save::save_main(&options),
        Command::Restore(options) => save::restore_main(&options),
        Command::Ctl(options) => ctl::main(&options),
        Command::UpcallCost(options) => upcall_cost_main(&options),
        Command::Completion { shell } => {
            remote::print(completion::script(shell));
            0
        }
        Command::CompleteWords(words) => {
            let found = completion::candidates(&words.args, &completion::Live);
            remote::print(&found.iter().map(|word| format!("{word}\n")).collect::<String>());
            0
        }
        Command::UpcallBench(options) => upcall_bench::main(&options),
    };
    ExitCode::from(code)
}

/// Runs `sluice upcall-cost`; returns the exit code.
fn upcall_cost_main(options: &upcall_cost::Options) -> u8 {
    match upcall_cost::run(options, remote::run_dir()) {
        Ok(()) => 0,
        Err(error) => {
            remote::complain("sluice upcall-cost", &format!("{error:#}"));
            1
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_and_the_first_word_choose_the_tool() {
        let find = |line: &str| {
            let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            find_tool(&args).map(|(_, name, words)| (name, words.len()))
        };
        assert_eq!(find("/usr/bin/ovs-vsctl show"), Some(("ovs-vsctl".into(), 1)));
        assert_eq!(find("sluice vsctl -- show -- x"), Some(("sluice vsctl".into(), 4)));
        assert_eq!(find("sluice dpctl"), Some(("sluice dpctl".into(), 0)));
        assert_eq!(find("sluice status"), None);
        assert_eq!(find("sluice"), None);
        assert!(find_tool(&[]).is_none());
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
