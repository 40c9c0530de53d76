//! What tests of several modules need.

use dpif::{PmdId, Upcall, UpcallKind, UserCookie};
use flow::{DpPort, FlowKey, Ufid};
use packet::Packet;

/// Why a packet is handed up that is to be translated by itself.
pub(crate) const SLOW: UpcallKind = UpcallKind::Action(UserCookie::SlowPath { reasons: 1 });

/// An upcall of a packet of zeros.
pub(crate) fn upcall(port: DpPort, name: u128, kind: UpcallKind, pmd: PmdId) -> Box<Upcall> {
    Box::new(Upcall {
        kind,
        packet: Packet::from_slice(&[0; 60]),
        key: FlowKey::default(),
        ufid: Ufid(name),
        pmd,
        rx_port: port,
        ticket: None,
        received_us: 0,
    })
}
