//! The stock `ovs-ofctl` against the connection manager and the stock switch: the same commands, the same output.
//!
//! The connection manager listens on a Unix socket in a temporary directory, driven by a small loop; its datapath
//! sends nothing, but passes packets for controllers up. The stock switch runs with dummy ports.
#![allow(clippy::disallowed_methods, reason = "a test that speaks with real programs does I/O")]

#[path = "support/recording.rs"]
mod recording;
#[path = "support/verbs.rs"]
mod verbs;

use connmgr::{BridgeCtx, ConnId, ConnKind, Connmgr, FailMode, RemoteConfig};
use dpif::actions::Userspace;
use dpif::{DpAction, DpifError, PortStats, UserCookie};
use flow::{DpPort, MacAddr, OfPort};
use ofproto::backer::Backer;
use ofproto::events::PacketInEvent;
use ofproto::ports::{
    Bundle, BundleId, Port, PortConfigBits, PortCounters, PortTable, PriorityTags, VlanMode,
};
use openflow::VersionSet;
use openflow::msg::stats::SwitchDesc;
use recording::RecordingDatapath;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use testkit::{Daemon, DaemonSpec, RunDir, require_programs, wait_for};
use verbs::VERBS;

/// Ports with zero counters, which do not count their drops.
fn port_stats(_: DpPort) -> Result<PortStats, DpifError> {
    let unknown = u64::MAX;
    Ok(PortStats {
        rx_dropped: unknown,
        rx_errors: unknown,
        tx_dropped: unknown,
        tx_errors: unknown,
        ..PortStats::default()
    })
}

fn ports() -> PortTable {
    let mut table = PortTable::default();
    for (of_port, dp, name, mac) in
        [(OfPort::LOCAL, 0, "br0", 0), (OfPort(1), 1, "p1", 2), (OfPort(2), 2, "p2", 1)]
    {
        let bundle = BundleId(dp + 1);
        let port = Port {
            of_port,
            dp_port: Some(DpPort(dp)),
            name: name.to_string(),
            type_name: String::new(),
            mac: MacAddr([0xaa, 0x55, 0xaa, 0x55, 0, mac]),
            bundle,
            patch_peer: None,
            counters: Arc::new(PortCounters::default()),
            tunnel: None,
            config: PortConfigBits::default(),
            link_down: false,
            links: Vec::new(),
            queue_dscp: Default::default(),
            features: Default::default(),
        };
        table.ports.insert(of_port, Arc::new(port));
        let bundle = Bundle {
            id: bundle,
            name: name.to_string(),
            members: vec![of_port],
            vlan_mode: VlanMode::Trunk,
            tag: 0,
            trunks: None,
            cvlans: None,
            qinq_tpid: 0x88a8,
            mcast_flood: false,
            mcast_flood_reports: false,
            priority_tags: PriorityTags::Never,
            protected: false,
            floodable: true,
            bond: None,
        };
        table.bundles.insert(bundle.id, Arc::new(bundle));
    }
    table
}

/// The connection manager behind a socket.
struct Ours {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    dir: RunDir,
}

impl Ours {
    fn start() -> Ours {
        let dir = RunDir::new("connmgr").unwrap();
        let listener = UnixListener::bind(dir.join("br0.mgmt")).unwrap();
        listener.set_nonblocking(true).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = stop.clone();
        let thread = std::thread::spawn(move || serve(&listener, &stopping));
        Ours { stop, thread: Some(thread), dir }
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(ended.is_some_and(|e| e.is_ok()) || std::thread::panicking(), "the switch failed");
    }
}

