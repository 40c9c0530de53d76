//! `sluice upcall-bench` against this daemon, a stock one and a Linux bridge: all four tests with few packets.
//! Every run cleans up, however it ends. Checks that all values are measured, not their size.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use testkit::{
    Cmd, Daemon, DaemonSpec, Netns, Output, RunDir, Signal, require_netns, require_programs, wait_for,
};

use crate::cli::program;
use crate::helpers::{start, vsctl};

/// Timeout of a run of few packets on a busy machine; flows of a test may take 30 s to expire.
const RUN_LIMIT: Duration = Duration::from_secs(240);
const FEW: [&str; 12] = [
    "--ports",
    "4",
    "--packets",
    "50",
    "--port-packets",
    "20",
    "--load-packets",
    "50",
    "--load-rate",
    "2000",
    "--json",
    "-",
];
/// The stock daemon, at its path in Debian's packages.
const STOCK: &str = "/usr/lib/openvswitch-switch/ovs-vswitchd";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// The tool in a namespace, for the switch of a run directory.
fn tool(netns: &Netns, run: &RunDir) -> Cmd {
    let tool = run.env().fold(Cmd::new(program()).netns(netns), |cmd, (name, value)| cmd.env(name, value));
    tool.limit(RUN_LIMIT).arg("upcall-bench")
}

fn devices(netns: &Netns) -> Vec<String> {
    let text = netns.ip("-o link show").unwrap();
    text.lines().filter_map(|line| Some(line.split(": ").nth(1)?.split('@').next()?.to_string())).collect()
}

/// Reads the file saved by a successful run.
fn saved(output: &Output) -> Value {
    assert!(output.status.success(), "{}", output.stderr);
    serde_json::from_str(&output.stdout).unwrap()
}

/// Checks that all probes were sent and arrived once.
fn whole(measured: &Value, probes: u64) {
    assert_eq!(
        (measured["sent"].as_u64(), measured["arrived"].as_u64()),
        (Some(probes), Some(probes)),
        "{measured:#}"
    );
    assert_eq!(
        (measured["duplicates"].as_u64(), measured["foreign"].as_u64()),
        (Some(0), Some(0)),
        "{measured:#}"
    );
    let delay = |name: &str| measured["delays"][name].as_f64().unwrap();
    assert!(0.0 < delay("min_ns") && delay("min_ns") <= delay("p50_ns"), "{measured:#}");
    assert!(delay("p50_ns") <= delay("p99_ns") && delay("p99_ns") <= delay("max_ns"), "{measured:#}");
}

