use super::*;
use crate::extract::{Metadata, extract};
use crate::nlattr::{AttrError, AttrWriter};
use crate::{FLOW_WORDS, Flow, Mask, Tunnel, tunnel_flags};
use proptest::prelude::*;

fn bytes_of(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|b| *b != b' ').collect();
    digits.chunks(2).map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

fn key_of(frame: &str, vlan_limit: u8) -> FlowKey {
    let mut key = FlowKey::default();
    extract(&bytes_of(frame), &Metadata { in_port: 7, ..Metadata::default() }, vlan_limit, &mut key);
    key
}

/// The attributes of a frame's key after the metadata: `type=content`, with the outer type before nested
/// ones.
fn check(frame: &str, expected: &[&str]) {
    let key = key_of(frame, 2);
    let mut found = Vec::new();
    read(&key_attributes(&key), "", &mut found);
    let port = 7u32.to_ne_bytes().map(|b| format!("{b:02x}")).concat();
    let metadata = [
        "20=00000000".into(),
        "19=00000000".into(),
        "2=00000000".into(),
        format!("3={port}"),
        "15=00000000".into(),
        "22=00000000".into(),
        "23=0000".into(),
        "24=00000000".into(),
    ];
    assert_eq!(found[..8], metadata, "{frame}");
    assert_eq!(found[8], "4=020000000002020000000001", "{frame}");
    assert_eq!(found[9..], *expected, "{frame}");
}

fn read(mut bytes: &[u8], before: &str, out: &mut Vec<String>) {
    while let [a, b, c, d, ..] = *bytes {
        let (len, kind) = (u16::from_ne_bytes([a, b]) as usize, u16::from_ne_bytes([c, d]));
        let content = &bytes[4..len];
        let name = format!("{before}{}", kind & 0xff);
        if kind & attr::NESTED != 0 {
            read(content, &format!("{name}."), out);
        } else {
            let hex: String = content.iter().map(|b| format!("{b:02x}")).collect();
            out.push(format!("{name}={hex}"));
        }
        bytes = &bytes[len.next_multiple_of(4)..];
    }
    assert!(bytes.is_empty());
}

const ETH: &str = "020000000001 020000000002";
const IP: &str = "45000030 00010000 40";

#[test]
fn keys_have_the_attributes_that_the_kernel_gives_them() {
    let addresses = "0000 0a000001 0a000002";
    let v4 = "7=0a0000010a000002";
    let pad = "00".repeat(20);
    let contexts = "00000001000000020000000300000004";
    check(
        &format!("{ETH} 894f 0fc6 0101 00000505 {contexts}"),
        &["6=894f", "28.1=003f010100000505", &format!("28.2={contexts}")],
    );
    check(&format!("{ETH} 894f 1fc2 0201 000005ff"), &["6=894f", "28.1=013f0201000005ff"]);
    check(
        &format!("{ETH} 0800 {IP}11{addresses} 03e80035001c0000 {pad}"),
        &["6=0800", &format!("{v4}11004000"), "10=03e80035"],
    );
    check(
        &format!("{ETH} 0800 {IP}06{addresses} 03e80050 00000001 00000000 50020100 00000000 {pad}"),
        &["6=0800", &format!("{v4}06004000"), "9=03e80050", "18=0002"],
    );
    check(
        &format!("{ETH} 0800 {IP}01{addresses} 0800f7ff00000000 {pad}"),
        &["6=0800", &format!("{v4}01004000"), "11=0800"],
    );
    // A later fragment has no ports.
    check(
        &format!("{ETH} 0800 45000030 00010010 4011{addresses} 03e80035001c0000 {pad}"),
        &["6=0800", &format!("{v4}11004002")],
    );
    check(
        &format!("{ETH} 8100 2064 0800 {IP}11{addresses} 03e80035001c0000 {pad}"),
        &["6=8100", "5=3064", "1.6=0800", &format!("1.{v4}11004000"), "1.10=03e80035"],
    );
    check(
        &format!("{ETH} 0806 0001080006040001 020000000002 0a000001 000000000000 0a000002 {pad}"),
        &["6=0806", "13=0a0000010a00000200010200000000020000000000000000"],
    );
    let (src, dst) = ("fd".repeat(16), "fe".repeat(16));
    check(
        &format!("{ETH} 86dd 60000000 0018 3aff {src} {dst} 8700000000000000 {src} {pad}"),
        &[
            "6=86dd",
            &format!("8={src}{dst}000000003a00ff00"),
            "12=8700",
            &format!("14={src}{}", "00".repeat(12)),
        ],
    );
    check(&format!("{ETH} 8847 000641ff {pad}"), &["6=8847", "21=000641ff"]);
    check(&format!("{ETH} 88b5 {pad}"), &["6=88b5"]);
    // A length, not an EtherType.
    check(&format!("{ETH} 0010 {pad}"), &[]);
}

