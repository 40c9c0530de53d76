//! A bridge with a bond, the switch at the other end of its wires, and hosts on both sides.
//!
//! Wires go down and up, delays pass, members come and go, commands and settings change the bond, load moves, and the
//! switch restarts. Each frame is followed to its end: none arrives twice, none leaves by a disabled member, none comes back
//! to its side, and none is lost but on a dead wire. The bond is changed as the thread `bonds` of the daemon does it: first
//! its state, then the flows that depend on it.
//!
//! Deliberately omitted: threads, and announcements as frames; the partner learns from their addresses.

mod datapath;
mod partner;

use crate::frames::{Mark, compose_text};
use crate::rng::Rng;
use crate::rules;
use crate::world::add_port;
use datapath::OneCore;
use dpif::{Datapath, DpifOp, OpResult, PutMode};
use flow::{DpPort, Flow, FlowKey, OfPort};
use ofproto::backer::Backer;
use ofproto::bond::{Bond, BondMode, BondSettings, LacpStatus, MemberLink, Outcome, State};
use ofproto::ports::{BridgeId, Bundle, BundleId, Port, PortTable};
use ofproto::revalidate::{Few, Replies, ReplyQueue, Revalidator, change_at_once};
use ofproto::upcall;
use partner::{Kind, Partner};
use std::collections::VecDeque;
use std::sync::Arc;

pub(crate) type Mac = [u8; 6];

/// Wires at most; their ports have the numbers from 1.
const WIRES: usize = 4;
/// Ports of hosts.
const HOST_PORTS: [u32; 2] = [11, 12];
/// Hosts of each port, and hosts behind the partner.
const HOSTS: u64 = 3;
/// Bytes of text in a frame: load to balance.
const TEXT_BYTES: usize = 1200;
/// The bond in the table of ports.
const BOND: BundleId = BundleId(1);
/// Frames in flight for one that a host sends: more is a loop.
const FLIGHTS_MAX: usize = 64;

fn local(port: u32, n: u64) -> Mac {
    [2, 0, 0, 0, port as u8, n as u8]
}

fn remote(n: u64) -> Mac {
    [2, 0, 0, 0, 99, n as u8]
}

fn is_remote(mac: Mac) -> bool {
    mac[..5] == remote(0)[..5]
}

fn is_multicast(mac: Mac) -> bool {
    mac[0] & 1 != 0
}

/// A violation, and how often the events occurred that the rules concern.
#[derive(Clone, Debug, Default)]
pub struct BondReport {
    /// Seed that reproduces the run.
    pub seed: u64,
    /// The first broken rule.
    pub violation: Option<String>,
    /// Frames that left by the bond.
    pub sent: u64,
    /// Frames that hosts got from the bond.
    pub received: u64,
    /// Frames lost on a dead wire.
    pub lost: u64,
    /// Copies that the partner sent back.
    pub reflected: u64,
    /// Packets that came back with their hash.
    pub recirculated: u64,
    /// Frames sent by `lb_output` or a hash, by mode: active-backup, balance-slb, balance-tcp.
    pub by_mode: [u64; 3],
    /// Changes of wires.
    pub flaps: u64,
    /// Hash values that moved to another member by their load.
    pub rebalanced: u64,
    /// Restarts.
    pub restarts: u64,
    /// Members added or removed.
    pub members_changed: u64,
}

/// A frame's way.
#[derive(Default, Debug)]
struct Way {
    /// Members that sent it.
    out: Vec<usize>,
    /// Host ports that got it.
    hosts: Vec<u32>,
    /// Arrivals at the partner.
    remote: usize,
}

/// See the module.
struct World {
    rng: Rng,
    report: BondReport,
    now_ms: u64,
    dp: OneCore,
    backer: Backer,
    revalidator: Revalidator,
    bridge: BridgeId,
    bond: Arc<Bond>,
    settings: BondSettings,
    partner: Partner,
    /// Members, by wire.
    members: [bool; WIRES],
    /// Wires that carry.
    up: [bool; WIRES],
    /// Wires that the switch believes to carry.
    seen_up: [bool; WIRES],
    /// Bytes by hash value, as last read.
    counted: Vec<u64>,
    number: u64,
}

