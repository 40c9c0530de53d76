//! Usable flow formats: `parse-flow`, `parse-flows` and `parse-group` beside those of `ovs-ofctl`, for each field and
//! action of the tables in `crates/sluiced/tests/names`.

use testkit::{RunDir, require_programs};

use crate::server::sluice;

const FIELDS: &str = include_str!("../../../sluiced/tests/names/fields.tsv");
const ACTIONS: &str = include_str!("../../../sluiced/tests/names/actions.tsv");

/// Rules about masks, keywords, and actions on fields that packets may lack.
const RULES: &str = "\
ip,nw_src=10.0.0.1/255.0.255.0,actions=drop
ip,nw_src=10.0.0.1/24,actions=drop
ip,nw_src=0.0.0.0/0,actions=drop
dl_src=00:00:00:00:00:01/00:00:00:00:00:ff,actions=drop
dl_dst=01:00:00:00:00:00/01:00:00:00:00:00,actions=drop
dl_src=00:00:00:00:00:01/ff:ff:ff:ff:ff:ff,actions=drop
dl_vlan=5,actions=drop
dl_vlan=0xffff,actions=drop
dl_vlan_pcp=3,actions=drop
vlan_vid=0x1005,actions=drop
vlan_vid=0x1005/0x100f,actions=drop
vlan_tci=0,actions=drop
vlan_tci=0x1005,actions=drop
vlan_tci=0x1005/0x1fff,actions=drop
vlan_tci=0xe005/0xefff,actions=drop
vlan_tci=0xf000/0xf000,actions=drop
vlan_tci=5/0x000f,actions=drop
arp,arp_spa=1.2.3.4/255.0.0.255,actions=drop
ipv6,actions=drop
tcp6,actions=drop
icmp6,icmp_type=135,actions=drop
ipv6,nw_tos=32,actions=drop
ipv6,nw_proto=6,actions=drop
eth,actions=drop
eth,dl_src=00:00:00:00:00:01,actions=drop
packet_type=(0,0),actions=drop
packet_type=(1,0x800),actions=drop
in_port=LOCAL,actions=drop
reg0[0..3]=5,actions=drop
reg0[0..31]=5,actions=drop
eth_dst[40]=1,actions=drop
NXM_NX_REG0[]=1,actions=drop
ip,OXM_OF_IPV4_SRC[]=1,actions=drop
table=1,actions=drop
table=255,actions=drop
table=0,actions=drop
cookie=5,actions=drop
priority=5,actions=drop
idle_timeout=5,hard_timeout=6,actions=drop
importance=5,actions=drop
send_flow_rem,check_overlap,actions=drop
reset_counts,actions=drop
no_packet_counts,no_byte_counts,actions=drop
allow_hidden_fields,actions=drop
reg0=0/0,actions=drop
metadata=0/0,actions=drop
metadata=1/3,actions=drop
ip,nw_src=*,actions=drop
actions=strip_vlan
actions=pop_vlan
dl_vlan=5,actions=strip_vlan
vlan_tci=0,actions=strip_vlan
actions=mod_vlan_vid:5
actions=push_vlan:0x8100,mod_vlan_vid:5
actions=set_field:0x1005->vlan_vid
dl_vlan=5,actions=set_field:0x1005->vlan_vid
dl_vlan=5,actions=set_field:5->vlan_pcp
actions=mod_nw_src:1.2.3.4
actions=mod_tp_src:5
actions=mod_nw_tos:32
actions=mod_nw_ttl:5
actions=mod_nw_ecn:1
actions=dec_ttl
actions=dec_mpls_ttl
actions=set_mpls_label:5
actions=pop_mpls:0x800
actions=push_mpls:0x8847
actions=dec_nsh_ttl
ip,actions=set_field:5->nw_ttl
ip,actions=set_field:1->nw_ecn
actions=set_field:5/7->metadata
actions=load:5->OXM_OF_METADATA[]
actions=clone(set_field:5->reg0)
actions=clone(push_vlan:0x8100)
actions=write_actions(set_field:5->reg0)
actions=write_actions(push_vlan:0x8100)
actions=write_actions(strip_vlan)
ip,actions=ct(commit,exec(set_field:5->ct_mark))
ip,actions=ct(commit,exec(load:5->NXM_NX_CT_MARK[]))
actions=write_metadata:5/7
table=3,actions=goto_table:4
table=3,actions=goto_table:2
actions=encap(ethernet)
actions=decap()
actions=fin_timeout(idle_timeout=5)
actions=strip_vlan,push_vlan:0x8100
actions=push_vlan:0x8100,strip_vlan
actions=mod_nw_src:1.2.3.4,push_vlan:0x8100
reset_counts,importance=5,actions=meter:5
actions=clone(mod_nw_src:1.2.3.4)
actions=clone(strip_vlan)
actions=learn(table=1,reg0=5,load:5->reg1)";

const GROUPS: &str = "\
group_id=1,type=all,bucket=actions=set_field:5->reg0
group_id=1,type=all,bucket=actions=push_vlan:0x8100,output:1
group_id=1,type=all,bucket=actions=mod_nw_src:1.2.3.4
group_id=1,type=all,bucket=actions=encap(ethernet)
group_id=1,type=all,bucket=actions=strip_vlan
group_id=1,type=select,bucket=bucket_id=5,weight:3,actions=output:1,bucket=output:2
group_id=1,type=all,bucket=output:1,bucket=bucket_id=1,output:2,bucket=output:3
group_id=1,type=all,bucket=output:2,bucket=bucket_id=0,output:3
group_id=1,type=ff,bucket=watch_port:1,actions=output:1,bucket=watch_group:2,actions=output:2
group_id=1,type=select,selection_method=hash,fields(ip_src,tcp_dst),bucket=output:1
group_id=1,type=bogus,bucket=output:1
type=indirect,bucket=output:1";

