//! The thread itself: engines by bridge, samples to engines, datagrams to collectors.

use super::convert::{self, Ends, Selection};
use super::sockets::Collectors;
use super::{Configure, Export, Request, Shared, SharedExporter};
use crate::instances::datapath_totals;
use crate::link_protocols::LinkReader;
use dpif::{Provider, UserCookie};
use l2proto::Protocol;
use ofproto::backer::Backer;
use ofproto::ports::{BridgeId, Port};
use ofproto::sampling::{IpfixCounters, Sampled};
use openflow::msg::ipfix::IpfixStats;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use sync::{Ordering, Parker, lock};
use telemetry::ipfix::{self, Exporter};
use telemetry::sflow::{self, Agent, Totals};
use vswitch::config::IpfixConfig;

/// Samples of a turn; due flows and requests come between turns.
const SAMPLES_AT_A_TIME: usize = 256;
/// Interval of counters and of waiting samples for sFlow.
const TICK_MS: u64 = 1000;
/// Least time between two lines about lost samples.
const LOST_EVERY_MS: u64 = 60_000;
/// Longest sleep.
const IDLE: Duration = Duration::from_millis(500);

/// An exporter of IPFIX.
struct Flows {
    config: IpfixConfig,
    exporter: Exporter,
    collectors: Collectors,
}

/// An exporter of NetFlow.
struct Records {
    exporter: SharedExporter,
    targets: Vec<SocketAddr>,
    collectors: Collectors,
    lost: u64,
}

/// A bridge.
struct Bridge {
    export: Export,
    netflow: Option<Records>,
    agent: Option<(Agent, Collectors)>,
    ipfix: Option<Flows>,
    sets: BTreeMap<u32, Flows>,
    counters: IpfixCounters,
    backer: Arc<Backer>,
    datapath: Arc<dyn Provider>,
}

/// All bridges that export.
struct Bridges {
    links: LinkReader,
    by_id: BTreeMap<BridgeId, Bridge>,
    next_exporter: u32,
    datagrams: Vec<Vec<u8>>,
    next_tick_ms: u64,
    ticks: u64,
    /// Lost samples, as last logged, and when the next line may come.
    lost: u64,
    next_line_ms: u64,
}

/// Runs until [`Shared::stop`] is set.
pub(super) fn run(shared: &Shared, parker: &Parker, links: LinkReader) {
    let mut bridges = Bridges {
        links,
        by_id: BTreeMap::new(),
        next_exporter: 0,
        datagrams: Vec::new(),
        next_tick_ms: 0,
        ticks: 0,
        lost: 0,
        next_line_ms: 0,
    };
    while !shared.stop.load(Ordering::Acquire) {
        while let Some(request) = shared.next_request() {
            bridges.request(request);
        }
        for _ in 0..SAMPLES_AT_A_TIME {
            let Some(sample) = shared.samples.pop() else { break };
            bridges.sample(&sample);
        }
        bridges.turn();
        let lost = shared.lost.load(Ordering::Relaxed);
        bridges.report_lost(lost);
        if shared.samples.is_empty() && lock(&shared.requests).is_empty() {
            parker.park_timeout(IDLE.min(bridges.wait()));
        }
    }
    for bridge in bridges.by_id.values_mut() {
        bridge.end(&mut bridges.datagrams);
    }
}

fn now_ms() -> u64 {
    sys::clock::monotonic_ms()
}

fn now_us() -> u64 {
    sys::clock::wall_ms() * 1000
}

impl Bridges {
    fn request(&mut self, request: Request) {
        match request {
            Request::Remove(id) => {
                if let Some(mut bridge) = self.by_id.remove(&id) {
                    bridge.end(&mut self.datagrams);
                    lock(&bridge.counters.0).clear();
                }
            }
            Request::Configure(configure) => self.configure(*configure),
        }
    }