/// Runs a switch with a bond for that many steps. A violation ends the run.
pub fn run(seed: u64, steps: u64) -> BondReport {
    let mut world = World::new(seed);
    for _ in 0..steps {
        world.step();
        if world.report.violation.is_some() {
            break;
        }
    }
    world.report
}

fn settings(rng: &mut Rng, kind: Kind) -> BondSettings {
    let lacp = kind == Kind::Aggregates;
    let modes = [BondMode::ActiveBackup, BondMode::BalanceSlb, BondMode::BalanceTcp];
    let delay = |rng: &mut Rng| *rng.pick(&[0, 0, 300, 2000]);
    BondSettings {
        mode: *rng.pick(&modes[..if lacp { 3 } else { 2 }]),
        updelay_ms: delay(rng),
        downdelay_ms: delay(rng),
        basis: rng.below(3) as u32,
        rebalance_ms: *rng.pick(&[0, 1000, 3000]),
        fallback_ab: lacp && rng.one_in(3),
        primary: rng.one_in(3).then(|| "p2".to_string()),
        all_members_active: lacp && rng.one_in(3),
        lb_output: rng.one_in(2),
        lacp,
        ..BondSettings::default()
    }
}

fn switch(seed: u64, now_ms: u64) -> (OneCore, Backer, Revalidator, BridgeId) {
    let dp = OneCore::new(seed, now_ms * 1000);
    (1..=WIRES as u32).chain(HOST_PORTS).for_each(|port| dp.add(DpPort(port)));
    let mut backer = Backer::new(seed);
    backer.rewrite = Some(Box::new(::datapath::rewrite));
    backer.capabilities = dp.capabilities();
    let replies = Arc::new(Replies::default());
    let sink = Arc::new(ReplyQueue::new(replies.clone(), || {}));
    let revalidator = Revalidator::new(replies, sink);
    revalidator.answers(&backer);
    let bridge = backer.add_bridge("br0");
    backer.change_bridge(bridge, |b| _ = b.tables.insert(Arc::new(rules::fallback(now_ms))));
    (dp, backer, revalidator, bridge)
}

impl World {
    fn new(seed: u64) -> World {
        let mut rng = Rng::new(seed);
        let kind = if rng.one_in(2) { Kind::Aggregates } else { Kind::Learns };
        let settings = settings(&mut rng, kind);
        let now_ms = 1_000_000;
        let (dp, backer, revalidator, bridge) = switch(seed, now_ms);
        let mut world = World {
            report: BondReport { seed, ..BondReport::default() },
            now_ms,
            dp,
            backer,
            revalidator,
            bridge,
            bond: Arc::new(Bond::new("bond0", settings.clone(), now_ms)),
            settings,
            partner: Partner::new(kind),
            members: [true, true, rng.one_in(2), rng.one_in(2)],
            up: [true; WIRES],
            seen_up: [true; WIRES],
            counted: Vec::new(),
            number: 0,
            rng,
        };
        world.publish();
        world
    }

    fn violation(&mut self, what: impl FnOnce() -> String) {
        if self.report.violation.is_none() {
            self.report.violation = Some(format!("{} {}", what(), self.bond.show(self.now_ms)));
        }
    }

    fn step(&mut self) {
        self.now_ms += self.rng.below(200);
        if self.rng.one_in(200) {
            self.now_ms += 400_000;
        }
        self.dp.set_time(self.now_ms * 1000);
        match self.rng.below(40) {
            0..=4 => self.flap(),
            5 | 6 => self.see_wires(),
            7 => self.configure(),
            8 => self.change_members(),
            9 => self.command(),
            10 if self.rng.one_in(4) => self.restart(),
            11 | 12 => self.backer.expire(self.now_ms),
            13..=15 => _ = self.revalidate(3),
            _ => self.traffic(),
        }
        self.follow(|_, _| ());
        self.rebalance();
    }

    fn flap(&mut self) {
        let wire = self.rng.below(WIRES as u64) as usize;
        self.report.flaps += 1;
        self.up[wire] = !self.up[wire];
        if !self.up[wire] {
            self.partner.flush(wire);
        }
        if self.rng.one_in(2) {
            self.see_wires();
        }
    }

