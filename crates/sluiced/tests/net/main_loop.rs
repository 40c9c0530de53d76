//! The main loop of a switch that has everything at once: connections, routes, rules, ports, OpenFlow and database clients by
//! the million and by the thousand. Each operation is done alone; the test prints the longest turn of the main loop meanwhile,
//! and the part that took most of it. The aim is 10 ms; times are not asserted, as other programs share the machine.

use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::{Cmd, Daemon, Netns, require_netns, require_programs, wait_for};

use crate::ct_millions::{control, reply, udp};
use crate::helpers::{capture_of, require_userspace, spec};

/// Longest wait for one operation.
const OPERATION_MAX: Duration = Duration::from_secs(900);
/// Longest turn that the loop ought to have.
const AIM_MS: f64 = 10.0;
/// Zones that each packet passes, with a connection in each.
const ZONES: u32 = 4;
/// OpenFlow clients of one listener.
const PER_LISTENER: u32 = 125;
/// Rules and routes of an operation.
const MANY: u32 = 1000;
/// Ports added by one command.
const PORTS_TOGETHER: u32 = 250;
/// OpenFlow 1.3: a hello; the configuration that asks for messages; a barrier.
const GREETING: [u8; 28] =
    [4, 0, 0, 8, 0, 0, 0, 1, 4, 9, 0, 12, 0, 0, 0, 2, 0, 0, 0, 128, 4, 20, 0, 8, 0, 0, 0, 3];
const BARRIER_REPLY: u8 = 21;
const PORT_STATUS: u8 = 12;

/// Sizes of the state of the switch.
#[derive(Debug)]
struct Sizes {
    connections: u32,
    routes: u32,
    rules: u32,
    ports: u32,
    openflow: u32,
    database: u32,
}

impl Sizes {
    /// `SLUICE_MAIN_LOOP_PERCENT` of all: 100 by default.
    fn chosen() -> Sizes {
        let percent = std::env::var("SLUICE_MAIN_LOOP_PERCENT").map_or(100, |text| text.parse().unwrap());
        let of = |full: u32| (u64::from(full) * percent / 100).max(1) as u32;
        Sizes {
            connections: of(5_000_000) / ZONES * ZONES,
            routes: of(1_000_000),
            rules: of(500_000),
            ports: of(2000),
            openflow: of(1000),
            database: of(1000),
        }
    }
}

struct Lab {
    daemon: Daemon,
    netns: Netns,
    control: UnixStream,
}

impl Lab {
    fn new() -> Lab {
        let netns = Netns::new("mainloop").unwrap();
        let daemon = spec(&netns).args(["--enable-dummy"]).start().unwrap();
        let mut control = control(&daemon);
        reply(&mut control, "set-options", &["--format", "json"], &mut Vec::new());
        Lab { daemon, netns, control }
    }

    fn tool(&self, tool: &str, line: &str) -> Cmd {
        self.daemon.tool(tool).args(line.split_whitespace()).limit(OPERATION_MAX)
    }

    fn vsctl(&self, line: &str) -> String {
        self.tool("ovs-vsctl", line).run().unwrap().stdout
    }

    fn ofctl(&self, line: &str) -> String {
        self.tool("ovs-ofctl", line).run().unwrap().stdout
    }

    /// Adds rules or removes them; `verb` reads them from its input.
    fn rules(&self, verb: &str, rules: String) {
        self.tool("ovs-ofctl", &format!("{verb} br0 -")).input(rules).run().unwrap();
    }

    fn ip_batch(&self, lines: String) {
        self.netns.cmd("ip").args(["-batch", "-"]).input(lines).limit(OPERATION_MAX).run().unwrap();
    }

    /// Runs a command; returns the lines of its reply.
    fn lines(&mut self, command: &str) -> u64 {
        let words: Vec<&str> = command.split(' ').collect();
        reply(&mut self.control, words[0], &words[1..], &mut Vec::new()).1
    }

