//! The userspace tracker beside that of Debian's switch, both with dummy ports: the same frames go in, and frames, packet
//! counts of rules and connections are compared. SCTP; the original tuple as fields, of both directions.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use packet::checksum::checksum;
use testkit::{Daemon, DaemonSpec, Netns, RunDir, require_netns, require_programs, wait_for};

use crate::helpers::{LIMIT, appctl, spec, vsctl};

/// A switch with the dummy ports `p1` and `p2`.
pub(crate) struct Side {
    pub(crate) daemon: Daemon,
    /// Captures of the frames that the ports sent.
    sent: [PathBuf; 2],
    _server: Option<Daemon>,
    _netns: Netns,
}

impl Side {
    pub(crate) fn new(is_stock: bool) -> Side {
        let netns = Netns::new("beside").unwrap();
        let (daemon, server) = if is_stock {
            let dir = RunDir::new("stock").unwrap();
            let spec = |program: &Path| Ok(DaemonSpec::new(program)?.netns(&netns).rundir(&dir));
            let args: [&[&str]; 2] = [&[], &["--enable-dummy", "--pidfile", "--log-file"]];
            let mut both = testkit::start_stock(spec, "ovs-vswitchd", &[], args).unwrap();
            let server = both.pop();
            (both.remove(0), server)
        } else {
            (spec(&netns).args(["--enable-dummy"]).start().unwrap(), None)
        };
        let sent = [1, 2].map(|n| daemon.rundir().join(&format!("p{n}.pcap")));
        let port = |n: usize| {
            format!(
                " -- add-port br0 p{n} -- set Interface p{n} type=dummy ofport_request={n} options:tx_pcap={}",
                sent[n - 1].display()
            )
        };
        let bridge = "add-br br0 -- set bridge br0 datapath_type=dummy fail_mode=secure";
        vsctl(&daemon, &format!("{bridge}{}{}", port(1), port(2)));
        Side { daemon, sent, _server: server, _netns: netns }
    }

    /// Sluice, and the stock switch.
    pub(crate) fn both() -> [Side; 2] {
        [Side::new(false), Side::new(true)]
    }

    pub(crate) fn rules(&self, rules: &str) {
        let file = self.daemon.rundir().join("rules");
        std::fs::write(&file, rules.lines().map(|l| format!("{}\n", l.trim())).collect::<String>()).unwrap();
        // Rules that are the same begin to count anew.
        self.daemon.ovs("ovs-ofctl", &["del-flows", "br0"]).unwrap();
        self.daemon.ovs("ovs-ofctl", &["add-flows", "br0", file.to_str().unwrap()]).unwrap();
        // Open vSwitch may send packets by the rules before until it has checked its flows.
        appctl(&self.daemon, "revalidator/wait");
    }

    /// A frame, in hexadecimal digits, or a flow.
    pub(crate) fn receive(&self, port: usize, packet: &str) {
        appctl(&self.daemon, &format!("netdev-dummy/receive p{port} {packet}"));
    }

    /// Frames that a port has sent so far, in hexadecimal digits.
    pub(crate) fn sent(&self, port: usize) -> Vec<String> {
        let file = std::fs::read(&self.sent[port - 1]).unwrap_or_default();
        let mut rest = file.get(24..).unwrap_or_default();
        let mut frames = Vec::new();
        while let Some((header, more)) = rest.split_at_checked(16) {
            let bytes = u32::from_le_bytes(header[8..12].try_into().unwrap()) as usize;
            let Some((frame, more)) = more.split_at_checked(bytes) else { break };
            frames.push(hex(frame));
            rest = more;
        }
        frames
    }

    /// Passes a frame; returns the one that the other port sends.
    pub(crate) fn pass(&self, port: usize, packet: &str) -> String {
        let other = 3 - port;
        let before = self.sent(other).len();
        self.receive(port, packet);
        let mut sent = Vec::new();
        wait_for(LIMIT, "a frame", || {
            sent = self.sent(other);
            sent.len() > before
        })
        .unwrap_or_else(|why| panic!("{why:#}: {packet}\n{}", self.state()));
        assert_eq!(sent.len(), before + 1);
        sent.pop().unwrap()
    }

    /// Packets of each rule with a cookie.
    fn counts(&self) -> BTreeMap<String, u64> {
        appctl(&self.daemon, "revalidator/wait");
        let dump = self.daemon.ovs("ovs-ofctl", &["dump-flows", "br0"]).unwrap().stdout;
        let of = |line: &str, name: &str| {
            let rest = line.split_once(name)?.1;
            Some(rest.split([',', ' ']).next()?.to_string())
        };
        let rows = dump.lines().filter_map(|line| {
            let cookie = of(line, "cookie=").filter(|c| c != "0x0")?;
            Some((cookie, of(line, "n_packets=")?.parse().ok()?))
        });
        rows.collect()
    }

