//! Common code of the tests against stock programs: both servers behind one trait, and comparison of their
//! output.

mod serve;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ovsdb::db::Database;
use ovsdb::log::schema_record;
use ovsdb::schema::DatabaseSchema;
use serde_json::{Value, json};

pub(crate) fn installed(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        println!("skipped: {program} is not installed");
    }
    found
}

pub(crate) struct TempDir(pub(crate) PathBuf);

impl TempDir {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("ovsdb-stock-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A server on `db.sock` in its directory, with the database in `db`.
pub(crate) trait Backend {
    fn dir(&self) -> &Path;

    fn remote(&self) -> String {
        format!("unix:{}", self.dir().join("db.sock").display())
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("OVS_RUNDIR", self.dir()).env("OVS_LOGDIR", self.dir()).env("OVS_DBDIR", self.dir());
        command
    }

    fn run(&self, program: &str, arguments: &[&str]) -> (bool, String) {
        let output = self.command(program).args(arguments).output().unwrap();
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.success(), text)
    }

    fn vsctl(&self, line: &str) -> (bool, String) {
        let remote = format!("--db={}", self.remote());
        let arguments: Vec<&str> =
            ["--timeout=10", "--no-wait", &remote].into_iter().chain(line.split(' ')).collect();
        self.run("ovs-vsctl", &arguments)
    }

    fn client(&self, verb: &str, arguments: &[&str]) -> (bool, String) {
        let remote = self.remote();
        let all: Vec<&str> =
            ["--timeout=10", verb, &remote].into_iter().chain(arguments.iter().copied()).collect();
        self.run("ovsdb-client", &all)
    }
}

/// Our server in a thread, the log appended to a file.
pub(crate) struct Ours {
    pub(crate) dir: TempDir,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Ours {
    pub(crate) fn new(schema: Arc<DatabaseSchema>) -> Self {
        let dir = TempDir::new();
        let db = Database::new(schema);
        fs::write(dir.path("db"), schema_record(&db)).unwrap();
        let listener = UnixListener::bind(dir.path("db.sock")).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let mut file = fs::OpenOptions::new().append(true).open(dir.path("db")).unwrap();
        let stopped = stop.clone();
        let wall_ms = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
        let thread = std::thread::spawn(move || {
            serve::serve(db, &listener, 11, wall_ms, |record| file.write_all(record).unwrap(), &stopped);
        });
        Ours { dir, stop, thread: Some(thread) }
    }
}

impl Backend for Ours {
    fn dir(&self) -> &Path {
        &self.dir.0
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the server panicked");
        }
    }
}

/// A stock `ovsdb-server` on a file that must exist.
pub(crate) struct Stock {
    pub(crate) dir: TempDir,
    child: Child,
}

impl Stock {
    pub(crate) fn new(dir: TempDir) -> Self {
        let child = Command::new("ovsdb-server")
            .arg(dir.path("db"))
            .arg(format!("--remote=punix:{}", dir.path("db.sock").display()))
            .arg(format!("--unixctl={}", dir.path("ctl").display()))
            .args(["--no-chdir", "-vconsole:off", "-vsyslog:off"])
            .env("OVS_RUNDIR", &dir.0)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let stock = Stock { dir, child };
        let deadline = Instant::now() + LIMIT;
        while UnixStream::connect(stock.dir.path("db.sock")).is_err() {
            assert!(Instant::now() < deadline, "ovsdb-server does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        stock
    }

    /// With an empty database.
    pub(crate) fn empty(schema: Arc<DatabaseSchema>) -> Self {
        let dir = TempDir::new();
        fs::write(dir.path("db"), schema_record(&Database::new(schema))).unwrap();
        Stock::new(dir)
    }
}

impl Backend for Stock {
    fn dir(&self) -> &Path {
        &self.dir.0
    }
}

impl Drop for Stock {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Replaces each UUID by its number in the order of appearance.
pub(crate) fn without_uuids(text: &str) -> String {
    let is_uuid =
        |s: &str| s.len() == 36 && s.is_char_boundary(36) && s.parse::<ovsdb::value::Uuid>().is_ok();
    let (mut out, mut seen, mut at) = (String::new(), Vec::<String>::new(), 0);
    while at < text.len() {
        match text.get(at..at + 36).filter(|s| is_uuid(s)) {
            Some(uuid) => {
                let number = seen.iter().position(|other| other == uuid).unwrap_or_else(|| {
                    seen.push(uuid.to_string());
                    seen.len() - 1
                });
                out += &format!("<{number}>");
                at += 36;
            }
            None => {
                let c = text[at..].chars().next().unwrap();
                out.push(c);
                at += c.len_utf8();
            }
        }
    }
    out
}

/// Removes texts and UUIDs specific to a server; sorts members and rows.
pub(crate) fn comparable(json: &Value) -> String {
    match json {
        Value::Object(object) => {
            let ignored = |key: &str, value: &Value| {
                ["details", "syntax"].contains(&key) || (key == "result" && value.is_null())
            };
            let member = |(key, value): (&String, &Value)| match (key.as_str(), value) {
                ("rows", Value::Array(rows)) => {
                    let mut rows: Vec<String> = rows.iter().map(comparable).collect();
                    rows.sort();
                    format!("rows:{rows:?}")
                }
                _ => format!("{key}:{}", comparable(value)),
            };
            let mut members: Vec<String> =
                object.iter().filter(|(k, v)| !ignored(k, v)).map(member).collect();
            members.sort();
            format!("{{{}}}", members.join(","))
        }
        Value::Array(list) => format!("[{}]", list.iter().map(comparable).collect::<Vec<_>>().join(",")),
        Value::String(text) if text.parse::<ovsdb::value::Uuid>().is_ok() => "UUID".into(),
        other => other.to_string(),
    }
}

/// [`comparable`] of a program's output.
pub(crate) fn comparable_text(text: &str) -> String {
    comparable(&serde_json::from_str(text).unwrap())
}

/// Timeout of what a server does soon.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

pub(crate) struct Raw {
    stream: UnixStream,
    framer: ovsdb::jsonrpc::Framer,
}

impl Raw {
    pub(crate) fn new(backend: &dyn Backend) -> Self {
        let stream = UnixStream::connect(backend.dir().join("db.sock")).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        Raw { stream, framer: ovsdb::jsonrpc::Framer::default() }
    }

    /// The reply to a request.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        self.ask_all(method, params).1
    }

    /// The notifications before the reply to a request, and the reply.
    pub(crate) fn ask_all(&mut self, method: &str, params: Value) -> (Vec<Value>, Value) {
        let request = json!({"id": 1, "method": method, "params": params});
        self.stream.write_all(request.to_string().as_bytes()).unwrap();
        let mut notifications = Vec::new();
        loop {
            match self.framer.next_text().unwrap() {
                Some(text) if text["id"].is_null() => notifications.push(text),
                Some(text) => return (notifications, text),
                None => {
                    let mut buffer = [0; 65536];
                    let length = self.stream.read(&mut buffer).unwrap();
                    assert!(length > 0, "the server hung up");
                    self.framer.feed(&buffer[..length]);
                }
            }
        }
    }
}
