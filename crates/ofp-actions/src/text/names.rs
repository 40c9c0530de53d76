//! The names of actions in text.

use crate::action::{Argument, Stage};
use crate::list::{Action, NAMES};
use crate::rows::{Len, Row, nx, of11};
use flow::text::Parsed;
use ofp_wire::ErrorKind;

/// Actions of OVS that Sluice's switch does not carry out.
pub(crate) const UNSUPPORTED: &[&str] = &[
    "bundle",
    "bundle_load",
    "check_pkt_larger",
    "clone",
    "conjunction",
    "ct",
    "ct_clear",
    "dec_mpls_ttl",
    "dec_nsh_ttl",
    "decap",
    "delete_field",
    "encap",
    "group",
    "multipath",
    "nat",
    "pop_mpls",
    "push_mpls",
    "sample",
    "set_mpls_label",
    "set_mpls_tc",
    "set_mpls_ttl",
    "unroll_xlate",
];

/// Wire forms of unsupported actions whose error is not that of an unknown type. The other unsupported ones (`NXAST_*` 10 to 50,
/// `OFPAT_*` 11 to 20 and 26, 27) are refused as unknown.
pub(crate) const REFUSED_ROWS: &[Row] = &[
    of11(22, Len::Is(8), |_| Err(ErrorKind::BacBadOutGroup)),
    nx(40, Len::Is(16), |_| Err(ErrorKind::BacBadOutGroup)),
];

/// A name under which an action is written.
#[derive(Clone, Copy)]
pub(crate) struct NameRow {
    pub(crate) name: &'static str,
    /// Its first bytes, which mostly decide a comparison.
    pub(crate) start: u64,
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

/// The first eight bytes of a name, zeros behind a shorter one: in the order of the names.
const fn start(name: &str) -> u64 {
    let (bytes, mut word, mut i) = (name.as_bytes(), 0, 0);
    while i < 8 {
        word = word << 8 | if i < bytes.len() { bytes[i] as u64 } else { 0 };
        i += 1;
    }
    word
}

/// A row for each name, in alphabetical order.
pub(crate) const fn sorted<const N: usize>(lists: &[(&[&'static str], NameRow)]) -> [NameRow; N] {
    let mut out = [lists[0].1; N];
    let (mut n, mut i) = (0, 0);
    while i < lists.len() {
        let mut j = 0;
        while j < lists[i].0.len() {
            let name = lists[i].0[j];
            let row = NameRow { name, start: start(name), ..lists[i].1 };
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

/// Whether no two of the sorted rows have the same name, and none that of an unsupported action.
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

/// The row of a name in lower case.
pub(crate) fn find(name: &str) -> Option<&'static NameRow> {
    let start = start(name);
    let order = |row: &NameRow| row.start.cmp(&start).then_with(|| row.name.cmp(name));
    NAMES.binary_search_by(order).ok().map(|i| &NAMES[i])
}
