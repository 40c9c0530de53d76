//! A fuzz target: any frames through any `ct` actions.

use crate::carry::{Export, import};
use crate::{Announcement, Cursor, Helper, Key, PacketInfo, Request, Tracker, Translation, cited_transport};
use dpif::{CtCarry, CtNat, Masked, NatAddresses, NatRange};
use flow::extract::{Metadata, extract};
use flow::{FlowKey, ct_state, shape};
use packet::Packet;
use std::ops::ControlFlow;

mod helpers;

pub use helpers::{fragments, ftp};

/// Maximum connections of the tracker.
const MAX: u32 = 16;

/// Reads six bytes of a request and the frame that follows them.
fn next<'a>(bytes: &mut &'a [u8]) -> Option<(&'a [u8; 6], &'a [u8])> {
    let (head, rest) = bytes.split_first_chunk::<6>()?;
    let end = usize::from(head[5]).min(rest.len());
    *bytes = &rest[end..];
    Some((head, &rest[..end]))
}

/// A request of two bytes: what to do, and the range of a translation.
fn request(what: u8, range: u8, zone: u8) -> Request {
    let bit = |n: u8| what >> n & 1 != 0;
    let last = range >> 4;
    let addresses = match range & 3 {
        0 => None,
        1 | 2 => Some(NatAddresses::V4([10, 0, 0, 9].into(), [10, 0, 0, 9 + last].into())),
        _ => Some(NatAddresses::V6(9.into(), u128::from(9 + last).into())),
    };
    let ports = (range & 4 != 0).then_some((7, 7 + u16::from(last)));
    let (is_dst, random) = (range & 8 != 0, range & 16 != 0);
    let new = NatRange { is_dst, addresses, ports, persistent: bit(7), hash: false, random };
    Request {
        zone: u16::from(zone & 3),
        commit: bit(0),
        force: bit(0) && bit(1),
        mark: bit(2).then_some(Masked { value: u32::from(range), mask: 0xff }),
        labels: bit(3).then_some(Masked { value: u128::from(range & 3) << 64, mask: 3 << 64 }),
        helper: bit(4).then_some(Helper::Ftp),
        nat: match (bit(5), bit(0) && bit(6)) {
            (_, true) => CtNat::New(new),
            (true, false) => CtNat::Known,
            (false, false) => CtNat::No,
        },
        policy: u16::from(range & 1),
    }
}

/// Each frame follows six bytes: two of the request, zone and port, hundreds of milliseconds since the last one, whether
/// the metadata of the last packet are kept, and the frame's length. The result is one of the documented states, limits
/// hold, and all connections end in the end.
pub fn track(bytes: &[u8]) {
    run(bytes);
}

