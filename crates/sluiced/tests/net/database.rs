//! The embedded database: the commands of `ovs-vsctl`, other clients, and recovery after a crash.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Daemon, DaemonSpec, Netns, RunDir, Topology, require_netns, require_programs, wait_for};

use crate::helpers::{
    LIMIT, PYTHON, SLUICED, appctl_output, ping_all, spec, start, switch, vsctl, vsctl_output, wait_log,
    wait_until,
};

/// A client of a JSON-RPC socket.
struct Rpc {
    stream: UnixStream,
    next_id: u64,
}

impl Rpc {
    fn connect(path: &Path) -> Rpc {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        Rpc { stream, next_id: 0 }
    }

    fn send(&mut self, method: &str, params: &Value) -> std::io::Result<()> {
        self.next_id += 1;
        let text = json!({"method": method, "params": params, "id": self.next_id}).to_string();
        self.stream.write_all(text.as_bytes())
    }

    fn call(&mut self, method: &str, params: &Value) -> Result<Value, serde_json::Error> {
        self.send(method, params).map_err(serde_json::Error::io)?;
        let mut values = serde_json::Deserializer::from_reader(&self.stream).into_iter();
        values.next().unwrap_or(Ok(Value::Null))
    }
}

/// Lines for `ovs-vsctl`, each with its output on one line, blanks squeezed.
const VERBS: &[(&str, &str)] = &[
    ("init", ""),
    ("add-br br0", ""),
    ("--may-exist add-br br0", ""),
    ("br-exists br0", ""),
    ("add-br br1 -- set Bridge br1 fail_mode=secure other_config:a=b", ""),
    ("list-br", "br0 br1"),
    ("add-port br0 p1 tag=7 -- set Interface p1 type=internal", ""),
    ("--may-exist add-port br0 p1", ""),
    ("list-ports br0", "p1"),
    ("list-ifaces br0", "p1"),
    ("port-to-br p1", "br0"),
    ("iface-to-br p1", "br0"),
    ("get Port p1 tag", "7"),
    ("get Bridge br1 other_config:a fail_mode", "b secure"),
    ("--if-exists get Port nope tag", ""),
    ("--columns=name list Port p1", "name : p1"),
    ("--bare --columns=name find Port tag=7", "p1"),
    ("--format=csv --columns=name,fail_mode find Bridge fail_mode=secure", "name,fail_mode br1,secure"),
    ("add Bridge br0 external_ids k=v", ""),
    ("set Bridge br0 external_ids:k2=v2", ""),
    ("get Bridge br0 external_ids", "{k=v, k2=v2}"),
    ("remove Bridge br0 external_ids k", ""),
    ("get Bridge br0 external_ids", "{k2=v2}"),
    ("clear Bridge br0 external_ids", ""),
    ("get Bridge br0 external_ids", "{}"),
    ("wait-until Bridge br1 fail_mode=secure", ""),
    ("comment nothing changes", ""),
    (
        "-- --id=@q create QoS type=linux-htb queues:0=@q0 -- --id=@q0 create Queue other_config:max-rate=10 -- set \
         Port p1 qos=@q",
        "UUID UUID",
    ),
    ("--bare --columns=type list QoS", "linux-htb"),
    ("clear Port p1 qos", ""),
    ("-- --all destroy QoS -- --all destroy Queue", ""),
    ("--bare --columns=type list QoS", ""),
    (
        "-- --id=@p get Port p1 -- --id=@m create Mirror name=m0 select-all=true output-port=@p -- set Bridge br0 mirrors=@m",
        "UUID",
    ),
    ("--bare --columns=name list Mirror", "m0"),
    ("clear Bridge br0 mirrors", ""),
    ("--bare --columns=name list Mirror", ""),
    ("set-fail-mode br0 standalone", ""),
    ("get-fail-mode br0", "standalone"),
    ("br-set-external-id br0 id 5", ""),
    ("br-get-external-id br0 id", "5"),
    (
        "add-port br1 v1 -- set Interface v1 type=internal -- add-port br1 v2 -- set Interface v2 type=internal",
        "",
    ),
    ("list-ports br1", "v1 v2"),
    ("--if-exists del-port br0 nope", ""),
    ("del-port br0 p1", ""),
    ("list-ports br0", ""),
    ("--if-exists del-br nope", ""),
    ("del-br br1", ""),
    ("list-br", "br0"),
    ("--bare --columns=name list Interface", "br0"),
];

