//! Limits of tables, room of tables and forwarded requests over real connections. Expectations are the answers of OVS 3.1.

use super::*;
use testkit::{require_netns, require_programs};

/// The error of `ovs-ofctl add-flow`, if any.
fn refused(lab: &Lab, version: &str, rule: &str) -> Option<String> {
    let out = lab.daemon.tool("ovs-ofctl").args(["-O", version, "add-flow", "br0", rule]).output().unwrap();
    let error =
        out.stderr.lines().find_map(|l| Some(l.split_once("OFPT_ERROR")?.1.rsplit_once(' ')?.1.to_string()));
    (!out.status.success() || error.is_some()).then(|| error.unwrap_or(out.stderr))
}

fn rules(lab: &Lab) -> Vec<String> {
    let dump = lab.daemon.ovs("ovs-ofctl", &["--no-stats", "--sort", "dump-flows", "br0"]).unwrap().stdout;
    let mut lines: Vec<String> = dump.lines().map(|l| l.trim().to_string()).collect();
    lines.sort();
    lines
}

#[test]
fn a_full_table_refuses_or_evicts_by_groups() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new(1);
    lab.vsctl("-- --id=@t create Flow_Table flow_limit=2 name=main -- set bridge br0 flow_tables:0=@t");
    for port in 1..=2 {
        assert_eq!(refused(&lab, "OpenFlow10", &format!("in_port={port},actions=drop")), None);
    }
    for version in ["OpenFlow10", "OpenFlow14"] {
        let full = Some("OFPFMFC_TABLE_FULL".to_string());
        assert_eq!(refused(&lab, version, "in_port=3,actions=drop"), full, "{version}");
    }
    // A change of a rule needs no room.
    assert_eq!(refused(&lab, "OpenFlow10", "in_port=2,actions=1"), None);
    lab.vsctl("set Flow_Table main overflow_policy=evict groups=\"NXM_OF_IN_PORT[]\"");
    lab.daemon.ovs("ovs-ofctl", &["del-flows", "br0"]).unwrap();
    // The largest group loses the rule that would expire first.
    for rule in [
        "hard_timeout=100,in_port=1,dl_type=0x1111,actions=drop",
        "hard_timeout=200,in_port=1,dl_type=0x2222,actions=drop",
        "hard_timeout=50,in_port=2,actions=drop",
    ] {
        assert_eq!(refused(&lab, "OpenFlow10", rule), None, "{rule}");
    }
    let left = [
        "hard_timeout=200, in_port=1,dl_type=0x2222 actions=drop",
        "hard_timeout=50, in_port=2 actions=drop",
    ];
    assert_eq!(rules(&lab), left);
    // Rules that do not expire are not evicted.
    lab.daemon.ovs("ovs-ofctl", &["del-flows", "br0"]).unwrap();
    for (port, error) in [(1, None), (2, None), (3, Some("OFPFMFC_TABLE_FULL".to_string()))] {
        assert_eq!(refused(&lab, "OpenFlow10", &format!("in_port={port},actions=drop")), error);
    }
}

/// OpenFlow 1.4: asks for requests of groups and meters, and for events of a table's room.
const SET_ASYNC: &str = "051c001800000002000b0008000000030009000800000018";

#[test]
fn room_and_requests_are_reported_to_who_asks() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new(1);
    lab.vsctl("-- --id=@t create Flow_Table flow_limit=10 -- set bridge br0 flow_tables:0=@t");
    let control = lab.daemon.rundir().join("monitor.ctl");
    let control = control.to_str().unwrap();
    let tool = lab.daemon.tool("ovs-ofctl").args(["-O", "OpenFlow14", "monitor", "br0"]);
    let monitor = tool.arg(format!("--unixctl={control}")).spawn().unwrap();
    wait_for(LIMIT, "the monitor", || std::path::Path::new(control).exists()).unwrap();
    let ask = |words: &[&str]| lab.daemon.ovs("ovs-appctl", &[&["-t", control], words].concat()).unwrap();
    let of14 =
        |words: &[&str]| lab.daemon.ovs("ovs-ofctl", &[&["-O", "OpenFlow14"], words].concat()).unwrap();
    // A service connection hears of nothing before it asks.
    of14(&["add-group", "br0", "group_id=4,type=all"]);
    ask(&["ofctl/barrier"]);
    ask(&["ofctl/send", SET_ASYNC]);
    of14(&["mod-table", "br0", "0", "vacancy:20,80"]);
    for n in 1..10 {
        of14(&["add-flow", "br0", &format!("dl_type=0x100{n},actions=drop")]);
    }
    of14(&["del-flows", "br0"]);
    of14(&["add-group", "br0", "group_id=5,type=all,bucket=actions=1"]);
    of14(&["mod-group", "br0", "group_id=5,type=select,bucket=actions=2"]);
    of14(&["add-meter", "br0", "meter=1,kbps,band=type=drop,rate=1000"]);
    let again =
        lab.daemon.tool("ovs-ofctl").args(["-O", "OpenFlow14", "add-group", "br0", "group_id=5,type=all"]);
    assert!(again.output().unwrap().stderr.contains("OFPGMFC_GROUP_EXISTS"));
    of14(&["del-groups", "br0"]);
    ask(&["ofctl/barrier"]);
    let barriers = || monitor.stderr().matches("OFPT_BARRIER_REPLY").count();
    wait_for(LIMIT, "both barriers", || barriers() == 2).unwrap();
    let said = monitor.stderr();
    let events = said.lines().filter(|l| {
        let words = ["reason=", "vacancy=", " ADD", " MOD", " DEL", "type=drop"];
        words.iter().any(|w| l.contains(w))
    });
    let expected = "\
OFPT_TABLE_STATUS (OF1.4) (xid=0x0): reason=VACANCY_DOWN
   vacancy=on vacancy_down=20% vacancy_up=80% vacancy=10%
OFPT_TABLE_STATUS (OF1.4) (xid=0x0): reason=VACANCY_UP
   vacancy=on vacancy_down=20% vacancy_up=80% vacancy=100%
OFPT_REQUESTFORWARD (OF1.4) (xid=0x0): reason=group_mod
 ADD group_id=5,type=all,bucket=actions=output:1
OFPT_REQUESTFORWARD (OF1.4) (xid=0x0): reason=group_mod
 MOD group_id=5,type=select,bucket=actions=output:2
OFPT_REQUESTFORWARD (OF1.4) (xid=0x0): reason=meter_mod ADD meter=1 kbps bands=
type=drop rate=1000
OFPT_REQUESTFORWARD (OF1.4) (xid=0x0): reason=group_mod
 DEL group_id=4294967292,type=all";
    assert_eq!(events.collect::<Vec<_>>().join("\n"), expected, "{said}");
    ask(&["exit"]);
}
