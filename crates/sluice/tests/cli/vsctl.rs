//! `sluice vsctl` alone: waiting for the switch, conditions, concurrent writers, and errors without a server.

use std::time::Duration;

use testkit::wait_for;

use crate::server::{DbServer, code, sluice};

#[test]
fn a_day_of_work() {
    let db = DbServer::new(1);
    assert_eq!(
        db.run(&[
            "add-br",
            "br0",
            "--",
            "add-port",
            "br0",
            "p0",
            "tag=3",
            "--",
            "set",
            "interface",
            "p0",
            "type=tap"
        ]),
        ""
    );
    let root = db.run(&["get", "open", ".", "_uuid"]);
    let expected = "    Bridge br0
        Port br0
            Interface br0
                type: internal
        Port p0
            tag: 3
            Interface p0
                type: tap
";
    let shown = db.run(&["show"]);
    assert!(shown.starts_with(&root));
    let mut lines: Vec<&str> = shown[root.len()..].lines().collect();
    let mut wanted: Vec<&str> = expected.lines().collect();
    // The order of the ports is that of their UUIDs.
    lines.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(lines, wanted);
    assert_eq!(db.run(&["--format=csv", "--columns=name,tag", "find", "port", "tag=3"]), "name,tag\np0,3\n");
    let uuid =
        db.run(&["--", "--id=@m", "create", "mirror", "name=m", "--", "set", "bridge", "br0", "mirrors=@m"]);
    assert_eq!(db.run(&["get", "mirror", "m", "_uuid"]), uuid);
    assert_eq!(db.run(&["del-port", "p0", "--", "list-ports", "br0"]), "");
    assert_eq!(db.run(&["del-br", "br0", "--", "list-br"]), "");
    assert_eq!(db.run(&["list", "interface"]), "");
}

#[test]
fn a_change_is_awaited_and_its_errors_are_shown() {
    let db = DbServer::new(1);
    db.run(&["init", "--", "add-br", "br0"]);
    let waiting = db.ours(&["add-port", "br0", "p7"]).spawn().unwrap();
    wait_for(Duration::from_secs(20), "the transaction", || {
        db.run(&["get", "open", ".", "next_cfg"]) == "1\n"
    })
    .unwrap();
    db.run(&["set", "interface", "p7", "error=\"no such device\""]);
    db.run(&["set", "open", ".", "cur_cfg=1"]);
    let output = waiting.wait(Duration::from_secs(20)).unwrap();
    assert_eq!(code(&output), 0);
    let first = "sluice vsctl: Error detected while setting up 'p7': no such device.  See ovs-vswitchd log for details.\n";
    assert!(output.stderr.starts_with(first), "{}", output.stderr);
    assert_eq!(output.stderr.lines().count(), 2, "{}", output.stderr);
    let unchanged = db.ours(&["--may-exist", "add-br", "br0"]).output().unwrap();
    assert_eq!((code(&unchanged), db.run(&["get", "open", ".", "next_cfg"]).as_str()), (0, "1\n"));
}

#[test]
fn conditions_are_awaited() {
    let db = DbServer::new(1);
    db.run(&["init"]);
    let waiting =
        db.ours(&["wait-until", "bridge", "br1", "fail_mode=secure", "--", "get", "bridge", "br1", "name"]);
    let waiting = waiting.spawn().unwrap();
    db.run(&["add-br", "br1"]);
    db.run(&["set-fail-mode", "br1", "secure"]);
    assert_eq!(waiting.wait(Duration::from_secs(20)).unwrap().stdout, "br1\n");
    let output = db.ours(&["--timeout=1", "wait-until", "bridge", "never"]).output().unwrap();
    assert_eq!(code(&output), 142, "{}", output.stderr);
}

#[test]
fn writers_at_once_lose_nothing() {
    let db = DbServer::new(1);
    db.run(&["add-br", "br0"]);
    let names: Vec<String> = (0..8).map(|n| format!("p{n}")).collect();
    let spawn = |name: &String| db.ours(&["--no-wait", "add-port", "br0", name]).spawn().unwrap();
    let running: Vec<_> = names.iter().map(spawn).collect();
    for one in running {
        let output = one.wait(Duration::from_secs(20)).unwrap();
        assert_eq!(code(&output), 0, "{}", output.stderr);
    }
    assert_eq!(db.run(&["list-ports", "br0"]).lines().collect::<Vec<_>>(), names);
}

#[test]
fn without_a_server() {
    let output = sluice().args(["vsctl", "--db=unix:/nowhere/db.sock", "show"]).output().unwrap();
    assert_eq!(code(&output), 1);
    let text =
        "sluice vsctl: unix:/nowhere/db.sock: database connection failed (No such file or directory)\n";
    assert_eq!(output.stderr, text);
    let retry = sluice().args(["vsctl", "--retry", "--timeout=1", "--db=unix:/nowhere/db.sock", "show"]);
    assert_eq!(code(&retry.output().unwrap()), 142);
    let output = sluice().args(["vsctl", "--help"]).run().unwrap();
    assert!(output.stdout.contains("add-port BRIDGE PORT"), "{}", output.stdout);
}

#[test]
fn no_line_makes_it_panic() {
    let db = DbServer::new(1);
    db.run(&["add-br", "br0"]);
    let odd = [
        "",
        "=",
        ":",
        "--",
        "-",
        "é",
        "\"",
        "\\",
        "{",
        "[",
        "a=",
        "=b",
        "@",
        "@x",
        "0-",
        ".",
        "{in}",
        "name{in}é",
    ];
    for command in [
        "get",
        "set",
        "add",
        "remove",
        "find",
        "list",
        "create",
        "destroy",
        "clear",
        "add-port",
        "--id",
        "--columns",
    ] {
        for word in odd {
            let line = ["--no-wait", "--timeout=5", command, "bridge", "br0", word, word];
            let output = db.ours(&line).output().unwrap();
            assert!(code(&output) < 3 && !output.stderr.contains("panicked"), "{line:?}: {}", output.stderr);
        }
    }
}
