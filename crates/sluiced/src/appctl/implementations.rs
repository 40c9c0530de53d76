//! Commands that show and choose implementations of parts of the userspace datapath.
//!
//! The stock switch has several of some parts, chosen by command. Here each part has one, whose instruction set is
//! chosen at the start (`simd`) and whose oracle is in its tests. The names that every stock switch has are accepted
//! and shown as chosen; those of instruction sets are refused.

use super::Answer;
use super::datapath::{flows_of, with_threads};
use crate::daemon::Daemon;
use crate::instances::Instance;
use dpif::PmdId;
use std::collections::{BTreeMap, BTreeSet};

const DATAPATH: &str = "dpif_scalar";
/// In the order of `dpif-netdev/miniflow-parser-get`.
const PARSERS: [&str; 3] = ["autovalidator", "scalar", STUDY];
const STUDY: &str = "study";
/// Packets that `study` looks at without a number.
const STUDIED: u32 = 128;
/// In the order of `dpif-netdev/subtable-lookup-prio-get`.
const LOOKUPS: [&str; 2] = ["autovalidator", "generic"];
/// In the order of `odp-execute/action-impl-show`.
const ACTIONS: [&str; 2] = ["scalar", "autovalidator"];

/// The chosen implementations.
pub(crate) struct Chosen {
    /// Of threads without a choice of their own.
    parser: &'static str,
    parser_of: BTreeMap<u16, &'static str>,
    /// Of [`LOOKUPS`].
    priorities: [u8; 2],
    actions: &'static str,
}

impl Default for Chosen {
    fn default() -> Chosen {
        Chosen { parser: PARSERS[1], parser_of: BTreeMap::new(), priorities: [0, 1], actions: ACTIONS[0] }
    }
}

impl Chosen {
    /// Logs at the start which there are, in the words of OVS.
    pub(crate) fn log() {
        for name in ACTIONS {
            log::debug!(target: "odp_execute_impl", "Actions implementation '{name}' is available.");
        }
    }

    /// The same for those of a userspace datapath, when one is made.
    pub(crate) fn log_of_datapath() {
        for name in PARSERS {
            log::debug!(target: "dpif_netdev_extract", "Miniflow Extract implementation '{name}' is available.");
        }
        log::info!(target: "dpif_netdev_extract", "Default MFEX Extract implementation is {}.", PARSERS[1]);
        log::info!(target: "dpif_netdev_impl", "Default DPIF implementation is {DATAPATH}.");
    }

    /// The lookup function of new subtables: the first one of the highest priority.
    fn lookup(&self) -> usize {
        usize::from(self.priorities[1] > self.priorities[0])
    }
}

