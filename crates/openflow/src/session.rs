//! One OpenFlow connection, either side, without I/O: framing, negotiation of the version, keepalive, output.
//!
//! The caller hands in received bytes and the time, and takes bytes to send. The session itself answers echo
//! requests and undecodable messages, and passes on all others: all at once ([`Session::input`]), or one by
//! one ([`Session::push_input`], [`Session::next_event`]).
//!
//! Bounds: with the former the session keeps at most one partial message of input, with the latter all input
//! handed in. Output beyond [`Config::max_output_bytes`] is rejected, and ends the session if it is the
//! session's own. A caller that stops reading while [`Session::wants_input`] is false never reaches that. A
//! tap ([`Session::set_tap`]) has its own bound, [`TAP_BYTES`]. Sessions with [`Budgets`] share these as
//! well: a message beyond the output budget is dropped, and ends the session if it is the session's own.
//!
//! It does not connect, and does not interpret roles or messages. Sources: OpenFlow 1.3 §6.3, §7.5.

mod counts;
mod saved;

pub use counts::MessageCounts;
pub use saved::SavedSession;

use crate::budget::{Budgets, Share};
use crate::codec::{HEADER_BYTES, decode_with, encode_with};
use crate::message_log::{Direction, MessageLog};
use crate::msg::Message;
use crate::msg::control::Hello;
use flow::TlvTable;
use ofp_wire::Options;
use ofp_wire::{ErrorBody, ErrorCode, ErrorKind, OfError};
use ofp_wire::{Version, VersionSet};
use std::fmt;
use std::sync::Arc;

/// Maximum capacity kept by an empty buffer.
const SPARE_BYTES: usize = 16 << 10;
/// Maximum unread bytes of a tap; beyond, it is lost.
pub const TAP_BYTES: usize = 4 << 20;

const OFPT_HELLO: u8 = 0;
const OFPT_ERROR: u8 = 1;
const OFPT_ECHO_REQUEST: u8 = 2;
const OFPT_ECHO_REPLY: u8 = 3;

/// Configuration of a session.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Versions to offer.
    pub versions: VersionSet,
    /// Sends an echo request after this much silence; 0 disables it. Without any input for as long again, the
    /// session ends.
    pub probe_interval_ms: u64,
    /// Timeout of the peer's hello.
    pub hello_timeout_ms: u64,
    /// Bytes of output that may wait.
    pub max_output_bytes: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            versions: VersionSet::IMPLEMENTED,
            probe_interval_ms: 5_000,
            hello_timeout_ms: 10_000,
            max_output_bytes: 4 << 20,
        }
    }
}

/// Reason for the end of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CloseReason {
    /// The peer speaks no version that we do.
    #[error("no version in common: we offer {ours}, the peer {theirs}")]
    NoCommonVersion {
        /// Ours.
        ours: VersionSet,
        /// Theirs.
        theirs: VersionSet,
    },
    /// The peer rejected our hello.
    #[error("the peer refused our hello: {0}")]
    HelloRefused(ErrorCode),
    /// The first message was not a hello.
    #[error("the first message was of type {0}, not a hello")]
    NoHello(u8),
    /// The length in a header is below that of the header.
    #[error("a header gives a message length of {0} bytes, less than a header has: not OpenFlow")]
    BadLength(u16),
    /// The peer's hello did not arrive in time.
    #[error("no hello from the peer in time")]
    HelloTimeout,
    /// The peer does not answer.
    #[error("no answer to an echo request: connection idle")]
    ProbeTimeout,
    /// The peer does not read its replies.
    #[error("the peer does not read its answers: too much output waits")]
    OutputOverflow,
    /// All connections together hold too much.
    #[error("all connections together use too much memory")]
    MemoryShort,
}

impl CloseReason {
    /// Whether to close at once, without waiting for the output to be sent.
    pub fn closes_immediately(self) -> bool {
        matches!(self, CloseReason::OutputOverflow | CloseReason::MemoryShort | CloseReason::ProbeTimeout)
    }
}

