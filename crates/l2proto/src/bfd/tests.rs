//! Tests of packets, settings and claims.

mod session;
mod simulation;

use super::*;
use flow::{Flow, MacAddr, Mask, nw_frag};
use packet::headers::{ETH_TYPE_IP, IPPROTO_UDP};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A packet that OVS 3.1 sent from a new session with discriminator 0x8260802e, port 49152.
const SENT_BY_OVS: &str = "002320000001aa55aa550002080045c0003400000000ff1164fba9fe0101a9fe0100c0000ec800200000\
                           204003188260802e00000000000f4240000f424000000000";

fn bytes_of(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect()
}

/// The message of [`SENT_BY_OVS`].
fn sent_by_ovs() -> Message {
    Message {
        diagnostic: Diagnostic::NONE,
        state: State::Down,
        flags: Flags::NONE,
        multiplier: 3,
        my_discriminator: 0x8260_802e,
        your_discriminator: 0,
        min_tx_us: 1_000_000,
        min_rx_us: 1_000_000,
        min_echo_rx_us: 0,
    }
}

#[test]
fn a_frame_is_that_of_ovs() {
    let addresses = Addresses {
        src_mac: MacAddr([0xaa, 0x55, 0xaa, 0x55, 0, 2]),
        dst_mac: DEFAULT_DST_MAC,
        src_ip: DEFAULT_SRC_IP,
        dst_ip: DEFAULT_DST_IP,
        src_port: 49152,
    };
    let frame = bytes_of(SENT_BY_OVS);
    assert_eq!(build(&addresses, &sent_by_ovs()), *frame);
    assert_eq!(udp_payload(&frame).map(Message::parse), Some(Ok(sent_by_ovs())));
}

/// Bytes of a good message, changed at one place, and the reason to refuse it.
#[test]
fn bad_messages_are_refused() {
    let good = sent_by_ovs().to_bytes();
    let cases: &[(usize, u8, Result<(), Refusal>)] = &[
        (0, 0x20, Ok(())),
        (0, 0x00, Err(Refusal::Version(0))),
        (0, 0x40, Err(Refusal::Version(2))),
        (0, 0xff, Err(Refusal::Version(7))),
        (0, 0x3f, Ok(())),
        (1, 0x44, Err(Refusal::Authenticated)),
        (1, 0x41, Err(Refusal::Multipoint)),
        (1, 0x40 | 0x3a, Ok(())),
        (1, 0x00, Ok(())),
        (1, 0x80, Err(Refusal::NoYourDiscriminator)),
        (1, 0xc0, Err(Refusal::NoYourDiscriminator)),
        (2, 0, Err(Refusal::ZeroMultiplier)),
        (2, 255, Ok(())),
        (3, 0, Err(Refusal::Length(0))),
        (3, 23, Err(Refusal::Length(23))),
        (3, 48, Ok(())),
    ];
    for (at, byte, expected) in cases {
        let mut bytes = good;
        bytes[*at] = *byte;
        assert_eq!(Message::parse(&bytes).map(|_| ()), *expected, "byte {at} {byte:#x}");
    }
    let mut bytes = good;
    bytes[4..8].fill(0);
    assert_eq!(Message::parse(&bytes), Err(Refusal::NoMyDiscriminator));
    for length in 0..MESSAGE_BYTES {
        assert_eq!(Message::parse(&good[..length]), Err(Refusal::TooShort(length)));
    }
    let long = [&good[..], &[1, 2, 3]].concat();
    assert_eq!(Message::parse(&long), Ok(sent_by_ovs()));
}

#[test]
fn payloads_are_found_behind_tags_and_options_only_in_udp() {
    let frame = bytes_of(SENT_BY_OVS);
    let tagged = [&frame[..12], &[0x81, 0, 0, 5], &frame[12..]].concat();
    let mut tcp = frame.clone();
    tcp[23] = 6;
    let mut no_payload = frame[..42].to_vec();
    no_payload[17] = 28;
    let mut later_fragment = frame.clone();
    later_fragment[21] = 8;
    let cases: &[(&[u8], Option<usize>)] = &[
        (&frame, Some(24)),
        (&tagged, Some(24)),
        (&no_payload, Some(0)),
        (&no_payload[..41], None),
        (&frame[..65], None),
        (&frame[..20], None),
        (&[], None),
        (&tcp, None),
        (&later_fragment, None),
    ];
    for (i, (frame, expected)) in cases.iter().enumerate() {
        assert_eq!(udp_payload(frame).map(<[u8]>::len), *expected, "case {i}");
    }
}

proptest! {
    #[test]
    fn messages_survive_their_wire_form(bytes: [u8; MESSAGE_BYTES]) {
        if let Ok(message) = Message::parse(&bytes) {
            prop_assert_eq!(Message::parse(&message.to_bytes()), Ok(message));
        }
    }
}

