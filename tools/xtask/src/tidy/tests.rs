use super::*;
use crate::workspace::Member;

fn file(package: &str, path: &str, text: &str) -> RustFile {
    RustFile { package: package.into(), path: path.into(), text: text.into() }
}

/// One source file of the crate `flow`.
fn flow(text: &str) -> Vec<File> {
    prepare(&[file("flow", "crates/flow/src/a.rs", text)])
}

/// Runs `rule` on each sample of `package`; the problems must be on the given lines, and none elsewhere.
fn table(package: &str, rule: fn(&[File]) -> Vec<String>, cases: &[(&str, &[usize])]) {
    for (text, lines) in cases {
        let path = format!("crates/{package}/src/a.rs");
        let problems = rule(&prepare(&[file(package, &path, text)]));
        let got: Vec<usize> = problems
            .iter()
            .map(|p| p[path.len() + 1..].split(':').next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(got, *lines, "{text}\n{problems:?}");
    }
}

#[test]
fn test_code_is_distinguished_from_shipped_code() {
    let files = prepare(&[
        file(
            "flow",
            "crates/flow/src/lib.rs",
            "#[cfg(test)]\nmod props;\nfn a() {}\n#[cfg(test)]\n#[x]\nmod t {\n}\nfn b() {}",
        ),
        file("flow", "crates/flow/src/props.rs", ""),
        file("flow", "crates/flow/src/props/more.rs", ""),
        file(
            "flow",
            "crates/flow/src/key.rs",
            "#[cfg(all(test, unix))] mod sub; #[cfg(not(test))] mod real;",
        ),
        file("flow", "crates/flow/src/key/sub.rs", ""),
        file("flow", "crates/flow/src/key/real.rs", ""),
        file("flow", "crates/flow/src/key/tests.rs", ""),
        file("flow", "crates/flow/tests/wire.rs", ""),
    ]);
    let tests: Vec<&str> =
        files.iter().filter(|f| f.is_test()).map(|f| &f.path["crates/flow/".len()..]).collect();
    assert_eq!(
        tests,
        ["src/props.rs", "src/props/more.rs", "src/key/sub.rs", "src/key/tests.rs", "tests/wire.rs"]
    );
    let marked: Vec<usize> = (1..=8).filter(|l| files[0].in_tests(*l)).collect();
    assert_eq!(marked, [1, 2, 4, 5, 6, 7]);
}

#[test]
fn lengths() {
    let function = |lines: usize| format!("fn long() {{{}}}\n", "\n".repeat(lines - 1));
    let check = |text: &str, list: &str| length::check(&flow(text), list).join("; ");
    assert_eq!(check(&function(80), ""), "");
    assert!(check(&function(81), "").contains("crates/flow/src/a.rs:1: function of 81 lines, limit 80"));
    assert_eq!(check(&"\n".repeat(700), ""), "");
    assert!(check(&"\n".repeat(701), "").contains("a.rs:1: file of 701 lines, limit 700"));
    assert!(
        check(&format!("trait T {{\nfn a(x: [u8; 2]);\n{}}}", function(81)), "").contains("a.rs:3: function")
    );
}

#[test]
fn functions_that_only_dispatch_may_be_long() {
    let arms = "A => a(),\n".repeat(90);
    let check = |body: &str| length::check(&flow(&format!("fn long(x: [u8; 2]) {{\n{body}\n}}\n")), "");
    assert_eq!(check(&format!("match x {{\n{arms}}}")), Vec::<String>::new());
    assert_eq!(check(&format!("match x(&Y) {{\n{arms}B => {{\nb(c, d)\n}}\n}}")), Vec::<String>::new());
    for more in [
        format!("match x {{\n{arms}B => {{ a(); b() }}\n}}"),
        format!("let y = z;\nmatch x {{\n{arms}}}"),
        format!("match x {{\n{arms}}}.b()"),
        format!("match x {{\n{arms}}}\nb()"),
        format!("if x {{\n{arms}}}"),
        "a()\n".repeat(90),
    ] {
        assert_eq!(check(&more).len(), 1, "{more}");
    }
}

#[test]
fn length_exceptions_are_held_and_only_shrink() {
    let long = format!("fn long() {{{}}}\n", "\n".repeat(99));
    let check = |text: &str, list: &str| length::check(&flow(text), list).join("; ");
    let entry = "fn crates/flow/src/a.rs:long 100 one table\n";
    assert_eq!(check(&long, &format!("# why\n\n{entry}")), "");
    assert!(check(&long, &entry.replace("100", "99")).contains("function of 100 lines, limit 99"));
    assert!(
        check("fn long() {}", entry)
            .contains("tidy-exceptions.txt:1: `fn crates/flow/src/a.rs:long` needs no")
    );
    assert!(check("", "file crates/gone.rs 900 gone\n").contains("needs no exception"));
    assert!(check(&long, &format!("{entry}{entry}")).contains("listed twice"));
    for bad in ["fn crates/flow/src/a.rs:long 100", "function a 1 x", "fn a many x"] {
        assert!(check("", bad).contains("tidy-exceptions.txt:1: not"), "{bad}");
    }
}

#[test]
fn unsafe_stays_in_its_rooms() {
    let reasons: &[(&str, &[usize])] = &[
        ("// SAFETY: fine\nunsafe { a() }", &[]),
        ("unsafe { a() } // SAFETY: fine", &[]),
        ("unsafe {\n    // SAFETY: fine\n    a() }", &[]),
        ("// SAFETY: a long\n// reason\nlet x = f(\n1,\nunsafe { a() });", &[]),
        ("/// # Safety\n/// the caller\npub unsafe fn a() {}", &[]),
        ("type F = unsafe extern \"C\" fn(i32); type G = unsafe fn();", &[]),
        ("// about unsafe code, \"unsafe\"\nlet s = \"unsafe\";", &[]),
        ("unsafe { a() }", &[1]),
        ("// fine, really\nunsafe impl Send for A {}", &[2]),
        ("// SAFETY: far\na();\nb();\nc();\nd();\ne();\nunsafe { f() }", &[7]),
    ];
    table("sys", unsafety::check_use, reasons);
    table(
        "flow",
        unsafety::check_use,
        &[("// SAFETY: no\nunsafe { a() }", &[2]), ("#![forbid(unsafe_code)]", &[])],
    );
}

#[test]
fn safe_crates_forbid_unsafe() {
    let member = |name: &str| Member {
        name: name.into(),
        dir: format!("crates/{name}"),
        roots: vec![format!("crates/{name}/src/lib.rs")],
        deps: vec![],
    };
    let check = |name: &str, text: &str| {
        let files = prepare(&[file(name, &format!("crates/{name}/src/lib.rs"), text)]);
        unsafety::check_forbidden(&[member(name)], &files)
    };
    assert_eq!(check("flow", "//! x\n#![forbid(unsafe_code)]"), Vec::<String>::new());
    assert_eq!(check("sys", ""), Vec::<String>::new());
    for bad in ["", "// #![forbid(unsafe_code)]", "#![deny(unsafe_code)]"] {
        assert_eq!(
            check("flow", bad),
            ["crates/flow/src/lib.rs:1: `#![forbid(unsafe_code)]` is missing"],
            "{bad}"
        );
    }
}

#[test]
fn the_pure_core_is_pure() {
    let cases: &[(&str, &[usize])] = &[
        ("let t = Instant::now();", &[1]),
        ("use std::time::SystemTime;\nlet t = std::time::SystemTime::now();", &[2]),
        ("use std::fs;", &[1]),
        ("use std::{\n  fmt,\n  fs::{self, File},\n  net::Ipv4Addr,\n  process::Command,\n};", &[3, 3, 5]),
        ("let f = ::std::fs::read(\"x\");", &[1]),
        ("use std::net::{Ipv4Addr, IpAddr}; fn f(a: std::net::SocketAddr) {}", &[]),
        ("use std::net::{Ipv4Addr, UdpSocket};", &[1]),
        ("use std::net::*;", &[1]),
        ("std::thread::spawn(f); use std::thread;\nthread::spawn(f)", &[1, 1, 1, 2]),
        ("std::process::exit(1)", &[1]),
        ("Uuid::new_v4()", &[1]),
        ("println!(\"x\")", &[1]),
        ("write!(f, \"std::fs\") // std::fs", &[]),
        ("use std::time::{Duration, Instant}; fn f(now: Instant) {}", &[]),
        ("#[cfg(test)]\nmod tests {\n use std::fs;\n}\n", &[]),
    ];
    table("flow", purity::check, cases);
    table("dpif-netdev", purity::check, &[("use std::fs; let t = Instant::now();", &[])]);
    let tests = prepare(&[file("flow", "crates/flow/src/a/tests.rs", "use std::fs;")]);
    assert_eq!(purity::check(&tests), Vec::<String>::new());
}

#[test]
fn pure_crates_share_their_clippy_settings() {
    let root = std::env::temp_dir().join(format!("xtask-clippy-{}", std::process::id()));
    std::fs::create_dir_all(root.join("tools/xtask")).unwrap();
    std::fs::create_dir_all(root.join("crates/flow")).unwrap();
    let members =
        vec![Member { name: "flow".into(), dir: "crates/flow".into(), roots: vec![], deps: vec![] }];
    let workspace = Workspace { root: root.clone(), members };
    let unread = purity::check_clippy_conf(&workspace);
    std::fs::write(root.join("tools/xtask/clippy-pure.toml"), "a = 1").unwrap();
    let missing = purity::check_clippy_conf(&workspace);
    std::fs::write(root.join("crates/flow/clippy.toml"), "a = 2").unwrap();
    let other = purity::check_clippy_conf(&workspace);
    std::fs::write(root.join("crates/flow/clippy.toml"), "a = 1").unwrap();
    let same = purity::check_clippy_conf(&workspace);
    std::fs::remove_dir_all(&root).unwrap();
    assert!(unread[0].contains("cannot be read"));
    assert!(missing[0].contains("must be a link") && other[0].contains("must be a link"));
    assert_eq!(same, Vec::<String>::new());
}

#[test]
fn nothing_half_done() {
    let cases: &[(&str, &[usize])] = &[
        ("fn a() {\n    todo!()\n}", &[2]),
        ("unimplemented!(\"x\"); dbg!(1);", &[1, 1]),
        ("let dbg = 1; if dbg != 2 {}", &[]),
        ("\"todo!()\"; // todo!()", &[]),
        ("// TODO: later", &[1]),
        ("/* x\n FIXME */", &[2]),
        ("// XXX", &[1]),
        ("// TODO(): later", &[1]),
        ("// TODO(ann): later", &[]),
        ("// `TODO` is a word; TODOS, myTODO_list too; xxx", &[]),
    ];
    table("dpif-netdev", markers::check, cases);
}

#[test]
fn telltale_phrases_are_refused() {
    let cases: &[(&str, &[usize])] = &[
        ("/// Sends so often.", &[1]),
        ("// The daemon was told\n// by a client.", &[1]),
        ("//! A port, and\n//! who makes it: Who Asks?", &[2, 2]),
        ("// The port that nobody\n// knows.", &[1]),
        ("// Nobody\n\n// knows.", &[]),
        ("/* x\n nobody knows */", &[2]),
        ("let x = was_told; // `was told` is code; who `x` makes", &[]),
        ("const X: &str = \"the port was told\";\nconst Y: &str = \"`was told`\";", &[1]),
        ("f(\"{what} comes from {x}\", \"what comes\", \"{x} makes no sense: {y}\");", &[1]),
        ("#[cfg(test)]\nmod t {\nconst X: &str = \"the port was told\";\n}", &[]),
        ("// Forgot so oftentimes; retells of nothing.", &[]),
    ];
    table("flow", phrases::check, cases);
}

#[test]
fn openings_without_a_subject_are_refused() {
    let cases: &[(&str, &[usize])] = &[
        ("/// Of each port.", &[1]),
        ("/// A port. That of\n/// the bridge.", &[1]),
        ("/// A port.\n/// Those of others.\n///\n/// What it does.", &[2, 4]),
        ("//! - Who makes it.\n//! - The same, twice.", &[1, 2]),
        ("// The same for\n// others. The same.", &[1, 2]),
        ("// The same port; the same as what comes of that", &[]),
        ("/// A number\n/// Of ports. `x`. `What` it is. Its port.", &[]),
        ("// A port\n\n// Of", &[3]),
        ("const X: &str = \"bad port. What is it\";\nconst Y: &str = \"Of\";", &[1]),
        ("#[cfg(test)]\nmod t {\nconst X: &str = \"Of a port\";\n}", &[]),
        ("/* A port.\nThe same again. */", &[2]),
    ];
    table("flow", openings::check, cases);
}

#[test]
fn files_open_with_their_page() {
    let cases: &[(&str, &[usize])] = &[
        ("//! What for.\nuse a;", &[]),
        ("#![forbid(unsafe_code)]\n//! What for.\nuse a;", &[]),
        ("// Copyright\n//! What for.\nuse a;", &[]),
        ("//! Only a page.", &[]),
        ("", &[1]),
        ("//!\nuse a;", &[1]),
        ("/// What for.\nuse a;", &[1]),
        ("use a;\n//! late", &[1]),
    ];
    table("flow", docs::check, cases);
    let tests = prepare(&[file("flow", "crates/flow/src/a/tests.rs", "use super::*;")]);
    assert_eq!(docs::check(&tests), Vec::<String>::new());
}

#[test]
fn fuzz_targets_are_in_the_table() {
    let text = "pub fn one(bytes: &[u8]) {}\npub fn helper(bytes: &[u8]) -> u8 { 0 }\nfn own(bytes: &[u8]) {}\n\
        pub fn two(bytes: &[u8]) {}\n#[cfg(test)]\nmod t { pub fn three(bytes: &[u8]) {} }";
    let files =
        prepare(&[file("flow", "crates/flow/src/fuzz.rs", text), file("flow", "crates/flow/src/a.rs", text)]);
    assert_eq!(fuzzing::check(&files, "flow::fuzz::one, flow::fuzz::two,"), Vec::<String>::new());
    let problems = fuzzing::check(&files, "flow::fuzz::one, flow::fuzz::two_more,");
    assert_eq!(problems.len(), 1);
    assert!(problems[0].starts_with("crates/flow/src/fuzz.rs:4: the target `two`"), "{problems:?}");
}

#[test]
fn links_lead_to_files_and_headings() {
    let other = links::Page {
        path: "docs/other.md".into(),
        text:
            "# Other page\n## Settings\n## Settings\n## A `code` & [link](x.md), twice\n```sh\n# none\n```\n"
                .into(),
    };
    let exists = |path: &str| ["README.md", "docs/other.md", "docs", "src/a.rs"].contains(&path);
    for (text, problem) in [
        ("[a](docs/other.md) [b](docs/other.md#settings) ![c](docs) <x>", None),
        ("[a](docs/other.md#settings-1), [b](docs/other.md#a-code--link-twice)", None),
        ("# Here\n[a](#here) [b](https://example.org/no#thing) [m](mailto:a@b)", None),
        ("[broken over\nlines](docs/other.md) and `[code](nowhere.md)`", None),
        ("```\n[fenced](nowhere.md)\n```", None),
        ("[a][One] [one][]\n\n[one]: docs/other.md \"Title\"", None),
        ("text\n[a](docs/none.md)", Some("README.md:2: `docs/none.md`: no file docs/none.md")),
        ("[broken over\nlines](docs/none.md)", Some("README.md:1: `docs/none.md`")),
        ("[a](docs/other.md#settings-2)", Some("README.md:1: `docs/other.md#settings-2`: no heading")),
        ("[a](docs/other.md#none)", Some("no heading `#none` in docs/other.md")),
        ("[a](#nowhere)", Some("no heading `#nowhere` in README.md")),
        ("[a](src/a.rs#L3)", Some("src/a.rs is no Markdown file")),
        ("[a](../out.md)", Some("leads out of the repository")),
        ("[a][two]", Some("no definition of `[two]`")),
        ("[two][]", Some("no definition of `[two]`")),
        ("[one]: docs/none.md", Some("no file docs/none.md")),
        ("[ok](docs/other.md) [a](none.md)", Some("no file none.md")),
        ("[![image](none.svg)](docs/other.md)", Some("no file none.svg")),
    ] {
        let here = links::Page { path: "README.md".into(), text: text.into() };
        let other = links::Page { path: other.path.clone(), text: other.text.clone() };
        let found = links::check(&[here, other], |path| exists(path) || path == "docs/x.md");
        assert_eq!(found.len(), usize::from(problem.is_some()), "{text}\n{found:?}");
        assert!(problem.is_none_or(|p| found[0].contains(p)), "{text}\n{found:?}");
    }
}

#[test]
fn pages_named_in_text_exist() {
    let page = |text: &str| links::Page { path: "README.md".into(), text: text.into() };
    let exists = |path: &str| path == "docs/a.md";
    let files = flow("//! See docs/a.md, docs/none.md.\nconst A: &str = \"docs/none.md\";");
    assert_eq!(
        links::check_mentions(&[page("docs/a.md")], &files, exists),
        ["crates/flow/src/a.rs:1: no page docs/none.md"]
    );
    let pages = [page("x\n(docs/b.md) mydocs/c.md docs/d.tsv docs/a.md.")];
    assert_eq!(links::check_mentions(&pages, &[], exists), ["README.md:2: no page docs/b.md"]);
}
