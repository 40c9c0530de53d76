//! Hostile traffic at the tracker of the userspace datapath: other ports lose no packet and get their share.
//!
//! The attacker is a port that replays a capture for ever, as fast as the switch reads it. Two hosts are its victims.
//! `make check-long` replays more flows for longer.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};

use packet::checksum::{checksum, fold, pseudo, sum};
use testkit::{Capture, Pings, require_netns, require_programs, wait_for};

use crate::ct_lab::{FIREWALL, Kind, Lab};
use crate::helpers::{LIMIT, appctl, capture_of, vsctl};

/// OpenFlow number of the attacker's port.
const ATTACKER: u32 = 91;

pub(crate) const FIN: u8 = 1;
pub(crate) const SYN: u8 = 2;
pub(crate) const RST: u8 = 4;
pub(crate) const ACK: u8 = 16;

/// The greater number in `make check-long`.
fn scaled(quick: u32, long: u32) -> u32 {
    if testkit::long() { long } else { quick }
}

/// An IPv4 packet in a frame. `fragment`: its identification, flags and offset.
pub(crate) fn ipv4(from: Ipv4Addr, to: Ipv4Addr, proto: u8, fragment: (u16, u16), body: &[u8]) -> Vec<u8> {
    let mut header = vec![0x45, 0];
    for word in [20 + body.len() as u16, fragment.0, fragment.1] {
        header.extend(word.to_be_bytes());
    }
    header.extend([64, proto, 0, 0]);
    header.extend(from.octets());
    header.extend(to.octets());
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 9, 8, 0];
    frame.extend(header);
    frame.extend(body);
    frame
}

/// A TCP segment in a frame.
pub(crate) fn tcp(
    from: SocketAddrV4,
    to: SocketAddrV4,
    seq: u32,
    ack: u32,
    flags: u8,
    payload: &[u8],
) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(from.port().to_be_bytes());
    body.extend(to.port().to_be_bytes());
    body.extend(seq.to_be_bytes());
    body.extend(ack.to_be_bytes());
    body.extend([0x50, flags, 0x20, 0, 0, 0, 0, 0]);
    body.extend(payload);
    let (src, dst) = (from.ip().octets(), to.ip().octets());
    let sum = !fold(sum(&body, pseudo(&src, &dst, 6, body.len())));
    body[16..18].copy_from_slice(&sum.to_be_bytes());
    ipv4(*from.ip(), *to.ip(), 6, (1, 0), &body)
}

/// The attacker's address number `n`, outside of the hosts' network.
fn forged(n: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0b00_0000 + n)
}

/// SYN number `n` of a flood.
fn syn(n: u32) -> Vec<u8> {
    tcp(
        SocketAddrV4::new(forged(n), 1024 + n as u16 % 60_000),
        SocketAddrV4::new(forged(0), 80),
        n,
        0,
        SYN,
        &[],
    )
}

impl Lab {
    /// A lab with these rules besides, above those of [`FIREWALL`].
    fn attacked(rules: &str) -> Lab {
        Lab::new(Kind::Userspace, &format!("{FIREWALL}\n{rules}"))
    }

    /// Starts the replay of frames by the attacker's port.
    fn attack(&self, frames: impl IntoIterator<Item = Vec<u8>>) {
        let file = self.daemon.rundir().join("attack.pcap");
        std::fs::write(&file, capture_of(frames)).unwrap();
        let line = format!(
            "add-port br0 attack -- set Interface attack type=pcap ofport_request={ATTACKER} \
             options:infinite_rx=true options:rx_pcap={}",
            file.display()
        );
        vsctl(&self.daemon, &line);
    }

    /// Waits until a counter has grown by this number.
    fn wait_counter(&self, name: &str, more: u64) {
        let before = self.counter(name);
        wait_for(LIMIT, name, || self.counter(name) >= before + more)
            .unwrap_or_else(|why| panic!("{why:#}: {}", appctl(&self.daemon, "coverage/show")));
    }

