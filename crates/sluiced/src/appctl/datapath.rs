//! Commands that show datapaths and their ports.

use super::{Form, Json, Optional, Reply, Rows, TypedReply, Word, command};
use crate::control_plane::ControlPlane;
use crate::instances::Instance;
use crate::switch::Switch;
use dpif::text::PortNames;
use dpif::{
    DeviceStats, DpifOp, FlowRecord, LookupMasks, OpResult, PmdId, PmdThreads, PortStats, UpcallSockets,
};
use flow::{DpPort, OfPort};
use ofproto::ports::Port;
use ofproto::tunnel::{Endpoint, TunnelConfig, TunnelKey, TunnelKind};
use ofproto::view::BridgeView;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

/// The commands of this module.
pub(super) const ROWS: Rows = &[
    &command(
        "dpctl/cache-get-size",
        Optional(Word("dp")),
        "show the sizes of the configurable caches of datapaths",
        cache_sizes,
    ),
    &command(
        "dpctl/cache-set-size",
        (Word("dp"), Word("cache"), Word("size")),
        "set the size of a cache of a datapath",
        set_cache_size,
    ),
    &command("dpctl/dump-dps", (), "list the datapaths", list),
    &command(
        "dpctl/show",
        Form("[-s] [dp...]", 0, 16, Asked::parse),
        "show datapaths with their ports, with -s also port counters",
        dpctl_show,
    ),
    &command(
        "dpif-netlink/dispatch-mode",
        (),
        "show how kernel datapaths distribute upcalls",
        dispatch_modes,
    ),
    &command("dpif/dump-dps", (), "list the bridges, each behind its datapath type", list_bridges),
    &command("dpif/show", (), "show the bridges and ports of each datapath", dpif_show),
    &command("ofproto/list-tunnels", (), "list the tunnel ports of all bridges", list_tunnels),
];

/// Flows of one dump request.
const DUMP_FLOWS: usize = 512;

/// Names of the datapath's ports.
pub(super) struct Names {
    ports: BTreeMap<DpPort, String>,
    /// Its keys include packet types.
    pub(super) packet_types: bool,
}

impl Names {
    pub(super) fn of(instance: &Instance) -> Names {
        Names {
            ports: instance.datapath.ports().into_iter().map(|p| (p.number, p.name)).collect(),
            packet_types: instance.datapath.capabilities().packet_types,
        }
    }
}

impl PortNames for Names {
    fn name(&self, port: DpPort) -> Option<String> {
        self.ports.get(&port).cloned()
    }

    fn number(&self, name: &str) -> Option<DpPort> {
        self.ports.iter().find(|(_, n)| *n == name).map(|(p, _)| *p)
    }
}

pub(super) fn thread_name(pmd: PmdId) -> String {
    match pmd {
        PmdId::Main => "the main thread:".to_string(),
        PmdId::Core(n) => format!("pmd on cpu core: {n}"),
        PmdId::None => "no thread".to_string(),
    }
}

/// The datapath of a name from the command line, or the only one.
pub(super) fn datapath<'a>(switch: &'a Switch, name: Option<&str>) -> Result<&'a Instance, String> {
    switch.instances().named(name)
}

/// The datapath of a name from the command line, or all datapaths, limited to those with forwarding threads.
///
/// # Errors
/// The datapath does not exist, or it has no forwarding threads here.
pub(super) fn with_threads<'a>(
    switch: &'a Switch,
    name: Option<&str>,
) -> Result<Vec<WithThreads<'a>>, String> {
    let of = |i: &'a Instance| Some((i, i.datapath.pmd_threads()?));
    match name {
        None => Ok(switch.instances().all().into_iter().filter_map(of).collect()),
        Some(name) => {
            let found = of(datapath(switch, Some(name))?);
            Ok(vec![found.ok_or_else(|| format!("{name}: not a userspace datapath"))?])
        }
    }
}

/// A datapath with forwarding threads.
pub(super) type WithThreads<'a> = (&'a Instance, &'a dyn PmdThreads);

