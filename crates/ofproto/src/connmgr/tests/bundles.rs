//! Bundles: order, atomicity, errors, bounds.

use super::*;
use openflow::msg::control::{BundleAdd, BundleControl, BundleControlType};

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
    for version in [Version::V10, Version::V13] {
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
fn a_bundle_that_fails_changes_nothing_and_both_errors_are_told() {
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
    let due_ms = s.now_ms + super::super::bundle::IDLE_MS;
    assert_eq!(s.manager.next_wakeup_ms(), Some(due_ms));
    s.now_ms = due_ms;
    let told = c.events(&mut s);
    assert_eq!(told.len(), super::super::bundle::MAX_BUNDLES);
    assert!(
        told.iter()
            .all(|m| matches!(m, Message::Error(e) if e.error == ErrorCode::Known(ErrorKind::BfcTimeout)))
    );
    done(&mut c, &mut s, &open(1000), BundleControlType::OpenReply);
}
