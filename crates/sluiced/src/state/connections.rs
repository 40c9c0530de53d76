//! Tracked connections kept for the next process.
//!
//! The file (`NAME.connections`) has a line of text first, and then frames: all connections of a datapath, and later those that were
//! made, changed or ended since, as [`dpif::CtExport`] writes them. A thread of low priority appends to it each second, less often
//! if that takes it long, and from time to time writes the file anew. Numbers are little-endian:
//!
//! | part | bytes |
//! | --- | --- |
//! | magic `SLcf`, bytes of the name, bytes of the slice | 4, 4, 4 |
//! | microseconds of the machine's monotonic clock at the writing | 8 |
//! | name of the datapath, slice | as told |
//! | CRC-32 of all before | 4 |

use super::{Files, VERSION};
use dpif::{CtCarry, CtExport, CtImported, CtRestore, Provider};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use sys::confine::Kind;

/// First word of the file.
const MAGIC: &str = "sluice-connections";
const FRAME: [u8; 4] = *b"SLcf";
/// Bytes of a frame before its name, and behind its slice.
const HEAD_BYTES: usize = 20;
const TAIL_BYTES: usize = 4;
/// Bytes of a slice, about.
const ROOM: usize = 64 << 10;
/// Most bytes of the first line, a name and a slice: a reader takes no longer ones.
const LINE_MAX: u64 = 256;
const NAME_MAX: usize = 1024;
const SLICE_MAX: usize = 4 << 20;
/// Shortest and longest pause between two writings, and its length in those of a writing.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
const PAUSE_FACTOR: u32 = 50;
/// Pause after a failure.
const RETRY: Duration = Duration::from_secs(60);
/// Bytes of changes, beside those of all connections, after which the file is written anew.
const CHANGES_MIN_BYTES: u64 = 4 << 20;
/// The part of its file system that the file takes at most. While it is written anew there are two.
const VOLUME_PART: u64 = 8;
/// Longest time of the last writing, at the end of the process.
const LAST_MAX: Duration = Duration::from_secs(2);
/// Longest wait for restored connections before ports are opened.
const RESTORE_WAIT: Duration = Duration::from_millis(10);

/// Datapaths whose connections are kept.
pub(crate) type Tracked = Vec<Arc<dyn Provider>>;
/// Their names and walks. The threads own no datapath: its end needs the main thread.
type Exports = Vec<(String, Box<dyn CtExport>)>;

fn head(boot: &str) -> String {
    format!("{MAGIC}\t{VERSION}\t{boot}\n")
}

/// A frame of a slice that is written now.
fn frame(name: &str, slice: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD_BYTES + name.len() + slice.len() + TAIL_BYTES);
    out.extend(FRAME);
    out.extend((name.len() as u32).to_le_bytes());
    out.extend((slice.len() as u32).to_le_bytes());
    out.extend(sys::clock::machine_us().to_le_bytes());
    out.extend(name.as_bytes());
    out.extend(slice);
    out.extend(crc32fast::hash(&out).to_le_bytes());
    out
}

/// A slice of a datapath in the file.
struct Slice {
    datapath: String,
    machine_us: u64,
    bytes: Vec<u8>,
}

/// The slices of a file.
struct Slices<R> {
    from: BufReader<R>,
}

impl<R: Read> Slices<R> {
    /// Reads the first line; `None`: the file is of another start of the machine.
    ///
    /// # Errors
    /// It is no such file, or of another version.
    fn begin(from: R, boot: &str) -> io::Result<Option<Slices<R>>> {
        let mut from = BufReader::with_capacity(1 << 16, from);
        let mut line = Vec::new();
        from.by_ref().take(LINE_MAX).read_until(b'\n', &mut line)?;
        let line = String::from_utf8_lossy(&line);
        let [magic, version, of_boot] = line.trim_end().splitn(3, '\t').collect::<Vec<_>>()[..] else {
            return Err(damaged("its first line is unknown"));
        };
        match (magic, version) {
            (MAGIC, VERSION) => Ok((of_boot == boot).then_some(Slices { from })),
            (MAGIC, _) => Err(damaged("it has another version")),
            _ => Err(damaged("its first line is unknown")),
        }
    }

