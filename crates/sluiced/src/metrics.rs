//! Metrics for Prometheus (`other_config:metrics`), over HTTP at `/metrics`.
//!
//! A thread serves: it asks the main loop for what only that has ([`facts`]), questions the forwarding threads and reads the
//! tables itself ([`snapshot`]), and writes the text of the rows of [`rows`]. A row is the one place of a metric: its name, type,
//! labels, help and source; docs/metrics.md is made from them (`pages`). A text is used again for [`FRESH`], so frequent scrapes
//! cost no more than two a second; each metric has at most [`text::SAMPLES_MAX`] samples.

mod facts;
#[cfg(test)]
mod pages;
mod rows;
mod snapshot;
#[cfg(test)]
mod tests;
mod text;

use crate::control_plane::ControlPlane;
use crate::upcall_times;
use facts::MainFacts;
use httpd::{Address, Counts, Limits, Reply, Request, Server, Service, Stop};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use sync::{AtomicU64, Ordering};
use sys::confine::Kind;
use vswitch::config::MetricsAddress;

/// Log module.
const MODULE: &str = "metrics";
/// How long a text is used again.
const FRESH: Duration = Duration::from_millis(500);
/// Longest wait for the main loop.
const MAIN_LOOP_LIMIT: Duration = Duration::from_secs(10);
/// Time between two tries to listen.
const TRY_AGAIN_MS: u64 = 5000;
/// Longest wait for the thread at the end of the daemon.
const END_LIMIT: Duration = Duration::from_secs(1);

/// The facts that the main loop gives for one text.
type Asked = SyncSender<Box<MainFacts>>;

struct Thread {
    stop: Stop,
    asked: Receiver<Asked>,
    running: JoinHandle<()>,
}

/// The main loop's part.
#[derive(Default)]
pub(crate) struct Metrics {
    wanted: Option<MetricsAddress>,
    thread: Option<Thread>,
    /// A stopped thread that has not ended: its address is in use.
    ending: Option<JoinHandle<()>>,
    /// Time of the next try, in milliseconds of the machine's clock.
    next_try_ms: u64,
    error: Option<String>,
}

impl Metrics {
    /// Follows the setting, and gives the facts that the thread asks for.
    pub(crate) fn run(&mut self, plane: &mut ControlPlane, waker: &Arc<mio::Waker>) {
        if self.wanted.as_ref() != plane.switch.metrics_address() {
            self.stop();
            self.wanted = plane.switch.metrics_address().cloned();
            self.next_try_ms = 0;
            self.report(plane, None);
        }
        if self.thread.as_ref().is_some_and(|thread| thread.running.is_finished()) {
            self.stop();
        }
        if self.ending.as_ref().is_some_and(JoinHandle::is_finished) {
            self.ending = None;
        }
        if self.thread.is_none() && self.ending.is_none() && self.wanted.is_some() {
            self.try_to_start(plane, waker);
        }
        let Some(thread) = &self.thread else { return };
        while let Ok(asked) = thread.asked.try_recv() {
            // The thread may have given up.
            let _gone = asked.send(Box::new(facts::gather(plane)));
        }
    }

    fn try_to_start(&mut self, plane: &mut ControlPlane, waker: &Arc<mio::Waker>) {
        let now_ms = sys::clock::machine_us() / 1000;
        let Some(wanted) = self.wanted.as_ref().filter(|_| now_ms >= self.next_try_ms) else { return };
        let (address, name) = match wanted {
            MetricsAddress::Tcp(address) => (Address::Tcp(*address), format!("http://{address}/metrics")),
            MetricsAddress::Unix(path) => (Address::Unix(PathBuf::from(path)), format!("unix:{path}")),
        };
        let folder = match &address {
            Address::Tcp(_) => None,
            Address::Unix(path) => path.parent().map(PathBuf::from),
        };
        let started =
            Server::bind(&address, Limits::default()).and_then(|server| start(server, folder, waker.clone()));
        match started {
            Ok(thread) => {
                log::info!(target: MODULE, "metrics are served at {name}");
                self.thread = Some(thread);
                upcall_times::set_on(true);
                self.report(plane, None);
            }
            Err(e) => {
                self.next_try_ms = now_ms + TRY_AGAIN_MS;
                let seconds = TRY_AGAIN_MS / 1000;
                let error =
                    format!("metrics cannot be served at {name}: {e}; tried again every {seconds} seconds");
                if self.error.as_ref() != Some(&error) {
                    log::warn!(target: MODULE, "{error}");
                }
                self.report(plane, Some(error));
            }
        }
    }

