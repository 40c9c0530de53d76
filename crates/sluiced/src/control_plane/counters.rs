//! The totals of the coverage counters. Reading them sends two requests to each forwarding thread, for any number of ports.

use super::ControlPlane;
use dpif::{CtRefusal, DropReason, PmdStats, PortStats, XlateDrop};
use l2proto::Protocol;
use ofproto::backer::Revisions;
use ofproto::mac_table::MacStats;
use ofproto::mcast::McastStats;
use std::collections::BTreeMap;
use sync::{AtomicU64, Ordering, lock};

/// Counters of OVS whose events do not occur here: they concern parts that this switch lacks, or has in another form.
const NEVER: [&str; 19] = [
    "conntrack_l3csum_err",
    "conntrack_l4csum_err",
    "datapath_drop_invalid_bond",
    "datapath_drop_invalid_tnl_port",
    "datapath_drop_lock_error",
    "datapath_drop_nsh_decap_error",
    "datapath_drop_userspace_action_error",
    "dumped_duplicate_flow",
    "ipf_stuck_frag_list_purged",
    "netdev_push_header_drops",
    "netdev_send_prepare_drops",
    "rev_rstp",
    "rev_stp",
    "revalidate_missed_dp_flow",
    "txn_aborted",
    "txn_uncommitted",
    "upcall_flow_limit_kill",
    "upcall_flow_limit_scaled",
    "upcall_ukey_contention",
];

/// Flows that no device took, and changes that it refused.
fn offload_refused(plane: &ControlPlane) -> u64 {
    let offloads = plane.switch.instances().iter().filter_map(|i| i.datapath.offload()?.stats());
    offloads.map(|stats| stats.refused).sum()
}

