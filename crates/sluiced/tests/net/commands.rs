//! The control commands of `ovs-appctl`.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use testkit::{Netns, require_netns, require_programs, wait_for};

use crate::helpers::{
    LIMIT, appctl, appctl_output, datapath_name, keep_flows, on_kernel, ping_all, require_userspace, start,
    switch, vsctl, wait_log,
};

#[test]
fn version_and_list() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    let (_net, daemon) = switch(0);
    assert!(appctl(&daemon, "version").starts_with("ovs-vswitchd (Open vSwitch) 3.5."));
    let list = appctl(&daemon, "list-commands");
    let lines: Vec<&str> = list.lines().collect();
    assert_eq!(lines[0], "The available commands are:");
    let names: Vec<&str> = lines[1..].iter().map(|l| l.split_whitespace().next().unwrap()).collect();
    assert!(names.is_sorted(), "{names:?}");
    for name in ["version", "exit", "vlog/set", "dpif/show", "dpctl/dump-flows", "fdb/show", "upcall/show"] {
        assert!(names.contains(&name), "{name}");
    }
    // Commands without arguments can be called, with or without output, and none disturbs the daemon.
    for line in &lines[1..] {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.len() == 1 && words[0] != "exit" {
            appctl(&daemon, words[0]);
        }
    }
    appctl(&daemon, "revalidator/resume");
    // The socket can be given by its full path, as in scripts.
    let socket = daemon.rundir().join(&format!("ovs-vswitchd.{}.ctl", daemon.pid()));
    let out = daemon.tool("ovs-appctl").arg("-t").arg(socket).arg("version").run().unwrap();
    assert_eq!(out.stdout, appctl(&daemon, "version"));
}

#[test]
fn bad_commands_return_errors() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    let (_net, daemon) = switch(0);
    for (line, error) in [
        ("no/such-command", "\"no/such-command\" is not a valid command"),
        ("version extra", "\"version\" command takes at most 0 arguments"),
        ("fdb/add", "\"fdb/add\" command requires at least 4 arguments"),
        ("fdb/show nope", "no such bridge"),
        ("vlog/set nonsense", "no destination, level, or module \"nonsense\""),
        ("dpctl/dump-flows nope", "no such datapath"),
    ] {
        let out = appctl_output(&daemon, line);
        assert_eq!(out.status.code(), Some(2), "{line}: {}", out.stderr);
        assert!(
            out.stderr.contains(error) && out.stderr.contains("server returned an error"),
            "{}",
            out.stderr
        );
        assert_eq!(out.stdout, "");
    }
}

#[test]
fn levels_and_log_file() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    let (_net, daemon) = switch(0);
    let level = |module: &str, column: usize| {
        let list = appctl(&daemon, "vlog/list");
        let line = list.lines().find(|l| l.starts_with(&format!("{module} "))).unwrap().to_string();
        line.split_whitespace().nth(column).unwrap().to_string()
    };
    assert_eq!((level("unixctl", 1), level("unixctl", 3)), ("OFF".to_string(), "INFO".to_string()));
    appctl(&daemon, "vlog/set unixctl:file:dbg");
    assert_eq!((level("unixctl", 3), level("bridge", 3)), ("DBG".to_string(), "INFO".to_string()));
    appctl(&daemon, "version");
    wait_log(&daemon, "|unixctl|DBG|received request version");
    appctl(&daemon, "vlog/set ANY:file:warn");
    assert_eq!(level("bridge", 3), "WARN");
    let before = daemon.log();
    vsctl(&daemon, "add-br quiet");
    assert_eq!(daemon.log(), before);
    appctl(&daemon, "vlog/set info");
    let (file, moved) = (daemon.rundir().join("ovs-vswitchd.log"), daemon.rundir().join("moved"));
    std::fs::rename(&file, &moved).unwrap();
    vsctl(&daemon, "add-br elsewhere");
    assert!(!file.exists());
    assert!(std::fs::read_to_string(&moved).unwrap().contains("bridge elsewhere"));
    appctl(&daemon, "vlog/reopen");
    vsctl(&daemon, "add-br here");
    wait_log(&daemon, "bridge here");
}

