use super::*;

#[test]
fn names_are_the_bytes_that_stock_tools_print() {
    let ufid = Ufid(0xcf25_7829_62ba_490e_8a42_802f_3e99_190e);
    let parts = [0xcf25_7829u32, 0x62ba_490e, 0x8a42_802f, 0x3e99_190e].map(u32::to_ne_bytes);
    assert_eq!(ufid_bytes(ufid)[..], parts.concat());
    assert_eq!(ufid_of_bytes(ufid_bytes(ufid)), ufid);
}

#[test]
fn parts_that_are_not_wanted_are_named() {
    assert_eq!(FlowParts::ALL.omitted(), 0);
    assert_eq!(FlowParts::TERSE.omitted(), 7);
    assert_eq!(FlowParts { mask: true, ..FlowParts::TERSE }.omitted(), 5);
}

#[test]
fn a_flow_without_a_mask_matches_all_bits() {
    let mut key = FlowKey::default();
    (key.base.in_port, key.base.dl_type) = (3, 0x0800);
    (key.base.nw_proto, key.base.tp_dst) = (17, 53);
    key.set_shape();
    let reply = FlowReply { key: Some(key_to_bytes(&key, &KeyLimits::LINUX)), ..FlowReply::default() };
    let (got, mask, fitness) = reply.key_and_mask(2).unwrap();
    assert_eq!((got, fitness), (key, Fitness::Perfect));
    assert_eq!((mask.base.tp_dst, mask.base.nw_ttl, mask.base.dl_src), (0xffff, 0xff, [0xff; 6]));
    assert_eq!((mask.base.tcp_flags, mask.ipv6.label), (0, 0));
    assert_eq!(FlowReply::default().key_and_mask(2), Err(AttrError::Missing(attr::KEY)));
    assert_eq!(FlowReply::default().dp_actions(), Ok(Vec::new()));
}

#[test]
fn counters_that_are_cut_off_are_refused() {
    let mut out = AttrWriter::new();
    out.put(attr::STATS, &[0; 15]);
    let bytes = out.finish().unwrap();
    let attrs = Attrs::parse(&bytes).unwrap();
    assert_eq!(FlowReply::parse(1, attrs), Err(AttrError::Size { kind: attr::STATS, has_bytes: 15 }));
}