    fn configure(&mut self, new: Configure) {
        let Configure { bridge: id, export, sub_id, netflow, counters, backer, datapath } = new;
        let bridge = self.by_id.entry(id).or_insert_with(|| Bridge {
            export: Export::default(),
            netflow: None,
            agent: None,
            ipfix: None,
            sets: BTreeMap::new(),
            counters,
            backer,
            datapath,
        });
        let targets = export.netflow.as_ref().map(|(targets, _)| targets);
        bridge.renew_netflow(netflow.zip(targets), &mut self.datagrams);
        if bridge.export.sflow != export.sflow {
            bridge.flush(&mut self.datagrams);
            bridge.agent = export.sflow.as_ref().map(|(sflow, agent)| {
                let settings = sflow::Settings {
                    agent: *agent,
                    sub_id,
                    sampling: sflow.sampling,
                    header_bytes: sflow.header_bytes as usize,
                };
                (Agent::new(settings, now_ms()), Collectors::open(&sflow.targets))
            });
        }
        let (next, datagrams) = (&mut self.next_exporter, &mut self.datagrams);
        renew(&mut bridge.ipfix, export.ipfix.as_ref(), next, datagrams);
        for (number, config) in &export.sets {
            let mut flows = bridge.sets.remove(number);
            renew(&mut flows, Some(config), next, datagrams);
            bridge.sets.extend(flows.map(|flows| (*number, flows)));
        }
        for (number, flows) in &mut bridge.sets {
            if !export.sets.contains_key(number) {
                flows.end(datagrams);
            }
        }
        bridge.sets.retain(|number, _| export.sets.contains_key(number));
        bridge.export = export;
        bridge.publish();
    }

    fn sample(&mut self, s: &Sampled) {
        let Some(bridge) = self.by_id.get_mut(&s.bridge) else { return };
        match s.cookie {
            UserCookie::Sflow(cookie) => {
                let Some((agent, collectors)) = &mut bridge.agent else { return };
                let mut labels = Vec::new();
                let sample = convert::flow_sample(s, cookie, &mut labels);
                agent.flow(&sample, now_ms(), &mut self.datagrams);
                collectors.send(&mut self.datagrams);
            }
            UserCookie::Ipfix(cookie) => {
                let Some(flows) = &mut bridge.ipfix else { return };
                let IpfixConfig { sampling, domain, point, .. } = flows.config;
                let selection = Selection::of_bridge(cookie, sampling, domain, point);
                flows.sample(s, selection, &mut self.datagrams);
                bridge.publish();
            }
            UserCookie::FlowSample(cookie) => {
                let Some(flows) = bridge.sets.get_mut(&cookie.collector_set) else { return };
                flows.sample(s, Selection::of_rule(cookie), &mut self.datagrams);
                bridge.publish();
            }
            UserCookie::SlowPath { .. } | UserCookie::Controller(_) => {}
        }
    }

    /// Flows that are due; once a second, counters and what waits for sFlow.
    fn turn(&mut self) {
        for bridge in self.by_id.values_mut() {
            let mut ran = false;
            for flows in bridge.ipfix.iter_mut().chain(bridge.sets.values_mut()) {
                ran |= flows.run(&mut self.datagrams);
            }
            if ran {
                bridge.publish();
            }
            if let Some(records) = &mut bridge.netflow {
                records.run(&mut self.datagrams);
            }
        }
        if now_ms() < self.next_tick_ms {
            return;
        }
        self.next_tick_ms = now_ms() + TICK_MS;
        self.ticks += 1;
        let first = self.by_id.iter().find(|(_, b)| b.agent.is_some()).map(|(id, _)| *id);
        for (id, bridge) in &mut self.by_id {
            bridge.poll(self.ticks, Some(*id) == first, &self.links, &mut self.datagrams);
            bridge.flush(&mut self.datagrams);
        }
    }

    /// Logs samples lost since the last line, now and then.
    fn report_lost(&mut self, lost: u64) {
        if lost != self.lost && now_ms() >= self.next_line_ms {
            let more = lost - self.lost;
            log::warn!(target: "collectors", "{more} samples lost: more came than collectors get; sample fewer packets");
            (self.lost, self.next_line_ms) = (lost, now_ms() + LOST_EVERY_MS);
        }
    }

