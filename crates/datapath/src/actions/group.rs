//! Executes a list of actions on a group of packets: those of a burst whose megaflows have the same actions, as a
//! mask of lanes.
//!
//! Each action runs over the whole group before the next one. Each lane keeps its truncation, metadata, dirty
//! headers and depth; a nested list works on copies in the same lanes, whose state is restored afterwards. A packet
//! that leaves a list clears its lane; its [`Fate`] is its destination. Copies that leave before their packet are
//! listed by lane ([`Copied`]), and the dispatch of the burst sends both in the order of packet-wise execution.
//! Meters admit packets in order of arrival, and sequence numbers of tunnels follow it: if one list has several such
//! actions, or several groups have some, their lanes run one by one.

use super::tunnel::PoppedPort;
use super::usual::{Pops, Pushes, Rewrites};
use super::{ActionMismatch, Executor, Fragment, apply, inner_place, set, truncate};
use crate::burst::{Arrays, HeaderCtx, LaneMask, Parsed, copy_key};
use crate::meter::Load;
use crate::park::Origin;
use crate::ports::PmdIo;
use conntrack::Request;
use dpif::actions::{self, ExecResult, Psample, Rewrite, TnlPush};
use dpif::{CtAction, DpAction, DropReason, SetAction, UserCookie, XlateDrop};
use flow::extract::Layout;
use flow::flow_hash::five_tuple;
use flow::{DpPort, FlowKey, RecircId};
use packet::headers::{IPPROTO_TCP, IPPROTO_UDP};
use packet::{BATCH_MAX_PACKETS, Packet, frame_bytes};
use std::convert::Infallible;

/// Destination of a packet after its actions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// To the slow path or behind a ticket: no megaflow matched.
    Miss,
    Output(DpPort),
    /// To the slow path, with that entry of [`Work::cookies`].
    Userspace(u32),
    /// Recirculation with this id.
    Recirc(u32),
    Drop(DropReason),
    /// Dropped by a translation.
    Wanted(XlateDrop),
    /// Copies went on.
    Consumed,
    /// It waits for the other fragments of its datagram; an empty packet stands in its lane.
    Held,
}

/// A copy that leaves before its packet.
pub(crate) struct Copied {
    packet: Packet,
    to: CopyTo,
    origin: Origin,
    /// The next copy of its lane.
    pub(crate) next: Option<u32>,
}

enum CopyTo {
    Output(DpPort),
    Userspace(UserCookie, Box<Saved>),
    Recirc(u32, Box<Saved>),
}

/// The headers of a packet, saved while its lane holds another.
struct Saved {
    key: FlowKey,
    layout: Layout,
    dirty: bool,
}

impl Saved {
    fn of(arrays: &Arrays, lane: usize, cut: bool) -> Saved {
        let mut key = FlowKey::default();
        copy_key(&arrays.keys[lane], &mut key);
        Saved { key, layout: arrays.layouts[lane], dirty: arrays.dirty[lane] || cut }
    }

    fn parsed(&self) -> Parsed<'_> {
        Parsed { key: &self.key, layout: self.layout, dirty: self.dirty }
    }
}

/// Results of the groups of a burst. Entry `i` of each array belongs to lane `i`.
pub(crate) struct Work {
    pub(crate) fates: [Fate; BATCH_MAX_PACKETS],
    /// `None` once it left.
    copies: Vec<Option<Copied>>,
    /// The first and last copy of each lane.
    copied: [Option<(u32, u32)>; BATCH_MAX_PACKETS],
    cookies: Vec<UserCookie>,
    /// Maximum bytes of the next output, for the lanes in `cuts`.
    truncate: [u32; BATCH_MAX_PACKETS],
    cuts: LaneMask,
    /// Packets of which copies continued.
    used: LaneMask,
    /// Fragments and segments before the packet of a lane, which continue with its list.
    released: Vec<(usize, Fragment)>,
}

impl Work {
    pub(crate) fn new() -> Work {
        Work {
            fates: [Fate::Miss; BATCH_MAX_PACKETS],
            copies: Vec::new(),
            copied: [None; BATCH_MAX_PACKETS],
            cookies: Vec::new(),
            truncate: [0; BATCH_MAX_PACKETS],
            cuts: LaneMask::NONE,
            used: LaneMask::NONE,
            released: Vec::new(),
        }
    }

