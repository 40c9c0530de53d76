//! Tests of flow modification lines and files.

use super::syntax::check;
use crate::text::FlowModCommand::*;
use crate::text::*;
use flow::text::{NoPortNames, format_match};
use flow::{Match, OfPort, TableId};

fn line(text: &str, command: FlowModCommand) -> Result<FlowModText, String> {
    parse_flow_mod(text, command, &NoPortNames).map_err(|e| e.message)
}

/// Output of `ovs-ofctl parse-flow` for a line.
fn told(text: &str) -> String {
    let m = match line(text, Add) {
        Ok(m) => m,
        Err(e) => return format!("error: {e}"),
    };
    let mut parts = vec!["ADD".to_string()];
    parts.extend(m.table.map(|t| format!("table:{}", t.0)));
    parts.push(format_match(&m.rule_match, Some(m.priority.into())));
    parts.extend(m.new_cookie.filter(|c| *c != 0).map(|c| format!("cookie:{c:#x}")));
    parts.extend((m.idle_timeout_s != 0).then(|| format!("idle:{}", m.idle_timeout_s)));
    parts.extend((m.hard_timeout_s != 0).then(|| format!("hard:{}", m.hard_timeout_s)));
    parts.extend((m.importance != 0).then(|| format!("importance:{}", m.importance)));
    let f = m.flags;
    for (on, name) in [
        (f.send_flow_rem, "send_flow_rem"),
        (f.check_overlap, "check_overlap"),
        (f.reset_counts, "reset_counts"),
        (f.no_packet_counts, "no_packet_counts"),
        (f.no_byte_counts, "no_byte_counts"),
    ] {
        parts.extend(on.then(|| name.to_string()));
    }
    parts.push(format!("actions={}", format_actions(&m.actions, &NoPortNames)));
    parts.retain(|p| !p.is_empty());
    parts.join(" ")
}

#[test]
fn add_flow_lines() {
    let table = "\
priority=5,tcp,actions=drop\tADD priority=5,tcp actions=drop
priority=32768,actions=drop\tADD actions=drop
priority=65536,actions=drop\terror: invalid priority \"65536\"
priority=,actions=drop\terror: field priority missing value
table=5,actions=drop\tADD table:5 actions=drop
table=256,actions=drop\terror: unknown table \"256\"
cookie=5,actions=drop\tADD cookie:0x5 actions=drop
cookie=-1,actions=drop\tADD actions=drop
cookie=5/7,actions=drop\terror: flow additions cannot use a cookie mask
cookie=foo,actions=drop\terror: invalid numeric format foo
idle_timeout=5,hard_timeout=10,importance=3,actions=drop\tADD idle:5 hard:10 importance:3 actions=drop
idle_timeout=70000,actions=drop\terror: invalid idle_timeout \"70000\"
hard_timeout=0x10,actions=drop\tADD hard:16 actions=drop
send_flow_rem,actions=drop\tADD send_flow_rem actions=drop
check_overlap,reset_counts,no_packet_counts,no_byte_counts,actions=1\tADD check_overlap reset_counts no_packet_counts no_byte_counts actions=output:1
out_port=5,actions=drop\terror: unknown keyword out_port
out_group=5,actions=drop\terror: unknown keyword out_group
priority=5 tcp tp_dst=80 actions=drop\tADD priority=5,tcp,tp_dst=80 actions=drop
 priority=5 , tcp  ,tp_dst=80, actions=drop\tADD priority=5,tcp,tp_dst=80 actions=drop
tcp\terror: must specify an action
actions=\tADD actions=drop
duration=5,n_packets=3,n_bytes=3,idle_age=2,hard_age=3,actions=drop\tADD actions=drop
allow_hidden_fields,actions=drop\tADD actions=drop
tcp actions = drop\tADD tcp actions=drop
table=5,actions=goto_table:6\tADD table:5 actions=goto_table:6
table=5,actions=goto_table:5\terror: goto_table:5 does not go to a later table (OFPBIC_BAD_TABLE_ID)
idle_timeout=5,hard_timeout=10,cookie=5,table=3,priority=7,actions=output:1\tADD table:3 priority=7 cookie:0x5 idle:5 hard:10 actions=output:1
";
    check(table, 27, told);
}

