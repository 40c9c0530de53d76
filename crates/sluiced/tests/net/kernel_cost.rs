//! `sluice upcall-cost` on the kernel datapath: misses no event, and its sums equal the datapath's own counters.
//! It reports identical packets as ambiguous, and traces Debian's switch, which has no probes, from the kernel.

use std::time::Duration;

use serde_json::Value;
use testkit::{Daemon, Netns, RunDir, Running, Signal, Topology, require_netns, require_programs, wait_for};

use crate::cli::program;
use crate::helpers::{LIMIT, PYTHON, vsctl};
use crate::kernel::{Stock, bridge, dpctl, require_kernel, start};

/// Timeout of thousands of upcalls on an emulated machine.
const RUN_LIMIT: Duration = Duration::from_secs(280);

/// Sends UDP frames from an interface, repeats each flow in a row, some flows at a time, and waits until all
/// have returned.
const SEND: &str = "\
import socket, sys
dev, flows, times, window = sys.argv[1], *map(int, sys.argv[2:])
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
s.bind((dev, 0x0800))
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
s.settimeout(30)
macs = bytes.fromhex('020000000002020000000001')
def frame(n):
    head = bytes.fromhex('0800 4500002e 00000000 40110000') + bytes([10]) + n.to_bytes(3, 'big') + bytes([10, 99, 1, 1])
    return (macs + head + bytes.fromhex('00070009 001a0000')).ljust(60, b'\\0')
for first in range(0, flows, window):
    left = 0
    for n in range(first, min(first + window, flows)):
        for _ in range(times):
            s.send(frame(n))
            left += 1
    while left:
        got, source = s.recvfrom(2048)
        if got.startswith(macs) and source[2] != 4: # PACKET_OUTGOING
            left -= 1
print('all back')
";

/// Returns packets to their host, with one megaflow per source address.
const RULE: &str = "priority=9,udp,actions=move:NXM_OF_IP_SRC[]->NXM_NX_REG0[],in_port";

/// Sends this number of flows from a host and waits for their return, each repeated.
fn send(net: &Topology, flows: u32, times: u32, window: u32) {
    let host = &net.hosts[0];
    let [flows, times, window] = [flows, times, window].map(|n| n.to_string());
    let sender = host.netns.cmd(PYTHON).args(["-c", SEND, &host.dev, &flows, &times, &window]);
    let out = sender.limit(RUN_LIMIT).run().unwrap();
    assert_eq!(out.stdout, "all back\n", "{}", out.stderr);
}

/// Two hosts that send no packets unprompted.
fn quiet_hosts() -> Topology {
    let net = Topology::new(2).unwrap();
    for netns in net.hosts.iter().map(|h| &h.netns).chain([&net.switch]) {
        netns
            .run(
                "sysctl",
                &["-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1"],
            )
            .unwrap();
    }
    net
}

/// Misses, lost upcalls and flows as the datapath counts them.
fn counters(netns: &Netns) -> [u64; 3] {
    let shown = dpctl(netns, &["show"]);
    ["missed:", "lost:", "flows: "].map(|name| {
        let after = shown.split(name).nth(1).unwrap_or_else(|| panic!("{shown}"));
        after.split_whitespace().next().unwrap().parse().unwrap()
    })
}

/// Traces a switch while `traffic` runs. Returns the report, the report as JSON, and the messages of the tracer.
fn traced(daemon: &Daemon, options: &[&str], traffic: impl FnOnce()) -> (String, Value, String) {
    let file = daemon.rundir().join("recording").to_string_lossy().into_owned();
    let tracing =
        daemon.tool(&program()).args(["upcall-cost", "-q", "-w", &file]).args(options).spawn().unwrap();
    begun(&tracing);
    traffic();
    let out = tracing.stop(Signal::INT, RUN_LIMIT).unwrap();
    assert!(out.status.success(), "{}", out.stderr);
    let read = daemon
        .tool(&program())
        .args(["upcall-cost", "-q", "--json", "-r", &file])
        .limit(RUN_LIMIT)
        .run()
        .unwrap();
    (out.stdout, serde_json::from_str(&read.stdout).unwrap(), out.stderr)
}

fn begun(tracing: &Running) {
    wait_for(LIMIT, "the tracer", || tracing.stderr().contains("tracing by"))
        .unwrap_or_else(|e| panic!("{e:#}: {}", tracing.stderr()));
}

fn number(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} in {value:#}"))
}

/// The sum over the upcalls of ports or threads.
fn sum(report: &Value, of: &str) -> u64 {
    report[of].as_array().unwrap().iter().map(|share| number(share, "/upcalls")).sum()
}

const SECTIONS: [&str; 15] = [
    "Events (usable/total) [missed]",
    "Upcalls: ",
    "Upcalls handled per thread",
    "Upcalls per batch",
    "Cost of upcalls",
    "datapath to handler",
    "execute to datapath",
    "overhead without the lookup",
    "total: miss to executed",
    "Stage by stage",
    "Share of the stages",
    "Histogram: datapath to handler",
    "Histogram: total",
    "Ports",
    "Outliers",
];

