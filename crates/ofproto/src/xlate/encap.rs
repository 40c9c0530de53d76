//! Packet types: headers that `encap` and `decap` push and pop, and the datapath actions for them.
//!
//! - The flow changes at once. The datapath action of a pushed header follows at the next commit, with the fields that
//!   rules have written by then; whatever was written before belongs to the headers within, and is committed first.
//! - Behind a popped Ethernet header the fields are known. Behind any other they are not: the translation freezes, and
//!   the datapath parses the inner packet.
//! - Ports of a bridge take frames only, as OVS's ports of the packet type mode `legacy_l2`, except tunnels of other modes.
//!   A tunnel of `legacy_l3` makes frames of what it receives.

use super::ctx::XlateCtx;
use dpif::actions::{AddMpls, PopEth, PopMpls, PopNsh, PushEth, PushNsh};
use dpif::{Masked, SetAction, XlateDrop};
use flow::{Flow, Nsh, Stage, nsh_np};
use ofp_actions::{Encap, EncapHeader, EncapProperty};
use packet::headers as h;

/// Namespace of packet types that are EtherTypes.
pub(super) const ETHERTYPES: u32 = 1;
/// Packet type of IPv4.
const IPV4: u32 = ETHERTYPES << 16 | h::ETH_TYPE_IP as u32;
/// Packet type of IPv6.
const IPV6: u32 = ETHERTYPES << 16 | h::ETH_TYPE_IPV6 as u32;
/// Packet type of a network service header.
const NSH: u32 = ETHERTYPES << 16 | h::ETH_TYPE_NSH as u32;
/// Packet types of MPLS labels.
const MPLS: [u32; 2] =
    [ETHERTYPES << 16 | h::ETH_TYPE_MPLS as u32, ETHERTYPES << 16 | h::ETH_TYPE_MPLS_MCAST as u32];
/// Time to live of a new network service header (RFC 8300 §2.2).
const NSH_TTL: u8 = 63;
/// Service index of a new one.
const NSH_INDEX: u32 = 255;
/// A new label stack entry of a packet without labels: bottom of the stack, time to live 64.
const FIRST_LABEL: u32 = 0x140;
/// A new label stack entry above others.
const NEXT_LABEL: u32 = 0x40;

/// Work of the next commit.
pub(super) enum Pending {
    /// Pushes the first header of the flow.
    Push {
        /// Context headers of metadata type 2.
        contexts: Vec<u8>,
    },
    /// Pops the first header of the datapath's packet, before recirculation.
    Pop,
}

/// As classifiers see a packet: without an Ethernet header it has no EtherType. Rules on EtherTypes thus match frames
/// alone; `flow::Match::imply_packet_type` does the same for rules on other Ethernet fields.
pub(super) fn looked_up_type(flow: &Flow) -> u16 {
    if flow.packet_type == 0 { flow.dl_type } else { 0 }
}

