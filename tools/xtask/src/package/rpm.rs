//! The RPM package, by rpmbuild(8).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::build::Release;
use super::{output, succeed, tree};

/// Makes the package; its path.
pub(super) fn make(root: &Path, release: &Release) -> Result<PathBuf> {
    let folder = release.folder.join("rpm");
    let files = folder.join("files");
    tree::lay_out(root, release, &files)?;
    // Places of Fedora.
    for (from, to) in [
        ("etc/default/sluice", "etc/sysconfig/sluice"),
        ("usr/share/zsh/vendor-completions/_sluice", "usr/share/zsh/site-functions/_sluice"),
    ] {
        let to = files.join(to);
        fs::create_dir_all(to.parent().context("no folder")?)?;
        fs::rename(files.join(from), &to).with_context(|| from.to_owned())?;
        let emptied = files.join(from);
        fs::remove_dir(emptied.parent().context("no folder")?)?;
    }
    tree::settle(release, &files)?;
    let arch = output(Command::new("uname").arg("-m"))?.trim().to_owned();
    let define = |name: &str, value: &str| ["--define".to_owned(), format!("{name} {value}")];
    let made = folder.join("made");
    if made.exists() {
        fs::remove_dir_all(&made)?;
    }
    let defines = [
        define("_topdir", &folder.join("work").display().to_string()),
        define("_rpmdir", &made.display().to_string()),
        define("_rpmfilename", "%{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm"),
        define("sluice_version", &release.version),
        define("sluice_files", &files.display().to_string()),
        define("_buildhost", "reproducible"),
        define("use_source_date_epoch_as_buildtime", "1"),
        define("clamp_mtime_to_source_date_epoch", "1"),
    ];
    succeed(
        Command::new("rpmbuild")
            .args(["-bb", "--target", &arch, "--nodeps"])
            .args(defines.iter().flatten())
            .arg(root.join("packaging/rpm/sluice.spec"))
            .env("SOURCE_DATE_EPOCH", release.epoch.to_string()),
    )?;
    let package = format!("sluice-{}-1.{arch}.rpm", release.version);
    let to = release.folder.join(&package);
    fs::copy(made.join(&package), &to).with_context(|| package)?;
    Ok(to)
}
