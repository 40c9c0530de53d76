//! Interoperability with stock programs: `ovs-vsctl`, `ovsdb-client`, `ovsdb-tool`, `ovsdb-server` and the
//! Python library. Each test skips itself, with a message, if they are not installed. Sockets are Unix
//! sockets in a directory of the test.
#![allow(clippy::disallowed_methods, reason = "a test that speaks with real programs does I/O")]

mod backends;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use backends::{
    Backend, LIMIT, Ours, Raw, Stock, TempDir, comparable, comparable_text, installed, without_uuids,
};
use ovsdb::client::{Client, ClientConfig, ClientState, ColumnValue, LockState, TxnBuilder, TxnOutcome};
use ovsdb::log::{load, snapshot};
use ovsdb::schema::{DatabaseSchema, open_vswitch};
use ovsdb::value::SeededUuids;
use serde_json::{Value, json};

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
list Bridge br0
list Port p1
list Interface p1
list Open_vSwitch .
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
del-br nope
emer-reset
list Bridge br0";

#[test]
fn ovs_vsctl_sees_no_difference() {
    if !installed("ovs-vsctl") || !installed("ovsdb-server") {
        return;
    }
    let (ours, stock) = (Ours::new(open_vswitch()), Stock::empty(open_vswitch()));
    for line in VSCTL_SCRIPT.lines() {
        let (a, b) = (ours.vsctl(line), stock.vsctl(line));
        let same_place = |(ok, text): (bool, String), backend: &dyn Backend| {
            (ok, without_uuids(&text.replace(&backend.dir().display().to_string(), "DIR")))
        };
        let (a, b) = (same_place(a, &ours), same_place(b, &stock));
        if !b.0 && b.1.contains("constraint violation") {
            // Each server has its own details.
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
    let (ours, stock) = (Ours::new(open_vswitch()), Stock::empty(open_vswitch()));
    for backend in [&ours as &dyn Backend, &stock] {
        assert!(backend.vsctl("add-br br0 -- set Bridge br0 external_ids:a=b").0);
    }
    let both = |verb: &str, arguments: &[&str]| {
        let (a, b) = (ours.client(verb, arguments), stock.client(verb, arguments));
        // Tables of a schema and rows of a table are unordered.
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
    let ours = Ours::new(open_vswitch());
    for verb in ["monitor", "monitor-cond", "monitor-cond-since"] {
        let mut arguments =
            vec!["--timeout=60".to_string(), verb.into(), ours.remote(), "Open_vSwitch".into()];
        if verb != "monitor" {
            arguments.push("[[\"name\",\"!=\",\"x\"]]".into());
        }
        arguments.extend(["Bridge".to_string(), "name".into()]);
        let file = ours.dir().join(verb);
        let output = fs::File::create(&file).unwrap();
        let mut child = ours.command("ovsdb-client").args(&arguments).stdout(output).spawn().unwrap();
        // It may not have begun to monitor at first, and prints at any time.
        let deadline = Instant::now() + LIMIT;
        let mut text = String::new();
        while !(text.contains(" insert watched") && text.contains(" delete")) {
            assert!(Instant::now() < deadline, "{verb}: {text}");
            assert!(ours.vsctl("add-br watched").0 && ours.vsctl("del-br watched").0);
            text = fs::read_to_string(&file).unwrap();
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// The same requests on both servers: errors must have the same kind, results equal contents.
#[test]
fn transactions_end_alike() {
    if !installed("ovsdb-server") {
        return;
    }
    let (ours, stock) = (Ours::new(open_vswitch()), Stock::empty(open_vswitch()));
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

#[test]
fn ovsdb_tool_and_server_read_our_file() {
    if !installed("ovsdb-tool") || !installed("ovsdb-server") || !installed("ovs-vsctl") {
        return;
    }
    let ours = Ours::new(open_vswitch());
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
    let stock = Stock::empty(open_vswitch());
    // Its reader and writer disagree about columns with a non-empty default: those lines would corrupt its
    // file.
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

/// A database of an older switch, opened by a newer one.
#[test]
fn an_older_database_is_converted() {
    let system = Path::new("/usr/share/openvswitch/vswitch.ovsschema");
    if !installed("ovsdb-server") || !installed("ovs-vsctl") || !system.exists() {
        println!("skipped: no installed schema to begin with");
        return;
    }
    let json = serde_json::from_slice(&fs::read(system).unwrap()).unwrap();
    let stock = Stock::empty(Arc::new(DatabaseSchema::from_json(&json).unwrap()));
    assert!(stock.vsctl("add-br br0 -- add-port br0 p1 tag=7").0);
    let older = load(&fs::read(stock.dir.path("db")).unwrap(), &mut SeededUuids::new(2)).unwrap();
    let newer = older.db.convert(open_vswitch()).unwrap();
    let file = snapshot(&newer, "converted", 0);
    let dir = TempDir::new();
    fs::write(dir.path("db"), file).unwrap();
    let again = Stock::new(dir);
    assert_eq!(again.vsctl("get Port p1 tag").1, "7\n");
    assert_eq!(again.client("get-schema-version", &["Open_vSwitch"]).1, "8.8.0\n");
}

#[test]
fn our_client_replicates_a_stock_server() {
    if !installed("ovsdb-server") || !installed("ovs-vsctl") {
        return;
    }
    let stock = Stock::empty(open_vswitch());
    let config = ClientConfig { lock: Some("ovs_vswitchd".into()), ..ClientConfig::all(open_vswitch()) };
    let mut client = Client::new(config);
    let mut stream = UnixStream::connect(stock.dir.path("db.sock")).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let mut until = |client: &mut Client, what: &str, done: &dyn Fn(&mut Client) -> bool| {
        let deadline = Instant::now() + LIMIT;
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
    let ours = Ours::new(open_vswitch());
    assert!(ours.vsctl("add-br br0").0);
    let script = ours.dir.path("idl.py");
    fs::write(&script, PYTHON_IDL).unwrap();
    let (ok, text) = ours.run("/usr/bin/python3", &[script.to_str().unwrap(), &ours.remote()]);
    assert!(ok && text.contains("done {'from': 'python'}"), "{text}");
    let (_, ports) = ours.vsctl("list-ports br0");
    assert_eq!(ports, "pyport\n");
}

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn pick(&mut self, choices: &[&'static str]) -> &'static str {
        choices[self.roll(choices.len() as u64) as usize]
    }

    fn uuid(&mut self) -> Value {
        json!(["uuid", format!("00000000-0000-4000-8000-00000000000{}", self.roll(6))])
    }

    /// Tables share no UUIDs: the stock server mistakes a reference to another table's row with the same UUID
    /// for one to itself.
    fn uuid_in(&mut self, table: &str) -> Value {
        if table == "leaf" {
            return self.uuid()[1].clone();
        }
        json!(format!("00000000-0000-4000-8000-10000000000{}", self.roll(6)))
    }

    fn set(&mut self, mut element: impl FnMut(&mut Dice) -> Value) -> Value {
        let mut list: Vec<Value> = Vec::new();
        for _ in 0..self.roll(4) {
            let item = element(self);
            if !list.contains(&item) {
                list.push(item);
            }
        }
        json!(["set", list])
    }

    fn row(&mut self) -> Value {
        let mut row = json!({});
        for _ in 0..=self.roll(3) {
            match self.roll(7) {
                0 => row["name"] = json!(self.pick(&["a", "b", "c"])),
                1 => row["strong"] = self.set(Dice::uuid),
                2 => row["weak"] = self.set(Dice::uuid),
                3 => row["numbers"] = self.set(|dice| json!(dice.roll(6))),
                4 => row["mode"] = json!(self.pick(&["x", "y", "z"])),
                5 => {
                    row["map"] =
                        json!(["map", [[self.pick(&["k", "l"]), self.pick(&["1", "2"])], ["m", "3"]]]);
                }
                _ => row["real"] = json!(self.roll(5) as f64 / 2.0),
            }
        }
        row
    }

    fn clause(&mut self) -> Value {
        match self.roll(7) {
            0 => json!(["_uuid", "==", self.uuid()]),
            1 => json!([
                "map",
                self.pick(&["includes", "excludes", "!="]),
                ["map", [[self.pick(&["k", "l"]), self.pick(&["1", "2"])]]]
            ]),
            6 => json!(["name", self.pick(&["==", "!=", "<"]), self.pick(&["a", "b"])]),
            2 => json!([
                "numbers",
                self.pick(&["includes", "excludes", "==", "!="]),
                self.set(|dice| json!(dice.roll(6)))
            ]),
            3 => json!(["real", self.pick(&["<", "<=", ">", ">=", "=="]), 1]),
            4 => json!(["strong", self.pick(&["includes", "excludes"]), self.uuid()]),
            _ => json!(["mode", "==", self.pick(&["x", "w"])]),
        }
    }

    fn mutation(&mut self) -> Value {
        match self.roll(6) {
            0 => json!([
                "numbers",
                self.pick(&["+=", "-=", "*=", "/=", "%=", "insert", "delete"]),
                self.roll(4)
            ]),
            1 => json!(["strong", self.pick(&["insert", "delete"]), self.set(Dice::uuid)]),
            2 => json!(["weak", self.pick(&["insert", "delete"]), self.uuid()]),
            3 => json!([
                "map",
                self.pick(&["insert", "delete"]),
                ["map", [[self.pick(&["k", "n"]), self.pick(&["1", "5"])]]]
            ]),
            4 => json!(["map", "delete", ["set", [self.pick(&["k", "l"])]]]),
            _ => json!(["real", self.pick(&["+=", "-=", "*=", "/=", "%="]), self.roll(3) as f64 / 2.0]),
        }
    }

    fn operation(&mut self) -> Value {
        let table = self.pick(&["root", "leaf"]);
        let clause = json!([self.clause()]);
        match self.roll(9) {
            0..=3 => json!({"op": "insert", "table": table, "uuid": self.uuid_in(table), "row": self.row()}),
            4 => json!({"op": "update", "table": table, "where": clause, "row": self.row()}),
            5 | 6 => {
                json!({"op": "mutate", "table": table, "where": clause, "mutations": [self.mutation(), self.mutation()]})
            }
            7 => json!({"op": "delete", "table": table, "where": clause}),
            _ => {
                json!({"op": "wait", "table": table, "where": clause, "columns": ["name", "mode"], "until": self.pick(&["==", "!="]),
                        "rows": [self.row()], "timeout": 0})
            }
        }
    }
}

fn random_schema() -> Arc<DatabaseSchema> {
    let reference = |kind: &str| json!({"type": {"key": {"type": "uuid", "refTable": "leaf", "refType": kind}, "min": 0, "max": "unlimited"}});
    let columns = json!({
        "name": {"type": "string"},
        "strong": reference("strong"),
        "weak": reference("weak"),
        "numbers": {"type": {"key": {"type": "integer", "minInteger": 0, "maxInteger": 9}, "min": 0, "max": 3}},
        "mode": {"type": {"key": {"type": "string", "enum": ["set", ["x", "y", ""]]}}},
        "map": {"type": {"key": "string", "value": "string", "min": 0, "max": 3}},
        "real": {"type": {"key": "real", "min": 0, "max": 1}},
    });
    let schema = json!({"name": "random", "version": "1.0.0", "tables": {
        "root": {"columns": columns, "isRoot": true, "indexes": [["name", "mode"]], "maxRows": 4},
        "leaf": {"columns": columns}}});
    Arc::new(DatabaseSchema::from_json(&schema).unwrap())
}

/// Random transactions: both servers return equal results and hold equal rows, and so do both logs.
#[test]
fn random_transactions_end_alike() {
    if !installed("ovsdb-server") || !installed("ovsdb-tool") {
        return;
    }
    let (ours, stock) = (Ours::new(random_schema()), Stock::empty(random_schema()));
    let (mut a, mut b) = (Raw::new(&ours), Raw::new(&stock));
    let columns = json!(["_uuid", "name", "strong", "weak", "numbers", "mode", "map", "real"]);
    let select = |table: &str| json!({"op": "select", "table": table, "where": [], "columns": columns});
    let contents = json!(["random", select("root"), select("leaf")]);
    let mut dice = Dice(20);
    let mut succeeded = 0;
    let mut notified = 0;
    for (id, method, requests) in monitors() {
        let params = json!(["random", id, requests]);
        assert_eq!(a.ask(method, params.clone()), b.ask(method, params));
    }
    for round in 0..2000 {
        let mut params = vec![json!("random")];
        params.extend((0..=dice.roll(4)).map(|_| dice.operation()));
        let ((ua, ra), (ub, rb)) =
            (a.ask_all("transact", json!(params)), b.ask_all("transact", json!(params)));
        notified += ua.len();
        assert_eq!(updates(&ua), updates(&ub), "round {round}: {}", json!(params));
        // The servers may report different failing rows.
        let alike = |reply: &Value| {
            comparable(reply)
                .replace("domain error", "constraint violation")
                .replace("range error", "constraint violation")
        };
        assert_eq!(alike(&ra), alike(&rb), "round {round}: {}\nours: {ra}\nstock: {rb}", json!(params));
        succeeded += usize::from(!ra.to_string().contains("\"error\":\""));
        let (ca, cb) = (a.ask("transact", contents.clone()), b.ask("transact", contents.clone()));
        assert_eq!(rows_in_order(&ca), rows_in_order(&cb), "round {round}: {}", json!(params));
    }
    assert!(notified > 150, "only {notified} updates");
    assert!(succeeded > 150, "only {succeeded} transactions succeeded: the test tests little");
    let expected = rows_in_order(&a.ask("transact", contents.clone())["result"]);
    // The stock tool reads our file. It may reject its own, for a difference with more elements than its
    // column allows; we read both.
    let file = ours.dir().join("db");
    let (ok, text) = ours.run("ovsdb-tool", &["query", file.to_str().unwrap(), &contents.to_string()]);
    assert!(ok, "{text}");
    assert_eq!(rows_in_order(&serde_json::from_str(&text).unwrap()), expected);
    let read = |backend: &dyn Backend| {
        load(&fs::read(backend.dir().join("db")).unwrap(), &mut SeededUuids::new(2)).unwrap()
    };
    assert_eq!(snapshot(&read(&ours).db, "", 0), snapshot(&read(&stock).db, "", 0));
}

/// Monitors of both kinds, with and without conditions and selections.
fn monitors() -> [(&'static str, &'static str, Value); 4] {
    let columns = json!(["name", "strong", "weak", "numbers", "mode", "map", "real"]);
    [
        ("all", "monitor", json!({"root": {"columns": columns}, "leaf": [{"columns": columns}]})),
        (
            "some",
            "monitor",
            json!({"root": [{"columns": ["name", "map"], "select": {"insert": false}}, {"columns": ["real"], "select": {"delete": false}}]}),
        ),
        ("every", "monitor_cond", json!({"root": [{"columns": columns}], "leaf": [{"columns": columns}]})),
        (
            "where",
            "monitor_cond",
            json!({
            "root": [{"columns": columns, "where": [["name", "==", "a"], ["numbers", "includes", 2]]}],
            "leaf": [{"columns": ["mode", "map"], "where": [["real", ">=", 1]]}]}),
        ),
    ]
}

/// Notifications in a form independent of the order of monitors and members.
fn updates(notifications: &[Value]) -> Vec<String> {
    fn sorted(json: &Value) -> String {
        match json {
            Value::Object(object) => {
                let mut members: Vec<String> =
                    object.iter().map(|(k, v)| format!("{k}:{}", sorted(v))).collect();
                members.sort();
                members.join(",")
            }
            Value::Array(list) => list.iter().map(sorted).collect::<Vec<_>>().join(";"),
            other => other.to_string(),
        }
    }
    let mut texts: Vec<String> = notifications.iter().map(sorted).collect();
    texts.sort();
    texts
}

/// The rows of two selects, sorted, with sorted members; with original UUIDs.
fn rows_in_order(reply: &Value) -> Vec<String> {
    let results = if reply.is_array() { reply } else { &reply["result"] };
    let mut rows = Vec::new();
    for row in results.as_array().unwrap().iter().flat_map(|result| result["rows"].as_array().unwrap()) {
        let mut members: Vec<String> =
            row.as_object().unwrap().iter().map(|(k, v)| format!("{k}:{v}")).collect();
        members.sort();
        rows.push(members.join(","));
    }
    rows.sort();
    rows
}
