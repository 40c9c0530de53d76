use super::*;
use proptest::prelude::*;

/// Bytes of a header in host order.
fn header(len: u16, kind: u16) -> Vec<u8> {
    [len.to_ne_bytes(), kind.to_ne_bytes()].concat()
}

#[test]
fn lists_are_read_and_bad_ones_refused() {
    let two = [header(6, 3), vec![1, 2, 0, 0], header(4, 9)].concat();
    let attrs = Attrs::parse(&two).unwrap();
    let all: Vec<(u16, &[u8])> = attrs.into_iter().map(|a| (a.kind, a.content)).collect();
    assert_eq!(all, [(3, &[1, 2][..]), (9, &[])]);
    assert_eq!(attrs.get(3).unwrap().u16().unwrap().to_ne_bytes(), [1, 2]);
    assert_eq!(attrs.require(4), Err(AttrError::Missing(4)));
    // The last one may lack padding.
    assert!(Attrs::parse(&two[..6]).is_ok());
    for (bytes, at_bytes) in [
        (vec![0], 0),
        (header(3, 1), 0),
        (header(0, 1), 0),
        (header(5, 1), 0),
        ([header(4, 1), header(9, 1)].concat(), 4),
        ([header(4, 1), vec![0, 0]].concat(), 4),
    ] {
        assert_eq!(Attrs::parse(&bytes), Err(AttrError::Cut { at_bytes }), "{bytes:?}");
    }
}

#[test]
fn marks_are_no_part_of_a_type_and_the_last_of_a_type_counts() {
    let inner = header(4, 0x4000 | 5);
    let bytes = [header(4, 2), header(8, 0x8000 | 2), inner].concat();
    let attrs = Attrs::parse(&bytes).unwrap();
    let last = attrs.get(2).unwrap();
    assert!(last.marked_nested);
    assert!(last.nested().unwrap().get(5).unwrap().content.is_empty());
}

#[test]
fn contents_have_sizes() {
    let bytes = [header(9, 7), vec![b'e', b't', b'h', 0, 0xff, 0, 0, 0]].concat();
    let a = Attrs::parse(&bytes).unwrap().get(7).unwrap();
    let bad = AttrError::Size { kind: 7, has_bytes: 5 };
    assert_eq!(a.u8(), Err(bad));
    assert_eq!(a.be16(), Err(bad));
    assert_eq!(a.u32(), Err(bad));
    assert_eq!(a.u64(), Err(bad));
    assert_eq!(a.array::<4>(), Err(bad));
    assert!(a.u32s().is_err());
    assert_eq!(a.prefix::<4>(), Ok([b'e', b't', b'h', 0]));
    assert_eq!(a.prefix::<6>(), Err(bad));
    assert_eq!(a.text(), Ok("eth"));
    assert_eq!(bad.to_string(), "attribute 7 has 5 bytes");
    let odd = Attr { kind: 1, marked_nested: false, content: &[0xff, 0xfe] };
    assert_eq!(odd.text(), Err(AttrError::Value(1)));
}

#[test]
fn written_attributes_have_the_kernel_layout() {
    let mut out = AttrWriter::behind(vec![9; 4]);
    out.u8(1, 0xab);
    out.be16(2, 0x1234);
    out.nested(3, |out| {
        out.flag(4);
        out.text(5, "abc");
    });
    out.u32s(6, &[1, 2]);
    let expected = [
        vec![9; 4],
        header(5, 1),
        vec![0xab, 0, 0, 0],
        header(6, 2),
        vec![0x12, 0x34, 0, 0],
        header(16, 0x8000 | 3),
        header(4, 4),
        header(8, 5),
        b"abc\0".to_vec(),
        header(12, 6),
        1u32.to_ne_bytes().to_vec(),
        2u32.to_ne_bytes().to_vec(),
    ];
    assert_eq!(out.len_bytes(), expected.concat().len());
    assert_eq!(out.finish().unwrap(), expected.concat());
}

#[test]
fn oversized_attributes_are_an_error() {
    let mut out = AttrWriter::new();
    out.put(1, &[0; 65531]);
    assert_eq!(out.finish().unwrap().len(), 65536);
    let mut out = AttrWriter::new();
    out.put(1, &[0; 65532]);
    assert_eq!(out.finish(), Err(TooLong { kind: 1, has_bytes: 65532 }));
    // Each part fits, but not all together.
    let mut out = AttrWriter::new();
    out.nested(8, |out| (0..3).for_each(|_| out.put(2, &[0; 30000])));
    out.u8(1, 1);
    let why = out.finish().unwrap_err();
    assert_eq!(why, TooLong { kind: 8, has_bytes: 3 * 30004 });
    assert_eq!(why.to_string(), "attribute 8 would have 90012 bytes: 65531 fit");
}

proptest! {
    #[test]
    fn any_bytes_parse_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        crate::fuzz::attributes(&bytes);
    }

    #[test]
    fn written_attributes_parse_equally(list in prop::collection::vec((0u16..0x4000, prop::collection::vec(any::<u8>(), 0..40)), 0..8)) {
        let mut out = AttrWriter::new();
        for (kind, content) in &list {
            out.put(*kind, content);
        }
        let bytes = out.finish().unwrap();
        let read: Vec<(u16, Vec<u8>)> =
            Attrs::parse(&bytes).unwrap().into_iter().map(|a| (a.kind, a.content.to_vec())).collect();
        prop_assert_eq!(read, list);
    }
}

#[test]
fn the_corpus_is_replayed() {
    testkit::replay_corpus(
        concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/attributes"),
        crate::fuzz::attributes,
    );
}
