//! `other_config:vlan-limit`. The recorded traces and flows are those of OVS 3.5.

use super::Lab;
use crate::helpers::{LIMIT, vsctl};
use testkit::{require_netns, require_programs, wait_for};

const ETH: &str = "505400000009505400000007";
const IP: &str = "080045000014000040004000f97d0a0000010a000002";

/// Frames by name: their number of tags; Q2 has a service tag and priorities, CUT ends within its second tag.
const FRAMES: [(&str, &str, &str); 6] = [
    ("F0", "", IP),
    ("F1", "8100000a", IP),
    ("F2", "8100000a81000014", IP),
    ("F3", "8100000a810000148100001e", IP),
    ("Q2", "88a8600a81004014", IP),
    ("CUT", "8100000a8100", ""),
];

const RULES: [&str; 10] = [
    "table=0,priority=1,in_port=1,dl_vlan=10,actions=pop_vlan,resubmit(,1)",
    "table=0,priority=0,in_port=1,actions=resubmit(,1)",
    "table=0,in_port=2,actions=push_vlan:0x88a8,set_field:0x1007->vlan_vid,resubmit(,1)",
    "table=0,in_port=3,dl_vlan=10,actions=mod_vlan_vid:11,strip_vlan,mod_vlan_vid:21,3,strip_vlan,resubmit(,1)",
    "table=0,in_port=3,vlan_tci=0,actions=push_vlan:0x8100,push_vlan:0x8100,set_field:4097->vlan_vid,2",
    "table=0,priority=0,actions=normal",
    "table=1,dl_vlan=20,actions=2",
    "table=1,dl_vlan=7,actions=3",
    "table=1,ip,vlan_tci=0x0000/0x1fff,actions=4",
    "table=1,priority=0,dl_type=0x8100,actions=5",
];

/// Starts a switch with that limit. Port 4 is an access port, port 5 a trunk.
fn lab(limit: &str) -> Lab {
    let lab = Lab::empty();
    if !limit.is_empty() {
        vsctl(&lab.daemon, &format!("set Open_vSwitch . other_config:vlan-limit={limit}"));
    }
    let port = |n| format!(" -- add-port br0 p{n} -- set Interface p{n} type=dummy ofport_request={n}");
    let ports: String = (1..=5).map(port).collect();
    let bridge = "add-br br0 -- set Bridge br0 datapath_type=dummy fail_mode=secure";
    vsctl(&lab.daemon, &format!("{bridge}{ports} -- set Port p4 tag=10 -- set Port p5 trunks=10,20"));
    for rule in RULES {
        lab.ofctl(&["-OOpenFlow13", "add-flow", "br0", rule]);
    }
    lab
}

/// The flows of the datapath without counters, sorted.
fn flows(lab: &Lab) -> Vec<String> {
    let dump = lab.appctl("dpctl/dump-flows");
    let shown = |line: &str| {
        let (key, rest) = line.split_once(", packets:")?;
        Some(format!("{key} actions:{}", rest.split_once("actions:")?.1))
    };
    let mut all: Vec<String> = dump.lines().filter_map(shown).collect();
    all.sort();
    all
}

/// Traces of frames with tags on each port, then the flows of all frames.
fn answers(lab: &Lab) -> String {
    let mut out = String::new();
    for port in 1..=5 {
        for (name, tags, payload) in &FRAMES[2..] {
            out += &format!("--- p{port} {name}\n");
            let trace = lab.appctl(&format!("ofproto/trace br0 in_port={port} {ETH}{tags}{payload}"));
            let is_shown = |l: &&str| ["Flow", "Final", "Mega", "Datapath"].iter().any(|s| l.starts_with(s));
            trace.lines().filter(is_shown).for_each(|line| out += &format!("{line}\n"));
        }
    }
    lab.appctl("revalidator/purge");
    for (name, tags, payload) in FRAMES {
        (1..=5).for_each(|port| lab.receive(&format!("p{port}"), &format!("{ETH}{tags}{payload}")));
        out += &format!("--- dump {name}\n");
        flows(lab).iter().for_each(|flow| out += &format!("{flow}\n"));
        lab.appctl("revalidator/purge");
    }
    out
}

