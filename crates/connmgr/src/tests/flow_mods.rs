//! Semantics of flow-mods: rules before and after.

use super::*;
use TextCommand::{Add, Delete, DeleteStrict, Modify, ModifyStrict};
use dpif::Capabilities;

/// Counts `n` packets on every rule.
fn count(s: &Switch, n: u64) {
    for r in s.backer.view().bridge(s.bridge).unwrap().tables.iter() {
        r.stats.credit(n, 60 * n, s.now_ms);
    }
}

#[test]
fn an_add_replaces_and_the_version_decides_about_counters() {
    for (version, kept) in [(Version::V10, 0), (Version::V13, 3)] {
        let mut s = Switch::new();
        let mut c = s.service(version);
        c.add(&mut s, "priority=7,tcp,cookie=1,actions=1");
        count(&s, 3);
        c.add(&mut s, "priority=7,tcp,cookie=2,actions=2");
        c.add(&mut s, "priority=8,tcp,cookie=3,actions=2");
        let want = [
            format!("table=0 cookie=0x2 priority=7,tcp output:2 n={kept}"),
            "table=0 cookie=0x3 priority=8,tcp output:2 n=0".to_string(),
        ];
        assert_eq!(s.rules(), want);
        c.add(&mut s, "reset_counts,priority=7,tcp,actions=1");
        assert!(s.rules()[0].ends_with("n=0"));
    }
}

#[test]
fn a_modification_keeps_counters_and_timeouts() {
    let mut s = Switch::new();
    let mut c = s.service(Version::V13);
    c.add(&mut s, "table=1,priority=5,ip,cookie=9,idle_timeout=10,actions=1");
    c.add(&mut s, "table=1,priority=6,tcp,cookie=8,actions=1");
    c.add(&mut s, "table=1,priority=6,arp,cookie=8,actions=1");
    count(&s, 2);
    c.flow(&mut s, Modify, "table=1,ip,actions=2");
    let want = [
        "table=1 cookie=0x8 priority=6,arp output:1 n=2",
        "table=1 cookie=0x8 priority=6,tcp output:2 n=2",
        "table=1 cookie=0x9 priority=5,ip output:2 n=2",
    ];
    assert_eq!(s.rules(), want);
    c.flow(&mut s, ModifyStrict, "table=1,priority=6,ip,actions=drop");
    assert_eq!(s.rules(), want, "no rule has just this match and priority");
    c.flow(&mut s, Modify, "table=1,cookie=8/-1,reset_counts,actions=drop");
    assert_eq!(s.rules().iter().filter(|r| r.contains("drop n=0")).count(), 2);
    // The idle timeout is still that of the add.
    s.pass(11_000);
    assert_eq!(s.rules().len(), 2);
}

#[test]
fn a_modification_adds_only_where_the_version_says_so() {
    for (version, rules) in [(Version::V10, 1), (Version::V13, 0)] {
        let mut s = Switch::new();
        let mut c = s.service(version);
        let mut fm = flow_mod(Modify, "priority=4,udp,actions=1");
        fm.new_cookie = 5;
        c.silent(&mut s, &Message::FlowMod(fm.clone()));
        assert_eq!(s.rules().len(), rules);
        fm.priority = 9;
        fm.new_cookie = u64::MAX;
        fm.matching = flow_mod(Modify, "sctp,actions=1").matching;
        c.silent(&mut s, &Message::FlowMod(fm));
        assert_eq!(s.rules().len(), rules, "without a cookie to give it only modifies");
    }
}

