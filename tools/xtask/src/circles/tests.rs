use super::*;
use crate::tidy::prepare;
use crate::workspace::RustFile;

/// The prepared files of a crate `c`.
fn files(texts: &[(&str, &str)]) -> Vec<File> {
    let file = |(path, text): &(&str, &str)| RustFile {
        package: "c".into(),
        path: format!("crates/c/src/{path}"),
        text: (*text).into(),
    };
    prepare(&texts.iter().map(file).collect::<Vec<_>>())
}

/// All edges of a crate, each `from to`.
fn edges(texts: &[(&str, &str)]) -> Vec<String> {
    let edges = edges_of(&files(texts), "c");
    edges.iter().flat_map(|(from, to)| to.keys().map(move |to| format!("{from} {to}"))).collect()
}

#[test]
fn a_path_to_another_module_is_an_edge() {
    let cases: &[(&str, &str, &[&str])] = &[
        ("a.rs", "use crate::b::X;", &["a b"]),
        ("a.rs", "use crate::{b::X, c};", &["a b", "a c"]),
        ("a.rs", "use super::b;", &["a b"]),
        ("a.rs", "fn f(x: crate::b::X) {}", &["a b"]),
        ("a.rs", "macro_rules! m { () => { $crate::b::x() } }", &["a b"]),
        ("a.rs", "mod inner { use super::b; use super::super::c; }", &["a c"]),
        ("a/deep.rs", "use super::b; use super::super::c;", &["a c"]),
        ("a/mod.rs", "use super::b;", &["a b"]),
        ("a.rs", "use crate::Exported;", &["a b"]),
        ("a.rs", "use crate::Renamed;", &["a c"]),
        ("a.rs", "use crate::a::X; use other::crate_b; // crate::b", &[]),
        ("a.rs", "pub(crate) fn f() {} #[cfg(test)] mod t { use crate::b::X; }", &[]),
        ("a/tests.rs", "use crate::b::X;", &[]),
        ("main.rs", "use crate::b::X;", &[]),
        ("a.rs", "use crate::b::X; impl X { fn f() {} }", &["a b", "b a"]),
        ("a.rs", "use crate::b::X; impl crate::c::T for X { fn f() {} }", &["a b", "a c"]),
    ];
    for (path, text, want) in cases {
        let root = ("lib.rs", "pub use b::Exported; pub use crate::c::{Old as Renamed, Other};");
        let got = edges(&[root, ("a.rs", ""), ("b.rs", ""), ("c.rs", ""), (path, text)]);
        assert_eq!(got, *want, "{path}: {text}");
    }
}

#[test]
fn a_circle_fails_unless_it_is_listed_as_it_is() {
    let sample = files(&[
        ("a.rs", "use crate::b::X;"),
        ("b.rs", "\nuse crate::c::X;"),
        ("c.rs", "use crate::a::X; use crate::d::X;"),
        ("d.rs", ""),
    ]);
    let cases: &[(&[(&str, &[&str])], &[&str])] = &[
        (
            &[],
            &["crate `c`: the modules a, b, c form a circle: a → b (crates/c/src/a.rs:1), \
               b → c (crates/c/src/b.rs:2), c → a (crates/c/src/c.rs:1)"],
        ),
        (&[("c", &["a", "b", "c"])], &[]),
        (
            &[("c", &["a", "b", "c", "d"])],
            &[
                "tools/xtask/src/circles.rs: crate `c`: a circle is smaller than its row: shorten it to a, b, c",
            ],
        ),
        (
            &[("c", &["a", "b", "c"]), ("x", &["y", "z"])],
            &["tools/xtask/src/circles.rs: crate `x`: the modules y, z form no circle: remove the row"],
        ),
    ];
    for (listed, want) in cases {
        assert_eq!(check(&sample, listed, &[]), *want, "{listed:?}");
    }
}

#[test]
fn a_module_uses_its_own_layer_and_lower_ones() {
    let sample = files(&[("a.rs", ""), ("b.rs", "use crate::a::X; use crate::d::X;"), ("d.rs", "")]);
    let cases: &[(&[&[&str]], &[&str])] = &[
        (&[&["a"], &["b", "d"]], &[]),
        (&[&["a", "b"], &["d"]], &["crates/c/src/b.rs:1: `b` may not use `d`, which is in a higher layer"]),
        (
            &[&["a"], &["b"]],
            &["tools/xtask/src/circles.rs: crate `c`: the module `d` has no layer: give it one"],
        ),
        (
            &[&["a", "x"], &["b", "d"]],
            &["tools/xtask/src/circles.rs: crate `c`: there is no module `x`: remove it"],
        ),
    ];
    for (layers, want) in cases {
        assert_eq!(check(&sample, &[], &[("c", layers)]), *want, "{layers:?}");
    }
}
