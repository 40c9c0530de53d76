//! Mappings of tunnel metadata: requests, and matches and actions that need them.

use super::*;
use flow::TlvTable;
use openflow::msg::control::{TlvMap, TlvTableCommand, TlvTableMod};

pub(super) fn change(command: TlvTableCommand, maps: &[(u16, u8, u8, u16)]) -> Message {
    let map = |(class, ty, len_bytes, index): &(u16, u8, u8, u16)| TlvMap {
        class: *class,
        ty: *ty,
        len_bytes: *len_bytes,
        index: *index,
    };
    Message::TlvTableMod(TlvTableMod { command, maps: maps.iter().map(map).collect() })
}

pub(super) fn table() -> TlvTable {
    let mut table = TlvTable::EMPTY;
    table.add(0, 0xffff, 0, 4).and_then(|()| table.add(1, 0xffff, 1, 124)).expect("there is room");
    table
}

/// A rule by the client's own mappings, those of [`table`].
pub(super) fn rule(text: &str) -> Message {
    Message::FlowMod(flow_mod_with(TextCommand::Add, text, &table()))
}

#[test]
fn mappings_are_checked_and_used_ones_stay() {
    use TlvTableCommand::{Add, Clear, Delete};
    let mut s = Switch::new();
    let mut c = s.service(Version::V13);
    c.options.tlv = Some(Arc::new(table()));
    let both = [(0xffff, 0, 4, 0), (0xffff, 1, 124, 1)];
    let used = |index| rule(&format!("tun_metadata{index}=5,actions=1"));
    assert_eq!(c.refused(&mut s, &used(0)), ErrorKind::NxfmfcInvalidTlvField);
    let setting = rule("in_port=1,actions=set_field:5->tun_metadata1,1");
    assert_eq!(c.refused(&mut s, &setting), ErrorKind::NxfmfcInvalidTlvField);
    c.silent(&mut s, &change(Add, &both));
    for (command, maps, want) in [
        (Add, &[(1, 1, 4, 0)][..], ErrorKind::NxttmfcAlreadyMapped),
        (Add, &[(0xffff, 1, 4, 5)], ErrorKind::NxttmfcDupEntry),
        (Add, &[(1, 1, 4, 64)], ErrorKind::NxttmfcBadFieldIdx),
        (Delete, &[(1, 1, 4, 64)], ErrorKind::NxttmfcBadFieldIdx),
        (Add, &[(1, 1, 7, 5)], ErrorKind::NxttmfcBadOptLen),
        // All or nothing.
        (Add, &[(1, 1, 124, 5), (1, 2, 8, 6)], ErrorKind::NxttmfcTableFull),
    ] {
        assert_eq!(c.refused(&mut s, &change(command, maps)), want, "{maps:?}");
    }
    let left = |c: &mut Client, s: &mut Switch| match c.one(s, &Message::TlvTableRequest) {
        Message::TlvTableReply(t) => t.maps.iter().map(|m| m.index).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(left(&mut c, &mut s), [0, 1]);
    // In use by a match, by an action.
    for (text, index) in [
        ("tun_metadata0,actions=1", 0),
        ("in_port=1,actions=set_field:5->tun_metadata1,1", 1),
        ("in_port=1,actions=move:reg0[]->tun_metadata0[],1", 0),
        ("in_port=1,actions=push:tun_metadata1[3..200],1", 1),
        ("in_port=1,actions=learn(tun_metadata0[0..3]=reg0[0..3]),1", 0),
    ] {
        c.silent(&mut s, &rule(text));
        let gone = [both[index]];
        assert_eq!(c.refused(&mut s, &change(Delete, &gone)), ErrorKind::NxttmfcInvalidTlvDel, "{text}");
        assert_eq!(c.refused(&mut s, &change(Clear, &[])), ErrorKind::NxttmfcInvalidTlvDel, "{text}");
        let other = [both[1 - index]];
        c.silent(&mut s, &change(Delete, &other));
        assert_eq!(left(&mut c, &mut s), [index as u16], "{text}");
        c.silent(&mut s, &change(Add, &other));
        c.flow(&mut s, TextCommand::Delete, "");
    }
    c.silent(&mut s, &change(Clear, &[]));
    assert!(left(&mut c, &mut s).is_empty());
}

#[test]
fn rules_with_metadata_are_read_back_by_every_connection() {
    for version in [Version::V10, Version::V13, Version::V15] {
        let mut s = Switch::new();
        let (mut c, mut other) = (s.service(version), s.service(version));
        for client in [&mut c, &mut other] {
            client.options.tlv = Some(Arc::new(table()));
        }
        c.silent(&mut s, &change(TlvTableCommand::Add, &[(0xffff, 0, 4, 0), (0xffff, 1, 124, 1)]));
        let text = "tun_metadata0=0x5/0xf0f,tun_metadata1,actions=set_field:0x7/0x1f->tun_metadata1,output:1";
        c.silent(&mut s, &rule(text));
        let all = all_flows(if version == Version::V10 { Format::Nxt } else { Format::Standard });
        for client in [&mut c, &mut other] {
            let Message::FlowStatsReply(reply) = client.one(&mut s, &Message::FlowStatsRequest(all.clone()))
            else {
                panic!("another reply")
            };
            let stats = &reply.entries[0];
            let matching = flow::text::format_match_with(&stats.matching.unpack(), None, &table());
            let actions = ofp_actions::text::format_actions(&stats.actions, &table());
            assert_eq!(format!("{matching},actions={actions}"), text, "{version:?}");
        }
    }
}