    /// The switch learns which wires carry.
    fn see_wires(&mut self) {
        self.seen_up = self.up;
        self.follow(|_, _| ());
    }

    fn lacp(&self) -> LacpStatus {
        match self.settings.lacp {
            false => LacpStatus::Off,
            true if self.wires(&self.seen_up).is_empty() => LacpStatus::Configured,
            true => LacpStatus::Negotiated,
        }
    }

    /// Members among these wires.
    fn wires(&self, of: &[bool; WIRES]) -> Vec<usize> {
        (0..WIRES).filter(|wire| self.members[*wire] && of[*wire]).collect()
    }

    /// Changes the bond, follows its links and changes the flows that depend on it.
    fn follow(&mut self, change: impl FnOnce(&mut State, u64)) {
        let (now_ms, lacp) = (self.now_ms, self.lacp());
        let (seen, members) = (self.seen_up, self.members);
        let outcome = self.bond.update(now_ms, |state| {
            for wire in (0..WIRES).filter(|wire| members[*wire]) {
                state.set_link(&name(wire), seen[wire], seen[wire]);
            }
            state.set_lacp(lacp, now_ms);
            change(state, now_ms);
        });
        self.apply(outcome);
    }

    fn apply(&mut self, outcome: Outcome) {
        if outcome.changed {
            self.follow_members();
            self.backer.bond_changed(self.bridge, BOND);
            if !change_at_once(&self.backer, &self.dp, Few::FOR_BONDS, self.now_ms) {
                self.settle();
            }
        }
        if outcome.announce {
            self.announce();
        }
    }

    /// The partner learns where the hosts are.
    fn announce(&mut self) {
        let hosts = HOST_PORTS.iter().flat_map(|port| (0..HOSTS).map(|n| local(*port, n)));
        for mac in hosts.collect::<Vec<Mac>>() {
            let flow = Flow { dl_src: mac, ..Flow::default() };
            let way = self.bond.state().way_out(&flow, 0, false, &mut flow::Mask::default());
            if let Some(ofproto::bond::Way::Member(port, _)) = way
                && let wire = port.0 as usize - 1
                && self.up[wire]
            {
                self.partner.learn(mac, wire);
            }
        }
    }

    fn follow_members(&mut self) {
        let Some(id) = self.bond.recirc_id() else { return };
        let mut state = self.bond.state();
        let hashed = if state.uses_lb_output() { state.all_hashed() } else { None };
        let ports: Vec<DpPort> = hashed.unwrap_or_default().iter().map(|port| DpPort(port.0)).collect();
        self.dp.shared.bond_balancer().set_bond(id.0, &ports);
    }

    fn rebalance(&mut self) {
        let due = self.bond.state().rebalance_at_ms();
        if due.is_none_or(|due_ms| self.now_ms < due_ms) {
            return;
        }
        if self.backer.dumped_ms() < due.unwrap_or(0) {
            self.revalidator.request_round();
            self.settle();
        }
        if let Some(id) = self.bond.recirc_id()
            && let Some(bytes) = self.dp.shared.bond_balancer().bond_bytes(id.0)
        {
            let before = std::mem::replace(&mut self.counted, bytes.clone());
            let mut state = self.bond.state();
            for (hash, bytes) in (0..=u8::MAX).zip(bytes) {
                let before = before.get(usize::from(hash)).copied().unwrap_or(0);
                state.account(hash, 0, bytes.saturating_sub(before));
            }
        }
        let moves = |lines: &[String]| lines.iter().filter(|line| line.contains("shift ")).count() as u64;
        let outcome = self.bond.update(self.now_ms, |state| state.rebalance(self.now_ms));
        self.report.rebalanced += moves(&outcome.lines);
        self.apply(outcome);
    }

    fn configure(&mut self) {
        self.settings = settings(&mut self.rng, self.partner.kind);
        self.publish();
    }

    fn change_members(&mut self) {
        let wire = self.rng.below(WIRES as u64) as usize;
        if self.members.iter().filter(|member| **member).count() > 2 || !self.members[wire] {
            self.report.members_changed += 1;
            self.members[wire] = !self.members[wire];
            self.up[wire] = true;
            self.seen_up = self.up;
            self.partner.flush(wire);
            self.publish();
        }
    }

