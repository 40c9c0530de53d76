//! A small HTTP/1 server for readers: one thread, `GET` and `HEAD`, one request a connection.
//!
//! A hostile client costs bounded memory: connections, bytes of a request, bytes of unread replies and the time of each are
//! limited ([`Limits`]), and each limit has a counter ([`Counts`]). At the limit of connections the one that has waited longest
//! for its request makes room. The service runs on the thread of the server, so it decides how long others wait.
//!
//! Left out: request bodies, persistent connections, compression, TLS. Callers: the metrics of `sluiced`, `sluice web`.

#![forbid(unsafe_code)]

mod conn;
pub mod fuzz;
mod request;

#[cfg(test)]
mod tests;

pub use request::{Fault, Request};

use conn::{Conn, Progress};
use mio::net::{TcpListener, UnixListener};
use mio::{Events, Interest, Poll, Token, Waker};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const LISTENER: Token = Token(0);
const WAKER: Token = Token(1);
const FIRST: usize = 2;

/// Connections accepted between two looks at those that exist.
const ACCEPTS_AT_ONCE: usize = 64;
/// Longest sleep while a connection has a deadline, or a descriptor is awaited.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// Time for a client to close its side once it has the reply.
const LINGER: Duration = Duration::from_secs(2);

/// Where to listen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// An address and a port.
    Tcp(SocketAddr),
    /// The path of a socket, for the user and the group of the process.
    Unix(PathBuf),
}

/// Limits of a server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time.
    pub connections: usize,
    /// Bytes of a request without a body.
    pub request_bytes: usize,
    /// Bytes of different bodies that clients have not read yet; one body is always allowed.
    pub unread_bytes: usize,
    /// Time for a whole request.
    pub request_time: Duration,
    /// Time for reading the whole reply.
    pub reply_time: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 64,
            request_bytes: 8 << 10,
            unread_bytes: 64 << 20,
            request_time: Duration::from_secs(5),
            reply_time: Duration::from_secs(30),
        }
    }
}

/// A reply.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Its status, such as 200.
    pub status: u16,
    /// `Content-Type`.
    pub content_type: &'static str,
    /// Further header lines, each with its end (`\r\n`).
    pub headers: &'static str,
    /// The body.
    pub body: Arc<Vec<u8>>,
}

impl Reply {
    /// A line of text.
    pub fn text(status: u16, text: &str) -> Reply {
        let body = Arc::new(format!("{text}\n").into_bytes());
        Reply { status, content_type: "text/plain; charset=utf-8", headers: "", body }
    }

    fn of_fault(fault: Fault) -> Reply {
        let headers = if fault == Fault::Method { "Allow: GET, HEAD\r\n" } else { "" };
        Reply { headers, ..Reply::text(fault.status(), fault.text()) }
    }
}

/// Answers requests.
pub trait Service {
    /// The reply to a request. The body of a `HEAD` request is not sent.
    fn answer(&mut self, request: &Request<'_>) -> Reply;
}

/// Counters of a server.
#[derive(Default, Debug)]
pub struct Counts {
    /// Requests answered, faulty ones included.
    pub answered: AtomicU64,
    /// Connections that made room for others.
    pub evicted: AtomicU64,
    /// Connections ended by a deadline.
    pub timed_out: AtomicU64,
    /// Requests refused because too many replies are unread.
    pub refused: AtomicU64,
    /// Times without a free descriptor.
    pub accept_failed: AtomicU64,
}

/// Stops a server from another thread.
#[derive(Clone)]
pub struct Stop(Arc<AtomicBool>, Arc<Waker>);

impl Stop {
    /// Ends [`Server::run`] after the request that it answers.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Release);
        // Without a wake-up the server looks again by itself.
        let _ = self.1.wake();
    }
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

/// A server that listens.
pub struct Server {
    poll: Poll,
    listener: Listener,
    limits: Limits,
    counts: Arc<Counts>,
    conns: BTreeMap<Token, Conn>,
    next: usize,
    /// The listener may have further connections.
    accept_again: bool,
    stop: Stop,
}

impl Server {
    /// Listens. Replaces a socket in the file system that nobody listens at.
    ///
    /// # Errors
    /// The address is in use, or cannot be used.
    pub fn bind(address: &Address, limits: Limits) -> io::Result<Server> {
        let poll = Poll::new()?;
        let registry = poll.registry();
        let listener = match address {
            Address::Tcp(address) => {
                let mut listener = TcpListener::bind(*address)?;
                registry.register(&mut listener, LISTENER, Interest::READABLE)?;
                Listener::Tcp(listener)
            }
            Address::Unix(path) => {
                let mut listener = UnixListener::from_std(sys::local::listen_at(path, 0o770)?);
                registry.register(&mut listener, LISTENER, Interest::READABLE)?;
                Listener::Unix(listener, path.clone())
            }
        };
        let waker = Arc::new(Waker::new(registry, WAKER)?);
        Ok(Server {
            poll,
            listener,
            limits,
            counts: Arc::default(),
            conns: BTreeMap::new(),
            next: FIRST,
            accept_again: false,
            stop: Stop(Arc::default(), waker),
        })
    }

