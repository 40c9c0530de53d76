//! The state of a session on its way to another process. It goes on with the discriminators, so the other system sees one
//! session.

use super::{Config, Decay, Flags, Forwarding, Identity, Intervals, Remote, Session, State};
use crate::bfd::frame::UDP_SOURCE_PORTS;
use crate::bfd::message::Diagnostic;
use crate::protocol::Environment;
use crate::saved::{
    Former, Object, Saved, bound_counts, fields, get, get_fields, line, put, put_fields, words,
};
use serde_json::Value;

/// Longest interval, milliseconds: that of a message's field.
const INTERVAL_MS_MAX: u64 = u32::MAX as u64;

fields!(Session; state, diagnostic, flags, remote, remote_multiplier, current, poll, decay, last_forwarding, forced,
    flap_count; times: last_tx_ms, next_tx_ms, detect_ms, alive_until_ms, demand_until_ms);
fields!(Remote, start: Remote::UNKNOWN; state, diagnostic, flags, discriminator, min_tx_ms, min_rx_ms; times:);
fields!(Intervals, start: Intervals::default(); tx_ms, rx_ms; times:);
fields!(Decay, start: Decay::default(); active, control_packets, rx_packets; times: until_ms);
// Those whose change has an effect on a session.
fields!(Config; min_tx_ms, min_rx_ms, decay_min_rx_ms, cpath_down, forwarding_if_rx, multiplier; times:);
words!(Forwarding: Forwarding::Normal => "normal", Forwarding::False => "false", Forwarding::True => "true");
words!(State: State::AdminDown => "admin_down", State::Down => "down", State::Init => "init", State::Up => "up");

macro_rules! bits {
    ($($type:ty, $from:path, $to:path;)+) => {$(
        impl Saved for $type {
            fn value(&self, _: u64) -> Value {
                Value::from($to(*self))
            }

            fn of(value: &Value, then_ms: u64) -> Result<$type, String> {
                u8::of(value, then_ms).map($from)
            }
        }
    )+};
}
bits! {
    Diagnostic, Diagnostic::from_bits, Diagnostic::bits;
    Flags, Flags::from_bits, Flags::bits;
}

/// Discriminator and source port of a former session; 0: it tells none.
pub(in crate::bfd) fn identity(former: &Former) -> Result<(u32, u16), String> {
    let discriminator = get(&former.object, "discriminator", former.then_ms, 0)?;
    let src_port = get(&former.object, "src_port", former.then_ms, 0)?;
    Ok((discriminator, if UDP_SOURCE_PORTS.contains(&src_port) { src_port } else { 0 }))
}

impl Session {
    pub(in crate::bfd) fn saved(&self, now_ms: u64) -> String {
        let mut object = Object::new();
        put(&mut object, "discriminator", &self.identity.discriminator, now_ms);
        put(&mut object, "src_port", &self.identity.src_port, now_ms);
        put_fields(&mut object, "session", self, now_ms);
        put_fields(&mut object, "settings", &self.config, now_ms);
        line(object)
    }

    /// A session that goes on from a former one. Settings that have changed since take effect as on a running one.
    pub(in crate::bfd) fn continued(
        identity: Identity,
        config: Config,
        former: &Former,
        now_ms: u64,
        env: &mut dyn Environment,
    ) -> Result<Session, String> {
        let mut old = config.clone();
        get_fields(&former.object, "settings", &mut old, former.then_ms)?;
        old.min_tx_ms = old.min_tx_ms.max(1);
        old.min_rx_ms = old.min_rx_ms.max(1);
        old.multiplier = old.multiplier.max(1);
        let mut session = Session::new(identity, old, now_ms, env);
        get_fields(&former.object, "session", &mut session, former.then_ms)?;
        session.bound();
        // Counters of the device may have begun anew.
        if session.config.decay_min_rx_ms > 0 {
            let rx_packets = env.rx_packets(session.identity.id);
            session.decay.rx_packets = session.decay.rx_packets.min(rx_packets);
        }
        session.status_changed = true;
        if session.config != config {
            session.configure(config, now_ms, env);
        }
        Ok(session)
    }

    /// Values that arithmetic expects in their range.
    fn bound(&mut self) {
        bound_counts([&mut self.flap_count, &mut self.decay.control_packets]);
        for interval in [&mut self.current, &mut self.poll] {
            interval.tx_ms = interval.tx_ms.min(INTERVAL_MS_MAX);
            interval.rx_ms = interval.rx_ms.min(INTERVAL_MS_MAX);
        }
        self.remote.min_tx_ms = self.remote.min_tx_ms.min(INTERVAL_MS_MAX);
        self.remote.min_rx_ms = self.remote.min_rx_ms.min(INTERVAL_MS_MAX);
        // Never is no time of the next message.
        let ends =
            [&mut self.last_tx_ms, &mut self.next_tx_ms, &mut self.detect_ms, &mut self.decay.until_ms];
        ends.into_iter().filter(|at_ms| **at_ms == u64::MAX).for_each(|at_ms| *at_ms = 0);
    }
}
