//! Quality of service on devices of the kernel: disciplines, classes, queues that packets reach. Expected texts are
//! those of OVS 3.1 and 3.5 on a veth.

use crate::helpers::{LIMIT, appctl, ping_all, require_userspace, switch, vsctl};
use testkit::{require_netns, require_programs, wait_for};

const TWO_QUEUES: &str = "--id=@q create QoS type=linux-htb other_config:max-rate=1000000000 queues:1=@a queues:7=@b \
     -- --id=@a create Queue other_config:min-rate=1000000 other_config:max-rate=20000000 \
     other_config:burst=1000000 other_config:priority=3 -- --id=@b create Queue other_config:min-rate=100";

const CLASSES: [&str; 4] = [
    "class htb 1:1 parent 1:fffe prio 0 rate 12Kbit ceil 1Gbit burst 1563b cburst 1500b",
    "class htb 1:2 parent 1:fffe prio 3 rate 1Mbit ceil 20Mbit burst 125000b cburst 125000b",
    "class htb 1:8 parent 1:fffe prio 0 rate 12Kbit ceil 1Gbit burst 1563b cburst 1500b",
    "class htb 1:fffe root rate 1Gbit ceil 1Gbit burst 1375b cburst 1375b",
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