/// Messages to and from controllers, and connections. Hellos are vconn's alone.
fn connections(plane: &ControlPlane) -> [(&'static str, u64); 15] {
    let (conns, sockets) = (plane.switch.openflow().counters(), plane.reactor.counts);
    let messages = conns.messages;
    [
        ("ofconn_cut_off", sockets.cut_off),
        ("ofconn_event_dropped", conns.events_dropped),
        ("ofconn_packet_in_dropped", conns.packet_ins_dropped),
        ("ofproto_packet_out", conns.packet_outs),
        ("ofproto_update_port", conns.ports_changed),
        ("ofproto_recv_openflow", messages.received - messages.hellos_received),
        ("pstream_open", sockets.listeners_opened),
        ("rconn_discarded", messages.discarded),
        ("rconn_overflow", conns.packet_ins_unsent),
        ("rconn_queued", messages.queued),
        ("rconn_sent", messages.sent),
        ("stream_open", sockets.streams_opened),
        ("vconn_open", sockets.controllers_tried),
        ("vconn_received", messages.received),
        ("vconn_sent", messages.sent + messages.hellos_sent),
    ]
}

/// Rules that ended without a request, and limits of flows, over all datapaths.
fn limits(plane: &ControlPlane) -> [(&'static str, u64); 5] {
    let sum = |of: fn(&Revisions) -> &AtomicU64| {
        plane.switch.instances().iter().map(|i| of(&i.backer.revisions).load(Ordering::Relaxed)).sum()
    };
    [
        ("ofproto_dpif_expired", sum(|r| &r.expired)),
        ("ofproto_flush", sum(|r| &r.flushed)),
        ("upcall_flow_limit_grew", sum(|r| &r.limit_raised)),
        ("upcall_flow_limit_hit", sum(|r| &r.refused)),
        ("upcall_flow_limit_reduced", sum(|r| &r.limit_lowered)),
    ]
}

/// Transactions of this process in its database, of the embedded one too.
fn transactions(plane: &ControlPlane) -> [(&'static str, u64); 6] {
    let counts = plane.db.client_ref().txn_counts();
    [
        ("txn_error", counts.error),
        ("txn_incomplete", counts.sent),
        ("txn_not_locked", counts.not_locked),
        ("txn_success", counts.success),
        ("txn_try_again", counts.try_again),
        ("txn_unchanged", plane.switch.facts().unchanged()),
    ]
}

/// Operations, over all datapaths.
fn operations(plane: &ControlPlane) -> BTreeMap<&'static str, u64> {
    // Without a datapath, too.
    let none = dpif::OpCounts::default().all().into_iter();
    let all = plane.switch.instances().iter().flat_map(|i| i.datapath.op_counts());
    none.chain(all).fold(BTreeMap::new(), |mut sums, (name, count)| {
        *sums.entry(name).or_default() += count;
        sums
    })
}

/// Counters of connection trackers, over all datapaths.
fn conntrack(plane: &ControlPlane) -> BTreeMap<&'static str, u64> {
    // Without a tracker, too.
    let mut sums = BTreeMap::from([("conntrack_tcp_seq_chk_failed", 0), ("ipf_l3csum_err", 0)]);
    sums.extend(CtRefusal::ALL.map(|why| (why.counter(), 0)));
    let trackers = plane.switch.instances().iter().filter_map(|i| i.datapath.connections());
    for (name, count) in trackers.flat_map(dpif::Connections::counters) {
        *sums.entry(name).or_default() += count;
    }
    sums
}

/// Counters of forwarding threads and ports, over all datapaths.
pub(crate) fn of_datapaths(sum: &PmdStats, ports: &PortStats) -> Vec<(&'static str, u64)> {
    let inside = DropReason::ALL.into_iter().filter_map(|r| Some((r.counter()?, sum.drops[r as usize])));
    let wanted = XlateDrop::ALL.into_iter().map(|d| (d.counter(), sum.xlate_drops[d as usize]));
    let others = [
        ("datapath_drop_rx_malformed", ports.rx_malformed),
        ("datapath_drop_rx_policed", ports.rx_policed),
        ("datapath_drop_rx_ring_full", ports.rx_dropped.saturating_sub(ports.rx_policed)),
        ("datapath_drop_rx_truncated", ports.rx_truncated),
        ("flow_extract", sum.received + sum.recirculated),
        ("netdev_received", sum.received),
        ("netdev_sent", sum.sent_packets),
    ];
    inside.chain(wanted).chain(others).collect()
}

impl ControlPlane {
    /// All coverage counters by name, in order of their names.
    pub(crate) fn counters(&self) -> Vec<(&'static str, u64)> {
        let instances = || self.switch.instances().iter();
        let mut sum = PmdStats::default();
        instances().for_each(|i| sum.add(&i.totals()));
        let mut ports = PortStats::default();
        instances().for_each(|i| ports.add(&i.datapath.port_totals()));
        let mut all = self.own_counters();
        all.extend(of_datapaths(&sum, &ports));
        all.sort_unstable();
        all
    }

    /// The counters that need no question to a forwarding thread, in any order.
    pub(crate) fn own_counters(&self) -> Vec<(&'static str, u64)> {
        let instances = || self.switch.instances().iter();
        let bridges = self.switch.instances().bridges();
        let macs = |f: fn(&MacStats) -> u64| bridges.iter().map(|(_, b)| f(&lock(&b.macs).stats)).sum();
        let mcast = |f: fn(&McastStats) -> u64| {
            let tables = bridges.iter().filter_map(|(_, b)| b.mcast.as_ref());
            tables.map(|groups| f(&lock(groups).stats)).sum()
        };
        let count = |n: &sync::AtomicU64| n.load(sync::Ordering::Relaxed);
        let (sockets, database) = (self.reactor.counts, self.db.counters());
        let (evicted, refused) = {
            let neighbours = self.routing.neighbours();
            (neighbours.evicted(), neighbours.refused())
        };
        let links = self.switch.link_protocols();
        let lost = Protocol::ALL.iter().map(|protocol| (protocol.lost_counter(), links.lost(*protocol)));
        let mut all: Vec<_> = lost.collect();
        all.extend([
            ("accept_failed", sockets.accept_failed),
            ("connection_refused", sockets.refused),
            ("connection_evicted", sockets.evicted),
            ("connection_probe_failed", sockets.probes_failed),
            ("handshake_cut_off", sockets.handshakes_cut_off),
            ("handshake_put_off", sockets.handshakes_put_off),
            ("db_session_cut_off", database.cut_off),
            ("db_monitor_refused", database.monitors_refused),
            ("db_wait_refused", database.waits_refused),
            ("long_poll_interval", self.loop_times.long()),
            ("syscall_refused", sys::confine::refused_calls()),
            ("unixctl_cut_off", self.unixctl.cut_off),
            ("unixctl_received", self.unixctl.received),
            ("unixctl_replied", self.unixctl.replied),
            ("bridge_reconfigure", self.switch.reconfigured()),
            ("xlate_actions", instances().map(|i| count(&i.backer.revisions.translations)).sum()),
            ("tnl_packet_held", instances().map(|i| i.backer.held_in_all()).sum()),
            ("barrier_waited", instances().map(|i| count(&i.backer.barrier.waits)).sum()),
            ("barrier_timeout", instances().map(|i| count(&i.backer.barrier.timeouts)).sum()),
            ("flow_removed_paused", instances().map(|i| i.backer.events.times_full()).sum()),
            ("flow_offload_refused", offload_refused(self)),
            ("rev_flow_table", instances().map(|i| count(&i.backer.revisions.tables)).sum()),
            ("rev_mac_learning", instances().map(|i| count(&i.backer.revisions.macs)).sum()),
            ("rev_bond", instances().map(|i| count(&i.backer.revisions.bonds)).sum()),
            ("rev_port_toggled", instances().map(|i| count(&i.backer.revisions.toggled)).sum()),
            ("handler_duplicate_upcall", instances().map(|i| count(&i.backer.revisions.repeated)).sum()),
            ("revalidate_missing_dp_flow", instances().map(|i| count(&i.backer.revisions.lost)).sum()),
            ("rev_reconfigure", instances().map(|i| count(&i.backer.revisions.reconfigured)).sum()),
            ("mcast_snooping_evicted", mcast(|s| s.evicted)),
            ("mcast_snooping_expired", mcast(|s| s.expired)),
            ("mcast_snooping_learned", mcast(|s| s.learned)),
            ("mcast_snooping_refused", mcast(|s| s.refused)),
            ("rev_mcast_snooping", instances().map(|i| count(&i.backer.revisions.mcast)).sum()),
            ("mac_learning_evicted", macs(|s| s.evicted)),
            ("mac_learning_expired", macs(|s| s.expired)),
            ("mac_learning_learned", macs(|s| s.learned)),
            ("mac_learning_moved", macs(|s| s.moved)),
            ("neighbour_evicted", evicted),
            ("neighbour_refused", refused),
            ("netlink_received", netdev::link::messages_received() + dpif_netlink::messages_received()),
            ("netlink_sent", netdev::link::messages_sent() + dpif_netlink::messages_sent()),
            ("route_refused", self.routing.refused()),
            ("route_table_dump", self.routing.dumps),
            (
                "packet_in_overflow",
                instances().map(|i| i.backer.packet_ins_lost.load(Ordering::Relaxed)).sum(),
            ),
        ]);
        all.extend(connections(self));
        all.extend(limits(self));
        all.extend(transactions(self));
        all.extend(conntrack(self));
        all.extend(operations(self));
        all.extend(NEVER.map(|name| (name, 0)));
        all
    }
}
