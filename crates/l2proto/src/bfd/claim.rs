//! Which packets of a port belong to its session; all others go on to the tables.
//!
//! A packet to another address or MAC than the configured ones goes on, so BFD that a network routes (as OVN does)
//! reaches its rules. A [`Claim`] is a small value: a translation reads it from its view without the session.

use super::frame::{DEFAULT_SRC_IP, UDP_PORT};
use flow::{Flow, MacAddr, Mask, nw_frag};
use packet::headers::{ETH_TYPE_IP, IPPROTO_UDP};

/// The settings that select the packets of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The only Ethernet destination, if set.
    pub remote_dst_mac: Option<MacAddr>,
    /// The only IPv4 destination, unless it is the default source.
    pub src_ip: u32,
    /// Whether the tunnel key must be 0.
    pub check_tnl_key: bool,
}

impl Claim {
    /// Whether a packet is for the session; the bits that decide are added to `mask`.
    ///
    /// The masks are those of OVS but for one: with a configured `bfd_src_ip`, OVS omits `nw_dst` from the mask of a
    /// packet to another address, so its megaflow also takes packets of the session.
    pub fn claims(&self, flow: &Flow, mask: &mut Mask) -> bool {
        let mask = &mut mask.0;
        if let Some(mac) = self.remote_dst_mac {
            mask.dl_dst = [0xff; 6];
            if flow.dl_dst() != mac {
                return false;
            }
        }
        mask.dl_type = u16::MAX;
        if flow.dl_type != ETH_TYPE_IP {
            return false;
        }
        mask.nw_proto = u8::MAX;
        mask.nw_frag = nw_frag::MASK;
        if flow.nw_proto != IPPROTO_UDP || flow.nw_frag & nw_frag::LATER != 0 {
            return false;
        }
        let different = flow.tp_dst ^ UDP_PORT;
        if different != 0 {
            // The highest different bit is enough to exclude the packet.
            mask.tp_dst |= 0x8000 >> different.leading_zeros();
            return false;
        }
        mask.tp_dst = u16::MAX;
        let for_address = flow.nw_dst == self.src_ip;
        if for_address || self.src_ip != DEFAULT_SRC_IP {
            mask.nw_dst = u32::MAX;
        }
        if !for_address && self.src_ip != DEFAULT_SRC_IP {
            return false;
        }
        if self.check_tnl_key {
            mask.tun_id = u64::MAX;
            return flow.tun_id == 0;
        }
        true
    }
}