    /// Clears the results of the last burst.
    pub(crate) fn reset(&mut self) {
        if !self.copies.is_empty() {
            self.copies.clear();
            self.copied = [None; BATCH_MAX_PACKETS];
        }
        self.cookies.clear();
        self.cuts = LaneMask::NONE;
        self.used = LaneMask::NONE;
    }

    pub(crate) fn all(&mut self, lanes: LaneMask, fate: Fate) {
        lanes.for_each(|lane| self.fates[lane] = fate);
    }

    /// Whether only packets leave, and no copies.
    pub(crate) fn has_no_copies(&self) -> bool {
        self.copies.is_empty()
    }

    /// The first copy of a lane; [`Copied::next`] links the others in order.
    #[inline]
    pub(crate) fn first_copy(&self, lane: usize) -> Option<u32> {
        self.copied[lane].map(|(first, _)| first)
    }

    pub(crate) fn take_copy(&mut self, n: u32) -> Option<Copied> {
        self.copies.get_mut(n as usize).and_then(Option::take)
    }

    pub(crate) fn cookie(&self, n: u32) -> UserCookie {
        self.cookies[n as usize]
    }

    fn add_copy(&mut self, lane: usize, copied: Copied) {
        let n = self.copies.len() as u32;
        self.copies.push(Some(copied));
        let Some((_, last)) = &mut self.copied[lane] else {
            self.copied[lane] = Some((n, n));
            return;
        };
        if let Some(before) = &mut self.copies[*last as usize] {
            before.next = Some(n);
        }
        *last = n;
    }

    /// Truncates the packet about to leave a lane, if requested before; returns whether it did.
    #[inline]
    fn cut(&mut self, lane: usize, packet: &mut Packet) -> bool {
        let cuts = self.cuts.has(lane);
        self.cuts = self.cuts.without(LaneMask::one(lane));
        cuts && truncate(packet, Some(self.truncate[lane]))
    }
}

/// Context of groups.
struct Group<'a> {
    exec: &'a mut Executor,
    arrays: &'a mut Arrays,
    work: &'a mut Work,
}

impl Executor {
    /// Executes the actions of a flow on the packets of `lanes`, and sets their fates.
    pub(crate) fn run_group(
        &mut self,
        arrays: &mut Arrays,
        work: &mut Work,
        lanes: LaneMask,
        actions: &[DpAction],
    ) {
        Group { exec: self, arrays, work }.run(lanes, actions, 0);
    }

    pub(crate) fn send_copied(&mut self, copied: Copied, io: &mut dyn PmdIo) {
        let Copied { packet, to, origin, .. } = copied;
        match to {
            CopyTo::Output(port) => self.ports.output(port, packet, origin.rx_port, io),
            CopyTo::Userspace(cookie, headers) => {
                self.userspace(packet, headers.parsed(), origin.rx_port, cookie, io);
            }
            CopyTo::Recirc(id, headers) => self.recirculate(packet, headers.parsed(), origin, id),
        }
    }
}

