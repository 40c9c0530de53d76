//! [`Controller`]: a controller of a bridge, active or passive.
//!
//! Write access to the database must not reach every socket of the machine: Unix sockets are limited to the run
//! directory.

use crate::reactor::Reactor;
use crate::stream::{Endpoint, Listener};
use connmgr::{ConnSettings, ConnStatus};
use mio::Token;
use netdev::link::{add_default_gateway, add_ipv4, delete_ipv4, link_info, set_admin_up};
use openflow::msg::control::ControllerRole;
use openflow::reconnect::Reconnect;
use std::net::SocketAddrV4;
use std::path::{Component, Path};
use vswitch::config::{ConnectionMode, ControllerConfig, LocalAddress};
use vswitch::status::{ControllerFacts, ControllerRole as FactRole};

/// Default port of controllers (IANA).
const DEFAULT_PORT: u16 = 6653;

/// Kind of a controller's connection.
pub(super) enum Remote {
    Active { endpoint: Endpoint, reconnect: Reconnect, token: Option<Token> },
    Passive { listener: Option<Listener> },
}

/// A controller of a bridge.
pub(super) struct Controller {
    pub(super) config: ControllerConfig,
    pub(super) remote: Remote,
    pub(super) last_error: Option<String>,
    /// The address that the bridge's device has for it.
    local: Option<LocalAddress>,
    /// The reason why the device lacks address or gateway.
    local_fault: Option<String>,
}

/// Sets up the device of a bridge, and gives it an address in place of the one before; returns its index.
fn set_local_address(device: &str, new: LocalAddress, before: Option<LocalAddress>) -> std::io::Result<u32> {
    let link = link_info(device)?.ifindex;
    set_admin_up(link, true)?;
    if let Some(old) = before.filter(|old| (old.ip, old.prefix_bits) != (new.ip, new.prefix_bits)) {
        // An operator may have removed it.
        let _ = delete_ipv4(link, old.ip, old.prefix_bits);
    }
    add_ipv4(link, new.ip, new.prefix_bits)?;
    Ok(link)
}

/// The controller's bridge, and its permitted socket paths.
pub(super) struct ControllerBridge<'a> {
    pub(super) bridge: &'a str,
    pub(super) run_dir: &'a Path,
}

impl ControllerBridge<'_> {
    /// Write access to the database must not allow files anywhere: listening sockets are the bridge's own, in the
    /// run directory.
    fn may_listen_at(&self, path: &Path) -> bool {
        let name = path.file_name().and_then(|name| name.to_str());
        let is_own =
            name.and_then(|name| name.strip_prefix(self.bridge)).is_some_and(|rest| rest.starts_with('.'));
        is_own && path.parent() == Some(self.run_dir)
    }

    /// Whether the bridge may connect to this socket: only to one of the run directory, so that a database row
    /// reaches no other.
    fn may_connect_to(&self, path: &Path) -> bool {
        let climbs = path.components().any(|c| c == Component::ParentDir);
        !climbs && path.parent().is_some_and(|dir| dir.starts_with(self.run_dir))
    }
}

impl Controller {
    /// Listens for a passive controller; an active one is connected to later.
    pub(super) fn new(
        config: ControllerConfig,
        place: &ControllerBridge<'_>,
        reactor: &mut Reactor,
        now_ms: u64,
    ) -> Controller {
        let target = config.target.clone();
        let mut last_error = None;
        let endpoint = Endpoint::parse(&target, DEFAULT_PORT).map(|e| match e {
            // A path without a directory is in the run directory.
            Endpoint::Unix(path) => Endpoint::Unix(place.run_dir.join(path)),
            other => other,
        });
        let remote = match endpoint {
            Ok(Endpoint::PassiveUnix(path)) if !place.may_listen_at(&path) => {
                let (name, dir) = (place.bridge, place.run_dir.display());
                let may = format!("\"punix:{dir}/{name}.*\"");
                log::error!(target: "bridge", "bridge {name}: Not adding Unix domain socket controller \"{target}\" due to possibility of \
                    overwriting local files. Instead, specify path in permitted format {may} or connect to \
                    \"unix:{dir}/{name}.mgmt\" (which is always available without special configuration).");
                return Controller::refused(config, format!("not permitted: a socket must be at {may}"));
            }
            Ok(Endpoint::Unix(path)) if !place.may_connect_to(&path) => {
                let (name, dir) = (place.bridge, place.run_dir.display());
                log::error!(target: "bridge", "bridge {name}: Not connecting to socket controller \"{target}\" due to possibility for \
                    remote exploit.  Instead, specify socket in permitted directory \"unix:{dir}/\" or connect to \
                    \"unix:{dir}/{name}.mgmt\" (which is always available without special configuration).");
                return Controller::refused(
                    config,
                    format!("not permitted: a socket must be in \"unix:{dir}/\""),
                );
            }
            Ok(endpoint) if endpoint.is_passive() => {
                let token = reactor.token();
                let listener = Listener::open_in(&endpoint, config.dscp, reactor, token);
                if let Err(e) = &listener {
                    log::warn!(target: "connmgr", "{}: cannot listen at {target}: {e}", place.bridge);
                    last_error = Some(e.to_string());
                }
                Remote::Passive { listener: listener.ok() }
            }
            Ok(endpoint) => {
                let mut reconnect = Reconnect::new(now_ms);
                reconnect.set_max_backoff_ms(config.max_backoff_ms);
                // An established session sends its own probes.
                reconnect.set_probe_interval_ms(0);
                reconnect.enable(now_ms);
                Remote::Active { endpoint, reconnect, token: None }
            }
            Err(e) => {
                log::warn!(target: "connmgr", "{}: controller {e}", place.bridge);
                last_error = Some(e.to_string());
                Remote::Passive { listener: None }
            }
        };
        let controller = Controller { config, remote, last_error, local: None, local_fault: None };
        log::info!(target: "connmgr", "{}: added {} controller \"{target}\"", place.bridge, controller.kind_name());
        controller
    }