#[test]
fn no_event_is_missed_and_sums_equal_datapath_counters() {
    require_kernel!();
    require_programs!(program().as_str(), PYTHON);
    const FLOWS: u32 = 10_000;
    let net = quiet_hosts();
    let dir = RunDir::new("cost").unwrap();
    let daemon = start(&net.switch, &dir);
    vsctl(&daemon, &bridge(&net));
    daemon.ovs("ovs-ofctl", &["add-flow", "br0", RULE]).unwrap();
    let before = counters(&net.switch);
    let mut during = [[0; 3]; 2];
    let (text, report, message) = traced(&daemon, &["--source", "bpf"], || {
        during[0] = counters(&net.switch);
        send(&net, FLOWS, 1, 64);
        during[1] = counters(&net.switch);
    });
    let after = counters(&net.switch);
    println!("{message}\n{text}");
    assert!(
        message.contains("its own probes; the kernel's datapath at ovs_dp_upcall and ovs_packet_cmd_execute"),
        "{message}"
    );
    for section in SECTIONS {
        assert!(text.contains(section), "no `{section}`");
    }
    // The counts during the trace, as lower and upper bounds.
    let least = during[1][0] - during[0][0];
    let most = after[0] - before[0];
    assert!(least >= u64::from(FLOWS), "{during:?}");
    assert_eq!(after[1], before[1], "upcalls were lost in the kernel");
    let events = report["events"].as_object().unwrap();
    assert!(events.values().all(|stage| stage["missed"] == 0), "{events:#?}");
    let total = |stage: &str| number(&report, &format!("/events/{stage}/total"));
    let usable = |stage: &str| number(&report, &format!("/events/{stage}/usable"));
    let misses = total("miss");
    assert!((least..=most).contains(&misses), "{misses} reported, {least} to {most} counted");
    for stage in ["enqueued", "received", "translated"] {
        assert_eq!(total(stage), misses, "{stage}");
    }
    for stage in ["put-sent", "execute-sent", "put-done", "executed", "on-wire"] {
        assert!((u64::from(FLOWS)..=misses).contains(&total(stage)), "{stage}: {}", total(stage));
    }
    assert_eq!(total("executed"), total("execute-sent"));
    assert!(after[2] - before[2] <= total("put-done") && total("put-done") <= misses);
    // Every event is matched, each to one upcall.
    for stage in events.keys() {
        assert_eq!(usable(stage), total(stage), "{stage}");
    }
    assert_eq!([number(&report, "/upcalls/matched"), number(&report, "/upcalls/missed")], [misses; 2]);
    assert_eq!([number(&report, "/upcalls/ambiguous"), number(&report, "/upcalls/single")], [0; 2]);
    assert_eq!([sum(&report, "threads"), sum(&report, "ports")], [misses; 2]);
    let batches = report["batches"].as_object().unwrap();
    let in_batches =
        batches.iter().map(|(size, turns)| size.parse::<u64>().unwrap() * turns.as_u64().unwrap());
    assert_eq!(in_batches.sum::<u64>(), misses);
    let count = |figure: &str| number(&report, &format!("/figures/{figure}/count"));
    assert_eq!(count("datapath_to_handler"), misses);
    assert_eq!([count("execute_to_datapath"), count("total")], [total("executed"); 2]);
    assert_eq!(count("overhead"), total("put-sent"));
    let names: Vec<&str> =
        report["ports"].as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap()).collect();
    assert!(names.contains(&net.hosts[0].port.as_str()), "{names:?}");
}

/// Identical packets follow while the first of a flow is in progress: their events are ambiguous.
#[test]
fn identical_packets_are_reported_not_guessed() {
    require_kernel!();
    require_programs!(program().as_str(), PYTHON);
    let net = quiet_hosts();
    let dir = RunDir::new("same").unwrap();
    let daemon = start(&net.switch, &dir);
    vsctl(&daemon, &bridge(&net));
    daemon.ovs("ovs-ofctl", &["add-flow", "br0", RULE]).unwrap();
    let before = counters(&net.switch);
    let (text, report, _) = traced(&daemon, &["--source", "bpf"], || send(&net, 20, 16, 1));
    let after = counters(&net.switch);
    println!("{text}");
    let [matched, ambiguous, single] =
        ["matched", "ambiguous", "single"].map(|of| number(&report, &format!("/upcalls/{of}")));
    assert!(ambiguous >= 2 && text.contains("identical packets were in progress at the same time"), "{text}");
    assert_eq!(number(&report, "/events/miss/total"), after[0] - before[0]);
    assert_eq!(number(&report, "/events/miss/missed"), 0);
    // Matched upcalls enter the statistics; ambiguous ones are counted.
    assert_eq!(number(&report, "/figures/datapath_to_handler/count"), matched);
    assert_eq!(sum(&report, "ports"), matched + ambiguous + single);
}

