//! Barriers wait until the datapath follows the rules, and hold up nobody else.

use super::*;
use dpif::{PmdId, Ticket, Upcall, UpcallKind};
use flow::extract::{Metadata, extract};
use flow::{FlowKey, Ufid};
use ofproto::barrier::PATIENCE_MS;
use ofproto::upcall::{handle, put_done};
use sync::Ordering;

/// The miss of a frame without payload, received on port 1.
fn miss() -> Box<Upcall> {
    let frame = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xcc][..], &[0; 46]].concat();
    let mut key = FlowKey::default();
    extract(&frame, &Metadata { in_port: 1, ..Metadata::default() }, 1, &mut key);
    Box::new(Upcall {
        kind: UpcallKind::Miss,
        packet: packet::Packet::from_slice(&frame),
        key,
        ufid: Ufid(1),
        pmd: PmdId::Core(0),
        rx_port: DpPort(1),
        ticket: Some(Ticket(9)),
        received_us: 0,
        tunnel_out: None,
    })
}

/// A switch with a flow in its datapath, made by the rules.
fn with_a_flow() -> Switch {
    let s = Switch::new();
    assert!(!handle(&s.backer, vec![miss()], s.now_ms).is_empty());
    put_done(&s.backer, PmdId::Core(0), Ufid(1), true);
    s.backer.barrier.set_covered(s.backer.epoch());
    s
}

/// Sends a flow-mod, a barrier and an echo request; returns the replies so far.
fn begin(s: &mut Switch, client: &mut Client, line: &str) -> Vec<Message> {
    let mut bytes = encode(&Message::FlowMod(flow_mod(TextCommand::Add, line)), client.version, 7).unwrap();
    bytes.extend(encode(&Message::BarrierRequest, client.version, 8).unwrap());
    bytes.extend(encode(&Message::EchoRequest(b"later".to_vec()), client.version, 9).unwrap());
    client.received.clear();
    client.send_bytes(s, &bytes);
    client.received.drain(..).map(|(_, m)| m).collect()
}

#[test]
fn a_barrier_waits_for_the_datapath_and_later_requests_with_it() {
    for version in [Version::V10, Version::V13, Version::V15] {
        let mut s = with_a_flow();
        let (mut a, mut b) = (s.service(version), s.service(version));
        let echo = Message::EchoReply(b"later".to_vec());
        // A change that affects no flow.
        assert_eq!(
            begin(&mut s, &mut a, "priority=9,in_port=2,actions=2"),
            [Message::BarrierReply, echo.clone()]
        );
        assert_eq!(begin(&mut s, &mut a, "priority=9,in_port=1,actions=2"), []);
        assert!(s.manager.next_wakeup_ms().is_some_and(|at| at <= s.now_ms + PATIENCE_MS && at > s.now_ms));
        // Others do not wait, nor do their barriers.
        assert_eq!(b.ask(&mut s, &Message::GetConfigRequest).len(), 1);
        s.backer.barrier.set_covered(s.backer.epoch());
        assert_eq!(a.events(&mut s), [Message::BarrierReply, echo]);
        assert_eq!(s.backer.barrier.timeouts.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn a_barrier_ends_in_time_and_while_revalidation_is_held() {
    let mut s = with_a_flow();
    let mut a = s.service(Version::V13);
    assert_eq!(begin(&mut s, &mut a, "priority=9,in_port=1,actions=2"), []);
    s.now_ms += PATIENCE_MS - 1;
    assert_eq!(a.events(&mut s), []);
    s.now_ms += 1;
    assert_eq!(a.events(&mut s).len(), 2);
    assert_eq!(s.backer.barrier.timeouts.load(Ordering::Relaxed), 1);
    assert_eq!(begin(&mut s, &mut a, "priority=9,in_port=1,actions=1"), []);
    s.backer.barrier.paused.store(true, Ordering::Release);
    assert_eq!(a.events(&mut s).len(), 2);
    assert_eq!(begin(&mut s, &mut a, "priority=9,in_port=1,actions=2").len(), 2);
    assert_eq!(s.backer.barrier.timeouts.load(Ordering::Relaxed), 1);
}
