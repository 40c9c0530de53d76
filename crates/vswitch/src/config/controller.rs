//! [`ControllerConfig`]: a controller to connect to or listen for.

use ofproto::connmgr::RateLimit;
use ovsdb::client::RowView;
use ovsdb::value::Uuid;

use super::reader::Reader;
use super::unsupported;

/// Role of a controller for the fail mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerKind {
    /// Primary: its loss triggers the bridge's fail mode.
    Primary,
    /// Service: without effect on the fail mode.
    Service,
}

/// Network path to the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionMode {
    /// In-band: through the bridge itself.
    InBand,
    /// Out-of-band.
    OutOfBand,
}

/// A row of `Controller`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerConfig {
    /// The row.
    pub row: Uuid,
    /// `tcp:IP:PORT`, `ssl:IP:PORT`, `unix:PATH`, or passively `ptcp:PORT[:IP]`, `pssl:PORT[:IP]`, `punix:PATH`.
    pub target: String,
    /// Primary or service.
    pub kind: ControllerKind,
    /// Maximum back-off between two connection attempts.
    pub max_backoff_ms: u64,
    /// Inactivity probe interval; 0 disables probes.
    pub inactivity_probe_ms: u64,
    /// In-band or out-of-band.
    pub connection_mode: ConnectionMode,
    /// Limit of packet-ins; `None` unlimited.
    pub rate_limit: Option<RateLimit>,
    /// Maximum queued packet-ins.
    pub queue_size_packets: u32,
    /// Whether asynchronous messages are enabled by default.
    pub enable_async_messages: bool,
    /// DSCP of its connection.
    pub dscp: u8,
}

impl ControllerConfig {
    /// Whether the switch waits for this controller to connect.
    pub fn is_passive(&self) -> bool {
        self.target.starts_with('p')
    }
}

const KNOWN_TARGETS: [&str; 6] = ["tcp:", "ptcp:", "ssl:", "pssl:", "unix:", "punix:"];

impl<'a> Reader<'a> {
    /// A controller, or a notice about the reason for not serving it. Without `in_band`, in-band controllers are
    /// treated as out-of-band.
    pub(super) fn controller(&mut self, row: RowView<'a>, in_band: bool) -> Option<ControllerConfig> {
        let target = row.str("target");
        if !KNOWN_TARGETS.iter().any(|prefix| target.starts_with(prefix)) {
            self.notice(row, format!("{target:?} does not say how to reach a controller: left out"));
            return None;
        }
        unsupported::of_controller(self, row);
        let passive = target.starts_with('p');
        let kind = match row.opt_str("type") {
            Some("service") => ControllerKind::Service,
            Some("primary") => ControllerKind::Primary,
            _ if passive => ControllerKind::Service,
            _ => ControllerKind::Primary,
        };
        let positive = |column: &str, least: i64| {
            row.opt_int(column).map(|n| u32::try_from(n.max(least)).unwrap_or(u32::MAX))
        };
        // Without a burst, a quarter of the rate.
        let rate_limit = positive("controller_rate_limit", 100).map(|rate_pps| RateLimit {
            rate_pps,
            burst_packets: positive("controller_burst_limit", 25).unwrap_or(rate_pps / 4),
        });
        let asked = row.opt_str("connection_mode");
        let out_of_band = !in_band || asked == Some("out-of-band") || passive || target.starts_with("unix:");
        let dscp = self.setting(row, "dscp", 0..=63, 48);
        Some(ControllerConfig {
            row: row.uuid(),
            target: target.to_string(),
            kind,
            max_backoff_ms: row.opt_int("max_backoff").map_or(8000, |n| n.max(1000).unsigned_abs()),
            inactivity_probe_ms: row.opt_int("inactivity_probe").map_or(5000, |n| n.max(0).unsigned_abs()),
            connection_mode: if out_of_band { ConnectionMode::OutOfBand } else { ConnectionMode::InBand },
            rate_limit,
            queue_size_packets: positive("controller_queue_size", 1).unwrap_or(100).min(512),
            enable_async_messages: row.opt_bool("enable_async_messages").unwrap_or(true),
            dscp: u8::try_from(dscp).unwrap_or(48),
        })
    }
}
