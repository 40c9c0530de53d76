//! The flow table through `ovs-ofctl`: descriptions, changes, bundles, timeouts, meters, and errors.

use std::time::{Duration, Instant};

use testkit::{pace, require_netns, require_programs, wait_for};

use super::frames::{HOST_2, IP, eth, source};
use super::{LIMIT, Lab, VERSIONS, number_after, send, wait_text};
use crate::helpers;

#[test]
fn actions_for_tests_are_unknown_without_dummies() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl");
    let netns = testkit::Netns::new("debug").unwrap();
    let daemon = helpers::start(&netns);
    helpers::vsctl(&daemon, "add-br br0");
    for version in ["OpenFlow10", "OpenFlow13"] {
        for (command, line) in [
            ("add-flow", "actions=debug_recirc,2"),
            ("add-flow", "actions=debug_slow"),
            ("packet-out", "in_port=local packet=50540000000550540000000708004500 actions=debug_recirc"),
        ] {
            let out = daemon.tool("ovs-ofctl").args(["-O", version, command, "br0", line]).output().unwrap();
            let message = out.stderr;
            assert!(
                message.contains("OFPBAC_BAD_VENDOR_TYPE") || message.contains("OFPBAC_BAD_EXP_TYPE"),
                "{message}"
            );
        }
    }
}

#[test]
fn a_bridge_describes_itself_and_counts() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "python3");
    let lab = Lab::new(2);
    let port = lab.host(1).port.clone();
    lab.rules("OpenFlow10", "in_port=1,actions=2\ntable=9,actions=drop");
    let frames: Vec<String> = (0..5).map(|_| eth(HOST_2, &source(1), "88b5")).collect();
    send(lab.host(1), &frames);
    lab.wait_packets("in_port=1", 5);
    let bytes = number_after(&lab.ofctl("dump-aggregate br0 in_port=1"), "byte_count=");
    assert_eq!(bytes, 5 * 60);
    for version in VERSIONS {
        let ask = |what: &str| lab.ofctl(&format!("-O {version} --no-names {what}"));
        let show = ask("show br0");
        for text in ["n_tables:254, n_buffers:0", " 1(", " 2(", " LOCAL(", "miss_send_len=0", "FLOW_STATS"] {
            assert!(show.contains(text), "{text}: {show}");
        }
        let dpid = lab.vsctl("get bridge br0 datapath_id").replace('"', "");
        assert!(show.contains(&dpid), "{dpid}: {show}");
        let desc = ask("dump-ports-desc br0");
        assert!(desc.contains(&format!(" 1({port}): addr:")) && desc.contains("10000 Mbps now"), "{desc}");
        let ports = ask("dump-ports br0");
        assert!(ports.contains("OFPST_PORT reply") && ports.contains("3 ports"), "{ports}");
        assert!(number_after(&ask("dump-ports br0 1"), "rx pkts=") >= 5);
        assert!(number_after(&ask("dump-ports br0 2"), "tx pkts=") >= 5);
        let tables = ask("dump-tables br0");
        let table = |name: &str| tables.split(name).nth(1).map(str::to_owned).unwrap_or_default();
        let (zero, nine) = (table("table 0"), table("table 9"));
        assert_eq!(number_after(&zero, "active="), 1, "{tables}");
        assert_eq!(number_after(&nine, "active="), 1, "{tables}");
        let (lookup, matched) = (number_after(&zero, "lookup="), number_after(&zero, "matched="));
        assert!(matched >= 5 && lookup >= matched, "{tables}");
        assert_eq!(number_after(&nine, "lookup="), 0, "{tables}");
        assert!(ask("dump-flows br0").contains("n_packets=5, n_bytes=300"), "{}", ask("dump-flows br0"));
        let aggregate = ask("dump-aggregate br0");
        assert_eq!(number_after(&aggregate, "flow_count="), 2, "{aggregate}");
    }
    let features = lab.ofctl("-O OpenFlow13 dump-table-features br0");
    assert!(features.contains("max_entries=1000000") && features.contains("table 253"), "{features}");
    let idle = lab.ofctl("dump-flows br0 in_port=1");
    assert!(idle.contains("idle_age="), "{idle}");
    // Traffic resets the idle age.
    let age_s = || number_after(&lab.ofctl("dump-flows br0 in_port=1"), "idle_age=");
    wait_for(LIMIT, "an age of two seconds", || age_s() >= 2).unwrap();
    let aged = Instant::now();
    send(lab.host(1), &frames);
    lab.wait_packets("in_port=1", 10);
    let age_s = age_s();
    assert!(age_s <= aged.elapsed().as_secs(), "{age_s}");
}