/// The bridge of that name and its datapath.
pub(super) fn of_bridge<'a>(
    switch: &'a Switch,
    name: &str,
) -> Result<(&'a Instance, Arc<BridgeView>), String> {
    switch.instances().bridge(name).ok_or_else(|| "no such bridge".to_string())
}

/// All flows of one thread.
pub(crate) fn flows_of(instance: &Instance, pmd: PmdId) -> Result<Vec<FlowRecord>, String> {
    let (mut all, mut cursor) = (Vec::new(), Some(0));
    while let Some(from) = cursor {
        let dump = DpifOp::FlowDump { cursor: from, max_flows: DUMP_FLOWS };
        match instance.ask(pmd, vec![dump])?.pop() {
            Some(OpResult::Dump(flows, next)) => {
                all.extend(flows);
                cursor = next;
            }
            Some(OpResult::Failed(e)) => return Err(e.to_string()),
            _ => cursor = None,
        }
    }
    Ok(all)
}

/// `[-s] [DP...]`
struct Asked {
    with_stats: bool,
    /// Names of datapaths; none: all.
    datapaths: Vec<String>,
}

impl Asked {
    fn parse(words: &[String]) -> Result<Asked, String> {
        let (options, datapaths): (Vec<_>, Vec<_>) = words.iter().cloned().partition(|w| w.starts_with('-'));
        match options.iter().find(|option| !matches!(option.as_str(), "-s" | "--statistics")) {
            Some(option) => Err(format!("Unrecognized option {option}")),
            None => Ok(Asked { with_stats: !options.is_empty(), datapaths }),
        }
    }
}

fn dpctl_show(plane: &mut ControlPlane, Asked { with_stats, datapaths }: Asked) -> Reply {
    let instances = plane.switch.instances();
    let chosen: Result<Vec<&Instance>, String> = match datapaths.is_empty() {
        true => Ok(instances.all()),
        false => datapaths.iter().map(|name| instances.named(Some(name))).collect(),
    };
    chosen.map(|all| all.into_iter().map(|i| show_ports(i, with_stats)).collect::<String>()).into()
}

fn show_ports(instance: &Instance, with_stats: bool) -> String {
    let (hit, missed, lost, flows) = totals(instance);
    let name = instance.name();
    probes::log_statistics(name);
    let mut out = format!("{name}:\n  lookups: hit:{hit} missed:{missed} lost:{lost}\n  flows: {flows}\n");
    if let Some(masks) = instance.datapath.lookup_masks() {
        out += &show_masks(&masks);
    }
    let counted: BTreeMap<_, _> = match with_stats {
        true => instance.datapath.all_port_stats().into_iter().collect(),
        false => BTreeMap::new(),
    };
    let ports = instance.datapath.ports();
    probes::log_ports(name, ports.iter().map(|port| (port.number, port.name.as_str())));
    for port in ports {
        let _ = write!(out, "  port {}: {}", port.number, port.name);
        match port.type_name.as_str() {
            "system" => out.push('\n'),
            kind if let Some(kind) = TunnelKind::of_name(kind) => out += &show_tunnel(kind, &port.name),
            other => {
                let settings = instance.datapath.shown_settings(port.number);
                let _ = writeln!(out, " ({other}{})", words(settings.iter().map(|(k, v)| (*k, v.as_str()))));
            }
        }
        if let Some(stats) = counted.get(&port.number) {
            out += &port_stats(stats);
        }
    }
    out
}

/// Settings behind a type, if there are any.
fn words<'a>(settings: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let words: Vec<_> = settings.map(|(key, value)| format!("{key}={value}")).collect();
    if words.is_empty() { String::new() } else { format!(": {}", words.join(", ")) }
}

/// A tunnel port, whose name ends in its UDP port. They accept frames and bare packets.
fn show_tunnel(kind: TunnelKind, name: &str) -> String {
    let udp_port = name.rsplit('_').next().and_then(|n| n.parse::<u16>().ok());
    let other = udp_port.filter(|port| kind.usual_port().is_some_and(|usual| usual != *port));
    let dst_port = other.map(|port| format!("dst_port={port}, ")).unwrap_or_default();
    let erspan_ver = if kind.is_erspan() { "erspan_ver=0, " } else { "" };
    format!(" ({}: {dst_port}{erspan_ver}packet_type=ptap)\n", kind.name())
}

