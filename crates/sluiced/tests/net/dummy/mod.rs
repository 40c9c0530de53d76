//! Dummy mode: the real daemon with a stopped clock. Compares outputs with those of the stock switch.

mod bonds;
mod commands;
mod commands35;
mod counters;
mod database;
mod decoders;
mod drops;
mod exports;
mod lacp;
mod learned;
mod link_monitors;
mod logs;
mod mcast;
mod mirrors;
mod mtus;
mod netflow;
mod newer;
mod nsh;
mod offload;
mod pauses;
mod perf;
mod policing;
mod prefixes;
mod recirculated;
mod recorded;
mod replaced;
mod routes;
mod samples;
mod separate;
mod services;
mod settings;
mod slow_sets;
mod sweep;
mod texts;
mod trees;
mod vlan_limit;
mod vlan_modes;
mod vlans;
mod warped;
mod zones;

use crate::helpers::{appctl, appctl_output, spec, vsctl, wait_until};
use testkit::{Daemon, Netns, TempDir, require_netns, require_programs, wait_for};

/// A switch of dummies with the set-up of the recordings; the clock is stopped.
struct Lab {
    _netns: Netns,
    daemon: Daemon,
}

const ADD_PORTS: &str = "-- add-port br0 p1 -- set Interface p1 type=dummy -- add-port br0 p2 -- set Interface p2 type=dummy \
     -- add-port br0 p7 tag=10 -- set Interface p7 type=dummy";

/// The Ethernet header of a frame.
const FROM_5_TO_7: &str = "eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07)";

impl Lab {
    fn new() -> Lab {
        Lab::with("--enable-dummy")
    }

    /// Every device is a dummy, also a tunnel.
    fn overriding() -> Lab {
        Lab::with("--enable-dummy=override")
    }

    fn with(mode: &str) -> Lab {
        let lab = Lab::bare(mode);
        let bridge = "add-br br0 -- set Bridge br0 datapath_type=dummy fail_mode=standalone \
             other_config:datapath-id=fedcba9876543210 other_config:hwaddr=aa:55:aa:55:00:00";
        vsctl(&lab.daemon, &format!("{bridge} {ADD_PORTS}"));
        lab.appctl("time/stop");
        lab
    }

    fn empty() -> Lab {
        Lab::bare("--enable-dummy")
    }

    fn bare(mode: &str) -> Lab {
        let netns = Netns::new("dummy").unwrap();
        let daemon = spec(&netns).args([mode]).start().unwrap();
        Lab { _netns: netns, daemon }
    }

    fn appctl(&self, line: &str) -> String {
        appctl(&self.daemon, line)
    }

    fn ofctl(&self, words: &[&str]) -> String {
        self.daemon.ovs("ovs-ofctl", words).unwrap().stdout
    }

    fn receive(&self, port: &str, flow: &str) {
        self.appctl(&format!("netdev-dummy/receive {port} {flow}"));
    }

    fn n_packets(&self, rule: &str) -> u64 {
        let dump = self.ofctl(&["dump-flows", "br0"]);
        let line = dump.lines().find(|l| l.contains(rule)).unwrap_or_else(|| panic!("{rule} in\n{dump}"));
        line.split("n_packets=").nth(1).unwrap().split(',').next().unwrap().parse().unwrap()
    }
}

macro_rules! require {
    () => {
        require_netns!();
        require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    };
}

