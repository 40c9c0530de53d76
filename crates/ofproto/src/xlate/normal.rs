//! `NORMAL`: the learning switch with VLANs (IEEE 802.1D, 802.1Q).

use super::ctx::XlateCtx;
use crate::cache::XlateEffect;
use crate::ids::BundleId;
use crate::ports::{Bundle, PriorityTags, VlanMode};
use flow::{MacAddr, OfPort, VlanTag};
use packet::headers::{ETH_TYPE_VLAN, ETH_TYPE_VLAN_8021AD};
use std::sync::Arc;

/// The VLAN of a packet within the bridge.
#[derive(Clone, Copy)]
pub(super) struct Entered {
    pub(super) vlan: u16,
    /// It has a tag, or a port's setting gave it a VLAN, which may be 0.
    pub(super) tagged: bool,
}

/// Pseudo-bundle of packets without an input port: a trunk of all VLANs.
fn no_bundle() -> Arc<Bundle> {
    Arc::new(Bundle {
        id: BundleId(u32::MAX),
        name: String::new(),
        members: Vec::new(),
        vlan_mode: VlanMode::Trunk,
        tag: 0,
        trunks: None,
        priority_tags: PriorityTags::Never,
        protected: false,
        floodable: false,
        bond: None,
    })
}

impl XlateCtx<'_> {
    pub(super) fn normal(&mut self) {
        self.record.wc.0.dl_src = [0xff; 6];
        self.record.wc.0.dl_dst = [0xff; 6];
        self.record.wc.0.vlans[0].tci |= VlanTag::VID | VlanTag::PRESENT;
        let bridge = self.bridge.clone();
        let in_port = self.packet.flow.in_port();
        let from_nowhere = matches!(in_port, OfPort::NONE | OfPort::CONTROLLER);
        let nowhere = from_nowhere.then(no_bundle);
        let Some(input) = nowhere.as_ref().or(bridge.ports.bundle_of(in_port)) else {
            self.record.trace.error(|| format!("received packet on unknown port {in_port}"));
            return self.record.trace.warning(|| "no input bundle, dropping".to_string());
        };
        let is_tag = matches!(self.packet.flow.dl_type, ETH_TYPE_VLAN | ETH_TYPE_VLAN_8021AD);
        if is_tag && !self.packet.flow.vlans[0].is_present() {
            return self.record.trace.warning(|| "partial VLAN tag, dropping".to_string());
        }
        if !from_nowhere && bridge.is_mirror_output(input.id) {
            return self.record.trace.warning(|| "input port is mirror output port, dropping".to_string());
        }
        let dst = self.packet.flow.dl_dst();
        if !from_nowhere && dst.is_reserved() && !bridge.forward_bpdu {
            return self.record.trace.detail(|| "packet has reserved destination MAC, dropping".to_string());
        }
        let Some(entered) = self.enter(input) else {
            return self
                .record
                .trace
                .warning(|| "disallowed VLAN VID for this input port, dropping".to_string());
        };
        let vlan = entered.vlan;
        if !self.bond_admits(input, in_port, vlan) {
            return;
        }
        if !from_nowhere && self.packet.flow.packet_type == 0 {
            self.learn_source(input, vlan);
        }
        let known = {
            let macs = sync::lock(&bridge.macs);
            // Learning applies to the packet itself: its source may be its destination.
            let learns = !from_nowhere && self.host.has_effects() && dst == self.packet.flow.dl_src();
            let learned = learns && macs.would_change(vlan, dst, input.id);
            let found = if learned { Some(input.id) } else { macs.lookup(vlan, dst) };
            // A flow of former settings may have learned an address in a VLAN that its port left.
            found
                .and_then(|id| bridge.ports.bundles.get(&id))
                .filter(|output| output.id == input.id || output.includes_vlan(vlan))
        };
        match known {
            Some(output) if output.id == input.id => {
                self.record.trace.detail(|| "learned port is input port, dropping".to_string());
            }
            Some(output) => {
                self.record.trace.detail(|| "forwarding to learned port".to_string());
                self.output_bundle(output, entered);
            }
            None => {
                self.record.trace.detail(|| "no learned MAC for destination, flooding".to_string());
                self.flood_vlan(input, entered);
            }
        }
    }

    /// The VLAN of the packet on this bundle; `None`: it may not enter.
    pub(super) fn enter(&mut self, input: &Bundle) -> Option<Entered> {
        let vid = self.packet.flow.vlans[0].vid();
        // As in OVS, trunks do not exclude packets without a VLAN from a native port.
        let is_native =
            vid == 0 && matches!(input.vlan_mode, VlanMode::NativeTagged | VlanMode::NativeUntagged);
        let vlan = match input.vlan_mode {
            VlanMode::Access if vid != 0 => {
                let (name, tag) = (&input.name, input.tag);
                self.record.trace.error(|| {
                    format!("dropping VLAN {vid} tagged packet received on port {name} configured as VLAN {tag} access port")
                });
                return None;
            }
            VlanMode::Access => input.tag,
            _ if is_native => input.tag,
            VlanMode::Trunk | VlanMode::NativeTagged | VlanMode::NativeUntagged => vid,
        };
        if !is_native && !input.includes_vlan(vlan) {
            let name = &input.name;
            self.record.trace.error(|| {
                format!("dropping VLAN {vlan} packet received on port {name} not configured for trunking VLAN {vlan}")
            });
            return None;
        }
        let tagged =
            self.packet.flow.vlans[0].is_present() || is_native || input.vlan_mode == VlanMode::Access;
        Some(Entered { vlan, tagged })
    }

    fn learn_source(&mut self, input: &Bundle, vlan: u16) {
        let mac: MacAddr = self.packet.flow.dl_src();
        if mac.is_multicast() {
            return;
        }
        let macs = self.bridge.macs.clone();
        if self.record.trace.is_on()
            && self.host.has_effects()
            && sync::lock(&macs).would_change(vlan, mac, input.id)
        {
            let name = &input.name;
            self.record.trace.detail(|| format!("learned that {mac} is on port {name} in VLAN {vlan}"));
        }
        let holds = self.announces_host(input);
        self.record.cache.push(XlateEffect::Normal { macs, vlan, mac, bundle: input.id, holds });
    }

    fn flood_vlan(&mut self, input: &Bundle, entered: Entered) {
        let bridge = self.bridge.clone();
        let inner = self.packet.flow.vlans[1];
        if inner.is_present() {
            self.record.wc.0.vlans[1].tci |= VlanTag::VID;
        }
        let outputs = bridge.ports.flood_order().filter_map(|port| {
            let output = bridge.ports.bundles.get(&port.bundle)?;
            let first = output.members.first() == Some(&port.of_port);
            let is_one = first && output.id != input.id && output.floodable;
            // An access port has no packets of a VLAN within its own.
            let nested = inner.vid() != 0 && output.vlan_mode == VlanMode::Access;
            let takes = is_one && !nested && output.includes_vlan(entered.vlan);
            (takes && !bridge.is_mirror_output(output.id)).then_some(output)
        });
        self.send_to_each(outputs, |cx, output| cx.output_bundle(output, entered));
    }

    /// Sends the packet out of a bundle with the bundle's tagging; the flow itself is unchanged.
    pub(super) fn output_bundle(&mut self, output: &Arc<Bundle>, Entered { vlan, tagged }: Entered) {
        let Some(port) = self.member_out(output, vlan) else { return };
        let untagged = match output.vlan_mode {
            VlanMode::Access => true,
            VlanMode::NativeUntagged => vlan == output.tag,
            VlanMode::Trunk | VlanMode::NativeTagged => false,
        };
        let saved = self.packet.flow.vlans;
        let vid = if untagged { 0 } else { vlan };
        let pcp_bits = saved[0].tci & VlanTag::PCP;
        // A trunk forwards priority tags with a nonzero priority.
        let priority_tag = match output.priority_tags {
            PriorityTags::Always => pcp_bits != 0 || tagged && !untagged,
            PriorityTags::IfNonzero => pcp_bits != 0,
            PriorityTags::Never => !untagged && pcp_bits != 0,
        };
        if vid == 0 && saved[0].is_present() {
            self.record.wc.0.vlans[0].tci |= VlanTag::PCP;
        }
        let tpid = if saved[0].is_present() { saved[0].tpid } else { ETH_TYPE_VLAN };
        if vid != 0 || priority_tag {
            self.packet.flow.vlans[0] = VlanTag { tpid, tci: vid | pcp_bits | VlanTag::PRESENT };
        } else if saved[0].is_present() {
            self.packet.flow.vlans[0] = saved[1];
            self.packet.flow.vlans[1] = VlanTag::default();
        }
        self.send_to(port);
        self.packet.flow.vlans = saved;
    }
}
