//! Mirrors: copies of received and of sent packets.
//!
//! As in OVS, a mirror takes a packet once, until an action changes the packet: then it takes the changed one, too. Patch
//! ports mirror in neither direction; the bridge behind one has its own mirrors.
//!
//! Unlike OVS, a mirror examines what its copies depend on: the VLAN, unless the packet passes from trunk to trunk, and
//! for an output VLAN the destination.

use super::ctx::XlateCtx;
use super::vlan::Tags;
use crate::cache::XlateEffect;
use crate::mirror::{Mirror, MirrorOutput, MirrorSet, Mirrors};
use crate::ports::{Bundle, Port, VlanMode};
use dpif::DpAction;
use dpif::actions::{Output, Trunc};
use flow::fields::FieldId;
use flow::{DpPort, Flow, OfPort, VlanTag, nw_frag};
use ofp_actions::Action;
use packet::headers as h;
use std::sync::Arc;

impl XlateCtx<'_> {
    /// Whether the current bridge takes nothing from this port, as copies of a mirror go to it.
    pub(super) fn takes_only_copies(&mut self, port: Option<&Port>) -> bool {
        let (Some(mirrors), Some(port)) = (&self.bridge.mirrors, port) else { return false };
        if mirrors.of(port.bundle).into == 0 {
            return false;
        }
        let name = self.bridge.ports.bundles.get(&port.bundle).map_or(&port.name, |bundle| &bundle.name);
        self.record.trace.error(|| {
            format!("dropping packet received on port {name}, which is reserved exclusively for mirroring")
        });
        true
    }

    /// After the first lookup of a received packet: copies it for mirrors. Returns whether rules take it.
    pub(super) fn passes_mirrors(&mut self) -> bool {
        if !std::mem::take(&mut self.control.is_received) || self.bridge.mirrors.is_none() {
            return true;
        }
        let port = self.bridge.ports.port(self.packet.flow.in_port()).cloned();
        let takes = !self.takes_only_copies(port.as_deref());
        if takes {
            self.mirror_received();
        }
        takes
    }

    /// Copies the packet for the mirrors of its input bundle.
    pub(super) fn mirror_received(&mut self) {
        let Some(mirrors) = self.bridge.mirrors.clone() else { return };
        let in_port = self.packet.flow.in_port();
        if matches!(in_port, OfPort::NONE | OfPort::CONTROLLER) {
            return;
        }
        let Some(input) = self.bridge.ports.bundle_of(in_port).cloned() else {
            return self.record.trace.error(|| format!("received packet on unknown port {in_port}"));
        };
        self.mirror(&mirrors, &input, mirrors.of(input.id).of_received);
    }

    /// Copies the packet for the mirrors of the bundle that has sent it.
    pub(super) fn mirror_sent(&mut self, port: &Port) {
        let Some(mirrors) = self.bridge.mirrors.clone() else { return };
        if let Some(output) = self.bridge.ports.bundles.get(&port.bundle).cloned() {
            self.mirror(&mirrors, &output, mirrors.of(output.id).of_sent);
        }
    }

    /// Copies the packet for those of the given mirrors that select it and have no copy yet.
    fn mirror(&mut self, mirrors: &Mirrors, bundle: &Arc<Bundle>, selecting: MirrorSet) {
        let Some(tags) = self.enter(bundle) else {
            if selecting & !self.packet.mirrors != 0 {
                self.examine_vlan();
            }
            return;
        };
        // Other copies may follow one, or actions.
        let is_last = std::mem::replace(&mut self.control.is_last, false);
        let mut left = selecting & !self.packet.mirrors;
        while left != 0 {
            let place = left.trailing_zeros() as usize;
            left &= left - 1;
            let Some(mirror) = mirrors.get(place) else { continue };
            if !self.is_selected(mirror, tags) {
                continue;
            }
            // Before the copy, whose output may be mirrored itself.
            self.packet.mirrors |= mirrors.same_output(place);
            self.out.snaplen = (mirror.snaplen != 0).then_some(mirror.snaplen);
            self.copy(mirrors, mirror, bundle, tags);
            // As in OVS, also for the rest of an outer copy.
            self.out.snaplen = None;
            self.record.cache.push(XlateEffect::Mirrored(mirror.counters.clone()));
            left &= !self.packet.mirrors;
        }
        self.control.is_last = is_last;
    }

    /// Whether VLAN and filter of a mirror select the packet.
    fn is_selected(&mut self, mirror: &Mirror, tags: Tags) -> bool {
        if let Some(vlans) = &mirror.vlans {
            self.examine_vlan();
            if !vlans.contains(tags.vlan()) {
                return false;
            }
        }
        let Some(filter) = &mirror.filter else { return true };
        self.record.wc.or(filter.mask());
        filter.passes(&self.packet.flow)
    }

    /// Sends a copy of the packet to the output of a mirror.
    fn copy(&mut self, mirrors: &Mirrors, mirror: &Mirror, from: &Bundle, tags: Tags) {
        let bridge = self.bridge.clone();
        match mirror.output {
            MirrorOutput::Bundle(bundle) => {
                let Some(output) = bridge.ports.bundles.get(&bundle) else { return };
                let tag = self.packet.flow.vlans[0];
                if !is_plain_trunk(from) || !is_plain_trunk(output) || tag.is_present() && tag.vid() == 0 {
                    self.examine_vlan();
                }
                self.output_bundle(output, tags);
            }
            MirrorOutput::Vlan(vlan) => {
                self.examine_vlan();
                if tags.vlan() == vlan {
                    return;
                }
                self.record.wc.0.dl_dst = [0xff; 6];
                if self.packet.flow.dl_dst().is_reserved() {
                    return;
                }
                let tags = tags.with_outer(vlan);
                let takes =
                    |output: &&Arc<Bundle>| tags.are_carried(output) && mirrors.of(output.id).into == 0;
                for output in bridge.ports.flood_bundles().filter(takes) {
                    self.output_bundle(output, tags);
                }
            }
        }
    }

    fn examine_vlan(&mut self) {
        self.record.wc.0.vlans[0].tci |= VlanTag::VID | VlanTag::PRESENT;
    }

    /// Appends the output to a port of the datapath; copies of mirrors are cut.
    pub(super) fn push_output(&mut self, dp_port: DpPort) {
        if let Some(snaplen) = self.out.snaplen.filter(|snaplen| *snaplen < u16::MAX) {
            self.out.actions.push(DpAction::Trunc(Trunc(snaplen.into())));
        }
        self.out.actions.push(Output(dp_port).into());
    }

    /// Before an action: if it changes the packet, mirrors may take the changed one.
    pub(super) fn note_change(&mut self, action: &Action) {
        if self.packet.mirrors != 0 && changes_packet(action, &self.packet.flow) {
            self.packet.mirrors = 0;
        }
    }
}