#[test]
fn flags_states_and_diagnostics_have_the_names_of_ovs() {
    let flags =
        [(0, "none"), (0x20, "poll"), (0x30, "final poll"), (0x3f, "multipoint demand auth ctl final poll")];
    for (bits, text) in flags {
        assert_eq!(Flags::from_bits(bits).to_string(), text);
    }
    assert_eq!(Diagnostic::from_bits(8).to_string(), "Reverse Concatenated Path Down");
    assert_eq!(Diagnostic::from_bits(9).to_string(), "Invalid Diagnostic");
    assert_eq!(State::AdminDown.to_string(), "admin_down");
}

/// One pair of the column; what the reader makes of it; whether it warns. The results are those of OVS 3.1.
#[test]
fn settings_are_read_as_ovs_reads_them() {
    let default = Config::default();
    let mac = MacAddr::parse("00:00:00:00:00:07");
    let cases: Vec<(&str, &str, Config, bool)> = vec![
        ("enable", "true", Config { enable: true, ..default.clone() }, false),
        ("enable", "TRUE", Config { enable: true, ..default.clone() }, false),
        ("enable", "false", default.clone(), false),
        ("enable", "1", default.clone(), true),
        ("cpath_down", "True", Config { cpath_down: true, ..default.clone() }, false),
        ("cpath_down", "yes", default.clone(), true),
        ("oam", "true", Config { oam: true, ..default.clone() }, false),
        ("check_tnl_key", "true", Config { check_tnl_key: true, ..default.clone() }, false),
        ("forwarding_if_rx", "true", Config { forwarding_if_rx: true, ..default.clone() }, false),
        ("min_rx", "12", Config { min_rx_ms: 12, ..default.clone() }, false),
        ("min_rx", " +12", Config { min_rx_ms: 12, ..default.clone() }, false),
        ("min_rx", "012", Config { min_rx_ms: 12, ..default.clone() }, false),
        ("min_rx", "12x", default.clone(), true),
        ("min_rx", "12 ", default.clone(), true),
        ("min_rx", "0x20", default.clone(), true),
        ("min_rx", "", default.clone(), true),
        ("min_rx", "0", Config { min_rx_ms: 1, ..default.clone() }, false),
        ("min_rx", "-4", Config { min_rx_ms: 1, ..default.clone() }, false),
        ("min_tx", "2147483647", Config { min_tx_ms: 2_147_483_647, ..default.clone() }, false),
        ("min_tx", "2147483648", default.clone(), true),
        ("mult", "255", Config { multiplier: 255, ..default.clone() }, false),
        ("mult", "256", default.clone(), true),
        ("mult", "0", default.clone(), true),
        ("mult", "-1", default.clone(), true),
        ("decay_min_rx", "1000", Config { decay_min_rx_ms: 1000, ..default.clone() }, false),
        ("decay_min_rx", "999", default.clone(), true),
        ("decay_min_rx", "-1", default.clone(), false),
        ("bfd_local_src_mac", "0:0:0:0:0:7", Config { local_src_mac: mac, ..default.clone() }, false),
        ("bfd_local_dst_mac", "00:00:00:00:00:07", Config { local_dst_mac: mac, ..default.clone() }, false),
        ("bfd_remote_dst_mac", "00:00:00:00:00:07", Config { remote_dst_mac: mac, ..default.clone() }, false),
        ("bfd_remote_dst_mac", "00:00:00:00:00:00", default.clone(), false),
        ("bfd_remote_dst_mac", "zz", default.clone(), true),
        ("bfd_src_ip", "10.0.0.1", Config { src_ip: 0x0a00_0001, ..default.clone() }, false),
        ("bfd_dst_ip", "10.0.0.2", Config { dst_ip: 0x0a00_0002, ..default.clone() }, false),
        ("bfd_dst_ip", "", default.clone(), false),
        ("bfd_dst_ip", "nope", default.clone(), true),
        ("bogus", "1", default.clone(), false),
    ];
    for (key, value, expected, warns) in cases {
        let (config, warnings) = Config::parse(&BTreeMap::from([(key.to_owned(), value.to_owned())]));
        assert_eq!((config, !warnings.is_empty()), (expected, warns), "{key}={value}: {warnings:?}");
        assert!(
            warnings
                .iter()
                .all(|(of, text)| of == key && text.starts_with(&format!("bfd:{key}={value}: ignored: ")))
        );
    }
}

/// The flow of a control packet, and changes of it.
fn flow(change: impl FnOnce(&mut Flow)) -> Flow {
    let mut flow = Flow { dl_type: ETH_TYPE_IP, nw_proto: IPPROTO_UDP, tp_dst: UDP_PORT, ..Flow::default() };
    flow.dl_dst = DEFAULT_DST_MAC.0;
    flow.nw_dst = DEFAULT_DST_IP;
    change(&mut flow);
    flow
}

