//! The kernel datapath (the Linux module `openvswitch`) behind [`dpif::Datapath`]: the kernel forwards
//! packets; this crate sends operations to it and receives upcalls from it.
//!
//! - `ops`: operations as netlink requests; answers arrive at once, within [`Datapath::operate`];
//! - `dispatch`, `source`, `queues`: upcalls, from the kernel's sockets to handlers;
//! - `probe`: capabilities of the kernel;
//! - `conntrack`: the kernel's connection tracking;
//! - `upkeep`: restores objects removed by other programs.
//!
//! The datapath belongs to the kernel, not to the process: it survives the process with its ports and flows,
//! and the next process takes it over. Removing the last bridge removes it ([`dpif::Provider::remove`]). If
//! another program removes it, it is recreated with its ports.

#![forbid(unsafe_code)]
// Tests match only on relevant variants.
#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

mod conntrack;
mod dispatch;
mod ops;
mod probe;
mod queues;
mod shaping;
mod source;
mod upkeep;

pub use dispatch::Mode;
pub use netlink::{messages_received, messages_sent};

use dispatch::Dispatch;
use dpif::qos::QueueStats;
use dpif::{
    Capabilities, Connections, Counted, Datapath, DeviceStats, DpAction, DpifError, DropReason, KernelPort,
    LookupMasks, MeterConfig, MeterStats, OpBatch, OpCounts, PmdId, PortInfo, PortOptions, PortSpec,
    PortStats, Provider, Shaping, TunnelKind, UpcallReceiver, UpcallSockets,
};
use flow::DpPort;
use flow::extract::MAX_VLANS;
use flow::nlkey::KeyLimits;
use netdev::SystemOptions;
use netdev::link::{self, LinkStats};
use netlink::ovs::{
    DpInfo, DpName, DpNew, DpSet, FlowDel, FlowName, FlowParts, Request, TunnelOptions, VportInfo, VportKind,
    VportMonitor, VportNew, VportSet, features,
};
use netlink::{Conntrack, Ovs};
use ops::Dumps;
use source::{KernelSource, Shared};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use sync::{AtomicU64, Mutex, Ordering, lock};

/// Configuration of the kernel datapath.
#[derive(Clone, Debug)]
pub struct KernelConfig {
    /// `type@name`.
    pub name: String,
    /// Dispatch mode of upcalls; `None`: the best that the kernel supports.
    pub dispatch: Option<Mode>,
    /// Flows of a former process stay.
    pub keep_flows: bool,
}

/// Whether the kernel has a datapath that this process may use; returns its version.
///
/// # Errors
/// The reason, if not.
pub fn available() -> Result<String, String> {
    Ovs::open().map(|_| probe::version()).map_err(|e| e.to_string())
}

struct Port {
    info: PortInfo,
    kind: VportKind,
    /// Options of a port that tunnels share.
    tunnel: Option<TunnelOptions>,
    /// Number of users: tunnels share a port.
    users: usize,
    /// The device of a port of type `tap`, which outlives the process. Nothing reads it: packets that the host or the
    /// datapath sends to it fill its queue and are dropped, as with the stock switch.
    tap: Option<netdev::Port>,
}

/// See the module.
pub struct KernelDatapath {
    name: String,
    ovs: Ovs,
    conntrack: Conntrack,
    ifindex: AtomicU64,
    can: Capabilities,
    limits: KeyLimits,
    shared: Arc<Shared>,
    dispatch: Arc<Dispatch>,
    ports: Mutex<BTreeMap<DpPort, Port>>,
    removed: Mutex<PortStats>,
    dumps: Mutex<Dumps>,
    /// Packets that the kernel did not execute.
    lost_executes: AtomicU64,
    random: AtomicU64,
    /// Time of the last logged rejection by the kernel.
    logged_rejection_ms: AtomicU64,
    /// Reports removed ports; `None` if unavailable.
    gone: Mutex<Option<VportMonitor>>,
    links: link::AllLinkStats,
    disciplines: netdev::tc::Disciplines,
    ops: OpCounts,
}

