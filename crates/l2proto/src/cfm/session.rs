//! One session: sends continuity checks, and judges those of others once in three and a half intervals.
//!
//! A driver calls [`Session::poll_transmit`], then [`Session::tick`], when [`Session::next_wakeup`] is due. OVS keeps this
//! order. Times are milliseconds of any clock that does not step back.
//!
//! Facts of OVS that the standard has otherwise: an unexpected interval is only logged; each identifier is taken, up to
//! [`REMOTES_MAX`], and one more is only logged; a fault begins and ends with a check alone.

mod saved;

use super::config::{Config, Vlan};
use super::message::{DST_MAC, DST_MAC_EXTENDED, Message, Tag, build, parse_frame};
use crate::lines::Lines;
use crate::protocol::{Environment, LineLevel, LogLine, SessionId};
use crate::slots::Timed;
use flow::MacAddr;
use std::collections::BTreeMap;
use std::fmt;

/// Log module.
pub(super) const MODULE: &str = "cfm";
/// Maintenance points that a session knows at most.
pub const REMOTES_MAX: usize = 256;
/// Checks between two values of the health.
const HEALTH_CHECKS: u32 = 6;
/// Messages of another maintenance point in that time.
const HEALTH_MESSAGES: u32 = HEALTH_CHECKS * 7 / 2;
/// Intervals without a message after which received packets count no more.
const DEMAND_INTERVALS: u64 = 100;
/// Time for which received packets count: the driver learns of them once a second.
const DEMAND_MS: u64 = 2000;

/// Reasons of a fault: a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults(u8);

impl Faults {
    /// No message arrived.
    pub const RECV: Faults = Faults(1);
    /// Another maintenance point receives nothing.
    pub const RDI: Faults = Faults(2);
    /// A message of another maintenance association arrived.
    pub const MAID: Faults = Faults(4);
    /// A message with the identifier of this maintenance point arrived.
    pub const LOOPBACK: Faults = Faults(8);
    /// A command set the fault (`cfm/set-fault`).
    pub const OVERRIDE: Faults = Faults(32);

    const NAMES: [(Faults, &str); 5] = [
        (Faults::RECV, "recv"),
        (Faults::RDI, "rdi"),
        (Faults::MAID, "maid"),
        (Faults::LOOPBACK, "loopback"),
        (Faults::OVERRIDE, "override"),
    ];

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Names of the reasons.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.iter().filter(move |(fault, _)| self.0 & fault.0 != 0).map(|(_, name)| *name)
    }

    fn add(&mut self, fault: Faults) {
        self.0 |= fault.0;
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.names().collect();
        f.write_str(&names.join(" "))
    }
}

/// Another maintenance point.
#[derive(Clone, Debug)]
pub(super) struct Remote {
    /// Whether a message arrived since the last check.
    pub(super) has_sent: bool,
    pub(super) is_up: bool,
    /// Sequence number of its last message; 0 is unknown.
    seq: u32,
    /// Good messages since the last value of the health.
    messages: u32,
    received_ms: u64,
}

/// A session.
#[derive(Clone, Debug)]
pub struct Session {
    pub(super) id: SessionId,
    pub(super) name: String,
    port_mac: MacAddr,
    pub(super) config: Config,
    /// Faults of the last check.
    faults: Faults,
    /// Faults since the last check.
    new_faults: Faults,
    /// A command's choice.
    pub(super) forced: Option<bool>,
    pub(super) flap_count: u64,
    /// Percent; `None` with several maintenance points, or before the first value.
    pub(super) health: Option<u32>,
    health_checks: u32,
    pub(super) remote_is_up: bool,
    pub(super) remotes: BTreeMap<u64, Remote>,
    /// Identifiers of those that sent before the last check.
    pub(super) remote_mpids: Vec<u64>,
    /// Whether a check took place.
    has_checked: bool,
    seq: u32,
    last_tx_ms: Option<u64>,
    pub(super) next_tx_ms: u64,
    pub(super) next_check_ms: u64,
    /// Packets of the device at the last check, in demand mode.
    rx_packets: u64,
    /// Time of the last check that found more packets.
    rx_ms: Option<u64>,
    /// Until when received packets count without a message.
    demand_until_ms: u64,
    status_changed: bool,
    lines: Lines,
}

