//! Routes, rules and addresses of the kernel, as `ovs/route/*` shows them.

use testkit::{Daemon, Netns, require_netns, require_programs, wait_for};

use crate::helpers::{LIMIT, appctl, appctl_output, spec, start};

/// Routes added at once in the test of many.
const MANY: usize = 5000;

/// A namespace with the devices `sl-a` and `sl-b`, both up, and addresses on the first.
fn network() -> Netns {
    let netns = Netns::new("routes").unwrap();
    netns.up("lo").unwrap();
    netns.ip("link add name sl-a type veth peer name sl-b").unwrap();
    for device in ["sl-a", "sl-b"] {
        netns.ip(&format!("link set dev {device} addrgenmode none")).unwrap();
        netns.up(device).unwrap();
    }
    netns.ip("addr add 10.0.0.1/24 dev sl-a").unwrap();
    netns.ip("addr add 2001:cafe::88/64 dev sl-a nodad").unwrap();
    netns
}

fn shown(daemon: &Daemon) -> String {
    appctl(daemon, "ovs/route/show")
}

/// Waits until the list of routes has a line, or not.
fn wait_line(daemon: &Daemon, line: &str, is_there: bool) {
    let what = format!("{line}: {is_there}");
    wait_for(LIMIT, &what, || shown(daemon).lines().any(|l| l == line) == is_there).unwrap();
}

/// The next hop of a lookup, or the error, on one line.
fn lookup(daemon: &Daemon, to: &str) -> String {
    let out = appctl_output(daemon, &format!("ovs/route/lookup {to}"));
    let text = if out.status.code() == Some(0) { out.stdout } else { out.stderr };
    text.lines().take(3).collect::<Vec<_>>().join(" ")
}

/// Waits for the result of a lookup.
fn wait_lookup(daemon: &Daemon, to: &str, expected: &str) {
    wait_for(LIMIT, expected, || lookup(daemon, to).starts_with(expected)).unwrap();
}

#[test]
fn routes_of_the_kernel_are_there_from_the_start() {
    require_netns!();
    require_programs!("ovs-appctl", "ovs-vsctl");
    let netns = network();
    netns.ip("route add default via 10.0.0.254").unwrap();
    let daemon = start(&netns);
    // Without a wait, in the words of the stock switch.
    let expected = "Route Table:\n\
        Cached: 10.0.0.1/32 dev sl-a SRC 10.0.0.1 local\n\
        Cached: 127.0.0.0/8 dev lo SRC 127.0.0.1 local\n\
        Cached: 127.0.0.1/32 dev lo SRC 127.0.0.1 local\n\
        Cached: ::1/128 dev lo SRC ::1 local\n\
        Cached: 2001:cafe::88/128 dev sl-a SRC 2001:cafe::88 local\n\
        Cached: 0.0.0.0/0 dev sl-a GW 10.0.0.254 SRC 10.0.0.1\n\
        Cached: 10.0.0.0/24 dev sl-a SRC 10.0.0.1\n\
        Cached: 2001:cafe::/64 dev sl-a SRC 2001:cafe::88\n";
    assert_eq!(shown(&daemon), expected);
    assert_eq!(lookup(&daemon, "8.8.8.8"), "src 10.0.0.1 gateway 10.0.0.254 dev sl-a");
    let without = spec(&netns).args(["--disable-system-route"]).start().unwrap();
    assert_eq!(shown(&without), "Route Table:\n");
}

