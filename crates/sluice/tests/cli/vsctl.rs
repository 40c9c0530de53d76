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

/// The answers of OVS 4.0, but for filters without parentheses and for tables that `show` does not print: OVS takes
/// them without effect.
#[test]
fn show_prints_rows_with_keywords() {
    let db = DbServer::new(1);
    let line = "add-br br0 -- add-br br1 -- add-port br0 vx0 -- set interface vx0 type=vxlan \
        options:remote_ip=1.2.3.4 -- add-port br0 p1 tag=5 -- add-port br1 p2 -- \
        set-controller br1 tcp:1.1.1.1:6653 -- set-manager ptcp:6640";
    db.run(&line.split_whitespace().collect::<Vec<_>>());
    // Names of the rows: bridges, ports, interfaces, controllers and managers.
    let rows = |filter: &str| {
        let shown = db.run(&[&format!("--filter={filter}"), "show"]);
        let named = |line: &str| {
            let (kind, name) = line.trim().split_once(' ')?;
            let initial = kind.chars().next().filter(|_| !kind.ends_with(':'))?;
            Some(format!("{initial}:{}", name.trim_matches('"')))
        };
        let mut rows: Vec<String> = shown.lines().filter_map(named).collect();
        rows.sort_unstable();
        rows.join(" ")
    };
    let all =
        "B:br0 B:br1 C:tcp:1.1.1.1:6653 I:br0 I:br1 I:p1 I:p2 I:vx0 M:ptcp:6640 P:br0 P:br1 P:p1 P:p2 P:vx0";
    let br0 = "B:br0 I:br0 I:p1 I:vx0 M:ptcp:6640 P:br0 P:p1 P:vx0";
    for (filter, expected) in [
        ("", all),
        (",", all),
        ("bridge(br0)", br0),
        ("Bridge(BR0)", br0),
        ("bridge(vxlan)", br0),
        ("bridge(6653)", "B:br1 C:tcp:1.1.1.1:6653 I:br1 I:p2 M:ptcp:6640 P:br1 P:p2"),
        ("port(p1)", "B:br0 B:br1 C:tcp:1.1.1.1:6653 I:p1 M:ptcp:6640 P:p1"),
        ("port(p1),port(p2)", "B:br0 B:br1 C:tcp:1.1.1.1:6653 I:p1 I:p2 M:ptcp:6640 P:p1 P:p2"),
        ("bridge(br0),port(p1),", "B:br0 I:p1 M:ptcp:6640 P:p1"),
        ("bridge(p1),port(p2)", "M:ptcp:6640"),
        ("port(vxlan),inter(p1)", "B:br0 B:br1 C:tcp:1.1.1.1:6653 M:ptcp:6640"),
        (
            "interface(vx0||p2)",
            "B:br0 B:br1 C:tcp:1.1.1.1:6653 I:p2 I:vx0 M:ptcp:6640 P:br0 P:br1 P:p1 P:p2 P:vx0",
        ),
        ("bridge()", "M:ptcp:6640"),
        ("Controller(zzz),Manager(zzz),port(zzz)", "B:br0 B:br1"),
        ("open(zzz)", ""),
    ] {
        assert_eq!(rows(filter), expected, "{filter}");
    }
    for (filter, error) in [
        ("bridge(br0", "filter bridge(br0: missing closing ')'"),
        ("port(a,b)", "filter port(a: missing closing ')'"),
        ("port(p1)x", "filter port(p1)x: missing closing ')'"),
        ("X(y)", "unknown table \"X\""),
        ("br0", "filter br0: give TABLE(KEYWORD[|KEYWORD...])"),
        ("mirror(m)", "filter mirror(m): show has no rows of table Mirror"),
    ] {
        let out = db.ours(&[&format!("--filter={filter}"), "show"]).output().unwrap();
        assert_eq!(code(&out), 1, "{filter}");
        assert!(out.stderr.contains(error), "{filter}: {}", out.stderr);
    }
}

/// The answers are those of OVS 3.5.
#[test]
fn corners_of_commands() {
    let db = DbServer::new(1);
    let uuid = "11111111-2222-3333-4444-555555555555";
    let id = format!("--id={uuid} create qos type=x");
    let local = "cannot delete port br0 because it is the local port for bridge br0 \
        (deleting this port requires deleting the entire bridge)";
    let destroy = "either --all or records argument should be specified";
    let vlans = "--bare --columns=name find bridge flood_vlans";
    let find = |condition: &str| format!("{vlans}{condition}");
    // Each with its code and what it prints: all of the output, or a part of an error.
    for (line, code_expected, expected) in [
        ("add-br br0", 0, ""),
        ("add-br ''", 1, "bridge name must not be empty string"),
        ("--may-exist add-br ''", 1, "bridge name must not be empty string"),
        ("add-port br0 ''", 1, "port name must not be empty string"),
        ("add-bond br0 '' a b", 1, "port name must not be empty string"),
        ("add-bond br0 bo '' a", 1, "interface name must not be empty string"),
        ("set bridge br0 external_ids:k=old", 0, ""),
        ("add bridge br0 external_ids k=new j=1 z=1 z=2", 0, ""),
        ("get bridge br0 external_ids", 0, "{j=\"1\", k=old, z=\"1\"}\n"),
        (&find("<2"), 0, "br0\n"),
        (&find(">2"), 0, ""),
        ("set bridge br0 flood_vlans=1,5", 0, ""),
        (&find("<2"), 0, ""),
        (&find("<1,6"), 0, "br0\n"),
        (&find(">7"), 0, "br0\n"),
        (&find("<=1,2,3"), 0, "br0\n"),
        ("--bare --columns=name find bridge external_ids<k=zz", 0, ""),
        ("--bare --columns=name find bridge external_ids:k<zz", 0, "br0\n"),
        ("--if-exists del-port br0", 0, ""),
        ("--if-exists del-port br0 br0", 0, ""),
        ("del-port br0", 1, local),
        ("list-br", 0, "br0\n"),
        (&id, 0, &format!("{uuid}\n")),
        (&id, 1, "duplicate uuid"),
        (&format!("{id} -- {id}"), 1, "taken in this transaction"),
        ("--id=ffffffff-ffff-ffff-0000-000000000001 create qos type=x", 1, "taken in this transaction"),
        ("--id=abc create qos type=x", 1, "row id \"abc\" does not begin with \"@\""),
        ("destroy bridge", 0, destroy),
        ("--all destroy qos x", 1, "--all and records argument should not be specified together"),
    ] {
        let words: Vec<&str> = line.split(' ').map(|word| if word == "''" { "" } else { word }).collect();
        let out = db.ours(&[&["--no-wait"], &words[..]].concat()).output().unwrap();
        assert_eq!(out.status.code(), Some(code_expected), "{line}: {}", out.stderr);
        let fits = match out.stderr.is_empty() {
            true => out.stdout == expected,
            false => out.stderr.contains(expected) && !expected.is_empty(),
        };
        assert!(fits, "{line}: {}{}", out.stdout, out.stderr);
    }
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
    // As in OVS 3.6; earlier releases exit with 0.
    assert_eq!(code(&output), 65);
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
