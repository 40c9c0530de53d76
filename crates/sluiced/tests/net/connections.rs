//! Tracked connections: the table shared by kernel datapaths, dumped and flushed by Sluice and Debian's tool; and the answers
//! of a datapath without tracking.

use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};

use testkit::{Daemon, Netns, RunDir, Topology, require_netns, require_programs, wait_for};

use crate::helpers::{LIMIT, appctl, appctl_output, require_userspace, switch, vsctl};
use crate::kernel::{dpctl, require_kernel, start};

/// The datapath of another program.
const OTHER: &str = "sl-other";

/// Flows of [`OTHER`]: keys, and actions before the output to the other port.
const FLOWS: [(&str, &str); 10] = [
    ("eth_type(0x0806),arp()", ""),
    ("eth_type(0x86dd),ipv6(proto=58,frag=no),icmpv6(type=135),nd()", ""),
    ("eth_type(0x86dd),ipv6(proto=58,frag=no),icmpv6(type=136),nd()", ""),
    ("eth_type(0x86dd),ipv6(proto=58,frag=no),icmpv6(type=128)", "ct(commit,zone=8),"),
    ("eth_type(0x86dd),ipv6(proto=58,frag=no),icmpv6(type=129)", "ct(commit,zone=8),"),
    ("eth_type(0x86dd),ipv6(proto=6,frag=no),tcp(),tcp_flags(0/0)", "ct(commit,zone=8,mark=0x9/0xffffffff),"),
    ("eth_type(0x86dd),ipv6(proto=17,frag=no),udp()", "ct(commit,zone=8),"),
    ("eth_type(0x0800),ipv4(proto=1,frag=no),icmp()", "ct(commit,zone=7),"),
    (
        "eth_type(0x0800),ipv4(proto=6,frag=no),tcp(),tcp_flags(0/0)",
        "ct(commit,zone=7,mark=0x5/0xffffffff,label=0x1234/0xffffffffffffffffffffffffffffffff),",
    ),
    // The reply is addressed to an unused address.
    ("eth_type(0x0800),ipv4(proto=17,frag=no),udp()", "ct(commit,nat(src=10.77.0.1)),"),
];

/// Two hosts with connections between them, through a datapath of another program.
struct Lab {
    net: Topology,
    daemon: Daemon,
    /// Both ends of TCP connections.
    _open: Vec<TcpStream>,
    _dir: RunDir,
}

impl Lab {
    fn new() -> Lab {
        let net = Topology::new(2).unwrap();
        let dir = RunDir::new("connections").unwrap();
        let daemon = start(&net.switch, &dir);
        vsctl(&daemon, "add-br br0");
        for setting in ["nf_conntrack_acct=1", "nf_conntrack_timestamp=1"] {
            net.switch.run("sysctl", &["-w", &format!("net.netfilter.{setting}")]).unwrap();
        }
        // They must not end during the comparison.
        for setting in ["icmp_timeout", "icmpv6_timeout", "udp_timeout"] {
            net.switch.run("sysctl", &["-w", &format!("net.netfilter.nf_conntrack_{setting}=3000")]).unwrap();
        }
        dpctl(&net.switch, &["add-dp", OTHER]);
        net.ports().iter().for_each(|port| drop(dpctl(&net.switch, &["add-if", OTHER, port])));
        for (from, to) in [(1, 2), (2, 1)] {
            for (key, actions) in FLOWS {
                let key = format!("in_port({from}),eth(),{key}");
                dpctl(&net.switch, &["add-flow", OTHER, &key, &format!("{actions}{to}")]);
            }
        }
        let open = traffic(&net);
        Lab { net, daemon, _open: open, _dir: dir }
    }