/// `NORMAL` matches the inner VLAN, which keeps access ports out. OVS lets the flow also forward other inner VLANs.
fn without_inner_match(text: &str) -> String {
    let is_flood = |line: &str| line.contains("in_port=5") || line.contains("in_port(5)");
    let inner = |line: &str| {
        let line = line.replace("dl_vlan=10,dl_vlan1=20,", "dl_vlan=10,");
        let line = line.replace("dl_vlan_pcp=0,dl_vlan1=20,", "dl_vlan_pcp=0,");
        let line = line.replace("dl_vlan_pcp=3,dl_vlan1=20,", "dl_vlan_pcp=3,");
        line.replace(",vlan(vid=20),encap(", ",encap(").replace(",vlan(vid=20,pcp=2/0x0),encap(", ",encap(")
    };
    let changed =
        |line: &str| if is_flood(line) && !line.starts_with("F") { inner(line) } else { line.to_string() };
    text.lines().map(|line| changed(line) + "\n").collect()
}

fn check(limit: &str, recorded: &str, headers: &str) {
    let lab = lab(limit);
    let found = without_inner_match(&answers(&lab));
    // OVS shows that a cut tag is one within the limit.
    let recorded = recorded.replace("(eth_type(0x8100),encap())", "(eth_type(0x8100))");
    for (n, (found, expected)) in found.lines().zip(recorded.lines()).enumerate() {
        assert_eq!(found, expected, "limit {limit:?}, line {}", n + 1);
    }
    assert_eq!(found.lines().count(), recorded.lines().count(), "limit {limit:?}");
    let features = lab.appctl("dpif/show-dp-features br0");
    assert!(features.contains(&format!("Max VLAN headers: {headers}\n")), "{features}");
}

#[test]
fn rules_see_as_many_tags_as_the_limit_says() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    for limit in ["", "1"] {
        check(limit, include_str!("vlan_limit_1.txt"), "1");
    }
    for limit in ["0", "2", "5"] {
        check(limit, include_str!("vlan_limit_2.txt"), "2");
    }
}

/// Packets and flows follow a change; OVS keeps flows that no packet matches any more until they are idle.
#[test]
fn a_limit_changes_while_the_switch_runs() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = lab("");
    let (_, tags, payload) = FRAMES[2];
    let frame = format!("{ETH}{tags}{payload}");
    let start = "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x8100),vlan(vid=10,pcp=0),encap(eth_type(0x8100)";
    let one = format!("{start}) actions:pop_vlan,5");
    let ip = ",vlan(vid=20,pcp=0),encap(eth_type(0x0800),ipv4(frag=no)))";
    let two = format!("{start}{ip} actions:pop_vlan,2");
    for (limit, flow) in [("1", &one), ("2", &two), ("1", &one), ("0", &two)] {
        vsctl(&lab.daemon, &format!("set Open_vSwitch . other_config:vlan-limit={limit}"));
        lab.receive("p1", &frame);
        wait_for(LIMIT, &format!("limit {limit}: only {flow}"), || flows(&lab) == [flow.clone()]).unwrap();
    }
    // A datapath flow is read with the limit, too.
    let flow = "in_port(1),eth(),eth_type(0x8100),vlan(vid=10,pcp=0),encap(eth_type(0x8100),vlan(vid=20,pcp=0),encap(eth_type(0x0800),ipv4()))";
    for (limit, actions) in [("2", "pop_vlan,2"), ("1", "pop_vlan,5")] {
        vsctl(&lab.daemon, &format!("set Open_vSwitch . other_config:vlan-limit={limit}"));
        let trace = lab.appctl(&format!("ofproto/trace {flow}"));
        assert!(trace.ends_with(&format!("Datapath actions: {actions}\n")), "{trace}");
    }
}
