//! Newtypes for numbers that must not be confused.

use std::fmt;

/// An OpenFlow port number, 32 bits as in OpenFlow 1.1 and later (§7.2.1 "Port Structures").
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct OfPort(pub u32);

impl OfPort {
    /// Largest number of a physical or logical port in OpenFlow 1.0; above are the reserved ones.
    pub const MAX_OF10: u16 = 0xff00;
    /// No port is above this number except the reserved ones.
    pub const MAX: OfPort = OfPort(0xffff_ff00);
    /// No port set, as in "output not in the action set".
    pub const UNSET: OfPort = OfPort(0xffff_fff7);
    /// Back through the input port.
    pub const IN_PORT: OfPort = OfPort(0xffff_fff8);
    /// Submit to the first flow table (packet-out only).
    pub const TABLE: OfPort = OfPort(0xffff_fff9);
    /// Ordinary layer-2 forwarding.
    pub const NORMAL: OfPort = OfPort(0xffff_fffa);
    /// All ports except the input and those without flooding.
    pub const FLOOD: OfPort = OfPort(0xffff_fffb);
    /// All ports except the input.
    pub const ALL: OfPort = OfPort(0xffff_fffc);
    /// The controllers.
    pub const CONTROLLER: OfPort = OfPort(0xffff_fffd);
    /// The bridge's own port.
    pub const LOCAL: OfPort = OfPort(0xffff_fffe);
    /// Not a port.
    pub const NONE: OfPort = OfPort(0xffff_ffff);

    /// From the 16-bit form of OpenFlow 1.0 and NXM; reserved numbers are widened.
    pub fn from_of10(port: u16) -> OfPort {
        if port < OfPort::MAX_OF10 { OfPort(port.into()) } else { OfPort(0xffff_0000 | u32::from(port)) }
    }

    /// The 16-bit form, if there is one.
    pub fn to_of10(self) -> Option<u16> {
        (self.0 < u32::from(OfPort::MAX_OF10) || self.0 >= OfPort::MAX.0).then_some(self.0 as u16)
    }

    /// Whether it is not an actual port ([`OfPort::LOCAL`] is one).
    pub fn is_reserved(self) -> bool {
        self.0 >= OfPort::MAX.0 && self != OfPort::LOCAL
    }
}

impl fmt::Display for OfPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            OfPort::UNSET => "UNSET",
            OfPort::IN_PORT => "IN_PORT",
            OfPort::TABLE => "TABLE",
            OfPort::NORMAL => "NORMAL",
            OfPort::FLOOD => "FLOOD",
            OfPort::ALL => "ALL",
            OfPort::CONTROLLER => "CONTROLLER",
            OfPort::LOCAL => "LOCAL",
            OfPort::NONE => "ANY",
            OfPort(n) => return write!(f, "{n}"),
        };
        f.pad(name)
    }
}

/// A port of a datapath.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct DpPort(pub u32);

impl DpPort {
    /// Not a port.
    pub const NONE: DpPort = DpPort(u32::MAX);
}

impl fmt::Display for DpPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Id of a frozen translation that a recirculated packet resumes; 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct RecircId(pub u32);

/// An OpenFlow table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct TableId(pub u8);

impl TableId {
    /// The hidden table of the switch's own rules; not for controllers.
    pub const INTERNAL: TableId = TableId(254);
    /// All tables, in requests.
    pub const ALL: TableId = TableId(255);
    /// Number of tables available to controllers.
    pub const COUNT: u8 = 254;
}

/// A VLAN number, 0 to 4095.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct VlanId(pub u16);

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// The broadcast address.
    pub const BROADCAST: MacAddr = MacAddr([0xff; 6]);

    /// Whether the group bit is set (broadcast included).
    pub fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Whether all bytes are zero.
    pub fn is_zero(self) -> bool {
        self.0 == [0; 6]
    }

    /// Whether bridges do not forward it: one of 01:80:c2:00:00:00 to 0f (IEEE 802.1D table 7-10), or of a protocol
    /// between the switches of one vendor, as OVS lists them.
    pub fn is_reserved(self) -> bool {
        match self.0 {
            [0x01, 0x80, 0xc2, 0, 0, last] => last & 0xf0 == 0,
            // Extreme: EDP, EAPS, EAPS of ESRP.
            [0x00, 0xe0, 0x2b, 0, 0, last] => matches!(last, 0 | 4 | 6),
            // Cisco: ISL; CDP, VTP, DTP, PAgP and UDLD; PVST+; uplink-fast of STP.
            [0x01, 0x00, 0x0c, a, b, c] => {
                matches!([a, b, c], [0, 0, 0] | [0xcc, 0xcc, 0xcc | 0xcd] | [0xcd, 0xcd, 0xcd])
            }
            _ => false,
        }
    }

    /// As a number, first byte highest.
    pub fn to_u64(self) -> u64 {
        let m = self.0;
        u64::from_be_bytes([0, 0, m[0], m[1], m[2], m[3], m[4], m[5]])
    }

    /// From the low 48 bits of a number.
    pub fn from_u64(n: u64) -> MacAddr {
        let b = n.to_be_bytes();
        MacAddr([b[2], b[3], b[4], b[5], b[6], b[7]])
    }

    /// Parses six hexadecimal bytes separated by colons.
    pub fn parse(s: &str) -> Option<MacAddr> {
        let mut mac = [0; 6];
        let mut parts = s.split(':');
        for byte in &mut mac {
            let part = parts.next()?;
            if part.is_empty() || part.len() > 2 {
                return None;
            }
            *byte = u8::from_str_radix(part, 16).ok()?;
        }
        parts.next().is_none().then_some(MacAddr(mac))
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let m = self.0;
        write!(f, "{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", m[0], m[1], m[2], m[3], m[4], m[5])
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Id of one datapath flow, unique up to collisions of 128 random or hashed bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Ufid(pub u128);

impl fmt::Display for Ufid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.0;
        let (a, b, c) = ((n >> 96) as u32, (n >> 80) as u16, (n >> 64) as u16);
        write!(f, "{a:08x}-{b:04x}-{c:04x}-{:04x}-{:012x}", (n >> 48) as u16, n & 0xffff_ffff_ffff)
    }
}

impl fmt::Debug for Ufid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
