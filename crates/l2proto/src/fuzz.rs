//! Fuzz targets: any packets into a session of each protocol.
//!
//! A spanning tree has two ports, so that frames that one receives leave by the other.

use crate::bfd::{
    Config, Environment, Flags, MESSAGE_BYTES, Message, Received, SessionId, Sessions, State, udp_payload,
};
use crate::lacp::{self, Aggregators, Parsed, Pdu};
use crate::membership;
use crate::protocol::{Columns, LinkPort, LinkProtocol, LinkValue, Table};
use crate::spanning_tree::{self, Bpdu};
use crate::{Engines, LinkSettings, Protocol, cfm, lldp};
use flow::{MacAddr, OfPort};
use packet::checksum;
use std::collections::BTreeMap;
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

/// Rows of a port with LACP.
struct LacpRows {
    is_active: bool,
    port: BTreeMap<String, String>,
}

impl Columns for LacpRows {
    fn column(&self, table: Table, name: &str) -> Option<LinkValue> {
        match (table, name) {
            (Table::Port, "lacp") => {
                Some(LinkValue::Text(if self.is_active { "active" } else { "passive" }.to_string()))
            }
            (Table::Port, "other_config") => Some(LinkValue::Map(self.port.clone())),
            _ => None,
        }
    }

    fn is_local(&self) -> bool {
        false
    }

    fn members(&self) -> usize {
        2
    }
}

/// The first byte selects settings. Each packet follows two bytes: the pause before it with, in the top bit, its member, and
/// its length with, in the top bit, whether it is a payload or a frame. A parsed message is written as it was read;
/// members that carry traffic have one partner; a member needs little service at one time, and sends few messages.
pub fn lacp_packets(bytes: &[u8]) {
    let Some((&settings, mut bytes)) = bytes.split_first() else { return };
    let bit = |n: u8| settings >> n & 1 != 0;
    let pairs = [
        ("lacp-time", if bit(1) { "fast" } else { "slow" }),
        ("lacp-fallback-ab", if bit(2) { "true" } else { "false" }),
        ("lacp-system-priority", if bit(3) { "1" } else { "65535" }),
    ];
    let port = pairs.map(|(key, value)| (key.to_string(), value.to_string())).into();
    let (Some(config), _) = lacp::Config::parse(&LacpRows { is_active: bit(0), port }) else { return };
    let link = |n: u8, is_up: bool| LinkPort {
        interface: format!("p{n}"),
        port: "bond0".to_string(),
        bridge: "br0".to_string(),
        of_port: OfPort(u32::from(n) + 1),
        mac: MacAddr([2, 0, 0, 0, 0, n]),
        bridge_mac: MacAddr([2, 0, 0, 0, 1, 0]),
        is_up,
        speed_mbps: 0,
        is_full_duplex: true,
    };
    let (mut all, mut now_ms) = (Aggregators::default(), 1);
    let ids = [0, 1].map(|n| all.put(&link(n, true), &config, now_ms));
    let (mut messages, mut packets) = (0, 0);
    while let Some((&[pause, length], rest)) = bytes.split_first_chunk() {
        now_ms += u64::from(pause & 0x7f) * PAUSE_UNIT_MS;
        let (packet, rest) = rest.split_at(usize::from(length & 0x7f).min(rest.len()));
        bytes = rest;
        let n = pause >> 7;
        let payload = if length & 0x80 == 0 { Some(packet) } else { lacp::payload(packet) };
        if let Some(Parsed::Pdu(pdu)) = payload.map(Pdu::parse) {
            assert_eq!(Pdu::parse(&pdu.to_bytes()), Parsed::Pdu(pdu));
        }
        all.input(ids[usize::from(n)], payload.unwrap_or_default(), now_ms);
        if length == 0 {
            // The carrier flaps.
            all.put(&link(n, pause & 1 != 0), &config, now_ms);
        }
        packets += 1;
        assert!(
            !all.tick(now_ms, SERVICES_MAX, |_, frame| {
                messages += 1;
                let sent = lacp::payload(&frame).map(Pdu::parse);
                assert!(matches!(sent, Some(Parsed::Pdu(_))), "sent a bad message");
            }),
            "work without end"
        );
        assert!(all.next_wakeup().is_none_or(|at_ms| at_ms > now_ms));
        let members = ids.map(|id| all.member(id));
        let partners =
            members.map(|member| member.filter(|m| m.is_attached()).map(|m| m.partner().system.id));
        assert!(partners.contains(&None) || partners[0] == partners[1], "{partners:?}");
        assert_eq!(all.show(None).unwrap_or_default().lines().count(), 6 + 2 * 19);
    }
    // Two a second by the timers, ten more at once by changes and then one each 100 ms.
    let limit = 2 * (now_ms / 1000 + 1 + now_ms / 100 + 10).min(packets + 1);
    assert!(messages <= limit, "{messages} of {packets} packets");
}

/// The port of a session.
fn port() -> LinkPort {
    LinkPort {
        interface: "p".to_string(),
        port: "p".to_string(),
        bridge: "br0".to_string(),
        of_port: flow::OfPort(1),
        mac: MacAddr([2; 6]),
        bridge_mac: MacAddr([2; 6]),
        is_up: true,
        speed_mbps: 0,
        is_full_duplex: true,
    }
}

