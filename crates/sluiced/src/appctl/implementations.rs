//! Commands that show and choose implementations of parts of the userspace datapath.
//!
//! The stock switch has several of some parts, chosen by command. Here each part has one, whose instruction set is
//! chosen at the start (`simd`) and whose oracle is in its tests. The names that every stock switch has are accepted
//! and shown as chosen; those of instruction sets are refused.

use super::datapath::{flows_of, with_threads};
use super::{Form, Parsed, Reply, Rows, Word, command};
use crate::control_plane::ControlPlane;
use crate::implementations::{ACTIONS, DATAPATH, LOOKUPS, PARSERS, STUDY};
use crate::instances::Instance;
use dpif::PmdId;
use std::collections::BTreeSet;

/// The commands of this module.
pub(super) const ROWS: Rows = &[
    &command("dpif-netdev/dpif-impl-get", (), "list the implementations of the packet loop", datapath),
    &command(
        "dpif-netdev/dpif-impl-set",
        Word("dpif_implementation_name"),
        "choose the implementation of the packet loop",
        set_datapath,
    ),
    &command(
        "dpif-netdev/miniflow-parser-get",
        (),
        "list the packet parsers and the threads that use them",
        parser,
    ),
    &command(
        "dpif-netdev/miniflow-parser-set",
        Form("[-pmd core] miniflow_implementation_name", 1, 4, ChosenParser::parse),
        "choose the packet parser of all threads or one",
        set_parser,
    ),
    &command(
        "dpif-netdev/subtable-lookup-info-get",
        (),
        "list the subtable lookup functions with use counts",
        lookups,
    ),
    &command(
        "dpif-netdev/subtable-lookup-prio-get",
        (),
        "list the subtable lookup functions with priorities",
        lookups,
    ),
    &command(
        "dpif-netdev/subtable-lookup-prio-set",
        (Word("[lookup_func]"), Parsed("[prio]", priority)),
        "set the priority of a subtable lookup function",
        set_lookup_priority,
    ),
    &command(
        "odp-execute/action-impl-set",
        Word("name"),
        "choose the implementation of datapath actions",
        set_actions,
    ),
    &command("odp-execute/action-impl-show", (), "list the implementations of datapath actions", actions),
];

/// Packets that `study` looks at without a number.
const STUDIED: u32 = 128;

