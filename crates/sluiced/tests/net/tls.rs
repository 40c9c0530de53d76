//! TLS with the stock tools, controllers and database server, and certificates of the stock `ovs-pki`: in each
//! direction, with foreign and changed certificates, bootstrap, and clients that complete no handshake.

use std::io::Read as _;
use std::net::TcpStream;

use testkit::{
    Cmd, Daemon, Netns, Pki, RunDir, Running, Signal, patience, require_netns, require_programs, wait_for,
};

use crate::helpers::{
    LIMIT, PYTHON, SLUICED, appctl, descriptors, descriptors_now, spec, vsctl, vsctl_output, wait_log,
    wait_until,
};

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
const OPENFLOW: &str = "ssl:127.0.0.1:6653";
const DATABASE: &str = "ssl:127.0.0.1:6640";

/// A switch without devices that listens for TLS, and clients' certificates.
struct Lab {
    pki: Pki,
    netns: Netns,
    daemon: Daemon,
}

fn set_ssl(pki: &Pki, ca: &str) -> String {
    let [key, cert] = pki.pair("sw");
    format!("set-ssl {key} {cert} {ca}")
}

impl Lab {
    fn new(line: &str) -> Lab {
        let (pki, netns) = (Pki::new().unwrap(), Netns::new("tls").unwrap());
        let daemon = spec(&netns).args(["--enable-dummy"]).start().unwrap();
        let ssl = set_ssl(&pki, &pki.ca("controller"));
        vsctl(&daemon, &format!("{ssl} -- add-br br0 -- set bridge br0 datapath_type=dummy {line}"));
        Lab { pki, netns, daemon }
    }

    /// A stock tool with the options of a certificate and a trusted authority.
    fn tool(&self, tool: &str, name: &str, authority: &str) -> Cmd {
        self.daemon.tool(tool).args(["--timeout=20"]).args(self.pki.options(name, authority))
    }

    /// Whether `ovs-ofctl show` succeeds, and its messages.
    fn show(&self, name: &str, authority: &str) -> (bool, String) {
        let out = self.tool("ovs-ofctl", name, authority).args(["show", OPENFLOW]).output().unwrap();
        (out.status.success(), out.stderr)
    }

    fn controller(&self) -> Running {
        self.daemon
            .tool("ovs-testcontroller")
            .args(self.pki.options("ctl", "switch"))
            .args(["--peer-ca-cert", &self.pki.ca("controller"), "--unixctl=none", "pssl:6654:127.0.0.1"])
            .spawn()
            .unwrap()
    }

    fn counter(&self, name: &str) -> u64 {
        let shown = appctl(&self.daemon, "coverage/show");
        let line = shown.lines().find(|line| line.split_whitespace().next() == Some(name));
        line.and_then(|line| line.rsplit_once(": ")?.1.trim().parse().ok()).unwrap_or(0)
    }
}

