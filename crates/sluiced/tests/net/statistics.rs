//! Every drop is counted once, by its reason, at its port, in the totals and in the database.

use crate::helpers::{
    BROADCAST, Frame, LIMIT, TOOLS, appctl, require_userspace, send, spec, switch, vsctl, wait_until,
};
use serde_json::Value;
use std::collections::BTreeMap;
use testkit::{Daemon, Topology, require_netns, require_programs, wait_for};

type Drops = BTreeMap<String, u64>;

fn drops(value: &Value) -> Drops {
    value.as_object().unwrap().iter().map(|(why, n)| (why.clone(), n.as_u64().unwrap())).collect()
}

/// Drops of each port of the first bridge, and of the datapath, from one reading.
fn reported(daemon: &Daemon) -> (BTreeMap<String, Drops>, Drops) {
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
    // Flows that drop: the first packet is dropped by translation, later ones by the megaflow.
    let of = |port: &str, why: &str| reported(&daemon).0[port].get(why).copied().unwrap_or(0);
    send(one, &[frame(Some(7)); 5]);
    wait_for(LIMIT, "five drops by rules", || of(&one.port, "rules") == 5).unwrap();
    // Longer than the MTU of the output port.
    net.switch.ip(&format!("link set dev {} mtu 1000", two.port)).unwrap();
    wait_until(&daemon, &format!("Interface {} mtu=1000", two.port));
    let out =
        one.netns.run("ping", &["-c", "3", "-i", "0.1", "-W", "1", "-s", "1300", &two.ipv4.to_string()]);
    assert!(out.is_err(), "such pings cannot arrive");
    wait_for(LIMIT, "drops of what is too large", || of(&two.port, "tx_too_big") >= 3).unwrap();
    // An output port that is down.
    net.switch.ip(&format!("link set dev {} down", two.port)).unwrap();
    send(one, &[frame(None); 4]);
    wait_for(LIMIT, "drops at a device that is down", || of(&two.port, "tx_down") >= 4).unwrap();
    // Totals equal the sums, once no packet arrives between the readings.
    wait_for(LIMIT, "sums", || {
        let (ports, all) = reported(&daemon);
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
    ] {
        wait_until(&daemon, &format!("Interface {port} statistics:{column}"));
    }
    // Clearing counters of threads does not reset those of ports; removing a port does not reset totals.
    let before = counter(&daemon, "datapath_drop_tx_too_big");
    appctl(&daemon, "dpif-netdev/pmd-stats-clear");
    vsctl(&daemon, &format!("del-port {}", two.port));
    assert!(counter(&daemon, "datapath_drop_tx_too_big") >= before);
    assert!(of(&one.port, "rules") >= 5);
}

/// Keys of the counters of a port with a device, as in stock switches.
const OF_DEVICE: &str = "collisions rx_bytes rx_crc_err rx_dropped rx_errors rx_frame_err rx_missed_errors \
                         rx_multicast_packets rx_over_err rx_packets tx_bytes tx_dropped tx_errors tx_packets";
/// The keys of a dummy with one receive queue.
const OF_DUMMY: &str = "rx_bytes rx_custom_packets_1 rx_custom_packets_2 rx_packets rx_q0_bytes rx_q0_packets tx_bytes \
                        tx_packets tx_q0_bytes tx_q0_packets";
/// The keys of a port without device counters.
const OF_TRANSLATION: &str = "rx_bytes rx_packets tx_bytes tx_packets";

/// Checks that `dump-ports` prints `?` for absent device counters, and values for all others.
fn check_dump_ports(daemon: &Daemon, veth: &str) {
    let ofctl = |words: &[&str]| daemon.ovs("ovs-ofctl", words).unwrap().stdout;
    // One request for all ports equals one request per port.
    let all = ofctl(&["dump-ports", "br0"]);
    for (name, is_known) in
        [(veth, true), ("i0", true), ("t0", true), ("br0", true), ("pa", false), ("d0", false)]
    {
        let number = vsctl(daemon, &format!("get interface {name} ofport"));
        let title = if name == "br0" { "port LOCAL:".to_string() } else { format!("port {number:>2}:") };
        let title = title.as_str();
        for dump in [&ofctl(&["--no-names", "dump-ports", "br0", &number]), &all] {
            let at = dump.find(title).unwrap_or_else(|| panic!("{title} {dump}"));
            let lines: String = dump[at..].lines().take(2).collect();
            for field in ["drop=", "errs=", "frame=", "over=", "crc=", "coll="] {
                let known = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
                let reported: Vec<_> = lines.split(field).skip(1).map(known).collect();
                assert!(
                    !reported.is_empty() && reported.iter().all(|known| *known == is_known),
                    "{name} {field} {lines}"
                );
            }
        }
    }
}

/// Compares with the answers of OVS 3.1 to the same commands.
#[test]
fn ports_report_features_and_counters_of_their_devices() {
    require_userspace!("its internal ports are no taps, and there are no dummies");
    require_netns!();
    require_programs!(TOOLS[0], TOOLS[1], "ovs-ofctl");
    let net = Topology::new(1).unwrap();
    let daemon = spec(&net.switch).args(["--enable-dummy"]).start().unwrap();
    let veth = &net.hosts[0].port;
    vsctl(&daemon, "set Open_vSwitch . other_config:stats-update-interval=5000");
    vsctl(&daemon, &format!("add-br br0 -- set bridge br0 datapath_type=netdev -- add-port br0 {veth}"));
    let ports = "add-port br0 i0 -- set interface i0 type=internal -- add-port br0 t0 -- set interface t0 type=tap \
                 -- add-port br0 pa -- set interface pa type=patch options:peer=pb \
                 -- add-port br0 pb -- set interface pb type=patch options:peer=pa \
                 -- add-port br0 d0 -- set interface d0 type=dummy";
    vsctl(&daemon, ports);
    vsctl(
        &daemon,
        "add-br br1 -- set bridge br1 datapath_type=dummy -- add-port br1 p2 -- set interface p2 type=dummy",
    );
    let ofctl = |words: &[&str]| daemon.ovs("ovs-ofctl", words).unwrap().stdout;
    for version in ["OpenFlow10", "OpenFlow13"] {
        let shown = ofctl(&["-O", version, "show", "br0"]);
        let of_port = |name: &str| {
            let mut lines = shown.lines().skip_while(|l| !l.contains(&format!("({name}): "))).skip(1);
            let lines: Vec<_> =
                lines.by_ref().take_while(|l| l.starts_with("     ")).map(str::trim).collect();
            assert!(lines.len() > 2, "{name} in {shown}");
            lines[2..].join("; ")
        };
        for name in [veth.as_str(), "i0", "t0", "br0"] {
            assert_eq!(
                of_port(name),
                "current:    10GB-FD COPPER; speed: 10000 Mbps now, 0 Mbps max",
                "{name}"
            );
        }
        for name in ["pa", "d0"] {
            assert_eq!(of_port(name), "speed: 0 Mbps now, 0 Mbps max", "{name}");
        }
    }
    check_dump_ports(&daemon, veth);
    for (name, keys) in [
        (veth.as_str(), OF_DEVICE),
        ("i0", OF_DEVICE),
        ("t0", OF_DEVICE),
        ("br0", OF_DEVICE),
        ("pa", OF_TRANSLATION),
        ("d0", OF_DUMMY),
        ("br1", OF_DUMMY),
        ("p2", OF_DUMMY),
    ] {
        wait_until(&daemon, &format!("Interface {name} statistics:rx_packets>=0"));
        let reported = vsctl(&daemon, &format!("get interface {name} statistics"));
        let reported =
            reported.trim_matches(['{', '}']).split(", ").filter_map(|pair| Some(pair.split_once('=')?.0));
        // Drops by Sluice's own reasons appear once they occur: ports that are down refuse flooded packets.
        let reported: Vec<_> =
            reported.filter(|key| !key.starts_with("sluice_") && !key.starts_with("ovs_tx_")).collect();
        assert_eq!(reported.join(" "), keys, "{name}");
    }
    let dummies = daemon.ovs("ovs-appctl", &["dpctl/show", "-s", "dummy@ovs-dummy"]).unwrap().stdout;
    assert!(dummies.contains("errors:? dropped:? overruns:? frame:?"), "{dummies}");
    let devices = daemon.ovs("ovs-appctl", &["dpctl/show", "-s", "netdev@ovs-netdev"]).unwrap().stdout;
    assert!(devices.contains("overruns:0 frame:0") && devices.contains("collisions:0"), "{devices}");
}

/// Counters of a dummy's queues, as in OVS 3.1.
#[test]
fn dummies_count_received_packets_by_queue() {
    require_userspace!("there are no dummies");
    require_netns!();
    require_programs!(TOOLS[0], TOOLS[1]);
    let net = Topology::new(0).unwrap();
    let daemon = spec(&net.switch).args(["--enable-dummy"]).start().unwrap();
    vsctl(&daemon, "set Open_vSwitch . other_config:stats-update-interval=5000");
    vsctl(
        &daemon,
        "add-br br0 -- set bridge br0 datapath_type=dummy -- add-port br0 p1 \
         -- set interface p1 type=dummy-pmd options:n_rxq=2 -- add-port br0 p2 -- set interface p2 type=dummy-pmd",
    );
    let flow = "in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=10.0.0.1,\
                dst=10.0.0.2,proto=1,tos=0,ttl=64,frag=no),icmp(type=8,code=0)";
    for _ in 0..3 {
        let flow = flow.to_string();
        daemon.ovs("ovs-appctl", &["netdev-dummy/receive", "p1", "--qid", "1", &flow]).unwrap();
    }
    wait_until(&daemon, "Interface p1 statistics:rx_packets=3");
    wait_until(&daemon, "Interface p2 statistics:tx_q0_packets=3");
    let reported = vsctl(&daemon, "get interface p1 statistics");
    let expected = "{rx_bytes=318, rx_custom_packets_1=3, rx_custom_packets_2=3, rx_packets=3, rx_q0_bytes=0, rx_q0_packets=0, \
                    rx_q1_bytes=318, rx_q1_packets=3, tx_bytes=0, tx_packets=0, tx_q0_bytes=0, tx_q0_packets=0}";
    assert_eq!(reported, expected);
}
