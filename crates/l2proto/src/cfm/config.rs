//! Settings of a session: `cfm_mpid` and keys `cfm_…` of `other_config` in the table `Interface`.

use crate::protocol::{Columns, IgnoredSetting, LinkValue, Table};
use std::collections::BTreeMap;

/// Milliseconds of the codes 1 to 7 (IEEE 802.1ag §21.6.1.3).
const CODED_MS: [u32; 7] = [3, 10, 100, 1000, 10_000, 60_000, 600_000];
/// Interval by default.
const DEFAULT_MS: u32 = 1000;
/// Largest identifier without `cfm_extended`.
const MPID_MAX: u64 = 8191;
/// Largest extended interval without a code.
const EXTENDED_MS_MAX: u32 = 65_535;

/// The VLAN of messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Vlan {
    /// This one; 0 is none.
    Fixed(u16),
    /// Another one for each message.
    Random,
}

/// Settings of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Identifier of this maintenance point, at least 1.
    pub mpid: u64,
    /// Interval between two messages.
    pub interval_ms: u32,
    /// Its code; 0 for an extended one without a code.
    pub interval: u8,
    /// Whether messages are extended (`cfm_extended`).
    pub is_extended: bool,
    /// Whether received packets count as messages (`cfm_demand`).
    pub is_demand: bool,
    /// Whether this maintenance point is operationally up (`cfm_opstate`).
    pub is_up: bool,
    /// VLAN of sent messages (`cfm_ccm_vlan`).
    pub vlan: Vlan,
    /// Their priority (`cfm_ccm_pcp`), 3 bits.
    pub pcp: u8,
}

impl Config {
    /// Settings with defaults.
    pub fn new(mpid: u64) -> Config {
        Config {
            mpid,
            interval_ms: DEFAULT_MS,
            interval: 4,
            is_extended: false,
            is_demand: false,
            is_up: true,
            vlan: Vlan::Fixed(0),
            pcp: 0,
        }
    }

    /// Sets the interval. The next lower one with a code replaces it, or any in extended mode up to a limit.
    pub fn set_interval(&mut self, wanted_ms: u32) {
        let longest = CODED_MS.iter().rposition(|ms| *ms <= wanted_ms).unwrap_or(0);
        (self.interval, self.interval_ms) = (longest as u8 + 1, CODED_MS[longest]);
        if self.is_extended && self.interval_ms != wanted_ms {
            (self.interval, self.interval_ms) = (0, wanted_ms.min(EXTENDED_MS_MAX));
        }
    }

    /// Reads the settings of an interface: `None` without a session.
    pub fn parse(columns: &dyn Columns) -> (Option<Config>, Vec<IgnoredSetting>) {
        let Some(LinkValue::Integer(mpid)) = columns.column(Table::Interface, "cfm_mpid") else {
            return (None, Vec::new());
        };
        let map = match columns.column(Table::Interface, "other_config") {
            Some(LinkValue::Map(map)) => map,
            _ => BTreeMap::new(),
        };
        let mut reader = Reader { map: &map, ignored: Vec::new() };
        // As in OVS the bits of a negative number are those of a large one.
        let mut config = Config::new(mpid as u64);
        config.is_extended = reader.flag("cfm_extended");
        config.is_demand = reader.flag("cfm_demand");
        if config.is_demand && !config.is_extended {
            reader.ignore("cfm_demand", "needs other_config:cfm_extended=true");
            config.is_demand = false;
        }
        config.set_interval(reader.interval());
        config.is_up = reader.is_up();
        config.vlan = reader.vlan();
        config.pcp = reader.pcp();
        let mut ignored = reader.ignored;
        if config.mpid == 0 || !config.is_extended && config.mpid > MPID_MAX {
            ignored.push(IgnoredSetting {
                table: Table::Interface,
                place: "cfm_mpid".to_string(),
                message: format!(
                    "cfm_mpid={mpid}: ignored: give 1 to {MPID_MAX}, or another with other_config:cfm_extended=true"
                ),
            });
            return (None, ignored);
        }
        (Some(config), ignored)
    }
}

/// Reads keys, and collects notices.
struct Reader<'a> {
    map: &'a BTreeMap<String, String>,
    ignored: Vec<IgnoredSetting>,
}

impl<'a> Reader<'a> {
    fn get(&self, key: &str) -> Option<&'a str> {
        self.map.get(key).map(String::as_str)
    }

    fn ignore(&mut self, key: &str, reason: &str) {
        let value = self.get(key).unwrap_or_default();
        let message = format!("other_config:{key}={value}: ignored: {reason}");
        self.ignored.push(IgnoredSetting {
            table: Table::Interface,
            place: format!("other_config:{key}"),
            message,
        });
    }

    /// `true` in any case of letters; another value is false.
    fn flag(&mut self, key: &str) -> bool {
        let Some(value) = self.get(key) else { return false };
        if !value.eq_ignore_ascii_case("true") && !value.eq_ignore_ascii_case("false") {
            self.ignore(key, "give true or false");
        }
        value.eq_ignore_ascii_case("true")
    }

    fn interval(&mut self) -> u32 {
        let key = "cfm_interval";
        let Some(value) = self.get(key) else { return DEFAULT_MS };
        match value.trim_start().parse::<i32>().map(u32::try_from) {
            Ok(Ok(ms @ 1..)) => ms,
            _ => {
                self.ignore(key, "give milliseconds, at least 1");
                DEFAULT_MS
            }
        }
    }

    /// `up` in any case of letters, or no value.
    fn is_up(&mut self) -> bool {
        let key = "cfm_opstate";
        let Some(value) = self.get(key) else { return true };
        if !value.eq_ignore_ascii_case("up") && !value.eq_ignore_ascii_case("down") {
            self.ignore(key, "give up or down");
        }
        value.eq_ignore_ascii_case("up")
    }

    /// As in OVS a number counts by its low 12 bits.
    fn vlan(&mut self) -> Vlan {
        let key = "cfm_ccm_vlan";
        match self.get(key) {
            None => Vlan::Fixed(0),
            Some(value) if value.eq_ignore_ascii_case("random") => Vlan::Random,
            Some(value) => {
                let number = value.trim_start().parse::<i32>().ok();
                if !number.is_some_and(|number| (0..=4095).contains(&number)) {
                    self.ignore(key, "give a VLAN from 1 to 4095, or random");
                }
                // 65535 is the number of "random", which only the word selects.
                Vlan::Fixed(number.filter(|number| *number as u16 != u16::MAX).unwrap_or(0) as u16 & 0xfff)
            }
        }
    }

    /// As in OVS a number counts by its low three bits.
    fn pcp(&mut self) -> u8 {
        let key = "cfm_ccm_pcp";
        let Some(value) = self.get(key) else { return 0 };
        let number = value.trim_start().parse::<i32>().ok();
        if !number.is_some_and(|number| (0..=7).contains(&number)) {
            self.ignore(key, "give a priority from 1 to 7");
        }
        number.unwrap_or(0) as u8 & 7
    }
}
