//! The commands of `ovs-vswitchd` 3.5: each is answered.

use super::Lab;
use super::texts::session;
use crate::helpers::{appctl_output, vsctl};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use testkit::{require_netns, require_programs};

/// The answer to a command.
enum Answer {
    /// A text that contains this, exit code 0.
    Says(&'static str),
    /// An error that contains this.
    Fails(&'static str),
}
use Answer::{Fails, Says};

/// Names of a running OVS 3.5.4 with arguments, and the answer here. Commands that end or stop the daemon are last.
const COMMANDS: &[(&str, &str, Answer)] = &[
    ("autoattach/show-isid", "", Says("")),
    ("autoattach/statistics", "br0", Says("")),
    ("autoattach/status", "", Says("")),
    ("bfd/set-forwarding", "true", Says("OK")),
    ("bfd/show", "p1", Fails("no such bfd object")),
    ("bond/disable-member", "a b", Fails("no such bond")),
    ("bond/enable-member", "a b", Fails("no such bond")),
    ("bond/hash", "00:00:00:00:00:01", Says("68")),
    ("bond/list", "", Says("bond\ttype\trecircID\tmembers")),
    ("bond/migrate", "a b c", Fails("no such bond")),
    ("bond/set-active-member", "a b", Fails("no such bond")),
    ("bond/show", "nope", Fails("no such bond")),
    ("bridge/dump-flows", "br0", Says("actions=NORMAL")),
    ("bridge/reconnect", "br0", Says("")),
    ("cfm/set-fault", "normal", Says("OK")),
    ("cfm/show", "p1", Fails("no such CFM object")),
    ("coverage/read-counter", "netdev_received", Says("0")),
    ("coverage/show", "", Says("Event coverage")),
    ("dpctl/add-dp", "dummy@ovs-dummy", Fails("add_dp (ovs-dummy: the name is reserved)")),
    ("dpctl/add-flow", "in_port(7),eth(),eth_type(0x9900) 1", Says("")),
    ("dpctl/add-flows", "/nope", Fails("Opening file \"/nope\" failed (No such file or directory)")),
    ("dpctl/add-if", "nope v1", Fails("no such datapath")),
    ("dpctl/cache-get-size", "", Says("dummy@ovs-dummy:")),
    ("dpctl/cache-set-size", "dummy@ovs-dummy emc 5", Fails("Setting caches not supported")),
    ("dpctl/ct-bkts", "", Says("Total Buckets: ")),
    ("dpctl/ct-del-limits", "zone=1", Says("")),
    ("dpctl/ct-disable-tcp-seq-chk", "", Says("disabling TCP sequence checking successful")),
    ("dpctl/ct-enable-tcp-seq-chk", "", Says("enabling TCP sequence checking successful")),
    ("dpctl/ct-get-limits", "", Says("default limit=")),
    ("dpctl/ct-get-maxconns", "", Says("3000000")),
    ("dpctl/ct-get-nconns", "", Says("0")),
    ("dpctl/ct-get-sweep-interval", "", Says("20000")),
    ("dpctl/ct-get-tcp-seq-chk", "", Says("TCP sequence checking: enabled")),
    ("dpctl/ct-set-limits", "default=5", Says("")),
    ("dpctl/ct-set-maxconns", "5", Says("setting maxconns successful")),
    ("dpctl/ct-set-sweep-interval", "5", Says("setting sweep interval successful")),
    ("dpctl/ct-stats-show", "", Says("Connections Stats:")),
    ("dpctl/del-dp", "nope", Fails("no such datapath")),
    ("dpctl/del-flow", "in_port(7),eth(),eth_type(0x9800)", Fails("Perhaps you need to specify a UFID?")),
    ("dpctl/del-flows", "/nope", Fails("Opening file \"/nope\" failed")),
    ("dpctl/del-if", "dummy@ovs-dummy nope", Fails("no port named nope")),
    ("dpctl/dump-conntrack", "", Says("")),
    ("dpctl/dump-conntrack-exp", "", Says("")),
    ("dpctl/dump-dps", "", Says("dummy@ovs-dummy")),
    ("dpctl/dump-flows", "filter=in_port=99", Says("")),
    ("dpctl/flush-conntrack", "", Says("")),
    ("dpctl/get-flow", "ufid:1", Fails("getting flow (No such file or directory)")),
    ("dpctl/ipf-get-status", "", Says("Fragmentation Module Status")),
    ("dpctl/ipf-set-disabled", "v4", Says("disabling fragmentation reassembly successful")),
    ("dpctl/ipf-set-enabled", "v4", Says("enabling fragmentation reassembly successful")),
    ("dpctl/ipf-set-max-nfrags", "7", Says("setting maximum fragments successful")),
    ("dpctl/ipf-set-min-frag", "v4 500", Says("setting minimum fragment size successful")),
    ("dpctl/list-commands", "", Says("dpctl/normalize-actions")),
    ("dpctl/mod-flow", "in_port(7),eth(),eth_type(0x9800) 1", Fails("updating flow table (No such file")),
    ("dpctl/mod-flows", "/nope", Fails("Opening file \"/nope\" failed")),
    ("dpctl/normalize-actions", "in_port(1) 2,1", Says("no vlan: no mpls: 1,2")),
    ("dpctl/offload-stats-show", "", Fails("retrieving offload statistics (Invalid argument)")),
    ("dpctl/parse-actions", "set(eth(src=00:00:00:00:00:09)),2", Says("set(eth(src=00:00:00:00:00:09)),2")),
    ("dpctl/set-if", "dummy@ovs-dummy p1,port_no=9", Fails("can't change port number from 1 to 9")),
    ("dpctl/show", "", Says("lookups: hit:")),
    ("dpif-dummy/change-port-number", "ovs-dummy p1 0", Fails("bad port number")),
    ("dpif-netdev/bond-show", "", Says("")),
    ("dpif-netdev/dpif-impl-get", "", Says("dpif_scalar (pmds: none)")),
    ("dpif-netdev/dpif-impl-set", "dpif_avx512", Fails("Unknown DPIF implementation dpif_avx512.")),
    ("dpif-netdev/miniflow-parser-get", "", Says("scalar (available: True pmds: none)")),
    (
        "dpif-netdev/miniflow-parser-set",
        "study",
        Says("Miniflow extract implementation set to study, studying 128 packets."),
    ),
    ("dpif-netdev/pmd-perf-log-set", "on", Says("")),
    ("dpif-netdev/pmd-perf-show", "", Says("")),
    ("dpif-netdev/pmd-rxq-rebalance", "", Says("")),
    ("dpif-netdev/pmd-rxq-show", "", Says("")),
    ("dpif-netdev/pmd-sleep-show", "", Says("max sleep")),
    ("dpif-netdev/pmd-stats-clear", "", Says("")),
    ("dpif-netdev/pmd-stats-show", "", Says("main thread:")),
    ("dpif-netdev/subtable-lookup-info-get", "", Says("generic (Use count: ")),
    ("dpif-netdev/subtable-lookup-prio-set", "generic 999", Fails("use integer in range 0-255")),
    ("dpif-netlink/dispatch-mode", "", Says("")),
    ("dpif/dump-dps", "", Says("dummy@br0")),
    ("dpif/dump-flows", "br0", Says("")),
    ("dpif/set-dp-features", "br0 recirc", Says("recirc (Recirc) : [run time]:true, [boot time]:true")),
    ("dpif/show", "", Says("p1 1/1: (dummy)")),
    ("dpif/show-dp-features", "br0", Says("Recirc: Yes")),
    ("fdb/add", "br0 p1 0 50:54:00:00:00:05", Says("")),
    ("fdb/del", "br0 0 50:54:00:00:00:05", Says("")),
    ("fdb/flush", "", Says("")),
    ("fdb/show", "br0", Says("port  VLAN  MAC")),
    ("fdb/stats-clear", "br0", Says("")),
    ("fdb/stats-show", "br0", Says("Total number of learned MAC entries")),
    ("lacp/show", "nope", Fails("no such lacp object")),
    ("lacp/show-stats", "nope", Fails("no such lacp object")),
    ("list-commands", "", Says("ofproto/detrace")),
    ("mdb/flush", "", Says("")),
    ("mdb/show", "br0", Fails("multicast snooping is disabled")),
    ("memory/show", "", Says("ports:")),
    ("netdev-dummy/conn-state", "p1", Says("p1: unknown")),
    ("netdev-dummy/ip4addr", "br0 10.0.0.1/24", Says("OK")),
    ("netdev-dummy/ip6addr", "br0 fc00::1/64", Says("OK")),
    ("netdev-dummy/receive", "nope in_port(1)", Fails("no such dummy netdev")),
    ("netdev-dummy/set-admin-state", "p2 up", Says("OK")),
    ("odp-execute/action-impl-set", "scalar", Says("Action implementation set to scalar.")),
    ("odp-execute/action-impl-show", "", Says("scalar (available: Yes, active: Yes)")),
    ("ofproto/detrace", "zz", Fails("failed to parse ufid")),
    ("ofproto/list", "", Says("br0")),
    ("ofproto/trace", "br0 in_port=1", Says("Datapath actions: ")),
    ("ofproto/trace-packet-out", "br0 in_port=1 2", Says("Datapath actions: 2")),
    ("ovs/route/add", "1.1.1.0/24 br0", Fails("Error while inserting route.")),
    ("ovs/route/del", "1.1.1.0/24", Fails("Not found")),
    ("ovs/route/lookup", "1.1.1.1", Fails("Not found")),
    ("ovs/route/show", "", Says("Route Table:")),
    ("qos/show", "p1", Says("QoS not configured on p1")),
    ("qos/show-types", "p1", Says("No QoS types supported")),
    ("revalidator/purge", "", Says("")),
    ("revalidator/wait", "", Says("")),
    ("rstp/show", "br0", Fails("No such RSTP object")),
    ("rstp/tcn", "", Says("OK")),
    ("set-options", "--format text", Says("")),
    ("stp/show", "br0", Fails("no such stp object")),
    ("stp/tcn", "", Says("OK")),
    ("tnl/arp/aging", "", Says("900")),
    ("tnl/arp/flush", "", Says("OK")),
    ("tnl/arp/set", "br0 1.1.1.1 00:00:00:00:00:01", Says("OK")),
    ("tnl/arp/show", "", Says("MAC                 Bridge")),
    ("tnl/egress_port_range", "", Says("Tunnel UDP source port range: 32768-61000")),
    ("tnl/neigh/aging", "60", Says("OK")),
    ("tnl/neigh/flush", "", Says("OK")),
    ("tnl/neigh/set", "br0 1.1.1.1 00:00:00:00:00:01", Says("OK")),
    ("tnl/neigh/show", "", Says("MAC                 Bridge")),
    ("tnl/ports/show", "-v", Says("Listening ports:")),
    ("upcall/disable-megaflows", "", Says("megaflows disabled")),
    ("upcall/disable-ufid", "", Says("ing tersely using UFID disabled")),
    ("upcall/enable-megaflows", "", Says("megaflows enabled")),
    ("upcall/enable-ufid", "", Says("ing tersely using UFID enabled")),
    ("upcall/set-flow-limit", "2000", Says("set flow_limit to 2000")),
    ("upcall/show", "", Says("(limit 2000)")),
    ("version", "", Says("(Open vSwitch) 3.5.4")),
    ("vlog/close", "", Says("")),
    ("vlog/disable-rate-limit", "vconn", Says("")),
    ("vlog/enable-rate-limit", "vconn", Says("")),
    ("vlog/list", "", Says("vconn")),
    ("vlog/list-pattern", "", Says("SYSLOG")),
    ("vlog/reopen", "", Says("")),
    ("vlog/set", "vconn:file:info", Says("")),
    ("time/stop", "", Says("")),
    ("time/warp", "100 100", Says("warped")),
    ("exit", "", Says("")),
];

/// Commands beyond those of OVS 3.5: of 3.1, of 4.0, and our own.
const OTHERS: &[&str] = &[
    "dpif-netdev/subtable-lookup-prio-get",
    "dpif/get-flow",
    "drops/show",
    "ofproto/list-tunnels",
    "ovs/route/rule/show",
    "ovsdb-server/compact",
    "revalidator/pause",
    "revalidator/resume",
    "sluice/handover",
    "sluice/help",
    "sluice/loop-clear",
    "sluice/loop-show",
    "sluice/status",
    "sluice/version",
    "tnl/neigh/retrans_time",
];

#[test]
fn every_command_is_answered() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::empty();
    vsctl(
        &lab.daemon,
        "add-br br0 -- set Bridge br0 datapath_type=dummy -- add-port br0 p1 -- set Interface p1 type=dummy \
         ofport_request=1 -- add-port br0 p2 -- set Interface p2 type=dummy ofport_request=2",
    );
    let listed: BTreeSet<String> = {
        let text = lab.appctl("list-commands");
        text.lines().skip(1).filter_map(|l| Some(l.split_whitespace().next()?.to_string())).collect()
    };
    let mut known: BTreeSet<&str> = OTHERS.iter().copied().collect();
    let mut faults = String::new();
    for (name, args, answer) in COMMANDS {
        assert!(known.insert(name), "{name} is here twice");
        assert!(listed.contains(*name), "{name} in list-commands");
        let out = appctl_output(&lab.daemon, &format!("{name} {args}"));
        let (code, text, part) = match answer {
            Says(part) => (0, &out.stdout, *part),
            Fails(part) => (2, &out.stderr, *part),
        };
        if out.status.code() != Some(code) || !text.contains(part) {
            faults += &format!("{name} {args}: {:?}\n{}{}\n", out.status.code(), out.stdout, out.stderr);
        }
    }
    assert!(faults.is_empty(), "{faults}");
    let unknown: Vec<_> = listed.iter().filter(|name| !known.contains(name.as_str())).collect();
    assert!(unknown.is_empty(), "commands that are in no table: {unknown:?}");
}

/// Commands with JSON of their own.
const TYPED: [&str; 4] = ["dpif/show", "fdb/show", "list-commands", "ovs/route/show"];

#[test]
fn every_command_has_json() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    let lab = Lab::empty();
    vsctl(
        &lab.daemon,
        "add-br br0 -- set Bridge br0 datapath_type=dummy -- add-port br0 p1 -- set Interface p1 type=dummy \
         ofport_request=1 -- add-port br0 p2 -- set Interface p2 type=dummy ofport_request=2",
    );
    let commands = || COMMANDS.iter().filter(|(name, ..)| !["exit", "set-options"].contains(name));
    let args: Vec<Vec<&str>> = commands().map(|(_, args, _)| args.split_whitespace().collect()).collect();
    let mut requests: Vec<(&str, &[&str])> = vec![("set-options", &["--format", "json"])];
    requests.extend(commands().zip(&args).map(|((name, ..), args)| (*name, &args[..])));
    let answers = session(&lab, &requests);
    for ((name, args, expected), answer) in commands().zip(&answers[1..]) {
        match (expected, answer) {
            (Fails(part), Err(Value::String(text))) => assert!(text.contains(part), "{name} {args}: {text}"),
            (Says(_), Ok(value)) if TYPED.contains(name) => {
                assert!(
                    value["reply"].is_null() && (value.is_object() || value.is_array()),
                    "{name}: {value}"
                );
            }
            (Says(part), Ok(value)) => {
                let text = value["reply"].as_str().unwrap_or_else(|| panic!("{name} {args}: {value}"));
                assert!(text.contains(part), "{name} {args}: {text}");
                assert_eq!(value, &json!({ "reply": text, "reply-format": "plain" }), "{name} {args}");
            }
            (_, other) => panic!("{name} {args}: {other:?}"),
        }
    }
    // Other clients get the same text.
    for line in
        ["ofproto/list", "bond/list", "dpif/show-dp-features br0", "dpctl/list-commands", "sluice/help"]
    {
        let words: Vec<&str> = line.split(' ').collect();
        let answers = session(&lab, &[("set-options", &["--format", "json"]), (words[0], &words[1..])]);
        assert_eq!(answers[1].as_ref().unwrap()["reply"], lab.appctl(line), "{line}");
    }
}

