//! Debug lines of the log about upcalls and flow operations, under the modules and in the words of OVS: `dpif` for
//! operations of all datapaths and upcalls of the kernel, `dpif_netdev` for upcalls and flows of the userspace datapath,
//! `flow` for packets with contradictory headers.
//!
//! Without that level each function costs one load per batch.

use dpif::text::{FlowFormat, NumbersOnly, format_actions, format_key, format_key_mask};
use dpif::{DpAction, DpifOp, FlowPut, FlowRecord, PutMode, Upcall, UpcallKind};
use flow::extract::{Layout, MAX_VLANS, Metadata, extract_typed};
use flow::text::{NoPortNames, format_megaflow, format_packet};
use flow::{DpPort, FlowKey, Mask, OfPort, Ufid};
use log::Level;
use std::hash::{DefaultHasher, Hash};
use std::sync::Arc;

pub(super) const DPIF: &str = "dpif";
const USERSPACE: &str = "dpif_netdev";
const ETH_TYPE_IP: u16 = 0x0800;
const ETH_TYPE_IPV6: u16 = 0x86dd;

/// Logs packets whose IP header is cut off or contradicts itself: they have no fields of IP.
fn log_malformed<'a>(packets: impl Iterator<Item = (&'a [u8], &'a FlowKey)>) {
    if log::log_enabled!(target: "flow", Level::Debug) {
        packets.for_each(|(packet, key)| log_if_malformed(packet, key));
    }
}

fn log_if_malformed(packet: &[u8], key: &FlowKey) {
    let header = match key.base.dl_type {
        ETH_TYPE_IP => "ipv4",
        ETH_TYPE_IPV6 => "ipv6",
        _ => return,
    };
    let mut again = FlowKey::default();
    let layout = extract_typed(packet, key.arp.packet_type, &Metadata::default(), MAX_VLANS, &mut again);
    if layout.l3 == Layout::NONE {
        let (port, size) = (key.in_port(), packet.len());
        log::debug!(target: "flow", "invalid packet for {header}_sanity_check: port {port}, size {size}");
    }
}

/// Logs upcalls of the datapath `TYPE@NAME`: keys, and packets as flows.
pub fn log_upcalls(datapath: &str, is_userspace: bool, upcalls: &[Box<Upcall>]) {
    log_malformed(upcalls.iter().map(|upcall| (upcall.packet.data(), &upcall.key)));
    let module = if is_userspace { USERSPACE } else { DPIF };
    if !log::log_enabled!(target: module, Level::Debug) {
        return;
    }
    let name = if is_userspace { datapath.rsplit('@').next().unwrap_or_default() } else { datapath };
    for upcall in upcalls {
        let kind = match upcall.kind {
            UpcallKind::Miss => "miss",
            UpcallKind::Action(..) => "action",
        };
        let key = format_key(&upcall.key);
        let packet = packet_text(upcall.packet.data(), upcall.key.arp.packet_type);
        log::debug!(target: module, "{name}: {kind} upcall:\n{key}\n{packet}");
    }
}

fn packet_text(packet: &[u8], packet_type: u32) -> String {
    format_packet(packet, packet_type, &NoPortNames)
}

/// A key with its mask, all fields shown.
fn all_fields(put: &FlowPut) -> String {
    let format = FlowFormat { verbose: true, ..FlowFormat::brief(&NumbersOnly) };
    format_key_mask(&put.key, &put.mask, &format)
}

/// Logs flows put, changed and deleted, and packets executed, except those that miss.
pub fn log_operations(datapath: &str, ops: &[DpifOp]) {
    log_malformed(ops.iter().filter_map(|op| match op {
        DpifOp::Execute(execute) if execute.upcall == 0 => Some((execute.packet.data(), &execute.key)),
        _ => None,
    }));
    if !log::log_enabled!(target: DPIF, Level::Debug) {
        return;
    }
    for op in ops {
        match op {
            DpifOp::FlowPut(put) => {
                let mode = match put.mode {
                    PutMode::Create => "create",
                    PutMode::Modify => "modify",
                };
                let (key, actions) = (all_fields(put), format_actions(&put.actions, &NumbersOnly));
                log::debug!(target: DPIF, "{datapath}: put[{mode}] ufid:{} {key}, actions:{actions}", put.ufid);
            }
            DpifOp::FlowDel(ufid) => log::debug!(target: DPIF, "{datapath}: flow_del ufid:{ufid} "),
            DpifOp::FlowFlush => log::debug!(target: DPIF, "{datapath}: flow_flush success"),
            DpifOp::Execute(execute) if execute.upcall == 0 => {
                let actions = format_actions(&execute.actions, &NumbersOnly);
                let packet = packet_text(execute.packet.data(), execute.key.arp.packet_type);
                log::debug!(target: DPIF, "{datapath}: execute {actions} on packet {packet}");
            }
            _ => {}
        }
    }
}

