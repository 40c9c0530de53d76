//! Queues and lookups on the kernel datapath: `set_queue` selects a class of traffic control, and `sluice status` shows the masks
//! visited per packet.

use crate::helpers::{appctl, ping_all, vsctl};
use crate::kernel::{bridge, require_kernel, start};
use testkit::{RunDir, Topology, require_netns, require_programs};

/// Packets sent by a class, from `tc -s class show`.
fn packets_of_class(text: &str, class: &str) -> u64 {
    let block = text.split("class htb ").find(|block| block.starts_with(class));
    let sent = block.and_then(|block| block.split("Sent ").nth(1)).unwrap_or_default();
    sent.split_whitespace().nth(2).and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{class}: {text}"))
}

#[test]
fn set_queue_chooses_the_class_of_the_port() {
    require_kernel!();
    require_programs!("tc");
    let net = Topology::new(2).unwrap();
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    let dir = RunDir::new("kernel").unwrap();
    let daemon = start(&net.switch, &dir);
    vsctl(&daemon, &bridge(&net));
    let tc = |line: &str| net.switch.run("tc", &line.split_whitespace().collect::<Vec<_>>()).unwrap().stdout;
    let port = &two.port;
    tc(&format!("qdisc add dev {port} root handle 1: htb default 1"));
    // Open vSwitch numbering: the class of queue N has minor number N + 1.
    tc(&format!("class add dev {port} parent 1: classid 1:1 htb rate 1gbit"));
    tc(&format!("class add dev {port} parent 1: classid 1:8 htb rate 1gbit"));
    daemon.ovs("ovs-ofctl", &["add-flow", "br0", "icmp,actions=set_queue:7,normal"]).unwrap();
    ping_all(&one.netns, two.ipv4.into(), 10);
    let classes = tc(&format!("-s class show dev {port}"));
    assert!(packets_of_class(&classes, "1:8") >= 10, "{classes}");
    daemon.ovs("ovs-ofctl", &["add-flow", "br0", "icmp,actions=set_queue:7,pop_queue,normal"]).unwrap();
    let before = packets_of_class(&tc(&format!("-s class show dev {port}")), "1:1");
    ping_all(&one.netns, two.ipv4.into(), 10);
    let after = packets_of_class(&tc(&format!("-s class show dev {port}")), "1:1");
    // The first few may still use the earlier megaflow.
    assert!(after > before, "{before} {after}");
    let status: serde_json::Value = serde_json::from_str(&appctl(&daemon, "sluice/status")).unwrap();
    let thread = &status["datapaths"][0]["threads"][0];
    let number = |name: &str| thread[name].as_u64().unwrap_or_else(|| panic!("{name}: {status}"));
    // The kernel caches masks of packets; every other hit visited at least one mask.
    assert!(number("cache_hits") + number("megaflow_hits") >= 20, "{status}");
    assert!(number("subtable_lookups") >= number("megaflow_hits"), "{status}");
    assert!(number("masks") > 0, "{status}");
}
