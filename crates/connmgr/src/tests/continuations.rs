//! Paused translations and their resumption.

use super::*;
use flow::FlowKey;
use flow::extract::{Metadata, extract_typed};
use flow::fields::FieldId;
use ofproto::packet_state::PacketState;
use ofproto::recirc::{FrozenState, FrozenStep};
use ofproto::xlate::XlateHost as _;
use openflow::msg::control::TlvTableCommand;
use openflow::msg::packet::{PacketIn, PacketOut};

/// A frame of 60 bytes from port 1.
fn packet_out() -> Message {
    Message::PacketOut(PacketOut {
        buffer_id: NO_BUFFER,
        in_port: OfPort(1),
        metadata: Box::default(),
        actions: ofp_actions::text::parse_actions("resubmit(,0)", &NoPortNames).unwrap(),
        data: [vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5], vec![0; 46]].concat(),
    })
}

/// A controller that gets packets in Nicira's second format.
fn controller(s: &mut Switch, version: Version) -> Client {
    let mut c = s.controller(version);
    c.silent(s, &Message::SetPacketInFormat(2));
    c
}

/// Executes the packet; returns the packets for the controller.
fn paused(s: &mut Switch, c: &mut Client) -> Vec<PacketIn> {
    c.silent(s, &packet_out());
    let of = |m: Message| if let Message::PacketIn(m) = m { Some(m) } else { None };
    c.events(s).into_iter().filter_map(of).collect()
}

/// Datapath actions executed since the last call.
fn executed(s: &Switch) -> Vec<String> {
    let all = std::mem::take(&mut *s.datapath.executed.lock().unwrap());
    let text = |e: &dpif::Execute| dpif::text::format_actions(&e.actions, &dpif::text::NumbersOnly);
    all.iter().map(text).collect()
}

#[test]
fn a_paused_translation_continues_where_it_stopped() {
    for version in (1..=6).map(Version) {
        let mut s = Switch::new();
        let mut c = controller(&mut s, version);
        let mut rules = s.service(Version::V15);
        for rule in [
            "table=0,actions=set_field:5->reg3,push:NXM_NX_REG3[],resubmit(,1),output:2",
            "table=1,cookie=0x77,actions=set_field:9->metadata,controller(userdata=0a,pause,max_len=20),\
             set_field:02:00:00:00:00:77->eth_src,output:2,write_actions(LOCAL),goto_table:4",
            "table=4,actions=pop:NXM_NX_REG4[],write_actions(set_field:02:00:00:00:00:55->eth_dst)",
        ] {
            rules.add(&mut s, rule);
        }
        let packets = paused(&mut s, &mut c);
        let [m] = &packets[..] else { panic!("{packets:?}") };
        let shown = flow::text::format_match(&m.metadata, None);
        assert_eq!(shown, "reg3=0x5,metadata=0x9,in_port=1", "{version:?}");
        assert_eq!((m.data.len(), m.table, m.cookie, &m.userdata[..]), (60, TableId(0), 0, &[10][..]));
        assert_eq!(executed(&s), [""; 0], "nothing is sent before");
        // It may be resumed more than once.
        for _ in 0..2 {
            c.silent(&mut s, &Message::Resume(m.clone()));
            let all = "set(eth(src=02:00:00:00:00:77)),2,2,set(eth(dst=02:00:00:00:00:55)),0";
            assert_eq!(executed(&s), [all], "{version:?}");
        }
        let counted = s.rules();
        assert!(counted.iter().any(|r| r.starts_with("table=4") && r.ends_with("n=2")), "{counted:?}");
    }
}

/// An IPv4 UDP frame as the tracker leaves it: OVS 3.5.0 showed this state after a `ct` with `nat(dst=10.0.0.9)`.
fn tracked() -> (Vec<u8>, FlowKey) {
    let mut flow = flow::Flow::default();
    (flow.dl_type, flow.nw_proto, flow.nw_ttl) = (0x800, 17, 64);
    (flow.nw_src, flow.nw_dst, flow.tp_src, flow.tp_dst) = (0x0a00_0001, 0x0a00_0009, 1000, 53);
    let frame = flow::compose::compose(&flow, flow::compose::Payload::Counted(46));
    let metadata = Metadata { in_port: 1, pkt_mark: 0x77, skb_priority: 5, ..Metadata::default() };
    let mut key = FlowKey::default();
    extract_typed(&frame, 0, &metadata, 2, &mut key);
    key.base.ct_state = flow::ct_state::NEW | flow::ct_state::TRK | flow::ct_state::DNAT;
    (key.base.ct_zone, key.base.ct_mark, key.ct.label) = (8, 3, [4; 16]);
    (key.ct.nw_src, key.ct.nw_dst) = (0x0a00_0001, 0x0a00_0005);
    (key.ct.nw_proto, key.ct.tp_src, key.ct.tp_dst) = (17, 1000, 53);
    let mut tunnel = key.to_flow(OfPort(1)).tunnel();
    (tunnel.src, tunnel.dst, tunnel.id) = (1, 2, 3);
    (tunnel.gbp_id, tunnel.gbp_flags) = (7, 8);
    tunnel.set_erspan(&flow::Erspan { ver: 2, idx: 0, dir: 1, hwid: 6 });
    key.tunnel = tunnel;
    key.set_shape();
    (frame, key)
}

