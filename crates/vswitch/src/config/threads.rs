//! Parses [`ThreadPlan`] from `Open_vSwitch.other_config:pmd-*` and [`RxqAffinity`] from `Interface.other_config`.
//!
//! Names, units and defaults are those of ovs-vswitchd.conf.db(5), with one exception: without `pmd-cpu-mask` there is one
//! thread, bound to no core.

use dpif::{AutoBalance, CacheSettings, RxqAffinity, RxqAssign, SleepMax, ThreadPlan};
use ovsdb::client::RowView;

use super::reader::{Reader, flag};

/// Maximum `pmd-sleep-max`, in microseconds.
const SLEEP_MAX_US: u64 = 10_000;
/// Maximum `tx-flush-interval`, in microseconds.
const FLUSH_MAX_US: u64 = 1_000_000;
/// Maximum `pmd-auto-lb-rebal-interval`, in minutes.
const INTERVAL_MAX_MIN: u64 = 20_000;
/// Maximum hexadecimal digits of a mask, to bound core numbers.
const MASK_DIGITS_MAX: usize = 1024;

impl<'a> Reader<'a> {
    pub(super) fn thread_plan(&mut self, row: RowView<'a>) -> ThreadPlan {
        let default = AutoBalance::default();
        let percent = |n: u64| u8::try_from(n).unwrap_or(100);
        let assign = self.rxq_assign(row);
        ThreadPlan {
            cores: self.cpu_mask(row),
            assign,
            isolate: self.rxq_isolate(row, assign),
            balance: AutoBalance {
                enabled: flag(row, "other_config", "pmd-auto-lb"),
                interval_min: self.setting(
                    row,
                    "pmd-auto-lb-rebal-interval",
                    0..=INTERVAL_MAX_MIN,
                    default.interval_min.into(),
                ) as u32,
                load_threshold_percent: percent(self.setting(
                    row,
                    "pmd-auto-lb-load-threshold",
                    0..=100,
                    default.load_threshold_percent.into(),
                )),
                improvement_threshold_percent: percent(self.setting(
                    row,
                    "pmd-auto-lb-improvement-threshold",
                    0..=100,
                    default.improvement_threshold_percent.into(),
                )),
            },
            sleep: self.sleep_max(row),
            fast_wakeup: row
                .map_str("other_config", "pmd-fast-wakeup")
                .is_none_or(|text| !text.eq_ignore_ascii_case("false")),
            flush_us: self.setting(row, "tx-flush-interval", 0..=FLUSH_MAX_US, 0),
            cache: self.cache_settings(row),
            perf_metrics: flag(row, "other_config", "pmd-perf-metrics"),
        }
    }

    fn cache_settings(&mut self, row: RowView<'a>) -> CacheSettings {
        let is_set = |key| row.map_str("other_config", key).is_some();
        let insert = "emc-insert-inv-prob";
        CacheSettings {
            emc_insert_inv_prob: is_set(insert)
                .then(|| self.setting(row, insert, 0..=u32::MAX.into(), 1) as u32),
            smc_enable: is_set("smc-enable").then(|| flag(row, "other_config", "smc-enable")),
        }
    }

    fn cpu_mask(&mut self, row: RowView<'a>) -> Option<Vec<u16>> {
        let text = row.map_str("other_config", "pmd-cpu-mask")?;
        let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
        let bits = |(place, digit): (usize, char)| {
            let digit = digit.to_digit(16).unwrap_or(0);
            (0..4).filter(move |bit| digit >> bit & 1 == 1).map(move |bit| (4 * place + bit) as u16)
        };
        let hex = digits.bytes().all(|b| b.is_ascii_hexdigit()) && digits.len() <= MASK_DIGITS_MAX;
        let cores: Vec<u16> =
            if hex { digits.chars().rev().enumerate().flat_map(bits).collect() } else { Vec::new() };
        if cores.is_empty() {
            self.notice(
                row,
                "other_config:pmd-cpu-mask",
                format!("other_config:pmd-cpu-mask={text:?} names no core in hexadecimal: ignored"),
            );
            return None;
        }
        Some(cores)
    }

