//! Names that exporters of OVS have.

use super::Kind::{Counter, Gauge};
use super::{Metric, Sink, number, row};
use crate::facts::OVS_VERSION;
use crate::metrics::snapshot::{DatapathFacts, PortFacts, Snapshot};

const BRIDGE: &[&str] = &["bridge", "datapath_type"];
const DATAPATH: &[&str] = &["type", "name"];
const INTERFACE: &[&str] = &["bridge", "port", "interface", "type"];
const SYSTEM: &[&str] = &["system_id", "datapath"];

/// The component that all is about.
const COMPONENT: &str = "ovs-vswitchd";

#[rustfmt::skip]
pub(super) const FIRST: &[Metric] = &[
    row("ovs_build_info", Gauge, &["ovs_version", "dpdk_version", "db_version"],
        "Always 1, with the versions of OVS that tools see, of DPDK and of the schema.", |s, out| {
            let [db, dpdk, ..] = &s.main.versions;
            out.add(&[OVS_VERSION, dpdk, db], 1.0);
        }),
    row("ovs_dpdk_initialized", Gauge, &[], "Whether DPDK is initialized: 0, because there is none.", |_, out| out.add(&[], 0.0)),
    row("ovs_bridge_port_count", Gauge, BRIDGE, "Ports of a bridge.", |s, out| {
        s.main.bridges.iter().for_each(|b| out.add(&[&b.name, &b.datapath_type], b.ports as f64));
    }),
    row("ovs_bridge_flow_count", Gauge, BRIDGE, "OpenFlow rules of a bridge, without hidden ones.", |s, out| {
        s.main.bridges.iter().zip(&s.flows).for_each(|(b, n)| out.add(&[&b.name, &b.datapath_type], *n as f64));
    }),
    row("ovs_interface_admin_state", Gauge, INTERFACE, "Whether an interface is set up: 1 up, 0 down, -1 unknown.", |s, out| {
        interfaces(s, out, |p| state(p, |device| device.is_up));
    }),
    row("ovs_interface_link_state", Gauge, INTERFACE, "Whether an interface has a carrier: 1 up, 0 down, -1 unknown.", |s, out| {
        interfaces(s, out, |p| state(p, |device| device.has_carrier));
    }),
    row("ovs_interface_mtu_bytes", Gauge, INTERFACE, "Largest payload of a frame, in bytes; 0 unknown.", |s, out| {
        interfaces(s, out, |p| p.interface.device.map_or(0.0, |device| device.mtu.into()));
    }),
    row("ovs_interface_link_speed_bps", Gauge, INTERFACE, "Speed of the link, in bits a second; 0 unknown.", |s, out| {
        interfaces(s, out, |p| p.interface.device.map_or(0.0, |device| device.speed_bps as f64));
    }),
    row("ovs_interface_link_resets", Counter, INTERFACE, "Changes of the carrier.", |s, out| {
        interfaces(s, out, |p| p.interface.device.map_or(0.0, |device| device.resets.into()));
    }),
    row("ovs_interface_rx_packets", Counter, INTERFACE, "Packets received.", |s, out| {
        interfaces(s, out, |p| counter(p, "rx_packets"));
    }),
    row("ovs_interface_rx_bytes", Counter, INTERFACE, "Bytes received.", |s, out| {
        interfaces(s, out, |p| counter(p, "rx_bytes"));
    }),
    row("ovs_interface_rx_errors", Counter, INTERFACE, "Invalid packets received.", |s, out| {
        interfaces(s, out, |p| counter(p, "rx_errors"));
    }),
    row("ovs_interface_rx_dropped", Counter, INTERFACE, "Packets lost before the switch.", |s, out| {
        interfaces(s, out, |p| first(p, ["rx_missed_errors", "rx_dropped"]));
    }),
    row("ovs_interface_tx_packets", Counter, INTERFACE, "Packets sent.", |s, out| {
        interfaces(s, out, |p| counter(p, "tx_packets"));
    }),
    row("ovs_interface_tx_bytes", Counter, INTERFACE, "Bytes sent.", |s, out| {
        interfaces(s, out, |p| counter(p, "tx_bytes"));
    }),
    row("ovs_interface_tx_errors", Counter, INTERFACE, "Packets that could not be sent.", |s, out| {
        interfaces(s, out, |p| first(p, ["ovs_tx_failure_drops", "tx_errors"]));
    }),
    row("ovs_interface_tx_dropped", Counter, INTERFACE, "Packets dropped on transmission.", |s, out| {
        interfaces(s, out, |p| counter(p, "tx_dropped"));
    }),
    row("ovs_datapath_flows_total", Gauge, DATAPATH, "Flows of a datapath now.", |s, out| {
        datapaths(s, out, |d| d.sum.flows);
    }),
    row("ovs_datapath_lookup_hits_total", Gauge, DATAPATH, "Packets that a flow matched.", |s, out| {
        datapaths(s, out, |d| d.sum.hits());
    }),
    row("ovs_datapath_lookup_missed_total", Gauge, DATAPATH, "Packets that no flow matched.", |s, out| {
        datapaths(s, out, missed);
    }),
    row("ovs_datapath_lookup_lost_total", Gauge, DATAPATH, "Packets without a flow that were dropped before the slow path.", |s, out| {
        datapaths(s, out, |d| d.sum.lost());
    }),
    row("ovs_coverage_NAME_total", Counter, &[], "Coverage counter NAME, as in coverage/show; also those that are 0.", |s, out| {
        s.coverage.iter().for_each(|(name, n)| out.add(&[name], *n as f64));
    }),
    row("ovs_memory_handlers_total", Gauge, &[], "Threads that translate first packets.", |s, out| memory(s, out, "handlers")),
    row("ovs_memory_keys_total", Gauge, &[], "Flows that the slow path keeps.", |s, out| memory(s, out, "udpif keys")),
    row("ovs_memory_ports_total", Gauge, &[], "Ports of all bridges.", |s, out| memory(s, out, "ports")),
    row("ovs_memory_revalidators_total", Gauge, &[], "Threads that revalidate flows.", |s, out| memory(s, out, "revalidators")),
    row("ovs_memory_rules_total", Gauge, &[], "OpenFlow rules of all bridges, with hidden ones.", |s, out| memory(s, out, "rules")),
];

