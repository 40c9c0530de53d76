//! [`GlobalConfig`]: settings of the whole switch (`Open_vSwitch.other_config`).

use ovsdb::client::RowView;

use super::StringMap;
use super::reader::{Reader, flag, strings};
use dpif::ThreadPlan;

/// Settings of the whole switch. Names, units and defaults are those of ovs-vswitchd.conf.db(5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GlobalConfig {
    /// `flow-limit`: most flows in a datapath.
    pub flow_limit: u32,
    /// `max-idle`: how long an unused datapath flow stays.
    pub max_idle_ms: u64,
    /// `max-revalidator`: longest time between two revalidations.
    pub max_revalidator_ms: u64,
    /// `min-revalidate-pps`: flows slower than this are not worth revalidating.
    pub min_revalidate_pps: u64,
    /// `n-handler-threads`; `None` leaves it to the switch.
    pub handler_threads: Option<u32>,
    /// `n-revalidator-threads`; `None` leaves it to the switch.
    pub revalidator_threads: Option<u32>,
    /// Forwarding threads (`pmd-cpu-mask` and the other settings that begin with `pmd-`).
    pub threads: ThreadPlan,
    /// `vlan-limit`: most VLAN tags that are matched; 0 for as many as the datapath can.
    pub vlan_limit: u32,
    /// `stats-update-interval`: how often statistics are written.
    pub stats_update_interval_ms: u64,
    /// `userspace-tso-enable`: offloads are always on, so it changes nothing.
    pub userspace_tso_enable: bool,
    /// `flow-restore-wait`: when a datapath starts, its flows stay as they are, and upcalls and controllers rest until it is
    /// false.
    pub flow_restore_wait: bool,
    /// `upcall-dispatch`: which sockets the kernel's datapath hands packets up by; `None` leaves it to the kernel.
    pub upcall_dispatch: Option<UpcallDispatch>,
    /// `enable-statistics`: fill `Open_vSwitch.statistics`.
    pub enable_statistics: bool,
    /// All of `other_config`, for settings of single parts of the switch.
    pub other_config: StringMap,
}

impl Default for GlobalConfig {
    fn default() -> Self {
        GlobalConfig {
            flow_limit: 200_000,
            max_idle_ms: 10_000,
            max_revalidator_ms: 500,
            min_revalidate_pps: 5,
            handler_threads: None,
            revalidator_threads: None,
            threads: ThreadPlan::default(),
            vlan_limit: 1,
            stats_update_interval_ms: 5000,
            userspace_tso_enable: false,
            flow_restore_wait: false,
            upcall_dispatch: None,
            enable_statistics: false,
            other_config: StringMap::new(),
        }
    }
}

/// Which sockets the kernel's datapath hands packets up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpcallDispatch {
    /// One for each processor.
    PerCpu,
    /// One for each port.
    PerPort,
}

/// Most threads of a kind that a row may ask for.
const MAX_THREADS: u64 = 1024;

impl<'a> Reader<'a> {
    fn upcall_dispatch(&mut self, row: RowView<'a>) -> Option<UpcallDispatch> {
        match strings(row, "other_config").get("upcall-dispatch").map(String::as_str) {
            None => None,
            Some("per-cpu") => Some(UpcallDispatch::PerCpu),
            Some("per-port") => Some(UpcallDispatch::PerPort),
            Some(other) => {
                self.notice(
                    row,
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
            min_revalidate_pps: self.setting(
                row,
                "min-revalidate-pps",
                0..=u32_max,
                default.min_revalidate_pps,
            ),
            handler_threads: self.opt_setting(row, "n-handler-threads", 1..=MAX_THREADS).map(narrow),
            revalidator_threads: self.opt_setting(row, "n-revalidator-threads", 1..=MAX_THREADS).map(narrow),
            threads: self.thread_plan(row),
            vlan_limit: narrow(self.setting(row, "vlan-limit", 0..=u32_max, default.vlan_limit.into())),
            stats_update_interval_ms: self.setting(
                row,
                "stats-update-interval",
                5000..=u32_max,
                default.stats_update_interval_ms,
            ),
            userspace_tso_enable: flag(row, "other_config", "userspace-tso-enable"),
            flow_restore_wait: flag(row, "other_config", "flow-restore-wait"),
            upcall_dispatch: self.upcall_dispatch(row),
            enable_statistics: flag(row, "other_config", "enable-statistics")
                || flag(row, "other_config", "statistics-enable"),
            other_config: strings(row, "other_config"),
        }
    }
}
