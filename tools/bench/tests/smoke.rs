//! The benchmark works: a quick run has every row of its themes, verified, and leaves nothing behind, also if killed.
//! `SLUICE_LONG=1` runs all themes. Asserts no times.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;
use testkit::{Cmd, Signal, TempDir, left_by, require_netns, require_programs, wait_for};

/// Maximum time of a quick run.
const LIMIT: Duration = Duration::from_secs(300);

/// Rows without further requirements, and with a line in the table.
const ROWS: [&str; 33] = [
    "first-p50",
    "first-deviation",
    "first-idle-lost",
    "setup-rate",
    "setup-memory",
    "setup-forwarded-during",
    "setup-forwarded-after",
    "lookups-2",
    "lookups-1",
    "pcap-1",
    "pcap-1-cycles",
    "pcap-1000",
    "pcap-10000",
    "pcap-17masks",
    "pcap-1000-port",
    "udp64-1",
    "udp64-1-cost",
    "delay-p50-2ports",
    "delay-p99-2ports",
    "tcp",
    "udp1400",
    "bond",
    "bond-cost",
    "delay-p50-100ports",
    "delay-p99-100ports",
    "idle-100ports",
    "pcap-17masks-cycles",
    "tunnel-push",
    "tunnel-pop",
    "tunnel-tcp",
    "tunnel-host",
    "restart",
    "restart-kill",
];

/// Themes of the short form, each also the beginning of its rows: in process and between hosts, with and without peers.
const SHORT: [&str; 4] = ["setup", "pcap", "udp", "tcp"];

/// Whether a row belongs to this run: all of them with `SLUICE_LONG=1`, else those of the short form.
fn runs(row: &str) -> bool {
    testkit::long() || (row != "udp1400" && SHORT.iter().any(|theme| row.starts_with(theme)))
}

/// The daemon in `SLUICE_BIN_DIR`, with the command line beside it; without the variable both are built, because cargo
/// builds no other package's programs for a test. They have a folder of their own: in the folder of the benchmark they
/// would replace the programs that other tests are running.
fn sluiced() -> PathBuf {
    if let Some(built) = std::env::var_os("SLUICE_BIN_DIR") {
        return Path::new(&built).join("sluiced");
    }
    let folder = Path::new(env!("CARGO_BIN_EXE_bench")).parent().unwrap();
    let profile = folder.file_name().and_then(|n| n.to_str()).unwrap();
    let target = folder.parent().unwrap().join("smoke");
    let cargo = Cmd::new(env!("CARGO")).args([
        "build",
        "--locked",
        "--quiet",
        "--workspace",
        "--bin",
        "sluiced",
        "--bin",
        "sluice",
    ]);
    let cargo =
        cargo.args(["--profile", if profile == "debug" { "dev" } else { profile }, "--manifest-path"]);
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
    cargo.arg(manifest).arg("--target-dir").arg(&target).limit(Duration::from_secs(900)).run().unwrap();
    target.join(profile).join("sluiced")
}

/// A short run without DPDK, which would take 1.5 GB of the machine's memory.
fn quick(json: &Path) -> Cmd {
    let cmd = Cmd::new(env!("CARGO_BIN_EXE_bench")).args(["--quick", "--sluiced"]).arg(sluiced());
    cmd.args(["--peers", "ovs,bridge", "--flows", "1", "--json"]).arg(json).limit(LIMIT)
}

#[test]
fn a_quick_run_is_complete_checked_and_leaves_nothing() {
    require_netns!();
    require_programs!("taskset", "ovs-vsctl", "ovs-ofctl", "ovs-appctl", "iperf3");
    let dir = TempDir::new("bench").unwrap();
    let json = dir.path().join("results.json");
    let picture = dir.path().join("results");
    let themes = SHORT.join(",");
    let only: &[&str] = if testkit::long() { &[] } else { &["--only", &themes] };
    let running = quick(&json).args(only).arg("--plots").arg(&picture).spawn().unwrap();
    let pid = running.pid();
    let output = running.wait(LIMIT).unwrap();
    // The reasons first: reports of long outputs are cut.
    assert!(output.status.success(), "{}\n{}", output.stderr, output.stdout);
    assert_eq!(left_by(pid), Vec::<String>::new());
    let drawn = std::fs::read_to_string(dir.path().join("results-rows.svg")).unwrap();
    let results: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let rows = results["rows"].as_array().unwrap();
    let ids: Vec<_> = rows.iter().map(|r| r["row"].as_str().unwrap()).collect();
    for id in ROWS.into_iter().filter(|id| runs(id)) {
        assert!(ids.contains(&id), "no row {id}: {ids:?}");
        assert!(drawn.contains(&format!(">{id}: ")), "{id} is not drawn");
        let judged = results["table"].as_array().unwrap().iter().any(|line| line["row"] == id);
        assert!(judged, "{id} is not in the table: {:#}", results["table"]);
    }
    rows.iter().for_each(check_row);
}

/// Checks that a row has its sides, each sample measured and without a fault.
fn check_row(row: &Value) {
    let id = row["row"].as_str().unwrap();
    let sides = row["sides"].as_array().unwrap();
    let names: Vec<_> = sides.iter().map(|s| s["side"].as_str().unwrap()).collect();
    assert!(names[0].starts_with("sluice"), "{row:#}");
    // The bridge needs only the kernel, like namespaces.
    let with_bridge = ["udp64-1", "delay-p50-2ports", "delay-p99-100ports", "tcp", "udp1400"];
    assert!(!with_bridge.contains(&id) || names.contains(&"linux-bridge"), "{id}: {names:?}");
    for sample in sides.iter().flat_map(|s| s["rounds"].as_array().unwrap()) {
        assert!(sample["complaint"].is_null(), "{row:#}");
        // No lookup happens if the cache has all packets.
        let may_be_none = sample["note"] == "no connection" || id.ends_with("-lookups");
        let measured = sample["value"].as_f64().is_some_and(|v| v >= 0.0);
        assert!(measured || may_be_none, "{row:#}");
        if let Some(sent) = sample["sent"].as_u64() {
            assert!(sent > 0 && (1..=sent).contains(&sample["received"].as_u64().unwrap()), "{row:#}");
        }
    }
    assert!(sides[0]["median"].is_number() || id.ends_with("-lookups"), "{row:#}");
}

#[test]
fn a_killed_run_leaves_nothing() {
    require_netns!();
    require_programs!("taskset", "ovs-vsctl", "ovs-ofctl", "ovs-appctl", "iperf3");
    let dir = TempDir::new("bench").unwrap();
    // Running daemons, and daemons stopped between measurements.
    for (theme, least) in [("udp", 4), ("pcap", 3)] {
        let running = quick(&dir.path().join("results.json")).args(["--only", theme]).spawn().unwrap();
        let pid = running.pid();
        wait_for(LIMIT, "namespaces of the run", || left_by(pid).len() >= least).unwrap();
        // Reaped here at once, so that the guard sees the end of the process.
        running.stop(Signal::KILL, LIMIT).unwrap();
        let gone = wait_for(LIMIT, "the guard's work", || left_by(pid).is_empty());
        assert!(gone.is_ok(), "{theme}: the guard leaves {:?}", left_by(pid));
    }
}