    /// Time until the next flow or the next tick is due.
    fn wait(&self) -> Duration {
        let flows = self.by_id.values().flat_map(|b| b.ipfix.iter().chain(b.sets.values()));
        let due_us = flows.filter_map(|flows| flows.exporter.due_us()).min();
        let until_due = due_us.map_or(IDLE, |due| Duration::from_micros(due.saturating_sub(now_us())));
        let has_agent = self.by_id.values().any(|b| b.agent.is_some());
        let until_tick = Duration::from_millis(self.next_tick_ms.saturating_sub(now_ms()));
        let least = Duration::from_millis(1);
        until_due.min(if has_agent { until_tick } else { IDLE }).max(least)
    }
}

/// Starts, changes or ends an exporter.
fn renew(
    flows: &mut Option<Flows>,
    config: Option<&IpfixConfig>,
    next_exporter: &mut u32,
    datagrams: &mut Vec<Vec<u8>>,
) {
    if flows.as_ref().map(|flows| &flows.config) == config {
        return;
    }
    if let Some(mut flows) = flows.take() {
        flows.end(datagrams);
    }
    *flows = config.map(|config| {
        *next_exporter += 1;
        let settings = ipfix::Settings {
            exporter_id: *next_exporter,
            active_timeout_s: config.active_timeout_s,
            max_flows: config.max_flows,
            template_interval_s: config.template_interval_s,
            stats_interval_s: config.stats_interval_s,
            virtual_id: config.virtual_id.clone(),
        };
        let collectors = Collectors::open(&config.targets);
        Flows { config: config.clone(), exporter: Exporter::new(settings), collectors }
    });
}

impl Flows {
    fn sample(&mut self, s: &Sampled, selection: Selection, datagrams: &mut Vec<Vec<u8>>) {
        let ends = Ends::of(s, selection.output_port());
        let record = selection.record(s, &ends, self.config.tunnels);
        self.exporter.sample(&record, now_us(), datagrams);
        self.collectors.send(datagrams);
    }

    /// Exports the flows that are due; returns whether there were some.
    fn run(&mut self, datagrams: &mut Vec<Vec<u8>>) -> bool {
        self.exporter.set_not_sent(self.collectors.failed);
        self.exporter.run(now_us(), datagrams);
        let ran = !datagrams.is_empty();
        self.collectors.send(datagrams);
        ran
    }

    fn end(&mut self, datagrams: &mut Vec<Vec<u8>>) {
        self.exporter.end(now_us(), datagrams);
        self.collectors.send(datagrams);
    }

    fn stats(&self, collector_set: u32) -> IpfixStats {
        let s = self.exporter.stats();
        IpfixStats {
            total_flows: s.total_flows,
            current_flows: s.current_flows,
            packets: s.packets,
            ipv4_packets: s.ipv4_packets,
            ipv6_packets: s.ipv6_packets,
            error_packets: s.ipv4_errors + s.ipv6_errors,
            ipv4_error_packets: s.ipv4_errors,
            ipv6_error_packets: s.ipv6_errors,
            tx_packets: self.collectors.sent,
            tx_errors: self.collectors.failed,
            collector_set,
        }
    }
}

impl Records {
    /// Sends the records that are due.
    fn run(&mut self, datagrams: &mut Vec<Vec<u8>>) {
        let lost = {
            let mut exporter = lock(&self.exporter);
            exporter.run(now_ms(), sys::clock::wall_ms(), datagrams);
            exporter.lost()
        };
        self.collectors.send(datagrams);
        if lost != self.lost {
            let more = lost - self.lost;
            log::warn!(target: "netflow", "{more} records lost: more flows ended at once than wait for collectors");
            self.lost = lost;
        }
    }

    /// Sends records of all flows.
    fn end(&mut self, datagrams: &mut Vec<Vec<u8>>) {
        lock(&self.exporter).end();
        self.run(datagrams);
    }
}

impl Bridge {
    /// Starts, changes or ends the exporter of NetFlow. Other collectors get the next records of flows that go on.
    fn renew_netflow(
        &mut self,
        wanted: Option<(SharedExporter, &Vec<SocketAddr>)>,
        datagrams: &mut Vec<Vec<u8>>,
    ) {
        let Some((exporter, targets)) = wanted else {
            if let Some(mut records) = self.netflow.take() {
                records.end(datagrams);
            }
            return;
        };
        if self.netflow.as_ref().is_none_or(|records| records.targets != *targets) {
            let (collectors, lost) = (Collectors::open(targets), lock(&exporter).lost());
            self.netflow = Some(Records { exporter, targets: targets.clone(), collectors, lost });
        }
    }