/// Text on one line, UUIDs replaced, quotes omitted (versions of the tools differ in them).
fn plain(text: &str) -> String {
    let is_uuid = |w: &str| w.len() == 36 && w.bytes().filter(|b| *b == b'-').count() == 4;
    let words =
        text.split_whitespace().map(|w| if is_uuid(w) { "UUID".to_string() } else { w.replace('"', "") });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn every_verb_of_ovs_vsctl() {
    require_netns!();
    require_programs!("ovs-vsctl");
    let netns = Netns::new("verbs").unwrap();
    let daemon = start(&netns);
    for (line, wanted) in VERBS {
        assert_eq!(plain(&vsctl(&daemon, line)), *wanted, "ovs-vsctl {line}");
    }
    let show = vsctl(&daemon, "show");
    assert!(show.contains("Bridge br0") && show.contains("type: internal"), "{show}");
    assert!(show.contains("ovs_version: \"3.5"), "{show}");
    for (line, error) in [
        ("add-br br0", "cannot create a bridge named br0"),
        ("del-br nope", "no bridge named nope"),
        ("del-port nope", "no port named nope"),
        ("set Bridge br0 fail_mode=nonsense", "constraint violation"),
        ("set Bridge br0 no_such_column=1", "does not contain a column"),
        ("get Bridge br0 external_ids:nope", "no key \"nope\""),
    ] {
        let out = vsctl_output(&daemon, line);
        assert!(!out.status.success() && out.stderr.contains(error), "{line}: {}", out.stderr);
    }
    assert_eq!(vsctl_output(&daemon, "br-exists nope").status.code(), Some(2));
}

#[test]
fn ovs_vsctl_returns_when_all_is_applied() {
    require_netns!();
    require_programs!("ovs-vsctl");
    let net = Topology::new(1).unwrap();
    let daemon = start(&net.switch);
    let port = &net.hosts[0].port;
    for round in 0..5 {
        vsctl(&daemon, &format!("add-br br{round} -- add-port br{round} {port}"));
        assert!(net.switch.ip(&format!("link show dev br{round}")).is_ok(), "br{round} is not there yet");
        let number: i32 = vsctl(&daemon, &format!("get Interface {port} ofport")).parse().unwrap();
        assert!(number > 0);
        let [next, current] =
            ["next_cfg", "cur_cfg"].map(|c| vsctl(&daemon, &format!("get Open_vSwitch . {c}")));
        assert_eq!(next, current);
        vsctl(&daemon, &format!("del-br br{round}"));
        assert!(net.switch.ip(&format!("link show dev br{round}")).is_err(), "br{round} is still there");
    }
}

#[test]
fn ovsdb_client_works() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovsdb-client");
    let netns = Netns::new("client").unwrap();
    let daemon = start(&netns);
    let db = daemon.rundir().db();
    let client = |args: &[&str]| daemon.ovs("ovsdb-client", args).unwrap().stdout;
    assert_eq!(
        client(&["list-dbs", &db]).split_whitespace().collect::<Vec<_>>(),
        ["Open_vSwitch", "_Server"]
    );
    let schema: Value = serde_json::from_str(&client(&["get-schema", &db, "Open_vSwitch"])).unwrap();
    assert_eq!(schema["version"], "8.8.0");
    assert_eq!(schema["tables"].as_object().map(serde_json::Map::len), Some(19));
    assert!(client(&["list-tables", &db]).contains("Flow_Sample_Collector_Set"));
    let monitor = daemon
        .tool("ovsdb-client")
        .args(["--timeout=30", "--format=csv", "monitor", &db, "Open_vSwitch", "Bridge", "name"])
        .spawn()
        .unwrap();
    vsctl(&daemon, "add-br watched");
    wait_for(LIMIT, "the monitor to tell", || monitor.stdout().contains("watched")).unwrap();
    let select = r#"["Open_vSwitch",{"op":"select","table":"Bridge","where":[],"columns":["name"]}]"#;
    assert!(client(&["transact", &db, select]).contains(r#""name":"watched""#));
    let dump = client(&["dump", &db, "Open_vSwitch", "Bridge", "name"]);
    assert!(dump.contains("Bridge table") && dump.contains("watched"), "{dump}");
    // Conditional monitoring and a backup use other code paths of the server.
    let backup = client(&["backup", &db, "Open_vSwitch"]);
    assert!(backup.starts_with("OVSDB JSON") && backup.contains("watched"));
}

const IDL: &str = "\
import sys, ovs.db.idl, ovs.poller
remote, schema = sys.argv[1:3]
helper = ovs.db.idl.SchemaHelper(schema)
helper.register_all()
idl = ovs.db.idl.Idl(remote, helper)
def wait():
    poller = ovs.poller.Poller()
    idl.wait(poller)
    poller.block()
while not idl.has_ever_connected():
    idl.run()
    if not idl.has_ever_connected():
        wait()
print(sorted(b.name for b in idl.tables['Bridge'].rows.values()))
txn = ovs.db.idl.Transaction(idl)
for b in idl.tables['Bridge'].rows.values():
    b.setkey('external_ids', 'python', 'was here')
print(txn.commit_block())
";

#[test]
fn the_python_library_reads_and_writes() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovsdb-client");
    let netns = Netns::new("idl").unwrap();
    let found = netns.cmd(PYTHON).args(["-c", "import ovs.db.idl"]).output().unwrap();
    if !found.status.success() {
        assert!(!testkit::programs_or_skip("the Python library of OVS", &["python3-openvswitch"]));
        return;
    }
    let daemon = start(&netns);
    vsctl(&daemon, "add-br one -- add-br two");
    let db = daemon.rundir().db();
    let schema = daemon.ovs("ovsdb-client", &["get-schema", &db, "Open_vSwitch"]).unwrap().stdout;
    let file = daemon.rundir().join("schema.json");
    std::fs::write(&file, schema).unwrap();
    let out = netns.cmd(PYTHON).args(["-c", IDL, &db]).arg(&file).run().unwrap();
    assert_eq!(out.stdout, "['one', 'two']\nsuccess\n");
    assert_eq!(vsctl(&daemon, "get Bridge two external_ids:python"), "\"was here\"");
}

/// Numbers of all interfaces, by name.
fn numbers(daemon: &Daemon) -> BTreeMap<String, String> {
    let text = vsctl(daemon, "--bare --format=csv --no-headings --columns=name,ofport list Interface");
    text.lines().filter_map(|l| l.split_once(',')).map(|(n, o)| (n.to_string(), o.to_string())).collect()
}

#[test]
fn a_crash_loses_no_acknowledged_transaction() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovsdb-tool", "ping");
    let net = Topology::new(2).unwrap();
    let spec = spec(&net.switch);
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    let mut daemon = spec.start().unwrap();
    vsctl(&daemon, &format!("add-br br0 -- add-port br0 {} -- add-port br0 gone", two.port));
    vsctl(&daemon, &format!("add-port br0 {} -- del-port gone", one.port));
    let before = numbers(&daemon);
    for round in 0..4_u64 {
        let mut rpc = Rpc::connect(&daemon.rundir().join("db.sock"));
        let writer = std::thread::spawn(move || {
            let mut acknowledged = 0_u64;
            loop {
                let n = (acknowledged + 1).to_string();
                let key = format!("round{round}");
                let params = json!(["Open_vSwitch",
                    {"op": "mutate", "table": "Open_vSwitch", "where": [], "mutations": [
                        ["other_config", "delete", ["set", [key]]],
                        ["other_config", "insert", ["map", [[key, n]]]]]}]);
                match rpc.call("transact", &params) {
                    Ok(reply) if reply["result"][0]["count"] == 1 => acknowledged += 1,
                    _ => return acknowledged,
                }
            }
        });
        let key = format!("get Open_vSwitch . other_config:round{round}");
        let enough = 20 + 37 * round;
        wait_for(LIMIT, "some transactions", || {
            let out = vsctl_output(&daemon, &key).stdout;
            out.trim().trim_matches('"').parse::<u64>().is_ok_and(|n| n > enough)
        })
        .unwrap();
        daemon.crash().unwrap();
        let acknowledged = writer.join().unwrap();
        daemon = spec.start().unwrap();
        let kept: u64 = vsctl(&daemon, &key).trim_matches('"').parse().unwrap();
        // The unacknowledged transaction may be present or not.
        assert!(kept == acknowledged || kept == acknowledged + 1, "{acknowledged} acknowledged, {kept} kept");
        ping_all(&one.netns, two.ipv4.into(), 3);
        assert_eq!(numbers(&daemon), before);
    }
}

