//! The switch as a client of Debian's `ovsdb-server`.

use testkit::{
    Cmd, Daemon, DaemonSpec, Netns, RunDir, Running, Signal, Topology, require_netns, require_programs,
    wait_for,
};

use crate::helpers::{LIMIT, TOOLS, answered, appctl, ping_all, pings, spec, unreachable, vsctl, wait_log};

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// Makes an empty database in the directory.
pub(crate) fn create(dir: &RunDir) {
    let file = dir.join("conf.db").to_string_lossy().into_owned();
    dir.ovs("ovsdb-tool", &["create", &file, SCHEMA]).unwrap();
}

/// Starts the stock server on the directory's socket, and in `tcp` on port 6640 too.
fn serve_also(dir: &RunDir, tcp: Option<&Netns>) -> Running {
    let option = |name: &str, value: String| format!("--{name}={value}");
    let path = |name: &str| dir.join(name).to_string_lossy().into_owned();
    let mut cmd = Cmd::new("ovsdb-server");
    if let Some(netns) = tcp {
        cmd = cmd.netns(netns).arg("--remote=ptcp:6640:127.0.0.1");
    }
    let server = cmd
        .arg(path("conf.db"))
        .arg(option("remote", format!("p{}", dir.db())))
        .arg(option("unixctl", path("ovsdb-server.ctl")))
        .args(["-vconsole:off"])
        .spawn()
        .unwrap();
    let list = || dir.ovs("ovsdb-client", &["list-dbs", &dir.db()]).is_ok();
    wait_for(LIMIT, "ovsdb-server to listen", list).unwrap();
    server
}

/// Starts the stock server on the directory's socket.
pub(crate) fn serve(dir: &RunDir) -> Running {
    serve_also(dir, None)
}

fn follower(netns: &Netns, dir: &RunDir) -> DaemonSpec {
    spec(netns).rundir(dir).args([dir.db()])
}

fn add_ports(daemon: &Daemon, net: &Topology) {
    let ports: Vec<String> = net.ports().iter().map(|p| format!(" -- add-port br0 {p}")).collect();
    vsctl(daemon, &format!("add-br br0{}", ports.concat()));
}

#[test]
fn a_server_restart_does_not_disturb_traffic() {
    require_netns!();
    require_programs!(TOOLS[0], "ovsdb-server", "ovsdb-tool", "ovsdb-client", "ping");
    let net = Topology::new(3).unwrap();
    let [one, two, three] = &net.hosts[..] else { panic!("three hosts") };
    let dir = RunDir::new("external").unwrap();
    create(&dir);
    let server = serve(&dir);
    let daemon = follower(&net.switch, &dir).start().unwrap();
    add_ports(&daemon, &net);
    assert!(vsctl(&daemon, "get Interface br0 ofport") == "65534");
    ping_all(&one.netns, two.ipv4.into(), 3);
    ping_all(&one.netns, three.ipv6.into(), 3);
    let pings = pings(&one.netns, "0.01", two.ipv4.into());
    server.stop(Signal::TERM, LIMIT).unwrap();
    wait_log(&daemon, "waiting");
    ping_all(&two.netns, three.ipv4.into(), 3);
    let _server = serve(&dir);
    // One change while the switch is disconnected, and one after.
    vsctl(&daemon, &format!("del-port {}", three.port));
    unreachable(&one.netns, three.ipv4.into());
    vsctl(&daemon, &format!("add-port br0 {}", three.port));
    ping_all(&one.netns, three.ipv4.into(), 3);
    answered(pings, 1);
}

/// As in OVS: a step of the clock beyond the interval of probes ends no connection.
#[test]
fn a_local_server_is_not_probed() {
    require_netns!();
    require_programs!(TOOLS[0], "ovs-appctl", "ovsdb-server", "ovsdb-tool", "ovsdb-client");
    let netns = Netns::new("probe").unwrap();
    let dir = RunDir::new("probe").unwrap();
    create(&dir);
    let _server = serve(&dir);
    let daemon = follower(&netns, &dir).args(["--enable-dummy"]).start().unwrap();
    vsctl(&daemon, "add-br br0 -- set Bridge br0 datapath_type=dummy");
    appctl(&daemon, "vlog/set jsonrpc:file:dbg");
    appctl(&daemon, "time/stop");
    appctl(&daemon, "time/warp 60000 20000");
    vsctl(&daemon, "add-port br0 p1 -- set Interface p1 type=dummy");
    for part in [": received notification, method=\"update", ": send request, method=\"transact\", params=["]
    {
        wait_log(&daemon, part);
    }
    assert!(!daemon.log().contains("inactivity probe"), "{}", daemon.log());
}

