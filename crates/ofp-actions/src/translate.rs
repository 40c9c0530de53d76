//! [`Translator`]: interface of a translation to the actions that it executes, and rewriting of fields.

use crate::actions::{CheckPktLarger, ControllerAction, Ct, Encap, LearnAction, Nat, SampleFlow};
use crate::list::Action;
use flow::fields::{FieldId, Prereq};
use flow::text::{NoPortNames, format_subfield, format_value};
use flow::{Flow, Mask, OfPort, SubField, TableId, TlvTable, VlanTag, Wide, ct_state};
use packet::headers as h;
use std::sync::Arc;

/// A translation executing an action.
pub trait Translator {
    /// The current packet.
    fn flow(&self) -> &Flow;

    /// The current packet, mutable, and the mask of examined bits.
    fn state(&mut self) -> (&mut Flow, &mut Mask);

    /// The original packet.
    fn original(&self) -> &Flow;

    /// Traces a result of the action.
    fn detail(&mut self, text: impl FnOnce() -> String);

    /// Traces an omission.
    fn warning(&mut self, text: impl FnOnce() -> String);

    /// Reports a fault of the rules.
    fn error(&mut self, text: impl FnOnce() -> String);

    /// Outputs to any port, reserved ones included; not to the input port.
    fn output(&mut self, port: OfPort, max_len_bytes: u16);

    /// Outputs the first bytes of the packet to a port of the bridge; not to the input port.
    fn output_truncated(&mut self, port: OfPort, max_len_bytes: u32);

    /// Sends the packet out of a port of the bridge, which may be the input port.
    fn output_to(&mut self, port: OfPort);

    /// Sends the packet to the controllers.
    fn output_controller(&mut self, action: &ControllerAction);

    /// Looks the packet up in a table (`None`: the current one), with an input port for the lookup (`None`: the
    /// packet's own), and runs the rule found. `ct`: with the addresses and ports of the connection's original
    /// direction. `honor_miss`: a table miss may go to the controllers.
    fn resubmit(&mut self, table: Option<TableId>, in_port: Option<OfPort>, ct: bool, honor_miss: bool);

    /// Passes the packet through the connection tracker.
    fn track(&mut self, ct: &Ct);

    /// Clears the packet's connection tracking state.
    fn clear_tracking(&mut self);

    /// Translates the addresses of the connection that the surrounding `ct` tracks.
    fn translate_addresses(&mut self, nat: &Nat);

    /// Whether a port of the bridge can send.
    fn is_live(&mut self, port: OfPort) -> bool;

    /// Executes a group.
    fn group(&mut self, id: u32);

    /// Executes actions on a copy of the packet.
    fn clone_packet(&mut self, actions: &[Action]);

    /// Executes the rest of the list twice: for packets longer than the threshold, and for others.
    fn split_by_length(&mut self, check: &CheckPktLarger);

    /// Adds or refreshes a learned rule; returns whether it exists now, or `None` if the action is ignored.
    fn learn(&mut self, learn: &LearnAction) -> Option<bool>;

    /// Packets that end a connection shorten the timeouts of the current rule.
    fn shorten_timeouts(&mut self, idle_s: u16, hard_s: u16);

    /// Ends the translation of the packet's actions.
    fn exit(&mut self);

    /// Skips the rest of the list.
    fn leave_list(&mut self);

    /// Pushes an MPLS label stack entry; the packet has this EtherType afterwards.
    fn push_mpls(&mut self, ethertype: u16);

    /// Pops an MPLS label stack entry; the packet has this EtherType afterwards.
    fn pop_mpls(&mut self, ethertype: u16);

    /// Pushes a header before all headers of the packet.
    fn encap(&mut self, encap: &Encap);

    /// Pops the first header of the packet; the packet has this type afterwards (`None`: as the header tells).
    fn decap(&mut self, packet_type: Option<u32>);

    /// Applies a meter.
    fn meter(&mut self, id: u32);

    /// Adds actions to the action set.
    fn write_actions(&mut self, actions: &[Action]);

    /// Clears the action set.
    fn clear_actions(&mut self);

    /// Freezes the translation, for resumption by recirculation.
    fn freeze(&mut self);

    /// Keeps the flow in the slow path.
    fn stay_slow(&mut self);

    /// Exports some packets to a set of collectors.
    fn sample(&mut self, sample: &SampleFlow);

    /// The bridge's mappings of tunnel metadata.
    fn tlv(&self) -> Arc<TlvTable>;

    /// Pushes a value of that many bits on the stack.
    fn stack_push(&mut self, value: Wide, len_bits: u16);

    /// Pops a value off the stack; `None` if it is empty.
    fn stack_pop(&mut self) -> Option<Wide>;

    /// The datapath's priority for a queue, if any.
    fn priority_of_queue(&self, queue: u32) -> Option<u32>;
}

/// Writes a range of bits of a field, if the packet has it.
pub fn assign(x: &mut impl Translator, dest: &SubField, value: u128) {
    if dest.field.metadata_index().is_some() {
        return assign_wide(x, dest, value.into());
    }
    set_masked(x, dest.field, value << dest.offset_bits, dest.field_mask());
}