/// Versions and flow formats, which choose among the usable ones.
const OPTIONS: [&str; 8] = [
    "",
    "-O OpenFlow11",
    "-O OpenFlow13",
    "-O OpenFlow15",
    "-O OpenFlow10,OpenFlow12",
    "-F nxm",
    "-F openflow10+table_id",
    "-F OXM-OpenFlow14,NXM -O OpenFlow14",
];

/// Parts of rules that the tools print in different ways: only what is usable and chosen is compared. For tunnel metadata
/// without a mapping `ovs-ofctl` assumes one, and `sluice ofctl` refuses it.
const PRINTED_OTHERWISE: [(&str, &str); 7] = [
    ("tun_gbp_flags=0x8/0x8", "OVS omits the mask"),
    ("tun_gtpu_flags=0x30/1", "OVS omits flags without a bit"),
    ("->vlan_tci", "OVS makes two actions of it, which 1.1 has no tag for"),
    ("ecn=1", "OVS omits it from matches of 1.1, and refuses its own action in 1.0"),
    ("mod_nw_ttl:5", "OVS refuses its own action in 1.0"),
    ("mod_nw_ecn:1", "OVS refuses its own action in 1.0"),
    ("vlan_tci=0xe005/0xefff", "OVS refuses its own match"),
];

/// Standard output and exit code of both tools, ours first.
fn both(dir: &RunDir, args: &[&str], input: &str) -> [(String, Option<i32>); 2] {
    let ours =
        sluice().env("OVS_RUNDIR", dir.path()).args(["ofctl"]).args(args).input(input).output().unwrap();
    let theirs = dir.tool("ovs-ofctl", None).args(args).input(input).output().unwrap();
    [ours, theirs].map(|out| (out.stdout, out.status.code()))
}

/// The rules of the tables.
fn rules() -> Vec<String> {
    let rows =
        |table: &'static str| table.lines().filter(|l| !l.starts_with('#')).map(|l| l.split('\t').collect());
    let beside = |text: &str| if text == "-" { String::new() } else { format!("{text},") };
    let mut rules: Vec<String> = RULES.lines().map(String::from).collect();
    for row in rows(FIELDS) {
        let row: Vec<&str> = row;
        let (name, with) = (row[0], beside(row[1]));
        rules.push(format!("{with}{name}={},actions=drop", row[3]));
        rules.extend((row[5] != "-").then(|| format!("{with}actions={}", row[5])));
        rules
            .extend((!["-", "?"].contains(&row[6])).then(|| format!("{with}{name}={},actions=drop", row[6])));
    }
    rules.extend(rows(ACTIONS).map(|row: Vec<&str>| format!("{}actions={}", beside(row[1]), row[2])));
    rules.retain(|rule| !rule.contains("tun_metadata"));
    rules
}

#[test]
fn formats_of_rules_are_those_of_ovs() {
    require_programs!("ovs-ofctl");
    let dir = RunDir::new("usable").unwrap();
    let rules = rules();
    assert!(rules.len() > 350, "{} rules", rules.len());
    let mut wrong = String::new();
    for (n, rule) in rules.iter().enumerate() {
        // Each rule without options and with one of them in turn.
        for options in ["", OPTIONS[1 + n % (OPTIONS.len() - 1)]] {
            let args: Vec<&str> = options.split_whitespace().chain(["parse-flow", rule]).collect();
            let [mut ours, mut theirs] = both(&dir, &args, "");
            if PRINTED_OTHERWISE.iter().any(|(part, _)| rule.contains(part)) {
                for out in [&mut ours, &mut theirs] {
                    let lines = out.0.lines().filter(|l| l.contains(" protocol"));
                    out.0 = lines.collect::<Vec<_>>().join("\n");
                }
            }
            if ours != theirs {
                wrong += &format!("{args:?}\n--- ours\n{ours:?}\n--- stock\n{theirs:?}\n");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn formats_of_groups_and_files_are_those_of_ovs() {
    require_programs!("ovs-ofctl");
    let dir = RunDir::new("usable-groups").unwrap();
    let file = "table=1,actions=output:1\nip,ip_dst=1.0.0.2/255.0.0.255,actions=drop\n";
    for options in OPTIONS {
        for group in GROUPS.lines() {
            let args: Vec<&str> = options.split_whitespace().chain(["parse-group", group]).collect();
            let [ours, theirs] = both(&dir, &args, "");
            assert_eq!(ours, theirs, "{args:?}");
        }
        for input in [file, "actions=push_vlan:0x8100\nactions=drop\n", "actions=bogus\n", "# none\n"] {
            let args: Vec<&str> = options.split_whitespace().chain(["parse-flows", "-"]).collect();
            let [ours, theirs] = both(&dir, &args, input);
            assert_eq!(ours, theirs, "{args:?} {input}");
        }
    }
    let out = sluice().args(["ofctl", "parse-flow", "actions=meter:1"]).output().unwrap();
    assert!(out.stderr.contains("no usable protocol"), "{}", out.stderr);
    for bad in
        [&["-F", "OXM", "parse-flow", "actions=drop"][..], &["-F", "oxn", "parse-flow", "actions=drop"]]
    {
        let [ours, theirs] = both(&dir, bad, "");
        assert_eq!(ours, theirs, "{bad:?}");
        assert_eq!(ours.1, Some(1));
    }
}