/// Mask lookups of the kernel.
fn show_masks(m: &LookupMasks) -> String {
    let share = |part: u64| if m.packets == 0 { 0.0 } else { part as f64 / m.packets as f64 };
    let mut out = format!("  masks: hit:{} total:{} hit/pkt:{:.2}\n", m.visited, m.masks, share(m.visited));
    if let Some(size) = m.cache_size {
        let rate = share(m.cache_hits) * 100.0;
        let _ = writeln!(out, "  cache: hit:{} hit-rate:{rate:.2}%", m.cache_hits);
        let _ = writeln!(out, "  caches:\n    masks-cache: size:{size}");
    }
    out
}

/// The counters of a port, in the words of interface tools; unknown ones are question marks.
fn port_stats(s: &PortStats) -> String {
    let s = s.with_device();
    let n = |count: u64| if count == u64::MAX { "?".to_string() } else { count.to_string() };
    let of_link = |count: fn(&DeviceStats) -> u64| n(s.device.as_ref().map_or(u64::MAX, count));
    let lines = [
        format!(
            "RX packets:{} errors:{} dropped:{} overruns:{} frame:{}",
            n(s.rx_packets),
            n(s.rx_errors),
            n(s.rx_dropped),
            of_link(|d| d.rx_over),
            of_link(|d| d.rx_frame)
        ),
        format!(
            "TX packets:{} errors:{} dropped:{} aborted:{} carrier:{}",
            n(s.tx_packets),
            n(s.tx_errors),
            n(s.tx_dropped),
            of_link(|d| d.tx_aborted),
            of_link(|d| d.tx_carrier)
        ),
        format!("collisions:{}", of_link(|d| d.collisions)),
        format!("RX bytes:{}  TX bytes:{}", size(s.rx_bytes), size(s.tx_bytes)),
        // No datapath of this release counts them.
        "UPCALL packets:? errors:?".to_string(),
    ];
    lines.iter().map(|line| format!("    {line}\n")).collect()
}

/// Bytes, and in a larger unit if there is one.
fn size(bytes: u64) -> String {
    if bytes == u64::MAX {
        return "?".to_string();
    }
    let units = [(1u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{bytes} ({:.1} {name})", bytes as f64 / *unit as f64),
        None => bytes.to_string(),
    }
}

/// Hits, misses, lost upcalls and flows of all threads, ended ones included.
fn totals(instance: &Instance) -> (u64, u64, u64, u64) {
    let sum = instance.totals();
    (sum.hits(), sum.upcalls + sum.lost(), sum.lost(), sum.flows)
}

/// Datapaths with their bridges, for `dpif/show`.
struct DatapathList(Vec<ShownDatapath>);

struct ShownDatapath {
    name: String,
    hit: u64,
    missed: u64,
    sockets: Option<UpcallSockets>,
    /// In order of their names.
    bridges: Vec<(String, Vec<ShownPort>)>,
}

fn dpif_show(plane: &mut ControlPlane, (): ()) -> Reply {
    let switch = &plane.switch;
    let datapaths = switch.instances().iter().map(|i| shown_datapath(switch, i));
    Reply::Value(Box::new(DatapathList(datapaths.collect())))
}

fn shown_datapath(switch: &Switch, instance: &Instance) -> ShownDatapath {
    let (hit, missed, ..) = totals(instance);
    let view = instance.backer.view();
    let bridges = view.bridges.values().map(|b| (b.name.to_string(), shown_ports(switch, instance, b)));
    let mut bridges: Vec<_> = bridges.collect();
    bridges.sort_by(|a, b| a.0.cmp(&b.0));
    let (name, sockets) = (instance.name().to_string(), instance.datapath.upcall_sockets());
    ShownDatapath { name, hit, missed, sockets, bridges }
}

impl TypedReply for DatapathList {
    fn text(&self) -> String {
        self.0.iter().map(ShownDatapath::text).collect()
    }

    /// Objects by name of datapath, bridge and port; numbers are strings, as in OVS.
    fn json(&self) -> Json<'_> {
        Json::Whole(self.0.iter().map(|d| (d.name.clone(), d.json())).collect::<Map<_, _>>().into())
    }
}