    /// The short reply of a command.
    fn answer(&mut self, command: &str) -> Value {
        let (words, mut text) = (command.split(' ').collect::<Vec<&str>>(), Vec::new());
        reply(&mut self.control, words[0], &words[1..], &mut text);
        serde_json::from_slice(&text).unwrap()
    }

    /// Its result.
    fn result(&mut self, command: &str) -> Value {
        let answer = self.answer(command);
        assert!(answer["error"].is_null(), "{command}: {answer}");
        answer["result"].clone()
    }

    /// The text of a command with a short reply.
    fn text(&mut self, command: &str) -> String {
        self.result(command)["reply"].as_str().unwrap().to_string()
    }

    /// Does one operation, and prints the longest turn until its end.
    fn measure<T>(&mut self, operation: &str, work: impl FnOnce(&mut Lab) -> T) -> T {
        self.text("sluice/loop-clear");
        let begun = Instant::now();
        let done = work(self);
        let took_s = begun.elapsed().as_secs_f64();
        let longest = &self.result("sluice/loop-show")["longest"];
        let ms = |name: &str| longest[name].as_u64().unwrap() as f64 / 1e3;
        let (turn_ms, part_ms, part) = (ms("us"), ms("part_us"), longest["part"].as_str().unwrap());
        let mark = if turn_ms > AIM_MS { "above" } else { "" };
        show(&format!(
            "{operation:<48} {took_s:>8.1} s {turn_ms:>10.1} ms {part_ms:>10.1} ms {part:<14} {mark}"
        ));
        done
    }

    /// An operation of a command alone; returns the lines of its reply.
    fn command(&mut self, command: &str) -> u64 {
        self.measure(command, |lab| lab.lines(command))
    }

    fn connections(&mut self) -> u32 {
        self.text("dpctl/ct-get-nconns").trim().parse().unwrap()
    }
}

/// Prints a line of the table, also where the output of passed tests is not shown.
fn show(line: &str) {
    let _unwritten = writeln!(std::io::stderr(), "{line}");
}

/// Rule `n` of table 1: it selects an address and a port.
fn rule(n: u32) -> String {
    let [_, a, b, c] = n.to_be_bytes();
    format!("table=1,priority={},udp,nw_dst=10.{a}.{b}.{c},tp_dst={}", 100 + n % 7, n % 1000)
}

fn rules(numbers: std::ops::Range<u32>, actions: &str) -> String {
    numbers.fold(String::new(), |mut text, n| {
        let _ = writeln!(text, "{}{actions}", rule(n));
        text
    })
}

fn routes(verb: &str, numbers: std::ops::Range<u32>) -> String {
    numbers.fold(String::new(), |mut text, n| {
        let [_, a, b, c] = n.to_be_bytes();
        let _ = writeln!(text, "route {verb} {}.{b}.{c}.0/24 via 10.255.0.2", 11 + a);
        text
    })
}

fn connect(lab: &Lab, socket: &str) -> UnixStream {
    let stream = UnixStream::connect(lab.daemon.rundir().join(socket)).unwrap();
    stream.set_read_timeout(Some(OPERATION_MAX)).unwrap();
    stream
}

/// The types of the OpenFlow messages in these bytes.
fn types(bytes: &[u8]) -> Vec<u8> {
    let (mut rest, mut types) = (bytes, Vec::new());
    while let [_, kind, high, low, ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        assert!(length >= 8, "a length of {length}");
        types.push(*kind);
        rest = rest.get(length..).unwrap_or_default();
    }
    types
}

/// Reads until the bytes satisfy the condition.
fn read_until(stream: &mut UnixStream, is_enough: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let (mut bytes, mut part) = (Vec::new(), vec![0; 1 << 20]);
    while !is_enough(&bytes) {
        let n = stream.read(&mut part).unwrap();
        assert!(n > 0, "the daemon closed a connection");
        bytes.extend_from_slice(&part[..n]);
    }
    bytes
}

