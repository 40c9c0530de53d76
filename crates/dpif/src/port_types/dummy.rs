//! Dummies: ports without a device, for deterministic tests (`--enable-dummy`). They may replace other types.

use super::port_type::{DeviceOrigin, KernelPort, OptionChange, PortType};
use super::reader::OptionReader;
use std::path::PathBuf;

/// Options of a dummy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DummyPort {
    /// Interface type in the database: a dummy type, or the replaced type.
    pub type_name: String,
    /// Polled by forwarding threads, rather than by the main core.
    pub pmd: bool,
    /// Receive queues, at least 1.
    pub n_rxq: u32,
    /// Transmit queues, at least 1: shown, but all send to one.
    pub n_txq: u32,
    /// Simulated NUMA node.
    pub numa_id: u32,
    /// Simulated interface index.
    pub ifindex: Option<u32>,
    /// Capture file for frames of both directions. It overrides the other two.
    pub pcap: Option<PathBuf>,
    /// Capture file for received frames.
    pub rxq_pcap: Option<PathBuf>,
    /// Capture file for sent frames.
    pub tx_pcap: Option<PathBuf>,
    /// Its connections.
    pub stream: Option<DummyStream>,
}

/// Connections of a dummy: they receive its output and provide its input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DummyStream {
    /// Connect to that target (`options:stream`).
    Active(String),
    /// Listen at that target (`options:pstream`).
    Passive(String),
}

impl DummyPort {
    /// Interface type of dummies polled by forwarding threads.
    pub const PMD_TYPE: &str = "dummy-pmd";
    /// Interface type of internal ports in dummy mode.
    pub const INTERNAL_TYPE: &str = "dummy-internal";

    /// A dummy of that interface type with default options.
    pub fn new(type_name: &str) -> DummyPort {
        DummyPort {
            type_name: type_name.to_string(),
            pmd: type_name == DummyPort::PMD_TYPE,
            n_rxq: 1,
            n_txq: 1,
            numa_id: 0,
            ifindex: None,
            pcap: None,
            rxq_pcap: None,
            tx_pcap: None,
            stream: None,
        }
    }
}

impl PortType for DummyPort {
    const NAMES: &'static [&'static str] = &["dummy", DummyPort::INTERNAL_TYPE, DummyPort::PMD_TYPE];
    const KEYS: &'static [&'static str] =
        &["ifindex", "n_rxq", "n_txq", "numa_id", "pcap", "pstream", "rxq_pcap", "stream", "tx_pcap"];
    const DEVICE: DeviceOrigin = DeviceOrigin::None;
    const OPENS_TOGETHER: bool = false;
    const NEEDS_ENABLE_DUMMY: bool = true;

    fn parse(options: &mut OptionReader<'_>) -> Result<DummyPort, String> {
        let type_name = match options.type_name {
            "internal" => DummyPort::INTERNAL_TYPE,
            other => other,
        };
        Ok(DummyPort {
            n_rxq: options.n_rxq,
            n_txq: options.number("n_txq")?.unwrap_or(1).max(1),
            numa_id: options.number("numa_id")?.unwrap_or(0),
            ifindex: options.number("ifindex")?,
            pcap: options.file("pcap"),
            rxq_pcap: options.file("rxq_pcap"),
            tx_pcap: options.file("tx_pcap"),
            stream: match (options.get("stream"), options.get("pstream")) {
                (Some(_), Some(_)) => {
                    return Err(options.bad("options stream and pstream exclude each other"));
                }
                (Some(target), None) => Some(DummyStream::Active(target.to_string())),
                (None, Some(target)) => Some(DummyStream::Passive(target.to_string())),
                (None, None) => None,
            },
            ..DummyPort::new(type_name)
        })
    }

    fn type_name(&self) -> &str {
        &self.type_name
    }

    fn userspace_type_name(&self) -> &str {
        self.type_name()
    }

    fn kernel_port(&self) -> Option<KernelPort> {
        None
    }

    fn change(&self, wanted: &DummyPort) -> OptionChange {
        OptionChange::of_all(self, wanted)
    }

    fn shown(&self) -> Vec<(&'static str, String)> {
        let all = [("n_rxq", self.n_rxq), ("n_txq", self.n_txq), ("numa_id", self.numa_id)];
        all.into_iter().filter(|_| self.pmd).map(|(key, n)| (key, n.to_string())).collect()
    }
}