#[test]
fn datapath_commands_show_traffic() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ping");
    let (net, daemon) = switch(2);
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    vsctl(&daemon, "add-port br0 to1 -- set Interface to1 type=patch options:peer=to0");
    keep_flows(&daemon);
    ping_all(&one.netns, two.ipv4.into(), 20);
    let show = appctl(&daemon, "dpif/show");
    let lines: Vec<&str> = show.lines().collect();
    assert!(lines[0].starts_with(&format!("{}: hit:", datapath_name())), "{show}");
    assert!(lines[0].contains(" missed:"), "{show}");
    assert_eq!(lines[1], "  br0:");
    let number = |port: &str| vsctl(&daemon, &format!("get Interface {port} ofport"));
    let mut dp = Vec::new();
    for (port, kind) in [
        ("br0", if on_kernel() { "internal" } else { "tap" }),
        (&*one.port, "system"),
        (&*two.port, "system"),
    ] {
        let line = lines.iter().find(|l| l.starts_with(&format!("    {port} "))).unwrap();
        let head = format!("    {port} {}/", number(port));
        let rest = line.strip_prefix(&head).unwrap_or_else(|| panic!("{line} does not begin with {head}"));
        assert!(line.contains(&format!("({kind}")), "{line}");
        dp.push(rest.split(':').next().unwrap().to_string());
    }
    assert!(show.contains("/none: (patch: peer=to0)"), "{show}");
    let show = appctl(&daemon, "dpctl/show");
    assert!(show.starts_with(&format!("{}:\n  lookups: hit:", datapath_name())), "{show}");
    assert!(show.contains(&format!("port {}: {}\n", dp[1], one.port)), "{show}");
    let flows = appctl(&daemon, "dpctl/dump-flows");
    let forward = format!("in_port({})", dp[1]);
    let line = flows
        .lines()
        .find(|l| l.contains(&forward) && l.contains("eth_type(0x0800)"))
        .unwrap_or_else(|| panic!("{flows}"));
    assert!(line.contains("recirc_id(0)"), "{line}");
    // The kernel handles only Ethernet frames.
    assert_eq!(line.contains("packet_type(ns=0,id=0)"), !on_kernel(), "{line}");
    assert!(line.contains(&format!("eth(src={},dst={})", one.mac, two.mac)), "{line}");
    assert!(line.contains("ipv4(frag=no)") && line.ends_with(&format!("actions:{}", dp[2])), "{line}");
    let packets = line.split("packets:").nth(1).and_then(|r| r.split(',').next()?.parse::<u32>().ok());
    assert!(packets.is_some_and(|n| n >= 18), "{line}");
    let named = appctl(&daemon, "dpctl/dump-flows --names");
    assert!(named.contains(&format!("in_port({})", one.port)), "{named}");
    let of_bridge = appctl(&daemon, "dpif/dump-flows br0");
    assert!(of_bridge.contains(&forward), "{of_bridge}");
    let upcalls = appctl(&daemon, "upcall/show");
    assert!(upcalls.starts_with(&format!("{}:\n  flows         : (current ", datapath_name())), "{upcalls}");
    if !on_kernel() {
        let pmd = appctl(&daemon, "dpif-netdev/pmd-stats-show");
        assert!(
            pmd.contains("packets received: ") && pmd.contains("avg. subtable lookups per megaflow hit: "),
            "{pmd}"
        );
    }
    appctl(&daemon, "dpctl/del-flows");
    assert!(!appctl(&daemon, "dpctl/dump-flows").contains("eth_type(0x0800)"));
    ping_all(&one.netns, two.ipv4.into(), 3);
}