#[test]
fn stock_tools_connect_over_tls() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ovs-ofctl", "ovsdb-client", "ovs-pki", "openssl");
    let lab = Lab::new("-- set-controller br0 pssl:6653:127.0.0.1 -- set-manager pssl:6640:127.0.0.1");
    let ofctl = |line: &str| {
        let out = lab.tool("ovs-ofctl", "ctl", "switch").args(line.split_whitespace()).run();
        out.unwrap().stdout
    };
    ofctl(&format!("add-flow {OPENFLOW} priority=7,in_port=3,actions=drop"));
    assert!(ofctl(&format!("dump-flows {OPENFLOW}")).contains("priority=7,in_port=3 actions=drop"));
    // Replies of more than a record.
    let flows: Vec<String> = (0..3000).map(|n| format!("table=1,priority={n},actions=drop\n")).collect();
    let add = lab.tool("ovs-ofctl", "ctl", "switch").args(["add-flows", OPENFLOW, "-"]);
    add.input(flows.concat()).run().unwrap();
    assert_eq!(ofctl(&format!("dump-flows {OPENFLOW} table=1")).matches("actions=drop").count(), 3000);
    let vsctl_there = |line: &str| {
        let db = format!("--db={DATABASE}");
        let vsctl = lab.tool("ovs-vsctl", "ctl", "switch").args([&db]).args(line.split_whitespace());
        vsctl.run().unwrap().stdout
    };
    vsctl_there("add-br br1 -- set bridge br1 datapath_type=dummy");
    assert_eq!(vsctl_there("list-br"), "br0\nbr1\n");
    let dbs = lab.tool("ovsdb-client", "ctl", "switch").args(["list-dbs", DATABASE]).run().unwrap();
    assert_eq!(dbs.stdout.split_whitespace().collect::<Vec<_>>(), ["Open_vSwitch", "_Server"]);
    let ssl = vsctl_there("get-ssl");
    assert!(ssl.contains("sw-privkey.pem") && ssl.contains("Bootstrap: false"), "{ssl}");

    // A certificate by another authority, none, and no TLS: each is refused, with a line in the log.
    assert!(!lab.show("sw", "switch").0);
    wait_log(&lab.daemon, "SSL_accept: error:0A000086:SSL routines::certificate verify failed");
    let client = ["s_client", "-connect", "127.0.0.1:6653"];
    // Its outcome depends on the version of TLS.
    let _any = lab.netns.cmd("openssl").args(client).input("").output().unwrap();
    wait_log(&lab.daemon, "SSL_accept: error:0A0000C7:SSL routines::peer did not return a certificate");
    // Its first bytes are HELLO of OpenFlow, and JSON.
    for (tool, line, kind) in [
        ("ovs-ofctl", "show tcp:127.0.0.1:6653", "OpenFlow"),
        ("ovsdb-client", "list-dbs tcp:127.0.0.1:6640", "JSON-RPC"),
    ] {
        let plain = lab.daemon.tool(tool).args(["--timeout=20"]).args(line.split_whitespace());
        assert!(!plain.output().unwrap().status.success());
        wait_log(&lab.daemon, &format!("received {kind} data on a TLS connection"));
    }
    // The client does not trust the switch.
    let (ok, why) = lab.show("ctl", "controller");
    assert!(!ok && why.contains("certificate verify failed"), "{why}");
    assert!(lab.show("ctl", "switch").0);

    // Without keys nothing is served; the rows show the reason.
    vsctl(&lab.daemon, "del-ssl");
    assert!(!lab.show("ctl", "switch").0);
    wait_log(&lab.daemon, "SSL/TLS is not usable: no private key is configured");
    let shown =
        |row: &str| vsctl(&lab.daemon, &format!("--columns=status list {row}")).contains("no private key");
    wait_for(LIMIT, "the rows to show it", || shown("Controller") && shown("Manager")).unwrap();
    vsctl(&lab.daemon, &set_ssl(&lab.pki, &lab.pki.ca("controller")));
    assert!(lab.show("ctl", "switch").0);
}

#[test]
fn changed_certificates_are_used_without_a_restart() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ovs-ofctl", "ovs-pki", "openssl");
    let lab = Lab::new("-- set-controller br0 pssl:6653:127.0.0.1");
    assert!(lab.show("ctl", "switch").0);
    // From now on by the other authority: clients must trust that one.
    lab.pki.issue("sw", "controller").unwrap();
    assert!(!lab.show("ctl", "switch").0);
    let (ok, why) = lab.show("ctl", "controller");
    assert!(ok, "{why}");
    // A file that is gone: the former one stays in force.
    let [_, cert] = lab.pki.pair("sw");
    std::fs::remove_file(&cert).unwrap();
    wait_log(&lab.daemon, "No such file or directory; the former files stay in force");
    assert!(lab.show("ctl", "controller").0);
    let broken = || vsctl(&lab.daemon, "--columns=status list Controller").contains("No such file");
    wait_for(LIMIT, "the row to show it", broken).unwrap();
    lab.pki.issue("sw", "switch").unwrap();
    wait_for(LIMIT, "the new certificate", || lab.show("ctl", "switch").0).unwrap();
    wait_for(LIMIT, "the row to be clean", || !broken()).unwrap();
}