#[rustfmt::skip]
pub(super) const SECOND: &[Metric] = &[
    row("ovs_up", Gauge, &[], "Always 1: the switch answers.", |_, out| out.add(&[], 1.0)),
    row("ovs_info", Gauge,
        &["system_id", "rundir", "hostname", "system_type", "system_version", "ovs_version", "db_version"],
        "Always 1, with names and versions of the system.", |s, out| {
            let [db, _, kind, version] = &s.main.versions;
            let [id, host, rundir] = &s.main.ids;
            out.add(&[id, rundir, host, kind, version, OVS_VERSION, db], 1.0);
        }),
    row("ovs_dp_flows", Gauge, SYSTEM, "Flows of a datapath now.", |s, out| system(s, out, |d| d.sum.flows as f64)),
    row("ovs_dp_lookups_hit", Counter, SYSTEM, "Packets that a flow matched.", |s, out| {
        system(s, out, |d| d.sum.hits() as f64);
    }),
    row("ovs_dp_lookups_missed", Counter, SYSTEM, "Packets that no flow matched.", |s, out| {
        system(s, out, |d| missed(d) as f64);
    }),
    row("ovs_dp_lookups_lost", Counter, SYSTEM, "Packets without a flow that were dropped before the slow path.", |s, out| {
        system(s, out, |d| d.sum.lost() as f64);
    }),
    row("ovs_dp_masks_hit", Counter, SYSTEM, "Masks visited by lookups.", |s, out| {
        system(s, out, |d| d.masks_visited() as f64);
    }),
    row("ovs_dp_masks_total", Gauge, SYSTEM, "Different masks of the flows now.", |s, out| {
        system(s, out, |d| d.masks.map_or(d.sum.masks as f64, |masks| masks.masks.into()));
    }),
    row("ovs_dp_masks_hit_ratio", Gauge, SYSTEM, "Masks visited a packet; 0 without packets.", |s, out| {
        system(s, out, |d| if d.lookups() == 0 { 0.0 } else { d.masks_visited() as f64 / d.lookups() as f64 });
    }),
    row("ovs_dp_br_if_total", Gauge, &["system_id", "datapath", "bridge"], "Interfaces of a bridge that work.", |s, out| {
        for (n, bridge) in s.main.bridges.iter().enumerate() {
            let interfaces = s.ports.iter().filter(|port| port.interface.bridge == n).count();
            let datapath = s.datapaths.get(bridge.datapath).map_or("", |d| &d.full_name);
            out.add(&[&s.main.ids[0], datapath, &bridge.name], interfaces as f64);
        }
    }),
    row("ovs_coverage_avg", Gauge, &["system_id", "component", "event", "interval"],
        "Events a second over the last 5 seconds (5s), the last minute (5m) and the last hour (1h): the other exporter's names \
         for the three rates of coverage/show.", |s, out| {
            for (event, rates) in &s.main.rates {
                for (interval, rate) in ["5s", "5m", "1h"].into_iter().zip(rates) {
                    out.add(&[&s.main.ids[0], COMPONENT, event, interval], *rate);
                }
            }
        }),
    row("ovs_coverage_total", Counter, &["system_id", "component", "event"], "Nonzero coverage counters.", |s, out| {
        let hit = s.coverage.iter().filter(|(_, n)| *n > 0);
        hit.for_each(|(event, n)| out.add(&[&s.main.ids[0], COMPONENT, event], *n as f64));
    }),
    row("ovs_memory_usage", Gauge, &["system_id", "component", "facility"], "Counts of memory/show.", |s, out| {
        let some = s.memory.iter().filter(|(_, n)| *n > 0);
        some.for_each(|(facility, n)| out.add(&[&s.main.ids[0], COMPONENT, facility], *n as f64));
    }),
    row("ovs_db_file_size", Gauge, &["system_id", "component", "filename"],
        "Bytes of the database's file, where the switch serves it.", |s, out| file(s, out, 0)),
    row("ovs_log_file_size", Gauge, &["system_id", "component", "filename"], "Bytes of the log file.", |s, out| file(s, out, 1)),
    row("ovs_log_event_count", Counter, &["system_id", "component", "severity"], "Messages logged since the start.", |s, out| {
        s.logged.iter().for_each(|(severity, n)| out.add(&[&s.main.ids[0], COMPONENT, severity], *n as f64));
    }),
];