/// All that has arrived.
fn read_all(stream: &mut UnixStream) -> Vec<u8> {
    stream.set_nonblocking(true).unwrap();
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Err(e) if e.kind() == ErrorKind::WouldBlock => bytes,
        other => panic!("the daemon closed a connection: {other:?}"),
    }
}

fn ports(lab: &Lab, sizes: &Sizes) {
    let all: Vec<u32> = (0..sizes.ports).collect();
    for some in all.chunks(PORTS_TOGETHER as usize) {
        let line = some.iter().fold(String::new(), |mut line, n| {
            let _ = write!(line, " -- add-port br0 p{n} -- set Interface p{n} type=null");
            line
        });
        lab.vsctl(&line);
    }
}

fn connections(lab: &mut Lab, sizes: &Sizes) {
    lab.text("dpctl/ct-set-maxconns 8000000");
    // Connections without packets stay.
    let policy = (1..=ZONES).fold(String::new(), |mut line, zone| {
        let _ = write!(line, " -- add-zone-tp netdev zone={zone} udp_first=86400 udp_single=86400");
        line
    });
    lab.vsctl(&format!(
        "-- --id=@m create Datapath datapath_version=0 -- set Open_vSwitch . datapaths:netdev=@m{policy}"
    ));
    let track: String = (1..=ZONES).map(|zone| format!("ct(commit,zone={zone}),")).collect();
    lab.ofctl(&format!("add-flow br0 priority=9,in_port=60000,ip,actions={track}60001"));
    let flows = sizes.connections / ZONES;
    let file = lab.daemon.rundir().join("flows.pcap");
    std::fs::write(&file, capture_of((0..flows).map(udp))).unwrap();
    lab.vsctl(&format!(
        "add-port br0 sink -- set Interface sink type=null ofport_request=60001 \
         -- add-port br0 many -- set Interface many type=pcap ofport_request=60000 options:infinite_rx=true \
         options:rx_pcap={}",
        file.display()
    ));
    let wanted = sizes.connections;
    wait_for(OPERATION_MAX, "all connections", || lab.connections() >= wanted).unwrap();
    lab.vsctl("del-port many");
    assert_eq!(lab.connections(), wanted);
}

fn many_routes(lab: &mut Lab, sizes: &Sizes) {
    lab.netns.ip("link add name sl-d type veth peer name sl-e").unwrap();
    lab.netns.up("sl-e").unwrap();
    lab.netns.ip("addr add 10.255.0.1/24 dev sl-d").unwrap();
    lab.netns.up("sl-d").unwrap();
    lab.ip_batch(routes("add", 0..sizes.routes));
    let [_, a, b, c] = (sizes.routes - 1).to_be_bytes();
    wait_for(OPERATION_MAX, "the last route", || has_route(lab, &format!("{}.{b}.{c}.9", 11 + a))).unwrap();
}

fn has_route(lab: &mut Lab, address: &str) -> bool {
    lab.answer(&format!("ovs/route/lookup {address}"))["result"].to_string().contains("10.255.0.2")
}

fn openflow_clients(lab: &Lab, sizes: &Sizes) -> Vec<UnixStream> {
    let listeners = sizes.openflow.div_ceil(PER_LISTENER);
    let (mut create, mut names) = (String::new(), Vec::new());
    for n in 0..listeners {
        let socket = lab.daemon.rundir().join(&format!("br0.c{n}"));
        let _ = write!(
            create,
            " -- --id=@c{n} create Controller target=\"punix:{}\" inactivity_probe=0",
            socket.display()
        );
        names.push(format!("@c{n}"));
    }
    lab.vsctl(&format!("{create} -- set Bridge br0 controller={}", names.join(",")));
    let client = |n: u32| {
        let mut stream = connect(lab, &format!("br0.c{}", n / PER_LISTENER));
        stream.write_all(&GREETING).unwrap();
        read_until(&mut stream, |bytes| types(bytes).contains(&BARRIER_REPLY));
        stream
    };
    (0..sizes.openflow).map(client).collect()
}

