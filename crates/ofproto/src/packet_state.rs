//! State of a packet beside its bytes, as it leaves a translation and comes back: the one table of five ways.
//!
//! | way | the datapath's key | [`PacketState`] |
//! | --- | --- | --- |
//! | recirculation | the datapath keeps it | frozen under the recirculation id |
//! | pause and `NXT_RESUME` | fields of the packet-in, and hidden ones in the continuation | the same |
//! | packet-out | its pipeline fields | its pipeline fields |
//! | patch port | kept, but for tunnel and connection | [`PacketState::received_by`]: that of a packet from a port |
//! | emulation of actions | kept with each part (`datapath::actions::emulate`) | not needed |
//!
//! [`PacketState::of`] names every field of a flow, [`PacketState::restore`] and `connmgr::continuation` every field of the
//! state: a new one does not compile until it has its place. Tests send random values in all fields along each way:
//! `xlate::tests::states`, `connmgr::tests::continuations`, `datapath::actions::emulate`.

use flow::fields::FieldId;
use flow::{Flow, OfPort, Registers, TunMetadata, Tunnel};
use ofp_actions::{Action, set};

/// The part of a packet's state that no datapath keeps, or that rules may have changed since.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PacketState {
    /// OpenFlow input port, as set by rules.
    pub in_port: OfPort,
    /// The bridge port that received the packet.
    pub ingress: OfPort,
    /// OpenFlow metadata.
    pub metadata: u64,
    /// Registers.
    pub regs: Registers,
    /// Tunnel fields, as received or set so far.
    pub tunnel: Tunnel,
    /// Tunnel metadata, likewise; `None`: there is none.
    pub tun_metadata: Option<Box<TunMetadata>>,
    /// The packet keeps its connection tracking state.
    pub conntracked: bool,
    /// Stack of `push` actions.
    pub stack: Vec<Vec<u8>>,
    /// Action set so far.
    pub action_set: Vec<Action>,
    /// Mirrors of the bridge that have a copy of the packet, a bit for each place.
    pub mirrors: u32,
}

impl PacketState {
    /// The state of a packet with this flow, with an empty stack and action set.
    pub fn of(flow: &Flow, ingress: OfPort, conntracked: bool) -> PacketState {
        let Flow {
            in_port,
            metadata,
            regs,
            // In `tunnel` and `tun_metadata`.
            tun_id: _,
            tun_src: _,
            tun_dst: _,
            tun_ipv6_src: _,
            tun_ipv6_dst: _,
            tun_flags: _,
            tun_tos: _,
            tun_ttl: _,
            tun_tp_src: _,
            tun_tp_dst: _,
            tun_gbp_id: _,
            tun_gbp_flags: _,
            tun_gtpu_msgtype: _,
            tun_gtpu_flags: _,
            tun_erspan_idx: _,
            tun_erspan_ver: _,
            tun_erspan_dir: _,
            tun_erspan_hwid: _,
            tun_metadata_present: _,
            tun_metadata: _,
            // In the key, the bits of the connection only while `conntracked`.
            ct_label: _,
            ct_state: _,
            ct_mark: _,
            ct_zone: _,
            ct_tp_src: _,
            ct_tp_dst: _,
            ct_nw_proto: _,
            ct_nw_src: _,
            ct_nw_dst: _,
            ct_ipv6_src: _,
            ct_ipv6_dst: _,
            skb_priority: _,
            pkt_mark: _,
            dp_hash: _,
            packet_type: _,
            // Fields of one lookup, of the action set, and of the recirculation itself.
            conj_id: _,
            actset_output: _,
            recirc_id: _,
            // In the bytes, or padding.
            dl_dst: _,
            dl_src: _,
            dl_type: _,
            vlans: _,
            mpls_lse: _,
            ipv6_src: _,
            ipv6_dst: _,
            nw_src: _,
            nw_dst: _,
            ipv6_label: _,
            nw_frag: _,
            nw_tos: _,
            nw_ttl: _,
            nw_proto: _,
            nd_target: _,
            nsh_flags: _,
            nsh_ttl: _,
            nsh_mdtype: _,
            nsh_np: _,
            nsh_path: _,
            nsh_context: _,
            arp_sha: _,
            arp_tha: _,
            tcp_flags: _,
            tp_src: _,
            tp_dst: _,
            igmp_group: _,
            pad1: _,
            pad2: _,
            pad3: _,
            pad4: _,
        } = flow;
        PacketState {
            in_port: OfPort(*in_port),
            ingress,
            metadata: *metadata,
            regs: *regs,
            tunnel: flow.tunnel(),
            tun_metadata: flow.tun_options().map(Box::new),
            conntracked,
            stack: Vec::new(),
            action_set: Vec::new(),
            mirrors: 0,
        }
    }

    /// The state of a packet that a port of the bridge receives from within the switch: that of a patch port.
    pub fn received_by(port: OfPort) -> PacketState {
        PacketState { in_port: port, ..PacketState::of(&Flow::default(), port, false) }
    }

