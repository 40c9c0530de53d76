//! Constants of the protocol headers (IEEE 802.3 and 802.1Q, RFC 791, 8200, 826, 9293, 768, 792, 4443, 9260) and
//! bounded big-endian reads.

/// Bytes of an Ethernet header without tags.
pub const ETH_HEADER_BYTES: usize = 14;
/// Bytes of one VLAN tag.
pub const VLAN_TAG_BYTES: usize = 4;
/// Bytes of an IPv4 header without options.
pub const IPV4_HEADER_BYTES: usize = 20;
/// Bytes of an IPv6 header.
pub const IPV6_HEADER_BYTES: usize = 40;
/// Bytes of a TCP header without options.
pub const TCP_HEADER_BYTES: usize = 20;
/// Bytes of a UDP header.
pub const UDP_HEADER_BYTES: usize = 8;
/// Bytes of an SCTP common header.
pub const SCTP_HEADER_BYTES: usize = 12;
/// Bytes of an ICMP header.
pub const ICMP_HEADER_BYTES: usize = 8;
/// Bytes of an ARP packet for IPv4 over Ethernet.
pub const ARP_ETH_BYTES: usize = 28;

/// EtherType of IPv4.
pub const ETH_TYPE_IP: u16 = 0x0800;
/// EtherType of ARP.
pub const ETH_TYPE_ARP: u16 = 0x0806;
/// EtherType of RARP.
pub const ETH_TYPE_RARP: u16 = 0x8035;
/// EtherType of a customer VLAN tag (802.1Q).
pub const ETH_TYPE_VLAN: u16 = 0x8100;
/// EtherType of a service VLAN tag (802.1ad).
pub const ETH_TYPE_VLAN_8021AD: u16 = 0x88a8;
/// EtherType of IPv6.
pub const ETH_TYPE_IPV6: u16 = 0x86dd;
/// EtherType of slow protocols (LACP).
pub const ETH_TYPE_LACP: u16 = 0x8809;
/// EtherType of MPLS unicast.
pub const ETH_TYPE_MPLS: u16 = 0x8847;
/// EtherType of MPLS multicast.
pub const ETH_TYPE_MPLS_MCAST: u16 = 0x8848;
/// EtherType of a network service header (RFC 8300).
pub const ETH_TYPE_NSH: u16 = 0x894f;
/// EtherType of an Ethernet frame as payload.
pub const ETH_TYPE_TEB: u16 = 0x6558;
/// Bytes of a network service header without context headers (RFC 8300 §2.2).
pub const NSH_BASE_BYTES: usize = 8;
/// Bytes of a network service header of metadata type 1.
pub const NSH_MD1_BYTES: usize = 24;
/// Maximum bytes of context headers of metadata type 2: the length of the whole header has six bits of words.
pub const NSH_MD2_MAX_BYTES: usize = 63 * 4 - NSH_BASE_BYTES;
/// Metadata type of four fixed context headers.
pub const NSH_MD_TYPE1: u8 = 1;
/// Metadata type of context headers of any length.
pub const NSH_MD_TYPE2: u8 = 2;
/// EtherTypes from here on are types, below are 802.3 lengths.
pub const ETH_TYPE_MIN: u16 = 0x600;
/// Value of `dl_type` for a frame without an EtherType (OpenFlow 1.0 §3.4: `OFP_DL_TYPE_NOT_ETH_TYPE`).
pub const FLOW_DL_TYPE_NONE: u16 = 0x05ff;

/// IP protocol ICMP.
pub const IPPROTO_ICMP: u8 = 1;
/// IP protocol IGMP.
pub const IPPROTO_IGMP: u8 = 2;
/// IP protocol TCP.
pub const IPPROTO_TCP: u8 = 6;
/// IP protocol UDP.
pub const IPPROTO_UDP: u8 = 17;
/// DHCP servers send from this UDP port (RFC 2131 §4.1).
pub const DHCP_SERVER_PORT: u16 = 67;
/// DHCP clients receive at this UDP port (RFC 2131 §4.1).
pub const DHCP_CLIENT_PORT: u16 = 68;
/// IPv6 hop-by-hop options.
pub const IPPROTO_HOPOPTS: u8 = 0;
/// IPv6 routing header.
pub const IPPROTO_ROUTING: u8 = 43;
/// IPv6 fragment header.
pub const IPPROTO_FRAGMENT: u8 = 44;
/// IPsec authentication header.
pub const IPPROTO_AH: u8 = 51;
/// ICMP for IPv6.
pub const IPPROTO_ICMPV6: u8 = 58;
/// IPv6 destination options.
pub const IPPROTO_DSTOPTS: u8 = 60;
/// IP protocol SCTP.
pub const IPPROTO_SCTP: u8 = 132;

/// ICMPv6 type of a neighbour solicitation.
pub const ND_NEIGHBOR_SOLICIT: u8 = 135;
/// ICMPv6 type of a neighbour advertisement.
pub const ND_NEIGHBOR_ADVERT: u8 = 136;
/// ND option: source link-layer address.
pub const ND_OPT_SOURCE_LINKADDR: u8 = 1;
/// ND option: target link-layer address.
pub const ND_OPT_TARGET_LINKADDR: u8 = 2;

/// Whether an EtherType is one of MPLS, unicast or multicast.
pub const fn is_mpls(ethertype: u16) -> bool {
    matches!(ethertype, ETH_TYPE_MPLS | ETH_TYPE_MPLS_MCAST)
}

/// Reads a big-endian `u16` at `at`, if within bounds.
#[inline]
pub fn be16(b: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(b.get(at..at + 2)?.try_into().ok()?))
}

/// Reads a big-endian `u32` at `at`, if within bounds.
#[inline]
pub fn be32(b: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(b.get(at..at + 4)?.try_into().ok()?))
}

/// Reads `N` bytes at `at`, if within bounds.
#[inline]
pub fn array<const N: usize>(b: &[u8], at: usize) -> Option<[u8; N]> {
    b.get(at..at + N)?.try_into().ok()
}

/// Whether a header of that type is an extension header of IPv6 that another header follows.
#[inline]
pub const fn is_ipv6_extension(kind: u8) -> bool {
    matches!(kind, IPPROTO_HOPOPTS | IPPROTO_ROUTING | IPPROTO_DSTOPTS | IPPROTO_AH | IPPROTO_FRAGMENT)
}

/// Type and offset of the header behind the extension header of type `kind` at `at`, if that is within bounds as far as
/// its length.
#[inline]
pub fn ipv6_next_header(b: &[u8], at: usize, kind: u8) -> Option<(u8, usize)> {
    let [next, length]: [u8; 2] = array(b, at)?;
    let bytes = match kind {
        IPPROTO_FRAGMENT => 8,
        // 4-byte units less two (RFC 4302 §2.2).
        IPPROTO_AH => (usize::from(length) + 2) * 4,
        // 8-byte units after the first (RFC 8200 §4.2).
        _ => (usize::from(length) + 1) * 8,
    };
    Some((next, at + bytes))
}