#[test]
fn commands_explain_themselves() {
    require_netns!();
    require_programs!("ovs-appctl");
    let lab = Lab::empty();
    let (list, help) = (lab.appctl("list-commands"), lab.appctl("sluice/help"));
    assert_eq!(help.lines().count(), 2 * (list.lines().count() - 1));
    let one = lab.appctl("sluice/help fdb/add");
    assert!(one.starts_with("fdb/add bridge port vlan mac\n    ") && one.lines().count() == 2, "{one}");
    assert!(help.contains(&one), "{help}");
    let unknown = appctl_output(&lab.daemon, "sluice/help nope");
    assert!(unknown.stderr.starts_with("\"nope\" is not a valid command"), "{}", unknown.stderr);
}

/// The answers of OVS 3.5.4 to these commands in this order, with a forwarding thread on core 1.
const CHOICES: &[(&str, &str)] = &[
    ("miniflow-parser-set scalar", "Miniflow extract implementation set to scalar.\n"),
    ("miniflow-parser-set study 0", "Error: invalid study_pkt_cnt value: 0.\n"),
    ("miniflow-parser-set study -1", "Error: invalid study_pkt_cnt value: -1.\n"),
    (
        "miniflow-parser-set study 512",
        "Miniflow extract implementation set to study, studying 512 packets.\n",
    ),
    (
        "miniflow-parser-set -pmd 0 scalar",
        "Error: miniflow extract parser not changed, PMD thread 0 not in use, pass a valid pmd thread ID.\n",
    ),
    (
        "miniflow-parser-set -pmd 1 scalar",
        "Miniflow extract implementation set to scalar, on pmd thread 1.\n",
    ),
    (
        "miniflow-parser-set -pmd 1 study 256",
        "Miniflow extract implementation set to study, on pmd thread 1, studying 256 packets.\n",
    ),
    ("miniflow-parser-set -pmd 1 scalar 256", "Error: unknown argument 256.\n"),
    (
        "miniflow-parser-set -pmd x scalar",
        "Error: miniflow extract parser not changed, PMD thread passed is not valid: 'x'. Pass a valid pmd thread ID.\n",
    ),
    (
        "miniflow-parser-set -pmd 1",
        "Error: no miniflow extract name provided. Output of miniflow-parser-get shows implementation list.\n",
    ),
    ("miniflow-parser-set bogus", "Error: unknown miniflow extract implementation bogus.\n"),
    (
        "miniflow-parser-get",
        "Available MFEX implementations:\n  autovalidator (available: True pmds: none)\n  scalar (available: True \
         pmds: none)\n  study (available: True pmds: 1)\n",
    ),
    ("subtable-lookup-prio-set generic 300", "error converting priority, use integer in range 0-255\n"),
    (
        "subtable-lookup-prio-set generic x",
        "Lookup priority change affected 0 dpcls ports and 0 subtables.\n",
    ),
    (
        "subtable-lookup-prio-set autovalidator 3",
        "Lookup priority change affected 0 dpcls ports and 0 subtables.\n",
    ),
    ("subtable-lookup-prio-set avx512_gather 3", "error, subtable lookup function not found\n"),
    (
        "subtable-lookup-prio-get",
        "Available dpcls implementations:\n  autovalidator (Use count: 0, Priority: 3)\n  generic (Use count: 0, \
         Priority: 0)\n",
    ),
];

