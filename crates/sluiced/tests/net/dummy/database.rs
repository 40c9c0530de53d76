//! The embedded database server beside `ovsdb-server` 3.5: its commands, and the clients' conversions and copies.

use super::Lab;
use crate::helpers::{LIMIT, appctl_output, vsctl};
use std::collections::BTreeSet;
use testkit::{Output, require_netns, require_programs, wait_for};

/// The commands of `ovsdb-server` 3.5.4 with arguments, and a part of the answer here.
const COMMANDS: &[(&str, &str, Result<&str, &str>)] = &[
    ("coverage/read-counter", "nope", Err("No such counter")),
    ("coverage/show", "", Ok("events never hit")),
    ("exit", "", Err("ovs-appctl exit")),
    ("list-commands", "", Ok("ovsdb-server/tlog-set")),
    ("memory/show", "", Ok("atoms:")),
    ("ovsdb-server/add-db", "a.db", Err("Open_vSwitch alone")),
    ("ovsdb-server/add-remote", "foo:bar", Err("unknown connection method")),
    ("ovsdb-server/compact", "", Ok("")),
    ("ovsdb-server/connect-active-ovsdb-server", "", Err("no active server is set")),
    ("ovsdb-server/disable-monitor-cond", "", Ok("")),
    ("ovsdb-server/disconnect-active-ovsdb-server", "", Ok("")),
    ("ovsdb-server/get-active-ovsdb-server", "", Ok("")),
    ("ovsdb-server/get-db-storage-status", "Open_vSwitch", Ok("status: ok")),
    ("ovsdb-server/get-sync-exclude-tables", "", Ok("")),
    ("ovsdb-server/list-dbs", "", Ok("Open_vSwitch\n_Server\n")),
    ("ovsdb-server/list-remotes", "", Ok("db:Open_vSwitch,Open_vSwitch,manager_options")),
    ("ovsdb-server/memory-trim-on-compaction", "on", Ok("")),
    ("ovsdb-server/perf-counters-clear", "", Ok("")),
    ("ovsdb-server/perf-counters-show", "", Ok("not supported on this platform")),
    ("ovsdb-server/reconnect", "", Ok("")),
    ("ovsdb-server/reload", "", Err("no configuration file")),
    ("ovsdb-server/remove-db", "Open_vSwitch", Err("Open_vSwitch alone")),
    ("ovsdb-server/remove-remote", "punix:/nope", Err("no such remote")),
    ("ovsdb-server/set-active-ovsdb-server", "tcp:1.2.3.4:5", Err("is always active")),
    ("ovsdb-server/set-active-ovsdb-server-probe-interval", "5", Err("is always active")),
    ("ovsdb-server/set-relay-source-probe-interval", "x", Err("not an integer")),
    ("ovsdb-server/set-sync-exclude-tables", "Open_vSwitch:Bridge", Err("is always active")),
    ("ovsdb-server/sync-status", "", Ok("state: active")),
    ("ovsdb-server/tlog-list", "", Ok("                Bridge                      OFF\n")),
    ("ovsdb-server/tlog-set", "Open_vSwitch:Bridge on", Ok("")),
    ("set-options", "--format text", Ok("")),
    ("version", "", Ok("ovsdb-server (Open vSwitch) 3.5.4")),
    ("vlog/close", "", Ok("")),
    ("vlog/disable-rate-limit", "", Ok("")),
    ("vlog/enable-rate-limit", "", Ok("")),
    ("vlog/list", "", Ok("transaction")),
    ("vlog/list-pattern", "", Ok("SYSLOG")),
    ("vlog/reopen", "", Ok("")),
    ("vlog/set", "", Ok("")),
];

/// The output of a command of the database server.
fn asked(lab: &Lab, line: &str) -> Output {
    // It comes after the control socket of the switch.
    let pid_file = lab.daemon.rundir().join("ovsdb-server.pid");
    wait_for(LIMIT, "the pid file of the database server", || pid_file.exists()).unwrap();
    let words = line.split(' ').filter(|word| !word.is_empty());
    lab.daemon.tool("ovs-appctl").args(["-t", "ovsdb-server"]).args(words).output().unwrap()
}

#[test]
fn every_command_of_ovsdb_server_is_answered() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    let lab = Lab::empty();
    let list = asked(&lab, "list-commands").stdout;
    let listed: BTreeSet<&str> = list.lines().skip(1).filter_map(|l| l.split_whitespace().next()).collect();
    let known: BTreeSet<&str> = COMMANDS.iter().map(|(name, ..)| *name).collect();
    assert_eq!(listed, known);
    for (name, args, expected) in COMMANDS {
        let out = asked(&lab, &format!("{name} {args}"));
        let (code, text, part) = match expected {
            Ok(part) => (0, &out.stdout, part),
            Err(part) => (2, &out.stderr, part),
        };
        let all = format!("{}{}", out.stdout, out.stderr);
        assert!(out.status.code() == Some(code) && text.contains(part), "{name} {args}: {all}");
    }
    // The switch and its clients go on with plain monitors.
    vsctl(&lab.daemon, "add-br br9 -- set Bridge br9 datapath_type=dummy");
    assert!(lab.appctl("dpif/show").contains("br9"));
}

