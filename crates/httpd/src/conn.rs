//! One connection: the request, then the reply, then the end of both directions.

use crate::request::parse;
use crate::{LINGER, Limits, Reply};
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Instant;

/// Bytes that a client may send after its request before it is cut off.
const IGNORED_MAX: usize = 64 << 10;

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(buffer),
            Stream::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }

    fn end_output(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
    }
}

enum State {
    /// The request so far.
    Asking(Vec<u8>),
    /// The request is whole, or longer than allowed.
    Asked(Vec<u8>),
    Replying {
        head: Vec<u8>,
        body: Arc<Vec<u8>>,
        sent: usize,
    },
    /// The reply is with the client, which has not closed yet: closing first could destroy the reply on its way.
    Lingering,
}

/// The next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// An event.
    Waits,
    /// The answer to a request.
    Asked,
    /// The end.
    Over,
}

/// See the module documentation.
pub(crate) struct Conn {
    stream: Stream,
    state: State,
    /// Start of this state.
    since: Instant,
    /// Bytes read after the request.
    ignored: usize,
}

impl Conn {
    fn new(stream: Stream) -> Conn {
        Conn { stream, state: State::Asking(Vec::new()), since: Instant::now(), ignored: 0 }
    }

    pub(crate) fn tcp(stream: TcpStream) -> Conn {
        Conn::new(Stream::Tcp(stream))
    }

    pub(crate) fn unix(stream: UnixStream) -> Conn {
        Conn::new(Stream::Unix(stream))
    }

    pub(crate) fn watch(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let both = Interest::READABLE | Interest::WRITABLE;
        match &mut self.stream {
            Stream::Tcp(stream) => registry.register(stream, token, both),
            Stream::Unix(stream) => registry.register(stream, token, both),
        }
    }

    pub(crate) fn is_asking(&self) -> bool {
        matches!(self.state, State::Asking(_))
    }

    /// The request.
    pub(crate) fn asked(&self) -> &[u8] {
        match &self.state {
            State::Asking(request) | State::Asked(request) => request,
            _ => &[],
        }
    }

    /// The body under way.
    pub(crate) fn body(&self) -> Option<&Arc<Vec<u8>>> {
        match &self.state {
            State::Replying { body, .. } => Some(body),
            _ => None,
        }
    }

    pub(crate) fn is_late(&self, now: Instant, limits: &Limits) -> bool {
        let limit = match self.state {
            State::Asking(_) | State::Asked(_) => limits.request_time,
            State::Replying { .. } => limits.reply_time,
            State::Lingering => LINGER,
        };
        now.saturating_duration_since(self.since) > limit
    }

    fn enter(&mut self, state: State) {
        (self.state, self.since) = (state, Instant::now());
    }

    /// Reads all there is.
    pub(crate) fn read(&mut self, request_bytes: usize) -> Progress {
        let mut buffer = [0; 4096];
        loop {
            let n = match self.stream.read(&mut buffer) {
                // A client may close its side after the request and still read.
                Ok(0) => {
                    let replying = matches!(self.state, State::Replying { .. });
                    return if replying { Progress::Waits } else { Progress::Over };
                }
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Progress::Waits,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return Progress::Over,
            };
            let State::Asking(request) = &mut self.state else {
                self.ignored += n;
                if self.ignored > IGNORED_MAX {
                    return Progress::Over;
                }
                continue;
            };
            request.extend_from_slice(&buffer[..n]);
            // The end of a head is looked for only where it can be: a slow client cannot make each byte cost a whole parse.
            let ends = buffer[..n].contains(&b'\n') || request.len() > request_bytes;
            if ends && (request.len() > request_bytes || parse(request) != Err(None)) {
                let request = std::mem::take(request);
                self.enter(State::Asked(request));
                return Progress::Asked;
            }
        }
    }

    /// Sets the reply.
    pub(crate) fn reply(&mut self, reply: Reply, is_head: bool) {
        let Reply { status, content_type, headers, body } = reply;
        let head = format!(
            "HTTP/1.1 {status} {}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
             {headers}Connection: close\r\n\r\n",
            reason(status),
            body.len()
        );
        let body = if is_head { Arc::default() } else { body };
        self.enter(State::Replying { head: head.into_bytes(), body, sent: 0 });
    }

    /// Writes what fits.
    pub(crate) fn write(&mut self) -> Progress {
        let State::Replying { head, body, sent } = &mut self.state else { return Progress::Waits };
        loop {
            let rest = if *sent < head.len() { &head[*sent..] } else { &body[*sent - head.len()..] };
            if rest.is_empty() {
                break;
            }
            match self.stream.write(rest) {
                Ok(0) => return Progress::Over,
                Ok(n) => *sent += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Progress::Waits,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Progress::Over,
            }
        }
        let ended = self.stream.end_output();
        self.enter(State::Lingering);
        // Bytes that the client sent meanwhile have no further event.
        if ended.is_err() { Progress::Over } else { self.read(0) }
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "Error",
    }
}
