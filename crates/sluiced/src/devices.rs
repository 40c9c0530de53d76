//! Devices behind ports: opening them, their addresses and MTUs, and their state.
//!
//! Most are kernel devices; a dummy has its own state.

use dpif::qos::{LinkFacts, Policing, Qos};
use dpif::{DeviceOrigin, OptionChange, PortOptions, PortSpec, Provider};
use flow::{DpPort, MacAddr};
use netdev::dummy::{Dummy, DummyPorts};
use netdev::link::{self, EthtoolLink, LinkInfo};
use ofproto::tunnel::{TunnelConfig, TunnelHeaders};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Deref;
use std::sync::Arc;
use vswitch::plan::{DeviceSettings, OpenInterface, OpenedInterface};

/// MTU reported by a port without a device.
const BARE_MTU: u32 = 65_535;

/// Kind of a device.
#[derive(Clone)]
pub enum Body {
    /// A kernel device, by its index.
    Kernel(u32),
    /// A device internal to the switch.
    Dummy(Dummy),
    /// No device of its own, with an address for OpenFlow.
    Bare(MacAddr),
}

/// Quality of service and limits of a device.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Shaped {
    /// `None`: setting it failed, and is tried again with the next change.
    qos: Option<Option<Arc<Qos>>>,
    link: LinkFacts,
    /// `None`: likewise.
    policing: Option<Policing>,
}

/// An open device.
#[derive(Clone)]
pub struct Device {
    /// Its interface name.
    pub name: String,
    /// Its datapath.
    pub datapath: Arc<dyn Provider>,
    /// Its port number there.
    pub dp_port: DpPort,
    /// Its kind.
    pub body: Body,
    /// Its type and options.
    pub options: PortOptions,
    /// Quality of service and limits that it was given.
    pub(crate) shaped: Option<Shaped>,
}

/// The open devices, by interface name.
#[derive(Default)]
pub struct Devices {
    all: BTreeMap<String, Device>,
    /// Those whose state changes without an event of the kernel.
    silent: BTreeSet<String>,
}

impl Deref for Devices {
    type Target = BTreeMap<String, Device>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl Devices {
    /// Adds or replaces a device.
    pub(crate) fn insert(&mut self, name: String, device: Device) {
        if device.is_of_kernel() {
            self.silent.remove(&name);
        } else {
            self.silent.insert(name.clone());
        }
        self.all.insert(name, device);
    }

    /// Removes a device.
    pub(crate) fn remove(&mut self, name: &str) -> Option<Device> {
        self.silent.remove(name);
        self.all.remove(name)
    }

    /// A device, to be changed; its kind stays.
    pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut Device> {
        self.all.get_mut(name)
    }

    /// Those whose state changes without an event of the kernel.
    pub(crate) fn silent(&self) -> &BTreeSet<String> {
        &self.silent
    }

    /// All devices.
    pub(crate) fn into_all(self) -> BTreeMap<String, Device> {
        self.all
    }
}

impl Device {
    /// Configuration of a device's port.
    pub(crate) fn spec(open: &OpenInterface) -> PortSpec {
        let options = &open.device.options;
        PortSpec {
            name: options.port_name(&open.name),
            options: options.clone(),
            mac: open.device.mac,
            // Set afterwards: a device that rejects it is used unchanged.
            mtu: None,
            number: None,
        }
    }

    /// Opens a device and adds it to the datapath.
    ///
    /// # Errors
    /// The error text for its row: the device does not exist, or cannot be used.
    pub fn open(
        open: &OpenInterface,
        datapath: &Arc<dyn Provider>,
        dummy_ports: &DummyPorts,
    ) -> Result<(Device, OpenedInterface), String> {
        let name = &open.name;
        let failed = |why: &dyn std::fmt::Display| format!("could not open network device {name} ({why})");
        let spec = Device::spec(open);
        if is_foreign(&spec.options) {
            let info = link::link_info(name).map_err(|e| failed(&os_text(&e)))?;
            if info.loopback {
                // Packets sent there by the switch would arrive from there.
                return Err(format!("could not add network device {name} to ofproto (Invalid argument)"));
            }
        }
        let dp_port = datapath.port_add(&spec).map_err(|e| failed(&e))?;
        let options = open.device.options.clone();
        let body = match dummy_ports.get(name) {
            Some(dummy) => Ok(Body::Dummy(dummy)),
            None if options.tunnel().is_some() => Ok(Body::Bare(open.address)),
            None if !datapath.has_netdev(dp_port) => Ok(Body::Bare(open.device.mac.unwrap_or(open.address))),
            None => link::link_info(name).map(|info| Body::Kernel(info.ifindex)),
        };
        let device = body.and_then(|body| {
            let device = Device {
                name: name.clone(),
                datapath: datapath.clone(),
                dp_port,
                body,
                options,
                shaped: None,
            };
            let info = device.link()?;
            Ok((device, info))
        });
        let (device, info) = device.map_err(|e| {
            // It disappeared at once.
            let _ = datapath.port_del(dp_port);
            failed(&os_text(&e))
        })?;
        let mac = open.device.mac.or(info.mac.map(MacAddr)).unwrap_or_default();
        let mtu = Some(open.device.mtu.unwrap_or(info.mtu)).filter(|mtu| *mtu != 0);
        Ok((device, OpenedInterface { dp_port, mac, mtu }))
    }

