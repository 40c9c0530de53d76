//! Captures made by hand.

use super::*;

/// A segment of TCP over IPv4 from port 1 to 6653.
fn segment(sequence: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; 12];
    packet.extend([8, 0, 0x45, 0]);
    packet.extend((40 + payload.len() as u16).to_be_bytes());
    packet.extend([0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend([0, 1, 0x19, 0xfd]);
    packet.extend(sequence.to_be_bytes());
    packet.extend([0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0]);
    packet.extend(payload);
    packet
}

fn capture(packets: &[Vec<u8>], big: bool) -> Vec<u8> {
    let word = |n: u32| if big { n.to_be_bytes() } else { n.to_le_bytes() };
    let mut file = word(0xa1b2_c3d4).to_vec();
    file.extend([0; 20]);
    for packet in packets {
        let len = packet.len() as u32;
        file.extend([[0; 4], [0; 4], word(len), word(len)].concat());
        file.extend(packet);
    }
    file
}

#[test]
fn a_written_capture_is_read() {
    let frame = [7; 60];
    let file = super::file_of(&frame, std::time::Duration::from_millis(1_700_000_000_250));
    assert_eq!(super::packets(&file), Ok(vec![&frame[..]]));
    // As ovs-ofctl 3.1 begins its file.
    assert_eq!(
        file[..24],
        [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xee, 5, 0, 0, 1, 0, 0, 0]
    );
    assert_eq!(file[24..32], [0x00, 0xf1, 0x53, 0x65, 0x90, 0xd0, 3, 0]);
}

#[test]
fn captures_have_packets_in_both_byte_orders() {
    let all = [segment(7, 0, b"ab"), segment(9, 0, b"")];
    for big in [false, true] {
        let file = capture(&all, big);
        assert_eq!(packets(&file).unwrap(), [&all[0][..], &all[1]]);
        assert_eq!(packets(&file[..file.len() - 1]), Err(PcapError::CutShort(2)));
    }
    assert_eq!(packets(b"no capture"), Err(PcapError::NoCapture));
    assert_eq!(packets(b""), Err(PcapError::NoCapture));
}

#[test]
fn streams_are_put_together() {
    let check = |segments: &[(u32, u8, &[u8])], expected: &[u8]| {
        let mut streams = Streams::default();
        let mut unread = Vec::new();
        for (sequence, flags, payload) in segments {
            let packet = segment(*sequence, *flags, payload);
            let (direction, bytes) = streams.take(&packet, &[6653]).unwrap();
            assert_eq!(direction.to_string(), "10.0.0.1.1 > 10.0.0.2.6653");
            unread = bytes.clone();
        }
        assert_eq!(unread, expected, "{segments:?}");
    };
    check(&[(5, 2, b""), (6, 0, b"abc"), (9, 0, b"de")], b"abcde");
    // Sent again, partly or wholly.
    check(&[(6, 0, b"abc"), (6, 0, b"abc"), (8, 0, b"cd")], b"abcd");
    // Behind a gap, and past the end of the numbers.
    check(&[(6, 0, b"abc"), (19, 0, b"z")], b"z");
    check(&[(u32::MAX, 0, b"ab"), (1, 0, b"c")], b"abc");
    assert!(Streams::default().take(&segment(1, 0, b"x"), &[80]).is_none());
    assert!(Streams::default().take(b"short", &[]).is_none());
}

#[test]
fn streams_are_bounded() {
    let mut streams = Streams::default();
    for n in 0..=STREAMS_MAX as u32 {
        let mut packet = segment(1, 0, b"x");
        packet[26..30].copy_from_slice(&n.to_be_bytes());
        streams.take(&packet, &[]);
    }
    assert_eq!(streams.streams.len(), STREAMS_MAX);
}