#[test]
fn the_switch_connects_to_controllers_over_tls() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ovs-testcontroller", "ovs-pki", "openssl");
    let lab = Lab::new("-- set-controller br0 ssl:127.0.0.1:6654 -- set controller br0 max_backoff=1000");
    let controller = lab.controller();
    wait_until(&lab.daemon, "Controller br0 is_connected=true");
    controller.stop(Signal::TERM, LIMIT).unwrap();
    wait_until(&lab.daemon, "Controller br0 is_connected=false");
    // It no longer trusts the controller's authority.
    vsctl(&lab.daemon, &set_ssl(&lab.pki, &lab.pki.ca("switch")));
    let _controller = lab.controller();
    wait_log(&lab.daemon, "SSL_connect: error:0A000086:SSL routines::certificate verify failed");
    wait_until(&lab.daemon, "Controller br0 status:last_error!=[]");
    let error = vsctl(&lab.daemon, "get Controller br0 status:last_error");
    assert!(error.contains("Protocol error: certificate verify failed"), "{error}");
    // Files that do not exist.
    vsctl(&lab.daemon, "set-ssl /none/key /none/cert /none/ca");
    let missing =
        || vsctl(&lab.daemon, "get Controller br0 status:last_error").contains("Protocol not available");
    wait_for(LIMIT, "the reason", missing).unwrap();
    // The CA certificate is taken from the first connection, which ends.
    let ca = lab.pki.path("taken.pem");
    vsctl(&lab.daemon, &format!("--bootstrap {}", set_ssl(&lab.pki, &ca.display().to_string())));
    wait_until(&lab.daemon, "Controller br0 is_connected=true");
    // `ovs-pki` writes a description before the certificate.
    let [taken, sent] =
        [ca, lab.pki.ca("controller").into()].map(|path| std::fs::read_to_string(path).unwrap());
    assert!(taken.starts_with("-----BEGIN CERTIFICATE") && sent.ends_with(&taken), "{taken}");
    assert!(lab.daemon.log().contains("successfully bootstrapped CA cert to"));
}

#[test]
fn the_embedded_database_connects_to_managers() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ovsdb-client", "ovs-pki", "openssl");
    let lab = Lab::new("");
    for method in ["tcp", "ssl"] {
        let target = format!("{method}:127.0.0.1:6641");
        vsctl(&lab.daemon, &format!("set-manager {target} -- set manager {target} max_backoff=1000"));
        let refused =
            || vsctl(&lab.daemon, &format!("get Manager {target} status")).contains("Connection refused\"");
        wait_for(LIMIT, "the reason in the row", refused).unwrap();
        let passive = format!("p{method}:6641:127.0.0.1");
        // It waits for a database server to connect.
        let client = lab.tool("ovsdb-client", "ctl", "switch");
        assert!(client.args(["list-dbs", &passive]).run().unwrap().stdout.contains("Open_vSwitch"));
        let client = lab.tool("ovsdb-client", "ctl", "switch");
        let monitor = client.args(["monitor", &passive, "Open_vSwitch", "Bridge", "name"]).spawn().unwrap();
        wait_until(&lab.daemon, &format!("Manager {target} is_connected=true status:state=ACTIVE"));
        vsctl(&lab.daemon, &format!("add-br {method}0 -- set bridge {method}0 datapath_type=dummy"));
        wait_for(LIMIT, "the manager to see the bridge", || monitor.stdout().contains(&format!("{method}0")))
            .unwrap();
        // A removed manager is disconnected.
        vsctl(&lab.daemon, "del-manager");
        monitor.wait(LIMIT).unwrap();
    }
    // The manager's certificate is by an authority that the switch does not trust.
    vsctl(&lab.daemon, &set_ssl(&lab.pki, &lab.pki.ca("switch")));
    let target = "ssl:127.0.0.1:6641";
    vsctl(&lab.daemon, &format!("set-manager {target} -- set manager {target} max_backoff=1000"));
    let client = lab.tool("ovsdb-client", "ctl", "switch");
    let _client = client.args(["list-dbs", "pssl:6641:127.0.0.1"]).spawn().unwrap();
    let error =
        || vsctl(&lab.daemon, &format!("get Manager {target} status")).contains("certificate verify failed");
    wait_for(LIMIT, "the refusal in the row", error).unwrap();
}

