//! The plain forwarding core, the oracle of [`datapath::Pmd`]: it scans a list of flows and runs one action
//! after the other on plain bytes, without caches, subtables, batches or incremental checksums. Each call of
//! both is compared.

use crate::frames::{key_of, recompute_checksums, valid_checksums, without_checksums};
use crate::tracking::PlainTracking;
use datapath::{ACTION_NESTING_MAX, EXECUTED_ACTIONS_MAX, RECIRC_DEPTH_MAX};
use dpif::actions::{CheckPktLen, CloneAction, Meter, Output, PopVlan, PushVlan, Recirc, Trunc, Userspace};
use dpif::{DpAction, FlowPut, Masked, MeterConfig, PortsSet, SetAction, Ticket, UpcallKind, UserCookie};
use flow::extract::{Layout, Metadata, extract};
use flow::{DpPort, FlowKey, KeyMask, OfPort, Ufid, VlanTag, nw_frag, shape};
use packet::headers as h;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Number of VLAN tags in keys.
pub(crate) const VLAN_LIMIT: u8 = 1;

/// The compared part of an upcall; its frame has no checksums.
#[derive(Clone, PartialEq)]
pub(crate) struct UpcallSeen {
    pub(crate) kind: UpcallKind,
    pub(crate) key: FlowKey,
    pub(crate) frame: Vec<u8>,
    pub(crate) rx_port: DpPort,
    pub(crate) has_ticket: bool,
}

impl std::fmt::Debug for UpcallSeen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (key, frame) = (self.key.to_flow(OfPort(self.key.base.in_port)), &self.frame);
        write!(f, "{:?} of {key:?} ticket {} {frame:02x?}", self.kind, self.has_ticket)
    }
}

/// A flow of the list.
#[derive(Clone)]
pub(crate) struct PlainFlow {
    pub(crate) ufid: Ufid,
    pub(crate) key: FlowKey,
    pub(crate) mask: KeyMask,
    pub(crate) actions: Arc<[DpAction]>,
    pub(crate) packets: u64,
    /// `key` under `mask`.
    masked: FlowKey,
}

impl PlainFlow {
    fn matches(&self, key: &FlowKey) -> bool {
        self.masked.matches(&self.mask, key)
    }
}

struct Waiting {
    frame: Vec<u8>,
    rx_port: DpPort,
    depth: u8,
}

struct OpenTicket {
    ticket: Option<Ticket>,
    key: FlowKey,
    rx_port: DpPort,
    deadline_us: u64,
    parked: Vec<Waiting>,
}

/// Token buckets, one per band, in exact arithmetic.
pub(crate) struct PlainMeter {
    config: MeterConfig,
    tokens: Vec<u128>,
    filled_us: Option<u64>,
}

impl PlainMeter {
    pub(crate) fn new(config: &MeterConfig) -> PlainMeter {
        let full = |b: &dpif::MeterBand| u128::from(if b.burst == 0 { b.rate } else { b.burst }) * 1_000_000;
        let tokens = config.bands.iter().map(full).collect();
        PlainMeter { config: config.clone(), tokens, filled_us: None }
    }

    fn admit(&mut self, bytes: usize, now_us: u64) -> bool {
        let elapsed = u128::from(now_us.saturating_sub(self.filled_us.unwrap_or(now_us)));
        self.filled_us = Some(self.filled_us.unwrap_or(now_us).max(now_us));
        let cost = if self.config.per_packet { 1_000_000 } else { bytes as u128 * 8000 };
        let mut passes = true;
        for (band, tokens) in self.config.bands.iter().zip(&mut self.tokens) {
            let full = u128::from(if band.burst == 0 { band.rate } else { band.burst }) * 1_000_000;
            *tokens = (*tokens + elapsed * u128::from(band.rate)).min(full);
            if *tokens >= cost {
                *tokens -= cost;
            } else {
                passes = false;
            }
        }
        passes
    }
}

/// Meters shared by all cores.
pub(crate) type PlainMeters = BTreeMap<u32, PlainMeter>;