/// Attributes as text, numbers in host order first converted.
fn attribute_text(bytes: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    read(bytes, "", &mut found);
    found
}

/// The encoding of a mask whose bits `set` sets for a frame's key, without the input port and the
/// recirculation id, which are always present.
fn check_mask(frame: &str, set: fn(&mut Flow), expected: &[&str]) {
    let key = key_of(frame, 2);
    let mut flow = Flow::default();
    set(&mut flow);
    let mask = FlowKey::from_mask(&Mask(flow), &key);
    let bytes = mask_to_bytes(&key, &mask, &KeyLimits::LINUX);
    let found = attribute_text(&bytes);
    assert_eq!(found[..2], ["20=ffffffff", "3=ffffffff"], "{frame}");
    assert_eq!(found[2..], *expected, "{frame}");
    // The kernel reports it in this form, and it parses equally.
    let held = kernel_mask(&key, &mask, &KeyLimits::LINUX);
    assert_eq!(parse_mask(&bytes, &key, 2), Ok((held, Fitness::Perfect)), "{frame}");
}

const PAD: &str = "0000000000000000000000000000000000000000";
const V4: &str = "0000 0a000001 0a000002";

fn tcp() -> String {
    format!("{ETH} 0800 {IP}06{V4} 03e80050 00000001 00000000 50020100 00000000 {PAD}")
}

fn udp() -> String {
    format!("{ETH} 0800 {IP}11{V4} 03e80035001c0000 {PAD}")
}

fn icmpv6(first: &str) -> String {
    let (src, dst) = ("fd".repeat(16), "fe".repeat(16));
    format!("{ETH} 86dd 60000000 0018 3aff {src} {dst} {first}000000000000 {src} {PAD}")
}

#[test]
fn masks_have_the_kernel_form() {
    let none: fn(&mut Flow) = |_| ();
    check_mask(&tcp(), none, &["6=ffff"]);
    check_mask(&tcp(), |m| m.dl_dst = [1; 6], &["4=000000000000010101010101", "6=ffff"]);
    check_mask(&tcp(), |m| m.nw_proto = 0x0f, &["6=ffff", "7=00000000000000000f000000"]);
    // Ports need an exact protocol.
    check_mask(&tcp(), |m| m.tp_dst = 0xff, &["6=ffff", "7=0000000000000000ff000000", "9=000000ff"]);
    check_mask(&tcp(), |m| m.tcp_flags = 0xffff, &["6=ffff", "7=0000000000000000ff000000", "18=0fff"]);
    check_mask(&udp(), |m| m.tp_src = 0xffff, &["6=ffff", "7=0000000000000000ff000000", "10=ffff0000"]);
    // A TCP field in a UDP packet: only the protocol counts.
    check_mask(&udp(), |m| m.tcp_flags = 2, &["6=ffff", "7=0000000000000000ff000000"]);
    // Fragment bits are one enumeration.
    check_mask(&udp(), |m| m.nw_frag = nw_frag::LATER, &["6=ffff", "7=0000000000000000000000ff"]);
    // A later fragment has no ports, because it is one.
    let later = format!("{ETH} 0800 45000030 00010010 4011{V4} 03e80035001c0000 {PAD}");
    check_mask(&later, |m| m.tp_src = 1, &["6=ffff", "7=0000000000000000ff0000ff"]);
    let icmp = format!("{ETH} 0800 {IP}01{V4} 0800f7ff00000000 {PAD}");
    check_mask(&icmp, |m| m.tp_src = 0xffff, &["6=ffff", "7=0000000000000000ff000000", "11=ff00"]);
    // Neighbour discovery needs an exact type.
    let v6 = format!("8={}ff000000", "00".repeat(36));
    let nd = format!("14={}{}", "00".repeat(16), "ff".repeat(6) + &"00".repeat(6));
    check_mask(&icmpv6("8700"), |m| m.arp_sha = [0xff; 6], &["6=ffff", &v6, "12=ff00", &nd]);
    // An echo has none, because it is an echo.
    check_mask(&icmpv6("8000"), |m| m.nd_target = [0xff; 16], &["6=ffff", &v6, "12=ff00"]);
    let label = format!("8={}000fffff00000000", "00".repeat(32));
    check_mask(&icmpv6("8000"), |m| m.ipv6_label = u32::MAX, &["6=ffff", &label]);
    let arp = format!("{ETH} 0806 0001080006040001 020000000002 0a000001 000000000000 0a000002 {PAD}");
    let hardware = format!("13=00000000000000000000{}00000000", "00".repeat(6) + &"ff".repeat(4));
    check_mask(&arp, |m| m.arp_tha[..4].fill(0xff), &["6=ffff", &hardware]);
    check_mask(
        &arp,
        |m| m.nw_proto = 0xff,
        &["6=ffff", "13=000000000000000000ff0000000000000000000000000000"],
    );
    // As many labels as the packet has; the bottom bit excludes more.
    let mpls = format!("{ETH} 8847 000641ff {PAD}");
    check_mask(&mpls, |m| m.mpls_lse[0] = 0xf000_0000, &["6=ffff", "21=f0000000"]);
    check_mask(&mpls, |m| m.mpls_lse[1] = 1, &["6=ffff", "21=00000100"]);
    let two = format!("{ETH} 8847 000640ff 000641ff {PAD}");
    check_mask(&two, |m| m.mpls_lse[1] = 1, &["6=ffff", "21=0000000000000001"]);
    // A frame without an EtherType.
    check_mask(&format!("{ETH} 0010 {PAD}"), none, &["6=ffff"]);
    check_mask(&format!("{ETH} 88b5 {PAD}"), |m| m.nw_proto = 0xff, &["6=ffff"]);
}