/// Whether the userspace datapath logs changes of its flows.
pub fn logs_flows() -> bool {
    log::log_enabled!(target: USERSPACE, Level::Debug)
}

/// Lines about a flow that is being put into the userspace datapath.
pub struct FlowLines {
    change: String,
    matched: String,
}

/// The lines of a put; `before` gives the actions of an existing flow.
pub fn flow_lines(op: &DpifOp, before: impl FnOnce(Ufid) -> Option<Arc<[DpAction]>>) -> Option<FlowLines> {
    let DpifOp::FlowPut(put) = op else { return None };
    if !logs_flows() {
        return None;
    }
    let key = format_key_mask(&put.key, &put.mask, &FlowFormat::brief(&NumbersOnly));
    let old = match put.mode {
        PutMode::Create => None,
        PutMode::Modify => before(put.ufid),
    };
    let (verb, old) = match old {
        None => ("flow_add", String::new()),
        Some(old) => ("flow_mod", format!("old_actions:{}, ", format_actions(&old, &NumbersOnly))),
    };
    let actions = format_actions(&put.actions, &NumbersOnly);
    let (ufid, mega) = (put.ufid, mega_ufid(&key));
    let change = format!("{verb}: ufid:{ufid} mega_ufid:{mega} {key}, {old}actions:{actions}");
    let (flow, mask) = (put.key.to_flow(OfPort(0)), Mask(put.mask.to_flow(OfPort(0))));
    Some(FlowLines { change, matched: format_megaflow(&flow, &mask) })
}

impl FlowLines {
    /// Logs them, once the put has succeeded.
    pub fn log(self) {
        log::debug!(target: USERSPACE, "{}", self.change);
        log::debug!(target: USERSPACE, "flow match: {}", self.matched);
    }
}

/// A name of the packets that a flow matches: equal for flows that differ in unmatched fields only.
fn mega_ufid(key: &str) -> Ufid {
    let half = |n: u8| {
        let mut hasher = DefaultHasher::new();
        (n, key).hash(&mut hasher);
        u128::from(std::hash::Hasher::finish(&hasher))
    };
    Ufid(half(0) << 64 | half(1))
}

/// Logs a flow of a dump by command.
pub fn log_dumped(datapath: &str, flows: &[FlowRecord], now_ms: u64) {
    if !log::log_enabled!(target: DPIF, Level::Debug) {
        return;
    }
    let format = FlowFormat { verbose: true, ..FlowFormat::brief(&NumbersOnly) };
    for flow in flows {
        let key = format_key_mask(&flow.key, &flow.mask, &format);
        let stats = dpif::text::format_stats(&flow.stats, now_ms);
        let actions = format_actions(&flow.actions, &NumbersOnly);
        log::debug!(target: DPIF, "{datapath}: flow_dump ufid:{} {key}, {stats}, actions:{actions}", flow.ufid);
    }
    log::debug!(target: DPIF, "{datapath}: dumped all flows");
    log::debug!(target: DPIF, "{datapath}: flow_dump_destroy success");
}

/// Logs that statistics of the datapath are read by command.
pub fn log_statistics(datapath: &str) {
    log::debug!(target: DPIF, "{datapath}: get_stats success");
}

/// Logs a list of the datapath's ports made by command.
pub fn log_ports<'a>(datapath: &str, ports: impl Iterator<Item = (DpPort, &'a str)>) {
    if !log::log_enabled!(target: DPIF, Level::Debug) {
        return;
    }
    log::debug!(target: DPIF, "{datapath}: port_dump_start success");
    for (number, name) in ports {
        log::debug!(target: DPIF, "{datapath}: port_dump_next success");
        log::debug!(target: DPIF, "{datapath}: port {number} is device {name}");
    }
    log::debug!(target: DPIF, "{datapath}: dumped all ports");
}
