//! Announcements after a change of members: the neighbours of a bond learn at which member hosts are now.
//!
//! For each address learned at another port the bond sends a reverse ARP request (RFC 903) from that address, as OVS does.

use super::Running;
use dpif::{DpifOp, OpBatch, PmdId};
use flow::{Flow, MacAddr, Mask, OfPort};
use l2proto::protocol::Transmission;
use ofproto::bond::Way;
use ofproto::link_sender::{self, LinkSender};
use ofproto::ports::{BridgeId, BundleId};
use std::collections::VecDeque;
use std::sync::Arc;
use sync::lock;

/// Frames sent in a round.
const AT_A_TIME: usize = 256;
/// Bytes of a frame with a tag.
const FRAME_BYTES: usize = 46;

/// An address to announce: its bond, VLAN and address.
type Announcement = ((BridgeId, BundleId), u16, MacAddr);

/// Announcements that wait.
#[derive(Default)]
pub(super) struct Announcements {
    waiting: VecDeque<Announcement>,
}

impl Announcements {
    /// Takes bonds whose neighbours have to learn, and sends some announcements; returns whether more wait.
    pub(super) fn send(
        &mut self,
        wanted: Vec<(BridgeId, BundleId)>,
        running: &[Arc<Running>],
        now_ms: u64,
    ) -> bool {
        let find = |key: (BridgeId, BundleId)| running.iter().find(|r| (r.bridge, r.bundle) == key);
        for key in wanted {
            // Later members replace earlier ones.
            self.waiting.retain(|(other, ..)| *other != key);
            if let Some(bond) = find(key) {
                let addresses = addresses(bond);
                log::debug!(target: "bond", "bond {}: sent {} gratuitous learning packets", bond.bond.name(), addresses.len());
                self.waiting.extend(addresses.into_iter().map(|(vlan, mac)| (key, vlan, mac)));
            }
        }
        let count = self.waiting.len().min(AT_A_TIME);
        let mut sender = LinkSender::default();
        let mut batch: Option<(&Arc<Running>, Vec<DpifOp>)> = None;
        for (key, vlan, mac) in self.waiting.drain(..count) {
            let Some(bond) = find(key) else { continue };
            let Some(port) = member_for(bond, vlan, mac) else { continue };
            let frame = frame(mac, vlan);
            let sent = Transmission { header_bytes: frame.len(), frame: frame.into(), oam: false };
            let op = sender.send(&bond.backer, (bond.bridge, port), &sent, now_ms);
            let same = batch.as_ref().is_some_and(|(of, _)| Arc::ptr_eq(&of.datapath, &bond.datapath));
            if !same && let Some((of, ops)) = batch.replace((bond, Vec::new())) {
                flush(of, ops, now_ms);
            }
            if let Some((_, ops)) = &mut batch {
                ops.extend(op);
            }
        }
        if let Some((of, ops)) = batch {
            flush(of, ops, now_ms);
        }
        !self.waiting.is_empty()
    }
}

fn flush(bond: &Running, mut ops: Vec<DpifOp>, now_ms: u64) {
    ops.extend(link_sender::solicit(&bond.backer, now_ms));
    if ops.is_empty() {
        return;
    }
    let pmd = bond.datapath.pmds().into_iter().find(|pmd| *pmd != PmdId::Main).unwrap_or(PmdId::Main);
    bond.datapath.operate_ahead(OpBatch { pmd, ops, tag: 0, reply: None });
}

/// VLANs and addresses learned at other ports of the bridge.
fn addresses(bond: &Running) -> Vec<(u16, MacAddr)> {
    let view = bond.backer.view();
    let Some(bridge) = view.bridge(bond.bridge) else { return Vec::new() };
    let macs = lock(&bridge.macs);
    macs.entries().iter().filter(|e| e.bundle != bond.bundle).map(|e| (e.vlan, e.mac)).collect()
}

/// The member that sends packets from an address.
fn member_for(bond: &Running, vlan: u16, mac: MacAddr) -> Option<OfPort> {
    let flow = Flow { dl_src: mac.0, ..Flow::default() };
    match bond.bond.state().way_out(&flow, vlan, false, &mut Mask::default())? {
        Way::Member(port, _) | Way::Hashed { member: port, .. } => Some(port),
    }
}

/// A reverse ARP request of an address, with a tag unless the VLAN is 0.
fn frame(mac: MacAddr, vlan: u16) -> Vec<u8> {
    let mut frame = Vec::with_capacity(FRAME_BYTES);
    frame.extend([0xff; 6]);
    frame.extend(mac.0);
    if vlan != 0 {
        frame.extend([0x81, 0x00]);
        frame.extend(vlan.to_be_bytes());
    }
    // Type; Ethernet and IPv4 addresses with their lengths; the request.
    frame.extend([0x80, 0x35, 0, 1, 0x08, 0x00, 6, 4, 0, 3]);
    for _ in 0..2 {
        frame.extend(mac.0);
        frame.extend([0; 4]);
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announcement_is_a_reverse_arp_request() {
        let mac = MacAddr([2, 0, 0, 0, 0, 7]);
        let plain = frame(mac, 0);
        assert_eq!(plain.len(), 42);
        assert_eq!(&plain[12..22], [0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3]);
        let tagged = frame(mac, 5);
        assert_eq!((&tagged[12..16], &tagged[16..]), (&[0x81, 0, 0, 5][..], &plain[12..]));
    }
}