    /// Gives a flow, as the datapath knows its packet, this state.
    pub fn restore(&self, flow: &mut Flow) {
        // The stack, the ingress port and the mirrors are in no flow.
        let PacketState {
            in_port,
            ingress: _,
            metadata,
            regs,
            tunnel,
            tun_metadata,
            conntracked,
            stack: _,
            action_set,
            mirrors: _,
        } = self;
        (flow.in_port, flow.metadata, flow.regs) = (in_port.0, *metadata, *regs);
        flow.set_tunnel(tunnel);
        flow.set_tun_options(tun_metadata.as_deref());
        if !conntracked {
            flow.clear_conntrack();
        }
        flow.actset_output = set::output_of(action_set).0;
    }
}

/// Fields of a packet-in beside the input port, included if nonzero. As in OVS, those of the original tuple are added for
/// packets of connections.
pub const SHOWN: [FieldId; 52] = [
    FieldId::TunId,
    FieldId::TunSrc,
    FieldId::TunDst,
    FieldId::TunIpv6Src,
    FieldId::TunIpv6Dst,
    FieldId::TunFlags,
    FieldId::TunGbpId,
    FieldId::TunGbpFlags,
    FieldId::TunErspanVer,
    FieldId::TunErspanIdx,
    FieldId::TunErspanDir,
    FieldId::TunErspanHwid,
    FieldId::TunGtpuFlags,
    FieldId::TunGtpuMsgtype,
    FieldId::Metadata,
    FieldId::PktMark,
    FieldId::CtState,
    FieldId::CtZone,
    FieldId::CtMark,
    FieldId::CtLabel,
    FieldId::Reg0,
    FieldId::Reg1,
    FieldId::Reg2,
    FieldId::Reg3,
    FieldId::Reg4,
    FieldId::Reg5,
    FieldId::Reg6,
    FieldId::Reg7,
    FieldId::Reg8,
    FieldId::Reg9,
    FieldId::Reg10,
    FieldId::Reg11,
    FieldId::Reg12,
    FieldId::Reg13,
    FieldId::Reg14,
    FieldId::Reg15,
    FieldId::Reg16,
    FieldId::Reg17,
    FieldId::Reg18,
    FieldId::Reg19,
    FieldId::Reg20,
    FieldId::Reg21,
    FieldId::Reg22,
    FieldId::Reg23,
    FieldId::Reg24,
    FieldId::Reg25,
    FieldId::Reg26,
    FieldId::Reg27,
    FieldId::Reg28,
    FieldId::Reg29,
    FieldId::Reg30,
    FieldId::Reg31,
];

/// Original tuple of a packet's connection.
pub const TUPLE: [FieldId; 7] = [
    FieldId::CtNwProto,
    FieldId::CtNwSrc,
    FieldId::CtNwDst,
    FieldId::CtIpv6Src,
    FieldId::CtIpv6Dst,
    FieldId::CtTpSrc,
    FieldId::CtTpDst,
];

/// Whether a packet-in shows the original tuple of this packet. Only OpenFlow fields of connections are shown, so that of a
/// related packet without a direction is hidden.
pub fn shows_tuple(flow: &Flow) -> bool {
    flow.is_in_connection() && flow.ct_nw_proto != 0 && flow.is_ip()
}

/// Fields that no packet-in shows and a continuation keeps, each with a number that is never used again.
macro_rules! hidden {
    ($($number:literal $field:ident;)+) => {
        /// The values of hidden fields, without zeros, by number.
        pub fn hidden(flow: &Flow) -> Vec<(u16, u128)> {
            let mut rest = *flow;
            SHOWN.iter().for_each(|field| field.set(&mut rest, 0));
            let tuple = TUPLE.iter().zip(HIDDEN_TUPLE).filter(|_| !shows_tuple(flow));
            let tuple = tuple.map(|(field, number)| (number, field.get(flow)));
            let numbers = [$(($number, u128::from(rest.$field))),+];
            numbers.into_iter().chain(tuple).filter(|(_, value)| *value != 0).collect()
        }

        /// Sets the hidden field of that number; `None`: there is none, or the value does not fit it.
        pub fn set_hidden(flow: &mut Flow, number: u16, value: u128) -> Option<()> {
            match number {
                $($number => flow.$field = value.try_into().ok()?,)+
                _ => {
                    let at = HIDDEN_TUPLE.iter().position(|n| *n == number)?;
                    TUPLE[at].set(flow, value);
                }
            }
            Some(())
        }
    };
}

hidden! {
    1 skb_priority;
    2 dp_hash;
    3 tun_flags;
    4 tun_tos;
    5 tun_ttl;
    6 tun_tp_src;
    7 tun_tp_dst;
}

/// Numbers of [`TUPLE`] where it is hidden.
const HIDDEN_TUPLE: [u16; 7] = [16, 17, 18, 19, 20, 21, 22];
/// Number of the port that received the packet, if rules see another input port.
pub const HIDDEN_INGRESS: u16 = 32;
