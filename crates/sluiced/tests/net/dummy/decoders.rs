//! Datagrams of exporters as the programs of others read them: nfdump, pmacct and tshark.
//!
//! One set of packets goes through a bridge with NetFlow, IPFIX and sFlow. A decoder gets the datagrams as a file, or by its
//! socket, and its addresses, ports, tags, packets and bytes are those of the packets.

use super::Lab;
use super::exports::collector;
use crate::helpers::{LIMIT, vsctl};
use std::net::UdpSocket;
use std::path::Path;
use testkit::{Cmd, Netns, Signal, TempDir, require_netns, require_programs, wait_for};

macro_rules! require {
    ($($program:literal),+) => {
        require_netns!();
        require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", $($program),+);
    };
}

/// Packets from port 1 to port 2: header fields as text of the datapath, and how many.
const PACKETS: [(&str, usize); 3] = [
    ("proto=6,tos=0x20,ttl=64,frag=no),tcp(src=1000,dst=80),tcp_flags(0x012)", 4),
    ("proto=17,tos=0,ttl=64,frag=no),udp(src=2000,dst=53)", 3),
    ("proto=1,tos=0,ttl=64,frag=no),icmp(type=8,code=0)", 2),
];
/// Bytes of each packet.
const FRAME_BYTES: usize = 118;
/// Bytes of the tag of packets with one.
const TAG: &str = "eth_type(0x8100),vlan(vid=7,pcp=3),encap(eth_type(0x0800),";

/// Sends the packets through a bridge whose column refers to the row, and ends the export.
fn datagrams(column: &str, row: &str) -> Vec<Vec<u8>> {
    let lab = Lab::new();
    vsctl(&lab.daemon, "set Interface p1 options:ifindex=1001 -- set Interface p2 options:ifindex=1002");
    lab.ofctl(&["del-flows", "br0"]);
    lab.ofctl(&["add-flow", "br0", "in_port=1,actions=output:2"]);
    let (socket, address) = collector(&lab);
    let row = row.replace("TARGET", &address);
    vsctl(&lab.daemon, &format!("-- --id=@r create {row} -- set Bridge br0 {column}=@r"));
    wait_for(LIMIT, "the exporter", || {
        let trace = lab.appctl("ofproto/trace br0 in_port=1,tcp,nw_src=10.0.0.1");
        let megaflow = trace.lines().find(|line| line.starts_with("Megaflow:")).unwrap_or_default();
        trace.contains("userspace(") || megaflow.contains("nw_src")
    })
    .unwrap();
    let eth = "in_port(1),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07)";
    for (fields, count) in PACKETS {
        let ip = format!("ipv4(src=10.0.0.1,dst=10.0.0.2,{fields}");
        let frame = match column {
            "netflow" => format!("{eth},eth_type(0x0800),{ip}"),
            _ => format!("{eth},{TAG}{ip})"),
        };
        for _ in 0..count {
            lab.receive("p1", &format!("{frame} --len {FRAME_BYTES}"));
        }
    }
    lab.appctl("revalidator/wait");
    vsctl(&lab.daemon, &format!("clear Bridge br0 {column}"));
    received(&socket, column)
}

/// All datagrams up to the end of the export: as many records as there are packets, or flows.
fn received(socket: &UdpSocket, column: &str) -> Vec<Vec<u8>> {
    let packets: usize = PACKETS.iter().map(|(_, count)| count).sum();
    let mut datagrams: Vec<Vec<u8>> = Vec::new();
    let mut left = if column == "sflow" { packets } else { PACKETS.len() };
    let mut buffer = [0; 2048];
    while left > 0 {
        let length = socket.recv(&mut buffer).expect("a datagram");
        let datagram = buffer[..length].to_vec();
        let records = match column {
            "netflow" => usize::from(datagram[3]),
            "sflow" => usize::from(datagram[27]),
            // A set of data, not one of templates or statistics.
            _ => usize::from(datagram[12..16] == [0, 0, 0, 5] && datagram[16] > 0),
        };
        left = left.saturating_sub(records);
        datagrams.push(datagram);
    }
    datagrams
}

