//! Everyday traffic through translations of the userspace datapath: many short connections, TFTP, ICMP errors.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::sync::Mutex;

use testkit::{Netns, Running, Signal, patience, require_netns, require_programs, veth, wait_for};

use crate::ct_lab::{Kind, Lab};
use crate::helpers::{LIMIT, PYTHON, appctl, ping_all};

/// Clients at the same time.
const CLIENTS: usize = 50;

/// Host 1 reaches host 2 as another address, which this returns. Only host 1 begins connections, and helpers do.
fn behind_another_address() -> (Lab, Ipv4Addr) {
    let lab = Lab::new(Kind::Userspace, "ip actions=drop");
    let [a, b, c, _] = lab.address(0).octets();
    let other = Ipv4Addr::new(a, b, c, 177);
    let (client, server) = (&lab.net.hosts[0], &lab.net.hosts[1]);
    let entry = ["neigh", "replace", &other.to_string(), "lladdr", &client.mac, "dev", server.dev.as_str()];
    server.netns.run("ip", &entry).unwrap();
    lab.rules(&format!(
        "ip actions=ct(zone=3,nat,table=1)
         table=1,priority=20,in_port=1,udp,ct_state=+trk+new-rel,tp_dst=69 \
         actions=ct(commit,zone=3,alg=tftp,nat(src={other})),2
         table=1,priority=10,in_port=1,ip,ct_state=+trk+new-rel actions=ct(commit,zone=3,nat(src={other})),2
         table=1,priority=10,in_port=2,ip,ct_state=+trk+new+rel actions=ct(commit,zone=3,nat),1
         table=1,priority=10,in_port=2,ip,ct_state=+trk+rel-new actions=1
         table=1,priority=10,in_port=1,ip,ct_state=+trk+est actions=2
         table=1,priority=10,in_port=2,ip,ct_state=+trk+est actions=1"
    ));
    (lab, other)
}

/// Answers each of that many connections with the address of its client.
fn tell_addresses(listener: &TcpListener, connections: usize) {
    std::thread::scope(|scope| {
        for _ in 0..connections {
            let (mut stream, from) = listener.accept().unwrap();
            scope.spawn(move || {
                let mut question = Vec::new();
                stream.read_to_end(&mut question).unwrap();
                stream.write_all(&[from.ip().to_string().into_bytes(), question].concat()).unwrap();
            });
        }
    });
}

/// One connection: a question, the end of the stream, the answer. Returns the client's port, too.
fn ask(to: (Ipv4Addr, u16), question: &[u8]) -> (String, u16) {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(patience(LIMIT * 3))).unwrap();
    stream.write_all(question).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    (answer, stream.local_addr().unwrap().port())
}

#[test]
fn many_short_connections_pass_a_translated_source() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let (lab, other) = behind_another_address();
    let each = if testkit::long() { 200 } else { 20 };
    let listener = lab.listen(1, 5001);
    let to = (lab.address(1), 5001);
    // The kernel may choose a port again.
    let ports = Mutex::new(BTreeSet::new());
    let (client, server) = (&lab.net.hosts[0].netns, &lab.net.hosts[1].netns);
    std::thread::scope(|scope| {
        scope.spawn(|| server.enter(|| tell_addresses(&listener, CLIENTS * each)).unwrap());
        let all = || {
            std::thread::scope(|scope| {
                for n in 0..CLIENTS {
                    let ports = &ports;
                    scope.spawn(move || {
                        for m in 0..each {
                            let question = format!(" {n} {m}");
                            let (answer, port) = ask(to, question.as_bytes());
                            assert_eq!(answer, format!("{other}{question}"));
                            ports.lock().unwrap().insert(port);
                        }
                    });
                }
            });
        };
        client.enter(all).unwrap();
    });
    // Each was translated, and is about to be forgotten.
    let tracked = lab.connections();
    let ours = tracked.lines().filter(|l| l.contains(&format!("dst={other},sport=5001,"))).count();
    let ports = ports.into_inner().unwrap();
    assert_eq!(ours, ports.len(), "{tracked}");
    assert!(!tracked.contains("ESTABLISHED"), "{tracked}");
    assert_eq!(appctl(&lab.daemon, "coverage/read-counter conntrack_nat_exhausted"), "0\n");
}

const MANY: &str = include_str!("ct_traffic/many.py");
/// Connections that are open at the same time.
const PARALLEL: usize = 10_000;

