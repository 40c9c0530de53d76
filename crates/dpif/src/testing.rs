//! Upcalls for the tests of datapaths.

use crate::ops::PmdId;
use crate::upcall::{Upcall, UpcallKind, UserCookie};
use flow::{DpPort, FlowKey, Ufid};
use packet::Packet;

/// Kind of an upcall whose packet the slow path handles separately.
pub const SLOW: UpcallKind = UpcallKind::Action(UserCookie::SlowPath { reasons: 1 });

/// An upcall of a packet of 60 zeros.
pub fn upcall(port: DpPort, name: u128, kind: UpcallKind, pmd: PmdId) -> Box<Upcall> {
    Box::new(Upcall {
        kind,
        packet: Packet::from_slice(&[0; 60]),
        key: FlowKey::default(),
        ufid: Ufid(name),
        pmd,
        rx_port: port,
        ticket: None,
        received_us: 0,
        tunnel_out: None,
    })
}
