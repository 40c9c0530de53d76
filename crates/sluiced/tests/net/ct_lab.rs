//! Scenarios of connection tracking with real traffic, for both datapaths.
//!
//! Two hosts; `table=0` sends IPv4 to the tracker, and later tables decide by the state of its connection.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use testkit::{Daemon, RunDir, Signal, Topology, wait_for};

use crate::helpers::{LIMIT, appctl, vsctl};
use crate::kernel::{bridge, dpctl, start};

/// Limit of one attempt to connect.
const REFUSED: Duration = Duration::from_secs(3);

/// A type of datapath.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Kernel,
    Userspace,
}

pub(crate) struct Lab {
    pub(crate) kind: Kind,
    pub(crate) net: Topology,
    pub(crate) daemon: Daemon,
    dir: RunDir,
}

impl Lab {
    /// Two hosts on ports 1 and 2 of `br0`, with these rules.
    pub(crate) fn new(kind: Kind, rules: &str) -> Lab {
        let lab = Lab::with_hosts(kind, 2);
        lab.rules(rules);
        lab
    }

    /// Hosts on ports of `br0` with their numbers.
    pub(crate) fn with_hosts(kind: Kind, hosts: usize) -> Lab {
        let net = Topology::new(hosts).unwrap();
        let dir = RunDir::new("ct").unwrap();
        let daemon = start(&net.switch, &dir);
        // Numbers given by the switch follow the names of the devices.
        let numbered = |(port, n): (&str, u8)| format!(" -- set interface {port} ofport_request={n}");
        let numbers: String = net.ports().into_iter().zip(1..).map(numbered).collect();
        let datapath = if kind == Kind::Userspace { " -- set bridge br0 datapath_type=netdev" } else { "" };
        vsctl(&daemon, &(bridge(&net) + datapath + &numbers));
        Lab { kind, net, daemon, dir }
    }

    /// Ends the daemon by that signal and starts it anew, with the same database.
    pub(crate) fn restart(&mut self, by: Signal) {
        self.daemon.signal(by).unwrap();
        wait_for(LIMIT, "the daemon to end", || self.daemon.status().is_some()).unwrap();
        self.start();
    }

    /// Starts the daemon after its end.
    pub(crate) fn start(&mut self) {
        self.daemon = start(&self.net.switch, &self.dir);
        let bridge = self.daemon.rundir().join("br0.mgmt");
        wait_for(LIMIT, "the bridge", || testkit::listens(&bridge)).unwrap();
    }

    /// Replaces all rules; ARP is always forwarded.
    pub(crate) fn rules(&self, rules: &str) {
        let file = self.daemon.rundir().join("rules");
        let rules: String = rules.lines().map(|l| format!("{}\n", l.trim())).collect();
        std::fs::write(&file, format!("arp actions=normal\n{rules}")).unwrap();
        self.ofctl(&["del-flows", "br0"]);
        self.ofctl(&["add-flows", "br0", file.to_str().unwrap()]);
    }

    /// Runs `ovs-ofctl`; `br0` stands for the bridge's socket.
    pub(crate) fn ofctl(&self, args: &[&str]) {
        let target = format!("unix:{}", self.daemon.rundir().join("br0.mgmt").display());
        let args: Vec<&str> = args.iter().map(|a| if *a == "br0" { &target } else { *a }).collect();
        self.net.switch.run("ovs-ofctl", &args).unwrap();
    }

    pub(crate) fn address(&self, host: usize) -> Ipv4Addr {
        self.net.hosts[host].ipv4
    }

    pub(crate) fn listen(&self, host: usize, port: u16) -> TcpListener {
        let at = (self.address(host), port);
        self.net.hosts[host].netns.enter(|| TcpListener::bind(at)).unwrap().unwrap()
    }

