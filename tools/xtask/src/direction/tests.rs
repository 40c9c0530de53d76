use super::*;
use crate::workspace::{Dep, parse_members};
use serde_json::json;

fn member(name: &str, deps: &[(&str, DepKind)]) -> Member {
    let deps = deps.iter().map(|(n, kind)| Dep { name: (*n).to_owned(), kind: *kind }).collect();
    Member { name: name.to_owned(), dir: format!("crates/{name}"), roots: vec![], deps }
}

fn problems(members: &[Member]) -> Vec<String> {
    check(members, TABLE).problems
}

#[test]
fn the_listed_direction_passes() {
    let members = [
        member("packet", &[]),
        member("flow", &[("packet", DepKind::Normal), ("zerocopy", DepKind::Normal)]),
        member("sluiced", &[("flow", DepKind::Normal), ("libc", DepKind::Normal)]),
    ];
    assert_eq!(check(&members, TABLE), Findings::default());
}

#[test]
fn an_edge_that_is_not_listed_fails() {
    let members = [
        member("datapath", &[("ofproto", DepKind::Normal)]),
        member("ofproto", &[("datapath", DepKind::Build)]),
    ];
    let found = problems(&members);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].contains("`datapath` may not depend on `ofproto`"), "{found:?}");
    assert!(found[1].contains("`ofproto` may not depend on `datapath`"), "{found:?}");
}

#[test]
fn a_dev_dependency_is_a_note() {
    let found = check(&[member("packet", &[("flow", DepKind::Dev)]), member("flow", &[])], TABLE);
    assert_eq!(found.problems, Vec::<String>::new());
    assert_eq!(found.notes, ["in tests only: packet → flow"]);
}

#[test]
fn a_crate_without_a_row_fails() {
    assert!(problems(&[member("attic", &[])])[0].contains("crate `attic` has no row"));
}

#[test]
fn a_pure_crate_with_an_io_library_fails() {
    assert!(problems(&[member("packet", &[("libc", DepKind::Normal)])])[0].contains("is pure"));
    assert_eq!(problems(&[member("packet", &[("libc", DepKind::Dev)])]), Vec::<String>::new());
}

#[test]
fn the_page_has_the_same_table() {
    let table: &[(&str, &[&str])] = &[("packet", &[]), ("flow", &["packet", "simd"])];
    let page = |rows: &str| {
        format!(
            "text\n\n| crate | contents | may depend on |\n| --- | --- | --- |\n{rows}\n\n| a | b | c |\n"
        )
    };
    let packet = "| `packet` | frames | nothing |";
    for (rows, problem) in [
        (format!("{packet}\n| `flow` | keys | simd, packet |"), None),
        (packet.to_owned(), Some("lacks `flow`")),
        (format!("{packet}\n| `flow` | keys | packet |"), Some("`flow` may depend on packet, simd")),
        (
            format!("{packet}\n| `flow` | keys | packet, simd |\n| `attic` | - | nothing |"),
            Some("unknown `attic`"),
        ),
    ] {
        let found = page::check(&page(&rows), table);
        assert_eq!(found.len(), usize::from(problem.is_some()), "{found:?}");
        assert!(problem.is_none_or(|p| found[0].contains(p)), "{found:?}");
    }
}

#[test]
fn rows_name_known_crates_and_have_no_cycle() {
    let mut done: Vec<&str> = Vec::new();
    while done.len() < TABLE.len() {
        let next =
            TABLE.iter().find(|(name, to)| !done.contains(name) && to.iter().all(|t| done.contains(t)));
        let (name, _) = next.unwrap_or_else(|| panic!("unknown crate or cycle; sorted so far: {done:?}"));
        done.push(name);
    }
    assert!(PURE.iter().all(|p| done.contains(p)));
}

/// All crates that `name` may reach.
fn reachable(name: &str) -> Vec<&'static str> {
    let mut reached = Vec::new();
    let mut left = vec![name];
    while let Some(name) = left.pop() {
        for dep in TABLE.iter().find(|row| row.0 == name).map_or(&[][..], |row| row.1) {
            if !reached.contains(dep) {
                reached.push(*dep);
                left.push(dep);
            }
        }
    }
    reached
}

#[test]
fn the_seam_holds() {
    let above = ["ofproto", "connmgr", "vswitch", "openflow", "ovsdb", "classifier", "sluiced"];
    let below = ["dpif", "dpif-netdev", "dpif-netlink", "datapath", "netdev", "netlink", "probes"];
    for name in below {
        let leaks: Vec<_> = reachable(name).into_iter().filter(|to| above.contains(to)).collect();
        assert!(leaks.is_empty(), "{name}, below `dpif::Provider`, may reach {leaks:?}");
    }
    assert!(!reachable("ofproto").contains(&"datapath"));
    assert!(reachable("sluiced").contains(&"dpif-netdev"));
}

#[test]
fn metadata_is_read_with_kinds_and_real_names() {
    let meta = json!({
        "workspace_root": "/w",
        "packages": [{
            "name": "a", "manifest_path": "/w/crates/a/Cargo.toml",
            "targets": [
                {"kind": ["lib"], "src_path": "/w/crates/a/src/lib.rs"},
                {"kind": ["test"], "src_path": "/w/crates/a/tests/t.rs"},
            ],
            "dependencies": [
                {"name": "b", "kind": null, "rename": "other"},
                {"name": "c", "kind": "dev"},
            ],
        }],
    });
    let members = parse_members(&meta).unwrap();
    assert_eq!(
        (members[0].dir.as_str(), members[0].roots.as_slice()),
        ("crates/a", &["crates/a/src/lib.rs".to_owned()][..])
    );
    let deps: Vec<_> = members[0].deps.iter().map(|d| (d.name.as_str(), d.kind)).collect();
    assert_eq!(deps, [("b", DepKind::Normal), ("c", DepKind::Dev)]);
    assert!(parse_members(&json!({"packages": []})).is_err());
}
