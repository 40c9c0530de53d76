//! `sluice save` and `sluice restore`, with Sluice and with Debian's switch.

use crate::cli::{program, sluice};
use crate::ct_beside::Side;
use testkit::{Daemon, require_netns, require_programs};

const STATE: [[&str; 2]; 8] = [
    ["add-tlv-map", "{class=0xffff,type=1,len=8}->tun_metadata1"],
    ["add-meter", "meter=3,pktps,burst,bands=type=drop,rate=1000,burst_size=7"],
    ["add-group", "group_id=9,type=all,bucket=bucket_id:0,actions=output:1"],
    [
        "add-group",
        "group_id=7,type=select,selection_method=dp_hash,bucket=bucket_id:4,weight:3,actions=group:9",
    ],
    [
        "add-flow",
        "cookie=5,table=3,priority=7,importance=9,idle_timeout=600,send_flow_rem,arp,tun_metadata1=5,\
         actions=meter:3,group:7",
    ],
    [
        "add-flow",
        "priority=8,check_overlap,ip,actions=mod_nw_src:1.2.3.4,mod_vlan_vid:5,load:7->NXM_NX_REG0[],resubmit(,3)",
    ],
    [
        "add-flow",
        "priority=9,in_port=p1,tcp,tp_dst=80,actions=learn(table=1,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],\
         output:NXM_OF_IN_PORT[]),ct(commit,zone=3,nat(src=10.0.0.1)),p2",
    ],
    ["add-flow", "priority=6,actions=drop"],
];

/// As OVS 3.1 has them; OpenFlow 1.5 has other forms of some actions.
const SAVED: &str = "sluice-save 1
bridge br0
tlv-map {class=0xffff,type=0x1,len=8}->tun_metadata1
meter meter=3,pktps,burst,bands=type=drop,rate=1000,burst_size=7
group group_id=7,type=select,selection_method=dp_hash,bucket=bucket_id:4,weight:3,actions=group:9
group group_id=9,type=all,bucket=bucket_id:0,actions=output:1
flow cookie=0x5, table=3, idle_timeout=600, send_flow_rem importance=9, priority=7,arp,tun_metadata1=0x5 actions=meter:3,group:7
flow priority=6 actions=drop
flow priority=8,ip actions=set_field:1.2.3.4->ip_src,push_vlan:0x8100,set_field:4101->vlan_vid,set_field:0x7->reg0,resubmit(,3)
flow priority=9,tcp,in_port=1,tp_dst=80 actions=learn(table=1,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[]),ct(commit,zone=3,nat(src=10.0.0.1)),output:2
";

/// Other state, in whose place the saved one comes.
const OTHER: [[&str; 2]; 8] = [
    ["add-tlv-map", "{class=0xfffe,type=1,len=4}->tun_metadata1,{class=0xfffe,type=2,len=4}->tun_metadata2"],
    ["add-meter", "meter=3,kbps,bands=type=drop,rate=1"],
    ["add-meter", "meter=4,kbps,bands=type=drop,rate=1"],
    ["add-group", "group_id=9,type=all,bucket=bucket_id:0,actions=output:5"],
    ["add-group", "group_id=10,type=all,bucket=bucket_id:0,actions=output:5"],
    ["add-flow", "priority=8,ip,actions=drop"],
    ["add-flow", "priority=88,ip,actions=group:10"],
    ["add-flow", "priority=89,ip,actions=meter:4"],
];

fn set(daemon: &Daemon, state: &[[&str; 2]]) {
    for [verb, text] in state {
        sluice(daemon, &["ofctl", "-OOpenFlow15", verb, "br0", text]);
    }
}

/// The file, its rules in order: switches report them in any.
fn saved(daemon: &Daemon) -> String {
    let text = sluice(daemon, &["save"]);
    let mut lines: Vec<&str> = text.lines().collect();
    let rules = lines.iter().position(|line| line.starts_with("flow ")).unwrap_or(lines.len());
    lines[rules..].sort_unstable();
    lines.join("\n") + "\n"
}

fn restore(daemon: &Daemon, text: &str) -> (i32, String, String) {
    let file = daemon.rundir().join("saved");
    std::fs::write(&file, text).unwrap();
    let output = daemon.tool(&program()).args(["restore", file.to_str().unwrap()]).output().unwrap();
    let errors = output.stderr.replace(file.to_str().unwrap(), "FILE").replace("sluice restore: ", "");
    (output.status.code().unwrap(), output.stdout, errors)
}