    /// Output of Sluice and of the stock tool, without varying fields.
    fn both(&self, words: &[&str]) -> (Vec<String>, Vec<String>) {
        let (options, rest): (Vec<&str>, Vec<&str>) = words.iter().partition(|w| w.starts_with('-'));
        let line =
            [&["dpctl/dump-conntrack"], &options[..], &["system@ovs-system"], &rest].concat().join(" ");
        let stock = [&options[..], &["dump-conntrack", OTHER], &rest].concat();
        (steady(&appctl(&self.daemon, &line)), steady(&dpctl(&self.net.switch, &stock)))
    }

    /// Sluice's answer to a command about its datapath.
    fn ours(&self, command: &str, rest: &str) -> String {
        appctl(&self.daemon, &format!("dpctl/{command} system@ovs-system {rest}"))
    }

    fn stock(&self, command: &str, rest: &str) -> String {
        let words: Vec<&str> = [command, "ovs-system"].into_iter().chain(rest.split_whitespace()).collect();
        dpctl(&self.net.switch, &words)
    }

    /// Remaining protocols and zones, as printed by the stock tool.
    fn left(&self) -> Vec<String> {
        let of = |line: &String| {
            let zone = line.split("zone=").nth(1).map_or("0", |rest| rest.split(',').next().unwrap_or(rest));
            format!("{} {zone}", line.split(',').next().unwrap_or_default())
        };
        steady(&dpctl(&self.net.switch, &["dump-conntrack", OTHER])).iter().map(of).collect()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.net.switch.run("ovs-dpctl", &["del-dp", OTHER]);
    }
}

/// Sorted lines without their timeouts.
fn steady(text: &str) -> Vec<String> {
    let one = |line: &str| match line.split_once(",timeout=") {
        None => line.to_string(),
        Some((head, tail)) => {
            format!("{head},timeout{}", tail.trim_start_matches(|c: char| c.is_ascii_digit()))
        }
    };
    let mut lines: Vec<String> = text.lines().map(one).collect();
    lines.sort();
    lines
}

/// Pings, connections and datagrams between the hosts, over IPv4 and IPv6.
fn traffic(net: &Topology) -> Vec<TcpStream> {
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    let mut open = Vec::new();
    for to in [IpAddr::from(two.ipv4), two.ipv6.into()] {
        // One process: each ping has a separate id.
        one.netns.run("ping", &["-n", "-c", "1", "-w", "60", &to.to_string()]).unwrap();
        let listener = two.netns.enter(|| TcpListener::bind((to, 5001))).unwrap().unwrap();
        open.push(connect(&one.netns, to));
        open.push(listener.accept().unwrap().0);
        // One connection closed by one side.
        drop(connect(&one.netns, to));
        open.push(listener.accept().unwrap().0);
        one.netns
            .enter(|| {
                let from = if to.is_ipv4() { "0.0.0.0:6001" } else { "[::]:6001" };
                UdpSocket::bind(from).unwrap().send_to(b"x", (to, 5002)).unwrap()
            })
            .unwrap();
    }
    open
}

fn connect(from: &Netns, to: IpAddr) -> TcpStream {
    from.enter(|| TcpStream::connect((to, 5001))).unwrap().unwrap()
}

#[test]
fn connections_are_shown_and_flushed_as_by_the_stock_tool() {
    require_kernel!();
    let lab = Lab::new();
    for words in [
        &[][..],
        &["-s"],
        &["-m"],
        &["-m", "-s"],
        &["zone=7"],
        &["-s", "-m", "zone=8"],
        &["zone=0"],
        &["zone=4"],
    ] {
        // A packet may still be in progress.
        let mut last = (Vec::new(), Vec::new());
        let same = wait_for(LIMIT, "both to show the same connections", || {
            last = lab.both(words);
            last.0 == last.1
        });
        assert!(same.is_ok(), "{words:?}:\n{:#?}", last);
        let count = match words.last() {
            Some(&"zone=7") => 3,
            Some(&"zone=8") => 4,
            Some(&"zone=0") => 1,
            Some(&"zone=4") => 0,
            _ => 8,
        };
        assert_eq!(last.0.len(), count, "{words:?}: {:#?}", last.0);
    }
    let whole = lab.ours("dump-conntrack", "").lines().map(String::from).collect::<Vec<_>>();
    let tcp = whole.iter().find(|l| l.contains("mark=5") && l.ends_with("(state=ESTABLISHED)"));
    assert!(tcp.is_some_and(|l| l.contains(",zone=7,mark=5,labels=0x1234,protoinfo=")), "{whole:#?}");
    for words in ["", "zone=7", "zone=4"] {
        for option in ["", "-m "] {
            let stock = [option.trim(), "ct-stats-show", OTHER, words];
            let stock: Vec<&str> = stock.into_iter().filter(|w| !w.is_empty()).collect();
            let ours = lab.ours("ct-stats-show", &format!("{option}{words}"));
            assert_eq!(ours, dpctl(&lab.net.switch, &stock), "{option}{words}");
        }
    }
    ends(&lab);
}