impl KernelDatapath {
    /// Takes over the datapath of the network namespace, or creates it. Existing ports stay; users add
    /// theirs.
    ///
    /// # Errors
    /// The module is missing or not permitted, or descriptors are exhausted; the text is for the bridge's
    /// status.
    pub fn start(config: &KernelConfig) -> Result<KernelDatapath, DpifError> {
        let failed = |e: netlink::Error| DpifError::Device(e.to_string());
        let system = |e: io::Error| DpifError::Device(e.to_string());
        let ovs = Ovs::open().map_err(failed)?;
        let short = short_name(&config.name);
        let info = match ovs.dp_get(DpName::Name(short)) {
            Ok(info) => {
                log::info!(target: "dpif_netlink", "{}: takes over the kernel's datapath, which has {} flows", config.name, info.stats.flows);
                info
            }
            Err(e) if e.is_no_device() => ovs
                .dp_new(&DpNew {
                    name: short.to_string(),
                    user_features: features::UNALIGNED,
                    ..DpNew::default()
                })
                .map_err(failed)?,
            Err(e) => return Err(failed(e)),
        };
        // Before flows are deleted: from then on nothing is forwarded until ports exist.
        let found = probe::capabilities(&ovs, info.dp_ifindex);
        let mode = probe::dispatch(&ovs, info.dp_ifindex, config.dispatch)?;
        if config.keep_flows {
            delete_foreign_flows(&ovs, info.dp_ifindex).map_err(failed)?;
        } else {
            ovs.flow_flush(info.dp_ifindex).map_err(failed)?;
        }
        let datapath = KernelDatapath {
            name: config.name.clone(),
            ifindex: AtomicU64::new(info.dp_ifindex.into()),
            can: found.can,
            limits: found.limits,
            shared: Arc::new(Shared::new().map_err(system)?),
            dispatch: Arc::new(Dispatch::new(mode)),
            ports: Mutex::default(),
            removed: Mutex::default(),
            dumps: Mutex::default(),
            lost_executes: AtomicU64::new(0),
            random: AtomicU64::new(sys::random::u64().map_err(system)?),
            logged_rejection_ms: AtomicU64::new(0),
            gone: Mutex::new(upkeep::listen(&ovs)),
            links: link::AllLinkStats::default(),
            disciplines: Default::default(),
            ops: OpCounts::default(),
            conntrack: Conntrack::here(),
            ovs,
        };
        datapath.open_cpu_sockets()?;
        datapath.port_add(&PortSpec {
            name: short.to_string(),
            options: PortOptions::local(false),
            mac: None,
            mtu: None,
            number: Some(DpPort(0)),
        })?;
        Ok(datapath)
    }

    /// Dispatch mode of upcalls.
    pub fn mode(&self) -> Mode {
        self.dispatch.mode()
    }

    fn dp_ifindex(&self) -> u32 {
        self.ifindex.load(Ordering::Relaxed) as u32
    }

    fn info(&self) -> Result<DpInfo, netlink::Error> {
        self.ovs.dp_get(DpName::Ifindex(self.dp_ifindex()))
    }

    /// In per-CPU mode opens the sockets and reports them to the kernel.
    fn open_cpu_sockets(&self) -> Result<(), DpifError> {
        if self.mode() != Mode::PerCpu {
            return Ok(());
        }
        let cpus = probe::Cpus::of_machine().map_err(|e| DpifError::Device(e.to_string()))?;
        let mut pids = BTreeMap::new();
        for cpu in &cpus.present {
            let source = self.source()?;
            pids.insert(*cpu, dispatch::Source::pid(&source));
            self.dispatch.cpu_add(*cpu, Box::new(source)).map_err(|e| DpifError::Device(e.to_string()))?;
        }
        self.set_cpu_pids(cpus.pids(&pids))
    }

    fn set_cpu_pids(&self, pids: Vec<u32>) -> Result<(), DpifError> {
        let change = DpSet {
            user_features: Some(features::UNALIGNED | features::DISPATCH_UPCALL_PER_CPU),
            masks_cache_size: None,
            per_cpu_pids: Some(pids),
        };
        let set = self.ovs.dp_set(DpName::Ifindex(self.dp_ifindex()), &change);
        set.map(drop).map_err(|e| DpifError::Device(e.to_string()))
    }

