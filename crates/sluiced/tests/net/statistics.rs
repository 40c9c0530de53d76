//! Every packet that ends is counted once, by its reason, at its port, in the totals and in the database.

use crate::helpers::{
    BROADCAST, Frame, LIMIT, TOOLS, appctl, require_userspace, send, switch, vsctl, wait_until,
};
use serde_json::Value;
use std::collections::BTreeMap;
use testkit::{Daemon, require_netns, require_programs, wait_for};

type Drops = BTreeMap<String, u64>;

fn drops(value: &Value) -> Drops {
    value.as_object().unwrap().iter().map(|(why, n)| (why.clone(), n.as_u64().unwrap())).collect()
}

/// Drops of each port of the first bridge, and those of the datapath, as they are told at one moment.
fn told(daemon: &Daemon) -> (BTreeMap<String, Drops>, Drops) {
    let status: Value = serde_json::from_str(&appctl(daemon, "sluice/status")).unwrap();
    let ports = status["bridges"][0]["ports"].as_array().unwrap();
    let of_ports =
        ports.iter().map(|p| (p["name"].as_str().unwrap().to_string(), drops(&p["drops"]))).collect();
    (of_ports, drops(&status["datapaths"][0]["drops"]))
}

fn counter(daemon: &Daemon, name: &str) -> u64 {
    appctl(daemon, &format!("coverage/read-counter {name}")).trim().parse().unwrap()
}

#[test]
fn drops_are_counted_by_reason_at_their_ports() {
    require_userspace!("the kernel counts what it drops by no reason of ours");
    require_netns!();
    require_programs!(TOOLS[0], TOOLS[1], "ovs-ofctl", "ping");
    let (net, daemon) = switch(2);
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    for flow in
        ["priority=9,dl_type=0x88b5,dl_vlan=7,actions=drop", "priority=8,dl_type=0x88b5,actions=output:2"]
    {
        daemon.ovs("ovs-ofctl", &["add-flow", "br0", flow]).unwrap();
    }
    let frame = |vlan| Frame { to: BROADCAST, from: "02:00:00:00:00:77", vlan };
    // Rules that drop: the first of them is dropped by its translation, the others by its megaflow.
    let of = |port: &str, why: &str| told(&daemon).0[port].get(why).copied().unwrap_or(0);
    send(one, &[frame(Some(7)); 5]);
    wait_for(LIMIT, "five drops by rules", || of(&one.port, "rules") == 5).unwrap();
    // Larger than the way out takes.
    net.switch.ip(&format!("link set dev {} mtu 1000", two.port)).unwrap();
    wait_until(&daemon, &format!("Interface {} mtu=1000", two.port));
    let out =
        one.netns.run("ping", &["-c", "3", "-i", "0.1", "-W", "1", "-s", "1300", &two.ipv4.to_string()]);
    assert!(out.is_err(), "such pings cannot arrive");
    wait_for(LIMIT, "drops of what is too large", || of(&two.port, "tx_too_big") >= 3).unwrap();
    // A way out that is down.
    net.switch.ip(&format!("link set dev {} down", two.port)).unwrap();
    send(one, &[frame(None); 4]);
    wait_for(LIMIT, "drops at a device that is down", || of(&two.port, "tx_down") >= 4).unwrap();
    // The totals are the sums, once no packet comes in between.
    wait_for(LIMIT, "sums", || {
        let (ports, all) = told(&daemon);
        let mut sums = Drops::new();
        let inside = ports.values().flatten().filter(|(why, _)| !why.starts_with("rx_"));
        inside.for_each(|(why, n)| *sums.entry(why.clone()).or_default() += n);
        sums == all && all["rules"] >= 5
    })
    .unwrap();
    assert!(counter(&daemon, "drop_action_of_pipeline") >= 5);
    assert!(counter(&daemon, "datapath_drop_tx_too_big") >= 3);
    assert!(counter(&daemon, "datapath_drop_tx_down") >= 4);
    for (port, column) in [
        (&one.port, "sluice_rules_drops>=5"),
        (&two.port, "ovs_tx_mtu_exceeded_drops>=3"),
        (&two.port, "sluice_tx_too_big_drops>=3"),
        (&two.port, "ovs_tx_failure_drops>=4"),
        (&two.port, "tx_dropped>=7"),
        (&one.port, "ovs_tx_invalid_hwol_drops=0"),
    ] {
        wait_until(&daemon, &format!("Interface {port} statistics:{column}"));
    }
    // Counters of a port go on when those of threads are cleared, and totals when their port goes.
    let before = counter(&daemon, "datapath_drop_tx_too_big");
    appctl(&daemon, "dpif-netdev/pmd-stats-clear");
    vsctl(&daemon, &format!("del-port {}", two.port));
    assert!(counter(&daemon, "datapath_drop_tx_too_big") >= before);
    assert!(of(&one.port, "rules") >= 5);
}