/// Sends a request of a database client; returns the reply.
fn ask(stream: &mut UnixStream, method: &str, params: &Value) -> Value {
    let request = json!({"id": "soak", "method": method, "params": params}).to_string();
    stream.write_all(request.as_bytes()).unwrap();
    let bytes = read_until(stream, is_whole);
    let answer: Value = serde_json::from_slice(&bytes).unwrap();
    assert!(answer["error"].is_null() && answer["id"] == "soak", "{method}: {}", answer["error"]);
    answer["result"].clone()
}

/// Whether these bytes end with the end of an object.
fn is_whole(bytes: &[u8]) -> bool {
    bytes.last() == Some(&b'}') && serde_json::from_slice::<Value>(bytes).is_ok()
}

fn database_clients(lab: &Lab, sizes: &Sizes) -> Vec<UnixStream> {
    let names = json!({"Port": [{"columns": ["name"], "select": {"initial": false}}]});
    let client = |n: u32| {
        let mut stream = connect(lab, "db.sock");
        ask(&mut stream, "monitor_cond", &json!(["Open_vSwitch", n, names]));
        stream
    };
    (0..sizes.database).map(client).collect()
}

/// All rows of all tables, and their changes.
fn monitor_all(lab: &Lab) -> (UnixStream, u64) {
    let mut stream = connect(lab, "db.sock");
    let schema = ask(&mut stream, "get_schema", &json!(["Open_vSwitch"]));
    let tables = schema["tables"].as_object().unwrap();
    let every: Value = tables.keys().map(|table| (table.clone(), json!({}))).collect();
    let rows = ask(&mut stream, "monitor", &json!(["Open_vSwitch", "all", every]));
    let ports = rows["Port"].as_object().unwrap().len() as u64;
    (stream, ports)
}

/// The operations, each alone.
fn operations(lab: &mut Lab, sizes: &Sizes) {
    lab.measure("12 s without an operation", |_| std::thread::sleep(Duration::from_secs(12)));
    lab.measure("add a port", |lab| lab.vsctl("add-port br0 fresh -- set Interface fresh type=null"));
    lab.measure("set a column that only others read", |lab| lab.vsctl("set Interface p0 external_ids:a=b"));
    lab.measure("set a column of a port", |lab| lab.vsctl("set Port p0 tag=7"));
    lab.measure("set a column of the bridge", |lab| {
        lab.vsctl("set Bridge br0 other_config:hwaddr=aa:bb:cc:00:00:01")
    });
    lab.measure("delete a port", |lab| lab.vsctl("del-port fresh"));
    let more = sizes.rules..sizes.rules + MANY;
    lab.measure("add 1,000 rules", |lab| lab.rules("add-flows", rules(more.clone(), ",actions=drop")));
    lab.measure("add a rule", |lab| lab.ofctl("add-flow br0 table=2,actions=drop"));
    lab.measure("change 1,000 rules in a bundle", |lab| {
        lab.rules("--bundle add-flows", rules(more.clone(), ",actions=output:60001"));
    });
    lab.measure("delete a rule", |lab| lab.ofctl("del-flows br0 table=2"));
    let count = "ovs-ofctl dump-flows br0 table=1 | grep -c actions=";
    let dumped = lab.measure("ovs-ofctl dump-flows", |lab| {
        lab.daemon.tool("sh").args(["-c", count]).limit(OPERATION_MAX).run().unwrap().stdout
    });
    assert_eq!(dumped.trim(), (sizes.rules + MANY).to_string(), "rules in the list");
    lab.measure("ovs-ofctl dump-aggregate", |lab| lab.ofctl("dump-aggregate br0"));
    lab.measure("ovs-ofctl dump-ports", |lab| lab.ofctl("dump-ports br0"));
    lab.measure("ovs-ofctl show", |lab| lab.ofctl("show br0"));
    let (_client, rows) = lab.measure("a monitor of all tables", |lab| monitor_all(lab));
    assert!(rows >= u64::from(sizes.ports), "{rows} ports");
    lab.measure("ovs-vsctl list Interface", |lab| lab.vsctl("list Interface"));
    let more = sizes.routes..sizes.routes + MANY;
    lab.measure("add 1,000 routes", |lab| lab.ip_batch(routes("add", more.clone())));
    lab.measure("delete 1,000 routes", |lab| lab.ip_batch(routes("del", more)));
    commands(lab, sizes);
    lab.measure("delete all rules", |lab| lab.ofctl("del-flows br0 table=1"));
    lab.measure("dpctl/flush-conntrack", |lab| lab.lines("dpctl/flush-conntrack"));
    assert_eq!(lab.connections(), 0);
}

