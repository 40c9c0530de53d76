//! Coverage counters with the names of stock switches, and their rates: over the last 5 seconds, the last minute and
//! the last hour, from samples every 5 seconds of the switch's clock.
//!
//! A sample sends two requests to each forwarding thread, for any number of ports. A late sample is spread evenly
//! over the time since the previous one.

#[cfg(test)]
mod tests;

use crate::daemon::Daemon;
use dpif::{DropReason, PmdStats, PortStats, XlateDrop};
use l2proto::Protocol;
use ofproto::mac_table::MacStats;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use sync::{Ordering, lock};

/// Time between two samples.
const SAMPLE_MS: u64 = 5000;
/// Samples of a minute.
const MINUTE: usize = 12;
/// Minutes of an hour.
const HOUR: usize = 60;

/// Counters of OVS whose events do not occur here: they concern parts that this switch lacks, or has in another form.
const NEVER: [&str; 18] = [
    "conntrack_l3csum_err",
    "conntrack_l4csum_err",
    "datapath_drop_invalid_bond",
    "datapath_drop_invalid_tnl_port",
    "datapath_drop_lock_error",
    "datapath_drop_nsh_decap_error",
    "datapath_drop_userspace_action_error",
    "dumped_duplicate_flow",
    "ipf_stuck_frag_list_purged",
    "mcast_snooping_learned",
    "netdev_push_header_drops",
    "netdev_send_prepare_drops",
    "rev_bond",
    "rev_mcast_snooping",
    "rev_rstp",
    "rev_stp",
    "revalidate_missed_dp_flow",
    "upcall_ukey_contention",
];

