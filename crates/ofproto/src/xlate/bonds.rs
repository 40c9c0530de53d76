//! Packets to and from bonds: the member that sends, by the datapath where it hashes, and the members that take.

use super::ctx::XlateCtx;
use super::state::HashedBond;
use super::trace::TraceEvent;
use crate::bond::{Admission, Way};
use crate::cache::XlateEffect;
use crate::ids::BundleId;
use crate::ports::Bundle;
use crate::recirc::{FrozenState, INTERNAL_TABLE};
use dpif::XlateDrop;
use dpif::actions::{HashAction, HashAlgorithm, LbOutput};
use flow::OfPort;
use ofp_actions::{Action, Output};
use packet::headers as h;

/// Priority of the rules that send packets of a bond after their recirculation, as in OVS.
const RULE_PRIORITY: u16 = 20;

impl XlateCtx<'_> {
    /// The member of a bundle that sends a packet of that VLAN; `None`: none does. If the datapath chooses it, the next
    /// output goes to the bond.
    pub(super) fn member_out(&mut self, output: &Bundle, vlan: u16) -> Option<OfPort> {
        let Some(bond) = &output.bond else { return output.members.first().copied() };
        self.record.lookups.bond(self.bridge.id, output.id);
        let recirc = self.host.capabilities().recirc;
        let way = bond.state().way_out(&self.packet.flow, vlan, recirc, &mut self.record.wc)?;
        match way {
            Way::Member(port, hash) => {
                if let Some(hash) = hash {
                    self.record.cache.push(XlateEffect::Bond { bond: bond.clone(), hash });
                }
                Some(port)
            }
            Way::Hashed { member, basis, lb_output } => {
                let can = self.host.capabilities().lb_output;
                let lb_output = bond.recirc_id().filter(|_| lb_output && can);
                self.out.bond = Some(HashedBond { bundle: output.id, basis, lb_output });
                Some(member)
            }
        }
    }

    /// Sends the packet to a bond whose member the datapath chooses.
    pub(super) fn output_hashed(&mut self, bond: HashedBond) {
        let HashedBond { bundle, basis, lb_output } = bond;
        if let Some(id) = lb_output {
            return self.out.actions.push(LbOutput(id.0).into());
        }
        self.out.hash_first = Some(HashAction { algorithm: HashAlgorithm::L4, basis });
        let _ = self.recirculate(FrozenState::of_bond(self.bridge.id, bundle));
    }

    /// A packet of a bond comes back with its hash.
    pub(super) fn resume_in_bond(&mut self, bundle: BundleId) {
        self.record.wc.0.dp_hash |= 0xff;
        let (id, hash) = (self.packet.flow.recirc_id, self.packet.flow.dp_hash as u8);
        self.record.lookups.bond(self.bridge.id, bundle);
        let bond = self.bridge.ports.bundles.get(&bundle).and_then(|bundle| bundle.bond.clone());
        let Some((bond, port)) = bond.and_then(|bond| {
            let port = bond.state().hashed(hash)?;
            Some((bond, port))
        }) else {
            return self.fail(XlateDrop::NoRecirculationContext, "the bond has no member for the packet");
        };
        self.control.table = INTERNAL_TABLE;
        self.record.trace.push(
            |(id, hash)| {
                let table = INTERNAL_TABLE.0;
                // As in OVS, 0 has no prefix.
                let hash = if *hash == 0 { "0".to_string() } else { format!("{hash:#x}") };
                TraceEvent::Remark(format!(
                    "{table}. recirc_id={id:#x},dp_hash={hash}/0xff, priority {RULE_PRIORITY}"
                ))
            },
            &(id, hash),
        );
        self.record.trace.push(
            |port| TraceEvent::Action(Box::new(Action::Output(Output { port: *port, max_len_bytes: 0 }))),
            &port,
        );
        self.record.cache.push(XlateEffect::Bond { bond, hash });
        self.send_to(port);
        self.record.trace.pop();
        self.record.trace.pop();
    }

    /// Whether the bond of an input port takes the packet; otherwise the trace says why not.
    pub(super) fn bond_admits(&mut self, input: &Bundle, in_port: OfPort, vlan: u16) -> bool {
        let Some(bond) = &input.bond else { return true };
        self.record.lookups.bond(self.bridge.id, input.id);
        let admission = bond.state().admits(in_port, self.packet.flow.dl_dst());
        match admission {
            Admission::Accepted => true,
            Admission::Refused => {
                self.record.trace.detail(|| "bonding refused admissibility, dropping".to_string());
                false
            }
            Admission::UnlessMoved => {
                let (src, now_ms) = (self.packet.flow.dl_src(), self.host.now_ms());
                let (known, is_held) = {
                    let macs = sync::lock(&self.bridge.macs);
                    (macs.lookup(vlan, src), macs.is_held(vlan, src, now_ms))
                };
                if known.is_none_or(|id| id == input.id) || self.is_gratuitous_arp() && !is_held {
                    return true;
                }
                let why = "SLB bond thinks this packet looped back, dropping";
                self.record.trace.detail(|| why.to_string());
                false
            }
        }
    }

    /// Whether a host at a port that is no bond tells its address by ARP, and a bond may reflect that.
    pub(super) fn announces_host(&mut self, input: &Bundle) -> bool {
        self.bridge.has_slb && input.bond.is_none() && self.is_gratuitous_arp()
    }

    /// Whether the packet is an ARP broadcast by which a host tells its own address.
    fn is_gratuitous_arp(&mut self) -> bool {
        let flow = &self.packet.flow;
        if flow.dl_type != h::ETH_TYPE_ARP || flow.dl_dst != [0xff; 6] {
            return false;
        }
        let wc = &mut self.record.wc.0;
        wc.nw_proto = u8::MAX;
        match flow.nw_proto {
            ARP_REPLY => true,
            ARP_REQUEST => {
                (wc.nw_src, wc.nw_dst) = (u32::MAX, u32::MAX);
                flow.nw_src == flow.nw_dst
            }
            _ => false,
        }
    }
}

/// Operations of ARP (RFC 826).
const ARP_REQUEST: u8 = 1;
/// See [`ARP_REQUEST`].
const ARP_REPLY: u8 = 2;