    fn source(&self) -> Result<KernelSource, DpifError> {
        KernelSource::open(&self.ovs, &self.shared).map_err(|e| DpifError::Device(e.to_string()))
    }

    /// The kernel's port for `spec`: an existing one, or a new one.
    fn vport(
        &self,
        spec: &PortSpec,
        kind: VportKind,
        tunnel: Option<TunnelOptions>,
        pids: Vec<u32>,
    ) -> Result<VportInfo, DpifError> {
        let failed = |e: netlink::Error| self.error(&e, None);
        let mut number = spec.number;
        let same_options = |there: &VportInfo| there.tunnel.unwrap_or_default() == tunnel.unwrap_or_default();
        match self.ovs.vport_get_by_name(&spec.name) {
            Ok(there)
                if there.dp_ifindex == self.dp_ifindex() && there.kind == kind && same_options(&there) =>
            {
                let change = VportSet { upcall_pids: Some(pids), tunnel: None };
                return self.ovs.vport_set(there.dp_ifindex, there.number, &change).map_err(failed);
            }
            Ok(there) if there.dp_ifindex == self.dp_ifindex() => {
                self.ovs.vport_del(there.dp_ifindex, there.number).map_err(failed)?;
                if tunnel.is_some() && there.kind == VportKind::Netdev {
                    // As created by the stock switch: a separate device, added to the datapath.
                    link::delete(&spec.name).map_err(|e| DpifError::Device(e.to_string()))?;
                }
                // Flows that stay name it.
                number = Some(there.number);
            }
            Ok(_) => {
                return Err(DpifError::Device(format!("{} is a port of another datapath", spec.name)));
            }
            // It does not exist.
            Err(_) => {}
        }
        let new = VportNew { name: spec.name.clone(), kind, number, upcall_pids: pids, tunnel };
        self.ovs.vport_new(self.dp_ifindex(), &new).map_err(failed)
    }

    /// Counters of a port, its upcalls among them.
    fn counters_of(&self, vport: &VportInfo) -> PortStats {
        let s = vport.stats;
        let mut stats = PortStats {
            rx_packets: s.rx_packets,
            rx_bytes: s.rx_bytes,
            rx_dropped: s.rx_dropped,
            rx_errors: s.rx_errors,
            tx_packets: s.tx_packets,
            tx_bytes: s.tx_bytes,
            tx_dropped: s.tx_dropped,
            tx_errors: s.tx_errors,
            ..PortStats::default()
        };
        if let Some(upcalls) = self.dispatch.port(vport.number) {
            // Kernels since 6.3 count lost upcalls per port; older ones only report a full socket.
            let lost = vport.upcall_stats.map_or(upcalls.overruns.load(Ordering::Relaxed), |s| s.fail);
            stats.drops[DropReason::UpcallQueueFull as usize] =
                upcalls.refused.load(Ordering::Relaxed) + lost;
        }
        stats
    }

    /// Counters of ports, with those that their devices keep beside them.
    fn all_counters(&self, vports: &[VportInfo]) -> Vec<(DpPort, PortStats)> {
        let links = self.links.get(&vports.iter().map(index_here).collect::<Vec<_>>());
        let with_device = |(vport, link): (&VportInfo, Option<LinkStats>)| {
            // The kernel reported drops and errors with the port.
            let device = link.map(|link| DeviceStats {
                rx_multicast: link.multicast,
                rx_missed: link.rx_missed_errors,
                rx_frame: link.rx_frame_errors,
                rx_over: link.rx_over_errors,
                rx_crc: link.rx_crc_errors,
                tx_aborted: link.tx_aborted_errors,
                tx_carrier: link.tx_carrier_errors,
                collisions: link.collisions,
                ..DeviceStats::default()
            });
            (vport.number, PortStats { device, ..self.counters_of(vport) })
        };
        vports.iter().zip(links).map(with_device).collect()
    }
}

/// Index of a port's device; 0: it is in another network namespace than the datapath, or unknown.
fn index_here(vport: &VportInfo) -> u32 {
    vport.ifindex.filter(|_| vport.netnsid.is_none()).unwrap_or(0)
}

