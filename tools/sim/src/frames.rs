//! Frames: keys to bytes, random traffic, and parsing of sent frames for checks.
//!
//! Every composed frame ends in a trailer ([`Mark`]) that no action rewrites: its stream and its number.

use crate::rng::Rng;
use flow::extract::{Layout, Metadata, extract};
use flow::{FlowKey, VlanTag, nw_frag};
use packet::checksum::{checksum, fold, pseudo, sum};
use packet::headers as h;

const MAGIC: [u8; 4] = *b"Slce";
/// Bytes of the trailer.
pub(crate) const MARK_BYTES: usize = 21;

/// The trailer of a generated frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mark {
    /// Checksums were valid when it was sent.
    pub(crate) checksums_ok: bool,
    /// Identifies the frames of one port and one key.
    pub(crate) stream: u64,
    /// Increases with every frame.
    pub(crate) number: u64,
}

impl Mark {
    fn bytes(self) -> [u8; MARK_BYTES] {
        let mut out = [0; MARK_BYTES];
        out[..4].copy_from_slice(&MAGIC);
        out[4] = self.checksums_ok.into();
        out[5..13].copy_from_slice(&self.stream.to_be_bytes());
        out[13..].copy_from_slice(&self.number.to_be_bytes());
        out
    }

    /// Reads the trailer of a frame, if present.
    pub(crate) fn read(frame: &[u8]) -> Option<Mark> {
        let at = frame.len().checked_sub(MARK_BYTES)?;
        let b: [u8; MARK_BYTES] = h::array(frame, at)?;
        (b[..4] == MAGIC).then(|| Mark {
            checksums_ok: b[4] != 0,
            stream: u64::from_be_bytes(std::array::from_fn(|i| b[5 + i])),
            number: u64::from_be_bytes(std::array::from_fn(|i| b[13 + i])),
        })
    }
}

/// Composes a frame with the headers of `key`, as far as such a frame exists.
pub(crate) fn compose(key: &FlowKey, mark: Mark) -> Vec<u8> {
    compose_text(key, &[], mark)
}

/// Composes such a frame with a text before the trailer.
pub(crate) fn compose_text(key: &FlowKey, text: &[u8], mark: Mark) -> Vec<u8> {
    let b = &key.base;
    let mut f = Vec::with_capacity(128);
    f.extend(b.dl_dst);
    f.extend(b.dl_src);
    for tag in [VlanTag { tpid: b.vlan_tpid, tci: b.vlan_tci }, key.arp.vlan1] {
        if tag.is_present() {
            f.extend(tag.tpid.to_be_bytes());
            f.extend((tag.tci & !VlanTag::PRESENT).to_be_bytes());
        }
    }
    let payload = [text, &mark.bytes()].concat();
    if b.dl_type == h::FLOW_DL_TYPE_NONE {
        f.extend((payload.len() as u16 + 3).to_be_bytes());
        f.extend([0x42, 0x42, 3]);
        f.extend(payload);
        return f;
    }
    f.extend(b.dl_type.to_be_bytes());
    match b.dl_type {
        h::ETH_TYPE_IP => compose_ipv4(key, &payload, &mut f),
        h::ETH_TYPE_IPV6 => compose_ipv6(key, &payload, &mut f),
        h::ETH_TYPE_ARP | h::ETH_TYPE_RARP => {
            f.extend([0, 1, 8, 0, 6, 4, 0, b.nw_proto]);
            f.extend(key.arp.arp_sha);
            f.extend(b.nw_src.to_be_bytes());
            f.extend(key.arp.arp_tha);
            f.extend(b.nw_dst.to_be_bytes());
            f.extend(payload);
        }
        h::ETH_TYPE_MPLS | h::ETH_TYPE_MPLS_MCAST => {
            for lse in &key.arp.mpls_lse[..3] {
                f.extend(lse.to_be_bytes());
            }
            f.extend(payload);
        }
        _ => f.extend(payload),
    }
    f
}

