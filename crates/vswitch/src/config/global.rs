//! [`GlobalConfig`]: settings of the whole switch (`Open_vSwitch.other_config`).

use ovsdb::client::RowView;

use super::reader::{Reader, flag, strings};
use dpif::ThreadPlan;
use std::net::SocketAddr;
use std::str::FromStr;

/// Settings of the whole switch. Names, units and defaults are those of ovs-vswitchd.conf.db(5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GlobalConfig {
    /// `flow-limit`: maximum flows in a datapath.
    pub flow_limit: u32,
    /// `max-idle`: idle timeout of datapath flows.
    pub max_idle_ms: u64,
    /// `max-revalidator`: maximum time between two revalidations.
    pub max_revalidator_ms: u64,
    /// `bundle-idle-timeout`: idle timeout of bundles of OpenFlow messages.
    pub bundle_idle_s: u64,
    /// `min-revalidate-pps`: minimum packet rate of flows worth revalidating.
    pub min_revalidate_pps: u64,
    /// `n-handler-threads`; `None` selects a default.
    pub handler_threads: Option<u32>,
    /// `n-revalidator-threads`; `None` selects a default.
    pub revalidator_threads: Option<u32>,
    /// Forwarding threads (`pmd-cpu-mask` and the other settings with prefix `pmd-`).
    pub threads: ThreadPlan,
    /// `vlan-limit`: maximum VLAN tags matched; 0 for the datapath's maximum.
    pub vlan_limit: u32,
    /// `stats-update-interval`: interval of writing statistics.
    pub stats_update_interval_ms: u64,
    /// `flow-restore-wait`: while true at the start of a datapath, keep its flows, and suspend upcalls and
    /// controllers.
    pub flow_restore_wait: bool,
    /// `hw-offload`: offload flows of ports whose devices can; a datapath that has begun continues.
    pub hw_offload: bool,
    /// `upcall-dispatch`: upcall socket dispatch mode of the kernel's datapath; `None` selects the kernel's default.
    pub upcall_dispatch: Option<UpcallDispatch>,
    /// `enable-statistics`: fill `Open_vSwitch.statistics`.
    pub enable_statistics: bool,
    /// `restore`: use of the state of the last process.
    pub restore: Restore,
    /// `metrics`: where metrics for Prometheus are served; `None`: nowhere.
    pub metrics: Option<MetricsAddress>,
    /// `ssl`: keys and certificates for TLS; `None` leaves those of the command line.
    pub ssl: Option<SslConfig>,
}

/// The row of `SSL`: files in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SslConfig {
    /// Private key.
    pub private_key: String,
    /// Certificate for that key.
    pub certificate: String,
    /// Certificate of the CA that peers' certificates must chain to.
    pub ca_cert: String,
    /// Whether a missing CA certificate is taken from the first server connected to.
    pub bootstrap_ca_cert: bool,
}

impl SslConfig {
    fn of_row(row: RowView<'_>) -> SslConfig {
        SslConfig {
            private_key: row.str("private_key").to_string(),
            certificate: row.str("certificate").to_string(),
            ca_cert: row.str("ca_cert").to_string(),
            bootstrap_ca_cert: row.bool("bootstrap_ca_cert"),
        }
    }
}

impl Default for GlobalConfig {
    fn default() -> Self {
        GlobalConfig {
            flow_limit: 200_000,
            max_idle_ms: 10_000,
            max_revalidator_ms: 500,
            bundle_idle_s: 10,
            min_revalidate_pps: 5,
            handler_threads: None,
            revalidator_threads: None,
            threads: ThreadPlan::default(),
            vlan_limit: 1,
            stats_update_interval_ms: 5000,
            flow_restore_wait: false,
            hw_offload: false,
            upcall_dispatch: None,
            enable_statistics: false,
            restore: Restore::Auto,
            metrics: None,
            ssl: None,
        }
    }
}

/// Use of the rules, groups and meters that the last process of the switch left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Restore {
    /// Restored, until a controller admits the bridge.
    #[default]
    Auto,
    /// Restored; controllers find them.
    Always,
    /// Not restored, and not kept for the next process.
    Never,
}

/// Where metrics are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricsAddress {
    /// An address and a TCP port.
    Tcp(SocketAddr),
    /// The absolute path of a socket.
    Unix(String),
}

impl FromStr for MetricsAddress {
    type Err = String;

