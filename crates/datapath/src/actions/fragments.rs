//! [`Fragment`]: a packet set aside with its state. Fragments in front of the connection tracker: held until their datagram is complete ([`conntrack::ipf`]), tracked as a
//! whole, and sent on as they arrived.
//!
//! The last fragment of a datagram releases the others. They continue with the list of the fragment that releases them,
//! before it, as in Open vSwitch; each keeps its own key and origin.

use super::Executor;
use crate::actions::re_extract;
use crate::burst::HeaderCtx;
use crate::park::Origin;
use conntrack::Request;
use conntrack::ipf::{HeldFragment, Refusal, Taken};
use flow::extract::Layout;
use flow::{FlowKey, shape};
use packet::Packet;
use packet::headers as h;

/// A held packet with its state.
pub(crate) struct Fragment {
    pub(crate) packet: Packet,
    pub(crate) key: Box<FlowKey>,
    pub(crate) layout: Layout,
    pub(crate) origin: Origin,
    /// As in [`crate::burst::Arrays::dirty`].
    pub(crate) dirty: bool,
}

impl HeldFragment for Fragment {
    fn packet(&self) -> &Packet {
        &self.packet
    }

    fn packet_mut(&mut self) -> &mut Packet {
        &mut self.packet
    }

    fn l3(&self) -> usize {
        self.layout.l3.into()
    }

    fn is_v6(&self) -> bool {
        self.key.base.dl_type == h::ETH_TYPE_IPV6
    }

    fn port(&self) -> u32 {
        self.origin.rx_port.0
    }

    fn recirc_id(&self) -> u32 {
        self.key.base.recirc_id
    }
}

impl Executor {
    /// Holds a fragment, or tracks it alone or with its datagram. Returns the fragments that go on, in this order; none
    /// while it waits for others.
    pub(crate) fn take_fragment(&mut self, fragment: Fragment, request: &Request) -> Vec<Fragment> {
        let mut evicted = Vec::new();
        let shared = self.shared.clone();
        let taken = shared.fragments().take(fragment, request.zone, self.now_us / 1000, &mut evicted);
        self.ports.ledger.held += u64::from(!matches!(taken, Taken::Refused(..)));
        let whole = match taken {
            Taken::Held => return Vec::new(),
            Taken::Refused(fragment, refusal) => {
                let is_whole = refusal == Refusal::NotFragment;
                return vec![self.alone(fragment, is_whole, request)];
            }
            Taken::Complete(whole) => whole,
        };
        let mut datagram = *whole;
        let first = &datagram.fragments[0];
        let (mut key, rx_port) = (*first.key, first.origin.rx_port);
        let mut layout = re_extract(&mut key, datagram.whole.data(), self.vlan_limit);
        let mut dirty = false;
        let mut headers =
            HeaderCtx { key: &mut key, layout: &mut layout, dirty: &mut dirty, vlan_limit: self.vlan_limit };
        // A translation that does not fit leaves the datagram untranslated.
        let fits = self.track(&mut datagram.whole, &mut headers, rx_port, request, false);
        if fits.is_err() {
            key.base.ct_state = flow::ct_state::INV | flow::ct_state::TRK;
        }
        datagram.carry_back();
        let mut fragments = datagram.fragments;
        self.ports.ledger.released += fragments.len() as u64;
        for fragment in &mut fragments {
            copy_tracking(&key, &mut fragment.key);
            fragment.layout = re_extract(&mut fragment.key, fragment.packet.data(), self.vlan_limit);
        }
        fragments
    }

    /// Tracks a fragment without the others: it is invalid, unless it is a datagram of its own.
    fn alone(&mut self, mut fragment: Fragment, is_whole: bool, request: &Request) -> Fragment {
        let mut layout = fragment.layout;
        let mut dirty = false;
        let mut key = *fragment.key;
        if is_whole {
            key.base.nw_frag = 0;
        }
        let mut headers =
            HeaderCtx { key: &mut key, layout: &mut layout, dirty: &mut dirty, vlan_limit: self.vlan_limit };
        let rx_port = fragment.origin.rx_port;
        let _misfit = self.track(&mut fragment.packet, &mut headers, rx_port, request, true);
        copy_tracking(&key, &mut fragment.key);
        fragment.layout = re_extract(&mut fragment.key, fragment.packet.data(), self.vlan_limit);
        fragment
    }
}

/// Copies the fields of connection tracking.
fn copy_tracking(from: &FlowKey, to: &mut FlowKey) {
    to.clear_tracking();
    let b = &from.base;
    (to.base.ct_state, to.base.ct_zone, to.base.ct_mark) = (b.ct_state, b.ct_zone, b.ct_mark);
    if from.has(shape::CT) {
        to.ct = from.ct;
        to.base.shape |= shape::CT;
    }
}
