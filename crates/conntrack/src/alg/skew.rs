//! [`Skew`]: how rewritten messages of one direction shift the sequence numbers of a connection.
//!
//! Numbers up to the last rewritten message shift by the growth of earlier ones, numbers behind it by its growth too. So a
//! repeated segment gets the numbers of its first copy. Open vSwitch shifts both by the whole growth.

use crate::tcp::Segment;

/// Bits of [`Skew::before`].
const BEFORE_BITS: u32 = 24;
/// Messages are not rewritten beyond this sum of growths, so that it fits its bits.
const BEFORE_MAX: i32 = 1 << (BEFORE_BITS - 2);

/// See the module. Packed into one word of a record; zero: nothing was rewritten.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Skew {
    /// Sequence number of the last rewritten message, of its sender.
    at: u32,
    /// Growth of the messages before it.
    before: i32,
    /// Its growth, -64 to 63.
    growth: i32,
    /// Direction of the rewritten messages.
    reply: bool,
}

impl Skew {
    pub(crate) fn pack(self) -> u64 {
        let low = |value: i32, bits: u32| u64::from(value as u32 & ((1 << bits) - 1));
        u64::from(self.at) << 32
            | low(self.before, BEFORE_BITS) << 8
            | low(self.growth, 7) << 1
            | u64::from(self.reply)
    }

    pub(crate) fn unpack(word: u64) -> Skew {
        let low = word as u32;
        Skew {
            at: (word >> 32) as u32,
            before: low as i32 >> 8,
            growth: i32::from((low as u8 & 0xfe) as i8 >> 1),
            reply: low & 1 != 0,
        }
    }

    /// Whether a message of that direction may be rewritten.
    pub(crate) fn has_room(self, reply: bool) -> bool {
        let none = self.before == 0 && self.growth == 0;
        none || self.reply == reply && self.before.abs() < BEFORE_MAX
    }

    /// Whether sequence numbers of that direction shift; those of the other one acknowledge them.
    pub(crate) fn shifts(self, reply: bool) -> bool {
        self.reply == reply
    }

    /// Shift of a sequence number of the sender.
    pub(crate) fn forth(self, seq: u32) -> i32 {
        self.before + if (seq.wrapping_sub(self.at) as i32) > 0 { self.growth } else { 0 }
    }

    /// Shift back of a number as the receiver knows it.
    pub(crate) fn back(self, number: u32) -> i32 {
        -self.forth(number.wrapping_add_signed(-self.before))
    }

    /// Notes that a message has been rewritten.
    pub(crate) fn add(&mut self, seq: u32, growth: i32, reply: bool) {
        let is_last = seq == self.at;
        if growth == 0 && !is_last || self.is_older(seq) {
            return;
        }
        if !is_last {
            self.before += self.growth;
        }
        (self.at, self.growth, self.reply) = (seq, growth, reply);
    }

    /// Whether a message was sent before the last rewritten one.
    fn is_older(self, seq: u32) -> bool {
        (self.before != 0 || self.growth != 0) && (seq.wrapping_sub(self.at) as i32) < 0
    }

    /// The segment as its sender's peer would number it without any rewriting: the windows are those of the senders.
    /// `translated`: it has been shifted before.
    pub(crate) fn restore(self, segment: &mut Segment, reply: bool, translated: bool) {
        match (self.shifts(reply), translated) {
            (true, true) => segment.seq = segment.seq.wrapping_add_signed(self.back(segment.seq)),
            (false, false) => segment.ack = segment.ack.wrapping_add_signed(self.back(segment.ack)),
            (true, false) | (false, true) => {}
        }
    }
}

#[cfg(test)]
mod tests;
