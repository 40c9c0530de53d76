//! Commands about sessions of BFD, with the texts of OVS.

use super::Answer;
use crate::daemon::Daemon;
use l2proto::Protocol;

/// `[INTERFACE] normal|false|true`
pub(super) fn set_forwarding(daemon: &mut Daemon, args: &[String]) -> Answer {
    daemon.switch.link_protocols().command(Protocol::Bfd, 0, args).into()
}

/// `[INTERFACE]`
pub(super) fn show(daemon: &mut Daemon, args: &[String]) -> Answer {
    daemon.switch.link_protocols().command(Protocol::Bfd, 1, args).into()
}
