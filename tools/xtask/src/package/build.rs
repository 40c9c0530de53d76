//! The programs of a release, without paths of the builder, and the version of the packages.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::output;
use crate::workspace::{cargo, metadata, target, text};

/// The profile of `Cargo.toml`.
const PROFILE: &str = "packaged";
/// Replaces the time of the build in C sources (the allocator prints it).
const NO_TIMES: &str = r#"-Wno-builtin-macro-redefined -D__DATE__="-" -D__TIME__="-""#;

/// A release to pack.
#[derive(Clone, Debug)]
pub(crate) struct Release {
    /// Version of the workspace, with the time and name of a commit without a tag.
    pub(crate) version: String,
    /// Seconds since 1970 of all files.
    pub(crate) epoch: u64,
    /// Build folder and packages.
    pub(crate) folder: PathBuf,
}

impl Release {
    /// The release of the checked-out commit; `SOURCE_DATE_EPOCH` replaces its time.
    ///
    /// # Errors
    /// `cargo metadata` fails, or the variable is no number.
    pub(crate) fn of(root: &Path) -> Result<Release> {
        let meta = metadata(root, &["--no-deps"])?;
        let packages = meta["packages"].as_array().context("no packages")?;
        let sluiced = packages.iter().find(|p| p["name"] == "sluiced").context("no package sluiced")?;
        let git =
            |args: &[&str]| output(Command::new("git").args(args).current_dir(root).env("TZ", "UTC")).ok();
        let commit =
            git(&["log", "-1", "--format=%ct %cd %h", "--abbrev=8", "--date=format-local:%Y%m%d%H%M%S"]);
        let words: Vec<&str> = commit.as_deref().unwrap_or_default().split_whitespace().collect();
        let tags = git(&["tag", "--points-at", "HEAD"]).unwrap_or_default();
        let version = version(text(sluiced, "version")?, &words, &tags);
        let epoch = match (std::env::var("SOURCE_DATE_EPOCH"), &words[..]) {
            (Ok(given), _) => given.parse().context("SOURCE_DATE_EPOCH")?,
            (Err(_), [seconds, ..]) => seconds.parse().context("time of the commit")?,
            // A tree without its history.
            (Err(_), []) => 0,
        };
        Ok(Release { version, epoch, folder: target(root)?.join("packages") })
    }

    /// This release, built in another folder.
    pub(crate) fn in_folder(&self, folder: &Path) -> Release {
        Release { folder: folder.to_owned(), ..self.clone() }
    }

    /// A built program.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.folder.join(PROFILE).join(name)
    }

    /// Builds both programs.
    ///
    /// # Errors
    /// They do not build.
    pub(crate) fn build(&self, root: &Path) -> Result<()> {
        let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
        let home = match home {
            Some(home) => home,
            None => {
                PathBuf::from(std::env::var_os("HOME").context("neither CARGO_HOME nor HOME")?).join(".cargo")
            }
        };
        // The last match counts: the target folder may lie in the source tree.
        let places =
            [(root, "/usr/src/sluice"), (&home, "/usr/src/cargo"), (&self.folder, "/usr/src/target")];
        let map = |option: &str| places.map(|(from, to)| format!("{option}={}={to}", from.display()));
        let status = Command::new(cargo())
            .args(["build", "--locked", "--profile", PROFILE, "--package", "sluiced", "--package", "sluice"])
            .current_dir(root)
            .env("CARGO_TARGET_DIR", &self.folder)
            .env("CARGO_ENCODED_RUSTFLAGS", map("--remap-path-prefix").join("\u{1f}"))
            .env("CFLAGS", format!("{} {NO_TIMES}", map("-ffile-prefix-map").join(" ")))
            .status()
            .context("cannot run cargo")?;
        ensure!(status.success(), "the programs do not build");
        Ok(())
    }
}

/// The version of packages: that of the workspace for a tagged commit; before the next one for others.
fn version(workspace: &str, commit: &[&str], tags: &str) -> String {
    match commit {
        [_, time, name] if !tags.lines().any(|tag| tag == format!("v{workspace}")) => {
            format!("{workspace}~git{time}.{name}")
        }
        _ => workspace.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_without_a_tag_come_before_the_version() {
        let commit = ["1700000000", "20231114221320", "0123abcd"];
        assert_eq!(version("1.2.0", &commit, "v1.1.0\n"), "1.2.0~git20231114221320.0123abcd");
        assert_eq!(version("1.2.0", &commit, "other\nv1.2.0\n"), "1.2.0");
        assert_eq!(version("1.2.0", &[], ""), "1.2.0");
    }
}