/// A bundle that keeps tags as they are.
fn is_plain_trunk(bundle: &Bundle) -> bool {
    bundle.vlan_mode == VlanMode::Trunk && bundle.trunks.is_none()
}

/// Whether an action counts as a change of the packet, as in OVS: also if the values stay the same, and not if a field is
/// moved or popped from the stack.
fn changes_packet(action: &Action, flow: &Flow) -> bool {
    let always = matches!(
        action,
        Action::SetVlanVid(_)
            | Action::SetVlanPcp(_)
            | Action::StripVlan(_)
            | Action::PushVlan(_)
            | Action::SetEthSrc(_)
            | Action::SetEthDst(_)
            | Action::PushMpls(_)
            | Action::PopMpls(_)
            | Action::SetMplsLabel(_)
            | Action::SetMplsTc(_)
            | Action::SetMplsTtl(_)
            | Action::DecMplsTtl(_)
            | Action::DecNshTtl(_)
            | Action::DecTtl(_)
            | Action::SetTunMetadata(_)
            | Action::Nat(_)
    );
    let of_ipv4 = matches!(action, Action::SetIpv4Src(_) | Action::SetIpv4Dst(_));
    let of_ip = matches!(action, Action::SetIpDscp(_) | Action::SetIpEcn(_) | Action::SetIpTtl(_));
    let of_ports = matches!(action, Action::SetL4Src(_) | Action::SetL4Dst(_));
    let is_later = flow.nw_frag & nw_frag::LATER != 0;
    always
        || of_ipv4 && flow.dl_type == h::ETH_TYPE_IP
        || of_ip && flow.is_ip()
        || of_ports && flow.is_ip() && !is_later
        || matches!(action, Action::SetField(set) if !is_beside_packet(set.field) && set.field.prereq_holds(flow, None))
}

/// Whether a field is not of the packet or its tunnel: registers, metadata, the mark, the input port.
fn is_beside_packet(field: FieldId) -> bool {
    let mut bits = Flow::default();
    field.add_mask(&mut bits, field.full_mask());
    let of_port = bits.in_port | bits.actset_output | bits.packet_type;
    bits.regs != Flow::default().regs || bits.metadata != 0 || bits.pkt_mark != 0 || of_port != 0
}