/// An event for the session's owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The version is agreed.
    Connected(Version),
    /// A message came.
    Message {
        /// Its transaction.
        xid: u32,
        /// It.
        message: Box<Message>,
        /// All its bytes.
        frame: Box<[u8]>,
    },
    /// A message could not be decoded; the peer was sent an error.
    Refused(OfError),
    /// The session ended. Send the remaining output before closing.
    Closed(CloseReason),
}

/// Reason for not sending a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SendError {
    /// No version is agreed yet, or the session is over.
    #[error("the session is not connected")]
    NotConnected,
    /// The output is full.
    #[error("{waiting_bytes} bytes of output wait already")]
    Full {
        /// Bytes waiting.
        waiting_bytes: usize,
    },
    /// All connections together hold too much.
    #[error("the output of all connections together uses too much memory")]
    Short,
    /// The version lacks the message, or it is too long.
    #[error("the message cannot be encoded: {0}")]
    Unencodable(ErrorKind),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    AwaitHello { since_ms: u64 },
    Up(Version),
    Over,
}

/// One connection.
#[derive(Debug)]
pub struct Session {
    config: Config,
    state: State,
    options: Options,
    /// Pending input.
    pending: Vec<u8>,
    /// Processed bytes of `pending`.
    done: usize,
    /// Copies of all messages in both directions, if enabled; `None` inside: too many unread bytes.
    tap: Option<Option<Vec<u8>>>,
    /// Messages for the log.
    log: Option<Box<MessageLog>>,
    output: Vec<u8>,
    /// Bytes of `output` already sent.
    taken: usize,
    /// Place in `output` of the first message that is not counted as sent; behind all that another process put there.
    uncounted: usize,
    counts: MessageCounts,
    next_xid: u32,
    last_input_ms: u64,
    probe_sent_ms: Option<u64>,
    /// Accounts for `pending`.
    input_share: Share,
    /// Accounts for `output` and `tap`.
    output_share: Share,
    /// The session's own message did not fit.
    short: bool,
    /// The peer reads no more: no message is encoded or kept.
    mute: bool,
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.state {
            State::AwaitHello { .. } => f.write_str("awaiting hello"),
            State::Up(v) => write!(f, "connected, {v}"),
            State::Over => f.write_str("over"),
        }
    }
}

impl Session {
    /// A new connection; our hello waits in the output.
    pub fn new(config: Config, now_ms: u64) -> Session {
        Session::sharing(config, now_ms, &Budgets::unbounded())
    }

    /// A new connection with shared memory bounds.
    pub fn sharing(config: Config, now_ms: u64, budgets: &Budgets) -> Session {
        let mut s = Session::closed(config, now_ms, budgets);
        s.state = State::AwaitHello { since_ms: now_ms };
        let xid = s.new_xid();
        s.put(s.highest(), xid, &Message::Hello(Hello { versions: config.versions }));
        s
    }

    /// Its configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Sets [`Config::probe_interval_ms`].
    pub fn set_probe_interval_ms(&mut self, ms: u64) {
        self.config.probe_interval_ms = ms;
    }

    /// Highest version that we offer.
    fn highest(&self) -> Version {
        self.config.versions.highest().unwrap_or(Version::V10)
    }

    /// A transaction id for a message of ours.
    pub fn new_xid(&mut self) -> u32 {
        let xid = self.next_xid;
        self.next_xid = self.next_xid.wrapping_add(1).max(1);
        xid
    }

    /// The version agreed.
    pub fn version(&self) -> Option<Version> {
        match self.state {
            State::Up(v) => Some(v),
            State::AwaitHello { .. } | State::Over => None,
        }
    }

    /// Time of the latest input.
    pub fn last_input_ms(&self) -> u64 {
        self.last_input_ms
    }

    /// Whether the session is over.
    pub fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Bytes to send.
    pub fn output(&self) -> &[u8] {
        &self.output[self.taken..]
    }

