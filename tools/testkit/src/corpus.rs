//! Replaying a fuzz corpus in a unit test (the convention is in CONTRIBUTING.md).

use std::path::{Path, PathBuf};

/// Feeds every file of a corpus folder, by name, to a fuzz target. Before each, prints the file's name, so
/// that the captured output of a failing test ends with the culprit.
///
/// # Panics
/// If the folder cannot be read or is empty: a test without a corpus could not fail. And if the target
/// panics.
pub fn replay_corpus(folder: impl AsRef<Path>, target: fn(&[u8])) {
    let folder = folder.as_ref();
    let entries =
        std::fs::read_dir(folder).unwrap_or_else(|why| panic!("corpus {}: {why}", folder.display()));
    let mut files: Vec<PathBuf> = entries.flatten().map(|e| e.path()).filter(|p| p.is_file()).collect();
    files.sort();
    assert!(!files.is_empty(), "corpus {} has no file", folder.display());
    for file in files {
        println!("corpus: {}", file.display());
        let bytes = std::fs::read(&file).unwrap_or_else(|why| panic!("{}: {why}", file.display()));
        target(&bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TempDir;

    fn no_zero(bytes: &[u8]) {
        assert!(!bytes.contains(&0));
    }

    #[test]
    fn every_file_is_replayed() {
        let dir = TempDir::new("corpus").unwrap();
        let replay = || std::panic::catch_unwind(|| replay_corpus(dir.path(), no_zero)).is_ok();
        assert!(!replay(), "an empty corpus must fail");
        std::fs::write(dir.path().join("a"), [1]).unwrap();
        assert!(replay());
        std::fs::write(dir.path().join("b"), [0]).unwrap();
        assert!(!replay());
        assert!(std::panic::catch_unwind(|| replay_corpus("/nonexistent", no_zero)).is_err());
    }
}