/// Starts a daemon that must exit at once; returns its output.
fn failure(spec: &DaemonSpec) -> String {
    match spec.start() {
        Err(error) => format!("{error:#}"),
        // Its pid file appears before it reads the database.
        Ok(daemon) => {
            let out = daemon.wait(LIMIT).unwrap();
            assert!(!out.status.success());
            out.stderr
        }
    }
}

/// Starts a daemon on this database file; it must refuse the file with `reason` and not change it.
fn refused(contents: &[u8], reason: &str) {
    let netns = Netns::new("refused").unwrap();
    let spec = spec(&netns);
    let file = spec.run_directory().join("conf.db");
    std::fs::write(&file, contents).unwrap();
    let error = failure(&spec);
    assert!(error.contains(reason) && error.contains("conf.db"), "{error}");
    assert_eq!(std::fs::read(&file).unwrap(), contents, "the file was changed");
}

/// The database file written by a daemon that has exited, and its directory.
fn used(netns: &Netns) -> (RunDir, Vec<u8>) {
    let daemon = start(netns);
    vsctl(&daemon, "add-br br0");
    vsctl(&daemon, "set Bridge br0 external_ids:last=one");
    let dir = daemon.rundir().clone();
    daemon.stop().unwrap();
    let contents = std::fs::read(dir.join("conf.db")).unwrap();
    (dir, contents)
}