/// Starts the stock database server on TLS in a namespace.
fn database_server(dir: &RunDir, netns: &Netns, pki: &Pki) -> Running {
    let path = |name: &str| dir.join(name).display().to_string();
    dir.ovs("ovsdb-tool", &["create", &path("conf.db"), SCHEMA]).unwrap();
    let server = netns
        .cmd("ovsdb-server")
        .args([
            path("conf.db"),
            format!("--remote=p{}", dir.db()),
            "--remote=pssl:6640:127.0.0.1".to_string(),
        ])
        .args([format!("--unixctl={}", path("ovsdb-server.ctl")), "-vconsole:off".to_string()])
        .args(pki.options("ctl", "switch"))
        .args(["--peer-ca-cert", &pki.ca("controller")])
        .spawn()
        .unwrap();
    let list = || dir.ovs("ovsdb-client", &["list-dbs", &dir.db()]).is_ok();
    wait_for(LIMIT, "ovsdb-server to listen", list).unwrap();
    server
}

#[test]
fn an_external_database_over_tls() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovsdb-server", "ovsdb-tool", "ovsdb-client", "ovs-pki", "openssl");
    let (pki, netns) = (Pki::new().unwrap(), Netns::new("tlsdb").unwrap());
    let dir = RunDir::new("tlsdb").unwrap();
    let _server = database_server(&dir, &netns, &pki);
    let [key, cert] = pki.pair("sw");
    let taken = pki.path("taken.pem").display().to_string();
    let daemon = spec(&netns)
        .rundir(&dir)
        .args(["--enable-dummy", DATABASE, "-p", &key, "-c", &cert, "--bootstrap-ca-cert", &taken])
        .start()
        .unwrap();
    vsctl(&daemon, "add-br br0 -- set bridge br0 datapath_type=dummy");
    assert_eq!(vsctl(&daemon, "get Interface br0 ofport"), "65534");
    assert!(daemon.log().contains("successfully bootstrapped CA cert to"));
    drop(daemon);
    // Without trust in the server's authority.
    let ca = pki.ca("switch");
    let stranger =
        spec(&netns).rundir(&dir).args([DATABASE, "-p", &key, "-c", &cert, "-C", &ca]).start().unwrap();
    wait_log(&stranger, "SSL_connect: error:0A000086:SSL routines::certificate verify failed");
}

#[test]
fn keys_of_the_command_line_may_be_those_of_the_database() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ovs-ofctl", "ovs-pki", "openssl");
    let (pki, netns) = (Pki::new().unwrap(), Netns::new("tlscli").unwrap());
    for bad in ["--private-key=db:Open_vSwitch,SSL,certificate", "--certificate=db:x", "--ca-cert=db:a,b,c"] {
        let out = netns.cmd(SLUICED).args([bad]).output().unwrap();
        assert!(!out.status.success() && out.stderr.contains("only db:Open_vSwitch,SSL,"), "{}", out.stderr);
    }
    let options =
        [("private-key", "private_key"), ("certificate", "certificate"), ("bootstrap-ca-cert", "ca_cert")];
    let options = options.map(|(option, column)| format!("--{option}=db:Open_vSwitch,SSL,{column}"));
    let protocols = ["--ssl-protocols=TLSv1.2", "--ssl-ciphers=ECDHE+AESGCM", "--enable-dummy"];
    // As `ovs-ctl` starts ovsdb-server, and by TLS.
    let remotes = ["--remote=db:Open_vSwitch,Open_vSwitch,manager_options", "--remote=pssl:6640:127.0.0.1"];
    let daemon = spec(&netns).args(options).args(protocols).args(remotes).start().unwrap();
    let ssl = set_ssl(&pki, &pki.ca("controller"));
    vsctl(
        &daemon,
        &format!("{ssl} -- add-br br0 -- set bridge br0 datapath_type=dummy -- set-controller br0 pssl:6653"),
    );
    let lab = Lab { pki, netns, daemon };
    let (ok, why) = lab.show("ctl", "switch");
    assert!(ok, "{why}");
    let dbs = lab.tool("ovsdb-client", "ctl", "switch").args(["list-dbs", DATABASE]).run().unwrap();
    assert!(dbs.stdout.contains("Open_vSwitch"), "{}", dbs.stdout);
    let ciphers = |ciphers: &str| {
        let only = ["--ssl-protocols=TLSv1.2", ciphers, "show", OPENFLOW];
        lab.tool("ovs-ofctl", "ctl", "switch").args(only).output().unwrap().status.success()
    };
    assert!(ciphers("--ssl-ciphers=ECDHE-RSA-AES128-GCM-SHA256") && !ciphers("--ssl-ciphers=AES256-SHA"));
    // The options give no files of their own.
    vsctl(&lab.daemon, "del-ssl");
    assert!(!vsctl_output(&lab.daemon, "get SSL . private_key").status.success());
    assert!(!lab.show("ctl", "switch").0);
}

