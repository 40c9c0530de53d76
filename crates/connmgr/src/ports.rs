//! Ports in OpenFlow: descriptions, counters, configuration, changes.

use super::conn::{AsyncKind, Conn, Outcome};
use super::requests::Request;
use super::{BridgeCtx, ConnId, Connmgr, Shared};
use dpif::{DeviceStats, PortStats};
use flow::OfPort;
use ofproto::backer::count;
use ofproto::links::TreePhase;
use ofproto::ports::{Port, PortConfigBits, PortTable};
use openflow::msg::port::{self as wire, PortMod, PortReason, PortStatus, config, state};
use openflow::{ErrorKind, Message, Multi, Version};
use std::collections::HashMap;
use std::sync::Arc;
use sync::Ordering;

/// Bits of the configuration.
const CONFIG_BITS: [(u32, fn(&mut PortConfigBits) -> &mut bool); 7] = [
    (config::PORT_DOWN, |c| &mut c.port_down),
    (config::NO_RECV, |c| &mut c.no_recv),
    (config::NO_FLOOD, |c| &mut c.no_flood),
    (config::NO_FWD, |c| &mut c.no_fwd),
    (config::NO_PACKET_IN, |c| &mut c.no_packet_in),
    (config::NO_STP, |c| &mut c.no_stp),
    (config::NO_RECV_STP, |c| &mut c.no_recv_stp),
];

pub(super) fn config_bits(mut c: PortConfigBits) -> u32 {
    CONFIG_BITS.iter().filter(|(_, place)| *place(&mut c)).map(|(bit, _)| bit).sum()
}

fn with_config(mut c: PortConfigBits, bits: u32, mask: u32) -> PortConfigBits {
    for (bit, place) in CONFIG_BITS.iter().filter(|(bit, _)| mask & bit != 0) {
        *place(&mut c) = bits & bit != 0;
    }
    c
}

/// The bits of a port's state in a spanning tree.
fn tree_bits(p: &Port) -> u32 {
    match p.link_state().tree.map(|tree| tree.phase) {
        None | Some(TreePhase::Disabled | TreePhase::Listening) => state::STP_LISTEN,
        Some(TreePhase::Learning) => state::STP_LEARN,
        Some(TreePhase::Forwarding) => state::STP_FORWARD,
        Some(TreePhase::Blocking) => state::STP_BLOCK,
    }
}

/// The port in the form of a version.
pub(super) fn describe(p: &Port, version: Version) -> wire::Port {
    // OpenFlow 1.0 has no bit for a live port, and has the state in a spanning tree alone.
    let (live, tree) = match version {
        Version::V10 => (0, tree_bits(p)),
        _ => (state::LIVE, 0),
    };
    let features = &p.features;
    wire::Port {
        port: p.of_port,
        hw_addr: p.mac,
        name: p.name.clone(),
        config: config_bits(p.config),
        state: if p.link_down { state::LINK_DOWN } else { 0 } | if p.may_enable() { live } else { 0 } | tree,
        curr: features.current,
        advertised: features.advertised,
        supported: features.supported,
        peer: 0,
        curr_speed_kbps: features.speed_mbps.saturating_mul(1000),
        max_speed_kbps: features.speed_max_mbps.saturating_mul(1000),
    }
}

/// Counters of a port; unknown ones are all ones. `device`: counters of the datapath, if any.
fn counters(p: &Port, device: Option<PortStats>) -> wire::PortStats {
    let unknown = wire::PortStats {
        port: p.of_port,
        rx_packets: u64::MAX,
        tx_packets: u64::MAX,
        rx_bytes: u64::MAX,
        tx_bytes: u64::MAX,
        rx_dropped: u64::MAX,
        tx_dropped: u64::MAX,
        rx_errors: u64::MAX,
        tx_errors: u64::MAX,
        rx_frame_errors: u64::MAX,
        rx_over_errors: u64::MAX,
        rx_crc_errors: u64::MAX,
        collisions: u64::MAX,
        duration_s: u32::MAX,
        duration_ns: u32::MAX,
        custom: Vec::new(),
    };
    if p.is_counted_here() {
        let [rx_packets, rx_bytes] = p.counters.rx.each_ref().map(|n| n.load(Ordering::Relaxed));
        let [tx_packets, tx_bytes] = p.counters.tx.each_ref().map(|n| n.load(Ordering::Relaxed));
        return wire::PortStats { rx_packets, rx_bytes, tx_packets, tx_bytes, ..unknown };
    }
    let Some(s) = device.map(PortStats::with_device) else { return unknown };
    let of_link = |count: fn(&DeviceStats) -> u64| s.device.as_ref().map_or(u64::MAX, count);
    wire::PortStats {
        rx_packets: s.rx_packets,
        tx_packets: s.tx_packets,
        rx_bytes: s.rx_bytes,
        tx_bytes: s.tx_bytes,
        rx_dropped: s.rx_dropped,
        tx_dropped: s.tx_dropped,
        rx_errors: s.rx_errors,
        tx_errors: s.tx_errors,
        rx_frame_errors: of_link(|d| d.rx_frame),
        rx_over_errors: of_link(|d| d.rx_over),
        rx_crc_errors: of_link(|d| d.rx_crc),
        collisions: of_link(|d| d.collisions),
        ..unknown
    }
}