#[test]
fn an_invalid_database_file_is_refused_and_unchanged() {
    require_netns!();
    require_programs!("ovs-vsctl");
    refused(b"a letter to somebody\n", "not");
    refused(&[0_u8; 4096], "not");
    let (_dir, contents) = used(&Netns::new("used").unwrap());
    refused(&contents[..contents.len() / 4], "damaged");
    // Damage in the middle is not a torn tail: acknowledged transactions follow it.
    let starts: Vec<usize> =
        (0..contents.len()).filter(|at| contents[*at..].starts_with(b"OVSDB JSON ")).collect();
    let mut damaged = contents;
    damaged[starts[2] + 80] ^= 1;
    refused(&damaged, "whole records follow");
}

#[test]
fn a_torn_tail_is_truncated_and_logged() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovsdb-tool");
    let netns = Netns::new("torn").unwrap();
    let (dir, contents) = used(&netns);
    let file = dir.join("conf.db");
    let tail = b"OVSDB JSON 90 0123456789012345678901234567890123456789\n{\"Bridge\":";
    for cut in [tail.len(), 20, 1] {
        std::fs::write(&file, [&contents[..], &tail[..cut]].concat()).unwrap();
        let daemon = spec(&netns).rundir(&dir).start().unwrap();
        wait_log(&daemon, "cut off");
        assert_eq!(vsctl(&daemon, "get Bridge br0 external_ids:last"), "one");
        vsctl(&daemon, &format!("set Bridge br0 external_ids:after{cut}=yes"));
        daemon.stop().unwrap();
        let name = file.to_string_lossy().into_owned();
        let log = dir.ovs("ovsdb-tool", &["-m", "show-log", &name]).unwrap().stdout;
        assert!(log.contains(&format!("after{cut}")), "{log}");
        std::fs::remove_file(dir.join("ovs-vswitchd.log")).unwrap();
    }
}