/// Flushes connections one by one, by zone, and all together.
fn ends(lab: &Lab) {
    let [one, two] = &lab.net.hosts[..] else { panic!("two hosts") };
    let ours = |rest: &str| lab.ours("flush-conntrack", rest);
    let (v4, v6) = ((one.ipv4, two.ipv4), (one.ipv6, two.ipv6));
    let mut left = lab.left();
    let mut gone = |what: &str| {
        let at = left.iter().position(|l| l == what).unwrap();
        left.remove(at);
        assert_eq!(lab.left(), left);
    };
    // By its full original tuple; without a zone, this means zone 0.
    let udp = format!("ct_nw_src={},ct_nw_dst={},ct_nw_proto=17,ct_tp_src=6001,ct_tp_dst=5002", v4.0, v4.1);
    ours(&udp);
    gone("udp 0");
    let again = appctl_output(&lab.daemon, &format!("dpctl/flush-conntrack {udp}"));
    assert!(
        again.stderr.contains("failed to flush conntrack (No such file or directory)"),
        "{}",
        again.stderr
    );
    // By its reply tuple.
    let reply = format!("ct_ipv6_src={},ct_nw_proto=17,ct_tp_dst=6001", v6.1);
    let words = ["dpctl/flush-conntrack", "system@ovs-system", "zone=8", "", &reply];
    lab.daemon.ovs("ovs-appctl", &words).unwrap();
    gone("udp 8");
    // ICMP by its type, and by its id as printed.
    ours("zone=7 ct_nw_proto=1,icmp_type=8");
    gone("icmp 7");
    let shown = lab.ours("dump-conntrack", "zone=8");
    let ping = shown.lines().find(|l| l.starts_with("icmpv6")).unwrap();
    let id = ping.split(",id=").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
    let (src, dst) = v6;
    ours(&format!(
        "zone=8 ct_ipv6_src={src},ct_ipv6_dst={dst},ct_nw_proto=58,icmp_id={id},icmp_type=128,icmp_code=0"
    ));
    gone("icmpv6 8");
    ours("zone=7");
    assert_eq!(lab.left(), ["tcp 8"; 2]);
    ours("zone=7 ct_nw_proto=6");
    assert_eq!(lab.left(), ["tcp 8"; 2]);
    ours("");
    assert_eq!(lab.left(), [""; 0]);
}

