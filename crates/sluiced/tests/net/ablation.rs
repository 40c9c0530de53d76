//! Disabled optimisations: each option disables exactly its optimisation, and forwarding stays correct.

use crate::helpers::{LIMIT, PYTHON, SLUICED, appctl, ping_all, spec, vsctl};
use crate::syscalls::{burst, fan_out};
use crate::threads::names;
use std::time::Duration;

use testkit::{Capture, Cmd, Daemon, Host, Running, Topology, require_netns, require_programs, wait_for};

/// Echoes datagrams on port 7000, discards them on 7001, and answers streams on 7000 with their SHA-256.
const SERVER: &str = "\
import hashlib, socket, threading
echo, sink = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
echo.bind(('', 7000))
sink.bind(('', 7001))
streams = socket.create_server(('', 7000))
def datagrams():
    while True:
        data, sender = echo.recvfrom(65535)
        echo.sendto(data, sender)
threading.Thread(target=datagrams, daemon=True).start()
print('ready', flush=True)
while True:
    stream, _ = streams.accept()
    digest = hashlib.sha256()
    while data := stream.recv(65536):
        digest.update(data)
    stream.sendall(digest.digest())
    stream.close()
";

/// Datagrams of many lengths, including fragmented ones, must return unchanged; 4 MB must arrive unchanged.
const CLIENT: &str = "\
import hashlib, random, socket, sys
rnd = random.Random(7)
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.connect((sys.argv[1], 7000))
udp.settimeout(10)
for n in range(180):
    data = rnd.randbytes([0, 1, 17, 18, 19, 512, 1471, 1472, 4000][n % 9])
    udp.send(data)
    assert udp.recv(65535) == data, n
data = rnd.randbytes(4 << 20)
tcp = socket.create_connection((sys.argv[1], 7000), 10)
tcp.sendall(data)
tcp.shutdown(socket.SHUT_WR)
assert tcp.recv(64) == hashlib.sha256(data).digest()
";

/// This number of datagrams of one flow, without replies.
const FLOW: &str = "\
import socket, sys
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 32)
udp.bind(('', 7002))
udp.connect((sys.argv[1], 7001))
for n in range(int(sys.argv[2])):
    udp.send(b'x')
";

/// The maximum of a value of `pmd-stats-show` among the threads; 0 if none has it yet.
fn figure(daemon: &Daemon, name: &str) -> f64 {
    let text = appctl(daemon, "dpif-netdev/pmd-stats-show");
    let values = text.lines().filter_map(|l| l.trim().strip_prefix(name)?.strip_prefix(": "));
    let values = values.filter_map(|v| v.split_whitespace().next()?.parse().ok());
    values.fold(0.0, f64::max)
}

/// Packets parsed by the template, over all threads.
fn template_hits(daemon: &Daemon) -> u64 {
    let status: serde_json::Value = serde_json::from_str(&appctl(daemon, "sluice/status")).unwrap();
    let threads = status["datapaths"][0]["threads"].as_array().unwrap();
    threads.iter().map(|t| t["template_hits"].as_u64().unwrap()).sum()
}

/// Hosts, one of them with servers, for one daemon after another.
struct Rig {
    net: Topology,
    _server: Running,
}

impl Rig {
    fn new() -> Rig {
        let net = Topology::new(2).unwrap();
        let server = net.hosts[1].netns.spawn(PYTHON, &["-c", SERVER]).unwrap();
        wait_for(LIMIT, "the server", || server.stdout().contains("ready")).unwrap();
        Rig { net, _server: server }
    }

    fn host(&self, n: usize) -> &Host {
        &self.net.hosts[n]
    }

    fn python(&self, script: &str, more: &[&str]) {
        let to = self.host(1).ipv4.to_string();
        self.host(0).netns.cmd(PYTHON).args(["-c", script, &to]).args(more.iter().copied()).run().unwrap();
    }

    /// Starts a daemon with these arguments and a bridge with the cache enabled in the database. Flows stay while the
    /// machine is slow: the order of masks is that of their first packets.
    fn start(&self, args: &[String]) -> Daemon {
        let daemon = spec(&self.net.switch).args(args.iter().cloned()).start().unwrap();
        let ports = self.net.ports();
        vsctl(
            &daemon,
            &format!(
                "set Open_vSwitch . other_config:smc-enable=true other_config:max-idle=600000 -- add-br br0 \
                 -- add-port br0 {} -- add-port br0 {}",
                ports[0], ports[1]
            ),
        );
        // Two masks of datagrams; the less frequent one is installed first.
        for rule in ["priority=20,udp,tp_dst=7000,actions=normal", "priority=10,udp,nw_tos=32,actions=normal"]
        {
            daemon.ovs("ovs-ofctl", &["add-flow", "br0", rule]).unwrap();
        }
        daemon
    }