    /// Its index; 0 for a device unknown to the kernel.
    pub fn ifindex(&self) -> u32 {
        match &self.body {
            Body::Kernel(ifindex) => *ifindex,
            Body::Dummy(dummy) => dummy.ifindex(),
            Body::Bare(_) => 0,
        }
    }

    /// Whether the kernel reports changes of its state.
    pub(crate) fn is_of_kernel(&self) -> bool {
        matches!(self.body, Body::Kernel(_))
    }

    /// Whether packets of such a tunnel may be this device's.
    pub fn collides(&self, tunnel: &TunnelConfig) -> bool {
        self.options.tunnel_config().is_some_and(|own| own.collides(tunnel))
    }

    /// Gives it its quality of service and limits, unless it has them; returns the failures.
    fn shape(&mut self, wanted: &DeviceSettings, info: &LinkInfo) -> Vec<String> {
        let Some(shaping) = self.datapath.shaping() else {
            let asked = wanted.qos.is_some() || !wanted.policing.is_none();
            let text = || format!("interface {}: its datapath has no quality of service", self.name);
            return asked.then(text).into_iter().collect();
        };
        let speed = wanted.qos.as_ref().and_then(|_| self.ethtool()?.speed_mbps).unwrap_or(0);
        let link = LinkFacts { mtu: wanted.mtu.unwrap_or(info.mtu), speed_bps: u64::from(speed) * 1_000_000 };
        let before = self.shaped.take();
        let mut errors = Vec::new();
        let mut shaped = Shaped { qos: None, link, policing: None };
        let has_qos = before.as_ref().and_then(|b| b.qos.as_ref()) == Some(&wanted.qos);
        let same_link = before.as_ref().is_some_and(|b| b.link == link) || wanted.qos.is_none();
        match has_qos && same_link {
            true => shaped.qos = Some(wanted.qos.clone()),
            false => match shaping.set_qos(self.dp_port, wanted.qos.as_ref(), link) {
                Ok(()) => shaped.qos = Some(wanted.qos.clone()),
                Err(e) => errors.push(format!("interface {}: cannot set QoS {e}", self.name)),
            },
        }
        // A new port has no limits.
        let limits = before.map_or(Some(Policing::default()), |b| b.policing);
        match limits == Some(wanted.policing) {
            true => shaped.policing = limits,
            false => match shaping.set_policing(self.dp_port, wanted.policing) {
                Ok(()) => shaped.policing = Some(wanted.policing),
                Err(e) => errors.push(format!("interface {}: cannot set ingress policing: {e}", self.name)),
            },
        }
        self.shaped = Some(shaped);
        errors
    }

    /// Whether the switch's own scheduler serves its queues.
    pub(crate) fn has_own_scheduler(&self) -> bool {
        let has_qos =
            self.shaped.as_ref().is_some_and(|shaped| shaped.qos.as_ref().is_some_and(Option::is_some));
        has_qos && self.datapath.shaping().is_some_and(|shaping| shaping.has_own_scheduler(self.dp_port))
    }

    /// Its current state.
    pub fn link(&self) -> std::io::Result<LinkInfo> {
        match &self.body {
            Body::Kernel(ifindex) => match link::link_info(&self.name)? {
                info if info.ifindex == *ifindex => Ok(info),
                _ => Err(io::Error::other("another device has its name")),
            },
            Body::Dummy(dummy) => Ok(LinkInfo {
                ifindex: dummy.ifindex(),
                name: self.name.clone(),
                mac: Some(dummy.mac()),
                mtu: dummy.mtu(),
                admin_up: dummy.admin_up(),
                lower_up: dummy.admin_up(),
                ..LinkInfo::default()
            }),
            Body::Bare(mac) => Ok(LinkInfo {
                name: self.name.clone(),
                mac: Some(mac.0),
                // A tunnel's MTU depends on the route of its packets.
                mtu: if self.options.tunnel().is_some() { 0 } else { BARE_MTU },
                admin_up: true,
                lower_up: true,
                ..LinkInfo::default()
            }),
        }
    }