/// A paused translation of [`tracked`].
fn paused_tracked(s: &Switch, conntracked: bool) -> PacketInEvent {
    let (frame, key) = tracked();
    let action = ofp_actions::text::parse_actions("resubmit(,2)", &NoPortNames).unwrap();
    let mut packet = PacketState::of(&key.to_flow(OfPort(1)), OfPort(1), conntracked);
    (packet.metadata, packet.regs, packet.stack) = (9, [5; 32], vec![vec![1, 2]]);
    let state = FrozenState {
        bridge: s.bridge,
        table: TableId(1),
        packet,
        steps: vec![FrozenStep { table: TableId(1), cookie: 1, actions: action }],
        resume_at: None,
        userdata: Vec::new(),
        bond: None,
    };
    let recirc_id = s.backer.xlate_host(false, 0).recirc_hold(state.clone()).unwrap();
    let cookie = dpif::ControllerCookie {
        recirc_id,
        rule_cookie: 0,
        reason: 1,
        controller_id: 0,
        max_len_bytes: u16::MAX,
        continuation: true,
    };
    let paused_in = Some(s.backer.bridge_uuid(s.bridge));
    PacketInEvent {
        state: Arc::new(state),
        cookie,
        packet: packet::Packet::from_slice(&frame),
        key,
        paused_in,
    }
}

/// Gives the packet of an event random state; each field may be 0.
fn randomize(event: &mut PacketInEvent, state: &mut u64) {
    let mut random = || {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if *state >> 62 == 0 { 0 } else { *state >> 32 }
    };
    let key = &mut event.key;
    (key.base.ct_state, key.base.ct_zone, key.base.ct_mark) =
        (random() as u32 & 0xff, random() as u16, random() as u32);
    (key.base.pkt_mark, key.base.dp_hash, key.arp.skb_priority) =
        (random() as u32, random() as u32, random() as u32);
    (key.ct.label, key.ct.nw_src, key.ct.nw_dst) = ([random() as u8; 16], random() as u32, random() as u32);
    (key.ct.nw_proto, key.ct.tp_src, key.ct.tp_dst) = (random() as u8, random() as u16, random() as u16);
    let mut flow = flow::Flow::default();
    for word in &mut flow.words_mut()[flow::Stage::Metadata.words()] {
        *word = random() << 32 | random();
    }
    let mut packet = PacketState::of(&flow, OfPort(1 + random() as u32 % 9), event.state.packet.conntracked);
    packet.in_port = OfPort(1 + random() as u32 % 2);
    // Options have their own test.
    (packet.tun_metadata, packet.tunnel) = (None, {
        flow.set_tunnel(&packet.tunnel);
        flow.tunnel()
    });
    packet.tunnel.tp_src = 0;
    packet.stack = (0..random() % 4).map(|_| vec![random() as u8; 1 + random() as usize % 8]).collect();
    let set = ofp_actions::text::parse_actions("dec_ttl,output:2", &NoPortNames).unwrap();
    packet.action_set = set.into_iter().take(random() as usize % 3).collect();
    if !packet.conntracked {
        key.clear_tracking();
    }
    key.tunnel = packet.tunnel;
    key.set_shape();
    let state = FrozenState { packet, ..(*event.state).clone() };
    event.state = Arc::new(state);
}

/// The state of the only packet executed, for the controller, with its key.
fn paused_again(s: &Switch) -> (FlowKey, PacketState) {
    let all = std::mem::take(&mut *s.datapath.executed.lock().unwrap());
    let [e] = &all[..] else { panic!("{all:?}") };
    let to = |a: &DpAction| match a {
        DpAction::Userspace(Userspace(UserCookie::Controller(c))) => Some(c.recirc_id),
        _ => None,
    };
    let id = e.actions.iter().find_map(to).unwrap_or_else(|| panic!("{:?}", e.actions));
    (e.key, s.backer.recirc_state(id).expect("held").packet.clone())
}

