//! [`ThreadPlan`]: forwarding threads and the assignment of receive queues to them, as configured by
//! `other_config:pmd-*`.

use std::collections::BTreeMap;

/// Assignment policy of receive queues (`pmd-rxq-assign`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RxqAssign {
    /// Round robin, in the order of ports and queues.
    RoundRobin,
    /// By measured load in descending order, round robin in alternating direction.
    #[default]
    Cycles,
    /// By measured load in descending order, each to the least loaded thread.
    Group,
}

impl RxqAssign {
    /// All of them.
    pub const ALL: [RxqAssign; 3] = [RxqAssign::RoundRobin, RxqAssign::Cycles, RxqAssign::Group];

    /// Its name in the database.
    pub fn name(self) -> &'static str {
        match self {
            RxqAssign::RoundRobin => "roundrobin",
            RxqAssign::Cycles => "cycles",
            RxqAssign::Group => "group",
        }
    }
}

/// Automatic load balancing (`pmd-auto-lb*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AutoBalance {
    /// `pmd-auto-lb`.
    pub enabled: bool,
    /// `pmd-auto-lb-rebal-interval`: minimum time between two dry runs, in minutes.
    pub interval_min: u32,
    /// `pmd-auto-lb-load-threshold`: minimum load of an overloaded thread, in percent.
    pub load_threshold_percent: u8,
    /// `pmd-auto-lb-improvement-threshold`: minimum improvement of the loads' variance, in percent.
    pub improvement_threshold_percent: u8,
}

impl Default for AutoBalance {
    fn default() -> Self {
        AutoBalance {
            enabled: false,
            interval_min: 1,
            load_threshold_percent: 95,
            improvement_threshold_percent: 25,
        }
    }
}

/// Longest timed sleep between two polls under load (`pmd-sleep-max`), in microseconds. A thread without traffic sleeps in
/// the kernel whatever this says.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SleepMax {
    /// For threads without their own value.
    pub default_us: u64,
    /// By core.
    pub by_core: BTreeMap<u16, u64>,
}

impl SleepMax {
    /// The value for the thread of a core.
    pub fn of(&self, core: u16) -> u64 {
        self.by_core.get(&core).copied().unwrap_or(self.default_us)
    }
}

/// The settings of the stock switch's flow caches; `None` if not set. `datapath::PmdTuning` maps them to ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CacheSettings {
    /// `emc-insert-inv-prob`.
    pub emc_insert_inv_prob: Option<u32>,
    /// `smc-enable`.
    pub smc_enable: Option<bool>,
}

/// The configured forwarding threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadPlan {
    /// `pmd-cpu-mask`: one thread on each of these cores that exists, ascending; `None` for one unbound thread.
    pub cores: Option<Vec<u16>>,
    /// `pmd-rxq-assign`.
    pub assign: RxqAssign,
    /// `pmd-rxq-isolate`: a thread with a pinned queue polls only pinned queues. Can be false only with
    /// [`RxqAssign::Group`].
    pub isolate: bool,
    /// `pmd-auto-lb` and related settings.
    pub balance: AutoBalance,
    /// `pmd-sleep-max`.
    pub sleep: SleepMax,
    /// `pmd-fast-wakeup`, specific to this switch: keep processors from deep idle states during traffic.
    pub fast_wakeup: bool,
    /// `tx-flush-interval`: microseconds that packets wait for others to be sent with.
    pub flush_us: u64,
    /// `emc-insert-inv-prob`, `smc-enable`.
    pub cache: CacheSettings,
    /// `pmd-perf-metrics`: threads keep histograms and histories of their iterations.
    pub perf_metrics: bool,
}

impl Default for ThreadPlan {
    fn default() -> Self {
        ThreadPlan {
            cores: None,
            assign: RxqAssign::default(),
            isolate: true,
            balance: AutoBalance::default(),
            sleep: SleepMax::default(),
            fast_wakeup: true,
            flush_us: 0,
            cache: CacheSettings::default(),
            perf_metrics: false,
        }
    }
}

/// Queues of an interface pinned to cores (`pmd-rxq-affinity`), by queue.
pub type RxqAffinity = BTreeMap<u16, u16>;

/// A NUMA node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Numa(pub u16);

/// A forwarding thread, for display.
#[derive(Clone, PartialEq, Debug)]
pub struct ThreadInfo {
    /// Its core.
    pub core: u16,
    /// The core's node.
    pub numa: Numa,
    /// Whether it is isolated: polls only pinned queues.
    pub isolated: bool,
    /// Its `pmd-sleep-max`, in microseconds.
    pub sleep_max_us: u64,
    /// Its receive queues, in the order of ports and queues.
    pub queues: Vec<QueueInfo>,
    /// Share of its time spent on packets and operations, 0 to 1; `None`: not measured yet.
    pub busy: Option<f64>,
}

/// A receive queue, for display.
#[derive(Clone, PartialEq, Debug)]
pub struct QueueInfo {
    /// Name of the port.
    pub port: String,
    /// Number among the port's queues.
    pub queue: u16,
    /// Share of the thread's time spent on its packets, 0 to 1; `None`: not measured yet.
    pub usage: Option<f64>,
}

/// Iterations of a thread since its counters were cleared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Iterations {
    /// All of them.
    pub all: u64,
    /// Those with packets or operations.
    pub busy: u64,
    /// Sleeps.
    pub sleeps: u64,
    /// Time slept, in microseconds.
    pub slept_us: u64,
}

/// Logging of suspicious iterations, with their neighbours (`pmd-perf-log-set`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PerfLog {
    /// Whether logging is enabled.
    pub on: bool,
    /// Iterations logged before a suspicious one.
    pub before: usize,
    /// Iterations logged after it.
    pub after: usize,
    /// A suspicious iteration among those after it extends them.
    pub extend: bool,
    /// Duration beyond which an iteration is suspicious.
    pub longer_than_us: u64,
}

impl PerfLog {
    /// Number of stored iterations, and of milliseconds.
    pub const HISTORY_LEN: usize = 1000;
}

impl Default for PerfLog {
    fn default() -> PerfLog {
        PerfLog { on: false, before: 5, after: 5, extend: false, longer_than_us: 250 }
    }
}

/// Arguments of `pmd-perf-show`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PerfQuery {
    /// Thread of this core, or all.
    pub core: Option<u16>,
    /// Iterations to list, at most [`PerfLog::HISTORY_LEN`].
    pub iterations: usize,
    /// Milliseconds to list, at most [`PerfLog::HISTORY_LEN`].
    pub milliseconds: usize,
    /// Whether histograms are shown.
    pub histograms: bool,
    /// Time of day for the heading.
    pub time: String,
}