/// Clients that begin a handshake each while the switch stands still, and complete them afterwards: arguments are the
/// process, the number, key, certificate.
const AT_ONCE: &str = "\
import os, signal, socket, ssl, sys
pid, count, key, cert = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
context.load_cert_chain(cert, key)
def begin():
    plain = socket.create_connection(('127.0.0.1', 6653))
    plain.setblocking(False)
    client = context.wrap_socket(plain, do_handshake_on_connect=False)
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return client
os.kill(pid, signal.SIGSTOP)
try:
    clients = [begin() for _ in range(count)]
finally:
    os.kill(pid, signal.SIGCONT)
for client in clients:
    client.settimeout(60)
    client.do_handshake()
    assert client.recv(8)[1:2] == b'\\0', 'no HELLO'
print('complete', len(clients))
";

#[test]
fn handshakes_have_limits() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ovs-ofctl", "ovs-pki", "openssl", PYTHON);
    let lab = Lab::new("-- set-controller br0 pssl:6653:127.0.0.1");
    // More at a time than a turn of the main loop may complete.
    let [key, cert] = lab.pki.pair("ctl");
    let pid = lab.daemon.pid().to_string();
    let out = lab.netns.cmd(PYTHON).args(["-c", AT_ONCE, &pid, "100", &key, &cert]).run().unwrap();
    assert_eq!(out.stdout, "complete 100\n");
    assert!(lab.counter("handshake_put_off") > 0);
    assert_eq!(lab.counter("handshake_cut_off"), 0);

    // Silent clients: the oldest ones make room, so that others are served; and in the end all of them are gone.
    let silent: Vec<TcpStream> = lab
        .netns
        .enter(|| (0..300).map(|_| TcpStream::connect("127.0.0.1:6653").unwrap()).collect())
        .unwrap();
    let (ok, why) = lab.show("ctl", "switch");
    assert!(ok, "{why}");
    assert!(lab.counter("handshake_cut_off") >= 300 - 128);
    for mut client in silent {
        client.set_read_timeout(Some(patience(LIMIT) * 6)).unwrap();
        let mut bytes = Vec::new();
        // Unlike a single read, it continues after a signal.
        client.read_to_end(&mut bytes).unwrap();
        assert!(bytes.is_empty(), "bytes for a silent client: {bytes:?}");
    }
    assert_eq!(lab.counter("handshake_cut_off"), 300, "{}", lab.daemon.log());
    assert!(lab.daemon.log().contains("incomplete handshake ended: it took 10 seconds"));
    assert!(lab.show("ctl", "switch").0);
}

/// TLS clients at a port, or servers of as many connections at it, that send requests and vanish in the middle of the
/// replies: each waits for a first part, and all of them end at once with their process, without a goodbye.
const VANISHING: &str = "\
import signal, socket, ssl, sys
mode, port, count, head, request, key, cert, ca = sys.argv[1:]
server = mode == 'serve'
tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
tls.check_hostname = False
tls.load_cert_chain(cert, key)
tls.load_verify_locations(ca)
tls.verify_mode = ssl.CERT_REQUIRED
if server:
    listener = socket.create_server(('127.0.0.1', int(port)))