#[test]
fn masks_of_tags_are_nested_as_the_tags_are() {
    let tagged = format!("{ETH} 8100 2064 0800 {IP}11{V4} 03e80035001c0000 {PAD}");
    check_mask(&tagged, |_| (), &["6=ffff", "5=1000", "1.6=ffff"]);
    check_mask(&tagged, |m| m.vlans[0].tci = 0xe000, &["6=ffff", "5=f000", "1.6=ffff"]);
    let ip = "1.7=ff00000000000000ff000000";
    check_mask(
        &tagged,
        |m| (m.nw_src, m.tp_src) = (0xff00_0000, 1),
        &["6=ffff", "5=1000", "1.6=ffff", ip, "1.10=00010000"],
    );
    let two = format!("{ETH} 88a8 2064 8100 0005 0010 {PAD}");
    check_mask(&two, |m| m.vlans[1].tci = 5, &["6=ffff", "5=1000", "1.6=ffff", "1.5=1005", "1.1.6=ffff"]);
    // A tag after two others becomes the EtherType.
    let three = format!("{ETH} 88a8 2064 8100 0005 8100 0006 0800 {PAD}");
    check_mask(&three, |_| (), &["6=ffff", "5=1000", "1.6=ffff", "1.5=1000", "1.1.6=ffff"]);
}

#[test]
fn a_tag_beyond_the_limit_is_matched_by_its_presence() {
    let two = format!("{ETH} 88a8 2064 8100 0005 0800 {IP}11{V4} 03e80035001c0000 {PAD}");
    let key = key_of(&two, 1);
    let written = attribute_text(&key_to_bytes(&key, &KeyLimits::LINUX));
    assert_eq!(written[10..], ["6=88a8", "5=3064", "1.6=8100", "1.5=1000"]);
    let mask = FlowKey::from_mask(&Mask::none(), &key);
    let bytes = mask_to_bytes(&key, &mask, &KeyLimits::LINUX);
    // The recirculation id prevents the kernel from ignoring the mask of the tag.
    let expected = ["3=ffffffff", "6=ffff", "5=1000", "1.6=ffff", "1.5=1000", "1.1.20=ffffffff"];
    assert_eq!(attribute_text(&bytes), expected);
    assert_eq!(parse_key(&key_to_bytes(&key, &KeyLimits::LINUX), 1), Ok((key, Fitness::Perfect)));
    assert_eq!(
        parse_mask(&bytes, &key, 1),
        Ok((kernel_mask(&key, &mask, &KeyLimits::LINUX), Fitness::Perfect))
    );
    // A datapath with a limit of one tag, like ours.
    let one = KeyLimits { vlans: 1, ..KeyLimits::LINUX };
    assert_eq!(attribute_text(&key_to_bytes(&key, &one))[10..], ["6=88a8", "5=3064", "1.6=8100"]);
}

