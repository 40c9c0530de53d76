//! Writing actions: each in the form that the version has for it.
//!
//! What OpenFlow 1.3 says only relative to a packet (the port fields of TCP, UDP or SCTP; a tag to push first) is taken from the
//! match that the actions stand with. What a version cannot say at all (in 1.0: instructions other than metadata and goto)
//! is left out, as OVS does when it reports a rule to a controller of another version.

use super::{EXPERIMENTER, learn};
use flow::action::{Action, ControllerAction, PacketInReason, SetStyle, SubField};
use flow::fields::FieldId;
use flow::{Match, OfPort, TableId};
use ofp_wire::NX_VENDOR;
use ofp_wire::Version;
use ofp_wire::Writer;
use ofp_wire::nxm;

/// What earlier actions and the match tell of the packet.
struct Context {
    nw_proto: u8,
    has_vlan: bool,
}

/// Writes actions; `m` is the match that they stand with.
pub(crate) fn put_actions<'a>(w: &mut Writer, actions: impl Iterator<Item = &'a Action>, m: &Match) {
    let mut cx = Context { nw_proto: m.flow().nw_proto, has_vlan: m.flow().vlans[0].is_present() };
    for a in actions {
        if w.version == Version::V10 {
            put10(w, a);
        } else {
            put11(w, a, &mut cx);
        }
    }
}

/// Writes a standard action: type, length, `body`, padding to 8 bytes.
fn standard(w: &mut Writer, ty: u16, body: impl FnOnce(&mut Writer)) {
    let mark = w.mark();
    w.u16(ty);
    w.u16(0);
    body(w);
    w.pad8(mark);
    w.set_len(mark, 2);
}

/// Writes a Nicira action.
fn nicira(w: &mut Writer, subtype: u16, body: impl FnOnce(&mut Writer)) {
    standard(w, EXPERIMENTER, |w| {
        w.u32(NX_VENDOR);
        w.u16(subtype);
        body(w);
    });
}

fn put10(w: &mut Writer, a: &Action) {
    let put_mac = |w: &mut Writer, ty: u16, mac: &[u8; 6]| {
        standard(w, ty, |w| {
            w.bytes(mac);
            w.zeros(6);
        });
    };
    match a {
        Action::Output { port, max_len_bytes } => put_output10(w, *port, *max_len_bytes),
        Action::Enqueue { port, queue } => standard(w, 11, |w| {
            w.u16(port.to_of10().unwrap_or(0xffff));
            w.zeros(6);
            w.u32(*queue);
        }),
        Action::SetVlanVid(vid) => standard(w, 1, |w| w.u16(*vid)),
        Action::SetVlanPcp(pcp) => standard(w, 2, |w| w.u8(*pcp)),
        Action::StripVlan => standard(w, 3, |w| w.zeros(4)),
        // The tag is pushed by the SET_VLAN_VID that follows.
        Action::PushVlan(_) => {}
        Action::SetEthSrc(mac) => put_mac(w, 4, &mac.0),
        Action::SetEthDst(mac) => put_mac(w, 5, &mac.0),
        Action::SetIpv4Src(ip) => standard(w, 6, |w| w.u32(*ip)),
        Action::SetIpv4Dst(ip) => standard(w, 7, |w| w.u32(*ip)),
        Action::SetIpDscp(tos) => standard(w, 8, |w| w.u8(*tos)),
        Action::SetL4Src(port) => standard(w, 9, |w| w.u16(*port)),
        Action::SetL4Dst(port) => standard(w, 10, |w| w.u16(*port)),
        Action::SetIpEcn(ecn) => put_loads(w, FieldId::NwEcn, (*ecn).into(), 3),
        Action::SetIpTtl(ttl) => put_loads(w, FieldId::NwTtl, (*ttl).into(), 0xff),
        Action::SetQueue(queue) => nicira(w, 4, |w| {
            w.zeros(2);
            w.u32(*queue);
        }),
        Action::SetTunnel { id, wide } => put_tunnel10(w, *id, *wide),
        Action::DecTtl { controllers } if controllers[..] == [0] => nicira(w, 18, |w| w.zeros(6)),
        Action::SetField { field, value, mask, style: SetStyle::SetField } => {
            put_set10(w, *field, *value, *mask)
        }
        Action::GotoTable(table) => put_resubmit(w, OfPort::IN_PORT, Some(*table)),
        Action::WriteMetadata { value, mask } => nicira(w, 22, |w| {
            w.zeros(6);
            w.u64(*value);
            w.u64(*mask);
        }),
        Action::Meter(_) | Action::ClearActions | Action::WriteActions(_) => {}
        other => put_common(w, other),
    }
}