    /// Checks ping, datagrams and a stream; returns whether large segments arrived unsegmented.
    fn forwards(&self) -> bool {
        let (one, two) = (self.host(0), self.host(1));
        ping_all(&one.netns, two.ipv4.into(), 20);
        ping_all(&two.netns, one.ipv6.into(), 5);
        let filter = "tcp dst port 7000 and greater 2000";
        let large = Capture::start(&two.netns, &two.dev, filter, &["-c", "5"]).unwrap();
        self.python(CLIENT, &[]);
        !large.stop().unwrap().is_empty()
    }

    /// Subtables visited per packet of the most frequent flow.
    fn lookups_a_hit(&self, daemon: &Daemon) -> f64 {
        appctl(daemon, "dpif-netdev/pmd-stats-clear");
        self.python(FLOW, &["500"]);
        wait_for(LIMIT, "the hits", || figure(daemon, "megaflow hits") >= 500.0).unwrap();
        figure(daemon, "avg. subtable lookups per megaflow hit")
    }

    /// Masks are ranked about once a second: waits for that, or verifies for some seconds that they are not.
    fn check_ranking(&self, daemon: &Daemon, ranked: bool) {
        // The first packet installs the megaflow; later ones may wait for it.
        self.python(FLOW, &["500"]);
        if ranked {
            return wait_for(LIMIT, "masks to be ranked", || self.lookups_a_hit(daemon) < 1.2).unwrap();
        }
        for _ in 0..5 {
            let lookups = self.lookups_a_hit(daemon);
            assert!(lookups >= 2.0, "{lookups} lookups a hit");
            std::thread::sleep(Duration::from_millis(500));
        }
    }
}

/// Whether the kernel maps a socket's memory into the process.
fn has_ring(daemon: &Daemon) -> bool {
    std::fs::read_to_string(format!("/proc/{}/maps", daemon.pid())).unwrap().contains("socket:[")
}

/// Whether stages are compiled beyond the basic instruction set, on all cores.
fn is_wide(daemon: &Daemon) -> bool {
    let log = daemon.log();
    let levels: Vec<&str> =
        log.lines().filter_map(|l| Some(l.split_once(": stages compiled for ")?.1)).collect();
    let plain = levels.iter().filter(|l| **l == "plain").count();
    assert!(!levels.is_empty() && (plain == 0 || plain == levels.len()), "{log}");
    plain == 0
}

#[cfg(target_arch = "x86_64")]
fn can_be_wide() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("movbe")
}

#[cfg(not(target_arch = "x86_64"))]
fn can_be_wide() -> bool {
    false
}

#[test]
fn each_optimisation_can_be_disabled_without_changing_forwarding() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ovs-ofctl", "ping", "tcpdump");
    let rig = Rig::new();
    let all =
        ["ranking", "cache", "simd", "template", "groups", "sendmmsg", "ring", "offload", "hold", "threads"];
    let alone: Vec<Vec<&str>> = all.iter().map(|name| vec![*name]).collect();
    let more = [vec![], vec!["ranking", "cache"], all[..9].to_vec(), all.to_vec()];
    for without in alone.into_iter().chain(more) {
        let on = |name: &str| !without.contains(&name);
        let args = if without.is_empty() { vec![] } else { vec![format!("--without={}", without.join(","))] };
        let daemon = rig.start(&args);
        let reported = daemon.log().contains("|dpif_netdev|WARN|for measuring only: without ");
        assert_eq!(reported, !without.is_empty(), "{without:?}: {}", daemon.log());
        assert_eq!(rig.forwards(), on("offload"), "{without:?}: large segments uncut");
        assert_eq!(figure(&daemon, "smc hits") > 0.0, on("cache"), "{without:?}: hits of the cache");
        assert_eq!(template_hits(&daemon) > 0, on("template"), "{without:?}: the template");
        // With threads, only ports with much traffic have one (`idle_ports`); this traffic may come in bursts.
        if !on("ring") || !on("threads") {
            assert_eq!(has_ring(&daemon), on("ring"), "{without:?}: a receive ring");
        }
        assert_eq!(is_wide(&daemon), on("simd") && can_be_wide(), "{without:?}: wide instructions");
        assert_eq!(names(&daemon).is_empty(), !on("threads"), "{without:?}: {:?}", names(&daemon));
        // Without threads the test needs housekeeping of the main loop, which its traffic does not wait for.
        if !on("cache") && on("threads") {
            rig.check_ranking(&daemon, on("ranking"));
        }
    }
}

