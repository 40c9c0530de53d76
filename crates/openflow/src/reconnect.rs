//! Reconnection, probes and back-off of a client: a pure state machine in the caller's time.
//!
//! Used for connections to controllers and to OVSDB servers. The caller executes the result of
//! [`Reconnect::run`] and reports the outcome. Back-off doubles from [`MIN_BACKOFF_MS`] to the maximum with
//! each failure, and resets after a connection that was in use for at least as long as the last back-off. It
//! has no randomness and no I/O.

/// First back-off.
pub const MIN_BACKOFF_MS: u64 = 1_000;
/// Largest back-off unless set otherwise.
pub const DEFAULT_MAX_BACKOFF_MS: u64 = 8_000;
/// Probe interval unless set otherwise.
pub const DEFAULT_PROBE_INTERVAL_MS: u64 = 5_000;

/// State of the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Not wanted.
    Void,
    /// Waiting before the next attempt.
    Backoff,
    /// An attempt is under way.
    Connecting,
    /// Up, with activity.
    Active,
    /// Up, but silent: a probe was sent.
    Idle,
}

impl State {
    /// The name in status columns and logs.
    pub fn name(self) -> &'static str {
        match self {
            State::Void => "VOID",
            State::Backoff => "BACKOFF",
            State::Connecting => "CONNECTING",
            State::Active => "ACTIVE",
            State::Idle => "IDLE",
        }
    }
}

/// An action for the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Start to connect, and report [`Reconnect::connecting`].
    Connect,
    /// Close the connection or abort the attempt, and report [`Reconnect::disconnected`].
    Disconnect,
    /// Send something that the peer answers.
    Probe,
}

/// The state machine.
#[derive(Clone, Debug)]
pub struct Reconnect {
    state: State,
    since_ms: u64,
    backoff_ms: u64,
    max_backoff_ms: u64,
    probe_interval_ms: u64,
    /// Attempts left; `None` is no limit.
    tries_left: Option<u32>,
    last_activity_ms: u64,
    last_connected_ms: Option<u64>,
    last_disconnected_ms: Option<u64>,
}

impl Reconnect {
    /// Creates a disabled client.
    pub fn new(now_ms: u64) -> Reconnect {
        Reconnect {
            state: State::Void,
            since_ms: now_ms,
            backoff_ms: 0,
            max_backoff_ms: DEFAULT_MAX_BACKOFF_MS,
            probe_interval_ms: DEFAULT_PROBE_INTERVAL_MS,
            tries_left: None,
            last_activity_ms: now_ms,
            last_connected_ms: None,
            last_disconnected_ms: None,
        }
    }

    /// Sets the largest back-off; at least [`MIN_BACKOFF_MS`].
    pub fn set_max_backoff_ms(&mut self, ms: u64) {
        self.max_backoff_ms = ms.max(MIN_BACKOFF_MS);
        self.backoff_ms = self.backoff_ms.min(self.max_backoff_ms);
    }

    /// Sets the silence before a probe; 0 disables probes, otherwise at least a second.
    pub fn set_probe_interval_ms(&mut self, ms: u64) {
        self.probe_interval_ms = if ms == 0 { 0 } else { ms.max(1_000) };
    }

    /// Limits the attempts; `None` is no limit.
    pub fn set_max_tries(&mut self, tries: Option<u32>) {
        self.tries_left = tries;
    }

    /// The state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether it is up.
    pub fn is_connected(&self) -> bool {
        matches!(self.state, State::Active | State::Idle)
    }

    /// Time since the last state change.
    pub fn state_age_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.since_ms)
    }

    /// The present back-off.
    pub fn backoff_ms(&self) -> u64 {
        self.backoff_ms
    }

    /// The longest pause between attempts.
    pub fn max_backoff_ms(&self) -> u64 {
        self.max_backoff_ms
    }

    /// Time of the last connection.
    pub fn last_connected_ms(&self) -> Option<u64> {
        self.last_connected_ms
    }

    /// Time of the last disconnection.
    pub fn last_disconnected_ms(&self) -> Option<u64> {
        self.last_disconnected_ms
    }

    fn enter(&mut self, state: State, now_ms: u64) {
        self.state = state;
        self.since_ms = now_ms;
    }

    /// Enables the client; it connects at once if disconnected.
    pub fn enable(&mut self, now_ms: u64) {
        if self.state == State::Void && self.may_try() {
            self.backoff_ms = 0;
            self.enter(State::Backoff, now_ms);
        }
    }

    /// Disables the client; the caller closes any connection.
    pub fn disable(&mut self, now_ms: u64) {
        if self.state != State::Void {
            self.enter(State::Void, now_ms);
        }
    }

    fn may_try(&self) -> bool {
        self.tries_left != Some(0)
    }

    /// An attempt began.
    pub fn connecting(&mut self, now_ms: u64) {
        if self.state == State::Backoff {
            if let Some(n) = &mut self.tries_left {
                *n = n.saturating_sub(1);
            }
            self.enter(State::Connecting, now_ms);
        }
    }

    /// It is up.
    pub fn connected(&mut self, now_ms: u64) {
        if self.state != State::Void && !self.is_connected() {
            self.enter(State::Active, now_ms);
            self.last_connected_ms = Some(now_ms);
            self.last_activity_ms = now_ms;
        }
    }

    /// Something came from the peer.
    pub fn activity(&mut self, now_ms: u64) {
        if self.state == State::Idle {
            self.enter(State::Active, now_ms);
        }
        self.last_activity_ms = now_ms;
    }

    /// The connection was lost, or the attempt failed.
    pub fn disconnected(&mut self, now_ms: u64) {
        if matches!(self.state, State::Void | State::Backoff) {
            return;
        }
        let was_up = self.is_connected();
        if was_up {
            self.last_disconnected_ms = Some(now_ms);
        }
        if !self.may_try() {
            self.enter(State::Void, now_ms);
            return;
        }
        let used_ms = self.last_activity_ms.saturating_sub(self.last_connected_ms.unwrap_or(now_ms));
        let worked = was_up && used_ms >= self.backoff_ms.max(MIN_BACKOFF_MS);
        self.backoff_ms = if worked || self.backoff_ms == 0 {
            MIN_BACKOFF_MS
        } else {
            self.backoff_ms.saturating_mul(2).min(self.max_backoff_ms)
        };
        self.enter(State::Backoff, now_ms);
    }

    /// Time of the next call of [`Reconnect::run`].
    pub fn next_wakeup_ms(&self) -> Option<u64> {
        match self.state {
            State::Void => None,
            State::Backoff => Some(self.since_ms.saturating_add(self.backoff_ms)),
            State::Connecting => Some(self.since_ms.saturating_add(self.backoff_ms.max(MIN_BACKOFF_MS))),
            State::Active if self.probe_interval_ms == 0 => None,
            State::Active => {
                Some(self.last_activity_ms.max(self.since_ms).saturating_add(self.probe_interval_ms))
            }
            State::Idle => Some(self.since_ms.saturating_add(self.probe_interval_ms)),
        }
    }

    /// The action due now.
    pub fn run(&mut self, now_ms: u64) -> Option<Action> {
        if now_ms < self.next_wakeup_ms()? {
            return None;
        }
        match self.state {
            State::Void => None,
            State::Backoff => Some(Action::Connect),
            State::Connecting => Some(Action::Disconnect),
            State::Active => {
                self.enter(State::Idle, now_ms);
                Some(Action::Probe)
            }
            State::Idle => Some(Action::Disconnect),
        }
    }
}
