//! Quality of service on devices of the kernel: disciplines, classes, queues that packets reach. Expected texts are
//! those of OVS 3.1 and 3.5 on a veth, except bursts at rates beyond 60 Mb/s: they cover 200 us here, one packet there.

use crate::helpers::{LIMIT, appctl, ping_all, require_userspace, switch, vsctl};
use testkit::{require_netns, require_programs, wait_for};

const TWO_QUEUES: &str = "--id=@q create QoS type=linux-htb other_config:max-rate=1000000000 queues:1=@a queues:7=@b \
     -- --id=@a create Queue other_config:min-rate=1000000 other_config:max-rate=20000000 \
     other_config:burst=1000000 other_config:priority=3 -- --id=@b create Queue other_config:min-rate=100";

const CLASSES: [&str; 4] = [
    "class htb 1:1 parent 1:fffe prio 0 rate 12Kbit ceil 1Gbit burst 1563b cburst 25000b",
    "class htb 1:2 parent 1:fffe prio 3 rate 1Mbit ceil 20Mbit burst 125000b cburst 125000b",
    "class htb 1:8 parent 1:fffe prio 0 rate 12Kbit ceil 1Gbit burst 1563b cburst 25000b",
    "class htb 1:fffe root rate 1Gbit ceil 1Gbit burst 25000b cburst 25000b",
];

const SHOWN: &str = "max-rate: 1000000000

Default:
  burst: 12512
  min-rate: 12000
  max-rate: 1000000000
  tx_packets: 0
  tx_bytes: 0
  tx_errors: 0

Queue 1:
  burst: 1000000
  priority: 3
  min-rate: 1000000
  max-rate: 20000000
  tx_packets: 0
  tx_bytes: 0
  tx_errors: 0

Queue 7:
  burst: 12512
  min-rate: 12000
  max-rate: 1000000000
  tx_packets: 0
  tx_bytes: 0
  tx_errors: 0
";

#[test]
fn queues_are_classes_that_packets_reach() {
    require_userspace!("priorities of packet sockets");
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "tc");
    let (net, daemon) = switch(2);
    let port = net.ports()[1].to_string();
    let tc = |what: &str| {
        let out = net.switch.run("tc", &[what, "show", "dev", &port]).unwrap().stdout;
        let mut lines: Vec<String> = out.lines().map(|line| line.trim().to_string()).collect();
        lines.sort();
        lines
    };
    assert!(appctl(&daemon, &format!("qos/show-types {port}")).starts_with("QoS type: linux-netem\n"));
    vsctl(&daemon, &format!("set Port {port} qos=@q -- {TWO_QUEUES}"));
    assert!(tc("qdisc")[0].starts_with("qdisc htb 1: root refcnt "), "{:?}", tc("qdisc"));
    assert!(tc("qdisc")[0].contains(" r2q 10 default 0x1 "), "{:?}", tc("qdisc"));
    assert_eq!(tc("class"), CLASSES);
    // Traffic of the hosts' own may have used the default queue.
    let shown = appctl(&daemon, &format!("qos/show {port}"));
    let fixed = |text: &str| {
        let keep = |line: &&str| !line.trim().starts_with("tx_");
        text.lines().filter(keep).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(fixed(&shown), fixed(&format!("QoS: {port} linux-htb\n{SHOWN}")));

    let number = vsctl(&daemon, &format!("get Interface {port} ofport")).trim().to_string();
    let ofctl = |version: &str, words: &[&str]| {
        daemon.ovs("ovs-ofctl", &[&["-O", version], words].concat()).unwrap().stdout
    };
    let flows = "priority=9,icmp,actions=set_queue:7,NORMAL";
    ofctl("OpenFlow10", &["add-flow", "br0", flows]);
    ping_all(&net.hosts[0].netns, net.hosts[1].ipv4.into(), 20);
    let counted = |queue: u32| {
        let stats = ofctl("OpenFlow10", &["queue-stats", "br0", &number, &queue.to_string()]);
        let word = stats.split("pkts=").nth(1).unwrap().split(',').next().unwrap();
        word.parse::<u64>().unwrap()
    };
    wait_for(LIMIT, "packets of queue 7", || counted(7) >= 20).unwrap();
    assert_eq!(counted(1), 0);
    for version in ["OpenFlow10", "OpenFlow12", "OpenFlow13", "OpenFlow14", "OpenFlow15"] {
        let config = ofctl(version, &["queue-get-config", "br0", &number]);
        assert!(config.ends_with("\nqueue 0:\nqueue 1:\nqueue 7:\n"), "{version}: {config}");
        let stats = ofctl(version, &["queue-stats", "br0", &number]);
        assert!(stats.contains(": 3 queues\n"), "{version}: {stats}");
        let has_age = !stats.contains("duration=?");
        assert_eq!(has_age, version >= "OpenFlow13", "{version}: {stats}");
    }

    // A queue goes, and the others stay.
    vsctl(&daemon, &format!("remove QoS {port} queues 1"));
    let queues = |wanted: &[&str]| {
        let classes = tc("class");
        let all: Vec<_> = classes.iter().filter_map(|line| line.split(' ').nth(2)).collect();
        all == wanted
    };
    wait_for(LIMIT, "two queues", || queues(&["1:1", "1:8", "1:fffe"])).unwrap();
    // One that the kernel may lack: the row says so, or the kernel has it.
    vsctl(&daemon, &format!("set QoS {port} type=linux-sfq"));
    let error = vsctl(&daemon, &format!("get Interface {port} error"));
    let lacks = error.contains("cannot set QoS linux-sfq: the kernel lacks the discipline sfq");
    assert!(lacks || tc("qdisc")[0].starts_with("qdisc sfq 1:"), "{error} {:?}", tc("qdisc"));
    vsctl(&daemon, &format!("clear Port {port} qos"));
    assert!(!tc("qdisc")[0].contains(" 1: "), "{:?}", tc("qdisc"));
    assert_eq!(appctl(&daemon, &format!("qos/show {port}")), format!("QoS not configured on {port}\n"));
    assert_eq!(vsctl(&daemon, &format!("get Interface {port} error")).trim(), "[]");
}