impl Group<'_> {
    fn run(&mut self, lanes: LaneMask, actions: &[DpAction], list: u64) {
        self.run_rest(lanes, actions, 0, list);
    }

    /// Executes a list from action `from` on.
    fn run_rest(&mut self, mut lanes: LaneMask, actions: &[DpAction], from: usize, list: u64) {
        let last = actions.iter().rposition(DpAction::has_effect);
        for (i, action) in actions.iter().enumerate().skip(from) {
            if lanes.is_empty() {
                return;
            }
            let mut step = Step { group: self, place: inner_place(list, i), is_last: Some(i) == last };
            let Ok(rest) = action.execute(&mut step, lanes);
            lanes = rest;
            if !self.work.released.is_empty() {
                self.run_released(actions, i + 1, list);
            }
        }
        self.end(lanes);
    }

    /// Decides on packets at the end of their list.
    fn end(&mut self, lanes: LaneMask) {
        for lane in lanes {
            let used = self.work.used.has(lane);
            self.work.fates[lane] = if used { Fate::Consumed } else { Fate::Wanted(XlateDrop::Ok) };
        }
    }

    /// The released packets continue with a list in the lane of the last one of their datagram or large segment, and
    /// leave before it.
    fn run_released(&mut self, actions: &[DpAction], from: usize, list: u64) {
        let (used, cuts) = (self.work.used, self.work.cuts);
        for (lane, fragment) in std::mem::take(&mut self.work.released) {
            let last = self.take(lane);
            self.put(lane, fragment);
            self.run_rest(LaneMask::one(lane), actions, from, list);
            // With the state of the fragment, which is still in the lane.
            let packet = self.take_packet(lane);
            self.send_copy(lane, packet, self.work.fates[lane], self.arrays.origins[lane], false);
            self.put(lane, last);
            (self.work.used, self.work.cuts) = (used, cuts);
        }
    }

    fn take_packet(&mut self, lane: usize) -> Packet {
        std::mem::replace(&mut self.arrays.packets[lane], Packet::with_capacity(0))
    }

    /// The packet of a lane with its state.
    fn take(&mut self, lane: usize) -> Fragment {
        let (packet, key) = (self.take_packet(lane), Box::new(self.arrays.keys[lane]));
        let Arrays { layouts, origins, dirty, .. } = &*self.arrays;
        Fragment { packet, key, layout: layouts[lane], origin: origins[lane], dirty: dirty[lane] }
    }

    /// Puts a packet with its state into a lane.
    fn put(&mut self, lane: usize, fragment: Fragment) {
        let Fragment { packet, key, layout, origin, dirty } = fragment;
        self.arrays.packets[lane] = packet;
        copy_key(&key, &mut self.arrays.keys[lane]);
        (self.arrays.layouts[lane], self.arrays.origins[lane]) = (layout, origin);
        self.arrays.dirty[lane] = dirty;
    }

    /// Tracks the fragments of `lanes`; returns those that continue.
    fn track_fragments(&mut self, lanes: LaneMask, request: &Request) -> LaneMask {
        let mut rest = LaneMask::NONE;
        for lane in lanes {
            let fragment = self.take(lane);
            let mut fragments = self.exec.take_fragment(fragment, request);
            let Some(last) = fragments.pop() else {
                self.work.fates[lane] = Fate::Held;
                continue;
            };
            self.put(lane, last);
            self.work.released.extend(fragments.into_iter().map(|fragment| (lane, fragment)));
            rest.add(LaneMask::one(lane));
        }
        rest
    }

    /// Pushes outer headers; returns the packets that fit.
    fn push_tunnel(&mut self, lanes: LaneMask, push: &TnlPush) -> LaneMask {
        for lane in lanes {
            let Group { arrays, work, .. } = &mut *self;
            arrays.dirty[lane] |= work.cut(lane, &mut arrays.packets[lane]);
        }
        let Group { exec, arrays, .. } = &mut *self;
        let (vlan_limit, egress_ports) = (exec.vlan_limit, exec.shared.egress_ports());
        let done = simd::run(exec.level, Pushes { arrays, lanes, vlan_limit, push, egress_ports });
        if done == lanes {
            return lanes;
        }
        let rest =
            self.push(lanes.without(done), DropReason::TunnelPush, |exec, packet, headers, earlier| {
                exec.push_tunnel(packet, headers, push, earlier)
            });
        LaneMask(done.0 | rest.0)
    }

    /// Pushes headers; returns the packets that fit. The segments before the last one of a packet are released.
    fn push(
        &mut self,
        lanes: LaneMask,
        reason: DropReason,
        push: impl Fn(
            &mut Executor,
            &mut Packet,
            &mut HeaderCtx<'_>,
            &mut Vec<Packet>,
        ) -> Result<(), ActionMismatch>,
    ) -> LaneMask {
        let mut misfits = LaneMask::NONE;
        let mut earlier = Vec::new();
        for lane in lanes {
            let Group { exec, arrays, work } = &mut *self;
            let (packet, mut headers) = arrays.packet_and_headers(lane, exec.vlan_limit);
            if push(exec, packet, &mut headers, &mut earlier).is_err() {
                misfits.add(LaneMask::one(lane));
                earlier.drain(..).for_each(|p| exec.ports.consume(p));
            }
            if earlier.is_empty() {
                continue;
            }
            for packet in earlier.drain(..) {
                let (key, layout) = (Box::new(arrays.keys[lane]), arrays.layouts[lane]);
                let fragment = Fragment { packet, key, layout, origin: arrays.origins[lane], dirty: true };
                work.released.push((lane, fragment));
            }
        }
        self.work.all(misfits, Fate::Drop(reason));
        lanes.without(misfits)
    }

    /// Pops outer headers of the packets, or of copies if another effect follows, and recirculates them.
    fn pop_tunnel(&mut self, lanes: LaneMask, port: DpPort, place: u64, is_last: bool) -> LaneMask {
        let tunnel = self.exec.tunnel(port);
        if !is_last {
            self.pop_copies(lanes, tunnel.as_ref(), place);
            self.work.used.add(lanes);
            return lanes;
        }
        let Group { exec, arrays, work } = &mut *self;
        let (vlan_limit, template) = (exec.vlan_limit, exec.template);
        let done = tunnel.as_ref().map_or(LaneMask::NONE, |port| {
            simd::run(exec.level, Pops { arrays, lanes, vlan_limit, port, template })
        });
        for lane in done {
            arrays.origins[lane] = arrays.origins[lane].recirculated(place);
            work.fates[lane] = Fate::Recirc(0);
        }
        let mut earlier = Vec::new();
        for lane in lanes.without(done) {
            let Group { exec, arrays, work } = &mut *self;
            let origin = arrays.origins[lane].recirculated(place);
            let (packet, mut headers) = arrays.packet_and_headers(lane, exec.vlan_limit);
            let fits = exec.pop_tunnel(packet, &mut headers, tunnel.as_ref(), &mut earlier).is_ok();
            work.fates[lane] = match fits {
                true => {
                    arrays.origins[lane] = origin;
                    Fate::Recirc(0)
                }
                false => Fate::Drop(DropReason::TunnelPop),
            };
            if !earlier.is_empty() {
                self.recirculate_earlier(lane, &mut earlier, fits);
            }
        }
        LaneMask::NONE
    }

    /// Recirculates the segments before the packet of a lane, with its headers.
    fn recirculate_earlier(&mut self, lane: usize, earlier: &mut Vec<Packet>, fits: bool) {
        for packet in earlier.drain(..) {
            let fate = if fits { Fate::Recirc(0) } else { Fate::Consumed };
            self.send_copy(lane, packet, fate, self.arrays.origins[lane], false);
        }
    }

    fn pop_copies(&mut self, lanes: LaneMask, tunnel: Option<&PoppedPort>, place: u64) {
        let mut earlier = Vec::new();
        for lane in lanes {
            let Group { exec, arrays, .. } = &mut *self;
            let origin = arrays.origins[lane];
            let kept = Saved::of(arrays, lane, false);
            let mut copy = exec.ports.copy(&arrays.packets[lane]);
            let mut headers = arrays.headers(lane, exec.vlan_limit);
            let fits = exec.pop_tunnel(&mut copy, &mut headers, tunnel, &mut earlier).is_ok();
            arrays.origins[lane] = origin.recirculated(place);
            self.recirculate_earlier(lane, &mut earlier, fits);
            let fate = if fits { Fate::Recirc(0) } else { Fate::Drop(DropReason::TunnelPop) };
            self.send_copy(lane, copy, fate, self.arrays.origins[lane], false);
            copy_key(&kept.key, &mut self.arrays.keys[lane]);
            (self.arrays.layouts[lane], self.arrays.dirty[lane]) = (kept.layout, kept.dirty);
            self.arrays.origins[lane] = origin;
        }
    }

    /// Rewrites the packets; returns those that fit.
    #[inline(always)]
    fn rewrite(
        &mut self,
        lanes: LaneMask,
        change: impl Fn(&mut Packet, &mut HeaderCtx<'_>) -> Result<(), ActionMismatch>,
    ) -> LaneMask {
        let Group { exec, arrays, .. } = &mut *self;
        let kernel = Rewrites { arrays, lanes, vlan_limit: exec.vlan_limit, change };
        let misfits = simd::run(exec.level, kernel);
        self.work.all(misfits, Fate::Drop(DropReason::BadAction));
        lanes.without(misfits)
    }

    /// An output or upcall of the packets, or of copies if another effect follows.
    fn deliver(&mut self, lanes: LaneMask, to: Fate, is_last: bool) -> LaneMask {
        if is_last {
            for lane in lanes {
                self.arrays.dirty[lane] |= self.work.cut(lane, &mut self.arrays.packets[lane]);
                self.work.fates[lane] = to;
            }
            return LaneMask::NONE;
        }
        self.work.used.add(lanes);
        for lane in lanes {
            let mut copy = self.exec.ports.copy(&self.arrays.packets[lane]);
            let cut = self.work.cut(lane, &mut copy);
            self.send_copy(lane, copy, to, self.arrays.origins[lane], cut);
        }
        lanes
    }

    /// Sends each packet, or a copy, to the member of a bond that its hash chooses.
    fn balance(&mut self, lanes: LaneMask, bond: u32, is_last: bool) -> LaneMask {
        let vlan_limit = self.exec.vlan_limit;
        let Executor { bonds, shared, .. } = &mut *self.exec;
        let Some(bond) = bonds.find(&shared.bonds, bond) else {
            self.work.all(lanes, Fate::Drop(DropReason::BadAction));
            return LaneMask::NONE;
        };
        let mut ports = [DpPort::NONE; BATCH_MAX_PACKETS];
        for lane in lanes {
            let Arrays { packets, keys, layouts, dirty, .. } = &mut *self.arrays;
            let (key, layout, dirty) = (&mut keys[lane], &mut layouts[lane], &mut dirty[lane]);
            let mut headers = HeaderCtx { key, layout, dirty, vlan_limit };
            headers.refresh(&packets[lane]);
            ports[lane] = bond.choose(five_tuple(headers.key, 0), frame_bytes(&packets[lane]) as u64);
        }
        if is_last && self.work.cuts == LaneMask::NONE {
            lanes.for_each(|lane| self.work.fates[lane] = Fate::Output(ports[lane]));
            return LaneMask::NONE;
        }
        for lane in lanes {
            self.deliver(LaneMask::one(lane), Fate::Output(ports[lane]), is_last);
        }
        if is_last { LaneMask::NONE } else { lanes }
    }

    /// Recirculates the packets, or copies if another effect follows.
    fn recirculate(&mut self, lanes: LaneMask, id: u32, place: u64, is_last: bool) -> LaneMask {
        if is_last {
            for lane in lanes {
                let origin = &mut self.arrays.origins[lane];
                *origin = origin.recirculated(place);
                self.work.fates[lane] = Fate::Recirc(id);
            }
            return LaneMask::NONE;
        }
        self.work.used.add(lanes);
        for lane in lanes {
            let copy = self.exec.ports.copy(&self.arrays.packets[lane]);
            let origin = self.arrays.origins[lane].recirculated(place);
            self.send_copy(lane, copy, Fate::Recirc(id), origin, false);
        }
        lanes
    }

    /// Lists a copy with the headers of its lane, which do not reflect truncation yet; or ends it.
    fn send_copy(&mut self, lane: usize, packet: Packet, to: Fate, origin: Origin, cut: bool) {
        let rx_port = origin.rx_port;
        let headers = || Box::new(Saved::of(self.arrays, lane, cut));
        let to = match to {
            Fate::Output(port) => CopyTo::Output(port),
            Fate::Userspace(cookie) => CopyTo::Userspace(self.work.cookie(cookie), headers()),
            Fate::Recirc(id) => CopyTo::Recirc(id, headers()),
            Fate::Drop(reason) => {
                return self.exec.ports.drop_keyed(packet, reason, rx_port, &self.arrays.keys[lane]);
            }
            Fate::Wanted(why) => {
                return self.exec.ports.drop_wanted(packet, why, rx_port, &self.arrays.keys[lane]);
            }
            Fate::Consumed => return self.exec.ports.consume(packet),
            Fate::Held => return,
            Fate::Miss => unreachable!("a list of actions decides on each of its packets"),
        };
        self.work.add_copy(lane, Copied { packet, to, origin, next: None });
    }

    /// A nested list: on the packets themselves if no effect follows, else on copies.
    fn nested(&mut self, lanes: LaneMask, actions: &[DpAction], place: u64, is_last: bool) -> LaneMask {
        if is_last {
            self.run(lanes, actions, place);
            return LaneMask::NONE;
        }
        if lanes.is_empty() || !actions.iter().any(DpAction::has_effect) {
            return lanes;
        }
        self.work.used.add(lanes);
        let (used, cuts, truncate) = (self.work.used, self.work.cuts, self.work.truncate);
        let mut kept = Vec::with_capacity(lanes.0.count_ones() as usize);
        for lane in lanes {
            let packet = &mut self.arrays.packets[lane];
            let copy = self.exec.ports.copy(packet);
            let packet = std::mem::replace(packet, copy);
            kept.push((packet, Saved::of(self.arrays, lane, false), self.arrays.origins[lane]));
        }
        self.run(lanes, actions, place);
        for (lane, (packet, saved, origin)) in lanes.zip(kept) {
            let copy = std::mem::replace(&mut self.arrays.packets[lane], packet);
            self.send_copy(lane, copy, self.work.fates[lane], self.arrays.origins[lane], false);
            copy_key(&saved.key, &mut self.arrays.keys[lane]);
            self.arrays.layouts[lane] = saved.layout;
            self.arrays.dirty[lane] = saved.dirty;
            self.arrays.origins[lane] = origin;
        }
        (self.work.used, self.work.cuts, self.work.truncate) = (used, cuts, truncate);
        lanes
    }
}