#[test]
fn random_state_comes_back_from_a_pause() {
    let mut state = 3;
    for version in (1..=6).map(Version) {
        let mut s = Switch::new();
        let mut c = controller(&mut s, version);
        s.service(Version::V15).add(&mut s, "table=2,actions=controller(pause)");
        for n in 0..200 {
            let mut event = paused_tracked(&s, n % 4 != 0);
            randomize(&mut event, &mut state);
            let m = packet_in_of(&mut s, &mut c, &event);
            c.silent(&mut s, &Message::Resume(m));
            let (key, packet) = paused_again(&s);
            assert_eq!((&packet, key), (&event.state.packet, event.key), "{version}, {n}");
        }
    }
}

/// A packet-out restores all fields of a packet-in.
#[test]
fn random_state_goes_with_a_packet_out() {
    let mut state = 4;
    let mut s = Switch::new();
    let mut c = controller(&mut s, Version::V15);
    for n in 0..300 {
        let mut event = paused_tracked(&s, true);
        randomize(&mut event, &mut state);
        let mut m = packet_in_of(&mut s, &mut c, &event);
        let in_port = event.state.packet.in_port;
        // As in OVS, a packet-out gives no mark, and nothing of a connection, to which the EtherType belongs.
        let ct = [FieldId::CtState, FieldId::CtZone, FieldId::CtMark, FieldId::CtLabel];
        let others = [FieldId::InPortOxm, FieldId::PktMark, FieldId::EthType];
        for field in ct.into_iter().chain(others).chain(ofproto::packet_state::TUPLE) {
            m.metadata.set_masked(field, 0, 0);
        }
        let (metadata, data) = (m.metadata, m.data);
        let actions = ofp_actions::text::parse_actions("controller(pause)", &NoPortNames).unwrap();
        let out = PacketOut { buffer_id: NO_BUFFER, in_port, metadata, actions, data };
        c.silent(&mut s, &Message::PacketOut(out));
        let (key, packet) = paused_again(&s);
        // As in OVS, these fields have no names in OpenFlow, and lists begin empty.
        let mut flow = event.key.to_flow(in_port);
        event.state.packet.restore(&mut flow);
        flow.pkt_mark = 0;
        flow.clear_conntrack();
        for (number, _) in ofproto::packet_state::hidden(&flow) {
            ofproto::packet_state::set_hidden(&mut flow, number, 0).unwrap();
        }
        flow.tun_flags = event.state.packet.tunnel.flags & flow::tunnel_flags::OAM;
        let mut expected = PacketState::of(&flow, in_port, false);
        expected.conntracked = packet.conntracked;
        assert_eq!(packet, expected, "{n}");
        let dp_port = DpPort(in_port.0);
        assert_eq!(key, FlowKey::from_flow(&flow, dp_port), "{n}");
    }
}

fn packet_in_of(s: &mut Switch, c: &mut Client, event: &PacketInEvent) -> PacketIn {
    s.manager.deliver_packet_in(event, s.now_ms);
    let of = |m: Message| if let Message::PacketIn(m) = m { Some(m) } else { None };
    c.events(s).into_iter().find_map(of).expect("a packet-in")
}

#[test]
fn a_continuation_returns_all_that_travels_beside_the_bytes() {
    for version in (1..=6).map(Version) {
        let mut s = Switch::new();
        let mut c = controller(&mut s, version);
        c.add(&mut s, "table=2,actions=2");
        let event = paused_tracked(&s, true);
        let m = packet_in_of(&mut s, &mut c, &event);
        c.silent(&mut s, &Message::Resume(m));
        let all = std::mem::take(&mut *s.datapath.executed.lock().unwrap());
        let [e] = &all[..] else { panic!("{all:?}") };
        assert_eq!(e.key, event.key, "{version}");
    }
}

/// Other rules may have changed the packet since the actions were checked: those of a rule for IP behind a label, or of
/// one for any state on a packet that could not be tracked.
#[test]
fn remaining_actions_need_not_fit_the_packet() {
    for (text, expected) in [
        ("ct(commit,zone=8,nat(src=10.0.0.3)),output:2", "ct(commit,zone=8,nat(src=10.0.0.3)),2"),
        ("set_field:5->tcp_dst,output:2", "2"),
    ] {
        let mut s = Switch::new();
        let mut c = controller(&mut s, Version::V13);
        let mut event = paused_tracked(&s, true);
        event.key.clear_tracking();
        event.key.base.ct_state = flow::ct_state::INV | flow::ct_state::TRK;
        let mut state = (*event.state).clone();
        state.steps[0].actions = ofp_actions::text::parse_actions(text, &NoPortNames).unwrap();
        event.state = Arc::new(state);
        let m = packet_in_of(&mut s, &mut c, &event);
        c.silent(&mut s, &Message::Resume(m));
        assert_eq!(executed(&s), [expected]);
    }
}

