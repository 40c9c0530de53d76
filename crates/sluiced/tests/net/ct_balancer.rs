//! A load balancer in the pipeline of OVN, with real connections, for both datapaths.
//!
//! Two clients and three backends. A bucket of a select group translates packets to the virtual address, in zone 1. A
//! backend that reaches itself is translated a second time, in zone 2.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};

use testkit::{Running, wait_for};

use crate::ct_lab::{Kind, Lab};
use crate::helpers::{LIMIT, PYTHON, appctl};

/// The virtual address, of no host.
const VIP: Ipv4Addr = Ipv4Addr::new(10, 0, 77, 77);
/// Source address of packets from the balancer.
const ROUTER: &str = "02:00:00:00:ff:ff";
/// Port of the virtual address whose connections are spread one by one.
const SPREAD: u16 = 80;
/// Port of the virtual address with affinity of clients.
const AFFINE: u16 = 81;
/// Port of the servers.
const SERVER: u16 = 8080;
/// The clients, as indices of hosts.
const CLIENTS: [usize; 2] = [0, 1];
/// The backends, as indices of hosts.
const BACKENDS: [usize; 3] = [2, 3, 4];
/// Questions of each connection.
const QUESTIONS: usize = 20;

/// Answers each line with its name and the address of its client.
const ANSWER: &str = "\
import socketserver, sys
class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        for _ in self.rfile:
            self.wfile.write(f'{sys.argv[2]} {self.client_address[0]}\\n'.encode())
class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128
Server((sys.argv[1], int(sys.argv[3])), Handler).serve_forever()
";

/// The action that translates to a backend.
fn commit(lab: &Lab, host: usize, mark: u32) -> String {
    let (to, n) = (lab.address(host), host + 1);
    format!(
        "ct(commit,table=2,zone=1,nat(dst={to}:{SERVER}),\
         exec(load:{mark}->NXM_NX_CT_MARK[],load:{n}->NXM_NX_CT_LABEL[96..127]))"
    )
}

/// Group 1 balances connections to [`SPREAD`], group 2 those to [`AFFINE`].
fn add_groups(lab: &Lab) {
    for id in [1, 2] {
        let bucket = |&host: &usize| format!(",bucket=weight:100,actions={}", commit(lab, host, id));
        let buckets: String = BACKENDS.iter().map(bucket).collect();
        lab.ofctl(&["-OOpenFlow15", "add-group", "br0", &format!("group_id={id},type=select{buckets}")]);
    }
}

