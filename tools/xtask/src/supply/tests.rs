use super::*;
use crate::workspace::Dep;
use serde_json::json;

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

const POLICY: &str = r#"
[graph]
targets = ["x86_64-unknown-linux-gnu"]
[licenses]
allow = ["MIT", "Unicode-3.0"]
exceptions = [{ crate = "maps", allow = ["MPL-2.0"] }]
[bans]
multiple-versions = "deny"
skip = [{ crate = "old@1.0.0", reason = "x still wants it" }]
deny = [{ crate = "evil", reason = "no" }]
[sources]
unknown-registry = "deny"
unknown-git = "deny"
allow-registry = ["https://github.com/rust-lang/crates.io-index"]
allow-git = ["https://example.org/fork"]
"#;

fn policy() -> Policy {
    parse_policy(POLICY).unwrap()
}

fn package(name: &str, version: &str, licence: &str) -> Package {
    Package { name: name.into(), version: version.into(), licence: Some(licence.into()) }
}

fn locked(source: Option<&str>, has_checksum: bool) -> Locked {
    Locked { name: "x".into(), version: "1.0.0".into(), source: source.map(str::to_owned), has_checksum }
}

/// The exception and the skip of `POLICY`, in use.
fn base() -> Vec<Package> {
    vec![package("maps", "1.0.0", "MPL-2.0+"), package("old", "1.0.0", "MIT"), package("old", "2.0.0", "MIT")]
}

fn all(extra: Package) -> Vec<String> {
    let mut packages = base();
    packages.push(extra);
    let mut problems = check_licences(&packages, &policy());
    problems.extend(check_bans(&packages, &policy()));
    problems.extend(check_duplicates(&packages, &policy()));
    problems
}

#[test]
fn licence_expressions() {
    let cases: &[(&str, Result<bool, ()>)] = &[
        ("MIT", Ok(true)),
        ("MIT OR Apache-2.0", Ok(true)),
        ("Apache-2.0/MIT", Ok(true)),
        ("GPL-3.0-only", Ok(false)),
        ("MIT AND GPL-3.0-only", Ok(false)),
        ("(GPL-3.0-only OR MIT) AND Unicode-3.0", Ok(true)),
        ("GPL-3.0-only AND Unicode-3.0 OR MIT", Ok(true)),
        ("MIT AND Unicode-3.0 OR GPL-3.0-only", Ok(true)),
        ("GPL-3.0-only AND (MIT OR Unicode-3.0)", Ok(false)),
        ("MIT WITH Some-exception", Ok(true)),
        ("MIT+", Ok(true)),
        ("", Err(())),
        ("MIT OR", Err(())),
        ("OR MIT", Err(())),
        ("(MIT", Err(())),
        ("MIT)", Err(())),
        ("MIT MIT", Err(())),
        ("MIT WITH", Err(())),
        (&"(".repeat(100_000), Err(())),
    ];
    for (expression, want) in cases {
        let got = licence::satisfied(expression, &["MIT", "Unicode-3.0"]).map_err(|_| ());
        assert_eq!(got, *want, "{}", &expression[..expression.len().min(60)]);
    }
}

#[test]
fn a_good_tree_passes() {
    assert_eq!(all(package("fine", "0.1.0", "MIT OR Apache-2.0")), Vec::<String>::new());
}

#[test]
fn each_kind_of_bad_package_fails() {
    assert!(all(package("gpl", "1.0.0", "GPL-2.0-only"))[0].contains("is not allowed"));
    assert!(all(package("odd", "1.0.0", "MIT ???"))[0].contains("no SPDX expression"));
    assert!(all(Package { licence: None, ..package("none", "1.0.0", "") })[0].contains("names no licence"));
    assert!(all(package("evil", "1.0.0", "MIT"))[0].contains("banned by deny.toml: no"));
    assert!(all(package("old", "3.0.0", "MIT"))[0].contains("versions 2.0.0 and 3.0.0"));
}