    /// `ADDRESS:PORT`, with an IPv6 address in brackets, or `unix:PATH`.
    fn from_str(text: &str) -> Result<MetricsAddress, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            let valid = path.starts_with('/') && path.len() <= SOCKET_PATH_MAX && !path.contains('\0');
            return match valid {
                true => Ok(MetricsAddress::Unix(path.to_string())),
                false => Err(format!("unix: needs an absolute path of at most {SOCKET_PATH_MAX} bytes")),
            };
        }
        match text.parse::<SocketAddr>() {
            Ok(address) if address.port() != 0 => Ok(MetricsAddress::Tcp(address)),
            Ok(_) => Err("the port cannot be 0".to_string()),
            Err(_) => {
                Err("neither ADDRESS:PORT, such as 127.0.0.1:9105 or [::1]:9105, nor unix:PATH".to_string())
            }
        }
    }
}

/// Bytes of the path of a socket, at most (unix(7)).
const SOCKET_PATH_MAX: usize = 107;

/// Upcall socket dispatch mode of the kernel's datapath.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpcallDispatch {
    /// One socket per processor.
    PerCpu,
    /// One socket per port.
    PerPort,
}

/// Maximum threads of a kind that a row may request.
const MAX_THREADS: u64 = 1024;

impl<'a> Reader<'a> {
    /// `vlan-limit`, read as OVS does: a negative number is 0.
    fn vlan_limit(&mut self, row: RowView<'a>, default: u32) -> u32 {
        let Some(text) = row.map_str("other_config", "vlan-limit") else { return default };
        match text.trim_start().parse::<i32>() {
            Ok(n) => u32::try_from(n).unwrap_or(0),
            Err(_) => {
                let notice = format!("other_config:vlan-limit={text:?} is not a number: {default} is used");
                self.hint(row, "other_config:vlan-limit", notice);
                default
            }
        }
    }

    fn restore(&mut self, row: RowView<'a>) -> Restore {
        match row.map_str("other_config", "restore") {
            None | Some("auto") => Restore::Auto,
            Some("always") => Restore::Always,
            Some("never") => Restore::Never,
            Some(other) => {
                let notice = format!("other_config:restore={other}: there are auto, always and never");
                self.notice(row, "other_config:restore", notice);
                Restore::Auto
            }
        }
    }

    fn metrics(&mut self, row: RowView<'a>) -> Option<MetricsAddress> {
        let text = row.map_str("other_config", "metrics")?;
        let address = text.parse();
        if let Err(why) = &address {
            self.notice(row, "other_config:metrics", format!("other_config:metrics={text}: {why}"));
        }
        address.ok()
    }

    fn upcall_dispatch(&mut self, row: RowView<'a>) -> Option<UpcallDispatch> {
        match strings(row, "other_config").get("upcall-dispatch").map(String::as_str) {
            None => None,
            Some("per-cpu") => Some(UpcallDispatch::PerCpu),
            Some("per-port") => Some(UpcallDispatch::PerPort),
            Some(other) => {
                self.notice(
                    row,
                    "other_config:upcall-dispatch",
                    format!("other_config:upcall-dispatch={other}: there are per-cpu and per-port"),
                );
                None
            }
        }
    }

    pub(super) fn global(&mut self, row: RowView<'a>) -> GlobalConfig {
        let default = GlobalConfig::default();
        let u32_max = u64::from(u32::MAX);
        let narrow = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        GlobalConfig {
            flow_limit: narrow(self.setting(row, "flow-limit", 0..=u32_max, default.flow_limit.into())),
            max_idle_ms: self.setting(row, "max-idle", 500..=u32_max, default.max_idle_ms),
            max_revalidator_ms: self.setting(
                row,
                "max-revalidator",
                100..=u32_max,
                default.max_revalidator_ms,
            ),
            bundle_idle_s: self.setting(row, "bundle-idle-timeout", 1..=u32_max, default.bundle_idle_s),
            min_revalidate_pps: self.setting(
                row,
                "min-revalidate-pps",
                0..=u32_max,
                default.min_revalidate_pps,
            ),
            handler_threads: self.opt_setting(row, "n-handler-threads", 1..=MAX_THREADS).map(narrow),
            revalidator_threads: self.opt_setting(row, "n-revalidator-threads", 1..=MAX_THREADS).map(narrow),
            threads: self.thread_plan(row),
            vlan_limit: self.vlan_limit(row, default.vlan_limit),
            stats_update_interval_ms: self.setting(
                row,
                "stats-update-interval",
                5000..=u32_max,
                default.stats_update_interval_ms,
            ),
            flow_restore_wait: flag(row, "other_config", "flow-restore-wait"),
            hw_offload: flag(row, "other_config", "hw-offload"),
            upcall_dispatch: self.upcall_dispatch(row),
            enable_statistics: flag(row, "other_config", "enable-statistics")
                || flag(row, "other_config", "statistics-enable"),
            restore: self.restore(row),
            metrics: self.metrics(row),
            ssl: row.opt_uuid("ssl").and_then(|ssl| self.replica.row("SSL", ssl)).map(SslConfig::of_row),
        }
    }
}
