//! [`TunnelKind`]: encapsulations, and the options of their ports that concern a datapath.

/// Encapsulation of a tunnel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TunnelKind {
    /// RFC 7348.
    Vxlan,
    /// RFC 8926.
    Geneve,
    /// RFC 2890, with Ethernet frames inside.
    Gre,
    /// The same over IPv6.
    Ip6gre,
    /// ERSPAN within GRE (draft-foschiano-erspan), with Ethernet frames inside.
    Erspan,
    /// The same over IPv6.
    Ip6erspan,
    /// GTP-U of mobile networks (3GPP TS 29.281), with IP packets inside.
    Gtpu,
    /// Segment routing over IPv6 (RFC 8754), with IP packets inside.
    Srv6,
}

impl TunnelKind {
    /// All.
    pub const ALL: [TunnelKind; 8] = [
        TunnelKind::Vxlan,
        TunnelKind::Geneve,
        TunnelKind::Gre,
        TunnelKind::Ip6gre,
        TunnelKind::Erspan,
        TunnelKind::Ip6erspan,
        TunnelKind::Gtpu,
        TunnelKind::Srv6,
    ];

    /// Whether it is GRE, over IPv4 or IPv6.
    pub fn is_gre(self) -> bool {
        matches!(self, TunnelKind::Gre | TunnelKind::Ip6gre)
    }

    /// Whether it is ERSPAN, over IPv4 or IPv6.
    pub fn is_erspan(self) -> bool {
        matches!(self, TunnelKind::Erspan | TunnelKind::Ip6erspan)
    }

    /// Their names as interface types, in the order of [`TunnelKind::ALL`].
    pub const NAMES: [&'static str; TunnelKind::ALL.len()] =
        ["vxlan", "geneve", "gre", "ip6gre", "erspan", "ip6erspan", "gtpu", "srv6"];

    /// Its name as an interface type.
    pub fn name(self) -> &'static str {
        TunnelKind::NAMES[self as usize]
    }

    /// The encapsulation of an interface type.
    pub fn of_name(name: &str) -> Option<TunnelKind> {
        TunnelKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// UDP port assigned by IANA; `None`: no UDP.
    pub fn usual_port(self) -> Option<u16> {
        match self {
            TunnelKind::Vxlan => Some(4789),
            TunnelKind::Geneve => Some(6081),
            TunnelKind::Gtpu => Some(2152),
            TunnelKind::Gre
            | TunnelKind::Ip6gre
            | TunnelKind::Erspan
            | TunnelKind::Ip6erspan
            | TunnelKind::Srv6 => None,
        }
    }
}

/// Options of a tunnel port for the datapath; translation has the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TunnelPort {
    /// Encapsulation.
    pub kind: TunnelKind,
    /// UDP port; 0 for tunnels without UDP.
    pub dst_port: u16,
    /// VXLAN group policy.
    pub gbp: bool,
    /// Some tunnel has packets without an Ethernet header inside, or a header for them.
    pub l3: bool,
}

impl TunnelPort {
    /// Whether tunnels with these options share one port.
    pub fn is_shared_with(self, other: TunnelPort) -> bool {
        TunnelPort { l3: other.l3, ..self } == other
    }
}
