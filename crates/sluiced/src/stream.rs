//! Byte streams of the control plane: non-blocking listeners and connections over Unix and TCP sockets, and TLS over
//! the latter, with a bounded output buffer.
//!
//! A listener for TLS returns a connection once its handshake is complete ([`handshakes`]). Connections over TLS always
//! watch both directions: a read may have to write first, and a write may have to read. Events are edge-triggered, so
//! this costs nothing.

mod handshakes;
#[cfg(test)]
mod tests;

use super::reactor::Reactor;
use handshakes::Handshakes;
use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::{Interest, Registry, Token};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use sys::local;
use tls::{Handshake, Session};

/// Maximum bytes of one read(2).
const READ_BYTES: usize = 64 << 10;
/// Maximum connections accepted per turn.
const ACCEPTS_PER_TURN: usize = 64;
/// The DSCP of connections that no row gives one.
pub const NO_DSCP: u8 = 0;
/// Retry interval of a listener that could not accept a connection.
const ACCEPT_AGAIN_MS: u64 = 100;

/// Target to connect to, or to listen at (`unix:`, `punix:`, `tcp:`, `ptcp:`, `ssl:`, `pssl:`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Endpoint {
    /// `unix:PATH`.
    Unix(PathBuf),
    /// `punix:PATH`.
    PassiveUnix(PathBuf),
    /// `tcp:HOST:PORT`, with an address as host.
    Tcp(SocketAddr),
    /// `ptcp:[PORT][:HOST]`.
    PassiveTcp(SocketAddr),
    /// `ssl:HOST:PORT`, with an address as host.
    Ssl(SocketAddr),
    /// `pssl:[PORT][:HOST]`.
    PassiveSsl(SocketAddr),
}

/// Fault of a target.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{target}: {why}")]
pub struct EndpointError {
    target: String,
    why: &'static str,
}

impl Endpoint {
    /// Parses a target; `default_port` applies if it has none.
    pub fn parse(target: &str, default_port: u16) -> Result<Endpoint, EndpointError> {
        let fail = |why| EndpointError { target: target.to_string(), why };
        let (kind, rest) =
            target.split_once(':').ok_or_else(|| fail("no connection method (such as unix: or tcp:)"))?;
        match kind {
            "unix" | "punix" if rest.is_empty() => Err(fail("a path is missing")),
            "unix" => Ok(Endpoint::Unix(rest.into())),
            "punix" => Ok(Endpoint::PassiveUnix(rest.into())),
            "tcp" | "ssl" => {
                let (host, port) = split_host(rest).ok_or_else(|| fail("not an address and a port"))?;
                let host = host.ok_or_else(|| fail("an IP address is missing"))?;
                let address = SocketAddr::new(host, port.unwrap_or(default_port));
                Ok(if kind == "ssl" { Endpoint::Ssl(address) } else { Endpoint::Tcp(address) })
            }
            "ptcp" | "pssl" => {
                let (port, host) = rest.split_once(':').unwrap_or((rest, ""));
                let port = match port {
                    "" => default_port,
                    p => p.parse().map_err(|_| fail("not a port number"))?,
                };
                let host = match host.trim_matches(['[', ']']) {
                    "" => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
                    h => h.parse().map_err(|_| fail("not an IP address"))?,
                };
                let address = SocketAddr::new(host, port);
                Ok(if kind == "pssl" { Endpoint::PassiveSsl(address) } else { Endpoint::PassiveTcp(address) })
            }
            _ => Err(fail("unknown connection method; use unix:, punix:, tcp:, ptcp:, ssl: or pssl:")),
        }
    }

    /// The IPv4 address that it connects to.
    pub fn remote_ipv4(&self) -> Option<SocketAddrV4> {
        match self {
            Endpoint::Tcp(SocketAddr::V4(address)) | Endpoint::Ssl(SocketAddr::V4(address)) => Some(*address),
            Endpoint::Unix(_)
            | Endpoint::PassiveUnix(_)
            | Endpoint::Tcp(SocketAddr::V6(_))
            | Endpoint::PassiveTcp(_)
            | Endpoint::Ssl(SocketAddr::V6(_))
            | Endpoint::PassiveSsl(_) => None,
        }
    }

    /// Whether it listens.
    pub fn is_passive(&self) -> bool {
        matches!(self, Endpoint::PassiveUnix(_) | Endpoint::PassiveTcp(_) | Endpoint::PassiveSsl(_))
    }