/// Output of a core in one call, for comparison.
#[derive(Default)]
pub(crate) struct Effects {
    /// Frames handed to ports, in order.
    pub(crate) sent: Vec<(DpPort, Vec<u8>)>,
    /// Attempted upcalls, in order.
    pub(crate) upcalls: Vec<UpcallSeen>,
}

/// Environment of a plain core during a call.
pub(crate) struct Env<'a> {
    pub(crate) now_us: u64,
    pub(crate) meters: &'a mut PlainMeters,
    pub(crate) tracking: &'a mut PlainTracking,
    /// For each upcall that the real core attempted, in order: acceptance and ticket. The core does not
    /// control the queue's room.
    pub(crate) accepted: VecDeque<(bool, Option<Ticket>)>,
    pub(crate) effects: Effects,
    /// Returns the real core's count for a flow at the end of the call.
    pub(crate) counted: &'a mut dyn FnMut(Ufid) -> u64,
    /// Several flows could have matched a packet: the cores are no longer comparable.
    pub(crate) ambiguous: bool,
}

/// A packet on its way through a list of actions.
pub(crate) struct Round {
    pub(crate) frame: Vec<u8>,
    pub(crate) key: FlowKey,
    pub(crate) rx_port: DpPort,
    pub(crate) depth: u8,
}

/// See the module.
#[derive(Default)]
pub(crate) struct PlainCore {
    pub(crate) ports: BTreeSet<DpPort>,
    /// Output to any port counts, in dry runs.
    every_port: bool,
    /// Boxed: a removal moves all later ones.
    #[expect(clippy::vec_box, reason = "keys and masks are large")]
    pub(crate) flows: Vec<Box<PlainFlow>>,
    tickets: Vec<OpenTicket>,
    deferred: VecDeque<Round>,
    parked_per_ticket_max: usize,
    pub(crate) parked_max: usize,
    ticket_ttl_us: u64,
    /// Packets that hit a flow in their first pass.
    pub(crate) first_pass_hits: u64,
}

fn metadata(key: &FlowKey) -> Metadata {
    Metadata {
        in_port: key.base.in_port,
        recirc_id: key.base.recirc_id,
        pkt_mark: key.base.pkt_mark,
        skb_priority: if key.has(shape::ARP) { key.arp.skb_priority } else { 0 },
        dp_hash: key.base.dp_hash,
    }
}

/// The key of a frame after changes, and its headers. Metadata stay.
pub(crate) fn rekeyed(frame: &[u8], key: &FlowKey) -> (FlowKey, Layout) {
    let mut new = FlowKey::default();
    let layout = extract(frame, &metadata(key), VLAN_LIMIT, &mut new);
    (new.base.ct_state, new.base.ct_zone) = (key.base.ct_state, key.base.ct_zone);
    new.base.ct_mark = key.base.ct_mark;
    if key.has(shape::CT) {
        new.base.shape |= shape::CT;
        new.ct = key.ct;
    }
    (new, layout)
}

impl PlainCore {
    /// A core without ports and flows.
    pub(crate) fn new(config: &datapath::PmdConfig) -> PlainCore {
        PlainCore {
            parked_per_ticket_max: config.parked_per_ticket_max,
            parked_max: config.parked_max,
            ticket_ttl_us: config.ticket_ttl_us,
            ..PlainCore::default()
        }
    }

    /// Finds the flow for a packet: the first match in the list.
    pub(crate) fn lookup(&self, key: &FlowKey) -> Option<usize> {
        self.flows.iter().position(|f| f.matches(key))
    }

    /// Finds the flow for a packet. During rule changes, both an old and a new flow may match it; then the
    /// one whose count in the real core increased.
    fn choose(&self, key: &FlowKey, env: &mut Env<'_>) -> Option<usize> {
        let first = self.lookup(key)?;
        let others: Vec<usize> =
            (first..self.flows.len()).filter(|at| self.flows[*at].matches(key)).collect();
        if others.len() == 1 {
            return Some(first);
        }
        let more = |at: &usize| (env.counted)(self.flows[*at].ufid) > self.flows[*at].packets;
        let hit: Vec<usize> = others.into_iter().filter(more).collect();
        env.ambiguous |= hit.len() != 1;
        Some(hit.first().copied().unwrap_or(first))
    }