fn compose_ipv4(key: &FlowKey, payload: &[u8], f: &mut Vec<u8>) {
    let b = &key.base;
    let (src, dst) = (b.nw_src.to_be_bytes(), b.nw_dst.to_be_bytes());
    let l4 = compose_l4(key, &src, &dst, payload);
    let frag: u16 = match b.nw_frag & nw_frag::MASK {
        0 => 0,
        nw_frag::ANY => 0x2000,
        _ => 0x2000 | 100,
    };
    let mut ip = vec![0x45, b.nw_tos];
    ip.extend((20 + l4.len() as u16).to_be_bytes());
    ip.extend([0, 1]);
    ip.extend(frag.to_be_bytes());
    ip.extend([b.nw_ttl, b.nw_proto, 0, 0]);
    ip.extend(src);
    ip.extend(dst);
    let csum = checksum(&ip).to_be_bytes();
    ip[10..12].copy_from_slice(&csum);
    f.extend(ip);
    f.extend(l4);
}

fn compose_ipv6(key: &FlowKey, payload: &[u8], f: &mut Vec<u8>) {
    let (b, v6) = (&key.base, &key.ipv6);
    let l4 = compose_l4(key, &v6.src, &v6.dst, payload);
    let fragment = b.nw_frag & nw_frag::ANY != 0;
    let word = 6 << 28 | u32::from(b.nw_tos) << 20 | v6.label & 0xf_ffff;
    f.extend(word.to_be_bytes());
    f.extend((l4.len() as u16 + if fragment { 8 } else { 0 }).to_be_bytes());
    f.extend([if fragment { h::IPPROTO_FRAGMENT } else { b.nw_proto }, b.nw_ttl]);
    f.extend(v6.src);
    f.extend(v6.dst);
    if fragment {
        let offset: u16 = if b.nw_frag & nw_frag::LATER != 0 { 0x0101 } else { 1 };
        f.extend([b.nw_proto, 0]);
        f.extend(offset.to_be_bytes());
        f.extend([0, 0, 0, 9]);
    }
    f.extend(l4);
}

fn compose_l4(key: &FlowKey, src: &[u8], dst: &[u8], payload: &[u8]) -> Vec<u8> {
    let b = &key.base;
    if b.nw_frag & nw_frag::LATER != 0 {
        return payload.to_vec();
    }
    let mut l4 = b.tp_src.to_be_bytes().to_vec();
    l4.extend(b.tp_dst.to_be_bytes());
    let v4 = b.dl_type == h::ETH_TYPE_IP;
    let sum_at = match b.nw_proto {
        h::IPPROTO_TCP => {
            l4.extend([0, 0, 0, 1, 0, 0, 0, 2]);
            l4.extend((0x5000 | b.tcp_flags & 0xfff).to_be_bytes());
            l4.extend([1, 0, 0, 0, 0, 0]);
            Some(16)
        }
        h::IPPROTO_UDP => {
            l4.extend((8 + payload.len() as u16).to_be_bytes());
            l4.extend([0, 0]);
            Some(6)
        }
        h::IPPROTO_SCTP => {
            l4.extend([0, 0, 0, 7, 0, 0, 0, 0]);
            None
        }
        h::IPPROTO_ICMP | h::IPPROTO_IGMP if v4 => {
            l4 = vec![b.tp_src as u8, b.tp_dst as u8, 0, 0];
            l4.extend(key.arp.igmp_group.to_be_bytes());
            Some(2)
        }
        h::IPPROTO_ICMPV6 if !v4 => {
            l4 = compose_icmpv6(key);
            Some(2)
        }
        _ => None,
    };
    l4.extend(payload);
    if let Some(at) = sum_at {
        let covered = match v4 && b.nw_proto != h::IPPROTO_TCP && b.nw_proto != h::IPPROTO_UDP {
            true => sum(&l4, 0),
            false => sum(&l4, pseudo(src, dst, b.nw_proto, l4.len())),
        };
        let csum = match !fold(covered) {
            0 if b.nw_proto == h::IPPROTO_UDP => 0xffff,
            n => n,
        };
        l4[at..at + 2].copy_from_slice(&csum.to_be_bytes());
    }
    l4
}