    fn report(&mut self, plane: &mut ControlPlane, error: Option<String>) {
        if self.error != error {
            plane.switch.metrics_failed(error.clone());
            self.error = error;
        }
    }

    fn stop(&mut self) {
        if let Some(Thread { stop, asked, running }) = self.thread.take() {
            upcall_times::set_on(false);
            stop.stop();
            // The thread waits for no facts any more.
            drop(asked);
            self.ending = Some(running);
        }
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        self.stop();
        let begun = Instant::now();
        while self.ending.as_ref().is_some_and(|thread| !thread.is_finished()) && begun.elapsed() < END_LIMIT
        {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Starts the thread. It removes the socket in the folder, if there is one, at its end.
fn start(server: Server, folder: Option<PathBuf>, waker: Arc<mio::Waker>) -> std::io::Result<Thread> {
    let (ask, asked) = channel();
    let (stop, counts) = (server.stopper(), server.counts());
    let at_end = waker.clone();
    let mut scraper = Scraper { ask, waker, counts, latest: None, costs: Costs::default() };
    let run = move || {
        sys::confine::enter(Kind::Metrics, folder.as_deref().as_slice());
        if let Err(e) = server.run(&mut scraper) {
            log::warn!(target: MODULE, "the thread of the metrics ends: {e}");
        }
        // The main loop may wait for the address.
        let _ = at_end.wake();
    };
    let running = std::thread::Builder::new().name(MODULE.to_string()).spawn(run)?;
    Ok(Thread { stop, asked, running })
}

/// Costs of the metrics themselves.
#[derive(Default)]
pub(crate) struct Costs {
    /// Texts made.
    scrapes: AtomicU64,
    /// Time of the last text, but for its own.
    last_us: AtomicU64,
}

/// Answers requests, on its thread.
struct Scraper {
    ask: Sender<Asked>,
    waker: Arc<mio::Waker>,
    counts: Arc<Counts>,
    latest: Option<(Instant, Arc<Vec<u8>>)>,
    costs: Costs,
}

const INDEX: &str =
    "<!doctype html><title>Sluice</title><p>Metrics for Prometheus: <a href=\"/metrics\">/metrics</a>\n";

impl Service for Scraper {
    fn answer(&mut self, request: &Request<'_>) -> Reply {
        match request.path {
            "/metrics" => match self.text() {
                Some(body) => Reply { status: 200, content_type: text::CONTENT_TYPE, headers: "", body },
                None => Reply::text(503, "the switch does not answer: ask again later"),
            },
            "/" => Reply { content_type: "text/html; charset=utf-8", ..Reply::text(200, INDEX) },
            _ => Reply::text(404, "there is /metrics"),
        }
    }
}

impl Scraper {
    fn text(&mut self) -> Option<Arc<Vec<u8>>> {
        // Dropped before the next one is made: two long texts are there only while a client reads the old one.
        if let Some((made, text)) = self.latest.take().filter(|(made, _)| made.elapsed() < FRESH) {
            self.latest = Some((made, text.clone()));
            return Some(text);
        }
        let begun = Instant::now();
        let snapshot = self.snapshot()?;
        let text = Arc::new(text::of(&snapshot));
        self.costs.scrapes.fetch_add(1, Ordering::Relaxed);
        self.costs.last_us.store(begun.elapsed().as_micros() as u64, Ordering::Relaxed);
        self.latest = Some((Instant::now(), text.clone()));
        Some(text)
    }

    fn snapshot(&self) -> Option<snapshot::Snapshot> {
        let (reply, facts) = sync_channel(1);
        self.ask.send(reply).ok()?;
        self.waker.wake().ok()?;
        let facts = facts.recv_timeout(MAIN_LOOP_LIMIT).ok()?;
        Some(snapshot::complete(*facts, &self.counts, &self.costs))
    }
}