#[test]
fn implementations_are_chosen_as_in_ovs() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    let lab = Lab::empty();
    vsctl(
        &lab.daemon,
        "add-br br0 -- set Bridge br0 datapath_type=dummy -- add-port br0 p1 -- set Interface p1 type=dummy-pmd \
         options:n_rxq=2 options:n_txq=3 -- set Open_vSwitch . other_config:pmd-cpu-mask=2",
    );
    for (line, expected) in CHOICES {
        let out = appctl_output(&lab.daemon, &format!("dpif-netdev/{line}"));
        let said = if out.status.success() { out.stdout } else { out.stderr };
        assert!(said.starts_with(expected), "{line}: {said}");
    }
    let actions = lab.appctl("odp-execute/action-impl-set autovalidator");
    assert_eq!(actions, "Action implementation set to autovalidator.\n");
    let shown = lab.appctl("odp-execute/action-impl-show");
    assert!(shown.contains("  scalar (available: Yes, active: No)\n"), "{shown}");
    let port = "(dummy-pmd: n_rxq=2, n_txq=3, numa_id=0)\n";
    assert!(lab.appctl("dpif/show").contains(port) && lab.appctl("dpctl/show").contains(port));
}

/// OVS takes them and does not list them.
#[test]
fn older_spellings_work() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    let lab = Lab::empty();
    vsctl(&lab.daemon, "add-br br0 -- set Bridge br0 datapath_type=dummy");
    for name in ["bond/disable-slave", "bond/enable-slave", "bond/set-active-slave"] {
        let out = appctl_output(&lab.daemon, &format!("{name} a b"));
        assert!(out.stderr.contains("no such bond"), "{name}: {}", out.stderr);
    }
    for args in ["verbose", "verbose zone=3", "zone=3 verbose", "dummy@ovs-dummy verbose"] {
        let text = lab.appctl(&format!("dpctl/ct-stats-show {args}"));
        assert_eq!(text, "Connections Stats:\n    Total: 0\n", "{args}");
    }
}
