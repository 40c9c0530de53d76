//! Executes `ct`: tracks packets, and has them translated (`translate`).
//!
//! A group runs in passes: first all keys are read, then their buckets are fetched, then their records, then each packet is
//! tracked, in order of arrival. Short passes let the processor overlap the steps of several packets.

use super::translate::translate;
use super::{ActionMismatch, Executor};
use crate::burst::{Arrays, HeaderCtx, LaneMask};
use conntrack::{Lookup, PacketInfo, Request};
use flow::DpPort;
use packet::{BATCH_MAX_PACKETS, Packet};
use simd::{Kernel, Lanes};

impl Executor {
    /// Tracks one packet; a misfit is to be dropped. `may_grow`: helpers may change its length.
    pub(crate) fn track(
        &self,
        packet: &mut Packet,
        headers: &mut HeaderCtx<'_>,
        rx_port: DpPort,
        request: &Request,
        may_grow: bool,
    ) -> Result<(), ActionMismatch> {
        headers.refresh(packet);
        let info = PacketInfo::read(packet, headers.key, *headers.layout, request.zone);
        let lookup = info.as_ref().map(|info| self.shared.tracker().look_ahead(&info.key));
        let lookup = lookup.unwrap_or_default();
        self.track_looked_up(packet, headers, rx_port, request, info.as_ref(), lookup, may_grow)
    }

    /// Tracks a packet whose lookup has begun; an invalid one has no `info`.
    #[inline(always)]
    fn track_looked_up(
        &self,
        packet: &mut Packet,
        headers: &mut HeaderCtx<'_>,
        rx_port: DpPort,
        request: &Request,
        info: Option<&PacketInfo>,
        lookup: Lookup<'_>,
        may_grow: bool,
    ) -> Result<(), ActionMismatch> {
        let (tracker, now_ms, mut to) = (self.shared.tracker(), self.now_us / 1000, None);
        if let Some(info) = info
            && info.control(request.helper).is_none()
            && tracker.track_usual(info, lookup, request, headers.key, now_ms, &mut to)
        {
            return translate(packet, headers, &to);
        }
        self.track_unusual(packet, headers, rx_port, request, info, may_grow)
    }

    /// Tracks a packet that [`conntrack::Tracker::track_usual`] refuses, is for a helper, or is invalid: without `info`.
    /// Not inlined: few packets of a group get here.
    #[inline(never)]
    fn track_unusual(
        &self,
        packet: &mut Packet,
        headers: &mut HeaderCtx<'_>,
        rx_port: DpPort,
        request: &Request,
        info: Option<&PacketInfo>,
        may_grow: bool,
    ) -> Result<(), ActionMismatch> {
        let (tracker, port, now_ms) = (self.shared.tracker(), rx_port.0, self.now_us / 1000);
        if let Some(info) = info
            && let Some(helper) = tracker.helper_of(info, request.helper, now_ms)
        {
            return self.track_control(packet, headers, rx_port, request, info, helper, may_grow);
        }
        let translation = tracker.track(info, request, headers.key, port, now_ms);
        translate(packet, headers, &translation)
    }

    /// Tracks the packets of `lanes`, except for fragments; returns those, and misfits.
    pub(crate) fn track_group(
        &self,
        arrays: &mut Arrays,
        lanes: LaneMask,
        request: &Request,
    ) -> (LaneMask, LaneMask) {
        simd::run(self.level, TrackGroup { exec: self, arrays, lanes, request })
    }
}

/// See [`Executor::track_group`].
struct TrackGroup<'a> {
    exec: &'a Executor,
    arrays: &'a mut Arrays,
    lanes: LaneMask,
    request: &'a Request,
}

impl Kernel for TrackGroup<'_> {
    type Output = (LaneMask, LaneMask);

    #[inline(always)]
    fn run<L: Lanes>(self, _: L) -> (LaneMask, LaneMask) {
        let TrackGroup { exec, arrays, lanes, request } = self;
        let tracker = exec.shared.tracker();
        let mut lookups = [Lookup::default(); BATCH_MAX_PACKETS];
        let (mut valid, mut fragments) = (LaneMask::NONE, LaneMask::NONE);
        for lane in lanes {
            let (packet, mut headers, info) = arrays.tracked(lane, exec.vlan_limit);
            headers.refresh(packet);
            if headers.key.base.nw_frag != 0 {
                fragments.add(LaneMask::one(lane));
                continue;
            }
            if info.fill(packet, headers.key, *headers.layout, request.zone).is_some() {
                valid.add(LaneMask::one(lane));
            }
        }
        for lane in valid {
            let (.., info) = arrays.tracked(lane, exec.vlan_limit);
            lookups[lane] = tracker.look_ahead(&info.key);
        }
        for lane in valid {
            let (.., info) = arrays.tracked(lane, exec.vlan_limit);
            tracker.look_further(&mut lookups[lane], &info.key);
        }
        let mut misfits = LaneMask::NONE;
        for lane in lanes.without(fragments) {
            let rx_port = arrays.origins[lane].rx_port;
            let (packet, mut headers, info) = arrays.tracked(lane, exec.vlan_limit);
            let info = valid.has(lane).then_some(&*info);
            let fits =
                exec.track_looked_up(packet, &mut headers, rx_port, request, info, lookups[lane], true);
            if fits.is_err() {
                misfits.add(LaneMask::one(lane));
            }
        }
        (fragments, misfits)
    }
}
