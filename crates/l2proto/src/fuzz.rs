//! Fuzz targets: any packets into a session.

use crate::bfd::{
    Config, Environment, Flags, MESSAGE_BYTES, Message, Received, SessionId, Sessions, State, udp_payload,
};
use crate::membership;
use flow::MacAddr;
use packet::checksum;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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

/// The first byte selects the version of IP; the rest is a payload, once as it is and once with a right checksum. A report
/// has no more groups than its bytes have room for.
pub fn membership(bytes: &[u8]) {
    let Some((&version, payload)) = bytes.split_first() else { return };
    let (v4, v6) = (Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
    let (ip, group_bytes, pseudo) = match version & 1 {
        0 => (IpAddr::V4(v4), 4, 0),
        _ => (IpAddr::V6(v6), 16, checksum::pseudo(&v6.octets(), &v6.octets(), 58, payload.len())),
    };
    let mut sealed = payload.to_vec();
    if let Some(field) = sealed.get_mut(2..4) {
        field.fill(0);
        let sum = !checksum::fold(checksum::sum(&sealed, pseudo));
        sealed[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    for payload in [payload, &sealed] {
        if let Ok(membership::Message::Report { records, .. }) = membership::parse(ip, ip, payload) {
            assert!(records.len() * group_bytes <= payload.len());
        }
    }
}