/// As [`track`]; returns the number of connections created.
pub(crate) fn run(mut bytes: &[u8]) -> u64 {
    let tracker = Tracker::new(1);
    tracker.set_max_connections(MAX);
    let (mut now_ms, mut kept) = (1_000_000, FlowKey::default());
    while let Some((head, frame)) = next(&mut bytes) {
        let [what, range, place, wait, again, _] = *head;
        now_ms += u64::from(wait) * 100;
        let request = request(what, range, place);
        let mut packet = Packet::from_slice(frame);
        let mut key = FlowKey::default();
        let layout = extract(frame, &Metadata::default(), 1, &mut key);
        if again & 1 != 0 {
            (key.base.ct_state, key.base.ct_zone) = (kept.base.ct_state, kept.base.ct_zone);
            key.base.shape |= kept.base.shape & shape::CT;
            key.ct = kept.ct;
        }
        let info = PacketInfo::read(&packet, &key, layout, request.zone);
        if let Some(info) = &info {
            assert!(info.is_error || Key::of(&info.key.tuple(), request.zone) == Some(info.key), "{info:?}");
            assert_eq!(info.key.reversed().reversed(), info.key);
            let _ = cited_transport(&info.key, frame);
        }
        let port = u32::from(place >> 2);
        let control = info.as_ref().and_then(|info| Some((info, info.control(request.helper)?)));
        let to = match &info {
            _ if let Some((info, helper)) = control => {
                let (l3, l4, is_v6) = (layout.l3.into(), layout.l4.into(), matches!(info.key, Key::V6(_)));
                let announcement = Announcement::read(&packet, l3, l4, is_v6, helper);
                let (to, edit) = tracker.track_control(info, &announcement, &request, &mut key, port, now_ms);
                assert!(to.is_some() || edit.is_none());
                if let Some(edit) = edit {
                    tracker.edit(&mut packet, l3, l4, &edit, again & 4 != 0);
                    assert!(again & 4 != 0 || packet.len() == frame.len());
                }
                to
            }
            Some(info) => {
                let lookup = tracker.look_ahead(&info.key);
                let mut to = None;
                tracker.track_looked_up(info, lookup, &request, &mut key, port, now_ms, &mut to);
                to
            }
            None => tracker.track(None, &request, &mut key, port, now_ms),
        };
        check(&key, &request, info.as_ref(), to, again & 1 == 0);
        assert!(tracker.connections() <= MAX);
        if again & 2 != 0 {
            tracker.expire(Cursor::default(), 8, now_ms);
        }
        kept = key;
    }
    let mut listed = 0;
    tracker.list(now_ms, |c| {
        assert!(Key::of(&c.orig, c.zone).is_some() && Key::of(&c.reply, c.zone).is_some(), "{c:?}");
        listed += 1;
        ControlFlow::Continue(())
    });
    assert!(listed <= tracker.connections());
    tracker.flush(0, |_| true);
    let counts = tracker.counts();
    assert_eq!((tracker.connections(), counts.connections, counts.created), (0, 0, counts.ended));
    // Nothing is expected for connections that have ended.
    assert_eq!(tracker.expectations(now_ms).count(), 0);
    counts.created
}

/// Any bytes as connections of another process. A tracker that takes them is consistent; its connections go over once more.
pub fn carried(bytes: &[u8]) {
    const NOW_MS: u64 = 1_000_000;
    let (tracker, next) = (Tracker::new(1), Tracker::new(2));
    let _ = import(&tracker, bytes, NOW_MS);
    let _ = import(&tracker, bytes, NOW_MS + 100);
    let list = |tracker: &Tracker| {
        let mut all = Vec::new();
        tracker.list(NOW_MS, |c| {
            all.push(format!("{c:?}"));
            ControlFlow::Continue(())
        });
        all.extend(tracker.expectations(NOW_MS).map(|e| format!("{e:?}")));
        all.sort();
        all
    };
    let mut export = Export::new(CtCarry::Over);
    while let Some(slice) = export.next(&tracker, 1000, NOW_MS) {
        let done = import(&next, &slice, NOW_MS);
        assert_eq!((done.refused, done.replaced, &done.why), (0, 0, &None));
    }
    assert_eq!(list(&next), list(&tracker));
    tracker.flush(0, |_| true);
    assert_eq!(tracker.connections(), 0);
}

fn check(key: &FlowKey, request: &Request, info: Option<&PacketInfo>, to: Option<Translation>, fresh: bool) {
    let (state, has) = (key.base.ct_state, |bits: u32| key.base.ct_state & bits != 0);
    assert!(has(ct_state::TRK) && key.base.ct_zone == request.zone, "{state:#x}");
    assert!(info.is_some() || state == ct_state::INV | ct_state::TRK, "{state:#x}");
    // A translated packet keeps bits of its former pass, as in Open vSwitch.
    let both = has(ct_state::NEW) && has(ct_state::EST);
    assert!(!(fresh && both), "{state:#x}");
    if let Some(to) = to {
        assert!(request.nat != CtNat::No && has(ct_state::SNAT | ct_state::DNAT), "{state:#x}");
        let (Translation::Tuple(tuple) | Translation::Error { inner: tuple, .. }) = to;
        let own = info.map(|info| info.key.rest().proto);
        assert_eq!((Some(tuple.rest().proto), tuple.rest().zone), (own, request.zone));
    }
}