/// A group before one of its actions.
struct Step<'a, 'g> {
    group: &'a mut Group<'g>,
    /// Index of the action among all of the flow.
    place: u64,
    /// No later action has an effect outside of the packet.
    is_last: bool,
}

impl actions::Executor for Step<'_, '_> {
    type Packets = LaneMask;
    type End = Infallible;

    #[inline(always)]
    fn output(&mut self, lanes: LaneMask, port: DpPort) -> ExecResult<Self> {
        Ok(self.group.deliver(lanes, Fate::Output(port), self.is_last))
    }

    fn balance(&mut self, lanes: LaneMask, bond: u32) -> ExecResult<Self> {
        Ok(self.group.balance(lanes, bond, self.is_last))
    }

    #[inline(always)]
    fn userspace(&mut self, lanes: LaneMask, cookie: &UserCookie) -> ExecResult<Self> {
        let cookies = &mut self.group.work.cookies;
        cookies.push(*cookie);
        let cookie = cookies.len() as u32 - 1;
        Ok(self.group.deliver(lanes, Fate::Userspace(cookie), self.is_last))
    }

    #[inline(always)]
    fn recirculate(&mut self, lanes: LaneMask, id: RecircId) -> ExecResult<Self> {
        Ok(self.group.recirculate(lanes, id.0, self.place, self.is_last))
    }

