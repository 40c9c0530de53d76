//! `sluice` and the daemon: what README shows for daily use, with nothing of OVS.

use crate::helpers::{LIMIT, SLUICED, ping_all, start};
use serde_json::Value;
use testkit::{Daemon, Topology, require_netns, require_programs, wait_for};

/// `sluice`, which stands beside the daemon when the whole workspace is built.
fn program() -> String {
    let beside = std::path::Path::new(SLUICED).with_file_name("sluice");
    beside.to_str().unwrap().to_string()
}

fn sluice(daemon: &Daemon, words: &[&str]) -> String {
    daemon.tool(&program()).args(words).run().unwrap().stdout
}

#[test]
fn daily_use_needs_nothing_of_ovs() {
    require_netns!();
    require_programs!(program().as_str());
    let net = Topology::new(2).unwrap();
    let daemon = start(&net.switch);
    sluice(&daemon, &["vsctl", "add-br", "br0"]);
    for port in net.ports() {
        sluice(&daemon, &["vsctl", "add-port", "br0", port]);
    }
    let shown = sluice(&daemon, &["vsctl", "show"]);
    assert!(net.ports().iter().all(|p| shown.contains(&format!("Interface {p}"))), "{shown}");
    ping_all(&net.hosts[0].netns, net.hosts[1].ipv4.into(), 20);
    let fdb = sluice(&daemon, &["appctl", "fdb/show", "br0"]);
    assert!(net.hosts.iter().all(|h| fdb.contains(&h.mac)), "{fdb}");
    assert!(sluice(&daemon, &["appctl", "dpctl/dump-flows"]).contains("eth_type(0x0800)"));
    // Packets of the hosts' own may come in between.
    wait_for(LIMIT, "both to show the same", || {
        sluice(&daemon, &["dpctl", "show"]) == sluice(&daemon, &["appctl", "dpctl/show"])
    })
    .unwrap();
    sluice(&daemon, &["ofctl", "add-flow", "br0", "priority=100,icmp,actions=drop"]);
    let rules = sluice(&daemon, &["ofctl", "dump-flows", "br0"]);
    assert!(rules.contains("priority=100,icmp actions=drop"), "{rules}");
    crate::helpers::unreachable(&net.hosts[0].netns, net.hosts[1].ipv4.into());
    let trace = sluice(&daemon, &["appctl", "ofproto/trace", "br0", "in_port=1,icmp"]);
    assert!(trace.ends_with("Datapath actions: drop\n"), "{trace}");
    // The screen and what it is made of: both ends agree on its shape.
    let screen = sluice(&daemon, &["status", "--interval=0"]);
    assert!(screen.contains("Datapath netdev@ovs-netdev: ") && screen.contains("Bridge br0 "), "{screen}");
    wait_for(LIMIT, "counters in the status", || {
        let status: Value = serde_json::from_str(&sluice(&daemon, &["status", "--json"])).unwrap();
        let path = &status["datapaths"][0];
        let port = status["bridges"][0]["ports"]
            .as_array()
            .unwrap()
            .iter()
            .find(|p| p["name"] == *net.ports()[0])
            .unwrap();
        path["hits"].as_u64() > Some(0)
            && path["upcalls"]["installed"].is_u64()
            && path["threads"][0]["received"].is_u64()
            && port["rx_packets"].as_u64() >= Some(20)
            && port["link"] == "up"
    })
    .unwrap();
}