    /// Processes a burst received on a port.
    pub(crate) fn process(&mut self, rx_port: DpPort, frames: Vec<Vec<u8>>, env: &mut Env<'_>) {
        let there = self.ports.contains(&rx_port);
        let whole = |f: &&Vec<u8>| there && f.len() >= h::ETH_HEADER_BYTES;
        let frames: Vec<&Vec<u8>> = frames.iter().filter(whole).collect();
        for some in frames.chunks(packet::BATCH_MAX_PACKETS) {
            for &frame in some {
                let md = Metadata { in_port: rx_port.0, ..Metadata::default() };
                let key = key_of(frame, &md, VLAN_LIMIT);
                self.forward(Round { frame: frame.clone(), key, rx_port, depth: 0 }, true, env);
            }
            self.run_recirculated(env);
        }
    }

    fn run_recirculated(&mut self, env: &mut Env<'_>) {
        while let Some(round) = self.deferred.pop_front() {
            self.forward(round, true, env);
        }
    }

    fn forward(&mut self, round: Round, park: bool, env: &mut Env<'_>) {
        let Round { frame, key, rx_port, depth } = round;
        let waits = park.then(|| self.tickets.iter().position(|t| t.key == key)).flatten();
        if let Some(at) = waits {
            let all = || self.tickets.iter().flat_map(|t| &t.parked);
            let free = self.parked_max.saturating_sub(all().count());
            // A port may hold as many packets as it leaves free.
            let room = all().filter(|p| p.rx_port == rx_port).count() < free;
            let parked = &mut self.tickets[at].parked;
            if room && parked.len() < self.parked_per_ticket_max {
                parked.push(Waiting { frame, rx_port, depth });
            }
            return;
        }
        if let Some(at) = self.choose(&key, env) {
            self.flows[at].packets += 1;
            self.first_pass_hits += u64::from(key.base.recirc_id == 0);
            let actions = self.flows[at].actions.clone();
            self.run(Round { frame, key, rx_port, depth }, None, &actions, env);
            return;
        }
        let frame = without_checksums(&frame);
        let seen = UpcallSeen { kind: UpcallKind::Miss, key, frame, rx_port, has_ticket: park };
        env.effects.upcalls.push(seen);
        let (taken, ticket) = env.accepted.pop_front().unwrap_or((false, None));
        if taken && park {
            let deadline_us = env.now_us.saturating_add(self.ticket_ttl_us);
            self.tickets.push(OpenTicket { ticket, key, rx_port, deadline_us, parked: Vec::new() });
        }
    }

    /// Runs an `Execute`.
    pub(crate) fn execute(
        &mut self,
        frame: Vec<u8>,
        key: &FlowKey,
        actions: &[DpAction],
        ticket: Option<Ticket>,
        env: &mut Env<'_>,
    ) {
        if accepts(actions, 0, &mut 0) && frame.len() >= h::ETH_HEADER_BYTES {
            let key = rekeyed(&frame, key).0;
            let rx_port = key.in_port();
            self.run(Round { frame, key, rx_port, depth: 0 }, None, actions, env);
            self.run_recirculated(env);
        }
        let Some(at) = self.tickets.iter().position(|t| ticket.is_some() && t.ticket == ticket) else {
            return;
        };
        let OpenTicket { key, parked, .. } = self.tickets.remove(at);
        for Waiting { frame, rx_port, depth } in parked {
            self.forward(Round { frame, key, rx_port, depth }, false, env);
        }
        self.run_recirculated(env);
    }

    /// Applies a put that the real core accepted.
    pub(crate) fn put(&mut self, put: &FlowPut) {
        match self.flows.iter_mut().find(|f| f.ufid == put.ufid) {
            Some(f) => f.actions = put.actions.clone(),
            None => self.flows.push(Box::new(PlainFlow {
                ufid: put.ufid,
                key: put.key,
                mask: put.mask,
                actions: put.actions.clone(),
                packets: 0,
                masked: put.key.masked(&put.mask),
            })),
        }
    }

    /// Expires unanswered tickets.
    pub(crate) fn tick(&mut self, now_us: u64) {
        self.tickets.retain(|t| t.deadline_us > now_us);
    }