#[test]
fn ten_thousand_connections_at_once_pass_a_translated_source() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "sysctl");
    let (lab, other) = behind_another_address();
    let (client, server) = (&lab.net.hosts[0].netns, &lab.net.hosts[1].netns);
    server.run("sysctl", &["-qw", &format!("net.core.somaxconn={PARALLEL}")]).unwrap();
    let (to, count) = (lab.address(1).to_string(), PARALLEL.to_string());
    let mut serving = server.spawn(PYTHON, &["-c", MANY, "server", &to, "5001", &count]).unwrap();
    let says = |program: &mut Running, word: &str| {
        let said =
            wait_for(LIMIT * 6, word, || program.stdout().contains(word) || program.status().is_some());
        let (out, err) = (program.stdout(), program.stderr());
        assert!(said.is_ok() && out.contains(word), "{word}: {said:?}: {out}{err}");
    };
    says(&mut serving, "listens");
    let args = ["-c", MANY, "client", &to, "5001", &count, "20000", &other.to_string()];
    let mut asking = client.spawn(PYTHON, &args).unwrap();
    says(&mut asking, "open");
    // The last acknowledgement has passed, too.
    says(&mut serving, "accepted");
    // All are established at once, each with its own translated tuple.
    let tracked = lab.connections();
    let reply = format!("reply=(src={to},dst={other},sport=5001,dport=");
    let open = tracked.lines().filter(|l| l.ends_with("zone=3,protoinfo=(state=ESTABLISHED)"));
    let ports: BTreeSet<&str> = open.filter_map(|l| l.split_once(&reply)?.1.split(')').next()).collect();
    assert_eq!(ports.len(), PARALLEL);
    asking.signal(Signal::USR1).unwrap();
    says(&mut asking, "done");
    for program in [asking, serving] {
        let end = program.wait(LIMIT * 6).unwrap();
        assert!(end.status.success(), "{}", end.stderr);
    }
    // Both sides have ended each of them.
    wait_for(LIMIT, "all connections to end", || !lab.connections().contains("ESTABLISHED")).unwrap();
    assert_eq!(appctl(&lab.daemon, "coverage/read-counter conntrack_nat_exhausted"), "0\n");
}

/// Serves one file by TFTP (RFC 1350): its blocks come from a port of their own.
fn serve_tftp(at: &UdpSocket, data: &[u8]) {
    let mut buffer = [0; 600];
    let (_, client) = at.recv_from(&mut buffer).unwrap();
    assert_eq!(buffer[..2], [0, 1], "a request to read");
    let own = UdpSocket::bind((at.local_addr().unwrap().ip(), 0)).unwrap();
    own.set_read_timeout(Some(patience(LIMIT))).unwrap();
    let last = data.len() / 512;
    for (number, block) in
        data.chunks(512).chain((data.len().is_multiple_of(512)).then_some(&[][..])).enumerate()
    {
        let number_bytes = (number as u16 + 1).to_be_bytes();
        own.send_to(&[&[0, 3], &number_bytes[..], block].concat(), client).unwrap();
        own.recv_from(&mut buffer).unwrap();
        assert_eq!(buffer[..4], [&[0, 4], &number_bytes[..]].concat()[..], "block {number} of {last}");
    }
}

/// Reads a file by TFTP.
fn read_tftp(from: Ipv4Addr) -> std::io::Result<Vec<u8>> {
    let socket = UdpSocket::bind(("0.0.0.0", 0))?;
    socket.set_read_timeout(Some(patience(LIMIT)))?;
    socket.send_to(b"\0\x01file\0octet\0", (from, 69))?;
    let (mut data, mut buffer) = (Vec::new(), [0; 600]);
    loop {
        let (n, server) = socket.recv_from(&mut buffer)?;
        assert_ne!(server.port(), 69);
        data.extend_from_slice(&buffer[4..n]);
        socket.send_to(&[&[0, 4], &buffer[2..4]].concat(), server)?;
        if n < 516 {
            return Ok(data);
        }
    }
}

#[test]
fn tftp_passes_a_translated_source() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "ping");
    let (lab, other) = behind_another_address();
    let (client, server) = (&lab.net.hosts[0].netns, &lab.net.hosts[1].netns);
    ping_all(client, lab.address(1).into(), 1);
    let at = server.enter(|| UdpSocket::bind((lab.address(1), 69)).unwrap()).unwrap();
    at.set_read_timeout(Some(patience(LIMIT))).unwrap();
    let file: Vec<u8> = (0..5000_u32).flat_map(u32::to_be_bytes).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| server.enter(|| serve_tftp(&at, &file)).unwrap());
        let got = client.enter(|| read_tftp(lab.address(1))).unwrap();
        assert_eq!(got.unwrap_or_else(|why| panic!("{why}: {}", lab.state())), file);
    });
    let tracked = lab.dpctl(&["dump-conntrack", "-m"]);
    assert!(tracked.contains("helper=tftp") && tracked.contains("parent=(src="), "{tracked}");
    assert!(tracked.contains(&format!("dst={other}")), "{tracked}");
}

