//! `dpif-netdev/pmd-perf-show` and `dpif-netdev/pmd-perf-log-set`.

use super::datapath::with_threads;
use super::{Form, Reply, Rows, command};
use crate::control_plane::ControlPlane;
use dpif::{PerfLog, PerfQuery};
use std::str::FromStr;

/// The commands of this module.
pub(super) const ROWS: Rows = &[
    &command(
        "dpif-netdev/pmd-perf-log-set",
        Form("on|off [-b before] [-a after] [-e|-ne] [-us usec] [-q qlen]", 0, 10, log_settings),
        "log the iterations of forwarding threads that exceed a threshold",
        set_log,
    ),
    &command(
        "dpif-netdev/pmd-perf-show",
        Form("[-nh] [-it iter-history-len] [-ms ms-history-len] [-pmd core] [dp]", 0, 8, asked),
        "show detailed performance statistics of forwarding threads",
        show,
    ),
];

/// The rest of a command line.
type Args<'a> = std::slice::Iter<'a, String>;

/// The number after an option.
fn number<T: FromStr>(args: &mut Args<'_>, option: &str) -> Result<T, String> {
    let text = args.next().ok_or_else(|| format!("{option} needs a number"))?;
    text.parse().map_err(|_| format!("{option} {text}: not a number that it can be"))
}

struct Asked {
    datapath: Option<String>,
    core: Option<u16>,
    histograms: bool,
    iterations: usize,
    milliseconds: usize,
}

fn asked(args: &[String]) -> Result<Asked, String> {
    let mut asked = Asked { datapath: None, core: None, histograms: true, iterations: 0, milliseconds: 0 };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "-nh" => asked.histograms = false,
            "-it" => asked.iterations = number(&mut args, arg)?,
            "-ms" => asked.milliseconds = number(&mut args, arg)?,
            "-pmd" => asked.core = Some(number(&mut args, arg)?),
            option if option.starts_with('-') => {
                return Err(format!("{option}: unknown option; there are -nh, -it, -ms and -pmd"));
            }
            _ => asked.datapath = Some(arg.clone()),
        }
    }
    Ok(asked)
}

fn show(plane: &mut ControlPlane, asked: Asked) -> Reply {
    let show = || {
        let query = PerfQuery {
            core: asked.core,
            iterations: asked.iterations,
            milliseconds: asked.milliseconds,
            histograms: asked.histograms,
            time: time_of_day(sys::clock::wall_ms()),
        };
        Ok(with_threads(&plane.switch, asked.datapath.as_deref())?
            .iter()
            .map(|(_, threads)| threads.perf_text(&query))
            .collect())
    };
    Reply::from(show())
}

/// Hours, minutes and seconds of UTC.
pub(super) fn time_of_day(wall_ms: u64) -> String {
    let (s, ms) = (wall_ms / 1000 % 86_400, wall_ms % 1000);
    format!("{:02}:{:02}:{:02}.{ms:03}", s / 3600, s / 60 % 60, s % 60)
}

const LOG_USAGE: &str = "Usage: ovs-appctl dpif-netdev/pmd-perf-log-set [on|off] [-b before] [-a after] [-e|-ne] \
                         [-us usec] [-q qlen]";

/// The settings of `dpif-netdev/pmd-perf-log-set`.
pub(super) fn log_settings(args: &[String]) -> Result<PerfLog, String> {
    let mut log = PerfLog::default();
    let mut args = args.iter();
    let wrong = |why: String| format!("{why}\n{LOG_USAGE}");
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "on" => log.on = true,
            "off" => log.on = false,
            "-b" => log.before = number(&mut args, arg).map_err(wrong)?,
            "-a" => log.after = number(&mut args, arg).map_err(wrong)?,
            "-e" => log.extend = true,
            "-ne" => log.extend = false,
            "-us" => log.longer_than_us = number(&mut args, arg).map_err(wrong)?,
            "-q" => {
                let _: u64 = number(&mut args, arg).map_err(wrong)?;
                return Err("-q: there are no vhost-user ports whose queues could be watched".to_string());
            }
            other => return Err(wrong(format!("{other}: unknown"))),
        }
    }
    if log.before.saturating_add(log.after) >= PerfLog::HISTORY_LEN {
        return Err(wrong(format!(
            "-b and -a: fewer than {} iterations are remembered",
            PerfLog::HISTORY_LEN
        )));
    }
    Ok(log)
}

fn set_log(plane: &mut ControlPlane, log: PerfLog) -> Reply {
    plane.switch.instances_mut().set_perf_log(log);
    let (on, PerfLog { before, after, extend, longer_than_us, .. }) =
        (if log.on { "on" } else { "off" }, log);
    log::info!(
        target: "pmd_perf",
        "pmd-perf-log-set: {on}, before={before}, after={after}, extend={extend}, us_thr={longer_than_us}"
    );
    String::new().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_day() {
        assert_eq!(time_of_day(86_400_000 * 3 + 3_723_004), "01:02:03.004");
    }

    #[test]
    fn iterations_to_log_are_selected() {
        let parse = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(String::from).collect();
            log_settings(&words)
        };
        assert_eq!(parse(""), Ok(PerfLog::default()));
        let all = PerfLog { on: true, before: 1, after: 2, extend: true, longer_than_us: 30 };
        assert_eq!(parse("on -b 1 -a 2 -e -us 30"), Ok(all));
        assert_eq!(parse("on off -e -ne"), Ok(PerfLog::default()));
        for (line, why) in [
            ("on -b", "-b needs a number"),
            ("-us x", "-us x: not a number"),
            ("-a -1", "-a -1: not a number"),
            ("-zz", "-zz: unknown"),
            ("-q 5", "no vhost-user ports"),
            ("-q x", "-q x: not a number"),
            ("on -b 500 -a 500", "fewer than 1000"),
        ] {
            let refused = parse(line).unwrap_err();
            assert!(refused.contains(why), "{line}: {refused}");
        }
    }
}
