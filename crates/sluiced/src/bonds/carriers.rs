//! Carriers of members, read at short intervals while their bonds forward packets.
//!
//! The kernel reports at most one lost carrier a second for the whole machine, and a bond without the report would go on
//! sending to a dead link for that long. The driver knows at once ([`netdev::link::CarrierReader`]), so the members of a bond that
//! sends packets are read each [`SHORTEST`]; with many members less often, so that all together cost at most [`READS`] a second.
//! A bond that sends nothing has nothing to lose: link events serve it.

use super::Running;
use dpif::PortStats;
use netdev::link::CarrierReader;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;
use sys::interval::Interval;

/// Shortest interval between two reads of a carrier.
const SHORTEST: Duration = Duration::from_micros(500);
/// Most reads of carriers a second: one takes some 500 ns and the kernel's lock of its links.
const READS: u32 = 8_000;
/// Pause between two looks at the counters of members.
pub(super) const LOOK_MS: u64 = 100;
/// Packets between two looks that make a bond one that forwards: 100 a second.
const BUSY_PACKETS: u64 = 10;

/// Reads the carriers of busy bonds.
pub(super) struct CarrierWatch {
    interval: Interval,
    reader: CarrierReader,
    /// Packets for the members of a bond, as last read, by its name.
    output: HashMap<String, u64>,
    /// Members of busy bonds, with their carriers as last read: none before the first read, or if the driver does not know.
    watched: Vec<(String, Option<bool>)>,
    look_at_ms: u64,
}

impl CarrierWatch {
    pub(super) fn new() -> io::Result<CarrierWatch> {
        let (interval, reader) = (Interval::new()?, CarrierReader::new()?);
        let (output, watched) = (HashMap::new(), Vec::new());
        Ok(CarrierWatch { interval, reader, output, watched, look_at_ms: 0 })
    }

    /// Descriptor of the timer.
    pub(super) fn fd(&self) -> RawFd {
        self.interval.as_fd().as_raw_fd()
    }

    /// Chooses the members to read, by the packets that their bonds output; returns the time of the next look.
    pub(super) fn look(&mut self, running: &[Arc<Running>], now_ms: u64) -> u64 {
        if now_ms < self.look_at_ms {
            return self.look_at_ms;
        }
        self.look_at_ms = if running.is_empty() { u64::MAX } else { now_ms + LOOK_MS };
        let mut watched = Vec::new();
        let mut output = HashMap::with_capacity(running.len());
        for bond in running {
            let name = bond.bond.name();
            let now = bond.output_packets();
            let before = self.output.get(name).copied().unwrap_or(now);
            // Statistics of a removed member are gone.
            if bond.members.len() > 1 && now.saturating_sub(before) >= BUSY_PACKETS {
                watched.extend(bond.members.iter().map(|m| m.name.clone()));
            }
            output.insert(name.to_string(), now);
        }
        self.output = output;
        if self.watched.iter().map(|(name, _)| name).ne(&watched) {
            let reads = Duration::from_secs(1) / READS * u32::try_from(watched.len()).unwrap_or(u32::MAX);
            let every = (!watched.is_empty()).then_some(SHORTEST.max(reads));
            if let Err(e) = self.interval.set(every) {
                log::warn!(target: "bond", "cannot read carriers at short intervals: {e}");
            }
            self.watched = watched.into_iter().map(|name| (name, None)).collect();
        }
        self.look_at_ms
    }

    /// Notes the carriers of watched members in `carriers` in place of what link events said; returns whether one changed.
    pub(super) fn read(&mut self, carriers: &mut HashMap<String, bool>) -> bool {
        self.interval.take();
        let mut has_changed = false;
        for (name, before) in &mut self.watched {
            let Ok(carrier) = self.reader.carrier(name) else { continue };
            let changes = before.replace(carrier) != Some(carrier);
            if changes || carriers.contains_key(name) {
                carriers.insert(name.clone(), carrier);
            }
            has_changed |= changes;
        }
        has_changed
    }

    /// Lets the next call of [`CarrierWatch::look`] choose: bonds or members changed.
    pub(super) fn look_soon(&mut self) {
        self.look_at_ms = 0;
    }
}

impl Running {
    /// Packets output to its members, also those that a dead link refused.
    fn output_packets(&self) -> u64 {
        let ports = self.members.iter().filter_map(|member| member.dp_port);
        let stats = ports.filter_map(|port| self.datapath.port_stats(port).ok());
        // Devices of the kernel may not know some.
        let known = |count: u64| if count == u64::MAX { 0 } else { count };
        let output = |s: PortStats| known(s.tx_packets) + known(s.tx_dropped) + known(s.tx_errors);
        stats.map(output).sum()
    }
}
