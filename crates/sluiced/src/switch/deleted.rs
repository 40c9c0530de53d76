//! Log lines of deleted ports, as operators of OVS look for them.

use crate::port_changes::differing;
use flow::OfPort;
use ofproto::ports::PortTable;

/// A port's number in the log.
pub(super) fn shown(number: OfPort) -> u32 {
    if number == OfPort::LOCAL { 65534 } else { number.0 }
}

/// Logs the ports of a bridge that `now` lacks.
pub(super) fn log(bridge: &str, before: &PortTable, now: &PortTable) {
    for (port, now) in differing(before, now) {
        if let Some(port) = port.filter(|port| now.is_none_or(|now| now.name != port.name)) {
            let (name, number) = (&port.name, shown(port.of_port));
            log::info!(target: "bridge", "bridge {bridge}: deleted interface {name} on port {number}");
        }
    }
}
