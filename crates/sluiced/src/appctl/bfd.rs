//! Commands about sessions of BFD, with the texts of OVS.

use super::{Command, Reply, command};
use crate::control_plane::ControlPlane;

/// The commands of this module.
pub(super) const ROWS: &[Command] = &[
    command(
        "bfd/set-forwarding",
        "[interface] normal|false|true",
        1..=2,
        "override the forwarding state of BFD sessions; normal ends the override",
        set_forwarding,
    ),
    command("bfd/show", "[interface]", 0..=1, "show the BFD sessions of all interfaces or one", show),
];

/// `[INTERFACE]`
fn show(plane: &mut ControlPlane, args: &[String]) -> Reply {
    plane.switch.monitor().show(args.first().map(String::as_str)).into()
}

/// `[INTERFACE] normal|false|true`
fn set_forwarding(plane: &mut ControlPlane, args: &[String]) -> Reply {
    let (name, choice) = match args {
        [name, choice] => (Some(name.as_str()), choice),
        [choice] => (None, choice),
        // Its number of arguments is checked.
        _ => return Reply::Error("unknown fault string".to_string()),
    };
    plane.switch.monitor().set_forwarding(name, choice).into()
}
