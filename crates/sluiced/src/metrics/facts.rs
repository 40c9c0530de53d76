//! [`MainFacts`]: what only the main loop knows, copied for the thread of the metrics: names, states and handles, no counters
//! of ports. Its time is that of a copy of a few words a port.

use crate::control_plane::ControlPlane;
use crate::facts::DeviceState;
use crate::instances::Instance;
use crate::loop_times::TurnTimes;
use dpif::Provider;
use flow::{DpPort, OfPort};
use l2proto::Protocol;
use l2proto::protocol::LinkState;
use netdev::dummy::DummyPorts;
use ofproto::backer::Backer;
use ofproto::ports::BridgeId;
use ofproto::revalidate::RevalidatorStats;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use sync::Ordering;

/// A datapath.
pub(super) struct DatapathHandle {
    pub(super) datapath: Arc<dyn Provider>,
    pub(super) backer: Arc<Backer>,
    pub(super) handlers: usize,
    pub(super) revalidators: usize,
    pub(super) rounds: RevalidatorStats,
}

/// A bridge.
pub(super) struct BridgeFacts {
    pub(super) id: BridgeId,
    pub(super) name: Arc<str>,
    pub(super) datapath_type: String,
    /// Rows of `Port`.
    pub(super) ports: usize,
    /// Its datapath's number in [`MainFacts::datapaths`].
    pub(super) datapath: usize,
}

/// An interface that works.
pub(super) struct InterfaceFacts {
    /// Its bridge's number in [`MainFacts::bridges`].
    pub(super) bridge: usize,
    pub(super) name: String,
    pub(super) port: String,
    pub(super) type_name: String,
    pub(super) of_port: OfPort,
    pub(super) dp_port: Option<DpPort>,
    /// `None`: it has no device.
    pub(super) device: Option<DeviceState>,
}

/// A session of a link protocol.
pub(super) struct SessionFacts {
    pub(super) interface: String,
    pub(super) protocol: Protocol,
    pub(super) state: LinkState,
}

/// See the module documentation.
pub(super) struct MainFacts {
    /// Time that this took the main loop.
    pub(super) took_us: u64,
    pub(super) uptime_ms: u64,
    pub(super) turns: TurnTimes,
    /// Version of the schema, of DPDK, the system's name and version.
    pub(super) versions: [String; 4],
    /// `external_ids` of the row of `Open_vSwitch`: `system-id`, `hostname`, `rundir`.
    pub(super) ids: [String; 3],
    pub(super) datapaths: Vec<DatapathHandle>,
    pub(super) bridges: Vec<BridgeFacts>,
    pub(super) interfaces: Vec<InterfaceFacts>,
    pub(super) dummies: DummyPorts,
    /// Coverage counters without those of forwarding threads.
    pub(super) counters: Vec<(&'static str, u64)>,
    pub(super) rates: Vec<(&'static str, [f64; 3])>,
    pub(super) sessions: Vec<SessionFacts>,
    /// Packets of link protocols that were dropped for a full queue.
    pub(super) lost: Vec<(Protocol, u64)>,
    pub(super) cells: usize,
    pub(super) connections: usize,
    /// Settings that are refused, have no effect or another one.
    pub(super) ineffective: usize,
    pub(super) database: Option<PathBuf>,
}

/// Copies the facts.
pub(super) fn gather(plane: &ControlPlane) -> MainFacts {
    let begun_us = sys::clock::machine_us();
    let (switch, instances) = (&plane.switch, plane.switch.instances());
    let (planner, facts) = (switch.planner(), switch.facts());
    let datapaths: Vec<&Instance> = instances.iter().collect();
    let mut numbers: BTreeMap<BridgeId, usize> = BTreeMap::new();
    let mut bridges = Vec::new();
    for (instance, view) in instances.bridges() {
        let config = planner.desired().bridges.get(&*view.name);
        let datapath = datapaths.iter().position(|other| std::ptr::eq(*other, instance)).unwrap_or(0);
        numbers.insert(view.id, bridges.len());
        bridges.push(BridgeFacts {
            id: view.id,
            name: view.name.clone(),
            datapath_type: config.map_or_else(String::new, |config| config.datapath_type.clone()),
            ports: config.map_or(0, |config| config.ports.len()),
            datapath,
        });
    }
    let interfaces = planner.open_ports().filter_map(|port| {
        Some(InterfaceFacts {
            bridge: *numbers.get(&port.bridge)?,
            name: port.name.to_string(),
            port: port.port.to_string(),
            type_name: port.type_name.to_string(),
            of_port: port.of_port,
            dp_port: port.dp_port,
            device: facts.device_state(port.name),
        })
    });
    let replica = plane.db.client_ref().replica();
    let root = replica.rows("Open_vSwitch").next();
    let column = |name: &str| root.map_or("", |row| row.str(name)).to_string();
    let id =
        |key: &str| root.and_then(|row| row.map_str("external_ids", key)).unwrap_or_default().to_string();
    let links = switch.link_protocols();
    let sessions = facts.sessions().map(|(interface, protocol, state)| SessionFacts {
        interface: interface.to_string(),
        protocol,
        state,
    });
    let mut all = MainFacts {
        took_us: 0,
        uptime_ms: sys::clock::monotonic_ms().saturating_sub(plane.started_ms),
        turns: plane.loop_times.so_far().clone(),
        versions: ["db_version", "dpdk_version", "system_type", "system_version"].map(column),
        ids: ["system-id", "hostname", "rundir"].map(id),
        interfaces: interfaces.collect(),
        datapaths: datapaths.into_iter().map(handle).collect(),
        bridges,
        dummies: instances.dummy_ports().clone(),
        counters: plane.own_counters(),
        rates: plane.coverage.rates(),
        sessions: sessions.collect(),
        lost: Protocol::ALL.iter().map(|protocol| (*protocol, links.lost(*protocol))).collect(),
        cells: replica.cells(),
        connections: switch.openflow().links(),
        ineffective: planner.ineffective().len(),
        database: plane.db.file().map(PathBuf::from),
    };
    all.took_us = sys::clock::machine_us().saturating_sub(begun_us);
    all
}

fn handle(instance: &Instance) -> DatapathHandle {
    DatapathHandle {
        datapath: instance.datapath.clone(),
        backer: instance.backer.clone(),
        handlers: instance.handlers(),
        revalidators: instance.revalidator().threads.load(Ordering::Relaxed),
        rounds: instance.revalidator_stats(),
    }
}