    /// Whether its connections need keys and certificates.
    pub fn is_tls(&self) -> bool {
        matches!(self, Endpoint::Ssl(_) | Endpoint::PassiveSsl(_))
    }
}

/// `HOST`, `HOST:PORT`, `[HOST]:PORT`.
fn split_host(s: &str) -> Option<(Option<IpAddr>, Option<u16>)> {
    if let Some(rest) = s.strip_prefix('[') {
        let (host, port) = rest.split_once(']')?;
        let port = port.strip_prefix(':').map(str::parse).transpose().ok()?;
        return Some((Some(host.parse().ok()?), port));
    }
    match s.split_once(':') {
        Some((host, port)) => Some((Some(host.parse().ok()?), Some(port.parse().ok()?))),
        None if s.is_empty() => Some((None, None)),
        None => Some((Some(s.parse().ok()?), None)),
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Unix(path) => write!(f, "unix:{}", path.display()),
            Endpoint::PassiveUnix(path) => write!(f, "punix:{}", path.display()),
            Endpoint::Tcp(addr) => write!(f, "tcp:{addr}"),
            Endpoint::PassiveTcp(addr) => write!(f, "ptcp:{}:{}", addr.port(), addr.ip()),
            Endpoint::Ssl(addr) => write!(f, "ssl:{addr}"),
            Endpoint::PassiveSsl(addr) => write!(f, "pssl:{}:{}", addr.port(), addr.ip()),
        }
    }
}

enum Listening {
    Unix(UnixListener, PathBuf),
    Tcp(TcpListener),
}

/// A listening socket. Removes its Unix socket file on drop.
pub struct Listener {
    target: String,
    socket: Listening,
    /// Another process listens by the same socket: its file stays.
    is_lent: bool,
    token: Token,
    /// The last attempt to accept a connection failed.
    starved: bool,
    /// For TLS: connections whose handshakes are under way.
    handshakes: Option<Handshakes>,
}