fn compose_icmpv6(key: &FlowKey) -> Vec<u8> {
    let b = &key.base;
    let mut l4 = vec![b.tp_src as u8, b.tp_dst as u8, 0, 0];
    l4.extend(key.arp.igmp_group.to_be_bytes());
    let kind = b.tp_src as u8;
    if matches!(kind, h::ND_NEIGHBOR_SOLICIT | h::ND_NEIGHBOR_ADVERT) && b.tp_dst == 0 {
        l4.extend(key.ipv6.nd_target);
        for (option, mac) in
            [(h::ND_OPT_SOURCE_LINKADDR, key.ipv6.nd_sll), (h::ND_OPT_TARGET_LINKADDR, key.ipv6.nd_tll)]
        {
            if mac != [0; 6] {
                l4.extend([option, 1]);
                l4.extend(mac);
            }
        }
        // The bytes after the options must not look like one: an option of length 0 is malformed.
        l4.extend([0xfd, 3, 0, 0, 0, 0, 0]);
    }
    l4
}

/// The key of a frame.
pub(crate) fn key_of(frame: &[u8], md: &Metadata, vlan_limit: u8) -> FlowKey {
    let mut key = FlowKey::default();
    extract(frame, md, vlan_limit, &mut key);
    key
}

/// Offset and length of each checksum of a frame, behind any number of tags.
fn checksum_fields(frame: &[u8]) -> (Vec<(usize, usize)>, FlowKey, Layout, Vec<u8>) {
    let mut at = 12;
    while let Some(h::ETH_TYPE_VLAN | h::ETH_TYPE_VLAN_8021AD) = h::be16(frame, at) {
        at += h::VLAN_TAG_BYTES;
    }
    let mut bare = frame[..frame.len().min(12)].to_vec();
    bare.extend(frame.get(at..).unwrap_or_default());
    let mut key = FlowKey::default();
    let layout = extract(&bare, &Metadata::default(), 0, &mut key);
    let moved = at - 12;
    let mut fields = Vec::new();
    if layout.l3 != Layout::NONE && key.base.dl_type == h::ETH_TYPE_IP {
        fields.push((usize::from(layout.l3) + 10 + moved, 2));
    }
    if layout.l4 != Layout::NONE {
        let l4 = usize::from(layout.l4) + moved;
        fields.extend(match key.base.nw_proto {
            h::IPPROTO_TCP => Some((l4 + 16, 2)),
            h::IPPROTO_UDP => Some((l4 + 6, 2)),
            h::IPPROTO_SCTP => Some((l4 + 8, 4)),
            h::IPPROTO_ICMP | h::IPPROTO_IGMP | h::IPPROTO_ICMPV6 => Some((l4 + 2, 2)),
            _ => None,
        });
    }
    (fields, key, layout, bare)
}

/// The frame with its checksums zeroed.
pub(crate) fn without_checksums(frame: &[u8]) -> Vec<u8> {
    let mut out = frame.to_vec();
    for (at, len) in checksum_fields(frame).0 {
        out[at..at + len].fill(0);
    }
    out
}

/// Whether the checksums of a frame composed here are valid; skips those of SCTP and of fragments.
pub(crate) fn checksums_valid(frame: &[u8]) -> bool {
    valid_checksums(frame) == [true; 2]
}

/// Whether the checksum of its IPv4 header is valid, and that of its transport.
pub(crate) fn valid_checksums(frame: &[u8]) -> [bool; 2] {
    let (_, key, layout, bare) = checksum_fields(frame);
    let b = &key.base;
    if layout.l3 == Layout::NONE {
        return [true; 2];
    }
    let l3 = usize::from(layout.l3);
    let v4 = b.dl_type == h::ETH_TYPE_IP;
    let header = !v4 || fold(sum(&bare[l3..l3 + h::IPV4_HEADER_BYTES], 0)) == 0xffff;
    if layout.l4 == Layout::NONE || b.nw_frag != 0 {
        return [header, true];
    }
    let l4 = &bare[usize::from(layout.l4)..];
    let (src, dst) = if v4 {
        (b.nw_src.to_be_bytes().to_vec(), b.nw_dst.to_be_bytes().to_vec())
    } else {
        (key.ipv6.src.to_vec(), key.ipv6.dst.to_vec())
    };
    let transport = match b.nw_proto {
        h::IPPROTO_TCP | h::IPPROTO_UDP => fold(sum(l4, pseudo(&src, &dst, b.nw_proto, l4.len()))) == 0xffff,
        h::IPPROTO_ICMPV6 if !v4 => fold(sum(l4, pseudo(&src, &dst, b.nw_proto, l4.len()))) == 0xffff,
        h::IPPROTO_ICMP | h::IPPROTO_IGMP if v4 => fold(sum(l4, 0)) == 0xffff,
        _ => true,
    };
    [header, transport]
}

