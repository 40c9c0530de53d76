//! Multicast snooping: a session recorded with OVS 3.5, and what is intended otherwise.

use super::Lab;
use crate::helpers::{appctl_output, vsctl};
use testkit::{require_netns, require_programs};

/// An IGMP report of version 2 for 239.1.1.1, and a query.
const REPORT: &str =
    "01005e0101015054000000010800460000200000000001022ad50a000001ef010101940400001600f9fcef010101";
const QUERY: &str =
    "01005e0000015054000000010800460000200000000001023ad80a0000fee0000001940400001164ee9b00000000";

/// The lines of an answer that the recording has. Outputs are in the order of ports; OVS sends some packets twice.
fn comparable(answer: &str) -> Vec<String> {
    let left_out = ["Flow: ", "bridge(", "-----", " 0. ", "    NORMAL", "Final flow", "ovs-appctl: "];
    let is_kept = |line: &&str| !line.trim().is_empty() && !left_out.iter().any(|l| line.starts_with(l));
    let in_order = |line: &str| match line.strip_prefix("Datapath actions: ") {
        Some(actions) => {
            let mut actions: Vec<&str> = actions.split(',').collect();
            actions.sort_unstable();
            actions.dedup();
            format!("Datapath actions: {}", actions.join(","))
        }
        None => line.to_string(),
    };
    let mut lines: Vec<String> = answer.lines().filter(is_kept).map(in_order).collect();
    // OVS has ports that get reports in any order.
    let is_report = |line: &String| line.starts_with("     -> ") && line.contains("eport");
    for reports in lines.chunk_by_mut(|a, b| is_report(a) == is_report(b)) {
        if reports.first().is_some_and(is_report) {
            reports.sort_unstable();
        }
    }
    lines
}

#[test]
fn a_session_is_that_of_the_stock_switch() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::empty();
    let mut is_stopped = false;
    for step in include_str!("mcast.txt").split("$ ").skip(1) {
        let (command, answer) = step.split_once('\n').unwrap();
        if let Some(words) = command.strip_prefix("vsctl ") {
            vsctl(&lab.daemon, words);
        } else if let Some(line) = command.strip_prefix("appctl ") {
            let out = appctl_output(&lab.daemon, line);
            let found = format!("{}\n{}", out.stdout, out.stderr);
            assert_eq!(comparable(&found), comparable(answer), "{command}\n{found}");
        }
        if !is_stopped {
            lab.appctl("time/stop");
            is_stopped = true;
        }
    }
}

/// A bridge with these settings of its ports 1 to 4.
fn lab(settings: &[&str]) -> Lab {
    let lab = Lab::empty();
    let mut set_up =
        "add-br br0 -- set Bridge br0 datapath_type=dummy fail_mode=standalone mcast_snooping_enable=true"
            .to_string();
    for n in 1..=4 {
        set_up += &format!(" -- add-port br0 p{n} -- set Interface p{n} type=dummy ofport_request={n}");
    }
    settings.iter().for_each(|setting| set_up += &format!(" -- set {setting}"));
    vsctl(&lab.daemon, &set_up);
    lab.appctl("time/stop");
    lab
}

/// The datapath actions of a packet to 239.1.1.1.
fn actions(lab: &Lab, from: &str) -> String {
    let flow = format!("{from},udp,dl_src=50:54:00:00:00:09,dl_dst=01:00:5e:01:01:01,nw_dst=239.1.1.1");
    let trace = lab.appctl(&format!("ofproto/trace br0 {flow}"));
    let actions = trace.lines().find_map(|line| line.strip_prefix("Datapath actions: "));
    actions.unwrap_or_else(|| panic!("{trace}")).to_string()
}

/// OVS sends them twice to the port of a router that also is a member, and to flagged ports of other VLANs.
#[test]
fn packets_leave_once_and_in_their_vlan() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = lab(&["Port p4 tag=10 other_config:mcast-snooping-flood=true"]);
    lab.receive("p1", REPORT);
    assert_eq!(actions(&lab, "in_port=2"), "1");
    lab.receive("p1", QUERY);
    assert_eq!(actions(&lab, "in_port=2"), "1");
    assert_eq!(actions(&lab, "in_port=2,dl_vlan=10"), "100,1,3,pop_vlan,4");
}

/// A report of version 2 for 239.50.0.N.
fn report_of(n: u16) -> String {
    let ip = "4500001c0000000001020000 0a000002 ef3200";
    let sum = !fold(0x1600 + 0xef32 + u32::from(n));
    let frame = format!("01005e3200{n:02x} 505400000002 0800 {ip}{n:02x} 1600{sum:04x}ef3200{n:02x}");
    frame.replace(' ', "")
}

/// The sum of words as the Internet checksum has it.
fn fold(sum: u32) -> u16 {
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// OVS evicts the groups of all ports in the order of their last reports.
#[test]
fn a_flood_of_groups_evicts_no_group_of_another_port() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = lab(&["Bridge br0 other_config:mcast-snooping-table-size=10"]);
    lab.receive("p1", REPORT);
    (1..=20).for_each(|n| lab.receive("p2", &report_of(n)));
    let shown = lab.appctl("mdb/show br0");
    assert_eq!(shown.lines().count(), 11, "{shown}");
    assert!(shown.contains("    1     0  IGMPv2    239.1.1.1           0\n"), "{shown}");
    assert!(shown.contains("239.50.0.20") && !shown.contains("239.50.0.11 "), "{shown}");
    let evicted = lab.appctl("coverage/read-counter mcast_snooping_evicted");
    assert_eq!(evicted, "11\n");
}

/// A group that gets a member has its flows translated again, and those alone.
#[test]
fn a_join_reaches_flows_in_the_datapath() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = lab(&["Bridge br0 other_config:mcast-snooping-disable-flood-unregistered=true"]);
    let data = |group: u8| {
        let eth = format!("eth(src=50:54:00:00:00:02,dst=01:00:5e:01:01:{group:02x})");
        let ip =
            format!("eth_type(0x0800),ipv4(src=10.0.0.2,dst=239.1.1.{group},proto=17,tos=0,ttl=9,frag=no)");
        lab.receive("p2", &format!("in_port(2),{eth},{ip},udp(src=1,dst=2)"));
    };
    (1..=3).for_each(data);
    let flow = |group: u8| {
        let flows = lab.appctl("dpctl/dump-flows");
        let found = flows.lines().find(|line| line.contains(&format!("ipv4(dst=239.1.1.{group},")));
        found.unwrap_or_else(|| panic!("{flows}")).rsplit("actions:").next().unwrap().to_string()
    };
    assert_eq!((flow(1), flow(2)), ("drop".to_string(), "drop".to_string()));
    lab.receive("p3", REPORT);
    lab.appctl("revalidator/wait");
    assert_eq!((flow(1), flow(2)), ("3".to_string(), "drop".to_string()));
    let slow = lab.appctl("dpctl/dump-flows");
    assert!(slow.contains("ipv4(proto=2,frag=no), packets:0, bytes:0, used:never, actions:userspace(pid=0,slow_path(action))"), "{slow}");
    // Each report comes to the switch: the member stays as long as its reports come.
    for _ in 0..5 {
        lab.appctl("time/warp 100000 1000");
        lab.receive("p3", REPORT);
    }
    assert_eq!(actions(&lab, "in_port=2"), "3");
    lab.appctl("time/warp 301000 1000");
    assert_eq!(actions(&lab, "in_port=2"), "drop");
}
