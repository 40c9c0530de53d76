//! Copies of a session's messages for the log of the daemon, bounded by [`LOG_BYTES`] and [`MESSAGE_BYTES`].

/// Maximum bytes kept between two calls of [`Session::take_log`](crate::session::Session::take_log).
pub const LOG_BYTES: usize = 1 << 20;
/// Maximum bytes kept of one message.
pub const MESSAGE_BYTES: usize = 64 << 10;

/// Direction of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the peer.
    Received,
    /// To the peer.
    Sent,
}

/// Messages of a session, in order.
#[derive(Debug, Default)]
pub struct MessageLog {
    /// Whole messages, or their beginnings.
    pub messages: Vec<(Direction, Box<[u8]>)>,
    /// Messages beyond the limit.
    pub left_out: u64,
    bytes: usize,
}

impl MessageLog {
    /// Adds a message, if there is room.
    pub(crate) fn add(&mut self, direction: Direction, frame: &[u8]) {
        let kept = &frame[..frame.len().min(MESSAGE_BYTES)];
        if self.bytes + kept.len() > LOG_BYTES {
            self.left_out += 1;
            return;
        }
        self.bytes += kept.len();
        self.messages.push((direction, kept.into()));
    }
}
