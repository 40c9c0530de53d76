//! Groups. Expectations are those of `ofproto/trace` of OVS 3.1.

use super::stories::story;
use super::*;
use dpif::actions::{HashAction, HashAlgorithm};
use openflow::msg::group::GroupModCommand;
use openflow::text::parse_group_mod;

impl Rig {
    pub(super) fn groups(self, lines: &[&str]) -> Rig {
        for line in lines {
            let m = parse_group_mod(line, GroupModCommand::Add, &NoPortNames).unwrap();
            self.backer.change_bridge(self.a, |b| b.tables.change_groups(&m, 0).map(drop)).unwrap().unwrap();
        }
        self
    }

    /// Bridge `a` with one group and this rule for all packets.
    fn with_group(group: &str, actions: &str) -> Rig {
        let rig = Rig::new().groups(&[group]);
        let a = rig.a;
        rig.rules(a, &format!("actions={actions}"))
    }

    fn set_down(&self, n: u32) {
        self.backer.change_bridge(self.a, |b| {
            let ports = Arc::make_mut(&mut b.ports);
            Arc::make_mut(ports.ports.get_mut(&OfPort(n)).unwrap()).link_down = true;
        });
    }
}

#[test]
fn each_bucket_works_on_a_copy() {
    let set = "set_field:02:00:00:00:00:11->eth_dst";
    for (group, actions, expected) in [
        (
            format!("type=all,bucket={set},output:2,bucket=output:3"),
            "group:1,output:4",
            "eth(dst=02:00:00:00:00:11),2,eth(dst=02:00:00:00:00:02),3,4",
        ),
        (
            format!("type=indirect,bucket={set},2"),
            "group:1,4",
            "eth(dst=02:00:00:00:00:11),2,eth(dst=02:00:00:00:00:02),4",
        ),
        // An action set: one output, the last one, after the rewrites.
        (format!("type=all,bucket=output:2,output:3,{set}"), "group:1", "eth(dst=02:00:00:00:00:11),3"),
        (format!("type=all,bucket={set},bucket=drop"), "group:1,4", "4"),
        ("type=all,bucket=resubmit(,1),bucket=output:3".into(), "group:1,4", "3,4"),
        ("type=all".into(), "group:1,4", "4"),
        ("type=all,bucket=output:1,bucket=in_port".into(), "group:1,4", "1,4"),
        ("type=all,bucket=output:2".into(), "write_actions(group:1,output:3)", "2"),
        ("type=all,bucket=output:2".into(), "write_actions(output:3)", "3"),
        ("type=select".into(), "group:1,4", "4"),
        ("type=all,bucket=group:77,bucket=2".into(), "group:1,4", "2,4"),
    ] {
        let rig = Rig::with_group(&format!("group_id=1,{group}"), actions);
        let a = rig.a;
        rig.rules(a, "table=1,actions=exit,output:3").acts(TCP, expected);
    }
}

/// OVS 3.5.0 sends the later packets without these headers, or aborts.
#[test]
fn a_bucket_that_changes_the_packet_type_works_on_a_clone() {
    let ip = "in_port=1,tcp,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02,nw_ttl=64";
    let none = "00:00:00:00:00:00";
    let frame = format!("pop_eth,push_eth(src={none},dst={none}),11");
    for (group, actions, expected) in [
        ("type=all,bucket=decap(),output:9,bucket=output:3", "group:1", format!("clone({frame}),3")),
        ("type=all,bucket=output:3,bucket=decap(),output:9", "group:1", format!("3,{frame}")),
        ("type=all,bucket=output:3,bucket=decap(),output:9", "group:1,2", format!("3,clone({frame}),2")),
        ("type=indirect,bucket=decap(),output:9", "group:1,2", format!("clone({frame}),2")),
        ("type=all,bucket=decap(),output:3,bucket=output:4", "group:1", "4".into()),
    ] {
        let rig = Rig::with_group(&format!("group_id=1,{group}"), actions);
        let b = rig.b;
        let rig = rig.rules(b, "packet_type=(1,0x800),actions=encap(ethernet),1");
        let actions = rig.translate(&Rig::flow(ip), true).actions;
        let shown = dpif::text::format_actions(&actions, &dpif::text::NumbersOnly);
        assert_eq!(shown, expected, "{group}; {actions:?}");
    }
}

