//! Appending frames to a capture file.
//!
//! Each frame is one write(2) at the file's end, so that a reader of the growing file sees whole records at once, and two
//! writers of one file do not mix.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::format::{self, FILE_HEADER_BYTES};

/// An open capture file.
pub(crate) struct Writer {
    path: PathBuf,
    file: File,
    /// The record being put together.
    record: Vec<u8>,
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
        let mut head = [0; FILE_HEADER_BYTES];
        // A pipe has nothing to be read and no place to look at.
        let regular = file.metadata().map_err(|e| wrap(path, "cannot be looked at", e))?.is_file();
        let mut have = 0;
        while regular && have < head.len() {
            match file.read(&mut head[have..]).map_err(|e| wrap(path, "cannot be read", e))? {
                0 => break,
                n => have += n,
            }
        }
        if have == 0 {
            file.write_all(&format::file_header()).map_err(|e| wrap(path, "cannot be written", e))?;
        } else {
            let same = format::can_be_continued(&head[..have])
                .map_err(|e| wrap(path, "cannot be continued", e.into()))?;
            if !same {
                let why = io::Error::new(
                    io::ErrorKind::InvalidData,
                    "it has another byte order or resolution of time",
                );
                return Err(wrap(path, "cannot be continued", why));
            }
        }
        Ok(Writer { path: path.to_owned(), file, record: Vec::new() })
    }

    /// Appends a frame, at the time of the call.
    pub(crate) fn write(&mut self, frame: &[u8]) -> io::Result<()> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.record.clear();
        self.record.extend(format::record_header(now, frame.len() as u32));
        self.record.extend(frame);
        self.file.write_all(&self.record).map_err(|e| wrap(&self.path, "cannot be written", e))
    }
}

/// Says which file it was.
pub(crate) fn wrap(path: &Path, what: &str, e: io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("capture file {} {what}: {e}", path.display()))
}