fn serve(listener: &UnixListener, stop: &AtomicBool) {
    let backer = Backer::new(1);
    let bridge = backer.add_bridge("br0");
    backer.set_ports(bridge, ports());
    let datapath = RecordingDatapath::new(port_stats);
    let desc = SwitchDesc {
        manufacturer: "Nicira, Inc.".to_string(),
        hardware: "Open vSwitch".to_string(),
        software: "3.1.0".to_string(),
        serial: "None".to_string(),
        datapath: "None".to_string(),
    };
    let ctx = BridgeCtx {
        backer: &backer,
        datapath: &datapath,
        bridge,
        datapath_id: 0xfedc_ba98_7654_3210,
        desc: &desc,
    };
    let start = Instant::now();
    let now = || start.elapsed().as_millis() as u64 + 1_000_000;
    let mut manager = Connmgr::new();
    let config = RemoteConfig { fail_mode: FailMode::Secure, ..RemoteConfig::default() };
    manager.configure(config, &ctx, now());
    let mut streams: Vec<(ConnId, UnixStream)> = Vec::new();
    while !stop.load(Ordering::Acquire) {
        if let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(true).unwrap();
            streams.push((manager.open(ConnKind::Service, VersionSet::IMPLEMENTED, now()), stream));
        }
        streams.retain_mut(|(id, stream)| {
            let alive = exchange(&mut manager, *id, stream, now());
            if !alive {
                manager.close(*id, &ctx, now());
            }
            alive
        });
        for e in std::mem::take(&mut *datapath.executed.lock().unwrap()) {
            hand_up(&mut manager, &backer, &e, now());
        }
        manager.run(&ctx, now());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn exchange(manager: &mut Connmgr, id: ConnId, stream: &mut UnixStream, now_ms: u64) -> bool {
    let mut buf = [0; 4096];
    while manager.wants_input(id) {
        match stream.read(&mut buf) {
            Ok(0) => return false,
            Ok(n) => manager.input(id, &buf[..n], now_ms),
            Err(e) if e.kind() == ErrorKind::WouldBlock => break,
            Err(_) => return false,
        }
    }
    while !manager.output(id).is_empty() {
        match stream.write(manager.output(id)) {
            Ok(n) => manager.consume_output(id, n),
            Err(e) if e.kind() == ErrorKind::WouldBlock => break,
            Err(_) => return false,
        }
    }
    manager.close_reason(id).is_none() || !manager.output(id).is_empty()
}

fn hand_up(manager: &mut Connmgr, backer: &Backer, e: &dpif::Execute, now_ms: u64) {
    for action in e.actions.iter() {
        if let DpAction::Userspace(Userspace(UserCookie::Controller(cookie))) = action {
            let state = backer.recirc_state(cookie.recirc_id).unwrap();
            let paused_in = cookie.continuation.then(|| backer.bridge_uuid(state.bridge));
            let (packet, cookie) = (e.packet.clone(), *cookie);
            manager
                .deliver_packet_in(&PacketInEvent { state, cookie, packet, key: e.key, paused_in }, now_ms);
        }
    }
}

/// The stock switch with the same bridge.
struct Stock {
    dir: RunDir,
    _daemons: Vec<Daemon>,
}

impl Stock {
    fn start() -> Stock {
        let dir = RunDir::new("stock").unwrap();
        let spec = |program: &Path| Ok(DaemonSpec::new(program)?.rundir(&dir));
        let daemons = testkit::start_stock(spec, "ovs-vswitchd", &[], [&[], &["--enable-dummy"]]).unwrap();
        let set_up = "add-br br0 -- set bridge br0 datapath_type=dummy fail_mode=secure \
            other-config:datapath-id=fedcba9876543210 other-config:hwaddr=aa:55:aa:55:00:00 \
            -- add-port br0 p1 -- set interface p1 type=dummy ofport_request=1 \
            -- add-port br0 p2 -- set interface p2 type=dummy ofport_request=2";
        dir.ovs("ovs-vsctl", &set_up.split_whitespace().collect::<Vec<_>>()).unwrap();
        Stock { dir, _daemons: daemons }
    }
}

/// Output and errors of a command, without parts that differ between any two runs.
fn run(dir: &RunDir, args: &[&str], input: &str) -> String {
    let out = dir.tool("ovs-ofctl", None).args(args.iter().copied()).input(input).output().unwrap();
    let mut text = String::new();
    for line in out.stdout.lines().chain(out.stderr.lines()) {
        let line = line.split_once("|WARN|").map_or(line, |(_, l)| l);
        // Counters of their own that dummy devices invent.
        if line.trim_start().starts_with("CUSTOM")
            || line.contains("_q0_packets=")
            || line.contains("rx_custom")
        {
            continue;
        }
        // The age since the last change is shown if it differs from the rule's own, in whole seconds.
        let words = line.split(' ').filter(|word| !word.starts_with("hard_age="));
        let words: Vec<String> = words.map(normal).collect();
        text += &words.join(" ");
        text.push('\n');
    }
    text.push_str(&format!("{}\n", out.status.success()));
    text
}

fn normal(word: &str) -> String {
    for (key, end) in [
        ("duration=", ","),
        ("duration=", ""),
        ("duration:", ""),
        ("(xid=", ""),
        ("idle_age=", ","),
        ("time=", ""),
    ] {
        if word.starts_with(key) && word.ends_with(end) {
            return format!("{key}X");
        }
    }
    // A group: "group_id=1,duration=0.1s,ref_count=0…".
    if let Some((before, after)) = word.split_once(",duration=") {
        return format!("{before},{}", after.split_once(',').map_or("", |(_, rest)| rest));
    }
    // A removed rule: "duration.016s".
    if word.starts_with("duration") { "duration".to_string() } else { word.to_string() }
}

const PACKET: &str = "ffffffffffffaa55aa55000208004500002a00000000401100000a0000010a000002000100020016\
    00000000000000000000000000000000000000000000";
const ARP: &str = "ffffffffffffaa55aa55000208060001080006040001000000000000000000000000000000000000\
    00000000000000000000000000000000";

/// Commands run in order on both; a version is the argument of `-O`.
const COMMANDS: &str = "\
show br0
O13 show br0
dump-desc br0
get-frags br0
dump-tables br0
O13 dump-tables br0
dump-ports br0
dump-ports br0 1
dump-ports br0 p2
dump-ports br0 77
O13 dump-ports br0
dump-ports-desc br0
O13 dump-ports-desc br0
O13 dump-ports-desc br0 2
dump-flows br0
O13 dump-flows br0
add-flow br0 priority=5,tcp,nw_src=10.0.0.0/8,tp_dst=80,actions=load:0x5->NXM_NX_REG1[],resubmit(,3)
add-flow br0 cookie=0x77,idle_timeout=60,hard_timeout=600,send_flow_rem,priority=6,arp,actions=NORMAL
add-flow br0 table=3,reg1=5,actions=dec_ttl,mod_dl_dst:aa:bb:cc:dd:ee:ff,output:2
add-flow br0 table=4,ipv6,ipv6_dst=2001:db8::/32,actions=drop
O13 add-flow br0 cookie=9,table=1,priority=3,in_port=p1,dl_vlan=5,actions=pop_vlan,set_field:7->metadata,goto_table:2
O13 add-flow br0 table=2,udp,actions=write_actions(set_field:10.1.1.1->ip_src,output:1),write_metadata:0x1/0xff
O13 add-flow br0 table=2,priority=0,actions=controller
add-flow br0 table=5,priority=7,ip,actions=learn(table=6,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])
dump-flows br0
O13 dump-flows br0
dump-flows br0 table=3
dump-flows br0 cookie=0x77/-1
dump-flows br0 out_port=2
dump-flows br0 tcp
-F openflow10 dump-flows br0
dump-aggregate br0
O13 dump-aggregate br0
dump-aggregate br0 table=2
dump-tables br0
O13 dump-tables br0
packet-out br0 in_port=1,packet=PACKET,actions=resubmit(,2)
packet-out br0 in_port=1,packet=ARP,actions=table
O13 packet-out br0 in_port=controller,packet=ARP,actions=table
dump-flows br0 table=0
O13 dump-flows br0 table=2
dump-aggregate br0
mod-flows br0 arp,actions=drop
mod-flows br0 table=3,cookie=4,actions=output:1
--strict mod-flows br0 table=9,priority=4,ip,actions=output:1
O13 mod-flows br0 table=10,actions=output:1
O13 mod-flows br0 reset_counts,cookie=0x77/-1,actions=output:1
dump-flows br0
O13 dump-flows br0
add-flow br0 check_overlap,priority=5,tcp,actions=drop
add-flow br0 table=254,actions=drop
O13 add-flow br0 table=1,actions=meter:5
add-flow br0 actions=output:65400
O13 --bundle add-flow br0 table=20,ip,actions=output:1
O13 --bundle add-flows br0 -
O13 --bundle mod-flows br0 table=20,actions=output:2
O13 --bundle del-flows br0 table=21,udp
O13 dump-flows br0 table=20
O13 dump-flows br0 table=21
O13 replace-flows br0 -
O13 dump-flows br0
del-flows br0 table=3
--strict del-flows br0 priority=0
del-flows br0 out_port=1
O13 del-flows br0 cookie=0x9/-1
dump-flows br0
O13 add-meter br0 meter=1,kbps,burst,band=type=drop,rate=100,burst_size=50
O13 add-meter br0 meter=2,pktps,band=type=drop,rate=10
O13 add-meter br0 meter=2,pktps,band=type=drop,rate=10
O13 add-meter br0 meter=3,kbps,band=type=dscp_remark,rate=10,prec_level=1
O13 mod-meter br0 meter=2,pktps,band=type=drop,rate=20
O13 mod-meter br0 meter=7,pktps,band=type=drop,rate=20
O13 add-flow br0 table=30,actions=meter:2,output:1
O13 dump-meters br0
O13 dump-meter br0 meter=2
O13 dump-flows br0 table=30
O13 del-meter br0 meter=2
O13 dump-flows br0 table=30
O13 del-meters br0
O13 dump-meters br0
O13 dump-groups br0
O13 dump-group-stats br0
dump-groups br0
dump-group-stats br0
O13 del-groups br0
mod-port br0 p1 no-flood
mod-port br0 p1 no-forward
show br0
O13 show br0
mod-port br0 p1 flood
O13 mod-port br0 p1 forward
dump-ports-desc br0
mod-port br0 77 down
O13 mod-table br0 1 controller
O13 queue-stats br0 77
queue-get-config br0 77
ping br0 10
del-flows br0
O13 dump-flows br0
";