    /// Removes a port.
    pub(crate) fn port_remove(&mut self, port: DpPort) {
        self.tickets.retain(|t| t.rx_port != port && t.key.in_port() != port);
        for t in &mut self.tickets {
            t.parked.retain(|p| p.rx_port != port);
        }
        self.flows.retain(|f| f.key.in_port() != port);
        self.ports.remove(&port);
    }

    /// Executes the list for the frame's length.
    fn run_case(&mut self, round: Round, cut: Option<u32>, check: &CheckPktLen, env: &mut Env<'_>) {
        let CheckPktLen { len, greater, less } = check;
        let inner = if round.frame.len() > usize::from(*len) { greater } else { less };
        self.run(round, cut, inner, env);
    }

    /// Executes `ct`. `None`: the packet is dropped, or a fragment, which goes on with the `rest` of the list or waits.
    fn track(
        &mut self,
        mut round: Round,
        cut: Option<u32>,
        ct: &dpif::CtAction,
        rest: &[DpAction],
        env: &mut Env<'_>,
    ) -> Option<Round> {
        let (key, layout) = rekeyed(&round.frame, &round.key);
        if key.base.nw_frag == 0 {
            env.tracking.execute(&mut round.frame, &mut round.key, ct, round.rx_port, env.now_us)?;
            return Some(round);
        }
        for fragment in env.tracking.take_fragment(Round { key, ..round }, layout, ct, env.now_us) {
            self.run(fragment, cut, rest, env);
        }
        None
    }

    /// Recirculates a packet, after the others that wait.
    fn defer(&mut self, round: Round, id: u32) {
        if round.depth < RECIRC_DEPTH_MAX && self.deferred.len() < 1024 {
            let mut key = rekeyed(&round.frame, &round.key).0;
            key.base.recirc_id = id;
            self.deferred.push_back(Round { key, depth: round.depth + 1, ..round });
        }
    }

    /// Executes actions. `cut`: truncates the next output or upcall to that many bytes.
    fn run(&mut self, round: Round, mut cut: Option<u32>, actions: &[DpAction], env: &mut Env<'_>) {
        let Round { mut frame, mut key, rx_port, depth } = round;
        let actions = effective(actions);
        for (at, action) in actions.iter().enumerate() {
            match action {
                DpAction::Output(Output(port)) => {
                    let frame = cut_to(&frame, cut.take());
                    if self.every_port || self.ports.contains(port) {
                        env.effects.sent.push((*port, frame));
                    }
                }
                DpAction::Userspace(Userspace(cookie)) => {
                    hand_up(&cut_to(&frame, cut.take()), &key, rx_port, *cookie, env);
                }
                DpAction::Recirc(Recirc(id)) => {
                    self.defer(Round { frame: frame.clone(), key, rx_port, depth }, id.0);
                }
                DpAction::Clone(CloneAction(inner)) => {
                    self.run(Round { frame: frame.clone(), key, rx_port, depth }, cut, inner, env);
                }
                DpAction::CheckPktLen(check) => {
                    self.run_case(Round { frame: frame.clone(), key, rx_port, depth }, cut, check, env);
                }
                DpAction::PushVlan(PushVlan { tpid, tci }) => {
                    let tag = [tpid.to_be_bytes(), (tci & !VlanTag::PRESENT).to_be_bytes()].concat();
                    frame.splice(12..12, tag);
                }
                DpAction::PopVlan(PopVlan) => {
                    if !pop_tag(&mut frame) {
                        return;
                    }
                }
                DpAction::Set(SetAction::SkbMark(m)) => {
                    key.base.pkt_mark = key.base.pkt_mark & !m.mask | m.value & m.mask;
                }
                DpAction::Set(SetAction::SkbPriority(n)) => {
                    key.arp.skb_priority = *n;
                    key.base.shape |= shape::ARP;
                }
                DpAction::Set(set) => {
                    if rewrite(&mut frame, set).is_none() {
                        return;
                    }
                }
                DpAction::Meter(Meter(id)) => {
                    let meter = env.meters.get_mut(id);
                    if !meter.is_none_or(|m| m.admit(frame.len(), env.now_us)) {
                        return;
                    }
                }
                DpAction::Trunc(Trunc(bytes)) => cut = Some(*bytes),
                // A copy for readers; the packet goes on.
                DpAction::Psample(_) => {}
                DpAction::Ct(ct) => {
                    let round = Round { frame, key, rx_port, depth };
                    let Some(round) = self.track(round, cut, ct, &actions[at + 1..], env) else { return };
                    (frame, key) = (round.frame, round.key);
                }
                DpAction::CtClear(_) => key.clear_tracking(),
                // A drop ends the list, and a sample, which is by chance; no list here has the others.
                DpAction::Sample(_)
                | DpAction::Drop(_)
                | DpAction::Hash(_)
                | DpAction::PushMpls(_)
                | DpAction::PopMpls(_)
                | DpAction::PushEth(_)
                | DpAction::PopEth(_)
                | DpAction::PushNsh(_)
                | DpAction::PopNsh(_)
                | DpAction::AddMpls(_)
                | DpAction::DecTtl(_)
                | DpAction::TnlPush(_)
                | DpAction::TnlPop(_)
                | DpAction::LbOutput(_)
                | DpAction::Foreign(_) => return,
            }
        }
    }
}

