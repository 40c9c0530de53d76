//! Bundles: order, atomicity, errors, bounds.

use super::*;
use openflow::msg::bundle::{BundleAdd, BundleControl, BundleControlType};

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

#[test]
fn a_failed_bundle_changes_nothing_and_reports_both_errors() {
    let mut s = Switch::new();
    let mut c = s.service(Version::V13);
    done(&mut c, &mut s, &open(1), BundleControlType::OpenReply);
    c.silent(&mut s, &add_flow(1, "table=1,priority=5,tcp,actions=1"));
    c.silent(&mut s, &add_flow(1, "table=1,check_overlap,priority=5,ip,actions=1"));
    c.received.clear();
    let bytes = encode(&commit(1), c.version, 900).unwrap();
    c.send_bytes(&mut s, &bytes);
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
    // Of bundles opened after a change of the timeout.
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
    let all = crate::tables::Selection {
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
    let learned = crate::xlate::LearnedFlow {
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
