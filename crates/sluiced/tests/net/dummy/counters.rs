//! Coverage counters of rare events, and times of the main loop.

use super::texts::session;
use super::{FROM_5_TO_7, Lab};
use crate::helpers::{LIMIT, vsctl};
use serde_json::Value;
use testkit::{require_netns, require_programs, wait_for};

fn count(lab: &Lab, name: &str) -> u64 {
    lab.appctl(&format!("coverage/read-counter {name}")).trim().parse().unwrap()
}

/// As in OVS 3.5: a new port counts, and each change of its ability to send.
#[test]
fn ports_that_are_set_up_and_down_are_counted() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    let toggled = || count(&lab, "rev_port_toggled");
    let reaches = |n: u64| wait_for(LIMIT, "the count of toggled ports", || toggled() == n).unwrap();
    let before = toggled();
    assert!(before >= 4, "{before} for four ports");
    vsctl(&lab.daemon, "add-port br0 p9 -- set Interface p9 type=dummy");
    reaches(before + 1);
    lab.ofctl(&["mod-port", "br0", "p9", "down"]);
    reaches(before + 2);
    lab.ofctl(&["mod-port", "br0", "p9", "up"]);
    reaches(before + 3);
    // An event of translation alone is none of the port.
    lab.ofctl(&["add-flow", "br0", "priority=5,actions=drop"]);
    assert_eq!(toggled(), before + 3);
}

/// OVS 3.5 counts a flow that another program deleted.
#[test]
fn flows_deleted_behind_the_switch_are_counted() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    let lost = || count(&lab, "revalidate_missing_dp_flow");
    assert_eq!((lost(), count(&lab, "ipf_l3csum_err"), count(&lab, "rconn_overflow")), (0, 0, 0));
    lab.receive("p1", &format!("in_port(1),{FROM_5_TO_7},eth_type(0x1234)"));
    lab.appctl("dpctl/del-flows");
    lab.appctl("time/warp 60000 500");
    assert_eq!(lost(), 1);
}

/// Names and events of OVS 3.5. Its numbers differ where it repeats work.
#[test]
fn work_of_the_switch_is_counted_by_the_names_of_ovs() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    let count =
        |name: &str| -> u64 { lab.appctl(&format!("coverage/read-counter {name}")).trim().parse().unwrap() };
    let all = |names: &[&str]| names.iter().map(|name| count(name)).collect::<Vec<_>>();
    let names = ["bridge_reconfigure", "dpif_port_del", "dpif_flow_put", "dpif_execute", "xlate_actions"];
    let before = all(&names);
    // The bridge's own port, and three dummies.
    assert_eq!(count("dpif_port_add"), 4);
    let frame =
        format!("{FROM_5_TO_7},eth_type(0x0800),ipv4(src=1.0.0.1,dst=1.0.0.2,proto=1,tos=0,ttl=64,frag=no)");
    lab.appctl(&format!("netdev-dummy/receive p1 in_port(1),{frame},icmp(type=8,code=0)"));
    wait_for(LIMIT, "a flow and its packet", || count("dpif_flow_put") > before[2]).unwrap();
    vsctl(&lab.daemon, "del-port br0 p7");
    let after = all(&names);
    let grown: Vec<_> = before.iter().zip(&after).map(|(before, after)| after > before).collect();
    assert_eq!(grown, [true; 5], "{before:?} {after:?}");
    assert_eq!(count("dpif_port_del"), 1);
    lab.appctl("revalidator/purge");
    wait_for(LIMIT, "flows that go", || count("dpif_flow_del") + count("dpif_flow_flush") > 0).unwrap();
    let [received, replied] = all(&["unixctl_received", "unixctl_replied"])[..] else {
        panic!("two counters")
    };
    assert!(received > 10 && replied >= received, "{received} {replied}");
    assert!(count("netlink_received") > 0);
}

/// The times of the main loop's turns, as JSON.
fn loop_times(lab: &Lab) -> Value {
    let answers = session(lab, &[("set-options", &["--format", "json"]), ("sluice/loop-show", &[])]);
    answers[1].clone().unwrap()
}

