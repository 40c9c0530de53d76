//! `sluice` and the daemon: the daily commands of the README, without OVS.

use crate::helpers::{LIMIT, SLUICED, datapath_name, on_kernel, ping_all, start};
use serde_json::Value;
use testkit::{Daemon, Topology, require_netns, require_programs, wait_for};

/// `sluice`, built beside the daemon with the whole workspace.
pub(crate) fn program() -> String {
    let beside = std::path::Path::new(SLUICED).with_file_name("sluice");
    beside.to_str().unwrap().to_string()
}

/// Output of `sluice`, at this daemon.
pub(crate) fn sluice(daemon: &Daemon, words: &[&str]) -> String {
    daemon.tool(&program()).args(words).run().unwrap().stdout
}

#[test]
fn daily_use_needs_no_ovs_tools() {
    require_netns!();
    require_programs!(program().as_str());
    let net = Topology::new(2).unwrap();
    let daemon = start(&net.switch);
    sluice(&daemon, &["vsctl", "add-br", "br0"]);
    for port in net.ports() {
        sluice(&daemon, &["vsctl", "add-port", "br0", port]);
    }
    let shown = sluice(&daemon, &["vsctl", "show"]);
    assert!(net.ports().iter().all(|p| shown.contains(&format!("Interface {p}"))), "{shown}");
    ping_all(&net.hosts[0].netns, net.hosts[1].ipv4.into(), 20);
    let fdb = sluice(&daemon, &["appctl", "fdb/show", "br0"]);
    assert!(net.hosts.iter().all(|h| fdb.contains(&h.mac)), "{fdb}");
    assert!(sluice(&daemon, &["appctl", "dpctl/dump-flows"]).contains("eth_type(0x0800)"));
    // The hosts' own packets may arrive in between.
    wait_for(LIMIT, "both to show the same", || {
        sluice(&daemon, &["dpctl", "show"]) == sluice(&daemon, &["appctl", "dpctl/show"])
    })
    .unwrap();
    sluice(&daemon, &["ofctl", "add-flow", "br0", "priority=100,icmp,actions=drop"]);
    let rules = sluice(&daemon, &["ofctl", "dump-flows", "br0"]);
    assert!(rules.contains("priority=100,icmp actions=drop"), "{rules}");
    crate::helpers::unreachable(&net.hosts[0].netns, net.hosts[1].ipv4.into());
    let trace = sluice(&daemon, &["appctl", "ofproto/trace", "br0", "in_port=1,icmp"]);
    assert!(trace.ends_with("Datapath actions: drop\n"), "{trace}");
    // The screen and the JSON behind it: client and daemon agree on its format.
    let screen = sluice(&daemon, &["status", "--interval=0"]);
    assert!(
        screen.contains(&format!("Datapath {}: ", datapath_name())) && screen.contains("Bridge br0 "),
        "{screen}"
    );
    wait_for(LIMIT, "counters in the status", || {
        let status: Value = serde_json::from_str(&sluice(&daemon, &["status", "--json"])).unwrap();
        let path = &status["datapaths"][0];
        let port = status["bridges"][0]["ports"]
            .as_array()
            .unwrap()
            .iter()
            .find(|p| p["name"] == *net.ports()[0])
            .unwrap();
        path["hits"].as_u64() > Some(0)
            && path["upcalls"]["installed"].is_u64()
            && (on_kernel() || path["threads"][0]["received"].is_u64())
            && port["rx_packets"].as_u64() >= Some(20)
            && port["link"] == "up"
    })
    .unwrap();
}

#[test]
fn top_computes_rates_from_two_readings() {
    require_netns!();
    require_programs!(program().as_str(), "ping");
    let (net, daemon) = crate::helpers::switch(2);
    let to = net.hosts[1].ipv4.to_string();
    ping_all(&net.hosts[0].netns, net.hosts[1].ipv4.into(), 3);
    let pings = net.hosts[0].netns.spawn("ping", &["-i", "0.01", "-q", &to]).unwrap();
    let port = net.ports()[0].to_string();
    let mut shown = Value::Null;
    wait_for(LIMIT, "packets a second", || {
        shown = serde_json::from_str(&sluice(&daemon, &["top", "--json", "-d", "0.5"])).unwrap();
        let ports = shown["ports"].as_array().unwrap();
        let of_port = ports.iter().find(|p| p["name"] == *port).unwrap();
        let busy = || shown["threads"][1]["busy"].as_f64() > Some(0.0);
        of_port["rx_packets_per_s"].as_f64() > Some(1.0) && (on_kernel() || busy())
    })
    .unwrap_or_else(|e| panic!("{e}: {shown:#}"));
    assert!(shown["interval_s"].as_f64() >= Some(0.5), "{shown:#}");
    if !on_kernel() {
        assert_eq!(shown["threads"][0]["id"], "main");
    }
    // Standard output is not a terminal: one screen.
    let plain = sluice(&daemon, &["top", "-d", "0.2", "--sort", "rx pkt/s"]);
    let flows = format!("Flows of {}: ", datapath_name());
    for part in ["Sluice ", &flows, "Upcalls: ", "  Port ", &port] {
        assert!(plain.contains(part), "{part:?} in\n{plain}");
    }
    drop(pings);
    let refused = daemon.tool(&program()).args(["top", "-d", "0"]).output().unwrap();
    assert!(!refused.status.success() && refused.stderr.contains("0.1 to 3600"), "{}", refused.stderr);
}