#[test]
fn the_main_loop_polls_added_removed_and_changed_ports() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ovs-ofctl", "ping", "tcpdump");
    let rig = Rig::new();
    let daemon = rig.start(&["--without=threads".to_string()]);
    assert!(
        daemon.log().contains("the main loop forwards: settings of forwarding threads"),
        "{}",
        daemon.log()
    );
    let [one, two] = [0, 1].map(|n| rig.net.ports()[n].to_string());
    let shown = |queues: &[(&str, u16)]| {
        let line = |(port, queue): &(&str, u16)| {
            format!("  port: {port:<16}  queue-id: {queue:2} (enabled)   pmd usage: NOT AVAIL\n")
        };
        let title = "Displaying last 60 seconds pmd usage %\n\
                     main thread (there are no forwarding threads: --without=threads):\n";
        let wanted = queues.iter().fold(title.to_string(), |text, queue| text + &line(queue));
        assert_eq!(appctl(&daemon, "dpif-netdev/pmd-rxq-show"), wanted);
    };
    shown(&[("br0", 0), (&one, 0), (&two, 0)]);
    vsctl(&daemon, "set Open_vSwitch . other_config:pmd-cpu-mask=0x3");
    vsctl(&daemon, &format!("set Interface {one} options:n_rxq=2"));
    shown(&[("br0", 0), (&two, 0), (&one, 0), (&one, 1)]);
    assert!(rig.forwards(), "large segments uncut");
    vsctl(&daemon, &format!("del-port {two}"));
    shown(&[("br0", 0), (&one, 0), (&one, 1)]);
    vsctl(&daemon, &format!("add-port br0 {two}"));
    shown(&[("br0", 0), (&one, 0), (&one, 1), (&two, 0)]);
    assert!(rig.forwards(), "large segments uncut");
    assert!(names(&daemon).is_empty());
    let stats = appctl(&daemon, "dpif-netdev/pmd-stats-show");
    assert!(stats.starts_with("main thread:\n") && !stats.contains("pmd thread"), "{stats}");
    assert!(figure(&daemon, "smc hits") > 0.0 && figure(&daemon, "packets received") > 1000.0, "{stats}");
    assert!(!daemon.log().contains("cannot stop watching"), "{}", daemon.log());
}

#[test]
fn traffic_passes_in_bursts_of_any_size() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ping", "tcpdump");
    let rig = Rig::new();
    for args in [vec!["--batch=1"], vec!["--batch=256"], vec!["--batch=256", "--without=ring,sendmmsg"]] {
        let daemon = rig.start(&args.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert!(rig.forwards(), "{args:?}: large segments uncut");
        drop(daemon);
    }
}

#[test]
fn bursts_have_the_requested_size() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ovs-ofctl", "tcpdump");
    let net = Topology::new(3).unwrap();
    // Batches of 100 frames; the hosts' own frames may join a burst, and are dropped.
    let sizes: [(&[&str], f64, f64); 5] = [
        (&["--batch=1"], 1.0, 1.0),
        (&["--batch=8"], 6.25, 8.0),
        (&["--without=hold"], 20.0, 32.0),
        // Frames of several bursts leave together, if the thread is fast enough.
        (&[], 20.0, 100.0),
        (&["--batch=256"], 100.0, 100.0),
    ];
    for (args, least, most) in sizes {
        let mut daemon = fan_out(&net, args);
        let reported = daemon.log().contains("|for measuring only: bursts of ");
        assert_eq!(reported, args.iter().any(|a| a.starts_with("--batch")), "{args:?}: {}", daemon.log());
        appctl(&daemon, "dpif-netdev/pmd-stats-clear");
        burst(&net, &mut daemon, 100);
        let sent = figure(&daemon, "avg. packets per output batch");
        assert!((least..=most).contains(&sent), "{args:?}: {sent} packets per output batch");
    }
}

#[test]
fn names_of_optimisations_are_checked() {
    for bad in ["--without=ring,warp", "--without=Ring", "--without=", "--without"] {
        let out = Cmd::new(SLUICED).arg(bad).output().unwrap();
        assert_eq!(out.status.code(), Some(2), "{bad}: {}", out.stderr);
        assert!(
            bad == "--without" || out.stderr.contains("there are ranking, cache, simd"),
            "{}",
            out.stderr
        );
    }
    for bad in ["--batch=0", "--batch=257", "--batch=many", "--batch"] {
        assert_eq!(Cmd::new(SLUICED).arg(bad).output().unwrap().status.code(), Some(2), "{bad}");
    }
    let help = Cmd::new(SLUICED).arg("--help").run().unwrap().stdout;
    assert!(help.contains("For measuring only") && help.contains("- offload: "), "{help}");
}