    /// Its kind in the log.
    pub(super) fn kind_name(&self) -> &'static str {
        if self.config.is_passive() { "service" } else { "primary" }
    }

    /// The reason for not serving it.
    fn refused(config: ControllerConfig, why: String) -> Controller {
        let remote = Remote::Passive { listener: None };
        Controller { config, remote, last_error: Some(why), local: None, local_fault: None }
    }

    /// Gives the bridge's device the address of the row, unless it has it; a fault is tried again with the next change
    /// of the configuration. As in OVS, the last address stays without a row.
    pub(super) fn set_local_address(&mut self, bridge: &str) {
        let Some(wanted) = self.config.local else { return };
        if self.local == Some(wanted) && self.local_fault.is_none() {
            return;
        }
        let LocalAddress { ip, prefix_bits, gateway } = wanted;
        let fault = match set_local_address(bridge, wanted, self.local) {
            Err(e) => Some(format!("cannot configure IP address {ip}: {e}")),
            Ok(link) => {
                log::info!(target: "bridge", "bridge {bridge}: configured IP address {ip}/{prefix_bits}");
                self.local = Some(wanted);
                gateway.and_then(|gateway| match add_default_gateway(link, gateway) {
                    Err(e) => Some(format!("cannot configure gateway {gateway}: {e}")),
                    Ok(()) => {
                        log::info!(target: "bridge", "bridge {bridge}: configured gateway {gateway}");
                        None
                    }
                })
            }
        };
        if fault != self.local_fault
            && let Some(why) = &fault
        {
            log::warn!(target: "bridge", "bridge {bridge}: {why}");
        }
        self.local_fault = fault;
    }

    /// Its address, if its connection may pass through the bridge.
    pub(super) fn in_band_address(&self) -> Option<SocketAddrV4> {
        let Remote::Active { endpoint, .. } = &self.remote else { return None };
        endpoint.remote_ipv4().filter(|_| self.config.connection_mode == ConnectionMode::InBand)
    }

    /// Settings of its connections.
    pub(super) fn settings(&self) -> ConnSettings {
        let c = &self.config;
        ConnSettings {
            probe_interval_ms: c.inactivity_probe_ms,
            rate_limit: c.rate_limit,
            queue_packets: c.queue_size_packets as usize,
            async_messages: c.enable_async_messages,
        }
    }

    /// Status for its row; `status` is that of its connection, if any.
    pub(super) fn facts(
        &self,
        status: Option<ConnStatus>,
        tls_fault: Option<&str>,
        now_ms: u64,
    ) -> ControllerFacts {
        let is_connected = status.is_some_and(|s| s.version.is_some());
        let role = status.filter(|_| is_connected).map(|s| match s.role {
            ControllerRole::Master => FactRole::Primary,
            ControllerRole::Slave => FactRole::Secondary,
            _ => FactRole::Other,
        });
        let mut facts = ControllerFacts { is_connected, role, ..ControllerFacts::default() };
        let mut say = |k: &str, v: String| facts.status.insert(k.to_string(), v);
        if let Remote::Active { reconnect, .. } = &self.remote {
            say("state", reconnect.state().name().to_string());
            if let Some(at) = reconnect.last_connected_ms() {
                say("sec_since_connect", (now_ms.saturating_sub(at) / 1000).to_string());
            }
            if let Some(at) = reconnect.last_disconnected_ms() {
                say("sec_since_disconnect", (now_ms.saturating_sub(at) / 1000).to_string());
            }
        }
        let queues = status.and_then(|s| s.queues).into_iter().flatten();
        for (kind, queue) in ["miss", "action"].into_iter().zip(queues) {
            say(&format!("packet-in-{kind}-bypassed"), queue.bypassed.to_string());
            say(&format!("packet-in-{kind}-queued"), queue.queued.to_string());
            say(&format!("packet-in-{kind}-dropped"), queue.dropped.to_string());
            say(&format!("packet-in-{kind}-backlog"), queue.backlog.to_string());
        }
        if let Some(why) = &self.local_fault {
            say("local_ip", why.clone());
        }
        let tls_fault = tls_fault.filter(|_| self.config.target.starts_with("pssl:"));
        if let Some(error) = self.last_error.as_deref().or(tls_fault).filter(|_| !is_connected) {
            say("last_error", sys::os_text(error));
        }
        facts
    }
}