    fn counter(&self, name: &str) -> u64 {
        appctl(&self.daemon, &format!("coverage/read-counter {name}")).trim().parse().unwrap()
    }

    /// Pings from host 1 to host 2, each of which must get exactly one reply.
    fn ping(&self, count: u32, bytes: u32) {
        let args = ["-i", "0.01", "-s", &bytes.to_string(), &self.address(1).to_string()];
        let pings = Pings::start(&self.net.hosts[0].netns, &args).unwrap();
        pings
            .answered(count, LIMIT)
            .unwrap_or_else(|why| panic!("{why:#}\n{}", appctl(&self.daemon, "dpctl/ipf-get-status")));
    }

    /// A connection from host 1 to host 2.
    fn established(&self, port: u16) -> Stream {
        let listener = self.listen(1, port);
        let near = self.connect(0, (self.address(1), port));
        let near = near.unwrap_or_else(|| panic!("no connection to {port}: {}", self.state()));
        let far = listener.accept().unwrap().0;
        for stream in [&near, &far] {
            stream.set_read_timeout(Some(testkit::patience(LIMIT))).unwrap();
        }
        Stream { near, far, _listener: listener }
    }
}

/// Both ends of a connection.
struct Stream {
    near: TcpStream,
    far: TcpStream,
    _listener: TcpListener,
}

impl Stream {
    /// Sends numbered messages in both directions, which must arrive unchanged.
    fn exchange(&mut self, messages: u32) {
        for n in 0..messages {
            let (near, far) = (&self.near, &self.far);
            for (mut from, mut to) in [(near, far), (far, near)] {
                from.write_all(&n.to_be_bytes()).unwrap();
                let mut got = [0; 4];
                to.read_exact(&mut got).unwrap();
                assert_eq!(u32::from_be_bytes(got), n);
            }
        }
    }
}

#[test]
fn a_syn_flood_leaves_other_ports_their_share() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "ping");
    let lab = Lab::attacked(&format!("priority=40000,in_port={ATTACKER},tcp actions=ct(commit,zone=5)"));
    appctl(&lab.daemon, "dpctl/ct-set-maxconns 2000");
    let mut stream = lab.established(5001);
    lab.ping(2, 56);
    lab.attack((1..scaled(20_000, 200_000)).map(syn));
    lab.wait_counter("conntrack_port_full", 10_000);
    // The established traffic goes on.
    lab.ping(scaled(200, 1000), 56);
    stream.exchange(scaled(500, 5000));
    // A quarter of the places is kept, in equal shares for at most five ports.
    let streams: Vec<Stream> = (7000..7050).map(|port| lab.established(port)).collect();
    let tracked = lab.connections();
    for port in 7000..7050 {
        assert!(tracked.contains(&format!("sport={port}")), "{port}: {tracked}");
    }
    streams.into_iter().for_each(|mut s| s.exchange(10));
    lab.wait_counter("conntrack_port_full", 10_000);
    assert!(lab.dpctl(&["ct-get-nconns"]).trim().parse::<u32>().unwrap() <= 2000);
}

/// Sequence numbers of the first segments of both directions.
fn first_numbers(capture: &Capture) -> Option<[u32; 2]> {
    let number = |flags: &str| {
        let lines = capture.lines();
        let line = lines.iter().find(|l| l.contains(flags))?;
        line.split("seq ").nth(1)?.split(',').next()?.parse().ok()
    };
    Some([number("Flags [S],")?, number("Flags [S.],")?])
}