/// Output of `dump-flows` parses again.
#[test]
fn dumped_lines_are_taken_back() {
    let dumped = [
        " cookie=0x0, duration=1s, table=0, n_packets=2, n_bytes=108, idle_age=1, priority=50,tcp,tp_dst=80 actions=load:0x5->NXM_NX_REG1[],resubmit(,3)",
        " cookie=0x0, duration=1.020s, table=0, n_packets=1, n_bytes=42, idle_age=1, priority=0 actions=NORMAL",
        " cookie=0x0, duration=1s, table=3, n_packets=2, n_bytes=108, idle_age=1, tcp,reg1=0x5,nw_src=10.0.0.0/8 actions=dec_ttl,mod_dl_dst:aa:bb:cc:dd:ee:ff,output:2",
    ];
    for text in dumped {
        let m = line(text, Add).unwrap();
        let rule = format_match(&m.rule_match, Some(m.priority.into()));
        let end = format!(" {rule} actions={}", format_actions(&m.actions, &NoPortNames));
        assert!(text.ends_with(&end), "{text} gave {end}");
    }
}

#[test]
fn actions_must_fit_the_match() {
    let table = "\
actions=load:5->NXM_OF_IP_SRC[]\terror: set_field ip_src lacks correct prerequisites: match on ip (OFPBAC_MATCH_INCONSISTENT)
ip,actions=load:5->NXM_OF_IP_SRC[]\tADD ip actions=load:0x5->NXM_OF_IP_SRC[]
udp,actions=set_field:80->tp_dst\terror: set_field tcp_dst lacks correct prerequisites: match on tcp or tcp6 (OFPBAC_MATCH_INCONSISTENT)
actions=move:NXM_OF_IP_SRC[]->NXM_OF_IP_DST[]\terror: move ip_src lacks correct prerequisites: match on ip (OFPBAC_MATCH_INCONSISTENT)
actions=set_field:3->vlan_pcp\terror: set_field vlan_pcp lacks correct prerequisites: match on dl_vlan or vlan_tci (OFPBAC_MATCH_INCONSISTENT)
dl_vlan=5,actions=set_field:3->vlan_pcp\tADD dl_vlan=5 actions=set_field:3->vlan_pcp
actions=push_vlan:0x8100,set_field:3->vlan_pcp\tADD actions=push_vlan:0x8100,set_field:3->vlan_pcp
dl_vlan=5,actions=strip_vlan,set_field:3->vlan_pcp\terror: set_field vlan_pcp lacks correct prerequisites: match on dl_vlan or vlan_tci (OFPBAC_MATCH_INCONSISTENT)
arp,actions=set_field:1->arp_op\tADD arp actions=set_field:1->arp_op
icmp6,icmp_type=135,icmp_code=0,actions=set_field:fe80::1->nd_target\tADD icmp6,icmp_type=135,icmp_code=0 actions=set_field:fe80::1->nd_target
udp,actions=learn(table=1,NXM_OF_IP_DST[]=NXM_OF_IP_SRC[])\terror: learn: NXM_OF_IP_DST lacks correct prerequisites: match on ip before it (OFPBAC_MATCH_INCONSISTENT)
udp,actions=learn(table=1,eth_type=0x800,NXM_OF_IP_DST[]=NXM_OF_IP_SRC[])\tADD udp actions=learn(table=1,eth_type=0x800,NXM_OF_IP_DST[]=NXM_OF_IP_SRC[])
actions=learn(table=1,eth_type=0x800,NXM_OF_IP_DST[]=NXM_OF_IP_SRC[])\terror: learn: source ip_src lacks correct prerequisites: match on ip (OFPBAC_MATCH_INCONSISTENT)
actions=learn(load(0x1->reg0),output(reg1[]),load(reg1[0..3]->reg0[4..7]))\tADD actions=learn(table=1,load:0x1->NXM_NX_REG0[],output:NXM_NX_REG1[],load:NXM_NX_REG1[0..3]->NXM_NX_REG0[4..7])
actions=learn(eth_type(0x800))\tADD actions=learn(table=1,eth_type=0x800)
skb_priority=1,actions=drop\terror: actions are invalid with specified match (OFPBAC_MATCH_INCONSISTENT)
tun_ttl=1,actions=drop\terror: actions are invalid with specified match (OFPBAC_MATCH_INCONSISTENT)
actions=learn(table=1,eth_type=0x800,nw_proto=17,udp_dst=53)\tADD actions=learn(table=1,eth_type=0x800,nw_proto=17,udp_dst=53)
actions=learn(table=1,eth_type=0x800,nw_proto=17,tp_dst=53)\terror: learn: NXM_OF_TCP_DST lacks correct prerequisites: match on tcp or tcp6 before it (OFPBAC_MATCH_INCONSISTENT)
";
    check(table, 15, told);
}

