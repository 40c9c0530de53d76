//! Invariants checked on the whole switch: megaflows, staleness, conservation, bounds, statistics. (`dp`
//! checks oracle, order and bundles where packets leave; `upcall_queues` checks isolation.)

use crate::frames::{Mark, compose, key_of, random_key};
use crate::model::VLAN_LIMIT;
use crate::report::Invariant;
use crate::rng::Rng;
use crate::rules::{LEARN_LIMIT, LEARN_TABLE, LIMITED_COOKIE};
use crate::world::World;
use dpif::actions::CloneAction;
use dpif::{DpAction, DpifOp, SetAction, Upcall, UpcallKind};
use flow::extract::Metadata;
use flow::{DpPort, Flow, FlowKey, KeyMask, Match, OfPort, RecircId, shape};
use ofproto::upcall::OpsByPmd;
use ofproto::xlate::{Request, Start, translate};
use std::collections::BTreeMap;
use sync::Ordering;

/// The result of a translation in the datapath.
#[derive(PartialEq)]
struct Outcome {
    mask: KeyMask,
    actions: Vec<DpAction>,
}

impl std::fmt::Debug for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} under {:?}", self.actions, fields(&self.mask))
    }
}

/// The non-zero fields of a key or mask, for messages.
fn fields(key: &FlowKey) -> Flow {
    key.to_flow(OfPort(key.base.in_port))
}

/// Packets tried for each flow.
const KEYS_PER_FLOW: usize = 6;

impl World {
    /// Translates packets of that key with the current tables.
    fn outcome(&self, key: &FlowKey, held: &mut Vec<RecircId>) -> Option<Outcome> {
        let view = self.backer.view();
        let (bridge, of_port) = self.backer.receiver(&view, key)?;
        let flow = key.to_flow(of_port);
        let request =
            Request { view: &view, bridge: bridge.id, flow: &flow, start: Start::Tables, trace: false };
        let t = translate(&request, &mut self.backer.xlate_host(false, self.now_ms()));
        let actions = t.actions_to_put();
        held.extend(t.recircs);
        Some(Outcome { mask: FlowKey::from_mask(&t.wc, key), actions })
    }

    /// Checks the megaflow invariant on one installed flow.
    pub(crate) fn check_megaflow(&mut self) {
        let mut rng = self.rng.fork();
        let flow = {
            let inner = self.dp.inner();
            let core = &inner.cores[rng.below(inner.cores.len() as u64) as usize];
            if core.plain.flows.is_empty() {
                return;
            }
            (core.pmd.id(), rng.pick(&core.plain.flows).clone())
        };
        let (pmd, flow) = flow;
        // Held until the end, so that equal states get equal ids.
        let mut held = Vec::new();
        let Some(expected) = self.outcome(&flow.key, &mut held) else { return };
        let settled = self.settled_for_ms() >= 1000;
        let current =
            settled || self.backer.ukeys.with(flow.ufid, pmd, |k| k.epoch) == Some(self.backer.epoch());
        let mask = if current { flow.mask } else { expected.mask };
        for _ in 0..KEYS_PER_FLOW {
            let Some((key, frame)) = packet_within(&flow.key, &mask, &mut rng) else { continue };
            self.report.packets_checked += 1;
            let got = self.outcome(&key, &mut held);
            // Its own mask may differ: a rule may fail to match for several reasons.
            if got.as_ref().is_none_or(|got| !equivalent(&got.actions, &expected.actions, &key, &frame)) {
                self.violation(Invariant::Megaflow, || {
                    let (from, key) = (fields(&flow.key), fields(&key));
                    format!("the flow of {from:?}\nexpects {expected:?}\nits packet {key:?}\ngets {got:?}")
                });
            }
        }
        self.backer.recirc_release(&held);
    }