#[test]
fn the_switch_waits_for_the_server() {
    require_netns!();
    require_programs!(TOOLS[0], "ovsdb-server", "ovsdb-tool", "ovsdb-client", "ping");
    let net = Topology::new(2).unwrap();
    let dir = RunDir::new("later").unwrap();
    create(&dir);
    let levels = ["-vreconnect:file:dbg", "-vovsdb_cs:file:dbg"];
    let daemon = follower(&net.switch, &dir).args(levels).start().unwrap();
    wait_log(&daemon, "waiting");
    let _server = serve(&dir);
    // As OVS logs it.
    for line in [
        "reconnect|DBG|{}: entering BACKOFF",
        "reconnect|INFO|{}: connecting...",
        "reconnect|DBG|{}: entering CONNECTING",
        "reconnect|INFO|{}: connection attempt failed (No such file or directory)",
        "reconnect|INFO|{}: waiting 1 seconds before reconnect",
        "reconnect|INFO|{}: connected",
        "reconnect|DBG|{}: entering ACTIVE",
        "ovsdb_cs|DBG|{}: DATA_SCHEMA_REQUESTED -> DATA_MONITOR_COND_SINCE_REQUESTED",
        "ovsdb_cs|DBG|{}: DATA_MONITOR_COND_SINCE_REQUESTED -> MONITORING",
    ] {
        wait_log(&daemon, &format!("|{}\n", line.replace("{}", &dir.db())));
    }
    add_ports(&daemon, &net);
    ping_all(&net.hosts[0].netns, net.hosts[1].ipv4.into(), 3);
}

#[test]
fn a_second_switch_is_idle_until_the_first_ends() {
    require_netns!();
    require_programs!(TOOLS[0], "ovsdb-server", "ovsdb-tool", "ovsdb-client", "ping");
    let net = Topology::new(2).unwrap();
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    let dir = RunDir::new("two").unwrap();
    create(&dir);
    let _server = serve(&dir);
    let first = follower(&net.switch, &dir).start().unwrap();
    add_ports(&first, &net);
    ping_all(&one.netns, two.ipv4.into(), 3);
    let spare_dir = RunDir::new("spare").unwrap();
    let spare = spec(&net.switch).rundir(&spare_dir).args([dir.db()]).start().unwrap();
    wait_log(&spare, "stays idle");
    vsctl(&first, "add-port br0 more -- set Interface more type=internal");
    ping_all(&one.netns, two.ipv4.into(), 3);
    assert!(!spare.log().contains("added interface"), "{}", spare.log());
    first.stop().unwrap();
    wait_log(&spare, "added interface more");
    ping_all(&one.netns, two.ipv4.into(), 3);
    let out =
        dir.ovs("ovs-vsctl", &["add-port", "br0", "last", "--", "set", "Interface", "last", "type=internal"]);
    out.unwrap();
    wait_log(&spare, "added interface last");
}

#[test]
fn the_database_connection_works_over_tcp() {
    require_netns!();
    require_programs!(TOOLS[0], "ovsdb-server", "ovsdb-tool", "ovsdb-client", "ping");
    let net = Topology::new(2).unwrap();
    let dir = RunDir::new("tcp").unwrap();
    create(&dir);
    let server = serve_also(&dir, Some(&net.switch));
    let daemon = spec(&net.switch).rundir(&dir).args(["tcp:127.0.0.1:6640"]).start().unwrap();
    add_ports(&daemon, &net);
    ping_all(&net.hosts[0].netns, net.hosts[1].ipv4.into(), 3);
    server.stop(Signal::TERM, LIMIT).unwrap();
    wait_log(&daemon, "waiting");
    let _server = serve_also(&dir, Some(&net.switch));
    vsctl(&daemon, "add-port br0 later -- set Interface later type=internal");
    assert!(net.switch.ip("link show dev later").is_ok());
}

#[test]
fn losing_the_lock_stops_forwarding_but_a_server_restart_does_not() {
    require_netns!();
    require_programs!(TOOLS[0], "ovsdb-server", "ovsdb-tool", "ovsdb-client", "ping");
    let net = Topology::new(2).unwrap();
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    let dir = RunDir::new("stolen").unwrap();
    create(&dir);
    let server = serve(&dir);
    let daemon = follower(&net.switch, &dir).start().unwrap();
    add_ports(&daemon, &net);
    ping_all(&one.netns, two.ipv4.into(), 3);
    let management = daemon.rundir().join("br0.mgmt");
    // Another client steals the lock, as an operator does to move the switch: bridges and ports are removed.
    let thief = Cmd::new("ovsdb-client").args(["steal", &dir.db(), "ovs_vswitchd"]).spawn().unwrap();
    wait_log(&daemon, "stays idle");
    wait_for(LIMIT, "the bridge to go", || !management.exists()).unwrap();
    unreachable(&one.netns, two.ipv4.into());
    let links = net.switch.ip("link show").unwrap();
    assert!(!links.contains("br0"), "{links}");
    // It unlocks: bridges and ports are recreated, with default flows.
    thief.stop(Signal::TERM, LIMIT).unwrap();
    wait_for(LIMIT, "the bridge to come back", || management.exists()).unwrap();
    ping_all(&one.netns, two.ipv4.into(), 3);
    // A restarted server grants the lock to the first client; until it replies, nothing changes.
    let pings = pings(&one.netns, "0.01", two.ipv4.into());
    server.stop(Signal::TERM, LIMIT).unwrap();
    let _server = serve(&dir);
    vsctl(&daemon, "add-port br0 more -- set Interface more type=internal");
    answered(pings, 1);
}
