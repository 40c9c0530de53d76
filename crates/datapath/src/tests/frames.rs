//! Frames with valid checksums, and their verification.

use crate::actions::sctp_sum;
use packet::checksum::{checksum, fold, pseudo, sum};

pub(super) fn eth(dl_type: u16, payload: &[u8]) -> Vec<u8> {
    let mut f = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    f.extend(dl_type.to_be_bytes());
    f.extend(payload);
    f
}

pub(super) fn ipv4(proto: u8, src: [u8; 4], dst: [u8; 4], frag: u16, l4: &[u8]) -> Vec<u8> {
    let mut ip = vec![0x45, 0, 0, 0, 0, 1, 0, 0, 64, proto, 0, 0];
    ip[2..4].copy_from_slice(&(20 + l4.len() as u16).to_be_bytes());
    ip[6..8].copy_from_slice(&frag.to_be_bytes());
    ip.extend(src);
    ip.extend(dst);
    let csum = checksum(&ip);
    ip[10..12].copy_from_slice(&csum.to_be_bytes());
    ip.extend(l4);
    eth(0x0800, &ip)
}

pub(super) fn ipv6(proto: u8, l4: &[u8]) -> Vec<u8> {
    let mut ip = vec![0x60, 0, 0, 0];
    ip.extend((l4.len() as u16).to_be_bytes());
    ip.extend([proto, 64]);
    ip.extend(V6_SRC);
    ip.extend(V6_DST);
    ip.extend(l4);
    eth(0x86dd, &ip)
}

pub(super) const V6_SRC: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
pub(super) const V6_DST: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
pub(super) const SRC: [u8; 4] = [10, 0, 0, 1];
pub(super) const DST: [u8; 4] = [10, 0, 0, 2];

fn with_sum(mut l4: Vec<u8>, at: usize, proto: u8, v6: bool) -> Vec<u8> {
    let (src, dst): (&[u8], &[u8]) = if v6 { (&V6_SRC, &V6_DST) } else { (&SRC, &DST) };
    let csum = match (proto, v6) {
        (1, _) => checksum(&l4),
        _ => !fold(sum(&l4, pseudo(src, dst, proto, l4.len()))),
    };
    l4[at..at + 2].copy_from_slice(&csum.to_be_bytes());
    l4
}

/// The transport part for a protocol, with its checksum.
pub(super) fn l4(proto: u8, src: u16, dst: u16, v6: bool) -> Vec<u8> {
    let mut ports = src.to_be_bytes().to_vec();
    ports.extend(dst.to_be_bytes());
    match proto {
        6 => {
            ports.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x02, 1, 0, 0, 0, 0, 0, 1, 2, 3]);
            with_sum(ports, 16, 6, v6)
        }
        17 => {
            ports.extend([0, 11, 0, 0, 1, 2, 3]);
            with_sum(ports, 6, 17, v6)
        }
        1 => with_sum(vec![8, 0, 0, 0, 0, 1, 0, 2, 9], 2, 1, v6),
        58 => {
            let mut nd = vec![135, 0, 0, 0, 0, 0, 0, 0];
            nd.extend(V6_DST);
            nd.extend([1, 1, 2, 0, 0, 0, 0, 1, 2, 1, 2, 0, 0, 0, 0, 3]);
            with_sum(nd, 2, 58, v6)
        }
        132 => {
            ports.extend([0, 0, 0, 7, 0, 0, 0, 0, 0, 3, 0, 4]);
            let csum = sctp_sum(&ports);
            ports[8..12].copy_from_slice(&csum);
            ports
        }
        _ => ports,
    }
}

pub(super) fn tcp(src: u16, dst: u16) -> Vec<u8> {
    ipv4(6, SRC, DST, 0, &l4(6, src, dst, false))
}

pub(super) fn udp(src: u16, dst: u16) -> Vec<u8> {
    ipv4(17, SRC, DST, 0, &l4(17, src, dst, false))
}

pub(super) fn arp() -> Vec<u8> {
    let mut a = vec![0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1];
    a.extend(SRC);
    a.extend([0; 6]);
    a.extend(DST);
    eth(0x0806, &a)
}

/// Asserts that every checksum of an untagged IPv4 or IPv6 frame is right.
pub(super) fn verify(frame: &[u8]) {
    let (proto, l4_at, src, dst) = match frame[12..14] {
        [0x08, 0] => {
            let ihl = usize::from(frame[14] & 15) * 4;
            assert_eq!(fold(sum(&frame[14..14 + ihl], 0)), 0xffff, "IPv4 header checksum");
            if frame[20] & 0x3f != 0 || frame[21] != 0 {
                return;
            }
            (frame[23], 14 + ihl, &frame[26..30], &frame[30..34])
        }
        [0x86, 0xdd] => (frame[20], 54, &frame[22..38], &frame[38..54]),
        _ => return,
    };
    let l4 = &frame[l4_at..];
    match proto {
        6 | 58 => assert_eq!(fold(sum(l4, pseudo(src, dst, proto, l4.len()))), 0xffff, "protocol {proto}"),
        17 if l4[6..8] != [0, 0] => {
            assert_eq!(fold(sum(l4, pseudo(src, dst, proto, l4.len()))), 0xffff, "UDP");
        }
        1 => assert_eq!(fold(sum(l4, 0)), 0xffff, "ICMP"),
        132 => assert_eq!(l4[8..12], sctp_sum(l4), "SCTP"),
        _ => {}
    }
}