fn commands(lab: &mut Lab, sizes: &Sizes) {
    for command in [
        "ofproto/trace br0 in_port=1,udp,nw_dst=10.0.0.1",
        "fdb/show br0",
        "coverage/show",
        "memory/show",
        "dpif/show",
        "dpctl/show",
        "dpctl/dump-flows",
        "upcall/show",
        "sluice/status",
        "dpif-netdev/pmd-rxq-show",
        "ovs/route/lookup 11.0.0.9",
    ] {
        lab.command(command);
    }
    let connections = lab.command("dpctl/dump-conntrack");
    assert!(connections >= u64::from(sizes.connections), "{connections} lines of connections");
    lab.command("dpctl/ct-stats-show");
    lab.command("dpctl/flush-conntrack zone=1");
    let shown = lab.command("bridge/dump-flows br0");
    assert!(shown >= u64::from(sizes.rules), "{shown} lines of rules");
    lab.command("ovs/route/show");
}

#[test]
#[ignore = "its state takes gigabytes and minutes; the long check has it"]
fn turns_of_the_main_loop_with_the_state_of_a_large_switch() {
    require_userspace!("the kernel's connections are its own");
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ip");
    let sizes = Sizes::chosen();
    show(&format!("{sizes:?}"));
    show(&format!(
        "operation, its time, its longest turn, the part that took most of that; the aim is {AIM_MS} ms"
    ));
    let mut lab = Lab::new();
    lab.vsctl("add-br br0 -- set Bridge br0 datapath_type=netdev fail_mode=secure");
    lab.measure("add all ports", |lab| ports(lab, &sizes));
    lab.measure("create all connections", |lab| connections(lab, &sizes));
    lab.measure("add all routes", |lab| many_routes(lab, &sizes));
    lab.measure("add all rules", |lab| lab.rules("add-flows", rules(0..sizes.rules, ",actions=drop")));
    let mut openflow = lab.measure("connect all OpenFlow clients", |lab| openflow_clients(lab, &sizes));
    let mut database = lab.measure("connect all database clients", |lab| database_clients(lab, &sizes));
    operations(&mut lab, &sizes);

    // Nobody lost anything: each client has heard of the port that came and went.
    for client in &mut openflow {
        let heard = types(&read_all(client)).iter().filter(|kind| **kind == PORT_STATUS).count();
        assert!(heard >= 2, "{heard} messages of ports");
    }
    for client in &mut database {
        let heard = String::from_utf8(read_all(client)).unwrap();
        assert_eq!(heard.matches("\"fresh\"").count(), 1, "{heard}");
    }
    for counter in [
        "ofconn_event_dropped",
        "ofconn_cut_off",
        "db_session_cut_off",
        "connection_refused",
        "route_refused",
    ] {
        assert_eq!(lab.text(&format!("coverage/read-counter {counter}")), "0\n", "{counter}");
    }
}
