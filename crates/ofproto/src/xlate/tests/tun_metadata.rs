//! Tunnel metadata: received options, rules on them, options of sent packets.

use super::*;
use flow::text::format_megaflow_with;
use flow::{FlowKey, Mask, TlvTable, Tunnel, TunnelOptions};

fn table() -> TlvTable {
    let mut table = TlvTable::EMPTY;
    for (index, ty, len_bytes) in [(0, 0, 4), (1, 1, 8), (2, 2, 124)] {
        table.add(index, 0xffff, ty, len_bytes).expect("there is room");
    }
    table
}

/// The ports of [`tunnels::rig`], with mappings in both bridges: those of `b` are in another order.
fn rig() -> Rig {
    let rig = tunnels::rig();
    let mut other = TlvTable::EMPTY;
    other.add(1, 0xffff, 1, 8).and_then(|()| other.add(0, 0xffff, 0, 4)).expect("there is room");
    rig.backer.change_bridge(rig.a, |b| b.tables.set_tlv(table()));
    rig.backer.change_bridge(rig.b, |b| b.tables.set_tlv(other));
    rig
}

/// The key of a packet with these options from 10.9.0.9, which port 6 receives.
fn key(options: &[(u8, &[u8])]) -> FlowKey {
    let mut key = FlowKey::default();
    (key.base.in_port, key.base.dl_type) = (8, 0x88b5);
    key.tunnel = Tunnel { id: 77, src: 0x0a09_0009, dst: 0x0a09_0001, ttl: 63, ..Tunnel::default() };
    for (ty, data) in options {
        assert!(key.options.push(0xffff, *ty, data));
    }
    key.set_shape();
    key
}

impl Rig {
    /// Translation of a received packet, with the sent options.
    fn came(&self, key: &FlowKey) -> (Translation, Vec<TunnelOptions>) {
        let view = self.backer.view();
        let (bridge, port) = view.receiver(key).expect("a tunnel");
        let t = self.translate(&bridge.flow_of(key, port).expect("the options agree"), true);
        let sent = |a: &DpAction| match a {
            DpAction::Set(SetAction::Tunnel(outer)) => Some(outer.options),
            _ => None,
        };
        let options = t.actions.iter().filter_map(sent).collect();
        (t, options)
    }
}

#[test]
fn rules_see_mapped_options_and_megaflows_their_examined_bits() {
    let rig = rig();
    let a = rig.a;
    let rig = rig.rules(
        a,
        "priority=9,in_port=6,tun_metadata0=0x1204/0xff0f actions=move:tun_metadata1[0..31]->reg0[],1
         priority=8,in_port=6,tun_metadata2 actions=2
         priority=0 actions=drop",
    );
    let check = |options: &[(u8, &[u8])], actions: &str, fields: &str, data: &[u8]| {
        let key = key(options);
        let (t, _) = rig.came(&key);
        assert_eq!(show(&t.actions), actions, "{options:x?}");
        let view = rig.backer.view();
        let (bridge, port) = view.receiver(&key).expect("a tunnel");
        let flow = bridge.flow_of(&key, port).expect("the options agree");
        let megaflow = format_megaflow_with(&flow, &t.wc, &table());
        assert!(megaflow.contains(fields), "{megaflow}");
        // Headers are exact, data as examined.
        let mask = rig.backer.mask_of(&t, &key).options;
        let mut want = key.options.header_mask();
        want.set_data_mask(&key.options, 0, data);
        assert_eq!(
            mask.mask_bytes(&key.options)[..8.min(key.options.as_bytes().len())],
            want.mask_bytes(&key.options)[..8.min(key.options.as_bytes().len())]
        );
    };
    let one = [0, 0, 0, 0, 0, 0, 0, 7];
    let both: &[(u8, &[u8])] = &[(0, &[0, 0, 0x12, 0x34]), (1, &one), (9, &[1, 2, 3, 4])];
    check(both, "1", ",tun_metadata0=0x1204/0xff0f,tun_metadata1=0x7/0xffffffff,", &[0, 0, 0xff, 0x0f]);
    check(
        &[(0, &[0, 0, 0x12, 0x34])],
        "1",
        ",tun_metadata0=0x1204/0xff0f,tun_metadata1=NP,",
        &[0, 0, 0xff, 0x0f],
    );
    check(&[(2, &[5; 124])], "2", ",tun_metadata0=NP,tun_metadata2,", &[0; 4]);
    check(&[(9, &[1, 2, 3, 4])], "drop", ",tun_metadata0=NP,tun_metadata2=NP,", &[0; 4]);
    check(&[], "drop", ",tun_metadata0=NP,tun_metadata2=NP,", &[]);
}

