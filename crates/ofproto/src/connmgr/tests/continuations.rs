//! Paused translations and their resumption.

use super::*;
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
        let field = flow::fields::FieldId::TunMetadata0;
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
