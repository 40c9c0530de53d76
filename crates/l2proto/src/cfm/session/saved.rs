//! The state of a session on its way to another process.

use super::{Config, Faults, HEALTH_CHECKS, REMOTES_MAX, Remote, Session};
use crate::lines::Lines;
use crate::protocol::{Environment, SessionId};
use crate::saved::{Former, Object, Saved, bound_counts, fields, get_fields, line, put_fields};
use flow::MacAddr;
use serde_json::Value;

fields!(Session; faults, new_faults, forced, flap_count, health, health_checks, remote_is_up, remotes, remote_mpids,
    has_checked, seq, rx_packets; times: last_tx_ms, next_tx_ms, next_check_ms, rx_ms, demand_until_ms);
fields!(Remote, start: Remote { has_sent: false, is_up: true, seq: 0, messages: 0, received_ms: 0 };
    has_sent, is_up, seq, messages; times: received_ms);
// Those whose change has an effect on a session.
fields!(Config; interval, interval_ms, is_demand; times:);

impl Saved for Faults {
    fn value(&self, _: u64) -> Value {
        Value::from(self.0)
    }

    fn of(value: &Value, then_ms: u64) -> Result<Faults, String> {
        u8::of(value, then_ms).map(Faults)
    }
}

impl Session {
    pub(in crate::cfm) fn saved(&self, now_ms: u64) -> String {
        let mut object = Object::new();
        put_fields(&mut object, "session", self, now_ms);
        put_fields(&mut object, "settings", &self.config, now_ms);
        put_fields(&mut object, "lines", &self.lines, now_ms);
        line(object)
    }

    /// A session that goes on from a former one. Settings that have changed since take effect as on a running one.
    pub(in crate::cfm) fn continued(
        place: (SessionId, &str),
        port_mac: MacAddr,
        config: Config,
        former: &Former,
        now_ms: u64,
        env: &mut dyn Environment,
    ) -> Result<Session, String> {
        let mut old = config.clone();
        get_fields(&former.object, "settings", &mut old, former.then_ms)?;
        let mut session = Session::new(place, port_mac, old, now_ms, env);
        let rx_packets = session.rx_packets;
        get_fields(&former.object, "session", &mut session, former.then_ms)?;
        session.lines = Lines::default();
        get_fields(&former.object, "lines", &mut session.lines, former.then_ms)?;
        session.lines.bound();
        bound_counts([&mut session.flap_count]);
        session.health_checks = session.health_checks.min(HEALTH_CHECKS);
        while session.remotes.len() > REMOTES_MAX {
            session.remotes.pop_last();
        }
        session.remote_mpids.truncate(REMOTES_MAX);
        // Counters of the device may have begun anew.
        if session.config.is_demand {
            session.rx_packets = session.rx_packets.min(rx_packets);
        }
        let ends = [&mut session.next_tx_ms, &mut session.next_check_ms];
        ends.into_iter().filter(|at_ms| **at_ms == u64::MAX).for_each(|at_ms| *at_ms = 0);
        session.configure(port_mac, config, now_ms, env);
        session.status_changed = true;
        Ok(session)
    }
}