#[test]
fn a_group_in_the_action_set_unsets_its_output() {
    let rig = Rig::with_group("group_id=1,type=all,bucket=2", "write_actions(output:3,group:1),goto_table:1");
    let a = rig.a;
    rig.rules(a, "table=1,actset_output=unset,actions=4").acts(TCP, "4,2");
}

#[test]
fn buckets_that_watch_are_live_with_their_port_or_group() {
    let groups = [
        "group_id=4,type=ff,bucket=watch_port:2,output:2,bucket=watch_port:3,output:3",
        "group_id=9,type=ff,bucket=watch_group:10,output:2,bucket=watch_port:3,output:3",
        "group_id=10,type=ff,bucket=watch_port:2,output:2",
        "group_id=12,type=ff,bucket=watch_port:2,watch_group:10,output:2,bucket=watch_port:3,output:3",
        "group_id=13,type=ff,bucket=watch_group:13,output:2,bucket=watch_group:88,output:2,bucket=watch_port:77,2",
        // Groups that watch each other, and themselves.
        "group_id=14,type=ff,bucket=watch_group:15,2,bucket=watch_group:14,2,bucket=watch_group:15,2",
        "group_id=15,type=ff,bucket=watch_group:14,2,bucket=watch_group:15,2,bucket=watch_group:14,2",
        "group_id=16,type=select,bucket=watch_port:2,output:2",
        "group_id=17,type=select,bucket=weight=600,output:2,bucket=watch_port:2,output:3",
    ];
    let rig = Rig::new().groups(&groups);
    let a = rig.a;
    let ids = [4, 9, 10, 12, 13, 14];
    let rules: Vec<String> =
        ids.iter().map(|id| format!("dl_vlan={id},actions=strip_vlan,group:{id},4")).collect();
    let rig = rig.rules(a, &rules.join("\n"));
    let outputs = |rig: &Rig| {
        ids.map(|id| {
            show(&rig.translate(&Rig::flow(&tcp(&format!("dl_vlan={id}"))), true).actions)
                .replace("pop_vlan,", "")
        })
    };
    assert_eq!(outputs(&rig), ["2,4", "2,4", "2,4", "2,4", "4", "4"]);
    rig.set_down(2);
    assert_eq!(outputs(&rig), ["3,4", "3,4", "4", "3,4", "4", "4"]);
}

#[test]
fn a_select_group_hashes_in_the_datapath_first() {
    let group = "group_id=1,type=select,bucket=weight=10,actions=output:2,bucket=weight=20,actions=output:3";
    let rig = Rig::with_group(group, "strip_vlan,group:1,output:4");
    let flow = Rig::flow(&tcp("dl_vlan=2"));
    let t = rig.translate(&flow, true);
    let [DpAction::PopVlan(_), DpAction::Hash(hash), DpAction::Recirc(Recirc(id))] = t.actions[..] else {
        panic!("{:?}", t.actions)
    };
    assert_eq!(hash, HashAction { algorithm: HashAlgorithm::SymL4, basis: 0 });
    assert_eq!(
        format_megaflow(&flow, &t.wc),
        "recirc_id=0,eth,ip,in_port=1,dl_vlan=2,dl_vlan_pcp=0,nw_frag=no"
    );
    for (dp_hash, expected) in [(1, "2,4"), (2, "3,4"), (0x11, "2,4"), (0x10, "3,4"), (0xdead_beef, "3,4")] {
        let flow = Flow { recirc_id: id.0, dp_hash, ..Rig::flow(TCP) };
        let t = rig.translate(&flow, true);
        assert_eq!(show(&t.actions), expected, "{dp_hash:#x}");
        assert_eq!((t.wc.0.dp_hash, t.wc.0.nw_src), (0xf, 0));
    }
    // The frozen state survives a change of its group, and a dead bucket's packets go to others.
    rig.backer.change_bridge(rig.a, |b| {
        let text =
            "group_id=1,type=select,bucket=weight=1,watch_port:2,actions=output:2,bucket=weight=1,output:3";
        let m = parse_group_mod(text, GroupModCommand::Modify, &NoPortNames).unwrap();
        b.tables.change_groups(&m, 0).unwrap();
    });
    rig.set_down(2);
    for dp_hash in 1..32 {
        let flow = Flow { recirc_id: id.0, dp_hash, ..Rig::flow(TCP) };
        assert_eq!(show(&rig.translate(&flow, true).actions), "3,4");
    }
}

