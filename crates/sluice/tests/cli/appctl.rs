//! `sluice appctl`, `dpctl` and `status` with a fake control socket.

use testkit::TempDir;

use crate::server::{answer_once, code, sluice};

#[test]
fn a_daemon_is_found_by_its_pidfile() {
    let dir = TempDir::new("appctl").unwrap();
    let run = |words: &[&str]| sluice().args(words).env("OVS_RUNDIR", dir.path()).output().unwrap();
    let missing = run(&["appctl", "version"]);
    assert_eq!(code(&missing), 1);
    let pidfile = dir.path().join("ovs-vswitchd.pid");
    let text =
        format!("sluice appctl: cannot read pidfile \"{}\" (No such file or directory)\n", pidfile.display());
    assert_eq!(missing.stderr, text);
    std::fs::write(&pidfile, "77\n").unwrap();
    let socket = dir.path().join("ovs-vswitchd.77.ctl");
    let thread = answer_once(
        &socket,
        r#""method":"dpctl/show","params":["-s","x y"]"#,
        b"{\"id\":0,\"error\":null,\"result\":\"a\\nb\\n\"}",
    );
    let output = run(&["dpctl", "show", "-s", "x y"]);
    assert_eq!((output.stdout.as_str(), output.stderr.as_str(), code(&output)), ("a\nb\n", "", 0));
    thread.join().unwrap();
}

#[test]
fn errors_of_the_daemon_go_to_the_standard_error() {
    let dir = TempDir::new("appctl").unwrap();
    let socket = dir.path().join("x.ctl");
    let target = socket.to_str().unwrap();
    let thread =
        answer_once(&socket, "\"nope\"", b"{\"id\":0,\"error\":\"no such thing\\n\",\"result\":null}");
    let output = sluice().args(["appctl", "-t", target, "nope"]).output().unwrap();
    thread.join().unwrap();
    assert_eq!(output.stderr, format!("no such thing\nsluice appctl: {target}: server returned an error\n"));
    assert_eq!((code(&output), output.stdout.as_str()), (2, ""));
    for answer in [&b"[]"[..], b"}", b"{\"id\":0", b""] {
        std::fs::remove_file(&socket).unwrap();
        let thread = answer_once(&socket, "\"nope\"", answer);
        let output = sluice().args(["appctl", "-t", target, "nope"]).output().unwrap();
        thread.join().unwrap();
        assert_eq!(code(&output), 1, "{}", output.stderr);
        assert!(output.stderr.contains("transaction error"), "{}", output.stderr);
    }
}

#[test]
fn status_of_a_daemon() {
    let dir = TempDir::new("status").unwrap();
    let socket = dir.path().join("x.ctl");
    let target = socket.to_str().unwrap();
    let answer =
        br#"{"id":0,"error":null,"result":"{\"version\":\"9.9\",\"bridges\":[{\"name\":\"br0\"}]}"}"#;
    let thread = answer_once(&socket, "\"sluice/status\"", answer);
    let output = sluice().args(["status", "--interval=0", "--target", target]).run().unwrap();
    thread.join().unwrap();
    assert!(
        output.stdout.starts_with("Sluice 9.9\n") && output.stdout.contains("Bridge br0"),
        "{}",
        output.stdout
    );
    std::fs::remove_file(&socket).unwrap();
    let refusal = b"{\"id\":0,\"error\":\"\\\"sluice/status\\\" is not a valid command\\n\",\"result\":null}";
    for words in [&["status", "--target", target][..], &["top", "--once", "--target", target]] {
        let thread = answer_once(&socket, "\"sluice/status\"", refusal);
        let output = sluice().args(words).output().unwrap();
        thread.join().unwrap();
        assert_eq!(code(&output), 1);
        assert!(output.stderr.contains("need sluiced"), "{}", output.stderr);
        // The socket has no listener any more.
        let output = sluice().args(words).output().unwrap();
        assert_eq!(code(&output), 1);
        assert!(output.stderr.contains("start one with `sluiced"), "{}", output.stderr);
        std::fs::remove_file(&socket).unwrap();
    }
}

#[test]
fn unknown_words_are_reported() {
    for words in [&["nonsense"][..], &["status", "--bogus"], &["appctl"], &["vsctl"], &["dpctl", "--bogus"]] {
        let output = sluice().args(words).output().unwrap();
        assert!(matches!(code(&output), 1 | 2) && !output.stderr.is_empty(), "{words:?}: {}", output.stderr);
    }
}
