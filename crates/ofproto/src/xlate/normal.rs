//! `NORMAL`: the learning switch with VLANs (IEEE 802.1D, 802.1Q).

use super::ctx::XlateCtx;
use super::vlan::Tags;
use crate::cache::XlateEffect;
use crate::ids::BundleId;
use crate::ports::{Bundle, PriorityTags, VlanMode};
use flow::{MacAddr, OfPort, VlanTag};
use packet::headers::{ETH_TYPE_VLAN, ETH_TYPE_VLAN_8021AD};
use std::sync::Arc;
use telemetry::netflow;

/// Pseudo-bundle of packets without an input port: a trunk of all VLANs.
fn no_bundle() -> Arc<Bundle> {
    Arc::new(Bundle {
        id: BundleId::NONE,
        name: String::new(),
        members: Vec::new(),
        vlan_mode: VlanMode::Trunk,
        tag: 0,
        trunks: None,
        cvlans: None,
        qinq_tpid: ETH_TYPE_VLAN_8021AD,
        mcast_flood: false,
        mcast_flood_reports: false,
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
        let Some(tags) = self.enter(input) else {
            return self
                .record
                .trace
                .warning(|| "disallowed VLAN VID for this input port, dropping".to_string());
        };
        let vlan = tags.vlan();
        if !self.bond_admits(input, in_port, vlan) {
            return;
        }
        let learns = !bridge.floods(vlan);
        if learns && !from_nowhere && self.packet.flow.packet_type == 0 {
            self.learn_source(input, vlan);
        }
        if let Some(table) = bridge.mcast.as_ref().filter(|_| self.is_multicast_ip()) {
            return self.multicast(table, input, tags);
        }
        let known = {
            let macs = sync::lock(&bridge.macs);
            // Learning applies to the packet itself: its source may be its destination.
            let itself = !from_nowhere && self.host.has_effects() && dst == self.packet.flow.dl_src();
            let learned = itself && macs.would_change(vlan, dst, input.id);
            let found = if learned { Some(input.id) } else { macs.lookup(vlan, dst) };
            // A flow of former settings may have learned an address in a VLAN that its port left.
            found
                .filter(|_| learns)
                .and_then(|id| bridge.ports.bundles.get(&id))
                .filter(|output| output.id == input.id || output.includes_vlan(vlan))
        };
        match known {
            Some(output) if output.id == input.id => {
                self.record.trace.detail(|| "learned port is input port, dropping".to_string());
            }
            Some(output) => {
                self.record.trace.detail(|| "forwarding to learned port".to_string());
                self.output_bundle(output, tags);
            }
            None => {
                self.record.trace.detail(|| "no learned MAC for destination, flooding".to_string());
                self.flood_vlan(input, tags);
            }
        }
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

    pub(super) fn flood_vlan(&mut self, input: &Bundle, tags: Tags) {
        let bridge = self.bridge.clone();
        self.examine_inner_vlan();
        let outputs = bridge.ports.flood_bundles().filter(|output| {
            let is_other = output.id != input.id && output.floodable;
            is_other && tags.are_carried(output) && !bridge.is_mirror_output(output.id)
        });
        self.send_to_each(outputs, |cx, output| cx.output_bundle(output, tags));
        self.out.netflow = netflow::output::FLOOD;
    }

    /// Some ports have no packets of a VLAN within theirs.
    pub(super) fn examine_inner_vlan(&mut self) {
        if self.packet.flow.vlans[1].is_present() {
            self.record.wc.0.vlans[1].tci |= VlanTag::VID;
        }
    }

    /// Sends the packet out of a bundle with the bundle's tagging; the flow itself is unchanged.
    pub(super) fn output_bundle(&mut self, output: &Arc<Bundle>, tags: Tags) {
        let Some(port) = self.member_out(output, tags.vlan()) else { return };
        let saved = self.packet.flow.vlans;
        self.leave(output, tags);
        self.send_to(port);
        self.packet.flow.vlans = saved;
    }
}
