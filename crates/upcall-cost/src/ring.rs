//! Client of the daemon's event ring, by its event socket `<rundir>/sluiced.<pid>.events`.
//!
//! The client connects, sends one line (captured bytes of packets and keys, stages) and reads a stream of
//! records until either side closes. It needs only access to the socket.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use upcall_events::{Decoder, Record};

use crate::source::{Capture, Polled, Source};

/// Bytes that are read at once.
const READ_BYTES: usize = 256 * 1024;
/// Minimum wait: a socket accepts no timeout of zero.
const WAIT_MIN: Duration = Duration::from_micros(1);
/// Maximum wait for the daemon to accept the request.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);

/// A connection to the daemon's ring.
pub struct Ring {
    path: PathBuf,
    stream: UnixStream,
    decoder: Decoder,
    buffer: Vec<u8>,
    end_seen: bool,
}

/// The daemons in a run directory that have an event socket: process ids and sockets, by id.
pub fn daemons(run_dir: &Path) -> Vec<(u32, PathBuf)> {
    let mut found: Vec<(u32, PathBuf)> = std::fs::read_dir(run_dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.strip_prefix("sluiced.")?.strip_suffix(".events")?.parse();
            Some((pid.ok()?, entry.path()))
        })
        .collect();
    found.sort();
    found
}

/// Connects to the selected daemon; returns the socket's path and the connection.
fn connect(capture: &Capture) -> Result<(PathBuf, UnixStream)> {
    if let Some(pid) = capture.pid {
        let path = capture.run_dir.join(format!("sluiced.{pid}.events"));
        let stream = UnixStream::connect(&path).with_context(|| {
            format!(
                "{}: process {pid} has no event socket there (not sluiced, or it has ended)",
                path.display()
            )
        })?;
        return Ok((path, stream));
    }
    let dir = capture.run_dir.display();
    let (mut alive, mut why) = (Vec::new(), String::new());
    for (pid, path) in daemons(&capture.run_dir) {
        match UnixStream::connect(&path) {
            Ok(stream) => alive.push((pid, path, stream)),
            // A socket left by a killed daemon refuses; other errors are reported.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Err(error) => why = format!(" ({}: {error})", path.display()),
        }
    }
    if alive.len() > 1 {
        let pids: Vec<String> = alive.iter().map(|(pid, ..)| pid.to_string()).collect();
        bail!("several switches run ({}): choose one by --pid", pids.join(", "));
    }
    match alive.pop() {
        Some((_, path, stream)) => Ok((path, stream)),
        None => bail!(
            "no switch found: no daemon answers on {dir}/sluiced.*.events{why}; is sluiced running, and is OVS_RUNDIR its folder?"
        ),
    }
}

impl Ring {
    /// Connects to the daemon.
    ///
    /// # Errors
    ///
    /// There is no daemon, or there are several without a `pid`, or access to the socket is denied.
    pub fn open(capture: &Capture) -> Result<Self> {
        Ring::request(capture, "stages=all")
    }

    /// Connects for samples of dropped packets: that many of each reason and second from each thread.
    ///
    /// # Errors
    ///
    /// As [`Ring::open`].
    pub fn open_drops(capture: &Capture, per_second: u32) -> Result<Self> {
        Ring::request(capture, &format!("stages=none drops={per_second}"))
    }

    /// Connects, for the packets that the action `psample` samples.
    ///
    /// # Errors
    /// No daemon, several, or one that does not take the request.
    pub fn open_samples(capture: &Capture) -> Result<Self> {
        Ring::request(capture, "stages=none samples=all")
    }

    fn request(capture: &Capture, wanted: &str) -> Result<Self> {
        let (path, mut stream) = connect(capture)?;
        let request = format!("snap={} key={} {wanted}\n", capture.packet_bytes, capture.key_bytes);
        stream
            .set_write_timeout(Some(REQUEST_LIMIT))
            .and_then(|()| stream.write_all(request.as_bytes()))
            .with_context(|| format!("{}: the daemon does not take the request", path.display()))?;
        Ok(Ring { path, stream, decoder: Decoder::new(), buffer: vec![0; READ_BYTES], end_seen: false })
    }

    fn died(&self, how: &str) -> Polled {
        Polled::End {
            note: Some(format!("{}: {how}; what was gathered before is used", self.path.display())),
        }
    }
}

impl Source for Ring {
    fn describe(&self) -> String {
        format!("the event ring of the daemon ({}): the userspace datapath", self.path.display())
    }

    fn next(&mut self, timeout: Duration) -> Result<Polled> {
        loop {
            match self.decoder.next() {
                Ok(Some(record)) => {
                    self.end_seen |= record == Record::End;
                    return Ok(Polled::Record(record));
                }
                Ok(None) => {}
                Err(error) if self.decoder.offset() == 0 => {
                    bail!("{}: {error}: another program's socket?", self.path.display())
                }
                Err(error) => return Ok(self.died(&format!("the daemon sent nonsense ({error})"))),
            }
            let waited = self.stream.set_read_timeout(Some(timeout.max(WAIT_MIN)));
            match waited.and_then(|()| self.stream.read(&mut self.buffer)) {
                Ok(0) if self.end_seen => return Ok(Polled::End { note: None }),
                Ok(0) => return Ok(self.died("the switch ended or died while it was traced")),
                // One line instead of a stream: the reason of a refusal.
                Ok(length) if self.decoder.offset() == 0 && self.buffer[..length].starts_with(b"error: ") => {
                    let why = String::from_utf8_lossy(&self.buffer[b"error: ".len()..length]);
                    bail!("{}: {}", self.path.display(), why.trim_end())
                }
                Ok(length) => self.decoder.push(&self.buffer[..length]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Ok(Polled::Nothing);
                }
                // A signal: the caller checks its stop conditions.
                Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(Polled::Nothing),
                Err(error) => return Ok(self.died(&format!("the connection broke ({error})"))),
            }
        }
    }
}
