//! `sluice drops` and `sluice tcpdump --dropped`: each classic problem is named by one command.

use super::{FROM_5_TO_7, Lab};
use crate::cli::{program, sluice};
use crate::helpers::vsctl;
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};
use testkit::{require_netns, require_programs};

const TCP: &str =
    "eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=6,tos=0,ttl=64,frag=no),tcp(src=1,dst=80)";

/// Runs `sluice` while packets arrive.
fn while_receiving(lab: &Lab, words: &[&str], packets: &[(&str, &str)]) -> String {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let told = scope.spawn(|| {
            let told = sluice(&lab.daemon, words);
            over.store(true, Ordering::Release);
            told
        });
        while !over.load(Ordering::Acquire) && !told.is_finished() {
            packets.iter().for_each(|(port, packet)| lab.receive(port, packet));
        }
        told.join().unwrap()
    })
}

/// The lines of a screen about a port and reason.
fn lines_of(screen: &str, port: &str, reason: &str) -> String {
    let begins = |line: &&str| line.split_whitespace().take(2).eq([port, reason]);
    let mut lines = screen.lines().skip_while(|line| !begins(line));
    let head = lines.next().unwrap_or_else(|| panic!("no {reason} of {port} in\n{screen}"));
    let rest = lines.take_while(|line| line.starts_with(' '));
    [head].into_iter().chain(rest).map(|line| format!("{line}\n")).collect()
}

fn check(screen: &str, port: &str, reason: &str, expected: &[&str]) {
    let lines = lines_of(screen, port, reason);
    for text in expected {
        assert!(lines.contains(text), "{text} is not in\n{lines}");
    }
}

macro_rules! require {
    () => {
        require_netns!();
        require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", program().as_str());
    };
}

#[test]
fn a_wrong_tag_is_named() {
    require!();
    let lab = Lab::new();
    let tagged = format!("{FROM_5_TO_7},eth_type(0x8100),vlan(vid=30,pcp=0),encap({TCP})");
    let screen = while_receiving(&lab, &["drops", "--once", "-d", "0.5", "p7"], &[("p7", &tagged)]);
    let why = "dropping VLAN 30 tagged packet received on port p7 configured as VLAN 10 access port";
    let rule = "dropped by: bridge br0, table 0: priority 0, actions=NORMAL";
    let expected = ["OVS_DROP_EXPLICIT_WITH_ERROR", why, rule, "sample: 122 bytes: tcp,", "dl_vlan=30"];
    check(&screen, "p7", "vlan_not_allowed", &expected);
    // Other ports are left out, and unknown ones refused.
    lab.ofctl(&["add-flow", "br0", "priority=100,in_port=p1,actions=drop"]);
    lab.receive("p1", &format!("{FROM_5_TO_7},{TCP}"));
    assert!(!sluice(&lab.daemon, &["drops", "-d", "0.1", "p7"]).contains("p1"));
    assert!(sluice(&lab.daemon, &["drops", "-d", "0.1", "br0"]).contains("p1"));
    let output = lab.daemon.tool(&program()).args(["drops", "p9"]).output().unwrap();
    assert!(output.stderr.contains("p9: no such port or bridge"), "{}", output.stderr);
}

#[test]
fn a_shadowed_rule_is_named_beside_the_one_that_hides_it() {
    require!();
    let lab = Lab::new();
    lab.ofctl(&["add-flow", "br0", "priority=200,ip,in_port=p1,actions=drop"]);
    lab.ofctl(&["add-flow", "br0", "priority=100,tcp,in_port=p1,tp_dst=80,actions=output:p2"]);
    lab.ofctl(&["add-flow", "br0", "priority=90,ip,in_port=p1,actions=output:p7"]);
    lab.receive("p1", &format!("{FROM_5_TO_7},{TCP}"));
    let screen = sluice(&lab.daemon, &["drops", "-d", "0.1", "--trace"]);
    let rule = "dropped by: bridge br0, table 0: ip,in_port=p1, priority 200, actions=drop";
    let hidden = "hides: bridge br0, table 0: tcp,in_port=p1,tp_dst=80, priority 100, actions=output:p2";
    check(&screen, "p1", "rules", &["OVS_DROP_EXPLICIT ", rule, hidden, "Datapath actions: drop"]);
    // The values for programs have the same rules.
    let json: Value = serde_json::from_str(&sluice(&lab.daemon, &["drops", "--json", "-d", "0.1"])).unwrap();
    let cause = &json["drops"][0]["causes"][0];
    assert_eq!((&cause["hides"]["table"], &cause["hides"]["actions"]), (&0.into(), &"output:p2".into()));
    assert_eq!(json["drops"][0]["kernel"], "OVS_DROP_EXPLICIT");
}