/// Counters by name.
pub(crate) type Totals = Vec<(&'static str, u64)>;

#[derive(Clone, Copy)]
struct Events {
    last_total: u64,
    /// By sample, in a ring.
    samples: [u64; MINUTE],
    /// By minute, in a ring.
    minutes: [u64; HOUR],
}

/// See the module documentation.
#[derive(Default)]
pub(crate) struct Coverage {
    events: BTreeMap<&'static str, Events>,
    next_ms: Option<u64>,
    /// Samples taken.
    taken: usize,
}

impl Coverage {
    /// Time of the next sample.
    pub(crate) fn next_ms(&mut self, now_ms: u64) -> u64 {
        *self.next_ms.get_or_insert(now_ms + SAMPLE_MS)
    }

    /// Takes a sample that is due.
    pub(crate) fn sample(&mut self, totals: &[(&'static str, u64)], now_ms: u64) {
        let late_ms = now_ms.saturating_sub(self.next_ms.unwrap_or(now_ms));
        let periods = 1 + late_ms / SAMPLE_MS;
        self.next_ms = Some(now_ms.saturating_sub(late_ms).saturating_add(periods * SAMPLE_MS));
        // Older events than an hour have no effect.
        let slots = periods.min((MINUTE * HOUR) as u64);
        for (name, total) in totals {
            let none = Events { last_total: 0, samples: [0; MINUTE], minutes: [0; HOUR] };
            let events = self.events.entry(name).or_insert(none);
            // Cleared counters start again.
            let more = total.saturating_sub(events.last_total);
            events.last_total = *total;
            for n in 0..slots {
                let part = more / periods + if n + 1 == slots { more % periods } else { 0 };
                let at = self.taken + n as usize;
                let (sample, minute) = (at % MINUTE, at / MINUTE % HOUR);
                events.samples[sample] = part;
                events.minutes[minute] = part + if sample == 0 { 0 } else { events.minutes[minute] };
            }
        }
        self.taken = (self.taken + slots as usize) % (MINUTE * HOUR);
    }

    /// The counters as text; `totals` in order of their names.
    pub(crate) fn show(&self, totals: &[(&'static str, u64)]) -> String {
        let hash = hash(totals);
        let mut out = format!(
            "Event coverage, avg rate over last: 5 seconds, last minute, last hour,  hash={hash:08x}:\n"
        );
        let newest = (self.taken + MINUTE - 1) % MINUTE;
        for (name, total) in totals.iter().filter(|(_, total)| *total > 0) {
            let rates = self.events.get(name).map_or([0.0; 3], |e| {
                let sum = |all: &[u64]| all.iter().sum::<u64>() as f64;
                [e.samples[newest] as f64 / 5.0, sum(&e.samples) / 60.0, sum(&e.minutes) / 3600.0]
            });
            let [now, minute, hour] = rates;
            let _ =
                writeln!(out, "{name:<24} {now:5.1}/sec {minute:9.3}/sec {hour:13.4}/sec   total: {total}");
        }
        let never = totals.iter().filter(|(_, total)| *total == 0).count();
        let _ = writeln!(out, "{never} events never hit");
        out
    }
}

/// Hash of the names of nonzero counters, ordered by value: equal for runs with similar work (FNV-1a).
fn hash(totals: &[(&'static str, u64)]) -> u32 {
    let mut hit: Vec<_> = totals.iter().filter(|(_, n)| *n > 0).map(|(name, n)| (*n, *name)).collect();
    hit.sort_unstable();
    let bytes = hit.iter().flat_map(|(_, name)| name.bytes().chain([0]));
    bytes.fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Flows that no device took, and changes that it refused.
fn offload_refused(daemon: &Daemon) -> u64 {
    let offloads = daemon.switch.instances().iter().filter_map(|i| i.datapath.offload()?.stats());
    offloads.map(|stats| stats.refused).sum()
}

/// Counters of connection trackers, over all datapaths.
fn conntrack(daemon: &Daemon) -> BTreeMap<&'static str, u64> {
    // Without a tracker, too.
    let mut sums = BTreeMap::from([("ipf_l3csum_err", 0)]);
    let trackers = daemon.switch.instances().iter().filter_map(|i| i.datapath.connections());
    for (name, count) in trackers.flat_map(dpif::Connections::counters) {
        *sums.entry(name).or_default() += count;
    }
    sums
}

/// All counters, in order of their names.
pub(crate) fn totals(daemon: &Daemon) -> Totals {
    let instances = || daemon.switch.instances().iter();
    let mut sum = PmdStats::default();
    instances().for_each(|i| sum.add(&i.totals()));
    let mut ports = PortStats::default();
    instances().for_each(|i| ports.add(&i.datapath.port_totals()));
    let bridges = daemon.switch.instances().bridges();
    let macs = |f: fn(&MacStats) -> u64| bridges.iter().map(|(_, b)| f(&lock(&b.macs).stats)).sum();
    let inside = DropReason::ALL.into_iter().filter_map(|r| Some((r.counter()?, sum.drops[r as usize])));
    let wanted = XlateDrop::ALL.into_iter().map(|d| (d.counter(), sum.xlate_drops[d as usize]));
    let mut all: Vec<_> = inside.chain(wanted).collect();
    let count = |n: &sync::AtomicU64| n.load(sync::Ordering::Relaxed);
    let conns = daemon.switch.openflow().counters();
    let (sockets, database) = (daemon.reactor.counts, daemon.db.counters());
    let (evicted, refused) = {
        let neighbours = daemon.routing.neighbours();
        (neighbours.evicted(), neighbours.refused())
    };
    let links = daemon.switch.link_protocols();
    all.extend(Protocol::ALL.iter().map(|protocol| (protocol.lost_counter(), links.lost(*protocol))));
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
        ("unixctl_cut_off", daemon.commands_cut_off()),
        ("tnl_packet_held", instances().map(|i| i.backer.held_in_all()).sum()),
        ("barrier_waited", instances().map(|i| count(&i.backer.barrier.waits)).sum()),
        ("barrier_timeout", instances().map(|i| count(&i.backer.barrier.timeouts)).sum()),
        ("flow_removed_paused", instances().map(|i| i.backer.events.times_full()).sum()),
        ("flow_offload_refused", offload_refused(daemon)),
        ("ofconn_cut_off", sockets.cut_off),
        ("ofconn_event_dropped", conns.events_dropped),
        ("ofconn_packet_in_dropped", conns.packet_ins_dropped),
        ("rconn_overflow", conns.packet_ins_unsent),
        ("datapath_drop_rx_malformed", ports.rx_malformed),
        ("datapath_drop_rx_ring_full", ports.rx_dropped),
        ("datapath_drop_rx_truncated", ports.rx_truncated),
        ("flow_extract", sum.received + sum.recirculated),
        ("rev_flow_table", instances().map(|i| count(&i.backer.revisions.tables)).sum()),
        ("rev_mac_learning", instances().map(|i| count(&i.backer.revisions.macs)).sum()),
        ("rev_port_toggled", instances().map(|i| count(&i.backer.revisions.toggled)).sum()),
        ("handler_duplicate_upcall", instances().map(|i| count(&i.backer.revisions.repeated)).sum()),
        ("revalidate_missing_dp_flow", instances().map(|i| count(&i.backer.revisions.lost)).sum()),
        ("rev_reconfigure", instances().map(|i| count(&i.backer.revisions.reconfigured)).sum()),
        ("mac_learning_evicted", macs(|s| s.evicted)),
        ("mac_learning_expired", macs(|s| s.expired)),
        ("mac_learning_learned", macs(|s| s.learned)),
        ("mac_learning_moved", macs(|s| s.moved)),
        ("neighbour_evicted", evicted),
        ("neighbour_refused", refused),
        ("route_refused", daemon.routing.refused()),
        ("route_table_dump", daemon.routing.dumps),
        ("netdev_received", sum.received),
        ("netdev_sent", sum.sent_packets),
        ("packet_in_overflow", instances().map(|i| i.backer.packet_ins_lost.load(Ordering::Relaxed)).sum()),
    ]);
    all.extend(conntrack(daemon));
    all.extend(NEVER.map(|name| (name, 0)));
    all.sort_unstable();
    all
}