fn put_output10(w: &mut Writer, port: OfPort, max_len_bytes: u16) {
    match port.to_of10() {
        Some(port) => standard(w, 0, |w| {
            w.u16(port);
            w.u16(max_len_bytes);
        }),
        // A port that 16 bits cannot name: nowhere.
        None => standard(w, 0, |w| w.u32(0xffff_0000)),
    }
}

fn put_tunnel10(w: &mut Writer, id: u64, wide: bool) {
    match u32::try_from(id) {
        Ok(id) if !wide => nicira(w, 2, |w| {
            w.zeros(2);
            w.u32(id);
        }),
        _ => nicira(w, 9, |w| {
            w.zeros(6);
            w.u64(id);
        }),
    }
}

/// A set-field in OpenFlow 1.0: by the standard's own action where there is one, else by loads.
fn put_set10(w: &mut Writer, field: FieldId, value: u128, mask: u128) {
    use FieldId::*;
    let mac = flow::MacAddr::from_u64(value as u64);
    let action = match field {
        _ if mask != nxm::valid_bits(field) => None,
        EthSrc => Some(Action::SetEthSrc(mac)),
        EthDst => Some(Action::SetEthDst(mac)),
        VlanVid | DlVlan => Some(Action::SetVlanVid(value as u16 & 0xfff)),
        VlanPcp | DlVlanPcp => Some(Action::SetVlanPcp(value as u8)),
        IpSrc => Some(Action::SetIpv4Src(value as u32)),
        IpDst => Some(Action::SetIpv4Dst(value as u32)),
        IpDscp => Some(Action::SetIpDscp((value as u8) << 2)),
        NwTos => Some(Action::SetIpDscp(value as u8)),
        TcpSrc | UdpSrc => Some(Action::SetL4Src(value as u16)),
        TcpDst | UdpDst => Some(Action::SetL4Dst(value as u16)),
        _ => None,
    };
    match action {
        Some(a) => put10(w, &a),
        None => put_loads(w, field, value, mask),
    }
}

fn put11(w: &mut Writer, a: &Action, cx: &mut Context) {
    let l4 = |tcp: FieldId, udp: FieldId, sctp: FieldId| match cx.nw_proto {
        17 => udp,
        132 => sctp,
        _ => tcp,
    };
    match a {
        Action::Output { port, max_len_bytes } => put_output11(w, *port, *max_len_bytes),
        Action::Enqueue { port, queue } => {
            standard(w, 21, |w| w.u32(*queue));
            put_output11(w, *port, u16::MAX);
            put_common(w, &Action::PopQueue);
        }
        Action::SetVlanVid(vid) => {
            push_tag_if_none(w, cx);
            put_set11(w, FieldId::VlanVid, u128::from(*vid & 0xfff | 0x1000));
        }
        Action::SetVlanPcp(pcp) => {
            push_tag_if_none(w, cx);
            put_set11(w, FieldId::VlanPcp, (*pcp).into());
        }
        Action::StripVlan => {
            standard(w, 18, |w| w.zeros(4));
            cx.has_vlan = false;
        }
        Action::PushVlan(tpid) => {
            standard(w, 17, |w| w.u16(*tpid));
            cx.has_vlan = true;
        }
        Action::SetEthSrc(mac) => put_set11(w, FieldId::EthSrc, mac.to_u64().into()),
        Action::SetEthDst(mac) => put_set11(w, FieldId::EthDst, mac.to_u64().into()),
        Action::SetIpv4Src(ip) => put_set11(w, FieldId::IpSrc, (*ip).into()),
        Action::SetIpv4Dst(ip) => put_set11(w, FieldId::IpDst, (*ip).into()),
        Action::SetIpDscp(tos) => put_set11(w, FieldId::IpDscp, (tos >> 2).into()),
        Action::SetIpEcn(ecn) => put_set11(w, FieldId::NwEcn, (*ecn).into()),
        Action::SetIpTtl(ttl) => standard(w, 23, |w| w.u8(*ttl)),
        Action::SetL4Src(p) => {
            put_set11(w, l4(FieldId::TcpSrc, FieldId::UdpSrc, FieldId::SctpSrc), (*p).into());
        }
        Action::SetL4Dst(p) => {
            put_set11(w, l4(FieldId::TcpDst, FieldId::UdpDst, FieldId::SctpDst), (*p).into());
        }
        Action::SetQueue(queue) => standard(w, 21, |w| w.u32(*queue)),
        Action::SetTunnel { id, .. } => put_set11(w, FieldId::TunId, (*id).into()),
        Action::DecTtl { controllers } if controllers[..] == [0] => standard(w, 24, |w| w.zeros(4)),
        Action::SetField { field, value, mask, style: SetStyle::SetField } => {
            put_set_field11(w, *field, *value, *mask);
        }
        other => put_common(w, other),
    }
}