    fn command(&mut self) {
        let wire = name(self.rng.below(WIRES as u64) as usize);
        let hash = self.rng.below(256).to_string();
        let choice = self.rng.below(4);
        self.follow(|state, _| {
            // A refusal is an answer, too.
            let _ = match choice {
                0 => state.make_active(&wire),
                1 => state.set_enabled(&wire, true),
                2 => state.set_enabled(&wire, false),
                _ => state.migrate(&hash, &wire),
            };
        });
    }

    /// A new process, with the settings of the old one.
    fn restart(&mut self) {
        self.report.restarts += 1;
        let seed = self.rng.number();
        self.settings.active_mac = Some(self.bond.state().active_mac());
        (self.dp, self.backer, self.revalidator, self.bridge) = switch(seed, self.now_ms);
        self.bond = Arc::new(Bond::new("bond0", self.settings.clone(), self.now_ms));
        self.counted.clear();
        self.seen_up = self.up;
        self.publish();
    }

    /// Gives the bridge its ports.
    fn publish(&mut self) {
        let mode = self.settings.mode;
        match (self.bond.recirc_id(), mode) {
            (None, BondMode::BalanceSlb | BondMode::BalanceTcp) => {
                self.bond.set_recirc_id(self.backer.hold_bond(self.bridge, BOND));
            }
            (Some(id), BondMode::ActiveBackup) => {
                self.dp.shared.bond_balancer().set_bond(id.0, &[]);
                self.bond.set_recirc_id(None);
                self.backer.recirc_release(&[id]);
            }
            _ => {}
        }
        let mut table = PortTable::default();
        let plain = |table: &mut PortTable, port: u32| {
            add_port(table, OfPort(port), Some(DpPort(port)), None, Arc::default(), 0, Default::default());
        };
        HOST_PORTS.iter().for_each(|port| plain(&mut table, *port));
        let mut links = Vec::new();
        let mut members = Vec::new();
        for wire in (0..WIRES).filter(|wire| self.members[*wire]) {
            let port = OfPort(wire as u32 + 1);
            plain(&mut table, port.0);
            table.bundles.remove(&BundleId(port.0));
            if let Some(known) = table.ports.get(&port).cloned() {
                table.ports.insert(port, Arc::new(Port { bundle: BOND, ..(*known).clone() }));
                let up = self.seen_up[wire];
                links.push(MemberLink {
                    name: name(wire),
                    port,
                    mac: known.mac,
                    carrier: up,
                    may_enable: up,
                });
            }
            members.push(port);
        }
        if let Some(first) = table.bundles.values().next().cloned() {
            let (name, bond) = ("bond0".to_string(), Some(self.bond.clone()));
            table
                .bundles
                .insert(BOND, Arc::new(Bundle { id: BOND, name, members, bond, ..(*first).clone() }));
        }
        let (now_ms, settings) = (self.now_ms, self.settings.clone());
        let outcome = self.bond.update(now_ms, |state| {
            state.configure(settings, now_ms);
            state.set_members(&links);
        });
        self.follow_members();
        self.backer.set_ports(self.bridge, table);
        self.apply(Outcome { changed: false, ..outcome });
        self.follow(|_, _| ());
        self.settle();
    }

    /// Runs the revalidator for some steps; returns whether the flows follow the tables.
    fn revalidate(&mut self, steps: u64) -> bool {
        for _ in 0..steps {
            self.revalidator.poll(&self.backer, &self.dp, self.now_ms);
            self.dp.reply();
            if self.revalidator.is_settled(&self.backer) {
                return true;
            }
        }
        false
    }

    fn settle(&mut self) {
        if !self.revalidate(200) {
            self.violation(|| "the flows do not follow the tables".to_string());
        }
    }
}

/// Name of the member of a wire.
fn name(wire: usize) -> String {
    format!("p{}", wire + 1)
}

/// The port of a wire.
fn wire_of(port: DpPort) -> Option<usize> {
    (1..=WIRES as u32).contains(&port.0).then(|| port.0 as usize - 1)
}

