//! Lines of the log about the states of OpenFlow connections, in the words of OVS (`rconn`).

use super::link::Link;
use openflow::reconnect::Reconnect;

const MODULE: &str = "rconn";

/// A peer has connected to the bridge.
pub(super) fn accepted(bridge: &str, peer: &str) {
    log::debug!(target: MODULE, "{bridge}<->{peer}: entering CONNECTING");
}

/// Both sides agree on a version: logged once for each connection.
pub(super) fn agreed(bridge: &str, peer: &str, link: &mut Link) {
    if !std::mem::replace(&mut link.is_agreed, true) {
        log::debug!(target: MODULE, "{bridge}<->{peer}: connected");
        log::debug!(target: MODULE, "{bridge}<->{peer}: entering ACTIVE");
    }
}

/// A connection that a peer began is over.
pub(super) fn over(bridge: &str, peer: &str, why: &str) {
    log::debug!(target: MODULE, "{bridge}<->{peer}: {why}");
    log::debug!(target: MODULE, "{bridge}<->{peer}: entering DISCONNECTED");
}

/// Whether attempts are logged: not while the longest pause separates them.
fn are_attempts_logged(reconnect: &Reconnect) -> bool {
    reconnect.backoff_ms() < reconnect.max_backoff_ms()
}

/// An attempt begins.
pub(super) fn connecting(bridge: &str, target: &str, reconnect: &Reconnect) {
    if are_attempts_logged(reconnect) {
        log::info!(target: MODULE, "{bridge}<->{target}: connecting...");
    }
}

/// An attempt succeeded.
pub(super) fn connected(bridge: &str, target: &str) {
    log::info!(target: MODULE, "{bridge}<->{target}: connected");
}

/// The connection to a controller was lost, or an attempt failed; `before` is the pause before the attempt that failed.
pub(super) fn lost(
    bridge: &str,
    target: &str,
    was_up: bool,
    why: &str,
    before_ms: u64,
    reconnect: &Reconnect,
) {
    if was_up {
        log::info!(target: MODULE, "{bridge}<->{target}: {why}");
    } else {
        log::warn!(target: MODULE, "{bridge}<->{target}: connection failed ({why})");
    }
    if are_attempts_logged(reconnect) {
        let seconds = reconnect.backoff_ms() / 1000;
        log::info!(target: MODULE, "{bridge}<->{target}: waiting {seconds} seconds before reconnect");
    } else if before_ms < reconnect.max_backoff_ms() {
        log::info!(
            target: MODULE,
            "{bridge}<->{target}: continuing to retry connections in the background but suppressing further logging"
        );
    }
}
