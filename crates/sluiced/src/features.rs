//! Link features of drivers in OpenFlow terms: `ethtool_link_mode_bit_indices` of `linux/ethtool.h` as `OFPPF_*` of
//! OpenFlow 1.3 §7.2.1. As in stock switches, omits link modes without an OpenFlow bit.

#[cfg(test)]
mod tests;

use netdev::link::{Duplex, EthtoolLink};
use ofproto::ports::PortFeatures;

/// Speed in Mbit/s, and the bits of half and full duplex.
const SPEEDS: [(u32, u32, u32); 7] = [
    (10, 1, 1 << 1),
    (100, 1 << 2, 1 << 3),
    (1000, 1 << 4, 1 << 5),
    (10_000, 1 << 6, 1 << 6),
    (40_000, 1 << 7, 1 << 7),
    (100_000, 1 << 8, 1 << 8),
    (1_000_000, 1 << 9, 1 << 9),
];
/// Any other speed.
const OTHER_SPEED: u32 = 1 << 10;
const COPPER: u32 = 1 << 11;
const FIBER: u32 = 1 << 12;
const AUTONEG: u32 = 1 << 13;

/// Connectors: `PORT_TP`, `PORT_FIBRE`.
const TWISTED_PAIR: u8 = 0;
const FIBRE: u8 = 3;

/// Link modes by number, with their bits.
const MODES: [(u32, u32); 12] = [
    (0, 1),
    (1, 1 << 1),
    (2, 1 << 2),
    (3, 1 << 3),
    (4, 1 << 4),
    (5, 1 << 5),
    (6, AUTONEG),
    (7, COPPER),
    (10, FIBER),
    (12, 1 << 6),
    // Pause, symmetric and asymmetric.
    (13, 1 << 14),
    (14, 1 << 15),
];

/// The OpenFlow form.
pub(crate) fn port_features(link: &EthtoolLink) -> PortFeatures {
    let bits =
        |modes: u128| MODES.iter().filter(|(mode, _)| modes >> mode & 1 != 0).fold(0, |f, (_, bit)| f | bit);
    let speed_mbps = link.speed_mbps.unwrap_or(0);
    let mut current = match SPEEDS.iter().find(|(mbps, ..)| *mbps == speed_mbps) {
        Some((_, half, full)) => *if link.duplex == Some(Duplex::Half) { half } else { full },
        None if speed_mbps == 0 => 0,
        None => OTHER_SPEED,
    };
    current |= match link.connector {
        TWISTED_PAIR => COPPER,
        FIBRE => FIBER,
        _ => 0,
    };
    current |= if link.autoneg { AUTONEG } else { 0 };
    let supported = bits(link.supported);
    let fastest = SPEEDS.iter().rev().find(|(_, half, full)| supported & (half | full) != 0);
    PortFeatures {
        current,
        advertised: bits(link.advertised),
        supported,
        speed_mbps,
        speed_max_mbps: fastest.map_or(0, |(mbps, ..)| *mbps),
    }
}
