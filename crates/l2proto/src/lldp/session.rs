//! One session: sends frames, knows the neighbours of its port, and the services that it requests from them.
//!
//! Differences from OVS: a neighbour is forgotten at the end of its time to live, and with a time of 0 at once; their
//! number is bounded. OVS keeps all of them for ever.

mod saved;

use super::frame::{Element, Id, Local, Mapping, Refusal, Remote, build, parse};
use crate::lines::Lines;
use crate::protocol::{LineLevel, LinkPort, LogLine, TrunkChange};
use crate::slots::Timed;
use flow::MacAddr;
use std::fmt::Write as _;

/// Log module of frames.
pub(super) const MODULE: &str = "lldp";
/// Log module of sessions and services.
const SESSIONS_MODULE: &str = "ovs_lldp";
/// Time between two frames, as in OVS.
pub(super) const INTERVAL_MS: u64 = 5000;
/// Neighbours of a port at most.
pub const NEIGHBOURS_MAX: usize = 32;
/// Status of a service without an answer.
const PENDING: u8 = 255;

/// Settings of a session.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Config {
    /// Name of the system; empty for none.
    pub name: String,
    /// Its description.
    pub description: String,
    /// Requested services. `None` without auto-attach: those of the session stay, as in OVS.
    pub mappings: Option<Vec<Mapping>>,
}

/// A requested service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Service {
    mapping: Mapping,
    status: u8,
}

/// A neighbour.
#[derive(Clone, Debug)]
struct Neighbour {
    remote: Remote,
    expires_ms: u64,
}

/// Counters of `autoattach/statistics`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Counts {
    sent: u64,
    received: u64,
    discarded: u64,
    unrecognized: u64,
    aged_out: u64,
    inserted: u64,
    deleted: u64,
    dropped: u64,
}

/// A session.
#[derive(Clone, Debug)]
pub struct Session {
    name: String,
    mac: MacAddr,
    config: Config,
    /// In the order in which they were requested.
    services: Vec<Service>,
    /// In the order in which they changed last.
    neighbours: Vec<Neighbour>,
    next_tx_ms: u64,
    /// Time of the first neighbour's end.
    next_expiry_ms: u64,
    counts: Counts,
    /// One for each VLAN at most.
    trunks: Vec<TrunkChange>,
    is_new: bool,
    lines: Lines,
}

impl Timed for Session {
    fn next_wakeup(&self) -> u64 {
        self.next_tx_ms.min(self.next_expiry_ms)
    }

    fn has_changed(&self) -> bool {
        self.is_new || self.lines.any() || !self.trunks.is_empty()
    }
}

fn status_text(status: u8) -> &'static str {
    match status {
        2 => "Active",
        3 => "Reject (Generic)",
        4 => "Reject (AA resources unavailable)",
        6 => "Reject (Invalid)",
        8 => "Reject (VLAN resources unavailable)",
        9 => "Reject (Application interaction issue)",
        PENDING => "Pending",
        _ => "Undefined",
    }
}

/// Bytes as pairs of hexadecimal digits with colons.
fn hex(bytes: &[u8]) -> String {
    let pairs: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    pairs.join(":")
}

impl Session {
    /// A new session, which sends after an interval.
    pub fn new(port: &LinkPort, config: Config, now_ms: u64) -> Session {
        let mut session = Session {
            name: port.interface.clone(),
            mac: port.mac,
            config: Config::default(),
            services: Vec::new(),
            neighbours: Vec::new(),
            next_tx_ms: 0,
            next_expiry_ms: u64::MAX,
            counts: Counts::default(),
            trunks: Vec::new(),
            is_new: true,
            lines: Lines::default(),
        };
        session.configure(port, config, now_ms);
        session
    }

    /// Applies new settings. As in OVS the next frame then leaves after an interval. A port that only changes its carrier
    /// keeps its time.
    pub fn configure(&mut self, port: &LinkPort, config: Config, now_ms: u64) {
        if self.is_new || self.mac != port.mac || self.config != config {
            self.next_tx_ms = now_ms + INTERVAL_MS;
        }
        self.take_settings(port, config, now_ms);
    }

    /// Applies settings to a session of another process. `mappings` are those of its services.
    fn go_on(&mut self, port: &LinkPort, config: Config, now_ms: u64) {
        let is_same = |old: &Config| (&old.name, &old.description) == (&config.name, &config.description);
        let requested: Vec<Mapping> = self.services.iter().map(|service| service.mapping).collect();
        let keeps = |mappings: &Vec<Mapping>| {
            mappings.iter().all(|m| requested.contains(m)) && mappings.len() == requested.len()
        };
        if self.mac != port.mac || !is_same(&self.config) || !config.mappings.as_ref().is_none_or(keeps) {
            self.next_tx_ms = now_ms + INTERVAL_MS;
        }
        self.take_settings(port, config, now_ms);
    }