/// Settings, and the kernel's text for them as that of Debian 12 prints it.
const CLASSLESS: [(&str, &str, &str); 5] = [
    (
        "linux-sfq",
        "perturb=20,quantum=3000",
        "qdisc sfq 1: root refcnt # limit 127p quantum 3000b depth 127 flows 128 divisor 1024 perturb 20sec",
    ),
    (
        "linux-codel",
        "target=7000,limit=100,interval=50000",
        "qdisc codel 1: root refcnt # limit 100p target 7ms interval 50ms",
    ),
    (
        "linux-fq_codel",
        "target=7000,limit=100,interval=50000,flows=64,quantum=3000",
        "qdisc fq_codel 1: root refcnt # limit 100p flows 64 quantum 3000 target 7ms interval 50ms",
    ),
    (
        "linux-netem",
        "latency=7000,limit=100,loss=5,jitter=500",
        "qdisc netem 1: root refcnt # limit 100 delay 7ms  499us loss 5%",
    ),
    ("linux-hfsc", "max-rate=1000000000", "qdisc hfsc 1: root refcnt # default 1"),
];

/// The kernel takes all disciplines, or the row says that it lacks one, or the switch's own scheduler serves.
#[test]
fn kernels_take_the_disciplines() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "tc");
    let (net, daemon) = switch(1);
    let port = net.ports()[0].to_string();
    let must = std::env::var_os("SLUICE_GUEST").is_some_and(|v| v == "1");
    let qdisc = || {
        let out = net.switch.run("tc", &["-d", "qdisc", "show", "dev", &port]).unwrap().stdout;
        let words: Vec<&str> = out.lines().next().unwrap_or_default().split(' ').collect();
        let known = words.iter().enumerate();
        let number = |at: usize| at > 0 && words[at - 1] == "refcnt";
        known.map(|(at, word)| if number(at) { "#" } else { word }).collect::<Vec<_>>().join(" ")
    };
    let get = |column: &str| vsctl(&daemon, &format!("get Interface {port} {column}"));
    vsctl(&daemon, &format!("set Port {port} qos=@q -- --id=@q create QoS type=linux-htb"));
    for (kind, settings, expected) in CLASSLESS {
        vsctl(&daemon, &format!("set QoS {port} type={kind} other_config={{{settings}}}"));
        let (error, shown) = (get("error"), appctl(&daemon, &format!("qos/show {port}")));
        if !must && error.contains("the kernel lacks the discipline") {
            assert_eq!(shown, format!("QoS not configured on {port}\n"));
            continue;
        }
        assert_eq!(error.trim(), "[]", "{kind}");
        assert!(shown.starts_with(&format!("QoS: {port} {kind}\n")), "{shown}");
        for setting in settings.split(',') {
            assert!(shown.contains(&setting.replace('=', ": ")), "{setting}: {shown}");
        }
        if !must && get("status").contains("qos=\"own scheduler\"") {
            continue;
        }
        assert!(qdisc().starts_with(expected), "{} instead of {expected}", qdisc());
    }
    // As OVS: what it leaves alone it does not show.
    vsctl(&daemon, &format!("set QoS {port} type=linux-noop other_config={{}}"));
    assert_eq!(appctl(&daemon, &format!("qos/show {port}")), format!("QoS not configured on {port}\n"));
    vsctl(&daemon, &format!("set QoS {port} type=egress-policer other_config:cir=5"));
    let error = get("error");
    let on_kernel = crate::helpers::on_kernel();
    let why = if on_kernel { "only ports of the userspace datapath have it" } else { "cbs must not be 0" };
    assert!(error.contains(&format!("cannot set QoS egress-policer: {why}")), "{error}");
    let types = appctl(&daemon, &format!("qos/show-types {port}"));
    assert_eq!(types.contains("trtcm-policer"), !on_kernel, "{types}");
}

