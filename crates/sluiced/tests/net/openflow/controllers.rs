//! Controllers: stock ones over TCP and Unix sockets, roles, fail modes, and Faucet.

use std::path::Path;
use std::time::Duration;

use testkit::{Cmd, Netns, Running, TempDir, require_netns, require_programs, wait_for};

use super::frames::{eth, source, tagged};
use super::{LIMIT, Lab, number_after, received, send};

/// Starts the stock learning-switch controller in a namespace. In OpenFlow 1.5 that program answers no packet, with any
/// switch.
fn testcontroller(lab: &Lab, target: &str) -> Running {
    let tool = lab.daemon.tool("ovs-testcontroller");
    tool.args(["-O", "OpenFlow10,OpenFlow13", "-v", "rconn:dbg", target])
        .args(["--unixctl=none"])
        .spawn()
        .unwrap()
}

fn connected(lab: &Lab, want: bool) {
    wait_for(LIMIT, &format!("is_connected={want}"), || {
        lab.vsctl("--columns=is_connected --bare list Controller") == want.to_string()
    })
    .unwrap_or_else(|why| panic!("{why}\n{}", lab.vsctl("list Controller")));
}

/// Checks that the hosts reach each other through a controller.
fn reach(lab: &Lab) {
    let (one, two) = (lab.host(1), lab.host(2));
    testkit::reachable(&one.netns, two.ipv4.into(), LIMIT).unwrap();
}

/// The database cannot make the switch connect to a socket outside its run directory.
#[test]
fn bridges_connect_only_to_sockets_in_the_run_directory() {
    require_netns!();
    require_programs!("ovs-vsctl");
    let lab = Lab::new(1);
    let elsewhere = TempDir::new("unix").unwrap();
    let run = lab.daemon.rundir().join("");
    std::fs::create_dir(run.join("sub")).unwrap();
    for (path, permitted) in [
        (elsewhere.path().join("x.sock"), false),
        (run.join("../x.sock"), false),
        (run.join("x.sock"), true),
        (run.join("sub/x.sock"), true),
    ] {
        let target = format!("unix:{}", path.display());
        lab.vsctl(&format!("set-controller br0 {target}"));
        let message = if permitted { "No such file" } else { "not permitted" };
        let reported = || lab.vsctl("get controller br0 status").contains(message);
        wait_for(LIMIT, &format!("{message} as the error of {target}"), reported)
            .unwrap_or_else(|why| panic!("{why}\n{}", lab.vsctl("list Controller")));
    }
    // A bare name refers to the run directory.
    let listener = std::os::unix::net::UnixListener::bind(run.join("own.sock")).unwrap();
    lab.vsctl("set-controller br0 unix:own.sock");
    listener.accept().unwrap();
}

#[test]
fn a_learning_controller_works_and_is_reconnected() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-testcontroller");
    let lab = Lab::new(2);
    lab.ofctl("add-flow br0 cookie=0x77,table=9,actions=drop");
    let controller = testcontroller(&lab, "ptcp:6653:127.0.0.1");
    lab.vsctl(
        "set-controller br0 tcp:127.0.0.1:6653 -- set controller br0 max_backoff=1000 inactivity_probe=1000",
    );
    connected(&lab, true);
    reach(&lab);
    let row = lab.vsctl("list Controller");
    assert!(row.contains("role                : other") && row.contains("state=ACTIVE"), "{row}");
    // It installs flows for learned addresses; the first controller had deleted the bridge's own.
    let flows = lab.ofctl("dump-flows br0");
    assert!(flows.contains("idle_timeout=60") && !flows.contains("cookie=0x77"), "{flows}");
    // The controller dies: flows stay (secure), the row shows it; the switch reconnects to a new one.
    drop(controller);
    connected(&lab, false);
    let row = lab.vsctl("list Controller");
    assert!(row.contains("last_error") && (row.contains("BACKOFF") || row.contains("CONNECTING")), "{row}");
    reach(&lab);
    lab.ofctl("del-flows br0");
    let _again = testcontroller(&lab, "ptcp:6653:127.0.0.1");
    connected(&lab, true);
    reach(&lab);
    // Without controllers, in secure mode: no flow, no traffic.
    lab.vsctl("del-controller br0");
    wait_for(LIMIT, "no rules", || lab.dump("OpenFlow13").is_empty()).unwrap();
    let report = testkit::ping(&lab.host(1).netns, lab.host(2).ipv4.into(), 2).unwrap();
    assert_eq!(report.received, 0);
    lab.vsctl("del-fail-mode br0");
    reach(&lab);
    assert_eq!(lab.dump("OpenFlow10"), ["priority=0 actions=NORMAL"]);
}

