//! Processor time of many sessions of each protocol, in one process, with all packets through translations: figures on
//! standard error.

use super::*;
use l2proto::protocol::Columns;

/// Rows of a port.
#[derive(Default)]
struct Rows(Vec<(Table, &'static str, LinkValue)>);

impl Columns for Rows {
    fn column(&self, table: Table, name: &str) -> Option<LinkValue> {
        self.0.iter().find(|(t, n, _)| (*t, *n) == (table, name)).map(|(_, _, value)| value.clone())
    }

    fn is_local(&self) -> bool {
        false
    }

    fn members(&self) -> usize {
        1
    }
}

fn map(pairs: &[(&str, &str)]) -> LinkValue {
    LinkValue::Map(pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect())
}

/// Settings of a session of one of the two bridges.
fn settings(kind: &str, end: i64) -> Arc<[LinkSettings]> {
    let rows = match kind {
        "BFD, 100 ms" => {
            let pairs = [("enable", "true"), ("min_tx", "100"), ("min_rx", "100"), ("mult", "10")];
            vec![(Table::Interface, "bfd", map(&pairs))]
        }
        "CFM, 100 ms" | "CFM, 10 ms" => {
            let interval = if kind == "CFM, 10 ms" { "10" } else { "100" };
            vec![
                (Table::Interface, "cfm_mpid", LinkValue::Integer(1 + end)),
                (Table::Interface, "other_config", map(&[("cfm_interval", interval)])),
            ]
        }
        "LACP, fast" => vec![
            (Table::Port, "lacp", LinkValue::Text("active".to_string())),
            (Table::Port, "other_config", map(&[("lacp-time", "fast")])),
        ],
        _ => vec![(Table::Interface, "lldp", map(&[("enable", "true")]))],
    };
    let (all, ignored) = LinkSettings::parse(&Rows(rows));
    assert!(all.len() == 1 && ignored.is_empty(), "{kind}: {ignored:?}");
    all.into()
}

#[test]
fn two_thousand_sessions_stay_up() {
    let (ports, pause) = if testkit::long() { (1000, 10_000) } else { (100, 300) };
    let pause = Duration::from_millis(pause);
    for kind in ["BFD, 100 ms", "CFM, 100 ms", "CFM, 10 ms", "LACP, fast", "LLDP"] {
        let mut bed = Bed::new();
        let ends = [settings(kind, 0), settings(kind, 1)];
        bed.ports(ports, [Some(&ends[0]), Some(&ends[1])]);
        // LLDP has no state to report. Sessions of LACP and CFM are up at first, until they learn more.
        let live = if kind == "LLDP" { 0 } else { 2 * ports as usize };
        bed.wait(live, true);
        std::thread::sleep(pause);
        bed.wait(live, true);
        // A thread that does not run for 35 ms is a fault of CFM at 10 ms until the next check: such a round is repeated.
        let is_stable = |bed: &mut Bed| {
            bed.wait(live, true);
            let (begun, before) = (Instant::now(), thread_cpu_ms());
            std::thread::sleep(pause);
            bed.reports.extend(bed.links.take_reports(u64::MAX / 2));
            let (took, used) = (begun.elapsed().as_millis() as u64, thread_cpu_ms() - before);
            let percent = used as f64 * 100.0 / took as f64;
            eprintln!("{kind}: {} sessions: {percent:.1} % of a core", 2 * ports);
            bed.reports.values().flatten().all(|report| report.state.is_live)
        };
        assert!((0..10).any(|_| is_stable(&mut bed)), "{kind}");
    }
}

/// Processor time of the threads `link_protocols`, milliseconds (proc_pid_stat(5)).
fn thread_cpu_ms() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok);
    let of_task = |task: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(task.path().join("stat")).ok()?;
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
        let ticks = |n: usize| rest.split_whitespace().nth(n)?.parse::<u64>().ok();
        (name == THREAD).then(|| Some(10 * (ticks(11)? + ticks(12)?))).flatten()
    };
    tasks.filter_map(of_task).sum()
}
