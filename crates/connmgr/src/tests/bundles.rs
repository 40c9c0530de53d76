//! Bundles: order, atomicity, errors, bounds.

use super::*;
use dpif::actions::Output;
use openflow::msg::bundle::{BundleAdd, BundleControl, BundleControlType};
use openflow::msg::group::GroupModCommand;
use openflow::msg::packet::PacketOut;
use openflow::text::parse_group_mod;

fn control(id: u32, ty: BundleControlType, flags: u16) -> Message {
    Message::BundleControl(BundleControl { bundle_id: id, ty, flags })
}

fn open(id: u32) -> Message {
    control(id, BundleControlType::OpenRequest, 3)
}

fn commit(id: u32) -> Message {
    control(id, BundleControlType::CommitRequest, 3)
}

fn close(id: u32) -> Message {
    control(id, BundleControlType::CloseRequest, 3)
}

fn add(id: u32, message: Message) -> Message {
    Message::BundleAdd(BundleAdd { bundle_id: id, flags: 3, message: Box::new(message) })
}

fn add_flow(id: u32, text: &str) -> Message {
    add(id, Message::FlowMod(flow_mod(TextCommand::Add, text)))
}

fn done(c: &mut Client, s: &mut Switch, m: &Message, ty: BundleControlType) {
    match c.one(s, m) {
        Message::BundleControl(b) => assert_eq!((b.ty, b.flags), (ty, 0)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_bundle_happens_at_once_when_it_is_committed() {
    for version in [Version::V14, Version::V13] {
        let mut s = Switch::new();
        let mut c = s.service(version);
        done(&mut c, &mut s, &open(7), BundleControlType::OpenReply);
        c.silent(&mut s, &add_flow(7, "table=1,tcp,actions=1"));
        c.silent(&mut s, &add(7, Message::FlowMod(flow_mod(TextCommand::Delete, "table=1"))));
        c.silent(&mut s, &add_flow(7, "table=1,udp,actions=1"));
        assert!(s.rules().is_empty());
        done(&mut c, &mut s, &close(7), BundleControlType::CloseReply);
        let epoch = s.backer.epoch();
        done(&mut c, &mut s, &commit(7), BundleControlType::CommitReply);
        assert_eq!(s.rules().len(), 1, "in order");
        assert_eq!(s.backer.epoch(), epoch + 1);
    }
}

/// Sends the commit of bundle 1 with the transaction id 900; only its answers are received then.
fn send_commit(c: &mut Client, s: &mut Switch) {
    c.received.clear();
    let bytes = encode(&commit(1), c.version, 900).unwrap();
    c.send_bytes(s, &bytes);
}

#[test]
fn a_failed_bundle_changes_nothing_and_reports_both_errors() {
    let mut s = Switch::new();
    let mut c = s.service(Version::V13);
    done(&mut c, &mut s, &open(1), BundleControlType::OpenReply);
    c.silent(&mut s, &add_flow(1, "table=1,priority=5,tcp,actions=1"));
    c.silent(&mut s, &add_flow(1, "table=1,check_overlap,priority=5,ip,actions=1"));
    send_commit(&mut c, &mut s);
    let errors: Vec<_> = c
        .received
        .iter()
        .map(|(xid, m)| match m {
            Message::Error(e) => (*xid, e.error),
            other => panic!("{other:?}"),
        })
        .collect();
    let add_xid = c.xid;
    let want = [
        (add_xid, ErrorCode::Known(ErrorKind::FmfcOverlap)),
        (900, ErrorCode::Known(ErrorKind::BfcMsgFailed)),
    ];
    assert_eq!(errors, want);
    assert!(s.rules().is_empty());
    assert_eq!(c.refused(&mut s, &commit(1)), ErrorKind::BfcBadId, "it is gone");
}

#[test]
fn bundle_errors_are_those_of_the_standard() {
    let mut s = Switch::new();
    let mut c = s.service(Version::V13);
    for ty in
        [BundleControlType::CommitRequest, BundleControlType::CloseRequest, BundleControlType::DiscardRequest]
    {
        assert_eq!(c.refused(&mut s, &control(4, ty, 3)), ErrorKind::BfcBadId);
    }
    assert_eq!(c.refused(&mut s, &control(4, BundleControlType::OpenReply, 3)), ErrorKind::BfcBadType);
    done(&mut c, &mut s, &open(1), BundleControlType::OpenReply);
    assert_eq!(c.refused(&mut s, &open(1)), ErrorKind::BfcBadId);
    done(&mut c, &mut s, &open(1), BundleControlType::OpenReply);
    let other_flags = control(1, BundleControlType::CommitRequest, 1);
    assert_eq!(c.refused(&mut s, &other_flags), ErrorKind::BfcBadFlags);
    done(&mut c, &mut s, &open(2), BundleControlType::OpenReply);
    done(&mut c, &mut s, &close(2), BundleControlType::CloseReply);
    assert_eq!(c.refused(&mut s, &add_flow(2, "actions=1")), ErrorKind::BfcBundleClosed);
    // An add opens the bundle; it can be discarded.
    c.silent(&mut s, &add_flow(3, "actions=1"));
    done(&mut c, &mut s, &control(3, BundleControlType::DiscardRequest, 3), BundleControlType::DiscardReply);
    assert!(s.rules().is_empty());
    let port_mod = openflow::msg::port::PortMod {
        port: OfPort(1),
        hw_addr: MacAddr::default(),
        config: 0,
        mask: 0,
        advertise: 0,
    };
    assert_eq!(c.refused(&mut s, &add(3, Message::PortMod(port_mod))), ErrorKind::BfcMsgUnsup);
}

#[test]
fn bundles_are_bounded_in_number_and_time() {
    let mut s = Switch::new();
    let mut c = s.service(Version::V13);
    for id in 0..super::super::bundle::MAX_BUNDLES as u32 {
        done(&mut c, &mut s, &open(id), BundleControlType::OpenReply);
    }
    assert_eq!(c.refused(&mut s, &open(1000)), ErrorKind::BfcOutOfBundles);
    let due_ms = s.now_ms + 10_000;
    assert_eq!(s.manager.next_wakeup_ms(), Some(due_ms));
    s.now_ms = due_ms;
    let told = c.events(&mut s);
    assert_eq!(told.len(), super::super::bundle::MAX_BUNDLES);
    assert!(
        told.iter()
            .all(|m| matches!(m, Message::Error(e) if e.error == ErrorCode::Known(ErrorKind::BfcTimeout)))
    );
    done(&mut c, &mut s, &open(1000), BundleControlType::OpenReply);
    // Bundles opened after a change of the timeout.
    s.backer.limits.bundle_idle_ms.store(3_000, sync::Ordering::Relaxed);
    done(&mut c, &mut s, &open(1001), BundleControlType::OpenReply);
    assert_eq!(s.manager.next_wakeup_ms(), Some(s.now_ms + 3_000));
}

const MANY: u32 = 20_000;

/// Opens bundle 1 of a connection, which adds `MANY` rules between others, and sends the commit under transaction id
/// 900.
fn begin_large(s: &mut Switch, c: &mut Client, first: &[&str], last: &[&str]) {
    done(c, s, &open(1), BundleControlType::OpenReply);
    for text in first {
        c.silent(s, &add_flow(1, text));
    }
    let mut bytes = Vec::new();
    for n in 0..MANY {
        let text = format!("cookie=7,table=3,ip,nw_dst=10.1.{}.{},actions=1", n >> 8, n & 255);
        bytes.extend(encode(&add_flow(1, &text), c.version, 800).unwrap());
    }
    for text in last {
        bytes.extend(encode(&add_flow(1, text), c.version, 801).unwrap());
    }
    bytes.extend(encode(&commit(1), c.version, 900).unwrap());
    c.received.clear();
    s.manager.input(c.id, &bytes, s.now_ms);
    while s.manager.shared.commit.is_none() {
        turn(s);
    }
}

fn turn(s: &mut Switch) {
    s.with(|m, ctx, now| m.run(ctx, now));
}

/// Turns until the open bundle is done.
fn finish(s: &mut Switch) -> usize {
    let mut turns = 0;
    while s.manager.shared.commit.is_some() {
        assert_eq!(s.manager.next_wakeup_ms(), Some(0));
        turn(s);
        turns += 1;
    }
    turns
}

fn count(s: &Switch) -> usize {
    s.backer.view().bridge(s.bridge).unwrap().tables.iter().count()
}

/// Rules of a cookie in the index.
fn of_cookie(s: &Switch, cookie: u64) -> usize {
    let all = ofproto::tables::Selection {
        table: TableId::ALL,
        matching: flow::Match::catchall().into(),
        cookie,
        cookie_mask: u64::MAX,
        out_port: OfPort::NONE,
        out_group: GROUP_ANY,
    };
    s.backer.view().bridge(s.bridge).unwrap().tables.select(&all).rest().len()
}

#[test]
fn a_large_bundle_goes_in_turns_and_changes_of_others_wait() {
    let mut s = Switch::new();
    let (mut a, mut b) = (s.service(Version::V13), s.service(Version::V13));
    b.add(&mut s, "cookie=5,table=1,tcp,idle_timeout=1,actions=1");
    let before = s.rules();
    begin_large(&mut s, &mut a, &["table=2,udp,actions=2"], &[]);
    // Replies show the tables before the commit; selections by cookie, too.
    let held = |s: &Switch| s.manager.held(a.id).unwrap().input_bytes;
    let held_open = held(&s);
    assert_eq!((s.rules(), of_cookie(&s, 5), of_cookie(&s, 7)), (before.clone(), 1, 0));
    let echo = b.one(&mut s, &Message::EchoRequest(b"?".to_vec()));
    assert!(matches!(echo, Message::EchoReply(_)) && s.manager.shared.commit.is_some());
    // Learned rules, timeouts and rules of other connections wait.
    let learned = ofproto::xlate::LearnedFlow {
        table: TableId(4),
        matching: flow::Match::catchall(),
        priority: 1,
        cookie: 9,
        idle_timeout_s: 0,
        hard_timeout_s: 0,
        flags: FlowModFlags::empty(),
        actions: Vec::new(),
        limit: 0,
    };
    assert!(s.backer.learn_rule(s.bridge, &learned, s.now_ms));
    s.backer.dump_completed(s.now_ms + 5000);
    s.backer.expire(s.now_ms + 5000);
    let delete = flow_mod(TextCommand::Delete, "table=3,ip,nw_dst=10.1.0.0/24");
    let mut bytes = encode(&Message::FlowMod(delete), b.version, 901).unwrap();
    bytes.extend(encode(&Message::BarrierRequest, b.version, 902).unwrap());
    s.manager.input(b.id, &bytes, s.now_ms);
    let fields = std::collections::BTreeMap::from([(3, vec![flow::fields::FieldId::IpSrc])]);
    s.backer.change_bridge(s.bridge, |bridge| bridge.tables.set_prefixes(&fields));
    assert_eq!(s.rules(), before);
    assert!(finish(&mut s) > 5);
    assert!(held_open - held(&s) > 200 * MANY as usize, "the open bundle counts: {held_open} bytes");
    while s.manager.is_busy(b.id) {
        turn(&mut s);
    }
    assert_eq!(count(&s), 3 + MANY as usize - 256);
    assert_eq!((of_cookie(&s, 7), of_cookie(&s, 9), of_cookie(&s, 5)), (MANY as usize - 256, 1, 1));
    let mut again = s.backer.view().bridge(s.bridge).unwrap().tables.clone();
    again.set_prefixes(&fields);
    assert!(again.commit().is_empty(), "prefixes that were set meanwhile stay");
    s.backer.expire(s.now_ms + 5000);
    assert_eq!(of_cookie(&s, 5), 0);
}

#[test]
fn a_large_bundle_that_fails_or_loses_its_connection_is_undone_in_turns() {
    for fails in [true, false] {
        let mut s = Switch::new();
        let (mut a, mut b) = (s.service(Version::V13), s.service(Version::V13));
        b.add(&mut s, "cookie=5,table=1,tcp,actions=1");
        b.add(&mut s, "cookie=7,table=3,priority=5,ip,nw_dst=10.1.0.0/16,actions=1");
        let before = s.rules();
        let first = ["cookie=7,table=1,tcp,actions=2", "cookie=6,table=9,priority=3,udp,actions=1"];
        let last = ["table=9,check_overlap,priority=3,udp,tp_dst=5,actions=1"];
        begin_large(&mut s, &mut a, &first, if fails { &last } else { &[] });
        turn(&mut s);
        assert_eq!(s.rules(), before);
        if !fails {
            let id = a.id;
            s.with(|m, ctx, now| m.close(id, ctx, now));
        }
        assert!(finish(&mut s) > if fails { 8 } else { 0 });
        if fails {
            let errors: Vec<_> = a
                .events(&mut s)
                .into_iter()
                .map(|m| match m {
                    Message::Error(e) => e.error,
                    other => panic!("{other:?}"),
                })
                .collect();
            assert_eq!(errors, [ErrorKind::FmfcOverlap, ErrorKind::BfcMsgFailed].map(ErrorCode::Known));
        }
        assert_eq!((s.rules(), of_cookie(&s, 5), of_cookie(&s, 7)), (before, 1, 1));
        b.flow(&mut s, TextCommand::Delete, "cookie=7/-1");
        assert_eq!((count(&s), of_cookie(&s, 7)), (1, 0));
    }
}

/// As OVS 3.5 leaves the rules of table 1 after these bundles: a cookie without a learner at any point of the bundle
/// loses its learned rules at the end, also those that the bundle adds. A learner replaced by one of the same cookie
/// keeps them.
#[test]
fn learned_rules_end_with_a_learner_that_a_bundle_replaces() {
    use TextCommand::{Add, Delete, DeleteStrict, Modify, ModifyStrict};
    let learns = |priority: u32| {
        format!("priority={priority},udp,actions=learn(table=1,cookie=5,delete_learned,NXM_OF_ETH_DST[])")
    };
    let (old, again, other) = ("priority=5,udp", learns(5), learns(6));
    let (learned, silent) = ("table=1,cookie=5,tcp,actions=drop", "priority=5,udp,actions=drop");
    let cases: [(&[(TextCommand, &str)], usize); 11] = [
        (&[(DeleteStrict, old), (Add, &again)], 0),
        (&[(Delete, "table=0"), (Add, &again)], 0),
        (&[(DeleteStrict, old), (Add, &other)], 0),
        (&[(ModifyStrict, silent), (Add, &other)], 0),
        (&[(Add, silent), (Add, &other)], 0),
        (&[(DeleteStrict, old), (Add, learned), (Add, &other)], 0),
        (&[(Add, learned), (DeleteStrict, old), (Add, &other)], 0),
        (&[(DeleteStrict, old), (Add, &other), (Add, learned)], 0),
        (&[(Add, &again)], 1),
        (&[(Modify, &again)], 1),
        (&[(Add, &other), (DeleteStrict, old)], 1),
    ];
    for (mods, left) in cases {
        for fails in [false, true] {
            let mut s = Switch::new();
            let mut c = s.service(Version::V14);
            c.add(&mut s, &again);
            c.add(&mut s, "table=1,cookie=5,udp,actions=drop");
            let before = s.rules();
            done(&mut c, &mut s, &open(7), BundleControlType::OpenReply);
            for (command, text) in mods {
                c.silent(&mut s, &add(7, Message::FlowMod(flow_mod(*command, text))));
            }
            if fails {
                c.silent(&mut s, &add_flow(7, "priority=5,udp,check_overlap,in_port=1,actions=drop"));
                c.silent(&mut s, &add_flow(7, "priority=6,udp,check_overlap,in_port=1,actions=drop"));
                let bytes = encode(&commit(7), c.version, 900).unwrap();
                c.send_bytes(&mut s, &bytes);
                s.backer.expire(s.now_ms + 1000);
                assert_eq!(s.rules(), before, "{mods:?}");
                continue;
            }
            done(&mut c, &mut s, &commit(7), BundleControlType::CommitReply);
            let there = s.rules().iter().filter(|r| r.starts_with("table=1 ")).count();
            assert_eq!(there, left, "{mods:?}");
        }
    }
}

/// A bundle that fails leaves the rules of a cookie alone that it would have learned under.
#[test]
fn a_failed_bundle_makes_no_rule_an_orphan() {
    let mut s = Switch::new();
    let mut c = s.service(Version::V14);
    c.add(&mut s, "table=1,cookie=5,udp,actions=drop");
    c.add(&mut s, "priority=6,tcp,actions=drop");
    let before = s.rules();
    done(&mut c, &mut s, &open(7), BundleControlType::OpenReply);
    c.silent(&mut s, &add_flow(7, "udp,actions=learn(table=1,cookie=5,delete_learned,NXM_OF_ETH_DST[])"));
    c.silent(&mut s, &add_flow(7, "priority=6,ip,check_overlap,actions=drop"));
    let bytes = encode(&commit(7), c.version, 900).unwrap();
    c.send_bytes(&mut s, &bytes);
    s.backer.expire(s.now_ms + 1000);
    assert_eq!(s.rules(), before);
}

#[test]
fn a_packet_of_a_bundle_sees_the_changes_before_it() {
    let group = |command, text| Message::GroupMod(parse_group_mod(text, command, &NoPortNames).unwrap());
    let make = || group(GroupModCommand::Add, "group_id=1,type=all,bucket=2");
    let gone = || group(GroupModCommand::Delete, "group_id=1");
    let flow = || Message::FlowMod(flow_mod(TextCommand::Add, "actions=group:1"));
    let packet = |text: &str| {
        let (in_port, data) = (OfPort::CONTROLLER, vec![0xaa; 60]);
        let actions = flow_mod(TextCommand::Add, text).actions;
        Message::PacketOut(PacketOut {
            buffer_id: NO_BUFFER,
            in_port,
            metadata: Box::default(),
            actions,
            data,
        })
    };
    let to_group = || packet("actions=group:1");
    let to_table = || packet("actions=resubmit(,0)");
    let cloned = || Message::FlowMod(flow_mod(TextCommand::Add, "actions=clone(group:1)"));
    let modify = || Message::FlowMod(flow_mod(TextCommand::Modify, "arp,actions=group:9"));
    let from = |message, port| match message {
        Message::PacketOut(out) => Message::PacketOut(PacketOut { in_port: OfPort(port), ..out }),
        other => other,
    };
    let sent = DpAction::Output(Output(DpPort(2)));
    // The answers are those of OVS 3.5: the number of the failed message, and the outputs.
    for (messages, failed, outputs) in [
        (vec![make(), flow(), to_group(), to_table(), gone()], None, 2),
        (vec![make(), flow(), gone(), to_table()], None, 0),
        (vec![make(), flow(), gone()], None, 0),
        (vec![to_group(), make()], Some(0), 0),
        (vec![make(), to_group(), gone(), to_group()], Some(3), 0),
        (vec![flow(), make()], Some(0), 0),
        (vec![cloned(), make()], Some(0), 0),
        (vec![modify(), packet("actions=77"), to_table()], None, 0),
        (vec![packet("actions=2"), from(packet("actions=2"), 88)], None, 2),
    ] {
        let mut s = Switch::new();
        let mut c = s.service(Version::V14);
        done(&mut c, &mut s, &open(1), BundleControlType::OpenReply);
        let mut xids = Vec::new();
        for message in &messages {
            c.silent(&mut s, &add(1, message.clone()));
            xids.push(c.xid);
        }
        send_commit(&mut c, &mut s);
        let errors: Vec<_> = c
            .received
            .iter()
            .filter_map(|(xid, m)| match m {
                Message::Error(e) => Some((*xid, e.error)),
                _ => None,
            })
            .collect();
        let expected = failed.map(|n: usize| {
            let kinds = [(xids[n], ErrorKind::BacBadOutGroup), (900, ErrorKind::BfcMsgFailed)];
            kinds.map(|(xid, kind)| (xid, ErrorCode::Known(kind))).to_vec()
        });
        assert_eq!(errors, expected.unwrap_or_default(), "{messages:?}");
        let executed: Vec<_> = s.datapath.executed.lock().unwrap().drain(..).collect();
        let made = executed.iter().filter(|e| e.actions.contains(&sent)).count();
        assert_eq!(made, outputs, "{messages:?}");
        assert_eq!(s.rules(), [""; 0]);
    }
}

/// As in OVS 3.5, a message that is invalid by itself is refused when it is added, and the others can be committed.
#[test]
fn a_bundle_goes_on_without_refused_messages() {
    let bad = |change: &dyn Fn(&mut openflow::msg::flow_mod::FlowMod)| {
        let mut fm = flow_mod(TextCommand::Add, "actions=1");
        change(&mut fm);
        add(1, Message::FlowMod(fm))
    };
    let mut s = Switch::new();
    let mut c = s.service(Version::V14);
    done(&mut c, &mut s, &open(1), BundleControlType::OpenReply);
    for (message, error) in [
        (bad(&|fm| fm.table = TableId::ALL), ErrorKind::FmfcBadTableId),
        (bad(&|fm| fm.table = TableId::INTERNAL), ErrorKind::BrcEperm),
        (bad(&|fm| fm.buffer_id = 5), ErrorKind::BrcBufferUnknown),
        (add_flow(1, "actions=dec_ttl"), ErrorKind::BacMatchInconsistent),
    ] {
        assert_eq!(c.refused(&mut s, &message), error);
    }
    c.silent(&mut s, &add_flow(1, "tcp,actions=1"));
    done(&mut c, &mut s, &commit(1), BundleControlType::CommitReply);
    assert_eq!(s.rules(), ["table=0 cookie=0x0 tcp output:1 n=0"]);
    // Others fail at their turn, with the others.
    for (message, error) in [
        (
            bad(&|fm| (fm.table, fm.command) = (TableId::INTERNAL, FlowModCommand::Delete)),
            ErrorKind::BrcEperm,
        ),
        (add_flow(1, "actions=meter:5"), ErrorKind::MmfcInvalidMeter),
    ] {
        c.silent(&mut s, &add_flow(1, "udp,actions=1"));
        c.silent(&mut s, &message);
        let xid = c.xid;
        send_commit(&mut c, &mut s);
        let told = c.received.iter().map(|(xid, m)| match m {
            Message::Error(e) => (*xid, e.error),
            other => panic!("{other:?}"),
        });
        let kinds = [(xid, error), (900, ErrorKind::BfcMsgFailed)];
        assert_eq!(told.collect::<Vec<_>>(), kinds.map(|(xid, kind)| (xid, ErrorCode::Known(kind))));
        assert_eq!(s.rules().len(), 1);
    }
}

/// Each version of the tables that a packet keeps counts, so that a bundle's memory is bounded.
#[test]
fn kept_tables_count_as_memory_of_a_bundle() {
    let mut s = Switch::new();
    let mut c = s.service(Version::V14);
    done(&mut c, &mut s, &open(1), BundleControlType::OpenReply);
    let out = Message::PacketOut(PacketOut {
        buffer_id: NO_BUFFER,
        in_port: OfPort::CONTROLLER,
        metadata: Box::default(),
        actions: Vec::new(),
        data: vec![0xaa; 60],
    });
    let held = |s: &Switch, c: &Client| s.manager.held(c.id).unwrap().input_bytes;
    let mut steps = Vec::new();
    for message in [add_flow(1, "tcp,actions=1"), add(1, out.clone()), add(1, out)] {
        let before = held(&s, &c);
        c.silent(&mut s, &message);
        steps.push(held(&s, &c) - before);
    }
    assert!(steps[1] > 8 << 10 && steps[0].max(steps[2]) < 2 << 10, "{steps:?}");
}