#[test]
fn segments_out_of_the_window_do_not_break_a_stream() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "ping", "tcpdump");
    // The attacker's segments are of the victim's connection, and would be forwarded.
    let lab = Lab::attacked(&format!(
        "priority=40000,in_port={ATTACKER},tcp,ct_state=-trk actions=ct(table=1,zone=5)
         table=1,priority=40001,in_port={ATTACKER},tcp,ct_state=+trk+inv actions=drop
         table=1,priority=40000,in_port={ATTACKER},tcp,ct_state=+trk-inv actions=1,2"
    ));
    let server = &lab.net.hosts[1];
    let capture = Capture::start(&server.netns, &server.dev, "tcp and port 5001", &["-S"]).unwrap();
    let mut stream = lab.established(5001);
    wait_for(LIMIT, "the first segments", || first_numbers(&capture).is_some()).unwrap();
    let [client_seq, server_seq] = first_numbers(&capture).unwrap();
    drop(capture);
    let client = SocketAddrV4::new(lab.address(0), stream.near.local_addr().unwrap().port());
    let server = SocketAddrV4::new(lab.address(1), 5001);
    // A quarter and three quarters of the sequence space away, beyond any window.
    let far = |n: u32| if n.is_multiple_of(2) { 0x4000_0000 + n } else { 0xc000_0000 - n };
    let storm = (0..scaled(4000, 40_000)).map(|n| {
        let flags = [RST, RST | ACK, FIN | ACK, ACK, SYN, SYN | ACK][n as usize / 4 % 6];
        let (seq, ack) = (client_seq.wrapping_add(far(n)), server_seq.wrapping_add(far(n)));
        match n / 2 % 2 {
            0 => tcp(client, server, seq, ack, flags, b"attack"),
            _ => tcp(server, client, ack, seq, flags, b"attack"),
        }
    });
    lab.attack(storm);
    lab.wait_counter("conntrack_tcp_seq_chk_failed", 20_000);
    stream.exchange(scaled(500, 5000));
    // No packet is lost: a stream would send it again.
    lab.ping(scaled(100, 1000), 56);
    lab.wait_counter("conntrack_tcp_seq_chk_failed", 20_000);
    stream.exchange(100);
    let tracked = lab.connections();
    let line = tracked.lines().find(|l| l.contains("dport=5001")).unwrap_or_default();
    assert!(line.contains("state=ESTABLISHED"), "{tracked}");
    appctl(&lab.daemon, "revalidator/wait");
    let rules = lab.daemon.ovs("ovs-ofctl", &["dump-flows", "br0", "table=1"]).unwrap().stdout;
    let passed = rules.lines().find(|l| l.contains("priority=40000")).unwrap();
    assert!(passed.contains("n_packets=0,"), "{rules}");
}

#[test]
fn incomplete_datagrams_do_not_displace_those_of_others() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "ping");
    let lab = Lab::attacked(&format!("priority=40000,in_port={ATTACKER},ip actions=ct(commit,zone=5)"));
    let mut stream = lab.established(5001);
    lab.ping(2, 4000);
    // First and middle fragments, of different datagrams.
    let body = vec![0; 1208];
    let bombs = (1..scaled(10_000, 60_000)).map(|n| {
        let place = if n.is_multiple_of(2) { 0x2000 } else { 0x2000 | 151 };
        ipv4(forged(n), forged(0), 17, (n as u16, place), &body)
    });
    lab.attack(bombs);
    let held = || {
        let status = appctl(&lab.daemon, "dpctl/ipf-get-status");
        let number = |l: &str| l.trim().strip_prefix("num frag: ")?.parse::<u32>().ok();
        status.lines().find_map(number).unwrap_or_else(|| panic!("{status}"))
    };
    let full = || wait_for(LIMIT, "fragments in nearly all places", || held() >= 900).unwrap();
    full();
    lab.ping(scaled(150, 1000), 4000);
    // Packets without fragments.
    lab.ping(scaled(100, 1000), 56);
    stream.exchange(scaled(300, 3000));
    // For a moment every 15 s, most have expired.
    full();
}