    /// Speed and duplex according to its driver.
    pub fn ethtool(&self) -> Option<EthtoolLink> {
        match self.body {
            Body::Kernel(_) => link::ethtool_link(&self.name).ok(),
            Body::Dummy(_) | Body::Bare(_) => None,
        }
    }

    /// Name, version and firmware of its driver.
    pub fn driver(&self) -> Option<[String; 3]> {
        match self.body {
            Body::Kernel(_) => link::driver(&self.name).ok(),
            Body::Dummy(_) | Body::Bare(_) => None,
        }
    }

    /// Whether the device still exists, possibly in another network namespace; `None` if the kernel reports its end.
    pub fn own_exists(&self) -> Option<bool> {
        self.datapath.own_device_exists(self.dp_port)
    }

    /// Whether changed options require reopening the device.
    pub fn must_reopen(&self, wanted: &DeviceSettings) -> bool {
        self.options.change(&wanted.options) == OptionChange::Reopen
    }

    /// Sets it up or down, on a controller's request.
    ///
    /// # Errors
    /// It cannot be set, with the reason.
    pub fn set_admin_up(&self, up: bool) -> Result<(), String> {
        match &self.body {
            Body::Kernel(ifindex) => known(*ifindex).and_then(|i| link::set_admin_up(i, up)).map_err(|e| {
                format!(
                    "interface {}: cannot set it {}: {}",
                    self.name,
                    if up { "up" } else { "down" },
                    os_text(&e)
                )
            }),
            Body::Dummy(dummy) => {
                dummy.set_admin_up(up);
                Ok(())
            }
            Body::Bare(_) => Err(format!("interface {}: it has no device to be set up or down", self.name)),
        }
    }

    /// Sets address, MTU and receive queue options, as far as possible.
    ///
    /// # Errors
    /// All failures, with reasons.
    pub fn update(&mut self, wanted: &DeviceSettings) -> Result<(), String> {
        self.options.clone_from(&wanted.options);
        let failed = |what: &str, why: &dyn std::fmt::Display| {
            format!("interface {}: cannot set {what}: {why}", self.name)
        };
        let mut errors = Vec::new();
        if let Some(threads) = self.datapath.pmd_threads()
            && let Err(e) = threads.port_rx_update(self.dp_port, &wanted.options, &wanted.rxq_affinity)
        {
            errors.push(failed("receive queues", &e));
        }
        let info = self.link().map_err(|e| failed("anything", &os_text(&e)))?;
        if let Some(mtu) = wanted.mtu.filter(|mtu| *mtu != info.mtu) {
            let set = match &self.body {
                Body::Kernel(ifindex) => {
                    known(*ifindex).and_then(|i| link::set_mtu(i, mtu)).map_err(|e| os_text(&e))
                }
                Body::Dummy(dummy) => dummy.set_mtu(mtu).map_err(|e| e.to_string()),
                Body::Bare(_) if self.options.tunnel().is_some() => {
                    Err("a tunnel has that of the way its packets take".to_string())
                }
                Body::Bare(_) => Err("it has none".to_string()),
            };
            errors.extend(set.err().map(|e| failed(&format!("MTU {mtu}"), &e)));
        }
        // An existing device keeps its address.
        let ours = !is_foreign(&self.options);
        if let Some(mac) = wanted.mac.filter(|mac| ours && info.mac != Some(mac.0)) {
            let set = match &self.body {
                Body::Kernel(ifindex) => {
                    known(*ifindex).and_then(|i| link::set_mac(i, mac.0)).map_err(|e| os_text(&e))
                }
                Body::Dummy(dummy) => {
                    dummy.set_mac(mac.0);
                    Ok(())
                }
                Body::Bare(_) => Err("it keeps its own".to_string()),
            };
            errors.extend(set.err().map(|e| failed(&format!("address {mac}"), &e)));
        }
        errors.extend(self.shape(wanted, &info));
        if errors.is_empty() { Ok(()) } else { Err(errors.join("; ")) }
    }
}

/// The index of a device in this network namespace, or the error of one that is in another.
fn known(ifindex: u32) -> io::Result<u32> {
    if ifindex == 0 { Err(io::Error::other("it is in another network namespace")) } else { Ok(ifindex) }
}

/// Whether the port is a kernel device not made by the switch.
fn is_foreign(port: &PortOptions) -> bool {
    port.device_origin() == DeviceOrigin::Existing
}

/// The system's text of an error, without its number and context.
fn os_text(e: &std::io::Error) -> String {
    let text = sys::os_text(e);
    text.rsplit(": ").next().unwrap_or(&text).to_string()
}