/// As OVS 3.5 answers, version by version.
#[test]
fn a_modification_gives_its_cookie_where_the_version_says_so() {
    let kept = ["table=0 cookie=0x5 priority=3,ip output:2 n=0"];
    let given = ["table=0 cookie=0x7 priority=3,ip output:2 n=0"];
    for version in [Version::V10, Version::V11, Version::V12, Version::V13, Version::V15] {
        for command in [Modify, ModifyStrict] {
            for format in [Format::Standard, Format::Nxt] {
                let mut s = Switch::new();
                let mut c = s.service(version);
                c.add(&mut s, "cookie=5,priority=3,ip,actions=1");
                let mut fm = flow_mod(command, "priority=3,ip,actions=2");
                (fm.new_cookie, fm.format) =
                    (7, if version == Version::V10 { format } else { Format::Standard });
                c.silent(&mut s, &Message::FlowMod(fm.clone()));
                assert_eq!(s.rules(), if version == Version::V10 { given } else { kept }, "{version:?}");
                fm.matching = flow_mod(command, "arp,actions=2").matching;
                c.silent(&mut s, &Message::FlowMod(fm));
                let added = s.rules().iter().filter(|r| r.contains("cookie=0x7 priority=3,arp")).count();
                assert_eq!(added, usize::from(version <= Version::V11), "{version:?}");
            }
        }
    }
}

/// As in OVS 3.5, the groups and meters of a modification that changes nothing may be missing.
#[test]
fn a_modification_needs_its_groups_only_for_a_change() {
    let mut s = Switch::new();
    let mut c = s.service(Version::V13);
    c.add(&mut s, "priority=3,ip,actions=1");
    let before = s.rules();
    for (reference, error) in [
        ("group:9", ErrorKind::BacBadOutGroup),
        ("clone(group:9)", ErrorKind::BacBadOutGroup),
        ("meter:9", ErrorKind::MmfcInvalidMeter),
    ] {
        for command in [Modify, ModifyStrict] {
            c.flow(&mut s, command, &format!("priority=4,udp,actions={reference}"));
            c.flow(&mut s, command, &format!("priority=3,cookie=1/-1,ip,actions={reference}"));
            let changes = flow_mod(command, &format!("priority=3,ip,actions={reference}"));
            assert_eq!(c.refused(&mut s, &Message::FlowMod(changes)), error);
        }
        let adds = flow_mod(Add, &format!("udp,actions={reference}"));
        assert_eq!(c.refused(&mut s, &Message::FlowMod(adds)), error);
    }
    assert_eq!(s.rules(), before);
}

#[test]
fn deletions_honour_their_filters() {
    let mut s = Switch::new();
    let mut c = s.service(Version::V13);
    let rules = [
        "table=0,priority=1,ip,cookie=0x10,actions=1",
        "table=0,priority=2,tcp,cookie=0x11,actions=2",
        "table=3,priority=2,tcp,cookie=0x12,actions=write_actions(output:1)",
        "table=4,arp,cookie=0x20,actions=drop",
    ];
    let cases: [(TextCommand, &str, &[usize]); 11] = [
        (Delete, "", &[]),
        (Delete, "table=3", &[0, 1, 3]),
        (Delete, "ip", &[3]),
        (Delete, "out_port=1", &[1, 3]),
        (Delete, "cookie=0x10/0xf0", &[3]),
        (Delete, "table=0,cookie=0x12/-1", &[0, 1, 2, 3]),
        (DeleteStrict, "priority=2,tcp", &[0, 3]),
        (DeleteStrict, "priority=2,ip", &[0, 1, 2, 3]),
        (DeleteStrict, "priority=2,tcp,cookie=0x12/-1", &[0, 1, 3]),
        (DeleteStrict, "priority=2,tcp,out_port=2", &[0, 2, 3]),
        (DeleteStrict, "table=0,priority=1,ip", &[1, 2, 3]),
    ];
    for (command, text, left) in cases {
        c.flow(&mut s, Delete, "");
        rules.iter().for_each(|r| c.add(&mut s, r));
        let all = s.rules();
        c.flow(&mut s, command, text);
        let want: Vec<String> = left.iter().map(|n| all[*n].clone()).collect();
        assert_eq!(s.rules(), want, "{command:?} {text}");
    }
    let mut fm = flow_mod(Delete, "");
    fm.out_group = 5;
    c.silent(&mut s, &Message::FlowMod(fm));
    assert_eq!(s.rules().len(), 3, "no rule uses a group");
}

