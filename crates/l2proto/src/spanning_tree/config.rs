//! Settings of bridges and ports, from the columns of the database.

use super::rstp::{HELLO_S, Seconds};
use super::stp::Timers;
use crate::protocol::{Columns, IgnoredSetting, LineLevel, LinkValue, Table};
use crate::saved::fields;
use flow::MacAddr;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Largest number of a port of the older protocol, and of its ports.
pub(super) const STP_PORT_MAX: u16 = 255;
/// Largest number of a port of the rapid protocol, and of its ports.
pub(super) const RSTP_PORT_MAX: u16 = 4095;
/// Priority of a bridge and of a port.
const PRIORITY: u16 = 0x8000;
const PORT_PRIORITY: u16 = 128;

/// Settings of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Settings of the bridge.
    pub bridge: BridgeSettings,
    /// Settings of the port.
    pub port: PortSettings,
}

impl Settings {
    /// Defaults: a bridge and a port without keys.
    pub(super) fn plain(is_rapid: bool) -> Settings {
        let mut ignored = Vec::new();
        let mut read = Reader { table: Table::Bridge, map: BTreeMap::new(), ignored: &mut ignored };
        match is_rapid {
            true => Settings { bridge: rstp_bridge(&mut read), port: rstp_port(&mut read) },
            false => Settings { bridge: stp_bridge(&mut read), port: stp_port(&mut read) },
        }
    }
}

/// Settings of a bridge; the address is that of the bridge unless set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BridgeSettings {
    /// The older protocol.
    Stp(Option<MacAddr>, StpBridge),
    /// The rapid protocol.
    Rstp(Option<MacAddr>, RstpBridge),
}

/// A bridge of the older protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StpBridge {
    /// Identifier: priority, and address when it is known.
    pub id: u64,
    hello_s: u64,
    max_age_s: u64,
    forward_delay_s: u64,
}

impl StpBridge {
    /// The lengths of its timers, in the order of IEEE 802.1D-1998, 8.10.2: hello time, then maximum age, then delay.
    pub(super) fn timers(&self) -> Timers {
        let hello_ms = (self.hello_s * 1000).clamp(1000, 10_000);
        let max_age_ms = (self.max_age_s * 1000).clamp((2 * (hello_ms + 1000)).max(6000), 40_000);
        let forward_delay_ms = (self.forward_delay_s * 1000).clamp(max_age_ms / 2 + 1000, 30_000);
        Timers { hello_ms, max_age_ms, forward_delay_ms }
    }
}

/// A bridge of the rapid protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RstpBridge {
    /// Identifier: priority, and address when it is known.
    pub id: u64,
    /// Whether it speaks the rapid protocol, or only the older one.
    pub is_rapid: bool,
    /// Messages that a port sends in a second at most.
    pub hold_count: u16,
    max_age_s: u16,
    forward_delay_s: u16,
}

impl RstpBridge {
    /// Settings of another process in their range.
    pub(super) fn bound(&mut self) {
        self.max_age_s = self.max_age_s.clamp(6, 40);
        self.forward_delay_s = self.forward_delay_s.clamp(4, 30);
    }

    /// Its times.
    pub(super) fn seconds(&self) -> Seconds {
        Seconds {
            message_age: 0,
            max_age: self.max_age_s,
            hello: HELLO_S,
            forward_delay: self.forward_delay_s,
        }
    }
}

fields!(RstpBridge; id, is_rapid, hold_count, max_age_s, forward_delay_s; times:);

/// Settings of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortSettings {
    /// It takes no part.
    Outside,
    /// It takes no part although it should.
    Refused(Refusal),
    /// It takes part in the older protocol.
    Stp(PortNumber),
    /// It takes part in the rapid protocol.
    Rstp(PortNumber, RstpPort),
}

/// Reason why a port takes no part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// It is a bond.
    Bond,
    /// Its interface is internal.
    Internal,
    /// It gets the copies of a mirror.
    Mirror,
    /// Its number is no number.
    Number,
    /// Another port has its number.
    Duplicate(u16),
    /// All numbers are taken.
    Many,
}

impl Refusal {
    /// The log line of a port.
    pub(super) fn line(self, port: &str, is_rapid: bool) -> (LineLevel, String) {
        let (upper, lower) = if is_rapid { ("RSTP", "rstp") } else { ("STP", "stp") };
        match self {
            Refusal::Bond => {
                (LineLevel::Error, format!("port {port}: cannot enable {upper} on bonds, disabling"))
            }
            Refusal::Internal => {
                (LineLevel::Debug, format!("port {port}: disable {upper} on internal ports"))
            }
            Refusal::Mirror => (LineLevel::Debug, format!("port {port}: disable {upper} on mirror ports")),
            Refusal::Number => (LineLevel::Error, format!("port {port}: invalid {lower}-port-num")),
            Refusal::Duplicate(number) => {
                (LineLevel::Error, format!("port {port}: duplicate {lower}-port-num {number}, disabling"))
            }
            Refusal::Many => (LineLevel::Error, format!("port {port}: too many {upper} ports, disabling")),
        }
    }
}

