//! Paths of the switch's sockets, and blocking streams to them with a deadline.
//!
//! A [`Stream`] never waits beyond its [`Deadline`]: reads and writes then return [`TimedOut`].

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tls::{Handshake, Session, Settings, Tls};

/// Exit code of a program killed by its alarm, as in a shell (128 + SIGALRM).
pub(crate) const EXIT_TIMED_OUT: u8 = 142;
/// Interval between connection attempts with `retry`.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum wait of one TCP connection attempt without a deadline.
const TCP_CONNECT_LIMIT: Duration = Duration::from_secs(30);

/// The deadline passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimedOut;

impl fmt::Display for TimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time given by --timeout is over")
    }
}

impl std::error::Error for TimedOut {}

/// Prints an error the way the OVS tools do.
pub(crate) fn complain(program: &str, text: &str) {
    // Standard error may be closed.
    let _unwritten = writeln!(io::stderr(), "{program}: {text}");
}

/// Prints the result. A closed pipe (`| head`) is not an error.
pub(crate) fn print(text: &str) {
    let mut out = io::stdout().lock();
    let _unwritten = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// The folder of the switch's sockets.
pub(crate) fn run_dir() -> PathBuf {
    std::env::var_os("OVS_RUNDIR")
        .filter(|dir| !dir.is_empty())
        .map_or("/var/run/openvswitch".into(), PathBuf::from)
}

/// The end of all waiting; `None` waits for ever.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// That time from now.
    pub(crate) fn within(time: Duration) -> Self {
        Deadline(Some(Instant::now() + time))
    }

    /// That many seconds from now; 0 is never.
    pub(crate) fn after_s(seconds: u32) -> Self {
        Deadline((seconds > 0).then(|| Instant::now() + Duration::from_secs(seconds.into())))
    }

    /// Remaining time; never zero.
    pub(crate) fn left(self) -> Result<Option<Duration>, TimedOut> {
        match self.0 {
            None => Ok(None),
            Some(end) => match end.checked_duration_since(Instant::now()) {
                Some(left) if !left.is_zero() => Ok(Some(left)),
                _ => Err(TimedOut),
            },
        }
    }
}

/// A number of seconds for `--timeout`.
pub(crate) fn parse_timeout_s(text: &str) -> Result<u32, String> {
    let seconds = text.parse().ok().filter(|seconds| *seconds > 0);
    seconds.ok_or_else(|| format!("value {text} on -t or --timeout is invalid"))
}

/// A byte stream to a server.
pub(crate) enum Stream {
    /// Over a unix socket.
    Unix(UnixStream),
    /// Over TCP.
    Tcp(TcpStream),
    /// Over TLS.
    Tls(Box<Session<TcpStream>>),
}

impl Stream {
    /// Connects to `unix:PATH`, `tcp:HOST:PORT` or `ssl:HOST:PORT`; with `retry`, repeatedly until success or the
    /// deadline.
    pub(crate) fn connect(remote: &str, pki: &Settings, retry: bool, deadline: Deadline) -> Result<Stream> {
        let mut tls = remote.starts_with("ssl:").then(|| Tls::new(pki.clone()));
        loop {
            match Stream::try_connect(remote, tls.as_mut(), deadline) {
                Err(error) if retry && error.is::<io::Error>() => {
                    let left = deadline.left()?.unwrap_or(RETRY_INTERVAL);
                    std::thread::sleep(left.min(RETRY_INTERVAL));
                }
                other => return other,
            }
        }
    }

    fn try_connect(remote: &str, tls: Option<&mut Tls>, deadline: Deadline) -> Result<Stream> {
        match remote.split_once(':') {
            Some(("unix", path)) => Ok(Stream::Unix(UnixStream::connect(path)?)),
            Some(("tcp", address)) => Ok(Stream::Tcp(connect_tcp(remote, address, deadline)?)),
            Some(("ssl", address)) if let Some(tls) = tls => {
                let stream = connect_tcp(remote, address, deadline)?;
                let mut session = tls.connect(stream, remote.to_string())?;
                loop {
                    let limit = deadline.left()?;
                    session.get_ref().set_read_timeout(limit)?;
                    session.get_ref().set_write_timeout(limit)?;
                    if tls.handshake(&mut session)? == Handshake::Done {
                        return Ok(Stream::Tls(Box::new(session)));
                    }
                }
            }
            _ => bail!("{remote}: only unix:PATH, tcp:HOST:PORT and ssl:HOST:PORT are understood"),
        }
    }

