//! Against the programs that everyone has: `ovs-vsctl`, `ovsdb-client`, `ovsdb-tool`, `ovsdb-server` and the Python
//! library. Each test is skipped, and says so, where they are not installed. Sockets are unix sockets in a directory
//! of the test's own.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ovsdb::client::{Client, ClientConfig, ClientState, ColumnValue, LockState, TxnBuilder, TxnOutcome};
use ovsdb::db::Database;
use ovsdb::log::{load, schema_record, snapshot};
use ovsdb::schema::open_vswitch;
use ovsdb::server::{Server, ServerLimits, SessionId, Time};
use ovsdb::value::SeededUuids;
use serde_json::{Value, json};

fn installed(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        println!("skipped: {program} is not installed");
    }
    found
}

struct TempDir(PathBuf);

impl TempDir {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("ovsdb-stock-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Something that listens at `db.sock` in its directory and keeps `db` there.
trait Backend {
    fn dir(&self) -> &Path;

    fn remote(&self) -> String {
        format!("unix:{}", self.dir().join("db.sock").display())
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("OVS_RUNDIR", self.dir()).env("OVS_LOGDIR", self.dir()).env("OVS_DBDIR", self.dir());
        command
    }

    fn run(&self, program: &str, arguments: &[&str]) -> (bool, String) {
        let output = self.command(program).args(arguments).output().unwrap();
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.success(), text)
    }

    fn vsctl(&self, line: &str) -> (bool, String) {
        let remote = format!("--db={}", self.remote());
        let arguments: Vec<&str> =
            ["--timeout=10", "--no-wait", &remote].into_iter().chain(line.split(' ')).collect();
        self.run("ovs-vsctl", &arguments)
    }

    fn client(&self, verb: &str, arguments: &[&str]) -> (bool, String) {
        let remote = self.remote();
        let all: Vec<&str> =
            ["--timeout=10", verb, &remote].into_iter().chain(arguments.iter().copied()).collect();
        self.run("ovsdb-client", &all)
    }
}

/// Our server in a thread: a small blocking loop, the log appended to a file.
struct Ours {
    dir: TempDir,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Ours {
    fn new() -> Self {
        let dir = TempDir::new();
        let db = Database::new(open_vswitch());
        fs::write(dir.path("db"), schema_record(&db)).unwrap();
        let listener = UnixListener::bind(dir.path("db.sock")).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let file = fs::OpenOptions::new().append(true).open(dir.path("db")).unwrap();
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || serve(db, &listener, file, &stopped));
        Ours { dir, stop, thread: Some(thread) }
    }
}

impl Backend for Ours {
    fn dir(&self) -> &Path {
        &self.dir.0
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the server panicked");
        }
    }
}

fn serve(db: Database, listener: &UnixListener, mut file: fs::File, stop: &AtomicBool) {
    let mut server = Server::new(Box::new(SeededUuids::new(11)), ServerLimits::default());
    server.add_database(db, true).unwrap();
    listener.set_nonblocking(true).unwrap();
    let mut streams: Vec<(SessionId, UnixStream)> = Vec::new();
    let begin = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let wall_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
        let now = Time { mono_ms: begin.elapsed().as_millis() as u64, wall_ms };
        if let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(true).unwrap();
            streams.push((server.session_open().unwrap(), stream));
        }
        server.tick(now);
        streams.retain_mut(|(id, stream)| exchange(&mut server, *id, stream, now));
        for record in server.take_log() {
            file.write_all(&record.bytes).unwrap();
        }
        server.log_synced(server.log_seq());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Moves bytes of one session; false when it ended.
fn exchange(server: &mut Server, id: SessionId, stream: &mut UnixStream, now: Time) -> bool {
    let mut buffer = [0; 65536];
    let open = match stream.read(&mut buffer) {
        Ok(0) => false,
        Ok(length) => {
            server.session_input(id, &buffer[..length], now);
            true
        }
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    };
    let output = server.session_output(id);
    stream.set_nonblocking(false).unwrap();
    let written = stream.write_all(&output);
    stream.set_nonblocking(true).unwrap();
    let open = open && written.is_ok() && server.session_closing(id).is_none();
    if !open {
        server.session_close(id);
    }
    open
}

/// A stock `ovsdb-server` on a file that must exist.
struct Stock {
    dir: TempDir,
    child: Child,
}

