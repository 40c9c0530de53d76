//! [`Datum`]: the value of a column, a set of atoms or a map from atom to atom.

use std::fmt;
use std::sync::Arc;

use super::Atom;

/// A column's value: a sorted set without duplicates, or a map sorted by key. Clones are cheap.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Datum(Repr);

// A set of exactly one element is always `One`, so derived equality is equality of values.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Repr {
    One(Atom),
    Set(Arc<[Atom]>),
    Map(Arc<[(Atom, Atom)]>),
}

impl Datum {
    /// A scalar: the set of one element.
    pub fn atom(atom: impl Into<Atom>) -> Self {
        Datum(Repr::One(atom.into()))
    }

    /// The empty set.
    pub fn empty_set() -> Self {
        Datum(Repr::Set(Arc::from([])))
    }

    /// The empty map.
    pub fn empty_map() -> Self {
        Datum(Repr::Map(Arc::from([])))
    }

    /// The set of these atoms; duplicates count once.
    pub fn set<A: Into<Atom>>(atoms: impl IntoIterator<Item = A>) -> Self {
        let mut atoms: Vec<Atom> = atoms.into_iter().map(Into::into).collect();
        atoms.sort_unstable();
        atoms.dedup();
        Datum::from_sorted(atoms)
    }

    /// The set of these atoms, or `None` on a duplicate.
    pub fn distinct_set(mut atoms: Vec<Atom>) -> Option<Self> {
        atoms.sort_unstable();
        let distinct = atoms.windows(2).all(|pair| pair[0] != pair[1]);
        distinct.then(|| Datum::from_sorted(atoms))
    }

    /// The map of these pairs; of equal keys the last one wins.
    pub fn map<K: Into<Atom>, V: Into<Atom>>(pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        let mut pairs: Vec<(Atom, Atom)> = pairs.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
        pairs.reverse();
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        pairs.dedup_by(|later, kept| later.0 == kept.0);
        Datum(Repr::Map(pairs.into()))
    }

    /// The map of these pairs, or `None` on a duplicate key.
    pub fn distinct_map(mut pairs: Vec<(Atom, Atom)>) -> Option<Self> {
        pairs.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let distinct = pairs.windows(2).all(|pair| pair[0].0 != pair[1].0);
        distinct.then(|| Datum(Repr::Map(pairs.into())))
    }

    /// From atoms already sorted and distinct.
    pub(super) fn from_sorted(mut atoms: Vec<Atom>) -> Self {
        if atoms.len() == 1
            && let Some(only) = atoms.pop()
        {
            return Datum(Repr::One(only));
        }
        Datum(Repr::Set(atoms.into()))
    }

    /// From pairs already sorted by distinct keys.
    pub(super) fn from_sorted_pairs(pairs: Vec<(Atom, Atom)>) -> Self {
        Datum(Repr::Map(pairs.into()))
    }

    /// Whether it is a map.
    pub fn is_map(&self) -> bool {
        matches!(self.0, Repr::Map(_))
    }

    /// Its elements in order if it is a set, else none.
    pub fn atoms(&self) -> &[Atom] {
        match &self.0 {
            Repr::One(atom) => std::slice::from_ref(atom),
            Repr::Set(atoms) => atoms,
            Repr::Map(_) => &[],
        }
    }

    /// Its pairs in order of their keys if it is a map, else none.
    pub fn pairs(&self) -> &[(Atom, Atom)] {
        if let Repr::Map(pairs) = &self.0 { pairs } else { &[] }
    }

    /// Its elements, or its keys.
    pub fn keys(&self) -> impl Iterator<Item = &Atom> {
        self.atoms().iter().chain(self.pairs().iter().map(|(key, _)| key))
    }

    /// Number of elements or pairs.
    pub fn len(&self) -> usize {
        self.atoms().len() + self.pairs().len()
    }

    /// Whether it has neither element nor pair.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The only element of a set of one.
    pub fn as_atom(&self) -> Option<&Atom> {
        if let Repr::One(atom) = &self.0 { Some(atom) } else { None }
    }

    /// Whether the atom is an element, or a key.
    pub fn contains(&self, atom: &Atom) -> bool {
        match &self.0 {
            Repr::One(only) => only == atom,
            Repr::Set(atoms) => atoms.binary_search(atom).is_ok(),
            Repr::Map(_) => self.get(atom).is_some(),
        }
    }

    /// The value at a key of a map.
    pub fn get(&self, key: &Atom) -> Option<&Atom> {
        let pairs = self.pairs();
        pairs.binary_search_by(|(k, _)| k.cmp(key)).ok().map(|at| &pairs[at].1)
    }

    /// The elements (called with `None`) or pairs that satisfy `keep`.
    pub(crate) fn retain(&self, mut keep: impl FnMut(&Atom, Option<&Atom>) -> bool) -> Datum {
        if self.is_map() {
            return Datum::from_sorted_pairs(
                self.pairs().iter().filter(|(k, v)| keep(k, Some(v))).cloned().collect(),
            );
        }
        Datum::from_sorted(self.atoms().iter().filter(|atom| keep(atom, None)).cloned().collect())
    }

    /// Whether every element (for maps: every pair) of `other` is in `self`.
    pub fn includes(&self, other: &Datum) -> bool {
        other.atoms().iter().all(|atom| self.contains(atom))
            && other.pairs().iter().all(|(key, value)| self.get(key) == Some(value))
    }

    /// Whether no element (for maps: no pair) of `other` is in `self`.
    pub fn excludes(&self, other: &Datum) -> bool {
        !other.atoms().iter().any(|atom| self.contains(atom))
            && !other.pairs().iter().any(|(key, value)| self.get(key) == Some(value))
    }
}

impl<A: Into<Atom>> From<A> for Datum {
    fn from(atom: A) -> Self {
        Datum::atom(atom)
    }
}

impl fmt::Debug for Datum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::One(atom) => atom.fmt(f),
            Repr::Set(atoms) => f.debug_set().entries(atoms.iter()).finish(),
            Repr::Map(pairs) => f.debug_map().entries(pairs.iter().map(|(k, v)| (k, v))).finish(),
        }
    }
}
