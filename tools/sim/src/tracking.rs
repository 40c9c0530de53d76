//! Connections of the plain cores: a tracker of their own, which sees each packet alone, without lookups ahead; and the
//! checks of both trackers.

use crate::model::{Round, rekeyed, rewrite};
use crate::reassembly::{Reassembly, Taken, carry_back};
use crate::report::{Invariant, Violations};
use conntrack::{Cursor, Key, PacketInfo, Request, Tracker, Translation};
use datapath::DpShared;
use dpif::{Connection, CtAction, Ipv4Set, Ipv6Set, Masked, PortsSet, SetAction};
use flow::extract::Layout;
use flow::{DpPort, FlowKey, ct_state, shape};
use packet::Packet;
use packet::headers as h;
use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Longest timeout of a connection, in milliseconds.
pub(crate) const LONGEST_MS: u64 = 86_400_000;

/// Expected connections of one parent at most.
const EXPECTED_MAX: usize = 16;

/// Tracked packets, by their outcome.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Outcomes {
    pub(crate) established: u64,
    pub(crate) replies: u64,
    pub(crate) translated: u64,
    pub(crate) translated_back: u64,
    /// Expected and related connections at all checks.
    pub(crate) expected: u64,
    pub(crate) related: u64,
}

/// The tuple of each translated packet before it, by that after it.
#[derive(Default)]
pub(crate) struct Translations(HashMap<Key, Key>);

impl Translations {
    /// Notes a translation. `None`: it is not the inverse of that of the other direction; else whether that was seen.
    pub(crate) fn note(&mut self, is_new: bool, from: Key, to: Key) -> Option<bool> {
        self.0.insert(to, from);
        if is_new {
            // The other direction was of an earlier connection.
            self.0.remove(&from.reversed());
            return Some(false);
        }
        match self.0.get(&from.reversed()) {
            Some(other) => (*other == to.reversed()).then_some(true),
            None => Some(false),
        }
    }
}

/// See the module.
pub(crate) struct PlainTracking {
    seed: u64,
    /// Made when first used: it takes some megabytes.
    tracker: OnceCell<Tracker>,
    /// The real tracker saw other packets, or in another order.
    pub(crate) differs: bool,
    pub(crate) outcomes: Outcomes,
    translations: Translations,
    /// Fragments that wait for others.
    pub(crate) reassembly: Reassembly,
    /// The state of the real cores, to learn a choice from.
    pub(crate) shared: Option<Arc<DpShared>>,
    /// Found faults.
    faults: Vec<String>,
}

impl PlainTracking {
    pub(crate) fn new(seed: u64) -> PlainTracking {
        PlainTracking {
            seed,
            tracker: OnceCell::new(),
            differs: false,
            outcomes: Outcomes::default(),
            translations: Translations::default(),
            reassembly: Reassembly::default(),
            shared: None,
            faults: Vec::new(),
        }
    }

    /// Its tracker.
    pub(crate) fn tracker(&self) -> &Tracker {
        self.tracker.get_or_init(|| Tracker::new(self.seed))
    }

    /// Executes `ct`. `None`: the packet does not fit, and is dropped.
    pub(crate) fn execute(
        &mut self,
        frame: &mut [u8],
        key: &mut FlowKey,
        ct: &CtAction,
        port: DpPort,
        now_us: u64,
    ) -> Option<()> {
        let (parsed, layout) = rekeyed(frame, key);
        *key = parsed;
        self.track(frame, key, layout, ct, port, now_us)
    }

    /// Executes `ct` on a fragment. Returns those that go on, in order; none while it waits for others.
    pub(crate) fn take_fragment(
        &mut self,
        fragment: Round,
        layout: Layout,
        ct: &CtAction,
        now_us: u64,
    ) -> Vec<Round> {
        let shared = self.shared.clone();
        let real = || shared.as_ref().map(|shared| shared.fragment_lists()).unwrap_or_default();
        let l3 = usize::from(layout.l3);
        match self.reassembly.take(fragment, l3, ct.zone, now_us / 1000, &real) {
            Taken::Held => Vec::new(),
            Taken::Alone(mut fragment, is_whole) => {
                let mut key = fragment.key;
                if is_whole {
                    key.base.nw_frag = 0;
                }
                // It goes on, whether a translation fits or not.
                self.track(&mut fragment.frame, &mut key, layout, ct, fragment.rx_port, now_us);
                let mut fragments = vec![*fragment];
                give_tracking(&key, &mut fragments);
                fragments
            }
            Taken::Whole(mut whole, mut fragments) => {
                let (mut key, port) = (fragments[0].key, fragments[0].rx_port);
                let l3 = usize::from(rekeyed(&fragments[0].frame, &key).1.l3);
                if self.execute(&mut whole, &mut key, ct, port, now_us).is_none() {
                    key.base.ct_state = ct_state::INV | ct_state::TRK;
                }
                if carry_back(&whole, l3, &mut fragments).is_none() {
                    self.faults.push("a datagram has no way back into its fragments".to_string());
                }
                give_tracking(&key, &mut fragments);
                fragments
            }
        }
    }

