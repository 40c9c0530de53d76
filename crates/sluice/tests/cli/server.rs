//! A database server in a thread.

#[path = "../../../ovsdb/tests/backends/serve.rs"]
mod serve;

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ovsdb::db::Database;
use ovsdb::schema::open_vswitch;
use testkit::{Cmd, Output, TempDir};

/// Fixed wall clock of the server; nothing here depends on it.
const WALL_MS: i64 = 1_700_000_000_000;

pub(crate) struct DbServer {
    pub(crate) dir: TempDir,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl DbServer {
    /// An empty database; the same seed yields the same UUIDs.
    pub(crate) fn new(seed: u64) -> Self {
        let dir = TempDir::new("cli").unwrap();
        let listener = UnixListener::bind(dir.path().join("db.sock")).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let db = Database::new(open_vswitch());
        let thread = std::thread::spawn(move || {
            serve::serve(db, &listener, seed, || WALL_MS, |_| {}, &stopped);
        });
        DbServer { dir, stop, thread: Some(thread) }
    }

    fn tool(&self, mut cmd: Cmd, words: &[&str]) -> Cmd {
        for name in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
            cmd = cmd.env(name, self.dir.path());
        }
        cmd.args(words)
    }

    /// Our program on this database, to be run or spawned.
    pub(crate) fn ours(&self, words: &[&str]) -> Cmd {
        self.tool(sluice().args(["vsctl", "--timeout=20"]), words)
    }

    /// The stock program on this database.
    pub(crate) fn stock(&self, words: &[&str]) -> Cmd {
        let db = format!("--db=unix:{}", self.dir.path().join("db.sock").display());
        self.tool(Cmd::new("ovs-vsctl").args(["--timeout=20", "--no-syslog", &db]), words)
    }

    /// Runs our program, which must succeed without messages; returns its output.
    pub(crate) fn run(&self, words: &[&str]) -> String {
        let no_wait: Vec<&str> = std::iter::once("--no-wait").chain(words.iter().copied()).collect();
        let output = self.ours(&no_wait).run().unwrap();
        assert_eq!(output.stderr, "", "{words:?}");
        output.stdout
    }
}

impl Drop for DbServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the server panicked");
        }
    }
}

/// The program under test.
pub(crate) fn sluice() -> Cmd {
    Cmd::new(env!("CARGO_BIN_EXE_sluice"))
}

/// The exit code; a signal's as a shell shows it.
pub(crate) fn code(output: &Output) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    let status = output.status;
    status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}

/// Serves one request on a control socket at `path`: its text must contain `request`; `answer` is the reply.
pub(crate) fn answer_once(path: &Path, request: &'static str, answer: &'static [u8]) -> JoinHandle<()> {
    let listener = UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let (mut text, mut buffer) = (Vec::new(), [0; 4096]);
        while !text.ends_with(b"}") {
            let length = stream.read(&mut buffer).unwrap();
            assert!(length > 0, "the program hung up");
            text.extend_from_slice(&buffer[..length]);
        }
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains(request), "{text}");
        stream.write_all(answer).unwrap();
    })
}