#[test]
fn invalid_flow_mods_are_rejected_without_effect() {
    let mut s = Switch::new();
    let mut c = s.service(Version::V13);
    c.add(&mut s, "table=1,priority=5,tcp,actions=1");
    let before = s.rules();
    let with = |text: &str, change: &dyn Fn(&mut FlowMod)| {
        let mut fm = flow_mod(Add, text);
        change(&mut fm);
        fm
    };
    let goto = |n| {
        move |fm: &mut FlowMod| {
            fm.actions = vec![ofp_actions::Action::GotoTable(ofp_actions::GotoTable(TableId(n)))]
        }
    };
    let cases = [
        (with("actions=1", &|fm| fm.table = TableId::ALL), ErrorKind::FmfcBadTableId),
        (with("actions=1", &|fm| fm.table = TableId::INTERNAL), ErrorKind::BrcEperm),
        (with("actions=1", &|fm| fm.buffer_id = 5), ErrorKind::BrcBufferUnknown),
        (with("table=1,check_overlap,priority=5,tcp,tcp_dst=4,actions=1", &|_| {}), ErrorKind::FmfcOverlap),
        (with("table=2,actions=1", &goto(2)), ErrorKind::BicBadTableId),
        (with("table=2,actions=1", &goto(1)), ErrorKind::BicBadTableId),
        (
            with("actions=1", &|fm| fm.actions = vec![ofp_actions::Action::Meter(ofp_actions::Meter(4))]),
            ErrorKind::MmfcInvalidMeter,
        ),
        (
            with("actions=1", &|fm| {
                fm.actions = vec![ofp_actions::Action::Output(ofp_actions::Output {
                    port: OfPort(0xffff_ff01),
                    max_len_bytes: 0,
                })];
            }),
            ErrorKind::BacBadOutPort,
        ),
        (
            with("actions=1", &|fm| {
                fm.actions = vec![ofp_actions::Action::SetIpTtl(ofp_actions::SetIpTtl(4))]
            }),
            ErrorKind::BacMatchInconsistent,
        ),
    ];
    for (fm, kind) in cases {
        assert_eq!(c.refused(&mut s, &Message::FlowMod(fm.clone())), kind, "{fm:?}");
        assert_eq!(s.rules(), before);
    }
    // A rule may be added over itself although it overlaps itself.
    c.add(&mut s, "table=1,check_overlap,priority=5,tcp,actions=2");
    let mut delete = flow_mod(Delete, "");
    delete.buffer_id = 7;
    c.silent(&mut s, &Message::FlowMod(delete));
    assert!(s.rules().is_empty());
}

#[test]
fn rules_of_the_switch_itself_are_never_touched() {
    let mut s = Switch::new();
    let mut c = s.service(Version::V10);
    let hidden = |table, priority| {
        let rule = Rule {
            table,
            matching: flow::Match::catchall().into(),
            priority,
            cookie: 0,
            timeouts: RuleTimeouts::new(0, 0, &[]),
            importance: 0,
            flags: FlowModFlags::empty(),
            actions: [].into(),
            created_ms: 0,
            modified_ms: 0,
            stats: Arc::default(),
        };
        Arc::new(rule)
    };
    s.backer.change_bridge(s.bridge, |b| {
        b.tables.insert(hidden(TableId(0), 70_000));
        b.tables.insert(hidden(TableId::INTERNAL, 0));
    });
    let before = s.rules();
    c.flow(&mut s, Modify, "actions=1");
    assert_eq!(s.rules().iter().filter(|r| before.contains(r)).count(), 2);
    c.flow(&mut s, Delete, "");
    assert_eq!(s.rules(), before);
    let reply = c.one(&mut s, &Message::FlowStatsRequest(all_flows(Format::Nxt)));
    assert!(matches!(reply, Message::FlowStatsReply(m) if m.entries.is_empty() && !m.more));
}