#[test]
fn options_that_disagree_with_the_mappings_drop_the_packet() {
    let rig = rig();
    let view = rig.backer.view();
    for (options, ok) in [
        (&[(9u8, &[0u8; 4][..])][..], true),
        (&[(0x89, &[0; 4])], false),
        (&[(0, &[0; 8])], false),
        (&[(1, &[0; 8])], true),
    ] {
        let key = key(options);
        let (bridge, port) = view.receiver(&key).expect("a tunnel");
        assert_eq!(bridge.flow_of(&key, port).is_ok(), ok, "{options:x?}");
    }
}

#[test]
fn sent_packets_have_the_options_of_their_fields() {
    let rig = rig();
    let a = rig.a;
    let set = "set_field:10.9.0.7->tun_dst,set_field:0x12->tun_metadata0,load:0x34->tun_metadata1[0..31]";
    let rig = rig.rules(
        a,
        &format!(
            "in_port=1 actions={set},6,2,6,set_field:7->tun_metadata0,6
             in_port=2 actions={set},debug_recirc,move:tun_metadata0[]->tun_metadata1[32..63],6
             in_port=3 actions={set},push:tun_metadata1[],pop:tun_metadata2[100..200],6"
        ),
    );
    let first: &[(u8, &[u8])] = &[(0, &[0, 0, 0, 0x12]), (1, &[0, 0, 0, 0, 0, 0, 0, 0x34])];
    let mut long = [0; 124];
    // 0x34 from bit 100 on.
    (long[111], long[110]) = (0x40, 0x03);
    let check = |flow: &Flow, want: &[&[(u8, &[u8])]]| {
        let t = rig.translate(flow, true);
        let sent = t.actions.iter().filter_map(|a| match a {
            DpAction::Set(SetAction::Tunnel(outer)) => Some(outer.options),
            _ => None,
        });
        let want: Vec<_> = want.iter().map(|options| key(options).options).collect();
        assert_eq!(sent.collect::<Vec<_>>(), want, "{flow:?}");
        // A packet from no tunnel has no options to examine.
        assert_eq!(t.wc.0.tun_metadata_present, 0);
        t
    };
    let eth =
        |port: u32, recirc_id: u32| Flow { in_port: port, dl_type: 0x88b5, recirc_id, ..Flow::default() };
    check(&eth(1, 0), &[first, &[(0, &[0, 0, 0, 7]), first[1]]]);
    let t = check(&eth(2, 0), &[]);
    let id = t.recircs[0].0;
    check(&eth(2, id), &[&[first[0], (1, &[0, 0, 0, 0x12, 0, 0, 0, 0x34])]]);
    check(&eth(3, 0), &[&[first[0], first[1], (2, &long)]]);
}

#[test]
fn another_bridge_has_its_own_mappings() {
    let rig = rig();
    let (a, b) = (rig.a, rig.b);
    let rig = rig
        .rules(a, "in_port=6,tun_metadata0=5 actions=9,2")
        .rules(b, "tun_metadata0 actions=2\npriority=0 actions=1");
    let key = key(&[(0, &[0, 0, 0, 5])]);
    let (t, _) = rig.came(&key);
    // The packet has no metadata there, and the mask only what this bridge examined.
    assert_eq!(show(&t.actions), "11,2");
    let mut want = Mask::none();
    let field = flow::fields::FieldId::tun_metadata(0).expect("a field");
    table().add_mask(field, &mut want.0, flow::Wide::ones(32));
    assert_eq!(t.wc.0.tun_options(), want.0.tun_options());
}

#[test]
fn a_deleted_field_is_neither_seen_nor_sent() {
    let rig = rig();
    let a = rig.a;
    let rig = rig.rules(
        a,
        "in_port=6 actions=delete_field:tun_metadata0,resubmit(,1)
         table=1,tun_metadata0 actions=1
         table=1,priority=1 actions=2
         in_port=1 actions=set_field:10.9.0.7->tun_dst,set_field:5->tun_metadata0,set_field:6->tun_metadata1,delete_field:tun_metadata0,6",
    );
    let (t, _) = rig.came(&key(&[(0, &[0, 0, 0, 5])]));
    assert_eq!(show(&t.actions), "2");
    let (view, flow) = (rig.backer.view(), Rig::flow("in_port=1"));
    let request = Request { view: &view, bridge: rig.a, flow: &flow, start: Start::Tables, trace: true };
    let t = translate(&request, &mut rig.backer.xlate_host(false, 1000));
    let sent = t.actions.iter().find_map(|action| match action {
        DpAction::Set(SetAction::Tunnel(outer)) => Some(outer.options),
        _ => None,
    });
    let mut expected = TunnelOptions::default();
    assert!(expected.push(0xffff, 1, &[0, 0, 0, 0, 0, 0, 0, 6]));
    assert_eq!(sent, Some(expected));
    assert!(
        render_trace(&t.trace, false)
            .contains("    delete_field:tun_metadata0\n     -> delete tun_metadata0\n")
    );
}
