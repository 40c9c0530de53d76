//! The number of system calls per request, counted by strace. The generic netlink controller answers, so no module is needed.

use netlink::socket::{Asked, MessageWriter, NlRequest, Socket};
use testkit::Cmd;

/// Marks this process as the traced one.
const TRACED: &str = "SLUICE_TEST_TRACED";
const REQUESTS: usize = 1000;

/// Requests a family (`CTRL_CMD_GETFAMILY` of "nlctrl", by `CTRL_ATTR_FAMILY_NAME`).
fn ask() -> NlRequest {
    let mut request = MessageWriter::new(16, [3, 2], 0, &[], Asked::again("find a family", &[], 1024));
    request.attrs.text(2, "nlctrl");
    request.finish().unwrap()
}

#[test]
fn many_requests_take_few_system_calls() {
    if std::env::var_os(TRACED).is_some() {
        let mut socket = Socket::open().unwrap();
        let mut replies = 0;
        let results = socket.transact(&vec![ask(); REQUESTS], &mut |_, _| replies += 1);
        assert!(results.iter().all(Result::is_ok) && replies == REQUESTS);
        return;
    }
    testkit::require_strace!();
    let me = std::env::current_exe().unwrap();
    let log = testkit::TempDir::new("calls").unwrap();
    let file = log.path().join("trace");
    let test = std::thread::current().name().unwrap().to_owned();
    Cmd::new("strace")
        .args(["-f", "-e", "trace=sendto,recvmmsg,recvmsg,recvfrom,sendmsg,poll", "-o"])
        .arg(file.to_str().unwrap())
        .arg(me.to_str().unwrap())
        .args(["--exact", &test, "--test-threads", "1"])
        .env(TRACED, "1")
        .run()
        .unwrap();
    let trace = std::fs::read_to_string(&file).unwrap();
    let count = |call: &str| trace.lines().filter(|l| l.contains(&format!(" {call}("))).count();
    let (sent, received) = (count("sendto"), count("recvmmsg"));
    // 128 requests in one call, 32 answers or replies in another.
    assert!(sent > 0 && sent <= 10, "{sent} calls to send {REQUESTS} requests\n{trace}");
    assert!(received <= 2 * REQUESTS / 32 + 2 * sent, "{received} calls to receive {} answers", 2 * REQUESTS);
    assert_eq!(count("recvmsg") + count("recvfrom") + count("sendmsg"), 0, "{trace}");
}
