//! Commands about sessions of BFD, with the texts of OVS.

use super::Answer;
use crate::daemon::Daemon;

/// `[INTERFACE]`
pub(super) fn show(daemon: &mut Daemon, args: &[String]) -> Answer {
    daemon.switch.monitor().show(args.first().map(String::as_str)).into()
}

/// `[INTERFACE] normal|false|true`
pub(super) fn set_forwarding(daemon: &mut Daemon, args: &[String]) -> Answer {
    let (name, choice) = match args {
        [name, choice] => (Some(name.as_str()), choice),
        [choice] => (None, choice),
        // Its number of arguments is checked.
        _ => return Answer::Now(Err("unknown fault string".to_string())),
    };
    daemon.switch.monitor().set_forwarding(name, choice).into()
}