/// A capture file with the datagrams, sent to that port.
fn write_capture(path: &Path, datagrams: &[Vec<u8>], port: u16) {
    let mut file = Vec::new();
    // Magic number, version, zone, accuracy, bytes of a packet, Ethernet.
    for word in [0xa1b2_c3d4u32, 0x0002_0004, 0, 0, 65535, 1] {
        file.extend(word.to_be_bytes());
    }
    for datagram in datagrams {
        let udp = 8 + datagram.len() as u16;
        let length = u32::from(udp) + 34;
        for word in [1_700_000_000, 0, length, length] {
            file.extend(word.to_be_bytes());
        }
        file.extend([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0]);
        file.extend((udp + 20).to_be_bytes());
        file.extend([0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
        for number in [40_000, port, udp, 0] {
            file.extend(number.to_be_bytes());
        }
        file.extend(datagram);
    }
    std::fs::write(path, file).unwrap();
}

/// The standard output of a program that succeeds.
fn run(program: &str, arguments: &[&str]) -> String {
    Cmd::new(program).args(arguments.iter().copied()).run().unwrap().stdout
}

/// Lines of words, sorted.
fn table(text: &str, separator: char) -> Vec<Vec<String>> {
    let words = |line: &str| {
        line.split(separator).map(str::trim).filter(|word| !word.is_empty()).map(String::from).collect()
    };
    let mut lines: Vec<Vec<String>> = text.lines().map(words).collect();
    lines.retain(|words| !words.is_empty());
    lines.sort();
    lines
}

fn rows(lines: &[&str]) -> Vec<Vec<String>> {
    table(&lines.join("\n"), ' ')
}

const NETFLOW: &str = "NetFlow targets=\"TARGET\" active_timeout=600";
const IPFIX: &str = "IPFIX targets=\"TARGET\" sampling=1 obs_domain_id=5 obs_point_id=6 cache_active_timeout=600 \
     cache_max_flows=100 other_config:enable-output-sampling=false";
const SFLOW: &str = "sFlow targets=\"TARGET\" sampling=1 polling=0 header=128 agent=127.0.0.1";

/// Values that tshark reads from fields of datagrams to a port of a protocol: a line a datagram.
fn tshark(dir: &TempDir, sent: &[Vec<u8>], protocol: &str, fields: &[&str]) -> Vec<Vec<String>> {
    let file = dir.path().join("datagrams.pcap");
    write_capture(&file, sent, 9995);
    let decode = format!("udp.port==9995,{protocol}");
    let file = file.display().to_string();
    // Templates of IPFIX have more than 60 fields.
    let options = ["-r", &file, "-d", &decode, "-o", "cflow.max_template_fields:100", "-T", "fields"];
    let fields = fields.iter().flat_map(|field| ["-e", field]);
    let arguments: Vec<&str> = options.into_iter().chain(["-E", "separator=;"]).chain(fields).collect();
    table(&run("tshark", &arguments), ';')
}

#[test]
#[ignore = "tshark; the long check has it"]
fn tshark_reads_all_formats() {
    require!("tshark");
    let dir = TempDir::new("decoders").unwrap();
    let sent = datagrams("netflow", NETFLOW);
    let counts = ["cflow.packets", "cflow.octets", "cflow.tcpflags", "cflow.inputint", "cflow.outputint"];
    let read = tshark(&dir, &sent, "cflow", &counts);
    // Flows have no order.
    let mut flows: Vec<Vec<&str>> = Vec::new();
    for flow in 0..PACKETS.len() {
        flows.push(read[0].iter().map(|values| values.split(',').nth(flow).unwrap()).collect());
    }
    flows.sort_unstable();
    assert_eq!(
        flows,
        [["2", "236", "0x00", "1", "2"], ["3", "354", "0x00", "1", "2"], ["4", "472", "0x12", "1", "2"]]
    );

    let fields = ["cflow.srcaddr", "cflow.dstaddr", "cflow.protocol", "cflow.srcport", "cflow.dstport"];
    let fields =
        [&fields[..], &["cflow.packets", "cflow.octets", "cflow.dot1q_vlan_id", "cflow.dot1q_priority"]]
            .concat();
    let read = tshark(&dir, &datagrams("ipfix", IPFIX), "cflow", &fields);
    assert_eq!(
        read,
        // ICMP has its type and code in other fields.
        rows(&[
            "10.0.0.1 10.0.0.2 1 2 200 7 3",
            "10.0.0.1 10.0.0.2 17 2000 53 3 300 7 3",
            "10.0.0.1 10.0.0.2 6 1000 80 4 400 7 3",
        ])
    );

    let fields = [
        "sflow_245.header.frame_length",
        "sflow_245.vlan.in",
        "sflow_245.pri.in",
        "tcp.dstport",
        "icmp.type",
    ];
    let read = tshark(&dir, &datagrams("sflow", SFLOW), "sflow", &fields).concat();
    let count = |word: &str| read.iter().flat_map(|words| words.split(',')).filter(|w| *w == word).count();
    // Frames are counted with their checksum.
    assert_eq!([count("122"), count("7"), count("80"), count("8")], [9, 9, 4, 2], "{read:?}");
}

/// Packets and bytes by these keys, as pmacct reads them.
fn pmacct(dir: &TempDir, sent: &[Vec<u8>], program: &str, keys: &str) -> Vec<Vec<String>> {
    let [capture, settings, output] =
        ["datagrams.pcap", "settings", "output.csv"].map(|name| dir.path().join(name));
    write_capture(&capture, sent, 9995);
    let text = format!(
        "daemonize: false\npcap_savefile: {}\naggregate: {keys}\nplugins: print\nprint_refresh_time: 1\n\
         print_output: csv\nprint_output_file: {}\n",
        capture.display(),
        output.display()
    );
    std::fs::write(&settings, text).unwrap();
    run(program, &["-f", &settings.display().to_string()]);
    let read = std::fs::read_to_string(&output).unwrap();
    table(read.split_once('\n').unwrap().1, ',')
}

#[test]
#[ignore = "pmacct; the long check has it"]
fn pmacct_reads_all_formats() {
    require!("nfacctd", "sfacctd");
    let dir = TempDir::new("decoders").unwrap();
    let keys = "src_host, dst_host, src_port, dst_port, proto, tos";
    let read =
        pmacct(&dir, &datagrams("netflow", NETFLOW), "nfacctd", &format!("{keys}, in_iface, out_iface"));
    assert_eq!(
        read,
        rows(&[
            "1 2 10.0.0.1 10.0.0.2 0 2048 icmp 0 2 236",
            "1 2 10.0.0.1 10.0.0.2 1000 80 tcp 32 4 472",
            "1 2 10.0.0.1 10.0.0.2 2000 53 udp 0 3 354",
        ])
    );
    let keys = format!("{keys}, vlan, src_mac");
    let wanted = |bytes: [usize; 3]| {
        let [icmp, tcp, udp] = bytes;
        let of = "50:54:00:00:00:05 7 10.0.0.1 10.0.0.2";
        let lines = [
            format!("{of} 0 0 icmp 0 2 {icmp}"),
            format!("{of} 1000 80 tcp 32 4 {tcp}"),
            format!("{of} 2000 53 udp 0 3 {udp}"),
        ];
        rows(&lines.each_ref().map(String::as_str))
    };
    // Bytes of IP, and of frames with their checksum.
    assert_eq!(pmacct(&dir, &datagrams("ipfix", IPFIX), "nfacctd", &keys), wanted([200, 400, 300]));
    assert_eq!(pmacct(&dir, &datagrams("sflow", SFLOW), "sfacctd", &keys), wanted([244, 488, 366]));
}

/// Flows that a collector of nfdump stores. It reports no sequence errors.
fn nfdump(dir: &TempDir, sent: &[Vec<u8>], collector: &str, format: &str) -> Vec<Vec<String>> {
    let netns = Netns::new("collect").unwrap();
    netns.up("lo").unwrap();
    let store = dir.path().join(collector);
    // Each format has an empty folder.
    let _absent = std::fs::remove_dir_all(&store);
    std::fs::create_dir(&store).unwrap();
    let folder = store.display().to_string();
    let arguments = ["-w", &folder, "-p", "9995", "-b", "127.0.0.1", "-t", "3600"];
    let running = Cmd::new(collector).args(arguments).netns(&netns).spawn().unwrap();
    // Its socket, with the bytes that wait.
    let waiting = || {
        let sockets = netns.enter(|| std::fs::read_to_string("/proc/thread-self/net/udp").unwrap()).unwrap();
        let line = sockets.lines().find(|line| line.contains("0100007F:270B"))?;
        line.split_whitespace().nth(4).map(|queues| queues.ends_with(":00000000"))
    };
    wait_for(LIMIT, "the collector", || waiting().is_some()).unwrap();
    let socket = netns.enter(|| UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
    for datagram in sent {
        socket.send_to(datagram, "127.0.0.1:9995").unwrap();
    }
    // It waits for more: a signal between reading and storing would lose the last one.
    let sleeps = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", running.pid())).unwrap();
        stat.contains(") S ")
    };
    wait_for(LIMIT, "all datagrams stored", || {
        waiting() == Some(true) && sleeps() && waiting() == Some(true)
    })
    .unwrap();
    let ended = running.stop(Signal::TERM, LIMIT).unwrap();
    let said = ended.stdout + &ended.stderr;
    assert!(said.contains("Sequence Errors: 0, Bad Packets: 0"), "{said}");
    table(&run("nfdump", &["-q", "-R", &folder, "-o", &format!("fmt:{format}")]), ' ')
}

#[test]
fn nfdump_reads_all_formats() {
    require!("nfcapd", "sfcapd", "nfdump");
    let dir = TempDir::new("decoders").unwrap();
    let of_flow = "%sa %da %sp %dp %pr %tos %in %out";
    let sent = datagrams("netflow", NETFLOW);
    assert_eq!(
        nfdump(&dir, &sent, "nfcapd", &format!("{of_flow} %pkt %byt %flg")),
        rows(&[
            "10.0.0.1 10.0.0.2 0 8.0 ICMP 0 1 2 2 236 ........",
            "10.0.0.1 10.0.0.2 1000 80 TCP 32 1 2 4 472 ...A..S.",
            "10.0.0.1 10.0.0.2 2000 53 UDP 0 1 2 3 354 ........",
        ])
    );
    // It shows counters of the exporter in place of those of the flow, and does not read type and code of ICMP.
    let sent = datagrams("ipfix", IPFIX);
    assert_eq!(
        nfdump(&dir, &sent, "nfcapd", &format!("{of_flow} %svln")),
        rows(&[
            "10.0.0.1 10.0.0.2 0 0.0 ICMP 0 1001 0 7",
            "10.0.0.1 10.0.0.2 1000 80 TCP 32 1001 0 7",
            "10.0.0.1 10.0.0.2 2000 53 UDP 0 1001 0 7",
        ])
    );
    let sent = datagrams("sflow", SFLOW);
    let packets = |line: &'static str, count| std::iter::repeat_n(line, count);
    let lines: Vec<&str> = packets("10.0.0.1 10.0.0.2 8 0.0 ICMP 0 1001 1002 7 1 122", 2)
        .chain(packets("10.0.0.1 10.0.0.2 1000 80 TCP 32 1001 1002 7 1 122", 4))
        .chain(packets("10.0.0.1 10.0.0.2 2000 53 UDP 0 1001 1002 7 1 122", 3))
        .collect();
    assert_eq!(nfdump(&dir, &sent, "sfcapd", &format!("{of_flow} %svln %pkt %byt")), rows(&lines));
}
