//! Log lines of deleted ports, as operators of OVS look for them.

use flow::OfPort;
use ofproto::ports::PortTable;

/// A port's number in the log.
pub(super) fn shown(number: OfPort) -> u32 {
    if number == OfPort::LOCAL { 65534 } else { number.0 }
}

/// Logs the ports of a bridge that `now` lacks.
pub(super) fn log(bridge: Option<(&str, &PortTable)>, now: Option<&PortTable>) {
    let Some((bridge, before)) = bridge else { return };
    for (number, port) in &before.ports {
        let name = &port.name;
        if now.and_then(|now| now.port(*number)).is_none_or(|other| other.name != *name) {
            log::info!(target: "bridge", "bridge {bridge}: deleted interface {name} on port {}", shown(*number));
        }
    }
}
