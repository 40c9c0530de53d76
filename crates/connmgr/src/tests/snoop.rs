//! Snoops of a bridge's controllers.

use super::*;
use openflow::session::CloseReason;

/// Messages received by a snoop, in wire form, except the hello.
fn copies(s: &mut Switch, id: ConnId) -> Vec<Vec<u8>> {
    let bytes = s.manager.take_output(id);
    let frames = openflow::fuzz::split_frames(&bytes);
    assert_eq!(frames.iter().map(|f| f.len()).sum::<usize>(), bytes.len(), "whole messages only");
    frames.into_iter().filter(|f| f[1] != 0).map(<[u8]>::to_vec).collect()
}

#[test]
fn a_snoop_gets_both_directions_and_nothing_else() {
    let mut s = Switch::new();
    let watcher = s.client(ConnKind::Snoop, Version::V13).id;
    let mut service = s.service(Version::V13);
    let mut controller = s.controller(Version::V13);
    copies(&mut s, watcher);
    service.add(&mut s, "actions=controller");
    assert_eq!(copies(&mut s, watcher), Vec::<Vec<u8>>::new());
    controller.silent(&mut s, &Message::FlowModTableId(false));
    let seen: Vec<(u8, u8)> = copies(&mut s, watcher).iter().map(|f| (f[0], f[1])).collect();
    // NXT_FLOW_MOD_TABLE_ID, the barrier, its reply.
    assert_eq!(seen, [(4, 4), (4, 20), (4, 21)]);
    // Messages from a snoop are ignored.
    let barrier = encode(&Message::BarrierRequest, Version::V13, 9).unwrap();
    s.with(|m, ctx, now| {
        m.input(watcher, &barrier, now);
        m.run(ctx, now);
    });
    assert_eq!(copies(&mut s, watcher), Vec::<Vec<u8>>::new());
    // Events are copied, too; without a snoop, no copies are kept.
    let p = port(OfPort(3), Some(3), "p3");
    let now = s.now_ms;
    s.manager.port_changed(None, Some(&p), now);
    s.run();
    assert_eq!(copies(&mut s, watcher).iter().map(|f| f[1]).collect::<Vec<_>>(), [12, 12]);
    s.with(|m, ctx, now| m.close(watcher, ctx, now));
    controller.silent(&mut s, &Message::FlowModTableId(false));
}

#[test]
fn a_watcher_that_does_not_read_is_left_and_the_controller_is_served_on() {
    let mut s = Switch::new();
    let watcher = s.client(ConnKind::Snoop, Version::V13).id;
    let mut controller = s.controller(Version::V13);
    let ask = Message::EchoRequest(vec![7; 60_000]);
    for _ in 0..200 {
        let bytes = encode(&ask, Version::V13, 3).unwrap();
        controller.send_bytes(&mut s, &bytes);
        controller.received.clear();
    }
    assert_eq!(s.manager.close_reason(watcher), Some(CloseReason::OutputOverflow));
    assert!(s.manager.output(watcher).len() <= 8 << 20);
    controller.one(&mut s, &Message::GetConfigRequest);
}
