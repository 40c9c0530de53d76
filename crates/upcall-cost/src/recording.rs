//! Recordings of a source, in a file. Written as events arrive, so that after a crash only the last moment is
//! missing.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use upcall_events::{CodecError, Decoder, Record, Wrong, encode_header};

use crate::source::{Polled, Source};

/// Bytes that are read at once.
const READ_BYTES: usize = 256 * 1024;
/// Bytes that are held before they are written.
const WRITE_BYTES: usize = 64 * 1024;

/// A recording being read.
pub struct Recording<R> {
    path: PathBuf,
    input: R,
    decoder: Decoder,
    buffer: Vec<u8>,
    end_seen: bool,
}

impl Recording<File> {
    /// Opens it.
    ///
    /// # Errors
    ///
    /// It cannot be opened.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("{}: cannot be read", path.display()))?;
        Ok(Recording::new(path, file))
    }
}

impl<R: Read> Recording<R> {
    /// Reads `input`, called `path` in messages.
    pub fn new(path: &Path, input: R) -> Self {
        let buffer = vec![0; READ_BYTES];
        Recording { path: path.to_owned(), input, decoder: Decoder::new(), buffer, end_seen: false }
    }

    /// Error for the user: a file of another format is an error, damage ends the recording with a note.
    fn damaged(&self, error: CodecError) -> Result<Polled> {
        let path = self.path.display();
        match error.wrong {
            Wrong::Foreign => anyhow::bail!(
                "{path}: not a recording of upcalls; `sluice upcall-cost --write-events FILE` makes one"
            ),
            Wrong::Version(_) => anyhow::bail!("{path}: {error}; read it with the release that wrote it"),
            Wrong::Torn if error.offset == 0 => {
                anyhow::bail!("{path}: empty, or cut off within its first bytes")
            }
            Wrong::Torn => {
                Ok(end(format!("{path}: cut off at byte {}; using the events before it", error.offset)))
            }
            _ => Ok(end(format!("{path}: damaged {error}; using the events before it"))),
        }
    }
}

fn end(note: String) -> Polled {
    Polled::End { note: Some(note) }
}

impl<R: Read> Source for Recording<R> {
    fn describe(&self) -> String {
        format!("the recording {}", self.path.display())
    }

    fn next(&mut self, _timeout: Duration) -> Result<Polled> {
        loop {
            match self.decoder.next() {
                Ok(Some(record)) => {
                    self.end_seen |= record == Record::End;
                    return Ok(Polled::Record(record));
                }
                Ok(None) => {}
                Err(error) => return self.damaged(error),
            }
            let length = match self.input.read(&mut self.buffer) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                other => other.with_context(|| format!("{}: cannot be read", self.path.display()))?,
            };
            if length == 0 {
                return match self.decoder.finish() {
                    Err(error) => self.damaged(error),
                    Ok(()) if self.end_seen => Ok(Polled::End { note: None }),
                    Ok(()) => Ok(end(format!(
                        "{}: the recording was not finished (the tracer or the switch died); all of it is used",
                        self.path.display()
                    ))),
                };
            }
            self.decoder.push(&self.buffer[..length]);
        }
    }
}

/// A recording being written.
pub struct Recorder {
    path: PathBuf,
    out: BufWriter<File>,
    frame: Vec<u8>,
}

impl Recorder {
    /// Starts a recording; replaces an existing file.
    ///
    /// # Errors
    ///
    /// The file cannot be created or written.
    pub fn create(path: &Path) -> Result<Self> {
        let created = File::create(path).with_context(|| format!("{}: cannot be created", path.display()))?;
        let mut recorder = Recorder {
            path: path.to_owned(),
            out: BufWriter::with_capacity(WRITE_BYTES, created),
            frame: Vec::new(),
        };
        encode_header(&mut recorder.frame);
        recorder.put()?;
        recorder.flush()?;
        Ok(recorder)
    }

    /// Appends a record.
    ///
    /// # Errors
    ///
    /// The file cannot be written, as on a full disk.
    pub fn write(&mut self, record: &Record) -> Result<()> {
        self.frame.clear();
        record.encode(&mut self.frame);
        self.put()
    }

    fn put(&mut self) -> Result<()> {
        self.out.write_all(&self.frame).with_context(|| self.unwritten())
    }

    /// Passes buffered data to the kernel, so that it survives this process.
    ///
    /// # Errors
    ///
    /// As [`Recorder::write`].
    pub fn flush(&mut self) -> Result<()> {
        self.out.flush().with_context(|| self.unwritten())
    }

    fn unwritten(&self) -> String {
        format!("{}: cannot be written", self.path.display())
    }
}