impl XlateCtx<'_> {
    pub(super) fn push_header(&mut self, encap: &Encap) {
        // Fields written so far belong to the inner packet.
        self.commit();
        let contexts = match encap.header {
            EncapHeader::Ethernet => self.becomes_frame(),
            EncapHeader::Nsh => self.gets_nsh(&encap.properties),
            EncapHeader::Mpls | EncapHeader::MplsMcast => self.gets_label(encap.header.packet_type()),
        };
        if let Some(contexts) = contexts {
            self.defer(Pending::Push { contexts });
        }
    }

    /// A packet from a tunnel of `legacy_l3` becomes a frame, with zero addresses.
    pub(super) fn received_bare(&mut self) {
        if self.packet.flow.packet_type >> 16 == ETHERTYPES
            && let Some(contexts) = self.becomes_frame()
        {
            self.defer(Pending::Push { contexts });
        }
    }

    fn becomes_frame(&mut self) -> Option<Vec<u8>> {
        if self.packet.flow.packet_type >> 16 != ETHERTYPES {
            self.fail(
                XlateDrop::UnsupportedPacketType,
                "Dropping packet as encap(ethernet) is not supported for packet type ethernet.",
            );
            return None;
        }
        let flow = &mut self.packet.flow;
        (flow.dl_type, flow.packet_type) = (flow.packet_type as u16, 0);
        (flow.dl_src, flow.dl_dst) = ([0; 6], [0; 6]);
        Some(Vec::new())
    }

    fn gets_nsh(&mut self, properties: &[EncapProperty]) -> Option<Vec<u8>> {
        let (mut mdtype, mut contexts) = (h::NSH_MD_TYPE1, Vec::new());
        for property in properties {
            match property {
                EncapProperty::MdType(given) => mdtype = *given,
                EncapProperty::Tlv { class, kind, data } => {
                    contexts.extend(class.to_be_bytes());
                    contexts.extend([*kind, data.len() as u8]);
                    contexts.extend(data);
                    contexts.resize(contexts.len().next_multiple_of(4), 0);
                }
            }
        }
        // As in OVS, a header has either kind of contexts, and none if they are too long.
        if mdtype == h::NSH_MD_TYPE1 || contexts.len() > h::NSH_MD2_MAX_BYTES {
            contexts.clear();
        }
        let np = match self.packet.flow.packet_type {
            0 => nsh_np::ETHERNET,
            IPV4 => nsh_np::IPV4,
            IPV6 => nsh_np::IPV6,
            NSH => nsh_np::NSH,
            _ => 0,
        };
        self.packet.flow = without_headers(&self.packet.flow);
        (self.packet.flow.packet_type, self.packet.flow.dl_type) = (NSH, h::ETH_TYPE_NSH);
        self.packet.flow.set_nsh(&Nsh { ttl: NSH_TTL, mdtype, np, path: NSH_INDEX, ..Nsh::default() });
        Some(contexts)
    }

    fn gets_label(&mut self, packet_type: u32) -> Option<Vec<u8>> {
        if MPLS.contains(&self.packet.flow.packet_type) {
            let labels =
                super::mpls::examined_count(&self.packet.flow, &self.packet.original, &mut self.record.wc);
            if labels >= flow::extract::MAX_MPLS_LABELS {
                self.fail(
                    XlateDrop::TooManyMplsLabels,
                    "encap(mpls): the packet would have too many MPLS labels",
                );
                return None;
            }
            self.record.wc.0.mpls_lse[..labels].fill(u32::MAX);
            self.packet.flow.mpls_lse.copy_within(..labels, 1);
            self.packet.flow.mpls_lse[0] = NEXT_LABEL;
        } else {
            self.packet.flow = without_headers(&self.packet.flow);
            self.packet.flow.mpls_lse[0] = FIRST_LABEL;
        }
        (self.packet.flow.packet_type, self.packet.flow.dl_type) = (packet_type, packet_type as u16);
        Some(Vec::new())
    }

    pub(super) fn pop_header(&mut self, packet_type: Option<u32>) {
        // The popped header takes what was written to it along; a pushed one is to be there first.
        self.commit();
        match self.packet.flow.packet_type {
            0 if self.packet.flow.vlans[0].is_present() => {
                self.fail(
                    XlateDrop::UnsupportedPacketType,
                    "Dropping packet, cannot decap Ethernet if VLAN is present.",
                );
            }
            0 => {
                self.packet.flow.packet_type = ETHERTYPES << 16 | u32::from(self.packet.flow.dl_type);
                (self.packet.flow.dl_src, self.packet.flow.dl_dst) = ([0; 6], [0; 6]);
            }
            NSH => self.loses_nsh(),
            of if MPLS.contains(&of) => self.loses_label(packet_type),
            of => {
                let (namespace, kind) = (of >> 16, of & 0xffff);
                self.fail(
                    XlateDrop::UnsupportedPacketType,
                    format!(
                        "Dropping packet as the decap() does not support packet type ({namespace},{kind:#x})"
                    ),
                );
            }
        }
    }

    fn loses_nsh(&mut self) {
        self.record.wc.0.nsh_np = u8::MAX;
        let next = match self.packet.flow.nsh_np {
            nsh_np::ETHERNET => 0,
            nsh_np::IPV4 => IPV4,
            nsh_np::IPV6 => IPV6,
            nsh_np::NSH => NSH,
            np => {
                return self.fail(
                    XlateDrop::UnsupportedPacketType,
                    format!("Dropping packet as NSH next protocol {np} is not supported"),
                );
            }
        };
        self.packet.flow.packet_type = next;
        self.freeze_behind_header();
    }

    fn loses_label(&mut self, packet_type: Option<u32>) {
        let Some(next) = packet_type.filter(|next| *next == 0 || next >> 16 == ETHERTYPES) else {
            return self.fail(
                XlateDrop::UnsupportedPacketType,
                "Dropping packet as the decap() of an MPLS label needs the packet type of its payload",
            );
        };
        if MPLS.contains(&next) {
            self.packet.flow.mpls_lse.copy_within(1.., 0);
        }
        self.packet.flow.packet_type = next;
        self.freeze_behind_header();
    }

    /// The header of an action. Earlier ones are committed.
    fn defer(&mut self, header: Pending) {
        self.packet.pending = Some(header);
        self.packet.n_pending = self.packet.n_pending.wrapping_add(1);
    }

    /// The flow is again as it was when `n_pending` had this value: later headers are gone.
    pub(super) fn forget_headers(&mut self, n_pending: u32) {
        if self.packet.n_pending != n_pending {
            self.packet.pending = None;
        }
    }

    fn freeze_behind_header(&mut self) {
        if !self.has_failed() {
            self.defer(Pending::Pop);
            self.control.frozen.get_or_insert_default();
        }
    }

    /// Pushes and pops headers so that the datapath's packet has those of the flow. `false`: its remaining headers are
    /// unknown, and no further action may follow but recirculation.
    pub(super) fn commit_headers(&mut self) -> bool {
        match self.packet.pending.take() {
            Some(Pending::Push { contexts }) => self.commit_push(&contexts),
            Some(Pending::Pop) => {
                self.out.actions.push(match self.packet.flow.packet_type {
                    _ if self.packet.base.packet_type == NSH => PopNsh.into(),
                    0 => PopMpls { ethertype: h::ETH_TYPE_TEB }.into(),
                    next => PopMpls { ethertype: next as u16 }.into(),
                });
                return false;
            }
            None if self.packet.base.packet_type == 0 && self.packet.flow.packet_type != 0 => {
                self.out.actions.push(PopEth.into());
                self.packet.base.packet_type = self.packet.flow.packet_type;
                (self.packet.base.dl_src, self.packet.base.dl_dst) = ([0; 6], [0; 6]);
            }
            None => {}
        }
        true
    }

    fn commit_push(&mut self, contexts: &[u8]) {
        let flow = &self.packet.flow;
        match flow.packet_type {
            0 => {
                self.out.actions.push(PushEth { src: flow.dl_src, dst: flow.dl_dst }.into());
                self.packet.base.packet_type = 0;
                (self.packet.base.dl_src, self.packet.base.dl_dst) = (flow.dl_src, flow.dl_dst);
                return;
            }
            NSH => self.out.actions.extend(PushNsh::new(flow.nsh(), contexts).map(dpif::DpAction::from)),
            _ => {
                let is_l3 = self.packet.base.packet_type != 0;
                self.out
                    .actions
                    .push(AddMpls { lse: flow.mpls_lse[0], ethertype: flow.dl_type, is_l3 }.into());
            }
        }
        // The headers of the base flow are within now, where no action of this translation reaches them.
        let headers = Stage::L2.words().start;
        self.packet.base.words_mut()[headers..].copy_from_slice(&self.packet.flow.words()[headers..]);
        self.packet.base.packet_type = self.packet.flow.packet_type;
    }

    /// As in OVS, a change rewrites all matched and written fields, except those that are never written.
    pub(super) fn commit_nsh(&mut self) {
        if self.packet.base.dl_type != h::ETH_TYPE_NSH || self.packet.flow.nsh() == self.packet.base.nsh() {
            return;
        }
        let mut mask = Nsh { mdtype: 0, np: 0, ..self.record.wc.0.nsh() };
        if self.packet.base.nsh_mdtype != h::NSH_MD_TYPE1 {
            mask.context = [0; 4];
        }
        if mask != Nsh::default() {
            self.set(SetAction::Nsh(Masked { value: self.packet.flow.nsh().masked(&mask), mask }));
        }
    }
}

/// The flow without any header; metadata stay.
fn without_headers(flow: &Flow) -> Flow {
    let mut out = *flow;
    let headers = Stage::L2.words().start;
    out.words_mut()[headers..].fill(0);
    out.clear_connection_ends();
    out
}