/// The element of that name.
fn known(all: &[&'static str], name: &str) -> Option<&'static str> {
    all.iter().copied().find(|known| *known == name)
}

/// Cores of all forwarding threads.
fn cores(plane: &ControlPlane) -> BTreeSet<u16> {
    let datapaths = with_threads(&plane.switch, None).unwrap_or_default();
    let pmds = datapaths.iter().flat_map(|(i, _)| i.datapath.pmds());
    pmds.filter_map(|pmd| match pmd {
        PmdId::Core(n) => Some(n),
        PmdId::Main | PmdId::None => None,
    })
    .collect()
}

/// The cores as a list.
fn users(plane: &ControlPlane) -> String {
    let cores: Vec<_> = cores(plane).iter().map(u16::to_string).collect();
    if cores.is_empty() { "none".to_string() } else { cores.join(",") }
}

fn datapath(plane: &mut ControlPlane, (): ()) -> Reply {
    format!("Available DPIF implementations:\n  {DATAPATH} (pmds: {})\n", users(plane)).into()
}

fn set_datapath(_: &mut ControlPlane, name: &str) -> Reply {
    Reply::from(match name {
        name if name == DATAPATH => Ok(format!("DPIF implementation set to {DATAPATH}.\n")),
        name => Err(format!("DPIF implementation not available: Unknown DPIF implementation {name}.\n")),
    })
}

fn parser(plane: &mut ControlPlane, (): ()) -> Reply {
    let (cores, chosen) = (cores(plane), &plane.implementations);
    let line = |name: &&str| {
        let of = |core: &u16| chosen.parser_of.get(core).copied().unwrap_or(chosen.parser);
        let users: Vec<_> = cores.iter().filter(|core| of(core) == *name).map(u16::to_string).collect();
        let users = if users.is_empty() { "none".to_string() } else { users.join(",") };
        format!("  {name} (available: True pmds: {users})\n")
    };
    format!("Available MFEX implementations:\n{}", PARSERS.iter().map(line).collect::<String>()).into()
}

/// `[-pmd CORE] NAME [PACKETS]`
struct ChosenParser {
    core: Option<u16>,
    parser: &'static str,
    /// Packets to study.
    packets: u32,
}

const UNCHANGED: &str = "miniflow extract parser not changed, PMD thread";

impl ChosenParser {
    fn parse(words: &[String]) -> Result<ChosenParser, String> {
        ChosenParser::read(words).map_err(|why| format!("Error: {why}\n"))
    }

    fn read(words: &[String]) -> Result<ChosenParser, String> {
        let (core, rest) = match words {
            [option] if option == "-pmd" => {
                return Err("-pmd option requires a thread id argument.".to_string());
            }
            [option, core, rest @ ..] if option == "-pmd" => {
                let number = core.parse::<u16>();
                let fault =
                    |_| format!("{UNCHANGED} passed is not valid: '{core}'. Pass a valid pmd thread ID.");
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
        let parser = known(&PARSERS, name)
            .ok_or_else(|| format!("unknown miniflow extract implementation {name}."))?;
        Ok(ChosenParser { core, parser, packets })
    }
}

fn set_parser(plane: &mut ControlPlane, chosen: ChosenParser) -> Reply {
    let ChosenParser { core, parser, packets } = chosen;
    let of_core = match core {
        Some(core) if !cores(plane).contains(&core) => {
            return Reply::Error(format!(
                "Error: {UNCHANGED} {core} not in use, pass a valid pmd thread ID.\n"
            ));
        }
        Some(core) => {
            plane.implementations.parser_of.insert(core, parser);
            format!(", on pmd thread {core}")
        }
        None => {
            plane.implementations.parser_of.clear();
            plane.implementations.parser = parser;
            String::new()
        }
    };
    let studying = if parser == STUDY { format!(", studying {packets} packets") } else { String::new() };
    format!("Miniflow extract implementation set to {parser}{of_core}{studying}.\n").into()
}

/// Number of subtables of all threads.
fn subtables(plane: &ControlPlane) -> u64 {
    plane.switch.instances().iter().flat_map(|i| i.pmd_stats()).map(|(_, s)| s.masks).sum()
}

/// The subtable lookup functions, with the number of subtables that use each.
fn lookups(plane: &mut ControlPlane, (): ()) -> Reply {
    let chosen = &plane.implementations;
    let line = |(n, name): (usize, &&str)| {
        let users = if n == chosen.lookup() { subtables(plane) } else { 0 };
        format!("  {name} (Use count: {users}, Priority: {})\n", chosen.priorities[n])
    };
    let lines: String = LOOKUPS.iter().enumerate().map(line).collect();
    format!("Available dpcls implementations:\n{lines}").into()
}

/// As in OVS, a text without digits is 0.
fn priority(text: &str) -> Result<u8, String> {
    let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
    let priority = if digits.is_empty() && !text.starts_with('-') { Ok(0) } else { digits.parse() };
    priority.map_err(|_| "error converting priority, use integer in range 0-255\n".to_string())
}

/// `NAME PRIORITY`
fn set_lookup_priority(plane: &mut ControlPlane, (function, priority): (&str, u8)) -> Reply {
    let Some(n) = LOOKUPS.iter().position(|name| *name == function) else {
        return Reply::Error("error, subtable lookup function not found\n".to_string());
    };
    let before = plane.implementations.lookup();
    plane.implementations.priorities[n] = priority;
    let (ports, tables) = match plane.implementations.lookup() == before {
        true => (0, 0),
        false => (classified_ports(plane), subtables(plane)),
    };
    format!("Lookup priority change affected {ports} dpcls ports and {tables} subtables.\n").into()
}

/// Number of input ports with flows, by thread.
fn classified_ports(plane: &ControlPlane) -> usize {
    let ports = |i: &Instance, pmd| {
        let flows = flows_of(i, pmd).unwrap_or_default();
        flows.iter().map(|flow| flow.key.in_port()).collect::<BTreeSet<_>>().len()
    };
    let of = |i: &Instance| i.datapath.pmds().into_iter().map(|pmd| ports(i, pmd)).sum::<usize>();
    plane.switch.instances().iter().map(of).sum()
}

fn actions(plane: &mut ControlPlane, (): ()) -> Reply {
    let active = |name: &str| if name == plane.implementations.actions { "Yes" } else { "No" };
    let line = |name: &&str| format!("  {name} (available: Yes, active: {})\n", active(name));
    format!("Available Actions implementations:\n{}", ACTIONS.iter().map(line).collect::<String>()).into()
}

fn set_actions(plane: &mut ControlPlane, name: &str) -> Reply {
    Reply::from(match known(&ACTIONS, name) {
        Some(name) => {
            plane.implementations.actions = name;
            Ok(format!("Action implementation set to {name}.\n"))
        }
        None => Err(format!("Error: unknown action implementation, {name}, specified!\n")),
    })
}
