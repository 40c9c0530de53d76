//! Fuzz targets: any packets into a session.
//!
//! A spanning tree has two ports, so that what one receives leaves by the other.

use crate::bfd::{
    Config, Environment, Flags, MESSAGE_BYTES, Message, Received, SessionId, Sessions, State, udp_payload,
};
use crate::spanning_tree::{self, Bpdu};
use flow::MacAddr;

/// Seconds of a session between two packets at most, so that all times stay small.
const PAUSE_UNIT_MS: u64 = 50;
/// Services of one session at one time: a packet, the start of a poll, its packet, an answer.
const SERVICES_MAX: usize = 4;

/// Draws the largest jitter, and no traffic but control packets.
struct Still;

impl Environment for Still {
    fn rx_packets(&mut self, _: SessionId) -> u64 {
        0
    }

    fn random(&mut self, below: u32) -> u32 {
        below - 1
    }
}

/// The first byte selects settings. Each packet follows two bytes: the pause before it, and its length with, in the top
/// bit, whether it is a payload or a frame. A refused packet changes no state; a session sends no poll together with an
/// answer, no two packets within half an interval, and needs little service at one time.
pub fn bfd_packets(bytes: &[u8]) {
    let Some((&settings, mut bytes)) = bytes.split_first() else { return };
    let bit = |n: u8| settings >> n & 1 != 0;
    let config = Config {
        enable: true,
        min_tx_ms: if bit(0) { 1 } else { 100 },
        min_rx_ms: if bit(1) { 1 } else { 300 },
        decay_min_rx_ms: if bit(2) { 2000 } else { 0 },
        forwarding_if_rx: bit(3),
        cpath_down: bit(4),
        multiplier: if bit(5) { 1 } else { 3 },
        ..Config::default()
    };
    let (mut sessions, mut now_ms) = (Sessions::default(), 1);
    let Some(id) = sessions.configure("p", MacAddr([2; 6]), &config, now_ms, &mut Still) else { return };
    while let Some((&[pause, length], rest)) = bytes.split_first_chunk() {
        now_ms += u64::from(pause) * PAUSE_UNIT_MS;
        let (packet, rest) = rest.split_at(usize::from(length & 0x7f).min(rest.len()));
        bytes = rest;
        let payload = if length & 0x80 == 0 { Some(packet) } else { udp_payload(packet) };
        let before = sessions.get(id).map(|session| session.state());
        if let Some(Ok(message)) = payload.map(Message::parse) {
            assert_eq!(Message::parse(&message.to_bytes()), Ok(message));
        }
        let taken = sessions.input(id, Received { ttl: 255, payload }, now_ms, &mut Still);
        assert!(taken != Ok(Ok(())) || payload.is_some_and(|payload| payload.len() >= MESSAGE_BYTES));
        if taken != Ok(Ok(())) {
            assert_eq!(sessions.get(id).map(|session| session.state()), before);
        }
        serve(&mut sessions, id, now_ms);
    }
}

/// Serves the session until nothing is due, and checks its packets and texts.
fn serve(sessions: &mut Sessions, id: SessionId, now_ms: u64) {
    let mut sent = Vec::new();
    assert!(!sessions.tick(now_ms, SERVICES_MAX, &mut Still, &mut sent), "work without end");
    for (_, transmission) in &sent {
        let payload = udp_payload(&transmission.frame).unwrap_or_default();
        let message = Message::parse(payload).map(|message| (message.flags, message.state));
        let (flags, state) = message.unwrap_or_else(|refusal| panic!("sent a bad packet: {refusal}"));
        assert!(!flags.has(Flags::POLL) || !flags.has(Flags::FINAL));
        assert_ne!(state, State::AdminDown);
    }
    assert!(sessions.next_wakeup() > Some(now_ms));
    let shown = sessions.show(None, now_ms).unwrap_or_default();
    assert_eq!(shown.lines().count(), 24);
    assert_eq!(sessions.status(id, now_ms).len(), 6);
}

/// The first byte selects the protocol. Each message follows three bytes: its port, the pause before it, and its length; in
/// the first the top bit cuts the carrier. The tree comes to rest, sends few frames, and has a text.
pub fn spanning_tree_messages(bytes: &[u8]) {
    let Some((&kind, mut bytes)) = bytes.split_first() else { return };
    let (mut tree, ids) = spanning_tree::small_bridge(kind & 1 != 0);
    let (mut now_ms, mut out) = (1000, Vec::new());
    while let Some((&[port, pause, length], rest)) = bytes.split_first_chunk() {
        now_ms += u64::from(pause) * PAUSE_UNIT_MS;
        let (message, rest) = rest.split_at(usize::from(length).min(rest.len()));
        bytes = rest;
        if let Some(bpdu) = Bpdu::parse(message) {
            let frame = bpdu.frame(MacAddr([2; 6]));
            assert_eq!(spanning_tree::payload(&frame).and_then(Bpdu::parse), Some(bpdu));
        }
        let id = ids[usize::from(port) % ids.len()];
        if port & 0x80 != 0 {
            spanning_tree::cut(&mut tree, usize::from(port) % ids.len(), kind & 1 != 0, now_ms);
        } else {
            tree.receive(id, Some(message), now_ms);
        }
        tree.serve(now_ms, usize::MAX, &mut out);
        assert!(out.len() < 200, "{} frames", out.len());
        out.clear();
        assert!(tree.wakes_at().is_none_or(|at_ms| at_ms > now_ms), "work without end");
    }
    let is_rapid = kind & 1 != 0;
    assert!(tree.show(None, is_rapid, now_ms).is_some_and(|text| text.lines().count() > 15));
}
