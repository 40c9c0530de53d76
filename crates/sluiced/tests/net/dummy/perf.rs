//! Commands about threads (`pmd-*`), compared with output of the stock switch without its numbers.

use super::{FROM_5_TO_7, Lab, recorded};
use crate::helpers::{LIMIT, appctl_output, vsctl, wait_log};
use testkit::{require_netns, require_programs, wait_for};

/// A text with numbers, and blanks shifted by them, made uniform.
fn shape(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let mut last = ' ';
        for c in line.trim_end().chars() {
            let c = if c.is_ascii_digit() || (c == '.' && last == '#') { '#' } else { c };
            if c != last || !matches!(c, '#' | ' ') {
                out.push(c);
            }
            last = c;
        }
        out.push('\n');
    }
    // A number may fill its column.
    out.replace("( #", "(#")
}

/// The bucket bounds of histograms: the first cell of each column.
fn walls(text: &str) -> Vec<Vec<String>> {
    let rows = text.lines().skip_while(|l| !l.starts_with("Histograms")).skip(2).take(32);
    let cell = |row: &str, column: usize| row[3 + 23 * column..][..8].trim().to_string();
    rows.map(|row| (0..7).map(|column| cell(row, column)).collect()).collect()
}

fn with_threads() -> Lab {
    let lab = Lab::empty();
    vsctl(
        &lab.daemon,
        "add-br br0 -- set Bridge br0 datapath_type=dummy -- add-port br0 p1 -- set Interface p1 type=dummy-pmd \
         -- add-port br0 p2 -- set Interface p2 type=dummy-pmd",
    );
    lab
}

#[test]
fn iterations_have_the_layout_of_the_stock_switch() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = with_threads();
    let off = lab.appctl("dpif-netdev/pmd-perf-show -it 5 -ms 5");
    assert_eq!(shape(&off), shape(recorded::PERF_SHOW_OFF), "{off}");
    vsctl(&lab.daemon, "set Open_vSwitch . other_config:pmd-perf-metrics=true");
    let one = format!("in_port(1),{FROM_5_TO_7},eth_type(0x1234)");
    // A miss, its translation, and hits of the resulting megaflow.
    wait_for(LIMIT, "hits", || {
        lab.receive("p1", &one);
        lab.appctl("dpctl/show").lines().any(|l| l.contains("lookups:") && !l.contains("hit:0 "))
    })
    .unwrap();
    let mut on = String::new();
    wait_for(LIMIT, "histories", || {
        on = lab.appctl("dpif-netdev/pmd-perf-show -nh -it 1 -ms 1 dummy@ovs-dummy");
        on.lines().count() == recorded::PERF_SHOW_ON.lines().count()
    })
    .unwrap_or_else(|e| panic!("{e}: {on}"));
    assert_eq!(shape(&on), shape(recorded::PERF_SHOW_ON), "{on}");
    // Numbers that depend on each other.
    let figure = |name: &str| -> u64 {
        let line = on.lines().find(|l| l.trim_start().starts_with(name)).unwrap();
        line.split(':').nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap()
    };
    assert_eq!(figure("Iterations"), figure("- idle iterations") + figure("- busy iterations"), "{on}");
    let hits = figure("- SMC hits") + figure("- Megaflow hits");
    assert_eq!(figure("Datapath passes"), hits + figure("- Upcalls") + figure("- Lost upcalls"), "{on}");
    assert!(!on.contains(", 0.0 us/upcall"), "{on}");
    let whole = lab.appctl("dpif-netdev/pmd-perf-show");
    assert_eq!(walls(&whole), walls(recorded::PERF_HISTOGRAMS));
    let histograms = &whole[whole.find("Histograms").unwrap()..];
    assert_eq!(shape(histograms), shape(recorded::PERF_HISTOGRAMS), "{histograms}");
    // Clearing resets the counters; the other core has no thread.
    lab.appctl("dpif-netdev/pmd-stats-clear");
    let cleared = lab.appctl("dpif-netdev/pmd-perf-show -nh");
    assert_eq!(shape(&cleared), shape(recorded::PERF_SHOW_OFF), "{cleared}");
    assert!(lab.appctl("dpctl/show").contains("lookups: hit:0 missed:0 lost:0"));
    assert_eq!(lab.appctl("dpif-netdev/pmd-perf-show -pmd 9"), "");
}

