//! [`ControllerConfig`], [`ManagerConfig`]: peers to connect to or to listen for.

use connmgr::RateLimit;
use ovsdb::client::RowView;
use ovsdb::value::Uuid;
use std::net::Ipv4Addr;

use super::reader::Reader;

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
    /// DSCP of its connections, from 0 to 63.
    pub dscp: u8,
    /// Address that the bridge's own device gets for it.
    pub local: Option<LocalAddress>,
}

/// An address of the device of a bridge (`local_ip`, `local_netmask`, `local_gateway`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalAddress {
    /// The address.
    pub ip: Ipv4Addr,
    /// Length of its network's prefix.
    pub prefix_bits: u8,
    /// Default gateway.
    pub gateway: Option<Ipv4Addr>,
}

/// A row of `Manager`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagerConfig {
    /// Target to listen at or to connect to.
    pub target: String,
    /// `max_backoff`; `None` for the default.
    pub max_backoff_ms: Option<u64>,
    /// `inactivity_probe`; `None` for the default of its kind.
    pub probe_ms: Option<u64>,
    /// `other_config:dscp`, or its default.
    pub dscp: u8,
    /// Its connection may pass through a bridge (`connection_mode`).
    pub in_band: bool,
}

/// Length of the prefix of an address without a mask: that of its class, as in OVS.
fn class_prefix_bits(ip: Ipv4Addr) -> u8 {
    match ip.octets()[0] {
        0..=127 => 8,
        128..=191 => 16,
        192..=223 => 24,
        224.. => 0,
    }
}

impl ControllerConfig {
    /// Whether the switch waits for this controller to connect.
    pub fn is_passive(&self) -> bool {
        self.target.starts_with('p')
    }
}

/// DSCP of connections to controllers and managers without a setting: that of network control (class selector 6).
const DEFAULT_DSCP: u8 = 48;

/// The DSCP of the connections of a row of `Controller` or `Manager` (`other_config:dscp`), from 0 to 63.
///
/// # Errors
/// The complaint about another value, for which 48 applies.
pub fn connection_dscp(row: RowView<'_>) -> Result<u8, String> {
    let Some(text) = row.map_str("other_config", "dscp") else { return Ok(DEFAULT_DSCP) };
    let dscp = text.trim().parse::<u8>().ok().filter(|dscp| *dscp < 64);
    dscp.ok_or_else(|| {
        format!("other_config:dscp={text:?} is not a number from 0 to 63: {DEFAULT_DSCP} is used")
    })
}

const KNOWN_TARGETS: [&str; 6] = ["tcp:", "ptcp:", "ssl:", "pssl:", "unix:", "punix:"];

impl<'a> Reader<'a> {
    /// A controller, or a notice about the reason for not serving it. Without `in_band`, in-band controllers are
    /// treated as out-of-band.
    pub(super) fn controller(&mut self, row: RowView<'a>, in_band: bool) -> Option<ControllerConfig> {
        let target = row.str("target");
        if !KNOWN_TARGETS.iter().any(|prefix| target.starts_with(prefix)) {
            self.notice(
                row,
                "target",
                format!("{target:?} does not say how to reach a controller: left out"),
            );
            return None;
        }
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
        let local = self.local_address(row);
        let dscp = connection_dscp(row).unwrap_or_else(|complaint| {
            self.notice(row, "other_config:dscp", complaint);
            DEFAULT_DSCP
        });
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
            dscp,
            local,
        })
    }

    /// A manager. A target that says nothing has a notice, and the database server refuses it.
    pub(super) fn manager(&mut self, row: RowView<'a>) -> ManagerConfig {
        let target = row.str("target");
        if !KNOWN_TARGETS.iter().any(|prefix| target.starts_with(prefix)) {
            self.notice(row, "target", format!("{target:?} does not say how to reach a manager: left out"));
        }
        let dscp = connection_dscp(row).unwrap_or_else(|complaint| {
            self.notice(row, "other_config:dscp", complaint);
            DEFAULT_DSCP
        });
        let ms = |column: &str| row.opt_int(column).map(|ms| ms.max(0).unsigned_abs());
        ManagerConfig {
            target: target.to_string(),
            max_backoff_ms: ms("max_backoff"),
            probe_ms: ms("inactivity_probe"),
            dscp,
            in_band: row.opt_str("connection_mode") != Some("out-of-band"),
        }
    }

    /// The address of the bridge's device, or notices about columns that are no addresses.
    fn local_address(&mut self, row: RowView<'a>) -> Option<LocalAddress> {
        let mut parsed = |column: &str| -> Option<Ipv4Addr> {
            let text = row.opt_str(column)?;
            let address = text.parse::<Ipv4Addr>().ok().filter(|ip| !ip.is_unspecified());
            if address.is_none() {
                self.notice(row, column, format!("{column} {text:?} is no IPv4 address: ignored"));
            }
            address
        };
        let (ip, mask, gateway) = (parsed("local_ip"), parsed("local_netmask"), parsed("local_gateway"));
        let ip = ip?;
        let is_mask = |mask: &Ipv4Addr| mask.to_bits().leading_ones() + mask.to_bits().trailing_zeros() == 32;
        if let Some(mask) = mask.filter(|mask| !is_mask(mask)) {
            self.notice(row, "local_netmask", format!("local_netmask {mask} is no mask: ignored"));
        }
        let bits = mask.filter(is_mask).and_then(|mask| u8::try_from(mask.to_bits().leading_ones()).ok());
        Some(LocalAddress { ip, prefix_bits: bits.unwrap_or_else(|| class_prefix_bits(ip)), gateway })
    }
}