#[test]
fn a_packet_in_has_the_tracking_state_only_of_a_tracked_packet() {
    let mut s = Switch::new();
    let mut c = controller(&mut s, Version::V13);
    // As OVS 3.5.0, with its EtherType; a packet after `ct(commit)` is not tracked.
    let state = "ct_nw_src=10.0.0.1,ct_nw_dst=10.0.0.5,ct_nw_proto=17,ct_tp_src=1000,ct_tp_dst=53";
    for conntracked in [true, false] {
        let event = paused_tracked(&s, conntracked);
        let m = packet_in_of(&mut s, &mut c, &event);
        let shown = flow::text::format_match(&m.metadata, None);
        assert_eq!(shown.contains(state), conntracked, "{shown}");
        assert_eq!(shown.contains("ct_state"), conntracked, "{shown}");
        assert!(shown.contains("tun_gbp_id=7") && shown.contains("tun_erspan_ver=2"), "{shown}");
    }
}

#[test]
fn a_continuation_keeps_tunnel_metadata() {
    for version in [Version::V10, Version::V13, Version::V15] {
        let mut s = Switch::new();
        let mut c = controller(&mut s, version);
        let mut rules = s.service(Version::V15);
        for client in [&mut c, &mut rules] {
            client.options.tlv = Some(Arc::new(tlv::table()));
        }
        rules.silent(&mut s, &tlv::change(TlvTableCommand::Add, &[(0xffff, 0, 4, 0), (0xffff, 1, 124, 1)]));
        for text in [
            "actions=set_field:0x1234->tun_metadata0,set_field:6->tun_id,controller(pause),\
             set_field:7->tun_metadata1,resubmit(,1)",
            "table=1,tun_id=6,tun_metadata0=0x1234,tun_metadata1=7,actions=output:2",
            "table=1,priority=1,actions=output:2,output:2",
        ] {
            rules.silent(&mut s, &tlv::rule(text));
        }
        let packets = paused(&mut s, &mut c);
        let [m] = &packets[..] else { panic!("{packets:?}") };
        let shown = flow::text::format_match_with(&m.metadata, None, &tlv::table());
        assert_eq!(shown, "tun_id=0x6,tun_metadata0=0x1234,in_port=1", "{version:?}");
        c.silent(&mut s, &Message::Resume(m.clone()));
        assert_eq!(executed(&s), ["2"], "{version:?}");
        // The controller changes it.
        let mut changed = m.clone();
        let field = FieldId::TunMetadata0;
        changed.metadata.set_wide(&tlv::table(), field, 9.into(), flow::Wide::ones(32));
        c.silent(&mut s, &Message::Resume(changed));
        assert_eq!(executed(&s), ["2,2"], "{version:?}");
    }
}

#[test]
fn resumptions_that_do_not_fit_are_refused() {
    let mut s = Switch::new();
    let mut c = controller(&mut s, Version::V13);
    c.add(&mut s, "actions=controller(pause),output:2");
    let packets = paused(&mut s, &mut c);
    let [m] = &packets[..] else { panic!("{packets:?}") };
    let with = |f: &dyn Fn(&mut PacketIn)| {
        let mut m = m.clone();
        f(&mut m);
        Message::Resume(m)
    };
    let bridge_at = 8;
    let stale = with(&|m| m.continuation[bridge_at] ^= 1);
    assert_eq!(c.refused(&mut s, &stale), ErrorKind::NxrStale);
    assert_eq!(c.refused(&mut s, &with(&|m| m.continuation.clear())), ErrorKind::NxrStale);
    assert_eq!(c.refused(&mut s, &with(&|m| m.continuation.truncate(20))), ErrorKind::BpcBadLen);
    let unknown = with(&|m| m.continuation.extend([0x81, 0, 0, 4, 0, 0, 0, 0]));
    assert_eq!(c.refused(&mut s, &unknown), ErrorKind::BpcBadType);
    assert_eq!(executed(&s), [""; 0]);
    // The bridge of another process.
    let mut other = Switch::new();
    other.backer = Backer::new(8);
    other.bridge = other.backer.add_bridge("br0");
    let mut there = controller(&mut other, Version::V13);
    assert_eq!(there.refused(&mut other, &Message::Resume(m.clone())), ErrorKind::NxrStale);
    c.silent(&mut s, &Message::Resume(m.clone()));
    assert_eq!(executed(&s), ["2"]);
}

#[test]
fn formats_without_continuations_get_the_packet_alone() {
    let mut s = Switch::new();
    let mut c = s.controller(Version::V13);
    c.add(&mut s, "actions=controller(pause),output:2");
    let packets = paused(&mut s, &mut c);
    assert!(matches!(&packets[..], [m] if m.continuation.is_empty() && m.data.len() == 60), "{packets:?}");
}