impl ShownDatapath {
    fn text(&self) -> String {
        let mut out = format!("{}: hit:{} missed:{}", self.name, self.hit, self.missed);
        if let Some(UpcallSockets { dispatch, sockets, handlers }) = &self.sockets {
            let _ = write!(out, " dispatch:{dispatch} sockets:{sockets} handlers:{handlers}");
        }
        out.push('\n');
        for (name, ports) in &self.bridges {
            let _ = writeln!(out, "  {name}:");
            for p in ports {
                let options = words(p.config.iter().map(|(k, v)| (k.as_str(), v.as_str())));
                let _ =
                    writeln!(out, "    {} {}/{}: ({}{options})", p.name, p.of_port, p.dp_port, p.type_name);
            }
        }
        out
    }

    fn json(&self) -> Value {
        let bridges = self.bridges.iter().map(|(name, ports)| {
            let ports = ports.iter().map(|p| (p.name.clone(), p.json()));
            (name.clone(), ports.collect::<Map<_, _>>().into())
        });
        let stats = json!({ "hit": self.hit.to_string(), "missed": self.missed.to_string() });
        json!({ "bridges": bridges.collect::<Map<_, _>>(), "stats": stats })
    }
}

/// A port as `dpif/show` has it.
struct ShownPort {
    name: String,
    of_port: String,
    dp_port: String,
    type_name: String,
    config: Vec<(String, String)>,
}

impl ShownPort {
    fn json(&self) -> Value {
        let mut port = json!({ "port_no": self.dp_port, "ofport": self.of_port, "type": self.type_name });
        if !self.config.is_empty() {
            let config = self.config.iter().map(|(k, v)| (k.clone(), Value::from(v.as_str())));
            port["config"] = config.collect::<Map<_, _>>().into();
        }
        port
    }
}

/// The ports of a bridge, in order of their names.
fn shown_ports(switch: &Switch, instance: &Instance, bridge: &BridgeView) -> Vec<ShownPort> {
    let types: BTreeMap<_, _> =
        instance.datapath.ports().into_iter().map(|p| (p.number, p.type_name)).collect();
    let mut ports: Vec<_> = bridge.ports.ports.values().collect();
    ports.sort_by(|a, b| a.name.cmp(&b.name));
    let shown = |p: &&Arc<Port>| ShownPort {
        name: p.name.clone(),
        of_port: if p.of_port == OfPort::LOCAL { 65534 } else { p.of_port.0 }.to_string(),
        dp_port: p.dp_port.map_or("none".to_string(), |n| n.to_string()),
        type_name: p.dp_port.and_then(|n| types.get(&n)).unwrap_or(&p.type_name).clone(),
        config: match (&p.tunnel, patch_peer(switch, &p.name)) {
            (Some(tunnel), _) => {
                tunnel.options().iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
            }
            (None, Some(peer)) => vec![("peer".to_string(), peer.to_string())],
            (None, None) => {
                let settings = p.dp_port.map(|n| instance.datapath.shown_settings(n)).unwrap_or_default();
                settings.into_iter().map(|(key, value)| (key.to_string(), value)).collect()
            }
        },
    };
    ports.iter().map(shown).collect()
}

/// The configured peer of a patch port.
fn patch_peer<'a>(switch: &'a Switch, name: &str) -> Option<&'a str> {
    let bridges = &switch.planner().desired().bridges;
    let mut interfaces = bridges.values().flat_map(|b| b.ports.values()).flat_map(|p| &p.interfaces);
    interfaces.find(|i| i.name == name)?.patch_peer()
}

/// How kernel datapaths choose the upcall socket of a packet.
fn dispatch_modes(plane: &mut ControlPlane, (): ()) -> Reply {
    let line = |i: &Instance| {
        let UpcallSockets { dispatch, .. } = i.datapath.upcall_sockets()?;
        Some(format!("{}: {dispatch} dispatch mode\n", i.name()))
    };
    plane.switch.instances().all().into_iter().filter_map(line).collect::<String>().into()
}

