//! The image in the layout of the Open Container Initiative (image-spec 1.0): a folder of plain files, made without an engine.
//!
//! Its one layer has both programs, the shared libraries that they need, and nothing else of a distribution: no shell.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::build::Release;
use super::{output, sha256, succeed, tree};

/// Names under which the command line behaves as a tool of OVS.
const TOOLS: [&str; 4] = ["ovs-vsctl", "ovs-ofctl", "ovs-appctl", "ovs-dpctl"];
/// Folders of a running switch.
const FOLDERS: [&str; 4] = ["etc/openvswitch", "proc", "sys", "var/log/openvswitch"];

/// Makes the folder; its path.
pub(super) fn make(root: &Path, release: &Release) -> Result<PathBuf> {
    let work = release.folder.join("image-files");
    lay_out(root, release, &work)?;
    let image = release.folder.join("image");
    if image.exists() {
        fs::remove_dir_all(&image)?;
    }
    fs::create_dir_all(image.join("blobs/sha256"))?;
    let archive = release.folder.join("image-layer.tar");
    let time = format!("--mtime=@{}", release.epoch);
    succeed(
        Command::new("tar")
            .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=gnu", &time, "-cf"])
            .arg(&archive)
            .arg("-C")
            .arg(&work)
            .arg("."),
    )?;
    let layer_id = sha256(&archive)?;
    succeed(Command::new("gzip").args(["-9", "-n", "-f"]).arg(&archive))?;
    let layer = blob(
        &image,
        &fs::read(archive.with_extension("tar.gz"))?,
        "application/vnd.oci.image.layer.v1.tar+gzip",
    )?;
    fs::remove_file(archive.with_extension("tar.gz"))?;
    let config = config(release, &layer_id)?;
    let config = blob(&image, config.to_string().as_bytes(), "application/vnd.oci.image.config.v1+json")?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config,
        "layers": [layer],
    });
    let mut manifest =
        blob(&image, manifest.to_string().as_bytes(), "application/vnd.oci.image.manifest.v1+json")?;
    manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": tag(&release.version) });
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [manifest],
    });
    fs::write(image.join("oci-layout"), json!({ "imageLayoutVersion": "1.0.0" }).to_string())?;
    fs::write(image.join("index.json"), index.to_string())?;
    Ok(image)
}

/// A version as a tag, which allows no `~`.
fn tag(version: &str) -> String {
    version.replace(['~', '+'], "-")
}

/// Stores a blob under its digest; its descriptor.
fn blob(image: &Path, bytes: &[u8], media_type: &str) -> Result<Value> {
    let draft = image.join("blobs/draft");
    fs::write(&draft, bytes)?;
    let digest = sha256(&draft)?;
    fs::rename(&draft, image.join("blobs/sha256").join(&digest))?;
    Ok(json!({ "mediaType": media_type, "digest": format!("sha256:{digest}"), "size": bytes.len() }))
}

fn config(release: &Release, layer_id: &str) -> Result<Value> {
    let date = format!("@{}", release.epoch);
    let created = output(Command::new("date").args(["--utc", "--date", &date, "+%Y-%m-%dT%H:%M:%SZ"]))?;
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    Ok(json!({
        "created": created.trim(),
        "architecture": architecture,
        "os": "linux",
        "config": {
            "Entrypoint": ["/usr/sbin/sluiced"],
            "Cmd": ["--pidfile"],
            "Env": ["PATH=/usr/sbin:/usr/bin"],
            "Volumes": { "/etc/openvswitch": {}, "/run/openvswitch": {} },
            "Labels": { "org.opencontainers.image.title": "sluice", "org.opencontainers.image.version": release.version,
                "org.opencontainers.image.licenses": "Apache-2.0" },
            "StopSignal": "SIGTERM",
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{layer_id}")] },
    }))
}

/// The root file system.
fn lay_out(root: &Path, release: &Release, work: &Path) -> Result<()> {
    let all = release.folder.join("image-all");
    tree::lay_out(root, release, &all)?;
    if work.exists() {
        fs::remove_dir_all(work)?;
    }
    for path in ["usr/bin/sluice", "usr/sbin/sluiced", "usr/share/doc/sluice/copyright"] {
        let to = work.join(path);
        fs::create_dir_all(to.parent().context("no folder")?)?;
        fs::rename(all.join(path), &to).with_context(|| path.to_owned())?;
    }
    fs::remove_dir_all(&all)?;
    for folder in FOLDERS {
        fs::create_dir_all(work.join(folder))?;
    }
    fs::create_dir_all(work.join("run/openvswitch"))?;
    symlink("../run", work.join("var/run"))?;
    for tool in TOOLS {
        symlink("sluice", work.join("usr/bin").join(tool))?;
    }
    symlink("../sbin/sluiced", work.join("usr/bin/ovs-vswitchd"))?;
    tree::write(&work.join("etc/passwd"), "root:x:0:0:root:/root:/usr/sbin/nologin\n")?;
    tree::write(&work.join("etc/group"), "root:x:0:\n")?;
    let mut libraries = BTreeSet::new();
    for name in ["sluiced", "sluice"] {
        libraries.extend(needed(&output(Command::new("ldd").arg(release.program(name)))?)?);
    }
    for library in &libraries {
        let to = work.join(library.trim_start_matches('/'));
        fs::create_dir_all(to.parent().context("no folder")?)?;
        // The contents under the name that programs ask for.
        fs::copy(library, &to).with_context(|| library.clone())?;
        copy_licence(library, work)?;
    }
    tree::settle(release, work)
}

/// The licence of a library, where dpkg(1) knows its package.
fn copy_licence(library: &str, work: &Path) -> Result<()> {
    let path = fs::canonicalize(library).with_context(|| library.to_owned())?;
    // Packages may name the place by a link, such as /lib.
    let name = path.file_name().context("no file name")?.to_string_lossy();
    let found = output(Command::new("dpkg-query").arg("--search").arg(format!("*/{name}")));
    let Some(package) = found.ok().and_then(|text| text.split(':').next().map(str::to_owned)) else {
        return Ok(());
    };
    let page = format!("usr/share/doc/{package}/copyright");
    let to = work.join(&page);
    fs::create_dir_all(to.parent().context("no folder")?)?;
    fs::copy(Path::new("/").join(&page), &to).with_context(|| page).map(drop)
}

/// Paths of shared libraries in the output of ldd(1).
fn needed(text: &str) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    for line in text.lines().map(str::trim) {
        ensure!(!line.contains("not found"), "ldd: {line}");
        let path = line.split_once(" => ").map_or(line, |(_, path)| path);
        let path = path.split(" (").next().unwrap_or_default();
        if path.starts_with('/') {
            paths.push(path.to_owned());
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_those_of_ldd() {
        let text = "\tlinux-vdso.so.1 (0x1)\n\tlibssl.so.3 => /lib/x/libssl.so.3 (0x2)\n\t/lib64/ld-linux-x86-64.so.2 (0x3)\n";
        assert_eq!(needed(text).unwrap(), ["/lib/x/libssl.so.3", "/lib64/ld-linux-x86-64.so.2"]);
        assert!(needed("\tlibssl.so.3 => not found\n").is_err());
        assert_eq!(tag("0.1.0~git1.a"), "0.1.0-git1.a");
    }
}