    fn track(
        &mut self,
        frame: &mut [u8],
        key: &mut FlowKey,
        layout: Layout,
        ct: &CtAction,
        port: DpPort,
        now_us: u64,
    ) -> Option<()> {
        let request = Request::of(ct);
        let info = PacketInfo::read(&Packet::from_slice(frame), key, layout, ct.zone);
        // Helpers and errors rewrite payloads, which this does not.
        self.differs |= info.as_ref().is_some_and(|i| i.control(request.helper).is_some() || i.is_error);
        // A packet that was invalid in this zone keeps that, as in Open vSwitch, even if it has become one of a connection.
        let was_invalid = if key.base.ct_zone == ct.zone { key.base.ct_state & ct_state::INV } else { 0 };
        let translation = self.tracker().track(info.as_ref(), &request, key, port.0, now_us / 1000);
        let state = key.base.ct_state;
        let others = ct_state::NEW | ct_state::EST | ct_state::REL;
        self.check_state(if state & others == 0 { state } else { state & !was_invalid });
        match (info, translation) {
            (Some(info), Some(Translation::Tuple(to))) if info.key != to => {
                let seen = self.translations.note(state & ct_state::NEW != 0, info.key, to);
                self.outcomes.translated += 1;
                self.outcomes.translated_back += u64::from(seen == Some(true));
                if seen.is_none() {
                    self.faults.push(format!("{:?} becomes {to:?}, which is not the inverse", info.key));
                }
                translate(frame, &to)
            }
            _ => Some(()),
        }
    }

    /// Checks the states of one packet against each other.
    fn check_state(&mut self, state: u32) {
        let has = |bits| state & bits != 0;
        let (new, est) = (has(ct_state::NEW), has(ct_state::EST));
        let states = u32::from(new) + u32::from(est) + u32::from(has(ct_state::INV));
        // Errors are related to a connection, and of no other state.
        let is_one = states == 1 || states == 0 && has(ct_state::REL);
        if !has(ct_state::TRK) || !is_one || new && has(ct_state::RPL) {
            self.faults.push(format!("a packet has the states {state:#x}"));
        }
        self.outcomes.established += u64::from(est);
        self.outcomes.replies += u64::from(has(ct_state::RPL));
    }

    /// Ends expired connections of both trackers.
    pub(crate) fn expire(&self, real: &Tracker, now_ms: u64) {
        for tracker in [self.tracker(), real] {
            let mut at = Some(Cursor::default());
            while let Some(cursor) = at {
                at = tracker.expire(cursor, 64, now_ms);
            }
        }
    }

    /// Compares the trackers, and checks the connections of the real one.
    pub(crate) fn check(&mut self, real: &Tracker, now_ms: u64, violations: &mut Violations) {
        for fault in self.faults.drain(..) {
            violations.add(Invariant::Tracking, || fault);
        }
        let (plain, list) = (listed(self.tracker(), now_ms), listed(real, now_ms));
        let mut differ = |what: &str, a: &dyn std::fmt::Debug, b: &dyn std::fmt::Debug| {
            violations.add(Invariant::Tracking, || format!("{what} differ: {a:?} and {b:?}"));
        };
        if plain != list && !self.differs {
            let only = |a: &BTreeMap<_, _>, b: &BTreeMap<_, _>| -> Vec<String> {
                a.iter().filter(|(k, v)| b.get(*k) != Some(*v)).map(|(k, v)| format!("{k:?} {v}")).collect()
            };
            differ("expected and tracked connections", &only(&plain, &list), &only(&list, &plain));
        }
        let (counts, present) = (real.counts(), u64::from(real.connections()));
        let all = |tracker: &Tracker| (tracker.counts(), tracker.stats());
        if all(real) != all(self.tracker()) && !self.differs {
            differ("counters", &all(self.tracker()), &all(real));
        }
        if counts.created - counts.ended != present {
            differ("created less ended and present", &counts, &present);
        }
        if real.connections() > real.max_connections() {
            differ("connections and their limit", &present, &real.max_connections());
        }
        self.check_helpers(real, now_ms, violations);
        // The reply of an untranslated connection is not reserved, as in Open vSwitch.
        let mut tuples = HashSet::new();
        for (orig, reply) in list.keys() {
            let is_translated = orig != reply && *reply != orig.reversed();
            if !tuples.insert(orig) || is_translated && !tuples.insert(reply) {
                violations
                    .add(Invariant::Tracking, || format!("a tuple of {orig:?}, {reply:?} is another's"));
            }
        }
    }

