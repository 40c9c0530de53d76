//! A switch that follows the server of the default socket without being told to takes its role when it is gone.

use testkit::{Daemon, DaemonSpec, Netns, RunDir, Signal, require_netns, require_programs};

use crate::external_db::{create, serve};
use crate::helpers::{LIMIT, SLUICED, TOOLS, spec, vsctl, wait_log, wait_until};

const REPLACED: &str = "the database server is gone and has no successor: serving";

/// A switch beside another one of that run directory.
fn second(netns: &Netns, dir: &RunDir) -> DaemonSpec {
    let log = format!("--log-file={}", dir.join("second.log").display());
    let spec = DaemonSpec::new(SLUICED).unwrap().netns(netns).rundir(dir);
    spec.args(["--pidfile=second.pid", &log, "-vconsole:off", "--disable-system"])
}

/// Fails unless a daemon serves its database with this bridge, and applies changes.
fn assert_serves(daemon: &Daemon, bridge: &str) {
    assert_eq!(vsctl(daemon, "list-br"), bridge);
    vsctl(daemon, &format!("add-port {bridge} new -- set Interface new type=internal"));
    wait_until(daemon, "Interface new ofport>0");
    let socket = daemon.rundir().join(&format!("ovsdb-server.{}.ctl", daemon.pid()));
    let listed =
        daemon.ovs("ovs-appctl", &["-t", &socket.to_string_lossy(), "ovsdb-server/list-dbs"]).unwrap();
    assert!(listed.stdout.contains("Open_vSwitch"), "{}", listed.stdout);
}

/// A killed server, whose database the second switch had; and one that never replied before it was killed.
#[test]
fn a_switch_takes_the_role_of_a_killed_one() {
    require_netns!();
    require_programs!(TOOLS[0], TOOLS[1]);
    for stopped in [false, true] {
        let netns = Netns::new("killed").unwrap();
        let mut first = spec(&netns).start().unwrap();
        vsctl(&first, "add-br br0");
        if stopped {
            first.signal(Signal::STOP).unwrap();
        }
        let dir = first.rundir().clone();
        let successor = second(&netns, &dir).start().unwrap();
        wait_log(&successor, if stopped { "connected" } else { "stays idle" });
        first.crash().unwrap();
        wait_log(&successor, REPLACED);
        assert_serves(&successor, "br0");
    }
}

/// The file of a follower may be another database than the lost server's: it waits, and does not make one.
#[test]
fn a_switch_does_not_replace_a_server_by_another_database() {
    require_netns!();
    require_programs!(TOOLS[0], "ovsdb-server", "ovsdb-tool", "ovsdb-client");
    let netns = Netns::new("other").unwrap();
    let (dir, own) = (RunDir::new("other").unwrap(), RunDir::new("own").unwrap());
    create(&dir);
    let server = serve(&dir);
    let daemon = spec(&netns).rundir(&dir).env("OVS_DBDIR", own.path()).start().unwrap();
    vsctl(&daemon, "add-br br0");
    server.stop(Signal::TERM, LIMIT).unwrap();
    wait_log(&daemon, "conf.db: not the database of the lost server");
    assert!(!own.join("conf.db").exists());
    let _server = serve(&dir);
    vsctl(&daemon, "add-br br1");
    assert!(!daemon.log().contains(REPLACED), "{}", daemon.log());
}
