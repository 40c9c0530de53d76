//! The VLAN tags of a packet within `NORMAL`: a port's mode adds some at the input, and takes some away at the output
//! (IEEE 802.1Q, 802.1ad).
//!
//! Two tags are kept, as in flows. A tag pushed before two others displaces the innermost one, as in OVS.

use super::ctx::XlateCtx;
use crate::ports::{Bundle, PriorityTags, VlanMode};
use dpif::XlateDrop;
use flow::{Flow, VlanTag};
use packet::headers::ETH_TYPE_VLAN;

/// The tags of a packet within a bridge, outermost first. A tag without an EtherType is none; one with it may have no
/// VLAN and no priority. `tci` lacks the bit for presence.
#[derive(Clone, Copy, Default)]
pub(super) struct Tags([VlanTag; 2]);

impl Tags {
    /// The tags of a flow.
    fn of(flow: &Flow) -> Tags {
        let plain = |tag: VlanTag| VlanTag { tpid: tag.tpid, tci: tag.tci & !VlanTag::PRESENT };
        let mut tags = Tags::default();
        for (to, from) in tags.0.iter_mut().zip(flow.vlans.iter().take_while(|tag| tag.is_present())) {
            *to = plain(*from);
        }
        tags
    }

    /// The VLAN within the bridge.
    pub(super) fn vlan(self) -> u16 {
        self.0[0].vid()
    }

    /// With an outermost tag of that VLAN, which keeps EtherType and priority of one that is there.
    pub(super) fn with_outer(mut self, vlan: u16) -> Tags {
        let outer = &mut self.0[0];
        let tpid = if outer.tpid == 0 { ETH_TYPE_VLAN } else { outer.tpid };
        *outer = VlanTag { tpid, tci: outer.tci & VlanTag::PCP | vlan };
        self
    }

    fn pushed(self, outer: VlanTag) -> Tags {
        Tags([outer, self.0[0]])
    }

    fn popped(self) -> Tags {
        Tags([self.0[1], VlanTag::default()])
    }

    /// The tags of a packet that enters a bundle.
    fn enter(self, input: &Bundle) -> Tags {
        match input.vlan_mode {
            VlanMode::Access => Tags([self.0[0], VlanTag::default()]).with_outer(input.tag),
            VlanMode::NativeTagged | VlanMode::NativeUntagged if self.vlan() == 0 => {
                self.with_outer(input.tag)
            }
            VlanMode::Trunk | VlanMode::NativeTagged | VlanMode::NativeUntagged => self,
            VlanMode::Dot1qTunnel => self.pushed(VlanTag { tpid: input.qinq_tpid, tci: input.tag }),
        }
    }

    /// The tags with which it leaves one.
    fn leave(self, output: &Bundle) -> Tags {
        match output.vlan_mode {
            VlanMode::Access => Tags::default(),
            VlanMode::NativeUntagged if self.vlan() == output.tag => self.popped(),
            VlanMode::Trunk | VlanMode::NativeTagged | VlanMode::NativeUntagged => self,
            VlanMode::Dot1qTunnel => self.popped(),
        }
    }

    /// Whether a bundle gets packets of these tags that are flooded. An access port has none of a VLAN within its own.
    pub(super) fn are_carried(self, output: &Bundle) -> bool {
        let inner = self.0[1].vid();
        output.includes_vlan(self.vlan())
            && match output.vlan_mode {
                VlanMode::Access => inner == 0,
                VlanMode::Dot1qTunnel => output.allows_cvlan(inner),
                VlanMode::Trunk | VlanMode::NativeTagged | VlanMode::NativeUntagged => true,
            }
    }

    /// As tags of a flow. One without VLAN and priority is there only `always`; the one behind it stays.
    fn to_flow(self, always: bool) -> [VlanTag; 2] {
        let [outer, inner] = self.0.map(|VlanTag { tpid, tci }| {
            let tpid = if tpid == 0 && tci != 0 { ETH_TYPE_VLAN } else { tpid };
            match tci != 0 || always && tpid != 0 {
                true => VlanTag { tpid, tci: tci | VlanTag::PRESENT },
                false => VlanTag::default(),
            }
        });
        if outer.is_present() { [outer, inner] } else { [inner, VlanTag::default()] }
    }
}

impl XlateCtx<'_> {
    /// The tags of the packet within the bridge, received on this bundle; `None`: it may not enter.
    pub(super) fn enter(&mut self, input: &Bundle) -> Option<Tags> {
        let tags = Tags::of(&self.packet.flow);
        let (vid, name, tag) = (tags.vlan(), &input.name, input.tag);
        let enters = match input.vlan_mode {
            VlanMode::Access => vid == 0,
            // As in OVS, trunks do not exclude packets without a VLAN from a native port.
            VlanMode::NativeTagged | VlanMode::NativeUntagged => vid == 0 || input.includes_vlan(vid),
            VlanMode::Trunk => input.includes_vlan(vid),
            VlanMode::Dot1qTunnel => input.allows_cvlan(vid),
        };
        if enters {
            return Some(tags.enter(input));
        }
        self.out.lost = XlateDrop::VlanNotAllowed;
        self.record.trace.error(|| match input.vlan_mode {
            VlanMode::Access => {
                format!("dropping VLAN {vid} tagged packet received on port {name} configured as VLAN {tag} access port")
            }
            VlanMode::Dot1qTunnel => {
                format!("dropping VLAN {vid} packet received on dot1q-tunnel port {name} that excludes this VLAN")
            }
            VlanMode::Trunk | VlanMode::NativeTagged | VlanMode::NativeUntagged => format!("dropping VLAN {vid} packet received on port {name} not configured for trunking VLAN {vid}"),
        });
        None
    }

    /// Gives the packet the tags with which it leaves a bundle.
    pub(super) fn leave(&mut self, output: &Bundle, tags: Tags) {
        let received = self.packet.flow.vlans;
        let mut leaving = tags.leave(output);
        if output.priority_tags != PriorityTags::Never {
            // The priority of the received tag.
            let outer = &mut leaving.0[0];
            outer.tci = outer.tci & !VlanTag::PCP | received[0].tci & VlanTag::PCP;
        }
        let sent = leaving.to_flow(output.priority_tags == PriorityTags::Always);
        // A priority decides whether there is a tag, or is copied to another one.
        let decides = leaving.0.iter().any(|tag| tag.vid() == 0);
        let copied = output.priority_tags != PriorityTags::Never && sent[0] != received[0];
        for (tag, mask) in received.iter().zip(&mut self.record.wc.0.vlans) {
            if tag.is_present() && tag.vid() == 0 && decides {
                mask.tci |= VlanTag::PCP;
            }
        }
        if received[0].is_present() && (copied || leaving.vlan() == 0) {
            self.record.wc.0.vlans[0].tci |= VlanTag::PCP;
        }
        self.packet.flow.vlans = sent;
    }
}
