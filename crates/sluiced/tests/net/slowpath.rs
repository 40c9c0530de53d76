//! The slow path: number of handlers, floods of new flows, and revalidation after flow changes.

use crate::helpers::{
    LIMIT, PYTHON, answered, appctl, capture, descriptors, descriptors_now, on_kernel, ping_all, pings,
    require_userspace, start, switch, vsctl,
};
use serde_json::Value;
use std::time::Duration;
use testkit::{Daemon, Netns, TempDir, require_netns, require_programs, wait_for};

/// Every packet needs its own megaflow: the action reads its address.
const OWN_MEGAFLOW: &str = "move:NXM_OF_IP_SRC[]->NXM_NX_REG0[],move:NXM_OF_UDP_SRC[]->NXM_NX_REG1[0..15]";

/// Threads of the process whose names have this prefix.
fn threads(daemon: &Daemon, prefix: &str) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
    let name =
        |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    tasks.flatten().filter(|task| task.path().exists()).map(name).filter(|n| n.starts_with(prefix)).count()
}

/// Adds a port that replays this number of flows forever.
fn add_flood(daemon: &Daemon, dir: &TempDir, number: u32, flows: u32) {
    let file = dir.path().join(format!("flood{number}.pcap"));
    std::fs::write(&file, capture(flows)).unwrap();
    vsctl(
        daemon,
        &format!(
            "add-port br0 flood{number} -- set Interface flood{number} type=pcap ofport_request={number} \
             options:infinite_rx=true options:rx_pcap={}",
            file.display()
        ),
    );
}

fn rule(daemon: &Daemon, command: &str, line: &str) {
    daemon.ovs("ovs-ofctl", &[command, "br0", line]).unwrap();
}

/// Drops of a port by reason, from the status.
fn drops(daemon: &Daemon, port: &str, reason: &str) -> u64 {
    let status: Value = serde_json::from_str(&appctl(daemon, "sluice/status")).unwrap();
    fn find<'a>(value: &'a Value, port: &str) -> Option<&'a Value> {
        match value {
            Value::Object(map)
                if map.get("name").and_then(Value::as_str) == Some(port) && map.contains_key("drops") =>
            {
                map.get("drops")
            }
            Value::Object(map) => map.values().find_map(|v| find(v, port)),
            Value::Array(all) => all.iter().find_map(|v| find(v, port)),
            _ => None,
        }
    }
    let drops = find(&status, port).unwrap_or_else(|| panic!("no drops of {port} in {status:#}"));
    drops[reason].as_u64().unwrap_or(0)
}

#[test]
fn handlers_follow_the_setting_and_use_no_descriptors() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ping");
    let (net, daemon) = switch(2);
    let (one, two) = (&net.hosts[0], &net.hosts[1]);
    ping_all(&one.netns, two.ipv4.into(), 2);
    let usual = threads(&daemon, "handler");
    assert!(usual >= 1);
    let before = descriptors(&daemon);
    for wanted in [4, 1, 7] {
        // First packets arrive continuously: the switch deletes the flow between two of them.
        let pings = pings(&one.netns, "0.02", two.ipv4.into());
        vsctl(&daemon, &format!("set Open_vSwitch . other_config:n-handler-threads={wanted}"));
        appctl(&daemon, "revalidator/purge");
        wait_for(LIMIT, "that many handlers", || threads(&daemon, "handler") == wanted).unwrap();
        appctl(&daemon, "revalidator/purge");
        answered(pings, 40);
        if !on_kernel() {
            // On the kernel datapath handlers wait for sockets; `kernel` tests their number.
            assert_eq!(descriptors(&daemon), before, "with {wanted} handlers");
        }
    }
    vsctl(&daemon, "remove Open_vSwitch . other_config n-handler-threads");
    wait_for(LIMIT, "the usual number", || threads(&daemon, "handler") == usual).unwrap();
    ping_all(&one.netns, two.ipv4.into(), 2);
}

/// Upper bound of the ports' send-only sockets (`netdev::system::OWN_SOCKETS_MAX`).
const OWN_SOCKETS: usize = 256;