#[test]
fn a_session_reads_as_with_the_stock_switch() {
    require!();
    let lab = Lab::new();
    assert_eq!(lab.appctl("dpif/show"), recorded::DPIF_SHOW);
    assert_eq!(lab.appctl("dpctl/show"), recorded::DPCTL_SHOW);
    lab.ofctl(&["add-flow", "br0", "priority=0,actions=NORMAL"]);
    lab.ofctl(&["add-flow", "br0", "priority=50,tcp,tp_dst=80,actions=load:5->NXM_NX_REG1[],resubmit(,3)"]);
    let third = "table=3,tcp,reg1=5,nw_src=10.0.0.0/8,actions=dec_ttl,mod_dl_dst:aa:bb:cc:dd:ee:ff,output:2";
    lab.ofctl(&["add-flow", "br0", third]);
    let tcp = "in_port=1,tcp,dl_src=50:54:00:00:00:05,dl_dst=50:54:00:00:00:07,nw_src=10.1.2.3,nw_dst=192.168.0.1,\
               nw_ttl=64,tp_src=1234,tp_dst=80";
    assert_eq!(lab.appctl(&format!("ofproto/trace br0 {tcp}")), recorded::TRACE_BRIDGE);
    let icmp = format!(
        "in_port(1),{FROM_5_TO_7},eth_type(0x0800),ipv4(src=192.168.0.1,dst=192.168.0.2,proto=1,tos=0,ttl=64,\
         frag=no),icmp(type=8,code=0)"
    );
    assert_eq!(lab.appctl(&format!("ofproto/trace ovs-dummy {icmp}")), recorded::TRACE_DATAPATH);
    let syn = format!(
        "in_port(1),{FROM_5_TO_7},eth_type(0x0800),ipv4(src=10.1.2.3,dst=192.168.0.2,proto=6,tos=0,ttl=64,frag=no),\
         tcp(src=1234,dst=80),tcp_flags(syn)"
    );
    let arp = format!(
        "in_port(1),{FROM_5_TO_7},eth_type(0x0806),arp(sip=10.0.0.1,tip=10.0.0.2,op=1,sha=50:54:00:00:00:05,\
         tha=00:00:00:00:00:00)"
    );
    lab.receive("p1", &syn);
    lab.receive("p1", &syn);
    lab.receive("p1", &arp);
    // No wait: received packets are processed already.
    let flows = lab.appctl("dpctl/dump-flows");
    assert!(flows.contains("packets:1, bytes:54, used:0.000s"), "{flows}");
    assert_eq!(lab.appctl("time/warp 1000 500"), "warped\n");
    assert_eq!(lab.appctl("dpctl/dump-flows"), recorded::DUMP_FLOWS);
    assert_eq!(lab.appctl("dpif/dump-flows br0"), recorded::DUMP_FLOWS.split_once('\n').unwrap().1);
    let verbose = lab.appctl("dpctl/dump-flows -m");
    for line in recorded::DUMP_FLOWS_MORE {
        assert!(verbose.contains(line), "{line} is not in\n{verbose}");
    }
    assert_eq!(lab.appctl("fdb/show br0"), recorded::FDB_SHOW);
    assert_eq!(lab.appctl("fdb/stats-show br0"), recorded::FDB_STATS);
    assert!(lab.appctl("dpif-netdev/pmd-stats-show").starts_with(recorded::PMD_STATS));
    let ports = lab.ofctl(&["show", "br0"]);
    // Addresses are assigned in the order of opening.
    assert_eq!(ports.replace("00:03\n", "00:04\n"), recorded::OFCTL_SHOW);
    let flows = lab.ofctl(&["dump-flows", "br0"]);
    assert_eq!(flows.replace("=1.020s", "=1s"), recorded::OFCTL_DUMP_FLOWS);
    let tables = lab.appctl("bridge/dump-flows br0");
    assert!(tables.starts_with(recorded::BRIDGE_DUMP_FLOWS), "{tables}");
    let counters = lab.ofctl(&["dump-ports", "br0", "1"]);
    assert!(counters.contains("port  1: rx pkts=3, bytes=150, drop=?, errs=?"), "{counters}");
}

/// Layout and rates equal those of OVS 3.1 after the same commands.
#[test]
fn coverage_counters_have_rates() {
    require!();
    let lab = Lab::new();
    // One sample each: the first includes delays by other tests on the machine.
    lab.appctl("time/warp 5000 100");
    lab.receive("p1", &format!("in_port(1),{FROM_5_TO_7},eth_type(0x1234)"));
    lab.receive("p1", &format!("in_port(1),{FROM_5_TO_7},eth_type(0x1234)"));
    lab.receive("p2", &format!("in_port(2),{FROM_5_TO_7},eth_type(0x1234)"));
    let row = |reported: &str| {
        let shown = lab.appctl("coverage/show");
        let (title, last) = (shown.lines().next().unwrap(), shown.lines().last().unwrap());
        assert!(
            title
                .starts_with("Event coverage, avg rate over last: 5 seconds, last minute, last hour,  hash=")
        );
        assert!(last.ends_with(" events never hit"), "{shown}");
        let expected = format!("netdev_received          {reported}   total: 3");
        assert!(shown.lines().any(|line| line == expected), "{expected} is not in\n{shown}");
    };
    row("  0.0/sec     0.000/sec        0.0000/sec");
    lab.appctl("time/warp 5000 100");
    row("  0.6/sec     0.050/sec        0.0008/sec");
    lab.appctl("time/warp 5000 100");
    row("  0.0/sec     0.050/sec        0.0008/sec");
    lab.appctl("time/warp 60000 1000");
    row("  0.0/sec     0.000/sec        0.0008/sec");
    lab.appctl("time/warp 3600000 60000");
    row("  0.0/sec     0.000/sec        0.0000/sec");
    assert_eq!(lab.appctl("coverage/read-counter netdev_received"), "3\n");
    let read =
        |name: &str| lab.appctl(&format!("coverage/read-counter {name}")).trim().parse::<u64>().unwrap();
    let [rules, reconfigured] = ["rev_flow_table", "rev_reconfigure"].map(read);
    lab.ofctl(&["add-flow", "br0", "table=9,actions=drop"]);
    vsctl(&lab.daemon, "add-port br0 p77 -- set Interface p77 type=dummy");
    assert!(read("rev_flow_table") > rules && read("rev_reconfigure") > reconfigured);
    for never in ["rev_stp", "datapath_drop_lock_error", "conntrack_l4csum_err"] {
        assert_eq!(read(never), 0, "{never}");
    }
    let unknown = appctl_output(&lab.daemon, "coverage/read-counter nonsense");
    assert!(unknown.stderr.starts_with("No such counter\n") && !unknown.status.success(), "{unknown:?}");
}