/// Deletes flows that recirculate or match a recirculation id, and those without a ufid: their ids are lost
/// with their process, and this one reuses them. Also deletes flows with actions that no translation
/// generates: other programs own them, and they may name those programs' sockets.
fn delete_foreign_flows(ovs: &Ovs, ifindex: u32) -> Result<(), netlink::Error> {
    let goes = |a: &DpAction| a.any(|a| matches!(a, DpAction::Recirc(_)) || !a.is_translated());
    let mut kept = 0;
    let mut going = Vec::new();
    for flow in ovs.flow_dump(ifindex, FlowParts::ALL)? {
        let flow = flow?;
        let keyed = flow.key_and_mask(MAX_VLANS).is_ok_and(|(key, ..)| key.base.recirc_id == 0);
        let stays = keyed && flow.dp_actions().is_ok_and(|actions| !actions.iter().any(goes));
        match (flow.ufid, flow.key) {
            (Some(_), _) if stays => kept += 1,
            (Some(ufid), _) => going.push(FlowName::Ufid(ufid)),
            (None, Some(key)) => going.push(FlowName::Key(key)),
            (None, None) => {}
        }
    }
    let gone = going.len();
    let requests: Vec<_> =
        going.into_iter().map(|name| Request::FlowDel(FlowDel { name, stats: false })).collect();
    for result in ovs.operate(ifindex, &requests) {
        result.map(drop).or_else(|e| if e.is_not_found() { Ok(()) } else { Err(e) })?;
    }
    log::info!(target: "dpif_netlink", "{kept} flows of a former process stay until rules are restored; {gone} that recirculate, or are of another program, went");
    Ok(())
}

/// The kernel's port type, and the options of a tunnel port.
fn vport_kind(options: &PortOptions) -> Result<(VportKind, Option<TunnelOptions>), DpifError> {
    let needs_userspace = |what: String| {
        let text = format!("{what} the userspace datapath: set the bridge's datapath_type to netdev");
        Err(DpifError::Unsupported(text))
    };
    let tunnel = match options.kernel_port() {
        Some(KernelPort::Netdev | KernelPort::Tap) => return Ok((VportKind::Netdev, None)),
        Some(KernelPort::Internal) => return Ok((VportKind::Internal, None)),
        Some(KernelPort::Tunnel(tunnel)) => tunnel,
        None => return needs_userspace(format!("interface type {} needs", options.type_name())),
    };
    let name = tunnel.kind.name();
    let kind = match tunnel.kind {
        TunnelKind::Vxlan => VportKind::Vxlan,
        TunnelKind::Geneve => VportKind::Geneve,
        TunnelKind::Gre => VportKind::Gre,
        TunnelKind::Ip6gre
        | TunnelKind::Erspan
        | TunnelKind::Ip6erspan
        | TunnelKind::Gtpu
        | TunnelKind::Srv6 => return needs_userspace(format!("tunnels of type {name} need")),
    };
    if tunnel.l3 {
        return needs_userspace(format!("tunnels of type {name} with packet_type or exts=gpe need"));
    }
    let dst_port = Some(tunnel.dst_port).filter(|port| *port != 0);
    Ok((kind, Some(TunnelOptions { dst_port, vxlan_gbp: tunnel.gbp })))
}

/// Creates the device of a port of type `tap`.
fn create_tap(spec: &PortSpec) -> Result<netdev::Port, DpifError> {
    let opened = netdev::open(spec, &SystemOptions::default());
    opened.map(|opened| opened.device).map_err(|e| DpifError::Device(e.to_string()))
}

/// `ovs-system` of `system@ovs-system`.
fn short_name(name: &str) -> &str {
    name.split_once('@').map_or(name, |(_, short)| short)
}