/// Runs a program in a pseudo-terminal; after each output word it types the keys paired with it.
const IN_A_TERMINAL: &str = "\
import fcntl, os, pty, struct, sys, termios
script, command = sys.argv[1].split('|'), sys.argv[2:]
pid, terminal = pty.fork()
if pid == 0:
    os.environ['TERM'] = 'xterm'
    os.execvp(command[0], command)
fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack('HHHH', 30, 160, 0, 0))
seen = b''
for step in script:
    word, keys = step.split('=')
    while word.encode() not in seen:
        seen += os.read(terminal, 65536)
    seen = b''
    os.write(terminal, keys.encode())
try:
    while os.read(terminal, 65536):
        pass
except OSError:
    pass
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
";

#[test]
fn top_handles_keys_and_restores_the_terminal() {
    require_netns!();
    require_programs!(program().as_str(), crate::helpers::PYTHON);
    let (_net, daemon) = crate::helpers::switch(1);
    let program = program();
    // The terminal is resized during the start.
    let keys = "Flows=p|(paused)=q";
    let words = ["-c", IN_A_TERMINAL, keys, &program, "top", "-d", "0.1"];
    let out = daemon.tool(crate::helpers::PYTHON).args(words).output().unwrap();
    assert!(out.status.success(), "{}\n{}", out.stdout, out.stderr);
    // Without a daemon, no screen is drawn.
    let out = daemon.tool(&program).args(["top", "--target", "/nowhere/at.ctl"]).output().unwrap();
    assert!(!out.status.success() && out.stderr.contains("/nowhere/at.ctl"), "{}", out.stderr);
}

#[test]
fn programs_read_json_and_people_get_hints() {
    require_netns!();
    require_programs!(program().as_str());
    let net = Topology::new(1).unwrap();
    let daemon = start(&net.switch);
    sluice(&daemon, &["vsctl", "add-br", "br0"]);
    sluice(&daemon, &["ofctl", "add-flow", "br0", "table=3,priority=7,cookie=0x5,tcp,actions=output:LOCAL"]);
    let json = |words: &[&str]| -> Value { serde_json::from_str(&sluice(&daemon, words)).unwrap() };
    let rules = json(&["ofctl", "--json", "dump-flows", "br0", "table=3"]);
    assert_eq!(rules[0]["match"], "tcp");
    assert_eq!((&rules[0]["priority"], &rules[0]["cookie"]), (&Value::from(7), &Value::from("0x5")));
    assert_eq!(rules[0]["actions"], "LOCAL");
    assert_eq!(json(&["ofctl", "--json", "dump-ports", "br0"])[0]["port"], "LOCAL");
    let shown = json(&["appctl", "--format=json", "--pretty", "dpif/show"]);
    assert_eq!(shown[datapath_name()]["bridges"]["br0"]["br0"]["ofport"], "65534");
    assert_eq!(json(&["appctl", "-f", "json", "fdb/flush"])["reply-format"], "plain");
    // Fragments and the description, as the stock tool asks for them.
    sluice(&daemon, &["ofctl", "set-frags", "br0", "drop"]);
    assert_eq!(sluice(&daemon, &["ofctl", "get-frags", "br0"]), "drop\n");
    assert!(sluice(&daemon, &["ofctl", "dump-desc", "br0"]).contains("Hardware: Open vSwitch\n"));
    assert_eq!(sluice(&daemon, &["ofctl", "probe", "br0"]), "");
    for (line, hint) in [
        ("ofctl dump-flow br0", "(did you mean 'dump-flows'?)"),
        ("ofctl set-frags br0 dorp", "(did you mean 'drop'?)"),
        ("vsctl lsit Bridge", "(did you mean 'list'?)"),
        ("vsctl list Brigde", "(did you mean 'Bridge'?)"),
        ("vsctl get Bridge br0 dtaapath_type", "(did you mean 'datapath_type'?)"),
        ("appctl dpif/shwo", "(did you mean 'dpif/show'?)"),
        ("ofctl --json show br0", "'show' has no JSON form"),
    ] {
        let out = daemon.tool(&program()).args(line.split(' ')).output().unwrap();
        assert!(!out.status.success() && out.stderr.contains(hint), "{line}: {}", out.stderr);
    }
    let words = |line: &str| sluice(&daemon, &line.split(' ').collect::<Vec<_>>());
    assert_eq!(words("complete-words -- ofctl dump-flows b"), "br0\n");
    assert_eq!(words("complete-words -- dpctl dump-f"), "dump-flows\n");
}