    /// The next slice; `None`: the end, or a frame whose writing was cut short.
    ///
    /// # Errors
    /// The frame is damaged.
    fn next(&mut self) -> io::Result<Option<Slice>> {
        let mut head = [0; HEAD_BYTES];
        if !self.fill(&mut head)? {
            return Ok(None);
        }
        let number = |at: usize| head[at..at + 4].try_into().map_or(0, u32::from_le_bytes) as usize;
        let (name_bytes, slice_bytes) = (number(4), number(8));
        if head[..4] != FRAME || name_bytes > NAME_MAX || slice_bytes > SLICE_MAX {
            return Err(damaged("a frame is unknown"));
        }
        let mut rest = vec![0; name_bytes + slice_bytes + TAIL_BYTES];
        if !self.fill(&mut rest)? {
            return Ok(None);
        }
        let tail = rest.split_off(name_bytes + slice_bytes);
        let mut crc = crc32fast::Hasher::new();
        crc.update(&head);
        crc.update(&rest);
        if tail != crc.finalize().to_le_bytes() {
            return Err(damaged("a frame fails its checksum"));
        }
        let bytes = rest.split_off(name_bytes);
        let datapath = String::from_utf8(rest).map_err(|_| damaged("a name is no text"))?;
        let machine_us = head[12..].try_into().map_or(0, u64::from_le_bytes);
        Ok(Some(Slice { datapath, machine_us, bytes }))
    }

    /// Fills the buffer; `false`: the file ends before.
    fn fill(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        match self.from.read_exact(buffer) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(e) => Err(e),
        }
    }
}