    fn take_settings(&mut self, port: &LinkPort, config: Config, now_ms: u64) {
        self.mac = port.mac;
        if let Some(mappings) = &config.mappings {
            self.request(mappings, now_ms);
        }
        self.config = config;
    }

    /// Requests these services. The port carries their VLANs from now on, also before a neighbour answers, as in OVS.
    fn request(&mut self, mappings: &[Mapping], now_ms: u64) {
        let (kept, gone) = std::mem::take(&mut self.services)
            .into_iter()
            .partition(|service: &Service| mappings.contains(&service.mapping));
        self.services = kept;
        for Service { mapping, .. } in gone {
            self.note_service("Removing", mapping, now_ms);
            // Another service may have the VLAN: OVS removes it nonetheless.
            if !mappings.iter().any(|other| other.vlan == mapping.vlan) {
                self.change_trunks(TrunkChange { vlan: mapping.vlan, is_added: false });
            }
        }
        for mapping in mappings {
            if !self.services.iter().any(|service| service.mapping == *mapping) {
                self.services.push(Service { mapping: *mapping, status: PENDING });
                self.note_service("Adding", *mapping, now_ms);
                self.change_trunks(TrunkChange { vlan: mapping.vlan, is_added: true });
            }
        }
    }

    fn note_service(&mut self, verb: &str, Mapping { isid, vlan }: Mapping, now_ms: u64) {
        let name = &self.name;
        self.lines.put(SESSIONS_MODULE, LineLevel::Info, now_ms, || {
            format!("{verb} mapping ISID={isid}, VLAN={vlan} (lldp->name={name})")
        });
    }

    fn change_trunks(&mut self, change: TrunkChange) {
        self.trunks.retain(|earlier| earlier.vlan != change.vlan);
        self.trunks.push(change);
    }

    /// Log lines, the number of those that were lost, and changes of the port's VLANs.
    pub fn take_changes(&mut self) -> (Vec<LogLine>, u64, Vec<TrunkChange>) {
        self.is_new = false;
        let (lines, lost) = self.lines.take();
        (lines, lost, std::mem::take(&mut self.trunks))
    }

    /// Number of neighbours.
    pub fn neighbours(&self) -> usize {
        self.neighbours.len()
    }

    /// The frame that is due.
    pub fn poll_transmit(&mut self, now_ms: u64) -> Option<Vec<u8>> {
        if now_ms < self.next_tx_ms {
            return None;
        }
        self.next_tx_ms = now_ms + INTERVAL_MS;
        self.counts.sent += 1;
        let mappings: Vec<Mapping> = self.services.iter().map(|service| service.mapping).collect();
        let (name, description) = (&self.config.name, &self.config.description);
        Some(build(&Local { mac: self.mac, port: &self.name, name, description, mappings: &mappings }))
    }

    /// Forgets neighbours whose time is over.
    pub fn tick(&mut self, now_ms: u64) {
        if now_ms < self.next_expiry_ms {
            return;
        }
        let before = self.neighbours.len();
        self.neighbours.retain(|neighbour| neighbour.expires_ms > now_ms);
        self.counts.aged_out += (before - self.neighbours.len()) as u64;
        self.set_expiry();
    }

    fn set_expiry(&mut self) {
        let times = self.neighbours.iter().map(|neighbour| neighbour.expires_ms);
        self.next_expiry_ms = times.min().unwrap_or(u64::MAX);
    }

    /// Takes a frame that the claim selects.
    pub fn input(&mut self, frame: &[u8], now_ms: u64) {
        self.counts.received += 1;
        match parse(frame) {
            Err(Refusal::Short) => {}
            Err(refusal) => {
                self.counts.discarded += 1;
                let level = match refusal {
                    Refusal::Destination | Refusal::Type | Refusal::Assignments => LineLevel::Info,
                    _ => LineLevel::Warning,
                };
                let name = &self.name;
                self.lines.put(MODULE, level, now_ms, || match refusal {
                    Refusal::Order((place, expected), kind) => {
                        format!("{place} TLV should be a {expected} on {name}, not {kind}")
                    }
                    Refusal::Assignments => refusal.to_string(),
                    _ => format!("{refusal} on {name}"),
                });
            }
            Ok(remote) => self.take(remote, now_ms),
        }
    }

