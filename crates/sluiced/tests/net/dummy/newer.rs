//! Commands as in OVS 3.6 to 4.0, where those differ from 3.5.

use super::texts::session;
use super::{FROM_5_TO_7, Lab};
use crate::cli::sluice;
use crate::helpers::{appctl_output, vsctl};
use serde_json::json;
use testkit::{require_netns, require_programs};

#[test]
fn addresses_of_several_bridges_are_shown_together() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    lab.receive("p1", &format!("in_port(1),{FROM_5_TO_7},eth_type(0x1234)"));
    let head = " port  VLAN  MAC                Age\n";
    let line = "    1     0  50:54:00:00:00:05    0\n";
    // A single bridge has no column for its name, as in 3.5.
    for command in ["fdb/show", "fdb/show br0"] {
        assert_eq!(lab.appctl(command), format!("{head}{line}"));
    }
    vsctl(&lab.daemon, "add-br bridge7 -- set Bridge bridge7 datapath_type=dummy");
    lab.appctl("fdb/add br0 p7 10 50:54:00:00:00:06");
    let second = "    3    10  50:54:00:00:00:06  static\n";
    let table = format!("Bridge  {head}br0     {line}        {second}bridge7\n");
    assert_eq!(lab.appctl("fdb/show"), table);
    assert_eq!(lab.appctl("fdb/show bridge7 br0"), table);
    assert_eq!(lab.appctl("fdb/show bridge7"), head);
    let unknown = appctl_output(&lab.daemon, "fdb/show br0 nope");
    assert!(unknown.stderr.starts_with("no such bridge"), "{}", unknown.stderr);
    let entries = json!([
        { "port": 1, "vlan": 0, "mac": "50:54:00:00:00:05", "age": 0 },
        { "port": 3, "vlan": 10, "mac": "50:54:00:00:00:06", "age": "static" },
    ]);
    let as_json = |args: &[&str]| {
        session(&lab, &[("set-options", &["--format", "json"]), ("fdb/show", args)]).pop().unwrap().unwrap()
    };
    assert_eq!(as_json(&["br0"]), json!({ "br0": entries }));
    assert_eq!(as_json(&[]), json!({ "br0": entries, "bridge7": [] }));
}

/// Registers of OVS 3.7, in matches, actions, recirculation, dumps and traces. Debian's tools do not know them.
#[test]
fn registers_beyond_the_sixteenth_are_matched_and_set() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    let lab = Lab::new();
    let rules = [
        "priority=5,in_port=1,udp,actions=load:0x7->NXOXM_ET_REG16[0..15],set_field:0x200000002->xreg15,ct(table=1)",
        "table=1,reg16=0x7,xreg15=0x200000002,actions=move:NXOXM_ET_REG31[]->NXOXM_ET_REG17[],resubmit(,2)",
        "table=2,xxreg4=0x70000000200000000/0xffffffff00000000ffffffffffffffff,actions=drop",
        "table=2,priority=9,reg17=0x2,actions=output:NXOXM_ET_REG30[]",
    ];
    // OpenFlow 1.5 has registers in pairs.
    for version in ["OpenFlow10", "OpenFlow13", "OpenFlow15"] {
        let ofctl = |words: &[&str]| sluice(&lab.daemon, &[&["ofctl", "-O", version], words].concat());
        ofctl(&["del-flows", "br0"]);
        rules.iter().for_each(|rule| drop(ofctl(&["add-flow", "br0", rule])));
        let dump = ofctl(&["dump-flows", "--no-stats", "br0"]);
        for part in [
            "reg16=0x7,reg30=0x2,reg31=0x2 actions=move:NXOXM_ET_REG31[]",
            "reg17=0x2 actions=output:NXOXM_ET_REG30[]",
        ] {
            assert!(dump.contains(part), "{version}: {part} in\n{dump}");
        }
        let trace = lab.appctl("ofproto/trace br0 in_port=1,udp");
        let last = trace.lines().last().unwrap();
        assert_eq!(last, "Datapath actions: 2", "{trace}");
        let other = lab.appctl("ofproto/trace br0 in_port=2,udp,reg16=0x7");
        assert!(other.contains("Flow: udp,reg16=0x7,in_port=2"), "{other}");
    }
}
