//! Everyday traffic through translations of the userspace datapath: many short connections, TFTP, ICMP errors.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::sync::Mutex;

use testkit::{patience, require_netns, require_programs, wait_for};

use crate::ct_lab::{Kind, Lab};
use crate::helpers::{LIMIT, appctl, ping_all};

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
