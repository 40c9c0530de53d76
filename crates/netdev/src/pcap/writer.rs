//! Writing frames to a capture file.
//!
//! Each call is one write(2) of whole records, so a reader of the growing file sees whole records, and two
//! writers appending to one file do not interleave.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::format::{self, FILE_HEADER_BYTES};

/// An open capture file.
pub(crate) struct Writer {
    path: PathBuf,
    file: File,
    /// Offset of the next record, if this writer is the only one: the rest of a failed write is truncated.
    end: Option<u64>,
    /// Records being assembled.
    records: Vec<u8>,
}

impl Writer {
    /// Opens a file to append; a new or empty one gets its header. A file of another type is an error and
    /// unchanged.
    pub(crate) fn append(path: &Path) -> io::Result<Writer> {
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(path)
            .map_err(|e| wrap(path, "cannot be opened", e))?;
        // A pipe has no existing contents.
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

    /// Opens a file and truncates it.
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
                // A pipe cannot be truncated.
                let _ = self.file.set_len(end);
                let _ = io::Seek::seek(&mut self.file, io::SeekFrom::Start(end));
            }
            _ => {}
        }
        result.map_err(|e| wrap(&self.path, "cannot be written", e))
    }
}

/// Adds the file to an error.
pub(crate) fn wrap(path: &Path, what: &str, e: io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("capture file {} {what}: {e}", path.display()))
}
