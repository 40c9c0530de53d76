//! The commands of the control socket: one table of rows, each with its arguments and what it does.

mod datapath;
mod dummy;
mod flows;
mod general;
mod threads;
mod trace;

pub(crate) use trace::hex as packet_of_hex;

use super::daemon::Daemon;
use super::switch::Switch;
use sync::Ordering;

/// What comes of a command.
pub enum Answer {
    /// Text for the terminal, or an error.
    Now(Result<String, String>),
    /// An empty answer once something has happened.
    Later(Wait),
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

/// What an answer waits for.
pub enum Wait {
    /// These rounds of revalidation.
    Rounds(Rounds),
    /// Jumps of the clock, and the rounds of revalidation after each.
    Warp(dummy::Warp, Rounds),
}

/// Rounds of revalidation, by the names of their datapaths.
pub type Rounds = Vec<(String, u64)>;

impl Wait {
    /// The answer, when it is over. To be asked once after each pass of the main loop.
    pub fn answer(&mut self, switch: &Switch) -> Option<&'static str> {
        match self {
            Wait::Rounds(rounds) => are_over(rounds, switch).then_some(""),
            Wait::Warp(warp, rounds) => {
                if !are_over(rounds, switch) {
                    return None;
                }
                if !warp.step() {
                    return Some("warped");
                }
                *rounds = order_rounds(switch);
                None
            }
        }
    }
}

fn are_over(rounds: &Rounds, switch: &Switch) -> bool {
    rounds.iter().all(|(name, round)| {
        // A datapath that ended has nothing left to do.
        let Ok(instance) = switch.instances().named(Some(name)) else { return true };
        let state = instance.revalidator();
        let paused = state.paused.load(Ordering::Acquire);
        paused || state.finished.load(Ordering::Acquire) > *round
    })
}

/// Makes all revalidators begin a round.
fn order_rounds(switch: &Switch) -> Rounds {
    switch.instances().iter().map(|i| (i.name().to_string(), i.order_round())).collect()
}

type Handler = fn(&mut Daemon, &[String]) -> Answer;

/// One command.
struct Command {
    name: &'static str,
    usage: &'static str,
    min_args: usize,
    max_args: usize,
    run: Handler,
}

const fn command(name: &'static str, usage: &'static str, min: usize, max: usize, run: Handler) -> Command {
    Command { name, usage, min_args: min, max_args: max, run }
}

const COMMANDS: &[Command] = &[
    command("bridge/dump-flows", "bridge", 1, 1, flows::bridge_tables),
    command("coverage/read-counter", "counter", 1, 1, general::coverage_read),
    command("coverage/show", "", 0, 0, general::coverage_show),
    command("dpctl/add-flow", "[dp] flow actions", 2, 3, flows::add),
    command("dpctl/del-flow", "[dp] flow | ufid:ufid", 1, 2, flows::delete),
    command("dpctl/del-flows", "[dp]", 0, 1, datapath::del_flows),
    command("dpctl/dump-flows", "[-m] [dp]", 0, 8, datapath::dump_flows),
    command("dpctl/get-flow", "[dp] ufid:ufid", 1, 2, flows::get),
    command("dpctl/mod-flow", "[dp] flow actions", 2, 3, flows::modify),
    command("dpctl/show", "[dp]", 0, 2, datapath::dpctl_show),
    command("dpif-netdev/pmd-rxq-rebalance", "[dp]", 0, 1, threads::rxq_rebalance),
    command("dpif-netdev/pmd-rxq-show", "[-pmd core] [-secs secs] [dp]", 0, 5, threads::rxq_show),
    command("dpif-netdev/pmd-sleep-show", "[dp]", 0, 1, threads::sleep_show),
    command("dpif-netdev/pmd-stats-clear", "[-pmd core] [dp]", 0, 3, datapath::pmd_stats_clear),
    command("dpif-netdev/pmd-stats-show", "[-pmd core] [dp]", 0, 3, datapath::pmd_stats_show),
    command("dpif/dump-flows", "[-m] bridge", 1, 3, datapath::bridge_flows),
    command("dpif/show", "", 0, 0, datapath::dpif_show),
    command("dpif/show-dp-features", "bridge", 1, 1, flows::features),
    command("exit", "[--cleanup]", 0, 1, general::exit),
    command("fdb/flush", "[bridge]", 0, 1, datapath::fdb_flush),
    command("fdb/show", "bridge", 1, 1, datapath::fdb_show),
    command("fdb/stats-show", "bridge", 1, 1, datapath::fdb_stats),
    command("list-commands", "", 0, 0, general::list_commands),
    command("memory/show", "", 0, 0, general::memory_show),
    command("ofproto/list", "", 0, 0, general::ofproto_list),
    command("ofproto/trace", "{[dp_name] odp_flow | bridge br_flow} [packet]", 1, 4, trace::trace),
    command("ovsdb-server/compact", "[db]", 0, 1, general::compact),
    command("revalidator/pause", "", 0, 0, datapath::revalidator_pause),
    command("revalidator/purge", "", 0, 0, datapath::revalidator_purge),
    command("revalidator/resume", "", 0, 0, datapath::revalidator_resume),
    command("revalidator/wait", "", 0, 0, datapath::revalidator_wait),
    command("sluice/status", "", 0, 0, general::status),
    command("upcall/show", "", 0, 0, datapath::upcall_show),
    command("version", "", 0, 0, general::version),
    command("vlog/disable-rate-limit", "[module]...", 0, 64, general::vlog_unlimited),
    command("vlog/enable-rate-limit", "[module]...", 0, 64, general::vlog_limited),
    command("vlog/list", "", 0, 0, general::vlog_list),
    command("vlog/reopen", "", 0, 0, general::vlog_reopen),
    command("vlog/set", "{spec | PATTERN:destination:pattern}", 0, 64, general::vlog_set),
];

/// Commands that there are in dummy mode alone.
const DUMMY_COMMANDS: &[Command] = &[
    command("netdev-dummy/conn-state", "[netdev]", 0, 1, dummy::conn_state),
    command("netdev-dummy/ip4addr", "netdev address/bits", 2, 2, dummy::ip4),
    command("netdev-dummy/ip6addr", "netdev address/bits", 2, 2, dummy::ip6),
    command(
        "netdev-dummy/receive",
        "name [--qid queue] {packet | flow [--len bytes]}...",
        2,
        1024,
        dummy::receive,
    ),
    command("netdev-dummy/set-admin-state", "[netdev] up|down", 1, 2, dummy::set_admin_state),
    command("time/stop", "", 0, 0, dummy::time_stop),
    command("time/warp", "[total_msecs] msecs", 1, 2, dummy::time_warp),
];

/// The commands of this daemon, in order of their names.
fn available(daemon: &Daemon) -> Vec<&'static Command> {
    let dummy = if daemon.switch.has_dummies() { DUMMY_COMMANDS } else { &[] };
    let mut all: Vec<_> = COMMANDS.iter().chain(dummy).collect();
    all.sort_by_key(|c| c.name);
    all
}

/// Runs a command.
pub fn run(daemon: &mut Daemon, name: &str, args: &[String]) -> Answer {
    let Some(command) = available(daemon).into_iter().find(|c| c.name == name) else {
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
    (command.run)(daemon, args)
}