fn list(plane: &mut ControlPlane, (): ()) -> Reply {
    plane.switch.instances().all().iter().map(|i| format!("{}\n", i.name())).collect::<String>().into()
}

/// The bridges, each after the type of its datapath.
fn list_bridges(plane: &mut ControlPlane, (): ()) -> Reply {
    let line = |(i, b): (&Instance, Arc<BridgeView>)| {
        let own = i.name();
        format!("{}@{}\n", own.split_once('@').map_or(own, |(kind, _)| kind), b.name)
    };
    plane.switch.instances().bridges().into_iter().map(line).collect::<String>().into()
}

/// Tunnel ports of all bridges, with the common properties of each one's packets.
fn list_tunnels(plane: &mut ControlPlane, (): ()) -> Reply {
    let mut lines = Vec::new();
    for (_, bridge) in plane.switch.instances().bridges() {
        for port in bridge.ports.ports.values() {
            if let (Some(tunnel), Some(dp_port)) = (&port.tunnel, port.dp_port) {
                let kind = tunnel.kind.name();
                lines.push(format!(
                    "port {dp_port}: {} ({kind}: {}, dp port={dp_port}{})\n",
                    port.name,
                    common(tunnel),
                    sent(tunnel)
                ));
            }
        }
    }
    lines.sort();
    lines.concat().into()
}

/// Addresses and key of received packets.
fn common(t: &TunnelConfig) -> String {
    let local = match t.local {
        Endpoint::Address(a) => a.to_string(),
        Endpoint::Any => "::".to_string(),
        Endpoint::Flow => "flow".to_string(),
    };
    let remote = match t.remote {
        Endpoint::Address(a) => a.to_string(),
        Endpoint::Any | Endpoint::Flow => "flow".to_string(),
    };
    let key = match t.in_key {
        TunnelKey::None | TunnelKey::Value(0) => "0".to_string(),
        TunnelKey::Value(id) => format!("{id:#x}"),
        TunnelKey::Flow => "flow".to_string(),
    };
    format!("{local}->{remote}, key={key}, {}", t.of_kind.packet_types.name())
}

/// Further properties of sent packets.
fn sent(t: &TunnelConfig) -> String {
    let mut out = String::new();
    if t.out_key != t.in_key {
        let _ = match t.out_key {
            TunnelKey::None => write!(out, ", out_key=none"),
            TunnelKey::Value(0) => write!(out, ", out_key=0"),
            TunnelKey::Value(id) => write!(out, ", out_key={id:#x}"),
            TunnelKey::Flow => write!(out, ", out_key=flow"),
        };
    }
    let _ = match t.ttl {
        None => write!(out, ", ttl=inherit"),
        Some(ttl) => write!(out, ", ttl={ttl}"),
    };
    match t.tos {
        None => out += ", tos=inherit",
        Some(0) => {}
        Some(tos) => {
            let _ = write!(out, ", tos={tos:#x}");
        }
    }
    out += if t.dont_fragment { "" } else { ", df=false" };
    out += if t.csum { ", csum=true" } else { "" };
    out
}

/// The userspace datapath has no caches of configurable size.
fn cache_sizes(plane: &mut ControlPlane, dp: Option<&str>) -> Reply {
    let instances = plane.switch.instances();
    match dp {
        Some(name) => instances.named(Some(name)).map(|i| format!("{}:\n", i.name())).into(),
        None => instances.all().iter().map(|i| format!("{}:\n", i.name())).collect::<String>().into(),
    }
}

fn set_cache_size(plane: &mut ControlPlane, (dp, _, _): (&str, &str, &str)) -> Reply {
    let known = plane.switch.instances().named(Some(dp));
    Reply::from(known.and_then(|_| Err("Setting caches not supported (Operation not supported)".to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shown_in_the_largest_unit() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (4531, "4531 (4.4 KiB)"),
            (3 << 20, "3145728 (3.0 MiB)"),
            (5 << 40, "5497558138880 (5.0 TiB)"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }
}
