//! Ethernet addresses of bridges, and of ports without a device.

use ofproto::MacAddr;
use ovsdb::value::Uuid;

/// Addresses of EDP and EAPS, which look like those of stations.
const RESERVED: [MacAddr; 3] = [
    MacAddr([0x00, 0xe0, 0x2b, 0, 0, 0]),
    MacAddr([0x00, 0xe0, 0x2b, 0, 0, 4]),
    MacAddr([0x00, 0xe0, 0x2b, 0, 0, 6]),
];

/// The locally administered address of a row: as random as its UUID, and the same after each restart.
///
/// The six bytes are the first of Open vSwitch's UUID in memory: two words of 32 bits, the least significant byte first.
pub(super) fn of_row(row: Uuid) -> MacAddr {
    let [a, b, c, d, .., g, h] = *row.as_bytes().first_chunk::<8>().expect("a UUID has 16 bytes");
    MacAddr([d & !1 | 2, c, b, a, h, g])
}

/// Whether the address of a port may become that of its bridge: a real device's, not one made up by software.
pub(super) fn may_represent(mac: MacAddr) -> bool {
    !mac.is_multicast() && !mac.is_zero() && mac.0[0] & 2 == 0 && !RESERVED.contains(&mac)
}