    /// Removes `n` sent bytes from the output.
    pub fn consume_output(&mut self, n: usize) {
        self.taken = self.taken.saturating_add(n).min(self.output.len());
        self.count_sent();
        if self.taken > self.output.len() / 2 {
            self.output.drain(..self.taken);
            self.uncounted -= self.taken;
            self.taken = 0;
            trim(&mut self.output);
        }
        self.count_output();
    }

    /// Its share of the input budget.
    pub fn input_share(&self) -> &Share {
        &self.input_share
    }

    /// Its share of the output budget.
    pub fn output_share(&self) -> &Share {
        &self.output_share
    }

    fn count_output(&mut self) {
        let tap = self.tap.as_ref().and_then(Option::as_ref).map_or(0, Vec::len);
        self.output_share.set(self.output.len() + tap);
    }

    /// Appends whole messages to the output, if there is memory for them.
    fn append(&mut self, bytes: &[u8]) -> bool {
        if !self.output_share.try_grow(bytes.len()) {
            return false;
        }
        self.output.extend_from_slice(bytes);
        self.counts.queue(bytes);
        true
    }

    /// Appends the session's own message; ends the session on failure.
    fn append_own(&mut self, bytes: &[u8]) {
        if self.mute {
            return;
        }
        match self.append(bytes) {
            true => self.copy(Direction::Sent, bytes),
            false => self.short = true,
        }
    }

    /// The peer reads no more: discards the output, and all further messages to it before they are encoded.
    pub fn mute(&mut self) {
        (self.mute, self.short) = (true, false);
        (self.output, self.taken, self.uncounted) = (Vec::new(), 0, 0);
        self.count_output();
    }

    /// Whether the peer reads no more.
    pub fn is_mute(&self) -> bool {
        self.mute
    }

    /// Whether there is room for replies to more input. If not, leave it in the socket.
    pub fn wants_input(&self) -> bool {
        !self.is_over() && self.output().len() < self.config.max_output_bytes / 2
    }

    /// Sends a message of ours; its transaction id.
    pub fn send(&mut self, message: &Message) -> Result<u32, SendError> {
        let xid = self.new_xid();
        self.send_with_xid(message, xid)?;
        Ok(xid)
    }

    /// Sends a message with a transaction id, such as a reply. Returns the bytes of output waiting.
    pub fn send_with_xid(&mut self, message: &Message, xid: u32) -> Result<usize, SendError> {
        self.check_room()?;
        if self.mute {
            self.learn_options(message);
            return Ok(0);
        }
        let bytes = self.encode(message, xid)?;
        let waiting_bytes = self.send_encoded(&bytes)?;
        self.learn_options(message);
        Ok(waiting_bytes)
    }

    /// Encodes a message in the agreed version.
    pub fn encode(&self, message: &Message, xid: u32) -> Result<Vec<u8>, SendError> {
        let version = self.version().ok_or(SendError::NotConnected)?;
        encode_with(message, version, xid, &self.options).map_err(SendError::Unencodable)
    }

    /// Sends an encoded message. Returns the bytes of output waiting.
    pub fn send_encoded(&mut self, bytes: &[u8]) -> Result<usize, SendError> {
        self.check_room()?;
        if self.mute {
            return Ok(0);
        }
        if !self.append(bytes) {
            return Err(SendError::Short);
        }
        self.copy(Direction::Sent, bytes);
        Ok(self.output().len())
    }

    fn check_room(&self) -> Result<(), SendError> {
        let waiting_bytes = self.output().len();
        match self.version() {
            None => Err(SendError::NotConnected),
            Some(_) if waiting_bytes >= self.config.max_output_bytes => {
                Err(SendError::Full { waiting_bytes })
            }
            Some(_) => Ok(()),
        }
    }

    /// Negotiated options beyond the version.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Sets the mappings of tunnel metadata for further messages.
    pub fn set_tlv(&mut self, tlv: &Arc<TlvTable>) {
        self.options.tlv = Some(tlv.clone());
    }