    #[inline(always)]
    fn rewrite(&mut self, lanes: LaneMask, rewrite: Rewrite<'_>) -> ExecResult<Self> {
        let group = &mut *self.group;
        Ok(match rewrite {
            // Common actions in separate loops.
            Rewrite::Set(SetAction::Eth(m)) => {
                let change = set::EthChange::new(m);
                group.rewrite(lanes, |packet, h| set::eth(packet, h, change))
            }
            Rewrite::Set(SetAction::Ipv4(m)) => match set::Ipv4Change::new(m) {
                Some(change) => group.rewrite(lanes, |packet, h| set::ipv4_rest(packet, h, change)),
                None => group.rewrite(lanes, |packet, h| set::ipv4(packet, h, m)),
            },
            Rewrite::Set(SetAction::Tcp(m)) => {
                group.rewrite(lanes, |packet, h| set::ports(packet, h, m, IPPROTO_TCP))
            }
            Rewrite::Set(SetAction::Udp(m)) => {
                group.rewrite(lanes, |packet, h| set::ports(packet, h, m, IPPROTO_UDP))
            }
            Rewrite::Set(set) => group.rewrite(lanes, |packet, h| set::apply(set, packet, h)),
            Rewrite::PushVlan(_)
            | Rewrite::PopVlan
            | Rewrite::PushMpls(_)
            | Rewrite::PopMpls(_)
            | Rewrite::PushEth(_)
            | Rewrite::PopEth
            | Rewrite::PopNsh
            | Rewrite::Hash(_) => group.rewrite(lanes, |packet, h| apply(rewrite, packet, h)),
            Rewrite::PushNsh(_) | Rewrite::AddMpls(_) => {
                group.push(lanes, DropReason::BadAction, |exec, packet, headers, earlier| {
                    exec.push_headers(packet, headers, rewrite, earlier)
                })
            }
        })
    }