/// Completes a line of [`COMMANDS`].
fn arguments(line: &str) -> Vec<String> {
    let line = line.replace("PACKET", PACKET).replace("ARP", ARP);
    let line = match line.strip_prefix("O1").and_then(|rest| rest.split_once(' ')) {
        Some((minor, rest)) => format!("-O OpenFlow1{minor} {rest}"),
        None => line,
    };
    line.split(' ').map(str::to_string).collect()
}

const FILE: &str =
    "table=21,udp,actions=output:1\nadd table=21,tcp,actions=output:2\ndelete table=21,priority=1\n";
const REPLACED: &str =
    "table=20,ip,actions=output:2\ntable=0,priority=0,actions=NORMAL\ncookie=9 table=1,arp,actions=1\n";

#[test]
fn stock_ofctl_sees_no_difference_to_the_stock_switch() {
    require_programs!("ovs-ofctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool", "ovs-vsctl");
    let (ours, stock) = (Ours::start(), Stock::start());
    let differences = differences(&ours, &stock, COMMANDS.lines().map(str::to_string));
    assert!(differences.is_empty(), "{differences}");
}

#[test]
fn every_verb_answers_alike_in_every_version() {
    require_programs!("ovs-ofctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool", "ovs-vsctl");
    let (ours, stock) = (Ours::start(), Stock::start());
    let in_version = |version| VERBS.lines().map(move |line| format!("O{version} {line}"));
    // Bundles ask for a version themselves.
    let unversioned = ["--bundle add-flow br0 table=12,tcp,actions=output:1", "dump-flows br0"];
    let lines = (10..=15).flat_map(in_version).chain(unversioned.map(str::to_string));
    let differences = differences(&ours, &stock, lines);
    assert!(differences.is_empty(), "{differences}");
}