#[test]
fn a_bridges_device_has_the_address_of_its_controllers_row() {
    require_netns!();
    require_programs!("ovs-vsctl", "ip");
    let lab = Lab::new(1);
    let shown = |what: &str| lab.net.switch.ip(what).unwrap();
    lab.vsctl("set-controller br0 tcp:192.0.2.7:6653 -- set controller br0 local_ip=192.0.2.1 local_gateway=192.0.2.254");
    wait_for(LIMIT, "the address", || shown("addr show br0").contains("inet 192.0.2.1/24 brd 192.0.2.255"))
        .unwrap();
    assert!(shown("link show br0").contains("UP"), "{}", shown("link show br0"));
    wait_for(LIMIT, "the gateway", || shown("route").contains("default via 192.0.2.254 dev br0")).unwrap();
    lab.vsctl("set controller br0 local_ip=198.51.100.1 local_netmask=255.255.255.128");
    wait_for(LIMIT, "the other address", || {
        let shown = shown("addr show br0");
        shown.contains("inet 198.51.100.1/25 ") && !shown.contains("192.0.2.1")
    })
    .unwrap();
    // The row tells a setting that cannot be carried out.
    lab.vsctl("set controller br0 local_gateway=203.0.113.1");
    wait_for(LIMIT, "the error", || {
        let status = lab.vsctl("--if-exists get controller br0 status:local_ip");
        status.contains("cannot configure gateway 203.0.113.1: ") && status.contains("unreachable")
    })
    .unwrap();
}

#[test]
fn several_controllers_are_connected_at_once() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-testcontroller");
    let lab = Lab::new(2);
    let controllers = [6653, 6654].map(|port| testcontroller(&lab, &format!("ptcp:{port}:127.0.0.1")));
    lab.vsctl("set-controller br0 tcp:127.0.0.1:6653 tcp:127.0.0.1:6654 -- set-fail-mode br0 secure");
    let up = || lab.vsctl("--columns=is_connected --bare list Controller").matches("true").count();
    wait_for(LIMIT, "both connected", || up() == 2).unwrap();
    reach(&lab);
    // One controller is sufficient.
    let [first, _second] = controllers;
    drop(first);
    wait_for(LIMIT, "one connected", || up() == 1).unwrap();
    reach(&lab);
}

#[test]
fn garbage_on_a_management_socket_affects_no_other_client() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl");
    let lab = Lab::new(1);
    let socket = lab.daemon.rundir().join("br0.mgmt");
    let hello = [1, 0, 0, 8, 0, 0, 0, 1];
    let junk: [Vec<u8>; 5] = [
        vec![0; 1000],
        vec![0xff; 70_000],
        // A length shorter than the header.
        vec![1, 0, 0, 3, 0, 0, 0, 1],
        // An incomplete message.
        [&hello[..], &[1, 14, 0xff, 0xff, 0, 0, 0, 2]].concat(),
        // An unknown type, repeated.
        [&hello[..], &[1, 200, 0, 8, 0, 0, 0, 9].repeat(5000)].concat(),
    ];
    let mut open = Vec::new();
    for bytes in &junk {
        let mut stream = std::os::unix::net::UnixStream::connect(&socket).unwrap();
        stream.set_nonblocking(true).unwrap();
        // The switch may have disconnected by then.
        let _ = std::io::Write::write(&mut stream, bytes);
        open.push(stream);
        assert!(lab.ofctl("show br0").contains("n_tables:254"));
    }
    lab.ofctl("add-flow br0 actions=normal");
}