    /// Replies to a message with an error. `request` is the rejected message, or its beginning.
    pub fn send_error(&mut self, kind: ErrorKind, request: &[u8]) -> Result<usize, SendError> {
        let e = OfError::about(kind, request);
        self.send_with_xid(&Message::Error(e.to_body()), e.xid)
    }

    fn learn_options(&mut self, message: &Message) {
        if let Message::FlowModTableId(on) = message {
            self.options.table_id_in_command = *on;
        }
    }

    /// Appends the session's own message.
    fn put(&mut self, version: Version, xid: u32, message: &Message) {
        if !self.mute
            && let Ok(bytes) = encode_with(message, version, xid, &self.options)
        {
            self.append_own(&bytes);
        }
    }

    /// Sends already encoded messages, such as copies of another session's; fails if the output is full.
    pub fn send_copies(&mut self, frames: &[u8]) -> Result<(), SendError> {
        let State::Up(_) = self.state else { return Err(SendError::NotConnected) };
        let waiting_bytes = self.output().len();
        if self.mute {
            return Ok(());
        }
        if waiting_bytes + frames.len() > self.config.max_output_bytes {
            return Err(SendError::Full { waiting_bytes });
        }
        if self.append(frames) { Ok(()) } else { Err(SendError::Short) }
    }

    /// Starts or stops copying all messages in both directions.
    pub fn set_tap(&mut self, on: bool) {
        self.tap = match (on, self.tap.take()) {
            (true, None) => Some(Some(Vec::new())),
            (true, tap) => tap,
            (false, _) => None,
        };
        self.count_output();
    }

    /// The copies since the last call, whole messages; `None`: more than [`TAP_BYTES`] accumulated and are
    /// lost. Empty without a tap.
    pub fn take_tap(&mut self) -> Option<Vec<u8>> {
        let copies = match &mut self.tap {
            Some(tap) => tap.replace(Vec::new()),
            None => Some(Vec::new()),
        };
        self.count_output();
        copies
    }

    /// Starts or stops keeping messages for the log; at the start of the session with our hello.
    pub fn set_log(&mut self, on: bool) {
        match (on, &self.log) {
            (true, None) => {
                let mut log = MessageLog::default();
                if matches!(self.state, State::AwaitHello { .. }) && self.taken == 0 {
                    log.add(Direction::Sent, &self.output);
                }
                self.log = Some(Box::new(log));
            }
            (true, Some(_)) => {}
            (false, _) => self.log = None,
        }
    }

    /// The messages since the last call, if they are kept.
    pub fn take_log(&mut self) -> Option<MessageLog> {
        self.log.as_deref_mut().map(std::mem::take)
    }

    fn copy(&mut self, direction: Direction, frame: &[u8]) {
        if let Some(log) = &mut self.log {
            log.add(direction, frame);
        }
        let Some(tap) = &mut self.tap else { return };
        match tap {
            Some(copies)
                if copies.len() + frame.len() <= TAP_BYTES && self.output_share.try_grow(frame.len()) =>
            {
                copies.extend_from_slice(frame);
            }
            tap => {
                *tap = None;
                self.count_output();
            }
        }
    }

    /// Processes received bytes; returns all resulting events.
    pub fn input(&mut self, bytes: &[u8], now_ms: u64) -> Vec<Event> {
        self.push_input(bytes, now_ms);
        std::iter::from_fn(|| self.next_event()).collect()
    }

    /// Queues received bytes for [`Session::next_event`].
    pub fn push_input(&mut self, bytes: &[u8], now_ms: u64) {
        if self.is_over() || bytes.is_empty() {
            return;
        }
        self.last_input_ms = now_ms;
        self.probe_sent_ms = None;
        self.make_room();
        self.pending.extend_from_slice(bytes);
        self.input_share.set(self.pending.len());
    }

