//! A daemon rests in each state in which it waits for others: hardly any processor time.

use std::os::unix::net::UnixListener;
use std::time::Duration;

use testkit::{Daemon, DaemonSpec, Netns, RunDir, Signal, pace, require_netns, require_programs};

use crate::external_db::{create, serve};
use crate::helpers::{SLUICED, spec, vsctl, wait_log};

/// Time over which processor time is counted.
const WINDOW: Duration = Duration::from_secs(2);

/// Processor time that a process has used, in ticks of 10 ms (proc(5)).
pub(crate) fn used_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split_whitespace().collect();
    [11, 12].iter().map(|i| fields[*i].parse::<u64>().unwrap()).sum()
}

/// Fails if one of the daemons uses more than a tenth of a processor. A loop without a wait uses all of one, or its share
/// of a loaded machine.
pub(crate) fn assert_at_rest(daemons: &[(&str, &Daemon)]) {
    let ticks = || daemons.iter().map(|(_, d)| used_ticks(d.pid())).collect::<Vec<_>>();
    let before = ticks();
    std::thread::sleep(WINDOW);
    for ((state, _), (before, after)) in daemons.iter().zip(before.into_iter().zip(ticks())) {
        let used = Duration::from_millis(10 * (after - before));
        assert!(used <= pace(WINDOW / 10), "{state}: {used:?} of processor time in {WINDOW:?}");
    }
}

/// Without its database server: never there, gone, silent.
#[test]
fn a_daemon_without_its_database_rests() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovsdb-server", "ovsdb-tool", "ovsdb-client");
    let netns = Netns::new("nodb").unwrap();
    let absent = spec(&netns).args(["unix:/nonexistent/db.sock"]).start().unwrap();
    wait_log(&absent, "connection attempt failed");
    let refused = spec(&netns).args(["tcp:127.0.0.1:1"]).start().unwrap();
    wait_log(&refused, "waiting");

    let dir = RunDir::new("lost").unwrap();
    create(&dir);
    let server = serve(&dir);
    let lost = spec(&netns).rundir(&dir).args([dir.db()]).start().unwrap();
    vsctl(&lost, "add-br br0 -- add-port br0 missing");
    server.stop(Signal::TERM, Duration::from_secs(20)).unwrap();
    wait_log(&lost, "connection closed by peer");

    let dir = RunDir::new("silent").unwrap();
    let _listener = UnixListener::bind(dir.join("db.sock")).unwrap();
    let silent = spec(&netns).rundir(&dir).args([dir.db()]).start().unwrap();
    wait_log(&silent, "connected");
    assert_at_rest(&[
        ("no server", &absent),
        ("no listener", &refused),
        ("server lost", &lost),
        ("server silent", &silent),
    ]);
}

/// Controllers that refuse or lack keys, and a log that takes no line.
#[test]
fn a_daemon_without_its_peers_rests() {
    require_netns!();
    require_programs!("ovs-vsctl");
    let netns = Netns::new("nopeer").unwrap();
    netns.up("lo").unwrap();
    let start = |bridge: &str, controller: &str| {
        let daemon = spec(&netns).start().unwrap();
        vsctl(&daemon, &format!("add-br {bridge} -- set-controller {bridge} {controller}"));
        vsctl(&daemon, "set-manager tcp:127.0.0.1:1 ssl:127.0.0.1:1");
        daemon
    };
    let refused = start("br0", "tcp:127.0.0.1:1");
    let keyless = start("br1", "ssl:127.0.0.1:1");
    wait_log(&keyless, "SSL/TLS is not usable: no private key is configured");
    let full = DaemonSpec::new(SLUICED).unwrap().netns(&netns);
    let full = full.args(["--log-file=/dev/full", "-vconsole:off", "--disable-system"]).start().unwrap();
    vsctl(&full, "add-br br2 -- add-port br2 missing");
    assert_at_rest(&[("controller refused", &refused), ("no key", &keyless), ("log unwritable", &full)]);
}
