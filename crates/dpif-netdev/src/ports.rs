//! The ports of a userspace datapath: their numbers, and how each type is opened.

use super::upcall_queues::PortQueues;
use crate::ablation::Ablation;
use dpif::DummyMode;
use dpif::RxqAffinity;
use dpif::{DpifError, PortInfo, PortKind, PortSpec, PortStats};
use flow::DpPort;
use netdev::afxdp::{AfxdpOptions, XdpMode};
use netdev::dummy::{Dummy, DummyCaptures, DummyOptions};
use netdev::pcap::PcapOptions;
use netdev::{Port, SystemOptions, TapOptions};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Number of the port that stands for the datapath itself, as stock switches have it.
const LOCAL_PORT: DpPort = DpPort(0);

/// Interface types that are dummies.
const DUMMY_TYPES: [&str; 3] = ["dummy", "dummy-internal", "dummy-pmd"];

/// A port and its device.
pub(crate) struct OpenPort {
    pub(crate) info: PortInfo,
    pub(crate) device: Port,
    /// Controls it, when it is a dummy.
    pub(crate) dummy: Option<Dummy>,
    /// Its queues are polled by the main core, not by a thread.
    pub(crate) inline: bool,
    /// The kernel knows nothing of it.
    pub(crate) bare: bool,
    /// Where its upcalls wait.
    pub(crate) upcalls: Arc<PortQueues>,
    /// What it was made of.
    pub(crate) spec: PortSpec,
    /// Receive queues that threads poll, numbered from 0.
    pub(crate) queues: u16,
    /// Those that are pinned to cores.
    pub(crate) affinity: RxqAffinity,
    /// What threads counted that have ended, and queues that were closed.
    pub(crate) retired: PortStats,
}

/// Ports by their numbers.
#[derive(Default)]
pub(crate) struct Ports(BTreeMap<DpPort, OpenPort>);

impl Ports {
    /// The number that a new port gets, never 0 unless it is wanted: the one wanted if it is free, or in a datapath of
    /// dummies the one in its name, else the first free one.
    ///
    /// # Errors
    /// A port of that name is there, or there is no number left.
    pub(crate) fn number_for(&self, spec: &PortSpec, dummy: bool) -> Result<DpPort, DpifError> {
        if self.0.values().any(|p| p.info.name == spec.name) {
            return Err(DpifError::Device(format!("port {} is already in the datapath", spec.name)));
        }
        let usable = |n: &DpPort| {
            let free = n.0 < datapath::PORT_NUMBERS && !self.0.contains_key(n);
            free && (*n != LOCAL_PORT || spec.number == Some(LOCAL_PORT))
        };
        let named = if dummy { number_in(&spec.name) } else { None };
        let others = named.into_iter().chain((1..datapath::PORT_NUMBERS).map(DpPort));
        spec.number
            .into_iter()
            .chain(others)
            .find(usable)
            .ok_or(DpifError::Full("the port table of the datapath"))
    }

    pub(crate) fn get(&self, port: DpPort) -> Option<&OpenPort> {
        self.0.get(&port)
    }

    pub(crate) fn get_mut(&mut self, port: DpPort) -> Option<&mut OpenPort> {
        self.0.get_mut(&port)
    }

    /// In the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &OpenPort> {
        self.0.values()
    }

    pub(crate) fn insert(&mut self, port: OpenPort) {
        self.0.insert(port.info.number, port);
    }

    pub(crate) fn remove(&mut self, port: DpPort) -> Option<OpenPort> {
        self.0.remove(&port)
    }

    /// All of them, taken out.
    pub(crate) fn take(&mut self) -> Vec<OpenPort> {
        std::mem::take(&mut self.0).into_values().collect()
    }

    /// All of them, in order of their numbers.
    pub(crate) fn infos(&self) -> Vec<PortInfo> {
        self.0.values().map(|p| p.info.clone()).collect()
    }
}

/// A device that was opened.
pub(crate) struct Opened {
    pub(crate) device: Port,
    /// Its type as it is shown.
    pub(crate) type_name: String,
    /// Controls it, when it is a dummy.
    pub(crate) dummy: Option<Dummy>,
    /// Its queues are polled by the main core, not by a thread.
    pub(crate) inline: bool,
    /// The kernel knows nothing of it.
    pub(crate) bare: bool,
}

/// Opens the device of a port. `dummies` may stand in for any type, and `internal` ports of a datapath of dummies are dummies.
pub(crate) fn open(
    spec: &PortSpec,
    dummies: DummyMode,
    dummy_datapath: bool,
    ablation: &Ablation,
) -> Result<Opened, DpifError> {
    let device = |e: io::Error| DpifError::Device(e.to_string());
    let plain = |device, name: &str| Opened {
        device,
        type_name: name.into(),
        dummy: None,
        inline: false,
        bare: false,
    };
    let type_name = match &spec.kind {
        PortKind::System => "system",
        PortKind::Internal if dummy_datapath => "dummy-internal",
        PortKind::Internal => "internal",
        PortKind::Tap => "tap",
        PortKind::Other(name) => name,
    };
    if DUMMY_TYPES.contains(&type_name) || dummies.replaces(type_name) {
        let (device, dummy) = Port::open_dummy(&spec.name, &dummy_options(spec)?).map_err(device)?;
        let inline = type_name != "dummy-pmd";
        return Ok(Opened { device, type_name: type_name.into(), dummy: Some(dummy), inline, bare: true });
    }
    match &spec.kind {
        PortKind::System => {
            let options = ablation.system(system_options(spec)?);
            let ifindex = netdev::link::link_info(&spec.name).map_err(device)?.ifindex;
            // A device that is down stays down, but several queues share its frames only while it is up.
            if options.n_rxq > 1 {
                netdev::link::set_admin_up(ifindex, true).map_err(device)?;
            }
            let port = Port::open_system(&spec.name, &options).map_err(device)?;
            Ok(plain(port, type_name))
        }
        PortKind::Internal | PortKind::Tap => {
            let options = TapOptions { mac: spec.mac.map(|m| m.0), mtu: spec.mtu, ..TapOptions::default() };
            let port = Port::open_tap(&spec.name, &options).map_err(device)?;
            Ok(plain(port, type_name))
        }
        PortKind::Other(name) => match name.as_str() {
            "afxdp" => Ok(plain(open_afxdp(spec)?, type_name)),
            "null" => Ok(Opened { bare: true, ..plain(Port::open_null(&spec.name), type_name) }),
            "pcap" => {
                let port = Port::open_pcap(&spec.name, &pcap_options(spec)?).map_err(device)?;
                Ok(Opened { bare: true, ..plain(port, type_name) })
            }
            _ => Err(DpifError::Unsupported(format!("ports of type {name} are not supported"))),
        },
    }
}

