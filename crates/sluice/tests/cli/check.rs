//! `sluice check`: settings without effect, in a file of a stopped switch and on a server.

use testkit::{Cmd, TempDir, require_programs};

use crate::server::{DbServer, code, sluice};

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// Lines up to the reasons.
fn settings(output: &str) -> Vec<&str> {
    output.lines().filter_map(|line| line.split_once(": ")).map(|(setting, _)| setting).collect()
}

#[test]
fn a_file_of_a_stopped_switch() {
    require_programs!("ovsdb-tool");
    let dir = TempDir::new("check").unwrap();
    let file = dir.path().join("conf.db");
    let path = file.to_str().unwrap();
    let tool = |words: &[&str]| drop(Cmd::new("ovsdb-tool").args(words).run().unwrap());
    tool(&["create", path, SCHEMA]);
    let check = || sluice().args(["check", path]).output().unwrap();
    let root = |columns: &str| {
        format!(
            r#"["Open_vSwitch",{{"op":"insert","table":"Open_vSwitch","row":{{{columns}}}}},
               {{"op":"insert","table":"Bridge","uuid-name":"b","row":{{"name":"br0","datapath_type":"netdev",
                 "other_config":["map",[["controller-queue-size","5"]]],"ports":["named-uuid","p"]}}}},
               {{"op":"insert","table":"Port","uuid-name":"p","row":{{"name":"p1","lacp":"active",
                 "interfaces":["named-uuid","i"]}}}},
               {{"op":"insert","table":"Interface","uuid-name":"i","row":{{"name":"p1","type":"dpdk"}}}}]"#
        )
    };
    assert_eq!((check().stdout.as_str(), code(&check())), ("", 0), "an empty database");
    tool(&[
        "transact",
        path,
        &root(
            r#""bridges":["named-uuid","b"],"other_config":["map",[["dpdk-init","true"],["max-idle","7"]]]"#,
        ),
    ]);
    let output = check();
    let expected = [
        "Bridge br0 other_config:controller-queue-size",
        "Interface p1 type",
        "Open_vSwitch . other_config:dpdk-init",
        "Open_vSwitch . other_config:max-idle",
    ];
    assert_eq!((settings(&output.stdout), code(&output)), (expected.to_vec(), 1), "{}", output.stderr);
    std::fs::write(&file, "no database").unwrap();
    let output = check();
    assert_eq!((output.stdout.as_str(), code(&output)), ("", 2));
    assert_eq!(output.stderr, format!("sluice check: {path}: this is not an OVSDB database file\n"));
    std::fs::remove_file(&file).unwrap();
    assert_eq!(check().stderr, format!("sluice check: {path}: No such file or directory\n"));
}

#[test]
fn a_server() {
    let db = DbServer::new(7);
    db.run(&["add-br", "br0", "--", "set", "Bridge", "br0", "datapath_type=netdev"]);
    let check =
        |words: &[&str]| sluice().arg("check").args(words).env("OVS_RUNDIR", db.dir.path()).output().unwrap();
    assert_eq!((check(&[]).stdout.as_str(), code(&check(&[]))), ("", 0));
    db.run(&["set", "Open_vSwitch", ".", "other_config:hw-offload=true"]);
    db.run(&["set-manager", "nobody"]);
    let remote = format!("unix:{}", db.dir.path().join("db.sock").display());
    for words in [&[][..], &[remote.as_str()]] {
        let output = check(words);
        let expected = ["Manager nobody target", "Open_vSwitch . other_config:hw-offload"];
        assert_eq!((settings(&output.stdout), code(&output)), (expected.to_vec(), 1), "{}", output.stderr);
    }
    let output = check(&["unix:/nowhere"]);
    assert_eq!(code(&output), 2);
    assert!(output.stderr.contains("unix:/nowhere: database connection failed (No such file or directory)"));
}