#[test]
fn connections_are_matched_where_the_kernel_knows_them() {
    let mut key = key_of(&tcp(), 2);
    key.base.ct_state = 0x22;
    key.ct.label = 5u128.to_be_bytes();
    (key.ct.nw_proto, key.ct.nw_src, key.ct.tp_src) = (6, 0x0a00_0001, 1000);
    key.set_shape();
    let mask = FlowKey::from_mask(&Mask(Flow::from_words([u64::MAX; FLOW_WORDS])), &key);
    let bytes = mask_to_bytes(&key, &mask, &KeyLimits::LINUX);
    let all = attribute_text(&bytes);
    // The kernel would reject unknown bits of the state.
    let state = u32::to_ne_bytes(0xff).map(|b| format!("{b:02x}")).concat();
    assert!(all.contains(&format!("22={state}")), "{all:?}");
    assert!(all.contains(&format!("26={}ff000000", "ff".repeat(12))), "{all:?}");
    let label: String = 5u128.to_ne_bytes().iter().map(|b| format!("{b:02x}")).collect();
    let key_bytes = key_to_bytes(&key, &KeyLimits::LINUX);
    assert!(attribute_text(&key_bytes).contains(&format!("25={label}")));
    assert_eq!(parse_key(&key_bytes, 2), Ok((key, Fitness::Perfect)));
    assert!(mask_fits(&key, &mask, &KeyLimits::LINUX));
    for limits in [
        KeyLimits { ct: false, ..KeyLimits::LINUX },
        KeyLimits { ct_labels: false, ..KeyLimits::LINUX },
        KeyLimits { ct_tuple: false, ..KeyLimits::LINUX },
    ] {
        assert!(!mask_fits(&key, &mask, &limits), "{limits:?}");
        assert!(mask_fits(&key, &FlowKey::from_mask(&Mask::none(), &key), &limits), "{limits:?}");
    }
}

#[test]
fn tunnels_are_matched_as_the_kernel_holds_them() {
    let mut key = key_of(&tcp(), 2);
    let tunnel = Tunnel {
        id: 5,
        src: 0x0a00_0002,
        dst: 0x0a00_0001,
        flags: tunnel_flags::KEY | tunnel_flags::CSUM,
        ttl: 64,
        tp_src: 50000,
        tp_dst: 4789,
        ..Tunnel::default()
    };
    key.tunnel = tunnel;
    key.set_shape();
    let written = key_to_bytes(&key, &KeyLimits::LINUX);
    let port = 7u32.to_ne_bytes().map(|b| format!("{b:02x}")).concat();
    let expected = [
        "16.0=0000000000000005",
        "16.1=0a000002",
        "16.2=0a000001",
        "16.4=40",
        "16.6=",
        "16.9=c350",
        "16.10=12b5",
        &format!("3={port}"),
    ];
    assert_eq!(attribute_text(&written)[3..11], expected);
    assert_eq!(parse_key(&written, 2), Ok((key, Fitness::Perfect)));

    let held = |mask: Tunnel| {
        let mut flow = Flow::default();
        flow.set_tunnel(&mask);
        let mask = FlowKey::from_mask(&Mask(flow), &key);
        let held = kernel_mask(&key, &mask, &KeyLimits::LINUX);
        let bytes = mask_to_bytes(&key, &mask, &KeyLimits::LINUX);
        assert_eq!(parse_mask(&bytes, &key, 2), Ok((held, Fitness::Perfect)));
        (held.tunnel, mask_fits(&key, &mask, &KeyLimits::LINUX))
    };
    // The presence of a tunnel is always matched.
    let bytes = mask_to_bytes(&key, &FlowKey::from_mask(&Mask::none(), &key), &KeyLimits::LINUX);
    assert!(attribute_text(&bytes).contains(&"16.4=00".to_string()));
    assert_eq!(held(Tunnel::default()), (Tunnel::default(), true));
    // The key's presence comes with it; addresses are of one family; there is no group policy.
    let of_key = Tunnel { id: 0xff, dst: u32::MAX, ..Tunnel::default() };
    assert_eq!(held(of_key), (Tunnel { flags: tunnel_flags::KEY, ..of_key }, true));
    assert_eq!(held(Tunnel { ipv6_dst: [0xff; 16], ..Tunnel::default() }), (Tunnel::default(), true));
    assert_eq!(held(Tunnel { gbp_id: 1, ..Tunnel::default() }), (Tunnel::default(), false));
}

