//! Lines of the log about connections to database servers and managers, in the words of OVS: states and attempts
//! (`reconnect`), states of the replica (`ovsdb_cs`).

use super::BACKOFF_MAX_MS;
use log::Level;

const MODULE: &str = "reconnect";

/// The level of attempts: with the longest back-off they are debug lines, so that a lost server does not fill the log.
fn level(backoff_ms: u64, max_backoff_ms: u64) -> Level {
    if backoff_ms < max_backoff_ms { Level::Info } else { Level::Debug }
}

/// The back-off begins that precedes the first attempt.
pub(super) fn started(target: &str) {
    log::debug!(target: MODULE, "{target}: entering BACKOFF");
}

/// An attempt begins, after this back-off.
pub(super) fn connecting(target: &str, backoff_ms: u64, max_backoff_ms: u64) {
    log::log!(target: MODULE, level(backoff_ms, max_backoff_ms), "{target}: connecting...");
    log::debug!(target: MODULE, "{target}: entering CONNECTING");
}

/// The attempt succeeded.
pub(super) fn connected(target: &str) {
    log::info!(target: MODULE, "{target}: connected");
    log::debug!(target: MODULE, "{target}: entering ACTIVE");
}

/// The connection, or the attempt to connect after a back-off of `before_ms`, is over; `backoff_ms` follow.
pub(super) fn over(target: &str, was_up: bool, why: &str, [before_ms, backoff_ms, max_backoff_ms]: [u64; 3]) {
    if was_up {
        log::info!(target: MODULE, "{target}: {why}");
    } else {
        log::log!(target: MODULE, level(before_ms, max_backoff_ms), "{target}: connection attempt failed ({why})");
    }
    if level(backoff_ms, max_backoff_ms) == Level::Info {
        log::info!(target: MODULE, "{target}: waiting {} seconds before reconnect", backoff_ms as f64 / 1000.0);
    } else if level(before_ms, max_backoff_ms) == Level::Info {
        log::info!(
            target: MODULE,
            "{target}: continuing to reconnect in the background but suppressing further logging"
        );
    }
    log::debug!(target: MODULE, "{target}: entering BACKOFF");
}

/// Logs the loss of the server of this process's database.
pub(super) fn server_lost(target: &str, was_up: bool, why: &str, before_ms: u64, backoff_ms: u64) {
    over(target, was_up, why, [before_ms, backoff_ms, BACKOFF_MAX_MS]);
}

/// The replica has another state.
pub(super) fn replica(target: &str, before: &str, now: &str) {
    if before != now {
        log::debug!(target: "ovsdb_cs", "{target}: {before} -> {now}");
    }
}
