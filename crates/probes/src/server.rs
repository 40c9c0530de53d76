//! The event socket: a separate thread that serves one listener at a time.
//!
//! The listener sends one line, `snap=BYTES key=BYTES stages=all` (or comma-separated names of stages) or `drops=NUMBER`
//! for samples of dropped packets, and receives the stream of `upcall-events`, or one line that begins with `error:`. Events that it does not
//! read in time are dropped, counted and reported; a listener that reads nothing for [`STALL_MAX_MS`] is
//! disconnected.

use super::ring::{self, Reporter, Wanted};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use sync::{AtomicBool, Ordering};
use sys::Waker;
use sys::confine::Kind;
use sys::poll::PollSet;
use upcall_events::codec::PACKET_BYTES_MAX;
use upcall_events::{Record, Stage, encode_header};

/// Interval of sending: reporting threads need not wake this one.
const SEND_INTERVAL: Duration = Duration::from_millis(2);
/// Maximum bytes waiting for the listener: beyond that the queues fill up.
const BACKLOG_MAX_BYTES: usize = 1 << 20;
/// Maximum length of a request line.
const REQUEST_MAX_BYTES: usize = 256;
/// Maximum samples of dropped packets of each cause, second and thread.
const DROPS_MAX: u32 = 100_000;
/// Maximum time for the listener's request.
const REQUEST_MAX_MS: u64 = 5000;
/// Maximum time without reading.
const STALL_MAX_MS: u64 = 30_000;
/// Maximum wait for the listener at the daemon's exit.
const END_MAX_MS: u64 = 1000;
/// Interval of cost reports.
const OVERHEAD_MS: u64 = 1000;

/// The socket. Dropping it ends the stream orderly and removes the socket.
pub struct EventSocket {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl EventSocket {
    /// Listens at a path, for this user only; replaces an existing socket.
    pub fn open(path: &Path) -> io::Result<EventSocket> {
        let listener = listen(path)?;
        let (stop, waker) = (Arc::new(AtomicBool::new(false)), Arc::new(Waker::new()?));
        let server = Server { listener, stop: stop.clone(), waker: waker.clone(), client: None };
        let run = move || {
            sys::confine::enter(Kind::Events, &[]);
            server.run();
        };
        let thread = std::thread::Builder::new().name("events".to_string()).spawn(run)?;
        Ok(EventSocket { path: path.to_path_buf(), stop, waker, thread: Some(thread) })
    }
}

impl Drop for EventSocket {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            // Its panic is reported already.
            let _ = thread.join();
        }
        // It may have been removed by hand.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Created under a temporary name and renamed, so that no other user can connect in between.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let mut beside = path.as_os_str().to_os_string();
    beside.push("~");
    match std::fs::remove_file(&beside) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = UnixListener::bind(&beside)?;
    std::fs::set_permissions(&beside, std::fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    std::fs::rename(&beside, path)?;
    Ok(listener)
}

/// Parses a listener's request.
pub fn parse_request(line: &str) -> Result<Wanted, String> {
    let mut wanted = Wanted { packet_bytes: 0, key_bytes: 0, stages: 0, drops: 0, samples: false };
    let mut has_stages = false;
    for word in line.split_ascii_whitespace() {
        let (name, value) =
            word.split_once('=').ok_or_else(|| format!("`{word}`: expected NAME=VALUE, as in snap=64"))?;
        let bytes = || match value.parse::<usize>() {
            Ok(bytes) => Ok(bytes.min(PACKET_BYTES_MAX)),
            Err(_) => Err(format!("{name}: `{value}` is not a number of bytes")),
        };
        match name {
            "snap" => wanted.packet_bytes = bytes()?,
            "key" => wanted.key_bytes = bytes()?,
            "stages" => {
                has_stages = true;
                wanted.stages |= parse_stages(value)?;
            }
            "drops" => {
                let number = value.parse::<u32>().ok().filter(|n| (1..=DROPS_MAX).contains(n));
                let bad = || format!("drops: `{value}` is not a number from 1 to {DROPS_MAX}");
                wanted.drops = number.ok_or_else(bad)?;
            }
            "samples" if value == "all" => wanted.samples = true,
            "samples" => return Err(format!("samples: `{value}` is not all")),
            _ => return Err(format!("`{name}`: there are snap, key, stages, drops and samples")),
        }
    }
    if has_stages || wanted.drops != 0 || wanted.samples {
        Ok(wanted)
    } else {
        Err("stages are missing, as in stages=all".to_string())
    }
}

fn parse_stages(names: &str) -> Result<u16, String> {
    let bit = |stage: &Stage| 1 << *stage as u16;
    if names == "none" {
        return Ok(0);
    }
    if names == "all" {
        return Ok(Stage::ALL.iter().map(bit).sum());
    }
    names.split(',').try_fold(0, |bits, name| {
        let stage = Stage::ALL.iter().find(|s| s.name() == name);
        let stage = stage.ok_or_else(|| {
            let known: Vec<&str> = Stage::ALL.iter().map(|s| s.name()).collect();
            format!("stages: `{name}` is none; there are all, none, {}", known.join(", "))
        })?;
        Ok(bits | bit(stage))
    })
}

struct Server {
    listener: UnixListener,
    stop: Arc<AtomicBool>,
    waker: Arc<Waker>,
    client: Option<Client>,
}

impl Server {
    fn run(mut self) {
        while !self.stop.load(Ordering::Acquire) {
            if let Err(e) = self.wait() {
                log::error!(target: "events", "cannot wait for who listens to events: {e}; there are none any more");
                break;
            }
            self.waker.drain();
            self.serve();
            self.accept();
        }
        if let Some(mut client) = self.client.take() {
            client.finish();
        }
    }

