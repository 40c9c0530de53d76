//! A temporary folder that lives as long as its value.

use std::path::{Path, PathBuf};
use std::sync::Once;

use anyhow::{Context, Result};

use crate::names;

static SWEEP: Once = Once::new();

/// A folder, removed with its contents on drop. `SLUICE_KEEP=1` keeps the folders for inspection after a
/// test.
#[derive(Debug)]
pub struct TempDir {
    path: PathBuf,
}

fn keep() -> bool {
    std::env::var_os("SLUICE_KEEP").is_some()
}

impl TempDir {
    /// Creates a folder; `tag` becomes a part of its name. The path is short enough for a Unix socket inside.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn new(tag: &str) -> Result<Self> {
        SWEEP.call_once(sweep);
        let path = std::env::temp_dir().join(names::unique(tag));
        std::fs::create_dir(&path).with_context(|| format!("cannot make the folder {}", path.display()))?;
        Ok(Self { path })
    }

    /// Its path, absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        if keep() {
            eprintln!("testkit: kept {}", self.path.display());
        } else if let Err(why) = std::fs::remove_dir_all(&self.path) {
            eprintln!("testkit: cannot remove {}: {why}", self.path.display());
        }
    }
}

/// Removes the leftovers of dead test processes; another process may do the same concurrently, so errors do
/// not matter.
pub(crate) fn sweep() {
    let Ok(entries) = std::fs::read_dir(std::env::temp_dir()) else { return };
    if keep() {
        return;
    }
    for entry in entries.flatten() {
        if names::is_stale(&entry.file_name().to_string_lossy()) {
            let _gone_or_not_ours = std::fs::remove_dir_all(entry.path());
        }
    }
}