impl Timed for Session {
    fn next_wakeup(&self) -> u64 {
        self.next_tx_ms.min(self.next_check_ms)
    }

    fn has_changed(&self) -> bool {
        self.status_changed || self.lines.any()
    }
}

impl Session {
    /// A new session without a fault, that sends its first message at once.
    pub fn new(
        (id, name): (SessionId, &str),
        port_mac: MacAddr,
        config: Config,
        now_ms: u64,
        env: &mut dyn Environment,
    ) -> Session {
        let rx_packets = if config.is_demand { env.rx_packets(id) } else { 0 };
        Session {
            id,
            name: name.to_owned(),
            port_mac,
            faults: Faults::default(),
            new_faults: Faults::default(),
            forced: None,
            flap_count: 0,
            health: None,
            health_checks: 0,
            remote_is_up: true,
            remotes: BTreeMap::new(),
            remote_mpids: Vec::new(),
            has_checked: false,
            seq: 0,
            last_tx_ms: None,
            next_tx_ms: 0,
            next_check_ms: now_ms + check_interval_ms(&config),
            rx_packets,
            rx_ms: None,
            demand_until_ms: 0,
            status_changed: true,
            lines: Lines::default(),
            config,
        }
    }

    /// Applies new settings. Another interval sends at once, and restarts the time to the next check.
    pub fn configure(&mut self, port_mac: MacAddr, config: Config, now_ms: u64, env: &mut dyn Environment) {
        self.port_mac = port_mac;
        let old = std::mem::replace(&mut self.config, config);
        if self.config.is_demand && !old.is_demand {
            (self.rx_packets, self.rx_ms) = (env.rx_packets(self.id), None);
        }
        let interval = |config: &Config| (config.interval, config.interval_ms);
        if interval(&old) != interval(&self.config) {
            self.next_tx_ms = 0;
            self.next_check_ms = now_ms + check_interval_ms(&self.config);
        }
        self.status_changed |= old != self.config;
    }

    /// Reasons of the fault.
    pub fn faults(&self) -> Faults {
        match self.forced {
            Some(true) => Faults::OVERRIDE,
            Some(false) => Faults::default(),
            None => self.faults,
        }
    }

    /// Whether the link works.
    pub fn is_live(&self) -> bool {
        self.faults().is_empty() && (!self.config.is_extended || self.remote_is_up)
    }

    /// Overrides the fault.
    pub fn set_fault(&mut self, forced: Option<bool>) {
        self.forced = forced;
        self.status_changed = true;
    }

    /// Log lines, the number of those that were lost, and whether the status may have changed.
    pub fn take_changes(&mut self) -> (Vec<LogLine>, u64, bool) {
        let (lines, lost) = self.lines.take();
        (lines, lost, std::mem::take(&mut self.status_changed))
    }

    fn line(&mut self, level: LineLevel, now_ms: u64, text: fmt::Arguments<'_>) {
        let name = &self.name;
        self.lines.put(MODULE, level, now_ms, || format!("{name}: {text}"));
    }

