//! Structure of the message table; `messages` and `multipart` have its rows.
//!
//! If a kind has several forms in a version, the standard one is first; [`Format`] selects among them.

use super::{messages, multipart};
use crate::msg::{Format, Kind, Message, Multi};
use ofp_wire::{NX_VENDOR, ONF_VENDOR};
use ofp_wire::{Reader, Res, Version, Writer};

/// The id of a message on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Id {
    /// A type in the header.
    Of(u8),
    /// A multipart type.
    Mp { ty: u16, reply: bool },
    /// An experimenter's message.
    Exp(u32, u32),
    /// An experimenter's multipart message.
    ExpMp { vendor: u32, subtype: u32, reply: bool },
}

/// Valid lengths of a body.
#[derive(Clone, Copy)]
pub(super) enum Len {
    /// Exactly that many bytes.
    Is(usize),
    /// At least that many.
    Min(usize),
    /// A fixed part and any number of elements of the given size.
    Array(usize, usize),
}

impl Len {
    pub(super) fn holds(self, len: usize) -> bool {
        match self {
            Len::Is(n) => len == n,
            Len::Min(n) => len >= n,
            Len::Array(base, element) => len >= base && (len - base).is_multiple_of(element),
        }
    }
}

/// A message kind's wire form in a range of versions.
pub(super) struct Row {
    pub(super) kind: Kind,
    pub(super) format: Format,
    pub(super) id: Id,
    pub(super) first: Version,
    pub(super) last: Version,
    pub(super) len: Len,
    pub(super) decode: fn(&mut Reader<'_>) -> Res<Message>,
    pub(super) encode: fn(&Message, &mut Writer),
    pub(super) more: fn(&Message) -> bool,
}

impl Row {
    pub(super) fn in_version(&self, version: Version) -> bool {
        (self.first..=self.last).contains(&version)
    }

    /// Whether the message is a part followed by more.
    pub(super) fn more(&self, message: &Message) -> bool {
        (self.more)(message)
    }
}

/// All rows.
pub(super) fn rows() -> impl Iterator<Item = &'static Row> {
    messages::ROWS.iter().chain(multipart::ROWS)
}

/// Versions of a row.
pub(super) type Range = (Version, Version);
pub(super) const ALL: Range = (Version::V10, Version::V15);
pub(super) const V10: Range = (Version::V10, Version::V10);
pub(super) const V10_TO_11: Range = (Version::V10, Version::V11);
pub(super) const V10_TO_12: Range = (Version::V10, Version::V12);
pub(super) const V10_TO_13: Range = (Version::V10, Version::V13);
pub(super) const V10_TO_14: Range = (Version::V10, Version::V14);
pub(super) const V11: Range = (Version::V11, Version::V11);
pub(super) const V11_TO_12: Range = (Version::V11, Version::V12);
pub(super) const V11_TO_13: Range = (Version::V11, Version::V13);
pub(super) const V11_TO_14: Range = (Version::V11, Version::V14);
pub(super) const SINCE_V11: Range = (Version::V11, Version::V15);
pub(super) const V12: Range = (Version::V12, Version::V12);
pub(super) const SINCE_V12: Range = (Version::V12, Version::V15);
pub(super) const V13: Range = (Version::V13, Version::V13);
pub(super) const SINCE_V13: Range = (Version::V13, Version::V15);
pub(super) const SINCE_V14: Range = (Version::V14, Version::V15);
pub(super) const V15: Range = (Version::V15, Version::V15);

pub(super) fn read_multi<T>(
    r: &mut Reader<'_>,
    format: Format,
    read: fn(&mut Reader<'_>) -> Res<T>,
) -> Res<Multi<T>> {
    let mut entries = Vec::new();
    while !r.is_empty() {
        entries.push(read(r)?);
    }
    Ok(Multi { entries, more: r.more, format })
}

pub(super) fn put_multi<T>(m: &Multi<T>, w: &mut Writer, put: fn(&mut Writer, &T)) {
    for e in &m.entries {
        w.entry(|w| put(w, e));
    }
}

pub(super) const fn exp(subtype: u32) -> Id {
    Id::Exp(NX_VENDOR, subtype)
}

pub(super) const fn onf(subtype: u32) -> Id {
    Id::Exp(ONF_VENDOR, subtype)
}

pub(super) const fn mp(ty: u16, reply: bool) -> Id {
    Id::Mp { ty, reply }
}

pub(super) const fn exp_mp(subtype: u32, reply: bool) -> Id {
    Id::ExpMp { vendor: NX_VENDOR, subtype, reply }
}

pub(super) const fn onf_mp(subtype: u32, reply: bool) -> Id {
    Id::ExpMp { vendor: ONF_VENDOR, subtype, reply }
}

/// A message without a body.
macro_rules! void {
    ($kind:ident, $id:expr, $versions:expr) => {
        Row {
            kind: Kind::$kind,
            format: Format::Standard,
            id: $id,
            first: $versions.0,
            last: $versions.1,
            len: Len::Is(0),
            decode: |_| Ok(Message::$kind),
            encode: |_, _| {},
            more: |_| false,
        }
    };
}

/// A message with a body.
macro_rules! body {
    ($kind:ident, $format:ident, $id:expr, $versions:expr, $len:expr, $decode:expr, $encode:expr) => {
        Row {
            kind: Kind::$kind,
            format: Format::$format,
            id: $id,
            first: $versions.0,
            last: $versions.1,
            len: $len,
            decode: |r| $decode(r).map(Message::$kind),
            encode: |m, w| {
                if let Message::$kind(m) = m {
                    $encode(m, w);
                }
            },
            more: |_| false,
        }
    };
}

/// A multipart message of entries.
macro_rules! multi {
    ($kind:ident, $format:ident, $id:expr, $versions:expr, $len:expr, $read:expr, $put:expr) => {
        Row {
            kind: Kind::$kind,
            format: Format::$format,
            id: $id,
            first: $versions.0,
            last: $versions.1,
            len: $len,
            decode: |r| read_multi(r, Format::$format, $read).map(Message::$kind),
            encode: |m, w| {
                if let Message::$kind(m) = m {
                    put_multi(m, w, $put);
                }
            },
            more: |m| matches!(m, Message::$kind(m) if m.more),
        }
    };
}

pub(super) use {body, multi, void};