#[test]
fn rules_are_added_changed_and_deleted() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl");
    let lab = Lab::new(2);
    for version in VERSIONS {
        let of = |line: &str| lab.ofctl(&format!("-O {version} {line}"));
        of("add-flow br0 cookie=0x11,priority=5,ip,nw_src=10.1.0.0/16,actions=output:1");
        of("add-flow br0 cookie=0x12,priority=6,ip,nw_src=10.1.2.0/24,actions=output:2");
        of("add-flow br0 cookie=0x21,priority=7,table=3,arp,actions=drop");
        let dump = lab.dump(version);
        let expected = [
            "cookie=0x11, priority=5,ip,nw_src=10.1.0.0/16 actions=output:1",
            "cookie=0x12, priority=6,ip,nw_src=10.1.2.0/24 actions=output:2",
            "cookie=0x21, table=3, priority=7,arp actions=drop",
        ];
        assert_eq!(dump, expected, "{version}");
        // Loose: all flows within the match; strict: the exact flow.
        // In OpenFlow 1.0 a modification also sets the cookie, by default to 0.
        of("mod-flows br0 cookie=0x11,ip,nw_src=10.1.0.0/16,actions=in_port");
        let changed = |n: usize| lab.dump(version).iter().filter(|l| l.ends_with("IN_PORT")).count() == n;
        assert!(changed(2), "{:?}", lab.dump(version));
        of("--strict mod-flows br0 cookie=0x12,priority=6,ip,nw_src=10.1.2.0/24,actions=output:2");
        assert!(changed(1), "{:?}", lab.dump(version));
        // By cookie.
        of("mod-flows br0 cookie=0x12/-1,actions=output:1");
        assert_eq!(lab.dump(version)[1], "cookie=0x12, priority=6,ip,nw_src=10.1.2.0/24 actions=output:1");
        // A strict deletion of a missing flow, one by port, one by cookie and mask.
        of("--strict del-flows br0 priority=5,ip,nw_src=10.1.2.0/24");
        assert_eq!(lab.dump(version).len(), 3);
        of("del-flows br0 out_port=1");
        assert_eq!(lab.dump(version).len(), 2);
        of("del-flows br0 cookie=0x20/0xf0");
        assert_eq!(lab.dump(version).len(), 1);
        of("del-flows br0 table=1");
        assert_eq!(lab.dump(version).len(), 1);
        of("del-flows br0");
        assert!(lab.dump(version).is_empty());
    }
}

#[test]
fn rules_are_replaced_and_compared() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl");
    let lab = Lab::new(2);
    let (old, new) = (
        "priority=1,arp,actions=1\npriority=2,ip,actions=2",
        "priority=2,ip,actions=1\npriority=3,tcp,actions=2",
    );
    for version in VERSIONS {
        lab.rules(version, old);
        let file = lab.daemon.rundir().join("flows");
        let diff = format!("-O {version} diff-flows br0 {}", file.display());
        std::fs::write(&file, old).unwrap();
        assert_eq!(lab.ofctl(&diff), "");
        std::fs::write(&file, new).unwrap();
        let reported = lab.daemon.tool("ovs-ofctl").args(diff.split(' ')).output().unwrap();
        assert_eq!(reported.status.code(), Some(2), "{reported:?}");
        assert!(
            reported.stdout.contains("-priority=1,arp") && reported.stdout.contains("+priority=3,tcp"),
            "{reported:?}"
        );
        lab.ofctl_input(&format!("-O {version} replace-flows br0 -"), new);
        assert_eq!(lab.ofctl(&diff), "");
        assert_eq!(lab.dump(version).len(), 2);
    }
}

