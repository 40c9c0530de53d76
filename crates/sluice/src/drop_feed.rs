//! Samples of dropped packets from the event socket of the daemon.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail};
use flow::FlowKey;
use flow::extract::{Metadata, extract};
use flow::text::{NoPortNames, format_packet};
use upcall_cost::ring::Ring;
use upcall_cost::{Capture, Dropped, Polled, Record, Source as _};

use crate::remote::run_dir;

/// Tags that the text of a packet tells apart.
const VLAN_LIMIT: u8 = 2;

/// Longest packet: a large segment.
const PACKET_MAX: usize = 1 << 17;

/// A connection to the event socket.
pub(crate) struct DropFeed {
    ring: Ring,
    ports: BTreeMap<u32, String>,
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC` of the daemon.
    wall_offset_ns: u64,
}

/// News from the daemon.
pub(crate) enum Told {
    /// A packet.
    Packet(Box<DroppedOf>),
    /// Packets without a sample.
    Unsampled(u64),
    /// Nothing within the timeout.
    Nothing,
}

/// A dropped packet and its port.
#[derive(Clone, Debug)]
pub(crate) struct DroppedOf {
    pub(crate) port: String,
    pub(crate) dropped: Dropped,
    /// When, in nanoseconds since 1970.
    pub(crate) wall_ns: u64,
}

impl DropFeed {
    /// Connects: that many bytes of each packet, and packets of each reason, second and thread.
    pub(crate) fn open(packet_bytes: usize, per_second: u32) -> Result<DropFeed> {
        let (pid, buffer_pages) = (None, 0);
        let capture =
            Capture { pid, run_dir: run_dir(), packet_bytes, key_bytes: 0, buffer_pages, debug: false };
        let ring = Ring::open_drops(&capture, per_second)?;
        Ok(DropFeed { ring, ports: BTreeMap::new(), wall_offset_ns: 0 })
    }

    /// Waits until the daemon has answered the request.
    pub(crate) fn wait_for_start(&mut self, limit: Duration) -> Result<()> {
        while self.wall_offset_ns == 0 {
            if let Told::Nothing = self.next(limit)? {
                bail!("the switch does not answer on its event socket");
            }
        }
        Ok(())
    }

    /// The next packet.
    ///
    /// # Errors
    /// The switch ended, or refuses.
    pub(crate) fn next(&mut self, timeout: Duration) -> Result<Told> {
        loop {
            match self.ring.next(timeout)? {
                Polled::Nothing => return Ok(Told::Nothing),
                Polled::End { note } => {
                    bail!("{}", note.unwrap_or_else(|| "the switch has ended".to_string()))
                }
                Polled::Record(Record::Start { wall_offset_ns, .. }) => {
                    self.wall_offset_ns = wall_offset_ns.max(1);
                    return Ok(Told::Unsampled(0));
                }
                Polled::Record(Record::Port { number, name }) => {
                    self.ports.insert(number, name);
                }
                Polled::Record(Record::Dropped(dropped)) => {
                    let unnamed = || format!("port {}", dropped.port);
                    let port = self.ports.get(&dropped.port).cloned().unwrap_or_else(unnamed);
                    let wall_ns = dropped.time_ns.saturating_add(self.wall_offset_ns);
                    return Ok(Told::Packet(Box::new(DroppedOf { port, dropped, wall_ns })));
                }
                Polled::Record(Record::Unsampled { packets }) => return Ok(Told::Unsampled(packets)),
                // A number that is free may be named again.
                Polled::Record(_) => {}
            }
        }
    }
}

impl DroppedOf {
    /// Whether it could not be sent to the port.
    pub(crate) fn is_sending(&self) -> bool {
        self.dropped.reason.starts_with("tx_")
    }

    /// Reason, the kernel's name, and port.
    pub(crate) fn reason(&self) -> String {
        let Dropped { reason, kernel, .. } = &self.dropped;
        let kernel = if kernel.is_empty() { String::new() } else { format!(" ({kernel})") };
        let way = if self.is_sending() { "to" } else { "from" };
        format!("{reason}{kernel} {way} {}", self.port)
    }

    /// The packet as one line.
    pub(crate) fn text(&self) -> String {
        let text = format_packet(&self.whole(), 0, &NoPortNames);
        format!("{} bytes: {}", self.dropped.packet_bytes, text.trim_end().replace('\n', " "))
    }

    /// The packet with zeros for bytes that were not captured: headers tell its length.
    fn whole(&self) -> Vec<u8> {
        let mut packet = self.dropped.packet.clone();
        packet.resize(packet.len().max((self.dropped.packet_bytes as usize).min(PACKET_MAX)), 0);
        packet
    }

    /// Its fields.
    pub(crate) fn key(&self) -> FlowKey {
        let mut key = FlowKey::default();
        extract(&self.whole(), &Metadata::default(), VLAN_LIMIT, &mut key);
        key
    }
}