/// The actions up to the last one with an effect: those behind it are void.
fn effective(actions: &[DpAction]) -> &[DpAction] {
    let end = actions.iter().rposition(has_effect).map_or(actions.len(), |last| last + 1);
    &actions[..end]
}

/// Hands a packet up by a user action.
fn hand_up(frame: &[u8], key: &FlowKey, rx_port: DpPort, cookie: UserCookie, env: &mut Env<'_>) {
    let key = rekeyed(frame, key).0;
    let (kind, frame) = (UpcallKind::Action(cookie), without_checksums(frame));
    env.effects.upcalls.push(UpcallSeen { kind, key, frame, rx_port, has_ticket: false });
    env.accepted.pop_front();
}

/// Removes the outer VLAN tag; `false` without one.
fn pop_tag(frame: &mut Vec<u8>) -> bool {
    let tagged = matches!(h::be16(frame, 12), Some(h::ETH_TYPE_VLAN | h::ETH_TYPE_VLAN_8021AD));
    let pops = tagged && frame.len() >= 18;
    if pops {
        frame.drain(12..16);
    }
    pops
}

/// Whether the action has an effect outside of the packet.
fn has_effect(a: &DpAction) -> bool {
    let delivers = matches!(a, DpAction::Output(_) | DpAction::Userspace(_) | DpAction::Recirc(_));
    delivers
        || matches!(
            a,
            DpAction::Psample(_)
                | DpAction::Clone(_)
                | DpAction::CheckPktLen(_)
                | DpAction::Meter(_)
                | DpAction::Ct(_)
        )
}

/// Whether a core accepts the list, at nesting level `depth`, with `total` actions so far.
fn accepts(actions: &[DpAction], depth: usize, total: &mut usize) -> bool {
    *total += actions.len();
    let mut lists = actions.iter().flat_map(DpAction::lists);
    depth <= ACTION_NESTING_MAX
        && *total <= EXECUTED_ACTIONS_MAX
        && actions.iter().all(|a| a.userspace_lacks().is_none())
        && lists.all(|inner| accepts(inner, depth + 1, total))
}

fn cut_to(frame: &[u8], bytes: Option<u32>) -> Vec<u8> {
    let end = bytes.map_or(frame.len(), |n| (n as usize).max(h::ETH_HEADER_BYTES).min(frame.len()));
    frame[..end].to_vec()
}

/// Sent frames by port, recirculated frames by id, and upcalls.
pub(crate) type Outputs = (Vec<(DpPort, Vec<u8>)>, Vec<(u32, Vec<u8>)>, Vec<UpcallSeen>);