#[test]
fn time_advances_only_by_time_warp() {
    require!();
    let lab = Lab::new();
    lab.ofctl(&["add-flow", "br0", "idle_timeout=10,priority=7,in_port=1,actions=output:2"]);
    lab.ofctl(&["add-flow", "br0", "hard_timeout=25,priority=8,in_port=2,actions=output:1"]);
    let one = format!("in_port(1),{FROM_5_TO_7},eth_type(0x1234)");
    lab.appctl("time/warp 6000 1000");
    lab.receive("p1", &one);
    lab.receive("p1", &one);
    // Statistics reach the flow before its idle timeout is checked, for any jump of the clock.
    lab.appctl("time/warp 8000");
    assert_eq!(lab.n_packets("priority=7"), 2);
    lab.appctl("time/warp 9000");
    let dump = lab.ofctl(&["dump-flows", "br0"]);
    assert!(!dump.contains("priority=7") && dump.contains("priority=8"), "{dump}");
    // The megaflow is deleted with its flow, in the same pass.
    assert_eq!(lab.appctl("dpctl/dump-flows"), "");
    lab.appctl("time/warp 3000 1000");
    assert!(!lab.ofctl(&["dump-flows", "br0"]).contains("priority=8"));
    for (line, why) in [
        ("time/warp", "requires at least 1 arguments"),
        ("time/warp x", "invalid MSECS"),
        ("time/warp 10 0", "invalid MSECS"),
        ("time/warp 1 2 3", "takes at most 2 arguments"),
    ] {
        let out = appctl_output(&lab.daemon, line);
        assert!(out.stderr.contains(why), "{line}: {}", out.stderr);
    }
}

#[test]
fn a_looping_packet_is_processed_before_the_next_command() {
    require!();
    let lab = Lab::new();
    lab.ofctl(&["add-flow", "br0", "in_port=1,actions=debug_recirc,output:2"]);
    lab.ofctl(&["add-flow", "br0", "in_port=2,actions=debug_slow,output:1"]);
    for n in 1..=20 {
        lab.receive("p1", &format!("in_port(1),{FROM_5_TO_7},eth_type(0x1234)"));
        lab.receive("p2", &format!("in_port(2),{FROM_5_TO_7},eth_type(0x4321)"));
        let counters = lab.ofctl(&["dump-ports", "br0", "2"]);
        assert!(counters.contains(&format!("tx pkts={n},")), "{counters}");
        let counters = lab.ofctl(&["dump-ports", "br0", "1"]);
        assert!(counters.contains(&format!("tx pkts={n},")), "{counters}");
    }
}

#[test]
fn a_dummy_answers_arp_for_its_address() {
    require!();
    let lab = Lab::new();
    assert_eq!(lab.appctl("netdev-dummy/ip4addr br0 10.0.0.9/24"), "OK\n");
    lab.receive(
        "p1",
        "in_port(1),eth(src=50:54:00:00:00:05,dst=ff:ff:ff:ff:ff:ff),eth_type(0x0806),arp(sip=10.0.0.1,\
         tip=10.0.0.9,op=1,sha=50:54:00:00:00:05,tha=00:00:00:00:00:00)",
    );
    // The reply leaves by the input port of the request: its address was learned there.
    let counters = lab.ofctl(&["dump-ports", "br0", "1"]);
    assert!(counters.contains("tx pkts=1, bytes=42"), "{counters}");
    let fdb = lab.appctl("fdb/show br0");
    assert!(fdb.contains("LOCAL     0  aa:55:aa:55:00:00"), "{fdb}");
}