/// `n_rxq` and `merge_udp`.
fn system_options(spec: &PortSpec) -> Result<SystemOptions, DpifError> {
    let n_rxq = queues_wanted(&spec.options);
    let merge_udp = switch(spec, "merge_udp", true)?;
    Ok(SystemOptions { n_rxq, merge_udp, ..SystemOptions::default() })
}

/// The value of an option.
fn option<'a>(spec: &'a PortSpec, name: &str) -> Option<&'a str> {
    spec.options.iter().find(|(k, _)| k == name).map(|(_, v)| v.as_str())
}

/// An option that is `true` or `false`.
fn switch(spec: &PortSpec, name: &str, default: bool) -> Result<bool, DpifError> {
    match option(spec, name) {
        None => Ok(default),
        Some(value) => value
            .parse()
            .map_err(|_| DpifError::Device(format!("option {name}: {value}: neither true nor false"))),
    }
}

fn pcap_options(spec: &PortSpec) -> Result<PcapOptions, DpifError> {
    Ok(PcapOptions {
        rx_pcap: option(spec, "rx_pcap").map(PathBuf::from),
        tx_pcap: option(spec, "tx_pcap").map(PathBuf::from),
        infinite_rx: switch(spec, "infinite_rx", false)?,
    })
}

/// Opens a device by AF_XDP and tells how.
fn open_afxdp(spec: &PortSpec) -> Result<Port, DpifError> {
    let device = |e: io::Error| DpifError::Device(e.to_string());
    let mode = match option(spec, "xdp-mode") {
        Some(mode) => mode.parse().map_err(|e| DpifError::Device(format!("option xdp-mode: {e}")))?,
        None => XdpMode::default(),
    };
    let n_rxq = option(spec, "n_rxq").map_or(Ok(1), str::parse);
    let n_rxq = n_rxq.map_err(|_| DpifError::Device("option n_rxq: not a number".to_string()))?;
    let use_need_wakeup = switch(spec, "use-need-wakeup", true)?;
    let ifindex = netdev::link::link_info(&spec.name).map_err(device)?.ifindex;
    // Its queues exist only while it is up.
    netdev::link::set_admin_up(ifindex, true).map_err(device)?;
    let options = AfxdpOptions { mode, n_rxq, use_need_wakeup };
    let (port, info) = Port::open_afxdp(&spec.name, &options).map_err(device)?;
    log::info!(target: "netdev_afxdp", "{}: xdp-mode {}", spec.name, info.mode);
    for note in info.notes {
        log::warn!(target: "netdev_afxdp", "{note}");
    }
    Ok(port)
}

/// Reads the options of a dummy.
fn dummy_options(spec: &PortSpec) -> Result<DummyOptions, DpifError> {
    let text = |name: &str| spec.options.iter().find(|(k, _)| k == name).map(|(_, v)| v.as_str());
    let number = |name: &str| match text(name).map(str::parse::<u32>) {
        None => Ok(None),
        Some(Ok(n)) => Ok(Some(n)),
        Some(Err(_)) => Err(DpifError::Device(format!("option {name}: not a number"))),
    };
    let file = |name: &str| text(name).map(PathBuf::from);
    Ok(DummyOptions {
        n_rxq: number("n_rxq")?.unwrap_or(1) as usize,
        mac: spec.mac.map(|m| m.0),
        mtu: spec.mtu,
        numa_id: number("numa_id")?.unwrap_or(0),
        ifindex: number("ifindex")?,
        captures: DummyCaptures { pcap: file("pcap"), rxq_pcap: file("rxq_pcap"), tx_pcap: file("tx_pcap") },
    })
}

/// The number that a port's name asks for, in a datapath of dummies: the first number in the name, 100 more for a name that
/// begins with `br`.
fn number_in(name: &str) -> Option<DpPort> {
    let start = name.find(|c: char| c.is_ascii_digit())?;
    let digits = &name[start..];
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let base = if name.starts_with("br") { 100 } else { 0 };
    digits[..end].parse::<u32>().ok()?.checked_add(base).map(DpPort)
}

/// How many receive queues a port is to have (`options:n_rxq`); 1 unless it says something else that makes sense.
pub(crate) fn queues_wanted(options: &[(String, String)]) -> usize {
    let text = options.iter().find(|(k, _)| k == "n_rxq").map(|(_, v)| v.as_str());
    text.and_then(|t| t.trim().parse().ok()).filter(|n| *n > 0).unwrap_or(1)
}
