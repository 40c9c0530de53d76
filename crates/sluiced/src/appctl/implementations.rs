//! Commands that show and choose implementations of parts of the userspace datapath.
//!
//! The stock switch has several of some parts, chosen by command. Here each part has one, whose instruction set is
//! chosen at the start (`simd`): its name is accepted, all others are refused.

use super::Answer;
use super::datapath::with_threads;
use crate::daemon::Daemon;
use dpif::PmdId;
use std::collections::BTreeSet;

const DATAPATH: &str = "dpif_scalar";
const PARSER: &str = "scalar";
const LOOKUP: &str = "generic";
/// The priority of the only lookup function.
const LOOKUP_PRIORITY: u8 = 1;
const ACTIONS: &str = "scalar";

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
    format!("Available MFEX implementations:\n  {PARSER} (available: True pmds: {})\n", users(daemon)).into()
}

/// `[-pmd CORE] NAME`
pub(super) fn set_parser(daemon: &mut Daemon, args: &[String]) -> Answer {
    let set = || {
        let (core, rest) = match args {
            [option, core, rest @ ..] if option == "-pmd" => {
                let number = core.parse().map_err(|_| format!("Error: invalid PMD value: {core}.\n"))?;
                (Some(number), rest)
            }
            [option] if option == "-pmd" => {
                return Err("Error: -pmd option requires a thread id argument.\n".to_string());
            }
            rest => (None, rest),
        };
        let [name] = rest else {
            return Err("Error: expected the name of one miniflow extract implementation.\n".to_string());
        };
        if name != PARSER {
            return Err(format!("Error: unknown miniflow extract implementation {name}.\n"));
        }
        match core {
            Some(core) if !cores(daemon).contains(&core) => Err(format!(
                "Error: miniflow extract parser not changed, PMD thread {core} not in use, pass a valid pmd thread ID.\n"
            )),
            Some(core) => {
                Ok(format!("Miniflow extract implementation set to {PARSER}, on pmd thread {core}.\n"))
            }
            None => Ok(format!("Miniflow extract implementation set to {PARSER}.\n")),
        }
    };
    Answer::Now(set())
}

/// The only subtable lookup function, with the number of subtables that use it.
pub(super) fn lookups(daemon: &mut Daemon, _: &[String]) -> Answer {
    let stats = daemon.switch.instances().iter().flat_map(|i| i.pmd_stats());
    let subtables: u64 = stats.map(|(_, s)| s.masks).sum();
    let line = format!("  {LOOKUP} (Use count: {subtables}, Priority: {LOOKUP_PRIORITY})\n");
    format!("Available dpcls implementations:\n{line}").into()
}

/// `NAME PRIORITY`
pub(super) fn set_lookup_priority(_: &mut Daemon, args: &[String]) -> Answer {
    Answer::Now(match (args[0].as_str(), args[1].parse::<u8>()) {
        (_, Err(_)) => Err("error converting priority, use integer in range 0-255\n".to_string()),
        (LOOKUP, Ok(LOOKUP_PRIORITY)) => {
            Ok("Lookup priority change affected 0 dpcls ports and 0 subtables.\n".to_string())
        }
        (LOOKUP, Ok(_)) => Err(format!(
            "error, {LOOKUP} is the only subtable lookup function: its priority stays {LOOKUP_PRIORITY}\n"
        )),
        _ => Err("error, subtable lookup function not found\n".to_string()),
    })
}

pub(super) fn actions(_: &mut Daemon, _: &[String]) -> Answer {
    format!("Available Actions implementations:\n  {ACTIONS} (available: Yes, active: Yes)\n").into()
}

pub(super) fn set_actions(_: &mut Daemon, args: &[String]) -> Answer {
    Answer::Now(match &args[0] {
        name if name == ACTIONS => Ok(format!("Action implementation set to {ACTIONS}.\n")),
        name => Err(format!("Error: unknown action implementation, {name}, specified!\n")),
    })
}
