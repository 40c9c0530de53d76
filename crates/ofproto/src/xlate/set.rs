//! Actions that rewrite the flow, and the action set of OpenFlow 1.1 and later.

use super::ctx::XlateCtx;
use flow::action::{Action, SubField};
use flow::fields::FieldId;
use flow::text::{NoPortNames, format_subfield, format_value};
use flow::{Flow, OfPort, VlanTag};
use packet::headers as h;

impl XlateCtx<'_> {
    /// Carries out an action that changes fields.
    pub(super) fn set_action(&mut self, action: &Action) {
        match action {
            Action::SetField { field, value, mask, .. } => self.set_field(*field, *value, *mask),
            Action::Move { source, dest } => {
                source.add_mask(&mut self.wc.0);
                let value = source.get(&self.flow);
                self.assign(dest, value);
                self.tell_value(dest);
            }
            Action::SetVlanVid(vid) => self.set_vlan(*vid, VlanTag::VID),
            Action::SetVlanPcp(pcp) => self.set_vlan(u16::from(*pcp) << 13, VlanTag::PCP),
            Action::StripVlan => self.pop_vlan(),
            Action::PushVlan(tpid) => self.push_vlan(*tpid),
            Action::SetEthSrc(mac) => self.set_whole(FieldId::EthSrc, mac.to_u64().into()),
            Action::SetEthDst(mac) => self.set_whole(FieldId::EthDst, mac.to_u64().into()),
            Action::SetIpv4Src(ip) => self.set_nw(FieldId::IpSrc, u128::from(*ip)),
            Action::SetIpv4Dst(ip) => self.set_nw(FieldId::IpDst, u128::from(*ip)),
            Action::SetIpDscp(tos) => self.set_nw(FieldId::IpDscp, u128::from(tos >> 2)),
            Action::SetIpEcn(ecn) => self.set_nw(FieldId::NwEcn, u128::from(*ecn)),
            Action::SetIpTtl(ttl) => self.set_nw(FieldId::NwTtl, u128::from(*ttl)),
            Action::SetL4Src(port) => self.set_l4(true, *port),
            Action::SetL4Dst(port) => self.set_l4(false, *port),
            Action::SetTunnel { id, .. } => self.flow.tun_id = *id,
            Action::WriteMetadata { value, mask } => {
                self.flow.metadata = self.flow.metadata & !mask | value & mask;
            }
            _ => {}
        }
    }

    fn set_field(&mut self, field: FieldId, value: u128, mask: u128) {
        if !field.prereq_holds(&self.flow, None) {
            let name = field.def().name;
            self.trace.warning(|| format!("unmet prerequisites for {name}, set_field ignored"));
        } else if is_behind_protocol(field) {
            self.wc.0.nw_proto = u8::MAX;
        }
        self.set_masked(field, value, mask);
    }

    fn set_whole(&mut self, field: FieldId, value: u128) {
        self.set_masked(field, value, field.full_mask());
    }

    fn set_nw(&mut self, field: FieldId, value: u128) {
        if field.prereq_holds(&self.flow, None) {
            self.wc.0.nw_proto = u8::MAX;
            self.set_whole(field, value);
        }
    }

    fn set_l4(&mut self, source: bool, port: u16) {
        let by_proto = |tcp, udp, sctp| match self.flow.nw_proto {
            h::IPPROTO_TCP => Some(tcp),
            h::IPPROTO_UDP => Some(udp),
            h::IPPROTO_SCTP => Some(sctp),
            _ => None,
        };
        let field = if source {
            by_proto(FieldId::TcpSrc, FieldId::UdpSrc, FieldId::SctpSrc)
        } else {
            by_proto(FieldId::TcpDst, FieldId::UdpDst, FieldId::SctpDst)
        };
        if self.flow.is_ip() {
            self.wc.0.nw_proto = u8::MAX;
            if let Some(field) = field {
                self.set_nw(field, port.into());
            }
        }
    }

    /// Tells what a range of bits of a field now is.
    pub(super) fn tell_value(&mut self, dest: &SubField) {
        let value = dest.get(&self.flow);
        let is_whole = *dest == SubField::whole(dest.field);
        self.trace.detail(|| {
            let text = match (is_whole, value) {
                (true, _) => format_value(dest.field, value, dest.field.full_mask(), &NoPortNames),
                (false, 0) => "0".to_string(),
                (false, _) => format!("{value:#x}"),
            };
            format!("{} is now {text}", format_subfield(*dest))
        });
    }

    /// Writes a range of bits of a field.
    pub(super) fn assign(&mut self, dest: &SubField, value: u128) {
        self.set_masked(dest.field, value << dest.offset_bits, dest.field_mask());
    }

    /// Writes the bits `mask` of a field, when the packet has it. Those bits (and what says that the packet has the
    /// field) count as looked at.
    fn set_masked(&mut self, field: FieldId, value: u128, mask: u128) {
        look_at_prereq(field, &self.flow, &mut self.wc.0);
        if !field.prereq_holds(&self.flow, None) {
            return;
        }
        field.add_mask(&mut self.wc.0, mask);
        let old = field.get(&self.flow);
        field.set(&mut self.flow, old & !mask | value & mask);
        repair_vlan(&mut self.flow);
    }

    /// Sets bits of the outermost tag, which a packet without one gets.
    fn set_vlan(&mut self, value: u16, bits: u16) {
        self.wc.0.vlans[0].tci |= bits | VlanTag::PRESENT;
        let tag = &mut self.flow.vlans[0];
        if !tag.is_present() {
            *tag = VlanTag { tpid: h::ETH_TYPE_VLAN, tci: VlanTag::PRESENT };
        }
        tag.tci = tag.tci & !bits | value & bits;
    }

    /// Adds an empty tag (OVS; OpenFlow 1.3 §5.12 copies VLAN and priority of the former one).
    fn push_vlan(&mut self, tpid: u16) {
        let whole = VlanTag { tpid: u16::MAX, tci: u16::MAX };
        let flow = &mut self.flow;
        flow.vlans
            .iter()
            .zip(&mut self.wc.0.vlans)
            .filter(|(t, _)| t.is_present())
            .for_each(|(_, m)| *m = whole);
        flow.vlans[1] = flow.vlans[0];
        flow.vlans[0] = VlanTag { tpid, tci: VlanTag::PRESENT };
    }

    fn pop_vlan(&mut self) {
        if self.flow.vlans[1].is_present() {
            self.wc.0.vlans[1] = VlanTag { tpid: u16::MAX, tci: u16::MAX };
        }
        self.flow.vlans[0] = self.flow.vlans[1];
        self.flow.vlans[1] = VlanTag::default();
    }
}

