//! One session: the state machine of RFC 5880 §6.8 as OVS runs it.
//!
//! A driver calls [`Session::input`] for each packet that the session claims, and [`Session::poll_transmit`], then
//! [`Session::tick`], when [`Session::next_wakeup`] is due. OVS keeps this order, so a packet due at the end of the
//! detection time still carries the old state. Times are milliseconds of any clock that does not step back.
//!
//! Facts of OVS that the RFC leaves open or has otherwise: the end of the detection time clears what is known of the
//! other system but its multiplier; a poll survives the end of the session; the diagnostic stays after the session is up
//! again; the discriminator does not select the session; demand mode and echo packets are absent.

mod saved;

use super::config::Config;
use super::frame::{Addresses, DEFAULT_DST_MAC, FRAME_BYTES, TIME_TO_LIVE, build};
use super::message::{Diagnostic, Flags, Message, Refusal, State};
use super::notice::{Notice, Notices};
use crate::protocol::{Environment, Received, SessionId};
use flow::MacAddr;

pub(super) use saved::identity as identity_of;

/// Shortest time over which an interface is found idle or alive, milliseconds.
const OBSERVATION_MS: u64 = 2000;
/// Smallest transmit interval of a session that is not up (RFC 5880 §6.8.3), milliseconds.
const SLOW_TX_MS: u64 = 1000;
/// Intervals of `min_rx` without a control packet after which received data is no sign of life.
const DEMAND_INTERVALS: u64 = 100;

/// Properties that distinguish a session from all others of its system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Its number.
    pub id: SessionId,
    /// Its interface.
    pub name: String,
    /// Its discriminator, not 0.
    pub discriminator: u32,
    /// Its UDP source port, of [`UDP_SOURCE_PORTS`](super::UDP_SOURCE_PORTS).
    pub src_port: u16,
    /// Ethernet address of its port.
    pub port_mac: MacAddr,
}

/// A command's choice for the forwarding state (`bfd/set-forwarding`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Forwarding {
    /// By the session.
    #[default]
    Normal,
    /// Not forwarding.
    False,
    /// Forwarding.
    True,
}

impl Forwarding {
    /// Parses the command's argument, in any case of letters.
    pub fn parse(text: &str) -> Option<Forwarding> {
        let names =
            [("normal", Forwarding::Normal), ("false", Forwarding::False), ("true", Forwarding::True)];
        names.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, forwarding)| forwarding)
    }
}

/// A frame to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transmission {
    /// Its bytes.
    pub frame: [u8; FRAME_BYTES],
    /// Whether a tunnel marks it as a control packet.
    pub oam: bool,
}

/// Intervals that a poll sequence negotiates, and those in force, milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Intervals {
    pub(super) tx_ms: u64,
    pub(super) rx_ms: u64,
}

/// The other system, by its last packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Remote {
    pub(super) state: State,
    pub(super) diagnostic: Diagnostic,
    pub(super) flags: Flags,
    pub(super) discriminator: u32,
    pub(super) min_tx_ms: u64,
    pub(super) min_rx_ms: u64,
}

impl Remote {
    /// An unknown system.
    const UNKNOWN: Remote = Remote {
        state: State::Down,
        diagnostic: Diagnostic::NONE,
        flags: Flags::NONE,
        discriminator: 0,
        min_tx_ms: 0,
        min_rx_ms: 1,
    };
}

/// The observation of an idle interface.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Decay {
    /// Whether `decay_min_rx` is in force.
    active: bool,
    /// Control packets since the last observation.
    control_packets: u64,
    /// The device's packets at the last observation.
    rx_packets: u64,
    /// Time of the next observation.
    until_ms: u64,
}

