//! DSCPs of connections to controllers and managers, on the wire.

use std::net::Ipv4Addr;
use std::time::Duration;

use testkit::{Capture, Daemon, Netns, Topology, require_netns, require_programs, wait_for};

use super::helpers::{spec, vsctl};

const LIMIT: Duration = Duration::from_secs(30);

/// The switch's namespace, and a switch with the bridge `br0`.
fn lab() -> (Topology, Daemon) {
    let net = Topology::new(1).unwrap();
    let daemon = spec(&net.switch).start().unwrap();
    vsctl(&daemon, "add-br br0 -- set bridge br0 fail_mode=secure");
    (net, daemon)
}

/// Captures packets of TCP to (`dst`) or from (`src`) a port, if they have this DSCP.
fn marked(netns: &Netns, side: &str, port: u16, dscp: u8) -> Capture {
    let tos = u16::from(dscp) << 2;
    let ipv6 = format!("ip6[0:2]&0xff0={} and ip6[6]=6", tos << 4);
    // Ports behind the header of IPv6.
    let at = if side == "dst" { 42 } else { 40 };
    let filter = format!("(tcp {side} port {port} and ip[1]={tos}) or ({ipv6} and ip6[{at}:2]={port})");
    Capture::start(netns, "lo", &filter, &[]).unwrap()
}

/// The notice in the status of the only row of a table.
fn notice(daemon: &Daemon, table: &str) -> String {
    vsctl(daemon, &format!("--columns=status --bare list {table}"))
}

#[test]
fn controllers_are_connected_to_with_the_dscp_of_their_row() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-testcontroller", "tcpdump");
    let (net, daemon) = lab();
    for host in ["127.0.0.1", "[::1]"] {
        let tool = daemon.tool("ovs-testcontroller");
        let _controller = tool.args([&format!("ptcp:6653:{host}"), "--unixctl=none"]).spawn().unwrap();
        let first = marked(&net.switch, "dst", 6653, 48);
        vsctl(&daemon, &format!("set-controller br0 tcp:{host}:6653 -- set controller br0 max_backoff=1000"));
        first.wait_for("Flags [S]", LIMIT).unwrap();
        wait_for(LIMIT, "a connection", || {
            vsctl(&daemon, "get controller br0 is_connected").trim() == "true"
        })
        .unwrap();
        // Each change of the DSCP connects again.
        for (asked, dscp) in [("10", 10), ("0", 0), ("64", 48), ("63", 63), ("ef", 48)] {
            let next = marked(&net.switch, "dst", 6653, dscp);
            vsctl(&daemon, &format!("set controller br0 other_config:dscp={asked}"));
            next.wait_for("Flags [S]", LIMIT).unwrap_or_else(|why| panic!("{host} {asked}: {why:#}"));
            let complaint = format!("other_config:dscp={asked:?} is not a number from 0 to 63");
            wait_for(LIMIT, "the status", || {
                notice(&daemon, "Controller").contains(&complaint) == (asked != dscp.to_string())
            })
            .unwrap();
        }
        vsctl(&daemon, "del-controller br0");
    }
    assert!(daemon.log().contains("br0<->tcp:127.0.0.1:6653: disconnecting"), "{}", daemon.log());
}

#[test]
fn connections_of_controllers_that_are_waited_for_have_their_dscp() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "tcpdump");
    let (net, daemon) = lab();
    for host in ["127.0.0.1", "[::1]"] {
        let first = marked(&net.switch, "src", 6653, 48);
        vsctl(
            &daemon,
            &format!("set-controller br0 ptcp:6653:{host} -- set controller br0 inactivity_probe=1000"),
        );
        let watch = daemon.tool("ovs-ofctl").args(["monitor", &format!("tcp:{host}:6653")]).spawn().unwrap();
        first.wait_for("Flags [S.]", LIMIT).unwrap();
        // The open connection stays, and its probes have the new one.
        let next = marked(&net.switch, "src", 6653, 10);
        vsctl(&daemon, "set controller br0 other_config:dscp=10");
        next.wait_for("Flags [P.]", LIMIT).unwrap();
        assert!(next.lines().iter().all(|line| !line.contains("Flags [S")), "{:?}", next.lines());
        drop(watch);
        let other = marked(&net.switch, "src", 6653, 10);
        daemon.tool("ovs-ofctl").args(["show", &format!("tcp:{host}:6653")]).run().unwrap();
        other.wait_for("Flags [S.]", LIMIT).unwrap();
        vsctl(&daemon, "del-controller br0");
    }
}

#[test]
fn managers_have_the_dscp_of_their_row() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovsdb-client", "tcpdump");
    let (net, daemon) = lab();
    // Nobody listens: the attempts are enough.
    let first = marked(&net.switch, "dst", 6641, 48);
    vsctl(&daemon, "set-manager tcp:127.0.0.1:6641 -- set manager . max_backoff=1000");
    first.wait_for("Flags [S]", LIMIT).unwrap();
    let next = marked(&net.switch, "dst", 6641, 10);
    vsctl(&daemon, "set manager . other_config:dscp=10");
    next.wait_for("Flags [S]", LIMIT).unwrap();
    vsctl(&daemon, "set manager . other_config:dscp=99");
    wait_for(LIMIT, "the notice", || notice(&daemon, "Manager").contains("from 0 to 63: 48 is used"))
        .unwrap();

    let local = Ipv4Addr::LOCALHOST;
    vsctl(&daemon, &format!("set-manager ptcp:6640:{local}"));
    for (change, dscp) in [("--columns=target list manager", 48), ("set manager . other_config:dscp=10", 10)]
    {
        vsctl(&daemon, change);
        let capture = marked(&net.switch, "src", 6640, dscp);
        wait_for(LIMIT, "a connection with it", || {
            // The switch may not have seen the change yet.
            let list = daemon.tool("ovsdb-client").args(["list-dbs", &format!("tcp:{local}:6640")]).output();
            list.is_ok_and(|out| out.status.success()) && !capture.lines().is_empty()
        })
        .unwrap();
    }
}
