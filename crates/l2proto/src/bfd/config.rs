//! Settings of a session: the column `bfd` of the table `Interface`, as a typed value.
//!
//! As in OVS a bad value counts as absent. OVS logs only some of them; [`Config::parse`] returns a warning for each.
//! Unknown keys are ignored. An interval above `i32::MAX` ms is a bad value.

use super::claim::Claim;
use super::frame::{DEFAULT_DST_IP, DEFAULT_SRC_IP};
use flow::MacAddr;
use flow::text::parse_ipv4;
use std::collections::BTreeMap;

/// Default of `min_rx`, milliseconds.
const MIN_RX_MS: i32 = 1000;
/// Default of `min_tx`, milliseconds.
const MIN_TX_MS: i32 = 100;
/// Default of `mult`.
const MULTIPLIER: u8 = 3;

/// The settings of one session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Whether there is a session (`enable`).
    pub enable: bool,
    /// Smallest interval between received packets, milliseconds, at least 1 (`min_rx`).
    pub min_rx_ms: u32,
    /// Interval between sent packets, milliseconds, at least 1 (`min_tx`).
    pub min_tx_ms: u32,
    /// `min_rx_ms` of an idle interface, 0 for no change; not below `min_rx_ms` (`decay_min_rx`).
    pub decay_min_rx_ms: u32,
    /// Whether received data counts as a sign of life (`forwarding_if_rx`).
    pub forwarding_if_rx: bool,
    /// Whether to signal a failed path behind this system (`cpath_down`).
    pub cpath_down: bool,
    /// Whether only packets with tunnel key 0 are for the session (`check_tnl_key`).
    pub check_tnl_key: bool,
    /// Whether tunnels mark sent packets as control packets (`oam`).
    pub oam: bool,
    /// Lost packets that end the session at the other system, 1 to 255 (`mult`).
    pub multiplier: u8,
    /// Ethernet source of sent packets; that of the port if `None` (`bfd_local_src_mac`).
    pub local_src_mac: Option<MacAddr>,
    /// Ethernet destination of sent packets (`bfd_local_dst_mac`).
    pub local_dst_mac: Option<MacAddr>,
    /// The only Ethernet destination of received packets (`bfd_remote_dst_mac`).
    pub remote_dst_mac: Option<MacAddr>,
    /// IPv4 source of sent packets; unless it is the default, the only destination of received ones (`bfd_src_ip`).
    pub src_ip: u32,
    /// IPv4 destination of sent packets (`bfd_dst_ip`).
    pub dst_ip: u32,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            enable: false,
            min_rx_ms: MIN_RX_MS as u32,
            min_tx_ms: MIN_TX_MS as u32,
            decay_min_rx_ms: 0,
            forwarding_if_rx: false,
            cpath_down: false,
            check_tnl_key: false,
            oam: false,
            multiplier: MULTIPLIER,
            local_src_mac: None,
            local_dst_mac: None,
            remote_dst_mac: None,
            src_ip: DEFAULT_SRC_IP,
            dst_ip: DEFAULT_DST_IP,
        }
    }
}

impl Config {
    /// The settings of a map, and a warning for each value that it ignores, by key.
    pub fn parse(map: &BTreeMap<String, String>) -> (Config, Vec<(String, String)>) {
        let mut reader = Reader { map, warnings: Vec::new() };
        let min_rx_ms = reader.interval("min_rx", MIN_RX_MS).max(1);
        let config = Config {
            enable: reader.flag("enable"),
            min_rx_ms,
            min_tx_ms: reader.interval("min_tx", MIN_TX_MS).max(1),
            decay_min_rx_ms: reader.decay(min_rx_ms),
            forwarding_if_rx: reader.flag("forwarding_if_rx"),
            cpath_down: reader.flag("cpath_down"),
            check_tnl_key: reader.flag("check_tnl_key"),
            oam: reader.flag("oam"),
            multiplier: reader.multiplier(),
            local_src_mac: reader.mac("bfd_local_src_mac"),
            local_dst_mac: reader.mac("bfd_local_dst_mac"),
            remote_dst_mac: reader.mac("bfd_remote_dst_mac"),
            src_ip: reader.address("bfd_src_ip", DEFAULT_SRC_IP),
            dst_ip: reader.address("bfd_dst_ip", DEFAULT_DST_IP),
        };
        (config, reader.warnings)
    }

    /// Which packets belong to a session with these settings.
    pub fn claim(&self) -> Claim {
        Claim { remote_dst_mac: self.remote_dst_mac, src_ip: self.src_ip, check_tnl_key: self.check_tnl_key }
    }
}

/// Reads values, and collects warnings.
struct Reader<'a> {
    map: &'a BTreeMap<String, String>,
    warnings: Vec<(String, String)>,
}

impl<'a> Reader<'a> {
    fn get(&self, key: &str) -> Option<&'a str> {
        self.map.get(key).map(String::as_str)
    }

    fn ignore(&mut self, key: &str, reason: &str) {
        let value = self.get(key).unwrap_or_default();
        self.warnings.push((key.to_string(), format!("bfd:{key}={value}: ignored: {reason}")));
    }

    /// `true` in any case of letters; another value is false.
    fn flag(&mut self, key: &str) -> bool {
        let Some(value) = self.get(key) else { return false };
        if !value.eq_ignore_ascii_case("true") && !value.eq_ignore_ascii_case("false") {
            self.ignore(key, "give true or false");
        }
        value.eq_ignore_ascii_case("true")
    }

    /// A decimal number as `strtol` reads it, to its end; `None` if absent or bad.
    fn number(&mut self, key: &str) -> Option<i32> {
        let value = self.get(key)?;
        let number = value.trim_start_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']).parse().ok();
        if number.is_none() {
            self.ignore(key, "give a decimal number of 32 bits");
        }
        number
    }

    fn interval(&mut self, key: &str, default: i32) -> u32 {
        self.number(key).unwrap_or(default).try_into().unwrap_or(0)
    }

    fn decay(&mut self, min_rx_ms: u32) -> u32 {
        let decay_ms = self.interval("decay_min_rx", 0);
        if decay_ms > 0 && decay_ms < min_rx_ms {
            self.ignore("decay_min_rx", &format!("decay_min_rx cannot be less than {min_rx_ms} ms"));
            return 0;
        }
        decay_ms
    }

    fn multiplier(&mut self) -> u8 {
        let Some(number) = self.number("mult") else { return MULTIPLIER };
        match u8::try_from(number) {
            Ok(multiplier @ 1..) => multiplier,
            _ => {
                self.ignore("mult", "give a number from 1 to 255");
                MULTIPLIER
            }
        }
    }

    /// The address 00:00:00:00:00:00 is that of no setting.
    fn mac(&mut self, key: &str) -> Option<MacAddr> {
        let mac = MacAddr::parse(self.get(key)?);
        if mac.is_none() {
            self.ignore(key, "give an Ethernet address, as in 00:23:20:00:00:01");
        }
        mac.filter(|mac| !mac.is_zero())
    }

    fn address(&mut self, key: &str, default: u32) -> u32 {
        let Some(text) = self.get(key).filter(|text| !text.is_empty()) else { return default };
        let address = parse_ipv4(text);
        if address.is_none() {
            self.ignore(key, &format!("\"{text}\" is not a valid IP address"));
        }
        address.unwrap_or(default)
    }
}
