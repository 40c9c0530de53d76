//! Runs a list of actions on one packet: one that comes alone, or each packet of a burst where groups are switched off.

use super::{Executor, Misfit, has_effect, inner_place, set, truncate, vlan};
use crate::burst::{HeaderCtx, Parsed, copy_key};
use crate::park::Origin;
use crate::ports::PmdIo;
use dpif::{DpAction, DropReason, XlateDrop};
use flow::FlowKey;
use packet::Packet;

/// What is known of the packet beside its bytes while actions run.
pub(crate) struct PacketCtx<'a> {
    pub(crate) headers: HeaderCtx<'a>,
    pub(crate) origin: Origin,
    truncate: Option<u32>,
    /// A copy of the packet went on.
    pub(crate) used: bool,
}

impl<'a> PacketCtx<'a> {
    pub(crate) fn new(headers: HeaderCtx<'a>, origin: Origin) -> PacketCtx<'a> {
        PacketCtx { headers, origin, truncate: None, used: false }
    }
}

/// Whether the list goes on with the packet after an action.
enum Step {
    Next(Packet),
    Done,
}

/// An action as it stands in its list.
#[derive(Clone, Copy)]
struct Place {
    number: u64,
    /// No action behind it has an effect outside of the packet.
    is_last: bool,
}

impl Executor {
    /// Runs the actions of a flow on `packet`, which ends here: sent, handed up, put off, dropped or consumed.
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
        mut packet: Packet,
        view: &mut PacketCtx<'_>,
        actions: &[DpAction],
        list: u64,
        io: &mut dyn PmdIo,
    ) {
        let last = actions.iter().rposition(has_effect);
        for (i, action) in actions.iter().enumerate() {
            let place = Place { number: inner_place(list, i), is_last: Some(i) == last };
            match self.step(packet, view, action, place, io) {
                Step::Next(p) => packet = p,
                Step::Done => return,
            }
        }
        self.end(packet, view);
    }

    fn end(&mut self, packet: Packet, view: &PacketCtx<'_>) {
        if view.used {
            self.ports.consume(packet);
        } else {
            self.ports.drop_wanted(packet, XlateDrop::Ok, view.origin.rx_port);
        }
    }

    fn step(
        &mut self,
        mut packet: Packet,
        view: &mut PacketCtx<'_>,
        action: &DpAction,
        place: Place,
        io: &mut dyn PmdIo,
    ) -> Step {
        let fits = match action {
            DpAction::Output(_) | DpAction::Userspace(_) | DpAction::Recirc(_) => {
                return self.deliver(packet, view, action, place, io);
            }
            DpAction::Sample { probability, actions } => {
                if !self.fires(*probability, view.origin.number, place.number) {
                    return Step::Next(packet);
                }
                return self.nested(packet, view, actions, place, io);
            }
            DpAction::Clone(actions) => return self.nested(packet, view, actions, place, io),
            DpAction::Set(set) => set::apply(set, &mut packet, &mut view.headers),
            DpAction::PushVlan { tpid, tci } => vlan::push(&mut packet, &mut view.headers, *tpid, *tci),
            DpAction::PopVlan => vlan::pop(&mut packet, &mut view.headers),
            DpAction::Hash { .. }
            | DpAction::PushMpls { .. }
            | DpAction::PopMpls { .. }
            | DpAction::Ct(_)
            | DpAction::CtClear
            | DpAction::PushEth { .. }
            | DpAction::PopEth
            | DpAction::CheckPktLen { .. }
            | DpAction::DecTtl(_)
            | DpAction::Foreign { .. } => Err(Misfit),
            DpAction::Trunc(bytes) => {
                view.truncate = Some(*bytes);
                Ok(())
            }
            DpAction::Meter(id) => {
                if !self.shared.admit(*id, packet.len() as u64, self.now_us) {
                    self.ports.drop_packet(packet, DropReason::Meter, view.origin.rx_port);
                    return Step::Done;
                }
                Ok(())
            }
            DpAction::Drop(reason) => {
                self.ports.drop_wanted(packet, *reason, view.origin.rx_port);
                return Step::Done;
            }
        };
        if fits.is_err() {
            self.ports.drop_packet(packet, DropReason::BadAction, view.origin.rx_port);
            return Step::Done;
        }
        Step::Next(packet)
    }

    /// An action that sends the packet, or a copy when another one follows, somewhere.
    fn deliver(
        &mut self,
        packet: Packet,
        view: &mut PacketCtx<'_>,
        action: &DpAction,
        place: Place,
        io: &mut dyn PmdIo,
    ) -> Step {
        let (mut out, rest) = if place.is_last {
            (packet, Step::Done)
        } else {
            view.used = true;
            (self.ports.copy(&packet), Step::Next(packet))
        };
        match action {
            DpAction::Output(port) => {
                truncate(&mut out, view.truncate.take());
                self.ports.output(*port, out, view.origin.rx_port, io);
            }
            DpAction::Userspace(cookie) => {
                let cut = truncate(&mut out, view.truncate.take());
                let state = view.headers.parsed();
                // The key tells no header that the packet lacks.
                let state = Parsed { dirty: state.dirty || cut || self.reread, ..state };
                self.userspace(out, state, view.origin.rx_port, *cookie, io);
            }
            DpAction::Recirc(id) => {
                let state = view.headers.parsed();
                let state = Parsed { dirty: state.dirty || self.reread, ..state };
                self.recirculate(out, state, view.origin.recirculated(place.number), id.0);
            }
            _ => unreachable!("only actions that deliver by themselves come here"),
        }
        rest
    }

    fn nested(
        &mut self,
        packet: Packet,
        view: &mut PacketCtx<'_>,
        actions: &[DpAction],
        place: Place,
        io: &mut dyn PmdIo,
    ) -> Step {
        if place.is_last {
            self.run_list(packet, view, actions, place.number, io);
            return Step::Done;
        }
        if !actions.iter().any(has_effect) {
            return Step::Next(packet);
        }
        let copy = self.ports.copy(&packet);
        view.used = true;
        let (mut key, mut layout, mut dirty) =
            (FlowKey::default(), *view.headers.layout, *view.headers.dirty);
        copy_key(view.headers.key, &mut key);
        let vlan_limit = view.headers.vlan_limit;
        let headers = HeaderCtx { key: &mut key, layout: &mut layout, dirty: &mut dirty, vlan_limit };
        let mut inner = PacketCtx { headers, ..*view };
        self.run_list(copy, &mut inner, actions, place.number, io);
        Step::Next(packet)
    }
}