    /// The port, if it listens at one.
    pub fn port(&self) -> Option<u16> {
        match &self.listener {
            Listener::Tcp(listener) => listener.local_addr().ok().map(|address| address.port()),
            Listener::Unix(..) => None,
        }
    }

    /// For stopping it.
    pub fn stopper(&self) -> Stop {
        self.stop.clone()
    }

    /// Its counters.
    pub fn counts(&self) -> Arc<Counts> {
        self.counts.clone()
    }

    /// Serves until it is stopped.
    ///
    /// # Errors
    /// It cannot wait for events.
    pub fn run(mut self, service: &mut dyn Service) -> io::Result<()> {
        let mut events = Events::with_capacity(128);
        while !self.stop.0.load(Ordering::Acquire) {
            let idle = self.conns.is_empty() && !self.accept_again;
            let wait = if idle { None } else { Some(LOOK_AGAIN) };
            match self.poll.poll(&mut events, wait) {
                Err(e) if e.kind() != io::ErrorKind::Interrupted => return Err(e),
                _ => {}
            }
            if self.accept_again || events.iter().any(|event| event.token() == LISTENER) {
                self.accept();
            }
            for event in events.iter().filter(|event| event.token().0 >= FIRST) {
                self.serve(event.token(), service);
            }
            self.end_late(Instant::now());
        }
        Ok(())
    }

    fn accept(&mut self) {
        self.accept_again = false;
        for _ in 0..ACCEPTS_AT_ONCE {
            let token = Token(self.next);
            let conn = match &self.listener {
                Listener::Tcp(listener) => listener.accept().map(|(stream, _)| Conn::tcp(stream)),
                Listener::Unix(listener, _) => listener.accept().map(|(stream, _)| Conn::unix(stream)),
            };
            match conn {
                Ok(mut conn) => {
                    // A connection that cannot be watched is closed.
                    if conn.watch(self.poll.registry(), token).is_ok() {
                        self.next += 1;
                        self.make_room();
                        self.conns.insert(token, conn);
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    self.counts.accept_failed.fetch_add(1, Ordering::Relaxed);
                    self.accept_again = true;
                    return;
                }
            }
        }
        self.accept_again = true;
    }

    /// Ends the connection that has waited longest for its request, else the oldest.
    fn make_room(&mut self) {
        if self.conns.len() < self.limits.connections {
            return;
        }
        let asking = self.conns.iter().find(|(_, conn)| conn.is_asking()).map(|(token, _)| *token);
        let oldest = self.conns.keys().next().copied();
        if let Some(token) = asking.or(oldest) {
            self.conns.remove(&token);
            self.counts.evicted.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn serve(&mut self, token: Token, service: &mut dyn Service) {
        let Some(conn) = self.conns.get_mut(&token) else { return };
        let progress = match conn.read(self.limits.request_bytes) {
            Progress::Asked => {
                self.answer(token, service);
                let Some(conn) = self.conns.get_mut(&token) else { return };
                conn.write()
            }
            Progress::Waits => conn.write(),
            Progress::Over => Progress::Over,
        };
        if progress == Progress::Over {
            self.conns.remove(&token);
        }
    }

    fn answer(&mut self, token: Token, service: &mut dyn Service) {
        let unread = self.unread();
        let Some(conn) = self.conns.get_mut(&token) else { return };
        self.counts.answered.fetch_add(1, Ordering::Relaxed);
        let (reply, is_head) = match request::parse(conn.asked()) {
            // The connection asked, so its request is complete, faulty, or longer than allowed.
            Err(fault) => (Reply::of_fault(fault.unwrap_or(Fault::TooLong)), false),
            Ok(_) if unread > self.limits.unread_bytes => {
                self.counts.refused.fetch_add(1, Ordering::Relaxed);
                (Reply::text(503, "too many replies are unread: ask again later"), false)
            }
            Ok(request) => (service.answer(&request), request.is_head),
        };
        conn.reply(reply, is_head);
    }

    /// Bytes of different bodies that clients have not read yet.
    fn unread(&self) -> usize {
        let mut bodies: Vec<(*const Vec<u8>, usize)> =
            self.conns.values().filter_map(Conn::body).map(|body| (Arc::as_ptr(body), body.len())).collect();
        bodies.sort_unstable();
        bodies.dedup();
        bodies.iter().map(|(_, bytes)| bytes).sum()
    }

    fn end_late(&mut self, now: Instant) {
        let limits = self.limits;
        let before = self.conns.len();
        self.conns.retain(|_, conn| !conn.is_late(now, &limits));
        self.counts.timed_out.fetch_add((before - self.conns.len()) as u64, Ordering::Relaxed);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = &self.listener {
            // It may be gone already.
            let _ = std::fs::remove_file(path);
        }
    }
}
