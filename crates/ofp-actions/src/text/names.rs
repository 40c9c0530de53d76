//! The names of actions in text.

use crate::action::{Argument, Stage};
use crate::list::{Action, INDEX, NAMES};
use flow::text::Parsed;

/// Unsupported actions of OVS.
pub(crate) const UNSUPPORTED: &[&str] = &["unroll_xlate"];

/// A name of an action in text.
#[derive(Clone, Copy)]
pub(crate) struct NameRow {
    pub(crate) name: &'static str,
    pub(crate) stage: Stage,
    pub(crate) parse: fn(&Argument<'_>, &mut Vec<Action>) -> Parsed<()>,
}

/// Number of names.
pub(crate) const fn count(lists: &[(&[&'static str], NameRow)]) -> usize {
    let (mut n, mut i) = (0, 0);
    while i < lists.len() {
        n += lists[i].0.len();
        i += 1;
    }
    n
}

/// Whether `a` comes before `b`.
const fn precedes(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut i = 0;
    while i < a.len() && i < b.len() {
        if a[i] != b[i] {
            return a[i] < b[i];
        }
        i += 1;
    }
    a.len() < b.len()
}

/// A row for each name, in alphabetical order.
pub(crate) const fn sorted<const N: usize>(lists: &[(&[&'static str], NameRow)]) -> [NameRow; N] {
    let mut out = [lists[0].1; N];
    let (mut n, mut i) = (0, 0);
    while i < lists.len() {
        let mut j = 0;
        while j < lists[i].0.len() {
            let name = lists[i].0[j];
            let row = NameRow { name, ..lists[i].1 };
            let mut at = n;
            while at > 0 && precedes(row.name, out[at - 1].name) {
                out[at] = out[at - 1];
                at -= 1;
            }
            out[at] = row;
            n += 1;
            j += 1;
        }
        i += 1;
    }
    out
}

/// Whether all names are distinct, and differ from those of unsupported actions.
pub(crate) const fn are_distinct(rows: &[NameRow]) -> bool {
    let mut i = 0;
    while i < rows.len() {
        if i > 0 && !precedes(rows[i - 1].name, rows[i].name) {
            return false;
        }
        let mut j = 0;
        while j < UNSUPPORTED.len() {
            let (a, b) = (rows[i].name, UNSUPPORTED[j]);
            if !precedes(a, b) && !precedes(b, a) {
                return false;
            }
            j += 1;
        }
        i += 1;
    }
    true
}

/// Slots of an [`Index`], and bits of a slot's number.
const SLOTS: usize = 1 << SLOT_BITS;
const SLOT_BITS: u32 = 9;

/// A perfect hash of names.
pub(crate) struct Index {
    multiplier: u64,
    /// Indices of rows; [`NO_ROW`] in empty slots.
    places: [u8; SLOTS],
}

const NO_ROW: u8 = u8::MAX;

/// Mixes all bytes of a short name, the first and the last eight of a longer one, ignoring case.
const fn digest(name: &[u8]) -> u64 {
    // The bit that distinguishes lower from upper case.
    const CASE: u64 = 0x2020_2020_2020_2020;
    if let (Some(first), Some(last)) = (name.first_chunk::<8>(), name.last_chunk::<8>()) {
        let (first, last) = (u64::from_le_bytes(*first) | CASE, u64::from_le_bytes(*last) | CASE);
        return first ^ last.rotate_left(23) ^ name.len() as u64;
    }
    let (mut word, mut i) = (0, 0);
    while i < name.len() {
        word = word << 8 | name[i] as u64;
        i += 1;
    }
    word | CASE
}

const fn slot(multiplier: u64, name: &str) -> usize {
    (digest(name.as_bytes()).wrapping_mul(multiplier) >> (u64::BITS - SLOT_BITS)) as usize
}

/// The index of the rows, found by trying multipliers.
pub(crate) const fn index(rows: &[NameRow]) -> Index {
    assert!(rows.len() < NO_ROW as usize, "there are more names than places");
    let (mut multiplier, mut tries) = (0x9e37_79b9_7f4a_7c15_u64, 0);
    while tries < 1000 {
        let (mut places, mut i) = ([NO_ROW; SLOTS], 0);
        while i < rows.len() && places[slot(multiplier, rows[i].name)] == NO_ROW {
            places[slot(multiplier, rows[i].name)] = i as u8;
            i += 1;
        }
        if i == rows.len() {
            return Index { multiplier, places };
        }
        multiplier = multiplier.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(2);
        tries += 1;
    }
    panic!("no multiplier tells the names apart");
}

/// The row of a name, ignoring case.
#[inline]
pub(crate) fn find(name: &str) -> Option<&'static NameRow> {
    let place = INDEX.places[slot(INDEX.multiplier, name)];
    NAMES.get(usize::from(place)).filter(|row| row.name.eq_ignore_ascii_case(name))
}