#[test]
fn an_invalid_connection_is_named() {
    require!();
    let lab = Lab::new();
    lab.ofctl(&["add-flow", "br0", "priority=100,ip,in_port=p1,actions=ct(table=1)"]);
    lab.ofctl(&["add-flow", "br0", "table=1,priority=100,ct_state=+inv+trk,ip,actions=drop"]);
    lab.ofctl(&["add-flow", "br0", "table=1,priority=90,ip,actions=NORMAL"]);
    // No connection begins with that.
    lab.receive("p1", &format!("{FROM_5_TO_7},{TCP},tcp_flags(syn|ack)"));
    let screen = sluice(&lab.daemon, &["drops", "-d", "0.1"]);
    let rule = "dropped by: bridge br0, table 1: ct_state=+inv+trk,ip, priority 100, actions=drop";
    check(
        &screen,
        "p1",
        "rules",
        &[rule, "ct_state(+inv+trk)", "hides: bridge br0, table 1: ip, priority 90"],
    );
}

#[test]
fn tunnels_without_neighbour_and_with_too_small_an_mtu_are_named() {
    require!();
    let lab = Lab::new();
    vsctl(
        &lab.daemon,
        "add-port br0 t1 -- set Interface t1 type=vxlan options:remote_ip=1.1.2.92 options:key=1 -- add-br br1 \
         -- set Bridge br1 datapath_type=dummy fail_mode=standalone -- add-port br1 up -- set Interface up type=dummy",
    );
    lab.appctl("netdev-dummy/ip4addr br1 1.1.2.88/24");
    lab.appctl("ovs/route/add 1.1.2.92/24 br1");
    lab.ofctl(&["add-flow", "br0", "in_port=p1,actions=output:t1"]);
    let small = format!("{FROM_5_TO_7},{TCP}");
    lab.receive("p1", &small);
    let screen = sluice(&lab.daemon, &["drops", "-d", "0.1"]);
    let why = "neighbor cache miss for 1.1.2.92 on bridge br1, sending ARP request";
    check(&screen, "p1", "tunnel_no_neighbour", &[why, "in_port=p1, priority 32768, actions=output:t1"]);
    lab.appctl("tnl/neigh/set br1 1.1.2.92 aa:bb:cc:00:00:01");
    let large = format!("{small} --len 1480");
    let screen = while_receiving(&lab, &["drops", "--once", "-d", "0.5"], &[("p1", &large)]);
    let why = "a frame of 1530 bytes does not fit the MTU of 1500: the headers of a VXLAN tunnel make it too long; the \
               MTU of senders behind the tunnel must be at least 16 bytes smaller";
    check(&screen, "up", "tx_too_big", &["PKT_TOO_BIG", why, "sample: 1530 bytes: udp,", "tp_dst=4789"]);
}

#[test]
fn captures_of_dropped_packets_have_reasons() {
    require!();
    require_programs!("tcpdump");
    let lab = Lab::new();
    lab.ofctl(&["add-flow", "br0", "priority=100,in_port=p1,actions=drop"]);
    let tagged = format!("{FROM_5_TO_7},eth_type(0x8100),vlan(vid=30,pcp=0),encap({TCP})");
    let packets = [("p1", &*format!("{FROM_5_TO_7},{TCP}")), ("p7", &*tagged)];
    let text = while_receiving(&lab, &["tcpdump", "--dropped", "-c", "4"], &packets);
    let wants =
        ["rules (OVS_DROP_EXPLICIT) from p1: ", "vlan_not_allowed (OVS_DROP_EXPLICIT_WITH_ERROR) from p7: "];
    for (line, want) in text.lines().zip(wants.iter().cycle()) {
        assert!(
            text.lines().any(|l| l.starts_with(want)) && line.contains("10.0.0.1.1 > 10.0.0.2.80"),
            "{text}"
        );
    }
    assert_eq!(text.lines().count(), 4, "{text}");
    // A file, of one port's tagged packets.
    let file = lab.daemon.rundir().join("dropped.pcapng");
    let words = ["tcpdump", "--dropped", "p7", "dl_vlan=30", "-c", "2", "-w", file.to_str().unwrap()];
    while_receiving(&lab, &words, &packets);
    let bytes = std::fs::read(&file).unwrap();
    let has = |text: &str| bytes.windows(text.len()).any(|w| w == text.as_bytes());
    assert!(has("vlan_not_allowed (OVS_DROP_EXPLICIT_WITH_ERROR) from p7") && !has("from p1"));
    let read = lab.daemon.tool("tcpdump").args(["-n", "-e", "-r", file.to_str().unwrap()]).run().unwrap();
    assert_eq!(read.stdout.matches("vlan 30").count(), 2, "{}", read.stdout);
}
