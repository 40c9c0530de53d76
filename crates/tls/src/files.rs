//! Key and certificate files: state for noticing changes, and bounded reading.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Maximum size of a file: thousands of certificates.
const FILE_MAX_BYTES: u64 = 8 << 20;

/// State of a file that differs after a change; `None` for one that cannot be examined.
type Stamp = Option<(i64, i64, u64, u64)>;

fn stamp(path: &Path) -> Stamp {
    let meta = fs::metadata(path).ok()?;
    Some((meta.mtime(), meta.mtime_nsec(), meta.size(), meta.ino()))
}

/// The files of a configuration, as of the last look.
#[derive(Debug, Default)]
pub(crate) struct Watched(Vec<(PathBuf, Stamp)>);

impl Watched {
    /// Looks at these files. To notice a change during reading, look first.
    pub(crate) fn look<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Watched {
        Watched(paths.into_iter().map(|path| (path.to_path_buf(), stamp(path))).collect())
    }

    /// Whether any differs since the look: one system call each.
    pub(crate) fn changed(&self) -> bool {
        self.0.iter().any(|(path, seen)| stamp(path) != *seen)
    }
}

/// Reads a regular file. Never waits, as a pipe or a device would.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let meta = fs::metadata(path)?;
    if !meta.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_MAX_BYTES {
        return Err(io::Error::new(ErrorKind::InvalidInput, "longer than 8 MiB"));
    }
    Ok(bytes)
}

/// Whether nothing has this name.
pub(crate) fn is_missing(path: &Path) -> bool {
    fs::metadata(path).is_err_and(|e| e.kind() == ErrorKind::NotFound)
}

/// Writes a new file that all may read, or fails if there is one.
pub(crate) fn create(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o444).open(path)?;
    file.write_all(bytes).inspect_err(|_| {
        // An incomplete file would be trusted.
        let _ = fs::remove_file(path);
    })
}