#[test]
fn a_bridge_fails_open_to_standalone_mode() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-testcontroller");
    let lab = Lab::new(2);
    lab.vsctl(
        "set-fail-mode br0 standalone -- set-controller br0 tcp:127.0.0.1:6654 \
         -- set controller br0 inactivity_probe=1000 max_backoff=1000",
    );
    // No controller listens: after three probe intervals the hosts reach each other.
    let (one, two) = (lab.host(1), lab.host(2));
    testkit::reachable(&one.netns, two.ipv4.into(), Duration::from_secs(15)).unwrap();
    // The standalone flow is hidden from controllers, and removed when one admits the bridge.
    assert!(lab.dump("OpenFlow10").is_empty(), "{:?}", lab.dump("OpenFlow10"));
    let _controller = testcontroller(&lab, "ptcp:6654:127.0.0.1");
    connected(&lab, true);
    // The standalone flow may pass packets until then.
    wait_for(LIMIT, "a flow of the controller", || {
        reach(&lab);
        lab.ofctl("dump-flows br0").contains("idle_timeout=60")
    })
    .unwrap();
}

/// The controller is a host of the bridge, which has no rules: only those of in-band control connect them.
#[test]
fn a_controller_behind_the_bridge_is_reached_in_band() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ovs-ofctl", "ovs-testcontroller");
    let lab = Lab::new(2);
    let host = lab.host(1);
    let [a, b, c, _] = host.ipv4.octets();
    lab.net.switch.run("ip", &["addr", "add", &format!("{a}.{b}.{c}.200/24"), "dev", "br0"]).unwrap();
    lab.net.switch.run("ip", &["link", "set", "br0", "up"]).unwrap();
    let controller =
        host.netns.cmd("ovs-testcontroller").args(["--unixctl=none", "ptcp:6653"]).spawn().unwrap();
    lab.vsctl(&format!(
        "set-controller br0 tcp:{} -- set controller br0 max_backoff=1000 connection_mode=out-of-band",
        host.ipv4
    ));
    let hidden = || lab.appctl("bridge/dump-flows br0").matches("priority=1800").count();
    let failed = || lab.vsctl("get controller br0 status").contains("last_error");
    wait_for(Duration::from_secs(30), "a failure to connect", failed).unwrap();
    assert_eq!(hidden(), 0);
    lab.vsctl("set controller br0 connection_mode=in-band");
    connected(&lab, true);
    // DHCP, ARP of the bridge's device, of the controller and of the next hop, TCP.
    wait_for(LIMIT, "rules for the next hop", || hidden() == 9).unwrap();
    let rules = lab.appctl("bridge/dump-flows br0");
    let mac = &host.mac;
    assert!(rules.contains(&format!("priority=180004,arp,dl_src={mac},arp_op=2,actions=NORMAL")), "{rules}");
    assert!(!lab.ofctl("dump-flows br0").contains("priority=1800"));
    reach(&lab);
    lab.vsctl("set bridge br0 other_config:disable-in-band=true");
    wait_for(LIMIT, "no hidden rules", || hidden() == 0).unwrap();
    drop(controller);
}

/// A controller that reads nothing but its hello, and sends 300 packets to be sent back.
const FLOOD: &str = "\
import socket, struct
server = socket.create_server(('127.0.0.1', 6658)); server.settimeout(20)
print('listening', flush=True)
c, _ = server.accept(); c.settimeout(20)
out = struct.pack('!IIH6x', 0xffffffff, 1, 16) + struct.pack('!HHIH6x', 0, 16, 0xfffffffd, 0xffff) + bytes(60)
c.sendall(struct.pack('!BBHI', 4, 0, 8, 1) + 300 * (struct.pack('!BBHI', 4, 13, 8 + len(out), 2) + out))
n = 0
data = b''
while n < 50:
    more = c.recv(65536)
    if not more: raise EOFError
    data += more
    while len(data) >= 8 and len(data) >= struct.unpack('!H', data[2:4])[0]:
        n += data[1] == 10
        data = data[struct.unpack('!H', data[2:4])[0]:]
print('received', flush=True)
while c.recv(65536): pass
";