#[test]
fn state_is_saved_and_restored() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool");
    for Side { daemon, .. } in &Side::both() {
        set(daemon, &STATE);
        assert_eq!(saved(daemon), SAVED);
        let unchanged = (0, "br0: 0 changes, 0 left out\n".to_string(), String::new());
        assert_eq!(restore(daemon, SAVED), unchanged);
        for verb in ["del-flows", "del-groups", "del-meters", "del-tlv-map"] {
            sluice(daemon, &["ofctl", "-OOpenFlow15", verb, "br0"]);
        }
        set(daemon, &OTHER);
        let (code, _, errors) = restore(daemon, SAVED);
        assert_eq!((code, errors.as_str()), (0, ""));
        assert_eq!(saved(daemon), SAVED);
        assert_eq!(restore(daemon, SAVED), unchanged);
    }
}

#[test]
fn refused_parts_are_named_and_the_rest_is_restored() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool");
    // A group that refers to a later one is none of them.
    const TEXT: &str = "sluice-save 1
bridge br0
group group_id=50,type=all,bucket=bucket_id:0,actions=group:51
group group_id=51,type=all,bucket=bucket_id:0,actions=output:1
meter meter=0,kbps,bands=type=drop,rate=1
flow priority=99 actions=group:77
flow priority=98 actions=meter:78
flow priority=97 actions=bogus
flow priority=96 actions=group:50
";
    const KEPT: &str = "sluice-save 1
bridge br0
group group_id=50,type=all,bucket=bucket_id:0,actions=group:51
group group_id=51,type=all,bucket=bucket_id:0,actions=output:1
flow priority=96 actions=group:50
";
    const REFUSED: &str = "FILE:5: br0: meter=0,kbps,bands=type=drop,rate=1: OFPMMFC_INVALID_METER
FILE:6: br0: priority=99 actions=group:77: OFPBAC_BAD_OUT_GROUP
FILE:7: br0: priority=98 actions=meter:78: OFPMMFC_INVALID_METER
FILE:8: br0: priority=97 actions=bogus: unknown action bogus
";
    for Side { daemon, .. } in &Side::both() {
        let first = restore(daemon, TEXT);
        assert_eq!(first, (1, "br0: 3 changes, 4 left out\n".to_string(), REFUSED.to_string()));
        let again = restore(daemon, TEXT);
        assert_eq!(again, (1, "br0: 0 changes, 4 left out\n".to_string(), REFUSED.to_string()));
        assert_eq!(saved(daemon), KEPT);
        // Rules go with a group that the file lacks, and one that names it is left out, though it was there.
        let without = TEXT.replace("group group_id=50,", "# ");
        let (code, _, errors) = restore(daemon, &without);
        let line = "FILE:9: br0: priority=96 actions=group:50: the file lacks its group\n";
        assert!(code == 1 && errors.contains(line), "{errors}");
        assert!(!saved(daemon).contains("group:50"), "{}", saved(daemon));
        // More refused ones than a transaction is tried without.
        let bad: String = (0..300).map(|n| format!("flow priority={n},ip actions=group:77\n")).collect();
        let (code, text, errors) = restore(daemon, &format!("{KEPT}{bad}flow priority=1000 actions=drop\n"));
        assert_eq!((code, errors.lines().count()), (1, 300), "{errors}");
        assert!(
            text.ends_with(" 300 left out\n") && errors.starts_with("FILE:6: br0: priority=0,ip "),
            "{errors}"
        );
        assert_eq!(saved(daemon), KEPT.replace("flow ", "flow priority=1000 actions=drop\nflow "));
    }
    let Side { daemon, .. } = &Side::new(false);
    for (words, error) in [
        (&["restore", "/nonexistent"][..], "sluice restore: /nonexistent: No such file or directory\n"),
        (&["save", "br9"], "sluice save: br9: br9 is not a bridge or a socket\n"),
    ] {
        let output = daemon.tool(&program()).args(words).output().unwrap();
        assert_eq!((output.status.code(), output.stderr.as_str()), (Some(1), error));
    }
}