    fn wait(&self) -> io::Result<()> {
        let mut set = PollSet::new();
        set.add(self.waker.fd(), false);
        set.add(self.listener.as_fd(), false);
        let timeout = match &self.client {
            None => None,
            Some(client) => {
                set.add(client.stream.as_fd(), client.backlog() > 0);
                Some(if client.is_full() { Duration::from_millis(OVERHEAD_MS) } else { SEND_INTERVAL })
            }
        };
        set.wait(timeout).map(drop)
    }

    fn serve(&mut self) {
        if self.client.as_mut().is_some_and(|c| !c.serve()) {
            self.client = None;
        }
    }

    fn take_in(&mut self, mut stream: UnixStream) {
        // A listener that is gone makes room.
        self.serve();
        match self.client {
            None => self.client = Some(Client::new(stream)),
            Some(_) => {
                // A client that does not accept one line does not get it.
                let _ =
                    stream.write(b"error: another program listens to the events of this switch; one can\n");
            }
        }
    }

    fn accept(&mut self) {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) if stream.set_nonblocking(true).is_err() => {}
                Ok((stream, _)) => self.take_in(stream),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) => {
                    log::warn!(target: "events", "cannot accept a connection: {e}");
                    return;
                }
            }
        }
    }
}

/// The listener.
struct Client {
    stream: UnixStream,
    /// Its partial request; `None` once complete.
    request: Option<Vec<u8>>,
    /// Bytes to send; the first `sent` are done.
    out: Vec<u8>,
    sent: usize,
    /// Time of its connection, or of its last progress.
    alive_ms: u64,
    threads: BTreeSet<u32>,
    ports: BTreeMap<u32, String>,
    ports_version: u64,
    /// Reported events, and the time spent on them.
    spent: (u64, u64),
    spent_told_ms: u64,
}

impl Client {
    fn new(stream: UnixStream) -> Client {
        Client {
            stream,
            request: Some(Vec::new()),
            out: Vec::new(),
            sent: 0,
            alive_ms: now_ms(),
            threads: BTreeSet::new(),
            ports: BTreeMap::new(),
            ports_version: 0,
            spent: (0, 0),
            spent_told_ms: now_ms(),
        }
    }

    fn backlog(&self) -> usize {
        self.out.len() - self.sent
    }

    fn is_full(&self) -> bool {
        self.backlog() >= BACKLOG_MAX_BYTES
    }

    /// Does all non-blocking work; `false` at the end.
    fn serve(&mut self) -> bool {
        if !self.read() {
            return false;
        }
        if self.request.is_some() {
            return now_ms() < self.alive_ms + REQUEST_MAX_MS;
        }
        if !self.is_full() {
            self.gather();
        }
        self.flush() && now_ms() < self.alive_ms + STALL_MAX_MS
    }

    /// Reads its input; `false` if it is gone, or its request is invalid.
    fn read(&mut self) -> bool {
        let mut buf = [0; REQUEST_MAX_BYTES];
        let n = match self.stream.read(&mut buf) {
            Ok(0) => return false,
            Ok(n) => n,
            Err(e) => return matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        };
        // Bytes after the request are ignored.
        let Some(request) = &mut self.request else { return true };
        request.extend_from_slice(&buf[..n]);
        let wanted = match request.iter().position(|b| *b == b'\n') {
            Some(end) => parse_request(&String::from_utf8_lossy(&request[..end])),
            None if request.len() >= REQUEST_MAX_BYTES => Err("the request is too long".to_string()),
            None => return true,
        };
        match wanted {
            Ok(wanted) => self.begin(wanted),
            Err(why) => {
                let _ = self.stream.write(format!("error: {why}\n").as_bytes());
                return false;
            }
        }
        true
    }

