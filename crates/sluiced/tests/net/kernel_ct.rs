//! Rules that track connections, on the kernel datapath with real traffic.
//!
//! Two hosts; `table=0` sends IPv4 to the tracker, and later tables decide by the state of its connection.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use testkit::{Daemon, RunDir, Topology, require_netns, require_programs, wait_for};

use crate::helpers::{LIMIT, appctl, appctl_output, vsctl};
use crate::kernel::{bridge, dpctl, require_kernel, start};
use netlink::Conntrack;

/// Limit of one attempt to connect.
const REFUSED: Duration = Duration::from_secs(3);

struct Lab {
    net: Topology,
    daemon: Daemon,
    _dir: RunDir,
}

impl Lab {
    /// Two hosts on ports 1 and 2 of `br0`, with these rules.
    fn new(rules: &str) -> Lab {
        let net = Topology::new(2).unwrap();
        let dir = RunDir::new("kernel_ct").unwrap();
        let daemon = start(&net.switch, &dir);
        // Numbers given by the switch follow the names of the devices.
        let numbered = |(port, n): (&str, u8)| format!(" -- set interface {port} ofport_request={n}");
        let numbers: String = net.ports().into_iter().zip(1..).map(numbered).collect();
        vsctl(&daemon, &(bridge(&net) + &numbers));
        let lab = Lab { net, daemon, _dir: dir };
        lab.rules(rules);
        lab
    }

    /// Replaces all rules; ARP is always forwarded.
    fn rules(&self, rules: &str) {
        let file = self.daemon.rundir().join("rules");
        let rules: String = rules.lines().map(|l| format!("{}\n", l.trim())).collect();
        std::fs::write(&file, format!("arp actions=normal\n{rules}")).unwrap();
        self.ofctl(&["del-flows", "br0"]);
        self.ofctl(&["add-flows", "br0", file.to_str().unwrap()]);
    }

    /// Runs `ovs-ofctl`; `br0` stands for the bridge's socket.
    fn ofctl(&self, args: &[&str]) {
        let target = format!("unix:{}", self.daemon.rundir().join("br0.mgmt").display());
        let args: Vec<&str> = args.iter().map(|a| if *a == "br0" { &target } else { *a }).collect();
        self.net.switch.run("ovs-ofctl", &args).unwrap();
    }

    fn address(&self, host: usize) -> Ipv4Addr {
        self.net.hosts[host].ipv4
    }

    fn listen(&self, host: usize, port: u16) -> TcpListener {
        let at = (self.address(host), port);
        self.net.hosts[host].netns.enter(|| TcpListener::bind(at)).unwrap().unwrap()
    }

    /// Connects from a host; `None` if no answer comes. Neighbours may be unknown at first.
    fn connect(&self, host: usize, to: (Ipv4Addr, u16)) -> Option<TcpStream> {
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
    fn state(&self) -> String {
        let flows = dpctl(&self.net.switch, &["dump-flows"]);
        let rules = self.daemon.ovs("ovs-ofctl", &["dump-flows", "br0"]).unwrap().stdout;
        format!("{flows}\n{rules}\n{}", self.connections())
    }

    /// The tracked connections, as stock tools show them.
    fn connections(&self) -> String {
        dpctl(&self.net.switch, &["dump-conntrack"])
    }
}

/// Sends bytes in both directions.
fn talk(mut a: TcpStream, mut b: TcpStream) {
    let mut got = [0; 5];
    a.write_all(b"hello").unwrap();
    b.read_exact(&mut got).unwrap();
    b.write_all(b"world").unwrap();
    a.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"world");
}

/// Only host 1 may begin connections: its first packet commits, replies are established.
const FIREWALL: &str = "
    ip,ct_state=-trk actions=ct(table=1,zone=5)
    table=1,in_port=1,ip,ct_state=+trk+new actions=ct(commit,zone=5,exec(set_field:0x2a->ct_mark,set_field:0x7/0xff->ct_label)),2
    table=1,in_port=2,ip,ct_state=+trk+new actions=drop
    table=1,ip,ct_state=+trk+inv actions=drop
    table=1,in_port=1,ip,ct_state=+trk+est,ct_mark=0x2a actions=2
    table=1,in_port=2,ip,ct_state=+trk+est+rpl,ct_zone=5,ct_label=0x7/0xff actions=1";