#[test]
fn unsupported_operations_on_dummies_are_refused() {
    require!();
    let lab = Lab::new();
    for (line, why) in [
        ("netdev-dummy/receive p9 00", "no such dummy netdev"),
        ("netdev-dummy/receive p1 zz", "syntax error at zz"),
        ("netdev-dummy/receive p1 --qid 7 112233445566112233445566080000", "bad rx queue id."),
        ("netdev-dummy/receive p1 in_port(1),eth() --len 10", "too small packet len"),
        ("netdev-dummy/ip4addr p1 1.1.1", "invalid IP address"),
        ("netdev-dummy/ip4addr p1 1.1.1.1/33", "network prefix bits not between 0 and 32"),
        ("netdev-dummy/ip6addr p9 ::1/64", "Unknown Dummy Interface"),
        ("netdev-dummy/set-admin-state p1 sideways", "Invalid Admin State"),
    ] {
        let out = appctl_output(&lab.daemon, line);
        assert!(!out.status.success() && out.stderr.contains(why), "{line}: {}", out.stderr);
    }
    assert_eq!(lab.appctl("netdev-dummy/set-admin-state p1 down"), "OK\n");
    lab.appctl("time/warp 1000");
    wait_until(&lab.daemon, "Interface p1 admin_state=down link_state=down");
    let ports = lab.ofctl(&["show", "br0"]);
    assert!(ports.contains("LINK_DOWN"), "{ports}");
}

#[test]
fn a_dummy_on_a_thread_forwards_as_others_do() {
    require!();
    let lab = Lab::empty();
    vsctl(
        &lab.daemon,
        "add-br br0 -- set Bridge br0 datapath_type=dummy -- add-port br0 p1 -- set Interface p1 type=dummy-pmd \
         -- add-port br0 p2 -- set Interface p2 type=dummy-pmd",
    );
    lab.receive("p1", &format!("in_port(1),{FROM_5_TO_7},eth_type(0x1234)"));
    wait_for(crate::helpers::LIMIT, "the packet at p2", || {
        lab.ofctl(&["dump-ports", "br0", "2"]).contains("tx pkts=1,")
    })
    .unwrap();
    let flows = lab.appctl("dpctl/dump-flows");
    assert!(flows.starts_with("flow-dump from pmd on cpu core: 0"), "{flows}");
}

#[test]
fn frames_are_captured_and_cross_streams() {
    require!();
    let lab = Lab::empty();
    let dir = TempDir::new("dummy").unwrap();
    let (socket, file) = (dir.path().join("s"), dir.path().join("p3.pcap"));
    vsctl(
        &lab.daemon,
        &format!(
            "add-br br0 -- set Bridge br0 datapath_type=dummy -- add-br br1 -- set Bridge br1 datapath_type=dummy \
             -- add-port br0 p1 -- set Interface p1 type=dummy \
             -- add-port br0 p2 -- set Interface p2 type=dummy options:pstream=punix:{s} \
             -- add-port br1 p3 -- set Interface p3 type=dummy options:stream=unix:{s} options:rxq_pcap={f} \
             -- add-port br1 p4 -- set Interface p4 type=dummy",
            s = socket.display(),
            f = file.display(),
        ),
    );
    wait_for(crate::helpers::LIMIT, "the connection", || {
        lab.appctl("netdev-dummy/conn-state p3") == "p3: connected\n"
    })
    .unwrap();
    assert_eq!(lab.appctl("netdev-dummy/conn-state p2"), "p2: unknown\n");
    lab.receive("p1", &format!("in_port(1),{FROM_5_TO_7},eth_type(0x1234)"));
    wait_for(crate::helpers::LIMIT, "the frame at p4", || {
        lab.ofctl(&["dump-ports", "br1", "p4"]).contains("tx pkts=1,")
    })
    .unwrap();
    let captured = std::fs::read(&file).unwrap();
    // A file header, a record header, and the frame.
    assert_eq!((&captured[..4], captured.len()), (&0xa1b2_c3d4_u32.to_ne_bytes()[..], 24 + 16 + 14));
    let bad = crate::helpers::vsctl_output(
        &lab.daemon,
        "add-port br0 p5 -- set Interface p5 type=dummy options:stream=punix:/x",
    );
    assert!(bad.stderr.contains("stream connects"), "{}", bad.stderr);
}