/// Which fields OVS 3.1 has in the megaflows of these packets (`ofproto/trace`), and whether it takes the packet. The table omits the
/// type and the fragment bits, which it always examines.
#[test]
fn claims_are_those_of_ovs() {
    let claim = Config::default().claim();
    let address = Claim { src_ip: 0xa9fe_0102, ..claim };
    let mac = Claim { remote_dst_mac: MacAddr::parse("00:00:00:00:00:09"), ..claim };
    let key = Claim { check_tnl_key: true, ..claim };
    let all = u16::MAX;
    let to = |nw_dst: u32| flow(|f| f.nw_dst = nw_dst);
    let port = |tp_dst: u16| flow(|f| f.tp_dst = tp_dst);
    let nine = flow(|f| f.dl_dst = [0, 0, 0, 0, 0, 9]);
    // Claim, flow, taken; masks of dl_dst, nw_proto, tp_dst, nw_dst, tun_id.
    type Row = (Claim, Flow, bool, (bool, bool, u16, bool, bool));
    let cases: Vec<Row> = vec![
        (claim, to(0xa9fe_0100), true, (false, true, all, false, false)),
        (claim, to(0xa9fe_0101), true, (false, true, all, true, false)),
        (claim, to(0x0a00_0001), true, (false, true, all, false, false)),
        (claim, nine, true, (false, true, all, false, false)),
        (claim, port(3785), false, (false, true, 0x0001, false, false)),
        (claim, port(80), false, (false, true, 0x0800, false, false)),
        (claim, port(65535), false, (false, true, 0x8000, false, false)),
        (claim, flow(|f| f.nw_frag = nw_frag::ANY), true, (false, true, all, false, false)),
        (claim, flow(|f| f.nw_frag = nw_frag::MASK), false, (false, true, 0, false, false)),
        (claim, flow(|f| f.nw_proto = 6), false, (false, true, 0, false, false)),
        (claim, flow(|f| f.dl_type = 0x86dd), false, (false, false, 0, false, false)),
        (claim, flow(|f| f.nw_ttl = 1), true, (false, true, all, false, false)),
        (claim, flow(|f| f.tun_id = 5), true, (false, true, all, false, false)),
        (address, to(0xa9fe_0102), true, (false, true, all, true, false)),
        // OVS has no nw_dst here: the intended difference.
        (address, to(0xa9fe_0100), false, (false, true, all, true, false)),
        (address, port(80), false, (false, true, 0x0800, false, false)),
        (mac, nine, true, (true, true, all, false, false)),
        (mac, to(0xa9fe_0100), false, (true, false, 0, false, false)),
        (key, to(0xa9fe_0100), true, (false, true, all, false, true)),
        (key, flow(|f| f.tun_id = 5), false, (false, true, all, false, true)),
        (key, port(80), false, (false, true, 0x0800, false, false)),
    ];
    for (i, (claim, flow, taken, expected)) in cases.into_iter().enumerate() {
        let mut mask = Mask::none();
        assert_eq!(claim.claims(&flow, &mut mask), taken, "case {i}");
        let mask = mask.0;
        let fields = (
            mask.dl_dst == [0xff; 6],
            mask.nw_proto == 0xff,
            mask.tp_dst,
            mask.nw_dst == u32::MAX,
            mask.tun_id == u64::MAX,
        );
        assert_eq!(fields, expected, "case {i}");
    }
}

proptest! {
    /// Invariant 1 of the architecture: flows that agree under the mask have the same answer.
    #[test]
    fn the_mask_decides_the_claim(
        settings in (any::<bool>(), any::<bool>(), any::<bool>()),
        flows in proptest::array::uniform2((0u8..3, 0u8..3, 0u8..3, 0u8..4, 0u8..4, 0u8..2)),
    ) {
        let (remote, address, key) = settings;
        let claim = Claim {
            remote_dst_mac: remote.then_some(DEFAULT_DST_MAC),
            src_ip: if address { 0x0a00_0001 } else { DEFAULT_SRC_IP },
            check_tnl_key: key,
        };
        let [a, b] = flows.map(|(mac, kind, proto, port, ip, tunnel)| flow(|f| {
            f.dl_dst = [DEFAULT_DST_MAC.0, [2; 6], [0xff; 6]][usize::from(mac)];
            f.dl_type = [ETH_TYPE_IP, 0x86dd, 0x806][usize::from(kind)];
            f.nw_proto = [IPPROTO_UDP, 6, 1][usize::from(proto)];
            f.tp_dst = [UDP_PORT, 3785, 80, 3776][usize::from(port)];
            f.nw_dst = [DEFAULT_DST_IP, DEFAULT_SRC_IP, 0x0a00_0001, 7][usize::from(ip)];
            f.tun_id = tunnel.into();
        }));
        let mut mask = Mask::none();
        let taken = claim.claims(&a, &mut mask);
        if a.equal_under(&b, &mask) {
            prop_assert_eq!(claim.claims(&b, &mut Mask::none()), taken);
        }
    }
}

#[test]
fn corpus_of_bfd_packets() {
    testkit::replay_corpus(
        concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/bfd_packets"),
        crate::fuzz::bfd_packets,
    );
}