/// The element of that name.
fn known(all: &[&'static str], name: &str) -> Option<&'static str> {
    all.iter().copied().find(|known| *known == name)
}

/// Cores of all forwarding threads.
fn cores(daemon: &Daemon) -> BTreeSet<u16> {
    let datapaths = with_threads(&daemon.switch, None).unwrap_or_default();
    let pmds = datapaths.iter().flat_map(|(i, _)| i.datapath.pmds());
    pmds.filter_map(|pmd| match pmd {
        PmdId::Core(n) => Some(n),
        PmdId::Main | PmdId::None => None,
    })
    .collect()
}

/// The cores as a list.
fn users(daemon: &Daemon) -> String {
    let cores: Vec<_> = cores(daemon).iter().map(u16::to_string).collect();
    if cores.is_empty() { "none".to_string() } else { cores.join(",") }
}

pub(super) fn datapath(daemon: &mut Daemon, _: &[String]) -> Answer {
    format!("Available DPIF implementations:\n  {DATAPATH} (pmds: {})\n", users(daemon)).into()
}

pub(super) fn set_datapath(_: &mut Daemon, args: &[String]) -> Answer {
    Answer::Now(match &args[0] {
        name if name == DATAPATH => Ok(format!("DPIF implementation set to {DATAPATH}.\n")),
        name => Err(format!("DPIF implementation not available: Unknown DPIF implementation {name}.\n")),
    })
}

pub(super) fn parser(daemon: &mut Daemon, _: &[String]) -> Answer {
    let (cores, chosen) = (cores(daemon), &daemon.implementations);
    let line = |name: &&str| {
        let of = |core: &u16| chosen.parser_of.get(core).copied().unwrap_or(chosen.parser);
        let users: Vec<_> = cores.iter().filter(|core| of(core) == *name).map(u16::to_string).collect();
        let users = if users.is_empty() { "none".to_string() } else { users.join(",") };
        format!("  {name} (available: True pmds: {users})\n")
    };
    format!("Available MFEX implementations:\n{}", PARSERS.iter().map(line).collect::<String>()).into()
}

/// `[-pmd CORE] NAME [PACKETS]`
pub(super) fn set_parser(daemon: &mut Daemon, args: &[String]) -> Answer {
    Answer::Now(choose_parser(daemon, args).map_err(|why| format!("Error: {why}\n")))
}

fn choose_parser(daemon: &mut Daemon, args: &[String]) -> Result<String, String> {
    let unchanged = "miniflow extract parser not changed, PMD thread";
    let (core, rest) = match args {
        [option] if option == "-pmd" => return Err("-pmd option requires a thread id argument.".to_string()),
        [option, core, rest @ ..] if option == "-pmd" => {
            let number = core.parse::<u16>();
            let fault = |_| format!("{unchanged} passed is not valid: '{core}'. Pass a valid pmd thread ID.");
            (Some(number.map_err(fault)?), rest)
        }
        rest => (None, rest),
    };
    let (name, rest) = rest.split_first().ok_or(
        "no miniflow extract name provided. Output of miniflow-parser-get shows implementation list.",
    )?;
    let (packets, rest) = match rest {
        [packets, rest @ ..] if name == STUDY => {
            let number = packets.parse::<u32>().ok().filter(|n| *n > 0);
            (number.ok_or_else(|| format!("invalid study_pkt_cnt value: {packets}."))?, rest)
        }
        rest => (STUDIED, rest),
    };
    if let Some(other) = rest.first() {
        return Err(format!("unknown argument {other}."));
    }
    let parser =
        known(&PARSERS, name).ok_or_else(|| format!("unknown miniflow extract implementation {name}."))?;
    let of_core = match core {
        Some(core) if !cores(daemon).contains(&core) => {
            return Err(format!("{unchanged} {core} not in use, pass a valid pmd thread ID."));
        }
        Some(core) => {
            daemon.implementations.parser_of.insert(core, parser);
            format!(", on pmd thread {core}")
        }
        None => {
            daemon.implementations.parser_of.clear();
            daemon.implementations.parser = parser;
            String::new()
        }
    };
    let studying = if parser == STUDY { format!(", studying {packets} packets") } else { String::new() };
    Ok(format!("Miniflow extract implementation set to {parser}{of_core}{studying}.\n"))
}

/// Number of subtables of all threads.
fn subtables(daemon: &Daemon) -> u64 {
    daemon.switch.instances().iter().flat_map(|i| i.pmd_stats()).map(|(_, s)| s.masks).sum()
}

/// The subtable lookup functions, with the number of subtables that use each.
pub(super) fn lookups(daemon: &mut Daemon, _: &[String]) -> Answer {
    let chosen = &daemon.implementations;
    let line = |(n, name): (usize, &&str)| {
        let users = if n == chosen.lookup() { subtables(daemon) } else { 0 };
        format!("  {name} (Use count: {users}, Priority: {})\n", chosen.priorities[n])
    };
    let lines: String = LOOKUPS.iter().enumerate().map(line).collect();
    format!("Available dpcls implementations:\n{lines}").into()
}

/// `NAME PRIORITY`
pub(super) fn set_lookup_priority(daemon: &mut Daemon, args: &[String]) -> Answer {
    // As in OVS, a text without digits is 0.
    let digits: String = args[1].chars().take_while(char::is_ascii_digit).collect();
    let priority = if digits.is_empty() && !args[1].starts_with('-') { Ok(0) } else { digits.parse::<u8>() };
    let Ok(priority) = priority else {
        return Answer::Now(Err("error converting priority, use integer in range 0-255\n".to_string()));
    };
    let Some(n) = LOOKUPS.iter().position(|name| *name == args[0]) else {
        return Answer::Now(Err("error, subtable lookup function not found\n".to_string()));
    };
    let before = daemon.implementations.lookup();
    daemon.implementations.priorities[n] = priority;
    let (ports, tables) = match daemon.implementations.lookup() == before {
        true => (0, 0),
        false => (classified_ports(daemon), subtables(daemon)),
    };
    format!("Lookup priority change affected {ports} dpcls ports and {tables} subtables.\n").into()
}

/// Number of input ports with flows, by thread.
fn classified_ports(daemon: &Daemon) -> usize {
    let ports = |i: &Instance, pmd| {
        let flows = flows_of(i, pmd).unwrap_or_default();
        flows.iter().map(|flow| flow.key.in_port()).collect::<BTreeSet<_>>().len()
    };
    let of = |i: &Instance| i.datapath.pmds().into_iter().map(|pmd| ports(i, pmd)).sum::<usize>();
    daemon.switch.instances().iter().map(of).sum()
}

pub(super) fn actions(daemon: &mut Daemon, _: &[String]) -> Answer {
    let active = |name: &str| if name == daemon.implementations.actions { "Yes" } else { "No" };
    let line = |name: &&str| format!("  {name} (available: Yes, active: {})\n", active(name));
    format!("Available Actions implementations:\n{}", ACTIONS.iter().map(line).collect::<String>()).into()
}

pub(super) fn set_actions(daemon: &mut Daemon, args: &[String]) -> Answer {
    Answer::Now(match known(&ACTIONS, &args[0]) {
        Some(name) => {
            daemon.implementations.actions = name;
            Ok(format!("Action implementation set to {name}.\n"))
        }
        None => Err(format!("Error: unknown action implementation, {}, specified!\n", args[0])),
    })
}
