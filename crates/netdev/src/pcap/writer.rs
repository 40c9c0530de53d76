//! Writing frames to a capture file.
//!
//! Each call is one write(2) of whole records, so that a reader of the growing file sees whole records at once, and two
//! writers at the end of one file do not mix.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::format::{self, FILE_HEADER_BYTES};

/// An open capture file.
pub(crate) struct Writer {
    path: PathBuf,
    file: File,
    /// Where the next record goes, if this writer is the only one: what a failed write has left is cut off again.
    end: Option<u64>,
    /// Records being put together.
    records: Vec<u8>,
}

impl Writer {
    /// Opens a file to continue it; a new or empty one gets its header. Something else that is there stays as it is: an
    /// error.
    pub(crate) fn append(path: &Path) -> io::Result<Writer> {
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(path)
            .map_err(|e| wrap(path, "cannot be opened", e))?;
        // A pipe has nothing to be read.
        let regular = file.metadata().map_err(|e| wrap(path, "cannot be looked at", e))?.is_file();
        let mut head = Vec::new();
        if regular {
            let first = Read::by_ref(&mut file).take(FILE_HEADER_BYTES as u64).read_to_end(&mut head);
            first.map_err(|e| wrap(path, "cannot be read", e))?;
        }
        if head.is_empty() {
            file.write_all(&format::file_header()).map_err(|e| wrap(path, "cannot be written", e))?;
        } else {
            format::require_own_layout(&head).map_err(|e| wrap(path, "cannot be continued", e.into()))?;
        }
        Ok(Writer { path: path.to_owned(), file, end: None, records: Vec::new() })
    }

    /// Opens a file anew: what is in it goes.
    pub(crate) fn replace(path: &Path) -> io::Result<Writer> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(path);
        let mut file = file.map_err(|e| wrap(path, "cannot be opened", e))?;
        file.write_all(&format::file_header()).map_err(|e| wrap(path, "cannot be written", e))?;
        let end = Some(FILE_HEADER_BYTES as u64);
        Ok(Writer { path: path.to_owned(), file, end, records: Vec::new() })
    }

    /// Appends frames, at the time of the call.
    pub(crate) fn write<'a>(&mut self, frames: impl IntoIterator<Item = &'a [u8]>) -> io::Result<()> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.records.clear();
        for frame in frames {
            self.records.extend(format::record_header(now, frame.len() as u32));
            self.records.extend(frame);
        }
        let result = self.file.write_all(&self.records);
        match (&result, &mut self.end) {
            (Ok(()), Some(end)) => *end += self.records.len() as u64,
            (Err(_), Some(end)) => {
                let end = *end;
                // Of a pipe nothing can be taken back.
                let _ = self.file.set_len(end);
                let _ = io::Seek::seek(&mut self.file, io::SeekFrom::Start(end));
            }
            _ => {}
        }
        result.map_err(|e| wrap(&self.path, "cannot be written", e))
    }
}

/// Says which file it was.
pub(crate) fn wrap(path: &Path, what: &str, e: io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("capture file {} {what}: {e}", path.display()))
}
