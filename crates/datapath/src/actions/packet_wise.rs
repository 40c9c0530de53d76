//! Executes a list of actions on one packet: a single one, or each packet of a burst if groups are disabled.

use super::{ActionMismatch, Executor, Fragment, apply, inner_place, truncate};
use crate::burst::{HeaderCtx, Parsed, copy_key};
use crate::meter::Load;
use crate::park::Origin;
use crate::ports::PmdIo;
use conntrack::Request;
use dpif::actions::{self, ExecResult, Psample, Rewrite, TnlPush};
use dpif::{CtAction, DpAction, DropReason, UserCookie, XlateDrop};
use flow::flow_hash::five_tuple;
use flow::{DpPort, FlowKey, RecircId};
use packet::{Packet, frame_bytes};

/// State of the packet beside its bytes during actions.
pub(crate) struct PacketCtx<'a> {
    pub(crate) headers: HeaderCtx<'a>,
    pub(crate) origin: Origin,
    truncate: Option<u32>,
    /// A copy of the packet continued.
    pub(crate) used: bool,
}

impl<'a> PacketCtx<'a> {
    pub(crate) fn new(headers: HeaderCtx<'a>, origin: Origin) -> PacketCtx<'a> {
        PacketCtx { headers, origin, truncate: None, used: false }
    }
}

impl Executor {
    /// Executes the actions of a flow on `packet`, which ends here: sent, upcalled, recirculated, dropped or
    /// consumed.
    pub(crate) fn run(
        &mut self,
        packet: Packet,
        view: &mut PacketCtx<'_>,
        actions: &[DpAction],
        io: &mut dyn PmdIo,
    ) {
        self.run_list(packet, view, actions, 0, io);
    }

    fn run_list(
        &mut self,
        packet: Packet,
        view: &mut PacketCtx<'_>,
        actions: &[DpAction],
        list: u64,
        io: &mut dyn PmdIo,
    ) {
        self.run_rest(packet, view, actions, 0, list, io);
    }

    /// Executes a list from action `from` on.
    fn run_rest(
        &mut self,
        mut packet: Packet,
        view: &mut PacketCtx<'_>,
        actions: &[DpAction],
        from: usize,
        list: u64,
        io: &mut dyn PmdIo,
    ) {
        let last = actions.iter().rposition(DpAction::has_effect);
        for (i, action) in actions.iter().enumerate().skip(from) {
            let place = inner_place(list, i);
            let mut step = Step { exec: self, view, io, place, is_last: Some(i) == last };
            match action.execute(&mut step, packet) {
                Ok(rest) => packet = rest,
                Err(Gone) => return,
            }
            if !self.released.is_empty() {
                self.run_released(view, actions, i + 1, list, io);
            }
        }
        self.end(packet, view);
    }

    /// The released packets continue with a list, each with its own state.
    fn run_released(
        &mut self,
        view: &PacketCtx<'_>,
        actions: &[DpAction],
        from: usize,
        list: u64,
        io: &mut dyn PmdIo,
    ) {
        for fragment in std::mem::take(&mut self.released) {
            let Fragment { packet, mut key, mut layout, origin, mut dirty } = fragment;
            let headers = HeaderCtx {
                key: &mut key,
                layout: &mut layout,
                dirty: &mut dirty,
                vlan_limit: self.vlan_limit,
            };
            let mut own = PacketCtx { headers, origin, ..*view };
            self.run_rest(packet, &mut own, actions, from, list, io);
        }
    }

    fn end(&mut self, packet: Packet, view: &PacketCtx<'_>) {
        if view.used {
            self.ports.consume(packet);
        } else {
            self.ports.drop_wanted(packet, XlateDrop::Ok, view.origin.rx_port, view.headers.key);
        }
    }
}

/// The packet left or was dropped.
struct Gone;

/// A packet before one of its actions.
struct Step<'a, 'v> {
    exec: &'a mut Executor,
    view: &'a mut PacketCtx<'v>,
    io: &'a mut dyn PmdIo,
    /// Index of the action among all of the flow.
    place: u64,
    /// No later action has an effect outside of the packet.
    is_last: bool,
}

impl Step<'_, '_> {
    /// The packet that leaves, and the one that continues with the list if another effect follows.
    fn split(&mut self, packet: Packet) -> (Packet, Result<Packet, Gone>) {
        if self.is_last {
            return (packet, Err(Gone));
        }
        self.view.used = true;
        (self.exec.ports.copy(&packet), Ok(packet))
    }