#[test]
fn deletions_take_what_filters_and_nothing_else() {
    let m = line("table=5,tcp,out_port=3,out_group=7,cookie=0x5/0xff", Delete).unwrap();
    assert_eq!((m.table, m.out_port, m.out_group), (Some(TableId(5)), OfPort(3), Some(7)));
    assert_eq!((m.cookie, m.cookie_mask, m.new_cookie), (5, 0xff, None));
    assert_eq!(line("cookie=0x5/-1", Delete).unwrap().cookie_mask, u64::MAX);
    assert_eq!(line("", Delete).unwrap().rule_match, Match::catchall());
    assert_eq!(line("priority=5", DeleteStrict).unwrap().priority, 5);
    for (text, why) in [
        ("cookie=5", "cannot set cookie (to match on a cookie, specify a mask, e.g. cookie=5/-1)"),
        ("priority=5", "unknown keyword priority"),
        ("actions=drop", "unknown keyword actions"),
        ("idle_timeout=5", "unknown keyword idle_timeout"),
        ("importance=5", "unknown keyword importance"),
        ("send_flow_rem", "field send_flow_rem missing value"),
        ("foo=1", "unknown keyword foo"),
        ("out_port=foo", "foo is not a valid OpenFlow port"),
        ("ip,strict", "field strict missing value"),
    ] {
        assert_eq!(line(text, Delete), Err(why.into()), "{text}");
    }
}

#[test]
fn modifications_match_or_set_the_cookie() {
    let m = line("cookie=1/7,tcp,actions=drop", Modify).unwrap();
    assert_eq!((m.cookie, m.cookie_mask, m.new_cookie), (1, 7, None));
    let m = line("cookie=1,priority=5,tcp,actions=drop", ModifyStrict).unwrap();
    assert_eq!((m.cookie_mask, m.new_cookie, m.priority), (0, Some(1), 5));
    assert_eq!(line("tcp", Modify), Err("must specify an action".into()));
    assert_eq!(line("out_port=1,actions=drop", Modify), Err("unknown keyword out_port".into()));
    assert!(line("idle_timeout=3,check_overlap,actions=output:1", Modify).unwrap().flags.check_overlap);
}

#[test]
fn files_hold_comments_and_commands() {
    let text = "# a comment\n\
                tcp,actions=drop # behind\n\n   \n\
                delete tcp\r\n\
                delete_strict priority=5,tcp\n\
                modify tcp,actions=output:1\n\
                modify_strict tcp,actions=output:2\n\
                add udp,actions=3\n";
    let mods = parse_flow_file(text, None, &NoPortNames).unwrap();
    let commands: Vec<_> = mods.iter().map(|m| m.command).collect();
    assert_eq!(commands, [Add, Delete, DeleteStrict, Modify, ModifyStrict, Add]);
    assert_eq!(format_match(&mods[5].rule_match, None), "udp");
    let error =
        parse_flow_file("tcp,actions=drop\n\n  tcp,foo=1,actions=drop\n", None, &NoPortNames).unwrap_err();
    assert_eq!(error.to_string(), "3: unknown keyword foo");
    let mods = parse_flow_file("tcp\n# none\nudp\n", Some(Delete), &NoPortNames).unwrap();
    assert_eq!(mods.iter().map(|m| m.command).collect::<Vec<_>>(), [Delete, Delete]);
    // As in OVS such a line is no command.
    assert!(parse_flow_file("delete tcp\n", Some(Delete), &NoPortNames).is_err());
}