    #[inline(always)]
    fn truncate(&mut self, lanes: LaneMask, bytes: u32) -> ExecResult<Self> {
        let work = &mut *self.group.work;
        lanes.for_each(|lane| work.truncate[lane] = bytes);
        work.cuts.add(lanes);
        Ok(lanes)
    }

    #[inline(always)]
    fn meter(&mut self, lanes: LaneMask, id: u32) -> ExecResult<Self> {
        let Group { exec, arrays, work } = &mut *self.group;
        let load = |lane: usize| Load::of(&arrays.packets[lane]);
        let admitted = exec.shared.admit_group(id, lanes, load, exec.now_us);
        work.all(lanes.without(admitted), Fate::Drop(DropReason::Meter));
        Ok(admitted)
    }

    #[inline(always)]
    fn track(&mut self, lanes: LaneMask, ct: &CtAction) -> ExecResult<Self> {
        let request = Request::of(ct);
        let Group { exec, arrays, work } = &mut *self.group;
        let (fragments, misfits) = exec.track_group(arrays, lanes, &request);
        work.all(misfits, Fate::Drop(DropReason::BadAction));
        let rest = lanes.without(misfits).without(fragments);
        if fragments.is_empty() {
            return Ok(rest);
        }
        Ok(LaneMask(rest.0 | self.group.track_fragments(fragments, &request).0))
    }