/// Checks that the four tests with `FEW` packets are complete; `misses`: the switch counts them.
fn four_tests(run: &Value, target: &str, misses: bool) {
    assert_eq!(run["target"], target);
    let (one, idle) = (&run["one"], &run["idle"]);
    let tests = [(one, 0), (&run["load"], 4), (&idle["unloaded"], 0), (&idle["loaded"], 3)];
    for (measured, ports) in tests {
        whole(measured, 50);
        let load = &measured["load"];
        assert_eq!(load["ports"].as_u64().unwrap_or(0), ports, "{measured:#}");
        if ports > 0 {
            assert!(
                load["offered"].as_u64() > Some(0) && load["delivered"].as_u64() > Some(0),
                "{measured:#}"
            );
        }
        // A busy machine may lose frames of the load before the switch sees them.
        let delivered = load["delivered"].as_u64().unwrap_or(0) + 50;
        let counted = measured["misses"].as_u64();
        assert!(if misses { counted >= Some(delivered) } else { counted.is_none() }, "{measured:#}");
    }
    assert!(run["load"]["load"]["port_arrived"].as_u64() > Some(0), "{run:#}");
    assert_eq!(idle["loaded"]["load"]["port_offered"].as_u64(), Some(0));
    let ports = run["all"].as_array().unwrap();
    let numbers: Vec<_> = ports.iter().map(|port| port["port"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [0, 1, 2, 3]);
    assert!(ports.iter().all(|port| port["arrived"].as_u64() == Some(20)), "{ports:#?}");
}

#[test]
fn the_four_tests_on_this_switch() {
    require_netns!();
    require_programs!(program().as_str(), "ovs-vsctl");
    let netns = Netns::new("ub").unwrap();
    let daemon = start(&netns);
    let before = devices(&netns);
    let run = saved(&tool(&netns, daemon.rundir()).args(FEW).output().unwrap());
    four_tests(&run, "sluice", true);
    let seen = &run["daemon"];
    assert_eq!(seen["pid"].as_u64(), Some(daemon.pid().into()));
    assert!(seen["descriptors"].as_u64() > seen["descriptors_before"].as_u64(), "{seen:#}");
    assert_eq!((vsctl(&daemon, "list-br"), devices(&netns)), (String::new(), before));
}

/// A stock daemon with its database server in a namespace.
fn stock(netns: &Netns) -> (Daemon, Daemon) {
    let spec = DaemonSpec::new("ovsdb-server").unwrap().netns(netns);
    let run = spec.run_directory().clone();
    let db = run.join("conf.db");
    Cmd::new("ovsdb-tool").arg("create").arg(&db).arg(SCHEMA).run().unwrap();
    let remote = format!("--remote=p{}", run.db());
    let server =
        spec.args([db.into_os_string(), remote.into(), "-vconsole:off".into()]).ready_file("db.sock").start();
    run.ovs("ovs-vsctl", &["--no-wait", "init"]).unwrap();
    let daemon = DaemonSpec::new(STOCK).unwrap().netns(netns).rundir(&run);
    let daemon = daemon.args([run.db().as_str(), "-vconsole:off", "--log-file", "--disable-system"]);
    (daemon.start().unwrap(), server.unwrap())
}

#[test]
fn the_four_tests_on_the_stock_switch() {
    require_netns!();
    require_programs!(program().as_str(), "ovs-vsctl", "ovsdb-server", "ovsdb-tool", STOCK);
    let netns = Netns::new("ubo").unwrap();
    let (daemon, _server) = stock(&netns);
    let (before, file) = (devices(&netns), daemon.rundir().join("saved.json"));
    let output = tool(&netns, daemon.rundir()).args(FEW).output().unwrap();
    four_tests(&saved(&output), "ovs", true);
    assert_eq!(vsctl(&daemon, "list-br"), "");
    // The stock switch's userspace datapath creates devices with its first bridge.
    let left: Vec<String> = devices(&netns).into_iter().filter(|name| !before.contains(name)).collect();
    assert!(left.iter().all(|name| name == "ovs-netdev"), "{left:?}");
    // A second run of one test, printed as a table and plotted beside the first.
    std::fs::write(&file, &output.stdout).unwrap();
    let svg = daemon.rundir().join("all.svg");
    let again = tool(&netns, daemon.rundir()).args(&FEW[..10]).args([
        "--tests",
        "one",
        "--name",
        "again",
        "--compare",
    ]);
    let again = again.arg(&file).arg("--plot").arg(&svg).run().unwrap();
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(again.stdout.lines().next().map(words).unwrap(), ["again", "ovs", "again/ovs"]);
    assert!(std::fs::read_to_string(svg).unwrap().contains("again"));
}

#[test]
fn the_four_tests_on_a_linux_bridge() {
    require_netns!();
    require_programs!(program().as_str(), "bridge");
    let netns = Netns::new("ubl").unwrap();
    let before = devices(&netns);
    let run = RunDir::new("ubl").unwrap();
    let output = tool(&netns, &run).args(FEW).args(["--target", "bridge"]).output().unwrap();
    four_tests(&saved(&output), "bridge", false);
    assert_eq!(devices(&netns), before);
}

#[test]
fn user_actions_of_one_flow() {
    require_netns!();
    require_programs!(program().as_str());
    let netns = Netns::new("ubu").unwrap();
    let daemon = start(&netns);
    let line = ["--user-actions", "--tests", "one"];
    let run = saved(&tool(&netns, daemon.rundir()).args(FEW).args(line).output().unwrap());
    whole(&run["one"], 50);
    assert!(run["one"]["misses"].as_u64() < Some(50), "{run:#}");
}

/// Starts a long run, and waits until its bridge exists and its test has begun.
fn long_run(netns: &Netns, daemon: &Daemon, more: &[&str]) -> testkit::Running {
    let line = ["--ports", "3", "--packets", "100000000", "--bridge", "br-mine", "--json", "-"];
    let running = tool(netns, daemon.rundir()).args(line).args(more).spawn().unwrap();
    let received = || {
        let text = netns.ip("-j -s link show").unwrap();
        let all: Value = serde_json::from_str(&text).unwrap();
        let bridge = all.as_array().unwrap().iter().find(|device| device["ifname"] == "br-mine").cloned();
        bridge.and_then(|device| device["stats64"]["rx"]["packets"].as_u64()).unwrap_or(0)
    };
    wait_for(RUN_LIMIT, "the test to begin", || received() > 200).unwrap();
    running
}

fn nothing_is_left(netns: &Netns, daemon: &Daemon, before: &[String]) {
    wait_for(RUN_LIMIT, "bridge and devices to be gone", || {
        vsctl(daemon, "list-br").is_empty() && devices(netns) == before
    })
    .unwrap();
}

#[test]
fn interrupted_and_killed_it_leaves_nothing() {
    require_netns!();
    require_programs!(program().as_str(), "ovs-vsctl");
    let netns = Netns::new("ubk").unwrap();
    let daemon = start(&netns);
    let before = devices(&netns);
    let mut running = long_run(&netns, &daemon, &[]);
    running.signal(Signal::INT).unwrap();
    let output = running.wait(RUN_LIMIT).unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", output.stderr);
    let run: Value = serde_json::from_str(&output.stdout).unwrap();
    assert!(
        run["one"]["arrived"].as_u64() > Some(0) && run["notes"][0].as_str().unwrap().contains("interrupted")
    );
    nothing_is_left(&netns, &daemon, &before);
    // Killed: the guard removes the bridge.
    let running = long_run(&netns, &daemon, &[]);
    running.stop(Signal::KILL, RUN_LIMIT).unwrap();
    nothing_is_left(&netns, &daemon, &before);
    // The next run cleans up after one that was killed with its guard.
    vsctl(&daemon, "add-br br-old -- br-set-external-id br-old sluice-upcall-bench 4194305");
    vsctl(&daemon, "add-br br-kept -- br-set-external-id br-kept other 4194305");
    saved(&tool(&netns, daemon.rundir()).args(FEW).args(["--tests", "one"]).output().unwrap());
    assert_eq!(vsctl(&daemon, "list-br"), "br-kept");
}

#[test]
fn a_crashed_daemon_ends_the_run_with_partial_results() {
    require_netns!();
    require_programs!(program().as_str());
    let netns = Netns::new("ubd").unwrap();
    let daemon = start(&netns);
    let rundir = daemon.rundir().clone();
    let running = long_run(&netns, &daemon, &[]);
    daemon.crash().unwrap();
    let output = running.wait(RUN_LIMIT).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stderr.contains("is gone"), "{}", output.stderr);
    let run: Value = serde_json::from_str(&output.stdout).unwrap();
    assert!(run["one"]["arrived"].as_u64() > Some(0), "{run:#}");
    assert!(!devices(&netns).iter().any(|name| name.starts_with("ub")));
    assert!(output.stderr.contains("br-mine is still in the database"), "{}", output.stderr);
    drop(rundir);
}