/// Sends a datagram to a closed port; returns whether the ICMP error about it arrived. The kernel delivers it only if it
/// cites the datagram as sent.
fn is_refused(from: Ipv4Addr, to: (Ipv4Addr, u16)) -> bool {
    let socket = UdpSocket::bind((from, 0)).unwrap();
    socket.connect(to).unwrap();
    socket.set_read_timeout(Some(LIMIT / 10)).unwrap();
    socket.send(b"anybody?").unwrap();
    socket.recv(&mut [0; 9]).is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused)
}

#[test]
fn pings_and_icmp_errors_pass_translations() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "ping");
    let (lab, other) = behind_another_address();
    let (client, server) = (&lab.net.hosts[0], &lab.net.hosts[1]);
    let refused = |to| client.netns.enter(|| is_refused(lab.address(0), (to, 33_434))).unwrap();
    ping_all(&client.netns, IpAddr::from(lab.address(1)), 20);
    // The kernel limits the rate of its errors.
    wait_for(LIMIT, "an error to the translated source", || refused(lab.address(1)))
        .unwrap_or_else(|why| panic!("{why:#}: {}", lab.state()));
    let tracked = lab.connections();
    assert!(
        tracked.contains("icmp,orig=") && tracked.contains(&format!("dst={other},sport=33434")),
        "{tracked}"
    );

    // The same towards a translated destination.
    let [a, b, c, _] = lab.address(0).octets();
    let virtual_address = Ipv4Addr::new(a, b, c, 178);
    let entry =
        ["neigh", "replace", &virtual_address.to_string(), "lladdr", &server.mac, "dev", client.dev.as_str()];
    client.netns.run("ip", &entry).unwrap();
    lab.rules(&format!(
        "ip actions=ct(zone=3,nat,table=1)
         table=1,in_port=1,ip,ct_state=+trk+new actions=ct(commit,zone=3,nat(dst={})),2
         table=1,in_port=2,ip,ct_state=+trk+rel actions=1
         table=1,in_port=1,ip,ct_state=+trk+est actions=2
         table=1,in_port=2,ip,ct_state=+trk+est actions=1",
        lab.address(1)
    ));
    ping_all(&client.netns, virtual_address.into(), 20);
    wait_for(LIMIT, "an error from the translated destination", || refused(virtual_address))
        .unwrap_or_else(|why| panic!("{why:#}: {}", lab.state()));
    let tracked = lab.connections();
    assert!(tracked.contains(&format!("dst={virtual_address},sport=")), "{tracked}");
}

/// Sends a datagram to a port without a server, with a given TTL, and prints the ICMP error that the kernel delivers for it:
/// type, offender, and the destination that the error cites. Arguments: source, destination, TTL.
const TRACE: &str = "\
import select, socket, struct, sys
source, to, ttl = sys.argv[1], sys.argv[2], int(sys.argv[3])
six = ':' in to
s = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM)
level, ttl_option, errors = (41, 16, 25) if six else (0, 2, 11)
s.setsockopt(level, errors, 1)
s.setsockopt(level, ttl_option, ttl)
s.bind((source, 0))
s.sendto(b'trace', (to, 33434 + ttl))
poll = select.poll()
poll.register(s, 0)
if poll.poll(2000):
    payload, ancillary, _, cited = s.recvmsg(2000, 500, 0x2000)
    assert payload == b'trace' and cited[1] == 33434 + ttl
    data = next(d for l, t, d in ancillary if (l, t) == (level, errors))
    address = data[24:40] if six else data[20:24]
    print(data[5], socket.inet_ntop(s.family, address), cited[0])
";

/// Host 2 is a router; a server is behind it. Host 1 reaches the server's network through the switch.
fn with_a_router() -> (Lab, Netns) {
    let lab = Lab::new(Kind::Userspace, "actions=drop");
    let (client, router) = (&lab.net.hosts[0], &lab.net.hosts[1]);
    let server = Netns::new("server").unwrap();
    let (near, far) = veth(&router.netns, &server).unwrap();
    router.netns.up(&near).unwrap();
    server.up(&far).unwrap();
    for (near_addr, far_addr, via) in [("10.9.0.1", "10.9.0.2/24", "24"), ("fd09::1", "fd09::2/64", "64")] {
        router.netns.add_addr(&near, &format!("{near_addr}/{via}")).unwrap();
        server.add_addr(&far, far_addr).unwrap();
        let family = if near_addr.contains(':') { "-6" } else { "-4" };
        server.ip(&format!("{family} route add default via {near_addr}")).unwrap();
    }
    for name in ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"] {
        router.netns.run("sysctl", &["-qw", name]).unwrap();
    }
    client.netns.ip(&format!("route add 10.9.0.0/16 via {}", router.ipv4)).unwrap();
    client.netns.ip(&format!("route add 10.8.0.0/16 via {}", router.ipv4)).unwrap();
    client.netns.ip(&format!("-6 route add fd09::/64 via {}", router.ipv6)).unwrap();
    client.netns.ip(&format!("-6 route add fd08::/64 via {}", router.ipv6)).unwrap();
    (lab, server)
}