    /// Compacts the buffer once the processed part exceeds the rest, so a byte moves only a few times.
    fn make_room(&mut self) {
        if self.done > self.pending.len() / 2 {
            self.pending.drain(..self.done);
            self.done = 0;
            trim(&mut self.pending);
            self.input_share.set(self.pending.len());
        }
    }

    /// Input that waits to be worked on.
    pub fn pending(&self) -> &[u8] {
        &self.pending[self.done..]
    }

    /// Whether a whole message waits to be worked on.
    pub fn has_frame(&self) -> bool {
        let pending = self.pending();
        let len = |head: &[u8]| usize::from(u16::from_be_bytes([head[2], head[3]]));
        !self.is_over() && pending.get(..HEADER_BYTES).is_some_and(|head| len(head) <= pending.len())
    }

    /// Processes input up to the next event; `None` if that needs more input.
    pub fn next_event(&mut self) -> Option<Event> {
        let event = self.find_event();
        if event.is_none() {
            self.make_room();
        }
        event
    }

    fn find_event(&mut self) -> Option<Event> {
        while !self.is_over() {
            if self.short {
                return Some(self.close(CloseReason::MemoryShort));
            }
            if self.output().len() > self.config.max_output_bytes {
                return Some(self.close(CloseReason::OutputOverflow));
            }
            let head: [u8; HEADER_BYTES] = self.pending().get(..HEADER_BYTES)?.try_into().ok()?;
            let len = match self.frame_len(&head) {
                Ok(len) => len,
                Err(event) => return Some(event),
            };
            let frame: Box<[u8]> = self.pending().get(..len)?.into();
            self.done += len;
            if let Some(event) = self.frame(frame) {
                return Some(event);
            }
        }
        None
    }

    /// The length in the header; ends the session if it is invalid.
    fn frame_len(&mut self, head: &[u8; HEADER_BYTES]) -> Result<usize, Event> {
        let len = u16::from_be_bytes([head[2], head[3]]);
        if usize::from(len) < HEADER_BYTES {
            return Err(self.close(CloseReason::BadLength(len)));
        }
        // Does not wait for the rest of a message that is not OpenFlow.
        if matches!(self.state, State::AwaitHello { .. }) && !matches!(head[1], OFPT_HELLO | OFPT_ERROR) {
            return Err(self.refuse_first(head));
        }
        Ok(len.into())
    }

    fn close(&mut self, reason: CloseReason) -> Event {
        self.state = State::Over;
        (self.pending, self.done) = (Vec::new(), 0);
        self.input_share.set(0);
        Event::Closed(reason)
    }

    /// Processes one whole message.
    fn frame(&mut self, frame: Box<[u8]>) -> Option<Event> {
        self.copy(Direction::Received, &frame);
        self.counts.received += 1;
        self.counts.hellos_received += u64::from(frame[1] == OFPT_HELLO);
        match self.state {
            State::AwaitHello { .. } => Some(self.first_frame(&frame)),
            State::Up(version) => self.later_frame(frame, version),
            State::Over => None,
        }
    }

    fn first_frame(&mut self, frame: &[u8]) -> Event {
        let ours = self.config.versions;
        match decode_with(frame, &self.options) {
            Ok((_, _, Message::Hello(hello))) => match ours.and(hello.versions).highest() {
                Some(version) => {
                    self.state = State::Up(version);
                    Event::Connected(version)
                }
                None => {
                    let reason = CloseReason::NoCommonVersion { ours, theirs: hello.versions };
                    let error = ErrorCode::Known(ErrorKind::HfcIncompatible);
                    let data = reason.to_string().into_bytes();
                    let xid = u32::from_be_bytes([frame[4], frame[5], frame[6], frame[7]]);
                    self.put(self.highest(), xid, &Message::Error(ErrorBody { error, data }));
                    self.close(reason)
                }
            },
            Ok((_, _, Message::Error(e))) => self.close(CloseReason::HelloRefused(e.error)),
            _ => self.refuse_first(frame),
        }
    }

