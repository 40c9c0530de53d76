//! `pcap`: replays one capture file and writes another.

use super::port_type::{DeviceOrigin, KernelPort, OptionChange, PortType};
use super::reader::OptionReader;
use std::path::PathBuf;

/// Options of a `pcap` port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PcapPort {
    /// File of received frames; `None`: it receives nothing.
    pub rx_pcap: Option<PathBuf>,
    /// File for sent frames, replaced if it exists; `None`: they are dropped, and count as sent.
    pub tx_pcap: Option<PathBuf>,
    /// Repeat the file endlessly.
    pub infinite_rx: bool,
}

impl PortType for PcapPort {
    const NAMES: &'static [&'static str] = &["pcap"];
    const KEYS: &'static [&'static str] = &["infinite_rx", "rx_pcap", "tx_pcap"];
    const DEVICE: DeviceOrigin = DeviceOrigin::None;
    const OPENS_TOGETHER: bool = false;
    const NEEDS_ENABLE_DUMMY: bool = false;

    fn parse(options: &mut OptionReader<'_>) -> Result<PcapPort, String> {
        Ok(PcapPort {
            rx_pcap: options.file("rx_pcap"),
            tx_pcap: options.file("tx_pcap"),
            infinite_rx: options.switch("infinite_rx", false)?,
        })
    }

    fn type_name(&self) -> &str {
        "pcap"
    }

    fn userspace_type_name(&self) -> &str {
        self.type_name()
    }

    fn kernel_port(&self) -> Option<KernelPort> {
        None
    }

    fn change(&self, wanted: &PcapPort) -> OptionChange {
        OptionChange::of_all(self, wanted)
    }

    fn shown(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}