/// The host offloads checksum and tag: the kernel's frame contains neither, the handler's both.
#[test]
fn frames_match_despite_offloaded_checksum_and_tag() {
    require_kernel!();
    require_programs!(program().as_str(), PYTHON);
    const FLOWS: u64 = 20;
    const DATAGRAMS: &str = "\
import socket, sys
for port in range(2000, 2020):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind((sys.argv[1], port))
    s.sendto(b'datagram', (sys.argv[2], 9))
";
    let net = quiet_hosts();
    let dir = RunDir::new("form").unwrap();
    let daemon = start(&net.switch, &dir);
    vsctl(&daemon, &bridge(&net));
    let rule = "priority=9,udp,actions=move:NXM_OF_UDP_SRC[]->NXM_NX_REG0[0..15],output:2";
    daemon.ovs("ovs-ofctl", &["add-flow", "br0", rule]).unwrap();
    let host = &net.hosts[0];
    host.netns.ip(&format!("link add link {} name tagged type vlan id 10", host.dev)).unwrap();
    host.netns.ip("link set tagged up").unwrap();
    host.netns.ip(&format!("addr add 10.9.0.1/24 dev {}", host.dev)).unwrap();
    host.netns.ip("addr add 10.8.0.1/24 dev tagged").unwrap();
    for (to, dev) in [("10.9.0.2", host.dev.as_str()), ("10.8.0.2", "tagged")] {
        host.netns
            .ip(&format!("neigh replace {to} lladdr 02:00:00:00:00:02 dev {dev} nud permanent"))
            .unwrap();
    }
    let before = counters(&net.switch)[0];
    let (text, report, _) = traced(&daemon, &["--source", "bpf"], || {
        for (from, to) in [("10.9.0.1", "10.9.0.2"), ("10.8.0.1", "10.8.0.2")] {
            host.netns.run(PYTHON, &["-c", DATAGRAMS, from, to]).unwrap();
        }
        wait_for(LIMIT, "the misses", || counters(&net.switch)[0] >= before + 2 * FLOWS).unwrap();
        // The last packet's events may still be in progress.
        wait_for(LIMIT, "the megaflows", || {
            dpctl(&net.switch, &["dump-flows"]).matches("udp(").count() as u64 >= 2 * FLOWS
        })
        .unwrap();
    });
    println!("{text}");
    let total = |stage: &str| number(&report, &format!("/events/{stage}/total"));
    assert!(total("miss") >= 2 * FLOWS);
    for stage in ["miss", "enqueued", "received"] {
        assert_eq!(number(&report, &format!("/events/{stage}/usable")), total(stage), "{stage}");
    }
    let count = |figure: &str| number(&report, &format!("/figures/{figure}/count"));
    assert_eq!(count("datapath_to_handler"), total("miss"));
    assert!(count("execute_to_datapath") >= 2 * FLOWS - 1, "the last one may have no time to come back");
}

/// Debian's switch has no probes: only the kernel reports events.
#[test]
fn a_switch_without_probes_is_traced_in_the_kernel() {
    require_kernel!();
    require_programs!(
        program().as_str(),
        PYTHON,
        "ovs-vswitchd",
        "ovsdb-server",
        "ovsdb-tool",
        "ovsdb-client"
    );
    const FLOWS: u32 = 500;
    let net = quiet_hosts();
    let stock = Stock::new();
    let daemon = stock.start(&net.switch);
    vsctl(&daemon, &bridge(&net));
    daemon.ovs("ovs-ofctl", &["add-flow", "br0", RULE]).unwrap();
    let before = counters(&net.switch);
    let (text, report, message) = traced(&daemon, &[], || send(&net, FLOWS, 1, 16));
    let after = counters(&net.switch);
    println!("{message}\n{text}");
    let hooks =
        "the program itself has no probes; the kernel's datapath at ovs_dp_upcall and ovs_packet_cmd_execute";
    assert!(message.contains(hooks), "{message}");
    assert!(text.contains("no handler reported batches"), "{text}");
    let misses = number(&report, "/events/miss/total");
    assert_eq!(misses, after[0] - before[0]);
    assert_eq!([number(&report, "/events/miss/missed"), number(&report, "/events/executed/missed")], [0; 2]);
    assert!(number(&report, "/events/executed/usable") >= u64::from(FLOWS));
    assert!(number(&report, "/figures/total/count") >= u64::from(FLOWS));
    assert_eq!(number(&report, "/figures/datapath_to_handler/count"), 0);
    let port = report["ports"].as_array().unwrap().iter().find(|p| p["name"] == net.hosts[0].port.as_str());
    assert!(number(port.unwrap_or_else(|| panic!("{report:#}")), "/upcalls") >= u64::from(FLOWS));
    assert_eq!(number(port.unwrap(), "/not_taken"), 0);
}