/// Commands with different answers.
fn differences(ours: &Ours, stock: &Stock, lines: impl Iterator<Item = String>) -> String {
    let mut differences = String::new();
    for line in lines {
        let line = line.as_str();
        let args = arguments(line);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let input =
            if line.contains("replace-flows") || line.contains("diff-flows") { REPLACED } else { FILE };
        let (got, want) = (run(&ours.dir, &args, input), run(&stock.dir, &args, input));
        let mut sorted = [&got, &want].map(|t| t.lines().collect::<Vec<_>>());
        if line.contains("dump-flows") || line.contains("dump-group") {
            // Rules of a table have no defined order, nor have groups.
            sorted.iter_mut().for_each(|t| t.sort_unstable());
        }
        if sorted[0] != sorted[1] {
            differences += &format!("$ ovs-ofctl {line}\n--- ours\n{got}--- stock\n{want}\n");
        }
    }
    differences
}

/// Commands whose effects a monitor prints.
const MONITORED: [&str; 11] = [
    "add-flow br0 table=2,priority=0,actions=controller(userdata=03)",
    "add-flow br0 cookie=7,table=2,priority=9,udp,actions=load:5->NXM_NX_REG1[],controller(userdata=01.02)",
    "packet-out br0 in_port=1,packet=PACKET,actions=resubmit(,2)",
    "packet-out br0 in_port=1,packet=ARP,actions=resubmit(,2)",
    "packet-out br0 in_port=1,packet=ARP,actions=table",
    "packet-out br0 in_port=1,packet=ARP,actions=controller(id=5)",
    "mod-port br0 p2 no-flood",
    "mod-port br0 p2 flood",
    "add-flow br0 cookie=8,send_flow_rem,table=2,priority=9,tcp,tp_dst=5,actions=drop",
    "del-flows br0",
    "packet-out br0 in_port=local,packet=PACKET,actions=controller",
];