held = []
for _ in range(int(count)):
    plain = listener.accept()[0] if server else socket.create_connection(('127.0.0.1', int(port)))
    s = tls.wrap_socket(plain, server_side=server)
    s.sendall(bytes.fromhex(head + request))
    got = 0
    while got < 2000:
        got += len(s.recv(1000))
    held.append(s)
print('all wait', flush=True)
signal.pause()
";

fn hex_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn rss_kib(daemon: &Daemon) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn clients_that_vanish_within_a_reply_leave_no_memory_and_no_place() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ovs-ofctl", "ovs-pki", "openssl", PYTHON);
    let lab = Lab::new("-- set-controller br0 pssl:6653:127.0.0.1 -- set-manager pssl:6640:127.0.0.1");
    let rules: String = (0..3000).map(|n| format!("table=1,priority={n},actions=drop\n")).collect();
    let add_rules = || {
        let add = lab.daemon.tool("ovs-ofctl").args(["add-flows", "br0", "-"]);
        add.input(rules.as_str()).run().unwrap();
    };
    add_rules();
    let [key, cert] = lab.pki.pair("ctl");
    let ca = lab.pki.ca("switch");
    let hello = hex_of(&[4, 0, 0, 8, 0, 0, 0, 1]);
    // OFPMP_FLOW of all tables, ports and groups.
    let mut stats = vec![4, 18, 0, 56, 0, 0, 0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0xff, 0, 0, 0];
    stats.extend([[0xff; 8].as_slice(), &[0; 20], &[0, 1, 0, 4, 0, 0, 0, 0]].concat());
    let stats = hex_of(&stats).repeat(40);
    let schema = hex_of(br#"{"id":1,"method":"get_schema","params":["Open_vSwitch"]}"#).repeat(40);
    let vanishing = |mode: &str, port: &str, count: u32, head: &str, request: &str| {
        let words = ["-c", VANISHING, mode, port, &count.to_string(), head, request, &key, &cert, &ca];
        lab.netns.cmd(PYTHON).args(words).spawn().unwrap()
    };
    let wait = |clients: &Running| {
        let all = || clients.stdout().contains("all wait");
        wait_for(LIMIT, "all replies to begin", all).unwrap_or_else(|e| panic!("{e}\n{}", clients.stderr()));
    };
    let now = || descriptors_now(&lab.daemon);
    // Clients that answer no probe stay, however slow the machine is.
    vsctl(&lab.daemon, "set controller br0 inactivity_probe=0 -- set manager . inactivity_probe=0");
    let places = descriptors(&lab.daemon);
    for (port, count, head, request) in [("6653", 24, hello.as_str(), &stats), ("6640", 6, "", &schema)] {
        let before = rss_kib(&lab.daemon);
        let mut held = 0;
        for _ in 0..3 {
            let clients = vanishing("connect", port, count, head, request);
            wait(&clients);
            held = held.max(rss_kib(&lab.daemon).saturating_sub(before));
            assert!(now() >= places + count as usize, "{port}");
            clients.stop(Signal::KILL, LIMIT).unwrap();
            wait_for(LIMIT, "their places", || now() <= places + 2).unwrap();
        }
        // Memory that each round held is not held again: the allocator keeps some of it for the next one.
        let after = rss_kib(&lab.daemon).saturating_sub(before);
        assert!(after <= held + held / 2 + 8192, "port {port}: {after} KiB remain, of {held} KiB once held");
        assert!(lab.show("ctl", "switch").0);
    }
    // Controllers to which the switch connects.
    let target = "ssl:127.0.0.1:6654";
    vsctl(&lab.daemon, &format!("set-controller br0 {target} -- set controller br0 max_backoff=1000"));
    vsctl(&lab.daemon, "set bridge br0 fail_mode=secure -- set controller br0 inactivity_probe=0");
    add_rules();
    for _ in 0..3 {
        let controller = vanishing("serve", "6654", 1, &hello, &stats);
        wait(&controller);
        wait_until(&lab.daemon, "Controller br0 is_connected=true");
        controller.stop(Signal::KILL, LIMIT).unwrap();
        wait_until(&lab.daemon, "Controller br0 is_connected=false");
        wait_for(LIMIT, "its place", || now() <= places + 2).unwrap();
    }
}
