//! Control packets: those of a connection with a helper that may announce further connections.
//!
//! [`Tracker::track_control`] tracks such a packet and notes what it announces; then the caller translates its addresses,
//! and [`Tracker::edit`] rewrites the announced address and shifts TCP's numbers. A related connection announces nothing,
//! so file contents are never read as messages.

use crate::alg::ftp::{self, Address, ControlPayload, DataPort, Mode};
use crate::alg::{Announcement, Helper, Number, Segment, Skew, adjust};
use crate::expect::{EXPECTED_MS, Expected};
use crate::key::{Key, Rest};
use crate::packet_info::{PacketInfo, Transport};
use crate::record::{Direction, Locked};
use crate::request::{Request, Translation};
use crate::tracker::{Family, Observe, Seen, Tracker};
use crate::{key::Words, state::State};
use flow::{FlowKey, ct_state};
use packet::Packet;
use std::net::IpAddr;
use sync::Ordering;

/// A change of a control packet's message and numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Edit {
    number: u32,
    orig: Key,
    reply: bool,
    seq: u32,
    ack: u32,
    rewrite: Option<(Address, IpAddr)>,
}

/// The connection of a control packet.
#[derive(Clone, Copy)]
pub(crate) struct Parent {
    number: u32,
    is_reply: bool,
    orig: Key,
    reply: Key,
    state: State,
    labels: u128,
}

impl Observe for Option<Parent> {
    fn see<const W: usize>(&mut self, seen: &Seen<W>)
    where
        [u64; W]: Words,
    {
        *self = Some(Parent {
            number: seen.place.number,
            is_reply: seen.place.direction.is_reply(),
            orig: seen.orig.key(),
            reply: seen.reply.key(),
            state: seen.state,
            labels: seen.labels,
        });
    }
}

impl Parent {
    /// Addresses that the announcing side may name, and the one that the other side must see.
    fn addresses(&self, mode: Mode) -> ([IpAddr; 2], IpAddr) {
        let ([client, server], [translated_server, translated]) =
            (self.orig.addresses(), self.reply.addresses());
        match mode {
            Mode::Active => ([client, translated], translated),
            Mode::Passive => ([translated_server, server], server),
        }
    }

    /// The connection to a port that the sender of a packet announces. It begins at the other side, and is translated as
    /// this one.
    fn expects(&self, port: u16, now_ms: u64) -> (Key, Expected) {
        let ([client, server], [translated_server, translated]) =
            (self.orig.addresses(), self.reply.addresses());
        let (tuple, address, is_src) = match (self.is_reply, self.state.dnat) {
            (true, true) => (self.orig, translated_server, false),
            (true, false) => (self.orig, translated, true),
            (false, true) => (self.reply, server, true),
            (false, false) => (self.reply, client, false),
        };
        let (mark, labels) = (self.state.mark, self.labels);
        let expires_ms = now_ms + EXPECTED_MS;
        let expected = Expected { parent: self.orig, mark, labels, address, is_src, expires_ms };
        (tuple.with_rest(Rest { src: 0, dst: port, ..tuple.rest() }), expected)
    }
}

impl Tracker {
    /// The helper for which it is a control packet: by its `ct` action or its ports, or as in Open vSwitch 3.5 that of its
    /// connection, which another action may have named.
    pub fn helper_of(&self, packet: &PacketInfo, named: Option<Helper>, now_ms: u64) -> Option<Helper> {
        let helper = packet.control(named);
        if helper.is_some() || packet.is_error || !self.has_helpers_elsewhere.load(Ordering::Relaxed) {
            return helper;
        }
        match &packet.key {
            Key::V4(words) => self.helper_of_words(words, now_ms),
            Key::V6(words) => self.helper_of_words(words, now_ms),
        }
    }