#[test]
fn check_overlap_refuses_overlaps() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl");
    let lab = Lab::new(1);
    for version in VERSIONS {
        lab.rules(version, "priority=5,ip,nw_src=10.0.0.0/8,actions=1");
        let line = "add-flow br0 check_overlap,priority=5,ip,nw_dst=10.0.0.1,actions=drop";
        let why = lab.refused(&format!("-O {version} {line}"), "");
        assert!(why.contains("OFPFMFC_OVERLAP"), "{why}");
        // Another priority, or disjoint matches: no overlap.
        lab.ofctl(&format!("-O {version} {}", line.replace("priority=5", "priority=6")));
        lab.ofctl(&format!("-O {version} add-flow br0 check_overlap,priority=5,arp,actions=drop"));
        assert_eq!(lab.dump(version).len(), 3);
    }
}

#[test]
fn rules_time_out_and_send_flow_removed() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "python3");
    let lab = Lab::new(2);
    let [one, two] = [1, 4].map(|s| pace(Duration::from_secs(s)).as_secs());
    for version in VERSIONS {
        let monitor = lab.monitor(&format!("-O {version} monitor br0 65534"));
        let rules = format!(
            "send_flow_rem,cookie=1,idle_timeout={one},arp,actions=drop\n\
             send_flow_rem,cookie=2,hard_timeout={two},ip,actions=2\n\
             send_flow_rem,cookie=3,icmp6,actions=drop\n\
             cookie=4,hard_timeout={one},ipv6,actions=drop"
        );
        lab.rules(version, &rules);
        send(lab.host(1), &[eth(HOST_2, &source(1), &IP.udp(1, 2))]);
        lab.ofctl("del-flows br0 cookie=3/-1");
        wait_text(&monitor, "reason=hard");
        wait_text(&monitor, "reason=idle");
        let text = monitor.stderr() + &monitor.stdout();
        let reported = |what: &[&str]| text.lines().any(|l| what.iter().all(|w| l.contains(w)));
        assert!(reported(&["arp", "reason=idle", "cookie:0x1", &format!("idle{one}"), "pkts0"]), "{text}");
        assert!(reported(&["ip", "reason=hard", "cookie:0x2", "pkts1", "bytes60"]), "{text}");
        assert!(reported(&["icmp6", "reason=delete", "cookie:0x3"]), "{text}");
        wait_for(LIMIT, "the end of all rules", || lab.dump(version).is_empty()).unwrap();
        assert!(!(monitor.stderr() + &monitor.stdout()).contains("cookie:0x4"));
    }
}

#[test]
fn a_bundle_is_atomic() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl");
    let lab = Lab::new(2);
    let version = "OpenFlow13";
    let add = format!("-O {version} --bundle add-flows br0 -");
    lab.ofctl_input(&add, "priority=1,ip,actions=1\npriority=2,arp,actions=2");
    assert_eq!(lab.dump(version).len(), 2);
    // The last line overlaps: no change of the bundle remains, including the deletion.
    let bad =
        "delete_strict priority=1,ip\npriority=9,ipv6,actions=1\ncheck_overlap,priority=9,udp6,actions=1";
    let why = lab.refused(&add, bad);
    assert!(why.contains("OFPFMFC_OVERLAP"), "{why}");
    assert_eq!(lab.dump(version).len(), 2);
    lab.ofctl_input(&format!("-O {version} --bundle replace-flows br0 -"), "priority=7,actions=1");
    assert_eq!(lab.dump(version), ["priority=7 actions=output:1"]);
    lab.ofctl(&format!("-O {version} --bundle del-flows br0"));
    assert!(lab.dump(version).is_empty());
}