#[test]
fn the_method_of_a_select_group_is_its_choice() {
    for (method, expected) in [
        ("selection_method=dp_hash,", Some((HashAlgorithm::L4, 0))),
        ("selection_method=dp_hash,selection_method_param=5,", Some((HashAlgorithm::L4, 5))),
        ("selection_method=dp_hash,selection_method_param=0x100000007,", Some((HashAlgorithm::SymL4, 7))),
        ("selection_method=dp_hash,selection_method_param=0x200000007,", Some((HashAlgorithm::L4, 7))),
        ("selection_method=hash,", None),
    ] {
        let rig = Rig::with_group(&format!("group_id=1,type=select,{method}bucket=output:2"), "group:1");
        let t = rig.translate(&Rig::flow(TCP), true);
        let hash = match t.actions[..] {
            [DpAction::Hash(hash), DpAction::Recirc(_)] => Some((hash.algorithm, hash.basis)),
            _ => None,
        };
        assert_eq!(hash, expected, "{method}");
    }
}

#[test]
fn the_slow_path_hashes_what_the_megaflow_matches() {
    let all = "eth,tcp,in_port=1,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_frag=no,tp_src=1,tp_dst=80";
    for (group, megaflow) in [
        ("bucket=weight=1,output:2,bucket=weight=300,output:2", all),
        ("selection_method=hash,bucket=output:2", all),
        (
            "selection_method=hash,fields=ip_src,bucket=output:2",
            "eth,ip,in_port=1,nw_src=10.0.0.1,nw_frag=no",
        ),
        (
            "selection_method=hash,fields(eth_dst,ip_proto,udp_src),bucket=output:2",
            "eth,tcp,in_port=1,dl_dst=02:00:00:00:00:02,nw_frag=no",
        ),
    ] {
        let rig = Rig::with_group(&format!("group_id=1,type=select,{group}"), "group:1,4");
        rig.check(TCP, "2,4", &format!("recirc_id=0,{megaflow}"));
    }
}

/// Packets of one flow stay in a bucket, and buckets get packets by their weights.
#[test]
fn buckets_of_the_slow_path_are_sticky_and_even() {
    let rig = Rig::with_group(
        "group_id=1,type=select,selection_method=hash,fields(ip_src),bucket=weight=1,output:2,bucket=weight=3,output:3",
        "group:1",
    );
    let mut of = [0; 2];
    for n in 0..2000u32 {
        let flow = Flow { nw_src: n.wrapping_mul(0x9e37_79b9), ..Rig::flow(TCP) };
        let first = show(&rig.translate(&flow, true).actions);
        assert_eq!(first, show(&rig.translate(&Flow { tp_src: 9, ..flow }, true).actions));
        of[usize::from(first == "3")] += 1;
    }
    // The highest of scores weighted by 1 and 3: one in six.
    assert!((250..420).contains(&of[0]), "{of:?}");
}

