//! The whole datagram, and its translation on the way back into the fragments.

use super::*;

/// Takes the fragments that `cuts` makes of `datagram`: start, end; in this order.
fn join(v6: bool, datagram: &[u8], options: &[u8], cuts: &[(usize, usize)]) -> Box<Reassembled<Bit>> {
    let ipf = Ipf::new(1);
    for (start, end) in cuts {
        // Options of the others differ: those of the first one count.
        let options = if *start == 0 || v6 { options } else { &[] };
        let payload = &datagram[*start..*end];
        let more = *end < datagram.len();
        if let Taken::Complete(whole) =
            take(&ipf, Cut { v6, id: 1, start: *start, more, payload, options }.bit(1), 0, 0)
        {
            assert!(ipf.is_empty() && ipf.lists().is_empty());
            return whole;
        }
    }
    panic!("not complete");
}

/// Translates source address and port of the whole to those of the recorded answers.
fn translate(whole: &mut Packet, v6: bool) {
    let l4 = whole.len() - if v6 { 3908 } else { 3608 };
    let f = whole.data_mut();
    let (mut src, dst) =
        if v6 { (f[22..38].to_vec(), f[38..54].to_vec()) } else { (f[26..30].to_vec(), f[30..34].to_vec()) };
    if v6 {
        src[15] = 0x99;
        f[22..38].copy_from_slice(&src);
    } else {
        src.copy_from_slice(&[99, 1, 1, 1]);
        f[26..30].copy_from_slice(&src);
    }
    f[l4..l4 + 2].copy_from_slice(&5555u16.to_be_bytes());
    f[l4 + 6..l4 + 8].fill(0);
    let sum = !fold(sum(&f[l4..], pseudo(&src, &dst, UDP, f.len() - l4)));
    f[l4 + 6..l4 + 8].copy_from_slice(&sum.to_be_bytes());
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn a_translation_goes_back_into_the_fragments() {
    let datagram = udp(false, 3600);
    let mut whole = join(false, &datagram, &[0x94, 4, 0, 0], &[(2400, 3608), (0, 1200), (1200, 2400)]);
    assert_eq!(whole.whole.data()[38..], datagram);
    assert_eq!(hex(&whole.whole.data()[14..22]), "46000e3000010000");
    assert_eq!(checksum(&whole.whole.data()[14..38]), 0);
    translate(&mut whole.whole, false);
    whole.carry_back();
    let headers: Vec<String> = whole.fragments.iter().map(|f| hex(&f.packet.data()[14..38])).collect();
    // As recorded, but without DF in the first one.
    assert_eq!(
        headers[1..],
        [
            "450004c400012096 4011e78e 63010101 0a000002 a8a9aaab".replace(' ', ""),
            "450004cc0001012c 401106f1 63010101 0a000002 58595a5b".replace(' ', ""),
        ]
    );
    assert_eq!(headers[0], "460004c8000120004011531c630101010a00000294040000");
    assert_eq!(hex(&whole.fragments[0].packet.data()[38..48]), "15b307d00e189c7a0001");
}

#[test]
fn a_translation_goes_back_into_the_fragments_of_ipv6() {
    let datagram = udp(true, 3900);
    let mut whole = join(true, &datagram, &[], &[(2560, 3908), (0, 1280), (1280, 2560)]);
    assert_eq!(whole.whole.data()[54..], datagram);
    assert_eq!(hex(&whole.whole.data()[14..22]), "600000000f441140");
    translate(&mut whole.whole, true);
    whole.carry_back();
    let fragments: Vec<String> = whole.fragments.iter().map(|f| hex(&f.packet.data()[14..78])).collect();
    let addresses = "fd000000000000000000000000000099fd000000000000000000000000000002";
    for (fragment, (header, rest)) in fragments.iter().zip([
        ("6000000005082c40", "1100000100000001 15b307d00f441c030001020304050607"),
        ("6000000005082c40", "1100050100000001 f8f9fafbfcfdfeff0001020304050607"),
        ("60000000054c2c40", "11000a0000000001 f8f9fafbfcfdfeff0001020304050607"),
    ]) {
        let expect = format!("{header}{addresses}{}", rest.replace(' ', ""));
        assert_eq!(fragment[..expect.len()], expect);
    }
}

#[test]
fn extension_headers_before_the_fragment_header_stay() {
    let datagram = udp(true, 2600);
    let destination_options = [44, 0, 1, 4, 0, 0, 0, 0];
    let whole = join(true, &datagram, &destination_options, &[(0, 1304), (1304, 2608)]);
    let f = whole.whole.data();
    assert_eq!(f[62..], datagram);
    assert_eq!((hex(&f[54..62]), f[20]), ("1100010400000000".into(), 60));
    assert_eq!(usize::from(u16::from_be_bytes([f[18], f[19]])), f.len() - 54);
}

#[test]
fn a_checksum_left_to_a_device_is_completed_over_the_datagram() {
    for (v6, bytes, l4) in [(false, 2400, 34), (true, 2600, 62)] {
        let complete = udp(v6, bytes);
        // Only the sum of the pseudo-header in the field, as such a sender leaves it.
        let mut partial = complete.clone();
        let frame = Cut { v6, ..CUT }.frame();
        let range = if v6 { 22..54 } else { 26..34 };
        let (src, dst) = frame[range.clone()].split_at(range.len() / 2);
        let sum = fold(pseudo(src, dst, UDP, complete.len()));
        partial[6..8].copy_from_slice(&sum.to_be_bytes());
        let ipf = Ipf::new(1);
        let mut first = Cut { v6, payload: &partial[..1304], ..CUT }.bit(1);
        first.packet.offload =
            Offload { needs_csum: true, csum_start: l4, csum_offset: 6, csum_valid: true, ..Offload::NONE };
        assert_eq!(word(&take(&ipf, first, 0, 0)), "held");
        let last = Cut { v6, start: 1304, more: false, payload: &partial[1304..], ..CUT }.bit(1);
        let Taken::Complete(mut whole) = take(&ipf, last, 0, 0) else { panic!("not complete") };
        let removed = if v6 { 8 } else { 0 };
        let o = whole.whole.offload;
        assert_eq!((o.needs_csum, o.csum_start, o.csum_offset, o.csum_valid), (true, l4 - removed, 6, false));
        whole.carry_back();
        let l4 = usize::from(l4);
        assert_eq!(whole.fragments[0].packet.data()[l4..], complete[..1304], "IPv6: {v6}");
        assert_eq!(whole.fragments[1].packet.data()[l4..], complete[1304..]);
        assert!(whole.fragments.iter().all(|f| !f.packet.offload.needs_csum));
    }
}

#[test]
fn a_hostile_place_of_the_checksum_changes_no_header() {
    let datagram = udp(false, 2400);
    let ipf = Ipf::new(1);
    let mut first = Cut { payload: &datagram[..1304], ..CUT }.bit(1);
    // At the source address.
    first.packet.offload = Offload { needs_csum: true, csum_start: 14, csum_offset: 12, ..Offload::NONE };
    let (frame, offload) = (first.packet.data().to_vec(), first.packet.offload);
    take(&ipf, first, 0, 0);
    let last = Cut { start: 1304, more: false, payload: &datagram[1304..], ..CUT }.bit(1);
    let Taken::Complete(mut whole) = take(&ipf, last, 0, 0) else { panic!("not complete") };
    whole.carry_back();
    assert_eq!(whole.fragments[0].packet.data(), frame);
    assert_eq!(whole.fragments[0].packet.offload, offload);
}

#[test]
fn padding_of_short_frames_is_no_payload() {
    let datagram = udp(false, 1300);
    let ipf = Ipf::new(1);
    take(&ipf, Cut { payload: &datagram[..1304], ..CUT }.bit(1), 0, 0);
    let mut last = Cut { start: 1304, more: false, payload: &datagram[1304..], ..CUT }.bit(1);
    last.packet.set_len(60);
    let Taken::Complete(mut whole) = take(&ipf, last, 0, 0) else { panic!("not complete") };
    assert_eq!(whole.whole.data()[34..], datagram);
    whole.carry_back();
    assert_eq!(whole.fragments.iter().map(|f| f.packet.len()).collect::<Vec<_>>(), [1338, 60]);
}