    /// Whether packets that match `key` under `mask` translate to the same actions.
    fn packets_agree(&mut self, key: &FlowKey, mask: &KeyMask, expected: &Outcome) -> bool {
        let mut rng = self.rng.fork();
        let mut held = Vec::new();
        let agree = (0..KEYS_PER_FLOW).all(|_| {
            packet_within(key, mask, &mut rng).is_none_or(|(other, frame)| {
                let got = self.outcome(&other, &mut held);
                got.is_some_and(|got| equivalent(&got.actions, &expected.actions, &other, &frame))
            })
        });
        self.backer.recirc_release(&held);
        agree
    }

    /// Checks that, a second after the last change, all flows agree with the tables. `false`: too early to
    /// tell.
    pub(crate) fn check_staleness(&mut self) -> bool {
        if self.settled_for_ms() < 1000 {
            return false;
        }
        let flows: Vec<_> = {
            let inner = self.dp.inner();
            inner.cores.iter().flat_map(|c| c.plain.flows.iter().cloned()).collect()
        };
        for flow in flows {
            let id = RecircId(flow.key.base.recirc_id);
            if id.0 != 0 && self.backer.recirc_state(id).is_none() {
                // No packet reaches this flow any more; it waits for its idle timeout.
                continue;
            }
            self.report.flows_checked += 1;
            let mut held = Vec::new();
            let now = self.outcome(&flow.key, &mut held);
            self.backer.recirc_release(&held);
            let is = Outcome { mask: flow.mask, actions: flow.actions.to_vec() };
            let frame = compose(&flow.key, Mark { checksums_ok: false, stream: 0, number: 0 });
            // The revalidator keeps a mask that is more exact than the tables now require: only fewer packets share the
            // flow. It also keeps one that excludes other rules by other fields, if its packets agree.
            let mut holds = |now: &Outcome| {
                equivalent(&now.actions, &is.actions, &flow.key, &frame)
                    && (is.mask.covers(&now.mask) || self.packets_agree(&flow.key, &is.mask, now))
            };
            if now.as_ref().is_some_and(|now| !holds(now)) {
                self.violation(Invariant::Staleness, || {
                    let of = fields(&flow.key);
                    format!("flow {} of {of:?}\nis {is:?}\nthe tables say {now:?}", flow.ufid)
                });
            }
        }
        true
    }

    /// Checks that every packet is accounted for.
    pub(crate) fn check_conservation(&mut self) {
        let inner = self.dp.inner();
        let mut sum = datapath::Ledger::default();
        for core in &inner.cores {
            let l = core.pmd.ledger();
            sum.received += l.received;
            sum.executed += l.executed;
            sum.sent += l.sent;
            sum.upcalled += l.upcalled;
            sum.dropped += l.dropped;
        }
        let drops: u64 = inner.cores.iter().flat_map(|c| c.pmd.stats().drops).sum();
        let by_ports: u64 = inner.cores.iter().flat_map(|c| c.pmd.drops_by_ports()).sum();
        let waiting = inner.upcall_queues.waiting() as u64;
        let executes_waiting = inner.executes_waiting();
        let (upcall_queues, totals, own) = (&inner.upcall_queues, &inner.totals, &self.counts);
        let queued = self.backer.packet_ins_waiting() as u64;
        let lost = self.backer.packet_ins_lost.load(Ordering::Relaxed);
        let unwanted = self.backer.packet_ins_unwanted.load(Ordering::Relaxed);
        let made = self.backer.packet_ins_made.load(Ordering::Relaxed);
        let pairs = [
            ("received and offered", sum.received, totals.offered),
            ("sent and arrived", sum.sent, totals.sent),
            ("dropped and counted by reason", sum.dropped, drops),
            ("counted by reason and by port", drops, by_ports),
            ("handed up and queued", sum.upcalled, upcall_queues.accepted),
            (
                "queued and taken",
                upcall_queues.accepted,
                upcall_queues.taken + waiting + upcall_queues.purged,
            ),
            ("taken and answered", upcall_queues.taken, own.answered + own.to_controllers),
            (
                "for controllers and told",
                own.to_controllers + made,
                own.packet_ins + queued + lost + unwanted,
            ),
            (
                "executes made and carried out",
                own.answered + own.packet_outs,
                totals.executes + executes_waiting,
            ),
            ("executes carried out and counted", totals.executes, sum.executed),
        ];
        drop(inner);
        for (what, a, b) in pairs {
            if a != b {
                self.violation(Invariant::Conservation, || format!("{what} differ: {a} and {b}"));
            }
        }
    }