#[test]
fn bad_arguments_of_pmd_commands_are_refused() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    let lab = with_threads();
    for (line, why) in [
        ("pmd-perf-show -it", "-it needs a number"),
        ("pmd-perf-show -ms x", "-ms x: not a number"),
        ("pmd-perf-show -pmd -1", "-pmd -1: not a number"),
        ("pmd-perf-show -zz", "-zz: unknown option"),
        ("pmd-perf-show nope", "nope: no such datapath"),
        ("pmd-perf-show 1 2 3 4 5 6 7 8 9", "takes at most 8 arguments"),
        ("pmd-perf-log-set maybe", "maybe: unknown\nUsage: ovs-appctl dpif-netdev/pmd-perf-log-set"),
        ("pmd-perf-log-set on -q 5", "there are no vhost-user ports"),
    ] {
        let out = appctl_output(&lab.daemon, &format!("dpif-netdev/{line}"));
        assert!(!out.status.success() && out.stderr.contains(why), "{line}: {}", out.stderr);
    }
    vsctl(&lab.daemon, "set Open_vSwitch . other_config:pmd-perf-metrics=true");
    assert_eq!(lab.appctl("dpif-netdev/pmd-perf-log-set on -b 1 -a 1 -us 0"), "");
    wait_log(&lab.daemon, "Suspicious iteration (Excessive total cycles): iter=");
    wait_log(&lab.daemon, "Neighborhood of suspicious iteration:");
    lab.appctl("dpif-netdev/pmd-perf-log-set off");
    wait_log(&lab.daemon, "pmd-perf-log-set: off, before=5, after=5, extend=false, us_thr=250");
}

#[test]
fn totals_outlive_the_threads_that_counted_them() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = with_threads();
    let hits = |command: &str| -> u64 {
        let shown = lab.appctl(command);
        let digits = shown.split("hit:").nth(1).unwrap();
        digits.split_whitespace().next().unwrap().parse().unwrap()
    };
    let one = format!("in_port(1),{FROM_5_TO_7},eth_type(0x1234)");
    wait_for(LIMIT, "hits", || {
        lab.receive("p1", &one);
        hits("dpif/show") >= 3
    })
    .unwrap();
    let before = hits("dpctl/show");
    vsctl(&lab.daemon, "set Open_vSwitch . other_config:pmd-cpu-mask=0x2");
    let threads = lab.appctl("dpif-netdev/pmd-stats-show");
    assert!(threads.contains("core_id 1:\n  packets received: 0\n"), "{threads}");
    assert_eq!((hits("dpctl/show"), hits("dpif/show")), (before, before));
    lab.appctl("dpif-netdev/pmd-stats-clear");
    assert_eq!(hits("dpif/show"), 0);
}

#[test]
fn other_figures_of_threads_have_the_layout_of_the_stock_switch() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    let lab = Lab::empty();
    vsctl(
        &lab.daemon,
        "set Open_vSwitch . other_config:pmd-cpu-mask=0x2 -- add-br br0 -- set Bridge br0 datapath_type=dummy \
         -- add-port br0 p1 -- set Interface p1 type=dummy-pmd \
         -- add-port br0 p2 -- set Interface p2 type=dummy-pmd options:n_rxq=2",
    );
    let one = format!("in_port(1),{FROM_5_TO_7},eth_type(0x1234)");
    let mut stats = String::new();
    // Percentages grow while the thread works; so do the digits of cycles.
    wait_for(LIMIT, "the layout with packets", || {
        lab.receive("p1", &one);
        stats = lab.appctl("dpif-netdev/pmd-stats-show");
        shape(&stats) == shape(recorded::PMD_STATS_THREAD)
    })
    .unwrap_or_else(|e| panic!("{e}: {stats}"));
    assert_eq!(lab.appctl("dpif-netdev/pmd-stats-show -pmd 9"), "");
    // Usage percentages are available only after some time.
    let shares = |text: &str| -> Vec<String> {
        let cut = |line: &str| line.split("pmd usage: ").next().unwrap().to_string();
        let lines: Vec<_> = text.lines().map(cut).collect();
        let without = |line: &String| line.split("overhead: ").next().unwrap().to_string();
        lines.iter().map(without).collect()
    };
    let queues = lab.appctl("dpif-netdev/pmd-rxq-show -secs 7");
    assert_eq!(shares(&queues), shares(recorded::PMD_RXQ), "{queues}");
    assert_eq!(lab.appctl("dpif-netdev/pmd-rxq-show -pmd 9"), "");
    let names = ["info", "prio"].map(|name| lab.appctl(&format!("dpif-netdev/subtable-lookup-{name}-get")));
    assert_eq!(names[0], names[1]);
    assert!(names[0].ends_with("  generic (Use count: 1, Priority: 1)\n"), "{names:?}");
    let sleep = lab.appctl("dpif-netdev/pmd-sleep-show");
    assert_eq!(sleep, "Default max sleep:    0 us\npmd thread numa_id 0 core_id 1:\n  max sleep:    0 us\n");
}