#[test]
fn turns_of_the_main_loop_are_timed_by_their_parts() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    let part = |times: &Value, name: &str| {
        let parts = times["parts"].as_array().unwrap();
        parts.iter().find(|part| part["part"] == name).map_or(0, |part| part["sum_us"].as_u64().unwrap())
    };
    let sum = |times: &Value, list: &str, of: &str| {
        times[list].as_array().unwrap().iter().map(|item| item[of].as_u64().unwrap()).sum::<u64>()
    };
    let started = loop_times(&lab);
    assert!(part(&started, "configuration") > 0, "{started}");
    assert_eq!(lab.appctl("sluice/loop-clear"), "");
    let cleared = loop_times(&lab);
    assert!(cleared["turns"].as_u64() < started["turns"].as_u64(), "{cleared} after {started}");

    // Each of these commands has a turn of its own.
    let commands = 20;
    (0..commands).for_each(|_| drop(lab.appctl("version")));
    lab.ofctl(&["add-flow", "br0", "priority=5,actions=drop"]);
    let times = loop_times(&lab);
    let turns = times["turns"].as_u64().unwrap();
    assert!(turns >= cleared["turns"].as_u64().unwrap() + commands, "{times} after {cleared}");
    assert!(part(&times, "commands") > part(&cleared, "commands"), "{times}");
    assert!(part(&times, "openflow") > 0, "{times}");
    // All turns are in the histogram, and all of their time is that of a part.
    assert_eq!(sum(&times, "buckets", "turns"), turns);
    assert_eq!(sum(&times, "parts", "sum_us"), times["sum_us"].as_u64().unwrap());
    let longest = &times["longest"];
    assert!(longest["part_us"].as_u64() <= longest["us"].as_u64(), "{times}");
    assert!(longest["us"].as_u64() <= times["sum_us"].as_u64(), "{times}");

    let text = lab.appctl("sluice/loop-show");
    assert!(text.starts_with("turns: ") && text.contains("longest turn: "), "{text}");
    let status: Value = serde_json::from_str(&lab.appctl("sluice/status")).unwrap();
    assert!(status["main_loop"]["turns"].as_u64().unwrap() > turns, "{status}");
    assert!(status["main_loop"]["longest"]["us"].as_u64() >= longest["us"].as_u64(), "{status}");
    // A counter of OVS has the turns of a second or more.
    assert!(count(&lab, "long_poll_interval") <= turns, "{status}");
}

/// Messages of commands of ovs-ofctl 3.1, as OVS 3.5 counts them.
#[test]
fn messages_of_controllers_are_counted_as_in_ovs() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    let names = ["ofproto_recv_openflow", "rconn_queued", "rconn_sent", "vconn_received", "vconn_sent"];
    let all = || names.map(|name| count(&lab, name));
    let mut last = all();
    for (command, expected) in [
        (&["show", "br0"][..], [2, 2, 2, 4, 4]),
        (&["dump-flows", "br0"], [3, 2, 2, 4, 3]),
        (&["add-flow", "br0", "idle_timeout=1,actions=drop"], [4, 3, 3, 7, 6]),
    ] {
        lab.ofctl(command);
        let more = || {
            let now = all();
            std::array::from_fn::<_, 5, _>(|n| now[n] - last[n])
        };
        wait_for(LIMIT, "the counts", || more() == expected)
            .unwrap_or_else(|e| panic!("{command:?}: {:?}, not {expected:?}: {e}", more()));
        last = all();
    }
    lab.ofctl(&["packet-out", "br0", "in_port=1 packet=ffffffffffff0000000000010800 actions=drop"]);
    wait_for(LIMIT, "the packet-out", || count(&lab, "ofproto_packet_out") == 1).unwrap();
    lab.appctl("time/warp 3000 500");
    wait_for(LIMIT, "the rule's end", || count(&lab, "ofproto_dpif_expired") == 1).unwrap();
    let ports = count(&lab, "ofproto_update_port");
    vsctl(&lab.daemon, "add-port br0 p9 -- set Interface p9 type=dummy");
    vsctl(&lab.daemon, "del-port p9");
    assert!(count(&lab, "ofproto_update_port") >= ports + 2);
    // Counters of a bridge outlive it.
    let before = count(&lab, "rconn_sent");
    vsctl(&lab.daemon, "del-br br0");
    assert_eq!(count(&lab, "rconn_sent"), before);
    assert_eq!(count(&lab, "vconn_open"), 0);
    vsctl(
        &lab.daemon,
        "add-br br9 -- set bridge br9 datapath_type=dummy -- set-controller br9 tcp:127.0.0.1:1",
    );
    wait_for(LIMIT, "an attempt to connect", || count(&lab, "vconn_open") > 0).unwrap();
    assert!(count(&lab, "ofproto_flush") > 0);
}

/// Transactions with the status of rows.
#[test]
fn transactions_are_counted_as_in_ovs() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    let lab = Lab::new();
    let [success, sent] = ["txn_success", "txn_incomplete"].map(|name| count(&lab, name));
    assert!(success > 0 && sent >= success);
    vsctl(&lab.daemon, "add-port br0 p9 -- set Interface p9 type=dummy");
    wait_for(LIMIT, "the status of the port", || count(&lab, "txn_success") > success).unwrap();
    for name in ["txn_error", "txn_not_locked", "txn_try_again", "txn_aborted"] {
        assert_eq!(count(&lab, name), 0, "{name}");
    }
}