#[test]
fn a_file_of_another_schema_is_copied_before_its_conversion() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovsdb-tool");
    let netns = Netns::new("newer").unwrap();
    let (dir, _) = used(&netns);
    let file = dir.join("conf.db").to_string_lossy().into_owned();
    let run = |args: &[&str]| testkit::Cmd::new("ovsdb-tool").args(args).run().unwrap().stdout;
    assert_eq!(run(&["db-cksum", &file]).trim(), "2823623553 27869");
    let mut schema = ovsdb::schema::open_vswitch().to_json();
    schema["version"] = json!("9.0.0");
    schema["cksum"] = json!("17/../17 99");
    schema["tables"]["Bridge"]["columns"]["hue"] = json!({"type": "string"});
    schema["tables"]["Paint"] = json!({"columns": {"name": {"type": "string"}}, "isRoot": true});
    let newer = dir.join("newer.ovsschema").to_string_lossy().into_owned();
    std::fs::write(&newer, schema.to_string()).unwrap();
    run(&["convert", &file, &newer]);
    run(&[
        "transact",
        &file,
        r#"["Open_vSwitch", {"op": "update", "table": "Bridge", "where": [], "row": {"hue": "red"}}]"#,
    ]);
    let before = std::fs::read(&file).unwrap();
    let daemon = spec(&netns).rundir(&dir).start().unwrap();
    let copy = dir.join("conf.db.backup9.0.0-1717");
    assert_eq!(std::fs::read(&copy).unwrap(), before);
    let log = daemon.log();
    assert!(log.contains("has no column Bridge:hue, table Paint"), "{log}");
    assert_eq!(vsctl(&daemon, "get Bridge br0 external_ids:last"), "one");
    daemon.stop().unwrap();
    assert_eq!(run(&["db-version", &file]).trim(), "8.8.0");
    // A copy that cannot be made leaves the file as it is.
    std::fs::copy(&copy, &file).unwrap();
    std::fs::remove_file(&copy).unwrap();
    std::fs::create_dir(&copy).unwrap();
    let error = failure(&spec(&netns).rundir(&dir));
    assert!(error.contains("cannot copy the database before its conversion"), "{error}");
    assert_eq!(std::fs::read(&file).unwrap(), before);
}

#[test]
fn one_daemon_at_a_time_locks_the_file() {
    require_netns!();
    require_programs!("ovs-vsctl");
    let netns = Netns::new("lock").unwrap();
    let first = start(&netns);
    vsctl(&first, "add-br br0");
    let second = spec(&netns).env("OVS_DBDIR", first.rundir().path());
    let error = failure(&second);
    assert!(error.contains("in use") && error.contains("conf.db"), "{error}");
    vsctl(&first, "add-br br1");
}