impl Stock {
    fn new(dir: TempDir) -> Self {
        let child = Command::new("ovsdb-server")
            .arg(dir.path("db"))
            .arg(format!("--remote=punix:{}", dir.path("db.sock").display()))
            .arg(format!("--unixctl={}", dir.path("ctl").display()))
            .args(["--no-chdir", "-vconsole:off", "-vsyslog:off"])
            .env("OVS_RUNDIR", &dir.0)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let stock = Stock { dir, child };
        let deadline = Instant::now() + Duration::from_secs(10);
        while UnixStream::connect(stock.dir.path("db.sock")).is_err() {
            assert!(Instant::now() < deadline, "ovsdb-server does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        stock
    }

    /// With an empty database of our schema.
    fn empty() -> Self {
        let dir = TempDir::new();
        fs::write(dir.path("db"), schema_record(&Database::new(open_vswitch()))).unwrap();
        Stock::new(dir)
    }
}

impl Backend for Stock {
    fn dir(&self) -> &Path {
        &self.dir.0
    }
}

impl Drop for Stock {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Replaces each UUID by its number in the order of appearance.
fn without_uuids(text: &str) -> String {
    let is_uuid =
        |s: &str| s.len() == 36 && s.is_char_boundary(36) && s.parse::<ovsdb::value::Uuid>().is_ok();
    let (mut out, mut seen, mut at) = (String::new(), Vec::<String>::new(), 0);
    while at < text.len() {
        match text.get(at..at + 36).filter(|s| is_uuid(s)) {
            Some(uuid) => {
                let number = seen.iter().position(|other| other == uuid).unwrap_or_else(|| {
                    seen.push(uuid.to_string());
                    seen.len() - 1
                });
                out += &format!("<{number}>");
                at += 36;
            }
            None => {
                let c = text[at..].chars().next().unwrap();
                out.push(c);
                at += c.len_utf8();
            }
        }
    }
    out
}

const VSCTL_SCRIPT: &str = "\
init
add-br br0
add-br br1 -- set Bridge br1 fail_mode=secure
add-br br0
--may-exist add-br br0
add-port br0 p1 tag=3 -- set Interface p1 type=internal options:a=b
add-port br0 p1
add-port br1 p2 -- set Port p2 trunks=1,2,3
add-bond br0 bond0 e0 e1 bond_mode=balance-slb
set Bridge br0 other_config:x=y external_ids:k=v
set Bridge br0 fail_mode=nonsense
set Bridge br0 flood_vlans=4096
get Bridge br0 other_config:x
get Bridge br0 nope
get Interface p1 options type
list-br
list-ports br0
list-ifaces br0
port-to-br p1
--columns=name,tag,trunks,vlan_mode list Port p1 p2
--columns=name,fail_mode find Bridge fail_mode=secure
--format=json --columns=name,options list Interface p1
-- --id=@p get Port p1 -- --id=@m create Mirror name=m0 select-all=true output-port=@p -- set Bridge br0 mirrors=@m
--columns=name,select_all list Mirror
del-port br0 p1
--columns=name,select_all,output_port list Mirror
-- --id=@q create QoS type=linux-htb queues:0=@q0 -- --id=@q0 create Queue other_config:max-rate=10 -- set Port p2 qos=@q
--columns=type,external_ids list QoS
clear Port p2 qos
-- --all destroy QoS -- --all destroy Queue
remove Bridge br0 other_config x
set-controller br0 tcp:127.0.0.1:6653
get-controller br0
set-manager ptcp:6640
get-manager
set-fail-mode br0 standalone
get-fail-mode br0
br-set-external-id br0 id 5
br-get-external-id br0
set Open_vSwitch . other_config:n=1 next_cfg=7
get Open_vSwitch . next_cfg other_config
wait-until Bridge br0 fail_mode=standalone
-- --id=@n create NetFlow targets=[\"1.2.3.4:5\"] -- set Bridge br1 netflow=@n
set NetFlow . targets=[\"a:1\",\"b:2\"]
--columns=targets list NetFlow
destroy Port nope
del-br br1
list-br
del-br nope";

#[test]
fn ovs_vsctl_sees_no_difference() {
    if !installed("ovs-vsctl") || !installed("ovsdb-server") {
        return;
    }
    let (ours, stock) = (Ours::new(), Stock::empty());
    for line in VSCTL_SCRIPT.lines() {
        let (a, b) = (ours.vsctl(line), stock.vsctl(line));
        let same_place = |(ok, text): (bool, String), backend: &dyn Backend| {
            (ok, without_uuids(&text.replace(&backend.dir().display().to_string(), "DIR")))
        };
        let (a, b) = (same_place(a, &ours), same_place(b, &stock));
        if !b.0 && b.1.contains("constraint violation") {
            // The details are in each server's own words.
            assert!(!a.0 && a.1.contains("constraint violation"), "{line}: {a:?} {b:?}");
            continue;
        }
        assert_eq!(a, b, "{line}");
    }
    let (ok, show) = ours.vsctl("show");
    assert!(ok && show.contains("Bridge br0") && show.contains("Port bond0"), "{show}");
}

#[test]
fn ovsdb_client_sees_no_difference() {
    if !installed("ovsdb-client") || !installed("ovsdb-server") {
        return;
    }
    let (ours, stock) = (Ours::new(), Stock::empty());
    for backend in [&ours as &dyn Backend, &stock] {
        assert!(backend.vsctl("add-br br0 -- set Bridge br0 external_ids:a=b").0);
    }
    let both = |verb: &str, arguments: &[&str]| {
        let (a, b) = (ours.client(verb, arguments), stock.client(verb, arguments));
        // The tables of a schema and the rows of a table have no order.
        let lines = |(ok, text): (bool, String)| {
            let mut lines: Vec<String> = without_uuids(&text).lines().map(str::to_string).collect();
            lines.sort();
            (ok, lines)
        };
        assert_eq!(lines(a), lines(b), "{verb} {arguments:?}");
    };
    both("list-dbs", &[]);
    both("get-schema", &["Open_vSwitch"]);
    both("get-schema-version", &["Open_vSwitch"]);
    both("list-tables", &["Open_vSwitch"]);
    both("list-columns", &["Open_vSwitch", "Bridge"]);
    both("dump", &["Open_vSwitch", "Bridge", "name", "external_ids", "fail_mode"]);
    both("dump", &["Open_vSwitch", "Interface", "name", "type", "options"]);
    both("dump", &["_Server", "Database", "name", "model", "connected", "leader"]);
    both(
        "transact",
        &[
            r#"["Open_vSwitch",{"op":"select","table":"Bridge","where":[],"columns":["name","external_ids"]}]"#,
        ],
    );
    both(
        "query",
        &[
            r#"["Open_vSwitch",{"op":"select","table":"Port","where":[["name","==","br0"]],"columns":["name","tag"]}]"#,
        ],
    );
}

#[test]
fn ovsdb_client_monitors() {
    if !installed("ovsdb-client") {
        return;
    }
    let ours = Ours::new();
    for verb in ["monitor", "monitor-cond", "monitor-cond-since"] {
        let mut arguments =
            vec!["--timeout=10".to_string(), verb.into(), ours.remote(), "Open_vSwitch".into()];
        if verb != "monitor" {
            arguments.push("[[\"name\",\"!=\",\"x\"]]".into());
        }
        arguments.extend(["Bridge".to_string(), "name".into()]);
        let mut child = ours.command("ovsdb-client").args(&arguments).stdout(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        assert!(ours.vsctl("add-br watched").0 && ours.vsctl("del-br watched").0);
        std::thread::sleep(Duration::from_millis(300));
        child.kill().unwrap();
        let text = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
        assert!(text.contains(" insert watched") && text.contains(" delete"), "{verb}: {text}");
    }
}

/// The same requests on both servers: errors must have the same kind, results the same contents.
#[test]
fn transactions_end_alike() {
    if !installed("ovsdb-server") {
        return;
    }
    let (ours, stock) = (Ours::new(), Stock::empty());
    let (mut a, mut b) = (Raw::new(&ours), Raw::new(&stock));
    for line in
        include_str!("transactions.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let operations: Vec<Value> = serde_json::from_str(line).unwrap();
        let params: Vec<Value> = std::iter::once(json!("Open_vSwitch")).chain(operations).collect();
        let (a, b) = (a.ask("transact", json!(params)), b.ask("transact", json!(params)));
        assert_eq!(comparable(&a), comparable(&b), "{line}\nours: {a}\nstock: {b}");
    }
}

/// Leaves out what each server says in its own words and which UUIDs it chose; sorts members and rows.
fn comparable(json: &Value) -> String {
    match json {
        Value::Object(object) => {
            let ignored = |key: &str, value: &Value| {
                ["details", "syntax"].contains(&key) || (key == "result" && value.is_null())
            };
            let member = |(key, value): (&String, &Value)| match (key.as_str(), value) {
                ("rows", Value::Array(rows)) => {
                    let mut rows: Vec<String> = rows.iter().map(comparable).collect();
                    rows.sort();
                    format!("rows:{rows:?}")
                }
                _ => format!("{key}:{}", comparable(value)),
            };
            let mut members: Vec<String> =
                object.iter().filter(|(k, v)| !ignored(k, v)).map(member).collect();
            members.sort();
            format!("{{{}}}", members.join(","))
        }
        Value::Array(list) => format!("[{}]", list.iter().map(comparable).collect::<Vec<_>>().join(",")),
        Value::String(text) if text.parse::<ovsdb::value::Uuid>().is_ok() => "UUID".into(),
        other => other.to_string(),
    }
}

/// [`comparable`] of a program's output.
fn comparable_text(text: &str) -> String {
    comparable(&serde_json::from_str(text).unwrap())
}

struct Raw {
    stream: UnixStream,
    framer: ovsdb::jsonrpc::Framer,
}

impl Raw {
    fn new(backend: &dyn Backend) -> Self {
        let stream = UnixStream::connect(backend.dir().join("db.sock")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        Raw { stream, framer: ovsdb::jsonrpc::Framer::default() }
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        let request = json!({"id": 1, "method": method, "params": params});
        self.stream.write_all(request.to_string().as_bytes()).unwrap();
        loop {
            if let Some(text) = self.framer.next_text().unwrap() {
                return text;
            }
            let mut buffer = [0; 65536];
            let length = self.stream.read(&mut buffer).unwrap();
            assert!(length > 0, "the server hung up");
            self.framer.feed(&buffer[..length]);
        }
    }
}

#[test]
fn ovsdb_tool_and_server_read_our_file() {
    if !installed("ovsdb-tool") || !installed("ovsdb-server") || !installed("ovs-vsctl") {
        return;
    }
    let ours = Ours::new();
    for line in VSCTL_SCRIPT.lines() {
        ours.vsctl(line);
    }
    let query = r#"["Open_vSwitch",{"op":"select","table":"Port","where":[],"columns":["name","tag","trunks","interfaces"]}]"#;
    let expected = comparable_text(&ours.client("query", &[query]).1);
    let file = ours.dir.path("db");
    let file = file.to_str().unwrap();
    let tool = |arguments: &[&str]| {
        let (ok, text) = ours.run("ovsdb-tool", arguments);
        assert!(ok, "{arguments:?}: {text}");
        text
    };
    assert_eq!(tool(&["db-version", file]).trim(), "8.8.0");
    assert_eq!(tool(&["db-name", file]).trim(), "Open_vSwitch");
    let log = tool(&["-mm", "show-log", file]);
    assert!(log.contains("add-br br0") && log.contains("name=br0"), "{log}");
    assert_eq!(comparable_text(&tool(&["query", file, query])), expected);

    // Compacted by us, and by them; served by them.
    let loaded = load(&fs::read(file).unwrap(), &mut SeededUuids::new(2)).unwrap();
    assert_eq!(loaded.damage, None);
    let dir = TempDir::new();
    fs::write(dir.path("db"), snapshot(&loaded.db, "compacted", 1_700_000_000_000)).unwrap();
    tool(&["compact", file]);
    assert_eq!(comparable_text(&tool(&["query", file, query])), expected);
    let compacted = load(&fs::read(file).unwrap(), &mut SeededUuids::new(2)).unwrap();
    assert_eq!(snapshot(&compacted.db, "", 0), snapshot(&loaded.db, "", 0));
    let stock = Stock::new(dir);
    assert_eq!(comparable_text(&stock.client("query", &[query]).1), expected);
}

#[test]
fn we_read_their_file() {
    if !installed("ovsdb-server") || !installed("ovs-vsctl") {
        return;
    }
    let stock = Stock::empty();
    // Their reader and writer disagree about columns whose default is not empty: those lines would spoil their file
    // for themselves.
    for line in VSCTL_SCRIPT.lines().filter(|line| !line.contains("NetFlow")) {
        stock.vsctl(line);
    }
    let loaded = load(&fs::read(stock.dir.path("db")).unwrap(), &mut SeededUuids::new(2)).unwrap();
    assert_eq!(loaded.damage, None);
    let ix = loaded.db.schema().table_ix("Interface").unwrap();
    let name = loaded.db.schema().tables[ix.0].column_ix("name").unwrap();
    let mut names: Vec<String> =
        loaded.db.rows(ix).map(|(_, row)| row.column(name).as_atom().unwrap().to_string()).collect();
    names.sort();
    assert_eq!(names, ["br0", "e0", "e1"]);
}

#[test]
fn our_client_follows_a_stock_server() {
    if !installed("ovsdb-server") || !installed("ovs-vsctl") {
        return;
    }
    let stock = Stock::empty();
    let config = ClientConfig { lock: Some("ovs_vswitchd".into()), ..ClientConfig::all(open_vswitch()) };
    let mut client = Client::new(config);
    let mut stream = UnixStream::connect(stock.dir.path("db.sock")).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let mut until = |client: &mut Client, what: &str, done: &dyn Fn(&mut Client) -> bool| {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !done(client) {
            assert!(Instant::now() < deadline, "{what}");
            stream.write_all(&client.take_output()).unwrap();
            let mut buffer = [0; 65536];
            if let Ok(length) = stream.read(&mut buffer) {
                client.input(&buffer[..length]).unwrap();
            }
        }
    };
    until(&mut client, "ready", &|c| c.state() == ClientState::Ready && c.lock_state() == LockState::Held);
    assert_eq!(client.missing(), [] as [String; 0]);
    assert!(stock.vsctl("add-br br0 -- add-port br0 p1 tag=5").0);
    until(&mut client, "rows", &|c| c.replica().rows("Port").any(|row| row.opt_int("tag") == Some(5)));
    let root = client.replica().rows("Open_vSwitch").next().unwrap().uuid();
    let mut txn = TxnBuilder::new();
    let interface = txn.insert("Interface", [("name", "new".into())]);
    let port = txn.insert("Port", [("name", ColumnValue::from("new")), ("interfaces", interface.into())]);
    let bridge = client.replica().rows("Bridge").next().unwrap().uuid();
    txn.mutate("Bridge", bridge, "ports", "insert", ColumnValue::refs([port]));
    txn.mutate("Open_vSwitch", root, "next_cfg", "+=", 1);
    client.transact(txn).unwrap();
    until(&mut client, "change", &|c| c.replica().rows("Port").any(|row| row.str("name") == "new"));
    until(&mut client, "outcome", &|c| {
        matches!(c.take_outcomes().as_slice(), [(_, TxnOutcome::Success { .. })])
    });
    assert_eq!(stock.vsctl("list-ports br0").1, "new\np1\n");
}

const PYTHON_IDL: &str = r#"
import sys, ovs.db.idl, ovs.poller, time
helper = ovs.db.idl.SchemaHelper(location="/usr/share/openvswitch/vswitch.ovsschema")
for table in ("Open_vSwitch", "Bridge", "Port", "Interface"):
    helper.register_table(table)
idl = ovs.db.idl.Idl(sys.argv[1], helper)
def until(done):
    end = time.time() + 10
    while not done():
        if time.time() > end:
            sys.exit("timeout: seqno %d error %s" % (idl.change_seqno, idl.last_error if hasattr(idl, "last_error") else ""))
        idl.run()
        poller = ovs.poller.Poller()
        idl.wait(poller)
        poller.timer_wait(50)
        poller.block()
until(idl.has_ever_connected)
until(lambda: len(idl.tables["Bridge"].rows) == 1)
bridge = list(idl.tables["Bridge"].rows.values())[0]
def commit(change):
    while True:
        txn = ovs.db.idl.Transaction(idl)
        change(txn)
        status = txn.commit_block()
        if status != ovs.db.idl.Transaction.TRY_AGAIN:
            break
    if status not in (ovs.db.idl.Transaction.SUCCESS, ovs.db.idl.Transaction.UNCHANGED):
        sys.exit("%s %s" % (status, txn.get_error()))
def add_port(txn):
    interface = txn.insert(idl.tables["Interface"])
    interface.name = "pyport"
    port = txn.insert(idl.tables["Port"])
    port.name = "pyport"
    port.interfaces = [interface]
    bridge.verify("ports")
    bridge.addvalue("ports", port)
    bridge.setkey("external_ids", "from", "python")
commit(add_port)
until(lambda: any(p.name == "pyport" for p in idl.tables["Port"].rows.values()))
def increment(txn):
    root = list(idl.tables["Open_vSwitch"].rows.values())[0]
    root.increment("next_cfg")
commit(increment)
idl.cond_change("Interface", [["name", "==", "pyport"]])
until(lambda: [i.name for i in idl.tables["Interface"].rows.values()] == ["pyport"])
print("done", bridge.external_ids)
"#;

#[test]
fn python_idl_works() {
    if !installed("ovs-vsctl") {
        return;
    }
    let python = Path::new("/usr/bin/python3");
    if !Command::new(python).args(["-c", "import ovs.db.idl"]).output().is_ok_and(|o| o.status.success()) {
        println!("skipped: the Python library is not installed");
        return;
    }
    let ours = Ours::new();
    assert!(ours.vsctl("add-br br0").0);
    let script = ours.dir.path("idl.py");
    fs::write(&script, PYTHON_IDL).unwrap();
    let (ok, text) = ours.run("/usr/bin/python3", &[script.to_str().unwrap(), &ours.remote()]);
    assert!(ok && text.contains("done {'from': 'python'}"), "{text}");
    let (_, ports) = ours.vsctl("list-ports br0");
    assert_eq!(ports, "pyport\n");
}