#[test]
fn masks_beyond_the_kernel_do_not_fit() {
    let igmp = format!("{ETH} 0800 {IP}02{V4} 16000000e0000001 {PAD}");
    type Set = fn(&mut Flow);
    let one_of_each = KeyLimits { vlans: 1, mpls: 1, ..KeyLimits::LINUX };
    let cases: [(&str, Set, KeyLimits, bool); 8] = [
        (&igmp, |m| m.nw_proto = 0xff, KeyLimits::LINUX, true),
        (&igmp, |m| m.tp_src = 0xff, KeyLimits::LINUX, false),
        (&igmp, |m| m.igmp_group = 1, KeyLimits::LINUX, false),
        (&udp(), |m| m.igmp_group = 1, KeyLimits::LINUX, true),
        (
            "020000000001 020000000002 88a8 2064 8100 0005 88b5",
            |m| m.vlans[1].tci = 1,
            KeyLimits::LINUX,
            true,
        ),
        ("020000000001 020000000002 88a8 2064 8100 0005 88b5", |m| m.vlans[1].tci = 1, one_of_each, false),
        ("020000000001 020000000002 8847 000640ff 000641ff", |m| m.mpls_lse[1] = 1, one_of_each, false),
        ("020000000001 020000000002 8847 000641ff", |m| m.mpls_lse[1] = 1, one_of_each, true),
    ];
    for (frame, set, limits, fits) in cases {
        let key = key_of(frame, 2);
        let mut flow = Flow::default();
        set(&mut flow);
        assert_eq!(
            mask_fits(&key, &FlowKey::from_mask(&Mask(flow), &key), &limits),
            fits,
            "{frame} {limits:?}"
        );
    }
}

/// Parses a key of these attributes after an Ethernet header.
fn parse(limit: u8, write: impl FnOnce(&mut AttrWriter)) -> Result<(FlowKey, Fitness), AttrError> {
    let mut out = AttrWriter::new();
    out.put(attr::ETHERNET, &[7; 12]);
    write(&mut out);
    parse_key(&out.finish().unwrap(), limit)
}

#[test]
fn tunnel_options_are_read_as_written() {
    let mut key = FlowKey::default();
    (key.base.in_port, key.base.dl_type, key.tunnel.dst, key.tunnel.ttl) = (3, 0x88b5, 0x0a00_0001, 64);
    let check = |key: &FlowKey, blocks: u32| {
        let mask = FlowKey::from_mask(&Mask::none(), key);
        let bytes = key_to_bytes(key, &KeyLimits::LINUX);
        assert_eq!(parse_key(&bytes, 2).unwrap(), (*key, Fitness::Perfect));
        assert_eq!((key.base.shape / shape::OPTIONS).count_ones(), blocks);
        let bytes = mask_to_bytes(key, &mask, &KeyLimits::LINUX);
        let (read, fitness) = parse_mask(&bytes, key, 2).unwrap();
        assert_eq!((read.options, fitness), (mask.options, Fitness::Perfect));
    };
    key.set_shape();
    check(&key, 0);
    for (n, len, blocks) in [(0u8, 4usize, 1), (1, 0, 1), (2, 124, 3), (3, 104, 4)] {
        assert!(key.options.push(0xffff, n, &vec![0; len]), "{len}");
        key.set_shape();
        check(&key, blocks);
    }
    assert!(!key.options.push(0xffff, 9, &[0; 8]));
    // An option that exceeds the end, and too many bytes.
    let options = |bytes: &[u8]| parse(2, |out| out.nested(attr::TUNNEL, |out| out.put(8, bytes)));
    assert!(options(&[0, 0, 0, 2, 0, 0, 0, 0]).is_err());
    assert!(options(&[0; 256]).is_err());
}

