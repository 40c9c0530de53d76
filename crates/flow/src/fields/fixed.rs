//! Fields of the fixed match structures of OpenFlow 1.0 (§5.2.3) and 1.1 (§A.2.3), and the formats that carry a match on a
//! field. The extensible matches carry every field with a header.

use super::FieldId;
use crate::Protocols;

/// CarriedPart of a field that a fixed structure carries.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CarriedPart {
    /// Nothing.
    Nothing,
    /// The whole field.
    Whole,
    /// A prefix of it.
    Prefix,
    /// Any bits of it.
    Bits,
}

impl CarriedPart {
    fn carries(self, kind: Kind) -> bool {
        match self {
            CarriedPart::Nothing => false,
            CarriedPart::Whole => kind == Kind::Whole,
            CarriedPart::Prefix => kind != Kind::Bits,
            CarriedPart::Bits => true,
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
fn parts(field: FieldId) -> (CarriedPart, CarriedPart) {
    use FieldId::*;
    match field {
        InPort | EthType | VlanTci | DlVlan | DlVlanPcp | VlanVid | VlanPcp | NwProto | NwTos | IpDscp
        | ArpOp | TcpSrc | TcpDst | UdpSrc | UdpDst | IcmpType | IcmpCode => {
            (CarriedPart::Whole, CarriedPart::Whole)
        }
        EthSrc | EthDst => (CarriedPart::Whole, CarriedPart::Bits),
        IpSrc | IpDst | ArpSpa | ArpTpa => (CarriedPart::Prefix, CarriedPart::Bits),
        InPortOxm | MplsLabel | MplsTc | NwEcn | SctpSrc | SctpDst => {
            (CarriedPart::Nothing, CarriedPart::Whole)
        }
        Metadata => (CarriedPart::Nothing, CarriedPart::Bits),
        _ => (CarriedPart::Nothing, CarriedPart::Nothing),
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
        let has_header =
            self.def().nxm.is_some() || self.def().oxm.is_some() || in_10 != CarriedPart::Nothing;
        let extensible = if has_header { Protocols::NXM_OXM } else { Protocols::NONE };
        extensible | of10 | of11
    }
}