fn push_tag_if_none(w: &mut Writer, cx: &mut Context) {
    if !cx.has_vlan {
        standard(w, 17, |w| w.u16(0x8100));
        cx.has_vlan = true;
    }
}

fn put_output11(w: &mut Writer, port: OfPort, max_len_bytes: u16) {
    standard(w, 0, |w| {
        w.u32(port.0);
        w.u16(max_len_bytes);
        w.zeros(6);
    });
}

fn put_set11(w: &mut Writer, field: FieldId, value: u128) {
    standard(w, 25, |w| nxm::put_entry(w, field, value, nxm::valid_bits(field)));
}

fn put_set_field11(w: &mut Writer, field: FieldId, value: u128, mask: u128) {
    // In their own notation DlVlan values lack the presence bit that OXM has.
    let (field, value, mask) = match field {
        FieldId::DlVlan => (FieldId::VlanVid, value | 0x1000, mask | 0x1000),
        FieldId::DlVlanPcp => (FieldId::VlanPcp, value, mask),
        other => (other, value, mask),
    };
    if !nxm::has_header(field) {
        return;
    }
    if mask == nxm::valid_bits(field) {
        put_set11(w, field, value);
    } else {
        put_load2(w, field, value, mask);
    }
}

fn put_load2(w: &mut Writer, field: FieldId, value: u128, mask: u128) {
    nicira(w, 33, |w| {
        w.zeros(6);
        nxm::put_entry(w, field, value, mask);
    });
}

/// Actions that have one form in all versions.
fn put_common(w: &mut Writer, a: &Action) {
    match a {
        Action::Controller(c) => put_controller(w, c),
        Action::OutputReg { source, max_len_bytes } if nxm::has_long_nx_header(source.field) => {
            nicira(w, 32, |w| {
                w.u16(ofs_nbits(*source));
                w.u16(*max_len_bytes);
                nxm::put_nx_header(w, source.field);
            })
        }
        Action::OutputReg { source, max_len_bytes } => nicira(w, 15, |w| {
            w.u16(ofs_nbits(*source));
            nxm::put_nx_header(w, source.field);
            w.u16(*max_len_bytes);
            w.zeros(6);
        }),
        Action::PopQueue => nicira(w, 5, |w| w.zeros(6)),
        Action::SetField { field, value, mask, .. } => put_loads(w, *field, *value, *mask),
        Action::Move { source, dest } => nicira(w, 6, |w| {
            w.u16(source.len_bits);
            w.u16(source.offset_bits);
            w.u16(dest.offset_bits);
            nxm::put_nx_header(w, source.field);
            nxm::put_nx_header(w, dest.field);
        }),
        Action::StackPush(s) => put_stack(w, 27, *s),
        Action::StackPop(s) => put_stack(w, 28, *s),
        Action::DecTtl { controllers } => nicira(w, 21, |w| {
            w.u16(controllers.len() as u16);
            w.zeros(4);
            for id in controllers {
                w.u16(*id);
            }
        }),
        Action::Resubmit { in_port, table } => put_resubmit(w, *in_port, *table),
        Action::Learn(l) => learn::put(w, l),
        Action::FinTimeout { idle_timeout_s, hard_timeout_s } => nicira(w, 19, |w| {
            w.u16(*idle_timeout_s);
            w.u16(*hard_timeout_s);
            w.zeros(2);
        }),
        Action::Note(bytes) => nicira(w, 8, |w| w.bytes(bytes)),
        Action::Exit => nicira(w, 17, |w| w.zeros(6)),
        Action::DebugRecirc => nicira(w, 255, |w| w.zeros(6)),
        Action::DebugSlow => nicira(w, 254, |w| w.zeros(6)),
        _ => {}
    }
}