/// A tag has an EtherType. Without the presence bit it is none, but rules see the other bits that were written.
fn repair_vlan(flow: &mut Flow) {
    let tag = &mut flow.vlans[0];
    if !tag.is_present() {
        tag.tpid = 0;
    } else if tag.tpid == 0 {
        tag.tpid = h::ETH_TYPE_VLAN;
    }
}

/// Whether writing the field looks at the protocol, as packets without one are not rewritten ([`XlateCtx::commit`]).
fn is_behind_protocol(field: FieldId) -> bool {
    use flow::fields::Prereq as P;
    let of_header = matches!(field.def().prereq, P::Arp | P::Ipv4 | P::Ipv6 | P::Ip);
    of_header && !matches!(field, FieldId::IpDscp)
}

/// Adds to the mask what decides whether packets such as `flow` have `field`.
fn look_at_prereq(field: FieldId, flow: &Flow, mask: &mut Flow) {
    use flow::fields::Prereq as P;
    match field.def().prereq {
        P::None | P::Ethernet | P::Arp | P::Ipv4 | P::Ipv6 | P::Ip | P::Mpls => {}
        P::Vlan => mask.vlans[0].tci |= VlanTag::PRESENT,
        P::Tcp | P::Udp | P::Sctp | P::Icmp4 | P::Icmp6 if flow.is_ip() => mask.nw_proto = u8::MAX,
        P::Nd | P::NdSolicit | P::NdAdvert if flow.is_ip() => {
            mask.nw_proto = u8::MAX;
            if flow.nw_proto == h::IPPROTO_ICMPV6 {
                mask.tp_src |= 0xff;
                mask.tp_dst |= 0xff;
            }
        }
        _ => {}
    }
}

/// Place of an action in the execution order of the action set (OpenFlow 1.3 §5.10); `None`: not part of a set.
fn rank(action: &Action) -> Option<u8> {
    Some(match action {
        Action::StripVlan => 1,
        Action::PushVlan(_) => 3,
        Action::DecTtl { .. } => 4,
        Action::SetField { .. }
        | Action::Move { .. }
        | Action::SetVlanVid(_)
        | Action::SetVlanPcp(_)
        | Action::SetEthSrc(_)
        | Action::SetEthDst(_)
        | Action::SetIpv4Src(_)
        | Action::SetIpv4Dst(_)
        | Action::SetIpDscp(_)
        | Action::SetIpEcn(_)
        | Action::SetIpTtl(_)
        | Action::SetL4Src(_)
        | Action::SetL4Dst(_)
        | Action::SetTunnel { .. } => SET,
        Action::SetQueue(_) => 6,
        Action::Output { .. } | Action::Controller(_) => OUTPUT,
        Action::Resubmit { .. } => RESUBMIT,
        _ => return None,
    })
}

/// All actions of this rank are carried out, in the order they were written; of the others, the last.
const SET: u8 = 5;
const OUTPUT: u8 = 8;
const RESUBMIT: u8 = 9;

/// Adds written actions to the set.
pub(super) fn merge(set: &mut Vec<Action>, written: &[Action]) {
    for action in written {
        let Some(place) = rank(action) else { continue };
        if place != SET {
            set.retain(|old| rank(old) != Some(place));
        }
        set.push(action.clone());
    }
}

/// The port that the set sends to, as rules see it in `actset_output`.
pub(super) fn output_of(set: &[Action]) -> OfPort {
    set.iter()
        .find_map(|a| if let Action::Output { port, .. } = a { Some(*port) } else { None })
        .unwrap_or(OfPort::UNSET)
}

/// The actions that the set stands for, in their order of execution: one way out, and none without one.
pub(super) fn in_order(set: &[Action]) -> Vec<Action> {
    let Some(last) = [OUTPUT, RESUBMIT].into_iter().find(|way| set.iter().any(|a| rank(a) == Some(*way)))
    else {
        return Vec::new();
    };
    let mut ordered: Vec<Action> =
        set.iter().filter(|a| rank(a).is_some_and(|r| r < OUTPUT || r == last)).cloned().collect();
    ordered.sort_by_key(rank);
    ordered
}
