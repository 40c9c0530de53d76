//! Commands about forwarding threads: their queues, and the cost of these.

use super::datapath::with_threads;
use super::{Form, Optional, Reply, Rows, Word, command};
use crate::control_plane::ControlPlane;
use dpif::{PmdStats, QueueInfo, ThreadInfo};
use std::fmt::Write as _;

/// The commands of this module.
pub(super) const ROWS: Rows = &[
    &command(
        "dpif-netdev/pmd-rxq-rebalance",
        Optional(Word("dp")),
        "assign the receive queues to the forwarding threads anew",
        rxq_rebalance,
    ),
    &command(
        "dpif-netdev/pmd-rxq-show",
        Form("[-pmd core] [-secs secs] [dp]", 0, 5, asked),
        "show the receive queues of each forwarding thread and their load",
        rxq_show,
    ),
    &command(
        "dpif-netdev/pmd-sleep-show",
        Optional(Word("dp")),
        "show the maximum sleep of each forwarding thread",
        sleep_show,
    ),
];

/// Length of the stored intervals, and of all of them.
const INTERVAL_S: u32 = 5;
const MAX_S: u32 = 60;

/// Arguments of `pmd-rxq-show`.
struct Asked {
    datapath: Option<String>,
    core: Option<u16>,
    secs: u32,
}

fn asked(words: &[String]) -> Result<Asked, String> {
    let mut asked = Asked { datapath: None, core: None, secs: MAX_S };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-pmd" => {
                let core = words.next().and_then(|n| n.parse().ok());
                asked.core = Some(core.ok_or("-pmd needs the number of a core")?);
            }
            "-secs" => {
                let secs: Option<u32> = words.next().and_then(|n| n.parse().ok());
                // Whole intervals, as in stock switches.
                asked.secs = secs.ok_or("-secs needs a number of seconds")?.clamp(INTERVAL_S, MAX_S);
                asked.secs = asked.secs.next_multiple_of(INTERVAL_S);
            }
            _ => asked.datapath = Some(word.clone()),
        }
    }
    Ok(asked)
}

fn rxq_show(plane: &mut ControlPlane, asked: Asked) -> Reply {
    let show = || {
        let mut shown = String::new();
        for (_, datapath) in with_threads(&plane.switch, asked.datapath.as_deref())? {
            let threads = datapath.threads((asked.secs / INTERVAL_S) as usize);
            let wanted = |t: &&ThreadInfo| asked.core.is_none_or(|core| core == t.core);
            threads.iter().filter(wanted).for_each(|t| thread(&mut shown, t));
            if let Some(queues) = datapath.main_queues().filter(|_| asked.core.is_none()) {
                shown += "main thread (there are no forwarding threads: --without=threads):\n";
                queues.iter().for_each(|q| queue(&mut shown, q));
            }
        }
        if asked.core.is_some() && shown.is_empty() {
            // Stock switches print nothing for an unknown thread.
            return Ok(shown);
        }
        Ok(format!("Displaying last {} seconds pmd usage %\n{shown}", asked.secs))
    };
    Reply::from(show())
}

fn percent(share: Option<f64>) -> String {
    share.map_or("NOT AVAIL".to_string(), |s| format!("{:2} %", (s * 100.0) as u64))
}

fn head(out: &mut String, t: &ThreadInfo) {
    let _ = writeln!(out, "pmd thread numa_id {} core_id {}:", t.numa.0, t.core);
}

fn thread(out: &mut String, t: &ThreadInfo) {
    head(out, t);
    let _ = writeln!(out, "  isolated : {}", t.isolated);
    t.queues.iter().for_each(|q| queue(out, q));
    if !t.queues.is_empty() {
        let queues: f64 = t.queues.iter().filter_map(|q| q.usage).sum();
        let overhead = t.busy.map(|busy| (busy - queues).max(0.0));
        let _ = writeln!(out, "  overhead: {}", percent(overhead));
    }
}

fn queue(out: &mut String, q: &QueueInfo) {
    let usage = percent(q.usage);
    let _ = writeln!(out, "  port: {:<16}  queue-id: {:2} (enabled)   pmd usage: {usage}", q.port, q.queue);
}

fn rxq_rebalance(plane: &mut ControlPlane, dp: Option<&str>) -> Reply {
    let rebalance = || {
        for (_, datapath) in with_threads(&plane.switch, dp)? {
            datapath.rebalance();
        }
        Ok("pmd rxq rebalance requested.\n".to_string())
    };
    Reply::from(rebalance())
}

fn sleep_show(plane: &mut ControlPlane, dp: Option<&str>) -> Reply {
    let show = || {
        let mut out = String::new();
        for (_, datapath) in with_threads(&plane.switch, dp)? {
            let default_us = datapath.sleep_max_default_us();
            let _ = writeln!(out, "Default max sleep: {default_us:4} us");
            for t in datapath.threads(1) {
                head(&mut out, &t);
                let _ = writeln!(out, "  max sleep: {:4} us", t.sleep_max_us);
            }
        }
        Ok(out)
    };
    Reply::from(show())
}

/// The rows of a thread's cycles in `pmd-stats-show`. The main loop counts none.
pub(super) fn cycles(out: &mut String, s: &PmdStats) {
    let (busy, all) = (s.busy_cycles, s.busy_cycles + s.idle_cycles);
    if all == 0 {
        return;
    }
    let share = |part: u64| part as f64 * 100.0 / all as f64;
    let _ = writeln!(out, "  idle cycles: {} ({:.2}%)", s.idle_cycles, share(s.idle_cycles));
    let _ = writeln!(out, "  processing cycles: {busy} ({:.2}%)", share(busy));
    let packets = s.received;
    if packets > 0 {
        let a_packet = |cycles: u64| cycles as f64 / packets as f64;
        let _ = writeln!(out, "  avg cycles per packet: {:.2} ({all}/{packets})", a_packet(all));
        let _ = writeln!(out, "  avg processing cycles per packet: {:.2} ({busy}/{packets})", a_packet(busy));
    }
}