/// Computes checksums of a frame anew that [`valid_checksums`] verifies.
pub(crate) fn recompute_checksums(frame: &mut [u8], [header, transport]: [bool; 2]) {
    let (fields, key, layout, bare) = checksum_fields(frame);
    let b = &key.base;
    let moved = frame.len() - bare.len();
    let v4 = b.dl_type == h::ETH_TYPE_IP;
    for (at, len) in fields {
        let l3 = usize::from(layout.l3) + moved;
        if v4 && at == l3 + 10 {
            if !header {
                continue;
            }
            frame[at..at + len].fill(0);
            let sum = checksum(&frame[l3..l3 + h::IPV4_HEADER_BYTES]);
            frame[at..at + len].copy_from_slice(&sum.to_be_bytes());
        } else if transport && len == 2 && b.nw_frag == 0 {
            frame[at..at + len].fill(0);
            let l4 = &frame[usize::from(layout.l4) + moved..];
            let has_pseudo = matches!(b.nw_proto, h::IPPROTO_TCP | h::IPPROTO_UDP | h::IPPROTO_ICMPV6);
            let covered = match (has_pseudo, v4) {
                (false, _) => sum(l4, 0),
                (true, true) => {
                    let addresses = [b.nw_src.to_be_bytes(), b.nw_dst.to_be_bytes()];
                    sum(l4, pseudo(&addresses[0], &addresses[1], b.nw_proto, l4.len()))
                }
                (true, false) => sum(l4, pseudo(&key.ipv6.src, &key.ipv6.dst, b.nw_proto, l4.len())),
            };
            let sum = match !fold(covered) {
                0 if b.nw_proto == h::IPPROTO_UDP => 0xffff,
                n => n,
            };
            frame[at..at + len].copy_from_slice(&sum.to_be_bytes());
        }
    }
}

/// Control port of FTP.
const FTP: u16 = 21;

/// Number of hosts in the traffic.
pub(crate) const HOSTS: u64 = 8;

/// Ethernet address of a host.
pub(crate) fn mac(host: u64) -> [u8; 6] {
    [2, 0, 0, 0, 0, host as u8 + 1]
}

/// IPv4 address of a host; they differ in their prefixes.
pub(crate) fn ipv4(host: u64) -> u32 {
    0x0a00_0000 | ((host as u32 & 3) << 16) | ((host as u32 >> 2) << 8) | 1
}

/// IPv6 address of a host.
pub(crate) fn ipv6(host: u64) -> [u8; 16] {
    let mut a = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    (a[7], a[15]) = (host as u8 & 3, host as u8);
    a
}

/// UDP port of the packets marked by two rules of a bundle.
pub(crate) const BUNDLE_PORT: u16 = 7777;

/// First byte of the addresses set by those two rules; the last byte is the bundle's version.
pub(crate) const BUNDLE_MAC: u8 = 0xba;