/// A session. Its time 0 means "at once" for the next transmission and "never" for all others, as in OVS.
#[derive(Clone, Debug)]
pub struct Session {
    pub(super) identity: Identity,
    pub(super) config: Config,
    pub(super) state: State,
    pub(super) diagnostic: Diagnostic,
    pub(super) flags: Flags,
    pub(super) remote: Remote,
    /// Survives the end of the session, unlike the rest of [`Remote`].
    pub(super) remote_multiplier: u8,
    pub(super) current: Intervals,
    poll: Intervals,
    pub(super) last_tx_ms: u64,
    pub(super) next_tx_ms: u64,
    pub(super) detect_ms: u64,
    decay: Decay,
    /// Until when received data counts as a sign of life.
    alive_until_ms: u64,
    /// Until when it counts without a control packet.
    demand_until_ms: u64,
    last_forwarding: bool,
    forced: Forwarding,
    pub(super) flap_count: u64,
    status_changed: bool,
    notices: Notices,
}

impl Session {
    /// A new session, down, that sends its first packet at once.
    pub fn new(identity: Identity, config: Config, now_ms: u64, env: &mut dyn Environment) -> Session {
        let mut session = Session {
            identity,
            current: Intervals { tx_ms: config.min_tx_ms.into(), rx_ms: config.min_rx_ms.into() },
            diagnostic: if config.cpath_down { Diagnostic::CONCATENATED_PATH_DOWN } else { Diagnostic::NONE },
            config,
            state: State::Down,
            flags: Flags::NONE,
            remote: Remote::UNKNOWN,
            remote_multiplier: 0,
            poll: Intervals::default(),
            last_tx_ms: 0,
            next_tx_ms: 0,
            detect_ms: 0,
            decay: Decay::default(),
            alive_until_ms: 0,
            demand_until_ms: 0,
            last_forwarding: false,
            forced: Forwarding::Normal,
            flap_count: 0,
            status_changed: true,
            notices: Notices::default(),
        };
        session.observe(now_ms, env);
        session
    }