/// Adds and removes many ports at once. Each uses one descriptor beside a constant, for any number of handlers; all are
/// closed when the removal is answered.
#[test]
fn many_ports_use_one_descriptor_each_and_leak_none() {
    require_userspace!("a descriptor for each port");
    require_netns!();
    require_programs!("ovs-vsctl", "ip");
    let netns = Netns::new("many").unwrap();
    let batch: String = (0..150).map(|n| format!("link add ma{n} type veth peer name mb{n}\n")).collect();
    netns.cmd("ip").args(["-batch", "-"]).input(batch).run().unwrap();
    let names: Vec<String> = (0..150).flat_map(|n| [format!("ma{n}"), format!("mb{n}")]).collect();
    let promiscuous = || {
        let links: Value = serde_json::from_str(&netns.ip("-d -j link show").unwrap()).unwrap();
        let counts = links.as_array().unwrap().iter().filter(|l| l["link_type"] == "ether");
        counts.filter(|l| l["ifname"] != "br0" && l["promiscuity"].as_u64() > Some(0)).count()
    };
    let daemon = start(&netns);
    // Without flows: the veth pairs are loops.
    vsctl(
        &daemon,
        "add-br br0 -- set-fail-mode br0 secure -- set Open_vSwitch . other_config:n-handler-threads=1",
    );
    let before = descriptors(&daemon);
    for round in 0..2 {
        let add: String = names.iter().map(|name| format!(" -- add-port br0 {name}")).collect();
        // A missing device does not delay the others, and is reported.
        vsctl(&daemon, &format!("add-port br0 nobody{add}"));
        assert!(
            vsctl(&daemon, "get Interface nobody error").contains("could not open network device nobody")
        );
        assert_eq!(vsctl(&daemon, "get Interface mb149 error"), "[]");
        assert_eq!(promiscuous(), 300);
        let there = descriptors(&daemon).saturating_sub(before);
        // Polling many queues takes a thread one or two more descriptors.
        assert!((300..=300 + OWN_SOCKETS + 4).contains(&there), "{there} in round {round}");
        for handlers in [8, 1] {
            vsctl(&daemon, &format!("set Open_vSwitch . other_config:n-handler-threads={handlers}"));
            wait_for(LIMIT, "that many handlers", || threads(&daemon, "handler") == handlers).unwrap();
            // Fewer than seven further handlers would take; a port may have got a socket for sending since.
            let few = || descriptors_now(&daemon) <= before + there + 6;
            wait_for(LIMIT, "as many descriptors", few).unwrap();
        }
        let del: String = names.iter().map(|name| format!(" -- del-port br0 {name}")).collect();
        vsctl(&daemon, &format!("del-port br0 nobody{del}"));
        assert_eq!(promiscuous(), 0);
        wait_for(LIMIT, "as few descriptors as before", || descriptors_now(&daemon) <= before + 4).unwrap();
    }
}

/// Sends datagrams, each from a separate port, and prints the number received at the other end.
const PROBES: &str = "\
import socket, sys, time
address, count = sys.argv[1], int(sys.argv[2])
for n in range(count):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(('', 20000 + n))
    s.sendto(b'%d' % n, (address, 9999))
    s.close()
    time.sleep(0.001)
";

const SINK: &str = "\
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
s.bind(('', 9999))
s.settimeout(10)
print('ready', flush=True)
seen = set()
try:
    while len(seen) < int(sys.argv[1]):
        seen.add(s.recv(100))
except TimeoutError:
    pass
print(len(seen), flush=True)
";

/// Upcalls that wait for a handler when their port is removed are drops, in the counters and in the status alike.
#[test]
fn upcalls_that_end_with_their_port_are_drops() {
    require_userspace!("ports of type pcap and null");
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let (_net, daemon) = switch(1);
    let dir = TempDir::new("flood").unwrap();
    vsctl(
        &daemon,
        "set Open_vSwitch . other_config:flow-limit=1000 -- add-port br0 out -- set Interface out type=null ofport_request=90",
    );
    rule(&daemon, "add-flow", &format!("priority=100,in_port=91,udp,actions={OWN_MEGAFLOW},output:90"));
    let counted = || -> u64 {
        let counter = appctl(&daemon, "coverage/read-counter datapath_drop_port_removed");
        counter.trim().parse().unwrap()
    };
    let in_status = || {
        let status: Value = serde_json::from_str(&appctl(&daemon, "sluice/status")).unwrap();
        status["datapaths"][0]["drops"]["port_removed"].as_u64().unwrap_or(0)
    };
    wait_for(LIMIT, "upcalls that end with their port", || {
        add_flood(&daemon, &dir, 91, 100_000);
        wait_for(LIMIT, "refused upcalls", || drops(&daemon, "flood91", "upcall_queue_full") > 10_000)
            .unwrap();
        vsctl(&daemon, "del-port flood91");
        counted() > 100
    })
    .unwrap();
    wait_for(LIMIT, "the same in the status", || in_status() == counted()).unwrap();
}