impl Listener {
    /// Listens at a passive endpoint. Replaces a stale Unix socket file. The DSCP, from 0 to 63, is that of connections
    /// over TCP.
    pub fn open(endpoint: &Endpoint, dscp: u8, registry: &Registry, token: Token) -> io::Result<Listener> {
        let socket = match endpoint {
            Endpoint::PassiveUnix(path) => Listening::Unix(
                UnixListener::from_std(local::listen_at(path, local::SOCKET_MODE)?),
                path.clone(),
            ),
            Endpoint::PassiveTcp(addr) | Endpoint::PassiveSsl(addr) => {
                Listening::Tcp(TcpListener::bind(*addr)?)
            }
            Endpoint::Unix(_) | Endpoint::Tcp(_) | Endpoint::Ssl(_) => {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "not an endpoint to listen at"));
            }
        };
        Listener::of(endpoint, socket, dscp, registry, token)
    }

    /// As [`Listener::open`], by the socket that another process has lent for that endpoint, if it has.
    pub fn open_in(
        endpoint: &Endpoint,
        dscp: u8,
        reactor: &mut Reactor,
        token: Token,
    ) -> io::Result<Listener> {
        reactor.counts.listeners_opened += 1;
        let Some(fd) = reactor.lent.remove(&endpoint.to_string()) else {
            return Listener::open(endpoint, dscp, reactor.registry(), token);
        };
        let socket = match endpoint {
            Endpoint::PassiveUnix(path) => {
                Listening::Unix(UnixListener::from_std(local::listener(fd)?), path.clone())
            }
            _ => Listening::Tcp(TcpListener::from_std(fd.into())),
        };
        Listener::of(endpoint, socket, dscp, reactor.registry(), token)
    }

    fn of(
        endpoint: &Endpoint,
        mut socket: Listening,
        dscp: u8,
        registry: &Registry,
        token: Token,
    ) -> io::Result<Listener> {
        match &mut socket {
            Listening::Unix(l, _) => registry.register(l, token, Interest::READABLE)?,
            Listening::Tcp(l) => registry.register(l, token, Interest::READABLE)?,
        }
        let handshakes = endpoint.is_tls().then(|| Handshakes::new(token));
        let target = endpoint.to_string();
        let listener = Listener { target, socket, is_lent: false, token, starved: false, handshakes };
        listener.set_dscp(dscp)?;
        Ok(listener)
    }

    /// Its target and its socket, for another process. The file of a Unix socket stays.
    pub fn lend(&mut self) -> io::Result<(String, OwnedFd)> {
        let fd = match &self.socket {
            Listening::Unix(listener, _) => listener.as_fd().try_clone_to_owned()?,
            Listening::Tcp(listener) => listener.as_fd().try_clone_to_owned()?,
        };
        self.is_lent = true;
        Ok((self.target.clone(), fd))
    }

    /// The other process has failed.
    pub fn take_back(&mut self) {
        self.is_lent = false;
    }

    /// TCP port it listens at; `None` for Unix sockets.
    pub fn port(&self) -> Option<u16> {
        match &self.socket {
            Listening::Tcp(socket) => socket.local_addr().ok().map(|address| address.port()),
            Listening::Unix(..) => None,
        }
    }

    /// Sets the DSCP of connections accepted from now on.
    pub fn set_dscp(&self, dscp: u8) -> io::Result<()> {
        match &self.socket {
            Listening::Unix(..) => Ok(()),
            Listening::Tcp(listener) => sys::tcp::set_dscp(listener, dscp),
        }
    }

    /// Whether events of this token are for this listener.
    pub fn owns(&self, token: Token) -> bool {
        token == self.token || self.handshakes.as_ref().is_some_and(|h| h.has(token))
    }

    /// Handles an event of a token that it owns: accepts waiting connections, a bounded number per turn, or continues a
    /// handshake. Returns the established connections. Events are edge-triggered: while more connections may wait, or
    /// one cannot be accepted for lack of descriptors or memory, its token is served again without an event.
    pub fn serve(&mut self, token: Token, reactor: &mut Reactor) -> Vec<Conn> {
        if let Some(handshakes) = self.handshakes.as_mut().filter(|_| token != self.token) {
            return handshakes.advance(token, reactor).into_iter().collect();
        }
        if let Some(handshakes) = &mut self.handshakes {
            handshakes.expire(reactor);
        }
        let mut all = Vec::new();
        for _ in 0..ACCEPTS_PER_TURN {
            let token = reactor.token();
            match self.accept_one(reactor).and_then(|stream| Conn::new(stream, reactor.registry(), token)) {
                Ok(conn) => match &mut self.handshakes {
                    Some(handshakes) => all.extend(handshakes.begin(conn, reactor)),
                    None => all.push(conn),
                },
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.starved = false;
                    return all;
                }
                // It disconnected, or a signal arrived.
                Err(e)
                    if matches!(e.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) => {}
                Err(e) => {
                    reactor.counts.accept_failed += 1;
                    if !std::mem::replace(&mut self.starved, true) {
                        log::warn!(target: "stream", "cannot accept a connection: {e}; retrying");
                    }
                    reactor.serve_in(self.token, ACCEPT_AGAIN_MS);
                    return all;
                }
            }
        }
        reactor.serve_again(self.token);
        all
    }

    fn accept_one(&self, reactor: &mut Reactor) -> io::Result<Stream> {
        match &self.socket {
            Listening::Unix(l, _) => l.accept().map(|(s, _)| Stream::Unix(s)),
            Listening::Tcp(l) => {
                let (stream, peer) = l.accept()?;
                // Only latency depends on it.
                let _ = stream.set_nodelay(true);
                if self.handshakes.is_none() {
                    return Ok(Stream::Tcp(stream));
                }
                // Without keys and certificates the client is disconnected, and the log has the reason.
                let session = reactor.tls.accept(stream, format!("ssl:{peer}"));
                session
                    .map(|session| Stream::Tls(Box::new(session)))
                    .map_err(|_| io::ErrorKind::ConnectionAborted.into())
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listening::Unix(_, path) = &self.socket
            && !self.is_lent
        {
            // It may have been removed by hand.
            let _ = std::fs::remove_file(path);
        }
    }
}

enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
    Tls(Box<Session<TcpStream>>),
}

impl Stream {
    fn source(&mut self) -> &mut dyn mio::event::Source {
        match self {
            Stream::Unix(s) => s,
            Stream::Tcp(s) => s,
            Stream::Tls(s) => s.get_mut(),
        }
    }