#[test]
fn delete_learned_removes_learned_rules_with_their_rule() {
    let mut s = Switch::new();
    let mut c = s.service(Version::V13);
    let learner = |t| format!("table={t},actions=learn(table=9,cookie=0x55,delete_learned,NXM_OF_ETH_DST[])");
    c.add(&mut s, &learner(1));
    c.add(&mut s, &learner(2));
    c.add(&mut s, "table=9,cookie=0x55,tcp,actions=drop");
    c.add(&mut s, "table=9,cookie=0x56,tcp,priority=3,actions=drop");
    c.add(&mut s, "table=8,cookie=0x55,tcp,actions=drop");
    c.flow(&mut s, Delete, "table=1");
    assert_eq!(s.rules().len(), 4, "another rule learns under this cookie");
    c.flow(&mut s, Modify, "table=2,actions=drop");
    let left = s.rules();
    assert_eq!(left.len(), 3, "{left:?}");
    assert!(!left.iter().any(|r| r.starts_with("table=9 cookie=0x55")));
}

#[test]
fn learned_rules_end_with_a_learner_that_expires_or_loses_its_meter() {
    let mut s = Switch::new();
    let mut c = s.service(Version::V13);
    let meter = openflow::msg::meter::Meter {
        id: 1,
        flags: openflow::msg::meter::flags::PKTPS,
        bands: vec![openflow::msg::meter::Band {
            ty: openflow::msg::meter::BandType::Drop,
            rate: 1,
            burst_size: 0,
        }],
    };
    let meter_mod =
        |command| Message::MeterMod(openflow::msg::meter::MeterMod { command, meter: meter.clone() });
    c.silent(&mut s, &meter_mod(openflow::msg::meter::MeterModCommand::Add));
    let learn = "learn(table=1,delete_learned,cookie=5,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[])";
    let chain = "learn(table=3,delete_learned,cookie=6,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[])";
    c.add(&mut s, &format!("hard_timeout=2,actions={learn}"));
    c.add(&mut s, &format!("table=2,actions=meter:1,{learn}"));
    // A learned rule learns itself.
    c.add(&mut s, &format!("cookie=5,table=1,tcp,actions={chain}"));
    for n in 0..3000 {
        c.add(&mut s, &format!("cookie=6,table=3,ip,nw_dst=10.0.{}.{},actions=drop", n >> 8, n & 255));
    }
    s.backer.expire(s.now_ms + 3000);
    assert_eq!(s.rules().len(), 3002, "another rule learns under this cookie");
    let delete = meter_mod(openflow::msg::meter::MeterModCommand::Delete);
    s.manager.input(c.id, &encode(&delete, c.version, 900).unwrap(), s.now_ms);
    while s.manager.next_wakeup_ms() == Some(0) {
        s.with(|m, ctx, now| m.run(ctx, now));
    }
    assert!(s.rules().is_empty());
    c.add(&mut s, &format!("hard_timeout=2,actions={learn}"));
    c.add(&mut s, "cookie=5,table=1,tcp,actions=drop");
    s.backer.expire(s.now_ms + 3000);
    assert!(s.rules().is_empty());
}

#[test]
fn a_batch_is_all_or_nothing_and_says_which_failed() {
    let s = Switch::new();
    let cx = ModContext {
        version: Version::V13,
        now_ms: 5,
        debug_actions: true,
        has_meter: &|_| false,
        can: Capabilities::ENOUGH,
    };
    let mods = |texts: &[&str]| texts.iter().map(|t| flow_mod(Add, t)).collect::<Vec<_>>();
    let bad = mods(&[
        "priority=5,tcp,actions=1",
        "priority=6,udp,actions=1",
        "check_overlap,priority=5,ip,actions=1",
    ]);
    let refused = apply_all(&s, &bad, &cx);
    assert_eq!(refused, Err((2, ErrorKind::FmfcOverlap)));
    assert!(s.rules().is_empty());
    let numbered = || bad[..1].iter().map(|fm| (Mod::Flow(fm.clone()), Box::default()));
    assert!(Transaction::begin(&s.backer, ofproto::ids::BridgeId(99), numbered()).is_none());
    let epoch = s.backer.epoch();
    assert_eq!(apply_all(&s, &bad[..2], &cx), Ok(()));
    assert_eq!((s.rules().len(), s.backer.epoch()), (2, epoch + 1), "one change of the view");
}