    /// Applies new settings. New intervals of a session that is up take effect by a poll sequence (RFC 5880 §6.8.3).
    pub fn configure(&mut self, config: Config, now_ms: u64, env: &mut dyn Environment) {
        let old = std::mem::replace(&mut self.config, config);
        let mut poll = false;
        let (settled, min_tx_ms) = (self.flags.has(Flags::POLL), u64::from(self.config.min_tx_ms));
        if old.min_tx_ms != self.config.min_tx_ms {
            if self.state != State::Up || (!settled && min_tx_ms < self.current.tx_ms) {
                self.current.tx_ms = min_tx_ms;
            }
            poll = true;
        }
        let min_rx_ms = u64::from(self.config.min_rx_ms);
        if old.min_rx_ms != self.config.min_rx_ms {
            if self.state != State::Up || (!settled && min_rx_ms > self.current.rx_ms) {
                self.current.rx_ms = min_rx_ms;
            }
            poll = true;
        }
        if old.decay_min_rx_ms != self.config.decay_min_rx_ms || old.min_rx_ms != self.config.min_rx_ms {
            self.decay.active = false;
            self.observe(now_ms, env);
            poll = true;
        }
        if old.cpath_down != self.config.cpath_down {
            self.set_state(self.state, Diagnostic::NONE, now_ms, env);
            poll = true;
        }
        if old.forwarding_if_rx != self.config.forwarding_if_rx {
            self.alive_until_ms = 0;
        }
        let alive_changed =
            old.forwarding_if_rx != self.config.forwarding_if_rx || old.multiplier != self.config.multiplier;
        if alive_changed && self.config.forwarding_if_rx && self.state == State::Up {
            self.extend_life(now_ms);
        }
        if poll {
            self.start_poll();
        }
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Number, name, discriminator and addresses.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// State and diagnostic of this system.
    pub fn state(&self) -> (State, Diagnostic) {
        (self.state, self.diagnostic)
    }

    /// Whether `decay_min_rx` is in force or being negotiated.
    pub fn in_decay(&self) -> bool {
        self.decay.active
    }

    /// The port has another Ethernet address.
    pub fn set_port_mac(&mut self, mac: MacAddr) {
        self.identity.port_mac = mac;
    }

    /// The session has another device, whose counters start elsewhere.
    pub fn device_changed(&mut self, now_ms: u64, env: &mut dyn Environment) {
        if self.state != State::Up {
            return;
        }
        self.observe(now_ms, env);
        if self.config.forwarding_if_rx {
            self.extend_life(now_ms);
        }
    }

    /// Overrides the forwarding state. Flaps are not counted meanwhile.
    pub fn set_forwarding(&mut self, forced: Forwarding) {
        self.forced = forced;
        self.status_changed = true;
    }

    /// Whether the interface may forward traffic; counts a flap if that changed.
    pub fn forwarding(&mut self, now_ms: u64) -> bool {
        match self.forced {
            Forwarding::True => return true,
            Forwarding::False => return false,
            Forwarding::Normal => {}
        }
        let alive =
            self.config.forwarding_if_rx && self.alive_until_ms > now_ms && self.demand_until_ms > now_ms;
        let forwarding = (self.state == State::Up || alive) && !self.remote.diagnostic.is_path_down();
        if forwarding != self.last_forwarding {
            self.last_forwarding = forwarding;
            self.flap_count += 1;
            self.status_changed = true;
        }
        forwarding
    }

    /// Counts packets that the port received, control packets included, for `forwarding_if_rx`. OVS does that for tunnels,
    /// before [`input`](Self::input), and for patch ports, after it; packets of other ports do not count.
    pub fn account_rx(&mut self, packets: u64, now_ms: u64) {
        if packets > 0 && self.config.forwarding_if_rx {
            self.forwarding(now_ms);
            self.extend_life(now_ms);
            self.forwarding(now_ms);
        }
    }

    /// Whether the status may have changed since the last call. As in OVS, another remote diagnostic alone, without a
    /// change of state or forwarding, is none.
    pub fn take_status_changed(&mut self) -> bool {
        std::mem::take(&mut self.status_changed)
    }

    /// Events for the log since the last call, and how many more did not fit.
    pub fn take_notices(&mut self) -> (Vec<Notice>, u64) {
        self.notices.take()
    }

    /// Whether the status may have changed, or there are events for the log.
    pub fn has_changed(&self) -> bool {
        self.status_changed || self.notices.any()
    }

    /// Takes a packet that [`Claim::claims`](super::Claim::claims).
    ///
    /// # Errors
    /// The packet is ignored, except that it counts as a control packet for `decay_min_rx`.
    pub fn input(
        &mut self,
        received: Received<'_>,
        now_ms: u64,
        env: &mut dyn Environment,
    ) -> Result<(), Refusal> {
        let payload = received.payload.ok_or(Refusal::NoPayload)?;
        self.decay.control_packets += 1;
        self.forwarding(now_ms);
        let taken = self.accept(received.ttl, payload).map(|message| self.take(&message, now_ms, env));
        self.forwarding(now_ms);
        taken
    }

    fn accept(&self, ttl: u8, payload: &[u8]) -> Result<Message, Refusal> {
        if ttl != TIME_TO_LIVE {
            return Err(Refusal::TimeToLive(ttl));
        }
        let message = Message::parse(payload)?;
        match message.your_discriminator {
            0 => Ok(message),
            yours if yours == self.identity.discriminator => Ok(message),
            yours => Err(Refusal::YourDiscriminator(yours)),
        }
    }

    fn take(&mut self, message: &Message, now_ms: u64, env: &mut dyn Environment) {
        self.status_changed |= self.remote.state != message.state;
        let old_min_rx_ms = self.remote.min_rx_ms;
        self.remote = Remote {
            state: message.state,
            diagnostic: message.diagnostic,
            flags: message.flags,
            discriminator: message.my_discriminator,
            min_tx_ms: u64::from(message.min_tx_us / 1000).max(1),
            min_rx_ms: u64::from(message.min_rx_us / 1000).max(1),
        };
        if message.flags.has(Flags::FINAL) && self.flags.has(Flags::POLL) {
            self.current = self.poll;
            self.flags.clear(Flags::POLL);
            self.notices.put(Notice::PollEnded);
        }
        if message.flags.has(Flags::POLL) {
            // An answer replaces a poll of this system, which the next `tick` starts again.
            self.flags.clear(Flags::POLL);
            self.flags.set(Flags::FINAL);
        }
        if self.remote_multiplier != message.multiplier {
            let (from, to) = (self.remote_multiplier, message.multiplier);
            self.notices.put(Notice::RemoteMultiplier { from, to });
            self.remote_multiplier = to;
        }
        if self.remote.min_rx_ms != old_min_rx_ms {
            if self.next_tx_ms != 0 {
                self.set_next_tx(env);
            }
            self.notices.put(Notice::RemoteMinRx { min_rx_ms: self.remote.min_rx_ms });
        }
        self.detect_ms = now_ms + self.rx_interval_ms() * u64::from(self.remote_multiplier);
        self.follow(message.state, now_ms, env);
        if self.config.forwarding_if_rx {
            self.demand_until_ms = now_ms + DEMAND_INTERVALS * u64::from(self.config.min_rx_ms);
        }
    }

    /// The transitions of RFC 5880 §6.8.6.
    fn follow(&mut self, remote: State, now_ms: u64, env: &mut dyn Environment) {
        let (to, diagnostic) = match (self.state, remote) {
            (State::Down, State::Down) => (State::Init, self.diagnostic),
            (State::Down, State::Init) | (State::Init, State::Init | State::Up) => {
                (State::Up, self.diagnostic)
            }
            (State::Init, State::AdminDown) => (State::Down, Diagnostic::REMOTE_DOWN),
            (State::Up, State::AdminDown | State::Down) => (State::Down, Diagnostic::REMOTE_DOWN),
            _ => return,
        };
        self.set_state(to, diagnostic, now_ms, env);
    }

    /// Does the work that time brings: the end of the detection time, decay, poll sequences.
    pub fn tick(&mut self, now_ms: u64, env: &mut dyn Environment) {
        let was_in_decay = self.decay.active;
        if self.state > State::Down && now_ms >= self.detect_ms {
            self.set_state(State::Down, Diagnostic::EXPIRED, now_ms, env);
        }
        self.forwarding(now_ms);
        let decay_min_rx_ms = u64::from(self.config.decay_min_rx_ms);
        if self.state == State::Up && decay_min_rx_ms > 0 && now_ms >= self.decay.until_ms {
            self.try_decay(now_ms, env);
        }
        let rx_ms = self.current.rx_ms;
        if self.current.tx_ms != u64::from(self.config.min_tx_ms)
            || (rx_ms != u64::from(self.config.min_rx_ms) && rx_ms != decay_min_rx_ms)
            || self.decay.active != was_in_decay
        {
            self.start_poll();
        }
    }

    /// The frame to send now, if one is due.
    pub fn poll_transmit(&mut self, now_ms: u64, env: &mut dyn Environment) -> Option<Transmission> {
        if !self.flags.has(Flags::FINAL) && now_ms < self.next_tx_ms {
            return None;
        }
        let (delay_ms, interval_ms) = (now_ms.saturating_sub(self.next_tx_ms), self.tx_interval_ms());
        if self.next_tx_ms != 0 && delay_ms > interval_ms * 3 / 2 {
            self.notices.put(Notice::LateTransmission { delay_ms, interval_ms });
        }
        let frame = build(&self.addresses(), &self.message());
        self.flags.clear(Flags::FINAL);
        self.last_tx_ms = now_ms;
        self.set_next_tx(env);
        Some(Transmission { frame, oam: self.config.oam })
    }

    /// When [`poll_transmit`](Self::poll_transmit) and [`tick`](Self::tick) are due; 0 is at once.
    pub fn next_wakeup(&self) -> u64 {
        match self.state {
            _ if self.flags.has(Flags::FINAL) => 0,
            State::Init | State::Up => self.next_tx_ms.min(self.detect_ms),
            State::Down | State::AdminDown => self.next_tx_ms,
        }
    }

    fn addresses(&self) -> Addresses {
        Addresses {
            src_mac: self.config.local_src_mac.unwrap_or(self.identity.port_mac),
            dst_mac: self.config.local_dst_mac.unwrap_or(DEFAULT_DST_MAC),
            src_ip: self.config.src_ip,
            dst_ip: self.config.dst_ip,
            src_port: self.identity.src_port,
        }
    }

    fn message(&self) -> Message {
        let asked = if self.flags.has(Flags::POLL) {
            self.poll
        } else {
            Intervals { tx_ms: self.min_tx_ms(), rx_ms: self.current.rx_ms }
        };
        // The field has room for 71 minutes.
        let us = |ms: u64| u32::try_from(ms * 1000).unwrap_or(u32::MAX);
        Message {
            diagnostic: self.diagnostic,
            state: self.state,
            flags: self.flags,
            multiplier: self.config.multiplier,
            my_discriminator: self.identity.discriminator,
            your_discriminator: self.remote.discriminator,
            min_tx_us: us(asked.tx_ms),
            min_rx_us: us(asked.rx_ms),
            min_echo_rx_us: 0,
        }
    }

    /// The interval at which this system wants to send.
    pub(super) fn min_tx_ms(&self) -> u64 {
        if self.state == State::Up { self.current.tx_ms } else { self.current.tx_ms.max(SLOW_TX_MS) }
    }

    /// The interval at which it sends.
    pub(super) fn tx_interval_ms(&self) -> u64 {
        self.min_tx_ms().max(self.remote.min_rx_ms)
    }

    /// The interval at which it receives.
    pub(super) fn rx_interval_ms(&self) -> u64 {
        self.current.rx_ms.max(self.remote.min_tx_ms)
    }

    /// Jitter of RFC 5880 §6.8.7: 75 to 100 percent of the interval, with multiplier 1 at most 90.
    fn set_next_tx(&mut self, env: &mut dyn Environment) {
        let interval_ms = self.tx_interval_ms();
        let percent = match self.config.multiplier {
            1 => 10 + env.random(16),
            _ => env.random(26),
        };
        self.next_tx_ms = self.last_tx_ms + interval_ms - interval_ms * u64::from(percent.min(25)) / 100;
    }

    fn start_poll(&mut self) {
        if self.state <= State::Down || self.flags.has(Flags::POLL) || self.flags.has(Flags::FINAL) {
            return;
        }
        let rx_ms = if self.decay.active { self.config.decay_min_rx_ms } else { self.config.min_rx_ms };
        self.poll = Intervals { tx_ms: self.config.min_tx_ms.into(), rx_ms: rx_ms.into() };
        self.flags.set(Flags::POLL);
        self.next_tx_ms = 0;
        self.notices.put(Notice::PollStarted);
    }

    fn set_state(&mut self, to: State, diagnostic: Diagnostic, now_ms: u64, env: &mut dyn Environment) {
        let diagnostic = if self.config.cpath_down { Diagnostic::CONCATENATED_PATH_DOWN } else { diagnostic };
        let from = (self.state, self.diagnostic);
        if from == (to, diagnostic) {
            return;
        }
        self.notices.put(Notice::StateChange { from, to: (to, diagnostic) });
        (self.state, self.diagnostic) = (to, diagnostic);
        if to <= State::Down {
            self.remote = Remote::UNKNOWN;
            if std::mem::take(&mut self.decay.active) {
                self.current.rx_ms = self.config.min_rx_ms.into();
            }
        }
        if to == State::Up {
            self.observe(now_ms, env);
        }
        self.status_changed = true;
    }

    /// Decays if at most twice as many packets came as control packets did: the counters of a device lag.
    fn try_decay(&mut self, now_ms: u64, env: &mut dyn Environment) {
        let received = env.rx_packets(self.identity.id).saturating_sub(self.decay.rx_packets);
        self.decay.active = received <= 2 * self.decay.control_packets.max(1);
        self.observe(now_ms, env);
    }

    /// Starts an observation, with `decay_min_rx`.
    fn observe(&mut self, now_ms: u64, env: &mut dyn Environment) {
        let decay_min_rx_ms = u64::from(self.config.decay_min_rx_ms);
        if decay_min_rx_ms > 0 {
            self.decay.rx_packets = env.rx_packets(self.identity.id);
            self.decay.control_packets = 0;
            self.decay.until_ms = now_ms + decay_min_rx_ms.max(OBSERVATION_MS);
        }
    }

    fn extend_life(&mut self, now_ms: u64) {
        let interval_ms = self.rx_interval_ms() * u64::from(self.config.multiplier);
        self.alive_until_ms = now_ms + interval_ms.max(OBSERVATION_MS);
    }
}