fn interfaces(s: &Snapshot, out: &mut dyn Sink, value: fn(&PortFacts) -> f64) {
    for port in &s.ports {
        let at = &port.interface;
        let bridge = &s.main.bridges[at.bridge].name;
        out.add(&[bridge, &at.port, &at.name, &at.type_name], value(port));
    }
}

fn state(port: &PortFacts, is: fn(&crate::facts::DeviceState) -> bool) -> f64 {
    match &port.interface.device {
        Some(device) => number(is(device)),
        // As in the database.
        None if port.interface.type_name == "patch" => 1.0,
        None => -1.0,
    }
}

fn counter(port: &PortFacts, name: &str) -> f64 {
    port.counters.get(name).map_or(0.0, |n| *n as f64)
}

/// The first counter that is not 0.
fn first(port: &PortFacts, names: [&str; 2]) -> f64 {
    names.into_iter().map(|name| counter(port, name)).find(|n| *n > 0.0).unwrap_or(0.0)
}

fn datapaths(s: &Snapshot, out: &mut dyn Sink, value: fn(&DatapathFacts) -> u64) {
    s.datapaths.iter().for_each(|datapath| out.add(&datapath.names(), value(datapath) as f64));
}

fn system(s: &Snapshot, out: &mut dyn Sink, value: fn(&DatapathFacts) -> f64) {
    s.datapaths.iter().for_each(|datapath| out.add(&[&s.main.ids[0], &datapath.full_name], value(datapath)));
}

fn missed(datapath: &DatapathFacts) -> u64 {
    datapath.sum.upcalls + datapath.sum.lost()
}

fn memory(s: &Snapshot, out: &mut dyn Sink, name: &str) {
    s.memory.iter().filter(|(other, _)| *other == name).for_each(|(_, n)| out.add(&[], *n as f64));
}

fn file(s: &Snapshot, out: &mut dyn Sink, which: usize) {
    if let Some((path, bytes)) = &s.files[which] {
        out.add(&[&s.main.ids[0], COMPONENT, &path.display().to_string()], *bytes as f64);
    }
}