#[test]
fn changes_of_chosen_tables_are_logged_and_memory_is_shown() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::empty();
    for (args, why) in [
        ("Open_vSwitch:Bridge", "requires at least 2 arguments"),
        ("Open_vSwitch on", "invalid DB:TABLE argument"),
        (":Bridge on", "invalid DB:TABLE argument"),
        ("Open_vSwitch: on", "invalid DB:TABLE argument"),
        ("foo:Bridge on", "no such database"),
        ("Open_vSwitch:foo on", "no such table"),
        ("Open_vSwitch:Bridge maybe", "invalid command argument"),
    ] {
        let out = asked(&lab, &format!("ovsdb-server/tlog-set {args}"));
        assert!(out.status.code() == Some(2) && out.stderr.contains(why), "{args}: {}", out.stderr);
    }
    assert_eq!(asked(&lab, "memory/show").stdout.split(':').next(), Some("atoms"));
    let items = |text: &str| -> Vec<String> {
        text.trim().split(' ').filter_map(|word| Some(word.split_once(':')?.0.to_string())).collect()
    };
    // The names of 3.5, without its caches of JSON.
    let names = ["atoms", "cells", "monitors", "n-weak-refs", "sessions"];
    assert_eq!(items(&asked(&lab, "memory/show").stdout), names);
    asked(&lab, "ovsdb-server/tlog-set Open_vSwitch:Port ON");
    let list = asked(&lab, "ovsdb-server/tlog-list").stdout;
    let head = "database        table                       logging\n--------        -----                       -------\n\
        Open_vSwitch     \n                AutoAttach                  OFF\n";
    assert!(list.starts_with(head) && list.contains("Port                        ON\n"), "{list}");
    vsctl(&lab.daemon, "add-br br0 -- set Bridge br0 datapath_type=dummy -- add-port br0 p1 tag=5");
    vsctl(&lab.daemon, "set Interface p1 type=dummy -- set Port p1 trunks=5,6");
    vsctl(&lab.daemon, "del-port p1");
    asked(&lab, "ovsdb-server/tlog-set Open_vSwitch:Port off");
    vsctl(&lab.daemon, "add-port br0 p2 -- set Interface p2 type=dummy");
    let log = lab.daemon.log();
    let lines: Vec<&str> = log.lines().filter(|l| l.contains("|transaction|INFO|table:Port,op:")).collect();
    let of_p1 = |op: &str, part: &str| {
        let is = |l: &&str| l.contains(&format!(",op:{op},")) && l.contains(",name:p1,") && l.contains(part);
        assert!(lines.iter().any(is), "{op} {part}: {lines:#?}");
    };
    of_p1("inserted", ",tag:5,trunks:[],vlan_mode:[]");
    of_p1("updated", ",tag:5,trunks:[5, 6],vlan_mode:[]");
    of_p1("deleted", ",tag:5,trunks:[5, 6],vlan_mode:[]");
    assert!(!log.contains(",name:p2,"), "{log}");
    // The switch's own: the cells are those of one row of Open_vSwitch, one bridge, two ports and two interfaces.
    let shown = lab.appctl("memory/show");
    let all = ["handlers", "idl-cells-Open_vSwitch", "ports", "revalidators", "rules"];
    assert_eq!(items(&shown), all, "{shown}");
    // 17 columns of the root, 22 of a bridge and of a port, 35 of an interface, as OVS 3.5 counts them.
    assert!(shown.contains(&format!("idl-cells-Open_vSwitch:{} ", 17 + 22 + 2 * (22 + 35))), "{shown}");
    let watching = lab.daemon.tool("ovs-ofctl").args(["monitor", "br0", "65534"]).spawn().unwrap();
    wait_for(LIMIT, "the connection to be counted", || lab.appctl("memory/show").contains(" ofconns:1 "))
        .unwrap();
    watching.stop(testkit::Signal::TERM, LIMIT).unwrap();
}

#[test]
fn clients_convert_compare_and_copy_the_database() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ovsdb-client");
    let lab = Lab::empty();
    vsctl(&lab.daemon, "add-br br0 -- set Bridge br0 datapath_type=dummy");
    let db = lab.daemon.rundir().db();
    let client = |args: &[&str]| lab.daemon.tool("ovsdb-client").args(args).output().unwrap();
    let schema = client(&["get-schema", &db]).stdout;
    assert_eq!(client(&["get-schema-version", &db]).stdout, "8.8.0\n");
    let cksum = client(&["get-schema-cksum", &db]).stdout;
    assert!(schema.contains(cksum.trim()), "{cksum}");
    let file = |name: &str, text: &str| {
        let path = lab.daemon.rundir().join(name).to_string_lossy().into_owned();
        std::fs::write(&path, text).unwrap();
        path
    };
    let same = file("same.json", &schema);
    let newer = file("newer.json", &schema.replace("8.8.0", "8.9.0"));
    assert_eq!(client(&["needs-conversion", &db, &same]).stdout, "no\n");
    assert_eq!(client(&["needs-conversion", &db, &newer]).stdout, "yes\n");
    let converted = client(&["convert", &db, &same]);
    assert!(converted.status.success(), "{}", converted.stderr);
    let refused = client(&["convert", &db, &newer]);
    assert!(
        !refused.status.success() && refused.stderr.contains("works with its own schema 8.8.0 only"),
        "{}",
        refused.stderr
    );
    // The switch and others still follow the database.
    vsctl(&lab.daemon, "add-port br0 p1 -- set Interface p1 type=dummy");
    assert!(appctl_output(&lab.daemon, "dpif/show").stdout.contains("p1 "));
    let backup = client(&["backup", &db]);
    assert!(backup.status.success() && backup.stdout.starts_with("OVSDB JSON "), "{}", backup.stderr);
    vsctl(&lab.daemon, "del-port p1");
    // The tool reads it twice.
    let copy = file("backup", &backup.stdout);
    let restore = format!("ovsdb-client restore {db} < {copy}");
    let restored = lab.daemon.tool("sh").args(["-c", &restore]).output().unwrap();
    assert!(restored.status.success(), "{}", restored.stderr);
    assert!(vsctl(&lab.daemon, "list-ports br0").contains("p1"));
    wait_for(LIMIT, "the port to be back", || lab.appctl("dpif/show").contains("p1 ")).unwrap();
}