/// Passes frames, each behind a byte for the pause and two for its length, to a session, and serves it between them;
/// `sent` checks the frames that it sends.
fn run_frames<E: LinkProtocol>(
    engine: &mut E,
    settings: &E::Settings,
    mut bytes: &[u8],
    sent: impl Fn(&[u8]),
) {
    let mut now_ms = 1;
    let id = engine.configure(&port(), settings, now_ms, &mut Still);
    while let Some((&[pause, high, low], rest)) = bytes.split_first_chunk() {
        now_ms += u64::from(pause) * PAUSE_UNIT_MS;
        let length = usize::from(u16::from_be_bytes([high, low])).min(rest.len());
        let (frame, rest) = rest.split_at(length);
        bytes = rest;
        let payload = E::payload(frame).map(|payload| &payload[..payload.len().min(E::PAYLOAD_BYTES_MAX)]);
        assert_eq!(engine.input(id, Received { ttl: 0, payload }, now_ms, &mut Still), Ok(()));
        let mut out = Vec::new();
        assert!(!engine.tick(now_ms, SERVICES_MAX, &mut Still, &mut out), "work without end");
        out.iter().for_each(|(_, transmission)| sent(&transmission.frame));
        assert!(engine.next_wakeup() > Some(now_ms));
        while engine.take_report().is_some() {}
        for row in E::COMMANDS.iter().filter(|row| row.min_args == 0) {
            let shown = (row.run)(engine, &[], now_ms).unwrap_or_default();
            assert!(!shown.is_empty());
        }
        engine.status(id, now_ms);
    }
}

/// The first byte selects settings; frames follow.
pub fn cfm_frames(bytes: &[u8]) {
    let Some((&settings, bytes)) = bytes.split_first() else { return };
    let mut config = cfm::Config::new(7);
    config.is_extended = settings & 1 != 0;
    config.is_demand = settings & 3 == 3;
    config.set_interval([100, 5, 70_000, 10][usize::from(settings >> 2 & 3)]);
    let mut sessions = cfm::Sessions::default();
    run_frames(&mut sessions, &config, bytes, |frame| {
        let sent = cfm::parse_frame(frame).map(|frame| frame.message);
        assert!(
            matches!(sent, Ok(Some(message)) if cfm::Message::parse(&message.to_bytes()) == Ok(Some(message)))
        );
    });
}

/// Frames of LLDP.
pub fn lldp_frames(bytes: &[u8]) {
    let mapping = |isid| lldp::Mapping { isid, vlan: 10 };
    let config = lldp::Config {
        name: "s1".to_string(),
        description: "d".to_string(),
        mappings: Some(vec![mapping(1000), mapping(0xff_ffff)]),
    };
    let mut sessions = lldp::Sessions::default();
    run_frames(&mut sessions, &config, bytes, |frame| {
        let sent = lldp::parse(frame).unwrap_or_else(|refusal| panic!("sent a bad frame: {refusal}"));
        assert_eq!((sent.ttl_s, sent.assignments.len()), (lldp::TTL_S, 2));
    });
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

/// Any text as the state of a session. The first byte selects its protocol, the second one settings. A session that goes on
/// from it runs for two minutes, and moves once more.
pub fn saved_states(bytes: &[u8]) {
    let Some((&[which, variant], text)) = bytes.split_first_chunk() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let protocol = Protocol::ALL[usize::from(which) % Protocol::ALL.len()];
    let Some(settings) = plain_settings(protocol, variant & 1 != 0) else { return };
    let mut now_ms = 1_000_000;
    let mut engines = Engines::default();
    if engines.get(protocol).restore("p1", text, now_ms).is_err() {
        return;
    }
    for round in 0..2 {
        for name in ["p1", "p2"] {
            let port = LinkPort { bridge: "br0".to_string(), is_up: true, ..LinkPort::named(name) };
            engines.configure(&port, &settings, now_ms, &mut Still);
        }
        let mut sent = Vec::new();
        for _ in 0..60 {
            (0..SERVICES_MAX).for_each(|_| _ = engines.get(protocol).tick(now_ms, 8, &mut Still, &mut sent));
            now_ms += 2000;
        }
        let engine = engines.get(protocol);
        while engine.take_report().is_some() {}
        let id = engine.find("p1").expect("it is there");
        let (_, _) = (engine.status(id, now_ms), engine.link_state(id, now_ms));
        let saved = engine.saved(id, now_ms).expect("it is there");
        engines = Engines::default();
        assert_eq!(engines.get(protocol).restore("p1", &saved, now_ms), Ok(()), "round {round}: {saved}");
    }
}

/// Settings of a protocol.
fn plain_settings(protocol: Protocol, is_other: bool) -> Option<LinkSettings> {
    struct Plain(bool);
    impl Columns for Plain {
        fn column(&self, table: Table, name: &str) -> Option<LinkValue> {
            let enable = || BTreeMap::from([("enable".to_string(), "true".to_string())]);
            match (table, name) {
                (Table::Interface, "bfd" | "lldp") => Some(LinkValue::Map(enable())),
                (Table::Interface, "cfm_mpid") => Some(LinkValue::Integer(1)),
                (Table::Port, "lacp") => Some(LinkValue::Text("active".to_string())),
                (Table::Bridge, "stp_enable") => Some(LinkValue::Flag(!self.0)),
                (Table::Bridge, "rstp_enable") => Some(LinkValue::Flag(self.0)),
                _ => None,
            }
        }

        fn is_local(&self) -> bool {
            false
        }

        fn members(&self) -> usize {
            1
        }
    }
    let (found, _) = LinkSettings::parse(&Plain(is_other));
    found.into_iter().find(|found| found.protocol() == protocol)
}
