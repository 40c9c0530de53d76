//! `cargo xtask package`: the Debian package, the RPM package and the OCI image of a built tree.
//!
//! All three have the files of one table ([`tree`]). Two builds of one commit give the same bytes: file times are those of the
//! commit, paths of the builder are replaced, names are sorted, owners are root.

mod build;
pub(crate) mod check;
mod deb;
mod image;
mod lint;
mod rpm;
mod tree;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use build::Release;

/// A kind of package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// For Debian.
    Deb,
    /// For distributions with RPM.
    Rpm,
    /// A folder in the layout of the Open Container Initiative.
    Image,
}

/// Parses the words after `package`.
pub(crate) fn parse(words: &[String]) -> Result<Vec<Kind>, String> {
    let kind = |word: &String| match word.as_str() {
        "deb" => Ok(Kind::Deb),
        "rpm" => Ok(Kind::Rpm),
        "image" => Ok(Kind::Image),
        other => Err(format!("unknown kind of package `{other}`")),
    };
    let kinds = words.iter().map(kind).collect::<Result<Vec<_>, _>>()?;
    if kinds.is_empty() { Err("the kind of package is missing".to_owned()) } else { Ok(kinds) }
}

/// Builds the programs and the packages, and prints their paths; they lie in `packages` of the target folder.
///
/// # Errors
/// A program of the system is missing or fails.
pub(crate) fn run(root: &Path, kinds: &[Kind]) -> Result<()> {
    let release = Release::of(root)?;
    release.build(root)?;
    for kind in kinds {
        println!("{}", make(root, &release, *kind)?.display());
    }
    Ok(())
}

/// One package of built programs; its path.
fn make(root: &Path, release: &Release, kind: Kind) -> Result<PathBuf> {
    match kind {
        Kind::Deb => deb::make(root, release),
        Kind::Rpm => rpm::make(root, release),
        Kind::Image => image::make(root, release),
    }
}

/// Standard output of a program that must succeed.
fn output(command: &mut Command) -> Result<String> {
    let out = command.output().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr).trim());
    String::from_utf8(out.stdout).context("output is not UTF-8")
}

/// Runs a program that must succeed.
fn succeed(command: &mut Command) -> Result<()> {
    output(command).map(drop)
}

/// SHA-256 of a file, in hexadecimal.
fn sha256(path: &Path) -> Result<String> {
    let text = output(Command::new("sha256sum").arg(path))?;
    Ok(text.split_whitespace().next().context("sha256sum prints nothing")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_named() {
        let parsed = |line: &str| parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(parsed("deb rpm image"), Ok(vec![Kind::Deb, Kind::Rpm, Kind::Image]));
        assert!(parsed("").is_err() && parsed("zip").is_err());
    }
}