#[test]
fn packets_for_a_controller_obey_its_rate_limit() {
    require_netns!();
    require_programs!("ovs-vsctl", "python3");
    let lab = Lab::new(1);
    let cmd = lab.net.switch.cmd("/usr/bin/python3").args(["-c", FLOOD]);
    let script = cmd.spawn().unwrap();
    let says = |what: &str| {
        wait_for(Duration::from_secs(30), what, || script.stdout().contains(what))
            .unwrap_or_else(|why| panic!("{why}\n{}{}", script.stdout(), script.stderr()));
    };
    says("listening");
    lab.vsctl(
        "set bridge br0 protocols=OpenFlow13 -- set-controller br0 tcp:127.0.0.1:6658 \
         -- set controller br0 controller_rate_limit=100 controller_burst_limit=30 inactivity_probe=0",
    );
    says("received");
    let figure = |key: &str| {
        let status = lab.vsctl(&format!("--if-exists get controller br0 status:packet-in-action-{key}"));
        status.trim_matches('"').parse::<u64>().unwrap_or(0)
    };
    let all = || figure("bypassed") + figure("queued");
    wait_for(LIMIT, "the figures of all packets", || all() == 300 && figure("backlog") == 0).unwrap();
    // The burst passed at once; a part of the rest waited, and another was too much.
    assert!(figure("bypassed") >= 30 && figure("dropped") > 0 && figure("queued") > figure("dropped"));
    assert_eq!(lab.vsctl("get controller br0 status:packet-in-miss-queued"), "\"0\"");
    // Without the limit its figures go, though the connection stays as it is.
    lab.vsctl("clear controller br0 controller_rate_limit");
    let figures_are_gone = || !lab.vsctl("get controller br0 status").contains("packet-in-");
    wait_for(LIMIT, "the figures to go", figures_are_gone).unwrap();
    assert_eq!(lab.vsctl("get controller br0 is_connected"), "true");
}

#[test]
fn passive_controllers_are_accepted() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-testcontroller");
    let lab = Lab::new(2);
    let socket = lab.daemon.rundir().join("br0.ctl");
    lab.vsctl(&format!("set-controller br0 ptcp:6655 punix:{}", socket.display()));
    wait_for(LIMIT, "the listening socket", || testkit::listens(&socket)).unwrap();
    for target in ["tcp:127.0.0.1:6655".to_string(), format!("unix:{}", socket.display())] {
        let tool = || lab.daemon.tool("ovs-ofctl");
        wait_for(LIMIT, &target, || tool().args(["show", &target]).run().is_ok()).unwrap();
        let controller = testcontroller(&lab, &target);
        reach(&lab);
        drop(controller);
        lab.ofctl("del-flows br0");
    }
}

#[test]
fn snoop_shows_both_directions() {
    let sluice = crate::cli::program();
    require_netns!();
    require_programs!(sluice.as_str(), "ovs-vsctl", "ovs-ofctl", "ovs-testcontroller");
    let lab = Lab::new(2);
    let snoop = lab.daemon.tool("ovs-ofctl").args(["snoop", "br0"]).spawn().unwrap();
    let ours = lab.daemon.tool(&sluice).args(["ofctl", "snoop", "br0"]).spawn().unwrap();
    let _controller = testcontroller(&lab, "ptcp:6656:127.0.0.1");
    lab.vsctl("set bridge br0 protocols=OpenFlow10 -- set-controller br0 tcp:127.0.0.1:6656");
    connected(&lab, true);
    reach(&lab);
    let seen = || snoop.stderr() + &snoop.stdout();
    let shows =
        |text: &str| ["OFPT_PACKET_IN", "OFPT_FLOW_MOD", "OFPT_PACKET_OUT"].iter().all(|m| text.contains(m));
    let both = || shows(&seen());
    wait_for(LIMIT, "both directions", both).unwrap_or_else(|why| panic!("{why}\n{}", seen()));
    // Requests of other clients are not shown.
    lab.ofctl("add-flow br0 cookie=0x7777,table=9,actions=drop");
    lab.ofctl("del-flows br0");
    reach(&lab);
    assert!(!seen().contains("0x7777"), "{}", seen());
    // Both tools show the same messages, once both have all, from the time at which the later one came.
    let messages = |text: String| {
        let titles = text.lines().filter(|line| line.contains(" (xid=") && !line.contains("OFPT_HELLO"));
        titles.map(String::from).collect::<Vec<_>>()
    };
    let same = || {
        let (ours, theirs) = (ours.stderr(), snoop.stderr());
        let (a, b) = (messages(ours.clone()), messages(theirs));
        shows(&ours) && (a.ends_with(&b) || b.ends_with(&a))
    };
    wait_for(LIMIT, "the same of both", same)
        .unwrap_or_else(|why| panic!("{why}\n{}\n---\n{}", ours.stderr(), snoop.stderr()));
}