    /// Checks that an expected connection has a parent, and not too many brothers.
    fn check_helpers(&mut self, real: &Tracker, now_ms: u64, violations: &mut Violations) {
        let mut parents = HashSet::new();
        real.list(now_ms, |c: &Connection| {
            parents.extend(Key::of(&c.orig, c.zone));
            self.outcomes.related += u64::from(c.parent.is_some());
            ControlFlow::Continue(())
        });
        let mut brothers: HashMap<Key, usize> = HashMap::new();
        for expected in real.expectations(now_ms) {
            self.outcomes.expected += 1;
            let Some(parent) = Key::of(&expected.parent, expected.zone) else { continue };
            let count = brothers.entry(parent).or_default();
            *count += 1;
            if *count > EXPECTED_MAX || !parents.contains(&parent) {
                violations.add(Invariant::Tracking, || {
                    format!(
                        "expectation {count} of {parent:?}, which has ended or has too many: {expected:?}"
                    )
                });
            }
        }
    }

    /// Checks that no connection outlasts its timeout.
    pub(crate) fn check_end(&mut self, real: &Tracker, now_ms: u64, violations: &mut Violations) {
        self.expire(real, now_ms);
        self.check(real, now_ms, violations);
        if real.connections() != 0 {
            violations
                .add(Invariant::Tracking, || format!("{} connections are left over", real.connections()));
        }
    }
}

/// Gives fragments the tracking fields of a key, and the others of their frames.
fn give_tracking(from: &FlowKey, fragments: &mut [Round]) {
    for fragment in fragments {
        let key = &mut fragment.key;
        key.clear_tracking();
        let (b, to) = (&from.base, &mut key.base);
        (to.ct_state, to.ct_zone, to.ct_mark) = (b.ct_state, b.ct_zone, b.ct_mark);
        if from.has(shape::CT) {
            key.ct = from.ct;
            key.base.shape |= shape::CT;
        }
        fragment.key = rekeyed(&fragment.frame, &fragment.key).0;
    }
}

/// Connections by their tuples, with their other properties as text.
fn listed(tracker: &Tracker, now_ms: u64) -> BTreeMap<(Key, Key), String> {
    let mut all = BTreeMap::new();
    tracker.list(now_ms, |c: &Connection| {
        if let (Some(orig), Some(reply)) = (Key::of(&c.orig, c.zone), Key::of(&c.reply, c.zone)) {
            let rest = format!("{} {:x} {} {} {:?}", c.mark, c.labels, c.status, c.timeout_s, c.protocol);
            all.insert((orig, reply), rest);
        }
        ControlFlow::Continue(())
    });
    all
}

/// Gives a frame the addresses and ports of a tuple.
fn translate(frame: &mut [u8], to: &Key) -> Option<()> {
    let rest = to.rest();
    match to.addresses() {
        [IpAddr::V4(src), IpAddr::V4(dst)] => {
            let mut set = Masked { value: Ipv4Set::default(), mask: Ipv4Set::default() };
            (set.value.src, set.value.dst) = (src.into(), dst.into());
            (set.mask.src, set.mask.dst) = (u32::MAX, u32::MAX);
            rewrite(frame, &SetAction::Ipv4(set))?;
        }
        [IpAddr::V6(src), IpAddr::V6(dst)] => {
            let mut set = Masked { value: Ipv6Set::default(), mask: Ipv6Set::default() };
            (set.value.src, set.value.dst) = (src.octets(), dst.octets());
            (set.mask.src, set.mask.dst) = ([0xff; 16], [0xff; 16]);
            rewrite(frame, &SetAction::Ipv6(set))?;
        }
        _ => return None,
    }
    let value = PortsSet { src: rest.src, dst: rest.dst };
    let ports = Masked { value, mask: PortsSet { src: u16::MAX, dst: u16::MAX } };
    match rest.proto {
        h::IPPROTO_TCP => rewrite(frame, &SetAction::Tcp(ports)),
        h::IPPROTO_UDP => rewrite(frame, &SetAction::Udp(ports)),
        h::IPPROTO_SCTP => rewrite(frame, &SetAction::Sctp(ports)),
        _ => Some(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dpif::{CtAddresses, CtTransport, CtTuple};
    use std::net::Ipv4Addr;

    fn key(src: u8, dst: u8) -> Key {
        let addresses =
            CtAddresses::V4 { src: Ipv4Addr::new(10, 0, 0, src), dst: Ipv4Addr::new(10, 0, 0, dst) };
        let tuple = CtTuple { addresses, transport: CtTransport::Ports { src: 1, dst: 2 }, proto: 17 };
        Key::of(&tuple, 1).unwrap()
    }

    #[test]
    fn a_translation_that_is_no_inverse_is_found() {
        let mut seen = Translations::default();
        let reply = key(3, 2).reversed();
        assert_eq!(seen.note(true, key(1, 2), key(3, 2)), Some(false));
        assert_eq!(seen.note(false, reply, key(1, 2).reversed()), Some(true));
        assert_eq!(seen.note(false, reply, key(4, 2).reversed()), None);
        // The next connection with that tuple is another one.
        assert_eq!(seen.note(true, key(5, 2), key(3, 2)), Some(false));
        assert_eq!(seen.note(false, reply, key(5, 2).reversed()), Some(true));
    }
}