    #[inline(always)]
    fn clear_tracking(&mut self, lanes: LaneMask) -> ExecResult<Self> {
        lanes.for_each(|lane| self.group.arrays.keys[lane].clear_tracking());
        Ok(lanes)
    }

    #[inline(always)]
    fn push_tunnel(&mut self, lanes: LaneMask, push: &TnlPush) -> ExecResult<Self> {
        Ok(self.group.push_tunnel(lanes, push))
    }

    #[inline(always)]
    fn pop_tunnel(&mut self, lanes: LaneMask, port: DpPort) -> ExecResult<Self> {
        Ok(self.group.pop_tunnel(lanes, port, self.place, self.is_last))
    }

    #[inline(always)]
    fn on_copies(&mut self, lanes: LaneMask, actions: &[DpAction]) -> ExecResult<Self> {
        Ok(self.group.nested(lanes, actions, self.place, self.is_last))
    }

    #[inline(always)]
    fn sample(&mut self, lanes: LaneMask, probability: u32, actions: &[DpAction]) -> ExecResult<Self> {
        let Group { exec, arrays, .. } = &mut *self.group;
        let fires = |lane: &usize| exec.fires(probability, arrays.origins[*lane].number, self.place);
        let taken = LaneMask(lanes.filter(fires).fold(0, |taken, lane| taken | LaneMask::one(lane).0));
        let before = std::mem::replace(&mut self.group.exec.probability, probability);
        let rest = self.group.nested(taken, actions, self.place, self.is_last);
        self.group.exec.probability = before;
        Ok(LaneMask(lanes.without(taken).0 | rest.0))
    }

    fn psample(&mut self, lanes: LaneMask, sample: &Psample) -> ExecResult<Self> {
        let Group { exec, arrays: Arrays { keys, packets, .. }, work } = &mut *self.group;
        work.used.add(lanes);
        lanes.for_each(|i| exec.note_sample(sample, keys[i].in_port(), packets[i].data()));
        Ok(lanes)
    }

    #[inline(always)]
    fn by_length(
        &mut self,
        lanes: LaneMask,
        len: u16,
        greater: &[DpAction],
        less: &[DpAction],
    ) -> ExecResult<Self> {
        let mut long = LaneMask::NONE;
        for lane in lanes {
            if frame_bytes(&self.group.arrays.packets[lane]) > usize::from(len) {
                long.add(LaneMask::one(lane));
            }
        }
        let short = lanes.without(long);
        let long = self.group.nested(long, greater, self.place, self.is_last);
        let short = self.group.nested(short, less, self.place, self.is_last);
        Ok(LaneMask(long.0 | short.0))
    }

    #[inline(always)]
    fn drop_packets(&mut self, lanes: LaneMask, reason: XlateDrop) -> ExecResult<Self> {
        self.group.work.all(lanes, Fate::Wanted(reason));
        Ok(LaneMask::NONE)
    }

    #[inline(always)]
    fn unsupported(&mut self, lanes: LaneMask) -> ExecResult<Self> {
        self.group.work.all(lanes, Fate::Drop(DropReason::BadAction));
        Ok(LaneMask::NONE)
    }
}