fn put_resubmit(w: &mut Writer, in_port: OfPort, table: Option<TableId>) {
    nicira(w, 14, |w| {
        w.u16(in_port.to_of10().unwrap_or(0xffff));
        w.u8(table.map_or(0xff, |t| t.0));
        w.zeros(3);
    });
}

fn put_stack(w: &mut Writer, subtype: u16, s: SubField) {
    nicira(w, subtype, |w| {
        w.u16(s.offset_bits);
        nxm::put_nx_header(w, s.field);
        w.u16(wire_bits(s.field, s.len_bits.into()) as u16);
    });
}

fn ofs_nbits(s: SubField) -> u16 {
    s.offset_bits << 6 | (wire_bits(s.field, s.len_bits.clamp(1, 64).into()) as u16 - 1)
}

/// Length of a range on the wire: all of the ARP opcode is 16 bits there.
fn wire_bits(field: FieldId, len_bits: u32) -> u32 {
    if field == FieldId::ArpOp && len_bits == 8 { 16 } else { len_bits }
}

/// Writes `NXAST_REG_LOAD`s, one for each run of at most 64 bits of the mask, lowest first.
fn put_loads(w: &mut Writer, field: FieldId, value: u128, mask: u128) {
    let (field, value, mask) = match field {
        FieldId::DlVlan => (FieldId::VlanTci, value | 0x1000, mask | 0x1000),
        FieldId::DlVlanPcp => (FieldId::VlanTci, value << 13 | 0x1000, mask << 13 | 0x1000),
        other => (other, value, mask),
    };
    if !nxm::has_header(field) {
        return;
    }
    if nxm::has_long_nx_header(field) {
        return put_load2(w, field, value, mask);
    }
    let mut at = 0u32;
    while at < 128 && mask >> at != 0 {
        at += (mask >> at).trailing_zeros();
        let run = (mask >> at).trailing_ones().min(64);
        let ones = u128::from(u64::MAX >> (64 - run));
        nicira(w, 7, |w| {
            w.u16((at as u16) << 6 | (wire_bits(field, run) as u16 - 1));
            nxm::put_nx_header(w, field);
            w.u64((value >> at & ones) as u64);
        });
        at += run;
    }
}

fn put_controller(w: &mut Writer, c: &ControllerAction) {
    if c.is_plain() {
        if w.version == Version::V10 {
            put_output10(w, OfPort::CONTROLLER, c.max_len_bytes);
        } else {
            put_output11(w, OfPort::CONTROLLER, c.max_len_bytes);
        }
    } else if c.userdata.is_empty() && !c.pause && c.meter_id.is_none() {
        nicira(w, 20, |w| {
            w.u16(c.max_len_bytes);
            w.u16(c.controller_id);
            w.u8(c.reason as u8);
            w.u8(0);
        });
    } else {
        nicira(w, 37, |w| put_controller2(w, c));
    }
}

fn put_controller2(w: &mut Writer, c: &ControllerAction) {
    use ofp_wire::prop;
    w.zeros(6);
    if c.max_len_bytes != u16::MAX {
        prop::put_u16(w, 0, c.max_len_bytes);
    }
    if c.controller_id != 0 {
        prop::put_u16(w, 1, c.controller_id);
    }
    if c.reason != PacketInReason::Action {
        prop::put(w, 2, |w| w.u8(c.reason as u8));
    }
    if !c.userdata.is_empty() {
        prop::put(w, 3, |w| w.bytes(&c.userdata));
    }
    if c.pause {
        prop::put(w, 4, |_| {});
    }
    if let Some(id) = c.meter_id {
        prop::put(w, 5, |w| w.u32(id));
    }
}