    fn rxq_assign(&mut self, row: RowView<'a>) -> RxqAssign {
        let Some(text) = row.map_str("other_config", "pmd-rxq-assign") else { return RxqAssign::default() };
        let known = RxqAssign::ALL.into_iter().find(|a| a.name() == text);
        if known.is_none() {
            self.notice(
                row,
                "other_config:pmd-rxq-assign",
                "Unsupported rx queue to PMD assignment mode in pmd-rxq-assign. Defaulting to 'cycles'.",
            );
        }
        known.unwrap_or_default()
    }

    fn rxq_isolate(&mut self, row: RowView<'a>, assign: RxqAssign) -> bool {
        let text = row.map_str("other_config", "pmd-rxq-isolate");
        let isolate = !text.is_some_and(|t| t.eq_ignore_ascii_case("false"));
        if !isolate && assign != RxqAssign::Group {
            self.notice(
                row,
                "other_config:pmd-rxq-isolate",
                "pmd-rxq-isolate can only be set false when using pmd-rxq-assign=group",
            );
            return true;
        }
        isolate
    }

    fn sleep_max(&mut self, row: RowView<'a>) -> SleepMax {
        let mut sleep = SleepMax::default();
        let Some(text) = row.map_str("other_config", "pmd-sleep-max") else {
            return self.older_sleep_max(row);
        };
        for part in text.split(',') {
            let (core, us) = part.trim().split_once(':').map_or((None, part), |(c, us)| (Some(c), us));
            let core = core.map(|c| c.trim().parse::<u16>());
            let us = us.trim().parse::<u64>();
            let (Ok(us), Ok(core)) = (us, core.transpose()) else {
                self.hint(
                    row,
                    "other_config:pmd-sleep-max",
                    format!("other_config:pmd-sleep-max={text:?}: {part:?} is neither microseconds nor core:microseconds: ignored"),
                );
                continue;
            };
            let used = us.min(SLEEP_MAX_US);
            if used != us {
                self.hint(
                    row,
                    "other_config:pmd-sleep-max",
                    format!("other_config:pmd-sleep-max={text:?}: the most is {SLEEP_MAX_US}, which is used"),
                );
            }
            match core {
                None => sleep.default_us = used,
                Some(core) => drop(sleep.by_core.insert(core, used)),
            }
        }
        sleep
    }

    /// The older setting: one length for all cores.
    fn older_sleep_max(&mut self, row: RowView<'a>) -> SleepMax {
        const KEY: &str = "other_config:pmd-maxsleep";
        let Some(text) = row.map_str("other_config", "pmd-maxsleep") else { return SleepMax::default() };
        let us = text.trim().parse::<u64>().ok();
        let told = match us {
            None => "not a number of microseconds: ignored".to_string(),
            Some(us) if us > SLEEP_MAX_US => format!("the most is {SLEEP_MAX_US}, which is used"),
            Some(_) => "an older name of pmd-sleep-max, which replaces it".to_string(),
        };
        self.hint(row, KEY, format!("{KEY}={text:?}: {told}"));
        SleepMax { default_us: us.unwrap_or(0).min(SLEEP_MAX_US), ..SleepMax::default() }
    }

    /// The queues that an interface pins to cores.
    pub(super) fn rxq_affinity(&mut self, row: RowView<'a>) -> RxqAffinity {
        let mut affinity = RxqAffinity::new();
        let Some(text) = row.map_str("other_config", "pmd-rxq-affinity") else { return affinity };
        for part in text.split(',').filter(|part| !part.trim().is_empty()) {
            let pair = part.split_once(':').and_then(|(queue, core)| {
                Some((queue.trim().parse::<u16>().ok()?, core.trim().parse::<u16>().ok()?))
            });
            match pair {
                Some((queue, core)) => drop(affinity.insert(queue, core)),
                None => {
                    self.notice(
                        row,
                        "other_config:pmd-rxq-affinity",
                        format!("other_config:pmd-rxq-affinity={text:?}: {part:?} is not queue:core: the interface is not pinned"),
                    );
                    return RxqAffinity::new();
                }
            }
        }
        affinity
    }
}
