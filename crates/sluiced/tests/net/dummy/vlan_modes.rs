//! `Port.vlan_mode`, `cvlans`, `qinq-ethtype`, `priority-tags` and `vlan-limit`: where `NORMAL` floods frames with tags, and
//! with which. `vlan_modes.txt` has the answers of OVS 3.5: limit, input port, frame, then each output with its tags.

use super::Lab;
use crate::helpers::vsctl;
use testkit::{require_netns, require_programs};

const ETH: &str = "505400000009505400000007";
const IP: &str = "080045000014000040004000f97d0a0000010a000002";

/// Frames by name, with their tags.
const FRAMES: [(&str, &str); 11] = [
    ("F0", ""),
    ("P0", "81000000"),
    ("P5", "8100a000"),
    ("F1", "8100000a"),
    ("F1p", "8100600a"),
    ("F20", "81000014"),
    ("F2", "8100000a81000014"),
    ("F2b", "81000014810a000a"),
    ("Q2", "88a8600a81004014"),
    ("F3", "8100000a810000148100001e"),
    ("CUT", "8100000a8100"),
];

/// The settings of each port.
const PORTS: [&str; 12] = [
    "",
    "tag=10",
    "vlan_mode=native-tagged tag=10",
    "vlan_mode=native-untagged tag=10 trunks=10,20",
    "trunks=10,20",
    "vlan_mode=dot1q-tunnel tag=10",
    "vlan_mode=dot1q-tunnel tag=10 cvlans=10,20",
    "vlan_mode=dot1q-tunnel tag=20 other_config:qinq-ethtype=802.1q",
    "vlan_mode=dot1q-tunnel tag=10 other_config:priority-tags=always cvlans=0,20",
    "tag=20 other_config:priority-tags=if-nonzero",
    "trunks=0,10 other_config:priority-tags=always",
    "vlan_mode=native-untagged tag=20 other_config:priority-tags=if-nonzero",
];

/// The tags at the begin of hexadecimal digits.
fn tags(hex: &str) -> Vec<String> {
    let mut tags = Vec::new();
    let mut rest = hex;
    while let Some((tag, after)) = rest.split_at_checked(8)
        && (tag.starts_with("8100") || tag.starts_with("88a8"))
    {
        let tci = u16::from_str_radix(&tag[4..], 16).unwrap();
        tags.push(format!("{}:{}/{}", &tag[..4], tci & 0xfff, tci >> 13));
        rest = after;
    }
    tags
}

/// Each output of datapath actions with the tags of the frame there, by number.
fn outputs(actions: &str, mut tags: Vec<String>) -> Vec<String> {
    let mut outputs = Vec::new();
    let unparted = actions.replace(",vid", ";vid").replace(",pcp", ";pcp");
    for action in unparted.split(',') {
        if action == "pop_vlan" {
            tags.remove(0);
        } else if let Some(tag) = action.strip_prefix("push_vlan(") {
            let value = |key: &str| {
                let after = tag.split(key).nth(1)?;
                Some(after.split([';', ')']).next().unwrap_or_default().to_string())
            };
            let tpid = value("tpid=0x").unwrap_or_else(|| "8100".to_string());
            tags.insert(0, format!("{tpid}:{}/{}", value("vid=").unwrap(), value("pcp=").unwrap()));
        } else if action != "drop" {
            outputs.push((action.parse::<u32>().unwrap(), tags.join("+")));
        }
    }
    outputs.sort();
    outputs.into_iter().map(|(port, tags)| format!(" {port}={tags}")).collect()
}

#[test]
fn tags_of_each_mode_are_those_of_the_stock_switch() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::empty();
    let mut set_up = "add-br br0 -- set Bridge br0 datapath_type=dummy fail_mode=secure".to_string();
    for (n, settings) in (1..).zip(PORTS) {
        set_up += &format!(" -- add-port br0 p{n} -- set Interface p{n} type=dummy ofport_request={n}");
        if !settings.is_empty() {
            set_up += &format!(" -- set Port p{n} {settings}");
        }
    }
    vsctl(&lab.daemon, &set_up);
    lab.ofctl(&["add-flow", "br0", "actions=normal"]);
    let mut recorded = include_str!("vlan_modes.txt").lines();
    for limit in [1, 2] {
        vsctl(&lab.daemon, &format!("set Open_vSwitch . other_config:vlan-limit={limit}"));
        for port in 1..=PORTS.len() {
            for (name, frame) in FRAMES {
                let payload = if name == "CUT" { "" } else { IP };
                let trace = lab.appctl(&format!("ofproto/trace br0 in_port={port} {ETH}{frame}{payload}"));
                let actions = trace.lines().find_map(|line| line.strip_prefix("Datapath actions: "));
                let outputs = outputs(actions.unwrap_or_else(|| panic!("{trace}")), tags(frame)).concat();
                assert_eq!(format!("{limit} p{port} {name}{outputs}"), recorded.next().unwrap(), "{trace}");
            }
        }
    }
    assert_eq!(recorded.next(), None);
}

/// As in OVS 3.5, in such VLANs static addresses do not count either.
#[test]
fn vlans_of_flooding_learn_nothing() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    let frame = |vlan: u16, host: u8| {
        let eth = format!("eth(src=50:54:00:00:00:{host:02x},dst=50:54:00:00:00:09)");
        let tag = format!("eth_type(0x8100),vlan(vid={vlan},pcp=0),encap(eth_type(0x1234))");
        lab.receive("p1", &format!("in_port(1),{eth},{tag}"));
    };
    frame(10, 1);
    frame(20, 2);
    lab.appctl("fdb/add br0 p1 10 50:54:00:00:00:03");
    vsctl(&lab.daemon, "set Bridge br0 flood_vlans=10");
    // A changed set flushes what was learned.
    frame(10, 4);
    frame(20, 5);
    let table = " port  VLAN  MAC                Age\n    1    10  50:54:00:00:00:03  static\n    1    20  50:54:00:00:00:05    0\n";
    assert_eq!(lab.appctl("fdb/show br0"), table);
    let trace = lab
        .appctl("ofproto/trace br0 in_port=2,dl_vlan=10,dl_src=50:54:00:00:00:08,dl_dst=50:54:00:00:00:03");
    assert!(trace.contains(" -> no learned MAC for destination, flooding\n"), "{trace}");
    vsctl(&lab.daemon, "clear Bridge br0 flood_vlans");
    let trace = lab
        .appctl("ofproto/trace br0 in_port=2,dl_vlan=10,dl_src=50:54:00:00:00:08,dl_dst=50:54:00:00:00:03");
    assert!(trace.contains(" -> forwarding to learned port\n"), "{trace}");
}
