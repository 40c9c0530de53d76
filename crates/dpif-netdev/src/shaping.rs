//! [`Shaping`] of the userspace datapath: disciplines of the kernel for its devices, and the switch's own policers and
//! scheduler.
//!
//! The scheduler serves `linux-htb` and `linux-hfsc` where the kernel lacks them, and on `afxdp` ports, whose packets pass
//! the kernel's disciplines by.

use super::UserspaceDatapath;
use super::ports::OpenPort;
use dpif::qos::{LinkFacts, Policing, Qos, QueueStats, ShownQos, all_types, policer_types};
use dpif::{DeviceOrigin, PortOptions, Shaping};
use flow::DpPort;
use std::sync::Arc;
use sync::lock;

/// Disciplines of a port whose packets the kernel does not see.
const BYPASSING: [&str; 4] = ["linux-hfsc", "linux-htb", "egress-policer", "trtcm-policer"];

/// Server of the queues of a port.
#[derive(Clone, Copy)]
enum Server {
    /// The kernel, for the device of that index, or the switch itself.
    Kernel(u32),
    /// The switch, for a device of the kernel that sends past its disciplines.
    Bypassing,
    /// The switch, which only polices.
    Inside,
    /// Nobody: actions use a tunnel, and nothing is sent to it.
    Nobody,
}

impl Server {
    fn of(open: &OpenPort) -> Server {
        match &open.spec.options {
            options if options.tunnel().is_some() => Server::Nobody,
            PortOptions::Afxdp(_) => Server::Bypassing,
            // Without an index, the device of a tap is in another network namespace: the kernel refuses.
            options
                if open.is_link()
                    && (open.device.ifindex() != 0 || options.device_origin() == DeviceOrigin::Created) =>
            {
                Server::Kernel(open.device.ifindex())
            }
            _ => Server::Inside,
        }
    }
}

impl UserspaceDatapath {
    /// The server of a port, if it is open, and the answer of `ask`.
    fn at_port<T>(&self, port: DpPort, ask: impl FnOnce(&OpenPort) -> T) -> Option<(Server, T)> {
        let s = lock(&self.pool.state);
        s.ports.get(port).map(|open| (Server::of(open), ask(open)))
    }

    pub(crate) fn port_queues(&self, port: DpPort) -> Vec<QueueStats> {
        let queues = |open: &OpenPort| {
            let own = open.egress.queues(sys::clock::monotonic_us());
            (own, open.dummy.is_some())
        };
        match self.at_port(port, queues) {
            Some((_, (Some(queues), _))) => queues,
            Some((Server::Kernel(ifindex), _)) => self.disciplines.queues(ifindex),
            // A device within the switch has one queue that is not counted.
            Some((_, (_, true))) => vec![QueueStats::UNKNOWN],
            Some(_) | None => Vec::new(),
        }
    }

    /// Serves a port by the own scheduler.
    fn schedule(&self, port: DpPort, qos: &Qos, link: LinkFacts) -> Result<(), String> {
        let name = qos.discipline.name();
        let serve = |open: &OpenPort| {
            if open.egress.reschedule(qos, link) {
                return Ok(());
            }
            let tx = open.device.tx().map_err(|e| format!("{name}: {e}"))?;
            open.egress.schedule(self.scheduler.serve(qos, link, tx)?);
            Ok(())
        };
        self.at_port(port, serve).map_or(Ok(()), |(_, done)| done)
    }

    fn set_egress(&self, port: DpPort, qos: &Qos, link: LinkFacts) -> Result<(), String> {
        let name = qos.discipline.name();
        let clear = || {
            self.at_port(port, |open| open.egress.clear());
        };
        let is_scheduled = qos.discipline.is_scheduled();
        match self.at_port(port, |_| ()).map(|(server, ())| server) {
            None => Ok(()),
            Some(Server::Nobody) => Err(format!("{name}: a tunnel sends by another port")),
            Some(server) if qos.discipline.is_policer() => {
                if let Server::Kernel(ifindex) = server {
                    self.disciplines.set(ifindex, None, link).map_err(|e| e.text)?;
                }
                let police = |open: &OpenPort| open.egress.police(qos, sys::clock::monotonic_us());
                self.at_port(port, police).map_or(Ok(()), |(_, done)| done)
            }
            Some(Server::Kernel(ifindex)) => {
                match self.disciplines.set(ifindex, Some(&Arc::new(qos.clone())), link) {
                    Err(e) if e.is_unknown && is_scheduled => {
                        self.disciplines.forget(ifindex);
                        self.schedule(port, qos, link)
                    }
                    set => {
                        clear();
                        set.map_err(|e| e.text)
                    }
                }
            }
            Some(Server::Bypassing) if is_scheduled => self.schedule(port, qos, link),
            Some(Server::Bypassing) => {
                clear();
                Err(format!("{name}: packets of an afxdp port pass the kernel's disciplines by"))
            }
            Some(Server::Inside) => {
                clear();
                Err(format!("{name}: a port without a device of the kernel has no discipline"))
            }
        }
    }
}

impl Shaping for UserspaceDatapath {
    fn set_qos(&self, port: DpPort, qos: Option<&Arc<Qos>>, link: LinkFacts) -> Result<(), String> {
        if let Some(qos) = qos {
            return self.set_egress(port, qos, link);
        }
        match self.at_port(port, |open| open.egress.clear()) {
            Some((Server::Kernel(ifindex), ())) => {
                self.disciplines.set(ifindex, None, link).map_err(|e| e.text)
            }
            Some(_) | None => Ok(()),
        }
    }

    fn set_policing(&self, port: DpPort, limits: Policing) -> Result<(), String> {
        if let Some(open) = lock(&self.pool.state).ports.get(port) {
            open.policer.set(limits, sys::clock::monotonic_us());
        }
        Ok(())
    }

    fn shown_qos(&self, port: DpPort) -> ShownQos {
        match self.at_port(port, |open| open.egress.shown()) {
            Some((_, Some(shown))) => shown,
            Some((Server::Kernel(ifindex), None)) => self.disciplines.shown(ifindex),
            Some(_) | None => ShownQos::default(),
        }
    }

    fn qos_types(&self, port: DpPort) -> &'static [&'static str] {
        match self.at_port(port, |open| open.dummy.is_some()) {
            Some((Server::Kernel(_), _)) => all_types(),
            Some((Server::Bypassing, _)) => &BYPASSING,
            // As in stock switches a dummy lists none.
            Some((Server::Inside, is_dummy)) if !is_dummy => policer_types(),
            Some((Server::Inside | Server::Nobody, _)) | None => &[],
        }
    }

    fn has_own_scheduler(&self, port: DpPort) -> bool {
        self.at_port(port, |open| open.egress.is_scheduled()).is_some_and(|(_, scheduled)| scheduled)
    }
}