#[test]
fn learned_addresses_are_shown_and_flushed() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ping");
    let (net, daemon) = switch(2);
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    vsctl(&daemon, &format!("set Port {} tag=5 -- set Port {} tag=5", one.port, two.port));
    ping_all(&one.netns, two.ipv4.into(), 5);
    let table = appctl(&daemon, "fdb/show br0");
    assert_eq!(table.lines().next(), Some(" port  VLAN  MAC                Age"));
    for host in [one, two] {
        let number = vsctl(&daemon, &format!("get Interface {} ofport", host.port));
        // Waits for the last address learned: the host may have sent before its port had the VLAN.
        let line = table.lines().rfind(|l| l.contains(&host.mac)).unwrap_or_else(|| panic!("{table}"));
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[..3], [&*number, "5", &*host.mac]);
        assert!(words[3].parse::<u32>().unwrap() < 30, "{line}");
    }
    assert!(appctl(&daemon, "fdb/stats-show br0").contains("Total number of learned MAC entries"));
    // Waits for silence first: the hosts must not send after the flush.
    for host in [one, two] {
        host.netns.ip(&format!("link set dev {} down", host.dev)).unwrap();
    }
    appctl(&daemon, "fdb/flush br0");
    let empty = || appctl(&daemon, "fdb/show br0").lines().count() == 1;
    wait_for(LIMIT, "an empty table", || {
        appctl(&daemon, "fdb/flush");
        empty()
    })
    .unwrap();
}

#[test]
fn garbage_on_the_control_socket_affects_no_other_client() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    let (_net, daemon) = switch(0);
    let socket = daemon.rundir().join(&format!("ovs-vswitchd.{}.ctl", daemon.pid()));
    for garbage in [
        &b"\xff\xfe\x00garbage\n"[..],
        b"}{",
        b"{\"id\":0,\"method\":\"version\",\"params\":[1,2]}",
        b"{\"id\":0,\"method\":3,\"params\":[]}",
        b"{\"id\":null,\"method\":\"version\",\"params\":{}}",
        &[b'['; 50_000],
    ] {
        let mut bad = UnixStream::connect(&socket).unwrap();
        // The daemon may disconnect before all is sent.
        let _cut_off = bad.write_all(garbage);
        assert!(appctl(&daemon, "version").contains("3.5."));
        bad.set_read_timeout(Some(LIMIT)).unwrap();
        let mut rest = Vec::new();
        // Disconnected: the stream ends, possibly by a reset.
        if let Err(e) = bad.read_to_end(&mut rest) {
            assert_eq!(e.kind(), std::io::ErrorKind::ConnectionReset, "{}", String::from_utf8_lossy(garbage));
        }
    }
    // Half a request, then the rest.
    let mut slow = UnixStream::connect(&socket).unwrap();
    slow.write_all(b"{\"id\":7,\"method\":\"ver").unwrap();
    appctl(&daemon, "version");
    slow.write_all(b"sion\",\"params\":[]}").unwrap();
    slow.set_read_timeout(Some(LIMIT)).unwrap();
    let mut replies = serde_json::Deserializer::from_reader(&slow).into_iter::<serde_json::Value>();
    let reply = replies.next().unwrap().unwrap();
    assert!(
        reply["id"] == 7 && reply["error"].is_null() && reply["result"].as_str().unwrap().contains("3.5."),
        "{reply}"
    );
}

#[test]
fn flows_are_put_shown_changed_and_deleted_by_hand() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    let (_net, daemon) = switch(2);
    // Equals the translation of the packet, so the revalidator keeps the flow.
    let flow = "recirc_id(0),in_port(2),packet_type(ns=0,id=0),eth(src=02:00:00:00:00:01,dst=01:80:c2:00:00:01),eth_type(0x1234)";
    appctl(&daemon, "revalidator/pause");
    appctl(&daemon, &format!("dpctl/add-flow {flow} 3"));
    let line = appctl(&daemon, "dpctl/dump-flows -m")
        .lines()
        .find(|l| l.contains("eth_type(0x1234)"))
        .unwrap()
        .to_string();
    let ufid = line.split(',').next().unwrap().to_string();
    let get = || appctl(&daemon, &format!("dpctl/get-flow {ufid}"));
    assert!(get().contains("packets:0, bytes:0, used:never, actions:3"), "{}", get());
    appctl(&daemon, &format!("dpctl/mod-flow {flow} drop"));
    assert!(get().contains("actions:drop"), "{}", get());
    appctl(&daemon, &format!("dpctl/del-flow {flow}"));
    let gone = appctl_output(&daemon, &format!("dpctl/get-flow {ufid}"));
    assert_eq!(gone.status.code(), Some(2));
    assert!(gone.stderr.contains("getting flow (No such file or directory)"), "{}", gone.stderr);
    let wrong = appctl_output(&daemon, "dpctl/add-flow in_port(nonsense) 3");
    assert!(wrong.stderr.contains("parsing flow key"), "{}", wrong.stderr);
    appctl(&daemon, "revalidator/resume");
}