#[test]
fn a_batch_that_fails_leaves_the_timers_of_rules_alone() {
    let mut s = Switch::new();
    let mut c = s.service(Version::V13);
    c.add(&mut s, "priority=5,tcp,idle_timeout=10,hard_timeout=20,actions=1");
    count(&s, 3);
    let times = |s: &Switch| {
        let view = s.backer.view();
        let r = view.bridge(s.bridge).unwrap().tables.iter().next().unwrap().clone();
        (r.stats.used_ms(), r.created_ms, r.modified_ms, r.stats.counts())
    };
    let (before, rules) = (times(&s), s.rules());
    s.pass(4000);
    let cx = ModContext {
        version: Version::V13,
        now_ms: s.now_ms,
        debug_actions: true,
        has_meter: &|_| false,
        can: Capabilities::ENOUGH,
    };
    let bad = [
        flow_mod(Add, "priority=5,tcp,idle_timeout=10,actions=2"),
        flow_mod(Modify, "tcp,actions=2"),
        flow_mod(Add, "check_overlap,priority=5,ip,actions=1"),
    ];
    let refused = apply_all(&s, &bad, &cx);
    assert_eq!(refused, Err((2, ErrorKind::FmfcOverlap)));
    assert_eq!((times(&s), s.rules()), (before, rules));
    assert_eq!(apply_all(&s, &bad[..1], &cx), Ok(()));
    assert_eq!((times(&s).0, times(&s).1), (before.0, s.now_ms), "as in OVS the idle time goes on");
}

#[test]
fn flow_mods_that_come_together_are_one_change_and_fail_each_for_itself() {
    let mut s = Switch::new();
    let mut c = s.service(Version::V13);
    let epoch = s.backer.epoch();
    let mut bytes = Vec::new();
    let lines = [
        (Add, "priority=1,tcp,actions=1"),
        (Add, "check_overlap,priority=1,tcp,tp_dst=80,actions=2"),
        (
            Add,
            "priority=2,udp,actions=learn(table=3,delete_learned,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])",
        ),
        (Delete, "tcp"),
        (Add, "priority=3,ip,actions=meter:9,output:1"),
        (Modify, "udp,actions=2"),
    ];
    for (i, (command, line)) in lines.into_iter().enumerate() {
        let fm = Message::FlowMod(flow_mod(command, line));
        bytes.extend(encode(&fm, Version::V13, 200 + i as u32).unwrap());
    }
    bytes.extend(encode(&Message::BarrierRequest, Version::V13, 300).unwrap());
    c.received.clear();
    c.send_bytes(&mut s, &bytes);
    let told: Vec<_> = c
        .received
        .iter()
        .map(|(xid, m)| match m {
            Message::Error(e) => (*xid, Some(e.error)),
            other => {
                assert_eq!(*other, Message::BarrierReply);
                (*xid, None)
            }
        })
        .collect();
    let error = |kind| Some(ErrorCode::Known(kind));
    let want = [(201, error(ErrorKind::FmfcOverlap)), (204, error(ErrorKind::MmfcInvalidMeter)), (300, None)];
    assert_eq!(told, want, "errors come before the answer of the barrier behind them");
    assert_eq!(s.rules(), ["table=0 cookie=0x0 priority=2,udp output:2 n=0"]);
    assert_eq!(s.backer.epoch(), epoch + 1);
}

#[test]
fn a_rule_ends_by_the_timeouts_of_its_last_version() {
    let mut s = Switch::new();
    let mut c = s.service(Version::V13);
    c.add(&mut s, "tcp,actions=1");
    c.add(&mut s, "table=1,udp,idle_timeout=1,actions=1");
    // Replaced by a permanent rule, and by a temporary one.
    c.add(&mut s, "table=1,udp,actions=2");
    c.add(&mut s, "tcp,hard_timeout=3,actions=2");
    c.flow(&mut s, Modify, "tcp,actions=3");
    s.pass(2000);
    assert_eq!(s.rules().len(), 2);
    s.pass(2000);
    assert_eq!(s.rules(), ["table=1 cookie=0x0 udp output:2 n=0"]);
}