/// A snoop client that does not read, and a controller that sends 24 MB of echoes and receives as much.
const SLOW_WATCHER: &str = "\
import socket, struct, sys
hello = struct.pack('!BBHI', 4, 0, 8, 1)
watcher = socket.socket(socket.AF_UNIX); watcher.settimeout(20); watcher.connect(sys.argv[1]); watcher.sendall(hello)
server = socket.create_server(('127.0.0.1', 6657)); server.settimeout(20)
print('listening', flush=True)
c, _ = server.accept(); c.settimeout(20); c.sendall(hello)
def message():
    data = b''
    while len(data) < 8 or len(data) < struct.unpack('!H', data[2:4])[0]:
        want = 8 if len(data) < 8 else struct.unpack('!H', data[2:4])[0]
        more = c.recv(want - len(data))
        if not more: raise EOFError
        data += more
    return data
for n in range(400):
    c.sendall(struct.pack('!BBHI', 4, 2, 60008, n) + bytes(60000))
    while message()[1] != 3: pass
print('served', flush=True)
total = 0
while True:
    more = watcher.recv(65536)
    if not more: break
    total += len(more)
print('left', total < 24000000, flush=True)
";

#[test]
fn a_stalled_snoop_client_does_not_delay_the_controller() {
    require_netns!();
    require_programs!("ovs-vsctl", "python3");
    let lab = Lab::new(1);
    let socket = lab.daemon.rundir().join("br0.snoop");
    let cmd = lab.net.switch.cmd("/usr/bin/python3").args(["-c", SLOW_WATCHER]).arg(socket);
    let script = cmd.spawn().unwrap();
    let says = |what: &str| {
        wait_for(Duration::from_secs(30), what, || script.stdout().contains(what))
            .unwrap_or_else(|why| panic!("{why}\n{}{}", script.stdout(), script.stderr()));
    };
    says("listening");
    lab.vsctl("set bridge br0 protocols=OpenFlow13 -- set-controller br0 tcp:127.0.0.1:6657");
    says("served");
    says("left True");
}

/// A client of OpenFlow 1.3; each line of its script is a command: see the test below.
const ROLES: &str = "\
import socket, struct, sys
class Peer:
    def __init__(self, path):
        self.s = socket.socket(socket.AF_UNIX); self.s.settimeout(5); self.s.connect(path)
        self.xid = 1
        self.send(0, b'')
    def send(self, kind, body):
        self.xid += 1
        self.s.sendall(struct.pack('!BBHI', 4, kind, 8 + len(body), self.xid) + body)
    def take(self, n):
        data = b''
        while len(data) < n:
            more = self.s.recv(n - len(data))
            if not more: raise EOFError
            data += more
        return data
    def recv(self, *kinds):
        while True:
            _, kind, length, _ = struct.unpack('!BBHI', self.take(8))
            body = self.take(length - 8)
            if kind in kinds: return kind, body
    def role(self, role, generation):
        self.send(24, struct.pack('!I4xQ', role, generation))
        kind, body = self.recv(25, 1)
        if kind == 1: return 'error %d %d' % struct.unpack('!HH', body[:4])
        return 'role %d' % struct.unpack('!I', body[:4])
    def add_flow(self):
        fm = struct.pack('!QQBBHHHIIIHHHH4x', 0, 0, 0, 0, 0, 0, 1, 0xffffffff, 0xffffffff, 0xffffffff, 0, 0, 1, 4)
        self.send(14, fm); self.send(20, b'')
        kind, body = self.recv(21, 1)
        if kind == 1:
            self.recv(21)
            return 'error %d %d' % struct.unpack('!HH', body[:4])
        return 'ok'
