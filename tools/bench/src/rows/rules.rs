//! Rows of OpenFlow rules: processor time of the daemon for adding, dumping and deleting many, and memory per
//! rule. Rules have four shapes in four tables; actions repeat, as in pipelines.
//!
//! Each round restarts each daemon, so that its memory is that of these rules. `ovs-ofctl` sends the
//! requests; its own time is excluded.

use super::{Effort, in_turn, values_of};
use crate::daemons;
use crate::lab::resident_bytes;
use crate::report::{Row, Sample};
use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;
use testkit::{Cmd, Daemon, Netns};

const BRIDGE: &str = "br0";
/// A barrier for each of 200,000 rules takes long.
const PATIENCE: &str = "--timeout=300";
const LIMIT: Duration = Duration::from_secs(300);
/// Rules of one cookie; a delete by cookie removes as many.
const RULES_A_COOKIE: usize = 200;
/// Share of the cookies that are deleted one by one.
const COOKIES_DELETED: usize = 5;
/// Freed memory returns to the system with a delay.
const SETTLE: Duration = Duration::from_secs(1);

/// A side of these rows.
pub(crate) enum RuleSide {
    /// A build of Sluice, by its name in results.
    Sluice(&'static str, PathBuf),
    /// The stock daemon.
    Ovs,
}

impl RuleSide {
    /// In results.
    pub(super) fn name(&self) -> String {
        match self {
            RuleSide::Sluice(name, _) => (*name).to_string(),
            RuleSide::Ovs => "ovs-netdev".to_string(),
        }
    }

    /// Starts it in a namespace; the daemon is first.
    pub(super) fn start(&self, netns: &Netns) -> Result<Vec<Daemon>> {
        match self {
            RuleSide::Sluice(_, program) => Ok(vec![daemons::start_sluice(netns, program, &[], None, None)?]),
            RuleSide::Ovs => daemons::start_stock(netns, daemons::stock(), &[], &[], None),
        }
    }
}

/// Rules in `ovs-ofctl add-flows` syntax: `count` of them, a quarter of each shape. Actions repeat, or are all
/// distinct.
fn rules(count: usize, distinct: bool) -> String {
    let mut text = String::new();
    for i in 0..count / 4 {
        let (a, b, c, cookie) = (i >> 16 & 255, i >> 8 & 255, i & 255, 1 + i * 4 / RULES_A_COOKIE);
        let last = |table: usize| {
            format!(
                "cookie={cookie},actions=load:{}->NXM_NX_REG{}[],resubmit(,{})",
                if distinct { i * 4 + table } else { i % 16 },
                table + 1,
                table + 1
            )
        };
        let _ = write!(
            text,
            "table=1,ip,nw_dst=10.{a}.{b}.{c},reg1={},{}\n\
             table=2,tcp,nw_src=10.{a}.{b}.{c},tp_dst={},{}\n\
             table=3,dl_vlan={},dl_dst=02:00:00:{a:02x}:{b:02x}:{c:02x},{}\n\
             table=4,metadata={i},ip,nw_dst=10.{b}.{c}.0/{},{}\n",
            i % 7,
            last(1),
            i % 5000,
            last(2),
            i % 4000,
            last(3),
            24 + i % 9,
            last(4)
        );
    }
    text
}

/// Deletes by cookie, and the number of rules that they remove.
fn deletes(count: usize) -> (String, usize) {
    let cookies = (count / RULES_A_COOKIE).div_ceil(COOKIES_DELETED);
    let lines = (0..cookies).map(|n| format!("delete cookie={}/-1\n", 1 + n * COOKIES_DELETED));
    (lines.collect(), cookies * RULES_A_COOKIE)
}

/// Results of one round, in ns of processor time per rule, and bytes per rule.
#[derive(Clone, Copy)]
struct Measured {
    add: f64,
    memory_bytes: f64,
    /// With actions that are all distinct.
    memory_distinct_bytes: f64,
    dump: f64,
    delete_cookie: f64,
    delete: f64,
    bundle: f64,
}

struct Bed<'a> {
    daemon: &'a Daemon,
}

impl Bed<'_> {
    fn ofctl(&self, args: &[&str], input: &str) -> Result<String> {
        let tool =
            self.daemon.tool("ovs-ofctl").args([PATIENCE, "-O", "OpenFlow13"]).args(args.iter().copied());
        Ok(tool.limit(LIMIT).input(input.to_string()).run()?.stdout)
    }

    /// Number of installed rules.
    fn count(&self) -> Result<usize> {
        let text = self.ofctl(&["dump-aggregate", BRIDGE], "")?;
        let count = text.split("flow_count=").nth(1).map(str::trim).and_then(|n| n.parse().ok());
        count.with_context(|| format!("no flow_count: {text}"))
    }

    /// Processor time of a request in ns per rule; checks that `left` rules remain.
    fn cost(&self, rules: usize, left: usize, args: &[&str], input: &str) -> Result<f64> {
        let before = daemons::cpu_ns(self.daemon.pid())?;
        self.ofctl(args, input)?;
        let spent = daemons::cpu_ns(self.daemon.pid())? - before;
        let count = self.count()?;
        ensure!(count == left, "{args:?} left {count} rules instead of {left}");
        Ok(spent as f64 / rules as f64)
    }

    /// Processor time of dumping that many rules, in ns per rule. The text is counted, not kept.
    fn dump_cost(&self, rules: usize) -> Result<f64> {
        let before = daemons::cpu_ns(self.daemon.pid())?;
        let line = format!("ovs-ofctl {PATIENCE} -O OpenFlow13 dump-flows {BRIDGE} | grep -c actions=");
        let shell = Cmd::new("sh").args(["-c", &line]);
        let shell = self.daemon.rundir().env().fold(shell, |cmd, (key, value)| cmd.env(key, value));
        let lines: usize = shell.limit(LIMIT).run()?.stdout.trim().parse()?;
        let spent = daemons::cpu_ns(self.daemon.pid())? - before;
        ensure!(lines == rules, "{lines} of {rules} rules were dumped");
        Ok(spent as f64 / rules as f64)
    }
}

