//! The tables of wire forms and names: conflicts that do not compile, and lookup of each row.

use crate::list::{NAMES, ROWS};
use crate::rows::{self, Len, Numbering, Row, nx, of10, of11};
use crate::text::names;
use crate::text::names::NameRow;
use crate::{Exit, Stage};
use ofp_wire::Version;

#[test]
fn a_repeated_wire_form_does_not_compile() {
    let read: rows::ReadFn = |_| Ok(Exit.into());
    let any = Len::Min(8);
    let distinct = |a: Row, b: Row| rows::are_distinct(&rows::sorted::<2>(&[&[a], &[b]]));
    let later = of11(5, any, read).within(Version::V12, Version::V13);
    for (a, b, ok) in [
        (of10(5, 8, read), of11(5, any, read), true),
        (of11(5, any, read), of11(6, any, read), true),
        (of11(5, any, read), nx(5, any, read), true),
        (rows::onf(5, any, read), nx(5, any, read), true),
        (of11(5, any, read), rows::instruction(Stage::Goto, 5, any, read), true),
        (of11(5, any, read), of11(5, any, read), false),
        (of11(5, any, read), later, false),
        (later, of11(5, any, read).within(Version::V13, Version::V15), false),
        (later, of11(5, any, read).within(Version::V14, Version::V15), true),
    ] {
        assert_eq!(
            (distinct(a, b), distinct(b, a)),
            (ok, ok),
            "{}.{}, {}.{}",
            a.vendor,
            a.ty,
            b.vendor,
            b.ty
        );
    }
}

#[test]
fn a_repeated_name_does_not_compile() {
    let row = NameRow { name: "", stage: Stage::Apply, parse: |_, _| Ok(()) };
    let distinct = |a: &'static str, b: &'static str| {
        names::are_distinct(&names::sorted::<2>(&[(&[a], row), (&[b], row)]))
    };
    for (a, b, ok) in [
        ("push", "push_vlan", true),
        ("push", "pop", true),
        ("push", "push", false),
        ("push", "unroll_xlate", false),
        ("unroll_xlate", "push", false),
    ] {
        assert_eq!((distinct(a, b), distinct(b, a)), (ok, ok), "{a} {b}");
    }
}

#[test]
fn every_row_is_found_in_its_versions_alone() {
    for row in &ROWS {
        for n in 1..=6 {
            let found = rows::find(row.numbering, row.vendor, row.ty, Version(n));
            let within = (row.first.0..=row.last.0).contains(&n);
            let is_it = found.is_some_and(|f| f.first == row.first);
            assert_eq!(is_it, within, "{}.{} in {}", row.vendor, row.ty, Version(n));
        }
        assert!(rows::find(row.numbering, row.vendor + 1, row.ty, Version::V10).is_none());
    }
    assert!(rows::find(Numbering::Actions, 0, 500, Version::V13).is_none());
    assert!(names::find("").is_none());
    for row in &NAMES {
        assert_eq!(names::find(row.name).map(|r| r.name), Some(row.name));
        assert_eq!(names::find(&row.name.to_ascii_uppercase()).map(|r| r.name), Some(row.name));
        assert!(names::find(&format!("{}x", row.name)).is_none());
    }
}