    /// Connects from a host; `None` if no answer comes. Neighbours may be unknown at first.
    pub(crate) fn connect(&self, host: usize, to: (Ipv4Addr, u16)) -> Option<TcpStream> {
        let to = SocketAddr::from(to);
        let attempt =
            || self.net.hosts[host].netns.enter(|| TcpStream::connect_timeout(&to, REFUSED).ok()).unwrap();
        if self.refuses(to) {
            return attempt();
        }
        let mut stream = None;
        let _ = wait_for(LIMIT, "a connection", || {
            stream = attempt();
            stream.is_some()
        });
        stream
    }

    /// Ports above 9000 are those that rules drop.
    fn refuses(&self, to: SocketAddr) -> bool {
        to.port() > 9000
    }

    /// Flows, rules and connections, for failures.
    pub(crate) fn state(&self) -> String {
        let flows = self.flows();
        let rules = self.daemon.ovs("ovs-ofctl", &["dump-flows", "br0"]).unwrap().stdout;
        format!("{flows}\n{rules}\n{}", self.connections())
    }

    /// Output of a command about the datapath.
    pub(crate) fn dpctl(&self, args: &[&str]) -> String {
        match self.kind {
            Kind::Kernel => dpctl(&self.net.switch, args),
            Kind::Userspace => appctl(&self.daemon, &format!("dpctl/{}", args.join(" "))),
        }
    }

    /// Its flows.
    pub(crate) fn flows(&self) -> String {
        self.dpctl(&["dump-flows"])
    }

    /// The tracked connections, as stock tools show them.
    pub(crate) fn connections(&self) -> String {
        self.dpctl(&["dump-conntrack"])
    }
}

/// Sends bytes in both directions.
pub(crate) fn talk(mut a: TcpStream, mut b: TcpStream) {
    let mut got = [0; 5];
    a.write_all(b"hello").unwrap();
    b.read_exact(&mut got).unwrap();
    b.write_all(b"world").unwrap();
    a.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"world");
}

/// Only host 1 may begin connections: its first packet commits, replies are established.
pub(crate) const FIREWALL: &str = "
    ip,ct_state=-trk actions=ct(table=1,zone=5)
    table=1,in_port=1,ip,ct_state=+trk+new actions=ct(commit,zone=5,exec(set_field:0x2a->ct_mark,set_field:0x7/0xff->ct_label)),2
    table=1,in_port=2,ip,ct_state=+trk+new actions=drop
    table=1,ip,ct_state=+trk+inv actions=drop
    table=1,in_port=1,ip,ct_state=+trk+est,ct_mark=0x2a actions=2
    table=1,in_port=2,ip,ct_state=+trk+est+rpl,ct_zone=5,ct_label=0x7/0xff actions=1";

pub(crate) fn one_side_begins_connections_and_marks_belong_to_them(kind: Kind) {
    let lab = Lab::new(kind, FIREWALL);
    let server = lab.listen(1, 5001);
    let client =
        lab.connect(0, (lab.address(1), 5001)).unwrap_or_else(|| panic!("no connection: {}", lab.state()));
    talk(client.try_clone().unwrap(), server.accept().unwrap().0);
    let _unreached = lab.listen(0, 9001);
    assert!(lab.connect(1, (lab.address(0), 9001)).is_none(), "host 2 must not begin");
    let tracked = lab.connections();
    let line = tracked.lines().find(|l| l.contains("dport=5001")).unwrap_or_default();
    assert!(line.contains("zone=5") && line.contains("mark=42") && line.contains("labels=0x7"), "{tracked}");
    assert!(!tracked.contains("dport=9001"), "{tracked}");
    // Stock tools see the same flows.
    let flows = lab.flows();
    assert!(flows.contains("ct(zone=5),recirc("), "{flows}");
    assert!(flows.contains("ct(commit,zone=5,mark=0x2a/0xffffffff,label=0x7/0xff)"), "{flows}");
    let ours = appctl(&lab.daemon, "dpctl/dump-flows");
    assert!(ours.contains("+est") && ours.contains("ct_mark(0x2a)"), "{ours}");
    // Controllers delete connections: of another zone, then of theirs.
    let known = || lab.connections().contains("dport=5001");
    lab.ofctl(&["ct-flush-zone", "br0", "6"]);
    lab.ofctl(&["ct-flush", "br0", "zone=5", "ct_nw_proto=6,ct_tp_dst=5999"]);
    assert!(known());
    lab.ofctl(&["ct-flush", "br0", "zone=5", "ct_nw_proto=6,ct_tp_dst=5001"]);
    assert!(!known(), "{}", lab.connections());
    // Rounds of the revalidator keep the flows.
    appctl(&lab.daemon, "revalidator/wait");
    let server = lab.listen(1, 5002);
    let again = lab.connect(0, (lab.address(1), 5002)).expect("new connections pass");
    talk(again, server.accept().unwrap().0);
}