#[test]
fn override_replaces_every_device_by_a_dummy() {
    require!();
    let Lab { _netns, daemon } = Lab::bare("--enable-dummy=override");
    vsctl(
        &daemon,
        "add-br br0 -- add-port br0 p1 -- add-port br0 t1 -- set Interface t1 type=tap \
         -- add-br br1 -- set Bridge br1 datapath_type=netdev -- add-port br1 q1",
    );
    assert_eq!(appctl(&daemon, "dpif/show"), recorded::OVERRIDE_DPIF_SHOW);
    assert_eq!(appctl(&daemon, "dpctl/show"), recorded::OVERRIDE_DPCTL_SHOW);
    // Two datapaths: one must be named.
    let out = appctl_output(&daemon, "dpctl/dump-flows");
    assert!(out.stderr.contains("multiple datapaths, specify one"), "{}", out.stderr);
    assert_eq!(appctl(&daemon, "dpctl/dump-flows netdev@ovs-netdev"), "");
    let out = appctl_output(&daemon, "dpctl/dump-flows nope");
    assert!(out.stderr.contains("no such datapath"), "{}", out.stderr);
    // A datapath ends with its last bridge.
    vsctl(&daemon, "del-br br1");
    assert!(!appctl(&daemon, "dpif/show").contains("netdev@"));
}

#[test]
fn ports_without_kernel_devices_report_the_columns_of_the_stock_switch() {
    require!();
    let lab = Lab::new();
    let patch = "add-port br0 pa -- set Interface pa type=patch options:peer=pb";
    vsctl(&lab.daemon, patch);
    lab.appctl("time/warp 6000 1000");
    wait_until(&lab.daemon, "Interface p1 statistics:tx_packets=0");
    let get = |columns: &str| vsctl(&lab.daemon, &format!("get Interface {columns}"));
    assert_eq!(
        get("p1 statistics"),
        "{rx_bytes=0, rx_custom_packets_1=0, rx_custom_packets_2=0, rx_packets=0, rx_q0_bytes=0, rx_q0_packets=0, \
         tx_bytes=0, tx_packets=0, tx_q0_bytes=0, tx_q0_packets=0}"
    );
    assert_eq!(get("pa ifindex link_resets admin_state link_state mtu"), "0\n0\nup\nup\n[]");
    assert!(get("pa mac_in_use").len() == "\"02:00:00:00:00:01\"".len(), "{}", get("pa mac_in_use"));
}

#[test]
fn without_dummies_there_are_no_dummies() {
    require!();
    let netns = Netns::new("dummy").unwrap();
    let daemon = crate::helpers::start(&netns);
    for line in ["time/stop", "time/warp 1", "netdev-dummy/receive p 00"] {
        let out = appctl_output(&daemon, line);
        assert!(out.stderr.contains("is not a valid command"), "{line}: {}", out.stderr);
    }
    let out =
        crate::helpers::vsctl_output(&daemon, "add-br br0 -- add-port br0 p1 -- set Interface p1 type=dummy");
    assert!(out.stderr.contains("p1"), "{}", out.stderr);
    let refused =
        testkit::DaemonSpec::new(crate::helpers::SLUICED).unwrap().args(["--enable-dummy=some"]).start();
    assert!(format!("{:#}", refused.err().unwrap()).contains("unknown dummy level"));
}

#[test]
fn the_last_packets_of_a_flow_do_not_revive_deleted_learned_rules() {
    require!();
    let lab = Lab::new();
    lab.ofctl(&["add-flow", "br0", "priority=0,actions=NORMAL"]);
    let one = format!("in_port(1),{FROM_5_TO_7},eth_type(0x1234)");
    lab.receive("p1", &one);
    lab.receive("p1", &one);
    vsctl(&lab.daemon, "del-port p1");
    lab.appctl("time/warp 2000 500");
    assert!(!lab.appctl("fdb/show br0").contains("50:54:00:00:00:05"), "{}", lab.appctl("fdb/show br0"));
    // Packets sent earlier do not revive a deleted learned flow.
    lab.ofctl(&[
        "add-flow",
        "br0",
        "priority=9,in_port=2,actions=learn(table=1,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[]),3",
    ]);
    let two = format!("in_port(2),{FROM_5_TO_7},eth_type(0x1234)");
    lab.receive("p2", &two);
    lab.receive("p2", &two);
    assert!(lab.ofctl(&["dump-flows", "br0", "table=1"]).contains("dl_dst=50:54:00:00:00:05"));
    lab.ofctl(&["del-flows", "br0"]);
    lab.appctl("time/warp 2000 500");
    assert!(!lab.ofctl(&["dump-flows", "br0"]).contains("actions="));
}

