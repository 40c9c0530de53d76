//! The ports of a userspace datapath: their numbers, and opening of each type.

use super::slices::Departure;
use super::upcall_queues::PortQueues;
use crate::ablation::Ablation;
use dpif::{
    AfxdpPort, DpifError, DummyPort, LOCAL_PORT, PcapPort, PortInfo, PortOptions, PortSpec, PortStats,
    RxqAffinity, SystemPort, XdpMode,
};
use flow::DpPort;
use netdev::afxdp::AfxdpOptions;
use netdev::dummy::{Dummy, DummyCaptures, DummyOptions};
use netdev::pcap::PcapOptions;
use netdev::{Port, SystemOptions, TapOptions};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Weak};

/// A port and its device.
pub(crate) struct OpenPort {
    pub(crate) info: PortInfo,
    pub(crate) device: Port,
    /// Its control handle, for a dummy.
    pub(crate) dummy: Option<Dummy>,
    /// Polled by the main core, not by a thread.
    pub(crate) inline: bool,
    /// Unknown to the kernel.
    pub(crate) bare: bool,
    /// Its upcall queues.
    pub(crate) upcalls: Arc<PortQueues>,
    /// Its configuration.
    pub(crate) spec: PortSpec,
    /// Tunnels that share it; 1 for others.
    pub(crate) users: usize,
    /// Receive queues that threads poll, numbered from 0.
    pub(crate) queues: u16,
    /// Pinned ones among them.
    pub(crate) affinity: RxqAffinity,
    /// Counters of ended threads and closed queues.
    pub(crate) retired: PortStats,
}

impl OpenPort {
    /// Lets the device of a tap end with its last descriptor. Until then it outlives the process.
    pub(crate) fn end_device(&self) {
        if let Err(e) = self.device.persist(false) {
            log::warn!(target: "dpif_netdev", "{}: its device stays: {e}", self.info.name);
        }
    }
}

/// Ports by their numbers.
#[derive(Default)]
pub(crate) struct Ports {
    open: BTreeMap<DpPort, OpenPort>,
    /// Removed ports of which threads may have flows.
    departing: BTreeMap<DpPort, Weak<()>>,
}

impl Ports {
    /// The number of a new port: the requested one if it is free, or in a dummy datapath the one in its name, else
    /// the first free one of which no flows are left, or the first free one. Only a request gives 0.
    ///
    /// # Errors
    /// A port of that name exists, or no number is left.
    pub(crate) fn number_for(&mut self, spec: &PortSpec, dummy: bool) -> Result<DpPort, DpifError> {
        self.departing.retain(|_, departure| departure.strong_count() > 0);
        if self.open.values().any(|p| p.info.name == spec.name) {
            return Err(DpifError::Device(format!("port {} is already in the datapath", spec.name)));
        }
        let usable = |n: &DpPort| {
            let free = n.0 < datapath::PORT_NUMBERS && !self.open.contains_key(n);
            free && (*n != LOCAL_PORT || spec.number == Some(LOCAL_PORT))
        };
        let named = if dummy { number_in(&spec.name) } else { None };
        let all = || (1..datapath::PORT_NUMBERS).map(DpPort);
        let gone = all().filter(|n| !self.departing.contains_key(n));
        let named = spec.number.into_iter().chain(named);
        named.chain(gone).chain(all()).find(usable).ok_or(DpifError::Full("the port table of the datapath"))
    }

    /// A further tunnel of a port, by its name; `None`: there is no such port.
    ///
    /// # Errors
    /// Its options differ.
    pub(crate) fn join_tunnel(&mut self, spec: &PortSpec) -> Option<Result<DpPort, DpifError>> {
        let wanted = spec.options.tunnel()?;
        let port = self.open.values_mut().find(|p| p.info.name == spec.name)?;
        if !port.spec.options.tunnel().is_some_and(|tunnel| tunnel.is_shared_with(wanted)) {
            return Some(Err(DpifError::Device(format!("{} is in use with other options", spec.name))));
        }
        port.users += 1;
        Some(Ok(port.info.number))
    }

    /// Whether other tunnels still use a port after one left.
    pub(crate) fn leave_tunnel(&mut self, port: DpPort) -> bool {
        self.get_mut(port).is_some_and(|port| {
            port.users -= 1;
            port.users > 0
        })
    }

    pub(crate) fn get(&self, port: DpPort) -> Option<&OpenPort> {
        self.open.get(&port)
    }

    pub(crate) fn get_mut(&mut self, port: DpPort) -> Option<&mut OpenPort> {
        self.open.get_mut(&port)
    }

    /// In the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &OpenPort> {
        self.open.values()
    }

    pub(crate) fn insert(&mut self, port: OpenPort) {
        self.open.insert(port.info.number, port);
    }

    /// Notes that a port is being removed: while a clone of the departure exists, new ports prefer other numbers.
    pub(crate) fn depart(&mut self, port: DpPort) -> Departure {
        let departure = Departure::default();
        self.departing.insert(port, Arc::downgrade(&departure));
        departure
    }

    pub(crate) fn remove(&mut self, port: DpPort) -> Option<OpenPort> {
        self.open.remove(&port)
    }

    /// Takes all of them out.
    pub(crate) fn take(&mut self) -> Vec<OpenPort> {
        std::mem::take(&mut self.open).into_values().collect()
    }

    /// Their number.
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// All of them, by number.
    pub(crate) fn infos(&self) -> Vec<PortInfo> {
        self.open.values().map(|p| p.info.clone()).collect()
    }
}