#[test]
fn ovsdb_tool_reads_the_file_of_a_running_daemon() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovsdb-tool", "ovs-appctl");
    let netns = Netns::new("tool").unwrap();
    let daemon = start(&netns);
    vsctl(&daemon, "add-br br0");
    let file = daemon.rundir().join("conf.db").to_string_lossy().into_owned();
    let dir = daemon.rundir().clone();
    let query = r#"["Open_vSwitch",{"op":"select","table":"Bridge","where":[],"columns":["name"]}]"#;
    for step in ["running", "compacted", "ended"] {
        let log = dir.ovs("ovsdb-tool", &["-m", "show-log", &file]).unwrap().stdout;
        assert!(log.contains("\"br0\""), "{step}: {log}");
        let rows = dir.ovs("ovsdb-tool", &["query", &file, query]).unwrap().stdout;
        assert!(rows.contains(r#""name":"br0""#), "{step}: {rows}");
        assert_eq!(dir.ovs("ovsdb-tool", &["db-version", &file]).unwrap().stdout.trim(), "8.8.0");
        if step == "running" {
            daemon.ovs("ovs-appctl", &["ovsdb-server/compact"]).unwrap();
            vsctl(&daemon, "set Bridge br0 external_ids:after=compaction");
        }
        if step == "compacted" {
            daemon.stop().unwrap();
            break;
        }
    }
    let log = dir.ovs("ovsdb-tool", &["-m", "show-log", &file]).unwrap().stdout;
    assert!(log.contains("compaction"), "{log}");
}

#[test]
fn garbage_from_a_client_affects_no_other_client() {
    require_netns!();
    require_programs!("ovs-vsctl");
    let netns = Netns::new("garbage").unwrap();
    let daemon = start(&netns);
    let socket = daemon.rundir().join("db.sock");
    let mut other = Rpc::connect(&socket);
    for garbage in [
        &b"\xff\xfe\x00garbage"[..],
        b"{\"method\":",
        b"]]]]",
        b"{\"method\":1,\"params\":{},\"id\":null}",
        b"{\"id\":0,\"method\":\"transact\",\"params\":[]}",
        b"{\"id\":0,\"method\":\"monitor\",\"params\":[\"Open_vSwitch\",3]}",
        b"{\"id\":0,\"result\":{},\"error\":null}",
        &[b'['; 100_000],
    ] {
        let mut bad = UnixStream::connect(&socket).unwrap();
        // The daemon may disconnect it before all is sent.
        let _cut_off = bad.write_all(garbage);
        let reply = other.call("echo", &json!(["still", "here"])).unwrap();
        assert_eq!(reply["result"], json!(["still", "here"]));
        vsctl(&daemon, "set Open_vSwitch . other_config:a=b");
    }
    // A client that does not read its replies does not block other clients.
    let mut deaf = Rpc::connect(&socket);
    deaf.stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    for _ in 0..2000 {
        if deaf.send("get_schema", &json!(["Open_vSwitch"])).is_err() {
            break;
        }
    }
    vsctl(&daemon, "set Open_vSwitch . other_config:a=c");
    let kib = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let kib = kib.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap().to_string();
    let kib: u64 = kib.split_whitespace().next().unwrap().parse().unwrap();
    assert!(kib < 200_000, "{kib} KiB");
}

#[test]
fn managers_are_accepted() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovsdb-client");
    let (net, daemon) = switch(1);
    let port =
        net.switch.enter(|| TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()).unwrap();
    vsctl(&daemon, &format!("set-manager ptcp:{port}:127.0.0.1"));
    let target = format!("tcp:127.0.0.1:{port}");
    let list = || daemon.ovs("ovsdb-client", &["list-dbs", &target]);
    wait_for(LIMIT, "the manager's port", || list().is_ok_and(|o| o.stdout.contains("Open_vSwitch")))
        .unwrap();
    // As in OVS one client is no number.
    let row = |target: &str| {
        format!(
            "Manager {} ",
            vsctl(&daemon, &format!("--bare --columns=_uuid find Manager target=\"{target}\""))
        )
    };
    let tcp = row(&format!("ptcp:{port}:127.0.0.1"));
    wait_until(&daemon, &format!("{tcp} status:bound_port={port} is_connected=false"));
    let connect = || net.switch.enter(|| TcpStream::connect(("127.0.0.1", port)).unwrap()).unwrap();
    let _one = connect();
    wait_until(&daemon, &format!("{tcp} is_connected=true"));
    let status = vsctl(&daemon, &format!("get {tcp} status"));
    assert!(!status.contains("n_connections"), "{status}");
    let _two = connect();
    wait_until(&daemon, &format!("{tcp} status:n_connections=2"));
    let path = daemon.rundir().join("manager.sock");
    vsctl(&daemon, &format!("set-manager punix:{}", path.display()));
    let unix = row(&format!("punix:{}", path.display()));
    let _client = {
        wait_for(LIMIT, "the manager's socket", || testkit::listens(&path)).unwrap();
        UnixStream::connect(&path).unwrap()
    };
    wait_until(&daemon, &format!("{unix} is_connected=true"));
    let status = vsctl(&daemon, &format!("get {unix} status"));
    assert!(!status.contains("bound_port"), "{status}");
    vsctl(&daemon, "del-manager");
    wait_for(LIMIT, "the port to be closed", || list().is_err()).unwrap();
    wait_until(&daemon, "Bridge br0 name=br0");
}

