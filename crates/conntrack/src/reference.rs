//! The oracle of the tracker: connections in a list, searched from end to end, on virtual time. Slow and plain; tests
//! compare [`crate::Tracker`] with it. It is told which tuple a new translation chose, and verifies the choice.

use crate::key::{Key, Rest};
use crate::nat::legal_replies;
use crate::packet_info::{PacketInfo, Transport};
use crate::request::{Request, Translation};
use crate::tcp::tests::{Peer, are_invalid, oracle, oracle_new};
use crate::tcp::{Update, flag};
use crate::timeouts::usual_s;
use dpif::{CtNat, CtRefusal, TcpState, TimeoutAttr};
use flow::ct_state::{DNAT, EST, INV, NEW, REL, RPL, SNAT, TRK};
use std::collections::{BTreeMap, HashMap};

/// Protocol state of a connection.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Phase {
    Tcp([Peer; 2]),
    /// ICMP: whether a reply was seen.
    Icmp(bool),
    /// Other protocols: packets seen of the original direction beyond the first; of the reply.
    Other(bool, bool),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Conn {
    pub(crate) orig: Key,
    pub(crate) reply: Key,
    pub(crate) mark: u32,
    pub(crate) labels: u128,
    pub(crate) expires_ms: u64,
    pub(crate) phase: Phase,
    nat: Option<bool>,
    port: u32,
    policy: u16,
}

impl Conn {
    fn has(&self, key: &Key) -> bool {
        self.orig == *key || self.reply == *key
    }
}

/// Tracking metadata of a packet.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Metadata {
    pub(crate) state: u32,
    pub(crate) zone: u16,
    pub(crate) mark: u32,
    pub(crate) labels: u128,
    pub(crate) orig: Option<Key>,
}

/// See the module.
pub(crate) struct Reference {
    pub(crate) conns: Vec<Conn>,
    pub(crate) max: u32,
    /// Ports that share the kept places.
    pub(crate) sharing: u32,
    pub(crate) zone_limits: HashMap<u16, u32>,
    pub(crate) refused: BTreeMap<(u16, CtRefusal), u64>,
    pub(crate) checks_sequence: bool,
    /// Seconds of policy 1; other policies have the usual ones.
    pub(crate) policy: HashMap<u8, u32>,
}

impl Reference {
    pub(crate) fn new(max: u32) -> Reference {
        Reference {
            conns: Vec::new(),
            max,
            sharing: 1,
            zone_limits: HashMap::new(),
            refused: BTreeMap::new(),
            checks_sequence: true,
            policy: HashMap::new(),
        }
    }

    /// Connections that have a key in some direction, expired ones too.
    pub(crate) fn with_key(&self, key: &Key) -> usize {
        self.conns.iter().filter(|c| c.has(key)).count()
    }

    pub(crate) fn expire(&mut self, now_ms: u64) {
        self.conns.retain(|c| c.expires_ms > now_ms);
    }

    fn seconds(&self, policy: u16, timeout: TimeoutAttr) -> u64 {
        let own = self.policy.get(&(timeout as u8)).copied().filter(|_| policy == 1);
        own.or(usual_s(timeout)).unwrap_or(0).into()
    }

    fn live(&self, key: &Key, now_ms: u64) -> Option<(usize, bool)> {
        let at = self.conns.iter().position(|c| c.has(key) && c.expires_ms > now_ms)?;
        Some((at, self.conns[at].orig != *key))
    }

    fn find(
        &self,
        packet: &PacketInfo,
        request: &Request,
        md: &Metadata,
        now_ms: u64,
    ) -> Option<(usize, bool)> {
        if md.zone != request.zone || md.state & (SNAT | DNAT) == 0 {
            return self.live(&packet.key, now_ms);
        }
        if let Some((at, reply)) = self.live(&packet.key.reversed(), now_ms) {
            return Some((at, !reply));
        }
        let orig = md.orig.filter(|_| request.nat == CtNat::No)?;
        // The packet's own identifier stands for that of the tuple, which the metadata do not have.
        let is_icmp = matches!(packet.transport, Transport::Icmp { .. });
        let orig = if is_icmp { with_id(orig, packet.key.rest().src) } else { orig };
        self.live(&orig, now_ms).map(|(at, _)| (at, false))
    }