#[test]
fn a_flood_of_new_flows_does_not_affect_other_ports() {
    require_userspace!("ports of type pcap and null");
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "ping", PYTHON);
    let (net, daemon) = switch(2);
    let dir = TempDir::new("flood").unwrap();
    let (one, two) = (&net.hosts[0], &net.hosts[1]);
    ping_all(&one.netns, two.ipv4.into(), 2);
    // Misses of both the flood and the probes are translated packet by packet: the flow limit permits no more megaflows.
    vsctl(
        &daemon,
        "set Open_vSwitch . other_config:flow-limit=1000 -- add-port br0 out -- set Interface out type=null ofport_request=90",
    );
    rule(&daemon, "add-flow", &format!("priority=100,in_port=91,udp,actions={OWN_MEGAFLOW},output:90"));
    rule(&daemon, "add-flow", &format!("priority=100,udp,tp_dst=9999,actions={OWN_MEGAFLOW},NORMAL"));
    add_flood(&daemon, &dir, 91, 100_000);
    wait_for(LIMIT, "refused upcalls of the flood", || {
        drops(&daemon, "flood91", "upcall_queue_full") > 100_000
    })
    .unwrap();
    let (count, ready) = ("500", dir.path().join("ready"));
    let sink = format!("{PYTHON} -c \"$0\" {count} > {}", ready.display());
    let sink = two.netns.spawn("sh", &["-c", &sink, SINK]).unwrap();
    let message = || std::fs::read_to_string(&ready).unwrap_or_default();
    wait_for(LIMIT, "the sink", || message().starts_with("ready")).unwrap();
    let misses = || drops(&daemon, "flood91", "upcall_queue_full");
    let before = misses();
    one.netns.run(PYTHON, &["-c", PROBES, &two.ipv4.to_string(), count]).unwrap();
    sink.wait(Duration::from_secs(30)).unwrap();
    assert!(misses() > before, "the flood went on");
    assert_eq!(message(), format!("ready\n{count}\n"));
    for port in net.ports() {
        assert_eq!(drops(&daemon, port, "upcall_queue_full"), 0, "{port}");
        assert_eq!(drops(&daemon, port, "parked_overflow"), 0, "{port}");
    }
}

#[test]
fn a_change_of_a_rule_reaches_every_megaflow() {
    require_userspace!("ports of type pcap and null");
    const FLOWS: u32 = 20_000;
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let netns = Netns::new("change").unwrap();
    let daemon = start(&netns);
    let dir = TempDir::new("change").unwrap();
    vsctl(
        &daemon,
        "add-br br0 -- set Bridge br0 fail_mode=secure -- add-port br0 a -- set Interface a type=null ofport_request=1 \
         -- add-port br0 b -- set Interface b type=null ofport_request=2",
    );
    let to = |port: u32| format!("in_port=91,udp,actions={OWN_MEGAFLOW},output:{port}");
    rule(&daemon, "add-flow", &to(1));
    add_flood(&daemon, &dir, 91, FLOWS);
    // Keys of each revalidator thread.
    let keys = || {
        let shown = appctl(&daemon, "upcall/show");
        let number = |k: &str| k.split(')').next()?.parse::<u32>().ok();
        shown.split("(keys ").skip(1).filter_map(number).collect::<Vec<_>>()
    };
    let flows = || keys().iter().sum::<u32>();
    let revalidators = |n: usize| {
        vsctl(&daemon, &format!("set Open_vSwitch . other_config:n-revalidator-threads={n}"));
        let tasks = std::path::PathBuf::from(format!("/proc/{}/task", daemon.pid()));
        let running = || {
            let names = std::fs::read_dir(&tasks).unwrap().flatten();
            let names = names.filter_map(|t| std::fs::read_to_string(t.path().join("comm")).ok());
            names.filter(|name| name.starts_with("revalidator")).count()
        };
        wait_for(LIMIT, "so many revalidators", || running() == n && keys().len() == n).unwrap();
        assert!(appctl(&daemon, "memory/show").contains(&format!(" revalidators:{n} ")));
    };
    revalidators(3);
    wait_for(LIMIT, "a megaflow each", || flows() == FLOWS).unwrap();
    assert!(keys().iter().all(|n| *n > FLOWS / 5), "{:?}", keys());
    let sent = |port: u32| {
        let dump = daemon.ovs("ovs-ofctl", &["dump-ports", "br0", &port.to_string()]).unwrap().stdout;
        dump.split("tx pkts=").nth(1).unwrap().split(',').next().unwrap().parse::<u64>().unwrap()
    };
    rule(&daemon, "mod-flows", &to(2));
    appctl(&daemon, "revalidator/wait");
    // No packet takes the old path, and no megaflow was recreated.
    let old = sent(1);
    let new = sent(2);
    wait_for(LIMIT, "packets on the new way", || sent(2) > new + u64::from(10 * FLOWS)).unwrap();
    assert_eq!((sent(1), flows()), (old, FLOWS));
    revalidators(1);
    // The current flow counts all forwarded packets once the port is removed.
    vsctl(&daemon, "del-port flood91");
    appctl(&daemon, "revalidator/wait");
    let dump = daemon.ovs("ovs-ofctl", &["dump-flows", "br0"]).unwrap().stdout;
    let counted: u64 = dump.split("n_packets=").nth(1).unwrap().split(',').next().unwrap().parse().unwrap();
    assert_eq!(counted, sent(1) + sent(2), "{dump}");
}