/// Runs actions on a packet as if all its ports existed and all meters passed it; returns the outputs.
pub(crate) fn dry_run(frame: &[u8], key: &FlowKey, actions: &[DpAction]) -> Outputs {
    let mut core = PlainCore { every_port: true, ..PlainCore::default() };
    let mut env = Env {
        now_us: 0,
        meters: &mut PlainMeters::new(),
        tracking: &mut PlainTracking::new(0),
        accepted: VecDeque::new(),
        effects: Effects::default(),
        counted: &mut |_| 0,
        ambiguous: false,
    };
    let round = Round { frame: frame.to_vec(), key: *key, rx_port: key.in_port(), depth: 0 };
    core.run(round, None, actions, &mut env);
    let rounds = core.deferred.into_iter().map(|r| (r.key.base.recirc_id, r.frame)).collect();
    (env.effects.sent, rounds, env.effects.upcalls)
}

fn put_bytes(frame: &mut [u8], at: usize, value: &[u8], mask: &[u8]) -> Option<()> {
    for (i, byte) in frame.get_mut(at..at + value.len())?.iter_mut().enumerate() {
        *byte = *byte & !mask[i] | value[i] & mask[i];
    }
    Some(())
}

/// Rewrites a header; checksums that were right follow. `None`: the frame misses it.
pub(crate) fn rewrite(frame: &mut [u8], set: &SetAction) -> Option<()> {
    let right = valid_checksums(frame);
    rewrite_fields(frame, set)?;
    recompute_checksums(frame, right);
    Some(())
}

fn rewrite_fields(frame: &mut [u8], set: &SetAction) -> Option<()> {
    let mut key = FlowKey::default();
    let layout = extract(frame, &Metadata::default(), VLAN_LIMIT, &mut key);
    let at = |place: u16| (place != Layout::NONE).then_some(usize::from(place));
    let b = &key.base;
    let ip = matches!(b.dl_type, h::ETH_TYPE_IP | h::ETH_TYPE_IPV6);
    let mut ports = |m: &Masked<PortsSet>, proto: u8| {
        if !ip || b.nw_proto != proto || proto == h::IPPROTO_SCTP && b.nw_frag == nw_frag::ANY {
            return None;
        }
        if b.nw_frag & nw_frag::LATER != 0 {
            return Some(());
        }
        let l4 = at(layout.l4)?;
        put_bytes(frame, l4, &m.value.src.to_be_bytes(), &m.mask.src.to_be_bytes())?;
        put_bytes(frame, l4 + 2, &m.value.dst.to_be_bytes(), &m.mask.dst.to_be_bytes())
    };
    match set {
        SetAction::Tcp(m) => ports(m, h::IPPROTO_TCP),
        SetAction::Udp(m) => ports(m, h::IPPROTO_UDP),
        SetAction::Sctp(m) => ports(m, h::IPPROTO_SCTP),
        SetAction::Eth(m) => {
            put_bytes(frame, 0, &m.value.dst, &m.mask.dst)?;
            put_bytes(frame, 6, &m.value.src, &m.mask.src)
        }
        SetAction::Ipv4(m) => {
            let l3 = at(layout.l3).filter(|_| b.dl_type == h::ETH_TYPE_IP)?;
            put_bytes(frame, l3 + 1, &[m.value.tos], &[m.mask.tos])?;
            put_bytes(frame, l3 + 8, &[m.value.ttl], &[m.mask.ttl])?;
            put_bytes(frame, l3 + 12, &m.value.src.to_be_bytes(), &m.mask.src.to_be_bytes())?;
            put_bytes(frame, l3 + 16, &m.value.dst.to_be_bytes(), &m.mask.dst.to_be_bytes())
        }
        SetAction::Ipv6(m) => {
            let l3 = at(layout.l3).filter(|_| b.dl_type == h::ETH_TYPE_IPV6)?;
            let word = |v: &dpif::Ipv6Set| (u32::from(v.tclass) << 20 | v.label & 0xf_ffff).to_be_bytes();
            put_bytes(frame, l3, &word(&m.value), &word(&m.mask))?;
            put_bytes(frame, l3 + 7, &[m.value.hlimit], &[m.mask.hlimit])?;
            put_bytes(frame, l3 + 8, &m.value.src, &m.mask.src)?;
            put_bytes(frame, l3 + 24, &m.value.dst, &m.mask.dst)
        }
        SetAction::Icmp(m) | SetAction::Icmpv6(m) => {
            let v4 = matches!(set, SetAction::Icmp(_));
            let (dl_type, proto) =
                if v4 { (h::ETH_TYPE_IP, h::IPPROTO_ICMP) } else { (h::ETH_TYPE_IPV6, h::IPPROTO_ICMPV6) };
            if b.dl_type != dl_type || b.nw_proto != proto {
                return None;
            }
            if b.nw_frag & nw_frag::LATER != 0 {
                return Some(());
            }
            let bytes = |p: &PortsSet| [p.src as u8, p.dst as u8];
            put_bytes(frame, at(layout.l4)?, &bytes(&m.value), &bytes(&m.mask))
        }
        SetAction::Arp(m) => {
            let l3 = at(layout.l3).filter(|_| matches!(b.dl_type, h::ETH_TYPE_ARP | h::ETH_TYPE_RARP))?;
            let head: [u8; h::ARP_ETH_BYTES] = h::array(frame, l3)?;
            if head[..6] != [0, 1, 8, 0, 6, 4] {
                return None;
            }
            put_bytes(frame, l3 + 6, &m.value.op.to_be_bytes(), &m.mask.op.to_be_bytes())?;
            put_bytes(frame, l3 + 8, &m.value.sha, &m.mask.sha)?;
            put_bytes(frame, l3 + 14, &m.value.spa.to_be_bytes(), &m.mask.spa.to_be_bytes())?;
            put_bytes(frame, l3 + 18, &m.value.tha, &m.mask.tha)?;
            put_bytes(frame, l3 + 24, &m.value.tpa.to_be_bytes(), &m.mask.tpa.to_be_bytes())
        }
        SetAction::Nd(m) => rewrite_nd(frame, &key, layout, m),
        SetAction::NdExt(m) => {
            let (l4, end) = neighbour_message(frame, &key, layout)?;
            put_bytes(frame, l4 + 4, &m.value.reserved.to_be_bytes(), &m.mask.reserved.to_be_bytes())?;
            match l4 + 26 <= end {
                true => {
                    put_bytes(frame, l4 + 24, &[m.value.options_type as u8], &[m.mask.options_type as u8])
                }
                false => Some(()),
            }
        }
        SetAction::SkbMark(_) | SetAction::SkbPriority(_) => Some(()),
        SetAction::Tunnel(_) | SetAction::Mpls(_) | SetAction::Nsh(_) => None,
    }
}