/// An opened device.
pub(crate) struct Opened {
    pub(crate) device: Port,
    /// Its displayed type.
    pub(crate) type_name: String,
    /// Its control handle, for a dummy.
    pub(crate) dummy: Option<Dummy>,
    /// Polled by the main core, not by a thread.
    pub(crate) inline: bool,
    /// Unknown to the kernel.
    pub(crate) bare: bool,
}

/// Opens the device of a port.
pub(crate) fn open(spec: &PortSpec, ablation: &Ablation) -> Result<Opened, DpifError> {
    let type_name = spec.options.userspace_type_name().to_string();
    let opened = |device| Opened { device, type_name, dummy: None, inline: false, bare: false };
    match &spec.options {
        PortOptions::System(options) => Ok(opened(open_system(spec, options, ablation)?)),
        PortOptions::Internal(_) | PortOptions::Tap(_) => {
            let options = TapOptions { mac: spec.mac.map(|m| m.0), mtu: spec.mtu, ..TapOptions::default() };
            Ok(opened(Port::open_tap(&spec.name, &options).map_err(device_error)?))
        }
        PortOptions::Afxdp(options) => Ok(opened(open_afxdp(&spec.name, options)?)),
        PortOptions::Dummy(options) => {
            let (device, dummy) =
                Port::open_dummy(&spec.name, &dummy_options(spec, options)).map_err(device_error)?;
            Ok(Opened { dummy: Some(dummy), inline: !options.pmd, bare: true, ..opened(device) })
        }
        PortOptions::Null(_) => Ok(Opened { bare: true, ..opened(Port::open_null(&spec.name)) }),
        PortOptions::Pcap(PcapPort { rx_pcap, tx_pcap, infinite_rx }) => {
            let options =
                PcapOptions { rx_pcap: rx_pcap.clone(), tx_pcap: tx_pcap.clone(), infinite_rx: *infinite_rx };
            let device = Port::open_pcap(&spec.name, &options).map_err(device_error)?;
            Ok(Opened { bare: true, ..opened(device) })
        }
        PortOptions::Patch(_) => {
            Err(DpifError::Device(format!("{}: a patch is no port of a datapath", spec.name)))
        }
        // Actions push and pop its headers.
        PortOptions::Tunnel(_) => {
            Ok(Opened { bare: true, inline: true, ..opened(Port::open_null(&spec.name)) })
        }
    }
}

fn device_error(e: io::Error) -> DpifError {
    DpifError::Device(e.to_string())
}

fn open_system(spec: &PortSpec, options: &SystemPort, ablation: &Ablation) -> Result<Port, DpifError> {
    let (n_rxq, merge_udp) = (options.n_rxq as usize, options.merge_udp);
    let options = ablation.system(SystemOptions { n_rxq, merge_udp, ..SystemOptions::default() });
    let ifindex = netdev::link::link_info(&spec.name).map_err(device_error)?.ifindex;
    // A device stays down if it is down, but several queues share its frames only while it is up.
    if options.n_rxq > 1 {
        netdev::link::set_admin_up(ifindex, true).map_err(device_error)?;
    }
    Port::open_system(&spec.name, &options).map_err(device_error)
}

/// Opens a device by AF_XDP and logs the resulting mode.
fn open_afxdp(name: &str, options: &AfxdpPort) -> Result<Port, DpifError> {
    let ifindex = netdev::link::link_info(name).map_err(device_error)?.ifindex;
    // Its queues exist only while it is up.
    netdev::link::set_admin_up(ifindex, true).map_err(device_error)?;
    let options = AfxdpOptions {
        mode: xdp_mode(options.mode),
        n_rxq: options.n_rxq as usize,
        use_need_wakeup: options.use_need_wakeup,
    };
    let (port, info) = Port::open_afxdp(name, &options).map_err(device_error)?;
    log::info!(target: "netdev_afxdp", "{name}: xdp-mode {}", info.mode);
    for note in info.notes {
        log::warn!(target: "netdev_afxdp", "{note}");
    }
    Ok(port)
}

fn xdp_mode(mode: XdpMode) -> netdev::XdpMode {
    match mode {
        XdpMode::BestEffort => netdev::XdpMode::BestEffort,
        XdpMode::NativeWithZerocopy => netdev::XdpMode::NativeWithZerocopy,
        XdpMode::Native => netdev::XdpMode::Native,
        XdpMode::Generic => netdev::XdpMode::Generic,
    }
}

fn dummy_options(spec: &PortSpec, options: &DummyPort) -> DummyOptions {
    DummyOptions {
        n_rxq: options.n_rxq as usize,
        n_txq: options.n_txq as usize,
        mac: spec.mac.map(|m| m.0),
        mtu: spec.mtu,
        numa_id: options.numa_id,
        ifindex: options.ifindex,
        captures: DummyCaptures {
            pcap: options.pcap.clone(),
            rxq_pcap: options.rxq_pcap.clone(),
            tx_pcap: options.tx_pcap.clone(),
        },
    }
}

/// The number in a port's name, for a dummy datapath: the first number in the name, plus 100 for a name that begins
/// with `br`.
fn number_in(name: &str) -> Option<DpPort> {
    let start = name.find(|c: char| c.is_ascii_digit())?;
    let digits = &name[start..];
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let base = if name.starts_with("br") { 100 } else { 0 };
    digits[..end].parse::<u32>().ok()?.checked_add(base).map(DpPort)
}

#[cfg(test)]
mod tests;