    /// The message that is due, in its frame.
    pub fn poll_transmit(&mut self, now_ms: u64, env: &mut dyn Environment) -> Option<Vec<u8>> {
        if now_ms < self.next_tx_ms {
            return None;
        }
        let interval_ms = u64::from(self.config.interval_ms);
        self.next_tx_ms = now_ms + interval_ms;
        self.seq = self.seq.wrapping_add(1);
        let late_ms = self.last_tx_ms.map(|last_ms| now_ms.saturating_sub(last_ms));
        if let Some(late_ms) = late_ms.filter(|late_ms| *late_ms > interval_ms * 3 / 2) {
            let seq = self.seq;
            let text =
                format_args!("long delay of {late_ms}ms (expected {interval_ms}ms) sending CCM seq {seq}");
            self.line(LineLevel::Info, now_ms, text);
        }
        self.last_tx_ms = Some(now_ms);
        let config = &self.config;
        let mut message = Message {
            rdi: self.has_checked && self.remotes.is_empty(),
            interval: config.interval,
            seq: self.seq,
            mpid: config.mpid as u16,
            ..Message::default()
        };
        if config.is_extended {
            message.mpid = hash(config.mpid) as u16;
            message.mpid_extended = config.mpid;
            message.is_down = !config.is_up;
            message.interval_ms = if config.interval == 0 { config.interval_ms as u16 } else { 0 };
        }
        let vlan = match config.vlan {
            Vlan::Fixed(vlan) => vlan,
            Vlan::Random => env.random(1 << 12) as u16,
        };
        let tag = (vlan != 0 || config.pcp != 0).then_some(Tag { vlan, pcp: config.pcp });
        let dst_mac = if config.is_extended { DST_MAC_EXTENDED } else { DST_MAC };
        Some(build(dst_mac, self.port_mac, tag, &message))
    }

    /// Takes a frame that the claim selects.
    pub fn input(&mut self, frame: &[u8], now_ms: u64) {
        let frame = match parse_frame(frame) {
            Ok(frame) => frame,
            Err(refusal) => {
                return self.line(LineLevel::Info, now_ms, format_args!("{refusal}"));
            }
        };
        let Some(message) = frame.message else {
            self.new_faults.add(Faults::MAID);
            let text = format_args!("Received unexpected remote MAID from MAC {}", frame.src_mac);
            return self.line(LineLevel::Warning, now_ms, text);
        };
        let (mpid, is_up) = match self.config.is_extended {
            true => (message.mpid_extended, !message.is_down),
            false => (u64::from(message.mpid), true),
        };
        if self.config.is_demand {
            self.demand_until_ms = now_ms + DEMAND_INTERVALS * u64::from(self.config.interval_ms);
        }
        self.note_interval(&message, mpid, now_ms);
        if !self.remotes.contains_key(&mpid) && self.remotes.len() >= REMOTES_MAX {
            let text = format_args!("dropped CCM with MPID {mpid} from MAC {}", frame.src_mac);
            return self.line(LineLevel::Warning, now_ms, text);
        }
        let mut faults = Faults::default();
        if message.rdi {
            faults.add(Faults::RDI);
        }
        if mpid == self.config.mpid {
            faults.add(Faults::LOOPBACK);
            self.line(LineLevel::Warning, now_ms, format_args!("received CCM with local MPID {mpid}"));
        }
        self.new_faults.add(faults);
        let new = || Remote { has_sent: true, is_up, seq: 0, messages: 0, received_ms: 0 };
        let remote = self.remotes.entry(mpid).or_insert_with(new);
        let before = std::mem::replace(&mut remote.seq, message.seq);
        remote.messages = remote.messages.saturating_add(faults.is_empty().into());
        (remote.has_sent, remote.is_up, remote.received_ms) = (true, is_up, now_ms);
        if before != 0 && message.seq != before.wrapping_add(1) {
            let seq = message.seq;
            let text = format_args!(
                "(mpid {mpid}) detected sequence numbers which indicate possible connectivity problems \
                 (previous {before}) (current {seq})"
            );
            self.line(LineLevel::Warning, now_ms, text);
        }
    }

    /// Logs an unexpected interval.
    fn note_interval(&mut self, message: &Message, mpid: u64, now_ms: u64) {
        let (code, ms) = (message.interval, message.interval_ms);
        if code != self.config.interval {
            let text = format_args!("received a CCM with an unexpected interval ({code}) from RMP {mpid}");
            self.line(LineLevel::Warning, now_ms, text);
        }
        if self.config.is_extended && code == 0 && u32::from(ms) != self.config.interval_ms {
            let text =
                format_args!("received a CCM with an unexpected extended interval ({ms}ms) from RMP {mpid}");
            self.line(LineLevel::Warning, now_ms, text);
        }
    }

