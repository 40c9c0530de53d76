//! [`MessageCounts`]: counters of messages.

use super::{HEADER_BYTES, OFPT_HELLO, Session};

/// Messages of sessions. Hellos are counted apart, as in stock switches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MessageCounts {
    /// Messages received.
    pub received: u64,
    /// Hellos received.
    pub hellos_received: u64,
    /// Messages put into the output.
    pub queued: u64,
    /// Messages taken from the output, at least their beginning.
    pub sent: u64,
    /// Hellos taken from the output.
    pub hellos_sent: u64,
    /// Messages that waited in the output as their session ended.
    pub discarded: u64,
}

impl MessageCounts {
    /// Adds the counts of other sessions.
    pub fn add(&mut self, other: &MessageCounts) {
        self.received += other.received;
        self.hellos_received += other.hellos_received;
        self.queued += other.queued;
        self.sent += other.sent;
        self.hellos_sent += other.hellos_sent;
        self.discarded += other.discarded;
    }

    /// Counts messages put into the output.
    pub(super) fn queue(&mut self, mut bytes: &[u8]) {
        while let Some((ty, len)) = kind_and_len(bytes) {
            self.queued += u64::from(ty != OFPT_HELLO);
            bytes = bytes.get(len..).unwrap_or_default();
        }
    }

    /// The counts of an ended session.
    pub fn ended(self) -> MessageCounts {
        MessageCounts { discarded: self.queued - self.sent, ..self }
    }
}

impl Session {
    /// Counts the messages whose beginning was sent.
    pub(super) fn count_sent(&mut self) {
        while self.uncounted < self.taken {
            let Some((ty, len)) = kind_and_len(&self.output[self.uncounted..]) else {
                self.uncounted = self.taken;
                return;
            };
            self.uncounted += len;
            if ty == OFPT_HELLO { self.counts.hellos_sent += 1 } else { self.counts.sent += 1 }
        }
    }

    /// Messages so far.
    pub fn counts(&self) -> MessageCounts {
        self.counts
    }
}

/// Type and length of the message at the beginning of these bytes; `None` where they do not begin with one.
fn kind_and_len(bytes: &[u8]) -> Option<(u8, usize)> {
    let head = bytes.get(..HEADER_BYTES)?;
    let len = usize::from(u16::from_be_bytes([head[2], head[3]]));
    (len >= HEADER_BYTES).then_some((head[1], len))
}
