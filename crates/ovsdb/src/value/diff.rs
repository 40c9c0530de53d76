//! Differences between two values of one column, as in `update2` notifications (ovsdb-server(7), section
//! 4.1.14) and log records marked `_is_diff`.
//!
//! For a column with at most one atom, the new value. For a set, the elements in exactly one of the two. For
//! a map, pairs whose key is in exactly one of the two, and new pairs with changed values.

use std::cmp::Ordering;

use super::{Atom, Datum};

/// The argument of [`apply_diff`] that turns `old` into `new`. `single`: the column has at most one atom.
pub fn diff(old: &Datum, new: &Datum, single: bool) -> Datum {
    if single {
        return new.clone();
    }
    if new.is_map() {
        return Datum::from_sorted_pairs(merge(old.pairs(), new.pairs(), |old, new| {
            (old.1 != new.1).then(|| new.clone())
        }));
    }
    Datum::from_sorted(merge(old.atoms(), new.atoms(), |_, _| None))
}

/// Applies `difference` to `old`.
pub fn apply_diff(old: &Datum, difference: &Datum, single: bool) -> Datum {
    if single {
        return difference.clone();
    }
    if difference.is_map() {
        // A pair in both is a removal; a key in both with another value is a change.
        return Datum::from_sorted_pairs(merge(old.pairs(), difference.pairs(), |old, change| {
            (old.1 != change.1).then(|| change.clone())
        }));
    }
    Datum::from_sorted(merge(old.atoms(), difference.atoms(), |_, _| None))
}

/// Everything in either; of a key in both, the pair of `old`.
pub(crate) fn union(old: &Datum, more: &Datum) -> Datum {
    if old.is_map() {
        return Datum::from_sorted_pairs(merge(old.pairs(), more.pairs(), |old, _| Some(old.clone())));
    }
    Datum::from_sorted(merge(old.atoms(), more.atoms(), |old, _| Some(old.clone())))
}

trait Keyed: Clone {
    fn key(&self) -> &Atom;
}

impl Keyed for Atom {
    fn key(&self) -> &Atom {
        self
    }
}

impl Keyed for (Atom, Atom) {
    fn key(&self) -> &Atom {
        &self.0
    }
}

/// Merges two sorted sequences: elements in exactly one of them, and the result of `both` for a key in both.
fn merge<T: Keyed>(a: &[T], b: &[T], both: impl Fn(&T, &T) -> Option<T>) -> Vec<T> {
    let (mut i, mut j) = (0, 0);
    let mut out = Vec::new();
    while i < a.len() && j < b.len() {
        match a[i].key().cmp(b[j].key()) {
            Ordering::Less => {
                out.push(a[i].clone());
                i += 1;
            }
            Ordering::Greater => {
                out.push(b[j].clone());
                j += 1;
            }
            Ordering::Equal => {
                out.extend(both(&a[i], &b[j]));
                i += 1;
                j += 1;
            }
        }
    }
    out.extend_from_slice(&a[i..]);
    out.extend_from_slice(&b[j..]);
    out
}