/// A daemon with an empty bridge.
fn start(side: &RuleSide, netns: &Netns) -> Result<Vec<Daemon>> {
    let all = side.start(netns)?;
    let bridge =
        ["add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=netdev", "fail-mode=secure"];
    all.first().context("a side has a daemon")?.ovs("ovs-vsctl", &bridge)?;
    Ok(all)
}

/// Processor time and resident memory of rules that an empty bridge adds, a barrier each.
fn fill(bed: &Bed<'_>, count: usize, rules: &str) -> Result<(f64, f64)> {
    let empty = resident_bytes(bed.daemon.pid())?;
    let add = bed.cost(count, count, &["add-flows", BRIDGE, "-"], rules)?;
    std::thread::sleep(SETTLE);
    let bytes = resident_bytes(bed.daemon.pid())?.saturating_sub(empty);
    Ok((add, bytes as f64 / count as f64))
}

fn round(side: &RuleSide, count: usize) -> Result<Measured> {
    let netns = Netns::new("rules")?;
    let memory_distinct_bytes = {
        let all = start(side, &netns)?;
        fill(&Bed { daemon: &all[0] }, count, &rules(count, true))?.1
    };
    let all = start(side, &netns)?;
    let bed = Bed { daemon: &all[0] };
    let (rules, (deletes, deleted)) = (rules(count, false), deletes(count));
    let (add, memory_bytes) = fill(&bed, count, &rules)?;
    let dump = bed.dump_cost(count)?;
    let delete_cookie = bed.cost(deleted, count - deleted, &["add-flows", BRIDGE, "-"], &deletes)?;
    let delete = bed.cost(count - deleted, 0, &["del-flows", BRIDGE], "")?;
    let bundle = bed.cost(count, count, &["--bundle", "add-flows", BRIDGE, "-"], &rules)?;
    Ok(Measured { add, memory_bytes, memory_distinct_bytes, dump, delete_cookie, delete, bundle })
}

/// The rows for `count` rules.
pub(crate) fn rows(mut sides: Vec<RuleSide>, count: usize, effort: Effort) -> Vec<Row> {
    let mut seen: Vec<Vec<Option<Measured>>> = sides.iter().map(|_| Vec::new()).collect();
    let (number, mut asked) = (sides.len(), 0);
    let bundle = in_turn(effort.rounds, &mut sides, RuleSide::name, |side| {
        let into = &mut seen[asked % number];
        asked += 1;
        into.push(None);
        let round = round(side, count)?;
        into.pop();
        into.push(Some(round));
        Ok(Sample { value: Some(round.bundle), ..Sample::default() })
    });
    let of = |value: fn(&Measured) -> f64| values_of(&bundle, &seen, value);
    let rest = [
        ("add", "added, a barrier each", "ns/rule", of(|s| s.add)),
        ("memory", "resident memory", "bytes/rule", of(|s| s.memory_bytes)),
        (
            "memory-distinct",
            "resident memory, actions all distinct",
            "bytes/rule",
            of(|s| s.memory_distinct_bytes),
        ),
        ("dump", "dumped", "ns/rule", of(|s| s.dump)),
        ("delete-cookie", "deleted by cookie, 200 at a time", "ns/rule", of(|s| s.delete_cookie)),
        ("delete", "deleted together", "ns/rule", of(|s| s.delete)),
    ];
    let row = |id: &str, what: &str, unit, sides| Row {
        id: format!("rules-{id}"),
        title: format!("{count} rules: {what}"),
        unit,
        sides,
    };
    let rest: Vec<Row> = rest.into_iter().map(|(id, what, unit, sides)| row(id, what, unit, sides)).collect();
    let mut rows = vec![row("bundle", "added by one bundle", "ns/rule", bundle)];
    rows.extend(rest);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_are_as_many_as_asked_for() {
        let text = rules(2000, false);
        let all: std::collections::BTreeSet<&str> = text.lines().collect();
        assert_eq!(all.len(), 2000);
        let (lines, deleted) = deletes(2000);
        let cookies: Vec<&str> =
            lines.lines().map(|l| l.trim_start_matches("delete ").trim_end_matches("/-1")).collect();
        let hit = all.iter().filter(|r| cookies.iter().any(|c| r.contains(&format!(",{c},")))).count();
        assert_eq!((cookies.len(), hit), (2, deleted));
    }
}
