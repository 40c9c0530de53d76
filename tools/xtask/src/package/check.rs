//! The long stage `packages`: two builds give equal packages, and these install, work and go.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::build::Release;
use super::{Kind, make, output, sha256, succeed};

/// Programs that make the packages, with Debian's name of the package that has each.
const NEEDED: [(&str, &str); 4] =
    [("dpkg-deb", "dpkg"), ("dpkg-shlibdeps", "dpkg-dev"), ("rpmbuild", "rpm"), ("mmdebstrap", "mmdebstrap")];
/// Builds of each package.
const FOLDERS: [&str; 2] = ["packages", "packages-again"];

/// The reason why it cannot run here, if any.
pub(crate) fn lacks() -> Option<String> {
    let missing = NEEDED.iter().find(|(program, _)| Command::new(program).arg("--version").output().is_err());
    missing.map(|(program, package)| format!("not installed: {program} (Debian: {package})"))
}

/// Builds twice and tries programs of the RPM package and the image; true if all is well. Also returns the trials of the Debian
/// package, to be run.
///
/// # Errors
/// A package cannot be made or read.
pub(crate) fn run(root: &Path) -> Result<(bool, Command)> {
    let release = Release::of(root)?;
    let target = release.folder.parent().context("no target folder")?;
    let mut made: Vec<Vec<PathBuf>> = Vec::new();
    for folder in FOLDERS {
        let release = release.in_folder(&target.join(folder));
        release.build(root)?;
        let kinds = [Kind::Deb, Kind::Rpm, Kind::Image];
        made.push(kinds.iter().map(|kind| make(root, &release, *kind)).collect::<Result<_>>()?);
    }
    let (first, again) = (&made[0], &made[1]);
    let mut good = true;
    for (a, b) in first.iter().zip(again) {
        let equal = digest(a)? == digest(b)?;
        println!("  {}: {}", a.display(), if equal { "two builds are equal" } else { "two builds DIFFER" });
        good &= equal;
    }
    let work = release.folder.join("check");
    if work.exists() {
        fs::remove_dir_all(&work)?;
    }
    check_rpm(&first[1], &work.join("rpm")).context("RPM package")?;
    check_image(&first[2], &work.join("image")).context("image")?;
    println!("  the RPM package and the image have programs that run");
    let mut trials = Command::new(root.join("scripts/packages.sh"));
    trials.arg(&first[0]).arg(target.join("package-roots"));
    Ok((good, trials))
}

/// SHA-256 of a package; that of an image's index, which names all its parts by theirs.
fn digest(package: &Path) -> Result<String> {
    sha256(&if package.is_dir() { package.join("index.json") } else { package.to_owned() })
}

/// Installs the package in an empty folder, and asks its programs for their version.
fn check_rpm(package: &Path, into: &Path) -> Result<()> {
    fs::create_dir_all(into)?;
    succeed(
        Command::new("rpm")
            .args(["--install", "--nodeps", "--noscripts", "--nosignature", "--root"])
            .arg(into)
            .arg(package),
    )?;
    for program in ["usr/sbin/sluiced", "usr/lib/sluice/ovs-vswitchd", "usr/bin/sluice"] {
        output(Command::new(into.join(program)).arg("--version"))?;
    }
    let settings = output(Command::new("rpm").args(["--query", "--configfiles", "--package"]).arg(package))?;
    ensure!(settings.lines().any(|line| line == "/etc/sysconfig/sluice"), "settings: {settings}");
    Ok(())
}

fn read_json(path: &Path) -> Result<Value> {
    serde_json::from_slice(&fs::read(path).with_context(|| path.display().to_string())?)
        .with_context(|| path.display().to_string())
}

/// Path of the blob of a descriptor, whose digest and size are compared.
fn blob(image: &Path, descriptor: &Value) -> Result<PathBuf> {
    let digest =
        descriptor["digest"].as_str().and_then(|text| text.strip_prefix("sha256:")).context("no digest")?;
    let path = image.join("blobs/sha256").join(digest);
    ensure!(sha256(&path)? == digest, "{}: another digest", path.display());
    ensure!(
        descriptor["size"].as_u64() == Some(fs::metadata(&path)?.len()),
        "{}: another size",
        path.display()
    );
    Ok(path)
}

/// Follows the descriptors, unpacks the layer, and runs the programs in it.
fn check_image(image: &Path, into: &Path) -> Result<()> {
    ensure!(read_json(&image.join("oci-layout"))?["imageLayoutVersion"] == "1.0.0", "oci-layout");
    let manifest = read_json(&blob(image, &read_json(&image.join("index.json"))?["manifests"][0])?)?;
    let config = read_json(&blob(image, &manifest["config"])?)?;
    let layer = blob(image, &manifest["layers"][0])?;
    fs::create_dir_all(into)?;
    let archive = into.with_extension("tar");
    fs::write(&archive, Command::new("gzip").args(["-dc"]).arg(&layer).output().context("gzip")?.stdout)?;
    let id = format!("sha256:{}", sha256(&archive)?);
    ensure!(config["rootfs"]["diff_ids"] == serde_json::json!([id]), "diff_ids");
    succeed(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(into))?;
    let entry = config["config"]["Entrypoint"][0].as_str().context("no entry point")?;
    for program in [entry, "/usr/bin/ovs-vswitchd", "/usr/bin/sluice", "/usr/bin/ovs-vsctl"] {
        output(Command::new("chroot").arg(into).args([program, "--version"]))?;
    }
    Ok(())
}
