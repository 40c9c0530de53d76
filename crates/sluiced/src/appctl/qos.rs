//! `qos/show` and `qos/show-types`: the quality of service of an interface.

use super::{Reply, Rows, Word, command};
use crate::control_plane::ControlPlane;
use dpif::Shaping;
use flow::DpPort;

/// The commands of this module.
pub(super) const ROWS: Rows = &[
    &command("qos/show", Word("interface"), "show the QoS queues of an interface", show),
    &command(
        "qos/show-types",
        Word("interface"),
        "list the QoS types that an interface supports",
        show_types,
    ),
];

/// The reply for an interface of a bridge; `None`: a patch port, or a datapath without disciplines.
fn of_interface(
    plane: &ControlPlane,
    name: &str,
    text: impl Fn(Option<(&dyn Shaping, DpPort)>) -> String,
) -> Reply {
    let bridges = plane.switch.instances().bridges();
    if !bridges.iter().any(|(_, b)| b.ports.by_name(name).is_some()) {
        return Reply::from(Err("no such interface".to_string()));
    }
    let device = plane.switch.devices().get(name);
    Reply::from(Ok(text(device.and_then(|device| Some((device.datapath.shaping()?, device.dp_port))))))
}

fn show(plane: &mut ControlPlane, interface: &str) -> Reply {
    let name = interface;
    of_interface(plane, name, |shaping| {
        shaping.map(|(shaping, port)| shaping.shown_qos(port)).unwrap_or_default().text(name)
    })
}

fn show_types(plane: &mut ControlPlane, interface: &str) -> Reply {
    let name = interface;
    of_interface(plane, name, |shaping| {
        let types = shaping.map(|(shaping, port)| shaping.qos_types(port)).unwrap_or_default();
        if types.is_empty() {
            return format!("No QoS types supported for interface: {name}\n");
        }
        types.iter().map(|name| format!("QoS type: {name}\n")).collect()
    })
}
