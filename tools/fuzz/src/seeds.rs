//! Initial inputs of a fuzzer: the corpora replayed by the crates' own tests.

use std::fs;
use std::io::{Error, Result};
use std::path::{Path, PathBuf};

use crate::targets::Target;

/// Location of a target's inputs; paths are relative to the repository.
pub(crate) enum Seeds {
    /// A folder, one input a file.
    Files(&'static str),
    /// A text file, one input a line.
    Lines(&'static str),
    /// A text file; the part after the last `|` of a line is an input in hexadecimal digits.
    HexLines(&'static str),
}

/// Writes a target's inputs into a folder, one a file.
///
/// # Errors
/// If a corpus cannot be read, is empty, or the folder cannot be written.
pub(crate) fn write(target: &Target, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    for (n, seeds) in target.seeds.iter().enumerate() {
        let inputs = read(seeds)?;
        if inputs.is_empty() {
            return Err(Error::other(format!("corpus {n} is empty")));
        }
        for (i, input) in inputs.iter().enumerate() {
            fs::write(folder.join(format!("seed-{n}-{i}")), input)?;
        }
    }
    Ok(())
}

fn read(seeds: &Seeds) -> Result<Vec<Vec<u8>>> {
    let place = |path: &str| -> PathBuf { Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path) };
    let named = |path: &str, why: Error| Error::other(format!("{path}: {why}"));
    let lines = |path: &str| fs::read_to_string(place(path)).map_err(|why| named(path, why));
    Ok(match seeds {
        Seeds::Files(path) => {
            let entries = fs::read_dir(place(path)).map_err(|why| named(path, why))?;
            let mut files: Vec<PathBuf> =
                entries.flatten().map(|e| e.path()).filter(|p| p.is_file()).collect();
            files.sort();
            files.iter().map(fs::read).collect::<Result<_>>()?
        }
        Seeds::Lines(path) => lines(path)?.lines().map(|line| line.as_bytes().to_vec()).collect(),
        Seeds::HexLines(path) => lines(path)?.lines().map(hex).collect(),
    })
}

fn hex(line: &str) -> Vec<u8> {
    let digits: Vec<u8> = line
        .rsplit('|')
        .next()
        .unwrap_or_default()
        .chars()
        .filter_map(|c| c.to_digit(16))
        .map(|d| d as u8)
        .collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}
