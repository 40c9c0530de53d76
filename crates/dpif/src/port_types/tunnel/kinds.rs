//! [`KindOptions`]: options of a tunnel that only some kinds have.

use super::TunnelKind;
use flow::flow_hash::HashFields;
use flow::{Erspan, Flow, Mask};
use packet::headers as h;
use std::collections::BTreeMap;
use std::net::Ipv6Addr;

/// Bits of a flow label of IPv6.
const FLOW_LABEL: u32 = 0xf_ffff;

/// Options of a kind; the default is that of a row without any.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KindOptions {
    /// ERSPAN header.
    pub erspan: ErspanOptions,
    /// Packets inside, and their form.
    pub packet_types: PacketTypes,
    /// VXLAN headers name the protocol of the payload (`exts=gpe`).
    pub gpe: bool,
    /// Segment routing.
    pub srv6: Srv6Options,
}

/// Options of segment routing over IPv6.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Srv6Options {
    /// Segments in the order of the way; the first is the remote address. None: the remote address alone.
    pub segments: Vec<Ipv6Addr>,
    /// Flow label of outer headers.
    pub flow_label: FlowLabel,
}

/// Flow label of outer IPv6 headers (`options:srv6_flowlabel`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FlowLabel {
    /// 0.
    #[default]
    Zero,
    /// The value of the inner packet; 0 if it is not IPv6.
    Copy,
    /// By the hash of the inner packet.
    Compute,
}

impl FlowLabel {
    /// All.
    pub const ALL: [FlowLabel; 3] = [FlowLabel::Zero, FlowLabel::Copy, FlowLabel::Compute];

    /// Its name in the database.
    pub fn name(self) -> &'static str {
        match self {
            FlowLabel::Zero => "zero",
            FlowLabel::Copy => "copy",
            FlowLabel::Compute => "compute",
        }
    }

    /// The label of such a packet; adds the fields that it depends on to the mask.
    pub fn of(self, flow: &Flow, wc: &mut Mask) -> u32 {
        match self {
            FlowLabel::Copy if flow.dl_type == h::ETH_TYPE_IPV6 => {
                wc.0.ipv6_label = FLOW_LABEL;
                flow.ipv6_label & FLOW_LABEL
            }
            FlowLabel::Compute if flow.is_ip() => {
                let fields = HashFields::SymmetricL3;
                fields.add_mask(flow, wc);
                fields.hash(flow, 0) & FLOW_LABEL
            }
            FlowLabel::Zero | FlowLabel::Copy | FlowLabel::Compute => 0,
        }
    }
}

/// Packets that a tunnel sends and receives, and their form on its bridge (`options:packet_type`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum PacketTypes {
    /// Frames (`legacy_l2`).
    #[default]
    Frames,
    /// Packets without an Ethernet header (`legacy_l3`): the bridge sees them as frames with zero addresses.
    Bare,
    /// Both, by their packet types (`ptap`).
    Any,
}

impl PacketTypes {
    /// All.
    pub const ALL: [PacketTypes; 3] = [PacketTypes::Frames, PacketTypes::Bare, PacketTypes::Any];

    /// Its name in the database.
    pub fn name(self) -> &'static str {
        match self {
            PacketTypes::Frames => "legacy_l2",
            PacketTypes::Bare => "legacy_l3",
            PacketTypes::Any => "ptap",
        }
    }

    /// Kinds of tunnels that receive packets of a type, the preferred first.
    pub fn receiving(packet_type: u32) -> [PacketTypes; 2] {
        [if packet_type == 0 { PacketTypes::Frames } else { PacketTypes::Bare }, PacketTypes::Any]
    }
}

/// Fields of sent ERSPAN headers; `None`: set by rules (`flow`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ErspanOptions {
    /// Version: 1 or 2; 0 sends nothing. Without one, rules set all fields.
    pub ver: Option<u8>,
    /// Index.
    pub idx: Option<u32>,
    /// Direction.
    pub dir: Option<u8>,
    /// Hardware id.
    pub hwid: Option<u8>,
}

impl Default for ErspanOptions {
    fn default() -> ErspanOptions {
        ErspanOptions { ver: Some(0), idx: Some(0), dir: Some(0), hwid: Some(0) }
    }
}

impl ErspanOptions {
    /// The header of a packet whose rules left this flow; version 0: the version is none that is sent.
    pub fn header(&self, flow: &Flow) -> Erspan {
        let of_rules = self.ver.is_none();
        let idx = self.idx.filter(|_| !of_rules);
        let (dir, hwid) = (self.dir.filter(|_| !of_rules), self.hwid.filter(|_| !of_rules));
        let erspan = Erspan {
            ver: self.ver.unwrap_or(flow.tun_erspan_ver),
            idx: idx.unwrap_or(flow.tun_erspan_idx),
            dir: dir.unwrap_or(flow.tun_erspan_dir),
            hwid: hwid.unwrap_or(flow.tun_erspan_hwid),
        };
        match erspan.ver {
            1 => Erspan { ver: 1, idx: erspan.idx, ..Erspan::default() },
            2 => Erspan { idx: 0, ..erspan },
            _ => Erspan::default(),
        }
    }

    fn add_to(&self, all: &mut BTreeMap<&'static str, String>) {
        // As in OVS, those of the version also where they are 0.
        let of_version = |version| self.ver == Some(version);
        let mut field = |name, value: Option<u32>, is_shown: bool, hex: bool| match value {
            Some(0) if !is_shown => {}
            Some(0) => drop(all.insert(name, "0".to_string())),
            Some(value) if hex => drop(all.insert(name, format!("{value:#x}"))),
            Some(value) => drop(all.insert(name, value.to_string())),
            None => drop(all.insert(name, "flow".to_string())),
        };
        field("erspan_ver", self.ver.map(u32::from), false, false);
        field("erspan_idx", self.idx, of_version(1), true);
        field("erspan_dir", self.dir.map(u32::from), of_version(2), false);
        field("erspan_hwid", self.hwid.map(u32::from), of_version(2), true);
    }
}

impl KindOptions {
    /// Adds those that differ from the defaults, as in the database.
    pub(super) fn add_to(&self, kind: TunnelKind, all: &mut BTreeMap<&'static str, String>) {
        self.erspan.add_to(all);
        if self.packet_types != usual_packet_types(kind) {
            all.insert("packet_type", self.packet_types.name().to_string());
        }
        if !self.srv6.segments.is_empty() {
            let segments: Vec<_> = self.srv6.segments.iter().map(Ipv6Addr::to_string).collect();
            all.insert("srv6_segs", segments.join(","));
        }
        if self.srv6.flow_label != FlowLabel::Zero {
            all.insert("srv6_flowlabel", self.srv6.flow_label.name().to_string());
        }
    }
}

/// The packets of a tunnel whose row has no `packet_type`.
pub fn usual_packet_types(kind: TunnelKind) -> PacketTypes {
    match kind {
        TunnelKind::Gtpu | TunnelKind::Srv6 => PacketTypes::Bare,
        TunnelKind::Vxlan
        | TunnelKind::Geneve
        | TunnelKind::Gre
        | TunnelKind::Ip6gre
        | TunnelKind::Erspan
        | TunnelKind::Ip6erspan => PacketTypes::Frames,
    }
}