/// Resident memory in bytes (proc_pid_status(5)).
fn resident_bytes(daemon: &Daemon) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// Sum of a counter of `coverage/show`; 0 before the first event.
fn coverage(daemon: &Daemon, name: &str) -> u64 {
    let shown = appctl(daemon, "coverage/show");
    let line = shown.lines().find(|line| line.split(' ').next() == Some(name));
    line.and_then(|line| line.rsplit("total: ").next()?.trim().parse().ok()).unwrap_or(0)
}

/// Flows of the port below, each of which holds about a kilobyte in the datapath and in the slow path.
const PORT_FLOWS: u32 = 60_000;

/// After a port is removed nothing else happens: no packet, no change of a rule, no command. Its flows' last packets
/// count for their rule all the same, and their memory returns to the system.
#[test]
fn flows_of_a_removed_port_are_counted_and_freed_without_further_events() {
    require_userspace!("a port that replays a capture");
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ovs-ofctl");
    let netns = Netns::new("removed").unwrap();
    let dir = TempDir::new("removed").unwrap();
    let daemon = start(&netns);
    vsctl(&daemon, "add-br br0 -- set Bridge br0 datapath_type=netdev fail_mode=secure");
    rule(&daemon, "add-flow", &format!("priority=9,in_port=7,udp,actions={OWN_MEGAFLOW}"));
    let flows = || {
        let shown = appctl(&daemon, "dpctl/show netdev@ovs-netdev");
        shown.lines().find_map(|line| line.trim().strip_prefix("flows:")?.trim().parse::<u32>().ok())
    };
    let counted = || {
        let rules = daemon.ovs("ovs-ofctl", &["dump-flows", "br0"]).unwrap().stdout;
        let packets = rules.split("n_packets=").nth(1).and_then(|rest| rest.split(',').next()?.parse().ok());
        packets.unwrap_or(0_u64)
    };
    for round in 0..3 {
        let before = resident_bytes(&daemon);
        add_flood(&daemon, &dir, 7, PORT_FLOWS);
        wait_for(3 * LIMIT, "all flows", || flows() == Some(PORT_FLOWS)).unwrap();
        let full = resident_bytes(&daemon);
        let held = full.saturating_sub(before);
        // The allocator may have kept some memory of an earlier round.
        assert!(held > u64::from(PORT_FLOWS) * 256, "round {round}: {before} to {full} bytes");
        vsctl(&daemon, "del-port flood7");
        // The commands of a look would be events: until the memory is back only the kernel is asked.
        let falls = wait_for(LIMIT, "memory", || resident_bytes(&daemon) < before + held / 2);
        falls.unwrap_or_else(|why| panic!("{why}: {before}, {full}, {}", resident_bytes(&daemon)));
        // The rule drops: each packet that was not lost on the way counted for it.
        let mut seen = (None, 0, 0);
        let agree = wait_for(LIMIT, "the counters of the flows", || {
            seen = (flows(), counted(), coverage(&daemon, "drop_action_of_pipeline"));
            seen.0 == Some(0) && seen.1 == seen.2
        });
        assert!(agree.is_ok(), "round {round}: {seen:?}");
        assert!(counted() > u64::from(PORT_FLOWS));
    }
}