#[test]
fn a_meter_limits_a_flood() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "python3");
    let lab = Lab::new(2);
    let of = |line: &str| lab.ofctl(&format!("-O OpenFlow13 {line}"));
    let features = of("meter-features br0");
    assert!(features.contains("pktps") && features.contains("drop"), "{features}");
    of("add-meter br0 meter=1,pktps,burst,stats,bands=type=drop,rate=10,burst_size=20");
    of("add-flow br0 in_port=1,actions=meter:1,output:2");
    let dump = of("dump-meters br0");
    assert!(dump.contains("meter=1 pktps burst stats bands=\ntype=drop rate=10 burst_size=20"), "{dump}");
    let before = number_after(&lab.ofctl("dump-ports br0 2"), "tx pkts=");
    // The first packet installs the megaflow; meanwhile only a few may wait.
    send(lab.host(1), &[eth(HOST_2, &source(1), "88b5")]);
    lab.wait_packets("in_port=1", 1);
    let frames: Vec<String> = (1..500).map(|_| eth(HOST_2, &source(1), "88b5")).collect();
    send(lab.host(1), &frames);
    lab.wait_packets("in_port=1", 500);
    let stats = of("meter-stats br0 meter=1");
    // A burst of 20 of 500 packets, and 10 per second, pass.
    assert_eq!(number_after(&stats, "packet_in_count:"), 500, "{stats}");
    let dropped = number_after(stats.split("0:").last().unwrap_or_default(), "packet_count:");
    assert!((400..=485).contains(&dropped), "{stats}");
    let passed = number_after(&lab.ofctl("dump-ports br0 2"), "tx pkts=") - before;
    assert!((15..=100).contains(&passed), "{passed} passed, {stats}");
    // The changed meter passes all packets; deleting a meter deletes its flows.
    of("mod-meter br0 meter=1,pktps,burst,stats,bands=type=drop,rate=100000,burst_size=100000");
    let before = number_after(&lab.ofctl("dump-ports br0 2"), "tx pkts=");
    send(lab.host(1), &frames);
    lab.wait_packets("in_port=1", 999);
    assert!(number_after(&lab.ofctl("dump-ports br0 2"), "tx pkts=") >= before + 499);
    of("del-meter br0 meter=1");
    assert!(lab.dump("OpenFlow13").is_empty());
    let why = lab.refused("-O OpenFlow13 add-flow br0 actions=meter:1,output:2", "");
    assert!(why.contains("OFPMMFC_INVALID_METER"), "{why}");
}

#[test]
fn missing_objects_are_refused_with_their_errors() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl");
    let lab = Lab::new(1);
    let cases = [
        ("-O OpenFlow13 add-flow br0 actions=group:1", "OFPBAC_BAD_OUT_GROUP"),
        ("add-flow br0 actions=output:70000", ""),
        (
            "add-flow br0 ip,nw_src=10.0.0.1,actions=bundle(eth_src,0,hrw,ofport,members:1,CONTROLLER)",
            "OFPBAC_BAD_OUT_PORT",
        ),
        ("-O OpenFlow13 add-flow br0 table=3,actions=goto_table:255", ""),
        ("-O OpenFlow13 add-flow br0 actions=mod_nw_ttl:3", ""),
    ];
    for (line, error) in cases {
        let why = lab.refused(line, "");
        assert!(why.contains(error), "{line}: {why}");
    }
    assert!(lab.dump("OpenFlow13").is_empty());
    // Deleting a missing flow is not an error; a switch without groups reports none.
    lab.ofctl("-O OpenFlow13 del-groups br0");
    let groups = lab.ofctl("-O OpenFlow13 dump-groups br0");
    assert!(groups.contains("OFPST_GROUP_DESC reply") && !groups.contains("group_id"), "{groups}");
}

#[test]
fn a_change_reaches_running_traffic_and_old_datapath_flows_end() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "ping");
    let lab = Lab::new(2);
    lab.rules("OpenFlow10", "priority=1,in_port=1,actions=2\npriority=1,in_port=2,actions=1");
    let (one, two) = (lab.host(1), lab.host(2));
    testkit::reachable(&one.netns, two.ipv4.into(), LIMIT).unwrap();
    let address = two.ipv4.to_string();
    let ping = one.netns.spawn("ping", &["-n", "-O", "-i", "0.05", &address]).unwrap();
    wait_text(&ping, "icmp_seq=3 ttl");
    lab.ofctl("add-flow br0 priority=9,icmp,icmp_type=8,actions=drop");
    wait_text(&ping, "no answer yet");
    let lost = ping.stdout();
    lab.ofctl("--strict del-flows br0 priority=9,icmp,icmp_type=8");
    let answers = |text: &str| text.matches(" ttl=").count();
    wait_for(LIMIT, "answers again", || answers(&ping.stdout()) > answers(&lost) + 2).unwrap();
    drop(ping);
    // Without flows the switch forwards nothing, and soon the datapath has no forwarding megaflow.
    lab.ofctl("del-flows br0");
    wait_for(LIMIT, "the end of the datapath's flows", || {
        lab.appctl("dpctl/dump-flows").lines().all(|l| !l.contains("actions:") || l.contains("actions:drop"))
    })
    .unwrap();
}
