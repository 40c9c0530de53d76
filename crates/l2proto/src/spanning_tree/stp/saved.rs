//! A bridge and its ports on their way to another process.

use super::{Bridge, HOLD_MS, Port, PortArgs, State, Timers};
use crate::protocol::SessionId;
use crate::saved::{Former, Object, fields, get, get_fields, put_fields, words};

/// Longest timer of a message: 16 bits of 1/256 s.
const TIMER_MS_MAX: u64 = 256_000;

fields!(Bridge; id, root, root_cost, own, timers, change_detected, change; times: hello, notification, change_since, logged_ms);
fields!(Timers, start: Timers { hello_ms: 0, max_age_ms: 0, forward_delay_ms: 0 };
    hello_ms, max_age_ms, forward_delay_ms; times:);
fields!(Port; args, state, info, ack, config_pending; times: since_ms, message_age, forward_delay, hold);
fields!(PortArgs, start: PortArgs { id: 0, cost: 0, is_up: false }; id, cost, is_up; times:);
words!(State:
    State::Disabled => "disabled",
    State::Blocking => "blocking",
    State::Listening => "listening",
    State::Learning => "learning",
    State::Forwarding => "forwarding",
);

impl Bridge {
    /// Adds the bridge and a port.
    pub(in crate::spanning_tree) fn save(&self, id: SessionId, object: &mut Object, now_ms: u64) {
        put_fields(object, "bridge", self, now_ms);
        if let Some(port) = self.ports.get(&id) {
            put_fields(object, "port", port, now_ms);
        }
    }

    /// Takes the values of a former bridge, before its ports and settings.
    pub(in crate::spanning_tree) fn restore(&mut self, former: &Former) -> Result<(), String> {
        get_fields(&former.object, "bridge", self, former.then_ms)?;
        for timers in [&mut self.own, &mut self.timers] {
            let Timers { hello_ms, max_age_ms, forward_delay_ms } = timers;
            for ms in [hello_ms, max_age_ms, forward_delay_ms] {
                *ms = (*ms).clamp(HOLD_MS, TIMER_MS_MAX);
            }
        }
        Ok(())
    }

    /// Adds a port of a former bridge.
    pub(in crate::spanning_tree) fn restore_port(
        &mut self,
        id: SessionId,
        former: &Former,
        now_ms: u64,
    ) -> Result<(), String> {
        let mut port = Port::disabled(PortArgs { id: 0, cost: 0, is_up: false }, now_ms);
        get_fields(&former.object, "port", &mut port, former.then_ms)?;
        if port.args.is_up != (port.state != State::Disabled) {
            return Err("port: a state that its carrier forbids".to_string());
        }
        port.since_ms = port.since_ms.min(now_ms);
        if get(&former.object, "is_root_port", former.then_ms, false)? {
            self.root_port = Some(id);
        }
        self.ports.insert(id, port);
        Ok(())
    }

    /// All ports are there.
    pub(in crate::spanning_tree) fn go_on(&mut self, now_ms: u64) {
        let was_root = self.is_root();
        self.update(now_ms);
        self.become_root(was_root, now_ms);
        if self.is_root() && self.hello.is_none() {
            self.hello = Some(now_ms);
        }
    }
}
