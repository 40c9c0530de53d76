//! State shared by a dummy port's threads: addresses, captures, transmit counters.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use packet::headers::{ETH_HEADER_BYTES, ETH_TYPE_VLAN, ETH_TYPE_VLAN_8021AD, VLAN_TAG_BYTES, be16};

use super::{DummyCaptures, DummyStats, QueueStats, arp};
use crate::pcap::Writer;
use crate::port::TxDrop;

pub(super) struct State {
    pub(super) mac: [u8; 6],
    pub(super) mtu: u32,
    pub(super) ifindex: u32,
    pub(super) admin_up: bool,
    pub(super) addresses: Vec<(IpAddr, u8)>,
    pub(super) changes: u64,
    pub(super) captures: Captures,
    pub(super) tap: Option<Arc<dyn Fn(&[u8]) + Send + Sync>>,
    sent: QueueStats,
    tx_dropped: u64,
    capture_errors: u64,
}

impl State {
    pub(super) fn new(mac: [u8; 6], mtu: u32, ifindex: u32, captures: Captures) -> State {
        State {
            mac,
            mtu,
            ifindex,
            admin_up: true,
            addresses: Vec::new(),
            changes: 0,
            captures,
            tap: None,
            sent: QueueStats::default(),
            tx_dropped: 0,
            capture_errors: 0,
        }
    }

    /// Sets a field, counting when that changes it.
    pub(super) fn change<T: PartialEq>(&mut self, field: impl FnOnce(&mut State) -> &mut T, value: T) {
        let field = field(self);
        if *field != value {
            *field = value;
            self.changes += 1;
        }
    }

    pub(super) fn capture_rx(&mut self, frame: &[u8]) {
        let failed = self.captures.rx().is_some_and(|w| w.write([frame]).is_err());
        self.capture_errors += u64::from(failed);
    }

    fn capture_tx(&mut self, frame: &[u8]) {
        let failed = self.captures.tx().is_some_and(|w| w.write([frame]).is_err());
        self.capture_errors += u64::from(failed);
    }

    /// Sends a frame: counts and captures it. Returns the port's reply to it, if any.
    pub(super) fn send(&mut self, frame: &[u8]) -> Result<Option<Vec<u8>>, TxDrop> {
        let tagged = matches!(be16(frame, 12), Some(ETH_TYPE_VLAN | ETH_TYPE_VLAN_8021AD));
        let most = self.mtu as usize + ETH_HEADER_BYTES + if tagged { VLAN_TAG_BYTES } else { 0 };
        let why = match frame.len() {
            n if n < ETH_HEADER_BYTES => Some(TxDrop::Refused),
            n if n > most => Some(TxDrop::TooLarge),
            _ => None,
        };
        if let Some(why) = why {
            return Err(why);
        }
        self.sent.packets += 1;
        self.sent.bytes += frame.len() as u64;
        let answer = self.addresses.iter().find_map(|(ip, _)| match ip {
            IpAddr::V4(ip) => arp::answer(frame, self.mac, *ip).map(|a| a.to_vec()),
            IpAddr::V6(_) => None,
        });
        // The reply comes first in a common file, as with stock switches.
        if let Some(answer) = &answer {
            self.capture_rx(answer);
        }
        self.capture_tx(frame);
        Ok(answer)
    }

    /// Counts unsent frames.
    pub(super) fn count_dropped(&mut self, packets: u64) {
        self.tx_dropped += packets;
    }

    /// The counters kept here.
    pub(super) fn stats(&self) -> DummyStats {
        DummyStats {
            tx: self.sent,
            tx_dropped: self.tx_dropped,
            capture_errors: self.capture_errors,
            ..DummyStats::default()
        }
    }
}

/// Open capture files.
pub(super) struct Captures {
    /// Their names.
    pub(super) files: DummyCaptures,
    both: Option<Writer>,
    rxq: Option<Writer>,
    tx: Option<Writer>,
}

impl Captures {
    pub(super) fn open(files: &DummyCaptures) -> io::Result<Captures> {
        let open = |path: &Option<_>| path.as_deref().map(Writer::append).transpose();
        let names = files.clone();
        if files.pcap.is_some() {
            return Ok(Captures { files: names, both: open(&files.pcap)?, rxq: None, tx: None });
        }
        Ok(Captures { files: names, both: None, rxq: open(&files.rxq_pcap)?, tx: open(&files.tx_pcap)? })
    }

    fn rx(&mut self) -> Option<&mut Writer> {
        self.both.as_mut().or(self.rxq.as_mut())
    }

    fn tx(&mut self) -> Option<&mut Writer> {
        self.both.as_mut().or(self.tx.as_mut())
    }
}