    /// Tracks a packet. `chosen`: the reply tuple of a connection that this creates with a translation.
    pub(crate) fn track(
        &mut self,
        packet: Option<&PacketInfo>,
        request: &Request,
        md: &Metadata,
        port: u32,
        now_ms: u64,
        chosen: Option<Key>,
    ) -> (Metadata, Option<Translation>) {
        let invalid = (Metadata { state: INV | TRK, zone: request.zone, ..Metadata::default() }, None);
        let Some(packet) = packet else { return invalid };
        let before = if md.zone == request.zone { md.state } else { 0 };
        let mut found = self.find(packet, request, md, now_ms);
        if let Some((at, true)) = found
            && request.force
        {
            self.conns.remove(at);
            found = None;
        }
        if let Some((at, reply)) = found {
            if let Some(state) = self.update(at, reply, packet, before, now_ms) {
                return self.finish(at, reply, packet, request, state);
            }
            self.conns.remove(at);
        }
        let begins = match packet.transport {
            Transport::Tcp(s) => !are_invalid(s.flags) && s.flags & (flag::SYN | flag::ACK) != 18,
            Transport::Icmp { begins } => begins,
            Transport::Other => true,
        };
        if packet.is_error || !begins {
            return invalid;
        }
        let created =
            if request.commit { self.create(packet, request, port, now_ms, chosen) } else { Ok(false) };
        match created {
            Ok(true) => {
                let c = self.conns[self.conns.len() - 1];
                let mut state = NEW | TRK;
                let translation = translate(&c, false, packet, request, &mut state);
                let md = Metadata {
                    state,
                    zone: request.zone,
                    mark: c.mark,
                    labels: c.labels,
                    orig: Some(c.orig),
                };
                (md, translation)
            }
            Ok(false) => {
                let orig = Some(packet.key);
                (Metadata { state: NEW | TRK, zone: request.zone, orig, ..Metadata::default() }, None)
            }
            Err((at, reply)) => match self.update(at, reply, packet, before, now_ms) {
                Some(state) => self.finish(at, reply, packet, request, state),
                None => panic!("a connection that is over begins twice"),
            },
        }
    }

    /// The state of a packet of an existing connection; `None`: it begins another one.
    fn update(
        &mut self,
        at: usize,
        reply: bool,
        packet: &PacketInfo,
        before: u32,
        now_ms: u64,
    ) -> Option<u32> {
        let direction = if reply { RPL } else { 0 };
        if packet.is_error {
            return Some(before | REL | direction);
        }
        if before & TRK != 0 && before & (SNAT | DNAT) == 0 {
            return Some(before);
        }
        let (checks, policy) = (self.checks_sequence, self.conns[at].policy);
        let conn = &mut self.conns[at];
        let mut still_new = false;
        let timeout = match (packet.transport, &mut conn.phase) {
            (Transport::Tcp(s), Phase::Tcp(peers)) => {
                let (from, to) = if reply { (1, 0) } else { (0, 1) };
                let result;
                (result, peers[from], peers[to]) = oracle(&s, peers[from], peers[to], checks);
                match result {
                    Update::Valid(timeout) => timeout,
                    Update::StillNew(timeout) => {
                        still_new = true;
                        Some(timeout)
                    }
                    Update::Invalid | Update::OutOfWindow => return Some(INV),
                    Update::Anew => return None,
                }
            }
            (Transport::Icmp { .. }, Phase::Icmp(replied)) => {
                *replied |= reply;
                still_new = !*replied;
                Some(if *replied { TimeoutAttr::IcmpReply } else { TimeoutAttr::IcmpFirst })
            }
            (Transport::Other, Phase::Other(several, replied)) => {
                *several |= !reply;
                *replied |= reply;
                still_new = !*replied;
                Some(if *replied { TimeoutAttr::UdpMultiple } else { TimeoutAttr::UdpSingle })
            }
            other => panic!("a protocol is part of a key: {other:?}"),
        };
        if let Some(timeout) = timeout {
            self.conns[at].expires_ms = now_ms + self.seconds(policy, timeout) * 1000;
        }
        Some(if still_new { before | NEW } else { before & !NEW | EST | direction })
    }

    fn finish(
        &mut self,
        at: usize,
        reply: bool,
        packet: &PacketInfo,
        request: &Request,
        state: u32,
    ) -> (Metadata, Option<Translation>) {
        let c = &mut self.conns[at];
        if let Some(m) = request.mark {
            c.mark = c.mark & !m.mask | m.value;
        }
        if let Some(m) = request.labels {
            c.labels = c.labels & !m.mask | m.value;
        }
        let mut state = state | TRK;
        let translation = translate(c, reply, packet, request, &mut state);
        let md = Metadata { state, zone: request.zone, mark: c.mark, labels: c.labels, orig: Some(c.orig) };
        (md, translation)
    }