impl World {
    /// Serves all packets that wait for a translation.
    fn handle(&mut self) {
        loop {
            let upcalls = self.dp.take_upcalls();
            if upcalls.is_empty() {
                return;
            }
            self.report.recirculated += upcalls.iter().filter(|u| u.key.base.recirc_id != 0).count() as u64;
            for (pmd, ops) in upcall::handle(&self.backer, upcalls.into(), self.now_ms) {
                let created = |op: &DpifOp| match op {
                    DpifOp::FlowPut(put) if put.mode == PutMode::Create => Some(put.ufid),
                    _ => None,
                };
                let created: Vec<_> = ops.iter().map(created).collect();
                for (ufid, result) in created.into_iter().zip(self.dp.execute(ops)) {
                    if let Some(ufid) = ufid {
                        let installed = !matches!(result, OpResult::Failed(_));
                        upcall::put_done(&self.backer, pmd, ufid, installed);
                    }
                }
            }
        }
    }

    /// Follows a frame that enters the switch by these ports until it has arrived.
    fn follow_frame(&mut self, ports: &[DpPort], frame: &[u8]) -> Way {
        let mut way = Way::default();
        let mut under_way: VecDeque<(DpPort, Vec<u8>)> =
            ports.iter().map(|port| (*port, frame.to_vec())).collect();
        let mut flights = 0;
        while let Some((port, frame)) = under_way.pop_front() {
            flights += 1;
            if flights > FLIGHTS_MAX {
                self.violation(|| format!("a frame loops: {way:?}"));
                break;
            }
            self.dp.receive(port, &frame);
            self.handle();
            for (to, frame) in self.dp.take_sent() {
                match wire_of(to) {
                    None => way.hosts.push(to.0),
                    Some(wire) => {
                        way.out.push(wire);
                        let back = self.arrive(wire, &frame, &mut way);
                        under_way
                            .extend(back.into_iter().map(|wire| (DpPort(wire as u32 + 1), frame.clone())));
                    }
                }
            }
        }
        way
    }

    /// A frame leaves by a wire; returns those by which the partner sends it back.
    fn arrive(&mut self, wire: usize, frame: &[u8], way: &mut Way) -> Vec<usize> {
        self.report.sent += 1;
        self.report.by_mode[self.settings.mode as usize] += 1;
        if !self.up[wire] {
            self.report.lost += 1;
            return Vec::new();
        }
        let (Some(dst), Some(src)) = (frame.first_chunk::<6>(), frame[6..].first_chunk::<6>()) else {
            return Vec::new();
        };
        way.remote += 1;
        let back = self.partner.receive(wire, *dst, *src, &self.wires(&self.up));
        self.report.reflected += back.len() as u64;
        back
    }

    fn frame(&mut self, src: Mac, dst: Mac) -> Vec<u8> {
        self.number += 1;
        let mut key = FlowKey::default();
        (key.base.dl_src, key.base.dl_dst) = (src, dst);
        (key.base.dl_type, key.base.nw_proto, key.base.nw_ttl) = (0x0800, 17, 64);
        (key.base.nw_src, key.base.nw_dst) = (0x0a00_0001, 0x0a00_0002 + self.rng.below(4) as u32);
        (key.base.tp_src, key.base.tp_dst) = (1000 + self.rng.below(20) as u16, 53);
        compose_text(&key, &[0; TEXT_BYTES], Mark { checksums_ok: true, stream: 0, number: self.number })
    }

    /// Enabled members, by wire.
    fn enabled(&self) -> Vec<usize> {
        let shown = self.bond.show(self.now_ms);
        let is_enabled = |wire: &usize| shown.contains(&format!("member {}: enabled\n", name(*wire)));
        (0..WIRES).filter(is_enabled).collect()
    }

    fn active(&self) -> Option<usize> {
        self.bond.state().active_port().map(|port| port.0 as usize - 1)
    }

    /// Whether the bond is an active-backup bond, if only for the time without a partner.
    fn has_one_active(&self) -> bool {
        self.settings.mode == BondMode::ActiveBackup || self.lacp() == LacpStatus::Configured
    }