#[test]
fn limits_of_the_translation_hold_in_groups() {
    let rig = Rig::with_group("group_id=1,type=all,bucket=output:2,bucket=group:1", "group:1,4");
    assert!(rig.acts(TCP, "drop:RecursionTooDeep").fault.is_some());
    // A chain that doubles at each group.
    let chain: Vec<String> =
        (1..40).map(|n| format!("group_id={n},type=all,bucket=group:{0},bucket=group:{0}", n + 1)).collect();
    let rig = Rig::new().groups(&chain.iter().map(String::as_str).collect::<Vec<_>>());
    let a = rig.a;
    let t = rig.rules(a, "actions=group:1").acts(TCP, "drop:TooManyResubmits");
    assert!(t.fault.is_some());
}

#[test]
fn packets_for_controllers_come_from_the_group() {
    for (actions, reasons) in
        [("group:1", "4"), ("write_actions(group:1)", "4"), ("resubmit(,9),group:1", "1,4"), ("group:2", "1")]
    {
        let rig = Rig::new()
            .groups(&["group_id=1,type=all,bucket=controller", "group_id=2,type=all,bucket=resubmit(,9)"]);
        let a = rig.a;
        let rig = rig.rules(a, &format!("actions={actions}\n table=9,in_port=1,actions=controller"));
        let shown = show(&rig.translate(&Rig::flow(TCP), true).actions);
        let found: Vec<&str> = shown.split("reason=").skip(1).filter_map(|s| s.split(',').next()).collect();
        assert_eq!(found.join(","), reasons, "{actions}: {shown}");
    }
}

#[test]
fn statistics_count_groups_and_buckets() {
    let rig = Rig::with_group("group_id=5,type=indirect,bucket=group:1", "group:5,group:4").groups(&[
        "group_id=1,type=all,bucket=output:2,bucket=output:3",
        "group_id=4,type=ff,bucket=watch_port:2,output:2,bucket=watch_port:3,output:3",
    ]);
    let t = rig.acts(TCP, "2,3,2");
    t.cache.replay(&seen(3, 300, 5), &mut rig.backer.effect_host());
    let view = rig.backer.view();
    let groups = view.bridge(rig.a).unwrap().tables.groups();
    let counts = |id| {
        let group = groups.get(id).unwrap();
        (group.counter.counts().0, group.buckets.iter().map(|b| b.counter.counts().0).collect::<Vec<_>>())
    };
    assert_eq!([1, 4, 5].map(counts), [(3, vec![3, 3]), (3, vec![3, 0]), (3, vec![3])]);
}

#[test]
fn traces_show_buckets() {
    let rig = Rig::with_group(
        "group_id=5,type=indirect,bucket=set_field:5->reg0,group:1",
        "group:5,group:4,group:2",
    )
    .groups(&[
        "group_id=1,type=all,bucket=output:2,bucket=resubmit(,1),bucket=drop",
        "group_id=2,type=select,bucket=output:3",
        "group_id=4,type=ff,bucket=watch_port:4,output:4,bucket=watch_port:3,output:3",
    ]);
    rig.set_down(4);
    let a = rig.a;
    let rig = rig.rules(a, "table=1,actions=exit");
    let expected = " 0. priority 32768
    group:5
    bucket 0
            set_field:0x5->reg0
            group:1
            bucket 0
                    output:2
            bucket 1
                    resubmit(,1)
                 1. priority 32768
                    exit
            bucket 2
                    drop
    group:4
     -> bucket 0: not live due to port 4
     -> using bucket 1
    bucket 1
            output:3
    group:2
     -> no live bucket";
    assert_eq!(story(&rig, TCP, false).join("\n"), expected);
}