#[test]
fn one_side_begins_connections_and_marks_belong_to_them() {
    require_kernel!();
    let lab = Lab::new(FIREWALL);
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
    let flows = dpctl(&lab.net.switch, &["dump-flows"]);
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

#[test]
fn a_zone_comes_from_a_field_and_clearing_forgets() {
    require_kernel!();
    let lab = Lab::new(
        "ip,ct_state=-trk actions=load:9->reg0,ct(commit,table=1,zone=reg0[0..15])
         table=1,ip,ct_state=+trk,ct_zone=9 actions=ct_clear,resubmit(,2)
         table=2,ip,ct_state=-trk,in_port=1 actions=2
         table=2,ip,ct_state=-trk,in_port=2 actions=1",
    );
    let server = lab.listen(1, 5003);
    let client = lab.connect(0, (lab.address(1), 5003)).expect("the rules forward");
    talk(client, server.accept().unwrap().0);
    assert!(lab.connections().contains("zone=9"));
    wait_for(LIMIT, "a flow that clears", || dpctl(&lab.net.switch, &["dump-flows"]).contains("ct_clear,"))
        .unwrap();
}

#[test]
fn sources_and_destinations_are_translated() {
    require_kernel!();
    let lab = Lab::new("ip actions=drop");
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
    let flows = dpctl(&lab.net.switch, &["dump-flows"]);
    assert!(flows.contains(&format!("nat(src={other}:7000-7009)")), "{flows}");
}

impl Lab {
    fn udp(&self, host: usize, port: u16) -> UdpSocket {
        let at = (self.address(host), port);
        let socket = self.net.hosts[host].netns.enter(|| UdpSocket::bind(at)).unwrap().unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket
    }

    /// Remaining seconds of the tracked connection to that port.
    fn timeout_s(&self, port: u16) -> Option<u32> {
        let all = dpctl(&self.net.switch, &["-s", "dump-conntrack"]);
        let line = all
            .lines()
            .find(|l| l.split("),").next().is_some_and(|l| l.contains(&format!("dport={port}"))))?;
        let rest = line.split_once(",timeout=")?.1;
        rest.split([',', '\n']).next()?.parse().ok()
    }

    /// Numbers of the kernel's timeout policies.
    fn policies(&self) -> Vec<u32> {
        let list = || Conntrack::here().timeout_policies().unwrap();
        self.net.switch.enter(list).unwrap().into_keys().map(|id| id.0.get()).collect()
    }

    /// Sets columns that stock tools of this machine do not know.
    fn transact(&self, table: &str, row: &str) {
        let operation = format!(r#"{{"op":"update","table":"{table}","where":[],"row":{row}}}"#);
        let database = format!("unix:{}", self.daemon.rundir().join("db.sock").display());
        let transaction = format!(r#"["Open_vSwitch",{operation}]"#);
        let out = self.net.switch.run("ovsdb-client", &["transact", &database, &transaction]).unwrap();
        assert!(out.stdout.contains("count") && !out.stdout.contains("error"), "{}", out.stdout);
    }
}

/// Timeouts of the kernel's own policies are far from these.
fn near(found: Option<u32>, wanted: u32) -> bool {
    found.is_some_and(|s| (wanted - 60..=wanted).contains(&s))
}

/// Zone 5 has a policy, which follows the database; flows name it by protocol.
#[test]
fn timeouts_of_a_zone_are_those_of_its_policy() {
    require_kernel!();
    require_programs!("ovsdb-client");
    let lab = Lab::new(
        "ip,ct_state=-trk actions=ct(table=1,zone=5)
         table=1,ip,ct_state=+trk+new actions=ct(commit,zone=5),normal
         table=1,ip,ct_state=+trk+est actions=normal",
    );
    vsctl(
        &lab.daemon,
        "--id=@d create Datapath datapath_version=0 -- set Open_vSwitch . datapaths:system=@d",
    );
    vsctl(
        &lab.daemon,
        "add-zone-tp system zone=5 udp_single=1000 udp_multiple=2000 tcp_established=3000 icmp_reply=9",
    );
    // The kernel has no timeout of replies to pings: the bridge says so.
    let status = vsctl(&lab.daemon, "get bridge br0 status:notice");
    assert!(status.contains("system@ovs-system has no timeout icmp_reply"), "{status}");
    assert_eq!(lab.policies(), [1]);
    let (a, b) = (lab.udp(0, 6001), lab.udp(1, 6001));
    let mut got = [0; 9];
    wait_for(LIMIT, "a datagram", || {
        a.send_to(b"ask", b.local_addr().unwrap()).unwrap();
        b.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        b.recv_from(&mut got).is_ok()
    })
    .unwrap();
    assert!(near(lab.timeout_s(6001), 1000), "{}", dpctl(&lab.net.switch, &["-s", "dump-conntrack"]));
    let flows = dpctl(&lab.net.switch, &["dump-flows"]);
    assert!(flows.contains("timeout=ovs_tp_1_udp4"), "{flows}");
    // After the reply, the stream has the other timeout.
    b.send_to(b"answer", a.local_addr().unwrap()).unwrap();
    a.recv_from(&mut got).unwrap();
    // Not before two seconds after it began.
    wait_for(LIMIT, "the timeout of replied connections", || {
        a.send_to(b"ask", b.local_addr().unwrap()).unwrap();
        near(lab.timeout_s(6001), 2000)
    })
    .unwrap();
    let server = lab.listen(1, 6002);
    let client = lab.connect(0, (lab.address(1), 6002)).expect("the rules forward");
    let accepted = server.accept().unwrap().0;
    talk(client.try_clone().unwrap(), accepted.try_clone().unwrap());
    assert!(near(lab.timeout_s(6002), 3000), "{}", dpctl(&lab.net.switch, &["-s", "dump-conntrack"]));

    // A changed policy has another number; the former one goes once no flow names it.
    lab.transact("CT_Timeout_Policy", r#"{"timeouts":["map",[["udp_single",500]]]}"#);
    wait_for(LIMIT, "the new policy", || lab.policies().contains(&2)).unwrap();
    wait_for(LIMIT, "no complaint", || !vsctl(&lab.daemon, "get bridge br0 status").contains("icmp_reply"))
        .unwrap();
    let (c, d) = (lab.udp(0, 6003), lab.udp(1, 6003));
    c.send_to(b"ask", d.local_addr().unwrap()).unwrap();
    d.recv_from(&mut got).unwrap();
    assert!(near(lab.timeout_s(6003), 500), "{}", dpctl(&lab.net.switch, &["-s", "dump-conntrack"]));
    wait_for(LIMIT * 4, "the end of the former policy", || lab.policies() == [2]).unwrap();

    // Limits of the database are not for commands.
    lab.transact("CT_Zone", r#"{"limit":3}"#);
    wait_for(LIMIT, "the limit", || {
        appctl(&lab.daemon, "dpctl/ct-get-limits zone=5").contains("zone=5,limit=3,count=")
    })
    .unwrap();
    let refused = appctl_output(&lab.daemon, "dpctl/ct-set-limits zone=5,limit=9");
    assert!(refused.stderr.contains("the zone limits are set via database"), "{}", refused.stderr);

    // Without a zone there are neither.
    vsctl(&lab.daemon, "del-zone-tp system zone=5");
    assert!(!appctl(&lab.daemon, "dpctl/ct-get-limits").contains("zone=5"));
    appctl(&lab.daemon, "dpctl/ct-set-limits zone=5,limit=9");
    appctl(&lab.daemon, "dpctl/ct-del-limits zone=5");
    wait_for(LIMIT * 4, "the end of all policies", || lab.policies().is_empty()).unwrap();
    let (e, f) = (lab.udp(0, 6004), lab.udp(1, 6004));
    e.send_to(b"ask", f.local_addr().unwrap()).unwrap();
    f.recv_from(&mut got).unwrap();
    assert!(lab.timeout_s(6004).is_some_and(|s| s < 200), "{}", lab.connections());
    let flows = dpctl(&lab.net.switch, &["dump-flows"]);
    assert!(!flows.contains("ovs_tp_"), "{flows}");
}