#[test]
fn zone_limits_match_the_stock_tool() {
    require_kernel!();
    let net = Topology::new(0).unwrap();
    let dir = RunDir::new("limits").unwrap();
    let daemon = start(&net.switch, &dir);
    vsctl(&daemon, "add-br br0");
    let lab = Lab { net, daemon, _open: Vec::new(), _dir: dir };
    let same = |rest: &str, expected: &str| {
        assert_eq!(lab.ours("ct-get-limits", rest), expected, "{rest}");
        assert_eq!(lab.stock("ct-get-limits", rest), expected, "{rest}");
    };
    same("", "default limit=0\n");
    lab.ours("ct-set-limits", "default=10 zone=7,limit=5 zone=9,limit=3");
    same("", "default limit=10\nzone=7,limit=5,count=0\nzone=9,limit=3,count=0\n");
    same("zone=9,11", "default limit=10\nzone=9,limit=3,count=0\nzone=11,limit=10,count=0\n");
    lab.stock("ct-set-limits", "default=0 zone=8,limit=4294967295");
    lab.ours("ct-del-limits", "zone=7,9");
    same("", "default limit=0\nzone=8,limit=4294967295,count=0\n");
    lab.stock("ct-del-limits", "zone=8");
    same("", "default limit=0\n");
    // Features missing in the kernel's tracker are refused.
    for (line, why) in [
        ("ct-get-nconns", "nconns could not be retrieved (Operation not supported)"),
        ("ct-get-maxconns", "maxconns could not be retrieved (Operation not supported)"),
        ("ct-set-maxconns 5", "ct set maxconns failed (Operation not supported)"),
        ("ct-set-maxconns x", "maxconns missing or malformed (Invalid argument)"),
        ("ct-enable-tcp-seq-chk", "enabling TCP sequence checking failed (Operation not supported)"),
        ("ct-disable-tcp-seq-chk", "disabling TCP sequence checking failed (Operation not supported)"),
        ("ct-get-tcp-seq-chk", "TCP sequence checking query failed (Operation not supported)"),
        ("flush-conntrack bla=3", "invalid conntrack tuple field: bla (Invalid argument)"),
        ("flush-conntrack zone=x", "failed to parse zone (Invalid argument)"),
        ("flush-conntrack ct_tp_src=3", "port is set without protocol (Invalid argument)"),
        ("ct-set-limits zone=7", "failed to parse zone limit (Invalid argument)"),
        ("ct-get-limits zone=7,x", "invalid zone (Invalid argument)"),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let stock = lab.net.switch.cmd("ovs-dpctl").args(&words).output().unwrap();
        assert_eq!(stock.stderr.trim_end(), format!("ovs-dpctl: {why}"), "{line}");
        let ours = appctl_output(&lab.daemon, &format!("dpctl/{line}"));
        assert!(ours.stderr.starts_with(&format!("ovs-vswitchd: {why}\n")), "{line}: {}", ours.stderr);
    }
    assert_eq!(lab.ours("ct-bkts", ""), dpctl(&lab.net.switch, &["ct-bkts"]));
}

#[test]
fn an_idle_userspace_datapath_has_no_connections() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    require_userspace!("it shows only its own connections");
    let (_net, daemon) = switch(0);
    for (line, text) in [
        ("dump-conntrack", ""),
        ("dump-conntrack -m -s netdev@ovs-netdev zone=5", ""),
        ("ct-stats-show -m", "Connections Stats:\n    Total: 0\n"),
        ("ct-get-nconns", "0\n"),
        ("ct-bkts", "Total Buckets: 1\nCurrent Connections: 0\n\n"),
        ("flush-conntrack", ""),
        ("flush-conntrack zone=5 ct_nw_proto=6,ct_tp_dst=80", ""),
    ] {
        assert_eq!(appctl(&daemon, &format!("dpctl/{line}")), text, "{line}");
    }
    for (line, why) in [
        ("dump-conntrack nope", "nope: no such datapath"),
        ("dump-conntrack zone=70000", "failed to parse zone (Invalid argument)"),
        ("dump-conntrack netdev@ovs-netdev more", "invalid argument more (Invalid argument)"),
        ("flush-conntrack ct_nw_src=1.2.3.4 x", "field x missing value (Invalid argument)"),
        ("flush-conntrack ct_nw_src=1.2.3.4,ct_ipv6_dst=::1", "the L3 protocol does not match ::1"),
        ("ct-bkts gt=x", "failed to parse threshold (Invalid argument)"),
    ] {
        let out = appctl_output(&daemon, &format!("dpctl/{line}"));
        assert_eq!(out.status.code(), Some(2), "{line}: {}", out.stdout);
        assert!(out.stderr.contains(why), "{line}: {}", out.stderr);
    }
}