    fn take(&mut self, remote: Remote, now_ms: u64) {
        let is_of = |neighbour: &Neighbour| {
            (&neighbour.remote.chassis, &neighbour.remote.port) == (&remote.chassis, &remote.port)
        };
        let known = self.neighbours.iter().position(is_of);
        let expires_ms = now_ms + u64::from(remote.ttl_s) * 1000;
        if remote.ttl_s == 0 {
            if let Some(at) = known {
                self.neighbours.remove(at);
                self.counts.deleted += 1;
                self.set_expiry();
            }
            return;
        }
        if let Some(same) = known.map(|at| &mut self.neighbours[at]).filter(|same| same.remote == remote) {
            same.expires_ms = expires_ms;
            return self.set_expiry();
        }
        self.counts.unrecognized += u64::from(remote.unknown);
        self.note(&remote, now_ms);
        match known {
            Some(at) => drop(self.neighbours.remove(at)),
            None if self.neighbours.len() >= NEIGHBOURS_MAX => {
                self.counts.dropped += 1;
                return;
            }
            None => self.counts.inserted += 1,
        }
        // A description belongs to the system, not to its port.
        for other in &mut self.neighbours {
            if other.remote.chassis == remote.chassis {
                other.remote.description.clone_from(&remote.description);
            }
        }
        self.neighbours.push(Neighbour { remote, expires_ms });
        self.set_expiry();
    }

    /// Logs elements of auto-attach and unknown organizations.
    fn note(&mut self, remote: &Remote, now_ms: u64) {
        if let Some(element) = &remote.element {
            let Element { kind, has_tags, mode, vlan, mac, .. } = *element;
            let tags = u8::from(has_tags);
            self.lines.put(MODULE, LineLevel::Info, now_ms, || {
                format!("Element type: {kind:X}, vlan tagging {tags:X}, auto prov mode {mode:x}, Mgmt vlan: {vlan:X}")
            });
            self.lines.put(MODULE, LineLevel::Info, now_ms, || format!("System mac: {mac}"));
        }
        let name = &self.name;
        if let Some(org) = remote.unknown_org {
            let org = hex(&org);
            self.lines.put(MODULE, LineLevel::Info, now_ms, || {
                format!("unknown org tlv [{org}] received on {name}")
            });
        }
    }

    /// The lines of `autoattach/status` on the session.
    pub fn show_status(&self) -> String {
        let mut text = format!("LLDP: {}\n", self.name);
        for Neighbour { remote, .. } in &self.neighbours {
            let system = remote.element.map_or([0; 12], |element| element.system());
            if system == [0; 12] {
                continue;
            }
            let chassis: &Id = &remote.chassis;
            let description = remote.description.as_deref().map(printable);
            let description = description.unwrap_or_else(|| "<None>".to_string());
            let id = hex(chassis.get(1..).unwrap_or_default());
            for (what, value) in [("Id", id), ("Descr", description), ("System Id", hex(&system))] {
                text += &format!("\tAuto Attach Primary Server {what}: {value}\n");
            }
        }
        text
    }

    /// The lines of `autoattach/show-isid` on the session. As in OVS it takes the answers of neighbours.
    pub fn show_services(&mut self, now_ms: u64) -> String {
        for neighbour in &self.neighbours {
            for assignment in &neighbour.remote.assignments {
                let (Mapping { isid, vlan }, status) = (assignment.mapping, assignment.status);
                let mut put = |level, text: String| self.lines.put(SESSIONS_MODULE, level, now_ms, || text);
                put(LineLevel::Info, format!("h_rport: isid={isid}, vlan={vlan}, status={status}"));
                let service = self.services.iter_mut().find(|service| service.mapping.isid == isid);
                match service {
                    Some(service) => {
                        put(LineLevel::Info, format!("Setting status for ISID={isid} to {status}"));
                        service.status = status;
                    }
                    None => put(LineLevel::Warning, format!("Couldn't find mapping for I-SID={isid}")),
                }
            }
        }
        let mut text = format!("LLDP: {}\n", self.name);
        text += "I-SID    VLAN Source      Status  \n-------- ---- ----------- --------\n";
        let mut services = self.services.clone();
        services.sort_by_key(|service| service.mapping);
        for Service { mapping: Mapping { isid, vlan }, status } in services {
            let status = status_text(status);
            let _ = writeln!(text, "{isid:<8} {vlan:<4} {:<11} {status:<11}", "Switch");
        }
        text
    }

    /// The lines of `autoattach/statistics` on the session.
    pub fn show_counts(&self) -> String {
        let counts = &self.counts;
        let rows = [
            ("tx", counts.sent),
            ("rx", counts.received),
            ("rx discarded", counts.discarded),
            ("rx unrecognized", counts.unrecognized),
            ("ageout", counts.aged_out),
            ("insert", counts.inserted),
            ("delete", counts.deleted),
            ("drop", counts.dropped),
        ];
        let lines = rows.iter().map(|(name, count)| format!("\t{name} cnt: {count}\n"));
        format!("Statistics: {}\n", self.name) + &lines.collect::<String>()
    }
}

/// A text of a neighbour, without control characters.
fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.trim_end_matches('\0').chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}
