//! Packet-ins, removed rules and port changes reach the connections that enabled them.

use super::*;
use flow::fields::FieldId;
use openflow::msg::asyncs::AsyncConfig;
use openflow::msg::control::SwitchConfig;
use openflow::msg::flow_mod::FlowRemovedReason;
use openflow::msg::packet::{PacketIn, PacketOut};
use openflow::msg::port::PortReason;

/// A UDP packet arrives on port 1.
fn packet_comes(s: &mut Switch) {
    let mut data = vec![0xff; 6];
    data.extend([0xaa, 0x55, 0xaa, 0x55, 0, 9, 8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
    data.extend([10, 0, 0, 1, 10, 0, 0, 2, 0, 1, 0, 2, 0, 8, 0, 0]);
    data.resize(60, 0);
    let mut sender = s.service(Version::V13);
    let actions =
        vec![ofp_actions::Action::Output(ofp_actions::Output { port: OfPort::TABLE, max_len_bytes: 0 })];
    let out = PacketOut { buffer_id: NO_BUFFER, in_port: OfPort(1), metadata: Box::default(), actions, data };
    sender.silent(s, &Message::PacketOut(out));
    s.with(|m, ctx, now| m.close(sender.id, ctx, now));
}

fn only_packet_in(events: Vec<Message>) -> PacketIn {
    match <[Message; 1]>::try_from(events) {
        Ok([Message::PacketIn(m)]) => m,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_packet_in_has_the_form_that_the_connection_chose() {
    for version in [Version::V10, Version::V13] {
        for (n, format) in [Format::Standard, Format::Nxt, Format::Nxt2].into_iter().enumerate() {
            let mut s = Switch::new();
            let mut c = s.controller(version);
            c.silent(&mut s, &Message::SetPacketInFormat(n as u32));
            c.add(&mut s, "cookie=0x77,udp,actions=load:5->NXM_NX_REG3[],controller(userdata=01.02)");
            packet_comes(&mut s);
            let m = only_packet_in(c.events(&mut s));
            assert_eq!((m.format, m.total_len_bytes, m.data.len(), m.buffer_id), (format, 60, 60, NO_BUFFER));
            assert_eq!(m.reason, ofp_actions::PacketInReason::Action);
            assert_eq!(m.metadata.get(FieldId::InPortOxm).0, 1);
            let plain_10 = version == Version::V10 && format == Format::Standard;
            if !plain_10 {
                assert_eq!((m.cookie, m.metadata.get(FieldId::Reg3).0), (0x77, 5));
            }
            if format == Format::Nxt2 {
                assert_eq!(m.userdata, [1, 2]);
            }
        }
    }
}

#[test]
fn table_misses_go_to_old_controllers_only() {
    for (version, told) in [(Version::V10, 1), (Version::V13, 0)] {
        let mut s = Switch::new();
        packet_comes(&mut s);
        let mut c = s.controller(version);
        assert_eq!(s.backer.view().bridge(s.bridge).unwrap().miss_to_controller, told == 1);
        packet_comes(&mut s);
        assert_eq!(c.events(&mut s).len(), told);
        let id = c.id;
        s.with(|m, ctx, now| m.close(id, ctx, now));
        assert!(!s.backer.view().bridge(s.bridge).unwrap().miss_to_controller);
    }
}

#[test]
fn reasons_of_packet_ins_and_their_choice_follow_the_version() {
    use ofp_actions::PacketInReason::{Action, InvalidTtl, NoMatch};
    // Per version: the reported reason, and the configuration bit that selects a connection.
    let rows = [
        ("priority=0,actions=controller(userdata=01)", (Action, 0), (NoMatch, 0)),
        ("priority=0,actions=controller(reason=no_match)", (NoMatch, 0), (NoMatch, 0)),
        ("priority=5,udp,actions=controller(reason=no_match)", (NoMatch, 0), (NoMatch, 0)),
        ("priority=5,udp,actions=controller(reason=invalid_ttl)", (InvalidTtl, 2), (InvalidTtl, 2)),
        ("priority=0,udp,actions=controller", (Action, 1), (Action, 1)),
        ("priority=5,actions=controller", (Action, 1), (Action, 1)),
        ("priority=0,actions=write_actions(controller)", (Action, 1), (Action, 1)),
    ];
    for (text, old, new) in rows {
        for (version, (reason, chosen)) in [(Version::V10, old), (Version::V13, new)] {
            let mut s = Switch::new();
            s.service(Version::V13).add(&mut s, text);
            for bit in 0..3 {
                let mut c = s.controller(version);
                let format = if version == Version::V10 { Format::Nxt } else { Format::Standard };
                let only = AsyncConfig { format, packet_in: [1 << bit, 0], ..AsyncConfig::default() };
                c.silent(&mut s, &Message::SetAsync(only));
                packet_comes(&mut s);
                let events = c.events(&mut s);
                let what = format!("{text}, {version}, bit {bit}");
                if bit == chosen {
                    assert_eq!(events.len(), 1, "{what}");
                    assert_eq!(only_packet_in(events).reason, reason, "{what}");
                } else {
                    assert_eq!(events, [], "{what}");
                }
            }
        }
    }
}

#[test]
fn service_connections_get_events_on_request() {
    let mut s = Switch::new();
    let mut c = s.service(Version::V10);
    c.add(&mut s, "udp,actions=controller");
    packet_comes(&mut s);
    assert_eq!(c.events(&mut s), []);
    c.silent(&mut s, &Message::SetConfig(SwitchConfig { flags: 0, miss_send_len_bytes: 100 }));
    packet_comes(&mut s);
    assert_eq!(c.events(&mut s).len(), 1);
}

#[test]
fn the_controller_id_and_the_async_configuration_select_receivers() {
    let mut s = Switch::new();
    let (mut a, mut b) = (s.controller(Version::V13), s.controller(Version::V13));
    b.silent(&mut s, &Message::SetControllerId(7));
    a.add(&mut s, "udp,actions=controller(id=7)");
    packet_comes(&mut s);
    assert_eq!((a.events(&mut s).len(), b.events(&mut s).len()), (0, 1));
    let none = AsyncConfig { port_status: [7, 7], flow_removed: [7, 0], ..AsyncConfig::default() };
    b.silent(&mut s, &Message::SetAsync(none));
    packet_comes(&mut s);
    assert_eq!((a.events(&mut s).len(), b.events(&mut s).len()), (0, 0));
}

/// Which of the controllers with ids 0 and 7 get packets.
fn listening(s: &Switch) -> (bool, bool) {
    let view = s.backer.view();
    let listeners = &view.bridge(s.bridge).unwrap().listeners;
    (listeners.want(0), listeners.want(7))
}

#[test]
fn packets_are_made_for_listening_controllers() {
    let mut s = Switch::new();
    // Before the connections are examined, yes.
    assert_eq!(listening(&s), (true, true));
    s.run();
    assert_eq!(listening(&s), (false, false));
    let mut service = s.service(Version::V10);
    service.add(&mut s, "udp,actions=controller");
    assert_eq!(listening(&s), (false, false));
    service.silent(&mut s, &Message::SetConfig(SwitchConfig { flags: 0, miss_send_len_bytes: 100 }));
    assert_eq!(listening(&s), (true, false));
    service.silent(&mut s, &Message::SetConfig(SwitchConfig { flags: 0, miss_send_len_bytes: 0 }));
    // As in OVS, it also asks for them by configuring them.
    let mut other = s.service(Version::V13);
    let before = listening(&s);
    other.silent(&mut s, &Message::SetAsync(AsyncConfig { packet_in: [3, 3], ..AsyncConfig::default() }));
    assert_eq!((before, listening(&s)), ((false, false), (true, false)));
    other.silent(&mut s, &Message::SetConfig(SwitchConfig { flags: 0, miss_send_len_bytes: 0 }));
    let mut c = s.controller(Version::V13);
    assert_eq!(listening(&s), (true, false));
    c.silent(&mut s, &Message::SetControllerId(7));
    assert_eq!(listening(&s), (false, true));
    // Reasons reported only to a master.
    let asyncs = |packet_in| AsyncConfig {
        packet_in,
        port_status: [7, 7],
        flow_removed: [7, 0],
        ..AsyncConfig::default()
    };
    c.silent(&mut s, &Message::SetAsync(asyncs([0, 1])));
    assert_eq!(listening(&s), (false, false));
    c.silent(&mut s, &Message::SetAsync(asyncs([2, 0])));
    assert_eq!(listening(&s), (false, true));
    let id = c.id;
    s.with(|m, ctx, now| m.close(id, ctx, now));
    assert_eq!(listening(&s), (false, false));
}

#[test]
fn packets_for_a_slow_reader_are_dropped_and_counted() {
    for queue_packets in [100, 7] {
        let mut s = Switch::new();
        let mut c = s.controller(Version::V13);
        if queue_packets != 100 {
            s.manager.configure_conn(c.id, ConnSettings { queue_packets, ..ConnSettings::default() });
        }
        c.add(&mut s, "udp,actions=controller");
        let send = |s: &mut Switch, n: usize| (0..n).for_each(|_| (packet_comes(s), s.run()).1);
        send(&mut s, 400);
        let counters = s.manager.status(c.id).unwrap().counters;
        assert_eq!(counters.packet_ins as usize, queue_packets);
        assert_eq!(counters.packet_ins_dropped as usize, 400 - queue_packets);
        assert_eq!(counters.packet_ins_unsent, counters.packet_ins_dropped);
        assert!(s.manager.take_packet_in_overflow(c.id) && !s.manager.take_packet_in_overflow(c.id));
        // Sent messages leave room again, whole ones only.
        let bytes = s.manager.output(c.id).len() / queue_packets;
        s.manager.consume_output(c.id, 2 * bytes - 1);
        send(&mut s, 3);
        assert_eq!(s.manager.status(c.id).unwrap().counters.packet_ins as usize, queue_packets + 1);
    }
}

/// The statistics are those of OVS 3.1 for the same packets.
#[test]
fn packets_beyond_the_rate_limit_wait_and_are_counted() {
    let mut s = Switch::new();
    let mut c = s.controller(Version::V13);
    let rate_limit = Some(RateLimit { rate_pps: 100, burst_packets: 25 });
    s.manager.configure_conn(c.id, ConnSettings { rate_limit, ..ConnSettings::default() });
    c.add(&mut s, "udp,actions=controller");
    for _ in 0..60 {
        packet_comes(&mut s);
        s.run();
    }
    let waits = QueueStats { bypassed: 25, queued: 35, dropped: 10, backlog: 25 };
    assert_eq!(s.manager.status(c.id).unwrap().queues, Some([QueueStats::default(), waits]));
    assert_eq!(c.events(&mut s).len(), 25);
    assert!(s.manager.held(c.id).unwrap().output_bytes > 25 * 60);
    assert_eq!(s.manager.next_wakeup_ms(), Some(s.now_ms + 10));
    s.pass(20);
    assert_eq!(c.events(&mut s).len(), 2);
    s.pass(1000);
    assert_eq!(c.events(&mut s).len(), 23);
    // Without the limit nothing waits.
    s.manager.configure_conn(c.id, ConnSettings::default());
    assert_eq!(s.manager.status(c.id).unwrap().queues, None);
}

/// A hello and packets may arrive at once.
#[test]
fn packets_that_follow_a_hello_reach_their_controller() {
    let mut s = Switch::new();
    let id = s.manager.open(ConnKind::Controller, VersionSet::IMPLEMENTED, s.now_ms);
    let c = Client::of(id, Version::V13);
    let hello = openflow::msg::control::Hello { versions: VersionSet::of(&[c.version]) };
    let out = PacketOut {
        buffer_id: NO_BUFFER,
        in_port: OfPort(1),
        metadata: Box::default(),
        actions: vec![ofp_actions::Action::Output(ofp_actions::Output {
            port: OfPort::CONTROLLER,
            max_len_bytes: 0,
        })],
        data: vec![0; 60],
    };
    let messages = [Message::Hello(hello), Message::PacketOut(out)];
    let bytes: Vec<u8> = messages.iter().flat_map(|m| encode(m, c.version, 1).unwrap()).collect();
    s.manager.input(c.id, &bytes, s.now_ms);
    s.with(|m, ctx, now| m.run(ctx, now));
    assert!(listening(&s).0 && s.datapath.executed.lock().unwrap().is_empty());
    assert_eq!(s.manager.next_wakeup_ms(), Some(0));
    s.run();
    assert_eq!(s.datapath.executed.lock().unwrap().len(), 1);
}

#[test]
fn a_connection_without_asynchronous_messages_gets_those_that_it_asks_for() {
    let mut s = Switch::new();
    let mut c = s.quiet_controller(Version::V13);
    c.add(&mut s, "udp,actions=controller");
    packet_comes(&mut s);
    s.run();
    assert!(c.events(&mut s).is_empty());
    let asyncs = AsyncConfig { packet_in: [2, 0], ..AsyncConfig::default() };
    c.silent(&mut s, &Message::SetAsync(asyncs));
    packet_comes(&mut s);
    s.run();
    assert_eq!(c.events(&mut s).len(), 1);
}

#[test]
fn a_deleted_rule_is_reported_with_send_flow_rem() {
    for version in [Version::V10, Version::V13] {
        let mut s = Switch::new();
        let mut c = s.controller(version);
        c.add(&mut s, "send_flow_rem,cookie=3,priority=3,tcp,reg1=4,actions=1");
        c.add(&mut s, "cookie=4,priority=4,tcp,actions=1");
        s.now_ms += 2500;
        let delete = Message::FlowMod(flow_mod(TextCommand::Delete, ""));
        c.received.clear();
        c.send_bytes(&mut s, &encode(&delete, version, 5).unwrap());
        let told: Vec<Message> = c.received.drain(..).map(|(_, m)| m).collect();
        // OpenFlow 1.0's own form cannot express the register.
        let format = if version == Version::V10 { Format::Nxt } else { Format::Standard };
        match &told[..] {
            [Message::FlowRemoved(f)] => {
                assert_eq!((f.cookie, f.reason, f.format), (3, FlowRemovedReason::Delete, format));
                assert_eq!((f.duration_s, f.duration_ns), (2, 500_000_000));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn timeouts_are_reported() {
    let mut s = Switch::new();
    let mut c = s.controller(Version::V13);
    c.add(&mut s, "send_flow_rem,cookie=1,priority=1,tcp,idle_timeout=5,actions=1");
    c.add(&mut s, "send_flow_rem,cookie=2,priority=2,tcp,hard_timeout=6,actions=1");
    let mut at = |ms| {
        s.now_ms += ms;
        s.backer.dump_completed(s.now_ms);
        s.backer.expire(s.now_ms);
        let told = c.events(&mut s);
        told.iter()
            .filter_map(|m| match m {
                Message::FlowRemoved(f) => Some((f.cookie, f.reason, f.duration_s)),
                _ => None,
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(at(4_999), []);
    assert_eq!(at(1), [(1, FlowRemovedReason::IdleTimeout, 5)]);
    assert_eq!(at(1_000), [(2, FlowRemovedReason::HardTimeout, 6)]);
}

#[test]
fn port_changes_are_reported_if_the_version_can_express_them() {
    let mut s = Switch::new();
    let (mut old, mut new) = (s.controller(Version::V10), s.controller(Version::V13));
    let (mut old_too, mut new_too) = (s.controller(Version::V10), s.controller(Version::V13));
    let was = port(OfPort(3), Some(3), "p3");
    let mut no_flood = was.clone();
    no_flood.config.no_flood = true;
    let mut down = no_flood.clone();
    down.link_down = true;
    let changes = [
        (None, Some(&was)),
        (Some(&was), Some(&no_flood)),
        (Some(&no_flood), Some(&down)),
        // Nothing changed.
        (Some(&down), Some(&down)),
        (Some(&down), None),
    ];
    for (from, to) in changes {
        s.manager.port_changed(from, to, 5);
    }
    let mut reasons = |c: &mut Client| {
        let told = c.events(&mut s);
        told.iter()
            .map(|m| match m {
                Message::PortStatus(p) => (p.reason, p.port.state),
                other => panic!("{other:?}"),
            })
            .collect::<Vec<_>>()
    };
    use PortReason::{Add, Delete, Modify};
    for client in [&mut old, &mut old_too] {
        assert_eq!(reasons(client), [(Add, 0), (Modify, 0), (Modify, 1), (Delete, 1)]);
    }
    // As OVS 3.5 reports it; 1.3 has no bit for flooding.
    let expected = [(Add, 0), (Modify, 4), (Modify, 0), (Modify, 1), (Delete, 1)];
    for client in [&mut new, &mut new_too] {
        assert_eq!(reasons(client), expected);
    }
}