impl Conn {
    /// Descriptions of one port, or of all; empty for an unknown port.
    pub(super) fn port_desc(
        &mut self,
        which: OfPort,
        xid: u32,
        ctx: &BridgeCtx<'_>,
    ) -> Result<(), ErrorKind> {
        let version = self.version();
        let wanted = |p: &&Arc<Port>| which == OfPort::NONE || p.of_port == which;
        let ports = ctx.bridge_view().map_or_else(Vec::new, |b| {
            b.ports.flood_order().filter(wanted).map(|p| describe(p, version)).collect()
        });
        self.reply(&Message::PortDescReply(Multi::all(ports)), xid)
    }

    /// Statistics of one port, or of all; empty for an unknown port.
    pub(super) fn port_stats(
        &mut self,
        which: OfPort,
        request: &Request<'_>,
        shared: &mut Shared,
        ctx: &BridgeCtx<'_>,
    ) -> Result<(), ErrorKind> {
        let mut entries = Vec::new();
        // One query for all.
        let all: Option<HashMap<_, _>> =
            (which == OfPort::NONE).then(|| ctx.datapath.all_port_stats().into_iter().collect());
        let counted = |port| match &all {
            Some(all) => all.get(&port).copied(),
            None => ctx.datapath.port_stats(port).ok(),
        };
        if let Some(b) = ctx.bridge_view() {
            for p in b.ports.flood_order().filter(|p| which == OfPort::NONE || p.of_port == which) {
                let since_ms = *shared.port_since_ms.entry(p.of_port).or_insert(request.now_ms);
                let age_ms = request.now_ms.saturating_sub(since_ms);
                let device = p.dp_port.filter(|_| !p.is_counted_here()).and_then(counted);
                let mut s = counters(p, device);
                (s.duration_s, s.duration_ns) = ((age_ms / 1000) as u32, (age_ms % 1000) as u32 * 1_000_000);
                entries.push(s);
            }
        }
        self.reply(&Message::PortStatsReply(Multi::all(entries)), request.xid)
    }

    /// Configures a port (OpenFlow 1.3 §7.3.4.3).
    pub(super) fn port_mod(
        &mut self,
        m: &PortMod,
        ctx: &BridgeCtx<'_>,
        outcome: &mut Outcome,
    ) -> Result<(), ErrorKind> {
        let view = ctx.bridge_view().ok_or(ErrorKind::PmfcBadPort)?;
        let port = view.ports.port(m.port).ok_or(ErrorKind::PmfcBadPort)?;
        if port.mac != m.hw_addr {
            return Err(ErrorKind::PmfcBadHwAddr);
        }
        // A port without a device cannot be set down, as in OVS: the bit stays unset, without an error.
        let mask = if port.dp_port.is_some() { m.mask } else { m.mask & !config::PORT_DOWN };
        if with_config(port.config, m.config, mask) == port.config {
            return Ok(());
        }
        let changed = ctx
            .backer
            .change_bridge(ctx.bridge, |b| set_config(Arc::make_mut(&mut b.ports), m.port, m.config, mask));
        match changed.flatten() {
            Some((old, new)) => {
                if old.may_enable() != new.may_enable() {
                    count(&ctx.backer.revisions.toggled);
                }
                outcome.ports.push((old, new));
            }
            None => return Err(ErrorKind::PmfcBadPort),
        }
        Ok(())
    }
}

/// Sets bits of a port's configuration; returns the port before and after.
pub(super) fn set_config(
    ports: &mut PortTable,
    port: OfPort,
    bits: u32,
    mask: u32,
) -> Option<(Arc<Port>, Arc<Port>)> {
    let port = ports.ports.get_mut(&port)?;
    let old = port.clone();
    let new = Arc::make_mut(port);
    new.config = with_config(new.config, bits, mask);
    let new = port.clone();
    update_flooding(ports, &new);
    Some((old, new))
}