/// Place of a port among those of its bridge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortNumber {
    /// Configured number; `None` is any.
    pub number: Option<u16>,
    /// Priority.
    pub priority: u16,
    /// Cost of its link; `None` is by its speed.
    pub cost: Option<u32>,
}

/// More of a port of the rapid protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RstpPort {
    pub(super) admin_edge: bool,
    pub(super) auto_edge: bool,
    pub(super) mcheck: bool,
    pub(super) point_to_point: Option<bool>,
}

/// Cost of a link in the older protocol, by its speed; as in OVS, an unknown one counts as 10 Gbit/s.
pub(super) fn stp_cost(mbps: u32) -> u32 {
    match mbps {
        10_000.. | 0 => 2,
        1000.. => 4,
        100.. => 19,
        16.. => 62,
        10.. => 100,
        4.. => 250,
        _ => 19,
    }
}

/// Cost of a link in the rapid protocol: IEEE 802.1D-2004, table 17-3.
pub(super) fn rstp_cost(mbps: u32) -> u32 {
    match mbps {
        10_000_000.. => 2,
        1_000_000.. => 20,
        100_000.. => 200,
        10_000.. | 0 => 2000,
        1000.. => 20_000,
        100.. => 200_000,
        10.. => 2_000_000,
        _ => 20_000_000,
    }
}

/// Reads `other_config` of a table and collects bad values.
struct Reader<'a> {
    table: Table,
    map: BTreeMap<String, String>,
    ignored: &'a mut Vec<IgnoredSetting>,
}