    /// Reason why a zone or a port may not have another connection.
    fn refusal(&self, zone: u16, port: u32) -> Option<CtRefusal> {
        let of_zone = self.conns.iter().filter(|c| c.orig.rest().zone == zone).count() as u32;
        if self.zone_limits.get(&zone).is_some_and(|limit| of_zone >= *limit) {
            return Some(CtRefusal::ZoneLimit);
        }
        let (all, max) = (self.conns.len() as u32, self.max);
        let of_port = |port| self.conns.iter().filter(|c| c.port == port).count() as u32;
        let kept = max * 25 / 100;
        let share = kept / self.sharing;
        let taken: u32 = (0..10).map(|port| of_port(port).min(share)).sum();
        if all >= max {
            return Some(CtRefusal::Full);
        }
        let fits = all < max - kept
            || of_port(port) < share
            || all + (share * self.sharing).saturating_sub(taken) < max;
        (!fits).then_some(CtRefusal::PortShare)
    }

    fn refuse(&mut self, zone: u16, why: CtRefusal) -> bool {
        *self.refused.entry((zone, why)).or_default() += 1;
        false
    }

    /// Creates a connection, at the end of the list. `Ok(false)`: refused. `Err`: there is one.
    fn create(
        &mut self,
        packet: &PacketInfo,
        request: &Request,
        port: u32,
        now_ms: u64,
        chosen: Option<Key>,
    ) -> Result<bool, (usize, bool)> {
        let orig = packet.key;
        if let Some(why) = self.refusal(request.zone, port) {
            return Ok(self.refuse(request.zone, why));
        }
        let mut reply = orig.reversed();
        let mut nat = None;
        if let CtNat::New(range) = request.nat {
            let Some(legal) = legal_replies(&orig, &range) else {
                return Ok(self.refuse(request.zone, CtRefusal::NatExhausted));
            };
            let free = |reply: &Key| self.live(reply, now_ms).is_none();
            if !legal.iter().any(free) {
                return Ok(self.refuse(request.zone, CtRefusal::NatExhausted));
            }
            if let Some(found) = self.live(&orig, now_ms) {
                return Err(found);
            }
            reply = chosen.expect("a tuple is free, and none was chosen");
            assert!(legal.contains(&reply) && free(&reply), "{reply:?} for {orig:?} of {range:?}");
            self.conns.retain(|c| !c.has(&reply));
            nat = Some(range.is_dst);
        } else if let Some(found) = self.live(&orig, now_ms) {
            return Err(found);
        }
        self.conns.retain(|c| !c.has(&orig));
        let (phase, timeout) = match packet.transport {
            Transport::Tcp(s) => (Phase::Tcp(oracle_new(&s)), TimeoutAttr::TcpSynSent),
            Transport::Icmp { .. } => (Phase::Icmp(false), TimeoutAttr::IcmpFirst),
            Transport::Other => (Phase::Other(false, false), TimeoutAttr::UdpFirst),
        };
        self.conns.push(Conn {
            orig,
            reply,
            mark: request.mark.map_or(0, |m| m.value),
            labels: request.labels.map_or(0, |m| m.value),
            expires_ms: now_ms + self.seconds(request.policy, timeout) * 1000,
            phase,
            nat,
            port,
            policy: request.policy,
        });
        Ok(true)
    }
}

fn with_id(key: Key, id: u16) -> Key {
    let mut tuple = key.tuple();
    if let dpif::CtTransport::Icmp { id: of_tuple, .. } = &mut tuple.transport {
        *of_tuple = id;
    }
    Key::of(&tuple, key.rest().zone).unwrap_or(key)
}

fn translate(
    c: &Conn,
    reply: bool,
    packet: &PacketInfo,
    request: &Request,
    state: &mut u32,
) -> Option<Translation> {
    let is_dst = c.nat.filter(|_| request.nat != CtNat::No && *state & (SNAT | DNAT) == 0)?;
    // A reply is translated back: the other address.
    let dst = is_dst != reply;
    *state |= if dst { DNAT } else { SNAT };
    let (sent, cited) = if reply { (c.orig.reversed(), c.orig) } else { (c.reply.reversed(), c.reply) };
    if !packet.is_error {
        return Some(Translation::Tuple(sent));
    }
    let [src_addr, dst_addr] = sent.addresses();
    Some(Translation::Error { src: (!dst).then_some(src_addr), dst: dst.then_some(dst_addr), inner: cited })
}

/// Whether both sides of TCP are as a list shows them.
pub(crate) fn states(phase: &Phase) -> Option<[TcpState; 2]> {
    match phase {
        Phase::Tcp(peers) => Some(peers.map(|p| p.state)),
        Phase::Icmp(_) | Phase::Other(..) => None,
    }
}

/// A key with other zone.
pub(crate) fn in_zone(key: &Key, zone: u16) -> Key {
    let rest = |word: u64| Rest { zone, ..Rest::unpack(word) }.pack();
    match *key {
        Key::V4([a, b]) => Key::V4([a, rest(b)]),
        Key::V6([a, b, c, d, e]) => Key::V6([a, b, c, d, rest(e)]),
    }
}