/// `NORMAL` floods to a bundle unless one of its ports takes no floods.
fn update_flooding(ports: &mut PortTable, changed: &Port) {
    let Some(bundle) = ports.bundles.get(&changed.bundle) else { return };
    let floodable = bundle.members.iter().all(|n| ports.port(*n).is_none_or(|p| p.is_floodable()));
    if let Some(bundle) = ports.bundles.get_mut(&changed.bundle)
        && bundle.floodable != floodable
    {
        Arc::make_mut(bundle).floodable = floodable;
    }
}

impl Connmgr {
    /// Reports an added (`old` is `None`), removed (`new` is `None`) or changed port to the controllers.
    pub fn port_changed(&mut self, old: Option<&Port>, new: Option<&Port>, now_ms: u64) {
        self.gone.ports_changed += 1;
        self.send_port_status(old, new, None, now_ms);
    }

    /// Reports that a link protocol changed the liveness of a port. OpenFlow 1.0 has no bit for that, and a port
    /// that is down is not live either way.
    pub fn port_toggled(&mut self, port: &Port, tree_changed: bool) {
        if port.link_down || port.config.port_down {
            return;
        }
        let reason = PortReason::Modify;
        for conn in self.conns.values_mut() {
            let version = conn.version();
            if (version != Version::V10 || tree_changed) && conn.receives(AsyncKind::PortStatus, reason as u8)
            {
                conn.send_async(&Message::PortStatus(PortStatus { reason, port: describe(port, version) }));
            }
        }
    }

    /// As [`Connmgr::port_changed`], except to the connection `by`, which made the change (before OpenFlow 1.5).
    pub(super) fn send_port_status(
        &mut self,
        old: Option<&Port>,
        new: Option<&Port>,
        by: Option<ConnId>,
        now_ms: u64,
    ) {
        let (reason, port) = match (old, new) {
            (None, Some(new)) => (PortReason::Add, new),
            (Some(old), None) => (PortReason::Delete, old),
            (Some(_), Some(new)) => (PortReason::Modify, new),
            (None, None) => return,
        };
        match reason {
            PortReason::Add => drop(self.shared.port_since_ms.insert(port.of_port, now_ms)),
            PortReason::Delete => drop(self.shared.port_since_ms.remove(&port.of_port)),
            PortReason::Modify => {}
        }
        // With many ports and connections nearly all calls end here.
        if let (Some(old), Some(new)) = (old, new)
            && [Version::V10, Version::V13].iter().all(|form| describe(old, *form) == describe(new, *form))
        {
            return;
        }
        let mut known: Vec<(Version, Vec<PortStatus>)> = Vec::new();
        for (id, conn) in &mut self.conns {
            if by == Some(*id) {
                continue;
            }
            let version = conn.version();
            let at = known.iter().position(|(of, _)| *of == version).unwrap_or_else(|| {
                known.push((version, reports(old, port, reason, version)));
                known.len() - 1
            });
            for status in &known[at].1 {
                if conn.receives(AsyncKind::PortStatus, status.reason as u8) {
                    conn.send_async(&Message::PortStatus(status.clone()));
                }
            }
        }
    }
}

/// Reports of a change in a version. It does not report what it cannot express.
fn reports(old: Option<&Port>, port: &Port, reason: PortReason, version: Version) -> Vec<PortStatus> {
    let on_wire = |p: &wire::Port| {
        let status = PortStatus { reason: PortReason::Modify, port: p.clone() };
        openflow::encode(&Message::PortStatus(status), version, 0)
    };
    let mut last = old.map(|p| describe(p, version));
    let mut reports = Vec::new();
    for (reason, port) in status_steps(last.as_ref(), describe(port, version), reason) {
        let same = last.is_some_and(|last| on_wire(&last) == on_wire(&port));
        if reason != PortReason::Modify || !same {
            reports.push(PortStatus { reason, port: port.clone() });
        }
        last = Some(port);
    }
    reports
}

/// Steps of a change. As in OVS, a port becomes live after it was added, and ceases to be live before its link is down.
fn status_steps(
    was: Option<&wire::Port>,
    now: wire::Port,
    reason: PortReason,
) -> Vec<(PortReason, wire::Port)> {
    let without_live = |p: &wire::Port| wire::Port { state: p.state & !state::LIVE, ..p.clone() };
    match (was, reason) {
        (_, PortReason::Add) => vec![(PortReason::Add, without_live(&now)), (PortReason::Modify, now)],
        (Some(was), PortReason::Modify) if now.state & !was.state & state::LINK_DOWN != 0 => {
            vec![(PortReason::Modify, without_live(was)), (PortReason::Modify, now)]
        }
        (_, PortReason::Modify | PortReason::Delete) => vec![(reason, now)],
    }
}
