//! The files of all packages, one row each.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::build::Release;
use super::{output, succeed};
use crate::workspace::cargo;

/// Source of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    /// A built program.
    Program,
    /// A file of the repository.
    File(&'static str),
    /// A file of the repository, compressed.
    Compressed(&'static str),
    /// A symbolic link.
    Link(&'static str),
}

/// Files in their place.
pub(super) const FILES: &[(&str, From)] = &[
    ("etc/default/sluice", From::File("packaging/sluice.default")),
    ("etc/logrotate.d/sluice", From::File("packaging/sluice.logrotate")),
    ("usr/bin/sluice", From::Program),
    // The name by which the kernel, ps(1) and pidof(8) know a process that OVS's scripts start.
    ("usr/lib/sluice/ovs-vswitchd", From::Link("../../sbin/sluiced")),
    ("usr/lib/systemd/system/ovsdb-server.service.d/sluice.conf", From::File("packaging/ovsdb-server.conf")),
    ("usr/lib/systemd/system/sluiced.service", From::File("packaging/sluiced.service")),
    ("usr/lib/tmpfiles.d/sluice.conf", From::File("packaging/sluice.tmpfiles")),
    ("usr/sbin/sluiced", From::Program),
    ("usr/share/bash-completion/completions/sluice", From::File("docs/completion/sluice.bash")),
    ("usr/share/doc/sluice/NEWS.md.gz", From::Compressed("CHANGELOG.md")),
    ("usr/share/doc/sluice/README.md", From::File("README.md")),
    ("usr/share/fish/vendor_completions.d/sluice.fish", From::File("docs/completion/sluice.fish")),
    ("usr/share/zsh/vendor-completions/_sluice", From::File("docs/completion/_sluice")),
];

/// Files of the administrator, which an upgrade keeps.
pub(super) const SETTINGS: [&str; 2] = ["etc/default/sluice", "etc/logrotate.d/sluice"];

/// Pages of `docs/man`, with their place.
pub(super) fn manual_pages(root: &Path) -> Result<Vec<(String, String)>> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(root.join("docs/man")).context("docs/man")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let section = name.rsplit('.').next().unwrap_or_default().to_owned();
        pages.push((format!("usr/share/man/man{section}/{name}.gz"), format!("docs/man/{name}")));
    }
    pages.sort();
    Ok(pages)
}

/// Lays out all files in an empty folder, and sets modes.
pub(super) fn lay_out(root: &Path, release: &Release, into: &Path) -> Result<()> {
    if into.exists() {
        fs::remove_dir_all(into).with_context(|| into.display().to_string())?;
    }
    for (to, from) in FILES {
        let to = into.join(to);
        let name = to.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        match from {
            From::Program => copy(&release.program(&name), &to, 0o755)?,
            From::File(from) => copy(&root.join(from), &to, 0o644)?,
            From::Compressed(from) => compress(&root.join(from), &to)?,
            From::Link(target) => {
                make_folder(&to)?;
                symlink(target, &to).with_context(|| to.display().to_string())?;
            }
        }
    }
    for (to, from) in manual_pages(root)? {
        compress(&root.join(from), &into.join(to))?;
    }
    write(&into.join("usr/share/doc/sluice/copyright"), &copyright(root)?)
}

/// Sets the time of all files, and the mode of folders.
pub(super) fn settle(release: &Release, folder: &Path) -> Result<()> {
    let time = format!("--date=@{}", release.epoch);
    succeed(Command::new("find").arg(folder).args(["-type", "d", "-exec", "chmod", "755", "{}", "+"]))?;
    succeed(
        Command::new("find")
            .arg(folder)
            .args(["-exec", "touch", "--no-dereference"])
            .arg(time)
            .args(["{}", "+"]),
    )
}

fn make_folder(of: &Path) -> Result<()> {
    let folder = of.parent().context("no folder")?;
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())
}

fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    make_folder(to)?;
    fs::copy(from, to).with_context(|| from.display().to_string())?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode)).with_context(|| to.display().to_string())
}

/// Writes a file of text.
pub(super) fn write(to: &Path, text: &str) -> Result<()> {
    make_folder(to)?;
    fs::write(to, text).with_context(|| to.display().to_string())?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o644)).with_context(|| to.display().to_string())
}

/// Writes a compressed copy.
pub(super) fn compress(from: &Path, to: &Path) -> Result<()> {
    let out = Command::new("gzip").args(["-9", "-n", "-c"]).arg(from).output().context("cannot run gzip")?;
    anyhow::ensure!(out.status.success(), "gzip: {}", from.display());
    make_folder(to)?;
    fs::write(to, out.stdout).with_context(|| to.display().to_string())?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o644)).with_context(|| to.display().to_string())
}

/// Licences of the programs: that of Sluice, and of each library inside them.
fn copyright(root: &Path) -> Result<String> {
    let tree = output(
        Command::new(cargo())
            .args(["tree", "--locked", "--package", "sluiced", "--package", "sluice", "--edges", "normal"])
            .args(["--prefix", "none", "--format", "{p}|{l}|{r}"])
            .current_dir(root),
    )?;
    Ok(licences(&tree))
}

/// The page from lines `name version (path)|licence|repository`.
fn licences(tree: &str) -> String {
    let mut rows: Vec<String> = Vec::new();
    for line in tree.lines() {
        let mut fields = line.split('|');
        let package = fields.next().unwrap_or_default().trim();
        // Packages of the workspace have a path.
        let mut words = package.split_whitespace();
        let (Some(name), Some(version), false) = (words.next(), words.next(), package.contains("(/")) else {
            continue;
        };
        let licence = fields.next().unwrap_or_default();
        let source = fields.next().unwrap_or_default().trim_end_matches(" (*)");
        rows.push(
            format!("{name} {} {licence} {source}", version.trim_start_matches('v')).trim_end().to_owned(),
        );
    }
    rows.sort();
    rows.dedup();
    format!(
        "Copyright: the authors of Sluice.\n\nSluice is licensed under the Apache License, Version 2.0:\nhttps://www.apache.org/licenses/LICENSE-2.0, on Debian \
         /usr/share/common-licenses/Apache-2.0.\n\nThe programs contain these libraries: name, version, licence, source.\n\n{}\n",
        rows.join("\n")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_listed_once_and_own_crates_not() {
        let tree = "sluiced v0.1.0 (/w/crates/sluiced)|Apache-2.0|\nb v2.0.0|MIT|https://b\na v1.0.0 (proc-macro)|ISC|\n\
                    b v2.0.0|MIT|https://b (*)\n";
        let page = licences(tree);
        assert!(page.ends_with("source.\n\na 1.0.0 ISC\nb 2.0.0 MIT https://b\n"), "{page}");
    }
}
