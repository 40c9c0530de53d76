//! LACP on single ports: texts, flows and port states are those of OVS 3.5 after the same packets.

use super::Lab;
use crate::helpers::{vsctl, wait_until};
use testkit::{require_netns, require_programs};

/// A message of system 02:00:00:00:00:`system`, in hexadecimal digits. `tag` is a VLAN tag or empty.
pub(super) fn frame(tag: &str, subtype: u8, system: u8, state: u8) -> String {
    let actor = format!("0114{:04x}0200000000{system:02x}000700c80001{state:02x}000000", 100);
    let partner = "0214fffeaa55aa5500010001ffff00013d000000";
    let head = format!("0180c2000002020000000099{tag}8809{subtype:02x}01");
    format!("{head}{actor}{partner}0310{}", "0".repeat(2 * 66))
}

/// Output of `lacp/show` for both ports.
const SHOWN: &str = include_str!("lacp_show.txt");
const COUNTED: &str = "---- p7 statistics ----

member: p7:
  TX PDUs: 1
  RX PDUs: 2
  RX Bad PDUs: 0
  RX Marker Request PDUs: 1
  Link Expired: 0
  Link Defaulted: 0
  Carrier Status Changed: 0
";
const FLOWS: [&str; 3] = [
    "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x8809), packets:0, bytes:0, used:never, \
     actions:userspace(pid=0,slow_path(lacp))",
    "recirc_id(0),in_port(7),packet_type(ns=0,id=0),eth_type(0x8809), packets:0, bytes:0, used:never, \
     actions:userspace(pid=0,slow_path(lacp))",
    "encap(eth_type(0x8809)), packets:0, bytes:0, used:never, actions:userspace(pid=0,slow_path(lacp))",
];
const TRACED: &str = "\
Flow: in_port=1,vlan_tci=0x0000,dl_src=02:00:00:00:00:99,dl_dst=01:80:c2:00:00:02,dl_type=0x8809

bridge(\"br0\")
-------------
 0. priority 0

Final flow: unchanged
Megaflow: recirc_id=0,eth,in_port=1,dl_type=0x8809
Datapath actions: drop
This flow is handled by the userspace slow path because it:
  - Consists of LACP packets.
";

#[test]
fn single_ports_negotiate() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    let is_live = |port: &str| {
        let described = lab.ofctl(&["-OOpenFlow14", "dump-ports-desc", "br0"]);
        let mut lines = described.lines().skip_while(|line| !line.contains(&format!("({port})")));
        lines.find(|line| line.trim().starts_with("state:")).is_some_and(|line| line.contains("LIVE"))
    };
    assert!(is_live("p1"));
    assert_eq!(lab.appctl("lacp/show"), "");
    vsctl(&lab.daemon, "set Port p1 lacp=active other_config:lacp-time=fast -- set Port p7 lacp=passive");
    lab.appctl("time/warp 100 50");
    wait_until(&lab.daemon, "Interface p1 lacp_current=true");
    wait_until(&lab.daemon, "Interface p7 lacp_current=false");
    assert!(!is_live("p1") && !is_live("p7"));
    lab.receive("p1", &frame("", 1, 0x0a, 0x3d));
    lab.receive("p7", &frame("", 2, 0x0b, 0x3d));
    lab.receive("p7", &frame("81000005", 1, 0x0b, 0x3f));
    let flows = lab.appctl("dpctl/dump-flows");
    assert!(FLOWS.iter().all(|flow| flows.contains(flow)), "{flows}");
    lab.appctl("time/warp 100 50");
    assert_eq!(lab.appctl("lacp/show p1") + &lab.appctl("lacp/show p7"), SHOWN);
    assert_eq!(lab.appctl("lacp/show-stats p7"), COUNTED);
    wait_until(&lab.daemon, "Interface p7 lacp_current=true");
    assert!(is_live("p1") && is_live("p7"));
    let lacp = "dl_type=0x8809,dl_src=02:00:00:00:00:99,dl_dst=01:80:c2:00:00:02";
    assert_eq!(lab.appctl(&format!("ofproto/trace br0 in_port=1,{lacp}")), TRACED);
    let other = lab.appctl(&format!("ofproto/trace br0 in_port=2,{lacp}"));
    assert!(other.contains(" -> packet has reserved destination MAC, dropping"), "{other}");
    // Three missing messages, and then three seconds more.
    lab.appctl("time/warp 3200 100");
    assert!(lab.appctl("lacp/show p1").contains("\nmember: p1: expired attached\n") && !is_live("p1"));
    lab.appctl("time/warp 3200 100");
    assert!(lab.appctl("lacp/show p1").contains("\nmember: p1: defaulted detached\n"));
    wait_until(&lab.daemon, "Interface p1 lacp_current=false");
    wait_until(&lab.daemon, "Interface p7 lacp_current=true");
    // A bad id ends LACP of the port, and stands in its row.
    vsctl(&lab.daemon, "set Port p7 other_config:lacp-system-id=nothing");
    wait_until(&lab.daemon, "Interface p7 lacp_current=[]");
    let notice = vsctl(&lab.daemon, "get Port p7 status:notice");
    assert!(notice.contains("lacp-system-id=nothing: ignored: the port has no LACP"), "{notice}");
    assert!(is_live("p7"));
    vsctl(&lab.daemon, "set Port p1 lacp=off -- del-port p7");
    assert_eq!(lab.appctl("lacp/show"), "");
    assert!(is_live("p1"));
}
