//! Connections on their way to another process: [`Export`] writes them, [`import`] reads them at once, [`Restore`] later.
//!
//! Bytes are blocks of rows. A block lists its fields first, by number and width, so a reader skips fields that it does not
//! know, and gives absent ones their start value. All numbers are little-endian. Times are milliseconds left.
//!
//! | part | bytes |
//! | --- | --- |
//! | magic `SLct`, version, kind, number of fields, number of rows | 4, 2, 1, 1, 4 |
//! | each field: number, words of 8 bytes | 1, 1 |
//! | each row: its fields in this order | 8 a word |
//!
//! A pass visits all records in slices, and holds no lock but that of the record at hand. A later pass of the same
//! [`Export`] has only connections that were made, changed or ended since: the version of a record, which each change
//! counts anyway, tells. A pass for a later process ([`dpif::CtCarry::Kept`]) leaves out connections of which only positions in
//! their data changed, or the deadline by a little; its reader takes the positions from the next segments. Settings stay: limits,
//! timeout policies, the check of sequence numbers. So do counters and fragments.

mod export;
mod import;
mod rows;

pub use export::Export;
pub use import::{Restore, import};

/// Version of the format. A reader takes no other one: additions are fields and kinds.
const VERSION: u16 = 1;
const MAGIC: [u8; 4] = *b"SLct";
/// Bytes of a block before its fields.
const HEAD_BYTES: usize = 12;
/// Bytes of a word.
const WORD: usize = 8;

/// Kinds of blocks; a reader skips others.
mod kind {
    /// Connections of IPv4 and IPv6.
    pub(super) const CONNECTIONS: [u8; 2] = [1, 2];
    /// Original keys of connections that have ended.
    pub(super) const ENDED: [u8; 2] = [3, 4];
    /// Expected connections.
    pub(super) const EXPECTED: [u8; 2] = [5, 6];
}

/// Fields of rows.
mod field {
    /// Key of the original direction; of an expectation, without its source port ([`crate::Key`]).
    pub(super) const ORIG: u8 = 1;
    /// Key of the reply direction.
    pub(super) const REPLY: u8 = 2;
    /// Milliseconds until the end.
    pub(super) const LEFT_MS: u8 = 3;
    /// Stage, translations, relation, helper, policy and mark ([`crate::state::State::pack`]).
    pub(super) const STATE: u8 = 4;
    /// Input port of the first packet.
    pub(super) const PORT: u8 = 5;
    /// Sequence numbers, windows and states of TCP ([`crate::tcp::Tcp::pack`]).
    pub(super) const TCP: u8 = 6;
    /// Labels, high and low half.
    pub(super) const LABELS: u8 = 7;
    /// Shift of TCP numbers by a helper ([`crate::alg::Skew::pack`]).
    pub(super) const SKEW: u8 = 8;
    /// Original key of the parent.
    pub(super) const PARENT: u8 = 9;
    /// Mark of an expected connection.
    pub(super) const MARK: u8 = 10;
    /// Address of its reply tuple, 128 bits; one of IPv4 in the low 32.
    pub(super) const ADDRESS: u8 = 11;
    /// 1: that address is the destination of replies.
    pub(super) const IS_SOURCE: u8 = 12;
}

#[cfg(test)]
mod tests;