a, b = Peer(sys.argv[1]), Peer(sys.argv[1])
print(a.role(0, 0), b.role(0, 0))
print(a.role(2, 5), a.add_flow())
print(b.role(3, 6), b.add_flow())
print(b.role(2, 4))
print(b.role(2, 7), b.add_flow(), a.role(0, 0), a.add_flow())
";

#[test]
fn one_master_at_a_time_and_slaves_are_read_only() {
    require_netns!();
    require_programs!("ovs-vsctl", "python3");
    let lab = Lab::new(1);
    let socket = lab.daemon.rundir().join("br0.mgmt");
    let out = Cmd::new("/usr/bin/python3").args(["-c", ROLES]).arg(socket).run().unwrap();
    // Errors: OFPET_BAD_REQUEST (1), OFPBRC_IS_SECONDARY (10); OFPET_ROLE_REQUEST_FAILED (11), OFPRRFC_STALE (0).
    let expected =
        ["role 1 role 1", "role 2 ok", "role 3 error 1 10", "error 11 0", "role 2 ok role 3 error 1 10"];
    assert_eq!(out.stdout.lines().collect::<Vec<_>>(), expected, "{}", out.stderr);
}

const FAUCET: &str = "\
vlans:
  office: {vid: 100}
  lab: {vid: 200}
acls:
  no-http:
    - rule: {dl_type: 0x800, nw_proto: 6, tcp_dst: 80, actions: {allow: 0}}
    - rule: {actions: {allow: 1}}
dps:
  sw:
    dp_id: DPID
    hardware: Open vSwitch
    group_table: GROUPS
    interfaces:
      1: {native_vlan: office, acls_in: [no-http]}
      2: {native_vlan: office}
      3: {native_vlan: lab}
      4: {tagged_vlans: [office, lab]}
";

/// Starts Faucet with a configuration in the switch's namespace; skips with a message if Faucet is unavailable.
fn faucet(dir: &Path, netns: &Netns) -> Option<Running> {
    let install = || -> anyhow::Result<()> {
        Cmd::new("python3")
            .args(["-m", "venv"])
            .arg(dir.join("venv"))
            .limit(Duration::from_secs(60))
            .run()?;
        let pip = Cmd::new(dir.join("venv/bin/pip")).args(["install", "-q", "faucet"]);
        pip.limit(Duration::from_secs(300)).run().map(drop)
    };
    if let Err(why) = install() {
        eprintln!("SKIP: faucet cannot be installed: {why:#}");
        return None;
    }
    let path = |name: &str| dir.join(name).into_os_string();
    let cmd = Cmd::new(dir.join("venv/bin/faucet")).netns(netns).args(["--ryu-ofp-tcp-listen-port", "6653"]);
    // It starts a program installed beside it.
    let mut path_list = dir.join("venv/bin").into_os_string();
    path_list.push(":");
    path_list.push(std::env::var_os("PATH").unwrap_or_default());
    let cmd = cmd.env("PATH", path_list).env("OSKEN_HUB_TYPE", "eventlet");
    let cmd = cmd.env("FAUCET_CONFIG", path("faucet.yaml")).env("FAUCET_LOG", path("faucet.log"));
    let cmd = cmd.env("FAUCET_EXCEPTION_LOG", path("exception.log")).env("FAUCET_EVENT_SOCK", "");
    Some(cmd.env("FAUCET_PROMETHEUS_ADDR", "127.0.0.1").spawn().unwrap())
}

#[test]
fn faucet_forwards_between_vlans_and_enforces_its_acl() {
    faucet_session(false);
}

#[test]
fn faucet_floods_by_groups() {
    faucet_session(true);
}