fn damaged(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Reads bytes as such a file.
pub(super) fn parse(bytes: &[u8]) {
    if let Ok(Some(mut slices)) = Slices::begin(bytes, "boot") {
        while let Ok(Some(slice)) = slices.next() {
            let again = [head("boot").into_bytes(), frame(&slice.datapath, &slice.bytes)].concat();
            let again =
                Slices::begin(&*again, "boot").ok().flatten().and_then(|mut slices| slices.next().ok()?);
            assert!(
                again.is_some_and(|again| (again.datapath, again.bytes) == (slice.datapath, slice.bytes))
            );
        }
    }
}

/// Reads a file that other readers have open too.
struct Shared {
    file: Arc<File>,
    at: u64,
}

impl Read for Shared {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// The connections of the last process.
pub(super) struct Former {
    file: Arc<File>,
    boot: String,
    /// Readers that have not ended.
    readers: Arc<AtomicUsize>,
}

impl Former {
    /// Opens the file; `None`: there is none of this start of the machine.
    ///
    /// # Errors
    /// It cannot be read, is no such file, or belongs to another user.
    pub(super) fn open(path: &Path, boot: &str, readers: &Arc<AtomicUsize>) -> io::Result<Option<Former>> {
        let file = match sys::local::open_own(path) {
            Ok(file) => Arc::new(file),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        let has_slices = file.metadata()?.len() > head(boot).len() as u64;
        let is_present = Slices::begin(Shared { file: file.clone(), at: 0 }, boot)?.is_some();
        let former = Former { file, boot: boot.to_string(), readers: readers.clone() };
        Ok((has_slices && is_present).then_some(former))
    }

    /// Gives a datapath its connections, on a thread of its own; waits for it for a moment, so that a few are there before the
    /// first packet.
    pub(super) fn restore(&self, name: &str, mut into: Box<dyn CtRestore>) {
        let from = Shared { file: self.file.clone(), at: 0 };
        let (boot, name, readers) = (self.boot.clone(), name.to_string(), self.readers.clone());
        let (done, is_done) = sync_channel(1);
        readers.fetch_add(1, Ordering::AcqRel);
        let run = move || {
            sys::confine::enter(Kind::Background, &[]);
            restore(from, &boot, &name, &mut *into);
            readers.fetch_sub(1, Ordering::AcqRel);
            // The main loop may wait no longer.
            let _ = done.send(());
        };
        match std::thread::Builder::new().name("restore_ct".into()).spawn(run) {
            // Whether they are there by then or not.
            Ok(_) => drop(is_done.recv_timeout(RESTORE_WAIT)),
            Err(e) => {
                self.readers.fetch_sub(1, Ordering::AcqRel);
                log::warn!(target: "state", "connections begin anew: {e}");
            }
        }
    }
}

fn restore(from: impl Read, boot: &str, name: &str, into: &mut dyn CtRestore) {
    let mut all = CtImported::default();
    match restore_all(from, boot, name, into, &mut all) {
        Ok(()) if all == CtImported::default() => return,
        Ok(()) => {}
        Err(e) => {
            log::warn!(target: "state", "{name}: connections of the last process are left out from here on: {e}")
        }
    }
    let CtImported { made, ended, refused, why, .. } = all;
    let left = made.saturating_sub(ended);
    log::info!(target: "state", "{name}: restored {left} connections of the last process, less {refused} that are left out");
    if let Some(why) = why {
        log::warn!(target: "state", "{name}: left out: {why}");
    }
}

fn restore_all(
    from: impl Read,
    boot: &str,
    name: &str,
    into: &mut dyn CtRestore,
    all: &mut CtImported,
) -> io::Result<()> {
    let Some(mut slices) = Slices::begin(from, boot)? else { return Ok(()) };
    while let Some(Slice { datapath, machine_us, bytes }) = slices.next()? {
        if datapath == name {
            let age_ms = sys::clock::machine_us().saturating_sub(machine_us) / 1000;
            all.add(into.take(&bytes, age_ms));
        }
    }
    Ok(())
}

/// Removes the file.
pub(super) fn remove(files: &Files) {
    super::remove_files(&[&files.connections, &files.next_connections]);
}

/// The thread that writes the file. Dropped, it stops after the slice at hand.
pub(super) struct Writing {
    /// Ends the thread: with a last writing, or at once.
    end: SyncSender<()>,
    stops: Arc<AtomicBool>,
    /// Closed at the end of the thread.
    ended: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Writing {
    /// Starts the thread. `None`: the connections of all these datapaths outlive the process by themselves. While there are `readers`,
    /// the file stays as it is.
    pub(super) fn start(
        files: &Files,
        boot: &str,
        tracked: &Tracked,
        readers: &Arc<AtomicUsize>,
    ) -> io::Result<Option<Writing>> {
        let exported = |datapath: &Arc<dyn Provider>| {
            Some((datapath.name().to_string(), datapath.connections()?.export(CtCarry::Kept).ok()?))
        };
        let exports: Exports = tracked.iter().filter_map(exported).collect();
        if exports.is_empty() {
            remove(files);
            return Ok(None);
        }
        let folder = files.connections.parent().unwrap_or(Path::new("/"));
        let stops = Arc::new(AtomicBool::new(false));
        let mut writer = Writer {
            files: files.clone(),
            boot: boot.to_string(),
            exports,
            file: None,
            all_bytes: 0,
            changes_bytes: 0,
            bytes_max: match sys::local::volume_bytes(folder)? {
                // Some file systems have no limit.
                0 => u64::MAX,
                bytes => bytes / VOLUME_PART,
            },
            readers: readers.clone(),
            stops: stops.clone(),
        };
        let (end, ends) = sync_channel(1);
        let (end_told, ended) = sync_channel(0);
        let run = move || {
            if let Err(e) = sys::priority::yield_for_good() {
                log::warn!(target: "state", "cannot yield to the threads that forward: {e}");
            }
            sys::confine::enter(Kind::Files, writer.files.connections.parent().as_slice());
            writer.run(&ends);
            drop(end_told);
        };
        let thread = std::thread::Builder::new().name("state_ct".into()).spawn(run)?;
        Ok(Some(Writing { end, stops, ended, thread: Some(thread) }))
    }

    /// Writes the last changes, as far as a moment suffices, and stops.
    pub(super) fn finish(self) {
        // It takes one order.
        let _ = self.end.try_send(());
        // Nothing is sent: the wait ends with the thread, or after this time.
        let _ = self.ended.recv_timeout(LAST_MAX);
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Release);
        // It may have an order already.
        let _ = self.end.try_send(());
        if self.thread.take().map(JoinHandle::join).is_some_and(|ended| ended.is_err()) {
            log::error!(target: "state", "the thread that writes connections ended early");
        }
    }
}

struct Writer {
    files: Files,
    boot: String,
    exports: Exports,
    file: Option<File>,
    all_bytes: u64,
    changes_bytes: u64,
    bytes_max: u64,
    readers: Arc<AtomicUsize>,
    stops: Arc<AtomicBool>,
}

/// End of a pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Passed {
    /// The bytes that it has written.
    Whole(u64),
    /// The next frame has no room.
    Full,
    Stopped,
}

impl Writer {
    fn run(&mut self, ends: &Receiver<()>) {
        let mut pause = Duration::ZERO;
        loop {
            let is_last = !matches!(ends.recv_timeout(pause), Err(RecvTimeoutError::Timeout));
            let is_read = self.readers.load(Ordering::Acquire) != 0;
            let begin = Instant::now();
            pause = PAUSES[0];
            if !is_read && !self.stops.load(Ordering::Acquire) {
                let written = self.write();
                pause = (begin.elapsed() * PAUSE_FACTOR).clamp(PAUSES[0], PAUSES[1]);
                if let Err(e) = written {
                    log::warn!(target: "state", "{}: {e}: the next process may start without the present connections", self.files.connections.display());
                    pause = RETRY;
                    // An old one would bring back connections that have ended.
                    remove(&self.files);
                }
            }
            if is_last {
                return;
            }
        }
    }

    fn write(&mut self) -> io::Result<()> {
        if let Some(mut file) = self.file.take() {
            let room = self.bytes_max.saturating_sub(self.all_bytes + self.changes_bytes);
            match self.pass(&mut file, room)? {
                Passed::Whole(bytes) => {
                    self.changes_bytes += bytes;
                    if self.changes_bytes <= self.all_bytes.max(CHANGES_MIN_BYTES) {
                        self.file = Some(file);
                        return Ok(());
                    }
                }
                Passed::Full => {}
                Passed::Stopped => return Ok(()),
            }
        }
        self.write_anew()
    }

    fn write_anew(&mut self) -> io::Result<()> {
        let (connections, next_connections) =
            (self.files.connections.clone(), self.files.next_connections.clone());
        let mut next = super::create_own(&next_connections)?;
        next.write_all(head(&self.boot).as_bytes())?;
        self.exports.iter_mut().for_each(|(_, export)| export.begin_anew());
        match self.pass(&mut next, self.bytes_max)? {
            Passed::Whole(bytes) => {
                fs::rename(&next_connections, &connections)?;
                (self.file, self.all_bytes, self.changes_bytes) = (Some(next), bytes, 0);
                Ok(())
            }
            Passed::Full => Err(io::Error::other(format!(
                "the connections would take more than an eighth of the file system, {} bytes",
                self.bytes_max
            ))),
            Passed::Stopped => fs::remove_file(&next_connections),
        }
    }

    fn pass(&mut self, file: &mut impl Write, room: u64) -> io::Result<Passed> {
        pass(&mut self.exports, file, room, &self.stops)
    }
}

/// Writes a pass over all connections, of `room` bytes at most.
fn pass(exports: &mut Exports, file: &mut impl Write, room: u64, stops: &AtomicBool) -> io::Result<Passed> {
    let mut bytes = 0;
    for (datapath, export) in exports {
        while let Some(slice) = export.next(ROOM) {
            if stops.load(Ordering::Acquire) {
                return Ok(Passed::Stopped);
            }
            if slice.is_empty() {
                continue;
            }
            let frame = frame(datapath, &slice);
            bytes += frame.len() as u64;
            if bytes > room {
                return Ok(Passed::Full);
            }
            file.write_all(&frame)?;
        }
    }
    Ok(Passed::Whole(bytes))
}

#[cfg(test)]
mod tests;