#[test]
fn a_crashed_stock_daemon_leaves_nothing_in_its_database() {
    require_netns!();
    require_programs!(program().as_str(), "ovs-vsctl", "ovsdb-server", "ovsdb-tool", STOCK);
    let netns = Netns::new("ubx").unwrap();
    let (daemon, server) = stock(&netns);
    let running = long_run(&netns, &daemon, &[]);
    daemon.crash().unwrap();
    let output = running.wait(RUN_LIMIT).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stderr.contains("is gone"), "{}", output.stderr);
    assert_eq!(vsctl(&server, "list-br"), "");
}

#[test]
fn unsupported_set_ups_are_refused_with_the_reason() {
    require_netns!();
    require_programs!(program().as_str(), "ovs-vsctl");
    let netns = Netns::new("ubb").unwrap();
    let daemon = start(&netns);
    vsctl(&daemon, "add-br br-there");
    let (before, missing) = (devices(&netns), "/nowhere/at/all");
    let empty = RunDir::new("empty").unwrap();
    let other = daemon.rundir().join("other.json");
    std::fs::write(&other, "{}").unwrap();
    let other = other.to_str().unwrap();
    let cases: [(&[&str], &str); 9] = [
        (&["--bridge", "br-there"], "is there already"),
        (&["--rundir", missing], "cannot read the run directory"),
        (&["--rundir", empty.path().to_str().unwrap()], "no control socket"),
        (&["--target", "ovs"], "the daemon is another"),
        (&["--db", "unix:/nowhere/at/all"], "cannot read the database"),
        (&["--datapath-type", "other"], "datapath"),
        (&["--compare", missing], "cannot read it"),
        (&["--compare", other], "not written by upcall-bench"),
        (&["--cpu", "100000"], "processor"),
    ];
    for (words, reason) in cases {
        let output = tool(&netns, daemon.rundir()).args(FEW).args(words).output().unwrap();
        assert_eq!(
            (output.status.code(), output.stdout.as_str()),
            (Some(1), ""),
            "{words:?}: {}",
            output.stderr
        );
        assert!(output.stderr.contains(reason), "{words:?}: {}", output.stderr);
    }
    assert_eq!((vsctl(&daemon, "list-br"), devices(&netns)), ("br-there".into(), before));
    assert!(!Path::new(missing).exists());
}
