//! Runs programs: inside a namespace or not, with captured output, a time limit, and a guaranteed end.
//!
//! Each program gets its own process group, so that ending it also ends its children. It is ended by its id,
//! and only while that id is certainly its own (before it is reaped). `ip netns exec` replaces itself by the
//! program, so the id is the program's.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use command_fds::{CommandFdExt, FdMapping};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{ioctl_fionread, retry_on_intr};
pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process, kill_process_group};

use crate::manager::Held;
use crate::netns::Netns;
use crate::wait::wait_for;

/// First of the descriptors that a service manager passes.
const FIRST_PASSED: i32 = 3;
/// Default time limit of a program.
const DEFAULT_LIMIT: Duration = Duration::from_secs(30);
/// Maximum captured output of each stream; the rest is read and dropped.
const CAPTURE_LIMIT_BYTES: usize = 16 << 20;
/// Maximum wait for the output of an ended program: a child that goes on may write without end.
const DRAIN_LIMIT: Duration = Duration::from_secs(30);

/// Output and status of an ended program.
#[derive(Clone, Debug)]
pub struct Output {
    /// Its exit status.
    pub status: ExitStatus,
    /// Its standard output; bytes that are no UTF-8 are replaced.
    pub stdout: String,
    /// Its standard error, likewise.
    pub stderr: String,
}

/// A program to run.
#[derive(Clone, Debug)]
pub struct Cmd {
    program: OsString,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    input: Vec<u8>,
    limit: Duration,
    netns: Option<Netns>,
    descriptors: Held,
}