impl Datapath for KernelDatapath {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        self.can
    }

    fn port_add(&self, spec: &PortSpec) -> Result<DpPort, DpifError> {
        let (kind, tunnel) = vport_kind(&spec.options)?;
        if tunnel.is_some()
            && let Some((number, port)) = lock(&self.ports).iter_mut().find(|(_, p)| p.info.name == spec.name)
        {
            if port.tunnel != tunnel {
                return Err(DpifError::Device(format!("{} is in use with other options", spec.name)));
            }
            port.users += 1;
            return Ok(*number);
        }
        let source = match self.mode() {
            Mode::PerCpu => None,
            Mode::PerPort => Some(self.source()?),
        };
        let tap =
            (spec.options.kernel_port() == Some(KernelPort::Tap)).then(|| create_tap(spec)).transpose()?;
        let pids = source.as_ref().map(dispatch::Source::pid).into_iter().collect();
        let vport = self.vport(spec, kind, tunnel, pids)?;
        let number = vport.number;
        let boxed = source.map(|s| Box::new(s) as Box<dyn dispatch::Source>);
        if let Err(e) = self.dispatch.port_add(number, boxed) {
            self.dispatch.port_del(number);
            // Its upcalls would have no receiver.
            let _ = self.ovs.vport_del(self.dp_ifindex(), number);
            return Err(DpifError::Device(format!("cannot wait for upcalls: {e}")));
        }
        // From here on only `port_del` ends a tap.
        if let Some(Err(e)) = tap.as_ref().map(|tap| tap.persist(true)) {
            log::warn!(target: "dpif_netlink", "{}: its device ends with this process: {e}", spec.name);
        }
        let type_name = spec.options.type_name().to_string();
        let info = PortInfo { number, name: spec.name.clone(), type_name };
        lock(&self.ports).insert(number, Port { info, kind, tunnel, users: 1, tap });
        probes::port_added(&self.name, number, &spec.name);
        self.ops.count_added();
        Ok(number)
    }

    fn port_del(&self, port: DpPort) -> Result<(), DpifError> {
        {
            let mut ports = lock(&self.ports);
            let known = ports.get_mut(&port).ok_or(DpifError::NotFound("port"))?;
            known.users -= 1;
            if known.users > 0 {
                return Ok(());
            }
            let gone = ports.remove(&port);
            if let Some(tap) = gone.as_ref().and_then(|port| port.tap.as_ref())
                && let Err(e) = tap.persist(false)
            {
                log::warn!(target: "dpif_netlink", "{}: its device stays: {e}", tap.name());
            }
            self.forget_device(gone.map(|port| port.info.name));
        }
        if let Ok(vport) = self.ovs.vport_get(self.dp_ifindex(), port) {
            lock(&self.removed).add(&self.counters_of(&vport));
        }
        let gone = self.ovs.vport_del(self.dp_ifindex(), port);
        self.dispatch.port_del(port);
        probes::port_removed(&self.name, port);
        self.ops.count_removed();
        match gone {
            // It went with its interface.
            Err(e) if e.is_no_device() => Ok(()),
            Err(e) => Err(self.error(&e, None)),
            Ok(()) => Ok(()),
        }
    }

    fn ports(&self) -> Vec<PortInfo> {
        lock(&self.ports).values().map(|p| p.info.clone()).collect()
    }

    fn port_stats(&self, port: DpPort) -> Result<PortStats, DpifError> {
        let vport = self.ovs.vport_get(self.dp_ifindex(), port).map_err(|e| self.error(&e, None))?;
        Ok(self.all_counters(&[vport])[0].1)
    }

    fn all_port_stats(&self) -> Vec<(DpPort, PortStats)> {
        let mut vports = self.ovs.vport_dump(self.dp_ifindex()).unwrap_or_default();
        {
            let known = lock(&self.ports);
            vports.retain(|vport| known.contains_key(&vport.number));
        }
        vports.sort_unstable_by_key(|vport| vport.number);
        self.all_counters(&vports)
    }

    fn queues(&self, port: DpPort) -> Vec<QueueStats> {
        self.port_queues(port)
    }

    fn pmds(&self) -> Vec<PmdId> {
        vec![PmdId::None]
    }

    fn operate(&self, batch: OpBatch) {
        probes::sent(&batch.ops);
        probes::log_operations(&self.name, &batch.ops);
        let results = self.carry_out(&batch.ops);
        batch.ops.iter().zip(&results).for_each(|(op, result)| self.ops.count(Counted::of(op), result));
        probes::answered(&batch.ops, &results);
        if let Some(reply) = batch.reply {
            reply.done(batch.pmd, batch.tag, results);
        }
    }

    fn connections(&self) -> Option<&dyn Connections> {
        Some(self)
    }

    fn meter_set(&self, id: u32, config: &MeterConfig) -> Result<(), DpifError> {
        self.ovs.meter_set(self.dp_ifindex(), id, config).map_err(|e| self.error(&e, None))
    }

    fn meter_del(&self, id: u32) -> Result<(), DpifError> {
        self.ovs.meter_del(self.dp_ifindex(), id).map(drop).map_err(|e| self.error(&e, None))
    }

    fn meter_stats(&self, id: u32) -> Result<MeterStats, DpifError> {
        self.ovs.meter_get(self.dp_ifindex(), id).map(|m| m.stats).map_err(|e| self.error(&e, None))
    }
}