    /// Tracked connections, in order, without numbers that vary.
    pub(crate) fn tracked(&self) -> Vec<String> {
        let mut lines: Vec<String> =
            appctl(&self.daemon, "dpctl/dump-conntrack").lines().map(str::to_string).collect();
        lines.sort();
        lines
    }

    fn state(&self) -> String {
        let rules = self.daemon.ovs("ovs-ofctl", &["dump-flows", "br0"]).unwrap().stdout;
        format!("{}\n{rules}\n{}", appctl(&self.daemon, "dpctl/dump-flows"), self.tracked().join("\n"))
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The checksum of SCTP, bit by bit (RFC 9260, appendix A).
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = !0_u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    !crc
}

/// A packet of SCTP in a frame, with right checksums.
fn sctp(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), tag: u32, chunk: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(from.1.to_be_bytes());
    body.extend(to.1.to_be_bytes());
    body.extend(tag.to_be_bytes());
    body.extend([0; 4]);
    body.extend(chunk);
    let crc = crc32c(&body);
    body[8..12].copy_from_slice(&crc.to_le_bytes());
    let mut header = vec![0x45, 0, 0, (20 + body.len()) as u8, 0, 1, 0, 0, 64, 132, 0, 0];
    header.extend(from.0.octets());
    header.extend(to.0.octets());
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    let ethernet = [0x50, 0, 0, 0, 0, 2, 0x50, 0, 0, 0, 0, 1, 8, 0];
    [&ethernet[..], &header, &body].concat()
}

/// Chunks of an association (RFC 9260, section 3.3): its begin, the answer, data.
const INIT: [u8; 20] = [1, 0, 0, 20, 0x11, 0x22, 0x33, 0x44, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1];
const INIT_ACK: [u8; 20] = [2, 0, 0, 20, 0x55, 0x66, 0x77, 0x88, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 9];
const DATA: [u8; 20] = [0, 3, 0, 20, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, b'd', b'a', b't', b'a'];

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const OTHER_CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// Translated source of clients.
const TRANSLATED: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);
/// The address that clients ask.
const VIRTUAL: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 99);

/// Rules that translate connections which clients begin, and pass valid packets of connections only.
fn sctp_rules(nat: &str) -> String {
    format!(
        "sctp,in_port=1 actions=ct(zone=3,nat,table=1)
         sctp,in_port=2 actions=ct(zone=3,nat,table=1)
         cookie=1,table=1,in_port=1,sctp,ct_state=+trk+new-inv actions=ct(commit,zone=3,nat({nat})),2
         cookie=2,table=1,in_port=1,sctp,ct_state=+trk+est-rpl-inv actions=2
         cookie=3,table=1,in_port=2,sctp,ct_state=+trk+est+rpl-inv actions=1
         cookie=4,table=1,priority=60000,sctp,ct_state=+trk+inv actions=drop"
    )
}

/// The packets of an association, as both ends send them: port of the switch, frame. The server answers `seen`.
fn association(server: Ipv4Addr, seen: (Ipv4Addr, u16), asked: Ipv4Addr) -> [(usize, Vec<u8>); 4] {
    let client = (CLIENT, 1000);
    [
        (1, sctp(client, (asked, 2000), 0, &INIT)),
        (2, sctp((server, 2000), seen, 0x1122_3344, &INIT_ACK)),
        (1, sctp(client, (asked, 2000), 0x5566_7788, &DATA)),
        (2, sctp((server, 2000), seen, 0x1122_3344, &DATA)),
    ]
}

/// With the port kept, both switches send the same bytes: the checksum of SCTP covers no address. (Open vSwitch 3.1 knows
/// no ports of SCTP, and translates addresses only.)
#[test]
fn translated_associations_are_those_of_open_vswitch() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool");
    let sides = Side::both();
    for (nat, seen, asked) in
        [(format!("src={TRANSLATED}"), TRANSLATED, SERVER), (format!("dst={SERVER}"), CLIENT, VIRTUAL)]
    {
        let mut passed = sides.each_ref().map(|side| {
            side.rules(&sctp_rules(&nat));
            let all = association(SERVER, (seen, 1000), asked);
            let passed: Vec<_> = all.iter().map(|(port, frame)| side.pass(*port, &hex(frame))).collect();
            let counts = side.counts();
            let of = |cookie: &str| counts[cookie];
            assert_eq!(["0x1", "0x2", "0x3", "0x4"].map(of), [1, 1, 2, 0], "{nat}: {}", side.state());
            appctl(&side.daemon, "dpctl/flush-conntrack");
            passed
        });
        let [ours, stock] = &mut passed;
        assert_eq!(ours, stock, "{nat}");
        // The ends see the translation.
        assert_eq!(ours[0], hex(&sctp((seen, 1000), (SERVER, 2000), 0, &INIT)));
        assert_eq!(ours[3], hex(&sctp((asked, 2000), (CLIENT, 1000), 0x1122_3344, &DATA)));
    }
}

