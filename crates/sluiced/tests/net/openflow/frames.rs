//! Handmade frames, in hexadecimal digits, with valid lengths and checksums.
//!
//! Sources: IEEE 802.1Q; RFC 791 (IPv4), 8200 (IPv6), 826 (ARP), 768 (UDP), 9293 (TCP), 792 (ICMP), 4861 (ND).

/// A source address captured by [`super::Lab::watch`].
pub(super) fn source(n: u8) -> String {
    format!("02aa000000{n:02x}")
}

/// Address of host 2 of a topology.
pub(super) const HOST_2: &str = "020000000002";
/// Addresses of the IP frames.
pub(super) const IP_SRC: &str = "0a010101";
pub(super) const IP_DST: &str = "c0a80002";
const IP6_SRC: &str = "20010db8000000000000000000000001";
const IP6_DST: &str = "20010db8000000000000000000000002";

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |i: usize| u8::from_str_radix(&hex[i..i + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digit).collect()
}

/// The Internet checksum (RFC 1071) of these digits.
fn checksum(hex: &str) -> u16 {
    let mut data = bytes(hex);
    if data.len() % 2 == 1 {
        data.push(0);
    }
    let mut sum: u32 = data.chunks(2).map(|c| u32::from(c[0]) << 8 | u32::from(c[1])).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// A frame: `ethertype` and the bytes after it, 60 bytes at least.
pub(super) fn eth(dst: &str, src: &str, rest: &str) -> String {
    format!("{:0<120}", format!("{dst}{src}{rest}"))
}

/// Such a frame with a tag (priority and VLAN) in front of `rest`.
pub(super) fn tagged(dst: &str, src: &str, tci: u16, rest: &str) -> String {
    eth(dst, src, &format!("8100{tci:04x}{rest}"))
}

/// Header fields of an IPv4 packet.
#[derive(Clone, Copy)]
pub(super) struct Ip<'a> {
    pub(super) src: &'a str,
    pub(super) dst: &'a str,
    pub(super) tos: u8,
    pub(super) ttl: u8,
    /// Flags and offset, as in the header.
    pub(super) frag: u16,
}

pub(super) const IP: Ip<'_> = Ip { src: IP_SRC, dst: IP_DST, tos: 0, ttl: 64, frag: 0 };

impl Ip<'_> {
    /// Ethernet type, header and payload.
    pub(super) fn packet(&self, proto: u8, payload: &str) -> String {
        let len = 20 + payload.len() / 2;
        let Ip { src, dst, tos, ttl, frag } = self;
        let header =
            |sum: u16| format!("45{tos:02x}{len:04x}0001{frag:04x}{ttl:02x}{proto:02x}{sum:04x}{src}{dst}");
        format!("0800{}{payload}", header(checksum(&header(0))))
    }

    fn pseudo(&self, proto: u8, len: usize) -> String {
        format!("{}{}{proto:04x}{len:04x}", self.src, self.dst)
    }

    pub(super) fn udp(&self, from: u16, to: u16) -> String {
        let datagram = |sum: u16| format!("{from:04x}{to:04x}000c{sum:04x}61626364");
        let sum = checksum(&(self.pseudo(17, 12) + &datagram(0)));
        self.packet(17, &datagram(sum))
    }

    pub(super) fn tcp(&self, from: u16, to: u16, flags: u8) -> String {
        let segment = |sum: u16| format!("{from:04x}{to:04x}000000010000000250{flags:02x}2000{sum:04x}0000");
        let sum = checksum(&(self.pseudo(6, 20) + &segment(0)));
        self.packet(6, &segment(sum))
    }

    pub(super) fn icmp(&self, kind: u8, code: u8) -> String {
        let message = |sum: u16| format!("{kind:02x}{code:02x}{sum:04x}00010002");
        self.packet(1, &message(checksum(&message(0))))
    }
}

/// An IPv6 packet with its Ethernet type.
pub(super) fn ip6(next: u8, payload: &str) -> String {
    format!("86dd6000000a{:04x}{next:02x}40{IP6_SRC}{IP6_DST}{payload}", payload.len() / 2)
}

/// A neighbour solicitation for `target` with the sender's link address.
pub(super) fn solicitation(target: &str, link: &str) -> String {
    neighbour("87", target, &format!("0101{link}"))
}

/// A neighbour advertisement of `target` with its link address.
pub(super) fn advertisement(target: &str, link: &str) -> String {
    neighbour("88", target, &format!("0201{link}"))
}

fn neighbour(kind: &str, target: &str, option: &str) -> String {
    let message = |sum: u16| format!("{kind}00{sum:04x}00000000{target}{option}");
    let pseudo = format!("{IP6_SRC}{IP6_DST}{:08x}0000003a", message(0).len() / 2);
    let body = ip6(58, &message(checksum(&(pseudo + &message(0)))));
    // Hop limit 255, as RFC 4861 demands.
    format!("{}ff{}", &body[..18], &body[20..])
}

/// An ARP packet with its Ethernet type.
pub(super) fn arp(op: u16, sender: &str, sender_ip: &str, target_ip: &str) -> String {
    format!("080600010800060400{op:02x}{sender}{sender_ip}000000000000{target_ip}")
}
