//! Devices behind ports: opening them, their addresses and MTUs, and what is known of them.
//!
//! Most are devices of the kernel; a dummy is none, and answers for itself.

use crate::userspace::UserspaceDatapath;
use dpif::{Datapath, PortKind, PortSpec};
use flow::{DpPort, MacAddr};
use netdev::dummy::Dummy;
use netdev::link::{self, EthtoolLink, LinkInfo};
use std::sync::Arc;
use vswitch::DummyMode;
use vswitch::plan::{DeviceSettings, OpenInterface, OpenedInterface};

/// What a device is.
#[derive(Clone)]
pub enum Body {
    /// A device of the kernel, by its index.
    Kernel(u32),
    /// A device of ours alone.
    Dummy(Dummy),
}

/// A device that is open.
#[derive(Clone)]
pub struct Device {
    /// Its interface name.
    pub name: String,
    /// The datapath it is in.
    pub datapath: Arc<UserspaceDatapath>,
    /// Its number there.
    pub dp_port: DpPort,
    /// Its type as in the database.
    pub type_name: String,
    /// What it is.
    pub body: Body,
}

impl Device {
    /// Opens a device and adds it to the datapath.
    ///
    /// # Errors
    /// The whole text for its row: there is no such device, or it cannot be used.
    pub fn open(
        open: &OpenInterface,
        datapath: &Arc<UserspaceDatapath>,
        dummies: DummyMode,
    ) -> Result<(Device, OpenedInterface), String> {
        let name = &open.name;
        let failed = |why: &dyn std::fmt::Display| format!("could not open network device {name} ({why})");
        let kind = match open.type_name.as_str() {
            "system" => PortKind::System,
            "internal" => PortKind::Internal,
            "tap" => PortKind::Tap,
            other => PortKind::Other(other.to_string()),
        };
        if kind == PortKind::System && !dummies.replaces("system") {
            link::link_info(name).map_err(|e| failed(&os_text(&e)))?;
        }
        let spec = PortSpec {
            name: name.clone(),
            kind,
            mac: open.device.mac,
            mtu: open.device.mtu,
            number: None,
            options: open.device.options.iter().map(|(k, v)| (k.clone(), v.clone())).collect(),
        };
        let dp_port = datapath.port_add(&spec).map_err(|e| failed(&e))?;
        let body = match datapath.dummy(dp_port) {
            Some(dummy) => Ok(Body::Dummy(dummy)),
            None => link::link_info(name).map(|info| Body::Kernel(info.ifindex)),
        };
        let type_name = open.type_name.clone();
        let device = body.and_then(|body| {
            let device = Device { name: name.clone(), datapath: datapath.clone(), dp_port, type_name, body };
            let info = device.link()?;
            Ok((device, info))
        });
        let (device, info) = device.map_err(|e| {
            // It went away at once.
            let _ = datapath.port_del(dp_port);
            failed(&os_text(&e))
        })?;
        if let Err(e) = device.update(&open.device) {
            log::warn!(target: "bridge", "{e}");
        }
        let mac = open.device.mac.or(info.mac.map(MacAddr)).unwrap_or_default();
        Ok((device, OpenedInterface { dp_port, mac, mtu: Some(open.device.mtu.unwrap_or(info.mtu)) }))
    }

    /// Its index; 0 for a device that the kernel does not know.
    pub fn ifindex(&self) -> u32 {
        match &self.body {
            Body::Kernel(ifindex) => *ifindex,
            Body::Dummy(dummy) => dummy.ifindex(),
        }
    }

    /// Its state now.
    pub fn link(&self) -> std::io::Result<LinkInfo> {
        match &self.body {
            Body::Kernel(_) => link::link_info(&self.name),
            Body::Dummy(dummy) => Ok(LinkInfo {
                ifindex: dummy.ifindex(),
                name: self.name.clone(),
                mac: Some(dummy.mac()),
                mtu: dummy.mtu(),
                admin_up: dummy.admin_up(),
                lower_up: dummy.admin_up(),
                ..LinkInfo::default()
            }),
        }
    }

    /// What its driver says of speed and duplex.
    pub fn ethtool(&self) -> Option<EthtoolLink> {
        match self.body {
            Body::Kernel(_) => link::ethtool_link(&self.name).ok(),
            Body::Dummy(_) => None,
        }
    }

    /// Name, version and firmware of its driver.
    pub fn driver(&self) -> Option<[String; 3]> {
        match self.body {
            Body::Kernel(_) => link::driver(&self.name).ok(),
            Body::Dummy(_) => None,
        }
    }

    /// Whether the device still is there, be it in another network namespace; `None` when the kernel tells of its end.
    pub fn own_exists(&self) -> Option<bool> {
        self.datapath.own_device_exists(self.dp_port)
    }

    /// Sets address, MTU, and what concerns receive queues.
    ///
    /// # Errors
    /// What could not be set, and why.
    pub fn update(&self, wanted: &DeviceSettings) -> Result<(), String> {
        let failed = |what: &str, why: &dyn std::fmt::Display| {
            format!("interface {}: cannot set {what}: {why}", self.name)
        };
        let options: Vec<_> = wanted.options.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        self.datapath
            .port_rx_update(self.dp_port, &options, &wanted.rxq_affinity)
            .map_err(|e| failed("receive queues", &e))?;
        let info = self.link().map_err(|e| failed("anything", &os_text(&e)))?;
        if let Some(mtu) = wanted.mtu.filter(|mtu| *mtu != info.mtu) {
            let set = match &self.body {
                Body::Kernel(ifindex) => link::set_mtu(*ifindex, mtu).map_err(|e| os_text(&e)),
                Body::Dummy(dummy) => dummy.set_mtu(mtu).map_err(|e| e.to_string()),
            };
            set.map_err(|e| failed(&format!("MTU {mtu}"), &e))?;
        }
        // An existing device's address belongs to whoever made it.
        let ours = self.type_name != "system" || matches!(self.body, Body::Dummy(_));
        if let Some(mac) = wanted.mac.filter(|mac| ours && info.mac != Some(mac.0)) {
            match &self.body {
                Body::Kernel(ifindex) => link::set_mac(*ifindex, mac.0)
                    .map_err(|e| failed(&format!("address {mac}"), &os_text(&e)))?,
                Body::Dummy(dummy) => dummy.set_mac(mac.0),
            }
        }
        Ok(())
    }
}

/// The system's own words for an error, without its number and without what was tried.
pub(crate) fn os_text(e: &std::io::Error) -> String {
    let text = e.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    text.rsplit(": ").next().unwrap_or(text).to_string()
}