/// Ports of SCTP are translated, with the right CRC32c, where that of a second client is taken; and packets with a wrong one
/// are invalid.
#[test]
fn ports_of_associations_are_translated() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let side = Side::new(false);
    side.rules(&sctp_rules(&format!("src={TRANSLATED}:5000-5001")));
    let mut ports = Vec::new();
    for client in [CLIENT, OTHER_CLIENT] {
        let client = (client, 1000);
        let begun = side.pass(1, &hex(&sctp(client, (SERVER, 2000), 0, &INIT)));
        let port = u16::from_str_radix(&begun[68..72], 16).unwrap();
        assert!((5000..=5001).contains(&port), "{port}");
        assert_eq!(begun, hex(&sctp((TRANSLATED, port), (SERVER, 2000), 0, &INIT)));
        let answer = sctp((SERVER, 2000), (TRANSLATED, port), 0x1122_3344, &INIT_ACK);
        let answered = side.pass(2, &hex(&answer));
        assert_eq!(answered, hex(&sctp((SERVER, 2000), client, 0x1122_3344, &INIT_ACK)));
        let more = side.pass(1, &hex(&sctp(client, (SERVER, 2000), 0x5566_7788, &DATA)));
        assert_eq!(more, hex(&sctp((TRANSLATED, port), (SERVER, 2000), 0x5566_7788, &DATA)));
        ports.push(port);
    }
    assert_ne!(ports[0], ports[1]);
    let line = |client: Ipv4Addr, port: u16| {
        format!(
            "sctp,orig=(src={client},dst={SERVER},sport=1000,dport=2000),\
             reply=(src={SERVER},dst={TRANSLATED},sport=2000,dport={port}),zone=3"
        )
    };
    let tracked = side.tracked();
    for (client, port) in [CLIENT, OTHER_CLIENT].into_iter().zip(&ports) {
        assert!(tracked.iter().any(|l| l.starts_with(&line(client, *port))), "{tracked:?}");
    }
    // A third client finds no port: its packet stays new, untranslated and uncommitted.
    let third = sctp((Ipv4Addr::new(10, 0, 0, 4), 1000), (SERVER, 2000), 0, &INIT);
    assert_eq!(side.pass(1, &hex(&third)), hex(&third));
    assert_eq!(appctl(&side.daemon, "coverage/read-counter conntrack_nat_exhausted"), "1\n");
    assert_eq!(side.tracked().len(), 2);
    // A wrong checksum.
    let mut wrong = sctp((CLIENT, 1000), (SERVER, 2000), 0x5566_7788, &DATA);
    wrong[45] ^= 1;
    side.receive(1, &hex(&wrong));
    wait_for(LIMIT, "an invalid packet", || side.counts()["0x4"] == 1).unwrap();
    assert_eq!(side.counts()["0x2"], 2);
}