    /// Judges the others, if it is time.
    pub fn tick(&mut self, now_ms: u64, env: &mut dyn Environment) {
        if now_ms < self.next_check_ms {
            return;
        }
        self.next_check_ms = now_ms + check_interval_ms(&self.config);
        let state = |session: &Session| (session.faults, session.health, session.remote_is_up);
        let (before, old_mpids) = (state(self), std::mem::take(&mut self.remote_mpids));
        self.faults = std::mem::take(&mut self.new_faults);
        self.measure_health();
        let is_alive = self.config.is_demand && self.received_packets(now_ms, env);
        self.check_remotes(is_alive, now_ms);
        if self.remotes.is_empty() {
            self.faults.add(Faults::RECV);
        }
        let (from, to) = (before.0, self.faults);
        if from != to {
            self.line(LineLevel::Info, now_ms, format_args!("CFM faults changed from [{from}] to [{to}]."));
            if from.is_empty() || to.is_empty() {
                self.flap_count += 1;
            }
        }
        self.status_changed |= before != state(self) || old_mpids != self.remote_mpids;
        self.has_checked = true;
    }

    fn measure_health(&mut self) {
        if self.health_checks == HEALTH_CHECKS {
            self.health = match self.remotes.len() {
                0 => Some(0),
                1 => self.remotes.values_mut().next().map(|only| {
                    let messages = std::mem::take(&mut only.messages);
                    (messages.saturating_mul(100) / HEALTH_MESSAGES).min(100)
                }),
                _ => None,
            };
            self.health_checks = 0;
        }
        self.health_checks += 1;
    }

    /// Whether received packets count as messages of the only other maintenance point.
    fn received_packets(&mut self, now_ms: u64, env: &mut dyn Environment) -> bool {
        let rx_packets = env.rx_packets(self.id);
        if rx_packets > std::mem::replace(&mut self.rx_packets, rx_packets) {
            self.rx_ms = Some(now_ms);
        }
        let is_recent = self.rx_ms.is_some_and(|at_ms| at_ms == now_ms || now_ms < at_ms + DEMAND_MS);
        is_recent && self.remotes.len() == 1 && now_ms < self.demand_until_ms
    }

    /// Forgets those that sent nothing, and takes the operational state of the others.
    fn check_remotes(&mut self, is_alive: bool, now_ms: u64) {
        let silent: Vec<(u64, u64)> = self
            .remotes
            .iter()
            .filter(|(_, remote)| !remote.has_sent)
            .map(|(mpid, remote)| (*mpid, now_ms.saturating_sub(remote.received_ms)))
            .collect();
        for (mpid, ms) in silent {
            self.line(
                LineLevel::Info,
                now_ms,
                format_args!("Received no CCM from RMP {mpid} in the last {ms}ms"),
            );
            if !is_alive {
                self.remotes.remove(&mpid);
            }
        }
        let mut all_up = None;
        for (mpid, remote) in &mut self.remotes {
            if std::mem::take(&mut remote.has_sent) {
                all_up = Some(all_up.unwrap_or(true) && remote.is_up);
                self.remote_mpids.push(*mpid);
            }
        }
        self.remote_is_up = all_up.unwrap_or(self.remote_is_up);
    }
}

/// Time between two checks: three and a half intervals (IEEE 802.1ag §20.1.2).
fn check_interval_ms(config: &Config) -> u64 {
    u64::from(config.interval_ms) * 7 / 2
}

/// The hash of an identifier of 64 bits, of which the low half stands in its field of 16 bits: MurmurHash3 of its bytes
/// (public domain).
fn hash(mpid: u64) -> u32 {
    let mix = |hash: u32, word: u32| {
        let mixed = word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
        (hash ^ mixed).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
    };
    let mut hash = mix(mix(0, mpid as u32), (mpid >> 32) as u32) ^ 8;
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}