/// Table 0 undoes translations, in zone 2 first. Table 1 balances new connections, by the affinity in table 10 or by a group.
/// Table 2 learns the affinity and translates hairpins. Table 3 forwards by address.
fn rules(lab: &Lab) -> String {
    let mut rules = format!(
        "table=0,priority=10,ip actions=ct(zone=1,nat,table=1)
         table=1,priority=30,tcp,ct_state=+trk+new,nw_dst={VIP},tp_dst={SPREAD} actions=group:1
         table=1,priority=30,tcp,ct_state=+trk+new,nw_dst={VIP},tp_dst={AFFINE} actions=resubmit(,10),resubmit(,4)
         table=1,priority=20,ip,ct_state=+trk+inv actions=drop
         table=1,priority=10,ip,ct_state=+trk actions=resubmit(,2)
         table=2,priority=10,ip actions=resubmit(,3)
         table=4,priority=10,ip actions=group:2
         table=5,priority=10,ip actions=ct(zone=1,nat,table=1)\n"
    );
    for host in BACKENDS {
        let (b, n, commit) = (lab.address(host), host + 1, commit(lab, host, 2));
        let number = u32::from(b);
        let _ = writeln!(
            rules,
            "table=0,priority=20,tcp,in_port={n},nw_src={b},tp_src={SERVER},nw_dst={VIP} actions=ct(zone=2,nat,table=5)
             table=2,priority=30,tcp,ct_state=+trk,nw_src={b},nw_dst={b},tp_dst={SERVER} \
             actions=ct(commit,zone=2,nat(src={VIP}),table=3)
             table=2,priority=20,tcp,ct_state=+trk+new,ct_mark=2,nw_dst={b} \
             actions=learn(table=10,idle_timeout=300,eth_type=0x800,nw_proto=6,NXM_OF_IP_SRC[],\
             load:{number:#x}->NXM_NX_REG0[]),resubmit(,3)
             table=4,priority=20,tcp,reg0={number:#x} actions={commit}"
        );
    }
    for host in CLIENTS.into_iter().chain(BACKENDS) {
        let (to, n, mac) = (lab.address(host), host + 1, &lab.net.hosts[host].mac);
        let rewrite = format!("mod_dl_src:{ROUTER},mod_dl_dst:{mac}");
        let _ = writeln!(
            rules,
            "table=3,priority=20,ip,in_port={n},nw_dst={to} actions={rewrite},in_port
             table=3,priority=10,ip,nw_dst={to} actions={rewrite},{n}"
        );
    }
    rules
}

/// A connection to the virtual address.
struct Balanced {
    /// Keeps it open.
    _stream: TcpStream,
    client: usize,
    from: u16,
    port: u16,
    backend: usize,
}

impl Balanced {
    /// Connects, asks, and checks that one backend gives all answers. A hairpin is from the virtual address.
    fn new(lab: &Lab, client: usize, port: u16) -> Balanced {
        let stream =
            lab.connect(client, (VIP, port)).unwrap_or_else(|| panic!("no connection: {}", lab.state()));
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut answers = BufReader::new(stream.try_clone().unwrap());
        let mut ask = || {
            (&stream).write_all(b"?\n").unwrap();
            let mut answer = String::new();
            answers.read_line(&mut answer).unwrap_or_else(|why| panic!("{why}: {}", lab.state()));
            answer
        };
        let first = ask();
        for _ in 1..QUESTIONS {
            assert_eq!(ask(), first, "{}", lab.state());
        }
        let (name, seen) = first.trim_end().split_once(' ').unwrap();
        let backend = name.parse().unwrap();
        let source = if backend == client { VIP } else { lab.address(client) };
        assert_eq!(seen, source.to_string(), "{}", lab.state());
        let from = stream.local_addr().unwrap().port();
        Balanced { _stream: stream, client, from, port, backend }
    }

    /// Asserts that its tuples are tracked.
    fn assert_tracked(&self, lab: &Lab, tracked: &str) {
        let (client, backend) = (lab.address(self.client), lab.address(self.backend));
        let (from, port, mark) = (self.from, self.port, if self.port == SPREAD { 1 } else { 2 });
        let label = ((self.backend + 1) as u128) << 96;
        let begin = format!(
            "tcp,orig=(src={client},dst={VIP},sport={from},dport={port}),\
             reply=(src={backend},dst={client},sport={SERVER},dport="
        );
        let end = format!("),zone=1,mark={mark},labels={label:#x},protoinfo=(state=ESTABLISHED)");
        // A client may use a port for two connections, and both may have one backend: the second gets another port.
        let of = |line: &str| line.strip_prefix(&begin)?.strip_suffix(&end)?.parse::<u16>().ok();
        let from = tracked.lines().find_map(of).unwrap_or_else(|| panic!("{begin}…{end}\n{tracked}"));
        let hairpin = format!(
            "tcp,orig=(src={client},dst={client},sport={from},dport={SERVER}),\
             reply=(src={client},dst={VIP},sport={SERVER},dport={from}),zone=2,protoinfo=(state=ESTABLISHED)"
        );
        assert_eq!(tracked.contains(&hairpin), self.client == self.backend, "{hairpin}\n{tracked}");
    }
}

/// The connections of each backend.
fn by_backend(connections: &[Balanced]) -> BTreeMap<usize, usize> {
    let mut counts = BTreeMap::new();
    connections.iter().for_each(|c| *counts.entry(c.backend).or_default() += 1);
    counts
}

fn lab_with_servers(kind: Kind) -> (Lab, Vec<Running>) {
    let lab = Lab::with_hosts(kind, CLIENTS.len() + BACKENDS.len());
    add_groups(&lab);
    lab.rules(&rules(&lab));
    for host in &lab.net.hosts {
        let entry = ["neigh", "replace", &VIP.to_string(), "lladdr", ROUTER, "dev", host.dev.as_str()];
        host.netns.run("ip", &entry).unwrap();
    }
    let serve = |&host: &usize| {
        let (netns, at) = (&lab.net.hosts[host].netns, lab.address(host));
        let args = ["-c", ANSWER, &at.to_string(), &host.to_string(), &SERVER.to_string()];
        let server = netns.spawn(PYTHON, &args).unwrap();
        let listens = || netns.enter(|| TcpStream::connect((at, SERVER)).is_ok()).unwrap();
        wait_for(LIMIT, "a server", listens).unwrap();
        server
    };
    let servers = BACKENDS.iter().map(serve).collect();
    (lab, servers)
}

pub(crate) fn connections_are_balanced_with_affinity_and_hairpins(kind: Kind) {
    let (lab, _servers) = lab_with_servers(kind);
    // Connections of one client are spread, each whole.
    let spread: Vec<_> = (0..60).map(|n| Balanced::new(&lab, CLIENTS[n % 2], SPREAD)).collect();
    let counts = by_backend(&spread);
    assert!(counts.len() == 3 && counts.values().all(|n| *n >= 3), "{counts:?}: {}", lab.state());

    // With affinity, a client stays with its first backend, from new source ports.
    let mut affine = Vec::new();
    for client in CLIENTS {
        let first = Balanced::new(&lab, client, AFFINE);
        // From then on flows follow the learned rule.
        appctl(&lab.daemon, "revalidator/wait");
        let later: Vec<_> = (0..12).map(|_| Balanced::new(&lab, client, AFFINE)).collect();
        let counts = by_backend(&later);
        assert!(counts.len() == 1 && counts.contains_key(&first.backend), "{counts:?}: {}", lab.state());
        affine.push(first);
        affine.extend(later);
    }
    let learned = lab.daemon.ovs("ovs-ofctl", &["dump-flows", "br0", "table=10"]).unwrap().stdout;
    assert_eq!(learned.matches("idle_timeout=300").count(), CLIENTS.len(), "{learned}");

    // A backend reaches the others, and itself.
    let own: Vec<_> = (0..40).map(|_| Balanced::new(&lab, BACKENDS[0], SPREAD)).collect();
    let counts = by_backend(&own);
    assert!(counts.len() == 3, "{counts:?}: {}", lab.state());

    let tracked = lab.connections();
    for connection in spread.iter().chain(&affine).chain(&own) {
        connection.assert_tracked(&lab, &tracked);
    }
}