    /// Whether the bond sends.
    fn sends(&self) -> bool {
        let waits = self.lacp() == LacpStatus::Configured && !self.settings.fallback_ab;
        !waits && !self.enabled().is_empty()
    }

    fn traffic(&mut self) {
        let burst = self.rng.one_in(120);
        for _ in 0..if burst { 150 } else { self.rng.range(1, 6) } {
            let dst_port = *self.rng.pick(&HOST_PORTS);
            let here = local(dst_port, self.rng.below(HOSTS));
            let there = remote(self.rng.below(HOSTS));
            let group = [1, 0, 0x5e, 0, 0, self.rng.below(3) as u8];
            let to_all = self.rng.one_in(3);
            match burst || self.rng.one_in(2) {
                true => self.leave(dst_port, here, if to_all { group } else { there }),
                false => self.come(there, if to_all { group } else { here }, dst_port),
            }
        }
    }

    /// A host at a port sends to others or to one behind the partner.
    fn leave(&mut self, port: u32, src: Mac, dst: Mac) {
        let frame = self.frame(src, dst);
        let (sends, enabled) = (self.sends(), self.enabled());
        let way = self.follow_frame(&[DpPort(port)], &frame);
        let told =
            |what: &str| format!("{what}: from {src:02x?} to {dst:02x?}: {way:?}, enabled {enabled:?}.");
        if way.out.len() > 1 || way.remote > 1 {
            self.violation(|| told("a frame leaves twice"));
        }
        if way.out.iter().any(|wire| !enabled.contains(wire)) {
            self.violation(|| told("a frame leaves by a disabled member"));
        }
        if self.has_one_active() && way.out.iter().any(|wire| self.active() != Some(*wire)) {
            self.violation(|| told("a frame leaves by a member that is not active"));
        }
        let of_hosts = |port: u32| way.hosts.iter().filter(|got| **got == port).count();
        if of_hosts(port) > 0 || HOST_PORTS.iter().any(|port| of_hosts(*port) > 1) {
            self.violation(|| told("a frame comes back or twice"));
        }
        let missing = HOST_PORTS.iter().any(|other| *other != port && of_hosts(*other) == 0);
        if way.out.len() != usize::from(sends) || is_multicast(dst) && missing {
            self.violation(|| told("a frame is lost"));
        }
    }

    /// Whether the bond takes a frame from that wire.
    fn takes(&self, wire: usize, dst: Mac) -> bool {
        let takes_all = !is_multicast(dst) || self.settings.all_members_active;
        match (self.lacp(), self.settings.mode) {
            (LacpStatus::Negotiated, _) => true,
            (LacpStatus::Configured, _) if !self.settings.fallback_ab => false,
            (_, BondMode::BalanceSlb) if takes_all => true,
            _ => self.active() == Some(wire),
        }
    }

    /// A host behind the partner sends.
    fn come(&mut self, src: Mac, dst: Mac, port: u32) {
        let frame = self.frame(src, dst);
        let (up, enabled) = (self.wires(&self.up), self.enabled());
        let wires = self.partner.send(dst, &up, &enabled, &mut self.rng);
        let wires: Vec<usize> = wires.into_iter().filter(|wire| self.members[*wire]).collect();
        let arrives = wires.iter().any(|wire| self.takes(*wire, dst));
        let ports: Vec<DpPort> = wires.iter().map(|wire| DpPort(*wire as u32 + 1)).collect();
        let way = self.follow_frame(&ports, &frame);
        self.report.received += way.hosts.len() as u64;
        let told = |what: &str| format!("{what}: from {src:02x?} to {dst:02x?} by {wires:?}: {way:?}.");
        if !way.out.is_empty() {
            self.violation(|| told("a frame goes back"));
        }
        let of_hosts = |port: u32| way.hosts.iter().filter(|got| **got == port).count();
        if HOST_PORTS.iter().any(|port| of_hosts(*port) > 1) {
            self.violation(|| told("a frame arrives twice"));
        }
        let expected: &[u32] = if is_multicast(dst) { &HOST_PORTS } else { &[port] };
        if expected.iter().any(|port| of_hosts(*port) != usize::from(arrives)) {
            self.violation(|| told(if arrives { "a frame is lost" } else { "a frame is not refused" }));
        }
    }
}