/// Offset of a neighbour discovery message, and its end.
fn neighbour_message(frame: &[u8], key: &FlowKey, layout: Layout) -> Option<(usize, usize)> {
    let b = &key.base;
    if b.dl_type != h::ETH_TYPE_IPV6 || b.nw_proto != h::IPPROTO_ICMPV6 || layout.l4 == Layout::NONE {
        return None;
    }
    let (l3, l4) = (usize::from(layout.l3), usize::from(layout.l4));
    let payload = usize::from(h::be16(frame, l3 + 4)?);
    let end = if payload == 0 { frame.len() } else { (l3 + h::IPV6_HEADER_BYTES + payload).min(frame.len()) };
    let kind = *frame.get(l4)?;
    matches!(kind, h::ND_NEIGHBOR_SOLICIT | h::ND_NEIGHBOR_ADVERT).then_some((l4, end))
}

fn rewrite_nd(frame: &mut [u8], key: &FlowKey, layout: Layout, m: &Masked<dpif::NdSet>) -> Option<()> {
    let (l4, end) = neighbour_message(frame, key, layout).filter(|(l4, end)| l4 + 24 <= *end)?;
    put_bytes(frame, l4 + 8, &m.value.target, &m.mask.target)?;
    let mut at = l4 + 24;
    while at + 8 <= end {
        let bytes = usize::from(frame[at + 1]) * 8;
        if bytes == 0 || at + bytes > end {
            break;
        }
        match (frame[at], frame[at + 1]) {
            (h::ND_OPT_SOURCE_LINKADDR, 1) => put_bytes(frame, at + 2, &m.value.sll, &m.mask.sll)?,
            (h::ND_OPT_TARGET_LINKADDR, 1) => put_bytes(frame, at + 2, &m.value.tll, &m.mask.tll)?,
            _ => {}
        }
        at += bytes;
    }
    Some(())
}