    /// Tracks a fragment, alone or with the others of its datagram.
    fn track_fragment(&mut self, packet: Packet, request: &Request) -> Result<Packet, Gone> {
        let headers = &mut self.view.headers;
        let key = Box::new(*headers.key);
        let fragment =
            Fragment { packet, key, layout: *headers.layout, origin: self.view.origin, dirty: false };
        let mut fragments = self.exec.take_fragment(fragment, request);
        let Some(Fragment { packet, key, layout, origin, .. }) = fragments.pop() else { return Err(Gone) };
        copy_key(&key, headers.key);
        (*headers.layout, self.view.origin) = (layout, origin);
        self.exec.released = fragments;
        Ok(packet)
    }

    /// The packet after headers were pushed. The segments before it are released.
    fn pushed(
        &mut self,
        packet: Packet,
        earlier: Vec<Packet>,
        fits: bool,
        misfit: DropReason,
    ) -> Result<Packet, Gone> {
        if !fits {
            earlier.into_iter().for_each(|p| self.exec.ports.consume(p));
            return self.dropped(packet, misfit);
        }
        let (headers, origin) = (&self.view.headers, self.view.origin);
        self.exec.released.extend(earlier.into_iter().map(|packet| Fragment {
            packet,
            key: Box::new(*headers.key),
            layout: *headers.layout,
            origin,
            dirty: true,
        }));
        Ok(packet)
    }

    fn dropped(&mut self, packet: Packet, reason: DropReason) -> Result<Packet, Gone> {
        self.exec.ports.drop_keyed(packet, reason, self.view.origin.rx_port, self.view.headers.key);
        Err(Gone)
    }
}

impl actions::Executor for Step<'_, '_> {
    type Packets = Packet;
    type End = Gone;

    fn output(&mut self, packet: Packet, port: DpPort) -> ExecResult<Self> {
        let (mut out, rest) = self.split(packet);
        truncate(&mut out, self.view.truncate.take());
        self.exec.ports.output(port, out, self.view.origin.rx_port, self.io);
        rest
    }

    fn balance(&mut self, packet: Packet, bond: u32) -> ExecResult<Self> {
        self.view.headers.refresh(&packet);
        let Executor { bonds, shared, .. } = &mut *self.exec;
        let Some(bond) = bonds.find(&shared.bonds, bond) else {
            return self.dropped(packet, DropReason::BadAction);
        };
        let port = bond.choose(five_tuple(self.view.headers.key, 0), frame_bytes(&packet) as u64);
        self.output(packet, port)
    }

    fn userspace(&mut self, packet: Packet, cookie: &UserCookie) -> ExecResult<Self> {
        let (mut out, rest) = self.split(packet);
        let cut = truncate(&mut out, self.view.truncate.take());
        let state = self.view.headers.parsed();
        // The key has no header that the packet lacks.
        let state = Parsed { dirty: state.dirty || cut || self.exec.reread, ..state };
        self.exec.userspace(out, state, self.view.origin.rx_port, *cookie, self.io);
        rest
    }

    fn recirculate(&mut self, packet: Packet, id: RecircId) -> ExecResult<Self> {
        let (out, rest) = self.split(packet);
        let state = self.view.headers.parsed();
        let state = Parsed { dirty: state.dirty || self.exec.reread, ..state };
        self.exec.recirculate(out, state, self.view.origin.recirculated(self.place), id.0);
        rest
    }

    fn rewrite(&mut self, mut packet: Packet, rewrite: Rewrite<'_>) -> ExecResult<Self> {
        if let Rewrite::PushNsh(_) | Rewrite::AddMpls(_) = rewrite {
            let mut earlier = Vec::new();
            let headers = &mut self.view.headers;
            let fits = self.exec.push_headers(&mut packet, headers, rewrite, &mut earlier).is_ok();
            return self.pushed(packet, earlier, fits, DropReason::BadAction);
        }
        match apply(rewrite, &mut packet, &mut self.view.headers) {
            Ok(()) => Ok(packet),
            Err(ActionMismatch) => self.dropped(packet, DropReason::BadAction),
        }
    }

    fn truncate(&mut self, packet: Packet, bytes: u32) -> ExecResult<Self> {
        self.view.truncate = Some(bytes);
        Ok(packet)
    }

    fn meter(&mut self, packet: Packet, id: u32) -> ExecResult<Self> {
        if self.exec.shared.admit(id, Load::of(&packet), self.exec.now_us) {
            Ok(packet)
        } else {
            self.dropped(packet, DropReason::Meter)
        }
    }