/// Output of `ovs-ofctl monitor` during events.
fn monitored(dir: &RunDir, args: &[&str]) -> String {
    let monitor = dir.tool("ovs-ofctl", None).arg("monitor").args(args.iter().copied()).spawn().unwrap();
    let poke = format!("packet-out br0 in_port=2,packet={ARP},actions=controller");
    let poke: Vec<&str> = poke.split(' ').collect();
    let poke: (&dyn Fn(), _) = (&|| drop(run(dir, &poke, "")), "in_port=2 (via");
    let limit = Duration::from_secs(20);
    let act = || {
        for line in MONITORED {
            let args = arguments(line);
            let out = run(dir, &args.iter().map(String::as_str).collect::<Vec<_>>(), "");
            assert_eq!(out, "true\n", "{line}");
            if line.starts_with("del-flows") {
                // The stock switch may report removals later than packets.
                wait_for(limit, "the removal", || monitor.stderr().contains("FLOW_REMOVED")).unwrap();
            }
        }
    };
    let text = testkit::monitored(&monitor, poke, act, "in_port=LOCAL", limit).unwrap();
    let mut told = String::new();
    for line in text.lines() {
        let words: Vec<String> = line.split(' ').map(normal).collect();
        told += &words.join(" ");
        told.push('\n');
    }
    told
}

#[test]
fn monitors_print_the_same_as_with_the_stock_switch() {
    require_programs!("ovs-ofctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool", "ovs-vsctl");
    let (ours, stock) = (Ours::start(), Stock::start());
    for args in [
        &["br0", "65534"][..],
        &["-O", "OpenFlow13", "br0", "128"],
        &["-P", "standard", "br0", "128"],
        &["-P", "nxt_packet_in", "br0", "128"],
        &["-P", "standard", "-O", "OpenFlow11", "br0", "128"],
        &["-P", "standard", "-O", "OpenFlow12", "br0", "128"],
        &["-P", "standard", "-O", "OpenFlow13", "br0", "128"],
        &["-P", "standard", "-O", "OpenFlow14", "br0", "128"],
        &["-O", "OpenFlow15", "br0", "128"],
    ] {
        let (got, want) = (monitored(&ours.dir, args), monitored(&stock.dir, args));
        assert_eq!(got, want, "monitor {args:?}");
    }
}

#[test]
fn table_features_are_understood_and_fast() {
    require_programs!("ovs-ofctl");
    let ours = Ours::start();
    let text = run(&ours.dir, &["-O", "OpenFlow13", "dump-table-features", "br0"], "");
    assert!(
        text.contains("table 0:") && text.contains("tables 1...252: ditto") && text.ends_with("true\n"),
        "{text}"
    );
    assert!(text.contains("next tables: 1-253") && text.contains("max_entries=1000000"), "{text}");
}