impl Provider for KernelDatapath {
    fn op_counts(&self) -> Vec<(&'static str, u64)> {
        self.ops.all()
    }

    fn shaping(&self) -> Option<&dyn Shaping> {
        Some(self)
    }

    /// One for each processor: the kernel forwards on all of them, without threads of the daemon.
    fn usual_handlers(&self, processors: usize) -> usize {
        processors
    }

    fn set_handlers(&self, handlers: usize) -> io::Result<Vec<Box<dyn UpcallReceiver>>> {
        let ends = self.dispatch.set_handlers(handlers)?;
        log::info!(
            target: "dpif_netlink",
            "{}: upcalls come {} by {} sockets to {} handlers",
            self.name,
            self.mode().name(),
            self.dispatch.sockets(),
            ends.len()
        );
        Ok(ends)
    }

    fn set_vlan_limit(&self, tags: u8) -> u8 {
        let tags = tags.min(self.can.max_vlan_headers);
        self.shared.set_vlan_limit(tags);
        tags
    }

    fn wake_handlers(&self) {
        self.dispatch.wake();
    }

    fn own_device_exists(&self, port: DpPort) -> Option<bool> {
        let ours = lock(&self.ports).get(&port).map(|p| p.kind == VportKind::Internal || p.tap.is_some())?;
        ours.then(|| self.ovs.vport_get(self.dp_ifindex(), port).is_ok())
    }

    fn own_device_index(&self, port: DpPort) -> Option<u32> {
        self.own_device_exists(port).filter(|exists| *exists)?;
        Some(index_here(&self.ovs.vport_get(self.dp_ifindex(), port).ok()?))
    }

    fn ended_with_port(&self) -> u64 {
        self.dispatch.ended_with_port()
    }

    fn upcalls_waiting(&self, port: DpPort) -> u64 {
        self.dispatch.port(port).map_or(0, |p| p.waiting.load(Ordering::Relaxed))
    }

    fn removed_ports(&self) -> PortStats {
        *lock(&self.removed)
    }

    fn tick(&self) {
        self.restore_ports();
        if let Err(e) = self.restore_datapath() {
            log::error!(target: "dpif_netlink", "{}: {e}", self.name);
        }
    }

    fn sweep_ports(&self) {
        let Ok(all) = self.ovs.vport_dump(self.dp_ifindex()) else { return };
        for left in all.iter().filter(|p| !lock(&self.ports).contains_key(&p.number)) {
            log::info!(target: "dpif_netlink", "{}: deleting port {} of a former process", self.name, left.name);
            if let Err(e) = self.ovs.vport_del(left.dp_ifindex, left.number) {
                log::warn!(target: "dpif_netlink", "{}: {e}", self.name);
            }
        }
    }

    fn lookup_masks(&self) -> Option<LookupMasks> {
        let info = self.info().ok()?;
        let m = info.megaflow_stats;
        Some(LookupMasks {
            packets: info.stats.hit + info.stats.missed,
            visited: m.mask_hit,
            masks: m.masks,
            cache_hits: m.cache_hit,
            cache_size: info.masks_cache_size,
        })
    }

    fn upcall_sockets(&self) -> Option<UpcallSockets> {
        Some(UpcallSockets {
            dispatch: self.mode().name(),
            sockets: self.dispatch.sockets(),
            handlers: self.dispatch.handlers(),
        })
    }

    fn remove(&self) {
        if let Err(e) = self.ovs.dp_del(DpName::Ifindex(self.dp_ifindex())) {
            log::warn!(target: "dpif_netlink", "{}: {e}", self.name);
        }
    }
}