    fn track(&mut self, mut packet: Packet, ct: &CtAction) -> ExecResult<Self> {
        self.view.headers.refresh(&packet);
        if self.view.headers.key.base.nw_frag != 0 {
            return self.track_fragment(packet, &Request::of(ct));
        }
        let rx_port = self.view.origin.rx_port;
        match self.exec.track(&mut packet, &mut self.view.headers, rx_port, &Request::of(ct), true) {
            Ok(()) => Ok(packet),
            Err(ActionMismatch) => self.dropped(packet, DropReason::BadAction),
        }
    }

    fn clear_tracking(&mut self, packet: Packet) -> ExecResult<Self> {
        self.view.headers.key.clear_tracking();
        Ok(packet)
    }

    fn push_tunnel(&mut self, mut packet: Packet, push: &TnlPush) -> ExecResult<Self> {
        *self.view.headers.dirty |= truncate(&mut packet, self.view.truncate.take());
        let mut earlier = Vec::new();
        let headers = &mut self.view.headers;
        let fits = self.exec.push_tunnel(&mut packet, headers, push, &mut earlier).is_ok();
        self.pushed(packet, earlier, fits, DropReason::TunnelPush)
    }

    fn pop_tunnel(&mut self, packet: Packet, port: DpPort) -> ExecResult<Self> {
        let (mut out, rest) = self.split(packet);
        let origin = self.view.origin;
        let (mut key, mut layout, mut dirty) =
            (FlowKey::default(), *self.view.headers.layout, *self.view.headers.dirty);
        copy_key(self.view.headers.key, &mut key);
        let mut headers = HeaderCtx {
            key: &mut key,
            layout: &mut layout,
            dirty: &mut dirty,
            vlan_limit: self.exec.vlan_limit,
        };
        let (tunnel, mut earlier) = (self.exec.tunnel(port), Vec::new());
        if self.exec.pop_tunnel(&mut out, &mut headers, tunnel.as_ref(), &mut earlier).is_err() {
            earlier.into_iter().for_each(|p| self.exec.ports.consume(p));
            self.exec.ports.drop_packet(out, DropReason::TunnelPop, origin.rx_port);
            return rest;
        }
        for packet in earlier.into_iter().chain([out]) {
            self.exec.recirculate(packet, headers.parsed(), origin.recirculated(self.place), 0);
        }
        rest
    }

    fn on_copies(&mut self, packet: Packet, actions: &[DpAction]) -> ExecResult<Self> {
        if self.is_last {
            self.exec.run_list(packet, self.view, actions, self.place, self.io);
            return Err(Gone);
        }
        if !actions.iter().any(DpAction::has_effect) {
            return Ok(packet);
        }
        let copy = self.exec.ports.copy(&packet);
        let view = &mut *self.view;
        view.used = true;
        let (mut key, mut layout, mut dirty) =
            (FlowKey::default(), *view.headers.layout, *view.headers.dirty);
        copy_key(view.headers.key, &mut key);
        let vlan_limit = view.headers.vlan_limit;
        let headers = HeaderCtx { key: &mut key, layout: &mut layout, dirty: &mut dirty, vlan_limit };
        let mut inner = PacketCtx { headers, ..*view };
        self.exec.run_list(copy, &mut inner, actions, self.place, self.io);
        Ok(packet)
    }

    fn sample(&mut self, packet: Packet, probability: u32, actions: &[DpAction]) -> ExecResult<Self> {
        if !self.exec.fires(probability, self.view.origin.number, self.place) {
            return Ok(packet);
        }
        let before = std::mem::replace(&mut self.exec.probability, probability);
        let rest = self.on_copies(packet, actions);
        self.exec.probability = before;
        rest
    }

    fn psample(&mut self, packet: Packet, sample: &Psample) -> ExecResult<Self> {
        self.view.used = true;
        self.exec.note_sample(sample, self.view.headers.key.in_port(), packet.data());
        Ok(packet)
    }

    fn by_length(
        &mut self,
        packet: Packet,
        len: u16,
        greater: &[DpAction],
        less: &[DpAction],
    ) -> ExecResult<Self> {
        let actions = if frame_bytes(&packet) > usize::from(len) { greater } else { less };
        self.on_copies(packet, actions)
    }

    fn drop_packets(&mut self, packet: Packet, reason: XlateDrop) -> ExecResult<Self> {
        self.exec.ports.drop_wanted(packet, reason, self.view.origin.rx_port, self.view.headers.key);
        Err(Gone)
    }

    fn unsupported(&mut self, packet: Packet) -> ExecResult<Self> {
        self.dropped(packet, DropReason::BadAction)
    }
}
