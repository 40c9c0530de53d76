//! [`Atom`]: one value of one of the five atomic types of RFC 7047 section 3.2.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::{Uuid, format_real};

/// The type of an [`Atom`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AtomicType {
    /// 64-bit signed integer.
    Integer,
    /// Finite double.
    Real,
    /// True or false.
    Boolean,
    /// UTF-8 text without NUL.
    String,
    /// UUID, possibly a reference to a row.
    Uuid,
}

impl AtomicType {
    /// The name in a schema.
    pub fn as_str(self) -> &'static str {
        match self {
            AtomicType::Integer => "integer",
            AtomicType::Real => "real",
            AtomicType::Boolean => "boolean",
            AtomicType::String => "string",
            AtomicType::Uuid => "uuid",
        }
    }

    /// The type of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        [AtomicType::Integer, AtomicType::Real, AtomicType::Boolean, AtomicType::String, AtomicType::Uuid]
            .into_iter()
            .find(|ty| ty.as_str() == name)
    }

    /// Default value of a column of this type (RFC 7047 section 5.2.1).
    pub fn default_atom(self) -> Atom {
        match self {
            AtomicType::Integer => Atom::Integer(0),
            AtomicType::Real => Atom::Real(0.0),
            AtomicType::Boolean => Atom::Boolean(false),
            AtomicType::String => Atom::String(Arc::from("")),
            AtomicType::Uuid => Atom::Uuid(Uuid::ZERO),
        }
    }
}

/// One value. Clones are cheap. Totally ordered: by type, then by value (strings by bytes, reals with -0 equal to 0).
#[derive(Clone)]
pub enum Atom {
    /// 64-bit signed integer.
    Integer(i64),
    /// Double.
    Real(f64),
    /// True or false.
    Boolean(bool),
    /// Text.
    String(Arc<str>),
    /// UUID.
    Uuid(Uuid),
}

impl Atom {
    /// A string atom.
    pub fn string(text: impl AsRef<str>) -> Self {
        Atom::String(Arc::from(text.as_ref()))
    }

    /// Its type.
    pub fn atomic_type(&self) -> AtomicType {
        match self {
            Atom::Integer(_) => AtomicType::Integer,
            Atom::Real(_) => AtomicType::Real,
            Atom::Boolean(_) => AtomicType::Boolean,
            Atom::String(_) => AtomicType::String,
            Atom::Uuid(_) => AtomicType::Uuid,
        }
    }

    /// The integer, if it is one.
    pub fn as_integer(&self) -> Option<i64> {
        if let Atom::Integer(n) = self { Some(*n) } else { None }
    }

    /// The real, if it is one.
    pub fn as_real(&self) -> Option<f64> {
        if let Atom::Real(x) = self { Some(*x) } else { None }
    }

    /// The boolean, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        if let Atom::Boolean(b) = self { Some(*b) } else { None }
    }

    /// The text, if it is a string.
    pub fn as_str(&self) -> Option<&str> {
        if let Atom::String(s) = self { Some(s) } else { None }
    }

    /// The UUID, if it is one.
    pub fn as_uuid(&self) -> Option<Uuid> {
        if let Atom::Uuid(u) = self { Some(*u) } else { None }
    }
}

fn plain_zero(x: f64) -> f64 {
    if x == 0.0 { 0.0 } else { x }
}

impl Ord for Atom {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Atom::Integer(a), Atom::Integer(b)) => a.cmp(b),
            (Atom::Real(a), Atom::Real(b)) => plain_zero(*a).total_cmp(&plain_zero(*b)),
            (Atom::Boolean(a), Atom::Boolean(b)) => a.cmp(b),
            (Atom::String(a), Atom::String(b)) => a.cmp(b),
            (Atom::Uuid(a), Atom::Uuid(b)) => a.cmp(b),
            _ => self.atomic_type().cmp(&other.atomic_type()),
        }
    }
}

impl PartialOrd for Atom {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Atom {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Atom::String(a), Atom::String(b)) => Arc::ptr_eq(a, b) || a == b,
            _ => self.cmp(other) == Ordering::Equal,
        }
    }
}

impl Eq for Atom {}

impl Hash for Atom {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.atomic_type().hash(state);
        match self {
            Atom::Integer(n) => n.hash(state),
            Atom::Real(x) => plain_zero(*x).to_bits().hash(state),
            Atom::Boolean(b) => b.hash(state),
            Atom::String(s) => s.hash(state),
            Atom::Uuid(u) => u.hash(state),
        }
    }
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Atom::Integer(n) => write!(f, "{n}"),
            Atom::Real(x) => f.write_str(&format_real(*x)),
            Atom::Boolean(b) => write!(f, "{b}"),
            Atom::String(s) => f.write_str(s),
            Atom::Uuid(u) => write!(f, "{u}"),
        }
    }
}

impl fmt::Debug for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Atom::String(s) => write!(f, "{s:?}"),
            other => fmt::Display::fmt(other, f),
        }
    }
}

impl From<i64> for Atom {
    fn from(n: i64) -> Self {
        Atom::Integer(n)
    }
}
impl From<f64> for Atom {
    fn from(x: f64) -> Self {
        Atom::Real(x)
    }
}
impl From<bool> for Atom {
    fn from(b: bool) -> Self {
        Atom::Boolean(b)
    }
}
impl From<&str> for Atom {
    fn from(s: &str) -> Self {
        Atom::string(s)
    }
}
impl From<String> for Atom {
    fn from(s: String) -> Self {
        Atom::String(Arc::from(s))
    }
}
impl From<Uuid> for Atom {
    fn from(u: Uuid) -> Self {
        Atom::Uuid(u)
    }
}