/// From OpenFlow 1.3 on their names come with the features of all tables, more than a megabyte.
#[test]
fn tables_are_described_only_to_commands_that_need_their_names() {
    require_netns!();
    require_programs!(program().as_str());
    let net = Topology::new(1).unwrap();
    let daemon = start(&net.switch);
    sluice(&daemon, &["vsctl", "add-br", "br0"]);
    sluice(&daemon, &["ofctl", "-O", "OpenFlow13", "mod-table", "br0", "5", "name:five"]);
    sluice(&daemon, &["appctl", "vlog/set", "vconn:file:dbg"]);
    let rules = daemon.rundir().join("rules");
    std::fs::write(&rules, "table=7,actions=drop\nactions=resubmit(,5),goto_table:6\n").unwrap();
    for (line, described, shown) in [
        ("add-flow br0 table=5,tcp,actions=drop", false, ""),
        ("add-flows br0 RULES", false, ""),
        ("dump-flows br0 table=5", false, "table=5, "),
        ("dump-tables br0", false, "table 5"),
        ("dump-ports br0", false, ""),
        ("--names dump-ports br0", false, ""),
        ("add-group br0 group_id=1,type=all,bucket=resubmit(,5)", false, ""),
        ("mod-table br0 6 name:six", true, ""),
        ("--names dump-flows br0 table=5", true, "table=five, "),
        ("dump-flows br0 table=five", true, "table=5, "),
        ("add-flow br0 table=six,actions=goto_table:9", true, ""),
        ("del-flows br0 table=five", true, ""),
    ] {
        let before = daemon.log().len();
        let line = line.replace("RULES", rules.to_str().unwrap());
        let words = ["ofctl", "-O", "OpenFlow13"].into_iter().chain(line.split(' ')).collect::<Vec<_>>();
        let printed = sluice(&daemon, &words);
        assert!(printed.contains(shown), "{line}: {printed}");
        let log = &daemon.log()[before..];
        assert!(log.contains("received: OFPT_HELLO"), "{line}: {log}");
        assert_eq!(log.contains("OFPST_TABLE_FEATURES request"), described, "{line}");
    }
    let left = sluice(&daemon, &["ofctl", "dump-flows", "br0"]);
    assert!(!left.contains("table=5,") && left.contains("table=6,") && left.contains("table=7,"), "{left}");
}

/// Both commands list the same settings, and fail while there are any.
#[test]
fn settings_without_effect_are_listed_in_one_place() {
    require_netns!();
    require_programs!(program().as_str());
    let net = Topology::new(1).unwrap();
    let daemon = start(&net.switch);
    let port = net.ports()[0].to_string();
    sluice(&daemon, &["vsctl", "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev"]);
    sluice(&daemon, &["vsctl", "add-port", "br0", &port]);
    let asked = |words: &[&str]| {
        let out = daemon.tool(&program()).args(words).output().unwrap();
        let lines = out.stdout.lines().filter_map(|line| line.trim().split_once(": "));
        let settings: Vec<String> = lines.map(|(setting, _)| setting.to_string()).collect();
        (settings, out.status.code())
    };
    let status = || {
        let (mut all, code) = asked(&["status", "--interval=0"]);
        let tables = ["Open_vSwitch ", "Bridge ", "Port ", "Interface "];
        all.retain(|line| tables.iter().any(|t| line.starts_with(t)) && line.split(' ').count() == 3);
        (all, code)
    };
    assert_eq!((status(), asked(&["check"])), ((vec![], Some(0)), (vec![], Some(0))));
    sluice(&daemon, &["vsctl", "set", "Open_vSwitch", ".", "other_config:dpdk-init=true"]);
    sluice(&daemon, &["vsctl", "set", "port", &port, "lacp=active", "other_config:lacp-system-id=x"]);
    sluice(&daemon, &["vsctl", "set", "interface", &port, "bfd:enable=true", "bfd:mult=x"]);
    let expected = vec![
        format!("Interface {port} bfd:mult"),
        "Open_vSwitch . other_config:dpdk-init".to_string(),
        format!("Port {port} other_config:lacp-system-id"),
    ];
    assert_eq!(status(), (expected.clone(), Some(1)));
    assert_eq!(asked(&["check"]), (expected.clone(), Some(1)));
    // Unknown keys follow, and are no failure.
    sluice(&daemon, &["vsctl", "set", "port", &port, "other_config:net_uuid=x"]);
    let expected: Vec<_> =
        expected.into_iter().chain([format!("Port {port} other_config:net_uuid")]).collect();
    assert_eq!((status(), asked(&["check"])), ((expected.clone(), Some(1)), (expected, Some(1))));
    sluice(&daemon, &["vsctl", "remove", "Open_vSwitch", ".", "other_config", "dpdk-init"]);
    sluice(&daemon, &["vsctl", "clear", "port", &port, "lacp", "--", "clear", "interface", &port, "bfd"]);
    let unknown = vec![format!("Port {port} other_config:net_uuid")];
    assert_eq!((status(), asked(&["check"])), ((unknown.clone(), Some(0)), (unknown, Some(0))));
}