#[test]
fn exhausted_translations_of_a_port_do_not_concern_others() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "ping");
    let lab = Lab::new(Kind::Userspace, "ip actions=drop");
    let [a, b, c, _] = lab.address(0).octets();
    let other = Ipv4Addr::new(a, b, c, 77);
    let server = &lab.net.hosts[1];
    let entry = ["neigh", "replace", &other.to_string(), "lladdr", &lab.net.hosts[0].mac, "dev", &server.dev];
    server.netns.run("ip", &entry).unwrap();
    // Both ports translate to the same address, to ports of their own.
    lab.rules(&format!(
        "ip,in_port=1 actions=ct(commit,zone=3,nat(src={other}:20000-20999),table=1)
         in_port={ATTACKER},tcp actions=ct(commit,zone=3,nat(src={other}:7000-7009))
         ip,in_port=2 actions=ct(zone=3,nat,table=1)
         table=1,ip,in_port=1,ct_state=+snat actions=2
         table=1,ip,in_port=2,ct_state=+est actions=1"
    ));
    let mut stream = lab.established(5001);
    lab.attack((1..scaled(3000, 60_000)).map(syn));
    lab.wait_counter("conntrack_nat_exhausted", 5000);
    lab.ping(scaled(100, 1000), 56);
    stream.exchange(scaled(300, 3000));
    let streams: Vec<Stream> = (7000..7030).map(|port| lab.established(port)).collect();
    for mut stream in streams {
        let from = stream.far.peer_addr().unwrap();
        assert!(from.ip() == other && (20_000..21_000).contains(&from.port()), "{from}");
        stream.exchange(10);
    }
    lab.wait_counter("conntrack_nat_exhausted", 5000);
    // The attacker has its ten ports towards one destination, and no more.
    let tracked = lab.connections();
    let taken = |port: u16| tracked.matches(&format!(",dport={port}),zone=3")).count();
    assert!((7000..7010).all(|port| taken(port) == 1), "{tracked}");
}

#[test]
fn changing_zones_and_labels_do_not_concern_others() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "ping");
    let lab = Lab::attacked(&format!(
        "priority=40000,in_port={ATTACKER},tcp actions=move:NXM_OF_IP_SRC[0..15]->NXM_NX_REG0[0..15],\
         ct(commit,zone=NXM_NX_REG0[0..15],exec(move:NXM_OF_IP_SRC[]->NXM_NX_CT_LABEL[32..63],\
         move:NXM_OF_TCP_SRC[]->NXM_NX_CT_MARK[0..15]))"
    ));
    let mut stream = lab.established(5001);
    // Zones from 100 on: none is that of the hosts.
    let zones = scaled(1000, 20_000);
    lab.attack((100..100 + zones).map(syn));
    let connections = || lab.dpctl(&["ct-get-nconns"]).trim().parse::<u32>().unwrap();
    wait_for(LIMIT * 6, "a connection of each zone", || connections() > zones).unwrap();
    for round in 0..scaled(20, 200) {
        let zone = 100 + round;
        appctl(&lab.daemon, &format!("dpctl/ct-set-limits zone={zone},limit=5"));
        appctl(&lab.daemon, &format!("dpctl/flush-conntrack zone={zone}"));
        appctl(
            &lab.daemon,
            &format!(
                "dpctl/flush-conntrack labels=0x{:x}/0xffffffff00000000",
                u64::from(u32::from(forged(zone + 1))) << 32
            ),
        );
        stream.exchange(20);
        appctl(&lab.daemon, &format!("dpctl/ct-del-limits zone={zone}"));
    }
    lab.ping(scaled(100, 1000), 56);
    wait_for(LIMIT * 6, "the flushed zones again", || connections() > zones).unwrap();
    let tracked = lab.dpctl(&["dump-conntrack", "zone=103"]);
    let label = u64::from(u32::from(forged(103))) << 32;
    assert!(tracked.contains(&format!("zone=103,mark={},labels={label:#x}", 1024 + 103)), "{tracked}");
    // Nothing of it remains.
    vsctl(&lab.daemon, "del-port attack");
    appctl(&lab.daemon, "dpctl/flush-conntrack");
    wait_for(LIMIT, "an empty tracker", || connections() == 0).unwrap();
    let limits = lab.dpctl(&["ct-get-limits", "zone=103,5"]);
    assert!(
        limits.contains("zone=103,limit=0,count=0") && limits.contains("zone=5,limit=0,count=0"),
        "{limits}"
    );
}