/// The kernel's datapath has the kernel's policers: of bytes, of packets, and both.
#[test]
fn the_kernel_polices() {
    crate::kernel::require_kernel!();
    if !crate::helpers::on_kernel() {
        return crate::kernel::skipped();
    }
    require_programs!("ovs-vsctl", "tc");
    let (net, daemon) = switch(2);
    let port = net.ports()[0].to_string();
    let filter = || {
        let out =
            net.switch.run("tc", &["-s", "filter", "show", "dev", &port, "parent", "ffff:"]).unwrap().stdout;
        out.lines()
            .filter(|line| line.contains(" police "))
            .map(|line| {
                let (_, words) = line.split_once(" rate ").unwrap();
                words.split(" overhead ").next().unwrap().to_string()
            })
            .collect::<Vec<_>>()
    };
    let set = |settings: &str| {
        vsctl(&daemon, &format!("set Interface {port} {settings}"));
        assert_eq!(vsctl(&daemon, &format!("get Interface {port} error")).trim(), "[]");
        filter()
    };
    // The burst has the bytes that OVS gives it.
    let bytes = "10Mbit burst 1000Kb mtu 64Kb action drop/continue";
    assert_eq!(set("ingress_policing_rate=10000"), [bytes]);
    let packets = "0bit burst 0b mtu 64Kb pkts_rate 5000 pkts_burst 16000 action drop/continue";
    let both = [bytes.replace("continue", "pipe"), packets.to_string()];
    assert_eq!(set("ingress_policing_kpkts_rate=5"), both);
    ping_all(&net.hosts[0].netns, net.hosts[1].ipv4.into(), 5);
    assert_eq!(set("ingress_policing_rate=0"), [packets]);
    assert_eq!(set("ingress_policing_kpkts_rate=0"), [""; 0]);
}

/// Where the kernel lacks a discipline with queues, the switch sends at their rates itself.
#[test]
fn the_own_scheduler_serves_where_the_kernel_does_not() {
    require_userspace!("the switch sends the packets");
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "ping");
    let (net, daemon) = switch(2);
    let port = net.ports()[1].to_string();
    vsctl(
        &daemon,
        &format!(
            "set Port {port} qos=@q -- --id=@q create QoS type=linux-hfsc other_config:max-rate=1000000000 queues:7=@a \
             -- --id=@a create Queue other_config:min-rate=1000000 other_config:max-rate=20000000"
        ),
    );
    let status = || vsctl(&daemon, &format!("get Interface {port} status"));
    if wait_for(std::time::Duration::from_secs(2), "the status", || {
        status().contains("qos=\"own scheduler\"")
    })
    .is_err()
    {
        let shown = appctl(&daemon, &format!("qos/show {port}"));
        assert!(shown.contains("QoS: ") && !status().contains("scheduler"), "{shown} {}", status());
        return;
    }
    let number = vsctl(&daemon, &format!("get Interface {port} ofport")).trim().to_string();
    daemon.ovs("ovs-ofctl", &["add-flow", "br0", "priority=9,icmp,actions=set_queue:7,NORMAL"]).unwrap();
    ping_all(&net.hosts[0].netns, net.hosts[1].ipv4.into(), 20);
    let stats =
        || daemon.ovs("ovs-ofctl", &["-O", "OpenFlow13", "queue-stats", "br0", &number, "7"]).unwrap().stdout;
    let counted = |stats: &str| {
        let word =
            stats.split("pkts=").nth(1).unwrap_or_default().split(',').next().unwrap_or_default().to_string();
        word.parse::<u64>().unwrap_or_default()
    };
    wait_for(LIMIT, "packets of queue 7", || counted(&stats()) >= 20).unwrap();
    let shown = appctl(&daemon, &format!("qos/show {port}"));
    let head = format!(
        "QoS: {port} linux-hfsc\nmax-rate: 1000000000\n\nDefault:\n  min-rate: 8\n  max-rate: 1000000000\n  tx_packets: "
    );
    assert!(shown.starts_with(&head), "{shown}");
    assert!(shown.contains("\nQueue 7:\n  min-rate: 1000000\n  max-rate: 20000000\n"), "{shown}");
    // A byte a second: packets wait, and leave when the limit goes.
    vsctl(&daemon, &format!("set QoS {port} other_config:max-rate=8"));
    let all = ["ping", "-q", "-c", "30", "-i", "0.01", "-W", "1", &net.hosts[1].ipv4.to_string()]
        .map(str::to_string);
    let lost = net.hosts[0].netns.cmd(&all[0]).args(all[1..].to_vec()).output().unwrap().stdout;
    assert!(!lost.contains(" 0% packet loss"), "{lost}");
    vsctl(&daemon, &format!("clear Port {port} qos"));
    ping_all(&net.hosts[0].netns, net.hosts[1].ipv4.into(), 5);
    assert!(!status().contains("scheduler"), "{}", status());
    assert_eq!(appctl(&daemon, &format!("qos/show {port}")), format!("QoS not configured on {port}\n"));
}