/// As [`assign`], for a value of any length.
pub(crate) fn assign_wide(x: &mut impl Translator, dest: &SubField, value: Wide) {
    if dest.field.metadata_index().is_none() {
        return assign(x, dest, value.low());
    }
    set_wide_masked(x, dest.field, value << dest.offset_bits.into(), dest.wide_mask());
}

/// Writes the bits `mask` of tunnel metadata, which the packet has from then on.
pub(crate) fn set_wide_masked(x: &mut impl Translator, field: FieldId, value: Wide, mask: Wide) {
    let tlv = x.tlv();
    let (flow, wc) = x.state();
    tlv.add_mask(field, &mut wc.0, mask);
    let old = tlv.read(field, flow);
    tlv.write(field, flow, (old & !mask) | (value & mask));
}

/// Writes a whole field, if the packet has it.
pub(crate) fn set_whole(x: &mut impl Translator, field: FieldId, value: u128) {
    set_masked(x, field, value, field.full_mask());
}

/// Writes a field of the network layer, if the packet has it.
pub(crate) fn set_nw(x: &mut impl Translator, field: FieldId, value: u128) {
    if field.prereq_holds(x.flow(), None) {
        x.state().1.0.nw_proto = u8::MAX;
        set_whole(x, field, value);
    }
}

/// Writes the bits `mask` of a field, if the packet has it. Those bits (and the prerequisites of the field) count as
/// examined.
pub(crate) fn set_masked(x: &mut impl Translator, field: FieldId, value: u128, mask: u128) {
    let (flow, wc) = x.state();
    look_at_prereq(field, flow, &mut wc.0);
    if !field.prereq_holds(flow, None) {
        return;
    }
    field.add_mask(&mut wc.0, mask);
    let old = field.get(flow);
    field.set(flow, old & !mask | value & mask);
    repair_vlan(flow);
}

/// Traces the new value of a range of bits of a field.
pub(crate) fn trace_value(x: &mut impl Translator, dest: &SubField) {
    if dest.field.metadata_index().is_some() {
        let tlv = x.tlv();
        let value = dest.get_wide(&tlv, x.flow());
        return x.detail(|| format!("{} is now {}", format_subfield(*dest, &*tlv), value.hex()));
    }
    let value = dest.get(x.flow());
    let is_whole = *dest == SubField::whole(dest.field);
    x.detail(|| {
        let text = match (is_whole, value) {
            (true, _) => format_value(dest.field, value, dest.field.full_mask(), &NoPortNames),
            (false, 0) => "0".to_string(),
            (false, _) => format!("{value:#x}"),
        };
        format!("{} is now {text}", format_subfield(*dest, &NoPortNames))
    });
}

/// Marks a range of bits as examined; returns their value.
pub(crate) fn look_at(x: &mut impl Translator, source: &SubField) -> u128 {
    if source.field.metadata_index().is_some() {
        return look_at_wide(x, source).low();
    }
    let (flow, wc) = x.state();
    if source.field.def().prereq == Prereq::Connection {
        look_at_prereq(source.field, flow, &mut wc.0);
    }
    source.add_mask(&mut wc.0);
    source.get(flow)
}

/// As [`look_at`], for a range of any length.
pub(crate) fn look_at_wide(x: &mut impl Translator, source: &SubField) -> Wide {
    if source.field.metadata_index().is_none() {
        return look_at(x, source).into();
    }
    let tlv = x.tlv();
    let (flow, wc) = x.state();
    source.add_wide_mask(&tlv, &mut wc.0);
    source.get_wide(&tlv, flow)
}

/// A tag has an EtherType. Without the presence bit there is no tag, but rules see the other written bits.
fn repair_vlan(flow: &mut Flow) {
    let tag = &mut flow.vlans[0];
    if !tag.is_present() {
        tag.tpid = 0;
    } else if tag.tpid == 0 {
        tag.tpid = h::ETH_TYPE_VLAN;
    }
}

/// Adds the prerequisites of `field` for packets such as `flow` to the mask.
pub fn look_at_prereq(field: FieldId, flow: &Flow, mask: &mut Flow) {
    match field.def().prereq {
        Prereq::Vlan => mask.vlans[0].tci |= VlanTag::PRESENT,
        Prereq::Tcp | Prereq::Udp | Prereq::Sctp | Prereq::Icmp4 | Prereq::Icmp6 if flow.is_ip() => {
            mask.nw_proto = u8::MAX;
        }
        Prereq::Nd | Prereq::NdSolicit | Prereq::NdAdvert if flow.is_ip() => {
            mask.nw_proto = u8::MAX;
            if flow.nw_proto == h::IPPROTO_ICMPV6 {
                mask.tp_src |= 0xff;
                mask.tp_dst |= 0xff;
            }
        }
        Prereq::Connection => mask.ct_state |= ct_state::NEW | ct_state::EST | ct_state::RPL,
        // The EtherType, examined by every translation, determines it, or its absence.
        Prereq::None
        | Prereq::Ethernet
        | Prereq::Arp
        | Prereq::Ipv4
        | Prereq::Ipv6
        | Prereq::Ip
        | Prereq::Mpls
        | Prereq::Nsh
        | Prereq::Tcp
        | Prereq::Udp
        | Prereq::Sctp
        | Prereq::Icmp4
        | Prereq::Icmp6
        | Prereq::Nd
        | Prereq::NdSolicit
        | Prereq::NdAdvert => {}
    }
}