#[test]
fn fitness_reports_lost_fields() {
    let unknown = parse(2, |out| out.u16(32, 4)).unwrap();
    assert_eq!((unknown.0.base.dl_type, unknown.1), (h::FLOW_DL_TYPE_NONE, Fitness::TooMuch));
    // An attribute of zeros loses nothing.
    assert_eq!(parse(2, |out| out.u16(32, 0)).unwrap().1, Fitness::Perfect);
    // Options of ERSPAN.
    let tunnel =
        |option: u8| parse(2, |out| out.nested(attr::TUNNEL, |out| out.put(15, &[option; 8]))).unwrap().1;
    assert_eq!((tunnel(0), tunnel(1)), (Fitness::Perfect, Fitness::TooMuch));
    let stray = parse(2, |out| out.put(attr::TCP, &[1; 4])).unwrap();
    assert_eq!((stray.0.base.tp_src, stray.1), (0, Fitness::TooMuch));
    let no_header = parse(2, |out| out.be16(attr::ETHERTYPE, 0x0800)).unwrap();
    assert_eq!((no_header.0.base.dl_type, no_header.1), (0x0800, Fitness::TooLittle));
    let two = |out: &mut AttrWriter| {
        out.be16(attr::ETHERTYPE, 0x88a8);
        out.be16(attr::VLAN, 0x1005);
        out.nested(attr::ENCAP, |out| out.be16(attr::ETHERTYPE, 0x88b5));
    };
    let (key, fitness) = parse(1, two).unwrap();
    assert_eq!((key.base.vlan_tci, key.base.dl_type, fitness), (0x1005, 0x88b5, Fitness::Perfect));
    let (key, fitness) = parse(0, two).unwrap();
    assert_eq!((key.base.vlan_tci, key.base.dl_type, fitness), (0, 0x88a8, Fitness::TooMuch));
    // The kernel's form of a truncated tag.
    let cut = |out: &mut AttrWriter| {
        out.be16(attr::ETHERTYPE, 0);
        out.be16(attr::VLAN, 0);
        out.nested(attr::ENCAP, |_| ());
    };
    let (key, fitness) = parse(2, cut).unwrap();
    assert_eq!((key.base.vlan_tci, key.base.dl_type, fitness), (0, 0x8100, Fitness::TooLittle));
    // A packet without an Ethernet header.
    let mut out = AttrWriter::new();
    out.be16(attr::ETHERTYPE, 0x88b5);
    let (key, fitness) = parse_key(&out.finish().unwrap(), 2).unwrap();
    assert_eq!((key.arp.packet_type, key.base.dl_type, fitness), (0x1_88b5, 0x88b5, Fitness::Perfect));
    assert_eq!(attribute_text(&key_to_bytes(&key, &KeyLimits::LINUX)).last().unwrap(), "6=88b5");
}

#[test]
fn bytes_that_are_no_key_are_rejected() {
    let size = |kind, has_bytes| Err(AttrError::Size { kind, has_bytes });
    assert_eq!(parse(2, |out| out.u8(attr::IN_PORT, 1)), size(attr::IN_PORT, 1));
    let v4 = |out: &mut AttrWriter, content: &[u8]| {
        out.be16(attr::ETHERTYPE, 0x0800);
        out.put(attr::IPV4, content);
    };
    assert_eq!(parse(2, |out| v4(out, &[0; 11])), size(attr::IPV4, 11));
    let odd_fragment = parse(2, |out| v4(out, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3]));
    assert_eq!(odd_fragment, Err(AttrError::Value(attr::IPV4)));
    assert_eq!(parse(2, |out| out.be16(attr::ETHERTYPE, 0x5ff)), Err(AttrError::Value(attr::ETHERTYPE)));
    let tag = |tpid: u16, tci: u16| {
        parse(2, |out| {
            out.be16(attr::ETHERTYPE, tpid);
            out.be16(attr::VLAN, tci);
        })
    };
    assert_eq!(tag(0x8100, 5), Err(AttrError::Value(attr::VLAN)));
    assert_eq!(tag(0x0800, 0x1005), Err(AttrError::Value(attr::ETHERTYPE)));
    let labels = |out: &mut AttrWriter| {
        out.be16(attr::ETHERTYPE, 0x8847);
        out.put(attr::MPLS, &[0; 5]);
    };
    assert_eq!(parse(2, labels), Err(AttrError::Value(attr::MPLS)));
    assert_eq!(parse_key(&[], 2), Err(AttrError::Missing(attr::ETHERTYPE)));
    assert_eq!(parse_key(&[1], 2), Err(AttrError::Cut { at_bytes: 0 }));
}