/// Asserts the errors of both hops: the router's, and the server's. `offenders` are their addresses as the client sees them.
fn trace(lab: &Lab, to: &str, offenders: [String; 2]) {
    let client = &lab.net.hosts[0];
    let six = to.contains(':');
    let source = if six { client.ipv6.to_string() } else { client.ipv4.to_string() };
    // Time exceeded, and port unreachable.
    let types = if six { [3, 1] } else { [11, 3] };
    for (ttl, (kind, offender)) in types.into_iter().zip(offenders).enumerate() {
        let expected = format!("{kind} {offender} {to}\n");
        let mut got = String::new();
        // The kernel limits the rate of its errors, and neighbours may be unknown.
        wait_for(LIMIT, "an ICMP error", || {
            let args = ["-c", TRACE, &source, to, &(ttl + 1).to_string()];
            got = client.netns.run(PYTHON, &args).unwrap().stdout;
            !got.is_empty()
        })
        .unwrap_or_else(|why| panic!("{why:#}: {to}, TTL {}: {}", ttl + 1, lab.state()));
        assert_eq!(got, expected, "{to}: {}", lab.state());
    }
}

/// Rules that translate all connections of host 1, of both families.
fn translate(lab: &Lab, v4: &str, v6: &str) {
    lab.rules(&format!(
        "priority=50000,icmp6,icmp_type=135 actions=normal
         priority=50000,icmp6,icmp_type=136 actions=normal
         ip actions=ct(zone=3,nat,table=1)
         ipv6 actions=ct(zone=4,nat,table=1)
         table=1,in_port=1,ip,ct_state=+trk+new actions=ct(commit,zone=3,nat({v4})),2
         table=1,in_port=1,ipv6,ct_state=+trk+new actions=ct(commit,zone=4,nat({v6})),2
         table=1,in_port=1,ct_state=+trk+est,ip actions=2
         table=1,in_port=1,ct_state=+trk+est,ipv6 actions=2
         table=1,in_port=2,ct_state=+trk+rel,ip actions=1
         table=1,in_port=2,ct_state=+trk+rel,ipv6 actions=1"
    ));
}

#[test]
fn errors_of_routers_pass_a_translated_source() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "sysctl");
    let (lab, _server) = with_a_router();
    let (client, router) = (&lab.net.hosts[0], &lab.net.hosts[1]);
    let [a, b, c, _] = client.ipv4.octets();
    let (other, other6) = (Ipv4Addr::new(a, b, c, 177).to_string(), "fd00::177");
    for address in [&other, other6] {
        let entry = ["neigh", "replace", address, "lladdr", &client.mac, "dev", router.dev.as_str()];
        router.netns.run("ip", &entry).unwrap();
    }
    translate(&lab, &format!("src={other}"), &format!("src={other6}"));
    trace(&lab, "10.9.0.2", [router.ipv4.to_string(), "10.9.0.2".into()]);
    trace(&lab, "fd09::2", [router.ipv6.to_string(), "fd09::2".into()]);
    let tracked = lab.connections();
    assert!(tracked.contains(&format!("dst={other},")) && tracked.contains("dst=fd00::177,"), "{tracked}");
}

/// Errors about a translated destination come from the address that the client asked, also those of a router before it.
#[test]
fn errors_of_routers_pass_a_translated_destination() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "sysctl");
    let (lab, _server) = with_a_router();
    translate(&lab, "dst=10.9.0.2", "dst=fd09::2");
    trace(&lab, "10.8.0.1", ["10.8.0.1".into(), "10.8.0.1".into()]);
    trace(&lab, "fd08::1", ["fd08::1".into(), "fd08::1".into()]);
    let tracked = lab.connections();
    assert!(tracked.contains("dst=10.8.0.1,") && tracked.contains("src=10.9.0.2,"), "{tracked}");
    assert!(tracked.contains("dst=fd08::1,") && tracked.contains("src=fd09::2,"), "{tracked}");
}