/// A random packet between a few [`HOSTS`], as a key. `wide`: ports from a large range, as in a flood.
pub(crate) fn random_key(rng: &mut Rng, wide: bool) -> FlowKey {
    let mut key = FlowKey::default();
    let (from, to) = (rng.below(HOSTS), rng.below(HOSTS));
    let b = &mut key.base;
    (b.dl_src, b.dl_dst) = (mac(from), mac(to));
    if rng.one_in(12) {
        b.dl_dst = *rng.pick(&[[0xff; 6], [0x01, 0x80, 0xc2, 0, 0, 0], [1, 0, 0x5e, 0, 0, 1], mac(40)]);
    }
    if rng.one_in(3) {
        b.vlan_tpid = if rng.one_in(6) { h::ETH_TYPE_VLAN_8021AD } else { h::ETH_TYPE_VLAN };
        b.vlan_tci = VlanTag::PRESENT | (rng.below(4) as u16 * 5) | ((rng.below(3) as u16) << 14);
    }
    let port = |rng: &mut Rng| if wide { rng.below(65536) as u16 } else { rng.range(1, 4) as u16 };
    (b.tp_src, b.tp_dst) = (port(rng), port(rng));
    b.nw_ttl = *rng.pick(&[64, 64, 64, 2, 1, 0]);
    b.nw_tos = *rng.pick(&[0, 0, 0x10, 0x2e]);
    if rng.one_in(8) {
        b.nw_frag = *rng.pick(&[nw_frag::ANY, nw_frag::MASK]);
    }
    b.nw_proto = *rng.pick(&[6, 6, 17, 17, 1, 132, 2, 47, 0]);
    b.dl_type = h::ETH_TYPE_IP;
    match rng.below(10) {
        0..=4 => (b.nw_src, b.nw_dst) = (ipv4(from), ipv4(to)),
        5..=6 => {
            b.dl_type = h::ETH_TYPE_IPV6;
            b.nw_proto = *rng.pick(&[6, 17, 58, 58, 132]);
            (key.ipv6.src, key.ipv6.dst) = (ipv6(from), ipv6(to));
            key.ipv6.label = rng.below(2) as u32;
        }
        7 => {
            b.dl_type = *rng.pick(&[h::ETH_TYPE_ARP, h::ETH_TYPE_ARP, h::ETH_TYPE_RARP]);
            b.nw_proto = rng.range(1, 2) as u8;
            (b.nw_src, b.nw_dst) = (ipv4(from), ipv4(to));
            (key.arp.arp_sha, key.arp.arp_tha) = (mac(from), mac(to));
        }
        8 => b.dl_type = *rng.pick(&[h::ETH_TYPE_MPLS, 0x88cc, h::FLOW_DL_TYPE_NONE, 0x8999]),
        _ => {
            (b.nw_src, b.nw_dst, b.nw_proto) = (ipv4(from), ipv4(to), 17);
            (b.tp_dst, b.nw_frag) = (BUNDLE_PORT, 0);
        }
    }
    if b.nw_proto == 6 {
        b.tcp_flags = *rng.pick(&[2, 0x10, 0x11, 4]);
    }
    if matches!(b.nw_proto, 1 | 2 | 58) && b.dl_type != h::ETH_TYPE_ARP {
        b.tp_src = *rng.pick(&[8, 0, 135, 136]);
        b.tp_dst = u16::from(rng.one_in(6));
        (key.ipv6.nd_target, key.ipv6.nd_sll) = (ipv6(to), mac(from));
        key.arp.igmp_group = rng.below(2) as u32;
    }
    key.arp.mpls_lse = [rng.below(3) as u32 * 0x1000, 0x2040, 0x3140, 0];
    key
}

/// A control packet of FTP that announces a data connection to one of few ports: as a key, and its text.
pub(crate) fn random_announcement(rng: &mut Rng) -> (FlowKey, String) {
    let mut key = FlowKey::default();
    let (from, to) = (rng.below(HOSTS), rng.below(HOSTS));
    let b = &mut key.base;
    (b.dl_src, b.dl_dst, b.dl_type) = (mac(from), mac(to), h::ETH_TYPE_IP);
    (b.nw_src, b.nw_dst, b.nw_proto, b.nw_ttl) = (ipv4(from), ipv4(to), h::IPPROTO_TCP, 64);
    b.tcp_flags = *rng.pick(&[2, 0x10, 0x18, 0x18, 0x11]);
    let port = rng.range(1, 4) as u16;
    let [a, b, c, d] = ipv4(from).to_be_bytes();
    let numbers = format!("{a},{b},{c},{d},0,{}", rng.range(1, 4));
    if rng.one_in(2) {
        (key.base.tp_src, key.base.tp_dst) = (port, FTP);
        (key, format!("PORT {numbers}\r\n"))
    } else {
        (key.base.tp_src, key.base.tp_dst) = (FTP, port);
        (key, format!("227 Entering Passive Mode ({numbers})\r\n"))
    }
}