#[test]
fn a_purge_deletes_only_flows_that_precede_it() {
    require!();
    let lab = Lab::new();
    let one = format!("in_port(1),{FROM_5_TO_7},eth_type(0x1234)");
    lab.receive("p1", &one);
    lab.appctl("revalidator/purge");
    assert_eq!(lab.appctl("dpctl/dump-flows"), "");
    lab.receive("p1", &one);
    lab.appctl("revalidator/wait");
    assert!(lab.appctl("dpctl/dump-flows").contains("eth_type(0x1234)"));
}

#[test]
fn an_invalid_setting_leaves_the_port_unchanged() {
    require!();
    let lab = Lab::new();
    // The daemon limits the rate of its database updates by its clock.
    let written = |what: &str| {
        lab.appctl("time/warp 1000");
        let columns =
            ["ofport", "mtu", "error"].map(|c| vsctl(&lab.daemon, &format!("get Interface p1 {c}")));
        columns.join(" ").contains(what)
    };
    vsctl(&lab.daemon, "--no-wait set Interface p1 mtu_request=70000");
    wait_for(crate::helpers::LIMIT, "the error in its row", || {
        written("1 1500 \"interface p1: cannot set MTU 70000")
    })
    .unwrap();
    vsctl(&lab.daemon, "--no-wait set Interface p1 mtu_request=1400");
    wait_for(crate::helpers::LIMIT, "the new MTU", || written("1 1400 []")).unwrap();
}

#[test]
fn queues_stay_on_the_numa_node_of_their_port() {
    require!();
    let netns = Netns::new("dummy").unwrap();
    let daemon = spec(&netns).args(["--enable-dummy", "--dummy-numa=0,0,1,1"]).start().unwrap();
    vsctl(
        &daemon,
        "set Open_vSwitch . other_config:pmd-cpu-mask=0xff -- add-br br0 -- set Bridge br0 datapath_type=dummy \
         -- add-port br0 p1 -- set Interface p1 type=dummy-pmd options:numa_id=1 options:n_rxq=2",
    );
    let shown = appctl(&daemon, "dpif-netdev/pmd-rxq-show");
    let (mut node, mut nodes) = ("", Vec::new());
    for line in shown.lines() {
        if let Some(rest) = line.strip_prefix("pmd thread numa_id ") {
            node = rest.split(' ').next().unwrap();
        }
        if line.contains("port: p1") {
            nodes.push(node);
        }
    }
    assert_eq!(nodes, ["1", "1"], "{shown}");
    assert_eq!(shown.matches("pmd thread").count(), 4, "{shown}");
}

/// As OVS 3.5 does.
#[test]
fn dummies_open_captures_anew_and_show_offloads() {
    require!();
    let lab = Lab::new();
    let dir = TempDir::new("captures").unwrap();
    let file = dir.path().join("tx.pcap");
    vsctl(&lab.daemon, &format!("set Interface p2 options:tx_pcap={}", file.display()));
    std::fs::remove_file(&file).unwrap();
    vsctl(&lab.daemon, "set Bridge br0 other_config:mac-aging-time=77");
    assert!(file.exists());
    lab.ofctl(&["add-flow", "br0", "in_port=1,actions=2"]);
    // Without an EtherType.
    lab.receive("p1", "in_port(1),eth(),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=6,frag=no),tcp(src=1,dst=2)");
    let captured = std::fs::read(&file).unwrap();
    assert_eq!(captured[24 + 16 + 12..][..3], [8, 0, 0x45], "{captured:?}");
    for key in ["tx_ip_csum_offload", "tx_tcp_seg_offload", "tx_vxlan_tso_offload"] {
        let shown = || vsctl(&lab.daemon, &format!("get Interface p1 status:{key}"));
        wait_for(crate::helpers::LIMIT, key, || shown() == "\"false\"").unwrap();
    }
}