/// A frame of a kind that parsers accept, with random bytes.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let kinds = prop::sample::select(vec![
        "0800 45000030 00010000 4006 0000",
        "0800 45000030 00010000 4011 0000",
        "0800 45000030 00012000 4001 0000",
        "0800 45000030 00010010 4006 0000",
        "8100 6005 0800 45000030 00010000 4084 0000",
        "88a8 6005 8100 0006 86dd 60012345 0018 3aff",
        "86dd 60000000 0018 3aff fd000000000000000000000000000001 fd000000000000000000000000000002 8700",
        "86dd 60000000 0018 06ff",
        "0806 0001 0800 0604 0001",
        "8847 000640ff",
        "8848 000641ff",
        "88a8 6005 8100 0006 8100 0007 0800",
        "0010",
        "88b5",
    ]);
    (kinds, prop::collection::vec(any::<u8>(), 40..80))
        .prop_map(|(kind, rest)| [bytes_of(ETH), bytes_of(kind), rest].concat())
}

/// None, or one of either family.
fn any_tunnel() -> impl Strategy<Value = Tunnel> {
    let some = (any::<[u64; 5]>(), any::<bool>()).prop_map(|([id, a, b, c, d], is_v4)| {
        let (src, dst) = if is_v4 { (a as u32, b as u32 | 1) } else { (0, 0) };
        let v6 = |n: u64| if is_v4 { [0; 16] } else { (u128::from(n) << 64 | 1).to_be_bytes() };
        Tunnel {
            id: id & c,
            src,
            dst,
            ipv6_src: v6(a),
            ipv6_dst: v6(b),
            flags: d as u16 & tunnel_flags::ALL | if id & c == 0 { 0 } else { tunnel_flags::KEY },
            tos: (d >> 16) as u8,
            ttl: (d >> 24) as u8,
            tp_src: c as u16,
            tp_dst: (c >> 16) as u16,
            gbp_id: (c >> 32) as u16 & (c >> 48) as u16,
            gbp_flags: (d >> 32) as u8 & (d >> 40) as u8 & (d >> 48) as u8,
            ..Tunnel::default()
        }
    });
    prop_oneof![Just(Tunnel::default()), some]
}

proptest! {
    #[test]
    fn keys_and_masks_are_read_as_written(
        frame in any_frame(),
        words in prop::collection::vec(prop_oneof![3 => Just(0), 1 => any::<u64>(), 1 => Just(u64::MAX)], FLOW_WORDS),
        mark in any::<u32>(),
        tunnel in any_tunnel(),
    ) {
        let mut key = FlowKey::default();
        let md = Metadata { in_port: 7, pkt_mark: mark, skb_priority: mark & 1, recirc_id: 3, dp_hash: 9 };
        extract(&frame, &md, 2, &mut key);
        key.tunnel = tunnel;
        if key.base.nw_proto == h::IPPROTO_ICMPV6 {
            // The kernel's keys lack them.
            (key.arp.igmp_group, key.base.tcp_flags) = (0, 0);
        }
        key.set_shape();
        let written = key_to_bytes(&key, &KeyLimits::LINUX);
        prop_assert_eq!(parse_key(&written, 2), Ok((key, Fitness::Perfect)));
        let flow = Flow::from_words(words.try_into().unwrap());
        let mask = FlowKey::from_mask(&Mask(flow), &key);
        let held = kernel_mask(&key, &mask, &KeyLimits::LINUX);
        let bytes = mask_to_bytes(&key, &mask, &KeyLimits::LINUX);
        prop_assert_eq!(parse_mask(&bytes, &key, 2), Ok((held, Fitness::Perfect)));
        prop_assert_eq!(kernel_mask(&key, &held, &KeyLimits::LINUX), held);
    }

    #[test]
    fn any_bytes_parse_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..128)) {
        crate::fuzz::kernel_key(&bytes);
    }
}

#[test]
fn the_corpus_is_replayed() {
    testkit::replay_corpus(
        concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/kernel_key"),
        crate::fuzz::kernel_key,
    );
}