/// Both directions of a connection, as flows: its addresses, and the text behind them.
struct Talk {
    v6: bool,
    from: &'static str,
    /// The address that is asked, and the one that answers.
    to: [&'static str; 2],
    proto: u8,
    /// Transport headers of packets: forth, back.
    headers: [&'static str; 2],
    /// The original tuple's ports, for ICMP type and code.
    ports: (u16, u16),
}

const TALKS: [Talk; 6] = [
    Talk {
        v6: false,
        from: "10.0.0.1",
        to: ["10.0.0.99", "10.0.0.2"],
        proto: 6,
        headers: ["tcp(src=1000,dst=80),tcp_flags(syn)", "tcp(src=80,dst=1000),tcp_flags(syn|ack)"],
        ports: (1000, 80),
    },
    Talk {
        v6: false,
        from: "10.0.0.1",
        to: ["10.0.0.99", "10.0.0.2"],
        proto: 17,
        headers: ["udp(src=1001,dst=53)", "udp(src=53,dst=1001)"],
        ports: (1001, 53),
    },
    Talk {
        v6: false,
        from: "10.0.0.1",
        to: ["10.0.0.99", "10.0.0.2"],
        proto: 1,
        headers: ["icmp(type=8,code=0)", "icmp(type=0,code=0)"],
        ports: (8, 0),
    },
    Talk {
        v6: true,
        from: "fd00::1",
        to: ["fd00::99", "fd00::2"],
        proto: 6,
        headers: ["tcp(src=1002,dst=80),tcp_flags(syn)", "tcp(src=80,dst=1002),tcp_flags(syn|ack)"],
        ports: (1002, 80),
    },
    Talk {
        v6: true,
        from: "fd00::1",
        to: ["fd00::99", "fd00::2"],
        proto: 17,
        headers: ["udp(src=1003,dst=53)", "udp(src=53,dst=1003)"],
        ports: (1003, 53),
    },
    Talk {
        v6: true,
        from: "fd00::1",
        to: ["fd00::99", "fd00::2"],
        proto: 58,
        headers: ["icmpv6(type=128,code=0)", "icmpv6(type=129,code=0)"],
        ports: (128, 0),
    },
];

impl Talk {
    /// The flow of a packet.
    fn flow(&self, reply: bool) -> String {
        let (port, src, dst, header) = match reply {
            false => (1, self.from, self.to[0], self.headers[0]),
            true => (2, self.to[1], self.from, self.headers[1]),
        };
        let proto = self.proto;
        let ip = match self.v6 {
            false => format!("eth_type(0x0800),ipv4(src={src},dst={dst},proto={proto},tos=0,ttl=64,frag=no)"),
            true => format!(
                "eth_type(0x86dd),ipv6(src={src},dst={dst},label=0,proto={proto},tclass=0,hlimit=64,frag=no)"
            ),
        };
        format!("in_port({port}),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),{ip},{header}")
    }

    /// A match of its original tuple: `off` is added to the destination port.
    fn tuple(&self, off: u16) -> String {
        let (from, to) = (self.from, self.to[0]);
        let addresses = match self.v6 {
            false => format!("ip,ct_nw_src={from},ct_nw_dst={to}"),
            true => format!("ipv6,ct_ipv6_src={from},ct_ipv6_dst={to}"),
        };
        let (src, dst) = self.ports;
        format!("{addresses},ct_nw_proto={},ct_tp_src={src},ct_tp_dst={}", self.proto, dst + off)
    }
}

/// Rules that match packets of both directions by the original tuple, which translation does not change. The rows with
/// another port match none.
fn tuple_rules() -> String {
    let mut rules = "\
        ip actions=ct(zone=4,nat,table=1)
        ipv6 actions=ct(zone=4,nat,table=1)\n"
        .to_string();
    for (n, talk) in (0..).zip(&TALKS) {
        let nat = format!("ct(commit,zone=4,nat(dst={}))", talk.to[1]);
        let (exact, other) = (talk.tuple(0), talk.tuple(1));
        let row = 16 * (n + 1);
        rules += &format!(
            "cookie={},table=1,priority=20,in_port=1,ct_state=+trk+new,{exact} actions={nat},2
             cookie={},table=1,priority=20,in_port=1,ct_state=+trk+est-rpl,{exact} actions=2
             cookie={},table=1,priority=20,in_port=2,ct_state=+trk+est+rpl,{exact} actions=1
             cookie={},table=1,priority=30,ct_state=+trk+new,{other} actions=drop
             cookie={},table=1,priority=30,ct_state=+trk+est,{other} actions=drop\n",
            row,
            row + 1,
            row + 2,
            row + 3,
            row + 4
        );
    }
    rules + "cookie=1,table=1,priority=10 actions=drop\n"
}

#[test]
fn packets_of_both_directions_match_by_the_original_tuple() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool");
    let sides = Side::both();
    let [ours, stock] = sides.each_ref().map(|side| {
        side.rules(&tuple_rules());
        let mut passed = Vec::new();
        for talk in &TALKS {
            passed.push(side.pass(1, &talk.flow(false)));
            passed.push(side.pass(2, &talk.flow(true)));
            passed.push(side.pass(1, &talk.flow(false)));
            passed.push(side.pass(2, &talk.flow(true)));
        }
        let counts = side.counts();
        for (n, talk) in (0..).zip(&TALKS) {
            let of = |row: u32| counts[&format!("{:#x}", 16 * (n + 1) + row)];
            // A second SYN after the answer begins nothing.
            assert_eq!([0, 1, 2, 3, 4].map(of), [1, 1, 2, 0, 0], "{}: {}", talk.tuple(0), side.state());
        }
        assert_eq!(counts["0x1"], 0, "{}", side.state());
        (passed, side.tracked())
    });
    assert_eq!(ours, stock);
}