    fn take_error(&self) -> Option<io::Error> {
        match self {
            Stream::Unix(s) => s.take_error(),
            Stream::Tcp(s) => s.take_error(),
            Stream::Tls(s) => s.get_ref().take_error(),
        }
        .ok()
        .flatten()
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(s) => s.read(bytes),
            Stream::Tcp(s) => s.read(bytes),
            Stream::Tls(s) => s.read(bytes),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(s) => s.write(bytes),
            Stream::Tcp(s) => s.write(bytes),
            Stream::Tls(s) => s.write(bytes),
        }
    }
}

/// A connection.
pub struct Conn {
    stream: Stream,
    token: Token,
    out: Vec<u8>,
    sent: usize,
    writable_wanted: bool,
}

impl Conn {
    fn new(mut stream: Stream, registry: &Registry, token: Token) -> io::Result<Conn> {
        let interest = interest(&stream);
        registry.register(stream.source(), token, interest)?;
        Ok(Conn { stream, token, out: Vec::new(), sent: 0, writable_wanted: false })
    }

    /// Starts to connect to an active endpoint, over TCP with a DSCP from 0 to 63: [`Conn::connected`] reports the result.
    pub fn connect(endpoint: &Endpoint, dscp: u8, reactor: &mut Reactor, token: Token) -> io::Result<Conn> {
        reactor.counts.streams_opened += 1;
        let stream = match endpoint {
            Endpoint::Unix(path) => Stream::Unix(UnixStream::connect(path)?),
            Endpoint::Tcp(addr) => Stream::Tcp(TcpStream::from_std(sys::tcp::connect(*addr, dscp)?)),
            Endpoint::Ssl(addr) => {
                let stream = TcpStream::from_std(sys::tcp::connect(*addr, dscp)?);
                Stream::Tls(Box::new(reactor.tls.connect(stream, endpoint.to_string())?))
            }
            Endpoint::PassiveUnix(_) | Endpoint::PassiveTcp(_) | Endpoint::PassiveSsl(_) => {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "not an endpoint to connect to"));
            }
        };
        let mut conn = Conn::new(stream, reactor.registry(), token)?;
        conn.want_writable(true, reactor.registry())?;
        Ok(conn)
    }

    /// Goes on with a non-blocking connection of another process, over a Unix socket or TCP.
    pub fn adopt(fd: OwnedFd, is_unix: bool, reactor: &Reactor, token: Token) -> io::Result<Conn> {
        let stream = match is_unix {
            true => Stream::Unix(UnixStream::from_std(fd.into())),
            false => Stream::Tcp(TcpStream::from_std(fd.into())),
        };
        Conn::new(stream, reactor.registry(), token)
    }

    /// Its socket, for another process.
    ///
    /// # Errors
    /// It is encrypted, or there is no descriptor left.
    pub fn lend(&self) -> Result<OwnedFd, &'static str> {
        let fd = match &self.stream {
            Stream::Unix(stream) => stream.as_fd().try_clone_to_owned(),
            Stream::Tcp(stream) => stream.as_fd().try_clone_to_owned(),
            Stream::Tls(_) => return Err("keys of TLS stay with their process"),
        };
        fd.map_err(|_| "no descriptor is left")
    }

    /// Whether it is encrypted.
    pub fn is_tls(&self) -> bool {
        matches!(self.stream, Stream::Tls(_))
    }

    /// Its token.
    pub fn token(&self) -> Token {
        self.token
    }

    /// Sets the DSCP of packets sent from now on.
    pub fn set_dscp(&self, dscp: u8) -> io::Result<()> {
        match &self.stream {
            Stream::Unix(_) => Ok(()),
            Stream::Tcp(s) => sys::tcp::set_dscp(s, dscp),
            Stream::Tls(s) => sys::tcp::set_dscp(s.get_ref(), dscp),
        }
    }

    /// Name of the peer in the log.
    pub fn peer(&self) -> String {
        match &self.stream {
            Stream::Unix(_) => "unix".to_string(),
            Stream::Tcp(s) => s.peer_addr().map_or_else(|_| "tcp".to_string(), |addr| format!("tcp:{addr}")),
            Stream::Tls(s) => s.name().to_string(),
        }
    }

    /// The peer's name in the log: local peers, which have none, get the number of their socket, as in OVS.
    pub fn label(&self) -> String {
        match &self.stream {
            Stream::Unix(_) => format!("unix#{}", self.token.0),
            Stream::Tcp(_) | Stream::Tls(_) => self.peer(),
        }
    }

    /// Whether a pending connection is established: `Err` with the failure, `Ok(false)` to call again after an event.
    pub fn connected(&mut self, reactor: &mut Reactor) -> io::Result<bool> {
        if let Some(e) = self.stream.take_error() {
            return Err(e);
        }
        let peer = match &self.stream {
            Stream::Unix(_) => return Ok(true),
            Stream::Tcp(s) => s.peer_addr(),
            Stream::Tls(s) => s.get_ref().peer_addr(),
        };
        match (peer, &mut self.stream) {
            (Ok(_), Stream::Tls(session)) => Ok(reactor.handshake(session, self.token)? == Handshake::Done),
            (Ok(_), _) => Ok(true),
            (Err(e), _) if e.kind() == io::ErrorKind::NotConnected => Ok(false),
            (Err(e), _) => Err(e),
        }
    }

    /// Reads available bytes into the reactor's buffer, as many as it holds. `Ok(None)`: the peer closed. The second
    /// value is true if there may be more.
    ///
    /// A short read means that no more is there. Only the end of the stream may be, and an event of this turn that does
    /// not report it saves the read that would find out: a later end has an event of its own. (A peer that sends
    /// descriptors or urgent data, which nobody does, has its input split there until it sends more.)
    pub fn read<'r>(&mut self, reactor: &'r mut Reactor) -> io::Result<Option<(&'r [u8], bool)>> {
        let is_plain = !matches!(self.stream, Stream::Tls(_));
        let is_open = is_plain && reactor.is_open(self.token);
        let buffer = reactor.buffer();
        let (mut len, mut was_reset) = (0, false);
        let more = loop {
            let end = buffer.len().min(len + READ_BYTES);
            match self.stream.read(&mut buffer[len..end]) {
                Ok(0) if len == 0 => return Ok(None),
                // Serve input before the end first; the next read reports the end.
                Ok(0) => break true,
                Ok(n) => len += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break false,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                // A local peer that closed with unread data causes one error before its own data (unix(7)).
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset && !was_reset => was_reset = true,
                // An error of TLS is reported again.
                Err(_) if len > 0 => break true,
                Err(e) => return Err(e),
            }
            if is_open && !was_reset && len < end {
                break false;
            }
            if len == buffer.len() {
                break true;
            }
        };
        Ok(Some((&buffer[..len], more)))
    }

    /// Number of unsent bytes.
    pub fn backlog_bytes(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Appends bytes and sends as many as possible.
    pub fn send(&mut self, bytes: &[u8], registry: &Registry) -> io::Result<()> {
        self.out.extend_from_slice(bytes);
        self.flush(registry)
    }

    /// Sends as many of these bytes as possible and buffers none; returns their number. Pass the rest again once
    /// writable.
    pub fn send_some(&mut self, bytes: &[u8], registry: &Registry) -> io::Result<usize> {
        let mut sent = 0;
        while sent < bytes.len() {
            match self.stream.write(&bytes[sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => sent += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.want_writable(sent < bytes.len(), registry)?;
        Ok(sent)
    }

    /// Sends as many bytes as possible.
    pub fn flush(&mut self, registry: &Registry) -> io::Result<()> {
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => self.sent += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
        } else if self.sent > (1 << 20).max(self.out.len() / 2) {
            // Moves less than was sent.
            self.out.drain(..self.sent);
            self.sent = 0;
        }
        self.want_writable(!self.out.is_empty(), registry)
    }

    fn want_writable(&mut self, wanted: bool, registry: &Registry) -> io::Result<()> {
        if wanted != self.writable_wanted {
            let always = interest(&self.stream);
            let interest = if wanted { always | Interest::WRITABLE } else { always };
            registry.reregister(self.stream.source(), self.token, interest)?;
            self.writable_wanted = wanted;
        }
        Ok(())
    }

    /// Ends the registration; dropping closes the connection.
    pub fn close(&mut self, registry: &Registry) {
        // It may be gone already.
        let _ = registry.deregister(self.stream.source());
    }
}

/// Events that a connection always waits for.
fn interest(stream: &Stream) -> Interest {
    match stream {
        Stream::Unix(_) | Stream::Tcp(_) => Interest::READABLE,
        Stream::Tls(_) => Interest::READABLE | Interest::WRITABLE,
    }
}
