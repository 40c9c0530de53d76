//! Templates: one for each kind of packet, with the fields of its records (IANA's registry of IPFIX; enterprise 6876 for
//! tunnels and virtual observations).

use crate::bytes::Bytes;

/// The template of the exporter's statistics.
pub(super) const OPTIONS_ID: u16 = 462;
/// Number of the first template.
const FIRST_ID: u16 = 256;
/// The enterprise of fields that IANA has not.
const ENTERPRISE: u32 = 6876;
/// The bit of a field with an enterprise.
const OF_ENTERPRISE: u16 = 0x8000;
/// A field whose length is in the record.
const VARIABLE: u16 = u16::MAX;

/// Network protocol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum L3 {
    Other,
    V4,
    V6,
}

/// Transport protocol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum L4 {
    Other,
    Tcp,
    Udp,
    Sctp,
    Icmp,
}

/// A kind of packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Kind {
    pub(super) has_vlan: bool,
    pub(super) l3: L3,
    pub(super) l4: L4,
    pub(super) has_tunnel: bool,
    pub(super) is_egress: bool,
}

/// Fields: number, bytes.
type Fields = &'static [(u16, u16)];

const COMMON: Fields = &[(138, 4), (61, 1), (56, 6), (80, 6), (256, 2), (240, 1)];
const INGRESS: Fields = &[(10, 4), (368, 4), (82, VARIABLE), (83, VARIABLE)];
const EGRESS: Fields = &[(14, 4), (369, 4), (82, VARIABLE), (83, VARIABLE)];
const VLAN: Fields = &[(58, 2), (243, 2), (244, 1)];
const IP: Fields = &[(60, 1), (192, 1), (4, 1), (195, 1), (196, 1), (5, 1)];
const IPV4: Fields = &[(8, 4), (12, 4)];
const IPV6: Fields = &[(27, 16), (28, 16), (31, 4)];
const PORTS: Fields = &[(7, 2), (11, 2)];
const ICMPV4: Fields = &[(176, 1), (177, 1)];
const ICMPV6: Fields = &[(178, 1), (179, 1)];
/// The enterprise has these.
const TUNNEL: Fields = &[(893, 4), (894, 4), (895, 1), (896, 2), (897, 2), (891, 1), (892, VARIABLE)];
/// The enterprise has these.
const VIRTUAL: Fields = &[(898, VARIABLE)];
const COUNTERS: Fields = &[
    (158, 4),
    (159, 4),
    (133, 8),
    (135, 8),
    (2, 8),
    (86, 8),
    (354, 8),
    (355, 8),
    (356, 8),
    (357, 8),
    (358, 8),
    (19, 8),
    (174, 8),
    (352, 8),
    (353, 8),
    (136, 1),
];
const IP_COUNTERS: Fields =
    &[(132, 8), (134, 8), (1, 8), (85, 8), (198, 8), (199, 8), (25, 8), (26, 8), (20, 8), (175, 8)];
const TCP_COUNTERS: Fields = &[(222, 8), (219, 8), (221, 8), (220, 8), (218, 8), (223, 8)];

impl Kind {
    pub(super) fn all() -> impl Iterator<Item = Kind> {
        let bools = || [false, true].into_iter();
        let protocols = [(L3::Other, &[L4::Other][..]), (L3::V4, &L4::ALL), (L3::V6, &L4::ALL)];
        bools().flat_map(move |has_vlan| {
            protocols.into_iter().flat_map(move |(l3, l4s)| {
                l4s.iter().flat_map(move |l4| {
                    bools().flat_map(move |has_tunnel| {
                        bools().map(move |is_egress| Kind { has_vlan, l3, l4: *l4, has_tunnel, is_egress })
                    })
                })
            })
        })
    }

    pub(super) fn id(self) -> u16 {
        let protocols = u16::from(self.has_vlan) * 3 + self.l3 as u16;
        FIRST_ID
            + ((protocols * 5 + self.l4 as u16) * 2 + u16::from(self.has_tunnel)) * 2
            + u16::from(self.is_egress)
    }

    pub(super) fn is_ipv4(self) -> bool {
        self.l3 == L3::V4
    }

    pub(super) fn is_ipv6(self) -> bool {
        self.l3 == L3::V6
    }

    pub(super) fn has_ip(self) -> bool {
        self.l3 != L3::Other
    }

    pub(super) fn is_tcp(self) -> bool {
        self.l4 == L4::Tcp
    }

    pub(super) fn has_protocol(self) -> bool {
        self.l4 != L4::Other
    }

    /// The parts of a record, each with whether its fields are the enterprise's.
    pub(super) fn parts(self, has_virtual_id: bool) -> impl Iterator<Item = (Fields, bool)> {
        let addresses = if self.is_ipv4() { IPV4 } else { IPV6 };
        let transport = match (self.l4, self.l3) {
            (L4::Tcp | L4::Udp | L4::Sctp, _) => PORTS,
            (L4::Icmp, L3::V4) => ICMPV4,
            (L4::Icmp, _) => ICMPV6,
            (L4::Other, _) => &[],
        };
        [
            (true, COMMON, false),
            (true, INGRESS, false),
            (self.is_egress, EGRESS, false),
            (self.has_vlan, VLAN, false),
            (self.has_ip(), IP, false),
            (self.has_ip(), addresses, false),
            (true, transport, false),
            (self.has_tunnel, TUNNEL, true),
            (has_virtual_id, VIRTUAL, true),
            (true, COUNTERS, false),
            (self.has_ip(), IP_COUNTERS, false),
            (self.is_tcp(), TCP_COUNTERS, false),
        ]
        .into_iter()
        .filter_map(|(is_there, fields, is_private)| is_there.then_some((fields, is_private)))
    }

    /// The record of its template.
    pub(super) fn put(self, out: &mut Bytes, has_virtual_id: bool) {
        out.u16(self.id());
        out.u16(self.parts(has_virtual_id).map(|(fields, _)| fields.len()).sum::<usize>() as u16);
        for (fields, is_private) in self.parts(has_virtual_id) {
            for (number, bytes) in fields {
                out.u16(if is_private { number | OF_ENTERPRISE } else { *number });
                out.u16(*bytes);
                if is_private {
                    out.u32(ENTERPRISE);
                }
            }
        }
    }
}

impl L4 {
    const ALL: [L4; 5] = [L4::Other, L4::Tcp, L4::Udp, L4::Sctp, L4::Icmp];
}

/// The template of the exporter's statistics: its number as the scope, and datagrams that were not sent.
pub(super) fn put_options(out: &mut Bytes) {
    for n in [OPTIONS_ID, 2, 1, 144, 4, 167, 8] {
        out.u16(n);
    }
}
