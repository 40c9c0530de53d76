//! Fields of the fixed match structures of OpenFlow 1.0 (§5.2.3) and 1.1 (§A.2.3), and the formats that carry a match on a
//! field. The extensible matches carry every field with a header.

use super::FieldId;
use crate::Protocols;

/// Part of a field that a fixed structure carries.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Nothing.
    Nothing,
    /// The whole field.
    Whole,
    /// A prefix of it.
    Prefix,
    /// Any bits of it.
    Bits,
}

impl Part {
    fn carries(self, kind: Kind) -> bool {
        match self {
            Part::Nothing => false,
            Part::Whole => kind == Kind::Whole,
            Part::Prefix => kind != Kind::Bits,
            Part::Bits => true,
        }
    }
}

/// Kind of a mask.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Whole,
    Prefix,
    Bits,
}

/// Parts of a field that the structures of OpenFlow 1.0 and 1.1 carry.
fn parts(field: FieldId) -> (Part, Part) {
    use FieldId::*;
    match field {
        InPort | EthType | VlanTci | DlVlan | DlVlanPcp | VlanVid | VlanPcp | NwProto | NwTos | IpDscp
        | ArpOp | TcpSrc | TcpDst | UdpSrc | UdpDst | IcmpType | IcmpCode => (Part::Whole, Part::Whole),
        EthSrc | EthDst => (Part::Whole, Part::Bits),
        IpSrc | IpDst | ArpSpa | ArpTpa => (Part::Prefix, Part::Bits),
        InPortOxm | MplsLabel | MplsTc | NwEcn | SctpSrc | SctpDst => (Part::Nothing, Part::Whole),
        Metadata => (Part::Nothing, Part::Bits),
        _ => (Part::Nothing, Part::Nothing),
    }
}

impl FieldId {
    /// The formats that carry a match on the whole field, which are also those of `set_field`.
    pub fn protocols(self) -> Protocols {
        self.protocols_of(Kind::Whole)
    }

    /// The formats that carry a match under `mask`.
    pub fn masked_protocols(self, mask: u128) -> Protocols {
        let full = self.full_mask();
        if mask == 0 {
            return Protocols::ANY;
        }
        let rest = full & !mask;
        let kind = match rest {
            0 => Kind::Whole,
            _ if rest & rest.wrapping_add(1) == 0 => Kind::Prefix,
            _ => Kind::Bits,
        };
        self.protocols_of(kind)
    }

    fn protocols_of(self, kind: Kind) -> Protocols {
        let (in_10, in_11) = parts(self);
        let of10 = if in_10.carries(kind) { Protocols::OF10 } else { Protocols::NONE };
        let of11 = if in_11.carries(kind) { Protocols::OF11 } else { Protocols::NONE };
        // A VLAN's number and priority go as its tag.
        let has_header = self.def().nxm.is_some() || self.def().oxm.is_some() || in_10 != Part::Nothing;
        let extensible = if has_header { Protocols::NXM_OXM } else { Protocols::NONE };
        extensible | of10 | of11
    }
}