/// Hosts in VLANs, a trunk and an access list; `groups`: a group for each VLAN floods it.
fn faucet_session(groups: bool) {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "python3", "iperf3");
    if !testkit::long() {
        eprintln!("SKIP: Faucet runs with SLUICE_LONG=1");
        return;
    }
    let lab = Lab::new(4);
    let dir = TempDir::new("faucet").unwrap();
    let dpid = lab.vsctl("get bridge br0 datapath_id").replace('"', "");
    let yaml = FAUCET.replace("DPID", &format!("0x{dpid}")).replace("GROUPS", &groups.to_string());
    std::fs::write(dir.path().join("faucet.yaml"), yaml).unwrap();
    let Some(faucet) = faucet(dir.path(), &lab.net.switch) else { return };
    lab.vsctl("set bridge br0 protocols=OpenFlow13 -- set-controller br0 tcp:127.0.0.1:6653");
    let log = || std::fs::read_to_string(dir.path().join("faucet.log")).unwrap_or_default();
    let logs = || format!("{}\n{}\n{}", log(), faucet.stderr(), lab.ofctl("-O OpenFlow13 dump-flows br0"));
    wait_for(Duration::from_secs(60), "Faucet's rules", || {
        log().contains("Cold start complete") || lab.dump("OpenFlow13").len() > 20
    })
    .unwrap_or_else(|why| panic!("{why}\n{}", logs()));
    let [one, two, three, four] = &lab.net.hosts[..] else { panic!("four hosts") };
    testkit::reachable(&one.netns, two.ipv4.into(), Duration::from_secs(20))
        .unwrap_or_else(|why| panic!("{why}\n{}", logs()));
    // VLANs are isolated; the trunk carries both, tagged.
    assert_eq!(testkit::ping(&one.netns, three.ipv4.into(), 2).unwrap().received, 0, "{}", logs());
    let [two_sees, three_sees, trunk] = [2, 3, 4].map(|n| lab.watch(n));
    let frame = |n: u8| eth("ffffffffffff", &source(n), "88b5");
    send(one, &[frame(1)]);
    send(three, &[frame(3)]);
    // On the trunk, one host per VLAN.
    wait_for(LIMIT, "both frames on the trunk", || received(&trunk.lines()).len() >= 2)
        .unwrap_or_else(|why| panic!("{why}\n{}", logs()));
    send(
        four,
        &[tagged("ffffffffffff", &source(4), 100, "88b5"), tagged("ffffffffffff", &source(5), 200, "88b5")],
    );
    two_sees.wait_for("02aa 0000 0004", LIMIT).unwrap();
    three_sees.wait_for("02aa 0000 0005", LIMIT).unwrap();
    let sources = |c: testkit::Capture| -> Vec<String> {
        received(&c.stop().unwrap()).iter().map(|f| f[12..].chars().take(20).collect()).collect()
    };
    let untagged = |n: u8| format!("{}88b50000", source(n));
    let on_trunk = |n: u8, vid: u16| format!("{}8100{vid:04x}", source(n));
    assert_eq!(sources(two_sees), [untagged(1), untagged(4)]);
    assert_eq!(sources(three_sees), [untagged(5)]);
    let mut tags = sources(trunk);
    tags.sort();
    assert_eq!(tags, [on_trunk(1, 100), on_trunk(3, 200)]);
    // Port 80 of host 2 is blocked for host 1; another port is not.
    let get = |port: &str| {
        let script =
            "import socket,sys; s=socket.create_connection((sys.argv[1],int(sys.argv[2])),2); print('open')";
        let out =
            one.netns.cmd("python3").args(["-c", script, &two.ipv4.to_string(), port]).output().unwrap();
        out.stdout.contains("open")
    };
    let _servers = [80, 81].map(|port| testkit::iperf3_server(&two.netns, port).unwrap());
    assert!(get("81"), "{}", logs());
    assert!(!get("80"), "{}", logs());
    let errors = log();
    // (It logs an error if a packet arrives before it has configured the switch.)
    assert!(!errors.contains("OFPErrorMsg") && !errors.contains("OFError"), "{errors}");
    let flows = lab.ofctl("-O OpenFlow13 dump-flows br0 tcp,tp_dst=80");
    assert!(number_after(&flows, "n_packets=") > 0, "{flows}");
    let stats = lab.ofctl("-O OpenFlow13 dump-group-stats br0");
    let packets =
        stats.lines().filter(|line| line.contains("group_id=")).map(|l| number_after(l, "packet_count="));
    assert_eq!(packets.filter(|count| *count > 0).count() == 2, groups, "{stats}");
}