pub(crate) fn a_zone_comes_from_a_field_and_clearing_forgets(kind: Kind) {
    let lab = Lab::new(
        kind,
        "ip,ct_state=-trk actions=load:9->reg0,ct(commit,table=1,zone=reg0[0..15])
         table=1,ip,ct_state=+trk,ct_zone=9 actions=ct_clear,resubmit(,2)
         table=2,ip,ct_state=-trk,in_port=1 actions=2
         table=2,ip,ct_state=-trk,in_port=2 actions=1",
    );
    let server = lab.listen(1, 5003);
    let client = lab.connect(0, (lab.address(1), 5003)).expect("the rules forward");
    talk(client, server.accept().unwrap().0);
    assert!(lab.connections().contains("zone=9"));
    wait_for(LIMIT, "a flow that clears", || lab.flows().contains("ct_clear,")).unwrap();
}

pub(crate) fn sources_and_destinations_are_translated(kind: Kind) {
    let lab = Lab::new(kind, "ip actions=drop");
    let (client, server) = (lab.address(0), lab.address(1));
    // An unused address of the hosts' network.
    let [a, b, c, _] = client.octets();
    let other = Ipv4Addr::new(a, b, c, 77);
    let mac = |host: usize| lab.net.hosts[host].mac.clone();
    // The client reaches the server as `other`, and the server sees `other` as its client.
    let rules = |ct: &str| {
        format!(
            "ip,in_port=1 actions=ct(commit,zone=3,table=1,{ct})
             ip,in_port=2 actions=ct(zone=3,nat,table=1)
             table=1,ip,in_port=1,ct_state=+trk actions=mod_dl_dst:{},2
             table=1,ip,in_port=2,ct_state=+trk actions=mod_dl_dst:{},1",
            mac(1),
            mac(0),
        )
    };
    for (host, to_mac) in [(0, mac(1)), (1, mac(0))] {
        let h = &lab.net.hosts[host];
        let entry = ["neigh", "replace", &other.to_string(), "lladdr", &to_mac, "dev", h.dev.as_str()];
        h.netns.run("ip", &entry).unwrap();
    }
    lab.rules(&rules(&format!("nat(dst={server}:5005)")));
    let listener = lab.listen(1, 5005);
    let stream = lab.connect(0, (other, 5004)).expect("the destination is translated");
    assert_eq!(stream.peer_addr().unwrap(), (other, 5004).into());
    talk(stream, listener.accept().unwrap().0);
    assert!(lab.connections().contains(&format!("dst={other},sport=")), "{}", lab.connections());

    lab.rules(&rules(&format!("nat(src={other}:7000-7009)")));
    let listener = lab.listen(1, 5006);
    let stream = lab.connect(0, (server, 5006)).expect("the source is translated");
    let (accepted, from) = listener.accept().unwrap();
    assert_eq!(from.ip(), other);
    assert!((7000..7010).contains(&from.port()), "{from}");
    talk(stream, accepted);
    let flows = lab.flows();
    assert!(flows.contains(&format!("nat(src={other}:7000-7009)")), "{flows}");
}