    /// Reads available bytes; empty at the end of the stream.
    pub(crate) fn receive(&mut self, deadline: Deadline) -> Result<Vec<u8>> {
        let mut buffer = vec![0; 65536];
        loop {
            let limit = deadline.left()?;
            let result = match self {
                Stream::Unix(s) => s.set_read_timeout(limit).and_then(|()| s.read(&mut buffer)),
                Stream::Tcp(s) => s.set_read_timeout(limit).and_then(|()| s.read(&mut buffer)),
                Stream::Tls(s) => s.get_ref().set_read_timeout(limit).and_then(|()| s.read(&mut buffer)),
            };
            match result {
                Ok(length) => {
                    buffer.truncate(length);
                    return Ok(buffer);
                }
                Err(error) if is_pause(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Writes it all.
    pub(crate) fn send(&mut self, mut bytes: &[u8], deadline: Deadline) -> Result<()> {
        while !bytes.is_empty() {
            let limit = deadline.left()?;
            let result = match self {
                Stream::Unix(s) => s.set_write_timeout(limit).and_then(|()| s.write(bytes)),
                Stream::Tcp(s) => s.set_write_timeout(limit).and_then(|()| s.write(bytes)),
                Stream::Tls(s) => s.get_ref().set_write_timeout(limit).and_then(|()| s.write(bytes)),
            };
            match result {
                Ok(0) => return Err(io::Error::from(ErrorKind::WriteZero).into()),
                Ok(length) => bytes = &bytes[length..],
                Err(error) if is_pause(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Readable when something has come.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Unix(s) => s.as_fd(),
            Stream::Tcp(s) => s.as_fd(),
            Stream::Tls(s) => s.get_ref().as_fd(),
        }
    }

    /// Ends the stream.
    pub(crate) fn finish(&mut self) {
        // It may be closed already.
        let _gone = match self {
            Stream::Unix(s) => s.shutdown(Shutdown::Both),
            Stream::Tcp(s) => s.shutdown(Shutdown::Both),
            Stream::Tls(s) => {
                s.close();
                s.get_ref().shutdown(Shutdown::Both)
            }
        };
    }
}

/// Whether the error is a timeout of one call, or a signal.
fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn connect_tcp(remote: &str, address: &str, deadline: Deadline) -> Result<TcpStream> {
    let limit = deadline.left()?.unwrap_or(TCP_CONNECT_LIMIT);
    let mut last = io::Error::from(ErrorKind::AddrNotAvailable);
    for address in tcp_addresses(address).with_context(|| format!("{remote}: not a usable address"))? {
        match TcpStream::connect_timeout(&address, limit) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last.into())
}

/// `HOST:PORT`, `[HOST]:PORT` or `HOST`; OVSDB's port is 6640.
fn tcp_addresses(text: &str) -> io::Result<Vec<SocketAddr>> {
    let has_port = match text.rfind(']') {
        Some(end) => text[end..].contains(':'),
        None => text.contains(':'),
    };
    let full = if has_port { text.to_string() } else { format!("{text}:6640") };
    Ok(full.to_socket_addrs()?.collect())
}

/// The error text, without the error number that Rust appends; of a system's error without its contexts.
pub(crate) fn reason(error: &anyhow::Error) -> String {
    match error.downcast_ref::<io::Error>() {
        Some(io) => sys::os_text(io),
        None => sys::os_text(&format!("{error:#}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_remotes_are_rejected() {
        let deadline = Deadline::after_s(1);
        for remote in
            ["", "ssl:", "ptcp:6640", "tcp:", "tcp:[::1", "unix:/nowhere/at/all", "tcp:1.2.3.4:99999"]
        {
            assert!(Stream::connect(remote, &Settings::default(), false, deadline).is_err(), "{remote}");
        }
        let error = Stream::connect("unix:/nowhere/at/all", &Settings::default(), false, deadline).err();
        assert_eq!(reason(&error.unwrap()), "No such file or directory");
    }

    #[test]
    fn the_deadline_ends_a_wait() {
        let (near, far) = UnixStream::pair().unwrap();
        let mut stream = Stream::Unix(near);
        let error = stream.receive(Deadline::after_s(1)).unwrap_err();
        assert!(error.is::<TimedOut>(), "{error}");
        drop(far);
        assert_eq!(stream.receive(Deadline::default()).unwrap(), b"");
    }

    #[test]
    fn timeouts_are_positive_numbers() {
        assert_eq!(parse_timeout_s("5"), Ok(5));
        for bad in ["0", "-1", "x", ""] {
            assert!(parse_timeout_s(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ports_may_be_left_out() {
        let one = |text| tcp_addresses(text).unwrap()[0].to_string();
        assert_eq!(one("127.0.0.1"), "127.0.0.1:6640");
        assert_eq!(one("127.0.0.1:7"), "127.0.0.1:7");
        assert_eq!(one("[::1]"), "[::1]:6640");
        assert_eq!(one("[::1]:8"), "[::1]:8");
    }
}
