//! Packets for controllers: user actions of the datapath, with the state of the translation at that point.

use super::ctx::XlateCtx;
use super::miss_reason;
use crate::recirc::FrozenStep;
use dpif::actions::{Meter, Sample, Userspace};
use dpif::{ControllerCookie, DpAction, UserCookie, XlateDrop};
use ofp_actions::{ControllerAction, PacketInReason};
use openflow::msg::control::TableMiss;
use openflow::msg::meter;

impl XlateCtx<'_> {
    /// Sends the current packet to the controllers.
    pub(super) fn send_to_controllers(&mut self, action: &ControllerAction) {
        let is_miss = action.reason == PacketInReason::Action && self.control.rule_is_miss;
        let reason = if is_miss { miss_reason::RULE } else { action.reason as u8 };
        self.hand_up(action, reason, None);
    }

    /// Freezes the translation behind the current action, for the controllers.
    pub(super) fn pause_for_controllers(&mut self, action: &ControllerAction) {
        self.control.frozen = Some(Vec::new());
        self.control.pause = Some(Box::new(action.clone()));
    }

    /// As [`XlateCtx::send_to_controllers`], for a reason of `OFPR_*` or [`miss_reason`]. `paused`: the remaining actions
    /// of a paused translation.
    pub(super) fn hand_up(&mut self, action: &ControllerAction, reason: u8, paused: Option<Vec<FrozenStep>>) {
        self.commit();
        let continuation = paused.is_some();
        let state = self.frozen_state(paused.unwrap_or_default(), action.userdata.clone());
        let Some(recirc_id) = self.host.recirc_hold(state) else {
            return self.fail(XlateDrop::NoRecirculationContext, "no recirculation id left");
        };
        self.record.recircs.push(recirc_id);
        let hand_up = DpAction::Userspace(Userspace(UserCookie::Controller(ControllerCookie {
            recirc_id,
            // As in OVS, a paused translation has none.
            rule_cookie: if continuation { 0 } else { self.control.rule_cookie },
            reason,
            controller_id: action.controller_id,
            max_len_bytes: action.max_len_bytes,
            continuation,
        })));
        // Without a meter, or with an unknown one, the meter of all packet-ins applies, if it exists.
        let meters = &self.bridge.meters;
        let asked = action.meter_id.into_iter().chain([meter::CONTROLLER]);
        asked.for_each(|id| self.record.lookups.meter(self.bridge.id, id));
        let meter = action.meter_id.and_then(|id| meters.get(&id)).or_else(|| meters.get(&meter::CONTROLLER));
        self.out.actions.push(match meter {
            // The meter drops only the controllers' copy.
            Some(id) => DpAction::Sample(Sample {
                probability: u32::MAX,
                actions: vec![DpAction::Meter(Meter(*id)), hand_up],
            }),
            None => hand_up,
        });
    }

    /// Whether a miss in the current table goes to the controllers.
    pub(super) fn miss_goes_up(&self) -> bool {
        let quiet = self.bridge.ports.port(self.packet.flow.in_port()).is_some_and(|p| p.config.no_packet_in);
        let wanted = match self.bridge.tables.miss(self.control.table) {
            None => self.bridge.miss_to_controller,
            // As in OVS, beyond the last table.
            Some(TableMiss::Controller | TableMiss::Continue) => true,
            Some(TableMiss::Drop) => false,
        };
        wanted && !quiet
    }

    pub(super) fn send_miss(&mut self) {
        self.control.rule_cookie = 0;
        self.hand_up(&ControllerAction::plain(u16::MAX), miss_reason::NO_RULE, None);
    }
}