    fn helper_of_words<const W: usize>(&self, words: &[u64; W], now_ms: u64) -> Option<Helper>
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        let place = self.find(words, now_ms)?;
        State::unpack(Family::<W>::slab(self).record(place.number).state()).helper
    }

    /// As [`Tracker::track`], for a control packet ([`Tracker::helper_of`]) with that announcement. Returns also how to
    /// edit it once it is translated.
    pub fn track_control(
        &self,
        packet: &PacketInfo,
        announcement: &Announcement,
        request: &Request,
        key: &mut FlowKey,
        port: u32,
        now_ms: u64,
    ) -> (Option<Translation>, Option<Edit>) {
        let mut parent = None;
        let translation = match packet.key {
            Key::V4(words) => self.track_words(packet, words, request, key, port, now_ms, &mut parent),
            Key::V6(words) => self.track_words(packet, words, request, key, port, now_ms, &mut parent),
        };
        let parent = parent.filter(|p| p.state.helper.is_some() && !p.state.related);
        let Some(parent) = parent else { return (translation, None) };
        let is_valid = key.base.ct_state & ct_state::INV == 0;
        let mut rewrite = None;
        match announcement {
            _ if !is_valid => {}
            Announcement::None | Announcement::Ftp(ControlPayload::Other) => {}
            Announcement::Tftp => self.expect(parent.expects(parent.orig.rest().src, now_ms), now_ms),
            Announcement::Ftp(ControlPayload::Data(data)) if data.is_of(parent.addresses(data.mode).0) => {
                self.expect(parent.expects(data.port, now_ms), now_ms);
                let DataPort { mode, address, .. } = data;
                rewrite = address.clone().map(|address| (address, parent.addresses(*mode).1));
            }
            Announcement::Ftp(ControlPayload::Data(_) | ControlPayload::Invalid) => {
                self.stats.invalid.add();
                key.base.ct_state |= ct_state::INV;
                return (translation, None);
            }
        }
        // Without a translation of this packet, also because it has been translated before, nothing changes.
        let edit = match (packet.transport, &translation) {
            (Transport::Tcp(segment), Some(_)) => Some(Edit {
                number: parent.number,
                orig: parent.orig,
                reply: parent.is_reply,
                seq: segment.seq,
                ack: segment.ack,
                rewrite,
            }),
            _ => None,
        };
        (translation, edit)
    }

    fn expect(&self, (key, expected): (Key, Expected), now_ms: u64) {
        if self.expectations.add(key, expected, now_ms).is_err() {
            self.stats.expectations_full.add();
        }
    }

    /// Edits a translated control packet with its IP header at `l3` and its TCP header at `l4`. `may_grow`: its length may
    /// change.
    pub fn edit(&self, packet: &mut Packet, l3: usize, l4: usize, edit: &Edit, may_grow: bool) {
        match edit.orig {
            Key::V4(words) => self.edit_of(packet, l3, l4, edit, may_grow, words),
            Key::V6(words) => self.edit_of(packet, l3, l4, edit, may_grow, words),
        }
    }

    fn edit_of<const W: usize>(
        &self,
        packet: &mut Packet,
        l3: usize,
        l4: usize,
        edit: &Edit,
        may_grow: bool,
        orig: [u64; W],
    ) where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        let locked = Family::<W>::slab(self).record(edit.number).lock();
        let Some(locked) = locked.filter(|locked| locked.record().key(Direction::Orig) == orig) else {
            return;
        };
        let mut skew = Skew::unpack(locked.record().body().skew);
        let (number, by) = match skew.shifts(edit.reply) {
            true => (Number::Sequence, skew.forth(edit.seq)),
            false => (Number::Acknowledgement, skew.back(edit.ack)),
        };
        if let Some((address, new)) = edit.rewrite.as_ref().filter(|(old, new)| old.ip != *new) {
            let segment = Segment::new(packet, l3, l4, <[u64; W]>::IS_V6);
            let has_room = skew.has_room(edit.reply) && (may_grow || address.keeps_length(*new));
            let segment = segment.filter(|_| has_room);
            match segment.and_then(|segment| ftp::rewrite(packet, &segment, address, *new)) {
                Some(growth) => skew.add(edit.seq, growth, edit.reply),
                None => self.stats.not_rewritten.add(),
            }
        }
        if by != 0 {
            adjust(packet, l4, number, by);
        }
        set_skew(&locked, skew);
    }
}

fn set_skew<const W: usize>(locked: &Locked<'_, W>, skew: Skew)
where
    [u64; W]: Words,
{
    if locked.record().body().skew != skew.pack() {
        locked.set_skew(skew.pack());
    }
}