    fn begin(&mut self, wanted: Wanted) {
        self.request = None;
        let (wall_ns, ns) = (sys::clock::wall_ns(), sys::clock::machine_ns());
        encode_header(&mut self.out);
        let start = Record::Start {
            pid: std::process::id(),
            program: format!("sluiced {}", env!("CARGO_PKG_VERSION")),
            source: "ring".to_string(),
            wall_offset_ns: wall_ns.saturating_sub(ns),
        };
        start.encode(&mut self.out);
        self.send_ports();
        ring::begin(wanted);
    }

    fn send_ports(&mut self) {
        let Some((version, ports)) = ring::ports_after(self.ports_version) else { return };
        self.ports_version = version;
        for (number, name) in &self.ports {
            if ports.get(number) != Some(name) {
                Record::PortGone { number: *number }.encode(&mut self.out);
            }
        }
        for (number, name) in &ports {
            if self.ports.get(number) != Some(name) {
                Record::Port { number: *number, name: name.clone() }.encode(&mut self.out);
            }
        }
        self.ports = ports;
    }

    /// Encodes queued events as records, within the limit.
    fn gather(&mut self) {
        // A port precedes its events, because it existed before.
        let reporters = ring::reporters();
        self.send_ports();
        for teller in &reporters {
            if self.threads.insert(teller.thread) {
                let (thread, name) = (teller.thread, teller.name.clone());
                Record::Thread { thread, name }.encode(&mut self.out);
            }
            while !self.is_full()
                && let Some(event) = teller.pop()
            {
                Record::Event(event).encode(&mut self.out);
            }
            while !self.is_full()
                && let Some(dropped) = teller.pop_dropped()
            {
                Record::Dropped(dropped).encode(&mut self.out);
            }
            while !self.is_full()
                && let Some(sampled) = teller.pop_sampled()
            {
                Record::Sampled(sampled).encode(&mut self.out);
            }
        }
        let packets = reporters.iter().map(|t| t.take_samples_lost()).sum();
        if packets > 0 {
            Record::SamplesLost { packets }.encode(&mut self.out);
        }
        let packets = reporters.iter().map(|t| t.take_unsampled()).sum();
        if packets > 0 {
            Record::Unsampled { packets }.encode(&mut self.out);
        }
        for stage in Stage::ALL {
            let events = reporters.iter().map(|t| t.take_lost(stage)).sum();
            if events > 0 {
                Record::Lost { stage, events }.encode(&mut self.out);
            }
        }
        self.account(&reporters);
        if now_ms() >= self.spent_told_ms + OVERHEAD_MS {
            self.send_overhead();
        }
    }

    fn account(&mut self, reporters: &[Arc<Reporter>]) {
        for (events, ns) in reporters.iter().map(|t| t.take_spent()) {
            self.spent.0 += events;
            self.spent.1 += ns;
        }
    }

    fn send_overhead(&mut self) {
        self.spent_told_ms = now_ms();
        let (events, spent_ns) = self.spent;
        Record::Overhead { events, spent_ns }.encode(&mut self.out);
    }

    /// Sends as much as possible; `false` if it is gone.
    fn flush(&mut self) -> bool {
        while self.backlog() > 0 {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(0) => return false,
                Ok(n) => {
                    self.sent += n;
                    self.alive_ms = now_ms();
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return false,
            }
        }
        if self.backlog() == 0 {
            self.alive_ms = now_ms();
        }
        self.out.drain(..self.sent);
        self.sent = 0;
        true
    }

    /// At the daemon's exit: sends queued events, as far as the listener accepts them.
    fn finish(&mut self) {
        if self.request.is_some() {
            return;
        }
        ring::pause();
        let deadline_ms = now_ms() + END_MAX_MS;
        loop {
            let room = !self.is_full();
            self.gather();
            let over = room && !self.is_full();
            if over {
                self.send_overhead();
                Record::End.encode(&mut self.out);
            }
            while self.flush() && self.backlog() > 0 {
                let now = now_ms();
                if now >= deadline_ms {
                    return;
                }
                let mut set = PollSet::new();
                set.add(self.stream.as_fd(), true);
                if set.wait(Some(Duration::from_millis(deadline_ms - now))).is_err() {
                    return;
                }
            }
            if over || self.backlog() > 0 {
                return;
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if self.request.is_none() {
            ring::end();
        }
    }
}

fn now_ms() -> u64 {
    sys::clock::machine_us() / 1000
}
