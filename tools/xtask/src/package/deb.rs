//! The Debian package, by dpkg-deb(1).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::build::Release;
use super::{output, succeed, tree};

/// Scripts and other files of `DEBIAN`, with their mode.
pub(super) const CONTROL: [(&str, u32); 4] =
    [("postinst", 0o755), ("prerm", 0o755), ("postrm", 0o755), ("triggers", 0o644)];

const MAINTAINER: &str = "Sluice maintainers <maintainers@sluice.invalid>";

/// Makes the package; its path.
pub(super) fn make(root: &Path, release: &Release) -> Result<PathBuf> {
    let folder = release.folder.join("deb");
    let files = folder.join("files");
    tree::lay_out(root, release, &files)?;
    let arch = output(Command::new("dpkg").arg("--print-architecture"))?.trim().to_owned();
    let depends = depends(release, &folder)?;
    let entry = changelog(release)?;
    let entry_path = folder.join("changelog");
    tree::write(&entry_path, &entry)?;
    tree::compress(&entry_path, &files.join("usr/share/doc/sluice/changelog.gz"))?;
    let size_kb = output(Command::new("du").args(["-sk", "--apparent-size"]).arg(&files))?;
    let size_kb = size_kb.split_whitespace().next().context("du prints nothing")?.to_owned();
    let debian = files.join("DEBIAN");
    let sums = sums(&files)?;
    tree::write(&debian.join("md5sums"), &sums)?;
    tree::write(&debian.join("control"), &control(&release.version, &arch, &depends, &size_kb))?;
    tree::write(&debian.join("conffiles"), &tree::SETTINGS.map(|path| format!("/{path}\n")).concat())?;
    for (name, mode) in CONTROL {
        let to = debian.join(name);
        fs::copy(root.join("packaging/deb").join(name), &to).with_context(|| name.to_owned())?;
        fs::set_permissions(&to, std::os::unix::fs::PermissionsExt::from_mode(mode))?;
    }
    tree::settle(release, &files)?;
    let package = release.folder.join(format!("sluice_{}_{arch}.deb", release.version));
    succeed(
        Command::new("dpkg-deb")
            .args(["--root-owner-group", "--uniform-compression", "-Zxz", "--build"])
            .args([&files, &package])
            .env("SOURCE_DATE_EPOCH", release.epoch.to_string()),
    )?;
    Ok(package)
}

/// Packages with the shared libraries of the programs.
fn depends(release: &Release, folder: &Path) -> Result<String> {
    let source = "Source: sluice\n\nPackage: sluice\nArchitecture: any\nDepends: ${shlibs:Depends}\n";
    tree::write(&folder.join("debian/control"), source)?;
    let text = output(
        Command::new("dpkg-shlibdeps")
            .arg("-O")
            .args(["sluiced", "sluice"].map(|name| release.program(name)))
            .current_dir(folder),
    )?;
    let list = text.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    Ok(list.context("dpkg-shlibdeps names no packages")?.to_owned())
}

/// The entry of this version in the form of Debian; NEWS.md.gz has the changes.
fn changelog(release: &Release) -> Result<String> {
    let date = format!("@{}", release.epoch);
    let date =
        output(Command::new("date").args(["--utc", "--rfc-email", "--date", &date]).env("LC_ALL", "C"))?;
    let Release { version, .. } = release;
    Ok(format!(
        "sluice ({version}) unstable; urgency=medium\n\n  * NEWS.md.gz has the changes.\n\n -- {MAINTAINER}  {}\n",
        date.trim()
    ))
}

/// MD5 sums of all files, for `dpkg --verify`.
fn sums(files: &Path) -> Result<String> {
    let text = output(
        Command::new("find").args([".", "-type", "f", "-exec", "md5sum", "{}", "+"]).current_dir(files),
    )?;
    let mut lines: Vec<String> = text.lines().map(|line| line.replacen("  ./", "  ", 1)).collect();
    lines.sort_by(|a, b| a[32..].cmp(&b[32..]));
    Ok(lines.join("\n") + "\n")
}

fn control(version: &str, arch: &str, depends: &str, size_kb: &str) -> String {
    format!(
        "Package: sluice\nVersion: {version}\nArchitecture: {arch}\nMaintainer: {MAINTAINER}\nInstalled-Size: {size_kb}\nDepends: {depends}, init-system-helpers (>= 1.54~)\nSuggests: \
         openvswitch-switch, logrotate\nSection: net\nPriority: optional\nDescription: software virtual switch, a drop-in \
         for Open vSwitch\n The switch daemon sluiced and the command line sluice. Where Open vSwitch is\n installed, sluiced \
         takes the place of ovs-vswitchd: units, scripts and tools\n stay. Elsewhere it serves its own database, by \
         sluiced.service.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_control_file_has_the_fields_of_a_package() {
        let text = control("1.0~git1.a", "amd64", "libc6 (>= 2.34)", "22000");
        for line in [
            "Package: sluice",
            "Version: 1.0~git1.a",
            "Depends: libc6 (>= 2.34), init-system-helpers (>= 1.54~)",
        ] {
            assert!(text.lines().any(|l| l == line), "{text}");
        }
        // A line of the long description begins with a space.
        let description = text.split_once("Description: ").unwrap().1;
        assert!(description.lines().skip(1).all(|line| line.starts_with(' ') && line.len() <= 80), "{text}");
    }
}