impl Cmd {
    /// Runs `program` in the test's own environment.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            input: Vec::new(),
            limit: DEFAULT_LIMIT,
            netns: None,
            descriptors: Vec::new(),
        }
    }

    /// Passes descriptors to it as a service manager does (sd_listen_fds(3)).
    pub fn descriptors(mut self, held: Held) -> Self {
        self.descriptors = held;
        self
    }

    /// Runs it inside a namespace.
    pub fn netns(mut self, netns: &Netns) -> Self {
        self.netns = Some(netns.clone());
        self
    }

    /// Adds an argument.
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets a variable of its environment.
    pub fn env(mut self, key: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((key.into(), value.into()));
        self
    }

    /// Its standard input (default: empty).
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = bytes.into();
        self
    }

    /// Time limit of [`Cmd::output`] and [`Cmd::run`] (default: 30 s).
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    fn describe(&self) -> String {
        let words: Vec<_> = std::iter::once(&self.program)
            .chain(&self.args)
            .map(|w| w.to_string_lossy().into_owned())
            .collect();
        match &self.netns {
            Some(netns) => format!("`{}` in {}", words.join(" "), netns.name()),
            None => format!("`{}`", words.join(" ")),
        }
    }

    /// Starts it and leaves it running.
    ///
    /// # Errors
    /// If it cannot be started. (In a namespace, a missing program shows as one that ends at once.)
    pub fn spawn(&self) -> Result<Running> {
        let mut words = Vec::new();
        if let Some(netns) = &self.netns {
            words.extend(["ip", "netns", "exec", netns.name()].map(OsString::from));
        }
        if !self.descriptors.is_empty() {
            // The shell has the process id of the program.
            words.extend(["sh", "-c", "LISTEN_PID=$$ exec \"$@\"", "sh"].map(OsString::from));
        }
        words.push(self.program.clone());
        let mut command = Command::new(&words[0]);
        if !self.descriptors.is_empty() {
            let names: Vec<&str> = self.descriptors.iter().map(|(name, _)| name.as_str()).collect();
            command.env("LISTEN_FDS", names.len().to_string()).env("LISTEN_FDNAMES", names.join(":"));
            let mappings = self
                .descriptors
                .iter()
                .zip(FIRST_PASSED..)
                .map(|((_, fd), child_fd)| Ok(FdMapping { parent_fd: fd.try_clone()?, child_fd }));
            command.fd_mappings(mappings.collect::<io::Result<_>>()?)?;
        }
        command
            .args(&words[1..])
            .args(&self.args)
            .envs(self.env.iter().cloned())
            .stdin(if self.input.is_empty() { Stdio::null() } else { Stdio::piped() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let what = self.describe();
        let mut child = command.spawn().with_context(|| format!("cannot start {what}"))?;
        let stdout = Stream::new(child.stdout.take());
        let stderr = Stream::new(child.stderr.take());
        if let Some(mut stdin) = child.stdin.take() {
            let input = self.input.clone();
            // Ends with the program: its end of the pipe closes, and the write fails.
            std::thread::spawn(move || drop(stdin.write_all(&input)));
        }
        Ok(Running { child, status: None, stdout, stderr, what, _netns: self.netns.clone() })
    }

    /// Runs it to its end, whatever its exit status.
    ///
    /// # Errors
    /// If it cannot be started, or exceeds the limit (it is killed then).
    pub fn output(&self) -> Result<Output> {
        self.spawn()?.wait(self.limit)
    }

    /// Runs it to its end, which must be successful.
    ///
    /// # Errors
    /// As [`Cmd::output`]; and if its exit status is not 0: the text includes its output.
    pub fn run(&self) -> Result<Output> {
        let output = self.output()?;
        if !output.status.success() {
            bail!("{}: {}\n{}{}", self.describe(), output.status, output.stdout, output.stderr);
        }
        Ok(output)
    }
}

/// One captured stream, read by a thread until its end.
#[derive(Debug)]
struct Stream {
    /// Locked while bytes move here from the pipe.
    bytes: Arc<Mutex<Vec<u8>>>,
    /// The pipe, and its reader.
    from: Option<(OwnedFd, JoinHandle<()>)>,
}

impl Stream {
    fn new(pipe: Option<impl Into<OwnedFd>>) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&bytes);
        let start = |pipe: OwnedFd| {
            let from = pipe.try_clone().ok()?;
            Some((from, std::thread::spawn(move || gather(&mut File::from(pipe), &sink))))
        };
        Self { bytes, from: pipe.map(Into::into).and_then(start) }
    }

    fn text(&self) -> String {
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until all that is in the pipe has been read. A child of the program may hold it open.
    fn drain(&self) {
        let Some((pipe, reader)) = &self.from else { return };
        let is_empty = || {
            let _none_on_its_way = self.bytes.lock();
            ioctl_fionread(pipe).is_ok_and(|bytes| bytes == 0)
        };
        let start = Instant::now();
        while !reader.is_finished() && !is_empty() && start.elapsed() < DRAIN_LIMIT {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Moves bytes from a pipe to `sink` until its end.
fn gather(pipe: &mut File, sink: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 8192];
    loop {
        // Without the lock: readers of `sink` need not wait for the program.
        let _readable = retry_on_intr(|| poll(&mut [PollFd::new(pipe, PollFlags::IN)], None));
        let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(n @ 1..) = pipe.read(&mut buffer) else { return };
        let room = CAPTURE_LIMIT_BYTES.saturating_sub(sink.len());
        sink.extend_from_slice(&buffer[..n.min(room)]);
    }
}

/// A program that runs; it is killed when this is dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    status: Option<ExitStatus>,
    stdout: Stream,
    stderr: Stream,
    what: String,
    /// Keeps the namespace while the program runs.
    _netns: Option<Netns>,
}

impl Running {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its standard output so far.
    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// Its standard error so far.
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Its exit status, or `None` while it runs.
    pub fn status(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// If it runs longer than `limit`: it is killed then, and the text includes its output.
    pub fn wait(mut self, limit: Duration) -> Result<Output> {
        let what = self.what.clone();
        if let Err(why) = wait_for(limit, &format!("the end of {what}"), || self.status().is_some()) {
            bail!("{why}\n{}{}", self.stdout(), self.stderr());
        }
        self.finish()
    }

    /// Sends a signal to it (not to its children); does nothing if it has ended.
    ///
    /// # Errors
    /// If the kernel rejects it.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        if self.status().is_some() {
            return Ok(());
        }
        kill_process(self.raw_pid()?, signal).with_context(|| format!("cannot signal {}", self.what))
    }

    /// Ends it: sends `signal`, and kills it if it has not ended after `limit`.
    ///
    /// # Errors
    /// If the kernel rejects the signal. An unsuccessful end is not an error: see the status.
    pub fn stop(mut self, signal: Signal, limit: Duration) -> Result<Output> {
        self.signal(signal)?;
        let what = self.what.clone();
        if wait_for(limit, &what, || self.status().is_some()).is_err() {
            self.kill();
        }
        self.finish()
    }

    fn raw_pid(&self) -> Result<Pid> {
        let raw = i32::try_from(self.child.id()).context("a process id beyond 31 bits")?;
        Pid::from_raw(raw).context("a process id of 0")
    }

    /// Kills it and its group, and reaps it.
    pub(crate) fn kill(&mut self) {
        if self.status().is_some() {
            return;
        }
        if let Ok(pid) = self.raw_pid() {
            let _already_gone = kill_process_group(pid, Signal::KILL);
        }
        self.status = self.child.wait().ok();
    }

    /// Reads the rest of the pipes of an ended program.
    pub(crate) fn drain(&self) {
        self.stdout.drain();
        self.stderr.drain();
    }

    fn finish(&mut self) -> Result<Output> {
        self.drain();
        let status = self.status().with_context(|| format!("cannot learn how {} ended", self.what))?;
        Ok(Output { status, stdout: self.stdout(), stderr: self.stderr() })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}