    /// Ends a session whose first message is not a hello; `message` is its beginning.
    fn refuse_first(&mut self, message: &[u8]) -> Event {
        let e = OfError::about(ErrorKind::BrcBadType, message);
        self.put(self.highest(), e.xid, &Message::Error(e.to_body()));
        self.close(CloseReason::NoHello(message[1]))
    }

    fn later_frame(&mut self, frame: Box<[u8]>, version: Version) -> Option<Event> {
        let (got, ty) = (Version(frame[0]), frame[1]);
        if got != version {
            return self.other_version(&frame);
        }
        match decode_with(&frame, &self.options) {
            Ok((_, xid, Message::EchoRequest(data))) => {
                self.put(version, xid, &Message::EchoReply(data));
                None
            }
            Ok((_, _, Message::EchoReply(_) | Message::Hello(_))) => None,
            Ok((_, xid, message)) => {
                self.learn_options(&message);
                Some(Event::Message { xid, message: Box::new(message), frame })
            }
            Err(e) => {
                // No error in reply to a reply, or two peers would answer each other forever.
                if ty != OFPT_ERROR && ty != OFPT_HELLO && ty != OFPT_ECHO_REPLY {
                    self.put(version, e.xid, &Message::Error(e.to_body()));
                }
                Some(Event::Refused(e))
            }
        }
    }

    /// Handles a message of a version other than agreed. An echo is answered in its own version, whatever
    /// that is. Others get an error, in their version if it exists, else in OpenFlow 1.0, as in OVS.
    fn other_version(&mut self, frame: &[u8]) -> Option<Event> {
        let (got, ty) = (Version(frame[0]), frame[1]);
        match ty {
            OFPT_ECHO_REQUEST if got.0 != 0 => {
                let mut reply = frame.to_vec();
                reply[1] = OFPT_ECHO_REPLY;
                self.append_own(&reply);
                None
            }
            OFPT_HELLO | OFPT_ERROR | OFPT_ECHO_REPLY => None,
            _ => {
                let e = OfError::about(ErrorKind::BrcBadVersion, frame);
                let known = Version::V10 <= got && got <= Version::V15;
                self.put(if known { got } else { Version::V10 }, e.xid, &Message::Error(e.to_body()));
                Some(Event::Refused(e))
            }
        }
    }

    /// Advances the time: sends an echo request, or ends a silent session.
    pub fn tick(&mut self, now_ms: u64) -> Vec<Event> {
        let mut events = Vec::new();
        if self.next_wakeup_ms().is_none_or(|at| now_ms < at) {
            return events;
        }
        match (self.state, self.probe_sent_ms) {
            (State::AwaitHello { .. }, _) => events.push(self.close(CloseReason::HelloTimeout)),
            (State::Up(_), Some(_)) => events.push(self.close(CloseReason::ProbeTimeout)),
            (State::Up(version), None) => {
                self.probe_sent_ms = Some(now_ms);
                self.put(version, 0, &Message::EchoRequest(Vec::new()));
            }
            (State::Over, _) => {}
        }
        if self.short && !self.is_over() {
            events.push(self.close(CloseReason::MemoryShort));
        }
        events
    }

    /// Time of the next call of [`Session::tick`].
    pub fn next_wakeup_ms(&self) -> Option<u64> {
        match self.state {
            State::AwaitHello { since_ms } => Some(since_ms.saturating_add(self.config.hello_timeout_ms)),
            State::Up(_) if self.config.probe_interval_ms > 0 => Some(
                self.probe_sent_ms
                    .unwrap_or(self.last_input_ms)
                    .saturating_add(self.config.probe_interval_ms),
            ),
            State::Up(_) | State::Over => None,
        }
    }
}

/// Shrinks the capacity of a mostly empty buffer.
fn trim(buffer: &mut Vec<u8>) {
    if buffer.capacity() > SPARE_BYTES && buffer.capacity() / 4 > buffer.len() {
        buffer.shrink_to(2 * buffer.len());
    }
}