#[test]
fn changes_of_the_kernel_appear() {
    require_netns!();
    require_programs!("ovs-appctl", "ovs-vsctl");
    let netns = network();
    let daemon = start(&netns);
    appctl(&daemon, "ovs/route/add 10.0.0.0/25 sl-a");
    for (command, line, is_there) in [
        ("route add 10.9.0.0/16 via 10.0.0.9", "Cached: 10.9.0.0/16 dev sl-a GW 10.0.0.9 SRC 10.0.0.1", true),
        // The lower metric applies.
        (
            "route add 10.8.0.0/16 via 10.0.0.9 metric 9",
            "Cached: 10.8.0.0/16 dev sl-a GW 10.0.0.9 SRC 10.0.0.1",
            true,
        ),
        (
            "route add 10.8.0.0/16 via 10.0.0.8 metric 5",
            "Cached: 10.8.0.0/16 dev sl-a GW 10.0.0.8 SRC 10.0.0.1",
            true,
        ),
        ("route del 10.8.0.0/16 metric 5", "Cached: 10.8.0.0/16 dev sl-a GW 10.0.0.9 SRC 10.0.0.1", true),
        (
            "route replace 10.9.0.0/16 via 10.0.0.7",
            "Cached: 10.9.0.0/16 dev sl-a GW 10.0.0.7 SRC 10.0.0.1",
            true,
        ),
        ("route del 10.9.0.0/16", "Cached: 10.9.0.0/16 dev sl-a GW 10.0.0.7 SRC 10.0.0.1", false),
        ("route add blackhole 10.9.0.0/16", "Cached: 10.9.0.0/16", false),
        (
            "-6 route add 2001:db8::/32 via 2001:cafe::1",
            "Cached: 2001:db8::/32 dev sl-a GW 2001:cafe::1 SRC 2001:cafe::88",
            true,
        ),
        (
            "-6 route del 2001:db8::/32",
            "Cached: 2001:db8::/32 dev sl-a GW 2001:cafe::1 SRC 2001:cafe::88",
            false,
        ),
        ("addr add 10.0.1.1/24 dev sl-b", "Cached: 10.0.1.0/24 dev sl-b SRC 10.0.1.1", true),
        (
            "route add 10.7.0.0/16 nexthop via 10.0.0.9 nexthop via 10.0.1.9",
            "Cached: 10.7.0.0/16 dev sl-a GW 10.0.0.9 SRC 10.0.0.1",
            true,
        ),
        ("route add 10.6.0.0/16 via 10.0.1.9", "Cached: 10.6.0.0/16 dev sl-b GW 10.0.1.9 SRC 10.0.1.1", true),
        ("addr add 10.0.1.2/24 dev sl-b", "Cached: 10.0.1.2/32 dev sl-b SRC 10.0.1.1 local", true),
        (
            "route add 10.5.0.0/16 via 10.0.1.9 src 10.0.1.2",
            "Cached: 10.5.0.0/16 dev sl-b GW 10.0.1.9 SRC 10.0.1.2",
            true,
        ),
        // The kernel removes routes of this source without telling.
        ("addr del 10.0.1.2/24 dev sl-b", "Cached: 10.5.0.0/16 dev sl-b GW 10.0.1.9 SRC 10.0.1.2", false),
        // And those of a device that goes down.
        ("link set sl-b down", "Cached: 10.6.0.0/16 dev sl-b GW 10.0.1.9 SRC 10.0.1.1", false),
        ("link set sl-a name sl-c", "Cached: 10.0.0.1/32 dev sl-c SRC 10.0.0.1 local", true),
    ] {
        netns.ip(command).unwrap();
        wait_line(&daemon, line, is_there);
    }
    let user = "User: 10.0.0.0/25 dev sl-a SRC 10.0.0.1";
    assert!(shown(&daemon).lines().any(|l| l == user), "routes by command stay");
    let dumps = appctl(&daemon, "coverage/read-counter route_table_dump");
    assert!(dumps.trim().parse::<u64>().unwrap() > 1);
}