    /// Checks limits; holds at any moment.
    pub(crate) fn check_bounds(&mut self) {
        let ukeys = self.backer.ukeys.len();
        let foreign = self.revalidator.foreign_flows.load(Ordering::Relaxed);
        let limit = self.flow_limit() + foreign;
        let recircs = self.backer.recirc_count();
        if ukeys > limit {
            self.violation(Invariant::Bounds, || format!("{ukeys} flows known, {limit} allowed"));
        }
        if recircs > ofproto::recirc::MAX_IDS {
            self.violation(Invariant::Bounds, || format!("{recircs} frozen states"));
        }
    }

    /// Checks limits of tables.
    pub(crate) fn check_table_bounds(&mut self) {
        let view = self.backer.view();
        for bridge in view.bridges.values() {
            let (macs, max) = (sync::lock(&bridge.macs).len(), self.mac_limit());
            let all = Match::catchall();
            let learned = bridge.tables.within(LEARN_TABLE, &all);
            let limited = learned.iter().filter(|r| r.cookie == LIMITED_COOKIE).count();
            if macs > max {
                self.violation(Invariant::Bounds, || format!("{macs} addresses learned, {max} allowed"));
            }
            if limited > LEARN_LIMIT as usize {
                self.violation(Invariant::Bounds, || {
                    format!("{limited} rules learned, {LEARN_LIMIT} allowed")
                });
            }
        }
    }

    /// Returns, for each port with misses in a batch of upcalls, its flows and misses.
    pub(crate) fn flows_by_port(&self, upcalls: &[Box<Upcall>]) -> BTreeMap<DpPort, (u64, u64)> {
        let mut ports = BTreeMap::new();
        for upcall in upcalls.iter().filter(|u| u.kind == UpcallKind::Miss) {
            let port = upcall.key.in_port();
            let entry = ports.entry(port).or_insert_with(|| (self.backer.ukeys.port_len(port), 0));
            entry.1 += 1;
        }
        ports
    }

    /// Checks that a port gets its share of the flow limit, whatever others have. `before`: see
    /// [`World::flows_by_port`].
    pub(crate) fn check_shares(&mut self, before: &BTreeMap<DpPort, (u64, u64)>, ops: &OpsByPmd) {
        let ports = self.backer.view().dp_ports.len() as u64 + 1;
        let share = ofproto::ukey::port_share(self.flow_limit(), ports);
        for (port, (flows, misses)) in before {
            let is_put = |op: &&DpifOp| matches!(op, DpifOp::FlowPut(p) if p.key.in_port() == *port);
            let puts = ops.values().flatten().filter(is_put).count() as u64;
            self.counts.flow_limit_reached += misses - puts;
            // Adding or removing a port changes the shares.
            if !self.ports_change() && flows + misses <= share && puts < *misses {
                self.violation(Invariant::Isolation, || {
                    format!("port {} with {flows} flows got {puts} for {misses} misses", port.0)
                });
            }
        }
    }

    /// Checks that nothing remains once all flows are gone.
    pub(crate) fn check_leaks(&mut self) {
        let (flows, tickets, parked) = {
            let inner = self.dp.inner();
            let flows: usize = inner.cores.iter().map(|c| c.plain.flows.len()).sum();
            let tickets: usize = inner.cores.iter().map(|c| c.pmd.open_tickets()).sum();
            let parked: u64 = inner.cores.iter().map(|c| c.pmd.ledger().parked).sum();
            (flows as u64, tickets as u64, parked)
        };
        let left = [
            ("datapath flows", flows),
            ("ukeys", self.backer.ukeys.len()),
            ("frozen states", self.backer.recirc_count() as u64),
            ("open tickets", tickets),
            ("parked packets", parked),
        ];
        for (what, n) in left {
            if n != 0 {
                self.violation(Invariant::Bounds, || format!("{n} {what} are left over"));
            }
        }
    }

