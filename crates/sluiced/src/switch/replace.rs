//! Changes of open devices by command: another number in the datapath (`dpif-dummy/change-port-number`), other options
//! (`dpctl/set-if`), removal (`dpctl/del-if`).
//!
//! A changed port is removed and added anew, so its flows end. Its OpenFlow number, rules and counters of rules stay.
//! Options last until those of its interface change in the database.

use super::Switch;
use crate::devices::{Body, Device};
use crate::reactor::Reactor;
use dpif::{DpifError, PortOptions, PortSpec};
use flow::DpPort;
use netdev::dummy::Dummy;
use vswitch::plan::DeviceSettings;

impl Switch {
    /// Removes the port of a device from its datapath, as if the device was lost: the next retry, or change of the
    /// database, adds it again. In OVS the latter does.
    pub(crate) fn remove_port(&mut self, name: &str, reactor: &mut Reactor) {
        self.planner.device_gone(name);
        let commands = self.planner.commands();
        self.carry_out(commands, reactor);
    }

    /// Gives a device another number in its datapath.
    ///
    /// # Errors
    /// There is no such device, or the datapath refuses the number; the device is as before.
    pub(crate) fn renumber_port(
        &mut self,
        name: &str,
        number: DpPort,
        reactor: &mut Reactor,
    ) -> Result<(), String> {
        let options = self.devices.get(name).ok_or("unknown port")?.options.clone();
        self.replace_port(name, number, options, reactor)
    }

    /// Gives a device other options.
    ///
    /// # Errors
    /// There is no such device, or it cannot have them; the device is as before, unless the error tells otherwise.
    pub(crate) fn set_port_options(
        &mut self,
        name: &str,
        options: PortOptions,
        reactor: &mut Reactor,
    ) -> Result<(), String> {
        let settings = self.settings_with(name, options);
        let device = self.devices.get_mut(name).ok_or("unknown port")?;
        if device.must_reopen(&settings) {
            let number = device.dp_port;
            return self.replace_port(name, number, settings.options, reactor);
        }
        device.update(&settings)
    }

    /// The settings of a device, with other options.
    fn settings_with(&self, name: &str, options: PortOptions) -> DeviceSettings {
        match self.planner.settings_of(name) {
            Some(sent) => DeviceSettings { options, ..sent.clone() },
            None => DeviceSettings {
                mac: None,
                mtu: None,
                rxq_affinity: Default::default(),
                options,
                qos: None,
                policing: Default::default(),
            },
        }
    }

    fn replace_port(
        &mut self,
        name: &str,
        number: DpPort,
        options: PortOptions,
        reactor: &mut Reactor,
    ) -> Result<(), String> {
        let before = self.devices.get(name).cloned().ok_or("unknown port")?;
        let settings = self.settings_with(name, options);
        let spec = |options: &PortOptions, number| PortSpec {
            name: options.port_name(name),
            options: options.clone(),
            mac: settings.mac,
            mtu: None,
            number: Some(number),
        };
        let kept = Kept::of(&before);
        self.streams.remove(name, reactor);
        before.datapath.port_del(before.dp_port).map_err(|e| e.to_string())?;
        let added = add(&before, &spec(&settings.options, number), number);
        let (options, number, failed) = match added {
            Ok(()) => (settings.options.clone(), number, None),
            Err(why) => {
                if let Err(lost) = add(&before, &spec(&before.options, before.dp_port), before.dp_port) {
                    self.devices.remove(name);
                    self.read_link(name.to_string());
                    self.planner.device_gone(name);
                    return Err(format!("{why}; the port is gone ({lost})"));
                }
                (before.options.clone(), before.dp_port, Some(why))
            }
        };
        let mut device = Device { dp_port: number, options, shaped: None, ..before };
        if let (Body::Dummy(_), Some(dummy)) = (&device.body, self.instances.dummy_ports().get(name)) {
            if let Some(kept) = kept {
                kept.restore(&dummy);
            }
            device.body = Body::Dummy(dummy);
        }
        let settings = DeviceSettings { options: device.options.clone(), ..settings };
        let streamed = self.streams.add(&device, device.options.stream(), reactor);
        let updated = device.update(&settings);
        self.devices.insert(name.to_string(), device);
        self.planner.device_moved(name, number);
        self.read_link(name.to_string());
        let commands = self.planner.commands();
        self.carry_out(commands, reactor);
        failed.map_or(Ok(()), Err)?;
        streamed.map_err(|e| e.to_string())?;
        updated
    }
}

/// Adds a port with exactly this number.
fn add(device: &Device, spec: &PortSpec, number: DpPort) -> Result<(), String> {
    let added = device.datapath.port_add(spec).map_err(|e: DpifError| e.to_string())?;
    if added == number {
        return Ok(());
    }
    // The number was taken meanwhile, or is beyond the table.
    let _ = device.datapath.port_del(added);
    Err(format!("the datapath has no port number {number}"))
}

/// State of a dummy that outlives its replacement.
struct Kept {
    addresses: Vec<(std::net::IpAddr, u8)>,
    mac: [u8; 6],
    admin_up: bool,
    mtu: u32,
}

impl Kept {
    fn of(device: &Device) -> Option<Kept> {
        let Body::Dummy(dummy) = &device.body else { return None };
        Some(Kept {
            addresses: dummy.addresses(),
            mac: dummy.mac(),
            admin_up: dummy.admin_up(),
            mtu: dummy.mtu(),
        })
    }

    fn restore(self, dummy: &Dummy) {
        dummy.set_mac(self.mac);
        dummy.set_admin_up(self.admin_up);
        // It had all of it before.
        let _same = dummy.set_mtu(self.mtu);
        for (address, bits) in self.addresses {
            let _same = dummy.add_address(address, bits);
        }
    }
}