/// A bucket that cannot push or pop a header ends alone (`ofproto/trace` of OVS 3.5), and a header that a bucket or a
/// clone pushes last is gone behind it (there OVS adds an Ethernet header, and aborts).
#[test]
fn headers_of_a_bucket_are_its_own() {
    let all = "group_id=1,type=all,bucket=";
    for (bucket, actions, expected) in [
        ("encap(ethernet),output:2,bucket=output:3", "group:1,4", "3,4"),
        ("resubmit(,1),bucket=output:3", "group:1,4", "3,4"),
        ("encap(nsh),output:2,bucket=output:3", "group:1,4", "3,4"),
        ("encap(nsh),output:2", "group:1,resubmit(,2)", "4"),
        ("encap(nsh)", "clone(group:1),4", "4"),
        ("output:4", "clone(encap(nsh)),group:1", "4"),
    ] {
        let rig = Rig::with_group(&format!("{all}{bucket}"), actions);
        let a = rig.a;
        let rig = rig.rules(a, "table=1 actions=encap(ethernet),3\ntable=2 actions=4");
        let t = rig.translate(&Rig::flow(TCP), true);
        let text = dpif::actions::format_actions(&t.actions, &dpif::text::NumbersOnly);
        assert_eq!((text.as_str(), t.error, t.fault), (expected, None, None), "{bucket} {actions}");
    }
    // The bucket pops none of four labels.
    let rig = Rig::with_group(&format!("{all}pop_mpls:0x8847,output:2,bucket=output:3"), "group:1,4");
    let mut deep = Rig::flow("in_port=1,mpls");
    deep.mpls_lse = [0x1040, 0x2040, 0x3040, 0];
    assert_eq!(show(&rig.translate(&deep, true).actions), "3,4");
    // Limits still end the translation.
    Rig::with_group(&format!("{all}group:1,bucket=output:3"), "group:1,4").acts(TCP, "drop:RecursionTooDeep");
    let rig = Rig::with_group(&format!("{all}encap(ethernet),output:2,bucket=output:3"), "group:1,4");
    let lines = story(&rig, TCP, false).join("\n");
    let expected = " 0. priority 32768
    group:1
    bucket 0
            encap(ethernet)
            Dropping packet as encap(ethernet) is not supported for packet type ethernet.
    bucket 1
            output:3
    output:4";
    assert_eq!(lines, expected);
}

/// A select group's buckets of weight 0 take no packet by any method, also if no other bucket is live, and do not make
/// a watched group live (`ofproto/trace` of OVS 3.5: "not live due to", also of a bucket whose port is up).
#[test]
fn buckets_without_weight_take_no_packet() {
    for method in
        ["", "selection_method=hash,fields(ip_src),", "selection_method=hash,", "selection_method=dp_hash,"]
    {
        for buckets in [
            "bucket=weight:0,actions=output:2",
            "bucket=weight:0,actions=output:2,bucket=weight:0,actions=output:3",
            "bucket=weight:0,watch_port:2,actions=output:2",
        ] {
            let rig = Rig::with_group(&format!("group_id=1,type=select,{method}{buckets}"), "group:1,4");
            rig.acts(TCP, "4");
        }
        // The only bucket with a weight is dead.
        let group = format!(
            "group_id=1,type=select,{method}bucket=weight:0,actions=output:2,bucket=weight:10,watch_port:3,actions=output:3"
        );
        let rig = Rig::with_group(&group, "group:1,4");
        rig.set_down(3);
        for dp_hash in 1..32 {
            let t = rig.translate(&Flow { dp_hash, ..Rig::flow(TCP) }, true);
            let hashes =
                matches!(t.actions[..], [DpAction::Hash(_), DpAction::Recirc(_), DpAction::Output(_)]);
            assert!(hashes || show(&t.actions) == "4", "{method} {:?}", t.actions);
        }
    }
    for (watched, expected) in [
        ("type=select,bucket=weight:0,output:2", "4"),
        ("type=select,bucket=weight:0,watch_port:2,output:2", "4"),
        ("type=select,bucket=output:2", "3,4"),
        ("type=all,bucket=output:2", "3,4"),
    ] {
        let watched = format!("group_id=2,{watched}");
        let rig = Rig::new().groups(&[&watched, "group_id=1,type=ff,bucket=watch_group:2,actions=output:3"]);
        let a = rig.a;
        rig.rules(a, "actions=group:1,4").acts(TCP, expected);
    }
}