#[test]
fn rules_choose_tables() {
    require_netns!();
    require_programs!("ovs-appctl", "ovs-vsctl");
    let netns = network();
    netns.ip("route add default via 10.0.0.254").unwrap();
    netns.ip("route add 10.9.0.0/16 via 10.0.0.9 table 1000").unwrap();
    let daemon = start(&netns);
    assert_eq!(lookup(&daemon, "10.9.0.1"), "src 10.0.0.1 gateway 10.0.0.254 dev sl-a");
    let missing = appctl_output(&daemon, "ovs/route/show table=1000");
    assert!(missing.stderr.starts_with("Table 'table=1000' not found"), "{}", missing.stderr);
    netns.ip("rule add pref 100 table 1000").unwrap();
    wait_lookup(&daemon, "10.9.0.1", "src 10.0.0.1 gateway 10.0.0.9 dev sl-a");
    assert_eq!(lookup(&daemon, "8.8.8.8"), "src 10.0.0.1 gateway 10.0.0.254 dev sl-a", "the next rule");
    let line = "Cached: 10.9.0.0/16 dev sl-a GW 10.0.0.9 SRC 10.0.0.1";
    assert_eq!(appctl(&daemon, "ovs/route/show table=1000"), format!("Route Table #1000:\n{line}\n"));
    assert!(appctl(&daemon, "ovs/route/show table=all").contains(&format!("{line} table 1000\n")));
    assert!(!shown(&daemon).contains(line), "not among the standard tables");
    netns.ip("route add 10.8.0.0/16 via 10.0.0.8 table 1000").unwrap();
    wait_lookup(&daemon, "10.8.0.1", "src 10.0.0.1 gateway 10.0.0.8 dev sl-a");
    netns.ip("rule del pref 100").unwrap();
    wait_lookup(&daemon, "10.9.0.1", "src 10.0.0.1 gateway 10.0.0.254 dev sl-a");
    // A rule by source does not apply to lookups without one.
    netns.ip("rule add pref 100 from 10.0.0.0/24 table 1000").unwrap();
    netns.ip("route add 10.9.1.0/24 via 10.0.0.7").unwrap();
    wait_lookup(&daemon, "10.9.1.1", "src 10.0.0.1 gateway 10.0.0.7 dev sl-a");
    assert_eq!(lookup(&daemon, "10.9.0.1"), "src 10.0.0.1 gateway 10.0.0.254 dev sl-a");
}

#[test]
fn a_lookup_says_which_route_was_left_out_and_which_refuses() {
    require_netns!();
    require_programs!("ovs-appctl", "ovs-vsctl");
    let netns = network();
    netns.ip("route add default via 10.0.0.254").unwrap();
    netns.ip("route add throw 10.9.0.0/16 table 1000").unwrap();
    netns.ip("route add prohibit 10.8.0.0/16").unwrap();
    netns.ip("rule add pref 100 to 10.0.0.0/8 table 1000").unwrap();
    netns.ip("rule add pref 200 to 10.7.0.0/16 blackhole").unwrap();
    let daemon = start(&netns);
    let thrown = "left out: 10.9.0.0/16 of table 1000: throw, the next rule applies\n";
    let expected = format!("src 10.0.0.1\ngateway 10.0.0.254\ndev sl-a\n{thrown}");
    assert_eq!(appctl(&daemon, "ovs/route/lookup 10.9.0.1"), expected);
    for (to, reason) in [
        ("10.8.0.1", "the route 10.8.0.0/16 of table 254 is of type prohibit"),
        ("10.7.0.1", "rule 200 has the action blackhole"),
    ] {
        let out = appctl_output(&daemon, &format!("ovs/route/lookup {to}"));
        assert!(out.stderr.starts_with(&format!("Not found\n{reason}\n")), "{to}: {}", out.stderr);
    }
}

#[test]
fn many_routes_come_and_go() {
    require_netns!();
    require_programs!("ovs-appctl", "ovs-vsctl");
    let netns = network();
    let daemon = start(&netns);
    let batch = |what: &str| {
        let line = |n: usize| format!("route {what} 20.{}.{}.0/24 via 10.0.0.9\n", n / 256, n % 256);
        let text: String = (0..MANY).map(line).collect();
        let file = daemon.rundir().join("batch");
        std::fs::write(&file, text).unwrap();
        netns.ip(&format!("-batch {}", file.display())).unwrap();
    };
    let count = || shown(&daemon).lines().filter(|l| l.starts_with("Cached: 20.")).count();
    batch("add");
    wait_for(LIMIT, "all routes", || count() == MANY).unwrap();
    assert_eq!(lookup(&daemon, "20.7.7.7"), "src 10.0.0.1 gateway 10.0.0.9 dev sl-a");
    // From the start, in one dump.
    let other = spec(&netns).args(["--enable-dummy"]).start().unwrap();
    let first = appctl(&other, "ovs/route/show");
    assert_eq!(first.lines().filter(|l| l.starts_with("Cached: 20.")).count(), MANY);
    assert_eq!(appctl(&other, "coverage/read-counter route_table_dump"), "1\n");
    batch("del");
    wait_for(LIMIT, "no routes", || count() == 0).unwrap();
    netns.ip("link del sl-a").unwrap();
    wait_line(&daemon, "Cached: 10.0.0.0/24 dev sl-a SRC 10.0.0.1", false);
}
