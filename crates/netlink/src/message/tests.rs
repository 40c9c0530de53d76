use super::*;

const NAMES: AttributeNames = &["NONE", "FIRST", "SECOND", "THIRD"];

fn request() -> NlRequest {
    let mut writer =
        MessageWriter::new(0x1234, [3, 1], flag::CREATE, &[9, 9, 9, 9], Asked::once("try", NAMES));
    writer.attrs.u32(1, 5);
    writer.attrs.nested(2, |out| out.u8(7, 1));
    writer.finish().unwrap()
}

#[test]
fn a_request_is_laid_out_as_the_headers_say() {
    let mut out = vec![0xee; 4];
    request().append_to(&mut out, flag::ACK, 77, 88);
    let expected = [
        &[0xee; 4][..],
        &44u32.to_ne_bytes(),
        &0x1234u16.to_ne_bytes(),
        &0x405u16.to_ne_bytes(),
        &77u32.to_ne_bytes(),
        &88u32.to_ne_bytes(),
        &[3, 1, 0, 0],
        &[9; 4],
        &8u16.to_ne_bytes(),
        &1u16.to_ne_bytes(),
        &5u32.to_ne_bytes(),
        &12u16.to_ne_bytes(),
        &0x8002u16.to_ne_bytes(),
        &5u16.to_ne_bytes(),
        &7u16.to_ne_bytes(),
        &[1, 0, 0, 0],
    ];
    assert_eq!(out, expected.concat());
}

/// An error answer: its number, and attributes.
fn refusal(errno: i32, capped: bool, attrs: &[(u16, &[u8])]) -> Vec<u8> {
    let mut body = (-errno).to_ne_bytes().to_vec();
    let mut repeated = Vec::new();
    request().append_to(&mut repeated, 0, 1, 2);
    body.extend(if capped { &repeated[..HEADER_BYTES] } else { &repeated });
    let mut out = AttrWriter::behind(body);
    for (kind, content) in attrs {
        out.put(*kind, content);
    }
    let body = out.finish().unwrap();
    let flags = flag::ACK_TLVS | if capped { flag::CAPPED } else { 0 };
    [
        &((HEADER_BYTES + body.len()) as u32).to_ne_bytes()[..],
        &kind::ERROR.to_ne_bytes(),
        &flags.to_ne_bytes(),
        &1u32.to_ne_bytes(),
        &2u32.to_ne_bytes(),
        &body,
    ]
    .concat()
}

#[test]
fn refusals_are_reported_in_words() {
    let text = |bytes: &[u8]| request().result(&split(bytes).unwrap().0).unwrap_err().to_string();
    let plain = "cannot try: Invalid argument (os error 22)";
    for capped in [false, true] {
        assert_eq!(text(&refusal(22, capped, &[])), plain);
        let words: (u16, &[u8]) = (error_attr::MSG, b"no such thing\0");
        assert_eq!(text(&refusal(22, capped, &[words])), format!("{plain}; the kernel says: no such thing"));
        for (offset, means) in
            [(24u32, "FIRST"), (28, "FIRST"), (32, "SECOND"), (36, "SECOND, byte 0"), (40, "SECOND, byte 4")]
        {
            let bytes = refusal(22, capped, &[(error_attr::OFFS, &offset.to_ne_bytes())]);
            assert_eq!(text(&bytes), format!("{plain}; it means {means}"), "{offset}");
        }
        let missing = refusal(22, capped, &[(error_attr::MISS_TYPE, &3u32.to_ne_bytes())]);
        assert_eq!(text(&missing), format!("{plain}; it means THIRD, which is missing"));
        let far = refusal(22, capped, &[(error_attr::OFFS, &u32::MAX.to_ne_bytes())]);
        assert_eq!(text(&far), plain);
    }
    let good = refusal(0, true, &[]);
    assert!(request().result(&split(&good).unwrap().0).is_ok());
    let e = request().result(&Answer { kind: kind::ERROR, flags: 0, seq: 1, body: &[1, 2] }).unwrap_err();
    assert_eq!(e.to_string(), "cannot try: bad answer: attributes are cut off at byte 0");
}

#[test]
fn errors_are_distinguished() {
    let of = |errno| request().result(&split(&refusal(errno, true, &[])).unwrap().0).unwrap_err();
    assert!(of(libc::ENOENT).is_not_found() && !of(libc::ENOENT).is_exists());
    assert!(of(libc::EEXIST).is_exists() && of(libc::EBUSY).is_exists());
    assert!(of(libc::ENODEV).is_no_device());
    assert!(of(libc::ENOBUFS).is_no_buffers());
    assert!(of(libc::EOPNOTSUPP).is_unsupported());
    assert!(of(libc::EINVAL).is_invalid() && of(libc::ERANGE).is_invalid());
    assert!(of(libc::EPERM).is_not_permitted());
    let module = Error::NoModule { family: "ovs_flow".into() };
    assert!(module.is_no_module() && module.errno().is_none());
    assert!(module.to_string().contains("ovs_flow"));
    assert!(Error::Lost { asked: "try".into() }.is_no_buffers());
}

#[test]
fn datagrams_are_walked_through_and_cut_ones_end() {
    let one = refusal(0, true, &[]);
    let both = [one.clone(), refusal(2, false, &[(1, b"abc")])].concat();
    assert_eq!(answers(&both).count(), 2);
    assert_eq!(answers(&both[..both.len() - 1]).count(), 1);
    assert_eq!(answers(&one[..15]).count(), 0);
    let mut short = one.clone();
    short[..4].copy_from_slice(&15u32.to_ne_bytes());
    assert_eq!(answers(&short).count(), 0);
    short[..4].copy_from_slice(&u32::MAX.to_ne_bytes());
    assert_eq!(answers(&short).count(), 0);
}

#[test]
fn an_attribute_that_does_not_fit_is_an_error() {
    let mut writer = MessageWriter::new(1, [1, 1], 0, &[], Asked::once("try", NAMES));
    writer.attrs.put(3, &[0; 70000]);
    let e = writer.finish().unwrap_err();
    assert_eq!(e.to_string(), "cannot try: attribute 3 would have 70000 bytes: 65531 fit");
}