#[test]
fn many_clients_commit_concurrently() {
    require_netns!();
    require_programs!("ovs-vsctl");
    let (net, daemon) = switch(0);
    std::thread::scope(|scope| {
        for n in 0..6 {
            let daemon = &daemon;
            scope.spawn(move || {
                for _ in 0..5 {
                    vsctl(daemon, &format!("add-port br0 c{n} -- set Interface c{n} type=internal"));
                    let number: i32 = vsctl(daemon, &format!("get Interface c{n} ofport")).parse().unwrap();
                    assert!(number > 0);
                    vsctl(daemon, &format!("del-port c{n}"));
                }
            });
        }
    });
    assert_eq!(vsctl(&daemon, "list-ports br0"), "");
    // The kernel may remove the last devices shortly after the reply.
    let links = || net.switch.ip("-o link show").unwrap();
    let gone =
        || !links().lines().any(|line| line.split_whitespace().nth(1).is_some_and(|n| n.starts_with('c')));
    let waited = wait_for(LIMIT, "no device to stay behind", gone);
    assert!(waited.is_ok(), "devices stay behind: {}", links());
    assert!(!daemon.log().contains("|WARN|"), "{}", daemon.log());
}

#[test]
fn a_full_disk_aborts_only_the_transaction() {
    require_netns!();
    require_programs!("ovs-vsctl", "nsenter", "mount", "ping");
    let net = Topology::new(2).unwrap();
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    // Only the daemon sees the mount: each program in a namespace has its own mount namespace.
    let script = format!(
        "mount -t tmpfs -o size=128k none \"$OVS_DBDIR\" && exec {SLUICED} --pidfile --log-file -vconsole:off"
    );
    let spec = DaemonSpec::new("sh").unwrap().netns(&net.switch).args(["-c", &script]);
    let disk = spec.run_directory().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let daemon = spec.env("OVS_DBDIR", &disk).start().unwrap();
    vsctl(&daemon, &format!("add-br br0 -- add-port br0 {} -- add-port br0 {}", one.port, two.port));
    let value = "x".repeat(20_000);
    let mut kept = 0;
    let refused = loop {
        let out =
            vsctl_output(&daemon, &format!("--timeout=5 set Open_vSwitch . other_config:k{kept}={value}"));
        if !out.status.success() {
            break out.stderr;
        }
        kept += 1;
        assert!(kept < 20, "the disk is never full");
    };
    assert!(refused.contains("No space left on device"), "{refused}");
    wait_log(&daemon, "No space left on device");
    let known = vsctl(&daemon, "--no-wait get Open_vSwitch . other_config");
    assert!(known.contains(&format!("k{}=", kept - 1)) && !known.contains(&format!("k{kept}=")));
    ping_all(&one.netns, two.ipv4.into(), 3);
    // Compaction needs room for a second file.
    let compact = || appctl_output(&daemon, "ovsdb-server/compact");
    let out = compact();
    assert_eq!(out.status.code(), Some(2), "{}", out.stderr);
    let failed = "conf.db.tmp: write failed (No space left on device)";
    assert!(out.stderr.starts_with("I/O error: /") && out.stderr.contains(failed), "{}", out.stderr);
    // With free space again, transactions succeed and the file is valid.
    let pid = daemon.pid().to_string();
    let disk = disk.to_string_lossy();
    let remount = ["-t", &pid, "-m", "mount", "-o", "remount,size=2m", &disk];
    testkit::Cmd::new("nsenter").args(remount).run().unwrap();
    vsctl(&daemon, &format!("set Open_vSwitch . other_config:k{kept}={value}"));
    assert!(compact().status.success());
    let file = format!("{disk}/conf.db");
    let log = testkit::Cmd::new("nsenter")
        .args(["-t", &pid, "-m", "ovsdb-tool", "db-version", &file])
        .run()
        .unwrap();
    assert_eq!(log.stdout.trim(), "8.8.0");
}
