//! Which member sends a packet, and whether a received one is admitted.

use super::{BondMode, LacpStatus, State, slb_hash};
use flow::flow_hash::HashFields;
use flow::{Flow, MacAddr, Mask, OfPort};

/// How a packet leaves a bond.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// By a member; a balanced bond counts its bytes for that hash value.
    Member(OfPort, Option<u8>),
    /// The datapath hashes it with this basis, and chooses the member by that. The member is one of those possible.
    Hashed {
        /// A member.
        member: OfPort,
        /// Basis of the hash.
        basis: u32,
        /// The datapath has the members of all hash values.
        lb_output: bool,
    },
}

/// Whether a bond takes a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// It does.
    Accepted,
    /// It does not: another member gets it, or its sender got it from here.
    Refused,
    /// It does unless the source address was learned at another port.
    UnlessMoved,
}

impl State {
    /// The member of a hash value: an enabled one from now on.
    fn of_bucket(&mut self, hash: u8) -> Option<OfPort> {
        let known = self.buckets.as_ref()?[usize::from(hash)].member;
        let works = |id: &super::MemberId| self.member(*id).is_some_and(|m| m.enabled);
        let id = match known.filter(works) {
            Some(id) => id,
            None => {
                let id = self.next_in_turn()?;
                self.buckets.as_mut()?[usize::from(hash)].member = Some(id);
                id
            }
        };
        self.member(id).map(|m| m.port)
    }

    /// The member that sends packets of this hash value after their recirculation.
    pub fn hashed(&mut self, hash: u8) -> Option<OfPort> {
        if self.recirculates() { self.of_bucket(hash) } else { None }
    }

    /// The members of all hash values.
    pub fn all_hashed(&mut self) -> Option<Vec<OfPort>> {
        (0..=u8::MAX).map(|hash| self.hashed(hash)).collect()
    }

    /// How a packet of a VLAN leaves; `None`: no member sends it. Adds the examined fields to the mask. `recirc`: the
    /// datapath can hash and recirculate.
    pub fn way_out(&mut self, flow: &Flow, vlan: u16, recirc: bool, wc: &mut Mask) -> Option<Way> {
        let mut mode = self.settings.mode;
        if self.lacp == LacpStatus::Configured {
            if !self.settings.fallback_ab {
                return None;
            }
            mode = BondMode::ActiveBackup;
        }
        match mode {
            BondMode::ActiveBackup => self.active_port().map(|port| Way::Member(port, None)),
            BondMode::BalanceTcp if self.lacp != LacpStatus::Negotiated => None,
            BondMode::BalanceTcp if recirc => {
                // As in OVS, all hash values have a member from the first packet on.
                let member = (0..=u8::MAX).map(|hash| self.of_bucket(hash)).last()??;
                let lb_output = self.settings.lb_output;
                Some(Way::Hashed { member, basis: self.settings.basis, lb_output })
            }
            BondMode::BalanceTcp => {
                let fields = HashFields::SymmetricL3L4Udp;
                fields.add_mask(flow, wc);
                let hash = fields.hash(flow, self.settings.basis) as u8;
                self.of_bucket(hash).map(|port| Way::Member(port, Some(hash)))
            }
            BondMode::BalanceSlb => {
                wc.0.dl_src = [0xff; 6];
                let hash = slb_hash(flow.dl_src(), vlan, self.settings.basis);
                self.of_bucket(hash).map(|port| Way::Member(port, Some(hash)))
            }
        }
    }

    /// Whether a packet to that address is taken from a member.
    pub fn admits(&self, port: OfPort, dst: MacAddr) -> Admission {
        let Some(member) = self.members.iter().find(|m| m.port == port) else { return Admission::Refused };
        let accepted_if = |accepts: bool| if accepts { Admission::Accepted } else { Admission::Refused };
        match self.lacp {
            LacpStatus::Negotiated => return accepted_if(member.enabled || member.may_enable),
            LacpStatus::Configured if !self.settings.fallback_ab => return Admission::Refused,
            LacpStatus::Off if self.settings.mode == BondMode::BalanceTcp => return Admission::Refused,
            LacpStatus::Configured | LacpStatus::Off => {}
        }
        let is_active = self.active == Some(member.id);
        let takes_all = self.settings.mode == BondMode::BalanceSlb && self.settings.all_members_active;
        if dst.is_multicast() && !is_active && !takes_all {
            return Admission::Refused;
        }
        match self.settings.mode {
            BondMode::BalanceSlb => Admission::UnlessMoved,
            // Without negotiation it is an active-backup bond.
            BondMode::BalanceTcp | BondMode::ActiveBackup => accepted_if(is_active),
        }
    }
}