#[test]
fn skips_name_versions_by_their_beginning() {
    for (skip, want) in [("syn@2", true), ("syn@2.0", true), ("syn@2.0.119", true), ("syn@2.0.11", false)] {
        assert_eq!(is_skipped(skip, "syn", "2.0.119"), want, "{skip}");
    }
    for skip in ["syn", "syn@", "syn@3", "quote@2", "@2"] {
        assert!(!is_skipped(skip, "syn", "2.0.119"), "{skip}");
    }
}

#[test]
fn exceptions_that_no_longer_apply_fail() {
    let mut packages = base();
    packages[0].licence = Some("MIT".into());
    packages.remove(2);
    assert!(check_licences(&packages, &policy())[0].contains("no longer needed"));
    assert!(check_duplicates(&packages, &policy())[0].contains("names no duplicate"));
}

#[test]
fn sources() {
    let check = |source, has_checksum| check_sources(&[locked(source, has_checksum)], &policy()).join("");
    assert_eq!(check(None, false), "");
    assert_eq!(check(Some(CRATES_IO), true), "");
    assert_eq!(check(Some("git+https://example.org/fork?rev=1#abc"), false), "");
    assert!(check(Some(CRATES_IO), false).contains("no checksum"));
    assert!(
        check(Some("registry+https://example.org/index"), true).contains("which deny.toml does not allow")
    );
    assert!(
        check(Some("git+https://example.org/forked#abc"), false).contains("which deny.toml does not allow")
    );
}

#[test]
fn a_policy_that_would_not_be_enforced_is_refused() {
    let cases = [
        ("multiple-versions = \"deny\"", "multiple-versions = \"warn\"", "must be \"deny\""),
        ("unknown-git = \"deny\"", "", "must be \"deny\""),
        ("[graph]", "[advisories]\n[graph]", "[advisories] is not known"),
        ("deny = [{", "wildcards = \"deny\"\ndeny = [{", "wildcards is not enforced"),
        (", reason = \"no\"", "", "has no text `reason`"),
        ("\"MIT\", ", "5, ", "must be a list of texts"),
        ("targets = [\"x86_64-unknown-linux-gnu\"]", "targets = []", "nothing would be checked"),
        ("[graph]", "[graph", "no valid TOML"),
    ];
    for (from, to, want) in cases {
        assert!(POLICY.contains(from), "{from}");
        let error = parse_policy(&POLICY.replace(from, to)).unwrap_err();
        assert!(format!("{error:#}").contains(want), "{from} → {to}: {error:#}");
    }
}

#[test]
fn lock_and_metadata_are_read() {
    let lock = parse_lock(
        "version = 4\n[[package]]\nname = \"x\"\nversion = \"1.0.0\"\nsource = \"s\"\nchecksum = \"c\"\n",
    );
    assert_eq!(lock.unwrap(), [locked(Some("s"), true)]);
    assert!(parse_lock("version = 4\n").is_err());
    let meta = json!({
        "packages": [
            {"id": "a", "name": "a", "version": "1.0.0", "license": "MIT"},
            {"id": "w", "name": "windows", "version": "1.0.0", "license": "MIT"},
        ],
        "resolve": {"nodes": [{"id": "a"}]},
    });
    assert_eq!(parse_packages(&meta).unwrap(), [package("a", "1.0.0", "MIT")]);
}

#[test]
fn the_fuzzers_lock_file_follows_the_crates() {
    let dep = |name: &str, kind| Dep { name: name.into(), kind };
    let member = Member {
        name: "flow".into(),
        dir: "crates/flow".into(),
        roots: Vec::new(),
        deps: vec![dep("packet", DepKind::Normal), dep("proptest", DepKind::Dev)],
    };
    let lock =
        |deps: &str| format!("[[package]]\nname = \"flow\"\nversion = \"1\"\ndependencies = [{deps}]\n");
    let problems = |deps: &str| fuzz_lock_is_behind(std::slice::from_ref(&member), &lock(deps)).unwrap();
    assert!(problems("\"packet 0.1.0\"").is_empty() && problems("\"packet\"").is_empty());
    assert_eq!(problems("\"packed\"").len(), 1);
    assert!(problems("")[0].contains("flow depends on packet"));
}
