//! [`Session`]: TLS over one byte stream.

use openssl::ssl::{ErrorCode, Ssl, SslStream};
use openssl::x509::{X509, X509VerifyResult};
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};

/// Bytes kept of the peer's first ones.
const HEAD_BYTES: usize = 2;

/// Progress of a handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Handshake {
    /// Complete: bytes may be exchanged.
    Done,
    /// Continue when the stream is readable or writable.
    Wait,
}

/// Side of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Client,
    Server,
}

/// The stream, and the first bytes that came from it: they show a peer that does not use TLS.
struct Tapped<S> {
    stream: S,
    head: [u8; HEAD_BYTES],
    seen: usize,
}

impl<S: Read> Read for Tapped<S> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.stream.read(bytes)?;
        for byte in &bytes[..count.min(HEAD_BYTES - self.seen)] {
            self.head[self.seen] = *byte;
            self.seen += 1;
        }
        Ok(count)
    }
}

impl<S: Write> Write for Tapped<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// TLS over a byte stream. After an error the session is over. Dropping it notifies the peer of the end.
pub struct Session<S: Read + Write> {
    stream: SslStream<Tapped<S>>,
    side: Side,
    /// Name of the peer in the log.
    name: String,
    pub(crate) bootstrap: bool,
    /// No more operations: it was closed, or failed for this reason.
    over: Option<(ErrorKind, String)>,
}

impl<S: Read + Write> Session<S> {
    pub(crate) fn new(
        mut ssl: Ssl,
        stream: S,
        side: Side,
        name: String,
        bootstrap: bool,
    ) -> io::Result<Session<S>> {
        match side {
            Side::Client => ssl.set_connect_state(),
            Side::Server => ssl.set_accept_state(),
        }
        let tapped = Tapped { stream, head: [0; HEAD_BYTES], seen: 0 };
        let stream = SslStream::new(ssl, tapped).map_err(io::Error::other)?;
        Ok(Session { stream, side, name, bootstrap, over: None })
    }

    /// The byte stream, such as for registering it.
    pub fn get_ref(&self) -> &S {
        &self.stream.get_ref().stream
    }

    /// The host that the client named.
    #[cfg(test)]
    pub(crate) fn server_name(&self) -> Option<&str> {
        self.stream.ssl().servername(openssl::ssl::NameType::HOST_NAME)
    }

    /// The stream, mutable.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.stream.get_mut().stream
    }

    /// Name of the peer.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn handshake(&mut self) -> io::Result<Handshake> {
        match self.stream.do_handshake() {
            Ok(()) => Ok(Handshake::Done),
            Err(e) if waits(&e) => Ok(Handshake::Wait),
            Err(e) => {
                let function = match self.side {
                    Side::Client => "SSL_connect",
                    Side::Server => "SSL_accept",
                };
                let failed = self.failed(function, &e);
                self.report_plain();
                Err(failed)
            }
        }
    }

    /// The last certificate of the peer's chain: its CA, if it sends that.
    pub(crate) fn peer_ca(&self) -> Option<X509> {
        self.stream.ssl().peer_cert_chain()?.iter().last().map(ToOwned::to_owned)
    }

    /// Reads bytes; 0 at the end of the session, [`ErrorKind::WouldBlock`] to call again when the stream is readable or
    /// writable.
    pub fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if let Some((kind, why)) = &self.over {
            return Err(io::Error::new(*kind, why.clone()));
        }
        match self.stream.ssl_read(bytes) {
            Ok(count) => Ok(count),
            Err(e) if e.code() == ErrorCode::ZERO_RETURN => Ok(0),
            Err(e) if waits(&e) => Err(ErrorKind::WouldBlock.into()),
            Err(e) => Err(self.failed("SSL_read", &e)),
        }
    }

    /// Writes bytes; [`ErrorKind::WouldBlock`] to call again when the stream is readable or writable. Then the next
    /// call must begin with the same bytes.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some((kind, why)) = &self.over {
            return Err(io::Error::new(*kind, why.clone()));
        }
        if bytes.is_empty() {
            return Ok(0);
        }
        match self.stream.ssl_write(bytes) {
            Ok(count) => Ok(count),
            Err(e) if waits(&e) => Err(ErrorKind::WouldBlock.into()),
            Err(e) => Err(self.failed("SSL_write", &e)),
        }
    }

    /// Tells the peer that the session ends, if that is possible at once.
    pub fn close(&mut self) {
        if self.over.is_none() {
            self.over = Some((ErrorKind::NotConnected, "the session is closed".to_string()));
            // The peer may be gone, or not read.
            let _ = self.stream.shutdown();
        }
    }

    /// Ends the session, and logs the failure as OVS does: the function of OpenSSL, and its reason.
    fn failed(&mut self, function: &str, error: &openssl::ssl::Error) -> io::Error {
        let (kind, logged, why) = self.explain(error);
        log::warn!(target: "stream_ssl", "{}: {function}: {logged}", self.name);
        self.over = Some((kind, why.clone()));
        io::Error::new(kind, why)
    }

    /// Kind of a failure, its text in the log, and for status columns.
    fn explain(&self, error: &openssl::ssl::Error) -> (ErrorKind, String, String) {
        if let Some(e) = error.io_error() {
            return (e.kind(), format!("system error ({e})"), e.to_string());
        }
        let Some(cause) = error.ssl_error().and_then(|stack| stack.errors().first()) else {
            let text = "unexpected SSL/TLS connection close".to_string();
            return (ErrorKind::UnexpectedEof, text.clone(), format!("Protocol error: {text}"));
        };
        let reason = cause.reason().unwrap_or("unknown reason");
        let detail = match self.stream.ssl().verify_result() {
            X509VerifyResult::OK => String::new(),
            failed => format!(": {}", failed.error_string()),
        };
        let library = cause.library().unwrap_or("lib(0)");
        let logged = format!("error:{:08X}:{library}::{reason}{detail}", cause.code());
        (ErrorKind::InvalidData, logged, format!("Protocol error: {reason}{detail}"))
    }

    /// Reports the probable protocol of a peer that does not use TLS.
    fn report_plain(&self) {
        let tapped = self.stream.get_ref();
        let kind = match tapped.head {
            _ if tapped.seen < HEAD_BYTES => return,
            // Records of TLS; some alerts precede these.
            [20..=24, 3] => return,
            [b'{', _] => "JSON-RPC",
            [1..=6, 0..=35] => "OpenFlow",
            _ => "unknown",
        };
        log::warn!(target: "stream_ssl", "{}: received {kind} data on a TLS connection", self.name);
    }
}

impl<S: Read + Write> fmt::Debug for Session<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("name", &self.name).field("side", &self.side).finish_non_exhaustive()
    }
}

impl<S: Read + Write> Drop for Session<S> {
    fn drop(&mut self) {
        self.close();
    }
}

/// Whether an operation waits for the stream. A read may have to write first, and a write to read.
fn waits(error: &openssl::ssl::Error) -> bool {
    [ErrorCode::WANT_READ, ErrorCode::WANT_WRITE].contains(&error.code())
}