#[test]
fn the_revalidator_corrects_a_flow_that_contradicts_the_tables() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    let (_net, daemon) = switch(2);
    let flow = "recirc_id(0),in_port(2),packet_type(ns=0,id=0),eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),eth_type(0x1234)";
    appctl(&daemon, &format!("dpctl/add-flow {flow} 2"));
    wait_for(LIMIT, "the flow to go or to be as the tables say", || {
        !appctl(&daemon, "dpctl/dump-flows").lines().any(|l| l.contains("0x1234") && l.ends_with("actions:2"))
    })
    .unwrap();
}

#[test]
fn actions_that_the_datapath_lacks_are_refused() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    require_userspace!("the kernel has these actions");
    let (_net, daemon) = switch(1);
    let key = "in_port(2),eth(src=02:00:00:00:00:77),eth_type(0x0800)";
    for (actions, name) in [
        ("dec_ttl(le_1(drop)),2", "dec_ttl"),
        ("clone(2,sample(sample=50.0%,actions(dec_ttl(le_1(drop)),2)))", "dec_ttl"),
    ] {
        let refused = appctl_output(&daemon, &format!("dpctl/add-flow {key} {actions}"));
        let why = format!("updating flow table (the userspace datapath lacks the action {name})");
        assert!(refused.stderr.lines().any(|l| l.ends_with(&why)), "{actions}: {}", refused.stderr);
    }
    assert!(!appctl(&daemon, "dpctl/dump-flows").contains("00:77"));
}

/// A thread lists the rules, in parts.
#[test]
fn a_long_list_of_rules_is_whole() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let netns = Netns::new("rules").unwrap();
    let daemon = start(&netns);
    vsctl(&daemon, "add-br br0 -- set bridge br0 fail_mode=secure");
    let rules = 8000;
    let text: String = (0..rules).map(|n| format!("table=3,priority=7,reg0={n},actions=drop\n")).collect();
    daemon.tool("ovs-ofctl").args(["add-flows", "br0", "-"]).input(text).run().unwrap();
    let list = appctl(&daemon, "bridge/dump-flows br0");
    assert!(list.len() > 2 * (256 << 10), "{}: it takes several parts", list.len());
    let ours = list.lines().filter(|line| line.starts_with("table_id=3, "));
    let mut registers: Vec<&str> = ours.map(|line| line.split("reg0=").nth(1).unwrap()).collect();
    registers.sort_unstable();
    registers.dedup();
    assert_eq!(registers.len(), rules);
    assert!(registers.iter().all(|rest| rest.ends_with(",actions=drop")));
}

#[test]
fn tables_and_capabilities_are_shown() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    let (_net, daemon) = switch(1);
    let flows = appctl(&daemon, "bridge/dump-flows br0");
    assert!(
        flows.starts_with("duration=") && flows.trim_end().ends_with("priority=0,actions=NORMAL"),
        "{flows}"
    );
    let features = appctl(&daemon, "dpif/show-dp-features br0");
    let rows = [
        "CT state: Yes",
        "CT orig tuple for IPv6: Yes",
        "Conntrack clear: Yes",
        "Check pkt length action: Yes",
        "Masked set action: Yes",
        "Truncate action: Yes",
        "Recirc: Yes",
        "Max VLAN headers: 1",
    ];
    for row in rows {
        assert!(features.lines().any(|l| l == row), "{row} in {features}");
    }
    let unknown = appctl_output(&daemon, "bridge/dump-flows nope");
    assert!(unknown.stderr.contains("Unknown bridge"), "{}", unknown.stderr);
}