    /// Shows the counters to OpenFlow.
    fn publish(&self) {
        let bridge = self.ipfix.as_ref().map(|flows| (None, flows.stats(0)));
        let sets = self.sets.iter().map(|(number, flows)| (Some(*number), flows.stats(*number)));
        *lock(&self.counters.0) = bridge.into_iter().chain(sets).collect();
    }

    fn flush(&mut self, datagrams: &mut Vec<Vec<u8>>) {
        if let Some((agent, collectors)) = &mut self.agent {
            agent.flush(now_ms(), datagrams);
            collectors.send(datagrams);
        }
    }

    fn end(&mut self, datagrams: &mut Vec<Vec<u8>>) {
        self.flush(datagrams);
        if let Some(records) = &mut self.netflow {
            records.end(datagrams);
        }
        for flows in self.ipfix.iter_mut().chain(self.sets.values_mut()) {
            flows.end(datagrams);
        }
    }

    /// Adds the counters that are due: ports take turns within the interval. One bridge adds those of the switch.
    fn poll(&mut self, tick: u64, has_totals: bool, links: &LinkReader, datagrams: &mut Vec<Vec<u8>>) {
        let Some((agent, collectors)) = &mut self.agent else { return };
        let every_s = self.export.sflow.as_ref().map_or(0, |(sflow, _)| u64::from(sflow.polling_s));
        if every_s == 0 {
            return;
        }
        if has_totals && tick.is_multiple_of(every_s) {
            agent.totals(&totals(&*self.datapath), now_ms(), datagrams);
            collectors.send(datagrams);
        }
        let view = self.backer.view();
        let bridges = view.bridges.values();
        let Some(bridge) = bridges
            .filter(|b| b.sampling.is_some())
            .find(|b| b.sampling.as_ref().is_some_and(|sampling| sampling.counters == self.counters))
        else {
            return;
        };
        let Some(sampling) = &bridge.sampling else { return };
        let shown = sampling.ports.iter().filter(|(_, port)| port.ifindex != 0);
        agent.keep_ports(&shown.clone().map(|(_, port)| port.ifindex).collect());
        let due: Vec<_> = shown
            .filter(|(_, port)| u64::from(port.ifindex) % every_s == tick % every_s)
            .map(|(number, port)| (*number, port, bridge.ports.port(port.of_port).map(|port| &**port)))
            .collect();
        let is_member = |of_view: &Option<&Port>| {
            let links = of_view.iter().flat_map(|port| &port.links);
            links.into_iter().any(|link| link.claim.protocol() == Protocol::Lacp)
        };
        let names =
            due.iter().filter(|(.., of_view)| is_member(of_view)).map(|(_, port, _)| port.name.clone());
        let members = links.members(names.collect());
        for (number, port, of_view) in due {
            if let Ok(stats) = self.datapath.port_stats(number) {
                let member = members.get(&port.name);
                let counters = convert::port_counters(port, of_view, member, &stats, self.export.datapath_id);
                agent.port(&counters, now_ms(), datagrams);
                collectors.send(datagrams);
            }
        }
    }
}

/// Counters of the switch.
fn totals(datapath: &dyn Provider) -> Totals {
    let sum = datapath_totals(datapath);
    let (masks_hit, masks) =
        datapath.lookup_masks().map_or((u32::MAX, u32::MAX), |m| (m.visited as u32, m.masks));
    let usage = sys::machine::usage().unwrap_or_default();
    let missed = sum.upcalls + sum.lost();
    Totals {
        datapath: [sum.hits() as u32, missed as u32, sum.lost() as u32, masks_hit, sum.flows as u32, masks],
        cpu_ms: [usage.user_ms as u32, usage.system_ms as u32],
        memory_bytes: usage.peak_bytes,
    }
}