impl<'a> Reader<'a> {
    fn new(columns: &dyn Columns, table: Table, ignored: &'a mut Vec<IgnoredSetting>) -> Reader<'a> {
        let map = match columns.column(table, "other_config") {
            Some(LinkValue::Map(map)) => map,
            _ => BTreeMap::new(),
        };
        Reader { table, map, ignored }
    }

    fn ignore(&mut self, key: &str, why: &str) {
        let text = self.map.get(key).cloned().unwrap_or_default();
        let place = format!("other_config:{key}");
        let message = format!("{key}={text:?} {why}: ignored");
        self.ignored.push(IgnoredSetting { table: self.table, place, message });
    }

    fn number(&mut self, key: &str, range: RangeInclusive<u64>) -> Option<u64> {
        let number = self.map.get(key)?.trim().parse().ok().filter(|n| range.contains(n));
        if number.is_none() {
            self.ignore(key, &format!("is not a number from {} to {}", range.start(), range.end()));
        }
        number
    }

    fn small(&mut self, key: &str, range: RangeInclusive<u64>) -> Option<u16> {
        self.number(key, range).and_then(|n| u16::try_from(n).ok())
    }

    /// As in OVS, any text but one of the other value counts as the default.
    fn flag(&mut self, key: &str, default: bool) -> bool {
        match self.map.get(key) {
            None => default,
            Some(text) if text.eq_ignore_ascii_case("true") => true,
            Some(text) if text.eq_ignore_ascii_case("false") => false,
            Some(_) => {
                self.ignore(key, "is neither true nor false");
                default
            }
        }
    }

    fn address(&mut self, key: &str) -> Option<MacAddr> {
        let address = MacAddr::parse(self.map.get(key)?.trim());
        if address.is_none() {
            self.ignore(key, "is not an Ethernet address");
        }
        address
    }
}

fn is_set(columns: &dyn Columns, name: &str) -> bool {
    columns.column(Table::Bridge, name) == Some(LinkValue::Flag(true))
}

fn stp_bridge(read: &mut Reader<'_>) -> BridgeSettings {
    let priority = read.small("stp-priority", 0..=0xffff).unwrap_or(PRIORITY);
    let settings = StpBridge {
        id: u64::from(priority) << 48,
        hello_s: read.number("stp-hello-time", 1..=10).unwrap_or(2),
        max_age_s: read.number("stp-max-age", 6..=40).unwrap_or(20),
        forward_delay_s: read.number("stp-forward-delay", 4..=30).unwrap_or(15),
    };
    BridgeSettings::Stp(read.address("stp-system-id"), settings)
}

fn rstp_bridge(read: &mut Reader<'_>) -> BridgeSettings {
    const STEP: u16 = 0x1000;
    let priority = read.small("rstp-priority", 0..=61_440).unwrap_or(PRIORITY) / STEP * STEP;
    let max_age = read.small("rstp-max-age", 6..=40);
    let forward_delay = read.small("rstp-forward-delay", 4..=30);
    let (mut max_age_s, mut forward_delay_s) = (20, 15);
    // Each is taken only if it fits the other: a second pass takes what fits the other's new value.
    for _ in 0..2 {
        if let Some(max_age) = max_age.filter(|max_age| 2 * (forward_delay_s - 1) >= *max_age) {
            max_age_s = max_age;
        }
        if let Some(delay) = forward_delay.filter(|delay| 2 * (delay - 1) >= max_age_s) {
            forward_delay_s = delay;
        }
    }
    for (key, wanted, used) in
        [("rstp-max-age", max_age, max_age_s), ("rstp-forward-delay", forward_delay, forward_delay_s)]
    {
        if wanted.is_some_and(|wanted| wanted != used) {
            read.ignore(key, "does not fit: twice the delay less a second is to reach the maximum age");
        }
    }
    let version = read.number("rstp-force-protocol-version", 0..=2);
    let settings = RstpBridge {
        id: u64::from(priority) << 48,
        is_rapid: version != Some(0),
        hold_count: read.small("rstp-transmit-hold-count", 1..=10).unwrap_or(6),
        max_age_s,
        forward_delay_s,
    };
    BridgeSettings::Rstp(read.address("rstp-address"), settings)
}

/// A number that OVS rejects, and the port with it.
fn has_bad_number(read: &mut Reader<'_>, key: &str, max: u16) -> Result<Option<u16>, Refusal> {
    if !read.map.contains_key(key) {
        return Ok(None);
    }
    read.small(key, 1..=u64::from(max)).map(Some).ok_or(Refusal::Number)
}

fn stp_port(read: &mut Reader<'_>) -> PortSettings {
    if !read.flag("stp-enable", true) {
        return PortSettings::Outside;
    }
    match has_bad_number(read, "stp-port-num", STP_PORT_MAX) {
        Err(refusal) => PortSettings::Refused(refusal),
        Ok(number) => PortSettings::Stp(PortNumber {
            number,
            priority: read.small("stp-port-priority", 0..=255).unwrap_or(PORT_PRIORITY),
            cost: read.small("stp-path-cost", 0..=0xffff).map(u32::from),
        }),
    }
}

fn rstp_port(read: &mut Reader<'_>) -> PortSettings {
    if !read.flag("rstp-enable", true) {
        return PortSettings::Outside;
    }
    const STEP: u16 = 16;
    match has_bad_number(read, "rstp-port-num", RSTP_PORT_MAX) {
        Err(refusal) => PortSettings::Refused(refusal),
        Ok(number) => {
            let place = PortNumber {
                number,
                priority: read.small("rstp-port-priority", 0..=240).unwrap_or(PORT_PRIORITY) / STEP * STEP,
                cost: read.number("rstp-path-cost", 1..=200_000_000).map(|cost| cost as u32),
            };
            let point_to_point = match read.number("rstp-admin-p2p-mac", 0..=2) {
                None | Some(1) => Some(true),
                Some(0) => Some(false),
                Some(_) => None,
            };
            let more = RstpPort {
                admin_edge: read.flag("rstp-port-admin-edge", false),
                auto_edge: read.flag("rstp-port-auto-edge", true),
                mcheck: read.flag("rstp-port-mcheck", false),
                point_to_point,
            };
            PortSettings::Rstp(place, more)
        }
    }
}

/// The settings of an interface; `None` without a tree in its bridge. Bad values are reported in any case.
pub(super) fn parse(columns: &dyn Columns) -> (Option<Settings>, Vec<IgnoredSetting>) {
    let (is_rapid, is_old) = (is_set(columns, "rstp_enable"), is_set(columns, "stp_enable"));
    let mut ignored = Vec::new();
    let mut read = Reader::new(columns, Table::Bridge, &mut ignored);
    let (stp, rstp) = (stp_bridge(&mut read), rstp_bridge(&mut read));
    let bridge = if is_rapid { rstp } else { stp };
    if !columns.is_local() {
        // The bridge's own port tells them once.
        ignored.clear();
    } else if is_rapid && is_old {
        let place = "stp_enable".to_string();
        let message = "a bridge has one tree: RSTP runs, and STP does not".to_string();
        ignored.push(IgnoredSetting { table: Table::Bridge, place, message });
    }
    if columns.is_local() {
        let settings = Settings { bridge, port: PortSettings::Outside };
        return ((is_rapid || is_old).then_some(settings), ignored);
    }
    let mut read = Reader::new(columns, Table::Port, &mut ignored);
    let (stp, rstp) = (stp_port(&mut read), rstp_port(&mut read));
    if !is_rapid && !is_old {
        return (None, ignored);
    }
    let is_internal =
        columns.column(Table::Interface, "type") == Some(LinkValue::Text("internal".to_string()));
    let wanted = if is_rapid { rstp } else { stp };
    let port = match wanted {
        PortSettings::Outside => PortSettings::Outside,
        _ if columns.members() > 1 => PortSettings::Refused(Refusal::Bond),
        _ if is_internal => PortSettings::Refused(Refusal::Internal),
        _ if columns.is_mirror_output() => PortSettings::Refused(Refusal::Mirror),
        port => port,
    };
    if port == PortSettings::Refused(Refusal::Bond) {
        let upper = if is_rapid { "RSTP" } else { "STP" };
        let place = if is_rapid { "other_config:rstp-enable" } else { "other_config:stp-enable" };
        let message = format!("{upper} does not run on bonds");
        ignored.push(IgnoredSetting { table: Table::Port, place: place.to_string(), message });
    }
    (Some(Settings { bridge, port }), ignored)
}