    /// Checks that each packet's first pass, and each traversal of a patch port, is one lookup in table 0 of
    /// its bridge. Only valid when no packet is in flight.
    pub(crate) fn check_statistics(&mut self) {
        let hits: u64 = self.dp.inner().cores.iter().map(|c| c.plain.first_pass_hits).sum();
        let view = self.backer.view();
        let (mut lookups, mut crossed) = (0, 0);
        for bridge in view.bridges.values() {
            lookups += bridge.tables.table(flow::TableId(0)).map_or(0, |t| t.counters.counts().0);
            let ports = bridge.ports.ports.values();
            crossed += ports.map(|p| p.counters.rx[0].load(Ordering::Relaxed)).sum::<u64>();
        }
        let expected = hits + self.counts.first_pass_misses + self.counts.table_outs + crossed;
        if lookups != expected {
            self.violation(Invariant::Statistics, || {
                format!("{lookups} lookups in tables 0 for {expected} packets")
            });
        }
    }
}

/// Whether two lists have the same effect on a packet: they are equal, or differ only in sets of header
/// fields with equal results. (A set also covers looked-at bits, which may differ.)
fn equivalent(a: &[DpAction], b: &[DpAction], key: &FlowKey, frame: &[u8]) -> bool {
    let dry_run = |actions| crate::model::dry_run(frame, key, actions);
    a == b || without_set_fields(a) == without_set_fields(b) && dry_run(a) == dry_run(b)
}

fn without_set_fields(actions: &[DpAction]) -> Vec<DpAction> {
    let kept = |a: &DpAction| match a {
        DpAction::Set(SetAction::SkbMark(_) | SetAction::SkbPriority(_)) => Some(a.clone()),
        DpAction::Set(_) => None,
        DpAction::Clone(CloneAction(inner)) => Some(DpAction::Clone(CloneAction(without_set_fields(inner)))),
        _ => Some(a.clone()),
    };
    actions.iter().filter_map(kept).collect()
}

/// A packet that matches `key` under `mask`, random in all other bits; `None` if none was found.
fn packet_within(key: &FlowKey, mask: &KeyMask, rng: &mut Rng) -> Option<(FlowKey, Vec<u8>)> {
    let mut other = random_key(rng, false);
    other.base.in_port = key.base.in_port;
    let mut mixed = FlowKey::default();
    for i in 0..FlowKey::BLOCKS {
        for w in 0..8 {
            let (k, m, o) = (key.block(i)[w], mask.block(i)[w], other.block(i)[w]);
            let free = match rng.below(4) {
                0 => k,
                1 => o ^ (1 << rng.below(64)),
                _ => o,
            };
            mixed.block_mut(i)[w] = k & m | free & !m;
        }
    }
    let mut frame = compose(&mixed, Mark { checksums_ok: false, stream: 0, number: 0 });
    if rng.one_in(6) {
        frame.truncate(rng.range(14, frame.len() as u64) as usize);
    }
    let md = Metadata {
        in_port: key.base.in_port,
        recirc_id: key.base.recirc_id,
        pkt_mark: mixed.base.pkt_mark,
        skb_priority: if key.has(shape::ARP) { key.arp.skb_priority } else { 0 },
        dp_hash: key.base.dp_hash,
    };
    let mut packet = key_of(&frame, &md, VLAN_LIMIT);
    (packet.base.ct_state, packet.base.ct_zone) = (mixed.base.ct_state, mixed.base.ct_zone);
    packet.base.ct_mark = mixed.base.ct_mark;
    if key.has(shape::CT) {
        packet.base.shape |= shape::CT;
        packet.ct = mixed.ct;
        packet.ct.pad = [0; 3];
    }
    key.masked(mask).matches(mask, &packet).then_some((packet, frame))
}
